//! Damage of every kind: it is refused with advice, or cut where only the end is affected; never a wrong record, never a panic.

use super::*;
use crate::double::{Double, record, sized};
use crate::frame::{self, HEAD_BYTES};
use crate::log::{Log, LogConfig};
use crate::reader::READ_BYTES;
use crate::slot::Owner;
use norn_model::viewstamp::Epoch;
use norn_wire::PartitionId;
use proptest::prelude::*;
use std::collections::BTreeMap;

mod loss;

type Files = BTreeMap<String, Vec<u8>>;

const SMALL: LogConfig =
    LogConfig { segment_bytes: 200, ahead_bytes: 0, compact_bytes: u64::MAX, ..LogConfig::DEFAULT };

const SMALL_SLOTS: LogConfig =
    LogConfig { segment_bytes: 4_000, ahead_bytes: 0, compact_bytes: u64::MAX, ..LogConfig::DEFAULT };

/// Promises at the beginning of each segment but the first: an identity, and the last of the three kinds that [`record`] makes.
const PROMISES: usize = 4;

fn identity(number: u64) -> Identity {
    Identity { node: NodeId(u128::from(number) << 100 | 0xabc), incarnation: number }
}

fn start(files: &Files) -> Result<(Vec<Record>, Replayed, Files), OpenError> {
    let disk = Double::with_files(files);
    let started = start_on(&disk);
    assert!(started.is_ok() || disk.files() == *files, "a start that is refused changes nothing");
    started
}

fn start_on(disk: &Double) -> Result<(Vec<Record>, Replayed, Files), OpenError> {
    let mut log = Log::open(disk.clone(), SMALL, || identity(99))?;
    let mut records = Vec::new();
    let replayed = log.replay(|replay: Replay| {
        match replay {
            Replay::Record { record, .. } => records.push(record),
            Replay::Promised { .. } => {}
            Replay::Lost { .. } => return Err("all of the log is needed".into()),
        }
        Ok(())
    })?;
    Ok((records, replayed, disk.files()))
}

fn refusal(files: &Files) -> OpenError {
    start(files).map(|(_, replayed, _)| replayed).expect_err("refused")
}

/// A log of several segments, and all its records, repeated promises included. Each was synced by itself.
fn whole(seed: u64, count: u64, segment_bytes: u64) -> (Files, Vec<Record>) {
    let disk = Double::default();
    let mut log = Log::open(
        disk.clone(),
        LogConfig { segment_bytes, ahead_bytes: 0, compact_bytes: u64::MAX, ..LogConfig::DEFAULT },
        || identity(seed),
    )
    .expect("a fresh log");
    log.replay(|replay| replay.whole().map(drop)).expect("fresh");
    for number in 0..count {
        log.append(&[record(number)]).expect("written");
        log.sync().expect("synced");
    }
    let files = disk.files();
    let (records, replayed, after) = start(&files).expect("whole");
    assert!(replayed.records <= count + 1 && after == files);
    (files, records)
}

fn last_file(files: &Files) -> String {
    files.keys().next_back().expect("a file").clone()
}

/// Offsets where the frames of a segment begin, and its end.
fn offsets(bytes: &[u8]) -> Vec<usize> {
    let disk = Double::with_file("a.log", bytes);
    let records_offset = Header::decode(bytes).expect("a header").records_offset();
    let mut reader = Reader::new(&disk, "a.log", records_offset, bytes.len() as u64);
    let mut offsets = vec![records_offset as usize];
    while let Next::Frame(frame) = reader.next().expect("no fault") {
        offsets.push((frame.offset + frame.bytes) as usize);
    }
    assert_eq!(offsets.last(), Some(&bytes.len()));
    offsets
}

fn assert_advice(error: &OpenError) {
    let text = error.to_string();
    assert!(text.contains(".log"), "names the file: {text}");
    assert!(
        text.contains("restore") || text.contains("put back") || text.contains("start the version"),
        "says what to do: {text}"
    );
}

