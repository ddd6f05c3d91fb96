//! Address change: a node that has moved publishes its new address to its cluster, once an operator has stated it.
//!
//! Peers reach a node at its address in the member list. A node that finds at its start that it is not there, but is at the address
//! that an operator states (`duplicate_instance.rs`), asks members to have the list changed, one after the other, over connections of its
//! own: it reaches them, though they do not reach it. Until then it is linked with those peers that were given its address (`hints.rs`).
//!
//! The node's own log may be older than the list, and an operator may have set another address while the node was down. So a member
//! is first asked for the list that a majority of the metadata group confirms, and nothing is changed unless the node is listed there
//! as before.
//!
//! **A member that is bound elsewhere, and has no `advertise`**, has moved, or is reached at a translated address that does not lead
//! back from inside, or runs on a copy of the data directory of a member that is down. These cases cannot be told apart. In the
//! first, peers do not reach the node; in the second, a new address would cut it off. In the third, peers would take the copy for the
//! latest start of the member, so that the original retires when it comes back (`engine/src/membership/stale_image.rs`). So the start is
//! refused before the node sends anything to a peer ([`Unsaid`]), unless the current member list has the bound address, which means
//! that an operator has set it. A cluster of one has no peers, and its node starts.

use crate::runtime::caller::{CallError, ask, connecting_peer};
use crate::runtime::certificates::NODE_SUFFIX;
use crate::runtime::duplicate_instance::resolve;
use crate::runtime::hints::Hints;
use norn_host::driver::{Belonging, NO_MEMBER};

use crate::runtime::transport::PeerConfig;
use norn_client::dial::{Reach, dial};
use norn_wire::membership::{ClusterChange, Member, Roster};
use norn_wire::{ClusterId, NodeId, Request, Response};
use quinn::{Connection, Endpoint};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Pause between two rounds of requests.
const ROUND_INTERVAL: Duration = Duration::from_secs(1);
/// Pause after a refusal, for example of an address that another member still has.
const REFUSED_INTERVAL: Duration = Duration::from_secs(15);
/// Time limit for one member's answer: it asks the leader of the metadata group, and waits for a majority.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit of a start for finding a member that knows the list: the metadata group may be about to elect a leader.
const LIST_TIMEOUT: Duration = Duration::from_secs(10);
/// Members that a start asks for the list at a time.
const ASKED_MAX: usize = 16;

/// Change of the address where the cluster reaches a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moved {
    /// The address in the member list.
    pub from: String,
    /// The address by the node's own settings.
    pub to: String,
}

/// A node's request to change its address in the member list.
#[derive(Debug)]
pub struct Relocation {
    /// The old and the new address.
    pub moved: Moved,
    /// Identity of the node.
    pub node: NodeId,
    /// The node's endpoint.
    pub endpoint: Endpoint,
    /// Configuration as for links to peers, with the current certificate.
    pub config: watch::Receiver<PeerConfig>,
    /// Time limit for an attempt to connect.
    pub connect_timeout: Duration,
    /// Addresses of peers that an operator gave.
    pub hints: Hints,
    /// The cluster, once it is known.
    pub belonging: watch::Receiver<Option<Belonging>>,
}

/// Outcome of the request.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// The list has the new address.
    Known,
    /// The list has an address other than the old and the new one.
    Superseded,
    /// The list has no such member.
    Left,
}

impl Moved {
    /// The outcome, if a member list shows that nothing needs to be changed any more.
    fn outcome(&self, roster: &Roster, node: NodeId) -> Option<Outcome> {
        match address_of(roster, node) {
            Some(listed) if *listed == self.from => None,
            Some(listed) if *listed == self.to => Some(Outcome::Known),
            Some(_) => Some(Outcome::Superseded),
            None => Some(Outcome::Left),
        }
    }
}

