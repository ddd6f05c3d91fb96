//! Changes of a cluster, and what operators see of them.

use super::form::{text, text_if_any, texts};
use super::{MemberState, Status};
use norn_wire::membership::{ClusterView, Member, Settings};
use norn_wire::{ClusterId, NodeId, PartitionId};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// A change of the cluster, with the cluster after it, or as it would be: answer to the verbs that change a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ChangeReport<'a> {
    /// The verb of the change: `add`, `drain`, `replicas` and so on.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub change: Cow<'a, str>,
    /// How far the change is.
    pub state: ChangeState,
    /// Whether it was in effect before.
    pub already: bool,
    /// Member in question, if there is one.
    #[serde(with = "text_if_any")]
    #[cfg_attr(feature = "schema", schema(required))]
    pub node: Option<NodeId>,
    /// Number of changes of the cluster so far.
    pub version: u64,
    /// Version of the layout.
    pub layout: u64,
    /// Partitions that do not match the layout yet.
    pub open: u32,
    /// Members, including removed ones that a layout may still name.
    pub members: Vec<MemberShare<'a>>,
}

/// How far a change is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ChangeState {
    /// Nothing was changed: the answer shows what would be.
    Planned,
    /// It is decided, and the cluster carries it out by itself.
    Begun,
    /// It is carried out.
    Done,
    /// One of a later version.
    #[serde(other)]
    Other,
}

/// Replicas of a member, and those that come and go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct MemberShare<'a> {
    /// Number of the member.
    pub number: u16,
    /// Node.
    #[serde(with = "text")]
    pub node: NodeId,
    /// Name in its certificate.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub name: Cow<'a, str>,
    /// Lifecycle state.
    pub state: MemberState,
    /// Replicas that it holds.
    pub holds: u32,
    /// Replicas that it should hold and does not yet.
    pub comes: u32,
    /// Replicas that it holds and should give up.
    pub goes: u32,
}

impl<'a> MemberShare<'a> {
    /// Creates the form of the member with this number.
    #[must_use]
    pub fn new(view: &ClusterView, number: u16, member: &'a Member) -> Self {
        let share = view.shares.get(&number).copied().unwrap_or_default();
        MemberShare {
            number,
            node: member.node,
            name: (&member.name).into(),
            state: member.state.into(),
            holds: share.stay.saturating_add(share.go),
            comes: share.come,
            goes: share.go,
        }
    }

    /// Creates the forms of all members.
    #[must_use]
    pub fn all(view: &'a ClusterView) -> Vec<Self> {
        view.roster.members.iter().map(|(number, member)| MemberShare::new(view, *number, member)).collect()
    }
}

/// The cluster with its settings, members and moves: answer to `cluster status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ClusterOverview<'a> {
    /// All of `status`, as fields beside these.
    #[serde(flatten)]
    pub status: Status<'a>,
    /// Metadata group, which holds members, layout, policies and schedules.
    pub root: MetadataGroup,
    /// Operators' settings.
    pub settings: ClusterSettings,
    /// Partitions and how they match the layout.
    pub layout: LayoutTotals,
    /// Members, and removed ones that still hold replicas.
    pub members: Vec<ClusterMember<'a>>,
    /// Partitions that are moving.
    pub under_way: Vec<PartitionMove>,
}

/// Metadata group of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct MetadataGroup {
    /// Number of changes of the cluster so far.
    pub version: u64,
    /// Its leader.
    #[serde(with = "text")]
    pub leader: NodeId,
    /// Nodes that vote in it.
    #[serde(with = "texts")]
    pub voters: Vec<NodeId>,
}

/// Operators' settings of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ClusterSettings {
    /// Milliseconds of silence after which the cluster declares a member gone by itself; `null`: never.
    #[cfg_attr(feature = "schema", schema(required))]
    pub heal_after_ms: Option<u64>,
    /// Partitions that move at once in the whole cluster.
    pub moves_at_once: u32,
    /// Partitions that come to or leave one member at once.
    pub moves_at_once_each: u32,
}

impl From<&Settings> for ClusterSettings {
    fn from(settings: &Settings) -> Self {
        let Settings { heal_after_ms, moves_at_once, moves_at_once_each } = *settings;
        ClusterSettings { heal_after_ms, moves_at_once, moves_at_once_each }
    }
}

