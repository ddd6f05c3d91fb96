//! A node of the world: the host of a core and its log. It does nothing clever.
//!
//! Records go to the log at once; one sync at a time makes durable what was appended before it began. Messages and
//! answers go through the real codecs.

use crate::adapter::{self, Core, Restorer, log};
use crate::clock::{Monotonic, Wall, draw_signed};
use crate::disk::{Lost, SimDisk};
use crate::history::Happening;
use crate::options::Options;
use crate::wire::{decode_peer, encode_peer, encode_response};
use crate::world::{Event, World};
use norn_client::wire::response::Standing;
use norn_client::wire::{NodeId, PartitionId, Request, Response, TaskId};
use norn_node::gauge::DiskGauge;
use norn_node::protocol::event::Principal;
use norn_node::protocol::random::Random;
use norn_node::protocol::task::{Place, Wanted};
use norn_node::protocol::{
    ClientId, Cursor, Effect, Event as Input, Founding, Now, Observation, PeerMessage, Record, Ticket,
};
use norn_node::storage::disk::Disk;
use norn_node::storage::scrub::ScrubPace;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use xxhash_rust::xxh3::xxh3_64;

/// Name of the operator's connections among the numbers of clients.
pub const OPERATOR: u64 = u64::MAX;

/// A started process.
pub struct Running {
    /// The protocol core.
    pub core: Core,
    pub(crate) log: log::Log<SimDisk>,
    appended: Ticket,
    /// Where records of facts are that are not reported as durable yet.
    places: VecDeque<(Ticket, Vec<Option<Place>>)>,
    syncing: bool,
    sync_began_us: u64,
    pub(crate) gauge: DiskGauge,
    /// When the log reads on through what lies still.
    pub(crate) pace: ScrubPace,
    /// How much of its state the log has for a snapshot.
    pub(crate) saved: Cursor,
    /// It knows its cluster.
    pub joined: bool,
    wake_us: Option<u64>,
    clients: BTreeSet<u64>,
    requests: BTreeMap<(u64, u64), Request>,
    steps: u64,
}

enum Waiting {
    Input(Input),
    Synced(Ticket),
}

/// A node: what outlives its processes, and the process if there is one.
pub struct Process {
    /// Its disk.
    pub disk: SimDisk,
    /// Operations of the disk that had failed before this process.
    pub disk_errors: u64,
    /// Its monotonic clock.
    pub clock: Monotonic,
    /// Its wall clock.
    pub wall: Wall,
    /// The process.
    pub running: Option<Running>,
    /// How often it was started.
    pub boot: u64,
    /// It does nothing until then.
    pub paused_until_us: u64,
    /// It crashes after so many further effects.
    pub effects_left: Option<u64>,
    /// It crashes during its next sync.
    pub crash_in_sync: bool,
    /// Rate of its monotonic clock.
    pub rate_ppm: u64,
    /// Its next start finds facts lost that it knew when it crashed, unless another node has something to heal.
    pub forgetful: bool,
    /// Records on its disk were spoiled.
    pub flipped: bool,
    /// Who it is, once drawn.
    pub identity: Option<log::Identity>,
    crashed_us: u64,
    inbox: VecDeque<Waiting>,
}

/// A rate within the bound, in parts per million of true time.
pub fn draw_rate(options: &Options, random: &mut Random) -> u64 {
    (1_000_000 + draw_signed(random, options.drift_ppm)) as u64
}

impl Process {
    /// A node with an empty disk.
    pub fn new(options: &Options, random: &mut Random) -> Self {
        let rate_ppm =
            if options.wild_monotonic { random.between(500_000, 2_000_000) } else { draw_rate(options, random) };
        let epsilon_us = options.config().clock_epsilon_ms as i64 * 1_000;
        // Clocks within their contract; where clocks fence, none is far enough from the others for it.
        let bound_us = if options.clock_fencing { epsilon_us * 38 / 100 } else { epsilon_us / 2 - 10_000 };
        let offset_us = draw_signed(random, bound_us as u64);
        // Where monotonic clocks are wild, claims rest on wall clocks that tick truly.
        let drift_ppm = if options.wild_monotonic { 0 } else { draw_signed(random, options.drift_ppm) };
        let bound_us = if options.wild_wall_clock { 5 * 3_600_000_000 } else { bound_us };
        Process {
            disk: SimDisk::default(),
            disk_errors: 0,
            clock: Monotonic::new(0, 0, rate_ppm),
            wall: Wall::new(0, offset_us, drift_ppm, bound_us),
            running: None,
            boot: 0,
            paused_until_us: 0,
            effects_left: None,
            crash_in_sync: false,
            rate_ppm,
            forgetful: false,
            flipped: false,
            identity: None,
            crashed_us: 0,
            inbox: VecDeque::new(),
        }
    }

