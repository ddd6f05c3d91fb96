//! A network between real nodes that can inject faults: a UDP proxy stands in front of each node.
//!
//! A node advertises its proxy and dials the proxies of others, always from the socket on which it listens. So the source port of a
//! datagram identifies the node that sent it; any other port belongs to a client. Rules apply to directed pairs: the rule for `(a, b)`
//! applies to every datagram from a to b, on a connection that a dialled or as an answer on one that b dialled. A broken cable or a
//! wrong route has the same effect, and QUIC above it must cope.

use crate::wait::until_instant;
use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

/// Size of the largest possible datagram.
const DATAGRAM_BYTES_MAX: usize = 1 << 16;

/// One end of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Party {
    /// The node with this index.
    Node(usize),
    /// Any sender that is not a node.
    Client,
}

/// What happens to datagrams from one party to another. By default they all pass at once.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rule {
    /// Share of lost datagrams, from 0 to 1. At 1, datagrams under way are lost as well.
    pub loss: f64,
    /// Share of datagrams that arrive twice.
    pub duplicates: f64,
    /// Minimum delay of every datagram.
    pub delay: Duration,
    /// Share of datagrams that are held back for `late` in addition, so that others overtake them.
    pub reordered: f64,
    /// How long reordered datagrams are held back.
    pub late: Duration,
}

impl Rule {
    /// Every datagram passes at once.
    pub const PASS: Rule =
        Rule { loss: 0.0, duplicates: 0.0, delay: Duration::ZERO, reordered: 0.0, late: Duration::ZERO };
    /// No datagram passes.
    pub const DROP: Rule = Rule { loss: 1.0, ..Rule::PASS };

    fn cuts(&self) -> bool {
        self.loss >= 1.0
    }
}

impl Default for Rule {
    fn default() -> Self {
        Rule::PASS
    }
}

/// What happened to the datagrams of a directed pair.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Forwarded, copies included.
    pub passed: u64,
    /// Dropped by a rule.
    pub dropped: u64,
    /// Forwarded with a delay.
    pub delayed: u64,
    /// Forwarded twice.
    pub duplicated: u64,
}

impl Counts {
    fn add(&mut self, other: Counts) {
        self.passed += other.passed;
        self.dropped += other.dropped;
        self.delayed += other.delayed;
        self.duplicated += other.duplicated;
    }
}

/// The proxies of a cluster. Dropping it ends their thread.
#[derive(Debug)]
pub struct Network {
    shared: Arc<Shared>,
    fronts: Option<mpsc::UnboundedSender<Front>>,
    thread: Option<JoinHandle<()>>,
}

/// A proxy to be started, and the node behind it.
struct Front {
    socket: std::net::UdpSocket,
    node: usize,
    address: SocketAddr,
}

#[derive(Debug, Default)]
struct Shared {
    paths: Mutex<Paths>,
}

#[derive(Debug, Default)]
struct Paths {
    /// The address of each node's own socket.
    nodes: BTreeMap<SocketAddr, usize>,
    rules: BTreeMap<(Party, Party), Rule>,
    counts: BTreeMap<(Party, Party), Counts>,
    /// How often clients were moved to other ports.
    rebinds: u64,
}

/// The destination of a datagram, and the socket that sends it there.
#[derive(Clone)]
struct Exit {
    socket: Arc<UdpSocket>,
    address: SocketAddr,
}

/// The path of one sender through a proxy.
struct Way {
    exit: Exit,
    /// For a client, the number of rebinds when this path was opened. None for a node.
    rebinds: Option<u64>,
    answers: AbortHandle,
}

