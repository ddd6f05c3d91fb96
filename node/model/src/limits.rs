//! All limits of a node in one table, with the relations between them. The wire's limits are in [`norn_wire::limits`].

pub use norn_wire::limits::*;

/// Most points by which the ages of a partition's leases are described.
pub const AGES_MAX: usize = 1_024;
/// If there would be more points, ages are described in steps of this part of the longest one.
pub const AGES_STEPS: u64 = 512;
/// Least increase of an age that is reported.
pub const TOLD_AGE_MS_MIN: u64 = 10;
/// Longest interval at which an unresponsive leader is sent the ages of leases again.
pub const ASK_AGES_MS_MAX: u64 = 1_000;
/// The node's running time is recorded at intervals of this part of the nearest lease's remaining time, because a restart forgets it
/// ...
pub const RAN_OF_LEASE: u64 = 12;
/// ... but no more often than this, ...
pub const RAN_MS_MIN: u64 = 800;
/// ... except early in a start, when the interval is this part of the time since the start, ...
pub const RAN_OF_START: u64 = 12;
/// ... but no shorter than this. The record is soon durable, so a restart costs less than a tenth of a lease, or a second.
pub const RAN_EARLY_MS: u64 = 50;
/// The running time is recorded along with other records no more often than this, unless a lease begins.
pub const RAN_ASIDE_MS: u64 = 100;

/// Time for which the cost of a grant is remembered: longer than its client has to confirm it. A broker that was cut off may give the
/// grant back minutes later: then its rate token is lost, and the key has had its turn. That errs towards fewer grants.
pub const GRANT_COST_MS: u64 = 15_000;

/// Queues that a node counts by name, for observers; all others are counted together.
pub const QUEUES_TALLIED_MAX: usize = 4_096;
/// Bounds of the classes of times that are counted by queue, in milliseconds.
pub const SPREAD_MS: [u64; 10] = [10, 100, 1_000, 5_000, 15_000, 60_000, 300_000, 900_000, 3_600_000, 21_600_000];
/// Claimable tasks of one queue and partition that are looked at to find since when they wait.
pub const READY_LOOKS_MAX: usize = 64;

