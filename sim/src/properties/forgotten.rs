//! A task that is forgotten has ended, every member had its tombstone on disk, and it never comes back. (ARCHITECTURE.md I-13, I-14)
//!
//! A ghost of each node follows the records that the node gives to its log. A buried task must have ended. A task that an operation
//! forgets must be buried on the disks of the whole cohort, and from then on no leader grants it. A node that has forgotten a task
//! does not take it up again, unless a damaged disk has made the node forget that.
//!
//! Where there is an archive, a task is in it before it is buried, with every completion that a majority has known for a minute.

use super::Property;
use crate::history::{Fact, Happening, History, Moment, facts_of};
use norn_engine::{Observation, Ticket};
use norn_model::claim_table::table::Op;
use norn_model::record::Record;
use norn_model::task::Task;
use norn_wire::{PartitionId, TaskId, TaskView, Token};
use std::collections::{BTreeMap, BTreeSet};

/// What a member learned within this time may have come after the burying node's question.
const MEANWHILE_US: u64 = 60_000_000;

#[derive(Debug, Default)]
struct Ghost {
    pending: Vec<(Ticket, TaskId)>,
    buried: BTreeSet<TaskId>,
    forgotten: BTreeSet<TaskId>,
    /// Tasks that the node forgot while it was no member of their cohort, as a majority of the members did not have them.
    outside: BTreeSet<TaskId>,
    /// Tasks whose spec the node knows, and since when.
    specs: BTreeMap<TaskId, u64>,
    /// Completions that the node knows, and since when.
    completions: BTreeMap<(TaskId, Token), u64>,
    damaged: bool,
}

#[derive(Debug, Default)]
pub struct Forgotten {
    ghosts: BTreeMap<usize, Ghost>,
    ended: BTreeSet<TaskId>,
    buried: BTreeSet<TaskId>,
    archives: bool,
    /// Archived tasks, with the completions that were last archived.
    archived: BTreeMap<TaskId, BTreeSet<Token>>,
    granted: BTreeSet<(TaskId, Token)>,
    forgotten: BTreeSet<TaskId>,
}

impl Ghost {
    /// Drops all that the node had of a partition.
    fn leave(&mut self, history: &History, partition: PartitionId) {
        let stays = |id: &TaskId| history.partition(id) != partition;
        self.pending.retain(|(_, id)| stays(id));
        self.buried.retain(stays);
        self.forgotten.retain(stays);
        self.specs.retain(|id, _| stays(id));
        self.completions.retain(|(id, _), _| stays(id));
    }

    /// The node has forgotten tasks. Those that it forgot as no member may come back, until the cohort has forgotten them as well: one of
    /// its members may have a task that was never acknowledged.
    fn has_forgotten(&self, id: TaskId, of_cohort: &BTreeSet<TaskId>) -> bool {
        self.forgotten.contains(&id) && (of_cohort.contains(&id) || !self.outside.contains(&id))
    }

    fn know(&mut self, id: TaskId, task: &Task, since_us: u64) {
        if task.spec.is_some() {
            self.specs.entry(id).or_insert(since_us);
        }
        for (token, _) in task.facts.iter().flat_map(|facts| &facts.completions) {
            self.completions.entry((id, *token)).or_insert(since_us);
        }
    }
}

/// Where a record comes from.
#[derive(Clone, Copy)]
struct At<'a> {
    history: &'a History,
    time_us: u64,
    node: usize,
    ticket: Ticket,
}

impl Forgotten {
    /// Whether a task that a node buries has something to archive. The node asks the other members, and waits for all of them where
    /// it never had the spec itself. What they learn in the meantime does not count.
    fn is_to_be_archived(&self, at: At<'_>, id: &TaskId) -> bool {
        let knows = |node: usize| {
            let since_us = self.ghosts.get(&node).filter(|ghost| !ghost.damaged).and_then(|ghost| ghost.specs.get(id));
            since_us.is_some_and(|since_us| node == at.node || since_us + MEANWHILE_US <= at.time_us)
        };
        self.archives && at.history.cohort(at.history.partition(id)).into_iter().any(knows)
    }

