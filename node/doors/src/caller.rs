//! What handlers take from a request: the client that makes its calls, and the task in its path.

use crate::access::Principal;
use crate::gate::Pass;
use crate::metrics::meters::Present;
use crate::problem::Problem;
use crate::state::State;
use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use norn_client::client::Client;
use norn_wire::{TaskId, Token};
use std::ops::Deref;
use std::str::FromStr;
use std::sync::Arc;

/// A client for calls that are answered as soon as possible.
#[derive(Debug)]
pub struct Short {
    pass: Pass,
    state: Arc<State>,
}

impl Short {
    /// Waits until the node is about to stop.
    pub async fn draining(&self) {
        self.state.draining().await;
    }
}

/// A client for one call that waits. Dropping it with the call releases what the call was granted.
#[derive(Debug)]
pub struct Waiting {
    pass: Pass,
    _counted: Present,
}

impl Deref for Short {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.pass
    }
}

impl Deref for Waiting {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.pass
    }
}

impl FromRequestParts<Arc<State>> for Short {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &Arc<State>) -> Result<Self, Problem> {
        let Principal(name) = Principal::from_request_parts(parts, state).await?;
        Ok(Short { pass: state.gate()?.short(&name)?, state: Arc::clone(state) })
    }
}

impl FromRequestParts<Arc<State>> for Waiting {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &Arc<State>) -> Result<Self, Problem> {
        let Principal(name) = Principal::from_request_parts(parts, state).await?;
        Ok(Waiting { pass: state.gate()?.waiting(&name)?, _counted: state.meters.long_polls.enter() })
    }
}

/// The task that the path names as `{id}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskAt(pub TaskId);

impl<S: Sync + Send> FromRequestParts<S> for TaskAt {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        segment(parts, state, "id").await.map(TaskAt)
    }
}

/// The claim that the path names as `{id}` and `{token}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClaimAt(pub TaskId, pub Token);

impl<S: Sync + Send> FromRequestParts<S> for ClaimAt {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        Ok(ClaimAt(segment(parts, state, "id").await?, segment(parts, state, "token").await?))
    }
}

/// The entry of a log that the path names as `{n}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryAt(pub u32);

impl<S: Sync + Send> FromRequestParts<S> for EntryAt {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        segment(parts, state, "n").await.map(EntryAt)
    }
}

/// Parses a segment of the path.
pub async fn segment<T: FromStr<Err: std::fmt::Display>, S: Sync + Send>(
    parts: &mut Parts,
    state: &S,
    name: &str,
) -> Result<T, Problem> {
    let wrong = |why: &dyn std::fmt::Display| Problem::invalid(format!("{name} in the path: {why}"));
    let segments = RawPathParams::from_request_parts(parts, state).await.map_err(|error| wrong(&error))?;
    let text = segments.iter().find(|(given, _)| *given == name).map(|(_, text)| text);
    text.unwrap_or_default().parse().map_err(|error| wrong(&error))
}