/// Most past claims that a task shows.
pub const PAST_CLAIMS_MAX: usize = norn_wire::limits::CLAIMS_SHOWN_MAX;
/// Bytes of results of rejected completions that a reader is shown: the answer must fit a frame.
pub const LOSING_RESULTS_BYTES_MAX: usize = 4 << 20;
/// Bytes kept of the reason for which a claim ended.
pub const CLAIM_REASON_BYTES_MAX: usize = 256;
/// Bytes of the reasons that one task's past claims keep, the latest first: they are part of the replicated table.
pub const CLAIM_REASONS_BYTES_MAX: usize = 1_024;
/// Most nodes of a cluster.
pub const NODES_MAX: usize = 256;
/// Most members that the metadata group knows, including those that are gone and not forgotten.
pub const MEMBERS_MAX: usize = 2 * NODES_MAX;
/// Voters of the metadata group.
pub const VOTERS_MAX: u32 = 5;
/// Bytes of a member's name.
pub const NAME_BYTES_MAX: usize = 255;
/// Bytes of a zone's name.
pub const ZONE_BYTES_MAX: usize = 255;
/// Bytes of a member's address: a host name of 253, a colon, a port.
pub const ADDRESS_BYTES_MAX: usize = 259;
/// Shortest silence after which a member may be declared gone automatically.
pub const HEAL_AFTER_MS_MIN: u64 = 60_000;
/// Longest such silence.
pub const HEAL_AFTER_MS_MAX: u64 = 7 * 86_400_000;
/// Silence after which a member no longer counts as visible when another is to be declared gone.
pub const VISIBLE_MS: u64 = 10_000;
/// Fewest partitions.
pub const PARTITIONS_MIN: u32 = 1;
/// Queues with settings: every node learns all of them.
pub const POLICIES_MAX: usize = 1_000;
/// Largest limit on a queue's tasks.
pub const QUEUE_TASKS_MAX: u64 = 1 << 40;
/// Largest limit on a queue's bytes.
pub const QUEUE_BYTES_MAX: u64 = 1 << 50;
/// Largest limit on a queue's claims per rate period, and most rate tokens for them in one message.
pub const RATE_TOKENS_MAX: u64 = 1_000_000;
/// Longest rate period.
pub const RATE_MS_MAX: u64 = 3_600_000;
/// Largest limit on a queue's concurrent claims.
pub const CONCURRENCY_MAX: u64 = 1_000_000;
/// Largest limit on concurrent claims per key of a queue.
pub const KEY_CONCURRENCY_MAX: u64 = 1_000;
/// Schedules of a cluster: they are in the table of the metadata group.
pub const SCHEDULES_MAX: usize = 1_000;
/// Bytes of all schedules.
pub const SCHEDULES_BYTES_MAX: usize = 1 << 20;
/// Tasks of all schedules that are being enqueued at once.
pub const SCHEDULE_PENDING_MAX: usize = 256;
/// Tasks of one schedule that are being enqueued at once.
pub const SCHEDULE_PENDING_EACH_MAX: usize = 16;
/// Missed times that a schedule catches up on if it is set to catch up on all.
pub const CATCH_UP_TICKS_MAX: usize = 100;
/// Missed times of a schedule that are examined; if there are more, they count as this many.
pub const SCHEDULE_LOOKED_MAX: usize = 1_000;
/// Delay up to which a schedule still fires that skips missed times.
pub const SCHEDULE_GRACE_MS: u64 = 10_000;
/// Largest limit on the attempts of a queue's tasks.
pub const ATTEMPTS_MAX: u32 = 1_000_000;
/// Most replicas of a partition.
pub const REPLICAS_MAX: u32 = 7;
/// Draining replicas of one partition; with more, no further change of the cohort begins.
pub const DRAINING_REPLICAS_MAX: usize = 16;
/// How far an id may be ahead of a node's wall clock.
pub const ID_AHEAD_MS_MAX: u64 = 60_000;
/// Sessions numbered, and milliseconds lent, before the log must have a new high-water mark.
pub const RESERVED_SESSIONS: u64 = 1_024;
/// See [`RESERVED_SESSIONS`].
pub const RESERVED_TIME_MS: u64 = 10_000;
/// Buckets of a partition's Merkle tree; a power of two.
pub const BUCKETS: usize = 1_024;
/// Buckets under one node of the middle level.
pub const GROUP_BUCKETS: usize = 32;
/// Nodes of the middle level.
pub const GROUPS: usize = BUCKETS / GROUP_BUCKETS;
/// Client requests under way at one node, after which further ones are answered `Overloaded`.
pub const REQUESTS_MAX: usize = 16_384;
/// Bytes of payload in requests under way at one node, after which further ones are answered `Overloaded`.
pub const REQUEST_BYTES_MAX: usize = 256 << 20;
/// Completions whose child tasks a node hands over at once.
pub const DELIVERIES_MAX: usize = 128;
/// Dead-letter copies that a node writes at once.
pub const DEAD_LETTERS_MAX: usize = 128;
/// Long polls parked at one node.
pub const WAITERS_MAX: usize = 16_384;
/// Facts about unknown tasks that one partition keeps; more are refused.
pub const ORPHANS_MAX: usize = 10_000;
/// Claims in one partition's table; more grants are refused.
pub const CLAIM_ENTRIES_MAX: usize = 100_000;
/// With more claims in a partition, the reasons of failed attempts are no longer recorded; the failures are.
pub const CLAIM_ENTRIES_WITH_REASONS_MAX: usize = 16_384;
/// Tasks of one partition that become due, or whose leases expire, in one step; the rest follows in the next steps.
pub const DUE_MAX: usize = 256;
/// Deadlines handled in one step, before other inputs get their turn.
pub const WAKE_KEYS_MAX: usize = 32;
/// Dependencies in one question about their ends.
pub const FOLLOWED_MAX: usize = 256;
/// Questions about dependencies that a node remembers for other leaders; beyond that, questions are answered when they are repeated.
pub const FOLLOWERS_MAX: usize = 1_000_000;
/// Dependent tasks examined in one step when a task has ended.
pub const DEPENDENTS_MAX: usize = 256;
/// Ended worker sessions that a node remembers.
pub const SESSIONS_OVER_MAX: usize = 10_000;
/// Open members of a group that are waited for at a time.
pub const GROUP_WINDOW: usize = 128;
/// Watch calls parked at one node.
pub const WATCHES_MAX: usize = 1_024;
/// Queues and groups for which a node keeps a change feed.
pub const JOURNALS_MAX: usize = 128;
/// Events kept for each; a watch that is further behind lags.
pub const JOURNAL_EVENTS_MAX: usize = 4_096;
/// Events at which a watch call is answered, and most of one node in one message.
pub const WATCH_EVENTS_MAX: usize = 256;
/// Partitions whose replicas are compared for one watch call.
pub const COMPARED_MAX: usize = 64;
/// Operations that a leader keeps for lagging followers; a follower further behind gets the whole table.
pub const OPS_KEPT_MAX: usize = 4_096;
/// Bytes of the committed ones of these, mostly results of ended tasks...
pub const OPS_KEPT_BYTES_MAX: usize = 256 << 10;
/// ...and the limit if a live follower lacks them.
pub const OPS_LATE_BYTES_MAX: usize = 1 << 20;
/// Operations in one message.
pub const OPS_PER_MESSAGE_MAX: usize = 256;
/// Operations appended but not committed in one partition; more grants wait.
pub const OPS_UNCOMMITTED_MAX: u64 = 1_024;
/// Recent changes that a replica remembers for each partition; older ones are found by comparing Merkle trees.
pub const RECENT_CHANGES_MAX: usize = 4_096;
/// Tasks in one message of anti-entropy.
pub const EXCHANGE_TASKS_MAX: usize = 512;
/// Bytes of tasks in one message of anti-entropy.
pub const EXCHANGE_BYTES_MAX: usize = 1 << 20;
/// Tasks buried at once; further ones wait.
pub const RETIRE_TASKS_MAX: usize = 256;
/// Tasks forgotten by one operation.
pub const FORGET_TASKS_MAX: usize = 1_024;
/// Hashes of tasks in one step of anti-entropy.
pub const REPAIR_LIST_TASKS_MAX: usize = 4_096;
/// Tasks examined in one piece of repair; sending one counts for sixteen.
pub const REPAIR_LOOKS_MAX: u64 = 16_384;
/// Bytes queued for one peer in anti-entropy; excess is dropped, and found again.
pub const REPAIR_QUEUE_BYTES_MAX: usize = 8 << 20;
/// Pause between two pieces of repair.
pub const REPAIR_PAUSE_MS: u64 = 5;
/// Bytes of endings in one operation, and of operations or done flags in one message; a single item is always allowed.
pub const ENDINGS_BYTES_MAX: usize = 4 << 20;
/// Bytes of completions being sealed at one node; further ones wait, but one is always sealed.
pub const SEALING_BYTES_MAX: usize = 64 << 20;
/// Unique tasks in flight at one node, and calls about one of them.
pub const UNIQUES_MAX: usize = 1_024;
/// Tasks with one key that an answer about the key names.
pub const KEY_TASKS_MAX: usize = 64;
/// Refused unique tasks that a leader remembers, each because another task had its key.
pub const REFUSED_MAX: usize = 16_384;
/// Transactions of one partition that are decided and not yet carried out.
pub const TRANSACTIONS_MAX: usize = 64;
/// Transactions of one partition that were carried out, and as many that were refused, that are remembered for repeated requests.
pub const TRANSACTIONS_DONE_MAX: usize = 1_024;
/// Bytes of those; a single one always fits. They are part of the replicated table.
pub const TRANSACTIONS_BYTES_MAX: usize = 8 << 20;
/// Transactions in progress at one node, and calls about one of them.
pub const TRANSACTING_MAX: usize = 1_024;
/// Bytes of the tasks that one transaction writes; a task that it changes counts in full, with its unchanged parts.
pub const DECIDED_BYTES_MAX: usize = 4 << 20;
/// Loads of bodies under way at one node; more wait.
pub const LOADS_MAX: usize = 64;
/// Bytes of bodies under way at which no further load is begun.
pub const LOAD_BYTES_MAX: usize = 32 << 20;
/// Bytes of bodies that wait to be loaded for purposes other than grants; further ones are refused, and requested again.
pub const LOADS_WAITING_BYTES_MAX: usize = 64 << 20;
/// Entries examined for one page of a list.
pub const LIST_SCAN_MAX: usize = 20_000;
/// Bytes of tasks in one page of a list.
pub const LIST_BYTES_MAX: usize = 1 << 20;
/// Largest frame between nodes: a whole table of claims must fit.
pub const PEER_FRAME_BYTES_MAX: usize = 64 << 20;
/// Messages in one envelope between nodes.
pub const ENVELOPE_MESSAGES_MAX: usize = 1_024;
/// Bytes after which a further message begins another envelope, so that its receiver can handle the first meanwhile.
pub const ENVELOPE_BYTES: usize = 256 << 10;
/// Largest record body in the log.
pub const RECORD_BYTES_MAX: usize = 64 << 20;
/// How far one message may advance an epoch, so that a damaged message cannot exhaust the epochs.
pub const EPOCH_STEP_MAX: u64 = 1 << 33;
/// How far one message may advance the version of the member list, so that later lists are still accepted after a damaged message. A
/// node that missed more changes than this has to be replaced.
pub const ROSTER_STEP_MAX: u64 = 1 << 16;
/// How far an unsafe recovery advances the epoch of a partition that lost its majority: beyond any epoch that the lost replicas can
/// have reached.
pub const RESCUE_EPOCHS: u64 = 1 << 32;

