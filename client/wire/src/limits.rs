//! Every limit of the wire in one table.

/// Largest payload of a task, result or header block.
pub const PAYLOAD_BYTES_MAX: usize = 1 << 20;
/// Largest entry of a claim's log.
pub const UPDATE_BYTES_MAX: usize = 64 << 10;
/// Most entries in one claim's log.
pub const UPDATES_MAX: u32 = 1_000;
/// Most headers of a task.
pub const HEADERS_MAX: usize = 64;
/// Largest header, name and value together.
pub const HEADER_BYTES_MAX: usize = 1 << 10;
/// Most tasks that one task waits for.
pub const AFTER_MAX: usize = 100;
/// Most members of a group. For more, make groups members of groups.
pub const GROUP_MEMBERS_MAX: u32 = 10_000;
/// Longest key.
pub const KEY_BYTES_MAX: usize = 255;
/// Most tasks in one batch.
pub const BATCH_TASKS_MAX: usize = 1_000;
/// Largest batch, all payloads together.
pub const BATCH_BYTES_MAX: usize = 8 << 20;
/// Tasks of a batch that share one routing tag, so that one partition stores them.
pub const BATCH_TAG_TASKS: usize = 100;
/// Most children of one completion.
pub const CHILDREN_MAX: usize = 100;
/// Most bytes of one completion's children: payloads, queue names and headers together.
pub const CHILDREN_BYTES_MAX: usize = 1 << 20;
/// Most tasks that one transaction names.
pub const TRANSACTION_TASKS_MAX: usize = 100;
/// Largest transaction, all payloads, headers and results together.
pub const TRANSACTION_BYTES_MAX: usize = 2 << 20;
/// Claims that a task shows: the latest ones. Claims with a known completion come in addition.
pub const CLAIMS_SHOWN_MAX: usize = 64;
/// Most tasks in one claim call.
pub const CLAIM_TASKS_MAX: u32 = 1_000;
/// Most tasks that one claim depends on.
pub const CLAIM_DEPENDS_MAX: usize = 16;
/// Most replicas of one partition.
pub const NODES_OF_PARTITION_MAX: usize = 7;
/// Largest weight of a member.
pub const WEIGHT_MAX: u32 = 1_000_000;
/// Most partitions that move at once.
pub const MOVES_MAX: u32 = 1_024;
/// Most partitions.
pub const PARTITIONS_MAX: u32 = 4_096;
/// Most queues in one claim call.
pub const CLAIM_QUEUES_MAX: usize = 64;
/// Payload bytes after which a claim call takes no further task.
pub const CLAIM_BYTES_MAX: usize = 4 << 20;
/// Longest name of a schedule.
pub const SCHEDULE_NAME_BYTES_MAX: usize = 255;
/// Largest payload of a schedule's tasks: the metadata group keeps it.
pub const SCHEDULE_PAYLOAD_BYTES_MAX: usize = 4 << 10;
/// Longest cron expression.
pub const EXPRESSION_BYTES_MAX: usize = 255;
/// Longest name of a time zone.
pub const ZONE_NAME_BYTES_MAX: usize = 64;
/// Shortest lease.
pub const LEASE_MS_MIN: u64 = 100;
/// Longest lease.
pub const LEASE_MS_MAX: u64 = 3_600_000;
/// Lease of a claim that leaves it open, in a queue without a lease of its own.
pub const LEASE_MS_DEFAULT: u64 = 30_000;
/// Longest wait of a long poll.
pub const WAIT_MS_MAX: u64 = 300_000;
/// Longest result in an event of a watch; longer ones are read with the task.
pub const WATCH_RESULT_BYTES_MAX: usize = 1 << 10;
/// Most nodes in the cursor of a watch.
pub const WATCH_PLACES_MAX: usize = 512;
/// Most bytes in a cursor for the partitions of one node.
pub const WATCH_WHOLE_BYTES_MAX: usize = 512;
/// Time within which the next call of a watch must come to continue it.
pub const WATCH_KEPT_MS: u64 = 60_000;
/// Longest delay before a task can be claimed: ten years of 365.25 days, the years of durations in text.
pub const DELAY_MS_MAX: u64 = 10 * 31_557_600_000;
/// Most tasks in a page of a list.
pub const LIST_PAGE_MAX: u32 = 1_000;
/// Longest reason or worker name.
pub const TEXT_BYTES_MAX: usize = 1 << 10;
/// Largest body of a frame.
pub const FRAME_BYTES_MAX: usize = 16 << 20;
/// Requests of one session that may be under way at once.
pub const IN_FLIGHT_MAX: usize = 4_096;

const _: () = assert!(BATCH_BYTES_MAX * 2 <= FRAME_BYTES_MAX, "a batch with its names and headers fits a frame");
const _: () = assert!(CLAIM_BYTES_MAX + PAYLOAD_BYTES_MAX + UPDATE_BYTES_MAX * 16 < FRAME_BYTES_MAX);
const _: () = assert!(PAYLOAD_BYTES_MAX <= BATCH_BYTES_MAX);
const _: () = assert!(CHILDREN_MAX <= BATCH_TAG_TASKS && CHILDREN_BYTES_MAX + PAYLOAD_BYTES_MAX <= BATCH_BYTES_MAX);
const _: () = assert!(HEADERS_MAX * HEADER_BYTES_MAX <= PAYLOAD_BYTES_MAX);
const _: () = assert!(BATCH_TAG_TASKS <= BATCH_TASKS_MAX);
const _: () = assert!(SCHEDULE_NAME_BYTES_MAX < HEADER_BYTES_MAX / 2, "a schedule's name is a header of its tasks");
/// Most nodes that one call declares lost.
pub const LOST_MAX: usize = 256;
/// Most partitions that one call recovers.
pub const RECOVERED_MAX: usize = 4_097;

const _: () = assert!(LEASE_MS_MIN < LEASE_MS_MAX);
