//! A loss is reported at its place, with its owner, and reading continues after it.

use super::*;
use crate::log::Upkeep;

/// A log of one segment with a vote, facts and a mark of the whole node, each synced by itself.
fn of_partitions() -> (Vec<u8>, Vec<usize>) {
    let vote = |number| Record::Vote { partition: PartitionId(number), promised: Epoch::default(), voted_for: None };
    let facts = |number| Record::Facts { partition: PartitionId(number), items: std::sync::Arc::new(Vec::new()) };
    let disk = Double::default();
    let mut log = Log::open(disk.clone(), SMALL_SLOTS, || identity(1)).expect("a fresh log");
    log.replay(|replay| replay.whole().map(drop)).expect("fresh");
    for record in [vote(3), facts(4), record(1), facts(5), Record::Boot { count: 1 }] {
        log.append(&[record]).expect("written");
        log.sync().expect("synced");
    }
    let bytes = disk.files()[&segment::name(1)].clone();
    let offsets = offsets(&bytes);
    assert_eq!(offsets.len(), 7);
    (bytes, offsets)
}

/// Starts a node that accepts losses. Returns the replay that it sees, and the files afterwards.
fn start_without(files: &Files) -> Result<(Vec<Replay>, Replayed, Files), OpenError> {
    let disk = Double::with_files(files);
    let mut log = Log::open(disk.clone(), SMALL, || panic!("there is a log"))?;
    let mut seen = Vec::new();
    let replayed = log.replay(|replay| {
        if !matches!(replay, Replay::Promised { .. }) {
            seen.push(replay);
        }
        Ok(())
    })?;
    log.append(&[record(3)]).expect("it goes on");
    log.sync().expect("it goes on");
    Ok((seen, replayed, disk.files()))
}

