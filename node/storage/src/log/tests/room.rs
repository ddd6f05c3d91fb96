//! Snapshots where the disk is nearly full.

use super::*;
use crate::disk::Disk;
use crate::space::RESERVE;
use crate::{Saved, Shortage, SnapshotError, Upkeep};
use norn_model::host::Room;
use norn_model::task::Task;
use norn_wire::random::Random;
use norn_wire::{QueueName, Spec, TaskId};

const RESERVE_BYTES: u64 = 40_000;
const DISK_BYTES: u64 = 400_000;
/// A disk that is soon and often full.
const SMALL_DISK_BYTES: u64 = 200_000;
/// Smaller segments, which begin with fewer bytes of their own.
const SMALL_SEGMENTS: LogConfig = LogConfig { segment_bytes: 15_000, ..CONFIG };
const SMALL_OWN_BYTES: u64 = 2_000;
/// Bytes of header and heads that a segment begins with; a hole on a real disk.
const OWN_BYTES: u64 = 6_000;
const CONFIG: LogConfig =
    LogConfig { segment_bytes: 50_000, ahead_bytes: 0, reserve_bytes: RESERVE_BYTES, ..LogConfig::DEFAULT };

fn used_bytes(disk: &Double) -> u64 {
    disk.files().values().map(|bytes| bytes.len() as u64).sum()
}

fn is_partial_there(disk: &Double) -> bool {
    disk.files().keys().any(|file| snapshot::is_partial(file))
}

/// A log that has filled the disk and used some of its reserve.
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

/// Upkeep, as a host does at that time. Returns the outcome of each request for the state.
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

/// Goal: a disk full of ended tasks regains space, however large the log may become by its configuration.
#[test]
fn a_log_full_of_what_has_ended_makes_room() {
    let (mut log, disk) = full();
    // Only the never-used quarter of the reserve is left.
    disk.limit(Some(used_bytes(&disk) + RESERVE_BYTES / 4 + OWN_BYTES));
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

/// Goal: appends do not wait while the room of a large file is freed, unless they need that room.
#[test]
fn room_is_waited_for_only_where_it_is_short() {
    let (mut log, disk) = full();
    let count = |steps: &[String], how: &str| steps.iter().filter(|step| step.starts_with(how)).count();
    disk.take_trace();
    disk.limit(Some(used_bytes(&disk) + RESERVE_BYTES / 4 + OWN_BYTES));
    assert_eq!(keep_up(&mut log, 5, &[sized(1_000)]), [Saved::Measured, Saved::Whole]);
    let steps = disk.take_trace();
    assert_eq!((count(&steps, "retire"), count(&steps, "remove") > 0), (0, true), "the disk is full");

    let disk = Double::default();
    let (mut log, ..) = start(&disk, LogConfig { compact_bytes: 100_000, ..CONFIG }).expect("a fresh log");
    for at_ms in 0..300 {
        log.append(&[sized(1_000)]).expect("there is room");
        log.sync().expect("no fault");
        keep_up(&mut log, at_ms, &[sized(1_000)]);
    }
    let steps = disk.take_trace();
    assert!(count(&steps, "retire") > 0);
    assert_eq!(count(&steps, "retire"), count(&steps, "remove"), "there is ample room");
}

/// Goal: a snapshot may use the reserve.
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

/// Goal: a snapshot that was found to fit is not given up for the segment in which the log continues.
#[test]
fn a_segment_that_begins_with_little_space_is_small() {
    let (mut log, disk) = full();
    // Only the never-used quarter of the reserve is left: too little for the slots of a large segment beside the snapshot.
    disk.limit(Some(used_bytes(&disk) + RESERVE_BYTES / 4));
    log.commit(5_000).expect("no fault");
    let state = [sized(1_000)];
    assert_eq!(log.upkeep(), Ok(Upkeep::Begin));
    assert_eq!(hand_over(&mut log, &state), Saved::Measured);
    assert_eq!(log.upkeep(), Ok(Upkeep::Begin));
    log.append(&[sized(10)]).expect("there is room");
    assert_eq!(hand_over(&mut log, &state), Saved::Whole);
}

/// Goal: a state for which there is no space costs no bytes on the disk, and is measured again until it is smaller.
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
    assert!(measured.iter().copied().eq((0..60_000).step_by(1_000)), "{measured:?}");
    assert_eq!((log.stats().segment, log.room()), (segment, Room::Short));
    assert!(disk.files() == files, "nothing was written");
    assert_eq!(keep_up(&mut log, 63_000, &[]), [Saved::Measured, Saved::Whole]);
    assert_eq!(log.room(), Room::Ample);
}

