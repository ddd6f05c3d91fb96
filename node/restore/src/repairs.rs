//! Repaired logs start, no intact data is dropped, and logs that cannot be repaired are left alone.

use super::plan_repair;
use super::sample;
use norn_storage::disk::{Disk, DiskError};
use norn_storage::double::{Double, Files};
use norn_storage::repair::*;
use norn_storage::segment::{self, Header};
use norn_storage::slot::Owner;
use norn_storage::verify::{Entry, inspect, verify};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Every whole record of a log, by the kind of its file and its ordinal.
fn records(files: &Files) -> BTreeMap<(bool, u64), Vec<u8>> {
    let disk = Double::with_files(files);
    let mut found = BTreeMap::new();
    let visit = |file: &str, offset: u64, entry| {
        if let Entry::Record { ordinal, bytes, .. } = entry {
            let frame = disk.read(file, offset, bytes as usize).expect("no fault");
            found.insert((file.ends_with(".log"), ordinal), frame);
        }
        Ok::<(), DiskError>(())
    };
    inspect(&disk, visit).expect("no fault");
    found
}

/// Repairs the log. Returns the files afterwards, the backups, and the plan.
fn repaired(files: &Files) -> Result<(Files, Files, Plan), RepairError> {
    let (mut disk, mut aside) = (Double::with_files(files), Double::default());
    let plan = plan_repair(&disk);
    assert_eq!(&disk.files(), files, "a plan changes nothing");
    let plan = plan?;
    assert_eq!(plan.steps.is_empty(), plan.changes.is_empty(), "{:?} {:?}", plan.steps, plan.left);
    keep(&plan.changes, &disk, &mut aside).expect("no fault");
    plan.changes.apply(&mut disk).expect("no fault");
    Ok((disk.files(), aside.files(), plan))
}

/// Checks the requirements on every repair, whatever the damage was.
fn check(files: &Files, after: &Files, aside: &Files) {
    sample::start(after).expect("it starts");
    for (file, bytes) in files {
        let same = after.get(file) == Some(bytes);
        assert!(same || aside.get(file) == Some(bytes), "{file} is kept as it was");
    }
    let again = plan_repair(&Double::with_files(after)).expect("still repaired");
    assert!(again.changes.is_empty() && again.steps.is_empty(), "{:?}", again.steps);
}

/// Repairs a log after harm, and checks it. Every whole record from before the repair must still be there.
fn heals(harm: impl FnOnce(&mut Files)) -> Plan {
    let mut files = sample::log(3, None);
    harm(&mut files);
    let (after, aside, plan) = repaired(&files).expect("it can be repaired");
    check(&files, &after, &aside);
    let kept = records(&after);
    for (place, frame) in records(&files) {
        assert_eq!(kept.get(&place), Some(&frame), "record {place:?}");
    }
    plan
}

fn refuses(harm: impl FnOnce(&mut Files)) -> String {
    let mut files = sample::log(3, None);
    harm(&mut files);
    repaired(&files).map(|(_, _, plan)| plan.steps).expect_err("refused").to_string()
}

fn name(number: u64) -> String {
    segment::name(number)
}

fn flip(files: &mut Files, file: &str, place: usize) {
    files.get_mut(file).expect("there")[place] ^= 0x10;
}

/// A segment whose records are facts and tables, or are replaced by later segments.
const MIDDLE: u64 = 2;

#[test]
fn a_whole_log_needs_none() {
    for compacted in [None, Some(20)] {
        let files = sample::log(3, compacted);
        let (after, aside, plan) = repaired(&files).expect("whole");
        assert_eq!((after, aside.len(), plan.steps, plan.losses), (files, 0, vec![], vec![]));
    }
}

/// A start continues after missing segments, and reports the loss: there is nothing to repair.
#[test]
fn missing_segments_are_a_loss() {
    for last in MIDDLE..MIDDLE + 2 {
        let (mut first_lost, mut last_lost) = (u64::MAX, 0);
        let plan = heals(|files| {
            for number in MIDDLE..=last {
                let of_file = records(&Files::from([(name(number), files[&name(number)].clone())]));
                first_lost = first_lost.min(of_file.keys().next().expect("one").1);
                last_lost = of_file.keys().next_back().expect("one").1;
                files.remove(&name(number));
            }
            assert!(sample::start(files).is_ok());
        });
        assert_eq!(plan.losses.len(), 1);
        assert_eq!(plan.losses[0].loss.ranges, [(first_lost, last_lost)]);
        assert!(plan.changes.is_empty() && plan.left.is_none(), "{:?}", plan.steps);
    }
}

/// A start would lose both files, as neither has the name in its header.
#[test]
fn swapped_segments_lose_nothing() {
    let plan = heals(|files| {
        let (one, other) = (files[&name(MIDDLE)].clone(), files[&name(MIDDLE + 1)].clone());
        files.insert(name(MIDDLE), other);
        files.insert(name(MIDDLE + 1), one);
        assert!(sample::start(files).expect("it starts").1.lost_records > 0);
    });
    assert_eq!((plan.steps.len(), plan.losses.len()), (2, 0), "{:?}", plan.steps);
}

