//! Names and header of a segment.

use super::*;
use proptest::prelude::*;

fn header() -> Header {
    Header {
        cluster: ClusterId(0x0102),
        node: NodeId(0x0a0b << 112),
        segment: 3,
        first_ordinal: 0x1_0000,
        slots: 0x0102,
    }
}

#[test]
fn the_bytes_are_fixed() {
    let mut golden = Vec::new();
    golden.extend_from_slice(b"NORN-WAL");
    golden.extend_from_slice(&[0, 4, 0, 1]);
    golden.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2]);
    golden.extend_from_slice(&[10, 11, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    golden.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 3]);
    golden.extend_from_slice(&[0, 0, 0, 0, 0, 1, 0, 0]);
    golden.extend_from_slice(&[0, 0, 1, 2]);
    golden.resize(508, 0);
    golden.extend_from_slice(&[21, 190, 13, 6]);
    assert_eq!(header().encode().as_slice(), golden);
}

#[test]
fn what_is_written_is_read() {
    assert_eq!(Header::decode(&header().encode()), Ok(header()));
}

#[test]
fn any_changed_or_missing_byte_of_a_header_is_noticed() {
    let bytes = header().encode();
    for place in 0..bytes.len() {
        assert!(Header::decode(&bytes[..place]).is_err(), "cut to {place}");
        for change in [1, 2, 16, 128, 255] {
            let mut changed = bytes;
            changed[place] ^= change;
            assert!(Header::decode(&changed).is_err(), "byte {place} changed by {change}");
        }
    }
}

/// Goal: no value in an accepted header overflows later arithmetic. Found by a fuzzer: a segment number without a valid successor.
#[test]
fn a_header_that_no_file_can_have_is_damage() {
    for (segment, first_ordinal) in [(u64::MAX, 1), (0, 1), (NUMBER_MAX, 1), (1, 0), (1, u64::MAX)] {
        let bytes = Header { segment, first_ordinal, ..header() }.encode();
        assert_eq!(Header::decode(&bytes), Err(IMPOSSIBLE), "{segment}, {first_ordinal}");
    }
}

#[test]
fn other_versions_are_told_apart_from_damage() {
    let mut format = header().encode();
    format[9] = 1;
    assert_eq!(Header::decode(&format), Err(HeaderFault::Format(1)));
    let mut records = header().encode();
    records[11] = 9;
    let checksum = crc32c::crc32c(&records[..508]);
    records[508..].copy_from_slice(&checksum.to_be_bytes());
    assert_eq!(Header::decode(&records), Err(HeaderFault::Records(9)));
    // A crash may leave zeroes after the magic: 0 is no version.
    let mut torn = [0; HEADER_BYTES];
    torn[..8].copy_from_slice(&MAGIC);
    assert!(matches!(Header::decode(&torn), Err(HeaderFault::Broken(_))));
}

#[test]
fn what_no_segment_is_like_is_refused() {
    let changes = [
        Header { slots: 0, ..header() },
        Header { slots: SLOTS_MAX + 1, ..header() },
        Header { first_ordinal: 0, ..header() },
        Header { first_ordinal: u64::MAX - 1, ..header() },
    ];
    for changed in changes {
        assert!(matches!(Header::decode(&changed.encode()), Err(HeaderFault::Broken(_))), "{changed:?}");
    }
}

#[test]
fn heads_stand_between_the_header_and_the_records() {
    assert_eq!(header().slot_offset(0x1_0000), HEADER_BYTES as u64);
    assert_eq!(header().slot_offset(0x1_0000 + 0x101) + SLOT_BYTES as u64, header().records_offset());
    assert!(!header().has_slot(0xffff) && !header().has_slot(0x1_0000 + 0x102));
    assert_eq!([slots_for(0, 0), slots_for(1 << 20, 7), slots_for(u64::MAX, 1)], [SLOTS_MIN, 2055, SLOTS_MAX]);
}

// E2
#[test]
fn names_and_numbers_belong_together() {
    assert_eq!(name(1), "0000000000000001.log");
    assert!(name(9) < name(10));
    for file in ["0000000000000000.log", "1.log", "+000000000000001.log", "00000000000000001.log", "0000000000000001"] {
        assert_eq!(number(file), None, "{file}");
    }
}

proptest! {
    #[test]
    fn names_carry_any_number(value in 1..NUMBER_MAX) {
        prop_assert_eq!(number(&name(value)), Some(value));
        prop_assert!(is_of_log(&name(value)));
    }

    #[test]
    fn any_bytes_may_stand_for_a_header(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        prop_assert!(Header::decode(&bytes).is_err());
    }
}
