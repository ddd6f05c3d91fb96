//! Effects: everything that a node can ask its host to do.

use crate::event::ClientId;
use norn_model::cohort::Cohort;
use norn_model::message::PeerMessage;
use norn_model::record::Record;
use norn_model::task::Wanted;
use norn_wire::membership::Roster;
use norn_wire::response::{Genesis, Standing};
use norn_wire::{NodeId, PartitionId, Response, TaskId, TaskView, Token};
use std::sync::Arc;

/// Batch number of an [`Effect::Persist`]. Tickets are issued in order, and a [`super::event::Event::Persisted`] covers all
/// before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Ticket(pub u64);

/// Output of [`crate::Node::turn`], to be carried out in order.
///
/// The core holds back every message or reply that promises durability until `Persisted`, so a host may send and reply at once.
#[derive(Debug, Clone)]
pub enum Effect {
    /// Append to the log, then make it durable, then report `Persisted`. Tickets come in ascending order.
    Persist {
        /// Ticket to report back.
        ticket: Ticket,
        /// In order.
        records: Vec<Record>,
    },
    /// Read bodies back from the log; answered by exactly one [`super::event::Event::Loaded`]. Appends do not wait for it.
    Load {
        /// Number to report back.
        number: u64,
        /// Parts to read, of about [`norn_model::limits::LOAD_BYTES_MAX`] bytes at most.
        wanted: Vec<Wanted>,
    },
    /// Send to a peer; may be lost when the connection breaks or its queue is full. The host puts what a turn sends to one peer into one
    /// envelope, in this order.
    Send {
        /// Peer.
        to: NodeId,
        /// Message.
        message: PeerMessage,
    },
    /// Answer a client.
    Reply {
        /// Connection.
        client: ClientId,
        /// The client's number of the request.
        number: u64,
        /// Answer.
        response: Response,
    },
    /// The node belongs to this cluster: connect to its members. Emitted at start, when the cluster is founded, and when it
    /// changes.
    Joined {
        /// The founding record.
        genesis: Arc<Genesis>,
        /// Members of the cluster.
        roster: Arc<Roster>,
    },
    /// Append these finished tasks of a partition to the archive, then report [`super::event::Event::Archived`]. They may have
    /// been archived before.
    Archive {
        /// Partition.
        partition: PartitionId,
        /// Number to report back.
        number: u64,
        /// Tasks.
        tasks: Vec<TaskView>,
    },
    /// A fact for observers: logs, counters, the simulator's properties.
    Observe(Observation),
    /// All leaderships that could be transferred have been; the process may end.
    Stopped,
    /// The protocol's rules are violated. The host must stop at once and persist nothing more.
    Halt {
        /// Violation, with its evidence.
        reason: String,
    },
}