/// A log that starts as it is stays as it is if its repair would be ambiguous.
#[test]
fn what_cannot_be_made_better_is_left() {
    let mut files = sample::log(3, None);
    let mut copy = files[&name(3)].clone();
    *copy.last_mut().expect("a byte") ^= 1;
    files.insert(name(MIDDLE), copy);
    assert!(sample::start(&files).is_ok());
    let (after, aside, plan) = repaired(&files).expect("it starts");
    assert_eq!((after, aside.len(), plan.steps.len()), (files, 0, 0));
    let left = plan.left.expect("it is said why").to_string();
    assert!(left.contains("says to be the same segment, and differs"), "{left}");
}

#[test]
fn a_header_is_written_anew_from_whatever_is_left() {
    let plan = heals(|files| {
        flip(files, &name(MIDDLE), 3);
        flip(files, &name(MIDDLE), 520);
        let lost_records = sample::start(files).expect("it starts").1.lost_records;
        assert!(lost_records > 0, "a start gives it up, as the head of the first record is gone, too");
    });
    assert!(plan.steps.iter().any(|step| step.known.contains("header is written anew")), "{:?}", plan.steps);
    assert_eq!(plan.losses, []);
    let mut lost_records = 0;
    let plan = heals(|files| {
        flip(files, &name(MIDDLE), 3);
        let start = Header::decode(&sample::log(3, None)[&name(MIDDLE)]).expect("whole").records_offset();
        flip(files, &name(MIDDLE), start as usize + 9);
        flip(files, &name(MIDDLE), 520);
        lost_records = sample::start(files).expect("it starts").1.lost_records;
    });
    assert_eq!((plan.losses.len(), plan.losses[0].loss.count()), (1, 1), "nothing of the first record is left");
    assert!(lost_records > 1);
}

#[test]
fn files_get_the_names_that_their_headers_say() {
    let plan = heals(|files| {
        let (one, other) = (files.remove(&name(2)).expect("there"), files.remove(&name(3)).expect("there"));
        files.insert(name(2), other);
        files.insert(name(3), one);
        let last = files.remove(&name(4)).expect("there");
        files.insert("copy.log".into(), last);
        assert!(sample::start(files).is_err());
    });
    assert_eq!(plan.steps.len(), 3, "{:?}", plan.steps);
    let plan = heals(|files| {
        let copy = files[&name(3)].clone();
        files.insert("0000000000000042.log".into(), copy);
        files.insert("odd.log".into(), vec![1; 99]);
    });
    assert_eq!(plan.steps.len(), 2, "{:?}", plan.steps);
}

/// Second copies of heads are restored in every segment, for later damage.
#[test]
fn heads_are_written_anew_in_all_segments() {
    let plan = heals(|files| {
        for number in 1..=4 {
            flip(files, &name(number), 512);
        }
    });
    assert_eq!(plan.steps.len(), 4, "{:?}", plan.steps);
    let mut files = sample::log(3, None);
    flip(&mut files, &name(2), 512);
    let (after, ..) = repaired(&files).expect("repaired");
    assert_eq!(verify(&Double::with_files(&after), |_| ()).map(|verified| verified.problems), Ok(0));
}

/// Only the head of a lost record names its owner.
#[test]
fn what_is_lost_keeps_its_name() {
    let plan = heals(|files| {
        let header = Header::decode(&files[&name(3)]).expect("whole");
        let mut facts = None;
        let visit = |file: &str, offset: u64, entry| {
            if let Entry::Record { ordinal, of: Some((_, kind)), .. } = entry
                && (file, kind.0) == (&name(3), b'F')
            {
                facts = Some((offset, ordinal));
            }
            Ok::<(), DiskError>(())
        };
        inspect(&Double::with_files(files), visit).expect("no fault");
        let (offset, ordinal) = facts.expect("there are facts");
        flip(files, &name(3), offset as usize + 9);
        // The head of another record, which is rewritten.
        flip(files, &name(3), header.slot_offset(ordinal - 1) as usize);
    });
    assert_eq!(plan.losses[0].loss.unknown, 0);
    assert!(matches!(plan.losses[0].loss.owners.first_key_value(), Some(((Owner::Partition(_), _), 1))));
}

