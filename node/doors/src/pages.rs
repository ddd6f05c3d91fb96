//! Lists that are written as JSON while they are read, part by part.

use crate::answer::JSON;
use crate::caller::Short;
use crate::problem::Problem;
use axum::body::Body;
use axum::http::header;
use axum::response::Response;
use bytes::Bytes;
use futures_util::{Stream, StreamExt, TryStreamExt, stream};
use norn_client::client::calling::strange;
use norn_client::session::Call;
use norn_wire::limits::LIST_PAGE_MAX;
use norn_wire::response::{Page, Response as Answer, State, TaskView};
use norn_wire::{Error, ErrorCode, QueueName, Request, TaskId};
use serde::Serialize;
use std::pin::Pin;

/// Tasks of the first page if no fewer are wanted.
const PAGE: u32 = 100;
/// Each further page is larger, as the pages before had too few of those that are wanted. Nodes bound a page in bytes, too.
const PAGE_FACTOR: u32 = 4;
/// Bytes of a part of an answer, but for its last item.
const PART_BYTES: usize = 1 << 20;

/// Which tasks are read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// Only tasks of this queue.
    pub queue: Option<QueueName>,
    /// Only tasks in this state.
    pub state: Option<State>,
}

/// How a list is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Form {
    /// What stands before the first item.
    pub begin: &'static str,
    /// What stands behind the last item.
    pub end: &'static str,
    /// Most items.
    pub limit: u64,
}

/// A place in the list of all tasks.
struct At {
    client: Short,
    after: Option<TaskId>,
    page: u32,
    is_over: bool,
}

/// Answers with tasks in the order of their ids, as they are shown, without those that are not.
pub async fn tasks<T, F>(client: Short, selection: Selection, form: Form, show: F) -> Result<Response, Problem>
where
    T: Serialize + Send + 'static,
    F: Fn(&TaskView) -> Option<T> + Send + 'static,
{
    let page = u32::try_from(form.limit).unwrap_or(PAGE).clamp(1, PAGE);
    let begin = At { client, after: None, page, is_over: false };
    let pages = stream::try_unfold(begin, move |mut at| {
        let Selection { queue, state } = selection.clone();
        async move {
            if at.is_over {
                return Ok(None);
            }
            let list = Request::List { queue, state, after: at.after, from: None, to: None, limit: at.page };
            let page = tokio::select! {
                biased;
                () = at.client.draining() => return Err(Error::unavailable("the node is stopping; use another")),
                page = at.client.call(Call::Request(list), None) => page?,
            };
            let Answer::Page(Page { tasks, next }) = page else { return Err(strange("list")) };
            (at.after, at.is_over) = (next, next.is_none());
            at.page = at.page.saturating_mul(PAGE_FACTOR).min(LIST_PAGE_MAX);
            Ok(Some((tasks, at)))
        }
    });
    let shown = pages.map_ok(move |tasks| {
        let shown: Vec<Result<T, Error>> = tasks.iter().filter_map(&show).map(Ok).collect();
        stream::iter(shown)
    });
    items(shown.try_flatten(), form).await
}

/// Answers with items. What fits into the first part is read before the answer begins, so that a failure there has its status; a later
/// failure breaks the answer off.
pub async fn items<T: Serialize + Send + 'static>(
    items: impl Stream<Item = Result<T, Error>> + Send + 'static,
    form: Form,
) -> Result<Response, Problem> {
    let limit = usize::try_from(form.limit).unwrap_or(usize::MAX);
    let mut written = Written { form, items: Box::pin(items.take(limit)), has_items: false, is_over: false };
    let mut first = form.begin.as_bytes().to_vec();
    written.part(&mut first).await?;
    let body = match written.is_over {
        true => Body::from(first),
        false => {
            let rest = stream::unfold(written, Written::next);
            Body::from_stream(stream::iter([Ok(Bytes::from(first))]).chain(rest))
        }
    };
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, JSON);
    Ok(response)
}

/// A list that is being written.
struct Written<T> {
    form: Form,
    items: Pin<Box<dyn Stream<Item = Result<T, Error>> + Send>>,
    has_items: bool,
    is_over: bool,
}

impl<T: Serialize> Written<T> {
    /// Adds the next items to a part, until it is full or the list is over.
    async fn part(&mut self, bytes: &mut Vec<u8>) -> Result<(), Error> {
        while bytes.len() < PART_BYTES && !self.is_over {
            let Some(item) = self.items.next().await else {
                self.is_over = true;
                bytes.extend_from_slice(self.form.end.as_bytes());
                return Ok(());
            };
            if std::mem::replace(&mut self.has_items, true) {
                bytes.push(b',');
            }
            let failed =
                |error| Error::new(ErrorCode::Invalid, format!("an item could not be written as JSON: {error}"));
            serde_json::to_writer(&mut *bytes, &item?).map_err(failed)?;
        }
        Ok(())
    }

    async fn next(mut self) -> Option<(Result<Bytes, Error>, Self)> {
        if self.is_over {
            return None;
        }
        let mut bytes = Vec::new();
        let result = self.part(&mut bytes).await.map(|()| bytes.into());
        if let Err(error) = &result {
            tracing::debug!(%error, "a list breaks off");
            self.is_over = true;
        }
        Some((result, self))
    }
}
