//! A cluster is upgraded node by node while clients work.
//!
//! The requirement: three `norn start` processes of the old kind, 8 producers and 10 workers that use all of them the whole time. One
//! node after the other is stopped with SIGTERM and restarted with the new program on its existing log. Between any two steps the
//! cluster is mixed and works; nodes of both kinds serve clients of both kinds. In the end every acknowledged task is completed, none
//! had two holders at once, none is lost.
//!
//! By default old nodes run this build as well, so that the test is a restart of one node after the other. `NORN_OLD_BINARY` names
//! another program: `tests/upgrade.sh` takes both programs and runs the test with them.

use norn_client::client::{ClaimOptions, Client, CompleteOptions};
use norn_client::session::Draft;
use norn_tests::cluster::all_tasks;
use norn_tests::wait::{PATIENCE, eventually, eventually_or, moment};
use norn_tests::workers::drained;
use norn_tests::{Cluster, ClusterOptions, Ledger, WorkerBehaviour, Workers};
use norn_wire::{Acks, QueueName, Versions};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Names the program to upgrade from.
const OLD_VARIABLE: &str = "NORN_OLD_BINARY";
const NODES: usize = 3;
/// Number of large tasks, so that a snapshot replaces a log that is longer than `COMPACT`.
const LARGE: usize = 40;
const LARGE_BYTES: usize = 60_000;
const COMPACT: &str = "compact_bytes=1048576";
/// Number of clients that enqueue.
const PRODUCERS: usize = 8;
/// Number of clients that work.
const WORKERS: usize = 10;
/// Tasks in one call of a producer.
const BATCH: usize = 4;
/// Tasks that must be enqueued, and completed, in each state of the cluster.
const TASKS_PER_STAGE: usize = 200;
/// Length of a lease: short, so that some leases expire.
const LEASE: Duration = Duration::from_secs(3);
/// How long a client repeats a call before its outcome counts as unknown.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit for anything that must be done under load.
const LOADED_PATIENCE: Duration = Duration::from_secs(120);

fn queues() -> Vec<QueueName> {
    ["mail", "images"].map(|name| QueueName::new(name).expect("a name")).to_vec()
}

/// The program of the old nodes, if it differs.
fn old() -> Option<PathBuf> {
    std::env::var_os(OLD_VARIABLE).map(PathBuf::from)
}

/// File extension of snapshots.
const SNAPSHOT: &str = "snapshot";

fn files_of_log(directory: &Path, ends: &[&str]) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("listed").map(|entry| entry.expect("an entry").path());
    entries.filter(|path| path.extension().is_some_and(|end| ends.iter().any(|wanted| end == *wanted))).collect()
}

/// Enqueues until it is stopped. Tasks without an acknowledgement are enqueued again until they have one.
async fn produce(workers: Arc<Workers>, producing: Arc<AtomicBool>, client: Client, producer: usize) {
    let ledger = &workers.ledger;
    for batch in 0.. {
        if !producing.load(Ordering::Relaxed) {
            break;
        }
        let mut open: Vec<Vec<u8>> =
            (0..BATCH).map(|task| format!("producer {producer}, task {}", batch * BATCH + task).into()).collect();
        open.iter().for_each(|payload| ledger.attempted(payload));
        while !open.is_empty() {
            let queue = &queues()[batch % 2];
            let drafts = open.iter().map(|payload| Draft::new(queue.clone(), payload.clone())).collect();
            let results = client.enqueue_many(drafts, Acks::Quorum).await;
            assert_eq!(results.len(), open.len(), "one result for each");
            open = open
                .into_iter()
                .zip(results)
                .filter_map(|(payload, result)| note(ledger, payload, result.ok()))
                .collect();
        }
        moment().await;
    }
}

/// Records the answer to one enqueue; returns the payload if it was not acknowledged.
fn note(ledger: &Ledger, payload: Vec<u8>, acked: Option<norn_wire::Acked>) -> Option<Vec<u8>> {
    match acked {
        Some(acked) => {
            ledger.acknowledged(&payload, acked.id);
            None
        }
        None => {
            ledger.unknown();
            Some(payload)
        }
    }
}

/// A cluster with clients that work all the time.
struct Upgrade {
    cluster: Cluster,
    workers: Arc<Workers>,
    producing: Arc<AtomicBool>,
    producers: JoinSet<()>,
    working: JoinSet<()>,
    started: Instant,
    probes: u64,
}

impl Upgrade {
    async fn start() -> Upgrade {
        let (program, settings) = (old(), vec![COMPACT.to_owned()]);
        let cluster = Cluster::start_with(ClusterOptions { nodes: NODES, program, settings, ..Default::default() });
        let wait = Duration::from_secs(1);
        let behaviour = WorkerBehaviour { queues: queues(), lease: LEASE, wait, claim_max: 10, timeout: CALL_TIMEOUT };
        let mut upgrade = Upgrade {
            cluster,
            workers: Workers::new(behaviour),
            producing: Arc::new(AtomicBool::new(true)),
            producers: JoinSet::new(),
            working: JoinSet::new(),
            started: Instant::now(),
            probes: 0,
        };
        for producer in 0..PRODUCERS {
            let (client, producing) = (upgrade.client().await, Arc::clone(&upgrade.producing));
            upgrade.producers.spawn(produce(Arc::clone(&upgrade.workers), producing, client, producer));
        }
        for worker in 0..WORKERS {
            let client = upgrade.client().await;
            upgrade.working.spawn(Arc::clone(&upgrade.workers).work(client, worker));
        }
        upgrade
    }

    async fn client(&self) -> Client {
        self.cluster.client_of(self.cluster.addresses(), CALL_TIMEOUT).await
    }

