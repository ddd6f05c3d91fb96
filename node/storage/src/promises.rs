//! Records that must never be lost, in their latest version: each segment repeats them before any other record.
//!
//! Facts and tables come back from other replicas. The node's identity, cluster, starts, lent ids and votes do not. With all of these
//! repeated at the beginning of each segment, a file that is gone, or lost with all its heads, costs only state that other replicas
//! have too, unless it is the last file.

use super::slot::Owner;
use norn_model::record::Record;
use std::collections::{BTreeMap, BTreeSet};

/// The last record of each kind and owner: a few for the node, and one for each replica.
#[derive(Debug, Default)]
pub struct Promises {
    said: BTreeMap<(u8, Owner), Record>,
    /// Keys that the current segment has already.
    here: BTreeSet<(u8, Owner)>,
}

impl Promises {
    /// Begins a segment.
    pub fn begin(&mut self) {
        self.here.clear();
    }

    /// Takes in a record of the log. Returns whether it repeats the known one word for word, for the first time in this segment.
    pub fn note(&mut self, record: &Record) -> bool {
        let Some(key) = key(record) else { return false };
        let first = self.here.insert(key);
        let before = self.said.insert(key, record.clone());
        first && before.as_ref() == Some(record)
    }

    /// Number of records.
    pub fn count(&self) -> usize {
        self.said.len()
    }

    /// Records still to be repeated in this segment, in order.
    pub fn unsaid(&self) -> Vec<Record> {
        self.said.iter().filter(|(key, _)| !self.here.contains(*key)).map(|(_, record)| record.clone()).collect()
    }
}

/// Whether a record may follow another one in the repeated records; the first of them is the identity.
pub fn follows(record: &Record, before: Option<&Record>) -> bool {
    match before {
        None => matches!(record, Record::Identity { .. }),
        Some(before) => key(record) > key(before),
    }
}

fn key(record: &Record) -> Option<(u8, Owner)> {
    rank(record).map(|rank| (rank, Owner::of(record)))
}

/// Order among the repeated records: a record that is needed to read later ones comes first. `None` for records that other replicas
/// can restore.
fn rank(record: &Record) -> Option<u8> {
    match record {
        Record::Identity { .. } => Some(0),
        Record::Genesis(_) => Some(1),
        Record::Boot { .. } => Some(2),
        Record::Unanswered { .. } => Some(3),
        Record::HighWaterMark { .. } => Some(4),
        Record::Vote { .. } => Some(5),
        Record::Install { .. }
        | Record::Ops { .. }
        | Record::Facts { .. }
        | Record::Forgot { .. }
        | Record::DataLoss { .. }
        | Record::Left { .. }
        | Record::Hint { .. }
        | Record::IdHint { .. }
        | Record::Handed { .. }
        | Record::Roster(_)
        | Record::Ran { .. }
        | Record::LeaseAges { .. }
        | Record::Retired { .. }
        | Record::End { .. } => None,
    }
}
