//! The requesters of writes, and how each learns the outcome.

use crate::Node;
use crate::controller::scheduler::FiringId;
use crate::event::ClientId;
use crate::workflow::children::Delivery;
use crate::workflow::redrive::{Asker, Copying};
use norn_model::register::Name;
use norn_wire::error::Error;
use norn_wire::response::Acked;
use norn_wire::{Response, TaskId};

/// The requester of a write.
#[derive(Debug, Clone)]
pub enum Writer {
    /// A client, and the number of its request.
    Client(ClientId, u64),
    /// A completion that brought tasks.
    Children(Delivery),
    /// A schedule of the cluster.
    Schedule(FiringId),
    /// A client or a leader that wants a copy of a dead task.
    Redrive(Box<Copying>),
    /// A leader, for a task that must be the only one with its key.
    Unique(Box<Name>),
    /// A leader, for a transaction that is decided.
    Transaction(TaskId),
    /// The join of a group that has failed: its members are cancelled.
    Abort(TaskId),
}

impl Writer {
    /// The waiting client, if the requester is one.
    pub(crate) fn client(&self) -> Option<ClientId> {
        match self {
            Writer::Client(client, _) => Some(*client),
            Writer::Redrive(copying) => match copying.asker {
                Asker::Client { client, .. } => Some(client),
                Asker::Leader(_) => None,
            },
            Writer::Children(_)
            | Writer::Schedule(_)
            | Writer::Unique(_)
            | Writer::Transaction(_)
            | Writer::Abort(_) => None,
        }
    }
}

impl Node {
    /// Reports the result of each task to the requester. A single result goes without a list around it where that was asked for.
    pub(crate) fn tell_writer(
        &mut self,
        writer: Writer,
        single: bool,
        (ids, mut results): (Vec<TaskId>, Vec<Result<Acked, Error>>),
    ) {
        let errors = results.iter_mut().filter_map(|result| result.as_mut().err());
        match writer {
            Writer::Client(..) => errors.for_each(|error| self.date_refusal(error)),
            // These results go to other nodes, and older versions could not read the cause.
            _ => errors.for_each(|error| error.cause = None),
        }
        let (client, number) = match writer {
            Writer::Client(client, number) => (client, number),
            Writer::Children(delivery) => return self.children_written(delivery, &results),
            Writer::Schedule(firing) => {
                let told = ids.into_iter().zip(results);
                return told.for_each(|(id, result)| self.schedule_written(firing, id, result));
            }
            Writer::Redrive(copying) => return self.redriven(*copying, results.pop().expect("it is one write")),
            Writer::Abort(group) => return self.group_aborted(&group),
            Writer::Transaction(id) => return self.transaction_written(id, &results),
            Writer::Unique(name) => {
                return self.unique_written(&name, ids[0], results.pop().expect("it is one write"));
            }
        };
        let response = match (single, results.pop()) {
            (true, Some(Ok(acked))) => Response::AckedOne(acked),
            (true, Some(Err(error))) => Response::Error(error),
            (_, last) => Response::Acked(results.into_iter().chain(last).collect()),
        };
        self.outbox.reply(client, number, response);
    }
}