    /// Waits until tasks were enqueued and completed in the cluster's present state, and each node has served clients of both kinds.
    async fn works(&mut self, what: &str) {
        let ledger = &self.workers.ledger;
        let (acknowledged, completed) = (ledger.acknowledged_count(), ledger.completed_count());
        eprintln!("{:6.1?}: {acknowledged} acknowledged, {completed} completed; {what}", self.started.elapsed());
        let busy = || async {
            let enough = ledger.acknowledged_count() >= acknowledged + TASKS_PER_STAGE
                && ledger.completed_count() >= completed + TASKS_PER_STAGE;
            enough.then_some(())
        };
        eventually("tasks are enqueued and completed", LOADED_PATIENCE, busy).await;
        for node in 0..NODES {
            for program in [old(), None] {
                let cli = self.cluster.cli_at(node).of_program(program).patient();
                self.probes += 1;
                cli.json(&["enqueue", "probes", &format!("probe {}", self.probes)]).done();
            }
        }
    }

    /// Makes the log of each node grow until a snapshot replaces it.
    async fn compacted(&mut self) {
        let client = self.client().await;
        let probes = || QueueName::new("probes").expect("a name");
        for _ in 0..LARGE {
            let drafts = vec![Draft::new(probes(), vec![b'x'; LARGE_BYTES])];
            let results = client.enqueue_many(drafts, Acks::Quorum).await;
            assert!(results.iter().all(Result::is_ok), "{results:?}");
        }
        self.probes += LARGE as u64;
        client.close().await;
        let is_compacted = |index| !files_of_log(&self.cluster.data(index), &[SNAPSHOT]).is_empty();
        let all = || async { (0..NODES).all(is_compacted).then_some(()) };
        eventually("all nodes have a snapshot", LOADED_PATIENCE, all).await;
    }

    /// Stops an old node and starts a new one on its log.
    async fn upgrade(&mut self, index: usize) {
        assert!(self.cluster.terminate(index).success(), "it hands over and ends");
        assert!(!files_of_log(&self.cluster.data(index), &[SNAPSHOT]).is_empty(), "a snapshot was waited for");
        self.cluster.replace(index, None, Vec::new());
        self.cluster.restart(index);
        self.cluster.wait_ready(index);
        let everybody: Vec<usize> = (0..NODES).collect();
        self.cluster.wait_led(&everybody, &everybody).await;
    }

    /// Waits until a node shows these versions, in the order of the nodes.
    async fn shows(&self, asked: usize, versions: [u8; NODES]) {
        let client = self.cluster.client_of(vec![self.cluster.address(asked).to_owned()], CALL_TIMEOUT).await;
        let look = || async {
            let nodes = client.nodes().await.map_err(|error| error.to_string())?;
            let of =
                |index| nodes.iter().find(|node| node.name == self.cluster.name(index)).and_then(|node| node.version);
            let shown: Vec<Option<u8>> = (0..NODES).map(of).collect();
            if shown == versions.map(Some) { Ok(()) } else { Err(format!("{shown:?}")) }
        };
        eventually_or(&format!("node {asked} shows versions {versions:?}"), PATIENCE, look).await;
        client.close().await;
    }

    /// Drains the queues and checks the books.
    async fn end(mut self) {
        self.producing.store(false, Ordering::Relaxed);
        joined(&mut self.producers).await;
        self.workers.calm();
        let probes = self.cluster.cli().patient().json(&["count", "probes"]).done().object()["count"].as_u64();
        assert_eq!(probes, Some(self.probes), "what clients of both kinds wrote is there");
        let client = self.client().await;
        self.work_off_probes(&client).await;
        drained(&client, LOADED_PATIENCE).await;
        self.workers.stop();
        joined(&mut self.working).await;
        self.cluster.wait_agreed().await;
        let tasks: Vec<_> =
            all_tasks(&client).await.into_iter().filter(|task| queues().contains(&task.spec.queue)).collect();
        let sums = self.workers.ledger.judge(&tasks);
        eprintln!("{:6.1?}: {sums}", self.started.elapsed());
        assert!(sums.violations.is_empty(), "{sums}");
        assert_eq!(
            (sums.lost, sums.acknowledged),
            (0, sums.attempted),
            "producers go on until it is acknowledged: {sums}"
        );
    }

    /// Claims and completes the tasks that commands enqueued.
    async fn work_off_probes(&self, client: &Client) {
        let probes = || QueueName::new("probes").expect("a name");
        let mut done = 0;
        while done < self.probes {
            let options = ClaimOptions::new([probes()]).max(100).wait(Duration::from_secs(1)).timeout(CALL_TIMEOUT);
            let claimed = client.claim(options).await.expect("the cluster is whole again").tasks;
            let options = claimed.iter().map(|claimed| CompleteOptions::new(claimed.granted.id, claimed.granted.token));
            let results = client.complete_many(options.collect(), Acks::Quorum).await;
            done += results.into_iter().filter(Result::is_ok).count() as u64;
        }
    }
}

async fn joined(tasks: &mut JoinSet<()>) {
    while let Some(ended) = tasks.join_next().await {
        ended.expect("clients do not panic");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_upgraded_node_by_node_under_load() {
    let versions = [Versions::SPOKEN.newest; NODES];
    let mut upgrade = Upgrade::start().await;
    upgrade.works("all nodes are old").await;
    upgrade.compacted().await;
    for index in 0..NODES {
        upgrade.upgrade(index).await;
        for asked in 0..=index {
            upgrade.shows(asked, versions).await;
        }
        upgrade.works("one more node is new").await;
    }
    upgrade.end().await;
}
