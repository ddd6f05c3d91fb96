//! Dialing a node: the addresses of its name, one after the other, each with a head start before the next (as in "happy eyeballs").
//!
//! A name may have addresses at which the node does not listen, or which the own socket cannot reach: an IPv6 address before the IPv4
//! one is the usual case. So every address is a candidate, and one that fails never ends the attempt. An address is a hint: the
//! handshake shows which node is there.

mod reason;

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

pub use reason::{CLOSE_IDENTITY, CLOSE_VERSION, Reason, Shown};

/// Time for which an address is tried alone, unless it fails earlier.
const HEAD_START: Duration = Duration::from_millis(200);
/// Time left for the other addresses once one has refused for good, if the attempt has no timeout of its own.
const GRACE: Duration = Duration::from_secs(1);
/// Addresses that one attempt tries; a name's further ones are skipped. Each name has its share.
const CANDIDATES_MAX: usize = 16;

/// Reachability of an address from a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// The address is tried in its turn.
    Well,
    /// The address is tried after all others.
    Hardly,
    /// The address is not tried.
    Never,
}

impl Reach {
    /// Reachability of a remote address from a socket bound to a local one.
    pub fn of(local: IpAddr, remote: IpAddr) -> Reach {
        match (local, remote) {
            (IpAddr::V4(_), IpAddr::V4(_)) | (IpAddr::V6(_), IpAddr::V6(_)) => Reach::Well,
            // The wildcard covers both families, unless the system separates them.
            (IpAddr::V6(local), IpAddr::V4(_)) if local.is_unspecified() => Reach::Well,
            (IpAddr::V6(local), IpAddr::V4(_)) if local.to_ipv4_mapped().is_some() => Reach::Well,
            (IpAddr::V6(_), IpAddr::V4(_)) | (IpAddr::V4(_), IpAddr::V6(_)) => Reach::Never,
        }
    }

    /// Reachability from an endpoint. Without a known local address every address is tried.
    pub fn from(endpoint: &quinn::Endpoint, remote: SocketAddr) -> Reach {
        endpoint.local_addr().map_or(Reach::Well, |local| Reach::of(local.ip(), remote.ip()))
    }
}

/// The protocol version of an established connection.
#[must_use]
pub fn version_of(connection: &quinn::Connection) -> Option<u8> {
    let handshake = connection.handshake_data()?.downcast::<quinn::crypto::rustls::HandshakeData>().ok()?;
    norn_wire::Versions::of_protocol(handshake.protocol.as_deref()?)
}

/// Failure to reach a node at any of its addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreached {
    /// Each address or name with the reason, in the order of preference. Absent: no answer in time.
    failures: Vec<(String, Option<Reason>)>,
}

impl Unreached {
    /// Whether all failures are timeouts.
    pub fn is_silence(&self) -> bool {
        self.failures.iter().all(|(_, reason)| reason.is_none())
    }

    /// Whether all addresses have failed, each for a lasting reason.
    pub fn is_lasting(&self) -> bool {
        self.failures.iter().all(|(_, reason)| reason.as_ref().is_some_and(|reason| reason.lasting))
    }

    /// Whether some address has failed for a lasting reason, and no node was heard at any other one. For a single name this means that
    /// the node refuses: one of its addresses is often of a family at which it does not listen.
    pub fn is_refused(&self) -> bool {
        let reasons = || self.failures.iter().filter_map(|(_, reason)| reason.as_ref());
        reasons().any(|reason| reason.lasting) && reasons().all(|reason| reason.lasting || !reason.answered)
    }

    /// Whether a node was heard at some address.
    pub fn is_answered(&self) -> bool {
        self.failures.iter().any(|(_, reason)| reason.as_ref().is_some_and(|reason| reason.answered))
    }
}

impl From<Unreached> for Reason {
    fn from(unreached: Unreached) -> Reason {
        Reason { lasting: unreached.is_lasting(), answered: unreached.is_answered(), text: unreached.to_string() }
    }
}

impl fmt::Display for Unreached {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |reason: &Option<Reason>| match reason {
            Some(reason) => reason.text.clone(),
            None => "no answer in time".to_owned(),
        };
        if let [(_, reason)] = self.failures.as_slice() {
            return formatter.write_str(&text(reason));
        }
        let failures: Vec<String> =
            self.failures.iter().map(|(place, reason)| format!("{place}: {}", text(reason))).collect();
        formatter.write_str(&failures.join("; "))
    }
}

