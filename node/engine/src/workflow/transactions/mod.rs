//! Transactions: changes of several tasks at once, all of which are made, or none.
//!
//! Where all tasks of a transaction lie in one partition, its leader decides alone. It
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
//! Where the tasks lie in several partitions, the highest of these is the coordinator, and its leader decides as above once the leaders
//! of the others have prepared their parts ([`coordinator`], [`participant`]): presumed-abort two-phase commit (Mohan, Lindsay and
//! Obermarck, 1986) over replicated tables, so that no single node can block it.
//!
//! Completions in queues of mode `any`, log entries and cancellations ask no leader: those that come after 1 count as later than the
//! transaction, as it was in progress. Readers may see some of the changes before others while the call is in progress, but none before
//! all of them are certain.

pub mod coordinator;
pub mod judge;
mod making;
pub mod participant;

use self::coordinator::Gathering;
use self::judge::{Judge, Seen};
use self::participant::Promise;
use crate::Node;
use crate::context::timers::Key;
use crate::payloads::loads::Then;
use crate::write_read::group::refused;
use crate::write_read::read::Reader;
use norn_model::claim_table::ledger::{Decided, TransactionKey};
use norn_model::claim_table::table::ClaimState;
use norn_model::config::mutant;
use norn_model::limits::{LOAD_BYTES_MAX, SEALING_BYTES_MAX, TRANSACTING_MAX};
use norn_model::message::{Forwarding, Outcome};
use norn_model::task::{Content, Filling, Part, Task, Wanted, claim_end};
use norn_model::viewstamp::Epoch;
use norn_wire::error::{Error, ErrorCode};
use norn_wire::response::ClaimOutcome;
use norn_wire::transaction::{Expected, Refusal};
use norn_wire::{NodeId, PartitionId, Request, Response, TaskId, Token, Transaction, Versions};
use serde_bytes::ByteBuf;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const LOGS_TOO_LARGE: &str =
    "the logs and results of the tasks that it changes or expects have more than 32 MiB together; name fewer tasks";
const _: () = assert!(LOAD_BYTES_MAX == 32 << 20);

/// A node that asks for a transaction.
#[derive(Debug, Clone, Copy)]
struct Asker {
    node: NodeId,
    request_id: u64,
}

/// How far a transaction is in a partition.
#[derive(Debug)]
enum Stage {
    /// Its tasks are being read: those in `open` are not yet, `read` has the others. `transaction` is the part of this partition.
    Reading { transaction: Box<Transaction>, open: BTreeSet<TaskId>, read: BTreeMap<TaskId, Seen> },
    /// Its decision is in the table.
    Decided,
    /// As a participant: it is prepared in the table, which is committed or not yet.
    Prepared { committed: bool },
    /// It is refused in the table; the answer.
    Refused { response: Box<Response> },
    /// Its decision is committed. Its facts are being written, or are to be written again, or are written.
    Writing { write: Write },
    /// As a participant: its completion is in the table, and not committed yet.
    Made,
}

/// Writing of the facts of a decided transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Write {
    /// Replicas are asked.
    UnderWay,
    /// A majority could not write them; they are written again some time later.
    PutOff,
    /// A majority has them.
    Done,
}

/// What this partition is to a transaction.
#[derive(Debug)]
enum Side {
    /// All its tasks lie here.
    Alone,
    /// It decides for other partitions, too.
    Coordinator(Box<Gathering>),
    /// Another partition decides.
    Participant(Promise),
}

/// A transaction in progress.
#[derive(Debug)]
struct Coming {
    stage: Stage,
    side: Side,
    askers: Vec<Asker>,
    /// Bytes kept for it until it is in the table.
    bytes: usize,
}

/// What leaders know of transactions. All that is decided in the table of a partition that this node leads is in here.
#[derive(Debug, Default)]
pub struct Transactions {
    coming: BTreeMap<TransactionKey, Coming>,
    /// Sum over all of them.
    bytes: usize,
}

impl Transactions {
    /// Keeps more bytes for a transaction. Returns whether these fit: a single transaction always does.
    fn keep(&mut self, key: &TransactionKey, bytes: usize) -> bool {
        let Some(coming) = self.coming.get_mut(key) else { return false };
        assert!(self.bytes >= coming.bytes, "a transaction was not counted");
        let others = self.bytes - coming.bytes;
        coming.bytes += bytes;
        self.bytes += bytes;
        others == 0 || self.bytes <= SEALING_BYTES_MAX
    }

    /// Whether all tasks of a transaction have been read, and it is not decided. It may have been given up and asked for once more.
    fn is_read(&self, key: &TransactionKey) -> bool {
        let coming = self.coming.get(key);
        coming.is_some_and(|coming| matches!(&coming.stage, Stage::Reading { open, .. } if open.is_empty()))
    }

