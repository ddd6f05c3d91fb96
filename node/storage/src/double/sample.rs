//! The log of a cluster member, as a node could have written it.

use super::{CLUSTER, Double, Files};
use crate::log::{Identity, Log, LogConfig, Saved, Upkeep};
use norn_model::claim_table::table::ClaimTable;
use norn_model::metadata;
use norn_model::record::{Kind, Record};
use norn_model::ring;
use norn_model::snapshot::Part;
use norn_model::viewstamp::{ReplicaId, Viewstamp};
use norn_wire::response::{Genesis, Member};
use norn_wire::{NodeId, PartitionId};
use std::collections::BTreeMap;
use std::sync::Arc;

pub const IDENTITY: Identity = Identity { node: NodeId(7), incarnation: 7 };
const PARTITIONS: u32 = 4;

/// A cluster of this many members, each of which holds all partitions.
fn genesis(members: u32) -> Genesis {
    let member = |number: u32| Member {
        node: NodeId(7 + u128::from(number)),
        incarnation: 7 + u64::from(number),
        address: format!("n{number}:1"),
        name: format!("n{number}"),
        zone: String::new(),
    };
    let members: Vec<Member> = (0..members).map(member).collect();
    let assignment = ring::assign(&members, PARTITIONS, members.len() as u32);
    let (cluster, replicas) = (CLUSTER, members.len() as u32);
    Genesis { cluster, name: "sample".into(), partitions: PARTITIONS, replicas, members, assignment }
}

/// Records that the node wrote: identity, cluster, promises and tables of every partition in two epochs, and facts.
pub fn records(members: u32) -> Vec<Record> {
    let genesis = Arc::new(genesis(members));
    let Identity { node, incarnation } = IDENTITY;
    let mut records = vec![
        Record::Identity { node, incarnation },
        Record::Boot { count: 1 },
        Record::Genesis(Arc::clone(&genesis)),
        Record::HighWaterMark { time_ms: 10, sessions: 10 },
    ];
    for epoch in 1..=2 {
        for partition in (0..PARTITIONS as u16).map(PartitionId) {
            let cohort = metadata::cohort(&genesis, partition);
            let voted_for = Some(ReplicaId { node, incarnation });
            let table = Some(Arc::new(ClaimTable::new(cohort)));
            records.push(Record::Vote { partition, promised: epoch, voted_for });
            records.push(Record::Install { partition, viewstamp: Viewstamp { epoch, length: 0 }, table });
            records.push(Record::Facts { partition, items: Arc::new(Vec::new()) });
        }
        records.push(Record::HighWaterMark { time_ms: 20 * epoch, sessions: 20 * epoch });
        records.push(Record::Boot { count: 1 + epoch });
    }
    records.push(Record::Facts { partition: PartitionId(0), items: Arc::new(Vec::new()) });
    records.push(Record::Boot { count: 4 });
    records
}

/// Small segments, so that there are several.
pub const CONFIG: LogConfig =
    LogConfig { segment_bytes: 400, ahead_bytes: 0, compact_bytes: u64::MAX, ..LogConfig::DEFAULT };

/// The log, each record synced by itself; compacted after this many records, if given.
pub fn log(members: u32, compacted_after: Option<usize>) -> Files {
    let disk = Double::default();
    let config = LogConfig { compact_bytes: if compacted_after.is_some() { 0 } else { u64::MAX }, ..CONFIG };
    let mut log = Log::open(disk.clone(), config, || IDENTITY).expect("a fresh log");
    log.replay(|replay| replay.whole().map(drop)).expect("fresh");
    for (place, record) in records(members).into_iter().enumerate().skip(1) {
        log.append(&[record]).expect("written");
        log.sync().expect("synced");
        if compacted_after == Some(place) {
            compact(&mut log, &records(members)[..=place]);
        }
    }
    disk.files()
}

/// Writes a snapshot of these records, and removes the files that it replaces.
fn compact(log: &mut Log<Double>, known: &[Record]) {
    let mut latest = Latest::default();
    known.iter().for_each(|record| latest.take(record.clone()));
    keep_up(log, &latest);
}

/// The state of a node that keeps the latest record of each kind and partition.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Latest(BTreeMap<(Option<PartitionId>, bool, Kind), Record>);

impl Latest {
    /// Takes one more record of the log, unless it says nothing.
    pub fn take(&mut self, record: Record) {
        if matches!(&record, Record::Facts { items, .. } if items.is_empty()) {
            return;
        }
        let is_first = matches!(record, Record::Identity { .. });
        self.0.insert((record.partition(), !is_first, record.kind()), record);
    }

    /// All of the state, the identity first.
    fn part(&self) -> Part {
        Part { records: self.0.values().cloned().collect(), gaps: Vec::new(), last: true }
    }
}

/// Upkeep, as a host does it, until there is nothing to do. Returns the number of snapshots written.
pub fn keep_up(log: &mut Log<Double>, latest: &Latest) -> u64 {
    let before = log.stats().snapshots;
    loop {
        match log.upkeep().expect("it goes on") {
            Upkeep::Rest => return log.stats().snapshots - before,
            Upkeep::Again | Upkeep::Moved(_) => {}
            Upkeep::Begin => assert_eq!(log.save_part(latest.part()), Ok(Saved::Whole)),
            Upkeep::GivenUp(error) => panic!("{error}"),
        }
    }
}
