//! Damage of every kind: it is refused with advice, or cut where only the end is gone; never a wrong record, never a
//! panic.

use super::*;
use crate::storage::double::{Double, record, sized};
use crate::storage::frame::{self, HEAD_BYTES};
use crate::storage::log::{Log, LogConfig};
use crate::storage::reader::READ_BYTES;
use proptest::prelude::*;
use std::collections::BTreeMap;

type Files = BTreeMap<String, Vec<u8>>;

const SMALL: LogConfig = LogConfig { segment_bytes: 200 };

fn identity(number: u64) -> Identity {
    Identity { node: NodeId(u128::from(number) << 100 | 0xabc), incarnation: number }
}

fn start(files: &Files) -> Result<(Vec<Record>, Replayed, Files), OpenError> {
    let disk = Double::with_files(files);
    let mut log = Log::open(disk.clone(), SMALL, || identity(99))?;
    let mut records = Vec::new();
    let replayed = log.replay(|record| {
        records.push(record);
        Ok(())
    })?;
    Ok((records, replayed, disk.files()))
}

fn refusal(files: &Files) -> OpenError {
    start(files).map(|(_, replayed, _)| replayed).expect_err("refused")
}

/// A log of several segments, and its records.
fn whole(seed: u64, count: u64, segment_bytes: u64) -> (Files, Vec<Record>) {
    let disk = Double::default();
    let mut log = Log::open(disk.clone(), LogConfig { segment_bytes }, || identity(seed)).expect("a fresh log");
    let mut records = Vec::new();
    log.replay(|record| {
        records.push(record);
        Ok(())
    })
    .expect("fresh");
    for number in 0..count {
        log.append(&[record(number)]).expect("written");
        records.push(record(number));
    }
    log.sync().expect("synced");
    (disk.files(), records)
}

fn last_file(files: &Files) -> String {
    files.keys().next_back().expect("a file").clone()
}

/// Where the frames of a segment begin, and its end.
fn offsets(bytes: &[u8]) -> Vec<usize> {
    let disk = Double::with_file("a.log", bytes);
    let mut reader = Reader::new(&disk, "a.log", HEADER_BYTES as u64, bytes.len() as u64);
    let mut offsets = vec![HEADER_BYTES];
    while let Next::Frame(frame) = reader.next().expect("no fault") {
        offsets.push((frame.offset + frame.bytes) as usize);
    }
    assert_eq!(offsets.last(), Some(&bytes.len()));
    offsets
}

fn assert_advice(error: &OpenError) {
    let text = error.to_string();
    assert!(text.contains(".log"), "names the file: {text}");
    assert!(text.contains("move the data directory aside"), "says what to do: {text}");
}

#[test]
fn every_changed_byte_is_refused_or_cut_at_the_end() {
    for (count, segment_bytes) in [(25, 200), (12, 1 << 20), (1, 1 << 20)] {
        let (files, records) = whole(1, count, segment_bytes);
        let last = last_file(&files);
        let ends = offsets(&files[&last]);
        let last_record = if ends.len() > 1 { ends[ends.len() - 2] } else { usize::MAX };
        for (file, bytes) in &files {
            for place in 0..bytes.len() {
                for change in [0x01, 0x10, 0x80, 0xff] {
                    let mut changed = files.clone();
                    changed.get_mut(file).expect("there")[place] ^= change;
                    match start(&changed) {
                        Err(error) => assert_advice(&error),
                        Ok((read, replayed, _)) if *file == last && place >= last_record => {
                            assert_eq!(read, records[..records.len() - 1]);
                            assert_eq!(replayed.cut_bytes, (bytes.len() - last_record) as u64);
                        }
                        Ok(_) => panic!("byte {place} of {file} changed by {change} was not noticed"),
                    }
                }
            }
        }
    }
}

#[test]
fn a_log_cut_short_anywhere_is_a_prefix_or_refused() {
    let (files, records) = whole(1, 25, 200);
    let last = last_file(&files);
    for (file, bytes) in &files {
        for length in 0..bytes.len() {
            let mut changed = files.clone();
            changed.get_mut(file).expect("there").truncate(length);
            match start(&changed) {
                Err(error) => {
                    assert!(*file != last, "{error}");
                    assert_advice(&error);
                }
                Ok((read, ..)) => {
                    assert_eq!(*file, last, "only the last segment may be short");
                    assert_eq!(read, records[..read.len()]);
                }
            }
        }
    }
}

#[test]
fn zeroes_and_rubbish_behind_the_end_are_cut() {
    let (files, records) = whole(1, 8, 1 << 20);
    let last = last_file(&files);
    let mut rubbish: Vec<Vec<u8>> = [1, 15, 16, 17, 4096, 600_000].iter().map(|length| vec![0; *length]).collect();
    rubbish.push(vec![0xff; 5000]);
    rubbish.push((0..400_000u32).map(|place| (place.wrapping_mul(2_654_435_761) >> 24) as u8).collect());
    for tail in rubbish {
        let mut changed = files.clone();
        changed.get_mut(&last).expect("there").extend_from_slice(&tail);
        let (read, replayed, after) = start(&changed).expect("cut");
        assert_eq!(read, records);
        assert_eq!(replayed.cut_bytes, tail.len() as u64);
        assert_eq!(after, files);
    }
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
        log.replay(|_| Ok(())).expect("mended");
        disk.take_trace()
    };
    assert_eq!(mended(&first, &files[&first]), Vec::<String>::new());
    let torn = [&files[&first][..], &[0]].concat();
    assert_eq!(mended(&first, &torn), [format!("truncate {first}"), format!("sync {first}")]);
    assert_eq!(mended(&second, &[0]), [format!("remove {second}"), "sync_directory ".into()]);
}

