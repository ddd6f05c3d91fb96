//! A cluster under load whose network gets faults, or whose partitions move, and the verdict on what its clients saw.
//!
//! Each node has a producer and a worker that know only this node, so that the answers to them show the state of the network: clients
//! of a node without a majority must be refused, all others must make progress. When the network is whole again the trial checks the
//! books: every acknowledged task is done, no task had two holders at once, and tokens grew.

use crate::cluster::all_tasks;
use crate::network::{Counts, Party};
use crate::wait::{PATIENCE, eventually_or, moment, until, until_instant};
use crate::workers::{ClaimCall, drained};
use crate::{Cli, Cluster, ClusterOptions, Ledger, Rule, WorkerBehaviour, Workers};
use norn_client::client::Client;
use norn_client::session::Draft;
use norn_model::ring::partition_of_task;
use norn_wire::response::PartitionView;
use norn_wire::{Acks, ErrorCode, NodeId, PartitionId, QueueName, TaskId, Token};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

/// Names the minimum duration of a shape in seconds.
const SECONDS_VARIABLE: &str = "NORN_NETWORK_SECONDS";
/// Default duration: long enough for nodes to give up their connections, which takes 3 s.
const SECONDS_DEFAULT: f64 = 4.0;
/// Number of partitions: few, so that each always has work.
const PARTITIONS: u32 = 8;
/// Length of a lease: short, so that some leases expire within a shape.
const LEASE: Duration = Duration::from_millis(1_500);
/// How long a claim waits for work.
const WAIT: Duration = Duration::from_millis(400);
/// Tasks that a claim asks for at most.
const CLAIM_MAX: u32 = 8;
/// How long a client repeats a call before its outcome counts as unknown.
const CALL_TIMEOUT: Duration = Duration::from_secs(3);
/// Tasks that a producer enqueues at once, each with its own call.
const PRODUCED: usize = 3;
/// Least time between two rounds of a producer. A steady load shows what clients see; one that fills the machine only slows down all
/// that the trial waits for.
const ROUND: Duration = Duration::from_millis(100);
/// Where no disk is lost, one round of a producer in this many asks for a single replica.
const SLOPPY_EVERY: usize = 4;
/// Time after which claims count as stuck. They take one or two seconds on an otherwise idle machine.
const LIVENESS: Duration = PATIENCE;

/// Minimum duration of a shape.
fn shape_lasts() -> Duration {
    let seconds = std::env::var(SECONDS_VARIABLE).ok().map(|text| text.parse::<f64>().expect("a number of seconds"));
    Duration::from_secs_f64(seconds.unwrap_or(SECONDS_DEFAULT))
}

/// A cluster under load. Must be dropped in the thread that started it.
#[derive(Debug)]
pub struct Trial {
    name: &'static str,
    cluster: Cluster,
    nodes: usize,
    /// Number of producers, and of workers.
    pairs: usize,
    partitions: u32,
    proxied: bool,
    workers: Arc<Workers>,
    producing: Arc<AtomicBool>,
    producers: JoinSet<()>,
    working: JoinSet<()>,
    identities: Vec<NodeId>,
    /// Leader and epoch of each partition before the first fault.
    led: BTreeMap<PartitionId, (usize, u64)>,
}

/// A state of the network, and since when it holds.
#[derive(Debug)]
pub struct Shape {
    since: Instant,
    /// Datagram counts at that time for each directed pair that is cut.
    cut: BTreeMap<(usize, usize), Counts>,
}

impl Trial {
    /// Starts a cluster under load with this many replicas of each partition.
    pub async fn start(name: &'static str, nodes: usize, replicas: u32) -> Trial {
        let options = ClusterOptions { nodes, partitions: PARTITIONS, replicas: Some(replicas), ..Default::default() };
        Trial::start_with(name, ClusterOptions { proxied: true, ..options }).await
    }