/// Observable action of the core, for logs, counters and checkers. The core does not depend on any observer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Observation {
    /// This node learned of a later roster: member list and queue policies.
    RosterChanged {
        /// Version of the roster: number of changes of the cluster so far.
        version: u64,
        /// Members that are not gone.
        members: usize,
    },
    /// The metadata leader declares a member gone after a longer silence than the setting allows.
    DeclaredGone {
        /// The member.
        node: NodeId,
    },
    /// A replica campaigns.
    Campaign {
        /// Partition.
        partition: u16,
        /// Epoch that it asks votes for.
        epoch: u64,
    },
    /// A replica begins an unsafe recovery with the survivors of a lost majority.
    Rescue {
        /// Partition.
        partition: u16,
        /// Epoch that it asks votes for.
        epoch: u64,
    },
    /// A leader's installation is committed: it may grant.
    Established {
        /// Partition.
        partition: u16,
        /// Its epoch.
        epoch: u64,
    },
    /// A leader no longer leads.
    SteppedDown {
        /// Partition.
        partition: u16,
        /// Epoch that it led.
        epoch: u64,
        /// Reason.
        reason: &'static str,
    },
    /// A grant is committed and about to be answered.
    Granted {
        /// Task.
        id: TaskId,
        /// Token.
        token: Token,
    },
    /// A grant was revoked before any client learned of it.
    Voided {
        /// Task.
        id: TaskId,
        /// Token.
        token: Token,
    },
    /// A claim expired.
    Expired {
        /// Task.
        id: TaskId,
        /// Token.
        token: Token,
    },
    /// A follower was too far behind for operations and was sent the table.
    SnapshotSent {
        /// Partition.
        partition: u16,
    },
    /// Anti-entropy brought tasks here.
    Repaired {
        /// Partition.
        partition: u16,
        /// Number of tasks.
        tasks: u64,
        /// Found by comparing buckets, rather than by the stream of recent changes.
        by_buckets: bool,
    },
    /// Distance of this node's replicas from those of others, once in a round in which any differ.
    Agreement {
        /// Number of partitions of which another replica differs by more than what is on its way.
        apart: u64,
        /// Time since the last agreement of the two replicas that have not agreed for the longest, in milliseconds.
        oldest_ms: u64,
    },
    /// A grant met an ending that its leader did not know.
    DoneFlag {
        /// Task.
        id: TaskId,
        /// Token.
        token: Token,
    },
    /// A sleeping partition was woken by a replica with ready work.
    Woken {
        /// Partition.
        partition: u16,
    },
    /// This node's clock status changed.
    ClockStanding {
        /// New status.
        standing: Standing,
        /// Certain distance from a majority's clocks, in microseconds, where known.
        off_us: Option<u64>,
    },
    /// This node did nothing for longer than others wait before they take it for dead.
    StoodStill {
        /// Time between two of its heartbeats.
        for_ms: u64,
    },
    /// The disk space status changed.
    Room {
        /// Requests that make the log grow for good are refused.
        short: bool,
        /// The node stops.
        out: bool,
        /// A setting, and not the disk, limits the space.
        bounded: bool,
    },
    /// The memory status changed.
    Memory {
        /// Requests that make memory grow for good are refused.
        short: bool,
        /// Memory in use.
        used_bytes: u64,
        /// Limit.
        limit_bytes: u64,
    },
    /// The own disk became far slower than those of the other nodes, or recovered.
    DiskSlow {
        /// Other nodes should lead.
        slow: bool,
        /// Duration of its syncs, in microseconds.
        sync_us: u64,
    },
    /// The log is a stale copy: the node stops for ever.
    Retired {
        /// Reason, for people to read.
        reason: String,
    },
    /// A replica lost a part of its log, or has recovered some of it.
    DataLoss {
        /// Partition.
        partition: u16,
        /// Facts may be missing.
        facts: bool,
        /// Operations of the table may be missing.
        table: bool,
        /// A disk has lost them; otherwise the replica is new, and still receives them.
        lost: bool,
        /// The loss was found just now; otherwise this is a later step of the recovery.
        found: bool,
    },
    /// A replica was created, because a leader has admitted this node.
    SlotTaken {
        /// Partition.
        partition: u16,
    },
    /// A replica was cleared, and has dropped all that it had.
    Left {
        /// Partition.
        partition: u16,
    },
    /// A replica's table names a new cohort.
    CohortChanged {
        /// Partition.
        partition: u16,
        /// New cohort.
        cohort: Cohort,
    },
    /// A leader knows that the cohort of its table is committed.
    CohortCommitted {
        /// Partition.
        partition: u16,
        /// Committed cohort.
        cohort: Cohort,
    },
    /// The log could not give a body back; until it or a peer can, the task is not granted here.
    BodyLost {
        /// Task.
        id: TaskId,
    },
    /// A leader reverts a change of its cohort, and has lost parts of tasks: replicas that never had these cannot become equal to
    /// it.
    ChangeBlocked {
        /// Partition.
        partition: u16,
        /// Number of tasks with lost parts here.
        tasks: u64,
    },
    /// Finished tasks were forgotten.
    Forgotten {
        /// Partition.
        partition: u16,
        /// Number of tasks.
        tasks: u64,
    },
    /// Hinted handoff: facts of tasks are kept for members of a cohort, of which none could be reached.
    HintKept {
        /// Partition.
        partition: u16,
        /// Number of tasks.
        tasks: u64,
    },
    /// Members received the hints kept for them.
    HintsHanded {
        /// Partition.
        partition: u16,
        /// Number of tasks.
        tasks: u64,
    },
    /// Id hints for a member were dropped: it was away for too long, or there is no room. Anti-entropy finds what it lacks.
    HintsDropped {
        /// Number of tasks.
        tasks: u64,
    },
    /// A hint can never be handed over: its task may be a forgotten one.
    HintOrphaned {
        /// Task.
        id: TaskId,
        /// Facts in the hint.
        facts: String,
        /// Bytes of its payload.
        payload_bytes: u64,
    },
    /// Lost records were hints, or may have been.
    HintsLost {
        /// Number of records.
        records: u64,
    },
    /// Some hints could not be handed over for long: members that come back later may refuse them.
    HintsOverdue {
        /// Number of tasks.
        tasks: u64,
    },
    /// The hints kept for others changed.
    Hints {
        /// Tasks of partitions that are not held here.
        tasks: u64,
        /// Tasks that members lack.
        ids: u64,
        /// Memory of all of them, about.
        bytes: u64,
    },
    /// Members of a cohort are away, so that its finished tasks cannot be forgotten.
    ForgettingHeld {
        /// Partition.
        partition: u16,
    },
    /// Child tasks of a completion are older than the garbage-collection watermark of their partition, and are never enqueued.
    ChildRefused {
        /// Partition of the completion.
        partition: u16,
        /// Completed task.
        id: TaskId,
    },
    /// A decided transaction is not made in a partition: the part that it had prepared was lost with a majority, which was given up.
    PartLost {
        /// The partition.
        partition: u16,
        /// The transaction.
        id: TaskId,
    },
    /// The dead-letter copy of a dead task is so late that its partition refuses it.
    LetterRefused {
        /// Partition of the dead task.
        partition: u16,
        /// Dead task.
        id: TaskId,
    },
    /// A task of a schedule was enqueued, at the metadata leader.
    ScheduleFired {
        /// Task.
        id: TaskId,
        /// Time after it was due.
        late_ms: u64,
    },
    /// Due times of a schedule were missed, because no node could fire then.
    ScheduleMissed {
        /// Number of due times.
        ticks: u64,
    },
    /// A task of a schedule can no longer be enqueued, and it is unknown whether it was.
    ScheduleUnsure {
        /// Task.
        id: TaskId,
    },
    /// Input was rejected that a correct sender would not send.
    Refused {
        /// Kind of input.
        what: &'static str,
        /// The peer that it came from, if it came from one.
        from: Option<NodeId>,
    },
}

