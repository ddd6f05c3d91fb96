//! A data directory that fills up: new tasks are refused, everything else continues, and freed space is noticed.
//!
//! The setting `disk_bytes_max` stands for the size of a disk, and a sparse file for other data on it.

use norn_client::client::{ClaimOptions, Client, CompleteOptions, TransactError};
use norn_client::session::{Draft, TransactionDraft};
use norn_tests::wait::{PATIENCE, eventually, until};
use norn_tests::{Cluster, ClusterOptions};
use norn_wire::{Acks, Error, ErrorCode, QueueName, Retry};
use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::path::Path;
use std::time::Duration;

const MIB: u64 = 1 << 20;
/// Simulated size of the disk.
const DISK_BYTES: u64 = 100 * MIB;
/// The part that the node keeps in reserve.
const RESERVE_BYTES: u64 = 8 * MIB;
/// Name of the sparse file that stands for other data.
const BALLAST: &str = "ballast";
/// Timeout of calls that must succeed.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout of calls that may be refused. A client repeats a call that long before it reports a refusal.
const POLL_TIMEOUT: Duration = Duration::from_secs(1);

/// Bytes of all files but the ballast.
fn bytes_in(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).expect("it can be listed").flatten();
    // The node may remove a file meanwhile.
    entries.filter(|entry| entry.file_name() != BALLAST).filter_map(|entry| Some(entry.metadata().ok()?.len())).sum()
}

/// Leaves this many bytes of free space. Existing ballast is never removed in between: if there were more space for a moment, the node
/// would refill its reserve.
fn fill(directory: &Path, room_bytes: u64) {
    let length = DISK_BYTES - room_bytes - bytes_in(directory);
    let ballast = OpenOptions::new().write(true).create(true).truncate(false).open(directory.join(BALLAST));
    ballast.and_then(|file| file.set_len(length)).expect("a hole needs no room");
}

