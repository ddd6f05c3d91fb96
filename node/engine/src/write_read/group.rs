//! Sub-write of one partition: its items, the answers of the replicas, and what follows from them.

use norn_model::cohort::Cohort;
use norn_model::message::{Items, Outcome};
use norn_model::task::Task;
use norn_model::viewstamp::{ReplicaId, Viewstamp};
use norn_wire::error::{Cause, Error, ErrorCode};
use norn_wire::response::{Acked, Guarantee};
use norn_wire::{Acks, NodeId, TaskId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Versions of one cohort that a write or a read remembers.
pub(crate) const COHORTS_MAX: usize = 6;

/// The name that operators gave a node.
pub(crate) type Name<'a> = &'a dyn Fn(NodeId) -> String;

/// Items of one partition within a write.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) items: Items,
    /// Places in the request.
    pub(crate) places: Vec<usize>,
    /// Cohorts heard of, by version.
    pub(crate) cohorts: BTreeMap<Viewstamp, Cohort>,
    /// Answers, by replica and by the version at which it answered.
    pub(crate) answers: BTreeMap<(ReplicaId, Viewstamp), WriteAnswer>,
    /// This node holds no replica and keeps the facts as a hint for the replicas.
    pub(crate) keeps: bool,
    /// Copies sent to each replica and not answered. A replica with one under way may store it, whatever it answered before.
    under_way: BTreeMap<NodeId, u32>,
    /// The items were also sent to replicas that store them without an answer.
    quietly: bool,
    /// For each item: its completion brings child ids so old that no replica takes them, by this node's clock.
    pub(crate) late: Vec<bool>,
    /// The planted bug in which answers of different versions add up.
    pub(crate) mixed: bool,
    /// Outcome of the hint for each item, once the hint is on this node's disk or refused.
    pub(crate) kept: Option<Vec<Outcome>>,
}

/// A replica's answer to a write.
#[derive(Debug)]
pub struct WriteAnswer {
    /// Item by item.
    pub outcomes: Vec<Outcome>,
    /// The replica's incarnation in which it stored them.
    pub boot: u64,
    /// The replica may have lost what stands under these keys.
    pub incomplete: bool,
    /// That will last: the reason is not just that its incarnation has not been acknowledged yet.
    pub lasting: bool,
    /// Version of the cohort that the replica knew.
    pub at: Viewstamp,
}

/// Ack count of one item, at one version of the cohort.
#[derive(Default)]
struct Tally {
    /// Nodes that have it on disk.
    stored: BTreeSet<NodeId>,
    /// Of these, nodes with complete facts.
    whole: BTreeSet<NodeId>,
    /// Nodes with complete facts that do not know the task, or may have forgotten it.
    unknown: BTreeSet<NodeId>,
    /// Nodes that may yet report that they have it: they are silent, or have incomplete facts for now.
    open: BTreeSet<NodeId>,
}

impl Group {
    pub(crate) fn new(items: Vec<(TaskId, Task)>, places: Vec<usize>, cohort: Cohort, mixed: bool) -> Group {
        assert_eq!(items.len(), places.len(), "not every item of a write has a place");
        let cohorts = BTreeMap::from([(cohort.version, cohort)]);
        Group {
            items: Arc::new(items),
            places,
            cohorts,
            answers: BTreeMap::new(),
            keeps: false,
            under_way: BTreeMap::new(),
            quietly: false,
            late: Vec::new(),
            mixed,
            kept: None,
        }
    }

    /// The latest cohort heard of.
    pub(crate) fn newest(&self) -> &Cohort {
        self.cohorts.last_key_value().expect("it begins with one").1
    }

    /// Adds a cohort. Returns whether it is later than all known before.
    pub(crate) fn take_cohort(&mut self, cohort: Cohort) -> bool {
        let later = cohort.version > self.newest().version;
        self.cohorts.insert(cohort.version, cohort);
        while self.cohorts.len() > COHORTS_MAX {
            let oldest = self.cohorts.pop_first().map(|(version, _)| version);
            self.answers.retain(|(_, at), _| Some(*at) != oldest);
        }
        assert!(!self.cohorts.is_empty() && self.cohorts.len() <= COHORTS_MAX, "a write knows no cohort, or too many");
        later
    }

