//! Seals (leader-committed completions): of the claims of one task, at most one has its completion acknowledged as the one that counts.
//!
//! Where a queue's mode is `holder`, the tokens of its claims are marked (`Token::needs_seal`), and a completion under such a token
//! ends nothing by itself. Its coordinator asks the leader, as only the leader knows which claim is the latest:
//!
//! 1. the leader appends `Op::Seal`, with the completion in it, if the token is the latest one and the task has not ended;
//! 2. once that is committed, the leader merges it as a fact and appends it as the ending of the task (`Op::Drop`). Before that no node
//!    and no client learns it: the leader may be deposed, and another one may seal another completion;
//! 3. once that is committed too, a majority knows how the task ended, so every later reader does, and the worker gets its answer.
//!
//! A leader that comes between these steps finds the sealed claim in its table and goes on from there; so does a repeated call. A
//! completion under a token of the other kind, which none of the task's claims has, is refused by every replica that knows these claims
//! (`lacks_seal` in `write_read/admission.rs`). A completion that comes too late is refused; its result is kept beside the one that
//! counts, if its worker ever held the task.

use crate::Node;
use crate::event::ClientId;
use crate::write_read::coordinate::Writer;
use norn_model::claim_table::table::{ClaimState, Ended, Op};
use norn_model::config::mutant;
use norn_model::consensus::{Sealing, Waiting};
use norn_model::limits::SEALING_BYTES_MAX;
use norn_model::task::{Completed, Task};
use norn_wire::error::{Error, ErrorCode};
use norn_wire::request::Completion;
use norn_wire::{Acks, PartitionId, Request, Response, TaskId, Token};

/// Outcome of the check of a completion for a seal.
enum Sealable {
    /// Nothing is sealed yet.
    Open,
    /// This completion is sealed already.
    Already,
}

impl Node {
    /// Writes completions that need no seal as ordinary facts, and asks the leaders to seal the rest.
    pub(crate) fn complete(&mut self, client: ClientId, number: u64, items: Vec<Completion>, acks: Acks) {
        let checked =
            self.admit_children(&items).and_then(|()| self.check_cycles(items.iter().flat_map(|item| &item.children)));
        if let Err(error) = checked {
            return self.outbox.reply(client, number, Response::Error(error));
        }
        let ids = items.iter().map(|item| item.id).collect();
        let (mut facts, mut places, mut sealed) = (Vec::new(), Vec::new(), Vec::new());
        for (place, item) in items.into_iter().enumerate() {
            if item.token.needs_seal() {
                places.push(place);
                sealed.push(item);
            } else {
                facts.push((place, (item.id, Task::from_completion(item.token, Completed::new(item)))));
            }
        }
        let until_us = self.after_ms(self.config.request_timeout_ms);
        let request_id = self.begin_write(Writer::Client(client, number), (ids, facts), (acks, false), until_us);
        if !sealed.is_empty() {
            // A leader seals with a majority, whatever acks were asked for. Nodes of an earlier version know no count.
            let request = Request::Complete { items: sealed, acks: Acks::Quorum };
            self.forward_for(client, number, request, Some((request_id, places)));
        }
    }

    /// At the leader: seals the completions that may be sealed.
    pub(crate) fn seal(&mut self, call: u64, items: Vec<Completion>) {
        for (place, item) in items.into_iter().enumerate() {
            let (id, token) = (item.id, item.token);
            let completed = Completed::new(item);
            match self.sealable(&id, token, &completed) {
                Ok(Sealable::Open) => self.append_seal((call, place), (id, token), completed),
                Ok(Sealable::Already) => {
                    let sealing = Sealing { id, token, call: (call, place), bytes: 0, exported: false };
                    self.seal_again(sealing);
                }
                Err(error) => {
                    // After any other refusal the completion may yet be sealed.
                    if matches!(error.code, ErrorCode::Superseded | ErrorCode::Ended) {
                        self.keep_rejected(call, (id, token), completed);
                    }
                    self.decide(call, place, Err(error.about(id)));
                }
            }
        }
    }

    fn sealable(&self, id: &TaskId, token: Token, completed: &Completed) -> Result<Sealable, Error> {
        let partition = self.partition_of(id);
        if !token.needs_seal() {
            return Err(Error::invalid("this claim needs no seal; complete it at any node"));
        }
        if !self.may_append(partition) {
            return Err(Error::unavailable("the partition's leader has moved; ask again"));
        }
        if self.brings_late([completed].into_iter()) {
            let message = "the tasks that the completion brings were named too long ago to be enqueued for certain";
            return Err(Error::new(ErrorCode::TooOld, message));
        }
        if let Some((sealed, known)) = self.partitions[&partition].sealed(id) {
            return if sealed != token {
                let message = format!("the completion under {sealed} is the one that counts");
                Err(Error::new(ErrorCode::Superseded, message))
            } else if (known.sequence, &known.result) != (completed.sequence, &completed.result)
                || !known.brings_as(completed)
            {
                let message = "this claim was completed with something else, which is the one that counts";
                Err(Error::new(ErrorCode::Conflict, message))
            } else {
                Ok(Sealable::Already)
            };
        }
        match self.held(id, token) {
            Ok(_) => {}
            // Its lease has expired, and no other claim has taken over.
            Err(_) if self.waits(id, token) => {}
            Err(_) if mutant!(self.config, SealsSuperseded) && self.is_held(id) => {}
            Err(error) => return Err(error),
        }
        let bytes = self.claims.calls.sealing_bytes;
        if bytes > 0 && bytes + completed.size_bytes() > SEALING_BYTES_MAX {
            return Err(Error::unavailable("the leader is sealing as much as it may; ask again"));
        }
        Ok(Sealable::Open)
    }

