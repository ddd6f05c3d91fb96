//! The partition that decides a transaction which reaches others, too.
//!
//! The coordinator's leader asks the leaders of the other partitions to prepare their parts, in a *round*: its epoch, and a number of its
//! own. Once all have, it compares the tasks of its own partition, and appends `Op::DecideAcross`. With that committed the transaction is
//! made everywhere. The decision stays in the table until every partition has made its part, so a leader that asks for the outcome of a
//! round gets it:
//!
//! - the table has the decision of that round: it is to be made;
//! - this leader gathers votes in that round, or its decision is not committed yet: there is no outcome, and no answer;
//! - otherwise the round is given up. It cannot be decided any more: a round of this epoch is decided by this leader alone, which never
//!   goes back to a round; and the decision of an earlier epoch would be in this table, as every committed operation is, until all
//!   partitions had made their parts.
//!
//! So nothing is written to give up a round. A leader that has lost its place may answer by the same rules: what it knows of its own epoch
//! stays true.
//!
//! **Conflicts.** In the first round all partitions are asked at once. One that has a task of it locked says so, and the round is given
//! up, for no transaction waits while others wait for it. The next round asks one partition after the other, in their order, and keeps
//! what is prepared while it waits for the next. The coordinator is the highest partition and judges its own tasks last, so each such
//! transaction waits only for one that has a higher partition: there is no cycle (Havender, 1968).

use super::{Coming, Judged, Side, Stage};
use crate::Node;
use crate::context::timers::Key;
use norn_model::claim_table::ledger::{Decided, Round, Spread, Stamps, TransactionKey};
use norn_model::config::mutant;
use norn_model::message::{Vote, Workflow};
use norn_wire::error::{Error, ErrorCode};
use norn_wire::transaction::Refusal;
use norn_wire::{NodeId, PartitionId, Response, TaskId, Token, Transaction, Versions};
use std::collections::{BTreeMap, BTreeSet};

/// Pause before a question to another partition's leader is repeated.
const ASK_AGAIN_MS: u64 = 200;
/// First pause before a partition is asked again that was busy. It doubles up to [`ASK_AGAIN_MS`].
const BUSY_MS: u64 = 10;

/// What the coordinator knows of another partition's part.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Standing {
    /// It is to be asked, in its turn.
    Unasked,
    /// It is asked.
    Asked,
    /// It has prepared its part.
    Prepared(Stamps),
    /// Some tasks are not as expected, or the part can never be made.
    Refused(Box<Refusal>),
}

/// A partition's part of a transaction.
#[derive(Debug)]
struct Share {
    part: Transaction,
    standing: Standing,
}

/// What the coordinator does with other partitions.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    round: Round,
    /// Before the decision: the parts of the other partitions.
    shares: BTreeMap<PartitionId, Share>,
    /// Partitions are asked one after the other.
    in_order: bool,
    /// Why a partition, or this one, could not judge.
    put_off: Option<Error>,
    /// Why the transaction can never be made, beside what is not as expected.
    failed: Option<Error>,
    /// Pause before a busy partition is asked again.
    pause_ms: u64,
    /// When unanswered questions are repeated.
    due_us: u64,
    /// When the votes must be there.
    until_us: u64,
    /// Tasks in the order in which the client learns their versions.
    order: Vec<TaskId>,
    /// Partitions that have not made their parts yet, after the decision.
    open: BTreeSet<PartitionId>,
}

impl Gathering {
    /// What a new leader knows of a transaction that is decided.
    pub fn decided(spread: &Spread) -> Gathering {
        let open = spread.partitions.iter().copied().collect();
        Gathering { round: spread.round, open, ..Gathering::default() }
    }

    /// All have prepared their parts, which are to be made. Returns what the table keeps of that.
    pub fn decide(&mut self) -> Spread {
        let is_prepared = |share: &Share| matches!(share.standing, Standing::Prepared(_));
        assert!(self.shares.values().all(is_prepared), "a transaction is decided that a partition has not prepared");
        assert!(self.open.is_empty(), "a transaction is decided twice");
        self.open = std::mem::take(&mut self.shares).into_keys().collect();
        Spread { round: self.round, partitions: self.open.iter().copied().collect() }
    }

