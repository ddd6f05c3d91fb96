//! Bodies in segments and snapshots, whole, damaged and gone.

use super::*;
use crate::disk::Disk;
use crate::double::Double;
use crate::{Identity, Log, LogConfig, Replay, Saved, SnapshotError, Upkeep};
use norn_model::snapshot::{Moved, Part};
use norn_model::task::{Completed, SMALL_BYTES, Slot, Tombstone};
use norn_wire::{NodeId, PartitionId, QueueName, Spec, State, Token};

const CONFIG: LogConfig =
    LogConfig { segment_bytes: 2_000, compact_bytes: 8_000, ahead_bytes: 0, ..LogConfig::DEFAULT };
const IDENTITY: Identity = Identity { node: NodeId(7), incarnation: 7 };
/// Lengths of payloads: one with a sentinel in it, one larger than the first read, and one larger than a segment.
const LENGTHS: [usize; 8] = [0, 1, 300, 700, 700, 20_000, 3, 900];

fn id(number: usize) -> TaskId {
    TaskId::new(1, number as u32, 2, 3)
}

fn spec(number: usize) -> Arc<Spec> {
    let payload: Vec<u8> =
        SENTINEL.iter().cycle().take(LENGTHS[number]).map(|byte| byte.wrapping_add((number / 4) as u8)).collect();
    let queue = QueueName::new("q").unwrap();
    Arc::new(Spec { priority: number as i32, ..Spec::new(queue, payload) })
}

/// A log with two tasks in each record, and the requests that read each of them back.
fn filled(disk: &Double) -> (Log<Double>, Vec<Wanted>) {
    let mut log = Log::open(disk.clone(), CONFIG, || IDENTITY).unwrap();
    log.replay(|replay| replay.whole().map(drop)).unwrap();
    let mut wanted = Vec::new();
    for first in (0..LENGTHS.len()).step_by(2) {
        let items: Vec<(TaskId, Task)> =
            (first..first + 2).map(|number| (id(number), Task::from_spec(spec(number)))).collect();
        let record = Record::Facts { partition: PartitionId(0), items: Arc::new(items) };
        let places = log.append(&[Record::Boot { count: first as u64 + 1 }, record]).unwrap();
        log.sync().unwrap();
        let [Some(place)] = places[..] else { panic!("one place: {places:?}") };
        wanted.extend((first..first + 2).map(|number| of(number, place)));
    }
    (log, wanted)
}

fn of(number: usize, place: Place) -> Wanted {
    let outline = norn_model::task::Outline::new(spec(number));
    Wanted { id: id(number), slot: Slot::Spec, place, hash: outline.hash, bytes: 1 }
}

fn read(disk: &Double, wanted: &[Wanted]) -> Vec<Option<Filling>> {
    read_bodies(|file, offset, length| disk.read(file, offset, length), wanted).expect("nothing is lacked")
}

fn all() -> Vec<Option<Filling>> {
    (0..LENGTHS.len()).map(|number| Some(Filling::Spec(spec(number)))).collect()
}

/// The state as a node without bodies in memory saves it: two parts, with records of one and of all other tasks.
fn parts(wanted: &[Wanted]) -> [Part; 2] {
    let part = |wanted: &[Wanted], first: Option<Record>, last: bool| {
        let bare = wanted.iter().map(|wanted| (wanted.id, Task::default())).collect();
        let mut records: Vec<Record> = first.into_iter().collect();
        let gap = |(item, wanted): (usize, &Wanted)| Gap { record: records.len(), item, wanted: *wanted };
        let gaps = wanted.iter().enumerate().map(gap).collect();
        records.push(Record::Facts { partition: PartitionId(0), items: Arc::new(bare) });
        Part { records, gaps, last }
    };
    let identity = Record::Identity { node: IDENTITY.node, incarnation: IDENTITY.incarnation };
    [part(&wanted[..1], Some(identity), false), part(&wanted[1..], None, true)]
}

