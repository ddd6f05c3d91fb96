//! The reader: records of any size, and every whole record after any damage.

use super::*;
use crate::double::{Double, sized};
use crate::frame;
use norn_model::record::Record;
use proptest::prelude::*;

/// Ordinals and bodies of all whole records, and all damage.
fn read_all(bytes: &[u8]) -> (Vec<(u64, Vec<u8>)>, Vec<Damage>) {
    let disk = Double::with_file("a.log", bytes);
    let mut reader = Reader::new(&disk, "a.log", 0, bytes.len() as u64);
    let (mut frames, mut damage) = (Vec::new(), Vec::new());
    let mut place = 0;
    loop {
        match reader.next().expect("no fault") {
            Next::Frame(frame) => {
                assert_eq!(frame.offset, place, "nothing is passed over in silence");
                place += frame.bytes;
                frames.push((frame.head.ordinal, frame.body.to_vec()));
            }
            Next::Damage(found) => {
                assert_eq!(found.offset, place, "nothing is passed over in silence");
                assert!(found.end > place);
                place = found.end;
                damage.push(found);
            }
            Next::End => break,
        }
    }
    assert!(bytes[place as usize..].iter().all(|byte| *byte == 0), "only space is left out");
    (frames, damage)
}

#[test]
fn large_records_are_read_across_windows() {
    let sizes = [10, READ_BYTES - 80, 3, 3 * READ_BYTES, READ_BYTES, 1];
    let records: Vec<Record> = sizes.iter().map(|size| sized(*size)).collect();
    let mut bytes = Vec::new();
    for (place, record) in records.iter().enumerate() {
        frame::encode(place as u64 + 1, record, &mut bytes);
    }
    let (frames, damage) = read_all(&bytes);
    assert_eq!(damage, []);
    let read: Vec<Record> = frames.iter().map(|(_, body)| Record::decode(body).expect("a record")).collect();
    assert_eq!(read, records);
}

#[test]
fn a_sentinel_is_found_however_far_and_across_two_windows() {
    let frame = frame::of_body(6, &[1; 40]);
    for distance in (READ_BYTES - 3..READ_BYTES + 3).chain([2 * READ_BYTES - 1, 5 * READ_BYTES + 7]) {
        let bytes = [vec![0xfe; distance], frame.clone()].concat();
        let (frames, damage) = read_all(&bytes);
        assert_eq!(frames, [(6, vec![1; 40])]);
        assert_eq!(damage, [Damage { offset: 0, end: distance as u64, fault: Fault::Rubbish }]);
    }
}

/// Goal: a missing byte between two frames loses neither of them. A first frame of its maximum length must not take half of the
/// second's sentinel either.
#[test]
fn two_frames_may_share_a_byte() {
    for length in [30, 300] {
        let mut bytes = frame::of_body(1, &vec![0xfe; length]);
        assert_eq!(bytes.pop(), Some(0xfe));
        bytes.extend_from_slice(&frame::of_body(2, &[7; 9]));
        assert_eq!(read_all(&bytes), (vec![(1, vec![0xfe; length]), (2, vec![7; 9])], vec![]));
    }
}

/// Goal: a frame is not lost if its last byte and the damage after it together look like a sentinel.
#[test]
fn a_frame_does_not_lose_its_last_byte_to_what_follows() {
    let frame = frame::of_body(1, &[0xfe; 30]);
    for damaged in [vec![0xfd; 20], vec![0xfd, 0xfe]] {
        let bytes = [frame.clone(), damaged, frame::of_body(3, &[8; 9])].concat();
        let (frames, damage) = read_all(&bytes);
        assert_eq!(frames, [(1, vec![0xfe; 30]), (3, vec![8; 9])]);
        assert_eq!(damage.len(), 1);
    }
}

