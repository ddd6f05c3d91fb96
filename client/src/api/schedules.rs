//! Schedules.

use super::Encoding;
use super::form::text_if_any;
use norn_wire::schedule::{CatchUp, ScheduleView, When};
use norn_wire::{QueueName, TaskId};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// A schedule: answer to the verbs of schedules. It has a cron expression and a time zone, or one time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Schedule<'a> {
    /// Name.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub name: Cow<'a, str>,
    /// Cron expression, if it is due repeatedly.
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, required))]
    pub cron: Option<Cow<'a, str>>,
    /// Time zone of the expression, as in the IANA database: `Europe/Berlin`.
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, required))]
    pub zone: Option<Cow<'a, str>>,
    /// When it is due, if once, in milliseconds since the Unix epoch.
    #[cfg_attr(feature = "schema", schema(required))]
    pub at_ms: Option<u64>,
    /// Queue of its tasks.
    pub queue: QueueName,
    /// Payload of each task.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub data: Cow<'a, str>,
    /// Encoding of the payload.
    pub data_encoding: Encoding,
    /// Priority of each task.
    pub priority: i32,
    /// Attempts after which a task is dead; `null`: no limit of its own.
    #[cfg_attr(feature = "schema", schema(required))]
    pub attempts: Option<u32>,
    /// Policy for times that passed while no node could fire: `skip`, `last`, one task for the last of them, or `all`, one for each.
    pub catch_up: CatchUp,
    /// Whether it is paused.
    pub paused: bool,
    /// When it was set, in milliseconds since the Unix epoch.
    pub since_ms: u64,
    /// Next due times in milliseconds since the Unix epoch: one in a list of all schedules, otherwise the first few.
    #[cfg_attr(feature = "schema", schema(value_type = Vec<u64>))]
    pub next_ms: Cow<'a, [u64]>,
    /// Tasks that are being enqueued.
    pub pending: u32,
    /// Tasks that were enqueued.
    pub fired: u64,
    /// Times that were skipped because no node could fire then.
    pub missed: u64,
    /// Times for which it is unknown whether the task was enqueued.
    pub unsure: u64,
    /// When the latest task was due, in milliseconds since the Unix epoch.
    #[cfg_attr(feature = "schema", schema(required))]
    pub last_ms: Option<u64>,
    /// The latest task.
    #[serde(with = "text_if_any")]
    #[cfg_attr(feature = "schema", schema(required))]
    pub last_id: Option<TaskId>,
}

impl<'a> From<&'a ScheduleView> for Schedule<'a> {
    fn from(view: &'a ScheduleView) -> Self {
        let schedule = &view.schedule;
        let (data, data_encoding) = Encoding::encode(&schedule.payload);
        let (cron, zone, at_ms) = match &schedule.when {
            When::Cron { expression, zone } => (Some(expression.into()), Some(zone.into()), None),
            When::At(at_ms) => (None, None, Some(*at_ms)),
        };
        Schedule {
            name: (&view.name).into(),
            cron,
            zone,
            at_ms,
            queue: schedule.queue.clone(),
            data,
            data_encoding,
            priority: schedule.priority,
            attempts: Some(schedule.attempts_max).filter(|attempts| *attempts > 0),
            catch_up: schedule.catch_up,
            paused: view.paused,
            since_ms: view.since_ms,
            next_ms: Cow::Borrowed(&view.next_ms),
            pending: view.pending,
            fired: view.fired,
            missed: view.missed,
            unsure: view.unsure,
            last_ms: view.last.map(|last| last.tick_ms),
            last_id: view.last.map(|last| last.id),
        }
    }
}

/// Answer to `schedule remove`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ScheduleRemoval<'a> {
    /// Name of the schedule.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub name: Cow<'a, str>,
    /// Whether there was one.
    pub removed: bool,
}
