//! What came with which version of the protocol.
//!
//! A node says to a peer only what the peer's version knows. Whoever sends asks [`Node::speaks`] first, and does without, or
//! does otherwise; the outbox drops what slips through, because a peer that cannot read a message closes the connection.
//!
//! A node that is held at an older version has no part in the root, and takes no request for what came later. So where all
//! nodes are held they log nothing ([`Record::feature`]) that the program of that version does not read, and it can take over.

use super::Node;
use super::consistent::cohort::{Change, Told};
use super::consistent::table::{Cell, Op, Table};
use super::partition::Store;
use super::peer::{Head, Known, PeerMessage};
use super::record::Record;
use super::task::{Content, Task, claim_end};
use norn_client::wire::response::{ClaimEnd, ClaimOutcome};
use norn_client::wire::{NodeId, PartitionId, Request, Response, TaskId, Versions};
use std::sync::Arc;

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
    /// A task is the only one with its key.
    Unique,
    /// Claims end with the session of their worker.
    Sessions,
    /// Claims of a queue come no faster than a rate.
    Permits,
    /// A queue limits how many of its claims are held at once.
    Quotas,
    /// Several tasks change at once, and tasks are not as they were enqueued.
    Transactions,
    /// Keys of a queue take turns.
    Fairness,
    /// Nodes tell what becomes of the tasks of a queue or a group.
    Watches,
    /// Who grants says of which partitions it cannot tell all.
    Doubts,
    /// Clients confirm what they were granted, and take leave.
    Confirms,
    /// The table of a queue's home says what the bucket of its rate holds.
    Levels,
    /// Claims tell how they ended.
    Outcomes,
    /// Nodes tell each other, and their logs, how old leases are.
    Ages,
    /// The retention of a task that has ended is over before its time.
    Purges,
    /// A replica tells a reader which parts of a task it has lost.
    Losses,
    /// Leaders ask whether claims that are over were confirmed.
    Lapses,
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
            | Feature::Children
            | Feature::Unique
            | Feature::Sessions
            | Feature::Permits
            | Feature::Quotas
            | Feature::Transactions
            | Feature::Fairness
            | Feature::Watches
            | Feature::Doubts
            | Feature::Confirms
            | Feature::Levels
            | Feature::Outcomes
            | Feature::Ages
            | Feature::Purges
            | Feature::Losses
            | Feature::Lapses => 3,
        }
    }
}

fn feature_of_head(head: &Option<Head>) -> Option<Feature> {
    head.as_ref()?.served_ms.map(|_| Feature::Fairness)
}

