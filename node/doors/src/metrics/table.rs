//! All metrics: names, types, labels, meanings, and by which name `norn status` shows the same. Dashboards, alerts and the document are
//! checked against this table.

/// Type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Grows until the process ends. The name in the text ends in `_total`.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Classes of times.
    Histogram,
    /// Labels alone.
    Info,
}

impl Kind {
    /// Its name in the text.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
            Kind::Info => "info",
        }
    }
}

/// Unit of a metric. Its name ends in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// None: a number.
    Number,
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
}

/// How `norn status` shows the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Today {
    /// It does not.
    Absent,
    /// Under this name, in the same unit.
    Same(&'static str),
    /// Under this name, in milliseconds.
    Ms(&'static str),
    /// Under this name, in minutes.
    Minutes(&'static str),
}

/// A metric.
#[derive(Debug, Clone, Copy)]
pub struct Metric {
    /// Name without `_total`, `_info`, `_bucket`, `_sum` and `_count`, with its unit.
    pub name: &'static str,
    /// Type.
    pub kind: Kind,
    /// Unit.
    pub unit: Unit,
    /// Names of its labels, in order.
    pub labels: &'static [&'static str],
    /// What `norn status` shows.
    pub today: Today,
    /// Meaning.
    pub about: &'static str,
}

const NONE: &[&str] = &[];

const fn metric(
    name: &'static str,
    kind: Kind,
    unit: Unit,
    labels: &'static [&'static str],
    about: &'static str,
) -> Metric {
    Metric { name, kind, unit, labels, today: Today::Absent, about }
}

