//! The log as its host uses it. Crash tests are in their own file.

use super::*;
use crate::double::{CLUSTER, Double, Kept, genesis, record, sized};
use crate::examine::read_heads;
use crate::reader::{Next, Reader};
use crate::segment::HEADER_BYTES;
use crate::slot::{Owner, SLOT_BYTES};
use crate::{SyncPolicy, frame, segment, snapshot};
use norn_wire::{ClusterId, PartitionId};
use std::sync::Arc;

mod compaction;
mod crash;
mod points;
mod room;

pub(super) const SMALL: LogConfig =
    LogConfig { segment_bytes: 200, ahead_bytes: 0, compact_bytes: u64::MAX, ..LogConfig::DEFAULT };
pub(super) fn identity(number: u64) -> Identity {
    Identity { node: NodeId(u128::from(number) << 100), incarnation: number }
}

fn identity_record(identity: Identity) -> Record {
    Record::Identity { node: identity.node, incarnation: identity.incarnation }
}

/// Opens and replays the log; returns it with all records.
pub(super) fn start(disk: &Double, config: LogConfig) -> Result<(Log<Double>, Vec<Record>, Replayed), OpenError> {
    let mut log = Log::open(disk.clone(), config, || identity(99))?;
    let mut records = Vec::new();
    let replayed = log.replay(|replay: Replay| {
        records.extend(replay.whole()?);
        Ok(())
    })?;
    assert_eq!(replayed.snapshot_records + replayed.records, records.len() as u64);
    assert_eq!(records[0], identity_record(log.identity()));
    if replayed.snapshot_records > 0 {
        return Ok((log, records, replayed));
    }
    assert_eq!(replayed.segments, log.stats().segment);
    let segments = disk.files().into_iter().filter(|(file, _)| segment::is_of_log(file));
    assert_eq!(replayed.bytes, segments.map(|(_, bytes)| frames_bytes(&bytes)).sum::<u64>());
    Ok((log, records, replayed))
}

/// The bytes of all frames of a segment.
fn frames_bytes(file: &[u8]) -> u64 {
    let disk = Double::with_file("a", file);
    let records_offset = Header::decode(file).expect("a header").records_offset();
    let mut reader = Reader::new(&disk, "a", records_offset, file.len() as u64);
    let mut bytes = 0;
    while let Next::Frame(frame) = reader.next().expect("no fault") {
        bytes += frame.bytes;
    }
    bytes
}

/// A fresh log with the records 0 to `count`, synced.
pub(super) fn written(count: u64) -> (Log<Double>, Double, Vec<Record>) {
    let disk = Double::default();
    let (mut log, mut records, _) = start(&disk, SMALL).expect("a fresh log");
    for number in 0..count {
        log.append(&[record(number)]).expect("written");
        records.push(record(number));
    }
    log.sync().expect("synced");
    (log, disk, records)
}

/// Operations that begin a log: the header first, so that a log torn later has one.
const BEGUN: [&str; 6] = [
    "write 0000000000000001.log",
    "sync 0000000000000001.log",
    "sync_directory ",
    "write 0000000000000001.log",
    "write 0000000000000001.log",
    "sync 0000000000000001.log",
];

#[test]
fn an_identity_is_drawn_once() {
    let disk = Double::default();
    let mut log = Log::open(disk.clone(), LogConfig::default(), || identity(1)).expect("a fresh log");
    assert_eq!(log.identity(), identity(1));
    log.read(|replay| replay.whole().map(drop)).expect("fresh");
    assert_eq!(disk.take_trace(), [] as [String; 0], "a start that goes no further leaves nothing behind");
    log.mend().expect("a fresh log");
    assert_eq!(disk.take_trace(), BEGUN.map(|step| step.to_owned()));
    let log = Log::open(disk.crash(Kept::Nothing, false), LogConfig::default(), || panic!("drawn twice"));
    assert_eq!(log.expect("a log").identity(), identity(1));
}

// E2
#[test]
fn records_come_back_in_order_through_many_segments() {
    let (log, disk, records) = written(40);
    assert!(log.stats().segment > 5);
    let (_, read, replayed) = start(&disk, SMALL).expect("whole");
    assert_eq!(read, records);
    assert_eq!(replayed.cut_bytes, 0);
}

