//! The two clocks.

use crate::protocol::Now;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Readings further apart are taken again...
const APART_US_MAX: u64 = 2_000;
/// ...so often.
const READINGS_MAX: usize = 3;

/// Reads both clocks; the monotonic one counts from its creation.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// A monotonic clock that starts now.
    pub fn start() -> Self {
        Clock { start: Instant::now() }
    }

    /// Both readings, of nearly one instant: a thread that sleeps between the two would see a jump that was none.
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

    /// The instant of a monotonic reading; far readings are cut to a day, which is only an early wake.
    pub fn instant(&self, mono_us: u64) -> Instant {
        let day_us = 86_400_000_000;
        self.start + Duration::from_micros(mono_us.min(self.mono_us().saturating_add(day_us)))
    }
}

/// The second since 1970 by the wall clock, as certificates count.
pub fn unix_seconds() -> i64 {
    i64::try_from(wall_ms() / 1_000).unwrap_or(i64::MAX)
}

/// A wall clock before 1970 is as good as one at 1970: the core bounds what it believes.
fn wall_ms() -> u64 {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(wall.as_millis()).unwrap_or(u64::MAX)
}
