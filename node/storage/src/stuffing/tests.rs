//! Stuffing: stuffed bytes have no sentinel in them and decode to the content, and unstuffing accepts any bytes.

use super::*;
use proptest::prelude::*;

fn stuffed(content: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    stuff(content, &mut bytes);
    bytes
}

fn check(content: &[u8]) {
    let mut bytes = stuffed(content);
    assert!(bytes.len() <= stuffed_bytes_max(content.len()));
    // The sentinel occurs only where one was appended.
    let end = bytes.len();
    bytes.extend_from_slice(&SENTINEL);
    assert_eq!(find_sentinel(&bytes), Some(end));
    let mut back = Vec::new();
    assert_eq!(unstuff(&bytes, content.len(), &mut back), Ok(Unstuffed { bytes: end, ended: true }));
    assert_eq!(back, content);
}

#[test]
fn the_bytes_are_fixed() {
    assert_eq!(stuffed(&[1, 2, 3]), [3, 1, 2, 3]);
    assert_eq!(stuffed(&[]), [0]);
    assert_eq!(stuffed(&[0xfe, 0xfd]), [0]);
    assert_eq!(stuffed(&[7, 0xfe, 0xfd, 8]), [1, 7, 1, 0, 8]);
    assert_eq!(stuffed(&[0xfe, 0xfd, 0xfe, 0xfd, 0xfe]), [0, 0, 0, 1, 0, 0xfe]);
    let long = stuffed(&[5; 252 + 300]);
    assert_eq!((long[0], &long[253..255], long.len()), (252, &[47, 1][..], 1 + 252 + 2 + 300));
}

#[test]
fn runs_of_every_length_around_the_longest_come_back() {
    for length in [0, 1, 251, 252, 253, 254, 255, 64_259, 64_260, 64_261, 64_262, 128_268, 128_269] {
        let mut content = vec![9; length];
        check(&content);
        content.extend_from_slice(&SENTINEL);
        check(&content);
        content.extend_from_slice(&[0xfe, 0xfe, 0xfd]);
        check(&content);
        // A sentinel that lies across the end of a longest run.
        if length > 0 {
            content[length - 1] = 0xfe;
            content.insert(length, 0xfd);
            check(&content);
        }
    }
}

#[test]
fn a_part_can_be_had_first() {
    let bytes = stuffed(&[1, 0xfe, 0xfd, 2, 3]);
    let mut content = Vec::new();
    assert_eq!(unstuff(&bytes, 1, &mut content), Ok(Unstuffed { bytes: 2, ended: true }));
    assert_eq!(content, [1]);
    unstuff(&bytes, 2, &mut content).expect("enough");
    assert_eq!(content, [1, 0xfe, 0xfd], "a sentinel is not split");
    assert_eq!(unstuff(&bytes, 4, &mut content), Ok(Unstuffed { bytes: 5, ended: false }));
    assert_eq!(unstuff(&bytes, 8, &mut content), Err(Unstuffable::Short));
}

/// Bytes with many sentinel bytes and digits next to them, and long runs without.
fn content() -> impl Strategy<Value = Vec<u8>> {
    let near = proptest::collection::vec(any::<u8>(), 0..300).prop_map(|bytes| {
        bytes
            .into_iter()
            .map(|byte| if byte < 200 { [0xfe, 0xfd, 0xfc, 0xff, 0][usize::from(byte) % 5] } else { byte })
            .collect()
    });
    let run = (any::<u8>(), 0usize..70_000).prop_map(|(byte, length)| vec![byte; length]);
    proptest::collection::vec(prop_oneof![6 => near, 1 => run], 0..5).prop_map(|pieces| pieces.concat())
}

proptest! {
    // E4
    #[test]
    fn anything_comes_back_and_holds_no_sentinel(content in content()) {
        check(&content);
    }

    #[test]
    fn anything_may_be_turned_back(bytes in content(), wanted in 0usize..100_000) {
        let mut content = Vec::new();
        if let Ok(unstuffed) = unstuff(&bytes, wanted, &mut content) {
            prop_assert!(unstuffed.bytes <= bytes.len());
            prop_assert!(content.len() == wanted || content.len() == wanted + 1);
        }
    }
}