/// The bytes of slots and records, without holes.
fn bytes_of(file: &[u8]) -> u64 {
    let header = Header::decode(file).expect("a header");
    let slots = &file[HEADER_BYTES..file.len().min(header.records_offset() as usize)];
    let used = slots.chunks(SLOT_BYTES).filter(|slot| slot.iter().any(|byte| *byte != 0)).count();
    (file.len() - slots.len() + used * SLOT_BYTES) as u64
}

#[test]
fn one_call_is_two_writes() {
    let disk = Double::default();
    let config = LogConfig { ahead_bytes: 0, ..LogConfig::default() };
    let (mut log, ..) = start(&disk, config).expect("a fresh log");
    disk.take_trace();
    let before = log.stats();
    log.append(&(0..20).map(record).collect::<Vec<_>>()).expect("written");
    log.append(&[]).expect("nothing to write");
    log.append(&[record(20)]).expect("written");
    log.sync().expect("synced");
    log.sync().expect("nothing to sync");
    let file = "0000000000000001.log";
    let (write, sync) = (format!("write {file}"), format!("sync {file}"));
    assert_eq!(disk.take_trace(), [write.clone(), write.clone(), write.clone(), write, sync]);
    let stats = log.stats();
    assert_eq!((stats.writes - before.writes, stats.syncs - before.syncs), (4, 1));
    assert_eq!(stats.bytes, bytes_of(&disk.files()[file]));
}

#[test]
fn a_segment_is_durable_before_the_next_begins_and_that_before_its_records() {
    let disk = Double::default();
    let (mut log, ..) = start(&disk, SMALL).expect("a fresh log");
    disk.take_trace();
    log.append(&[sized(40), sized(100)]).expect("written");
    let (first, second) = ("0000000000000001.log", "0000000000000002.log");
    let order = [
        format!("write {first}"),
        format!("write {first}"),
        format!("sync {first}"),
        format!("write {second}"),
        format!("sync {second}"),
        "sync_directory ".into(),
        // The promises and the record.
        format!("write {second}"),
        format!("write {second}"),
    ];
    assert_eq!(disk.take_trace(), order);
}

/// Goal: most writes need no new block, and a finished segment has no preallocated space.
#[test]
fn writes_go_where_zeroes_are() {
    let disk = Double::default();
    let config = LogConfig { segment_bytes: 20_000, ahead_bytes: 6_000, ..LogConfig::DEFAULT };
    let (mut log, mut records, _) = start(&disk, config.clone()).expect("a fresh log");
    let (first, second) = (segment::name(1), segment::name(2));
    let mut lengths = vec![disk.files()[&first].len()];
    let before = log.stats();
    while log.stats().segment == 1 {
        log.append(&[sized(500)]).expect("written");
        log.sync().expect("synced");
        records.push(sized(500));
        lengths.push(disk.files()[&first].len());
    }
    let (header, calls) = (Header::decode(&disk.files()[&first]).expect("a header"), lengths.len() as u64 - 1);
    let full = header.records_offset() + 20_000;
    assert!(calls > 30, "{calls} records fit");
    assert_eq!(log.stats().writes - before.writes, 2 * calls + 1, "zeroes are no writes of their own");
    assert_eq!(
        lengths.pop().map(|length| length as u64),
        Some(header.records_offset() + frames_bytes(&disk.files()[&first]))
    );
    lengths.dedup();
    assert!(lengths.len() <= 4, "the file grows in steps: {lengths:?}");
    assert!(lengths.iter().all(|length| *length as u64 == full || length.is_multiple_of(4096)), "{lengths:?}");
    // The second segment continues in the preallocated space that a start finds.
    let space = disk.files()[&second].len();
    let (mut log, read, replayed) = start(&disk, config.clone()).expect("whole");
    assert_eq!((read, replayed.cut_bytes, replayed.heads_mended), (records.clone(), 0, 0));
    assert_eq!(disk.files()[&second].len(), space);
    log.append(&[record(1)]).expect("written");
    log.sync().expect("synced");
    records.push(record(1));
    let (_, read, replayed) = start(&disk, config).expect("whole");
    assert_eq!((read, replayed.cut_bytes, replayed.heads_mended), (records, 0, 0));
}