    /// Checks a task that is buried for the first time: the archive has what is known of it.
    fn judge_burial(&self, at: At<'_>, id: &TaskId) -> Result<(), String> {
        let Some(archived) = self.archived.get(id) else {
            let missing = self.is_to_be_archived(at, id);
            return if missing {
                Err(format!("task {id} is buried by node {}, and is in no archive", at.node))
            } else {
                Ok(())
            };
        };
        // Judges every completion that a majority has known for long.
        let cohort = at.history.cohort(at.history.partition(id));
        let ghosts = || cohort.iter().filter_map(|node| self.ghosts.get(node)).filter(|ghost| !ghost.damaged);
        let all = |number| (*id, Token { epoch: number, number });
        let known = ghosts().flat_map(|ghost| ghost.completions.range(all(0)..=all(u64::MAX)));
        for (done, _) in known.filter(|((_, token), _)| !token.is_of_copy()) {
            let since_us = |ghost: &Ghost| ghost.completions.get(done).copied();
            let knows = |ghost: &&Ghost| since_us(ghost).is_some_and(|since_us| since_us + MEANWHILE_US <= at.time_us);
            if 2 * ghosts().filter(knows).count() > cohort.len() && !archived.contains(&done.1) {
                let node = at.node;
                return Err(format!(
                    "task {id} is buried by node {node}, and the archive lacks its completion under {}",
                    done.1
                ));
            }
        }
        Ok(())
    }

    fn task(&mut self, at: At<'_>, id: TaskId, task: &Task) -> Result<(), String> {
        let At { node, ticket, time_us, .. } = at;
        let facts = facts_of(task);
        if facts.iter().any(|fact| matches!(fact, Fact::Completion(_) | Fact::Cancel)) {
            self.ended.insert(id);
        }
        // A replica outside the cohort forgets what a majority does not have; a member may still have it.
        let counts = at.history.cohort(at.history.partition(&id)).contains(&node);
        let ghost = self.ghosts.entry(node).or_default();
        ghost.know(id, task, time_us);
        if facts.contains(&Fact::Tombstone) {
            if !self.ended.contains(&id) {
                return Err(format!("task {id} is buried by node {node}, and nobody has said that it ended"));
            }
            // A late replica brings the tombstone back, which swallows the rest until it is forgotten once more.
            ghost.forgotten.remove(&id);
            ghost.pending.push((ticket, id));
            if self.buried.insert(id) {
                self.judge_burial(at, &id)?;
            }
        } else if task.spec.is_some() && ghost.has_forgotten(id, &self.forgotten) && !ghost.damaged && counts {
            return Err(format!("task {id} was forgotten by node {node}, which takes it up again"));
        }
        Ok(())
    }

