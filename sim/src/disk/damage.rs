//! Damage to bytes at rest, between two processes that use the disk.
//!
//! Synced data is promised to be there, so a world that does this must see to it that a good copy of everything is left elsewhere.
//! Each damage says what it spoiled, for that budget.

use super::{Directory, File, SimDisk};
use norn_wire::random::Random;
use std::ops::Range;

/// Unit in which a disk reads and writes.
const SECTOR_BYTES: usize = 512;
/// Unit of a file system.
const BLOCK_BYTES: usize = 4096;
/// Places that are tried for one where the damage makes a difference.
const ATTEMPTS: usize = 64;

/// A kind of damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Harm {
    /// One bit is flipped.
    FlippedBit,
    /// 512 bytes are zeroes.
    ZeroedSector,
    /// 4096 bytes are zeroes.
    ZeroedBlock,
    /// A file ends early.
    Truncated,
    /// A sector was written to another place, of any file, and not to its own.
    Misdirected,
    /// A sector is as it was before it was last written; see [`SimDisk::keep_earlier`].
    Stale,
    /// Two files have each other's names.
    Swapped,
    /// A file is gone.
    Deleted,
}

impl Harm {
    /// Every kind.
    pub const ALL: [Harm; 8] = [
        Harm::FlippedBit,
        Harm::ZeroedSector,
        Harm::ZeroedBlock,
        Harm::Truncated,
        Harm::Misdirected,
        Harm::Stale,
        Harm::Swapped,
        Harm::Deleted,
    ];
}

/// Bytes that differ from what was synced there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub file: String,
    /// Range of its bytes, in the file as it was before or as it is now, whichever is longer.
    pub bytes: Range<u64>,
}

/// Damage that was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Kind.
    pub harm: Harm,
    /// Places: one, or two that differ.
    pub places: Vec<Place>,
}

impl SimDisk {
    /// Makes files keep what each sector held before its latest change, so that it can come back. This takes time in proportion to a
    /// file's length at each of its syncs.
    pub fn keep_earlier(&self) {
        self.0.borrow_mut().keeps_earlier = true;
    }

    /// Whether all bytes on the disk are at rest.
    pub fn is_settled(&self) -> bool {
        self.0.borrow().is_settled()
    }

    /// Destroys a file: it is gone, has the bytes of another one, or only zeroes. None of its records is left.
    pub fn lose(&self, file: &str, other: &str, random: &mut Random) -> Harm {
        let mut directory = self.0.borrow_mut();
        assert!(directory.is_settled(), "damage is done to bytes at rest");
        let (lost, others) = (directory.names[file], directory.names[other]);
        let bytes = directory.files[&others].durable.clone();
        let lost_file = directory.files.get_mut(&lost).expect("names name files");
        match random.below(3) {
            0 => {
                directory.names.remove(file);
                directory.names_durable.remove(file);
                Harm::Deleted
            }
            1 => {
                lost_file.damage(|durable| *durable = bytes);
                Harm::Swapped
            }
            _ => {
                lost_file.damage(|durable| durable.fill(0));
                Harm::ZeroedBlock
            }
        }
    }

    /// Damages some place of the disk. None if nothing can be damaged in this way: no second file, no earlier sector, only zeroes
    /// already. No process may be using the disk, and a crash must have settled what it left.
    pub fn damage(&self, harm: Harm, random: &mut Random) -> Option<Damage> {
        let mut directory = self.0.borrow_mut();
        assert!(directory.is_settled(), "damage is done to bytes at rest");
        let places = (0..ATTEMPTS).find_map(|_| directory.damage(harm, random))?;
        Some(Damage { harm, places })
    }
}

fn place(file: &str, from: usize, to: usize) -> Place {
    Place { file: file.to_owned(), bytes: from as u64..to as u64 }
}

/// Draws an aligned range of `bytes` bytes, or fewer at the end of the file.
fn draw_range(length: usize, bytes: usize, random: &mut Random) -> Range<usize> {
    let start = random.below(length.div_ceil(bytes) as u64) as usize * bytes;
    start..(start + bytes).min(length)
}

impl Directory {
    fn is_settled(&self) -> bool {
        self.pending.is_empty() && self.files.values().all(|file| file.pending.is_empty())
    }

