//! Damaged logs of real nodes: what heals, what is refused, and what operators are shown.
//!
//! The requirement: a node of three whose log lost records starts all the same if other replicas can restore what is missing. It
//! reports the loss, and counts again once it is whole: no task is lost, none has two holders. If it may have made a promise that can
//! no longer be determined, it does not start, changes nothing, and says why and what to do; the others continue.

use norn_client::client::{ClaimOptions, Claimed, Client, CompleteOptions};
use norn_client::session::Draft;
use norn_tests::cluster::all_tasks;
use norn_tests::log::{Entry, HEADER_BYTES};
use norn_tests::wait::{Deadline, PATIENCE, eventually, until};
use norn_tests::{Answer, Cluster, ClusterOptions, Ledger, Log};
use norn_wire::response::{Health, PartitionView};
use norn_wire::{Acks, PartitionId, QueueName};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::time::{Duration, Instant};

/// Index of the node whose log is damaged.
const DAMAGED: usize = 2;
/// Number of partitions. Each of the three nodes holds all of them.
const PARTITIONS: usize = 16;
/// Tasks that are enqueued at first.
const TASKS: usize = 300;
/// Number of these that are claimed.
const CLAIMED: usize = 100;
/// Number of the claimed that are completed. The rest is held while the log is damaged and healed.
const COMPLETED: usize = 50;
/// Tasks that are enqueued later, to check that the cluster serves.
const MORE: usize = 24;
/// Calls for these where each must be a separate record in the log of the damaged node: more than any test's `look` requires.
const CALLS: usize = 6;
/// Tasks in one call.
const BATCH: usize = 12;
/// Payload size of a task.
const PAYLOAD_BYTES: usize = 8 << 10;
/// Held tasks stay held to the end, or can be completed after their leases. A grant whose answer got lost becomes claimable only after
/// its lease.
const LEASE: Duration = Duration::from_secs(120);
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Message of a start that lost records.
const WARNING: &str = "records of the log are lost";
/// A client as producer and worker, with its books.
struct Load {
    client: Client,
    ledger: Ledger,
    queue: QueueName,
    attempted: usize,
    held: Vec<Claimed>,
}

impl Load {
    /// Leaves some tasks ready, some held, and some done.
    async fn begin(cluster: &Cluster) -> Load {
        let client = cluster.client_of(cluster.addresses(), CALL_TIMEOUT).await;
        let queue = QueueName::new("kept").expect("a name");
        let mut load = Load { client, ledger: Ledger::default(), queue, attempted: 0, held: Vec::new() };
        load.enqueue(TASKS).await;
        while load.held.len() < CLAIMED {
            // One call makes at least one record, however its tasks are spread, so there are several records to choose from.
            let claims = load.claim(BATCH.min(CLAIMED - load.held.len()) as u32).await;
            load.held.extend(claims);
        }
        let done = load.held.drain(..COMPLETED).collect();
        load.complete(done).await;
        load
    }

    async fn enqueue(&mut self, count: usize) {
        self.enqueue_in_calls(count, BATCH, Acks::Quorum).await;
    }

    /// Makes each call after the previous one is acknowledged: with `acks=all`, each node writes and syncs it separately.
    async fn enqueue_in_calls(&mut self, count: usize, each: usize, acks: Acks) {
        let mut numbers = self.attempted..self.attempted + count;
        self.attempted += count;
        loop {
            let payload = |number| format!("{:1$}", format!("task {number}"), PAYLOAD_BYTES).into_bytes();
            let payloads: Vec<Vec<u8>> = numbers.by_ref().take(each).map(payload).collect();
            if payloads.is_empty() {
                return;
            }
            payloads.iter().for_each(|payload| self.ledger.attempted(payload));
            let drafts = payloads.iter().map(|payload| Draft::new(self.queue.clone(), payload.clone())).collect();
            let results = self.client.enqueue_many(drafts, acks).await;
            for (payload, result) in payloads.iter().zip(results) {
                self.ledger.acknowledged(payload, result.expect("as many as are asked are there").id);
            }
        }
    }

