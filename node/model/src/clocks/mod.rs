//! Clock judgement: whether this node's wall clock can be relied on, compared with the clocks of a majority.
//!
//! Every exchange of heartbeats measures the other clock as NTP does (RFC 5905, section 8), with half the round trip as the bound of the
//! error. The clocks that a majority agrees on are those of the narrowest window that holds a majority of them, an interval in Marzullo's
//! sense. A clock is wrong by its certain distance from that window. Its node is demoted, not killed: a node with a wrong clock is a good
//! follower, whose clock decides nothing.
//!
//! Safety does not rest on this: a claim expires by both clocks of its leader. The judgement only removes leaders whose clocks would make
//! claims end late, or one of the two bounds meaningless.

mod window;

use crate::config::Config;
use crate::time::Now;
use norn_wire::NodeId;
use norn_wire::response::Standing;
use std::collections::BTreeMap;
use window::{Interval, distance_to_majority};

/// Older measurements, and round trips that took longer, are ignored.
const SAMPLE_AGE_US_MAX: u64 = 10_000_000;
/// A wall clock that moves by this much against the monotonic one between two events has jumped.
const JUMP_US: u64 = 50_000;
/// Half a unit of the wall clock's readings.
const READING_ERROR_US: u64 = 500;
/// A leader whose clock is further off does not lead for long.
const MARGIN_EPSILONS_MAX: u64 = 4;
/// Later wall clocks are ignored as absurd.
const WALL_MS_MAX: u64 = 1 << 48;

/// One measurement of another node's wall clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sample {
    /// The other wall clock minus the own monotonic clock.
    ahead_us: i64,
    /// The greatest error of that.
    error_us: u64,
    /// Time of the measurement, on the own monotonic clock.
    at_us: u64,
}

impl Sample {
    fn is_fresh(&self, now_us: u64) -> bool {
        now_us <= self.at_us + SAMPLE_AGE_US_MAX
    }

    /// As an interval of offsets from a wall clock that is `own_us` ahead of the own monotonic clock.
    fn interval(&self, now_us: u64, own_us: i64, config: &Config) -> Interval {
        let age_us = now_us.saturating_sub(self.at_us);
        // Both monotonic clocks may be off by the bound.
        let drift_us = age_us * 2 * config.clock_drift_ppm / 1_000_000;
        Interval { center_us: self.ahead_us - own_us, error_us: self.error_us + drift_us + READING_ERROR_US }
    }
}

/// Result of a look at the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Judgement {
    /// Status of the clock.
    pub standing: Standing,
    /// Certain distance from the clocks of a majority, where known.
    pub off_us: Option<u64>,
}

/// Measurements of all other wall clocks, and the status of the own one.
#[derive(Debug, Default)]
pub struct Clocks {
    samples: BTreeMap<NodeId, Sample>,
    standing: Standing,
    /// Time since when the clock has been better than its status.
    better_since_us: Option<u64>,
    /// The own wall clock minus the own monotonic clock, when last looked at.
    own_us: Option<i64>,
    /// Time of a jump after which no majority has been there to compare with.
    jumped_us: Option<u64>,
    /// Round trips that began before the latest jump measured two clocks.
    measurable_since_us: u64,
}

/// A round trip that ends now, by the own monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoundTrip {
    /// Time at which it began.
    pub sent_us: u64,
    /// How long the other node held it, by its own clock.
    pub kept_us: u64,
}

impl RoundTrip {
    /// Time that it was on the way, and the error of that; `None` if the readings are impossible.
    pub fn length_us(&self, now_us: u64, config: &Config) -> Option<(u64, u64)> {
        let whole_us = now_us.checked_sub(self.sent_us)?;
        let error_us = self.kept_us.min(SAMPLE_AGE_US_MAX) * 2 * config.clock_drift_ppm / 1_000_000;
        if whole_us > SAMPLE_AGE_US_MAX || self.kept_us > whole_us + error_us {
            return None;
        }
        Some((whole_us.saturating_sub(self.kept_us), error_us))
    }
}

fn ahead_us(now: Now) -> i64 {
    (now.wall_ms.min(WALL_MS_MAX) * 1_000 + READING_ERROR_US) as i64 - now.mono_us as i64
}

impl Clocks {
    /// Status of the own clock.
    pub fn standing(&self) -> Standing {
        if self.jumped_us.is_some() { Standing::Fenced } else { self.standing }
    }

