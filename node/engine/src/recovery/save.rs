//! Snapshot of a node's state, as records of the log.

use crate::Node;
use norn_model::config::mutant;
use norn_model::limits::{EXCHANGE_TASKS_MAX, within};
use norn_model::record::Record;
use norn_model::snapshot::{Gap, Part};
use norn_model::task::{Content, Task};
use norn_model::viewstamp::Viewstamp;
use norn_wire::{NodeId, PartitionId, TaskId};
use std::ops::Bound;
use std::sync::Arc;

/// Position in the state up to which it was saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cursor {
    place: Place,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Place {
    #[default]
    Beginning,
    /// Within a partition: its tasks up to this one are saved.
    Within(PartitionId, Option<TaskId>),
    /// Within a partition: its tasks, and its tombstones up to this one, are saved.
    Buried(PartitionId, Option<TaskId>),
    /// Partitions up to and including this one are saved, or none.
    After(Option<PartitionId>),
    /// All partitions are saved, and payload hints up to this task.
    PayloadHints(Option<(PartitionId, TaskId)>),
    /// Payload hints are saved as well, and id hints up to this task of that member.
    IdHints(Option<(NodeId, (PartitionId, TaskId))>),
}

/// Bytes of a task beside its variable parts, roughly.
const TASK_BYTES: usize = 64;

impl Node {
    /// Returns the next part of the state: records from which [`Node::recover`] rebuilds it. They have about `bytes_max`, bodies
    /// that are not in memory included, but a table comes whole. Before the start, the state is that of the replay; a log that has
    /// lost something is left to the start, which notes the loss.
    ///
    /// The state may change between two calls. The parts contain all that was persisted before the first call; what is persisted
    /// later may be in them or not.
    pub fn save(&self, cursor: &mut Cursor, bytes_max: usize) -> Part {
        let Part { mut records, mut gaps, .. } = Part::default();
        let mut bytes = 0;
        while bytes < bytes_max {
            match cursor.place {
                Place::Beginning => {
                    cursor.place = Place::After(None);
                    records.extend(self.save_node());
                }
                Place::After(before) => {
                    let from = before.map_or(Bound::Unbounded, Bound::Excluded);
                    let Some(replica) = self.partitions.first_from(from) else {
                        cursor.place = Place::PayloadHints(None);
                        continue;
                    };
                    cursor.place = Place::Within(replica.id, None);
                    records.extend(self.save_consensus(replica.id));
                    bytes += replica.consensus.table.entries.len() * TASK_BYTES;
                }
                Place::Within(partition, after) => {
                    let store = &self.partitions[&partition].store;
                    let tasks = store.after(after);
                    let mut items = Vec::new();
                    for (id, task) in within(bytes_max - bytes, tasks, |(_, task)| size_bytes(task)) {
                        bytes += size_bytes(task);
                        let (task, wanted) = task.whole(*id);
                        let (record, item) = (records.len(), items.len());
                        gaps.extend(wanted.into_iter().map(|wanted| Gap { record, item, wanted }));
                        items.push((*id, task));
                        let rival = store.rival_of(id).cloned();
                        items.extend(rival.map(|rival| (*id, rival)));
                    }
                    cursor.place = match items.last() {
                        Some((last, _)) => Place::Within(partition, Some(*last)),
                        None => Place::Buried(partition, None),
                    };
                    save_facts(partition, items, &mut records);
                }
                Place::Buried(partition, after) => {
                    let items = self.save_tombstones(partition, after, bytes_max - bytes);
                    cursor.place = match items.last() {
                        Some((last, _)) => Place::Buried(partition, Some(*last)),
                        None => Place::After(Some(partition)),
                    };
                    bytes += items.iter().map(|(_, task)| size_bytes(task)).sum::<usize>();
                    save_facts(partition, items, &mut records);
                }
                Place::PayloadHints(after) => {
                    let (saved, last) = self.save_payload_hints(after, bytes_max - bytes, &mut records);
                    bytes += saved;
                    cursor.place = last.map_or(Place::IdHints(None), |last| Place::PayloadHints(Some(last)));
                }
                Place::IdHints(after) => {
                    let Some(last) = self.save_id_hints(after, &mut records) else {
                        return Part { records, gaps, last: true };
                    };
                    bytes += TASK_BYTES;
                    cursor.place = Place::IdHints(Some(last));
                }
            }
        }
        Part { records, gaps, last: false }
    }

    fn save_tombstones(&self, partition: PartitionId, after: Option<TaskId>, bytes_max: usize) -> Vec<(TaskId, Task)> {
        let store = &self.partitions[&partition].store;
        // This includes tasks that were saved among the live ones: one may have been a tombstone then, and only what was added to
        // it would follow the snapshot.
        let buried = store.buried_after(after).filter_map(|id| Some((id, store.content(&id)?.0)));
        within(bytes_max, buried, |(_, task)| size_bytes(task)).collect()
    }

