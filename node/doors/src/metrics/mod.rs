//! `/metrics`: what Prometheus and its like read, in the format of OpenMetrics.
//!
//! A scrape waits for nothing for long: of what the node does not tell in time the last is shown, or nothing, and
//! `norn_measures_age_seconds` and `norn_scrape_incomplete` say so. One scrape is made at a time, and serves all that come meanwhile.
//! Each node tells of what it leads, so that sums over nodes count everything once. Labels are of fixed sets, but for queues and members,
//! and these are bounded.

pub mod measures;
pub mod meters;
mod process;
mod scrape;
pub mod table;
#[cfg(test)]
mod tests;

use crate::body::Query;
use crate::problem::Problem;
use crate::state::{Host, Phase, State};
use axum::Router;
use axum::body::Body;
use axum::extract::State as Shared;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use measures::Measures;
use norn_wire::{Error, ErrorCode, Retry};
use process::Process;
use scrape::{Queues, Scrape};
use serde::Deserialize;
use std::fmt;
use std::sync::{Arc, Mutex as Short, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

/// Time for what the node and the disk have to be asked for.
const ASK_TIMEOUT: Duration = Duration::from_secs(2);
/// Time to wait for another scrape to end.
const TURN_TIMEOUT: Duration = Duration::from_secs(5);
/// Age up to which a scrape serves those that come while the next one is made.
const SHARED: Duration = Duration::from_secs(1);
/// Age up to which measures are told where measuring takes longer than a scrape waits.
const MEASURES_KEPT: Duration = Duration::from_secs(60);
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

/// What scrapes share.
#[derive(Debug, Default)]
pub struct Scrapes {
    /// Held by the scrape that is made.
    turn: Mutex<Asked>,
    last: Short<Option<Last>>,
}

/// The last scrape.
#[derive(Debug)]
struct Last {
    made_at: Instant,
    pattern: Option<String>,
    text: Bytes,
}

/// What the node was asked for.
#[derive(Debug, Default)]
struct Asked {
    /// The question under way. It goes on when a scrape waits no longer, so that a node that takes long tells the next one.
    question: Option<JoinHandle<Option<Measured>>>,
    last: Option<Measured>,
}

/// Measures, and when the node told them.
#[derive(Debug, Clone)]
struct Measured {
    told_at: Instant,
    measures: Arc<Measures>,
}

impl Scrapes {
    /// A scrape that serves another one now, too.
    fn recent(&self, pattern: Option<&String>) -> Option<Bytes> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let recent = last.as_ref().filter(|last| last.pattern.as_ref() == pattern && last.made_at.elapsed() <= SHARED);
        recent.map(|last| last.text.clone())
    }

    fn keep(&self, pattern: Option<String>, text: Bytes) {
        let last = Last { made_at: Instant::now(), pattern, text };
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(last);
    }
}

impl Asked {
    /// What the node tells in time, or told a while ago, with its age.
    async fn measures(&mut self, host: &Arc<dyn Host>) -> Option<(Arc<Measures>, Duration)> {
        if self.question.as_ref().is_some_and(JoinHandle::is_finished) {
            self.answered().await;
        }
        let question = self.question.get_or_insert_with(|| {
            let host = Arc::clone(host);
            tokio::spawn(async move {
                let measures = host.measures().await?;
                Some(Measured { told_at: Instant::now(), measures })
            })
        });
        let begin = Instant::now();
        if let Ok(told) = timeout(ASK_TIMEOUT, &mut *question).await {
            self.question = None;
            self.last = told.ok().flatten();
        }
        let Measured { told_at, measures } = self.last.as_ref()?;
        let age = begin.saturating_duration_since(*told_at);
        (age <= MEASURES_KEPT).then(|| (Arc::clone(measures), age))
    }

    /// Takes the answer to a question that has ended.
    async fn answered(&mut self) {
        if let Some(question) = self.question.take() {
            self.last = question.await.ok().flatten();
        }
    }
}

