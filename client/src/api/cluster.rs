//! Nodes and partitions as one node sees them.

use super::form::{text, text_if_any, texts};
use super::hexadecimal;
use norn_wire::response::{self, Health, NodeView, PartitionView, Standing};
use norn_wire::{NodeId, PartitionId, membership};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// A node: answer to `nodes`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Node<'a> {
    /// Node.
    #[serde(with = "text")]
    pub node: NodeId,
    /// Name in its certificate.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub name: Cow<'a, str>,
    /// Address `HOST:PORT`.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub address: Cow<'a, str>,
    /// Failure domain.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub zone: Cow<'a, str>,
    /// Lifecycle state as a member; `null` if the answering node does not know it.
    #[cfg_attr(feature = "schema", schema(required))]
    pub state: Option<MemberState>,
    /// Whether the answering node heard from it within the election timeout.
    pub alive: bool,
    /// Whether it is the answering node itself.
    pub this: bool,
    /// Partitions it leads, as far as known.
    pub leads: u32,
    /// Partitions it holds a replica of.
    pub holds: u32,
    /// Status of its wall clock, by its own report.
    pub clock: ClockStatus,
    /// Its wall clock minus the answering node's, in milliseconds, where measured.
    #[cfg_attr(feature = "schema", schema(required))]
    pub clock_offset_ms: Option<i64>,
    /// Largest error of the offset, in milliseconds.
    #[cfg_attr(feature = "schema", schema(required))]
    pub clock_error_ms: Option<u64>,
    /// Round trip in microseconds, where measured.
    #[cfg_attr(feature = "schema", schema(required))]
    pub round_trip_us: Option<u64>,
    /// Newest protocol version that it speaks, as far as known; `null` if it was never heard.
    #[cfg_attr(feature = "schema", schema(required))]
    pub version: Option<u8>,
    /// Members that do not reach it, although the answering node hears it.
    #[serde(with = "texts")]
    pub unreached_from: Vec<NodeId>,
}

impl<'a> From<&'a NodeView> for Node<'a> {
    fn from(node: &'a NodeView) -> Self {
        Node {
            node: node.node,
            name: (&node.name).into(),
            address: (&node.address).into(),
            zone: (&node.zone).into(),
            state: node.state.map(MemberState::from),
            alive: node.alive,
            this: node.this,
            leads: node.leads,
            holds: node.holds,
            clock: node.clock.into(),
            clock_offset_ms: node.clock_offset_ms,
            clock_error_ms: node.clock_error_ms,
            round_trip_us: node.round_trip_us,
            version: node.version,
            unreached_from: node.unreached_from.clone(),
        }
    }
}

/// Lifecycle state of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum MemberState {
    /// Added; no layout includes it yet.
    Joining,
    /// Holds the replicas that the layout gives it.
    Up,
    /// Hands its replicas over.
    Leaving,
    /// No member any more.
    Gone,
    /// One of a later version.
    #[serde(other)]
    Other,
}

impl From<membership::MemberState> for MemberState {
    fn from(state: membership::MemberState) -> Self {
        match state {
            membership::MemberState::Joining => MemberState::Joining,
            membership::MemberState::Up => MemberState::Up,
            membership::MemberState::Leaving => MemberState::Leaving,
            membership::MemberState::Gone => MemberState::Gone,
        }
    }
}

/// Status of a node's wall clock, from best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ClockStatus {
    /// A majority of the nodes agrees with it.
    Good,
    /// No majority can be reached to compare with.
    Unknown,
    /// It differs by more than half the allowed difference: the node hands its leaderships over.
    Suspect,
    /// It differs by more than four fifths of that, or was just set by hand: the node leads nothing and opens no sessions.
    Fenced,
    /// One of a later version.
    #[serde(other)]
    Other,
}

impl From<Standing> for ClockStatus {
    fn from(standing: Standing) -> Self {
        match standing {
            Standing::Good => ClockStatus::Good,
            Standing::Unknown => ClockStatus::Unknown,
            Standing::Suspect => ClockStatus::Suspect,
            Standing::Fenced => ClockStatus::Fenced,
        }
    }
}

/// Place of a partition on the ring: answer to `ring`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RingPlace {
    /// Number of the partition.
    pub partition: PartitionId,
    /// Its members, in the order of preference.
    #[serde(with = "texts")]
    pub cohort: Vec<NodeId>,
    /// Next members, while the partition moves.
    #[serde(with = "texts")]
    pub next: Vec<NodeId>,
    /// Removed members that have not handed over all their facts (draining replicas).
    #[serde(with = "texts")]
    pub leaving: Vec<NodeId>,
}

