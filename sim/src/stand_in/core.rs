//! A toy of the core: every cohort is the first members, and the first of them leads with its boot as the epoch.

use super::ring;
use norn_client::wire::request::{Claim, Request};
use norn_client::wire::response::{
    Acked, Genesis, Granted, Guarantee, Identity, Page, Response, State, TaskView, Welcome,
};
use norn_client::wire::{Error, ErrorCode, NodeId, PartitionId, TaskId, Token};
use norn_node::config::Mutant;
use norn_node::protocol::consistent::table::{Cell, CellState, Op, Table};
use norn_node::protocol::consistent::{ReplicaId, Viewstamp};
use norn_node::protocol::peer::Outcome;
use norn_node::protocol::random::Random;
use norn_node::protocol::task::{Cancel, Completed, Task};
use norn_node::protocol::{ClientId, Effect, Event, Founding, Now, Observation, PeerMessage, Record, Ticket};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReplicaView {
    pub partition: PartitionId,
    pub promised: u64,
    pub viewstamp: Viewstamp,
    pub digest: u128,
    pub leads: bool,
    pub established: bool,
    pub commit: u64,
    pub tree_root: u128,
    pub tasks: usize,
}

#[derive(Debug, Clone, Copy)]
enum Origin {
    Client(ClientId, u64),
    Peer(NodeId, u64),
}

struct Wait {
    origin: Origin,
    response: Response,
    ticket: u64,
    facts: Vec<u64>,
    op: Option<(PartitionId, u64)>,
    says: Vec<Observation>,
}

#[derive(Default)]
struct Shard {
    table: Table,
    base: Option<Arc<Table>>,
    at: Viewstamp,
    ops: Vec<Arc<Op>>,
    acked: BTreeMap<NodeId, u64>,
    established: bool,
    tasks: BTreeMap<TaskId, Task>,
}

pub struct Core {
    founding: Founding,
    random: Random,
    genesis: Option<Arc<Genesis>>,
    boot: u64,
    now: Now,
    shards: BTreeMap<PartitionId, Shard>,
    ticket: u64,
    durable: u64,
    held: Vec<(u64, NodeId, PeerMessage)>,
    waits: Vec<Wait>,
    facts: BTreeMap<u64, (PeerMessage, BTreeSet<NodeId>)>,
    asks: BTreeMap<u64, (ClientId, u64, u64)>,
    last: u64,
    tick_us: u64,
    deadlines: BTreeMap<TaskId, u64>,
    effects: Vec<Effect>,
    number: u64,
}

fn merge(into: &mut Task, from: &Task) {
    if into.spec.is_none() {
        into.spec = from.spec.clone();
    }
    let Some(from) = &from.facts else { return };
    let facts = into.facts.get_or_insert_default();
    for entry in &from.updates {
        if !facts.updates.iter().any(|known| known.0 == entry.0) {
            facts.updates.push(entry.clone());
        }
    }
    for entry in &from.completions {
        if !facts.completions.iter().any(|known| known.0 == entry.0) {
            facts.completions.push(entry.clone());
        }
    }
    facts.updates.sort();
    facts.completions.sort();
    facts.cancel = facts.cancel.clone().max(from.cancel.clone());
}

impl Core {
    pub fn new(founding: Founding, seed: u64) -> Core {
        Core {
            founding,
            random: Random::new(seed),
            genesis: None,
            boot: 0,
            now: Now::default(),
            shards: BTreeMap::new(),
            ticket: 0,
            durable: 0,
            held: Vec::new(),
            waits: Vec::new(),
            facts: BTreeMap::new(),
            asks: BTreeMap::new(),
            last: 0,
            tick_us: 0,
            deadlines: BTreeMap::new(),
            effects: Vec::new(),
            number: 0,
        }
    }

