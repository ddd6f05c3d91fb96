//! The task as a CRDT: a product of join-semilattices. Pure: no partition, no clock.
//!
//! A fact once known is never removed, so replicas may merge facts in any order, any number of times, and agree. Claims are not part of
//! it: the consistent half decides which worker holds a task, and only *past* claims arrive as information. Whether a task has ended
//! follows from the facts alone ([`Task::ended`]), needs no spec, and can only turn true.

mod blob;
mod children;
mod digest;
mod end;
mod group;
mod members;
mod merge;
mod outline;
#[cfg(test)]
mod tests;
mod view;

pub use blob::{Blob, Filling, LostBytes, SMALL_BYTES, Slot};
pub use children::Children;
pub use digest::{Changing, Digest, buried, spec_digest};
pub use end::{bound_reasons, claim_end, end_bytes, is_reason};
pub use group::GroupFacts;
pub use members::Members;
pub use merge::Conflict;
pub use outline::{Body, Content, Outline, Part, Place, Wanted, whole_bytes};
pub use view::{in_order, visible};

use norn_wire::request::{Completion, Spec};
use norn_wire::response::ClaimEnd;
use norn_wire::{State, TaskId, Token};
use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};
use serde_bytes::ByteBuf;
use std::sync::Arc;

/// Facts about one task; also a delta, which is just fewer facts.
///
/// `Default` is bottom: nothing known. Rare fields sit behind one pointer. The spec is whole in messages and records, and an [`Outline`]
/// in a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task<S = Arc<Spec>> {
    /// The spec, as enqueued.
    pub spec: Option<S>,
    /// All later facts.
    pub facts: Option<Box<Facts>>,
    /// All that is left, once its retention is over: nothing else stands beside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tombstone: Option<Box<Tombstone>>,
}

/// Tombstone of a task: that and how it ended. The top of the lattice, so that facts which arrive later add nothing. Only completions
/// whose children are not enqueued yet stand beside it until they are, and then the tokens of these completions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Tombstone {
    /// How it ended.
    pub state: State,
    /// When, in milliseconds since the Unix epoch.
    pub at_ms: u64,
}

/// What is known of a task beyond its spec. Lists are sorted by key and hold each key once.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
pub struct Facts {
    /// Log entries by (claim, sequence).
    pub updates: Vec<((Token, u32), Blob)>,
    /// Completions by claim. One whose token needs a seal ends the task only if it has that.
    pub completions: Vec<(Token, Completed)>,
    /// Cancellation or death.
    pub cancel: Option<Cancel>,
    /// Past claims, for readers, as the leader knew them when the task ended. Nothing is decided by them.
    pub claims: Vec<(Token, PastClaim)>,
    /// Two different values were written under one key. Only ever turns true.
    pub conflict: bool,
    /// Dependencies of the task that are settled, and how they ended.
    #[serde(default)]
    pub settled: Vec<(TaskId, Settled)>,
    /// The claim whose completion the leader has sealed: there is never another one.
    #[serde(default)]
    pub seal: Option<Token>,
    /// Beside a tombstone alone: claims whose completions brought children that are all handed over.
    #[serde(default)]
    pub handed: Vec<Token>,
    /// For a join: what is known of its group.
    #[serde(default)]
    pub group: Option<Box<GroupFacts>>,
    /// An operator purged the task: once it has ended, its retention is over. Only ever turns true.
    #[serde(default)]
    pub purged: bool,
}

impl Serialize for Facts {
    /// Later fields are left out from the end where they are empty: digests in logs are over these bytes, and most tasks have none of the
    /// fields.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        const FIRST: usize = 5;
        let later =
            [!self.settled.is_empty(), self.seal.is_some(), !self.handed.is_empty(), self.group.is_some(), self.purged];
        let count = FIRST + later.iter().rposition(|is_there| *is_there).map_or(0, |place| place + 1);
        let mut facts = serializer.serialize_struct("Facts", count)?;
        facts.serialize_field("updates", &self.updates)?;
        facts.serialize_field("completions", &self.completions)?;
        facts.serialize_field("cancel", &self.cancel)?;
        facts.serialize_field("claims", &self.claims)?;
        facts.serialize_field("conflict", &self.conflict)?;
        if count > FIRST {
            facts.serialize_field("settled", &self.settled)?;
        }
        if count > FIRST + 1 {
            facts.serialize_field("seal", &self.seal)?;
        }
        if count > FIRST + 2 {
            facts.serialize_field("handed", &self.handed)?;
        }
        if count > FIRST + 3 {
            facts.serialize_field("group", &self.group)?;
        }
        if count > FIRST + 4 {
            facts.serialize_field("purged", &self.purged)?;
        }
        facts.end()
    }
}

