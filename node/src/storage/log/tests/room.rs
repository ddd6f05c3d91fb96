//! Snapshots where the disk is nearly full.

use super::*;
use crate::protocol::membership::Room;
use crate::storage::space::RESERVE;
use crate::storage::{Saved, SnapshotError, Upkeep};

const RESERVE_BYTES: u64 = 40_000;
const DISK_BYTES: u64 = 400_000;
const CONFIG: LogConfig =
    LogConfig { segment_bytes: 50_000, ahead_bytes: 0, reserve_bytes: RESERVE_BYTES, ..LogConfig::DEFAULT };

fn used_bytes(disk: &Double) -> u64 {
    disk.files().values().map(|bytes| bytes.len() as u64).sum()
}

fn is_partial_there(disk: &Double) -> bool {
    disk.files().keys().any(|file| snapshot::is_partial(file))
}

/// A log that has filled the disk and used of its reserve.
fn full() -> (Log<Double>, Double) {
    let disk = Double::default();
    disk.limit(Some(DISK_BYTES));
    let (mut log, ..) = start(&disk, CONFIG).expect("a fresh log");
    assert_eq!(log.upkeep(), Ok(Upkeep::Rest));
    while disk.files().contains_key(RESERVE) {
        log.append(&[sized(1_000)]).expect("there is room");
        log.sync().expect("no fault");
    }
    assert_eq!(log.room(), Room::Short);
    (log, disk)
}

fn hand_over(log: &mut Log<Double>, state: &[Record]) -> Saved {
    let identity = identity_record(log.identity());
    let mut saved = log.save(&[identity], state.is_empty()).expect("the log is unharmed");
    for (place, record) in state.iter().enumerate() {
        if saved != Saved::Part {
            break;
        }
        saved = log.save(std::slice::from_ref(record), place + 1 == state.len()).expect("the log is unharmed");
    }
    saved
}

/// What a host does at that time; what became of each state that was asked for.
fn keep_up(log: &mut Log<Double>, at_ms: u64, state: &[Record]) -> Vec<Saved> {
    log.commit(at_ms * 1_000).expect("no fault");
    let mut answers = Vec::new();
    loop {
        match log.upkeep().expect("the log is unharmed") {
            Upkeep::Rest => return answers,
            Upkeep::Again | Upkeep::Moved(_) => {}
            Upkeep::Begin => answers.push(hand_over(log, state)),
            Upkeep::GivenUp(error) => panic!("{error}"),
        }
    }
}

/// Goal: a disk that is full of what has ended has room again, however large the log may become by its setting.
#[test]
fn a_log_full_of_what_has_ended_makes_room() {
    let (mut log, disk) = full();
    // The last of the reserve is left. A segment begins with room for its heads, a hole on a real disk.
    disk.limit(Some(used_bytes(&disk) + RESERVE_BYTES / 4 + 6_000));
    assert_eq!(log.look_for_room(), Ok(Room::Short));
    let state = [sized(1_000)];
    let limited = DISK_BYTES - RESERVE_BYTES;
    assert_eq!(keep_up(&mut log, 5, &state), [Saved::Measured, Saved::Whole]);
    assert_eq!(log.room(), Room::Ample);
    assert!(disk.files().contains_key(RESERVE), "it is filled again");
    assert!(used_bytes(&disk) < limited / 2, "{}", used_bytes(&disk));
    assert_eq!(keep_up(&mut log, 100_000, &state), [], "there is nothing more to win");
    let (_, records, _) = start(&disk, CONFIG).expect("whole");
    assert_eq!(records.iter().filter(|record| **record == state[0]).count(), 1);
}

/// Goal: the reserve is for that, too.
#[test]
fn a_snapshot_may_have_the_reserve() {
    let disk = Double::default();
    disk.limit(Some(DISK_BYTES));
    let (mut log, ..) = start(&disk, CONFIG).expect("a fresh log");
    assert_eq!(log.upkeep(), Ok(Upkeep::Rest));
    while log.room() == Room::Ample {
        log.append(&[sized(1_000)]).expect("there is room");
    }
    disk.limit(Some(used_bytes(&disk) + 20_000));
    let state = vec![sized(1_000); 45];
    assert_eq!(keep_up(&mut log, 5, &state), [Saved::Measured, Saved::Whole]);
    assert_eq!(log.room(), Room::Ample);
    assert!(disk.files().contains_key(RESERVE), "it is filled again");
}