    async fn claim(&self, max: u32) -> Vec<Claimed> {
        let asked = Instant::now();
        let options = ClaimOptions::new([self.queue.clone()]).lease(LEASE).max(max).wait(Duration::from_secs(1));
        let claims = self.client.claim(options.timeout(CALL_TIMEOUT)).await.expect("a majority is there").tasks;
        claims.iter().for_each(|claimed| self.ledger.delivered(asked, claimed));
        claims
    }

    async fn complete(&self, claims: Vec<Claimed>) {
        for claimed in &claims {
            self.ledger.stopped(claimed.granted.id, claimed.granted.token);
        }
        let complete = |claimed: &Claimed| CompleteOptions::new(claimed.granted.id, claimed.granted.token);
        let results = self.client.complete_many(claims.iter().map(complete).collect(), Acks::Quorum).await;
        for (claimed, result) in claims.iter().zip(results) {
            result.expect("its claim holds");
            self.ledger.completed(claimed.granted.id, claimed.granted.token);
        }
    }

    /// Completes all tasks.
    async fn drain(&mut self) {
        let held = std::mem::take(&mut self.held);
        self.complete(held).await;
        let deadline = Deadline::after(LEASE + PATIENCE);
        while self.ledger.completed_count() < self.attempted {
            deadline.check(|| format!("{} of {}", self.ledger.completed_count(), self.attempted));
            let claims = self.claim(CLAIMED as u32).await;
            self.complete(claims).await;
        }
    }

    /// Completes all tasks, and checks the books against what each node shows.
    async fn finish(mut self, cluster: &Cluster) {
        self.drain().await;
        cluster.wait_agreed().await;
        for address in cluster.addresses() {
            let client = cluster.client_of(vec![address], CALL_TIMEOUT).await;
            let sums = self.ledger.judge(&all_tasks(&client).await);
            assert!(sums.violations.is_empty(), "{sums}");
            assert_eq!((sums.attempted, sums.lost, sums.duplicated), (self.attempted as u64, 0, 0), "{sums}");
            assert_eq!((sums.acknowledged, sums.completed), (sums.attempted, sums.attempted), "{sums}");
        }
    }
}

/// Starts three nodes with small segments, more settings and a load. Returns once the log of the damaged node is idle.
async fn three(more: &[&str]) -> (Cluster, Load) {
    let settings = [&["segment_bytes=1048576"], more].concat().iter().map(|setting| (*setting).to_owned()).collect();
    let cluster = Cluster::start_with(ClusterOptions {
        nodes: 3,
        partitions: PARTITIONS as u32,
        settings,
        ..ClusterOptions::default()
    });
    // Each node reserves ids for clients, and logs that.
    for index in 0..3 {
        cluster.cli_at(index).patient().json(&["count"]).done();
    }
    let load = Load::begin(&cluster).await;
    // All nodes have everything, even one that was stalled meanwhile.
    cluster.wait_agreed().await;
    heard_out(&cluster);
    (cluster, load)
}

/// The middle one of all records of this kind.
fn middle(entries: &[Entry], kind: &str) -> Entry {
    let of_kind: Vec<&Entry> = entries.iter().filter(|entry| entry.kind == kind).collect();
    assert!(of_kind.len() > 2, "{} records of {kind}", of_kind.len());
    of_kind[of_kind.len() / 2].clone()
}

/// Health of each replica of a node, as the node itself reports it.
async fn healths(cluster: &Cluster, index: usize) -> BTreeMap<u64, Health> {
    let client = cluster.client_of(vec![cluster.address(index).to_owned()], CALL_TIMEOUT).await;
    let look = || async {
        let this = client.nodes().await.ok()?.into_iter().find(|node| node.this)?;
        let partitions = client.partitions().await.ok()?;
        let health = |view: &PartitionView| Some((u64::from(view.partition.0), view.health?));
        let healths: BTreeMap<u64, Health> = partitions.iter().filter_map(health).collect();
        (this.name == cluster.name(index) && healths.len() == PARTITIONS).then_some(healths)
    };
    let healths = eventually("the node says how it is", PATIENCE, look).await;
    client.close().await;
    healths
}

/// Health of the replicas that the loss of these records damages.
fn incomplete(lost: &[Entry]) -> BTreeMap<u64, Health> {
    let mut incomplete = BTreeMap::new();
    for entry in lost {
        let partition = entry.partition.expect("it is of a replica");
        match entry.kind.as_str() {
            "facts" => incomplete.entry(partition).or_insert(Health::Holes),
            "ops" => incomplete.entry(partition).insert_entry(Health::Recovering).into_mut(),
            kind => panic!("nobody gives back a {kind}"),
        };
    }
    incomplete
}