    /// Damages one place, drawn at random; none if nothing changed there.
    fn damage(&mut self, harm: Harm, random: &mut Random) -> Option<Vec<Place>> {
        let name = self.draw_name(random)?;
        let file = self.files.get_mut(&self.names[&name]).expect("names name files");
        let length = file.durable.len();
        match harm {
            Harm::FlippedBit => {
                let at = random.below(length as u64) as usize;
                let bit = 1 << random.below(8);
                file.damage(|bytes| bytes[at] ^= bit);
                Some(vec![place(&name, at, at + 1)])
            }
            Harm::ZeroedSector => {
                file.zero(SECTOR_BYTES, random).map(|range| vec![place(&name, range.start, range.end)])
            }
            Harm::ZeroedBlock => file.zero(BLOCK_BYTES, random).map(|range| vec![place(&name, range.start, range.end)]),
            Harm::Truncated => {
                let left = random.below(length as u64) as usize;
                file.damage(|bytes| bytes.truncate(left));
                Some(vec![place(&name, left, length)])
            }
            Harm::Misdirected => self.misdirect(&name, random),
            Harm::Stale => {
                let (start, earlier) = file.draw_earlier(random)?;
                let range = start..start + earlier.len();
                file.put(start, &earlier).then(|| vec![place(&name, range.start, range.end)])
            }
            Harm::Swapped => self.swap(&name, random),
            Harm::Deleted => {
                self.names.remove(&name);
                self.names_durable.remove(&name);
                Some(vec![place(&name, 0, length)])
            }
        }
    }

    /// Draws a file that is not empty.
    fn draw_name(&self, random: &mut Random) -> Option<String> {
        let names: Vec<&String> = self
            .names
            .iter()
            .filter(|(_, number)| !self.files[number].durable.is_empty())
            .map(|(name, _)| name)
            .collect();
        if names.is_empty() {
            return None;
        }
        Some(names[random.below(names.len() as u64) as usize].clone())
    }

    fn misdirect(&mut self, from: &str, random: &mut Random) -> Option<Vec<Place>> {
        let to = self.draw_name(random)?;
        let (source, target) = (self.names[from], self.names[&to]);
        let (range, written) = {
            let bytes = &self.files[&source].durable;
            let range = draw_range(bytes.len(), SECTOR_BYTES, random);
            (range.clone(), bytes[range].to_vec())
        };
        let start = draw_range(self.files[&target].durable.len(), SECTOR_BYTES, random).start;
        if source == target && start == range.start {
            return None;
        }
        let file = &self.files[&source];
        let mut earlier = file.earlier.get(&(range.start as u64)).cloned().unwrap_or_default();
        earlier.resize(written.len(), 0);
        let end = (start + written.len()).min(self.files[&target].durable.len());
        if earlier == written || self.files[&target].durable[start..end] == written {
            return None;
        }
        self.files.get_mut(&source).expect("names name files").put(range.start, &earlier);
        self.files.get_mut(&target).expect("names name files").put(start, &written);
        Some(vec![place(from, range.start, range.end), place(&to, start, start + written.len())])
    }

    fn swap(&mut self, one: &str, random: &mut Random) -> Option<Vec<Place>> {
        let other = self.draw_name(random)?;
        let (first, second) = (self.names[one], self.names[&other]);
        let (bytes, others) = (&self.files[&first].durable, &self.files[&second].durable);
        if bytes == others {
            return None;
        }
        let length = bytes.len().max(others.len());
        for names in [&mut self.names, &mut self.names_durable] {
            names.insert(one.to_owned(), second);
            names.insert(other.clone(), first);
        }
        Some(vec![place(one, 0, length), place(&other, 0, length)])
    }
}

impl File {
    fn damage(&mut self, change: impl FnOnce(&mut Vec<u8>)) {
        change(&mut self.durable);
        self.current = self.durable.clone();
    }

    /// Puts bytes in place. Returns whether that changed anything.
    fn put(&mut self, start: usize, bytes: &[u8]) -> bool {
        let before = self.durable.clone();
        self.damage(|durable| {
            durable.resize(durable.len().max(start + bytes.len()), 0);
            durable[start..start + bytes.len()].copy_from_slice(bytes);
        });
        self.durable != before
    }

    fn zero(&mut self, bytes: usize, random: &mut Random) -> Option<Range<usize>> {
        let range = draw_range(self.durable.len(), bytes, random);
        self.put(range.start, &vec![0; range.len()]).then_some(range)
    }

    /// Draws a sector with an earlier state: where it begins, and its earlier bytes.
    fn draw_earlier(&self, random: &mut Random) -> Option<(usize, Vec<u8>)> {
        let known: Vec<_> = self.earlier.iter().filter(|(start, _)| **start < self.durable.len() as u64).collect();
        if known.is_empty() {
            return None;
        }
        let (start, bytes) = known[random.below(known.len() as u64) as usize];
        let left = self.durable.len() - *start as usize;
        Some((*start as usize, bytes[..bytes.len().min(left)].to_vec()))
    }

    /// Notes the earlier contents of sectors that differ from `before`. What lay behind the end of the file counts as zeroes; a
    /// sector of which nothing existed has no earlier state.
    pub(super) fn keep_earlier(&mut self, before: &[u8]) {
        for (place, earlier) in before.chunks(SECTOR_BYTES).enumerate() {
            let start = place * SECTOR_BYTES;
            let now = &self.durable[start.min(self.durable.len())..(start + SECTOR_BYTES).min(self.durable.len())];
            let mut earlier = earlier.to_vec();
            earlier.resize(earlier.len().max(now.len()), 0);
            if now != earlier {
                self.earlier.insert(start as u64, earlier);
            }
        }
    }
}