    /// Counts the answers at the version of a cohort.
    fn tally(&self, index: usize, cohort: &Cohort) -> Tally {
        let brings = self.items[index].1.has_outbox();
        let mut tally = Tally { open: cohort.voters().into_iter().collect(), ..Tally::default() };
        for ((replica, at), answer) in &self.answers {
            if *at != cohort.version && !self.mixed || !cohort.has_replica(replica) {
                continue;
            }
            let (node, whole) = (replica.node, !answer.incomplete);
            if whole || answer.lasting {
                tally.open.remove(&node);
            }
            let outcome = answer.outcomes[index];
            if matches!(outcome, Outcome::Stored | Outcome::StoredOrphan) {
                tally.stored.insert(node);
                if whole {
                    tally.whole.insert(node);
                }
            } else {
                tally.open.remove(&node);
            }
            // For a completion that brings tasks, the children may be what is too old.
            let forgotten = outcome == Outcome::TooOld && !brings;
            if whole && (outcome == Outcome::StoredOrphan || forgotten) {
                tally.unknown.insert(node);
            }
        }
        assert!(tally.whole.len() <= tally.stored.len(), "a replica that did not store counts as whole");
        tally
    }

    /// Replicas that gave this outcome for an item, at any version.
    fn said(&self, index: usize, outcome: Outcome) -> BTreeSet<NodeId> {
        let alike = self.answers.iter().filter(|(_, answer)| answer.outcomes[index] == outcome);
        alike.map(|((replica, _), _)| replica.node).collect()
    }

    /// Notes that the items were sent to a replica, which answers if it `counts`.
    pub(crate) fn sent_to(&mut self, node: NodeId, counts: bool) {
        *self.under_way.entry(node).or_default() += u32::from(counts);
        self.quietly |= !counts;
    }

