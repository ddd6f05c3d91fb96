//! A spec as a replica keeps it: what claiming needs stays in memory, the body only as long as there is room.
//!
//! In messages and in the log a spec is always whole. A hash of the whole spec identifies it, so that facts merge without their bodies.

use super::blob::{Filling, Slot};
use super::digest::{Digest, digest_and_hash};
use crate::encoded::Encoded;
use norn_wire::group::Grouping;
use norn_wire::request::Revision;
use norn_wire::{QueueName, Spec, TaskId, Token};
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

/// Approximate memory of a spec besides payload and headers.
const SPEC_BYTES: usize = 160;

/// Location of a record in the host's log. File numbers grow with age: a snapshot counts as older than the segment that follows it, and
/// as younger than those it replaces. All else about a place is up to the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Number of the file.
    pub file: NonZeroU32,
    /// Offset of the record in the file.
    pub offset: u64,
}

/// The same with its offset in two halves, which saves the padding for its alignment: each task has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Halved {
    file: NonZeroU32,
    offset: [u32; 2],
}

impl From<Place> for Halved {
    fn from(Place { file, offset }: Place) -> Halved {
        Halved { file, offset: [offset as u32, (offset >> u32::BITS) as u32] }
    }
}

impl From<Halved> for Place {
    fn from(Halved { file, offset }: Halved) -> Place {
        let [low, high] = offset.map(u64::from);
        Place { file, offset: high << u32::BITS | low }
    }
}

/// A part of a task that is not in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// Its task.
    pub id: TaskId,
    /// Its slot.
    pub slot: Slot,
    /// The record that carries it.
    pub place: Place,
    /// Its hash, for a spec as in [`Outline::hash`].
    pub hash: u64,
    /// Approximate bytes that it takes in memory.
    pub bytes: u32,
}

impl Wanted {
    /// Whether a filling is this part.
    pub fn is(&self, filling: &Filling) -> bool {
        let hash = match filling {
            Filling::Spec(spec) => hash_of(spec),
            Filling::Bytes(bytes) => xxh3_64(bytes),
        };
        hash == self.hash && matches!(filling, Filling::Spec(_)) == (self.slot == Slot::Spec)
    }

    /// Bytes that it adds to the size of a message: bytes of results and log entries are counted already.
    pub fn adds_bytes(&self) -> usize {
        if self.slot == Slot::Spec { self.bytes as usize } else { 0 }
    }
}

/// A part of a task in a record, with its hash.
pub type Part = (TaskId, Slot, u64);

/// The whole spec, in memory or in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Body(Kept);

/// A place needs no room in a task while its spec is in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Kept {
    Here(Box<Here>),
    Away {
        place: Halved,
        /// Bytes, and the bit [`LOST`].
        size: u32,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Here {
    spec: Arc<Spec>,
    /// Absent until the host has reported it.
    place: Option<Halved>,
    /// Bytes.
    size: u32,
}

/// Whether the log could not load the body when it was last asked, and no peer had it either: a bit that no size reaches.
const LOST: u32 = 1 << 31;

impl Body {
    fn new(spec: Arc<Spec>) -> Body {
        let size = whole_bytes(&spec);
        Body(Kept::Here(Box::new(Here { spec, place: None, size })))
    }

    /// The spec, if it is in memory.
    pub fn here(&self) -> Option<&Arc<Spec>> {
        match &self.0 {
            Kept::Here(here) => Some(&here.spec),
            Kept::Away { .. } => None,
        }
    }

    /// Bytes of payload and headers, and a little for the rest.
    pub fn bytes(&self) -> u32 {
        match &self.0 {
            Kept::Here(here) => here.size,
            Kept::Away { size, .. } => size & !LOST,
        }
    }

    /// Bytes in memory.
    pub fn memory_bytes(&self) -> usize {
        if self.here().is_some() { self.bytes() as usize } else { 0 }
    }

    /// Whether it is lost at this node.
    pub fn is_lost(&self) -> bool {
        matches!(self.0, Kept::Away { size, .. } if size & LOST != 0)
    }

    fn set_lost(&mut self, lost: bool) {
        if let Kept::Away { size, .. } = &mut self.0 {
            *size = *size & !LOST | if lost { LOST } else { 0 };
        }
    }

    /// Where the log has it.
    fn place(&self) -> Option<Halved> {
        match &self.0 {
            Kept::Here(here) => here.place,
            Kept::Away { place, .. } => Some(*place),
        }
    }

    fn set_place(&mut self, new: Halved) {
        match &mut self.0 {
            Kept::Here(here) => here.place = Some(new),
            Kept::Away { place, .. } => *place = new,
        }
    }

    fn leave_memory(&mut self) {
        if let Kept::Here(here) = &self.0
            && let Some(place) = here.place
        {
            self.0 = Kept::Away { place, size: here.size };
        }
    }
}

/// A spec with its body in memory or in the log alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outline {
    /// Its queue.
    pub queue: QueueName,
    /// Hash of the whole spec.
    pub hash: u64,
    /// The whole spec.
    pub body: Body,
    /// As in [`Spec`].
    pub priority: i32,
    /// As in [`Spec`].
    pub attempts_max: u32,
    /// Absent where all of it is empty.
    rare: Option<Box<Rare>>,
}

