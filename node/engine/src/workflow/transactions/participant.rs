//! A partition with a part of a transaction that another one decides.
//!
//! Its leader reads and compares the tasks of the part as for a transaction of its own, and appends `Op::Prepare`. From then on these
//! tasks, and those that the part depends on, stay as they are: they are not granted, prolonged or completed through the leader, and no
//! other transaction changes them. Once that is committed the leader votes. It may not go back on its vote: it waits for the outcome, and
//! asks the coordinator's leader for it. Then it writes the facts, and appends `Op::Made`, or it appends `Op::Abort`.
//!
//! A later leader finds the prepared part in its table, and asks. A late copy of a question may prepare a part whose round was given up;
//! the coordinator says so when it is asked. A part that was made is known by its id for the latest 1,024, and refused as too old after
//! that, so none is made twice.

use super::{Coming, Judged, Side, Stage, too_late};
use crate::Node;
use crate::effect::Observation;
use norn_model::claim_table::ledger::{Decided, Prepared, Round, TransactionKey};
use norn_model::claim_table::table::Op;
use norn_model::config::mutant;
use norn_model::consensus::Waiting;
use norn_model::message::{Vote, Workflow};
use norn_wire::error::{Error, ErrorCode};
use norn_wire::transaction::Refusal;
use norn_wire::{NodeId, PartitionId, Transaction};
use std::sync::Arc;

/// For whom a part is prepared.
#[derive(Debug, Clone, Copy)]
pub(super) struct Promise {
    /// Partition that decides.
    pub coordinator: PartitionId,
    /// Its round.
    pub round: Round,
    /// Its leader, as it asked. None where another leader prepared the part.
    pub asker: Option<NodeId>,
}

impl Node {
    /// Takes the question of a coordinator's leader.
    pub(crate) fn on_prepare(
        &mut self,
        from: NodeId,
        partition: PartitionId,
        (coordinator, round): (PartitionId, Round),
        part: Box<Transaction>,
    ) {
        // A node that does not lead says nothing: the coordinator asks again.
        if self.genesis.is_none() || !self.may_append(partition) {
            return;
        }
        let key = (partition, part.id);
        let promise = Promise { coordinator, round, asker: Some(from) };
        if !self.makes_room_for(key, promise) {
            return;
        }
        if let Err(error) = self.take_part(key, promise, part) {
            self.send_vote(key, promise, no(error));
        }
    }

    /// Whether a question is new. An earlier round of the same transaction is over once a later one is heard of.
    fn makes_room_for(&mut self, key: TransactionKey, promise: Promise) -> bool {
        let Some(coming) = self.workflow.transactions.coming.get_mut(&key) else { return true };
        let Side::Participant(before) = &mut coming.side else {
            let error = Error::new(ErrorCode::Conflict, "another transaction has this id; mint a new one");
            self.send_vote(key, promise, no(error));
            return false;
        };
        if before.coordinator != promise.coordinator {
            let error = Error::unavailable("another transaction has this id; ask again");
            self.send_vote(key, promise, no(error));
            return false;
        }
        if promise.round < before.round {
            return false;
        }
        let is_prepared = matches!(coming.stage, Stage::Prepared { committed: true });
        if promise.round == before.round {
            before.asker = promise.asker;
            if is_prepared {
                self.vote_prepared(key);
            }
            return false;
        }
        match coming.stage {
            Stage::Reading { .. } => drop(self.workflow.transactions.remove(&key)),
            Stage::Prepared { .. } => self.abort_part(key),
            _ => return false,
        }
        true
    }

    fn take_part(&mut self, key: TransactionKey, promise: Promise, part: Box<Transaction>) -> Result<(), Error> {
        part.check_part()?;
        let partitions = self.genesis.as_ref().map_or(0, |genesis| genesis.partitions);
        let is_above = promise.coordinator > key.0 && u32::from(promise.coordinator.0) < partitions;
        let ids = || part.adds.iter().map(|add| add.id).chain(part.named());
        if !is_above || ids().any(|id| self.partition_of(&id) != key.0) {
            return Err(Error::invalid("a part of a transaction was sent to another partition than that of its tasks"));
        }
        self.check_versions()?;
        let ledger = &self.partitions[&key.0].consensus.table.ledger;
        if ledger.outcome_of(&key.1).is_some() {
            return Err(Error::new(ErrorCode::Conflict, "a transaction with this id was made before; mint a new one"));
        }
        if ledger.may_have_finished(&key.1) {
            return Err(too_late());
        }
        // Before a majority is asked for the tasks.
        let changed = part.changes.iter().map(|change| change.id).chain(part.deletes.iter().map(|delete| delete.id));
        if let Some(id) = changed.filter(|id| ledger.is_locked(id)).min() {
            return Err(Error::unavailable("another transaction changes the same task; ask again").about(id));
        }
        let bytes = part.size_bytes();
        self.begin_reading(key, (part, bytes), Side::Participant(promise), Vec::new())?;
        self.read_tasks_of(key);
        Ok(())
    }

