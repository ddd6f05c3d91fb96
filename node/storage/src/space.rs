//! Disk space accounting, and the reserve for when the disk is full.
//!
//! A file of zeroes, `reserve`, holds space that no other process on the machine can take. While the disk has more than that free
//! besides, space is ample. With less, the host is notified, and refuses operations that make the log grow for good. When a write
//! would leave less than a quarter of the reserve free, the reserve file is removed for the log's use; when that space is used up to
//! a quarter, the host must stop in order. So no write is begun without space for it, as far as the log alone fills the disk. A write
//! that fails for want of space all the same poisons the log as any other failure does, because it is unknown which part of it is on
//! disk.
//!
//! While much is free, the figure for a write may be a second old ([`Disk::recent_space`]). At worst another process takes all that is
//! free, beyond a margin of 1 GiB, within that second: then a write may fail as above, though a fresh look would have stopped the
//! node in order. The reserve stands all the same, so that the next start has it to begin with.
//!
//! The reserve is written, at first and again, when there is space for three times its size. Without a configured reserve the host is
//! never notified of a shortage.
//!
//! A snapshot frees space, so it may use the reserve up to an eighth. The bytes written of it count as free, because it can be
//! removed at any time: the log does so when it needs the space itself. Once it is whole, the files that it replaces count as free
//! instead, up to its size; but no write relies on them before they, too, can be removed at any time. The reserve is not filled
//! meanwhile.

use super::disk::{Disk, DiskError};
use norn_model::config::table::RESERVES_FREE;
use norn_model::host::Room;

/// File name of the reserve. No segment has such a name.
pub const RESERVE: &str = "reserve";
/// Bytes per write when filling the reserve.
const STEP_BYTES: usize = 256 << 10;
/// One part in this many of the reserve is never used up.
const LAST_PARTS: u64 = 4;
/// One part in this many of the reserve is not used up by a snapshot either.
const KEPT_PARTS: u64 = 8;
/// One part in this many of the reserve is needed by a start, besides what is never used up, so that the node does not stop at its
/// first writes.
const START_PARTS: u64 = 16;
/// One part in this many of the reserve is for recovering lost state, without which no snapshot is written.
const SPARE_PARTS: u64 = 4;
/// Bytes that a snapshot measured for want of space leaves free, if there is no reserve.
const KEPT_BYTES: u64 = 1 << 20;

/// Space that the log can reclaim, because nothing depends on those files, or soon nothing will.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lent {
    pub bytes: u64,
    /// Reclaimable before the very next write, if that needs the space.
    pub at_once: bool,
}

/// Too little disk space for a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortage {
    /// Free bytes.
    pub free_bytes: u64,
    /// Bytes with which the node starts, but refuses operations that make the log grow for good.
    pub least_bytes: u64,
    /// Bytes with which the node refuses nothing.
    pub ample_bytes: u64,
}

#[derive(Debug)]
pub struct Space {
    reserve_bytes: u64,
    /// Whether the reserve is whole; `None` before the first check.
    held: Option<bool>,
    room: Room,
    lent: Lent,
}

impl Space {
    /// A state in which nothing is checked yet.
    pub fn new(reserve_bytes: u64) -> Space {
        Space { reserve_bytes, held: None, room: Room::Ample, lent: Lent::default() }
    }

    /// Disk space state at the last check.
    pub fn room(&self) -> Room {
        self.room
    }

    /// Makes room for a write, and checks the space left. Returns whether it is ample; if not, no more than these bytes may be written.
    pub fn before_write<D: Disk>(&mut self, disk: &mut D, bytes: u64) -> Result<bool, DiskError> {
        if self.reserve_bytes == 0 {
            return Ok(true);
        }
        let wanted = bytes.saturating_add(self.reserve_bytes / LAST_PARTS);
        let mut held = self.is_held(disk)?;
        let mut free = disk.recent_space(bytes.saturating_add(self.enough_bytes()))?;
        if held && free < wanted {
            self.give_up(disk)?;
            (held, free) = (false, disk.space()?);
        }
        let last = if self.lent.at_once { self.lent.bytes } else { 0 };
        self.judge(free.saturating_sub(bytes), last, held);
        Ok(self.room == Room::Ample)
    }

