//! Nothing is acknowledged before it is on the disks that the acknowledgement promises; what is on a disk survives a crash.
//! (ARCHITECTURE.md I-6, I-11, R-5)
//!
//! A ghost of each node follows the records that the node gives to its log and the syncs that end. It takes the answer at the moment
//! the node gives it, which is earlier than any client sees it.

use super::Property;
use crate::history::{Fact, Happening, History, Moment, acks_of, facts_of, writes_of};
use norn_engine::{Observation, Ticket};
use norn_model::claim_table::table::{ClaimTable, Ended, Op};
use norn_model::record::Record;
use norn_model::task::Task;
use norn_wire::request::{Acks, Request};
use norn_wire::response::{Acked, Guarantee, Response};
use norn_wire::{PartitionId, TaskId, Token};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// Something that a record teaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Lesson {
    Fact(TaskId, Fact),
    /// A grant. Later tables may replace it, but it was there.
    Grant(TaskId, Token),
}

#[derive(Debug, Default)]
struct Ghost {
    pending: Vec<(Ticket, Lesson)>,
    /// Of these, what the node learned as a replica.
    pending_held: Vec<(Ticket, Lesson)>,
    durable: BTreeSet<Lesson>,
    /// What the disk has lost of `durable` since. An acknowledgement before the loss was right.
    lost: BTreeSet<Lesson>,
    /// What the node has as a replica, and not only as hints for others.
    held: BTreeSet<Lesson>,
    /// What of `held` is on disk as such. Hints for others may be there, too.
    held_durably: BTreeSet<Lesson>,
    /// What the node dropped when it was cleared.
    left: BTreeSet<Lesson>,
    /// Hints that the node keeps for members now, of partitions that it does not hold.
    kept: BTreeSet<Lesson>,
    /// The node does not run.
    down: bool,
    /// Tasks whose hints the node can never hand over.
    orphaned: BTreeSet<TaskId>,
    /// Tasks that the node has forgotten for good.
    forgotten: BTreeSet<TaskId>,
}

impl Ghost {
    /// Drops all that the node had of a partition.
    fn leave(&mut self, history: &History, partition: PartitionId) {
        let stays = |lesson: &Lesson| {
            let (Lesson::Fact(id, _) | Lesson::Grant(id, _)) = lesson;
            history.partition(id) != partition
        };
        let kept = self.kept.clone();
        self.left.extend(self.durable.iter().filter(|lesson| !stays(lesson)));
        self.held.retain(stays);
        self.held_durably.retain(stays);
        self.durable.retain(|lesson| stays(lesson) || kept.contains(lesson));
        self.pending.retain(|(_, lesson)| stays(lesson));
        self.pending_held.retain(|(_, lesson)| stays(lesson));
        self.forgotten.retain(|id| history.partition(id) != partition);
    }

    /// Takes in that the disk has lost records, of which `left` are still there.
    fn harm(&mut self, lost: &[Record], left: &[Record]) {
        let left = lessons_left(left);
        self.lost.extend(lost.iter().flat_map(lessons_of).filter(|lesson| !left.contains(lesson)));
    }

    /// Takes in the node's log at a start.
    fn replay(&mut self, history: &History, records: &[Record]) {
        self.kept.clear();
        let lost: BTreeSet<Lesson> = self.lost.intersection(&self.durable).copied().collect();
        for record in records {
            let lessons = lessons_of(record);
            lessons.iter().for_each(|lesson| self.learn(*lesson));
            match record {
                Record::Left { partition, .. } => self.leave(history, *partition),
                Record::Forgot { ids, .. } => self.forgotten.extend(ids),
                Record::Hint { .. } => self.kept.extend(lessons),
                Record::Facts { .. } => {
                    self.held.extend(lessons.iter().copied());
                    self.held_durably.extend(lessons);
                }
                Record::Handed { to: None, ids, .. } => {
                    let named = |lesson: &Lesson| matches!(lesson, Lesson::Fact(id, _) if ids.contains(id));
                    self.kept.retain(|lesson| !named(lesson));
                    let held = &self.held;
                    self.durable.retain(|lesson| !named(lesson) || held.contains(lesson));
                }
                _ => {}
            }
        }
        // A hint that was handed over is no copy of what the node has lost. And a log that ends earlier than it did says nothing of
        // what came later: neither that it is there, nor, by the record of a cohort slot that was left before, that it is dropped.
        let left = lessons_left(records);
        self.durable.extend(lost.iter().copied());
        self.left.retain(|lesson| !lost.contains(lesson));
        self.lost.extend(lost.into_iter().filter(|lesson| !left.contains(lesson)));
    }

