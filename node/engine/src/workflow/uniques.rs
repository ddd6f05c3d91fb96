//! Unique tasks: a queue has at most one task with a given key that was enqueued as unique and has not ended.
//!
//! All tasks with a key are in one partition (`Spec::tag`), so its leader decides. For a unique task it
//!
//! 1. asks all replicas which tasks with its key have not ended (`KeyAsk`), and which of those that others name have. A majority's
//!    answers cover every task that was strictly acknowledged, and every ending. If an open task is left, that is the answer;
//! 2. otherwise appends `Op::Reserve`, with the task in it. Once that is committed no later leader can ignore it;
//! 3. only then writes the task to its replicas as a fact, as any node would, and answers when a majority has it;
//! 4. appends `Op::Placed` some time later, so that the table need not carry the task any more.
//!
//! Calls about the same key wait for each other, and are then answered by a new survey of a majority: the task of the first may have
//! ended since. A leader that finds a reserved task in its table writes it again, and takes no calls about its key before that is done.
//! Refused tasks are remembered for a while: a repeat that was long on its way, and comes when the other task has ended, enqueues
//! nothing, unless another node leads by then. There are never two open tasks at a time.

use crate::Node;
use crate::consensus::unwritten;
use crate::context::timers::Key;
use crate::write_read::coordinate::Writer;
use crate::write_read::group::refused;
use norn_model::claim_table::table::Op;
use norn_model::config::mutant;
use norn_model::consensus::{Name, Waiting};
use norn_model::limits::{KEY_TASKS_MAX, REFUSED_MAX, SEALING_BYTES_MAX, UNIQUES_MAX};
use norn_model::message::{Forwarding, Outcome, Workflow};
use norn_model::task::{Outline, Task};
use norn_model::viewstamp::{Epoch, ReplicaId};
use norn_wire::error::{Error, ErrorCode};
use norn_wire::response::{Acked, Guarantee};
use norn_wire::{Acks, NewTask, NodeId, PartitionId, QueueName, Request, Response, Spec, TaskId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::NonZeroU64;
use std::sync::Arc;

/// Pause before a failed write is tried again, and before a written task is taken out of the table.
const PLACE_MS: u64 = 500;

/// A node that asks for a task.
#[derive(Debug, Clone, Copy)]
struct Asker {
    node: NodeId,
    request_id: u64,
    id: TaskId,
}

/// What a majority knows of a key.
#[derive(Debug, Default)]
struct Survey {
    /// Number of the question.
    request_id: u64,
    /// Nodes that have answered.
    answered: BTreeSet<NodeId>,
    /// Tasks that have not ended, and the nodes that named them.
    open: BTreeMap<TaskId, BTreeSet<NodeId>>,
    /// Tasks that have ended.
    ended: BTreeSet<TaskId>,
    /// Tasks that the question was about.
    asked: BTreeSet<TaskId>,
    /// Whether a replica has more open tasks than its answer names.
    more: bool,
}

/// Result of a survey.
struct Findings {
    /// Tasks that are known to have ended.
    ended: BTreeSet<TaskId>,
    /// Tasks that have not ended, by whether a majority has them on disk.
    there: BTreeMap<TaskId, bool>,
    /// There may be others.
    more: bool,
}

/// How far a task is.
#[derive(Debug)]
enum Stage {
    /// It is not known yet whether there is another one.
    Surveying(Survey),
    /// It is reserved in the table.
    Reserved,
    /// Its reservation is committed, and it is being written.
    Placing,
}

/// A task in progress.
#[derive(Debug)]
struct Coming {
    id: TaskId,
    spec: Arc<Spec>,
    stage: Stage,
    askers: Vec<Asker>,
    /// When it was last asked for.
    asked_us: u64,
}

/// A reserved task that is to be written again.
#[derive(Debug, Default)]
struct Again {
    under_way: bool,
    /// Why it could not be written before.
    why: Option<Box<Error>>,
}

/// What leaders know about unique tasks. All that is reserved in the table of a partition that this node leads is in one of the first
/// three.
#[derive(Debug, Default)]
pub struct Uniques {
    /// Asked for, and in progress.
    coming: BTreeMap<Name, Coming>,
    /// Found in the table, or not written at the first attempt.
    again: BTreeMap<Name, BTreeMap<TaskId, Again>>,
    /// Written, and to be taken out of the table.
    placed: BTreeMap<PartitionId, BTreeSet<TaskId>>,
    /// Names of the tasks in progress, by the question about them.
    by_request_id: BTreeMap<u64, Name>,
    /// Payload bytes of all tasks in progress.
    bytes: usize,
    /// Refused tasks, and the task that there was instead; the latest ones.
    refused: BTreeMap<TaskId, TaskId>,
    refused_order: VecDeque<TaskId>,
}

impl Uniques {
    fn refuse(&mut self, id: TaskId, instead: TaskId) {
        if self.refused.insert(id, instead).is_none() {
            self.refused_order.push_back(id);
        }
        if self.refused_order.len() > REFUSED_MAX
            && let Some(first) = self.refused_order.pop_front()
        {
            self.refused.remove(&first);
        }
        assert_eq!(self.refused.len(), self.refused_order.len(), "a refused task is not listed in its order");
        assert!(self.refused.len() <= REFUSED_MAX, "too many refused tasks are remembered");
    }

    fn insert(&mut self, name: Name, coming: Coming) {
        self.bytes += coming.spec.payload.len();
        let twice = self.coming.insert(name, coming);
        assert!(twice.is_none(), "one task comes with a key at a time");
    }

    fn remove(&mut self, name: &Name) -> Option<Coming> {
        let coming = self.coming.remove(name)?;
        assert!(self.bytes >= coming.spec.payload.len(), "a unique task was not counted");
        self.bytes -= coming.spec.payload.len();
        self.end_survey(&coming.stage);
        Some(coming)
    }

    fn end_survey(&mut self, stage: &Stage) {
        if let Stage::Surveying(survey) = stage {
            self.by_request_id.remove(&survey.request_id);
        }
    }

    /// Moves a task in progress to its next stage.
    fn enter(&mut self, name: &Name, stage: Stage) {
        if let Stage::Surveying(survey) = &stage {
            let before = self.by_request_id.insert(survey.request_id, name.clone());
            assert!(before.is_none(), "the number of a question is used twice");
        }
        let coming = self.coming.get_mut(name).expect("it is on its way");
        let before = std::mem::replace(&mut coming.stage, stage);
        self.end_survey(&before);
    }

    fn fits(&self, spec: &Spec) -> bool {
        let fits = self.bytes == 0 || self.bytes + spec.payload.len() <= SEALING_BYTES_MAX;
        fits && self.coming.len() < UNIQUES_MAX
    }

    /// Takes the askers of a task in progress: those for which `own` holds come first.
    fn take_askers(&mut self, name: &Name, own: impl Fn(&TaskId) -> bool) -> (Vec<Asker>, Vec<Asker>) {
        let coming = self.coming.get_mut(name).expect("it is on its way");
        std::mem::take(&mut coming.askers).into_iter().partition(|asker| own(&asker.id))
    }
}

impl Node {
    /// At the leader: handles a request for a unique task.
    pub(crate) fn on_unique(&mut self, from: NodeId, request_id: u64, request: Request) {
        let checked = request.check();
        let Request::EnqueueUnique { task } = request else { return };
        let asker = Asker { node: from, request_id, id: task.id };
        if let Err(error) = checked.and_then(|()| self.take_unique(asker, *task)) {
            self.answer_unique(asker, Response::Error(error.about(asker.id)));
        }
    }

    fn take_unique(&mut self, asker: Asker, task: NewTask) -> Result<(), Error> {
        let NewTask { id, spec } = task;
        let partition = self.partition_of(&id);
        if !self.may_append(partition) {
            return Err(Error::unavailable("the partition's leader has moved; ask again"));
        }
        if let Some(instead) = self.workflow.uniques.refused.get(&id).copied() {
            self.answer_existing(asker, instead);
            return Ok(());
        }
        let spec = Arc::new(spec);
        let Some(name) = name_of(partition, &spec) else { return Err(Error::invalid("it has no key")) };
        if let Some(again) = self.workflow.uniques.again.get(&name) {
            let why = again.values().find_map(|again| again.why.as_deref());
            let being_written = || Error::unavailable("another task with this key is being written; ask again");
            let is_it = again.contains_key(&id);
            let refusal =
                |why| self.unwritten_for(why, (partition, id), is_it, "a task with this key could not be written yet");
            return Err(why.map_or_else(being_written, refusal));
        }
        if self.workflow.uniques.coming.contains_key(&name) {
            return self.join_unique(&name, asker, &spec);
        }
        self.make_room_for_unique(&spec)?;
        let (stage, asked_us) = (Stage::Surveying(Survey::default()), self.now.mono_us);
        self.workflow.uniques.insert(name.clone(), Coming { id, spec, stage, askers: vec![asker], asked_us });
        self.begin_survey(&name, BTreeSet::from([id]));
        Ok(())
    }

    /// Adds an asker to a key in progress: for another task, or a repeat for the same one.
    fn join_unique(&mut self, name: &Name, asker: Asker, spec: &Arc<Spec>) -> Result<(), Error> {
        let coming = self.workflow.uniques.coming.get_mut(name).expect("just seen");
        if coming.id == asker.id && coming.spec != *spec {
            return Err(Error::new(ErrorCode::Conflict, "another task has this id already; mint a new one"));
        }
        coming.askers.retain(|other| (other.node, other.id) != (asker.node, asker.id));
        if coming.askers.len() >= UNIQUES_MAX {
            return Err(Error::new(ErrorCode::Overloaded, "too many calls are about this key; ask again"));
        }
        coming.askers.push(asker);
        coming.asked_us = self.now.mono_us;
        // Asks again, as messages may be lost.
        self.survey(name);
        Ok(())
    }

    /// Drops surveys that no client waits for any more, if there is no space for another one.
    fn make_room_for_unique(&mut self, spec: &Spec) -> Result<(), Error> {
        let over_us = self.now.mono_us.saturating_sub(self.config.request_timeout_ms * 1_000);
        if !self.workflow.uniques.fits(spec) {
            let idle = |coming: &Coming| coming.asked_us < over_us && matches!(coming.stage, Stage::Surveying(_));
            let idle =
                self.workflow.uniques.coming.iter().filter(|(_, coming)| idle(coming)).map(|(name, _)| name.clone());
            for name in idle.collect::<Vec<_>>() {
                self.workflow.uniques.remove(&name);
            }
        }
        if self.workflow.uniques.fits(spec) {
            Ok(())
        } else {
            Err(Error::new(ErrorCode::Overloaded, "too many unique tasks are on their way; ask again"))
        }
    }

    fn begin_survey(&mut self, name: &Name, asked: BTreeSet<TaskId>) {
        let request_id = self.pending_requests.number();
        self.workflow.uniques.enter(name, Stage::Surveying(Survey { request_id, asked, ..Survey::default() }));
        if mutant!(self.config, UniqueUnasked) {
            return self.reserve(name);
        }
        self.survey(name);
    }

    /// Asks the replicas that have not answered.
    fn survey(&mut self, name: &Name) {
        let Some(Coming { stage: Stage::Surveying(survey), .. }) = self.workflow.uniques.coming.get(name) else {
            return;
        };
        let (partition, queue, key) = name.clone();
        let (request_id, ids) = (survey.request_id, survey.asked.iter().copied().collect::<Vec<_>>());
        let replica = &self.partitions[&partition];
        let (nodes, epoch) = (replica.cohort().followers(), replica.consensus.viewstamp.epoch);
        let open = nodes.into_iter().chain([self.me]).filter(|node| !survey.answered.contains(node));
        let open: BTreeSet<NodeId> = open.collect();
        for node in open {
            let message =
                Workflow::KeyAsk { request_id, partition, epoch, queue: queue.clone(), key, ids: ids.clone() };
            self.outbox.send(node, message);
        }
    }

    /// At a replica: answers what it knows of a key, once that is on its disk.
    pub(crate) fn on_key_ask(
        &mut self,
        from: NodeId,
        (request_id, epoch): (u64, Epoch),
        (partition, queue, key): (PartitionId, QueueName, NonZeroU64),
        ids: &[TaskId],
    ) {
        let speaks = self.speaks_for(partition);
        let Some(replica) = self.partitions.get(&partition).filter(|_| speaks) else { return };
        if replica.consensus.viewstamp.epoch != epoch {
            return;
        }
        let store = &replica.store;
        let open = store.index().open(&queue, key).take(KEY_TASKS_MAX).copied().collect();
        let is_over = |id: &&TaskId| store.ended(id) || store.tombstone(id).is_some();
        let ended = ids.iter().filter(is_over).copied().collect();
        let message = Workflow::KeyAnswer { request_id, partition, replica: replica.consensus.me, open, ended };
        self.outbox.send_durable(from, message);
    }

    pub(crate) fn on_key_answer(
        &mut self,
        from: NodeId,
        (request_id, partition): (u64, PartitionId),
        replica: ReplicaId,
        (open, ended): (&[TaskId], &[TaskId]),
    ) {
        let Some(name) =
            self.workflow.uniques.by_request_id.get(&request_id).filter(|name| name.0 == partition).cloned()
        else {
            return;
        };
        let coming = self.workflow.uniques.coming.get_mut(&name).expect("a question is about what is on its way");
        let Stage::Surveying(survey) = &mut coming.stage else { return };
        let Some(own) = self.partitions.get(&partition).filter(|_| replica.node == from) else { return };
        if !own.cohort().has_replica(&replica) {
            return;
        }
        survey.answered.insert(from);
        survey.more |= open.len() >= KEY_TASKS_MAX;
        for id in open {
            survey.open.entry(*id).or_default().insert(from);
        }
        survey.ended.extend(ended);
        let answered = |node: NodeId| survey.answered.contains(&node);
        if own.cohort().members_quorum(answered) && own.cohort().next_quorum(answered) {
            self.judge_survey(&name);
        }
    }

    /// A majority has answered: decides, or asks again about tasks that the answers named.
    fn judge_survey(&mut self, name: &Name) {
        let Some(Coming { id, stage: Stage::Surveying(survey), .. }) = self.workflow.uniques.coming.get(name) else {
            return;
        };
        let id = *id;
        let one_is_enough = mutant!(self.config, UniqueEnded);
        let left = survey.open.keys().filter(|id| !survey.ended.contains(*id) || one_is_enough);
        let left: BTreeSet<TaskId> = left.copied().collect();
        if !left.is_subset(&survey.asked) {
            let asked = survey.asked.union(&left).copied().collect();
            return self.begin_survey(name, asked);
        }
        let cohort = self.partitions[&name.0].cohort();
        let has_majority = |id: TaskId| {
            let has = |node: NodeId| survey.open[&id].contains(&node);
            (id, cohort.members_quorum(has) && cohort.next_quorum(has) || one_is_enough)
        };
        let there = left.into_iter().map(has_majority).collect();
        let found = Findings { ended: survey.ended.clone(), there, more: survey.more };
        let asked = survey.asked.clone();
        // A task that this very call enqueued before is its own answer.
        let known = |id: &TaskId| found.ended.contains(id) || found.there.contains_key(id);
        let (own, others) = self.workflow.uniques.take_askers(name, known);
        let forgotten = |asker: &Asker| self.partitions[&name.0].may_have_forgotten(&asker.id);
        let (too_late, others): (Vec<Asker>, Vec<Asker>) = others.into_iter().partition(forgotten);
        let (others, late): (Vec<Asker>, Vec<Asker>) = others.into_iter().partition(|asker| asked.contains(&asker.id));
        let comes = found.there.is_empty() && !found.more && others.iter().any(|asker| asker.id == id);
        if comes {
            let askers = others.into_iter().chain(late).collect();
            self.workflow.uniques.coming.get_mut(name).expect("just seen").askers = askers;
            self.reserve(name);
        } else {
            others.into_iter().for_each(|asker| self.tell_found(asker, &found));
            self.survey_for(name, late);
        }
        for asker in too_late {
            let error = refused(Outcome::TooOld, true).about(asker.id);
            self.answer_unique(asker, Response::Error(error));
        }
        for asker in own {
            match found.there.get(&asker.id) {
                Some(false) => self.put_off(asker, "the task is not on a majority of disks yet"),
                Some(true) | None => self.answer_existing(asker, asker.id),
            }
        }
    }

    /// Surveys again for askers that have come since.
    fn survey_for(&mut self, name: &Name, late: Vec<Asker>) {
        let asked: BTreeSet<TaskId> = late.iter().map(|asker| asker.id).collect();
        if asked.is_empty() {
            self.workflow.uniques.remove(name);
        } else {
            self.workflow.uniques.coming.get_mut(name).expect("it is on its way").askers = late;
            self.begin_survey(name, asked);
        }
    }

    /// Answers that another task with the key is there, or was until now.
    fn tell_found(&mut self, asker: Asker, found: &Findings) {
        match found.there.iter().find(|(_, majority)| **majority) {
            Some((id, _)) => self.answer_existing(asker, *id),
            None if found.there.is_empty() => self.put_off(asker, "tasks with this key have just ended"),
            // Its write is not complete.
            None => self.put_off(asker, "a task with this key is not on a majority of disks yet"),
        }
    }

    fn answer_existing(&mut self, asker: Asker, id: TaskId) {
        if asker.id != id {
            self.workflow.uniques.refuse(asker.id, id);
        }
        let members = self.partitions[&self.partition_of(&id)].cohort().members().count() as u32;
        let acked = Acked { id, acks: members / 2 + 1, replicas: members, guarantee: Guarantee::Strict };
        self.answer_unique(asker, Response::AckedUnique { acked, existing: asker.id != id });
    }

    /// Answers that the client should ask again.
    fn put_off(&mut self, asker: Asker, why: &str) {
        let error = Error::unavailable(format!("{why}; ask again")).about(asker.id);
        self.answer_unique(asker, Response::Error(error));
    }

    fn answer_unique(&mut self, asker: Asker, response: Response) {
        self.outbox
            .send(asker.node, Forwarding::Forwarded { request_id: asker.request_id, response: Box::new(response) });
    }

    fn drop_unique(&mut self, name: &Name, why: &str) {
        let Some(coming) = self.workflow.uniques.remove(name) else { return };
        coming.askers.into_iter().for_each(|asker| self.put_off(asker, why));
    }

    /// There is no other open task: reserves this one.
    fn reserve(&mut self, name: &Name) {
        let partition = name.0;
        let Some(coming) = self.workflow.uniques.coming.get(name) else { return };
        let (id, spec) = (coming.id, coming.spec.clone());
        let replica = &self.partitions[&partition];
        if !self.may_append(partition) {
            return self.drop_unique(name, "the partition has no leader");
        }
        if replica.consensus.table.reserved.contains_key(&id) {
            return self.drop_unique(name, "the task is being written");
        }
        let admitted = self.admit_unique(partition, id, &spec);
        if let Err(error) = admitted.and_then(|()| self.check_capacity(std::iter::once((&id, &*spec)))) {
            let (own, others) = self.workflow.uniques.take_askers(name, |other| *other == id);
            self.workflow.uniques.remove(name);
            own.into_iter().for_each(|asker| self.answer_unique(asker, Response::Error(error.clone().about(id))));
            return others.into_iter().for_each(|asker| self.put_off(asker, "another task was refused"));
        }
        if mutant!(self.config, UniqueUnreserved) {
            return self.place(name);
        }
        self.workflow.uniques.enter(name, Stage::Reserved);
        self.append(partition, Op::Reserve { id, spec }, Some(Waiting::Reserve { name: Box::new(name.clone()), id }));
    }

    /// The reservation is committed: now the task may become a fact.
    pub(crate) fn unique_reserved(&mut self, name: &Name, id: TaskId) {
        if self.workflow.uniques.coming.get(name).is_some_and(|coming| coming.id == id) {
            self.place(name);
        }
    }

    fn place(&mut self, name: &Name) {
        self.workflow.uniques.enter(name, Stage::Placing);
        let coming = &self.workflow.uniques.coming[name];
        let (id, spec) = (coming.id, coming.spec.clone());
        self.write_unique(name, id, spec);
    }

    fn write_unique(&mut self, name: &Name, id: TaskId, spec: Arc<Spec>) {
        let fact = Task::from_spec(spec);
        self.write_for(Writer::Unique(Box::new(name.clone())), vec![(id, fact)], (Acks::Quorum, true));
    }

    /// A reserved task is on the disks of a majority, or is refused.
    pub(crate) fn unique_written(&mut self, name: &Name, id: TaskId, result: Result<Acked, Error>) {
        let is_it = |coming: &&Coming| coming.id == id && matches!(coming.stage, Stage::Placing);
        let comes = self.workflow.uniques.coming.get(name).filter(is_it).is_some();
        let waits = self.workflow.uniques.again.get(name).is_some_and(|again| again.contains_key(&id));
        if !comes && !waits {
            // Of an earlier leadership.
            return;
        }
        self.timers.set_earliest(Key::Drop(name.0), self.after_ms(PLACE_MS));
        if result.as_ref().is_err_and(Error::passes) {
            let again = Again { under_way: false, why: result.as_ref().err().cloned().map(Box::new) };
            self.workflow.uniques.again.entry(name.clone()).or_default().insert(id, again);
        } else {
            self.workflow.uniques.placed.entry(name.0).or_default().insert(id);
            if let Some(again) = self.workflow.uniques.again.get_mut(name) {
                again.remove(&id);
                if again.is_empty() {
                    self.workflow.uniques.again.remove(name);
                }
            }
        }
        if comes {
            self.tell_written(name, id, &result);
        }
    }

    /// Answers the askers of a written task; those for another task get a new survey.
    fn tell_written(&mut self, name: &Name, id: TaskId, result: &Result<Acked, Error>) {
        let (own, others) = self.workflow.uniques.take_askers(name, |other| *other == id);
        for asker in own {
            match result {
                Ok(acked) => self.answer_unique(asker, Response::AckedUnique { acked: *acked, existing: false }),
                Err(error) if !error.passes() => self.answer_unique(asker, Response::Error(error.clone())),
                Err(error) => {
                    let error = unwritten(error, "it is reserved, and could not be written yet").about(id);
                    self.answer_unique(asker, Response::Error(error));
                }
            }
        }
        let Err(error) = result else { return self.survey_for(name, others) };
        self.workflow.uniques.remove(name);
        for asker in others {
            let what = "another task with this key could not be written";
            let error = self.unwritten_for(error, (name.0, asker.id), false, what).about(asker.id);
            self.answer_unique(asker, Response::Error(error));
        }
    }

    /// Error for an asker of a task while one with its key cannot be written. If no trace of the asker's own task is known here, it is
    /// certain that it was not enqueued.
    fn unwritten_for(&self, why: &Error, (partition, id): (PartitionId, TaskId), is_it: bool, what: &str) -> Error {
        let replica = &self.partitions[&partition];
        let (store, forgotten) = (&replica.store, replica.may_have_forgotten(&id));
        let known =
            is_it || forgotten || store.task(&id).is_some() || store.ended(&id) || store.tombstone(&id).is_some();
        if known || !why.code.is_full() {
            return unwritten(why, what);
        }
        Error::new(why.code, format!("{what}: {}", why.message))
    }

    /// A new leader writes what earlier leaders have reserved.
    pub(crate) fn inherit_reserved(&mut self, partition: PartitionId) {
        for (id, spec) in &self.partitions[&partition].consensus.table.reserved {
            if let Some(name) = name_of(partition, spec) {
                self.workflow.uniques.again.entry(name).or_default().insert(*id, Again::default());
            }
        }
        self.write_again(partition);
    }

    fn write_again(&mut self, partition: PartitionId) {
        let table = &self.partitions[&partition].consensus.table;
        let mut idle = Vec::new();
        for (name, again) in self.workflow.uniques.again.iter_mut().filter(|(name, _)| name.0 == partition) {
            for (id, again) in again.iter_mut().filter(|(_, again)| !again.under_way) {
                // Only the planted bug that reserves nothing finds nothing.
                idle.extend(table.reserved.get(id).map(|spec| (name.clone(), *id, spec.clone())));
                // The obstacle may be gone.
                *again = Again { under_way: true, why: None };
            }
        }
        for (name, id, spec) in idle {
            self.write_unique(&name, id, spec);
        }
    }

    /// Writes again what could not be written, and takes out of the table what is written.
    pub(crate) fn settle_reserved(&mut self, partition: PartitionId) {
        self.write_again(partition);
        let placed = self.workflow.uniques.placed.remove(&partition).unwrap_or_default();
        let table = &self.partitions[&partition].consensus.table;
        let ids: Vec<TaskId> = placed.into_iter().filter(|id| table.reserved.contains_key(id)).collect();
        if !ids.is_empty() {
            self.append(partition, Op::Placed { ids }, None);
        }
    }

    /// The leader steps down: the outcomes are unknown yet.
    pub(crate) fn forget_uniques_of(&mut self, partition: PartitionId) {
        self.workflow.uniques.placed.remove(&partition);
        self.workflow.uniques.again.retain(|name, _| name.0 != partition);
        let names: Vec<Name> =
            self.workflow.uniques.coming.keys().filter(|name| name.0 == partition).cloned().collect();
        for name in names {
            self.drop_unique(&name, "the partition's leader has moved");
        }
    }
}

fn name_of(partition: PartitionId, spec: &Arc<Spec>) -> Option<Name> {
    Some((partition, spec.queue.clone(), Outline::new(spec.clone()).key()?))
}
