//! What the counters of `status` count, in the field's terms.

/// What a counter counts; nothing for one of a node that is newer than this program.
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
    ("bodies_loaded", "payloads read back from the log"),
    ("bodies_lost", "payloads that the log could not give back"),
    ("campaigns", "leader elections begun"),
    ("children_refused", "child tasks refused because their completion came too late"),
    ("clock_off_ms", "how far this node's clock is off the members' median"),
    ("clock_standings", "changes of whether the clock is trusted"),
    ("cohort_changes", "steps of membership changes of partitions"),
    ("cohort_commits", "membership changes of partitions that were committed"),
    ("connections_refused", "connections refused: no name, wrong peer or too many"),
    ("declared_gone", "members removed after long silence"),
    ("disk_slow_changes", "changes of whether the disk is slow"),
    ("done_flags", "grants withdrawn because the task had been completed"),
    ("established", "leaderships won"),
    ("events", "events handled"),
    ("expired", "leases that ran out"),
    ("forgetting_held", "minutes in which absent members held up garbage collection"),
    ("forgotten", "finished tasks removed after their retention"),
    ("frames_refused", "connections closed because of malformed frames"),
    ("granted", "claims granted"),
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
    ("input_refused", "messages refused that a correct sender would not send"),
    ("letters_refused", "dead letters that could not be written in time"),
    ("loads_refused", "reads of payloads refused because too many were under way"),
    ("log_batches", "batches appended to the log"),
    ("log_syncs", "fsyncs of the log"),
    ("log_waits", "times that clients waited for the log"),
    ("oldest_agreement_ms", "longest time that two replicas have not agreed"),
    ("partitions_apart", "partitions whose replicas differ"),
    ("peer_links_up", "connections to peers that came up"),
    ("peer_messages_dropped", "messages to peers dropped: queue full or link down"),
    ("peer_messages_received", "messages from peers"),
    ("peer_messages_sent", "messages to peers"),
    ("peer_messages_unspoken", "messages not sent to peers of an older version"),
    ("refused", "messages refused that a correct sender would not send"),
    ("repaired", "tasks repaired by anti-entropy"),
    ("repairs", "repairs by anti-entropy"),
    ("requests", "requests of clients"),
    ("rescues", "partitions recovered without a majority"),
    ("retired", "the log was found to be an old copy"),
    ("room_changes", "changes of whether the disk has room"),
    ("roster_changes", "changes of members or settings seen"),
    ("roster_version", "version of members and settings; equal where nodes know the same"),
    ("schedules_fired", "tasks that schedules enqueued"),
    ("schedules_late_ms", "how late these were, added up"),
    ("schedules_missed", "times of schedules that were passed over"),
    ("schedules_unsure", "tasks of schedules whose enqueueing is unknown"),
    ("scrub_bytes", "bytes of the log checked for damage"),
    ("scrub_damages", "damaged files found, each in each pass"),
    ("scrub_passes", "full checks of the log"),
    ("seats_left", "replicas removed because partitions moved away"),
    ("seats_taken", "replicas added because partitions moved here"),
    ("snapshots_sent", "claim tables sent whole to followers"),
    ("stepped_down", "leaderships ended"),
    ("stood_still", "pauses of this process longer than the failure detector's timeout"),
    ("unanswered_passed_over", "promises refused until replicas know their state after a start"),
    ("unspoken", "messages not sent to peers of an older version"),
    ("voided", "grants withdrawn before they were known"),
    ("woken", "wake-ups of idle partitions"),
    ("wounds", "losses of replicated data, and steps of recovery"),
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
