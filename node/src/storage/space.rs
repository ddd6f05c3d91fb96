//! Room on the disk, and what of it is kept for the worst.
//!
//! A file of zeroes, `reserve`, holds room that nobody else on the machine can take. While the disk has more than that besides,
//! there is ample room. With less, the host is told, and refuses what makes the log grow for good. When a write would not
//! leave a quarter of the reserve, the reserve is given to the log; when that is used up to a quarter, the host must stop in
//! order. So no write is begun for which there is no room, as far as the log alone fills the disk: a write that fails for
//! want of room all the same poisons the log as any other does, as nobody knows which part of it is there.
//!
//! With room for three times the reserve, it is written, at first and again. Whoever keeps no reserve is never told of a shortage.
//!
//! A snapshot makes room, so it may use the reserve up to an eighth. What is written of it counts as free, as it can be removed at
//! any time: the log does so when it needs the room itself. Once it is whole, the files that it replaces count instead, up to what
//! it takes; but no write rests on them before they can be removed at any time, too. The reserve is not filled meanwhile.

use super::disk::{Disk, DiskError};
use crate::protocol::host::Room;

/// The file. Its name is no segment's.
pub const RESERVE: &str = "reserve";
/// Written at a time.
const STEP_BYTES: usize = 256 << 10;
/// This part of the reserve is never used up.
const LAST_PARTS: u64 = 4;
/// This part of it is not used up by a snapshot either.
const KEPT_PARTS: u64 = 8;
/// A start needs this part of it besides what is never used up, so that the node does not stop at its first writes.
const START_PARTS: u64 = 16;
/// This part of it is for what was lost, without which there is no snapshot.
const SPARE_PARTS: u64 = 4;
/// Without a reserve, so much is left free by a snapshot that was measured for want of room.
const KEPT_BYTES: u64 = 1 << 20;
/// The reserve is written, at first and again, when there is room for so many.
pub const RESERVES_FREE: u64 = 3;

/// What the log can have back, as nothing rests on it, or soon nothing will.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Lent {
    pub bytes: u64,
    /// Before the very next write, if that needs them.
    pub at_once: bool,
}

/// Too little room for a node that starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortage {
    /// What there is.
    pub free_bytes: u64,
    /// With that it starts, and refuses what makes the log grow for good.
    pub least_bytes: u64,
    /// With that it refuses nothing.
    pub ample_bytes: u64,
}

#[derive(Debug)]
pub(crate) struct Space {
    reserve_bytes: u64,
    /// The reserve is whole; none if nobody looked.
    held: Option<bool>,
    room: Room,
    lent: Lent,
}

impl Space {
    /// Nothing is looked at yet.
    pub fn new(reserve_bytes: u64) -> Space {
        Space { reserve_bytes, held: None, room: Room::Ample, lent: Lent::default() }
    }

    /// Room at the last look.
    pub fn room(&self) -> Room {
        self.room
    }

    /// Makes room for a write, and looks what is left. False: there is none for anything else than these bytes.
    pub fn before_write<D: Disk>(&mut self, disk: &mut D, bytes: u64) -> Result<bool, DiskError> {
        if self.reserve_bytes == 0 {
            return Ok(true);
        }
        let wanted = bytes.saturating_add(self.reserve_bytes / LAST_PARTS);
        if self.is_held(disk)? && disk.space()? < wanted {
            self.give_up(disk)?;
        }
        let held = self.is_held(disk)?;
        let free = disk.space()?.saturating_sub(bytes);
        let last = if self.lent.at_once { self.lent.bytes } else { 0 };
        self.judge(free, last, held);
        Ok(self.room == Room::Ample)
    }

    /// Looks whether there is room again, and fills the reserve if there is; not while a snapshot needs that room.
    pub fn look<D: Disk>(&mut self, disk: &mut D, fills: bool) -> Result<Room, DiskError> {
        if self.reserve_bytes > 0 {
            let mut held = self.is_held(disk)?;
            if !held && fills && disk.space()? >= self.reserve_bytes.saturating_mul(RESERVES_FREE) {
                held = self.fill(disk);
                self.held = Some(held);
            }
            self.judge(disk.space()?, self.lent.bytes, held);
        }
        Ok(self.room)
    }

    /// What the log can have back by now.
    pub fn lend(&mut self, lent: Lent) {
        self.lent = lent;
    }

    /// What is never used up, as far as that is up to the log.
    pub fn last_bytes(&self) -> u64 {
        self.reserve_bytes / LAST_PARTS
    }

    /// Whether there is too little room for a start that finds so many bytes of files which it removes. Changes nothing.
    pub fn shortage<D: Disk>(&self, disk: &D, needless_bytes: u64) -> Result<Option<Shortage>, DiskError> {
        let mut free_bytes = disk.space()?.saturating_add(needless_bytes);
        if disk.list()?.iter().any(|file| file == RESERVE) {
            free_bytes = free_bytes.saturating_add(disk.length(RESERVE)?);
        }
        let least_bytes = self.last_bytes() + self.reserve_bytes / START_PARTS;
        let ample_bytes = self.reserve_bytes.saturating_mul(RESERVES_FREE);
        Ok((free_bytes < least_bytes).then_some(Shortage { free_bytes, least_bytes, ample_bytes }))
    }

    /// What a snapshot must leave free.
    pub fn kept_bytes(&self) -> u64 {
        self.reserve_bytes / KEPT_PARTS
    }

    /// What may be written, without room, of what was lost.
    pub fn spare_bytes(&self) -> u64 {
        self.reserve_bytes / SPARE_PARTS
    }

    /// Whether there is room for a snapshot of so many bytes, the reserve included.
    pub fn fits<D: Disk>(&mut self, disk: &mut D, bytes: u64) -> Result<bool, DiskError> {
        let reserve = if self.is_held(disk)? { self.reserve_bytes } else { 0 };
        Ok(disk.space()?.saturating_add(reserve) >= bytes.saturating_add(self.left_bytes()))
    }

    /// Gives up the reserve if such a snapshot needs it.
    pub fn make_way<D: Disk>(&mut self, disk: &mut D, bytes: u64) -> Result<(), DiskError> {
        if self.is_held(disk)? && disk.space()? < bytes.saturating_add(self.left_bytes()) {
            self.give_up(disk)?;
        }
        Ok(())
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

    /// `last` is what of the lent counts for the last room.
    fn judge(&mut self, free: u64, last: u64, held: bool) {
        self.room = if held && free.saturating_add(self.lent.bytes) >= self.reserve_bytes {
            Room::Ample
        } else if held || free.saturating_add(last) >= self.last_bytes() {
            Room::Short
        } else {
            Room::Out
        };
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

    /// Whether that succeeded. What is in it does not matter, so neither does a failure.
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
    use crate::storage::double::Double;

    fn file_bytes(disk: &Double) -> u64 {
        disk.files().values().map(|bytes| bytes.len() as u64).sum()
    }

    /// A disk that fills up with what is written, and is emptied again.
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