/// Starts the damaged node while the others are paused: it must find out by itself exactly what it lacks. Then lets it heal.
async fn heals(cluster: &mut Cluster, incomplete: &BTreeMap<u64, Health>) {
    let warnings = cluster.log(DAMAGED).matches(WARNING).count();
    cluster.pause(0);
    cluster.pause(1);
    cluster.restart(DAMAGED);
    let mut found = healths(cluster, DAMAGED).await;
    found.retain(|_, health| *health != Health::Whole);
    assert_eq!(&found, incomplete);
    let warned = cluster.log(DAMAGED).matches(WARNING).count() - warnings;
    assert_eq!(warned, usize::from(!incomplete.is_empty()), "{}", cluster.log(DAMAGED));
    cluster.resume(0);
    cluster.resume(1);
    cluster.wait_ready(DAMAGED);
    cluster.wait_led_where(&[DAMAGED], &[0, 1, 2], |view| view.health == Some(Health::Whole)).await;
    let shown = cluster.cli_at(DAMAGED).patient().json(&["partitions"]).done().lines();
    assert!(shown.iter().all(|partition| partition["health"] == "whole"), "{shown:?}");
}

/// The healed node forms a majority with one other: these two must know everything that was acknowledged.
async fn counts_again(mut cluster: Cluster, mut load: Load) {
    cluster.kill(0);
    cluster.wait_led(&[1, DAMAGED], &[1, DAMAGED]).await;
    load.enqueue(MORE).await;
    load.drain().await;
    cluster.restart(0);
    cluster.wait_ready(0);
    load.finish(&cluster).await;
}

/// Asserts that `norn log verify` finds problems; returns them.
fn problems(log: &Log) -> Vec<Value> {
    let answer = log.verify();
    assert_eq!(answer.code, Some(1), "{answer:?}");
    let mut lines = answer.lines();
    let summary = lines.pop().expect("a summary");
    assert_eq!(
        (&summary["whole"], summary["problems"].as_u64()),
        (&false.into(), Some(lines.len() as u64)),
        "{answer:?}"
    );
    lines
}

/// Asserts that a verification names this record as lost, and no other.
fn names_lost(log: &Log, lost: &Entry) {
    let lost_of: Vec<Value> =
        problems(log).iter().flat_map(|problem| problem["lost"]["of"].as_array().expect("a list").clone()).collect();
    assert_eq!(lost_of, [json!({ "partition": lost.partition, "kind": lost.kind, "count": 1 })]);
}

// E5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_facts_are_learned_again() {
    let (mut cluster, load) = three(&[]).await;
    cluster.kill(DAMAGED);
    let log = Log::of(&cluster, DAMAGED);
    let lost = middle(&log.entries(), "facts");
    log.flip(&lost.file, lost.offset + lost.bytes / 2);
    names_lost(&log, &lost);
    heals(&mut cluster, &incomplete(&[lost])).await;
    counts_again(cluster, load).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_operations_are_fetched_again() {
    let (mut cluster, load) = three(&[]).await;
    assert!(cluster.terminate(DAMAGED).success());
    let log = Log::of(&cluster, DAMAGED);
    let lost = middle(&log.entries(), "ops");
    log.flip(&lost.file, lost.last_byte());
    names_lost(&log, &lost);
    heals(&mut cluster, &incomplete(&[lost])).await;
    counts_again(cluster, load).await;
}