    /// Saves payload hints of a partition. Returns their bytes, and the last of them.
    fn save_payload_hints(
        &self,
        after: Option<(PartitionId, TaskId)>,
        bytes_max: usize,
        records: &mut Vec<Record>,
    ) -> (usize, Option<(PartitionId, TaskId)>) {
        let mut kept = self.repair.kept_after(after).peekable();
        let Some(((partition, _), _, since_ms)) = kept.peek().copied() else { return (0, None) };
        let of_partition = kept.take_while(|((of, _), ..)| *of == partition);
        let items: Vec<(TaskId, Task)> = within(bytes_max, of_partition, |(_, task, _)| size_bytes(task))
            .map(|((_, id), task, _)| (id, task.clone()))
            .collect();
        let bytes = items.iter().map(|(_, task)| size_bytes(task)).sum();
        let last = items.last().map(|(id, _)| (partition, *id));
        records.push(Record::Hint { partition, since_ms, items: Arc::new(items) });
        (bytes, last)
    }

    /// Saves id hints for a member in a partition. Returns the last of them.
    fn save_id_hints(
        &self,
        after: Option<(NodeId, (PartitionId, TaskId))>,
        records: &mut Vec<Record>,
    ) -> Option<(NodeId, (PartitionId, TaskId))> {
        let mut owed = self.repair.owed_after(after).peekable();
        let (to, (partition, _), since_ms) = owed.peek().copied()?;
        let alike = owed.take_while(|(node, (of, _), _)| (*node, *of) == (to, partition));
        let ids: Vec<TaskId> = alike.take(EXCHANGE_TASKS_MAX).map(|(_, (_, id), _)| id).collect();
        let last = ids.last().map(|id| (to, (partition, *id)));
        records.push(Record::IdHint { to, partition, since_ms, ids });
        last
    }

    fn save_node(&self) -> Vec<Record> {
        let mut records = vec![Record::Identity { node: self.me, incarnation: self.founding.incarnation }];
        records.extend((self.boot > 0).then_some(Record::Boot { count: self.boot }));
        records.extend(self.membership.unanswered().map(|began| Record::Unanswered { began: Some(began) }));
        records.extend(self.genesis.clone().map(Record::Genesis));
        records.extend((self.roster.version > 0).then(|| Record::Roster(self.roster.clone())));
        records.extend(self.id_allocator.high_water_mark());
        // This stands before all records that it could date, so it only gives the uptime from which the count goes on.
        records.push(Record::Ran { us: self.consensus.uptime().ran_us(self.now) });
        records
    }

    fn save_consensus(&self, partition: PartitionId) -> Vec<Record> {
        let consensus = &self.partitions[&partition].consensus;
        let (promised, voted_for, viewstamp) = (consensus.promised, consensus.voted_for, consensus.viewstamp);
        let loss_recovery = &self.partitions[&partition].loss_recovery;
        let (data_loss, losses) = (loss_recovery.data_loss, loss_recovery.losses);
        // A replica that was not there at genesis begins blank.
        let founder = self.founders(partition).contains(&consensus.me);
        let blank = self.partitions[&partition].is_blank();
        let said = !blank && (losses > 0 || !data_loss.is_whole() || !founder);
        let data_loss = said.then_some(Record::DataLoss { partition, data_loss, losses });
        let vote = (promised > 0).then_some(Record::Vote { partition, promised, voted_for });
        let table = (viewstamp > Viewstamp::default()).then(|| {
            let table = Some(Arc::new(consensus.table.clone()));
            Record::Install { partition, viewstamp, table }
        });
        let ages = self.save_ages(partition);
        let forgotten = self.save_forgotten(partition);
        let left = || Record::Left { partition, advertised: Box::new(self.route_of(partition)) };
        let left = blank.then(left);
        // What is forgotten is behind the ages: a loss from its place on counts as one of facts.
        data_loss.into_iter().chain(vote).chain(table).chain(ages).chain(forgotten).chain(left).collect()
    }

    /// Names the forgotten tasks that the saved table would bring back. A table with losses may be older than what was forgotten since,
    /// and still hand on how such a task ended; a replay of its installation takes that in as a fact.
    fn save_forgotten(&self, partition: PartitionId) -> Option<Record> {
        let replica = &self.partitions[&partition];
        let handed_on = replica.consensus.table.endings().map(|ended| ended.id);
        let ids: Vec<TaskId> = handed_on.filter(|id| !replica.store.knows(id)).collect();
        let named = !ids.is_empty() && !mutant!(self.config, SnapshotRevives);
        named.then_some(Record::Forgot { partition, ids })
    }
}

/// Adds a record of facts, unless it would be empty.
fn save_facts(partition: PartitionId, items: Vec<(TaskId, Task)>, records: &mut Vec<Record>) {
    if !items.is_empty() {
        records.push(Record::Facts { partition, items: Arc::new(items) });
    }
}

fn size_bytes<S: Content>(task: &Task<S>) -> usize {
    TASK_BYTES + task.size_bytes()
}
