//! Schedules: what the cluster enqueues by itself at certain times, once however many nodes there are.

use super::error::Error;
use super::ids::{QueueName, TaskId};
use super::limits::{EXPRESSION_BYTES_MAX, SCHEDULE_NAME_BYTES_MAX, SCHEDULE_PAYLOAD_BYTES_MAX, ZONE_NAME_BYTES_MAX};
use super::request::SESSIONS_QUEUE;
use super::validate::for_sessions;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The header of a schedule's tasks that has its name.
pub const SCHEDULE_HEADER: &str = "norn-schedule";
/// The header of a schedule's tasks that has the time for which it was due, in milliseconds since the Unix epoch.
pub const TICK_HEADER: &str = "norn-tick";

/// When a schedule is due.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// Again and again.
    Cron {
        /// Minute, hour, day of the month, month, day of the week; with seconds before them, and years behind these, or not.
        expression: String,
        /// Name in the IANA database, such as `Europe/Berlin`.
        zone: String,
    },
    /// Once, in milliseconds since the Unix epoch.
    At(u64),
}

/// What becomes of times at which nobody could fire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CatchUp {
    /// Nothing, once they are older than a grace of ten seconds.
    Skip,
    /// One task, for the last of them.
    #[default]
    Last,
    /// A task for each, up to the latest hundred.
    All,
}

impl CatchUp {
    /// All of them.
    pub const ALL: [CatchUp; 3] = [CatchUp::Skip, CatchUp::Last, CatchUp::All];

    /// Its name in text.
    pub fn name(self) -> &'static str {
        match self {
            CatchUp::Skip => "skip",
            CatchUp::Last => "last",
            CatchUp::All => "all",
        }
    }
}

/// What is enqueued, and when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// When.
    pub when: When,
    /// Queue of its tasks.
    pub queue: QueueName,
    /// Data of each of them.
    #[serde(with = "serde_bytes")]
    pub payload: Vec<u8>,
    /// Priority of each of them.
    #[serde(default)]
    pub priority: i32,
    /// After this many claims that failed or ran out, a task is dead; 0 means no limit.
    #[serde(default)]
    pub attempts_max: u32,
    /// What becomes of times at which nobody could fire.
    #[serde(default)]
    pub catch_up: CatchUp,
}

/// A wish about a schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum ScheduleChange {
    /// There is such a schedule. One that is equal goes on; another one under this name is replaced, and begins anew.
    Set { name: String, schedule: Arc<Schedule> },
    /// It fires no more.
    Remove { name: String },
    /// It does not fire for the time being, or does again. What was due meanwhile is passed over.
    Pause { name: String, paused: bool },
}

impl ScheduleChange {
    /// The schedule.
    pub fn name(&self) -> &str {
        match self {
            ScheduleChange::Set { name, .. } | ScheduleChange::Remove { name } | ScheduleChange::Pause { name, .. } => {
                name
            }
        }
    }

    /// Whether it keeps to the limits. What its texts mean is for the cluster to say.
    pub(crate) fn check(&self) -> Result<(), Error> {
        check_name(self.name())?;
        let ScheduleChange::Set { schedule, .. } = self else { return Ok(()) };
        bound("payload of a schedule", schedule.payload.len(), SCHEDULE_PAYLOAD_BYTES_MAX)?;
        if schedule.queue.as_str() == SESSIONS_QUEUE {
            return Err(Error::invalid(for_sessions()));
        }
        match &schedule.when {
            When::Cron { expression, zone } => {
                bound("cron expression", expression.len(), EXPRESSION_BYTES_MAX)?;
                bound("name of a time zone", zone.len(), ZONE_NAME_BYTES_MAX)
            }
            When::At(_) => Ok(()),
        }
    }
}

fn bound(what: &str, bytes: usize, most: usize) -> Result<(), Error> {
    match bytes <= most {
        true => Ok(()),
        false => Err(Error::invalid(format!("a {what} of {bytes} bytes; at most {most} are allowed"))),
    }
}

/// Whether a schedule can be called so.
pub fn check_name(name: &str) -> Result<(), Error> {
    bound("name of a schedule", name.len(), SCHEDULE_NAME_BYTES_MAX)?;
    let odd = |character: char| character.is_whitespace() || character.is_control();
    match name.is_empty() || name.starts_with('-') || name.contains(odd) {
        false => Ok(()),
        true => Err(Error::invalid(format!(
            "schedule name {name:?}: it is empty, begins with `-`, or has white space or control characters"
        ))),
    }
}

/// A time for which a task was enqueued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fired {
    /// When it was due, in milliseconds since the Unix epoch.
    pub tick_ms: u64,
    /// The task.
    pub id: TaskId,
}

/// A schedule as the leader of the cluster's root sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleView {
    /// Its name.
    pub name: String,
    /// What is enqueued, and when.
    pub schedule: Arc<Schedule>,
    /// Of all that were ever set: another one under the same name has another number.
    pub number: u32,
    /// It does not fire for the time being.
    pub paused: bool,
    /// When it was set, by the clock of the leader of that time. Nothing before is due.
    pub since_ms: u64,
    /// All that was due up to then was fired, is being fired, or was missed.
    pub through_ms: u64,
    /// When it is due next: the first time of many where all schedules are listed, or the first few.
    pub next_ms: Vec<u64>,
    /// Tasks that are being enqueued.
    pub pending: u32,
    /// Tasks that were enqueued.
    pub fired: u64,
    /// Times that were passed over, as nobody could fire then. One gap counts for a thousand at the most.
    pub missed: u64,
    /// Times of which nobody knows whether their task was enqueued: it could not be for so long that it may have been, and be
    /// done and forgotten.
    pub unsure: u64,
    /// The latest task.
    pub last: Option<Fired>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_kept_to_the_last_and_not_beyond() {
        let set = |name: usize, payload: usize, expression: usize, zone: usize| {
            let when = When::Cron { expression: "*".repeat(expression), zone: "z".repeat(zone) };
            let (queue, payload) = (QueueName::new("q").unwrap(), vec![0; payload]);
            let (priority, attempts_max, catch_up) = (0, 0, CatchUp::Last);
            let schedule = Arc::new(Schedule { when, queue, payload, priority, attempts_max, catch_up });
            ScheduleChange::Set { name: "n".repeat(name), schedule }.check().is_ok()
        };
        let most = [SCHEDULE_NAME_BYTES_MAX, SCHEDULE_PAYLOAD_BYTES_MAX, EXPRESSION_BYTES_MAX, ZONE_NAME_BYTES_MAX];
        let [name, payload, expression, zone] = most;
        assert!(set(name, payload, expression, zone));
        assert!(!set(name + 1, 0, 1, 1) && !set(0, 0, 1, 1));
        assert!(!set(1, payload + 1, 1, 1) && !set(1, 0, expression + 1, 1) && !set(1, 0, 1, zone + 1));
        for odd in ["a b", "a\n", "-a", ""] {
            assert!(ScheduleChange::Remove { name: odd.into() }.check().is_err(), "{odd:?}");
        }
    }
}
