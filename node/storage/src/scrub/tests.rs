//! A scrub finds every changed byte that matters in finished files, and its findings are repaired.

use super::*;
use crate::double::sample::{self, CONFIG, IDENTITY, Latest, keep_up};
use crate::double::{Double, Files};
use crate::log::{LogConfig, Saved, Upkeep};
use crate::recovery::Replay;
use norn_model::task::Task;
use norn_wire::{PartitionId, QueueName, Spec, TaskId};
use std::sync::Arc;

/// A log in use, and its state.
fn open(files: &Files) -> (Log<Double>, Latest) {
    let mut log = Log::open(Double::with_files(files), CONFIG, || IDENTITY).expect("it is whole");
    let mut latest = Latest::default();
    log.replay(|replay| match replay {
        Replay::Record { record, .. } => {
            latest.take(record);
            Ok(())
        }
        Replay::Promised { .. } => Ok(()),
        Replay::Lost { .. } => Err("it is whole".into()),
    })
    .expect("it is whole");
    (log, latest)
}

/// The findings of one pass.
fn pass(log: &mut Log<Double>) -> Vec<Rot> {
    let mut found = Vec::new();
    loop {
        let Scrubbed { rot, over, .. } = log.scrub().expect("the log has not stopped");
        found.extend(rot);
        if over {
            return found;
        }
    }
}

fn flip(log: &mut Log<Double>, file: &str, offset: u64) {
    let byte = log.disk().read(file, offset, 1).expect("it is there")[0];
    log.disk_mut().write(file, offset, &[byte ^ 0x10]).expect("it is there");
}

/// Whether a byte is part of a header, of a used head, or of a record.
fn matters(files: &Files, file: &str, offset: u64) -> bool {
    if snapshot::number(file).is_some() || offset < HEADER_BYTES as u64 {
        return true;
    }
    let header = Header::decode(&files[file]).expect("it is whole");
    let next = segment::name(header.segment + 1);
    let records = Header::decode(&files[&next]).expect("it is whole").first_ordinal - header.first_ordinal;
    offset < HEADER_BYTES as u64 + records * SLOT_BYTES as u64 || offset >= header.records_offset()
}

#[test]
fn each_byte_that_matters_is_found_if_it_is_another() {
    for compacted_after in [None, Some(12)] {
        let files = sample::log(3, compacted_after);
        let (mut log, _) = open(&files);
        assert_eq!(pass(&mut log), [], "it is whole");
        let last = files.keys().next_back().expect("some").clone();
        assert!(files.len() > 2);
        for (file, bytes) in files.iter().filter(|(file, _)| **file != last) {
            for offset in 0..bytes.len() as u64 {
                flip(&mut log, file, offset);
                let found = pass(&mut log);
                let of_file = found.iter().any(|rot| rot.file == *file);
                assert_eq!(of_file, matters(&files, file, offset), "{file} at {offset}: {found:?}");
                flip(&mut log, file, offset);
            }
        }
        assert_eq!(pass(&mut log), []);
    }
}

/// Goal: the current segment is not looked at, because its end may be torn at any time.
#[test]
fn the_segment_in_use_is_left_alone() {
    let files = sample::log(3, None);
    let (mut log, _) = open(&files);
    let last = files.keys().next_back().expect("some");
    for offset in [0, 600, files[last].len() as u64 - 3] {
        flip(&mut log, last, offset);
    }
    assert_eq!(pass(&mut log), []);
}

#[test]
fn damage_is_told_with_its_owners_and_a_snapshot_takes_its_place() {
    for compacted_after in [None, Some(12)] {
        let files = sample::log(3, compacted_after);
        let (mut log, latest) = open(&files);
        assert_eq!(keep_up(&mut log, &latest), 0, "nothing is due");
        let file = files.keys().next().expect("some").clone();
        flip(&mut log, &file, files[&file].len() as u64 - 60);
        let found = pass(&mut log);
        let [rot] = found.as_slice() else { panic!("one file is damaged: {found:?}") };
        assert_eq!(rot.file, file);
        assert!(rot.owners.as_ref().is_some_and(|owners| !owners.is_empty()), "{rot}");
        assert_eq!(keep_up(&mut log, &latest), 1);
        assert!(!log.disk().list().expect("a list").contains(&file));
        assert_eq!((pass(&mut log), keep_up(&mut log, &latest)), (Vec::new(), 0));
        let (_, again) = open(&log.into_disk().files());
        assert_eq!(again, latest);
    }
}

