//! Compactions before a start, at every crash and on bad disks.

use super::stopped::{NotCompacted, Shrunk, compact_stopped};
use super::*;
use crate::Restorer;
use crate::sample::{CONFIG, IDENTITY};
use norn_engine::{Founding, Now};
use norn_model::claim_table::table::Op;
use norn_model::config::Config;
use norn_model::record::Record;
use norn_model::ring::partition_of_task;
use norn_model::snapshot::Part;
use norn_model::task::{Task, Wanted};
use norn_model::viewstamp::Viewstamp;
use norn_storage::double::{Double, Files, sample};
use norn_storage::{LogConfig, belongs_to_log, read_bodies};
use norn_wire::{ClaimId, QueueName, Spec, TaskId};
use std::sync::Arc;

const PARTITIONS: u32 = 4;
/// Longer than any small part of a task, so that payloads are only in the log.
const PAYLOAD_BYTES: usize = 600;
/// Many parts of a small state: a part has at least one record.
const TASKS: u32 = 12;
/// As long as any log in these tests is twice.
const LONG: LogConfig = LogConfig { compact_bytes: 4_000, ..CONFIG };
/// Time that the node had run when it granted a lease, and when it stopped.
const GRANTED_US: u64 = 2_000_000;
const RAN_US: u64 = 9_000_000;

fn id(number: u32) -> TaskId {
    TaskId::new(1, number, 2, 3)
}

/// A node without payloads in memory, restored from a disk.
fn restored(disk: &Double, config: LogConfig) -> Result<(Node, Log<Double>, Replayed), String> {
    let mut log = Log::open(disk.clone(), config, || IDENTITY).map_err(|error| error.to_string())?;
    let founding = Founding {
        config: Config { payload_memory_bytes: 0, ..Config::default() },
        node: IDENTITY.node,
        incarnation: IDENTITY.incarnation,
        name: "n0".into(),
        address: "n0:1".into(),
        zone: String::new(),
    };
    let mut node = Node::new(founding, 1);
    let mut restorer = Restorer::new(&mut node);
    let replayed = log.read(|replay| restorer.take(replay)).map_err(|error| error.to_string())?;
    restorer.finish()?;
    log.mend().map_err(|error| error.to_string())?;
    Ok((node, log, replayed))
}

/// Files of a node that has tasks in several segments, one of them held.
fn files() -> Files {
    let disk = Double::with_files(&sample::log(3, None));
    let (_, mut log, _) = restored(&disk, CONFIG).expect("whole");
    for number in 0..TASKS {
        let queue = QueueName::new("q").expect("a name");
        let task = Task::from_spec(Arc::new(Spec::new(queue, vec![number as u8; PAYLOAD_BYTES])));
        let partition = partition_of_task(&id(number), PARTITIONS);
        log.append(&[Record::Facts { partition, items: Arc::new(vec![(id(number), task)]) }]).expect("no fault");
        log.sync().expect("no fault");
    }
    let grant = Op::Grant {
        claim: ClaimId(1),
        worker: "w".into(),
        lease_ms: 60_000,
        granted_ms: 0,
        items: vec![(id(0), 1)],
        session: None,
        lapsed: false,
    };
    let (partition, after) = (partition_of_task(&id(0), PARTITIONS), Viewstamp { epoch: 2, length: 0 });
    let ops = Record::Ops { partition, after, ops: vec![Arc::new(grant)] };
    log.append(&[ops, Record::Ran { us: GRANTED_US }, Record::Ran { us: RAN_US }]).expect("no fault");
    log.sync().expect("no fault");
    disk.files()
}

/// The whole state with its payloads, ages included, but for what a compaction adds to it.
fn state(node: &Node, disk: &Double) -> Vec<Record> {
    let Part { mut records, gaps, .. } = node.save(&mut Cursor::default(), usize::MAX);
    let wanted: Vec<Wanted> = gaps.iter().map(|gap| gap.wanted).collect();
    let bodies = read_bodies(|file, offset, length| disk.read(file, offset, length), &wanted).expect("no fault");
    for (gap, body) in gaps.iter().zip(bodies) {
        let filling = body.filter(|filling| gap.wanted.is(filling)).expect("the log has each payload");
        let Record::Facts { items, .. } = &mut records[gap.record] else { panic!("gaps are in facts") };
        Arc::make_mut(items)[gap.item].1.fill(gap.wanted.slot, filling);
    }
    records.retain(|record| !matches!(record, Record::Unanswered { .. }));
    records
}

fn state_of(files: &Files) -> Vec<Record> {
    let disk = Double::with_files(files);
    let (node, ..) = restored(&disk, CONFIG).expect("whole");
    state(&node, &disk)
}

