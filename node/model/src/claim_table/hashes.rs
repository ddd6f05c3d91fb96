//! Hashes of the parts of a claim table, which its digest adds up.

use super::entry::ClaimEntry;
use super::operation::Ended;
use crate::encoded::Encoded;
use crate::viewstamp::Viewstamp;
use norn_wire::TaskId;
use serde::Serialize;
use std::collections::BTreeMap;
use xxhash_rust::xxh3::xxh3_128;

/// Hash of a part of a table. `kind` tells parts of different types apart.
pub(super) fn hash(kind: u8, value: &impl Serialize) -> u128 {
    xxh3_128(Encoded::of(&[&[kind]], value).bytes())
}

pub(super) fn hash_of_entry(id: &TaskId, entry: &ClaimEntry) -> u128 {
    hash(1, &(id, entry))
}

pub(super) fn hash_of_endings(at: &Viewstamp, items: &[Ended]) -> u128 {
    hash(2, &(at, items))
}

/// What claims and endings were hashed to when they came, so that none is hashed once more when it goes. A table that was decoded knows
/// none of its hashes, and makes those that it needs.
#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    entries: BTreeMap<TaskId, u128>,
    endings: BTreeMap<Viewstamp, u128>,
}

/// Follows from the content, so tables differ only where their contents do.
impl PartialEq for Known {
    fn eq(&self, _: &Known) -> bool {
        true
    }
}

impl Eq for Known {}

impl Known {
    /// Notes the hash of a claim that has come, and returns it.
    pub(super) fn entry_comes(&mut self, id: TaskId, entry: &ClaimEntry) -> u128 {
        let hash = hash_of_entry(&id, entry);
        self.entries.insert(id, hash);
        hash
    }

    /// The hash of a claim that goes.
    pub(super) fn entry_goes(&mut self, id: &TaskId, entry: &ClaimEntry) -> u128 {
        self.entries.remove(id).unwrap_or_else(|| hash_of_entry(id, entry))
    }

    /// Notes the hash of endings that have come, and returns it.
    pub(super) fn endings_come(&mut self, at: Viewstamp, items: &[Ended]) -> u128 {
        let hash = hash_of_endings(&at, items);
        self.endings.insert(at, hash);
        hash
    }

    /// The hash of endings that go.
    pub(super) fn endings_go(&mut self, at: &Viewstamp, items: &[Ended]) -> u128 {
        self.endings.remove(at).unwrap_or_else(|| hash_of_endings(at, items))
    }
}
