//! Snapshots: which files they replace, at every crash, and with any damage.

use super::*;
use std::collections::BTreeSet;

const CONFIG: LogConfig = LogConfig { segment_bytes: 300, compact_bytes: 600, ..LogConfig::DEFAULT };

fn item(number: u64) -> Record {
    Record::HighWaterMark { time_ms: number, sessions: number }
}

/// A host whose state is the set of items it has seen.
struct Host {
    log: Log<Double>,
    items: BTreeSet<u64>,
    /// Highest item up to which all are durable.
    synced: u64,
    next: u64,
    /// Items that the snapshot under way has so far.
    saved: Option<u64>,
}

impl Host {
    fn start(disk: &Double) -> Result<Host, OpenError> {
        let mut log = Log::open(disk.clone(), CONFIG, || identity(1))?;
        let (mut items, mut from_log) = (BTreeSet::new(), 0);
        log.replay(|replay| match replay {
            Replay::Record { again: true, .. } | Replay::Promised { .. } => Ok(()),
            Replay::Record { record: Record::HighWaterMark { time_ms, .. }, covered, .. } => {
                if !items.insert(time_ms) && !covered {
                    return Err(format!("item {time_ms} twice"));
                }
                from_log += 1;
                Ok(())
            }
            Replay::Record { record: Record::Identity { .. }, .. } => Ok(()),
            other => Err(format!("{other:?}")),
        })?;
        let next = items.last().map_or(0, |last| last + 1);
        Ok(Host { log, items, synced: next, next, saved: None })
    }

    fn append(&mut self, count: u64) -> Result<(), LogError> {
        let records: Vec<Record> = (self.next..self.next + count).map(item).collect();
        self.items.extend(self.next..self.next + count);
        self.next += count;
        self.log.append(&records).map(drop)
    }

    fn sync(&mut self) -> Result<(), LogError> {
        self.log.sync()?;
        self.synced = self.next;
        Ok(())
    }

    /// Upkeep, as a host does after each sync.
    fn keep_up(&mut self) -> Result<(), LogError> {
        match self.log.upkeep()? {
            Upkeep::Begin => self.saved = Some(0),
            Upkeep::Rest | Upkeep::Again | Upkeep::Moved(_) => {}
            Upkeep::GivenUp(_) => self.saved = None,
        }
        Ok(())
    }

    /// Saves the next 20 items.
    fn save(&mut self) -> Result<(), LogError> {
        self.save_some(20)
    }

    /// Saves the next items, this many.
    fn save_some(&mut self, count: u64) -> Result<(), LogError> {
        let Some(from) = self.saved else { return Ok(()) };
        let identity = self.log.identity();
        let records: Vec<Record> = (from == 0)
            .then(|| identity_record(identity))
            .into_iter()
            .chain(self.items.range(from..from + count).copied().map(item))
            .collect();
        let last = from + count >= self.next;
        self.saved = match self.log.save(&records, last)? {
            Saved::Part => Some(from + count),
            Saved::Whole => {
                self.synced = self.next;
                None
            }
            Saved::GivenUp(_) | Saved::Measured => None,
            Saved::Lacks(ids) => panic!("no part has gaps: {ids:?}"),
        };
        Ok(())
    }

    fn run(&mut self, rounds: u64) -> Result<(), LogError> {
        for round in 0..rounds {
            self.append(1 + round % 3)?;
            self.save()?;
            self.sync()?;
            self.keep_up()?;
        }
        Ok(())
    }
}

fn names(disk: &Double) -> Vec<String> {
    disk.files().keys().cloned().collect()
}