    /// Checks whether there is space again, and if there is, fills the reserve; `fills` is false while a snapshot needs that space.
    pub fn look<D: Disk>(&mut self, disk: &mut D, fills: bool) -> Result<Room, DiskError> {
        if self.reserve_bytes > 0 {
            let mut held = self.is_held(disk)?;
            let mut free = disk.recent_space(self.enough_bytes())?;
            if !held && fills && free >= self.enough_bytes() {
                held = self.fill(disk);
                self.held = Some(held);
                free = disk.space()?;
            }
            self.judge(free, self.lent.bytes, held);
        }
        Ok(self.room)
    }

    /// Disk space state as a node would find it that looks now, and fills the reserve if there is space for it. Changes nothing.
    pub fn foresee<D: Disk>(&self, disk: &D) -> Result<Room, DiskError> {
        if self.reserve_bytes == 0 {
            return Ok(Room::Ample);
        }
        let free = disk.space()?;
        let there = disk.list()?.iter().any(|file| file == RESERVE);
        let held = there && disk.length(RESERVE)? == self.reserve_bytes;
        match held || free < self.enough_bytes() {
            true => Ok(self.room_of(free, self.lent.bytes, held)),
            false => Ok(Room::Ample),
        }
    }

    /// Sets the space that the log can reclaim.
    pub fn lend(&mut self, lent: Lent) {
        self.lent = lent;
    }

    /// Bytes that are never used up, as far as that is up to the log.
    pub fn last_bytes(&self) -> u64 {
        self.reserve_bytes / LAST_PARTS
    }

    /// Whether there is too little space for a start, which also frees `needless_bytes` by removing obsolete files. Changes nothing.
    pub fn shortage<D: Disk>(&self, disk: &D, needless_bytes: u64) -> Result<Option<Shortage>, DiskError> {
        let mut free_bytes = disk.space()?.saturating_add(needless_bytes);
        if disk.list()?.iter().any(|file| file == RESERVE) {
            free_bytes = free_bytes.saturating_add(disk.length(RESERVE)?);
        }
        let least_bytes = self.last_bytes() + self.reserve_bytes / START_PARTS;
        let ample_bytes = self.enough_bytes();
        Ok((free_bytes < least_bytes).then_some(Shortage { free_bytes, least_bytes, ample_bytes }))
    }

    /// Bytes that a snapshot must leave free.
    pub fn kept_bytes(&self) -> u64 {
        self.reserve_bytes / KEPT_PARTS
    }

    /// Bytes of lost state that may be written while the disk is full.
    pub fn spare_bytes(&self) -> u64 {
        self.reserve_bytes / SPARE_PARTS
    }

    /// Whether there is space for a snapshot of this size, the reserve included.
    pub fn fits<D: Disk>(&mut self, disk: &mut D, bytes: u64) -> Result<bool, DiskError> {
        let reserve = if self.is_held(disk)? { self.reserve_bytes } else { 0 };
        Ok(disk.space()?.saturating_add(reserve) >= bytes.saturating_add(self.left_bytes()))
    }

    /// Removes the reserve if a snapshot of this size needs it.
    pub fn make_way<D: Disk>(&mut self, disk: &mut D, bytes: u64) -> Result<(), DiskError> {
        if self.is_held(disk)? && disk.space()? < bytes.saturating_add(self.left_bytes()) {
            self.give_up(disk)?;
        }
        Ok(())
    }

    /// Free bytes from which on nothing here depends on the figure.
    fn enough_bytes(&self) -> u64 {
        self.reserve_bytes.saturating_mul(RESERVES_FREE)
    }

