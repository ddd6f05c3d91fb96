//! `queue set` and `queue show`: settings of a queue, for all its tasks in the whole cluster.

use super::output::Style;
use super::runner::unexpected;
use super::text::clean;
use super::{Exit, Failure, Runner, Transport, examples, parse, text};
use clap::{Args, Subcommand, ValueEnum};
use norn_client::api;
use norn_wire::membership::{
    Backoff, ClusterChange, FailedDependency, KeyConcurrency, Mode, Order, QueuePolicy, QueueSetting,
};
use norn_wire::{QueueName, Request, Response};

/// Verbs of queue settings.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum QueueVerb {
    /// Change a setting of a queue
    ///
    /// It applies to existing tasks too, as soon as the nodes have received it, and remains when the queue has no tasks.
    #[command(after_help = examples::QUEUE_SET)]
    Set(SetArguments),
    /// Show all queues that have settings, or one queue
    #[command(after_help = examples::QUEUE_SHOW)]
    Show(ShowArguments),
}

/// Forms of a back-off.
const BACKOFF: &str = "`fixed DUR` or `exponential FIRST MOST`, with `jitter N%` behind it or not, or `none`";

/// Settings of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Key {
    /// `yes`: no task of the queue is granted, and claims already held go on; `no`
    Paused,
    /// Attempts after which a task is dead, 1 to 1000000, for tasks without a limit of their own; `none`: no limit
    Attempts,
    /// Length of the lease of a claim that names none; `none`: 30s
    Lease,
    /// Longest lease, whatever a claim or a renewal asks for; `none`: 1h
    LeaseMax,
    /// Pause after an attempt that failed or ran out: `fixed DUR`, or `exponential FIRST MOST`, either with `jitter N%` behind it;
    /// `none`: no pause
    Backoff,
    /// How long ended tasks are kept; `none`: as in the settings of the nodes
    Retention,
    /// Order of claims: `priority`, the highest first and among equals the oldest; `random`, any; `fair`, the key served longest ago
    /// first, so that keys take turns
    Order,
    /// Time in which a ready task gains one level of priority, counted from its enqueue or from the end of its delay, so that no task
    /// starves behind a stream of higher ones; `none`: priorities stay
    Ageing,
    /// Most claims of the queue in the whole cluster, as `N/s`, `N/m` or `N/h`. In any period it grants at most what the rate allows in
    /// it, plus what it allows in two seconds, plus one; `none`: no limit
    Rate,
    /// Most tasks of the queue held at once in the whole cluster; `none`: no limit. With it, a claim whose lease ran out counts as a
    /// failed attempt, and cannot be renewed. When it is lowered, claims already held go on
    Concurrency,
    /// Most tasks with the same key held at once, 1 to 1000, instead of 1; `none`: any number. If it is not 1, a claim of a task with a
    /// key whose lease ran out counts as a failed attempt, and cannot be renewed
    KeyConcurrency,
    /// Effect on a task if one that it waits for was cancelled, has died or is no longer known: `fail`: it dies; `skip`: it goes on;
    /// `wait`: it waits until it is cancelled
    FailedDependency,
    /// Whose completion ends a task: `any`: that of any worker that ever claimed it; `holder`: only that of its latest holder, sealed by
    /// the leader, so that at most one is ever acknowledged. A task that was claimed before keeps its mode
    Mode,
    /// Most open tasks: more are refused, and clients try again until their time is over; `none`: no limit. A node counts its own tasks
    /// and infers the others, so that a few more may get in
    Tasks,
    /// Most bytes of open tasks, in the same way: `500MiB`, `2GiB`; `none`: no limit
    Bytes,
    /// Queue for dead letters: a copy of a task goes there when the task is given up or called invalid; `none`: no copy
    DeadLetter,
}

impl Key {
    /// Returns the key as written.
    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Returns the policy's value of the key, as written.
    fn value(self, policy: &QueuePolicy) -> String {
        match self {
            Key::Paused => if policy.paused { "yes" } else { "no" }.to_owned(),
            Key::Attempts => number(policy.attempts_max),
            Key::Lease => duration(policy.lease_ms),
            Key::LeaseMax => duration(policy.lease_ms_max),
            Key::Backoff => backoff(policy.backoff),
            Key::Retention => duration(policy.retention_ms),
            Key::Order => policy.order.name().to_owned(),
            Key::Ageing => duration(policy.ageing_ms),
            Key::Rate => number(policy.rate),
            Key::Concurrency => number(policy.concurrency),
            Key::KeyConcurrency => number(of_key(policy)),
            Key::FailedDependency => policy.failed_dependency.name().to_owned(),
            Key::Mode => policy.mode.name().to_owned(),
            Key::Tasks => number(policy.tasks_max),
            Key::Bytes => size(policy),
            Key::DeadLetter => dead_letter(policy),
        }
    }
}

