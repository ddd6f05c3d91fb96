//! Groups at the command line: membership of a new task, and progress of a group.

use super::error::Failure;
use super::runner::unexpected;
use super::{Call, Draft, Runner, Transport, parse, tasks, text};
use clap::Args;
use norn_client::api;
use norn_client::session::{explain_close, explain_name};
use norn_wire::group::{GroupView, MemberOf};
use norn_wire::limits::GROUP_MEMBERS_MAX;
use norn_wire::{Acked, Acks, Error, ErrorCode, QueueName, Request, Response, TaskId};

/// Arguments of `enqueue` for the member of a group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct GroupArguments {
    /// Make the task a member of the group with this name; the join's queue has one open group per name. Without this and --group-id, the
    /// task is in no group
    #[arg(long, value_name = "NAME")]
    pub group: Option<String>,
    /// Make the task a member of a group without a name, whose join has this id; the join is, or will be, enqueued separately
    #[arg(long, value_name = "ID")]
    pub group_id: Option<String>,
    /// Number of the member, from 1; must not be left out with a group. The same number again is the same task
    #[arg(long, value_name = "N", value_parser = parse::whole(1, GROUP_MEMBERS_MAX, 3), allow_negative_numbers = true)]
    pub number: Option<u32>,
    /// Number of members of the group; once it is known and all of them have ended, the join can be claimed. Any member may give it; if
    /// it is left out with all of them, the group stays open
    #[arg(long, value_name = "N", value_parser = parse::whole(1, GROUP_MEMBERS_MAX, 3), allow_negative_numbers = true)]
    pub total: Option<u32>,
    /// Cancel the other members when one fails, once the total is known
    #[arg(long)]
    pub fail_fast: bool,
    /// Queue of the join, the task that follows the group; the member's queue if left out
    #[arg(long, value_name = "QUEUE")]
    pub join: Option<String>,
    /// Data of the join; the group's name if left out
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub join_data: Option<String>,
}

/// How the group is named.
enum Place<'a> {
    /// By its name.
    Named(&'a str),
    /// By its id, as typed.
    Known(&'a str),
}

/// Member to be enqueued.
pub(super) struct Member<'a> {
    arguments: &'a GroupArguments,
    place: Place<'a>,
    number: u32,
}

impl GroupArguments {
    /// Returns the requested membership, if there is one. Refuses arguments that would determine its id differently.
    pub(super) fn member(&self, excluded: &[(&str, bool)]) -> Result<Option<Member<'_>>, Failure> {
        let of_join = [
            ("--join", self.join.is_some()),
            ("--join-data", self.join_data.is_some()),
            ("--fail-fast", self.fail_fast),
        ];
        let of_group =
            of_join.into_iter().chain([("--number", self.number.is_some()), ("--total", self.total.is_some())]);
        let place = match (self.group.as_deref(), self.group_id.as_deref()) {
            (None, None) => {
                return match first(of_group) {
                    Some(flag) => {
                        usage(format!("{flag} is for a member of a group; add --group NAME or --group-id ID"))
                    }
                    None => Ok(None),
                };
            }
            (Some(_), Some(_)) => return usage("a task is a member of one group: give --group or --group-id"),
            (Some(name), None) => Place::Named(name),
            (None, Some(id)) => match first(of_join) {
                Some(flag) => {
                    return usage(format!("{flag} is for the join, which --group-id takes as it is; leave it out"));
                }
                None => Place::Known(id),
            },
        };
        let Some(number) = self.number else {
            return usage("a member of a group has a number, from 1: add --number N");
        };
        if let Some(total) = self.total.filter(|total| *total < number) {
            return usage(format!(
                "--total {total} is less than --number {number}; the members are numbered up to the total"
            ));
        }
        if let Some(flag) = first(excluded.iter().copied()) {
            return usage(format!(
                "{flag} cannot go with a group: the id of a member follows from its group and number"
            ));
        }
        Ok(Some(Member { arguments: self, place, number }))
    }
}

