//! A disk that forgets at a crash what was not synced.
//!
//! Per file it knows the durable bytes and the operations since; per directory the durable names and the changes since.
//! A crash keeps any of the writes since, each whole, in part or not at all, and a random prefix of the changes of names.
//! Synced data is never damaged here: the cluster is supposed to recover from everything that happens. Records that are
//! lost all the same are left out when the log is replayed (`damage.rs`).

use norn_node::protocol::random::Random;
use norn_node::storage::disk::{Disk, DiskError};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

#[derive(Debug, Clone)]
enum Change {
    Write(u64, Vec<u8>),
    Truncate(u64),
}

#[derive(Debug, Clone, Default)]
struct File {
    durable: Vec<u8>,
    current: Vec<u8>,
    pending: Vec<Change>,
}

#[derive(Debug, Clone)]
enum Rename {
    Link(String, u64),
    Move(String, String),
    Unlink(String),
}

#[derive(Debug, Default)]
struct Directory {
    files: BTreeMap<u64, File>,
    next_file: u64,
    names: BTreeMap<String, u64>,
    names_durable: BTreeMap<String, u64>,
    pending: Vec<Rename>,
}

/// A handle to the disk of one node; it outlives the processes that use it.
#[derive(Debug, Clone, Default)]
pub struct SimDisk(Rc<RefCell<Directory>>);

/// What a crash did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lost {
    /// Bytes that were not synced and are gone.
    pub bytes: u64,
    /// Bytes that were not synced and are there all the same.
    pub kept: u64,
    /// Changes of names that are gone.
    pub names: u64,
}

fn apply(names: &mut BTreeMap<String, u64>, rename: &Rename) {
    match rename {
        Rename::Link(name, file) => {
            names.insert(name.clone(), *file);
        }
        Rename::Move(from, to) => {
            if let Some(file) = names.remove(from) {
                names.insert(to.clone(), file);
            }
        }
        Rename::Unlink(name) => {
            names.remove(name);
        }
    }
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Change::Write(offset, written) => {
                let (start, end) = (*offset as usize, *offset as usize + written.len());
                bytes.resize(bytes.len().max(end), 0);
                bytes[start..end].copy_from_slice(written);
            }
            Change::Truncate(length) => bytes.truncate(*length as usize),
        }
    }

    /// What a crash leaves of it: all, nothing, or a part of a write, as a disk may bring its sectors in any order.
    fn crash(self, random: &mut Random, lost: &mut Lost) -> Option<Change> {
        let Change::Write(offset, bytes) = self else { return random.chance(1, 2).then_some(self) };
        let length = bytes.len() as u64;
        let (start, end) = match random.below(5) {
            0 => (0, 0),
            1 | 2 => (0, length),
            3 => (0, random.between(0, length)),
            _ => {
                let start = random.between(0, length);
                (start, random.between(start, length))
            }
        };
        lost.kept += end - start;
        lost.bytes += length - (end - start);
        // The file may have grown for bytes that never came.
        if start == end && random.chance(1, 2) {
            return None;
        }
        Some(Change::Write(offset + start, bytes[start as usize..end as usize].to_vec()))
    }
}

impl File {
    fn change(&mut self, change: Change) {
        change.apply(&mut self.current);
        self.pending.push(change);
    }

    /// Keeps any part of what was not synced.
    fn crash(&mut self, random: &mut Random, lost: &mut Lost) {
        let pending = std::mem::take(&mut self.pending);
        let fate = random.below(4);
        self.current = std::mem::take(&mut self.durable);
        for change in pending {
            let kept = match fate {
                0 => Some(change),
                _ => change.crash(random, lost),
            };
            kept.into_iter().for_each(|change| change.apply(&mut self.current));
        }
        self.durable = self.current.clone();
    }
}

impl SimDisk {
    /// The machine stops: what was not synced is lost, or some of it.
    pub fn crash(&self, random: &mut Random) -> Lost {
        let mut directory = self.0.borrow_mut();
        let directory = &mut *directory;
        let mut lost = Lost::default();
        let pending = std::mem::take(&mut directory.pending);
        let kept = random.between(0, pending.len() as u64) as usize;
        lost.names = (pending.len() - kept) as u64;
        for rename in &pending[..kept] {
            apply(&mut directory.names_durable, rename);
        }
        directory.names = directory.names_durable.clone();
        for file in directory.files.values_mut() {
            file.crash(random, &mut lost);
        }
        let names = &directory.names;
        directory.files.retain(|file, _| names.values().any(|named| named == file));
        lost
    }

    fn with<T>(&self, operation: &'static str, name: &str, body: impl FnOnce(&mut File) -> T) -> Result<T, DiskError> {
        let mut directory = self.0.borrow_mut();
        let file = directory.names.get(name).copied().ok_or_else(|| absent(operation, name))?;
        Ok(body(directory.files.get_mut(&file).expect("names name files")))
    }
}

fn absent(operation: &'static str, name: &str) -> DiskError {
    DiskError { operation, file: name.to_owned(), cause: "no such file".into(), full: false }
}

impl Disk for SimDisk {
    fn list(&self) -> Result<Vec<String>, DiskError> {
        Ok(self.0.borrow().names.keys().cloned().collect())
    }

    fn length(&self, file: &str) -> Result<u64, DiskError> {
        self.with("length", file, |file| file.current.len() as u64)
    }

