//! The log on a disk of memory.

use crate::values::{genesis, ids, node_id, task};
use anyhow::{Error, Result, anyhow};
use norn_engine::{Founding, Node};
use norn_model::config::Config;
use norn_model::record::Record;
use norn_restore::Restorer;
use norn_storage::disk::{Disk, DiskError};
use norn_storage::{Identity, Log, LogConfig};
use norn_wire::PartitionId;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::hint::black_box;
use std::rc::Rc;
use std::sync::Arc;

/// Records of the log that is replayed.
const REPLAYED: usize = 1_000;

/// Files of bytes. Copies share them.
#[derive(Clone, Default)]
struct MemoryDisk(Rc<RefCell<BTreeMap<String, Vec<u8>>>>);

impl MemoryDisk {
    fn with<T>(
        &self,
        operation: &'static str,
        file: &str,
        with: impl FnOnce(&mut Vec<u8>) -> T,
    ) -> Result<T, DiskError> {
        self.0.borrow_mut().get_mut(file).map(with).ok_or_else(|| absent(operation, file))
    }
}

fn absent(operation: &'static str, file: &str) -> DiskError {
    DiskError { operation, file: file.into(), cause: "there is no such file".into(), full: false, lost: true }
}

impl Disk for MemoryDisk {
    fn list(&self) -> Result<Vec<String>, DiskError> {
        Ok(self.0.borrow().keys().cloned().collect())
    }

    fn length(&self, file: &str) -> Result<u64, DiskError> {
        self.with("length", file, |bytes| bytes.len() as u64)
    }

    fn read(&self, file: &str, offset: u64, length: usize) -> Result<Vec<u8>, DiskError> {
        self.with("read", file, |bytes| {
            let start = bytes.len().min(offset as usize);
            bytes[start..bytes.len().min(start.saturating_add(length))].to_vec()
        })
    }

    fn write(&mut self, file: &str, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        let (start, end) = (offset as usize, offset as usize + bytes.len());
        let mut files = self.0.borrow_mut();
        if !files.contains_key(file) {
            files.insert(file.to_owned(), Vec::new());
        }
        let content = files.get_mut(file).ok_or_else(|| absent("write", file))?;
        content.resize(content.len().max(end), 0);
        content[start..end].copy_from_slice(bytes);
        Ok(())
    }

    fn truncate(&mut self, file: &str, length: u64) -> Result<(), DiskError> {
        self.with("truncate", file, |bytes| bytes.truncate(length as usize))
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<(), DiskError> {
        let mut files = self.0.borrow_mut();
        let content = files.remove(from).ok_or_else(|| absent("rename", from))?;
        files.insert(to.to_owned(), content);
        Ok(())
    }

    fn remove(&mut self, file: &str) -> Result<(), DiskError> {
        self.0.borrow_mut().remove(file).map(drop).ok_or_else(|| absent("remove", file))
    }

    fn sync(&mut self, _file: &str) -> Result<(), DiskError> {
        Ok(())
    }

    fn sync_directory(&mut self) -> Result<(), DiskError> {
        Ok(())
    }
}

fn open(disk: MemoryDisk) -> Result<Log<MemoryDisk>> {
    let identity = Identity { node: node_id(0), incarnation: 1 };
    Log::open(disk, LogConfig::default(), || identity).map_err(|error| anyhow!("{error}"))
}

fn begin(disk: MemoryDisk) -> Result<Log<MemoryDisk>> {
    let mut log = open(disk)?;
    log.replay(|replay| replay.whole().map(drop)).map_err(|error| anyhow!("{error}"))?;
    Ok(log)
}

/// Records of one task each.
fn facts() -> Result<impl Iterator<Item = Record>> {
    let task = task()?;
    Ok(ids().map(move |id| Record::Facts { partition: PartitionId(3), items: Arc::new(vec![(id, task.clone())]) }))
}

/// Appends a record of one task, makes it durable, and does the upkeep that follows.
pub fn append(rounds: usize) -> Result<()> {
    let mut log = begin(MemoryDisk::default())?;
    for (number, record) in facts()?.take(rounds).enumerate() {
        black_box(log.append(std::slice::from_ref(&record))?);
        log.commit(number as u64)?;
        log.upkeep()?;
    }
    Ok(())
}

/// Replays a log with a thousand records of one task each into a node.
pub fn replay(rounds: usize) -> Result<()> {
    let disk = MemoryDisk::default();
    let mut log = begin(disk.clone())?;
    log.append(&[Record::Genesis(Arc::new(genesis(1)))])?;
    log.append(&facts()?.take(REPLAYED).collect::<Vec<Record>>())?;
    log.sync()?;
    for _ in 0..rounds {
        let mut log = open(disk.clone())?;
        let founding = Founding {
            config: Config::default(),
            node: node_id(0),
            incarnation: 1,
            name: "n0".into(),
            address: "n0:7400".into(),
            zone: String::new(),
        };
        let mut node = Node::new(founding, 7);
        let mut restorer = Restorer::new(&mut node);
        log.read(|replay| restorer.take(replay)).map_err(|error| anyhow!("{error}"))?;
        restorer.finish().map_err(Error::msg)?;
        black_box(node);
    }
    Ok(())
}
