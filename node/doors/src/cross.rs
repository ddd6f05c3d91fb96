//! Web pages of other origins that the operator allows (CORS), and what is asked of each request before it is let in.

use crate::problem::Problem;
use crate::state::State;
use axum::body::{Body, HttpBody};
use axum::extract::{Request, State as Shared};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::sync::Arc;

/// Methods of this door.
const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, PUT, PATCH, DELETE");
/// Headers of requests that this door reads.
const READ: HeaderValue = HeaderValue::from_static(
    "accept, authorization, content-type, idempotency-key, last-event-id, traceparent, tracestate, x-norn, x-request-id",
);
/// Headers of answers for the pages' programs, beside those that every page may read.
const SHOWN: HeaderValue = HeaderValue::from_static("location, retry-after, x-request-id");
/// How long a browser may remember what was allowed, in seconds.
const REMEMBERED_S: HeaderValue = HeaderValue::from_static("600");

/// Answers a browser's question ahead of a request of an allowed origin, and tells the browser that the page may read the answers. The
/// question comes without a certificate, and is answered without one. Other origins are refused where requests are let in.
pub async fn cross_origin(Shared(state): Shared<Arc<State>>, request: Request, next: Next) -> Response {
    if state.access.origins.is_empty() {
        return next.run(request).await;
    }
    let origin = allowed(&state, request.headers());
    let asks =
        *request.method() == Method::OPTIONS && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = match &origin {
        Some(_) if asks => ahead(),
        _ => next.run(request).await,
    };
    let headers = response.headers_mut();
    headers.append(header::VARY, HeaderValue::from_static("origin"));
    if let Some(origin) = origin {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        // A client's certificate is a credential.
        headers.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, SHOWN);
    }
    response
}

/// The origin of a request, if the operator allows it.
fn allowed(state: &State, headers: &HeaderMap) -> Option<HeaderValue> {
    let origin = headers.get(header::ORIGIN)?;
    state.access.origins.iter().any(|allowed| allowed.as_bytes() == origin.as_bytes()).then(|| origin.clone())
}

fn ahead() -> Response {
    let headers = [
        (header::ACCESS_CONTROL_ALLOW_METHODS, METHODS),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, READ),
        (header::ACCESS_CONTROL_MAX_AGE, REMEMBERED_S),
    ];
    (StatusCode::NO_CONTENT, headers, Body::empty()).into_response()
}

/// Refuses a body where it would mean nothing: it would be dropped unread, and the sender would not learn why nothing came of it.
/// Operations that are described refuse it themselves.
pub async fn no_vain_body(request: Request, next: Next) -> Response {
    let takes_none = [Method::GET, Method::HEAD, Method::DELETE].contains(request.method());
    // One of unknown length may be empty. It is read past, or its connection is closed.
    if takes_none && request.body().size_hint().lower() > 0 {
        let method = request.method();
        let why = format!("{method} takes no body; what it asks for stands in the path and the query");
        return Problem::invalid(why).into_response();
    }
    next.run(request).await
}

#[cfg(test)]
mod tests {
    use crate::access::Access;
    use crate::state::Bounds;
    use crate::testing::{Door, Script, Told};
    use axum::body::Body;
    use axum::http::{Method, Request, StatusCode};

    const SHOP: &str = "https://shop.example";

    fn door() -> Door {
        let access = Access { origins: vec![SHOP.to_owned()], ..Access::default() };
        Door::with(Bounds::default(), access, Script::default())
    }

    async fn ask(door: &Door, origin: &str) -> Told {
        let request = Request::options("/v1/tasks").header("origin", origin);
        let request = request.header("access-control-request-method", "POST");
        door.send(request.header("access-control-request-headers", "content-type").body(Body::empty()).unwrap()).await
    }

    #[tokio::test]
    async fn a_page_of_an_allowed_origin_is_told_what_it_may() {
        let answer = ask(&door(), SHOP).await;
        assert_eq!((answer.status, answer.body.as_str()), (StatusCode::NO_CONTENT, ""));
        assert_eq!(answer.header("access-control-allow-origin"), SHOP);
        assert!(answer.header("access-control-allow-methods").contains("PATCH"));
        assert!(answer.header("access-control-allow-headers").contains("content-type"));
        assert_eq!((answer.header("vary"), answer.header("access-control-max-age")), ("origin", "600"));
    }

    #[tokio::test]
    async fn pages_of_other_origins_are_told_nothing() {
        for origin in ["https://evil.example", "https://shop.example.evil.example", "null", "HTTPS://SHOP.EXAMPLE"] {
            let answer = ask(&door(), origin).await;
            assert_eq!(
                (answer.status, answer.json()["code"].as_str()),
                (StatusCode::FORBIDDEN, Some("denied")),
                "{origin}"
            );
            assert_eq!(answer.header("access-control-allow-origin"), "", "{origin}");
        }
        let closed = Door::new(Script::default());
        assert_eq!(ask(&closed, SHOP).await.status, StatusCode::FORBIDDEN);
    }

    #[tokio::test]
    async fn an_allowed_page_may_read_answers_and_refusals() {
        let door = door();
        for target in ["/v1/openapi.json", "/v1/nothing"] {
            let answer = door.send(Request::get(target).header("origin", SHOP).body(Body::empty()).unwrap()).await;
            assert_eq!(answer.header("access-control-allow-origin"), SHOP);
            assert!(answer.header("access-control-expose-headers").contains("x-request-id"));
        }
        let answer = door.get("/v1/openapi.json").await;
        assert_eq!((answer.header("access-control-allow-origin"), answer.header("vary")), ("", "origin"));
    }

    #[tokio::test]
    async fn a_body_where_none_is_read_is_refused() {
        let door = door();
        for method in [Method::GET, Method::DELETE] {
            // What takes no body takes an empty object.
            for (target, body) in [("/v1/schedules?name=x", "{\"a\":1}"), ("/taskstore/group/x", "{}")] {
                let answer = door.call(method.clone(), target, body).await;
                let is_there = method == Method::GET || target.starts_with("/v1");
                let expected = if is_there { StatusCode::BAD_REQUEST } else { StatusCode::METHOD_NOT_ALLOWED };
                assert_eq!(answer.status, expected, "{target}: {}", answer.body);
                assert!(!is_there || answer.json()["detail"].as_str().unwrap().contains("takes no body"));
            }
        }
    }

    #[tokio::test]
    async fn a_method_that_a_place_does_not_take_is_the_greater_fault_than_its_body() {
        let door = door();
        let answer = door.call(Method::GET, "/v1/redrive", "{}").await;
        assert_eq!((answer.status, answer.header("allow")), (StatusCode::METHOD_NOT_ALLOWED, "POST"));
        assert!(answer.json()["detail"].as_str().unwrap().contains("does not take GET"));
        assert_eq!(door.call(Method::DELETE, "/v1/nothing", "{}").await.status, StatusCode::NOT_FOUND);
    }
}
