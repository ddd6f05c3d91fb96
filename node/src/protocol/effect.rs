//! Everything that a node can ask its host to do.

use crate::protocol::consistent::cohort::Cohort;
use crate::protocol::event::ClientId;
use crate::protocol::peer::PeerMessage;
use crate::protocol::record::Record;
use crate::protocol::task::Wanted;
use norn_wire::membership::Roster;
use norn_wire::response::{Genesis, Standing};
use norn_wire::{NodeId, PartitionId, Response, TaskId, TaskView, Token};
use std::sync::Arc;

/// Number of a [`Effect::Persist`]; they are handed out in order, and a [`super::event::Event::Persisted`] covers all before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Ticket(pub u64);

/// Output of [`crate::protocol::Node::step`], to be carried out in order.
///
/// Whatever promises durability is held back in the core until `Persisted`, so a host may send and reply at once.
#[derive(Debug, Clone)]
pub enum Effect {
    /// Append to the log, then make it durable, then report `Persisted`. Tickets come in ascending order.
    Persist {
        /// To be reported back.
        ticket: Ticket,
        /// In order.
        records: Vec<Record>,
    },
    /// Read bodies back from the log; answered by exactly one [`super::event::Event::Loaded`]. Appends do not wait for it.
    Load {
        /// To be reported back.
        number: u64,
        /// At the most about [`crate::limits::LOAD_BYTES_MAX`] bytes.
        wanted: Vec<Wanted>,
    },
    /// Send to a peer; may be lost when the connection breaks or its queue is full.
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
    /// The node belongs to this cluster: connect to its members. Said at start, when the cluster is founded, and when it
    /// has changed.
    Joined {
        /// The founding record.
        genesis: Arc<Genesis>,
        /// Who belongs to it.
        roster: Arc<Roster>,
    },
    /// Append these finished tasks of a partition to the archive, then report [`super::event::Event::Archived`]. They may have
    /// been archived before.
    Archive {
        /// Partition.
        partition: PartitionId,
        /// To be reported back.
        number: u64,
        /// Tasks.
        tasks: Vec<TaskView>,
    },
    /// A fact for observers: logs, counters, the simulator's properties.
    Observe(Observation),
    /// Leadership is handed over as far as that goes; the process may end.
    Stopped,
    /// Something is wrong that no rule of the protocol allows. The host must stop at once and persist nothing more.
    Halt {
        /// What, with its evidence.
        reason: String,
    },
}

