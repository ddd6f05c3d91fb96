//! What the description of an operation does not name is refused, and not ignored: parameters of the query, a body, a key.

use crate::body::Whole;
use crate::problem::Problem;
use crate::state::State;
use axum::Router;
use axum::body::Body;
use axum::extract::{FromRequest, MatchedPath, Request, State as Shared};
use axum::http::{HeaderName, Method};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use norn_wire::{Error, ErrorCode};
use std::collections::HashMap;
use std::sync::Arc;
use utoipa::openapi::path::{Operation, ParameterIn};
use utoipa::openapi::{OpenApi, RefOr};

/// Key of a caller under which a repeated request takes effect once.
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// What an operation takes beside its path.
#[derive(Debug, Default)]
struct Takes {
    /// Parameters of the query.
    query: Vec<String>,
    body: bool,
    key: bool,
}

impl Takes {
    fn of(operation: &Operation) -> Takes {
        let mut takes = Takes { body: operation.request_body.is_some(), ..Takes::default() };
        for parameter in operation.parameters.iter().flatten() {
            let RefOr::T(parameter) = parameter else { continue };
            match parameter.parameter_in {
                ParameterIn::Query => takes.query.push(parameter.name.clone()),
                ParameterIn::Header => takes.key |= parameter.name.eq_ignore_ascii_case(IDEMPOTENCY_KEY.as_str()),
                _ => {}
            }
        }
        takes
    }

    /// Refuses a parameter that the operation does not have. How a known one is written is left to the operation.
    fn check_query(&self, query: &str) -> Result<(), Problem> {
        let pairs: Vec<(String, String)> = serde_urlencoded::from_str(query).unwrap_or_default();
        let Some((name, _)) = pairs.iter().find(|(name, _)| !self.query.contains(name)) else { return Ok(()) };
        let known = match self.query.as_slice() {
            [] => "this operation has none".to_owned(),
            names => format!("this operation has {}", names.join(", ")),
        };
        Err(Problem::invalid(format!("the query: there is no parameter {name:?}; {known}")))
    }
}

/// The operations of a description.
#[derive(Debug)]
struct Described {
    state: Arc<State>,
    operations: HashMap<(Method, String), Takes>,
}

/// Adds to each operation the refusal of what its description does not name.
pub fn only_described(router: Router<Arc<State>>, document: &OpenApi, state: &Arc<State>) -> Router<Arc<State>> {
    let mut operations = HashMap::new();
    for (path, item) in &document.paths.paths {
        let of_path = [
            (Method::GET, &item.get),
            (Method::POST, &item.post),
            (Method::PUT, &item.put),
            (Method::PATCH, &item.patch),
            (Method::DELETE, &item.delete),
        ];
        for (method, operation) in of_path {
            if let Some(operation) = operation {
                operations.insert((method, path.clone()), Takes::of(operation));
            }
        }
    }
    let described = Arc::new(Described { state: Arc::clone(state), operations });
    router.layer(from_fn_with_state(described, check))
}

async fn check(Shared(described): Shared<Arc<Described>>, request: Request, next: Next) -> Response {
    let method = if *request.method() == Method::HEAD { Method::GET } else { request.method().clone() };
    let path = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    // An unknown method is answered further in.
    let Some(takes) = described.operations.get(&(method, path.unwrap_or_default())) else {
        return next.run(request).await;
    };
    match admitted(takes, request, &described.state).await {
        Ok(request) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

async fn admitted(takes: &Takes, request: Request, state: &Arc<State>) -> Result<Request, Problem> {
    takes.check_query(request.uri().query().unwrap_or_default())?;
    if !takes.key && request.headers().contains_key(IDEMPOTENCY_KEY) {
        let why = "this operation takes no Idempotency-Key, and nothing was done. A task is stored once by PUT under an id of \
                   /v1/ids; a transaction takes an `id`; what is done to one task may be repeated as it is";
        return Err(Error::new(ErrorCode::Unsupported, why).into());
    }
    if takes.body {
        return Ok(request);
    }
    let (parts, body) = request.into_parts();
    if http_body::Body::is_end_stream(&body) {
        return Ok(Request::from_parts(parts, body));
    }
    let whole = Whole::from_request(Request::new(body), state).await?;
    if !is_nothing(&whole.bytes) {
        return Err(Problem::invalid("this operation takes no body; leave it out, or send {}"));
    }
    Ok(Request::from_parts(parts, Body::empty()))
}

/// Whether a body says nothing: programs that always send JSON send an empty object, or null.
fn is_nothing(body: &[u8]) -> bool {
    let text = body.trim_ascii();
    let inner = text.strip_prefix(b"{").and_then(|text| text.strip_suffix(b"}"));
    text.is_empty() || text == b"null" || inner.is_some_and(|inner| inner.trim_ascii().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_object_says_nothing() {
        for nothing in ["", " \n", "{}", " { } \n", "null"] {
            assert!(is_nothing(nothing.as_bytes()), "{nothing:?}");
        }
        for something in ["{\"a\":1}", "[]", "{}{}", "{", "}", "nulls", "a"] {
            assert!(!is_nothing(something.as_bytes()), "{something:?}");
        }
    }
}
