//! Lists of tasks: by their ids, in pages, and as lines of any number.

use super::reads::{queue_if_any, task_of};
use super::shapes::{TaskPage, TaskResult, TaskResults};
use super::tasks::{HeaderQuery, invalid};
use crate::answer::Json;
use crate::body::QueryWithHeaders;
use crate::caller::Short;
use crate::problem::{Problem, Problems};
use crate::state::State;
use axum::body::Body;
use axum::extract::State as Shared;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::stream;
use norn_client::api;
use norn_client::client::walk::Walk;
use norn_client::client::{Client, ListOptions};
use norn_wire::limits::LIST_PAGE_MAX;
use norn_wire::response::TaskView;
use norn_wire::{Error, State as TaskState, TaskId};
use serde::Deserialize;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Tasks of a page if the caller does not say.
const LIMIT_DEFAULT: u32 = 100;
/// Most tasks that are read by their ids.
const IDS_MAX: usize = 100;
/// Reads under way for one request.
const READS_AT_ONCE: usize = 4;
/// Content of a page from which it is full.
const PAGE_BYTES: usize = 4 << 20;
/// Content of tasks read by their ids from which no more are read.
const READ_BYTES_MAX: usize = 16 << 20;
/// A page of which a filter drops most tasks is answered after this time.
const PAGE_TIME: Duration = Duration::from_secs(5);
/// Lines that are sent together.
const CHUNK_BYTES: usize = 64 << 10;
const LINES: HeaderValue = HeaderValue::from_static("application/x-ndjson");

pub(super) fn router() -> OpenApiRouter<Arc<State>> {
    OpenApiRouter::new().routes(routes!(list))
}

/// Which tasks to list.
#[derive(Debug, Default, PartialEq, Eq, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    /// These tasks, 100 at most, separated by commas; goes with `min_seq` alone.
    #[param(required = false, value_type = String)]
    id: Option<String>,
    /// Of tasks by their ids: answer only once the latest claim's log has this many entries.
    #[param(required = false, value_type = u32)]
    min_seq: Option<u32>,
    /// Only of this queue.
    #[param(required = false, value_type = String)]
    queue: Option<String>,
    /// Only in this state.
    #[param(inline, required = false, value_type = TaskState)]
    state: Option<TaskState>,
    /// Only after this task, in the order of the list: `next` of the page before.
    #[param(required = false, value_type = String)]
    after: Option<String>,
    /// Most tasks of a page, 1,000 at most, 100 if left out; or most lines, all if left out.
    #[param(required = false, value_type = u64, minimum = 1)]
    limit: Option<u64>,
    /// The newest first instead of the oldest.
    #[param(required = false)]
    newest: bool,
    /// Only tasks enqueued longer ago than this, in milliseconds.
    #[param(required = false, value_type = u64)]
    older_ms: Option<u64>,
    /// Only tasks enqueued within this time, in milliseconds.
    #[param(required = false, value_type = u64)]
    newer_ms: Option<u64>,
    /// Only tasks with this key.
    #[param(required = false, value_type = String)]
    key: Option<String>,
    /// Only tasks with this text in the reason of their end.
    #[param(required = false, value_type = String)]
    reason: Option<String>,
    /// Only tasks whose last attempt failed with this text in its reason, of which the first 256 bytes are kept.
    #[param(required = false, value_type = String)]
    failed_with: Option<String>,
}

impl ListQuery {
    fn options(self, headers: Vec<(String, String)>) -> Result<ListOptions, Problem> {
        if self.min_seq.is_some() {
            return Err(Problem::invalid("the query: min_seq goes with id"));
        }
        let wrong = |error| Problem::invalid(format!("the query: after: {error}"));
        Ok(ListOptions {
            queue: queue_if_any(self.queue.as_deref())?,
            state: self.state,
            after: self.after.map(|id| id.parse()).transpose().map_err(wrong)?,
            newest: self.newest,
            older: self.older_ms.map(Duration::from_millis),
            newer: self.newer_ms.map(Duration::from_millis),
            key: self.key,
            headers,
            reason: self.reason,
            failed_with: self.failed_with,
            ..ListOptions::new()
        })
    }

