//! Calls that read and change the cluster as a whole.

use super::Client;
use super::answers::{millis, unexpected};
use crate::text::clean;
use norn_wire::error::Error;
use norn_wire::ids::{NodeId, PartitionId};
use norn_wire::invitation::Invitation;
use norn_wire::membership::{Changed, ClusterChange, ClusterView, Member, Remnant};
use norn_wire::request::Request;
use norn_wire::response::Response;
use std::time::Duration;

/// Members that an invitation names: enough that one of them is likely reachable.
const MEMBERS_NAMED: usize = 5;
/// Fewest characters of an id that stand for it.
const PREFIX_CHARACTERS_MIN: usize = 4;

impl Client {
    /// Members of the cluster, its target configuration and the progress towards it, as the leader of the metadata group sees them.
    ///
    /// ```no_run
    /// # async fn example(client: norn_client::client::Client) -> Result<(), norn_client::wire::Error> {
    /// let view = client.cluster().await?;
    /// for (number, member) in &view.roster.members {
    ///     println!("{number} {} {} {}", member.name, member.state, view.heard.contains(&member.node));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn cluster(&self) -> Result<ClusterView, Error> {
        match self.request(Request::Cluster).await? {
            Response::Cluster(view) => Ok(*view),
            _ => unexpected("cluster"),
        }
    }

    /// Changes the cluster. When this returns, a majority of the metadata group has decided it; the cluster carries it out by itself,
    /// and [`Client::cluster`] shows the progress. After an `unknown` outcome it may be repeated: the change is idempotent.
    ///
    /// ```no_run
    /// # async fn example(client: norn_client::client::Client) -> Result<(), norn_client::wire::Error> {
    /// use norn_client::wire::membership::ClusterChange;
    /// use std::time::Duration;
    /// let view = client.cluster().await?;
    /// let old = view.roster.members.values().find(|member| member.name == "n4");
    /// if let Some(member) = old {
    ///     client.change(ClusterChange::Drain { node: member.node }).await?;
    ///     // As long as a layout is to be planned, or partitions are on their way, or it is not known who holds some.
    ///     let mut view = client.cluster().await?;
    ///     while view.stale || view.open > 0 || view.unknown > 0 {
    ///         tokio::time::sleep(Duration::from_secs(1)).await;
    ///         view = client.cluster().await?;
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn change(&self, change: ClusterChange) -> Result<Changed, Error> {
        self.change_or_not(change, false).await
    }

    /// Result of a change, or why it would be refused. Changes nothing.
    ///
    /// ```no_run
    /// # async fn example(client: norn_client::client::Client) -> Result<(), norn_client::wire::Error> {
    /// use norn_client::wire::membership::ClusterChange;
    /// let would_be = client.dry_run(ClusterChange::Replicas { replicas: 5 }).await?.view;
    /// println!("{} partitions would have to move", would_be.open);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn dry_run(&self, change: ClusterChange) -> Result<Changed, Error> {
        self.change_or_not(change, true).await
    }

    /// What a new machine needs to join: the id of the cluster, and some of its members. Its text is the token of `norn start --join`.
    ///
    /// ```no_run
    /// # async fn example(client: norn_client::client::Client) -> Result<(), norn_client::wire::Error> {
    /// println!("norn start --join {}", client.invitation().await?);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn invitation(&self) -> Result<Invitation, Error> {
        Ok(invitation(&self.cluster().await?))
    }

    /// Performs unsafe recovery: lets replicas of the answering node go on without members that are lost for good. LOSES DATA that only
    /// these have: see *A majority that is lost for good* in `node/docs/operating.md`. Nothing is granted in these partitions for as
    /// long as `longest_lease`. Without partitions it changes nothing. Either way the answer lists the partitions of this node that
    /// have no majority without the lost members.
    ///
    /// Each node speaks for its own replicas ([`Client::node`]). Of the remaining nodes with a replica of a partition, choose the one
    /// whose replica has the highest epoch, and the greatest length in it. The node refuses a recovery that other nodes could undo.
    ///
    /// ```no_run
    /// # use norn_client::wire::NodeId;
    /// # async fn example(client: norn_client::client::Client, lost: Vec<NodeId>) -> Result<(), Box<dyn std::error::Error>> {
    /// use std::collections::BTreeMap;
    /// use std::time::Duration;
    /// let hour = Duration::from_secs(3_600);
    /// let mut latest = BTreeMap::new();
    /// for member in client.nodes().await?.into_iter().filter(|member| !lost.contains(&member.node)) {
    ///     let node = client.node(&member.address).await?;
    ///     for remnant in node.recover(lost.clone(), Vec::new(), hour).await? {
    ///         let rank = (remnant.epoch, remnant.length, member.address.clone());
    ///         let best = latest.entry(remnant.partition).or_insert_with(|| rank.clone());
    ///         *best = rank.max(best.clone());
    ///     }
    /// }
    /// for (partition, (_, _, address)) in latest {
    ///     client.node(address).await?.recover(lost.clone(), vec![partition], hour).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn recover(
        &self,
        lost: Vec<NodeId>,
        partitions: Vec<PartitionId>,
        longest_lease: Duration,
    ) -> Result<Vec<Remnant>, Error> {
        match self.request(Request::Recover { lost, partitions, lease_ms: millis(longest_lease) }).await? {
            Response::Remnants(remnants) => Ok(remnants),
            _ => unexpected("recover"),
        }
    }

    async fn change_or_not(&self, change: ClusterChange, dry_run: bool) -> Result<Changed, Error> {
        match self.request(Request::Change { change: Box::new(change), dry_run }).await? {
            Response::Changed(changed) => Ok(*changed),
            _ => unexpected("change"),
        }
    }
}