/// Goal: a snapshot rests between two parts, but the less the further the log outgrows it, and not while a damaged file is in use.
#[test]
fn a_snapshot_hurries_as_the_log_grows_and_at_once_if_it_replaces_damage() {
    let disk = Double::default();
    let mut host = Host::start(&disk).expect("a fresh log");
    let mut covered_bytes = 0;
    while host.saved.is_none() {
        host.append(3).and_then(|()| host.sync()).expect("no fault");
        covered_bytes = host.log.stats().history_bytes;
        host.keep_up().expect("no fault");
    }
    let grown_bytes_max = covered_bytes.max(4 * CONFIG.compact_bytes);
    let mut before_percent = 0;
    while before_percent < 100 {
        let grown_bytes = host.log.stats().history_bytes - covered_bytes;
        let percent = host.log.snapshot_haste_percent();
        assert_eq!(percent, (100 * grown_bytes / grown_bytes_max).min(100));
        assert!(before_percent <= percent);
        before_percent = percent;
        host.append(1).and_then(|()| host.sync()).expect("no fault");
    }
    while host.saved.is_some() {
        host.save().expect("no fault");
    }
    host.log.want_snapshot(None);
    while host.saved.is_none() {
        host.keep_up().expect("no fault");
    }
    assert_eq!(host.log.snapshot_haste_percent(), 100, "it replaces a damaged file");
}

/// A host that was just asked for the first part of a snapshot, and the number of the segment that is being written.
fn asked_for_a_snapshot(disk: &Double) -> (Host, u64) {
    let mut host = Host::start(disk).expect("a fresh log");
    while host.saved.is_none() {
        host.append(3).and_then(|()| host.sync()).and_then(|()| host.keep_up()).expect("no fault");
    }
    let live = names(disk).iter().filter_map(|file| segment::number(file)).max().expect("one is written");
    (host, live)
}

/// Numbers of the segments of a log.
fn segments(disk: &Double) -> Vec<u64> {
    names(disk).iter().filter_map(|file| segment::number(file)).collect()
}

// E22, E26: a start from the files at any moment has all that was durable
/// Goal: a snapshot destroys nothing before it counts, and stops no writer. Method: between all of its parts records are appended and
/// synced, and a start from the files of that moment finds them; every finished segment is still there.
#[test]
fn a_snapshot_under_way_takes_nothing_away_and_stops_no_writer() {
    let disk = Double::default();
    let (mut host, live) = asked_for_a_snapshot(&disk);
    let finished = segments(&disk);
    assert_eq!(finished, (1..=live).collect::<Vec<u64>>(), "as it begins");
    assert!(live > 2 && host.items.len() > 10, "several segments, and several parts");
    let (mut parts, mut synced) = (0, host.synced);
    while host.saved.is_some() {
        host.save_some(3).expect("no fault");
        parts += 1;
        host.append(1).and_then(|()| host.sync()).expect("no fault");
        assert!(host.synced > synced, "what is written meanwhile is durable");
        synced = host.synced;
        let there = segments(&disk);
        assert!(finished.iter().all(|number| there.contains(number)), "{finished:?} were there, and now {there:?}");
        let again = Host::start(&disk.crash(Kept::Nothing, true)).expect("whole");
        assert_eq!(again.items, host.items, "after part {parts}");
    }
    assert!(parts > 3, "{parts} parts");
    assert!(names(&disk).contains(&snapshot::name(live)), "it counts: {:?}", names(&disk));
}

// E26, E28
/// Goal: a snapshot covers every segment but the one that is being written, and the next start skips what it covers. Method: the
/// covered segments are made unreadable before they are removed, and a start has everything all the same.
#[test]
fn a_snapshot_covers_all_but_the_segment_that_is_being_written() {
    let disk = Double::default();
    let (mut host, live) = asked_for_a_snapshot(&disk);
    while host.saved.is_some() {
        host.save().expect("no fault");
    }
    let mut files = disk.files();
    assert!(files.contains_key(&snapshot::name(live)), "it stands for all before {live}");
    let covered = files.iter_mut().filter(|(file, _)| segment::number(file).is_some_and(|number| number < live));
    let mut count = 0;
    for (_, bytes) in covered {
        bytes.fill(0xa5);
        count += 1;
    }
    assert!(count > 1, "{count} are covered");
    assert_eq!(Host::start(&Double::with_files(&files)).expect("whole").items, host.items);
    while host.log.upkeep().expect("no fault") == Upkeep::Again {}
    assert_eq!(segments(&disk), [live], "all that is covered goes, and nothing else");
    assert_eq!(Host::start(&disk).expect("whole").items, host.items);
}

