//! Workers with different behaviours, over real sessions, which record the answers that they get.

use crate::Ledger;
use crate::wait::{eventually, moment, until_instant};
use norn_client::client::{ClaimOptions, Claimed, Client, CompleteOptions};
use norn_wire::{Acks, QueueName, State, TaskId, Token};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// How workers behave.
#[derive(Debug, Clone)]
pub struct WorkerBehaviour {
    /// Queues from which they claim.
    pub queues: Vec<QueueName>,
    /// Length of a lease.
    pub lease: Duration,
    /// How long a claim waits for work.
    pub wait: Duration,
    /// Tasks that a claim asks for at most.
    pub claim_max: u32,
    /// How long a claim may take in addition to its wait.
    pub timeout: Duration,
}

/// A worker's claim call and its answer.
#[derive(Debug, Clone)]
pub struct ClaimCall {
    /// Index of the worker.
    pub worker: usize,
    /// When the call began.
    pub asked: Instant,
    /// When the answer arrived.
    pub told: Instant,
    /// Granted claims. Empty if there was no work, or no leader to grant it.
    pub granted: Vec<(TaskId, Token)>,
}

/// State that all workers share.
#[derive(Debug)]
pub struct Workers {
    /// The books of all workers and producers.
    pub ledger: Ledger,
    behaviour: WorkerBehaviour,
    working: AtomicBool,
    calm: AtomicBool,
    calls: Mutex<Vec<ClaimCall>>,
}

impl Workers {
    /// Shared state for workers, before any of them works.
    pub fn new(behaviour: WorkerBehaviour) -> Arc<Workers> {
        let (ledger, working, calm) = (Ledger::default(), AtomicBool::new(true), AtomicBool::new(false));
        Arc::new(Workers { ledger, behaviour, working, calm, calls: Mutex::new(Vec::new()) })
    }

    /// Makes all workers complete whatever they claim from now on, so that the queues drain soon.
    pub fn calm(&self) {
        self.calm.store(true, Ordering::Relaxed);
    }

    /// Makes all workers stop after their current claims.
    pub fn stop(&self) {
        self.working.store(false, Ordering::Relaxed);
    }

    /// All answered calls.
    pub fn calls(&self) -> MutexGuard<'_, Vec<ClaimCall>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Claims, works and completes until it is stopped. Drops some tasks like a worker that dies, returns some, and holds some almost
    /// to the end of the lease.
    pub async fn work(self: Arc<Self>, client: Client, worker: usize) {
        let mut turn = worker;
        // These run in the background so that they delay no other claim: the duration of claims is measured.
        let mut late = JoinSet::new();
        while self.working.load(Ordering::Relaxed) {
            let Some(claims) = self.claim(&client, worker).await else {
                moment().await;
                continue;
            };
            turn += 1;
            match turn % 16 {
                _ if self.calm.load(Ordering::Relaxed) => self.finish(&client, claims).await,
                0 => {
                    // As if the worker died: it never mentions these claims again.
                    let (_, kept) = split(claims, 3);
                    self.finish(&client, kept).await;
                }
                5 => {
                    let (returned, kept) = split(claims, 3);
                    for claimed in returned {
                        let (id, token) = (claimed.granted.id, claimed.granted.token);
                        self.ledger.stopped(id, token);
                        let _ = client.release(id, token).await;
                    }
                    self.finish(&client, kept).await;
                }
                10 => {
                    let (held, kept) = split(claims, 1);
                    late.spawn(Arc::clone(&self).finish_late(client.clone(), held));
                    self.finish(&client, kept).await;
                }
                _ => self.finish(&client, claims).await,
            }
        }
        while let Some(ended) = late.join_next().await {
            ended.expect("workers do not panic");
        }
    }

    async fn finish_late(self: Arc<Self>, client: Client, claims: Vec<Claimed>) {
        if let Some(claimed) = claims.first() {
            until_instant(claimed.expires - self.behaviour.lease / 20).await;
        }
        self.finish(&client, claims).await;
    }

    async fn claim(&self, client: &Client, worker: usize) -> Option<Vec<Claimed>> {
        let WorkerBehaviour { queues, lease, wait, claim_max, timeout } = self.behaviour.clone();
        let options = ClaimOptions::new(queues).lease(lease).max(claim_max).wait(wait).timeout(timeout);
        let asked = Instant::now();
        let answer = client.claim(options.worker(format!("worker {worker}"))).await;
        let told = Instant::now();
        let claims = answer.as_ref().map_or(&[][..], |claims| &claims.tasks);
        claims.iter().for_each(|claimed| self.ledger.delivered(asked, claimed));
        let granted = claims.iter().map(|claimed| (claimed.granted.id, claimed.granted.token)).collect();
        self.calls().push(ClaimCall { worker, asked, told, granted });
        answer.ok().map(|claims| claims.tasks)
    }

    /// Completes claims. One with unknown outcome is left to the cluster: the task is done, or is claimed again.
    async fn finish(&self, client: &Client, claims: Vec<Claimed>) {
        if claims.is_empty() {
            return;
        }
        let mut options = Vec::new();
        for claimed in &claims {
            let (id, token) = (claimed.granted.id, claimed.granted.token);
            let result = format!("by {token}");
            self.ledger.completing(id, token, result.as_bytes());
            options.push(CompleteOptions::new(id, token).result(result));
        }
        let results = client.complete_many(options, Acks::Quorum).await;
        assert_eq!(results.len(), claims.len(), "one result for each");
        for (claimed, result) in claims.iter().zip(results) {
            if result.is_ok() {
                self.ledger.completed(claimed.granted.id, claimed.granted.token);
            }
        }
    }
}

/// The first `count` of some claims, and the rest.
fn split(mut claims: Vec<Claimed>, count: usize) -> (Vec<Claimed>, Vec<Claimed>) {
    let rest = claims.split_off(count.min(claims.len()));
    (claims, rest)
}

/// Waits until nothing is left to claim and nothing is held.
pub async fn drained(client: &Client, patience: Duration) {
    // All counts come from one answer, because a task may change its state between two answers.
    let open = || async {
        let counts = client.status().await.ok()?.counts;
        let left = [State::Ready, State::Claimed, State::Waiting].map(|state| counts[state as usize]);
        (left == [0; 3]).then_some(())
    };
    eventually("the queues are empty", patience, open).await;
}