    /// After the decision: whether all other partitions have made their parts.
    pub fn is_made(&self) -> bool {
        self.open.is_empty()
    }

    fn have_voted(&self) -> bool {
        self.shares.values().all(|share| matches!(share.standing, Standing::Prepared(_) | Standing::Refused(_)))
    }

    /// What all other partitions found not to be as expected.
    fn refusal(&self) -> Refusal {
        self.shares.values().fold(Refusal::default(), |refusal, share| match &share.standing {
            Standing::Refused(of_part) => merged(refusal, of_part),
            _ => refusal,
        })
    }

    /// Versions of all tasks that the transaction adds and changes, in the order of the transaction; `own` are those of this partition.
    fn stamps(&self, own: Stamps) -> Stamps {
        let others = self.shares.values().filter_map(|share| match &share.standing {
            Standing::Prepared(stamps) => Some(stamps.iter().copied()),
            _ => None,
        });
        let stamps: BTreeMap<_, _> = own.into_iter().chain(others.flatten()).collect();
        self.order.iter().filter_map(|id| Some((*id, *stamps.get(id)?))).collect()
    }

    /// Partitions to be asked now.
    fn to_ask(&self) -> Vec<PartitionId> {
        let open =
            self.shares.iter().filter(|(_, share)| matches!(share.standing, Standing::Unasked | Standing::Asked));
        open.map(|(partition, _)| *partition).take(if self.in_order { 1 } else { usize::MAX }).collect()
    }
}

/// Adds what is not as expected in another part.
fn merged(mut refusal: Refusal, part: &Refusal) -> Refusal {
    refusal.changes.extend(&part.changes);
    refusal.deletes.extend(&part.deletes);
    refusal.depends.extend(&part.depends);
    refusal.owned.extend(&part.owned);
    refusal.bugs.extend(part.bugs.iter().cloned());
    refusal
}

impl Node {
    /// The partition that decides a transaction: the highest of those in which its tasks lie.
    pub(crate) fn decider_of(&self, transaction: &Transaction) -> PartitionId {
        let ids = transaction.adds.iter().map(|add| add.id).chain(transaction.named());
        let highest = ids.map(|id| self.partition_of(&id)).max();
        highest.unwrap_or_else(|| self.partition_of(&transaction.id))
    }

    /// Divides a transaction among the partitions of its tasks. Returns the part of the coordinator.
    pub(super) fn divide(&self, own: PartitionId, whole: Transaction) -> Result<(Transaction, Side), Error> {
        let order: Vec<TaskId> =
            whole.adds.iter().map(|add| add.id).chain(whole.changes.iter().map(|change| change.id)).collect();
        let Transaction { id, at_ms, adds, changes, deletes, depends } = whole;
        let blank = || Transaction { id, at_ms, ..Transaction::default() };
        let mut parts: BTreeMap<PartitionId, Transaction> = BTreeMap::new();
        for add in adds {
            parts.entry(self.partition_of(&add.id)).or_insert_with(blank).adds.push(add);
        }
        for change in changes {
            parts.entry(self.partition_of(&change.id)).or_insert_with(blank).changes.push(change);
        }
        for delete in deletes {
            parts.entry(self.partition_of(&delete.id)).or_insert_with(blank).deletes.push(delete);
        }
        for depend in depends {
            parts.entry(self.partition_of(&depend.id)).or_insert_with(blank).depends.push(depend);
        }
        let part = parts.remove(&own).unwrap_or_else(blank);
        if parts.is_empty() {
            return Ok((part, Side::Alone));
        }
        self.check_versions()?;
        let unasked = |(partition, part)| (partition, Share { part, standing: Standing::Unasked });
        let shares = parts.into_iter().map(unasked).collect();
        // Before the node gives up that asks for its client.
        let until_us = self.after_ms(self.config.request_timeout_ms * 3 / 4);
        let gathering = Gathering { shares, until_us, order, pause_ms: BUSY_MS, ..Gathering::default() };
        Ok((part, Side::Coordinator(Box::new(gathering))))
    }

