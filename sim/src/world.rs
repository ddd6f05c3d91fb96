//! The world: true time, the event queue, and everything that takes part.
//!
//! Events are ordered by time, then by the order in which they were scheduled. Each concern has a random generator of its own, so
//! that a further draw in one place shifts nothing elsewhere.

use crate::absence::Absence;
use crate::adapter::CallId;
use crate::copies::Copies;
use crate::faults::Fault;
use crate::groups::Groups;
use crate::held::Looks;
use crate::history::{Happening, History, Moment};
use crate::losses::Losses;
use crate::network::{Network, Weather};
use crate::operator::Operator;
use crate::options::Options;
use crate::process::Process;
use crate::properties::{self, Property};
use crate::settle::Audit;
use crate::trace::{Keep, Trace};
use crate::transactions::Banks;
use crate::watches::Watcher;
use crate::witnesses::Word;
use crate::workload::{Act, Client};
use norn_engine::Ticket;
use norn_model::task::Wanted;
use norn_wire::random::Random;
use norn_wire::{Error, PartitionId, Response, TaskView};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt;
use std::rc::Rc;

/// Number of events beyond which a run counts as a storm.
const EVENTS_MAX: u64 = 6_000_000;

/// A scheduled event.
#[derive(Debug, Clone)]
pub enum Event {
    /// A message of one node reaches another.
    Peer {
        from: usize,
        to: usize,
        bytes: Rc<[u8]>,
        words: Rc<[Option<Word>]>,
    },
    /// A node handles what it has gathered.
    Turn {
        node: usize,
        boot: u64,
    },
    /// The link of two nodes comes up, unless one of them has been restarted since.
    PeerUp {
        nodes: [usize; 2],
        boots: [u64; 2],
    },
    /// A request reaches its node.
    Request {
        connection: u64,
        bytes: Rc<[u8]>,
    },
    /// An answer reaches its client.
    Response {
        connection: u64,
        bytes: Rc<[u8]>,
    },
    /// An attempt to connect succeeds or fails.
    Connect {
        client: usize,
        attempt: u64,
    },
    /// A connection attempt is reported as failed, or a connection as broken.
    Disconnected {
        client: usize,
        attempt: u64,
    },
    /// A node learns that a client is gone.
    ClientGone {
        node: usize,
        boot: u64,
        connection: u64,
    },
    /// A connection breaks.
    Break {
        connection: u64,
    },
    /// A sync ends.
    Synced {
        node: usize,
        boot: u64,
        ticket: Ticket,
    },
    Save {
        node: usize,
        boot: u64,
        anew: bool,
    },
    /// Bodies are read from a disk.
    Load {
        node: usize,
        boot: u64,
        number: u64,
        wanted: Vec<Wanted>,
    },
    /// Tasks are in a node's archive.
    Archived {
        node: usize,
        boot: u64,
        partition: PartitionId,
        number: u64,
        tasks: Vec<TaskView>,
    },
    /// A node's timer is due.
    NodeWake {
        node: usize,
        boot: u64,
    },
    /// A node crashes, unless it has been restarted since.
    Crash {
        node: usize,
        boot: u64,
    },
    /// A node starts.
    Start {
        node: usize,
    },
    /// A lost machine is back.
    Return {
        node: usize,
    },
    /// A paused node goes on.
    NodeResume {
        node: usize,
    },
    /// The timer of a client's session is due.
    ClientWake {
        client: usize,
        generation: u64,
    },
    /// A paused client goes on.
    ClientResume {
        client: usize,
        generation: u64,
    },
    /// A client's application does something.
    Act {
        client: usize,
        generation: u64,
        act: Act,
    },
    /// A fault strikes.
    Fault(Fault),
    /// Cuts of the network are mended.
    Mend {
        number: u64,
    },
    /// A clock jumps, and `left` times more.
    Strobe {
        node: usize,
        left: u64,
    },
    /// The operator asks a node once more, until it is of the cluster.
    Operate {
        node: usize,
    },
    /// The operator asks once more how the schedules are, or removes them.
    EndSchedules {
        /// Number of the attempt.
        turn: usize,
    },
    /// The operator repeats its open requests.
    Insist {
        turn: usize,
    },
    /// The faults end.
    Heal,
    /// A check whether all is settled.
    Poll,
    /// Nothing, but a script waits for this time.
    Bell,
}

#[derive(Debug)]
struct Entry {
    time_us: u64,
    sequence: u64,
    event: Event,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.time_us, self.sequence).cmp(&(other.time_us, other.sequence))
    }
}

/// Phase of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Anything may break.
    Safety,
    /// Nothing breaks any more.
    Healed {
        /// When that began.
        since_us: u64,
    },
    /// All is settled; a client compares its answers with what is there.
    Audit,
    /// The run is over.
    Done,
}

