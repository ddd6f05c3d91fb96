//! The disk of a running node: files of one directory, held by one process.

// The core may not touch files; this module does it on the core's behalf.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use norn_storage::disk::{Disk, DiskError};
use norn_storage::{MAGIC_BYTES, RESERVE, belongs_to_log};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

mod read_only;
mod recent_space;
mod releasing;

pub use read_only::ReadOnlyDisk;
use recent_space::{MARGIN_BYTES, RecentSpace};
use releasing::{LARGE_BYTES, Releasing};

/// Most files kept open.
const ACTIVE_MAX: usize = 2;
/// Largest page size of any system, the unit of the page cache.
const PAGE_BYTES_MAX: u64 = 64 << 10;
/// Lock file of the data directory. Not one of the disk's files.
const LOCK: &str = "lock";

/// Why a directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileDiskError {
    /// Another process holds it.
    #[error(
        "the data directory {} is held by {holder}: stop that process, or use another directory",
        directory.display()
    )]
    Held {
        /// The directory.
        directory: PathBuf,
        /// The holder, according to the lock file.
        holder: String,
    },
    /// It has files of another program, and no log.
    #[error(
        "{} has files of another program (such as {file:?}) and is no data directory of a node: nothing was touched; name a directory \
         that is empty, or is not there", directory.display()
    )]
    Foreign {
        /// The directory.
        directory: PathBuf,
        /// One of its files.
        file: String,
    },
    /// The directory cannot be created, opened or locked.
    #[error("the data directory {} cannot be used: {error}", directory.display())]
    Disk {
        /// The directory.
        directory: PathBuf,
        /// What failed.
        error: DiskError,
    },
}

/// A data directory in the file system. Dropping this releases the directory.
#[derive(Debug)]
pub struct FileDisk {
    directory: PathBuf,
    /// Most bytes that all files together may have.
    bytes_max: Option<u64>,
    /// Whether that limit, and not the disk, bounded the space at the last check.
    is_bounded: AtomicBool,
    /// The directory itself, to sync names.
    handle: File,
    recent_space: RecentSpace,
    /// Frees the room of large files that were retired.
    releasing: Option<Releasing>,
    /// Files last written to, the latest first: a segment, and often a snapshot.
    active: Vec<Active>,
    read_bytes: Arc<AtomicU64>,
    /// Held as long as this lives.
    _lock: Lock,
}

/// A file open for reading and writing.
#[derive(Debug)]
struct Active {
    name: String,
    file: File,
    length: u64,
}

/// A locked file. A child process that another thread is just starting has a copy of the handle until it executes its own program,
/// and would keep the lock until then; so the lock is released explicitly, and not merely closed.
#[derive(Debug)]
struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // If this fails, closing the file is all that can be done.
        let _ = self.0.unlock();
    }
}

