//! Disks that lose records which they had made durable.
//!
//! The damage stays within what the cluster is supposed to heal: as long as one node has not healed of its losses, no
//! other disk loses anything, so that whatever was acknowledged has a good copy elsewhere. Which records are lost is known, as
//! by the second copies of their heads.

use crate::history::Happening;
use crate::world::World;
use norn_client::wire::PartitionId;
use norn_node::protocol::Record;
use std::collections::BTreeSet;

impl World {
    /// A node starts with these records on its disk: some may turn out to be lost.
    pub fn damage(&mut self, node: usize, records: &[Record]) {
        let percent = self.options.damage_percent;
        if percent == 0 || self.healed() || self.options.replicas < 3 || !self.may_damage(node) {
            return;
        }
        let forgetful = std::mem::take(&mut self.nodes[node].forgetful);
        if !forgetful && !self.randoms.faults.chance(percent, 100) {
            return;
        }
        let lost = if forgetful { self.forgotten(node, records) } else { self.strike(node, records) };
        if lost.is_empty() {
            return;
        }
        self.line(format_args!("n{node} loses {} records: {lost:?}", lost.len()));
        self.count("fault: damage");
        self.damaged = Some(node);
        self.nodes[node].lost.extend(&lost);
        let gone = &self.nodes[node].lost;
        let (lost, left): (Vec<_>, Vec<_>) =
            (0..).zip(records).partition(|(ordinal, _): &(u64, &Record)| gone.contains(ordinal));
        let records = |of: Vec<(u64, &Record)>| of.into_iter().map(|(_, record)| record.clone()).collect::<Vec<_>>();
        let (lost, left) = (records(lost), records(left));
        self.tell(Happening::Damaged { node, lost: &lost, left: &left });
    }

    /// Where records of these kinds are that are still there: of one partition, or of all.
    fn places(&self, node: usize, records: &[Record], kinds: &[u8], of: Option<PartitionId>) -> Vec<u64> {
        let right = |record: &Record| kinds.contains(&record.kind().0) && (of.is_none() || record.partition() == of);
        let places = (0..).zip(records).filter(|(_, record)| right(record)).map(|(ordinal, _)| ordinal);
        places.filter(|ordinal| !self.nodes[node].lost.contains(ordinal)).collect()
    }

    /// Facts of all partitions, from some place on.
    fn forgotten(&mut self, node: usize, records: &[Record]) -> BTreeSet<u64> {
        let facts = self.places(node, records, b"F", None);
        self.tail(facts)
    }

    /// Something of one partition.
    fn strike(&mut self, node: usize, records: &[Record]) -> BTreeSet<u64> {
        let held: BTreeSet<PartitionId> = records.iter().filter_map(Record::partition).collect();
        if held.is_empty() {
            return BTreeSet::new();
        }
        let place = self.randoms.faults.below(held.len() as u64) as usize;
        let partition = held.into_iter().nth(place);
        let facts = self.places(node, records, b"F", partition);
        match self.randoms.faults.below(4) {
            0 => facts.into_iter().filter(|_| self.randoms.faults.chance(1, 3)).collect(),
            1 => self.tail(facts),
            _ => {
                let table = self.places(node, records, b"TO", partition);
                self.stretch(table)
            }
        }
    }

    /// All from some place on; most often not many.
    fn tail(&mut self, places: Vec<u64>) -> BTreeSet<u64> {
        let count = places.len() as u64;
        let length = if self.randoms.faults.chance(1, 2) { count.min(8) } else { count };
        let kept = count - self.randoms.faults.between(count.min(1), length);
        places.into_iter().skip(kept as usize).collect()
    }

    /// All from some place on up to another, or to the end.
    fn stretch(&mut self, places: Vec<u64>) -> BTreeSet<u64> {
        let tail = self.tail(places);
        let length = if self.randoms.faults.chance(1, 2) {
            tail.len() as u64
        } else {
            self.randoms.faults.between(tail.len().min(1) as u64, tail.len() as u64)
        };
        tail.into_iter().take(length as usize).collect()
    }

    /// Whether every other node has healed. A node that is down has not, as far as anybody knows.
    fn may_damage(&mut self, node: usize) -> bool {
        let Some(damaged) = self.damaged.filter(|damaged| *damaged != node) else { return true };
        let whole = self.is_whole(damaged);
        if whole {
            self.damaged = None;
        }
        whole
    }
}
