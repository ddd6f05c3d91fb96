//! The on-disk log of a stopped node: where each record is, and ways to damage it.

use crate::cli::{self, Answer};
use crate::cluster::Cluster;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

/// Bytes of a segment's header. The second copies of heads follow it.
pub const HEADER_BYTES: usize = 512;
/// Bytes of the second copy of a head.
const SLOT_BYTES: usize = 32;

/// An intact record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Name of the record's file.
    pub file: String,
    /// Offset of the record's frame.
    pub offset: usize,
    /// Bytes of the frame.
    pub bytes: usize,
    /// Position in the log. Records of a snapshot are numbered separately.
    pub ordinal: u64,
    /// Kind of record.
    pub kind: String,
    /// Partition of the record; absent if the record is about the node itself.
    pub partition: Option<u64>,
    /// All records up to this ordinal were durable when this record was written.
    pub synced: u64,
}

impl Entry {
    /// Offset of the record's last byte, which belongs to the body.
    pub fn last_byte(&self) -> usize {
        self.offset + self.bytes - 1
    }
}

/// The files of a node's log.
#[derive(Debug, Clone)]
pub struct Log {
    directory: PathBuf,
}

impl Log {
    /// The log of one node.
    pub fn of(cluster: &Cluster, index: usize) -> Log {
        Log { directory: cluster.data(index) }
    }

    /// Names of all files with this ending, in order.
    pub fn files(&self, end: &str) -> Vec<String> {
        let files = fs::read_dir(&self.directory).expect("it is there").flatten();
        let names = files.map(|entry| entry.file_name().into_string().expect("names are text"));
        let mut names: Vec<String> = names.filter(|name| name.ends_with(end)).collect();
        names.sort();
        names
    }

    /// Names of all segments, in order.
    pub fn segments(&self) -> Vec<String> {
        let segments = self.files(".log");
        assert!(!segments.is_empty(), "there is a log");
        segments
    }

    /// The path of a file.
    pub fn path(&self, file: &str) -> PathBuf {
        self.directory.join(file)
    }

    /// All intact records, ordered by file and offset, as `norn log inspect` shows them.
    pub fn entries(&self) -> Vec<Entry> {
        let shown = self.run("inspect").done().lines();
        let entry = |line: &Value| {
            let number = |name: &str| line[name].as_u64().expect("a number");
            Some(Entry {
                ordinal: line["ordinal"].as_u64()?,
                file: line["file"].as_str().expect("a name").to_owned(),
                offset: number("offset") as usize,
                bytes: number("bytes") as usize,
                kind: line["kind"].as_str().expect("a word").to_owned(),
                partition: line["partition"].as_u64(),
                synced: number("synced"),
            })
        };
        shown.iter().filter_map(entry).collect()
    }

    /// Output of `norn log verify`.
    pub fn verify(&self) -> Answer {
        self.run("verify")
    }

    fn run(&self, what: &str) -> Answer {
        let parent = self.directory.parent().expect("it is in the cluster's");
        cli::run(parent, &["--json", "log", what, self.directory.to_str().expect("a path")])
    }

    /// The bytes of a file.
    pub fn read(&self, file: &str) -> Vec<u8> {
        fs::read(self.path(file)).expect("it can be read")
    }

    /// Changes one bit of a file.
    pub fn flip(&self, file: &str, offset: usize) {
        let mut bytes = self.read(file);
        bytes[offset] ^= 0x40;
        fs::write(self.path(file), bytes).expect("it can be written");
    }

    /// Offset of the second copy of a record's head.
    pub fn head_offset(&self, entry: &Entry) -> usize {
        let header = self.read(&entry.file);
        let first_ordinal = u64::from_be_bytes(*header[52..].first_chunk().expect("a header"));
        HEADER_BYTES + (entry.ordinal - first_ordinal) as usize * SLOT_BYTES
    }

    /// All files of the log with their bytes.
    pub fn save(&self) -> BTreeMap<String, Vec<u8>> {
        let names = [self.files(".log"), self.files(".snapshot")].concat();
        names.into_iter().map(|name| (name.clone(), self.read(&name))).collect()
    }

    /// Restores the log to a saved state.
    pub fn restore(&self, saved: &BTreeMap<String, Vec<u8>>) {
        for name in self.save().keys().filter(|name| !saved.contains_key(*name)) {
            fs::remove_file(self.path(name)).expect("it can be removed");
        }
        for (name, bytes) in saved {
            fs::write(self.path(name), bytes).expect("it can be written");
        }
    }
}
