//! What the log is measured against: each takes a batch of records and returns once it is durable.

#[cfg(feature = "databases")]
mod databases;

use anyhow::{Result, anyhow};
use norn_node::protocol::Record;
use norn_node::protocol::task::Task;
use norn_node::runtime::disk::FileDisk;
use norn_node::storage::disk::{Disk, DiskError};
use norn_node::storage::{Identity, Log, LogConfig};
use norn_wire::{NodeId, PartitionId, QueueName, TaskId, request::Spec};
use std::fs::{File, OpenOptions};
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// Bytes of a task.
const PAYLOAD_BYTES: usize = 256;
/// Bytes that are written before the first measurement where space is to be there already; then they are used again.
const SPACE_BYTES: usize = 64 << 20;
/// Room for heads before that.
const HEADS_BYTES: usize = 16 << 20;
/// Bytes of a record's head in the log.
const HEAD_BYTES: usize = 32;

/// The same records for all.
#[derive(Debug)]
pub struct Batch {
    /// For the log, which encodes them itself, each time.
    pub records: Vec<Record>,
    /// For the databases, encoded beforehand.
    #[cfg(feature = "databases")]
    pub bodies: Vec<Vec<u8>>,
    /// These in one piece, for those who keep nothing else.
    pub bytes: Vec<u8>,
    /// Something as long as their heads in the log.
    pub heads: Vec<u8>,
}

impl Batch {
    /// So many records of one task each. Their payloads cannot be compressed.
    pub fn new(count: usize) -> Result<Batch> {
        let mut word = 0x9e37_79b9_7f4a_7c15_u64;
        let mut byte = || {
            word = (word ^ word >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9).wrapping_add(1);
            (word >> 56) as u8
        };
        let mut records = Vec::new();
        for number in 0..count {
            let spec = Spec {
                queue: QueueName::new("mail")?,
                payload: (0..PAYLOAD_BYTES).map(|_| byte()).collect(),
                priority: 0,
                not_before_ms: 0,
                headers: Vec::new(),
                attempts_max: 0,
                after: Vec::new(),
                key: None,
                grouping: None,
                revision: None,
            };
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

/// Something that makes batches durable.
pub trait Contender {
    /// What it is, for people.
    fn name(&self) -> &'static str;
    /// Returns once all of the batch survives a crash.
    fn write(&mut self, batch: &Batch) -> Result<()>;
}

/// All of them, each in a directory of its own. The first two are bare limits: of a log that grows, and of one that finds
/// its space, as the next does; that one writes a second region, too, as the log does for its heads.
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

/// What a bare contender finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Space {
    /// The end of the file.
    Grown,
    /// Written space.
    Written,
    /// The same, in two places.
    WrittenTwice,
}

/// One write, or two, and one `fdatasync`, of the encoded records and nothing else.
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
        // A segment's length. A file that goes on growing is another thing than a log.
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

/// A disk that can be switched off: what is left of the time is the log's own.
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

    fn sync(&mut self, file: &str) -> Result<(), DiskError> {
        if self.on { self.disk.sync(file) } else { Ok(()) }
    }

    fn sync_directory(&mut self) -> Result<(), DiskError> {
        if self.on { self.disk.sync_directory() } else { Ok(()) }
    }
}

/// The first part of the log's work: records become bytes. Framing them is the rest.
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
