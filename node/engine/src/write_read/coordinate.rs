//! Writes: any node can coordinate one. It sends facts to all replicas of their partition and answers when enough have them on disk.

use super::PendingRequest;
use super::group::{Group, WriteAnswer};
use crate::Node;
use crate::context::signals::Signal;
use crate::controller::scheduler::FiringId;
use crate::event::ClientId;
use crate::membership::roster::name_in;
use crate::workflow::children::Delivery;
use crate::workflow::redrive::{Asker, Copying};
use norn_model::claim_table::ledger::TransactionKey;
use norn_model::cohort::{AdvertisedCohort, Cohort, CohortSlot, Role};
use norn_model::config::mutant;
use norn_model::consensus::Name;
use norn_model::message::{Items, LogPosition, Outcome, Peering, ReadWrite};
use norn_model::replica::Partition;
use norn_model::task::{Cancel, Task};
use norn_model::viewstamp::{ReplicaId, Viewstamp};
use norn_wire::error::{Error, ErrorCode};
use norn_wire::response::{Acked, Guarantee};
use norn_wire::{Acks, NewTask, NodeId, PartitionId, Response, TaskId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// An item and its place in the request.
pub(crate) type Placed = (usize, (TaskId, Task));

/// A pending write.
#[derive(Debug)]
pub struct PendingWrite {
    /// The requester of the write.
    pub writer: Writer,
    acks: Acks,
    /// Answer with one item, not with a list.
    single: bool,
    groups: BTreeMap<PartitionId, Group>,
    results: Vec<Option<Result<Acked, Error>>>,
    open: usize,
    ids: Vec<TaskId>,
    /// Time of giving up.
    pub deadline_us: u64,
}

/// What came of a write.
#[derive(Debug)]
pub(crate) struct WriteEnd {
    /// The requester.
    pub(crate) writer: Writer,
    /// Answer with one item, not with a list.
    pub(crate) single: bool,
    /// Tasks, in the order of the request.
    pub(crate) ids: Vec<TaskId>,
    /// The result of each.
    pub(crate) results: Vec<Result<Acked, Error>>,
}

/// The requester of a write.
#[derive(Debug, Clone)]
pub enum Writer {
    /// A client, and the number of its request.
    Client(ClientId, u64),
    /// A completion that brought tasks.
    Children(Delivery),
    /// A schedule of the cluster.
    Schedule(FiringId),
    /// A client or a leader that wants a copy of a dead task.
    Redrive(Box<Copying>),
    /// A leader, for a task that must be the only one with its key.
    Unique(Box<Name>),
    /// A leader, for a transaction that is decided.
    Transaction(TransactionKey),
    /// The join of a group that has failed: its members are cancelled.
    Abort(TaskId),
}

impl Writer {
    /// The waiting client, if the requester is one.
    pub(crate) fn client(&self) -> Option<ClientId> {
        match self {
            Writer::Client(client, _) => Some(*client),
            Writer::Redrive(copying) => match copying.asker {
                Asker::Client { client, .. } => Some(client),
                Asker::Leader(_) => None,
            },
            Writer::Children(_)
            | Writer::Schedule(_)
            | Writer::Unique(_)
            | Writer::Transaction(_)
            | Writer::Abort(_) => None,
        }
    }
}

impl Node {
    pub(crate) fn enqueue(&mut self, client: ClientId, number: u64, tasks: Vec<NewTask>, acks: Acks) {
        let room = || self.check_capacity(tasks.iter().map(|task| (&task.id, &task.spec)));
        if let Err(error) = self.check_cycles(tasks.iter()).and_then(|()| room()) {
            return self.outbox.reply(client, number, Response::Error(error));
        }
        let items = tasks.into_iter().map(|task| (task.id, Task::from_spec(Arc::new(task.spec)))).collect();
        self.write(client, number, items, (acks, false));
    }

    /// Records the outcome of completions that leaders were asked to seal, by place in the write that waits for it.
    pub(crate) fn write_sealed(&mut self, request_id: u64, results: Vec<(usize, Result<u64, Error>)>) {
        let Some(PendingRequest::Write(write)) = self.pending_requests.get(request_id) else { return };
        let acked = |place: usize, acks: u64| {
            let id = write.ids[place];
            let replicas = self.cohort_of(self.partition_of(&id)).holders().count() as u32;
            Acked { id, acks: acks as u32, replicas, guarantee: Guarantee::Strict }
        };
        let results: Vec<(usize, Result<Acked, Error>)> =
            results.into_iter().map(|(place, result)| (place, result.map(|acks| acked(place, acks)))).collect();
        let Some(PendingRequest::Write(write)) = self.pending_requests.get_mut(request_id) else { return };
        for (place, result) in results {
            assert!(write.results[place].is_none(), "a leader answers once for each completion");
            write.results[place] = Some(result);
            assert!(write.open > 0, "an item is decided after all have been");
            write.open -= 1;
        }
        if write.open == 0 {
            self.signals.report(Signal::WriteEnded(request_id));
        }
    }

    pub(crate) fn cancel(&mut self, client: ClientId, number: u64, id: TaskId, cancel: Cancel, acks: Acks) {
        self.write(client, number, vec![(id, Task::from_cancel(cancel))], (acks, true));
    }

    /// Sends facts to the replicas of their partitions.
    pub(crate) fn write(&mut self, client: ClientId, number: u64, items: Vec<(TaskId, Task)>, how: (Acks, bool)) {
        self.write_for(Writer::Client(client, number), items, how);
    }

    pub(crate) fn write_for(&mut self, writer: Writer, items: Vec<(TaskId, Task)>, how: (Acks, bool)) {
        let until_us = self.after_ms(self.config.request_timeout_ms);
        self.write_until(writer, items, how, until_us);
    }

    /// As [`Node::write_for`], with a deadline.
    pub(crate) fn write_until(
        &mut self,
        writer: Writer,
        items: Vec<(TaskId, Task)>,
        how: (Acks, bool),
        deadline_us: u64,
    ) {
        let ids = items.iter().map(|(id, _)| *id).collect();
        self.begin_write(writer, (ids, items.into_iter().enumerate().collect()), how, deadline_us);
    }

    /// As [`Node::write`], with facts for some of the tasks alone. The results of the others come from elsewhere, such as the leaders.
    pub(crate) fn begin_write(
        &mut self,
        writer: Writer,
        (ids, facts): (Vec<TaskId>, Vec<Placed>),
        (acks, single): (Acks, bool),
        deadline_us: u64,
    ) -> u64 {
        assert!(facts.len() <= ids.len(), "a write has more facts than tasks");
        let mut grouped: BTreeMap<PartitionId, Vec<Placed>> = BTreeMap::new();
        for (place, item) in facts {
            grouped.entry(self.partition_of(&item.0)).or_default().push((place, item));
        }
        let groups = grouped
            .into_iter()
            .map(|(partition, placed)| {
                let (places, items): (Vec<usize>, Vec<(TaskId, Task)>) = placed.into_iter().unzip();
                let late =
                    items.iter().map(|(_, task)| self.brings_late(task.outbox().map(|(_, done)| done))).collect();
                let mixed = mutant!(self.config, VersionsMixed);
                let mut group = Group::new(items, places, self.cohort_of(partition), mixed);
                group.late = late;
                (partition, group)
            })
            .collect();
        let request_id = self.pending_requests.open(PendingRequest::Write(PendingWrite {
            writer,
            acks,
            single,
            groups,
            results: vec![None; ids.len()],
            open: ids.len(),
            ids,
            deadline_us,
        }));
        if self
            .pending_requests
            .get(request_id)
            .is_some_and(|request_id| matches!(request_id, PendingRequest::Write(write) if write.open == 0))
        {
            self.signals.report(Signal::WriteEnded(request_id));
        } else {
            self.keep_for_absent(request_id);
            self.send_writes(request_id);
        }
        request_id
    }

    /// Hinted handoff for `acks=one`: if no replica can be reached, this node stores the write in its own hints and counts that as the
    /// ack. It does so at once if it hears none of them, and after half of the request timeout if it hears some that do not answer.
    pub(crate) fn keep_for_absent(&mut self, request_id: u64) {
        let Some(PendingRequest::Write(write)) =
            self.pending_requests.get(request_id).filter(|_| self.config.hints_bytes_max > 0)
        else {
            return;
        };
        if write.acks != Acks::One {
            return;
        }
        let late = self.now.mono_us >= self.late_us(write);
        let silent = |(partition, group): &(&PartitionId, &Group)| {
            !group.keeps
                && group.answers.is_empty()
                && self.partitions.get(partition).is_none_or(Partition::is_blank)
                && (late || self.all_away(group.newest()))
        };
        let groups: Vec<(PartitionId, Items)> =
            write.groups.iter().filter(silent).map(|(partition, group)| (*partition, group.items.clone())).collect();
        for (partition, items) in groups {
            if let Some(PendingRequest::Write(write)) = self.pending_requests.get_mut(request_id)
                && let Some(group) = write.groups.get_mut(&partition)
            {
                assert!(group.kept.is_none(), "what is kept for a write is answered before it is kept");
                group.keeps = true;
                self.signals.report(Signal::Unreached { request_id, partition, items });
            }
        }
    }

    /// Whether no holder of this cohort is heard, after there was time to hear them.
    fn all_away(&self, cohort: &Cohort) -> bool {
        let patience_us = self.config.election_timeout_ms * 1_000;
        self.now.mono_us >= self.pending_requests.listens_us + patience_us
            && cohort.holders().all(|slot| !self.is_alive(slot.replica.node))
    }

    /// The time after which `acks=one` stops waiting for replicas that are heard and do not answer.
    fn late_us(&self, write: &PendingWrite) -> u64 {
        write.deadline_us.saturating_sub(self.config.request_timeout_ms * 1_000 / 2)
    }

    /// The time at which a write is looked at if nothing else happens.
    pub(crate) fn look_at_us(&self, write: &PendingWrite) -> u64 {
        let late_us = self.late_us(write);
        if write.acks == Acks::One && self.now.mono_us < late_us { late_us } else { write.deadline_us }
    }

    /// Sends a write to every replica that has not answered, or whose repeated answer may count for more. While this node keeps a hint
    /// and hears no replica, it sends to none: then a refusal by this node is final.
    pub(crate) fn send_writes(&mut self, request_id: u64) {
        let away = |group: &Group| group.keeps && !group.is_sent() && self.all_away(group.newest());
        let Some(PendingRequest::Write(write)) = self.pending_requests.get(request_id) else { return };
        if write.open == 0 {
            // It is closed next.
            return;
        }
        let groups: Vec<PartitionId> =
            write.groups.iter().filter(|(_, group)| !away(group)).map(|(partition, _)| *partition).collect();
        let draining_replicas = write.groups.values().flat_map(|group| group.newest().draining_replicas.iter());
        let draining_replicas = draining_replicas
            .map(|draining_replica| draining_replica.slot.replica.node)
            .filter(|node| self.is_alive(*node));
        let there: BTreeSet<NodeId> = draining_replicas.collect();
        let Some(PendingRequest::Write(write)) = self.pending_requests.get_mut(request_id) else { return };
        let majority = write.acks == Acks::Quorum;
        for partition in groups {
            let group = write.groups.get_mut(&partition).expect("just listed");
            let first = !group.is_sent();
            let again = |answer: &WriteAnswer| majority && answer.incomplete && !answer.lasting;
            let at = group.newest().version;
            let answered =
                |slot: &&CohortSlot| group.answers.get(&(slot.replica, at)).is_some_and(|answer| !again(answer));
            // The cohort heard of last need not be the current one.
            let asked = group.cohorts.values().flat_map(|cohort| cohort.holders().filter(|slot| !answered(slot)));
            // Learners and draining replicas do not answer; they get the write so that they are equal soon.
            let (coming, going) = (
                group.newest().learners(),
                group.newest().draining_replicas.iter().map(|draining_replica| &draining_replica.slot),
            );
            let going = going.filter(|slot| there.contains(&slot.replica.node));
            let quiet = coming.chain(going).filter(|_| first).map(|slot| (slot.replica.node, false));
            let asked = asked.map(|slot| (slot.replica.node, true));
            // A node that counts in one of the cohorts answers.
            let nodes: BTreeMap<NodeId, bool> = quiet.chain(asked).collect();
            for (node, counts) in nodes {
                group.sent_to(node, counts);
                let message = ReadWrite::Write { request_id, partition, at, items: group.items.clone() };
                self.outbox.send(node, message);
            }
        }
        self.set_request_timer(request_id);
    }

    /// At a replica: stores what it may, and answers when that is on disk.
    pub(crate) fn on_write(
        &mut self,
        from: NodeId,
        request_id: u64,
        (partition, at): (PartitionId, Viewstamp),
        items: &Items,
    ) {
        let not_durable = mutant!(self.config, AckBeforeDurable);
        let right = self.genesis.is_some() && items.iter().all(|(id, _)| self.partition_of(id) == partition);
        let Some(replica) = self.partitions.get(&partition).filter(|_| right) else {
            self.outbox.refuse("write to a partition that is not held here");
            return;
        };
        if replica.borrowed {
            // A leader comes sooner or later, and the coordinator repeats the write.
            return;
        }
        if replica.role() == Role::Learner && !replica.cohort().is_joint() && !replica.is_blank() {
            // A learner stores the write, so that it is near the others when it begins to count. It does not acknowledge.
            self.merge_quietly(partition, items);
            return;
        }
        if replica.is_dismissed() && at >= replica.cohort().version {
            self.merge_quietly(partition, items);
            return;
        }
        // A replica without a vote would have to hand over what it took, so it takes nothing.
        if !replica.cohort().has_voter(self.me) || replica.is_blank() {
            let advertised = Box::new(self.route_of(partition));
            self.outbox.send(from, Peering::Route { partition, advertised });
            return;
        }
        let (own, boot, incomplete) = (replica.consensus.me, self.boot, !self.speaks_for(partition));
        let (own_at, advertised, log) =
            (replica.cohort().version, self.news_for(partition, at), LogPosition::default());
        self.repair.yield_to(items);
        let outcomes: Vec<Outcome> = items.iter().map(|(id, delta)| self.admit(partition, id, delta)).collect();
        let stored = |outcome: &Outcome| matches!(outcome, Outcome::Stored | Outcome::StoredOrphan);
        if outcomes.iter().all(stored) {
            self.merge_shared(partition, items);
        } else {
            let admitted = items.iter().zip(&outcomes).filter(|(_, outcome)| stored(outcome));
            self.merge(partition, admitted.map(|(item, _)| item.clone()).collect());
        }
        let answer = ReadWrite::Written {
            request_id,
            partition,
            replica: own,
            outcomes,
            boot,
            at: own_at,
            advertised,
            incomplete,
            log,
        };
        if not_durable {
            self.outbox.send(from, answer);
        } else {
            self.outbox.send_durable(from, answer);
        }
    }

    fn merge_quietly(&mut self, partition: PartitionId, items: &Items) {
        let stored = |(id, delta): &&(TaskId, Task)| {
            matches!(self.admit(partition, id, delta), Outcome::Stored | Outcome::StoredOrphan)
        };
        let admitted = items.iter().filter(stored).cloned().collect();
        self.merge(partition, admitted);
    }

    pub(crate) fn on_written(
        &mut self,
        from: NodeId,
        request_id: u64,
        partition: PartitionId,
        replica: ReplicaId,
        (answer, advertised): (WriteAnswer, Option<Box<AdvertisedCohort>>),
    ) {
        // The replica has lost data since that incarnation, perhaps this.
        if self.has_lost_since(from, answer.boot) {
            return;
        }
        let Some(PendingRequest::Write(write)) = self.pending_requests.get_mut(request_id) else { return };
        let Some(group) = write.groups.get_mut(&partition) else { return };
        let cohort = advertised.as_deref().map(|advertised| &advertised.cohort);
        let cohort = cohort.filter(|cohort| cohort.is_sound() && cohort.version == answer.at);
        let later = cohort.is_some_and(|cohort| group.take_cohort(cohort.clone()));
        let known = group.cohorts.get(&answer.at).is_some_and(|cohort| cohort.has_replica(&replica));
        if !known || replica.node != from || answer.outcomes.len() != group.items.len() {
            self.outbox.refuse("acknowledgement of a replica that is no member");
            return;
        }
        group.take(replica, answer);
        self.judge_write(request_id, partition);
        if later {
            self.send_writes(request_id);
        }
        if let Some(advertised) = advertised {
            self.learn_route(partition, &advertised);
        }
    }

    /// Handles the outcome of a hint: what this node keeps for the members is on its disk, or refused.
    pub(crate) fn on_kept(&mut self, from: NodeId, request_id: u64, partition: PartitionId, outcomes: Vec<Outcome>) {
        let Some(PendingRequest::Write(write)) = self.pending_requests.get_mut(request_id).filter(|_| from == self.me)
        else {
            return;
        };
        let Some(group) = write.groups.get_mut(&partition) else { return };
        assert!(group.keeps && outcomes.len() == group.items.len(), "a node knows what it keeps");
        assert!(group.kept.is_none(), "what is kept for a write is answered twice");
        group.kept = Some(outcomes);
        self.judge_write(request_id, partition);
    }

    /// Records the items of a partition whose result is certain by now. Answers the client with the last one.
    fn judge_write(&mut self, request_id: u64, partition: PartitionId) {
        let Some(PendingRequest::Write(write)) = self.pending_requests.get_mut(request_id) else { return };
        let Some(group) = write.groups.get_mut(&partition) else { return };
        let roster = &self.roster;
        let name = |node| name_in(roster, node);
        let plain = group.plain(write.acks);
        let result = |index: usize| match plain {
            Some(acked) => acked.map(|acked| Ok(Acked { id: group.items[index].0, ..acked })),
            None => group.result(index, write.acks, &name),
        };
        for (index, place) in group.places.iter().enumerate() {
            if write.results[*place].is_none()
                && let Some(result) = result(index)
            {
                write.results[*place] = Some(result);
                assert!(write.open > 0, "an item is decided after all have been");
                write.open -= 1;
            }
        }
        if write.open == 0 {
            self.signals.report(Signal::WriteEnded(request_id));
        }
    }

    /// Handles a newer cohort of a partition: pending writes go to it as well.
    pub(crate) fn on_route(&mut self, partition: PartitionId, advertised: &AdvertisedCohort) {
        self.learn_route(partition, advertised);
        let cohort = &advertised.cohort;
        let mut again = Vec::new();
        for (number, write) in self.pending_requests.writes_mut() {
            if cohort.is_sound()
                && write.groups.get_mut(&partition).is_some_and(|group| group.take_cohort(cohort.clone()))
            {
                again.push(number);
            }
        }
        for number in again {
            self.send_writes(number);
        }
    }

    /// Discards what a node that has lost data acknowledged in incarnations before `boot`, so that it is asked again.
    pub(crate) fn forget_answers(&mut self, node: NodeId, boot: u64) {
        for (_, write) in self.pending_requests.writes_mut() {
            for group in write.groups.values_mut() {
                group.answers.retain(|(replica, _), answer| replica.node != node || answer.boot >= boot);
            }
        }
    }

    /// Ends a write. What is undecided at the deadline may have been stored, or may yet be.
    pub(crate) fn end_write(&mut self, request_id: u64) -> Option<WriteEnd> {
        let Some(PendingRequest::Write(write)) = self.close_request(request_id) else { return None };
        assert_eq!(write.results.len(), write.ids.len(), "a write has other results than tasks");
        let unknown = |id: &TaskId| {
            let message = "too few replicas answered in time; repeat the call with the same id";
            Error::new(ErrorCode::Unknown, message).about(*id)
        };
        let mut refused: BTreeMap<usize, Error> = BTreeMap::new();
        let name = |node| self.name_of(node);
        for group in write.groups.values() {
            let undecided = |(_, place): &(usize, &usize)| write.results[**place].is_none();
            let of_group = group.places.iter().enumerate().filter(undecided);
            let why = |index| group.not_kept(index).or_else(|| group.refused_in_part(index, &name));
            refused.extend(of_group.filter_map(|(index, place)| Some((*place, why(index)?))));
        }
        let for_key = matches!(write.writer, Writer::Unique(_));
        let full = write.groups.values().filter(|_| for_key).find_map(|group| group.full(0, &name));
        let mut results: Vec<Result<Acked, Error>> = write
            .results
            .into_iter()
            .zip(&write.ids)
            .enumerate()
            .map(|(place, (result, id))| {
                result.unwrap_or_else(|| Err(refused.remove(&place).unwrap_or_else(|| unknown(id))))
            })
            .collect();
        // The requester of another task with this key learns of the lack of room alone (`workflow/uniques.rs`).
        if let (Some(Err(error)), Some(full)) = (results.first_mut(), full) {
            *error = full;
        }
        let PendingWrite { writer, single, ids, .. } = write;
        Some(WriteEnd { writer, single, ids, results })
    }
}
