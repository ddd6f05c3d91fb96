//! What a leader knows as long as it leads: how far its followers are, what waits for commits, and what it is doing meanwhile.

use super::retention::{Archiving, Retiring};
use super::waiting::Waiting;
use crate::protocol::consistent::operation::Op;
use crate::protocol::consistent::{Epoch, ReplicaId, Viewstamp};
use norn_wire::{NodeId, TaskId, Token};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// What a leader knows of a follower.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    /// Operations of this epoch that it has on disk; `None` before it has the installation.
    pub matched: Option<u64>,
    /// So many of them count for commits: it acknowledged them with a whole table.
    pub holds: Option<u64>,
    /// So many count for grants: it would have said which of their tasks have ended.
    pub heeds: Option<u64>,
    /// Operations sent.
    pub sent: u64,
    /// Where its table stood when it last said so.
    pub viewstamp: Option<Viewstamp>,
    /// It has not said anything yet, and may have no replica: the table's name alone would tell it nothing.
    pub stranger: bool,
    /// When something was last sent that it should acknowledge.
    pub sent_us: u64,
    /// When it was last sent the table, as operations that it lacks are not kept.
    pub table_us: Option<u64>,
}

/// What a leader knows of a change under way.
#[derive(Debug, Default)]
pub struct Changing {
    /// The members that were asked for, until they are.
    pub(in crate::protocol::consistent) target: Option<Vec<ReplicaId>>,
    /// Since when.
    pub(in crate::protocol::consistent) asked_us: u64,
    /// Who is ready, or has nothing left to give, at the present version.
    pub(in crate::protocol::consistent) ready: BTreeSet<NodeId>,
    /// How much each of those has that are not ready.
    pub(in crate::protocol::consistent) facts: BTreeMap<NodeId, u64>,
    /// When the present step began.
    pub(in crate::protocol::consistent) began_us: u64,
    /// When it last came nearer to its end.
    pub(in crate::protocol::consistent) moved_us: u64,
    /// An exile leads until this time, and not any longer.
    pub(in crate::protocol::consistent) leave_us: Option<u64>,
    /// Observers were told that the cohort is committed.
    pub(in crate::protocol::consistent) told: bool,
}

/// State of a leader.
#[derive(Debug)]
pub struct Leading {
    /// Epoch.
    pub epoch: Epoch,
    /// Viewstamp of the table that became `(epoch, 0)`.
    pub base: Viewstamp,
    /// Its digest.
    pub base_digest: u128,
    /// The installation is committed: answers may rest on the table.
    pub established: bool,
    /// By node, itself included.
    pub progress: BTreeMap<NodeId, Progress>,
    /// The latest operations that a follower may lack; the last one is number `viewstamp.length`.
    pub ops: VecDeque<Arc<Op>>,
    /// Bytes that these carry.
    pub ops_bytes: usize,
    /// Number of the latest grant.
    pub granted: u64,
    /// Grants up to this operation may be told: a quorum of replicas without holes has acknowledged them. This, and not the
    /// commit, is what followers are told, as they flag ended tasks above it. Both are equal unless a replica has holes.
    pub heeded: u64,
    /// What waits for operations to commit, by their number.
    pub waiting: VecDeque<(u64, Waiting)>,
    /// Grants of ended tasks whose endings are still on their way here.
    pub unproven: BTreeSet<(TaskId, Token)>,
    /// Claims that it inherited and that are held, of tasks that it does not know: they may have any key.
    pub unknown: BTreeSet<TaskId>,
    /// So much later inherited claims run out by the wall clock: as far apart as clocks were ever measured in this leadership,
    /// for whoever granted them may not be heard any more.
    pub margin_ms: u64,
    /// When a quorum was last heard.
    pub quorum_us: u64,
    /// Leadership is being handed over: nothing new is appended.
    pub transferring_until_us: u64,
    /// How often somebody was asked to take over.
    pub transfers: u32,
    /// When somebody else may be asked.
    pub transfer_again_us: u64,
    /// Tasks whose retention is over.
    pub retiring: Retiring,
    /// What becomes of the cohort.
    pub changing: Changing,
    /// Of these, what is on its way to the archive.
    pub archiving: Archiving,
}

impl Leading {
    /// Lets go of the oldest operation that is kept.
    pub(super) fn let_go(&mut self) {
        self.ops_bytes -= self.ops.pop_front().map_or(0, |op| op.size_bytes());
    }

    /// Lets go of the oldest ones as long as that is right for their number, and the bytes of all that are kept.
    pub(super) fn let_go_while(&mut self, length: u64, is_right: impl Fn(u64, usize) -> bool) {
        while !self.ops.is_empty() && is_right(length + 1 - self.ops.len() as u64, self.ops_bytes) {
            self.let_go();
        }
        assert!(!self.ops.is_empty() || self.ops_bytes == 0, "no operation carries nothing");
    }

    /// Up to which operation all of these nodes have them.
    pub(super) fn held_by(&self, counts: impl Fn(NodeId) -> bool) -> u64 {
        let all = self.progress.iter().filter(|(node, _)| counts(**node));
        all.map(|(_, progress)| progress.matched.unwrap_or(0)).min().unwrap_or(0)
    }

    /// Takes out what need not wait any more where operations up to `commit` are committed.
    pub fn take_ready(&mut self, commit: u64) -> Vec<(u64, Waiting)> {
        let committed = self.waiting.partition_point(|(number, _)| *number <= commit);
        let early: Vec<(u64, Waiting)> = self.waiting.drain(..committed).collect();
        let heeded = self.heeded;
        let grant = |waiting: &Waiting| matches!(waiting, Waiting::Grant { .. });
        let (ready, left): (Vec<_>, Vec<_>) =
            early.into_iter().partition(|(number, waiting)| *number <= heeded || !grant(waiting));
        for entry in left.into_iter().rev() {
            self.waiting.push_front(entry);
        }
        ready
    }
}
