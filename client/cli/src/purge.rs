//! `purge`: forgets ended tasks before their retention is over.

use super::each::each;
use super::error::{Exit, Failure};
use super::parse::DurabilityArguments;
use super::redrive::show_acked;
use super::runner::unexpected;
use super::several::{Change, OVER, SeveralArguments};
use super::{Runner, Transport, text};
use clap::Args;
use norn_client::api;
use norn_wire::{Request, Response, TaskView};

/// Arguments of `purge`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct PurgeArguments {
    /// Tasks that have ended; each is tried, even if others fail
    #[arg(value_name = "ID", required_unless_present = "queue", conflicts_with = "queue")]
    pub id: Vec<String>,
    /// Choice of many tasks.
    #[command(flatten)]
    pub several: SeveralArguments,
    /// Of the queue, only tasks with this text in the reason of their end
    #[arg(long, value_name = "TEXT", requires = "queue", conflicts_with = "id", allow_hyphen_values = true)]
    pub reason: Option<String>,
    /// Durability of the write.
    #[command(flatten)]
    pub durability: DurabilityArguments,
}

impl PurgeArguments {
    pub(super) async fn run<T: Transport>(self, runner: &mut Runner<T>) -> Result<Exit, Failure> {
        let acks = self.durability.acks;
        if self.id.is_empty() {
            let request = |task: &TaskView| Some(Request::Purge { id: task.id, acks, state: Some(task.state) });
            let left = "gone or ended otherwise meanwhile";
            let change = Change { states: OVER, ended_with: self.reason, done: "purged", left, brings: None };
            return self.several.each(runner, change, request).await;
        }
        api::each_once("the tasks", &self.id, |id| text::clean(id)).map_err(|error| Failure::Usage(error.0))?;
        each(runner, &self.id, async |runner: &mut Runner<T>, id: &str| {
            let id = runner.resolve_target(id).await?;
            let Response::AckedOne(acked) = runner.request(Request::Purge { id, acks, state: None }).await? else {
                return Err(unexpected("purge"));
            };
            show_acked(&mut runner.output, "purged", &acked)
        })
        .await
    }
}
