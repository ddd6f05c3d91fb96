//! Journals (change feeds): for each watched queue or group, what becomes of its tasks in the replicas of this node. A queue that is not
//! watched costs nothing; while nothing is watched, not even a look.
//!
//! Events of all journals of an incarnation share one count, so that a place in it states for every journal what was reported. A journal
//! is bounded, and is dropped when it has not been asked for a while; a request for events that it no longer has is answered as not
//! following. Every replica that learns of an ending reports it. Other changes of a task are reported only by its leader, which alone
//! knows them.
//!
//! A replica is **covered** as long as every ending of which it learns is written to the journals. It is not covered while it may lack
//! facts: what it then learns may be old, and others may have forgotten what it never hears of. Each time that it begins to be covered
//! the count goes on by one, so that no place before it can be taken for one behind it.

use crate::Node;
use norn_model::limits::{COMPARED_MAX, JOURNAL_EVENTS_MAX, JOURNALS_MAX, WATCH_EVENTS_MAX, WATCH_KEPT_MS};
use norn_model::message::{Query, WatchAt, WatchFeed};
use norn_model::replica::store::Moved;
use norn_wire::limits::WATCH_RESULT_BYTES_MAX;
use norn_wire::{NodeId, PartitionId, State, Subject, TaskId, WatchEvent};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::RangeBounds;

/// Events of the tasks of a queue or of a group, as far as they are kept.
#[derive(Debug, Default)]
struct Journal {
    /// Events up to this number may be gone.
    floor: u64,
    events: VecDeque<(u64, Moved)>,
    /// Nodes to notify of new events.
    waiting: BTreeSet<NodeId>,
    until_us: u64,
}

/// All journals of a node. They end with its incarnation.
#[derive(Debug, Default)]
pub struct Journals {
    number: u64,
    by_subject: BTreeMap<Subject, Journal>,
    /// Replicas that are covered, each with the event number since when.
    covered: BTreeMap<PartitionId, u64>,
}

impl Journals {
    /// Ends coverage of a replica that may lack facts, be it for a moment.
    pub fn uncover(&mut self, partition: PartitionId) {
        self.covered.remove(&partition);
    }

    /// Replicas whose coverage began within these event numbers.
    fn covered(&self, since: impl RangeBounds<u64>) -> Vec<PartitionId> {
        let covered = self.covered.iter().filter(|(_, event)| since.contains(event));
        covered.map(|(partition, _)| *partition).collect()
    }

    fn cover(&mut self, partition: PartitionId, anew: bool) {
        if anew || !self.covered.contains_key(&partition) {
            self.number += 1;
            self.covered.insert(partition, self.number);
        }
    }

    /// Records an event. Returns the nodes to notify, with what they watch.
    fn write(&mut self, moved: &Moved) -> Vec<(NodeId, Subject)> {
        let queue = moved.queue.clone().map(Subject::Queue);
        let groups = [Some(moved.id), moved.group].into_iter().flatten().map(Subject::Group);
        let (number, mut notices) = (self.number + 1, Vec::new());
        for subject in queue.into_iter().chain(groups) {
            let Some(journal) = self.by_subject.get_mut(&subject) else { continue };
            self.number = number;
            journal.events.push_back((number, moved.clone()));
            if journal.events.len() > JOURNAL_EVENTS_MAX {
                journal.floor = journal.events.pop_front().map_or(journal.floor, |(number, _)| number);
            }
            notices.extend(std::mem::take(&mut journal.waiting).into_iter().map(|node| (node, subject.clone())));
        }
        notices
    }
}

impl Node {
    /// Writes what has become of tasks of a partition to the journals.
    pub(crate) fn note_moves(&mut self, partition: PartitionId) {
        if self.queries.journals.by_subject.is_empty() || partition == PartitionId::METADATA {
            return;
        }
        let whole = self.speaks_for(partition);
        let Some(replica) = self.partitions.get_mut(&partition) else { return };
        let anew = !replica.store.is_watched();
        if anew {
            replica.store.watch(true);
        }
        let (moved, leads) = (replica.store.take_moved(), replica.consensus.established());
        if !whole {
            self.queries.journals.uncover(partition);
            return;
        }
        self.queries.journals.cover(partition, anew);
        let mut news = BTreeSet::new();
        for moved in moved {
            let ended = matches!(moved.state, State::Done | State::Dead | State::Cancelled);
            if ended && moved.queue.is_none() {
                // The queue is no longer known, so its watchers are not either: all watches that rest on this replica lag.
                self.queries.journals.cover(partition, true);
            }
            if ended || leads {
                news.extend(self.queries.journals.write(&moved));
            }
        }
        for (node, subject) in news {
            self.outbox.send(node, Query::WatchNews { subject });
        }
    }

    /// Answers another node's watch with the events since its place.
    pub(crate) fn on_watch(
        &mut self,
        from: NodeId,
        request_id: u64,
        subject: Subject,
        at: Option<WatchAt>,
        compare: &[PartitionId],
    ) {
        let journals = &mut self.queries.journals;
        if !journals.by_subject.contains_key(&subject) && journals.by_subject.len() >= JOURNALS_MAX {
            self.outbox.send(from, Query::Watched { request_id, at, feed: None });
            return;
        }
        if !journals.by_subject.contains_key(&subject) {
            // No place before this one can be taken for a place in this journal.
            journals.number += 1;
            let journal = Journal { floor: journals.number, ..Journal::default() };
            journals.by_subject.insert(subject.clone(), journal);
        }
        let journal = journals.by_subject.get_mut(&subject).expect("just seen to");
        journal.until_us = self.now.mono_after_ms(WATCH_KEPT_MS);
        journal.waiting.insert(from);
        self.queries.journals.covered.retain(|partition, _| self.partitions.contains_key(partition));
        for partition in self.partitions.keys().copied().collect::<Vec<_>>() {
            self.note_moves(partition);
        }
        let feed = self.feed(&subject, at, compare);
        // A reported ending must not vanish in a power failure.
        self.outbox.send_durable(from, Query::Watched { request_id, at, feed: Some(Box::new(feed)) });
    }

