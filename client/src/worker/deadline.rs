//! A time that can be extended until it has passed: the end of a lease, and the limits of a handler.

use std::fmt;
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

    /// When it ends, unless it is over.
    pub fn at(&self) -> Option<Instant> {
        *self.at.borrow()
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

/// A limit that has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Limit {
    /// That of the whole run.
    Time(Duration),
    /// That of the time without progress.
    Progress(Duration),
}

/// The limits of a handler. Both count from its start, and only the second one from its latest progress.
#[derive(Debug)]
pub(super) struct Limits {
    time_limit: Duration,
    progress_limit: Duration,
    time: Deadline,
    pub progress: Deadline,
}

impl Limits {
    /// Limits that count from now.
    pub fn new(time_limit: Duration, progress_limit: Duration) -> Limits {
        let (time, progress) = (Deadline::new(from_now(time_limit)), Deadline::new(from_now(progress_limit)));
        Limits { time_limit, progress_limit, time, progress }
    }

    /// Limits of the same lengths that count from now.
    pub fn again(&self) -> Limits {
        Limits::new(self.time_limit, self.progress_limit)
    }

    /// Counts both limits from now: the handler starts.
    pub fn start(&self) {
        self.time.put_off(from_now(self.time_limit));
        self.progress();
    }

    /// Counts the limit of progress from now; false if one of the limits has passed.
    pub fn progress(&self) -> bool {
        self.progress_until(Instant::now())
    }

    /// As [`Limits::progress`], and no earlier than at this time.
    pub fn progress_until(&self, at: Instant) -> bool {
        !self.time.is_over() && self.progress.put_off(from_now(self.progress_limit).max(at))
    }

    /// The limit that has passed, if one has, even if no task has noticed it yet.
    pub fn passed(&self) -> Option<Limit> {
        match () {
            () if self.time.has_passed() => Some(Limit::Time(self.time_limit)),
            () if self.progress.has_passed() => Some(Limit::Progress(self.progress_limit)),
            () => None,
        }
    }

    /// Ready once one of the limits is over, and says which.
    pub async fn over(&self) -> Limit {
        tokio::select! {
            biased;
            () = self.time.over() => Limit::Time(self.time_limit),
            () = self.progress.over() => Limit::Progress(self.progress_limit),
        }
    }
}

impl fmt::Display for Limit {
    /// What the handler did, for the reason of the failed attempt.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let length = |length: &Duration| humantime::format_duration(*length);
        match self {
            Limit::Time(limit) => write!(formatter, "the handler ran longer than its time limit of {}", length(limit)),
            Limit::Progress(limit) => {
                write!(formatter, "the handler reported no progress for its progress limit of {}", length(limit))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    // O5
    /// Goal: a handler that hangs is noticed, and one that makes progress is not taken for one. Method: the clock stands still, so that
    /// whichever limit is over first is that of the earlier time.
    #[tokio::test(start_paused = true)]
    async fn progress_puts_off_its_own_limit_and_not_that_of_the_whole_run() {
        let begins = Instant::now();
        let limits = Limits::new(3 * HOUR, HOUR);
        assert!(limits.progress() && limits.passed().is_none());
        assert!(limits.progress_until(begins + 2 * HOUR) && limits.progress(), "the later time counts");
        assert!(limits.progress.at().is_some_and(|at| at >= begins + 2 * HOUR));
        assert_eq!(limits.over().await, Limit::Progress(HOUR));
        assert_eq!((limits.progress(), limits.passed()), (false, Some(Limit::Progress(HOUR))), "it is over for good");

        let limits = limits.again();
        assert!(limits.progress_until(begins + 30 * HOUR));
        assert_eq!(limits.over().await, Limit::Time(3 * HOUR));
        assert!(!limits.progress() && !limits.progress_until(begins + 40 * HOUR), "its run is over, too");
    }

    // O5
    #[tokio::test(start_paused = true)]
    async fn limits_that_no_clock_reaches_are_none() {
        let limits = Limits::new(Duration::MAX, Duration::MAX);
        limits.start();
        assert!(limits.passed().is_none() && limits.progress());
        assert_eq!(Limits::new(Duration::MAX, HOUR).over().await, Limit::Progress(HOUR));
        assert_eq!(Limits::new(HOUR, Duration::MAX).over().await, Limit::Time(HOUR));
    }
}