    fn learn(&mut self, lesson: Lesson) {
        self.lost.remove(&lesson);
        self.durable.insert(lesson);
    }
}

#[derive(Debug, Default)]
pub struct Durability {
    ghosts: BTreeMap<usize, Ghost>,
}

/// Tombstone of the task that a lesson is about.
fn swallowing(lesson: Lesson) -> Lesson {
    match lesson {
        Lesson::Fact(id, _) | Lesson::Grant(id, _) => Lesson::Fact(id, Fact::Tombstone),
    }
}

fn ended(items: &[Ended]) -> impl Iterator<Item = Lesson> + '_ {
    items.iter().flat_map(|item| facts_of(&item.facts).into_iter().map(|fact| Lesson::Fact(item.id, fact)))
}

fn lessons_of_table(table: &ClaimTable, lessons: &mut Vec<Lesson>) {
    lessons.extend(table.entries.iter().map(|(id, entry)| Lesson::Grant(*id, entry.token)));
    lessons.extend(table.out.values().flat_map(|items| ended(items)));
}

fn lessons_of(record: &Record) -> Vec<Lesson> {
    let mut lessons = Vec::new();
    match record {
        Record::Facts { items, .. } | Record::Hint { items, .. } => {
            for (id, task) in items.iter() {
                lessons.extend(facts_of(task).into_iter().map(|fact| Lesson::Fact(*id, fact)));
            }
        }
        Record::Ops { after, ops, .. } => {
            for op in ops {
                match &**op {
                    Op::Grant { items, .. } => lessons.extend(
                        items
                            .iter()
                            .map(|(id, number)| Lesson::Grant(*id, Token { epoch: after.epoch, number: *number })),
                    ),
                    Op::Drop { items } => lessons.extend(ended(items)),
                    _ => {}
                }
            }
        }
        Record::Install { table: Some(table), .. } => lessons_of_table(table, &mut lessons),
        _ => {}
    }
    lessons
}

fn task_of(lesson: &Lesson) -> TaskId {
    let (Lesson::Fact(id, _) | Lesson::Grant(id, _)) = lesson;
    *id
}

/// What a log with these records teaches. Hints that it has handed over are not part of it.
fn lessons_left(records: &[Record]) -> BTreeSet<Lesson> {
    let (mut own, mut kept) = (BTreeSet::new(), BTreeSet::new());
    for record in records {
        match record {
            Record::Hint { .. } => kept.extend(lessons_of(record)),
            Record::Handed { to: None, ids, .. } => kept.retain(|lesson| !ids.contains(&task_of(lesson))),
            _ => own.extend(lessons_of(record)),
        }
    }
    own.union(&kept).copied().collect()
}

impl Durability {
    /// Nodes that have a lesson on disk, or the tombstone that swallows it, or a later grant of the same task: a delayed answer may
    /// name a claim that has expired since.
    fn holders(&self, lesson: Lesson) -> BTreeSet<usize> {
        let later = |ghost: &Ghost| match lesson {
            Lesson::Grant(id, _) => {
                let mut after = ghost.durable.range((Bound::Excluded(lesson), Bound::Unbounded));
                after.next().is_some_and(|next| matches!(next, Lesson::Grant(other, _) if *other == id))
            }
            Lesson::Fact(..) => false,
        };
        let has = |ghost: &Ghost| {
            ghost.durable.contains(&lesson) || ghost.durable.contains(&swallowing(lesson)) || later(ghost)
        };
        self.ghosts.iter().filter(|(_, ghost)| has(ghost)).map(|(node, _)| *node).collect()
    }

