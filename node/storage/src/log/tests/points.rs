//! Every crash of a small workload, one by one, and every crash of each recovery after it.
//!
//! Goal: wherever a process or its machine stops, the next start finds a prefix that has all synced records, and continues from
//! there; this also holds if that start is stopped itself, however often. Method: a workload is stopped after each of its operations
//! on the disk. Every state that a crash may leave then is recovered from, and that recovery is stopped after each of its own
//! operations, and so on, until no state is new.

use super::crash::{Outcome, Step, check, run};
use super::*;
use crate::double::Files;
use std::collections::BTreeMap;

const CONFIG: LogConfig = LogConfig { segment_bytes: 400, ahead_bytes: 700, compact_bytes: 0, ..LogConfig::DEFAULT };

/// More operations than the workload or a start has: a run that does not end by then never does.
const OPERATIONS_MAX: u64 = 1_000;

/// A workload with every kind of operation of a log: a new kind needs a line here. It has few promises for segments to repeat, as
/// every sector of them doubles the number of states.
fn workload() -> Vec<Step> {
    let facts = |number: u64| record(5 * number + 2);
    vec![
        Step::Append(vec![Record::Boot { count: 1 }]),
        Step::Append(vec![facts(1), facts(2), facts(3)]),
        Step::Sync,
        // Across the end of a segment, in one call.
        Step::Append(vec![sized(150), sized(180)]),
        Step::Append(vec![facts(4)]),
        Step::Sync,
        // Records that the previous process left unsynced.
        Step::Append(vec![facts(5), sized(90)]),
        Step::Reopen,
        // Larger than a segment, so across many sectors.
        Step::Append(vec![sized(1_300)]),
        Step::Append(vec![facts(6), facts(7)]),
        Step::Sync,
        // Uses up the slots.
        Step::Append((10..13).map(|count| Record::Boot { count }).collect()),
        Step::Append((13..16).map(|count| Record::Boot { count }).collect()),
        Step::Sync,
        Step::Append((16..19).map(|count| Record::Boot { count }).collect()),
        // A snapshot replaces all of these segments.
        Step::Compact,
        Step::Append(vec![facts(8), sized(60)]),
        Step::Sync,
        Step::Append(vec![facts(9)]),
    ]
}

/// Explores the states that crashes leave.
#[derive(Default)]
struct Explorer {
    /// Requirements on each state found.
    seen: BTreeMap<Files, Outcome>,
    /// States to recover from, each with the requirements on it.
    waiting: Vec<(Files, Outcome)>,
    /// States that crashes left, repetitions included.
    tried: u64,
}

impl Explorer {
    /// Adds all states that a crash of this disk may leave.
    fn crash(&mut self, disk: &Double, outcome: &Outcome) {
        for files in disk.images() {
            self.tried += 1;
            if let Some(outcome) = self.ask(&files, outcome) {
                self.waiting.push((files, outcome));
            }
        }
    }

    /// Adds requirements on a state. Returns all of them if any is new.
    fn ask(&mut self, files: &Files, outcome: &Outcome) -> Option<Outcome> {
        let Some(known) = self.seen.get_mut(files) else {
            self.seen.insert(files.clone(), outcome.clone());
            return Some(outcome.clone());
        };
        let before = (known.identity, known.synced, known.appended.len());
        known.identity = known.identity.or(outcome.identity);
        known.synced = known.synced.max(outcome.synced);
        known.appended.truncate(outcome.appended.len());
        (before != (known.identity, known.synced, known.appended.len())).then(|| known.clone())
    }

    /// Recovers from every waiting state.
    fn explore(&mut self) {
        while let Some((files, outcome)) = self.waiting.pop() {
            check(&Double::with_files(&files), &CONFIG, &outcome);
            for operations in 0.. {
                let disk = Double::with_files(&files);
                if self.recover(&disk, operations, &outcome) {
                    break;
                }
            }
        }
    }

    /// Starts on a disk and crashes after this many operations. Returns whether the start had finished by then.
    fn recover(&mut self, disk: &Double, operations: u64, outcome: &Outcome) -> bool {
        assert!(operations < OPERATIONS_MAX, "a start fails on a good disk");
        disk.fail_after_operations(operations);
        let mut outcome = outcome.clone();
        let mut read = 0;
        let opened = Log::open(disk.clone(), CONFIG, || identity(50)).ok();
        let identity = opened.as_ref().map(Log::identity);
        let count = |replay: Replay| {
            read += usize::from(replay.whole()?.is_some());
            Ok(())
        };
        let ended = opened.is_some_and(|mut log| log.replay(count).is_ok());
        if ended {
            // The node may have announced it.
            outcome.identity = outcome.identity.or(identity);
            assert!(read > outcome.synced, "the identity and all that was synced");
            outcome.synced = read - 1;
        }
        self.crash(disk, &outcome);
        ended
    }
}

fn stopped(operations: u64, script: &[Step]) -> (Double, Outcome) {
    assert!(operations < OPERATIONS_MAX, "the workload fails on a good disk");
    let disk = Double::default();
    disk.fail_after_operations(operations);
    let outcome = run(&disk, &CONFIG, script);
    (disk, outcome)
}

#[test]
fn every_crash_point_is_recovered_from() {
    let script = workload();
    let mut explorer = Explorer::default();
    let mut points = 0;
    for operations in 0.. {
        points += 1;
        let (disk, outcome) = stopped(operations, &script);
        explorer.crash(&disk, &outcome);
        // Only the process ends here; the machine crashes during the start that follows.
        for more in 0.. {
            let (disk, outcome) = stopped(operations, &script);
            if explorer.recover(&disk, more, &outcome) {
                break;
            }
        }
        explorer.explore();
        if outcome.finished {
            let snapshot = disk.files().keys().any(|file| snapshot::number(file).is_some_and(|number| number > 5));
            assert!(snapshot, "the workload rotates and compacts");
            break;
        }
    }
    let Explorer { seen, tried, .. } = &explorer;
    eprintln!("{points} crash points, {tried} states after a crash, {} of them different", seen.len());
    assert!(points >= 50 && *tried >= 50_000 && seen.len() >= 4_000, "the workload has become too small");
}
