//! Contenders against the log: each takes a batch of records and returns once it is durable.

#[cfg(feature = "databases")]
mod databases;

use anyhow::{Result, anyhow};
use norn_host::disk::FileDisk;
use norn_model::record::Record;
use norn_model::task::Task;
use norn_storage::disk::{Disk, DiskError};
use norn_storage::{Identity, Log, LogConfig};
use norn_wire::{NodeId, PartitionId, QueueName, TaskId, request::Spec};
use std::fs::{File, OpenOptions};
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// Bytes of a task.
const PAYLOAD_BYTES: usize = 256;
/// Bytes of preallocated space: written before the first measurement, and then overwritten repeatedly.
const SPACE_BYTES: usize = 64 << 20;
/// Bytes of preallocated space for heads, in front of that.
const HEADS_BYTES: usize = 16 << 20;
/// Bytes of a record's head in the log.
const HEAD_BYTES: usize = 32;

/// The same records for all contenders.
#[derive(Debug)]
pub struct Batch {
    /// Records for the log, which encodes them itself, each time.
    pub records: Vec<Record>,
    /// Encoded records for the databases.
    #[cfg(feature = "databases")]
    pub bodies: Vec<Vec<u8>>,
    /// The encoded records in one piece, for contenders that write nothing else.
    pub bytes: Vec<u8>,
    /// Filler of the same length as the records' heads in the log.
    pub heads: Vec<u8>,
}

impl Batch {
    /// This number of records of one task each. Their payloads are incompressible.
    pub fn new(count: usize) -> Result<Batch> {
        let mut word = 0x9e37_79b9_7f4a_7c15_u64;
        let mut byte = || {
            word = (word ^ word >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9).wrapping_add(1);
            (word >> 56) as u8
        };
        let mut records = Vec::new();
        for number in 0..count {
            let spec = Spec::new(QueueName::new("mail")?, (0..PAYLOAD_BYTES).map(|_| byte()).collect::<Vec<u8>>());
            let id = TaskId::new(1_700_000_000_000, number as u32, 7, 9);
            let items = Arc::new(vec![(id, Task::from_spec(Arc::new(spec)))]);
            records.push(Record::Facts { partition: PartitionId(3), items });
        }
        let bodies: Vec<Vec<u8>> = records
            .iter()
            .map(|record| {
                let mut body = Vec::new();
                record.encode(&mut body);
                body
            })
            .collect();
        let bytes = bodies.concat();
        let heads = vec![1; count * HEAD_BYTES];
        Ok(Batch {
            records,
            #[cfg(feature = "databases")]
            bodies,
            bytes,
            heads,
        })
    }
}

/// A storage that makes batches durable.
pub trait Contender {
    /// Name of the contender, for people.
    fn name(&self) -> &'static str;
    /// Returns once the whole batch survives a crash.
    fn write(&mut self, batch: &Batch) -> Result<()>;
}

/// All contenders, each in its own directory. The first three are lower bounds: a file that grows, a file with preallocated space, and
/// one with a second preallocated region, which the log also writes, for its heads.
pub fn all(directory: &Path) -> Result<Vec<Box<dyn Contender>>> {
    let place = |name: &str| -> Result<std::path::PathBuf> {
        let place = directory.join(name);
        std::fs::create_dir_all(&place)?;
        Ok(place)
    };
    let ahead = LogConfig::default();
    let plain = LogConfig { ahead_bytes: 0, ..LogConfig::default() };
    Ok(vec![
        Box::new(Bare::new(&place("append")?, Space::Grown)?),
        Box::new(Bare::new(&place("overwrite")?, Space::Written)?),
        Box::new(Bare::new(&place("regions")?, Space::WrittenTwice)?),
        Box::new(Norn::new("norn", &place("norn")?, ahead.clone(), true)?),
        Box::new(Norn::new("norn, nothing written ahead", &place("plain")?, plain, true)?),
        Box::new(Norn::new("norn without the disk: its own work", &place("nothing")?, ahead, false)?),
        Box::new(Encoding::default()),
        #[cfg(feature = "databases")]
        Box::new(databases::Fjall::new(&place("fjall")?)?),
        #[cfg(feature = "databases")]
        Box::new(databases::Redb::new(&place("redb")?)?),
    ])
}

/// The file that a bare contender writes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Space {
    /// It writes at the end of the file.
    Grown,
    /// It overwrites preallocated space.
    Written,
    /// It overwrites preallocated space in two places.
    WrittenTwice,
}

/// One write or two, and one `fdatasync`, of only the encoded records.
struct Bare {
    file: File,
    offset: u64,
    space: Space,
}

