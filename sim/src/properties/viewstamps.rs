//! Equal viewstamps mean equal tables and equal operations, over all replicas and times. (ARCHITECTURE.md I-3)

use super::Property;
use crate::history::{Happening, History, Moment};
use norn_model::record::Record;
use norn_model::viewstamp::Viewstamp;
use norn_wire::PartitionId;
use std::collections::BTreeMap;
use xxhash_rust::xxh3::xxh3_128;

#[derive(Debug, Default)]
pub struct Viewstamps {
    tables: BTreeMap<(PartitionId, Viewstamp), (usize, u128)>,
    ops: BTreeMap<(PartitionId, Viewstamp), (usize, u128)>,
}

fn same(
    known: &mut BTreeMap<(PartitionId, Viewstamp), (usize, u128)>,
    (partition, viewstamp): (PartitionId, Viewstamp),
    node: usize,
    digest: u128,
    what: &str,
) -> Result<(), String> {
    let (first, expected) = *known.entry((partition, viewstamp)).or_insert((node, digest));
    if expected == digest {
        return Ok(());
    }
    Err(format!("partition {partition}, {viewstamp:?}: nodes {first} and {node} have different {what}"))
}

// S29
impl Property for Viewstamps {
    fn name(&self) -> &'static str {
        "viewstamps"
    }

    fn see(&mut self, _history: &History, _moment: Moment, happening: &Happening<'_>) -> Result<(), String> {
        match happening {
            Happening::Replica { node, view } => {
                same(&mut self.tables, (view.partition, view.viewstamp), *node, view.digest, "tables")
            }
            Happening::Appended { node, records, .. } => {
                for record in *records {
                    let Record::Ops { partition, after, ops } = record else { continue };
                    for (length, op) in (after.length + 1..).zip(ops) {
                        let at = Viewstamp { epoch: after.epoch, length };
                        let digest = xxh3_128(format!("{op:?}").as_bytes());
                        same(&mut self.ops, (*partition, at), *node, digest, "operations")?;
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::*;
    use super::*;
    use crate::adapter::ReplicaView;
    use norn_engine::Ticket;
    use norn_model::claim_table::table::Op;

    #[test]
    fn two_tables_under_one_viewstamp_are_refused() {
        let mut bench = Bench::<Viewstamps>::new();
        let view = ReplicaView { digest: 7, ..ReplicaView::default() };
        bench.see(Happening::Replica { node: 0, view: &view }).unwrap();
        bench.see(Happening::Replica { node: 1, view: &view }).unwrap();
        assert!(bench.see(Happening::Replica { node: 2, view: &ReplicaView { digest: 8, ..view } }).is_err());
    }

    #[test]
    fn two_operations_under_one_viewstamp_are_refused() {
        let mut bench = Bench::<Viewstamps>::new();
        let append = |length| {
            let after = Viewstamp { epoch: 1, length: 0 };
            let ops = vec![std::sync::Arc::new(Op::Clear { upto: Viewstamp { epoch: 1, length } })];
            vec![Record::Ops { partition: PartitionId(0), after, ops }]
        };
        bench.see(Happening::Appended { node: 0, ticket: Ticket(1), records: &append(0) }).unwrap();
        bench.see(Happening::Appended { node: 1, ticket: Ticket(1), records: &append(0) }).unwrap();
        assert!(bench.see(Happening::Appended { node: 2, ticket: Ticket(1), records: &append(1) }).is_err());
    }
}
