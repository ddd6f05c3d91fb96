//! Changes of a queue's settings.

use super::InputError;
use super::fields::{
    given, given_name, large_setting, milliseconds, number_setting, object_only, pause_ms, percent, setting,
};
use norn_wire::membership::{
    Backoff, ClusterChange, FailedDependency, KeyConcurrency, Mode, Order, QueueSetting, Rate,
};
use norn_wire::{QueueName, Request};
use serde::{Deserialize, Serialize};

/// Settings of a queue to change, named as in `QueuePolicy`. What is left out stays as it is, and `null` removes
/// a limit or sets the default.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct QueuePolicyInput {
    /// Whether no task of the queue is granted. Claims already held go on.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = bool))]
    pub paused: Option<bool>,
    /// Attempts after which a task is dead, 1 to 1,000,000, for tasks without a limit of their own; `null`: no limit.
    #[serde(default, deserialize_with = "number_setting", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u32>))]
    pub attempts: Option<Option<u32>>,
    /// Lease in milliseconds of a claim that names none; `null`: 30 seconds.
    #[serde(default, deserialize_with = "large_setting", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u64>, minimum = 0, maximum = 9_223_372_036_854_775_807_i64))]
    pub lease_ms: Option<Option<u64>>,
    /// Longest lease in milliseconds, whatever a claim or a renewal asks for; `null`: one hour.
    #[serde(default, deserialize_with = "large_setting", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u64>, minimum = 0, maximum = 9_223_372_036_854_775_807_i64))]
    pub lease_max_ms: Option<Option<u64>>,
    /// Pause after an attempt that failed or ran out; `null`: no pause.
    #[serde(default, deserialize_with = "setting", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<BackoffInput>))]
    pub backoff: Option<Option<BackoffInput>>,
    /// How long ended tasks are kept, in milliseconds; `null`: as in the settings of the nodes.
    #[serde(default, deserialize_with = "large_setting", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u64>, minimum = 0, maximum = 9_223_372_036_854_775_807_i64))]
    pub retention_ms: Option<Option<u64>>,
    /// Order of claims: `priority`, `random`, or `fair`, round robin over keys.
    #[serde(default, deserialize_with = "given_name", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Order))]
    pub order: Option<Order>,
    /// Effect on a task if one that it waits for has failed: `fail`, it dies; `skip`, it goes on; `wait`, it waits.
    #[serde(default, deserialize_with = "given_name", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = FailedDependency))]
    pub failed_dependency: Option<FailedDependency>,
    /// Whose completion ends a task: `any`, that of any worker that ever claimed it; `holder`, only that of the latest holder.
    #[serde(default, deserialize_with = "given_name", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Mode))]
    pub mode: Option<Mode>,
    /// Queue for dead letters; `null`: none.
    #[serde(default, deserialize_with = "setting", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub dead_letter: Option<Option<String>>,
    /// Most open tasks; `null`: no limit.
    #[serde(default, deserialize_with = "large_setting", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u64>, minimum = 0, maximum = 9_223_372_036_854_775_807_i64))]
    pub tasks: Option<Option<u64>>,
    /// Most bytes of open tasks; `null`: no limit.
    #[serde(default, deserialize_with = "large_setting", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u64>, minimum = 0, maximum = 9_223_372_036_854_775_807_i64))]
    pub bytes: Option<Option<u64>>,
    /// Milliseconds in which a ready task gains one level of priority; `null`: priorities stay.
    #[serde(default, deserialize_with = "large_setting", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u64>, minimum = 0, maximum = 9_223_372_036_854_775_807_i64))]
    pub ageing_ms: Option<Option<u64>>,
    /// Most claims in a time: `N/s`, `N/m` or `N/h`; `null`: no limit.
    #[serde(default, deserialize_with = "setting", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub rate: Option<Option<String>>,
    /// Most tasks held at once; `null`: no limit.
    #[serde(default, deserialize_with = "number_setting", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u32>))]
    pub concurrency: Option<Option<u32>>,
    /// Most tasks with the same key held at once, 1 to 1,000; `null`: no limit.
    #[serde(default, deserialize_with = "number_setting", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u32>))]
    pub key_concurrency: Option<Option<u32>>,
}