/// Returns the values of a key, if they are a few words.
pub(crate) fn choices(key: &str) -> Option<Vec<&'static str>> {
    match Key::from_str(key, false).ok()? {
        Key::Paused => Some(vec!["yes", "no"]),
        Key::Order => Some(Order::ALL.map(Order::name).to_vec()),
        Key::Mode => Some(Mode::ALL.map(Mode::name).to_vec()),
        Key::FailedDependency => Some(FailedDependency::ALL.map(FailedDependency::name).to_vec()),
        _ => None,
    }
}

/// Arguments of `queue set`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct SetArguments {
    /// Queue
    #[arg(value_name = "QUEUE")]
    pub queue: String,
    /// Setting
    #[arg(value_name = "KEY", value_enum)]
    pub key: Key,
    /// New value
    #[arg(value_name = "VALUE", required = true, num_args = 1..)]
    pub value: Vec<String>,
}

/// Arguments of `queue show`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct ShowArguments {
    /// Only this queue
    #[arg(value_name = "QUEUE")]
    pub queue: Option<String>,
}

impl QueueVerb {
    pub(super) async fn run<T: Transport>(self, runner: &mut Runner<T>) -> Result<Exit, Failure> {
        match self {
            QueueVerb::Set(arguments) => arguments.run(runner).await,
            QueueVerb::Show(arguments) => arguments.run(runner).await,
        }
    }
}

impl SetArguments {
    fn setting(&self) -> Result<QueueSetting, Failure> {
        let value = self.value.join(" ");
        let value = value.as_str();
        let wanted = |wanted: &str| Failure::invalid(format!("wanted is {wanted}, not {:?}", clean(value)));
        match (self.key, value) {
            (Key::Paused, "yes") => Ok(QueueSetting::Paused(true)),
            (Key::Paused, "no") => Ok(QueueSetting::Paused(false)),
            (Key::Paused, _) => Err(wanted("`yes` or `no`")),
            (Key::Attempts, "none") => Ok(QueueSetting::Attempts(None)),
            (Key::Attempts, _) => {
                let attempts = value.parse().map_err(|_| wanted("a whole number as `5`, or `none`"))?;
                Ok(QueueSetting::Attempts(Some(attempts)))
            }
            (Key::Lease, _) => Ok(QueueSetting::Lease(duration_if_any(value)?)),
            (Key::LeaseMax, _) => Ok(QueueSetting::LeaseMax(duration_if_any(value)?)),
            (Key::Retention, _) => Ok(QueueSetting::Retention(duration_if_any(value)?)),
            (Key::Backoff, "none") => Ok(QueueSetting::Backoff(None)),
            (Key::Backoff, _) => {
                let parsed = parsed_backoff(&self.value).ok_or_else(|| wanted(BACKOFF))?;
                Ok(QueueSetting::Backoff(Some(parsed)))
            }
            (Key::Order, _) => {
                let named = Order::ALL.into_iter().find(|order| order.name() == value);
                named.map(QueueSetting::Order).ok_or_else(|| wanted("`priority`, `random` or `fair`"))
            }
            (Key::Rate, "none") => Ok(QueueSetting::Rate(None)),
            (Key::Rate, _) => {
                let parsed =
                    value.parse().map_err(|_| wanted("`N/s`, `N/m` or `N/h`, for example `100/s`, or `none`"))?;
                Ok(QueueSetting::Rate(Some(parsed)))
            }
            (Key::Concurrency, "none") => Ok(QueueSetting::Concurrency(None)),
            (Key::Concurrency, _) => {
                let claims = value.parse().map_err(|_| wanted("a whole number as `5`, or `none`"))?;
                Ok(QueueSetting::Concurrency(Some(claims)))
            }
            (Key::KeyConcurrency, "none") => Ok(QueueSetting::KeyConcurrency(KeyConcurrency::Any)),
            (Key::KeyConcurrency, _) => {
                let most = value.parse().map_err(|_| wanted("a whole number as `5`, or `none`"))?;
                Ok(QueueSetting::KeyConcurrency(KeyConcurrency::Most(most)))
            }
            (Key::Ageing, _) => Ok(QueueSetting::Ageing(duration_if_any(value)?)),
            (Key::FailedDependency, _) => {
                let named = FailedDependency::ALL.into_iter().find(|policy| policy.name() == value);
                named.map(QueueSetting::FailedDependency).ok_or_else(|| wanted("`fail`, `skip` or `wait`"))
            }
            (Key::Mode, _) => {
                let named = Mode::ALL.into_iter().find(|mode| mode.name() == value);
                named.map(QueueSetting::Mode).ok_or_else(|| wanted("`any` or `holder`"))
            }
            (Key::Tasks, "none") => Ok(QueueSetting::Tasks(None)),
            (Key::Tasks, _) => {
                let tasks = value.parse().map_err(|_| wanted("a whole number as `5`, or `none`"))?;
                Ok(QueueSetting::Tasks(Some(tasks)))
            }
            (Key::Bytes, "none") => Ok(QueueSetting::Bytes(None)),
            (Key::Bytes, _) => {
                let size = parse::bytes(value).ok_or_else(|| wanted("a size as `500MiB` or `2GiB`, or `none`"))?;
                Ok(QueueSetting::Bytes(Some(size)))
            }
            (Key::DeadLetter, "none") => Ok(QueueSetting::DeadLetter(None)),
            (Key::DeadLetter, _) => Ok(QueueSetting::DeadLetter(Some(parse::queue(value)?))),
        }
    }