// E5
/// Goal: no loss goes unnoticed, except of the last record, where a crash looks the same. Damage to the second copy of a head loses
/// nothing, nor does damage to a header, which can be reconstructed.
#[test]
fn every_changed_byte_is_refused_or_harmless_or_cut_at_the_end() {
    for (count, segment_bytes) in [(25, 200), (12, 1 << 20), (1, 1 << 20)] {
        let (files, records) = whole(1, count, segment_bytes);
        let last = last_file(&files);
        let ends = offsets(&files[&last]);
        let last_record = if ends.len() > 1 { ends[ends.len() - 2] } else { usize::MAX };
        for (file, bytes) in &files {
            let first_record = offsets(bytes)[0];
            let used = HEADER_BYTES + offsets(bytes).len() * SLOT_BYTES;
            // Of the hole between heads and records, a small part is enough.
            for place in (0..used.min(first_record)).chain(first_record..bytes.len()) {
                for change in [0x01, 0x80] {
                    let mut changed = files.clone();
                    changed.get_mut(file).expect("there")[place] ^= change;
                    let in_heads = (HEADER_BYTES..first_record).contains(&place);
                    match start(&changed) {
                        Ok((read, _, after)) if place < HEADER_BYTES => {
                            assert_eq!((read, after), (records.clone(), files.clone()));
                        }
                        Err(error) if !in_heads => assert_advice(&error),
                        Err(error) => panic!("byte {place} of {file} is of a second copy: {error}"),
                        Ok((read, replayed, after)) if in_heads => {
                            assert_eq!((read, replayed.cut_bytes), (records.clone(), 0));
                            assert_eq!(replayed.heads_mended, u64::from(*file == last));
                            assert!(*file != last || after == files, "mended");
                        }
                        Ok((read, replayed, _)) if *file == last && place >= last_record => {
                            assert_eq!(read, records[..records.len() - 1]);
                            let zeroes = changed[&last].iter().rev().take_while(|byte| **byte == 0).count();
                            assert_eq!(replayed.cut_bytes, (bytes.len() - last_record - zeroes) as u64);
                            assert_eq!(replayed.cut_records, 1);
                        }
                        Ok(_) => panic!("byte {place} of {file} changed by {change} was not noticed"),
                    }
                }
            }
        }
    }
}

#[test]
fn a_log_cut_short_anywhere_loses_the_last_record_or_is_refused() {
    let (files, records) = whole(1, 25, 200);
    let last = last_file(&files);
    let in_last = offsets(&files[&last]).len() - 1;
    for (file, bytes) in &files {
        for length in 0..bytes.len() {
            let mut changed = files.clone();
            changed.get_mut(file).expect("there").truncate(length);
            match start(&changed) {
                Err(error) => assert_advice(&error),
                Ok((read, ..)) => {
                    assert_eq!(*file, last, "only the last segment may be short");
                    // Without a head that refers to another batch, nothing shows that records are missing. The first batch has the
                    // promises, too.
                    let lost = if length < HEADER_BYTES + (PROMISES + 2) * SLOT_BYTES { in_last } else { 1 };
                    assert!(read.len() + lost >= records.len(), "cut to {length}");
                    assert_eq!(read, records[..read.len()]);
                }
            }
        }
    }
}