    /// Starts another kind of cluster under load.
    pub async fn start_with(name: &'static str, options: ClusterOptions) -> Trial {
        let pairs = options.nodes;
        Trial::begin(name, options, pairs, Some(SLOPPY_EVERY)).await
    }

    /// The same for a cluster that may lose a disk: no write is acknowledged while it is on a single disk.
    pub async fn start_strict(name: &'static str, options: ClusterOptions) -> Trial {
        let pairs = options.nodes;
        Trial::begin(name, options, pairs, None).await
    }

    /// The same with this many pairs of a producer and a worker, which know all founding nodes.
    pub async fn start_crowded(name: &'static str, options: ClusterOptions, pairs: usize) -> Trial {
        assert!(pairs > options.nodes, "a crowd is more than one pair at each node");
        Trial::begin(name, options, pairs, None).await
    }

    async fn begin(name: &'static str, options: ClusterOptions, pairs: usize, sloppy_every: Option<usize>) -> Trial {
        let ClusterOptions { nodes, partitions, proxied, .. } = options;
        let cluster = Cluster::start_with(options);
        let everybody: Vec<usize> = (0..nodes).collect();
        let led = cluster.wait_led(&everybody, &everybody).await;
        let behaviour = WorkerBehaviour {
            queues: vec![queue()],
            lease: LEASE,
            wait: WAIT,
            claim_max: CLAIM_MAX,
            timeout: CALL_TIMEOUT,
        };
        let mut trial = Trial {
            name,
            cluster,
            nodes,
            pairs,
            partitions,
            proxied,
            workers: Workers::new(behaviour),
            producing: Arc::new(AtomicBool::new(true)),
            producers: JoinSet::new(),
            working: JoinSet::new(),
            identities: Vec::new(),
            led: BTreeMap::new(),
        };
        trial.identify().await;
        trial.led = trial.leaders(&led);
        let began = Instant::now();
        for pair in 0..pairs {
            let (producer, worker) = (trial.client_of_pair(pair).await, trial.client_of_pair(pair).await);
            let producing = Arc::clone(&trial.producing);
            let produce = produce(Arc::clone(&trial.workers), producing, producer, pair, sloppy_every);
            trial.producers.spawn(produce);
            trial.working.spawn(Arc::clone(&trial.workers).work(worker, pair));
        }
        trial.works("all is well", began, &trial.everybody()).await;
        trial
    }

    fn tell(&self, what: &str, healed: Instant) {
        eprintln!("{}: {:.1} s after healing: {what}", self.name, healed.elapsed().as_secs_f64());
    }

    async fn client_at(&self, node: usize) -> Client {
        self.cluster.client_of(vec![self.cluster.address(node).to_owned()], CALL_TIMEOUT).await
    }

    /// A client for a pair. With one pair for each node, the client knows only that node. In a crowd it knows all nodes.
    async fn client_of_pair(&self, pair: usize) -> Client {
        if self.pairs == self.nodes {
            return self.client_at(pair).await;
        }
        let mut addresses = self.cluster.addresses();
        addresses.rotate_left(pair % self.nodes);
        self.cluster.client_of(addresses, CALL_TIMEOUT).await
    }

    async fn identify(&mut self) {
        let client = self.cluster.client().await;
        for node in 0..self.nodes {
            self.identities.push(self.cluster.identity(&client, node).await);
        }
    }

    /// Leader and epoch of each partition that has a leader, according to the views of one node.
    fn leaders(&self, partitions: &[PartitionView]) -> BTreeMap<PartitionId, (usize, u64)> {
        let leader = |view: &PartitionView| self.identities.iter().position(|node| Some(*node) == view.leader);
        let led = partitions.iter().filter_map(|view| Some((view.partition, (leader(view)?, view.epoch))));
        led.collect()
    }

    /// The cluster, for operations on its nodes.
    pub fn cluster(&mut self) -> &mut Cluster {
        &mut self.cluster
    }

    /// The verbs, at any member.
    pub fn cli(&self) -> Cli {
        self.cluster.cli()
    }

