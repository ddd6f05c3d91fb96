//! The monotonic clock and the wall clock.

use norn_model::time::Now;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Two readings further apart than this are repeated...
const APART_US_MAX: u64 = 2_000;
/// ...this many times.
const READINGS_MAX: usize = 3;

/// Reads both clocks; the monotonic one counts from the creation of this value.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// A monotonic clock that starts now.
    pub fn start() -> Self {
        Clock { start: Instant::now() }
    }

    /// Reads both clocks at nearly the same instant: if the thread were suspended between the two readings, the wall clock would seem
    /// to jump.
    pub fn now(&self) -> Now {
        let mut mono_us = self.mono_us();
        for _ in 0..READINGS_MAX {
            let now = Now { mono_us, wall_ms: wall_ms() };
            mono_us = self.mono_us();
            if mono_us - now.mono_us <= APART_US_MAX {
                return now;
            }
        }
        Now { mono_us, wall_ms: wall_ms() }
    }

    fn mono_us(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// The instant of a monotonic reading; distant readings are capped to a day ahead, which only causes an early wake-up.
    pub fn instant(&self, mono_us: u64) -> Instant {
        let day_us = 86_400_000_000;
        self.start + Duration::from_micros(mono_us.min(self.mono_us().saturating_add(day_us)))
    }
}

/// Seconds since 1970 by the wall clock, as certificates count.
pub fn unix_seconds() -> i64 {
    i64::try_from(wall_ms() / 1_000).unwrap_or(i64::MAX)
}

/// Milliseconds since 1970. A wall clock before 1970 counts as 0: the core bounds what it accepts.
fn wall_ms() -> u64 {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(wall.as_millis()).unwrap_or(u64::MAX)
}