async fn enqueue(client: &Client, queue: &QueueName) -> Result<(), Error> {
    let drafts = vec![Draft::new(queue.clone(), vec![7; 1_000])];
    client.enqueue_many(drafts, Acks::Quorum).await.remove(0).map(drop)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_refuses_tasks_first_and_stops_a_node_last() {
    let settings = [format!("disk_bytes_max={DISK_BYTES}"), format!("reserve_bytes={RESERVE_BYTES}")];
    let mut cluster = Cluster::start_with(ClusterOptions {
        nodes: 1,
        partitions: 4,
        settings: settings.into(),
        ..ClusterOptions::default()
    });
    let client = cluster.client_of(cluster.addresses(), CALL_TIMEOUT).await;
    let poll = cluster.client_of(cluster.addresses(), POLL_TIMEOUT).await;
    let (queue, data) = (QueueName::new("kept").expect("a name"), cluster.data(0));
    for _ in 0..20 {
        enqueue(&client, &queue).await.expect("there is room");
    }
    until("the reserve is kept", || fs::metadata(data.join("reserve")).is_ok_and(|file| file.len() == RESERVE_BYTES));

    fill(&data, RESERVE_BYTES / 2);
    let full = |refused: &Error| {
        refused.code == ErrorCode::NoSpace && refused.message.contains("the data directory of node n1")
    };
    eventually("tasks are refused", PATIENCE, async || enqueue(&poll, &queue).await.err().filter(full)).await;
    // Operations that a leader decides get an equally definite refusal when the asked node is that leader.
    let draft = || Draft::new(queue.clone(), vec![7; 1_000]);
    let refused = poll.enqueue_unique(draft().key("one")).await.expect_err("there is no room");
    assert!(full(&refused), "{refused:?}");
    match poll.transact(TransactionDraft::new().enqueue(draft())).await {
        Err(TransactError::Failed(refused)) if full(&refused) => {}
        other => panic!("{other:?}"),
    }
    let unique = ["--timeout", "1s", "enqueue", "kept", "x", "--key", "two", "--unique"];
    assert_eq!(cluster.cli_at(0).json(&unique).refusal(3)["code"], "no_space");
    let claims = client.claim(ClaimOptions::new([queue.clone()]).max(10).timeout(CALL_TIMEOUT)).await;
    let claims = claims.expect("claims go on").tasks;
    assert_eq!(claims.len(), 10);
    let complete =
        claims.iter().map(|claimed| CompleteOptions::new(claimed.granted.id, claimed.granted.token)).collect();
    let completed = client.complete_many(complete, Acks::Quorum).await;
    assert!(completed.iter().all(Result::is_ok), "completions go on: {completed:?}");

    fs::remove_file(data.join(BALLAST)).expect("it is there");
    eventually("room is noticed", PATIENCE, async || enqueue(&poll, &queue).await.ok()).await;

    // Without any free space the next writes use up the reserve, and then the node stops by itself.
    fill(&data, 0);
    until("the node stops", || {
        fill(&data, 0);
        let _ = cluster.cli_at(0).json(&["--timeout", "1s", "claim", "kept"]);
        cluster.log(0).contains("the node stopped by itself: ")
    });
    assert!(fs::metadata(data.join("reserve")).is_err(), "the reserve is used up");
    // While there is no space, a start ends at once.
    cluster.kill(0);
    fill(&data, 0);
    cluster.restart(0);
    until("a start says how much it needs", || {
        let needs =
            format!("a node starts with {} and takes new tasks with {}", RESERVE_BYTES / 16 * 5, 3 * RESERVE_BYTES);
        cluster.log(0).contains(&needs)
    });
    fs::remove_file(data.join(BALLAST)).expect("it is there");
    cluster.kill(0);
    cluster.restart(0);
    cluster.wait_ready(0);
    eventually("it serves again", PATIENCE, async || enqueue(&poll, &queue).await.ok()).await;
}

/// Size of a disk that is smaller than the log at which a node usually takes a snapshot.
const SMALL_DISK_BYTES: u64 = 64 * MIB;
/// Size of the tasks that fill it.
const LARGE_BYTES: usize = 250_000;

/// Goal: disks that are full of ended tasks free space by themselves, on all nodes of a cluster.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn disks_full_of_finished_tasks_make_room() {
    let settings = [format!("disk_bytes_max={SMALL_DISK_BYTES}"), format!("reserve_bytes={}", RESERVE_BYTES / 2)];
    let settings = [settings.as_slice(), &["retain=0s".to_owned()]].concat();
    let cluster = Cluster::start_with(ClusterOptions { partitions: 4, settings, ..ClusterOptions::default() });
    let client = cluster.client_of(cluster.addresses(), CALL_TIMEOUT).await;
    let poll = cluster.client_of(cluster.addresses(), Duration::from_secs(3)).await;
    let queue = QueueName::new("large").expect("a name");
    let draft = || Draft::new(queue.clone(), vec![7; LARGE_BYTES]);
    let mut stored = BTreeSet::new();
    let refused = loop {
        match poll.enqueue(draft()).await {
            Ok(acked) => drop(stored.insert(acked.id)),
            Err(error) if error.code == ErrorCode::NoSpace => break error,
            // A busy machine causes these, or a leader elsewhere whose disk is full.
            Err(error) => assert!(matches!(error.code, ErrorCode::Unknown | ErrorCode::Unavailable), "{error:?}"),
        }
        assert!(stored.len() * LARGE_BYTES <= SMALL_DISK_BYTES as usize, "a disk takes more than it has");
    };
    assert_eq!(refused.retry, Retry::Later, "{refused:?}");
    let mut open = stored.clone();
    while !open.is_empty() {
        let claims = client.claim(ClaimOptions::new([queue.clone()]).max(8).timeout(CALL_TIMEOUT)).await;
        let claims = claims.expect("claims go on").tasks;
        let complete = claims.iter().map(|claimed| CompleteOptions::new(claimed.granted.id, claimed.granted.token));
        let completed = client.complete_many(complete.collect(), Acks::Quorum).await;
        for (claimed, completed) in claims.iter().zip(completed) {
            // A task that was not acknowledged may be known to too few replicas.
            let was_stored = open.remove(&claimed.granted.id);
            assert!(completed.is_ok() || !was_stored, "completions go on: {completed:?}");
        }
    }
    // These take far more space than the reserve.
    for _ in 0..stored.len() / 2 {
        eventually("room is made", PATIENCE, async || poll.enqueue(draft()).await.ok()).await;
    }
}