/// Goal: a file that a snapshot removes in the middle of a pass is not reported as missing.
#[test]
fn files_may_go_while_they_are_read() {
    let (mut log, latest) = open(&sample::log(3, None));
    for _ in 0..2 {
        assert_eq!(log.scrub().expect("it goes on").rot, None);
    }
    assert!(log.scrub.reading.is_some());
    log.want_snapshot(Some(1));
    assert_eq!(keep_up(&mut log, &latest), 1);
    assert_eq!(pass(&mut log), []);
}

/// Goal: missing files in the middle of a log are reported once in a pass, and a snapshot replaces them. Method: two in a row.
#[test]
fn files_that_are_gone_are_told_and_a_snapshot_takes_their_place() {
    let files = sample::log(3, None);
    let (mut log, latest) = open(&files);
    let gone: Vec<&String> = files.keys().skip(1).take(2).collect();
    for file in &gone {
        log.disk_mut().remove(file).expect("it is there");
    }
    let found = pass(&mut log);
    assert!(matches!(&found[..], [rot] if rot.file == *gone[0]), "{found:?}");
    assert_eq!(keep_up(&mut log, &latest), 1);
    assert_eq!((pass(&mut log), keep_up(&mut log, &latest)), (Vec::new(), 0));
    let (_, again) = open(&log.into_disk().files());
    assert_eq!(again, latest);
}

/// Goal: a segment under the name of another one counts as damage, even if it is intact.
#[test]
fn a_file_under_the_name_of_another_is_told() {
    let files = sample::log(3, None);
    let (mut log, _) = open(&files);
    let names: Vec<&String> = files.keys().collect();
    log.disk().put(names[1], &files[names[0]]);
    let found = pass(&mut log);
    assert!(found.iter().any(|rot| rot.file == *names[1] && rot.to_string().contains("of another file")), "{found:?}");
}

#[test]
fn a_host_reads_as_fast_as_it_may_and_rests_between_passes() {
    let mut pace = ScrubPace::new(1_000, 7_000_000);
    assert_eq!(pace.due_us(), Some(7_000_000));
    pace.scrubbed(7_000_000, &Scrubbed { bytes: 500, ..Scrubbed::default() });
    assert_eq!(pace.due_us(), Some(7_500_000));
    let over = Scrubbed { over: true, ..Scrubbed::default() };
    pace.scrubbed(7_500_000, &over);
    assert_eq!(pace.due_us(), Some(14_500_000));
    // After damage the next pass comes soon, but only once.
    let rot = Rot { file: "a".into(), offset: 0, known: "bad".into(), owners: None };
    let damage = Scrubbed { rot: Some(rot), ..Scrubbed::default() };
    pace.scrubbed(14_500_000, &damage);
    pace.scrubbed(15_000_000, &over);
    assert!(pace.due_us().is_some_and(|due_us| due_us < 15_200_000));
    pace.scrubbed(16_000_000, &over);
    assert_eq!(pace.due_us(), Some(23_000_000));
    // Damage that is not repaired is looked at ever more rarely; after a failed read the next attempt comes a little later.
    let rests_us: Vec<u64> = (0..60)
        .map(|_| {
            pace.scrubbed(30_000_000, &damage);
            pace.scrubbed(30_000_000, &over);
            pace.due_us().expect("it scrubs") - 30_000_000
        })
        .collect();
    assert!(rests_us.is_sorted() && rests_us[31] == rests_us[0] && rests_us[59] == 7_000_000, "{rests_us:?}");
    let error = DiskError { operation: "read", file: "a".into(), cause: "".into(), full: false, lost: false };
    pace.scrubbed(40_000_000, &Scrubbed { failed: Some(error), ..Scrubbed::default() });
    assert_eq!(pace.due_us(), Some(41_000_000));
    // As long as bodies come back, the next pass comes soon.
    let mut pace = ScrubPace::new(1_000, 7_000_000);
    for _ in 0..1_000 {
        pace.scrubbed(30_000_000, &damage);
        pace.scrubbed(30_000_000, &Scrubbed { mends: true, ..over.clone() });
        assert!(pace.due_us().is_some_and(|due_us| due_us < 30_200_000));
    }
    assert_eq!(ScrubPace::new(0, 5).due_us(), None);
}

