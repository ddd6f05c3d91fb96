//! A disk that forgets at a crash what was not synced, and does worse on request.
//!
//! For each file it keeps the durable bytes and the operations since; for the directory the durable names and the changes since. A
//! crash keeps any of the writes since, each whole, in part or not at all, and a random prefix of the changes of names. Beyond that,
//! `troubles` says what may go wrong with operations, and `damage` what may happen to bytes at rest. By itself the disk does neither,
//! and draws nothing for it.

use norn_storage::disk::{Disk, DiskError};
use norn_wire::random::Random;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

mod damage;
mod troubles;

pub use damage::{Damage, Harm, Place};
pub use troubles::{Suffered, Troubles};

use troubles::Troubled;

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
    /// A failed sync has lost changes: what is read is not what is durable, and no later sync makes it so.
    stranded: bool,
    /// Durable contents of sectors before their latest change, where those are kept.
    earlier: BTreeMap<u64, Vec<u8>>,
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
    /// As in [`File`], for names.
    stranded: bool,
    /// Files keep what their sectors held before.
    keeps_earlier: bool,
    troubled: Option<Troubled>,
    suffered: Suffered,
}

/// A handle to the disk of one node; it outlives the processes that use it.
#[derive(Debug, Clone, Default)]
pub struct SimDisk(Rc<RefCell<Directory>>);

/// Result of a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lost {
    /// Bytes that were not synced and are gone.
    pub bytes: u64,
    /// Bytes that were not synced and survive all the same.
    pub kept: u64,
    /// Changes of names that are lost.
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

    /// What a crash leaves of a change: all, nothing, or a part of a write, as a disk may write its sectors in any order.
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
        // The file may have grown for bytes that were never written.
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

    fn part(&self, offset: u64, length: usize) -> Vec<u8> {
        let start = (offset as usize).min(self.current.len());
        let end = start.saturating_add(length).min(self.current.len());
        self.current[start..end].to_vec()
    }

    /// Crashes: keeps any part of what was not synced.
    fn crash(&mut self, keeps_earlier: bool, random: &mut Random, lost: &mut Lost) {
        let pending = std::mem::take(&mut self.pending);
        let before = if keeps_earlier { self.durable.clone() } else { Vec::new() };
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
        self.stranded = false;
        self.keep_earlier(&before);
    }

    /// Makes the chosen ones of the pending changes durable; the others are lost.
    fn sync(&mut self, keeps_earlier: bool, mut chosen: impl FnMut() -> bool) {
        let before = if keeps_earlier { self.durable.clone() } else { Vec::new() };
        for change in std::mem::take(&mut self.pending) {
            if chosen() {
                change.apply(&mut self.durable);
            } else {
                self.stranded = true;
            }
        }
        self.keep_earlier(&before);
        let agree = self.durable.len() == self.current.len();
        assert!(agree || self.stranded, "a synced file has no pending change");
    }
}

impl Directory {
    fn number(&self, operation: &'static str, name: &str) -> Result<u64, DiskError> {
        self.names.get(name).copied().ok_or_else(|| failure(operation, name, "no such file"))
    }

    fn file(&mut self, operation: &'static str, name: &str) -> Result<&mut File, DiskError> {
        let number = self.number(operation, name)?;
        Ok(self.files.get_mut(&number).expect("names name files"))
    }

    fn rename(&mut self, rename: Rename) {
        apply(&mut self.names, &rename);
        self.pending.push(rename);
    }
}

impl SimDisk {
    /// Another disk, without troubles, with what a process sees of this one.
    pub fn copy(&self) -> SimDisk {
        let directory = self.0.borrow();
        let copied =
            |file: &File| File { durable: file.current.clone(), current: file.current.clone(), ..File::default() };
        SimDisk(Rc::new(RefCell::new(Directory {
            files: directory.files.iter().map(|(number, file)| (*number, copied(file))).collect(),
            next_file: directory.next_file,
            names: directory.names.clone(),
            names_durable: directory.names.clone(),
            ..Directory::default()
        })))
    }

    /// Reads a part of a file, without the disk's troubles.
    pub fn peek(&self, file: &str, offset: u64, length: usize) -> Result<Vec<u8>, DiskError> {
        let directory = self.0.borrow();
        let number = directory.number("peek", file)?;
        Ok(directory.files[&number].part(offset, length))
    }

