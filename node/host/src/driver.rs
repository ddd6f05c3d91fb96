//! The driver owns the node: it passes events to it, carries out its effects, and sleeps until its next deadline.

use crate::answers::AnswerSender;
use crate::archive::{Archive, Batch};
use crate::clock::Clock;
use crate::emergency::EmergencyStop;
use crate::links::Links;
use crate::loader::{Loaded, Loader};
use crate::log_thread::{LogThread, Report};
use crate::measuring::{Asker, Measuring};
use crate::metrics::{Counter, Metrics, PeerRefusals};
use norn_client::alarm::Alarm;
use norn_engine::{ClientId, Cursor, Effect, Event, Node, Observation, Principal};
use norn_model::host::MemoryReport;
use norn_model::message::PeerMessage;
use norn_wire::ClusterId;
use norn_wire::membership::{Member, Roster};
use norn_wire::{NodeId, PartitionId, Request, Response};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::{mpsc, oneshot, watch};

/// Most inputs taken from a queue in one turn, so that the log's backlog and the node's deadlines are checked again in time.
const INPUTS_PER_TURN_MAX: usize = 256;
/// Bytes of requests after which a turn takes no more of them: as many may be logged beyond the bound on the log's backlog.
const REQUEST_BYTES_PER_TURN: usize = 1 << 20;
/// Events after which a turn takes no more inputs of peers: one more envelope may bring as many again.
const EVENTS_PER_TURN: usize = 1_024;

/// Whether a turn takes another input from a queue of which it has taken `inputs`, `events` in all.
fn has_room(inputs: usize, events: usize) -> bool {
    inputs < INPUTS_PER_TURN_MAX && events < EVENTS_PER_TURN
}

/// Inputs that keep the cluster running. Never held back: this queue is read first.
#[derive(Debug)]
pub enum Internal {
    /// An envelope of a verified peer.
    Peer {
        /// Sender.
        from: NodeId,
        /// Its messages, in order.
        messages: Vec<PeerMessage>,
    },
    /// The link to a peer is up.
    PeerConnected {
        /// Peer.
        peer: NodeId,
        /// Protocol version of the link.
        version: u8,
    },
    /// A report of the log's thread.
    Log(Report),
    /// Bodies were read back.
    Loaded(Loaded),
    /// Finished tasks are in the archive, or cannot be written there now.
    Archived {
        /// Partition.
        partition: PartitionId,
        /// The core's number of the batch.
        number: u64,
        /// Whether they are in the archive.
        done: bool,
    },
    /// The memory in use.
    Memory(MemoryReport),
    /// Measure the node.
    Measure(Asker),
    /// Say that events are taken.
    Alive(oneshot::Sender<()>),
    /// Hand leaderships over and stop.
    Shutdown,
}

/// Inputs from clients. Held back while the log is behind.
#[derive(Debug)]
pub enum External {
    /// A client stream is open.
    Opened {
        /// Its number.
        client: ClientId,
        /// Destination of its answers.
        replies: AnswerSender,
    },
    /// An authorized request.
    Request {
        /// The client's stream.
        client: ClientId,
        /// The client's number of the request.
        number: u64,
        /// The requester.
        principal: Principal,
        /// The request itself.
        request: Request,
        /// Bytes of its frame.
        bytes: usize,
    },
    /// The stream is closed.
    Gone {
        /// Its number.
        client: ClientId,
    },
}

impl External {
    /// Bytes that it brings.
    fn bytes(&self) -> usize {
        match self {
            External::Request { bytes, .. } => *bytes,
            External::Opened { .. } | External::Gone { .. } => 0,
        }
    }
}

/// Advice to a node that is not a member.
pub const NO_MEMBER: &str = "if this node was just added, this passes; if it was removed or replaced, stop it for good: for another \
                         member on this machine start a node with an empty data directory, and use `norn cluster add`";

/// Sending ends of the driver's queues.
#[derive(Debug, Clone)]
pub struct Inputs {
    /// From peers and the log.
    pub internal: mpsc::Sender<Internal>,
    /// From clients.
    pub external: mpsc::Sender<External>,
}

/// The node's cluster and its members.
#[derive(Debug, Clone)]
pub struct Belonging {
    /// The cluster.
    pub cluster: ClusterId,
    /// Member list, as far as this node knows it.
    pub roster: Arc<Roster>,
}