#[test]
fn a_segment_without_a_free_slot_is_finished() {
    let disk = Double::default();
    let config = LogConfig { segment_bytes: 2_000, ahead_bytes: 0, compact_bytes: u64::MAX, ..LogConfig::DEFAULT };
    let (mut log, mut records, _) = start(&disk, config.clone()).expect("a fresh log");
    let more: Vec<Record> = (1..=20).map(|count| Record::Boot { count }).collect();
    log.append(&more).expect("written");
    log.sync().expect("synced");
    records.extend(more);
    let first = |number| Header::decode(&disk.files()[&segment::name(number)]).expect("a header").first_ordinal;
    assert_eq!((log.stats().segment, first(2), first(3)), (3, 9, 19), "each has eight besides its promises");
    let (_, read, _) = start(&disk, config).expect("whole");
    assert_eq!(read, records);
}

/// Goal: the second copy of each head agrees with the first. Method: every head must lead to a frame that agrees with it.
#[test]
fn heads_say_where_records_are_and_whose() {
    let (_, disk, _) = written(40);
    let mut records = Vec::new();
    let mut log = Log::open(disk.clone(), SMALL, || panic!("there is a log")).expect("whole");
    log.replay(|replay| {
        match replay {
            Replay::Record { record, .. } => records.push(record),
            Replay::Promised { .. } => {}
            Replay::Lost { .. } => return Err("it is whole".into()),
        }
        Ok(())
    })
    .expect("whole");
    let mut seen = 0;
    for (file, bytes) in disk.files() {
        let header = Header::decode(&bytes).expect("a header");
        for head in read_heads(&disk, &file, &header).expect("read").into_iter().flatten() {
            let record = &records[head.ordinal as usize - 1];
            let frame = &bytes[head.offset as usize..][..head.bytes as usize];
            let mut content = Vec::new();
            let found = frame::Head::read(frame, &mut content).expect("a head");
            assert_eq!(found.read_whole(frame, &mut content), Ok(frame.len()));
            assert_eq!(head, Slot::of(&found, head.offset.into(), head.bytes.into(), record).expect("small"));
            assert_eq!((head.owner, head.kind), (Owner::of(record), record.kind()));
            seen += 1;
        }
    }
    assert_eq!(seen, records.len());
}

#[test]
fn a_record_larger_than_a_segment_has_one_of_its_own() {
    let disk = Double::default();
    let (mut log, ..) = start(&disk, SMALL).expect("a fresh log");
    let records = [sized(1000), sized(2000), record(1)];
    log.append(&records).expect("written");
    log.sync().expect("synced");
    assert_eq!(log.stats().segment, 4);
    let (_, read, _) = start(&disk, SMALL).expect("whole");
    assert_eq!(read[1..], records);
}

#[test]
fn later_headers_name_the_cluster() {
    let disk = Double::default();
    let (mut log, ..) = start(&disk, SMALL).expect("a fresh log");
    log.append(&[genesis(), sized(150), sized(150)]).expect("written");
    let files = disk.files();
    let cluster = |number| Header::decode(&files[&segment::name(number)]).expect("a header").cluster;
    assert_eq!(cluster(1), ClusterId::default());
    assert_eq!(cluster(2), CLUSTER);
    // The cluster is still known after a start.
    let (mut log, ..) = start(&disk, SMALL).expect("whole");
    log.append(&[sized(150)]).expect("written");
    let header = Header::decode(&disk.files()[&segment::name(4)]).expect("a header");
    let (cluster, node, first_ordinal) = (CLUSTER, identity(99).node, 9);
    assert_eq!(header, Header { cluster, node, segment: 4, first_ordinal, slots: 10 });
}

#[test]
fn what_is_there_is_synced_before_it_is_trusted() {
    let (_, disk, _) = written(20);
    let last = segment::name(disk.files().len() as u64);
    disk.take_trace();
    Log::open(disk.clone(), SMALL, || identity(2)).expect("whole");
    assert_eq!(disk.take_trace(), [format!("sync {last}"), "sync_directory ".into()]);
}

#[test]
fn after_an_error_the_log_only_repeats_it() {
    for steps in 0..4 {
        let (mut log, disk, _) = written(1);
        disk.fail_after(steps);
        let error = log.append(&[record(1)]).and_then(|_| log.sync());
        let Err(error @ LogError::Disk(_)) = error else { panic!("an error after {steps} steps") };
        // The disk works again, but its content is unknown.
        disk.fail_after(1000);
        assert_eq!(log.append(&[record(2)]), Err(error.clone()));
        assert_eq!(log.append(&[]), Err(error.clone()));
        assert_eq!(log.sync(), Err(error));
        assert_eq!(disk.budget_left(), 1000, "nothing was tried again");
    }
}

