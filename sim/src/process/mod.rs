//! A node of the world: the host of a core and its log. It does nothing clever.
//!
//! Records go to the log at once; one sync at a time makes durable what was appended before it began. Messages and
//! answers go through the real codecs.

mod effects;

use crate::adapter::{self, Compacted, Core, Restorer, When, compact, log};
use crate::clock::{Monotonic, Wall, draw_signed};
use crate::disk::{Lost, SimDisk};
use crate::history::Happening;
use crate::options::Options;
use crate::shortage::Rest;
use crate::wire::{decode_envelope, version_of};
use crate::witnesses::Word;
use crate::world::{Event, World};
use norn_engine::event::Principal;
use norn_engine::{ClientId, Cursor, Effect, Event as Input, Founding, Observation, Ticket};
use norn_model::config::Mutant;
use norn_model::message::{PeerMessage, Peering};
use norn_model::record::Record;
use norn_model::task::Place;
use norn_model::time::Now;
use norn_storage::disk_latency::DiskLatencyMeter;
use norn_storage::scrub::ScrubPace;
use norn_wire::random::Random;
use norn_wire::{NodeId, Request, TaskId, Token};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Client number of the operator at node 0. At each further node it is one less.
pub const OPERATOR: u64 = u64::MAX;

/// A started process.
pub struct Running {
    /// The protocol core.
    pub core: Core,
    pub(crate) log: log::Log<SimDisk>,
    appended: Ticket,
    /// Places of records of facts that are not reported as durable yet.
    pub places: VecDeque<(Ticket, Vec<Option<Place>>)>,
    syncing: bool,
    sync_began_us: u64,
    pub(crate) disk_latency: DiskLatencyMeter,
    /// When the log scrubs next.
    pub(crate) pace: ScrubPace,
    /// How much of its state the log has for a snapshot.
    pub(crate) saved: Cursor,
    /// The node knows its cluster.
    pub joined: bool,
    wake_us: Option<u64>,
    clients: BTreeSet<u64>,
    requests: BTreeMap<(u64, u64), Request>,
    steps: u64,
    /// Log entries that came in the present turn, if it has several events: a grant of that turn may have been made before them.
    came_now: BTreeSet<(TaskId, Token, u32)>,
    /// How long the log has not been shortened on a disk that is nearly full.
    pub(crate) rest: Rest,
}

enum Waiting {
    Input(Box<Told>),
    Synced(Ticket),
}

/// An event for a core, and what a message says of the log that is watched.
struct Told {
    input: Input,
    word: Option<Word>,
}

impl From<Input> for Told {
    fn from(input: Input) -> Told {
        Told { input, word: None }
    }
}

/// A node: what outlives its processes, and the process, if one runs.
pub struct Process {
    pub disk: SimDisk,
    /// Disk operations that had failed before this process.
    pub disk_errors: u64,
    /// Its monotonic clock.
    pub clock: Monotonic,
    /// Its wall clock.
    pub wall: Wall,
    pub running: Option<Running>,
    /// Number of its starts.
    pub boot: u64,
    /// End of its present pause.
    pub paused_until_us: u64,
    /// Until then it gathers what arrives.
    gathers_until_us: u64,
    /// Number of further effects after which it crashes.
    pub effects_left: Option<u64>,
    /// It crashes during its next sync.
    pub crash_in_sync: bool,
    /// Rate of its monotonic clock.
    pub rate_ppm: u64,
    /// Its next start loses facts that it knew when it crashed, unless another node has something to heal.
    pub forgetful: bool,
    /// Records on its disk were damaged.
    pub flipped: bool,
    /// Its identity, once drawn.
    pub identity: Option<log::Identity>,
    crashed_us: u64,
    inbox: VecDeque<Waiting>,
}

/// Draws a rate within the bound, in parts per million of true time.
pub fn draw_rate(options: &Options, random: &mut Random) -> u64 {
    (1_000_000 + draw_signed(random, options.drift_ppm)) as u64
}

