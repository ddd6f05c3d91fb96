//! What a folder reports to the folders above it.
//!
//! A folder calls only folders below it. What those above have to know, it reports as a [`Signal`]; the step hands signals out in the
//! order in which they were reported, after the message, timer or event that reported them (`signals.rs` of the crate root says what
//! follows from each).

use crate::event::ClientId;
use norn_model::claim_table::ledger::TransactionKey;
use norn_model::consensus::Waiting;
use norn_model::limits::SIGNALS_MAX;
use norn_model::message::{Items, StateCounts};
use norn_model::task::{Filling, Part, Task, Wanted};
use norn_model::viewstamp::Epoch;
use norn_wire::{NodeId, PartitionId, QueueName, TaskId};
use serde_bytes::ByteBuf;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Something that happened and concerns folders above the one that reports it.
#[derive(Debug)]
pub(crate) enum Signal {
    /// This node leads the partition, and its first operation is committed.
    Established(PartitionId),
    /// Payloads for a session of grants have come from the log.
    LoadedForGrant { session: u64, parts: Vec<(Wanted, Option<Filling>)> },
    /// Payloads for the archive have come, and are in the tasks.
    LoadedForArchive { partition: PartitionId, number: u64, tasks: Vec<(TaskId, Task)> },
    /// Payloads that a transaction compares have come.
    LoadedForTransaction { key: TransactionKey, loaded: BTreeMap<Part, ByteBuf>, parts: Vec<(Wanted, Option<Filling>)> },
    /// A node leads a partition that it did not lead before.
    LeaderElsewhere,
    /// Enough peers have answered this start for the replica to promise something.
    ReplicaAnswered(PartitionId),
    /// A later roster is known.
    RosterChanged(Box<RosterChange>),
    /// A later cohort of a partition is known.
    RouteChanged,
    /// This node leads the partition no more: it never learns whether the operations at these places commit.
    SteppedDown { partition: PartitionId, epoch: Epoch, waiting: VecDeque<(u64, Waiting)> },
    /// The commit index or the grant index of a leader has advanced. These operations are ready, by their places.
    Committed { partition: PartitionId, epoch: Epoch, ready: Vec<(u64, Waiting)> },
    /// A follower has told its leader how tasks ended that the leader granted.
    Endings { partition: PartitionId, items: Vec<(TaskId, Task)> },
    /// A follower has acknowledged grants of these tasks, and does not know the tasks.
    SpecsMissing { partition: PartitionId, node: NodeId, ids: Vec<TaskId> },
    /// A replica was created here, for a table that comes next.
    SlotTaken(PartitionId),
    /// The replica here has a table with another cohort.
    CohortChanged(PartitionId),
    /// The replica here may lack facts from now on.
    FactsMissing(PartitionId),
    /// The replica here was cleared: it is in no cohort any more.
    Left(PartitionId),
    /// All results of a write are known.
    WriteEnded(u64),
    /// No replica is heard of a partition to which this node writes: it keeps the facts for them, as a hint.
    Unreached { request_id: u64, partition: PartitionId, items: Items },
    /// A completion has brought child tasks to a partition.
    ChildrenBrought(PartitionId),
    /// Ended tasks of a partition are no longer kept for the sake of others.
    Freed(PartitionId),
    /// Ended tasks are purged.
    Purged { partition: PartitionId, ids: Vec<TaskId> },
    /// Tasks have ended, as facts say.
    Ended { partition: PartitionId, ids: Vec<TaskId> },
    /// Tasks have ended, as the table says.
    EndedInTable { partition: PartitionId, ids: Vec<TaskId> },
    /// Tasks of a partition that is led here wait for these from now on.
    Blocked { partition: PartitionId, by: BTreeSet<TaskId> },
    /// Tasks of a partition that is led here are held under sessions, the ends of which are not known.
    SessionsHeeded { partition: PartitionId, sessions: Vec<TaskId> },
    /// A read waits for the end of a task that has not ended yet.
    EndAwaited(u64),
    /// The tasks of the cluster are counted for a status.
    StatusCounted(Box<Total>),
}

/// What a later roster changes.
#[derive(Debug)]
pub(crate) struct RosterChange {
    /// Queues with another claim order or concurrency.
    pub reordered: Vec<QueueName>,
    /// Queues that are no longer paused.
    pub resumed: Vec<QueueName>,
    /// Nodes that are peers from now on.
    pub fresh: Vec<NodeId>,
}

/// The sums of a status, all partitions taken together.
#[derive(Debug)]
pub(crate) struct Total {
    /// The waiting client.
    pub client: ClientId,
    /// Number of its request.
    pub number: u64,
    /// Tasks by state.
    pub total: StateCounts,
    /// Partitions of which no majority was heard.
    pub unheard: u32,
}

/// Signals that were reported and not handed out yet.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    reported: VecDeque<Signal>,
}

impl Signals {
    pub(crate) fn report(&mut self, signal: Signal) {
        assert!(self.reported.len() < SIGNALS_MAX, "a step ends: it keeps reporting");
        self.reported.push_back(signal);
    }

    pub(crate) fn next(&mut self) -> Option<Signal> {
        self.reported.pop_front()
    }
}
