//! Snapshots of a node's log, written part by part as by a real host, and the proof that each is the state.

use crate::adapter::{self, Core, ReplicaView, Restorer, log};
use crate::world::{Event, World};
use norn_engine::{Cursor, Event as Input};
use norn_model::host::Room;
use norn_model::record::Record;
use norn_wire::{PartitionId, TaskId};
use std::collections::BTreeSet;

/// Until the next look whether a process goes on that stands still.
const LOOK_US: u64 = 60_000_000;

/// The tasks of some partitions in the records of a state.
fn tasks_of(records: &[Record], partitions: &BTreeSet<PartitionId>) -> BTreeSet<TaskId> {
    let tasks = |record: &Record| match record {
        Record::Facts { partition, items } if partitions.contains(partition) => {
            items.iter().map(|(id, _)| *id).collect()
        }
        _ => BTreeSet::new(),
    };
    records.iter().flat_map(tasks).collect()
}

impl World {
    /// Runs the log's upkeep.
    pub fn keep_up(&mut self, node: usize) {
        let boot = self.nodes[node].boot;
        let Some(running) = &mut self.nodes[node].running else { return };
        // The thread of a log does this once all that was appended is reported.
        if !running.places.is_empty() {
            return;
        }
        match running.log.upkeep() {
            Ok(log::Upkeep::Rest) => self.upkeep_rests(node),
            Ok(log::Upkeep::Again) => {}
            Ok(log::Upkeep::Moved(ranges)) => {
                self.step_node(node, Input::Moved { ranges });
                self.keep_up(node);
            }
            Ok(log::Upkeep::Begin) => {
                self.upkeep_saves(node, true);
                let delay_us = self.randoms.saves.between(0, self.options.sync_us_max);
                self.schedule_in(delay_us, Event::Save { node, boot, anew: true });
            }
            Ok(log::Upkeep::GivenUp(error)) => self.snapshot_given_up(node, &error),
            Err(error) => self.log_stopped(node, &error),
        }
    }

    /// Gives the next part of the state to the log, for its snapshot.
    pub fn save_part(&mut self, node: usize, boot: u64, anew: bool) {
        let paused_us = self.nodes[node].paused_until_us.saturating_sub(self.now_us);
        let process = &mut self.nodes[node];
        let Some(running) = process.running.as_mut().filter(|_| process.boot == boot) else { return };
        if paused_us > 0 {
            // A node that is away has no end of its pause yet.
            return self.schedule_in(paused_us.min(LOOK_US), Event::Save { node, boot, anew });
        }
        if anew {
            running.saved = Cursor::default();
        }
        let part = running.core.save(&mut running.saved, self.options.saved_bytes as usize);
        let saved = running.log.save_part(part);
        self.upkeep_saves(node, matches!(saved, Ok(log::Saved::Part | log::Saved::Lacks(_))));
        match saved {
            Ok(log::Saved::Part) => {
                let delay_us = self.randoms.saves.between(0, self.options.sync_us_max);
                self.schedule_in(delay_us, Event::Save { node, boot, anew: false });
            }
            Ok(log::Saved::Lacks(ids)) => {
                let delay_us = self.randoms.saves.between(0, self.options.sync_us_max);
                self.schedule_in(delay_us, Event::Save { node, boot, anew: false });
                self.snapshot_lacks(node, ids);
            }
            Ok(log::Saved::Measured) => self.keep_up(node),
            Ok(log::Saved::Whole) => {
                self.line(format_args!("n{node} snapshot"));
                self.count("sometimes: snapshot");
                self.compare_with_disk(node);
                // The thread of a log does so before anything else is written.
                if self.is_short(node) {
                    self.keep_up(node);
                }
            }
            Ok(log::Saved::GivenUp(error)) => self.snapshot_given_up(node, &error),
            Err(error) => self.log_stopped(node, &error),
        }
    }

    /// Whether the disk of a running node is short of room.
    pub fn is_short(&self, node: usize) -> bool {
        self.nodes[node].running.as_ref().is_some_and(|running| running.log.room() != Room::Ample)
    }

    /// Checks that a process which started on this disk now would be in exactly the state of the running one.
    fn compare_with_disk(&mut self, node: usize) {
        let Some(running) = &self.nodes[node].running else { return };
        // A body may rot after the snapshot has it and before the node knows that.
        if self.may_refuse(node) && (self.options.rot_ppm > 0 || self.is_rotten(node)) {
            return;
        }
        let config = log::LogConfig {
            segment_bytes: self.options.segment_bytes,
            compact_bytes: u64::MAX,
            ..log::LogConfig::DEFAULT
        };
        let identity = self.nodes[node].identity.expect("a running node has one");
        let mut core = Core::new(self.founding(node, identity), 0);
        let mut restorer = Restorer::new(&mut core);
        let replayed = log::Log::open(self.nodes[node].disk.copy(), config, || unreachable!("there is a log"))
            .and_then(|mut log| log.replay(|replay| restorer.take(replay)))
            .map_err(|error| error.to_string())
            .and_then(|_| restorer.finish());
        let durable = |core: &Core| {
            let still = |view| ReplicaView {
                leads: false,
                base: None,
                established: false,
                commit: 0,
                bodies_lost: 0,
                forgets: 0,
                answered: false,
                // A core that is not started does not know what time it is.
                ages: Vec::new(),
                ..view
            };
            let views: Vec<ReplicaView> = core.inspect().into_iter().map(still).collect();
            let mut records = adapter::state_of(core, &self.nodes[node].disk);
            records.retain(|record| !matches!(record, Record::Ran { .. } | Record::LeaseAges { .. }));
            (views, records)
        };
        // A replica with losses may find more in its log than when it started: then it passed over what did not fit.
        let views = running.core.inspect();
        let incomplete: BTreeSet<PartitionId> =
            views.iter().filter(|view| !view.data_loss.is_whole()).map(|view| view.partition).collect();
        let durable = |core: &Core| {
            let (mut views, mut records) = durable(core);
            views.retain(|view| !incomplete.contains(&view.partition));
            records.retain(|record| record.partition().is_none_or(|partition| !incomplete.contains(&partition)));
            (views, records)
        };
        let tasks_of = |core: &Core| {
            let records = adapter::state_of(core, &self.nodes[node].disk);
            tasks_of(&records, &incomplete)
        };
        let (read, own) = (durable(&core), durable(&running.core));
        // The tasks of a replica with losses are on its disk, and those that it has forgotten are not.
        let (tasks_read, tasks_own) = (tasks_of(&core), tasks_of(&running.core));
        let differ: Vec<&TaskId> = tasks_read.symmetric_difference(&tasks_own).collect();
        if replayed.is_ok() && !differ.is_empty() {
            self.fail("snapshot", format!("node {node}: on disk or in memory alone are {differ:?}"));
        } else if let Err(error) = replayed {
            self.fail("snapshot", format!("node {node}: {error}"));
        } else if read != own {
            let views = read.0.iter().zip(&own.0).find(|(read, own)| read != own);
            let records = read.1.iter().zip(&own.1).find(|(read, own)| read != own);
            let what = format!("what its disk says is not its state: {views:?} {records:?}");
            self.fail("snapshot", format!("node {node}: {what}"));
        }
    }
}
