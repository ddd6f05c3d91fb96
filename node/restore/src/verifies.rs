//! Verification reports exactly the faults, and reports an intact log as whole.

use super::sample;
use norn_model::record::Record;
use norn_storage::disk::DiskError;
use norn_storage::double::{Double, record};
use norn_storage::log::{Identity, Log, LogConfig};
use norn_storage::segment::{self, HEADER_BYTES, Header};
use norn_storage::slot::SLOT_BYTES;
use norn_storage::verify::*;
use norn_wire::NodeId;
use std::collections::BTreeMap;

type Files = BTreeMap<String, Vec<u8>>;

fn written() -> Files {
    let disk = Double::default();
    let identity = || Identity { node: NodeId(7), incarnation: 7 };
    let mut log = Log::open(
        disk.clone(),
        LogConfig { segment_bytes: 200, ahead_bytes: 0, compact_bytes: u64::MAX, ..LogConfig::DEFAULT },
        identity,
    )
    .expect("a fresh log");
    log.replay(|replay| replay.whole().map(drop)).expect("fresh");
    for number in 0..25 {
        log.append(&[record(number)]).expect("written");
        log.sync().expect("synced");
    }
    disk.files()
}

fn problems(files: &Files) -> Vec<Problem> {
    let mut problems = Vec::new();
    let verified = verify(&Double::with_files(files), |problem| problems.push(problem)).expect("no fault");
    assert_eq!(verified.problems, problems.len() as u64);
    problems
}

fn records_of(files: &Files) -> Vec<(String, u64, u64)> {
    let mut records = Vec::new();
    let visit = |file: &str, offset, entry| {
        if let Entry::Record { ordinal, .. } = entry {
            records.push((file.to_owned(), offset, ordinal));
        }
        Ok::<(), DiskError>(())
    };
    inspect(&Double::with_files(files), visit).expect("no fault");
    records
}

#[test]
fn a_whole_log_is_whole_and_shows_every_record() {
    let files = written();
    assert_eq!(problems(&files), []);
    let ordinals: Vec<u64> = records_of(&files).into_iter().map(|(.., ordinal)| ordinal).collect();
    // Including the promises at the beginning of each segment.
    assert!(ordinals.len() > 30);
    assert_eq!(ordinals, (1..=ordinals.len() as u64).collect::<Vec<u64>>());
}

/// Goal: preallocated space is no damage, in any segment; a nonzero byte in it is.
#[test]
fn zeroes_at_the_end_of_a_file_are_no_problem() {
    let (files, mut with_space) = (written(), written());
    with_space.values_mut().for_each(|bytes| bytes.resize(bytes.len() + 5_000, 0));
    assert_eq!(problems(&with_space), []);
    assert_eq!(records_of(&with_space), records_of(&files));
    for (file, bytes) in &files {
        let mut odd = with_space.clone();
        odd.get_mut(file).expect("there")[bytes.len() + 99] = 1;
        let found = problems(&odd);
        assert_eq!((found.len(), found[0].offset), (1, bytes.len() as u64), "{found:?}");
        assert!(found[0].known.ends_with(&format!("up to byte {}", bytes.len() + 100)), "{found:?}");
    }
}

/// Goal: only damage to the hole between heads and records goes unnoticed, and records elsewhere are still shown.
#[test]
fn any_changed_byte_is_told() {
    let files = written();
    let all = records_of(&files);
    for (file, bytes) in &files {
        let header = Header::decode(bytes).expect("a header");
        let in_file = all.iter().filter(|(of, ..)| of == file).count();
        let used = HEADER_BYTES + in_file * SLOT_BYTES;
        for place in (0..used).chain(header.records_offset() as usize..bytes.len()).step_by(3) {
            let mut changed = files.clone();
            changed.get_mut(file).expect("there")[place] ^= 0x10;
            let found = problems(&changed);
            assert!(found.iter().any(|problem| problem.file == *file), "byte {place} of {file}");
            let spared = records_of(&changed);
            assert!(spared.len() + 1 >= all.len() && spared.iter().all(|record| all.contains(record)));
        }
    }
}

#[test]
fn what_is_lost_is_told_with_its_owner() {
    let mut files = written();
    let (file, offset, ordinal) = records_of(&files)[7].clone();
    let bytes = files.get_mut(&file).expect("there");
    bytes[offset as usize + 8] ^= 1;
    let found = problems(&files);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found.iter().all(|problem| (problem.file.as_str(), problem.offset) == (&file, offset)));
    assert_eq!(found[1].loss.ranges, [(ordinal, ordinal)]);
    assert_eq!((found[1].loss.owners.len(), found[1].loss.unknown), (1, 0));
    // With the head gone too, the owner is unknown.
    let header = Header::decode(&files[&file]).expect("a header");
    files.get_mut(&file).expect("there")[header.slot_offset(ordinal) as usize] ^= 1;
    let found = problems(&files);
    assert_eq!((found[1].loss.owners.len(), found[1].loss.unknown), (0, 1));
}