    fn left_bytes(&self) -> u64 {
        if self.reserve_bytes > 0 { self.kept_bytes() } else { KEPT_BYTES }
    }

    fn give_up<D: Disk>(&mut self, disk: &mut D) -> Result<(), DiskError> {
        disk.remove(RESERVE)?;
        disk.sync_directory()?;
        self.held = Some(false);
        Ok(())
    }

    /// Updates the space state. `last` is the part of the lent bytes that counts toward the never-used quarter.
    fn judge(&mut self, free: u64, last: u64, held: bool) {
        self.room = self.room_of(free, last, held);
    }

    fn room_of(&self, free: u64, last: u64, held: bool) -> Room {
        if held && free.saturating_add(self.lent.bytes) >= self.reserve_bytes {
            Room::Ample
        } else if held || free.saturating_add(last) >= self.last_bytes() {
            Room::Short
        } else {
            Room::Out
        }
    }

    fn is_held<D: Disk>(&mut self, disk: &mut D) -> Result<bool, DiskError> {
        if self.held.is_none() {
            let there = disk.list()?.iter().any(|file| file == RESERVE);
            let whole = there && disk.length(RESERVE)? == self.reserve_bytes;
            if there && !whole {
                disk.remove(RESERVE)?;
                disk.sync_directory()?;
            }
            self.held = Some(whole);
        }
        Ok(self.held == Some(true))
    }