    fn now(&self, now_us: u64) -> Now {
        Now { mono_us: self.clock.read_us(now_us), wall_ms: self.wall.read_ms(now_us) }
    }
}

impl World {
    /// Place of a node by its identity.
    pub fn place_of(&self, node: NodeId) -> Option<usize> {
        self.nodes.iter().position(|process| process.identity.is_some_and(|identity| identity.node == node))
    }

    /// Starts a node on what its disk holds.
    pub fn start_node(&mut self, node: usize) {
        if self.nodes[node].running.is_some() || self.copies.is_out(node) {
            return;
        }
        let reading_us = self.randoms.clocks.between(0, 1_000_000_000);
        let process = &mut self.nodes[node];
        process.boot += 1;
        process.paused_until_us = 0;
        process.clock = Monotonic::new(self.now_us, reading_us, process.rate_ppm);
        let boot = process.boot;
        if self.now_us > 10_000 && self.now_us - process.crashed_us < self.options.election_timeout_ms * 1_000 {
            self.count("sometimes: restart within timeout");
        }
        let seed = self.randoms.identity.bits();
        self.damage(node);
        self.spoil(node);
        self.trouble_disk(node);
        let disk = self.nodes[node].disk.clone();
        match self.recover(node, disk, seed) {
            Err(reason) if self.disk_failed(node) => self.start_failed(node, &reason),
            Err(reason) if self.may_refuse(node) => self.start_refused(node, &reason),
            Err(reason) => self.fail("recovery", format!("node {node} does not start: {reason}")),
            Ok(running) => {
                self.line(format_args!("n{node} start {boot} {:?}", running.log.identity()));
                self.nodes[node].running = Some(running);
                self.begin(node);
            }
        }
    }

    fn recover(&mut self, node: usize, disk: SimDisk, seed: u64) -> Result<Running, String> {
        let (segment_bytes, compact_bytes) = (self.options.segment_bytes, self.options.compact_bytes);
        let reserve_bytes = self.options.reserve_bytes;
        let sync = if self.options.unsynced_facts { log::SyncPolicy::System } else { log::SyncPolicy::Always };
        let config = log::LogConfig { segment_bytes, compact_bytes, ahead_bytes: segment_bytes, reserve_bytes, sync };
        let random = &mut self.randoms.identity;
        let draw = || log::Identity { node: NodeId(random.wide()), incarnation: random.bits() };
        let mut log = log::Log::open(disk, config, draw).map_err(|error| error.to_string())?;
        let identity = log.identity();
        if self.nodes[node].identity.is_some_and(|known| known.node != identity.node) && self.operator.knows(node) {
            return Err("it has another identity than it told".into());
        }
        self.nodes[node].identity = Some(identity);
        let mut core = Core::new(self.founding(node, identity), seed);
        let mut restorer = Restorer::new(&mut core);
        let mut records = Vec::new();
        let replayed = log.replay(|replay| {
            if let log::Replay::Record { record, .. } = &replay {
                records.push(record.clone());
            }
            restorer.take(replay)
        });
        let replayed = replayed.map_err(|error| error.to_string())?;
        restorer.finish()?;
        if replayed.snapshot_records > 0 {
            self.count("sometimes: start from a snapshot");
        }
        self.judge_start(node, log.synced(), &records);
        self.tell(Happening::Replayed { node, records: &records });
        Ok(Running {
            core,
            log,
            appended: Ticket(0),
            places: VecDeque::new(),
            syncing: false,
            sync_began_us: 0,
            gauge: DiskGauge::default(),
            pace: self.pace(),
            saved: Cursor::default(),
            joined: false,
            wake_us: None,
            clients: BTreeSet::new(),
            requests: BTreeMap::new(),
            steps: 0,
        })
    }