/// The sync of the last batch may not have finished: missing records of it are cut, together with all after them.
#[test]
fn the_last_batch_may_be_torn_in_any_way() {
    let disk = Double::default();
    let mut log = Log::open(disk.clone(), SMALL_SLOTS, || identity(1)).expect("a fresh log");
    log.replay(|replay| replay.whole().map(drop)).expect("fresh");
    log.append(&[record(0)]).expect("written");
    log.sync().expect("synced");
    let before = disk.files()[&segment::name(1)].len();
    log.append(&[record(1), record(2), record(3)]).expect("written");
    let bytes = disk.files()[&segment::name(1)].clone();
    let slots = HEADER_BYTES + 2 * SLOT_BYTES..HEADER_BYTES + 5 * SLOT_BYTES;
    for place in before..bytes.len() {
        let mut torn = bytes.clone();
        torn[place] ^= 0x55;
        let (read, replayed, after) = start(&Files::from([(segment::name(1), torn.clone())])).expect("mended");
        assert!((2..5).contains(&read.len()));
        assert_eq!(replayed.cut_records, 5 - read.len() as u64);
        let (again, replayed, _) = start(&after).expect("whole");
        assert_eq!((again, replayed.cut_records, replayed.heads_mended), (read, 0, 0));
        // The heads do not have to be there either.
        torn[slots.clone()].fill(0);
        let (_, replayed, _) = start(&Files::from([(segment::name(1), torn)])).expect("mended");
        assert_eq!(replayed.cut_records, 0);
    }
    let mut headless = bytes.clone();
    headless[slots].fill(0);
    let (read, replayed, after) = start(&Files::from([(segment::name(1), headless)])).expect("mended");
    assert_eq!((read.len(), replayed.heads_mended), (5, 3));
    assert_eq!(after[&segment::name(1)], bytes, "a whole record stays, and gets its head back");
}

#[test]
fn rubbish_behind_the_end_is_cut() {
    let (files, records) = whole(1, 8, 1 << 20);
    let last = last_file(&files);
    let noise = (0..400_000u32).map(|place| (place.wrapping_mul(2_654_435_761) >> 24) as u8 | 1).collect();
    for rubbish in [vec![0xff; 5000], noise, vec![0xfe], vec![1; 2 * READ_BYTES + 1]] {
        for (before, behind) in [(0, 0), (1, 0), (0, 1), (READ_BYTES, 0), (0, READ_BYTES), (600_000, 600_000)] {
            let tail = [vec![0; before], rubbish.clone(), vec![0; behind]].concat();
            let mut changed = files.clone();
            changed.get_mut(&last).expect("there").extend_from_slice(&tail);
            let (read, replayed, after) = start(&changed).expect("cut");
            assert_eq!(read, records);
            assert_eq!(replayed.cut_bytes, (tail.len() - behind) as u64, "space is not damage");
            assert_eq!(after, files);
        }
    }
}

/// Goal: zeroes at the end of any segment are free space, and hide no loss.
#[test]
fn zeroes_behind_the_end_are_space() {
    let (files, records) = whole(1, 25, 200);
    for length in [1, 15, 16, 17, 4096, 600_000] {
        let mut changed = files.clone();
        changed.values_mut().for_each(|bytes| bytes.resize(bytes.len() + length, 0));
        let (read, replayed, after) = start(&changed).expect("whole");
        assert_eq!((read, replayed.cut_bytes, replayed.heads_mended), (records.clone(), 0, 0));
        assert_eq!(after, changed, "nothing is to be mended");
        // Any other byte is damage there, which loses nothing; at the end of the log it is cut.
        for (file, bytes) in &files {
            let mut odd = changed.clone();
            odd.get_mut(file).expect("there")[bytes.len() + length / 2] = 1;
            match start(&odd) {
                Ok((read, replayed, _)) if *file == last_file(&files) => {
                    assert_eq!((read, replayed.cut_bytes), (records.clone(), length as u64 / 2 + 1));
                }
                Ok((read, replayed, _)) => {
                    assert_eq!((read, replayed.cut_bytes, replayed.lost_records), (records.clone(), 0, 0));
                    assert!(replayed.damaged_bytes > 0);
                }
                Err(error) => panic!("{file}: {error}"),
            }
        }
    }
    // Records missing from a finished segment are noticed, whatever replaces their bytes.
    for (file, bytes) in files.iter().filter(|(file, _)| **file != last_file(&files)) {
        let ends = offsets(bytes);
        for from in &ends[..ends.len() - 1] {
            let mut zeroed = files.clone();
            zeroed.get_mut(file).expect("there")[*from..].fill(0);
            assert_advice(&refusal(&zeroed));
        }
    }
}