    /// Writes the reserve, and returns whether that succeeded. A failure is harmless, as the file's content does not matter.
    fn fill<D: Disk>(&self, disk: &mut D) -> bool {
        let mut offset = 0;
        let mut filled = Ok(());
        while offset < self.reserve_bytes && filled.is_ok() {
            let zeroes = vec![0; STEP_BYTES.min((self.reserve_bytes - offset) as usize)];
            filled = disk.write(RESERVE, offset, &zeroes);
            offset += zeroes.len() as u64;
        }
        let kept = filled.and_then(|()| disk.sync(RESERVE)).and_then(|()| disk.sync_directory());
        if kept.is_err() {
            let _ = disk.remove(RESERVE);
        }
        kept.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::double::Double;

    fn file_bytes(disk: &Double) -> u64 {
        disk.files().values().map(|bytes| bytes.len() as u64).sum()
    }

    /// A disk that fills up with writes, and is emptied again.
    #[test]
    fn the_reserve_is_given_up_last_and_filled_again() {
        let (mut disk, mut space) = (Double::default(), Space::new(1_000));
        disk.limit(Some(5_000));
        assert_eq!(space.look(&mut disk, true), Ok(Room::Ample));
        assert_eq!(file_bytes(&disk), 1_000);
        let mut rooms = Vec::new();
        let mut written = 0;
        loop {
            space.before_write(&mut disk, 100).expect("no fault");
            if rooms.last() != Some(&(space.room(), disk.files().contains_key(RESERVE))) {
                rooms.push((space.room(), disk.files().contains_key(RESERVE)));
            }
            if space.room() == Room::Out {
                break;
            }
            disk.write("a", written, &[1; 100]).expect("there is room for every write that was announced");
            written += 100;
        }
        assert_eq!(rooms, [(Room::Ample, true), (Room::Short, true), (Room::Short, false), (Room::Out, false)]);
        assert!((4_500..=4_800).contains(&written), "{written}");
        assert_eq!(space.look(&mut disk, true), Ok(Room::Short));
        disk.limit(Some(written + 2_999));
        assert_eq!(space.look(&mut disk, true), Ok(Room::Short), "not for long");
        disk.limit(Some(written + 3_000));
        assert_eq!(space.look(&mut disk, true), Ok(Room::Ample));
        assert_eq!(file_bytes(&disk), written + 1_000);
    }

    /// Goal: a kept figure weakens nothing while others take no more than its margin between two looks. Method: a disk that fills up
    /// with writes and with what another process takes, the whole margin just after each look.
    #[test]
    fn the_reserve_stands_while_others_take_the_margin_unseen() {
        let (mut disk, mut space, margin) = (Double::default(), Space::new(1_000), 500);
        let (mut capacity, mut written, mut rooms) = (20_000, 0, Vec::new());
        disk.limit(Some(capacity));
        disk.lag(margin);
        assert_eq!(space.look(&mut disk, true), Ok(Room::Ample));
        disk.take_looks();
        let (mut looks, mut writes) = (0, 0);
        while space.room() != Room::Out {
            space.before_write(&mut disk, 100).expect("no fault");
            let seen = disk.take_looks();
            (looks, writes) = (looks + seen, writes + 1);
            let state = (space.room(), disk.files().contains_key(RESERVE));
            if rooms.last() != Some(&state) {
                rooms.push(state);
            }
            if space.room() == Room::Out {
                break;
            }
            disk.write("a", written, &[1; 100]).expect("there is room for every write that was announced");
            written += 100;
            if seen > 0 && space.room() == Room::Ample {
                capacity -= margin;
                disk.limit(Some(capacity));
            }
            if writes % 8 == 0 {
                disk.a_second_later();
            }
        }
        assert_eq!(rooms, [(Room::Ample, true), (Room::Short, true), (Room::Short, false), (Room::Out, false)]);
        assert!(looks < writes, "{looks} looks at {writes} writes");
    }

    #[test]
    fn the_space_is_looked_at_once_for_a_write_and_seldom_while_there_is_plenty() {
        let (mut disk, mut space) = (Double::default(), Space::new(1_000));
        disk.limit(Some(100_000));
        space.look(&mut disk, true).expect("no fault");
        disk.take_looks();
        for _ in 0..10 {
            space.before_write(&mut disk, 100).expect("no fault");
            assert_eq!(disk.take_looks(), 1);
        }
        disk.lag(1_000);
        for _ in 0..10 {
            space.before_write(&mut disk, 100).expect("no fault");
            space.look(&mut disk, true).expect("no fault");
        }
        assert_eq!(disk.take_looks(), 0);
        // A write that comes close to what is free.
        space.before_write(&mut disk, 96_000).expect("no fault");
        assert_eq!(disk.take_looks(), 1);
        disk.a_second_later();
        space.before_write(&mut disk, 100).expect("no fault");
        assert_eq!(disk.take_looks(), 1);
    }

    /// Goal: what is foreseen is what a look finds. Method: the same disk at several sizes, with and without the reserve.
    #[test]
    fn a_look_finds_what_was_foreseen_and_nothing_was_changed() {
        for (bytes_max, file) in [(5_000, None), (2_999, None), (200, None), (1_900, Some(1_000)), (2_000, Some(1_000))]
        {
            let mut disk = file.map_or_else(Double::default, |bytes| Double::with_file(RESERVE, &vec![0; bytes]));
            disk.limit(Some(bytes_max));
            let mut space = Space::new(1_000);
            let (before, foreseen) = (disk.files().clone(), space.foresee(&disk));
            assert_eq!(before, disk.files());
            assert_eq!(foreseen, space.look(&mut disk, true), "{bytes_max} {file:?}");
        }
    }

    #[test]
    fn a_reserve_of_another_size_is_written_anew() {
        let mut disk = Double::with_file(RESERVE, &[0; 77]);
        let mut space = Space::new(1_000);
        assert_eq!(space.look(&mut disk, true), Ok(Room::Ample));
        assert_eq!(disk.files()[RESERVE].len(), 1_000);
    }

    #[test]
    fn without_a_reserve_nothing_is_looked_at() {
        let (mut disk, mut space) = (Double::default(), Space::new(0));
        disk.limit(Some(1));
        assert_eq!(space.before_write(&mut disk, 100), Ok(true));
        assert_eq!((space.look(&mut disk, true), disk.files().len()), (Ok(Room::Ample), 0));
    }
}