impl std::error::Error for Unreached {}

/// All addresses of a `HOST:PORT`, each once; an IPv4 address is never written as an IPv6 one.
pub async fn addresses(name: &str) -> io::Result<Vec<SocketAddr>> {
    lookup(name.to_owned()).await.map(distinct)
}

pub(crate) async fn lookup(name: String) -> io::Result<Vec<SocketAddr>> {
    let (host, port) = name.rsplit_once(':').unwrap_or_default();
    let port: u16 =
        port.parse().map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, format!("{name:?} is not HOST:PORT")))?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let found: Vec<SocketAddr> = tokio::net::lookup_host((host, port)).await?.collect();
    match found.is_empty() {
        true => Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address")),
        false => Ok(found),
    }
}

fn distinct(found: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let mut distinct = Vec::new();
    for mut address in found {
        if address.ip() != address.ip().to_canonical() {
            address.set_ip(address.ip().to_canonical());
        }
        if !distinct.contains(&address) {
            distinct.push(address);
        }
    }
    distinct
}

/// Dials the addresses of some `HOST:PORT` of one node, those of earlier names first. Returns the result of the first attempt that
/// succeeds, with its address. `within` bounds the whole; without it, the other addresses get little time once one refuses for good.
pub async fn dial<T, F>(
    names: &[String],
    within: Option<Duration>,
    reach: impl Fn(SocketAddr) -> Reach,
    attempt: impl Fn(SocketAddr) -> F,
) -> Result<(SocketAddr, T), Unreached>
where
    T: Send + 'static,
    F: Future<Output = Result<T, Reason>> + Send + 'static,
{
    dial_with(lookup, names, within, reach, attempt).await
}

/// As [`dial`], with another resolver.
pub(crate) async fn dial_with<T, L, F>(
    lookup: impl Fn(String) -> L,
    names: &[String],
    within: Option<Duration>,
    reach: impl Fn(SocketAddr) -> Reach,
    attempt: impl Fn(SocketAddr) -> F,
) -> Result<(SocketAddr, T), Unreached>
where
    T: Send + 'static,
    L: Future<Output = io::Result<Vec<SocketAddr>>> + Send + 'static,
    F: Future<Output = Result<T, Reason>> + Send + 'static,
{
    let mut candidates = Candidates::new(names, within);
    let mut running = JoinSet::new();
    // A resolver that does not answer for one name delays no other.
    for (place, name) in names.iter().enumerate() {
        let found = lookup(name.clone());
        running.spawn(async move { Report::Found(place, found.await) });
    }
    loop {
        while let Some((rank, address)) = candidates.next(Instant::now()) {
            let made = attempt(address);
            running.spawn(async move { Report::Tried(rank, address, made.await) });
        }
        tokio::select! {
            joined = running.join_next() => match joined {
                Some(Ok(Report::Tried(_, address, Ok(made)))) => return Ok((address, made)),
                Some(Ok(Report::Tried(rank, _, Err(reason)))) => candidates.failed(rank, reason),
                Some(Ok(Report::Found(place, found))) => candidates.found(place, found, &reach),
                // It has panicked: which one it was is unknown, and the others go on.
                Some(Err(error)) => tracing::error!(%error, "an attempt to reach a node ended badly"),
                None => return Err(candidates.unreached()),
            },
            () = sleep_until(candidates.turn_at()) => {}
            () = sleep_until(candidates.end) => return Err(candidates.unreached()),
        }
    }
}

