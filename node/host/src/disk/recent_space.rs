//! The free space as it was last found, for the check before each write: the system is asked once a second, not for each write.
//!
//! Between two looks the figure falls by all that this disk writes, so only what others take goes unseen, and only for a second. While
//! more than a margin is free beyond what the caller decides about, that changes no decision unless another process takes the whole
//! margin within that second. Below the margin every look is fresh.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// Longest time for which a figure is used.
const AGE_MAX: Duration = Duration::from_secs(1);
/// Bytes that others may take before a figure is looked up again.
pub const MARGIN_BYTES: u64 = 1 << 30;

#[derive(Debug, Clone, Copy)]
struct Found {
    at: Instant,
    /// Free bytes then, less all that was written since.
    bytes: u64,
}

#[derive(Debug, Default)]
pub struct RecentSpace(Cell<Option<Found>>);

impl RecentSpace {
    /// Notes free space that was just looked up.
    pub fn found(&self, bytes: u64, at: Instant) {
        self.0.set(Some(Found { at, bytes }));
    }

    /// Notes bytes that were written.
    pub fn took(&self, bytes: u64) {
        self.0.set(self.0.get().map(|found| Found { bytes: found.bytes.saturating_sub(bytes), ..found }));
    }

    /// Forgets the figure, so that the next look is fresh.
    pub fn forget(&self) {
        self.0.set(None);
    }

    /// The free space, if it is known well enough for a caller to whom any figure from `enough_bytes` on is the same.
    pub fn known(&self, enough_bytes: u64, now: Instant) -> Option<u64> {
        let Found { at, bytes } = self.0.get()?;
        let is_enough = bytes >= enough_bytes.saturating_add(MARGIN_BYTES);
        (is_enough && now.saturating_duration_since(at) < AGE_MAX).then_some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_holds_for_a_second_and_falls_by_what_is_written() {
        let (space, start) = (RecentSpace::default(), Instant::now());
        assert_eq!(space.known(0, start), None, "nothing was looked up");
        space.found(3 * MARGIN_BYTES, start);
        space.took(5);
        let late = start + AGE_MAX - Duration::from_millis(1);
        assert_eq!(space.known(0, late), Some(3 * MARGIN_BYTES - 5));
        assert_eq!(space.known(0, start + AGE_MAX), None);
        space.found(3 * MARGIN_BYTES, start);
        space.forget();
        assert_eq!(space.known(0, start), None);
    }

    /// Goal: a decision that the margin does not cover rests on a fresh look.
    #[test]
    fn a_figure_close_to_what_the_caller_needs_is_not_used() {
        let (space, start) = (RecentSpace::default(), Instant::now());
        space.found(MARGIN_BYTES + 1_000, start);
        assert_eq!(space.known(1_000, start), Some(MARGIN_BYTES + 1_000));
        assert_eq!(space.known(1_001, start), None);
        space.took(1);
        assert_eq!(space.known(1_000, start), None);
        assert_eq!(space.known(u64::MAX, start), None);
        space.took(u64::MAX);
        assert_eq!(space.known(0, start), None);
    }
}
