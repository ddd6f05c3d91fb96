//! Every bound of a node in one table, with the relations among them. The wire's bounds stand in
//! [`norn_wire::limits`].

pub use norn_wire::limits::*;

/// Most points by which the ages of a partition's leases are told.
pub const AGES_MAX: usize = 1_024;
/// Where there would be more, ages differ by such a part of the longest one.
pub const AGES_STEPS: u64 = 512;
/// An age is news that is greater by so much.
pub const TOLD_AGE_MS_MIN: u64 = 10;
/// A leader that does not answer is told again how old leases are after so long at most.
pub const ASK_AGES_MS_MAX: u64 = 1_000;
/// How long a node has run is written down by itself at such a part of what the nearest lease has left, for a restart forgets it ...
pub const RAN_OF_LEASE: u64 = 12;
/// ... no more often than so, ...
pub const RAN_MS_MIN: u64 = 800;
/// ... but early in a start at such a part of its length, ...
pub const RAN_OF_START: u64 = 12;
/// ... and no more often than so. What is written then is soon durable, so a restart takes less than a tenth, or a second.
pub const RAN_EARLY_MS: u64 = 50;
/// With what is written anyway it is no more often than so, unless a lease begins.
pub const RAN_ASIDE_MS: u64 = 100;

/// For so long it is known what a grant has cost: longer than its client has to confirm it. A broker that was cut off may give it back
/// minutes later: then its permit is lost, and the key has had its turn. That errs towards fewer grants.
pub const SPENT_MS: u64 = 15_000;