impl Bare {
    fn new(directory: &Path, space: Space) -> Result<Bare> {
        let path = directory.join("bytes");
        let file = OpenOptions::new().create(true).truncate(true).write(true).open(path)?;
        if space != Space::Grown {
            file.write_all_at(&vec![0; HEADS_BYTES + SPACE_BYTES], 0)?;
        }
        file.sync_all()?;
        File::open(directory)?.sync_all()?;
        Ok(Bare { file, offset: 0, space })
    }
}

impl Contender for Bare {
    fn name(&self) -> &'static str {
        match self.space {
            Space::Grown => "write + fdatasync at the end of a file",
            Space::Written => "write + fdatasync over written space",
            Space::WrittenTwice => "the same, with heads in another place",
        }
    }

    fn write(&mut self, batch: &Batch) -> Result<()> {
        // The length of a segment. A file that grew on and on would not be comparable with a log.
        if self.offset as usize + batch.bytes.len() > SPACE_BYTES {
            self.offset = 0;
            if self.space == Space::Grown {
                self.file.set_len(0)?;
                self.file.sync_all()?;
            }
        }
        if self.space == Space::Grown {
            self.file.write_all_at(&batch.bytes, self.offset)?;
        } else {
            self.file.write_all_at(&batch.bytes, HEADS_BYTES as u64 + self.offset)?;
        }
        if self.space == Space::WrittenTwice {
            let heads = self.offset / batch.bytes.len() as u64 * batch.heads.len() as u64;
            self.file.write_all_at(&batch.heads, heads % HEADS_BYTES as u64)?;
        }
        self.offset += batch.bytes.len() as u64;
        Ok(self.file.sync_data()?)
    }
}

/// The log of a node, as a node uses it.
struct Norn {
    name: &'static str,
    log: Log<Switched>,
}

impl Norn {
    fn new(name: &'static str, directory: &Path, config: LogConfig, on: bool) -> Result<Norn> {
        let disk = Switched { disk: FileDisk::open(directory)?, on: true };
        let identity = Identity { node: NodeId(1), incarnation: 1 };
        let mut log = Log::open(disk, config, || identity).map_err(|error| anyhow!("{error}"))?;
        log.replay(|replay| replay.whole().map(drop)).map_err(|error| anyhow!("{error}"))?;
        log.disk_mut().on = on;
        Ok(Norn { name, log })
    }
}

impl Contender for Norn {
    fn name(&self) -> &'static str {
        self.name
    }

    fn write(&mut self, batch: &Batch) -> Result<()> {
        self.log.append(&batch.records)?;
        Ok(self.log.sync()?)
    }
}

/// A disk that can be switched off. The remaining time is the log's own work.
struct Switched {
    disk: FileDisk,
    on: bool,
}

impl Disk for Switched {
    fn list(&self) -> Result<Vec<String>, DiskError> {
        self.disk.list()
    }

    fn length(&self, file: &str) -> Result<u64, DiskError> {
        if self.on { self.disk.length(file) } else { Ok(0) }
    }

    fn read(&self, file: &str, offset: u64, length: usize) -> Result<Vec<u8>, DiskError> {
        self.disk.read(file, offset, length)
    }

    fn write(&mut self, file: &str, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        if self.on { self.disk.write(file, offset, bytes) } else { Ok(()) }
    }

    fn truncate(&mut self, file: &str, length: u64) -> Result<(), DiskError> {
        if self.on { self.disk.truncate(file, length) } else { Ok(()) }
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<(), DiskError> {
        self.disk.rename(from, to)
    }

    fn remove(&mut self, file: &str) -> Result<(), DiskError> {
        self.disk.remove(file)
    }

    fn retire(&mut self, file: &str) -> Result<(), DiskError> {
        self.disk.retire(file)
    }

    fn sync(&mut self, file: &str) -> Result<(), DiskError> {
        if self.on { self.disk.sync(file) } else { Ok(()) }
    }

    fn sync_directory(&mut self) -> Result<(), DiskError> {
        if self.on { self.disk.sync_directory() } else { Ok(()) }
    }
}

/// The first part of the log's work: encoding records. Framing them is the rest.
#[derive(Default)]
struct Encoding {
    body: Vec<u8>,
}

impl Contender for Encoding {
    fn name(&self) -> &'static str {
        "the encoding in that"
    }

    fn write(&mut self, batch: &Batch) -> Result<()> {
        for record in &batch.records {
            self.body.clear();
            record.encode(&mut self.body);
            black_box(&self.body);
        }
        Ok(())
    }
}