#[test]
fn what_only_a_new_identity_cures_is_refused() {
    let lost_vote = refuses(|files| {
        let last = files.keys().next_back().expect("there").clone();
        files.remove(&last);
        let before = files.keys().next_back().expect("there").clone();
        let disk = Double::with_files(files);
        let mut at = None;
        let visit = |file: &str, offset: u64, entry| {
            if let Entry::Record { of: Some((_, kind)), .. } = entry
                && kind.0 == b'V'
            {
                at = Some((file.to_owned(), offset));
            }
            Ok::<(), DiskError>(())
        };
        inspect(&disk, visit).expect("no fault");
        let (file, offset) = at.expect("a vote");
        assert!(file <= before);
        flip(files, &file, offset as usize + 9);
    });
    assert!(lost_vote.contains("vote of partition"), "{lost_vote}");
    let identity = refuses(|files| {
        files.retain(|file, _| *file == name(1));
        let start = Header::decode(&files[&name(1)]).expect("whole").records_offset();
        flip(files, &name(1), start as usize + 9);
    });
    assert!(identity.contains("identity of the node itself"), "{identity}");
    let first = refuses(|files| {
        let last = files.keys().next_back().expect("there").clone();
        files.retain(|file, _| *file == last);
        let start = Header::decode(&files[&last]).expect("whole").records_offset();
        flip(files, &last, start as usize + 9);
    });
    assert!(first.contains("nothing else says which node this is"), "{first}");
    let end = refuses(|files| files.last_entry().expect("there").get_mut().fill(0));
    assert!(end.contains("it is unknown what is lost"), "{end}");
    let two = refuses(|files| {
        let mut copy = files[&name(3)].clone();
        *copy.last_mut().expect("a byte") ^= 1;
        files.insert("0000000000000042.log".into(), copy);
    });
    assert!(two.contains("says to be the same segment, and differs"), "{two}");
}

#[test]
fn the_header_of_a_snapshot_is_written_anew() {
    let mut files = sample::log(3, Some(20));
    let snapshot = files.keys().find(|file| file.ends_with(".snapshot")).expect("there").clone();
    flip(&mut files, &snapshot, 20);
    assert!(sample::start(&files).is_err());
    let (after, aside, plan) = repaired(&files).expect("repaired");
    check(&files, &after, &aside);
    assert_eq!((after, plan.steps.len()), (sample::log(3, Some(20)), 1));
}

/// Goal: a repair that a crash of the machine interrupts at any operation can be repeated, with the same result. Method: the disk
/// fails after each of its operations, and loses all unsynced data.
#[test]
fn a_repair_that_is_interrupted_can_be_repeated() {
    let mut files = sample::log(3, None);
    let (one, other) = (files.remove(&name(3)).expect("there"), files.remove(&name(4)).expect("there"));
    files.insert(name(3), other);
    files.insert(name(4), one);
    files.remove(&name(2));
    flip(&mut files, &name(5), 512);
    let (done, ..) = repaired(&files).expect("repaired");
    let mut ended = false;
    for operations in 0..100 {
        let disk = Double::with_files(&files);
        let plan = plan_repair(&disk).expect("planned");
        disk.fail_after_operations(operations);
        ended = plan.changes.apply(&mut disk.clone()).is_ok();
        for crashed in disk.crashes() {
            let (after, ..) = repaired(&crashed.files()).expect("repaired once more");
            assert_eq!(after, done, "after {operations} operations");
        }
        if ended {
            break;
        }
    }
    assert!(ended);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, ..ProptestConfig::default() })]

    /// Goal: whatever the damage, a repair either yields a log that starts, with every changed file backed up and nothing left to
    /// repair, or is refused; and a log that started before the repair starts after it.
    #[test]
    fn any_damage_is_repaired_or_refused(
        compacted in prop_oneof![Just(None), Just(Some(20))],
        flips in proptest::collection::vec((any::<proptest::sample::Index>(), any::<proptest::sample::Index>(), 1u8..), 0..5),
        cut in proptest::option::of((any::<proptest::sample::Index>(), any::<proptest::sample::Index>())),
        gone in proptest::option::of(any::<proptest::sample::Index>()),
        swapped in proptest::option::of((any::<proptest::sample::Index>(), any::<proptest::sample::Index>())),
    ) {
        let mut files = sample::log(3, compacted);
        let names: Vec<String> = files.keys().cloned().collect();
        for (file, place, change) in flips {
            let bytes = files.get_mut(file.get(&names)).expect("there");
            let place = place.index(bytes.len());
            bytes[place] ^= change;
        }
        if let Some((file, length)) = cut {
            let bytes = files.get_mut(file.get(&names)).expect("there");
            bytes.truncate(length.index(bytes.len()));
        }
        if let Some((one, other)) = swapped {
            let (one, other) = (one.get(&names), other.get(&names));
            let (first, second) = (files[one].clone(), files[other].clone());
            files.insert(one.clone(), second);
            files.insert(other.clone(), first);
        }
        if let Some(file) = gone {
            files.remove(file.get(&names));
        }
        let before = sample::start(&files);
        match repaired(&files) {
            Ok((after, aside, _)) => check(&files, &after, &aside),
            Err(error) => prop_assert!(before.is_err(), "{}", error),
        }
    }
}
