//! What came with which version of the protocol.
//!
//! A node says to a peer only what the peer's version knows. Whoever sends asks [`Node::speaks`] first, and does without, or
//! does otherwise; the outbox drops what slips through, because a peer that cannot read a message closes the connection.

use super::Node;
use super::consistent::table::{Op, Table};
use super::peer::PeerMessage;
use super::task::Task;
use norn_client::wire::{NodeId, PartitionId, Request, Response, Versions};

/// Something that peers of some version do not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feature {
    /// Heartbeats tell up to which version their sender would speak.
    Offers,
    /// A word of how far a log is durable says in which start.
    Starts,
    /// The root: its partition, the roster, and what operators change.
    Root,
    /// A cohort goes on without those that an operator calls lost, and nothing is granted for a while.
    Rescue,
    /// Replicas agree on their facts group by group.
    Groups,
    /// A claim leaves the lease to the queue, and a failed attempt the pause behind it.
    Policies,
    /// Tasks wait for others.
    Dependencies,
    /// A replica that was cleared unheard is an exile again.
    Recall,
    /// A completion counts once the leader has sealed it.
    Seals,
    /// A node says that it holds nothing of a partition of which it is sent operations.
    Unheld,
    /// Completions bring tasks.
    Children,
}

impl Feature {
    /// The version that it came with.
    pub fn since(self) -> u8 {
        match self {
            Feature::Offers
            | Feature::Starts
            | Feature::Root
            | Feature::Rescue
            | Feature::Groups
            | Feature::Policies
            | Feature::Dependencies
            | Feature::Recall
            | Feature::Seals
            | Feature::Unheld
            | Feature::Children => 3,
        }
    }
}

impl PeerMessage {
    /// What a receiver must know to read it, beyond the oldest version: of messages that came later, and of fields that did.
    pub fn feature(&self) -> Option<Feature> {
        match self {
            PeerMessage::Heartbeat(heartbeat) => heartbeat.offers.map(|_| Feature::Offers),
            PeerMessage::Rescue { .. } => Some(Feature::Rescue),
            PeerMessage::Stray { .. } => Some(Feature::Recall),
            PeerMessage::Unheld { .. } => Some(Feature::Unheld),
            PeerMessage::Ops { ops, .. } if ops.iter().any(|op| op.is_recall()) => Some(Feature::Recall),
            PeerMessage::Ops { ops, .. } if ops.iter().any(|op| op.is_seal()) => Some(Feature::Seals),
            PeerMessage::GroupsAsk { .. } | PeerMessage::GroupsAnswer { .. } => Some(Feature::Groups),
            PeerMessage::GrantAsk { claim, .. } => claim.lease_open.then_some(Feature::Policies),
            PeerMessage::Forward { request, .. } if matches!(**request, Request::Fail { retry_open: true, .. }) => {
                Some(Feature::Policies)
            }
            PeerMessage::Follow { .. } | PeerMessage::Ends { .. } => Some(Feature::Dependencies),
            PeerMessage::Outboxes { .. } | PeerMessage::Childless { .. } => Some(Feature::Children),
            _ if self.tells_of_dependencies() => Some(Feature::Dependencies),
            _ if self.is_of_root() => Some(Feature::Root),
            _ if self.brings_children() => Some(Feature::Children),
            _ => self.log().filter(|word| word.start != 0).map(|_| Feature::Starts),
        }
    }

