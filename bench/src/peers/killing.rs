//! One node is killed under load: how long clients wait, and what becomes of the tasks that were acknowledged.

use super::peer::{LEASE, Peer};
use super::table::{Measured, Value};
use crate::failover::pauses::{Event, Events, Verb};
use crate::load::{self, Payloads, number_in};
use crate::system::Client;
use anyhow::{Context, Result, ensure};
use norn_wire::QueueName;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Tasks that are there at the beginning.
const STOCK: usize = 1_000;
/// Load before the kill, and after all clients go on.
const CALM: Duration = Duration::from_secs(3);
/// Time after which the system counts as not recovering.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time after which a client gives up a call and connects anew.
const CALL_PATIENCE: Duration = Duration::from_secs(10);
/// Time between two attempts to connect, and between two looks.
const RETRY: Duration = Duration::from_millis(20);
/// Tasks in a claim of what is left.
const DRAIN_BATCH: usize = 100;
/// Claims without a task have to follow each other for this long before nothing counts as left: until all leases have run out.
const EMPTY_FOR: Duration = LEASE.saturating_add(Duration::from_secs(5));

/// What the clients were answered.
#[derive(Debug, Default)]
struct Books {
    /// Numbers of tasks whose enqueueing was acknowledged.
    enqueued: BTreeSet<u64>,
    /// Numbers of tasks that were handed out at least once.
    handed_out: BTreeSet<u64>,
    /// Numbers of tasks whose completion was acknowledged.
    completed: BTreeSet<u64>,
    /// How often a task was handed out after that.
    again: u64,
    failures: u64,
}

impl Books {
    fn hand_out(&mut self, payloads: &[Vec<u8>]) -> Vec<u64> {
        let numbers: Vec<u64> = payloads.iter().filter_map(|payload| number_in(payload)).collect();
        for number in &numbers {
            self.again += u64::from(self.completed.contains(number));
            self.handed_out.insert(*number);
        }
        numbers
    }

    /// Acknowledged tasks that were never handed out.
    fn lost(&self) -> usize {
        self.enqueued.difference(&self.handed_out).count()
    }
}

/// What clients share.
struct Shared {
    peer: Arc<dyn Peer>,
    queue: QueueName,
    payloads: Payloads,
    next: AtomicU64,
    goes_on: AtomicBool,
    events: Events,
    books: Mutex<Books>,
}

/// Kills a node while this number of clients work, and then hands out all that is left.
pub async fn measure(peer: Arc<dyn Peer>, clients: usize, payload_bytes: usize) -> Result<Measured> {
    let queue = QueueName::new("kill")?;
    peer.prepare(&queue).await?;
    load::fill(peer.as_ref(), &queue, STOCK, payload_bytes).await?;
    peer.filled().await?;
    let shared = Arc::new(Shared {
        peer,
        queue,
        payloads: Payloads::new(payload_bytes),
        next: AtomicU64::new(0),
        goes_on: AtomicBool::new(true),
        events: Events::default(),
        books: Mutex::default(),
    });
    // Tasks of their own, which go on while a node is being killed.
    let mut workers = JoinSet::new();
    for place in 0..clients {
        let shared = shared.clone();
        workers.spawn(async move { shared.work(place).await });
    }
    let killed = shared.kill(clients).await;
    while let Some(ended) = workers.join_next().await {
        ended?;
    }
    let (at, how) = killed?;
    eprintln!("norn-bench: {how}");
    shared.peer.recover(&shared.queue).await?;
    shared.drain().await.context("handing out what is left")?;
    let pause = |verb| shared.events.longest_pause(verb, at).as_secs_f64();
    let books = shared.books.lock().unwrap_or_else(PoisonError::into_inner);
    let values = vec![
        Value::compared("longest_enqueue_pause_s", pause(Verb::Enqueue), 2),
        Value::compared("longest_claim_pause_s", pause(Verb::Claim), 2),
        Value::plain("enqueued", books.enqueued.len() as f64, 0),
        Value::plain("lost", books.lost() as f64, 0),
        Value::plain("handed_out_after_completion", books.again as f64, 0),
        Value::plain("failed_calls", books.failures as f64, 0),
    ];
    Ok(Measured { work: format!("one killed, {clients} clients"), system: String::new(), turn: 0, values })
}

