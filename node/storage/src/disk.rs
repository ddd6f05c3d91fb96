//! The disk operations that the log needs.

use std::fmt;
use std::sync::Arc;

/// A failed operation. After a failed write or sync the state of the file is unknown: the node stops.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct DiskError {
    /// The operation.
    pub operation: &'static str,
    /// The file; empty for the directory.
    pub file: String,
    /// The cause.
    pub cause: Arc<str>,
    /// The disk is full.
    pub full: bool,
    /// The data to be read is damaged or gone, and a retry would fail the same way. Any other read may succeed later: a temporary
    /// shortage in the process, such as of file handles, says nothing about the disk.
    pub lost: bool,
}

impl fmt::Display for DiskError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.file.is_empty() {
            true => write!(formatter, "{} the directory: {}", self.operation, self.cause),
            false => write!(formatter, "{} {:?}: {}", self.operation, self.file, self.cause),
        }
    }
}

/// One flat directory of files, synchronous. Names are plain: no separators.
pub trait Disk {
    /// Names of all files, sorted.
    fn list(&self) -> Result<Vec<String>, DiskError>;
    /// Length of a file in bytes.
    fn length(&self, file: &str) -> Result<u64, DiskError>;
    /// Up to `length` bytes from `offset`; fewer at the end of the file.
    fn read(&self, file: &str, offset: u64, length: usize) -> Result<Vec<u8>, DiskError>;
    /// Writes at an offset, creating the file if need be. A gap between its old end and the offset reads as zeroes.
    fn write(&mut self, file: &str, offset: u64, bytes: &[u8]) -> Result<(), DiskError>;
    /// Cuts a file to a length.
    fn truncate(&mut self, file: &str, length: u64) -> Result<(), DiskError>;
    /// Renames, replacing the target.
    fn rename(&mut self, from: &str, to: &str) -> Result<(), DiskError>;
    /// Removes a file. Its room is free afterwards.
    fn remove(&mut self, file: &str) -> Result<(), DiskError>;
    /// Removes a file whose room is not waited for: it may be freed somewhat later.
    fn retire(&mut self, file: &str) -> Result<(), DiskError> {
        self.remove(file)
    }
    /// Makes a file's bytes durable.
    fn sync(&mut self, file: &str) -> Result<(), DiskError>;
    /// Makes file names durable.
    fn sync_directory(&mut self) -> Result<(), DiskError>;
    /// Drops cached copies of these bytes, so that the next read comes from the disk, as far as the platform allows.
    fn forget(&self, _file: &str, _offset: u64, _length: usize) {}
    /// Free space in bytes, as it is now.
    fn space(&self) -> Result<u64, DiskError> {
        Ok(u64::MAX)
    }
    /// Free space in bytes for a caller to whom any figure from `enough_bytes` on is the same. It may be as old as a second, less what
    /// was written to this disk since, while it is larger than that by so much that others hardly take it within a second.
    fn recent_space(&self, _enough_bytes: u64) -> Result<u64, DiskError> {
        self.space()
    }
}
