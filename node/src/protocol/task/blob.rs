//! Bytes of a result or a log entry as a replica keeps them: in memory, or in the log alone.
//!
//! On the wire and in the log they are always there. What a replica compares and digests of bytes that have left is their hash and
//! the digest of their fact, which it keeps. Which of two different values under one key is the greater one only the bytes can
//! tell: such facts are undecided ([`Task::take_undecided`]) until the bytes are back.

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

/// What is smaller stays: to know where it is would take as much memory.
pub const SMALL_BYTES: usize = 128;

/// What of a task may be in the log alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Slot {
    /// Its spec.
    Spec,
    /// A log entry.
    Entry(Token, u32),
    /// The result of a completion.
    Result(Token),
}

/// What is known of bytes that a replica has lost: where they belong, their hash, and how many they were.
pub type LostBytes = (Slot, u64, u32);

/// What the log has given back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Filling {
    /// A spec.
    Spec(Arc<Spec>),
    /// A log entry or a result.
    Bytes(ByteBuf),
}

/// See the module.
#[derive(Debug, Clone)]
pub struct Blob(Content);

#[derive(Debug, Clone)]
enum Content {
    Here(ByteBuf),
    /// The log has told where it has them.
    Placed(Box<Placed>),
}

#[derive(Debug, Clone)]
struct Placed {
    here: Option<ByteBuf>,
    place: Place,
    hash: u64,
    bytes: u32,
    /// The log could not give them back when it was last asked, nor has a peer.
    lost: bool,
    /// Of their fact, once they have left.
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

    /// How many they are, in memory or not.
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

    /// What they count for in memory.
    pub fn memory_bytes(&self) -> usize {
        if self.is_small() || self.here().is_none() { 0 } else { self.len() }
    }

    /// Whether they never leave.
    pub fn is_small(&self) -> bool {
        self.len() < SMALL_BYTES
    }

    /// Whether they could leave if the log had told where it has them.
    pub fn is_unplaced(&self) -> bool {
        matches!(self.0, Content::Here(_)) && !self.is_small()
    }

    /// Whether they are in memory and need not be.
    pub fn can_leave(&self) -> bool {
        matches!(&self.0, Content::Placed(placed) if placed.here.is_some())
    }

    /// Whether nobody here can say what they were.
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

    /// The digest of their fact, if they have left.
    pub(super) fn digest(&self) -> Option<Digest> {
        match &self.0 {
            Content::Placed(placed) if placed.here.is_none() => Some(placed.digest),
            Content::Here(_) | Content::Placed(_) => None,
        }
    }

    /// What to ask of the host to have the bytes; nothing where they are in memory.
    pub fn wanted(&self, id: TaskId, slot: Slot) -> Option<Wanted> {
        match &self.0 {
            Content::Placed(placed) if placed.here.is_none() => {
                let Placed { place, hash, bytes, .. } = **placed;
                Some(Wanted { id, slot, place, hash, bytes })
            }
            Content::Here(_) | Content::Placed(_) => None,
        }
    }

    /// The log has them there, if these are the ones with this hash.
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

    /// The log has them in a younger file, too, and will not have the older ones for long.
    pub fn move_to(&mut self, place: Place) {
        if let Content::Placed(placed) = &mut self.0
            && placed.place.file < place.file
        {
            placed.place = place;
        }
    }

    /// They will be read rarely.
    fn leave(&mut self, digest: Digest) {
        if let Content::Placed(placed) = &mut self.0 {
            (placed.here, placed.digest) = (None, digest);
        }
    }

    /// The log cannot give them back, or could after all.
    pub fn set_lost(&mut self, lost: bool) {
        if let Content::Placed(placed) = &mut self.0 {
            placed.lost = lost && placed.here.is_none();
        }
    }

    /// The log has given them back, and they are needed here.
    pub fn bring_back(&mut self, bytes: ByteBuf, hash: u64) {
        if let Content::Placed(placed) = &mut self.0
            && placed.here.is_none()
            && placed.hash == hash
        {
            (placed.here, placed.lost) = (Some(bytes), false);
        }
    }

    /// Another replica had what is lost here: it is as if it had just been learned. Whether it is that.
    fn restore(&mut self, other: &Blob) -> bool {
        let restores = self.is_lost() && other.here().is_some() && *self == *other;
        if restores {
            *self = other.clone();
        }
        restores
    }

    /// As it travels: where one log has it says nothing to others.
    fn leave_out_place(&mut self) {
        if let Content::Placed(placed) = &mut self.0
            && let Some(bytes) = placed.here.take()
        {
            self.0 = Content::Here(bytes);
        }
    }

