//! Bytes of a result or a log entry as a replica keeps them: in memory, or in the log alone.
//!
//! In messages and in the log the bytes are always present. For bytes that were evicted the replica keeps their hash and the digest of
//! their fact, for comparisons and digests. Only the bytes decide which of two different values under one key is the greater one: such
//! facts are undecided ([`Task::take_undecided`]) until the bytes are loaded.

use super::outline::Place;
use super::{Completed, Digest, Facts, Task, Wanted};
use crdts::CvRDT;
use norn_wire::{Spec, TaskId, Token};
use serde::de::Deserializer;
use serde::ser::{Error, Serializer};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use std::cmp::Ordering;
use std::num::NonZeroU32;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

/// Smaller blobs are never evicted: to keep their place would take as much memory.
pub const SMALL_BYTES: usize = 128;

/// A part of a task that may be in the log alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Slot {
    /// Its spec.
    Spec,
    /// A log entry.
    Entry(Token, u32),
    /// The result of a completion.
    Result(Token),
}

/// What is known of lost bytes: their slot, their hash, and their number.
pub type LostBytes = (Slot, u64, u32);

/// A part that was loaded from the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Filling {
    /// A spec.
    Spec(Arc<Spec>),
    /// A log entry or a result.
    Bytes(ByteBuf),
}

/// Bytes of a result or log entry, in memory or in the log alone.
#[derive(Debug, Clone)]
pub struct Blob(Content);

#[derive(Debug, Clone)]
enum Content {
    Here(ByteBuf),
    /// The log has reported where it has them.
    Placed(Box<Placed>),
}

#[derive(Debug, Clone)]
struct Placed {
    here: Option<ByteBuf>,
    place: Place,
    hash: u64,
    bytes: u32,
    /// Whether the log could not load them when it was last asked, and no peer had them either.
    lost: bool,
    /// Digest of their fact, once they are evicted.
    digest: Digest,
}

impl Blob {
    /// Bytes that another replica has lost.
    fn lost(hash: u64, bytes: u32) -> Blob {
        let nowhere = Place { file: NonZeroU32::MIN, offset: 0 };
        Blob(Content::Placed(Box::new(Placed { here: None, place: nowhere, hash, bytes, lost: true, digest: 0 })))
    }

    /// The bytes, if they are in memory.
    pub fn here(&self) -> Option<&ByteBuf> {
        match &self.0 {
            Content::Here(bytes) => Some(bytes),
            Content::Placed(placed) => placed.here.as_ref(),
        }
    }

