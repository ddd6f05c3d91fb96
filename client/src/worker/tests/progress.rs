//! Goal: a handler that makes no progress loses its task, one that makes some keeps it, and a lease is as long as its handler says.

use super::hangs::{LIMIT, timed_out};
use super::*;

const MINUTE: Duration = Duration::from_secs(60);

/// When the limit of progress ends.
fn ends(context: &Context) -> Instant {
    context.limits.progress.at().expect("it is not over")
}

// O5
/// Method: the first attempt hangs under a lease that its worker renews; the limit of the handler's own queue counts.
#[tokio::test]
async fn a_handler_without_progress_fails_its_attempt_at_once_whatever_its_lease() {
    let table = Table::new(2);
    let bench = bench(&table).await;
    let (endless, _) = endless_handler();
    let options = HandlerOptions::new().progress_limit(LIMIT);
    let worker = bench.worker.progress_limit(MINUTE).handler_with("mail", options, endless);
    let worker = worker.handler("print", async |_: Context| Outcome::Done(None)).concurrency(1);
    let summary = worker.run_until(all_ended(Arc::clone(&table))).await.unwrap();
    assert_eq!(summary, Summary { done: 1, timed_out: 1, ..Summary::default() });
    let reason = timed_out(&table, 0);
    assert!(reason.starts_with("the handler reported no progress for its progress limit of 300ms"), "{reason}");
    assert!(reason.ends_with("was stopped"), "{reason}");
}

// O5
/// Method: each report of progress puts the end of the limit off; nothing waits for it.
#[tokio::test]
async fn a_checkpoint_a_report_and_a_renewal_by_the_handler_are_progress() {
    let table = Table::new(1);
    let bench = bench(&table).await;
    let handler = async |context: Context| {
        let start = ends(&context);
        context.checkpoint("a part").await.unwrap();
        let written = ends(&context);
        assert!(written > start, "a checkpoint");
        assert!(context.progress());
        let told = ends(&context);
        assert!(told > written, "a report");
        let lease_ends = context.renew(10 * MINUTE).await.unwrap();
        assert!(ends(&context) >= lease_ends && lease_ends > told, "a handler may use the lease that it asked for");
        assert!(context.progress() && ends(&context) >= lease_ends, "a later report takes none of it");
        Outcome::Done(None)
    };
    let worker = bench.worker.progress_limit(MINUTE).handler("mail", handler);
    assert_eq!(worker.run_until(all_ended(Arc::clone(&table))).await.unwrap().done, 1);
}

// O4, O5
/// Method: a renewal for longer than the worker's leases, and one for less. The worker plans its next one by what holds.
#[tokio::test]
async fn a_handler_renews_its_lease_for_a_length_that_it_names() {
    let table = Table::new(1);
    let bench = bench(&table).await;
    let handler = async |context: Context| {
        let begun = Instant::now();
        let planned = context.held.renew_at();
        let long = context.renew(10 * MINUTE).await.unwrap();
        assert!(long >= begun + 9 * MINUTE, "{:?}", long - begun);
        let later = context.held.renew_at();
        assert!(later > planned + 8 * MINUTE && later < long, "the worker leaves the longer lease alone");
        // The answer to a renewal of the worker that was under way before.
        context.held.renewed(Ok(begun + Duration::from_millis(LEASE_MS)));
        assert_eq!(context.held.renew_at(), later, "it neither shortens the lease nor the plan");
        let short = context.renew(Duration::from_secs(1)).await.unwrap();
        assert!(short >= long, "a renewal never shortens");
        for wrong in [Duration::ZERO, 61 * MINUTE] {
            assert_eq!(context.renew(wrong).await.unwrap_err().code, ErrorCode::Invalid);
        }
        Outcome::Done(None)
    };
    let worker = bench.worker.handler("mail", handler);
    assert_eq!(worker.run_until(all_ended(Arc::clone(&table))).await.unwrap().done, 1);
    assert_eq!(table.lock().unwrap().lengths_ms, [600_000, 1_000]);
}

// O5
/// Method: the node refuses the renewal, and what runs beside the handler tries another one.
#[tokio::test]
async fn a_claim_that_is_over_cannot_be_renewed_by_its_handler() {
    let table = Table::new(1);
    table.lock().unwrap().refuse_renewals = Some(ErrorCode::Superseded);
    let bench = bench(&table).await;
    let (say, said) = oneshot::channel();
    let say = Mutex::new(Some(say));
    let handler = move |context: Context| {
        let (say, beside) = (say.lock().unwrap().take(), context.clone());
        tokio::spawn(async move {
            beside.lease_lost().await;
            let refused = beside.renew(MINUTE).await.unwrap_err();
            say.map(|say| say.send((refused.code, beside.progress())))
        });
        async move {
            let refused = context.renew(MINUTE).await.unwrap_err();
            assert_eq!(refused.code, ErrorCode::Superseded);
            std::future::pending().await
        }
    };
    let lost = async { assert_eq!(said.await.unwrap(), (ErrorCode::Ended, false)) };
    let summary = bench.worker.handler("mail", handler).run_until(lost).await.unwrap();
    assert_eq!(summary, Summary { lost: 1, ..Summary::default() });
    assert_eq!(table.lock().unwrap().lengths_ms, [60_000], "the second one is not sent");
}

// O5
#[tokio::test]
async fn a_limit_is_an_hour_without_progress_unless_it_is_set() {
    let table = Table::new(1);
    let handler = async |_: Context| Outcome::Done(None);
    let worker = bench(&table).await.worker.handler("mail", handler);
    assert_eq!((worker.time_limit, worker.progress_limit), (Duration::MAX, 60 * MINUTE));
    assert_eq!(PROGRESS_LIMIT, 60 * MINUTE);

    let none = HandlerOptions::new().time_limit(Duration::ZERO);
    let still = HandlerOptions::new().progress_limit(Duration::ZERO);
    let changes: [Box<dyn Fn(Worker) -> Worker>; 4] = [
        Box::new(|worker| worker.time_limit(Duration::ZERO)),
        Box::new(|worker| worker.progress_limit(Duration::ZERO)),
        Box::new(move |worker| worker.handler_with("print", none.clone(), handler)),
        Box::new(move |worker| worker.handler_with("print", still.clone(), handler)),
    ];
    for change in changes {
        let worker = bench(&table).await.worker.handler("mail", handler);
        let refused = change(worker).run_until(after(0)).await.unwrap_err();
        assert!(refused.code == ErrorCode::Invalid && refused.message.contains("limit of 0s"), "{refused}");
    }

    let bench = bench(&table).await;
    let worker = bench.worker.handler("mail", handler).progress_limit(Duration::MAX).drain_timeout(Duration::MAX);
    let summary = worker.run_until(all_ended(Arc::clone(&table))).await.unwrap();
    assert_eq!(summary, Summary { done: 1, ..Summary::default() });
}
