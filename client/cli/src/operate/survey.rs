//! State of a cluster: the layout, from the metadata group, and the actual members of each partition.

use super::super::runner::unexpected;
use super::super::text::clean;
use super::super::{Call, Failure, Runner, Transport};
use norn_client::api::PartitionPhase;
use norn_client::client::cluster::{find_member, look_up_member};
use norn_wire::membership::{ClusterView, Member};
use norn_wire::response::PartitionView;
use norn_wire::{Error, NodeId, PartitionId, Request, Response};
use std::collections::BTreeMap;
use std::time::Duration;

/// A cluster as the leader of its metadata group and one of its nodes see it.
#[derive(Debug, Clone)]
pub struct Survey {
    /// Wanted state, and progress.
    pub view: ClusterView,
    /// Partitions, by number.
    pub partitions: Vec<PartitionView>,
}

impl Survey {
    /// Fetches the state. Without a timeout, both requests share the time left to the command, or each has the transport's own.
    pub async fn take<T: Transport>(runner: &Runner<T>, timeout: Option<Duration>) -> Result<Survey, Failure> {
        let Response::Cluster(view) = call(runner, Request::Cluster, timeout).await? else {
            return Err(unexpected("cluster"));
        };
        let Response::Partitions(mut partitions) = call(runner, Request::Ring, timeout).await? else {
            return Err(unexpected("ring"));
        };
        partitions.sort_by_key(|partition| partition.partition);
        Ok(Survey { view: *view, partitions })
    }

    /// Returns the partition with this number, if there is one.
    pub fn partition(&self, partition: PartitionId) -> Option<&PartitionView> {
        self.partitions.iter().find(|view| view.partition == partition)
    }

    /// Returns a member, even if it is gone and not forgotten.
    pub fn member(&self, node: NodeId) -> Option<&Member> {
        self.view.roster.members.values().find(|member| member.node == node)
    }

    /// Whether a node is a member and heard.
    pub fn is_alive(&self, node: NodeId) -> bool {
        self.view.heard.contains(&node) && self.member(node).is_some_and(|member| member.state.is_present())
    }

    /// Returns a node's name, for people.
    pub fn name(&self, node: NodeId) -> String {
        self.member(node).map_or_else(|| format!("{node:?}"), |member| clean(&member.name))
    }

    /// Formats names in this order, for people.
    pub fn names<'a>(&self, nodes: impl IntoIterator<Item = &'a NodeId>) -> String {
        nodes.into_iter().map(|node| self.name(*node)).collect::<Vec<_>>().join(" ")
    }

    /// Finds the member with this name or beginning of its id.
    pub fn find(&self, text: &str) -> Result<&Member, Failure> {
        Ok(find_member(&self.view, text)?)
    }

    /// Same, or `None` if there is no such member.
    pub fn look_up(&self, text: &str) -> Result<Option<&Member>, Failure> {
        Ok(look_up_member(&self.view, text)?)
    }

    /// Returns the number of partitions that each node leads.
    pub fn leads(&self) -> BTreeMap<NodeId, u32> {
        let mut leads = BTreeMap::new();
        self.partitions.iter().filter_map(|view| view.leader).for_each(|node| *leads.entry(node).or_default() += 1);
        leads
    }

    /// Returns the nodes that are alive, were removed from a partition, and have not handed over all their facts. Dead ones are not
    /// waited for: that could take for ever.
    pub fn leavers<'a>(&'a self, partition: &'a PartitionView) -> impl Iterator<Item = NodeId> + 'a {
        partition.leaving.iter().copied().filter(|node| self.is_alive(*node))
    }

    /// Returns the progress of a partition.
    pub fn phase(&self, partition: &PartitionView) -> PartitionPhase {
        PartitionPhase::of(partition, &self.view)
    }

    /// Whether a partition is moving, except for what only dead nodes can do.
    pub fn is_under_way(&self, partition: &PartitionView) -> bool {
        matches!(self.phase(partition), PartitionPhase::Moving | PartitionPhase::Leaving)
    }

    /// Returns the number of partitions that are not in place or still being left, as far as both sides know.
    pub fn open(&self) -> u64 {
        let under_way = self.partitions.iter().filter(|partition| self.is_under_way(partition)).count() as u64;
        u64::from(self.view.open).max(under_way)
    }

    /// Whether the cluster matches its layout, and this is known.
    pub fn is_settled(&self) -> bool {
        !self.view.stale && self.view.unknown == 0 && self.open() == 0
    }
}

/// Returns the next holders of a partition that do not hold it yet.
pub fn comers<'a>(partition: &'a PartitionView, next: &'a [NodeId]) -> impl Iterator<Item = &'a NodeId> {
    next.iter().filter(|node| !partition.cohort.contains(node))
}

async fn call<T: Transport>(
    runner: &Runner<T>,
    request: Request,
    timeout: Option<Duration>,
) -> Result<Response, Error> {
    match runner.transport.call(Call::Request(request), timeout.or_else(|| runner.left())).await? {
        Response::Error(error) => Err(error),
        response => Ok(response),
    }
}