/// Outcome of a dependency. The greatest is shown where several were learned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Settled {
    /// Unknown, and older than forgotten tasks: it will never be known any more.
    #[serde(rename = "F")]
    Forgotten,
    /// Cancelled.
    #[serde(rename = "C")]
    Cancelled,
    /// Given up or invalid.
    #[serde(rename = "K")]
    Dead,
    /// Completed.
    #[serde(rename = "D")]
    Done,
}

impl Settled {
    /// The outcome for a state, if that is an end.
    pub fn of(state: State) -> Option<Settled> {
        match state {
            State::Done => Some(Settled::Done),
            State::Dead => Some(Settled::Dead),
            State::Cancelled => Some(Settled::Cancelled),
            State::Waiting | State::Ready | State::Claimed => None,
        }
    }
}

/// A completion under one claim.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Completed {
    /// Number of log entries that the claim wrote before it.
    pub sequence: Option<u32>,
    /// Opaque bytes.
    pub result: Option<Blob>,
    /// When, by the session's server time.
    pub at_ms: u64,
    /// Child tasks to enqueue with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub children: Option<Children>,
}

impl Completed {
    /// The completion in a client's request.
    pub fn new(item: Completion) -> Completed {
        let Completion { sequence, result, at_ms, children, .. } = item;
        Completed { sequence, result: result.map(Blob::from), at_ms, children: Children::new(children) }
    }

    /// The result, if there is one and it is in memory.
    pub fn result_here(&self) -> Option<ByteBuf> {
        self.result.as_ref()?.here().cloned()
    }

    /// Whether a client has written the same, whatever has become of its children. A client that writes it anew also states a new time.
    /// With children that makes another completion, whose children are not handed over.
    pub fn is(&self, other: &Completed) -> bool {
        self.brings_as(other)
            && (self.sequence, &self.result) == (other.sequence, &other.result)
            && (self.children.is_none() || self.at_ms == other.at_ms)
    }

    /// Whether its children are those of another completion.
    pub fn brings_as(&self, other: &Completed) -> bool {
        match (&self.children, &other.children) {
            (Some(own), Some(other)) => own.are(other),
            (own, other) => own.is_none() && other.is_none(),
        }
    }

    /// Its children, if they may not be enqueued yet.
    pub fn open_children(&self) -> Option<&Children> {
        self.children.as_ref().filter(|children| children.are_open())
    }

    /// Bytes, for budgets.
    pub fn size_bytes(&self) -> usize {
        self.result.as_ref().map_or(0, Blob::len) + self.children.as_ref().map_or(0, Children::size_bytes) + 56
    }
}

/// The reason for cancelling the other members of a group that has failed.
pub const GROUP_FAILED: &str = "another task of its group failed";

/// The reason why a task ended without completion. The greatest wins where several were written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cancel {
    /// Given up by the leader, rather than cancelled by a client or by the leader of its group.
    pub dead: bool,
    /// For people.
    pub reason: String,
    /// When.
    pub at_ms: u64,
}

impl Ord for Cancel {
    /// A person's cancellation takes precedence over the leader's. The leader's takes precedence over the group's: the group's leader may
    /// be new and not know yet that the task has failed, and is the one for which the others are cancelled. Then the content decides.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let rank = |cancel: &Cancel| match cancel {
            Cancel { dead: true, .. } => 1,
            Cancel { reason, .. } if reason == GROUP_FAILED => 0,
            Cancel { .. } => 2,
        };
        rank(self).cmp(&rank(other)).then_with(|| (&self.reason, self.at_ms).cmp(&(&other.reason, other.at_ms)))
    }
}

impl PartialOrd for Cancel {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// A past claim, for readers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PastClaim {
    /// When it was granted, by the leader's wall clock.
    pub start_ms: u64,
    /// When its lease ended or would have ended.
    pub end_ms: u64,
    /// The worker.
    pub worker: String,
    /// How it ended, where that does not follow from the task's own end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<Arc<ClaimEnd>>,
}

impl PastClaim {
    /// Bytes, for budgets.
    pub fn size_bytes(&self) -> usize {
        64 + self.worker.len() + self.end.as_deref().map_or(0, end_bytes)
    }
}

impl<S> Default for Task<S> {
    fn default() -> Self {
        Task { spec: None, facts: None, tombstone: None }
    }
}

impl Task {
    /// Only a spec.
    pub fn from_spec(spec: Arc<Spec>) -> Self {
        Task { spec: Some(spec), ..Task::default() }
    }

