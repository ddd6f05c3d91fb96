//! Duplicate-instance check: a second process of a running node, on a copy of its data directory, does not start.
//!
//! If an operator copies the directory of a member and starts a process on the copy, at another address, two processes are the same
//! node. The lock does not prevent it, as there are two directories. To peers the start of the copy is a later start of the node, so
//! the original process may be the one that retires (`engine/src/membership/stale_image.rs`). Therefore a node that has a cluster calls
//! **itself, at every address of the name by which the cluster knows it** according to its own log, and at the address of its own
//! settings, before it sends anything to other nodes:
//!
//! - Its own listener receives the hello, with the number drawn for this process: the node is at that address itself. This is the
//!   result of every usual start, and takes one handshake. Addresses are not compared: a node may listen on a wildcard, or be reached
//!   through a proxy or a translated address.
//! - The process there answers that it is this very node (`Identify`), and the hello was not received here: another process is the
//!   node, and this one ends with [`DuplicateInstance`]. The driver of this process does not run yet, so this process cannot have answered.
//! - No process is there, or another node: the node was moved, its address has passed on, or the address leads elsewhere from here.
//!   If an operator has stated where the node is reached (`advertise`) and the node meets itself there, the start goes on and the
//!   cluster's list is changed (`moved.rs`). A loopback address in place of another one is no such statement. If the node is merely
//!   bound elsewhere, and meets itself there, the start is refused until an operator has stated the reason (`moved.rs`, too). If a
//!   listed name cannot be resolved, or the node does not meet itself anywhere, the start goes on with a warning.
//!
//! Nodes of all releases accept this hello and this request, so a process of an older release is found as well.
//!
//! **Limits.** A process that is stopped, cut off, suspended, or still starting does not answer, nor does one behind an address that
//! leads elsewhere from here. An older image at the same address has no second process to find. All these cases are left to the
//! peers' memory. A copy of a suspended node may also take over its listed address, if the copy is started with an `advertise` of its
//! own: it cannot be told from the node after a move. Nodes with a higher identity then speak to whichever of the two processes has
//! connected last, and the other one hears nothing of them.

use crate::runtime::caller::{CallError, ask, connecting_peer};
use crate::runtime::certificates::NODE_SUFFIX;
use crate::runtime::peers::{PeerHello, Speaker};
use crate::runtime::transport::{CloseCode, PeerConfig};
use norn_client::dial::{Reach, Reason, addresses, version_of};
use norn_engine::Node;
use norn_wire::codec::{Kind, encode_named};
use norn_wire::{ClusterId, NodeId, Request, Response};
use quinn::{Connection, Endpoint};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Time limit for a connection: long enough for lost first packets, short enough for a node that was moved.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Time limit for the identity of the other process. It has the node's certificate, and may be busy.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Most addresses that are called. Each call has a number, by which the listener reports it.
const CALLS_MAX: usize = 16;

/// Another process is running as this node.
#[derive(Debug, thiserror::Error)]
#[error(
    "node {name:?} of cluster {cluster:?} runs already, at {address}, and the data directory {data} is a copy of its own; a \
     data directory has one process, as each of two would promise what the other does not know. Remove the copy; for another \
     node start one with an empty data directory, and use `norn cluster add` or `norn cluster replace`. To move the node, stop \
     the process at {address} first, and take its data directory as it is then",
    data = .data.display()
)]
pub struct DuplicateInstance {
    /// Name of the node.
    name: String,
    /// Name of its cluster.
    cluster: String,
    /// Address of the other process.
    address: String,
    /// Data directory of this process.
    data: PathBuf,
}

/// The address where a cluster reaches a node, according to the node's own log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Whereabouts {
    /// The cluster.
    pub cluster: ClusterId,
    /// Name of the cluster, for error texts.
    pub cluster_name: String,
    /// Name of the node.
    pub name: String,
    /// `HOST:PORT` in the member list.
    pub address: String,
}

impl Whereabouts {
    /// Reads them from the log's state; a node without a cluster has none.
    pub fn of(node: &Node, identity: NodeId) -> Option<Whereabouts> {
        let genesis = node.genesis()?;
        let member = node.roster().members.values().find(|member| member.node == identity)?;
        Some(Whereabouts {
            cluster: genesis.cluster,
            cluster_name: genesis.name.clone(),
            name: member.name.clone(),
            address: member.address.clone(),
        })
    }
}

