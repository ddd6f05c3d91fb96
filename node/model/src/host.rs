//! Host reports on the machine: disk space, disk latency, and memory. The node draws the consequences (`membership`).

/// Syncs faster than this are no reason to transfer leaderships, however fast the disks of others are.
pub const SLOW_US_MIN: u64 = 50_000;

/// Disk space of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Room {
    /// Enough.
    #[default]
    Ample,
    /// What is left is reserved for votes, operations on claims, endings, and leadership transfers.
    Short,
    /// Not even enough for these.
    Out,
}

/// Host's report on the disk. The host measures, and reports every change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DiskReport {
    /// Disk space.
    pub room: Room,
    /// A setting, and not the disk, limits the space.
    pub bounded: bool,
    /// Recent duration of syncs, in microseconds; 0 if there were none.
    pub sync_us: u64,
    /// Bytes of lost parts that may still be written without more space, so that a snapshot can be written, which makes space.
    pub spare_bytes: u64,
}

/// Host's report on memory, repeated. Where the host cannot tell, nothing is in use and there is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryReport {
    /// In use, without what the system reclaims when it needs it.
    pub used_bytes: u64,
    /// Limit of use.
    pub limit_bytes: u64,
}

impl MemoryReport {
    /// Bytes by which use exceeds this percentage of the limit.
    pub fn above(&self, percent: u64) -> Option<u64> {
        let allowed_bytes = self.limit_bytes / 100 * percent;
        self.used_bytes.checked_sub(allowed_bytes).filter(|_| self.limit_bytes > 0)
    }
}
