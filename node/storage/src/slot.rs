//! A second copy of each record's head, in a slot of fixed size near the beginning of its segment.
//!
//! A record and its slot are two writes, made durable by one sync. If one of the two is damaged, the other still shows that the
//! record existed, where, and what it was about.

use super::frame::{Head, synced_before};
use norn_model::record::{Kind, Record};
use norn_wire::PartitionId;
use std::fmt;

/// Bytes of a slot.
pub const SLOT_BYTES: usize = 32;
/// Partition field of a record that belongs to the whole node.
const NODE: u16 = u16::MAX;

/// Owner of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// The node as a whole.
    Node,
    /// The replica of a partition.
    Partition(PartitionId),
}

impl Owner {
    /// Returns the owner of a record.
    pub fn of(record: &Record) -> Owner {
        record.partition().map_or(Owner::Node, Owner::Partition)
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Owner::Node => formatter.write_str("the node itself"),
            Owner::Partition(partition) => write!(formatter, "partition {partition}"),
        }
    }
}

/// Content of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// Position of the record in the log.
    pub ordinal: u64,
    /// Offset of its frame in the file.
    pub offset: u32,
    /// Bytes of the frame.
    pub bytes: u32,
    /// As in the frame.
    pub fingerprint: u32,
    /// As in the frame.
    pub unsynced: u32,
    /// Owner of the record.
    pub owner: Owner,
    /// Kind of the record.
    pub kind: Kind,
}

impl Slot {
    /// The slot of a record with its frame at this offset; `None` if the offset is beyond the end of any segment.
    pub fn of(head: &Head, offset: u64, bytes: u64, record: &Record) -> Option<Slot> {
        Some(Slot {
            ordinal: head.ordinal,
            offset: u32::try_from(offset).ok()?,
            bytes: u32::try_from(bytes).ok()?,
            fingerprint: head.fingerprint,
            unsynced: head.unsynced,
            owner: Owner::of(record),
            kind: record.kind(),
        })
    }

    /// Highest ordinal up to which all was durable when this was written.
    pub fn synced_before(&self) -> u64 {
        synced_before(self.ordinal, self.unsynced)
    }

    /// Encodes the slot.
    pub fn encode(&self) -> [u8; SLOT_BYTES] {
        let partition = match self.owner {
            Owner::Node => NODE,
            Owner::Partition(partition) => partition.0,
        };
        let mut bytes = [0; SLOT_BYTES];
        bytes[0..8].copy_from_slice(&self.ordinal.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.offset.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.bytes.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.fingerprint.to_be_bytes());
        bytes[20..24].copy_from_slice(&self.unsynced.to_be_bytes());
        bytes[24..26].copy_from_slice(&partition.to_be_bytes());
        bytes[26] = self.kind.0;
        let checksum = crc32c::crc32c(&bytes[..28]);
        bytes[28..32].copy_from_slice(&checksum.to_be_bytes());
        bytes
    }

    /// Decodes a slot; `None` if the bytes are not a whole one. An empty slot is `None`, as no record has the ordinal 0.
    pub fn decode(bytes: &[u8; SLOT_BYTES]) -> Option<Slot> {
        let word =
            |place: usize| u32::from_be_bytes([bytes[place], bytes[place + 1], bytes[place + 2], bytes[place + 3]]);
        let ordinal = u64::from(word(0)) << 32 | u64::from(word(4));
        if ordinal == 0 || crc32c::crc32c(&bytes[..28]) != word(28) {
            return None;
        }
        let partition = u16::from_be_bytes([bytes[24], bytes[25]]);
        let owner = if partition == NODE { Owner::Node } else { Owner::Partition(PartitionId(partition)) };
        let (offset, length, kind) = (word(8), word(12), Kind(bytes[26]));
        Some(Slot { ordinal, offset, bytes: length, fingerprint: word(16), unsynced: word(20), owner, kind })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot() -> Slot {
        let owner = Owner::Partition(PartitionId(0x0304));
        Slot { ordinal: 7, offset: 0x1000, bytes: 99, fingerprint: 0xdead_beef, unsynced: 2, owner, kind: Kind(b'V') }
    }

    #[test]
    fn the_bytes_are_fixed() {
        let golden = [
            0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0x10, 0, 0, 0, 0, 99, 0xde, 0xad, 0xbe, 0xef, 0, 0, 0, 2, 3, 4, b'V', 0, 0,
            0, 0, 0,
        ];
        assert_eq!(slot().encode()[..28], golden[..28]);
        assert_eq!(slot().encode()[28..], crc32c::crc32c(&golden[..28]).to_be_bytes());
    }

    #[test]
    fn what_is_written_is_read_and_any_changed_byte_is_noticed() {
        for slot in [slot(), Slot { owner: Owner::Node, ..slot() }] {
            let bytes = slot.encode();
            assert_eq!(Slot::decode(&bytes), Some(slot));
            for place in 0..SLOT_BYTES {
                for change in 1..=255 {
                    let mut changed = bytes;
                    changed[place] ^= change;
                    assert_eq!(Slot::decode(&changed), None, "byte {place} changed by {change}");
                }
            }
        }
        assert_eq!(Slot::decode(&[0; SLOT_BYTES]), None);
    }

    /// A damaged or foreign file may be larger than any segment ever written, and hold a whole record beyond that size.
    #[test]
    fn a_record_beyond_the_end_of_all_segments_has_no_slot() {
        let head = Head { fingerprint: 1, ordinal: 1, unsynced: 1, length: 1 };
        let slot = |offset| Slot::of(&head, offset, 99, &Record::Boot { count: 1 });
        assert_eq!(slot(u64::from(u32::MAX)).map(|slot| slot.offset), Some(u32::MAX));
        assert_eq!(slot(u64::from(u32::MAX) + 1), None);
    }

    #[test]
    fn a_slot_never_speaks_of_itself() {
        assert_eq!(slot().synced_before(), 5);
        assert_eq!(Slot { unsynced: 0, ..slot() }.synced_before(), 6);
        assert_eq!(Slot { unsynced: 9, ..slot() }.synced_before(), 0);
    }
}