    /// Whether a member may speak a version of the protocol. One that has not been heard in this start is waited for only while it is
    /// there.
    fn may_speak(&self, node: NodeId, version: u8) -> bool {
        let is_away = node != self.me && !self.outbox.knows_version(node) && !self.is_alive(node);
        is_away || self.version_of(node) >= version
    }

    /// Whether every member speaks a version of the protocol.
    pub(super) fn everyone_speaks(&self, version: u8) -> bool {
        self.members().all(|(_, member)| self.may_speak(member.node, version))
    }

    /// Whether all members can read what a transaction of several partitions writes.
    pub(super) fn check_versions(&self) -> Result<(), Error> {
        let mut earlier =
            self.members().map(|(_, member)| member.node).filter(|node| !self.may_speak(*node, Versions::ACROSS));
        match earlier.next() {
            None => Ok(()),
            Some(node) if node != self.me && !self.outbox.knows_version(node) => {
                Err(Error::unavailable("this node is not connected to all others yet; ask again"))
            }
            Some(_) => {
                let message = "its tasks lie in several partitions, which some node of this cluster cannot do together yet: upgrade all \
                               nodes first, or keep to tasks with one queue and key";
                Err(Error::new(ErrorCode::Invalid, message))
            }
        }
    }

    fn gathering(&mut self, key: &TransactionKey) -> Option<&mut Gathering> {
        match self.workflow.transactions.coming.get_mut(key).map(|coming| &mut coming.side) {
            Some(Side::Coordinator(gathering)) => Some(gathering),
            _ => None,
        }
    }

    /// Whether no other partition's vote is missing.
    pub(super) fn all_have_voted(&self, key: &TransactionKey) -> bool {
        match self.workflow.transactions.coming.get(key).map(|coming| &coming.side) {
            Some(Side::Coordinator(gathering)) => gathering.have_voted(),
            Some(Side::Alone | Side::Participant(_)) => true,
            None => false,
        }
    }

    /// Asks the other partitions, if there are any, in a new round.
    pub(super) fn begin_round(&mut self, key: TransactionKey) {
        if self.gathering(&key).is_none() {
            return;
        }
        let epoch = self.partitions[&key.0].consensus.viewstamp.epoch;
        let round = Token { epoch, number: self.pending_requests.number() };
        let gathering = self.gathering(&key).expect("just seen");
        assert!(round > gathering.round, "a round of a transaction does not follow the one before");
        gathering.round = round;
        gathering.shares.values_mut().for_each(|share| share.standing = Standing::Unasked);
        self.ask_shares(key);
    }

    /// Asks partitions that have not voted, as far as it is their turn.
    fn ask_shares(&mut self, key: TransactionKey) {
        let due_us = self.after_ms(ASK_AGAIN_MS);
        let Some(gathering) = self.gathering(&key) else { return };
        let round = gathering.round;
        gathering.due_us = due_us;
        let mut questions = Vec::new();
        for partition in gathering.to_ask() {
            let share = gathering.shares.get_mut(&partition).expect("just listed");
            share.standing = Standing::Asked;
            questions.push((partition, share.part.clone()));
        }
        for (partition, part) in questions {
            if let Some(leader) = self.leader_of(partition) {
                let message = Workflow::Prepare { partition, coordinator: key.0, round, part: Box::new(part) };
                self.outbox.send(leader, message);
            }
        }
        self.see_to_transactions_soon(key.0);
    }

    pub(super) fn see_to_transactions_soon(&mut self, partition: PartitionId) {
        self.timers.set_if_none(Key::Transactions(partition), self.after_ms(ASK_AGAIN_MS));
    }