/// Goal: a batch that was written over zeroes may be torn in any way. Method: every part of its bytes is zeroed again.
#[test]
fn a_batch_over_zeroes_may_be_torn_in_any_way() {
    let disk = Double::default();
    let config = LogConfig { ahead_bytes: 1_000, ..SMALL_SLOTS };
    let mut log = Log::open(disk.clone(), config, || identity(1)).expect("a fresh log");
    log.replay(|replay| replay.whole().map(drop)).expect("fresh");
    log.append(&[record(0)]).expect("written");
    log.sync().expect("synced");
    let before = disk.files()[&segment::name(1)].clone();
    log.append(&[record(1), sized(9), record(2)]).expect("written");
    let after = disk.files()[&segment::name(1)].clone();
    assert_eq!(before.len(), after.len(), "there was space for it");
    let changed = |range: std::ops::Range<usize>| range.filter(|place| before[*place] != after[*place]);
    let records_offset = Header::decode(&after).expect("a header").records_offset() as usize;
    let start_of = changed(records_offset..after.len()).next().expect("written");
    let end_of = changed(records_offset..after.len()).next_back().expect("written") + 1;
    let mut counts = std::collections::BTreeSet::new();
    for from in start_of..end_of {
        for to in (from + 1..=end_of).step_by(3) {
            let mut torn = after.clone();
            torn[from..to].copy_from_slice(&before[from..to]);
            let (read, replayed, mended) = start(&Files::from([(segment::name(1), torn)])).expect("mended");
            assert!((2..=5).contains(&read.len()));
            assert_eq!(replayed.cut_records, 5 - read.len() as u64);
            let (again, replayed, _) = start(&mended).expect("whole");
            assert_eq!((&again, replayed.cut_bytes, replayed.heads_mended), (&read, 0, 0));
            counts.insert(read.len());
        }
    }
    assert!(counts.contains(&2) && counts.contains(&4), "{counts:?}");
}

#[test]
fn what_is_mended_is_durable() {
    let (files, _) = whole(1, 3, 1 << 20);
    let (first, second) = (segment::name(1), segment::name(2));
    let mended = |file: &str, bytes: &[u8]| {
        let disk = Double::with_files(&files);
        disk.put(file, bytes);
        let mut log = Log::open(disk.clone(), SMALL, || identity(99)).expect("a log");
        disk.take_trace();
        log.replay(|replay| replay.whole().map(drop)).expect("mended");
        disk.take_trace()
    };
    // Nothing shows that the last batch was durable: it is written once more, and its head.
    let (write, sync) = (format!("write {first}"), format!("sync {first}"));
    let anew = vec![write.clone(), write, sync];
    assert_eq!(mended(&first, &files[&first]), anew);
    let torn = [&files[&first][..], &[1]].concat();
    let space = [&files[&first][..], &[0]].concat();
    assert_eq!(mended(&first, &space), anew);
    assert_eq!(mended(&first, &torn), [vec![format!("truncate {first}")], anew].concat());
    assert_eq!(mended(&second, &[0]), [format!("remove {second}"), "sync_directory ".into()]);
}

/// Goal: a start changes nothing before it is certain to go on, so that after a refused start the damaged file can be restored from a
/// copy. Method: every part of every file is cut or flipped, and the log is read.
#[test]
fn reading_changes_nothing() {
    let (files, _) = whole(1, 6, 150);
    let mut mended = 0;
    for (file, bytes) in &files {
        let cut = (0..bytes.len()).map(|length| bytes[..length].to_vec());
        let flipped = (0..bytes.len()).step_by(5).map(|place| {
            let mut flipped = bytes.clone();
            flipped[place] ^= 1;
            flipped
        });
        for changed in cut.chain(flipped) {
            let mut damaged = files.clone();
            damaged.insert(file.clone(), changed);
            let disk = Double::with_files(&damaged);
            let Ok(mut log) = Log::open(disk.clone(), SMALL, || identity(99)) else {
                assert_eq!(disk.files(), damaged);
                continue;
            };
            let read = log.read(|_| Ok(()));
            assert_eq!(disk.files(), damaged);
            if read.is_ok() {
                log.mend().expect("no fault");
                mended += usize::from(disk.files() != damaged);
            }
        }
    }
    assert!(mended > 100, "{mended}");
}

