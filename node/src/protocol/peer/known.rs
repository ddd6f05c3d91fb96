//! What a replica says of a task to a reader.

use crate::protocol::consistent::Viewstamp;
use crate::protocol::consistent::cohort::Told;
use crate::protocol::consistent::table::Cell;
use crate::protocol::task::{LostBytes, Task};
use crdts::CvRDT;
use norn_wire::Spec;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What a replica knows of a task, to a reader.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// Facts.
    pub task: Task,
    /// Its cell in the replica's table.
    pub cell: Option<Cell>,
    /// Viewstamp of that table.
    pub viewstamp: Viewstamp,
    /// Version of its cohort.
    pub at: Viewstamp,
    /// The cohort, where the question had another version.
    #[serde(default)]
    pub told: Option<Box<Told>>,
    /// The replica may have forgotten something: what it says is true, what it does not say means nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub holes: bool,
    /// Its log cannot give back a part of the task. Fields go by their places, so `holes`, which
    /// must not be left out before this one, is set on the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<Box<Lost>>,
}

/// What a replica still knows of parts of a task that it has lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// Whether the replica has holes.
    pub holes: bool,
    /// The spec without payload, headers and key, if these are lost.
    pub spec: Option<Arc<Spec>>,
    /// Completions whose results are lost, and lost log entries, without the bytes.
    pub facts: Task,
    /// What is known of those bytes.
    pub bytes: Vec<LostBytes>,
}

impl Known {
    /// Tells of what could not be read back that it is lost, and, where the payload is, what else the spec says.
    pub fn lose(&mut self, spec: Option<Arc<Spec>>) {
        let (facts, bytes) = self.task.take_gaps();
        let holes = std::mem::replace(&mut self.holes, true);
        self.lost = Some(Box::new(Lost { holes, spec, facts, bytes }));
    }

    /// Puts what came apart together, with what is lost marked so.
    pub fn take_losses(&mut self) {
        let Some(lost) = &mut self.lost else { return };
        self.holes = lost.holes;
        let mut facts = std::mem::take(&mut lost.facts);
        facts.mark_lost(&std::mem::take(&mut lost.bytes));
        self.task.merge(facts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::consistent::ReplicaId;
    use crate::protocol::peer::PeerMessage;
    use crate::protocol::task::Completed;
    use norn_wire::codec::Body;
    use norn_wire::{NodeId, PartitionId, Token};

    const TOKEN: Token = Token { epoch: 1, number: 1 };

    /// Goal: what is lost goes over the wire and is put together there: the task is the same, and says of its result that it is lost.
    #[test]
    fn what_is_lost_is_marked_so_at_the_reader() {
        let completed = Completed { sequence: Some(1), result: Some(vec![7; 1_000].into()), at_ms: 5, children: None };
        let mut whole = Task::from_seal(TOKEN, completed);
        whole.merge(Task::from_update(TOKEN, 0, vec![8; 1_000]));
        for holes in [false, true] {
            let mut task = whole.clone();
            let result = whole.blobs().last().map(|(slot, blob)| (slot, blob.hash(), blob.len() as u32));
            task.mark_lost(&[result.expect("there is one")]);
            let (viewstamp, at) = (Viewstamp::default(), Viewstamp::default());
            let mut known = Known { task, cell: None, viewstamp, at, told: None, holes, lost: None };
            known.lose(None);
            let replica = ReplicaId { node: NodeId(1), incarnation: 1 };
            let message = PeerMessage::Known { ask: 1, partition: PartitionId(0), replica, known: Box::new(known) };
            let mut bytes = Vec::new();
            message.write_compact(&mut bytes);
            let PeerMessage::Known { mut known, .. } = PeerMessage::read(&bytes).expect("it can be read") else {
                panic!()
            };
            assert_eq!(known.task.ended(), None, "nothing but what can be told");
            known.take_losses();
            assert_eq!((&known.task, known.holes), (&whole, holes));
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
