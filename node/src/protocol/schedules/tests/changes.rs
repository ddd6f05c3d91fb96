//! Calendars where clocks change, compared with a reckoning that walks through the minutes.

use super::cron;
use crate::protocol::schedules::Calendar;
use chrono::{DateTime, Datelike, Offset, TimeZone, Timelike, Utc};
use chrono_tz::{TZ_VARIANTS, Tz};
use std::collections::BTreeSet;

/// Days that are walked through before and after each change.
const DAYS: i64 = 2;
const MINUTE_S: i64 = 60;
const DAY_S: i64 = 86_400;
/// 2000-01-01 and 2041-01-01.
const YEARS_S: std::ops::Range<i64> = 946_684_800..2_240_524_800;

/// An expression, whether its times are fixed ones, and whether it names a local time.
type Case = (&'static str, bool, fn(&DateTime<Utc>) -> bool);

const CASES: [Case; 16] = [
    ("30 2 * * *", true, |at| at.hour() == 2 && at.minute() == 30),
    ("30 2,14 * * *", true, |at| [2, 14].contains(&at.hour()) && at.minute() == 30),
    ("0,30 2 * * *", true, |at| at.hour() == 2 && [0, 30].contains(&at.minute())),
    ("0 1-4 * * *", true, |at| (1..=4).contains(&at.hour()) && at.minute() == 0),
    ("15,45 0-23 * * *", true, |at| [15, 45].contains(&at.minute())),
    ("10-50/20 0,1,2,3 * * 0,6", true, |at| {
        [10, 30, 50].contains(&at.minute()) && at.hour() < 4 && [0, 6].contains(&at.weekday().num_days_from_sunday())
    }),
    ("30 23 * * 6", true, |at| at.hour() == 23 && at.minute() == 30 && at.weekday().num_days_from_sunday() == 6),
    ("0 0 * * *", true, |at| at.hour() == 0 && at.minute() == 0),
    ("0 0,12 1 * *", true, |at| at.day() == 1 && at.hour().is_multiple_of(12) && at.minute() == 0),
    ("@daily", true, |at| at.hour() == 0 && at.minute() == 0),
    ("*/30 * * * *", false, |at| at.minute().is_multiple_of(30)),
    ("0 * * * *", false, |at| at.minute() == 0),
    ("*/20 2 * * *", false, |at| at.hour() == 2 && at.minute().is_multiple_of(20)),
    ("5 */2 * * *", false, |at| at.hour().is_multiple_of(2) && at.minute() == 5),
    ("0-45/15 1,2 * * *", true, |at| [1, 2].contains(&at.hour()) && at.minute().is_multiple_of(15)),
    ("@hourly", false, |at| at.minute() == 0),
];

fn offset_s(zone: Tz, instant: i64) -> i64 {
    let at = DateTime::from_timestamp(instant, 0).expect("a time of these years").naive_utc();
    i64::from(zone.offset_from_utc_datetime(&at).fix().local_minus_utc())
}

/// The instants at which the clocks of a zone change, found by looking at every sixth hour and then at the minutes before it.
fn changes(zone: Tz) -> Vec<i64> {
    const STEP_S: i64 = 6 * 3_600;
    let differs = |instant: &i64, step: i64| offset_s(zone, instant - step) != offset_s(zone, *instant);
    let steps = YEARS_S.step_by(STEP_S as usize).filter(|end| differs(end, STEP_S));
    let minutes = |end: i64| (end - STEP_S + MINUTE_S..=end).step_by(MINUTE_S as usize);
    steps.flat_map(minutes).filter(|minute| differs(minute, MINUTE_S)).collect()
}

/// When an expression is due around a change. A fixed time is when clocks first reach or pass it, and a pattern whenever they
/// show it.
fn reckoned(zone: Tz, change: i64, (_, fixed, names): &Case) -> Vec<u64> {
    let is_named = |local: i64| names(&DateTime::from_timestamp(local, 0).expect("a time of these years"));
    let begin = change - DAYS * DAY_S;
    // An earlier change may have been shortly before.
    let early = begin - DAY_S;
    let mut reached = early + offset_s(zone, early);
    let mut due = Vec::new();
    for instant in (early + MINUTE_S..=change + DAYS * DAY_S).step_by(MINUTE_S as usize) {
        let local = instant + offset_s(zone, instant);
        let mut passed = (reached + MINUTE_S..=local).step_by(MINUTE_S as usize);
        if if *fixed { passed.any(is_named) } else { is_named(local) } {
            due.push(instant as u64 * 1_000);
        }
        reached = reached.max(local);
    }
    due.retain(|tick| *tick > begin as u64 * 1_000);
    due
}

/// Compares both ways of a calendar with the reckoning, around one change.
fn is_right(zone: Tz, change: i64) {
    let (begin_ms, end_ms) = ((change - DAYS * DAY_S) as u64 * 1_000, (change + DAYS * DAY_S) as u64 * 1_000);
    for case in &CASES {
        let calendar = Calendar::new(&cron(case.0, zone.name())).expect("a good expression");
        let next = |before: &u64| calendar.after(*before).filter(|tick| *tick <= end_ms);
        let forwards: Vec<u64> = std::iter::successors(next(&begin_ms), next).collect();
        let wanted = reckoned(zone, change, case);
        assert_eq!(forwards, wanted, "{} in {zone}, around {change}", case.0);
        let backwards: Vec<u64> = calendar.backwards(begin_ms, end_ms).collect();
        assert!(backwards.iter().rev().eq(&wanted), "{} in {zone}, around {change}, backwards: {backwards:?}", case.0);
        // From any moment, too, and not only from one time to the next.
        for moment_ms in (begin_ms..end_ms).step_by(1_733_000) {
            let after = forwards.iter().find(|tick| **tick > moment_ms).copied();
            assert_eq!(calendar.after(moment_ms).filter(|tick| *tick <= end_ms), after, "{} in {zone}", case.0);
            let until = forwards.iter().rfind(|tick| **tick <= moment_ms).copied();
            assert_eq!(calendar.until(moment_ms).filter(|tick| *tick > begin_ms), until, "{} in {zone}", case.0);
        }
    }
}

/// What is alike of two changes: the time of the day and of the week, and by how much clocks change.
fn kind(zone: Tz, change: i64) -> (i64, i64) {
    let before = change - 1 + offset_s(zone, change - 1);
    ((before + 1).rem_euclid(7 * DAY_S), offset_s(zone, change) - offset_s(zone, change - 1))
}

/// Goal: what README says of changed clocks, in all zones. Method: one change of each kind from 2000 to 2040.
#[test]
fn fixed_times_are_due_once_and_patterns_as_clocks_show_them() {
    let mut kinds = BTreeSet::new();
    for zone in TZ_VARIANTS {
        for change in changes(zone) {
            if kinds.insert(kind(zone, change)) {
                is_right(zone, change);
            }
        }
    }
    assert!(kinds.len() > 90, "{} kinds", kinds.len());
}

/// Goal, method: the same at each change.
#[test]
#[ignore = "takes minutes: the soak runs it"]
fn every_change_of_clocks_is_right() {
    let mut seen = BTreeSet::new();
    for zone in TZ_VARIANTS {
        for change in changes(zone) {
            // Many zones are others under another name.
            if seen.insert((change, offset_s(zone, change - 1), offset_s(zone, change))) {
                is_right(zone, change);
            }
        }
    }
}