#[test]
fn bodies_are_read_back_from_where_they_were_appended_and_from_where_a_replay_finds_them() {
    let disk = Double::default();
    let (log, wanted) = filled(&disk);
    assert!(log.stats().segment > 2, "some segments are full");
    assert_eq!(read(&disk, &wanted), all());
    let backwards: Vec<Wanted> = wanted.iter().rev().copied().collect();
    assert_eq!(read(&disk, &backwards), all().into_iter().rev().collect::<Vec<_>>(), "in the order of the question");

    drop(log);
    let mut found = Vec::new();
    let mut log = Log::open(disk.clone(), CONFIG, || unreachable!()).unwrap();
    log.replay(|replay| {
        if let Replay::Record { record: Record::Facts { .. }, place, .. } = replay {
            found.push(place.expect("numbers are small"));
        }
        Ok(())
    })
    .unwrap();
    assert_eq!(found, wanted.iter().step_by(2).map(|wanted| wanted.place).collect::<Vec<_>>());
}

#[test]
fn a_damaged_record_gives_nothing_back() {
    let disk = Double::default();
    let (_, wanted) = filled(&disk);
    let place = wanted[2].place;
    let (file, whole) = (file_of(place), disk.files());
    let end = whole[&file].len() as u64;
    assert!(end > place.offset + 1_000);
    for at in place.offset..place.offset + 1_000 {
        let mut files = whole.clone();
        files.get_mut(&file).unwrap()[at as usize] ^= 0x10;
        let bodies = read(&Double::with_files(&files), &wanted);
        assert_eq!(bodies[2..4], [None, None], "byte {at}");
        assert_eq!(bodies[..2], all()[..2]);
        let mut files = whole.clone();
        files.get_mut(&file).unwrap().truncate(at as usize);
        assert_eq!(read(&Double::with_files(&files), &wanted)[2..4], [None, None], "cut at {at}");
    }
}

#[test]
fn no_place_does_any_harm() {
    let disk = Double::default();
    let (_, wanted) = filled(&disk);
    let place = |file, offset| Place { file: NonZeroU32::new(file).unwrap(), offset };
    for file in [1, 2, 3, 4, u32::MAX - 1, u32::MAX] {
        for offset in (0..3_000).chain([u64::from(u32::MAX), 1 << 50]) {
            let asked = of(0, place(file, offset));
            let right = asked.place == wanted[0].place;
            assert_eq!(read(&disk, &[asked])[0].is_some(), right, "{asked:?}");
        }
    }
    assert_eq!((in_segment(1 << 31, 5), in_snapshot(0, 5), in_segment(0, 5)), (None, None, None));
    assert_eq!(in_segment(u64::MAX, 5), None);
    assert!(in_snapshot(7, 9) < in_segment(7, 0) && in_segment(6, 9) < in_snapshot(7, 0), "the younger is the greater");
}

// E26
#[test]
fn a_snapshot_has_the_bodies_and_says_where_before_it_takes_the_place_of_anything() {
    let disk = Double::default();
    let (mut log, wanted) = filled(&disk);
    assert_eq!(log.upkeep(), Ok(Upkeep::Begin));
    let [first, last] = parts(&wanted);
    assert_eq!((log.save_part(first), log.save_part(last)), (Ok(Saved::Part), Ok(Saved::Whole)));
    let Ok(Upkeep::Moved(moved)) = log.upkeep() else { panic!("nothing else comes first") };
    assert_eq!(read(&disk, &wanted), all(), "nothing is removed yet");
    let place_of = |wanted: &Wanted| {
        let has = |moved: &&Moved| (moved.first..=moved.last).contains(&wanted.id);
        moved.iter().find(has).expect("every task is told of").place
    };
    let younger: Vec<Wanted> = wanted.iter().map(|old| Wanted { place: place_of(old), ..*old }).collect();
    assert!(wanted.iter().zip(&younger).all(|(old, new)| old.place.file < new.place.file));
    assert_eq!(read(&disk, &younger), all());
    while log.upkeep() == Ok(Upkeep::Again) {}
    assert_eq!(read(&disk, &younger), all());
    assert_eq!(read(&disk, &wanted), vec![None; LENGTHS.len()]);

    drop(log);
    let mut replayed = Vec::new();
    let mut log = Log::open(disk, CONFIG, || unreachable!()).unwrap();
    log.replay(|replay| {
        if let Replay::Record { record: Record::Facts { items, .. }, .. } = replay {
            replayed.extend(items.iter().map(|(_, task)| task.filling(Slot::Spec)));
        }
        Ok(())
    })
    .unwrap();
    assert_eq!(replayed, all());
}

