//! Times at which a schedule is due: cron expressions in time zones, and single instants.
//!
//! The library [`croner`] decides which local times an expression names; it is asked as if the zone were UTC. It reads no clock, and
//! counts whole seconds. When clocks show these times is decided here, after cron as Paul Vixie wrote it. An expression whose seconds,
//! minutes and hours are single times, lists and ranges is one of *fixed times*: each is due once, when clocks first show it, or at the
//! change that skips it. Any other, such as `*/30` or `0 * * * *`, is a *pattern*, and due whenever clocks show what it names: not at all
//! in an hour that is skipped, and twice in one that is repeated.

use super::zone::Clocks;
use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use norn_wire::schedule::When;

/// Last instant that is supported: the end of the year 4999, about where the library ends.
pub const INSTANT_MS_MAX: u64 = 95_617_583_999_999;

const SECOND_MS: u64 = 1_000;

/// No clock shows a time that differs this much from UTC, and no change moves clocks this much.
const FAR_S: i64 = 30 * 3_600;

/// Years of an expression that names none. A time that never comes is searched for in all of them, while the leader does nothing else.
const YEARS: &str = "1970-2199";

/// Names of the fields, as many as an expression may have, seconds first.
const FIELDS: [&str; 7] = ["second", "minute", "hour", "day of the month", "month", "day of the week", "year"];

/// The times at which a schedule is due.
#[derive(Debug, Clone)]
pub enum Calendar {
    /// Repeatedly.
    Cron {
        /// The local times.
        cron: Box<Cron>,
        /// The time zone.
        zone: Tz,
        /// Whether these are fixed times, rather than a pattern.
        fixed: bool,
    },
    /// Once.
    At(u64),
}

fn parse(expression: &str) -> Result<Cron, String> {
    let parser = CronParser::builder().seconds(Seconds::Optional).year(Year::Optional).build();
    parser.parse(expression).map_err(|error| error.to_string())
}

/// The same expression with its years bounded, where it leaves them open.
fn bounded(expression: &str) -> Option<String> {
    let fields: Vec<&str> = expression.split_whitespace().collect();
    match fields.as_slice() {
        [_, _, _, _, _] => Some(format!("0 {} {YEARS}", fields.join(" "))),
        [_, _, _, _, _, _] => Some(format!("{} {YEARS}", fields.join(" "))),
        [six @ .., "*"] if six.len() == 6 => Some(format!("{} {YEARS}", six.join(" "))),
        _ => None,
    }
}

/// The error for a wrong expression, with the place of the error.
fn complaint(expression: &str, whole: &str) -> String {
    let fields: Vec<&str> = expression.split_whitespace().collect();
    if !(5..=7).contains(&fields.len()) {
        return format!(
            "the cron expression {expression:?} has {} fields; wanted are 5 (minute, hour, day of the month, month, day of \
             the week), 6 with seconds before them, or 7 with years behind those",
            fields.len()
        );
    }
    let names = &FIELDS[usize::from(fields.len() == 5)..];
    for (place, name) in names.iter().take(fields.len()).enumerate() {
        let mut alone = vec!["*"; fields.len()];
        alone[place] = fields[place];
        if let Err(why) = parse(&alone.join(" ")) {
            return format!(
                "the cron expression {expression:?} is wrong in its field {}, {:?}: {why}",
                name, fields[place]
            );
        }
    }
    format!("the cron expression {expression:?} is wrong: {whole}")
}

impl Calendar {
    /// Parses the times of a schedule.
    pub fn new(when: &When) -> Result<Calendar, String> {
        match when {
            When::Cron { expression, zone } => {
                let zone: Tz = zone.parse().map_err(|_| {
                    format!(
                        "there is no time zone {zone:?}; wanted is a name of the IANA database, such as Europe/Berlin"
                    )
                })?;
                let cron = parse(expression).map_err(|why| complaint(expression, &why))?;
                // Where the library does not accept the bounded form, the expression stays as it was written.
                let cron = bounded(expression).and_then(|text| parse(&text).ok()).unwrap_or(cron);
                Ok(Calendar::Cron { cron: Box::new(cron), zone, fixed: is_fixed(expression) })
            }
            When::At(at_ms) if *at_ms <= INSTANT_MS_MAX => Ok(Calendar::At(*at_ms)),
            When::At(_) => Err("the time is behind the year 4999".to_owned()),
        }
    }

    /// The first time after another one.
    pub fn after(&self, ms: u64) -> Option<u64> {
        match self {
            Calendar::Cron { cron, zone, fixed } => {
                let times = Times { cron, clocks: zone, fixed: *fixed };
                // An error of the library must not set a schedule back.
                millis(times.after(instant(ms)?)?).filter(|tick| *tick > ms)
            }
            Calendar::At(at_ms) => (*at_ms > ms).then_some(*at_ms),
        }
    }

    /// The last time up to another one.
    pub fn until(&self, ms: u64) -> Option<u64> {
        match self {
            Calendar::Cron { cron, zone, fixed } => {
                let times = Times { cron, clocks: zone, fixed: *fixed };
                millis(times.until(instant(ms)?)?).filter(|tick| *tick <= ms)
            }
            Calendar::At(at_ms) => (*at_ms <= ms).then_some(*at_ms),
        }
    }