    /// Bytes that are kept, for tests.
    #[cfg(test)]
    pub fn kept_bytes(&self) -> usize {
        self.bytes
    }

    fn enter(&mut self, key: &TransactionKey, stage: Stage) {
        if let Some(coming) = self.coming.get_mut(key) {
            coming.stage = stage;
            assert!(self.bytes >= coming.bytes, "a transaction was not counted");
            self.bytes -= std::mem::take(&mut coming.bytes);
        }
    }

    /// Has the tasks of a transaction read once more.
    fn read_again(&mut self, key: &TransactionKey) {
        let Some(Coming { stage: Stage::Reading { transaction, open, read }, bytes, .. }) = self.coming.get_mut(key)
        else {
            return;
        };
        let kept: usize = read.values().map(Seen::bytes).sum();
        assert!(*bytes >= kept && self.bytes >= kept, "a task that was read was not counted");
        *bytes -= kept;
        self.bytes -= kept;
        read.clear();
        *open = transaction.named().collect();
    }

    fn remove(&mut self, key: &TransactionKey) -> Option<Coming> {
        let coming = self.coming.remove(key)?;
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
        let key = (self.decider_of(&transaction), transaction.id);
        if !self.may_append(key.0) {
            return Err(Error::unavailable("the partition's leader has moved; ask again"));
        }
        // A refusal in the table may not be committed yet, so what is in progress comes first.
        if let Some(coming) = self.workflow.transactions.coming.get_mut(&key) {
            if matches!(coming.side, Side::Participant(_)) {
                return Err(Error::new(ErrorCode::Conflict, "another transaction has this id; mint a new one"));
            }
            coming.askers.retain(|other| other.node != asker.node);
            if coming.askers.len() < TRANSACTING_MAX {
                coming.askers.push(asker);
            }
            return Ok(());
        }
        let ledger = &self.partitions[&key.0].consensus.table.ledger;
        if let Some(outcome) = ledger.outcome_of(&key.1) {
            self.answer_transaction(asker, Response::Transacted(outcome));
            return Ok(());
        }
        if ledger.may_have_finished(&key.1) {
            return Err(too_late());
        }
        // A transaction that never fits is refused for good, which is an operation.
        let room = self.check_capacity(transaction.adds.iter().map(|add| (&add.id, &add.spec)));
        room.or_else(|error| if error.passes() { Err(error) } else { Ok(()) })?;
        let (bytes, (part, side)) = (transaction.size_bytes(), self.divide(key.0, *transaction)?);
        self.begin_reading(key, (Box::new(part), bytes), side, vec![asker])?;
        self.begin_round(key);
        self.read_tasks_of(key);
        Ok(())
    }

    /// Enters a transaction whose tasks are to be read next.
    fn begin_reading(
        &mut self,
        key: TransactionKey,
        (part, bytes): (Box<Transaction>, usize),
        side: Side,
        askers: Vec<Asker>,
    ) -> Result<(), Error> {
        let ledger = &self.partitions[&key.0].consensus.table.ledger;
        if self.workflow.transactions.coming.len() >= TRANSACTING_MAX || !ledger.has_room(bytes) {
            return Err(overloaded());
        }
        let open: BTreeSet<TaskId> = part.named().collect();
        let stage = Stage::Reading { transaction: part, open, read: BTreeMap::new() };
        assert!(self.partitions[&key.0].consensus.established(), "a transaction begins where no leader is");
        let before = self.workflow.transactions.coming.insert(key, Coming { stage, side, askers, bytes: 0 });
        assert!(before.is_none(), "a transaction is in progress twice");
        if !self.workflow.transactions.keep(&key, bytes) {
            self.workflow.transactions.remove(&key);
            return Err(overloaded());
        }
        Ok(())
    }

    /// Reads the tasks that a transaction names here.
    fn read_tasks_of(&mut self, key: TransactionKey) {
        let Some(Coming { stage: Stage::Reading { open, .. }, .. }) = self.workflow.transactions.coming.get(&key)
        else {
            return;
        };
        let open = open.clone();
        if open.is_empty() {
            self.judge_transaction(key);
        }
        let timeout_ms = self.config.request_timeout_ms;
        open.into_iter().for_each(|task| self.read_for(Reader::Transaction(key), task, timeout_ms));
    }

