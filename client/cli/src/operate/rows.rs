//! JSON for programs about a cluster and its changes.

use super::change::Wish;
use super::survey::Survey;
use norn_client::api::{ChangeReport, ChangeState, ClusterOverview, MemberShare};
use norn_wire::membership::{Changed, ClusterView, Member, MemberState};
use norn_wire::response::Status;

/// Reports a change, with the cluster after it, or as it would be.
pub fn of_change<'a>(wish: &Wish, changed: &Changed, state: ChangeState, view: &'a ClusterView) -> ChangeReport<'a> {
    ChangeReport {
        change: wish.verb.into(),
        state,
        already: changed.already,
        node: wish.node,
        version: changed.version,
        layout: view.layout,
        open: view.open,
        members: MemberShare::all(view),
    }
}

/// Reports a change made before, of a member that the cluster has forgotten.
pub fn of_absent<'a>(change: &'static str, view: &'a ClusterView) -> ChangeReport<'a> {
    ChangeReport {
        change: change.into(),
        state: ChangeState::Done,
        already: true,
        node: None,
        version: view.roster.version,
        layout: view.layout,
        open: view.open,
        members: MemberShare::all(view),
    }
}

/// Reports the cluster for `cluster status`.
pub fn overview<'a>(status: &'a Status, survey: &'a Survey) -> ClusterOverview<'a> {
    ClusterOverview::new(status, &survey.view, &survey.partitions)
}

/// Returns the members, and removed ones that still hold replicas.
pub fn shown(survey: &Survey) -> impl Iterator<Item = (u16, &Member)> {
    let has_some = |number: &u16| survey.view.shares.get(number).is_some_and(|share| share.go > 0);
    let members = survey.view.roster.members.iter();
    members
        .filter(move |(number, member)| member.state != MemberState::Gone || has_some(number))
        .map(|(number, member)| (*number, member))
}