    /// All times after one and up to another, the latest first.
    pub fn backwards(&self, after_ms: u64, until_ms: u64) -> impl Iterator<Item = u64> {
        let mut next = self.until(until_ms);
        std::iter::from_fn(move || {
            let tick = next.filter(|tick| *tick > after_ms)?;
            next = tick.checked_sub(1).and_then(|before| self.until(before));
            Some(tick)
        })
    }
}

/// Whether seconds, minutes and hours of an expression are single times, lists and ranges.
fn is_fixed(expression: &str) -> bool {
    let fields: Vec<&str> = expression.split_whitespace().collect();
    let times = match fields.as_slice() {
        [name] => return !name.eq_ignore_ascii_case("@hourly"),
        [minute, hour, _, _, _] => vec![minute, hour],
        [second, minute, hour, ..] => vec![second, minute, hour],
        _ => return false,
    };
    !times.into_iter().any(|field| field.contains(['*', '?']))
}

/// The times of an expression in a zone, however its clocks change. All are seconds, see [`super::zone`].
pub(super) struct Times<'a, Z> {
    /// The local times.
    pub cron: &'a Cron,
    /// The clocks of the zone.
    pub clocks: &'a Z,
    /// Whether these are fixed times, rather than a pattern.
    pub fixed: bool,
}

impl<Z: Clocks> Times<'_, Z> {
    /// The first time after an instant.
    pub fn after(&self, instant: i64) -> Option<i64> {
        match self.fixed {
            true => Some(self.due(self.next(self.reached(instant))?)),
            false => self.pattern_after(instant),
        }
    }

    /// The last time up to an instant.
    pub fn until(&self, instant: i64) -> Option<i64> {
        match self.fixed {
            true => Some(self.due(self.last(self.reached(instant))?)),
            false => self.pattern_until(instant),
        }
    }

    /// The first local time of the expression behind another one.
    fn next(&self, local: i64) -> Option<i64> {
        let from: DateTime<Utc> = DateTime::from_timestamp(local, 0)?;
        Some(self.cron.find_next_occurrence(&from, false).ok()?.timestamp()).filter(|next| *next > local)
    }

    /// The last local time of the expression up to another one.
    fn last(&self, local: i64) -> Option<i64> {
        let from: DateTime<Utc> = DateTime::from_timestamp(local, 0)?;
        Some(self.cron.find_previous_occurrence(&from, true).ok()?.timestamp()).filter(|last| *last <= local)
    }

    /// The latest local time that clocks have shown or skipped up to an instant: later fixed times are due later, all others were due up
    /// to then.
    fn reached(&self, instant: i64) -> i64 {
        let (mut reached, mut until) = (self.clocks.shows(instant), instant);
        while let Some(change) = self.clocks.change_until(instant - FAR_S, until) {
            until = change - 1;
            reached = reached.max(self.clocks.shows(until));
        }
        reached
    }

    /// The instant at which a fixed time is due: when clocks first show it, or skip it.
    fn due(&self, local: i64) -> i64 {
        let mut from = local - FAR_S;
        loop {
            let left = local - self.clocks.shows(from);
            if left <= 0 {
                return from;
            }
            match self.clocks.change_after(from, from + left) {
                Some(change) => from = change,
                None => return from + left,
            }
        }
    }

    /// The next instant at which clocks show a time of a pattern. Between two changes that is the next local time; behind each change it
    /// is searched anew.
    fn pattern_after(&self, instant: i64) -> Option<i64> {
        let mut from = instant + 1;
        loop {
            let shown = self.clocks.shows(from);
            let at = self.next(shown - 1).map(|next| from + (next - shown));
            // A change behind that does not bring back a local time from before `from`.
            let near = from + 2 * FAR_S;
            match (self.clocks.change_after(from, at.map_or(near, |at| at.min(near))), at) {
                (Some(change), _) => from = change,
                (None, Some(at)) if at > near => from = at - FAR_S,
                (None, at) => return at,
            }
        }
    }

    /// The last instant at which clocks showed a time of a pattern, found likewise.
    fn pattern_until(&self, instant: i64) -> Option<i64> {
        let mut until = instant;
        loop {
            let shown = self.clocks.shows(until);
            let at = self.last(shown).map(|last| until - (shown - last));
            let near = until - 2 * FAR_S;
            match (self.clocks.change_until(at.map_or(near, |at| at.max(near)), until), at) {
                (Some(change), _) => until = change - 1,
                (None, Some(at)) if at < near => until = at + FAR_S,
                (None, at) => return at,
            }
        }
    }
}

/// The whole second up to an instant.
fn instant(ms: u64) -> Option<i64> {
    i64::try_from(ms.min(INSTANT_MS_MAX) / SECOND_MS).ok()
}

fn millis(seconds: i64) -> Option<u64> {
    u64::try_from(seconds).ok()?.checked_mul(SECOND_MS).filter(|ms| *ms <= INSTANT_MS_MAX)
}