impl Observation {
    /// What the observation adds to its counter: tasks, records or runs where the counter counts those.
    pub fn amount(&self) -> u64 {
        match self {
            Observation::Forgotten { tasks, .. }
            | Observation::HintKept { tasks, .. }
            | Observation::HintsHanded { tasks, .. }
            | Observation::HintsDropped { tasks }
            | Observation::HintsOverdue { tasks } => *tasks,
            Observation::HintsLost { records } => *records,
            Observation::ScheduleMissed { ticks } => *ticks,
            _ => 1,
        }
    }

    /// Name of the observation's counter.
    pub fn name(&self) -> &'static str {
        match self {
            Observation::Campaign { .. } => "elections_begun",
            Observation::Rescue { .. } => "partitions_recovered",
            Observation::Established { .. } => "leaderships_won",
            Observation::SteppedDown { .. } => "leaderships_ended",
            Observation::Granted { .. } => "claims_granted",
            Observation::Voided { .. } => "grants_withdrawn",
            Observation::Expired { .. } => "leases_expired",
            Observation::SnapshotSent { .. } => "snapshots_sent",
            Observation::Repaired { .. } => "repairs",
            Observation::Agreement { .. } => "agreements",
            Observation::DoneFlag { .. } => "grants_of_ended_tasks",
            Observation::Woken { .. } => "partitions_woken",
            Observation::ClockStanding { .. } => "clock_standings",
            Observation::StoodStill { .. } => "process_stalls",
            Observation::Room { .. } => "disk_room_changes",
            Observation::Memory { .. } => "memory_changes",
            Observation::DiskSlow { .. } => "disk_slow_changes",
            Observation::Retired { .. } => "stale_log_found",
            Observation::DataLoss { found: true, .. } => "data_losses",
            Observation::DataLoss { .. } => "data_healings",
            Observation::SlotTaken { .. } => "replicas_added",
            Observation::Left { .. } => "replicas_removed",
            Observation::CohortChanged { .. } => "cohort_changes",
            Observation::RosterChanged { .. } => "roster_changes",
            Observation::DeclaredGone { .. } => "members_declared_gone",
            Observation::CohortCommitted { .. } => "cohort_commits",
            Observation::BodyLost { .. } => "bodies_lost",
            Observation::ChangeBlocked { .. } => "changes_blocked_by_losses",
            Observation::Forgotten { .. } => "tasks_forgotten",
            Observation::HintKept { .. } => "hints_kept",
            Observation::HintsHanded { .. } => "hints_handed",
            Observation::HintsDropped { .. } => "hints_dropped",
            Observation::HintOrphaned { .. } => "hints_orphaned",
            Observation::HintsLost { .. } => "hints_lost",
            Observation::HintsOverdue { .. } => "hints_overdue",
            Observation::Hints { .. } => "hints_changes",
            Observation::ForgettingHeld { .. } => "collection_held_minutes",
            Observation::ChildRefused { .. } => "children_refused",
            Observation::LetterRefused { .. } => "letters_refused",
            Observation::PartLost { .. } => "transaction_parts_lost",
            Observation::ScheduleFired { .. } => "schedules_fired",
            Observation::ScheduleMissed { .. } => "schedules_missed",
            Observation::ScheduleUnsure { .. } => "schedules_unsure",
            Observation::Refused { .. } => "messages_refused",
        }
    }
}