impl FileDisk {
    /// Opens a directory, which is created if need be, and locks it. The lock ends with the process, however that ends, so a lock
    /// file left by an earlier process blocks nothing.
    pub fn open(directory: &Path) -> Result<FileDisk, FileDiskError> {
        let failed = |operation, error| FileDiskError::Disk {
            directory: directory.into(),
            error: failure(operation, "", &error),
        };
        create(directory).map_err(|error| failed("create", error))?;
        let mut lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(directory.join(LOCK))
            .map_err(|error| failed("open the lock of", error))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(FileDiskError::Held { directory: directory.into(), holder: holder(&mut lock) });
            }
            Err(TryLockError::Error(error)) => return Err(failed("lock", error)),
        }
        name_holder(&mut lock).map_err(|error| failed("write the lock of", error))?;
        let handle = File::open(directory).map_err(|error| failed("open", error))?;
        Ok(FileDisk {
            directory: directory.into(),
            bytes_max: None,
            is_bounded: AtomicBool::new(false),
            handle,
            recent_space: RecentSpace::default(),
            releasing: Releasing::start(),
            active: Vec::new(),
            read_bytes: Arc::default(),
            _lock: Lock(lock),
        })
    }

    /// Limits the reported space to this many bytes of files, however large the disk is.
    pub fn limit(&mut self, bytes_max: Option<u64>) {
        self.bytes_max = bytes_max;
        self.recent_space.forget();
    }

    /// Whether that limit, and not the disk, bounded the space at the last check.
    pub fn is_bounded(&self) -> bool {
        self.is_bounded.load(Ordering::Relaxed)
    }

    /// Bytes read so far, to watch the progress of a long read.
    pub fn read_bytes(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.read_bytes)
    }

    /// A reader of the same files, usable while they are written.
    pub fn reader(&self) -> FileReader {
        FileReader { directory: self.directory.clone() }
    }

    fn path(&self, file: &str) -> PathBuf {
        path(&self.directory, file)
    }

    /// The file, open for reading and writing.
    fn active(&mut self, file: &str, create: bool) -> io::Result<&mut Active> {
        match self.active.iter().position(|active| active.name == file) {
            Some(place) => self.active[..=place].rotate_right(1),
            None => {
                let mut options = OpenOptions::new();
                let opened = options.read(true).write(true).create(create).truncate(false).open(self.path(file))?;
                let length = opened.metadata()?.len();
                self.active.truncate(ACTIVE_MAX - 1);
                self.active.insert(0, Active { name: file.into(), file: opened, length });
            }
        }
        Ok(&mut self.active[0])
    }

    /// A handle that keeps the room of a file when its name is removed; none if it is small, or if so little is free that its room may
    /// be wanted at once. No reserve is larger than the margin, and beside a reserve another margin is left.
    fn held_to_release(&self, file: &str) -> Option<File> {
        let held = OpenOptions::new().write(true).open(self.path(file)).ok()?;
        let bytes = held.metadata().ok()?.len();
        let is_roomy = || free_bytes(&self.handle).is_ok_and(|free| free >= 2 * MARGIN_BYTES);
        (bytes >= LARGE_BYTES && is_roomy()).then_some(held)
    }

    /// Closes this file if it is open.
    fn close(&mut self, file: &str) {
        self.active.retain(|active| active.name != file);
    }

    fn write_to_active(&mut self, file: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let (count, end) = (bytes.len() as u64, offset + bytes.len() as u64);
        let active = self.active(file, true)?;
        let length = active.length;
        active.file.write_all_at(bytes, offset)?;
        active.length = length.max(end);
        // A hole before the bytes counts as used where the lengths of files are added up.
        self.recent_space.took(count.max(end.saturating_sub(length)));
        Ok(())
    }
}

fn path(directory: &Path, file: &str) -> PathBuf {
    let plain = !file.is_empty() && !file.starts_with('.') && !file.contains(['/', '\\', '\0']) && file != LOCK;
    assert!(plain, "{file:?} is no plain file name");
    directory.join(file)
}

/// Reads the files of a [`FileDisk`] from another thread. Keeps none open, as they may be removed meanwhile.
#[derive(Debug)]
pub struct FileReader {
    directory: PathBuf,
}

impl FileReader {
    /// See [`Disk::read`].
    pub fn read(&self, file: &str, offset: u64, length: usize) -> Result<Vec<u8>, DiskError> {
        let opened = File::open(path(&self.directory, file)).map_err(|error| failure("open", file, &error))?;
        let mut bytes = vec![0; length];
        let mut filled = 0;
        while filled < length {
            match opened.read_at(&mut bytes[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(failure("read", file, &error)),
            }
        }
        bytes.truncate(filled);
        Ok(bytes)
    }
}

/// Suffixes of files that an operator may put beside the log of a node: settings, certificates, the program's output, and the
/// archive.
const OPERATORS: [&str; 7] = [".toml", ".crt", ".key", ".pem", ".log", ".err", ".jsonl"];

/// Refuses a directory that belongs to another program, for example because its name was mistyped: it has no log, but files that no
/// operator of a node puts there. Empty files do not count. A node that ended in its first start may have left a lock and a reserve,
/// and a file system has directories of its own.
pub fn refuse_foreign(directory: &Path) -> Result<(), FileDiskError> {
    let mut foreign = None;
    let outputs = outputs();
    // A directory that is missing or unreadable fails when the log is opened.
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if !is_file || name == LOCK || name.starts_with('.') {
            continue;
        }
        if name == RESERVE || is_of_log(&entry.path(), &name) {
            return Ok(());
        }
        let is_free = |of_file: fs::Metadata| of_file.len() == 0 || outputs.contains(&(of_file.dev(), of_file.ino()));
        let is_free = entry.metadata().is_ok_and(is_free);
        if !is_free && !OPERATORS.iter().any(|end| name.ends_with(end)) {
            foreign = Some(name);
        }
    }
    match foreign {
        Some(file) => Err(FileDiskError::Foreign { directory: directory.into(), file }),
        None => Ok(()),
    }
}

