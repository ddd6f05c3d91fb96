//! Every crash of a small workload, one by one, and every crash of each recovery after it.
//!
//! Goal: wherever a process or its machine stops, the next start finds a prefix that holds all that was synced, and goes on
//! from there; this holds as well if it is stopped itself, however often. Method: a workload is ended after each of its
//! operations on the disk. Every state that a crash may leave then is recovered from, and that recovery is ended after each
//! of its own operations, and so on, until no state is new.

use super::crash::{Outcome, Step, check, run};
use super::*;
use crate::storage::double::Files;
use std::collections::BTreeMap;

const CONFIG: LogConfig = LogConfig { segment_bytes: 400, ahead_bytes: 700, compact_bytes: 0, ..LogConfig::DEFAULT };

/// More operations than the workload or a start has: what does not end by then never does.
const OPERATIONS_MAX: u64 = 1_000;

/// What goes through every kind of operation that a log does: a new thing that it can do is a line here. Of what each segment
/// says again there is little, as every sector of it doubles the states.
fn workload() -> Vec<Step> {
    let facts = |number: u64| record(5 * number + 2);
    vec![
        Step::Append(vec![Record::Boot { count: 1 }]),
        Step::Append(vec![facts(1), facts(2), facts(3)]),
        Step::Sync,
        // Through the end of a segment, in one call.
        Step::Append(vec![sized(150), sized(180)]),
        Step::Append(vec![facts(4)]),
        Step::Sync,
        // What the process before left unsynced.
        Step::Append(vec![facts(5), sized(90)]),
        Step::Reopen,
        // Larger than a segment, so through many sectors.
        Step::Append(vec![sized(1_300)]),
        Step::Append(vec![facts(6), facts(7)]),
        Step::Sync,
        // No slot is left.
        Step::Append((10..13).map(|count| Record::Boot { count }).collect()),
        Step::Append((13..16).map(|count| Record::Boot { count }).collect()),
        Step::Sync,
        Step::Append((16..19).map(|count| Record::Boot { count }).collect()),
        // Another file takes the place of all of them.
        Step::Compact,
        Step::Append(vec![facts(8), sized(60)]),
        Step::Sync,
        Step::Append(vec![facts(9)]),
    ]
}

/// States that were recovered from.
#[derive(Default)]
struct Explorer {
    /// What is asked of each state that was found.
    seen: BTreeMap<Files, Outcome>,
    /// States to recover from, each with what must be found in it.
    waiting: Vec<(Files, Outcome)>,
    /// States that crashes left, the same ones more than once.
    tried: u64,
}

impl Explorer {
    /// All that a crash of this disk may leave.
    fn crash(&mut self, disk: &Double, outcome: &Outcome) {
        for files in disk.images() {
            self.tried += 1;
            if let Some(outcome) = self.ask(&files, outcome) {
                self.waiting.push((files, outcome));
            }
        }
    }

    /// Asks more of a state than before; what is asked by now, if that is anything new.
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

    /// Recovers from every state that waits.
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

    /// Starts on a disk and crashes after so many operations; whether the start had ended by then.
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
            // Others may be told of it.
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
        // The process alone ends, and the machine during the start that follows.
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
