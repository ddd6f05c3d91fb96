//! Links to the other members: one connection each, one stream per message class, coalesced writes.
//!
//! A link carries this node's messages. Of two nodes that both can (`SHARES`), the one with the lower identity dials, and the other
//! one opens its streams on the same connection: so acknowledgements of QUIC travel with the messages of the other direction. Until
//! that connection is there, and with a peer that does not read on connections that it has dialed, each node dials for itself.

use crate::runtime::caller::connecting_peer;
use crate::runtime::certificates::NODE_SUFFIX;
use crate::runtime::hints::Hints;
use crate::runtime::listener::Listener;
use crate::runtime::transport::{CloseCode, PeerConfig};
use norn_client::dial::{Reach, Reason, dial, version_of};
use norn_host::driver::{Internal, NO_MEMBER};
use norn_host::links::Links;
use norn_host::metrics::{Counter, Metrics};
use norn_model::limits::ENVELOPE_MESSAGES_MAX;
use norn_model::message::{Class, PeerMessage, envelope};
use norn_wire::codec::{Kind, encode_named};
use norn_wire::membership::{Member, Roster};
use norn_wire::{ClusterId, NodeId, Versions};
use quinn::{Connection, ConnectionError, Endpoint, SendStream, VarInt};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

/// Optional features of this version, one bit each. Peers use those that both have; unknown bits are ignored.
pub const FEATURES: u64 = SHARES;
/// The sender reads messages on the connections that it has dialed, too.
const SHARES: u64 = 1;
/// Shortest pause before a link is retried.
const BACKOFF_MIN: Duration = Duration::from_millis(50);
/// Longest pause before a link is retried.
const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// A link that lasted this long was a good one: the next pause is the shortest again.
const GOOD_LINK: Duration = Duration::from_secs(2);
/// Time limit for writing the last messages at a stop.
const STOP_TIMEOUT: Duration = Duration::from_millis(500);
/// Bytes of a writer's buffer that are kept from one write to the next.
const WRITE_BYTES: usize = 256 << 10;
/// Advice when a peer refuses this node's identity or cluster.
const COMPARE: &str = "one of the two runs on another member's data directory or address, or in another cluster; \
                       compare --data, --name and --advertise of both with what `norn nodes` says elsewhere";
/// Advice without a common protocol version.
const UPGRADE: &str = "upgrade the program on the older of the two, or raise its setting protocol_version_max; \
                       `norn --version` says what a program speaks";

/// Advice to both sides when one does not accept the other's certificate.
const CERTIFY: &str =
    "all nodes of a cluster have certificates of one authority, each with its name; see `norn cert node --help`";

norn_wire::wire_body!(PeerHello);

/// First frame of a peer's stream. Fields are named on the wire, so that later versions may add some.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerHello {
    /// Oldest protocol version of the sender. The connection's is settled by then; this is for the error text if there is none in common.
    pub version: u8,
    /// Newest protocol version, if it is a different one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newest: Option<u8>,
    /// Features of the sender.
    pub features: u64,
    /// The cluster.
    pub cluster: ClusterId,
    /// The sender.
    pub from: NodeId,
    /// The intended receiver: an address may have passed to another node.
    pub to: NodeId,
    /// Message class of the stream: true for bulk.
    pub bulk: bool,
    /// Random number drawn at each start of the sender's process.
    pub process: u64,
}

impl PeerHello {
    /// Protocol versions of the sender.
    pub fn speaks(&self) -> Versions {
        Versions { oldest: self.version, newest: self.newest.unwrap_or(self.version) }
    }

    /// What hearing it on this connection means to the receiver. Where that has dialed, it has the lower identity, or will be dialed.
    pub fn heard_on(&self, connection: &Connection, version: u8) -> Heard {
        let is_shared = self.features & FEATURES & SHARES != 0 && self.from < self.to;
        let shared = is_shared.then(|| Shared { connection: connection.clone(), version });
        Heard { process: self.process, shared }
    }
}

/// A sign of a peer: it has opened a stream to this node.
#[derive(Debug, Clone)]
pub struct Heard {
    /// Random number drawn at each start of its process.
    process: u64,
    /// Its connection, if this node is to send on it, too.
    shared: Option<Shared>,
}