/// Device and inode of the files that receive this process's output, whatever their names are.
fn outputs() -> Vec<(u64, u64)> {
    let [out, error] = [std::io::stdout().as_fd().try_clone_to_owned(), std::io::stderr().as_fd().try_clone_to_owned()];
    let of_files = [out, error].into_iter().flatten().filter_map(|file| File::from(file).metadata().ok());
    of_files.map(|of_file| (of_file.dev(), of_file.ino())).collect()
}

/// Whether a file is part of a node's log. Files of other programs may have names with the same ending.
pub fn is_of_log(file: &Path, name: &str) -> bool {
    let mut first = Vec::new();
    // A file that cannot be read is judged by its name alone.
    let _ = File::open(file).and_then(|file| file.take(MAGIC_BYTES).read_to_end(&mut first));
    belongs_to_log(name, &first)
}

/// Creates the directory and makes its name, and those of new parents, durable. An existing directory may be from a process that
/// ended before it could sync the name.
fn create(directory: &Path) -> io::Result<()> {
    let parent = match directory.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return Ok(()),
    };
    if directory.is_dir() {
        return match File::open(parent) {
            Ok(parent) => parent.sync_all(),
            // Without read permission for the parent, this user did not create the directory in it.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(()),
            Err(error) => Err(error),
        };
    }
    if directory.exists() {
        return Err(io::Error::new(ErrorKind::NotADirectory, format!("{} is a file", directory.display())));
    }
    create(parent)?;
    match fs::create_dir(directory) {
        // Two processes may start at once: the lock decides between them.
        Err(error) if error.kind() != ErrorKind::AlreadyExists || !directory.is_dir() => return Err(error),
        Ok(()) | Err(_) => {}
    }
    File::open(parent)?.sync_all()
}

/// The process that holds a data directory, or held it last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    /// Its process id, if readable.
    pub process: Option<u32>,
    /// Whether it still holds the directory.
    pub holds: bool,
}