/// Goal: what lives and has no room costs nothing on the disk, and is looked at ever more rarely until there is less of it.
#[test]
fn what_has_no_room_is_not_begun_and_is_measured_later_again() {
    let (mut log, disk) = full();
    let (segment, files) = (log.stats().segment, disk.files());
    let large = vec![sized(1_000); 200];
    let mut measured = Vec::new();
    for at_ms in (0..60_000).step_by(500) {
        for saved in keep_up(&mut log, at_ms, &large) {
            assert_eq!(saved, Saved::Measured);
            measured.push(at_ms);
        }
    }
    assert_eq!(measured, [0, 1_000, 3_000, 7_000, 15_000, 31_000]);
    assert_eq!((log.stats().segment, log.room()), (segment, Room::Short));
    assert!(disk.files() == files, "nothing was written");
    assert_eq!(keep_up(&mut log, 63_000, &[]), [Saved::Measured, Saved::Whole]);
    assert_eq!(log.room(), Room::Ample);
}

/// Goal: a snapshot does not use up the room by which the log goes on.
#[test]
fn a_snapshot_gives_way_to_the_log() {
    let (mut log, disk) = full();
    assert_eq!(log.upkeep(), Ok(Upkeep::Begin));
    assert_eq!(hand_over(&mut log, &[]), Saved::Measured);
    assert_eq!(log.upkeep(), Ok(Upkeep::Begin));
    let first = [identity_record(log.identity()), sized(9_000)];
    assert_eq!(log.save(&first, false), Ok(Saved::Part));
    assert!(is_partial_there(&disk));
    // Somebody else takes the rest.
    disk.limit(Some(used_bytes(&disk) + 2_500));
    assert_eq!(log.look_for_room(), Ok(Room::Short), "what the snapshot has is not lost");
    log.append(&[sized(1_000)]).expect("there is room");
    assert_eq!(log.room(), Room::Short);
    assert!(!is_partial_there(&disk));
    assert_eq!(log.upkeep(), Ok(Upkeep::Rest));
    assert_eq!(log.save(&[sized(1_000)], true), Ok(Saved::GivenUp(SnapshotError::NoRoom)));
    disk.limit(Some(used_bytes(&disk) + 20_000));
    assert_eq!(keep_up(&mut log, 500, &[]), [], "it waits");
    assert_eq!(keep_up(&mut log, 1_500, &[]), [Saved::Measured, Saved::Whole]);
    start(&disk, CONFIG).expect("whole");
}

/// Goal: a part that would take the last room is not written, and nothing is left of those before it.
#[test]
fn a_snapshot_that_is_larger_than_measured_is_given_up() {
    let (mut log, disk) = full();
    assert_eq!(log.upkeep(), Ok(Upkeep::Begin));
    assert_eq!(hand_over(&mut log, &[]), Saved::Measured);
    assert_eq!(log.upkeep(), Ok(Upkeep::Begin));
    assert_eq!(hand_over(&mut log, &vec![sized(1_000); 200]), Saved::GivenUp(SnapshotError::NoRoom));
    assert_eq!(log.room(), Room::Short);
    assert_eq!(keep_up(&mut log, 500, &[]), []);
    assert_eq!(log.room(), Room::Short);
    assert!(!is_partial_there(&disk));
}

/// Goal: on a small disk the log is compacted as long as there is room for a snapshot, and not only at its setting.
#[test]
fn a_small_disk_has_the_log_compacted_early() {
    let disk = Double::default();
    disk.limit(Some(4 << 20));
    let config = LogConfig { segment_bytes: 400_000, reserve_bytes: 100_000, ..CONFIG };
    let (mut log, ..) = start(&disk, config).expect("a fresh log");
    let mut most = 0;
    for number in 0..10_000 {
        log.append(&[sized(1_000)]).expect("there is room");
        let saved = keep_up(&mut log, number, &[]);
        assert!(saved.iter().all(|saved| *saved == Saved::Whole), "{saved:?}");
        most = most.max(log.stats().history_bytes);
        assert_eq!(log.room(), Room::Ample);
    }
    assert!(log.stats().snapshots > 4 && most < 2 << 20, "{most} bytes");
}
