//! Every bound of the wire in one table.

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
/// Most members of a group. Where there are more, groups can be members of groups.
pub const GROUP_MEMBERS_MAX: u32 = 10_000;
/// Bytes of a key.
pub const KEY_BYTES_MAX: usize = 255;
/// Most tasks in one batch.
pub const BATCH_TASKS_MAX: usize = 1_000;
/// Largest batch, all payloads together.
pub const BATCH_BYTES_MAX: usize = 8 << 20;
/// Tasks of a batch that share one routing tag, so that they are one partition's work.
pub const BATCH_TAG_TASKS: usize = 100;
/// Most tasks that one completion brings.
pub const CHILDREN_MAX: usize = 100;
/// Payloads, queue names and headers of the tasks that one completion brings, all together.
pub const CHILDREN_BYTES_MAX: usize = 1 << 20;
/// Most tasks that one transaction names.
pub const TRANSACTION_TASKS_MAX: usize = 100;
/// Largest transaction, all payloads, headers and results together.
pub const TRANSACTION_BYTES_MAX: usize = 2 << 20;
/// Claims that a task shows: of more, the latest. With them those whose completions are known.
pub const CLAIMS_SHOWN_MAX: usize = 64;
/// Most tasks in one claim call.
pub const CLAIM_TASKS_MAX: u32 = 1_000;
/// Most tasks that one claim depends on.
pub const CLAIM_DEPENDS_MAX: usize = 16;
/// Nodes that hold one partition.
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
/// Most data of a schedule's tasks: the root of the cluster keeps it.
pub const SCHEDULE_PAYLOAD_BYTES_MAX: usize = 4 << 10;
/// Longest cron expression.
pub const EXPRESSION_BYTES_MAX: usize = 255;
/// Longest name of a time zone.
pub const ZONE_NAME_BYTES_MAX: usize = 64;
/// Shortest lease.
pub const LEASE_MS_MIN: u64 = 100;
/// Longest lease.
pub const LEASE_MS_MAX: u64 = 3_600_000;
/// Length of a lease that a claim leaves open, where nothing is set for its queue.
pub const LEASE_MS_DEFAULT: u64 = 30_000;
/// Longest wait of a long poll.
pub const WAIT_MS_MAX: u64 = 300_000;
/// Longest result that is told with an event of a watch; others are read with the task.
pub const WATCH_RESULT_BYTES_MAX: usize = 1 << 10;
/// Nodes of which the cursor of a watch tells.
pub const WATCH_PLACES_MAX: usize = 512;
/// Bytes that it has for the partitions of each.
pub const WATCH_WHOLE_BYTES_MAX: usize = 512;
/// A watch goes on where it was if it is asked for again within this time.
pub const WATCH_KEPT_MS: u64 = 60_000;
/// Longest delay before a task can be claimed: ten years of 365.25 days, as those are that a person types.
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
/// Nodes that one call says are lost.
pub const LOST_MAX: usize = 256;
/// Partitions that one call has go on without a majority.
pub const RECOVERED_MAX: usize = 4_097;

const _: () = assert!(LEASE_MS_MIN < LEASE_MS_MAX);