/// Goal: each loss is reported at its place, exactly once, in every start; all other records are read, and the log continues.
#[test]
fn reading_goes_on_behind_what_is_lost() {
    let (files, records) = whole(1, 25, 200);
    let last = last_file(&files);
    let all: Vec<(String, usize, usize)> = files
        .iter()
        .flat_map(|(file, bytes)| {
            offsets(bytes).windows(2).map(|ends| (file.clone(), ends[0], ends[1])).collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(all.len(), records.len());
    for (place, (file, start, end)) in all.iter().enumerate().skip(1) {
        let followed = all.get(place + 1).is_some();
        for harm in 0..4 {
            let mut changed = files.clone();
            let bytes = changed.get_mut(file).expect("there");
            match harm {
                0 => bytes[start + 5] ^= 1,
                1 => bytes[*start..*end].fill(0),
                2 => bytes[*start..*end].fill(0xfe),
                _ if bytes.len() == *end => bytes.truncate(*start),
                _ => bytes[*start] ^= 0x10,
            }
            let (seen, _, after) = start_without(&changed).expect("the rest is read");
            let lost = seen.iter().filter(|replay| matches!(replay, Replay::Lost { .. })).count();
            assert_eq!(lost, usize::from(followed), "record {} of {file}", place + 1);
            let read: Vec<&Record> = seen
                .iter()
                .filter_map(|replay| if let Replay::Record { record, .. } = replay { Some(record) } else { None })
                .collect();
            let expected: Vec<&Record> =
                records.iter().enumerate().filter(|(number, _)| *number != place).map(|(_, record)| record).collect();
            assert_eq!(read, expected, "record {} of {file}", place + 1);
            if followed {
                let Replay::Lost { loss, .. } = &seen[place] else { panic!("told where it was") };
                assert_eq!(loss.ranges, [(place as u64 + 1, place as u64 + 1)]);
                assert_eq!(loss.owners.len(), 1, "a head is left: {loss}");
            }
            let (again, replayed, _) = start_without(&after).expect("and again");
            assert_eq!(again[..seen.len()], seen);
            let more =
                again[seen.len()..].iter().filter(|replay| !matches!(replay, Replay::Record { again: true, .. }));
            assert_eq!((more.count(), replayed.cut_bytes), (1, 0));
        }
    }
    assert!(all.iter().any(|(file, ..)| *file == last));
}

/// Goal: a file in the middle that is missing, is another one, or is destroyed from end to end costs only its own records; every
/// start reports exactly these, and the promises are known from the next segment on.
#[test]
fn a_segment_that_is_lost_is_told() {
    let (files, records) = whole(1, 25, 200);
    let last = files.len() as u64;
    let first_ordinal = |number| Header::decode(&files[&segment::name(number)]).expect("a header").first_ordinal;
    assert!(last > 4);
    for (from, to) in [(1, 1), (2, 2), (3, 3), (2, 3), (1, last - 1), (last - 1, last - 1)] {
        // From the fifth kind of harm on, each segment is harmed in another way than the one before it.
        for harm in 0..8 {
            let mut changed = files.clone();
            for number in from..=to {
                let file = segment::name(number);
                match if harm < 4 { harm } else { (harm + number) % 4 } {
                    0 => drop(changed.remove(&file)),
                    1 => drop(changed.insert(file, files[&segment::name(last)].clone())),
                    2 => changed.get_mut(&file).expect("there").fill(0),
                    _ => changed.get_mut(&file).expect("there").clear(),
                }
            }
            let (seen, replayed, after) = start_without(&changed).expect("the rest is read");
            let (lost, behind) = (first_ordinal(from), first_ordinal(to + 1));
            assert_eq!((replayed.lost_records, replayed.lost_segments), (behind - lost, to + 1 - from));
            let losses = seen.iter().enumerate().filter(|(_, replay)| matches!(replay, Replay::Lost { .. }));
            let [(place, Replay::Lost { loss, file, .. })] = losses.collect::<Vec<_>>()[..] else {
                panic!("told once: segments {from} to {to}, harm {harm}")
            };
            assert_eq!((place as u64 + 1, file), (lost, &segment::name(from)));
            assert_eq!((loss.ranges.as_slice(), loss.unknown), (&[(lost, behind - 1)][..], behind - lost));
            let read = |seen: &[Replay]| -> Vec<Record> {
                let record = |replay: &Replay| match replay {
                    Replay::Record { record, .. } => Some(record.clone()),
                    Replay::Promised { .. } | Replay::Lost { .. } => None,
                };
                seen.iter().filter_map(record).collect()
            };
            assert_eq!(read(&seen[..place]), records[..place]);
            assert_eq!(read(&seen[place + 1..]), records[behind as usize - 1..]);
            let (again, ..) = start_without(&after).expect("and again");
            assert_eq!(again[..seen.len()], seen);
        }
    }
}

#[test]
fn what_is_lost_is_named() {
    let (bytes, offsets) = of_partitions();
    let after = |harm: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = bytes.clone();
        harm(&mut bytes);
        let error = refusal(&Files::from([(segment::name(1), bytes)]));
        let OpenError::Damaged { offset, loss, .. } = &error else { panic!("damage, not {error}") };
        (*offset as usize, loss.to_string())
    };
    let flip = |record: usize| offsets[record - 1] + 9;
    let slot = |record: usize| HEADER_BYTES + (record - 1) * SLOT_BYTES;
    let body = after(&|bytes| bytes[flip(2)] ^= 1);
    assert_eq!(body, (offsets[1], "lost: record 2 (1 vote of partition 3)".into()));
    let two = after(&|bytes| (0..2).for_each(|more| bytes[flip(4 - more)] ^= 1));
    assert_eq!(two, (offsets[2], "lost: record 3 to 4 (1 mark of the node itself, 1 facts of partition 4)".into()));
    let apart = after(&|bytes| [2, 5].into_iter().for_each(|record| bytes[flip(record)] ^= 1));
    assert_eq!(apart, (offsets[1], "lost: record 2 (1 vote of partition 3)".into()), "the first is enough to refuse");
    let both = after(&|bytes| {
        bytes[flip(3)] ^= 1;
        bytes[slot(3)] ^= 1;
    });
    let unknown = "lost: record 3 (1 of which no head is left, so of any partition of this node)";
    assert_eq!(both, (offsets[2], unknown.into()));
    let cut = after(&|bytes| bytes.truncate(offsets[4]));
    assert_eq!(cut, (offsets[4], "lost: record 5 (1 facts of partition 5)".into()));
    let gone = after(&|bytes| drop(bytes.drain(offsets[2]..offsets[3])));
    assert_eq!(gone, (offsets[2], "lost: record 3 (1 facts of partition 4)".into()));
}

#[test]
fn a_record_behind_damage_counts_if_the_damage_was_synced_before_it() {
    let (files, records) = whole(1, 3, 1 << 20);
    let last = last_file(&files);
    for distance in [1, READ_BYTES - 1, READ_BYTES, 2 * READ_BYTES + 1] {
        let mut files = files.clone();
        let bytes = files.get_mut(&last).expect("there");
        let damage = bytes.len();
        bytes.resize(damage + distance, 0);
        let torn = files.clone();
        let behind = |synced| {
            let mut files = torn.clone();
            let bytes = files.get_mut(&last).expect("there");
            frame::Encoder::default().encode(6, synced, &sized(READ_BYTES + 5), bytes).expect("small");
            files
        };
        let (read, ..) = start(&behind(4)).expect("of one batch, whose sync had not ended");
        assert_eq!(read, records);
        let error = refusal(&behind(5));
        assert!(error.to_string().contains(&format!("at byte {damage}: ")), "{error}");
        assert!(error.to_string().contains("lost: record 5 ("), "{error}");
        assert_advice(&error);
    }
}

#[test]
fn records_missing_before_an_empty_segment_are_missed() {
    let (mut files, records) = whole(1, 25, 200);
    let last = last_file(&files);
    let header = Header {
        cluster: norn_wire::ClusterId::default(),
        node: identity(1).node,
        segment: files.len() as u64 + 1,
        first_ordinal: records.len() as u64 + 1,
        slots: 8,
    };
    files.insert(segment::name(header.segment), header.encode().to_vec());
    start(&files).expect("whole");
    let bytes = files.get_mut(&last).expect("there");
    let ends = offsets(bytes);
    bytes.truncate(ends[ends.len() - 2]);
    let error = refusal(&files);
    let (text, record) = (error.to_string(), records.len());
    let (ends, lost) = (format!("the segment ends before record {record};"), format!("; lost: record {record} ("));
    assert!(text.contains(&ends) && text.contains(&lost), "{text}");
    assert_advice(&error);
}

/// Goal: records lost at the end of the log are reported by every start, although the first one removes the evidence that they were
/// durable; and whatever such a start left neither hinders the next one nor stays for good. Method: starts that end after each of
/// their operations, in a crash of the machine.
#[test]
fn a_loss_at_the_end_is_told_by_every_start() {
    let (mut files, records) = whole(1, 25, 1 << 20);
    let last = last_file(&files);
    let bytes = files.get_mut(&last).expect("there");
    let ends = offsets(bytes);
    bytes.truncate(ends[ends.len() - 3]);
    let mut begun = files.clone();
    begun.insert(segment::name(2), vec![0; 9]);
    for (files, lost) in [(files, 25..=25), (begun, 25..=26)] {
        let start = |disk: Double| {
            let mut log = Log::open(disk.clone(), SMALL, || panic!("there is a log")).ok()?;
            let (mut read, mut losses) = (0, Vec::new());
            let visit = |replay| {
                match replay {
                    Replay::Record { .. } => read += 1,
                    Replay::Promised { .. } => {}
                    Replay::Lost { loss, .. } => losses.push(loss),
                }
                Ok(())
            };
            log.replay(visit).ok()?;
            assert_eq!(read, records.len() - 2);
            assert_eq!(losses.len(), 1);
            assert_eq!(losses[0].ranges, [(*lost.start(), *lost.end())]);
            while log.upkeep().ok()? == Upkeep::Again {}
            assert!(disk.files().keys().all(|file| !segment::is_partial(file)));
            Some(())
        };
        for operations in 0.. {
            let disk = Double::with_files(&files);
            disk.fail_after_operations(operations);
            let ended = start(disk.clone()).is_some();
            for crashed in disk.crashes() {
                start(crashed.clone()).expect("a good disk");
                start(crashed).expect("a good disk");
            }
            if ended {
                break;
            }
        }
    }
}
