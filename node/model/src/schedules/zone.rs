//! Local times of a time zone, and the changes of its clocks.
//!
//! Instants are seconds since 1970. Local times are seconds since 1970-01-01T00:00:00 as the clock shows them, as if it were UTC's. The
//! zones are those of the IANA database as built into the library [`chrono_tz`]; no clock, file or zone of the machine is read.

use chrono::{DateTime, Offset, TimeZone, Utc};
use chrono_tz::Tz;

/// A change that is undone sooner than this may be missed.
const STEP_S: i64 = 3_600;

/// Clocks of one place.
pub(super) trait Clocks {
    /// Offset of local time from UTC at an instant.
    fn offset(&self, instant: i64) -> i64;

    /// Local time at an instant.
    fn shows(&self, instant: i64) -> i64 {
        instant + self.offset(instant)
    }

    /// The first change after an instant and up to another one.
    fn change_after(&self, after: i64, until: i64) -> Option<i64> {
        let (before, mut low) = (self.offset(after), after);
        while low < until {
            let mut high = (low + STEP_S).min(until);
            if self.offset(high) == before {
                low = high;
                continue;
            }
            while high - low > 1 {
                let middle = low + (high - low) / 2;
                if self.offset(middle) == before { low = middle } else { high = middle }
            }
            return Some(high);
        }
        None
    }

    /// The last change after an instant and up to another one.
    fn change_until(&self, after: i64, until: i64) -> Option<i64> {
        let (behind, mut high) = (self.offset(until), until);
        while high > after {
            let mut low = (high - STEP_S).max(after);
            if self.offset(low) == behind {
                high = low;
                continue;
            }
            while high - low > 1 {
                let middle = low + (high - low) / 2;
                if self.offset(middle) == behind { high = middle } else { low = middle }
            }
            return Some(high);
        }
        None
    }
}

impl Clocks for Tz {
    fn offset(&self, instant: i64) -> i64 {
        let at = DateTime::from_timestamp(instant, 0).unwrap_or(DateTime::<Utc>::MAX_UTC).naive_utc();
        i64::from(self.offset_from_utc_datetime(&at).fix().local_minus_utc())
    }
}