/// The fields that few specs have, as in [`Spec`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Rare {
    /// A hash of it.
    key: Option<NonZeroU64>,
    not_before_ms: u64,
    after: Box<[TaskId]>,
    grouping: Option<Box<Grouping>>,
    revision: Option<Box<Revision>>,
}

impl Rare {
    fn of(spec: &Spec) -> Option<Box<Rare>> {
        let rare = Rare {
            key: spec.key.as_ref().map(|key| NonZeroU64::new(xxh3_64(key.as_bytes())).unwrap_or(NonZeroU64::MIN)),
            not_before_ms: spec.not_before_ms,
            after: spec.after.as_slice().into(),
            grouping: spec.grouping.clone(),
            revision: spec.revision.clone(),
        };
        (rare != Rare::default()).then(|| Box::new(rare))
    }
}

impl Outline {
    /// The outline of a spec that was just learned.
    pub fn new(spec: Arc<Spec>) -> Outline {
        let hash = hash_of(&spec);
        Outline::hashed(spec, hash)
    }

    /// The same, with its part of the digest of its task: the spec, which may be long, is encoded once for both.
    pub(super) fn with_digest(id: &TaskId, spec: Arc<Spec>) -> (Outline, Digest) {
        let (digest, hash) = digest_and_hash(id, &spec);
        (Outline::hashed(spec, hash), digest)
    }

    fn hashed(spec: Arc<Spec>, hash: u64) -> Outline {
        Outline {
            queue: spec.queue.clone(),
            hash,
            priority: spec.priority,
            attempts_max: spec.attempts_max,
            rare: Rare::of(&spec),
            body: Body::new(spec),
        }
    }

    /// Hash of its key: tasks of one queue with equal keys run one at a time, unless the queue allows more.
    pub fn key(&self) -> Option<NonZeroU64> {
        self.rare.as_ref()?.key
    }

    /// The part to ask the host for; nothing where the body is in memory.
    pub fn wanted(&self, id: TaskId) -> Option<Wanted> {
        let place = self.body.place().filter(|_| self.body.here().is_none())?;
        Some(Wanted { id, slot: Slot::Spec, place: place.into(), hash: self.hash, bytes: self.body.bytes() })
    }

    /// Notes the log's place for the body. Without room in memory the body is evicted.
    pub fn place(&mut self, place: Place, room: bool) {
        self.body.set_place(place.into());
        if !room {
            self.leave_memory();
        }
    }

    /// Notes that the log has it in a younger file, too, and will soon drop the older ones.
    pub fn move_to(&mut self, place: Place) {
        if self.body.place().is_some_and(|old| old.file < place.file) {
            self.body.set_place(place.into());
        }
    }

    /// Evicts the body, if the log can load it again.
    pub fn leave_memory(&mut self) {
        self.body.leave_memory();
    }

    /// Notes that the log cannot load it.
    pub fn lose(&mut self) {
        self.body.set_lost(true);
    }

    /// Notes that the log could load it after all.
    pub fn find(&mut self) {
        self.body.set_lost(false);
    }

