//! Watches as Server-Sent Events.
//!
//! The next call of a watch is made when the reader has taken what came before, so that a slow reader holds one answer of a node and no
//! more. Dropping the stream drops the call. What each event tells apart from its name is `id`: the watch's cursor behind the last event
//! of an answer. The events before it in the same answer have none, so that a reader that lost some of them gets them again.

mod kept;

pub use kept::Kept;

use crate::caller::Waiting;
use crate::metrics::meters::Present;
use crate::problem::Problem;
use crate::state::State;
use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use norn_client::api::{self, ErrorReport, WatchNotice, WatchNoticeKind};
use norn_client::client::calling::has_ended;
use norn_client::session::{Call, WatchNews, WatchState};
use norn_wire::watch::Subject;
use norn_wire::{Error, ErrorCode, Request, Response as Answer, TaskId};
use serde::Serialize;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

/// `id` of the event after which there are no more.
pub const ENDED_ID: &str = "ended";
/// Interval of comments, which show proxies and readers that the stream is alive.
const COMMENT_INTERVAL: Duration = Duration::from_secs(15);
/// Waiting time of one call. Its answer comes before the next comment is due.
const CALL_MS: u64 = 14_000;
/// Pause before a failed call is repeated, and before a reader connects again.
const PAUSE: Duration = Duration::from_secs(1);
/// Bytes after which a chunk of events is sent.
const CHUNK_BYTES: usize = 32 << 10;
const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");
/// Tells proxies to pass each event on at once.
const BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Opens a stream. It has begun, or goes on behind the event with the id `last`, when this returns.
pub async fn open(
    client: Waiting,
    state: Arc<State>,
    subject: Subject,
    last: Option<&str>,
) -> Result<Response, Problem> {
    let Ok(place) = Arc::clone(&state.streams).try_acquire_owned() else {
        let why = "the node has too many watches under way; try again later, or at another";
        return Err(Error::new(ErrorCode::Overloaded, why).into());
    };
    let mut streaming = Streaming::new(client, state, subject, place);
    streaming.begin(last).await?;
    let events = stream::unfold(streaming, |mut streaming| async move {
        let chunk = streaming.next().await?;
        Some((Ok::<Bytes, Infallible>(chunk), streaming))
    });
    let mut response = Response::new(Body::from_stream(events));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, EVENT_STREAM);
    headers.insert(BUFFERING, HeaderValue::from_static("no"));
    Ok(response)
}

/// What a stream does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// Wait for events.
    Wait,
    /// Take what came while the reader was away, and then see whether the join of its group has ended.
    Resume,
    /// See whether the join of the group has ended: its end may be among what was missed.
    Look,
    /// Take what is there, and end, as the join of the group has ended.
    Finish,
}

/// A stream under way.
struct Streaming {
    client: Waiting,
    state: Arc<State>,
    group: Option<TaskId>,
    watch: WatchState,
    /// What is to be sent.
    text: String,
    comment_at: Instant,
    /// Whether the last call failed, which is said once.
    failing: bool,
    next: Next,
    over: bool,
    _place: OwnedSemaphorePermit,
    _counted: Present,
}

impl Streaming {
    fn new(client: Waiting, state: Arc<State>, subject: Subject, place: OwnedSemaphorePermit) -> Streaming {
        Streaming {
            _counted: state.meters.sse_streams.enter(),
            client,
            state,
            group: if let Subject::Group(group) = &subject { Some(*group) } else { None },
            watch: WatchState::new(subject),
            text: format!("retry: {}\n\n", PAUSE.as_millis()),
            comment_at: Instant::now() + COMMENT_INTERVAL,
            failing: false,
            next: Next::Wait,
            over: false,
            _place: place,
        }
    }

    async fn begin(&mut self, last: Option<&str>) -> Result<(), Problem> {
        let subject = || match self.watch.request(0) {
            Request::Watch { subject, .. } => Some(subject),
            _ => None,
        };
        let cursor = match last {
            Some(last) => self.state.watches.find(last)?,
            None => None,
        };
        match (cursor, subject()) {
            (Some(cursor), Some(subject)) => {
                // What came meanwhile is the first answer. The node is asked as soon as the reader takes it.
                self.watch = WatchState::resume(subject, cursor);
                self.next = Next::Resume;
                return Ok(());
            }
            // The place is forgotten: the reader has to look for itself what it has missed.
            _ if last.is_some() => self.notice(None, WatchNoticeKind::Lagged, None),
            _ => {}
        }
        self.ask(0).await?;
        let id = self.place();
        self.notice(id.as_deref(), WatchNoticeKind::Begun, None);
        if self.group_has_ended().await? {
            self.end(Some(ENDED_ID), WatchNoticeKind::Ended);
        }
        Ok(())
    }

