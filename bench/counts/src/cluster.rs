//! Three nodes in memory, with disks that are done at once and links that lose nothing.

use crate::values::{QUEUE, WALL_MS, genesis, ids, node_id, spec, task};
use anyhow::{Context, Error, Result, bail, ensure};
use norn_engine::{ClientId, Effect, Event, Founding, Node, Principal};
use norn_model::config::Config;
use norn_model::record::Record;
use norn_model::ring::partition_of_task;
use norn_model::task::Task;
use norn_model::time::Now;
use norn_wire::{Acks, Claim, ClaimId, Completion, Granted, NewTask, QueueName, Request, Response, TaskId};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

const NODES: usize = 3;
/// Longest virtual time that anything takes.
const PATIENCE_MS: usize = 60_000;
/// Tasks in each of two equal replicas.
const EQUAL_TASKS: usize = 1_000;
/// Tasks in a batch.
const BATCH: usize = 100;

struct Cluster {
    nodes: Vec<Node>,
    now: Now,
    events: VecDeque<(usize, Event)>,
    effects: Vec<Effect>,
    /// The last answer, with the number of its request.
    reply: Option<(u64, Response)>,
    number: u64,
}

impl Cluster {
    /// Starts nodes whose logs have these facts, and lets them elect leaders.
    fn start(tasks: &[(TaskId, Task)]) -> Result<Cluster> {
        let mut cluster = Cluster {
            nodes: Vec::new(),
            now: Now { mono_us: 1_000_000, wall_ms: WALL_MS + 1_000_000 },
            events: VecDeque::new(),
            effects: Vec::new(),
            reply: None,
            number: 0,
        };
        let genesis = Arc::new(genesis(NODES));
        let mut parts: BTreeMap<_, Vec<(TaskId, Task)>> = BTreeMap::new();
        for (id, task) in tasks {
            parts.entry(partition_of_task(id, genesis.partitions)).or_default().push((*id, task.clone()));
        }
        for (place, member) in genesis.members.iter().enumerate() {
            let founding = Founding {
                config: Config::default(),
                node: member.node,
                incarnation: member.incarnation,
                name: member.name.clone(),
                address: member.address.clone(),
                zone: member.zone.clone(),
            };
            let mut node = Node::new(founding, place as u64);
            let mut recover = |record| node.recover(record, false, None).map_err(Error::msg);
            recover(Record::Genesis(genesis.clone()))?;
            for (partition, items) in &parts {
                recover(Record::Facts { partition: *partition, items: Arc::new(items.clone()) })?;
            }
            let mut effects = Vec::new();
            node.start(cluster.now, 0, &mut effects);
            cluster.nodes.push(node);
            cluster.carry_out(place, &mut effects)?;
        }
        for _ in 0..PATIENCE_MS {
            if cluster.nodes.iter().all(Node::is_serving) {
                // Elections and first rounds are over, too.
                cluster.advance(5_000)?;
                return Ok(cluster);
            }
            cluster.advance(1)?;
        }
        bail!("the nodes do not serve")
    }

    fn carry_out(&mut self, place: usize, effects: &mut Vec<Effect>) -> Result<()> {
        for effect in effects.drain(..) {
            match effect {
                Effect::Persist { ticket, records } => {
                    // A body without a place stays in memory.
                    let facts = records.iter().filter(|record| matches!(record, Record::Facts { .. }));
                    let places = vec![None; facts.count()];
                    self.events.push_back((place, Event::Persisted { ticket, places, durable: ticket.0 }));
                }
                Effect::Send { to, message } => {
                    self.events.push_back((to.0 as usize - 1, Event::Peer { from: node_id(place), message }));
                }
                Effect::Reply { number, response, .. } => self.reply = Some((number, response)),
                Effect::Load { .. } | Effect::Archive { .. } => {
                    bail!("node {place} asks for what nothing here leads to")
                }
                Effect::Halt { reason } => bail!("node {place} halted: {reason}"),
                Effect::Joined { .. } | Effect::Observe(_) | Effect::Stopped => {}
            }
        }
        Ok(())
    }

    /// Handles all queued events, at one instant.
    fn drain(&mut self) -> Result<()> {
        let mut effects = std::mem::take(&mut self.effects);
        while let Some((place, event)) = self.events.pop_front() {
            self.nodes[place].step(self.now, event, &mut effects);
            self.carry_out(place, &mut effects)?;
        }
        self.effects = effects;
        Ok(())
    }

    fn advance(&mut self, ms: u64) -> Result<()> {
        for _ in 0..ms {
            self.now.mono_us += 1_000;
            self.now.wall_ms += 1;
            for place in 0..NODES {
                if self.nodes[place].next_wake().is_some_and(|at_us| at_us <= self.now.mono_us) {
                    self.events.push_back((place, Event::Wake));
                }
            }
            self.drain()?;
        }
        Ok(())
    }