/// What the core did, for those who watch. Nothing depends on anybody listening.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Observation {
    /// Others belong to the cluster than before, or they are others.
    RosterChanged {
        /// Changes of the cluster so far.
        version: u64,
        /// Members that are not gone.
        members: usize,
    },
    /// The leader of the root takes a member for gone: it was silent for longer than is set.
    DeclaredGone {
        /// The member.
        node: NodeId,
    },
    /// A replica campaigns.
    Campaign {
        /// Partition.
        partition: u16,
        /// Epoch it asks votes for.
        epoch: u64,
    },
    /// A replica asks whoever is left to go on without a majority.
    Rescue {
        /// Partition.
        partition: u16,
        /// Epoch it asks votes for.
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
        /// The epoch it led.
        epoch: u64,
        /// Why.
        reason: &'static str,
    },
    /// A grant is committed and about to be answered.
    Granted {
        /// Task.
        id: TaskId,
        /// Token.
        token: Token,
    },
    /// A grant was taken back before anybody was told of it.
    Voided {
        /// Task.
        id: TaskId,
        /// Token.
        token: Token,
    },
    /// A claim ran out.
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
    /// Tasks that anti-entropy brought here.
    Repaired {
        /// Partition.
        partition: u16,
        /// How many.
        tasks: u64,
        /// By comparing buckets, rather than by the stream of recent changes.
        by_buckets: bool,
    },
    /// How near this node's replicas are to those of others, once in a round in which any is not.
    Agreement {
        /// Partitions of which some other replica is different, and not just by what is on its way.
        apart: u64,
        /// How long ago the two replicas that have not agreed for the longest time did, in milliseconds.
        oldest_ms: u64,
    },
    /// A grant met a completion that its leader did not know.
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
    /// This node's wall clock stands otherwise than before.
    ClockStanding {
        /// How.
        standing: Standing,
        /// How far it is certainly away from a majority's, in microseconds, where that is known.
        off_us: Option<u64>,
    },
    /// This node did nothing for longer than others wait before they take it for dead.
    StoodStill {
        /// Between two of its heartbeats.
        for_ms: u64,
    },
    /// There is less room on the disk than before, or more.
    Room {
        /// What makes the log grow for good is refused.
        short: bool,
        /// The node stops.
        out: bool,
        /// A setting bounds it, and not the disk.
        bounded: bool,
    },
    /// The node is near the limit of its memory, or no longer.
    Memory {
        /// What makes it grow for good is refused.
        short: bool,
        /// In use.
        used_bytes: u64,
        /// What may be.
        limit_bytes: u64,
    },
    /// The own disk has become far slower than the others', or is no longer.
    DiskSlow {
        /// Others should lead.
        slow: bool,
        /// How long its syncs take, in microseconds.
        sync_us: u64,
    },
    /// The log is a copy: the node stops for ever.
    Retired {
        /// For people.
        reason: String,
    },
    /// A replica lost a part of its log, or has healed of some of it.
    Wounded {
        /// Partition.
        partition: u16,
        /// Facts may be missing.
        facts: bool,
        /// Operations of the table may be missing.
        table: bool,
        /// A disk has lost them; otherwise the replica is new, and gets them.
        lost: bool,
        /// The loss was found just now; otherwise this is a step of what comes of it.
        found: bool,
    },
    /// A replica was made, as a leader has admitted this node.
    Seated {
        /// Partition.
        partition: u16,
    },
    /// A replica was cleared, and has dropped all that it had.
    Left {
        /// Partition.
        partition: u16,
    },
    /// A replica's table names another cohort than before.
    CohortChanged {
        /// Partition.
        partition: u16,
        /// Which.
        cohort: Cohort,
    },
    /// A leader knows that the cohort of its table is committed.
    CohortCommitted {
        /// Partition.
        partition: u16,
        /// Which.
        cohort: Cohort,
    },
    /// The log could not give a body back; until it or a peer can, the task is not granted here.
    BodyLost {
        /// Task.
        id: TaskId,
    },
    /// A leader takes a change of its cohort back, and has lost parts of tasks: replicas that never had these cannot become equal to it.
    ChangeBlocked {
        /// Partition.
        partition: u16,
        /// How many tasks have lost something here.
        tasks: u64,
    },
    /// Finished tasks are no more.
    Forgotten {
        /// Partition.
        partition: u16,
        /// How many.
        tasks: u64,
    },
    /// Facts of tasks are kept for members of a cohort, of which none could be reached.
    HintKept {
        /// Partition.
        partition: u16,
        /// How many.
        tasks: u64,
    },
    /// Members have what was kept for them.
    HintsHanded {
        /// Partition.
        partition: u16,
        /// How many tasks.
        tasks: u64,
    },
    /// It is not noted any more what a member lacks: it was away for too long, or there is no room. Anti-entropy finds it.
    HintsDropped {
        /// How many.
        tasks: u64,
    },
    /// A task that is kept can never be handed over: it may be one that was forgotten.
    HintOrphaned {
        /// Task.
        id: TaskId,
        /// Which facts.
        facts: String,
        /// Bytes of its payload.
        payload_bytes: u64,
    },
    /// Records are lost that were hints, or may have been.
    HintsLost {
        /// How many.
        records: u64,
    },
    /// Some of what is kept could not be handed over for long: members that come back later may refuse it.
    HintsOverdue {
        /// How many tasks.
        tasks: u64,
    },
    /// What is kept for others has changed.
    Hints {
        /// Tasks of partitions that are not held here.
        tasks: u64,
        /// Tasks that members lack.
        ids: u64,
        /// Memory of all of it, about.
        bytes: u64,
    },
    /// Members of a cohort are away, so that its finished tasks cannot be forgotten.
    ForgettingHeld {
        /// Partition.
        partition: u16,
    },
    /// Tasks that a completion brought are older than what was forgotten where they belong, and are not enqueued any more.
    ChildRefused {
        /// Partition of the completion.
        partition: u16,
        /// Which task was completed.
        id: TaskId,
    },
    /// The letter of a dead task is so late that it is refused where it belongs.
    LetterRefused {
        /// Partition of the dead task.
        partition: u16,
        /// Which task has died.
        id: TaskId,
    },
    /// A task of a schedule is enqueued, at the leader of the root.
    ScheduleFired {
        /// Task.
        id: TaskId,
        /// So long after it was due.
        late_ms: u64,
    },
    /// Times of a schedule were passed over, as nobody could fire then.
    ScheduleMissed {
        /// How many.
        ticks: u64,
    },
    /// A task of a schedule cannot be enqueued any more, and nobody knows whether it was.
    ScheduleUnsure {
        /// Task.
        id: TaskId,
    },
    /// Input was refused that a correct sender would not send.
    Refused {
        /// What.
        what: &'static str,
    },
}

impl Observation {
    /// Name of its counter.
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
            Observation::Wounded { found: true, .. } => "data_losses",
            Observation::Wounded { .. } => "data_healings",
            Observation::Seated { .. } => "replicas_added",
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
            Observation::ScheduleFired { .. } => "schedules_fired",
            Observation::ScheduleMissed { .. } => "schedules_missed",
            Observation::ScheduleUnsure { .. } => "schedules_unsure",
            Observation::Refused { .. } => "messages_refused",
        }
    }
}
