//! The cluster: what operators see of it, and change.

use crate::answer::Json;
use crate::body::JsonBody;
use crate::caller::Short;
use crate::problem::{BodyProblems, Problem, Problems};
use crate::state::{Host, State};
use axum::extract::State as Shared;
use axum::response::{IntoResponse, Response};
use norn_client::api::{self, ChangeState};
use norn_client::client::joining::{Asker, Newcomer};
use norn_wire::membership::{Changed, ClusterView};
use norn_wire::{Error, ErrorCode, Request, Response as Answer};
use serde::Serialize;
use std::sync::Arc;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Changes that move no task, so that they are done once they are decided.
const AT_ONCE: [&str; 5] = ["address", "heal-after", "moves", "moves-each", "settings"];

pub(super) fn router() -> OpenApiRouter<Arc<State>> {
    OpenApiRouter::new()
        .routes(routes!(nodes))
        .routes(routes!(ring))
        .routes(routes!(partitions))
        .routes(routes!(status))
        .routes(routes!(overview))
        .routes(routes!(change))
}

/// Nodes.
#[derive(Debug, Serialize, ToSchema)]
struct Nodes<'a> {
    /// Nodes, as the answering one sees them.
    nodes: Vec<api::Node<'a>>,
}

/// Where partitions lie.
#[derive(Debug, Serialize, ToSchema)]
struct Ring {
    /// Places of the partitions.
    partitions: Vec<api::RingPlace>,
}

/// Partitions.
#[derive(Debug, Serialize, ToSchema)]
struct Partitions {
    /// Partitions, as the answering node sees them.
    partitions: Vec<api::Partition>,
}

/// Lists the nodes of the cluster.
#[utoipa::path(
    get, path = "/v1/nodes", operation_id = "list_nodes", tag = "cluster",
    responses((status = 200, body = Nodes, description = "The nodes."), Problems)
)]
async fn nodes(client: Short) -> Result<Response, Problem> {
    let views = client.nodes().await?;
    Ok(Json(&Nodes { nodes: views.iter().map(api::Node::from).collect() }).into_response())
}

/// Shows which nodes hold which partition.
#[utoipa::path(
    get, path = "/v1/ring", operation_id = "show_ring", tag = "cluster",
    responses((status = 200, body = Ring, description = "The partitions and their nodes."), Problems)
)]
async fn ring(client: Short) -> Result<Response, Problem> {
    let views = client.ring().await?;
    Ok(Json(&Ring { partitions: views.iter().map(api::RingPlace::from).collect() }).into_response())
}

/// Shows leaders, sizes and agreement of the partitions.
#[utoipa::path(
    get, path = "/v1/partitions", operation_id = "list_partitions", tag = "cluster",
    responses((status = 200, body = Partitions, description = "The partitions."), Problems)
)]
async fn partitions(client: Short) -> Result<Response, Problem> {
    let views = client.partitions().await?;
    Ok(Json(&Partitions { partitions: views.iter().map(api::Partition::from).collect() }).into_response())
}

/// Shows this node, with its counters.
#[utoipa::path(
    get, path = "/v1/status", operation_id = "show_status", tag = "cluster",
    responses((status = 200, body = api::Status, description = "The node that answers."), Problems)
)]
async fn status(client: Short) -> Result<Response, Problem> {
    Ok(Json(&api::Status::from(&client.status().await?)).into_response())
}

/// Shows the whole cluster: settings, members, layout and moves.
#[utoipa::path(
    get, path = "/v1/cluster", operation_id = "show_cluster", tag = "cluster",
    responses((status = 200, body = api::ClusterOverview, description = "The cluster."), Problems)
)]
async fn overview(client: Short) -> Result<Response, Problem> {
    let (status, view, mut partitions) = tokio::try_join!(client.status(), client.cluster(), client.ring())?;
    partitions.sort_by_key(|partition| partition.partition);
    Ok(Json(&api::ClusterOverview::new(&status, &view, &partitions)).into_response())
}

/// Changes the cluster, or shows what a change would do.
///
/// The answer comes once a majority of the metadata group has decided the change; the cluster carries it out by itself, and
/// `GET /v1/cluster` shows how far it is. Each change may be repeated. For `add` and `replace` this node calls the new one at its address,
/// and hands it the membership; start it before, with a certificate of the cluster.
#[utoipa::path(
    post, path = "/v1/cluster/changes", operation_id = "change_cluster", tag = "cluster",
    request_body(content = api::ClusterChangeInput, example = json!({"change": {"drain": {"node": "n3"}}, "dry_run": true})),
    responses((status = 200, body = api::ChangeReport, description = "The cluster after the change, or as it would be."), BodyProblems)
)]
async fn change(
    client: Short,
    Shared(state): Shared<Arc<State>>,
    JsonBody(input): JsonBody<api::ClusterChangeInput>,
) -> Result<Response, Problem> {
    let view = client.cluster().await?;
    let outside = Outside(state.host()?);
    let newcomer = match input.newcomer() {
        Some(address) => {
            let patience = state.bounds.call_timeout;
            Some(Newcomer::meet(&outside, view.cluster, address.to_owned(), patience).await?)
        }
        None => None,
    };
    let identity = newcomer.as_ref().map(|newcomer| &newcomer.identity);
    let planned = input.plan(&view, identity).map_err(|error| Problem::invalid(error.0))?;
    let Some(change) = planned.change else {
        // The cluster has forgotten the removed member.
        let report = report(planned.verb, ChangeState::Done, true, view.roster.version, &view);
        return Ok(Json(&report).into_response());
    };
    let changed = match planned.dry_run {
        true => client.dry_run(change).await?,
        false => client.change(change).await?,
    };
    if let Some(newcomer) = newcomer.filter(|_| !planned.dry_run) {
        newcomer.hand_over(&outside, &changed).await.map_err(half_way)?;
    }
    let state = match (planned.dry_run, AT_ONCE.contains(&planned.verb)) {
        (true, _) => ChangeState::Planned,
        (false, true) => ChangeState::Done,
        (false, false) => ChangeState::Begun,
    };
    let Changed { already, version, view, .. } = changed;
    let report = api::ChangeReport { node: planned.node, ..report(planned.verb, state, already, version, &view) };
    Ok(Json(&report).into_response())
}

/// Nodes outside the cluster.
struct Outside(Arc<dyn Host>);

impl Asker for Outside {
    async fn ask(&self, address: &str, request: Request) -> Result<Answer, Error> {
        self.0.ask(address, request).await
    }
}

/// The error for a node that is a member and does not know it.
fn half_way(error: Error) -> Error {
    let message =
        format!("{}; the node is a member, but does not know it yet: the same request goes on", error.message);
    // The change has taken effect, so that no refusal of what is left is one of the request.
    let code = if error.passes() { error.code } else { ErrorCode::Unknown };
    Error { message, code, ..error }
}

fn report<'a>(
    verb: &'static str,
    state: ChangeState,
    already: bool,
    version: u64,
    view: &'a ClusterView,
) -> api::ChangeReport<'a> {
    api::ChangeReport {
        change: verb.into(),
        state,
        already,
        node: None,
        version,
        layout: view.layout,
        open: view.open,
        members: api::MemberShare::all(view),
    }
}