impl Process {
    /// A node with an empty disk.
    pub fn new(options: &Options, random: &mut Random) -> Self {
        let rate_ppm =
            if options.wild_monotonic { random.between(500_000, 2_000_000) } else { draw_rate(options, random) };
        let epsilon_us = options.config().clock_epsilon_ms as i64 * 1_000;
        // Clocks keep their contract; where clocks fence, no offset is large enough for that.
        let bound_us = if options.clock_fencing { epsilon_us * 38 / 100 } else { epsilon_us / 2 - 10_000 };
        let offset_us = draw_signed(random, bound_us as u64);
        // Where monotonic clocks are wild, claims rely on wall clocks that tick truly.
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
            gathers_until_us: 0,
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
    /// Number of a node by its identity.
    pub fn place_of(&self, node: NodeId) -> Option<usize> {
        self.nodes.iter().position(|process| process.identity.is_some_and(|identity| identity.node == node))
    }

    /// Starts a node on what its disk holds.
    pub fn start_node(&mut self, node: usize) {
        if self.nodes[node].running.is_some() || self.is_out(node) || self.is_down(node) {
            return;
        }
        let reading_us = self.randoms.clocks.between(0, 1_000_000_000);
        let process = &mut self.nodes[node];
        process.boot += 1;
        process.paused_until_us = 0;
        process.gathers_until_us = 0;
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
                for (partition, cohort) in running.core.cohorts() {
                    let cohort = cohort.clone();
                    self.tell(Happening::Began { partition, cohort: &cohort });
                }
                self.nodes[node].running = Some(running);
                self.begin(node);
            }
        }
    }

    fn recover(&mut self, node: usize, disk: SimDisk, seed: u64) -> Result<Running, String> {
        let (segment_bytes, compact_bytes) = (self.options.segment_bytes, self.options.compact_bytes);
        let reserve_bytes = self.options.reserve_bytes;
        let sync = if self.options.unsynced_facts { log::SyncPolicy::System } else { log::SyncPolicy::Always };
        let (ahead_bytes, mutant) = (segment_bytes, self.options.mutant);
        let config = log::LogConfig { segment_bytes, compact_bytes, ahead_bytes, reserve_bytes, sync, mutant };
        let random = &mut self.randoms.identity;
        let before = self.nodes[node].identity.filter(|_| self.options.mutant == Some(Mutant::SameIdentity));
        let draw =
            || before.unwrap_or_else(|| log::Identity { node: NodeId(random.wide()), incarnation: random.bits() });
        let mut log = log::Log::open(disk, config, draw).map_err(|error| error.to_string())?;
        let identity = log.identity();
        if self.nodes[node].identity.is_some_and(|known| known.node != identity.node) && self.operator.knows(node) {
            return Err("it has another identity than it told".into());
        }
        let mut core = Core::new(self.founding(node, identity), seed);
        let mut restorer = Restorer::new(&mut core);
        let mut records = Vec::new();
        let replayed = log.read(|replay| {
            if let log::Replay::Record { record, .. } = &replay {
                records.push(record.clone());
            }
            restorer.take(replay)
        });
        let replayed = replayed.map_err(|error| error.to_string())?;
        restorer.finish()?;
        log.mend().map_err(|error| error.to_string())?;
        self.nodes[node].identity = Some(identity);
        if replayed.snapshot_records > 0 {
            self.count("sometimes: start from a snapshot");
        }
        self.judge_start(node, log.synced(), &records)?;
        // Some starts find the setting `compact_at_start`, others do not.
        if seed.is_multiple_of(2) {
            let compacted = compact(&mut core, &mut log, &replayed, When::Long).map_err(|error| error.to_string())?;
            if compacted == Compacted::Whole {
                self.count("sometimes: compacted before a start");
            }
        }
        self.tell(Happening::Replayed { node, records: &records });
        Ok(Running {
            core,
            log,
            appended: Ticket(0),
            places: VecDeque::new(),
            syncing: false,
            sync_began_us: 0,
            disk_latency: DiskLatencyMeter::default(),
            pace: self.pace(),
            saved: Cursor::default(),
            joined: false,
            wake_us: None,
            clients: BTreeSet::new(),
            requests: BTreeMap::new(),
            steps: 0,
            came_now: BTreeSet::new(),
            rest: Rest::at(self.now_us),
        })
    }

    pub(crate) fn founding(&self, node: usize, identity: log::Identity) -> Founding {
        let at = self.losses.address(node);
        Founding {
            config: self.options.config(),
            node: identity.node,
            incarnation: identity.incarnation,
            name: format!("node-{at}"),
            address: format!("node-{at}:7400"),
            zone: format!("zone-{at}"),
        }
    }

    /// Whether a node runs, has nothing to heal, and has all of it on disk.
    pub fn is_whole(&self, node: usize) -> bool {
        let durable = |running: &&Running| running.joined && !running.syncing;
        let whole = |running: &Running| running.core.inspect().iter().all(|view| !view.lost);
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

    /// Crashes a node. What its disk has not synced is lost, unless machines do not lose power (`unsynced_facts`).
    pub fn crash_node(&mut self, node: usize) {
        self.stop_node(node, !self.options.unsynced_facts);
    }

    /// Ends a node's process; with its machine, also what was not synced.
    pub fn stop_node(&mut self, node: usize, machine: bool) {
        if self.nodes[node].running.take().is_none() {
            return;
        }
        let lost = if machine { self.nodes[node].disk.crash(&mut self.randoms.disk) } else { Lost::default() };
        self.line(format_args!("n{node} crash {lost:?}"));
        self.count("fault: crash");
        self.trouble();
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

    /// Pauses a node's process.
    pub fn pause_node(&mut self, node: usize, length_us: u64) {
        self.line(format_args!("n{node} pause {length_us}"));
        self.count("fault: pause");
        self.trouble();
        self.nodes[node].paused_until_us = self.now_us + length_us;
        self.tell(Happening::Paused { node, length_us });
        self.schedule_in(length_us, Event::NodeResume { node });
    }

    /// Ends a pause: the process handles in one turn what has come in meanwhile.
    pub fn resume_node(&mut self, node: usize) {
        if self.is_busy(node) || self.nodes[node].running.is_none() {
            return;
        }
        self.nodes[node].paused_until_us = 0;
        self.handle_inbox(node);
    }

    /// Ends the time for which a process gathers what comes in.
    pub fn end_gathering(&mut self, node: usize, boot: u64) {
        if self.nodes[node].boot == boot && !self.is_busy(node) {
            self.handle_inbox(node);
        }
    }

    /// Handles what has come in, in one turn.
    fn handle_inbox(&mut self, node: usize) {
        let (mut turn, mut synced) = (Vec::new(), false);
        while let Some(waiting) = self.nodes[node].inbox.pop_front() {
            match waiting {
                Waiting::Input(told) => turn.push(*told),
                Waiting::Synced(ticket) => {
                    let Some(persisted) = self.take_sync(node, ticket) else { return };
                    turn.push(persisted.into());
                    synced = true;
                }
            }
        }
        if turn.len() > 1 {
            self.count("sometimes: several events in a turn");
        }
        turn.push(Input::Wake.into());
        self.turn(node, turn);
        if synced {
            self.after_sync(node);
        }
    }

    /// Lets a process that has just handled something gather what comes in next, now and then.
    fn gather(&mut self, node: usize) {
        let most_us = self.options.gather_us_max;
        if most_us == 0 || self.nodes[node].running.is_none() || !self.randoms.turns.chance(1, 2) {
            return;
        }
        let length_us = self.randoms.turns.between(0, most_us);
        let process = &mut self.nodes[node];
        process.gathers_until_us = self.now_us + length_us;
        let boot = process.boot;
        self.schedule_in(length_us, Event::Turn { node, boot });
    }

    /// Whether a process is paused, or gathers what comes in.
    fn is_busy(&self, node: usize) -> bool {
        let process = &self.nodes[node];
        process.paused_until_us.max(process.gathers_until_us) > self.now_us
    }

    /// Hands an event to a node, now or when its pause is over.
    pub fn give(&mut self, node: usize, input: Input) {
        self.give_all(node, vec![input.into()]);
    }

    /// Hands events that belong together to a node, now or when it is no longer busy.
    fn give_all(&mut self, node: usize, events: Vec<Told>) {
        if self.nodes[node].running.is_none() {
            return;
        }
        if self.is_busy(node) {
            let waiting = events.into_iter().map(|told| Waiting::Input(Box::new(told)));
            self.nodes[node].inbox.extend(waiting);
        } else {
            self.turn(node, events);
            self.gather(node);
        }
    }

    pub(crate) fn step_node(&mut self, node: usize, input: Input) {
        self.turn(node, vec![input.into()]);
    }

    /// Reports which node a node hears now, and what that one says of this node.
    fn tell_heard(&mut self, node: usize, input: &Input) {
        let Input::Peer { from, message } = input else { return };
        let (Some(from), Some(me)) = (self.place_of(*from), self.nodes[node].identity) else { return };
        let report = match message {
            PeerMessage::Peering(Peering::Heartbeat(heartbeat)) => {
                Some(((heartbeat.boot, heartbeat.number), heartbeat.hears.contains(&me.node)))
            }
            _ => None,
        };
        self.tell(Happening::Heard { node, from, report });
    }

    /// Has a node handle events in one turn.
    fn turn(&mut self, node: usize, events: Vec<Told>) {
        if self.nodes[node].running.is_none() {
            return;
        }
        let now = self.nodes[node].now(self.now_us);
        let told = events.iter().enumerate();
        let remembers = told.map(|(place, told)| self.witness(node, place, &told.input, told.word)).max().unwrap_or(0);
        events.iter().for_each(|told| self.tell_heard(node, &told.input));
        let Some(running) = &mut self.nodes[node].running else { return };
        let mut effects = Vec::new();
        running.steps += 1;
        let check = running.steps.is_multiple_of(self.options.check_every);
        let several = events.len() > 1;
        running.core.turn(now, events.into_iter().map(|told| told.input), &mut effects);
        running.came_now = if several { effects::entries_of(&effects) } else { BTreeSet::new() };
        let checked = if check { running.core.check() } else { Ok(()) };
        if let Err(reason) = checked {
            self.fail("check", format!("node {node}: {reason}"));
        }
        self.judge_answer(node, remembers);
        if self.is_unnoticed(node) {
            self.count("sometimes: short log remembered by nobody who answered");
            return self.take_out(node);
        }
        let look = check || effects.iter().any(changes_table);
        let running = self.nodes[node].running.as_ref().filter(|_| look);
        let views = running.map(|running| running.core.inspect()).unwrap_or_default();
        self.carry_out(node, effects);
        // After the effects: a replica may have been left and taken anew in this very turn.
        views.iter().for_each(|view| self.tell(Happening::Replica { node, view }));
        self.schedule_node_wake(node);
    }

    /// Delivers an envelope of a peer.
    pub fn peer_arrives(&mut self, from: usize, to: usize, bytes: &[u8], words: &[Option<Word>]) {
        let Some(from) = self.nodes[from].identity else { return };
        if self.nodes[to].running.as_ref().is_some_and(|running| running.joined) {
            let messages = decode_envelope(version_of(self.options.enveloped), bytes);
            assert_eq!(messages.len(), words.len(), "an envelope arrives whole");
            let told = |(message, word): (_, &Option<Word>)| Told {
                input: Input::Peer { from: from.node, message },
                word: *word,
            };
            self.give_all(to, messages.into_iter().zip(words).map(told).collect());
        }
    }

    /// Connects the link of two nodes, after a short delay.
    pub fn link(&mut self, one: usize, other: usize) {
        let delay_us = self.network.weather.delay_us_min + self.randoms.links.between(0, 50_000);
        let boots = [self.nodes[one].boot, self.nodes[other].boot];
        self.schedule_in(delay_us, Event::PeerUp { nodes: [one, other], boots });
    }

    /// Reports the new connection to both sides.
    pub fn peer_up(&mut self, nodes: [usize; 2], boots: [u64; 2]) {
        let up = (0..2).all(|side| {
            let process = &self.nodes[nodes[side]];
            process.boot == boots[side] && process.running.as_ref().is_some_and(|running| running.joined)
        });
        if !up || self.network.is_cut(nodes[0], nodes[1]) || self.network.is_cut(nodes[1], nodes[0]) {
            return;
        }
        let version = version_of(self.options.enveloped);
        for (node, place) in [(nodes[0], nodes[1]), (nodes[1], nodes[0])] {
            let peer = self.nodes[place].identity.expect("a started node has one").node;
            self.give(node, Input::PeerConnected { peer, version });
        }
    }

    /// Delivers a request; the connection is known to be open.
    pub fn ask_node(&mut self, node: usize, client: u64, number: u64, request: Request) {
        let Some(running) = &mut self.nodes[node].running else { return };
        running.clients.insert(client);
        running.requests.insert((client, number), request.clone());
        self.line(format_args!("n{node} request {client}.{number} {}", request.verb()));
        let principal = Principal { name: "client".into(), node: false };
        self.give(node, Input::Request { client: ClientId(client), number, principal, request });
    }

    /// Reports a closed connection to the node.
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

    /// Handles a timer, which is the one that the node asked for or an earlier one.
    pub fn node_wake(&mut self, node: usize, boot: u64) {
        let now_us = self.now_us;
        let busy = self.is_busy(node);
        let process = &mut self.nodes[node];
        let Some(running) = process.running.as_mut().filter(|_| process.boot == boot && !busy) else { return };
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
