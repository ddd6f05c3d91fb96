//! The others must make progress: before all is mended, one node or one link stays away, and the remaining nodes elect leaders and
//! get all work done.
//!
//! After the faults everything is mended but this. It is mended as well only when partitions have leaders among the nodes that are
//! there, and these leaders have no open task. A quorum that only works because every node is back is none.

use crate::adapter;
use crate::properties::is_open;
use crate::settle::INTERVAL_US;
use crate::world::{Event, Phase, World};
use norn_model::cohort::Role;
use norn_wire::{PartitionId, TaskId};
use std::collections::{BTreeMap, BTreeSet};

/// How a node or link is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Its process is down.
    Down,
    /// Its process is paused.
    Paused,
    /// Nothing gets to it or from it.
    Alone,
    /// The same among nodes; clients reach it.
    Apart,
    /// It hears no node.
    Deaf,
    /// No node hears it.
    Mute,
    /// It and another do not hear each other.
    Link,
    /// It does not hear another.
    HalfLink,
}

const WAYS: [Way; 8] = [Way::Down, Way::Paused, Way::Alone, Way::Apart, Way::Deaf, Way::Mute, Way::Link, Way::HalfLink];

/// The node or link that is away.
#[derive(Debug, Clone, Copy)]
pub struct Absence {
    node: usize,
    way: Way,
}

impl Absence {
    fn is_there(&self, node: usize) -> bool {
        node != self.node || matches!(self.way, Way::Link | Way::HalfLink)
    }
}

impl World {
    /// Whether a node must not be started.
    pub fn is_down(&self, node: usize) -> bool {
        self.absence.is_some_and(|absence| absence.node == node && absence.way == Way::Down)
    }

    /// Breaks something once more, for longer, after everything has been mended.
    pub fn begin_absence(&mut self) {
        let (percent, nodes) = (self.options.absence_percent, self.nodes.len());
        let random = &mut self.randoms.absence;
        let (wanted, node) = (random.chance(percent, 100), random.below(nodes as u64) as usize);
        let way = WAYS[random.below(8) as usize];
        let other = (node + 1 + random.below(nodes.max(2) as u64 - 1) as usize) % nodes;
        // A node that has lost something cannot do without all others.
        self.heal_losses();
        let lost = self.losses.is_open() || self.is_out(node) || self.is_out(other);
        let spoiled = self.damaged.is_some_and(|damaged| damaged != node) || self.copies.is_any_out() || lost;
        if !wanted || self.options.replicas < 3 || spoiled || !self.operator.done() {
            return;
        }
        // Only a running process can be paused.
        let down = way == Way::Paused && self.nodes[node].running.is_none();
        let way = if down { Way::Down } else { way };
        self.line(format_args!("n{node} is away: {way:?}, other {other}"));
        self.count(&format!("absence: {way:?}"));
        self.absence = Some(Absence { node, way });
        match way {
            Way::Down => self.crash_node(node),
            Way::Paused => self.nodes[node].paused_until_us = u64::MAX,
            _ => self.cut_off(node, way, other),
        }
    }

    fn cut_off(&mut self, node: usize, way: Way, other: usize) {
        let nodes = self.nodes.len();
        let places = if way == Way::Alone { nodes + self.clients.len() } else { nodes };
        let hears = matches!(way, Way::Mute);
        let is_heard = matches!(way, Way::Deaf | Way::HalfLink);
        let one = matches!(way, Way::Link | Way::HalfLink);
        for place in (0..places).filter(|place| *place != node && (!one || *place == other)) {
            if !hears {
                self.network.cut(place, node);
            }
            if !is_heard {
                self.network.cut(node, place);
            }
        }
    }