    /// The ids that are asked for, if tasks are asked for by their ids.
    fn ids(&self, headers: &[(String, String)]) -> Result<Option<Vec<TaskId>>, Problem> {
        let Some(text) = &self.id else { return Ok(None) };
        let alone = ListQuery { id: self.id.clone(), min_seq: self.min_seq, ..ListQuery::default() };
        if *self != alone || !headers.is_empty() {
            return Err(Problem::invalid(
                "the query: tasks are read by their id, or listed; id goes with min_seq alone",
            ));
        }
        let wrong = |error| Problem::invalid(format!("the query: id: {error}"));
        let ids: Vec<TaskId> = text.split(',').map(str::parse).collect::<Result<_, _>>().map_err(wrong)?;
        if ids.len() > IDS_MAX {
            return Err(Problem::invalid(format!("the query: {} ids; ask for {IDS_MAX} at most at once", ids.len())));
        }
        api::each_once("the query: id", &ids, TaskId::to_string).map_err(invalid)?;
        Ok(Some(ids))
    }
}

/// Whether tasks are looked at that may be dropped.
fn filters(options: &ListOptions) -> bool {
    options.key.is_some() || !options.headers.is_empty() || options.reason.is_some() || options.failed_with.is_some()
}

/// Lists tasks by age, or reads some by their ids.
///
/// A list comes in pages; with `Accept: application/x-ndjson`, as one task a line, as many as there are. A failure amid the lines is a
/// last line `{"error": ...}`. Tasks by their ids are `items`, each a task or an error, in the order of the ids.
#[utoipa::path(
    get, path = "/v1/tasks", operation_id = "list_tasks", tag = "tasks", params(ListQuery, HeaderQuery),
    responses(
        (status = 200, description = "A page, or the tasks that were asked for by their ids; or lines.",
         content((super::shapes::Listed = "application/json"), (api::Task = "application/x-ndjson"))),
        Problems,
    )
)]
async fn list(
    Shared(state): Shared<Arc<State>>,
    client: Short,
    QueryWithHeaders(query, task_headers): QueryWithHeaders<ListQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    if let Some(ids) = query.ids(&task_headers)? {
        return Ok(several(&client, ids, query.min_seq).await);
    }
    let limit = query.limit;
    if limit == Some(0) {
        return Err(Problem::invalid("the query: limit is at least 1"));
    }
    let options = query.options(task_headers)?;
    if wants_lines(&headers) {
        return lines(state, client, options, limit.unwrap_or(u64::MAX)).await;
    }
    let limit = u32::try_from(limit.unwrap_or(LIMIT_DEFAULT.into())).ok().filter(|limit| *limit <= LIST_PAGE_MAX);
    let Some(limit) = limit else {
        let detail = format!("the query: a page has at most {LIST_PAGE_MAX} tasks; `next` leads to more, as do lines");
        return Err(Problem::invalid(detail));
    };
    let (tasks, next) = page(&client, options, limit as usize).await?;
    Ok(Json(&TaskPage { tasks: tasks.iter().map(api::Task::from).collect(), next }).into_response())
}

fn wants_lines(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut kinds = accepted.flat_map(|value| value.split(',')).map(|kind| kind.split(';').next().unwrap_or_default());
    kinds.any(|kind| kind.trim().eq_ignore_ascii_case("application/x-ndjson"))
}

/// Bytes of a task that take room in an answer.
fn bytes_of(task: &TaskView) -> usize {
    let headers: usize = task.spec.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    let updates: usize = task.updates.iter().map(|entry| entry.data.len()).sum();
    task.spec.payload.len() + task.result.as_ref().map_or(0, |result| result.len()) + headers + updates
}

/// Reads tasks by their ids, each by itself.
async fn several(client: &Client, ids: Vec<TaskId>, min_seq: Option<u32>) -> Response {
    let mut results = Vec::with_capacity(ids.len());
    let mut bytes = 0;
    for ids in ids.chunks(READS_AT_ONCE) {
        if bytes >= READ_BYTES_MAX {
            let full = "the tasks before it fill the answer; ask for this one again";
            results.extend(ids.iter().map(|id| Err(Error::new(norn_wire::ErrorCode::Overloaded, full).about(*id))));
            continue;
        }
        let read = join_all(ids.iter().map(|id| task_of(client, *id, min_seq))).await;
        bytes += read.iter().flatten().map(bytes_of).sum::<usize>();
        results.extend(read);
    }
    Json(&TaskResults { items: results.iter().map(TaskResult::new).collect() }).into_response()
}