#[test]
fn a_hostile_length_costs_nothing() {
    for length in [0, 1 << 26, (1 << 26) + 1, u32::MAX] {
        let mut bytes = SENTINEL.to_vec();
        crate::stuffing::stuff(&[&[0; 16][..], &length.to_be_bytes(), &[0; 28]].concat(), &mut bytes);
        let disk = Double::with_file("a.log", &bytes);
        let mut reader = Reader::new(&disk, "a.log", 0, bytes.len() as u64);
        let Next::Damage(damage) = reader.next().expect("no fault") else { panic!("damage") };
        assert!(matches!(damage.fault, Fault::Incomplete | Fault::Length(_)));
        assert!(reader.window.capacity() + reader.content.capacity() <= READ_BYTES);
    }
}

/// Bytes among which sentinels are frequent.
fn bytes(length: std::ops::Range<usize>) -> impl Strategy<Value = Vec<u8>> {
    let frequent = |byte: u8| match byte {
        0..60 => 0xfe,
        60..120 => 0xfd,
        120..140 => 0,
        other => other,
    };
    proptest::collection::vec(any::<u8>(), length).prop_map(move |bytes| bytes.into_iter().map(frequent).collect())
}

fn bodies() -> impl Strategy<Value = Vec<Vec<u8>>> {
    proptest::collection::vec(prop_oneof![4 => bytes(1..60), 1 => bytes(200..400)], 1..8)
}

/// Overwrites, removes or inserts some bytes.
#[derive(Debug, Clone)]
enum Harm {
    Write(Vec<u8>),
    Remove(usize),
    Insert(Vec<u8>),
}

fn harm() -> impl Strategy<Value = Harm> {
    prop_oneof![
        bytes(1..80).prop_map(Harm::Write),
        (1usize..80).prop_map(Harm::Remove),
        bytes(1..80).prop_map(Harm::Insert)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    // E4
    /// Goal: damage costs no record but those it hits. Method: frames outside the damaged range must all be found, in order; no
    /// others may be, unless the damage happens to have changed nothing.
    #[test]
    fn every_whole_record_around_damage_is_found(
        bodies in bodies(),
        at in any::<proptest::sample::Index>(),
        harm in harm(),
    ) {
        let frames: Vec<Vec<u8>> =
            bodies.iter().enumerate().map(|(place, body)| frame::of_body(place as u64 + 1, body)).collect();
        let mut bytes = frames.concat();
        let start = at.index(bytes.len());
        let end = match &harm {
            Harm::Write(new) => (start + new.len()).min(bytes.len()),
            Harm::Remove(length) => (start + length).min(bytes.len()),
            Harm::Insert(_) => start,
        };
        match &harm {
            Harm::Write(new) => bytes[start..end].copy_from_slice(&new[..end - start]),
            Harm::Remove(_) => drop(bytes.drain(start..end)),
            Harm::Insert(new) => drop(bytes.splice(start..start, new.iter().copied())),
        }
        let mut place = 0;
        let mut spared = Vec::new();
        let mut all = Vec::new();
        for (number, frame) in frames.iter().enumerate() {
            let whole = (number as u64 + 1, bodies[number].clone());
            if place + frame.len() <= start || place >= end {
                spared.push(whole.clone());
            }
            all.push(whole);
            place += frame.len();
        }
        let (found, _) = read_all(&bytes);
        let mut rest = found.iter();
        for frame in &spared {
            prop_assert!(rest.any(|other| other == frame), "record {} was not touched", frame.0);
        }
        prop_assert!(found.iter().all(|frame| all.contains(frame)), "nothing is made up");
    }

    #[test]
    fn any_bytes_may_be_read(pieces in bodies(), whole in any::<proptest::sample::Index>()) {
        let frame = frame::of_body(7, &pieces[whole.index(pieces.len())]);
        let mut bytes = pieces.concat();
        bytes.extend_from_slice(&frame);
        let (frames, _) = read_all(&bytes);
        prop_assert_eq!(frames.last().map(|(ordinal, _)| *ordinal), Some(7), "the last one is whole");
    }
}