    fn read(&self, file: &str, offset: u64, length: usize) -> Result<Vec<u8>, DiskError> {
        self.with("read", file, |file| {
            let start = (offset as usize).min(file.current.len());
            let end = start.saturating_add(length).min(file.current.len());
            file.current[start..end].to_vec()
        })
    }

    fn write(&mut self, file: &str, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        {
            let mut directory = self.0.borrow_mut();
            if !directory.names.contains_key(file) {
                let number = directory.next_file;
                directory.next_file += 1;
                directory.files.insert(number, File::default());
                directory.names.insert(file.to_owned(), number);
                directory.pending.push(Rename::Link(file.to_owned(), number));
            }
        }
        self.with("write", file, |file| file.change(Change::Write(offset, bytes.to_vec())))
    }

    fn truncate(&mut self, file: &str, length: u64) -> Result<(), DiskError> {
        self.with("truncate", file, |file| file.change(Change::Truncate(length)))
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<(), DiskError> {
        let mut directory = self.0.borrow_mut();
        if !directory.names.contains_key(from) {
            return Err(absent("rename", from));
        }
        let rename = Rename::Move(from.to_owned(), to.to_owned());
        apply(&mut directory.names, &rename);
        directory.pending.push(rename);
        Ok(())
    }

    fn remove(&mut self, file: &str) -> Result<(), DiskError> {
        let mut directory = self.0.borrow_mut();
        if !directory.names.contains_key(file) {
            return Err(absent("remove", file));
        }
        let rename = Rename::Unlink(file.to_owned());
        apply(&mut directory.names, &rename);
        directory.pending.push(rename);
        Ok(())
    }

    fn sync(&mut self, file: &str) -> Result<(), DiskError> {
        self.with("sync", file, |file| {
            for change in std::mem::take(&mut file.pending) {
                change.apply(&mut file.durable);
            }
            assert_eq!(file.durable.len(), file.current.len(), "a synced file has no pending change");
        })
    }

    fn sync_directory(&mut self) -> Result<(), DiskError> {
        let mut directory = self.0.borrow_mut();
        let directory = &mut *directory;
        for rename in std::mem::take(&mut directory.pending) {
            apply(&mut directory.names_durable, &rename);
        }
        assert_eq!(directory.names, directory.names_durable);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written() -> SimDisk {
        let mut disk = SimDisk::default();
        disk.write("a", 0, b"durable").unwrap();
        disk.sync("a").unwrap();
        disk.sync_directory().unwrap();
        disk
    }

    #[test]
    fn a_crash_keeps_what_was_synced_and_any_of_the_rest() {
        let mut states = BTreeMap::new();
        for seed in 0..2_000 {
            let mut disk = written();
            disk.write("a", 7, b"12").unwrap();
            disk.write("a", 9, b"34").unwrap();
            disk.crash(&mut Random::new(seed));
            let bytes = disk.read("a", 0, 100).unwrap();
            assert!(bytes.starts_with(b"durable"));
            let from_write = |(place, byte): (usize, &u8)| *byte == 0 || *byte == b"durable1234"[place];
            assert!(bytes.iter().enumerate().all(from_write), "{bytes:?}");
            // What came through one crash comes through the next.
            disk.crash(&mut Random::new(seed + 1));
            assert_eq!(disk.read("a", 0, 100).unwrap(), bytes);
            *states.entry(bytes).or_insert(0) += 1;
        }
        for state in ["durable", "durable1", "durable12", "durable__3", "durable__34", "durable_2_4"] {
            let state: Vec<u8> = state.bytes().map(|byte| if byte == b'_' { 0 } else { byte }).collect();
            assert!(states.contains_key(&state), "no {state:?} in {states:?}");
        }
    }

    #[test]
    fn a_file_whose_name_was_not_synced_may_vanish() {
        let mut vanished = 0;
        for seed in 0..100 {
            let mut disk = written();
            disk.write("b", 0, b"data").unwrap();
            disk.sync("b").unwrap();
            disk.crash(&mut Random::new(seed));
            match disk.read("b", 0, 10) {
                Ok(bytes) => assert_eq!(bytes, b"data"),
                Err(_) => vanished += 1,
            }
            assert_eq!(disk.read("a", 0, 10).unwrap(), b"durable");
        }
        assert!((20..80).contains(&vanished), "{vanished}");
    }

    #[test]
    fn renames_and_removals_last_once_the_directory_is_synced() {
        let mut disk = written();
        disk.rename("a", "b").unwrap();
        disk.write("c", 0, b"x").unwrap();
        disk.remove("c").unwrap();
        disk.sync_directory().unwrap();
        disk.crash(&mut Random::new(1));
        assert_eq!(disk.list().unwrap(), ["b"]);
        assert_eq!(disk.read("b", 3, 2).unwrap(), b"ab");
        assert!(disk.read("a", 0, 1).is_err());
    }

    #[test]
    fn a_cut_that_was_not_synced_may_be_undone() {
        for seed in 0..100 {
            let mut disk = written();
            disk.truncate("a", 3).unwrap();
            disk.write("a", 3, b"XY").unwrap();
            disk.crash(&mut Random::new(seed));
            let bytes = disk.read("a", 0, 100).unwrap();
            let mut written = bytes.iter().zip(b"durXYle").zip(b"durable");
            let possible = written.all(|((byte, new), old)| byte == new || byte == old || *byte == 0);
            assert!(possible && bytes.starts_with(b"dur") && [3, 4, 5, 7].contains(&bytes.len()), "{bytes:?}");
        }
    }
}