impl PeerMessage {
    /// What a receiver must know to read it, beyond the oldest version: of messages that came later, and of fields that did.
    pub fn feature(&self) -> Option<Feature> {
        match self {
            PeerMessage::Heartbeat(heartbeat) => heartbeat.offers.map(|_| Feature::Offers),
            PeerMessage::Rescue { .. } => Some(Feature::Rescue),
            PeerMessage::Stray { .. } => Some(Feature::Recall),
            PeerMessage::Unheld { .. } => Some(Feature::Unheld),
            PeerMessage::GroupsAsk { .. } | PeerMessage::GroupsAnswer { .. } => Some(Feature::Groups),
            PeerMessage::Leave { .. } => Some(Feature::Confirms),
            PeerMessage::ConfirmAsk { .. } | PeerMessage::ConfirmAnswer { .. } => Some(Feature::Lapses),
            PeerMessage::Ages { .. } => Some(Feature::Ages),
            PeerMessage::GrantAsk { claim, got, .. } if claim.confirms || !got.is_empty() => Some(Feature::Confirms),
            PeerMessage::GrantAsk { claim, .. } if claim.session.is_some() => Some(Feature::Sessions),
            PeerMessage::GrantAsk { claim, .. } => claim.lease_open.then_some(Feature::Policies),
            PeerMessage::Forward { request, .. } if matches!(**request, Request::Fail { retry_open: true, .. }) => {
                Some(Feature::Policies)
            }
            PeerMessage::Follow { .. } | PeerMessage::Ends { .. } | PeerMessage::MemberFailed { .. } => {
                Some(Feature::Dependencies)
            }
            PeerMessage::PermitAsk { .. } | PeerMessage::Permits { .. } | PeerMessage::PermitsBack { .. } => {
                Some(Feature::Permits)
            }
            PeerMessage::QuotaAsk { .. } | PeerMessage::Quota { .. } | PeerMessage::QuotaCall { .. } => {
                Some(Feature::Quotas)
            }
            PeerMessage::GrantAnswer { partitions, .. } if !partitions.is_empty() => Some(Feature::Doubts),
            PeerMessage::Available { head, .. } => feature_of_head(head),
            PeerMessage::Probed { heads, .. } | PeerMessage::GrantAnswer { heads, .. } => {
                heads.iter().find_map(feature_of_head)
            }
            PeerMessage::Watch { .. } | PeerMessage::Watched { .. } | PeerMessage::WatchNews { .. } => {
                Some(Feature::Watches)
            }
            PeerMessage::KeyAsk { .. } | PeerMessage::KeyAnswer { .. } => Some(Feature::Unique),
            PeerMessage::Forward { request, .. } if matches!(**request, Request::EnqueueUnique { .. }) => {
                Some(Feature::Unique)
            }
            PeerMessage::Forward { request, .. } if matches!(**request, Request::Transact(_)) => {
                Some(Feature::Transactions)
            }
            PeerMessage::Outboxes { .. } | PeerMessage::Childless { .. } => Some(Feature::Children),
            _ if self.is_of_root() => Some(Feature::Root),
            _ => self.feature_of_content().or(self.log().filter(|word| word.start != 0).map(|_| Feature::Starts)),
        }
    }

