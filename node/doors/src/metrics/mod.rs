//! `/metrics`: what Prometheus and its like read, in the format of OpenMetrics.
//!
//! A scrape waits for nothing for long: what the node does not tell in time is left out, and `norn_scrape_incomplete` says so. Each node
//! tells of what it leads, so that sums over nodes count everything once. Labels are of fixed sets, but for queues and members, and these
//! are bounded.

pub mod measures;
pub mod meters;
mod process;
mod scrape;
pub mod table;
#[cfg(test)]
mod tests;
pub mod times;

use crate::body::Query;
use crate::problem::Problem;
use crate::state::{Phase, State};
use axum::Router;
use axum::extract::State as Shared;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use norn_wire::{Error, ErrorCode, Retry};
use process::Process;
use scrape::{Queues, Scrape};
use serde::Deserialize;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Time for what the node and the disk have to be asked for.
const ASK_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest pattern of queues.
const PATTERN_BYTES_MAX: usize = 255;
const MEDIA_TYPE: HeaderValue = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");

/// The route.
pub fn router() -> Router<Arc<State>> {
    Router::new().route("/metrics", get(metrics))
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Which {
    queue: Option<String>,
}

async fn metrics(Shared(state): Shared<Arc<State>>, Query(which): Query<Which>) -> Result<Response, Problem> {
    let text = match which.queue {
        None => whole(&state).await,
        Some(pattern) if pattern.is_empty() || pattern.len() > PATTERN_BYTES_MAX => {
            return Err(Problem::invalid("queue: a name, or the begin of names and `*`, of at most 255 bytes"));
        }
        Some(pattern) => of_queues(&state, pattern).await?,
    };
    let text = text.map_err(|_| {
        let why = "the metrics could not be written; see the node's log";
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", Retry::Later, why)
    })?;
    Ok(([(header::CONTENT_TYPE, MEDIA_TYPE)], text).into_response())
}

/// All metrics, and the first queues by name.
async fn whole(state: &State) -> Result<String, std::fmt::Error> {
    let mut scrape = Scrape::default();
    let phase = state.phase.borrow().clone();
    let is_ready = matches!(phase, Phase::Running(_));
    let mut is_incomplete = false;
    if let Phase::Running(host) | Phase::Draining(host) = phase {
        let ask = |host: Arc<dyn crate::state::Host>| async move {
            let told = tokio::time::timeout(ASK_TIMEOUT, host.measures()).await;
            told.ok().flatten()
        };
        let look = tokio::time::timeout(ASK_TIMEOUT, host.surroundings());
        let (measures, surroundings) = tokio::join!(ask(Arc::clone(&host)), look);
        // Last, so that what was counted meanwhile is in.
        scrape.take_host(&host.counters(), host.log_syncs());
        let surroundings = surroundings.ok().flatten();
        is_incomplete = measures.is_none() || surroundings.is_none();
        if let Some(measures) = measures {
            scrape.take_measures(&measures);
            scrape.take_queues(&measures, &Queues::First(state.bounds.metrics_queues));
        }
        surroundings.iter().for_each(|surroundings| scrape.take_surroundings(surroundings, now_s()));
    }
    scrape.take_meters(&state.meters);
    scrape.take_process(Process::look(), env!("CARGO_PKG_VERSION"));
    scrape.take_standing(is_ready, is_incomplete);
    scrape.encode()
}

/// The metrics of queues that match a pattern, and nothing else, so that a second job repeats no series of the first.
async fn of_queues(state: &State, pattern: String) -> Result<Result<String, std::fmt::Error>, Problem> {
    let phase = state.phase.borrow().clone();
    let late = |why: &str| Problem::from(Error::new(ErrorCode::NotReady, why));
    let (Phase::Running(host) | Phase::Draining(host)) = phase else {
        return Err(late("the node is reading its log; try again in a moment"));
    };
    let told = tokio::time::timeout(ASK_TIMEOUT, host.measures()).await;
    let measures = told.ok().flatten().ok_or_else(|| late("the node did not tell in time; try again later"))?;
    let mut scrape = Scrape::default();
    scrape.take_queues(&measures, &Queues::Matching(pattern));
    Ok(scrape.encode())
}

fn now_s() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.ok().and_then(|since| i64::try_from(since.as_secs()).ok()).unwrap_or(0)
}
