//! Repair throttle: a token bucket that fills with time, and more slowly while clients write.
//!
//! Repair may finish a task, or a look at a bucket, for which it has only a part of the tokens, so that nothing is too large for it. The
//! debt is paid back before anything else begins.

use norn_model::config::Config;

/// Number of tasks looked at that cost as much as one that is sent.
pub const LOOKS_PER_ITEM: u64 = 16;
/// Most that is saved up, in microseconds of filling.
const SAVED_US_MAX: u64 = 1_000_000;
/// Clients' writes leave one part in this many of the filling to repair.
const SHARE: i64 = 8;
/// Tokens are counted in millionths: one millionth comes in within a microsecond at one token a second.
const MILLIONTHS: i64 = 1_000_000;

/// Cost of a piece of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cost {
    /// Bytes sent.
    pub bytes: u64,
    /// Tasks looked at; one that is sent counts [`LOOKS_PER_ITEM`] times.
    pub looks: u64,
}

impl Cost {
    /// Adds to it.
    pub fn add(&mut self, other: Cost) {
        self.bytes += other.bytes;
        self.looks += other.looks;
    }

    /// Cost of a task of this size that is sent.
    pub fn of_task(bytes: usize) -> Cost {
        Cost { bytes: bytes as u64, looks: LOOKS_PER_ITEM }
    }
}

/// One kind of token.
#[derive(Debug, Default)]
struct Tokens {
    /// In millionths; a debt is negative.
    left: i64,
    /// What clients' writes took since the last filling.
    foreground: i64,
}

impl Tokens {
    fn fill(&mut self, per_second: u64, elapsed_us: u64) {
        let limit = i64::try_from(per_second.saturating_mul(SAVED_US_MAX)).unwrap_or(i64::MAX);
        let gained = i64::try_from(per_second.saturating_mul(elapsed_us)).unwrap_or(i64::MAX);
        let taken = self.foreground.min(gained - gained / SHARE);
        assert!(taken >= 0, "writes of clients give repair more than it has");
        self.foreground = (self.foreground - taken).min(limit);
        self.left = self.left.saturating_add(gained - taken).min(limit);
    }

    fn whole(&self) -> u64 {
        (self.left / MILLIONTHS).max(0) as u64
    }

    /// Microseconds until there is something to spend, if clients are quiet.
    fn wait_us(&self, per_second: u64) -> u64 {
        let owed = MILLIONTHS.saturating_sub(self.left).max(0) as u64;
        owed.div_ceil(per_second)
    }
}

/// Repair throttle of a node.
#[derive(Debug, Default)]
pub struct Budget {
    bytes: Tokens,
    looks: Tokens,
    filled_us: u64,
}

impl Budget {
    fn rates(config: &Config) -> (u64, u64) {
        (config.repair_bytes_per_second, config.repair_items_per_second * LOOKS_PER_ITEM)
    }

    /// Returns what there is to spend or, if nothing, in how many microseconds to ask again.
    pub fn admit(&mut self, now_us: u64, config: &Config) -> Result<Cost, u64> {
        let (bytes, looks) = Budget::rates(config);
        let elapsed_us = now_us.saturating_sub(self.filled_us);
        self.filled_us = now_us;
        self.bytes.fill(bytes, elapsed_us);
        self.looks.fill(looks, elapsed_us);
        match self.bytes.wait_us(bytes).max(self.looks.wait_us(looks)) {
            0 => Ok(Cost { bytes: self.bytes.whole(), looks: self.looks.whole() }),
            wait_us => Err(wait_us),
        }
    }

    /// Charges the cost of repair.
    pub fn spend(&mut self, cost: Cost) {
        let taken = |amount: u64| i64::try_from(amount).unwrap_or(i64::MAX).saturating_mul(MILLIONTHS);
        self.bytes.left = self.bytes.left.saturating_sub(taken(cost.bytes));
        self.looks.left = self.looks.left.saturating_sub(taken(cost.looks));
    }

    /// Charges a client's write that was stored here: it takes precedence over repair.
    pub fn yield_to(&mut self, cost: Cost) {
        let taken = |amount: u64| i64::try_from(amount).unwrap_or(i64::MAX).saturating_mul(MILLIONTHS);
        self.bytes.foreground = self.bytes.foreground.saturating_add(taken(cost.bytes));
        self.looks.foreground = self.looks.foreground.saturating_add(taken(cost.looks));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(bytes: u64, items: u64) -> Config {
        Config { repair_bytes_per_second: bytes, repair_items_per_second: items, ..Config::default() }
    }

    /// Bytes that can be spent in pieces within a time, with a look each millisecond.
    fn spent(budget: &mut Budget, config: &Config, piece: Cost, from_us: u64, ms: u64) -> u64 {
        let mut bytes = 0;
        for step in 0..ms {
            while budget.admit(from_us + step * 1_000, config).is_ok() {
                budget.spend(piece);
                bytes += piece.bytes;
            }
        }
        bytes
    }

    #[test]
    fn no_more_is_spent_than_comes_in_and_was_saved() {
        let config = config(1_000_000, 1_000_000);
        let mut budget = Budget::default();
        let start_us = 3_600_000_000;
        let piece = Cost { bytes: 700, looks: 1 };
        let first = spent(&mut budget, &config, piece, start_us, 1_000);
        assert!((1_990_000..=2_001_000).contains(&first), "{first}: a second's worth was saved, one came in");
        let second = spent(&mut budget, &config, piece, start_us + 1_000_000, 1_000);
        assert!((990_000..=1_001_000).contains(&second), "{second}");
    }

    #[test]
    fn items_bound_it_as_bytes_do_and_a_task_larger_than_everything_passes() {
        let config = config(65_536, 10);
        let mut budget = Budget::default();
        let sent = spent(&mut budget, &config, Cost::of_task(1), 10_000_000, 1_000);
        assert!((18..=21).contains(&sent), "{sent}");
        let mut budget = Budget::default();
        assert_eq!(budget.admit(10_000_000, &config), Ok(Cost { bytes: 65_536, looks: 10 * LOOKS_PER_ITEM }));
        budget.spend(Cost::of_task(65_536 * 4));
        let wait_us = budget.admit(10_000_000, &config).expect_err("it owes three seconds");
        assert!((3_000_000..3_010_000).contains(&wait_us), "{wait_us}");
        assert!(budget.admit(10_000_000 + wait_us - 1_000, &config).is_err());
        assert!(budget.admit(10_000_000 + wait_us, &config).is_ok());
    }

    #[test]
    fn clients_go_before_and_leave_a_share() {
        let config = config(1_000_000, 1_000_000);
        let mut budget = Budget::default();
        let piece = Cost { bytes: 100, looks: 0 };
        spent(&mut budget, &config, piece, 10_000_000, 1);
        let mut bytes = 0;
        for step in 1..1_000 {
            budget.yield_to(Cost { bytes: 5_000, looks: 5 });
            bytes += spent(&mut budget, &config, piece, 10_000_000 + step * 1_000, 1);
        }
        assert!((120_000..130_000).contains(&bytes), "{bytes}: an eighth of a million");
    }
}