fn of_log(disk: &Double) -> Vec<String> {
    disk.files().into_iter().filter(|(name, bytes)| belongs_to_log(name, bytes)).map(|(name, _)| name).collect()
}

/// How far the log was durable before starts that no peer has answered, as a start finds it.
fn unanswered(node: &Node) -> Option<u64> {
    let Part { records, .. } = node.save(&mut Cursor::default(), usize::MAX);
    records.into_iter().find_map(|record| match record {
        Record::Unanswered { began } => began,
        _ => None,
    })
}

// E24
/// Goal: a long log is compacted between replay and start, all of it, and the node has what it had.
#[test]
fn a_long_log_is_compacted_before_its_node_starts() {
    let (files, before) = (files(), state_of(&files()));
    assert!(before.iter().any(|record| matches!(record, Record::LeaseAges { .. })), "a lease has an age");
    let disk = Double::with_files(&files);
    let (mut node, mut log, replayed) = restored(&disk, LONG).expect("whole");
    assert_eq!(compact(&mut node, &mut log, &replayed, When::Long), Ok(Compacted::Whole));
    let left = of_log(&disk);
    assert!(left.len() == 2 && left[1].ends_with(".snapshot"), "a snapshot and the segment behind it: {left:?}");
    assert_eq!(state(&node, &disk), before, "the node knows where its payloads are now");
    assert_eq!(state_of(&disk.files()), before, "and so does the next start");
    let durable = log.synced();
    node.start(Now { mono_us: 5, wall_ms: 5 }, durable, &mut Vec::new());
    assert_eq!(log.upkeep(), Ok(Upkeep::Rest), "nothing is left to compact while it serves");
}

/// Goal: a log that is not long is left as it is, and the request of an operator compacts it all the same.
#[test]
fn a_short_log_is_compacted_only_on_request() {
    let (files, before) = (files(), state_of(&files()));
    let disk = Double::with_files(&files);
    let (mut node, mut log, replayed) = restored(&disk, CONFIG).expect("whole");
    assert_eq!(compact(&mut node, &mut log, &replayed, When::Long), Ok(Compacted::Short));
    assert_eq!(disk.files(), files);
    for _ in 0..2 {
        assert_eq!(compact(&mut node, &mut log, &replayed, When::Now), Ok(Compacted::Whole));
        assert_eq!((of_log(&disk).len(), state_of(&disk.files())), (2, before.clone()));
    }
}

/// Goal: whenever the process or the machine stops during a compaction, the files are the old log or the new one, both complete.
#[test]
fn no_crash_of_a_compaction_loses_anything() {
    let (files, before) = (files(), state_of(&files()));
    let (mut points, mut old, mut new) = (0, 0, 0);
    for when in [When::Long, When::Now] {
        // A prime stride stops at different steps of each write.
        for steps in (0..).step_by(7) {
            let disk = Double::with_files(&files);
            disk.fail_after(steps);
            let Ok((mut node, mut log, replayed)) = restored(&disk, LONG) else { continue };
            let done = compact(&mut node, &mut log, &replayed, when).is_ok_and(|done| done == Compacted::Whole);
            for crashed in disk.crashes() {
                points += 1;
                let is_new = of_log(&crashed).iter().any(|file| file.ends_with(".snapshot"));
                (old, new) = (old + u64::from(!is_new), new + u64::from(is_new));
                assert_eq!(state_of(&crashed.files()), before, "{when:?} {steps}");
                let (mut node, mut log, replayed) = restored(&crashed, LONG).expect("whole");
                assert_eq!(compact(&mut node, &mut log, &replayed, When::Now), Ok(Compacted::Whole));
                assert_eq!((of_log(&crashed).len(), state_of(&crashed.files())), (2, before.clone()));
            }
            if done {
                break;
            }
        }
    }
    assert!(points > 100 && old > 30 && new > 10, "{points} points, {old} old and {new} new logs");
}

/// Goal: the same holds for the directory of a stopped node, whose log is read back in the end.
#[test]
fn no_crash_of_a_compaction_of_a_stopped_node_loses_anything() {
    let (files, before) = (files(), state_of(&files()));
    for steps in (0..).step_by(23) {
        let disk = Double::with_files(&files);
        disk.fail_after(steps);
        let done = compact_stopped(disk.clone());
        for crashed in disk.crashes() {
            assert_eq!(state_of(&crashed.files()), before, "{steps}");
        }
        let Ok(Shrunk { before: was, after }) = done else { continue };
        assert!(was.segments > 4 && after.segments == 1, "{was:?} {after:?}");
        assert!(after.bytes < was.bytes && after.records < was.records, "{was:?} {after:?}");
        assert_eq!(state_of(&disk.files()), before);
        return;
    }
}

