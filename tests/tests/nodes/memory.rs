//! Memory of real nodes: payloads of finished tasks leave it and stay readable, and a node near its limit accepts no new tasks.

use norn_client::client::{ClaimOptions, Client, CompleteOptions};
use norn_client::session::Draft;
use norn_tests::launch::MemoryGroup;
use norn_tests::wait::{PATIENCE, eventually};
use norn_tests::{Cluster, ClusterOptions};
use norn_wire::{Acks, Error, ErrorCode, QueueName, State, TaskId, Token};
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;

const RESULT_BYTES: usize = 700_000;
/// The first results fill memory that a node needs anyway: buffers, and what it read and wrote last.
const FIRST: u32 = 12;
const RESULTS: u32 = 60;

fn resident_bytes(process: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a process has memory");
    let kilobytes: usize = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kilobytes << 10
}

/// A result that differs from all others.
fn result_of(number: u32) -> Vec<u8> {
    number.to_be_bytes().into_iter().cycle().take(RESULT_BYTES).collect()
}

async fn finish(client: &Client, queue: &QueueName, number: u32) -> TaskId {
    let id = client.enqueue(Draft::new(queue.clone(), number.to_be_bytes())).await.expect("it is taken").id;
    let claimed = || async { client.claim(ClaimOptions::new([queue.clone()])).await.ok()?.tasks.pop() };
    let task = eventually("it is claimed", PATIENCE, claimed).await.granted;
    assert_eq!(task.id, id);
    let options = CompleteOptions::new(id, task.token).result(result_of(number));
    client.complete(options).await.expect("it is taken");
    id
}

/// Results many times larger than the memory allowed for them: no node grows by nearly as much, and all results can be read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_of_finished_tasks_do_not_fill_memory() {
    let settings = vec!["payload_memory_bytes=1048576".to_owned()];
    // A realistic number of partitions, because each keeps something in memory.
    let cluster = Cluster::start_with(ClusterOptions { partitions: 256, settings, ..ClusterOptions::default() });
    let queue = QueueName::new("reports").expect("a name");
    let client = cluster.client().await;
    let mut ids = Vec::new();
    for number in 0..FIRST {
        ids.push(finish(&client, &queue, number).await);
    }
    let before: Vec<usize> = (0..3).map(|index| resident_bytes(cluster.process(index))).collect();
    for number in FIRST..FIRST + RESULTS {
        ids.push(finish(&client, &queue, number).await);
    }
    let most = RESULTS as usize * RESULT_BYTES / 2;
    for (index, before) in before.into_iter().enumerate() {
        let small = || async { (resident_bytes(cluster.process(index)) < before + most).then_some(()) };
        eventually("results leave memory", PATIENCE, small).await;
    }
    for (number, id) in (0..).zip(&ids) {
        let view = client.get(*id).await.expect("it is kept");
        let result = view.result.expect("it has one").into_vec();
        assert!(view.state == State::Done && result == result_of(number), "{number}: {} bytes", result.len());
    }
}

/// More than the node may use.
const MANY_RESULTS: u32 = 160;
const GROUP_BYTES: usize = 104 << 20;
const _: () = assert!(MANY_RESULTS as usize * RESULT_BYTES > GROUP_BYTES);

/// The system kills a process that exceeds the limit of its group, so a node near that limit accepts no more tasks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_of_more_bytes_than_a_control_group_may_have_are_kept_by_a_node_in_it() {
    let directory = TempDir::new().expect("a directory");
    let Some(group) = MemoryGroup::of(directory.path(), GROUP_BYTES) else {
        eprintln!("SKIPPED: this machine lets no test make a control group");
        return;
    };
    let settings = vec!["payload_memory_bytes=16777216".to_owned()];
    let program = Some(group.program.clone());
    let options = ClusterOptions { nodes: 1, partitions: 16, settings, program, ..ClusterOptions::default() };
    let cluster = Cluster::start_with(options);
    let queue = QueueName::new("reports").expect("a name");
    let client = cluster.client().await;
    let mut ids = Vec::new();
    for number in 0..MANY_RESULTS {
        ids.push(finish(&client, &queue, number).await);
    }
    for (number, id) in (0..).zip(&ids).step_by(10) {
        let result = client.get(*id).await.expect("it is kept").result.expect("it has one").into_vec();
        assert!(result == result_of(number), "{number}: {} bytes", result.len());
    }
}

const ENTRY_BYTES: usize = 60_000;
/// Number of log entries of each claim.
const ENTRIES: u32 = 16;
const HELD: u32 = 40;
const LONG: Duration = Duration::from_secs(600);

fn entry_of(number: u32, sequence: u32) -> Vec<u8> {
    [number, sequence].into_iter().flat_map(u32::to_be_bytes).cycle().take(ENTRY_BYTES).collect()
}

/// A worker that holds its task and logs its progress.
async fn work_on(client: &Client, queue: &QueueName, number: u32) -> (TaskId, Token) {
    let id = client.enqueue(Draft::new(queue.clone(), number.to_be_bytes())).await.expect("it is taken").id;
    let claimed = || async { client.claim(ClaimOptions::new([queue.clone()]).lease(LONG)).await.ok()?.tasks.pop() };
    let task = eventually("it is claimed", PATIENCE, claimed).await.granted;
    assert_eq!(task.id, id);
    for sequence in 0..ENTRIES {
        client.update(id, task.token, sequence, entry_of(number, sequence), Acks::Quorum).await.expect("it is taken");
    }
    (id, task.token)
}