#[test]
fn missing_and_swapped_and_short_files_are_told() {
    let files = written();
    let names: Vec<&String> = files.keys().collect();
    let mut fewer = files.clone();
    fewer.remove(names[2]);
    assert!(problems(&fewer)[0].known.contains(names[2].as_str()));
    let mut swapped = files.clone();
    swapped.insert(names[1].clone(), files[names[2]].clone());
    swapped.insert(names[2].clone(), files[names[1]].clone());
    assert!(problems(&swapped)[0].known.contains("the header is that of segment 3"));
    let mut short = files.clone();
    let bytes = short.get_mut(names[1]).expect("there");
    bytes.truncate(bytes.len() - 1);
    assert!(problems(&short).iter().any(|problem| !problem.loss.is_empty()));
    let mut torn = files.clone();
    let bytes = torn.get_mut(*names.last().expect("one")).expect("there");
    bytes.truncate(bytes.len() - 1);
    let found = problems(&torn);
    assert!(found.iter().all(|problem| problem.loss.is_empty()), "a crash may have left it so: {found:?}");
    assert!(found.iter().any(|problem| problem.known.contains("a start cuts them")), "{found:?}");
}

/// Goal: a verification and a start agree. What a start refuses, or reads with a loss, is reported; a log that is reported as whole
/// starts without a loss. Method: every length of every file, and changed bytes everywhere, with a snapshot and without.
#[test]
fn a_start_and_a_verification_agree() {
    let (mut whole, mut refused, mut lossy) = (0, 0, 0);
    let mut judge = |files: &Files, harm: String| {
        let found = problems(files);
        let losses = found.iter().any(|problem| !problem.loss.is_empty());
        match sample::start(files) {
            Err(refusal) => {
                assert!(!found.is_empty(), "{harm}: {refusal}");
                refused += 1;
            }
            Ok((_, replayed)) if replayed.lost_records > 0 => {
                assert!(losses, "{harm}: {replayed:?}");
                lossy += 1;
            }
            Ok((_, replayed)) => {
                assert!(!losses, "{harm}: {replayed:?} but {found:?}");
                whole += u64::from(found.is_empty());
            }
        }
    };
    for compacted in [None, Some(20)] {
        let files = sample::log(3, compacted);
        judge(&files, "none".into());
        let segments = || files.keys().filter(|file| segment::is_of_log(file));
        for (one, other) in segments().zip(segments().skip(1)) {
            let mut swapped = files.clone();
            swapped.insert(one.clone(), files[other].clone());
            judge(&swapped, format!("{other} as {one}"));
            swapped.insert(other.clone(), files[one].clone());
            judge(&swapped, format!("{other} and {one} swapped"));
        }
        for (file, bytes) in &files {
            let (lengths, places) = ((0..bytes.len()).step_by(3), (0..bytes.len()).step_by(11));
            for length in lengths {
                let mut cut = files.clone();
                cut.get_mut(file).expect("there").truncate(length);
                judge(&cut, format!("{file} cut to {length}"));
            }
            for place in places {
                let mut changed = files.clone();
                changed.get_mut(file).expect("there")[place] ^= 0x10;
                judge(&changed, format!("byte {place} of {file}"));
            }
            let mut fewer = files.clone();
            fewer.remove(file);
            judge(&fewer, format!("without {file}"));
        }
    }
    assert!(whole > 10 && refused > 100 && lossy > 100, "{whole} {refused} {lossy}");
}

#[test]
fn a_damaged_snapshot_names_what_it_lost() {
    let mut files = sample::log(3, Some(31));
    let name = files.keys().find(|name| name.ends_with(".snapshot")).expect("there is one").clone();
    let mut vote = None;
    let visit = |file: &str, offset: u64, entry| {
        if let Entry::Record { ordinal, record: Some(Record::Vote { .. }), .. } = entry
            && file == name
        {
            vote.get_or_insert((offset, ordinal));
        }
        Ok::<(), DiskError>(())
    };
    inspect(&Double::with_files(&files), visit).expect("no fault");
    let (offset, ordinal) = vote.expect("there is one");
    files.get_mut(&name).expect("there")[offset as usize + 9] ^= 1;
    let found = problems(&files);
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!(found[1].loss.to_string(), format!("lost: record {ordinal} (1 vote of partition 0)"));
}
