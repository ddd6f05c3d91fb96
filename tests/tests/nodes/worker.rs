//! The `Worker` of the client library, end to end: the behaviour that applications rely on.

use norn_client::client::{ClaimOptions, Client, CompleteOptions};
use norn_client::session::Draft;
use norn_client::worker::{Context, Outcome, Summary, Worker};
use norn_tests::Cluster;
use norn_tests::wait::{PATIENCE, eventually, until_instant};
use norn_wire::response::TaskView;
use norn_wire::{QueueName, State, TaskId};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

fn queue(name: &str) -> QueueName {
    QueueName::new(name).expect("a name")
}

async fn enqueue(client: &Client, name: &str, payload: &str) -> TaskId {
    client.enqueue(Draft::new(queue(name), payload)).await.expect("the cluster serves").id
}

async fn ended(client: &Client, id: TaskId) -> TaskView {
    let look = || async { client.get(id).await.ok().filter(|task| has_ended(task.state)) };
    eventually("the task ends", PATIENCE, look).await
}

fn has_ended(state: State) -> bool {
    matches!(state, State::Done | State::Dead | State::Cancelled)
}

/// A worker that runs beside the test until the test stops it.
struct Running {
    stop: oneshot::Sender<()>,
    run: JoinHandle<Summary>,
}

impl Running {
    fn start(worker: Worker) -> Running {
        let (stop, stopped) = oneshot::channel::<()>();
        let worker = worker.poll(Duration::from_millis(200));
        let run = tokio::spawn(async move {
            let ended = async { stopped.await.expect("the test stops its workers") };
            worker.run_until(ended).await.expect("the settings are right")
        });
        Running { stop, run }
    }

    async fn stop(self) -> Summary {
        self.stop.send(()).expect("it runs");
        self.run.await.expect("it ends well")
    }
}

// O6, O9, O10, O16, O37
/// One handler for each kind of task, several tasks at once, and every outcome that a handler can have. Kinds without a handler are
/// not claimed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_serve_their_queues() {
    let cluster = Cluster::start();
    let client = cluster.client().await;
    let (mut letters, mut images) = (Vec::new(), Vec::new());
    for number in 0..20 {
        letters.push(enqueue(&client, "letters", &format!("letter {number}")).await);
        images.push(enqueue(&client, "space/images", &format!("image {number}")).await);
    }
    let foreign = enqueue(&client, "films", "for others").await;
    let (invalid, again, panics) = (
        enqueue(&client, "letters", "nonsense").await,
        enqueue(&client, "letters", "again").await,
        enqueue(&client, "letters", "panic").await,
    );
    let letter = |context: Context| async move {
        match (context.payload(), context.attempt()) {
            (b"nonsense", _) => Outcome::Invalid { reason: "not a letter".into() },
            (b"again", 1) => Outcome::RetryLater { after: Duration::from_millis(1), reason: "busy".into() },
            (b"panic", 1) => panic!("a bug in a handler"),
            (payload, _) => Outcome::Done(Some(payload.to_ascii_uppercase())),
        }
    };
    let image = |context: Context| async move {
        assert_eq!(context.queue().to_string(), "space/images");
        Outcome::Done(None)
    };
    let worker = Worker::new(client.clone()).name("all").concurrency(8).lease(Duration::from_secs(60));
    let running = Running::start(worker.handler("letters", letter).handler("space/images", image));
    for (number, id) in letters.iter().enumerate() {
        let task = ended(&client, *id).await;
        assert_eq!(task.state, State::Done);
        assert_eq!(task.result.expect("a result"), format!("LETTER {number}").into_bytes());
        assert_eq!(task.claims[0].worker, "all");
    }
    for id in images {
        assert_eq!(ended(&client, id).await.state, State::Done);
    }
    let dead = ended(&client, invalid).await;
    assert_eq!(dead.state, State::Dead);
    assert!(dead.reason.expect("a reason").contains("not a letter"));
    for id in [again, panics] {
        let task = ended(&client, id).await;
        assert_eq!((task.state, task.claims.len()), (State::Done, 2), "{task:?}");
    }
    let summary = running.stop().await;
    // A repeated request for a retry may find that the next attempt has begun.
    let ended = (summary.done, summary.invalid, summary.retried + summary.lost, summary.released);
    assert_eq!(ended, (42, 1, 2, 0), "{summary:?}");
    let foreign = client.get(foreign).await.expect("the cluster serves");
    assert_eq!((foreign.state, foreign.claims.len()), (State::Ready, 0), "{foreign:?}");
}