/// Redundant data may be damaged once: second copies of heads, and headers, which can be derived from the records behind them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_stands_twice_is_not_lost() {
    let (mut cluster, load) = three(&[]).await;
    cluster.kill(DAMAGED);
    let log = Log::of(&cluster, DAMAGED);
    let (entries, segments, whole) = (log.entries(), log.segments(), log.save());
    assert!(segments.len() > 2, "{segments:?}");
    let mut heads = Vec::new();
    for (number, file) in segments.iter().enumerate() {
        let within: Vec<&Entry> = entries.iter().filter(|entry| entry.file == *file).collect();
        assert!(within.len() > 2, "{within:?}");
        heads.push(log.head_offset(within[within.len() / 2]));
        log.flip(file, heads[number] + 9);
        if number > 0 {
            log.flip(file, HEADER_BYTES - 2);
        }
    }
    assert_eq!(problems(&log).iter().filter(|problem| problem["offset"] == 0).count(), segments.len() - 1);
    heals(&mut cluster, &BTreeMap::new()).await;
    cluster.kill(DAMAGED);
    for file in &segments {
        assert_eq!(log.read(file)[..HEADER_BYTES], whole[file][..HEADER_BYTES], "the header of {file} is mended");
    }
    // The head in the last segment is repaired. Damaged heads before it stay as they are.
    let (file, head) = (segments.last().expect("there are some"), *heads.last().expect("there are some"));
    assert_eq!(log.read(file)[head..head + 32], whole[file][head..head + 32]);
    cluster.restart(DAMAGED);
    cluster.wait_ready(DAMAGED);
    counts_again(cluster, load).await;
}

/// The records at the end of the last segment that other replicas can restore.
fn replaceable_end(log: &Log) -> Vec<Entry> {
    let last = log.segments().pop().expect("there is a log");
    let mut end = log.entries();
    let is_lasting = |entry: &Entry| entry.file != last || !["facts", "ops"].contains(&entry.kind.as_str());
    let from = end.iter().rposition(is_lasting).map_or(0, |place| place + 1);
    end.drain(..from);
    end
}

/// Whether a node answers for itself.
fn answers(cluster: &Cluster, index: usize) -> bool {
    let answer = cluster.cli_at(index).patient().json(&["nodes"]);
    let name = cluster.name(index);
    answer.code == Some(0) && answer.lines().iter().any(|node| node["this"] == true && node["name"] == name)
}

/// Waits until the log of the damaged node has been unchanged for several heartbeats, so that the others know how far it is durable. A
/// stalled node is idle as well, so each node must answer too; the damaged one first, so that the others process what it has sent.
fn heard_out(cluster: &Cluster) {
    let log = Log::of(cluster, DAMAGED);
    let end = || log.read(log.segments().last().expect("there is a log"));
    let (mut before, mut since) = (Vec::new(), Instant::now());
    until("the log is still", || {
        let now = end();
        if now != before {
            (before, since) = (now, Instant::now());
        }
        let quiet = since.elapsed() >= Duration::from_millis(500);
        quiet && [DAMAGED, 0, 1].iter().all(|index| answers(cluster, *index)) && end() == before
    });
}

/// Kills the damaged node at a moment when `look` finds something in its log. Until then gives the cluster more work.
async fn killed<T>(cluster: &mut Cluster, load: &mut Load, what: &str, look: impl Fn(&Log) -> Option<T>) -> T {
    let log = Log::of(cluster, DAMAGED);
    let deadline = Deadline::after(3 * PATIENCE);
    loop {
        heard_out(cluster);
        cluster.kill(DAMAGED);
        if let Some(found) = look(&log) {
            return found;
        }
        deadline.check(|| what.to_owned());
        cluster.restart(DAMAGED);
        cluster.wait_ready(DAMAGED);
        // The node reserves ids now, so that later requests write no promise behind the tasks that are enqueued next.
        until("the node answers", || answers(cluster, DAMAGED));
        load.enqueue_in_calls(MORE, MORE / CALLS, Acks::All).await;
    }
}

/// Cuts off the end of the damaged node's log, all of which other replicas can restore. Returns the records that are known to be lost.
async fn truncate(cluster: &mut Cluster, load: &mut Load) -> Vec<Entry> {
    let look = |log: &Log| {
        let cut = replaceable_end(log);
        let synced = cut.iter().map(|entry| entry.synced).max().unwrap_or(0);
        let lost: Vec<Entry> = cut.iter().filter(|entry| entry.ordinal <= synced).cloned().collect();
        (lost.len() > 2).then_some((cut, lost))
    };
    // While leases run, the node keeps writing their ages and is never idle for long.
    let held = load.held.drain(..).collect();
    load.complete(held).await;
    let (cut, lost) = killed(cluster, load, "enough follows the last promise", look).await;
    let log = Log::of(cluster, DAMAGED);
    let file = OpenOptions::new().write(true).open(log.path(&cut[0].file)).expect("it is there");
    file.set_len(cut[0].offset as u64 + 10).expect("it can be cut");
    lost
}

