//! `cluster token`: what a new machine must know to join.

use super::super::{Exit, Failure, Runner, Transport};
use super::survey::Survey;
use crate::wire::invitation::Invitation;
use crate::wire::membership::Member;
use serde::Serialize;

/// Members named: enough for one of them to be there.
const MEMBERS_NAMED: usize = 5;

#[derive(Serialize)]
struct TokenLine<'a> {
    token: String,
    cluster: String,
    addresses: &'a [String],
}

pub(super) async fn run<T: Transport>(runner: &mut Runner<T>) -> Result<Exit, Failure> {
    let survey = Survey::take(runner, None).await?;
    let mut members: Vec<&Member> =
        survey.view.roster.members.values().filter(|member| member.state.may_hold()).collect();
    // A sort that keeps the order otherwise: those who are there come first.
    members.sort_by_key(|member| !survey.is_alive(member.node));
    let addresses: Vec<String> = members.iter().take(MEMBERS_NAMED).map(|member| member.address.clone()).collect();
    let cluster = survey.view.cluster;
    let invitation = Invitation { cluster: Some(cluster), addresses };
    let token = invitation.to_string();
    if runner.output.json() {
        let line = TokenLine { token, cluster: cluster.to_string(), addresses: &invitation.addresses };
        runner.output.object(&line)?;
    } else {
        runner.output.line(&token)?;
    }
    Ok(Exit::Done)
}