impl From<&PartitionView> for RingPlace {
    fn from(view: &PartitionView) -> Self {
        let PartitionView { partition, cohort, next, leaving, .. } = view;
        RingPlace { partition: *partition, cohort: cohort.clone(), next: next.clone(), leaving: leaving.clone() }
    }
}

/// A partition: answer to `partitions`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Partition {
    /// Number of the partition.
    pub partition: PartitionId,
    /// Its members, in the order of preference.
    #[serde(with = "texts")]
    pub cohort: Vec<NodeId>,
    /// Its leader, if known.
    #[serde(with = "text_if_any")]
    #[cfg_attr(feature = "schema", schema(required))]
    pub leader: Option<NodeId>,
    /// Epoch of the leader; 0 if none is known.
    pub epoch: u64,
    /// Operations of the claim table applied here in this epoch.
    pub applied: u64,
    /// Tasks held here; `null` if the node holds no replica.
    #[cfg_attr(feature = "schema", schema(required))]
    pub tasks: Option<u64>,
    /// Claims that hold.
    #[cfg_attr(feature = "schema", schema(required))]
    pub claims: Option<u64>,
    /// Root of the Merkle tree over the tasks, in hexadecimal.
    #[cfg_attr(feature = "schema", schema(required))]
    pub root: Option<String>,
    /// Completeness of the replica here.
    #[cfg_attr(feature = "schema", schema(required))]
    pub health: Option<ReplicaHealth>,
    /// Tombstones held here: tasks whose retention is over and that are not forgotten yet.
    #[cfg_attr(feature = "schema", schema(required))]
    pub tombstones: Option<u64>,
    /// Members whose absence has kept the leader from forgetting ended tasks for some time.
    #[serde(with = "texts")]
    pub held_up_by: Vec<NodeId>,
    /// Agreement of the replica here with each other one.
    pub agreements: Vec<Agreement>,
    /// Next members, while the partition moves.
    #[serde(with = "texts")]
    pub next: Vec<NodeId>,
    /// Removed members that have not handed over all their facts (draining replicas).
    #[serde(with = "texts")]
    pub leaving: Vec<NodeId>,
}

impl From<&PartitionView> for Partition {
    fn from(view: &PartitionView) -> Self {
        Partition {
            partition: view.partition,
            cohort: view.cohort.clone(),
            leader: view.leader,
            epoch: view.epoch,
            applied: view.applied,
            tasks: view.tasks,
            claims: view.claims,
            root: view.root.as_ref().map(|root| hexadecimal(root)),
            health: view.health.map(ReplicaHealth::from),
            tombstones: view.tombstones,
            held_up_by: view.held_up_by.clone(),
            agreements: view.agreements.iter().map(Agreement::from).collect(),
            next: view.next.clone(),
            leaving: view.leaving.clone(),
        }
    }
}

/// Completeness of a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ReplicaHealth {
    /// Nothing is missing.
    Whole,
    /// It lost facts about tasks, and does not count for strict writes until it has recovered them.
    Holes,
    /// It lost claims too, and does not vote until a leader has brought it up to date.
    Recovering,
    /// One of a later version.
    #[serde(other)]
    Other,
}

impl From<Health> for ReplicaHealth {
    fn from(health: Health) -> Self {
        match health {
            Health::Whole => ReplicaHealth::Whole,
            Health::Holes => ReplicaHealth::Holes,
            Health::Recovering => ReplicaHealth::Recovering,
        }
    }
}

/// Agreement with another replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Agreement {
    /// The node that holds the other replica.
    #[serde(with = "text")]
    pub node: NodeId,
    /// How many milliseconds ago both held the same; 0 if nothing changed here since, `null` if they have not agreed since the
    /// answering node started.
    #[cfg_attr(feature = "schema", schema(required))]
    pub agreed_ms_ago: Option<u64>,
    /// Whether they differ by more than updates in flight.
    pub apart: bool,
    /// Tasks that their last comparison found to differ, at least; `null` if no comparison was needed since they agreed.
    #[cfg_attr(feature = "schema", schema(required))]
    pub differing: Option<u64>,
}

impl From<&response::Agreement> for Agreement {
    fn from(agreement: &response::Agreement) -> Self {
        let response::Agreement { node, agreed_ms, apart, differing } = *agreement;
        Agreement { node, agreed_ms_ago: agreed_ms, apart, differing }
    }
}