    /// Checks whether the others have done all that they can; then ends the absence.
    pub fn poll_absence(&mut self, absence: Absence, since_us: u64, limit_us: u64) {
        if self.copies.is_any_out() || self.is_any_incomplete(absence) {
            self.count("sometimes: not all were well in an absence");
        } else if let Some(reason) = self.undone(absence) {
            if self.now_us - since_us <= limit_us {
                return self.schedule_in(INTERVAL_US, Event::Poll);
            }
            return self.fail("absence", format!("{limit_us} us after healing, {absence:?}: {reason}"));
        }
        self.line(format_args!("nobody is away any more"));
        self.absence = None;
        self.phase = Phase::Healed { since_us: self.now_us };
        self.nodes[absence.node].paused_until_us = self.now_us;
        self.mend(self.cut_number);
        self.schedule_in(1, Event::NodeResume { node: absence.node });
        self.schedule_in(1_000, Event::Start { node: absence.node });
        self.schedule_in(INTERVAL_US, Event::Poll);
    }

    /// Whether any node that is there has losses: it can get what it lost only from the others, and perhaps only from the one that is
    /// away.
    fn is_any_incomplete(&self, absence: Absence) -> bool {
        let there = self.nodes.iter().enumerate().filter(|(node, _)| absence.is_there(*node));
        let mut views =
            there.flat_map(|(_, process)| process.running.iter().flat_map(|running| running.core.inspect()));
        views.any(|view| view.lost || !view.data_loss.is_whole() && view.role == Some(Role::Member))
    }

    fn undone(&self, absence: Absence) -> Option<String> {
        let mut led = BTreeMap::new();
        let limits = self.options.rate_percent + self.options.concurrency_percent > 0;
        // If one link is cut, or one direction of it, that may be the one between a leader that grants and the coordinator of its
        // limits.
        let mut waits = limits && matches!(absence.way, Way::Link | Way::HalfLink);
        let there = |node: &usize| absence.is_there(*node) && !self.is_out(*node);
        for (node, process) in self.nodes.iter().enumerate().filter(|(node, _)| there(node)) {
            let Some(running) = &process.running else { return Some(format!("node {node} is down")) };
            for view in running.core.inspect() {
                if !self.has_quorum_without(view.partition, absence) {
                    // For the limits of a whole queue, one partition alone can give permission.
                    waits |= limits;
                    continue;
                }
                led.entry(view.partition).or_insert(None);
                if view.leads && view.established {
                    led.insert(view.partition, Some(node));
                }
            }
        }
        led.into_iter().find_map(|(partition, leader)| match leader {
            None => Some(format!("partition {partition} has no leader")),
            Some(_) if waits => None,
            Some(node) => self
                .open_task(node, partition, absence)
                .map(|id| format!("partition {partition}: task {id} has not ended at its leader, node {node}")),
        })
    }

    /// Whether the members of a partition that are there have a quorum.
    fn has_quorum_without(&self, partition: PartitionId, absence: Absence) -> bool {
        self.history.has_quorum(partition, |node| node != absence.node)
    }

    /// Whether a task waits for one in a partition without a quorum.
    fn waits_for_absent(&self, id: TaskId, absence: Absence) -> bool {
        let (mut seen, mut left) = (BTreeSet::from([id]), vec![id]);
        while let Some(id) = left.pop() {
            if !self.has_quorum_without(self.history.partition(&id), absence) {
                return true;
            }
            let after = self.history.specs.get(&id).map_or(&[][..], |spec| &spec.after);
            let sessions = self.history.sessions.get(&id).into_iter().flatten().copied();
            let others = after.iter().copied().chain(self.waited_for_by_join(id)).chain(sessions);
            left.extend(others.filter(|id| seen.insert(*id)));
        }
        false
    }

    fn open_task(&self, node: usize, partition: PartitionId, absence: Absence) -> Option<TaskId> {
        let process = &self.nodes[node];
        let running = process.running.as_ref()?;
        let tasks = adapter::tasks_of_partition(&running.core, &process.disk, partition);
        // A transaction waits for the other partitions in which it has parts: one without a quorum, or behind a link that is cut.
        let waits = |partition: &PartitionId| {
            matches!(absence.way, Way::Link | Way::HalfLink) || !self.has_quorum_without(*partition, absence)
        };
        let locked = |id: &TaskId| running.core.locked_for(partition, id).iter().any(waits);
        let open = |(id, task): &(TaskId, _)| is_open(task) && !self.waits_for_absent(*id, absence) && !locked(id);
        tasks.into_iter().find(open).map(|(id, _)| id)
    }
}