/// Layout of a cluster, and numbers of partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LayoutTotals {
    /// Version of the layout.
    pub version: u64,
    /// Whether an input of the layout changed, so that it is planned anew next.
    pub stale: bool,
    /// Wanted replicas of each partition.
    pub replicas: u32,
    /// Partitions of phase `stable`.
    pub stable: u64,
    /// Partitions of phase `moving`.
    pub moving: u64,
    /// Partitions of phase `leaving`.
    pub leaving: u64,
    /// Partitions of phase `left`.
    pub left: u64,
    /// Partitions that do not match the layout yet.
    pub open: u32,
    /// Partitions whose replicas the leader does not know.
    pub unknown: u32,
}

/// A member of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ClusterMember<'a> {
    /// Identity and replicas, as fields beside these.
    #[serde(flatten)]
    pub share: MemberShare<'a>,
    /// Address `HOST:PORT`.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub address: Cow<'a, str>,
    /// Failure domain.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub zone: Cow<'a, str>,
    /// Share of the replicas relative to other members.
    pub weight: u32,
    /// Whether it is alive.
    pub alive: bool,
    /// Whether it votes in the metadata group.
    pub votes: bool,
    /// Partitions it leads, as far as known.
    pub leads: u32,
}

/// Partition that is moving.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PartitionMove {
    /// Number of the partition.
    pub partition: PartitionId,
    /// Phase of the move.
    pub state: PartitionPhase,
    /// Its members, in the order of preference.
    #[serde(with = "texts")]
    pub cohort: Vec<NodeId>,
    /// Next members.
    #[serde(with = "texts")]
    pub next: Vec<NodeId>,
    /// Next members that are none yet.
    #[serde(with = "texts")]
    pub comes: Vec<NodeId>,
    /// Removed members that have not handed over all their facts (draining replicas).
    #[serde(with = "texts")]
    pub leaving: Vec<NodeId>,
}

/// Phase of a partition's move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum PartitionPhase {
    /// Its members do not change.
    Stable,
    /// It has next members.
    Moving,
    /// Its members are in place; some removed ones are alive and have not handed over facts that only they may have.
    Leaving,
    /// Same, but all of those are down. Their facts arrive if they come back, and are given up in the end.
    Left,
    /// One of a later version.
    #[serde(other)]
    Other,
}

impl PartitionPhase {
    /// Returns its name in text and JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            PartitionPhase::Stable => "stable",
            PartitionPhase::Moving => "moving",
            PartitionPhase::Leaving => "leaving",
            PartitionPhase::Left => "left",
            PartitionPhase::Other => "other",
        }
    }
}

/// Unsafe recovery of partitions without a majority: answer to `cluster recover`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RecoveryReport<'a> {
    /// Always `recover`.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub change: Cow<'a, str>,
    /// How far the recovery is: `planned` or `done`.
    pub state: ChangeState,
    /// Lost nodes.
    #[serde(with = "texts")]
    pub lost: Vec<NodeId>,
    /// Partitions that go on without the lost nodes.
    pub partitions: Vec<RecoveredPartition<'a>>,
    /// Partitions without a surviving member.
    #[cfg_attr(feature = "schema", schema(value_type = Vec<PartitionId>))]
    pub beyond: Cow<'a, [PartitionId]>,
}

/// Partition without a majority, as one of its surviving replicas sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RecoveredPartition<'a> {
    /// Number of the partition; 65534 for the metadata group.
    pub partition: PartitionId,
    /// The survivor that goes on.
    #[serde(with = "text")]
    pub node: NodeId,
    /// Surviving members.
    #[serde(with = "texts")]
    pub left: Vec<NodeId>,
    /// All members, including the lost ones.
    #[serde(with = "texts")]
    pub cohort: Vec<NodeId>,
    /// Tasks that the survivor knows.
    pub tasks: u64,
    /// Claims that the survivor knows.
    pub claims: u64,
    /// Why it cannot go on without the lost members, if so.
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, required))]
    pub obstacle: Option<Cow<'a, str>>,
}

/// What a new machine needs to join: answer to `cluster token`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Invitation<'a> {
    /// The text to join with.
    pub token: String,
    /// Cluster.
    #[serde(with = "text")]
    pub cluster: ClusterId,
    /// Addresses of its members.
    #[cfg_attr(feature = "schema", schema(value_type = Vec<String>))]
    pub addresses: Cow<'a, [String]>,
}
