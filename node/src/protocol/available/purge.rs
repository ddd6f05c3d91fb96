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
//! **A part of it may be lost** by every replica that answers. That is no reason to keep the rest: with the purge the operator lets go of
//! that part. The archive gets the rest, and is told what is lost. A result that is lost cannot be sent to replicas, and neither can its
//! completion. So where the end rests on that completion alone, the purge carries a cancellation, which ends the task at replicas that have
//! not heard of the completion; at all others it is done as before. With that the leader can drop the claim, too.
//!
//! Who purges many chooses them by how they ended, and a worker may complete a cancelled task after that. So the request may say how
//! the task is to have ended: it is refused where a majority knows it otherwise.

use crate::config::mutant;
use crate::protocol::Node;
use crate::protocol::available::{Reader, Seen};
use crate::protocol::consistent::table::Cell;
use crate::protocol::event::ClientId;
use crate::protocol::task::{Cancel, Facts, Task, Tomb};
use norn_wire::error::{Error, ErrorCode};
use norn_wire::{Acks, Response, State, TaskId};

/// Why a task is taken for cancelled where nothing is known of its completion.
pub(super) const RESULT_LOST: &str = "purged; its result was lost";

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
    pub(super) fn purge_read(&mut self, id: TaskId, purger: &Purger, seen: &Seen, all_know: bool) {
        let fact = match refusal(seen, purger.state) {
            Some(error) if error.code == ErrorCode::Invalid && mutant!(self.config, PurgesOpen) => {
                Task::from_tomb(Tomb { state: State::Cancelled, at_ms: self.now.wall_ms })
            }
            Some(error) => return self.not_purged(id, purger, error),
            None => farewell(&seen.task, all_know),
        };
        self.write(purger.client, purger.number, vec![(id, fact)], (purger.acks, true));
    }

    /// It is not to be, or not now.
    pub(super) fn not_purged(&mut self, id: TaskId, purger: &Purger, error: Error) {
        self.outbox.reply(purger.client, purger.number, Response::Error(error.about(id)));
    }
}

/// The fact that nothing of a task is to be kept, and, where not all know of it, its end.
fn farewell(task: &Task, all_know: bool) -> Task {
    let mut told = task.clone();
    told.leave_out_gaps();
    match told.ended() {
        None => {
            let at_ms = task.tomb().map_or(0, |tomb| tomb.at_ms);
            let cancel = Some(Cancel { dead: false, reason: RESULT_LOST.into(), at_ms });
            Task::from_facts(Facts { cancel, purged: true, ..Facts::default() })
        }
        Some(_) if all_know => Task::from_purge(),
        Some(_) => told.purge(),
    }
}

/// Why a task is not purged; nothing, if it may be. One that is buried may be purged once more.
fn refusal(seen: &Seen, wanted: Option<State>) -> Option<Error> {
    let Seen { task, cell, .. } = seen;
    if let Some(state) = task.ended() {
        if !seen.is_known() && task.tomb.is_none() {
            return Some(Error::new(ErrorCode::NotFound, "no such task, or its payload is not kept any more"));
        }
        // A cancelled or dead task is done once its worker has completed it after all.
        return wanted.filter(|wanted| *wanted != state).map(|wanted| {
            Error::new(ErrorCode::Conflict, format!("the task is {state}, and was to be purged only if {wanted}"))
        });
    }
    if !seen.is_known() {
        return Some(Error::new(ErrorCode::NotFound, "no such task"));
    }
    if cell.as_ref().and_then(Cell::death).is_some() {
        return Some(Error::unavailable("the task is just being given up; ask again"));
    }
    Some(Error::new(ErrorCode::Invalid, "the task has not ended, so it is not purged: cancel it first"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::task::Completed;
    use norn_wire::Token;

    /// Goal: a purge ends the task wherever it arrives, also where the completion cannot be told.
    #[test]
    fn a_purge_carries_an_end_that_can_be_told() {
        let token = Token { epoch: 1, number: 1 };
        let result = Some(vec![1; 1_000].into());
        let whole = Task::from_completion(token, Completed { sequence: None, result, at_ms: 5, children: None });
        assert_eq!(farewell(&whole, true), Task::from_purge());
        assert_eq!(farewell(&whole, false).ended(), Some(State::Done));
        let mut lost = whole.clone();
        let facts = lost.facts.as_ref().expect("it has ended");
        let bytes: Vec<_> = facts.blobs().map(|(slot, blob)| (slot, blob.hash(), blob.len() as u32)).collect();
        lost.mark_lost(&bytes);
        assert_eq!((lost.ended(), &lost), (Some(State::Done), &whole));
        for all_know in [true, false] {
            let purge = farewell(&lost, all_know);
            assert_eq!((purge.ended(), purge.is_purged()), (Some(State::Cancelled), true));
            assert!(rmp_serde::to_vec(&purge).is_ok(), "it can be told");
        }
    }
}
