//! Error texts when a node cannot be restored.

use super::sample;
use super::*;
use norn_engine::Cursor;
use norn_model::data_loss::DataLoss;
use norn_model::record::Record;
use norn_model::snapshot::Part;
use norn_storage::double::{Double, Files};
use norn_storage::verify::{Entry, inspect};
use norn_storage::{Saved, Upkeep};

/// The files without records of this kind, the last or all, with or without their heads; and the place of the first.
fn without(files: &Files, kind: u8, all: bool, heads: bool) -> (Files, String) {
    let mut found = Vec::new();
    let disk = Double::with_files(files);
    let visit = |file: &str, offset: u64, entry| {
        if let Entry::Record { of: Some((_, of)), ordinal, .. } = entry
            && of == Kind(kind)
        {
            found.push((file.to_owned(), offset, ordinal));
        }
        Ok::<(), norn_storage::DiskError>(())
    };
    inspect(&disk, visit).expect("no fault");
    let lost = if all { &found[..] } else { &found[found.len() - 1..] };
    let mut files = files.clone();
    for (file, offset, ordinal) in lost {
        let bytes = files.get_mut(file).expect("there");
        bytes[*offset as usize + 9] ^= 1;
        if heads {
            let first = u64::from_be_bytes(bytes[52..60].try_into().expect("a number"));
            bytes[512 + 32 * (ordinal - first) as usize] ^= 1;
        }
    }
    (files, format!("{} at byte {}", lost[0].0, lost[0].1))
}

#[test]
fn a_whole_log_makes_a_node() {
    for compacted in [None, Some(10), Some(31)] {
        let (node, _) = sample::start(&sample::log(3, compacted)).expect("whole");
        assert_eq!(node.lost_for_good(), []);
    }
}

#[test]
fn a_doubt_names_file_and_place_and_what_is_lost() {
    let log = sample::log(3, None);
    let (files, place) = without(&log, b'V', false, false);
    let refusal = sample::start(&files).expect_err("a vote is gone");
    assert!(refusal.starts_with(&format!("{place}: ")), "{refusal}");
    assert!(refusal.contains("the log lost a vote of partition 3, which nothing"), "{refusal}");

    let (files, place) = without(&log, b'V', false, true);
    let refusal = sample::start(&files).expect_err("nobody knows that it was a vote");
    assert!(refusal.starts_with(&format!("{place}: ")), "{refusal}");
    assert!(refusal.contains("of which no head is left; it may have been a vote of partition 0"), "{refusal}");
    // Votes of the other partitions and of the metadata group.
    assert!(refusal.contains("4 other promises"), "{refusal}");
}

/// Goal: after a refused start, its advice helps: to restore the damaged file from a copy. Method: the end of the last segment with
/// its votes is cut off, its heads are left.
#[test]
fn a_copy_of_the_damaged_file_helps_after_a_refusal() {
    let whole = sample::log(3, None);
    let (last, bytes) = whole.last_key_value().expect("there is a log");
    let slots = u32::from_be_bytes(bytes[60..64].try_into().expect("a number")) as usize;
    let first_record = 512 + 32 * slots;
    let mut refused = 0;
    for length in first_record..bytes.len() {
        let disk = Double::with_files(&whole);
        disk.put(last, &bytes[..length]);
        if let Err(refusal) = sample::start_on(&disk) {
            assert!(refusal.contains("which nothing behind it replaces"), "{refusal}");
            refused += 1;
            disk.put(last, bytes);
            sample::start_on(&disk).expect("the file is whole again");
        }
    }
    assert!(refused > 10, "{refused}");
}

#[test]
fn what_a_single_node_lost_is_called_what_it_is() {
    let log = sample::log(1, None);
    let refusal = |kind| sample::start(&without(&log, kind, false, false).0).expect_err("nobody else has it");
    assert!(refusal(b'F').contains("facts about tasks of partition 0 are lost that no other"), "{}", refusal(b'F'));
    assert!(refusal(b'T').contains("claims, and perhaps facts about tasks, of partition 3"), "{}", refusal(b'T'));
}

#[test]
fn a_snapshot_that_lost_what_the_node_belongs_to_says_so() {
    let (files, place) = without(&sample::log(3, Some(31)), b'G', true, false);
    let refusal = sample::start(&files).expect_err("no node goes on without it");
    assert!(refusal.starts_with(&format!("{place}: ")), "{refusal}");
    assert!(refusal.contains("record 3 does not match, and no node goes on without it"), "{refusal}");
    let (snapshot_alone, _) = without(&sample::log(3, Some(31)), b'G', false, false);
    sample::start(&snapshot_alone).expect("the segments behind it say it again");
}

/// A mark that is lost with a snapshot is a doubt about the node, and causes no loss in partitions.
#[test]
fn a_snapshot_that_lost_a_mark_wounds_no_partition() {
    let (files, _) = without(&sample::log(3, Some(10)), b'M', true, false);
    let refusal = sample::start(&files).expect_err("all marks are gone");
    assert!(refusal.contains("of the node itself, which nothing"), "{refusal}");
    let whole = sample::log(3, Some(10));
    let mut snapshot_alone = whole.clone();
    let (name, bytes) = files.iter().find(|(name, _)| name.ends_with(".snapshot")).expect("there is one");
    snapshot_alone.insert(name.clone(), bytes.clone());
    let (node, replayed) = sample::start(&snapshot_alone).expect("a later one replaces it");
    assert_eq!(replayed.lost_records, 1);
    assert!(node.inspect().iter().all(|view| view.data_loss.is_whole()));
}