    /// A majority has answered with what it knows of a task; `epoch` is the latest of theirs.
    pub(crate) fn transaction_read(&mut self, key: TransactionKey, task: TaskId, read: Result<(&Task, Epoch), Error>) {
        let Some(Coming { stage: Stage::Reading { .. }, .. }) = self.workflow.transactions.coming.get(&key) else {
            return;
        };
        let (known, epoch) = match read {
            Ok(read) => read,
            Err(error) => return self.fail_transaction(key, error),
        };
        let Some(replica) = self.partitions.get(&key.0) else { return };
        if epoch > replica.consensus.viewstamp.epoch {
            return self.fail_transaction(key, Error::unavailable("the partition's leader has moved; ask again"));
        }
        // A task that may have been forgotten here does not exist.
        if !replica.may_have_forgotten(&task) && !mutant!(self.config, TransactionUnasked) {
            self.merge(key.0, vec![(task, known.clone())]);
        }
        let Some(Coming { stage: Stage::Reading { transaction, open, read }, .. }) =
            self.workflow.transactions.coming.get_mut(&key)
        else {
            return;
        };
        let (mut kept, done) = (0, open.remove(&task) && open.is_empty());
        if let Some(spec) = &known.spec {
            let changes = transaction.changes.iter().any(|change| change.id == task);
            let seen = Seen { hash: Content::hash(spec), spec: changes.then(|| spec.clone()) };
            kept = seen.bytes();
            read.insert(task, seen);
        }
        if !self.workflow.transactions.keep(&key, kept) {
            self.fail_transaction(key, overloaded());
        } else if done {
            self.judge_transaction(key);
        }
    }

    /// Judges the tasks once all that are named are merged and all other partitions have voted. Parts of their logs and results that are
    /// not in memory are loaded first, as versions depend on them.
    fn judge_transaction(&mut self, key: TransactionKey) {
        if self.workflow.transactions.is_read(&key) && self.all_have_voted(&key) {
            self.judge_with(key, BTreeMap::new());
        }
    }

    /// The log has returned the parts on which versions depend.
    pub(crate) fn loaded_for_transaction(
        &mut self,
        key: TransactionKey,
        mut loaded: BTreeMap<Part, ByteBuf>,
        found: impl Iterator<Item = (Wanted, Option<Filling>)>,
    ) {
        if !self.workflow.transactions.is_read(&key) || !self.all_have_voted(&key) {
            return;
        }
        for (wanted, filling) in found {
            let Some(Filling::Bytes(bytes)) = filling else {
                let error = Error::unavailable("a part of the task could not be read; ask again").about(wanted.id);
                return self.fail_transaction(key, error);
            };
            loaded.insert((wanted.id, wanted.slot, wanted.hash), bytes);
        }
        self.judge_with(key, loaded);
    }

    fn judge_with(&mut self, key: TransactionKey, loaded: BTreeMap<Part, ByteBuf>) {
        assert!(self.workflow.transactions.is_read(&key), "a transaction is judged before its tasks are read");
        let partition = key.0;
        let Some(Coming { stage: Stage::Reading { transaction, read, .. }, .. }) =
            self.workflow.transactions.coming.get(&key)
        else {
            return;
        };
        if !self.may_append(partition) {
            return self.fail_transaction(key, Error::unavailable("the partition has no leader"));
        }
        let store = &self.partitions[&partition].store;
        let weighed = weighed(transaction);
        if let Some(task) = weighed.iter().find(|task| store.rival_of(task).is_some()) {
            let error = Error::unavailable("two values of a part of the task are being compared; ask again");
            let error = error.about(*task);
            return self.fail_transaction(key, error);
        }
        let granted = transaction.named().find(|task| self.is_being_granted(partition, task));
        if let Some(task) = granted {
            let error = Error::unavailable("the task is just being granted; ask again").about(task);
            return self.fail_transaction(key, error);
        }
        let weighed = weighed.into_iter().filter_map(|id| Some((id, store.task(&id)?)));
        let away = weighed.flat_map(|(id, task)| task.blobs_wanted(id));
        let wanted: Vec<Wanted> = away.filter(|it| !loaded.contains_key(&(it.id, it.slot, it.hash))).collect();
        let loaded_bytes: usize = loaded.values().map(|bytes| bytes.len()).sum();
        if wanted.iter().map(|wanted| wanted.bytes as usize).sum::<usize>() + loaded_bytes > LOAD_BYTES_MAX {
            return self.fail_transaction(key, Error::new(ErrorCode::Invalid, LOGS_TOO_LARGE));
        }
        if !wanted.is_empty() {
            return self.load(Then::Judge { key, loaded }, wanted);
        }
        let consensus = &self.partitions[&partition].consensus;
        let at = Token { epoch: consensus.viewstamp.epoch, number: consensus.viewstamp.length + 1 };
        // Where other partitions take part, this was checked before.
        let is_alone = matches!(self.workflow.transactions.coming[&key].side, Side::Alone);
        let logs_depends = !is_alone || self.everyone_speaks(Versions::ACROSS);
        let judged = self.admit_additions(partition, transaction).and_then(|bugs| {
            let at_ms = transaction.at_ms;
            let end = Some(claim_end(ClaimOutcome::Released, at_ms, ""));
            let replica = &self.partitions[&partition];
            Judge { config: &self.config, replica, read, loaded: &loaded, at, at_ms, end, logs_depends }
                .judge(transaction, bugs)
        });
        let ledger = &self.partitions[&partition].consensus.table.ledger;
        let judged = judged.and_then(|judged| match judged {
            // Other transactions were decided while its tasks were read.
            Ok(decided) if !ledger.has_room(decided.size_bytes()) => Err(overloaded()),
            judged => Ok(judged),
        });
        match self.workflow.transactions.coming.get(&key).map(|coming| &coming.side) {
            Some(Side::Alone) => self.judged_alone(key, judged),
            Some(Side::Coordinator(_)) => self.judged_by_coordinator(key, judged),
            Some(Side::Participant(_)) => self.judged_by_participant(key, judged),
            None => {}
        }
    }

