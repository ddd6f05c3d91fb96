//! A peer: another queue, or a build of Norn, that does the same work.

use crate::process;
use crate::system::{Answer, System, Usage};
use anyhow::Result;
use norn_wire::QueueName;
use std::time::Duration;

/// Time for which a claimed task belongs to its worker, where the system has such a time.
pub const LEASE: Duration = Duration::from_secs(15);

/// Description of a running system.
#[derive(Debug, Clone, Default)]
pub struct About {
    /// Version, as the program says it.
    pub version: String,
    /// Settings that differ from the defaults or matter for durability.
    pub settings: Vec<String>,
    /// Meaning of an acknowledgement.
    pub acknowledged: String,
}

/// A running system, with its processes.
pub trait Peer: System {
    /// Its description.
    fn about(&self) -> &About;
    /// Its processes, without their descendants.
    fn pids(&self) -> Vec<u32>;
    /// Makes a queue.
    fn prepare<'a>(&'a self, queue: &'a QueueName) -> Answer<'a, Result<()>>;
    /// Does what an operator does after many tasks have come at once.
    fn filled(&self) -> Answer<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }
    /// Kills the node that clients depend on most, and does what its operator's tools would do then. Returns what that was.
    fn kill_one(&self) -> Answer<'_, Result<String>>;
    /// Whether a call of its clients is answered before the next one is made.
    fn answers_each_call(&self) -> bool {
        true
    }
    /// Makes what ended workers hold available again, where no lease does that.
    fn recover<'a>(&'a self, _: &'a QueueName) -> Answer<'a, Result<()>> {
        Box::pin(async { Ok(()) })
    }
}

/// CPU time of processes with their descendants, as usage.
pub fn usage_of(pids: &[u32]) -> Result<Usage> {
    Ok(Usage { cpu_seconds: process::family_cpu_seconds(pids)?, ..Usage::default() })
}

/// The one failure of a call, if any, for as many tasks as it had.
pub fn failures_of_call<T>(outcome: Result<T>) -> Vec<String> {
    outcome.err().map(|error| format!("{error:#}")).into_iter().collect()
}