impl Shared {
    fn note<T>(&self, change: impl FnOnce(&mut Books) -> T) -> T {
        change(&mut self.books.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn goes_on(&self) -> bool {
        self.goes_on.load(Ordering::Relaxed)
    }

    /// Kills a node, and waits until each client goes on. Returns when it was killed, and what was done.
    async fn kill(&self, clients: usize) -> Result<(Instant, String)> {
        let killed = self.try_kill(clients).await;
        self.goes_on.store(false, Ordering::Relaxed);
        killed
    }

    async fn try_kill(&self, clients: usize) -> Result<(Instant, String)> {
        tokio::time::sleep(CALM).await;
        let at = Instant::now();
        let how = self.peer.kill_one().await?;
        while !self.events.missing(at, clients).is_empty() {
            let missing = || self.events.missing(at, clients).join(", ");
            ensure!(at.elapsed() < PATIENCE, "no success after {PATIENCE:?}: {}", missing());
            tokio::time::sleep(RETRY).await;
        }
        tokio::time::sleep(CALM).await;
        Ok((at, how))
    }

    /// Works as a client that connects anew, to the next node, after each failure.
    async fn work(&self, place: usize) {
        let mut attempt = place;
        while self.goes_on() {
            let connected = tokio::time::timeout(CALL_PATIENCE, self.peer.connect(attempt, &self.queue)).await;
            attempt += 1;
            let Ok(Ok(mut client)) = connected else {
                tokio::time::sleep(RETRY).await;
                continue;
            };
            while self.goes_on() {
                if self.lifecycle(place, client.as_mut()).await.is_none() {
                    self.note(|books| books.failures += 1);
                    break;
                }
            }
            // A node that is gone may not answer this either; the lease ends then.
            let _ = tokio::time::timeout(CALL_PATIENCE, client.close()).await;
        }
    }

    /// One task in, one out. `None` after a failure.
    async fn lifecycle(&self, place: usize, client: &mut dyn Client) -> Option<()> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let payloads = [self.payloads.numbered(number)];
        let failures = tokio::time::timeout(CALL_PATIENCE, client.enqueue(&payloads)).await.ok()?;
        failures.is_empty().then_some(())?;
        self.note(|books| books.enqueued.insert(number));
        self.events.note(Event { verb: Verb::Enqueue, place, told: Instant::now() });
        let claimed = tokio::time::timeout(CALL_PATIENCE, client.claim(1)).await.ok()?.ok()?;
        let numbers = self.note(|books| books.hand_out(&claimed));
        if claimed.is_empty() {
            return Some(());
        }
        self.events.note(Event { verb: Verb::Claim, place, told: Instant::now() });
        let (done, failures) = tokio::time::timeout(CALL_PATIENCE, client.complete()).await.ok()?;
        if failures.is_empty() && done == claimed.len() as u64 {
            self.note(|books| books.completed.extend(numbers));
            return Some(());
        }
        None
    }

    /// Hands out and completes all that is left.
    async fn drain(&self) -> Result<()> {
        let mut client = self.peer.connect(1, &self.queue).await?;
        let mut empty_since: Option<Instant> = None;
        while empty_since.is_none_or(|since| since.elapsed() < EMPTY_FOR) {
            let claimed =
                tokio::time::timeout(CALL_PATIENCE, client.claim(DRAIN_BATCH)).await.context("no answer")??;
            if claimed.is_empty() {
                empty_since.get_or_insert_with(Instant::now);
                tokio::time::sleep(RETRY).await;
                continue;
            }
            empty_since = None;
            let numbers = self.note(|books| books.hand_out(&claimed));
            let (_, failures) = client.complete().await;
            if failures.is_empty() {
                self.note(|books| books.completed.extend(numbers));
            }
        }
        client.close().await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn books_tell_lost_and_repeated_tasks() {
        let payloads = Payloads::new(64);
        let mut books = Books { enqueued: [1, 2, 3].into(), ..Books::default() };
        assert_eq!(books.hand_out(&[payloads.numbered(1), payloads.numbered(9)]), [1, 9]);
        // A second time before its completion is no fault: its worker may be gone.
        books.hand_out(&[payloads.numbered(1)]);
        assert_eq!((books.lost(), books.again), (2, 0));
        books.completed.insert(1);
        books.hand_out(&[payloads.numbered(1), payloads.numbered(3)]);
        assert_eq!((books.lost(), books.again), (1, 1));
    }
}
