//! The log of a cluster member, as a node could have written it.

use super::{CLUSTER, Double, Files};
use crate::protocol::{Founding, Node};
use crate::restore::Restorer;
use crate::storage::log::{Identity, Log, LogConfig, Saved, Upkeep};
use crate::storage::recovery::Replayed;
use norn_model::claim_table::table::Table;
use norn_model::config::Config;
use norn_model::record::Record;
use norn_model::ring;
use norn_model::root;
use norn_model::viewstamp::{ReplicaId, Viewstamp};
use norn_wire::response::{Genesis, Member};
use norn_wire::{NodeId, PartitionId};
use std::sync::Arc;

pub(crate) const IDENTITY: Identity = Identity { node: NodeId(7), incarnation: 7 };
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
pub(crate) fn records(members: u32) -> Vec<Record> {
    let genesis = Arc::new(genesis(members));
    let Identity { node, incarnation } = IDENTITY;
    let mut records = vec![
        Record::Identity { node, incarnation },
        Record::Boot { count: 1 },
        Record::Genesis(Arc::clone(&genesis)),
        Record::Mark { time_ms: 10, sessions: 10 },
    ];
    for epoch in 1..=2 {
        for partition in (0..PARTITIONS as u16).map(PartitionId) {
            let cohort = root::cohort(&genesis, partition);
            let voted_for = Some(ReplicaId { node, incarnation });
            let table = Some(Arc::new(Table::new(cohort)));
            records.push(Record::Vote { partition, promised: epoch, voted_for });
            records.push(Record::Install { partition, viewstamp: Viewstamp { epoch, length: 0 }, table });
            records.push(Record::Facts { partition, items: Arc::new(Vec::new()) });
        }
        records.push(Record::Mark { time_ms: 20 * epoch, sessions: 20 * epoch });
        records.push(Record::Boot { count: 1 + epoch });
    }
    records.push(Record::Facts { partition: PartitionId(0), items: Arc::new(Vec::new()) });
    records.push(Record::Boot { count: 4 });
    records
}

/// Small segments, so that there are several.
pub(crate) const CONFIG: LogConfig =
    LogConfig { segment_bytes: 400, ahead_bytes: 0, compact_bytes: u64::MAX, ..LogConfig::DEFAULT };

/// The log, each record synced by itself; compacted after this many records, if given.
pub(crate) fn log(members: u32, compacted_after: Option<usize>) -> Files {
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

/// Writes a snapshot of a node with these records, and removes the files that it replaces.
fn compact(log: &mut Log<Double>, known: &[Record]) {
    let mut node = node();
    known.iter().for_each(|record| node.recover(record.clone(), false, None).expect("it fits"));
    loop {
        match log.upkeep().expect("upkeep") {
            Upkeep::Rest => return,
            Upkeep::Again | Upkeep::Moved(_) => {}
            Upkeep::Begin => {
                let part = node.save(&mut Default::default(), usize::MAX);
                assert!(part.last && log.save_part(part) == Ok(Saved::Whole));
            }
            Upkeep::GivenUp(error) => panic!("{error}"),
        }
    }
}

pub(crate) fn node() -> Node {
    let Identity { node, incarnation } = IDENTITY;
    let (name, address, zone) = ("n0".to_owned(), "n0:1".to_owned(), String::new());
    Node::new(Founding { config: Config::default(), node, incarnation, name, address, zone }, 1)
}

/// Starts the node on these files, up to the point where it would serve.
pub(crate) fn start(files: &Files) -> Result<(Node, Replayed), String> {
    let disk = Double::with_files(files);
    let started = start_on(&disk);
    assert!(started.is_ok() || disk.files() == *files, "a start that is refused changes nothing");
    started
}

pub(crate) fn start_on(disk: &Double) -> Result<(Node, Replayed), String> {
    let draw = || Identity { node: NodeId(99), incarnation: 99 };
    let mut log = Log::open(disk.clone(), CONFIG, draw).map_err(|error| error.to_string())?;
    let mut node = node();
    if log.identity() != IDENTITY {
        return Err("another node".into());
    }
    let mut restorer = Restorer::new(&mut node);
    let replayed = log.read(|replay| restorer.take(replay)).map_err(|error| error.to_string())?;
    restorer.finish()?;
    log.mend().map_err(|error| error.to_string())?;
    Ok((node, replayed))
}