/// Invitation to a cluster, for a new machine.
pub fn invitation(view: &ClusterView) -> Invitation {
    let mut members: Vec<&Member> = view.roster.members.values().filter(|member| member.state.may_hold()).collect();
    // Stable sort: members that were heard come first.
    members.sort_by_key(|member| !view.heard.contains(&member.node));
    let addresses = members.iter().take(MEMBERS_NAMED).map(|member| member.address.clone()).collect();
    Invitation { cluster: Some(view.cluster), addresses }
}

/// Finds the member with this name or beginning of its id, as [`look_up_member`] does. An error names the members.
pub fn find_member<'a>(view: &'a ClusterView, text: &str) -> Result<&'a Member, Error> {
    look_up_member(view, text)?.ok_or_else(|| no_such_member(view, text))
}

/// The error for a text that names no member.
#[must_use]
pub fn no_such_member(view: &ClusterView, text: &str) -> Error {
    let (text, known) = (clean(text), present_names(view));
    Error::invalid(format!("there is no member {text:?} in this cluster; its members are {known}"))
}

/// Names of the present members, for people.
#[must_use]
pub fn present_names(view: &ClusterView) -> String {
    let present = view.roster.members.values().filter(|member| member.state.is_present());
    present.map(|member| clean(&member.name)).collect::<Vec<_>>().join(", ")
}

/// Finds the member with this name or beginning of its id, if there is one. Returns one that is gone only if there is no other match,
/// since another node may have its name now.
pub fn look_up_member<'a>(view: &'a ClusterView, text: &str) -> Result<Option<&'a Member>, Error> {
    let members = || view.roster.members.values();
    if let Some(member) = members().find(|member| member.state.is_present() && member.name == text) {
        return Ok(Some(member));
    }
    let begins = |member: &&Member| text.len() >= PREFIX_CHARACTERS_MIN && member.node.to_string().starts_with(text);
    let by_id: Vec<&Member> = members().filter(begins).collect();
    match by_id[..] {
        [member] => Ok(Some(member)),
        [] => Ok(members().find(|member| member.name == text)),
        _ => Err(Error::invalid(format!("the ids of several members begin with {:?}; give more of it", clean(text)))),
    }
}
