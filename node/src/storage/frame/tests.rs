//! Frames: their bytes are fixed, what is written is read, and any changed byte is noticed.

use super::*;
use norn_client::wire::NodeId;

fn frame(ordinal: u64, record: &Record) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(ordinal, record, &mut bytes).expect("small");
    bytes
}

fn is_whole(bytes: &[u8]) -> bool {
    let head = Head::read(bytes.first_chunk().expect("a head"));
    head.length_allowed() && bytes.get(HEAD_BYTES..head.frame_bytes()).is_some_and(|body| head.matches(body))
}

#[test]
fn the_bytes_are_fixed() {
    let bytes = frame(7, &Record::Boot { count: 3 });
    let golden = [0, 0, 0, 5, 0x78, 0x9f, 0x26, 0x9a, 0, 0, 0, 0, 0, 0, 0, 7, 0x81, 0xa1, b'B', 0x91, 3];
    assert_eq!(bytes, golden);
    assert_eq!(Head::read(&golden[..16].try_into().expect("a head")).frame_bytes(), golden.len());
}

#[test]
fn any_changed_byte_is_noticed() {
    let bytes = frame(u64::MAX, &Record::Identity { node: NodeId(77), incarnation: 9 });
    assert!(is_whole(&bytes));
    for place in 0..bytes.len() {
        for change in 1..=255 {
            let mut changed = bytes.clone();
            changed[place] ^= change;
            assert!(!is_whole(&changed), "byte {place} changed by {change}");
        }
    }
}

#[test]
fn zeroes_are_no_frame() {
    assert!(!Head::read(&[0; HEAD_BYTES]).length_allowed());
    assert!(!is_whole(&[0; 64]));
}

#[test]
fn lengths_are_bounded() {
    let head = |length| Head { length, checksum: 0, ordinal: 1 };
    assert!(head(1).length_allowed());
    assert!(head(RECORD_BYTES_MAX as u32).length_allowed());
    assert!(!head(RECORD_BYTES_MAX as u32 + 1).length_allowed());
    assert!(!head(u32::MAX).length_allowed());
}

#[test]
fn frames_follow_each_other_in_one_buffer() {
    let mut bytes = frame(1, &Record::Boot { count: 1 });
    let first = bytes.len();
    encode(2, &Record::Boot { count: 2 }, &mut bytes).expect("small");
    assert!(is_whole(&bytes[..first]));
    assert!(is_whole(&bytes[first..]));
}