    fn feed(&self, subject: &Subject, at: Option<WatchAt>, compare: &[PartitionId]) -> WatchFeed {
        // An older image of the disk would restart under the same count, so the start here is the log's, not the counter.
        let (start, number) = (self.membership.log_start(), self.queries.journals.number);
        let journal = &self.queries.journals.by_subject[subject];
        let follows = at.filter(|at| at.start == start && (journal.floor..=number).contains(&at.number));
        let since = follows.map_or(number, |at| at.number);
        let behind = journal.events.partition_point(|(number, _)| *number <= since);
        let events: Vec<&(u64, Moved)> = journal.events.range(behind..).take(WATCH_EVENTS_MAX).collect();
        let more = behind + events.len() < journal.events.len();
        let upto = events.last().filter(|_| more).map_or(number, |(number, _)| *number);
        let covered = |partition: &&PartitionId| !more && self.queries.journals.covered.contains_key(*partition);
        let compared = compare.iter().take(COMPARED_MAX).filter(covered);
        WatchFeed {
            at: WatchAt { start, number: upto },
            follows: follows.is_some(),
            events: events.into_iter().filter_map(|(_, moved)| self.event(moved)).collect(),
            covers: self.queries.journals.covered(..=since),
            begins: if upto > since { self.queries.journals.covered(since + 1..=upto) } else { Vec::new() },
            roots: compared.map(|partition| (*partition, self.partitions[partition].store.root())).collect(),
        }
    }

    /// An event, with what is in memory of the task.
    fn event(&self, moved: &Moved) -> Option<WatchEvent> {
        let replica = self.partitions.get(&self.partition_of(&moved.id));
        let task = replica.and_then(|replica| replica.store.task(&moved.id));
        let facts = task.and_then(|task| task.facts.as_deref());
        let reason = facts.and_then(|facts| facts.cancel.as_ref()).map(|cancel| cancel.reason.clone());
        let result = facts.and_then(|facts| facts.winner()).and_then(|(_, done)| done.result_here());
        let failed = matches!(moved.state, State::Dead | State::Cancelled);
        let fits = |result: &serde_bytes::ByteBuf| moved.state == State::Done && result.len() <= WATCH_RESULT_BYTES_MAX;
        Some(WatchEvent {
            id: moved.id,
            queue: moved.queue.clone()?,
            state: moved.state,
            number: task.and_then(|task| task.member_of()).map(|member| member.number),
            result: result.filter(fits),
            reason: reason.filter(|reason| failed && !reason.is_empty()),
        })
    }

    /// Drops journals that are no longer asked for.
    pub(crate) fn prune_journals(&mut self) {
        if self.queries.journals.by_subject.is_empty() {
            return;
        }
        let now_us = self.now.mono_us;
        self.queries.journals.by_subject.retain(|_, journal| journal.until_us > now_us);
        if self.queries.journals.by_subject.is_empty() {
            self.queries.journals.covered.clear();
            self.partitions.values_mut().for_each(|replica| replica.store.watch(false));
        }
    }
}

/// Key of an event, reported once: the task, and how it ended or that it goes on.
pub(super) fn key(event: &WatchEvent) -> (TaskId, State) {
    (event.id, event.state)
}

#[cfg(test)]
mod tests {
    use super::*;
    use norn_wire::QueueName;

    fn ready(number: u32) -> Moved {
        let (id, queue) = (TaskId::new(1_700_000_000_000, number, 1, 7), QueueName::new("mail").expect("a name"));
        Moved { id, state: State::Ready, queue: Some(queue), group: None }
    }

    #[test]
    fn a_journal_is_bounded_and_says_from_where_on_it_is_whole() {
        let mut journals = Journals::default();
        let mail = Subject::Queue(QueueName::new("mail").expect("a name"));
        let journal = Journal { waiting: BTreeSet::from([NodeId(3)]), ..Journal::default() };
        journals.by_subject.insert(mail.clone(), journal);
        assert_eq!(journals.write(&ready(0)), [(NodeId(3), mail.clone())]);
        assert_eq!(journals.write(&ready(1)), [], "it is told once that there is something");
        for number in 2..=JOURNAL_EVENTS_MAX as u32 {
            journals.write(&ready(number));
        }
        let journal = &journals.by_subject[&mail];
        assert_eq!((journal.events.len(), journal.floor), (JOURNAL_EVENTS_MAX, 1));
        assert_eq!(journal.events.front().map(|(number, _)| *number), Some(2));
    }

    #[test]
    fn whoever_is_covered_anew_is_so_behind_every_place_before() {
        let mut journals = Journals::default();
        journals.cover(PartitionId(1), true);
        let place = journals.number;
        journals.cover(PartitionId(1), false);
        assert_eq!(journals.covered(..=place), [PartitionId(1)]);
        journals.uncover(PartitionId(1));
        journals.cover(PartitionId(1), false);
        assert_eq!(journals.covered(..=place), []);
        assert_eq!(journals.covered(place + 1..=journals.number), [PartitionId(1)]);
    }
}
