//! Crashes of real processes under load.
//!
//! The requirement: three `norn start` processes, real QUIC and disks: 10,000 tasks enqueued and drained while the leader of busy
//! partitions is killed with SIGKILL and restarted, a follower is paused with SIGSTOP across an election, and all three are killed at
//! once. Every acknowledged task is completed, none has two holders at once, none is lost.

use norn_client::client::Client;
use norn_client::session::Draft;
use norn_tests::cluster::all_tasks;
use norn_tests::wait::eventually;
use norn_tests::workers::drained;
use norn_tests::{Cluster, Ledger, WorkerBehaviour, Workers};
use norn_wire::response::{NodeView, PartitionView};
use norn_wire::{Acks, QueueName};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Total number of tasks.
const TASKS: usize = 10_000;
/// Tasks in one call of a producer.
const BATCH: usize = 100;
/// Calls that producers make before each fault, and after the last.
const BATCHES_PER_STAGE: usize = TASKS / BATCH / 5;
/// Number of clients that enqueue.
const PRODUCERS: usize = 4;
/// Number of clients that work.
const WORKERS: usize = 4;
/// Tasks that a claim asks for at most.
const CLAIM_MAX: u32 = 40;
/// Length of a lease: short, so that many leases expire while nodes are down.
const LEASE: Duration = Duration::from_secs(4);
/// How long a client repeats a call before its outcome counts as unknown.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit for anything that must be done under load.
const PATIENCE: Duration = Duration::from_secs(120);

fn queues() -> Vec<QueueName> {
    ["mail", "images", "reports"].map(|name| QueueName::new(name).expect("a name")).to_vec()
}

/// State that producers, workers and the test share.
struct Load {
    workers: Arc<Workers>,
    /// One permit for each batch that may be enqueued.
    allowed: Semaphore,
}

impl Load {
    fn new() -> Arc<Load> {
        let wait = Duration::from_secs(1);
        let behaviour =
            WorkerBehaviour { queues: queues(), lease: LEASE, wait, claim_max: CLAIM_MAX, timeout: CALL_TIMEOUT };
        Arc::new(Load { workers: Workers::new(behaviour), allowed: Semaphore::new(0) })
    }

    fn ledger(&self) -> &Ledger {
        &self.workers.ledger
    }

    /// Lets producers continue, and waits until part of the new tasks is enqueued and some are completed, so that the next fault hits
    /// tasks in every state.
    async fn stage(&self) {
        let (acknowledged, completed) = (self.ledger().acknowledged_count(), self.ledger().completed_count());
        self.allowed.add_permits(BATCHES_PER_STAGE);
        let tasks = BATCHES_PER_STAGE * BATCH;
        let busy = || async {
            let enough = self.ledger().acknowledged_count() >= acknowledged + tasks / 2
                && self.ledger().completed_count() >= completed + tasks / 8;
            enough.then_some(())
        };
        eventually("tasks are enqueued and completed", PATIENCE, busy).await;
    }
}

/// Enqueues every `PRODUCERS`-th batch. Tasks without an acknowledgement are enqueued again until they have one.
async fn produce(load: Arc<Load>, client: Client, producer: usize) {
    for batch in (producer..TASKS / BATCH).step_by(PRODUCERS) {
        load.allowed.acquire().await.expect("it is never closed").forget();
        let mut open: Vec<Vec<u8>> = (0..BATCH).map(|task| format!("task {}", batch * BATCH + task).into()).collect();
        open.iter().for_each(|payload| load.ledger().attempted(payload));
        let queue = queues()[batch % queues().len()].clone();
        while !open.is_empty() {
            let drafts = open.iter().map(|payload| Draft::new(queue.clone(), payload.clone())).collect();
            let results = client.enqueue_many(drafts, Acks::Quorum).await;
            assert_eq!(results.len(), open.len(), "one result for each");
            let mut again = Vec::new();
            for (payload, result) in open.into_iter().zip(results) {
                match result {
                    Ok(acked) => load.ledger().acknowledged(&payload, acked.id),
                    Err(_) => {
                        load.ledger().unknown();
                        again.push(payload);
                    }
                }
            }
            open = again;
        }
    }
}

/// Index of the node that leads the most claims, according to a client's view.
async fn busiest_leader(cluster: &Cluster, client: &Client) -> usize {
    let look = || async { client.nodes().await.ok().zip(client.partitions().await.ok()) };
    let (nodes, partitions): (Vec<NodeView>, Vec<PartitionView>) = eventually("views", PATIENCE, look).await;
    let weight = |node: &NodeView| -> u64 {
        let led = partitions.iter().filter(|partition| partition.leader == Some(node.node));
        // The leadership of an idle partition counts a little, so that there always is a busiest node.
        led.map(|partition| 1 + 100 * partition.claims.unwrap_or(0)).sum()
    };
    let busiest = nodes.iter().max_by_key(|node| weight(node)).expect("there are nodes");
    (0..nodes.len()).find(|index| cluster.name(*index) == busiest.name).expect("it is one of ours")
}