    /// Whether the join of the group has ended, if a group is watched. It may not exist yet.
    async fn group_has_ended(&self) -> Result<bool, Error> {
        let Some(group) = self.group else { return Ok(false) };
        match self.client.get(group).await {
            Ok(task) if task.group.is_none() => Err(Error::invalid("the task is no join of a group").about(group)),
            Ok(task) => Ok(has_ended(task.state)),
            Err(error) if error.code == ErrorCode::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The next chunk; `None` after the last.
    async fn next(&mut self) -> Option<Bytes> {
        let state = Arc::clone(&self.state);
        while self.text.is_empty() {
            if self.over {
                return None;
            }
            if state.drains() {
                // What is not told yet comes when the reader goes on at another node.
                self.end(None, WatchNoticeKind::Bye);
                continue;
            }
            if self.tell() {
                continue;
            }
            tokio::select! {
                biased;
                () = state.draining() => self.end(None, WatchNoticeKind::Bye),
                () = tokio::time::sleep_until(self.comment_at) => self.text.push_str(":\n\n"),
                () = self.go_on() => {}
            }
        }
        self.comment_at = Instant::now() + COMMENT_INTERVAL;
        Some(Bytes::from(std::mem::take(&mut self.text)))
    }

    /// Makes the next call. Dropping the future loses nothing.
    async fn go_on(&mut self) {
        match self.go_on_once().await {
            Ok(()) => self.failing = false,
            Err(error) if error.passes() => {
                if !std::mem::replace(&mut self.failing, true) {
                    // One line: a line break would end the comment.
                    let why = error.message.replace(['\r', '\n'], " ");
                    self.text.push_str(&format!(": {why}; trying again\n\n"));
                }
                tokio::time::sleep(PAUSE).await;
            }
            Err(error) => {
                self.event(None, Some("failed"), &ErrorReport::from(&error));
                self.over = true;
            }
        }
    }

    async fn go_on_once(&mut self) -> Result<(), Error> {
        match self.next {
            Next::Wait => self.ask(CALL_MS).await,
            Next::Resume => {
                self.ask(0).await?;
                self.next = Next::Look;
                Ok(())
            }
            Next::Look => {
                self.next = if self.group_has_ended().await? { Next::Finish } else { Next::Wait };
                Ok(())
            }
            Next::Finish => {
                self.ask(0).await?;
                if !self.tell() {
                    self.end(Some(ENDED_ID), WatchNoticeKind::Ended);
                }
                Ok(())
            }
        }
    }

    async fn ask(&mut self, wait_ms: u64) -> Result<(), Error> {
        match self.client.call(Call::Request(self.watch.request(wait_ms)), None).await? {
            Answer::Watched(watched) => self.watch.take(watched),
            _ => return Err(Error::new(ErrorCode::Unknown, "the node's answer to this is of another kind")),
        }
        Ok(())
    }

    /// Writes what is known, up to the size of a chunk. Returns whether there was anything.
    fn tell(&mut self) -> bool {
        while self.text.len() < CHUNK_BYTES && !self.over {
            let Some(news) = self.watch.take_news() else { break };
            // Only behind the last item of an answer nothing is lost by going on there.
            let id = if self.watch.is_told() { self.place() } else { None };
            match news {
                WatchNews::Event(event) => {
                    self.event(id.as_deref(), None, &api::WatchEvent::from(&event));
                    if self.group == Some(event.id) && has_ended(event.state) {
                        self.end(Some(ENDED_ID), WatchNoticeKind::Ended);
                    }
                }
                WatchNews::Lagged => {
                    if self.next == Next::Wait {
                        self.next = Next::Look;
                    }
                    self.notice(id.as_deref(), WatchNoticeKind::Lagged, None);
                }
                WatchNews::Silent(partitions) => {
                    self.notice(id.as_deref(), WatchNoticeKind::Silent, Some(partitions));
                }
            }
        }
        !self.text.is_empty()
    }

    /// The text of the watch's cursor, or a handle that stands for a long one.
    fn place(&self) -> Option<String> {
        self.watch.cursor().map(|cursor| self.state.watches.keep(cursor))
    }

    fn end(&mut self, id: Option<&str>, kind: WatchNoticeKind) {
        self.notice(id, kind, None);
        self.over = true;
    }

    fn notice(&mut self, id: Option<&str>, watch: WatchNoticeKind, partitions: Option<u32>) {
        let name = match watch {
            WatchNoticeKind::Begun => "begun",
            WatchNoticeKind::Lagged => "lagged",
            WatchNoticeKind::Silent => "silent",
            WatchNoticeKind::Ended => "ended",
            WatchNoticeKind::Bye => "bye",
            WatchNoticeKind::Other => "other",
        };
        self.event(id, Some(name), &WatchNotice { watch, partitions });
    }

    /// Writes an event. JSON has no line breaks but escaped ones, so that it is one line of data.
    fn event(&mut self, id: Option<&str>, name: Option<&str>, data: &impl Serialize) {
        let data = serde_json::to_string(data).unwrap_or_default();
        for (field, value) in [("id", id), ("event", name), ("data", Some(data.as_str()))] {
            if let Some(value) = value {
                self.text.extend([field, ": ", value, "\n"]);
            }
        }
        self.text.push('\n');
    }
}

#[cfg(test)]
mod tests;
