//! Lists that are written as JSON while they are read, page by page.

use crate::caller::Short;
use crate::problem::Problem;
use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use norn_client::client::{ListOptions, Listing};
use norn_wire::response::TaskView;
use norn_wire::{Error, ErrorCode};
use serde::Serialize;

/// Tasks of a page if no fewer are wanted.
const PAGE: u32 = 100;

/// How a list is written.
#[derive(Debug, Clone, Copy)]
pub struct Form<F> {
    /// What stands before the first task.
    pub begin: &'static str,
    /// What stands behind the last task.
    pub end: &'static str,
    /// Most tasks.
    pub limit: u64,
    /// A task as it is shown; `None`: it is left out.
    pub show: F,
}

/// How far a list is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nothing is.
    Begin,
    /// Its begin is, and no task.
    Empty,
    /// A task is.
    Some,
    /// All of it is.
    Ended,
}

/// A list that is being written.
struct Written<F> {
    form: Form<F>,
    listing: Listing,
    stage: Stage,
    /// Holds the session for as long as the list is written.
    _client: Short,
}

/// Answers with a list. Its first page is read before the answer begins, so that a failure of it has its status; a later failure breaks
/// the answer off.
pub async fn answer<T, F>(client: Short, options: ListOptions, form: Form<F>) -> Result<Response, Problem>
where
    T: Serialize,
    F: Fn(&TaskView) -> Option<T> + Send + 'static,
{
    let page = u32::try_from(form.limit).unwrap_or(PAGE).clamp(1, PAGE);
    let listing = client.list(options.page(page));
    let mut written = Written { form, listing, stage: Stage::Begin, _client: client };
    let first = written.next().await?;
    let pages = stream::unfold((first, written), |(ahead, mut written)| async move {
        let bytes = ahead?;
        match written.next().await {
            Ok(next) => Some((Ok::<Bytes, Error>(bytes), (next, written))),
            Err(error) => {
                tracing::debug!(%error, "a list breaks off");
                Some((Err(error), (None, written)))
            }
        }
    });
    let mut response = Response::new(Body::from_stream(pages));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

impl<T: Serialize, F: Fn(&TaskView) -> Option<T>> Written<F> {
    /// The next bytes of the answer; `None` after the last.
    async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        let page = match self.stage {
            Stage::Ended => return Ok(None),
            _ if self.form.limit == 0 => None,
            _ => self.listing.next_page().await?,
        };
        let mut bytes = Vec::new();
        if self.stage == Stage::Begin {
            bytes.extend_from_slice(self.form.begin.as_bytes());
            self.stage = Stage::Empty;
        }
        match page {
            Some(page) => self.write(&page, &mut bytes)?,
            None => {
                self.stage = Stage::Ended;
                bytes.extend_from_slice(self.form.end.as_bytes());
            }
        }
        Ok(Some(bytes.into()))
    }

    fn write(&mut self, page: &[TaskView], bytes: &mut Vec<u8>) -> Result<(), Error> {
        for task in page.iter().filter_map(&self.form.show) {
            if self.form.limit == 0 {
                break;
            }
            self.form.limit -= 1;
            if std::mem::replace(&mut self.stage, Stage::Some) == Stage::Some {
                bytes.push(b',');
            }
            let failed =
                |error| Error::new(ErrorCode::Invalid, format!("a task could not be written as JSON: {error}"));
            serde_json::to_writer(&mut *bytes, &task).map_err(failed)?;
        }
        Ok(())
    }
}
