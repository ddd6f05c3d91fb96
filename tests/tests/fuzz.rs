//! Robustness against arbitrary bytes from disk or network: the fuzz targets with seeded inputs, in seconds.
//!
//! `tests/fuzz` calls the same functions with a fuzzer's inputs. Here every sample is used unchanged, and then in thousands of
//! mutations, the same ones in each run. The memory of the whole process is limited, so that an allocation of a length that the input
//! merely claims ends it.

use norn_model::record::Record;
use norn_sim::disk::Harm;
use norn_storage::Replay;
use norn_tests::fuzz::mutation::mutate;
use norn_tests::fuzz::{self, samples};
use norn_wire::random::Random;
use rustix::process::{Resource, Rlimit, setrlimit};
use std::panic::{self, AssertUnwindSafe};

/// The largest record takes 64 MiB, and a reader holds two of them.
const ADDRESS_SPACE_BYTES: u64 = 3 << 30;

/// Calls a target with every sample and with this number of mutations.
fn try_all(target: fn(&[u8]), samples: &[Vec<u8>], mutations: u64) {
    let limit = Rlimit { current: Some(ADDRESS_SPACE_BYTES), maximum: Some(ADDRESS_SPACE_BYTES) };
    setrlimit(Resource::As, limit).expect("a process may bound itself");
    samples.iter().for_each(|sample| target(sample));
    for seed in 0..mutations {
        let mut random = Random::new(seed);
        let draw = |random: &mut Random| &samples[random.below(samples.len() as u64) as usize];
        let (sample, other) = (draw(&mut random), draw(&mut random));
        let bytes = mutate(sample, other, &mut random);
        if let Err(payload) = panic::catch_unwind(AssertUnwindSafe(|| target(&bytes))) {
            eprintln!("mutation {seed}: {bytes:02x?}");
            panic::resume_unwind(payload);
        }
    }
}

#[test]
fn any_bytes_may_stand_for_frames() {
    try_all(fuzz::frames, &samples::frames(), 3_000);
}

#[test]
fn any_files_may_stand_for_a_log() {
    try_all(fuzz::directory, &samples::directories(), 3_000);
}

/// Whether the replay is a prefix of the written records, with each loss reported in the place of the records it covers.
fn is_of(found: &[Replay], written: &[Record]) -> bool {
    let mut place = 0;
    found.iter().all(|replay| match replay {
        Replay::Record { record, .. } => {
            place += 1;
            written.get(place - 1) == Some(record)
        }
        Replay::Promised { .. } => true,
        Replay::Lost { loss, .. } => {
            let follows = loss.ranges.first().is_none_or(|(from, _)| *from == place as u64 + 1);
            place = loss.ranges.last().map_or(place, |(_, to)| *to as usize);
            follows && place <= written.len()
        }
    })
}

/// Goal: whatever damage a disk at rest suffers, a start reads what was written, reports what it cannot read, or refuses.
/// Method: every kind of damage, once or twice, at seeded places.
#[test]
fn a_damaged_disk_never_gives_another_record() {
    let (mut refused, mut read, mut lost) = (0, 0, 0);
    for (seed, harm) in (0..200).flat_map(|seed| Harm::ALL.map(|harm| (seed, harm))) {
        let random = &mut Random::new(seed);
        let (disk, written) = samples::log(samples::records().len());
        let more = Harm::ALL[random.below(Harm::ALL.len() as u64) as usize];
        let damage = [disk.damage(harm, random), random.chance(1, 3).then(|| disk.damage(more, random)).flatten()];
        match fuzz::start(&disk) {
            Err(_) => refused += 1,
            Ok((_, found)) if !is_of(&found, &written) => panic!("seed {seed}: {damage:?} made another log"),
            Ok((_, found)) if found.iter().any(|replay| matches!(replay, Replay::Lost { .. })) => lost += 1,
            Ok(_) => read += 1,
        }
    }
    assert!(refused > 100 && read > 100 && lost > 100, "{refused} were refused, {read} read, {lost} in part");
}

#[test]
fn any_bytes_may_stand_for_a_record() {
    try_all(fuzz::record, &samples::record_bodies(), 20_000);
}

#[test]
fn any_bytes_may_come_from_the_network() {
    try_all(fuzz::wire, &samples::messages(), 10_000);
    try_all(fuzz::wire, &samples::bodies(), 10_000);
}