// T27
#[test]
fn a_snapshot_takes_the_place_of_the_segments_before_it() {
    let disk = Double::default();
    let mut host = Host::start(&disk).expect("a fresh log");
    host.run(60).expect("no fault");
    while host.saved.is_none() && host.log.upkeep().expect("no fault") == Upkeep::Again {}
    let stats = host.log.stats();
    assert!(stats.snapshots >= 2, "{stats:?}");
    let snapshots: Vec<String> = names(&disk).into_iter().filter(|file| file.ends_with(".snapshot")).collect();
    let [newest] = snapshots.as_slice() else { panic!("one counts: {snapshots:?}") };
    let older = |file: &String| segment::number(file) < snapshot::number(newest);
    assert!(!names(&disk).iter().any(|file| segment::is_of_log(file) && older(file)), "{:?}", names(&disk));
    let again = Host::start(&disk).expect("whole");
    assert_eq!(again.items, host.items);
    let again = again.log.stats();
    assert_eq!((again.history_bytes, again.snapshot_bytes), (stats.history_bytes, stats.snapshot_bytes));
}

// T27, E29
/// Goal: however long the history is, the size on disk is bounded by the live data.
#[test]
fn the_log_does_not_grow_with_its_history() {
    let disk = Double::default();
    let (mut log, ..) = start(&disk, CONFIG).expect("a fresh log");
    let mut most = 0;
    for number in 0..2_000 {
        log.append(&[item(number)]).expect("no fault");
        log.sync().expect("no fault");
        let mut upkeep = Upkeep::Again;
        while upkeep == Upkeep::Again {
            upkeep = log.upkeep().expect("no fault");
        }
        if upkeep == Upkeep::Begin {
            assert_eq!(log.save(&[identity_record(log.identity()), item(number)], true), Ok(Saved::Whole));
        }
        most = most.max(disk.files().values().map(|file| bytes_of_any(file)).sum::<u64>());
    }
    assert!(log.stats().snapshots > 50);
    assert!(most < 8_000, "{most} bytes");
}

fn bytes_of_any(file: &[u8]) -> u64 {
    if Header::decode(file).is_ok() { bytes_of(file) } else { file.len() as u64 }
}

// E25
/// Goal: whenever the machine stops, a start finds every item that was durable, and none that never was; the same holds after a
/// second stop in the middle of that start.
#[test]
fn no_crash_loses_an_item() {
    let mut points = 0;
    // A write has two dozen steps: a prime stride stops at different ones each time.
    for steps in (0..).step_by(11) {
        let disk = Double::default();
        disk.fail_after(steps);
        let (mut synced, mut appended, mut finished) = (0, 0, false);
        if let Ok(mut host) = Host::start(&disk) {
            finished = host.run(26).is_ok();
            (synced, appended) = (host.synced, host.next);
            assert!(!finished || host.log.stats().snapshots > 0, "the run compacts");
        }
        for (place, crashed) in disk.crashes().into_iter().enumerate() {
            points += 1;
            check(&Double::with_files(&crashed.files()), synced, appended);
            if (steps + place as u64).is_multiple_of(97) {
                for more in 0..40 {
                    let tried = Double::with_files(&crashed.files());
                    tried.fail_after(more);
                    let done = Host::start(&tried).is_ok_and(|mut host| host.run(3).is_ok());
                    tried.crashes().iter().for_each(|twice| check(twice, synced, appended + 6));
                    if done {
                        break;
                    }
                }
            }
        }
        if finished {
            assert!(points > 1_000, "{points} states");
            return;
        }
    }
}