/// Calls of a node to itself.
#[derive(Debug)]
pub struct OwnCalls {
    /// The endpoint where the node already listens.
    pub endpoint: Endpoint,
    /// Configuration as for links to peers.
    pub config: PeerConfig,
    /// This process.
    pub speaker: Speaker,
    /// The address to call.
    pub whereabouts: Whereabouts,
    /// The node's address by its own settings.
    pub advertised: String,
    /// Whether an operator has stated that address, and it is not merely the bound one.
    pub is_said: bool,
}

/// Result of a call to one address.
#[derive(Debug, PartialEq, Eq)]
enum Met {
    /// This process.
    Itself,
    /// Another process of this node.
    DuplicateInstance,
    /// No process of this node.
    Nobody(String),
}

/// Where a node has met itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// At the address where its cluster reaches it.
    Listed,
    /// Only at the address that an operator states.
    Said,
    /// Only at the bound address.
    Bound,
    /// The calls are inconclusive.
    Unclear,
}

impl OwnCalls {
    /// Refuses the start if another process is this node, and otherwise returns where the node has met itself. `met`: calls of this
    /// process that its own listener has received, one bit each.
    pub async fn refuse_duplicate(self, data: &Path, met: watch::Receiver<u64>) -> Result<Found, DuplicateInstance> {
        let (listed, own) = (self.whereabouts.address.clone(), self.advertised.clone());
        let (listed_at, own_at) = match own == listed {
            true => (resolve(&listed).await, None),
            false => tokio::join!(resolve(&listed), resolve(&own)),
        };
        let mut addresses: Vec<SocketAddr> = Vec::new();
        for address in listed_at.iter().chain(&own_at).flatten() {
            if !addresses.contains(address) && Reach::from(&self.endpoint, *address) != Reach::Never {
                addresses.push(*address);
            }
        }
        addresses.truncate(CALLS_MAX);
        let this = Arc::new(self);
        let mut calls = JoinSet::new();
        for (number, address) in addresses.into_iter().enumerate() {
            let (this, met) = (Arc::clone(&this), met.clone());
            calls.spawn(async move { (address, this.call(number, address, met).await) });
        }
        // Every call is awaited: one address of a name may lead to this process, and another to its double.
        let mut itself = Vec::new();
        let mut reasons = Vec::new();
        while let Some(Ok((address, found))) = calls.join_next().await {
            match found {
                Met::Itself => itself.push(address),
                Met::Nobody(reason) => reasons.push(format!("{address}: {reason}")),
                Met::DuplicateInstance => {
                    let Whereabouts { cluster_name: cluster, name, .. } = this.whereabouts.clone();
                    let is_listed = listed_at.iter().flatten().any(|listed| *listed == address);
                    let address = if is_listed { listed } else { own };
                    return Err(DuplicateInstance { name, cluster, address, data: data.to_owned() });
                }
            }
        }
        if listed_at.iter().flatten().any(|address| itself.contains(address)) {
            return Ok(Found::Listed);
        }
        let is_name = listed.parse::<SocketAddr>().is_err();
        let place = judge((listed_at.as_deref(), is_name), own_at.as_deref(), &itself, this.is_said);
        let (reason, message) = (reasons.join("; "), "the node does not reach itself where its cluster reaches it");
        if place == Found::Unclear && own != listed {
            let advice = "if other nodes do not reach it there either, start it with --advertise and the HOST:PORT where they do, or \
                          have the list changed by `norn cluster set address`";
            tracing::warn!(address = listed, own, reason, advice, "{message}");
        } else {
            tracing::info!(address = listed, reason, "{message}");
        }
        Ok(place)
    }

    async fn call(&self, number: usize, address: SocketAddr, met: watch::Receiver<u64>) -> Met {
        let name = format!("{}{NODE_SUFFIX}", self.whereabouts.name);
        let connecting = connecting_peer(&self.endpoint, &self.config, address, &name);
        match tokio::time::timeout(CONNECT_TIMEOUT, connecting).await {
            Ok(Ok(connection)) => {
                let met = self.question(number, &connection, met).await;
                connection.close(CloseCode::Stopping.into(), b"");
                met
            }
            Ok(Err(reason)) => Met::Nobody(reason.text),
            Err(_) => Met::Nobody(format!("no answer within {CONNECT_TIMEOUT:?}")),
        }
    }