/// The file ends too early: the heads at its beginning show what is lost. The last batch is taken for one that a crash tore, because
/// the others have restarted since and do not remember that it was durable.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_truncated_end_is_fetched_again() {
    let (mut cluster, mut load) = three(&[]).await;
    let lost = truncate(&mut cluster, &mut load).await;
    cluster.kill_together(&[0, 1]);
    cluster.restart(0);
    cluster.restart(1);
    cluster.wait_led(&[0, 1], &[0, 1]).await;
    heals(&mut cluster, &incomplete(&lost)).await;
    counts_again(cluster, load).await;
}

/// The other nodes remember that the part that the node takes for torn was durable: it may have promised something there, and is
/// retired for good. Nothing is lost that two of three nodes have.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_truncated_end_that_others_remember_retires_the_node() {
    let (mut cluster, mut load) = three(&[]).await;
    truncate(&mut cluster, &mut load).await;
    for words in ["its disk has lost the end", "it was retired for ever"] {
        let Answer { code, stderr, .. } = cluster.fails_to_start(DAMAGED);
        assert_ne!(code, Some(0), "{stderr}");
        assert!(stderr.contains(words), "no {words:?} in {stderr}");
    }
    load.enqueue(MORE).await;
    load.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_facts_of_a_snapshot_are_learned_again() {
    let (mut cluster, load) = three(&["compact_bytes=1048576"]).await;
    let log = Log::of(&cluster, DAMAGED);
    until("there is a snapshot", || !log.files(".snapshot").is_empty());
    cluster.kill(DAMAGED);
    let newest = log.files(".snapshot").pop().expect("there is one");
    let within: Vec<Entry> = log.entries().into_iter().filter(|entry| entry.file == newest).collect();
    // The segment behind the snapshot repeats the votes.
    log.flip(&newest, within.iter().find(|entry| entry.kind == "vote").expect("there are votes").last_byte());
    // The record that ends the snapshot has a second copy.
    let lost = middle(&within, "facts");
    let end = within.iter().find(|entry| entry.kind == "end").expect("it has one");
    log.flip(&newest, lost.offset + lost.bytes / 2);
    log.flip(&newest, end.last_byte());
    assert!(problems(&log).iter().any(|problem| problem["file"] == *newest));
    heals(&mut cluster, &incomplete(&[lost])).await;
    counts_again(cluster, load).await;
}

/// The promises that no later record replaces. They keep a node from starting that lost this record with both heads. All nodes hold
/// all partitions.
fn unreplaced(entries: &[Entry], lost: &Entry) -> BTreeSet<(Option<u64>, &'static str)> {
    let node = ["boot", "mark"].map(|kind| (None, kind));
    let votes = (0..PARTITIONS as u64).map(|partition| (Some(partition), "vote"));
    let mut unreplaced: BTreeSet<_> = node.into_iter().chain(votes).collect();
    for entry in entries.iter().filter(|entry| entry.ordinal > lost.ordinal) {
        unreplaced.retain(|(partition, kind)| (*partition, *kind) != (entry.partition, &entry.kind));
    }
    unreplaced
}

/// Damages a record and the second copy of its head.
fn lose_with_head(log: &Log, lost: &Entry) {
    log.flip(&lost.file, log.head_offset(lost));
    log.flip(&lost.file, lost.last_byte());
    let unknown: u64 = problems(log).iter().filter_map(|problem| problem["lost"]["unknown"].as_u64()).sum();
    assert_eq!(unknown, 1);
}

/// The health of all replicas when the lost record is unknown: all of them recover.
fn all_recover() -> BTreeMap<u64, Health> {
    (0..PARTITIONS as u64).map(|partition| (partition, Health::Recovering)).collect()
}