    fn found(&mut self, genesis: Arc<Genesis>) {
        for partition in 0..genesis.partitions as u16 {
            let members = genesis.assignment[usize::from(partition)].iter().map(|place| {
                let member = &genesis.members[usize::from(*place)];
                ReplicaId { node: member.node, incarnation: member.incarnation }
            });
            let members: Vec<ReplicaId> = members.collect();
            if members.iter().any(|member| member.node == self.founding.node) {
                let shard = Shard { table: Table::new(members), ..Shard::default() };
                self.shards.insert(PartitionId(partition), shard);
            }
        }
        self.genesis = Some(genesis);
    }

    pub fn recover(&mut self, record: Record) -> Result<(), String> {
        match record {
            Record::Boot { count } => self.boot = count,
            Record::Genesis(genesis) => self.found(genesis),
            Record::Facts { partition, items } => {
                let shard = self.shards.entry(partition).or_default();
                items.iter().for_each(|(id, task)| merge(shard.tasks.entry(*id).or_default(), task));
            }
            Record::Install { partition, viewstamp, table } => {
                let shard = self.shards.entry(partition).or_default();
                shard.at = viewstamp;
                shard.table = table.map_or_else(|| shard.table.clone(), |table| (*table).clone());
            }
            Record::Ops { partition, after, ops } => {
                let shard = self.shards.entry(partition).or_default();
                assert_eq!(shard.at, after, "operations follow each other");
                for op in ops {
                    shard.at.length += 1;
                    shard.table.apply(&op, shard.at).map_err(|error| error.to_string())?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    pub fn start(&mut self, now: Now, effects: &mut Vec<Effect>) {
        self.now = now;
        self.tick_us = now.mono_us;
        self.boot += 1;
        self.last = self.boot << 32;
        self.persist(vec![Record::Boot { count: self.boot }]);
        self.open();
        effects.append(&mut self.effects);
    }

    fn open(&mut self) {
        let Some(genesis) = self.genesis.clone() else { return };
        self.effects.push(Effect::Joined { genesis });
        if !self.leads() {
            return;
        }
        let boot = self.boot;
        let mut records = Vec::new();
        for (partition, shard) in &mut self.shards {
            shard.at = Viewstamp { epoch: boot, length: 0 };
            shard.base = Some(Arc::new(shard.table.clone()));
            for (id, cell) in &shard.table.cells {
                self.deadlines.insert(*id, self.now.mono_us + cell.lease_ms * 1_001);
            }
            records.push(Record::Install { partition: *partition, viewstamp: shard.at, table: shard.base.clone() });
        }
        self.persist(records);
        let all: Vec<_> = self
            .shards
            .iter()
            .flat_map(|(partition, shard)| shard.tasks.iter().map(|(id, task)| (*partition, *id, task.clone())))
            .collect();
        for (partition, id, task) in all {
            self.replicate(partition, vec![(id, task)]);
        }
    }

    fn leader(&self) -> NodeId {
        self.genesis.as_ref().expect("founded").members[0].node
    }

    fn leads(&self) -> bool {
        self.genesis.is_some() && self.leader() == self.founding.node
    }

    fn cohort(&self) -> Vec<NodeId> {
        let genesis = self.genesis.as_ref().expect("founded");
        genesis.members[..genesis.replicas as usize].iter().map(|member| member.node).collect()
    }

    fn persist(&mut self, records: Vec<Record>) -> u64 {
        self.ticket += 1;
        self.effects.push(Effect::Persist { ticket: Ticket(self.ticket), records });
        self.ticket
    }

    fn replicate(&mut self, partition: PartitionId, items: Vec<(TaskId, Task)>) -> u64 {
        self.last += 1;
        let message = PeerMessage::Write { ask: self.last, partition, items: Arc::new(items) };
        self.facts.insert(self.last, (message, BTreeSet::from([self.founding.node])));
        self.last
    }

    /// Merges and stores facts here, and sends them to the others.
    fn write(&mut self, id: TaskId, task: Task) -> u64 {
        let partition = self.partition(&id);
        let shard = self.shards.entry(partition).or_default();
        merge(shard.tasks.entry(id).or_default(), &task);
        let items = Arc::new(vec![(id, task.clone())]);
        self.persist(vec![Record::Facts { partition, items }]);
        self.replicate(partition, vec![(id, task)])
    }

    fn partition(&self, id: &TaskId) -> PartitionId {
        ring::partition_of(id.tag(), self.genesis.as_ref().expect("founded").partitions)
    }

    fn append(&mut self, partition: PartitionId, op: Op) -> u64 {
        let shard = self.shards.get_mut(&partition).expect("held");
        let (after, op) = (shard.at, Arc::new(op));
        shard.at.length += 1;
        shard.table.apply(&op, shard.at).expect("it fits");
        shard.ops.push(op.clone());
        self.persist(vec![Record::Ops { partition, after, ops: vec![op] }]);
        after.length + 1
    }

    pub fn step(&mut self, now: Now, event: Event, effects: &mut Vec<Effect>) {
        self.now = now;
        match event {
            Event::Request { client, number, request, .. } => self.request(client, number, request),
            Event::Peer { from, message } => self.peer(from, message),
            Event::Persisted { ticket } => {
                self.durable = ticket.0;
                let held = std::mem::take(&mut self.held);
                for (ticket, to, message) in held {
                    if ticket <= self.durable {
                        self.effects.push(Effect::Send { to, message });
                    } else {
                        self.held.push((ticket, to, message));
                    }
                }
            }
            _ => {}
        }
        if self.tick_us <= now.mono_us {
            self.tick_us = now.mono_us + 50_000;
            self.tick();
        }
        if self.genesis.is_some() && self.leads() {
            self.settle();
        }
        effects.append(&mut self.effects);
    }

    fn tick(&mut self) {
        let late: Vec<u64> =
            self.asks.iter().filter(|(_, ask)| ask.2 <= self.now.mono_us).map(|(ask, _)| *ask).collect();
        for ask in late {
            let (client, number, _) = self.asks.remove(&ask).expect("listed");
            let response = Response::Error(Error::new(ErrorCode::Unavailable, "no leader"));
            self.effects.push(Effect::Reply { client, number, response });
        }
        if self.genesis.is_none() || !self.leads() {
            return;
        }
        for to in self.cohort().into_iter().filter(|node| *node != self.founding.node) {
            for (message, acked) in self.facts.values() {
                if !acked.contains(&to) {
                    self.effects.push(Effect::Send { to, message: message.clone() });
                }
            }
            for (partition, shard) in &self.shards {
                let message = match shard.acked.get(&to) {
                    None => PeerMessage::Install {
                        partition: *partition,
                        epoch: shard.at.epoch,
                        base: shard.at,
                        table: shard.base.clone(),
                        digest: [0; 16],
                    },
                    Some(length) if *length < shard.at.length => PeerMessage::Ops {
                        partition: *partition,
                        epoch: shard.at.epoch,
                        first: length + 1,
                        ops: shard.ops[*length as usize..].to_vec(),
                        commit: 0,
                        digest: [0; 16],
                    },
                    Some(_) => continue,
                };
                self.effects.push(Effect::Send { to, message });
            }
        }
    }

    /// Answers what has become safe.
    fn settle(&mut self) {
        let cohort = self.cohort();
        let me = self.founding.node;
        let mutant = self.founding.config.mutant;
        let many = |count: usize| 2 * count > cohort.len();
        for (partition, shard) in &mut self.shards {
            if !shard.established && self.durable > 1 && many(shard.acked.len() + 1) {
                shard.established = true;
                let (partition, epoch) = (partition.0, shard.at.epoch);
                self.effects.push(Effect::Observe(Observation::Established { partition, epoch }));
            }
        }
        let waits = std::mem::take(&mut self.waits);
        for wait in waits {
            let facts = wait.facts.iter().all(|fact| self.facts.get(fact).is_none_or(|(_, acked)| many(acked.len())));
            let op = wait.op.is_none_or(|(partition, length)| {
                let acked = &self.shards[&partition].acked;
                many(acked.values().filter(|acked| **acked >= length).count() + 1)
            });
            let written = mutant == Some(Mutant::AckBeforeDurable)
                || (wait.ticket <= self.durable && facts && (op || mutant == Some(Mutant::GrantBeforeQuorum)));
            if !written {
                self.waits.push(wait);
                continue;
            }
            self.effects.extend(wait.says.into_iter().map(Effect::Observe));
            self.respond(wait.origin, wait.response);
        }
        self.facts.retain(|_, (_, acked)| cohort.iter().any(|node| !acked.contains(node) && *node != me));
    }

    fn respond(&mut self, origin: Origin, response: Response) {
        self.effects.push(match origin {
            Origin::Client(client, number) => Effect::Reply { client, number, response },
            Origin::Peer(to, ask) => {
                Effect::Send { to, message: PeerMessage::Forwarded { ask, response: Box::new(Ok(response)) } }
            }
        });
    }

    fn peer(&mut self, from: NodeId, message: PeerMessage) {
        let replica = ReplicaId { node: self.founding.node, incarnation: self.founding.incarnation };
        match message {
            PeerMessage::Forward { ask, request } if self.leads() => self.lead(Origin::Peer(from, ask), *request),
            PeerMessage::Forwarded { ask, response } => {
                if let Some((client, number, _)) = self.asks.remove(&ask) {
                    let response = response.unwrap_or_else(Response::Error);
                    self.effects.push(Effect::Reply { client, number, response });
                }
            }
            PeerMessage::Write { ask, partition, items } => {
                let shard = self.shards.entry(partition).or_default();
                items.iter().for_each(|(id, task)| merge(shard.tasks.entry(*id).or_default(), task));
                let ticket = self.persist(vec![Record::Facts { partition, items }]);
                let outcomes = vec![Outcome::Stored];
                self.held.push((ticket, from, PeerMessage::Written { ask, partition, replica, outcomes }));
            }
            PeerMessage::Written { ask, replica, .. } => {
                if let Some((_, acked)) = self.facts.get_mut(&ask) {
                    acked.insert(replica.node);
                }
            }
            PeerMessage::Install { partition, epoch, table: Some(table), .. } => {
                let shard = self.shards.entry(partition).or_default();
                if shard.at.epoch < epoch {
                    shard.at = Viewstamp { epoch, length: 0 };
                    shard.table = (*table).clone();
                    self.persist(vec![Record::Install {
                        partition,
                        viewstamp: Viewstamp { epoch, length: 0 },
                        table: Some(table),
                    }]);
                }
                self.ack(from, partition, replica);
            }
            PeerMessage::Ops { partition, epoch, first, ops, .. } => {
                let shard = self.shards.entry(partition).or_default();
                if shard.at.epoch == epoch && first <= shard.at.length + 1 {
                    let after = shard.at;
                    let known = (after.length + 1 - first) as usize;
                    let ops: Vec<_> = ops.get(known..).unwrap_or_default().to_vec();
                    for op in &ops {
                        shard.at.length += 1;
                        shard.table.apply(op, shard.at).expect("it fits");
                    }
                    self.persist(vec![Record::Ops { partition, after, ops }]);
                    self.ack(from, partition, replica);
                }
            }
            PeerMessage::Ack { partition, epoch, replica, length, .. } => {
                let shard = self.shards.get_mut(&partition).expect("held");
                if epoch == shard.at.epoch {
                    let acked = shard.acked.entry(replica.node).or_default();
                    *acked = length.max(*acked);
                }
            }
            _ => {}
        }
    }

    fn ack(&mut self, to: NodeId, partition: PartitionId, replica: ReplicaId) {
        let at = self.shards[&partition].at;
        let (done, missing) = (Vec::new(), Vec::new());
        let message = PeerMessage::Ack { partition, epoch: at.epoch, replica, length: at.length, done, missing };
        self.held.push((self.ticket, to, message));
    }

    fn request(&mut self, client: ClientId, number: u64, request: Request) {
        let origin = Origin::Client(client, number);
        match request {
            Request::Identify => {
                let identity = Identity {
                    node: self.founding.node,
                    incarnation: self.founding.incarnation,
                    name: self.founding.name.clone(),
                    address: self.founding.address.clone(),
                    zone: self.founding.zone.clone(),
                    genesis: self.genesis.as_deref().cloned().map(Box::new),
                    serving: false,
                };
                self.respond(origin, Response::Identity(Box::new(identity)));
            }
            Request::Initialize(genesis) => {
                if self.genesis.is_none() {
                    let genesis = Arc::new(*genesis);
                    self.persist(vec![Record::Genesis(genesis.clone())]);
                    self.found(genesis);
                    self.open();
                }
                self.respond(origin, Response::Done);
            }
            _ if self.genesis.is_none() => {
                self.respond(origin, Response::Error(Error::new(ErrorCode::NotReady, "no cluster")));
            }
            Request::Hello { .. } => {
                let welcome = Welcome {
                    node: self.founding.node,
                    cluster: self.genesis.as_ref().expect("founded").cluster,
                    time_ms: self.now.wall_ms,
                    minter: self.random.below(1 << 40),
                    addresses: Vec::new(),
                };
                self.respond(origin, Response::Welcome(welcome));
            }
            request if self.leads() => self.lead(origin, request),
            request => {
                self.last += 1;
                self.asks.insert(self.last, (client, number, self.now.mono_us + 2_000_000));
                let message = PeerMessage::Forward { ask: self.last, request: Box::new(request) };
                self.effects.push(Effect::Send { to: self.leader(), message });
            }
        }
    }

    fn wait(
        &mut self,
        origin: Origin,
        response: Response,
        facts: Vec<u64>,
        op: Option<(PartitionId, u64)>,
        says: Vec<Observation>,
    ) {
        self.waits.push(Wait { origin, response, ticket: self.ticket, facts, op, says });
    }

    fn lead(&mut self, origin: Origin, request: Request) {
        let acked = |id| Acked { id, acks: 1, replicas: 3, guarantee: Guarantee::Strict };
        match request {
            Request::Enqueue { tasks, .. } => {
                let items = tasks.iter().map(|task| Ok(acked(task.id))).collect();
                let facts =
                    tasks.into_iter().map(|task| self.write(task.id, Task::from_spec(Arc::new(task.spec)))).collect();
                self.wait(origin, Response::Acked(items), facts, None, Vec::new());
            }
            Request::Update { id, token, sequence, data, .. } => {
                let fact = self.write(id, Task::from_update(token, sequence, data));
                self.wait(origin, Response::AckedOne(acked(id)), vec![fact], None, Vec::new());
            }
            Request::Complete { items, .. } => {
                let answers = items.iter().map(|item| Ok(acked(item.id))).collect();
                let write = |item: norn_client::wire::Completion| {
                    let completed = Completed { sequence: item.sequence, result: item.result, at_ms: item.at_ms };
                    self.write(item.id, Task::from_completion(item.token, completed))
                };
                let facts = items.into_iter().map(write).collect();
                self.wait(origin, Response::Acked(answers), facts, None, Vec::new());
            }
            Request::Cancel { id, reason, at_ms, .. } => {
                let fact = self.write(id, Task::from_cancel(Cancel { dead: false, reason, at_ms }));
                self.wait(origin, Response::AckedOne(acked(id)), vec![fact], None, Vec::new());
            }
            Request::Fail { id, invalid: true, reason, .. } => {
                let fact = self.write(id, Task::from_cancel(Cancel { dead: true, reason, at_ms: 0 }));
                self.wait(origin, Response::Done, vec![fact], None, Vec::new());
            }
            Request::Fail { id, token, retry_in_ms, .. } => self.release(origin, id, token, retry_in_ms),
            Request::Release { id, token } => self.release(origin, id, token, 0),
            Request::Renew { items, lease_ms } => self.renew(origin, &items, lease_ms),
            Request::Claim(claim) => self.claim(origin, &claim),
            other => self.read(origin, other),
        }
    }

    fn cell(&self, id: &TaskId, token: Token) -> Option<&Cell> {
        let cell = self.shards[&self.partition(id)].table.cells.get(id)?;
        (cell.token == token && cell.state == CellState::Held).then_some(cell)
    }

    fn release(&mut self, origin: Origin, id: TaskId, token: Token, delay_ms: u64) {
        if self.cell(&id, token).is_none() {
            return self.respond(origin, Response::Error(Error::new(ErrorCode::Superseded, "gone")));
        }
        let (partition, at_ms) = (self.partition(&id), self.now.wall_ms);
        let op = self.append(partition, Op::Release { id, token, not_before_ms: at_ms + delay_ms, at_ms });
        self.wait(origin, Response::Done, Vec::new(), Some((partition, op)), Vec::new());
    }

    fn renew(&mut self, origin: Origin, items: &[(TaskId, Token)], asked: Option<u64>) {
        let (id, token) = items[0];
        let Some(cell) = self.cell(&id, token) else {
            let error = Error::new(ErrorCode::Superseded, "gone");
            return self.respond(origin, Response::Renewed(vec![Err(error)]));
        };
        let shortens = self.founding.config.mutant == Some(Mutant::RenewalShortens);
        let lease_ms = asked.unwrap_or(cell.lease_ms);
        let lease_ms = if shortens { lease_ms } else { lease_ms.max(cell.lease_ms) };
        let partition = self.partition(&id);
        let ends_ms = self.now.wall_ms + lease_ms;
        let deadline_us = self.now.mono_us + lease_ms * 1_001;
        let before_us = self.deadlines.get(&id).copied().unwrap_or(0);
        self.deadlines.insert(id, if shortens { deadline_us } else { deadline_us.max(before_us) });
        let op = self.append(partition, Op::Renew { items: vec![(id, token, lease_ms, ends_ms)] });
        self.wait(origin, Response::Renewed(vec![Ok(lease_ms)]), Vec::new(), Some((partition, op)), Vec::new());
    }

    fn free(&self, id: &TaskId, cell: Option<&Cell>) -> bool {
        let Some(cell) = cell else { return true };
        match cell.state {
            CellState::Released { not_before_ms } => not_before_ms <= self.now.wall_ms,
            CellState::Held => {
                let mutant = self.founding.config.mutant;
                let mono = self.deadlines[id] <= self.now.mono_us || mutant == Some(Mutant::WallClockOnly);
                let slack_ms = if cell.renewed.epoch == self.boot { 0 } else { 1_000 };
                let wall =
                    cell.expires_ms + slack_ms <= self.now.wall_ms || (mutant == Some(Mutant::RenewalShortens) && mono);
                mono && wall
            }
            _ => false,
        }
    }

    fn claim(&mut self, origin: Origin, claim: &Claim) {
        if self.shards.values().any(|shard| !shard.established) {
            let unavailable = self.shards.len() as u32;
            return self.respond(origin, Response::Claimed { tasks: Vec::new(), unavailable });
        }
        let mut found = None;
        for (partition, shard) in &self.shards {
            for (id, cell) in &shard.table.cells {
                if cell.claim == claim.claim && cell.state == CellState::Held {
                    let length = shard.at.length;
                    let response = granted(*id, cell, &shard.tasks[id]);
                    return self.wait(origin, response, Vec::new(), Some((*partition, length)), Vec::new());
                }
            }
            for (id, task) in &shard.tasks {
                let Some(spec) = task.spec.as_ref().filter(|_| task.ended().is_none()) else { continue };
                let cell = shard.table.cells.get(id);
                if claim.queues.contains(&spec.queue) && spec.not_before_ms <= self.now.wall_ms && self.free(id, cell) {
                    let attempt = cell.map_or(0, |cell| cell.attempt);
                    let dead = spec.attempts_max > 0 && attempt >= spec.attempts_max;
                    found = Some((*partition, *id, task.clone(), dead));
                }
            }
        }
        match found {
            None => self.respond(origin, Response::Claimed { tasks: Vec::new(), unavailable: 0 }),
            Some((_, id, _, true)) => {
                self.write(id, Task::from_cancel(Cancel { dead: true, reason: "attempts".into(), at_ms: 0 }));
                self.respond(origin, Response::Error(Error::new(ErrorCode::Overloaded, "again")));
            }
            Some((partition, id, task, false)) => self.grant(origin, claim, partition, id, &task),
        }
    }

    fn grant(&mut self, origin: Origin, claim: &Claim, partition: PartitionId, id: TaskId, task: &Task) {
        self.number += 1;
        let op = Op::Grant {
            claim: claim.claim,
            worker: claim.worker.as_str().into(),
            lease_ms: claim.lease_ms,
            granted_ms: self.now.wall_ms,
            items: vec![(id, self.number)],
        };
        let length = self.append(partition, op);
        self.deadlines.insert(id, self.now.mono_us + claim.lease_ms * 1_001);
        let cell = &self.shards[&partition].table.cells[&id];
        let says = vec![Observation::Granted { id, token: cell.token }];
        let response = granted(id, cell, task);
        self.wait(origin, response, Vec::new(), Some((partition, length)), says);
    }

    fn read(&mut self, origin: Origin, request: Request) {
        let views = || self.shards.values().flat_map(|shard| &shard.tasks).filter_map(|(id, task)| view(*id, task));
        let response = match request {
            Request::Get { id, .. } | Request::Wait { id, .. } => match views().find(|view| view.id == id) {
                Some(view) => Response::Task(Box::new(view)),
                None => Response::Error(Error::new(ErrorCode::NotFound, "no such task")),
            },
            Request::Count { .. } => Response::Count(views().count() as u64),
            Request::List { after, limit, .. } => {
                let mut tasks: Vec<TaskView> = views().filter(|view| after.is_none_or(|id| view.id > id)).collect();
                tasks.sort_by_key(|view| view.id);
                let more = tasks.len() > limit as usize;
                tasks.truncate(limit as usize);
                let next = tasks.last().map(|view| view.id).filter(|_| more);
                Response::Page(Page { tasks, next })
            }
            _ => Response::Queues(Vec::new()),
        };
        self.respond(origin, response);
    }

    pub fn next_wake(&self) -> Option<u64> {
        Some(self.tick_us)
    }

    pub fn inspect(&self) -> Vec<ReplicaView> {
        let leads = self.genesis.is_some() && self.leads();
        let view = |(partition, shard): (&PartitionId, &Shard)| ReplicaView {
            partition: *partition,
            promised: shard.at.epoch,
            viewstamp: shard.at,
            digest: shard.table.digest(),
            leads,
            established: shard.established,
            commit: 0,
            tree_root: shard.tasks.iter().fold(0, |sum, (id, task)| sum.wrapping_add(task.digest(id))),
            tasks: shard.tasks.len(),
        };
        self.shards.iter().map(view).collect()
    }

    pub fn tasks(&self, partition: PartitionId) -> impl Iterator<Item = (&TaskId, &Task)> {
        self.shards[&partition].tasks.iter()
    }

    pub fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

fn granted(id: TaskId, cell: &Cell, task: &Task) -> Response {
    let spec = task.spec.as_ref().expect("granted with a spec");
    let tasks = vec![Granted {
        id,
        token: cell.token,
        queue: spec.queue.clone(),
        payload: spec.payload.clone(),
        priority: spec.priority,
        headers: Vec::new(),
        attempt: cell.attempt,
        lease_ms: cell.lease_ms,
        updates: Vec::new(),
    }];
    Response::Claimed { tasks, unavailable: 0 }
}

fn view(id: TaskId, task: &Task) -> Option<TaskView> {
    Some(TaskView {
        id,
        state: task.ended().unwrap_or(State::Ready),
        spec: (**task.spec.as_ref()?).clone(),
        claims: Vec::new(),
        updates: Vec::new(),
        result: None,
        reason: None,
        log_incomplete: false,
        conflict: false,
    })
}