    /// Number of bytes, in memory or not.
    pub fn len(&self) -> usize {
        match &self.0 {
            Content::Here(bytes) => bytes.len(),
            Content::Placed(placed) => placed.bytes as usize,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes counted as memory.
    pub fn memory_bytes(&self) -> usize {
        if self.is_small() || self.here().is_none() { 0 } else { self.len() }
    }

    /// Whether they are never evicted.
    pub fn is_small(&self) -> bool {
        self.len() < SMALL_BYTES
    }

    /// Whether they could be evicted if the log had reported where it has them.
    pub fn is_unplaced(&self) -> bool {
        matches!(self.0, Content::Here(_)) && !self.is_small()
    }

    /// Whether they are in memory and need not be.
    pub fn can_leave(&self) -> bool {
        matches!(&self.0, Content::Placed(placed) if placed.here.is_some())
    }

    /// Whether they are lost at this node.
    pub fn is_lost(&self) -> bool {
        matches!(&self.0, Content::Placed(placed) if placed.lost)
    }

    /// Hash of the bytes.
    pub fn hash(&self) -> u64 {
        match &self.0 {
            Content::Here(bytes) => xxh3_64(bytes),
            Content::Placed(placed) => placed.hash,
        }
    }

    /// The digest of their fact, if they are evicted.
    pub(super) fn digest(&self) -> Option<Digest> {
        match &self.0 {
            Content::Placed(placed) if placed.here.is_none() => Some(placed.digest),
            Content::Here(_) | Content::Placed(_) => None,
        }
    }

    /// The part to ask the host for; nothing where the bytes are in memory.
    pub fn wanted(&self, id: TaskId, slot: Slot) -> Option<Wanted> {
        match &self.0 {
            Content::Placed(placed) if placed.here.is_none() => {
                let Placed { place, hash, bytes, .. } = **placed;
                Some(Wanted { id, slot, place, hash, bytes })
            }
            Content::Here(_) | Content::Placed(_) => None,
        }
    }

    /// Notes the log's place for the bytes, if these are the ones with this hash.
    pub fn place(&mut self, place: Place, hash: u64) {
        if let Content::Here(bytes) = &mut self.0
            && bytes.len() >= SMALL_BYTES
            && let Ok(length) = u32::try_from(bytes.len())
            && xxh3_64(bytes) == hash
        {
            let here = Some(std::mem::take(bytes));
            self.0 = Content::Placed(Box::new(Placed { here, place, hash, bytes: length, lost: false, digest: 0 }));
        }
    }

    /// Notes that the log has them in a younger file, too, and will soon drop the older ones.
    pub fn move_to(&mut self, place: Place) {
        if let Content::Placed(placed) = &mut self.0
            && placed.place.file < place.file
        {
            placed.place = place;
        }
    }

    /// Evicts the bytes.
    fn leave(&mut self, digest: Digest) {
        if let Content::Placed(placed) = &mut self.0 {
            assert!(placed.here.is_some(), "bytes leave memory that are not there");
            (placed.here, placed.digest) = (None, digest);
        }
    }

    /// Notes that the log cannot load them, or could after all.
    pub fn set_lost(&mut self, lost: bool) {
        if let Content::Placed(placed) = &mut self.0 {
            placed.lost = lost && placed.here.is_none();
        }
    }

    /// Puts loaded bytes back into memory.
    pub fn bring_back(&mut self, bytes: ByteBuf, hash: u64) {
        if let Content::Placed(placed) = &mut self.0
            && placed.here.is_none()
            && placed.hash == hash
        {
            (placed.here, placed.lost) = (Some(bytes), false);
        }
    }

    /// Restores lost bytes from another replica, as if they had just been learned. Returns whether these are the ones.
    fn restore(&mut self, other: &Blob) -> bool {
        let restores = self.is_lost() && other.here().is_some() && *self == *other;
        if restores {
            *self = other.clone();
        }
        restores
    }

    /// Drops the place in the log, which means nothing to other nodes, for sending.
    fn leave_out_place(&mut self) {
        if let Content::Placed(placed) = &mut self.0
            && let Some(bytes) = placed.here.take()
        {
            self.0 = Content::Here(bytes);
        }
    }

    /// Whether only bytes that are not in memory could decide which of two is the greater one.
    fn is_undecided(&self, other: &Blob) -> bool {
        (self.here().is_none() || other.here().is_none()) && self != other
    }
}

impl From<ByteBuf> for Blob {
    fn from(bytes: ByteBuf) -> Blob {
        Blob(Content::Here(bytes))
    }
}

impl From<Vec<u8>> for Blob {
    fn from(bytes: Vec<u8>) -> Blob {
        ByteBuf::from(bytes).into()
    }
}

impl PartialEq for Blob {
    fn eq(&self, other: &Blob) -> bool {
        match (self.here(), other.here()) {
            (Some(own), Some(other)) => own == other,
            _ => self.len() == other.len() && self.hash() == other.hash(),
        }
    }
}

impl Eq for Blob {}

impl Ord for Blob {
    /// By content. A store compares only blobs whose bytes are in memory.
    fn cmp(&self, other: &Blob) -> Ordering {
        match (self.here(), other.here()) {
            (Some(own), Some(other)) => own.cmp(other),
            _ => (self.hash(), self.len()).cmp(&(other.hash(), other.len())),
        }
    }
}

impl PartialOrd for Blob {
    fn partial_cmp(&self, other: &Blob) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Serialize for Blob {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let bytes = self.here().ok_or_else(|| S::Error::custom("bytes that are in the log alone"))?;
        bytes.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Blob, D::Error> {
        ByteBuf::deserialize(deserializer).map(Blob::from)
    }
}

impl Facts {
    /// All parts that may be in the log alone.
    pub fn blobs(&self) -> impl Iterator<Item = (Slot, &Blob)> {
        let entries = self.updates.iter().map(|((token, sequence), data)| (Slot::Entry(*token, *sequence), data));
        let results = self.completions.iter();
        entries.chain(results.filter_map(|(token, done)| Some((Slot::Result(*token), done.result.as_ref()?))))
    }

    fn blobs_mut(&mut self) -> impl Iterator<Item = (Slot, &mut Blob)> {
        let entries = self.updates.iter_mut().map(|((token, sequence), data)| (Slot::Entry(*token, *sequence), data));
        let results = self.completions.iter_mut();
        entries.chain(results.filter_map(|(token, done)| Some((Slot::Result(*token), done.result.as_mut()?))))
    }

    /// One of these parts.
    pub fn blob(&self, slot: Slot) -> Option<&Blob> {
        match slot {
            Slot::Spec => None,
            Slot::Entry(token, sequence) => {
                let found = self.updates.binary_search_by(|(key, _)| key.cmp(&(token, sequence)));
                found.ok().map(|at| &self.updates[at].1)
            }
            Slot::Result(token) => {
                let found = self.completions.binary_search_by(|(key, _)| key.cmp(&token));
                found.ok().and_then(|at| self.completions[at].1.result.as_ref())
            }
        }
    }

    /// One of these parts, as in [`Facts::blob`].
    pub fn blob_mut(&mut self, slot: Slot) -> Option<&mut Blob> {
        match slot {
            Slot::Spec => None,
            Slot::Entry(token, sequence) => {
                let found = self.updates.binary_search_by(|(key, _)| key.cmp(&(token, sequence)));
                found.ok().map(|at| &mut self.updates[at].1)
            }
            Slot::Result(token) => {
                let found = self.completions.binary_search_by(|(key, _)| key.cmp(&token));
                found.ok().and_then(|at| self.completions[at].1.result.as_mut())
            }
        }
    }

    /// Takes facts out of `other` that can be merged only with bytes that are not in memory.
    fn take_undecided(&self, other: &mut Facts) -> Facts {
        let entry = |((token, sequence), data): &mut ((Token, u32), Blob)| {
            self.blob(Slot::Entry(*token, *sequence)).is_some_and(|known| known.is_undecided(data))
        };
        let result = |(token, done): &mut (Token, Completed)| {
            let found = self.completions.binary_search_by(|(key, _)| key.cmp(token));
            let Some((_, known)) = found.ok().map(|at| &self.completions[at]) else { return false };
            let both = known.result.as_ref().zip(done.result.as_ref());
            known.sequence == done.sequence && both.is_some_and(|(known, result)| known.is_undecided(result))
        };
        let updates = other.updates.extract_if(.., entry).collect();
        let completions = other.completions.extract_if(.., result).collect();
        Facts { updates, completions, ..Facts::default() }
    }

    /// Whether anything may be evicted.
    pub fn may_leave(&self) -> bool {
        self.updates.iter().any(|(_, data)| data.can_leave())
            || self.completions.iter().any(|(_, done)| done.may_leave())
    }

    /// Evicts all log entries that it may and, if `results` is set, results.
    pub fn leave_memory(&mut self, id: &TaskId, results: bool) {
        for entry in &mut self.updates {
            if entry.1.can_leave() {
                let digest = super::digest::entry_digest(id, entry);
                entry.1.leave(digest);
            }
        }
        for completion in self.completions.iter_mut().filter(|_| results) {
            if completion.1.may_leave() {
                let digest = super::digest::completion_digest(id, completion);
                completion.1.result.iter_mut().for_each(|result| result.leave(digest));
            }
        }
    }

    /// Restores from other facts what is lost here. Returns whether there was any of it.
    pub fn restore(&mut self, other: &Facts) -> bool {
        let mut restored = false;
        for (slot, blob) in self.blobs_mut().filter(|(_, blob)| blob.is_lost()) {
            restored |= other.blob(slot).is_some_and(|other| blob.restore(other));
        }
        restored
    }

    /// The parts for which the log has reported no place.
    pub fn unplaced(&self) -> Facts {
        let is_unplaced = |blob: &Blob| blob.is_unplaced();
        let updates = self.updates.iter().filter(|(_, data)| is_unplaced(data)).cloned().collect();
        let completions =
            self.completions.iter().filter(|(_, done)| done.result.as_ref().is_some_and(is_unplaced)).cloned();
        Facts { updates, completions: completions.collect(), ..Facts::default() }
    }

    /// Notes that a snapshot has all of it.
    pub fn move_to(&mut self, place: Place) {
        self.blobs_mut().for_each(|(_, blob)| blob.move_to(place));
    }

    /// Brings it into the form in which it is sent, as far as it is in memory.
    pub fn leave_out_places(&mut self) {
        self.blobs_mut().for_each(|(_, blob)| blob.leave_out_place());
    }

    /// Takes out the parts that cannot be sent, without their bytes.
    fn take_gaps(&mut self) -> (Facts, Vec<LostBytes>) {
        let gaps = self.blobs().filter(|(_, blob)| blob.here().is_none());
        let bytes: Vec<LostBytes> = gaps.map(|(slot, blob)| (slot, blob.hash(), blob.len() as u32)).collect();
        let mut facts = Facts { seal: self.seal, ..Facts::default() };
        for (slot, ..) in &bytes {
            match *slot {
                Slot::Spec => {}
                Slot::Entry(token, sequence) => facts.updates.push(((token, sequence), Vec::new().into())),
                Slot::Result(token) => {
                    let completions = self.completions.iter().filter(|(other, _)| *other == token);
                    let without = |done: &Completed| Completed { result: Some(Vec::new().into()), ..done.clone() };
                    facts.completions.extend(completions.map(|(token, done)| (*token, without(done))));
                }
            }
        }
        self.leave_out_gaps();
        (facts, bytes)
    }

    /// Leaves out parts whose bytes are not in memory.
    fn leave_out_gaps(&mut self) {
        self.updates.retain(|(_, data)| data.here().is_some());
        let is_gap =
            |(_, done): &(Token, Completed)| done.result.as_ref().is_some_and(|result| result.here().is_none());
        // A seal without its completion would be an end without a known time.
        let unsealed = |token: &Token| !self.completions.iter().any(|done| done.0 == *token && is_gap(done));
        self.seal = self.seal.filter(unsealed);
        self.completions.retain(|done| !is_gap(done));
    }
}

impl Completed {
    /// Whether the result may be evicted. As long as children may not be enqueued yet, the completion changes, and its digest with it.
    fn may_leave(&self) -> bool {
        self.result.as_ref().is_some_and(Blob::can_leave) && self.open_children().is_none()
    }
}

impl<S> Task<S> {
    /// Results and log entries that may be in the log alone.
    pub fn blobs(&self) -> impl Iterator<Item = (Slot, &Blob)> {
        self.facts.iter().flat_map(|facts| facts.blobs())
    }

    /// The parts of them to ask the host for.
    pub fn blobs_wanted(&self, id: TaskId) -> impl Iterator<Item = Wanted> {
        self.blobs().filter_map(move |(slot, blob)| blob.wanted(id, slot))
    }

    /// Whether a log entry is lost. A worker gets the log with every claim.
    pub fn lacks_entries(&self) -> bool {
        self.blobs().any(|(slot, blob)| matches!(slot, Slot::Entry(..)) && blob.is_lost())
    }

    /// Puts a result or a log entry into its slot.
    pub fn fill_blob(&mut self, slot: Slot, bytes: ByteBuf) {
        if let Some(blob) = self.facts.as_mut().and_then(|facts| facts.blob_mut(slot)) {
            *blob = bytes.into();
        }
    }

    /// Whether all of them are in memory.
    pub fn has_blobs(&self) -> bool {
        self.blobs().all(|(_, blob)| blob.here().is_some())
    }

    /// Takes out of a delta what can be merged only with bytes that are not in memory.
    pub fn take_undecided<T>(&self, delta: &mut Task<T>) -> Option<Task> {
        let (known, facts) = self.facts.as_ref().zip(delta.facts.as_mut())?;
        let undecided = if self.has_blobs() { Facts::default() } else { known.take_undecided(facts) };
        (undecided != Facts::default()).then(|| Task::from_facts(undecided))
    }
}

impl Task {
    /// The content of a slot, as in a record.
    pub fn filling(&self, slot: Slot) -> Option<Filling> {
        match slot {
            Slot::Spec => self.spec.clone().map(Filling::Spec),
            Slot::Entry(..) | Slot::Result(_) => self.facts.as_ref()?.blob(slot)?.here().cloned().map(Filling::Bytes),
        }
    }

    /// Puts a missing part into its slot.
    pub fn fill(&mut self, slot: Slot, filling: Filling) {
        match filling {
            Filling::Spec(spec) => self.spec = Some(spec),
            Filling::Bytes(bytes) => self.fill_blob(slot, bytes),
        }
    }

    /// Takes out what could not be filled, without its bytes, and what is known of these.
    pub fn take_gaps(&mut self) -> (Task, Vec<LostBytes>) {
        let has_gaps = !self.has_blobs();
        match &mut self.facts {
            Some(facts) if has_gaps => {
                let (facts, bytes) = facts.take_gaps();
                (Task::from_facts(facts), bytes)
            }
            _ => Default::default(),
        }
    }

    /// Marks blobs as lost which another replica sent without their bytes.
    pub fn mark_lost(&mut self, bytes: &[LostBytes]) {
        let Some(facts) = &mut self.facts else { return };
        for (slot, hash, length) in bytes {
            if let Some(blob) = facts.blob_mut(*slot) {
                *blob = Blob::lost(*hash, *length);
            }
        }
    }

    /// Merges an answer to a reader from another replica: bytes that one has lost, the other may have.
    pub fn merge_told(&mut self, mut other: Task) {
        if let (Some(known), Some(facts)) = (&mut self.facts, &mut other.facts) {
            known.restore(facts);
            facts.restore(known);
        }
        self.merge(other);
    }

    /// Leaves out what could not be filled: the rest is less, but still true.
    pub fn leave_out_gaps(&mut self) {
        if !self.has_blobs() {
            self.facts.iter_mut().for_each(|facts| facts.leave_out_gaps());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crdts::CvRDT;
    use std::num::NonZeroU32;

    const ID: TaskId = TaskId::MIN;
    const TOKEN: Token = Token { epoch: 1, number: 1 };
    const PLACE: Place = Place { file: NonZeroU32::MIN, offset: 7 };

    fn bytes(byte: u8) -> Vec<u8> {
        vec![byte; SMALL_BYTES]
    }

    fn completion(byte: u8, at_ms: u64) -> Task {
        let result = Some(bytes(byte).into());
        Task::from_completion(TOKEN, Completed { sequence: None, result, at_ms, children: None })
    }

    /// The same, in the log alone.
    fn left(task: &Task) -> Task {
        let mut task = task.clone();
        let facts = task.facts.as_mut().expect("there are some");
        let hashes: Vec<(Slot, u64)> = facts.blobs().map(|(slot, blob)| (slot, blob.hash())).collect();
        for (slot, hash) in hashes {
            facts.blob_mut(slot).expect("just seen").place(PLACE, hash);
        }
        facts.leave_memory(&ID, true);
        task
    }

    fn join(one: &Task, other: &Task) -> Task {
        let mut joined = one.clone();
        joined.merge(other.clone());
        joined
    }

    #[test]
    fn what_has_left_is_equal_to_what_has_not_and_has_the_same_digest() {
        let mut whole = join(&completion(1, 5), &Task::from_update(TOKEN, 0, bytes(2)));
        whole.merge(Task::from_update(TOKEN, 1, b"small".to_vec()));
        let mut gone = left(&whole);
        assert_eq!(gone.blobs().filter(|(_, blob)| blob.here().is_none()).count(), 2);
        assert_eq!((&gone, gone.digest(&ID), gone.size_bytes()), (&whole, whole.digest(&ID), whole.size_bytes()));
        assert!(rmp_serde::to_vec(&gone).is_err(), "it is never told as it is");
        assert_ne!(gone, join(&whole, &Task::from_update(TOKEN, 2, bytes(3))));
        for wanted in gone.blobs_wanted(ID).collect::<Vec<_>>() {
            let filling = whole.filling(wanted.slot).expect("it has it");
            assert!(wanted.is(&filling) && wanted.place == PLACE && !wanted.is(&Filling::Bytes(bytes(9).into())));
            gone.fill(wanted.slot, filling);
        }
        assert!(gone.has_blobs() && rmp_serde::to_vec(&gone).unwrap() == rmp_serde::to_vec(&whole).unwrap());
    }

    #[test]
    fn the_same_result_merges_without_its_bytes_and_another_one_waits() {
        let known = left(&completion(1, 5));
        for (delta, joined) in [(completion(1, 4), completion(1, 5)), (completion(1, 6), completion(1, 6))] {
            assert_eq!(known.take_undecided(&mut delta.clone()), None);
            let merged = join(&known, &delta);
            assert_eq!((&merged, merged.digest(&ID)), (&joined, joined.digest(&ID)));
        }
        let mut other = join(&completion(2, 5), &Task::from_update(TOKEN, 0, bytes(2)));
        assert_eq!(known.take_undecided(&mut other), Some(completion(2, 5)));
        assert_eq!(other.facts.as_ref().map(|facts| (facts.updates.len(), facts.completions.len())), Some((1, 0)));
        assert!(known.contradicts(&completion(2, 5)).is_err() && known.contradicts(&completion(1, 7)).is_ok());
    }

    #[test]
    fn what_is_lost_is_told_by_another_one() {
        let mut known = left(&completion(1, 5));
        let facts = known.facts.as_mut().expect("there are some");
        let slot = Slot::Result(TOKEN);
        facts.blob_mut(slot).expect("it has one").set_lost(true);
        assert!(!facts.restore(completion(2, 5).facts.as_ref().expect("there are some")));
        assert!(facts.restore(completion(1, 5).facts.as_ref().expect("there are some")));
        let blob = facts.blob(slot).expect("it has one");
        assert!(!blob.is_lost() && blob.is_unplaced() && blob.here().is_some());
        known.leave_out_gaps();
        assert_eq!(known, completion(1, 5));
    }

    #[test]
    fn a_completion_that_cannot_be_told_is_left_out_with_its_seal() {
        let completed =
            |byte: u8| Completed { sequence: None, result: Some(bytes(byte).into()), at_ms: 5, children: None };
        let mut known = left(&Task::from_seal(TOKEN, completed(1)));
        known.leave_out_gaps();
        assert_eq!((known.ended(), known.facts.as_ref().and_then(|facts| facts.seal)), (None, None));
        let mut whole = join(&Task::from_seal(TOKEN, completed(1)), &left(&Task::from_update(TOKEN, 0, bytes(2))));
        whole.leave_out_gaps();
        assert_eq!(whole, Task::from_seal(TOKEN, completed(1)));
    }
}
