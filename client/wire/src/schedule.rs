//! Schedules: tasks that the cluster enqueues by itself at given times, once, however many nodes there are.

use super::error::Error;
use super::ids::{QueueName, TaskId};
use super::limits::{EXPRESSION_BYTES_MAX, SCHEDULE_NAME_BYTES_MAX, SCHEDULE_PAYLOAD_BYTES_MAX, ZONE_NAME_BYTES_MAX};
use super::request::SESSIONS_QUEUE;
use super::validate::for_sessions;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Header of a schedule's tasks: the schedule's name.
pub const SCHEDULE_HEADER: &str = "norn-schedule";
/// Header of a schedule's tasks: the time for which the task was due, in milliseconds since the Unix epoch.
pub const TICK_HEADER: &str = "norn-tick";

/// When a schedule is due.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// Repeatedly, by a cron expression.
    Cron {
        /// Five fields: minute, hour, day of month, month, day of week; optionally seconds in front, and years behind.
        expression: String,
        /// Name in the IANA database, such as `Europe/Berlin`.
        zone: String,
    },
    /// Once, in milliseconds since the Unix epoch.
    At(u64),
}

/// Policy for times that passed while no node could fire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum CatchUp {
    /// Skip them, once they are older than a grace of ten seconds.
    Skip,
    /// One task, for the last of them.
    #[default]
    Last,
    /// One task for each, up to the latest hundred.
    All,
}

impl CatchUp {
    /// All policies.
    pub const ALL: [CatchUp; 3] = [CatchUp::Skip, CatchUp::Last, CatchUp::All];

    /// Returns its name in text.
    pub fn name(self) -> &'static str {
        match self {
            CatchUp::Skip => "skip",
            CatchUp::Last => "last",
            CatchUp::All => "all",
        }
    }
}

/// Content of a schedule: what is enqueued, and when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// When.
    pub when: When,
    /// Queue of its tasks.
    pub queue: QueueName,
    /// Payload of each of its tasks.
    #[serde(with = "serde_bytes")]
    pub payload: Vec<u8>,
    /// Priority of each of them.
    #[serde(default)]
    pub priority: i32,
    /// After this many claims that failed or ran out, a task is dead; 0 means no limit.
    #[serde(default)]
    pub attempts_max: u32,
    /// Policy for times that passed while no node could fire.
    #[serde(default)]
    pub catch_up: CatchUp,
}

/// Change of a schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum ScheduleChange {
    /// Creates or replaces a schedule. An equal schedule goes on; a different one under the same name replaces it and begins anew.
    Set { name: String, schedule: Arc<Schedule> },
    /// Removes it.
    Remove { name: String },
    /// Pauses or resumes it. Times that pass while it is paused are skipped.
    Pause { name: String, paused: bool },
}

impl ScheduleChange {
    /// Returns the name of the schedule.
    pub fn name(&self) -> &str {
        match self {
            ScheduleChange::Set { name, .. } | ScheduleChange::Remove { name } | ScheduleChange::Pause { name, .. } => {
                name
            }
        }
    }

    /// Checks the limits. The cluster checks what the texts mean.
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

/// Checks the name of a schedule.
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

/// Time for which a task was enqueued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fired {
    /// When the task was due, in milliseconds since the Unix epoch.
    pub tick_ms: u64,
    /// Id of the task.
    pub id: TaskId,
}

/// Schedule as the leader of the metadata group (root) sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleView {
    /// Its name.
    pub name: String,
    /// Content.
    pub schedule: Arc<Schedule>,
    /// Number among all schedules ever set: another schedule under the same name has another number.
    pub number: u32,
    /// Whether it is paused.
    pub paused: bool,
    /// When it was set, by the clock of the leader of that time. No time before is due.
    pub since_ms: u64,
    /// Time up to which everything due was fired, is being fired, or was missed.
    pub through_ms: u64,
    /// Next due times: one in a list of all schedules, otherwise the first few.
    pub next_ms: Vec<u64>,
    /// Tasks that are being enqueued.
    pub pending: u32,
    /// Tasks that were enqueued.
    pub fired: u64,
    /// Times that were skipped because no node could fire then. One gap counts at most 1,000.
    pub missed: u64,
    /// Times for which it is unknown whether the task was enqueued: enqueuing failed for so long that the task may have been stored, done
    /// and forgotten.
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
