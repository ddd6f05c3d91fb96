//! Crashes of any run, in the middle of any write, and of the recovery after it.
//!
//! Goal: the records read back are a prefix of those appended, and include all that were synced. Method: random runs on a disk that
//! fails after a number of steps; a step is a part of a write or an operation. `points.rs` stops one run after each of its
//! operations.

use super::*;
use proptest::prelude::*;

#[derive(Debug, Clone)]
pub(super) enum Step {
    Append(Vec<Record>),
    Sync,
    /// The process ends and another one starts; the machine keeps running.
    Reopen,
    /// Writes a snapshot.
    Compact,
}

/// Progress of a run that may have ended early.
#[derive(Debug, Clone, Default)]
pub(super) struct Outcome {
    /// Set once opening has succeeded.
    pub identity: Option<Identity>,
    /// All records that may be in the log, without the identity.
    pub appended: Vec<Record>,
    /// Number of these that must be in it.
    pub synced: usize,
    pub finished: bool,
}

pub(super) fn run(disk: &Double, config: &LogConfig, script: &[Step]) -> Outcome {
    let mut outcome = Outcome::default();
    outcome.finished = try_run(disk, config, script, &mut outcome).is_some();
    outcome
}

/// `None` if the disk failed on the way.
fn try_run(disk: &Double, config: &LogConfig, script: &[Step], outcome: &mut Outcome) -> Option<()> {
    let mut log = reopen(disk, config, outcome)?;
    for step in script {
        match step {
            Step::Append(records) => {
                outcome.appended.extend_from_slice(records);
                log.append(records).ok()?;
            }
            Step::Sync => {
                log.sync().ok()?;
                outcome.synced = outcome.appended.len();
            }
            Step::Reopen => log = reopen(disk, config, outcome)?,
            Step::Compact => {
                compact(&mut log, &outcome.appended)?;
                outcome.synced = outcome.appended.len();
            }
        }
    }
    Some(())
}

/// Writes a snapshot of a node whose state is all records ever appended, and removes the files that it replaces.
fn compact(log: &mut Log<Double>, appended: &[Record]) -> Option<()> {
    loop {
        match log.upkeep().ok()? {
            Upkeep::Again | Upkeep::Moved(_) => {}
            Upkeep::Rest => return Some(()),
            Upkeep::GivenUp(_) => return None,
            Upkeep::Begin => {
                let (first, rest) = appended.split_at(appended.len() / 2);
                let state = [&[identity_record(log.identity())], first].concat();
                let whole = log.save(&state, false).ok()? == Saved::Part && log.save(rest, true).ok()? == Saved::Whole;
                whole.then_some(())?;
            }
        }
    }
}

/// Starts on a disk without losses: all records are read, and durable from then on.
fn reopen(disk: &Double, config: &LogConfig, outcome: &mut Outcome) -> Option<Log<Double>> {
    let mut log = Log::open(disk.clone(), config.clone(), || identity(1)).ok()?;
    let mut records = Vec::new();
    let visit = |replay: Replay| {
        records.extend(replay.whole()?);
        Ok(())
    };
    log.replay(visit).ok()?;
    outcome.identity = Some(log.identity());
    assert_eq!(records[1..], outcome.appended);
    outcome.synced = outcome.appended.len();
    Some(log)
}

/// Starts from a disk, checks the records found, appends more, and starts again.
pub(super) fn check(disk: &Double, config: &LogConfig, outcome: &Outcome) {
    let (mut log, mut records, _) = start(disk, config.clone()).expect("a crash leaves what can be mended");
    if let Some(identity) = outcome.identity {
        assert_eq!(log.identity(), identity, "an identity is for ever");
    }
    let read = &records[1..];
    assert!(read.len() >= outcome.synced, "{} records were synced, {} are left", outcome.synced, read.len());
    assert_eq!(read, &outcome.appended[..read.len()], "a prefix");
    let more = [sized(120), record(1)];
    log.append(&more).expect("written");
    log.sync().expect("synced");
    records.extend(more);
    // Ordinals are checked by the reader: it would refuse a gap or a repetition.
    let (_, again, replayed) = start(&disk.crash(Kept::Nothing, false), config.clone()).expect("whole");
    assert_eq!(again, records);
    assert_eq!(replayed.cut_bytes, 0);
}

fn start_quietly(disk: &Double, config: &LogConfig) -> bool {
    let Ok(mut log) = Log::open(disk.clone(), config.clone(), || identity(50)) else { return false };
    log.replay(|replay| replay.whole().map(drop)).is_ok()
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let append = proptest::collection::vec(0u64..400, 0..6)
        .prop_map(|numbers| Step::Append(numbers.into_iter().map(record).collect()));
    let large = (0usize..700).prop_map(|bytes| Step::Append(vec![sized(bytes)]));
    let step = prop_oneof![8 => append, 2 => large, 4 => Just(Step::Sync), 1 => Just(Step::Reopen)];
    proptest::collection::vec(step, 0..25)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    // E16
    #[test]
    fn any_run_survives_any_crash(
        script in steps(),
        segment_bytes in 0u64..1000,
        ahead_bytes in prop_oneof![Just(0), Just(700), Just(5_000)],
        crash_at in 0u64..4000,
        second_crash_at in 0u64..12,
    ) {
        let config = LogConfig { segment_bytes, ahead_bytes, compact_bytes: u64::MAX, ..LogConfig::DEFAULT };
        let disk = Double::default();
        disk.fail_after(crash_at);
        let outcome = run(&disk, &config, &script);
        for crashed in disk.crashes() {
            let tried = Double::with_files(&crashed.files());
            tried.fail_after(second_crash_at);
            start_quietly(&tried, &config);
            for twice in tried.crashes() {
                check(&twice, &config, &outcome);
            }
        }
    }
}