    /// Takes a partition's vote.
    pub(crate) fn on_part_vote(&mut self, key: TransactionKey, partition: PartitionId, round: Round, vote: Vote) {
        let Some(Coming { stage: Stage::Reading { .. }, side: Side::Coordinator(gathering), .. }) =
            self.workflow.transactions.coming.get_mut(&key)
        else {
            return;
        };
        if gathering.round != round && !mutant!(self.config, VoteOfAnyRound) {
            return;
        }
        // A refusal without a reason would look like no refusal.
        if matches!(&vote, Vote::Refused(refusal) if refusal.is_empty()) {
            return self.outbox.refuse("a refusal of a part without a reason");
        }
        let Some(share) = gathering.shares.get_mut(&partition).filter(|share| share.standing == Standing::Asked) else {
            return;
        };
        share.standing = match vote {
            Vote::Prepared(stamps) => Standing::Prepared(stamps),
            Vote::Refused(refusal) => Standing::Refused(refusal),
            Vote::Failed(error) => {
                let refusal = Refusal { bugs: vec![error.message.clone()], ..Refusal::default() };
                gathering.failed = Some(*error);
                Standing::Refused(Box::new(refusal))
            }
            Vote::Busy(error) => return self.put_off_round(key, *error),
        };
        (gathering.pause_ms, gathering.put_off) = (BUSY_MS, None);
        if self.all_have_voted(&key) {
            self.judge_transaction(key);
        } else {
            self.ask_shares(key);
        }
    }

    /// A partition, or this one, cannot judge now. The first time all are asked anew, in their order; from then on the one that cannot is
    /// asked again a little later.
    pub(super) fn put_off_round(&mut self, key: TransactionKey, error: Error) {
        if error.code != ErrorCode::Unavailable {
            // It takes long until there is room again, and its locks would be in the way of others meanwhile.
            return self.drop_transaction(key, Response::Error(error.about(key.1)));
        }
        let now = self.now;
        let Some(gathering) = self.gathering(&key) else { return };
        gathering.put_off = Some(error);
        if gathering.in_order {
            let pause_ms = gathering.pause_ms;
            gathering.pause_ms = (2 * pause_ms).min(ASK_AGAIN_MS);
            gathering.due_us = now.mono_after_ms(pause_ms);
            self.timers.set_earliest(Key::Transactions(key.0), now.mono_after_ms(pause_ms));
        } else {
            self.give_up_round(key);
            if let Some(gathering) = self.gathering(&key) {
                gathering.in_order = true;
            }
            self.begin_round(key);
        }
    }

    /// Gives up the present round, unless it is decided: what was prepared in it is dropped.
    pub(super) fn give_up_round(&mut self, key: TransactionKey) {
        let Some(Coming { stage: Stage::Reading { .. }, side: Side::Coordinator(gathering), .. }) =
            self.workflow.transactions.coming.get(&key)
        else {
            return;
        };
        let round = gathering.round;
        let told = gathering
            .shares
            .iter()
            .filter(|(_, share)| matches!(share.standing, Standing::Asked | Standing::Prepared(_)));
        for partition in told.map(|(partition, _)| *partition).collect::<Vec<_>>() {
            self.send_conclude(key, partition, round, false);
        }
    }

    fn send_conclude(&mut self, (coordinator, id): TransactionKey, partition: PartitionId, round: Round, commit: bool) {
        if let Some(leader) = self.leader_of(partition) {
            self.outbox.send(leader, Workflow::Conclude { coordinator, partition, id, round, commit });
        }
    }

    /// All other partitions have voted, and the coordinator's own tasks are compared.
    pub(super) fn judged_by_coordinator(&mut self, key: TransactionKey, judged: Judged) {
        let Some(gathering) = self.gathering(&key) else { return };
        let (others, mut failed) = (gathering.refusal(), gathering.failed.take());
        let refusal = match judged {
            Err(error) if error.passes() => {
                gathering.failed = failed;
                return self.put_off_round(key, error);
            }
            Err(error) => {
                let refusal = merged(others, &Refusal { bugs: vec![error.message.clone()], ..Refusal::default() });
                failed = Some(error);
                refusal
            }
            Ok(Err(refusal)) => merged(others, &refusal),
            Ok(Ok(decided)) if others.is_empty() => {
                let decided = Decided { stamps: gathering.stamps(decided.stamps), ..decided };
                return self.decide_transaction(key, decided);
            }
            Ok(Ok(_)) => others,
        };
        let response = match failed {
            Some(error) => Response::Error(error.about(key.1)),
            None => Response::Transacted(Err(Box::new(refusal.clone()))),
        };
        self.refuse_transaction(key, Box::new(refusal), response);
    }

