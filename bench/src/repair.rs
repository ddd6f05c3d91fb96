//! The cost of making two replicas equal after a long absence: two nodes in memory, with the messages that they would send.
//!
//! Time is virtual and the repair throttle is set out of reach, so that only the work itself is measured. Bytes are those of the
//! frames. CPU time is that of both nodes within their steps. Payloads are small, so that the cost of the comparison shows.

use crate::process::{resident_bytes, thread_cpu_seconds};
use crate::report::{Report, Row};
use anyhow::{Result, bail, ensure};
use clap::Args;
use norn_engine::{Effect, Event, Founding, Node};
use norn_model::config::Config;
use norn_model::message::{Class, PeerMessage};
use norn_model::record::Record;
use norn_model::replica::tree::Tree;
use norn_model::task::Task;
use norn_model::time::Now;
use norn_wire::codec::{Kind, encode_compact};
use norn_wire::random::Random;
use norn_wire::request::Spec;
use norn_wire::response::{Genesis, Member};
use norn_wire::{ClusterId, NodeId, PartitionId, QueueName, TaskId, Versions};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// Tasks in one record of the log that the nodes start with.
const RECORD_TASKS: usize = 1_000;
const PAYLOAD_BYTES: usize = 32;
const PARTITION: PartitionId = PartitionId(0);
const WALL_MS: u64 = 1_700_000_000_000;
/// Virtual time limit of a measurement.
const PATIENCE_MS: u64 = 3_600_000;
/// Virtual time over which the traffic of equal replicas is measured.
const IDLE_MS: u64 = 60_000;

/// Flags.
#[derive(Debug, Args)]
pub struct Options {
    /// Tasks in the partition.
    #[arg(long, value_delimiter = ',', default_value = "1000,100000,1000000")]
    tasks: Vec<usize>,
    /// Tasks that one of the two does not have.
    #[arg(long, value_delimiter = ',', default_value = "1,100,10000")]
    differences: Vec<usize>,
}

/// Measures every combination.
pub fn run(options: &Options, mut report: Report) -> Result<()> {
    ensure!(!options.tasks.contains(&0), "a partition without tasks has nothing to repair");
    // The trees are measured first, and none is freed before all are measured: memory that was in use before would not show.
    let trees = options.tasks.iter().map(|count| memory(*count, &mut report)).collect::<Result<Vec<Tree>>>()?;
    drop(trees);
    for count in &options.tasks {
        let tasks = tasks(*count)?;
        for differences in options.differences.iter().filter(|differences| *differences <= count) {
            measure(&tasks, *differences, &mut report)?;
        }
    }
    Ok(())
}

/// Ids as a client mints them one by one: a time and a random counter.
fn ids(count: usize) -> impl Iterator<Item = TaskId> {
    let mut random = Random::new(7);
    let first_ms = WALL_MS - count as u64;
    (first_ms..WALL_MS).map(move |at_ms| TaskId::new(at_ms, random.bits() as u32, 7, random.bits() as u32 >> 8))
}

fn tasks(count: usize) -> Result<Vec<(TaskId, Task)>> {
    let queue = QueueName::new("mail")?;
    let task = |id: TaskId| {
        let spec = Spec::new(queue.clone(), vec![b'x'; PAYLOAD_BYTES]);
        (id, Task::from_spec(Arc::new(spec)))
    };
    Ok(ids(count).map(task).collect())
}

/// Memory of the tree with its lists, measured as growth of the process.
fn memory(count: usize, report: &mut Report) -> Result<Tree> {
    let own = std::process::id();
    let before = resident_bytes(own)?;
    let mut tree = Tree::default();
    for id in ids(count) {
        tree.change(&id, 0, 1);
    }
    let bytes = resident_bytes(own)?.saturating_sub(before);
    let each = bytes as f64 / count as f64;
    let row = Row::default().count("tasks", count as u64).count("tree_bytes", bytes);
    report.row(row.number("bytes_task", each, 1))?;
    Ok(tree)
}

fn node_id(place: usize) -> NodeId {
    NodeId(place as u128 + 1)
}

fn founding(place: usize) -> Founding {
    let config = Config { repair_bytes_per_second: 1 << 36, repair_items_per_second: 1 << 30, ..Config::default() };
    let name = format!("n{place}");
    Founding { config, node: node_id(place), incarnation: 1, name, address: String::new(), zone: String::new() }
}

fn genesis() -> Genesis {
    let member = |place: usize| Member {
        node: node_id(place),
        incarnation: 1,
        address: String::new(),
        name: format!("n{place}"),
        zone: String::new(),
    };
    Genesis {
        cluster: ClusterId(1),
        name: "bench".into(),
        partitions: 1,
        replicas: 2,
        members: (0..2).map(member).collect(),
        assignment: vec![vec![0, 1]],
    }
}

/// Two nodes with perfect disks and links, and the traffic between them.
struct Pair {
    nodes: Vec<Node>,
    now: Now,
    events: VecDeque<(usize, Event)>,
    bytes: u64,
    messages: u64,
    cpu_s: f64,
    frame: Vec<u8>,
}

