//! An in-memory disk with a bound on reads.

use norn_sim::disk::{Damage, Harm, SimDisk};
use norn_storage::disk::{Disk, DiskError};
use norn_wire::random::Random;
use std::cell::Cell;
use std::rc::Rc;

/// Allowed reads of each byte of the files, and the number of bytes allowed on top of that.
const READS_OF_EACH_MAX: u64 = 64;
const READ_BYTES_MORE: u64 = 16 << 20;
/// Read operations allowed on top of one for each byte of the files.
const READS_MORE: u64 = 10_000;

/// An in-memory disk that panics when the bound on reads is exceeded. Clones share the disk and its counters.
#[derive(Debug, Clone)]
pub struct Bounded {
    disk: SimDisk,
    /// Bytes of all files at the start.
    bytes: u64,
    reads: Rc<Cell<u64>>,
    read_bytes: Rc<Cell<u64>>,
}

impl Bounded {
    /// A disk with these files.
    pub fn new(files: impl IntoIterator<Item = (String, Vec<u8>)>) -> Bounded {
        let mut disk = SimDisk::default();
        disk.keep_earlier();
        for (name, bytes) in files {
            disk.write(&name, 0, &bytes).and_then(|()| disk.sync(&name)).expect("it has no troubles");
        }
        disk.sync_directory().expect("it has no troubles");
        let bytes = disk.used_bytes();
        Bounded { disk, bytes, reads: Rc::default(), read_bytes: Rc::default() }
    }

    /// Size of an existing file in bytes.
    pub fn bytes_of(&self, file: &str) -> u64 {
        self.disk.length(file).expect("it is there")
    }

    /// Damages a file and returns what was done; none if nothing can be damaged in this way.
    pub fn damage(&self, harm: Harm, random: &mut Random) -> Option<Damage> {
        self.disk.damage(harm, random)
    }

    /// The bytes of all files, in the order of their names.
    pub fn files(&self) -> Vec<Vec<u8>> {
        let names = self.disk.list().expect("it has no troubles");
        names.iter().map(|name| self.disk.read(name, 0, usize::MAX).expect("it is there")).collect()
    }
}

impl Disk for Bounded {
    fn list(&self) -> Result<Vec<String>, DiskError> {
        self.disk.list()
    }

    fn length(&self, file: &str) -> Result<u64, DiskError> {
        self.disk.length(file)
    }

    fn read(&self, file: &str, offset: u64, length: usize) -> Result<Vec<u8>, DiskError> {
        let bytes = self.disk.read(file, offset, length)?;
        self.reads.set(self.reads.get() + 1);
        self.read_bytes.set(self.read_bytes.get() + bytes.len() as u64);
        assert!(self.reads.get() <= self.bytes + READS_MORE, "it is read for ever");
        assert!(self.read_bytes.get() <= READS_OF_EACH_MAX * self.bytes + READ_BYTES_MORE, "too much is read");
        Ok(bytes)
    }

    fn write(&mut self, file: &str, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.disk.write(file, offset, bytes)
    }

    fn truncate(&mut self, file: &str, length: u64) -> Result<(), DiskError> {
        self.disk.truncate(file, length)
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<(), DiskError> {
        self.disk.rename(from, to)
    }

    fn remove(&mut self, file: &str) -> Result<(), DiskError> {
        self.disk.remove(file)
    }

    fn sync(&mut self, file: &str) -> Result<(), DiskError> {
        self.disk.sync(file)
    }

    fn sync_directory(&mut self) -> Result<(), DiskError> {
        self.disk.sync_directory()
    }
}
