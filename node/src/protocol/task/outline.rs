//! A spec as a replica keeps it: what claiming needs stays in memory, the body only as long as there is room.
//!
//! On the wire and in the log a spec is always whole. Which of two is meant is told by a hash of all of it, so that facts
//! merge without their bodies.

use norn_client::wire::group::Grouping;
use norn_client::wire::request::Revision;
use norn_client::wire::{QueueName, Spec, TaskId, Token};
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

/// A body that is not in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// Whose it is.
    pub id: TaskId,
    /// The record that carries it.
    pub place: Place,
    /// Hash of the whole spec.
    pub hash: u64,
    /// Bytes that it takes in memory, about.
    pub bytes: u32,
}

impl Wanted {
    /// Whether this is the spec that was meant.
    pub fn is(&self, spec: &Spec) -> bool {
        hash_of(spec) == self.hash
    }
}

/// The whole spec, in memory or in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Body {
    here: Option<Arc<Spec>>,
    /// Absent until the host has told.
    place: Option<Place>,
    bytes: u32,
    /// The log could not give it back when it was last asked, nor has a peer.
    lost: bool,
}

impl Body {
    /// The spec, if it is in memory.
    pub fn here(&self) -> Option<&Arc<Spec>> {
        self.here.as_ref()
    }

    /// Bytes of payload and headers, and a little for the rest.
    pub fn bytes(&self) -> u32 {
        self.bytes
    }

    /// Bytes in memory.
    pub fn memory_bytes(&self) -> usize {
        if self.here.is_some() { self.bytes as usize } else { 0 }
    }

    /// Whether nobody here can say what it was.
    pub fn is_lost(&self) -> bool {
        self.lost
    }
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outline {
    /// Its queue.
    pub queue: QueueName,
    /// Hash of the whole spec.
    pub hash: u64,
    /// As in [`Spec`].
    pub not_before_ms: u64,
    /// Everything.
    pub body: Body,
    /// As in [`Spec`].
    pub priority: i32,
    /// As in [`Spec`].
    pub attempts_max: u32,
    /// As in [`Spec`].
    pub after: Box<[TaskId]>,
    /// Hash of its key: tasks of one queue with the same are run one at a time.
    pub key: Option<NonZeroU64>,
    /// As in [`Spec`].
    pub grouping: Option<Box<Grouping>>,
    /// As in [`Spec`].
    pub revision: Option<Box<Revision>>,
}

impl Outline {
    /// Of a spec that was just learned.
    pub fn new(spec: Arc<Spec>) -> Outline {
        let bytes = whole_bytes(&spec);
        Outline {
            queue: spec.queue.clone(),
            hash: hash_of(&spec),
            not_before_ms: spec.not_before_ms,
            priority: spec.priority,
            attempts_max: spec.attempts_max,
            after: spec.after.as_slice().into(),
            key: spec.key.as_ref().map(|key| NonZeroU64::new(xxh3_64(key.as_bytes())).unwrap_or(NonZeroU64::MIN)),
            grouping: spec.grouping.clone(),
            revision: spec.revision.clone(),
            body: Body { here: Some(spec), place: None, bytes, lost: false },
        }
    }

    /// What to ask of the host to have the body; nothing where it is in memory.
    pub fn wanted(&self, id: TaskId) -> Option<Wanted> {
        let place = self.body.place.filter(|_| self.body.here.is_none())?;
        Some(Wanted { id, place, hash: self.hash, bytes: self.body.bytes })
    }

    /// The log has it there. Without room in memory it leaves it.
    pub fn place(&mut self, place: Place, room: bool) {
        self.body.place = Some(place);
        if !room {
            self.leave_memory();
        }
    }

    /// The log has it in a younger file, too, and will not have the older ones for long.
    pub fn move_to(&mut self, place: Place) {
        if self.body.place.is_some_and(|old| old.file < place.file) {
            self.body.place = Some(place);
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
        self.body.lost = self.body.here.is_none();
    }

    /// The log could give it back after all.
    pub fn find(&mut self) {
        self.body.lost = false;
    }

    /// Another replica had it: it is as if it had just been learned.
    pub fn restore(&mut self, body: Body) {
        assert!(self.body.lost && body.here.is_some(), "a lost body comes back from who has it");
        self.body = body;
    }
}

/// What a spec counts for: as [`Body::bytes`].
pub fn whole_bytes(spec: &Spec) -> u32 {
    u32::try_from(SPEC_BYTES + body_bytes(spec)).unwrap_or(u32::MAX)
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
    /// Whether it takes turns with others.
    fn has_key(&self) -> bool;
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

    fn has_key(&self) -> bool {
        self.key.is_some()
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
        self.not_before_ms
    }

    fn after(&self) -> &[TaskId] {
        &self.after
    }

    fn has_key(&self) -> bool {
        self.key.is_some()
    }

    fn grouping(&self) -> Option<&Grouping> {
        self.grouping.as_deref()
    }

    fn revision(&self) -> Option<&Revision> {
        self.revision.as_deref()
    }

    fn is_readable(&self) -> bool {
        !self.body.lost
    }

    fn size_bytes(&self) -> usize {
        self.body.bytes as usize
    }
}