    /// Takes a measurement: another node's wall clock showed `wall_ms` when it answered on a round trip that ends now.
    pub fn measure(&mut self, node: NodeId, wall_ms: u64, trip: RoundTrip, now: Now, config: &Config) {
        // A round trip during which the own clock jumped, or the machine slept, was not measured by one clock.
        let one_clock = trip.sent_us >= self.measurable_since_us;
        let Some((length_us, error_us)) = trip.length_us(now.mono_us, config).filter(|_| one_clock) else { return };
        if wall_ms > WALL_MS_MAX {
            return;
        }
        let there = (wall_ms * 1_000 + READING_ERROR_US) as i64;
        let half_us = length_us / 2;
        let fresh = Sample {
            ahead_us: there + half_us as i64 - now.mono_us as i64,
            error_us: half_us + error_us + READING_ERROR_US,
            at_us: now.mono_us,
        };
        let new = fresh.interval(now.mono_us, 0, config);
        let known = self.samples.get(&node).filter(|kept| kept.is_fresh(now.mono_us));
        let keeps = known.map(|kept| kept.interval(now.mono_us, 0, config)).is_some_and(|known| {
            // After a jump of the other clock, an earlier and better measurement is worthless.
            known.error_us < new.error_us && new.apart_us(&known) == 0
        });
        if !keeps {
            self.samples.insert(node, fresh);
        }
    }

    /// Another node's wall clock minus the own one, and the greatest error of that, in microseconds.
    pub fn offset_us(&self, node: NodeId, now: Now, config: &Config) -> Option<(i64, u64)> {
        let sample = self.samples.get(&node).filter(|sample| sample.is_fresh(now.mono_us))?;
        let interval = sample.interval(now.mono_us, ahead_us(now), config);
        Some((interval.center_us, interval.error_us))
    }

    /// How far apart the wall clocks of two leaders may be: what is allowed, or what was measured where that is more, within a bound.
    pub fn margin_ms(&self, now: Now, config: &Config) -> u64 {
        let own_us = ahead_us(now);
        let fresh = self.samples.values().filter(|sample| sample.is_fresh(now.mono_us));
        let apart_us = fresh.map(|sample| {
            let interval = sample.interval(now.mono_us, own_us, config);
            interval.center_us.unsigned_abs() + interval.error_us
        });
        let epsilon_ms = config.clock_epsilon_ms;
        apart_us.max().unwrap_or(0).div_ceil(1_000).clamp(epsilon_ms, MARGIN_EPSILONS_MAX * epsilon_ms)
    }

    /// Whether the own wall clock jumped since the last call.
    pub fn has_jumped(&mut self, now: Now) -> bool {
        let own_us = ahead_us(now);
        let before_us = self.own_us.replace(own_us);
        before_us.is_some_and(|before_us| own_us.abs_diff(before_us) > JUMP_US)
    }

    /// Compares the own clock with those of a majority of `members` nodes. `jumped` is the result of [`Clocks::has_jumped`]: unless the
    /// jump was small, earlier measurements are discarded, as all clocks may have jumped together.
    pub fn judge(&mut self, now: Now, members: usize, jumped: bool, config: &Config) -> Judgement {
        let epsilon_us = config.clock_epsilon_ms * 1_000;
        let mut off_us = self.off_us(now, members, config);
        if jumped && off_us.is_none_or(|off_us| off_us >= epsilon_us / 2) {
            self.samples.clear();
            (self.jumped_us, self.measurable_since_us) = (Some(now.mono_us), now.mono_us);
            off_us = self.off_us(now, members, config);
        }
        // Where no majority is available for long, the two clocks of a lease must suffice.
        let since_us = self.jumped_us.filter(|at_us| now.mono_us < at_us + config.clock_calm_ms.max(1) * 1_000);
        self.jumped_us = since_us.filter(|_| off_us.is_none());
        let target = match off_us {
            None => Standing::Unknown,
            Some(off_us) if off_us >= epsilon_us * 8 / 10 => Standing::Fenced,
            Some(off_us) if off_us >= epsilon_us / 2 => Standing::Suspect,
            Some(_) => Standing::Good,
        };
        self.approach(target, now.mono_us, config);
        Judgement { standing: self.standing(), off_us }
    }

    /// Certain distance of the own clock from the clocks of a majority of `members` nodes.
    pub fn off_us(&self, now: Now, members: usize, config: &Config) -> Option<u64> {
        let own_us = ahead_us(now);
        let fresh = self.samples.values().filter(|sample| sample.is_fresh(now.mono_us));
        let others = fresh.map(|sample| sample.interval(now.mono_us, own_us, config)).collect();
        distance_to_majority(others, members, config.clock_epsilon_ms * 1_000)
    }

    /// Worsens the status at once, and improves it only after a while. Missing knowledge is no reason to trust a clock that was wrong.
    fn approach(&mut self, target: Standing, now_us: u64, config: &Config) {
        let wrong = |standing: Standing| matches!(standing, Standing::Suspect | Standing::Fenced);
        let better = target < self.standing && wrong(self.standing);
        if !better {
            self.better_since_us = None;
            self.standing = target;
        } else if target == Standing::Unknown {
            self.better_since_us = None;
        } else {
            let since_us = *self.better_since_us.get_or_insert(now_us);
            if now_us >= since_us + config.clock_calm_ms * 1_000 {
                (self.standing, self.better_since_us) = (target, None);
            }
        }
    }
}

#[cfg(test)]
mod tests;
