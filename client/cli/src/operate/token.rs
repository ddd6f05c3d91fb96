//! `cluster token`: what a new machine needs to join.

use super::super::{Exit, Failure, Runner, Transport};
use super::survey::Survey;
use norn_client::api::Invitation;
use norn_client::client::cluster::invitation;

pub(super) async fn run<T: Transport>(runner: &mut Runner<T>) -> Result<Exit, Failure> {
    let survey = Survey::take(runner, None).await?;
    let (cluster, invitation) = (survey.view.cluster, invitation(&survey.view));
    let token = invitation.to_string();
    if runner.output.json() {
        let line = Invitation { token, cluster, addresses: (&invitation.addresses).into() };
        runner.output.object(&line)?;
    } else {
        runner.output.line(&token)?;
    }
    Ok(Exit::Done)
}
