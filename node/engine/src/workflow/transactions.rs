//! Transactions: changes of several tasks at once, all of which are made, or none.
//!
//! All tasks of a transaction have the same tag, so one leader decides. It
//!
//! 1. reads the tasks that it names at a majority, and merges what these replicas know: every end, and every log entry, that was
//!    strictly acknowledged before;
//! 2. compares them with what was expected, and refuses the transaction with the differences; or else
//! 3. appends `Op::Decide`, with all changes of its tasks as facts. From then on no task that it changes is granted, prolonged, given
//!    back or completed through the leader, whichever node leads;
//! 4. once that is committed writes the facts to their replicas, all in one message and one record, as any node would;
//! 5. once a majority has them appends `Op::Made`, which ends the claims, and answers.
//!
//! A leader that finds a decided transaction in its table goes on at 4. So what is decided is made, and of any other nothing exists: no
//! fact is written before. A refusal at 2 is appended too, as `Op::Refuse`, and answered once that is committed: calls are repeated, by
//! several nodes at once, and a late copy must not make a transaction that a client knows as refused. Both outcomes are known by the id
//! of the call: a repeat gets the same answer, as long as that is remembered.
//!
//! Completions in queues of mode `any`, log entries and cancellations ask no leader: those that come after 1 count as later than the
//! transaction, as it was in progress. Readers may see some of the changes before others while the call is in progress, but none before
//! all of them are certain.

use super::judge::{Judge, Seen};
use crate::Node;
use crate::consensus::unwritten;
use crate::context::timers::Key;
use crate::payloads::loads::Then;
use crate::write_read::coordinate::Writer;
use crate::write_read::group::refused;
use crate::write_read::read::Reader;
use norn_model::claim_table::ledger::Decided;
use norn_model::claim_table::table::Op;
use norn_model::config::mutant;
use norn_model::consensus::Waiting;
use norn_model::limits::{LOAD_BYTES_MAX, SEALING_BYTES_MAX, TRANSACTING_MAX};
use norn_model::message::{Forwarding, Outcome};
use norn_model::task::{Content, Filling, Part, Task, Wanted, claim_end};
use norn_model::viewstamp::Epoch;
use norn_wire::error::{Error, ErrorCode};
use norn_wire::response::{Acked, ClaimOutcome};
use norn_wire::transaction::{Expected, Refusal};
use norn_wire::{Acks, NodeId, PartitionId, Request, Response, TaskId, Token, Transaction};
use serde_bytes::ByteBuf;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Pause before a failed write is tried again.
const WRITE_AGAIN_MS: u64 = 500;
const LOGS_TOO_LARGE: &str =
    "the logs and results of the tasks that it changes or expects have more than 32 MiB together; name fewer tasks";
const _: () = assert!(LOAD_BYTES_MAX == 32 << 20);

/// A node that asks for a transaction.
#[derive(Debug, Clone, Copy)]
struct Asker {
    node: NodeId,
    request_id: u64,
}

/// How far a transaction is.
#[derive(Debug)]
enum Stage {
    /// Its tasks are being read: those in `open` are not yet, `read` has the others.
    Reading { transaction: Box<Transaction>, open: BTreeSet<TaskId>, read: BTreeMap<TaskId, Seen> },
    /// It is in the table.
    Decided,
    /// It is refused in the table; the answer.
    Refused { response: Box<Response> },
    /// Its decision is committed. Its facts are being written, or are to be written again.
    Writing { under_way: bool },
}

/// A transaction in progress.
#[derive(Debug)]
struct Coming {
    stage: Stage,
    askers: Vec<Asker>,
    /// Bytes kept for it until it is in the table.
    bytes: usize,
}

/// What leaders know of transactions. All that is decided in the table of a partition that this node leads is in here.
#[derive(Debug, Default)]
pub struct Transactions {
    coming: BTreeMap<TaskId, Coming>,
    /// Sum over all of them.
    bytes: usize,
}

impl Transactions {
    /// Keeps more bytes for a transaction. Returns whether these fit: a single transaction always does.
    fn keep(&mut self, id: &TaskId, bytes: usize) -> bool {
        let Some(coming) = self.coming.get_mut(id) else { return false };
        assert!(self.bytes >= coming.bytes, "a transaction was not counted");
        let others = self.bytes - coming.bytes;
        coming.bytes += bytes;
        self.bytes += bytes;
        others == 0 || self.bytes <= SEALING_BYTES_MAX
    }

