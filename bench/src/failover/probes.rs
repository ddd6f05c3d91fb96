//! When each partition of a dead leader grants claims again: each partition has a task in a queue of its own, and a worker that waits
//! for it.

use anyhow::{Context, Result};
use norn_client::client::{ClaimOptions, Client, CompleteOptions};
use norn_client::session::Draft;
use norn_wire::ids::TAG_BITS;
use norn_wire::{PartitionId, QueueName, TaskId};
use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::task::JoinSet;

/// How long a worker waits in one call: longer than an election takes, because a claim that returns nothing tries another node.
const WAIT: Duration = Duration::from_secs(5);
/// How long a call may take in addition.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Minter of the ids, which no session gets: sessions are numbered from 0 by node, and there are far fewer nodes.
const MINTER: u64 = (1 << 40) - 1;

/// A task in each partition, and the client that will claim it.
#[derive(Debug)]
pub struct Probes {
    laid: Vec<(Client, QueueName)>,
}

/// Running workers.
#[derive(Debug)]
pub struct Watch {
    workers: JoinSet<Result<Duration>>,
}

impl Probes {
    /// Enqueues a task in each of these partitions, and assigns the clients to them in turn.
    pub async fn lay(clients: &[Client], led: &BTreeSet<PartitionId>, partitions: u32) -> Result<Probes> {
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as u64;
        let mut laid = Vec::new();
        for (partition, client) in led.iter().zip(clients.iter().cycle()) {
            let tag = u32::from(partition.0) * ((1 << TAG_BITS) / partitions);
            let queue = QueueName::new(&format!("probe/{partition}"))?;
            let draft = Draft::new(queue.clone(), "x").id(TaskId::new(now_ms, 0, MINTER, tag));
            client.enqueue(draft).await.context("laying a probe")?;
            laid.push((client.clone(), queue));
        }
        Ok(Probes { laid })
    }

    /// Starts a worker for each task, which waits for it. Pauses count from `kill`.
    pub fn watch(self, kill: Instant) -> Watch {
        let mut workers = JoinSet::new();
        for (client, queue) in self.laid {
            workers.spawn(async move {
                let claim = ClaimOptions::new([queue]).wait(WAIT).timeout(TIMEOUT).worker("probe");
                loop {
                    let claims = client.claim(claim.clone()).await.context("claiming a probe")?;
                    let took = kill.elapsed();
                    if let Some(claimed) = claims.tasks.first() {
                        let done = CompleteOptions::new(claimed.granted.id, claimed.granted.token);
                        client.complete(done).await.context("completing a probe")?;
                        return Ok(took);
                    }
                }
            });
        }
        Watch { workers }
    }
}

impl Watch {
    /// How long each partition granted nothing.
    pub async fn results(mut self) -> Result<Vec<Duration>> {
        let mut pauses = Vec::new();
        while let Some(ended) = self.workers.join_next().await {
            pauses.push(ended??);
        }
        Ok(pauses)
    }
}