impl Member<'_> {
    /// Returns the id of the group; enqueues its join if the name is new.
    pub(super) async fn open<T: Transport>(
        &self,
        runner: &mut Runner<T>,
        queue: &QueueName,
    ) -> Result<TaskId, Failure> {
        let name = match self.place {
            Place::Known(id) => return runner.resolve_target(id).await,
            Place::Named(name) => name,
        };
        let queue = self.arguments.join.as_deref().map_or_else(|| Ok(queue.clone()), super::parse::queue)?;
        runner.recent().see_queue(&queue);
        let data = self.arguments.join_data.as_deref().unwrap_or(name);
        let draft = Box::new(Draft::new(queue, data).join(None, self.arguments.fail_fast).group_name(name));
        let called = runner.call(Call::EnqueueUnique { draft }).await.map_err(|failure| left_open(failure, name));
        let Response::AckedUnique { acked, existing } = called? else {
            return Err(unexpected("enqueue"));
        };
        runner.recent().see(acked.id);
        if existing {
            let view = tasks::get(runner, acked.id, None).await?;
            let group = view.group.ok_or_else(|| explain_name(name, acked.id))?;
            self.fits(&group).map_err(|error| error.about(acked.id))?;
        }
        Ok(acked.id)
    }

    /// Checks that an existing group can take the member.
    fn fits(&self, group: &GroupView) -> Result<(), Error> {
        match group.total {
            Some(total) if self.number > total || self.arguments.total.is_some_and(|told| told != total) => {
                let message =
                    format!("the group of this name has {total} members, and has not ended; name another one");
                Err(Error::new(ErrorCode::Conflict, message))
            }
            _ => Ok(()),
        }
    }

    /// Returns the membership in the group with this id.
    pub(super) fn of(&self, group: TaskId) -> MemberOf {
        MemberOf { group, number: self.number }
    }

    /// Sets the number of members, if it was given.
    pub(super) async fn close<T: Transport>(
        &self,
        runner: &Runner<T>,
        group: TaskId,
        acks: Acks,
    ) -> Result<(), Failure> {
        let Some(total) = self.arguments.total else { return Ok(()) };
        let number = self.number;
        let explain = |error: Error| {
            let error = explain_close(error);
            let message =
                format!("member {number} is enqueued, but that there are {total} was not taken: {}", error.message);
            Failure::Call(Error { message, ..error })
        };
        match runner.request(Request::CloseGroup { id: group, total, acks }).await {
            Ok(Response::AckedOne(_)) => Ok(()),
            Ok(_) => Err(unexpected("close_group")),
            Err(Failure::Call(error)) => Err(explain(error)),
            Err(failure) => Err(failure),
        }
    }

    /// Prints the confirmation.
    pub(super) fn print<T: Transport>(
        &self,
        runner: &mut Runner<T>,
        acked: &Acked,
        group: TaskId,
    ) -> Result<(), Failure> {
        let output = &mut runner.output;
        if output.json() {
            return output.object(&api::MemberAck::new(acked, group));
        }
        super::enqueue::print_acked(output, "enqueued", acked)?;
        let of = self.arguments.total.map_or(String::new(), |total| format!(" of {total}"));
        output.line(&format!("  member {}{of} of group {group}", self.number))
    }
}

/// Explains an unknown outcome of the join's enqueue: the next call may get another id, and finds the join by its name.
fn left_open(failure: Failure, name: &str) -> Failure {
    match failure {
        Failure::Call(error) if error.code == ErrorCode::Unknown => {
            let message = format!(
                "{}; the member was not enqueued, and the join of group {:?} may have been: the same command is safe to repeat",
                error.message,
                text::clean(name)
            );
            Failure::Explained(Error { message, id: None, ..error })
        }
        other => other,
    }
}

fn first<'a>(flags: impl IntoIterator<Item = (&'a str, bool)>) -> Option<&'a str> {
    flags.into_iter().find(|(_, given)| *given).map(|(flag, _)| flag)
}

fn usage<V>(message: impl Into<String>) -> Result<V, Failure> {
    Err(Failure::Usage(message.into()))
}
