//! Versions of tasks: the digest by which a transaction checks that a task has not changed since it was read.

use crate::claim_table::table::{Cell, CellState};
use crate::task::{Content, Task};
use norn_wire::transaction::Expected;
use norn_wire::{TaskVersion, Token};
use xxhash_rust::xxh3::xxh3_64;

/// The present or last claim of a task, and whether it is held. A voided grant, which no client got, does not count.
fn claim<S>(task: &Task<S>, cell: Option<&Cell>) -> (Option<Token>, bool) {
    let told = cell.filter(|cell| cell.state != CellState::Void).map(|cell| cell.token);
    let before = || cell.and_then(|cell| cell.past.last()).map(|(token, _)| *token);
    let exported = || task.facts.as_ref().and_then(|facts| facts.claims.last()).map(|(token, _)| *token);
    let held = cell.is_some_and(|cell| cell.state == CellState::Held);
    (told.or_else(before).or_else(exported), held)
}

/// Digest of a task's own state: its content, its log, how it ended, and its claim. What follows from other tasks is not part of it.
pub fn version<S: Content>(task: &Task<S>, cell: Option<&Cell>) -> TaskVersion {
    let facts = task.facts.as_deref();
    let parts = (
        task.spec.as_ref().map(Content::hash),
        facts.map(|facts| &facts.updates),
        facts.map(|facts| facts.completions.iter().map(|(token, done)| (token, &done.result)).collect::<Vec<_>>()),
        facts.and_then(|facts| facts.cancel.as_ref()),
        facts.and_then(|facts| facts.seal),
        claim(task, cell),
    );
    TaskVersion(xxh3_64(&rmp_serde::to_vec(&parts).expect("facts always encode")))
}

/// Whether a task exists, has not ended, and is as a transaction expects it.
pub fn is_as_expected<S: Content>(task: &Task<S>, cell: Option<&Cell>, expected: Expected) -> bool {
    let over = task.spec.is_none() || task.ended().is_some() || cell.is_some_and(|cell| cell.state.is_final());
    !over
        && match expected {
            Expected::Present => true,
            Expected::Version(expected) => version(task, cell) == expected,
            Expected::Token(token) => cell.is_some_and(|cell| cell.token == token && cell.state == CellState::Held),
        }
}