    /// Changes a byte at rest.
    pub fn flip(&self, file: &str, place: u64, change: u8) {
        let mut directory = self.0.borrow_mut();
        let file = directory.file("flip", file).expect("only files that are there are damaged");
        // After a sync that was a lie, fewer bytes are at rest than are read.
        for bytes in [&mut file.durable, &mut file.current] {
            if let Some(byte) = bytes.get_mut(place as usize) {
                *byte ^= change;
            }
        }
    }

    /// Stops the machine: what was not synced is lost, or some of it.
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
        directory.stranded = false;
        for file in directory.files.values_mut() {
            file.crash(directory.keeps_earlier, random, &mut lost);
        }
        let names = &directory.names;
        directory.files.retain(|file, _| names.values().any(|named| named == file));
        lost
    }
}

fn failure(operation: &'static str, name: &str, cause: &str) -> DiskError {
    DiskError { operation, file: name.to_owned(), cause: cause.into(), full: false, lost: true }
}

impl Disk for SimDisk {
    fn list(&self) -> Result<Vec<String>, DiskError> {
        let mut directory = self.0.borrow_mut();
        if directory.name_operation_fails() {
            return Err(failure("list", "", troubles::CAUSE));
        }
        Ok(directory.names.keys().cloned().collect())
    }

    fn length(&self, file: &str) -> Result<u64, DiskError> {
        Ok(self.0.borrow_mut().file("length", file)?.current.len() as u64)
    }

    fn read(&self, file: &str, offset: u64, length: usize) -> Result<Vec<u8>, DiskError> {
        let mut directory = self.0.borrow_mut();
        let number = directory.number("read", file)?;
        if directory.read_fails() {
            return Err(failure("read", file, troubles::CAUSE));
        }
        Ok(directory.files[&number].part(offset, length))
    }

    fn write(&mut self, file: &str, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        let mut directory = self.0.borrow_mut();
        if !directory.names.contains_key(file) {
            let number = directory.next_file;
            directory.next_file += 1;
            directory.files.insert(number, File::default());
            directory.rename(Rename::Link(file.to_owned(), number));
        }
        let failed = directory.write_fails(file, offset, bytes.len());
        let written = &bytes[..failed.as_ref().map_or(bytes.len(), |(part, _)| *part)];
        if failed.is_none() || !written.is_empty() {
            directory.file("write", file)?.change(Change::Write(offset, written.to_vec()));
        }
        failed.map_or(Ok(()), |(_, error)| Err(error))
    }

    fn truncate(&mut self, file: &str, length: u64) -> Result<(), DiskError> {
        let mut directory = self.0.borrow_mut();
        directory.number("truncate", file)?;
        let failed = directory.truncate_fails();
        if failed.is_none_or(|done| done) {
            directory.file("truncate", file)?.change(Change::Truncate(length));
        }
        failed.map_or(Ok(()), |_| Err(failure("truncate", file, troubles::CAUSE)))
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<(), DiskError> {
        let mut directory = self.0.borrow_mut();
        directory.number("rename", from)?;
        if directory.name_operation_fails() {
            return Err(failure("rename", from, troubles::CAUSE));
        }
        directory.rename(Rename::Move(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn remove(&mut self, file: &str) -> Result<(), DiskError> {
        let mut directory = self.0.borrow_mut();
        directory.number("remove", file)?;
        if directory.name_operation_fails() {
            return Err(failure("remove", file, troubles::CAUSE));
        }
        directory.rename(Rename::Unlink(file.to_owned()));
        Ok(())
    }

    fn sync(&mut self, file: &str) -> Result<(), DiskError> {
        let mut directory = self.0.borrow_mut();
        let number = directory.number("sync", file)?;
        if directory.sync_fails(number) {
            return Err(failure("sync", file, troubles::CAUSE));
        }
        if !directory.sync_lies() {
            let keeps_earlier = directory.keeps_earlier;
            directory.file("sync", file)?.sync(keeps_earlier, || true);
        }
        Ok(())
    }

    fn space(&self) -> Result<u64, DiskError> {
        Ok(self.0.borrow().space())
    }

    fn sync_directory(&mut self) -> Result<(), DiskError> {
        let mut directory = self.0.borrow_mut();
        if directory.directory_sync_fails() {
            return Err(failure("sync", "", troubles::CAUSE));
        }
        if directory.sync_lies() {
            return Ok(());
        }
        let directory = &mut *directory;
        for rename in std::mem::take(&mut directory.pending) {
            apply(&mut directory.names_durable, &rename);
        }
        assert!(directory.stranded || directory.names == directory.names_durable);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