/// Logs of held tasks, many times larger than the memory allowed for them: no node grows by nearly as much, and the next worker of a
/// task gets its log.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_of_tasks_that_are_worked_on_do_not_fill_memory() {
    let settings = vec!["payload_memory_bytes=1048576".to_owned()];
    let cluster = Cluster::start_with(ClusterOptions { partitions: 16, settings, ..ClusterOptions::default() });
    let queue = QueueName::new("films").expect("a name");
    let client = cluster.client().await;
    let mut held = Vec::new();
    for number in 0..FIRST {
        held.push(work_on(&client, &queue, number).await);
    }
    let before: Vec<usize> = (0..3).map(|index| resident_bytes(cluster.process(index))).collect();
    for number in FIRST..FIRST + HELD {
        held.push(work_on(&client, &queue, number).await);
    }
    let most = HELD as usize * ENTRIES as usize * ENTRY_BYTES / 2;
    for (index, before) in before.into_iter().enumerate() {
        let small = || async { (resident_bytes(cluster.process(index)) < before + most).then_some(()) };
        eventually("logs leave memory", PATIENCE, small).await;
    }
    for (number, (id, token)) in (0..).zip(held) {
        client.release(id, token).await.expect("it is held");
        let claimed = || async { client.claim(ClaimOptions::new([queue.clone()]).lease(LONG)).await.ok()?.tasks.pop() };
        let task = eventually("it is claimed again", PATIENCE, claimed).await.granted;
        assert_eq!((task.id, task.updates.len()), (id, ENTRIES as usize));
        let all = task.updates.iter().all(|entry| entry.data == entry_of(number, entry.sequence));
        assert!(all, "{number}: as it was written");
    }
}

/// Memory limit of the node.
const MEMORY_BYTES: usize = 240 << 20;
const PAYLOAD_BYTES: usize = 250_000;
/// Tasks in one call.
const TASKS: usize = 4;
/// Timeouts of calls that must succeed, and of calls that may be refused. A client repeats a call that long before it reports a
/// refusal.
const TIMEOUTS: [Duration; 2] = [Duration::from_secs(30), Duration::from_secs(3)];

async fn enqueue(client: &Client, queue: &QueueName) -> Result<(), Error> {
    let drafts = (0..TASKS).map(|_| Draft::new(queue.clone(), vec![7; PAYLOAD_BYTES])).collect();
    client.enqueue_many(drafts, Acks::Quorum).await.into_iter().try_for_each(|task| task.map(drop))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_near_the_limit_of_its_settings_refuses_tasks_and_goes_on_with_all_else() {
    let limit = format!("memory_bytes_max={MEMORY_BYTES}");
    let cluster = Cluster::start_with(limited(vec![limit], None));
    refuses_tasks_and_goes_on(&cluster).await;
}

/// The system kills a process that exceeds the limit of its group.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_near_the_limit_of_its_control_group_refuses_tasks_and_lives() {
    let directory = TempDir::new().expect("a directory");
    let Some(group) = MemoryGroup::of(directory.path(), MEMORY_BYTES) else {
        eprintln!("SKIPPED: this machine lets no test make a control group");
        return;
    };
    let cluster = Cluster::start_with(limited(Vec::new(), Some(group.program.clone())));
    refuses_tasks_and_goes_on(&cluster).await;
}

fn limited(settings: Vec<String>, program: Option<PathBuf>) -> ClusterOptions {
    let settings = [settings, vec!["payload_memory_bytes=1073741824".to_owned()]].concat();
    ClusterOptions { nodes: 1, partitions: 4, settings, program, ..ClusterOptions::default() }
}

/// A backlog larger than the memory is refused at some point. Work continues, and makes room for more.
async fn refuses_tasks_and_goes_on(cluster: &Cluster) {
    let [client, poll] = [
        cluster.client_of(cluster.addresses(), TIMEOUTS[0]).await,
        cluster.client_of(cluster.addresses(), TIMEOUTS[1]).await,
    ];
    let queue = QueueName::new("backlog").expect("a name");
    let mut calls = 0;
    let refused = loop {
        match enqueue(&poll, &queue).await {
            Ok(()) => calls += 1,
            Err(error) if error.code == ErrorCode::Overloaded => break error,
            // A busy machine causes these.
            Err(error) => assert!(matches!(error.code, ErrorCode::Unknown | ErrorCode::Unavailable), "{error:?}"),
        }
        assert!(calls * TASKS * PAYLOAD_BYTES < 2 * MEMORY_BYTES, "it takes more than it may have");
    };
    assert!(refused.message.contains("memory") && calls > 0, "{refused:?} after {calls} calls");
    assert!(resident_bytes(cluster.process(0)) < MEMORY_BYTES + (64 << 20), "the program itself does not count");
    let counters = cluster.cli_at(0).patient().json(&["status"]).done().object()["counters"].clone();
    assert_eq!(counters["memory_short"], 1, "{counters}");

    // Completes a quarter of the tasks.
    let mut done = 0;
    while done * 4 < calls * TASKS {
        let claims = client.claim(ClaimOptions::new([queue.clone()]).max(8).timeout(TIMEOUTS[0])).await;
        let claims = claims.expect("claims go on").tasks;
        let complete = claims.iter().map(|claimed| CompleteOptions::new(claimed.granted.id, claimed.granted.token));
        let completed = client.complete_many(complete.collect(), Acks::Quorum).await;
        assert!(completed.iter().all(Result::is_ok), "completions go on: {completed:?}");
        done += claims.len();
    }
    // The allocator may not return freed memory, so the node also takes into account how much it has freed.
    eventually("there is room for more", PATIENCE, async || enqueue(&poll, &queue).await.ok()).await;
}
