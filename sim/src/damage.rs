//! Disks that lose records which they had made durable.
//!
//! The damage stays within what the cluster is supposed to heal: as long as one node has not healed its losses, no other disk loses
//! anything, so that whatever was acknowledged has a good copy elsewhere. The lost records are known, as by the second copies of
//! their heads.

use crate::adapter::log;
use crate::disk::SimDisk;
use crate::history::Happening;
use crate::world::World;
use norn_model::record::{Kind, Record};
use norn_storage::Owner;
use norn_storage::disk::Disk;
use norn_storage::verify::{Entry, inspect};
use norn_wire::{NodeId, PartitionId};
use std::collections::BTreeSet;

/// A record that a disk could lose.
#[derive(Debug, Clone)]
struct Target {
    file: String,
    offset: u64,
    bytes: u64,
    kind: Kind,
    partition: PartitionId,
}

impl World {
    /// Loses some records of a node that is about to start, now and then.
    pub fn damage(&mut self, node: usize) {
        let percent = self.options.damage_percent;
        let forbidden = self.healed() || self.options.replicas < 3 || self.copies.forbids(node);
        // A record that is not synced may say that an earlier one was, and be gone after the next crash.
        let settled = self.nodes[node].disk.is_settled();
        if percent == 0 || forbidden || !settled || !self.may_damage(node) {
            return;
        }
        let forgetful = std::mem::take(&mut self.nodes[node].forgetful);
        if !forgetful && !self.randoms.faults.chance(percent, 100) {
            return;
        }
        let disk = self.nodes[node].disk.copy();
        // A log that was never finished does not exist yet, and has nothing to lose.
        let Ok(records) = replay(&disk) else { return };
        let segments = lasting_segments(&disk);
        if !forgetful && segments.len() > 1 && self.randoms.faults.chance(1, 4) {
            self.lose_segment(node, &segments);
        } else {
            self.flip(node, &targets(&disk), forgetful);
        }
        let disk = self.nodes[node].disk.copy();
        let left = match replay(&disk) {
            Ok(left) => left,
            // A lie had lost the header of its last segment, and now the record that says the same is lost: the node refuses to
            // start. Whatever else happens to a disk in a run leaves a whole log, of which no damage that is drawn here takes too
            // much.
            Err(_) if self.options.lies_ppm > 0 && self.copies.is_spoiled() => {
                return self.count("sometimes: damage met what a disk had forgotten");
            }
            Err(reason) => return self.fail("damage", format!("node {node} cannot do with what is left: {reason}")),
        };
        let mut still = left.iter().peekable();
        let lost: Vec<Record> = records.into_iter().filter(|record| still.next_if_eq(&record).is_none()).collect();
        if !lost.is_empty() {
            self.line(format_args!("n{node} loses {} records", lost.len()));
            self.count("fault: damage");
            self.damaged = Some(node);
            self.tell(Happening::Damaged { node, lost: &lost, left: &left });
        }
    }

    /// Damages records so that none of them can be read.
    fn flip(&mut self, node: usize, targets: &[Target], forgetful: bool) {
        let lost = if forgetful { self.forgotten(targets) } else { self.strike(targets) };
        self.nodes[node].flipped |= !lost.is_empty();
        for target in &lost {
            let place = target.offset + self.randoms.faults.below(target.bytes);
            let change = self.randoms.faults.between(1, 255) as u8;
            self.nodes[node].disk.flip(&target.file, place, change);
        }
    }

    /// Destroys a segment, or some in a row.
    fn lose_segment(&mut self, node: usize, segments: &[String]) {
        let first = self.randoms.faults.below(segments.len() as u64) as usize;
        let count = if self.randoms.faults.chance(3, 4) { 1 } else { self.randoms.faults.between(1, 3) as usize };
        for file in &segments[first..(first + count).min(segments.len())] {
            let files = self.nodes[node].disk.copy().list().expect("a copy has no troubles");
            let other = files.iter().rfind(|other| other.ends_with(".log")).expect("the last one lasts");
            let harm = self.nodes[node].disk.clone().lose(file, other, &mut self.randoms.faults);
            self.line(format_args!("n{node} loses {file}: {harm:?}"));
            self.count("fault: segment lost");
            self.nodes[node].flipped = true;
        }
    }

    /// Draws facts of all partitions, from some place on.
    fn forgotten(&mut self, targets: &[Target]) -> Vec<Target> {
        self.tail(of_kinds(targets, b"F", None))
    }