    pub(crate) fn founding(&self, node: usize, identity: log::Identity) -> Founding {
        Founding {
            config: self.options.config(),
            node: identity.node,
            incarnation: identity.incarnation,
            name: format!("node-{node}"),
            address: format!("node-{node}:7400"),
            zone: format!("zone-{node}"),
        }
    }

    /// Whether a node runs, has nothing to heal, and has all of it on disk.
    pub fn is_whole(&self, node: usize) -> bool {
        let durable = |running: &&Running| running.joined && !running.syncing;
        let whole = |running: &Running| running.core.inspect().iter().all(|view| view.wound.is_whole());
        self.nodes[node].running.as_ref().filter(durable).is_some_and(whole)
    }

    fn begin(&mut self, node: usize) {
        let now = self.nodes[node].now(self.now_us);
        let mut effects = Vec::new();
        let process = &mut self.nodes[node];
        let Some(running) = &mut process.running else { return };
        running.core.start(now, running.log.synced(), &mut effects);
        let tasks = adapter::tasks_of(&running.core, &process.disk);
        let checked = running.core.check();
        self.tell(Happening::Recovered { node, tasks: &tasks });
        if let Err(reason) = checked {
            self.fail("check", format!("node {node} after its start: {reason}"));
        }
        self.carry_out(node, effects);
        self.schedule_node_wake(node);
    }

    /// The process is gone, and of its disk what was not synced.
    pub fn crash_node(&mut self, node: usize) {
        self.stop_node(node, !self.options.unsynced_facts);
    }

    /// The process is gone; with the machine, also what was not synced.
    pub fn stop_node(&mut self, node: usize, machine: bool) {
        if self.nodes[node].running.take().is_none() {
            return;
        }
        let lost = if machine { self.nodes[node].disk.crash(&mut self.randoms.disk) } else { Lost::default() };
        self.line(format_args!("n{node} crash {lost:?}"));
        self.count("fault: crash");
        if lost.bytes > 0 {
            self.count("sometimes: crash lost unsynced bytes");
        }
        let process = &mut self.nodes[node];
        process.crashed_us = self.now_us;
        process.paused_until_us = 0;
        process.effects_left = None;
        process.crash_in_sync = false;
        process.inbox.clear();
        self.tell(Happening::Crashed { node });
        let broken: Vec<u64> =
            self.connections.iter().filter(|(_, open)| open.node == node).map(|(number, _)| *number).collect();
        broken.into_iter().for_each(|connection| self.break_connection(connection));
    }

    /// The process does nothing for a while.
    pub fn pause_node(&mut self, node: usize, length_us: u64) {
        self.line(format_args!("n{node} pause {length_us}"));
        self.count("fault: pause");
        self.nodes[node].paused_until_us = self.now_us + length_us;
        self.schedule_in(length_us, Event::NodeResume { node });
    }

    /// A paused process works off what has come in meanwhile.
    pub fn resume_node(&mut self, node: usize) {
        if self.nodes[node].paused_until_us > self.now_us || self.nodes[node].running.is_none() {
            return;
        }
        self.nodes[node].paused_until_us = 0;
        while let Some(waiting) = self.nodes[node].inbox.pop_front() {
            match waiting {
                Waiting::Input(input) => self.step_node(node, input),
                Waiting::Synced(ticket) => self.end_sync(node, ticket),
            }
        }
        self.step_node(node, Input::Wake);
    }

    fn is_paused(&self, node: usize) -> bool {
        self.nodes[node].paused_until_us > self.now_us
    }

    /// Hands an event to a node, now or when its pause is over.
    pub fn give(&mut self, node: usize, input: Input) {
        if self.nodes[node].running.is_none() {
            return;
        }
        if self.is_paused(node) {
            self.nodes[node].inbox.push_back(Waiting::Input(input));
        } else {
            self.step_node(node, input);
        }
    }

