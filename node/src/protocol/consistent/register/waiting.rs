//! What waits at a leader for operations to commit.

use crate::protocol::consistent::operation::Quota;
use norn_wire::membership::Roster;
use norn_wire::{NodeId, PartitionId, QueueName, Response, TaskId, Token};
use std::num::NonZeroU64;
use std::sync::Arc;

/// What waits at a leader for an operation to commit.
#[derive(Debug)]
pub enum Waiting {
    /// Tasks of a grant session.
    Grant {
        /// Session.
        session: u64,
        /// Tasks.
        items: Vec<(TaskId, Token)>,
        /// Granted now, rather than asked for again: may be taken back as long as nobody was told.
        fresh: bool,
    },
    /// Places in a forwarded call, with the lease to answer.
    Call {
        /// Call.
        call: u64,
        /// Place and lease.
        slots: Vec<(usize, u64)>,
    },
    /// A change of the cluster: everybody is told, and whoever asked for it.
    Root {
        /// Who belongs to it then.
        roster: Arc<Roster>,
        /// Who asked, and what is answered.
        answer: Option<Box<Asked>>,
    },
    /// A task that is given up: its end becomes a fact.
    Kill {
        /// Task.
        id: TaskId,
    },
    /// A completion that is sealed: it becomes a fact, and whoever asked for it is told once a majority knows that.
    Seal(Sealing),
    /// A task that is to be the only one with its key.
    Reserve {
        /// Its key.
        name: Box<Name>,
        /// Task.
        id: TaskId,
    },
    /// A transaction that is decided: now it may become facts.
    Decide {
        /// The transaction.
        id: TaskId,
    },
    /// A transaction that is refused: whoever asked is told.
    Refuse {
        /// The transaction.
        id: TaskId,
    },
    /// Permits for claims: whoever asked for them is told.
    Permits(Box<Giving>),
    /// Claims that a partition may have: its leader is told.
    Quota(Box<QuotaChange>),
    /// Grants that are taken back: the permits that they used go back, each to its queue and by the question that it answered.
    Void {
        /// One for each grant of a queue with a rate.
        permits: Vec<(QueueName, u64)>,
    },
}

/// A seal on its way.
#[derive(Debug)]
pub struct Sealing {
    /// Task.
    pub id: TaskId,
    /// Whose completion it is.
    pub token: Token,
    /// The call that asked for it, and the place in it.
    pub call: (u64, usize),
    /// Bytes of the completion; none where it was sealed before.
    pub bytes: usize,
    /// The ending of the task is appended: with that it is told.
    pub exported: bool,
}

/// Tasks of one partition that are of one queue and have one key.
pub type Name = (PartitionId, QueueName, NonZeroU64);

/// Permits that wait for a commit.
#[derive(Debug)]
pub struct Giving {
    pub(in crate::protocol::consistent) to: NodeId,
    pub(in crate::protocol::consistent) ask: u64,
    pub(in crate::protocol::consistent) queue: QueueName,
    pub(in crate::protocol::consistent) count: u64,
}

/// A change of a quota that waits for its commit.
#[derive(Debug)]
pub struct QuotaChange {
    pub(in crate::protocol::consistent) node: NodeId,
    pub(in crate::protocol::consistent) partition: PartitionId,
    pub(in crate::protocol::consistent) queue: QueueName,
    pub(in crate::protocol::consistent) quota: Quota,
}

/// Whom the leader answers, and what, once that is certain.
#[derive(Debug)]
pub struct Asked {
    pub(in crate::protocol) node: NodeId,
    pub(in crate::protocol) ask: u64,
    pub(in crate::protocol) response: Response,
}
