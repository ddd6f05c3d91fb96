//! Automatic join: a node without a cluster joins one by itself.
//!
//! It asks members, one after the other, to add it, and takes its place as they answer. Each step can be repeated, so a node that
//! ends in between joins at its next start.

use crate::runtime::caller::{CallError, Caller};
use crate::runtime::server::Server;
use norn_wire::invitation::Invitation;
use norn_wire::membership::{Candidate, ClusterChange, Membership};
use norn_wire::response::Identity;
use norn_wire::{ClusterId, Error, Request, Response};
use std::time::Duration;
use tokio::time::Instant;

/// Pause between two rounds of requests.
const ROUND_INTERVAL: Duration = Duration::from_secs(1);
/// Interval after which the same failure is logged again.
const REMIND_INTERVAL: Duration = Duration::from_secs(30);
/// Weight of a new member, its share compared with others, until an operator changes it.
const WEIGHT: u32 = 1;

/// Why a node does not join.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// It already belongs to another cluster.
    #[error("this node belongs to cluster {name} ({own}) and cannot join {wanted}: give it an empty data directory")]
    Elsewhere {
        /// Name of its cluster.
        name: String,
        /// Id of its cluster.
        own: ClusterId,
        /// The cluster to be joined.
        wanted: ClusterId,
    },
    /// The node at the address belongs to another cluster.
    #[error("{address} belongs to cluster {found}, and the token is of {wanted}")]
    Other {
        /// The supposed member.
        address: String,
        /// The cluster of that node.
        found: ClusterId,
        /// The cluster of the token.
        wanted: ClusterId,
    },
    /// A member refuses the request.
    #[error("{address} refuses: {error}")]
    Refused {
        /// The member.
        address: String,
        /// The refusal.
        error: Error,
    },
    /// No member accepts the node, and some refusals are permanent.
    #[error("{0}")]
    Several(String),
    /// The node itself refuses.
    #[error("this node does not take its place: {0}")]
    Own(Error),
    /// The node has stopped.
    #[error("the node has stopped")]
    Stopped,
}

/// Makes the node join, unless it belongs to the cluster already. Retries for ever while a retry may succeed.
pub async fn join(server: &Server, caller: &Caller, invitation: &Invitation) -> Result<(), JoinError> {
    let identity = match server.ask(Request::Identify).await {
        Some(Response::Identity(identity)) => *identity,
        _ => return Err(JoinError::Stopped),
    };
    if let Some(genesis) = &identity.genesis {
        return match invitation.cluster {
            Some(wanted) if wanted != genesis.cluster => {
                Err(JoinError::Elsewhere { name: genesis.name.clone(), own: genesis.cluster, wanted })
            }
            _ => Ok(()),
        };
    }
    let mut complaint = Complaint::default();
    let membership = loop {
        match ask_around(caller, invitation, &identity).await? {
            Ok(membership) => break membership,
            Err(failure) if complaint.is_due(&failure, Instant::now()) => {
                tracing::warn!(failure, "not a member yet; trying on");
            }
            Err(_) => {}
        }
        tokio::time::sleep(ROUND_INTERVAL).await;
    };
    match server.ask(Request::Join(membership)).await {
        Some(Response::Error(error)) => Err(JoinError::Own(error)),
        Some(_) => Ok(()),
        None => Err(JoinError::Stopped),
    }
}

/// The last logged failure, and its time.
#[derive(Debug, Default)]
struct Complaint(Option<(String, Instant)>);

impl Complaint {
    /// Whether to log this failure: it is a new one, or the last log line is old.
    fn is_due(&mut self, failure: &str, now: Instant) -> bool {
        let is_known =
            self.0.as_ref().is_some_and(|(said, at)| said == failure && now.duration_since(*at) < REMIND_INTERVAL);
        if !is_known {
            self.0 = Some((failure.to_owned(), now));
        }
        !is_known
    }
}

/// Asks each member once, until one has added the node. Otherwise returns the failures, if they may be temporary. A permanent refusal
/// counts only if no other member accepts the node: the refusing member may be a removed node, or in another cluster.
async fn ask_around(
    caller: &Caller,
    invitation: &Invitation,
    identity: &Identity,
) -> Result<Result<Box<Membership>, String>, JoinError> {
    let (mut failures, mut refusals) = (Vec::new(), Vec::new());
    for address in &invitation.addresses {
        match ask(caller, address, invitation.cluster, identity).await {
            Ok(Ok(membership)) => return Ok(Ok(membership)),
            Ok(Err(error)) => refusals.push(error),
            Err(CallError::Refused(error)) if !error.passes() => {
                refusals.push(JoinError::Refused { address: address.clone(), error });
            }
            Err(error) => failures.push(format!("{address}: {error}")),
        }
    }
    match refusals.len() {
        0 => Ok(Err(failures.join("; "))),
        1 if failures.is_empty() => Err(refusals.remove(0)),
        _ => {
            let refusals = refusals.iter().map(JoinError::to_string);
            Err(JoinError::Several(refusals.chain(failures).collect::<Vec<_>>().join("; ")))
        }
    }
}

/// Asks one member, after checking its identity: the node must not join an unintended cluster.
async fn ask(
    caller: &Caller,
    address: &str,
    wanted: Option<ClusterId>,
    identity: &Identity,
) -> Result<Result<Box<Membership>, JoinError>, CallError> {
    let (connection, there) = caller.member(&[address.to_owned()]).await?;
    let Some(genesis) = there.genesis else {
        return Err(CallError::Nonsense("it does not tell of its cluster".to_owned()));
    };
    if let Some(wanted) = wanted.filter(|wanted| *wanted != genesis.cluster) {
        return Ok(Err(JoinError::Other { address: address.to_owned(), found: genesis.cluster, wanted }));
    }
    let Identity { node, incarnation, name, address: own, zone, .. } = identity.clone();
    let with = Candidate { cluster: None, node, incarnation, name, address: own, zone, weight: WEIGHT };
    let change = Box::new(ClusterChange::Add { with });
    match caller.ask(connection, &Request::Change { change, dry_run: false }).await? {
        Response::Changed(changed) => match changed.membership {
            Some(membership) => Ok(Ok(membership)),
            None => Err(CallError::Nonsense("it does not tell of its cluster".to_owned())),
        },
        other => Err(CallError::Nonsense(format!("{other:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: an operator finds in the log of a node that does not become a member the reason, at any time.
    #[test]
    fn what_stands_against_a_member_is_said_again() {
        let (mut complaint, start) = (Complaint::default(), Instant::now());
        let mut due = |failure, after: u64| complaint.is_due(failure, start + Duration::from_secs(after));
        assert!(due("a:1: no answer", 0) && !due("a:1: no answer", 29));
        assert!(due("a:1: no answer", 30) && !due("a:1: no answer", 59));
        assert!(due("a:1: it has no cluster", 59) && due("a:1: no answer", 60) && due("a:1: no answer", 90));
    }
}
