//! The end of a run: waiting until all is settled, then comparing the answers that a client gets with what is there.

use crate::adapter::{self, Call};
use crate::history::{Happening, Store};
use crate::process::Process;
use crate::properties::unsettled;
use crate::workload::{Act, Purpose};
use crate::world::{Event, Phase, World};
use norn_model::task::{Task, Tombstone};
use norn_wire::request::Request;
use norn_wire::response::{Response, State};
use norn_wire::{Error, NodeId, TaskId};
use std::collections::BTreeSet;

/// Interval between checks.
pub const INTERVAL_US: u64 = 250_000;
/// Stands for every tombstone in comparisons.
const PLAIN: Tombstone = Tombstone { state: State::Done, at_ms: 0 };
/// Factor by which it may take longer where a node is away.
const PATIENCE_WITHOUT: u64 = 8;
/// How much longer it may take for each task of a schedule, each group, and each task where few are worked on at a time, up to
/// [`FIRED_MAX`] of them: a deadline that moves as fast as what it bounds is none.
const FIRED_MS: u64 = 1_000;
const FIRED_MAX: u64 = 2_000;
/// Page of the final list.
const PAGE: u32 = 50;

fn keeps_hints(process: &Process) -> bool {
    process.running.as_ref().is_some_and(|running| running.core.hints().next().is_some())
}

impl World {
    /// Checks whether all is settled. If it is not in time, that is a failure.
    pub fn poll(&mut self) {
        let Phase::Healed { since_us } = self.phase else { return };
        self.let_go();
        // A client that wants the acknowledgement of all replicas waits for one that is gone until its deadline, again and again.
        let away = self.copies.is_any_out() || self.losses.is_any() || self.absence.is_some();
        let patience = if away { PATIENCE_WITHOUT } else { 1 };
        // The tasks of schedules that catch up are work that no client has chosen, and groups are completed only now.
        let fired = self.counters.get("sometimes: schedule fired").copied().unwrap_or_default();
        let options = &self.options;
        let bounds = options.rate_percent + options.concurrency_percent + options.key_concurrency_percent > 0;
        let held_back = if bounds { options.tasks } else { 0 };
        let fired = (fired + self.groups.count() + held_back).min(FIRED_MAX);
        let limit_us = (self.options.heal_limit_ms + fired * FIRED_MS) * 1_000 * patience;
        if let Some(absence) = self.absence {
            return self.poll_absence(absence, since_us, limit_us);
        }
        let late = self.now_us - since_us > limit_us;
        let Some(reason) = self.unsettled(late) else { return self.settled() };
        if late {
            return self.fail("convergence", format!("{limit_us} us after healing: {reason}"));
        }
        self.schedule_in(INTERVAL_US, Event::Poll);
    }

    fn unsettled(&self, late: bool) -> Option<String> {
        if !self.operator.done() {
            return Some("the cluster is not founded".into());
        }
        if let Some(node) = (0..self.nodes.len()).find(|node| !self.is_there(*node)) {
            return Some(format!("node {node} is down"));
        }
        if let Some(client) = self.clients.iter().position(|client| !client.is_idle()) {
            return Some(format!("client {client} still has work in hand"));
        }
        if self.groups.are_open(self.now_us) {
            return Some("somebody is about to go on with a group".into());
        }
        if let Some(open) = self.schedules_left() {
            return Some(open);
        }
        // A write that arrives once more may bring a task to light that was refused at first, as its id was from the future.
        if self.network.replays(self.now_us) {
            return Some("messages are still to arrive once more".into());
        }
        if !late && !self.roots_agree() {
            return Some("replicas differ".into());
        }
        if let Some(node) = self.nodes.iter().position(keeps_hints) {
            return Some(format!("node {node} keeps hints that nobody has taken"));
        }
        let open = |process: &Process| process.running.as_ref().and_then(|running| running.core.open_moves());
        // A partition does not get to a member that is gone for good before that member is declared gone.
        let reachable = !self.copies.is_any_out();
        if reachable && let Some(open) = self.nodes.iter().filter_map(open).find(|open| *open > 0) {
            return Some(format!("{open} partitions are not where the layout wants them"));
        }
        let stores = self.stores();
        unsettled(&stores)
            .or_else(|| self.still_leaving(&stores))
            .or_else(|| self.unforgotten(&stores))
            .or_else(|| self.rotten())
    }

    /// Reports a running node that leaves a partition and is not cleared yet.
    fn still_leaving(&self, stores: &[Store]) -> Option<String> {
        let runs = |node: &NodeId| self.place_of(*node).is_some_and(|place| self.nodes[place].running.is_some());
        let store = stores.iter().find(|store| store.view.draining_replicas.iter().any(runs))?;
        Some(format!("partition {}: {:?} are not cleared", store.view.partition, store.view.draining_replicas))
    }

    fn is_there(&self, node: usize) -> bool {
        self.nodes[node].running.is_some() || self.is_out(node)
    }

