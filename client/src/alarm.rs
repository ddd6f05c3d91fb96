//! A timer that is cheap to put off.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::time::{Sleep, sleep_until};

/// Pulls of an alarm that are closer together than this show that it is busy.
const BUSY_INTERVAL: Duration = Duration::from_millis(5);

/// Rings at a time that changes often, to and fro.
///
/// To pull a timer of the runtime forward, ahead of all others, costs two system calls, to put it off none. An alarm that is pulled
/// forward again and again stays, while it is put off in between, and wakes its task early, once, to look how long there is left. One
/// that is not busy is moved each time, as an early end is a wake-up for nothing.
#[derive(Debug)]
pub struct Alarm {
    at: Instant,
    /// Ends at `at` or before.
    sleep: Pin<Box<Sleep>>,
    pulled_at: Option<Instant>,
    busy: bool,
}

impl Alarm {
    /// An alarm that rings at `at`.
    pub fn new(at: Instant) -> Alarm {
        Alarm { at, sleep: Box::pin(sleep_until(at.into())), pulled_at: None, busy: false }
    }

    /// Changes the time.
    pub fn set(&mut self, at: Instant) {
        self.at = at;
        let end = self.sleep.deadline().into_std();
        if at < end {
            let now = tokio::time::Instant::now().into_std();
            self.busy = self.pulled_at.is_some_and(|before| now.duration_since(before) < BUSY_INTERVAL);
            self.pulled_at = Some(now);
        }
        if at < end || (at > end && !self.busy) {
            Sleep::reset(self.sleep.as_mut(), at.into());
        }
    }

    /// Whether the time has come; if not, the task is woken when it has, or before.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(Future::poll(self.sleep.as_mut(), context));
            if self.sleep.deadline().into_std() >= self.at {
                return Poll::Ready(());
            }
            self.busy = false;
            Sleep::reset(self.sleep.as_mut(), self.at.into());
        }
    }

    /// Ends once the time has come.
    pub async fn ring(&mut self) {
        poll_fn(|context| self.poll(context)).await;
    }

    /// Sets the alarm and waits for it; for ever without a time. May be dropped at any point, and called again.
    pub async fn ring_at(&mut self, at: Option<Instant>) {
        match at {
            Some(at) => {
                self.set(at);
                self.ring().await;
            }
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Alarm;
    use std::time::Duration;
    use tokio::time::Instant;

    /// Rings at the time last set, whether that was earlier or later than the one before, and whether or not that one had come.
    #[tokio::test(start_paused = true)]
    async fn an_alarm_rings_at_the_time_last_set() {
        let start = Instant::now();
        let at = |ms: u64| (start + Duration::from_millis(ms)).into_std();
        let passed = || start.elapsed().as_millis();
        let mut alarm = Alarm::new(at(50));
        alarm.set(at(80));
        alarm.ring().await;
        assert_eq!(passed(), 80, "put off before it rang");
        alarm.set(at(200));
        alarm.set(at(120));
        alarm.ring().await;
        assert_eq!(passed(), 120, "put off after it rang, then called for earlier");
        alarm.ring_at(Some(at(100))).await;
        assert_eq!(passed(), 120, "a time in the past");
        let dropped = tokio::time::timeout(Duration::from_millis(10), alarm.ring_at(Some(at(400)))).await;
        assert!(dropped.is_err());
        alarm.ring_at(Some(at(300))).await;
        assert_eq!(passed(), 300, "waited for before, and set earlier");
    }

    /// A busy alarm is put off without a change of the timer below, and rings no earlier for that.
    #[tokio::test(start_paused = true)]
    async fn a_busy_alarm_keeps_its_timer_and_rings_in_time() {
        let start = Instant::now();
        let at = |ms: u64| (start + Duration::from_millis(ms)).into_std();
        let mut alarm = Alarm::new(at(1_000));
        for pulled_ms in [30, 25] {
            alarm.set(at(pulled_ms));
            alarm.set(at(1_000));
        }
        assert_eq!(alarm.sleep.deadline().into_std(), at(25), "the second pull within an instant shows it busy");
        alarm.ring().await;
        assert_eq!(start.elapsed().as_millis(), 1_000);
        alarm.set(at(3_000));
        assert_eq!(alarm.sleep.deadline().into_std(), at(3_000), "it had rung early: it is busy no more");
        alarm.set(at(2_000));
        alarm.set(at(4_000));
        assert_eq!(alarm.sleep.deadline().into_std(), at(4_000), "one pull after a long time shows nothing");
    }
}
