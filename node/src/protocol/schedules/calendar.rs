//! When a schedule is due: cron expressions in time zones, and single instants.
//!
//! The rules are those of the library [`croner`], the zones those of its build of the IANA database; neither reads a clock, a
//! file or the machine's own zone. Cron counts whole seconds. Where the clocks of a zone skip an hour, a fixed time in it is
//! the first moment behind the gap, and one of a pattern such as `*/30` is left out; where they repeat an hour, a fixed time
//! comes once, the first time, and one of a pattern in both.

use chrono::DateTime;
use chrono_tz::Tz;
use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use norn_client::wire::schedule::When;

/// Later instants are nobody's: the end of the year 4999, about where the library ends.
pub const INSTANT_MS_MAX: u64 = 95_617_583_999_999;

const SECOND_MS: u64 = 1_000;

/// Years of an expression that names none. What never comes is looked for in all of them, while the leader does nothing else.
const YEARS: &str = "1970-2199";

/// Names of the fields, as many as an expression may have, seconds first.
const FIELDS: [&str; 7] = ["second", "minute", "hour", "day of the month", "month", "day of the week", "year"];

/// When a schedule is due.
#[derive(Debug, Clone)]
pub enum Calendar {
    /// Again and again.
    Cron(Box<Cron>, Tz),
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

/// What is wrong with an expression that is refused, and where.
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
    /// Reads when a schedule is due, or says what is wrong with it.
    pub fn new(when: &When) -> Result<Calendar, String> {
        match when {
            When::Cron { expression, zone } => {
                let zone: Tz = zone.parse().map_err(|_| {
                    format!(
                        "there is no time zone {zone:?}; wanted is a name of the IANA database, such as Europe/Berlin"
                    )
                })?;
                let cron = parse(expression).map_err(|why| complaint(expression, &why))?;
                // Where the library takes it otherwise, it stays as it was written.
                let cron = bounded(expression).and_then(|text| parse(&text).ok()).unwrap_or(cron);
                Ok(Calendar::Cron(Box::new(cron), zone))
            }
            When::At(at_ms) if *at_ms <= INSTANT_MS_MAX => Ok(Calendar::At(*at_ms)),
            When::At(_) => Err("the time is behind the year 4999".to_owned()),
        }
    }

    /// The first time after another one.
    pub fn after(&self, ms: u64) -> Option<u64> {
        match self {
            Calendar::Cron(cron, zone) => {
                let from = instant(ms, *zone)?;
                let tick = millis(&cron.find_next_occurrence(&from, false).ok()?)?;
                // What a library gets wrong is no reason to stop.
                (tick > ms).then_some(tick)
            }
            Calendar::At(at_ms) => (*at_ms > ms).then_some(*at_ms),
        }
    }

    /// The last time up to another one.
    pub fn until(&self, ms: u64) -> Option<u64> {
        match self {
            Calendar::Cron(cron, zone) => {
                let from = instant(ms.min(INSTANT_MS_MAX), *zone)?;
                let tick = millis(&cron.find_previous_occurrence(&from, true).ok()?)?;
                (tick <= ms).then_some(tick)
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

/// The whole second up to an instant.
fn instant(ms: u64, zone: Tz) -> Option<DateTime<Tz>> {
    let seconds = i64::try_from(ms.min(INSTANT_MS_MAX) / SECOND_MS).ok()?;
    Some(DateTime::from_timestamp(seconds, 0)?.with_timezone(&zone))
}

fn millis(at: &DateTime<Tz>) -> Option<u64> {
    u64::try_from(at.timestamp()).ok()?.checked_mul(SECOND_MS)
}