/// A property that does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Name of the property.
    pub property: String,
    /// Evidence.
    pub message: String,
    /// True time.
    pub time_us: u64,
}

/// Random generators, one for each concern.
#[derive(Debug)]
pub struct Randoms {
    /// Clocks of nodes and clients.
    pub clocks: Random,
    /// Behaviour of applications.
    pub workload: Random,
    /// Dependencies of tasks.
    pub after: Random,
    /// Faults.
    pub faults: Random,
    /// Syncs, and what crashes leave.
    pub disk: Random,
    /// Links of clients.
    pub links: Random,
    /// Seeds and identities of processes.
    pub identity: Random,
    /// Parts of snapshots.
    pub saves: Random,
    /// Failures of disk operations.
    pub troubles: Random,
    /// Bodies that are read back.
    pub loads: Random,
    /// The node or link that is away while the others must make progress.
    pub absence: Random,
    /// Moves of partitions.
    pub moves: Random,
    /// Machines that are lost.
    pub losses: Random,
    /// Schedules.
    pub schedules: Random,
    /// Queues whose tasks only their holder may end.
    pub modes: Random,
    /// Dead-letter queues, and what is redriven.
    pub dead_letters: Random,
    /// Purged tasks.
    pub purges: Random,
    /// Forged tokens.
    pub forged: Random,
    /// Keys of tasks.
    pub keys: Random,
    /// Capacity limits of queues.
    pub limits: Random,
    /// Limits on claims, and ageing.
    pub claims: Random,
    /// Clocks that jump back and forth.
    pub strobes: Random,
    /// Crashes around steps of changes of cohorts.
    pub steps: Random,
    /// Cuts around the nodes that take such steps.
    pub cuts: Random,
    /// Tasks that are to be the only ones with their keys.
    pub uniques: Random,
    /// Groups.
    pub groups: Random,
    /// Sessions.
    pub sessions: Random,
    /// Transactions.
    pub transactions: Random,
    /// Transactions of tasks that lie apart.
    pub across: Random,
    /// Watchers.
    pub watches: Random,
    /// Queues that are paused or held up.
    pub holds: Random,
    /// Claims that are given up.
    pub leaves: Random,
    /// How long nodes gather what arrives.
    pub turns: Random,
}

/// Counters by name.
pub type Counters = BTreeMap<String, u64>;

/// A connection of a client to a node.
#[derive(Debug)]
pub struct Connection {
    pub client: usize,
    pub node: usize,
    /// Boot counter of the node's process.
    pub boot: u64,
    /// Latest arrivals at the node and at the client, to keep the order.
    pub latest_us: [u64; 2],
}

pub struct World {
    pub options: Options,
    /// True time.
    pub now_us: u64,
    pub phase: Phase,
    pub randoms: Randoms,
    /// Links between nodes.
    pub network: Network,
    pub nodes: Vec<Process>,
    pub clients: Vec<Client>,
    /// Open connections of clients.
    pub connections: BTreeMap<u64, Connection>,
    /// The operator, which founds the cluster.
    pub operator: Operator,
    /// Shared state of the properties.
    pub history: History,
    pub counters: Counters,
    pub trace: Trace,
    /// The first property that did not hold.
    pub violation: Option<Violation>,
    /// Node whose disk has lost something that is not healed yet.
    pub damaged: Option<usize>,
    /// The one disk that may be rolled back or damaged.
    pub copies: Copies,
    /// Machines that are lost for good.
    pub losses: Losses,
    /// The node or link that is away while the others must make progress.
    pub absence: Option<Absence>,
    /// Number of the latest cut.
    pub cut_number: u64,
    /// The final comparison.
    pub audit: Audit,
    /// What applications know of groups.
    pub groups: Groups,
    /// Tasks that transactions change.
    pub banks: Banks,
    /// Answers to calls of a script that it has not taken yet, by client.
    pub answers: BTreeMap<(usize, CallId), Result<Response, Error>>,
    /// Watchers of queues.
    pub watchers: Vec<Watcher>,
    /// State of the periodic looks at held claims.
    pub(crate) looks: Looks,
    properties: Vec<Box<dyn Property>>,
    queue: BinaryHeap<Reverse<Entry>>,
    sequence: u64,
    events: u64,
}

/// Generator `generations` below a copy of `random`: drawing it shifts nothing that is drawn of `random` itself.
fn descendant(random: &Random, generations: u32) -> Random {
    let mut descendant = random.clone();
    for _ in 0..generations {
        descendant = descendant.child();
    }
    descendant
}

