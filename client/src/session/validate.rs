//! Refuses, before anything is sent, what every node would refuse.

use super::{Call, Draft};
use crate::wire::error::Error;
use crate::wire::ids::TaskId;
use crate::wire::limits;
use crate::wire::request::{Claim, Completion, Request, Spec};
use std::collections::BTreeSet;

/// Room in a frame for a batch's queue names and headers; what is left of it covers the encoding.
const NAMES_BYTES_MAX: usize = limits::FRAME_BYTES_MAX - limits::BATCH_BYTES_MAX - (2 << 20);
/// About what a call takes besides its payloads.
const CALL_BYTES: usize = 512;

fn at_most<T: PartialOrd + std::fmt::Display>(what: &str, value: T, limit: T) -> Result<(), Error> {
    if value <= limit { Ok(()) } else { Err(Error::invalid(format!("{what}: {value} is more than {limit}"))) }
}

fn batch(what: &str, items: usize) -> Result<(), Error> {
    if items == 0 {
        return Err(Error::invalid(format!("a batch of {what} is empty")));
    }
    at_most(&format!("{what} in one batch"), items, limits::BATCH_TASKS_MAX)
}

fn lease(lease_ms: u64) -> Result<(), Error> {
    if lease_ms < limits::LEASE_MS_MIN {
        return Err(Error::invalid(format!("a lease of {lease_ms} ms is below {} ms", limits::LEASE_MS_MIN)));
    }
    at_most("milliseconds of a lease", lease_ms, limits::LEASE_MS_MAX)
}

/// Checks a call against the limits; gives about how many bytes it holds.
pub(super) fn validate(call: &Call) -> Result<usize, Error> {
    let bytes = match call {
        Call::Enqueue { drafts, .. } => {
            for draft in drafts {
                delay(draft)?;
            }
            let given: Vec<TaskId> = drafts.iter().filter_map(|draft| draft.id).collect();
            tasks(drafts.iter().map(|draft| &draft.spec), &given)?
        }
        Call::Request(request) => self::request(request)?,
    };
    Ok(bytes + CALL_BYTES)
}

fn delay(draft: &Draft) -> Result<(), Error> {
    if draft.delay_ms > 0 && draft.spec.not_before_ms > 0 {
        return Err(Error::invalid("a task has a delay or a time, not both"));
    }
    at_most("milliseconds of a delay", draft.delay_ms, limits::DELAY_MS_MAX)
}

fn tasks<'a>(specs: impl ExactSizeIterator<Item = &'a Spec>, ids: &[TaskId]) -> Result<usize, Error> {
    let count = specs.len();
    batch("tasks", count)?;
    let mut payload_bytes = 0;
    let mut names_bytes = 0;
    for spec in specs {
        at_most("bytes of a payload", spec.payload.len(), limits::PAYLOAD_BYTES_MAX)?;
        at_most("headers of a task", spec.headers.len(), limits::HEADERS_MAX)?;
        names_bytes += spec.queue.as_str().len();
        for (name, value) in &spec.headers {
            if name.is_empty() {
                return Err(Error::invalid("a header has no name"));
            }
            at_most("bytes of a header", name.len() + value.len(), limits::HEADER_BYTES_MAX)?;
            names_bytes += name.len() + value.len();
        }
        payload_bytes += spec.payload.len();
    }
    at_most("bytes of the payloads of a batch", payload_bytes, limits::BATCH_BYTES_MAX)?;
    at_most("bytes of the names and headers of a batch", names_bytes, NAMES_BYTES_MAX)?;
    if ids.iter().collect::<BTreeSet<_>>().len() < ids.len() {
        return Err(Error::invalid("an id is given to two tasks of a batch"));
    }
    Ok(payload_bytes + names_bytes + count * size_of::<Draft>())
}

fn completions(items: &[Completion]) -> Result<usize, Error> {
    batch("completions", items.len())?;
    let mut bytes = 0;
    for item in items {
        let length = item.result.as_ref().map_or(0, |result| result.len());
        at_most("bytes of a result", length, limits::PAYLOAD_BYTES_MAX)?;
        bytes += length;
    }
    at_most("bytes of the results of a batch", bytes, limits::BATCH_BYTES_MAX)?;
    Ok(bytes + size_of_val(items))
}

fn claim(claim: &Claim) -> Result<usize, Error> {
    if claim.queues.is_empty() {
        return Err(Error::invalid("a claim names no queue"));
    }
    if claim.max == 0 {
        return Err(Error::invalid("a claim is for at least one task"));
    }
    at_most("queues in one claim", claim.queues.len(), limits::CLAIM_QUEUES_MAX)?;
    at_most("tasks in one claim", claim.max, limits::CLAIM_TASKS_MAX)?;
    at_most("milliseconds to wait", claim.wait_ms, limits::WAIT_MS_MAX)?;
    at_most("bytes of a worker's name", claim.worker.len(), limits::TEXT_BYTES_MAX)?;
    lease(claim.lease_ms)?;
    Ok(claim.queues.iter().map(|queue| queue.as_str().len()).sum())
}

fn request(request: &Request) -> Result<usize, Error> {
    match request {
        Request::Hello { .. } => Err(Error::invalid("the session says hello itself")),
        Request::Enqueue { tasks: items, .. } => {
            let ids: Vec<TaskId> = items.iter().map(|task| task.id).collect();
            tasks(items.iter().map(|task| &task.spec), &ids)
        }
        Request::Update { sequence, data, .. } => {
            at_most("bytes of an update", data.len(), limits::UPDATE_BYTES_MAX)?;
            at_most("number of an update", *sequence, limits::UPDATES_MAX - 1)?;
            Ok(data.len())
        }
        Request::Complete { items, .. } => completions(items),
        Request::Cancel { reason, .. } => {
            at_most("bytes of a reason", reason.len(), limits::TEXT_BYTES_MAX)?;
            Ok(reason.len())
        }
        Request::Fail { reason, retry_in_ms, .. } => {
            at_most("bytes of a reason", reason.len(), limits::TEXT_BYTES_MAX)?;
            at_most("milliseconds of a delay", *retry_in_ms, limits::DELAY_MS_MAX)?;
            Ok(reason.len())
        }
        Request::Wait { timeout_ms, .. } => {
            at_most("milliseconds to wait", *timeout_ms, limits::WAIT_MS_MAX)?;
            Ok(0)
        }
        Request::List { limit: 0, .. } => Err(Error::invalid("a page has at least one task")),
        Request::List { limit, .. } => {
            at_most("tasks in a page", *limit, limits::LIST_PAGE_MAX)?;
            Ok(0)
        }
        Request::Claim(body) => claim(body),
        Request::Renew { items, lease_ms } => {
            batch("renewals", items.len())?;
            lease_ms.map_or(Ok(()), lease)?;
            Ok(size_of_val(items.as_slice()))
        }
        Request::Initialize(genesis) => Ok(genesis.assignment.iter().map(|list| 24 + 2 * list.len()).sum()),
        Request::Get { .. }
        | Request::Count { .. }
        | Request::Queues
        | Request::Release { .. }
        | Request::Nodes
        | Request::Ring
        | Request::Partitions
        | Request::Status
        | Request::Identify => Ok(0),
    }
}