    /// Identifies the process at the other end of a connection, which has this node's certificate.
    async fn question(&self, number: usize, connection: &Connection, mut met: watch::Receiver<u64>) -> Met {
        let question = async {
            self.say_hello(number, connection).await?;
            ask(connection, &Request::Identify, ANSWER_TIMEOUT).await
        };
        tokio::select! {
            biased;
            Ok(_) = met.wait_for(|calls| calls & (1 << number) != 0) => Met::Itself,
            answer = tokio::time::timeout(ANSWER_TIMEOUT, question) => match answer {
                Ok(Ok(Response::Identity(there))) if there.node == self.speaker.node => Met::DuplicateInstance,
                Ok(Ok(_)) => Met::Nobody("another node answers".to_owned()),
                Ok(Err(error)) => Met::Nobody(error.to_string()),
                Err(_) => Met::Nobody(format!("no answer within {ANSWER_TIMEOUT:?}")),
            },
        }
    }

    async fn say_hello(&self, number: usize, connection: &Connection) -> Result<(), CallError> {
        let failed = |error: &dyn std::fmt::Display| CallError::Connection(Reason::passing(error));
        let version = version_of(connection).ok_or_else(|| failed(&"the handshake settled no protocol version"))?;
        let mut bytes = Vec::new();
        let speaker = Speaker { process: self.speaker.process.wrapping_add(number as u64), ..self.speaker };
        let hello = speaker.hello(self.whereabouts.cluster, self.speaker.node, false);
        encode_named(&mut bytes, version, Kind::PeerHello, 0, &hello);
        let mut stream = connection.open_uni().await.map_err(|error| failed(&error))?;
        stream.write_all(&bytes).await.map_err(|error| failed(&error))?;
        stream.finish().map_err(|error| failed(&error))
    }
}

/// Whether an address leads nowhere by its name, whatever a resolver says (RFC 6761): such as that of a store in a process.
fn leads_nowhere(address: &str) -> bool {
    address.rsplit_once(':').is_some_and(|(host, _)| host.ends_with(".invalid"))
}

/// All addresses of the node's name. `None` if no resolver answers.
pub(super) async fn resolve(name: &str) -> Option<Vec<SocketAddr>> {
    if leads_nowhere(name) {
        return Some(Vec::new());
    }
    let found = tokio::time::timeout(CONNECT_TIMEOUT, addresses(name)).await;
    let found = found.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    found.inspect_err(|error| tracing::info!(name, %error, "the own address cannot be resolved")).ok()
}

/// Where a node has met itself that did not do so at the listed address, which may be a name. `is_said`: an operator has stated the
/// own address.
fn judge(
    (listed_at, is_name): (Option<&[SocketAddr]>, bool),
    own_at: Option<&[SocketAddr]>,
    itself: &[SocketAddr],
    is_said: bool,
) -> Found {
    let (Some(listed_at), Some(own_at)) = (listed_at, own_at) else { return Found::Unclear };
    let met: Vec<IpAddr> = own_at.iter().filter(|address| itself.contains(address)).map(SocketAddr::ip).collect();
    let is_local = listed_at.iter().all(|address| address.ip().is_loopback());
    let is_for_others = |ip: &IpAddr| !ip.is_unspecified() && (is_local || !ip.is_loopback());
    // The listed name may be the machine's own name for itself, while it leads to the machine's real address from elsewhere.
    let is_own_name = is_name && is_local && !met.iter().all(IpAddr::is_loopback);
    if met.is_empty() || (is_own_name && !is_said) {
        Found::Unclear
    } else if !is_said {
        Found::Bound
    } else if met.iter().any(is_for_others) {
        Found::Said
    } else {
        Found::Unclear
    }
}

