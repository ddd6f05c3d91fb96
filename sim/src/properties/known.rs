//! What each node knows of tasks: what it has logged since it started. For properties about what leaders pass over when they grant.

use crate::history::{Happening, History, writes_of};
use norn_engine::Observation;
use norn_model::claim_table::table::Op;
use norn_model::record::Record;
use norn_wire::membership::{QueuePolicy, Roster};
use norn_wire::{PartitionId, QueueName, Request, Spec, TaskId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[derive(Debug, Default)]
pub struct Known {
    rosters: BTreeMap<usize, Arc<Roster>>,
    /// Counter of what is learned and granted.
    pub steps: u64,
    /// Step at which each node learned of a task.
    tasks: BTreeMap<(usize, PartitionId), BTreeMap<TaskId, u64>>,
    /// Tasks of which some node may know more than the spec.
    pub touched: BTreeSet<TaskId>,
    /// Highest operation of each epoch that was seen.
    lengths: BTreeMap<(PartitionId, u64), u64>,
}

/// Tasks that a leader grants.
#[derive(Debug, Clone, Copy)]
pub struct Grants<'a> {
    /// Number of the leader's node.
    pub node: usize,
    pub partition: PartitionId,
    pub epoch: u64,
    /// The tasks in order, with the number of each claim.
    pub items: &'a [(TaskId, u64)],
}

impl Known {
    /// Takes in an event, and judges each grant as it comes. The verdict on a leader whose disk has lost anything does not count, as
    /// its knowledge is uncertain.
    pub fn see(
        &mut self,
        history: &History,
        happening: &Happening<'_>,
        judge: impl FnMut(&mut Known, Grants<'_>) -> Result<(), String>,
    ) -> Result<(), String> {
        match happening {
            Happening::Replayed { node, records } => {
                self.forget(*node);
                self.rosters.remove(node);
                records.iter().for_each(|record| self.hear(*node, record));
            }
            Happening::Crashed { node } | Happening::Gone { node } => self.forget(*node),
            Happening::Sent { request } if !matches!(request, Request::Enqueue { .. }) => {
                self.touched.extend(writes_of(request).into_iter().map(|(id, _)| id));
            }
            // A leader grants a task only if it has all of it at hand.
            Happening::Observed { observation: Observation::BodyLost { id }, .. } => drop(self.touched.insert(*id)),
            Happening::Appended { node, records, .. } => return self.append(history, *node, records, judge),
            _ => {}
        }
        Ok(())
    }

    fn hear(&mut self, node: usize, record: &Record) {
        if let Record::Roster(roster) = record {
            self.rosters.insert(node, roster.clone());
        }
    }

    fn forget(&mut self, node: usize) {
        self.tasks.retain(|(place, _), _| *place != node);
    }

    fn append(
        &mut self,
        history: &History,
        node: usize,
        records: &[Record],
        mut judge: impl FnMut(&mut Known, Grants<'_>) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut learned = Vec::new();
        for record in records {
            learned.extend(self.note(node, record));
            let Record::Ops { partition, after, ops } = record else { continue };
            for (number, op) in (after.length + 1..).zip(ops) {
                let seen = self.lengths.entry((*partition, after.epoch)).or_default();
                let is_new = number > std::mem::replace(seen, number.max(*seen));
                let Op::Grant { items, .. } = &**op else { continue };
                if !is_new {
                    continue;
                }
                self.touched.extend(items.iter().map(|(id, _)| *id));
                let judged = judge(self, Grants { node, partition: *partition, epoch: after.epoch, items });
                if !history.is_harmed(node) {
                    judged?;
                }
            }
        }
        // What was learned in the same step may have come after its grants.
        for (partition, id) in learned {
            self.steps += 1;
            self.tasks.entry((node, partition)).or_default().entry(id).or_insert(self.steps);
        }
        Ok(())
    }

    /// Takes in a record of a node. Returns the tasks that the node learns of.
    fn note(&mut self, node: usize, record: &Record) -> Vec<(PartitionId, TaskId)> {
        self.hear(node, record);
        match record {
            Record::Facts { partition, items } => {
                let more = items.iter().filter(|(_, task)| task.facts.is_some() || task.tombstone.is_some());
                self.touched.extend(more.map(|(id, _)| *id));
                let learned = items.iter().filter(|(_, task)| task.spec.is_some());
                learned.map(|(id, _)| (*partition, *id)).collect()
            }
            Record::Left { partition, .. } => {
                self.tasks.remove(&(node, *partition));
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    /// Policy of a queue, as a node has heard of it.
    pub fn policy(&self, node: usize, queue: &QueueName) -> QueuePolicy {
        let roster = self.rosters.get(&node);
        roster.and_then(|roster| roster.policies.get(queue)).cloned().unwrap_or_default()
    }

    /// Tasks that the granting leader knew, of which no node was ever known to know more, and that wait for nothing: with their
    /// specs, and the step at which the leader learned of them.
    pub fn open<'a>(
        &'a self,
        history: &'a History,
        grants: &Grants<'_>,
    ) -> impl Iterator<Item = (TaskId, &'a Spec, u64)> {
        let known = self.tasks.get(&(grants.node, grants.partition)).into_iter().flatten();
        let untouched = known.filter(|(id, _)| !self.touched.contains(*id));
        untouched.filter_map(|(id, since)| {
            let spec = history.specs.get(id).filter(|spec| is_plain(spec))?;
            Some((*id, spec, *since))
        })
    }
}

fn is_plain(spec: &Spec) -> bool {
    let is_join = spec.grouping.as_ref().is_some_and(|grouping| grouping.join.is_some());
    spec.not_before_ms == 0 && spec.after.is_empty() && !is_join
}
