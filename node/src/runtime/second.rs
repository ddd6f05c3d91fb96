//! A second process of a node that runs already, on a copy of its data directory, does not start.
//!
//! Whoever copies the directory of a member and starts a process on the copy, at another address, makes two that are the same
//! node. The lock does not see it, as these are two directories. To peers the start of the copy is a later start of the node,
//! so that it may be the one that ran all the time which retires (`protocol/membership/copy.rs`). So a node that has a cluster
//! calls **itself, at the address that the cluster knows of it**, as its own log says, before it says a word to anybody else:
//!
//! - Its own listener hears the hello, with the number that was drawn for this process: it is there itself. So it is with
//!   every usual start, and it takes one handshake. Addresses are not compared: a node may listen on a wildcard, or be reached
//!   over a proxy or a translated address.
//! - Whoever is there says that it is this very node (`Identify`), and the hello was not heard here: another process is the
//!   node, and this one ends with [`Second`]. The own driver does not run yet, so it is not this process that has answered.
//! - Nobody is there, or somebody else: the node was moved, or its address has passed on. The start goes on.
//!
//! Hello and question are what any node takes, so one of an older release is found as well.
//!
//! **What this cannot do.** A process that is stopped, cut off, held still, or still starting itself does not answer, nor does one
//! behind an address that leads elsewhere from here. An older image at the same address is nobody's second. All these are for the peers'
//! memory.

use crate::protocol::Node;
use crate::runtime::caller::{CallError, ask};
use crate::runtime::certificates::NODE_SUFFIX;
use crate::runtime::peers::Speaker;
use crate::runtime::transport::{CloseCode, resolve};
use norn_client::wire::codec::{Kind, encode_named};
use norn_client::wire::{ClusterId, NodeId, Request, Response, Versions};
use quinn::{ClientConfig, Connection, Endpoint};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::watch;

/// How long it may take until somebody is there: long enough for first packets that are lost, short enough for a node that
/// was moved.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long whoever is there may take to say who it is. It has the node's certificate, and may be busy.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Another process is this node.
#[derive(Debug, thiserror::Error)]
#[error(
    "node {name:?} of cluster {cluster:?} runs already, at {address}, and the data directory {data} is a copy of its own; a \
     data directory has one process, as each of two would promise what the other does not know. Remove the copy; for another \
     node start one with an empty data directory, and use `norn cluster add` or `norn cluster replace`. To move the node, stop \
     the process at {address} first, and take its data directory as it is then",
    data = .data.display()
)]
pub struct Second {
    /// Name of the node.
    name: String,
    /// Name of its cluster.
    cluster: String,
    /// Where the other one runs.
    address: String,
    /// What this one was started on.
    data: PathBuf,
}

/// Where a cluster reaches a node, as the node's own log says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Whereabouts {
    cluster: ClusterId,
    cluster_name: String,
    /// Of the node.
    name: String,
    address: String,
}

impl Whereabouts {
    /// A node without a cluster has none.
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

/// The call of a node to itself.
#[derive(Debug)]
pub struct OwnCall {
    /// Where the node listens by now.
    pub endpoint: Endpoint,
    /// As for links to peers.
    pub config: ClientConfig,
    /// This process.
    pub speaker: Speaker,
    /// Who is called.
    pub whereabouts: Whereabouts,
}

impl OwnCall {
    /// Refuses the start on a directory if another process is this node. `meets_itself`: whether the own listener has heard
    /// this process.
    pub async fn refuse_second(self, data: &Path, meets_itself: watch::Receiver<bool>) -> Result<(), Second> {
        let address = &self.whereabouts.address;
        let connected = tokio::time::timeout(CONNECT_TIMEOUT, self.connect()).await;
        let reason = match connected.unwrap_or_else(|_| Err(CallError::Timeout(CONNECT_TIMEOUT))) {
            Ok(connection) => {
                let is_second = self.is_answered(&connection, meets_itself).await;
                connection.close(CloseCode::Stopping.into(), b"");
                if is_second {
                    let Whereabouts { cluster_name: cluster, name, address, .. } = self.whereabouts;
                    return Err(Second { name, cluster, address, data: data.to_owned() });
                }
                return Ok(());
            }
            Err(error) => error,
        };
        tracing::info!(%address, %reason, "the node does not reach itself where its cluster reaches it");
        Ok(())
    }

    /// Whether this very node answers from another process.
    async fn is_answered(&self, connection: &Connection, mut meets_itself: watch::Receiver<bool>) -> bool {
        let question = async {
            self.say_hello(connection).await?;
            ask(connection, &Request::Identify, ANSWER_TIMEOUT).await
        };
        tokio::select! {
            biased;
            Ok(_) = meets_itself.wait_for(|meets| *meets) => false,
            answer = tokio::time::timeout(ANSWER_TIMEOUT, question) => match answer {
                Ok(Ok(Response::Identity(there))) => there.node == self.speaker.node,
                _ => false,
            },
        }
    }

    async fn connect(&self) -> Result<Connection, CallError> {
        let failed = |error: &dyn std::fmt::Display| CallError::Connection(error.to_string());
        let address = resolve(&self.whereabouts.address).await?;
        let name = format!("{}{NODE_SUFFIX}", self.whereabouts.name);
        let connecting =
            self.endpoint.connect_with(self.config.clone(), address, &name).map_err(|error| failed(&error))?;
        connecting.await.map_err(|error| failed(&error))
    }

    async fn say_hello(&self, connection: &Connection) -> Result<(), CallError> {
        let failed = |error: &dyn std::fmt::Display| CallError::Connection(error.to_string());
        let version =
            Versions::of_connection(connection).ok_or_else(|| failed(&"the handshake settled no protocol version"))?;
        let mut bytes = Vec::new();
        let hello = self.speaker.hello(self.whereabouts.cluster, self.speaker.node, false);
        encode_named(&mut bytes, version, Kind::PeerHello, 0, &hello);
        let mut stream = connection.open_uni().await.map_err(|error| failed(&error))?;
        stream.write_all(&bytes).await.map_err(|error| failed(&error))?;
        stream.finish().map_err(|error| failed(&error))
    }
}