// C17
/// A worker never holds more than it can work on at once: other tasks stay available to other workers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_claims_as_long_as_it_has_room() {
    const ROOM: usize = 2;
    const TASKS: usize = 12;
    let cluster = Cluster::start();
    let client = cluster.client().await;
    for number in 0..TASKS {
        enqueue(&client, "rooms", &format!("{number}")).await;
    }
    let (held, rival_runs) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicUsize::new(0)));
    let (counts, counting, full) = (Arc::clone(&held), client.clone(), Arc::new(Notify::new()));
    let go_on = Arc::clone(&full);
    let handler = move |_: Context| {
        let (counts, counting, full) = (Arc::clone(&counts), counting.clone(), Arc::clone(&full));
        async move {
            let told = full.notified();
            let claimed = counting.count(Some(queue("rooms")), Some(State::Claimed)).await.expect("the cluster serves");
            counts.lock().expect("no panics").push(claimed);
            told.await;
            Outcome::Done(None)
        }
    };
    let worker = Worker::new(client.clone()).concurrency(ROOM).lease(Duration::from_secs(60));
    let running = Running::start(worker.handler("rooms", handler));
    let begun = || async { (held.lock().expect("no panics").len() == ROOM).then_some(()) };
    eventually("as many handlers run as there is room for", PATIENCE, begun).await;

    // While both handlers run, another worker can get all other tasks.
    let runs = Arc::clone(&rival_runs);
    let rival = Running::start(Worker::new(cluster.client().await).concurrency(1).handler("rooms", move |_| {
        runs.fetch_add(1, Ordering::Relaxed);
        async { Outcome::Done(None) }
    }));
    let done = || async { (rival_runs.load(Ordering::Relaxed) == TASKS - ROOM).then_some(()) };
    eventually("the other one has done the rest", PATIENCE, done).await;
    go_on.notify_waiters();
    assert_eq!(rival.stop().await.done as usize, TASKS - ROOM);
    assert_eq!(running.stop().await.done as usize, ROOM);
    assert!(held.lock().expect("no panics").iter().all(|claimed| *claimed as usize <= ROOM), "{held:?}");
}

// T47, O4, O40
/// A handler that takes longer than its lease keeps its task, and no other worker gets it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_job_is_renewed() {
    let cluster = Cluster::start();
    let client = cluster.client().await;
    let lease = Duration::from_secs(16);
    let id = enqueue(&client, "long", "job").await;
    let handler = move |_: Context| async move {
        until_instant(Instant::now() + lease * 3 / 2).await;
        Outcome::Done(None)
    };
    let rival_runs = Arc::new(AtomicUsize::new(0));
    let runs = Arc::clone(&rival_runs);
    let running = Running::start(Worker::new(client.clone()).lease(lease).handler("long", handler));
    let held = || async { client.get(id).await.ok().filter(|task| task.state == State::Claimed) };
    eventually("the task is claimed", PATIENCE, held).await;
    let rival = Running::start(Worker::new(cluster.client().await).lease(lease).handler("long", move |_| {
        runs.fetch_add(1, Ordering::Relaxed);
        async { Outcome::Done(None) }
    }));
    let task = ended(&client, id).await;
    assert_eq!((task.state, task.claims.len()), (State::Done, 1), "{task:?}");
    assert_eq!(rival_runs.load(Ordering::Relaxed), 0);
    assert_eq!(rival.stop().await, Summary::default());
    assert_eq!(running.stop().await.done, 1);
}