    pub(super) fn judged_by_participant(&mut self, key: TransactionKey, judged: Judged) {
        match judged {
            Err(error) => self.vote_no(key, error),
            Ok(Err(refusal)) => self.end_part(key, Vote::Refused(refusal)),
            Ok(Ok(decided)) => self.prepare_part(key, decided),
        }
    }

    fn prepare_part(&mut self, key: TransactionKey, decided: Decided) {
        let Some(promise) = self.promise(&key) else { return };
        let (partition, id) = key;
        let decided = if mutant!(self.config, DependsUnlocked) {
            Arc::new(Decided { depends: Vec::new(), ..decided })
        } else {
            Arc::new(decided)
        };
        assert!(promise.coordinator > partition, "a part is prepared for a partition that is not above its own");
        let prepared = Arc::new(Prepared { coordinator: promise.coordinator, round: promise.round, decided });
        self.workflow.transactions.enter(&key, Stage::Prepared { committed: false });
        let round = promise.round;
        self.append(partition, Op::Prepare { id, prepared }, Some(Waiting::Prepare { id, round }));
        if mutant!(self.config, VoteBeforeQuorum) {
            self.part_prepared(key, round);
        }
    }

    fn promise(&self, key: &TransactionKey) -> Option<Promise> {
        match self.workflow.transactions.coming.get(key).map(|coming| &coming.side) {
            Some(Side::Participant(promise)) => Some(*promise),
            _ => None,
        }
    }

    /// The part is prepared, and that is committed: whichever node leads, it waits for the outcome.
    pub(crate) fn part_prepared(&mut self, key: TransactionKey, round: Round) {
        // The part may have been dropped, and prepared again for a later round, before the first operation was committed.
        if self.promise(&key).is_none_or(|promise| promise.round != round) {
            return;
        }
        let Some(Coming { stage: Stage::Prepared { committed }, .. }) = self.workflow.transactions.coming.get_mut(&key)
        else {
            return;
        };
        *committed = true;
        self.vote_prepared(key);
        self.see_to_transactions_soon(key.0);
    }

    fn vote_prepared(&mut self, key: TransactionKey) {
        let Some(promise) = self.promise(&key) else { return };
        let Some(prepared) = self.partitions[&key.0].consensus.table.ledger.prepared().get(&key.1) else { return };
        assert_eq!(prepared.round, promise.round, "a part is prepared in another round than was asked for");
        let stamps = prepared.decided.stamps.clone();
        self.send_vote(key, promise, Vote::Prepared(stamps));
    }

    pub(super) fn vote_no(&mut self, key: TransactionKey, error: Error) {
        self.end_part(key, no(error));
    }

    /// Ends a part that is not prepared.
    fn end_part(&mut self, key: TransactionKey, vote: Vote) {
        let Some(promise) = self.promise(&key) else { return };
        self.workflow.transactions.remove(&key);
        self.send_vote(key, promise, vote);
    }

    fn send_vote(&mut self, (partition, id): TransactionKey, promise: Promise, vote: Vote) {
        let Promise { coordinator, round, asker } = promise;
        if let Some(asker) = asker {
            self.outbox.send(asker, Workflow::PartVote { coordinator, partition, id, round, vote });
        }
    }

    /// Asks the coordinator's leader for the outcome.
    pub(super) fn ask_for_outcome(&mut self, key: TransactionKey) {
        let Some(Promise { coordinator, round, .. }) = self.promise(&key) else { return };
        let (partition, id) = key;
        self.see_to_transactions_soon(partition);
        if mutant!(self.config, OutcomeUnasked) {
            return;
        }
        if let Some(leader) = self.leader_of(coordinator) {
            self.outbox.send(leader, Workflow::AskOutcome { coordinator, partition, id, round });
        }
    }