    /// The longest time between two instants in which no claim was granted to any worker.
    pub fn longest_silence(&self, from: Instant, to: Instant) -> Duration {
        longest_silence(&self.workers.calls(), from, to)
    }

    /// Indices of all workers. Unless they are a crowd, these are also the indices of their nodes.
    pub fn everybody(&self) -> Vec<usize> {
        (0..self.pairs).collect()
    }

    /// The node that led most partitions before the first fault.
    pub fn busiest(&self) -> usize {
        let leads = |node: &usize| self.led.values().filter(|(leader, _)| leader == node).count();
        (0..self.nodes).max_by_key(leads).expect("there are nodes")
    }

    /// Gives the network a shape: datagrams from one node to another pass where `connected` returns true, and are lost elsewhere.
    pub fn cut(&self, connected: impl Fn(usize, usize) -> bool) -> Shape {
        let network = self.cluster.network();
        network.connect(&connected);
        let since = Instant::now();
        let pairs = (0..self.nodes).flat_map(|from| (0..self.nodes).map(move |to| (from, to)));
        let cut = pairs.filter(|(from, to)| from != to && !connected(*from, *to));
        let cut = cut.map(|(from, to)| ((from, to), self.counts(from, to))).collect();
        Shape { since, cut }
    }

    /// Applies the same rule to all paths between nodes.
    pub fn spoil(&self, rule: Rule) -> Shape {
        self.cluster.network().shape(|_, _| rule);
        Shape { since: Instant::now(), cut: BTreeMap::new() }
    }

    /// Counts of all datagrams between nodes.
    pub fn counts_between_nodes(&self) -> Counts {
        self.cluster.network().counts(|from, to| from != Party::Client && to != Party::Client)
    }

    fn counts(&self, from: usize, to: usize) -> Counts {
        self.cluster.network().counts(|one, other| (one, other) == (Party::Node(from), Party::Node(to)))
    }

    /// Waits until every partition has granted a task to one of these workers in a call that began at `since` or later. Returns how
    /// long that took: the time to a working leader, plus a little until a task arrives.
    pub async fn works(&self, what: &str, since: Instant, workers: &[usize]) -> Duration {
        let granting = || async {
            let first = first_grants(&self.workers.calls(), self.partitions, since, workers);
            let slowest = first.values().map(|(told, _)| *told - since).max();
            let missing: Vec<u32> =
                (0..self.partitions).filter(|number| !first.contains_key(&PartitionId(*number as u16))).collect();
            slowest.filter(|_| missing.is_empty()).ok_or_else(|| format!("nothing of partitions {missing:?}"))
        };
        let expected = format!("{}: {what}, and workers {workers:?} get tasks of all partitions", self.name);
        let took = eventually_or(&expected, LIVENESS, granting).await;
        eprintln!("{}: {what}: claims in all partitions after {:.2} s", self.name, took.as_secs_f64());
        took
    }

    /// Waits until nodes of these workers lead all partitions, each according to at least one of these nodes. No node needs to know
    /// all leaders.
    async fn led(&self, since: Instant, workers: &[usize]) -> Duration {
        let mut clients = Vec::new();
        for node in workers {
            clients.push(self.client_at(*node).await);
        }
        let led = || async {
            let mut good = BTreeSet::new();
            for client in &clients {
                let leaders = self.leaders(&client.partitions().await.map_err(|error| error.to_string())?);
                let leads = leaders.iter().filter(|(_, (leader, _))| workers.contains(leader));
                good.extend(leads.map(|(partition, _)| *partition));
            }
            if good.len() == self.partitions as usize { Ok(since.elapsed()) } else { Err(format!("{good:?} are led")) }
        };
        let expected = format!("{}: {workers:?} lead all partitions", self.name);
        let took = eventually_or(&expected, LIVENESS, led).await;
        for client in clients {
            client.close().await;
        }
        took
    }

