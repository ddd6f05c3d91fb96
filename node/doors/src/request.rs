//! What happens around each request: an id, a limit, a line in the log.

use crate::access::{Peer, admit};
use crate::body::Charges;
use crate::cross::{cross_origin, no_vain_body};
use crate::metrics::meters::Meters;
use crate::problem::{Outcome, Problem};
use crate::sent::Sent;
use crate::state::State;
use crate::{api, health, metrics, openapi, page, skuld, taskstore};
use axum::Router;
use axum::body::Body;
use axum::extract::{MatchedPath, Request, State as Shared};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use norn_wire::{Error, ErrorCode, Retry};
use std::sync::Arc;
use std::time::Instant;
use utoipa::openapi::OpenApi;

/// Id of a request, given by the sender or drawn here.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Longest id that a sender may give.
const REQUEST_ID_BYTES_MAX: usize = 64;

/// Routes without a limit of requests.
const TOLD_ALWAYS: [&str; 4] = ["/livez", "/readyz", "/startupz", "/metrics"];

tokio::task_local! {
    /// Id of the request that the task serves.
    static CURRENT: HeaderValue;
}

/// Id of the request that is being served.
pub fn current_id() -> Option<String> {
    CURRENT.try_with(|id| id.to_str().ok().map(str::to_owned)).ok().flatten()
}

/// The routes of all doors.
pub fn router(state: &Arc<State>) -> Router {
    let (operations, document) = api::parts();
    name_verbs(&state.meters, document);
    let others = Router::new()
        .merge(health::router())
        .merge(metrics::router())
        .merge(openapi::router(document))
        .merge(page::router())
        .merge(taskstore::router())
        .merge(skuld::router());
    // A place or a method that there is not is the greater fault, so what refuses those stays outside of this layer.
    others
        .layer(from_fn(no_vain_body))
        .merge(api::only_described(operations, document, state))
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .layer(from_fn_with_state(Arc::clone(state), admit))
        .layer(from_fn_with_state(Arc::clone(state), cross_origin))
        .layer(from_fn_with_state(Arc::clone(state), around))
        .with_state(Arc::clone(state))
}

/// Gives each route its name in the metrics: that of its operation.
fn name_verbs(meters: &Meters, document: &OpenApi) {
    for (route, item) in &document.paths.paths {
        let operations = [
            ("GET", &item.get),
            ("POST", &item.post),
            ("PUT", &item.put),
            ("PATCH", &item.patch),
            ("DELETE", &item.delete),
        ];
        for (method, operation) in operations {
            let name = operation.as_ref().and_then(|operation| operation.operation_id.as_deref());
            name.into_iter().for_each(|name| meters.name_verb(method, route, name));
        }
    }
    for route in ["livez", "readyz", "startupz", "metrics"] {
        meters.name_verb("GET", &format!("/{route}"), route);
    }
}

async fn no_route(uri: Uri) -> Problem {
    let document = if uri.path().starts_with("/v1/") {
        "/v1/openapi.json lists"
    } else {
        "the guides to HTTP and to taskstore list"
    };
    let detail = format!("there is nothing at {}; {document} what there is", uri.path());
    Problem::new(StatusCode::NOT_FOUND, "no_route", Retry::Never, detail)
}

async fn no_method(method: Method, uri: Uri) -> Problem {
    let detail = format!("{} does not take {method}; the header Allow says what it takes", uri.path());
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method", Retry::Never, detail)
}

/// Counts the request against the limit until its answer is sent, gives it an id, and logs it.
async fn around(Shared(state): Shared<Arc<State>>, mut request: Request, next: Next) -> Response {
    let id = id_of(&request);
    let begin = Instant::now();
    // What the request's body takes of the budget, until the handler has ended.
    let charges = Charges::default();
    request.extensions_mut().insert(charges.clone());
    let (method, path) = (request.method().clone(), request.extensions().get::<MatchedPath>().cloned());
    let is_skuld = skuld::is_at(request.uri().path());
    // Health and metrics are told under any load, and a peer that may not call takes no place from those that may: connections bound
    // both.
    let is_told_always = path.as_ref().is_some_and(|path| TOLD_ALWAYS.contains(&path.as_str()));
    let is_known = request.extensions().get::<Peer>().is_some_and(|peer| peer.name.is_ok());
    let takes_place = is_known && !is_told_always;
    let place = takes_place.then(|| Arc::clone(&state.requests).try_acquire_owned().ok()).flatten();
    let served = async {
        if takes_place && place.is_none() {
            let error = Error::new(ErrorCode::Overloaded, "the node has too many requests under way; try again later");
            return Problem::from(error).into_response();
        }
        next.run(request).await
    };
    let mut response = CURRENT.scope(id.clone(), served).await;
    drop(charges);
    if is_skuld {
        response = skuld::in_its_form(response);
    }
    let outcome = response.extensions().get::<Outcome>().map(|outcome| outcome.0.clone());
    let route = path.as_ref().map(MatchedPath::as_str);
    state.meters.answered(method.as_str(), route, response.status().as_u16(), outcome.as_deref(), begin.elapsed());
    tracing::debug!(
        request_id = id.to_str().unwrap_or_default(),
        %method,
        route = route.unwrap_or_default(),
        status = response.status().as_u16(),
        outcome = outcome.as_deref().unwrap_or("ok"),
        ms = u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX),
        "request"
    );
    let headers = response.headers_mut();
    headers.insert(REQUEST_ID, id);
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response.map(|body| Body::new(Sent::new(body, place)))
}

fn id_of(request: &Request) -> HeaderValue {
    let is_sane = |id: &&HeaderValue| {
        let bytes = id.as_bytes();
        (1..=REQUEST_ID_BYTES_MAX).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic)
    };
    request.headers().get(REQUEST_ID).filter(is_sane).cloned().unwrap_or_else(|| {
        let drawn = format!("{:016x}", rand::random::<u64>());
        HeaderValue::from_str(&drawn).unwrap_or(HeaderValue::from_static("none"))
    })
}
