//! Writes: any node sends facts to all replicas of their partition and answers when enough have them on disk.

use super::Ask;
use crate::config::mutant;
use crate::limits::{ID_AHEAD_MS_MAX, ORPHANS_MAX};
use crate::protocol::consistent::ReplicaId;
use crate::protocol::event::ClientId;
use crate::protocol::peer::{Items, LogWord, Outcome, PeerMessage};
use crate::protocol::task::{Cancel, Completed, Task};
use crate::protocol::{Node, Observation, ring};
use norn_client::wire::error::{Error, ErrorCode};
use norn_client::wire::request::Completion;
use norn_client::wire::response::{Acked, Guarantee};
use norn_client::wire::{Acks, NewTask, NodeId, PartitionId, Response, TaskId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// An item and its place in the request.
type Placed = (usize, (TaskId, Task));

/// Items of one partition within a write.
#[derive(Debug)]
struct Group {
    items: Items,
    /// Places in the request.
    places: Vec<usize>,
    cohort: Vec<ReplicaId>,
    /// By replica.
    answers: BTreeMap<ReplicaId, WriteAnswer>,
    /// This node holds no replica, and keeps the facts for those that do.
    keeps: bool,
    /// It was sent to replicas, which may have stored it whatever they answer.
    sent: bool,
    /// Item by item, once they are kept on its disk.
    kept: Option<Vec<Outcome>>,
}

/// What a replica answered to a write.
#[derive(Debug)]
pub struct WriteAnswer {
    /// Item by item.
    pub outcomes: Vec<Outcome>,
    /// The replica's start in which it stored them.
    pub boot: u64,
    /// It may have forgotten what stands under these keys.
    pub holes: bool,
    /// And that will last: it is not just its start that has not been answered yet.
    pub lasting: bool,
}

/// A write under way.
#[derive(Debug)]
pub struct WriteAsk {
    /// Who waits.
    pub client: ClientId,
    number: u64,
    acks: Acks,
    /// Answer with one item, not with a list.
    single: bool,
    groups: BTreeMap<PartitionId, Group>,
    results: Vec<Option<Result<Acked, Error>>>,
    open: usize,
    ids: Vec<TaskId>,
    /// When to give up.
    pub deadline_us: u64,
}

/// How the answers to one item add up.
struct Tally {
    stored: usize,
    orphan: usize,
    /// Of these, by replicas without holes.
    whole: usize,
    /// Of the orphans, by replicas without holes: others may have forgotten the task.
    orphan_whole: usize,
    conflict: usize,
    future: usize,
    overloaded: usize,
    too_old: usize,
    /// Of these, by replicas without holes.
    too_old_whole: usize,
    no_space: usize,
    /// Stored, by replicas with holes that will not last: they count when they are asked again.
    holed: usize,
    silent: usize,
}

impl Group {
    fn tally(&self, index: usize) -> Tally {
        let mut tally = Tally {
            stored: 0,
            orphan: 0,
            whole: 0,
            orphan_whole: 0,
            conflict: 0,
            future: 0,
            overloaded: 0,
            too_old: 0,
            too_old_whole: 0,
            no_space: 0,
            holed: 0,
            silent: self.cohort.len() - self.answers.len(),
        };
        for answer in self.answers.values() {
            let (whole, soon) = (usize::from(!answer.holes), usize::from(answer.holes && !answer.lasting));
            match answer.outcomes[index] {
                Outcome::Stored => {
                    tally.stored += 1;
                    tally.whole += whole;
                    tally.holed += soon;
                }
                Outcome::StoredOrphan => {
                    tally.orphan += 1;
                    tally.whole += whole;
                    tally.orphan_whole += whole;
                    tally.holed += soon;
                }
                Outcome::Conflict => tally.conflict += 1,
                Outcome::Future => tally.future += 1,
                Outcome::Overloaded => tally.overloaded += 1,
                Outcome::TooOld => {
                    tally.too_old += 1;
                    tally.too_old_whole += whole;
                }
                Outcome::NoSpace => tally.no_space += 1,
            }
        }
        tally
    }

    /// The first answer counts, but for one of a replica whose start has been answered since, or that has healed.
    fn take(&mut self, replica: ReplicaId, answer: WriteAnswer) {
        let known = self.answers.get(&replica);
        if known.is_none_or(|known| known.holes && !answer.holes) {
            self.answers.insert(replica, answer);
        }
    }

    /// What became of an item that this node was to keep for the replicas.
    fn kept_as(&self, index: usize) -> Option<Outcome> {
        self.kept.as_ref().map(|outcomes| outcomes[index])
    }

    /// Why an item that no replica has answered to was not kept here either. It may be stored where it was sent.
    fn not_kept(&self, index: usize) -> Option<Error> {
        let error = match self.kept_as(index).filter(|_| self.answers.is_empty())? {
            Outcome::Conflict => Error::new(
                ErrorCode::Conflict,
                "this id or number was used with other content, which is kept for the replicas; nothing was overwritten",
            ),
            Outcome::Future => {
                Error::new(ErrorCode::IdFromFuture, "the id was minted too far in the future; check the clocks")
            }
            Outcome::NoSpace => {
                Error::new(ErrorCode::NoSpace, "no replica can be reached, and the disk is nearly full")
            }
            Outcome::Overloaded => Error::new(
                ErrorCode::Overloaded,
                "no replica can be reached, and this node keeps as much for replicas as it may (`hints_bytes_max`)",
            ),
            Outcome::Stored | Outcome::StoredOrphan | Outcome::TooOld => return None,
        };
        let error = if self.sent {
            let why = error.message;
            let message = format!("no replica answered in time, and it is not kept here ({why}); repeat the call");
            Error::new(ErrorCode::Unknown, message)
        } else {
            error
        };
        Some(error.about(self.items[index].0))
    }

    /// The result of one item, once it is certain.
    fn result(&self, index: usize, acks: Acks) -> Option<Result<Acked, Error>> {
        let id = self.items[index].0;
        let replicas = self.cohort.len();
        let majority = replicas / 2 + 1;
        let tally = self.tally(index);
        let kept = usize::from(self.kept_as(index) == Some(Outcome::Stored));
        let stored = tally.stored + tally.orphan + kept;
        let (reached, yet, needed) = match acks {
            Acks::One => (stored, tally.silent, 1),
            Acks::Quorum => (tally.whole, tally.silent + tally.holed, majority),
            Acks::All => (stored, tally.silent, replicas),
        };
        let enqueues = self.items[index].1.spec.is_some();
        if tally.orphan_whole + tally.too_old_whole >= majority && !enqueues {
            return Some(Err(Error::new(ErrorCode::NotFound, "no such task").about(id)));
        }
        if reached >= needed && tally.stored + kept > 0 {
            let guarantee = if tally.whole >= majority { Guarantee::Strict } else { Guarantee::Sloppy };
            return Some(Ok(Acked { id, acks: stored as u32, replicas: replicas as u32, guarantee }));
        }
        if reached + yet >= needed {
            return None;
        }
        let error = if tally.too_old > 0 && enqueues && stored > 0 {
            // Who stored it is behind, and may have it all the same.
            Error::new(ErrorCode::Unknown, "some replicas have stored it, others find the id too old; repeat the call")
        } else if tally.too_old > 0 && enqueues {
            let message =
                "the id is older than tasks that were forgotten: it may be one of them; enqueue under a new id";
            Error::new(ErrorCode::TooOld, message)
        } else if tally.conflict > 0 {
            Error::new(ErrorCode::Conflict, "this id or number was used with other content; nothing was overwritten")
        } else if tally.future > 0 {
            Error::new(
                ErrorCode::IdFromFuture,
                "the id was minted too far in the future; check the clocks, mint a new one",
            )
        } else if tally.overloaded > 0 {
            let why = if self.items[index].1.spec.is_some() {
                "nodes keep as many tasks as they may; repeat the call when some have ended, or raise `tasks_max`"
            } else {
                "too many facts about unknown tasks are held; enqueue first, or try later"
            };
            Error::new(ErrorCode::Overloaded, why)
        } else if tally.no_space > 0 {
            let full = self.answers.iter().filter(|(_, answer)| answer.outcomes[index] == Outcome::NoSpace);
            let full: Vec<String> = full.map(|(replica, _)| replica.node.to_string()).collect();
            let nodes = full.join(", ");
            Error::new(
                ErrorCode::NoSpace,
                format!("the disks of {nodes} are nearly full: make room there, then try again"),
            )
        } else {
            Error::unavailable(format!("{reached} of {needed} wanted replicas have it on disk"))
        };
        Some(Err(error.about(id)))
    }
}

/// Whether facts make the log grow for good, rather than bring a task to its end. `known` says that its spec is there.
pub(super) fn grows(known: bool, delta: &Task) -> bool {
    delta.spec.is_some() && !known || delta.facts.as_ref().is_some_and(|facts| !facts.updates.is_empty())
}

impl Node {
    pub(in crate::protocol) fn enqueue(&mut self, client: ClientId, number: u64, tasks: Vec<NewTask>, acks: Acks) {
        let items = tasks.into_iter().map(|task| (task.id, Task::from_spec(Arc::new(task.spec)))).collect();
        self.write(client, number, items, (acks, false));
    }

    pub(in crate::protocol) fn complete(&mut self, client: ClientId, number: u64, items: Vec<Completion>, acks: Acks) {
        let completed = |item: Completion| {
            let completed = Completed { sequence: item.sequence, result: item.result, at_ms: item.at_ms };
            (item.id, Task::from_completion(item.token, completed))
        };
        self.write(client, number, items.into_iter().map(completed).collect(), (acks, false));
    }

    pub(in crate::protocol) fn cancel(
        &mut self,
        client: ClientId,
        number: u64,
        id: TaskId,
        cancel: Cancel,
        acks: Acks,
    ) {
        self.write(client, number, vec![(id, Task::from_cancel(cancel))], (acks, true));
    }

    /// Sends facts to the replicas of their partitions.
    pub(in crate::protocol) fn write(
        &mut self,
        client: ClientId,
        number: u64,
        items: Vec<(TaskId, Task)>,
        (acks, single): (Acks, bool),
    ) {
        let genesis = self.genesis.clone().expect("asked only in a cluster");
        let ids: Vec<TaskId> = items.iter().map(|(id, _)| *id).collect();
        let mut grouped: BTreeMap<PartitionId, Vec<Placed>> = BTreeMap::new();
        for (place, item) in items.into_iter().enumerate() {
            grouped.entry(self.partition_of(&item.0)).or_default().push((place, item));
        }
        let groups = grouped
            .into_iter()
            .map(|(partition, placed)| {
                let cohort = ring::cohort(&genesis, partition);
                let (places, items): (Vec<usize>, Vec<(TaskId, Task)>) = placed.into_iter().unzip();
                let (items, answers) = (Arc::new(items), BTreeMap::new());
                (partition, Group { items, places, cohort, answers, keeps: false, sent: false, kept: None })
            })
            .collect();
        let ask = self.asks.open(Ask::Write(WriteAsk {
            client,
            number,
            acks,
            single,
            groups,
            results: vec![None; ids.len()],
            open: ids.len(),
            ids,
            deadline_us: self.now.mono_after_ms(self.config.request_timeout_ms),
        }));
        if self.asks.get(ask).is_some_and(|ask| matches!(ask, Ask::Write(write) if write.open == 0)) {
            self.finish_write(ask);
        } else {
            self.keep_for_absent(ask);
            self.send_writes(ask);
        }
    }

    /// Where one disk is enough and no replica can be told, this node's will do: at once if none is heard, and after half of
    /// the time that there is if some are, but do not answer.
    pub(super) fn keep_for_absent(&mut self, ask: u64) {
        let Some(Ask::Write(write)) = self.asks.get(ask).filter(|_| self.config.hints_bytes_max > 0) else { return };
        if write.acks != Acks::One {
            return;
        }
        let late = self.now.mono_us >= self.late_us(write);
        let silent = |(partition, group): &(&PartitionId, &Group)| {
            !group.keeps
                && group.answers.is_empty()
                && !self.partitions.contains_key(partition)
                && (late || self.all_away(&group.cohort))
        };
        let groups: Vec<(PartitionId, Items)> =
            write.groups.iter().filter(silent).map(|(partition, group)| (*partition, group.items.clone())).collect();
        for (partition, items) in groups {
            if let Some(Ask::Write(write)) = self.asks.get_mut(ask)
                && let Some(group) = write.groups.get_mut(&partition)
            {
                group.keeps = true;
                self.keep_hint(ask, partition, &items);
            }
        }
    }

    /// When replicas that are heard and do not answer are not waited for any more.
    fn late_us(&self, write: &WriteAsk) -> u64 {
        write.deadline_us.saturating_sub(self.config.request_timeout_ms * 1_000 / 2)
    }

    /// When a write is to be looked at, if nothing else happens.
    pub(super) fn look_at_us(&self, write: &WriteAsk) -> u64 {
        let late_us = self.late_us(write);
        if write.acks == Acks::One && self.now.mono_us < late_us { late_us } else { write.deadline_us }
    }

    /// Sends to every replica that has not answered, or whose answer may count more when it is given again. As long as this
    /// node keeps it and none can be heard, it is sent to none: then what is refused here is refused for certain.
    pub(super) fn send_writes(&mut self, ask: u64) {
        let away = |group: &Group| group.keeps && !group.sent && self.all_away(&group.cohort);
        let Some(Ask::Write(write)) = self.asks.get(ask) else { return };
        let groups: Vec<PartitionId> =
            write.groups.iter().filter(|(_, group)| !away(group)).map(|(partition, _)| *partition).collect();
        let Some(Ask::Write(write)) = self.asks.get_mut(ask) else { return };
        let majority = write.acks == Acks::Quorum;
        for partition in groups {
            let group = write.groups.get_mut(&partition).expect("just listed");
            group.sent = true;
            let again = |answer: &WriteAnswer| majority && answer.holes && !answer.lasting;
            let answered = |replica: &&ReplicaId| group.answers.get(replica).is_some_and(|answer| !again(answer));
            for replica in group.cohort.iter().filter(|replica| !answered(replica)) {
                let message = PeerMessage::Write { ask, partition, items: group.items.clone() };
                self.outbox.send(replica.node, message);
            }
        }
        self.set_ask_timer(ask);
    }

    /// At a replica: stores what it may, and answers when it is on disk.
    pub(in crate::protocol) fn on_write(&mut self, from: NodeId, ask: u64, partition: PartitionId, items: &Items) {
        let not_durable = mutant!(self.config, AckBeforeDurable);
        let right = self.genesis.is_some() && items.iter().all(|(id, _)| self.partition_of(id) == partition);
        let Some(replica) = self.partitions.get(&partition).filter(|_| right) else {
            self.outbox.observe(Observation::Refused { what: "write to a partition that is not held here" });
            return;
        };
        let (own, boot, holes) = (replica.register.me, self.boot, !self.speaks_for(partition));
        self.asks.exchange.yield_to(items);
        let outcomes: Vec<Outcome> = items.iter().map(|(id, delta)| self.admit(partition, id, delta)).collect();
        let stored = |outcome: &Outcome| matches!(outcome, Outcome::Stored | Outcome::StoredOrphan);
        if outcomes.iter().all(stored) {
            self.learn_shared(partition, items);
        } else {
            let admitted = items.iter().zip(&outcomes).filter(|(_, outcome)| stored(outcome));
            self.learn(partition, admitted.map(|(item, _)| item.clone()).collect());
        }
        let answer =
            PeerMessage::Written { ask, partition, replica: own, outcomes, boot, holes, log: LogWord::default() };
        if not_durable {
            self.outbox.send(from, answer);
        } else {
            self.outbox.send_durable(from, answer);
        }
    }

    fn admit(&self, partition: PartitionId, id: &TaskId, delta: &Task) -> Outcome {
        let replica = &self.partitions[&partition];
        let store = &replica.store;
        if store.tomb(id).is_some() {
            return Outcome::Stored;
        }
        if replica.may_have_forgotten(id) && !mutant!(self.config, FloorIgnored) {
            return Outcome::TooOld;
        }
        let known = store.task(id);
        if known.is_some_and(|task| task.contradicts(delta).is_err()) {
            return Outcome::Conflict;
        }
        if known.is_none() && id.time_ms() > self.now.wall_ms.saturating_add(ID_AHEAD_MS_MAX) {
            return Outcome::Future;
        }
        if known.is_none() && delta.spec.is_some() && self.bodies.tasks() as u64 >= self.config.tasks_max {
            return Outcome::Overloaded;
        }
        if self.disk.is_short() && grows(known.is_some_and(|task| task.spec.is_some()), delta) {
            return Outcome::NoSpace;
        }
        if delta.spec.is_some() || known.is_some_and(|task| task.spec.is_some()) {
            return Outcome::Stored;
        }
        if known.is_none() && store.index().orphans() >= ORPHANS_MAX {
            Outcome::Overloaded
        } else {
            Outcome::StoredOrphan
        }
    }

    pub(in crate::protocol) fn on_written(
        &mut self,
        from: NodeId,
        ask: u64,
        partition: PartitionId,
        replica: ReplicaId,
        answer: WriteAnswer,
    ) {
        // Since then it has lost something, and this perhaps.
        if self.peers.get(&from).is_some_and(|peer| answer.boot < peer.counts_from) {
            return;
        }
        let Some(Ask::Write(write)) = self.asks.get_mut(ask) else { return };
        let Some(group) = write.groups.get_mut(&partition) else { return };
        let member = group.cohort.contains(&replica) && replica.node == from;
        let keeper = group.keeps && from == self.me;
        if !(member || keeper) || answer.outcomes.len() != group.items.len() {
            self.outbox.observe(Observation::Refused { what: "acknowledgement of a replica that is no member" });
            return;
        }
        if keeper {
            group.kept = Some(answer.outcomes);
        } else {
            group.take(replica, answer);
        }
        for (index, place) in group.places.iter().enumerate() {
            if write.results[*place].is_none()
                && let Some(result) = group.result(index, write.acks)
            {
                write.results[*place] = Some(result);
                write.open -= 1;
            }
        }
        if write.open == 0 {
            self.finish_write(ask);
        }
    }

    /// A node has lost something: what it acknowledged in starts before `boot` must be asked for again.
    pub(in crate::protocol) fn forget_answers(&mut self, node: NodeId, boot: u64) {
        for write in self.asks.writes_mut() {
            for group in write.groups.values_mut() {
                group.answers.retain(|replica, answer| replica.node != node || answer.boot >= boot);
            }
        }
    }

    /// Answers the client. What is undecided at the deadline may have been stored, or may yet be.
    pub(super) fn finish_write(&mut self, ask: u64) {
        let Some(Ask::Write(write)) = self.close_ask(ask) else { return };
        let unknown = |id: &TaskId| {
            let message = "too few replicas answered in time; repeat the call with the same id";
            Error::new(ErrorCode::Unknown, message).about(*id)
        };
        let mut refused: BTreeMap<usize, Error> = BTreeMap::new();
        for group in write.groups.values() {
            let of_group = group.places.iter().enumerate();
            refused.extend(of_group.filter_map(|(index, place)| Some((*place, group.not_kept(index)?))));
        }
        let mut results: Vec<Result<Acked, Error>> = write
            .results
            .into_iter()
            .zip(&write.ids)
            .enumerate()
            .map(|(place, (result, id))| {
                result.unwrap_or_else(|| Err(refused.remove(&place).unwrap_or_else(|| unknown(id))))
            })
            .collect();
        let response = match (write.single, results.pop()) {
            (true, Some(Ok(acked))) => Response::AckedOne(acked),
            (true, Some(Err(error))) => Response::Error(error),
            (_, last) => Response::Acked(results.into_iter().chain(last).collect()),
        };
        self.outbox.reply(write.client, write.number, response);
    }
}