    /// Number of nodes that had a lesson on disk and have been cleared since.
    fn left_with(&self, lesson: Lesson) -> usize {
        let had = |ghost: &&Ghost| ghost.left.contains(&lesson) || ghost.left.contains(&swallowing(lesson));
        self.ghosts.values().filter(had).count()
    }

    fn majority(&self, history: &History, id: &TaskId, lesson: Lesson) -> Result<(), String> {
        let (holders, cohort) = (self.holders(lesson), history.cohort(history.partition(id)));
        let left = |node: &usize| !self.ghosts[node].lost.contains(&lesson);
        let safe = history.is_safe(history.partition(id), |node| holders.contains(&node));
        if safe && holders.iter().any(left) {
            return Ok(());
        }
        Err(format!("{lesson:?} was confirmed, but of the cohort {cohort:?} only {holders:?} have it on disk"))
    }

    fn write(&self, history: &History, request: &Request, lesson: Lesson, acked: &Acked) -> Result<(), String> {
        let count = self.holders(lesson).len() + self.left_with(lesson);
        if count < acked.acks as usize || count == 0 {
            return Err(format!("{lesson:?} was confirmed with {} acks, but {count} disks have it", acked.acks));
        }
        if let Some(Acks::Count(wanted)) = request.acks()
            && acked.acks < u32::from(wanted.get())
        {
            return Err(format!("{lesson:?} was confirmed with {} acks, and {wanted} were asked for", acked.acks));
        }
        let is_redrive = matches!(request, Request::Redrive { .. });
        if request.acks() == Some(Acks::All)
            && !is_redrive
            && acked.acks < acked.replicas
            && acked.guarantee == Guarantee::Strict
        {
            // All replicas were asked for. Fewer acks may be reported, but not claimed to be all.
            self.majority(history, &acked.id, lesson)?;
        }
        match acked.guarantee {
            Guarantee::Strict => self.majority(history, &acked.id, lesson),
            Guarantee::Sloppy => Ok(()),
        }
    }

    /// Checks the answer to a redrive. It counts the disks that have the copy once that is written in its own partition, which may have
    /// more replicas than that of the dead task, and otherwise those that have the fact in the dead task.
    fn redriven(&self, history: &History, request: &Request, (dead, acked): (TaskId, Acked)) -> Result<(), String> {
        let fact = Lesson::Fact(dead, Fact::Completion(Token::of_copy(acked.id)));
        let spec = history.specs.get(&acked.id);
        let copy = spec.map(|spec| Lesson::Fact(acked.id, Fact::Spec(crate::history::spec_hash(spec))));
        let disks = |lesson: Lesson| self.holders(lesson).len() + self.left_with(lesson);
        match copy.filter(|copy| disks(*copy) >= acked.acks as usize) {
            Some(_) if disks(fact) == 0 => Err(format!("{fact:?} was confirmed, and no disk has it")),
            Some(copy) => self.write(history, request, copy, &acked),
            None => self.write(history, request, fact, &Acked { id: dead, ..acked }),
        }
    }

