//! Errors as problem documents (RFC 9457): `application/problem+json` with a status, and Norn's own `code`, `retry` and `id`.

use crate::request::current_id;
use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use norn_wire::{Error, ErrorCode, Retry, TaskId};
use serde::Serialize;
use std::borrow::Cow;
use std::collections::BTreeMap;
use utoipa::openapi::{self, RefOr};

/// Pause that is advised where a repeat helps and no better time is known.
const RETRY_AFTER_S: u64 = 1;
/// Media type of problem documents.
pub const MEDIA_TYPE: HeaderValue = HeaderValue::from_static("application/problem+json");

/// A refusal or failure as the body of an answer. Members that do not apply are left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Problem {
    /// Always `about:blank`: `code` tells what happened.
    #[serde(rename = "type")]
    #[schema(example = "about:blank")]
    pub kind: &'static str,
    /// Short text of the status.
    #[schema(value_type = String, example = "Bad Request")]
    pub title: Cow<'static, str>,
    /// Status of the answer.
    #[schema(example = 400)]
    pub status: u16,
    /// What happened and what to do, for people.
    pub detail: String,
    /// What happened, for programs: a code of a node (`invalid`, `not_found`, `superseded`, ...), or one of the door:
    /// `unauthenticated`, `no_route`, `method`, `media_type`, `too_large`, `slow`, `key_reused`.
    #[schema(value_type = String, example = "invalid")]
    pub code: Cow<'static, str>,
    /// Whether repeating the same request can help: `now`, `later` after a pause, or `never`.
    #[schema(value_type = String, example = "never")]
    pub retry: Retry,
    /// The task in question. With the code `unknown`, a repeat under this id takes effect once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub id: Option<String>,
    /// Milliseconds during which repeating does not help.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after_ms: Option<u64>,
    /// Id of the request, as in the node's log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
}

/// Statuses of refusals, with the names and descriptions of their answers.
const REFUSALS: [(u16, &str, &str); 14] = [
    (400, "Invalid", "`invalid`: the request is not well formed; `detail` names the field or the parameter."),
    (401, "Unauthenticated", "`unauthenticated`: the caller has shown no certificate of the cluster."),
    (403, "Denied", "`denied`: the caller may not do this."),
    (404, "NotFound", "`not_found`: there is no such thing."),
    (408, "Slow", "`slow`: the body took too long."),
    (409, "Conflict", "`conflict`, `superseded`, `ended` or `id_from_future`: what is there does not allow this."),
    (410, "TooOld", "`too_old`: the id is older than what is forgotten; take another."),
    (413, "TooLarge", "`too_large`: the body is larger than this node takes."),
    (415, "MediaType", "`media_type`: the body is of a type that the operation does not read."),
    (422, "KeyReused", "`key_reused`: the `Idempotency-Key` was given with another request before."),
    (429, "Overloaded", "`overloaded`: nothing was changed; try again as `Retry-After` says."),
    (501, "Unsupported", "`unsupported`: this is not done, and nothing was changed."),
    (
        503,
        "Unavailable",
        "`unavailable`, `not_ready`, `no_space`, `stale` or `clock_ahead`: try again as `Retry-After` says, or elsewhere.",
    ),
    (504, "Unknown", "`unknown`: the change may have taken effect; repeat it under the `id` of the answer."),
];

/// The answers with refusals, for the components of a description.
pub fn refusals() -> impl Iterator<Item = (String, RefOr<openapi::Response>)> {
    let response = |description: &str| {
        let schema = openapi::Ref::from_schema_name("Problem");
        let content = openapi::ContentBuilder::new().schema(Some(schema)).build();
        openapi::ResponseBuilder::new().description(description).content("application/problem+json", content).build()
    };
    let named = REFUSALS.into_iter().map(move |(_, name, description)| (name.to_owned(), response(description)));
    let other = ("Refused".to_owned(), response("Any other refusal or failure; `code` says what happened."));
    named.chain([other]).map(|(name, response)| (name, RefOr::T(response)))
}

/// Defines the refusals of a kind of operations, for their descriptions.
macro_rules! refused_with {
    ($($(#[$doc:meta])* $name:ident: $($status:literal)+;)+) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name;

        impl utoipa::IntoResponses for $name {
            fn responses() -> BTreeMap<String, RefOr<openapi::Response>> {
                let of = |(status, name, _): &(u16, &str, &str)| {
                    (status.to_string(), openapi::Ref::from_response_name(*name).into())
                };
                let own = REFUSALS.iter().filter(|(status, _, _)| [$($status),+].contains(status)).map(of);
                own.chain([("default".to_owned(), openapi::Ref::from_response_name("Refused").into())]).collect()
            }
        }
    )+};
}

refused_with! {
    /// Of a read of what is always there.
    Problems: 400 401 403 429 501 503;
    /// Of a read of one thing.
    ReadProblems: 400 401 403 404 429 501 503;
    /// Of a change.
    WriteProblems: 400 401 403 404 409 410 429 501 503 504;
    /// Of a change with a body.
    BodyProblems: 400 401 403 404 408 409 410 413 415 429 501 503 504;
    /// Of a request under a key.
    KeyedProblems: 400 401 403 404 408 409 410 413 415 422 429 501 503 504;
}

/// The code of an answer, for those who count answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome(pub Cow<'static, str>);

impl Problem {
    /// A problem of the door itself.
    pub fn new(status: StatusCode, code: &'static str, retry: Retry, detail: impl Into<String>) -> Problem {
        Problem {
            kind: "about:blank",
            title: status.canonical_reason().unwrap_or("Error").into(),
            status: status.as_u16(),
            detail: detail.into(),
            code: code.into(),
            retry,
            id: None,
            after_ms: None,
            instance: current_id(),
        }
    }

    /// A request that is not well formed.
    pub fn invalid(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, "invalid", Retry::Never, detail)
    }

    /// Names the task in question.
    #[must_use]
    pub fn about(self, id: TaskId) -> Problem {
        Problem { id: Some(id.to_string()), ..self }
    }

    /// Status of the answer.
    pub fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }
}