/// Kills the leader of busy partitions and restarts it.
async fn kill_a_leader(cluster: &mut Cluster, client: &Client) {
    let leader = busiest_leader(cluster, client).await;
    let others = others_than(cluster, &[leader]);
    cluster.kill(leader);
    cluster.wait_led(&others, &others).await;
    cluster.restart(leader);
    cluster.wait_ready(leader);
}

/// Pauses a follower while the others elect leaders twice: for the partitions that the follower led, and for those of the leader that
/// is killed meanwhile. Then resumes the follower, which does not know how late it is.
async fn pause_a_follower(cluster: &mut Cluster, client: &Client) {
    let leader = busiest_leader(cluster, client).await;
    let others = others_than(cluster, &[leader]);
    let follower = others[0];
    let before = cluster.wait_led(&others, &[0, 1, 2]).await;
    let third = cluster.identity(client, others[1]).await;
    cluster.pause(follower);
    cluster.kill(leader);
    cluster.restart(leader);
    // Partitions that the third node does not still lead must get a new leader: the third node or the restarted one.
    let elected = |partition: &PartitionView| {
        let earlier = before.iter().find(|earlier| earlier.partition == partition.partition).expect("all are known");
        earlier.leader == Some(third) || partition.epoch > earlier.epoch
    };
    let awake = others_than(cluster, &[follower]);
    cluster.wait_led_where(&awake, &awake, elected).await;
    cluster.resume(follower);
    cluster.wait_led(&[follower], &[0, 1, 2]).await;
}

/// Kills all three nodes at the same moment and restarts them.
async fn kill_all(cluster: &mut Cluster) {
    cluster.kill_together(&[0, 1, 2]);
    for index in 0..3 {
        cluster.restart(index);
    }
    cluster.wait_led(&[0, 1, 2], &[0, 1, 2]).await;
}

fn others_than(cluster: &Cluster, some: &[usize]) -> Vec<usize> {
    (0..cluster.addresses().len()).filter(|index| !some.contains(index)).collect()
}

// T6, O1, O7, S5, E1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_and_nothing_is_held_twice() {
    let mut cluster = Cluster::start();
    let load = Load::new();
    let client = cluster.client_of(cluster.addresses(), CALL_TIMEOUT).await;
    let (mut producers, mut workers) = (JoinSet::new(), JoinSet::new());
    for producer in 0..PRODUCERS {
        let own = cluster.client_of(cluster.addresses(), CALL_TIMEOUT).await;
        producers.spawn(produce(Arc::clone(&load), own, producer));
    }
    for worker in 0..WORKERS {
        let own = cluster.client_of(cluster.addresses(), CALL_TIMEOUT).await;
        workers.spawn(Arc::clone(&load.workers).work(own, worker));
    }
    let started = Instant::now();
    let tell = |what: &str| {
        let (acknowledged, completed) = (load.ledger().acknowledged_count(), load.ledger().completed_count());
        eprintln!("{:6.1?}: {acknowledged} acknowledged, {completed} completed; {what}", started.elapsed());
    };
    load.stage().await;
    tell("a busy leader is killed");
    kill_a_leader(&mut cluster, &client).await;
    load.stage().await;
    tell("a follower stands still across an election");
    pause_a_follower(&mut cluster, &client).await;
    load.stage().await;
    tell("all nodes are killed");
    kill_all(&mut cluster).await;
    load.stage().await;
    tell("a busy leader is killed again");
    kill_a_leader(&mut cluster, &client).await;
    load.stage().await;
    tell("no more faults");
    while let Some(ended) = producers.join_next().await {
        ended.expect("producers do not panic");
    }
    load.workers.calm();
    drained(&client, PATIENCE).await;
    tell("drained");
    load.workers.stop();
    while let Some(ended) = workers.join_next().await {
        ended.expect("workers do not panic");
    }
    cluster.wait_agreed().await;
    let tasks = all_tasks(&client).await;
    let sums = load.ledger().judge(&tasks);
    eprintln!("{:6.1?}: {sums}", started.elapsed());
    assert!(sums.violations.is_empty(), "{sums}");
    assert_eq!((sums.attempted, sums.lost), (TASKS as u64, 0));
    assert_eq!(sums.acknowledged, TASKS as u64, "producers go on until it is");
    assert!(tasks.windows(2).all(|pair| pair[0].id < pair[1].id), "a list is in order");
}