/// Goal: where a stopped node's log cannot be compacted nothing of it changes, and the error says why.
#[test]
fn what_hinders_a_compaction_of_a_stopped_node_is_told_and_nothing_changes() {
    let whole = files();
    let mut lost = whole.clone();
    lost.remove(whole.keys().nth(2).expect("several"));
    let (first, bytes) = whole.first_key_value().expect("several");
    let begun = Files::from([(first.clone(), bytes[..100].to_vec())]);
    let told = |files: &Files| {
        let disk = Double::with_files(files);
        let told = compact_stopped(disk.clone()).expect_err("it is hindered");
        assert_eq!(disk.files(), *files, "{told}");
        told
    };
    assert!(matches!(told(&lost), NotCompacted::Hindered(Hindrance::Lost(_))));
    assert!(matches!(told(&begun), NotCompacted::Unreadable(_)));
    let disk = Double::with_files(&whole);
    disk.limit(Some(whole.values().map(|bytes| bytes.len() as u64).sum::<u64>() + 8_000));
    let told = compact_stopped(disk.clone());
    assert_eq!(told, Err(NotCompacted::Hindered(Hindrance::Snapshot(SnapshotError::NoRoom))));
    assert_eq!(state_of(&disk.files()), state_of(&whole));
}

/// Goal: a disk without room for a snapshot stops no start, and the running node tries again as it always did.
#[test]
fn a_disk_without_room_leaves_the_log_to_the_running_node() {
    let (files, before) = (files(), state_of(&files()));
    let disk = Double::with_files(&files);
    let (mut node, mut log, replayed) = restored(&disk, LONG).expect("whole");
    disk.refuse(".partial");
    let done = compact(&mut node, &mut log, &replayed, When::Long).expect("the log is unharmed");
    assert!(matches!(done, Compacted::GivenUp(Hindrance::Snapshot(_))), "{done:?}");
    assert!(of_log(&disk).iter().all(|file| file.ends_with(".log")), "{:?}", of_log(&disk));
    assert_eq!(state_of(&disk.files()), before);
    disk.refuse("nothing");
    assert_eq!(log.upkeep(), Ok(Upkeep::Begin), "the node begins one while it serves");
    assert_eq!(write(&node, &mut log), Ok(None));
    assert_eq!(state_of(&disk.files()), before);

    let disk = Double::with_files(&files);
    let (mut node, mut log, replayed) = restored(&disk, LONG).expect("whole");
    disk.limit(Some(files.values().map(|bytes| bytes.len() as u64).sum::<u64>() + 1_500));
    let done = compact(&mut node, &mut log, &replayed, When::Now).expect("the log is unharmed");
    assert_eq!(done, Compacted::GivenUp(Hindrance::Snapshot(SnapshotError::NoRoom)));
    assert_eq!(state_of(&disk.files()), before);
}

/// Goal: a log that lost records is not compacted before a start has noted what they were.
#[test]
fn a_log_that_lost_something_is_left_as_it_is() {
    let mut files = files();
    let middle = files.keys().nth(2).expect("several").clone();
    files.remove(&middle);
    let disk = Double::with_files(&files);
    let (mut node, mut log, replayed) = restored(&disk, LONG).expect("other replicas have what is lost");
    assert!(replayed.lost_records > 0);
    let mended = disk.files();
    for when in [When::Long, When::Now] {
        let done = compact(&mut node, &mut log, &replayed, when);
        assert_eq!(done, Ok(Compacted::GivenUp(Hindrance::Lost(replayed.lost_records))));
        assert_eq!(disk.files(), mended);
    }
}

/// Goal: what a compaction appends makes the log of a stale image no longer, however often it is compacted or interrupted.
#[test]
fn a_stale_image_looks_no_longer_for_a_compaction() {
    let files = files();
    let (_, log, _) = restored(&Double::with_files(&files), CONFIG).expect("whole");
    let durable = log.synced();
    for operations in 0..60 {
        let disk = Double::with_files(&files);
        let (mut node, mut log, replayed) = restored(&disk, LONG).expect("whole");
        disk.fail_after_operations(operations);
        let _ = compact(&mut node, &mut log, &replayed, When::Now);
        for crashed in disk.crashes() {
            for _ in 0..2 {
                let (mut node, mut log, replayed) = restored(&crashed, LONG).expect("whole");
                let began = unanswered(&node).unwrap_or_else(|| log.synced());
                assert!(began <= durable, "{operations}: it looks as long as {began}, and was {durable} long");
                assert_eq!(compact(&mut node, &mut log, &replayed, When::Now), Ok(Compacted::Whole));
            }
        }
    }
}