/// Goal: a snapshot does not use up the space that the log needs.
#[test]
fn a_snapshot_gives_way_to_the_log() {
    let (mut log, disk) = full();
    assert_eq!(log.upkeep(), Ok(Upkeep::Begin));
    assert_eq!(hand_over(&mut log, &[]), Saved::Measured);
    assert_eq!(log.upkeep(), Ok(Upkeep::Begin));
    let first = [identity_record(log.identity()), sized(9_000)];
    assert_eq!(log.save(&first, false), Ok(Saved::Part));
    assert!(is_partial_there(&disk));
    // Another process takes the rest of the space.
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

/// Goal: a part that would take the last space is not written, and the parts before it are removed.
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

/// Goal: on a small disk the log is compacted early, while there is space for a snapshot, and not only at its configured size.
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

/// Goal: on a small disk a snapshot does not rest, though there is room yet: the log would take what the snapshot needs.
#[test]
fn a_snapshot_on_a_small_disk_is_urgent_before_its_room_is_short() {
    let disk = Double::default();
    disk.limit(Some(4 << 20));
    let config = LogConfig { segment_bytes: 400_000, reserve_bytes: 100_000, ..CONFIG };
    let (mut log, ..) = start(&disk, config).expect("a fresh log");
    while log.upkeep() != Ok(Upkeep::Begin) {
        log.append(&[sized(1_000)]).expect("there is room");
    }
    assert_eq!(log.room(), Room::Ample);
    assert_eq!(log.snapshot_haste_percent(), 100);
}

/// A part of a state whose tasks have bodies, which get new places in a snapshot.
fn with_bodies(partitions: u16) -> Vec<Record> {
    let facts = |number| {
        let spec = Spec::new(QueueName::new("mail").expect("a name"), vec![7; 300]);
        let items = vec![(TaskId::new(1, u32::from(number), 1, 1), Task::from_spec(Arc::new(spec)))];
        Record::Facts { partition: PartitionId(number), items: Arc::new(items) }
    };
    (0..partitions).map(facts).collect()
}

/// A log on a full disk with a finished snapshot, while all files that it replaces still exist.
fn whole(state: &[Record]) -> (Log<Double>, Double) {
    let (mut log, disk) = full();
    assert_eq!(log.upkeep(), Ok(Upkeep::Begin));
    assert_eq!(hand_over(&mut log, state), Saved::Measured);
    assert_eq!(log.upkeep(), Ok(Upkeep::Begin));
    assert_eq!(hand_over(&mut log, state), Saved::Whole);
    assert!(disk.files().contains_key(&segment::name(1)));
    (log, disk)
}

/// Goal: between a snapshot and the removal of the files it replaces, a write that needs their space gets it.
#[test]
fn a_write_right_after_a_snapshot_has_the_room_of_what_that_replaces() {
    let (mut log, disk) = whole(&[sized(1_000)]);
    // Another process takes the rest of the space.
    disk.limit(Some(used_bytes(&disk) + 5_000));
    log.append(&[sized(9_000)]).expect("there is room");
    log.sync().expect("no fault");
    assert_eq!(log.room(), Room::Short, "the room that the log needed is there");
    assert!(!disk.files().contains_key(&segment::name(1)));
    assert_eq!(keep_up(&mut log, 5, &[]), []);
    let (_, records, _) = start(&disk, CONFIG).expect("whole");
    assert_eq!(records.last(), Some(&sized(9_000)));
}

/// Goal: until the new places of bodies are reported, the files with the old places stay and do not count as free for any write: the
/// node learns that its last space is going before a write fails.
#[test]
fn files_that_cannot_go_yet_are_no_room() {
    let state = with_bodies(6);
    let (mut log, disk) = whole(&state);
    disk.limit(Some(used_bytes(&disk) + RESERVE_BYTES / 4));
    assert_eq!(log.look_for_room(), Ok(Room::Short), "there will be more in a moment");
    log.append(&[sized(1_000)]).expect("there is room");
    assert_eq!(log.room(), Room::Out, "it was told before a write failed");
    assert!(disk.files().contains_key(&segment::name(1)), "bodies are read from there");
    while let Upkeep::Moved(_) = log.upkeep().expect("the log is unharmed") {}
    log.append(&[sized(9_000)]).expect("there is room");
    assert_eq!(log.room(), Room::Short);
}

/// Goal: after a process that ended between a snapshot and the removals, the first write of the next finds the space of the replaced
/// files.
#[test]
fn a_start_has_the_room_of_what_a_snapshot_has_replaced() {
    let (log, disk) = whole(&[sized(1_000)]);
    drop(log);
    let disk = disk.crash(Kept::Nothing, true);
    disk.limit(Some(used_bytes(&disk) + 2_000));
    let mut log = Log::open(disk.clone(), CONFIG, || identity(99)).expect("a log");
    log.read(|replay| replay.whole().map(drop)).expect("whole");
    assert_eq!(log.shortage(), Ok(None));
    log.mend().expect("nothing to mend");
    log.append(&[sized(5_000)]).expect("there is room");
    assert_eq!(log.room(), Room::Short);
    assert_eq!(keep_up(&mut log, 5, &[]), []);
    assert_eq!(log.room(), Room::Ample);
}

/// Goal: the reserve that was given up for a snapshot is not filled again before the snapshot is written.
#[test]
fn the_reserve_stays_away_while_a_snapshot_needs_its_room() {
    let disk = Double::default();
    disk.limit(Some(DISK_BYTES));
    let config = LogConfig { compact_bytes: 100_000, ..CONFIG };
    let (mut log, ..) = start(&disk, config.clone()).expect("a fresh log");
    assert_eq!(log.upkeep(), Ok(Upkeep::Rest));
    while used_bytes(&disk) < 300_000 {
        log.append(&[sized(1_000)]).expect("there is room");
    }
    let (state, of_state) = (vec![sized(1_000); 110], 110_000);
    // Less than the log, the snapshot and the space that it must leave free; with the reserve, more than three times the reserve.
    disk.limit(Some(used_bytes(&disk) + of_state));
    assert_eq!(log.look_for_room(), Ok(Room::Ample));
    assert_eq!(keep_up(&mut log, 5, &state), [Saved::Measured, Saved::Whole]);
    assert_eq!(log.room(), Room::Ample);
    assert!(disk.files().contains_key(RESERVE), "it is filled again");
    start(&disk, config).expect("whole");
}

/// Goal: a start with too little space is refused before anything is changed, and a start that has the reserve uses it.
#[test]
fn a_start_without_room_changes_nothing_and_says_what_it_needs() {
    let (log, disk) = full();
    drop(log);
    let (least_bytes, ample_bytes) = (RESERVE_BYTES / 4 + RESERVE_BYTES / 16, 3 * RESERVE_BYTES);
    let files = disk.files();
    for free_bytes in [0, RESERVE_BYTES / 4, least_bytes - 1, least_bytes] {
        disk.limit(Some(used_bytes(&disk) + free_bytes));
        let mut log = Log::open(disk.clone(), CONFIG, || identity(99)).expect("a log");
        log.read(|replay| replay.whole().map(drop)).expect("whole");
        let shortage = (free_bytes < least_bytes).then_some(Shortage { free_bytes, least_bytes, ample_bytes });
        assert_eq!(log.shortage(), Ok(shortage));
        assert!(disk.files() == files, "nothing was changed");
        if shortage.is_none() {
            log.mend().expect("nothing to mend");
            log.append(&[sized(1_000)]).expect("there is room");
            assert_eq!(log.room(), Room::Short);
        }
    }
    let disk = Double::with_file(RESERVE, &vec![0; RESERVE_BYTES as usize]);
    disk.limit(Some(RESERVE_BYTES));
    let mut log = Log::open(disk.clone(), CONFIG, || identity(99)).expect("a fresh log");
    log.read(|replay| replay.whole().map(drop)).expect("fresh");
    assert_eq!(log.shortage(), Ok(None));
    log.mend().expect("the reserve is for this");
    assert!(!disk.files().contains_key(RESERVE));
}

/// Goal: the file of a snapshot that could not even be begun is removed.
#[test]
fn what_is_left_of_a_snapshot_that_was_not_begun_is_removed() {
    let is_left = |steps| {
        let (mut log, disk) = full();
        assert_eq!(log.upkeep(), Ok(Upkeep::Begin));
        assert_eq!(hand_over(&mut log, &[]), Saved::Measured);
        disk.fail_after(steps);
        let upkeep = log.upkeep();
        disk.fail_after(1_000_000);
        match upkeep {
            Ok(Upkeep::GivenUp(_)) if is_partial_there(&disk) => {
                assert_eq!(keep_up(&mut log, 5, &[]), []);
                assert!(!is_partial_there(&disk));
                true
            }
            _ => false,
        }
    };
    assert!((0..100).any(is_left), "some failure leaves a part of it");
}

/// A host on its own disk, with random operations.
struct Filling {
    log: Log<Double>,
    disk: Double,
    random: Random,
    /// Records of the state, and the part of it that is saved next.
    live: Vec<Record>,
    part: Option<usize>,
    /// The host learned that the disk is full, since the last start.
    told_out: bool,
}

impl Filling {
    fn new(seed: u64) -> Filling {
        let disk = Double::default();
        disk.limit(Some(SMALL_DISK_BYTES));
        let (log, ..) = start(&disk, SMALL_SEGMENTS).expect("a fresh log");
        Filling { log, disk, random: Random::new(seed), live: with_bodies(6), part: None, told_out: false }
    }

    /// Checks that the reported space is right, whatever was written of a snapshot or made obsolete by one.
    fn check(&mut self) {
        let files = self.disk.files();
        let newest = files.keys().filter_map(|file| snapshot::number(file)).max().unwrap_or(0);
        let needless =
            |file: &str| segment::number(file).or(snapshot::number(file)).is_some_and(|number| number < newest);
        let counts = |file: &String| snapshot::is_partial(file) || needless(file);
        let had_back: u64 = files.iter().filter(|(file, _)| counts(file)).map(|(_, bytes)| bytes.len() as u64).sum();
        let (held, free) = (files.contains_key(RESERVE), self.disk.space().expect("no fault"));
        match self.log.room() {
            Room::Ample => assert!(held && free + had_back >= RESERVE_BYTES - SMALL_OWN_BYTES, "{free} and {had_back}"),
            Room::Short => {
                assert!(held || free + had_back >= RESERVE_BYTES / 4 - SMALL_OWN_BYTES, "{free} and {had_back}")
            }
            Room::Out => self.told_out = true,
        }
    }

    fn append(&mut self) {
        let record = sized(self.random.between(1, RESERVE_BYTES / 4 - SMALL_OWN_BYTES - 200) as usize);
        if self.log.room() != Room::Out {
            if self.random.chance(1, 8) {
                self.live.push(record.clone());
            }
            self.log.append(&[record]).expect("what was not said to be gone is there");
            self.log.sync().expect("no fault");
        }
    }

    fn upkeep(&mut self) {
        self.log.commit(self.random.between(0, 60_000_000)).expect("no fault");
        loop {
            match self.log.upkeep().expect("the log is unharmed") {
                Upkeep::Begin => self.part = Some(0),
                // As a real host does.
                Upkeep::Moved(_) if self.log.room() != Room::Ample => continue,
                Upkeep::Rest | Upkeep::Again | Upkeep::Moved(_) | Upkeep::GivenUp(_) => {}
            }
            return;
        }
    }

    fn save(&mut self) {
        let Some(part) = self.part else { return };
        let first = (part == 0).then(|| identity_record(self.log.identity()));
        let mut rest = self.live.iter().skip(3 * part);
        let records: Vec<Record> = first.into_iter().chain(rest.by_ref().take(3).cloned()).collect();
        let saved = self.log.save(&records, rest.next().is_none()).expect("the log is unharmed");
        self.part = if saved == Saved::Part { Some(part + 1) } else { None };
        self.upkeep();
    }

    /// The process ends, and another one starts; on a larger disk if it ended for want of space.
    fn restart(&mut self) {
        self.disk = self.disk.crash(Kept::Nothing, self.random.chance(1, 2));
        self.disk.limit(Some(SMALL_DISK_BYTES));
        let mut log = Log::open(self.disk.clone(), SMALL_SEGMENTS, || identity(99)).expect("a log");
        let read = log.read(|replay| match replay {
            Replay::Lost { .. } => Err("nothing was lost".into()),
            Replay::Record { .. } | Replay::Promised { .. } => Ok(()),
        });
        read.expect("whole");
        if self.told_out || log.shortage().expect("no fault").is_some() {
            self.disk.limit(Some(used_bytes(&self.disk) + 3 * RESERVE_BYTES));
        }
        log.mend().expect("there is room");
        (self.log, self.part, self.told_out) = (log, None, false);
    }
}

/// Goal: as long as the log alone fills the disk, no write fails before the node learns that its last space is going, whatever
/// becomes of snapshots; and a snapshot does free space sooner or later. Method: any order of writes, upkeep, parts of the state, and
/// crashes.
#[test]
fn no_write_fails_whatever_becomes_of_snapshots() {
    let (mut snapshots, mut outs) = (0, 0);
    for seed in 0..20 {
        let (mut filling, mut before) = (Filling::new(seed), 0);
        for _ in 0..2_000 {
            match filling.random.below(100) {
                0..45 => filling.append(),
                45..65 => filling.upkeep(),
                65..95 => filling.save(),
                95..98 => filling.live.truncate(6),
                _ if filling.random.chance(1, 4) => filling.restart(),
                _ => {}
            }
            filling.check();
            let saved = filling.log.stats().snapshots;
            snapshots += saved.saturating_sub(before);
            before = saved;
            if filling.told_out {
                outs += 1;
                filling.restart();
            }
        }
    }
    assert!(snapshots > 100 && outs > 5, "{snapshots} snapshots, {outs} times without room");
}
