//! Goal: the claim for a free slot does not wait for a report, and completions share calls.

use super::*;
use tokio::sync::Barrier;

/// A handler that ends at once, and the number of its calls.
fn quick_handler() -> (impl Fn(Context) -> Handling, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let handler = move |_: Context| -> Handling {
        counted.fetch_add(1, Ordering::SeqCst);
        Box::pin(std::future::ready(Outcome::Done(None)))
    };
    (handler, calls)
}

/// Goal: a worker takes the next task before the completion of the last is answered, but holds no more than twice its concurrency while
/// completions are not answered, and gives back what is not known to be completed. Method: a node that answers no completion.
#[tokio::test]
async fn the_next_claim_does_not_wait_for_the_report_of_the_last() {
    let table = Table::new(8);
    table.lock().unwrap().ignore_completions = true;
    let bench = bench(&table).await;
    let (handler, calls) = quick_handler();
    let completed = Arc::clone(&table);
    let shutdown = async move {
        reaches(calls, 2).await;
        until(|| completed.lock().unwrap().completions.iter().sum::<usize>() >= 2).await;
    };
    let worker = bench.worker.handler("mail", handler).drain_timeout(Duration::ZERO);
    let summary = worker.run_until(shutdown).await.unwrap();
    assert_eq!(summary, Summary { released: 2, ..Summary::default() });
    let table = table.lock().unwrap();
    // A third claim would have left with the second completion, and so before the releases.
    assert_eq!(table.claims.len(), 2);
    let released = |fate: &&Fate| **fate == Fate::Released;
    assert_eq!(table.fates.iter().filter(released).count(), 2);
}

/// Goal: outcomes other than completions free their slots as well.
#[tokio::test]
async fn the_next_claim_does_not_wait_for_the_report_of_a_failure() {
    let table = Table::new(4);
    table.lock().unwrap().failures_ignored = Some(0);
    let bench = bench(&table).await;
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let handler = move |_: Context| {
        counted.fetch_add(1, Ordering::SeqCst);
        std::future::ready(Outcome::Retry { reason: "busy".into() })
    };
    let worker = bench.worker.handler("mail", handler).drain_timeout(Duration::ZERO);
    let summary = worker.run_until(reaches(calls, 2)).await.unwrap();
    assert_eq!(summary, Summary { released: 2, ..Summary::default() });
}

#[tokio::test]
async fn completions_that_are_ready_together_are_one_call() {
    let table = Table::new(6);
    let bench = bench(&table).await;
    let barrier = Arc::new(Barrier::new(3));
    let handler = move |_: Context| {
        let barrier = Arc::clone(&barrier);
        async move {
            barrier.wait().await;
            Outcome::Done(None)
        }
    };
    let worker = bench.worker.handler("mail", handler).concurrency(3);
    let mail_ended = {
        let table = Arc::clone(&table);
        async move {
            let is_done = |fate: &Fate| matches!(fate, Fate::Done { .. });
            until(|| table.lock().unwrap().fates.iter().step_by(2).all(is_done)).await;
        }
    };
    assert_eq!(worker.run_until(mail_ended).await.unwrap().done, 3);
    assert_eq!(table.lock().unwrap().completions, [3]);
}

/// Goal: what is wrong with one completion concerns no other that shares its call.
#[tokio::test]
async fn a_completion_that_is_refused_spoils_no_other() {
    let table = Table::new(4);
    let bench = bench(&table).await;
    let barrier = Arc::new(Barrier::new(2));
    let handler = move |context: Context| {
        let barrier = Arc::clone(&barrier);
        async move {
            barrier.wait().await;
            let bytes = if context.payload() == b"0" { limits::PAYLOAD_BYTES_MAX + 1 } else { 1 };
            Outcome::Done(Some(vec![7; bytes]))
        }
    };
    let worker = bench.worker.handler("mail", handler).concurrency(2);
    let ended = {
        let table = Arc::clone(&table);
        async move {
            let is_open = |fate: &Fate| matches!(fate, Fate::Waiting | Fate::Held);
            until(|| !table.lock().unwrap().fates.iter().step_by(2).any(is_open)).await;
        }
    };
    let summary = worker.run_until(ended).await.unwrap();
    assert_eq!(summary, Summary { done: 1, invalid: 1, ..Summary::default() });
}