#[test]
fn a_frame_within_a_torn_record_is_no_record() {
    let (mut files, records) = whole(1, 3, 1 << 20);
    let last = last_file(&files);
    let mut payload = Vec::new();
    frame::encode(6, &record(0), &mut payload);
    let torn = frame::of_body(5, &payload.repeat(3));
    files.get_mut(&last).expect("there").extend_from_slice(&torn[..torn.len() - 1]);
    let (read, ..) = start(&files).expect("a payload may hold anything");
    assert_eq!(read, records);
}

// E11, E12
#[test]
fn a_whole_record_out_of_turn_is_refused() {
    for (ordinal, known) in [(6, ": 1 are missing"), (u64::MAX, ""), (4, "another record 4 before"), (1, "conflict")] {
        let (mut files, _) = whole(1, 3, 1 << 20);
        let last = last_file(&files);
        files.get_mut(&last).expect("there").extend_from_slice(&frame::of_body(ordinal, &[1]));
        let error = refusal(&files);
        let text = error.to_string();
        assert!(text.contains(&format!("record {ordinal}")) && text.contains(known), "{text}");
        assert_advice(&error);
    }
}

/// Goal: records that a misdirected write moved are not lost without a report. Found by a fuzzer: a record that was durable, as a
/// later one showed, stood after that later one, and the log was cut before it as if it had never been acknowledged.
#[test]
fn a_record_behind_a_later_one_is_refused() {
    let (mut files, _) = whole(1, 3, 1 << 20);
    let last = last_file(&files);
    let bytes = files.get_mut(&last).expect("there");
    let (mut later, mut batch) = (Vec::new(), Vec::new());
    frame::encode(7, &record(7), &mut later);
    (5..7).for_each(|ordinal| frame::encode(ordinal, &record(ordinal), &mut batch));
    bytes.extend(later.iter().chain(&batch));
    let error = refusal(&files);
    let text = error.to_string();
    assert!(text.contains("record 5 stands behind a later one"), "{text}");
    assert_advice(&error);
}

// E12
#[test]
fn a_repeated_record_is_passed_over() {
    let (mut files, mut records) = whole(1, 3, 1 << 20);
    let last = last_file(&files);
    let bytes = files.get_mut(&last).expect("there");
    let ends = offsets(bytes);
    for again in ends.windows(2).rev() {
        let frame = bytes[again[0]..again[1]].to_vec();
        bytes.extend_from_slice(&frame);
    }
    frame::encode(5, &record(9), bytes);
    records.push(record(9));
    let (read, replayed, after) = start(&files).expect("the same records again");
    assert_eq!((&read, replayed.cut_bytes, replayed.heads_mended), (&records, 0, 1));
    assert_eq!(start(&after).expect("whole").0, records);
}

#[test]
fn an_odd_name_is_refused() {
    let (files, _) = whole(1, 25, 200);
    for odd in ["0000000000000000.log", "1.log", "x.log", "0000000000000099.log"] {
        let mut more = files.clone();
        more.insert(odd.into(), Vec::new());
        let error = refusal(&more);
        assert!(matches!(error, OpenError::Names { .. }), "with {odd}");
        assert_advice(&error);
    }
    let mut more = files.clone();
    more.insert("notes.txt".into(), vec![1]);
    start(&more).expect("other files do not matter");
}