/// The kind of a record that is lost with both heads is unknown. The node starts if all promises were repeated behind it, as they are
/// at the beginning of each segment, and then all its replicas recover.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_nobody_can_name_is_healed_if_promises_are_said_again_behind_it() {
    let (mut cluster, mut load) = three(&[]).await;
    let look = |log: &Log| {
        let (entries, segments) = (log.entries(), log.segments());
        let synced = entries.iter().map(|entry| entry.synced).max();
        let durable = |entry: &&Entry| Some(&entry.file) == segments.last() && Some(entry.ordinal) < synced;
        let in_last: Vec<Entry> = entries.iter().filter(durable).cloned().collect();
        let facts = in_last.iter().filter(|entry| entry.kind == "facts").count();
        (facts > 2).then_some((entries, in_last))
    };
    let (entries, in_last) = killed(&mut cluster, &mut load, "the last segment has enough facts", look).await;
    let log = Log::of(&cluster, DAMAGED);
    let (segments, whole) = (log.segments(), log.save());
    let lost = middle(&in_last, "facts");
    lose_with_head(&log, &lost);
    let unreplaced = unreplaced(&entries, &lost);
    assert!(!unreplaced.is_empty(), "nobody voted meanwhile");
    let stderr = refused(&cluster, &["which nothing behind it replaces"]);
    let named = |(partition, kind): &(Option<u64>, &str)| {
        let owner = partition.map_or("the node itself".to_owned(), |partition| format!("partition {partition},"));
        stderr.contains(&format!("a {kind} of {owner}"))
    };
    assert!(unreplaced.iter().any(named), "{unreplaced:?} in {stderr}");
    log.restore(&whole);

    let before: Vec<Entry> = entries.into_iter().filter(|entry| Some(&entry.file) != segments.last()).collect();
    lose_with_head(&log, &middle(&before, "facts"));
    heals(&mut cluster, &all_recover()).await;
    counts_again(cluster, load).await;
}

/// Damages the files of a log.
type Harm = fn(&Log, &[String], &BTreeMap<String, Vec<u8>>);

/// Files in the middle are missing, swapped, or without a header and a first record: the node reports what it lost, and the others
/// restore it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_segments_are_fetched_again() {
    let harms: [(&str, Harm); 4] = [
        ("the first is deleted", |log, segments, _| {
            fs::remove_file(log.path(&segments[0])).expect("it can be removed");
        }),
        ("one in the middle is deleted", |log, segments, _| {
            fs::remove_file(log.path(&segments[segments.len() - 2])).expect("it can be removed");
        }),
        ("two are swapped", |log, segments, whole| {
            let (one, other) = (&segments[segments.len() - 3], &segments[segments.len() - 2]);
            fs::write(log.path(one), &whole[other]).expect("it can be written");
            fs::write(log.path(other), &whole[one]).expect("it can be written");
        }),
        ("one is zeroes", |log, segments, whole| {
            let file = &segments[segments.len() - 2];
            fs::write(log.path(file), vec![0; whole[file].len()]).expect("it can be written");
        }),
    ];
    let (mut cluster, mut load) = three(&["compact_bytes=1073741824"]).await;
    load.enqueue(TASKS).await;
    cluster.wait_agreed().await;
    for (harm, done) in harms {
        cluster.kill(DAMAGED);
        let log = Log::of(&cluster, DAMAGED);
        let (mut segments, whole) = (log.segments(), log.save());
        // A kill between the header of a new segment and its first write leaves it without promises. Then the segment before it is
        // still the last one that repeats them, and without that one the node must refuse.
        let last = log.entries().pop().expect("there are records").file;
        segments.retain(|segment| *segment <= last);
        assert!(segments.len() > 3, "{segments:?}");
        done(&log, &segments, &whole);
        let lost: u64 = problems(&log).iter().filter_map(|problem| problem["lost"]["unknown"].as_u64()).sum();
        assert!(lost > 0, "{harm}: a verification says so");
        heals(&mut cluster, &all_recover()).await;
        cluster.wait_led(&[0, 1, 2], &[0, 1, 2]).await;
        load.enqueue(MORE).await;
    }
    counts_again(cluster, load).await;
}

/// Asserts that the damaged node does not start, says why and what to do, and changes nothing. Returns its message.
fn refused(cluster: &Cluster, words: &[&str]) -> String {
    let index = if cluster.addresses().len() == 1 { 0 } else { DAMAGED };
    let log = Log::of(cluster, index);
    let before = log.save();
    assert_eq!(log.verify().code, Some(1));
    let Answer { code, stdout, stderr } = cluster.fails_to_start(index);
    assert_eq!((code, stdout.as_str()), (Some(1), ""), "{stderr}");
    for words in words.iter().chain(&["error: ", "leave this node stopped"]) {
        assert!(stderr.contains(words), "no {words:?} in {stderr}");
    }
    assert!(log.save() == before, "nothing is changed");
    stderr
}