impl Relocation {
    /// Repeats the request until the list has the new address, or one other than the old: an operator's change takes precedence over
    /// the node's.
    pub async fn run(mut self) {
        let to = self.moved.to.clone();
        let (mut said, mut is_told) = (String::new(), false);
        while let Some((cluster, roster)) = self.seen().await {
            if let Some(outcome) = self.moved.outcome(&roster, self.node) {
                // The driver has already logged that the node is not in this list.
                if outcome != Outcome::Left {
                    self.report(&outcome);
                }
                return;
            }
            let (mut pause, mut failures) = (ROUND_INTERVAL, Vec::new());
            for member in self.members(&roster) {
                match self.ask(cluster, &member, &mut is_told).await {
                    Ok(outcome) => return self.report(&outcome),
                    // The next member is asked all the same: this address may lead to a node of the same name in another cluster.
                    Err(error) => {
                        if matches!(&error, CallError::Refused(error) if !error.passes()) {
                            pause = REFUSED_INTERVAL;
                        }
                        failures.push(format!("{}: {error}", member.name));
                    }
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

    fn report(&self, outcome: &Outcome) {
        let Moved { from, to } = &self.moved;
        match outcome {
            Outcome::Known => tracing::info!(address = %to, "the cluster knows this node by its new address"),
            Outcome::Superseded => {
                tracing::info!(%from, %to, "the member list has another address of this node by now, which stays");
            }
            Outcome::Left => tracing::error!(advice = NO_MEMBER, "this node is no member any more"),
        }
    }

    /// The cluster and its members, as far as this node knows. `None`: the node stops.
    async fn seen(&mut self) -> Option<(ClusterId, Arc<Roster>)> {
        let belonging = self.belonging.wait_for(Option::is_some).await.ok()?.clone()?;
        Some((belonging.cluster, belonging.roster))
    }

    /// Members to ask, the node itself last.
    fn members(&self, roster: &Roster) -> Vec<Member> {
        let present = roster.members.values().filter(|member| member.state.is_present()).cloned();
        let (mut own, mut members): (Vec<Member>, Vec<Member>) = present.partition(|member| member.node == self.node);
        // A cluster of one has no other member, and the list has the old address of this one.
        own.iter_mut().for_each(|own| own.address.clone_from(&self.moved.to));
        members.append(&mut own);
        members
    }

    async fn ask(&self, cluster: ClusterId, member: &Member, is_told: &mut bool) -> Result<Outcome, CallError> {
        // Each attempt uses the current certificate.
        let config = self.config.borrow().clone();
        let (endpoint, hints) = (self.endpoint.clone(), self.hints.clone());
        let way = Way { endpoint, config, connect_timeout: self.connect_timeout, hints };
        let (connection, roster) = way.list(cluster, member).await?;
        if let Some(outcome) = self.moved.outcome(&roster, self.node) {
            return Ok(outcome);
        }
        // Not before a member confirms the membership: the node may have been removed while it was down.
        if !std::mem::replace(is_told, true) {
            let Moved { from, to } = &self.moved;
            tracing::info!(%from, %to, "this node has moved: its cluster is to know it by its new address");
        }
        let change = Box::new(ClusterChange::Address { node: self.node, address: self.moved.to.clone() });
        match answer(&connection, &Request::Change { change, dry_run: false }).await? {
            Response::Changed(_) => Ok(Outcome::Known),
            other => Err(CallError::Nonsense(format!("{other:?}"))),
        }
    }
}

/// Asks members over the node's own connections.
#[derive(Debug, Clone)]
pub struct Way {
    /// The node's endpoint.
    pub endpoint: Endpoint,
    /// Configuration as for links to peers.
    pub config: PeerConfig,
    /// Time limit for an attempt to connect.
    pub connect_timeout: Duration,
    /// Addresses of peers that an operator gave.
    pub hints: Hints,
}

impl Way {
    /// The member list that a majority of the metadata group confirms, and the connection to the member that returned it.
    async fn list(&self, cluster: ClusterId, member: &Member) -> Result<(Connection, Roster), CallError> {
        let name = format!("{}{NODE_SUFFIX}", member.name);
        let attempt = |address| connecting_peer(&self.endpoint, &self.config, address, &name);
        let reach = |address| Reach::from(&self.endpoint, address);
        let (_, connection) = dial(&self.hints.addresses(member), Some(self.connect_timeout), reach, attempt).await?;
        match answer(&connection, &Request::Cluster).await? {
            Response::Cluster(view) if view.cluster == cluster => Ok((connection, view.roster)),
            Response::Cluster(view) => {
                Err(CallError::Nonsense(format!("it belongs to another cluster, {:?}", view.name)))
            }
            other => Err(CallError::Nonsense(format!("{other:?}"))),
        }
    }
}

/// A member that is bound at an address other than the one in its own log. No operator has stated that others reach it there.
#[derive(Debug)]
pub struct Unsaid {
    /// From the listed address to the bound one.
    pub moved: Moved,
    /// Identity of the node.
    pub node: NodeId,
    /// Its name.
    pub name: String,
    /// The cluster.
    pub cluster: ClusterId,
    /// Name of the cluster, for error texts.
    pub cluster_name: String,
    /// The member list in the node's own log.
    pub roster: Roster,
    /// The data directory.
    pub data: PathBuf,
}

/// The refusal of such a start.
#[derive(Debug, thiserror::Error)]
#[error(
    "node {name:?} of cluster {cluster:?} is bound at {bound}, while its peers look for it at {listed}{unknown}. If it has moved, \
     start it with {there}, and the member list follows. If others reach it at \
     {listed}, as at a translated address, start it with --advertise {listed}. If the data directory {data} is a copy, never start \
     it while the node may come back: its peers would go on with the copy, and the node would stop for ever",
    data = .data.display()
)]
pub struct Elsewhere {
    name: String,
    cluster: String,
    bound: String,
    /// The flags for an operator who states where others reach the node.
    there: String,
    listed: String,
    /// Why the list may be older than an operator's last change; empty if it is current.
    unknown: String,
    data: PathBuf,
}

impl Unsaid {
    /// Refuses the start, unless the current member list has the bound address, or there are no peers.
    pub async fn confirm(self, way: Way) -> Result<(), Box<Elsewhere>> {
        let others =
            self.roster.members.values().filter(|member| member.state.is_present() && member.node != self.node);
        let others: Vec<Member> = others.cloned().collect();
        let Moved { from, to } = &self.moved;
        if others.is_empty() {
            let advice = "start the node with --advertise and the HOST:PORT where clients reach it";
            tracing::warn!(listed = %from, bound = %to, advice, "the node is not where its member list has it");
            return Ok(());
        }
        tracing::info!(listed = %from, bound = %to, "asking the members where the member list has this node now");
        let (listed, unknown) = match list_of(Arc::new(way), self.cluster, others).await {
            Ok(roster) => match address_of(&roster, self.node) {
                Some(listed) if leads_to(listed, to).await => {
                    tracing::info!(address = listed, "an operator has set the address bound in the member list");
                    return Ok(());
                }
                Some(listed) => (listed.to_owned(), String::new()),
                // Its peers will report that it is no longer a member, and the remedy.
                None => return Ok(()),
            },
            Err(failure) => (from.clone(), format!(" (no member says whether an operator has set another: {failure})")),
        };
        let Unsaid { moved: Moved { to: bound, .. }, name, cluster_name: cluster, data, .. } = self;
        let there = match is_loopback(&bound) && !is_loopback(&listed) {
            true => "--listen and --advertise where others reach it".to_owned(),
            false => format!("--advertise {bound}, or where else others reach it"),
        };
        Err(Box::new(Elsewhere { name, cluster, bound, there, listed, unknown, data }))
    }
}

/// The current member list, from the first member that knows it; the last failures, if none does.
async fn list_of(way: Arc<Way>, cluster: ClusterId, others: Vec<Member>) -> Result<Roster, String> {
    let deadline = Instant::now() + LIST_TIMEOUT;
    // The last failure of each member.
    let mut failures = BTreeMap::new();
    for round in others.chunks(ASKED_MAX).cycle() {
        let mut asked = JoinSet::new();
        for member in round.iter().cloned() {
            let way = Arc::clone(&way);
            asked.spawn(async move { (way.list(cluster, &member).await.map(|(_, roster)| roster), member.name) });
        }
        while let Ok(Some(answer)) = tokio::time::timeout_at(deadline, asked.join_next()).await {
            match answer {
                Ok((Ok(roster), _)) => return Ok(roster),
                Ok((Err(error), name)) => drop(failures.insert(name, error.to_string())),
                Err(error) => tracing::error!(%error, "a question to a member has failed"),
            }
        }
        if Instant::now() + ROUND_INTERVAL >= deadline {
            break;
        }
        tokio::time::sleep(ROUND_INTERVAL).await;
    }
    if failures.is_empty() {
        return Err(format!("no answer within {LIST_TIMEOUT:?}"));
    }
    let failures: Vec<String> = failures.into_iter().map(|(name, failure)| format!("{name}: {failure}")).collect();
    Err(failures.join("; "))
}

/// Whether a listed address, which may be a name, is the bound one.
async fn leads_to(listed: &str, bound: &str) -> bool {
    let Ok(bound) = bound.parse::<SocketAddr>() else { return listed == bound };
    listed == bound.to_string() || resolve(listed).await.is_some_and(|addresses| addresses.contains(&bound))
}

fn is_loopback(address: &str) -> bool {
    address.parse::<SocketAddr>().is_ok_and(|address| address.ip().is_loopback())
}

/// A present member's address in a list.
fn address_of(roster: &Roster, node: NodeId) -> Option<&str> {
    let mut present = roster.members.values().filter(|member| member.state.is_present());
    present.find(|member| member.node == node).map(|member| member.address.as_str())
}

async fn answer(connection: &Connection, request: &Request) -> Result<Response, CallError> {
    let asked = tokio::time::timeout(ANSWER_TIMEOUT, ask(connection, request, ANSWER_TIMEOUT)).await;
    match asked.map_err(|_| CallError::Timeout(ANSWER_TIMEOUT))?? {
        Response::Error(error) => Err(error.into()),
        response => Ok(response),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use norn_wire::membership::MemberState;

    /// An operator may have set another address, or removed the node, since the node wrote its log.
    #[test]
    fn an_address_is_changed_only_while_the_list_has_the_one_that_the_node_began_with() {
        let (node, moved) = (NodeId(7), Moved { from: "old:1".to_owned(), to: "new:1".to_owned() });
        let outcome = |node_listed: u128, address: &str, state| {
            let (name, address, zone) = ("n".to_owned(), address.to_owned(), String::new());
            let member = Member { node: NodeId(node_listed), incarnation: 1, name, address, zone, weight: 1, state };
            let roster = Roster { version: 1, members: BTreeMap::from([(0, member)]), policies: BTreeMap::new() };
            moved.outcome(&roster, node)
        };
        assert_eq!(outcome(7, "old:1", MemberState::Up), None);
        assert_eq!(outcome(7, "new:1", MemberState::Up), Some(Outcome::Known));
        assert_eq!(outcome(7, "other:1", MemberState::Up), Some(Outcome::Superseded));
        assert_eq!(outcome(7, "old:1", MemberState::Gone), Some(Outcome::Left));
        assert_eq!(outcome(8, "old:1", MemberState::Up), Some(Outcome::Left));
    }
}