/// How messages travel.
fn weather(options: &Options) -> Weather {
    Weather {
        loss_ppm: options.loss_ppm,
        duplicate_ppm: options.duplicate_ppm,
        delay_us_min: options.delay_us_min,
        delay_us_max: options.delay_us_max,
        spike_ppm: options.spike_ppm,
        spike_us_max: options.spike_us_max,
        ordered: options.ordered,
        replay_ppm: options.replay_ppm,
        replay_us_max: options.replay_us_max,
    }
}

impl World {
    /// The world of a seed, before anything happened.
    pub fn new(mut random: Random, options: Options, keep: Keep) -> World {
        let network = Network::new(random.child(), weather(&options));
        let randoms = Randoms {
            clocks: random.child(),
            workload: random.child(),
            faults: random.child(),
            disk: random.child(),
            links: random.child(),
            identity: random.child(),
            saves: random.child(),
            // From copies, so that they shift no draw after them.
            troubles: descendant(&random, 1),
            loads: descendant(&random, 2),
            absence: descendant(&random, 3),
            moves: descendant(&random, 4),
            losses: descendant(&random, 6),
            modes: descendant(&random, 8),
            keys: descendant(&random, 11),
            limits: descendant(&random, 12),
            strobes: descendant(&random, 13),
            steps: descendant(&random, 14),
            cuts: descendant(&random, 15),
            uniques: descendant(&random, 16),
            groups: descendant(&random, 17),
            sessions: descendant(&random, 18),
            transactions: descendant(&random, 20),
            across: descendant(&random, 27),
            watches: descendant(&random, 21),
            holds: descendant(&random, 23),
            leaves: descendant(&random, 24),
            turns: descendant(&random, 26),
            purges: descendant(&random, 25),
            claims: descendant(&random, 19),
            dead_letters: descendant(&random, 10),
            forged: descendant(&random, 22),
            after: descendant(&random, 7),
            schedules: descendant(&random, 9),
        };
        let places = (options.nodes + options.reserves) as usize;
        let victim = randoms.troubles.clone().below(options.nodes) as usize;
        let mut world = World {
            copies: Copies::new(victim),
            operator: Operator::new(places, (options.nodes - options.spares) as usize, random.wide()),
            losses: Losses::new(options.nodes as usize, places),
            options,
            now_us: 0,
            phase: Phase::Safety,
            randoms,
            network,
            nodes: Vec::new(),
            clients: Vec::new(),
            connections: BTreeMap::new(),
            history: History::default(),
            counters: Counters::new(),
            trace: Trace::new(keep),
            violation: None,
            damaged: None,
            absence: None,
            cut_number: 0,
            audit: Audit::default(),
            groups: Groups::default(),
            banks: Banks::default(),
            answers: BTreeMap::new(),
            watchers: Vec::new(),
            looks: Looks::default(),
            properties: properties::all(),
            queue: BinaryHeap::new(),
            sequence: 0,
            events: 0,
        };
        world.populate();
        world
    }

    fn populate(&mut self) {
        for node in 0..(self.options.nodes + self.options.reserves) as usize {
            let process = Process::new(&self.options, &mut self.randoms.clocks);
            self.nodes.push(process);
            if self.is_out(node) {
                continue;
            }
            self.schedule(self.randoms.identity.clone().between(0, 1_000), Event::Start { node });
            self.schedule(10_000, Event::Operate { node });
        }
        self.populate_clients();
        self.schedule_faults();
        self.schedule(self.options.safety_ms * 1_000, Event::Heal);
    }

    /// Runs to the end, to the first violation, or to this moment.
    pub fn run(&mut self, end_us: u64) {
        while self.violation.is_none() && self.phase != Phase::Done && self.now_us < end_us {
            self.step();
        }
    }

