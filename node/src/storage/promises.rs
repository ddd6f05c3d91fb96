//! What must never be forgotten, as it was said last: each segment says it again before anything else.
//!
//! Facts and tables come back from other replicas; who the node is, which cluster it is of, its starts, what it lent and its
//! votes do not. With all of that at the beginning of each segment, a file that is lost with all heads, or is gone, costs
//! only what others have too, unless it is the last.

use super::slot::Owner;
use crate::protocol::record::Record;
use std::collections::{BTreeMap, BTreeSet};

/// The last record of each kind and owner. A few for the node, and one for each replica.
#[derive(Debug, Default)]
pub(crate) struct Promises {
    said: BTreeMap<(u8, Owner), Record>,
    /// Those that the segment has.
    here: BTreeSet<(u8, Owner)>,
}

impl Promises {
    /// A segment begins.
    pub fn begin(&mut self) {
        self.here.clear();
    }

    /// Takes note of a record in the log. Whether it was said before, word for word, and not in this segment.
    pub fn note(&mut self, record: &Record) -> bool {
        let Some(key) = key(record) else { return false };
        let first = self.here.insert(key);
        let before = self.said.insert(key, record.clone());
        first && before.as_ref() == Some(record)
    }

    /// How many records they are.
    pub fn count(&self) -> usize {
        self.said.len()
    }

    /// What is to be said again in this segment, in order.
    pub fn unsaid(&self) -> Vec<Record> {
        self.said.iter().filter(|(key, _)| !self.here.contains(*key)).map(|(_, record)| record.clone()).collect()
    }
}

/// Whether a record may stand behind another one in what is said again; the first one says which node this is.
pub(crate) fn follows(record: &Record, before: Option<&Record>) -> bool {
    match before {
        None => matches!(record, Record::Identity { .. }),
        Some(before) => key(record) > key(before),
    }
}

fn key(record: &Record) -> Option<(u8, Owner)> {
    rank(record).map(|rank| (rank, Owner::of(record)))
}

/// Place among what is said again: what the next ones are read with comes first. None for all that comes back otherwise.
fn rank(record: &Record) -> Option<u8> {
    match record {
        Record::Identity { .. } => Some(0),
        Record::Genesis(_) => Some(1),
        Record::Boot { .. } => Some(2),
        Record::Unanswered { .. } => Some(3),
        Record::Mark { .. } => Some(4),
        Record::Vote { .. } => Some(5),
        Record::Install { .. }
        | Record::Ops { .. }
        | Record::Facts { .. }
        | Record::Forgot { .. }
        | Record::Wound { .. }
        | Record::Left { .. }
        | Record::Hint { .. }
        | Record::Owed { .. }
        | Record::Handed { .. }
        | Record::Roster(_)
        | Record::Ran { .. }
        | Record::Ages { .. }
        | Record::Retired { .. }
        | Record::End { .. } => None,
    }
}