    /// Makes a request, and advances time until it is answered.
    fn ask(&mut self, place: usize, request: Request) -> Result<Response> {
        self.number += 1;
        let (number, principal) = (self.number, Principal { name: "counts".into(), node: false });
        self.events.push_back((place, Event::Request { client: ClientId(1), number, principal, request }));
        self.drain()?;
        for _ in 0..PATIENCE_MS {
            match self.reply.take() {
                Some((answered, response)) if answered == number => return Ok(response),
                _ => self.advance(1)?,
            }
        }
        bail!("a request is not answered")
    }

    /// Enqueues tasks, claims as many, confirms the claim and completes them, each at another node.
    fn live(&mut self, ids: &[TaskId], round: usize) -> Result<()> {
        let tasks: Vec<NewTask> = ids.iter().map(|id| Ok(NewTask { id: *id, spec: spec()? })).collect::<Result<_>>()?;
        let enqueued = self.ask(round % NODES, Request::Enqueue { tasks, acks: Acks::Quorum })?;
        ensure!(matches!(&enqueued, Response::Acked(acks) if acks.iter().all(Result::is_ok)), "{enqueued:?}");
        let mut left = ids.len();
        while left > 0 {
            let broker = (round + 1) % NODES;
            let claim = ClaimId(u128::from(self.number) + 1);
            let claimed = self.ask(broker, Request::Claim(claim_of(claim, left as u32)?))?;
            let Response::Claimed { tasks, .. } = claimed else { bail!("{claimed:?}") };
            ensure!(!tasks.is_empty(), "nothing is granted");
            let confirmed = self.ask(broker, Request::Confirm { claim })?;
            ensure!(confirmed == Response::Done, "{confirmed:?}");
            left -= tasks.len();
            self.complete((round + 2) % NODES, &tasks)?;
        }
        Ok(())
    }

    fn complete(&mut self, place: usize, tasks: &[Granted]) -> Result<()> {
        let completion = |task: &Granted| Completion {
            id: task.id,
            token: task.token,
            sequence: None,
            result: None,
            at_ms: self.now.wall_ms,
            children: Vec::new(),
        };
        let items = tasks.iter().map(completion).collect();
        let completed = self.ask(place, Request::Complete { items, acks: Acks::Quorum })?;
        ensure!(matches!(&completed, Response::Acked(acks) if acks.iter().all(Result::is_ok)), "{completed:?}");
        Ok(())
    }
}

fn claim_of(claim: ClaimId, max: u32) -> Result<Claim> {
    Ok(Claim {
        claim,
        repeated: false,
        queues: vec![QueueName::new(QUEUE)?],
        lease_ms: 30_000,
        wait_ms: 10_000,
        max,
        worker: "counts".into(),
        lease_open: false,
        session: None,
        depends: Vec::new(),
        confirms: true,
    })
}

fn live_in_batches(rounds: usize, batch: usize) -> Result<()> {
    let (mut cluster, mut ids) = (Cluster::start(&[])?, ids());
    for round in 0..rounds {
        // As clients mint them, the tasks of a call lie together.
        let batch: Vec<TaskId> = ids.by_ref().take(batch).collect();
        let batch: Vec<TaskId> = batch.iter().map(|id| id.with_tag(batch[0].tag())).collect();
        cluster.live(&batch, round)?;
    }
    // What is left of the last ones, so that each counts as a whole.
    cluster.advance(1_000)
}

/// Enqueues, claims, confirms and completes one task.
pub fn lifecycle(rounds: usize) -> Result<()> {
    live_in_batches(rounds, 1)
}

/// The same with 100 tasks in each call.
pub fn lifecycle_of_100(rounds: usize) -> Result<()> {
    live_in_batches(rounds, BATCH)
}

/// A virtual second of nodes whose replicas are equal and have a thousand waiting tasks: heartbeats and anti-entropy.
pub fn equal_second(rounds: usize) -> Result<()> {
    let task = task()?;
    let tasks: Vec<(TaskId, Task)> = ids().take(EQUAL_TASKS).map(|id| (id, task.clone())).collect();
    let mut cluster = Cluster::start(&tasks)?;
    let content = |node: &Node| node.inspect().into_iter().map(|view| view.content).collect::<Vec<_>>();
    let contents: Vec<_> = cluster.nodes.iter().map(content).collect();
    ensure!(contents.windows(2).all(|pair| pair[0] == pair[1]), "the replicas differ");
    for _ in 0..rounds {
        cluster.advance(1_000).context("an idle second")?;
    }
    Ok(())
}