const fn counter(name: &'static str, labels: &'static [&'static str], about: &'static str) -> Metric {
    metric(name, Kind::Counter, Unit::Number, labels, about)
}

const fn gauge(name: &'static str, labels: &'static [&'static str], about: &'static str) -> Metric {
    metric(name, Kind::Gauge, Unit::Number, labels, about)
}

const fn times(name: &'static str, labels: &'static [&'static str], about: &'static str) -> Metric {
    metric(name, Kind::Histogram, Unit::Seconds, labels, about)
}

const fn was(name: &'static str, today: &'static str, about: &'static str) -> Metric {
    Metric { today: Today::Same(today), ..counter(name, NONE, about) }
}

const fn is(name: &'static str, today: &'static str, about: &'static str) -> Metric {
    Metric { today: Today::Same(today), ..gauge(name, NONE, about) }
}

/// Counters of `norn status` that stand in no metric of their own: a metric by queue, or a sum, has them.
pub const ELSEWHERE: &[(&str, &str)] = &[
    ("claims_granted", "norn_claims_granted"),
    ("leases_expired", "norn_claims_expired"),
    ("hint_tasks", "norn_hints_pending"),
    ("hint_ids", "norn_hints_pending"),
];

/// The metrics, in the order of the text.
pub const METRICS: &[&[Metric]] = &[QUEUES, DOORS, CLUSTER, REPAIR, WORK, DISK, PEERS, PROCESS];

/// The metric of a name.
pub fn find(name: &str) -> Option<&'static Metric> {
    METRICS.iter().copied().flatten().find(|metric| metric.name == name)
}

/// The metric that shows a counter of `norn status`.
pub fn of_today(name: &str) -> Option<&'static Metric> {
    METRICS.iter().copied().flatten().find(|metric| match metric.today {
        Today::Absent => false,
        Today::Same(today) | Today::Ms(today) | Today::Minutes(today) => today == name,
    })
}

const QUEUE: &[&str] = &["queue"];

const QUEUES: &[Metric] = &[
    counter("norn_tasks_enqueued", QUEUE, "Tasks that came to the leader."),
    counter("norn_tasks_completed", QUEUE, "Tasks that were completed."),
    counter("norn_tasks_failed", QUEUE, "Attempts that workers reported as failed."),
    counter("norn_tasks_dead", QUEUE, "Tasks that were given up."),
    counter("norn_claims_granted", QUEUE, "Claims granted."),
    counter("norn_claims_expired", QUEUE, "Claims whose lease ran out."),
    counter("norn_claims_given_back", QUEUE, "Claims that workers gave back."),
    gauge("norn_queue_tasks", &["queue", "state"], "Tasks by state: ready, claimed, delayed, blocked, dead."),
    metric(
        "norn_queue_oldest_ready_age_seconds",
        Kind::Gauge,
        Unit::Seconds,
        QUEUE,
        "For how long the claimable task waits that waits for longest; 0 if there is none.",
    ),
    times("norn_task_wait_seconds", QUEUE, "From when a task could be claimed to its first claim."),
    times("norn_task_run_seconds", QUEUE, "From a claim to its completion or failure."),
];

const DOORS: &[Metric] = &[
    times(
        "norn_request_duration_seconds",
        &["door", "verb", "outcome"],
        "Requests of the doors; a call that waits counts with its wait.",
    ),
    gauge("norn_long_polls", NONE, "Calls of the doors that may wait and are under way, streams of events included."),
    gauge("norn_sse_streams", NONE, "Streams of events that are open now."),
    gauge("norn_http_connections", NONE, "Open connections of the HTTP listener."),
    counter("norn_http_connections_accepted", NONE, "Connections that the HTTP listener served."),
    counter("norn_http_connections_refused", &["reason"], "Connections that the HTTP listener turned away."),
    metric("norn_http_received_bytes", Kind::Counter, Unit::Bytes, NONE, "Bytes of requests, without TLS."),
    metric("norn_http_sent_bytes", Kind::Counter, Unit::Bytes, NONE, "Bytes of answers, without TLS."),
    gauge("norn_scrape_incomplete", NONE, "1 if the node did not tell all in time: what it would tell is left out."),
    metric(
        "norn_measures_age_seconds",
        Kind::Gauge,
        Unit::Seconds,
        NONE,
        "How old is what the node tells of queues, partitions and members: more than 0 where measuring takes longer than a scrape waits.",
    ),
    gauge(
        "norn_ready",
        NONE,
        "1 if the node has read its log and is not about to stop. `/readyz` wants a cluster, too.",
    ),
    metric("norn_build", Kind::Info, Unit::Number, &["version"], "Version of the node."),
];

const CLUSTER: &[Metric] = &[
    gauge("norn_partitions_held", NONE, "Partitions of which this node has a replica."),
    gauge("norn_partitions_led", NONE, "Partitions that this node leads."),
    gauge("norn_partitions_without_leader", NONE, "Held partitions for which this node knows no leader."),
    gauge("norn_members", NONE, "Members of the cluster."),
    gauge("norn_members_alive", NONE, "Members that this node takes for alive, itself included."),
    is("norn_members_unreached", "members_unreached", "Members that are heard, and that others do not reach."),
    was("norn_elections", "elections_begun", "Elections begun."),
    was("norn_leaderships_won", "leaderships_won", "Leaderships won."),
    was("norn_leaderships_ended", "leaderships_ended", "Leaderships ended."),
    was("norn_partitions_recovered", "partitions_recovered", "Partitions recovered without a majority."),
    was("norn_partitions_woken", "partitions_woken", "Wake-ups of idle partitions."),
    was("norn_snapshots_sent", "snapshots_sent", "Claim tables sent whole to followers."),
    was("norn_cohort_changes", "cohort_changes", "Steps of membership changes of partitions."),
    was("norn_cohort_commits", "cohort_commits", "Membership changes of partitions that were committed."),
    was("norn_roster_changes", "roster_changes", "Changes of members or settings seen."),
    is("norn_roster_version", "roster_version", "Version of members and settings; equal where nodes know the same."),
    was("norn_members_declared_gone", "members_declared_gone", "Members removed after long silence."),
    was("norn_replicas_added", "replicas_added", "Replicas added because partitions moved here."),
    was("norn_replicas_removed", "replicas_removed", "Replicas removed because partitions moved away."),
    gauge("norn_clock_fenced", NONE, "1 while the clock is so wrong that the node leads nothing."),
    metric(
        "norn_clock_off_seconds",
        Kind::Gauge,
        Unit::Seconds,
        &["peer"],
        "How far the peer's clock is ahead of the own.",
    ),
    metric("norn_clock_error_seconds", Kind::Gauge, Unit::Seconds, &["peer"], "Error of that measurement."),
    Metric {
        today: Today::Ms("clock_off_ms"),
        ..metric(
            "norn_clock_off_majority_seconds",
            Kind::Gauge,
            Unit::Seconds,
            NONE,
            "How far the clock is surely off a majority's.",
        )
    },
    was("norn_clock_standing_changes", "clock_standings", "Changes of whether the clock is trusted."),
    Metric {
        today: Today::Ms("ids_wait_ms"),
        ..metric(
            "norn_ids_wait_seconds",
            Kind::Gauge,
            Unit::Seconds,
            NONE,
            "For how long new ids are refused because a clock is ahead.",
        )
    },
];

const REPAIR: &[Metric] = &[
    is("norn_replica_apart_partitions", "partitions_apart", "Partitions whose replicas differ, in the last round."),
    Metric {
        today: Today::Ms("oldest_agreement_ms"),
        ..metric(
            "norn_replica_oldest_agreement_seconds",
            Kind::Gauge,
            Unit::Seconds,
            NONE,
            "Longest time that two replicas have not agreed, in the last round.",
        )
    },
    was("norn_repairs", "repairs", "Repairs by anti-entropy."),
    was("norn_tasks_repaired", "tasks_repaired", "Tasks repaired by anti-entropy."),
    was("norn_agreement_reports", "agreements", "Rounds of anti-entropy that were reported."),
    gauge("norn_hints_pending", NONE, "Tasks noted or kept now for replicas that are away."),
    Metric {
        today: Today::Same("hint_bytes"),
        ..metric("norn_hint_memory_bytes", Kind::Gauge, Unit::Bytes, NONE, "Memory of hinted handoff.")
    },
    was("norn_hint_reports", "hints_changes", "Reports of hinted handoff."),
    was("norn_hints_kept", "hints_kept", "Tasks kept for replicas that could not be reached."),
    was("norn_hints_handed", "hints_handed", "Tasks handed to replicas that had been away."),
    was("norn_hints_dropped", "hints_dropped", "Hints dropped."),
    was("norn_hints_orphaned", "hints_orphaned", "Kept tasks that can never be handed over."),
    was("norn_hints_lost", "hints_lost", "Records of hints that the log lost."),
    was("norn_hints_overdue", "hints_overdue", "Tasks kept for too long, added up at each report."),
    was("norn_data_losses", "data_losses", "Replicas that were found here to have lost data that was on disk."),
    was("norn_data_healings", "data_healings", "Steps of replicas here that lacked data towards having all of it."),
    was("norn_bodies_lost", "bodies_lost", "Tasks of which the log could not give back a part."),
    was(
        "norn_changes_blocked_by_losses",
        "changes_blocked_by_losses",
        "Moves given up where the leader has lost parts of tasks.",
    ),
    was("norn_stale_log_found", "stale_log_found", "Times that the log was found to be an old copy."),
];

const WORK: &[Metric] = &[
    was("norn_events", "events", "Events handled."),
    was("norn_turns", "turns", "Turns in which these were handled."),
    was("norn_requests", "requests", "Requests of clients, those of the doors included."),
    counter("norn_requests_by_verb", &["verb"], "Requests of clients by their verb in the protocol."),
    was("norn_grants_withdrawn", "grants_withdrawn", "Grants withdrawn before they were known."),
    was("norn_grants_of_ended_tasks", "grants_of_ended_tasks", "Grants withdrawn because the task had been completed."),
    was("norn_tasks_forgotten", "tasks_forgotten", "Finished tasks removed after their retention."),
    Metric {
        today: Today::Minutes("collection_held_minutes"),
        ..metric(
            "norn_collection_held_seconds",
            Kind::Counter,
            Unit::Seconds,
            NONE,
            "Time in which absent members held up garbage collection.",
        )
    },
    was("norn_children_refused", "children_refused", "Child tasks refused because their completion came too late."),
    was("norn_letters_refused", "letters_refused", "Dead letters that could not be written in time."),
    was("norn_schedules_fired", "schedules_fired", "Tasks that schedules enqueued."),
    Metric {
        today: Today::Ms("schedules_late_ms"),
        ..metric("norn_schedules_late_seconds", Kind::Counter, Unit::Seconds, NONE, "How late these were, added up.")
    },
    was("norn_schedules_missed", "schedules_missed", "Times of schedules that were passed over."),
    was("norn_schedules_unsure", "schedules_unsure", "Tasks of schedules whose enqueueing is unknown."),
    was("norn_messages_refused", "messages_refused", "Messages that no correct node sends, refused."),
    was(
        "norn_transaction_parts_lost",
        "transaction_parts_lost",
        "Parts of decided transactions that are not made, as a majority of their partition was given up.",
    ),
    was("norn_loads_refused", "loads_refused", "Reads of payloads refused because too many were under way."),
    was(
        "norn_promises_refused_at_start",
        "promises_refused_at_start",
        "Promises refused until replicas know their state after a start.",
    ),
    was(
        "norn_questions_of_ended_processes",
        "questions_of_ended_processes",
        "Late questions of nodes that have restarted since, refused.",
    ),
];

const DISK: &[Metric] = &[
    times("norn_log_sync_seconds", NONE, "Time to write what waits for the log, and to sync it."),
    was("norn_log_syncs", "log_syncs", "Syncs of the log."),
    was("norn_log_batches", "log_batches", "Batches appended to the log."),
    was("norn_log_waits", "log_waits", "Times that clients waited for the log."),
    was("norn_bodies_loaded", "bodies_loaded", "Payloads, results and log entries read back from the log."),
    Metric {
        today: Today::Same("scrub_bytes"),
        ..metric("norn_scrubbed_bytes", Kind::Counter, Unit::Bytes, NONE, "Bytes of the log checked for damage.")
    },
    was("norn_scrub_passes", "scrub_passes", "Full checks of the log."),
    was("norn_scrub_damages", "scrub_damages", "Damaged files found, each in each pass."),
    metric(
        "norn_disk_free_bytes",
        Kind::Gauge,
        Unit::Bytes,
        NONE,
        "Free bytes of the file system of the data directory.",
    ),
    is("norn_disk_short", "disk_short", "1 while new tasks are refused because the disk is nearly full."),
    is("norn_disk_bounded", "disk_bounded", "1 while tasks are refused because of disk_bytes_max."),
    was("norn_disk_room_changes", "disk_room_changes", "Changes of whether the disk has room."),
    was("norn_disk_slow_changes", "disk_slow_changes", "Changes of whether the disk is slow."),
    is("norn_memory_short", "memory_short", "1 while new tasks are refused because memory is nearly full."),
    was("norn_memory_changes", "memory_changes", "Changes of whether memory is nearly full."),
    metric(
        "norn_certificate_expiry_seconds",
        Kind::Gauge,
        Unit::Seconds,
        &["file"],
        "Time until a certificate of the node expires; negative once it has.",
    ),
];

const PEERS: &[Metric] = &[
    was("norn_peer_messages_sent", "peer_messages_sent", "Messages to peers."),
    was(
        "norn_peer_envelopes_sent",
        "peer_envelopes_sent",
        "Envelopes in which these went, one per turn, peer and class.",
    ),
    was("norn_peer_messages_dropped", "peer_messages_dropped", "Messages to peers dropped: queue full or link down."),
    was("norn_peer_messages_received", "peer_messages_received", "Messages from peers."),
    was("norn_peer_links_up", "peer_links_up", "Links to peers that came up."),
    was(
        "norn_connections_refused",
        "connections_refused",
        "Connections of the protocol refused: no name, wrong peer or too many.",
    ),
    was("norn_frames_refused", "frames_refused", "Connections of the protocol closed because of malformed frames."),
    was("norn_process_stalls", "process_stalls", "Pauses of the process longer than the failure detector's timeout."),
];

const PROCESS: &[Metric] = &[
    metric("process_cpu_seconds", Kind::Counter, Unit::Seconds, NONE, "Time of processors that the process used."),
    metric("process_resident_memory_bytes", Kind::Gauge, Unit::Bytes, NONE, "Resident memory."),
    gauge("process_open_fds", NONE, "Open file descriptors."),
    metric(
        "process_start_time_seconds",
        Kind::Gauge,
        Unit::Seconds,
        NONE,
        "When the process started, since the Unix epoch.",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn all() -> impl Iterator<Item = &'static Metric> {
        METRICS.iter().copied().flatten()
    }

    #[test]
    fn names_are_unique_and_end_in_their_unit() {
        let names: BTreeSet<&str> = all().map(|metric| metric.name).collect();
        assert_eq!(names.len(), all().count());
        for Metric { name, unit, about, .. } in all() {
            let is_in = |unit: &str| name.ends_with(unit);
            assert_eq!((is_in("_seconds"), is_in("_bytes")), (*unit == Unit::Seconds, *unit == Unit::Bytes), "{name}");
            assert!(!name.ends_with("_total") && !name.ends_with("_info"), "{name}");
            assert!(name.starts_with("norn_") || name.starts_with("process_"), "{name}");
            assert!(about.ends_with('.') && !about.contains(['|', '\n', '\\', '"']), "{name}: {about}");
        }
    }

    #[test]
    fn a_counter_of_the_status_has_one_lasting_name() {
        let today = all().filter_map(|metric| match metric.today {
            Today::Absent => None,
            Today::Same(today) | Today::Ms(today) | Today::Minutes(today) => Some(today),
        });
        let names: Vec<&str> = today.chain(ELSEWHERE.iter().map(|(today, _)| *today)).collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
        assert!(ELSEWHERE.iter().all(|(_, name)| find(name).is_some()));
    }
}