/// Hints, and records of starts, are part of no replica: a node starts without them.
#[test]
fn a_log_that_lost_hints_or_notes_of_starts_makes_a_node() {
    let founding = Founding {
        config: Config::default(),
        node: NodeId(1),
        incarnation: 1,
        name: String::new(),
        address: String::new(),
        zone: String::new(),
    };
    for kind in *b"HYDU" {
        let mut node = Node::new(founding.clone(), 0);
        let mut restorer = Restorer::new(&mut node);
        let mut loss = Loss { ranges: vec![(8, 8)], ..Loss::default() };
        loss.owners.insert((Owner::Node, Kind(kind)), 1);
        restorer.take(Replay::Lost { file: "a".into(), offset: 1, loss }).expect("no replica has lost anything");
        restorer.finish().expect("it starts");
    }
}

/// Goal: whatever happens to files in the middle, the promises after them are enough; and lost tasks and tables are recovered, for
/// which the node needs other replicas.
#[test]
fn lost_segments_cost_no_promise() {
    let log = sample::log(3, None);
    let segments: Vec<&String> = log.keys().collect();
    assert!(segments.len() > 4, "{segments:?}");
    for (from, to) in (0..segments.len()).flat_map(|from| (from..segments.len()).map(move |to| (from, to))) {
        let mut files = log.clone();
        files.retain(|file, _| !segments[from..=to].contains(&file));
        let started = sample::start(&files);
        if to + 1 == segments.len() {
            // The end is missing without a trace; what peers remember shows that to the node.
            assert!(started.is_ok() != (from == 0), "{from} to {to}: {started:?}");
            continue;
        }
        let (node, replayed) = started.expect("the rest is enough");
        assert_eq!((replayed.lost_segments, node.lost_for_good()), ((to + 1 - from) as u64, vec![]));
        assert!(
            replayed.lost_records > 0 && node.inspect().iter().all(|view| view.data_loss.facts && view.data_loss.table)
        );
    }
    // No other node has what a single node lost.
    let mut alone = sample::log(1, None);
    alone.remove(segments[2]);
    let refusal = sample::start(&alone).expect_err("it is lost for good");
    assert!(refusal.contains("that no other"), "{refusal}");
}

/// Goal: a loss that has grown since it was healed is a new one. Method: facts of a later segment are lost, too, after the log says
/// that the loss before them is healed.
#[test]
fn a_loss_that_has_grown_wounds_again() {
    let mut files = sample::log(3, None);
    let segments: Vec<String> = files.keys().cloned().collect();
    files.remove(&segments[2]);
    let disk = Double::with_files(&files);
    let mut log = Log::open(disk.clone(), sample::CONFIG, || panic!("there is a log")).expect("it starts");
    let mut node = sample::node();
    let mut restorer = Restorer::new(&mut node);
    log.replay(|replay| restorer.take(replay)).expect("it starts");
    restorer.finish().expect("it starts");
    // Each replica has recovered from the losses known to it.
    let Part { records, .. } = node.save(&mut Cursor::default(), usize::MAX);
    let healed = records.into_iter().filter_map(|record| match record {
        Record::DataLoss { partition, losses, .. } => {
            Some(Record::DataLoss { partition, losses, data_loss: DataLoss { facts: false, table: false } })
        }
        _ => None,
    });
    let healed: Vec<Record> = healed.collect();
    assert_eq!(healed.len(), node.inspect().len());
    log.append(&healed).expect("written");
    log.sync().expect("synced");
    let healed = disk.files();
    let (node, _) = sample::start(&healed).expect("it starts");
    assert!(node.inspect().iter().all(|view| view.data_loss.is_whole()), "the log says that it is healed");
    let mut grown = healed;
    grown.remove(&segments[3]);
    let (node, _) = sample::start(&grown).expect("it starts");
    assert!(node.inspect().iter().all(|view| view.data_loss.facts && view.data_loss.table));
}

/// Goal: a snapshot that takes the place of a damaged file makes the very node that wrote it.
#[test]
fn a_snapshot_in_place_of_a_damaged_file_makes_the_same_node() {
    let files = sample::log(3, None);
    let mut log =
        Log::open(Double::with_files(&files), sample::CONFIG, || panic!("there is a log")).expect("it is whole");
    let mut node = sample::node();
    let mut restorer = Restorer::new(&mut node);
    log.read(|replay| restorer.take(replay)).expect("it is whole");
    restorer.finish().expect("it is whole");
    log.mend().expect("there is nothing to mend");
    let (file, bytes) = files.first_key_value().expect("some");
    let place = bytes.len() - 60;
    log.disk_mut().write(file, place as u64, &[bytes[place] ^ 0x10]).expect("it is there");
    while log.scrub().expect("it goes on").rot.is_none() {}
    let mut written = false;
    loop {
        match log.upkeep().expect("it goes on") {
            Upkeep::Rest => break,
            Upkeep::Again | Upkeep::Moved(_) => {}
            Upkeep::Begin => {
                let part = node.save(&mut Cursor::default(), usize::MAX);
                written = part.last && log.save_part(part) == Ok(Saved::Whole);
            }
            Upkeep::GivenUp(error) => panic!("{error}"),
        }
    }
    assert!(written);
    let disk = log.into_disk();
    assert!(!disk.files().contains_key(file));
    let (again, _) = sample::start(&disk.files()).expect("it starts");
    assert_eq!(again.inspect(), node.inspect());
}