/// The driver's parts, before it runs.
#[derive(Debug)]
pub struct Driver<L> {
    /// The node, replayed and not started.
    pub node: Node,
    /// Its identity.
    pub identity: NodeId,
    /// Its name, by its certificate.
    pub name: Arc<str>,
    /// Ordinal up to which its log is durable.
    pub durable: u64,
    /// The monotonic clock and the wall clock.
    pub clock: Clock,
    /// The log's thread.
    pub log: LogThread,
    /// The thread that reads the log.
    pub loader: Loader,
    /// Archive of finished tasks, if there is one.
    pub archive: Option<Archive>,
    /// Links to the other members.
    pub peers: L,
    /// Publishes the cluster once it is known.
    pub belonging: watch::Sender<Option<Belonging>>,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// Stops the node when a rule was broken.
    pub emergency: EmergencyStop,
    /// From peers and the log.
    pub internal: mpsc::Receiver<Internal>,
    /// From clients.
    pub external: mpsc::Receiver<External>,
}

struct Running<L> {
    driver: Driver<L>,
    clients: HashMap<ClientId, AnswerSender>,
    /// Disconnected clients that the node has to learn of.
    gone: Vec<ClientId>,
    /// Events of this turn, in order.
    events: Vec<Event>,
    /// How many the turn before had.
    events_before: usize,
    effects: Vec<Effect>,
    /// The log asked for a part of the node's state: whether for the first.
    wants_state: Option<bool>,
    /// How much of the node's state was given to the log for its snapshot.
    saved: Cursor,
    stopped: bool,
    waits: bool,
    /// The change by which the node left its cluster, as logged. Empty while it is a member.
    left_by: String,
    refusals: PeerRefusals,
    measuring: Measuring,
    /// Rings at the node's next deadline.
    alarm: Alarm,
}

impl<L: Links> Driver<L> {
    /// Runs until the node has stopped or its input queue is closed; returns the log's thread, to be closed.
    pub async fn run(self) -> LogThread {
        let mut running = Running {
            driver: self,
            clients: HashMap::new(),
            gone: Vec::new(),
            events: Vec::new(),
            events_before: 0,
            effects: Vec::new(),
            wants_state: None,
            saved: Cursor::default(),
            stopped: false,
            waits: false,
            left_by: String::new(),
            refusals: PeerRefusals::default(),
            measuring: Measuring::default(),
            alarm: Alarm::new(Instant::now()),
        };
        let now = running.driver.clock.now();
        running.driver.node.start(now, running.driver.durable, &mut running.effects);
        running.carry_out();
        running.driver.log.wake();
        while !running.stopped && running.turn().await {}
        running.driver.peers.stop().await;
        running.driver.log
    }
}

impl<L: Links> Running<L> {
    /// Waits for an input, and has the node handle it in one turn with the other inputs that have arrived. Returns false once all senders
    /// are gone.
    async fn turn(&mut self) -> bool {
        let full = self.driver.log.is_full();
        if full && !self.waits {
            self.driver.metrics.add(Counter::LogWaits, 1);
        }
        self.waits = full;
        let wake = self.driver.node.next_wake().map(|at_us| self.driver.clock.instant(at_us));
        tokio::select! {
            biased;
            input = self.driver.internal.recv() => match input {
                Some(input) => self.take_internal(input),
                None => return false,
            },
            () = self.alarm.ring_at(wake) => self.events.push(Event::Wake),
            // While the log is behind, a sync is under way, and its end arrives through the branch above.
            Some(input) = self.driver.external.recv(), if !full => self.take_external(input),
            () = std::future::ready(()), if self.measuring.is_under_way() => {}
        }
        let mut inputs = 1;
        while has_room(inputs, self.events.len())
            && let Ok(input) = self.driver.internal.try_recv()
        {
            self.take_internal(input);
            inputs += 1;
        }
        let mut request_bytes = 0;
        for _ in 0..INPUTS_PER_TURN_MAX {
            if full || request_bytes > REQUEST_BYTES_PER_TURN {
                break;
            }
            let Ok(input) = self.driver.external.try_recv() else { break };
            request_bytes += input.bytes();
            self.take_external(input);
        }
        let events = self.events.len();
        self.step();
        while !self.gone.is_empty() {
            self.events.extend(self.gone.drain(..).map(|client| Event::ClientGone { client }));
            self.step();
        }
        if let Some(anew) = self.wants_state.take() {
            self.save(anew);
        }
        self.measuring.advance(&mut self.driver.node);
        // All records of a turn are written to the disk together.
        self.driver.log.wake();
        // Other tasks share this thread. Under load they bring more for the next turn; a lone event needs no look around.
        let more =
            !self.driver.internal.is_empty() || !self.driver.external.is_empty() || self.measuring.is_under_way();
        if more || self.events_before.max(events) > 1 {
            tokio::task::yield_now().await;
        }
        self.events_before = events;
        true
    }