// O5, O11, S8, S25, S26
/// The next attempt reads the checkpoints of an attempt that failed, and of one whose worker vanished, and continues from there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_attempt_goes_on_from_the_checkpoints() {
    let cluster = Cluster::start();
    let client = cluster.client().await;
    let id = enqueue(&client, "parts", "six").await;

    // The worker of the first attempt writes one entry and then vanishes.
    let options = ClaimOptions::new([queue("parts")]).lease(Duration::from_secs(1)).wait(PATIENCE);
    let first = client.claim(options).await.expect("the cluster serves").tasks.remove(0);
    let (token, acks) = (first.granted.token, norn_wire::Acks::Quorum);
    client.update(id, token, 0, "part 0", acks).await.expect("the claim is held");

    let done = Arc::new(Mutex::new(Vec::new()));
    let parts = Arc::clone(&done);
    let handler = move |context: Context| {
        let parts = Arc::clone(&parts);
        async move {
            let begun = context.updates().len();
            for part in begun..6 {
                context.checkpoint(format!("part {part}")).await.expect("the claim is held");
                parts.lock().expect("no panics").push((context.attempt(), part));
                if part == 3 {
                    return Outcome::RetryLater { after: Duration::ZERO, reason: "half way".into() };
                }
            }
            Outcome::Done(None)
        }
    };
    let running = Running::start(Worker::new(client.clone()).lease(Duration::from_secs(60)).handler("parts", handler));
    let task = ended(&client, id).await;
    assert_eq!(task.state, State::Done);
    assert_eq!(*done.lock().expect("no panics"), [(2, 1), (2, 2), (2, 3), (3, 4), (3, 5)]);
    let log: Vec<String> = task.updates.iter().map(|entry| String::from_utf8_lossy(&entry.data).into_owned()).collect();
    assert_eq!(log, ["part 0", "part 1", "part 2", "part 3", "part 4", "part 5"]);
    let tokens: BTreeSet<_> = task.updates.iter().map(|entry| entry.token).collect();
    assert_eq!(tokens.len(), 3, "each entry is of its claim");
    assert!(!task.log_incomplete);
    let summary = running.stop().await;
    // A repeated request for a retry may find that the next attempt has begun.
    let ended = (summary.done, summary.invalid, summary.retried + summary.lost, summary.released);
    assert_eq!(ended, (1, 0, 1, 0), "{summary:?}");
}

// C10
/// A worker that is stopped finishes its tasks, claims nothing more, and releases tasks that do not finish in time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_drains() {
    let cluster = Cluster::start();
    let client = cluster.client().await;
    let (begun, finish) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let mut ids = Vec::new();
    for number in 0..4 {
        ids.push(enqueue(&client, "drain", &format!("{number}")).await);
    }
    let worker = |patience: Duration| {
        let (begun, finish) = (Arc::clone(&begun), Arc::clone(&finish));
        let handler = move |_: Context| {
            let (begun, finish) = (Arc::clone(&begun), Arc::clone(&finish));
            async move {
                let told = finish.notified();
                begun.fetch_add(1, Ordering::Relaxed);
                told.await;
                Outcome::Done(None)
            }
        };
        let worker = Worker::new(client.clone()).concurrency(2).lease(Duration::from_secs(60));
        Running::start(worker.drain_timeout(patience).handler("drain", handler))
    };
    let two_begun = |before: usize| {
        let begun = Arc::clone(&begun);
        move || {
            let begun = begun.load(Ordering::Relaxed);
            async move { (begun == before + 2).then_some(()) }
        }
    };

    // Two tasks are in progress at the time of the stop. They finish, and the others stay ready.
    let patient = worker(PATIENCE);
    eventually("two handlers run", PATIENCE, two_begun(0)).await;
    let stopping = tokio::spawn(patient.stop());
    let held = || async { (client.count(None, Some(State::Claimed)).await.ok()? == 2).then_some(()) };
    eventually("two are held", PATIENCE, held).await;
    assert!(!stopping.is_finished());
    finish.notify_waiters();
    assert_eq!(stopping.await.expect("it ends"), Summary { done: 2, ..Summary::default() });
    assert_eq!(begun.load(Ordering::Relaxed), 2);
    assert_eq!(client.count(Some(queue("drain")), Some(State::Done)).await.ok(), Some(2));

    // The next worker has no drain timeout: its tasks can be claimed at once, long before the leases would end.
    let hasty = worker(Duration::ZERO);
    eventually("two handlers run", PATIENCE, two_begun(2)).await;
    assert_eq!(hasty.stop().await, Summary { released: 2, ..Summary::default() });
    let options = ClaimOptions::new([queue("drain")]).max(2).wait(Duration::from_secs(20));
    let again = client.claim(options).await.expect("the cluster serves").tasks;
    assert!(!again.is_empty(), "what was given back is there");
    let tasks: Vec<State> = state_of(&client, &ids).await;
    assert_eq!(tasks.iter().filter(|state| **state == State::Done).count(), 2);
}

async fn state_of(client: &Client, ids: &[TaskId]) -> Vec<State> {
    let mut states = Vec::new();
    for id in ids {
        states.push(client.get(*id).await.expect("the cluster serves").state);
    }
    states
}