/// The last record of a kind: no later one has its kind.
fn last(entries: &[Entry], kind: &str) -> Entry {
    entries.iter().rfind(|entry| entry.kind == kind).expect("there is one").clone()
}

/// Lost promises, and files in the wrong place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_gives_back_is_refused_while_the_others_serve() {
    let (mut cluster, mut load) = three(&[]).await;
    let promises = ["vote", "mark", "boot"];
    // The very last record would be taken for torn by a crash. A segment may also have been created without records.
    let look = |log: &Log| {
        let (entries, segments) = (log.entries(), log.segments());
        let synced = entries.iter().map(|entry| entry.synced).max();
        let durable = promises.iter().all(|kind| Some(last(&entries, kind).ordinal) <= synced);
        let begun = entries.last().map(|entry| &entry.file) == segments.last();
        (durable && begun).then_some(entries)
    };
    let entries = killed(&mut cluster, &mut load, "something follows the last promises", look).await;
    cluster.wait_led(&[0, 1], &[0, 1]).await;
    let log = Log::of(&cluster, DAMAGED);
    let (segments, whole) = (log.segments(), log.save());
    assert!(segments.len() > 2, "{segments:?}");
    for kind in promises {
        let lost = last(&entries, kind);
        log.flip(&lost.file, lost.last_byte());
        names_lost(&log, &lost);
        let owner = lost
            .partition
            .map_or("the node itself".to_owned(), |partition| format!("partition {}", PartitionId(partition as u16)));
        refused(&cluster, &[&format!("{kind} of {owner}")]);
        log.restore(&whole);
    }
    // The end of the log is missing, and a copy of that file alone restores it.
    let Entry { file, offset, .. } = last(&entries, "vote");
    fs::write(log.path(&file), &whole[&file][..offset]).expect("it can be written");
    refused(&cluster, &["which nothing behind it replaces", "restore the damaged file from a copy"]);
    fs::write(log.path(&file), &whole[&file]).expect("it can be written");
    assert!(log.save() == whole, "nothing else has to be made good");
    // No segment behind the last one can show what is lost with it.
    let (before, end) = (&segments[segments.len() - 2], segments.last().expect("there is one"));
    let first = entries.iter().find(|entry| entry.file == *end).expect("it has records");
    log.flip(end, HEADER_BYTES - 2);
    log.flip(end, first.last_byte());
    refused(&cluster, &[end, "the checksum of the header does not match", "restore the file from a copy"]);
    log.restore(&whole);
    fs::write(log.path(end), &whole[before]).expect("it can be written");
    refused(&cluster, &[end, "it is that of segment", "restore the right file"]);
    log.restore(&whole);

    load.enqueue(MORE).await;
    for index in [0, 1] {
        let client = cluster.client_of(vec![cluster.address(index).to_owned()], CALL_TIMEOUT).await;
        assert_eq!(all_tasks(&client).await.len(), load.attempted, "the other two have all");
    }
    log.restore(&whole);
    cluster.restart(DAMAGED);
    cluster.wait_ready(DAMAGED);
    cluster.wait_led(&[0, 1, 2], &[0, 1, 2]).await;
    load.finish(&cluster).await;
}

/// A single node has no peer to restore records from.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_single_node_refuses_to_forget() {
    let mut cluster = Cluster::start_with(ClusterOptions { nodes: 1, partitions: 4, ..ClusterOptions::default() });
    let load = Load::begin(&cluster).await;
    cluster.kill(0);
    let log = Log::of(&cluster, 0);
    let (entries, whole) = (log.entries(), log.save());
    for kind in ["facts", "ops"] {
        let lost = middle(&entries, kind);
        log.flip(&lost.file, lost.last_byte());
        names_lost(&log, &lost);
        let partition = format!("of partition {} ", lost.partition.expect("it is of a replica"));
        refused(&cluster, &[&partition, "no other replica has", "restore the damaged file from a copy", "log verify"]);
        log.restore(&whole);
    }
    cluster.restart(0);
    cluster.wait_ready(0);
    load.finish(&cluster).await;
}