/// A record of a hundred thousand bytes, of this partition.
fn large(partition: u16) -> Record {
    let queue = QueueName::new("q").expect("a name");
    let spec = Spec::new(queue, vec![0x55; 100_000]);
    let items = Arc::new(vec![(TaskId::new(1, 1, 1, 1), Task::from_spec(Arc::new(spec)))]);
    Record::Facts { partition: PartitionId(partition), items }
}

const LARGE: u16 = 60;
const LARGE_CONFIG: LogConfig =
    LogConfig { segment_bytes: 64 << 20, ahead_bytes: 0, compact_bytes: 0, ..LogConfig::DEFAULT };

/// A log whose first segment has a large record of each partition, with their offsets. If requested, a snapshot has them.
fn spacious(disk: &Double, in_snapshot: bool) -> (Log<Double>, String, Vec<u64>) {
    let mut log = Log::open(disk.clone(), LARGE_CONFIG, || IDENTITY).expect("a fresh log");
    log.replay(|replay| replay.whole().map(drop)).expect("fresh");
    let mut records: Vec<Record> = (0..LARGE).map(large).collect();
    let mut file = segment::name(1);
    let mut offsets: Vec<u64> =
        log.append(&records).expect("written").iter().flatten().map(|place| place.offset).collect();
    log.sync().expect("synced");
    assert_eq!(log.upkeep(), Ok(Upkeep::Begin));
    if in_snapshot {
        records.insert(0, Record::Identity { node: IDENTITY.node, incarnation: IDENTITY.incarnation });
        assert_eq!(log.save(&records, true), Ok(Saved::Whole));
        let Ok(Upkeep::Moved(_)) = log.upkeep() else { panic!("nothing else comes first") };
        while log.upkeep() != Ok(Upkeep::Rest) {}
        file = snapshot::name(2);
        let length = disk.length(&file).expect("there");
        let mut reader = Reader::new(disk, &file, HEADER_BYTES as u64, length);
        offsets.clear();
        for _ in 0..=LARGE {
            offsets.push(reader.offset());
            reader.frame().expect("read").expect("whole");
        }
        offsets.remove(0);
    }
    (log, file, offsets)
}

/// Findings of a pass in which no call reads for long, each reports the bytes that it reads, and all come from the disk.
fn bounded_pass(log: &mut Log<Double>) -> Vec<Rot> {
    let disk = log.disk().clone();
    let mut found = Vec::new();
    let (mut read, mut paid) = (0, 0);
    disk.take_forgotten();
    loop {
        disk.take_read_bytes();
        let scrubbed = log.scrub().expect("the log has not stopped");
        let bytes = disk.take_read_bytes();
        assert!(bytes <= 4 * SCRUB_BYTES, "{bytes} bytes in one call");
        let forgotten = disk.take_forgotten();
        assert_eq!(forgotten.iter().sum::<usize>() as u64, scrubbed.bytes);
        (read, paid) = (read + bytes, paid + scrubbed.bytes);
        found.extend(scrubbed.rot);
        if scrubbed.over {
            break;
        }
    }
    // Besides, it reads one header, and a few heads and records to describe damage.
    assert!(paid <= read && read <= paid + 300_000, "{paid} of {read} bytes");
    found
}

fn overwrite(disk: &Double, file: &str, range: std::ops::Range<u64>, byte: u8) {
    let mut disk = disk.clone();
    disk.write(file, range.start, &vec![byte; (range.end - range.start) as usize]).expect("written");
}

fn owners(partitions: impl IntoIterator<Item = u16>) -> Option<BTreeSet<Owner>> {
    Some(partitions.into_iter().map(|number| Owner::Partition(PartitionId(number))).collect())
}

/// Goal: a pass reads each byte about once, and reports no others.
#[test]
fn a_pass_pays_for_what_it_reads() {
    for in_snapshot in [false, true] {
        let disk = Double::default();
        let (mut log, file, offsets) = spacious(&disk, in_snapshot);
        let mut bytes = 0;
        loop {
            let scrubbed = log.scrub().expect("it goes on");
            bytes += scrubbed.bytes;
            if scrubbed.over {
                break;
            }
        }
        let length = disk.length(&file).expect("there") - offsets[0];
        assert!(length > 20 * SCRUB_BYTES && (length..length * 3 / 2).contains(&bytes), "{bytes} for {length}");
    }
}

