//! Calendars where clocks change, compared with a reference that walks through the minutes, or through the seconds where an expression
//! names some.

use super::{at, calendar, cron};
use crate::schedules::Calendar;
use crate::schedules::calendar::Times;
use crate::schedules::zone::Clocks;
use chrono::{DateTime, Datelike, Days, Timelike, Utc, Weekday};
use chrono_tz::{TZ_VARIANTS, Tz};
use std::collections::BTreeSet;

/// Time walked through before and after each change.
const AROUND_S: i64 = 2 * DAY_S;
/// The same for expressions with seconds.
const AROUND_BY_SECONDS_S: i64 = 4 * 3_600;
const MINUTE_S: i64 = 60;
const DAY_S: i64 = 86_400;
/// 2000-01-01 and 2041-01-01.
const YEARS_S: std::ops::Range<i64> = 946_684_800..2_240_524_800;

/// An expression, whether its times are fixed ones, and whether it names a local time.
type Case = (&'static str, bool, fn(&DateTime<Utc>) -> bool);

const CASES: [Case; 32] = [
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
    ("*/7 1-3 * * *", false, |at| (1..=3).contains(&at.hour()) && at.minute().is_multiple_of(7)),
    ("3-59/9 2 * * *", true, |at| at.hour() == 2 && at.minute() % 9 == 3),
    ("30 1 L * *", true, |at| at.hour() == 1 && at.minute() == 30 && is_last(at, 1)),
    ("30 1-3 * * 0L", true, |at| {
        (1..=3).contains(&at.hour()) && at.minute() == 30 && at.weekday() == Weekday::Sun && is_last(at, 7)
    }),
    ("*/15 2 * * 0#2", false, |at| {
        at.hour() == 2 && at.minute().is_multiple_of(15) && at.weekday() == Weekday::Sun && (8..15).contains(&at.day())
    }),
    ("0,30 0-3 1W * *", true, |at| at.hour() < 4 && at.minute().is_multiple_of(30) && at.day() == weekday_by(at, 1)),
    ("*/30 0-3 15W * *", false, |at| at.hour() < 4 && at.minute().is_multiple_of(30) && at.day() == weekday_by(at, 15)),
    ("0 30 2 * * * 2001-2041/2", true, |at| {
        at.hour() == 2 && at.minute() == 30 && at.second() == 0 && at.year() % 2 == 1
    }),
    ("0 */30 * * * * 2000-2040/2", false, |at| {
        at.minute().is_multiple_of(30) && at.second() == 0 && at.year() % 2 == 0
    }),
    ("* 30 2 * * *", false, |at| at.hour() == 2 && at.minute() == 30),
    ("15 30 2 * * *", true, |at| at.hour() == 2 && at.minute() == 30 && at.second() == 15),
    ("*/20 */15 * * * *", false, |at| at.minute().is_multiple_of(15) && at.second().is_multiple_of(20)),
    ("0,59 59 0-3 * * *", true, |at| at.hour() < 4 && at.minute() == 59 && [0, 59].contains(&at.second())),
    ("10-50/20 0,1 1,2,3 * * *", true, |at| {
        (1..=3).contains(&at.hour()) && at.minute() < 2 && [10, 30, 50].contains(&at.second())
    }),
    ("59 59 23 L * *", true, |at| (at.hour(), at.minute(), at.second()) == (23, 59, 59) && is_last(at, 1)),
    ("1 */10 2 * * 0#L", false, |at| {
        at.hour() == 2
            && at.minute().is_multiple_of(10)
            && at.second() == 1
            && at.weekday() == Weekday::Sun
            && is_last(at, 7)
    }),
];

/// Whether the month is another one some days later.
fn is_last(at: &DateTime<Utc>, days: u64) -> bool {
    (*at + Days::new(days)).month() != at.month()
}

/// The day from Monday to Friday that is nearest to another day of the same month.
fn weekday_by(at: &DateTime<Utc>, day: u32) -> u32 {
    match at.with_day(day).expect("each month has it").weekday() {
        Weekday::Sat if day == 1 => 3,
        Weekday::Sat => day - 1,
        Weekday::Sun => day + 1,
        _ => day,
    }
}

/// Whether an expression has seconds.
fn has_seconds(expression: &str) -> bool {
    expression.split(' ').count() > 5
}

/// The instants at which the clocks of a zone change, found by a look at every sixth hour and then at the minutes before it.
fn changes(zone: Tz) -> Vec<i64> {
    const STEP_S: i64 = 6 * 3_600;
    let differs = |instant: &i64, step: i64| zone.offset(instant - step) != zone.offset(*instant);
    let steps = YEARS_S.step_by(STEP_S as usize).filter(|end| differs(end, STEP_S));
    let minutes = |end: i64| (end - STEP_S + MINUTE_S..=end).step_by(MINUTE_S as usize);
    steps.flat_map(minutes).filter(|minute| differs(minute, MINUTE_S)).collect()
}

/// Reference: when an expression is due after an instant and up to another one. A fixed time is due when clocks first reach or pass it, a
/// pattern whenever they show it.
fn reckoned(clocks: &impl Clocks, begin: i64, end: i64, (expression, fixed, names): &Case) -> Vec<i64> {
    let is_named = |local: i64| names(&DateTime::from_timestamp(local, 0).expect("a time of these years"));
    let step_s = if has_seconds(expression) { 1 } else { MINUTE_S };
    // An earlier change may have been shortly before.
    let minutes = (begin - DAY_S..begin).step_by(MINUTE_S as usize);
    let before = minutes.map(|minute| clocks.shows(minute) + MINUTE_S - step_s).max();
    let mut reached = clocks.shows(begin).max(before.expect("a day has minutes"));
    let mut due = Vec::new();
    for minute in (begin..end).step_by(MINUTE_S as usize) {
        // Clocks change at whole minutes.
        let offset = clocks.offset(minute);
        let behind = clocks.offset(minute + MINUTE_S);
        for instant in (minute + step_s..=minute + MINUTE_S).step_by(step_s as usize) {
            let local = instant + if instant < minute + MINUTE_S { offset } else { behind };
            let mut passed = (reached + step_s..=local).step_by(step_s as usize);
            if if *fixed { passed.any(is_named) } else { is_named(local) } {
                due.push(instant);
            }
            reached = reached.max(local);
        }
    }
    due
}

/// Compares both directions of an expression's times with the reference, around one change.
fn is_right(clocks: &impl Clocks, name: &str, change: i64, case: &Case) {
    let around_s = if has_seconds(case.0) { AROUND_BY_SECONDS_S } else { AROUND_S };
    let (begin, end) = (change - around_s, change + around_s);
    let calendar = Calendar::new(&cron(case.0, "UTC")).expect("a good expression");
    let Calendar::Cron { cron, fixed, .. } = &calendar else { panic!("{} is an expression", case.0) };
    assert_eq!(*fixed, case.1, "{}", case.0);
    let times = Times { cron, clocks, fixed: *fixed };
    let next = |before: &i64| times.after(*before).filter(|tick| *tick <= end);
    let forwards: Vec<i64> = std::iter::successors(next(&begin), next).collect();
    assert_eq!(forwards, reckoned(clocks, begin, end, case), "{} in {name}, around {change}", case.0);
    let before = |tick: &i64| times.until(*tick - 1).filter(|tick| *tick > begin);
    let last = times.until(end).filter(|tick| *tick > begin);
    let backwards: Vec<i64> = std::iter::successors(last, before).collect();
    assert!(backwards.iter().rev().eq(&forwards), "{} in {name}, around {change}, backwards: {backwards:?}", case.0);
    // Also from any moment, and not only from one time to the next.
    for moment in (begin..end).step_by(around_s as usize / 20 + 11) {
        let after = forwards.iter().find(|tick| **tick > moment).copied();
        assert_eq!(times.after(moment).filter(|tick| *tick <= end), after, "{} in {name}", case.0);
        let until = forwards.iter().rfind(|tick| **tick <= moment).copied();
        assert_eq!(times.until(moment).filter(|tick| *tick > begin), until, "{} in {name}", case.0);
    }
}

fn all_are_right(clocks: &impl Clocks, name: &str, change: i64) {
    CASES.iter().for_each(|case| is_right(clocks, name, change, case));
}

/// The properties by which changes are alike: the time of the day and of the week, and by how much clocks change.
fn kind(zone: Tz, change: i64) -> (i64, i64) {
    let before = zone.shows(change - 1);
    ((before + 1).rem_euclid(7 * DAY_S), zone.offset(change) - zone.offset(change - 1))
}

/// Goal: the statements of `client/docs/tasks.md` on changed clocks hold in all zones. Method: one change of each kind from 2000 to 2040,
/// and every other expression at each of them.
#[test]
fn fixed_times_are_due_once_and_patterns_as_clocks_show_them() {
    let mut kinds = BTreeSet::new();
    for zone in TZ_VARIANTS {
        for change in changes(zone) {
            if kinds.insert(kind(zone, change)) {
                let cases = CASES.iter().skip(kinds.len() % 2).step_by(2);
                cases.for_each(|case| is_right(&zone, zone.name(), change, case));
            }
        }
    }
    assert!(kinds.len() > 90, "{} kinds", kinds.len());
}

/// A zone, an expression, a moment, and when it is due from then on.
type Due = (&'static str, &'static str, &'static str, &'static [&'static str]);

/// From the document, without the reference.
const DUE: [Due; 6] = [
    // In Berlin, 2:00 to 3:00 is skipped on 2026-03-29, and comes twice on 2026-10-25.
    (
        "Europe/Berlin",
        "30 2,14 * * *",
        "2026-03-28T12:00:00+01:00",
        &[
            "2026-03-28T14:30:00+01:00",
            "2026-03-29T03:00:00+02:00",
            "2026-03-29T14:30:00+02:00",
            "2026-03-30T02:30:00+02:00",
        ],
    ),
    (
        "Europe/Berlin",
        "30 2,14 * * *",
        "2026-10-24T18:00:00+02:00",
        &["2026-10-25T02:30:00+02:00", "2026-10-25T14:30:00+01:00", "2026-10-26T02:30:00+01:00"],
    ),
    (
        "Europe/Berlin",
        "0,30 2 * * *",
        "2026-03-28T12:00:00+01:00",
        &["2026-03-29T03:00:00+02:00", "2026-03-30T02:00:00+02:00", "2026-03-30T02:30:00+02:00"],
    ),
    (
        "Europe/Berlin",
        "0,30 2 * * *",
        "2026-10-24T18:00:00+02:00",
        &[
            "2026-10-25T02:00:00+02:00",
            "2026-10-25T02:30:00+02:00",
            "2026-10-26T02:00:00+01:00",
            "2026-10-26T02:30:00+01:00",
        ],
    ),
    // In Nuuk, the last hour of Saturday is skipped on 2024-03-30, and comes twice on 2024-10-26.
    (
        "America/Nuuk",
        "30 23 * * 6",
        "2024-03-23T23:30:00-02:00",
        &["2024-03-31T00:00:00-01:00", "2024-04-06T23:30:00-01:00"],
    ),
    (
        "America/Nuuk",
        "30 23 * * 6",
        "2024-10-19T23:30:00-01:00",
        &["2024-10-26T23:30:00-01:00", "2024-11-02T23:30:00-02:00"],
    ),
];

/// Goal: the document's statements hold on fixed times that clocks skip or show twice, on the expressions that it names, and on a gap
/// that ends on another day than the one named.
#[test]
fn what_is_promised_of_fixed_times_is_so() {
    for (zone, expression, from, due) in DUE {
        let (calendar, from) = (calendar(expression, zone), at(from));
        let due: Vec<u64> = due.iter().map(|text| at(text)).collect();
        let next = |before: &u64| calendar.after(*before);
        let forwards: Vec<u64> = std::iter::successors(next(&from), next).take(due.len()).collect();
        assert_eq!(forwards, due, "{expression} in {zone}");
        let last = *due.last().expect("there are some");
        let backwards: Vec<u64> = calendar.backwards(from, last).collect();
        assert!(backwards.iter().rev().eq(&due), "{expression} in {zone}, backwards: {backwards:?}");
    }
}

/// Goal, method: the same at each change.
#[test]
#[ignore = "takes minutes: the soak runs it"]
fn every_change_of_clocks_is_right() {
    let mut seen = BTreeSet::new();
    for zone in TZ_VARIANTS {
        for change in changes(zone) {
            // Many zones are aliases of others.
            if seen.insert((change, zone.offset(change - 1), zone.offset(change))) {
                all_are_right(&zone, zone.name(), change);
            }
        }
    }
}

/// Clocks set by a table: each entry is an instant and the offset from then on.
struct Table(Vec<(i64, i64)>);

impl Clocks for Table {
    fn offset(&self, instant: i64) -> i64 {
        self.0.iter().rev().find(|(from, _)| *from <= instant).map_or(self.0[0].1, |(_, offset)| *offset)
    }
}

/// Goal: no schedule ends or comes twice because a zone changes again before the last change is over. Method: clocks as no zone has set
/// them so far: back and back again within what is shown twice, back and forth, forth and forth within what is skipped, forth and back.
#[test]
fn changes_within_a_change_are_right() {
    const HOUR_S: i64 = 3_600;
    // 2026-10-25T01:00:00Z, a Sunday.
    let change = 1_792_890_000;
    for (from, to, then) in [(2, 1, 0), (2, 1, 2), (0, 1, 2), (1, 2, 1), (2, 0, 1), (0, 2, 1), (2, 1, 3)] {
        let apart =
            [HOUR_S / 2, HOUR_S, HOUR_S * 3 / 2].into_iter().filter(|apart_s| from != then || *apart_s >= HOUR_S);
        for apart_s in apart {
            let set = [(i64::MIN, from), (change, to), (change + apart_s, then)];
            let clocks = Table(set.map(|(from, hours)| (from, hours * HOUR_S)).to_vec());
            all_are_right(&clocks, &format!("{from}, {to} and {then}, {apart_s} s apart"), change);
        }
    }
}
