//! How tasks ended, as leaders tell it.

use super::*;
use crate::limits::ENDINGS_BYTES_MAX;
use crate::protocol::consistent::table::Op;

/// Goal: however large results are, the operations that carry them fit a record and a message.
#[test]
fn endings_are_told_in_pieces_of_bounded_size() {
    let mut cluster = Cluster::new(3);
    let ids: Vec<TaskId> = (0..12).map(|_| cluster.enqueue(0, b"work", 7)).collect();
    let mut held = BTreeMap::new();
    for _ in &ids {
        held.extend(cluster.claim(0, 60_000).into_iter().map(|granted| (granted.id, granted.token)));
    }
    assert_eq!(held.len(), ids.len());
    // All completions are there before the leader drops the first claim.
    let numbers: Vec<u64> = held
        .iter()
        .map(|(id, token)| {
            let result = Some(vec![1; 1 << 20].into());
            let item = Completion { id: *id, token: *token, sequence: None, result, at_ms: 1, children: Vec::new() };
            cluster.submit(0, Request::Complete { items: vec![item], acks: Acks::Quorum })
        })
        .collect();
    cluster.run_until(|cluster| numbers.iter().all(|number| cluster.replies.contains_key(number)));
    cluster.advance(2_000);
    let drops = |log: &Vec<Record>| {
        let ops = log.iter().filter_map(|record| match record {
            Record::Ops { ops, .. } => Some(ops),
            _ => None,
        });
        let sizes = ops.flatten().filter(|op| matches!(op.as_ref(), Op::Drop { .. })).map(|op| op.size_bytes());
        sizes.collect::<Vec<_>>()
    };
    for log in &cluster.logs {
        let sizes = drops(log);
        assert!(sizes.iter().sum::<usize>() >= 12 << 20, "every ending is told");
        assert!(sizes.iter().all(|size| *size <= ENDINGS_BYTES_MAX), "{sizes:?}");
    }
}
