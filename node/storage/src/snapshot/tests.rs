//! A damaged snapshot reports the owners of its lost records.

use super::*;
use crate::double::Double;
use norn_model::viewstamp::Viewstamp;
use norn_wire::{ClusterId, NodeId, PartitionId};
use std::sync::Arc;

fn records() -> Vec<Record> {
    let vote = |number| Record::Vote { partition: PartitionId(number), promised: 3, voted_for: None };
    let facts = |number| Record::Facts { partition: PartitionId(number), items: Arc::new(Vec::new()) };
    let viewstamp = Viewstamp { epoch: 3, length: 1 };
    let table = |number| Record::Install { partition: PartitionId(number), viewstamp, table: None };
    let forgot = Record::Forgot { partition: PartitionId(8), ids: vec![TaskId::MIN] };
    let node = Record::Identity { node: NodeId(1), incarnation: 1 };
    vec![node, Record::Boot { count: 1 }, vote(2), table(2), facts(2), facts(2), vote(5), facts(7), forgot]
}

/// A snapshot, and the offsets of its frames, including both end records.
fn written() -> (Vec<u8>, Vec<usize>) {
    let mut disk = Double::default();
    let header = Header { cluster: ClusterId::default(), node: NodeId(1), segment: 4, first_ordinal: 90, slots: 8 };
    let mut writer = Writer::begin(&mut disk, &header).expect("room");
    records().chunks(3).for_each(|part| writer.add(&mut disk, part, 0).expect("room"));
    writer.finish(&mut disk, 95, 0).expect("room");
    let bytes = disk.files()["0000000000000004.snapshot"].clone();
    let mut reader = Reader::new(&disk, "0000000000000004.snapshot", HEADER_BYTES as u64, bytes.len() as u64);
    let mut places = Vec::new();
    while let Next::Frame(frame) = reader.next().expect("no fault") {
        places.push(frame.offset as usize);
    }
    (bytes, places)
}

/// The records read, and the losses reported.
fn read_back(bytes: &[u8]) -> Result<(Summary, Vec<Record>, Vec<Loss>), OpenError> {
    let disk = Double::with_file("0000000000000004.snapshot", bytes);
    let (mut found, mut losses) = (Vec::new(), Vec::new());
    let summary = read(&disk, 4, &mut |replay| {
        match replay {
            Replay::Record { record, covered, .. } => {
                assert!(!covered && losses.is_empty());
                found.push(record);
            }
            Replay::Promised { .. } => panic!("only segments say so"),
            Replay::Lost { loss, .. } => losses.push(loss),
        }
        Ok(())
    })?;
    Ok((summary, found, losses))
}

#[test]
fn what_is_written_is_read() {
    let (bytes, places) = written();
    assert_eq!(places.len(), records().len() + 2, "the end stands twice");
    let (summary, found, losses) = read_back(&bytes).expect("whole");
    assert_eq!((found, losses), (records(), vec![]));
    assert_eq!((summary.covered, summary.records, summary.lost_records), (95, 9, 0));
    assert_eq!((summary.header.first_ordinal, summary.bytes), (90, bytes.len() as u64));
}

#[test]
fn whose_the_lost_records_were_is_told() {
    let (bytes, places) = written();
    let told = [
        "lost: record 2 (1 unknown of the node itself)",
        "lost: record 3 (1 vote of partition 2)",
        "lost: record 4 (1 install of partition 2)",
        "lost: record 5 (1 facts of partition 2)",
        "lost: record 6 (1 facts of partition 2)",
        "lost: record 7 (1 vote of partition 5)",
        "lost: record 8 (1 facts of partition 7)",
        "lost: record 9 (1 facts of partition 8)",
    ];
    for (record, told) in (1..).zip(told) {
        let mut bytes = bytes.clone();
        bytes[places[record] + 8] ^= 1;
        let (summary, found, losses) = read_back(&bytes).expect("the rest is read");
        assert_eq!((found.len(), summary.lost_records, losses.len()), (8, 1, 1));
        assert_eq!(losses[0].to_string(), told);
    }
    let mut several = bytes.clone();
    several[places[3]..places[7]].fill(0xfe);
    let (summary, _, losses) = read_back(&several).expect("the rest is read");
    assert_eq!(summary.lost_records, 4);
    let told = "lost: record 4 to 7 (1 facts of partition 2, 1 install of partition 2, 1 vote of partition 5)";
    assert_eq!(losses[0].to_string(), told);
}

#[test]
fn one_end_is_enough_and_none_is_not() {
    let (bytes, places) = written();
    let [.., first, second] = places.as_slice() else { panic!("two ends") };
    for end in [first, second] {
        let mut bytes = bytes.clone();
        bytes[end + 8] ^= 1;
        assert_eq!(read_back(&bytes).expect("the other one").1, records());
    }
    let mut bytes = bytes.clone();
    bytes[first + 8] ^= 1;
    bytes[second + 8] ^= 1;
    assert!(matches!(read_back(&bytes), Err(OpenError::Damaged { .. })));
}

/// Goal: the end record of a snapshot, which grows with the partitions, takes no bytes of the space to be kept free either.
#[test]
fn the_end_of_a_snapshot_leaves_the_room_that_is_kept() {
    let end = |kept_bytes| {
        let mut disk = Double::default();
        let header = Header { cluster: ClusterId::default(), node: NodeId(1), segment: 4, first_ordinal: 90, slots: 8 };
        let mut writer = Writer::begin(&mut disk, &header).expect("room");
        writer.add(&mut disk, &records(), 0).expect("room");
        disk.limit(Some(writer.length() + 1_000));
        writer.finish(&mut disk, 95, kept_bytes).map(|(bytes, _)| bytes)
    };
    assert!(end(500).is_ok());
    assert_eq!(end(1_000), Err(SnapshotError::NoRoom));
}
