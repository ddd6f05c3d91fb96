//! Available times of tasks, as taskstore writes them: milliseconds since the Unix epoch, or below 0 a delay from now.

use super::ids::NUMBER_MAX;
use crate::problem::Problem;
use std::time::{SystemTime, UNIX_EPOCH};

/// The node's clock, in milliseconds since the Unix epoch.
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The available time that a request means: absent or 0 is now, below 0 is that long from now, above 0 is the time itself.
pub fn available_ms(timespec: Option<i64>, now_ms: u64) -> Result<u64, Problem> {
    let given = timespec.unwrap_or(0);
    let meant = if given > 0 { given.unsigned_abs() } else { now_ms.saturating_add(given.unsigned_abs()) };
    if meant > NUMBER_MAX {
        let detail = format!("a timespec of {given}: it is in milliseconds, and times end at {NUMBER_MAX}");
        return Err(Problem::invalid(detail));
    }
    Ok(meant)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // T35, T36, T37: absent and 0 are now, below 0 a delay, above 0 a time
    #[test]
    fn times_and_delays_are_told_apart() {
        assert_eq!(available_ms(None, 5_000).unwrap(), 5_000);
        assert_eq!(available_ms(Some(0), 5_000).unwrap(), 5_000);
        assert_eq!(available_ms(Some(-60_000), 5_000).unwrap(), 65_000);
        assert_eq!(available_ms(Some(60_000), 5_000_000).unwrap(), 60_000);
        assert_eq!(available_ms(Some(i64::MIN), 5_000).unwrap_err().code, "invalid");
        assert_eq!(available_ms(Some(i64::MAX), 5_000).unwrap_err().code, "invalid");
    }

    proptest! {
        #[test]
        fn any_timespec_is_a_time_or_an_error(given: Option<i64>, now_ms: u64) {
            if let Ok(meant) = available_ms(given, now_ms) {
                prop_assert!(meant <= NUMBER_MAX);
                prop_assert!(given.is_some_and(|given| given > 0) || meant >= now_ms);
            }
        }
    }
}
