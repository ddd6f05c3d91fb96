//! Schedules to set.

use super::fields::{attempts, milliseconds, name_if_any, object_only, priority};
use super::input::decoded;
use super::{Encoding, InputError, instant_ms};
use norn_wire::QueueName;
use norn_wire::schedule::{CatchUp, Schedule, ScheduleChange, When};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Time zone of a cron expression without one.
const ZONE: &str = "UTC";

/// A schedule: tasks that the cluster enqueues by itself, repeatedly by `cron`, or once at a time. Its fields are named as those of a
/// `Schedule`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct ScheduleInput {
    /// Cron expression, to fire repeatedly: minute, hour, day of the month, month, day of the week; optionally seconds in front.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// Time zone of the expression, as in the IANA database: `Europe/Berlin`; `UTC` if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Fire once, at this time (RFC 3339), instead of `cron`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// The same as a number: milliseconds since the Unix epoch.
    #[serde(default, deserialize_with = "milliseconds", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 0, maximum = 9_223_372_036_854_775_807_i64))]
    pub at_ms: Option<u64>,
    /// Queue of its tasks.
    pub queue: String,
    /// Payload of each task, 4 KiB at most; empty if left out.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub data: String,
    /// Encoding of the payload; `utf8` if left out.
    #[serde(default, deserialize_with = "name_if_any", skip_serializing_if = "Option::is_none")]
    pub data_encoding: Option<Encoding>,
    /// Priority of each task; 0 if left out. Higher is claimed first.
    #[serde(default, deserialize_with = "priority", skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// Attempts after which a task is dead; as many as are set for its queue, or no limit, if left out or 0.
    #[serde(default, alias = "max_attempts", deserialize_with = "attempts", skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    /// Policy for times at which the cluster could not fire: `skip`, `last`, one task for the last of them, or `all`, one for each, up
    /// to the latest hundred; `last` if left out.
    #[serde(default, deserialize_with = "name_if_any", skip_serializing_if = "Option::is_none")]
    pub catch_up: Option<CatchUp>,
}

object_only!(ScheduleInput, "a schedule as an object with `queue`, and `cron` or `at`");

impl ScheduleInput {
    fn when(&self) -> Result<When, InputError> {
        let wrong = |message: &str| Err(InputError(message.to_owned()));
        let at_ms = match (&self.at, self.at_ms) {
            (Some(_), Some(_)) => return wrong("`at` and `at_ms` say the same; leave one of them out"),
            (Some(at), None) => Some(instant_ms(at).map_err(|error| InputError(format!("at: {error}")))?),
            (None, at_ms) => at_ms,
        };
        match (&self.cron, at_ms) {
            (Some(_), Some(_)) => wrong("a schedule is due by `cron` or once; leave one of them out"),
            (None, None) => wrong("say when the schedule is due: by `cron`, or once, by `at` or `at_ms`"),
            (None, Some(_)) if self.zone.is_some() => wrong("`zone` is for a `cron` expression; leave it out"),
            (None, Some(at_ms)) => Ok(When::At(at_ms)),
            (Some(expression), None) => {
                let zone = self.zone.clone().unwrap_or_else(|| ZONE.to_owned());
                Ok(When::Cron { expression: expression.clone(), zone })
            }
        }
    }

    /// Converts it into the change that sets it under this name. The cluster checks what the texts mean.
    ///
    /// ```
    /// use norn_client::api::ScheduleInput;
    /// use norn_client::wire::schedule::ScheduleChange;
    /// let input: ScheduleInput = serde_json::from_str(r#"{"cron": "30 2 * * *", "queue": "backup", "data": "all"}"#)?;
    /// assert!(matches!(input.change("nightly")?, ScheduleChange::Set { .. }));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn change(self, name: impl Into<String>) -> Result<ScheduleChange, InputError> {
        let schedule = Schedule {
            when: self.when()?,
            queue: QueueName::new(&self.queue)?,
            payload: decoded(self.data, self.data_encoding, "data")?,
            priority: self.priority.unwrap_or(0),
            attempts_max: self.attempts.unwrap_or(0),
            catch_up: self.catch_up.unwrap_or_default(),
        };
        Ok(ScheduleChange::Set { name: name.into(), schedule: Arc::new(schedule) })
    }
}
