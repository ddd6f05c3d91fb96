//! `cluster token`: what a new machine needs to join.

use super::super::{Exit, Failure, Runner, Transport};
use super::survey::Survey;
use norn_client::client::cluster::invitation;
use serde::Serialize;

#[derive(Serialize)]
struct TokenLine<'a> {
    token: String,
    cluster: String,
    addresses: &'a [String],
}

pub(super) async fn run<T: Transport>(runner: &mut Runner<T>) -> Result<Exit, Failure> {
    let survey = Survey::take(runner, None).await?;
    let (cluster, invitation) = (survey.view.cluster, invitation(&survey.view));
    let token = invitation.to_string();
    if runner.output.json() {
        let line = TokenLine { token, cluster: cluster.to_string(), addresses: &invitation.addresses };
        runner.output.object(&line)?;
    } else {
        runner.output.line(&token)?;
    }
    Ok(Exit::Done)
}
