//! Operations that fail, lie, find no room or take long, while a process uses the disk.

use super::{Directory, SimDisk, apply, failure};
use norn_storage::disk::DiskError;
use norn_wire::random::Random;

/// Cause that a failed operation reports.
pub(super) const CAUSE: &str = "input/output error";
const MILLION: u64 = 1_000_000;

/// What may go wrong with a disk. The default is nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Troubles {
    /// Reads that fail, in a million.
    pub read_errors_ppm: u64,
    /// Writes and truncations of files that fail, in a million. A part may have happened.
    pub write_errors_ppm: u64,
    /// Syncs of files that fail, in a million. Each change since the last sync is durable or lost, which shows only after a crash:
    /// until then it is read as before, and the next sync succeeds without it.
    pub sync_errors_ppm: u64,
    /// Operations on the directory that fail, in a million. A failed sync of it loses changes as that of a file does, but keeps a
    /// prefix of them.
    pub name_errors_ppm: u64,
    /// Syncs that succeed and do nothing, in a million: all changes stay pending until an honest sync.
    pub sync_lies_ppm: u64,
    /// Capacity, holes counted. A write beyond it fails as [`DiskError::full`]; a part may have happened.
    pub capacity_bytes: Option<u64>,
    /// Factor by which a sync takes longer than usual. The disk has no clock: its host applies this.
    pub slowness: u64,
}

impl Default for Troubles {
    fn default() -> Self {
        Troubles {
            read_errors_ppm: 0,
            write_errors_ppm: 0,
            sync_errors_ppm: 0,
            name_errors_ppm: 0,
            sync_lies_ppm: 0,
            capacity_bytes: None,
            slowness: 1,
        }
    }
}

/// Counters of what went wrong with a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Suffered {
    /// Reads that failed.
    pub reads: u64,
    /// Writes and truncations that failed, without those for want of room.
    pub writes: u64,
    /// Syncs of files that failed.
    pub syncs: u64,
    /// Operations on the directory that failed.
    pub names: u64,
    /// Syncs that were lies.
    pub lies: u64,
    /// Writes that failed for want of room.
    pub full: u64,
}

impl Suffered {
    /// Operations that were reported as failed.
    pub fn errors(&self) -> u64 {
        self.reads + self.writes + self.syncs + self.names + self.full
    }
}

/// Troubles, and their random generator.
#[derive(Debug)]
pub(super) struct Troubled {
    troubles: Troubles,
    random: Random,
}

impl SimDisk {
    /// Sets what goes wrong from now on, drawn from `random`. It replaces the troubles before.
    pub fn trouble(&self, troubles: Troubles, random: Random) {
        assert!(troubles.slowness > 0, "time passes during a sync");
        self.0.borrow_mut().troubled = Some(Troubled { troubles, random });
    }

    /// Ends all troubles. That does not mend what a failed or lying sync did not make durable.
    pub fn end_troubles(&self) {
        self.0.borrow_mut().troubled = None;
    }

    /// Counters since the disk exists.
    pub fn suffered(&self) -> Suffered {
        self.0.borrow().suffered
    }

    /// Factor by which a sync takes longer than usual now.
    pub fn slowness(&self) -> u64 {
        self.0.borrow().troubled.as_ref().map_or(1, |troubled| troubled.troubles.slowness)
    }

    /// Bytes of all files together, holes counted.
    pub fn used_bytes(&self) -> u64 {
        self.0.borrow().used_bytes()
    }
}

impl Directory {
    /// Whether a trouble strikes. Draws only if its rate is not 0.
    fn strikes(&mut self, ppm: impl Fn(&Troubles) -> u64) -> bool {
        self.troubled.as_mut().is_some_and(|Troubled { troubles, random }| {
            let ppm = ppm(troubles);
            ppm > 0 && random.chance(ppm, MILLION)
        })
    }

    pub(super) fn random(&mut self) -> &mut Random {
        &mut self.troubled.as_mut().expect("something has gone wrong").random
    }

    fn used_bytes(&self) -> u64 {
        self.names.values().map(|number| self.files[number].current.len() as u64).sum()
    }

    pub(super) fn space(&self) -> u64 {
        let capacity = self.troubled.as_ref().and_then(|troubled| troubled.troubles.capacity_bytes);
        capacity.map_or(u64::MAX, |capacity| capacity.saturating_sub(self.used_bytes()))
    }

    pub(super) fn read_fails(&mut self) -> bool {
        let fails = self.strikes(|troubles| troubles.read_errors_ppm);
        self.suffered.reads += u64::from(fails);
        fails
    }

    /// If a write fails: how many of its bytes are written all the same, and the error.
    pub(super) fn write_fails(&mut self, file: &str, offset: u64, bytes: usize) -> Option<(usize, DiskError)> {
        if self.strikes(|troubles| troubles.write_errors_ppm) {
            self.suffered.writes += 1;
            let part = self.random().between(0, bytes as u64) as usize;
            return Some((part, failure("write", file, CAUSE)));
        }
        let capacity = self.troubled.as_ref()?.troubles.capacity_bytes?;
        let length = self.files[&self.names[file]].current.len() as u64;
        let end_max = length + capacity.saturating_sub(self.used_bytes());
        if offset + bytes as u64 <= end_max {
            return None;
        }
        self.suffered.full += 1;
        let part = self.random().between(0, end_max.saturating_sub(offset)) as usize;
        Some((part, DiskError { full: true, ..failure("write", file, "no space left on device") }))
    }

    /// If a truncation fails: whether it happens all the same.
    pub(super) fn truncate_fails(&mut self) -> Option<bool> {
        if !self.strikes(|troubles| troubles.write_errors_ppm) {
            return None;
        }
        self.suffered.writes += 1;
        Some(self.random().chance(1, 2))
    }

    /// Whether a sync fails. Then some of the pending changes become durable, and the others are lost.
    pub(super) fn sync_fails(&mut self, number: u64) -> bool {
        if !self.strikes(|troubles| troubles.sync_errors_ppm) {
            return false;
        }
        self.suffered.syncs += 1;
        let mut random = self.random().child();
        let file = self.files.get_mut(&number).expect("names name files");
        file.sync(self.keeps_earlier, || random.chance(1, 2));
        true
    }

    pub(super) fn sync_lies(&mut self) -> bool {
        let lies = self.strikes(|troubles| troubles.sync_lies_ppm);
        self.suffered.lies += u64::from(lies);
        lies
    }

    pub(super) fn name_operation_fails(&mut self) -> bool {
        let fails = self.strikes(|troubles| troubles.name_errors_ppm);
        self.suffered.names += u64::from(fails);
        fails
    }

    /// Whether a sync of the directory fails. Then a prefix of the pending changes of names becomes durable, and the others are lost.
    pub(super) fn directory_sync_fails(&mut self) -> bool {
        if !self.name_operation_fails() {
            return false;
        }
        let pending = std::mem::take(&mut self.pending);
        let kept = self.random().between(0, pending.len() as u64) as usize;
        pending[..kept].iter().for_each(|rename| apply(&mut self.names_durable, rename));
        self.stranded |= kept < pending.len();
        true
    }
}
