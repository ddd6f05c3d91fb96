//! Digest of a task: a sum over its facts, so that merging a fact costs that fact alone.
//!
//! Each fact is hashed with the task's id (xxh3, 128 bits) and the hashes are added. Equal digests mean equal facts, short of an
//! accidental collision; they do not resist an adversary who crafts payloads. Repair depends on digests, and so does which state of a
//! task is archived.

use super::outline::hash_of_encoded;
use super::{Blob, Completed, Facts, Task};
use crate::encoded::Encoded;
use norn_wire::{Spec, TaskId, Token};
use serde::Serialize;
use xxhash_rust::xxh3::xxh3_128;

/// The kind of fact that a spec is.
const SPEC: u8 = 1;

/// 128 bits; bottom has 0.
pub type Digest = u128;

fn fact(id: &TaskId, kind: u8, value: &impl Serialize) -> Digest {
    xxh3_128(Encoded::of(&[id.as_bytes(), &[kind]], value).bytes())
}

/// The digest of a tombstone, whatever its content: replicas that buried a task at different times must not keep comparing it.
pub fn buried(id: &TaskId) -> Digest {
    fact(id, 7, &())
}

/// The digest of a log entry, whether its bytes are in memory or not.
pub(super) fn entry_digest(id: &TaskId, entry: &((Token, u32), Blob)) -> Digest {
    entry.1.digest().unwrap_or_else(|| fact(id, 2, entry))
}

/// The digest of a completion, whether its result is in memory or not.
pub(super) fn completion_digest(id: &TaskId, completion: &(Token, Completed)) -> Digest {
    let left = completion.1.result.as_ref().and_then(Blob::digest);
    left.unwrap_or_else(|| fact(id, 3, completion))
}

/// The facts of a task that are long to hash.
#[derive(PartialEq, Eq, Default)]
struct Long<'a> {
    completions: &'a [(Token, Completed)],
    updates: &'a [((Token, u32), Blob)],
}

impl Long<'_> {
    fn of<S>(task: &Task<S>) -> Long<'_> {
        let Some(facts) = task.facts.as_deref() else { return Long::default() };
        Long { completions: &facts.completions, updates: &facts.updates }
    }
}

/// The facts of a task that a merge may change: only those need be hashed before and after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changing {
    /// Any.
    All,
    /// All but the log entries and completions, and not the spec.
    Short,
}

impl Changing {
    /// What a merge of `delta` into `known` may change.
    pub fn between<S>(known: &Task<S>, delta: &Task<S>) -> Changing {
        let brought = Long::of(delta);
        let stands = brought == Long::default() || brought == Long::of(known);
        if delta.spec.is_none() && stands { Changing::Short } else { Changing::All }
    }
}

impl Facts {
    fn digest(&self, id: &TaskId, changing: Changing) -> Digest {
        let mut sum: Digest = 0;
        if changing == Changing::All {
            for update in &self.updates {
                sum = sum.wrapping_add(entry_digest(id, update));
            }
            for completion in &self.completions {
                sum = sum.wrapping_add(completion_digest(id, completion));
            }
        }
        if let Some(cancel) = &self.cancel {
            sum = sum.wrapping_add(fact(id, 4, cancel));
        }
        for claim in &self.claims {
            sum = sum.wrapping_add(fact(id, 5, claim));
        }
        if self.conflict {
            sum = sum.wrapping_add(fact(id, 6, &true));
        }
        for settled in &self.settled {
            sum = sum.wrapping_add(fact(id, 8, settled));
        }
        if let Some(seal) = &self.seal {
            sum = sum.wrapping_add(fact(id, 9, seal));
        }
        for token in &self.handed {
            sum = sum.wrapping_add(fact(id, 10, token));
        }
        if let Some(group) = &self.group {
            sum = sum.wrapping_add(fact(id, 11, group));
        }
        if self.purged {
            sum = sum.wrapping_add(fact(id, 12, &true));
        }
        sum
    }
}

impl Task {
    /// The digest, computed from scratch.
    pub fn digest(&self, id: &TaskId) -> Digest {
        if self.tombstone.is_some() {
            return buried(id).wrapping_add(self.facts_digest(id, Changing::All));
        }
        let spec = self.spec.as_ref().map_or(0, |spec| spec_digest(id, spec));
        spec.wrapping_add(self.facts_digest(id, Changing::All))
    }
}

/// The spec's part of the digest.
pub fn spec_digest(id: &TaskId, spec: &Spec) -> Digest {
    fact(id, SPEC, spec)
}

/// The spec's part of the digest, and the hash of the spec alone.
pub(super) fn digest_and_hash(id: &TaskId, spec: &Spec) -> (Digest, u64) {
    let before: [&[u8]; 2] = [id.as_bytes(), &[SPEC]];
    let encoded = Encoded::of(&before, spec);
    let spec_from = before.iter().map(|bytes| bytes.len()).sum();
    assert!(encoded.bytes().len() > spec_from, "a spec is encoded as nothing");
    (xxh3_128(encoded.bytes()), hash_of_encoded(&encoded.bytes()[spec_from..]))
}

impl<S> Task<S> {
    /// The part of the digest that these of the later facts have, so that what does not change need not be hashed again.
    pub fn facts_digest(&self, id: &TaskId, changing: Changing) -> Digest {
        self.facts.as_ref().map_or(0, |facts| facts.digest(id, changing))
    }
}