/// The next tasks of a list, and where the list goes on.
async fn page(client: &Client, options: ListOptions, limit: usize) -> Result<(Vec<TaskView>, Option<TaskId>), Error> {
    let started = Instant::now();
    let drops = filters(&options);
    let mut cursor = options.after;
    let mut walk = Walk::new(options, super::claims::now_ms());
    walk.bounded = true;
    let (mut tasks, mut bytes) = (Vec::new(), 0);
    loop {
        let ask =
            if drops { LIST_PAGE_MAX } else { u32::try_from(limit - tasks.len()).unwrap_or(LIST_PAGE_MAX).max(1) };
        let Some(found) = walk.next(client, ask).await? else { break };
        for task in found {
            if tasks.len() == limit || bytes >= PAGE_BYTES {
                return Ok((tasks, cursor));
            }
            cursor = Some(task.id);
            if walk.options.wants(&task) {
                bytes += bytes_of(&task);
                tasks.push(task);
            }
        }
        let is_full = tasks.len() == limit || bytes >= PAGE_BYTES || started.elapsed() >= PAGE_TIME;
        // Without a task that was looked at, there is nothing to go on from.
        if walk.over || is_full && cursor.is_some() {
            break;
        }
    }
    match (walk.over, cursor) {
        (true, _) => Ok((tasks, None)),
        (false, Some(cursor)) => Ok((tasks, Some(cursor))),
        (false, None) => Err(Error::unavailable("no task was found in time; name a queue, a state or an age")),
    }
}

/// A list as lines.
struct Lines {
    state: Arc<State>,
    client: Short,
    walk: Walk,
    page: std::vec::IntoIter<TaskView>,
    /// Most tasks that are still to come.
    left: u64,
    /// The last task that was looked at.
    cursor: Option<TaskId>,
    over: bool,
}

/// Answers a list as lines. It is read as fast as the caller takes it, and a failure of the first read is answered by its status.
async fn lines(state: Arc<State>, client: Short, options: ListOptions, limit: u64) -> Result<Response, Problem> {
    let cursor = options.after;
    let walk = Walk::new(options, super::claims::now_ms());
    let mut lines = Lines { state, client, walk, page: Vec::new().into_iter(), left: limit, cursor, over: false };
    lines.read().await?;
    let chunks = stream::unfold(lines, |mut lines| async move {
        let chunk = lines.chunk().await?;
        Some((Ok::<Bytes, Infallible>(chunk), lines))
    });
    Ok(([(header::CONTENT_TYPE, LINES)], Body::from_stream(chunks)).into_response())
}

impl Lines {
    /// Reads the next page.
    async fn read(&mut self) -> Result<(), Error> {
        let limit = if filters(&self.walk.options) { u64::from(LIST_PAGE_MAX) } else { self.left };
        let limit = u32::try_from(limit).unwrap_or(LIST_PAGE_MAX).clamp(1, LIMIT_DEFAULT);
        let read = tokio::select! {
            biased;
            () = self.state.draining() => Err(Error::unavailable("the node is stopping")),
            read = self.walk.next(&*self.client, limit) => read,
        };
        match read? {
            Some(tasks) => self.page = tasks.into_iter(),
            None => self.over = true,
        }
        Ok(())
    }

    /// The next lines; `None` after the last.
    async fn chunk(&mut self) -> Option<Bytes> {
        let mut chunk = Vec::new();
        while chunk.len() < CHUNK_BYTES && !self.over {
            let Some(task) = self.page.next() else {
                // What was found is sent before more is waited for.
                if !chunk.is_empty() {
                    break;
                }
                if let Err(error) = self.read().await {
                    self.over = true;
                    return Some(self.failure(error));
                }
                continue;
            };
            self.cursor = Some(task.id);
            if !self.walk.options.wants(&task) {
                continue;
            }
            if serde_json::to_writer(&mut chunk, &api::Task::from(&task)).is_err() {
                self.over = true;
                return Some(self.failure(Error::unavailable("a task could not be written as JSON")));
            }
            chunk.push(b'\n');
            self.left -= 1;
            self.over = self.left == 0;
        }
        (!chunk.is_empty()).then(|| chunk.into())
    }

    /// The last line of a list that broke off.
    fn failure(&self, error: Error) -> Bytes {
        let on = self.cursor.map_or_else(String::new, |id| format!("; the list goes on with after={id}"));
        let error = Error { message: format!("{}{on}", error.message), ..error };
        let mut line = serde_json::to_vec(&api::ErrorReport::from(&error)).unwrap_or_default();
        line.push(b'\n');
        line.into()
    }
}
