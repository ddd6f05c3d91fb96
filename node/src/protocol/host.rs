//! What the host says of the machine: room on the disk and how fast that is, and memory. What follows from it is the node's affair
//! (`membership`).

/// Syncs that are faster than this are no reason to hand over, however fast the others are.
pub const SLOW_US_MIN: u64 = 50_000;

/// Room on the disk of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Room {
    /// Enough.
    #[default]
    Ample,
    /// What is left is for votes, operations on claims, endings, and handing over.
    Short,
    /// Not even for these.
    Out,
}

/// What the host says of the disk. Said whenever it changes; the host measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DiskReport {
    /// Room.
    pub room: Room,
    /// There is no more room because of a setting, and not of the disk.
    pub bounded: bool,
    /// How long syncs take lately, in microseconds; 0 if there were none.
    pub sync_us: u64,
    /// Without more room so much may still be written of what the log has lost, so that a snapshot can be written, which makes room.
    pub spare_bytes: u64,
}

/// What the host says of memory, again and again; nothing is in use of no limit where it cannot tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryReport {
    /// In use, without what the system takes back when it needs it.
    pub used_bytes: u64,
    /// What may be in use.
    pub limit_bytes: u64,
}

impl MemoryReport {
    /// How much of a part of the limit is exceeded.
    pub(in crate::protocol) fn above(&self, percent: u64) -> Option<u64> {
        let allowed_bytes = self.limit_bytes / 100 * percent;
        self.used_bytes.checked_sub(allowed_bytes).filter(|_| self.limit_bytes > 0)
    }
}
