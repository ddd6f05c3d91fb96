//! A scrub finds every byte that matters and is another, in whatever lies still, and what it finds is made good.

use super::*;
use crate::protocol::Node;
use crate::storage::double::sample::{self, CONFIG, IDENTITY};
use crate::storage::double::{Double, Files};
use crate::storage::log::{Saved, Upkeep};
use crate::storage::recovery::Replay;
use norn_client::wire::PartitionId;

/// A log in use, and the node whose it is.
fn open(files: &Files) -> (Log<Double>, Node) {
    let mut log = Log::open(Double::with_files(files), CONFIG, || IDENTITY).expect("it is whole");
    let mut node = sample::node();
    log.replay(|replay| match replay {
        Replay::Record { record, covered, place } => node.recover(record, covered, place),
        Replay::Lost { .. } => Err("it is whole".into()),
    })
    .expect("it is whole");
    (log, node)
}

/// What one pass finds.
fn pass(log: &mut Log<Double>) -> Vec<Rot> {
    let mut found = Vec::new();
    loop {
        let Scrubbed { rot, over, .. } = log.scrub().expect("the log has not stopped");
        found.extend(rot);
        if over {
            return found;
        }
    }
}

/// What a host does until there is nothing to do; how many snapshots were written.
fn keep_up(log: &mut Log<Double>, node: &Node) -> u64 {
    let before = log.stats().snapshots;
    loop {
        match log.upkeep().expect("it goes on") {
            Upkeep::Rest => return log.stats().snapshots - before,
            Upkeep::Again | Upkeep::Moved(_) => {}
            Upkeep::Begin => {
                let part = node.save(&mut Default::default(), usize::MAX);
                assert!(part.last && log.save_part(part) == Ok(Saved::Whole));
            }
            Upkeep::GivenUp(error) => panic!("{error}"),
        }
    }
}

fn flip(log: &mut Log<Double>, file: &str, offset: u64) {
    let byte = log.disk().read(file, offset, 1).expect("it is there")[0];
    log.disk_mut().write(file, offset, &[byte ^ 0x10]).expect("it is there");
}

/// Whether a byte is part of a header, of a head that is in use, or of a record.
fn matters(files: &Files, file: &str, offset: u64) -> bool {
    if snapshot::number(file).is_some() || offset < HEADER_BYTES as u64 {
        return true;
    }
    let header = Header::decode(&files[file]).expect("it is whole");
    let next = segment::name(header.segment + 1);
    let records = Header::decode(&files[&next]).expect("it is whole").first_ordinal - header.first_ordinal;
    offset < HEADER_BYTES as u64 + records * SLOT_BYTES as u64 || offset >= header.records_offset()
}

#[test]
fn each_byte_that_matters_is_found_if_it_is_another() {
    for compacted_after in [None, Some(12)] {
        let files = sample::log(3, compacted_after);
        let (mut log, _) = open(&files);
        assert_eq!(pass(&mut log), [], "it is whole");
        let last = files.keys().next_back().expect("some").clone();
        assert!(files.len() > 2);
        for (file, bytes) in files.iter().filter(|(file, _)| **file != last) {
            for offset in 0..bytes.len() as u64 {
                flip(&mut log, file, offset);
                let found = pass(&mut log);
                let of_file = found.iter().any(|rot| rot.file == *file);
                assert_eq!(of_file, matters(&files, file, offset), "{file} at {offset}: {found:?}");
                flip(&mut log, file, offset);
            }
        }
        assert_eq!(pass(&mut log), []);
    }
}

/// Goal: what is being written is not looked at: its end is torn at any time.
#[test]
fn the_segment_in_use_is_left_alone() {
    let files = sample::log(3, None);
    let (mut log, _) = open(&files);
    let last = files.keys().next_back().expect("some");
    for offset in [0, 600, files[last].len() as u64 - 3] {
        flip(&mut log, last, offset);
    }
    assert_eq!(pass(&mut log), []);
}

#[test]
fn damage_is_told_with_its_owners_and_a_snapshot_takes_its_place() {
    for compacted_after in [None, Some(12)] {
        let files = sample::log(3, compacted_after);
        let (mut log, node) = open(&files);
        assert_eq!(keep_up(&mut log, &node), 0, "nothing is due");
        let file = files.keys().next().expect("some").clone();
        flip(&mut log, &file, files[&file].len() as u64 - 60);
        let found = pass(&mut log);
        let [rot] = found.as_slice() else { panic!("one file is damaged: {found:?}") };
        assert_eq!(rot.file, file);
        let partition = |owner: &Owner| matches!(owner, Owner::Node | Owner::Partition(PartitionId(_)));
        assert!(!rot.owners.is_empty() && rot.owners.iter().all(partition), "{rot}");
        assert_eq!(keep_up(&mut log, &node), 1);
        assert!(!log.disk().list().expect("a list").contains(&file));
        assert_eq!((pass(&mut log), keep_up(&mut log, &node)), (Vec::new(), 0));
        let (_, again) = open(&log.into_disk().files());
        assert_eq!(again.inspect(), node.inspect());
    }
}

/// Goal: a file that a snapshot takes away in the middle of a pass is not missed.
#[test]
fn files_may_go_while_they_are_read() {
    let (mut log, node) = open(&sample::log(3, None));
    for _ in 0..2 {
        assert_eq!(log.scrub().expect("it goes on").rot, None);
    }
    assert!(log.scrub.reading.is_some());
    log.want_snapshot(Some(1));
    assert_eq!(keep_up(&mut log, &node), 1);
    assert_eq!(pass(&mut log), []);
}

#[test]
fn a_host_reads_as_fast_as_it_may_and_rests_between_passes() {
    let mut pace = ScrubPace::new(1_000, 7_000_000);
    assert_eq!(pace.due_us(), Some(7_000_000));
    pace.scrubbed(7_000_000, &Scrubbed { bytes: 500, ..Scrubbed::default() });
    assert_eq!(pace.due_us(), Some(7_500_000));
    let over = Scrubbed { over: true, ..Scrubbed::default() };
    pace.scrubbed(7_500_000, &over);
    assert_eq!(pace.due_us(), Some(14_500_000));
    // After damage the next pass comes soon, and once.
    let rot = Rot { file: "a".into(), offset: 0, known: "bad".into(), owners: BTreeSet::new() };
    let damage = Scrubbed { rot: Some(rot), ..Scrubbed::default() };
    pace.scrubbed(14_500_000, &damage);
    pace.scrubbed(15_000_000, &over);
    assert!(pace.due_us().is_some_and(|due_us| due_us < 15_200_000));
    pace.scrubbed(16_000_000, &over);
    assert_eq!(pace.due_us(), Some(23_000_000));
    // What is not made good is looked at ever more seldom, and what cannot be read just now a little later.
    let rests_us: Vec<u64> = (0..60)
        .map(|_| {
            pace.scrubbed(30_000_000, &damage);
            pace.scrubbed(30_000_000, &over);
            pace.due_us().expect("it scrubs") - 30_000_000
        })
        .collect();
    assert!(rests_us.is_sorted() && rests_us[31] == rests_us[0] && rests_us[59] == 7_000_000, "{rests_us:?}");
    pace.scrubbed(40_000_000, &Scrubbed { failed: true, ..Scrubbed::default() });
    assert_eq!(pace.due_us(), Some(41_000_000));
    assert_eq!(ScrubPace::new(0, 5).due_us(), None);
}
