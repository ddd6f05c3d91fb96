//! Conversions from options to requests and from answers to results.

use super::CompleteOptions;
use crate::connection::Answer;
use crate::session::Finish;
use norn_wire::error::{Error, ErrorCode};
use norn_wire::limits;
use norn_wire::request::{Completion, Spec};
use norn_wire::response::{Acked, Response};
use serde_bytes::ByteBuf;
use std::time::{Duration, Instant};

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Time at which a lease ends for its holder.
pub(super) fn expiry(lease_from: Option<Instant>, lease_ms: u64) -> Instant {
    let lease = Duration::from_millis(lease_ms.min(limits::LEASE_MS_MAX));
    // An answer without a request is impossible; if it happened, the lease should count as over.
    lease_from.map_or_else(Instant::now, |sent| sent + lease - lease / 1_000)
}

pub(super) fn unexpected<T>(verb: &str) -> Result<T, Error> {
    Err(Error::new(ErrorCode::Unknown, format!("the node's answer to {verb} is of another kind")))
}

/// Splits a list into batches within both limits; an item that is too large by itself gets its own batch.
pub(super) fn batches<T>(items: Vec<T>, bytes_of: impl Fn(&T) -> usize) -> Vec<Vec<T>> {
    let mut batches: Vec<Vec<T>> = Vec::new();
    let mut bytes = 0;
    for item in items {
        let more = bytes_of(&item);
        let fits =
            |batch: &&mut Vec<T>| batch.len() < limits::BATCH_TASKS_MAX && bytes + more <= limits::BATCH_BYTES_MAX;
        match batches.last_mut().filter(fits) {
            Some(batch) => {
                batch.push(item);
                bytes += more;
            }
            None => {
                batches.push(vec![item]);
                bytes = more;
            }
        }
    }
    batches
}

/// Expands the result of a batch into one result for each item.
pub(super) fn spread<T>(result: Result<Vec<Result<T, Error>>, Error>, count: usize) -> Vec<Result<T, Error>> {
    match result {
        Ok(items) if items.len() == count => items,
        Ok(_) => spread(unexpected("a batch"), count),
        Err(error) => (0..count).map(|_| Err(error.clone())).collect(),
    }
}

pub(super) fn one<T>(result: Result<Vec<Result<T, Error>>, Error>) -> Result<T, Error> {
    spread(result, 1).pop().expect("one was asked for")
}

pub(super) fn acked(answer: Answer, verb: &str) -> Result<Vec<Result<Acked, Error>>, Error> {
    match answer.result? {
        Response::Acked(items) => Ok(items),
        _ => unexpected(verb),
    }
}

pub(super) fn finish(options: CompleteOptions) -> Finish {
    let CompleteOptions { id, token, sequence, result, children, acks: _ } = options;
    let result = result.map(ByteBuf::from);
    let completion = Completion { id, token, sequence, result, at_ms: 0, children: Vec::new() };
    Finish { completion, children }
}

/// Bytes of a completion that count towards the size of a batch.
pub(super) fn finish_bytes(item: &Finish) -> usize {
    let names = |spec: &Spec| {
        spec.queue.as_str().len() + spec.headers.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>()
    };
    let children: usize = item.children.iter().map(|draft| draft.spec.payload.len() + names(&draft.spec)).sum();
    item.completion.result.as_ref().map_or(0, |result| result.len()) + children
}
