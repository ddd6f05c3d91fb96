//! From the decision to the facts: what is decided is made, whichever node leads.

use super::participant::Promise;
use super::{Coming, Side, Stage, Write};
use crate::Node;
use crate::consensus::unwritten;
use crate::context::timers::Key;
use crate::workflow::transactions::coordinator::Gathering;
use crate::write_read::coordinate::Writer;
use norn_model::claim_table::ledger::{Decided, TransactionKey};
use norn_model::claim_table::table::Op;
use norn_model::config::mutant;
use norn_model::consensus::Waiting;
use norn_wire::error::{Error, ErrorCode};
use norn_wire::response::Acked;
use norn_wire::transaction::Refusal;
use norn_wire::{Acks, PartitionId, Response, TaskId};
use std::sync::Arc;

/// Pause before a failed write is tried again.
const WRITE_AGAIN_MS: u64 = 500;

impl Node {
    /// All is as expected: the transaction is made, unless the leader steps down before this is committed.
    pub(super) fn decide_transaction(&mut self, key: TransactionKey, decided: Decided) {
        let (partition, id) = key;
        let decided = Arc::new(decided);
        let op = match self.workflow.transactions.coming.get_mut(&key).map(|coming| &mut coming.side) {
            Some(Side::Coordinator(gathering)) => Op::DecideAcross { id, decided, spread: gathering.decide() },
            _ => Op::Decide { id, decided },
        };
        self.workflow.transactions.enter(&key, Stage::Decided);
        self.append(partition, op, Some(Waiting::Decide { id }));
    }

    pub(super) fn refuse_transaction(&mut self, key: TransactionKey, refusal: Box<Refusal>, response: Response) {
        if mutant!(self.config, RefusalForgotten) {
            return self.drop_transaction(key, response);
        }
        self.give_up_round(key);
        let (partition, id) = key;
        self.workflow.transactions.enter(&key, Stage::Refused { response: Box::new(response) });
        self.append(partition, Op::Refuse { id, refusal }, Some(Waiting::Refuse { id }));
    }

    /// The refusal is committed, so no leader can make the transaction any more.
    pub(crate) fn transaction_refused(&mut self, key: TransactionKey) {
        let Some(Coming { stage: Stage::Refused { response }, .. }) = self.workflow.transactions.coming.get(&key)
        else {
            return;
        };
        let response = response.as_ref().clone();
        self.drop_transaction(key, response);
    }

    /// The decision is committed, so no leader can ignore it any more: now it may become facts, in all partitions.
    pub(crate) fn transaction_decided(&mut self, key: TransactionKey) {
        self.write_transaction(key);
        self.conclude_open(key);
    }

    /// Writes the effects in a partition as facts. Their decision is committed.
    pub(super) fn write_transaction(&mut self, key: TransactionKey) {
        let (partition, id) = key;
        let Some(decided) = self.partitions[&partition].consensus.table.ledger.effects_of(&id).cloned() else {
            return;
        };
        self.workflow.transactions.enter(&key, Stage::Writing { write: Write::UnderWay });
        if decided.facts.is_empty() {
            // A part that others depend on, and that changes nothing.
            return self.transaction_written(key, &[]);
        }
        self.write_for(Writer::Transaction(key), decided.facts.clone(), (Acks::Quorum, false));
    }

    /// The decided facts are on the disks of a majority, or are not yet.
    pub(crate) fn transaction_written(&mut self, key: TransactionKey, results: &[Result<Acked, Error>]) {
        let partition = key.0;
        let may_append = self.may_append(partition);
        let Some(Coming { stage: Stage::Writing { write }, .. }) = self.workflow.transactions.coming.get_mut(&key)
        else {
            // Of an earlier leadership.
            return;
        };
        // An id that is from the future by some clock is a passing refusal too. A final refusal means that other clients have used an
        // id for something else meanwhile.
        let passes = |error: &Error| error.passes() || error.code == ErrorCode::IdFromFuture;
        let again = results.iter().any(|result| result.as_ref().is_err_and(passes));
        if again || !may_append {
            *write = Write::PutOff;
            self.timers.set_earliest(Key::Drop(partition), self.after_ms(WRITE_AGAIN_MS));
            return self.tell_full(key, results);
        }
        *write = Write::Done;
        self.end_transaction(key);
    }