    /// Takes the outcome of a round from the coordinator's leader.
    pub(crate) fn on_conclude(
        &mut self,
        from: NodeId,
        key: TransactionKey,
        (coordinator, round): (PartitionId, Round),
        commit: bool,
    ) {
        let (partition, id) = key;
        if self.genesis.is_none() || !self.may_append(partition) {
            return;
        }
        let Some(promise) = self.promise(&key).filter(|promise| promise.round == round) else {
            if commit {
                self.conclude_again(from, key, (coordinator, round));
            }
            return;
        };
        let stage = &self.workflow.transactions.coming[&key].stage;
        match (stage, commit) {
            // No vote came from here, so the coordinator has not decided.
            (Stage::Reading { .. }, true) => {}
            (Stage::Reading { .. }, false) => drop(self.workflow.transactions.remove(&key)),
            (Stage::Prepared { committed: false }, true) => {}
            (Stage::Prepared { committed: true }, true) => {
                assert!(
                    self.partitions[&partition].consensus.table.ledger.prepared().contains_key(&id),
                    "a part is prepared and not in the table"
                );
                let Some(Coming { side: Side::Participant(own), .. }) = self.workflow.transactions.coming.get_mut(&key)
                else {
                    return;
                };
                *own = Promise { asker: Some(from), ..promise };
                self.write_transaction(key);
            }
            (Stage::Prepared { .. }, false) => self.abort_part(key),
            (Stage::Decided | Stage::Refused { .. } | Stage::Writing { .. } | Stage::Made, _) => {}
        }
    }

    /// The coordinator has not heard that a part is made.
    fn conclude_again(&mut self, from: NodeId, key: TransactionKey, (coordinator, round): (PartitionId, Round)) {
        // What is in progress here is another round, or another transaction.
        if self.workflow.transactions.coming.contains_key(&key) {
            return;
        }
        let ledger = &self.partitions[&key.0].consensus.table.ledger;
        if ledger.outcome_of(&key.1).is_some() || ledger.may_have_finished(&key.1) {
            return self.send_concluded(from, key, (coordinator, round));
        }
        // The coordinator has decided, so the part was committed as prepared. Either another node leads by now, and this operation will
        // not be committed, or an operator has given up what a majority had.
        let (partition, id) = key;
        let bugs = vec![
            "its part in another partition was lost with a majority of that, which an operator gave up".to_owned(),
        ];
        let refusal = Box::new(Refusal { bugs, ..Refusal::default() });
        let promise = Promise { coordinator, round, asker: Some(from) };
        let coming = Coming { stage: Stage::Made, side: Side::Participant(promise), askers: Vec::new(), bytes: 0 };
        self.workflow.transactions.coming.insert(key, coming);
        self.append(partition, Op::Refuse { id, refusal }, Some(Waiting::Made { id }));
    }

    /// Drops a prepared part.
    fn abort_part(&mut self, key: TransactionKey) {
        let (partition, id) = key;
        let Some(Promise { round, .. }) = self.promise(&key) else { return };
        let dropped = self.workflow.transactions.remove(&key);
        let is_prepared = dropped.is_some_and(|coming| matches!(coming.stage, Stage::Prepared { .. }));
        assert!(is_prepared, "a part is dropped that is not prepared");
        self.append(partition, Op::Abort { id, round }, None);
        self.void_unlocked(partition);
    }

    /// The part is made, and that is committed: the coordinator need not know its decision any more.
    pub(crate) fn part_made(&mut self, key: TransactionKey) {
        let Some(Coming { stage: Stage::Made, .. }) = self.workflow.transactions.coming.get(&key) else { return };
        let promise = self.promise(&key).expect("only a part is made for another partition");
        if self.partitions[&key.0].consensus.table.ledger.outcome_of(&key.1).is_some_and(|outcome| outcome.is_err()) {
            self.outbox.observe(Observation::PartLost { partition: key.0.0, id: key.1 });
        }
        self.workflow.transactions.remove(&key);
        if let Some(asker) = promise.asker {
            self.send_concluded(asker, key, (promise.coordinator, promise.round));
        }
    }

    fn send_concluded(
        &mut self,
        to: NodeId,
        (partition, id): TransactionKey,
        (coordinator, round): (PartitionId, Round),
    ) {
        self.outbox.send(to, Workflow::Concluded { coordinator, partition, id, round });
    }
}

/// The vote for a part that cannot be prepared.
fn no(error: Error) -> Vote {
    let passes = error.passes();
    let error = Box::new(Error { cause: None, ..error });
    if passes { Vote::Busy(error) } else { Vote::Failed(error) }
}
