//! The requesters of writes, and how each learns the outcome.

use crate::controller::scheduler::FiringId;
use crate::event::ClientId;
use crate::workflow::children::Delivery;
use crate::workflow::redrive::{Asker, Copying};
use norn_model::register::Name;
use norn_wire::TaskId;

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
