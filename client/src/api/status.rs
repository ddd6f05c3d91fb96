//! Summaries of a node, with its counters.

use super::StateCounts;
use super::form::{pairs, pairs_if_any, text};
use norn_wire::response::{self, NodeView};
use norn_wire::{ClusterId, Error, NodeId};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Number of members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct NodeTotals {
    /// Members.
    pub total: u32,
    /// Of these, members that are alive.
    pub alive: u32,
}

/// Number of partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PartitionTotals {
    /// Partitions.
    pub total: u32,
    /// Of these, partitions that have a leader.
    pub led: u32,
}

/// Summary of a node and its cluster: answer to `status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Status<'a> {
    /// Cluster.
    #[serde(with = "text")]
    pub cluster: ClusterId,
    /// Name of the cluster, for people.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub name: Cow<'a, str>,
    /// The node that answers.
    #[serde(with = "text")]
    pub node: NodeId,
    /// Its incarnation counter: number of its starts.
    pub boot: u64,
    /// Members.
    pub nodes: NodeTotals,
    /// Partitions.
    pub partitions: PartitionTotals,
    /// Tasks by state.
    pub counts: StateCounts,
    /// Partitions whose tasks are missing in `counts`, because no majority of their replicas could be read. Left out if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = u32))]
    pub uncounted: Option<u32>,
    /// Counters of the node, by name.
    #[serde(with = "pairs")]
    #[cfg_attr(feature = "schema", schema(value_type = BTreeMap<String, u64>))]
    pub counters: Cow<'a, [(String, u64)]>,
}

impl<'a> From<&'a response::Status> for Status<'a> {
    fn from(status: &'a response::Status) -> Self {
        Status {
            cluster: status.cluster,
            name: (&status.name).into(),
            node: status.node,
            boot: status.boot,
            nodes: NodeTotals { total: status.nodes.0, alive: status.nodes.1 },
            partitions: PartitionTotals { total: status.partitions.0, led: status.partitions.1 },
            counts: (&status.counts).into(),
            uncounted: Some(status.uncounted).filter(|uncounted| *uncounted > 0),
            counters: Cow::Borrowed(&status.counters),
        }
    }
}

/// Counters of one member, or why it does not report them: answer to `nodes status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct NodeCounters<'a> {
    /// Name in its certificate.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub name: Cow<'a, str>,
    /// Address `HOST:PORT`.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub address: Cow<'a, str>,
    /// Node.
    #[serde(with = "text")]
    pub node: NodeId,
    /// Counters by name. Left out without an answer.
    #[serde(default, with = "pairs_if_any", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = BTreeMap<String, u64>))]
    pub counters: Option<Cow<'a, [(String, u64)]>>,
    /// Why there is no answer. Left out with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub error: Option<Cow<'a, str>>,
}

impl<'a> NodeCounters<'a> {
    /// Creates the form of a member's answer.
    #[must_use]
    pub fn new(member: &'a NodeView, answer: &'a Result<response::Status, Error>) -> Self {
        NodeCounters {
            name: (&member.name).into(),
            address: (&member.address).into(),
            node: member.node,
            counters: answer.as_ref().ok().map(|status| Cow::Borrowed(&status.counters[..])),
            error: answer.as_ref().err().map(|error| (&error.message).into()),
        }
    }
}
