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
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::OwnedSemaphorePermit;

/// Memory that is taken from the budget ahead of a body that comes in pieces.
const CHUNK_BYTES: usize = 64 << 10;
/// Most objects in a body: a batch of completions with as many children as they may have, each with headers.
const OBJECTS_MAX: usize = 1 << 18;
/// Most values in a body, with the names of members.
const VALUES_MAX: usize = 1 << 21;
/// Memory that an object takes once it is parsed, and any other value, beside its text.
const OBJECT_BYTES: usize = 512;
const VALUE_BYTES: usize = 32;

/// Memory that a request has taken from the budget, until its handler has ended.
#[derive(Debug, Clone, Default)]
pub struct Charges(Arc<Mutex<Vec<OwnedSemaphorePermit>>>);

impl Charges {
    fn add(&self, memory: Option<OwnedSemaphorePermit>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(memory);
    }
}

/// The whole body of a request, and the memory that it takes from the budget for as long as it lives.
#[derive(Debug)]
pub struct Whole {
    /// The body.
    pub bytes: Bytes,
    memory: Option<OwnedSemaphorePermit>,
}

impl FromRequest<Arc<State>> for Whole {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &Arc<State>) -> Result<Self, Problem> {
        let is_json = expect_json(request.headers()).is_ok();
        let mut whole = read(request.into_body(), state).await?;
        if is_json {
            whole.charge(state)?;
        }
        Ok(whole)
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
        let (mut body, mut bytes, mut memory) = (body, BytesMut::new(), None);
        let mut held_bytes = 0;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| Problem::invalid(format!("the body broke off: {error}")))?;
            let Ok(data) = frame.into_data() else { continue };
            let needed_bytes = bytes.len() + data.len();
            if needed_bytes > bytes_max {
                return Err(too_large());
            }
            if needed_bytes > held_bytes {
                // A body takes memory as it comes: one that only announces its length takes none from others.
                let announced_bytes = usize::try_from(announced).unwrap_or(usize::MAX);
                let ahead_bytes = (held_bytes + CHUNK_BYTES).min(announced_bytes).max(needed_bytes) - held_bytes;
                let units = ahead_bytes.div_ceil(BUDGET_UNIT_BYTES);
                join(&mut memory, take(state, units)?);
                held_bytes += units * BUDGET_UNIT_BYTES;
            }
            bytes.extend_from_slice(&data);
        }
        Ok(Whole { bytes: bytes.freeze(), memory })
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

fn join(memory: &mut Option<OwnedSemaphorePermit>, more: OwnedSemaphorePermit) {
    match memory {
        Some(memory) => memory.merge(more),
        None => *memory = Some(more),
    }
}