    pub(crate) fn step_node(&mut self, node: usize, input: Input) {
        let now = self.nodes[node].now(self.now_us);
        let Some(running) = &mut self.nodes[node].running else { return };
        let mut effects = Vec::new();
        running.steps += 1;
        let check = running.steps.is_multiple_of(self.options.check_every);
        running.core.step(now, input, &mut effects);
        let checked = if check { running.core.check() } else { Ok(()) };
        if let Err(reason) = checked {
            self.fail("check", format!("node {node}: {reason}"));
        }
        if self.is_unnoticed(node) {
            self.count("sometimes: short log remembered by nobody who answered");
            return self.take_out(node);
        }
        let look = check || effects.iter().any(changes_table);
        if look {
            self.look(node);
        }
        self.carry_out(node, effects);
        self.schedule_node_wake(node);
    }

    fn look(&mut self, node: usize) {
        let Some(running) = &self.nodes[node].running else { return };
        let views = running.core.inspect();
        for view in &views {
            self.tell(Happening::Replica { node, view });
        }
    }

    fn carry_out(&mut self, node: usize, effects: Vec<Effect>) {
        for effect in effects {
            match &mut self.nodes[node].effects_left {
                Some(0) => {
                    self.count("sometimes: crash between effects");
                    self.crash_node(node);
                    return self.schedule_restart(node);
                }
                Some(left) => *left -= 1,
                None => {}
            }
            let vote = matches!(&effect, Effect::Send { message: PeerMessage::VoteAnswer { granted: true, .. }, .. });
            let flag =
                matches!(&effect, Effect::Send { message: PeerMessage::Ack { done, .. }, .. } if !done.is_empty());
            let (before, after) = (self.options.crash_before_flag_percent, self.options.crash_after_vote_percent);
            if flag && self.crashes_briefly(node, before, "fault: crash before a flag") {
                // What it was about to tell is what it must not seem to know any more.
                let damage_percent = self.options.damage_percent;
                self.nodes[node].forgetful = damage_percent > 0 && self.randoms.faults.chance(1, 2);
                return;
            }
            self.carry_out_one(node, effect);
            if self.nodes[node].running.is_none() {
                return;
            }
            if vote && self.crashes_briefly(node, after, "fault: crash after a vote") {
                return;
            }
        }
    }

    /// The instants at which what is only in memory does the most harm.
    fn crashes_briefly(&mut self, node: usize, percent: u64, fault: &str) -> bool {
        if percent == 0 || self.healed() || !self.randoms.faults.chance(percent, 100) {
            return false;
        }
        self.count(fault);
        self.crash_node(node);
        let delay_us = self.randoms.faults.between(100, 5_000);
        self.schedule_in(delay_us, Event::Start { node });
        true
    }

    fn carry_out_one(&mut self, node: usize, effect: Effect) {
        let boot = self.nodes[node].boot;
        match effect {
            Effect::Persist { ticket, records } => self.persist(node, ticket, &records),
            Effect::Load { number, wanted } => {
                let delay_us = self.randoms.loads.between(20, self.options.sync_us_max);
                self.count("sometimes: bodies loaded");
                self.schedule_in(delay_us, Event::Load { node, boot, number, wanted });
            }
            Effect::Send { to, message } => self.send_peer(node, to, &message),
            Effect::Reply { client, number, response } => self.reply(node, client, number, &response),
            Effect::Joined { genesis } => {
                self.line(format_args!("n{node} joined {:?}", genesis.cluster));
                if let Some(running) = &mut self.nodes[node].running {
                    running.joined = true;
                }
                (0..self.nodes.len()).filter(|other| *other != node).for_each(|other| self.link(node, other));
            }
            Effect::Archive { partition, number, tasks } => {
                let delay_us = self.randoms.saves.between(0, 100_000);
                let ids = tasks.into_iter().map(|task| task.id).collect();
                self.schedule_in(delay_us, Event::Archived { node, boot, partition, number, ids });
            }
            Effect::Observe(observation) => {
                self.line(format_args!("n{node} {observation:?}"));
                self.count(&format!("sometimes: {}", name_of(&observation)));
                self.tell(Happening::Observed { node, boot, observation: &observation });
            }
            Effect::Stopped => self.node_stopped(node),
            Effect::Halt { reason } => self.fail("halt", format!("node {node}: core halted: {reason}")),
        }
    }

