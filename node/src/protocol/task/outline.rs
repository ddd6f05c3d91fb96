//! A spec as a replica keeps it: what claiming needs stays in memory, the body only as long as there is room.
//!
//! On the wire and in the log a spec is always whole. Which of two is meant is told by a hash of all of it, so that facts
//! merge without their bodies.

use super::blob::{Filling, Slot};
use norn_wire::group::Grouping;
use norn_wire::request::Revision;
use norn_wire::{QueueName, Spec, TaskId, Token};
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

/// Memory of a spec besides payload and headers, about.
const SPEC_BYTES: usize = 160;

/// Where the host has a record. Files have numbers that grow with their age: a snapshot counts as older than the segment
/// that it is followed by, and as younger than those it stands for. Otherwise this is the host's affair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Number of the file.
    pub file: NonZeroU32,
    /// Where the record begins in it.
    pub offset: u64,
}

/// The same with its offset in two halves: as each task has one, no room is left for its alignment.
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

/// What of a task is not in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// Whose it is.
    pub id: TaskId,
    /// What it is.
    pub slot: Slot,
    /// The record that carries it.
    pub place: Place,
    /// Hash of it, of a spec as in [`Outline::hash`].
    pub hash: u64,
    /// Bytes that it takes in memory, about.
    pub bytes: u32,
}

impl Wanted {
    /// Whether this is what was meant.
    pub fn is(&self, filling: &Filling) -> bool {
        let hash = match filling {
            Filling::Spec(spec) => hash_of(spec),
            Filling::Bytes(bytes) => xxh3_64(bytes),
        };
        hash == self.hash && matches!(filling, Filling::Spec(_)) == (self.slot == Slot::Spec)
    }

    /// What a message is larger with it than its size says without: that counts bytes of results and log entries already.
    pub fn adds_bytes(&self) -> usize {
        if self.slot == Slot::Spec { self.bytes as usize } else { 0 }
    }
}

/// What a record has of a task, with its hash.
pub type Part = (TaskId, Slot, u64);

/// The whole spec, in memory or in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Body {
    here: Option<Arc<Spec>>,
    /// Absent until the host has told.
    place: Option<Halved>,
    /// Bytes, and [`LOST`].
    size: u32,
}

/// The log could not give the body back when it was last asked, nor has a peer: a bit that no size reaches.
const LOST: u32 = 1 << 31;

impl Body {
    /// The spec, if it is in memory.
    pub fn here(&self) -> Option<&Arc<Spec>> {
        self.here.as_ref()
    }

    /// Bytes of payload and headers, and a little for the rest.
    pub fn bytes(&self) -> u32 {
        self.size & !LOST
    }

    /// Bytes in memory.
    pub fn memory_bytes(&self) -> usize {
        if self.here.is_some() { self.bytes() as usize } else { 0 }
    }

    /// Whether nobody here can say what it was.
    pub fn is_lost(&self) -> bool {
        self.size & LOST != 0
    }
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outline {
    /// Its queue.
    pub queue: QueueName,
    /// Hash of the whole spec.
    pub hash: u64,
    /// Everything.
    pub body: Body,
    /// As in [`Spec`].
    pub priority: i32,
    /// As in [`Spec`].
    pub attempts_max: u32,
    /// Hash of its key: tasks of one queue with the same are run one at a time.
    pub key: Option<NonZeroU64>,
    /// Absent where all of it is empty.
    rare: Option<Box<Rare>>,
}

/// What few specs have, as in [`Spec`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Rare {
    not_before_ms: u64,
    after: Box<[TaskId]>,
    grouping: Option<Box<Grouping>>,
    revision: Option<Box<Revision>>,
}

impl Rare {
    fn of(spec: &Spec) -> Option<Box<Rare>> {
        let rare = Rare {
            not_before_ms: spec.not_before_ms,
            after: spec.after.as_slice().into(),
            grouping: spec.grouping.clone(),
            revision: spec.revision.clone(),
        };
        (rare != Rare::default()).then(|| Box::new(rare))
    }
}

impl Outline {
    /// Of a spec that was just learned.
    pub fn new(spec: Arc<Spec>) -> Outline {
        let size = whole_bytes(&spec);
        Outline {
            queue: spec.queue.clone(),
            hash: hash_of(&spec),
            priority: spec.priority,
            attempts_max: spec.attempts_max,
            key: spec.key.as_ref().map(|key| NonZeroU64::new(xxh3_64(key.as_bytes())).unwrap_or(NonZeroU64::MIN)),
            rare: Rare::of(&spec),
            body: Body { here: Some(spec), place: None, size },
        }
    }

    /// What to ask of the host to have the body; nothing where it is in memory.
    pub fn wanted(&self, id: TaskId) -> Option<Wanted> {
        let place = self.body.place.filter(|_| self.body.here.is_none())?;
        Some(Wanted { id, slot: Slot::Spec, place: place.into(), hash: self.hash, bytes: self.body.bytes() })
    }

    /// The log has it there. Without room in memory it leaves it.
    pub fn place(&mut self, place: Place, room: bool) {
        self.body.place = Some(place.into());
        if !room {
            self.leave_memory();
        }
    }

    /// The log has it in a younger file, too, and will not have the older ones for long.
    pub fn move_to(&mut self, place: Place) {
        if self.body.place.is_some_and(|old| old.file < place.file) {
            self.body.place = Some(place.into());
        }
    }

    /// It will be read rarely, if the log can give it back.
    pub fn leave_memory(&mut self) {
        if self.body.place.is_some() {
            self.body.here = None;
        }
    }

    /// The log cannot give it back.
    pub fn lose(&mut self) {
        self.find();
        if self.body.here.is_none() {
            self.body.size |= LOST;
        }
    }

    /// The log could give it back after all.
    pub fn find(&mut self) {
        self.body.size &= !LOST;
    }

    /// What is known of it without the body: payload, headers and key are empty.
    pub fn stub(&self) -> Spec {
        let Rare { not_before_ms, after, grouping, revision } = self.rare.as_deref().cloned().unwrap_or_default();
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

    /// Another replica had it: it is as if it had just been learned.
    pub fn restore(&mut self, body: Body) {
        assert!(self.body.is_lost() && body.here.is_some(), "a lost body comes back from who has it");
        self.body = body;
    }
}

/// What a spec counts for: as [`Body::bytes`]. No spec that a node takes comes near the bound.
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
    use serde::Serialize;
    let mut bytes = Vec::with_capacity(body_bytes(spec) + 64);
    spec.serialize(&mut rmp_serde::Serializer::new(&mut bytes)).expect("specs always encode");
    xxh3_64(&bytes)
}

/// What merging and claiming ask of a spec, whole or not.
pub trait Content {
    /// Of all of it.
    fn hash(&self) -> u64;
    /// Not claimable before.
    fn not_before_ms(&self) -> u64;
    /// Not claimable before these have ended.
    fn after(&self) -> &[TaskId];
    /// What it has to do with groups.
    fn grouping(&self) -> Option<&Grouping>;
    /// That it is not as it was enqueued.
    fn revision(&self) -> Option<&Revision>;
    /// Whether it can be handed out.
    fn is_readable(&self) -> bool;
    /// Bytes that it takes in a message, about.
    fn size_bytes(&self) -> usize;

    /// Hash of what was enqueued.
    fn origin(&self) -> u64 {
        self.revision().map_or_else(|| self.hash(), |revision| revision.origin)
    }

    /// Of two, the greater one is kept: the later change, and else any.
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
