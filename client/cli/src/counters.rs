//! Meanings of the counters of `status`, in the field's terms.

/// Returns the meaning of a counter; empty for an unknown one, of a node newer than this program.
pub fn meaning(name: &str) -> String {
    if let Some((_, meaning)) = MEANINGS.iter().find(|(counter, _)| *counter == name) {
        return (*meaning).to_owned();
    }
    if REQUESTS.contains(&name) {
        return format!("`{name}` requests that this node was asked");
    }
    let (kind, member) = name.split_once('.').unwrap_or((name, ""));
    match kind {
        "clock_ahead_ms" => format!("how far the clock of {member} is ahead of this node's"),
        "clock_behind_ms" => format!("how far the clock of {member} is behind this node's"),
        "clock_error_ms" => format!("how exactly the clock of {member} is known"),
        _ => String::new(),
    }
}

const REQUESTS: &[&str] = &[
    "hello",
    "enqueue",
    "enqueue_unique",
    "transact",
    "close_group",
    "update",
    "complete",
    "cancel",
    "get",
    "wait",
    "watch",
    "list",
    "count",
    "queues",
    "claim",
    "renew",
    "release",
    "fail",
    "redrive",
    "purge",
    "nodes",
    "ring",
    "partitions",
    "arrange",
    "status",
    "identify",
    "init",
    "change",
    "cluster",
    "schedule",
    "schedules",
    "recover",
    "join",
    "ping",
    "confirm",
    "leave",
];

const MEANINGS: &[(&str, &str)] = &[
    ("agreements", "rounds of anti-entropy that were reported"),
    ("bodies_loaded", "payloads, results and log entries read back from the log"),
    ("bodies_lost", "tasks of which the log could not give back a part"),
    ("changes_blocked_by_losses", "moves given up where the leader has lost parts of tasks: purge those"),
    ("children_refused", "child tasks refused because their completion came too late"),
    ("claims_granted", "claims granted"),
    ("clock_off_ms", "how far this node's clock is surely off a majority's"),
    ("clock_standings", "changes of whether the clock is trusted"),
    ("cohort_changes", "steps of membership changes of partitions"),
    ("cohort_commits", "membership changes of partitions that were committed"),
    ("collection_held_minutes", "minutes in which absent members held up garbage collection"),
    ("connections_refused", "connections refused: no name, wrong peer or too many"),
    ("data_healings", "steps of replicas here that lacked data towards having all of it"),
    ("data_losses", "replicas that were found here to have lost data that was on disk"),
    ("disk_bounded", "1 while tasks are refused because of disk_bytes_max"),
    ("disk_room_changes", "changes of whether the disk has room"),
    ("disk_short", "1 while new tasks are refused because the disk is nearly full"),
    ("disk_slow_changes", "changes of whether the disk is slow"),
    ("elections_begun", "leader elections begun"),
    ("events", "events handled"),
    ("frames_refused", "connections closed because of malformed frames"),
    ("grants_of_ended_tasks", "grants withdrawn because the task had been completed"),
    ("grants_withdrawn", "grants withdrawn before they were known"),
    ("hint_bytes", "memory of hinted handoff"),
    ("hint_ids", "tasks noted now that absent replicas lack"),
    ("hint_tasks", "tasks kept now for partitions of other nodes"),
    ("hints_changes", "reports of hinted handoff"),
    ("hints_dropped", "hints dropped"),
    ("hints_handed", "tasks handed to replicas that had been away"),
    ("hints_kept", "tasks kept for replicas that could not be reached"),
    ("hints_lost", "records of hints that the log lost"),
    ("hints_orphaned", "kept tasks that can never be handed over"),
    ("hints_overdue", "tasks kept for too long, added up at each report"),
    ("ids_wait_ms", "for how long new ids are refused because a clock is ahead"),
    ("leaderships_ended", "leaderships ended"),
    ("leaderships_won", "leaderships won"),
    ("leases_expired", "leases that ran out"),
    ("letters_refused", "dead letters that could not be written in time"),
    ("loads_refused", "reads of payloads refused because too many were under way"),
    ("log_batches", "batches appended to the log"),
    ("log_syncs", "fsyncs of the log"),
    ("log_waits", "times that clients waited for the log"),
    ("members_declared_gone", "members removed after long silence"),
    ("members_unreached", "members that are heard, and that others do not reach"),
    ("memory_changes", "changes of whether memory is nearly full"),
    ("memory_short", "1 while new tasks are refused because memory is nearly full"),
    ("messages_refused", "messages no correct node sends, refused; the log says from whom, why"),
    ("oldest_agreement_ms", "longest time that two replicas have not agreed"),
    ("partitions_apart", "partitions whose replicas differ"),
    ("partitions_recovered", "partitions recovered without a majority"),
    ("partitions_woken", "wake-ups of idle partitions"),
    ("peer_envelopes_sent", "envelopes of messages to peers"),
    ("peer_links_up", "connections to peers that came up"),
    ("peer_messages_dropped", "messages to peers dropped: queue full or link down"),
    ("peer_messages_received", "messages from peers"),
    ("peer_messages_sent", "messages to peers"),
    ("process_stalls", "pauses of this process longer than the failure detector's timeout"),
    ("promises_refused_at_start", "promises refused until replicas know their state after a start"),
    ("questions_of_ended_processes", "late questions of nodes that have restarted since, refused"),
    ("repairs", "repairs by anti-entropy"),
    ("replicas_added", "replicas added because partitions moved here"),
    ("replicas_removed", "replicas removed because partitions moved away"),
    ("requests", "requests of clients"),
    ("roster_changes", "changes of members or settings seen"),
    ("roster_version", "version of members and settings; equal where nodes know the same"),
    ("schedules_fired", "tasks that schedules enqueued"),
    ("schedules_late_ms", "how late these were, added up"),
    ("schedules_missed", "times of schedules that were passed over"),
    ("schedules_unsure", "tasks of schedules whose enqueueing is unknown"),
    ("scrub_bytes", "bytes of the log checked for damage"),
    ("scrub_damages", "damaged files found, each in each pass"),
    ("scrub_passes", "full checks of the log"),
    ("snapshots_sent", "claim tables sent whole to followers"),
    ("stale_log_found", "the log was found to be an old copy"),
    ("tasks_forgotten", "finished tasks removed after their retention"),
    ("tasks_repaired", "tasks repaired by anti-entropy"),
    ("transaction_parts_lost", "parts of decided transactions that a majority lost for good had"),
    ("turns", "turns in which events were handled"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_explained_in_a_line() {
        for (name, meaning) in MEANINGS {
            assert!(!meaning.is_empty() && meaning.chars().count() <= 70, "{name}: {meaning}");
        }
        assert!(MEANINGS.is_sorted_by_key(|(name, _)| name), "by name, each once");
        assert!(meaning("clock_ahead_ms.n2").contains("n2") && meaning("claim").contains("`claim`"));
        assert_eq!(meaning("of_tomorrow"), "");
    }
}