/// A connection that a peer has dialed.
#[derive(Debug, Clone)]
struct Shared {
    connection: Connection,
    version: u8,
}

impl Heard {
    /// The connection on which this node is to send, while it is up.
    fn way(&self) -> Option<&Shared> {
        self.shared.as_ref().filter(|shared| shared.connection.close_reason().is_none())
    }
}

/// What this node has heard of its peers: the listener hears them, the links want to know.
#[derive(Debug, Clone, Default)]
pub struct Meetings(Arc<Mutex<HashMap<NodeId, watch::Sender<Option<Heard>>>>>);

impl Meetings {
    /// Records that a peer has opened a stream to this node: it can be reached now, and if its process is a new one, the link to the old
    /// process is dead. Otherwise that would show only when the link has been silent for too long. It is dropped without a link.
    pub fn heard(&self, peer: NodeId, heard: Heard) {
        let meetings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(told) = meetings.get(&peer) {
            told.send_replace(Some(heard));
        }
    }

    /// What a link to this peer has to watch. A link that is restarted goes on with what its predecessor knew.
    fn watch(&self, peer: NodeId) -> watch::Receiver<Option<Heard>> {
        let mut meetings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        meetings.entry(peer).or_insert_with(|| watch::channel(None).0).subscribe()
    }

    /// Forgets those without a link.
    fn retain(&self, has_link: impl Fn(&NodeId) -> bool) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|peer, _| has_link(peer));
    }
}

/// Limits of links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkBounds {
    /// Messages that may wait for one stream.
    pub queue_max: usize,
    /// Time limit for an attempt to connect.
    pub connect_timeout: Duration,
}

#[derive(Debug)]
struct Link {
    addresses: Vec<String>,
    urgent: Outgoing,
    bulk: Outgoing,
}

/// What goes out on one stream of a link.
#[derive(Debug)]
struct Outgoing {
    /// Messages of the present turn.
    envelope: Vec<PeerMessage>,
    queue: mpsc::Sender<Vec<PeerMessage>>,
    waiting: Arc<AtomicUsize>,
}

/// The other end of an [`Outgoing`].
struct Queue {
    envelopes: mpsc::Receiver<Vec<PeerMessage>>,
    /// Messages in them.
    waiting: Arc<AtomicUsize>,
}

/// The two ends of the queue of a stream.
fn queue(bounds: LinkBounds) -> (Outgoing, Queue) {
    let (queue, envelopes) = mpsc::channel(bounds.queue_max);
    let waiting = Arc::<AtomicUsize>::default();
    (Outgoing { envelope: Vec::new(), queue, waiting: Arc::clone(&waiting) }, Queue { envelopes, waiting })
}

impl Outgoing {
    /// Queues the envelope, or drops it when too many messages wait: the protocol repeats important ones.
    fn post(&mut self, bounds: LinkBounds, metrics: &Metrics) {
        let envelope = std::mem::take(&mut self.envelope);
        let count = envelope.len();
        if count == 0 {
            return;
        }
        // One that is larger than the bound goes out alone.
        let before = self.waiting.fetch_add(count, Ordering::Relaxed);
        let fits = before == 0 || before + count <= bounds.queue_max;
        if fits && self.queue.try_send(envelope).is_ok() {
            metrics.add(Counter::PeerSent, count as u64);
            metrics.add(Counter::PeerPosted, 1);
        } else {
            self.waiting.fetch_sub(count, Ordering::Relaxed);
            metrics.add(Counter::PeerDropped, count as u64);
        }
    }
}

impl Queue {
    /// Waits for an envelope. `None` once the queue is closed and empty.
    async fn next(&mut self) -> Option<Vec<PeerMessage>> {
        let envelope = self.envelopes.recv().await?;
        Some(self.taken(envelope))
    }

    /// The next envelope, if one is there.
    fn try_next(&mut self) -> Option<Vec<PeerMessage>> {
        let envelope = self.envelopes.try_recv().ok()?;
        Some(self.taken(envelope))
    }

