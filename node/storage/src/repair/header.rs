//! Reconstruction of a segment's header from the rest of the segment.

use crate::disk::{Disk, DiskError};
use crate::reader::{Next, Reader};
use crate::segment::{HEADER_BYTES, Header, SLOTS_MAX};
use crate::slot::{SLOT_BYTES, Slot};
use norn_wire::{ClusterId, NodeId};

/// Facts about a segment that other files show.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    pub cluster: ClusterId,
    pub node: NodeId,
    pub segment: u64,
    /// Ordinal after the segment before it, as far as known.
    pub next_ordinal: u64,
}

/// Records and heads left in a segment, which refer to each other.
#[derive(Debug, Default)]
struct Traces {
    /// Ordinal and offset of the first record.
    first_record: Option<(u64, u64)>,
    /// Whole heads, by their slot number.
    heads: Vec<(u64, Slot)>,
}

fn look<D: Disk>(disk: &D, file: &str) -> Result<Traces, DiskError> {
    let mut traces = Traces::default();
    let length = disk.length(file)?;
    let mut reader = Reader::new(disk, file, HEADER_BYTES as u64, length);
    loop {
        match reader.next()? {
            Next::Damage(_) => {}
            Next::End => break,
            Next::Frame(frame) => {
                traces.first_record = Some((frame.head.ordinal, frame.offset));
                break;
            }
        }
    }
    let most = HEADER_BYTES as u64 + u64::from(SLOTS_MAX) * SLOT_BYTES as u64;
    let end = traces.first_record.map_or(most, |(_, offset)| offset.min(most));
    let region = disk.read(file, HEADER_BYTES as u64, (end - HEADER_BYTES as u64) as usize)?;
    let heads = region.chunks_exact(SLOT_BYTES).map(|bytes| bytes.first_chunk().and_then(Slot::decode));
    traces.heads = (0..).zip(heads).filter_map(|(place, head)| Some((place, head?))).collect();
    Ok(traces)
}

/// The header that agrees with records and heads; `None` if none are left, or if they contradict each other. If the first record is
/// lost along with its head, the reconstructed slot region may be longer than the original: the extra bytes are no heads, and any
/// record there was lost in any case.
pub(super) fn rebuild<D: Disk>(disk: &D, file: &str, known: Known) -> Result<Option<Header>, DiskError> {
    let Traces { first_record, heads } = look(disk, file)?;
    if first_record.is_none() && heads.is_empty() {
        return Ok(None);
    }
    let first_ordinal = match heads.first() {
        None => known.next_ordinal,
        Some((place, head)) => head.ordinal.saturating_sub(*place),
    };
    let agree = heads.iter().all(|(place, head)| head.ordinal.checked_sub(*place) == Some(first_ordinal));
    let slots_before = |offset: u64| offset.saturating_sub(HEADER_BYTES as u64) / SLOT_BYTES as u64;
    let of_first_head = heads.first().filter(|(place, _)| *place == 0).map(|(_, head)| u64::from(head.offset));
    let records_offset = of_first_head.or(first_record.map(|(_, offset)| offset));
    let records_offset = records_offset.or(heads.iter().map(|(_, head)| u64::from(head.offset)).min()).unwrap_or(0);
    let slots = slots_before(records_offset).min(u64::from(SLOTS_MAX)) as u32;
    let Known { cluster, node, segment, .. } = known;
    let header = Header { cluster, node, segment, first_ordinal, slots };
    let holds_record =
        first_record.is_none_or(|(ordinal, offset)| header.has_slot(ordinal) && offset >= header.records_offset());
    let holds_heads = heads.iter().all(|(_, head)| header.has_slot(head.ordinal));
    Ok((agree && first_ordinal > 0 && slots > 0 && holds_record && holds_heads).then_some(header))
}
