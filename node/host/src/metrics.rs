//! Counters of a node's host and core, for `status` and the log.

use norn_client::times::{SYNC_US, Times};
use norn_engine::Observation;
use norn_wire::NodeId;
use norn_wire::response::Standing;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Interval of log lines about messages that were refused for the same reason.
const REFUSAL_INTERVAL: Duration = Duration::from_secs(60);

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)+) => {
        /// The counters.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Counter {
            $($(#[$doc])* $name,)+
        }

        impl Counter {
            /// All counters.
            pub const ALL: &[Counter] = &[$(Counter::$name,)+];

            /// Name in `status`.
            pub fn name(self) -> &'static str {
                match self {
                    $(Counter::$name => $text,)+
                }
            }
        }
    };
}

counters! {
    /// Campaigns begun.
    Campaigns = "elections_begun",
    /// Partitions for which an operator requested recovery without a majority.
    Rescues = "partitions_recovered",
    /// Leaderships established.
    Established = "leaderships_won",
    /// Leaderships ended.
    SteppedDown = "leaderships_ended",
    /// Grants answered.
    Granted = "claims_granted",
    /// Grants withdrawn before any client got them.
    Voided = "grants_withdrawn",
    /// Leases that expired.
    Expired = "leases_expired",
    /// Whole tables sent to followers.
    Snapshots = "snapshots_sent",
    /// Tasks that anti-entropy delivered.
    Repaired = "tasks_repaired",
    /// Partitions in which another replica differed, in the last round.
    PartitionsApart = "partitions_apart",
    /// Longest time since two replicas agreed, in the last round.
    OldestAgreement = "oldest_agreement_ms",
    /// Grants of tasks that turned out to be completed.
    DoneFlags = "grants_of_ended_tasks",
    /// Partitions woken.
    Woken = "partitions_woken",
    /// Changes of the status of the wall clock.
    ClockStandings = "clock_standings",
    /// Times that the node was unresponsive for longer than others wait for it.
    StoodStill = "process_stalls",
    /// Changes of the disk space state.
    RoomChanges = "disk_room_changes",
    /// Changes between enough memory and memory nearly full.
    MemoryChanges = "memory_changes",
    /// Changes between a normal disk and one far slower than those of other nodes.
    DiskSlowChanges = "disk_slow_changes",
    /// The log was found to be a stale copy.
    Retired = "stale_log_found",
    /// Replicas that lost data.
    DataLosses = "data_losses",
    /// Steps of recovery of replicas with missing data.
    DataRecoveries = "data_healings",
    /// Replicas created because partitions moved here.
    SlotsTaken = "replicas_added",
    /// Replicas removed because partitions moved away.
    SlotsLeft = "replicas_removed",
    /// Steps of reconfigurations of cohorts.
    CohortChanges = "cohort_changes",
    /// Changes of the member list that this node learned.
    RosterChanges = "roster_changes",
    /// Members declared gone, as leader of the metadata group.
    DeclaredGone = "members_declared_gone",
    /// Steps of reconfigurations that this node, as leader, saw committed.
    CohortCommits = "cohort_commits",
    /// Bodies that the log could not read back.
    BodiesLost = "bodies_lost",
    /// Reconfigurations that were undone because parts of tasks are lost.
    ChangesBlocked = "changes_blocked_by_losses",
    /// Bodies read back from the log.
    BodiesLoaded = "bodies_loaded",
    /// Finished tasks that were garbage-collected.
    Forgotten = "tasks_forgotten",
    /// Tasks kept as hints for cohorts without a reachable member.
    HintsKept = "hints_kept",
    /// Tasks handed over to members that were away.
    HintsHanded = "hints_handed",
    /// Id hints that were dropped.
    HintsDropped = "hints_dropped",
    /// Hinted tasks that can never be handed over.
    HintsOrphaned = "hints_orphaned",
    /// Records of hints that the log lost.
    HintsLost = "hints_lost",
    /// Tasks kept as hints for too long, added up over all reports.
    HintsOverdue = "hints_overdue",
    /// Tasks of partitions without a replica here that are kept as hints now.
    HintTasks = "hint_tasks",
    /// Id hints now.
    HintIds = "hint_ids",
    /// Memory of payload hints and id hints.
    HintBytes = "hint_bytes",
    /// Minutes for which members away or with incomplete facts, or completions with child tasks as old, kept a partition from forgetting.
    ForgettingHeld = "collection_held_minutes",
    /// Completions that arrived so late that their child tasks were refused.
    ChildrenRefused = "children_refused",
    /// Dead tasks of which no dead-letter copy could be written in time.
    LettersRefused = "letters_refused",
    /// Parts of decided transactions that are not made, as a majority of their partition was given up.
    PartsLost = "transaction_parts_lost",
    /// Tasks of schedules that were enqueued.
    SchedulesFired = "schedules_fired",
    /// Delays of these, added up.
    SchedulesLate = "schedules_late_ms",
    /// Times of schedules that were skipped.
    SchedulesMissed = "schedules_missed",
    /// Tasks of schedules that may or may not have been enqueued.
    SchedulesUnsure = "schedules_unsure",
    /// Inputs that a correct sender would not send.
    Refused = "messages_refused",
    /// Events passed to the core.
    Events = "events",
    /// Turns in which the core handled them.
    Turns = "turns",
    /// Requests of clients.
    Requests = "requests",
    /// Syncs of the log.
    LogSyncs = "log_syncs",
    /// Bytes of the log that scrubbing read.
    ScrubBytes = "scrub_bytes",
    /// Complete scrubs of the log.
    ScrubPasses = "scrub_passes",
    /// Files found damaged, counted in each scrub.
    ScrubDamages = "scrub_damages",
    /// Batches appended to the log.
    LogBatches = "log_batches",
    /// Times that clients had to wait for the log.
    LogWaits = "log_waits",
    /// Messages to peers.
    PeerSent = "peer_messages_sent",
    /// Envelopes in which these were handed to the links: what a turn had for one peer, urgent messages and bulk apart.
    PeerPosted = "peer_envelopes_sent",
    /// Messages dropped because a peer's queue was full or the link was down.
    PeerDropped = "peer_messages_dropped",
    /// Messages from peers.
    PeerReceived = "peer_messages_received",
    /// Links to peers that were established.
    PeerConnected = "peer_links_up",
    /// Connections refused: no name, wrong peer, or too many.
    ConnectionsRefused = "connections_refused",
    /// Connections closed because their data was no valid frame.
    FramesRefused = "frames_refused",
}

