//! Stores in this process, on real directories.

use crate::{Store, StoreError, StoreOptions, SyncPolicy};
use norn_client::client::{ClaimOptions, Client, CompleteOptions};
use norn_client::session::Draft;
use norn_client::wire::{ErrorCode, QueueName, Request, Response, State, TaskId};
use norn_client::worker::{Outcome, Worker};
use norn_host::disk::FileDiskError;
use norn_host::replay::OpenError;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

fn queue(name: &str) -> QueueName {
    QueueName::new(name).unwrap()
}

async fn enqueue(store: &Store, name: &str, payload: &str) -> TaskId {
    store.client().enqueue(Draft::new(queue(name), payload)).await.unwrap().id
}

async fn state(client: &Client, id: TaskId) -> State {
    client.get(id).await.unwrap().state
}

/// The whole life of a task, as the documentation shows it.
// T1: a store without the service
#[tokio::test]
async fn a_task_lives_from_its_enqueue_to_its_end_in_one_process() {
    let directory = TempDir::new().unwrap();
    let store = Store::open(directory.path().join("tasks")).await.unwrap();
    let id = enqueue(&store, "mail", "hello").await;
    let claims = store.client().claim(ClaimOptions::new([queue("mail")])).await.unwrap();
    let [claimed] = claims.tasks.as_slice() else { panic!("{claims:?}") };
    assert_eq!((claimed.granted.id, &*claimed.granted.payload), (id, &b"hello"[..]));
    assert!(store.client().claim(ClaimOptions::new([queue("mail")])).await.unwrap().tasks.is_empty(), "it is held");
    let done = CompleteOptions::new(id, claimed.granted.token).result("sent");
    store.client().complete(done).await.unwrap();
    assert_eq!(state(store.client(), id).await, State::Done);
    store.close().await.unwrap();
}

/// Goal: what was acknowledged outlives the process, whether it closes the store or not, and so do claims with their tokens.
#[tokio::test]
async fn tasks_and_claims_outlive_a_store_that_was_dropped_or_closed() {
    let directory = TempDir::new().unwrap();
    let mut known = Vec::new();
    let mut held = None;
    for round in 0..4 {
        let store = open_soon(directory.path()).await;
        for id in &known {
            assert_ne!(state(store.client(), *id).await, State::Done);
        }
        match held.take() {
            None => {
                let claims = store.client().claim(ClaimOptions::new([queue("q0")])).await.unwrap();
                held = claims.tasks.first().map(|claimed| (claimed.granted.id, claimed.granted.token));
            }
            Some((id, token)) => {
                store.client().renew(id, token, None).await.unwrap();
                held = Some((id, token));
            }
        }
        known.push(enqueue(&store, &format!("q{round}"), "x").await);
        // A store that is not closed may be dropped at any time.
        if round % 2 == 0 {
            drop(store);
        } else {
            store.close().await.unwrap();
        }
    }
    assert!(held.is_some());
}

// E15
/// Goal: the first request after a start meets the state of the whole log. Method: a log with some operations of each kind is replayed,
/// and the first answers have all of them.
#[tokio::test]
async fn the_first_answer_after_an_opening_has_every_operation() {
    const TASKS: u64 = 80;
    let directory = TempDir::new().unwrap();
    let store = Store::open(directory.path()).await.unwrap();
    for number in 0..TASKS {
        enqueue(&store, "mail", &number.to_string()).await;
    }
    let taken = store.client().claim(ClaimOptions::new([queue("mail")]).max(20)).await.unwrap().tasks;
    assert_eq!(taken.len(), 20);
    for claimed in &taken[..10] {
        store.client().complete(CompleteOptions::new(claimed.granted.id, claimed.granted.token)).await.unwrap();
    }
    let last = enqueue(&store, "mail", "last").await;
    store.close().await.unwrap();
    for (state, count) in [(State::Ready, TASKS - 19), (State::Claimed, 10), (State::Done, 10)] {
        let store = Store::open(directory.path()).await.unwrap();
        let count_of = Request::Count { queue: Some(queue("mail")), state: Some(state) };
        assert_eq!(store.ask(count_of).await, Some(Response::Count(count)), "{state:?}, at the first request");
        store.close().await.unwrap();
    }
    let store = Store::open(directory.path()).await.unwrap();
    assert_eq!(state(store.client(), last).await, State::Ready);
    store.close().await.unwrap();
}