    fn reply(&self, history: &History, request: &Request, response: &Response) -> Result<(), String> {
        if let Response::Claimed { tasks, .. } = response {
            for task in tasks {
                self.majority(history, &task.id, Lesson::Grant(task.id, task.token))?;
            }
        }
        let writes = writes_of(request);
        if let Response::Transacted(Ok(_)) = response {
            // A repeated request gets the same answer as before, and all that it wrote may be forgotten since.
            let forgot = |id: &TaskId| self.ghosts.values().any(|ghost| ghost.forgotten.contains(id));
            let mut known = writes.iter().filter(|(id, _)| !forgot(id));
            return known.try_for_each(|(id, fact)| self.majority(history, id, Lesson::Fact(*id, *fact)));
        }
        for (place, acked) in acks_of(response) {
            let Some((id, fact)) = writes.get(place) else {
                return Err(format!("{} has no item {place}, but the answer has", request.verb()));
            };
            if let Request::Redrive { .. } = request {
                self.redriven(history, request, (*id, acked))?;
                continue;
            }
            if matches!(response, Response::AckedUnique { existing: true, .. }) {
                // Another task with the same key existed.
                if let Some(spec) = history.specs.get(&acked.id) {
                    let there = Lesson::Fact(acked.id, Fact::Spec(crate::history::spec_hash(spec)));
                    self.majority(history, &acked.id, there)?;
                }
                continue;
            }
            if *id != acked.id {
                return Err(format!("the answer for task {id} names task {}", acked.id));
            }
            self.write(history, request, Lesson::Fact(*id, *fact), &acked)?;
        }
        Ok(())
    }

    /// Checks that a node gives up hints for members only once a majority of the members has the facts.
    fn handed(&mut self, history: &History, node: usize, ids: &[TaskId]) -> Result<(), String> {
        let Some(ghost) = self.ghosts.get_mut(&node) else { return Ok(()) };
        let is_named = |lesson: &Lesson| matches!(lesson, Lesson::Fact(id, _) if ids.contains(id));
        let (over, kept) = std::mem::take(&mut ghost.kept).into_iter().partition(is_named);
        ghost.kept = kept;
        let over: BTreeSet<Lesson> = over;
        let held = &ghost.held;
        ghost.durable.retain(|lesson| !over.contains(lesson) || held.contains(lesson));
        ghost.pending.retain(|(_, lesson)| !over.contains(lesson) || held.contains(lesson));
        let orphaned = ghost.orphaned.clone();
        for lesson in over {
            let Lesson::Fact(id, _) = lesson else { continue };
            if !orphaned.contains(&id) {
                self.majority(history, &id, lesson)
                    .map_err(|reason| format!("node {node} gives up a hint: {reason}"))?;
            }
        }
        Ok(())
    }

    /// Checks that a node gives up a hint that no member takes only if no running member has any of it.
    fn orphaned(&mut self, history: &History, node: usize, id: TaskId) -> Result<(), String> {
        let ghost = self.ghosts.entry(node).or_default();
        ghost.orphaned.insert(id);
        let is_named = |lesson: &&Lesson| matches!(lesson, Lesson::Fact(other, _) if *other == id);
        let kept: Vec<Lesson> = ghost.kept.iter().filter(is_named).copied().collect();
        for member in history.cohort(history.partition(&id)) {
            let Some(ghost) = self.ghosts.get(&member).filter(|ghost| !ghost.down) else { continue };
            // Hints that a member keeps, or kept, for others are not its own facts.
            let own = |lesson: &Lesson| ghost.durable.contains(lesson) && ghost.held.contains(lesson);
            let has = |lesson: &Lesson| own(lesson) && !ghost.lost.contains(lesson);
            let found = kept.iter().find(|lesson| has(lesson) || has(&swallowing(**lesson)));
            if let Some(lesson) = found.filter(|_| !ghost.forgotten.contains(&id)) {
                return Err(format!("node {node} gives up {lesson:?} as an orphan, which node {member} has"));
            }
        }
        Ok(())
    }

