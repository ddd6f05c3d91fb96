//! `queue set` and `queue show`: what holds for all tasks of a queue, in the whole cluster.

use super::runner::unexpected;
use super::text::clean;
use super::{Exit, Failure, Runner, Transport, parse};
use crate::wire::membership::{ClusterChange, FailedDependency, QueuePolicy, QueueSetting};
use crate::wire::{QueueName, Request, Response};
use clap::{Args, Subcommand, ValueEnum};
use comfy_table::{Attribute, Cell};
use serde::Serialize;

/// Sets and shows what holds for a queue.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum QueueVerb {
    /// Sets something for a queue
    ///
    /// It holds for tasks that are there already, too, as soon as the nodes have heard of it, and outlives them.
    Set(SetArguments),
    /// Shows queues for which something is set, or one queue
    Show(ShowArguments),
}

/// What can be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Key {
    /// `yes`: nothing of the queue is granted, and what is held goes on; `no`
    Paused,
    /// A task that says nothing of that itself is dead after so many attempts, 1 to 1000000; `none`: there is no end
    Attempts,
    /// What becomes of a task if one that it waits for was cancelled, has died or is not known any more: `fail`: it dies;
    /// `skip`: it goes on; `wait`: it waits until it is cancelled
    FailedDependency,
}

/// Sets something for a queue.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct SetArguments {
    /// Queue
    #[arg(value_name = "QUEUE")]
    pub queue: String,
    /// What
    #[arg(value_name = "KEY", value_enum)]
    pub key: Key,
    /// To what
    #[arg(value_name = "VALUE")]
    pub value: String,
}

/// Shows what is set.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct ShowArguments {
    /// Only this one
    #[arg(value_name = "QUEUE")]
    pub queue: Option<String>,
}

#[derive(Serialize)]
struct PolicyLine<'a> {
    queue: &'a str,
    paused: bool,
    attempts: Option<u32>,
    failed_dependency: &'static str,
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
        let value = self.value.as_str();
        let wanted = |wanted: &str| Failure::invalid(format!("wanted is {wanted}, not {:?}", clean(value)));
        match (self.key, value) {
            (Key::Paused, "yes") => Ok(QueueSetting::Paused(true)),
            (Key::Paused, "no") => Ok(QueueSetting::Paused(false)),
            (Key::Paused, _) => Err(wanted("`yes` or `no`")),
            (Key::Attempts, "none") => Ok(QueueSetting::Attempts(None)),
            (Key::Attempts, _) => {
                let attempts = value.parse().map_err(|_| wanted("a number, or `none`"))?;
                Ok(QueueSetting::Attempts(Some(attempts)))
            }
            (Key::FailedDependency, _) => {
                let named = FailedDependency::ALL.into_iter().find(|policy| policy.name() == value);
                named.map(QueueSetting::FailedDependency).ok_or_else(|| wanted("`fail`, `skip` or `wait`"))
            }
        }
    }

    async fn run<T: Transport>(self, runner: &mut Runner<T>) -> Result<Exit, Failure> {
        let (queue, setting) = (parse::queue(&self.queue)?, self.setting()?);
        let change = ClusterChange::Queue { queue: queue.clone(), setting };
        let request = Request::Change { change: Box::new(change), dry_run: false };
        let Response::Changed(changed) = runner.request(request).await? else { return Err(unexpected("change")) };
        let policy = changed.view.roster.policies.get(&queue).copied().unwrap_or_default();
        let output = &mut runner.output;
        if output.json() {
            output.object(&line(&queue, &policy))?;
        } else {
            let (queue, is) = (clean(queue.as_str()), if changed.already { "is already" } else { "is now" });
            output.line(&format!("{queue} {is} {}", text(&policy)))?;
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
                let policy = policies.get(&queue).copied().unwrap_or_default();
                vec![(queue, policy)]
            }
            None => policies.into_iter().collect(),
        };
        let output = &mut runner.output;
        if output.json() {
            for (queue, policy) in &shown {
                output.row(&line(queue, policy))?;
            }
            output.end_rows()?;
            return Ok(Exit::Done);
        }
        let mut table = output.new_table(&["QUEUE", "PAUSED", "#ATTEMPTS", "FAILED DEPENDENCY"]);
        for (queue, policy) in &shown {
            table.add_row([
                Cell::new(clean(queue.as_str())).add_attribute(Attribute::Bold),
                Cell::new(if policy.paused { "yes" } else { "no" }),
                Cell::new(attempts(policy)),
                Cell::new(policy.failed_dependency.name()),
            ]);
        }
        output.table(&table)?;
        Ok(Exit::Done)
    }
}

fn line<'a>(queue: &'a QueueName, policy: &QueuePolicy) -> PolicyLine<'a> {
    PolicyLine {
        queue: queue.as_str(),
        paused: policy.paused,
        attempts: policy.attempts_max,
        failed_dependency: policy.failed_dependency.name(),
    }
}

fn attempts(policy: &QueuePolicy) -> String {
    policy.attempts_max.map_or_else(|| "none".to_owned(), |attempts| attempts.to_string())
}

fn text(policy: &QueuePolicy) -> String {
    let paused = if policy.paused { "paused" } else { "not paused" };
    format!("{paused}, attempts {}, failed dependency {}", attempts(policy), policy.failed_dependency.name())
}
