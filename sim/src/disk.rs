//! A disk that forgets at a crash what was not synced.
//!
//! Per file it knows the durable bytes and the operations since; per directory the durable names and the changes since.
//! A crash keeps a random prefix of either, and may tear the append it stops in. Synced data is never damaged in this
//! form of the simulator: the cluster is supposed to recover from everything that happens here.

use norn_node::protocol::random::Random;
use norn_node::storage::disk::{Disk, DiskError};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

#[derive(Debug, Clone)]
enum Change {
    Append(Vec<u8>),
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

impl File {
    fn change(&mut self, change: Change) {
        match &change {
            Change::Append(bytes) => self.current.extend_from_slice(bytes),
            Change::Truncate(length) => self.current.truncate(*length as usize),
        }
        self.pending.push(change);
    }

    /// Keeps a prefix of what was not synced, often cut inside an append.
    fn crash(&mut self, random: &mut Random, lost: &mut Lost) {
        let pending = std::mem::take(&mut self.pending);
        let total: u64 = pending.iter().map(|change| change.weight()).sum();
        let mut left = match random.below(4) {
            0 => 0,
            1 => total,
            _ => random.between(0, total),
        };
        self.current = std::mem::take(&mut self.durable);
        for change in pending {
            let weight = change.weight();
            let kept = weight.min(left);
            left -= kept;
            match change {
                Change::Append(bytes) => {
                    self.current.extend_from_slice(&bytes[..kept as usize]);
                    lost.kept += kept;
                    lost.bytes += weight - kept;
                }
                Change::Truncate(length) if kept == weight => self.current.truncate(length as usize),
                Change::Truncate(_) => {}
            }
            if kept < weight {
                left = 0;
            }
        }
        self.durable = self.current.clone();
    }
}

impl Change {
    fn weight(&self) -> u64 {
        match self {
            Change::Append(bytes) => bytes.len() as u64,
            Change::Truncate(_) => 1,
        }
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

    fn append(&mut self, file: &str, bytes: &[u8]) -> Result<(), DiskError> {
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
        self.with("append", file, |file| file.change(Change::Append(bytes.to_vec())))
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
                match change {
                    Change::Append(bytes) => file.durable.extend_from_slice(&bytes),
                    Change::Truncate(length) => file.durable.truncate(length as usize),
                }
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
        disk.append("a", b"durable").unwrap();
        disk.sync("a").unwrap();
        disk.sync_directory().unwrap();
        disk
    }

    #[test]
    fn a_crash_keeps_what_was_synced_and_a_prefix_of_the_rest() {
        let mut lengths = BTreeMap::new();
        for seed in 0..400 {
            let mut disk = written();
            disk.append("a", b"-one").unwrap();
            disk.append("a", b"-two").unwrap();
            disk.crash(&mut Random::new(seed));
            let bytes = disk.read("a", 0, 100).unwrap();
            assert!(b"durable-one-two".starts_with(&bytes[..]) && bytes.starts_with(b"durable"));
            *lengths.entry(bytes.len()).or_insert(0) += 1;
            // What came through one crash comes through the next.
            disk.crash(&mut Random::new(seed + 1));
            assert_eq!(disk.read("a", 0, 100).unwrap(), bytes);
        }
        assert_eq!(lengths.len(), 9, "every prefix, also inside a write: {lengths:?}");
    }

    #[test]
    fn a_file_whose_name_was_not_synced_may_vanish() {
        let mut vanished = 0;
        for seed in 0..100 {
            let mut disk = written();
            disk.append("b", b"data").unwrap();
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
        disk.append("c", b"x").unwrap();
        disk.remove("c").unwrap();
        disk.sync_directory().unwrap();
        disk.crash(&mut Random::new(1));
        assert_eq!(disk.list().unwrap(), ["b"]);
        assert_eq!(disk.read("b", 3, 2).unwrap(), b"ab");
        assert!(disk.read("a", 0, 1).is_err());
    }

    #[test]
    fn a_cut_that_was_not_synced_may_be_undone_but_not_reordered() {
        for seed in 0..100 {
            let mut disk = written();
            disk.truncate("a", 3).unwrap();
            disk.append("a", b"XY").unwrap();
            disk.crash(&mut Random::new(seed));
            let bytes = disk.read("a", 0, 100).unwrap();
            assert!([&b"durable"[..], b"dur", b"durX", b"durXY"].contains(&&bytes[..]), "{bytes:?}");
        }
    }
}