object_only!(QueuePolicyInput, "an object with settings of a queue");

/// Pause after an attempt that failed or ran out: it doubles from the first up to a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct BackoffInput {
    /// Pause after the first attempt, in milliseconds.
    #[serde(deserialize_with = "pause_ms")]
    #[cfg_attr(feature = "schema", schema(minimum = 0, maximum = 9_223_372_036_854_775_807_i64))]
    pub first_ms: u64,
    /// Longest pause, without jitter, in milliseconds; the first if left out, so that all pauses are equal.
    #[serde(default, deserialize_with = "milliseconds", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 0, maximum = 9_223_372_036_854_775_807_i64))]
    pub most_ms: Option<u64>,
    /// Jitter, up to this much more or less, in percent; none if left out.
    #[serde(default, deserialize_with = "percent", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 0, maximum = 100))]
    pub jitter_percent: Option<u8>,
}

object_only!(BackoffInput, "a back-off as an object with `first_ms`, or `null`");

impl From<BackoffInput> for Backoff {
    fn from(input: BackoffInput) -> Self {
        let BackoffInput { first_ms, most_ms, jitter_percent } = input;
        Backoff { first_ms, most_ms: most_ms.unwrap_or(first_ms), jitter_percent: jitter_percent.unwrap_or(0) }
    }
}

impl QueuePolicyInput {
    /// Converts it into settings, in the order of the fields. One at least must be given.
    ///
    /// ```
    /// use norn_client::api::QueuePolicyInput;
    /// use norn_client::wire::membership::QueueSetting;
    /// let input: QueuePolicyInput = serde_json::from_str(r#"{"paused": true, "attempts": null}"#)?;
    /// assert_eq!(input.settings()?, [QueueSetting::Paused(true), QueueSetting::Attempts(None)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn settings(self) -> Result<Vec<QueueSetting>, InputError> {
        let rate = |text: String| text.parse::<Rate>().map_err(InputError::from);
        let queue = |name: String| QueueName::new(&name).map_err(|error| InputError(format!("dead_letter: {error}")));
        let of_key = |most: Option<u32>| most.map_or(KeyConcurrency::Any, KeyConcurrency::Most);
        let settings = [
            self.paused.map(QueueSetting::Paused),
            self.attempts.map(QueueSetting::Attempts),
            self.lease_ms.map(QueueSetting::Lease),
            self.lease_max_ms.map(QueueSetting::LeaseMax),
            self.backoff.map(|backoff| QueueSetting::Backoff(backoff.map(Backoff::from))),
            self.retention_ms.map(QueueSetting::Retention),
            self.order.map(QueueSetting::Order),
            self.failed_dependency.map(QueueSetting::FailedDependency),
            self.mode.map(QueueSetting::Mode),
            self.dead_letter.map(|name| name.map(queue).transpose()).transpose()?.map(QueueSetting::DeadLetter),
            self.tasks.map(QueueSetting::Tasks),
            self.bytes.map(QueueSetting::Bytes),
            self.ageing_ms.map(QueueSetting::Ageing),
            self.rate.map(|text| text.map(rate).transpose()).transpose()?.map(QueueSetting::Rate),
            self.concurrency.map(QueueSetting::Concurrency),
            self.key_concurrency.map(|most| QueueSetting::KeyConcurrency(of_key(most))),
        ];
        let settings: Vec<QueueSetting> = settings.into_iter().flatten().collect();
        match settings.is_empty() {
            true => Err(InputError("no setting is named: say which to change".to_owned())),
            false => Ok(settings),
        }
    }

    /// Converts it into requests, one for each setting, which the metadata group decides one after the other: if one is refused, those
    /// before it have taken effect. Each can be repeated. The answer to the last shows the queue's settings after all of them.
    pub fn requests(self, queue: &QueueName, dry_run: bool) -> Result<Vec<Request>, InputError> {
        let change = |setting| ClusterChange::Queue { queue: queue.clone(), setting };
        let request = |setting| Request::Change { change: Box::new(change(setting)), dry_run };
        Ok(self.settings()?.into_iter().map(request).collect())
    }
}
