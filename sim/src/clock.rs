//! Clocks of nodes and clients, as functions of true (virtual) time.
//!
//! A monotonic clock has a rate error and starts anew with its process. A wall clock has an offset, a rate error and
//! jumps, and stays within a bound of true time, so that any two differ by at most twice the bound; some jumps of a minority
//! lead beyond it. Seeds make at most one kind wild, as claims rely on one of them; with both, which takes an option, claims
//! may overlap (`properties/exclusion.rs`).

use norn_wire::random::Random;

/// Virtual time 0 on a perfect wall clock.
pub const WALL_START_MS: u64 = 1_800_000_000_000;

/// A clock that runs at a rate of its own from an arbitrary start.
#[derive(Debug, Clone)]
pub struct Monotonic {
    true_us: u64,
    reading_us: u64,
    /// Millionths of a microsecond per microsecond.
    rate_ppm: u64,
}

impl Monotonic {
    /// Reads `reading_us` at true time `true_us`.
    pub fn new(true_us: u64, reading_us: u64, rate_ppm: u64) -> Self {
        assert!(rate_ppm > 0, "a monotonic clock runs");
        Monotonic { true_us, reading_us, rate_ppm }
    }

    /// Reading at true time `now_us`.
    pub fn read_us(&self, now_us: u64) -> u64 {
        let elapsed = u128::from(now_us - self.true_us) * u128::from(self.rate_ppm) / 1_000_000;
        self.reading_us + elapsed as u64
    }

    /// First true time, not before `now_us`, at which the clock reads at least `reading_us`.
    pub fn true_time_us(&self, now_us: u64, reading_us: u64) -> u64 {
        let missing = reading_us.saturating_sub(self.read_us(now_us));
        if missing == 0 {
            return now_us;
        }
        let missing = u128::from(reading_us - self.reading_us);
        self.true_us.saturating_add((missing * 1_000_000).div_ceil(u128::from(self.rate_ppm)) as u64)
    }

    /// Continues at another rate.
    pub fn set_rate(&mut self, now_us: u64, rate_ppm: u64) {
        *self = Monotonic::new(now_us, self.read_us(now_us), rate_ppm);
    }
}

/// A wall clock.
#[derive(Debug, Clone)]
pub struct Wall {
    true_us: u64,
    offset_us: i64,
    drift_ppm: i64,
    bound_us: i64,
    /// The bound, or the offset where that is beyond it.
    limit_us: i64,
}

impl Wall {
    /// A clock that is `offset_us` ahead of true time at `true_us`, and that drifts no further off than `bound_us`.
    pub fn new(true_us: u64, offset_us: i64, drift_ppm: i64, bound_us: i64) -> Self {
        Wall { true_us, offset_us, drift_ppm, bound_us, limit_us: bound_us.max(offset_us.abs()) }
    }

    fn offset_us(&self, now_us: u64) -> i64 {
        let drift = now_us.saturating_sub(self.true_us) as i64 * self.drift_ppm / 1_000_000;
        (self.offset_us + drift).clamp(-self.limit_us, self.limit_us)
    }

    /// Reading at true time `now_us`.
    pub fn read_ms(&self, now_us: u64) -> u64 {
        ((WALL_START_MS * 1_000 + now_us) as i64 + self.offset_us(now_us)) as u64 / 1_000
    }

    /// Jumps to another offset.
    pub fn jump(&mut self, now_us: u64, offset_us: i64) {
        *self = Wall::new(now_us, offset_us, self.drift_ppm, self.bound_us);
    }

    /// The greatest distance from true time that is within the contract.
    pub fn bound_us(&self) -> i64 {
        self.bound_us
    }
}

/// A signed draw from `-bound` to `bound`.
pub fn draw_signed(random: &mut Random, bound: u64) -> i64 {
    random.between(0, 2 * bound) as i64 - bound as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_monotonic_clock_never_goes_back_and_inverts() {
        let mut random = Random::new(7);
        for _ in 0..1_000 {
            let mut clock = Monotonic::new(1_000, 55, random.between(500_000, 2_000_000));
            let now = random.between(1_000, 10_000_000);
            let wanted = random.between(0, 20_000_000);
            let at = clock.true_time_us(now, wanted);
            assert!(at >= now && clock.read_us(at) >= wanted);
            assert!(at == now || clock.read_us(at - 1) < wanted, "the first such time");
            let before = clock.read_us(now);
            clock.set_rate(now, 999_000);
            assert_eq!(clock.read_us(now), before);
        }
    }

    #[test]
    fn wall_clocks_keep_their_bound_through_drift_and_jumps() {
        let mut random = Random::new(3);
        let bound = 450_000;
        let mut clock = Wall::new(0, draw_signed(&mut random, bound as u64), 990, bound);
        for second in 1..2_000u64 {
            let now = second * 1_000_000;
            if random.chance(1, 10) {
                clock.jump(now, draw_signed(&mut random, bound as u64));
            }
            let error = clock.read_ms(now) as i64 - (WALL_START_MS + now / 1_000) as i64;
            assert!(error.abs() <= bound / 1_000 + 1, "{error}");
        }
    }
}
