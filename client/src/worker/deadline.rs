//! An instant that may be put off until it has passed: the end of a lease, and the time limit of a handler.

use std::time::{Duration, Instant};
use tokio::sync::watch;

/// As long as every clock can count.
const FOREVER: Duration = Duration::from_secs(30 * 365 * 86_400);

/// This long from now, or never for what no clock can count.
pub(super) fn from_now(length: Duration) -> Instant {
    Instant::now() + length.min(FOREVER)
}

/// See the module.
#[derive(Debug)]
pub(super) struct Deadline {
    /// `None` once it is over, which is for good.
    at: watch::Sender<Option<Instant>>,
}

impl Deadline {
    pub fn new(at: Instant) -> Deadline {
        Deadline { at: watch::Sender::new(Some(at)) }
    }

    pub fn is_over(&self) -> bool {
        self.at.borrow().is_none()
    }

    /// Whether its time has come, even if that was not noticed yet.
    pub fn has_passed(&self) -> bool {
        self.at.borrow().is_none_or(|at| at <= Instant::now())
    }

    /// Puts it off, unless that would be earlier; false if it is over. This wakes no task: one that waits finds out when the earlier
    /// time has come. Woken by a handler, the task that is to stop it would be next on the handler's own thread, where no other thread
    /// takes it from, and if the handler then blocks it would never run.
    pub fn put_off(&self, until: Instant) -> bool {
        let mut is_over = false;
        self.at.send_if_modified(|at| {
            is_over = at.is_none();
            *at = at.map(|at| at.max(until));
            false
        });
        !is_over
    }

    /// Ends it before its time; when that would have been, unless it is over already.
    pub fn end(&self) -> Option<Instant> {
        self.at.send_replace(None)
    }

    /// Ready once it is over, by the local clock or before its time.
    pub async fn over(&self) {
        let mut at = self.at.subscribe();
        loop {
            let Some(due) = *at.borrow_and_update() else {
                return;
            };
            tokio::select! {
                () = tokio::time::sleep_until(due.into()) => {
                    // It may be put off at this very moment; that counts only if it came before.
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
    /// Counts from now.
    pub fn new(length: Duration) -> Limit {
        Limit { length, deadline: Deadline::new(from_now(length)) }
    }

    /// Counts anew from now; false if it is over.
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