    /// Whether it tells of completions that bring tasks.
    fn brings_children(&self) -> bool {
        let of_table = |table: &Table| table.out.values().flatten().any(|ended| ended.facts.tells_of_children());
        match self {
            PeerMessage::Write { items, .. } | PeerMessage::Tasks { items, .. } | PeerMessage::Hint { items, .. } => {
                items.iter().any(|(_, task)| task.tells_of_children())
            }
            PeerMessage::Forward { request, .. } => match &**request {
                Request::Complete { items, .. } => items.iter().any(|item| !item.children.is_empty()),
                _ => false,
            },
            PeerMessage::Known { known, .. } => known.task.tells_of_children(),
            PeerMessage::ListAnswer { tasks, .. } => tasks.iter().any(|(_, known)| known.task.tells_of_children()),
            PeerMessage::Ack { done, .. } => done.iter().any(|flag| flag.ending.tells_of_children()),
            PeerMessage::Ops { ops, .. } => ops.iter().any(|op| match &**op {
                Op::Drop { items } => items.iter().any(|item| item.facts.tells_of_children()),
                _ => false,
            }),
            PeerMessage::State { table, .. } | PeerMessage::Snapshot { table, .. } => of_table(table),
            PeerMessage::Install { table, .. } => table.as_deref().is_some_and(of_table),
            _ => false,
        }
    }

    /// Whether it is about the root. To whoever does not know that it is as good as lost: an old node has no part in it.
    pub fn is_of_root(&self) -> bool {
        match self {
            PeerMessage::Roster { .. } => true,
            PeerMessage::Forward { request, .. } => {
                matches!(
                    **request,
                    Request::Change { .. }
                        | Request::Arrange { .. }
                        | Request::Cluster
                        | Request::Schedule(_)
                        | Request::Schedules { .. }
                )
            }
            PeerMessage::Forwarded { response, .. } => {
                matches!(
                    **response,
                    Response::Changed(_) | Response::Cluster(_) | Response::Scheduled { .. } | Response::Schedules(_)
                )
            }
            PeerMessage::PreVote { partition, .. }
            | PeerMessage::PreVoteAnswer { partition, .. }
            | PeerMessage::Vote { partition, .. }
            | PeerMessage::VoteAnswer { partition, .. }
            | PeerMessage::Fetch { partition, .. }
            | PeerMessage::State { partition, .. }
            | PeerMessage::Transfer { partition, .. }
            | PeerMessage::Install { partition, .. }
            | PeerMessage::Snapshot { partition, .. }
            | PeerMessage::Ops { partition, .. }
            | PeerMessage::Ack { partition, .. }
            | PeerMessage::Nack { partition, .. }
            | PeerMessage::Rejoin { partition, .. }
            | PeerMessage::Rejoined { partition, .. }
            | PeerMessage::Ready { partition, .. }
            | PeerMessage::Dismiss { partition, .. }
            | PeerMessage::Outside { partition, .. }
            | PeerMessage::Arrange { partition, .. }
            | PeerMessage::Route { partition, .. } => *partition == PartitionId::ROOT,
            _ => false,
        }
    }

    /// Whether facts in it name tasks that others wait for, or keys: an older program would take those that wait for ready.
    pub fn tells_of_dependencies(&self) -> bool {
        let names = |task: &Task| {
            task.spec.as_ref().is_some_and(|spec| !spec.after.is_empty() || spec.key.is_some())
                || task.facts.as_ref().is_some_and(|facts| !facts.settled.is_empty())
        };
        match self {
            PeerMessage::Write { items, .. } | PeerMessage::Tasks { items, .. } | PeerMessage::Hint { items, .. } => {
                items.iter().any(|(_, task)| names(task))
            }
            PeerMessage::Known { known, .. } => names(&known.task),
            PeerMessage::ListAnswer { tasks, .. } => tasks.iter().any(|(_, known)| names(&known.task)),
            _ => false,
        }
    }

    /// The oldest version that can read it.
    pub fn version(&self) -> u8 {
        self.feature().map_or(Versions::SPOKEN.oldest, Feature::since)
    }
}

impl Node {
    /// Whether a node can be told of this. Of a peer that has not connected yet only the oldest version is expected.
    pub(super) fn speaks(&self, node: NodeId, feature: Feature) -> bool {
        self.version_of(node) >= feature.since()
    }

    /// The version that this node and another one speak with each other; of this node, the newest that it offers.
    pub(super) fn version_of(&self, node: NodeId) -> u8 {
        if node == self.me { self.config.protocol_version_max } else { self.outbox.version_of(node) }
    }
}
