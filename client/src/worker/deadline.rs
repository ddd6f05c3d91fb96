//! A time that can be extended until it has passed: the end of a lease, and the time limit of a handler.

use std::time::{Duration, Instant};
use tokio::sync::watch;

/// A duration that every clock can represent.
const FOREVER: Duration = Duration::from_secs(30 * 365 * 86_400);

/// The time this long from now. Durations that no clock can represent are cut to 30 years.
pub(super) fn from_now(length: Duration) -> Instant {
    Instant::now() + length.min(FOREVER)
}

/// An extensible end time.
#[derive(Debug)]
pub(super) struct Deadline {
    /// `None` once it is over, which is final.
    at: watch::Sender<Option<Instant>>,
}

impl Deadline {
    pub fn new(at: Instant) -> Deadline {
        Deadline { at: watch::Sender::new(Some(at)) }
    }

    pub fn is_over(&self) -> bool {
        self.at.borrow().is_none()
    }

    /// Whether its time has come, even if no task has noticed it yet.
    pub fn has_passed(&self) -> bool {
        self.at.borrow().is_none_or(|at| at <= Instant::now())
    }

    /// Extends the time, unless `until` is earlier; false if it is over. This wakes no task: a waiting task notices the extension at
    /// the earlier time. If a handler woke the task that is to stop it, that task would be next on the handler's own thread, where no
    /// other thread takes it from. If the handler then blocks, the task would never run.
    pub fn put_off(&self, until: Instant) -> bool {
        let mut is_over = false;
        self.at.send_if_modified(|at| {
            is_over = at.is_none();
            *at = at.map(|at| at.max(until));
            false
        });
        !is_over
    }

    /// Ends it early. Returns when it would have ended, unless it is over already.
    pub fn end(&self) -> Option<Instant> {
        self.at.send_replace(None)
    }

    /// Ready once it is over, by the local clock or early.
    pub async fn over(&self) {
        let mut at = self.at.subscribe();
        loop {
            let Some(due) = *at.borrow_and_update() else {
                return;
            };
            tokio::select! {
                () = tokio::time::sleep_until(due.into()) => {
                    // It may be extended at this moment; the extension counts only if it came first.
                    self.at.send_if_modified(|at| at.take_if(|at| *at == due).is_some());
                }
                // The sender is in `self`, so this cannot fail.
                _ = at.changed() => {}
            }
        }
    }
}

/// How long a handler may run, counted from its start or from its last renewal.
#[derive(Debug)]
pub(super) struct Limit {
    pub length: Duration,
    deadline: Deadline,
}

impl Limit {
    /// A limit that counts from now.
    pub fn new(length: Duration) -> Limit {
        Limit { length, deadline: Deadline::new(from_now(length)) }
    }

    /// Restarts the limit from now; false if it is over.
    pub fn renew(&self) -> bool {
        self.deadline.put_off(from_now(self.length))
    }

    pub fn has_passed(&self) -> bool {
        self.deadline.has_passed()
    }

    /// Ready once it is over.
    pub async fn over(&self) {
        self.deadline.over().await;
    }
}
