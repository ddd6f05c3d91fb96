//! A node that has moved has its cluster know its new address.
//!
//! Peers reach a node where the member list says. A node that finds at its start that it is not there, but is where its own
//! settings say (`second.rs`), asks members to have the list changed, one after the other, over connections of its own: it reaches
//! them, though they do not reach it. Until then it is linked with those that were given its address (`hints.rs`).

use crate::runtime::caller::{CallError, ask, connecting};
use crate::runtime::certificates::NODE_SUFFIX;
use crate::runtime::driver::Belonging;
use crate::runtime::hints::Hints;
use norn_client::dial::{Reach, dial};
use norn_client::wire::membership::{ClusterChange, Member};
use norn_client::wire::{NodeId, Request, Response};
use quinn::{ClientConfig, Endpoint};
use std::time::Duration;
use tokio::sync::watch;

/// Between two rounds of asking.
const ROUND_INTERVAL: Duration = Duration::from_secs(1);
/// The same after a refusal, such as of an address that another member still has.
const REFUSED_INTERVAL: Duration = Duration::from_secs(15);
/// How long one member may take to answer: it asks the leader of the root, and waits for a majority.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// A node is no longer where its cluster reaches it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moved {
    /// What the cluster knows.
    pub from: String,
    /// Where it is, by its own settings.
    pub to: String,
}

/// The request of a node for another address in the member list.
#[derive(Debug)]
pub struct Relocation {
    /// From where to where.
    pub moved: Moved,
    /// Identity of the node.
    pub node: NodeId,
    /// The node's own.
    pub endpoint: Endpoint,
    /// As for links to peers.
    pub config: ClientConfig,
    /// How long an attempt to connect may take.
    pub connect_timeout: Duration,
    /// Where peers are, by an operator's word.
    pub hints: Hints,
    /// The cluster, once it is known.
    pub belonging: watch::Receiver<Option<Belonging>>,
}

impl Relocation {
    /// Asks until the list has the new address, or another one than the node began with: an operator's word goes before the node's.
    pub async fn run(mut self) {
        let Moved { from, to } = self.moved.clone();
        tracing::info!(%from, %to, "this node has moved: its cluster is to know it by its new address");
        let mut said = String::new();
        while let Some(members) = self.members().await {
            let (mut pause, mut failures) = (ROUND_INTERVAL, Vec::new());
            for member in members {
                match self.ask(&member).await {
                    Ok(()) => {
                        tracing::info!(address = %to, by = %member.name, "the cluster knows this node by its new address");
                        return;
                    }
                    // It is the leader of the root that refuses, whichever member is asked.
                    Err(CallError::Refused(error)) if !error.passes() => {
                        (pause, failures) = (REFUSED_INTERVAL, vec![error.to_string()]);
                        break;
                    }
                    Err(error) => failures.push(format!("{}: {error}", member.name)),
                }
            }
            let failure = failures.join("; ");
            if failure != said {
                let advice = "it is tried again; `norn cluster set address` does the same";
                tracing::warn!(%to, failure, advice, "the cluster does not know this node by its new address yet");
                said = failure;
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Members to ask, the node itself as the last. Absent: nothing is to be asked for any more.
    async fn members(&mut self) -> Option<Vec<Member>> {
        let belonging = self.belonging.wait_for(Option::is_some).await.ok()?.clone()?;
        let (own, mut members): (Vec<Member>, Vec<Member>) = belonging
            .roster
            .members
            .values()
            .filter(|member| member.state.is_present())
            .cloned()
            .partition(|member| member.node == self.node);
        let mut own = own.into_iter().next().filter(|own| own.address == self.moved.from)?;
        // A cluster of one has no other, and the list is wrong about this one.
        own.address.clone_from(&self.moved.to);
        members.push(own);
        Some(members)
    }

    async fn ask(&self, member: &Member) -> Result<(), CallError> {
        let name = format!("{}{NODE_SUFFIX}", member.name);
        let attempt = |address| connecting(&self.endpoint, &self.config, address, &name);
        let reach = |address| Reach::from(&self.endpoint, address);
        let (_, connection) = dial(&self.hints.addresses(member), Some(self.connect_timeout), reach, attempt).await?;
        let change = Box::new(ClusterChange::Address { node: self.node, address: self.moved.to.clone() });
        let request = Request::Change { change, dry_run: false };
        let asked = tokio::time::timeout(ANSWER_TIMEOUT, ask(&connection, &request, ANSWER_TIMEOUT)).await;
        match asked.map_err(|_| CallError::Timeout(ANSWER_TIMEOUT))?? {
            Response::Changed(_) => Ok(()),
            Response::Error(error) => Err(error.into()),
            other => Err(CallError::Nonsense(format!("{other:?}"))),
        }
    }
}