/// Status of an error of a node.
pub fn status_of(code: ErrorCode) -> StatusCode {
    match code {
        ErrorCode::Invalid => StatusCode::BAD_REQUEST,
        ErrorCode::NotFound => StatusCode::NOT_FOUND,
        ErrorCode::Conflict | ErrorCode::Superseded | ErrorCode::Ended | ErrorCode::IdFromFuture => {
            StatusCode::CONFLICT
        }
        ErrorCode::TooOld => StatusCode::GONE,
        ErrorCode::Denied => StatusCode::FORBIDDEN,
        ErrorCode::Overloaded => StatusCode::TOO_MANY_REQUESTS,
        ErrorCode::Unsupported => StatusCode::NOT_IMPLEMENTED,
        ErrorCode::NotReady
        | ErrorCode::ClockAhead
        | ErrorCode::NoSpace
        | ErrorCode::Unavailable
        | ErrorCode::Stale => StatusCode::SERVICE_UNAVAILABLE,
        ErrorCode::Unknown => StatusCode::GATEWAY_TIMEOUT,
    }
}

/// The name of a code in JSON.
pub fn name_of(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::Invalid => "invalid",
        ErrorCode::NotFound => "not_found",
        ErrorCode::Conflict => "conflict",
        ErrorCode::Superseded => "superseded",
        ErrorCode::Ended => "ended",
        ErrorCode::IdFromFuture => "id_from_future",
        ErrorCode::ClockAhead => "clock_ahead",
        ErrorCode::TooOld => "too_old",
        ErrorCode::Denied => "denied",
        ErrorCode::NotReady => "not_ready",
        ErrorCode::Overloaded => "overloaded",
        ErrorCode::NoSpace => "no_space",
        ErrorCode::Unavailable => "unavailable",
        ErrorCode::Unknown => "unknown",
        ErrorCode::Stale => "stale",
        ErrorCode::Unsupported => "unsupported",
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Problem {
        let Error { code, message, retry, id, after_ms, cause: _ } = error;
        let problem = Problem::new(status_of(code), name_of(code), retry, message);
        // Readers of JSON may have no larger integer. An id of any future names longer times.
        let after_ms = after_ms.map(|after_ms| after_ms.min(i64::MAX.unsigned_abs()));
        Problem { id: id.map(|id| id.to_string()), after_ms, ..problem }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let (status, outcome) = (self.status(), Outcome(self.code.clone()));
        let waits = matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT
        );
        let pause_s = self.after_ms.map_or(RETRY_AFTER_S, |after_ms| after_ms.div_ceil(1_000).max(1));
        let problem = self.clone();
        let mut response = (status, Json(self)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, MEDIA_TYPE);
        if waits {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(pause_s));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Certificate"));
        }
        response.extensions_mut().insert(outcome);
        // For doors with a form of their own.
        response.extensions_mut().insert(problem);
        response
    }
}

/// All codes of nodes.
#[cfg(test)]
pub const CODES: [ErrorCode; 16] = [
    ErrorCode::Invalid,
    ErrorCode::NotFound,
    ErrorCode::Conflict,
    ErrorCode::Superseded,
    ErrorCode::Ended,
    ErrorCode::IdFromFuture,
    ErrorCode::ClockAhead,
    ErrorCode::TooOld,
    ErrorCode::Denied,
    ErrorCode::NotReady,
    ErrorCode::Overloaded,
    ErrorCode::NoSpace,
    ErrorCode::Unavailable,
    ErrorCode::Unknown,
    ErrorCode::Stale,
    ErrorCode::Unsupported,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_has_its_name_in_json_and_an_error_status() {
        for code in CODES {
            assert_eq!(serde_json::to_value(code).unwrap(), name_of(code));
            assert!(status_of(code).is_client_error() || status_of(code).is_server_error());
        }
    }

    #[test]
    fn a_pause_fits_into_the_integers_that_every_reader_has() {
        let problem = Problem::from(Error::new(ErrorCode::IdFromFuture, "x").after(u64::MAX));
        assert_eq!(problem.after_ms, Some(i64::MAX.unsigned_abs()));
    }

    #[test]
    fn an_answer_that_asks_for_a_pause_says_how_long() {
        let error = Error::new(ErrorCode::Overloaded, "full").after(1_500);
        let response = Problem::from(error).into_response();
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(response.headers()[header::RETRY_AFTER], "2");
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/problem+json");
        for code in CODES {
            let response = Problem::from(Error::new(code, "x")).into_response();
            let waits = [429, 503, 504].contains(&response.status().as_u16());
            assert_eq!(response.headers().contains_key(header::RETRY_AFTER), waits, "{code:?}");
        }
    }
}
