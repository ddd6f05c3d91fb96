//! The cluster: what operators see of it, and change.

use super::common::Nothing;
use crate::answer::Json;
use crate::body::{JsonBody, Query};
use crate::caller::Short;
use crate::problem::{Problem, Problems};
use crate::state::State;
use axum::response::{IntoResponse, Response};
use norn_client::api::{self, ChangeState};
use norn_wire::membership::{Changed, ClusterView};
use norn_wire::{Error, ErrorCode};
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
async fn nodes(client: Short, Query(Nothing {}): Query<Nothing>) -> Result<Response, Problem> {
    let views = client.nodes().await?;
    Ok(Json(&Nodes { nodes: views.iter().map(api::Node::from).collect() }).into_response())
}

/// Shows which nodes hold which partition.
#[utoipa::path(
    get, path = "/v1/ring", operation_id = "show_ring", tag = "cluster",
    responses((status = 200, body = Ring, description = "The partitions and their nodes."), Problems)
)]
async fn ring(client: Short, Query(Nothing {}): Query<Nothing>) -> Result<Response, Problem> {
    let views = client.ring().await?;
    Ok(Json(&Ring { partitions: views.iter().map(api::RingPlace::from).collect() }).into_response())
}

/// Shows leaders, sizes and agreement of the partitions.
#[utoipa::path(
    get, path = "/v1/partitions", operation_id = "list_partitions", tag = "cluster",
    responses((status = 200, body = Partitions, description = "The partitions."), Problems)
)]
async fn partitions(client: Short, Query(Nothing {}): Query<Nothing>) -> Result<Response, Problem> {
    let views = client.partitions().await?;
    Ok(Json(&Partitions { partitions: views.iter().map(api::Partition::from).collect() }).into_response())
}

/// Shows this node, with its counters.
#[utoipa::path(
    get, path = "/v1/status", operation_id = "show_status", tag = "cluster",
    responses((status = 200, body = api::Status, description = "The node that answers."), Problems)
)]
async fn status(client: Short, Query(Nothing {}): Query<Nothing>) -> Result<Response, Problem> {
    Ok(Json(&api::Status::from(&client.status().await?)).into_response())
}

/// Shows the whole cluster: settings, members, layout and moves.
#[utoipa::path(
    get, path = "/v1/cluster", operation_id = "show_cluster", tag = "cluster",
    responses((status = 200, body = api::ClusterOverview, description = "The cluster."), Problems)
)]
async fn overview(client: Short, Query(Nothing {}): Query<Nothing>) -> Result<Response, Problem> {
    let (status, view, mut partitions) = tokio::try_join!(client.status(), client.cluster(), client.ring())?;
    partitions.sort_by_key(|partition| partition.partition);
    Ok(Json(&api::ClusterOverview::new(&status, &view, &partitions)).into_response())
}

/// Changes the cluster, or shows what a change would do.
///
/// The answer comes once a majority of the metadata group has decided the change; the cluster carries it out by itself, and
/// `GET /v1/cluster` shows how far it is. Each change may be repeated. A new node is handed its membership over the nodes' own protocol:
/// use `norn cluster add` and `norn cluster replace`, which this interface refuses.
#[utoipa::path(
    post, path = "/v1/cluster/changes", operation_id = "change_cluster", tag = "cluster",
    request_body(content = api::ClusterChangeInput, example = json!({"change": {"drain": {"node": "n3"}}, "dry_run": true})),
    responses((status = 200, body = api::ChangeReport, description = "The cluster after the change, or as it would be."), Problems)
)]
async fn change(
    client: Short,
    Query(Nothing {}): Query<Nothing>,
    JsonBody(input): JsonBody<api::ClusterChangeInput>,
) -> Result<Response, Problem> {
    if let Some(address) = input.newcomer() {
        let why = format!(
            "a new node joins at the command line alone: `norn cluster add {address}`, or `norn cluster replace`"
        );
        return Err(Error::new(ErrorCode::Unsupported, why).into());
    }
    let view = client.cluster().await?;
    let planned = input.plan(&view, None).map_err(|error| Problem::invalid(error.0))?;
    let Some(change) = planned.change else {
        // The cluster has forgotten the removed member.
        let report = report(planned.verb, ChangeState::Done, true, view.roster.version, &view);
        return Ok(Json(&report).into_response());
    };
    let changed = match planned.dry_run {
        true => client.dry_run(change).await?,
        false => client.change(change).await?,
    };
    let state = match (planned.dry_run, AT_ONCE.contains(&planned.verb)) {
        (true, _) => ChangeState::Planned,
        (false, true) => ChangeState::Done,
        (false, false) => ChangeState::Begun,
    };
    let Changed { already, version, view, .. } = changed;
    let report = api::ChangeReport { node: planned.node, ..report(planned.verb, state, already, version, &view) };
    Ok(Json(&report).into_response())
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
