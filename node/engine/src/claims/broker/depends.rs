//! Claims that depend on tasks: nothing is granted unless these are there, in whichever partitions. A claim under a session depends on
//! the session too.

use super::Phase;
use crate::Node;
use crate::claims::sessions::check_open;
use crate::write_read::read::Reader;
use norn_model::claim_table::table::ClaimEntry;
use norn_model::replica::version::is_as_expected;
use norn_model::task::Task;
use norn_wire::error::{Error, ErrorCode};
use norn_wire::{Response, TaskId};
use std::collections::BTreeSet;

impl Node {
    /// Reads the tasks that a call depends on: before the first question, and again once something was granted. What is there the
    /// second time was there all the while, as an ended task never comes back, nor an old version; so it was there when the tasks were
    /// granted. A session is read once: the partitions that grant under it learn of its end.
    pub(super) fn check_depends(&mut self, number: u64) {
        let timeout_ms = self.config.request_timeout_ms;
        let call = self.claims.broker.calls.get_mut(&number).expect("under way");
        let session = call.claim.session.filter(|_| call.got.is_empty());
        let open: BTreeSet<TaskId> = call.claim.depends.iter().map(|depend| depend.id).chain(session).collect();
        assert!(!open.is_empty(), "there is nothing that a call depends on");
        call.phase = Phase::Checking { open: open.clone() };
        open.into_iter().for_each(|id| self.read_for(Reader::Claim(number), id, timeout_ms));
    }

    /// A majority has answered with what it knows of a task that a call depends on.
    pub(crate) fn depend_read(&mut self, number: u64, id: TaskId, read: Result<(&Task, Option<&ClaimEntry>), Error>) {
        let Some(call) = self.claims.broker.calls.get_mut(&number) else { return };
        let Phase::Checking { open } = &mut call.phase else { return };
        let there = |(task, entry): (&Task, Option<&ClaimEntry>)| {
            let depends = call.claim.depends.iter().filter(|depend| depend.id == id);
            depends.into_iter().all(|depend| is_as_expected(task, entry, depend.expected)).then_some(())
        };
        let missing = || {
            let message = "a task that the claim depends on is not there, or not as expected; nothing was claimed";
            Error::new(ErrorCode::Conflict, message)
        };
        let session = call.claim.session.filter(|session| *session == id && call.got.is_empty());
        let read = read.and_then(|known| session.map_or(Ok(()), |_| check_open(known.0, known.1)).map(|()| known));
        if let Err(error) = read.and_then(|known| there(known).ok_or_else(missing)) {
            let call = self.end_claim(number);
            self.give_back_all(&call);
            return self.outbox.reply(call.client, call.number, Response::Error(error.about(id)));
        }
        if !open.remove(&id) || !open.is_empty() {
            return;
        }
        call.phase = Phase::Idle;
        if call.got.is_empty() { self.advance_claim(number) } else { self.answer_claim(number) }
    }
}
