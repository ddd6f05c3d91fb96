//! `doctor`: checks that an operator would otherwise make by hand, those of a cluster here. A program that runs on a node's machine adds
//! its own, in the same form.

mod judge;
mod report;
#[cfg(test)]
mod tests;

pub use report::Report;

use super::error::{Failure, advice};
use super::nodes_beside::{ASKED_MAX, ask, ask_for};
use super::operate::survey::Survey;
use super::runner::unexpected;
use super::{Input, Output, Place, Runner, Transport};
use futures_util::{StreamExt, stream};
use norn_client::api::{self, Finding};
use norn_wire::response::{NodeView, PartitionView, Status};
use norn_wire::{Error, Request, Response};
use serde::Serialize;
use std::io;

/// Checks of a cluster, in their order. The first says whether a node answers at all.
pub const CLUSTER_CHECKS: [&str; 11] = [
    "cluster",
    "members",
    "member_certificates",
    "versions",
    "clocks",
    "leaders",
    "replicas",
    "losses",
    "member_room",
    "hints",
    "layout",
];

/// State of a cluster, as its members told it.
#[derive(Debug)]
pub struct ClusterSeen {
    /// Summary of the node that answers.
    status: Status,
    /// Members and their clocks, as that node sees them.
    nodes: Vec<NodeView>,
    /// Partitions, as that node sees them.
    partitions: Vec<PartitionView>,
    /// Layout, from the leader of the metadata group.
    survey: Result<Survey, Error>,
    /// Members that are not gone.
    members: Vec<Member>,
}

/// A member, and what it says of itself.
#[derive(Debug)]
struct Member {
    view: NodeView,
    status: Result<Status, Error>,
    partitions: Result<Vec<PartitionView>, Error>,
    /// Last second of its certificate's validity; `None` if this program cannot tell.
    certificate_until_s: Result<Option<i64>, Error>,
}

impl ClusterSeen {
    /// Asks one node for the state of the cluster, and then each member for its own.
    pub async fn ask(transport: impl Transport) -> Result<ClusterSeen, Error> {
        let runner =
            Runner::new(transport, Output::new(io::sink(), io::sink(), true), Input::stdin(), Place::CommandLine);
        ClusterSeen::gather(&runner).await.map_err(|failure| {
            failure.error().unwrap_or_else(|| Error::unavailable("the answer of the cluster could not be read"))
        })
    }

    async fn gather<T: Transport>(runner: &Runner<T>) -> Result<ClusterSeen, Failure> {
        let Response::Status(status) = runner.request(Request::Status).await? else {
            return Err(unexpected("status"));
        };
        let Response::Nodes(nodes) = runner.request(Request::Nodes).await? else {
            return Err(unexpected("nodes"));
        };
        let Response::Partitions(partitions) = runner.request(Request::Partitions).await? else {
            return Err(unexpected("partitions"));
        };
        let no_reason = || Error::unavailable("the layout could not be read");
        let survey = Survey::take(runner, None).await.map_err(|failure| failure.error().unwrap_or_else(no_reason));
        let present = nodes.iter().filter(|node| node.state.is_none_or(|state| state.is_present()));
        let asks: Vec<_> = present.map(|view| Member::ask(runner, view.clone())).collect();
        let mut members: Vec<Member> = stream::iter(asks).buffered(ASKED_MAX).collect().await;
        members.sort_by(|a, b| a.view.name.cmp(&b.view.name));
        Ok(ClusterSeen { status: *status, nodes, partitions, survey, members })
    }

    /// Makes the checks.
    pub fn findings(&self, now_s: i64) -> Vec<Finding<'static>> {
        judge::all(self, now_s)
    }

    /// Returns name and content of files with what was seen: lines of the JSON of `status`, `status --nodes`, `nodes` and `partitions`.
    pub fn files(&self) -> Vec<(&'static str, String)> {
        vec![
            ("status.json", lines([api::Status::from(&self.status)])),
            ("members.jsonl", lines(self.members.iter().map(Member::counters))),
            ("nodes.jsonl", lines(self.nodes.iter().map(api::Node::from))),
            ("partitions.jsonl", lines(self.partitions.iter().map(api::Partition::from))),
        ]
    }
}

impl Member {
    fn counters(&self) -> api::NodeCounters<'_> {
        api::NodeCounters::new(&self.view, &self.status)
    }

    async fn ask<T: Transport>(runner: &Runner<T>, view: NodeView) -> Member {
        let status = ask(runner, &view.address).await;
        if let Err(error) = &status {
            let (partitions, certificate_until_s) = (Err(error.clone()), Err(error.clone()));
            return Member { view, status, partitions, certificate_until_s };
        }
        let partitions = match ask_for(runner, &view.address, Request::Partitions).await {
            Ok(Response::Partitions(partitions)) => Ok(partitions),
            Ok(_) => Err(Error::invalid("what answers there does not list partitions; is it a node of this version?")),
            Err(error) => Err(error),
        };
        let certificate_until_s = runner.transport.certificate_until_s(&view.address).await;
        Member { view, status, partitions, certificate_until_s }
    }
}

/// Returns the findings of a cluster that does not answer, with the reason.
pub fn unreached(error: &Error) -> Vec<Finding<'static>> {
    let what = advice(error, false).unwrap_or_else(|| "do what the message says, and look again".to_owned());
    let (first, rest) = CLUSTER_CHECKS.split_first().expect("there are checks");
    let failed = Finding::fail(first, super::text::clean_lines(&error.message), what);
    let unknown = |check: &&'static str| Finding::not_checked(check, "no node answers", "see `cluster`");
    std::iter::once(failed).chain(rest.iter().map(unknown)).collect()
}

fn lines<T: Serialize>(rows: impl IntoIterator<Item = T>) -> String {
    rows.into_iter().map(|row| serde_json::to_string(&row).expect("a row is JSON") + "\n").collect()
}