    /// Whether the items were sent to any replica.
    pub(crate) fn is_sent(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// Whether a replica that has not answered may store it, or this node as a hint.
    fn is_awaited(&self) -> bool {
        self.under_way.values().any(|copies| *copies > 0) || self.keeps && self.kept.is_none()
    }

    /// Takes an answer. The first one of a replica counts, unless its facts were incomplete and are complete in the new one: then the
    /// replica's incarnation has been acknowledged since, or it has recovered.
    pub(crate) fn take(&mut self, replica: ReplicaId, answer: WriteAnswer) {
        assert_eq!(answer.outcomes.len(), self.items.len(), "an answer is about other items than were sent");
        if let Some(copies) = self.under_way.get_mut(&replica.node) {
            *copies = copies.saturating_sub(1);
        }
        let key = (replica, answer.at);
        let known = self.answers.get(&key);
        if known.is_none_or(|known| known.incomplete && !answer.incomplete) {
            self.answers.insert(key, answer);
        }
    }

    /// Outcome of the hint for an item.
    fn kept_as(&self, index: usize) -> Option<Outcome> {
        self.kept.as_ref().map(|outcomes| outcomes[index])
    }

    /// Why an item that no replica has answered was not kept as a hint either. Replicas that it was sent to may have stored it.
    pub(crate) fn not_kept(&self, index: usize) -> Option<Error> {
        let error = match self.kept_as(index).filter(|_| self.answers.is_empty())? {
            Outcome::Conflict => Error::new(
                ErrorCode::Conflict,
                "this id or number was used with other content, which is kept for the replicas; nothing was overwritten",
            ),
            Outcome::Future => {
                Error::new(ErrorCode::IdFromFuture, "the id was minted too far in the future; check the clocks")
            }
            Outcome::NoSpace => {
                Error::new(ErrorCode::NoSpace, "no replica can be reached, and the disk is nearly full")
            }
            Outcome::Overloaded => Error::new(
                ErrorCode::Overloaded,
                "no replica can be reached, and this node keeps as much for replicas as it may (`hints_bytes_max`)",
            ),
            Outcome::Stored | Outcome::StoredOrphan | Outcome::TooOld | Outcome::Unsealed => return None,
        };
        let error = if self.is_sent() {
            let why = &error.message;
            let message = format!("no replica answered in time, and it is not kept here ({why}); repeat the call");
            let advice = if error.passes() { error } else { Error::new(ErrorCode::Unknown, "") };
            Error { code: ErrorCode::Unknown, message, ..advice }
        } else {
            error
        };
        Some(error.about(self.items[index].0))
    }

    /// Whether a quorum has it on disk, all at one version, and would know if it should not be there.
    fn is_strict(&self, index: usize) -> bool {
        self.cohorts.values().any(|cohort| {
            let tally = self.tally(index, cohort);
            cohort.members_quorum(|node| tally.whole.contains(&node))
                && cohort.next_quorum(|node| tally.stored.contains(&node))
        })
    }

    /// Whether the requested acks are reached, and whether they may yet be.
    fn reached(&self, index: usize, acks: Acks) -> (bool, bool) {
        let newest = self.newest();
        let tally = self.tally(index, newest);
        let kept = self.kept_as(index) == Some(Outcome::Stored);
        let anywhere =
            kept || [Outcome::Stored, Outcome::StoredOrphan].iter().any(|it| !self.said(index, *it).is_empty());
        let has = |node: NodeId| tally.stored.contains(&node) || tally.open.contains(&node);
        let is_whole = |node: NodeId| tally.whole.contains(&node) || tally.open.contains(&node);
        match acks {
            Acks::One => (anywhere, !tally.open.is_empty()),
            Acks::Quorum => (self.is_strict(index), newest.members_quorum(is_whole) && newest.next_quorum(has)),
            Acks::All => (
                self.cohorts.values().any(|cohort| {
                    let tally = self.tally(index, cohort);
                    cohort.voters().iter().all(|node| tally.stored.contains(node))
                }),
                newest.voters().into_iter().all(has),
            ),
            Acks::Count(wanted) => {
                let wanted = usize::from(wanted.get());
                let count = |cohort: &Cohort, has: &dyn Fn(NodeId) -> bool| {
                    cohort.voters().into_iter().filter(|node| has(*node)).count() >= wanted
                };
                let stored = |cohort: &Cohort| {
                    let tally = self.tally(index, cohort);
                    count(cohort, &|node| tally.stored.contains(&node))
                };
                (self.cohorts.values().any(stored), count(newest, &has))
            }
        }
    }

    /// What came of a plain write, the same for all its items: the acks, once a quorum has stored them. A write is plain while one cohort
    /// is known and each answer of it says that all items are stored, and would say so if one should not be. Nothing for another write,
    /// whose items are looked at one by one.
    pub(crate) fn plain(&self, acks: Acks) -> Option<Option<Acked>> {
        let cohort = self.newest();
        let is_plain = |((replica, at), answer): (&(ReplicaId, Viewstamp), &WriteAnswer)| {
            *at == cohort.version
                && cohort.has_replica(replica)
                && !answer.incomplete
                && answer.outcomes.iter().all(|outcome| *outcome == Outcome::Stored)
        };
        if acks != Acks::Quorum || self.cohorts.len() > 1 || self.keeps || !self.answers.iter().all(is_plain) {
            return None;
        }
        let nodes: BTreeSet<NodeId> = self.answers.keys().map(|(replica, _)| replica.node).collect();
        let has = |node| nodes.contains(&node);
        let acked = || Acked {
            id: TaskId::MIN,
            acks: nodes.len() as u32,
            replicas: cohort.holders().count() as u32,
            guarantee: Guarantee::Strict,
        };
        Some((cohort.members_quorum(has) && cohort.next_quorum(has)).then(acked))
    }

    /// The result of one item, once it is certain.
    pub(crate) fn result(&self, index: usize, acks: Acks, name: Name) -> Option<Result<Acked, Error>> {
        let id = self.items[index].0;
        let enqueues = self.items[index].1.spec.is_some();
        let unknown = |cohort: &Cohort| {
            let tally = self.tally(index, cohort);
            cohort.members_quorum(|node| tally.unknown.contains(&node))
        };
        if !enqueues && self.cohorts.values().any(unknown) {
            let message = "no such task; should it be enqueued under this id after all, this counts for it";
            return Some(Err(Error::new(ErrorCode::NotFound, message).about(id)));
        }
        let kept = usize::from(self.kept_as(index) == Some(Outcome::Stored));
        let with_spec = self.said(index, Outcome::Stored);
        let stored = self.stored(index);
        let (reached, may_come) = self.reached(index, acks);
        if reached && with_spec.len() + kept > 0 {
            let guarantee = if self.is_strict(index) { Guarantee::Strict } else { Guarantee::Sloppy };
            let replicas = self.newest().holders().count() as u32;
            return Some(Ok(Acked { id, acks: stored as u32, replicas, guarantee }));
        }
        if reached || may_come {
            return None;
        }
        let error = self.refusal(index, stored, name);
        if !is_of_nodes(&error) {
            return Some(Err(error.about(id)));
        }
        // A refusal with such a code promises that nothing was changed: every replica that may have stored the item must have refused it.
        if stored > 0 || self.quietly {
            return Some(Err(in_part(error).about(id)));
        }
        (!self.is_awaited()).then(|| Err(error.about(id)))
    }

    /// The reason why an item cannot be written.
    fn refusal(&self, index: usize, stored: usize, name: Name) -> Error {
        let (enqueues, brings) = (self.items[index].1.spec.is_some(), self.items[index].1.has_outbox());
        let any = |outcome| !self.said(index, outcome).is_empty();
        if any(Outcome::TooOld) && (enqueues || brings) && stored > 0 {
            // A replica that stored it is behind, and may have it all the same.
            Error::new(ErrorCode::Unknown, "some replicas have stored it, others find the id too old; repeat the call")
        } else if any(Outcome::TooOld) && brings {
            let message = if self.late.get(index) == Some(&true) {
                "the tasks that the completion brings were named too long ago to be enqueued for certain; repeat it \
                 with new ids, unless the task has ended"
            } else {
                "the task has ended and is not kept any more: this completion brings no tasks; what one before it brought is enqueued"
            };
            Error::new(ErrorCode::TooOld, message)
        } else if let Some(outcome) =
            REFUSALS.into_iter().find(|outcome| any(*outcome) && (*outcome != Outcome::TooOld || enqueues))
        {
            refused(outcome, enqueues)
        } else if any(Outcome::NoSpace) {
            let full: Vec<String> = self.said(index, Outcome::NoSpace).into_iter().map(name).collect();
            let message = format!("the disks of {} are nearly full: make room there, then try again", full.join(", "));
            Error::new(ErrorCode::NoSpace, message)
        } else {
            let replicas = self.newest().holders().count();
            Error::unavailable(format!("{stored} of {replicas} replicas have it on disk, which is too few"))
        }
    }

    /// The lack of room that prevents an item, if that is the reason.
    pub(crate) fn full(&self, index: usize, name: Name) -> Option<Error> {
        Some(self.refusal(index, self.stored(index), name).about(self.items[index].0))
            .filter(|error| error.code.is_full())
    }

    /// Result at the deadline for an item that too many replicas refused for reasons of their own (room, clock), while others have not
    /// answered.
    pub(crate) fn refused_in_part(&self, index: usize, name: Name) -> Option<Error> {
        let error = self.refusal(index, self.stored(index), name);
        is_of_nodes(&error).then(|| in_part(error).about(self.items[index].0))
    }

    /// Number of nodes that have stored an item, this node's hint included.
    fn stored(&self, index: usize) -> usize {
        let kept = usize::from(self.kept_as(index) == Some(Outcome::Stored));
        self.said(index, Outcome::Stored).union(&self.said(index, Outcome::StoredOrphan)).count() + kept
    }
}

/// Whether one node may refuse an item for a reason that others do not share: want of room, or a clock that is behind.
fn is_of_nodes(error: &Error) -> bool {
    error.code.is_full() || error.code == ErrorCode::IdFromFuture
}

/// The same error for the case that others may have stored the item.
fn in_part(error: Error) -> Error {
    if error.code == ErrorCode::IdFromFuture {
        let message = "nodes find the id too far in the future, and others may have stored it: check the clocks, and repeat it under \
                       the same id";
        return Error::new(ErrorCode::Unknown, message).because(Cause::IdAhead);
    }
    let message = format!("too few replicas have stored it, and it may take effect: repeat it; {}", error.message);
    Error { code: ErrorCode::Unknown, message, ..error }
}

/// Outcomes that settle why an item cannot be written, in order of precedence.
const REFUSALS: [Outcome; 5] =
    [Outcome::TooOld, Outcome::Unsealed, Outcome::Conflict, Outcome::Future, Outcome::Overloaded];

/// The error for a replica's refusal of an item. `enqueues`: it may be a new task.
pub(crate) fn refused(outcome: Outcome, enqueues: bool) -> Error {
    let (code, message) = match outcome {
        Outcome::TooOld => (
            ErrorCode::TooOld,
            "the id is older than tasks that were forgotten: it may be one of them; enqueue under a new id",
        ),
        Outcome::Conflict => {
            (ErrorCode::Conflict, "this id or number was used with other content; nothing was overwritten")
        }
        Outcome::Future => {
            (ErrorCode::IdFromFuture, "the id was minted too far in the future; check the clocks, mint a new one")
        }
        Outcome::Overloaded if enqueues => (
            ErrorCode::Overloaded,
            "nodes keep as many tasks as they may, or their memory is nearly full (`memory_short`); repeat the call when some have \
             ended, or raise `tasks_max`, or give them more memory",
        ),
        Outcome::Overloaded => (
            ErrorCode::Overloaded,
            "too many facts about unknown tasks are held, or memory is nearly full; enqueue first, or try later",
        ),
        Outcome::Unsealed => (
            ErrorCode::Superseded,
            "only the holder of this task may complete it, and no claim of it has this token: its queue's mode is `holder`",
        ),
        Outcome::NoSpace => (ErrorCode::NoSpace, "the disk is nearly full: make room there, then try again"),
        Outcome::Stored | Outcome::StoredOrphan => unreachable!("it was taken"),
    };
    Error::new(code, message)
}

#[cfg(test)]
mod tests;