async fn metrics(Shared(state): Shared<Arc<State>>, Query(which): Query<Which>) -> Result<Response, Problem> {
    let pattern = which.queue;
    if pattern.as_ref().is_some_and(|pattern| pattern.is_empty() || pattern.len() > PATTERN_BYTES_MAX) {
        return Err(Problem::invalid("queue: a name, or the begin of names and `*`, of at most 255 bytes"));
    }
    let scrapes = &state.scrapes;
    let mut turn = match scrapes.turn.try_lock() {
        Ok(turn) => turn,
        Err(_) => {
            if let Some(text) = scrapes.recent(pattern.as_ref()) {
                return Ok(told(text));
            }
            let busy = |_| Problem::from(Error::unavailable("another scrape takes too long; scrape less often"));
            let turn = timeout(TURN_TIMEOUT, scrapes.turn.lock()).await.map_err(busy)?;
            // It may have been made while this one waited.
            if let Some(text) = scrapes.recent(pattern.as_ref()) {
                return Ok(told(text));
            }
            turn
        }
    };
    let scrape = match &pattern {
        None => whole(&state, &mut turn).await,
        Some(pattern) => of_queues(&state, pattern.clone(), &mut turn).await?,
    };
    // Many queues are a long text, and other requests are served by this thread, too.
    let written = tokio::task::spawn_blocking(|| scrape.encode()).await.unwrap_or(Err(fmt::Error));
    let text = Bytes::from(written.map_err(|_| {
        let why = "the metrics could not be written; see the node's log";
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", Retry::Later, why)
    })?);
    scrapes.keep(pattern, text.clone());
    Ok(told(text))
}

fn told(text: Bytes) -> Response {
    ([(header::CONTENT_TYPE, MEDIA_TYPE)], Body::from(text)).into_response()
}

/// All metrics, and the first queues by name.
async fn whole(state: &State, asked: &mut Asked) -> Scrape {
    let mut scrape = Scrape::default();
    let phase = state.phase.borrow().clone();
    let is_ready = matches!(phase, Phase::Running(_));
    let (mut is_incomplete, mut age) = (false, Duration::ZERO);
    if let Phase::Running(host) | Phase::Draining(host) = phase {
        let look = timeout(ASK_TIMEOUT, host.surroundings());
        let (measures, surroundings) = tokio::join!(asked.measures(&host), look);
        // Last, so that what was counted meanwhile is in.
        scrape.take_host(&host.counters(), host.log_syncs());
        let surroundings = surroundings.ok().flatten();
        is_incomplete = measures.is_none() || surroundings.is_none();
        if let Some((measures, old)) = measures {
            scrape.take_measures(&measures);
            scrape.take_queues(&measures, &Queues::First(state.bounds.metrics_queues));
            age = old;
        }
        surroundings.iter().for_each(|surroundings| scrape.take_surroundings(surroundings, now_s()));
    }
    scrape.take_meters(&state.meters);
    scrape.take_process(Process::look(), env!("CARGO_PKG_VERSION"));
    scrape.take_standing(is_ready, is_incomplete, age);
    scrape
}

/// The metrics of queues that match a pattern, and nothing else, so that a second job repeats no series of the first.
async fn of_queues(state: &State, pattern: String, asked: &mut Asked) -> Result<Scrape, Problem> {
    let phase = state.phase.borrow().clone();
    let late = |why: &str| Problem::from(Error::new(ErrorCode::NotReady, why));
    let (Phase::Running(host) | Phase::Draining(host)) = phase else {
        return Err(late("the node is reading its log; try again in a moment"));
    };
    let measures = asked.measures(&host).await;
    let (measures, _) = measures.ok_or_else(|| late("the node did not tell in time; try again later"))?;
    let mut scrape = Scrape::default();
    scrape.take_queues(&measures, &Queues::Matching(pattern));
    Ok(scrape)
}

fn now_s() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.ok().and_then(|since| i64::try_from(since.as_secs()).ok()).unwrap_or(0)
}
