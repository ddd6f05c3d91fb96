//! Answer of a replica to the coordinator of a read.

use crate::claim_table::table::ClaimEntry;
use crate::cohort::AdvertisedCohort;
use crate::task::{LostBytes, Task};
use crate::viewstamp::Viewstamp;
use crdts::CvRDT;
use norn_wire::Spec;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What a replica knows of a task, for a read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// Facts.
    pub task: Task,
    /// The claim-table entry of the task.
    pub entry: Option<ClaimEntry>,
    /// Viewstamp of that table.
    pub viewstamp: Viewstamp,
    /// Version of its cohort.
    pub at: Viewstamp,
    /// The replica's cohort, where the question had another version.
    #[serde(default)]
    pub advertised: Option<Box<AdvertisedCohort>>,
    /// Whether the replica may have lost something: what it states is true, what it does not state proves nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub incomplete: bool,
    /// Set if its log cannot load a part of the task. Fields are encoded by position, so `incomplete`, which must not be left out before
    /// this one, is set in the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<Box<Lost>>,
}

/// What a replica still knows of lost parts of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// Whether the replica has incomplete facts.
    pub incomplete: bool,
    /// The spec without payload, headers and key, if these are lost.
    pub spec: Option<Arc<Spec>>,
    /// Completions whose results are lost, and lost log entries, without the bytes.
    pub facts: Task,
    /// What is known of the lost bytes.
    pub bytes: Vec<LostBytes>,
}

impl Known {
    /// Moves what could not be loaded to `lost`, with the rest of the spec where the payload is lost.
    pub fn lose(&mut self, spec: Option<Arc<Spec>>) {
        let (facts, bytes) = self.task.take_gaps();
        let incomplete = std::mem::replace(&mut self.incomplete, true);
        self.lost = Some(Box::new(Lost { incomplete, spec, facts, bytes }));
    }

    /// Merges the lost parts back into the task at the reader, marked as lost.
    pub fn take_losses(&mut self) {
        let Some(lost) = &mut self.lost else { return };
        self.incomplete = lost.incomplete;
        let mut facts = std::mem::take(&mut lost.facts);
        facts.mark_lost(&std::mem::take(&mut lost.bytes));
        self.task.merge(facts);
    }
}