    /// Ends a transaction in a partition once its facts are written there, and at the coordinator once all other partitions have made
    /// their parts.
    pub(super) fn end_transaction(&mut self, key: TransactionKey) {
        let (partition, id) = key;
        let Some(Coming { stage: Stage::Writing { write: Write::Done }, side, .. }) =
            self.workflow.transactions.coming.get(&key)
        else {
            return;
        };
        match side {
            Side::Coordinator(gathering) if !gathering.is_made() => return,
            Side::Participant(_) => {
                self.workflow.transactions.enter(&key, Stage::Made);
                self.append(partition, Op::Made { id }, Some(Waiting::Made { id }));
                return self.void_unlocked(partition);
            }
            Side::Coordinator(_) | Side::Alone => {}
        }
        if !self.may_append(partition) {
            return self.put_off_write(key);
        }
        self.append(partition, Op::Made { id }, None);
        self.void_unlocked(partition);
        if let Some(outcome) = self.partitions[&partition].consensus.table.ledger.outcome_of(&id) {
            self.drop_transaction(key, Response::Transacted(outcome));
        }
    }

    fn put_off_write(&mut self, key: TransactionKey) {
        self.workflow.transactions.enter(&key, Stage::Writing { write: Write::PutOff });
        self.timers.set_earliest(Key::Drop(key.0), self.after_ms(WRITE_AGAIN_MS));
    }

    /// Answers the askers of a transaction for which disks have no space, so that they do not wait until there is some.
    fn tell_full(&mut self, key: TransactionKey, results: &[Result<Acked, Error>]) {
        let errors = results.iter().filter_map(|result| result.as_ref().err());
        let mut errors =
            errors.map(|error| unwritten(error, "it is decided, and could not be written yet").about(key.1));
        let Some(error) = errors.find(|error| error.code == ErrorCode::Unknown) else { return };
        let Some(coming) = self.workflow.transactions.coming.get_mut(&key) else { return };
        let askers = std::mem::take(&mut coming.askers);
        askers.into_iter().for_each(|asker| self.answer_transaction(asker, Response::Error(error.clone())));
    }

    /// A new leader goes on with decided transactions, and asks for the outcomes of those that other partitions decide.
    pub(crate) fn inherit_transactions(&mut self, partition: PartitionId) {
        let ledger = &self.partitions[&partition].consensus.table.ledger;
        let side = |id: &TaskId| match ledger.spreads().get(id) {
            Some(spread) => Side::Coordinator(Box::new(Gathering::decided(spread))),
            None => Side::Alone,
        };
        let decided = ledger.decided().keys().map(|id| (*id, side(id), Stage::Writing { write: Write::PutOff }));
        let prepared = ledger.prepared().iter().map(|(id, prepared)| {
            let promise = Promise { coordinator: prepared.coordinator, round: prepared.round, asker: None };
            (*id, Side::Participant(promise), Stage::Prepared { committed: true })
        });
        for (id, side, stage) in decided.chain(prepared).collect::<Vec<_>>() {
            let (key, is_decided) = ((partition, id), matches!(stage, Stage::Writing { .. }));
            let coming = Coming { stage, side, askers: Vec::new(), bytes: 0 };
            assert!(!self.workflow.transactions.coming.contains_key(&key), "a new leader knows a transaction already");
            self.workflow.transactions.coming.insert(key, coming);
            if is_decided {
                self.transaction_decided(key);
            } else {
                self.ask_for_outcome(key);
            }
        }
    }

    /// Writes again what could not be written.
    pub(crate) fn settle_transactions(&mut self, partition: PartitionId) {
        let idle = |coming: &Coming| matches!(coming.stage, Stage::Writing { write: Write::PutOff });
        let ledger = &self.partitions[&partition].consensus.table.ledger;
        let ids = ledger.decided().keys().chain(ledger.prepared().keys());
        let keys = ids.map(|id| (partition, *id));
        let is_idle = |key: &TransactionKey| self.workflow.transactions.coming.get(key).is_some_and(idle);
        for key in keys.filter(is_idle).collect::<Vec<_>>() {
            self.write_transaction(key);
        }
    }
}