    fn taken(&self, envelope: Vec<PeerMessage>) -> Vec<PeerMessage> {
        self.waiting.fetch_sub(envelope.len(), Ordering::Relaxed);
        envelope
    }
}

/// The identity under which a node sends on all links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Speaker {
    /// Identity in the data directory.
    pub node: NodeId,
    /// Random number drawn at each start of the process.
    pub process: u64,
    /// Protocol versions.
    pub speaks: Versions,
}

impl Speaker {
    /// The first frame of a stream to a node.
    pub fn hello(&self, cluster: ClusterId, to: NodeId, bulk: bool) -> PeerHello {
        let Versions { oldest, newest } = self.speaks;
        PeerHello {
            version: oldest,
            newest: (newest > oldest).then_some(newest),
            features: FEATURES,
            cluster,
            from: self.node,
            to,
            bulk,
            process: self.process,
        }
    }
}

/// All links of a node.
#[derive(Debug)]
pub struct Peers {
    endpoint: Endpoint,
    /// Configuration for the next attempt of any link.
    config: watch::Receiver<PeerConfig>,
    /// Reads what peers send on connections that this node has dialed.
    listener: Arc<Listener>,
    speaker: Speaker,
    hints: Hints,
    bounds: LinkBounds,
    internal: mpsc::Sender<Internal>,
    metrics: Arc<Metrics>,
    links: HashMap<NodeId, Link>,
    /// Links with messages of the present turn.
    touched: Vec<NodeId>,
    stopping: watch::Sender<bool>,
    tasks: JoinSet<()>,
}

impl Peers {
    /// Without links at first. `hints`: addresses of peers that an operator gave.
    pub fn new(
        endpoint: Endpoint,
        config: watch::Receiver<PeerConfig>,
        listener: Arc<Listener>,
        hints: Hints,
        bounds: LinkBounds,
    ) -> Self {
        let speaker = listener.speaker;
        let (internal, metrics) = (listener.inputs.internal.clone(), Arc::clone(&listener.metrics));
        let (links, touched, tasks) = (HashMap::new(), Vec::new(), JoinSet::new());
        let stopping = watch::Sender::new(false);
        Peers { endpoint, config, listener, speaker, hints, bounds, internal, metrics, links, touched, stopping, tasks }
    }
}

impl Links for Peers {
    /// Starts links to all members without one, restarts a link if the member's address has changed, and ends links to nodes that are
    /// no members. A member that is gone keeps its link, as it may have data to hand over, unless its successor has its address. Must
    /// be called within the async runtime.
    fn join(&mut self, cluster: ClusterId, roster: &Roster) {
        let present = || roster.members.values().filter(|member| member.state.is_present());
        let is_there =
            |member: &&Member| member.state.is_present() || !present().any(|other| other.address == member.address);
        let members: Vec<&Member> = roster.members.values().filter(is_there).collect();
        let stays = |node: &NodeId, link: &mut Link| {
            members.iter().any(|member| member.node == *node && self.hints.addresses(member) == link.addresses)
        };
        self.links.retain(stays);
        for member in members {
            if member.node == self.speaker.node || self.links.contains_key(&member.node) {
                continue;
            }
            let (urgent, urgent_queue) = queue(self.bounds);
            let (bulk, bulk_queue) = queue(self.bounds);
            let hears = self.listener.meetings().watch(member.node);
            let addresses = self.hints.addresses(member);
            self.links.insert(member.node, Link { addresses: addresses.clone(), urgent, bulk });
            let task = LinkTask {
                endpoint: self.endpoint.clone(),
                config: self.config.clone(),
                listener: Arc::clone(&self.listener),
                member: member.clone(),
                addresses,
                ended_at: None,
                cluster,
                speaker: self.speaker,
                connect_timeout: self.bounds.connect_timeout,
                internal: self.internal.clone(),
                stopping: self.stopping.subscribe(),
                metrics: Arc::clone(&self.metrics),
            };
            self.tasks.spawn(task.run(urgent_queue, bulk_queue, hears));
        }
        self.listener.meetings().retain(|peer| self.links.contains_key(peer));
    }