    /// Once the decision is committed: tells the partitions that have not made their parts to do so.
    pub(super) fn conclude_open(&mut self, key: TransactionKey) {
        let due_us = self.after_ms(ASK_AGAIN_MS);
        let Some(gathering) = self.gathering(&key) else { return };
        gathering.due_us = due_us;
        let (round, open) = (gathering.round, gathering.open.clone());
        if !open.is_empty() {
            self.see_to_transactions_soon(key.0);
        }
        if mutant!(self.config, DecisionForgotten) {
            if let Some(gathering) = self.gathering(&key) {
                gathering.open.clear();
            }
            return self.end_transaction(key);
        }
        open.into_iter().for_each(|partition| self.send_conclude(key, partition, round, true));
    }

    /// A partition has made its part.
    pub(crate) fn on_concluded(&mut self, key: TransactionKey, partition: PartitionId, round: Round) {
        let Some(Coming { stage: Stage::Writing { .. }, side: Side::Coordinator(gathering), .. }) =
            self.workflow.transactions.coming.get_mut(&key)
        else {
            return;
        };
        if gathering.round == round && gathering.open.remove(&partition) {
            self.end_transaction(key);
        }
    }

    /// Answers the leader of a partition that has prepared its part.
    pub(crate) fn on_ask_outcome(&mut self, from: NodeId, key: TransactionKey, partition: PartitionId, round: Round) {
        let Some(commit) = self.outcome_of_round(key, round) else { return };
        let (coordinator, id) = key;
        self.outbox.send(from, Workflow::Conclude { coordinator, partition, id, round, commit });
    }

    /// Whether a round is decided or given up; none if that is not known, or not here.
    fn outcome_of_round(&self, (coordinator, id): TransactionKey, round: Round) -> Option<bool> {
        let consensus = &self.partitions.get(&coordinator)?.consensus;
        if !consensus.established() || round.epoch > consensus.viewstamp.epoch {
            return None;
        }
        let coming = self.workflow.transactions.coming.get(&(coordinator, id));
        if consensus.table.ledger.spreads().get(&id).is_some_and(|spread| spread.round == round) {
            let committed = coming.is_some_and(|coming| matches!(coming.stage, Stage::Writing { .. }));
            return committed.then_some(true);
        }
        let gathers = coming.is_some_and(|coming| {
            matches!((&coming.stage, &coming.side), (Stage::Reading { .. }, Side::Coordinator(own)) if own.round == round)
        });
        if gathers && !mutant!(self.config, RoundGuessed) { None } else { Some(false) }
    }

    /// At intervals: asks again what is unanswered, and gives up what takes too long.
    pub(crate) fn see_to_transactions(&mut self, partition: PartitionId) {
        let of = (partition, TaskId::MIN)..=(partition, TaskId::MAX);
        let here: Vec<TransactionKey> = self.workflow.transactions.coming.range(of).map(|(key, _)| *key).collect();
        for key in here {
            let Some(coming) = self.workflow.transactions.coming.get(&key) else { continue };
            match (&coming.stage, &coming.side) {
                (_, Side::Coordinator(gathering)) if gathering.due_us > self.now.mono_us => {
                    self.timers.set_earliest(Key::Transactions(partition), gathering.due_us);
                }
                (Stage::Reading { .. }, Side::Coordinator(_)) => self.go_on_gathering(key),
                (Stage::Writing { .. }, Side::Coordinator(gathering)) if !gathering.is_made() => {
                    self.conclude_open(key)
                }
                (Stage::Prepared { committed: true }, Side::Participant(_)) => self.ask_for_outcome(key),
                _ => {}
            }
        }
    }

    fn go_on_gathering(&mut self, key: TransactionKey) {
        let now_us = self.now.mono_us;
        let Some(gathering) = self.gathering(&key) else { return };
        if now_us >= gathering.until_us {
            let unled = || Error::unavailable("a partition that it reaches has no leader that answers; ask again");
            let error = gathering.put_off.take().unwrap_or_else(unled);
            return self.drop_transaction(key, Response::Error(error.about(key.1)));
        }
        if !gathering.have_voted() {
            return self.ask_shares(key);
        }
        // Its own tasks could not be judged, or are still being read.
        let again = gathering.put_off.take().is_some();
        self.see_to_transactions_soon(key.0);
        if again {
            self.workflow.transactions.read_again(&key);
            self.read_tasks_of(key);
        }
    }
}
