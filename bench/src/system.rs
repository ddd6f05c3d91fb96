//! A system under test, as the closed loop sees it: Norn, or with the feature `peers` another queue.

use anyhow::Result;
use norn_wire::QueueName;
use std::pin::Pin;

/// Answer of a call.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A client of one queue, with its own connection.
pub trait Client: Send {
    /// Enqueues tasks in one call; returns the failures, once all other tasks are acknowledged.
    fn enqueue<'a>(&'a mut self, payloads: &'a [Vec<u8>]) -> Answer<'a, Vec<String>>;
    /// Claims at most this number of tasks, which the client holds until it completes them; returns their payloads.
    fn claim(&mut self, max: usize) -> Answer<'_, Result<Vec<Vec<u8>>>>;
    /// Completes all tasks that the client holds, in one call; returns the number of those that are done, and the failures.
    fn complete(&mut self) -> Answer<'_, (u64, Vec<String>)>;
    /// Ends the connection.
    fn close(self: Box<Self>) -> Answer<'static, ()>;
}

/// A running system.
pub trait System: Send + Sync {
    /// Connects the client with this number to a queue: each starts with another node.
    fn connect<'a>(&'a self, number: usize, queue: &'a QueueName) -> Answer<'a, Result<Box<dyn Client>>>;
    /// Resources that the system has used so far.
    fn usage(&self) -> Answer<'_, Result<Usage>>;
}

/// Resources that all processes of a system together have used so far.
#[derive(Debug, Clone, Copy, Default)]
pub struct Usage {
    /// User and system time, in seconds.
    pub cpu_seconds: f64,
    /// Syncs of the logs; of Norn alone, as all below.
    pub log_syncs: u64,
    /// Messages between nodes.
    pub peer_messages: u64,
    /// Envelopes in which they travelled.
    pub peer_envelopes: u64,
    /// Events handed to the cores.
    pub events: u64,
    /// Turns in which they were handled.
    pub turns: u64,
}

impl Usage {
    /// The difference to an earlier measurement.
    pub fn since(self, before: Usage) -> Usage {
        Usage {
            cpu_seconds: self.cpu_seconds - before.cpu_seconds,
            log_syncs: self.log_syncs - before.log_syncs,
            peer_messages: self.peer_messages - before.peer_messages,
            peer_envelopes: self.peer_envelopes - before.peer_envelopes,
            events: self.events - before.events,
            turns: self.turns - before.turns,
        }
    }
}