async fn sleep_until(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

enum Report<T> {
    /// The addresses of a name.
    Found(usize, io::Result<Vec<SocketAddr>>),
    /// Result of an attempt.
    Tried(Rank, SocketAddr, Result<T, Reason>),
}

/// Order of preference: reachability, position of the name, position among the addresses of the name.
type Rank = (Reach, usize, usize);

#[derive(Debug)]
enum State {
    Waiting,
    Trying,
    Failed(Reason),
}

/// The addresses of one attempt.
struct Candidates {
    end: Option<Instant>,
    names: Vec<String>,
    /// Names without an answer of the resolver yet.
    unresolved: Vec<bool>,
    known: BTreeMap<Rank, (SocketAddr, State)>,
    /// Addresses that the socket cannot reach, and names without an address.
    failures: BTreeMap<Rank, (String, Option<Reason>)>,
    /// When the next address has its turn, whatever becomes of those before it.
    next_at: Option<Instant>,
}

impl Candidates {
    fn new(names: &[String], within: Option<Duration>) -> Candidates {
        Candidates {
            end: within.map(|within| Instant::now() + within),
            names: names.to_vec(),
            unresolved: names.iter().map(|_| true).collect(),
            known: BTreeMap::new(),
            failures: BTreeMap::new(),
            next_at: Some(Instant::now() + within.map_or(HEAD_START, |within| HEAD_START.min(within / 4))),
        }
    }

    fn waiting(&self) -> usize {
        self.known.values().filter(|(_, state)| matches!(state, State::Waiting)).count()
    }

    /// When the next address is tried if nothing else happens.
    fn turn_at(&self) -> Option<Instant> {
        self.next_at.filter(|_| self.waiting() > 0)
    }

    fn found(&mut self, place: usize, found: io::Result<Vec<SocketAddr>>, reach: impl Fn(SocketAddr) -> Reach) {
        self.unresolved[place] = false;
        let found = match found {
            Ok(found) => distinct(found),
            Err(error) => {
                self.failures
                    .insert((Reach::Well, place, 0), (self.names[place].clone(), Some(Reason::passing(error))));
                return;
            }
        };
        // A name with many addresses leaves room for names that are not resolved yet.
        let missing = self.unresolved.iter().filter(|unresolved| **unresolved).count();
        let room = CANDIDATES_MAX - missing * (CANDIDATES_MAX / self.names.len());
        for (index, address) in found.into_iter().enumerate() {
            let rank = (reach(address), place, index);
            if rank.0 == Reach::Never {
                let (own, other) = if address.is_ipv6() { ("IPv6", "IPv4") } else { ("IPv4", "IPv6") };
                let reason = Reason::passing(format!("{address} is of {own}, and the socket is of {other} alone"));
                self.failures.insert(rank, (self.names[place].clone(), Some(reason)));
            } else if self.known.len() < room && self.known.values().all(|(known, _)| *known != address) {
                self.known.insert(rank, (address, State::Waiting));
            }
        }
    }

    /// The next address to try, if it is its turn.
    fn next(&mut self, now: Instant) -> Option<(Rank, SocketAddr)> {
        let waiting = self.waiting();
        let is_busy = self.known.values().any(|(_, state)| matches!(state, State::Trying));
        let (rank, (address, state)) = self.known.iter_mut().find(|(_, (_, state))| matches!(state, State::Waiting))?;
        // An earlier name may still get an address.
        let may_come = self.unresolved[..rank.1].contains(&true);
        if (is_busy || may_come) && self.next_at.is_some_and(|at| now < at) {
            return None;
        }
        *state = State::Trying;
        // The remaining time is shared, so that the last address has time as well.
        let share = self.end.map(|end| end.saturating_duration_since(now) / (2 * waiting as u32));
        self.next_at = (waiting > 1 || self.unresolved.contains(&true))
            .then(|| now + share.map_or(HEAD_START, |share| share.min(HEAD_START)));
        Some((*rank, *address))
    }

    fn failed(&mut self, rank: Rank, reason: Reason) {
        if reason.lasting {
            self.end.get_or_insert_with(|| Instant::now() + GRACE);
        }
        if let Some((_, state)) = self.known.get_mut(&rank) {
            *state = State::Failed(reason);
        }
    }

    fn unreached(self) -> Unreached {
        let mut failures = self.failures;
        if !self.known.is_empty() {
            failures.retain(|(reach, ..), _| *reach != Reach::Never);
        }
        for (rank, (address, state)) in self.known {
            let reason = match state {
                State::Failed(reason) => Some(reason),
                State::Waiting | State::Trying => None,
            };
            failures.insert(rank, (address.to_string(), reason));
        }
        for (place, name) in self.names.into_iter().enumerate().filter(|(place, _)| self.unresolved[*place]) {
            failures.insert((Reach::Well, place, 0), (name, None));
        }
        Unreached { failures: failures.into_values().collect() }
    }
}

#[cfg(test)]
mod tests;