#[test]
fn tombstones_in_a_snapshot_move_no_body() {
    let disk = Double::default();
    let (mut log, wanted) = filled(&disk);
    assert_eq!(log.upkeep(), Ok(Upkeep::Begin));
    let [first, mut last] = parts(&wanted);
    // Tombstones before, among and after the tasks with bodies.
    let tombstone = Task::from_tombstone(Tombstone { state: State::Done, at_ms: 1 });
    let items = Arc::new(vec![(id(0), tombstone.clone()), (id(LENGTHS.len()), tombstone)]);
    last.records.push(Record::Facts { partition: PartitionId(0), items });
    assert_eq!((log.save_part(first), log.save_part(last)), (Ok(Saved::Part), Ok(Saved::Whole)));
    let Ok(Upkeep::Moved(moved)) = log.upkeep() else { panic!("nothing else comes first") };
    let ranges: Vec<(TaskId, TaskId)> = moved.iter().map(|moved| (moved.first, moved.last)).collect();
    assert_eq!(ranges, [(id(0), id(0)), (id(1), id(LENGTHS.len() - 1))]);
}

#[test]
fn results_of_tasks_without_a_spec_move_too() {
    let disk = Double::default();
    let (mut log, wanted) = filled(&disk);
    assert_eq!(log.upkeep(), Ok(Upkeep::Begin));
    let [first, mut last] = parts(&wanted);
    // Tasks with only a result come after all others, in a record of their own.
    let with_result = |length| {
        let done = Completed { sequence: None, result: Some(vec![7; length].into()), at_ms: 1, children: None };
        Task::from_completion(Token { epoch: 1, number: 1 }, done)
    };
    let [large, small] = [id(LENGTHS.len()), id(LENGTHS.len() + 1)];
    let items = Arc::new(vec![(large, with_result(SMALL_BYTES)), (small, with_result(SMALL_BYTES - 1))]);
    last.records.push(Record::Facts { partition: PartitionId(0), items });
    assert_eq!((log.save_part(first), log.save_part(last)), (Ok(Saved::Part), Ok(Saved::Whole)));
    let Ok(Upkeep::Moved(moved)) = log.upkeep() else { panic!("nothing else comes first") };
    let last = moved.last().expect("three records have what can leave memory");
    assert_eq!((moved.len(), last.first, last.last), (3, large, large), "what is small never leaves");
}

/// Damages the records of these tasks.
fn spoil(disk: &Double, places: &[Place]) {
    let mut files = disk.files();
    for place in places {
        files.get_mut(&file_of(*place)).unwrap()[place.offset as usize + 30] ^= 1;
    }
    files.iter().for_each(|(file, bytes)| disk.put(file, bytes));
}

/// A state with one part for each record of the log.
fn many_parts(wanted: &[Wanted]) -> Vec<Part> {
    let [first, _] = parts(wanted);
    let number = wanted.len() / 2;
    let part = |(place, wanted): (usize, &[Wanted])| {
        let [mut rest, _] = parts(wanted);
        let [_, mut other] = parts(wanted);
        rest.records.remove(0);
        rest.gaps[0].record = 0;
        other.gaps[0].record = 1;
        rest.records.append(&mut other.records);
        rest.gaps.append(&mut other.gaps);
        if place == 0 {
            rest.records.insert(0, first.records[0].clone());
            rest.gaps.iter_mut().for_each(|gap| gap.record += 1);
        }
        Part { last: place + 1 == number, ..rest }
    };
    wanted.chunks(2).enumerate().map(part).collect()
}

#[test]
fn a_snapshot_without_some_of_the_bodies_is_given_up_and_the_log_stays() {
    let disk = Double::default();
    let (mut log, wanted) = filled(&disk);
    spoil(&disk, &[wanted[6].place]);
    assert_eq!(log.upkeep(), Ok(Upkeep::Begin));
    let [first, last] = parts(&wanted);
    assert_eq!(log.save_part(first), Ok(Saved::Part));
    let lost = SnapshotError::BodiesLost { count: 2, last: vec![id(6), id(7)] };
    assert_eq!(log.save_part(last), Ok(Saved::GivenUp(lost)));
    while log.upkeep() == Ok(Upkeep::Again) {}
    let left: Vec<bool> = read(&disk, &wanted).iter().map(Option::is_some).collect();
    assert_eq!(left, [true, true, true, true, true, true, false, false]);
    log.append(&[Record::Boot { count: 99 }]).unwrap();
    assert_eq!(log.sync(), Ok(()));
}