/// Counters that every part of the runtime adds to.
#[derive(Debug)]
pub struct Metrics {
    counts: [AtomicU64; Counter::ALL.len()],
    /// Times of writing and syncing the log.
    pub log_syncs: Times,
    /// Why the node stops by itself.
    ending: OnceLock<String>,
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics {
            counts: [const { AtomicU64::new(0) }; Counter::ALL.len()],
            log_syncs: Times::new(SYNC_US),
            ending: OnceLock::new(),
        }
    }
}

impl Metrics {
    /// Why the node stops by itself, if it does.
    pub fn ending(&self) -> Option<&str> {
        self.ending.get().map(String::as_str)
    }

    fn ends(&self, why: &str) {
        self.ending.get_or_init(|| why.to_owned());
    }

    /// Adds to a counter.
    pub fn add(&self, counter: Counter, amount: u64) {
        self.counts[counter as usize].fetch_add(amount, Ordering::Relaxed);
    }

    /// Sets a counter to a value kept elsewhere.
    pub fn set(&self, counter: Counter, value: u64) {
        self.counts[counter as usize].store(value, Ordering::Relaxed);
    }

    /// A counter's value.
    pub fn get(&self, counter: Counter) -> u64 {
        self.counts[counter as usize].load(Ordering::Relaxed)
    }

