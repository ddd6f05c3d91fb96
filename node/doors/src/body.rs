//! Bodies and queries of requests: read within bounds of size, memory and time, and parsed with errors that name the fault.

use crate::problem::Problem;
use crate::state::{BUDGET_UNIT_BYTES, State};
use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use norn_wire::{Error, ErrorCode, Retry};
use serde::de::DeserializeOwned;
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;

/// The whole body of a request, and the memory that it takes from the budget for as long as it lives.
#[derive(Debug)]
pub struct Whole {
    /// The body.
    pub bytes: Bytes,
    _memory: Vec<OwnedSemaphorePermit>,
}

impl FromRequest<Arc<State>> for Whole {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &Arc<State>) -> Result<Self, Problem> {
        read(request.into_body(), state).await
    }
}

/// Reads a body. Refuses one that is too large before it takes its memory.
async fn read(body: Body, state: &State) -> Result<Whole, Problem> {
    let bytes_max = state.bounds.body_bytes_max;
    let too_large = || {
        let detail = format!("a body has at most {bytes_max} bytes");
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", Retry::Never, detail)
    };
    let announced = http_body::Body::size_hint(&body).lower();
    if announced > bytes_max as u64 {
        return Err(too_large());
    }
    let reading = async {
        let (mut body, mut bytes, mut memory) = (body, BytesMut::new(), Vec::new());
        let mut held_bytes = 0;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| Problem::invalid(format!("the body broke off: {error}")))?;
            let Ok(data) = frame.into_data() else { continue };
            if bytes.len() + data.len() > bytes_max {
                return Err(too_large());
            }
            let needed_bytes = (bytes.len() + data.len()).saturating_sub(held_bytes);
            if needed_bytes > 0 {
                // A body that announces its length takes its memory once.
                let ahead_bytes = usize::try_from(announced).unwrap_or(0).saturating_sub(held_bytes).max(needed_bytes);
                let units = ahead_bytes.div_ceil(BUDGET_UNIT_BYTES);
                memory.push(take(state, units)?);
                held_bytes += units * BUDGET_UNIT_BYTES;
            }
            bytes.extend_from_slice(&data);
        }
        Ok(Whole { bytes: bytes.freeze(), _memory: memory })
    };
    let timeout = state.bounds.body_timeout;
    tokio::time::timeout(timeout, reading).await.unwrap_or_else(|_| {
        let detail = format!("the body did not arrive within {} s", timeout.as_secs());
        Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "slow", Retry::Later, detail))
    })
}

fn take(state: &State, units: usize) -> Result<OwnedSemaphorePermit, Problem> {
    let full = || Error::new(ErrorCode::Overloaded, "the node has no memory for another body; try again later");
    let units = u32::try_from(units).map_err(|_| full())?;
    Ok(Arc::clone(&state.bodies).try_acquire_many_owned(units).map_err(|_| full())?)
}

/// A JSON body. The media type may be left out, or be that of forms, as simple tools send it; a refusal names the field and its place.
#[derive(Debug)]
pub struct JsonBody<T>(pub T);

impl<T: DeserializeOwned> FromRequest<Arc<State>> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &Arc<State>) -> Result<Self, Problem> {
        expect_json(request.headers())?;
        let whole = read(request.into_body(), state).await?;
        parse(&whole.bytes).map(JsonBody)
    }
}

/// As [`JsonBody`]; an empty body is the default, and so is `null`, which is what generated clients send for a body that was left out.
#[derive(Debug)]
pub struct JsonBodyIfAny<T>(pub T);

impl<T: DeserializeOwned + Default> FromRequest<Arc<State>> for JsonBodyIfAny<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &Arc<State>) -> Result<Self, Problem> {
        expect_json(request.headers())?;
        let whole = read(request.into_body(), state).await?;
        if whole.bytes.is_empty() {
            return Ok(JsonBodyIfAny(T::default()));
        }
        parse::<Option<T>>(&whole.bytes).map(|input| JsonBodyIfAny(input.unwrap_or_default()))
    }
}

/// Media type of a request without its parameters, in lower case; empty if there is none.
pub fn media_type(headers: &HeaderMap) -> String {
    let text = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Refuses a body of another media type than JSON.
pub fn expect_json(headers: &HeaderMap) -> Result<(), Problem> {
    let given = media_type(headers);
    let is_json = given == "application/json" || given.starts_with("application/") && given.ends_with("+json");
    if is_json || given.is_empty() || given == "application/x-www-form-urlencoded" {
        return Ok(());
    }
    let detail = format!("the body is to be application/json, not {given}");
    Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "media_type", Retry::Never, detail))
}

/// Parses JSON.
pub fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(bytes).map_err(|error| Problem::invalid(format!("the body: {error}")))
}

/// Parameters of the query. An unknown one is refused if the type denies unknown fields, and one given twice always is.
#[derive(Debug)]
pub struct Query<T>(pub T);

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let text = parts.uri.query().unwrap_or_default();
        serde_urlencoded::from_str(text).map(Query).map_err(|error| Problem::invalid(format!("the query: {error}")))
    }
}

/// Parameters of the query, and headers of a task beside them: `header=NAME=VALUE`, once for each header.
#[derive(Debug)]
pub struct QueryWithHeaders<T>(pub T, pub Vec<(String, String)>);

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for QueryWithHeaders<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let wrong = |error: &dyn std::fmt::Display| Problem::invalid(format!("the query: {error}"));
        let text = parts.uri.query().unwrap_or_default();
        let pairs: Vec<(String, String)> = serde_urlencoded::from_str(text).map_err(|error| wrong(&error))?;
        let (given, pairs): (Vec<_>, Vec<_>) = pairs.into_iter().partition(|(name, _)| name == "header");
        let mut headers: Vec<(String, String)> = Vec::with_capacity(given.len());
        for (_, header) in given {
            let Some((name, value)) = header.split_once('=') else {
                return Err(wrong(&"a header is given as header=NAME=VALUE"));
            };
            if headers.iter().any(|(other, _)| other == name) {
                return Err(wrong(&format!("header {name:?} is given twice; a name has one value")));
            }
            headers.push((name.to_owned(), value.to_owned()));
        }
        let rest = serde_urlencoded::to_string(pairs).map_err(|error| wrong(&error))?;
        let parameters = serde_urlencoded::from_str(&rest).map_err(|error| wrong(&error))?;
        Ok(QueryWithHeaders(parameters, headers))
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{Door, Script};
    use axum::http::{Method, StatusCode};

    #[tokio::test]
    async fn a_body_that_may_be_left_out_may_be_null() {
        let door = Door::new(Script::default());
        let cancel = "/v1/tasks/000038fxj5g21b4sg6y000800g17ne5m/cancel";
        for (body, is_read) in [("", true), ("null", true), ("{}", true), ("[]", false), ("0", false)] {
            let answer = door.call(Method::POST, cancel, body).await;
            assert_eq!(answer.status != StatusCode::BAD_REQUEST, is_read, "{body}: {}", answer.body);
        }
    }
}
