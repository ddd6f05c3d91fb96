//! From what a log holds, or lacks, to a node: the same for every host.

use crate::protocol::Node;
use crate::protocol::record::Kind;
use crate::storage::{Loss, Owner, Replay};
use norn_client::wire::PartitionId;
use std::collections::BTreeMap;

/// Takes a node through the replay of its log.
///
/// Facts and tables come back from other replicas, so a node goes on without them (`protocol::partition::wound`). A vote
/// does not: who forgot one could give it twice. Nor do the marks of what was lent, or the count of starts. But each of
/// these is replaced by the next one of its kind, so their loss is only a doubt until that turns up.
#[derive(Debug)]
pub struct Restorer<'a> {
    node: &'a mut Node,
    /// What may have been said and is not known, with the place in the log.
    doubts: BTreeMap<(Owner, Kind), u64>,
}

impl<'a> Restorer<'a> {
    /// For a node that has seen nothing of its log.
    pub fn new(node: &'a mut Node) -> Restorer<'a> {
        Restorer { node, doubts: BTreeMap::new() }
    }

    /// Takes in a record or a loss. An error means that the node cannot be what it was.
    pub fn take(&mut self, replay: Replay) -> Result<(), String> {
        match replay {
            Replay::Record { record, covered, place } => {
                self.doubts.remove(&(Owner::of(&record), record.kind()));
                self.node.recover(record, covered, place)
            }
            Replay::Lost(loss) => self.lose(&loss),
        }
    }

    fn lose(&mut self, loss: &Loss) -> Result<(), String> {
        let Some((ordinal, _)) = loss.ranges.first().copied() else {
            return Err("nobody can say what is lost".into());
        };
        for (owner, kind) in loss.owners.keys() {
            self.lose_one(*owner, *kind, ordinal)?;
        }
        if loss.unknown == 0 {
            return Ok(());
        }
        if self.node.genesis().is_none() {
            return Err("nobody can say whose the lost records were".into());
        }
        // Any of all that a log may hold.
        for kind in [b'B', b'M'] {
            self.doubts.insert((Owner::Node, Kind(kind)), ordinal);
        }
        let partitions: Vec<PartitionId> = self.node.inspect().iter().map(|view| view.partition).collect();
        for partition in partitions {
            for kind in [b'V', b'T'] {
                self.lose_one(Owner::Partition(partition), Kind(kind), ordinal)?;
            }
        }
        Ok(())
    }

    fn lose_one(&mut self, owner: Owner, kind: Kind, ordinal: u64) -> Result<(), String> {
        match (owner, kind.wound(), kind.0) {
            (Owner::Partition(partition), Some(wound), _) => self.node.lose(partition, ordinal, wound),
            (Owner::Partition(_), None, b'V') | (Owner::Node, None, b'B' | b'M') => {
                self.doubts.insert((owner, kind), ordinal);
                Ok(())
            }
            _ => Err(format!("no node goes on without the {kind} of {owner}")),
        }
    }

    /// The replay has ended. An error means that the node must not start with what is left.
    pub fn finish(self) -> Result<(), String> {
        if let Some(((owner, kind), ordinal)) = self.doubts.first_key_value() {
            return Err(format!(
                "around record {ordinal} the log lost a {kind} of {owner}, which nothing behind it replaces: whoever went \
                 on without it could contradict what was promised"
            ));
        }
        match self.node.lost_for_good().first() {
            None => Ok(()),
            Some(partition) => {
                Err(format!("facts of {} are lost that no other replica has", Owner::Partition(*partition)))
            }
        }
    }
}