    /// Draws records of one partition.
    fn strike(&mut self, targets: &[Target]) -> Vec<Target> {
        let held: BTreeSet<PartitionId> = targets.iter().map(|target| target.partition).collect();
        if held.is_empty() {
            return Vec::new();
        }
        let place = self.randoms.faults.below(held.len() as u64) as usize;
        let partition = held.into_iter().nth(place);
        let facts = of_kinds(targets, b"F", partition);
        match self.randoms.faults.below(4) {
            0 => facts.into_iter().filter(|_| self.randoms.faults.chance(1, 3)).collect(),
            1 => self.tail(facts),
            _ => self.stretch(of_kinds(targets, b"TO", partition)),
        }
    }

    /// Draws all targets from some place on; often only a few.
    fn tail(&mut self, targets: Vec<Target>) -> Vec<Target> {
        let count = targets.len() as u64;
        let length = if self.randoms.faults.chance(1, 2) { count.min(8) } else { count };
        let kept = count - self.randoms.faults.between(count.min(1), length);
        targets.into_iter().skip(kept as usize).collect()
    }

    /// Draws all targets from some place on up to another, or to the end.
    fn stretch(&mut self, targets: Vec<Target>) -> Vec<Target> {
        let tail = self.tail(targets);
        let length = if self.randoms.faults.chance(1, 2) {
            tail.len() as u64
        } else {
            self.randoms.faults.between(tail.len().min(1) as u64, tail.len() as u64)
        };
        tail.into_iter().take(length as usize).collect()
    }

    /// Whether every other node has healed. A node that is down counts as not healed.
    pub(crate) fn may_damage(&mut self, node: usize) -> bool {
        self.heal_losses();
        if self.losses.is_open() {
            return false;
        }
        let Some(damaged) = self.damaged.filter(|damaged| *damaged != node) else { return true };
        let whole = self.is_whole(damaged);
        if whole {
            self.damaged = None;
        }
        whole
    }
}

/// All records of a log.
pub(crate) fn replay(disk: &SimDisk) -> Result<Vec<Record>, String> {
    let config = log::LogConfig { compact_bytes: u64::MAX, ..log::LogConfig::DEFAULT };
    let none = || log::Identity { node: NodeId(0), incarnation: 0 };
    let mut log = log::Log::open(disk.copy(), config, none).map_err(|error| error.to_string())?;
    let mut records = Vec::new();
    let replayed = log.replay(|replay| {
        if let log::Replay::Record { record, .. } = replay {
            records.push(record);
        }
        Ok(())
    });
    replayed.map_err(|error| error.to_string())?;
    Ok(records)
}

/// Segments that can be lost without more than what other replicas have: each later segment repeats what was promised.
fn lasting_segments(disk: &SimDisk) -> Vec<String> {
    let files = disk.list().expect("a copy has no troubles");
    let newest = files.iter().filter(|file| file.ends_with(".snapshot")).max();
    let counts = |file: &&String| newest.is_none_or(|newest| file[..16] >= newest[..16]);
    let mut segments: Vec<String> =
        files.iter().filter(|file| file.ends_with(".log")).filter(counts).cloned().collect();
    // The last segment has votes that stand nowhere else, and it may not repeat all yet that the one before has.
    segments.truncate(segments.len().saturating_sub(2));
    segments
}

/// Records whose loss is noticed: not those of the last batch, which would look as if a crash had torn it.
fn targets(disk: &SimDisk) -> Vec<Target> {
    let newest =
        disk.list().expect("a copy has no troubles").into_iter().filter(|file| file.ends_with(".snapshot")).max();
    let (mut targets, mut synced) = (Vec::new(), 0);
    let seen = inspect(disk, |file, offset, entry| {
        let superseded = newest.as_ref().is_some_and(|newest| file[..16] < newest[..16]);
        let Entry::Record { ordinal, of, bytes, synced: before, .. } = entry else { return Ok(()) };
        let of_log = file.ends_with(".log");
        if superseded {
            return Ok(());
        }
        if of_log {
            synced = synced.max(before);
        }
        if let Some((Owner::Partition(partition), kind)) = of {
            let target = Target { file: file.to_owned(), offset, bytes, kind, partition };
            targets.push((of_log.then_some(ordinal), target));
        }
        Ok::<(), log::DiskError>(())
    });
    seen.expect("a copy has no troubles");
    targets.retain(|(ordinal, _)| ordinal.is_none_or(|ordinal| ordinal <= synced));
    targets.into_iter().map(|(_, target)| target).collect()
}

fn of_kinds(targets: &[Target], kinds: &[u8], partition: Option<PartitionId>) -> Vec<Target> {
    let wanted = |target: &&Target| {
        kinds.contains(&target.kind.0) && partition.is_none_or(|partition| target.partition == partition)
    };
    targets.iter().filter(wanted).cloned().collect()
}