    /// Reports a finished task that is not forgotten yet, where such tasks are kept for a short time only and no clock is far off.
    fn unforgotten(&self, stores: &[Store]) -> Option<String> {
        let options = &self.options;
        // A clock that drifts for days is minutes off.
        let wrong_clocks = options.wild_wall_clock || options.bad_jump_percent > 0 || options.leap_mean_ms > 0;
        // A member that is gone for good keeps all others from forgetting.
        if self.copies.is_any_out() || options.forgets_in_ms() > options.heal_limit_ms / 4 || wrong_clocks {
            return None;
        }
        // A task that no node knows the spec of is kept for longer, and for much longer where it would have to be archived. Nor can
        // nodes know what became of a group that lost its join.
        let is_whole = |task: &Task| task.spec.is_some() || task.tombstone.is_some();
        let has_join = |task: &Task| {
            let group = task.member_of().map(|member| member.group);
            let has = |store: &Store, group: TaskId| store.tasks.get(&group).is_some_and(is_whole);
            group.is_none_or(|group| stores.iter().any(|store| has(store, group)))
        };
        let is_due = |task: &Task| task.ended().is_some() && is_whole(task) && (!task.awaits_join() || has_join(task));
        let left = |store: &Store| store.tasks.iter().find(|(_, task)| is_due(task)).map(|(id, _)| *id);
        let (store, id) = stores.iter().find_map(|store| Some((store, left(store)?)))?;
        Some(format!("partition {}: node {} has not forgotten task {id}", store.view.partition, store.node))
    }

    /// A cheap check before the thorough one.
    pub(crate) fn roots_agree(&self) -> bool {
        let views = self.nodes.iter().flat_map(|process| process.running.iter().flat_map(|run| run.core.inspect()));
        let views = views.filter(|view| !view.blank);
        let states: BTreeSet<_> = views.map(|view| (view.partition, view.content, view.viewstamp)).collect();
        let partitions: BTreeSet<_> = states.iter().map(|(partition, ..)| *partition).collect();
        states.len() == partitions.len() && partitions.len() == self.options.partitions as usize + 1
    }

    fn stores(&self) -> Vec<Store> {
        let healed_us = if let Phase::Healed { since_us } = self.phase { since_us } else { self.now_us };
        let mut stores = Vec::new();
        for (node, process) in self.nodes.iter().enumerate() {
            let Some(running) = &process.running else { continue };
            for view in running.core.inspect().into_iter().filter(|view| !view.blank) {
                // The rest of a tombstone is for people; replicas need not agree on it.
                let plain = |task: Task| match task.tombstone {
                    Some(_) => Task { facts: task.facts, ..Task::from_tombstone(PLAIN) },
                    None => task,
                };
                let tasks = adapter::tasks_of_partition(&running.core, &process.disk, view.partition);
                let tasks = tasks.into_iter().map(|(id, task)| (id, plain(task))).collect();
                let wall_ms = process.wall.read_ms(healed_us);
                stores.push(Store { node, view, tasks, wall_ms });
            }
        }
        stores
    }

    fn settled(&mut self) {
        self.line(format_args!("settled"));
        for node in 0..self.nodes.len() {
            let checked = self.nodes[node].running.as_ref().map_or(Ok(()), |running| running.core.check());
            if let Err(reason) = checked {
                self.fail("check", format!("node {node} at the end: {reason}"));
            }
        }
        let stores = self.stores();
        self.tell(Happening::Settled { stores: &stores });
        self.phase = Phase::Audit;
        if self.watches_over() {
            self.begin_audit();
        }
    }

    /// Begins the audit, once all watchers have seen all. Tasks that no client knew of may have come to light meanwhile.
    pub fn begin_audit(&mut self) {
        self.audit.expected = self
            .stores()
            .iter()
            .flat_map(|store| store.tasks.iter().filter(|(_, task)| task.spec.is_some()).map(|(id, _)| *id))
            .collect();
        let auditor = self.clients.len() - 1;
        let count = Request::Count { queue: None, state: None };
        self.submit(auditor, Call::Request(count), Purpose::Audit);
    }

    /// Asks for a page of the final list.
    pub fn act_audit(&mut self, client: usize, after: Option<TaskId>) {
        let list = Request::List { queue: None, state: None, after, from: None, to: None, limit: PAGE };
        self.submit(client, Call::Request(list), Purpose::Audit);
    }

    /// Handles an answer to the auditor.
    pub fn audit_answered(&mut self, client: usize, call: &Call, result: &Result<Response, Error>) {
        match result {
            Ok(Response::Count(count)) if self.is_expected(*count) => {
                self.act_in(client, 1, Act::Audit(None));
            }
            Ok(Response::Page(page)) => {
                self.audit.listed.extend(page.tasks.iter().map(|task| task.id));
                match page.next {
                    Some(next) => self.act_in(client, 1, Act::Audit(Some(next))),
                    None => self.audit_ends(),
                }
            }
            other => {
                let expected = self.audit.expected.len();
                self.fail("audit", format!("{call:?} with {expected} tasks is answered {other:?}"));
            }
        }
    }

    fn is_expected(&self, count: u64) -> bool {
        let expected = &self.audit.expected;
        let buried = expected.iter().filter(|id| self.history.buried.contains(*id)).count();
        (expected.len() - buried..=expected.len()).contains(&(count as usize))
    }

    fn audit_ends(&mut self) {
        let listed: BTreeSet<TaskId> = self.audit.listed.iter().copied().collect();
        if !self.audit.listed.is_sorted() || listed.len() != self.audit.listed.len() {
            self.fail("audit", "the list is not in the order of ids, each once".into());
        }
        // What is buried meanwhile is not listed.
        let missing = listed.symmetric_difference(&self.audit.expected).find(|id| !self.history.buried.contains(*id));
        if let Some(id) = missing {
            self.fail("audit", format!("task {id} is listed but not there, or there but not listed"));
        }
        self.phase = Phase::Done;
    }
}

/// Tasks that the final comparison expects, and those that were listed.
#[derive(Debug, Default)]
pub struct Audit {
    expected: BTreeSet<TaskId>,
    listed: Vec<TaskId>,
}