#[test]
fn a_failed_sync_is_not_tried_again() {
    let (mut log, disk, _) = written(1);
    log.append(&[record(1)]).expect("written");
    disk.fail_after(0);
    let error = log.sync().expect_err("the disk fails");
    disk.fail_after(1000);
    assert_eq!(log.sync(), Err(error));
    assert_eq!(disk.budget_left(), 1000);
}

#[test]
fn a_record_that_is_too_large_is_not_written() {
    let (mut log, disk, _) = written(1);
    let before = disk.files();
    let error = log.append(&[record(1), sized(RECORD_BYTES_MAX)]).expect_err("too large");
    assert!(matches!(error, LogError::RecordTooLarge { bytes } if bytes > RECORD_BYTES_MAX));
    assert_eq!(log.append(&[record(1)]), Err(error));
    assert_eq!(disk.files(), before);
}

#[test]
fn the_visitor_can_refuse() {
    let (_, disk, _) = written(3);
    let mut log = Log::open(disk, SMALL, || identity(2)).expect("whole");
    let mut seen = 0;
    let error = log.replay(|_| {
        seen += 1;
        if seen == 3 { Err("no".into()) } else { Ok(()) }
    });
    let text = error.as_ref().expect_err("refused").to_string();
    assert!(!text.contains("restore"), "an older copy of the directory is worse than none: {text}");
    let Err(OpenError::Refused { ordinal, cause, .. }) = error else { panic!("refused") };
    assert_eq!((seen, ordinal, cause.as_str()), (3, 3, "no"));
}

#[test]
#[should_panic(expected = "replayed before it is written to")]
fn appending_before_the_replay_is_a_mistake() {
    let mut log = Log::open(Double::default(), SMALL, || identity(1)).expect("a fresh log");
    let _ = log.append(&[record(1)]);
}

// T24, E18, E19, E20
/// Goal: a power loss costs no more than the policy allows, and never anything but facts. Method: facts and votes are appended and
/// committed in turn; after each, the machine loses all unsynced data.
#[test]
fn a_power_loss_costs_what_the_policy_allows() {
    let facts = || Record::Facts { partition: PartitionId(1), items: Arc::new(Vec::new()) };
    let vote = |promised| Record::Vote { partition: PartitionId(1), promised, voted_for: None };
    for (sync, facts_lost_max, ms_lost_max) in [
        (SyncPolicy::Always, 0, 0),
        (SyncPolicy::Every(8), 7, u64::MAX),
        (SyncPolicy::Interval(20), u64::MAX, 20),
        (SyncPolicy::System, u64::MAX, u64::MAX),
    ] {
        let disk = Double::default();
        let config = LogConfig { segment_bytes: 1_000, sync, ..LogConfig::DEFAULT };
        let (mut log, mut written, _) = start(&disk, config.clone()).expect("a fresh log");
        let mut worst = 0;
        for round in 0..120_u64 {
            let now_ms = round * 3;
            let record = if round % 40 == 39 { vote(round) } else { facts() };
            // The timer of a host without new writes.
            if log.commit_due_us().is_some_and(|due_us| due_us <= now_ms * 1_000) {
                log.commit(now_ms * 1_000).expect("synced");
            }
            log.append(std::slice::from_ref(&record)).expect("written");
            log.commit(now_ms * 1_000).expect("synced");
            written.push(record);
            let (_, read, _) = start(&disk.crash(Kept::Nothing, false), config.clone()).expect("mended");
            assert_eq!(read, written[..read.len()]);
            let lost = &written[read.len()..];
            assert!(lost.iter().all(|record| matches!(record, Record::Facts { .. })), "{sync}: {lost:?}");
            let (count, length_ms) = (lost.len() as u64, (lost.len() as u64).saturating_sub(1) * 3);
            assert!(count <= facts_lost_max && length_ms <= ms_lost_max, "{sync}: {count} records, {length_ms} ms");
            worst = worst.max(count);
        }
        assert!(sync == SyncPolicy::Always || worst >= 6, "{sync}: the window is used, {worst}");
    }
}