    /// What is known of it without the body: payload, headers and key are empty.
    pub fn stub(&self) -> Spec {
        let Rare { not_before_ms, after, grouping, revision, .. } = self.rare.as_deref().cloned().unwrap_or_default();
        Spec {
            queue: self.queue.clone(),
            payload: Vec::new(),
            priority: self.priority,
            not_before_ms,
            headers: Vec::new(),
            attempts_max: self.attempts_max,
            after: after.into_vec(),
            key: None,
            grouping,
            revision,
        }
    }

    /// Restores a lost body from another replica, as if it had just been learned.
    pub fn restore(&mut self, body: Body) {
        assert!(self.body.is_lost() && body.here().is_some(), "a lost body comes back from who has it");
        self.body = body;
    }
}

/// Size of a spec as in [`Body::bytes`]. No spec that a node accepts comes near the bound.
pub fn whole_bytes(spec: &Spec) -> u32 {
    u32::try_from(SPEC_BYTES + body_bytes(spec)).unwrap_or(u32::MAX).min(LOST - 1)
}

/// Bytes of payload and headers.
pub fn body_bytes(spec: &Spec) -> usize {
    let headers = spec.headers.iter().map(|(name, value)| name.len() + value.len());
    let key = spec.key.as_ref().map_or(0, String::len);
    spec.payload.len()
        + headers.sum::<usize>()
        + spec.after.len() * size_of::<TaskId>()
        + key
        + spec.grouping.as_ref().map_or(0, |_| size_of::<Grouping>())
}

fn hash_of(spec: &Spec) -> u64 {
    hash_of_encoded(Encoded::of(&[], spec).bytes())
}

/// The hash of an encoded spec.
pub(super) fn hash_of_encoded(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

/// What merging and claiming need of a spec, whole or outlined.
pub trait Content {
    /// Hash of the whole spec.
    fn hash(&self) -> u64;
    /// Not claimable before this time.
    fn not_before_ms(&self) -> u64;
    /// Not claimable before these tasks have ended.
    fn after(&self) -> &[TaskId];
    /// Its part in groups.
    fn grouping(&self) -> Option<&Grouping>;
    /// Set if a transaction changed it since it was enqueued.
    fn revision(&self) -> Option<&Revision>;
    /// Whether its body can be read.
    fn is_readable(&self) -> bool;
    /// Approximate bytes in a message.
    fn size_bytes(&self) -> usize;

    /// Hash of the spec as enqueued.
    fn origin(&self) -> u64 {
        self.revision().map_or_else(|| self.hash(), |revision| revision.origin)
    }

    /// Order of two specs: the later change is greater, and otherwise the greater hash.
    fn rank(&self) -> (Option<Token>, u64) {
        (self.revision().map(|revision| revision.at), self.hash())
    }
}

impl Content for Arc<Spec> {
    fn hash(&self) -> u64 {
        hash_of(self)
    }

    fn not_before_ms(&self) -> u64 {
        self.not_before_ms
    }

    fn after(&self) -> &[TaskId] {
        &self.after
    }

    fn grouping(&self) -> Option<&Grouping> {
        self.grouping.as_deref()
    }

    fn revision(&self) -> Option<&Revision> {
        self.revision.as_deref()
    }

    fn is_readable(&self) -> bool {
        true
    }

    fn size_bytes(&self) -> usize {
        body_bytes(self) + 64
    }
}

impl Content for Outline {
    fn hash(&self) -> u64 {
        self.hash
    }

    fn not_before_ms(&self) -> u64 {
        self.rare.as_ref().map_or(0, |rare| rare.not_before_ms)
    }

    fn after(&self) -> &[TaskId] {
        self.rare.as_ref().map_or(&[], |rare| &rare.after)
    }

    fn grouping(&self) -> Option<&Grouping> {
        self.rare.as_ref()?.grouping.as_deref()
    }

    fn revision(&self) -> Option<&Revision> {
        self.rare.as_ref()?.revision.as_deref()
    }

    fn is_readable(&self) -> bool {
        !self.body.is_lost()
    }

    fn size_bytes(&self) -> usize {
        self.body.bytes() as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_whole_again_from_its_halves() {
        for offset in [0, 1, 0x0123_4567_89ab_cdef, u64::from(u32::MAX), u64::MAX] {
            for file in [NonZeroU32::MIN, NonZeroU32::MAX] {
                let place = Place { file, offset };
                assert_eq!(Place::from(Halved::from(place)), place);
            }
        }
    }
}
