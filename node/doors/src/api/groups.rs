//! Groups: numbered tasks, and the join that runs after all of them.

use super::common::status_of_change;
use super::tasks::Durability;
use crate::answer::Json;
use crate::body::{JsonBody, Query};
use crate::caller::{Short, TaskAt, Waiting};
use crate::problem::{BodyProblems, Problem, ReadProblems};
use crate::state::State;
use axum::extract::State as Shared;
use axum::response::{IntoResponse, Response};
use norn_client::api;
use norn_client::session::{Call, explain_close};
use norn_wire::Response as Answer;
use norn_wire::group::MemberOf;
use norn_wire::{Error, ErrorCode};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Members of a page that names no limit.
const LIMIT_DEFAULT: u32 = 100;
/// Most members of a page.
const LIMIT_MAX: u32 = 1_000;

pub(super) fn router() -> OpenApiRouter<Arc<State>> {
    OpenApiRouter::new().routes(routes!(close)).routes(routes!(members))
}

/// Says how many members a group has, so that its join can run.
#[utoipa::path(
    post, path = "/v1/groups/{id}/close", operation_id = "close_group", tag = "groups",
    params(("id" = String, Path, description = "Id of the join."), Durability),
    request_body(content = api::GroupCloseInput, example = json!({"total": 3})),
    responses(
        (status = 200, body = api::WriteAck, description = "A majority of the replicas has it on disk, also if it was so before."),
        (status = 202, body = api::WriteAck, description = "Fewer replicas have it on disk, as asked for."),
        BodyProblems,
    )
)]
async fn close(
    client: Short,
    TaskAt(id): TaskAt,
    Query(durability): Query<Durability>,
    JsonBody(input): JsonBody<api::GroupCloseInput>,
) -> Result<Response, Problem> {
    let call = Call::Request(input.request(id, durability.acks));
    match client.call(call, None).await.map_err(explain_close)? {
        Answer::AckedOne(acked) => {
            Ok((status_of_change(acked.guarantee), Json(&api::WriteAck::from(&acked))).into_response())
        }
        _ => Err(Error::new(ErrorCode::Unknown, "the node's answer to this is of another kind").into()),
    }
}

/// Which members to show.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Page {
    /// Only members with higher numbers: `next` of the page before.
    #[serde(default)]
    #[param(required = false)]
    after: u32,
    /// Most members, 1 to 1,000; 100 if left out.
    #[serde(default = "limit_default")]
    #[param(required = false, minimum = 1, maximum = 1000)]
    limit: u32,
}

fn limit_default() -> u32 {
    LIMIT_DEFAULT
}

/// A page of the members of a group.
#[derive(Debug, Serialize, ToSchema)]
struct Members<'a> {
    /// Members, in the order of their numbers.
    members: Vec<api::GroupMember<'a>>,
    /// Number of all members; `null` until it is said by a close. No members are shown before.
    #[schema(required)]
    total: Option<u32>,
    /// Number after which the next page begins; `null`: this is the last.
    #[schema(required)]
    next: Option<u32>,
}

/// Lists the members of a group with their results, in pages.
///
/// Once all members have ended, the answer waits until each end is on a majority of the disks, so that the join reads what counts.
#[utoipa::path(
    get, path = "/v1/groups/{id}/members", operation_id = "list_group_members", tag = "groups",
    params(("id" = String, Path, description = "Id of the join."), Page),
    responses(
        (status = 200, body = Members, description = "A page of members.", example = json!({"members": [{
            "number": 1, "id": "000038g2m4d7kq9rjscg0080000w3n5t", "state": "done", "result": "sent",
            "result_encoding": "utf8", "reason": null
        }], "total": 3, "next": 1})),
        ReadProblems,
    )
)]
async fn members(
    client: Waiting,
    Shared(state): Shared<Arc<State>>,
    TaskAt(group): TaskAt,
    Query(Page { after, limit }): Query<Page>,
) -> Result<Response, Problem> {
    if !(1..=LIMIT_MAX).contains(&limit) {
        return Err(Problem::invalid(format!("limit is from 1 to {LIMIT_MAX}, not {limit}")));
    }
    let view = client.group(group).await?;
    let members = tokio::select! {
        members = client.members_of(group, view, after, limit as usize, !state.drains()) => members?,
        // The ends that are known are shown at once.
        () = state.draining() => client.members_of(group, view, after, limit as usize, false).await?,
    };
    let last = members.last().map(|member| member.number);
    let next = last.filter(|last| view.total.is_some_and(|total| *last < total));
    let shown = members
        .iter()
        .map(|member| api::GroupMember::new(MemberOf { group, number: member.number }, member.task.as_ref()));
    Ok(Json(&Members { members: shown.collect(), total: view.total, next }).into_response())
}