    /// Finished tasks are in the archive, but sometimes nobody is told.
    pub fn archived(&mut self, node: usize, boot: u64, (partition, number): (PartitionId, u64), ids: &[TaskId]) {
        if self.nodes[node].boot != boot {
            return;
        }
        self.count("sometimes: archived");
        self.tell(Happening::Archived { ids });
        // Somebody may take the file away in the very moment.
        let done = self.randoms.saves.chance(9, 10);
        self.give(node, Input::Archived { partition, number, done });
    }

    fn persist(&mut self, node: usize, ticket: Ticket, records: &[Record]) {
        let mut bytes = Vec::new();
        records.iter().for_each(|record| record.encode(&mut bytes));
        self.line(format_args!("n{node} persist {} {:016x}", ticket.0, xxh3_64(&bytes)));
        self.take_image(node, records);
        let Some(running) = &mut self.nodes[node].running else { return };
        assert!(ticket > running.appended, "tickets ascend");
        running.appended = ticket;
        let (appended, idle) = (running.log.append(records), !running.syncing);
        let appended = appended.map(|places| running.places.push_back((ticket, places)));
        self.tell(Happening::Appended { node, ticket, records });
        if let Err(error) = appended {
            return self.log_stopped(node, &error);
        }
        if idle {
            self.begin_sync(node);
        }
    }

    fn begin_sync(&mut self, node: usize) {
        let random = &mut self.randoms.disk;
        let mut delay_us = random.between(self.options.sync_us_min, self.options.sync_us_max);
        if random.chance(self.options.sync_slow_ppm, 1_000_000) && self.phase == crate::world::Phase::Safety {
            delay_us = random.between(delay_us, 100_000);
        }
        delay_us *= self.nodes[node].disk.slowness();
        let crash_us = std::mem::take(&mut self.nodes[node].crash_in_sync).then(|| random.between(0, delay_us));
        let boot = self.nodes[node].boot;
        if let Some(crash_us) = crash_us {
            self.schedule_in(crash_us, Event::Crash { node, boot });
        }
        if let Some(running) = &mut self.nodes[node].running {
            running.syncing = true;
            running.sync_began_us = self.now_us;
            let ticket = running.appended;
            self.schedule_in(delay_us, Event::Synced { node, boot, ticket });
        }
    }

    /// A sync has ended on the disk of this process.
    pub fn synced(&mut self, node: usize, boot: u64, ticket: Ticket) {
        if self.nodes[node].boot != boot || self.nodes[node].running.is_none() {
            return;
        }
        if self.is_paused(node) {
            self.nodes[node].inbox.push_back(Waiting::Synced(ticket));
        } else {
            self.end_sync(node, ticket);
        }
    }

    fn end_sync(&mut self, node: usize, ticket: Ticket) {
        let Some(running) = &mut self.nodes[node].running else { return };
        running.syncing = false;
        running.gauge.synced(self.now_us, self.now_us - running.sync_began_us);
        let (synced, more) = (running.log.commit(self.now_us), running.appended > ticket);
        if let Err(error) = synced {
            return self.log_stopped(node, &error);
        }
        self.line(format_args!("n{node} synced {}", ticket.0));
        self.tell(Happening::Synced { node, ticket });
        if more {
            self.begin_sync(node);
        }
        let mut places = Vec::new();
        let durable = self.nodes[node].running.as_ref().map_or(0, |running| running.log.synced());
        if let Some(running) = &mut self.nodes[node].running {
            while let Some((_, found)) = running.places.pop_front_if(|(appended, _)| *appended <= ticket) {
                places.extend(found);
            }
        }
        self.note_durable(node, durable);
        self.step_node(node, Input::Persisted { ticket, places, durable });
        // After the places: those in older files are told before the node learns that a snapshot takes their place.
        self.keep_up(node);
        self.tell_disk(node);
        self.rot(node);
    }

    /// The disk gives bodies back, or fails.
    pub fn load(&mut self, node: usize, boot: u64, number: u64, wanted: &[Wanted]) {
        let process = &self.nodes[node];
        let Some(running) = process.running.as_ref().filter(|_| process.boot == boot) else { return };
        let disk = running.log.disk();
        let bodies = log::read_bodies(|file, offset, length| disk.read(file, offset, length), wanted);
        if bodies.iter().any(Option::is_none) {
            self.count("sometimes: body not read");
        }
        self.line(format_args!("n{node} loaded {number} {}", bodies.iter().flatten().count()));
        self.give(node, Input::Loaded { number, bodies });
    }

