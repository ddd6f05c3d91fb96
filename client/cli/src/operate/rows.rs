//! JSON for programs about a cluster and its changes.

use super::super::json::{self, ids};
use super::change::Wish;
use super::survey::{Phase, Survey, comers};
use norn_wire::membership::{Changed, ClusterView, Member, MemberState, Settings};
use norn_wire::response::{PartitionView, Status};
use norn_wire::{NodeId, PartitionId};
use serde::Serialize;
use std::collections::BTreeMap;

/// Replicas of a member, and those that come and go.
#[derive(Serialize)]
struct HoldLine<'a> {
    number: u16,
    node: String,
    name: &'a str,
    state: &'static str,
    holds: u32,
    comes: u32,
    goes: u32,
}

fn hold<'a>(view: &ClusterView, number: u16, member: &'a Member) -> HoldLine<'a> {
    let share = view.shares.get(&number).copied().unwrap_or_default();
    HoldLine {
        number,
        node: member.node.to_string(),
        name: &member.name,
        state: member.state.name(),
        holds: share.stay.saturating_add(share.go),
        comes: share.come,
        goes: share.go,
    }
}

/// Line of a change: `planned`, `begun` or `done`.
#[derive(Serialize)]
pub struct ChangeLine<'a> {
    change: &'static str,
    state: &'static str,
    already: bool,
    node: Option<String>,
    version: u64,
    layout: u64,
    open: u32,
    members: Vec<HoldLine<'a>>,
}

/// Line of a change, with the cluster after it, or as it would be.
pub fn of_change<'a>(wish: &Wish, changed: &Changed, state: &'static str, view: &'a ClusterView) -> ChangeLine<'a> {
    ChangeLine {
        change: wish.verb,
        state,
        already: changed.already,
        node: wish.node.as_ref().map(NodeId::to_string),
        version: changed.version,
        layout: view.layout,
        open: view.open,
        members: view.roster.members.iter().map(|(number, member)| hold(view, *number, member)).collect(),
    }
}

/// Line of a change made before, of a member that the cluster has forgotten.
pub fn of_absent<'a>(change: &'static str, view: &'a ClusterView) -> ChangeLine<'a> {
    ChangeLine {
        change,
        state: "done",
        already: true,
        node: None,
        version: view.roster.version,
        layout: view.layout,
        open: view.open,
        members: view.roster.members.iter().map(|(number, member)| hold(view, *number, member)).collect(),
    }
}

#[derive(Serialize)]
struct LayoutLine {
    version: u64,
    stale: bool,
    replicas: u32,
    stable: usize,
    moving: usize,
    leaving: usize,
    left: usize,
    open: u32,
    unknown: u32,
}

#[derive(Serialize)]
struct RootLine {
    version: u64,
    leader: String,
    voters: Vec<String>,
}

#[derive(Serialize)]
struct SettingsLine {
    heal_after_ms: Option<u64>,
    moves_at_once: u32,
    moves_at_once_each: u32,
}

#[derive(Serialize)]
struct MemberLine<'a> {
    #[serde(flatten)]
    hold: HoldLine<'a>,
    address: &'a str,
    zone: &'a str,
    weight: u32,
    alive: bool,
    votes: bool,
    leads: u32,
}

fn member<'a>(survey: &'a Survey, leads: &BTreeMap<NodeId, u32>, number: u16, member: &'a Member) -> MemberLine<'a> {
    MemberLine {
        hold: hold(&survey.view, number, member),
        address: &member.address,
        zone: &member.zone,
        weight: member.weight,
        alive: survey.is_alive(member.node),
        votes: survey.view.voters.contains(&member.node),
        leads: leads.get(&member.node).copied().unwrap_or_default(),
    }
}

/// Partition that is moving.
#[derive(Serialize)]
struct WayLine {
    partition: PartitionId,
    state: &'static str,
    cohort: Vec<String>,
    next: Vec<String>,
    comes: Vec<String>,
    leaving: Vec<String>,
}

fn way(survey: &Survey, view: &PartitionView) -> WayLine {
    WayLine {
        partition: view.partition,
        state: phase_name(survey.phase(view)),
        cohort: ids(&view.cohort),
        next: ids(&view.next),
        comes: ids(comers(view, &view.next)),
        leaving: ids(&view.leaving),
    }
}

/// Returns the name of a phase, for people and programs.
pub fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Stable => "stable",
        Phase::Moving => "moving",
        Phase::Leaving => "leaving",
        Phase::Left => "left",
    }
}

/// Line of a cluster: all of `status`, members, settings, and moves.
#[derive(Serialize)]
pub struct OverviewLine<'a> {
    #[serde(flatten)]
    status: json::StatusLine<'a>,
    root: RootLine,
    settings: SettingsLine,
    layout: LayoutLine,
    members: Vec<MemberLine<'a>>,
    under_way: Vec<WayLine>,
}

/// Line of `cluster status`.
pub fn overview<'a>(status: &'a Status, survey: &'a Survey) -> OverviewLine<'a> {
    let ClusterView { roster, voters, leader, replicas, settings, layout, stale, open, unknown, .. } = &survey.view;
    let count = |phase| survey.partitions.iter().filter(|view| survey.phase(view) == phase).count();
    let under_way = survey.partitions.iter().filter(|view| survey.is_under_way(view));
    let (leads, shown) = (survey.leads(), shown(survey));
    let Settings { heal_after_ms, moves_at_once, moves_at_once_each } = *settings;
    OverviewLine {
        status: json::status(status),
        root: RootLine { version: roster.version, leader: leader.to_string(), voters: ids(voters) },
        settings: SettingsLine { heal_after_ms, moves_at_once, moves_at_once_each },
        layout: LayoutLine {
            version: *layout,
            stale: *stale,
            replicas: *replicas,
            stable: count(Phase::Stable),
            moving: count(Phase::Moving),
            leaving: count(Phase::Leaving),
            left: count(Phase::Left),
            open: *open,
            unknown: *unknown,
        },
        members: shown.map(|(number, one)| member(survey, &leads, number, one)).collect(),
        under_way: under_way.map(|view| way(survey, view)).collect(),
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
