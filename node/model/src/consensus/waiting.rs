//! Commit continuations: what a leader does once an operation is committed.

use crate::claim_table::ledger::Round;
use crate::claim_table::operation::SlotQuota;
use norn_wire::membership::Roster;
use norn_wire::{NodeId, PartitionId, QueueName, Response, TaskId, Token};
use std::num::NonZeroU64;
use std::sync::Arc;

/// Continuation that runs at the leader once an operation is committed.
#[derive(Debug)]
pub enum Waiting {
    /// Grants for a broker's question.
    Grant {
        /// Number of the question's session.
        session: u64,
        /// Tasks with the tokens of their grants.
        items: Vec<(TaskId, Token)>,
        /// Granted now, rather than reported again: may be taken back until the broker has the answer.
        fresh: bool,
    },
    /// Items of a forwarded call, with the lease to answer.
    Call {
        /// Number of the call.
        call: u64,
        /// Item in the call, and its lease.
        slots: Vec<(usize, u64)>,
    },
    /// A change of the metadata group: all nodes and its requester learn of it.
    Metadata {
        /// Members after the change.
        roster: Arc<Roster>,
        /// Requester and its answer.
        answer: Option<Box<Asked>>,
    },
    /// A task that is given up: its end becomes a fact.
    Kill {
        /// Task to end.
        id: TaskId,
    },
    /// A sealed completion: it becomes a fact, and its requester gets the answer once a majority has that fact.
    Seal(Sealing),
    /// Reservation of a unique key for a task.
    Reserve {
        /// Unique key.
        name: Box<Name>,
        /// Task that gets it.
        id: TaskId,
    },
    /// A decided transaction: now it may become facts.
    Decide {
        /// The transaction.
        id: TaskId,
    },
    /// A prepared part of a transaction: the coordinator gets the vote for it.
    Prepare {
        /// The transaction.
        id: TaskId,
        /// The round for which it is prepared.
        round: Round,
    },
    /// A part of a transaction that is made: the coordinator learns of it.
    Made {
        /// The transaction.
        id: TaskId,
    },
    /// A refused transaction: its requester gets the refusal.
    Refuse {
        /// The transaction.
        id: TaskId,
    },
    /// Rate tokens for claims: their requester gets them.
    RateTokens(Box<Giving>),
    /// A partition's concurrency slot quota: its leader learns of it.
    SlotQuota(Box<SlotQuotaChange>),
    /// Revoked grants: the rate tokens that they used go back, each to its queue and by the question that it answered.
    Void {
        /// One entry for each grant of a queue with a rate.
        rate_tokens: Vec<(QueueName, u64)>,
    },
}

/// Completion being sealed.
#[derive(Debug)]
pub struct Sealing {
    /// Task that the completion ends.
    pub id: TaskId,
    /// Claim that the completion belongs to.
    pub token: Token,
    /// Requesting call, and the item in it.
    pub call: (u64, usize),
    /// Bytes of the completion; none if it was sealed before.
    pub bytes: usize,
    /// The export of the task's ending is appended; the answer goes out with that.
    pub exported: bool,
}

/// Unique key: partition, queue and key.
pub type Name = (PartitionId, QueueName, NonZeroU64);

/// Rate tokens that wait for their commit.
#[derive(Debug)]
pub struct Giving {
    pub to: NodeId,
    pub request_id: u64,
    pub queue: QueueName,
    pub count: u64,
}

/// Change of a concurrency slot quota that waits for its commit.
#[derive(Debug)]
pub struct SlotQuotaChange {
    pub node: NodeId,
    pub partition: PartitionId,
    pub queue: QueueName,
    pub slot_quota: SlotQuota,
}

/// Pending answer of the leader: addressee and response.
#[derive(Debug)]
pub struct Asked {
    pub node: NodeId,
    pub request_id: u64,
    pub response: Response,
}