    /// Whether all tasks of a transaction have been read, and it is not decided. It may have been given up and asked for once more.
    fn is_read(&self, id: &TaskId) -> bool {
        let coming = self.coming.get(id);
        coming.is_some_and(|coming| matches!(&coming.stage, Stage::Reading { open, .. } if open.is_empty()))
    }

    /// Bytes that are kept, for tests.
    #[cfg(test)]
    pub fn kept_bytes(&self) -> usize {
        self.bytes
    }

    fn enter(&mut self, id: &TaskId, stage: Stage) {
        if let Some(coming) = self.coming.get_mut(id) {
            coming.stage = stage;
            assert!(self.bytes >= coming.bytes, "a transaction was not counted");
            self.bytes -= std::mem::take(&mut coming.bytes);
        }
    }

    fn remove(&mut self, id: &TaskId) -> Option<Coming> {
        let coming = self.coming.remove(id)?;
        assert!(self.bytes >= coming.bytes, "a transaction was not counted");
        self.bytes -= coming.bytes;
        Some(coming)
    }
}

impl Node {
    /// At the leader: handles a request for a transaction.
    pub(crate) fn on_transact(&mut self, from: NodeId, request_id: u64, transaction: Box<Transaction>) {
        let (asker, id) = (Asker { node: from, request_id }, transaction.id);
        let request = Request::Transact(transaction);
        let checked = request.check();
        let Request::Transact(transaction) = request else { return };
        if let Err(error) = checked.and_then(|()| self.take_transaction(asker, transaction)) {
            self.answer_transaction(asker, Response::Error(error.about(id)));
        }
    }

    fn take_transaction(&mut self, asker: Asker, transaction: Box<Transaction>) -> Result<(), Error> {
        let (id, partition) = (transaction.id, self.partition_of(&transaction.id));
        if !self.may_append(partition) {
            return Err(Error::unavailable("the partition's leader has moved; ask again"));
        }
        let ledger = &self.partitions[&partition].consensus.table.ledger;
        // A refusal in the table may not be committed yet.
        if let Some(outcome) = ledger.outcome_of(&id).filter(|_| !self.workflow.transactions.coming.contains_key(&id)) {
            self.answer_transaction(asker, Response::Transacted(outcome));
            return Ok(());
        }
        if ledger.may_have_finished(&id) {
            let message = "too many transactions came since this one was first asked for, so that it is not known whether it was \
                           made: look at its tasks, and make a new one if it was not";
            return Err(Error::new(ErrorCode::TooOld, message));
        }
        if let Some(coming) = self.workflow.transactions.coming.get_mut(&id) {
            coming.askers.retain(|other| other.node != asker.node);
            if coming.askers.len() < TRANSACTING_MAX {
                coming.askers.push(asker);
            }
            return Ok(());
        }
        // A transaction that never fits is refused for good, which is an operation.
        let room = self.check_capacity(transaction.adds.iter().map(|add| (&add.id, &add.spec)));
        room.or_else(|error| if error.passes() { Err(error) } else { Ok(()) })?;
        let bytes = transaction.size_bytes();
        if self.workflow.transactions.coming.len() >= TRANSACTING_MAX || !ledger.has_room(bytes) {
            return Err(overloaded());
        }
        let open: BTreeSet<TaskId> = transaction.named().collect();
        let stage = Stage::Reading { transaction, open: open.clone(), read: BTreeMap::new() };
        let before = self.workflow.transactions.coming.insert(id, Coming { stage, askers: vec![asker], bytes: 0 });
        assert!(before.is_none(), "a transaction is in progress twice");
        if !self.workflow.transactions.keep(&id, bytes) {
            self.workflow.transactions.remove(&id);
            return Err(overloaded());
        }
        if open.is_empty() {
            self.judge_transaction(id);
        }
        let timeout_ms = self.config.request_timeout_ms;
        open.into_iter().for_each(|task| self.read_for(Reader::Transaction(id), task, timeout_ms));
        Ok(())
    }