/// The holder of a data directory; `None` if it never had one. Changes nothing.
pub fn holder_of(directory: &Path) -> io::Result<Option<Holder>> {
    let mut lock = match File::open(directory.join(LOCK)) {
        Ok(lock) => lock,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let holds = match lock.try_lock_shared() {
        Ok(()) => false,
        Err(TryLockError::WouldBlock) => true,
        Err(TryLockError::Error(error)) => return Err(error),
    };
    let process = holding_process(&mut lock);
    if !holds {
        lock.unlock()?;
    }
    Ok(Some(Holder { process, holds }))
}

/// Writes this process id into the lock. On a full disk the id may be missing; opening must not fail then, because the log may be
/// able to free space.
fn name_holder(lock: &mut File) -> io::Result<()> {
    let text = format!("{}\n", std::process::id());
    // In this order the file keeps its allocated block.
    let written = lock.write_all_at(text.as_bytes(), 0).and_then(|()| lock.set_len(text.len() as u64));
    match written {
        Err(error) if is_full(&error) => lock.set_len(0),
        written => written,
    }
}

/// Describes the process that wrote the lock, for an error text.
fn holder(lock: &mut File) -> String {
    match holding_process(lock) {
        Some(process) => format!("process {process}"),
        None => "another process".into(),
    }
}

fn holding_process(lock: &mut File) -> Option<u32> {
    let mut text = String::new();
    lock.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

fn failure(operation: &'static str, file: &str, error: &io::Error) -> DiskError {
    DiskError {
        operation,
        file: file.into(),
        cause: error.to_string().into(),
        full: is_full(error),
        lost: is_lost(error),
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// See [`DiskError::lost`].
fn is_lost(error: &io::Error) -> bool {
    // Error codes of devices and file systems for an unreadable place; no `ErrorKind` represents any of them.
    const UNREADABLE: [Errno; 5] = [Errno::IO, Errno::UCLEAN, Errno::BADMSG, Errno::NODATA, Errno::ILSEQ];
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::UnexpectedEof)
        || Errno::from_io_error(error).is_some_and(|errno| UNREADABLE.contains(&errno))
}

/// Reads until the buffer is full or the file ends.
fn read_from(mut file: &File, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes.reserve_exact(length.min(file.metadata()?.len().saturating_sub(offset) as usize));
    file.seek(SeekFrom::Start(offset))?;
    file.take(length as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Names of the files of a directory, sorted, without the lock and hidden files: a file system or a shell may keep some of its own.
fn list(directory: &Path) -> Result<Vec<String>, DiskError> {
    let failed = |error: io::Error| failure("list", "", &error);
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        // A name that is not UTF-8 is not one of the log's files.
        let Ok(name) = entry.file_name().into_string() else { continue };
        if name != LOCK && !name.starts_with('.') && !entry.file_type().map_err(failed)?.is_dir() {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// Free bytes of the file system that a file or directory is on.
fn free_bytes(handle: &File) -> Result<u64, DiskError> {
    let system = rustix::fs::fstatvfs(handle).map_err(|error| failure("look for room in", "", &error.into()))?;
    Ok(system.f_bavail.saturating_mul(system.f_frsize))
}

/// Bytes of all files of a disk together.
fn used_bytes(disk: &impl Disk) -> Result<u64, DiskError> {
    disk.list()?.iter().map(|file| disk.length(file)).sum()
}

impl Disk for FileDisk {
    fn list(&self) -> Result<Vec<String>, DiskError> {
        list(&self.directory)
    }

    fn length(&self, file: &str) -> Result<u64, DiskError> {
        let metadata = fs::metadata(self.path(file)).map_err(|error| failure("length", file, &error))?;
        Ok(metadata.len())
    }

    fn read(&self, file: &str, offset: u64, length: usize) -> Result<Vec<u8>, DiskError> {
        let read = match self.active.iter().find(|active| active.name == file) {
            Some(active) => read_from(&active.file, offset, length),
            None => File::open(self.path(file)).and_then(|opened| read_from(&opened, offset, length)),
        };
        if let Ok(bytes) = &read {
            self.read_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        }
        read.map_err(|error| failure("read", file, &error))
    }

    fn write(&mut self, file: &str, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.write_to_active(file, offset, bytes).map_err(|error| {
            // How much of it takes space is unknown.
            self.recent_space.forget();
            failure("write", file, &error)
        })
    }

    fn truncate(&mut self, file: &str, length: u64) -> Result<(), DiskError> {
        self.recent_space.forget();
        let cut = self.active(file, false).and_then(|active| {
            active.file.set_len(length)?;
            active.length = length;
            Ok(())
        });
        cut.map_err(|error| failure("truncate", file, &error))
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<(), DiskError> {
        self.close(from);
        self.close(to);
        self.recent_space.forget();
        fs::rename(self.path(from), self.path(to)).map_err(|error| failure("rename", from, &error))
    }

    fn remove(&mut self, file: &str) -> Result<(), DiskError> {
        self.close(file);
        self.recent_space.forget();
        fs::remove_file(self.path(file)).map_err(|error| failure("remove", file, &error))
    }

    fn retire(&mut self, file: &str) -> Result<(), DiskError> {
        let held = self.held_to_release(file);
        self.remove(file)?;
        if let Some((held, releasing)) = held.zip(self.releasing.as_ref()) {
            releasing.release(held);
        }
        Ok(())
    }

    fn sync(&mut self, file: &str) -> Result<(), DiskError> {
        let synced = self.active(file, false).and_then(|active| active.file.sync_data());
        synced.map_err(|error| failure("sync", file, &error))
    }

    fn space(&self) -> Result<u64, DiskError> {
        let mut free = free_bytes(&self.handle)?;
        if let Some(bytes_max) = self.bytes_max {
            let left = bytes_max.saturating_sub(used_bytes(self)?);
            self.is_bounded.store(left < free, Ordering::Relaxed);
            free = free.min(left);
        }
        self.recent_space.found(free, Instant::now());
        Ok(free)
    }

    fn recent_space(&self, enough_bytes: u64) -> Result<u64, DiskError> {
        self.recent_space.known(enough_bytes, Instant::now()).map_or_else(|| self.space(), Ok)
    }

    fn forget(&self, file: &str, offset: u64, length: usize) {
        // The cache is dropped in whole pages.
        let start = offset - offset % PAGE_BYTES_MAX;
        let end = (offset + length as u64).next_multiple_of(PAGE_BYTES_MAX);
        // A system that does not support this reads cached pages from memory.
        if let (Ok(opened), Some(length)) = (File::open(self.path(file)), NonZeroU64::new(end - start)) {
            let _ = rustix::fs::fadvise(&opened, start, Some(length), rustix::fs::Advice::DontNeed);
        }
    }

    fn sync_directory(&mut self) -> Result<(), DiskError> {
        self.handle.sync_all().map_err(|error| failure("sync", "", &error))
    }
}

#[cfg(test)]
mod tests;