/// Goal: bodies that are lost in many places are all restored at once, not part by part. Method: two of four parts lack bodies; one
/// attempt reports both, writes nothing after the first, and leaves no file; the next attempt lacks nothing.
#[test]
fn one_attempt_tells_of_all_bodies_that_are_lost() {
    let disk = Double::default();
    let (mut log, wanted) = filled(&disk);
    let whole = disk.files();
    spoil(&disk, &[wanted[2].place, wanted[6].place]);
    assert_eq!(log.upkeep(), Ok(Upkeep::Begin));
    let mut parts = many_parts(&wanted).into_iter();
    let mut save = |log: &mut Log<Double>| log.save_part(parts.next().expect("four parts"));
    assert_eq!(save(&mut log), Ok(Saved::Part));
    disk.take_trace();
    assert_eq!(save(&mut log), Ok(Saved::Lacks(vec![id(2), id(3)])));
    assert_eq!(save(&mut log), Ok(Saved::Part));
    let error = SnapshotError::BodiesLost { count: 4, last: vec![id(6), id(7)] };
    assert_eq!(save(&mut log), Ok(Saved::GivenUp(error)));
    assert_eq!(disk.take_trace(), Vec::<String>::new(), "nothing is written");
    assert_eq!(log.bodies_lacked(), 4);
    while log.upkeep() == Ok(Upkeep::Again) {}
    assert!(!disk.files().keys().any(|file| snapshot::is_partial(file)));

    // Progress is reported once, at the end of a pass.
    let mends = |log: &mut Log<Double>| loop {
        let scrubbed = log.scrub().unwrap();
        if scrubbed.over {
            break scrubbed.mends;
        }
    };
    assert!(!mends(&mut log));
    whole.iter().for_each(|(file, bytes)| disk.put(file, bytes));
    spoil(&disk, &[wanted[6].place]);
    assert_eq!(log.upkeep(), Ok(Upkeep::Begin), "the pass has found it");
    assert_eq!(
        many_parts(&wanted)
            .into_iter()
            .map(|part| log.save_part(part).unwrap())
            .filter(|saved| *saved == Saved::Part)
            .count(),
        3
    );
    while log.upkeep() == Ok(Upkeep::Again) {}
    assert!(mends(&mut log) && !mends(&mut log));

    whole.iter().for_each(|(file, bytes)| disk.put(file, bytes));
    assert_eq!(log.upkeep(), Ok(Upkeep::Begin));
    let saved: Vec<Saved> = many_parts(&wanted).into_iter().map(|part| log.save_part(part).unwrap()).collect();
    assert_eq!(saved, [Saved::Part, Saved::Part, Saved::Part, Saved::Whole]);
    assert_eq!(log.bodies_lacked(), 0);
}

/// Goal: a temporary shortage in the process is never reported as a loss.
#[test]
fn a_read_that_may_succeed_later_loses_nothing() {
    let disk = Double::default();
    let (mut log, wanted) = filled(&disk);
    let mut recent = Recent::default();
    let mut ask = |disk: &Double| recent.read_bodies(|file, at, length| disk.read(file, at, length), &wanted);
    disk.fail_reads(Some((".log", false)));
    assert!(ask(&disk).is_err_and(|error| !error.lost));
    assert_eq!(log.upkeep(), Ok(Upkeep::Begin));
    let [first, last] = parts(&wanted);
    let given_up = log.save_part(first.clone()).unwrap();
    assert!(matches!(given_up, Saved::GivenUp(SnapshotError::Disk(_))), "{given_up:?}");
    disk.fail_reads(Some((".log", true)));
    assert_eq!(ask(&disk), Ok(vec![None; wanted.len()]), "that is what the disk says");
    disk.fail_reads(None);
    assert_eq!(ask(&disk), Ok(all()));
    assert_eq!(log.upkeep(), Ok(Upkeep::Again));
    log.want_snapshot(Some(1));
    assert_eq!(log.upkeep(), Ok(Upkeep::Begin));
    assert_eq!((log.save_part(first), log.save_part(last)), (Ok(Saved::Part), Ok(Saved::Whole)));
}
