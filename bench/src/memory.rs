//! What a waiting task costs a node in memory, as the allocator sees it: tasks, indexes, hash tree, and everything else.

use crate::report::{Report, Row};
use anyhow::{Result, ensure};
use clap::Args;
use norn_client::wire::request::Spec;
use norn_client::wire::response::{Genesis, Member};
use norn_client::wire::{Acks, ClusterId, NewTask, NodeId, QueueName, Request, Response, TaskId};
use norn_node::config::Config;
use norn_node::protocol::task::Place;
use norn_node::protocol::{ClientId, Effect, Event, Founding, Node, Now, Principal, Record, ring};
use peak_alloc::PeakAlloc;
use std::collections::VecDeque;
use std::num::NonZeroU32;

#[global_allocator]
static ALLOCATED: PeakAlloc = PeakAlloc;

/// Tasks in one call.
const BATCH: usize = 100;
const WALL_MS: u64 = 1_700_000_000_000;

/// Flags.
#[derive(Debug, Args)]
pub struct Options {
    /// Waiting tasks.
    #[arg(long, default_value_t = 1_000_000)]
    tasks: usize,
    /// Bytes of each.
    #[arg(long, default_value_t = 256)]
    payload: usize,
    /// Partitions, a power of two.
    #[arg(long, default_value_t = 4)]
    partitions: u32,
    /// Queues.
    #[arg(long, default_value_t = 4)]
    queues: usize,
}

/// Measures without bodies in memory, and with all of them.
pub fn run(options: &Options, mut report: Report) -> Result<()> {
    for (bodies, payload_memory_bytes) in [("in the log", 0), ("in memory", 1 << 50)] {
        let before_bytes = PeakAlloc.current_usage();
        let mut host = Host::new(options, payload_memory_bytes)?;
        let empty_bytes = PeakAlloc.current_usage();
        host.fill(options)?;
        let full_bytes = PeakAlloc.current_usage();
        let row = Row::default()
            .count("tasks", options.tasks as u64)
            .count("payload_bytes", options.payload as u64)
            .text("bodies", bodies)
            .number("empty_node_kib", (empty_bytes - before_bytes) as f64 / 1024.0, 0)
            .number("bytes_per_task", (full_bytes - empty_bytes) as f64 / options.tasks.max(1) as f64, 1);
        report.row(row)?;
    }
    Ok(())
}

/// A node alone in its cluster, on a log that takes everything and keeps nothing.
struct Host {
    node: Node,
    now: Now,
    records: u64,
    events: VecDeque<Event>,
    replies: u64,
}

impl Host {
    fn new(options: &Options, payload_memory_bytes: u64) -> Result<Host> {
        let config = Config { payload_memory_bytes, tasks_max: u64::MAX, ..Config::default() };
        let (name, address, zone) = (String::from("one"), String::new(), String::new());
        let member = Member { node: NodeId(1), incarnation: 1, address, name: name.clone(), zone };
        let founding =
            Founding { config, node: NodeId(1), incarnation: 1, name, address: String::new(), zone: String::new() };
        let now = Now { mono_us: 1_000_000, wall_ms: WALL_MS };
        let mut host = Host { node: Node::new(founding, 1), now, records: 0, events: VecDeque::new(), replies: 0 };
        let mut effects = Vec::new();
        host.node.start(now, 0, &mut effects);
        host.carry_out(effects)?;
        let members = vec![member];
        let genesis = Genesis {
            cluster: ClusterId(1),
            name: "memory".into(),
            partitions: options.partitions,
            replicas: 1,
            assignment: ring::assign(&members, options.partitions, 1),
            members,
        };
        host.ask(Request::Initialize(Box::new(genesis)))?;
        while !host.node.is_serving() {
            host.now.mono_us += 1_000;
            host.step(Event::Wake)?;
        }
        Ok(host)
    }

    fn fill(&mut self, options: &Options) -> Result<()> {
        for first in (0..options.tasks).step_by(BATCH) {
            let numbers = first..options.tasks.min(first + BATCH);
            // A batch shares its tag, as those of a session do.
            let tag = (first as u32).wrapping_mul(2_654_435_761) >> 8;
            let task = |number: usize| -> Result<NewTask> {
                let queue = QueueName::new(&format!("namespace/queue-{}", number % options.queues.max(1)))?;
                let payload = vec![7; options.payload];
                let spec = Spec { queue, payload, priority: 0, not_before_ms: 0, headers: Vec::new(), attempts_max: 0 };
                Ok(NewTask { id: TaskId::new(WALL_MS + number as u64 / 1_000, number as u32, 1, tag), spec })
            };
            let tasks = numbers.map(task).collect::<Result<Vec<NewTask>>>()?;
            self.ask(Request::Enqueue { tasks, acks: Acks::Quorum })?;
        }
        Ok(())
    }

    fn ask(&mut self, request: Request) -> Result<()> {
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
        Ok(())
    }

    fn carry_out(&mut self, effects: Vec<Effect>) -> Result<()> {
        for effect in effects {
            match effect {
                Effect::Persist { ticket, records } => {
                    let facts = records.iter().filter(|record| matches!(record, Record::Facts { .. }));
                    let offsets = self.records..;
                    let places = facts.zip(offsets).map(|(_, offset)| Some(Place { file: NonZeroU32::MIN, offset }));
                    let places: Vec<Option<Place>> = places.collect();
                    self.records += places.len() as u64;
                    self.events.push_back(Event::Persisted { ticket, places, durable: ticket.0 });
                }
                Effect::Reply { response, .. } => {
                    self.replies += 1;
                    let refused = match &response {
                        Response::Acked(results) => results.iter().any(Result::is_err),
                        Response::Done => false,
                        _ => true,
                    };
                    ensure!(!refused, "the node says {response:?}");
                }
                _ => {}
            }
        }
        Ok(())
    }
}