/// Most past claims that a task shows.
pub const PAST_CLAIMS_MAX: usize = norn_wire::limits::CLAIMS_SHOWN_MAX;
/// Bytes of results that do not count which a reader is shown: the answer is to fit a frame.
pub const LOSING_RESULTS_BYTES_MAX: usize = 4 << 20;
/// Bytes that are kept of the reason for which a claim ended.
pub const CLAIM_REASON_BYTES_MAX: usize = 256;
/// Bytes of the reasons that the past claims of one task keep, those of the latest ones: they travel with the table.
pub const CLAIM_REASONS_BYTES_MAX: usize = 1_024;
/// Most nodes of a cluster.
pub const NODES_MAX: usize = 256;
/// Most members that the root knows, with those that are gone and not forgotten.
pub const MEMBERS_MAX: usize = 2 * NODES_MAX;
/// Voters of the root.
pub const VOTERS_MAX: u32 = 5;
/// Bytes of a member's name.
pub const NAME_BYTES_MAX: usize = 255;
/// Bytes of a zone's name.
pub const ZONE_BYTES_MAX: usize = 255;
/// Bytes of a member's address: a host name of 253, a colon, a port.
pub const ADDRESS_BYTES_MAX: usize = 259;
/// Shortest silence after which a member may be declared gone by itself.
pub const HEAL_AFTER_MS_MIN: u64 = 60_000;
/// Longest such silence.
pub const HEAL_AFTER_MS_MAX: u64 = 7 * 86_400_000;
/// A member that was silent for longer does not count as visible when another is to be declared gone.
pub const VISIBLE_MS: u64 = 10_000;
/// Fewest partitions.
pub const PARTITIONS_MIN: u32 = 1;
/// Queues for which something is set: every node is told of all.
pub const POLICIES_MAX: usize = 1_000;
/// Tasks to which a queue may be limited.
pub const QUEUE_TASKS_MAX: u64 = 1 << 40;
/// Bytes to which a queue may be limited.
pub const QUEUE_BYTES_MAX: u64 = 1 << 50;
/// Claims to which a queue may be limited in one time, and permits for them in one message.
pub const PERMITS_MAX: u64 = 1_000_000;
/// That time.
pub const RATE_MS_MAX: u64 = 3_600_000;
/// Claims at once to which a queue may be limited.
pub const CONCURRENCY_MAX: u64 = 1_000_000;
/// Claims at once to which each key of a queue may be limited.
pub const KEY_CONCURRENCY_MAX: u64 = 1_000;
/// Schedules of a cluster: the table of its root has them.
pub const SCHEDULES_MAX: usize = 1_000;
/// Bytes of all of them.
pub const SCHEDULES_BYTES_MAX: usize = 1 << 20;
/// Tasks of all schedules that are being enqueued at once.
pub const SCHEDULE_PENDING_MAX: usize = 256;
/// Tasks of one schedule that are being enqueued at once.
pub const SCHEDULE_PENDING_EACH_MAX: usize = 16;
/// Times that are caught up of those that were missed, where all shall be.
pub const CATCH_UP_TICKS_MAX: usize = 100;
/// Times that are looked at when some were missed. More count for so many.
pub const SCHEDULE_LOOKED_MAX: usize = 1_000;
/// So late a schedule fires that passes over what it missed.
pub const SCHEDULE_GRACE_MS: u64 = 10_000;
/// Attempts that may be set for a queue.
pub const ATTEMPTS_MAX: u32 = 1_000_000;
/// Most replicas of a partition.
pub const REPLICAS_MAX: u32 = 7;
/// Replicas of one partition that are out and have not handed over what they have; beyond them no change begins.
pub const EXILES_MAX: usize = 16;
/// How far ahead of a node's wall clock an id may be minted.
pub const ID_AHEAD_MS_MAX: u64 = 60_000;
/// Sessions numbered, and milliseconds lent, before the log must hold a new mark.
pub const MARK_SESSIONS: u64 = 1_024;
/// See [`MARK_SESSIONS`].
pub const MARK_TIME_MS: u64 = 10_000;
/// Buckets of a partition's hash tree; a power of two.
pub const BUCKETS: usize = 1_024;
/// Client requests under way at one node, after which further ones are answered `Overloaded`.
pub const REQUESTS_MAX: usize = 16_384;
/// Bytes of payload in requests under way at one node, after which further ones are answered `Overloaded`.
pub const REQUEST_BYTES_MAX: usize = 256 << 20;
/// Completions whose children a node hands over at once.
pub const DELIVERIES_MAX: usize = 128;
/// Letters of dead tasks that a node writes at once.
pub const LETTERS_MAX: usize = 128;
/// Long polls parked at one node.
pub const WAITERS_MAX: usize = 16_384;
/// Facts about unknown tasks that one partition keeps; more are refused.
pub const ORPHANS_MAX: usize = 10_000;
/// Claims in one partition's table; more grants are refused.
pub const CELLS_MAX: usize = 100_000;
/// With more claims in a partition, it is no longer written down why attempts fail; that they did is.
pub const CELLS_WITH_REASONS_MAX: usize = 16_384;
/// Tasks of one partition that become due, or whose claims run out, in one step; the others have their turn in the next.
pub const DUE_MAX: usize = 256;
/// Deadlines that are met in one step, before what else has come in has its turn.
pub const WAKE_KEYS_MAX: usize = 32;
/// Tasks that others wait for, in one question for their ends.
pub const FOLLOWED_MAX: usize = 256;
/// Questions that a node remembers of leaders whose tasks wait; more are answered when they are repeated.
pub const FOLLOWERS_MAX: usize = 1_000_000;
/// Tasks that are looked at in one step when one has ended for which they waited.
pub const DEPENDENTS_MAX: usize = 256;
/// Sessions of workers that have ended which a node remembers.
pub const SESSIONS_OVER_MAX: usize = 10_000;
/// Of the members of a group that have not ended, so many are waited for at a time.
pub const GROUP_WINDOW: usize = 128;
/// Calls of clients that watch, parked at one node.
pub const WATCHES_MAX: usize = 1_024;
/// Queues and groups of which a node keeps what becomes of their tasks, for those who watch.
pub const JOURNALS_MAX: usize = 128;
/// Events that it keeps of each; whoever is further behind lags.
pub const JOURNAL_EVENTS_MAX: usize = 4_096;
/// Events at which a call that watches is answered, and most of one node in one message.
pub const WATCH_EVENTS_MAX: usize = 256;
/// Partitions whose replicas are compared for one call that watches.
pub const COMPARED_MAX: usize = 64;
/// Operations that a leader keeps for followers that lag; further behind, they get the table.
pub const OPS_KEPT_MAX: usize = 4_096;
/// Bytes that the committed ones of these carry, results of ended tasks for the most part...
pub const OPS_KEPT_BYTES_MAX: usize = 256 << 10;
/// ...and where a follower lacks them that is heard from.
pub const OPS_LATE_BYTES_MAX: usize = 1 << 20;
/// Operations in one message.
pub const OPS_PER_MESSAGE_MAX: usize = 256;
/// Operations appended but not committed in one partition; more grants wait.
pub const OPS_UNCOMMITTED_MAX: u64 = 1_024;
/// Recent changes that a replica remembers for each partition; what is older is found by comparing trees.
pub const RECENT_CHANGES_MAX: usize = 4_096;
/// Tasks in one message of anti-entropy.
pub const EXCHANGE_TASKS_MAX: usize = 512;
/// Bytes of tasks in one message of anti-entropy.
pub const EXCHANGE_BYTES_MAX: usize = 1 << 20;
/// Tasks buried at once; more wait a moment.
pub const RETIRE_TASKS_MAX: usize = 256;
/// Tasks forgotten by one operation.
pub const FORGET_TASKS_MAX: usize = 1_024;
/// Hashes of tasks in one step of anti-entropy.
pub const REPAIR_LIST_TASKS_MAX: usize = 4_096;
/// Tasks looked at in one piece of repair; one that is sent counts for sixteen.
pub const REPAIR_LOOKS_MAX: u64 = 16_384;
/// Bytes of what is left to say to one peer in anti-entropy; what is more is dropped, and found again.
pub const REPAIR_QUEUE_BYTES_MAX: usize = 8 << 20;
/// Between two pieces of repair.
pub const REPAIR_PAUSE_MS: u64 = 5;
/// Bytes of endings in one operation, and of operations or done flags in one message; one is always allowed.
pub const ENDINGS_BYTES_MAX: usize = 4 << 20;
/// Bytes of completions that one node is sealing; more are sealed later, one always is.
pub const SEALING_BYTES_MAX: usize = 64 << 20;
/// Tasks that are to be the only ones with their keys, on their way at one node; and calls about one of them.
pub const UNIQUES_MAX: usize = 1_024;
/// Tasks with one key that an answer about it names.
pub const KEY_TASKS_MAX: usize = 64;
/// Tasks that a leader remembers which were not to be, as there was another one with their key.
pub const REFUSED_MAX: usize = 16_384;
/// Transactions of one partition that are decided and not made yet.
pub const TRANSACTIONS_MAX: usize = 64;
/// Transactions of one partition that were made, and as many that were refused, are remembered for those who ask again.
pub const TRANSACTIONS_DONE_MAX: usize = 1_024;
/// Bytes of those; one always fits. They travel with the table.
pub const TRANSACTIONS_BYTES_MAX: usize = 8 << 20;
/// Transactions under way at one node, and calls about one of them.
pub const TRANSACTING_MAX: usize = 1_024;
/// Bytes of what one transaction makes of tasks: of those that it changes all of it, also what it leaves as it is.
pub const DECIDED_BYTES_MAX: usize = 4 << 20;
/// Loads of bodies under way at one node; more wait.
pub const LOADS_MAX: usize = 64;
/// Bytes of bodies at which no further load is begun.
pub const LOAD_BYTES_MAX: usize = 32 << 20;
/// Bytes of bodies that wait to be loaded for others than grants; more are refused, and asked for again.
pub const LOADS_WAITING_BYTES_MAX: usize = 64 << 20;
/// Entries looked at for one page of a list.
pub const LIST_SCAN_MAX: usize = 20_000;
/// Bytes of tasks in one page of a list.
pub const LIST_BYTES_MAX: usize = 1 << 20;
/// Largest frame between nodes: a whole table of claims must fit.
pub const PEER_FRAME_BYTES_MAX: usize = 64 << 20;
/// Largest record body in the log.
pub const RECORD_BYTES_MAX: usize = 64 << 20;
/// How far one message may carry an epoch, so that a damaged one cannot exhaust them.
pub const EPOCH_STEP_MAX: u64 = 1 << 33;
/// How far one message may carry the version of the roster, so that after a damaged one later rosters are still heeded. A node
/// that missed more changes than that has to be replaced.
pub const ROSTER_STEP_MAX: u64 = 1 << 16;
/// How far an operator's word carries the epoch of a partition whose majority is lost: beyond all that the lost can have
/// reached.
pub const RESCUE_EPOCHS: u64 = 1 << 32;