    fn put(&mut self, to: NodeId, message: PeerMessage) {
        let Some(link) = self.links.get_mut(&to) else {
            self.metrics.add(Counter::PeerDropped, 1);
            return;
        };
        if link.urgent.envelope.is_empty() && link.bulk.envelope.is_empty() {
            self.touched.push(to);
        }
        match message.class() {
            Class::Urgent => link.urgent.envelope.push(message),
            Class::Bulk => link.bulk.envelope.push(message),
        }
    }

    fn post(&mut self) {
        for node in self.touched.drain(..) {
            if let Some(link) = self.links.get_mut(&node) {
                link.urgent.post(self.bounds, &self.metrics);
                link.bulk.post(self.bounds, &self.metrics);
            }
        }
    }

    async fn stop(mut self) {
        self.links.clear();
        self.stopping.send_replace(true);
        let written = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(STOP_TIMEOUT, written).await.is_err() {
            tracing::debug!("some peer did not take the last messages in time");
        }
    }
}

struct LinkTask {
    endpoint: Endpoint,
    config: watch::Receiver<PeerConfig>,
    listener: Arc<Listener>,
    member: Member,
    /// Addresses at which the member may be, the most likely first.
    addresses: Vec<String>,
    /// Address at which the last link soon ended, because another node of this name is there, or refuses: it is tried last in the
    /// next attempt.
    ended_at: Option<SocketAddr>,
    cluster: ClusterId,
    speaker: Speaker,
    connect_timeout: Duration,
    internal: mpsc::Sender<Internal>,
    stopping: watch::Receiver<bool>,
    metrics: Arc<Metrics>,
}

/// A connection with a stream of each class.
struct Opened {
    connection: Connection,
    version: u8,
    urgent: SendStream,
    bulk: SendStream,
    /// The address that was dialed, if this node did.
    dialed: Option<SocketAddr>,
}

/// Why a link ended.
enum LinkEnd {
    /// The node stops.
    Stopped,
    /// It broke, and is retried after a pause.
    Broken(String),
    /// The peer does not accept this node's identity or cluster, which only an operator can change.
    Refused(String),
    /// The peer does not know this node as a member, which is temporary only if the node is new.
    Stranger(String),
    /// There is no common protocol version, which only an operator can change.
    Unspoken(String),
    /// One side does not accept the other's certificate.
    Uncertified(String),
    /// The peer is there as a new process: retry at once.
    Restarted,
}

impl LinkTask {
    async fn run(mut self, mut urgent: Queue, mut bulk: Queue, mut heard: watch::Receiver<Option<Heard>>) {
        let mut pause = BACKOFF_MIN;
        let mut last_reason = String::new();
        loop {
            let started = tokio::time::Instant::now();
            let (reason, advice) = match self.serve(&mut urgent, &mut bulk, &mut heard).await {
                LinkEnd::Stopped => return,
                LinkEnd::Restarted if urgent.envelopes.is_closed() && bulk.envelopes.is_closed() => return,
                LinkEnd::Restarted => continue,
                LinkEnd::Broken(reason) => (reason, None),
                LinkEnd::Refused(reason) => (reason, Some(COMPARE)),
                LinkEnd::Stranger(reason) => (reason, Some(NO_MEMBER)),
                LinkEnd::Unspoken(reason) => (reason, Some(UPGRADE)),
                LinkEnd::Uncertified(reason) => (reason, Some(CERTIFY)),
            };
            if started.elapsed() >= GOOD_LINK {
                pause = BACKOFF_MIN;
            }
            // A peer that is down is retried once a second; one log line for each different reason is enough.
            if reason == last_reason {
                tracing::debug!(peer = %self.member.name, %reason, "no link to peer");
            } else {
                self.complain(&reason, advice);
                last_reason = reason;
            }
            // Jitter keeps nodes that lost each other at the same moment from retrying in lockstep.
            tokio::select! {
                () = tokio::time::sleep(pause.mul_f64(rand::random_range(0.5..1.0))) => {}
                Ok(()) = heard.changed() => {}
                () = self.stopping() => return,
            }
            // No sender is left.
            if urgent.envelopes.is_closed() && bulk.envelopes.is_closed() {
                return;
            }
            pause = (pause * 2).min(BACKOFF_MAX);
        }
    }

