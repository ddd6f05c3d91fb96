//! A leader's volatile state: progress of its followers, continuations that wait for commits, and work under way.

use super::retention::{Archiving, Retiring};
use super::waiting::Waiting;
use crate::claim_table::operation::Op;
use crate::viewstamp::{Epoch, ReplicaId, Viewstamp};
use norn_wire::{NodeId, TaskId, Token};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Leader's view of a follower.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    /// Match index: highest operation of this epoch that the follower has on disk; `None` before it has the installation.
    pub matched: Option<u64>,
    /// Commit-ack index: highest operation that the follower acknowledged with a whole table. Only such acks count for commits.
    pub commit_ack_index: Option<u64>,
    /// Grant-ack index: highest operation that the follower acknowledged while its facts were complete. Only such acks count for
    /// grants, because only they would have flagged ended tasks.
    pub grant_ack_index: Option<u64>,
    /// Highest operation sent.
    pub sent: u64,
    /// Viewstamp of the follower's table in its last message.
    pub viewstamp: Option<Viewstamp>,
    /// The follower has not sent anything yet and may have no replica, so an installation by viewstamp alone would be useless to
    /// it.
    pub stranger: bool,
    /// When something that needs an acknowledgement was last sent.
    pub sent_us: u64,
    /// When the follower was last sent the whole table, because the operations that it lacks are no longer kept.
    pub table_us: Option<u64>,
}

/// Leader's view of a reconfiguration under way.
#[derive(Debug, Default)]
pub struct Changing {
    /// Requested members, until they are the members.
    pub target: Option<Vec<ReplicaId>>,
    /// When they were requested.
    pub asked_us: u64,
    /// Nodes that are ready, or have drained, at the present version.
    pub ready: BTreeSet<NodeId>,
    /// Number of facts at each node that is not ready.
    pub facts: BTreeMap<NodeId, u64>,
    /// When the present step began.
    pub began_us: u64,
    /// When the present step last made progress.
    pub moved_us: u64,
    /// How long a leader that is a draining replica itself goes on leading.
    pub leave_us: Option<u64>,
    /// The observers know that the cohort is committed.
    pub announced: bool,
}

/// Volatile state of a leader.
#[derive(Debug)]
pub struct Leading {
    /// Epoch of this leadership.
    pub epoch: Epoch,
    /// Viewstamp of the table that became `(epoch, 0)`.
    pub base: Viewstamp,
    /// Digest of that table.
    pub base_digest: u128,
    /// The installation is committed, so answers may rest on the table.
    pub established: bool,
    /// Followers by node, the leader itself included.
    pub progress: BTreeMap<NodeId, Progress>,
    /// Latest operations that a follower may lack; the last one has number `viewstamp.length`.
    pub ops: VecDeque<Arc<Op>>,
    /// Size of these operations in bytes.
    pub ops_bytes: usize,
    /// Number of the latest grant.
    pub granted: u64,
    /// Highest operation up to which grants may be reported to brokers: a quorum of replicas with complete facts has acknowledged
    /// them. The leader sends this index to followers instead of the commit index, because they flag ended tasks above it. The
    /// two are equal unless a replica has incomplete facts.
    pub grant_index: u64,
    /// Continuations that wait for operations to commit, by the operation's number.
    pub waiting: VecDeque<(u64, Waiting)>,
    /// Grants of ended tasks whose endings are still on their way here.
    pub unproven: BTreeSet<(TaskId, Token)>,
    /// Inherited held claims of tasks that the leader does not know; such tasks may have any key.
    pub unknown: BTreeSet<TaskId>,
    /// Margin added to the wall-clock end of inherited claims: the largest clock difference measured in this leadership, because
    /// the node that granted them may not be reachable any more.
    pub margin_ms: u64,
    /// When a quorum was last heard from.
    pub quorum_us: u64,
    /// End of a leadership transfer under way; until then nothing new is appended.
    pub transferring_until_us: u64,
    /// Number of attempts to transfer leadership.
    pub transfers: u32,
    /// Earliest time of the next attempt.
    pub transfer_again_us: u64,
    /// Tasks whose retention is over.
    pub retiring: Retiring,
    /// Reconfiguration of the cohort.
    pub changing: Changing,
    /// Those of these tasks that are on their way to the archive.
    pub archiving: Archiving,
}

impl Leading {
    /// Drops the oldest kept operation.
    pub(super) fn let_go(&mut self) {
        let bytes = self.ops.pop_front().map_or(0, |op| op.size_bytes());
        assert!(self.ops_bytes >= bytes, "a kept operation was not counted");
        self.ops_bytes -= bytes;
    }

    /// Drops the oldest kept operations while `is_right` holds for the operation's number and the bytes of all kept ones.
    pub(super) fn let_go_while(&mut self, length: u64, is_right: impl Fn(u64, usize) -> bool) {
        assert!(self.ops.len() as u64 <= length, "more operations are kept than there are");
        while !self.ops.is_empty() && is_right(length + 1 - self.ops.len() as u64, self.ops_bytes) {
            self.let_go();
        }
        assert!(!self.ops.is_empty() || self.ops_bytes == 0, "no operation carries nothing");
    }

    /// Highest operation that all of these nodes have.
    pub(super) fn held_by(&self, counts: impl Fn(NodeId) -> bool) -> u64 {
        let all = self.progress.iter().filter(|(node, _)| counts(**node));
        all.map(|(_, progress)| progress.matched.unwrap_or(0)).min().unwrap_or(0)
    }

    /// Takes out continuations that are ready at commit index `commit`. Grants also wait for the grant index.
    pub fn take_ready(&mut self, commit: u64) -> Vec<(u64, Waiting)> {
        assert!(self.grant_index <= commit, "more grants may be told than are committed");
        let committed = self.waiting.partition_point(|(number, _)| *number <= commit);
        let early: Vec<(u64, Waiting)> = self.waiting.drain(..committed).collect();
        let grant_index = self.grant_index;
        let grant = |waiting: &Waiting| matches!(waiting, Waiting::Grant { .. });
        let (ready, left): (Vec<_>, Vec<_>) =
            early.into_iter().partition(|(number, waiting)| *number <= grant_index || !grant(waiting));
        for entry in left.into_iter().rev() {
            self.waiting.push_front(entry);
        }
        ready
    }
}