    fn recovered(&self, history: &History, node: usize, tasks: &BTreeMap<TaskId, Task>) -> Result<(), String> {
        let Some(ghost) = self.ghosts.get(&node) else { return Ok(()) };
        let mut known: Option<(TaskId, BTreeSet<Fact>)> = None;
        for lesson in &ghost.durable {
            let Lesson::Fact(id, fact) = lesson else { continue };
            let over = *fact != Fact::Tombstone && ghost.durable.contains(&swallowing(*lesson));
            if over
                || ghost.forgotten.contains(id)
                || ghost.lost.contains(lesson)
                || !history.had_slot(node, history.partition(id)) && !ghost.kept.contains(lesson)
            {
                continue;
            }
            if known.as_ref().is_none_or(|(last, _)| last != id) {
                let facts = tasks.get(id).map(facts_of).unwrap_or_default();
                known = Some((*id, facts.into_iter().collect()));
            }
            if known.as_ref().is_some_and(|(_, facts)| !facts.contains(fact)) {
                return Err(format!(
                    "node {node} had {fact:?} of task {id} on disk and does not know it after its start"
                ));
            }
        }
        Ok(())
    }
}

// T25, S31, S35, S38, E6
impl Property for Durability {
    fn name(&self) -> &'static str {
        "durability"
    }

    fn see(&mut self, history: &History, _moment: Moment, happening: &Happening<'_>) -> Result<(), String> {
        match happening {
            Happening::Appended { node, ticket, records } => {
                let ghost = self.ghosts.entry(*node).or_default();
                for record in *records {
                    ghost.pending.extend(lessons_of(record).into_iter().map(|lesson| (*ticket, lesson)));
                    if let Record::Forgot { ids, .. } = record {
                        ghost.forgotten.extend(ids);
                    }
                    match record {
                        Record::Hint { .. } => ghost.kept.extend(lessons_of(record)),
                        Record::Facts { .. } => {
                            let lessons = lessons_of(record);
                            ghost.pending_held.extend(lessons.iter().map(|lesson| (*ticket, *lesson)));
                            ghost.held.extend(lessons);
                        }
                        _ => {}
                    }
                    if let Record::Left { partition, .. } = record {
                        ghost.leave(history, *partition);
                    }
                }
                for record in *records {
                    if let Record::Handed { to: None, ids, .. } = record {
                        self.handed(history, *node, ids)?;
                    }
                }
            }
            Happening::Synced { node, ticket } => {
                let ghost = self.ghosts.entry(*node).or_default();
                let synced = ghost.pending.partition_point(|(pending, _)| pending <= ticket);
                let lessons: Vec<Lesson> = ghost.pending.drain(..synced).map(|(_, lesson)| lesson).collect();
                lessons.into_iter().for_each(|lesson| ghost.learn(lesson));
                let synced = ghost.pending_held.partition_point(|(pending, _)| pending <= ticket);
                ghost.held_durably.extend(ghost.pending_held.drain(..synced).map(|(_, lesson)| lesson));
            }
            Happening::Crashed { node } => {
                let ghost = self.ghosts.entry(*node).or_default();
                ghost.pending.clear();
                // The replay shows what survived the crash all the same.
                ghost.pending_held.clear();
                ghost.held = ghost.held_durably.clone();
                ghost.down = true;
            }
            Happening::Replayed { node, records } => {
                self.ghosts.entry(*node).or_default().replay(history, records);
            }
            Happening::Damaged { node, lost, left } => {
                self.ghosts.entry(*node).or_default().harm(lost, left);
            }
            Happening::Observed { node, observation: Observation::HintOrphaned { id, .. }, .. } => {
                return self.orphaned(history, *node, *id);
            }
            Happening::Gone { node } => self.ghosts.entry(*node).or_default().down = true,
            Happening::Spoiled { node, left } => {
                let ghost = self.ghosts.entry(*node).or_default();
                let left = lessons_left(left);
                ghost.lost.extend(ghost.durable.difference(&left));
            }
            Happening::Replied { request, response } => return self.reply(history, request, response),
            Happening::Recovered { node, tasks } => {
                self.ghosts.entry(*node).or_default().down = false;
                return self.recovered(history, *node, tasks);
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::*;
    use super::*;
    use norn_model::task::Completed;
    use norn_model::viewstamp::Viewstamp;
    use norn_wire::ClaimId;
    use std::sync::Arc;

    fn facts() -> Vec<Record> {
        let task = Task::from_spec(Arc::new(spec()));
        vec![Record::Facts { partition: PartitionId(0), items: Arc::new(vec![(id(1), task)]) }]
    }

    fn grant() -> Vec<Record> {
        grant_of(1)
    }

    fn grant_of(number: u64) -> Vec<Record> {
        let items = vec![(id(1), number)];
        let op = Op::Grant {
            claim: ClaimId(1),
            worker: "w".into(),
            lease_ms: 1,
            granted_ms: 1,
            items,
            session: None,
            lapsed: false,
        };
        let after = Viewstamp { epoch: 1, length: 0 };
        vec![Record::Ops { partition: PartitionId(0), after, ops: vec![Arc::new(op)] }]
    }

    fn store(bench: &mut Bench<Durability>, node: usize, records: &[Record], sync: bool) {
        bench.see(Happening::Appended { node, ticket: Ticket(1), records }).unwrap();
        if sync {
            bench.see(Happening::Synced { node, ticket: Ticket(1) }).unwrap();
        }
    }

    fn reply(bench: &mut Bench<Durability>, acks: u32, guarantee: Guarantee) -> Result<(), String> {
        let response = Response::Acked(vec![Ok(acked(1, acks, guarantee))]);
        bench.see(Happening::Replied { request: &enqueue(1), response: &response })
    }

    /// Goal: facts that a crash takes from a replica do not count as there because it also kept them as hints, which may then be
    /// handed over.
    #[test]
    fn what_was_kept_for_others_is_not_held_as_a_replica() {
        let mut bench = Bench::new();
        store(&mut bench, 1, &facts(), true);
        store(&mut bench, 2, &facts(), true);
        let task = Task::from_spec(Arc::new(spec()));
        let items = Arc::new(vec![(id(1), task)]);
        let hint = Record::Hint { partition: PartitionId(0), since_ms: 0, items };
        store(&mut bench, 0, std::slice::from_ref(&hint), true);
        bench.see(Happening::Appended { node: 0, ticket: Ticket(2), records: &facts() }).unwrap();
        bench.see(Happening::Crashed { node: 0 }).unwrap();
        let handed = Record::Handed { to: None, partition: PartitionId(0), ids: vec![id(1)] };
        store(&mut bench, 0, std::slice::from_ref(&handed), true);
        bench.see(Happening::Crashed { node: 0 }).unwrap();
        bench.see(Happening::Replayed { node: 0, records: &[hint, handed] }).unwrap();
        bench.see(Happening::Recovered { node: 0, tasks: &BTreeMap::new() }).unwrap();
    }

    #[test]
    fn an_answer_before_a_majority_has_synced_is_refused() {
        let mut bench = Bench::new();
        store(&mut bench, 0, &facts(), true);
        store(&mut bench, 1, &facts(), false);
        assert!(reply(&mut bench, 1, Guarantee::Sloppy).is_ok());
        assert!(reply(&mut bench, 2, Guarantee::Sloppy).is_err());
        assert!(reply(&mut bench, 1, Guarantee::Strict).is_err());
        bench.see(Happening::Synced { node: 1, ticket: Ticket(1) }).unwrap();
        assert!(reply(&mut bench, 2, Guarantee::Strict).is_ok());
    }

    /// Goal: the partition of a copy may have more replicas than that of the dead task, and the answer counts its disks.
    #[test]
    fn the_answer_to_a_redrive_counts_the_disks_of_the_copy() {
        let done = Completed { sequence: None, result: None, at_ms: 1, children: None };
        let fact = Task::from_completion(Token::of_copy(id(2)), done);
        let record = |number: u32, task: Task| Record::Facts {
            partition: PartitionId(0),
            items: Arc::new(vec![(id(number), task)]),
        };
        let (dead, copy) = (record(1, fact), record(2, Task::from_spec(Arc::new(spec()))));
        let request = Request::Redrive { id: id(1), child: id(2), queue: None, acks: Acks::Quorum };
        let response = Response::AckedOne(acked(2, 2, Guarantee::Sloppy));
        let holds = |places: &[(usize, &Record)]| {
            let mut bench = Bench::new();
            bench.see(Happening::Sent { request: &enqueue(2) }).unwrap();
            places.iter().for_each(|(node, record)| store(&mut bench, *node, std::slice::from_ref(*record), true));
            bench.see(Happening::Replied { request: &request, response: &response }).is_ok()
        };
        assert!(holds(&[(0, &copy), (1, &copy), (0, &dead)]));
        assert!(holds(&[(0, &dead), (1, &dead)]), "it is recorded");
        assert!(!holds(&[(0, &copy), (1, &copy)]), "it is not recorded");
        assert!(!holds(&[(0, &copy), (0, &dead)]), "one disk has it");
    }

    #[test]
    fn a_crash_takes_what_was_not_synced() {
        let mut bench = Bench::new();
        store(&mut bench, 0, &facts(), false);
        bench.see(Happening::Crashed { node: 0 }).unwrap();
        bench.see(Happening::Synced { node: 0, ticket: Ticket(1) }).unwrap();
        assert!(reply(&mut bench, 1, Guarantee::Sloppy).is_err());
    }

    #[test]
    fn what_came_through_a_crash_without_a_sync_counts() {
        let mut bench = Bench::new();
        store(&mut bench, 0, &facts(), false);
        bench.see(Happening::Crashed { node: 0 }).unwrap();
        bench.see(Happening::Replayed { node: 0, records: &facts() }).unwrap();
        assert!(reply(&mut bench, 1, Guarantee::Sloppy).is_ok());
    }

    #[test]
    fn a_grant_without_a_majority_is_refused() {
        let mut bench = Bench::new();
        store(&mut bench, 0, &grant(), true);
        let answer = granted(1, token(1, 1));
        assert!(bench.see(Happening::Replied { request: &claim(), response: &answer }).is_err());
        store(&mut bench, 2, &grant(), true);
        assert!(bench.see(Happening::Replied { request: &claim(), response: &answer }).is_ok());
    }

    #[test]
    fn a_later_grant_stands_for_an_earlier_one_and_not_the_other_way_round() {
        for (there, told, right) in [(1, 2, false), (2, 1, true)] {
            let mut bench = Bench::new();
            [0, 2].into_iter().for_each(|node| store(&mut bench, node, &grant_of(there), true));
            let answer = granted(1, token(1, told));
            assert_eq!(bench.see(Happening::Replied { request: &claim(), response: &answer }).is_ok(), right);
        }
    }

    #[test]
    fn what_damage_takes_must_be_elsewhere() {
        let mut bench = Bench::new();
        store(&mut bench, 0, &facts(), true);
        store(&mut bench, 1, &facts(), true);
        let nothing = BTreeMap::new();
        bench.see(Happening::Damaged { node: 0, lost: &facts(), left: &[] }).unwrap();
        assert!(bench.see(Happening::Recovered { node: 0, tasks: &nothing }).is_ok(), "the loss is known");
        assert!(reply(&mut bench, 2, Guarantee::Strict).is_ok(), "it was on both disks");
        bench.see(Happening::Damaged { node: 1, lost: &facts(), left: &[] }).unwrap();
        assert!(reply(&mut bench, 2, Guarantee::Strict).is_err(), "it is nowhere");
        store(&mut bench, 0, &facts(), true);
        assert!(reply(&mut bench, 2, Guarantee::Strict).is_ok());
        assert!(bench.see(Happening::Recovered { node: 0, tasks: &nothing }).is_err(), "it was learned again");
    }

    /// Goal: an acknowledgement was right, though by the time of the answer the disk is an earlier image, whose log tells of a cohort slot
    /// that was left before.
    #[test]
    fn what_an_earlier_image_of_a_disk_lacks_was_on_it() {
        let mut bench = Bench::new();
        let left = [Record::Left { partition: PartitionId(0), advertised: Box::default() }];
        store(&mut bench, 0, &left, true);
        store(&mut bench, 0, &facts(), true);
        store(&mut bench, 1, &facts(), true);
        bench.see(Happening::Crashed { node: 0 }).unwrap();
        bench.see(Happening::Spoiled { node: 0, left: &left }).unwrap();
        bench.see(Happening::Replayed { node: 0, records: &left }).unwrap();
        assert!(reply(&mut bench, 2, Guarantee::Strict).is_ok());
        store(&mut bench, 0, &left, true);
        assert!(reply(&mut bench, 2, Guarantee::Strict).is_err(), "now it has left");
    }

    fn hint() -> Vec<Record> {
        let task = Task::from_spec(Arc::new(spec()));
        vec![Record::Hint { partition: PartitionId(0), since_ms: 1, items: Arc::new(vec![(id(1), task)]) }]
    }

    #[test]
    fn a_hint_counts_once_it_is_synced_and_goes_when_a_majority_has_it() {
        let handed = [Record::Handed { to: None, partition: PartitionId(0), ids: vec![id(1)] }];
        let give_up = |bench: &mut Bench<Durability>| {
            bench.see(Happening::Appended { node: 3, ticket: Ticket(2), records: &handed })
        };
        let mut bench = Bench::new();
        store(&mut bench, 3, &hint(), false);
        assert!(reply(&mut bench, 1, Guarantee::Sloppy).is_err());
        store(&mut bench, 3, &hint(), true);
        assert!(reply(&mut bench, 1, Guarantee::Sloppy).is_ok());
        assert!(bench.see(Happening::Recovered { node: 3, tasks: &BTreeMap::new() }).is_err(), "it keeps nothing");
        store(&mut bench, 0, &facts(), true);
        assert!(give_up(&mut bench).is_err(), "one member has it");
        let mut bench = Bench::new();
        for (node, records) in [(3, hint()), (0, facts()), (1, facts())] {
            store(&mut bench, node, &records, true);
        }
        assert!(give_up(&mut bench).is_ok());
        assert!(bench.see(Happening::Recovered { node: 3, tasks: &BTreeMap::new() }).is_ok());
    }

    #[test]
    fn what_a_member_has_is_no_orphan() {
        let orphaned = |bench: &mut Bench<Durability>| {
            let observation = Observation::HintOrphaned { id: id(1), facts: "task".into(), payload_bytes: 1 };
            bench.see(Happening::Observed { node: 3, boot: 1, observation: &observation })
        };
        let mut bench = Bench::new();
        store(&mut bench, 3, &hint(), true);
        assert!(orphaned(&mut bench).is_ok(), "nobody has it");
        store(&mut bench, 0, &hint(), true);
        assert!(orphaned(&mut bench).is_ok(), "who keeps it as well has it for others");
        store(&mut bench, 0, &facts(), true);
        assert!(orphaned(&mut bench).is_err());
        let forgot = [Record::Forgot { partition: PartitionId(0), ids: vec![id(1)] }];
        let mut gone = bench;
        store(&mut gone, 0, &forgot, true);
        assert!(orphaned(&mut gone).is_ok(), "it has ended");
    }

    #[test]
    fn a_disk_that_forgets_is_noticed() {
        let mut bench = Bench::new();
        store(&mut bench, 0, &facts(), true);
        let known = BTreeMap::from([(id(1), Task::from_spec(Arc::new(spec())))]);
        assert!(bench.see(Happening::Recovered { node: 0, tasks: &known }).is_ok());
        assert!(bench.see(Happening::Recovered { node: 0, tasks: &BTreeMap::new() }).is_err());
    }
}
