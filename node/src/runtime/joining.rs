//! A node without a cluster joins one by itself.
//!
//! It asks members, one after the other, to be made a member, and takes its place as they say. Each step can be repeated, so a
//! node that ends in between joins at its next start.

use crate::runtime::caller::{CallError, Caller};
use crate::runtime::server::Server;
use norn_wire::invitation::Invitation;
use norn_wire::membership::{Candidate, ClusterChange, Membership};
use norn_wire::response::Identity;
use norn_wire::{ClusterId, Error, Request, Response};
use std::time::Duration;
use tokio::time::Instant;

/// Between two rounds of asking.
const ROUND_INTERVAL: Duration = Duration::from_secs(1);
/// After which it is said again that the same stands against it.
const REMIND_INTERVAL: Duration = Duration::from_secs(30);
/// How much a new member holds, compared with others, until an operator says otherwise.
const WEIGHT: u32 = 1;

/// Why a node does not join.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// It has a cluster, and another one is to be joined.
    #[error("this node belongs to cluster {name} ({own}) and cannot join {wanted}: give it an empty data directory")]
    Elsewhere {
        /// Its name.
        name: String,
        /// Its cluster.
        own: ClusterId,
        /// The other.
        wanted: ClusterId,
    },
    /// What answers belongs to another cluster.
    #[error("{address} belongs to cluster {found}, and the token is of {wanted}")]
    Other {
        /// A member, supposedly.
        address: String,
        /// Its cluster.
        found: ClusterId,
        /// The one of the token.
        wanted: ClusterId,
    },
    /// A member refuses.
    #[error("{address} refuses: {error}")]
    Refused {
        /// The member.
        address: String,
        /// Why.
        error: Error,
    },
    /// No member takes it, and what some say does not pass.
    #[error("{0}")]
    Several(String),
    /// The node itself refuses.
    #[error("this node does not take its place: {0}")]
    Own(Error),
    /// The node has stopped.
    #[error("the node has stopped")]
    Stopped,
}

/// Has the node join, unless it belongs to the cluster already. Tries for ever where trying again may help.
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

/// What was said last, and when.
#[derive(Debug, Default)]
struct Complaint(Option<(String, Instant)>);

impl Complaint {
    /// Whether this is to be said: it is something else, or it was long ago.
    fn is_due(&mut self, failure: &str, now: Instant) -> bool {
        let is_known =
            self.0.as_ref().is_some_and(|(said, at)| said == failure && now.duration_since(*at) < REMIND_INTERVAL);
        if !is_known {
            self.0 = Some((failure.to_owned(), now));
        }
        !is_known
    }
}

/// Asks each member once, until one has made the node a member. Otherwise what stood against it, if that may pass. What one says for
/// good stands only if no other takes the node: it may be of a node that was removed, or of another cluster.
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

/// Asks one member. First who it is: nobody is made a member of a cluster that was not meant.
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

    /// Goal: an operator who looks into the log of a node that does not become a member finds why, whenever that is.
    #[test]
    fn what_stands_against_a_member_is_said_again() {
        let (mut complaint, start) = (Complaint::default(), Instant::now());
        let mut due = |failure, after: u64| complaint.is_due(failure, start + Duration::from_secs(after));
        assert!(due("a:1: no answer", 0) && !due("a:1: no answer", 29));
        assert!(due("a:1: no answer", 30) && !due("a:1: no answer", 59));
        assert!(due("a:1: it has no cluster", 59) && due("a:1: no answer", 60) && due("a:1: no answer", 90));
    }
}
