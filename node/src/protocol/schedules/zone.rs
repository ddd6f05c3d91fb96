//! What the clocks of a time zone show, and when they show it.
//!
//! Instants are seconds since 1970. Local times are seconds since 1970-01-01T00:00:00 as the clock shows them, as if it were
//! UTC's. The zones are those of the IANA database as built into the library [`chrono_tz`]; no clock, file or zone of the
//! machine is read.

use chrono::{DateTime, NaiveDateTime, Offset, TimeZone};
use chrono_tz::{GapInfo, Tz};

/// When clocks show a local time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shown {
    /// At one instant.
    Once(i64),
    /// At two instants, as clocks are set back: so are all local times from one to another, which is shown once.
    Twice { first: i64, second: i64, from: i64, to: i64 },
    /// Never, as clocks are set forward: neither is any local time from one to another, which is shown at the instant of the change.
    Never { from: i64, to: i64, change: i64 },
}

fn offset(zone: Tz, instant: i64) -> Option<i64> {
    let at = DateTime::from_timestamp(instant, 0)?.naive_utc();
    Some(i64::from(zone.offset_from_utc_datetime(&at).fix().local_minus_utc()))
}

/// What clocks show at an instant; `None` beyond what the library knows.
pub(super) fn shows(zone: Tz, instant: i64) -> Option<i64> {
    instant.checked_add(offset(zone, instant)?)
}

/// When clocks show a local time; `None` beyond what the library knows.
pub(super) fn shown(zone: Tz, local: i64) -> Option<Shown> {
    let naive = DateTime::from_timestamp(local, 0)?.naive_utc();
    match zone.from_local_datetime(&naive) {
        chrono::LocalResult::Single(at) => Some(Shown::Once(at.timestamp())),
        chrono::LocalResult::Ambiguous(first, second) => {
            let (first, second) = (first.timestamp(), second.timestamp());
            let change = change(zone, first, second)?;
            let (from, to) = (shows(zone, change)?, change.checked_add(offset(zone, first)?)?);
            Some(Shown::Twice { first, second, from, to })
        }
        chrono::LocalResult::None => never(zone, &naive),
    }
}

fn never(zone: Tz, naive: &NaiveDateTime) -> Option<Shown> {
    let gap = GapInfo::new(naive, &zone)?;
    let (from, end) = (gap.begin?.0.and_utc().timestamp(), gap.end?);
    let change = end.timestamp();
    Some(Shown::Never { from, to: shows(zone, change)?, change })
}

/// The instant at which clocks are set back, between two that they show alike: found by halving.
fn change(zone: Tz, first: i64, second: i64) -> Option<i64> {
    let before = offset(zone, first)?;
    let (mut low, mut high) = (first, second);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if offset(zone, middle)? == before { low = middle } else { high = middle }
    }
    Some(high)
}