    /// Waits until these workers get tasks of all partitions under this shape. Prints how long that took, and how long their nodes
    /// needed to have a leader for each partition.
    pub async fn works_in(&self, shape: &Shape, what: &str, workers: &[usize]) {
        let (led, _) = tokio::join!(self.led(shape.since, workers), self.works(what, shape.since, workers));
        eprintln!("{}: {what}: leaders of all partitions after {:.2} s", self.name, led.as_secs_f64());
    }

    /// The same, then waits until the shape has lasted its minimum duration.
    pub async fn goes_on(&self, shape: &Shape, what: &str, workers: &[usize]) {
        self.works_in(shape, what, workers).await;
        self.lasts(shape).await;
    }

    /// Waits until the shape has lasted its minimum duration.
    pub async fn lasts(&self, shape: &Shape) {
        until_instant(shape.since + shape_lasts()).await;
    }

    /// Waits until every path that the shape cuts has lost a datagram. Where a connection was down before, the next attempt may be a
    /// second away.
    pub fn bites(&self, shape: &Shape) {
        for ((from, to), before) in &shape.cut {
            let lost = || self.counts(*from, *to).dropped > before.dropped;
            until(&format!("{}: something from {from} to {to} is lost", self.name), lost);
        }
    }

    /// Asserts that these workers claimed since the network has this shape, and that nothing was granted to them.
    pub async fn starve(&self, shape: &Shape, workers: &[usize]) {
        for worker in workers {
            let asked = || async {
                let of_worker = calls_since(&self.workers.calls(), shape.since, *worker);
                if of_worker.is_empty() { Err("no answer to a claim".to_owned()) } else { Ok(of_worker) }
            };
            let calls = eventually_or("a claim has been refused", PATIENCE, asked).await;
            assert_eq!(granted(&calls), None, "{}: worker {worker} has no majority", self.name);
        }
    }

    /// Asserts that these nodes led some partitions, and that new leaders have taken all of them over.
    pub fn succeeded(&self, shape: &Shape, lost: &[usize]) {
        let grants = latest_grants(&self.workers.calls(), self.partitions, shape.since);
        let led: BTreeMap<_, _> = self.led.iter().filter(|(_, (leader, _))| lost.contains(leader)).collect();
        assert!(!led.is_empty(), "{}: nodes {lost:?} led nothing", self.name);
        let epochs = led.into_iter().map(|(partition, (_, epoch))| (*partition, *epoch));
        assert_eq!(not_succeeded(epochs, &grants), [], "{}: {lost:?} lead still", self.name);
    }

    /// Heals the network, and requires that all workers get tasks of all partitions again. Then drains the queues and checks the
    /// books.
    pub async fn end(mut self) {
        if self.proxied {
            self.cluster.network().heal();
        }
        let healed = Instant::now();
        self.works("healed", healed, &self.everybody()).await;
        for worker in self.everybody() {
            let client_works = || async {
                let calls = calls_since(&self.workers.calls(), healed, worker);
                granted(&calls).ok_or_else(|| format!("{} calls", calls.len()))
            };
            eventually_or(&format!("{}: worker {worker} gets tasks", self.name), LIVENESS, client_works).await;
        }
        let repeats = || async { self.workers.ledger.has_repeats().then_some(()).ok_or("none".to_owned()) };
        eventually_or(&format!("{}: a task is handed out again", self.name), LIVENESS, repeats).await;
        self.producing.store(false, Ordering::Relaxed);
        joined(&mut self.producers).await;
        self.tell("no producer waits", healed);
        self.workers.calm();
        let client = self.cluster.client().await;
        drained(&client, PATIENCE).await;
        self.tell("drained", healed);
        self.workers.stop();
        joined(&mut self.working).await;
        self.cluster.wait_agreed().await;
        let sums = self.workers.ledger.judge(&all_tasks(&client).await);
        self.tell(&format!("equal; {sums}"), healed);
        assert!(sums.violations.is_empty(), "{}: {sums}", self.name);
        assert_eq!((sums.lost, sums.copies), (0, 0), "{}: {sums}", self.name);
        assert_eq!(sums.acknowledged + sums.refused, sums.attempted, "producers go on until they know");
        assert!(sums.duplicated > 0, "{}: leases ran out, and workers gave tasks back", self.name);
    }
}