    /// Whether a grant of the task may still be taken back by its leader, so that it was never made.
    fn is_being_granted(&self, partition: PartitionId, id: &TaskId) -> bool {
        let entry = self.partitions[&partition].consensus.claim_entry(id);
        let held = entry.filter(|entry| entry.state == ClaimState::Held);
        held.is_some_and(|entry| self.is_unreported(partition, &(*id, entry.token)))
    }

    fn judged_alone(&mut self, key: TransactionKey, judged: Judged) {
        match judged {
            Err(error) if error.passes() => self.drop_transaction(key, Response::Error(error.about(key.1))),
            Err(error) => {
                let refusal = Refusal { bugs: vec![error.message.clone()], ..Refusal::default() };
                self.refuse_transaction(key, Box::new(refusal), Response::Error(error.about(key.1)));
            }
            Ok(Err(refusal)) => self.refuse_transaction(key, refusal.clone(), Response::Transacted(Err(refusal))),
            Ok(Ok(decided)) => self.decide_transaction(key, decided),
        }
    }

    /// Whether tasks with these ids may be added and their queues have capacity for them; returns those that exist already. Only for a
    /// transaction that is known to be new: one that was made may have filled its queue.
    fn admit_additions(&self, partition: PartitionId, transaction: &Transaction) -> Result<Vec<String>, Error> {
        self.check_capacity(transaction.adds.iter().map(|add| (&add.id, &add.spec)))?;
        let mut bugs = Vec::new();
        for add in &transaction.adds {
            let replica = &self.partitions[&partition];
            if replica.consensus.table.ledger.is_adding(&add.id) {
                let error = Error::unavailable("another transaction adds a task with the same id; ask again");
                return Err(error.about(add.id));
            }
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

    /// A transaction cannot be judged now, or never: its requester learns of it.
    fn fail_transaction(&mut self, key: TransactionKey, error: Error) {
        match self.workflow.transactions.coming.get(&key).map(|coming| &coming.side) {
            Some(Side::Alone) => self.drop_transaction(key, Response::Error(error.about(key.1))),
            Some(Side::Coordinator(_)) if error.passes() => self.put_off_round(key, error),
            Some(Side::Coordinator(_)) => self.drop_transaction(key, Response::Error(error.about(key.1))),
            Some(Side::Participant(_)) => self.vote_no(key, error),
            None => {}
        }
    }

    /// The leader steps down: the outcomes are unknown yet.
    pub(crate) fn forget_transactions_of(&mut self, partition: PartitionId) {
        let of = (partition, TaskId::MIN)..=(partition, TaskId::MAX);
        let here: Vec<TransactionKey> = self.workflow.transactions.coming.range(of).map(|(key, _)| *key).collect();
        for key in here {
            let error = Error::unavailable("the partition's leader has moved; ask again");
            self.drop_transaction(key, Response::Error(error.about(key.1)));
        }
        self.timers.cancel(Key::Transactions(partition));
    }

    /// Ends what this leader does for a transaction. A round that is not decided is given up.
    fn drop_transaction(&mut self, key: TransactionKey, response: Response) {
        self.give_up_round(key);
        let Some(coming) = self.workflow.transactions.remove(&key) else { return };
        coming.askers.into_iter().for_each(|asker| self.answer_transaction(asker, response.clone()));
    }

    fn answer_transaction(&mut self, asker: Asker, response: Response) {
        self.outbox
            .send(asker.node, Forwarding::Forwarded { request_id: asker.request_id, response: Box::new(response) });
    }
}

/// Effects of a transaction on the tasks of a partition, or what is not as expected. An error means that it cannot be decided.
type Judged = Result<Result<Decided, Box<Refusal>>, Error>;

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

fn too_late() -> Error {
    let message = "too many transactions came since this one was first asked for, so that it is not known whether it was made: look at \
                   its tasks, and make a new one if it was not";
    Error::new(ErrorCode::TooOld, message)
}
