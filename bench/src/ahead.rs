//! A client of the closed loop that works ahead, as the library's `Worker` does.
//!
//! The claim for the next task leaves together with the report of the last, and the loop waits for neither: the task is mostly there
//! when it is asked for, and a completion is confirmed by the time of the next one. This is what consumers of a broker that pushes do,
//! so it stands beside those; a client that waits for each answer stands beside a database.

use crate::system::{Answer, Client as Loops};
use crate::worker;
use anyhow::{Context, Result};
use norn_client::client::{ClaimOptions, Client, ClientConfig};
use norn_wire::{QueueName, TaskId, Token};
use std::time::Duration;
use tokio::task::JoinHandle;

/// A claimed task: id, token and payload.
type Held = (TaskId, Token, Vec<u8>);

/// A client over QUIC that claims the next task, and reports the last, while it does something else.
pub struct AheadWorker {
    client: Client,
    queue: QueueName,
    lease: Duration,
    /// Claimed tasks.
    held: Vec<(TaskId, Token)>,
    /// The claim under way.
    claiming: Option<JoinHandle<Result<Vec<Held>>>>,
    /// The completion under way: how many it completed, and failures.
    completing: Option<JoinHandle<(u64, Vec<String>)>>,
    claim_max: usize,
}

impl AheadWorker {
    /// Connects.
    pub async fn connect(config: ClientConfig, queue: QueueName, lease: Duration) -> Result<AheadWorker> {
        let client = Client::connect(config).await?;
        Ok(AheadWorker { client, queue, lease, held: Vec::new(), claiming: None, completing: None, claim_max: 1 })
    }

    fn claim_ahead(&self) -> JoinHandle<Result<Vec<Held>>> {
        let mut claim = ClaimOptions::new([self.queue.clone()]).max(self.claim_max as u32).worker("bench");
        claim.lease = Some(self.lease);
        let client = self.client.clone();
        tokio::spawn(async move {
            let tasks = client.claim(claim).await?.tasks;
            Ok(tasks.into_iter().map(|task| (task.granted.id, task.granted.token, task.granted.payload)).collect())
        })
    }

    fn complete_held(&mut self) -> JoinHandle<(u64, Vec<String>)> {
        let held = std::mem::take(&mut self.held);
        let client = self.client.clone();
        tokio::spawn(async move { worker::complete(&client, held).await })
    }
}

/// Outcome of a completion, if there was one.
async fn ended(completing: Option<JoinHandle<(u64, Vec<String>)>>) -> (u64, Vec<String>) {
    match completing {
        Some(completing) => completing.await.unwrap_or_else(|error| (0, vec![error.to_string()])),
        None => (0, Vec::new()),
    }
}

impl Loops for AheadWorker {
    fn enqueue<'a>(&'a mut self, payloads: &'a [Vec<u8>]) -> Answer<'a, Vec<String>> {
        Box::pin(worker::enqueue(&self.client, &self.queue, payloads))
    }

    fn claim(&mut self, max: usize) -> Answer<'_, Result<Vec<Vec<u8>>>> {
        Box::pin(async move {
            self.claim_max = max;
            let claiming = self.claiming.take().unwrap_or_else(|| self.claim_ahead());
            let tasks = claiming.await.context("the claim was given up")??;
            self.held.extend(tasks.iter().map(|(id, token, _)| (*id, *token)));
            Ok(tasks.into_iter().map(|(.., payload)| payload).collect())
        })
    }

    /// Returns the outcome of the completion before this one.
    fn complete(&mut self) -> Answer<'_, (u64, Vec<String>)> {
        Box::pin(async {
            let before = self.completing.take();
            self.completing = Some(self.complete_held());
            self.claiming = Some(self.claim_ahead());
            ended(before).await
        })
    }

    fn close(mut self: Box<Self>) -> Answer<'static, ()> {
        Box::pin(async move {
            drop(ended(self.completing.take()).await);
            let ahead = match self.claiming.take() {
                Some(claiming) => claiming.await.ok().and_then(Result::ok).unwrap_or_default(),
                None => Vec::new(),
            };
            for (id, token, _) in ahead {
                // One that is not given back is claimed again after its lease.
                drop(self.client.release(id, token).await);
            }
            self.client.close().await;
        })
    }
}