    fn send_peer(&mut self, node: usize, to: NodeId, message: &PeerMessage) {
        let Some(place) = self.place_of(to) else {
            return self.fail("addressing", format!("node {node} sends to {to}, which does not exist"));
        };
        assert_ne!(place, node, "a node does not send to itself");
        let bytes = encode_peer(0, message);
        self.line(format_args!("n{node} -> n{place} {} {:016x}", message.name(), xxh3_64(&bytes)));
        let lossy =
            self.options.lost_writes_percent > 0 && !self.healed() && matches!(message, PeerMessage::Write { .. });
        if lossy && self.randoms.faults.chance(self.options.lost_writes_percent, 100) {
            return self.count("fault: lost write");
        }
        for at_us in self.network.send(self.now_us, node, place) {
            self.schedule(at_us, Event::Peer { from: node, to: place, bytes: bytes.clone() });
        }
        let hasty = self.options.crash_after_vote_percent > 0 && !self.healed();
        if hasty && matches!(message, PeerMessage::Vote { .. }) {
            let late_us = self.randoms.faults.between(1_000, 300_000);
            self.schedule_in(late_us, Event::Peer { from: node, to: place, bytes });
        }
    }

    /// A message of a peer is there.
    pub fn peer_arrives(&mut self, from: usize, to: usize, bytes: &[u8]) {
        let Some(from) = self.nodes[from].identity else { return };
        if self.nodes[to].running.as_ref().is_some_and(|running| running.joined) {
            let (_, message) = decode_peer(bytes);
            self.give(to, Input::Peer { from: from.node, message });
        }
    }

    /// The link of two nodes connects by itself, soon.
    pub fn link(&mut self, one: usize, other: usize) {
        let delay_us = self.network.weather.delay_us_min + self.randoms.links.between(0, 50_000);
        let boots = [self.nodes[one].boot, self.nodes[other].boot];
        self.schedule_in(delay_us, Event::PeerUp { nodes: [one, other], boots });
    }

    /// Both sides learn that their connection is new.
    pub fn peer_up(&mut self, nodes: [usize; 2], boots: [u64; 2]) {
        let up = (0..2).all(|side| {
            let process = &self.nodes[nodes[side]];
            process.boot == boots[side] && process.running.as_ref().is_some_and(|running| running.joined)
        });
        if !up || self.network.is_cut(nodes[0], nodes[1]) || self.network.is_cut(nodes[1], nodes[0]) {
            return;
        }
        for (node, peer) in [(nodes[0], nodes[1]), (nodes[1], nodes[0])] {
            let peer = self.nodes[peer].identity.expect("a started node has one").node;
            self.give(node, Input::PeerConnected { peer });
        }
    }

    fn reply(&mut self, node: usize, client: ClientId, number: u64, response: &Response) {
        let Some(running) = &mut self.nodes[node].running else { return };
        if !running.clients.contains(&client.0) {
            return;
        }
        let Some(request) = running.requests.remove(&(client.0, number)) else {
            return self
                .fail("answers", format!("node {node} answers request {number} of {client:?} twice or unasked"));
        };
        self.line(format_args!("n{node} reply {}.{number} {response:?}", client.0));
        self.tell(Happening::Replied { request: &request, response });
        if client.0 >= OPERATOR - self.nodes.len() as u64 {
            return self.operator_answer(node, response);
        }
        let bytes = encode_response(number, response);
        self.send_response(client.0, bytes);
    }

    /// A request is there; the connection is known to be open.
    pub fn ask_node(&mut self, node: usize, client: u64, number: u64, request: Request) {
        let Some(running) = &mut self.nodes[node].running else { return };
        running.clients.insert(client);
        running.requests.insert((client, number), request.clone());
        self.line(format_args!("n{node} request {client}.{number} {}", request.verb()));
        let principal = Principal { name: "client".into(), node: false };
        self.give(node, Input::Request { client: ClientId(client), number, principal, request });
    }