#[test]
fn segments_of_others_are_refused() {
    let (files, _) = whole(1, 25, 200);
    let (others, _) = whole(2, 25, 200);
    for file in files.keys() {
        let mut mixed = files.clone();
        mixed.insert(file.clone(), others[file].clone());
        let error = refusal(&mixed);
        assert!(matches!(error, OpenError::Foreign { .. }), "{error}");
        assert_advice(&error);
    }
    let (last, before) = (last_file(&files), segment::name(files.len() as u64 - 1));
    let mut twice = files.clone();
    twice.insert(last, files[&before].clone());
    assert!(matches!(refusal(&twice), OpenError::Foreign { .. }), "there is none behind it to say what is lost");
}

#[test]
fn another_cluster_is_refused() {
    let (mut files, _) = whole(1, 25, 200);
    let last = last_file(&files);
    let bytes = files.get_mut(&last).expect("there");
    let header = Header { cluster: ClusterId(0xbad), ..Header::decode(bytes).expect("a header") };
    bytes[..HEADER_BYTES].copy_from_slice(&header.encode());
    assert!(refusal(&files).to_string().contains("it is of cluster 00000000000000000000000000000bad"));
}

#[test]
fn other_versions_are_refused_even_in_a_short_file() {
    for length in [10, 40, HEADER_BYTES, usize::MAX] {
        for file in [1, 3] {
            let (mut files, _) = whole(1, 25, 200);
            let name = segment::name(file);
            files.retain(|other, _| *other <= name);
            let bytes = files.get_mut(&name).expect("there");
            bytes.truncate(length);
            bytes[9] = 1;
            let error = refusal(&files);
            assert!(error.to_string().contains("format version 1, this program knows 2"), "{error}");
        }
    }
}

#[test]
fn a_body_that_is_no_record_is_refused() {
    let (mut files, _) = whole(1, 3, 1 << 20);
    let last = last_file(&files);
    files.get_mut(&last).expect("there").extend_from_slice(&frame::of_body(5, &[0xc1]));
    let error = refusal(&files);
    assert!(matches!(error, OpenError::Version { .. }), "{error}");
    assert_advice(&error);
}

#[test]
fn a_last_segment_without_a_header_is_removed() {
    let (files, records) = whole(1, 25, 200);
    let next = segment::name(files.len() as u64 + 1);
    for length in 0..=HEADER_BYTES {
        let mut torn = files.clone();
        torn.insert(next.clone(), vec![0; length]);
        let (read, replayed, after) = start(&torn).expect("mended");
        assert_eq!((read, replayed.cut_bytes), (records.clone(), length as u64));
        assert_eq!(after, files);
    }
    let mut torn = files.clone();
    torn.insert(next.clone(), vec![0; HEADER_BYTES + 1]);
    assert_advice(&refusal(&torn));
    // The segment before was synced before the last one was begun: it has no torn end.
    let mut torn = files.clone();
    torn.get_mut(&last_file(&files)).expect("there").pop();
    torn.insert(next, Vec::new());
    assert_advice(&refusal(&torn));
}

#[test]
fn a_first_segment_that_was_never_finished_is_begun_again() {
    let (files, _) = whole(1, 0, 200);
    let first = segment::name(1);
    for length in 0..files[&first].len() {
        let torn = Files::from([(first.clone(), files[&first][..length].to_vec())]);
        let (read, ..) = start(&torn).expect("begun again");
        assert_eq!(read, [Record::Identity { node: identity(99).node, incarnation: 99 }]);
        let zeroes = Files::from([(first.clone(), vec![0; length])]);
        match start(&zeroes) {
            Ok(_) => assert!(length <= HEADER_BYTES),
            // The header was durable before any byte after it was written.
            Err(error) => assert_advice(&error),
        }
    }
}

#[test]
fn a_first_record_that_is_no_identity_is_refused() {
    let header = Header { cluster: ClusterId::default(), node: NodeId(1), segment: 1, first_ordinal: 1, slots: 1 };
    let mut bytes = header.encode().to_vec();
    bytes.resize(header.records_offset() as usize, 0);
    frame::encode(1, &Record::Boot { count: 1 }, &mut bytes);
    assert_advice(&refusal(&Files::from([(segment::name(1), bytes)])));
}