async fn joined(tasks: &mut JoinSet<()>) {
    while let Some(ended) = tasks.join_next().await {
        ended.expect("clients do not panic");
    }
}

fn queue() -> QueueName {
    QueueName::new("mail").expect("a name")
}

/// Calls of a worker that began at this instant or later.
fn calls_since(calls: &[ClaimCall], since: Instant, worker: usize) -> Vec<ClaimCall> {
    calls.iter().filter(|call| call.worker == worker && call.asked >= since).cloned().collect()
}

/// The longest time between two instants in which no call was answered with a grant.
fn longest_silence(calls: &[ClaimCall], from: Instant, to: Instant) -> Duration {
    let granted = calls.iter().filter(|call| !call.granted.is_empty()).map(|call| call.told);
    let mut heard: Vec<Instant> = granted.filter(|told| (from..to).contains(told)).chain([from, to]).collect();
    heard.sort_unstable();
    heard.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
}

/// The first grant in these calls.
fn granted(calls: &[ClaimCall]) -> Option<(TaskId, Token)> {
    calls.iter().find_map(|call| call.granted.first().copied())
}

/// From partitions with their leaders' former epochs, those that have granted nothing since, or nothing under a later epoch.
fn not_succeeded(
    epochs: impl Iterator<Item = (PartitionId, u64)>,
    grants: &BTreeMap<PartitionId, (Instant, Token)>,
) -> Vec<PartitionId> {
    let succeeded =
        |(partition, epoch): &(PartitionId, u64)| grants.get(partition).is_some_and(|(_, token)| token.epoch > *epoch);
    epochs.filter(|led| !succeeded(led)).map(|(partition, _)| partition).collect()
}

/// For each partition the first grant to one of these workers in a call that began at `since` or later.
fn first_grants(
    calls: &[ClaimCall],
    partitions: u32,
    since: Instant,
    workers: &[usize],
) -> BTreeMap<PartitionId, (Instant, Token)> {
    let mut first: BTreeMap<PartitionId, (Instant, Token)> = BTreeMap::new();
    for call in calls.iter().filter(|call| call.asked >= since && workers.contains(&call.worker)) {
        for (id, token) in &call.granted {
            let earliest = first.entry(partition_of_task(id, partitions)).or_insert((call.told, *token));
            if call.told < earliest.0 {
                *earliest = (call.told, *token);
            }
        }
    }
    first
}

/// For each partition the latest grant in a call that began at `since` or later. The former leader may still have granted a call that
/// was under way when the shape came.
fn latest_grants(calls: &[ClaimCall], partitions: u32, since: Instant) -> BTreeMap<PartitionId, (Instant, Token)> {
    let mut latest: BTreeMap<PartitionId, (Instant, Token)> = BTreeMap::new();
    for call in calls.iter().filter(|call| call.asked >= since) {
        for (id, token) in &call.granted {
            let last = latest.entry(partition_of_task(id, partitions)).or_insert((call.told, *token));
            *last = (*last).max((call.told, *token));
        }
    }
    latest
}

/// Enqueues until it is stopped. Repeats an attempt with unknown outcome under the same id until the outcome is known.
async fn produce(
    workers: Arc<Workers>,
    producing: Arc<AtomicBool>,
    client: Client,
    node: usize,
    sloppy_every: Option<usize>,
) {
    let mut rounds = tokio::time::interval_at(tokio::time::Instant::now() + ROUND, ROUND);
    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut round = 0;
    while producing.load(Ordering::Relaxed) {
        let is_sloppy = sloppy_every.is_some_and(|every| round % every == every - 1);
        let acks = if is_sloppy { Acks::One } else { Acks::Quorum };
        let mut calls = JoinSet::new();
        for number in 0..PRODUCED {
            let payload = format!("node {node}, task {}", round * PRODUCED + number).into_bytes();
            workers.ledger.attempted(&payload);
            let (workers, client) = (Arc::clone(&workers), client.clone());
            calls.spawn(async move { enqueue(&workers.ledger, &client, payload, acks).await });
        }
        joined(&mut calls).await;
        rounds.tick().await;
        round += 1;
    }
}

