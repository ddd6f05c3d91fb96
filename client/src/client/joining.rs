//! A running node that waits for a cluster becomes a member of one.
//!
//! The node is asked at its own address who it is, the metadata group makes it a member, and then it is handed the membership. Each step
//! can be repeated, so the whole can be.

use super::calling::strange;
use crate::text::clean;
use norn_wire::address::parse_address;
use norn_wire::error::Error;
use norn_wire::ids::ClusterId;
use norn_wire::membership::Changed;
use norn_wire::request::Request;
use norn_wire::response::{Identity, Response};
use std::future::Future;
use std::time::{Duration, Instant};

/// Longest wait for a node that is just starting.
const PATIENCE: Duration = Duration::from_secs(15);
/// Pause between two requests to the node.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Makes single calls to nodes at their addresses, in the cluster or not.
pub trait Asker {
    /// Makes one call. A refusal by the node is an error, or an answer of that kind.
    fn ask(&self, address: &str, request: Request) -> impl Future<Output = Result<Response, Error>> + Send;
}

async fn ask(asker: &impl Asker, address: &str, request: Request) -> Result<Response, Error> {
    match asker.ask(address, request).await? {
        Response::Error(error) => Err(error),
        response => Ok(response),
    }
}

/// Asks the node at an address who it is.
pub async fn identify(asker: &impl Asker, address: &str) -> Result<Identity, Error> {
    match ask(asker, address, Request::Identify).await? {
        Response::Identity(identity) => Ok(*identity),
        _ => Err(Error::invalid("what answers there does not say who it is; is it a node of this version?")),
    }
}

/// Names the address in an error.
fn at(address: &str, error: Error) -> Error {
    Error { message: format!("{}: {}", clean(address), error.message), ..error }
}

/// Node to be made a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Newcomer {
    /// Address where it is asked.
    pub address: String,
    /// What it said of itself at first.
    pub identity: Identity,
    cluster: ClusterId,
    patience: Duration,
}

impl Newcomer {
    /// Asks the node at an address who it is; for a while, as it may be just starting, but not longer than `patience`. Refuses a node of
    /// another cluster than this one.
    pub async fn meet(
        asker: &impl Asker,
        cluster: ClusterId,
        address: String,
        patience: Duration,
    ) -> Result<Newcomer, Error> {
        if parse_address(&address).is_none() {
            let message = "an address is HOST:PORT, an IPv6 one [HOST]:PORT, for example 127.0.0.1:7400 or [::1]:7400";
            return Err(Error::invalid(message));
        }
        let patience = PATIENCE.min(patience);
        let deadline = Instant::now() + patience;
        let identity = loop {
            match identify(asker, &address).await {
                Ok(identity) => break identity,
                Err(error) if error.passes() && Instant::now() < deadline => {
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
                Err(error) => return Err(at(&address, error)),
            }
        };
        let newcomer = Newcomer { address, identity, cluster, patience };
        newcomer.check_cluster(&newcomer.identity)?;
        Ok(newcomer)
    }

    fn check_cluster(&self, identity: &Identity) -> Result<(), Error> {
        match &identity.genesis {
            Some(genesis) if genesis.cluster != self.cluster => {
                let (address, name, theirs) = (clean(&self.address), clean(&genesis.name), genesis.cluster);
                Err(Error::invalid(format!(
                    "{address} belongs to another cluster, {name} ({theirs}): start it with an empty data directory to make \
                     it join this one"
                )))
            }
            _ => Ok(()),
        }
    }

    /// Hands the membership to the node. The node may have it already, from an earlier try whose answer was lost.
    pub async fn hand_over(&self, asker: &impl Asker, changed: &Changed) -> Result<(), Error> {
        let Some(membership) = &changed.membership else {
            return match self.identity.genesis {
                Some(_) => Ok(()),
                None => Err(strange("change")),
            };
        };
        let deadline = Instant::now() + self.patience;
        loop {
            let refused = match ask(asker, &self.address, Request::Join(membership.clone())).await {
                Ok(_) => return Ok(()),
                Err(error) => error,
            };
            if let Ok(identity) = identify(asker, &self.address).await {
                self.check_same(&identity)?;
                self.check_cluster(&identity)?;
                if identity.genesis.is_some() {
                    return Ok(());
                }
            }
            if !refused.passes() || Instant::now() >= deadline {
                return Err(at(&self.address, refused));
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    /// Refuses another node than the one that was met.
    pub fn check_same(&self, identity: &Identity) -> Result<(), Error> {
        if identity.node == self.identity.node {
            return Ok(());
        }
        let (address, was, is) = (clean(&self.address), self.identity.node, identity.node);
        Err(Error::invalid(format!("another node answers at {address} now, {is}; {was} was made a member")))
    }
}
