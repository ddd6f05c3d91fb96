//! The two clocks.

use crate::protocol::Now;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

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

    /// Both readings.
    pub fn now(&self) -> Now {
        let mono_us = u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX);
        // A wall clock before 1970 is as good as one at 1970: the core bounds what it believes.
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now { mono_us, wall_ms: u64::try_from(wall.as_millis()).unwrap_or(u64::MAX) }
    }

    /// The instant of a monotonic reading; far readings are cut to a day, which is only an early wake.
    pub fn instant(&self, mono_us: u64) -> Instant {
        let day_us = 86_400_000_000;
        let elapsed_us = u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.start + Duration::from_micros(mono_us.min(elapsed_us.saturating_add(day_us)))
    }
}