async fn enqueue(ledger: &Ledger, client: &Client, payload: Vec<u8>, acks: Acks) {
    let mut id: Option<TaskId> = None;
    loop {
        let draft = Draft::new(queue(), payload.clone());
        let error = match client.enqueue_with(id.into_iter().fold(draft, Draft::id), acks).await {
            Ok(acked) => return ledger.acknowledged(&payload, acked.id),
            Err(error) => error,
        };
        match error.code {
            ErrorCode::Unknown => ledger.unknown(),
            // The session never sent it.
            ErrorCode::Unavailable if id.is_none() => return ledger.refused(&payload),
            ErrorCode::Unavailable => {}
            _ => panic!("nothing but the network is bad: {error:?}"),
        }
        id = id.or(error.id);
        moment().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use norn_wire::ids::TAG_BITS;

    /// A grant of a task of this partition, with the answer a second after the request.
    fn call(worker: usize, asked: Instant, partition: u32, epoch: u64) -> ClaimCall {
        let tag = partition * ((1 << TAG_BITS) / PARTITIONS);
        let granted = vec![(TaskId::new(1, 0, 0, tag), Token { epoch, number: 1 })];
        ClaimCall { worker, asked, told: asked + Duration::from_secs(1), granted }
    }

    #[test]
    fn the_first_grant_of_each_partition_is_found() {
        let now = Instant::now();
        let later = |seconds: u64| now + Duration::from_secs(seconds);
        let calls = [
            call(0, later(1), 3, 1),
            call(0, later(4), 3, 3),
            call(1, later(3), 3, 2),
            call(2, later(2), 3, 9),
            call(0, later(2), 7, 1),
        ];
        let first = first_grants(&calls, PARTITIONS, later(2), &[0, 1]);
        let found: Vec<_> =
            first.into_iter().map(|(partition, (told, token))| (partition, told, token.epoch)).collect();
        assert_eq!(found, [(PartitionId(3), later(4), 2), (PartitionId(7), later(3), 1)]);
        assert_eq!(calls_since(&calls, later(2), 0).len(), 2);
    }

    #[test]
    fn the_longest_silence_is_found() {
        let now = Instant::now();
        let later = |seconds: u64| now + Duration::from_secs(seconds);
        let nothing = ClaimCall { granted: Vec::new(), ..call(0, later(5), 1, 1) };
        // Each is answered a second after its request.
        let calls = [call(0, later(6), 1, 1), nothing, call(1, later(1), 1, 1), call(0, later(20), 1, 1)];
        assert_eq!(longest_silence(&calls, now, later(10)), Duration::from_secs(5));
        assert_eq!(longest_silence(&calls, later(8), later(10)), Duration::from_secs(2));
    }

    #[test]
    fn a_grant_without_a_majority_is_found() {
        let now = Instant::now();
        let nothing = ClaimCall { worker: 0, asked: now, told: now, granted: Vec::new() };
        assert_eq!(granted(&[nothing.clone(), nothing.clone()]), None);
        assert!(granted(&[nothing, call(0, now, 1, 1)]).is_some());
    }

    #[test]
    fn leaders_that_were_not_replaced_are_found() {
        let now = Instant::now();
        let grants = first_grants(&[call(0, now, 1, 5), call(0, now, 2, 5)], PARTITIONS, now, &[0]);
        let epochs = [(1, 4), (2, 5), (3, 1)].map(|(partition, epoch)| (PartitionId(partition), epoch));
        assert_eq!(not_succeeded(epochs.into_iter(), &grants), [PartitionId(2), PartitionId(3)]);
    }
}
