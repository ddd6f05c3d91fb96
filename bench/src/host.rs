//! A single-node cluster in this process, with simulated time: no network, no waiting.

use anyhow::{Result, bail, ensure};
use norn_engine::{ClientId, Effect, Event, Founding, Node, Principal};
use norn_model::config::Config;
use norn_model::record::Record;
use norn_model::ring;
use norn_model::snapshot::Moved;
use norn_model::task::Place;
use norn_model::time::Now;
use norn_storage::Identity;
use norn_wire::request::Spec;
use norn_wire::response::{Genesis, Member};
use norn_wire::{Acks, ClusterId, NewTask, NodeId, QueueName, Request, Response, TaskId};
use std::collections::VecDeque;
use std::num::NonZeroU32;

/// Identity of the node.
pub const IDENTITY: Identity = Identity { node: NodeId(1), incarnation: 1 };
/// Wall-clock time of the founding.
const WALL_MS: u64 = 1_700_000_000_000;

/// The log of a hosted node.
pub trait Keep {
    /// Appends records; returns the places of those with facts.
    fn keep(&mut self, records: &[Record]) -> Result<Vec<Option<Place>>>;
    /// Does a part of the log's other work; returns what has moved in the log.
    fn upkeep(&mut self, node: &Node) -> Result<Vec<Moved>>;
}

/// A log that accepts everything and stores nothing.
#[derive(Debug, Default)]
pub struct Nowhere {
    records: u64,
}

impl Keep for Nowhere {
    fn keep(&mut self, records: &[Record]) -> Result<Vec<Option<Place>>> {
        let facts = records.iter().filter(|record| matches!(record, Record::Facts { .. }));
        let places: Vec<Option<Place>> =
            facts.zip(self.records..).map(|(_, offset)| Some(Place { file: NonZeroU32::MIN, offset })).collect();
        self.records += places.len() as u64;
        Ok(places)
    }

    fn upkeep(&mut self, _: &Node) -> Result<Vec<Moved>> {
        Ok(Vec::new())
    }
}

/// Founding parameters of the node.
pub fn founding(config: Config) -> Founding {
    let Identity { node, incarnation } = IDENTITY;
    Founding { config, node, incarnation, name: "one".into(), address: String::new(), zone: String::new() }
}

/// The node with its log and clocks.
pub struct Host<K> {
    node: Node,
    /// Present time of its clocks.
    pub now: Now,
    /// Its log.
    pub log: K,
    events: VecDeque<Event>,
    replies: u64,
}

impl<K: Keep> Host<K> {
    /// Founds the cluster; returns once it serves.
    pub fn new(config: Config, partitions: u32, log: K) -> Result<Host<K>> {
        let Identity { node, incarnation } = IDENTITY;
        let member = Member { node, incarnation, address: String::new(), name: "one".into(), zone: String::new() };
        let now = Now { mono_us: 1_000_000, wall_ms: WALL_MS };
        let core = Node::new(founding(config), 1);
        let mut host = Host { node: core, now, log, events: VecDeque::new(), replies: 0 };
        let mut effects = Vec::new();
        host.node.start(now, 0, &mut effects);
        host.carry_out(effects)?;
        let members = vec![member];
        let genesis = Genesis {
            cluster: ClusterId(1),
            name: "bench".into(),
            partitions,
            replicas: 1,
            assignment: ring::assign(&members, partitions, 1),
            members,
        };
        host.ask(Request::Initialize(Box::new(genesis)))?;
        while !host.node.is_serving() {
            host.pass(1)?;
        }
        Ok(host)
    }

    /// Advances time by this length.
    pub fn pass(&mut self, length_ms: u64) -> Result<()> {
        self.now.mono_us += length_ms * 1_000;
        self.now.wall_ms += length_ms;
        self.step(Event::Wake)
    }

    /// Advances time to the node's next timer.
    pub fn pass_until_due(&mut self) -> Result<()> {
        let due_us = self.node.next_wake().unwrap_or(self.now.mono_us);
        self.pass(due_us.saturating_sub(self.now.mono_us).div_ceil(1_000).max(1))
    }

    /// Enqueues a batch.
    pub fn enqueue(&mut self, tasks: Vec<NewTask>) -> Result<()> {
        self.ask(Request::Enqueue { tasks, acks: Acks::Quorum })
    }

    /// Makes a request that must succeed.
    pub fn ask(&mut self, request: Request) -> Result<()> {
        let principal = Principal { name: "bench".into(), node: true };
        let before = self.replies;
        self.step(Event::Request { client: ClientId(1), number: 1, principal, request })?;
        ensure!(self.replies == before + 1, "the node does not answer");
        Ok(())
    }

    fn step(&mut self, event: Event) -> Result<()> {
        self.events.push_back(event);
        while let Some(event) = self.events.pop_front() {
            let mut effects = Vec::new();
            self.node.step(self.now, event, &mut effects);
            self.carry_out(effects)?;
        }
        let ranges = self.log.upkeep(&self.node)?;
        if ranges.is_empty() { Ok(()) } else { self.step(Event::Moved { ranges }) }
    }

    fn carry_out(&mut self, effects: Vec<Effect>) -> Result<()> {
        for effect in effects {
            match effect {
                Effect::Persist { ticket, records } => {
                    let places = self.log.keep(&records)?;
                    self.events.push_back(Event::Persisted { ticket, places, durable: ticket.0 });
                }
                Effect::Reply { response, .. } => {
                    self.replies += 1;
                    match response {
                        // One refusal says enough of a batch.
                        Response::Acked(results) => drop(results.into_iter().collect::<Result<Vec<_>, _>>()?),
                        Response::Done => {}
                        other => bail!("the node says {other:?}"),
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// When the task of a number was made: slowly enough that the last of ten million is not from the future.
pub fn made_ms(number: usize) -> u64 {
    WALL_MS + number as u64 / 1_000
}

/// A batch of tasks, numbered from `first` on. All share a tag, as the tasks of one session do.
pub fn batch(first: usize, count: usize, made_ms: u64, queue: &QueueName, payload_bytes: usize) -> Vec<NewTask> {
    let tag = (first as u32).wrapping_mul(2_654_435_761) >> 8;
    let task = |number: usize| {
        let (queue, payload) = (queue.clone(), vec![7; payload_bytes]);
        let spec = Spec::new(queue, payload);
        NewTask { id: TaskId::new(made_ms, number as u32, 1, tag), spec }
    };
    (first..first + count).map(task).collect()
}