    /// Counts and logs what the core observed.
    pub fn observe(&self, observation: &Observation) {
        let counter = match observation {
            Observation::Campaign { .. } => Counter::Campaigns,
            Observation::Rescue { .. } => Counter::Rescues,
            Observation::Established { .. } => Counter::Established,
            Observation::SteppedDown { .. } => Counter::SteppedDown,
            Observation::Granted { .. } => Counter::Granted,
            Observation::Voided { .. } => Counter::Voided,
            Observation::Expired { .. } => Counter::Expired,
            Observation::SnapshotSent { .. } => Counter::Snapshots,
            Observation::Repaired { tasks, .. } => {
                self.add(Counter::Repaired, *tasks);
                return self.tell(observation);
            }
            Observation::Agreement { apart, oldest_ms } => {
                self.set(Counter::PartitionsApart, *apart);
                self.set(Counter::OldestAgreement, *oldest_ms);
                return;
            }
            Observation::DoneFlag { .. } => Counter::DoneFlags,
            Observation::Woken { .. } => Counter::Woken,
            Observation::ClockStanding { .. } => Counter::ClockStandings,
            Observation::StoodStill { .. } => Counter::StoodStill,
            Observation::Room { .. } => Counter::RoomChanges,
            Observation::Memory { .. } => Counter::MemoryChanges,
            Observation::DiskSlow { .. } => Counter::DiskSlowChanges,
            Observation::Retired { .. } => Counter::Retired,
            Observation::DataLoss { found: true, .. } => Counter::DataLosses,
            // A replica that awaits its first facts lacks them, but has lost nothing.
            Observation::DataLoss { .. } => Counter::DataRecoveries,
            Observation::SlotTaken { .. } => Counter::SlotsTaken,
            Observation::Left { .. } => Counter::SlotsLeft,
            Observation::CohortChanged { .. } => Counter::CohortChanges,
            Observation::RosterChanged { .. } => Counter::RosterChanges,
            Observation::DeclaredGone { .. } => Counter::DeclaredGone,
            Observation::CohortCommitted { .. } => Counter::CohortCommits,
            Observation::BodyLost { .. } => Counter::BodiesLost,
            Observation::ChangeBlocked { .. } => Counter::ChangesBlocked,
            Observation::Forgotten { .. } => Counter::Forgotten,
            Observation::HintKept { .. } => Counter::HintsKept,
            Observation::HintsHanded { .. } => Counter::HintsHanded,
            Observation::HintsDropped { .. } => Counter::HintsDropped,
            Observation::HintOrphaned { .. } => Counter::HintsOrphaned,
            Observation::HintsLost { .. } => Counter::HintsLost,
            Observation::HintsOverdue { .. } => Counter::HintsOverdue,
            Observation::Hints { tasks, ids, bytes } => {
                self.set(Counter::HintTasks, *tasks);
                self.set(Counter::HintIds, *ids);
                self.set(Counter::HintBytes, *bytes);
                return;
            }
            Observation::ForgettingHeld { .. } => Counter::ForgettingHeld,
            Observation::ChildRefused { .. } => Counter::ChildrenRefused,
            Observation::LetterRefused { .. } => Counter::LettersRefused,
            Observation::PartLost { .. } => Counter::PartsLost,
            Observation::ScheduleFired { late_ms, .. } => {
                self.add(Counter::SchedulesLate, *late_ms);
                Counter::SchedulesFired
            }
            Observation::ScheduleMissed { .. } => Counter::SchedulesMissed,
            Observation::ScheduleUnsure { .. } => Counter::SchedulesUnsure,
            Observation::Refused { .. } => Counter::Refused,
        };
        self.add(counter, observation.amount());
        self.tell(observation);
    }

    /// Logs an observation.
    #[expect(clippy::too_many_lines, reason = "one message for each observation that an operator should see")]
    fn tell(&self, observation: &Observation) {
        match observation {
            // One for each task: too many for the log of a busy node.
            Observation::Granted { .. } => tracing::trace!(?observation, "observed"),
            Observation::ClockStanding { standing, off_us } => tell_clock(*standing, *off_us),
            Observation::StoodStill { for_ms } => {
                tracing::warn!(
                    for_ms,
                    "this node stood still: its process or machine was stopped, or starved; others may lead now what it led"
                );
            }
            Observation::Room { short, out, bounded } => {
                tell_room(*short, *out, *bounded);
                if *out {
                    self.ends(if *bounded { BOUNDED } else { FULL });
                }
            }
            Observation::Memory { short, used_bytes, limit_bytes } => {
                tell_memory(*short, *used_bytes >> 20, *limit_bytes >> 20);
            }
            Observation::DiskSlow { slow, sync_us } => tell_disk(*slow, *sync_us / 1_000),
            Observation::Retired { reason } => {
                tracing::error!(reason, "this log must not be used any more: stopping for ever");
                self.ends(&format!("its log must not be used any more: {reason}"));
            }
            Observation::DataLoss { partition, facts, table, lost: true, .. } => {
                warn_of_data_loss(*partition, *facts, *table)
            }
            Observation::BodyLost { id } => {
                tracing::warn!(%id, "the log cannot give a part of this task back: the other replicas are asked")
            }
            Observation::ChangeBlocked { partition, tasks } => tracing::warn!(
                partition,
                tasks,
                "this partition's replicas do not move: tasks have lost a part here that no other replica has; cancel and purge them"
            ),
            Observation::HintOrphaned { id, facts, payload_bytes } => {
                tracing::error!(
                    %id,
                    facts,
                    payload_bytes,
                    "this task was kept for nodes that were away for too long: they may have forgotten it, and refuse it"
                );
            }
            Observation::RosterChanged { version, members } => {
                tracing::info!(version, members, "the cluster has changed");
            }
            Observation::DeclaredGone { node } => {
                tracing::warn!(%node, "silent for too long: taken for gone, and its partitions are healed");
            }
            Observation::HintsLost { records } => {
                tracing::error!(
                    records,
                    "the log lost records, perhaps of tasks that were kept for nodes which were away"
                );
            }
            Observation::HintsOverdue { tasks } => {
                tracing::warn!(
                    tasks,
                    "a majority of the nodes that hold these tasks could not be told of them for long; perhaps only this \
                     node has them, and nodes that come back much later may refuse them"
                );
            }
            Observation::ForgettingHeld { partition } => {
                tracing::warn!(
                    partition,
                    "finished tasks cannot be forgotten while a member is away or has holes, or a completion brings tasks \
                     as old; see `norn partitions`"
                );
            }
            Observation::PartLost { partition, id } => {
                tracing::error!(
                    partition,
                    transaction = %id,
                    "it is made elsewhere and not in this partition, as its part was lost with a majority that was given up"
                );
            }
            Observation::LetterRefused { partition, id } => {
                tracing::warn!(
                    partition,
                    %id,
                    "no letter of a dead task could be written for so long that it is refused; the task is among the dead of its \
                     own queue: `norn redrive` enqueues it again"
                );
            }
            Observation::ChildRefused { partition, id } => {
                tracing::warn!(
                    partition,
                    %id,
                    "a node was away for so long with what a completion brought that no replica takes it any more: if the \
                     completion was acknowledged as strict it was enqueued before, else it is lost; `norn get` names the tasks"
                );
            }
            _ => tracing::debug!(?observation, "observed"),
        }
    }