    /// Whether only bytes that are not in memory could tell which of two is the greater one.
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
    /// By content. A store compares no others.
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
    /// All that may be in the log alone.
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

    /// One of them.
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

    /// As [`Facts::blob`].
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

    /// Takes out of others what can be merged only with bytes that are not in memory.
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

    /// Whether something may leave memory.
    pub fn may_leave(&self) -> bool {
        self.updates.iter().any(|(_, data)| data.can_leave())
            || self.completions.iter().any(|(_, done)| done.may_leave())
    }

    /// All log entries that may leave memory leave it, and results if they are to.
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

    /// Takes from others what is lost here. Whether there is any.
    pub fn restore(&mut self, other: &Facts) -> bool {
        let mut restored = false;
        for (slot, blob) in self.blobs_mut().filter(|(_, blob)| blob.is_lost()) {
            restored |= other.blob(slot).is_some_and(|other| blob.restore(other));
        }
        restored
    }

    /// What of it the log has not told a place for.
    pub fn unplaced(&self) -> Facts {
        let is_unplaced = |blob: &Blob| blob.is_unplaced();
        let updates = self.updates.iter().filter(|(_, data)| is_unplaced(data)).cloned().collect();
        let completions =
            self.completions.iter().filter(|(_, done)| done.result.as_ref().is_some_and(is_unplaced)).cloned();
        Facts { updates, completions: completions.collect(), ..Facts::default() }
    }

    /// A snapshot has all of it.
    pub fn move_to(&mut self, place: Place) {
        self.blobs_mut().for_each(|(_, blob)| blob.move_to(place));
    }

    /// Makes it as it travels, as far as it is in memory.
    pub fn leave_out_places(&mut self) {
        self.blobs_mut().for_each(|(_, blob)| blob.leave_out_place());
    }

    /// Takes out what cannot be told, without the bytes.
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

    /// Leaves out what nobody can tell.
    fn leave_out_gaps(&mut self) {
        self.updates.retain(|(_, data)| data.here().is_some());
        let is_gap =
            |(_, done): &(Token, Completed)| done.result.as_ref().is_some_and(|result| result.here().is_none());
        // A seal without its completion would be an end of which nobody knows when it was.
        let unsealed = |token: &Token| !self.completions.iter().any(|done| done.0 == *token && is_gap(done));
        self.seal = self.seal.filter(unsealed);
        self.completions.retain(|done| !is_gap(done));
    }
}

impl Completed {
    /// Whether the result may leave memory. As long as children may not be enqueued yet the completion changes, and its digest with it.
    fn may_leave(&self) -> bool {
        self.result.as_ref().is_some_and(Blob::can_leave) && self.open_children().is_none()
    }
}

impl<S> Task<S> {
    /// Results and log entries that may be in the log alone.
    pub fn blobs(&self) -> impl Iterator<Item = (Slot, &Blob)> {
        self.facts.iter().flat_map(|facts| facts.blobs())
    }

    /// What of them is to be asked for.
    pub fn blobs_wanted(&self, id: TaskId) -> impl Iterator<Item = Wanted> {
        self.blobs().filter_map(move |(slot, blob)| blob.wanted(id, slot))
    }

    /// Whether a log entry is lost. With every claim its worker is shown the log.
    pub fn lacks_entries(&self) -> bool {
        self.blobs().any(|(slot, blob)| matches!(slot, Slot::Entry(..)) && blob.is_lost())
    }

    /// Puts a result or a log entry where it belongs.
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
    /// What a record has of it in this place.
    pub fn filling(&self, slot: Slot) -> Option<Filling> {
        match slot {
            Slot::Spec => self.spec.clone().map(Filling::Spec),
            Slot::Entry(..) | Slot::Result(_) => self.facts.as_ref()?.blob(slot)?.here().cloned().map(Filling::Bytes),
        }
    }

    /// Puts what was missing where it belongs.
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

    /// What another replica told without these bytes has lost them.
    pub fn mark_lost(&mut self, bytes: &[LostBytes]) {
        let Some(facts) = &mut self.facts else { return };
        for (slot, hash, length) in bytes {
            if let Some(blob) = facts.blob_mut(*slot) {
                *blob = Blob::lost(*hash, *length);
            }
        }
    }

    /// Merges what another replica told a reader: what the one has lost, the other one may have.
    pub fn merge_told(&mut self, mut other: Task) {
        if let (Some(known), Some(facts)) = (&mut self.facts, &mut other.facts) {
            known.restore(facts);
            facts.restore(known);
        }
        self.merge(other);
    }

    /// Leaves out what could not be filled: it says less then, and nothing that is not so.
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

    /// The same in the log alone.
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