impl Pair {
    fn start(tasks: &[(TaskId, Task)], missing: &BTreeSet<TaskId>) -> Result<Pair> {
        let now = Now { mono_us: 1_000_000, wall_ms: WALL_MS };
        let mut pair = Pair {
            nodes: Vec::new(),
            now,
            events: VecDeque::new(),
            bytes: 0,
            messages: 0,
            cpu_s: 0.0,
            frame: Vec::new(),
        };
        for place in 0..2 {
            let mut node = Node::new(founding(place), place as u64);
            let mut recover = |record| node.recover(record, false, None).map_err(anyhow::Error::msg);
            recover(Record::Genesis(Arc::new(genesis())))?;
            for part in tasks.chunks(RECORD_TASKS) {
                let known = part.iter().filter(|(id, _)| place == 0 || !missing.contains(id)).cloned();
                recover(Record::Facts { partition: PARTITION, items: Arc::new(known.collect()) })?;
            }
            let mut effects = Vec::new();
            node.start(now, 0, &mut effects);
            pair.nodes.push(node);
            pair.carry_out(place, effects)?;
        }
        Ok(pair)
    }

    fn carry_out(&mut self, place: usize, effects: Vec<Effect>) -> Result<()> {
        for effect in effects {
            match effect {
                Effect::Persist { ticket, records } => {
                    // A body without a place stays in memory.
                    let facts = records.iter().filter(|record| matches!(record, Record::Facts { .. }));
                    let places = vec![None; facts.count()];
                    self.events.push_back((place, Event::Persisted { ticket, places, durable: ticket.0 }));
                }
                Effect::Send { to, message } => {
                    self.count(&message);
                    let peer = if to == node_id(0) { 0 } else { 1 };
                    self.events.push_back((peer, Event::Peer { from: node_id(place), message }));
                }
                Effect::Load { .. } | Effect::Archive { .. } => {
                    bail!("node {place} asks for what nothing here leads to")
                }
                Effect::Halt { reason } => bail!("node {place} halted: {reason}"),
                Effect::Reply { .. } | Effect::Joined { .. } | Effect::Observe(_) | Effect::Stopped => {}
            }
        }
        Ok(())
    }

    /// Counts a message, unless it belongs to elections or heartbeats, which are not part of the measurement.
    fn count(&mut self, message: &PeerMessage) {
        if message.class() == Class::Bulk {
            self.frame.clear();
            encode_compact(&mut self.frame, Versions::SPOKEN.newest, Kind::Peer, 0, message);
            self.bytes += self.frame.len() as u64;
            self.messages += 1;
        }
    }

    /// Advances time by a millisecond, and handles all events that are due.
    fn advance(&mut self) -> Result<()> {
        self.now.mono_us += 1_000;
        self.now.wall_ms += 1;
        for place in 0..2 {
            if self.nodes[place].next_wake().is_some_and(|at_us| at_us <= self.now.mono_us) {
                self.events.push_back((place, Event::Wake));
            }
        }
        while let Some((place, event)) = self.events.pop_front() {
            let mut effects = Vec::new();
            let started_s = thread_cpu_seconds()?;
            self.nodes[place].step(self.now, event, &mut effects);
            self.cpu_s += thread_cpu_seconds()? - started_s;
            self.carry_out(place, effects)?;
        }
        Ok(())
    }

    fn are_equal(&self) -> bool {
        let content = |node: &Node| node.inspect().into_iter().map(|view| view.content).collect::<Vec<_>>();
        content(&self.nodes[0]) == content(&self.nodes[1])
    }
}

fn measure(tasks: &[(TaskId, Task)], differences: usize, report: &mut Report) -> Result<()> {
    // Spread over all tasks, as in a replica that received most of the writes.
    let missing: BTreeSet<TaskId> =
        (0..differences).map(|number| tasks[number * tasks.len() / differences].0).collect();
    let mut pair = Pair::start(tasks, &missing)?;
    let begin_us = pair.now.mono_us;
    while !pair.are_equal() {
        pair.advance()?;
        ensure!(pair.now.mono_us - begin_us < PATIENCE_MS * 1_000, "the replicas do not become equal");
    }
    let (bytes, messages, cpu_s) = (pair.bytes, pair.messages, pair.cpu_s);
    let took_ms = (pair.now.mono_us - begin_us) / 1_000;
    let settle_us = pair.now.mono_us + 5_000_000;
    while pair.now.mono_us < settle_us {
        pair.advance()?;
    }
    let idle_from = pair.bytes;
    let idle_until_us = pair.now.mono_us + IDLE_MS * 1_000;
    while pair.now.mono_us < idle_until_us {
        pair.advance()?;
    }
    let idle = (pair.bytes - idle_from) as f64 / (IDLE_MS / 1_000) as f64;
    report.row(
        Row::default()
            .count("tasks", tasks.len() as u64)
            .count("differ", differences as u64)
            .count("messages", messages)
            .count("bytes", bytes)
            .number("bytes_each", bytes as f64 / differences as f64, 0)
            .number("cpu_ms", cpu_s * 1e3, 2)
            .count("virtual_ms", took_ms)
            .number("idle_bytes_s", idle, 1),
    )
}