    /// All counters that are not zero, by name.
    pub fn snapshot(&self) -> Vec<(String, u64)> {
        let named = Counter::ALL.iter().map(|counter| (counter.name().to_owned(), self.get(*counter)));
        named.filter(|(_, count)| *count > 0).collect()
    }

    /// Writes all counters to the log at level debug, periodically.
    pub async fn report_every(self: Arc<Self>, interval: Duration) {
        let mut ticks = tokio::time::interval(interval);
        ticks.tick().await;
        loop {
            ticks.tick().await;
            if tracing::enabled!(tracing::Level::DEBUG) {
                let counts: Vec<String> =
                    self.snapshot().into_iter().map(|(name, count)| format!("{name}={count}")).collect();
                tracing::debug!(counters = counts.join(" "), "counters");
            }
        }
    }
}

/// Last logged refusals of messages, by reason: each reason is logged at most once per interval.
#[derive(Debug, Default)]
pub struct PeerRefusals {
    said: BTreeMap<&'static str, (Instant, u64)>,
}

impl PeerRefusals {
    /// Logs a refusal, unless one for the same reason was logged recently.
    pub fn tell(&mut self, what: &'static str, from: Option<NodeId>) {
        if let Some(left_out) = self.due(what, Instant::now()) {
            let from = from.map_or_else(|| "this node".to_owned(), |from| from.to_string());
            tracing::warn!(from, what, left_out, "a message was refused that a correct sender would not send");
        }
    }

    /// If a refusal is due to be logged, returns how many were omitted since the last one.
    fn due(&mut self, what: &'static str, now: Instant) -> Option<u64> {
        match self.said.get_mut(what) {
            Some((at, left_out)) if now.saturating_duration_since(*at) < REFUSAL_INTERVAL => {
                *left_out += 1;
                None
            }
            before => {
                let left_out = before.map_or(0, |(_, left_out)| *left_out);
                self.said.insert(what, (now, 0));
                Some(left_out)
            }
        }
    }
}

/// Logs for operators that a disk lost data, and when that is repaired.
fn warn_of_data_loss(partition: u16, facts: bool, table: bool) {
    match (facts, table) {
        (_, true) => {
            tracing::warn!(partition, "claims are lost here: the replica does not count until it has caught up")
        }
        (true, false) => tracing::warn!(partition, "tasks may be lost here: others hold them, and are asked"),
        (false, false) => tracing::info!(partition, "whole again: nothing is missing here"),
    }
}

/// Reason of the end of a node whose disk is full.
const FULL: &str = "no room is left on the disk of its data directory; make room, then start it";
/// Reason of the end of a node that reached its configured disk limit.
const BOUNDED: &str =
    "its data directory is as large as the setting `disk_bytes_max` allows; raise that, then start it";