// O38, O39
/// A handler is stopped when its lease is lost: because the task has ended otherwise, or because no node answers any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_lease_stops_the_handler() {
    let cluster = Cluster::start();
    let client = cluster.client().await;
    let (running_now, told) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (now, lost) = (Arc::clone(&running_now), Arc::clone(&told));
    let handler = move |context: Context| {
        let (now, lost) = (Arc::clone(&now), Arc::clone(&lost));
        let beside = context.clone();
        tokio::spawn(async move {
            beside.lease_lost().await;
            lost.fetch_add(1, Ordering::Relaxed);
        });
        async move {
            let _running = Counted::new(now);
            std::future::pending().await
        }
    };
    let lease = Duration::from_secs(10);
    let worker = Worker::new(client.clone()).lease(lease).concurrency(2).drain_timeout(Duration::ZERO);
    let running = Running::start(worker.handler("lost", handler));
    let count = |wanted: usize| {
        let running_now = Arc::clone(&running_now);
        move || {
            let count = running_now.load(Ordering::Relaxed);
            async move { (count == wanted).then_some(()) }
        }
    };

    let cancelled = enqueue(&client, "lost", "cancelled").await;
    eventually("the handler runs", PATIENCE, count(1)).await;
    client.cancel(cancelled, "not wanted", norn_wire::Acks::Quorum).await.expect("the cluster serves");
    eventually("the handler is stopped", PATIENCE, count(0)).await;

    let id = enqueue(&client, "lost", "cut off").await;
    eventually("the handler runs", PATIENCE, count(1)).await;
    for index in 0..3 {
        cluster.pause(index);
    }
    eventually("the handler is stopped, by the worker's own clock", PATIENCE, count(0)).await;
    let stopped = running.stop().await;
    // On a slow machine the worker may have lost a task before, and claimed it again.
    assert!(stopped.lost >= 2 && stopped.done == 0, "{stopped:?}");
    let all_told = || async { (told.load(Ordering::Relaxed) as u64 >= stopped.lost).then_some(()) };
    eventually("all that were lost are told", PATIENCE, all_told).await;
    for index in 0..3 {
        cluster.resume(index);
    }
    // The abandoned claim expires, and another worker gets the task.
    let options = ClaimOptions::new([queue("lost")]).wait(PATIENCE);
    let next = client.claim(options).await.expect("the cluster serves again").tasks.remove(0);
    assert!(next.granted.id == id && next.granted.attempt >= 2, "{next:?}");
    let options = CompleteOptions::new(id, next.granted.token);
    client.complete(options).await.expect("the cluster serves");
}

// O5
/// A handler that hangs holds its task and its worker no longer than its progress limit, even if the lease is renewed: the task is
/// retried, or dies if that was its last attempt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_hangs_gives_its_task_up() {
    let cluster = Cluster::start();
    let client = cluster.client().await;
    let stuck = |attempts: u32| client.enqueue(Draft::new(queue("stuck"), "job").attempts_max(attempts));
    let (last, again) =
        (stuck(1).await.expect("the cluster serves").id, stuck(2).await.expect("the cluster serves").id);
    let running_now = Arc::new(AtomicUsize::new(0));
    let now = Arc::clone(&running_now);
    let handler = move |context: Context| {
        let now = Arc::clone(&now);
        async move {
            if context.attempt() == 1 {
                let _running = Counted::new(now);
                std::future::pending::<()>().await;
            }
            Outcome::Done(None)
        }
    };
    let worker = Worker::new(client.clone()).lease(Duration::from_secs(60)).progress_limit(Duration::from_secs(2));
    let running = Running::start(worker.handler("stuck", handler));
    let dead = ended(&client, last).await;
    assert_eq!(dead.state, State::Dead);
    let reason = dead.reason.expect("a reason");
    assert!(reason.contains("no progress for its progress limit of 2s"), "{reason}");
    let done = ended(&client, again).await;
    assert_eq!((done.state, done.claims.len()), (State::Done, 2), "{done:?}");
    assert_eq!(running_now.load(Ordering::Relaxed), 0);
    let summary = running.stop().await;
    assert_eq!(summary, Summary { done: 1, timed_out: 2, ..Summary::default() });
}

/// Counts itself while it exists.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(count: Arc<AtomicUsize>) -> Counted {
        count.fetch_add(1, Ordering::Relaxed);
        Counted(count)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
