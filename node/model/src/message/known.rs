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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{PeerMessage, ReadWrite};
    use crate::task::Completed;
    use crate::viewstamp::ReplicaId;
    use norn_wire::codec::Body;
    use norn_wire::{NodeId, PartitionId, Token};

    const TOKEN: Token = Token { epoch: 1, number: 1 };

    /// Goal: lost parts go over the wire and are merged back there: the task is the same, and its result is marked as lost.
    #[test]
    fn what_is_lost_is_marked_so_at_the_reader() {
        let completed = Completed { sequence: Some(1), result: Some(vec![7; 1_000].into()), at_ms: 5, children: None };
        let mut whole = Task::from_seal(TOKEN, completed);
        whole.merge(Task::from_update(TOKEN, 0, vec![8; 1_000]));
        for incomplete in [false, true] {
            let mut task = whole.clone();
            let result = whole.blobs().last().map(|(slot, blob)| (slot, blob.hash(), blob.len() as u32));
            task.mark_lost(&[result.expect("there is one")]);
            let (viewstamp, at) = (Viewstamp::default(), Viewstamp::default());
            let mut known = Known { task, entry: None, viewstamp, at, advertised: None, incomplete, lost: None };
            known.lose(None);
            let replica = ReplicaId { node: NodeId(1), incarnation: 1 };
            let message = PeerMessage::ReadWrite(ReadWrite::Known {
                request_id: 1,
                partition: PartitionId(0),
                replica,
                known: Box::new(known),
            });
            let mut bytes = Vec::new();
            message.write_compact(&mut bytes);
            let PeerMessage::ReadWrite(ReadWrite::Known { mut known, .. }) =
                PeerMessage::read(&bytes).expect("it can be read")
            else {
                panic!()
            };
            assert_eq!(known.task.ended(), None, "nothing but what can be told");
            known.take_losses();
            assert_eq!((&known.task, known.incomplete), (&whole, incomplete));
            let away: Vec<bool> = known.task.blobs().map(|(_, blob)| blob.here().is_none()).collect();
            assert_eq!(away, [false, true]);
            let mut seen = known.task.clone();
            seen.merge_told(whole.clone());
            assert!(seen.has_blobs() && seen == whole, "another replica has it");
            let mut seen = whole.clone();
            seen.merge_told(known.task);
            assert!(seen.has_blobs() && seen == whole);
        }
    }
}