fn check(disk: &Double, synced: u64, appended: u64) {
    let mut host = Host::start(disk).expect("a crash leaves what can be mended");
    assert!(host.next >= synced && host.next <= appended, "{synced} to {appended} items, and {} are there", host.next);
    assert_eq!(host.items, (0..host.next).collect(), "a prefix");
    host.run(3).expect("no fault");
    let again = Host::start(&disk.crash(Kept::Nothing, false)).expect("whole");
    assert_eq!(again.items, host.items);
}

/// Goal: damage to a snapshot is noticed, and never yields a state.
#[test]
fn any_changed_byte_of_a_snapshot_is_refused_or_harmless() {
    let disk = Double::default();
    let mut host = Host::start(&disk).expect("a fresh log");
    host.run(20).expect("no fault");
    let mut files = disk.files();
    let name = names(&disk).into_iter().find(|file| file.ends_with(".snapshot")).expect("it compacts");
    let (mut refused, length) = (0, files[&name].len());
    for place in 0..length {
        for change in [1, 0x80, 0xff] {
            files.get_mut(&name).expect("listed")[place] ^= change;
            match Host::start(&Double::with_files(&files)) {
                Ok(again) => assert_eq!(again.items, host.items, "byte {place}"),
                Err(_) => refused += 1,
            }
            files.get_mut(&name).expect("listed")[place] ^= change;
        }
    }
    assert!(refused > 2 * length, "{refused} of {}", 3 * length);
    for cut in 0..length {
        let mut files = files.clone();
        files.get_mut(&name).expect("listed").truncate(cut);
        if let Ok(again) = Host::start(&Double::with_files(&files)) {
            assert_eq!(again.items, host.items, "cut at {cut}");
        }
    }
    files.remove(&name);
    assert!(Host::start(&Double::with_files(&files)).is_err(), "without it, segments are missing");
}

#[test]
fn the_segment_that_a_snapshot_is_followed_by_is_missed() {
    let disk = Double::default();
    Host::start(&disk).expect("a fresh log").run(20).expect("no fault");
    let mut files = disk.files();
    files.retain(|file, _| file.ends_with(".snapshot"));
    assert!(matches!(Host::start(&Double::with_files(&files)), Err(OpenError::Names { .. })));
}

#[test]
fn a_log_shorter_than_its_snapshot_knows_is_refused() {
    let disk = Double::default();
    let mut host = Host::start(&disk).expect("a fresh log");
    while host.saved.is_none() {
        host.run(1).expect("no fault");
    }
    host.append(3).expect("no fault");
    while host.saved.is_some() {
        host.save().expect("no fault");
    }
    let mut files = disk.files();
    let last = files.keys().rfind(|file| segment::is_of_log(file)).expect("there is one").clone();
    let header = Header::decode(&files[&last]).expect("a header");
    let file = files.get_mut(&last).expect("listed");
    file.truncate(header.records_offset() as usize);
    file[HEADER_BYTES..].fill(0);
    let Err(OpenError::Damaged { known, .. }) = Host::start(&Double::with_files(&files)) else { panic!("refused") };
    assert!(known.contains("the snapshot knows of record"), "{known}");
}

/// Goal: without space for a snapshot the log continues, tries again only when it has grown, and leaves no file behind.
#[test]
fn a_snapshot_that_cannot_be_written_is_given_up() {
    let disk = Double::default();
    let mut host = Host::start(&disk).expect("a fresh log");
    disk.refuse(".partial");
    let mut rounds = 0;
    while rounds < 60 {
        host.run(1).expect("the log is unharmed");
        rounds += 1;
    }
    assert_eq!(host.log.stats().snapshots, 0);
    assert!(names(&disk).iter().all(|file| segment::is_of_log(file)), "{:?}", names(&disk));
    disk.refuse("nothing");
    while host.log.stats().snapshots == 0 {
        host.run(1).expect("no fault");
        rounds += 1;
        assert!(rounds < 200, "it tries again");
    }
    assert_eq!(Host::start(&disk).expect("whole").items, host.items);
}