impl Network {
    /// Starts the proxies' thread, without any proxy.
    pub fn start() -> Network {
        let (fronts, mut wanted) = mpsc::unbounded_channel::<Front>();
        let shared = Arc::new(Shared::default());
        let for_thread = Arc::clone(&shared);
        // A separate thread, so that a test that waits for a process does not delay datagrams.
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                while let Some(front) = wanted.recv().await {
                    tokio::spawn(serve(Arc::clone(&for_thread), front));
                }
            });
        });
        Network { shared, fronts: Some(fronts), thread: Some(thread) }
    }

    /// Puts a proxy in front of the node with this index, which listens at `address`. Returns the proxy's address.
    pub fn add(&self, node: usize, address: SocketAddr, port: u16) -> SocketAddr {
        let socket = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).expect("the port is free");
        socket.set_nonblocking(true).expect("a socket of the system");
        let place = socket.local_addr().expect("it is bound");
        self.shared.paths().nodes.insert(address, node);
        let fronts = self.fronts.as_ref().expect("it is there until the end");
        fronts.send(Front { socket, node, address }).expect("the thread runs until the end");
        place
    }

    /// Sets the rule for every directed pair of nodes at one moment. Clients still reach every node.
    pub fn shape(&self, rule: impl Fn(usize, usize) -> Rule) {
        let mut paths = self.shared.paths();
        let nodes: Vec<usize> = paths.nodes.values().copied().collect();
        for from in &nodes {
            for to in nodes.iter().filter(|to| *to != from) {
                paths.rules.insert((Party::Node(*from), Party::Node(*to)), rule(*from, *to));
            }
        }
    }

    /// Lets datagrams pass from one node to another where `connected` returns true, and drops all others.
    pub fn connect(&self, connected: impl Fn(usize, usize) -> bool) {
        self.shape(|from, to| if connected(from, to) { Rule::PASS } else { Rule::DROP });
    }

    /// Sets the rule for datagrams from one party to another.
    pub fn set(&self, from: Party, to: Party, rule: Rule) {
        self.shared.paths().rules.insert((from, to), rule);
    }

    /// Moves all clients to other ports with their next datagrams, as a NAT router does that has lost its table. Datagrams to the old
    /// ports are lost.
    pub fn rebind_clients(&self) {
        self.shared.paths().rebinds += 1;
    }

    /// Removes all rules, so that everything passes.
    pub fn heal(&self) {
        self.shared.paths().rules.clear();
    }

    /// Counts of datagrams so far, summed over all directed pairs that `meant` selects.
    pub fn counts(&self, meant: impl Fn(Party, Party) -> bool) -> Counts {
        let mut sum = Counts::default();
        for ((from, to), counts) in &self.shared.paths().counts {
            if meant(*from, *to) {
                sum.add(*counts);
            }
        }
        sum
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        drop(self.fronts.take());
        if let Some(thread) = self.thread.take() {
            // The thread returns nothing, and a panic in it has been printed.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn paths(&self) -> MutexGuard<'_, Paths> {
        self.paths.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn party(&self, address: SocketAddr) -> Party {
        self.paths().nodes.get(&address).map_or(Party::Client, |node| Party::Node(*node))
    }

    /// Draws the copies of a datagram that are forwarded, each by its delay.
    fn draw(&self, from: Party, to: Party) -> Vec<Duration> {
        let mut paths = self.paths();
        let rule = paths.rules.get(&(from, to)).copied().unwrap_or_default();
        let happens = |share: f64| share > 0.0 && rand::random::<f64>() < share;
        let mut copies = Vec::new();
        let counts = paths.counts.entry((from, to)).or_default();
        if rule.cuts() || happens(rule.loss) {
            counts.dropped += 1;
            return copies;
        }
        let twice = happens(rule.duplicates);
        counts.duplicated += u64::from(twice);
        for _ in 0..1 + usize::from(twice) {
            let later = rule.delay + if happens(rule.reordered) { rule.late } else { Duration::ZERO };
            counts.delayed += u64::from(!later.is_zero());
            copies.push(later);
        }
        copies
    }

    /// Whether a datagram may arrive now. It is lost if its path was cut while it was under way.
    fn arrives(&self, from: Party, to: Party) -> bool {
        let mut paths = self.paths();
        let cut = paths.rules.get(&(from, to)).is_some_and(Rule::cuts);
        let counts = paths.counts.entry((from, to)).or_default();
        if cut {
            counts.dropped += 1;
        } else {
            counts.passed += 1;
        }
        !cut
    }

    async fn carry(self: &Arc<Self>, from: Party, to: Party, datagram: &[u8], exit: &Exit) {
        for later in self.draw(from, to) {
            if later.is_zero() {
                self.deliver(from, to, datagram, exit).await;
            } else {
                let (shared, datagram, exit) = (Arc::clone(self), datagram.to_vec(), exit.clone());
                let due = Instant::now() + later;
                tokio::spawn(async move {
                    until_instant(due).await;
                    shared.deliver(from, to, &datagram, &exit).await;
                });
            }
        }
    }

    async fn deliver(&self, from: Party, to: Party, datagram: &[u8], exit: &Exit) {
        if self.arrives(from, to) {
            // There may be no receiver, or no room in the system's buffers. Datagrams may get lost, and QUIC expects that.
            let _ = exit.socket.send_to(datagram, exit.address).await;
        }
    }
}

/// A proxy: receives datagrams for its node, and forwards them from a separate socket for each sender, so that answers find their way
/// back.
async fn serve(shared: Arc<Shared>, front: Front) {
    let Front { socket, node, address } = front;
    let socket = Arc::new(UdpSocket::from_std(socket).expect("a socket that does not block"));
    let mut ways: BTreeMap<SocketAddr, Way> = BTreeMap::new();
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    loop {
        let Ok((length, sender)) = socket.recv_from(&mut buffer).await else { continue };
        let from = shared.party(sender);
        let rebinds = (from == Party::Client).then(|| shared.paths().rebinds);
        if let Some(old) = ways.get(&sender).filter(|way| way.rebinds != rebinds) {
            old.answers.abort();
            ways.remove(&sender);
        }
        let exit = match ways.get(&sender) {
            Some(way) => way.exit.clone(),
            None => match open(&shared, &socket, node, address, sender).await {
                Ok((exit, answers)) => ways.entry(sender).or_insert(Way { exit, rebinds, answers }).exit.clone(),
                Err(error) => {
                    eprintln!("no socket for {sender}: {error}");
                    continue;
                }
            },
        };
        shared.carry(from, Party::Node(node), &buffer[..length], &exit).await;
    }
}

/// Opens a socket for datagrams from `sender` to the node at `address`, and starts a task that forwards the answers.
async fn open(
    shared: &Arc<Shared>,
    front: &Arc<UdpSocket>,
    node: usize,
    address: SocketAddr,
    sender: SocketAddr,
) -> io::Result<(Exit, AbortHandle)> {
    let socket = Arc::new(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?);
    let (shared, answering) = (Arc::clone(shared), Arc::clone(&socket));
    let back = Exit { socket: Arc::clone(front), address: sender };
    let answers = tokio::spawn(async move {
        let to = shared.party(sender);
        let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
        loop {
            let Ok((length, _)) = answering.recv_from(&mut buffer).await else { continue };
            shared.carry(Party::Node(node), to, &buffer[..length], &back).await;
        }
    });
    Ok((Exit { socket, address }, answers.abort_handle()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait::until;
    use std::net::UdpSocket as Socket;

    /// A loopback socket with a read timeout.
    fn socket() -> Socket {
        let socket = Socket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        socket
    }

    /// Two nodes, each behind a proxy, and the addresses of the proxies.
    fn pair() -> (Network, [Socket; 2], [SocketAddr; 2]) {
        let network = Network::start();
        let sockets = [socket(), socket()];
        let place = |node: usize| network.add(node, sockets[node].local_addr().unwrap(), 0);
        let places = [place(0), place(1)];
        (network, sockets, places)
    }

    fn receive(socket: &Socket) -> (u8, SocketAddr) {
        let mut buffer = [0; 10];
        let (length, from) = socket.recv_from(&mut buffer).unwrap();
        assert_eq!(length, 1);
        (buffer[0], from)
    }

    const FORTH: (Party, Party) = (Party::Node(0), Party::Node(1));

    fn forth(network: &Network) -> Counts {
        network.counts(|from, to| (from, to) == FORTH)
    }

    #[test]
    fn answers_find_back_and_each_direction_is_cut_by_itself() {
        let (network, [a, b], [_, b_place]) = pair();
        a.send_to(&[1], b_place).unwrap();
        let (byte, through) = receive(&b);
        assert_eq!(byte, 1);
        b.send_to(&[2], through).unwrap();
        assert_eq!(receive(&a), (2, b_place));
        network.connect(|from, _| from == 1);
        a.send_to(&[3], b_place).unwrap();
        until("it is dropped", || forth(&network).dropped == 1);
        b.send_to(&[4], through).unwrap();
        assert_eq!(receive(&a), (4, b_place));
        network.heal();
        a.send_to(&[5], b_place).unwrap();
        assert_eq!(receive(&b).0, 5);
        assert_eq!(forth(&network), Counts { passed: 2, dropped: 1, ..Counts::default() });
    }

    #[test]
    fn clients_are_told_from_nodes() {
        let (network, [_, b], [_, b_place]) = pair();
        network.connect(|_, _| false);
        let client = socket();
        client.send_to(&[1], b_place).unwrap();
        assert_eq!(receive(&b).0, 1);
        assert_eq!(network.counts(|from, _| from == Party::Client).passed, 1);
    }

    #[test]
    fn a_client_is_given_another_port_and_a_node_is_not() {
        let (network, [a, b], [_, b_place]) = pair();
        let client = socket();
        let through = |sender: &Socket, byte: u8| {
            sender.send_to(&[byte], b_place).unwrap();
            let (received, through) = receive(&b);
            assert_eq!(received, byte);
            through
        };
        let before = (through(&a, 1), through(&client, 2));
        network.rebind_clients();
        let after = (through(&a, 3), through(&client, 4));
        assert!(after.0 == before.0 && after.1 != before.1, "{before:?}, {after:?}");
        let _ = b.send_to(&[5], before.1);
        b.send_to(&[6], after.1).unwrap();
        assert_eq!(receive(&client), (6, b_place), "what is sent to the old port is lost");
    }

    #[test]
    fn datagrams_are_doubled_and_overtaken() {
        let (network, [a, b], [_, b_place]) = pair();
        network.set(FORTH.0, FORTH.1, Rule { duplicates: 1.0, ..Rule::PASS });
        a.send_to(&[1], b_place).unwrap();
        assert_eq!((receive(&b).0, receive(&b).0), (1, 1));
        let late = Duration::from_secs(3);
        network.set(FORTH.0, FORTH.1, Rule { reordered: 1.0, late, ..Rule::PASS });
        a.send_to(&[2], b_place).unwrap();
        until("it is held back", || forth(&network).delayed == 1);
        network.heal();
        a.send_to(&[3], b_place).unwrap();
        assert_eq!((receive(&b).0, receive(&b).0), (3, 2));
    }

    #[test]
    fn a_cut_loses_what_is_on_its_way() {
        let (network, [a, b], [_, b_place]) = pair();
        network.set(FORTH.0, FORTH.1, Rule { delay: Duration::from_secs(3), ..Rule::PASS });
        a.send_to(&[1], b_place).unwrap();
        until("it is on its way", || forth(&network).delayed == 1);
        network.connect(|_, _| false);
        until("it is lost", || forth(&network).dropped == 1);
        network.heal();
        a.send_to(&[2], b_place).unwrap();
        assert_eq!(receive(&b).0, 2);
    }
}