    /// A majority has answered with what it knows of a task; `epoch` is the latest of theirs.
    pub(crate) fn transaction_read(&mut self, id: TaskId, task: TaskId, read: Result<(&Task, Epoch), Error>) {
        let Some(Coming { stage: Stage::Reading { .. }, .. }) = self.workflow.transactions.coming.get(&id) else {
            return;
        };
        let (known, epoch) = match read {
            Ok(read) => read,
            Err(error) => return self.drop_transaction(id, Response::Error(error.about(id))),
        };
        let partition = self.partition_of(&id);
        let Some(replica) = self.partitions.get(&partition) else { return };
        if epoch > replica.consensus.viewstamp.epoch {
            let error = Error::unavailable("the partition's leader has moved; ask again");
            return self.drop_transaction(id, Response::Error(error.about(id)));
        }
        // A task that may have been forgotten here does not exist.
        if !replica.may_have_forgotten(&task) && !mutant!(self.config, TransactionUnasked) {
            self.merge(partition, vec![(task, known.clone())]);
        }
        let Some(Coming { stage: Stage::Reading { transaction, open, read }, .. }) =
            self.workflow.transactions.coming.get_mut(&id)
        else {
            return;
        };
        let (mut kept, done) = (0, open.remove(&task) && open.is_empty());
        if let Some(spec) = &known.spec {
            let changes = transaction.changes.iter().any(|change| change.id == task);
            let seen = Seen { hash: Content::hash(spec), spec: changes.then(|| spec.clone()) };
            kept = seen.spec.as_ref().map_or(0, Content::size_bytes);
            read.insert(task, seen);
        }
        if !self.workflow.transactions.keep(&id, kept) {
            self.drop_transaction(id, Response::Error(overloaded().about(id)));
        } else if done {
            self.judge_transaction(id);
        }
    }

    /// All named tasks are merged. Parts of their logs and results that are not in memory are loaded first, as versions depend on them.
    fn judge_transaction(&mut self, id: TaskId) {
        self.judge_with(id, BTreeMap::new());
    }

    /// The log has returned the parts on which versions depend.
    pub(crate) fn loaded_for_transaction(
        &mut self,
        id: TaskId,
        mut loaded: BTreeMap<Part, ByteBuf>,
        found: impl Iterator<Item = (Wanted, Option<Filling>)>,
    ) {
        if !self.workflow.transactions.is_read(&id) {
            return;
        }
        for (wanted, filling) in found {
            let Some(Filling::Bytes(bytes)) = filling else {
                let error = Error::unavailable("a part of the task could not be read; ask again").about(wanted.id);
                return self.drop_transaction(id, Response::Error(error));
            };
            loaded.insert((wanted.id, wanted.slot, wanted.hash), bytes);
        }
        self.judge_with(id, loaded);
    }

    fn judge_with(&mut self, id: TaskId, loaded: BTreeMap<Part, ByteBuf>) {
        assert!(self.workflow.transactions.is_read(&id), "a transaction is judged before its tasks are read");
        let partition = self.partition_of(&id);
        let Some(Coming { stage: Stage::Reading { transaction, read, .. }, .. }) =
            self.workflow.transactions.coming.get(&id)
        else {
            return;
        };
        if !self.may_append(partition) {
            let error = Error::unavailable("the partition has no leader");
            return self.drop_transaction(id, Response::Error(error.about(id)));
        }
        let store = &self.partitions[&partition].store;
        let weighed = weighed(transaction);
        if let Some(task) = weighed.iter().find(|task| store.rival_of(task).is_some()) {
            let error = Error::unavailable("two values of a part of the task are being compared; ask again");
            let error = error.about(*task);
            return self.drop_transaction(id, Response::Error(error));
        }
        let weighed = weighed.into_iter().filter_map(|id| Some((id, store.task(&id)?)));
        let away = weighed.flat_map(|(id, task)| task.blobs_wanted(id));
        let wanted: Vec<Wanted> = away.filter(|it| !loaded.contains_key(&(it.id, it.slot, it.hash))).collect();
        let loaded_bytes: usize = loaded.values().map(|bytes| bytes.len()).sum();
        if wanted.iter().map(|wanted| wanted.bytes as usize).sum::<usize>() + loaded_bytes > LOAD_BYTES_MAX {
            let error = Error::new(ErrorCode::Invalid, LOGS_TOO_LARGE);
            return self.drop_transaction(id, Response::Error(error.about(id)));
        }
        if !wanted.is_empty() {
            return self.load(Then::Judge { id, loaded }, wanted);
        }
        let consensus = &self.partitions[&partition].consensus;
        let at = Token { epoch: consensus.viewstamp.epoch, number: consensus.viewstamp.length + 1 };
        let judged = self.admit_additions(partition, transaction).and_then(|bugs| {
            let at_ms = transaction.at_ms;
            let end = Some(claim_end(ClaimOutcome::Released, at_ms, ""));
            Judge { config: &self.config, replica: &self.partitions[&partition], read, loaded: &loaded, at, at_ms, end }
                .judge(transaction, bugs)
        });
        let ledger = &self.partitions[&partition].consensus.table.ledger;
        match judged {
            // Other transactions were decided while its tasks were read.
            Ok(Ok(decided)) if !ledger.has_room(decided.size_bytes()) => {
                self.drop_transaction(id, Response::Error(overloaded().about(id)));
            }
            Err(error) if error.passes() => self.drop_transaction(id, Response::Error(error.about(id))),
            Err(error) => {
                let refusal = Refusal { bugs: vec![error.message.clone()], ..Refusal::default() };
                self.refuse_transaction(id, Box::new(refusal), Response::Error(error.about(id)));
            }
            Ok(Err(refusal)) => {
                self.refuse_transaction(id, refusal.clone(), Response::Transacted(Err(refusal)));
            }
            Ok(Ok(decided)) => self.decide_transaction(id, decided),
        }
    }