    /// The node learns that a connection is closed.
    pub fn client_gone(&mut self, node: usize, boot: u64, connection: u64) {
        let process = &mut self.nodes[node];
        let Some(running) = process.running.as_mut().filter(|_| process.boot == boot) else { return };
        running.requests.retain(|(client, _), _| *client != connection);
        if running.clients.remove(&connection) {
            self.give(node, Input::ClientGone { client: ClientId(connection) });
        }
    }

    fn schedule_node_wake(&mut self, node: usize) {
        let now_us = self.now_us;
        let process = &mut self.nodes[node];
        let Some(running) = &mut process.running else { return };
        let Some(wake_us) = running.core.next_wake() else { return };
        let at_us = process.clock.true_time_us(now_us, wake_us).max(now_us + 1);
        if running.wake_us.is_some_and(|scheduled| scheduled > now_us && scheduled <= at_us) {
            return;
        }
        running.wake_us = Some(at_us);
        let boot = process.boot;
        self.schedule(at_us, Event::NodeWake { node, boot });
    }

    /// The time that the node asked for, or asked for earlier.
    pub fn node_wake(&mut self, node: usize, boot: u64) {
        let now_us = self.now_us;
        let paused = self.is_paused(node);
        let process = &mut self.nodes[node];
        let Some(running) = process.running.as_mut().filter(|_| process.boot == boot && !paused) else { return };
        if running.wake_us.is_some_and(|at_us| at_us <= now_us) {
            running.wake_us = None;
        }
        if running.core.next_wake().is_some_and(|wake_us| wake_us <= process.clock.read_us(now_us)) {
            self.step_node(node, Input::Wake);
            self.watch_disk(node);
            self.scrub(node);
        } else {
            self.schedule_node_wake(node);
        }
    }
}

fn changes_table(effect: &Effect) -> bool {
    match effect {
        Effect::Persist { records, .. } => {
            records.iter().any(|record| matches!(record, Record::Install { .. } | Record::Ops { .. }))
        }
        Effect::Observe(observation) => matches!(observation, Observation::Established { .. }),
        _ => false,
    }
}

fn name_of(observation: &Observation) -> &'static str {
    match observation {
        Observation::Campaign { .. } => "campaign",
        Observation::Established { .. } => "established",
        Observation::SteppedDown { .. } => "stepped down",
        Observation::Granted { .. } => "granted",
        Observation::Voided { .. } => "voided",
        Observation::Expired { .. } => "expired",
        Observation::SnapshotSent { .. } => "snapshot sent",
        Observation::Repaired { by_buckets: true, .. } => "repaired by buckets",
        Observation::Repaired { .. } => "repaired by stream",
        Observation::Agreement { apart: 0, .. } => "not known to be equal",
        Observation::Agreement { .. } => "apart",
        Observation::DoneFlag { .. } => "done flag",
        Observation::Woken { .. } => "woken",
        Observation::ClockStanding { standing: Standing::Fenced, .. } => "clock fenced",
        Observation::ClockStanding { standing: Standing::Suspect, .. } => "clock suspect",
        Observation::ClockStanding { .. } => "clock good or unknown",
        Observation::Wounded { table: true, .. } => "table wounded",
        Observation::Wounded { facts: true, .. } => "facts wounded",
        Observation::Wounded { .. } => "healed",
        Observation::BodyLost { .. } => "body lost",
        Observation::Forgotten { .. } => "forgotten",
        Observation::ForgettingHeld { .. } => "forgetting held up",
        Observation::HintKept { .. } => "hint kept",
        Observation::HintsHanded { .. } => "hints handed over",
        Observation::HintsDropped { .. } => "hints dropped",
        Observation::HintOrphaned { .. } => "hint orphaned",
        Observation::HintsLost { .. } => "hints lost",
        Observation::HintsOverdue { .. } => "hints overdue",
        Observation::Hints { .. } => "hints changed",
        Observation::Room { out: true, .. } => "no room on the disk",
        Observation::Room { short: true, .. } => "little room on the disk",
        Observation::Room { .. } => "room on the disk again",
        Observation::DiskSlow { slow: true, .. } => "slow disk noticed",
        Observation::DiskSlow { .. } => "slow disk got better",
        Observation::Retired { .. } => "retired",
        Observation::Refused { .. } => "refused",
    }
}