/// Bytes that resemble a log.
fn likeness() -> impl Strategy<Value = Vec<u8>> {
    let slot = || {
        let of = |(ordinal, unsynced)| {
            let (owner, kind) = (Owner::Node, Record::Boot { count: 1 }.kind());
            Slot { ordinal, offset: 0, bytes: 9, fingerprint: 7, unsynced, owner, kind }.encode().to_vec()
        };
        prop_oneof![2 => (1u64..9, 0u32..5).prop_map(of), 1 => any::<u8>().prop_map(|byte| vec![byte; SLOT_BYTES])]
    };
    let header =
        (1u64..4, 1u64..9, proptest::collection::vec(slot(), 1..5)).prop_map(|(segment, first_ordinal, slots)| {
            let (cluster, node) = (ClusterId::default(), identity(1).node);
            let header = Header { cluster, node, segment, first_ordinal, slots: slots.len() as u32 };
            [header.encode().to_vec(), slots.concat()].concat()
        });
    let frame = (1u64..9, 0u64..9).prop_map(|(ordinal, number)| {
        let mut bytes = Vec::new();
        let record =
            if ordinal == 1 { Record::Identity { node: identity(1).node, incarnation: 1 } } else { record(number) };
        frame::encode(ordinal, &record, &mut bytes);
        bytes
    });
    let head = (any::<u32>(), any::<u32>(), 0u64..9).prop_map(|(length, fingerprint, ordinal)| {
        let head =
            [&fingerprint.to_be_bytes()[..], &ordinal.to_be_bytes(), &[0, 0, 0, 1], &length.to_be_bytes()].concat();
        assert_eq!(head.len(), HEAD_BYTES);
        [&[0xfe, 0xfd, 0xfc], &head[..], &[0; 4]].concat()
    });
    let rubbish = proptest::collection::vec(any::<u8>(), 0..100);
    let zeroes = (0usize..100).prop_map(|length| vec![0; length]);
    let pieces = prop_oneof![frame, head, rubbish, zeroes];
    (prop_oneof![4 => header, 1 => Just(Vec::new())], proptest::collection::vec(pieces, 0..8))
        .prop_map(|(header, pieces)| [header, pieces.concat()].concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn nothing_on_the_disk_makes_it_panic(files in proptest::collection::vec(likeness(), 0..4), odd in "[0-9x]{0,17}(\\.log)?") {
        let mut named: Files = files.into_iter().enumerate().map(|(place, bytes)| (segment::name(place as u64 + 1), bytes)).collect();
        let _ = start(&named);
        named.insert(odd, vec![1, 2, 3]);
        let _ = start(&named);
    }

    #[test]
    fn what_was_mended_needs_no_mending(files in proptest::collection::vec(likeness(), 0..4)) {
        let named: Files = files.into_iter().enumerate().map(|(place, bytes)| (segment::name(place as u64 + 1), bytes)).collect();
        if let Ok((records, _, after)) = start(&named) {
            let (again, replayed, _) = start(&after).expect("still whole");
            prop_assert_eq!(records, again);
            prop_assert_eq!(replayed.cut_bytes, 0);
        }
    }

    #[test]
    fn several_changed_bytes_never_make_a_wrong_record(
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<proptest::sample::Index>(), 1u8..), 1..6),
    ) {
        let (mut files, records) = whole(1, 25, 200);
        let names: Vec<String> = files.keys().cloned().collect();
        for (file, place, change) in changes {
            let bytes = files.get_mut(file.get(&names)).expect("there");
            let place = place.index(bytes.len());
            bytes[place] ^= change;
        }
        if let Ok((read, ..)) = start(&files) {
            prop_assert_eq!(&read[..], &records[..read.len()]);
        }
    }
}