#[test]
fn a_record_behind_damage_is_found_however_far() {
    let (files, _) = whole(1, 3, 1 << 20);
    let last = last_file(&files);
    for distance in [1, READ_BYTES - 1, READ_BYTES, 2 * READ_BYTES + 1] {
        let mut files = files.clone();
        let bytes = files.get_mut(&last).expect("there");
        let found = bytes.len() + distance;
        bytes.resize(found, 0);
        frame::encode(6, &sized(READ_BYTES + 5), bytes);
        let error = refusal(&files);
        let known = format!("and record 6 stands whole behind it at byte {found}");
        assert!(error.to_string().contains(&known), "{error}");
        assert_advice(&error);
    }
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

#[test]
fn a_whole_record_out_of_turn_is_refused() {
    for (ordinal, known) in [(6, ": 1 are missing"), (u64::MAX, ""), (4, "another record 4 before"), (1, "conflict")] {
        let (mut files, _) = whole(1, 3, 1 << 20);
        let last = last_file(&files);
        frame::encode(ordinal, &sized(33), files.get_mut(&last).expect("there"));
        let error = refusal(&files);
        let text = error.to_string();
        assert!(text.contains(&format!("record {ordinal}")) && text.contains(known), "{text}");
        assert_advice(&error);
    }
}

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
    assert_eq!((read, replayed.cut_bytes), (records, 0));
    assert_eq!(after, files);
}

#[test]
fn a_missing_or_odd_name_is_refused() {
    let (files, _) = whole(1, 25, 200);
    for file in files.keys().filter(|file| **file != last_file(&files)) {
        let mut fewer = files.clone();
        fewer.remove(file);
        assert!(matches!(refusal(&fewer), OpenError::Names { .. }), "without {file}");
    }
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
    let (second, third) = (segment::name(2), segment::name(3));
    let mut swapped = files.clone();
    swapped.insert(second, files[&third].clone());
    assert!(matches!(refusal(&swapped), OpenError::Foreign { .. }));
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
    // The segment before was synced before the last was begun: it has no torn end.
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
        start(&zeroes).expect("begun again");
    }
    let long = Files::from([(first, vec![0; HEADER_BYTES + identity_bytes_max() + 1])]);
    assert_advice(&refusal(&long));
}

#[test]
fn no_record_fits_behind_an_identity_in_an_unfinished_segment() {
    let mut shortest = Vec::new();
    frame::encode(1, &Record::Identity { node: NodeId(0), incarnation: 0 }, &mut shortest);
    assert!(shortest.len() + frame::of_body(2, &[0]).len() > identity_bytes_max());
}

#[test]
fn records_missing_before_an_empty_segment_are_missed() {
    let (mut files, records) = whole(1, 25, 200);
    let last = last_file(&files);
    let header = Header {
        cluster: crate::storage::double::CLUSTER,
        node: identity(1).node,
        segment: files.len() as u64 + 1,
        first_ordinal: records.len() as u64 + 1,
    };
    files.insert(segment::name(header.segment), header.encode().to_vec());
    start(&files).expect("whole");
    let bytes = files.get_mut(&last).expect("there");
    let ends = offsets(bytes);
    bytes.truncate(ends[ends.len() - 2]);
    let error = refusal(&files);
    assert!(
        error.to_string().contains("begins with record 27, and the one before it ends before record 26"),
        "{error}"
    );
    assert_advice(&error);
}

#[test]
fn a_first_record_that_is_no_identity_is_refused() {
    let mut bytes =
        Header { cluster: ClusterId::default(), node: NodeId(1), segment: 1, first_ordinal: 1 }.encode().to_vec();
    frame::encode(1, &Record::Boot { count: 1 }, &mut bytes);
    assert_advice(&refusal(&Files::from([(segment::name(1), bytes)])));
}

/// Bytes that look a little like a log.
fn likeness() -> impl Strategy<Value = Vec<u8>> {
    let header = (1u64..4, 1u64..9).prop_map(|(segment, first_ordinal)| {
        let header = Header { cluster: ClusterId::default(), node: identity(1).node, segment, first_ordinal };
        header.encode().to_vec()
    });
    let frame = (1u64..9, 0u64..9).prop_map(|(ordinal, number)| {
        let mut bytes = Vec::new();
        let record =
            if ordinal == 1 { Record::Identity { node: identity(1).node, incarnation: 1 } } else { record(number) };
        frame::encode(ordinal, &record, &mut bytes);
        bytes
    });
    let head = (any::<u32>(), any::<u32>(), 0u64..9).prop_map(|(length, fingerprint, ordinal)| {
        let head = [&fingerprint.to_be_bytes()[..], &ordinal.to_be_bytes(), &length.to_be_bytes()].concat();
        assert_eq!(head.len(), HEAD_BYTES);
        [&[0xfe, 0xfd, 0xfc], &head[..]].concat()
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
