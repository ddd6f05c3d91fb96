//! A data directory that is looked at and not changed, also while a node runs on it.

use super::{failure, free_bytes, list, path, read_from, used_bytes};
use norn_storage::disk::{Disk, DiskError};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Disk without a lock, on which each change fails.
#[derive(Debug)]
pub struct ReadOnlyDisk {
    directory: PathBuf,
    handle: File,
    /// Most bytes that all files together may have.
    bytes_max: Option<u64>,
    /// Whether that limit, and not the disk, bounds the space.
    is_bounded: bool,
}

impl ReadOnlyDisk {
    /// Opens a directory that exists, with the limit on the bytes of its files, if there is one.
    pub fn open(directory: &Path, bytes_max: Option<u64>) -> Result<ReadOnlyDisk, DiskError> {
        let handle = File::open(directory).map_err(|error| failure("open", "", &error))?;
        let mut disk = ReadOnlyDisk { directory: directory.into(), handle, bytes_max, is_bounded: false };
        disk.is_bounded = disk.space()? < free_bytes(&disk.handle)?;
        Ok(disk)
    }

    /// Whether the limit, and not the disk, bounded the space when the directory was opened.
    pub fn is_bounded(&self) -> bool {
        self.is_bounded
    }

    fn refuse(operation: &'static str, file: &str) -> Result<(), DiskError> {
        Err(failure(operation, file, &io::Error::from(ErrorKind::ReadOnlyFilesystem)))
    }
}

impl Disk for ReadOnlyDisk {
    fn list(&self) -> Result<Vec<String>, DiskError> {
        list(&self.directory)
    }

    fn length(&self, file: &str) -> Result<u64, DiskError> {
        let metadata = fs::metadata(path(&self.directory, file)).map_err(|error| failure("length", file, &error))?;
        Ok(metadata.len())
    }

    fn read(&self, file: &str, offset: u64, length: usize) -> Result<Vec<u8>, DiskError> {
        let read = File::open(path(&self.directory, file)).and_then(|opened| read_from(&opened, offset, length));
        read.map_err(|error| failure("read", file, &error))
    }

    fn write(&mut self, file: &str, _offset: u64, _bytes: &[u8]) -> Result<(), DiskError> {
        Self::refuse("write", file)
    }

    fn truncate(&mut self, file: &str, _length: u64) -> Result<(), DiskError> {
        Self::refuse("truncate", file)
    }

    fn rename(&mut self, from: &str, _to: &str) -> Result<(), DiskError> {
        Self::refuse("rename", from)
    }

    fn remove(&mut self, file: &str) -> Result<(), DiskError> {
        Self::refuse("remove", file)
    }

    fn sync(&mut self, file: &str) -> Result<(), DiskError> {
        Self::refuse("sync", file)
    }

    fn sync_directory(&mut self) -> Result<(), DiskError> {
        Self::refuse("sync", "")
    }

    fn space(&self) -> Result<u64, DiskError> {
        let free = free_bytes(&self.handle)?;
        let Some(bytes_max) = self.bytes_max else { return Ok(free) };
        Ok(free.min(bytes_max.saturating_sub(used_bytes(self)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::FileDisk;

    #[test]
    fn a_held_directory_is_read_and_nothing_in_it_changes() {
        let directory = tempfile::tempdir().unwrap();
        let mut held = FileDisk::open(directory.path()).unwrap();
        held.write("a", 0, b"hello").unwrap();
        let mut disk = ReadOnlyDisk::open(directory.path(), Some(7)).unwrap();
        assert_eq!((disk.list().unwrap(), disk.read("a", 1, 9).unwrap()), (held.list().unwrap(), b"ello".to_vec()));
        assert_eq!((disk.space().unwrap(), disk.is_bounded()), (2, true));
        let refused = [
            disk.write("a", 0, b"x"),
            disk.truncate("a", 0),
            disk.rename("a", "b"),
            disk.remove("a"),
            disk.sync("a"),
            disk.sync_directory(),
        ];
        assert!(refused.iter().all(Result::is_err), "{refused:?}");
        assert_eq!(held.read("a", 0, 9).unwrap(), b"hello");
        drop(held);
        assert!(!ReadOnlyDisk::open(directory.path(), None).unwrap().is_bounded());
        assert!(ReadOnlyDisk::open(&directory.path().join("none"), None).is_err());
    }
}
