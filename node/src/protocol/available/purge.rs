//! Purging: nothing of a task that has ended is kept any longer, though its retention is not over.
//!
//! A purge is a fact of its task, which only ever turns true. The request puts it on as many disks as it asks for, anti-entropy
//! on the others. The leader takes a purged task for one whose retention is over (`consistent/forgetting.rs`). All the rest of
//! forgetting is as it always is: first the claim is dropped, the children that the task brings are handed over, the join of its
//! group has ended, and the archive has the task.
//!
//! **A task that has not ended loses nothing.** A fact is never taken back, so the purge of an open task would take the result with
//! it as soon as there is one. Therefore the task is read at a majority first, and a purge is written only if it has ended, which is
//! never taken back either. Where a replica that was read has not heard of the end, the purge carries it: wherever the purge
//! survives, so does the end.
//!
//! Who purges many chooses them by how they ended, and a worker may complete a cancelled task after that. So the request may say how
//! the task is to have ended: it is refused where a majority knows it otherwise.

use crate::config::mutant;
use crate::protocol::Node;
use crate::protocol::available::Reader;
use crate::protocol::consistent::table::Cell;
use crate::protocol::event::ClientId;
use crate::protocol::task::{Task, Tomb};
use norn_client::wire::error::{Error, ErrorCode};
use norn_client::wire::{Acks, Request, Response, State, TaskId};

/// A client that has a task purged.
#[derive(Debug, Clone, Copy)]
pub struct Purger {
    /// Who waits...
    pub client: ClientId,
    /// ...for this request.
    pub number: u64,
    /// Durability.
    pub acks: Acks,
    /// How the task is to have ended; absent, it is all the same.
    pub state: Option<State>,
}

impl Node {
    /// A client's purge.
    pub(in crate::protocol) fn purge(&mut self, id: TaskId, purger: Purger) {
        let timeout_ms = self.config.request_timeout_ms;
        self.read_for(Reader::Purge(purger), id, timeout_ms);
    }

    /// A majority has said what it knows of the task, and each of those whether it has heard of the end.
    pub(super) fn purge_read(
        &mut self,
        id: TaskId,
        purger: &Purger,
        (task, cell): (&Task, Option<&Cell>),
        all_know: bool,
    ) {
        // A member of an older version may have been heard of since the request came.
        let admitted = self.admit_feature(&Request::Purge { id, acks: purger.acks, state: purger.state });
        let fact = match admitted.err().or_else(|| refusal(task, cell, purger.state)) {
            Some(error) if error.code == ErrorCode::Invalid && mutant!(self.config, PurgesOpen) => {
                Task::from_tomb(Tomb { state: State::Cancelled, at_ms: self.now.wall_ms })
            }
            Some(error) => return self.not_purged(id, purger, error),
            None if all_know => Task::from_purge(),
            None => task.purge(),
        };
        self.write(purger.client, purger.number, vec![(id, fact)], (purger.acks, true));
    }

    /// It is not to be, or not now.
    pub(super) fn not_purged(&mut self, id: TaskId, purger: &Purger, error: Error) {
        self.outbox.reply(purger.client, purger.number, Response::Error(error.about(id)));
    }
}

/// Why a task is not purged; nothing, if it may be. One that is buried may be purged once more.
fn refusal(task: &Task, cell: Option<&Cell>, wanted: Option<State>) -> Option<Error> {
    if let Some(state) = task.ended() {
        if task.spec.is_none() && task.tomb.is_none() {
            return Some(Error::new(ErrorCode::NotFound, "no such task, or its payload is not kept any more"));
        }
        // A cancelled or dead task is done once its worker has completed it after all.
        return wanted.filter(|wanted| *wanted != state).map(|wanted| {
            Error::new(ErrorCode::Conflict, format!("the task is {state}, and was to be purged only if {wanted}"))
        });
    }
    if task.spec.is_none() {
        return Some(Error::new(ErrorCode::NotFound, "no such task"));
    }
    if cell.and_then(Cell::death).is_some() {
        return Some(Error::unavailable("the task is just being given up; ask again"));
    }
    Some(Error::new(ErrorCode::Invalid, "the task has not ended, so it is not purged: cancel it first"))
}