    /// Whether tasks with these ids may be added and their queues have capacity for them; returns those that exist already. Only for a
    /// transaction that is known to be new: one that was made may have filled its queue.
    fn admit_additions(&self, partition: PartitionId, transaction: &Transaction) -> Result<Vec<String>, Error> {
        self.check_capacity(transaction.adds.iter().map(|add| (&add.id, &add.spec)))?;
        let mut bugs = Vec::new();
        for add in &transaction.adds {
            let replica = &self.partitions[&partition];
            if replica.store.knows(&add.id) {
                bugs.push(format!("there is a task {} already", add.id));
            } else if replica.may_have_forgotten(&add.id) {
                return Err(refused(Outcome::TooOld, true).about(add.id));
            } else {
                let spec = Arc::new(add.spec.clone());
                self.admit_unique(partition, add.id, &spec).map_err(|error| error.about(add.id))?;
            }
        }
        Ok(bugs)
    }

    fn decide_transaction(&mut self, id: TaskId, decided: Decided) {
        let partition = self.partition_of(&id);
        self.workflow.transactions.enter(&id, Stage::Decided);
        let decided = Arc::new(decided);
        self.append(partition, Op::Decide { id, decided }, Some(Waiting::Decide { id }));
    }

    fn refuse_transaction(&mut self, id: TaskId, refusal: Box<Refusal>, response: Response) {
        if mutant!(self.config, RefusalForgotten) {
            return self.drop_transaction(id, response);
        }
        self.workflow.transactions.enter(&id, Stage::Refused { response: Box::new(response) });
        self.append(self.partition_of(&id), Op::Refuse { id, refusal }, Some(Waiting::Refuse { id }));
    }

    /// The refusal is committed, so no leader can make the transaction any more.
    pub(crate) fn transaction_refused(&mut self, id: TaskId) {
        let Some(Coming { stage: Stage::Refused { response }, .. }) = self.workflow.transactions.coming.get(&id) else {
            return;
        };
        let response = response.as_ref().clone();
        self.drop_transaction(id, response);
    }

    /// The decision is committed, so no leader can ignore it any more: now it may become facts.
    pub(crate) fn transaction_decided(&mut self, id: TaskId) {
        self.workflow.transactions.enter(&id, Stage::Writing { under_way: false });
        self.write_transaction(id);
    }

    fn write_transaction(&mut self, id: TaskId) {
        let partition = self.partition_of(&id);
        let Some(decided) = self.partitions[&partition].consensus.table.ledger.decided().get(&id).cloned() else {
            return;
        };
        self.workflow.transactions.enter(&id, Stage::Writing { under_way: true });
        self.write_for(Writer::Transaction(id), decided.facts.clone(), (Acks::Quorum, false));
    }

