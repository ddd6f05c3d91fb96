//! Time as the core sees it: two clocks that enter with every event.

/// A reading of both clocks, taken by the host when it hands over an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Now {
    /// Monotonic clock, microseconds since an arbitrary start. Never goes back; may not count suspension.
    pub mono_us: u64,
    /// Wall clock, milliseconds since the Unix epoch. May jump either way.
    pub wall_ms: u64,
}

impl Now {
    /// The monotonic reading `ms` milliseconds from now.
    pub fn mono_after_ms(self, ms: u64) -> u64 {
        self.mono_us.saturating_add(ms.saturating_mul(1_000))
    }
}
