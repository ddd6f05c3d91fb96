//! Calls that look at the cluster as a whole, and change it.

use super::Client;
use super::answers::unexpected;
use crate::wire::error::Error;
use crate::wire::membership::{Changed, ClusterChange, ClusterView};
use crate::wire::request::Request;
use crate::wire::response::Response;

impl Client {
    /// Who belongs to the cluster, what is wanted of it, and how far it is, as the leader of its root sees it.
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

    /// Changes the cluster. Once this returns it is decided, by a majority of the root; the cluster carries it out by itself,
    /// and [`Client::cluster`] shows how far it is. After an `unknown` outcome it may be repeated: what is so already stays so.
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

    /// What would come of a change, or why it would be refused. Changes nothing.
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

    async fn change_or_not(&self, change: ClusterChange, dry_run: bool) -> Result<Changed, Error> {
        match self.request(Request::Change { change: Box::new(change), dry_run }).await? {
            Response::Changed(changed) => Ok(*changed),
            _ => unexpected("change"),
        }
    }
}