    /// The decided facts are on the disks of a majority, or are not yet.
    pub(crate) fn transaction_written(&mut self, id: TaskId, results: &[Result<Acked, Error>]) {
        let partition = self.partition_of(&id);
        let may_append = self.may_append(partition);
        let Some(Coming { stage: stage @ Stage::Writing { .. }, .. }) = self.workflow.transactions.coming.get_mut(&id)
        else {
            // Of an earlier leadership.
            return;
        };
        // An id that is from the future by some clock is a passing refusal too. A final refusal means that other clients have used an
        // id for something else meanwhile.
        let passes = |error: &Error| error.passes() || error.code == ErrorCode::IdFromFuture;
        let again = results.iter().any(|result| result.as_ref().is_err_and(passes));
        if again || !may_append {
            *stage = Stage::Writing { under_way: false };
            self.timers.set_earliest(Key::Drop(partition), self.after_ms(WRITE_AGAIN_MS));
            return self.tell_full(id, results);
        }
        self.append(partition, Op::Made { id }, None);
        if let Some(outcome) = self.partitions[&partition].consensus.table.ledger.outcome_of(&id) {
            self.drop_transaction(id, Response::Transacted(outcome));
        }
    }

    /// Answers the askers of a transaction for which disks have no space, so that they do not wait until there is some.
    fn tell_full(&mut self, id: TaskId, results: &[Result<Acked, Error>]) {
        let errors = results.iter().filter_map(|result| result.as_ref().err());
        let mut errors = errors.map(|error| unwritten(error, "it is decided, and could not be written yet").about(id));
        let Some(error) = errors.find(|error| error.code == ErrorCode::Unknown) else { return };
        let Some(coming) = self.workflow.transactions.coming.get_mut(&id) else { return };
        let askers = std::mem::take(&mut coming.askers);
        askers.into_iter().for_each(|asker| self.answer_transaction(asker, Response::Error(error.clone())));
    }

    /// A new leader goes on with decided transactions.
    pub(crate) fn inherit_transactions(&mut self, partition: PartitionId) {
        let decided = self.partitions[&partition].consensus.table.ledger.decided().keys().copied();
        for id in decided.collect::<Vec<_>>() {
            let coming = Coming { stage: Stage::Writing { under_way: false }, askers: Vec::new(), bytes: 0 };
            self.workflow.transactions.coming.insert(id, coming);
            self.write_transaction(id);
        }
    }

    /// Writes again what could not be written.
    pub(crate) fn settle_transactions(&mut self, partition: PartitionId) {
        let idle = |coming: &Coming| matches!(coming.stage, Stage::Writing { under_way: false });
        let decided = self.partitions[&partition].consensus.table.ledger.decided().keys();
        let is_idle = |id: &&TaskId| self.workflow.transactions.coming.get(id).is_some_and(idle);
        for id in decided.filter(is_idle).copied().collect::<Vec<_>>() {
            self.write_transaction(id);
        }
    }

    /// The leader steps down: the outcomes are unknown yet.
    pub(crate) fn forget_transactions_of(&mut self, partition: PartitionId) {
        let here = |id: &&TaskId| self.partition_of(id) == partition;
        for id in self.workflow.transactions.coming.keys().filter(here).copied().collect::<Vec<_>>() {
            let error = Error::unavailable("the partition's leader has moved; ask again");
            self.drop_transaction(id, Response::Error(error.about(id)));
        }
    }

    fn drop_transaction(&mut self, id: TaskId, response: Response) {
        let Some(coming) = self.workflow.transactions.remove(&id) else { return };
        coming.askers.into_iter().for_each(|asker| self.answer_transaction(asker, response.clone()));
    }

    fn answer_transaction(&mut self, asker: Asker, response: Response) {
        self.outbox
            .send(asker.node, Forwarding::Forwarded { request_id: asker.request_id, response: Box::new(response) });
    }
}

/// Tasks whose versions are expected or reported.
fn weighed(transaction: &Transaction) -> BTreeSet<TaskId> {
    let of_version = |expected: Expected| matches!(expected, Expected::Version(_));
    let deletes = transaction.deletes.iter().filter(|delete| of_version(delete.expected)).map(|delete| delete.id);
    let depends = transaction.depends.iter().filter(|depend| of_version(depend.expected)).map(|depend| depend.id);
    transaction.changes.iter().map(|change| change.id).chain(deletes).chain(depends).collect()
}

fn overloaded() -> Error {
    Error::new(ErrorCode::Overloaded, "too many transactions are under way; ask again")
}