/// Opens a store once the one that was dropped has let go of the directory.
async fn open_soon(directory: &Path) -> Store {
    let opened = async {
        loop {
            match Store::open(directory).await {
                Err(StoreError::Open(OpenError::Directory(FileDiskError::Held { .. }))) => {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                opened => return opened.unwrap(),
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), opened).await.expect("the directory is let go of")
}

#[tokio::test]
async fn a_directory_has_one_store_at_a_time_and_a_second_one_is_told_who_holds_it() {
    let directory = TempDir::new().unwrap();
    let store = Store::open(directory.path()).await.unwrap();
    let refused = Store::open(directory.path()).await.unwrap_err().to_string();
    assert!(refused.contains("is held by"), "{refused}");
    store.close().await.unwrap();
    Store::open(directory.path()).await.unwrap().close().await.unwrap();
}

#[tokio::test]
async fn options_that_cannot_be_met_are_refused_before_anything_is_made() {
    let directory = TempDir::new().unwrap();
    let place = directory.path().join("tasks");
    let defaults = StoreOptions::default;
    let wrong = [
        StoreOptions { partitions: 3, ..defaults() },
        StoreOptions { partitions: 0, ..defaults() },
        StoreOptions { partitions: 1 << 20, ..defaults() },
        StoreOptions { tasks_max: 0, ..defaults() },
        StoreOptions { name: String::new(), ..defaults() },
        StoreOptions { sync: SyncPolicy::Interval(u64::MAX), ..defaults() },
        StoreOptions { disk_bytes_max: Some(1 << 20), ..defaults() },
    ];
    for options in wrong {
        let refused = Store::open_with(&place, options).await;
        assert!(matches!(refused, Err(StoreError::Options(_))), "{refused:?}");
        assert!(!place.exists());
    }
    std::fs::write(directory.path().join("letter.txt"), "a file of another program").unwrap();
    let refused = Store::open(directory.path()).await.unwrap_err().to_string();
    assert!(refused.contains("letter.txt"), "{refused}");
}

/// Goal: a store that may take no more room refuses new tasks, and goes on with what it has.
#[tokio::test]
async fn a_store_without_room_refuses_tasks_and_completes_those_it_has() {
    let directory = TempDir::new().unwrap();
    let options = StoreOptions { disk_bytes_max: Some(32 << 20), ..StoreOptions::default() };
    let store = Store::open_with(directory.path(), options).await.unwrap();
    let id = enqueue(&store, "first", "x").await;
    let payload = vec![b'x'; 256 << 10];
    let filled = async {
        loop {
            if let Err(error) = store.client().enqueue(Draft::new(queue("q"), payload.clone())).await {
                return error;
            }
        }
    };
    let refused = tokio::time::timeout(Duration::from_secs(120), filled).await.expect("it is full");
    assert!(refused.code.is_full(), "{refused:?}");
    let claims = store.client().claim(ClaimOptions::new([queue("first")])).await.unwrap();
    let done = CompleteOptions::new(id, claims.tasks[0].granted.token);
    store.client().complete(done).await.unwrap();
    store.close().await.unwrap();
}

/// Goal: no call is left waiting by the end of its store: one that waits for a task ends, and a later one ends at once.
#[tokio::test]
async fn calls_under_way_end_with_their_store() {
    let directory = TempDir::new().unwrap();
    let store = Store::open(directory.path()).await.unwrap();
    let client = store.client_named("waits", Duration::from_secs(600));
    let waiting = client.clone();
    let claim =
        tokio::spawn(
            async move { waiting.claim(ClaimOptions::new([queue("never")]).wait(Duration::from_secs(300))).await },
        );
    client.count(None, None).await.unwrap();
    store.close().await.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(60), claim).await.expect("it ends").unwrap();
    let error = ended.expect_err("the store is gone");
    assert!(error.message.contains("the node has stopped: the store was closed"), "{error:?}");
    let later = client.count(None, None).await.unwrap_err();
    assert_eq!(later.code, ErrorCode::Unavailable, "{later:?}");
    assert!(client.unreached().is_some_and(|why| why.contains("the store was closed")));
}

/// Goal: a store whose disk fails acknowledges nothing more, and says why at once, to open calls and to later ones. Method: its directory
/// is gone when the log needs another file.
#[tokio::test]
async fn a_store_whose_disk_fails_stops_and_says_why() {
    let directory = TempDir::new().unwrap();
    let place = directory.path().join("tasks");
    let store = Store::open(&place).await.unwrap();
    enqueue(&store, "q", "before").await;
    std::fs::remove_dir_all(&place).unwrap();
    let payload = vec![b'x'; 256 << 10];
    let failed = async {
        loop {
            if let Err(error) = store.client().enqueue(Draft::new(queue("q"), payload.clone())).await {
                return error;
            }
        }
    };
    let error = tokio::time::timeout(Duration::from_secs(120), failed).await.expect("it fails");
    assert!(matches!(error.code, ErrorCode::Unknown | ErrorCode::Unavailable), "{error:?}");
    assert!(error.message.contains("the log failed"), "{error:?}");
    let later = store.client().enqueue(Draft::new(queue("q"), "later")).await.unwrap_err();
    assert_eq!(later.code, ErrorCode::Unavailable, "{later:?}");
    let why = store.failure().expect("it has stopped").to_owned();
    assert!(why.contains("the log failed") && later.message.contains(&why), "{later:?}");
    assert_eq!(store.ask(Request::Ping).await, None);
    let closed = store.close().await.unwrap_err().to_string();
    assert!(closed.contains(&why), "{closed}");
}

/// Goal: handlers run over a store as over a cluster.
#[tokio::test]
async fn a_worker_runs_handlers_over_a_store() {
    let directory = TempDir::new().unwrap();
    let options = StoreOptions { sync: SyncPolicy::Interval(5), ..StoreOptions::default() };
    let store = Store::open_with(directory.path(), options).await.unwrap();
    let mut ids = Vec::new();
    for number in 0..50 {
        ids.push(enqueue(&store, "double", &number.to_string()).await);
    }
    let worker = Worker::new(store.client().clone()).concurrency(4).handler("double", |context| async move {
        let number: u64 = std::str::from_utf8(context.payload()).unwrap().parse().unwrap();
        Outcome::Done(Some((2 * number).to_string().into_bytes()))
    });
    let client = store.client_named("waits", Duration::from_secs(60));
    let all_done = async {
        for (number, id) in ids.iter().enumerate() {
            let task = client.wait(*id, Duration::from_secs(60)).await.unwrap();
            assert_eq!(task.result.map(|result| result.into_vec()), Some((2 * number).to_string().into_bytes()));
        }
    };
    tokio::select! {
        () = all_done => {}
        ended = worker.run_until(std::future::pending()) => panic!("{ended:?}"),
    }
    store.close().await.unwrap();
}

#[test]
fn the_document_shows_the_example_that_compiles() {
    let example = include_str!("../examples/mail.rs");
    let (_, code) = example.split_once("\n\n").expect("a line of documentation, then the program");
    assert!(include_str!("../../docs/store.md").contains(code), "node/docs/store.md and examples/mail.rs differ");
}