/// Counts objects, and all values with the names of members, without parsing: of JSON that is well formed, at least what parsing makes.
fn shape(bytes: &[u8]) -> (usize, usize) {
    let (mut objects, mut values) = (0, 1);
    let mut rest = bytes.iter();
    while let Some(byte) = rest.next() {
        match byte {
            b'{' => (objects, values) = (objects + 1, values + 1),
            b'[' | b',' | b':' => values += 1,
            b'"' => {
                while let Some(byte) = rest.next() {
                    match byte {
                        b'"' => break,
                        b'\\' => drop(rest.next()),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    (objects, values)
}

impl Whole {
    /// Takes the memory from the budget that parsing will take, or refuses the body if that is too much.
    fn charge(&mut self, state: &State) -> Result<(), Problem> {
        let (objects, values) = shape(&self.bytes);
        if objects > OBJECTS_MAX || values > VALUES_MAX {
            let detail = format!("a body has at most {OBJECTS_MAX} objects and {VALUES_MAX} values; send less at once");
            return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", Retry::Never, detail));
        }
        let whole_bytes = self.bytes.len() + objects * OBJECT_BYTES + values * VALUE_BYTES;
        if whole_bytes <= BUDGET_UNIT_BYTES {
            // What every request takes. The number of requests bounds it, and a budget for bodies must not bound calls that wait.
            self.memory = None;
            return Ok(());
        }
        // A body that would take more than there is in all is served alone.
        let units = whole_bytes.div_ceil(BUDGET_UNIT_BYTES).min(state.bounds.budget_units());
        let held_units = self.memory.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        if units > held_units {
            join(&mut self.memory, take(state, units - held_units)?);
        }
        Ok(())
    }

    /// Reads JSON. What it takes is charged until the handler has ended, as the parsed value lives as long.
    async fn of_json(request: Request, state: &State) -> Result<Whole, Problem> {
        expect_json(request.headers())?;
        let charges = request.extensions().get::<Charges>().cloned();
        let mut whole = read(request.into_body(), state).await?;
        whole.charge(state)?;
        if let Some(charges) = charges {
            charges.add(whole.memory.take());
        }
        Ok(whole)
    }
}

/// A JSON body. The media type may be left out, or be that of forms, as simple tools send it; a refusal names the field and its place.
#[derive(Debug)]
pub struct JsonBody<T>(pub T);

impl<T: DeserializeOwned> FromRequest<Arc<State>> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &Arc<State>) -> Result<Self, Problem> {
        let whole = Whole::of_json(request, state).await?;
        parse(&whole.bytes).map(JsonBody)
    }
}

/// As [`JsonBody`]; an empty body is the default, and so is `null`, which is what generated clients send for a body that was left out.
#[derive(Debug)]
pub struct JsonBodyIfAny<T>(pub T);

impl<T: DeserializeOwned + Default> FromRequest<Arc<State>> for JsonBodyIfAny<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &Arc<State>) -> Result<Self, Problem> {
        let whole = Whole::of_json(request, state).await?;
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
    use super::*;
    use crate::access::Access;
    use crate::state::Bounds;
    use crate::testing::{Door, Script};
    use axum::http::{Method, Request as HttpRequest};

    #[test]
    fn what_parsing_makes_is_counted_without_parsing() {
        for (text, expected) in [
            ("1", (0, 1)),
            ("[1,2,3]", (0, 4)),
            (r#"{"a":1,"b":[{},{}]}"#, (3, 9)),
            (r#""{[,:\"{{{""#, (0, 1)),
            (r#"{"a\\":"}","b":2}"#, (1, 5)),
            ("\"never ends {", (0, 1)),
        ] {
            assert_eq!(shape(text.as_bytes()), expected, "{text}");
        }
    }

    #[tokio::test]
    async fn a_body_of_very_many_items_is_refused_before_it_is_parsed() {
        let door = Door::new(Script::default());
        let many = format!("[{}{{}}]", "{},".repeat(OBJECTS_MAX));
        for path in ["/v1/tasks", "/v1/claims/complete", "/v1/transactions"] {
            let answer = door.call(Method::POST, path, &many).await;
            let (status, body) = (answer.status, answer.json());
            assert_eq!((status, body["code"].as_str()), (StatusCode::PAYLOAD_TOO_LARGE, Some("too_large")), "{path}");
            assert!(body["detail"].as_str().unwrap().contains("objects"), "{body}");
        }
    }

    #[tokio::test]
    async fn the_largest_body_fits_into_a_budget_of_its_size() {
        let bounds = Bounds { body_bytes_max: 100_001, bodies_bytes_max: 100_001, ..Bounds::default() };
        let door = Door::with(bounds, Access::default(), Script::default());
        for (bytes, status) in [(100_001, StatusCode::NOT_IMPLEMENTED), (100_002, StatusCode::PAYLOAD_TOO_LARGE)] {
            let request = HttpRequest::post("/v1/tasks?queue=mail").header("content-type", "application/octet-stream");
            let answer = door.send(request.body(Body::from(vec![b'x'; bytes])).unwrap()).await;
            assert_eq!(answer.status, status, "{}", answer.body);
        }
        let tasks = vec![r#"{"queue":"mail"}"#; 1_000].join(",");
        let answer = door.call(Method::POST, "/v1/tasks", &format!("[{tasks}]")).await;
        assert_eq!(answer.status, StatusCode::NOT_IMPLEMENTED, "it takes all there is, alone: {}", answer.body);
    }

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
