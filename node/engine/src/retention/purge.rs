//! Purging: an ended task is removed although its retention is not over.
//!
//! A purge is a fact of its task that only ever turns true. The request puts it on as many disks as its `acks` demand, anti-entropy on
//! the others. The leader treats a purged task like one whose retention is over (`retention/forgetting.rs`). The rest of forgetting is
//! unchanged: first the claim is dropped, the children of the task are handed over, the join of its group has ended, and the archive has
//! the task.
//!
//! **A task that has not ended loses nothing.** A fact is never taken back, so the purge of an open task would remove the result as soon
//! as there is one. Therefore the task is read at a majority first, and a purge is written only if it has ended, which is never taken
//! back either. Where a replica that answered the read does not know of the end, the purge carries the end: wherever the purge survives,
//! so does the end.
//!
//! **A part of the task may be lost** at every replica that answers. That is no reason to keep the rest: by the purge the operator gives
//! up that part. The archive gets the rest, with a note of what is lost. A lost result cannot be sent to replicas, and neither can its
//! completion. So where the end rests on that completion alone, the purge carries a cancellation. It ends the task at replicas that do
//! not know of the completion; at all others the task stays done as before. With that the leader can drop the claim, too.
//!
//! An operator who purges many tasks selects them by how they ended, and a worker may complete a cancelled task after that. So the
//! request may name the state in which the task must have ended: it is refused where a majority knows another one.

use crate::Node;
use crate::event::ClientId;
use crate::write_read::read::{Reader, Seen};
use norn_model::claim_table::table::ClaimEntry;
use norn_model::config::mutant;
use norn_model::task::{Cancel, Facts, Task, Tombstone};
use norn_wire::error::{Error, ErrorCode};
use norn_wire::{Acks, Response, State, TaskId};

/// Reason of the cancellation that ends a task at replicas that know nothing of its completion.
pub(crate) const RESULT_LOST: &str = "purged; its result was lost";

/// A client that purges a task.
#[derive(Debug, Clone, Copy)]
pub struct Purger {
    /// The waiting client...
    pub client: ClientId,
    /// ...and the number of its request.
    pub number: u64,
    /// Durability.
    pub acks: Acks,
    /// State in which the task must have ended, if it matters.
    pub state: Option<State>,
}

impl Node {
    /// Starts a client's purge.
    pub(crate) fn purge(&mut self, id: TaskId, purger: Purger) {
        let timeout_ms = self.config.request_timeout_ms;
        self.read_for(Reader::Purge(purger), id, timeout_ms);
    }

    /// Writes the purge, or refuses it, once a majority has been read. `all_know`: each replica that answered knows of the end.
    pub(crate) fn purge_read(&mut self, id: TaskId, purger: &Purger, seen: &Seen, all_know: bool) {
        let fact = match refusal(seen, purger.state) {
            Some(error) if error.code == ErrorCode::Invalid && mutant!(self.config, PurgesOpen) => {
                Task::from_tombstone(Tombstone { state: State::Cancelled, at_ms: self.now.wall_ms })
            }
            Some(error) => return self.not_purged(id, purger, error),
            None => farewell(&seen.task, all_know),
        };
        self.write(purger.client, purger.number, vec![(id, fact)], (purger.acks, true));
    }

    /// Refuses a purge, for good or for now.
    pub(crate) fn not_purged(&mut self, id: TaskId, purger: &Purger, error: Error) {
        self.outbox.reply(purger.client, purger.number, Response::Error(error.about(id)));
    }
}

/// The purge as a fact; where not all replicas know of the task's end, with that end.
fn farewell(task: &Task, all_know: bool) -> Task {
    let mut told = task.clone();
    told.leave_out_gaps();
    match told.ended() {
        None => {
            let at_ms = task.tombstone().map_or(0, |tombstone| tombstone.at_ms);
            let cancel = Some(Cancel { dead: false, reason: RESULT_LOST.into(), at_ms });
            Task::from_facts(Facts { cancel, purged: true, ..Facts::default() })
        }
        Some(_) if all_know => Task::from_purge(),
        Some(_) => told.purge(),
    }
}

/// The reason why a task is not purged, if any. A buried task may be purged once more.
fn refusal(seen: &Seen, wanted: Option<State>) -> Option<Error> {
    let Seen { task, entry, .. } = seen;
    if let Some(state) = task.ended() {
        if !seen.is_known() && task.tombstone.is_none() {
            return Some(Error::new(ErrorCode::NotFound, "no such task, or its payload is not kept any more"));
        }
        // A cancelled or dead task becomes done if its worker completes it after all.
        return wanted.filter(|wanted| *wanted != state).map(|wanted| {
            Error::new(ErrorCode::Conflict, format!("the task is {state}, and was to be purged only if {wanted}"))
        });
    }
    if !seen.is_known() {
        return Some(Error::new(ErrorCode::NotFound, "no such task"));
    }
    if entry.as_ref().and_then(ClaimEntry::death).is_some() {
        return Some(Error::unavailable("the task is just being given up; ask again"));
    }
    Some(Error::new(ErrorCode::Invalid, "the task has not ended, so it is not purged: cancel it first"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use norn_model::task::Completed;
    use norn_wire::Token;

    /// Goal: a purge ends the task wherever it arrives, also where the completion cannot be sent.
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