    /// Only later facts.
    pub fn from_facts(facts: Facts) -> Self {
        Task { facts: Some(Box::new(facts)), ..Task::default() }
    }

    /// One log entry.
    pub fn from_update(token: Token, sequence: u32, data: Vec<u8>) -> Self {
        Task::from_facts(Facts { updates: vec![((token, sequence), data.into())], ..Facts::default() })
    }

    /// One completion.
    pub fn from_completion(token: Token, completed: Completed) -> Self {
        Task::from_facts(Facts { completions: vec![(token, completed)], ..Facts::default() })
    }

    /// A completion with its seal.
    pub fn from_seal(token: Token, completed: Completed) -> Self {
        let completions = vec![(token, completed)];
        Task::from_facts(Facts { completions, seal: Some(token), ..Facts::default() })
    }

    /// A cancellation or death.
    pub fn from_cancel(cancel: Cancel) -> Self {
        Task::from_facts(Facts { cancel: Some(cancel), ..Facts::default() })
    }

    /// Only that a dependency is settled.
    pub fn from_settled(other: TaskId, how: Settled) -> Self {
        Task::from_facts(Facts { settled: vec![(other, how)], ..Facts::default() })
    }

    /// Only facts about the group of which it is the join.
    pub fn from_group(group: GroupFacts) -> Self {
        Task::from_facts(Facts { group: Some(Box::new(group)), ..Facts::default() })
    }

    /// Only a purge: its retention is over once it has ended.
    pub fn from_purge() -> Self {
        Task::from_facts(Facts { purged: true, ..Facts::default() })
    }

    /// Only a tombstone.
    pub fn from_tombstone(tombstone: Tombstone) -> Self {
        Task { tombstone: Some(Box::new(tombstone)), ..Task::default() }
    }

    /// The form in which a store keeps it.
    pub fn outlined(self) -> Task<Outline> {
        Task { spec: self.spec.map(Outline::new), facts: self.facts, tombstone: self.tombstone }
    }

    /// The same, with the spec's part of the digest.
    pub fn outlined_with_digest(self, id: &TaskId) -> (Task<Outline>, Option<Digest>) {
        let (spec, digest) = self.spec.map(|spec| Outline::with_digest(id, spec)).unzip();
        (Task { spec, facts: self.facts, tombstone: self.tombstone }, digest)
    }
}

impl Task<Outline> {
    /// The form in which it is sent, as far as it is in memory, and the parts to be loaded for the rest.
    pub fn whole(&self, id: TaskId) -> (Task, Vec<Wanted>) {
        let spec = self.spec.as_ref().and_then(|spec| spec.body.here().cloned());
        let mut facts = self.facts.clone();
        facts.iter_mut().for_each(|facts| facts.leave_out_places());
        (Task { spec, facts, tombstone: self.tombstone.clone() }, self.wanted(id))
    }

    /// Whether this replica does not grant it, as a part that the worker needs is lost.
    pub fn is_withheld(&self) -> bool {
        self.spec.as_ref().is_some_and(|spec| spec.body.is_lost()) || self.lacks_entries()
    }

    /// Whether a part of it is lost at this node.
    pub fn is_lost(&self) -> bool {
        self.spec.as_ref().is_some_and(|spec| spec.body.is_lost()) || self.blobs().any(|(_, blob)| blob.is_lost())
    }

    /// The lost parts, to ask the host for.
    pub fn lost(&self, id: TaskId) -> Vec<Wanted> {
        let spec = self.spec.as_ref().filter(|spec| spec.body.is_lost()).and_then(|spec| spec.wanted(id));
        let blobs = self.blobs().filter(|(_, blob)| blob.is_lost());
        spec.into_iter().chain(blobs.filter_map(|(slot, blob)| blob.wanted(id, slot))).collect()
    }

    /// A part to ask the host for; nothing where it is in memory.
    pub fn wanted_in(&self, id: TaskId, slot: Slot) -> Option<Wanted> {
        match slot {
            Slot::Spec => self.spec.as_ref()?.wanted(id),
            Slot::Entry(..) | Slot::Result(_) => self.facts.as_ref()?.blob(slot)?.wanted(id, slot),
        }
    }

    /// A part, if it is in memory.
    pub fn here(&self, slot: Slot) -> Option<Filling> {
        match slot {
            Slot::Spec => self.spec.as_ref()?.body.here().cloned().map(Filling::Spec),
            Slot::Entry(..) | Slot::Result(_) => self.facts.as_ref()?.blob(slot)?.here().cloned().map(Filling::Bytes),
        }
    }