    fn complain(&self, reason: &str, advice: Option<&str>) {
        let (peer, address) = (&self.member.name, self.addresses.join(" or "));
        if let Some(advice) = advice {
            tracing::error!(%peer, %address, reason, advice, "the peer refuses this node, or this node the peer");
        } else {
            tracing::info!(%peer, %address, reason, "no link to peer");
        }
    }

    async fn stopping(&self) {
        // An error means that the sender was dropped, which also ends the link.
        let _ = self.stopping.clone().wait_for(|stopping| *stopping).await;
    }

    /// Connects the link and serves it until it ends.
    async fn serve(
        &mut self,
        urgent: &mut Queue,
        bulk: &mut Queue,
        heard: &mut watch::Receiver<Option<Heard>>,
    ) -> LinkEnd {
        let (process, way) = {
            let heard = heard.borrow_and_update();
            (heard.as_ref().map(|heard| heard.process), heard.as_ref().and_then(|heard| heard.way().cloned()))
        };
        let connected = tokio::select! {
            connected = self.connect(way) => connected,
            // The first packets may have been sent before the peer was up; waiting for their retransmission takes longer than a new
            // attempt.
            Ok(()) = heard.changed() => return LinkEnd::Restarted,
            () = self.stopping() => return LinkEnd::Stopped,
        };
        let opened = match connected {
            Ok(opened) => opened,
            Err(end) => return end,
        };
        let Opened { connection, version, urgent: urgent_stream, bulk: bulk_stream, dialed } = opened;
        let up = tokio::time::Instant::now();
        // Messages queued while there was no link are stale by now; the core learns of possible losses by `PeerConnected`.
        for queue in [&mut *urgent, &mut *bulk] {
            while let Some(envelope) = queue.try_next() {
                self.metrics.add(Counter::PeerDropped, envelope.len() as u64);
            }
        }
        tracing::debug!(peer = %self.member.name, ?dialed, version, "link to peer is up");
        if self.internal.send(Internal::PeerConnected { peer: self.member.node, version }).await.is_err() {
            return LinkEnd::Stopped;
        }
        if dialed.is_some() {
            // Ends with the connection, once all that has come on it is read.
            let (listener, connection) = (Arc::clone(&self.listener), connection.clone());
            tokio::spawn(async move { listener.serve_dialed(&connection, version).await });
        }
        let end = tokio::select! {
            reason = connection.closed() => self.broken(&connection, reason.to_string()),
            () = outdated(heard, process, &connection) => LinkEnd::Restarted,
            written = async { tokio::try_join!(
                write_messages(urgent_stream, version, urgent, &self.metrics),
                write_messages(bulk_stream, version, bulk, &self.metrics),
            ) } => match written {
                Ok(((), ())) => LinkEnd::Stopped,
                Err(error) => self.broken(&connection, error),
            },
        };
        if dialed.is_some() {
            connection.close(CloseCode::Stopping.into(), b"link ended");
        }
        self.ended_at = dialed.filter(|_| up.elapsed() < GOOD_LINK);
        end
    }

    /// Opens streams on the peer's connection, or on one that is dialed.
    async fn connect(&self, way: Option<Shared>) -> Result<Opened, LinkEnd> {
        let (dialed, connection, version) = match way {
            Some(Shared { connection, version }) => (None, connection, version),
            None => {
                let (address, connection) = self.dial().await?;
                let none = || LinkEnd::Broken("the handshake settled no protocol version".to_owned());
                let version = version_of(&connection).ok_or_else(none)?;
                (Some(address), connection, version)
            }
        };
        let open = async {
            let urgent = self.open(&connection, version, Class::Urgent).await?;
            Ok((urgent, self.open(&connection, version, Class::Bulk).await?))
        };
        let opened = tokio::time::timeout(self.connect_timeout, open).await;
        let opened = opened.unwrap_or_else(|_| Err("no answer in time".to_owned()));
        let (urgent, bulk) = opened.map_err(|reason| self.broken(&connection, reason))?;
        Ok(Opened { connection, version, urgent, bulk, dialed })
    }