    /// Whether a task is held and has not ended.
    fn is_held(&self, id: &TaskId) -> bool {
        let replica = &self.partitions[&self.partition_of(id)];
        !replica.store.ended(id)
            && replica.consensus.claim_entry(id).is_some_and(|entry| entry.state == ClaimState::Held)
    }

    fn append_seal(&mut self, call: (u64, usize), (id, token): (TaskId, Token), completed: Completed) {
        let partition = self.partition_of(&id);
        let latest = self.partitions[&partition].consensus.claim_entry(&id).map(|entry| entry.token);
        let token = latest.filter(|_| mutant!(self.config, SealsSuperseded)).unwrap_or(token);
        let bytes = completed.size_bytes();
        self.claims.calls.sealing_bytes += bytes;
        let fits = self.claims.calls.sealing_bytes <= SEALING_BYTES_MAX || self.claims.calls.sealing_bytes == bytes;
        assert!(fits, "more is being sealed than may be");
        // The results of its other claims travel with the ending, and are loaded while the seal commits.
        self.bring_results_back(partition, &id);
        let early = mutant!(self.config, SealsEarly).then(|| Task::from_seal(token, completed.clone()));
        let op = Op::Seal { id, token, completed: Box::new(completed) };
        self.append(partition, op, Some(Waiting::Seal(Sealing { id, token, call, bytes, exported: false })));
        if let Some(fact) = early {
            self.merge(partition, vec![(id, fact)]);
        }
    }

    /// Goes on once everything that is appended by now is committed.
    fn seal_again(&mut self, sealing: Sealing) {
        let partition = self.partition_of(&sealing.id);
        let consensus = &mut self.partitions.get_mut(&partition).expect("just seen").consensus;
        let (length, commit) = (consensus.viewstamp.length, consensus.commit);
        assert!(commit <= length, "the commit index is ahead of the operations it covers");
        if commit == length {
            return self.seal_committed(partition, sealing);
        }
        consensus.leading_mut().expect("it leads").waiting.push_back((length, Waiting::Seal(sealing)));
    }

    /// A seal is committed: appends it as the ending, and answers once that is committed too.
    pub(crate) fn seal_committed(&mut self, partition: PartitionId, sealing: Sealing) {
        let Sealing { id, token, call: (call, place), bytes, exported } = sealing;
        assert!(self.claims.calls.sealing_bytes >= bytes, "a completion is sealed that was not counted");
        self.claims.calls.sealing_bytes -= bytes;
        // Another call about the same completion may have done so just before.
        let appended = exported || self.export_seal(partition, &id);
        if appended && !exported {
            return self.seal_again(Sealing { bytes: 0, exported: true, ..sealing });
        }
        let replica = &self.partitions[&partition];
        let counts = replica.store.task(&id).and_then(|task| task.facts.as_ref()?.seal) == Some(token);
        let result = if !appended {
            // The answer must come after the ending, which cannot be appended yet.
            Err(Error::unavailable("the end of the task cannot be written yet; ask again").about(id))
        } else if counts && replica.consensus.claim_entry(&id).is_none() {
            Ok(replica.cohort().members().count() as u64 / 2 + 1)
        } else {
            Err(Error::unavailable("the partition's leader has moved; ask again").about(id))
        };
        self.decide(call, place, result);
        self.answer_call(call);
    }

    /// The leader steps down: the seal may or may not commit.
    pub(crate) fn seal_given_up(&mut self, sealing: &Sealing) {
        assert!(self.claims.calls.sealing_bytes >= sealing.bytes, "a completion is given up that was not counted");
        self.claims.calls.sealing_bytes -= sealing.bytes;
        self.call_given_up(sealing.call.0, &[(sealing.call.1, 0)]);
    }

    /// Appends a committed seal as the ending of its task. Returns whether that is appended by now, committed or not.
    fn export_seal(&mut self, partition: PartitionId, id: &TaskId) -> bool {
        let replica = &self.partitions[&partition];
        let sealed =
            replica.consensus.claim_entry(id).is_some_and(|entry| matches!(entry.state, ClaimState::Sealed { .. }));
        if !sealed {
            return true;
        }
        if !self.may_append(partition) {
            return false;
        }
        let verdict = replica.verdict(id).expect("it is sealed");
        self.merge(partition, vec![(*id, verdict)]);
        // Its ending is to leave the table again even if no other task ends.
        self.arm_drop(partition);
        let replica = self.partitions.get_mut(&partition).expect("just seen");
        let Some(facts) = replica.ending(id) else {
            // Other facts of the task are not in memory, and are loaded first.
            replica.to_drop.insert(*id);
            self.arm_drop(partition);
            return false;
        };
        replica.to_drop.remove(id);
        self.append(partition, Op::Drop { items: [Ended { id: *id, facts }].into() }, None);
        self.arm_drop(partition);
        true
    }

    /// Keeps a completion that does not count, if its claim was one of the task's.
    fn keep_rejected(&mut self, call: u64, (id, token): (TaskId, Token), completed: Completed) {
        let partition = self.partition_of(&id);
        let Some(replica) = self.partitions.get(&partition).filter(|_| token.needs_seal()) else { return };
        let Some(task) = replica.store.task(&id) else { return };
        // Its child tasks are not enqueued.
        let children = if mutant!(self.config, RejectedBrings) { completed.children.clone() } else { None };
        let fact = Task::from_completion(token, Completed { children, ..completed });
        if replica.had_claim(&id, token) && task.contradicts(&fact).is_ok() {
            self.merge(partition, vec![(id, fact)]);
            self.answer_durably(call);
        }
    }
}
