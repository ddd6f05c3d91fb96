//! Versions of tasks: the digest by which a transaction checks that a task has not changed since it was read.

use crate::claim_table::table::{ClaimEntry, ClaimState};
use crate::task::{Content, Task};
use norn_wire::transaction::Expected;
use norn_wire::{TaskVersion, Token};
use xxhash_rust::xxh3::xxh3_64;

/// The present or last claim of a task, and whether it is held. A voided grant, which no client got, does not count.
fn claim<S>(task: &Task<S>, entry: Option<&ClaimEntry>) -> (Option<Token>, bool) {
    let told = entry.filter(|entry| entry.state != ClaimState::Void).map(|entry| entry.token);
    let before = || entry.and_then(|entry| entry.past.last()).map(|(token, _)| *token);
    let exported = || task.facts.as_ref().and_then(|facts| facts.claims.last()).map(|(token, _)| *token);
    let held = entry.is_some_and(|entry| entry.state == ClaimState::Held);
    (told.or_else(before).or_else(exported), held)
}

/// Digest of a task's own state: its content, its log, how it ended, and its claim. What follows from other tasks is not part of it.
pub fn version<S: Content>(task: &Task<S>, entry: Option<&ClaimEntry>) -> TaskVersion {
    let facts = task.facts.as_deref();
    let parts = (
        task.spec.as_ref().map(Content::hash),
        facts.map(|facts| &facts.updates),
        facts.map(|facts| facts.completions.iter().map(|(token, done)| (token, &done.result)).collect::<Vec<_>>()),
        facts.and_then(|facts| facts.cancel.as_ref()),
        facts.and_then(|facts| facts.seal),
        claim(task, entry),
    );
    TaskVersion(xxh3_64(&rmp_serde::to_vec(&parts).expect("facts always encode")))
}

/// Whether a task exists, has not ended, and is as a transaction expects it.
pub fn is_as_expected<S: Content>(task: &Task<S>, entry: Option<&ClaimEntry>, expected: Expected) -> bool {
    let over = task.spec.is_none() || task.ended().is_some() || entry.is_some_and(|entry| entry.state.is_final());
    !over
        && match expected {
            Expected::Present => true,
            Expected::Version(expected) => version(task, entry) == expected,
            Expected::Token(token) => {
                entry.is_some_and(|entry| entry.token == token && entry.state == ClaimState::Held)
            }
        }
}