    async fn dial(&self) -> Result<(SocketAddr, Connection), LinkEnd> {
        // The name, not the host: the answering node must be this very member, wherever it runs.
        let name = format!("{}{NODE_SUFFIX}", self.member.name);
        let config = self.config.borrow().clone();
        let attempt = |address| connecting_peer(&self.endpoint, &config, address, &name);
        let reach = |address| match Reach::from(&self.endpoint, address) {
            Reach::Well if self.ended_at == Some(address) => Reach::Hardly,
            reach => reach,
        };
        let connected = dial(&self.addresses, Some(self.connect_timeout), reach, attempt).await;
        connected.map_err(|error| ended(error.into()))
    }

    async fn open(&self, connection: &Connection, version: u8, class: Class) -> Result<SendStream, String> {
        let mut stream = connection.open_uni().await.map_err(|error| error.to_string())?;
        let hello = self.speaker.hello(self.cluster, self.member.node, class == Class::Bulk);
        if class == Class::Urgent {
            stream.set_priority(1).map_err(|error| error.to_string())?;
        }
        let mut bytes = Vec::new();
        encode_named(&mut bytes, version, Kind::PeerHello, 0, &hello);
        stream.write_all(&bytes).await.map_err(|error| error.to_string())?;
        Ok(stream)
    }

    /// Why a connection ended. Reads and writes fail for the same reason, and may notice first.
    fn broken(&self, connection: &Connection, reason: String) -> LinkEnd {
        match connection.close_reason() {
            Some(ConnectionError::ApplicationClosed(close))
                if [CloseCode::Identity, CloseCode::Cluster].map(VarInt::from).contains(&close.error_code) =>
            {
                LinkEnd::Refused(String::from_utf8_lossy(&close.reason).into_owned())
            }
            Some(ConnectionError::ApplicationClosed(close)) if close.error_code == CloseCode::Stranger.into() => {
                LinkEnd::Stranger(String::from_utf8_lossy(&close.reason).into_owned())
            }
            Some(ConnectionError::ApplicationClosed(close)) if close.error_code == CloseCode::Version.into() => {
                LinkEnd::Unspoken(String::from_utf8_lossy(&close.reason).into_owned())
            }
            Some(known) => ended(Reason::of(&known, Some(&self.config.borrow().shown))),
            None => LinkEnd::Broken(reason),
        }
    }
}

fn ended(reason: Reason) -> LinkEnd {
    if reason.lasting { LinkEnd::Uncertified(reason.text) } else { LinkEnd::Broken(reason.text) }
}

/// Waits until the peer is heard of as another process than before, or is to be sent to on another connection than this one.
async fn outdated(heard: &mut watch::Receiver<Option<Heard>>, mut process: Option<u64>, connection: &Connection) {
    let is_another = |way: &Shared| way.connection.stable_id() != connection.stable_id();
    loop {
        if let Some(now) = heard.borrow_and_update().as_ref() {
            let before = process.replace(now.process);
            if before.is_some_and(|before| before != now.process) || now.way().is_some_and(is_another) {
                return;
            }
        }
        if heard.changed().await.is_err() {
            return std::future::pending().await;
        }
    }
}

/// Writes messages until the queue is closed and empty. All that wait go out in one write, and as one envelope if they fit.
async fn write_messages(
    mut stream: SendStream,
    version: u8,
    queue: &mut Queue,
    metrics: &Metrics,
) -> Result<(), String> {
    let mut bytes = Vec::with_capacity(4 << 10);
    while let Some(mut messages) = queue.next().await {
        while messages.len() < ENVELOPE_MESSAGES_MAX
            && let Some(more) = queue.try_next()
        {
            messages.extend(more);
        }
        for message in envelope::encode(&mut bytes, version, &messages) {
            tracing::error!(message = message.name(), "message is too large for a frame");
            metrics.add(Counter::PeerDropped, 1);
        }
        stream.write_all(&bytes).await.map_err(|error| error.to_string())?;
        bytes.clear();
        bytes.shrink_to(2 * WRITE_BYTES);
    }
    // At the end, wait for the peer's acknowledgement: a hand-over must not stay in this side's buffers.
    stream.finish().map_err(|error| error.to_string())?;
    stream.stopped().await.map(|_| ()).map_err(|error| error.to_string())
}