    /// Of the tasks, operations or tables in it.
    fn feature_of_content(&self) -> Option<Feature> {
        let brings = |request: &Request| match request {
            Request::Complete { items, .. } => items.iter().any(|item| !item.children.is_empty()),
            _ => false,
        };
        match self {
            PeerMessage::Write { items, .. } | PeerMessage::Tasks { items, .. } | PeerMessage::Hint { items, .. } => {
                items.iter().find_map(|(_, task)| task.feature())
            }
            PeerMessage::Forward { request, .. } => brings(request).then_some(Feature::Children),
            PeerMessage::Known { known, .. } => known.feature().or(known.told.as_ref().and_then(|told| told.feature())),
            PeerMessage::ListAnswer { tasks, .. } => tasks.iter().find_map(|(_, known)| known.feature()),
            PeerMessage::Ack { done, .. } => done.iter().find_map(|flag| flag.ending.feature()),
            PeerMessage::Ops { ops, .. } => ops.iter().find_map(|op| op.feature()),
            PeerMessage::State { table, .. } | PeerMessage::Snapshot { table, .. } => table.feature(),
            PeerMessage::Install { table, .. } => table.as_ref().and_then(|table| table.feature()),
            PeerMessage::Route { told, .. } | PeerMessage::Outside { told, .. } => told.feature(),
            PeerMessage::CountAnswer { partitions, .. } => {
                partitions.iter().any(|counts| !counts.permits.is_empty()).then_some(Feature::Levels)
            }
            PeerMessage::Written { told, .. } => told.as_ref().and_then(|told| told.feature()),
            _ => None,
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

    /// The oldest version that can read it.
    pub fn version(&self) -> u8 {
        self.feature().map_or(Versions::SPOKEN.oldest, Feature::since)
    }
}

impl<S: Content> Task<S> {
    /// Whether it names tasks that it waits for, a group or a key: an older program would take it for ready.
    fn tells_of_dependencies(&self) -> bool {
        self.spec.as_ref().is_some_and(|spec| !spec.after().is_empty() || spec.has_key())
            || self.spec.as_ref().is_some_and(|spec| spec.grouping().is_some())
            || self.facts.as_ref().is_some_and(|facts| !facts.settled.is_empty() || facts.group.is_some())
    }

    /// Whether it says how its claims ended.
    fn tells_ends(&self) -> bool {
        self.facts.as_ref().is_some_and(|facts| facts.claims.iter().any(|(_, claim)| claim.end.is_some()))
    }

    /// What a program must know to read it, beyond the oldest version.
    pub fn feature(&self) -> Option<Feature> {
        let sealed = self.facts.as_ref().is_some_and(|facts| facts.seal.is_some());
        let all = [
            (self.tells_of_children(), Feature::Children),
            (sealed, Feature::Seals),
            (self.tells_of_dependencies(), Feature::Dependencies),
            (self.spec.as_ref().is_some_and(|spec| spec.revision().is_some()), Feature::Transactions),
            (self.tells_ends(), Feature::Outcomes),
            (self.is_purged(), Feature::Purges),
        ];
        all.into_iter().find_map(|(tells, feature)| tells.then_some(feature))
    }
}

impl Known {
    /// What a program must know to read the task or its claim, beyond the oldest version.
    fn feature(&self) -> Option<Feature> {
        let tells_ends = self.cell.as_ref().is_some_and(Cell::tells_ends);
        let tells_losses = self.lost.is_some().then_some(Feature::Losses);
        self.task.feature().or(tells_losses).or(tells_ends.then_some(Feature::Outcomes))
    }

    /// Leaves out how claims ended, so that an older program can read the rest.
    pub fn leave_out_ends(&mut self) {
        let claims = self.task.facts.iter_mut().flat_map(|facts| &mut facts.claims);
        claims.for_each(|(_, claim)| claim.end = None);
        self.cell.iter_mut().for_each(Cell::leave_out_ends);
    }
}

impl Op {
    /// What a program must know to read it, beyond the oldest version.
    pub fn feature(&self) -> Option<Feature> {
        match self {
            Op::Seal { .. } => Some(Feature::Seals),
            Op::Reserve { .. } | Op::Placed { .. } => Some(Feature::Unique),
            Op::Quota { .. } => Some(Feature::Quotas),
            Op::Level { .. } => Some(Feature::Levels),
            Op::Decide { .. } | Op::Made { .. } | Op::Refuse { .. } => Some(Feature::Transactions),
            Op::Root(_) | Op::Schedules(_) => Some(Feature::Root),
            Op::Cohort(Change::Recall { .. }) => Some(Feature::Recall),
            Op::Cohort(Change::Rescue { .. } | Change::Calm) => Some(Feature::Rescue),
            Op::Drop { items } => items.iter().find_map(|item| item.facts.feature()),
            Op::Grant { session: Some(_), .. } => Some(Feature::Sessions),
            Op::Grant { lapsed: true, .. } | Op::Release { end: Some(_), .. } | Op::Kill { end: Some(_), .. } => {
                Some(Feature::Outcomes)
            }
            Op::Grant { .. }
            | Op::Renew { .. }
            | Op::Release { .. }
            | Op::Void { .. }
            | Op::Kill { .. }
            | Op::Clear { .. }
            | Op::Forget { .. }
            | Op::Forgotten
            | Op::Cohort(_) => None,
        }
    }
}

impl Told {
    /// What a program must know to read it, beyond the oldest version.
    pub fn feature(&self) -> Option<Feature> {
        self.cohort.silence.map(|_| Feature::Rescue)
    }
}

impl Table {
    /// What a program must know to read it, beyond the oldest version.
    pub fn feature(&self) -> Option<Feature> {
        let silent = self.cohort.as_ref().is_some_and(|cohort| cohort.silence.is_some());
        if self.root.is_some() || self.schedules.is_some() {
            Some(Feature::Root)
        } else if silent {
            Some(Feature::Rescue)
        } else if self.has_seals() {
            Some(Feature::Seals)
        } else if self.has_sessions() {
            Some(Feature::Sessions)
        } else if !self.reserved.is_empty() {
            Some(Feature::Unique)
        } else if !self.quotas.is_empty() {
            Some(Feature::Quotas)
        } else if !self.ledger.is_empty() {
            Some(Feature::Transactions)
        } else if !self.levels.is_empty() {
            Some(Feature::Levels)
        } else if self.tells_ends() {
            Some(Feature::Outcomes)
        } else {
            self.out.values().flatten().find_map(|ended| ended.facts.feature())
        }
    }
}

impl Record {
    /// What a program must know to read it, beyond the oldest version, as [`PeerMessage::feature`] says it of messages.
    pub fn feature(&self) -> Option<Feature> {
        match self {
            _ if self.partition() == Some(PartitionId::ROOT) => Some(Feature::Root),
            Record::Roster(_) => Some(Feature::Root),
            Record::Ran { .. } | Record::Ages { .. } => Some(Feature::Ages),
            Record::Install { table, .. } => table.as_ref().and_then(|table| table.feature()),
            Record::Ops { ops, .. } => ops.iter().find_map(|op| op.feature()),
            Record::Facts { items, .. } | Record::Hint { items, .. } => {
                items.iter().find_map(|(_, task)| task.feature())
            }
            Record::Left { told, .. } => told.feature(),
            Record::Identity { .. }
            | Record::Boot { .. }
            | Record::Unanswered { .. }
            | Record::Genesis(_)
            | Record::Mark { .. }
            | Record::Vote { .. }
            | Record::Wound { .. }
            | Record::Forgot { .. }
            | Record::Owed { .. }
            | Record::Handed { .. }
            | Record::Retired { .. }
            | Record::End { .. } => None,
        }
    }

    /// The version of the oldest program that can read it.
    pub fn version(&self) -> u8 {
        self.feature().map_or(Versions::SPOKEN.oldest, Feature::since)
    }
}

/// What a node can read. The rest is left out of what it is sent, and it gets that once it is upgraded.
#[derive(Debug, Clone, Copy)]
pub struct Reader {
    version: u8,
}

impl Reader {
    /// Whether it can read a task.
    pub fn reads<S: Content>(self, task: &Task<S>) -> bool {
        let reads = |feature: Feature| feature.since() <= self.version;
        self.version >= Versions::SPOKEN.newest || task.feature().is_none_or(reads)
    }

    /// Whether it can read what a replica has of a task, which may be a tombstone.
    pub fn reads_of(self, store: &Store, id: &TaskId) -> bool {
        match store.task(id) {
            Some(task) => self.reads(task),
            None => store.ending(id).is_none_or(|buried| self.reads(&buried)),
        }
    }
}

impl Node {
    /// Whether a node can be told of this. Of a peer that has not connected yet only the oldest version is expected.
    pub(super) fn speaks(&self, node: NodeId, feature: Feature) -> bool {
        self.version_of(node) >= feature.since()
    }

    /// Whether no node that is heard is of a version that does not know this.
    pub(super) fn all_know(&self, feature: Feature) -> bool {
        self.peers.keys().all(|node| !self.is_alive(*node) || self.speaks(*node, feature))
    }

    /// How a claim ended, for its history; nothing as long as some node would not know what that is.
    pub(super) fn claim_end(&self, outcome: ClaimOutcome, at_ms: u64, reason: &str) -> Option<Arc<ClaimEnd>> {
        self.tells_ends().then(|| claim_end(outcome, at_ms, reason))
    }

    /// Whether all nodes know how claims end. A member of an older version that is away comes back, and could not read its table.
    pub(super) fn tells_ends(&self) -> bool {
        let is_member = |node: NodeId| self.is_member(node);
        let is_old = self.outbox.older_than(Feature::Outcomes.since()).any(is_member);
        !is_old && self.speaks(self.me, Feature::Outcomes) && self.all_know(Feature::Outcomes)
    }

    /// Which tasks another node can read.
    pub(super) fn reader(&self, node: NodeId) -> Reader {
        Reader { version: self.version_of(node) }
    }

    /// The version that this node and another one speak with each other; of this node, the newest that it offers.
    pub(super) fn version_of(&self, node: NodeId) -> u8 {
        if node == self.me { self.config.protocol_version_max } else { self.outbox.version_of(node) }
    }
}
