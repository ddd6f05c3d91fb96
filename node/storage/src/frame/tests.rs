//! Frames: the encoding is fixed, decoding inverts it, and any changed byte is noticed.

use super::*;
use crate::stuffing::find_sentinel;
use norn_wire::NodeId;
use proptest::prelude::*;

fn frame(ordinal: u64, record: &Record) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(ordinal, record, &mut bytes);
    bytes
}

/// Decodes the frame at the beginning: ordinal, body and bytes.
fn read(bytes: &[u8]) -> Result<(u64, Vec<u8>, usize), Fault> {
    let mut content = Vec::new();
    let head = Head::read(bytes, &mut content)?;
    let length = head.read_whole(bytes, &mut content)?;
    Ok((head.ordinal, content[HEAD_BYTES..].to_vec(), length))
}

// E10
#[test]
fn the_bytes_are_fixed() {
    let bytes = frame(7, &Record::Boot { count: 3 });
    let head = [0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 7, 0, 0, 0, 5];
    let body = [0x81, 0xa1, b'B', 0x91, 3];
    let fingerprint = crc32c::crc32c(&[&head[..], &body].concat()).to_be_bytes();
    assert_eq!(bytes, [&[0xfe, 0xfd, 25][..], &fingerprint, &head, &body].concat());
    assert_eq!(fingerprint, [3, 145, 16, 150]);
}

// E10
#[test]
fn any_changed_byte_is_noticed() {
    let bytes = frame(u64::MAX, &Record::Identity { node: NodeId(77), incarnation: 9 });
    read(&bytes).expect("whole");
    for place in 0..bytes.len() {
        for change in 1..=255 {
            let mut changed = bytes.clone();
            changed[place] ^= change;
            assert!(read(&changed).is_err(), "byte {place} changed by {change}");
        }
    }
}

#[test]
fn a_frame_cut_short_is_incomplete() {
    let bytes = frame(3, &Record::Boot { count: 1 });
    for length in 0..bytes.len() {
        assert_eq!(read(&bytes[..length]), Err(Fault::Incomplete), "cut to {length}");
    }
}

#[test]
fn zeroes_are_no_frame() {
    assert_eq!(read(&[0; 64]), Err(Fault::Rubbish));
}

#[test]
fn lengths_are_bounded() {
    let length_of = |length: u32| {
        let mut bytes = SENTINEL.to_vec();
        stuff(&[&[0; 16][..], &length.to_be_bytes(), &[1; 40]].concat(), &mut bytes);
        Head::read(&bytes, &mut Vec::new()).map(|head| head.length)
    };
    for length in [1, RECORD_BYTES_MAX as u32] {
        assert_eq!(length_of(length), Ok(length));
    }
    for length in [0, RECORD_BYTES_MAX as u32 + 1, u32::MAX] {
        assert_eq!(length_of(length), Err(Fault::Length(length)));
    }
}

proptest! {
    #[test]
    fn any_body_comes_back_and_frames_follow_each_other(
        bodies in proptest::collection::vec(
            proptest::collection::vec(prop_oneof![Just(0xfe), Just(0xfd), any::<u8>()], 1..600),
            1..5,
        ),
        ordinal in 1u64..u64::MAX - 5,
    ) {
        let frames: Vec<Vec<u8>> =
            bodies.iter().enumerate().map(|(place, body)| of_body(ordinal + place as u64, body)).collect();
        let bytes = frames.concat();
        let mut rest = &bytes[..];
        for (place, body) in bodies.iter().enumerate() {
            let (found, read, length) = read(rest).expect("whole");
            prop_assert_eq!((found, &read), (ordinal + place as u64, body));
            prop_assert!(find_sentinel(&rest[2..length]).is_none(), "nowhere but at its beginning");
            rest = &rest[length..];
        }
        prop_assert!(rest.is_empty());
    }

    #[test]
    fn any_bytes_may_stand_for_a_frame(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        let _ = read(&bytes);
        let _ = read(&[&SENTINEL[..], &bytes].concat());
    }
}