    fn take_internal(&mut self, input: Internal) {
        let event = match input {
            Internal::Peer { from, messages } => {
                self.driver.metrics.add(Counter::PeerReceived, messages.len() as u64);
                return self.events.extend(messages.into_iter().map(|message| Event::Peer { from, message }));
            }
            Internal::PeerConnected { peer, version } => {
                self.driver.metrics.add(Counter::PeerConnected, 1);
                Event::PeerConnected { peer, version }
            }
            Internal::Log(Report::Persisted(ticket, places, durable)) => Event::Persisted { ticket, places, durable },
            Internal::Log(Report::Disk(report)) => Event::Disk(report),
            Internal::Log(Report::BodiesLost(ids)) => Event::BodiesLost { ids },
            Internal::Log(Report::Moved(ranges)) => Event::Moved { ranges },
            Internal::Loaded(Loaded { number, bodies, unread }) => {
                self.driver.metrics.add(Counter::BodiesLoaded, bodies.len() as u64);
                Event::Loaded { number, bodies, unread }
            }
            Internal::Log(Report::StateWanted { anew }) => {
                // After the turn: the state then goes to the log behind all that it rests on.
                self.wants_state = Some(anew);
                return;
            }
            Internal::Archived { partition, number, done } => Event::Archived { partition, number, done },
            Internal::Memory(report) => Event::Memory(report),
            Internal::Measure(asker) => return self.measuring.ask(asker),
            Internal::Alive(asker) => {
                // One that has gone needs no answer.
                let _ = asker.send(());
                return;
            }
            Internal::Shutdown => Event::Shutdown,
        };
        self.events.push(event);
    }

    /// Gives the log the next part of the node's state.
    fn save(&mut self, anew: bool) {
        if anew {
            self.saved = Cursor::default();
        }
        let part = self.driver.node.save(&mut self.saved, norn_restore::PART_BYTES);
        self.driver.log.save(part);
    }

    fn take_external(&mut self, input: External) {
        match input {
            External::Opened { client, replies } => {
                let before = self.clients.insert(client, replies);
                assert!(before.is_none(), "numbers of clients are never reused");
            }
            // A client that was disconnected is already reported as gone: its late requests are dropped.
            External::Request { client, .. } if !self.clients.contains_key(&client) => {}
            External::Request { client, number, principal, request, bytes: _ } => {
                self.driver.metrics.add(Counter::Requests, 1);
                self.events.push(Event::Request { client, number, principal, request });
            }
            External::Gone { client } => {
                if self.clients.remove(&client).is_some() {
                    self.events.push(Event::ClientGone { client });
                }
            }
        }
    }

    /// Has the node handle the events of this turn.
    fn step(&mut self) {
        let now = self.driver.clock.now();
        // A flood of inputs must not delay the node's own deadlines.
        let due = self.driver.node.next_wake().is_some_and(|at_us| at_us <= now.mono_us);
        if due && !matches!(self.events.as_slice(), [Event::Wake]) {
            self.events.push(Event::Wake);
        }
        if self.stopped || self.events.is_empty() {
            self.events.clear();
            return;
        }
        self.driver.metrics.add(Counter::Turns, 1);
        self.driver.metrics.add(Counter::Events, self.events.len() as u64);
        self.driver.node.turn(now, self.events.drain(..), &mut self.effects);
        self.carry_out();
    }

    /// Carries out the effects of a turn.
    fn carry_out(&mut self) {
        let mut effects = std::mem::take(&mut self.effects);
        for effect in effects.drain(..) {
            match effect {
                Effect::Persist { ticket, records } => self.driver.log.persist(ticket, records),
                Effect::Load { number, wanted } => self.driver.loader.load(number, wanted),
                Effect::Send { to, message } => self.driver.peers.put(to, message),
                Effect::Reply { client, number, response } => self.reply(client, number, response),
                Effect::Joined { genesis, roster } => {
                    self.tell_standing(genesis.cluster, &roster);
                    self.driver.peers.join(genesis.cluster, &roster);
                    self.driver.belonging.send_replace(Some(Belonging { cluster: genesis.cluster, roster }));
                }
                Effect::Archive { partition, number, tasks } => {
                    let archive = self.driver.archive.as_ref().expect("asked for where there is one");
                    archive.append(Batch { partition, number, tasks });
                }
                Effect::Observe(observation) => {
                    if let Observation::Refused { what, from } = observation {
                        self.refusals.tell(what, from);
                    }
                    self.driver.metrics.observe(&observation);
                }
                Effect::Stopped => self.stopped = true,
                Effect::Halt { reason } => self.driver.emergency.stop(&reason),
            }
        }
        // Keep the allocation for the next turn.
        self.effects = effects;
        self.driver.peers.post();
    }