/// Logs for operators that space is needed, and when there is enough.
fn tell_room(short: bool, out: bool, bounded: bool) {
    match (short, out) {
        (_, true) if bounded => tracing::error!(
            "the data directory is as large as the setting `disk_bytes_max` allows: the node hands over and stops; raise that, then \
             start it"
        ),
        (true, false) if bounded => tracing::warn!(
            "the data directory is nearly as large as the setting `disk_bytes_max` allows: new tasks are refused here until it is \
             smaller, or that is raised"
        ),
        (_, true) => {
            tracing::error!("no room is left on the disk: the node hands over and stops; make room, then start it")
        }
        (true, false) => {
            tracing::warn!("the disk is nearly full: new tasks are refused here until there is room again")
        }
        (false, false) => tracing::info!("there is room on the disk again"),
    }
}

/// Logs for operators that the node needs more memory or fewer tasks.
fn tell_memory(short: bool, used_mib: u64, limit_mib: u64) {
    if short {
        tracing::warn!(
            used_mib,
            limit_mib,
            "memory is nearly full: new tasks are refused here until there is more of it"
        );
    } else {
        tracing::info!(used_mib, limit_mib, "there is memory again");
    }
}

/// Logs for operators that the disk is slow.
fn tell_disk(slow: bool, sync_ms: u64) {
    if slow {
        tracing::warn!(sync_ms, "the disk is far slower than those of other nodes: these lead until it is better");
    } else {
        tracing::info!(sync_ms, "the disk is not slow any more");
    }
}

/// Logs for operators that the clock is wrong, and when it is right again.
fn tell_clock(standing: Standing, off_us: Option<u64>) {
    let off_ms = off_us.map(|us| us / 1_000);
    match standing {
        Standing::Suspect => {
            tracing::warn!(
                off_ms,
                "the wall clock is far from a majority's; set it: with clock_fencing, leadership is handed over"
            );
        }
        Standing::Fenced => {
            tracing::warn!(
                off_ms,
                "the wall clock is wrong, or was set just now; with clock_fencing, this node leads nothing until it is right"
            );
        }
        Standing::Good => tracing::info!(off_ms, "the wall clock agrees with a majority"),
        Standing::Unknown => tracing::info!("no majority to compare the wall clock with"),
    }
}

#[cfg(test)]
mod tests {
    use super::{Counter, Metrics, PeerRefusals};
    use norn_engine::Observation;
    use std::time::{Duration, Instant};

    /// Goal: an operator who sees that messages are refused finds the reason in the log, and a node that sends many does not fill the
    /// log.
    #[test]
    fn each_reason_of_a_refusal_is_said_once_a_minute() {
        let (mut refusals, start) = (PeerRefusals::default(), Instant::now());
        let mut due = |what, after_s| refusals.due(what, start + Duration::from_secs(after_s));
        assert_eq!([due("a", 0), due("a", 1), due("b", 2), due("a", 59)], [Some(0), None, Some(0), None]);
        assert_eq!([due("a", 60), due("a", 61), due("a", 120)], [Some(2), None, Some(1)]);
    }

    /// Goal: where the core's counter and the host's have one name, both count the same, as a status shows the core's.
    #[test]
    fn tasks_are_counted_one_by_one() {
        let metrics = Metrics::default();
        let observed = [
            (Observation::Forgotten { partition: 1, tasks: 2 }, Counter::Forgotten),
            (Observation::HintsDropped { tasks: 3 }, Counter::HintsDropped),
            (Observation::HintsOverdue { tasks: 4 }, Counter::HintsOverdue),
            (Observation::HintsLost { records: 5 }, Counter::HintsLost),
            (Observation::ScheduleMissed { ticks: 6 }, Counter::SchedulesMissed),
        ];
        for (amount, (observation, counter)) in (2..).zip(observed) {
            metrics.observe(&observation);
            assert_eq!(observation.name(), counter.name());
            assert_eq!([observation.amount(), metrics.get(counter)], [amount; 2], "{observation:?}");
        }
    }

    /// Goal: a replica that becomes whole in several steps counts as one loss.
    #[test]
    fn steps_of_healing_are_no_losses() {
        let metrics = Metrics::default();
        for (facts, table, found) in [(true, true, true), (true, false, false), (false, false, false)] {
            metrics.observe(&Observation::DataLoss { partition: 1, facts, table, lost: true, found });
        }
        assert_eq!([Counter::DataLosses, Counter::DataRecoveries].map(|counter| metrics.get(counter)), [1, 2]);
    }
}