    fn op(&mut self, history: &History, op: &Op) -> Result<(), String> {
        match op {
            Op::Forget { ids } => {
                // Judged where the leader appends it: a follower may append it later, in another cohort.
                for id in ids {
                    if !self.forgotten.insert(*id) {
                        continue;
                    }
                    let buried = |node: &usize| self.ghosts.get(node).is_some_and(|ghost| ghost.buried.contains(id));
                    if let Some(node) = history.cohort(history.partition(id)).into_iter().find(|node| !buried(node)) {
                        return Err(format!("task {id} is forgotten, but node {node} never had its tombstone on disk"));
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn record(&mut self, at: At<'_>, record: &Record) -> Result<(), String> {
        match record {
            Record::Ops { ops, .. } => {
                for op in ops {
                    tasks_of(op).into_iter().try_for_each(|(id, task)| self.task(at, id, task))?;
                    self.op(at.history, op)?;
                }
            }
            Record::Forgot { ids, .. } => {
                let ghost = self.ghosts.entry(at.node).or_default();
                let is_member = |id: &TaskId| at.history.cohort(at.history.partition(id)).contains(&at.node);
                ghost.outside.retain(|id| !ids.contains(id));
                ghost.outside.extend(ids.iter().filter(|id| !is_member(id)));
                ghost.forgotten.extend(ids);
            }
            Record::Left { partition, .. } => {
                self.ghosts.entry(at.node).or_default().leave(at.history, *partition);
            }
            _ => tasks_in(record).into_iter().try_for_each(|(id, task)| self.task(at, id, task))?,
        }
        Ok(())
    }
}

/// Tasks in a record, with what it says of them.
fn tasks_in(record: &Record) -> Vec<(TaskId, &Task)> {
    match record {
        Record::Facts { items, .. } => items.iter().map(|(id, task)| (*id, task)).collect(),
        Record::Ops { ops, .. } => ops.iter().flat_map(|op| tasks_of(op)).collect(),
        Record::Install { table: Some(table), .. } => table.endings().map(|ended| (ended.id, &ended.facts)).collect(),
        _ => Vec::new(),
    }
}

/// Tasks in an operation, with what it says of them.
fn tasks_of(op: &Op) -> Vec<(TaskId, &Task)> {
    match op {
        Op::Drop { items } => items.iter().map(|ended| (ended.id, &ended.facts)).collect(),
        _ => Vec::new(),
    }
}

// S27
impl Property for Forgotten {
    fn name(&self) -> &'static str {
        "forgotten"
    }

    fn see(&mut self, history: &History, moment: Moment, happening: &Happening<'_>) -> Result<(), String> {
        match happening {
            Happening::Founded(terms) => self.archives = terms.archives,
            Happening::Archived { tasks } => {
                let done = |task: &TaskView| {
                    task.claims.iter().filter(|claim| claim.completed_ms.is_some()).map(|claim| claim.token).collect()
                };
                self.archived.extend(tasks.iter().map(|task| (task.id, done(task))));
            }
            Happening::Appended { node, ticket, records } => {
                let at = At { history, time_us: moment.time_us, node: *node, ticket: *ticket };
                return records.iter().try_for_each(|record| self.record(at, record));
            }
            // A leader that was left out while it was paused may append what is never committed. So observed grants are judged
            // instead.
            Happening::Observed { observation: Observation::Granted { id, token }, .. }
                if self.granted.insert((*id, *token)) && self.forgotten.contains(id) =>
            {
                return Err(format!("task {id} was forgotten, and is granted under {token}"));
            }
            Happening::Synced { node, ticket } => {
                let ghost = self.ghosts.entry(*node).or_default();
                let synced = ghost.pending.partition_point(|(pending, _)| pending <= ticket);
                ghost.buried.extend(ghost.pending.drain(..synced).map(|(_, id)| id));
            }
            Happening::Crashed { node } => self.ghosts.entry(*node).or_default().pending.clear(),
            // Unsynced records may have survived the crash or not: a task that was to be forgotten may be known again.
            Happening::Replayed { node, records } => {
                let ghost = self.ghosts.entry(*node).or_default();
                ghost.forgotten.clear();
                ghost.specs.clear();
                ghost.completions.clear();
                for record in *records {
                    if let Record::Forgot { ids, .. } = record {
                        ghost.forgotten.extend(ids);
                    }
                    if let Record::Left { partition, .. } = record {
                        ghost.leave(history, *partition);
                    }
                    for (id, task) in tasks_in(record) {
                        ghost.know(id, task, moment.time_us);
                        if task.tombstone.is_some() {
                            ghost.forgotten.remove(&id);
                            ghost.buried.insert(id);
                        }
                    }
                }
            }
            Happening::Damaged { node, .. } | Happening::Spoiled { node, .. } => {
                self.ghosts.entry(*node).or_default().damaged = true
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
    use norn_model::task::{Cancel, Completed, Tombstone};
    use norn_model::viewstamp::Viewstamp;
    use norn_wire::response::{ClaimView, State};
    use std::sync::Arc;

    fn facts(task: Task) -> Record {
        Record::Facts { partition: PartitionId(0), items: Arc::new(vec![(id(1), task)]) }
    }

    fn ended() -> Record {
        facts(Task::from_cancel(Cancel { dead: false, reason: String::new(), at_ms: 1 }))
    }

    fn tombstone() -> Record {
        facts(Task::from_tombstone(Tombstone { state: State::Cancelled, at_ms: 1 }))
    }

    fn op(op: Op) -> Record {
        let after = Viewstamp { epoch: 1, length: 0 };
        Record::Ops { partition: PartitionId(0), after, ops: vec![Arc::new(op)] }
    }

    /// The archived view of a task that is completed under these tokens.
    fn view(done: &[Token]) -> TaskView {
        let claim = |token: &Token| ClaimView {
            token: *token,
            worker: String::new(),
            start_ms: 0,
            end_ms: None,
            completed_ms: Some(1),
            rejected: None,
            superseded: None,
            end: None,
            session: None,
        };
        TaskView {
            id: id(1),
            state: State::Done,
            spec: spec(),
            claims: done.iter().map(claim).collect(),
            updates: Vec::new(),
            result: None,
            reason: None,
            log_incomplete: false,
            conflict: false,
            waits_for: Vec::new(),
            children: Vec::new(),
            children_open: false,
            redriven: Vec::new(),
            version: None,
            ended_ms: None,
            next_attempt_ms: None,
            lost: None,
            group: None,
        }
    }

    fn appends(bench: &mut Bench<Forgotten>, node: usize, record: Record) -> Result<(), String> {
        bench.see(Happening::Appended { node, ticket: Ticket(1), records: &[record] })
    }

    #[test]
    fn what_has_not_ended_is_not_buried() {
        let mut bench = Bench::new();
        assert!(appends(&mut bench, 0, tombstone()).is_err());
        appends(&mut bench, 1, ended()).unwrap();
        assert!(appends(&mut bench, 0, tombstone()).is_ok());
    }

    #[test]
    fn what_is_to_be_archived_is_not_buried_before() {
        let mut bench = Bench::new();
        let mut other = Bench::new();
        for bench in [&mut bench, &mut other] {
            bench.see(Happening::Founded(Terms { fencing: true, archives: true, ..Terms::default() })).unwrap();
            appends(bench, 0, facts(Task::from_spec(Arc::new(spec())))).unwrap();
            appends(bench, 0, ended()).unwrap();
        }
        assert!(appends(&mut bench, 0, tombstone()).is_err());
        other.see(Happening::Archived { tasks: &[view(&[])] }).unwrap();
        assert!(appends(&mut other, 0, tombstone()).is_ok());
    }

    #[test]
    fn what_a_majority_has_known_for_long_is_in_the_archive() {
        let token = token(3, 4);
        let done = || {
            facts(Task::from_completion(token, Completed { sequence: None, result: None, at_ms: 1, children: None }))
        };
        for (members, passed_us, archived, holds) in [
            (2, MEANWHILE_US, vec![], false),
            (2, MEANWHILE_US, vec![token], true),
            (2, 0, vec![], true),
            (1, MEANWHILE_US, vec![], true),
        ] {
            let mut bench = Bench::new();
            bench.see(Happening::Founded(Terms { fencing: true, archives: true, ..Terms::default() })).unwrap();
            appends(&mut bench, 2, facts(Task::from_spec(Arc::new(spec())))).unwrap();
            appends(&mut bench, 2, ended()).unwrap();
            (0..members).for_each(|node| appends(&mut bench, node, done()).unwrap());
            bench.pass(passed_us);
            bench.see(Happening::Archived { tasks: &[view(&archived)] }).unwrap();
            assert_eq!(appends(&mut bench, 2, tombstone()).is_ok(), holds, "{members} {passed_us} {archived:?}");
        }
    }

    #[test]
    fn what_a_member_has_not_buried_is_not_forgotten() {
        let mut bench = Bench::new();
        appends(&mut bench, 0, ended()).unwrap();
        for node in 0..3 {
            appends(&mut bench, node, tombstone()).unwrap();
        }
        for node in 0..2 {
            bench.see(Happening::Synced { node, ticket: Ticket(1) }).unwrap();
        }
        let forget = || op(Op::Forget { ids: vec![id(1)] });
        assert!(appends(&mut bench, 0, forget()).is_err());
        bench.see(Happening::Synced { node: 2, ticket: Ticket(1) }).unwrap();
        assert!(appends(&mut bench, 0, forget()).is_ok());
        let observation = Observation::Granted { id: id(1), token: Token { epoch: 1, number: 1 } };
        let granted = Happening::Observed { node: 1, boot: 1, observation: &observation };
        assert!(bench.see(granted).is_err(), "it is no more");
    }

    #[test]
    fn who_has_forgotten_does_not_take_it_up_again() {
        let mut bench = Bench::new();
        let live = || facts(Task::from_spec(Arc::new(spec())));
        appends(&mut bench, 0, live()).unwrap();
        appends(&mut bench, 0, Record::Forgot { partition: PartitionId(0), ids: vec![id(1)] }).unwrap();
        assert!(appends(&mut bench, 1, live()).is_ok(), "another one may still know it");
        assert!(appends(&mut bench, 0, live()).is_err());
    }

    /// Goal: a learner that forgets what a majority does not have may learn of it again as a member, unless the cohort has forgotten it.
    #[test]
    fn a_task_that_was_forgotten_outside_a_cohort_may_come_back() {
        let (outside, forgotten) = (BTreeSet::from([id(1)]), BTreeSet::from([id(1), id(2)]));
        let ghost = Ghost { outside, forgotten, ..Ghost::default() };
        let has = |of_cohort: &[TaskId]| {
            [1, 2, 3].map(|number| ghost.has_forgotten(id(number), &of_cohort.iter().copied().collect()))
        };
        assert_eq!(has(&[]), [false, true, false]);
        assert_eq!(has(&[id(1)]), [true, true, false]);
    }
}
