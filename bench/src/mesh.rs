//! A cluster of any size in this process: perfect disks and links, virtual time. What is measured is the work of the nodes alone.

use crate::process::thread_cpu_seconds;
use anyhow::{Context, Result, bail};
use norn_engine::{ClientId, Effect, Event, Founding, Node, Principal};
use norn_model::config::Config;
use norn_model::record::Record;
use norn_model::ring;
use norn_model::time::Now;
use norn_wire::codec::{Kind, encode_compact};
use norn_wire::response::{Genesis, Member};
use norn_wire::{ClusterId, NodeId, Request, Response, Versions};
use std::collections::VecDeque;
use std::sync::Arc;

/// Wall-clock time of the start.
const WALL_MS: u64 = 1_700_000_000_000;
/// Virtual time within which a cluster serves, or a call is answered.
const PATIENCE_MS: u64 = 600_000;
/// Copies of each task.
const REPLICAS: u32 = 3;

/// What the nodes did.
#[derive(Debug, Clone, Copy, Default)]
pub struct Work {
    /// CPU time.
    pub cpu_s: f64,
    /// Messages between nodes.
    pub messages: u64,
    /// Bytes of their frames, if they are counted.
    pub bytes: u64,
}

impl Work {
    /// The difference to an earlier measurement.
    pub fn since(self, before: Work) -> Work {
        Work {
            cpu_s: self.cpu_s - before.cpu_s,
            messages: self.messages - before.messages,
            bytes: self.bytes - before.bytes,
        }
    }
}

/// The nodes, and the traffic between them.
pub struct Mesh {
    nodes: Vec<Node>,
    /// Present time of all clocks.
    pub now: Now,
    events: VecDeque<(usize, Event)>,
    answer: Option<Response>,
    messages: u64,
    bytes: u64,
    /// Whether bytes are counted, which takes longer than all else.
    pub counts_bytes: bool,
    frame: Vec<u8>,
}

fn node_id(place: usize) -> NodeId {
    NodeId(place as u128 + 1)
}

fn member(place: usize) -> Member {
    let (node, name) = (node_id(place), format!("n{place}"));
    Member { node, incarnation: 1, address: String::new(), name, zone: String::new() }
}

/// Founding record of a cluster.
pub fn genesis(nodes: usize, partitions: u32) -> Genesis {
    let members: Vec<Member> = (0..nodes).map(member).collect();
    let assignment = ring::assign(&members, partitions, REPLICAS);
    Genesis { cluster: ClusterId(1), name: "bench".into(), partitions, replicas: REPLICAS, assignment, members }
}

impl Mesh {
    /// Starts a founded cluster; returns once it serves.
    pub fn start(nodes: usize, partitions: u32, config: &Config) -> Result<Mesh> {
        let genesis = Arc::new(genesis(nodes, partitions));
        let now = Now { mono_us: 1_000_000, wall_ms: WALL_MS };
        let (events, answer, frame) = (VecDeque::new(), None, Vec::new());
        let mut mesh =
            Mesh { nodes: Vec::new(), now, events, answer, messages: 0, bytes: 0, counts_bytes: false, frame };
        for place in 0..nodes {
            let Member { node, name, .. } = member(place);
            let (address, zone) = (String::new(), String::new());
            let founding = Founding { config: config.clone(), node, incarnation: 1, name, address, zone };
            let mut node = Node::new(founding, place as u64);
            node.recover(Record::Genesis(genesis.clone()), false, None).map_err(anyhow::Error::msg)?;
            let mut effects = Vec::new();
            node.start(now, 0, &mut effects);
            mesh.nodes.push(node);
            mesh.carry_out(place, effects)?;
        }
        mesh.handle_events()?;
        let deadline_us = now.mono_us + PATIENCE_MS * 1_000;
        while !mesh.nodes.iter().all(Node::is_serving) {
            mesh.advance(deadline_us).context("the cluster does not serve")?;
        }
        Ok(mesh)
    }

    /// Number of nodes.
    pub fn nodes_count(&self) -> usize {
        self.nodes.len()
    }

    /// What the nodes have done so far.
    pub fn work(&self) -> Result<Work> {
        Ok(Work { cpu_s: thread_cpu_seconds()?, messages: self.messages, bytes: self.bytes })
    }

    /// Lets this virtual time pass.
    pub fn pass(&mut self, length_ms: u64) -> Result<()> {
        let until_us = self.now.mono_us + length_ms * 1_000;
        while self.next_us().is_some_and(|at_us| at_us <= until_us) {
            self.advance(until_us)?;
        }
        self.go_to(until_us);
        Ok(())
    }

    /// Makes a request to a node; returns the answer.
    pub fn ask(&mut self, place: usize, request: Request) -> Result<Response> {
        let principal = Principal { name: "bench".into(), node: true };
        self.answer = None;
        self.events.push_back((place, Event::Request { client: ClientId(1), number: 1, principal, request }));
        self.handle_events()?;
        let deadline_us = self.now.mono_us + PATIENCE_MS * 1_000;
        loop {
            if let Some(answer) = self.answer.take() {
                return Ok(answer);
            }
            self.advance(deadline_us).context("a call is not answered")?;
        }
    }

    fn next_us(&self) -> Option<u64> {
        self.nodes.iter().filter_map(Node::next_wake).min()
    }

    fn go_to(&mut self, mono_us: u64) {
        self.now.mono_us = mono_us.max(self.now.mono_us);
        self.now.wall_ms = WALL_MS + self.now.mono_us / 1_000;
    }

    /// Goes on to the first timer, which must not be behind the deadline.
    fn advance(&mut self, deadline_us: u64) -> Result<()> {
        let next_us = self.next_us().filter(|at_us| *at_us <= deadline_us).context("nothing happens any more")?;
        self.go_to(next_us);
        for place in 0..self.nodes.len() {
            if self.nodes[place].next_wake().is_some_and(|at_us| at_us <= self.now.mono_us) {
                self.events.push_back((place, Event::Wake));
            }
        }
        self.handle_events()
    }

    fn handle_events(&mut self) -> Result<()> {
        while let Some((place, event)) = self.events.pop_front() {
            let mut effects = Vec::new();
            self.nodes[place].step(self.now, event, &mut effects);
            self.carry_out(place, effects)?;
        }
        Ok(())
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
                    self.messages += 1;
                    if self.counts_bytes {
                        self.frame.clear();
                        encode_compact(&mut self.frame, Versions::SPOKEN.newest, Kind::Peer, 0, &message);
                        self.bytes += self.frame.len() as u64;
                    }
                    let peer = usize::try_from(to.0 - 1).context("a node of the cluster")?;
                    self.events.push_back((peer, Event::Peer { from: node_id(place), message }));
                }
                Effect::Reply { response, .. } => self.answer = Some(response),
                Effect::Halt { reason } => bail!("node {place} halted: {reason}"),
                Effect::Load { .. } | Effect::Archive { .. } => bail!("node {place} asks for what is in memory"),
                Effect::Joined { .. } | Effect::Observe(_) | Effect::Stopped => {}
            }
        }
        Ok(())
    }
}