/// Most messages of a node to itself in one step; more are a fault: a stopped node is better than one that only sends to itself.
pub const LOOPBACKS_MAX: u64 = 1 << 20;

/// Most signals between the engine's folders in one step; more are a fault, as with loopbacks.
pub const SIGNALS_MAX: usize = 1 << 20;

const _: () = assert!(BUCKETS.is_power_of_two() && BUCKETS >= 2);
const _: () = assert!(PARTITIONS_MAX.is_power_of_two() && PARTITIONS_MAX <= 1 << 16);
const _: () = assert!(FRAME_BYTES_MAX <= PEER_FRAME_BYTES_MAX, "what a client sends must reach the replicas");
const _: () = assert!(CLAIM_REASON_BYTES_MAX <= CLAIM_REASONS_BYTES_MAX, "the latest reason is kept");
const _: () = assert!(
    CLAIM_ENTRIES_MAX * 400 + CLAIM_ENTRIES_WITH_REASONS_MAX * CLAIM_REASONS_BYTES_MAX <= PEER_FRAME_BYTES_MAX,
    "a table of ordinary claims fits a frame"
);
const _: () = assert!(PEER_FRAME_BYTES_MAX <= RECORD_BYTES_MAX, "what arrives can be logged");
const _: () = assert!(NODES_MAX < MEMBERS_MAX && MEMBERS_MAX < u16::MAX as usize, "numbers suffice for all members");
const _: () = assert!(VISIBLE_MS < HEAL_AFTER_MS_MIN, "who may be declared gone is not visible");
const _: () = assert!(SCHEDULE_PENDING_EACH_MAX <= SCHEDULE_PENDING_MAX && CATCH_UP_TICKS_MAX <= SCHEDULE_LOOKED_MAX);
const _: () = assert!(OPS_UNCOMMITTED_MAX as usize <= OPS_KEPT_MAX);

