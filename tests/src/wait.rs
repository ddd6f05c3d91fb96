//! Waits for conditions, with deadlines that are extended on a busy machine. No test sleeps for a fixed time to let something settle.

use std::future::Future;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Time limit for anything that is expected to happen soon, on a machine where each runnable process has a core.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Time between two checks of a condition.
const INTERVAL: Duration = Duration::from_millis(20);
/// Upper bound of the factor by which a machine counts as slower than an idle one.
const SLOWNESS_MAX: f64 = 8.0;

/// The end of a wait: the given time, extended where processes compete for the cores.
#[derive(Debug, Clone, Copy)]
pub struct Deadline {
    begun: Instant,
    patience: Duration,
}

impl Deadline {
    /// A deadline `patience` from now.
    pub fn after(patience: Duration) -> Deadline {
        Deadline { begun: Instant::now(), patience }
    }

    /// Whether the deadline has passed. The slowness of the machine counts only once the time itself is over.
    pub fn has_passed(&self) -> bool {
        self.remaining().is_zero()
    }

    /// Time until the deadline, as far as known now.
    pub fn remaining(&self) -> Duration {
        let waited = self.begun.elapsed();
        match self.patience.saturating_sub(waited) {
            left if left.is_zero() => self.patience.mul_f64(slowness()).saturating_sub(waited),
            left => left,
        }
    }

    /// Panics with `what` if the deadline has passed.
    pub fn check(&self, what: impl FnOnce() -> String) {
        assert!(!self.has_passed(), "in vain for {:.0?}: {}", self.begun.elapsed(), what());
    }
}

/// Number of processes that compete for each core: the load average of the last minute divided by the number of cores, at least 1.
/// Returns the highest value that this process has seen, because work that was delayed before the load fell is still late.
fn slowness() -> f64 {
    static MOST: Mutex<f64> = Mutex::new(1.0);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut most = MOST.lock().expect("nothing panics in between");
    *most = most.max(slowness_of(&load, cores));
    *most
}

/// A length of time, scaled by the machine's slowness, in which a test can finish what it must do first.
pub fn scaled(length: Duration) -> Duration {
    length.mul_f64(slowness())
}

fn slowness_of(load: &str, cores: usize) -> f64 {
    let running: f64 = load.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(0.0);
    (running / cores as f64).clamp(1.0, SLOWNESS_MAX)
}

/// Waits until a condition holds. Panics with `what` after [`PATIENCE`].
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    found(what, || condition().then_some(()));
}

/// Waits until `look` returns a value. Panics with `what` after [`PATIENCE`].
pub fn found<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Deadline::after(PATIENCE);
    loop {
        if let Some(found) = look() {
            return found;
        }
        deadline.check(|| what.to_owned());
        std::thread::sleep(INTERVAL);
    }
}

/// Waits for the next message of a channel. Panics with `what` after [`PATIENCE`], or when no sender is left.
pub fn received<T>(what: &str, receiver: &Receiver<T>) -> T {
    let deadline = Deadline::after(PATIENCE);
    loop {
        match receiver.recv_timeout(deadline.remaining()) {
            Ok(message) => return message,
            Err(RecvTimeoutError::Timeout) => deadline.check(|| what.to_owned()),
            Err(RecvTimeoutError::Disconnected) => panic!("no sender is left: {what}"),
        }
    }
}

/// Waits until a future completes. Panics with `what` after `patience`.
pub async fn within<T>(what: &str, patience: Duration, future: impl Future<Output = T>) -> T {
    let deadline = Deadline::after(patience);
    let mut future = std::pin::pin!(future);
    loop {
        match tokio::time::timeout(deadline.remaining(), &mut future).await {
            Ok(output) => return output,
            Err(_) => deadline.check(|| what.to_owned()),
        }
    }
}

/// Waits until the asynchronous `look` returns a value. Panics with `what` after `patience`.
pub async fn eventually<T, F>(what: &str, patience: Duration, mut look: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let look = || {
        let looking = look();
        async { looking.await.ok_or_else(|| String::from("nothing yet")) }
    };
    eventually_or(what, patience, look).await
}

/// The same with a `look` that returns what is missing. The panic's message contains the last of these.
pub async fn eventually_or<T, F>(what: &str, patience: Duration, mut look: impl FnMut() -> F) -> T
where
    F: Future<Output = Result<T, String>>,
{
    let deadline = Deadline::after(patience);
    loop {
        let missing = match look().await {
            Ok(found) => return found,
            Err(missing) => missing,
        };
        deadline.check(|| format!("{what}; at last: {missing}"));
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Sleeps until an instant: for workers that hold a task for a while, and for leases that must expire.
pub async fn until_instant(instant: Instant) {
    tokio::time::sleep_until(instant.into()).await;
}

/// Pauses briefly between two attempts at a refused operation.
pub async fn moment() {
    tokio::time::sleep(INTERVAL).await;
}

#[cfg(test)]
mod tests {
    use super::slowness_of;

    #[test]
    fn a_deadline_is_put_off_where_processes_compete_for_cores_and_never_for_ever() {
        assert_eq!(slowness_of("0.40 0.90 1.20 1/99 7", 2), 1.0);
        assert_eq!(slowness_of("5.00 0.90 1.20 1/99 7", 2), 2.5);
        assert_eq!(slowness_of("900.00 0.90 1.20 1/99 7", 2), 8.0);
        assert_eq!(slowness_of("", 2), 1.0, "a system that does not say its load");
    }
}
