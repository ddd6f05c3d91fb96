//! The tokens that time has earned of a rate are not lost, whichever node leads: each level that is written for a queue, plus the
//! permits that were given by then and may still be valid, is no lower than the level before it in the same log.
//!
//! Followed in the log of each node. Where a disk lost records, the earlier levels are unknown. What follows for grants depends on
//! the demand and where it arises, so a play tests it (`rates.rs`).

use super::Property;
use crate::history::{Happening, History, Moment};
use norn_model::claim_table::levels::{Level, WHOLE};
use norn_model::claim_table::table::Op;
use norn_model::record::Record;
use norn_model::viewstamp::Viewstamp;
use norn_wire::membership::{Rate, Roster};
use norn_wire::{PartitionId, QueueName};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Levels are rounded down when they are written, and when they are read.
const ROUNDING: u128 = 2;

/// Levels in a replica's table.
#[derive(Debug, Default)]
struct Levels {
    at: Viewstamp,
    levels: BTreeMap<QueueName, Level>,
}

#[derive(Debug, Default)]
pub struct Earned {
    rosters: BTreeMap<usize, Arc<Roster>>,
    replicas: BTreeMap<(usize, PartitionId), Levels>,
    /// Highest operation of each epoch that was seen. The leader writes an operation first.
    lengths: BTreeMap<(PartitionId, u64), u64>,
}

/// Capacity of a bucket, in millionths of a permit.
fn most(rate: Rate) -> u128 {
    u128::from(WHOLE) + u128::from(rate.claims) * 2_000 * u128::from(WHOLE) / u128::from(rate.per_ms.max(1))
}

impl Earned {
    /// Takes in a record of a node's log; `fresh` if the node writes it now.
    fn take(&mut self, node: usize, record: &Record, fresh: bool) -> Result<(), String> {
        match record {
            Record::Roster(roster) => {
                self.rosters.insert(node, roster.clone());
            }
            Record::Left { partition, .. } => {
                self.replicas.remove(&(node, *partition));
            }
            Record::Install { partition, viewstamp, table } => {
                let replica = self.replicas.entry((node, *partition)).or_default();
                // A log may repeat what its snapshot has.
                if *viewstamp > replica.at {
                    replica.at = *viewstamp;
                    if let Some(table) = table {
                        let levels = table.levels.iter().map(|(queue, (level, _))| (queue.clone(), *level));
                        replica.levels = levels.collect();
                    }
                }
            }
            Record::Ops { partition, after, ops } => {
                for (length, op) in (after.length + 1..).zip(ops) {
                    let at = Viewstamp { length, ..*after };
                    self.operation(node, *partition, at, op, fresh)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn operation(
        &mut self,
        node: usize,
        partition: PartitionId,
        at: Viewstamp,
        op: &Op,
        fresh: bool,
    ) -> Result<(), String> {
        let replica = self.replicas.entry((node, partition)).or_default();
        if at <= replica.at {
            return Ok(());
        }
        if at != (Viewstamp { length: replica.at.length + 1, ..replica.at }) {
            replica.levels.clear();
        }
        replica.at = at;
        let seen = self.lengths.entry((partition, at.epoch)).or_default();
        let first = fresh && at.length > *seen;
        *seen = at.length.max(*seen);
        let Op::Level { queue, level } = op else { return Ok(()) };
        let before = match level {
            Some(level) => replica.levels.insert(queue.clone(), *level),
            None => replica.levels.remove(queue),
        };
        let rate = self.rosters.get(&node).and_then(|roster| roster.policies.get(queue)?.rate);
        let (Some(before), Some(after), Some(rate)) = (before.filter(|_| first), level, rate) else { return Ok(()) };
        let earned = u128::from(before.millionths).min(most(rate));
        let left = u128::from(after.millionths) + u128::from(after.given) * u128::from(WHOLE);
        match left + ROUNDING >= earned {
            true => Ok(()),
            false => {
                Err(format!("partition {partition}, {at:?}: of {before:?} in the bucket of {queue} {after:?} is left"))
            }
        }
    }
}

impl Property for Earned {
    fn name(&self) -> &'static str {
        "earned"
    }

    fn see(&mut self, history: &History, _moment: Moment, happening: &Happening<'_>) -> Result<(), String> {
        match happening {
            Happening::Replayed { node, records } => {
                self.replicas.retain(|(other, _), _| other != node);
                self.rosters.remove(node);
                let whole = !history.is_harmed(*node);
                let kept = records.iter().filter(|record| whole || matches!(record, Record::Roster(_)));
                kept.for_each(|record| self.take(*node, record, false).expect("it was written before"));
            }
            Happening::Appended { node, records, .. } => {
                records.iter().try_for_each(|record| self.take(*node, record, true))?;
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::*;
    use super::*;
    use norn_engine::Ticket;
    use norn_wire::membership::QueuePolicy;

    fn append(bench: &mut Bench<Earned>, node: usize, record: Record) -> Result<(), String> {
        bench.see(Happening::Appended { node, ticket: Ticket(1), records: &[record] })
    }

    fn write(bench: &mut Bench<Earned>, node: usize, after: Viewstamp, level: (u64, u64)) -> Result<(), String> {
        let level = Some(Level { millionths: level.0, given: level.1 });
        let ops = vec![Arc::new(Op::Level { queue: spec().queue, level })];
        append(bench, node, Record::Ops { partition: PartitionId(0), after, ops })
    }

    fn install(bench: &mut Bench<Earned>, node: usize, epoch: u64) {
        let viewstamp = Viewstamp { epoch, length: 0 };
        append(bench, node, Record::Install { partition: PartitionId(0), viewstamp, table: None }).unwrap();
    }

    fn bench() -> Bench<Earned> {
        let mut bench = Bench::new();
        let policy = QueuePolicy { rate: Some(Rate { claims: 3, per_ms: 1_000 }), ..QueuePolicy::default() };
        let policies = BTreeMap::from([(spec().queue, policy)]);
        let roster = Arc::new(Roster { policies, ..Roster::default() });
        (0..2).for_each(|node| append(&mut bench, node, Record::Roster(roster.clone())).unwrap());
        bench
    }

    #[test]
    fn the_next_leader_has_what_the_last_one_wrote() {
        for (level, is_right) in [((2_000_000, 3), true), ((4_999_999, 0), true), ((100_000, 3), false)] {
            let mut bench = bench();
            let at = |epoch, length| Viewstamp { epoch, length };
            (0..2).for_each(|node| install(&mut bench, node, 3));
            (0..2).for_each(|node| write(&mut bench, node, at(3, 0), (5_000_000, 2)).unwrap());
            install(&mut bench, 1, 4);
            assert_eq!(write(&mut bench, 1, at(4, 0), level).is_ok(), is_right, "{level:?}");
        }
    }

    #[test]
    fn a_leader_cannot_know_what_was_written_elsewhere_and_never_committed() {
        let mut bench = bench();
        let at = |epoch, length| Viewstamp { epoch, length };
        (0..2).for_each(|node| install(&mut bench, node, 3));
        write(&mut bench, 0, at(3, 0), (5_000_000, 0)).unwrap();
        install(&mut bench, 1, 4);
        assert!(write(&mut bench, 1, at(4, 0), (0, 0)).is_ok());
    }
}