/// The items that fit a budget of bytes; the first item is always included.
pub fn within<T>(
    bytes_max: usize,
    items: impl Iterator<Item = T>,
    bytes: impl Fn(&T) -> usize,
) -> impl Iterator<Item = T> {
    let mut spent: usize = 0;
    items
        .enumerate()
        .take_while(move |(place, item)| {
            spent = spent.saturating_add(bytes(item));
            *place == 0 || spent <= bytes_max
        })
        .map(|(_, item)| item)
}

const _: () = assert!(RAN_OF_LEASE > 10 && RAN_OF_START > 10 && RAN_MS_MIN < 1_000 && RAN_EARLY_MS < RAN_MS_MIN);
const _: () = assert!(AGES_STEPS < AGES_MAX as u64);

#[cfg(test)]
mod tests {
    use super::within;

    #[test]
    fn a_budget_lets_one_item_pass_and_then_what_fits() {
        let taken = |bytes_max, items: &[usize]| within(bytes_max, items.iter(), |item| **item).count();
        assert_eq!(taken(10, &[]), 0);
        assert_eq!(taken(10, &[50, 1]), 1);
        assert_eq!(taken(10, &[4, 6, 1]), 2);
        assert_eq!(taken(usize::MAX, &[usize::MAX, usize::MAX]), 2);
    }
}
