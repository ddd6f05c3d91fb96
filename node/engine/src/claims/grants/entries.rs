//! Logs of granted tasks: with each claim the worker gets what earlier ones wrote. Entries that are not in memory are loaded while the
//! grant commits, and filled in before the answer.
//!
//! A task is not in the answer if one of its entries cannot be read back, as without its body: a worker that goes on behind the last
//! entry that it was given would repeat work that is done.

use crate::Node;
use crate::payloads::loads::Then;
use norn_model::config::mutant;
use norn_model::task::{Filling, Outline, Part, Slot, Task, Wanted, in_order, visible};
use norn_wire::response::LogEntry;
use norn_wire::{PartitionId, TaskId};
use serde_bytes::ByteBuf;
use std::collections::BTreeMap;

/// Parts to load for a task's visible log.
pub(super) fn wanted(id: TaskId, task: &Task<Outline>) -> impl Iterator<Item = Wanted> {
    in_order(task).filter_map(move |(token, sequence, data)| data.wanted(id, Slot::Entry(token, sequence)))
}

/// The visible log, with empty entries in place of those that are not in memory.
fn shown(task: &Task<Outline>) -> Vec<LogEntry> {
    let data = |data: Option<&ByteBuf>| data.map(|data| data.to_vec()).unwrap_or_default();
    in_order(task).map(|(token, sequence, blob)| LogEntry { token, sequence, data: data(blob.here()) }).collect()
}

/// Fills in loaded entries. Returns whether all were there.
pub(super) fn fill(log: &mut [LogEntry], gaps: Vec<(usize, Part)>, entries: &mut BTreeMap<Part, ByteBuf>) -> bool {
    gaps.into_iter().all(|(place, part)| {
        let found = entries.remove(&part).map(ByteBuf::into_vec);
        found.is_some_and(|data| {
            log[place].data = data;
            true
        })
    })
}

/// Parts that are loaded together. If the time of a grant is over first, the tasks whose parts have all come are answered.
const LOAD_PARTS_MAX: usize = 256;

fn part_of(wanted: &Wanted) -> Part {
    (wanted.id, wanted.slot, wanted.hash)
}

impl Node {
    /// The visible log of a task, except for what is not in memory.
    pub(super) fn log_of(&self, task: &Task<Outline>) -> Vec<LogEntry> {
        if mutant!(self.config, LogsUnread) { visible(task) } else { shown(task) }
    }

    /// Places in that log of what is not in memory.
    pub(super) fn gaps_in_log(&self, partition: PartitionId, id: &TaskId) -> Vec<(usize, Part)> {
        if mutant!(self.config, LogsUnread) {
            return Vec::new();
        }
        let task = self.partitions[&partition].store.task(id);
        let entries = task.into_iter().flat_map(in_order).enumerate();
        let gap = |(place, (token, sequence, data)): (usize, (_, _, &norn_model::task::Blob))| {
            Some((place, part_of(&data.wanted(*id, Slot::Entry(token, sequence))?)))
        };
        entries.filter_map(gap).collect()
    }

    /// Loads what a session lacks, except for what it has requested already.
    pub(super) fn load_for_grant(&mut self, session: u64, mut wanted: Vec<Wanted>) {
        let state = self.claims.grants.sessions.get_mut(&session).expect("under way");
        wanted.retain(|wanted| wanted.slot == Slot::Spec || state.asked.insert(part_of(wanted)));
        state.pending += wanted.len().div_ceil(LOAD_PARTS_MAX);
        for some in wanted.chunks(LOAD_PARTS_MAX) {
            self.load(Then::Grant { session }, some.to_vec());
        }
    }

    pub(crate) fn loaded_for_grant(&mut self, session: u64, found: impl Iterator<Item = (Wanted, Option<Filling>)>) {
        let Some(state) = self.claims.grants.sessions.get_mut(&session) else {
            // The time of the grant was over. Without this the next grant would wait as long.
            let entries = found.filter(|(wanted, _)| wanted.slot != Slot::Spec);
            return self.brought_back(entries.filter_map(|(wanted, found)| Some((wanted, found?))));
        };
        for (wanted, filling) in found.filter_map(|(wanted, found)| Some((wanted, found?))) {
            match filling {
                Filling::Spec(spec) => drop(state.bodies.insert(wanted.id, spec)),
                Filling::Bytes(bytes) => drop(state.entries.insert(part_of(&wanted), bytes)),
            }
        }
        self.one_less(session);
    }
}