/// Goal: the search for the end of damage delays no commit, and the affected owners are reported all the same. Method: megabytes are
/// overwritten, among others with zeroes, and up to the file's end.
#[test]
fn damage_of_any_length_is_read_piece_by_piece() {
    for (in_snapshot, byte) in [(false, 0x55), (false, 0), (false, 0xfe), (true, 0x55), (true, 0), (true, 0xfe)] {
        let disk = Double::default();
        let (mut log, file, offsets) = spacious(&disk, in_snapshot);
        assert_eq!(bounded_pass(&mut log), []);
        let whole = disk.files();
        let between = if in_snapshot { owners([9, 51]) } else { owners(10..=50) };
        overwrite(&disk, &file, offsets[10]..offsets[50] + 50_000, byte);
        let [rot] = &bounded_pass(&mut log)[..] else { panic!("one file is damaged") };
        assert_eq!((&rot.file, rot.offset, &rot.owners), (&file, offsets[10], &between), "{rot}");

        // No frame is left after it.
        overwrite(&disk, &file, offsets[10]..whole[&file].len() as u64, byte);
        let [rot] = &bounded_pass(&mut log)[..] else { panic!("one file is damaged") };
        let behind = if in_snapshot { None } else { owners(10..LARGE) };
        assert_eq!((&rot.file, rot.offset, &rot.owners), (&file, offsets[10], &behind), "{rot}");
    }
}

/// Goal: an owner that no head names is reported as unknown.
#[test]
fn owners_are_unknown_if_one_of_them_is() {
    let disk = Double::default();
    let (mut log, file, offsets) = spacious(&disk, false);
    // The search finishes within one call, so the slots are damaged in between.
    overwrite(&disk, &file, offsets[10]..offsets[12], 0x55);
    loop {
        let scrubbed = log.scrub().expect("it goes on");
        if log.scrub.reading.as_ref().is_some_and(|reading| reading.search.is_some()) {
            break;
        }
        assert!(!scrubbed.over, "it is found");
    }
    let header = log.scrub.reading.as_ref().and_then(|reading| reading.header).expect("read long ago");
    // The identity is the first record.
    flip(&mut log, &file, header.slot_offset(1 + 1 + 11));
    let rot = pass(&mut log).remove(0);
    assert_eq!((rot.offset, rot.owners), (offsets[10], None));
}

/// Goal: zeroes up to the end of a finished segment are free space, whatever their number, and cause no long read.
#[test]
fn space_at_the_end_is_passed_piece_by_piece() {
    let disk = Double::default();
    let (mut log, file, _) = spacious(&disk, false);
    let length = disk.length(&file).expect("there");
    overwrite(&disk, &file, length..length + (8 << 20), 0);
    assert_eq!(bounded_pass(&mut log), []);
}

/// Goal: only a place that the disk repeatedly reports lost is damage. Method: nine failures at one file, which a snapshot then
/// replaces, and nine at the next; and any number of failures that say nothing about the disk.
#[test]
fn reads_that_fail_for_other_reasons_are_no_damage() {
    let (mut log, latest) = open(&sample::log(3, None));
    let disk = log.disk().clone();
    let failing = |log: &mut Log<Double>, times: u32| {
        for _ in 0..times {
            let scrubbed = log.scrub().expect("it goes on");
            assert!(scrubbed.failed.is_some() && scrubbed.rot.is_none(), "{scrubbed:?}");
        }
    };
    disk.fail_reads(Some(("", false)));
    failing(&mut log, 100);
    disk.fail_reads(Some(("", true)));
    failing(&mut log, FAILURES_MAX - 1);
    disk.fail_reads(None);
    log.want_snapshot(Some(1));
    assert_eq!(keep_up(&mut log, &latest), 1);
    disk.fail_reads(Some(("", true)));
    failing(&mut log, FAILURES_MAX - 1);
    let Scrubbed { rot: Some(rot), failed: Some(_), .. } = log.scrub().expect("it goes on") else { panic!("damage") };
    assert!(rot.file.ends_with(".snapshot") && rot.owners.is_none(), "{rot}");
    disk.fail_reads(None);
    assert_eq!((pass(&mut log), keep_up(&mut log, &latest)), (Vec::new(), 1));
}