/// More messages of a node to itself in one step are a fault: a stopped node is better than one that only talks to itself.
pub const LOOPBACKS_MAX: u64 = 1 << 20;

const _: () = assert!(BUCKETS.is_power_of_two() && BUCKETS >= 2);
const _: () = assert!(PARTITIONS_MAX.is_power_of_two() && PARTITIONS_MAX <= 1 << 16);
const _: () = assert!(FRAME_BYTES_MAX <= PEER_FRAME_BYTES_MAX, "what a client sends must reach the replicas");
const _: () = assert!(CLAIM_REASON_BYTES_MAX <= CLAIM_REASONS_BYTES_MAX, "the latest reason is kept");
const _: () = assert!(
    CELLS_MAX * 400 + CELLS_WITH_REASONS_MAX * CLAIM_REASONS_BYTES_MAX <= PEER_FRAME_BYTES_MAX,
    "a table of ordinary claims fits a frame"
);
const _: () = assert!(PEER_FRAME_BYTES_MAX <= RECORD_BYTES_MAX, "what arrives can be logged");
const _: () = assert!(NODES_MAX < MEMBERS_MAX && MEMBERS_MAX < u16::MAX as usize, "numbers suffice for all members");
const _: () = assert!(VISIBLE_MS < HEAL_AFTER_MS_MIN, "who may be declared gone is not visible");
const _: () = assert!(SCHEDULE_PENDING_EACH_MAX <= SCHEDULE_PENDING_MAX && CATCH_UP_TICKS_MAX <= SCHEDULE_LOOKED_MAX);
const _: () = assert!(OPS_UNCOMMITTED_MAX as usize <= OPS_KEPT_MAX);

/// Items up to a budget of bytes; the first is always one of them.
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
