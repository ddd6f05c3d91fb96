//! The log of refusals.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Interval of log lines about refusals; each has the number of omitted ones.
const REFUSALS_LOGGED_EVERY: Duration = Duration::from_secs(1);

/// Logs refusals at a limited rate, so that no sender on the network can flood the log.
#[derive(Debug, Default)]
pub struct Refusals {
    last: std::sync::Mutex<Option<std::time::Instant>>,
    left_out: AtomicU64,
}

impl Refusals {
    /// Logs a refusal, unless another one was logged just now.
    pub fn log(&self, reason: &str) {
        let mut last = self.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if last.is_some_and(|last| last.elapsed() < REFUSALS_LOGGED_EVERY) {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            return;
        }
        *last = Some(std::time::Instant::now());
        drop(last);
        let left_out = self.left_out.swap(0, Ordering::Relaxed);
        tracing::warn!(reason, left_out, "refused");
    }
}
