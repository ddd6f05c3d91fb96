//! JSON for programs about a cluster and its changes.

use super::change::Wish;
use super::survey::{Survey, comers};
use norn_client::api::{
    ChangeReport, ChangeState, ClusterMember, ClusterOverview, LayoutTotals, MemberShare, MetadataGroup, PartitionMove,
    PartitionPhase,
};
use norn_wire::NodeId;
use norn_wire::membership::{Changed, ClusterView, Member, MemberState};
use norn_wire::response::{PartitionView, Status};
use std::collections::BTreeMap;

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

fn member<'a>(survey: &'a Survey, leads: &BTreeMap<NodeId, u32>, number: u16, member: &'a Member) -> ClusterMember<'a> {
    ClusterMember {
        share: MemberShare::new(&survey.view, number, member),
        address: (&member.address).into(),
        zone: (&member.zone).into(),
        weight: member.weight,
        alive: survey.is_alive(member.node),
        votes: survey.view.voters.contains(&member.node),
        leads: leads.get(&member.node).copied().unwrap_or_default(),
    }
}

fn moving(survey: &Survey, view: &PartitionView) -> PartitionMove {
    PartitionMove {
        partition: view.partition,
        state: survey.phase(view),
        cohort: view.cohort.clone(),
        next: view.next.clone(),
        comes: comers(view, &view.next).copied().collect(),
        leaving: view.leaving.clone(),
    }
}

/// Reports the cluster for `cluster status`.
pub fn overview<'a>(status: &'a Status, survey: &'a Survey) -> ClusterOverview<'a> {
    let ClusterView { roster, voters, leader, replicas, settings, layout, stale, open, unknown, .. } = &survey.view;
    let count = |phase| survey.partitions.iter().filter(|view| survey.phase(view) == phase).count() as u64;
    let under_way = survey.partitions.iter().filter(|view| survey.is_under_way(view));
    let (leads, shown) = (survey.leads(), shown(survey));
    ClusterOverview {
        status: status.into(),
        root: MetadataGroup { version: roster.version, leader: *leader, voters: voters.clone() },
        settings: settings.into(),
        layout: LayoutTotals {
            version: *layout,
            stale: *stale,
            replicas: *replicas,
            stable: count(PartitionPhase::Stable),
            moving: count(PartitionPhase::Moving),
            leaving: count(PartitionPhase::Leaving),
            left: count(PartitionPhase::Left),
            open: *open,
            unknown: *unknown,
        },
        members: shown.map(|(number, one)| member(survey, &leads, number, one)).collect(),
        under_way: under_way.map(|view| moving(survey, view)).collect(),
    }
}

/// Returns the members, and removed ones that still hold replicas.
pub fn shown(survey: &Survey) -> impl Iterator<Item = (u16, &Member)> {
    let has_some = |number: &u16| survey.view.shares.get(number).is_some_and(|share| share.go > 0);
    let members = survey.view.roster.members.iter();
    members
        .filter(move |(number, member)| member.state != MemberState::Gone || has_some(number))
        .map(|(number, member)| (*number, member))
}