    async fn run<T: Transport>(self, runner: &mut Runner<T>) -> Result<Exit, Failure> {
        let (queue, setting) = (parse::queue(&self.queue)?, self.setting()?);
        let change = ClusterChange::Queue { queue: queue.clone(), setting };
        let request = Request::Change { change: Box::new(change), dry_run: false };
        let Response::Changed(changed) = runner.request(request).await? else { return Err(unexpected("change")) };
        let policy = changed.view.roster.policies.get(&queue).cloned().unwrap_or_default();
        let output = &mut runner.output;
        if output.json() {
            output.object(&api::QueuePolicy::new(&queue, &policy))?;
        } else {
            let (queue, is) = (clean(queue.as_str()), if changed.already { "is already" } else { "is now" });
            output.line(&format!("{queue}: {} {is} {}", self.key.name(), self.key.value(&policy)))?;
        }
        Ok(Exit::Done)
    }
}

impl ShowArguments {
    async fn run<T: Transport>(self, runner: &mut Runner<T>) -> Result<Exit, Failure> {
        let Response::Cluster(view) = runner.request(Request::Cluster).await? else {
            return Err(unexpected("cluster"));
        };
        let policies = view.roster.policies;
        let shown: Vec<(QueueName, QueuePolicy)> = match parse::queue_if_any(self.queue.as_ref())? {
            Some(queue) => {
                let policy = policies.get(&queue).cloned().unwrap_or_default();
                vec![(queue, policy)]
            }
            None => policies.into_iter().collect(),
        };
        let output = &mut runner.output;
        if output.json() {
            for (queue, policy) in &shown {
                output.row(&api::QueuePolicy::new(queue, policy))?;
            }
            output.end_rows()?;
            return Ok(Exit::Done);
        }
        if shown.is_empty() {
            output.line("nothing is set for any queue")?;
        }
        for (place, (queue, policy)) in shown.iter().enumerate() {
            if place > 0 {
                output.line("")?;
            }
            let name = output.paint(Style::Bold, &clean(queue.as_str()));
            output.line(&format!("queue {name}"))?;
            for key in Key::value_variants() {
                let (value, default) = (key.value(policy), key.value(&QueuePolicy::default()));
                // For one queue show every setting, for several queues only those that are set.
                if self.queue.is_some() || value != default {
                    output.line(&format!("  {:17}  {value}", key.name()))?;
                }
            }
        }
        Ok(Exit::Done)
    }
}

fn dead_letter(policy: &QueuePolicy) -> String {
    policy.dead_letter.as_ref().map_or_else(|| "none".to_owned(), |queue| clean(queue.as_str()))
}

/// Returns the limit per key; `None` if there is none.
fn of_key(policy: &QueuePolicy) -> Option<u32> {
    match policy.key_concurrency {
        KeyConcurrency::Most(most) => Some(most),
        KeyConcurrency::Any => None,
    }
}

fn number(number: Option<impl ToString>) -> String {
    number.map_or_else(|| "none".to_owned(), |number| number.to_string())
}

fn size(policy: &QueuePolicy) -> String {
    policy.bytes_max.map_or_else(|| "none".to_owned(), |bytes| text::size(bytes as usize))
}

/// Parses a back-off.
fn parsed_backoff(words: &[String]) -> Option<Backoff> {
    let words: Vec<&str> = words.iter().flat_map(|word| word.split_whitespace()).collect();
    let (words, jitter_percent) = match &words[..] {
        [front @ .., "jitter", percent] => (front, percent.strip_suffix('%').unwrap_or(percent).parse().ok()?),
        all => (all, 0),
    };
    let ms = |text: &str| parse::duration_ms(text).ok();
    let (first_ms, most_ms) = match words {
        ["fixed", pause] => (ms(pause)?, ms(pause)?),
        ["exponential", first, most] => (ms(first)?, ms(most)?),
        _ => return None,
    };
    Some(Backoff { first_ms, most_ms, jitter_percent })
}

/// Formats a back-off as it is written.
fn backoff(backoff: Option<Backoff>) -> String {
    let Some(Backoff { first_ms, most_ms, jitter_percent }) = backoff else { return "none".to_owned() };
    let (first, most) = (text::duration(first_ms), text::duration(most_ms));
    let pauses = if first_ms == most_ms { format!("fixed {first}") } else { format!("exponential {first} {most}") };
    if jitter_percent == 0 { pauses } else { format!("{pauses} jitter {jitter_percent}%") }
}

fn duration_if_any(value: &str) -> Result<Option<u64>, Failure> {
    match value {
        "none" => Ok(None),
        _ => parse::duration_ms(value).map(Some).map_err(|why| Failure::invalid(format!("{why}; or `none`"))),
    }
}

fn duration(ms: Option<u64>) -> String {
    ms.map_or_else(|| "none".to_owned(), text::duration)
}