/// The number of the call of this process to itself that a hello belongs to, if it is one.
pub fn own_call(speaker: &Speaker, hello: &PeerHello) -> Option<u64> {
    let number = hello.process.wrapping_sub(speaker.process);
    (hello.from == speaker.node && number < CALLS_MAX as u64).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::{Found, judge};
    use std::net::SocketAddr;

    const FAR: &str = "192.0.2.1:7400";
    const NEAR: &str = "127.0.0.1:7400";

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn place(listed_at: Option<&[&str]>, own_at: Option<&[&str]>, itself: &[&str], is_said: bool) -> Found {
        let (listed_at, own_at) = (listed_at.map(addresses), own_at.map(addresses));
        judge((listed_at.as_deref(), false), own_at.as_deref(), &addresses(itself), is_said)
    }

    #[test]
    fn a_node_has_moved_only_where_it_meets_itself_and_others_can_reach_it() {
        let moved = |listed_at: Option<&[&str]>, own_at: Option<&[&str]>, itself: &[&str]| {
            let place = place(listed_at, own_at, itself, true);
            assert!(matches!(place, Found::Said | Found::Unclear), "{place:?}");
            place == Found::Said
        };
        let other = "192.0.2.2:7400";
        assert!(moved(Some(&[FAR]), Some(&[other]), &[other]));
        assert!(!moved(Some(&[FAR]), Some(&[other]), &[]), "it is not there");
        assert!(!moved(None, Some(&[other]), &[other]), "no resolver says where the cluster reaches it");
        assert!(!moved(Some(&[FAR]), None, &[]), "the own address is the listed one, or is not known");
        assert!(!moved(Some(&[FAR]), Some(&[NEAR]), &[NEAR]), "others do not reach a loopback address");
        assert!(!moved(Some(&[FAR]), Some(&[NEAR, other]), &[NEAR]), "the own name leads elsewhere for others");
        let every = "0.0.0.0:7400";
        assert!(!moved(Some(&[NEAR]), Some(&[every]), &[every]), "a wildcard is for listening");
        assert!(moved(Some(&["127.0.0.1:7401"]), Some(&[NEAR]), &[NEAR]), "all is on one machine");
        assert!(moved(Some(&[NEAR]), Some(&[other]), &[other]));
    }

    /// Goal: the node of a store in a process, which is nowhere, moves to where an operator says that it is.
    #[tokio::test]
    async fn a_node_that_was_nowhere_moves_to_the_stated_address() {
        let listed_at = super::resolve("store.invalid:1").await.expect("no resolver is asked");
        assert!(listed_at.is_empty());
        for own in [NEAR, FAR] {
            let own = addresses(&[own]);
            assert_eq!(judge((Some(&listed_at), true), Some(&own), &own, true), Found::Said);
            assert_eq!(judge((Some(&listed_at), true), Some(&own), &[], true), Found::Unclear, "it is not there");
        }
    }

    /// The node may be a copy, or be reached at a translated address.
    #[test]
    fn an_address_that_is_merely_bound_is_no_word_of_an_operator() {
        let place = |listed_at: Option<&[&str]>, own_at: Option<&[&str]>, itself: &[&str]| {
            place(listed_at, own_at, itself, false)
        };
        for bound in ["192.0.2.2:7400", "10.0.0.1:7400", NEAR, "[fd00::1]:7400"] {
            assert_eq!(place(Some(&[FAR]), Some(&[bound]), &[bound]), Found::Bound, "{bound}");
            assert_eq!(place(Some(&[FAR]), Some(&[bound]), &[]), Found::Unclear, "calls do not arrive at all");
            assert_eq!(place(None, Some(&[bound]), &[bound]), Found::Unclear, "no resolver answers");
        }
        assert_eq!(place(Some(&[NEAR]), None, &[]), Found::Unclear, "it is bound where it is listed");
        let own_name = |listed_at: &str, bound: &str| {
            let bound = addresses(&[bound]);
            judge((Some(&addresses(&[listed_at])), true), Some(&bound), &bound, false)
        };
        assert_eq!(
            own_name("127.0.1.1:7400", "192.0.2.2:7400"),
            Found::Unclear,
            "others know the name by another address"
        );
        assert_eq!(own_name("127.0.1.1:7401", NEAR), Found::Bound, "all is on one machine");
        assert_eq!(own_name(FAR, "192.0.2.2:7400"), Found::Bound);
    }
}