    /// All parts to ask the host for.
    pub fn wanted(&self, id: TaskId) -> Vec<Wanted> {
        let spec = self.spec.as_ref().and_then(|spec| spec.wanted(id));
        spec.into_iter().chain(self.blobs_wanted(id)).collect()
    }
}

impl<S: Content> Task<S> {
    /// Whether nothing is known.
    pub fn is_bottom(&self) -> bool {
        let no_facts = self.facts.as_ref().is_none_or(|facts| **facts == Facts::default());
        self.spec.is_none() && no_facts && self.tombstone.is_none()
    }

    /// Completions whose children may not be enqueued yet.
    pub fn outbox(&self) -> impl Iterator<Item = (Token, &Completed)> {
        let completions = self.facts.iter().flat_map(|facts| &facts.completions);
        completions.filter(|(_, done)| done.open_children().is_some()).map(|(token, done)| (*token, done))
    }

    /// The children of these.
    pub fn brings(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.outbox().filter_map(|(_, done)| done.children.as_ref()).flat_map(|children| &children.ids).copied()
    }

    /// Copies of a dead task: its dead-letter copy or redrives.
    pub fn copies(&self) -> impl Iterator<Item = (TaskId, &Completed)> {
        self.facts.iter().flat_map(|facts| facts.copies())
    }

    /// Whether it must be kept for the children of its completions.
    pub fn has_outbox(&self) -> bool {
        self.outbox().next().is_some()
    }

    /// How the task ended, if it did. Monotone: once `Some`, always `Some`. A completion takes precedence over a person's cancellation,
    /// that over death, and that over a cancellation for the group.
    pub fn ended(&self) -> Option<State> {
        if let Some(tombstone) = &self.tombstone {
            return Some(tombstone.state);
        }
        let facts = self.facts.as_ref()?;
        if facts.seal.is_some() || facts.completions.iter().any(|(token, _)| !token.needs_seal()) {
            return Some(State::Done);
        }
        facts.cancel.as_ref().map(|cancel| if cancel.dead { State::Dead } else { State::Cancelled })
    }

    /// Its tombstone at the end of its retention, if it has ended.
    pub fn tombstone(&self) -> Option<Tombstone> {
        let state = self.ended()?;
        if let Some(tombstone) = &self.tombstone {
            return Some(**tombstone);
        }
        let facts = self.facts.as_ref()?;
        let cancelled_ms = facts.cancel.as_ref().map_or(0, |cancel| cancel.at_ms);
        let at_ms = facts.winner().map_or(cancelled_ms, |(_, completed)| completed.at_ms);
        Some(Tombstone { state, at_ms })
    }

    /// Whether an operator purged it, so that nothing of it is kept once it has ended.
    pub fn is_purged(&self) -> bool {
        self.facts.as_ref().is_some_and(|facts| facts.purged)
    }

    /// Only the facts that make it ended: what a replica needs to come to the same conclusion, if it [`has_blobs`](Task::has_blobs).
    pub fn ending(&self) -> Task {
        if let Some(tombstone) = &self.tombstone {
            return Task { facts: self.facts.clone(), ..Task::from_tombstone(**tombstone) };
        }
        let Some(facts) = &self.facts else { return Task::default() };
        let (completions, cancel, seal) = (facts.completions.clone(), facts.cancel.clone(), facts.seal);
        let mut ending = Facts { completions, cancel, seal, ..Facts::default() };
        ending.leave_out_places();
        Task::from_facts(ending)
    }

    /// A purge with the task's end, for replicas that do not know of the end.
    pub fn purge(&self) -> Task {
        let Some(facts) = self.facts.as_ref().filter(|_| self.tombstone.is_none()) else { return Task::from_purge() };
        Task::from_facts(Facts {
            completions: facts.winner().cloned().into_iter().collect(),
            cancel: facts.cancel.clone(),
            seal: facts.seal,
            purged: true,
            ..Facts::default()
        })
    }

    /// Bytes of payload and facts, for budgets.
    pub fn size_bytes(&self) -> usize {
        let spec = self.spec.as_ref().map_or(0, Content::size_bytes);
        let facts = self.facts.as_ref().map_or(0, |facts| {
            let updates: usize = facts.updates.iter().map(|(_, data)| data.len() + 40).sum();
            let completions: usize = facts.completions.iter().map(|(_, done)| done.size_bytes()).sum();
            updates
                + completions
                + facts.claims.iter().map(|(_, claim)| claim.size_bytes()).sum::<usize>()
                + facts.settled.len() * 24
                + facts.handed.len() * 16
                + 64
                + facts.group.as_ref().map_or(0, |group| group.size_bytes())
        });
        spec + facts
    }
}