    /// Logs for operators whether the node is a member, and if not, why, and what can be done.
    fn tell_standing(&mut self, cluster: ClusterId, roster: &Roster) {
        let members = roster.members.values().filter(|member| member.state.is_present()).count();
        let Some(change) = left_by(self.driver.identity, &self.driver.name, roster) else {
            self.left_by.clear();
            tracing::info!(%cluster, members, version = roster.version, "belongs to a cluster");
            return;
        };
        // After the node has left, later changes of the cluster do not concern it.
        if change != self.left_by {
            tracing::error!(%cluster, members, version = roster.version, change, advice = NO_MEMBER, "this node is no member any more");
            self.left_by = change;
        }
    }

    fn reply(&mut self, client: ClientId, number: u64, mut response: Response) {
        if let Response::Status(status) = &mut response {
            let known: Vec<String> = status.counters.iter().map(|(name, _)| name.clone()).collect();
            status
                .counters
                .extend(self.driver.metrics.snapshot().into_iter().filter(|(name, _)| !known.contains(name)));
        }
        // A response to a client that has left is dropped; the core learns of that through `ClientGone`.
        if let Some(replies) = self.clients.get(&client)
            && replies.send(number, response).is_err()
        {
            tracing::warn!(client = client.0, "a client does not read its answers and is let go");
            self.clients.remove(&client);
            self.gone.push(client);
        }
    }
}

/// The change by which a node stopped being a member of its cluster, as far as the member list shows. `None` if it is a member.
fn left_by(node: NodeId, name: &str, roster: &Roster) -> Option<String> {
    let present = || roster.members.values().filter(|member| member.state.is_present());
    if present().any(|member| member.node == node) {
        return None;
    }
    let own = roster.members.values().find(|member| member.node == node);
    let takes_place = |member: &&Member| member.name == name || own.is_some_and(|own| own.address == member.address);
    Some(match present().find(takes_place) {
        Some(Member { node, name, address, .. }) => format!("it was replaced: {name} at {address} is node {node}"),
        None => "it was removed, was replaced by a node of another name, or was silent for longer than heal-after"
            .to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::{EVENTS_PER_TURN, INPUTS_PER_TURN_MAX, has_room, left_by};
    use norn_model::limits::ENVELOPE_MESSAGES_MAX;
    use norn_wire::NodeId;
    use norn_wire::membership::{Member, MemberState, Roster};
    use std::collections::BTreeMap;

    fn roster(members: &[(u128, &str, &str, MemberState)]) -> Roster {
        let member = |(node, name, address, state): &(u128, &str, &str, MemberState)| Member {
            node: NodeId(*node),
            incarnation: 1,
            name: (*name).to_owned(),
            address: (*address).to_owned(),
            zone: String::new(),
            weight: 1,
            state: *state,
        };
        Roster { version: 9, members: (0..).zip(members.iter().map(member)).collect(), policies: BTreeMap::new() }
    }

    #[test]
    fn a_flood_of_envelopes_leaves_room_for_the_deadlines_of_the_node() {
        for messages in [1, 7, ENVELOPE_MESSAGES_MAX] {
            let (mut inputs, mut events) = (1, messages);
            while has_room(inputs, events) {
                inputs += 1;
                events += messages;
            }
            assert!(inputs <= INPUTS_PER_TURN_MAX);
            assert!(events < EVENTS_PER_TURN + ENVELOPE_MESSAGES_MAX, "{events} events in a turn");
            assert!(inputs == INPUTS_PER_TURN_MAX || events >= EVENTS_PER_TURN, "a turn ends early");
        }
    }

    #[test]
    fn a_node_that_is_no_member_any_more_hears_by_which_change() {
        use MemberState::{Gone, Joining, Leaving, Up};
        let of = |members: &[(u128, &str, &str, MemberState)]| left_by(NodeId(3), "n3", &roster(members));
        let other = (1, "n1", "h1:1", Up);
        for state in [Joining, Up, Leaving] {
            assert_eq!(of(&[other, (3, "n3", "h3:1", state)]), None);
        }
        let gone = (3, "n3", "h3:1", Gone);
        for list in [&[other, gone, (4, "n3", "h4:1", Joining)][..], &[other, (4, "n3", "h4:1", Up)]] {
            assert_eq!(of(list).unwrap(), format!("it was replaced: n3 at h4:1 is node {}", NodeId(4)));
        }
        assert!(of(&[other, gone, (4, "n4", "h3:1", Up)]).unwrap().starts_with("it was replaced: n4 at h3:1"));
        for list in [&[other, gone][..], &[other]] {
            assert!(of(list).unwrap().starts_with("it was removed"), "{list:?}");
        }
    }
}
