//! Goal: a handler that hangs loses its task, and its worker goes on.

use super::*;
use std::sync::mpsc;

/// Only for handlers that hang: on a slow machine anything else may take longer.
pub(super) const LIMIT: Duration = Duration::from_millis(300);

/// The reported reason of a task that failed by its limit.
pub(super) fn timed_out(table: &Mutex<Table>, place: usize) -> String {
    match &table.lock().unwrap().fates[place] {
        Fate::Failed { reason, retry_in_ms: 0, retry_open: true, invalid: false } => reason.clone(),
        other => panic!("its policy decides on the next attempt: {other:?}"),
    }
}

// O5
#[tokio::test]
async fn a_handler_that_hangs_is_stopped_at_its_limit_and_its_worker_goes_on() {
    /// Records the node's state of its task when dropped.
    struct Dropped(Arc<Mutex<Table>>, Arc<Mutex<Vec<Fate>>>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            let fate = self.0.lock().unwrap().fates[0].clone();
            self.1.lock().unwrap().push(fate);
        }
    }
    let table = Table::new(2);
    let bench = bench(&table).await;
    let (dropped, told) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicUsize::new(0)));
    let (seen, drops, tells) = (Arc::clone(&table), Arc::clone(&dropped), Arc::clone(&told));
    let hangs = move |context: Context| {
        let (guard, tells) = (Dropped(Arc::clone(&seen), Arc::clone(&drops)), Arc::clone(&tells));
        async move {
            context.spawn(crate::session::Draft::new("mail".parse().unwrap(), "never"));
            let beside = context.clone();
            tokio::spawn(async move {
                beside.lease_lost().await;
                assert!(!beside.progress(), "it is over for good");
                tells.fetch_add(1, Ordering::SeqCst);
            });
            let _guard = guard;
            std::future::pending().await
        }
    };
    // The limit of the handler's own queue counts, and that of the worker for the others.
    let options = HandlerOptions::new().time_limit(LIMIT);
    let mail = bench.worker.handler_with("mail", options, hangs);
    let worker = mail.handler("print", async |_: Context| Outcome::Done(None)).concurrency(1);
    let summary = worker.run_until(all_ended(Arc::clone(&table))).await.unwrap();
    assert_eq!(summary, Summary { done: 1, timed_out: 1, ..Summary::default() });
    let reason = timed_out(&table, 0);
    assert!(reason.contains("ran longer than its time limit of 300ms") && reason.ends_with("was stopped"), "{reason}");
    assert_eq!(dropped.lock().unwrap()[..], [Fate::Held], "it is not claimable as long as the handler runs");
    reaches(told, 1).await;
    assert_eq!(table.lock().unwrap().children.len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_handler_that_blocks_its_thread_cannot_be_stopped_but_loses_its_task() {
    let table = Table::new(2);
    let bench = bench(&table).await;
    let (release, released) = mpsc::channel::<()>();
    let (say, said) = mpsc::channel();
    let released = Mutex::new(Some(released));
    let blocks = move |context: Context| {
        let (released, say) = (released.lock().unwrap().take().expect("it is called once"), say.clone());
        async move {
            // On the thread that it blocks: that does not stop the worker.
            say.send(context.progress()).unwrap();
            // Blocks until the sender is dropped.
            let _ = released.recv();
            say.send(context.progress()).unwrap();
            Outcome::Done(None)
        }
    };
    let mail = bench.worker.handler_with("mail", HandlerOptions::new().time_limit(LIMIT), blocks);
    let worker = mail.handler("print", async |_: Context| Outcome::Done(None)).concurrency(1);
    let summary = worker.run_until(all_ended(Arc::clone(&table))).await.unwrap();
    assert_eq!(summary, Summary { done: 1, timed_out: 1, ..Summary::default() }, "while the first is still blocked");
    assert!(timed_out(&table, 0).ends_with("blocks its thread"), "{}", timed_out(&table, 0));
    drop(release);
    assert_eq!([said.recv().unwrap(), said.recv().unwrap()], [true, false], "it learns of that when it asks");
}

/// Waits on a thread outside the runtime: on one of its own it would block what it waits for.
fn block_until_over(context: &Context) {
    let (limits, runtime) = (Arc::clone(&context.limits), tokio::runtime::Handle::current());
    std::thread::spawn(move || runtime.block_on(limits.over())).join().unwrap();
    // Now the worker stops the handler, which must change nothing.
    std::thread::sleep(Duration::from_millis(50));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_handler_that_ends_before_it_can_be_stopped_has_its_outcome_reported() {
    let table = Table::new(2);
    let bench = bench(&table).await;
    let done = async |context: Context| {
        context.spawn(crate::session::Draft::new("mail".parse().unwrap(), "kept"));
        block_until_over(&context);
        Outcome::Done(Some(b"paid".to_vec()))
    };
    let invalid = async |context: Context| {
        block_until_over(&context);
        Outcome::Invalid { reason: "bad".into() }
    };
    let told = Arc::new(AtomicUsize::new(0));
    let tells = Arc::clone(&told);
    let on_invalid = move |_: Context, _: String| -> InvalidHandling {
        let tells = Arc::clone(&tells);
        Box::pin(async move {
            // The limit restarts.
            after(1).await;
            tells.fetch_add(1, Ordering::SeqCst);
        })
    };
    let worker = bench.worker.time_limit(LIMIT).handler("mail", done).handler("print", invalid);
    let worker = worker.invalid_handler(on_invalid).concurrency(2);
    let summary = worker.run_until(all_ended(Arc::clone(&table))).await.unwrap();
    assert_eq!(summary, Summary { done: 1, invalid: 1, overran: 2, ..Summary::default() });
    assert_eq!(told.load(Ordering::SeqCst), 1);
    let table = table.lock().unwrap();
    assert_eq!(table.fates[0], Fate::Done { result: Some(b"paid".to_vec()), sequence: Some(0) });
    assert_eq!(table.children.len(), 1);
}

#[tokio::test]
async fn what_is_given_up_and_not_reported_when_the_drain_ends_is_released() {
    let table = Table::new(1);
    table.lock().unwrap().failures_ignored = Some(0);
    let bench = bench(&table).await;
    let worker = bench.worker.time_limit(LIMIT).handler("mail", endless_handler().0);
    let reported = Arc::clone(&table);
    let reported = async move { until(|| reported.lock().unwrap().failures_ignored > Some(0)).await };
    let summary = worker.drain_timeout(Duration::ZERO).run_until(reported).await.unwrap();
    assert_eq!(summary, Summary { timed_out: 1, ..Summary::default() });
    assert_eq!(table.lock().unwrap().fates[0], Fate::Released);
}

/// Even if no node takes the report, the lease ends.
#[tokio::test]
async fn what_is_given_up_is_not_renewed_any_more_and_takes_no_room_beyond_its_lease() {
    let table = Table::new(2);
    table.lock().unwrap().failures_ignored = Some(0);
    let bench = bench(&table).await;
    let renewals_before = Arc::new(Mutex::new(None));
    let seen = (Arc::clone(&table), Arc::clone(&renewals_before));
    let hangs = move |context: Context| {
        let (table, before) = seen.clone();
        tokio::spawn(async move {
            context.lease_lost().await;
            *before.lock().unwrap() = Some(table.lock().unwrap().renewals.len());
        });
        std::future::pending()
    };
    let mail = bench.worker.handler_with("mail", HandlerOptions::new().time_limit(LIMIT), hangs);
    let worker = mail.handler("print", async |_: Context| Outcome::Done(None)).lease(SHORT_LEASE).concurrency(1);
    let served = Arc::clone(&table);
    let goes_on = async move {
        until(|| matches!(served.lock().unwrap().fates[1], Fate::Done { .. })).await;
    };
    let summary = worker.run_until(goes_on).await.unwrap();
    assert_eq!(summary, Summary { done: 1, timed_out: 1, ..Summary::default() });
    let table = table.lock().unwrap();
    assert!(table.failures_ignored > Some(0), "it was reported");
    // One renewal may have been under way.
    let before = renewals_before.lock().unwrap().expect("what ran beside the handler has learned of it");
    assert!(table.renewals.len() <= before + 1, "{:?}, {before} of them before it was given up", table.renewals);
}

#[tokio::test]
async fn a_handler_of_invalid_tasks_that_hangs_or_panics_holds_up_no_report() {
    let table = Table::new(4);
    let bench = bench(&table).await;
    let invalid = |context: Context, _: String| -> InvalidHandling {
        // In the call itself, not only in the future that it returns.
        assert_ne!(context.payload(), b"2", "on purpose");
        Box::pin(async move {
            if context.payload() == b"0" {
                std::future::pending::<()>().await;
            }
        })
    };
    let handler = async |_: Context| Outcome::Invalid { reason: "bad".into() };
    let mail = bench.worker.handler_with("mail", HandlerOptions::new().time_limit(LIMIT * 5), handler);
    let worker = mail.handler("print", handler);
    let summary = worker.invalid_handler(invalid).run_until(all_ended(Arc::clone(&table))).await.unwrap();
    assert_eq!(summary, Summary { invalid: 4, ..Summary::default() });
    let is_invalid = |fate: &Fate| matches!(fate, Fate::Failed { reason, invalid: true, .. } if reason == "bad");
    assert!(table.lock().unwrap().fates.iter().all(is_invalid), "{table:?}");
}