    /// Carries out the next event.
    pub fn step(&mut self) {
        let Some(Reverse(entry)) = self.queue.pop() else {
            return self.fail("liveness", "nothing is left to happen".into());
        };
        assert!(entry.time_us >= self.now_us, "time never goes back");
        self.now_us = entry.time_us;
        self.events += 1;
        if self.events > EVENTS_MAX {
            return self.fail("storm", format!("more than {EVENTS_MAX} events"));
        }
        self.note_trouble(&entry.event);
        self.handle(entry.event);
        self.look_at_claims();
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Peer { from, to, bytes, words } => self.peer_arrives(from, to, &bytes, &words),
            Event::Turn { node, boot } => self.end_gathering(node, boot),
            Event::PeerUp { nodes, boots } => self.peer_up(nodes, boots),
            Event::Request { connection, bytes } => self.request_arrives(connection, &bytes),
            Event::Response { connection, bytes } => self.response_arrives(connection, &bytes),
            Event::Connect { client, attempt } => self.connect_arrives(client, attempt),
            Event::Disconnected { client, attempt } => self.disconnected(client, attempt),
            Event::ClientGone { node, boot, connection } => self.client_gone(node, boot, connection),
            Event::Break { connection } => self.break_connection(connection),
            Event::Synced { node, boot, ticket } => self.synced(node, boot, ticket),
            Event::Archived { node, boot, partition, number, tasks } => {
                self.archived(node, boot, (partition, number), &tasks);
            }
            Event::Save { node, boot, anew } => self.save_part(node, boot, anew),
            Event::Load { node, boot, number, wanted } => self.load(node, boot, number, &wanted),
            Event::NodeWake { node, boot } => self.node_wake(node, boot),
            Event::Crash { node, boot } => self.crash_in_sync(node, boot),
            Event::Start { node } => self.start_node(node),
            Event::NodeResume { node } => self.resume_node(node),
            Event::ClientWake { client, generation } => self.client_wake(client, generation),
            Event::ClientResume { client, generation } => self.resume_client(client, generation),
            Event::Act { client, generation, act } => self.act(client, generation, act),
            Event::Fault(fault) => self.fault(fault),
            Event::Mend { number } => self.mend(number),
            Event::Strobe { node, left } => self.strobe(node, left),
            Event::Operate { node } => self.operate(node),
            Event::Insist { turn } => self.insist(turn),
            Event::EndSchedules { turn } => self.ask_for_schedules(turn),
            Event::Return { node } => self.return_node(node),
            Event::Heal => {
                self.heal();
                self.heal_disks();
            }
            Event::Poll => self.poll(),
            Event::Bell => {}
        }
    }

    /// Everything stands still for this long, but for the clocks: all scheduled events happen that much later.
    pub fn leap(&mut self, length_us: u64) {
        let later = |Reverse(entry): Reverse<Entry>| Reverse(Entry { time_us: entry.time_us + length_us, ..entry });
        self.queue = std::mem::take(&mut self.queue).into_iter().map(later).collect();
        self.network.leap(length_us);
        for process in &mut self.nodes {
            process.paused_until_us = process.paused_until_us.saturating_add(length_us);
        }
        for client in &mut self.clients {
            client.paused_until_us = client.paused_until_us.saturating_add(length_us);
        }
        self.now_us += length_us;
        self.tell(Happening::Leapt { length_us });
    }

    /// Puts an event into the queue.
    pub fn schedule(&mut self, time_us: u64, event: Event) {
        self.sequence += 1;
        let entry = Entry { time_us: time_us.max(self.now_us), sequence: self.sequence, event };
        self.queue.push(Reverse(entry));
    }

    /// Puts an event into the queue, `delay_us` from now.
    pub fn schedule_in(&mut self, delay_us: u64, event: Event) {
        self.schedule(self.now_us.saturating_add(delay_us), event);
    }

    /// The present moment; greater than every one before.
    pub fn moment(&mut self) -> Moment {
        self.sequence += 1;
        Moment { time_us: self.now_us, sequence: self.sequence }
    }

    /// Hands an event to history and properties.
    pub fn tell(&mut self, happening: Happening<'_>) {
        let moment = self.moment();
        if let Err(message) = self.history.see(moment, &happening) {
            self.fail("history", message);
        }
        for place in 0..self.properties.len() {
            if let Err(message) = self.properties[place].see(&self.history, moment, &happening) {
                let name = self.properties[place].name();
                self.fail(name, message);
            }
        }
    }

    /// Turns all properties off.
    pub fn close_eyes(&mut self) {
        self.properties.clear();
    }

    /// Reports a property that does not hold. The first report counts.
    pub fn fail(&mut self, property: &str, message: String) {
        self.line(format_args!("VIOLATION {property}: {message}"));
        if self.violation.is_none() {
            self.violation = Some(Violation { property: property.to_owned(), message, time_us: self.now_us });
        }
    }

    /// Appends a line to the trace.
    pub fn line(&mut self, text: fmt::Arguments<'_>) {
        self.trace.line(self.now_us, text);
    }

    /// Increments a counter.
    pub fn count(&mut self, name: &str) {
        match self.counters.get_mut(name) {
            Some(count) => *count += 1,
            None => {
                self.counters.insert(name.to_owned(), 1);
            }
        }
    }

    /// Whether nothing breaks any more.
    pub fn healed(&self) -> bool {
        self.phase != Phase::Safety
    }

    /// A call id that this client has not used.
    pub fn next_call(&mut self, client: usize) -> CallId {
        let client = &mut self.clients[client];
        client.next_call += 1;
        CallId(client.next_call)
    }
}
