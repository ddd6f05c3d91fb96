//! What a node does about replicas that lost a part of its log. The rules are in `partition/wound.rs`.

use super::consistent::{Viewstamp, rules};
use super::peer::PeerMessage;
use super::record::Record;
use super::timers::Key;
use super::{Node, Observation};
use crate::config::mutant;
use norn_client::wire::{NodeId, PartitionId};
use std::collections::BTreeSet;

impl Node {
    /// Writes down what is missing of a replica now.
    pub(super) fn tell_wound(&mut self, partition: PartitionId) {
        let healing = &self.partitions[&partition].healing;
        let (wound, losses) = (healing.wound, healing.losses);
        self.outbox.persist(Record::Wound { partition, wound, losses });
        self.outbox.observe(Observation::Wounded { partition: partition.0, facts: wound.facts, table: wound.table });
    }

    /// Whether anything is missing here.
    pub(super) fn has_holes(&self) -> bool {
        self.partitions.values().any(|replica| replica.healing.wound.facts)
    }

    /// Whether the replica may vote and lead.
    pub(super) fn may_vote(&self, partition: PartitionId) -> bool {
        let lost = self.partitions.get(&partition).is_some_and(|replica| replica.healing.wound.table);
        (!lost || mutant!(self.config, RecoveringCounts)) && self.is_answered(partition)
    }

    /// Asks the leaders of tables that lost something how far these must come. Each question brings what is missing on its
    /// way again, and is repeated until the table counts.
    pub(super) fn ask_to_rejoin(&mut self) {
        let wounded = self.partitions.iter().filter(|(_, replica)| replica.healing.wound.table);
        let ids: Vec<PartitionId> = wounded.map(|(id, _)| *id).collect();
        for partition in &ids {
            let leader = self.leader_of(*partition);
            let replica = self.partitions.get_mut(partition).expect("just listed");
            if !replica.answered {
                continue;
            }
            let ask = self.asks.number();
            let Some(leader) = leader.filter(|leader| replica.cohort.contains(leader)) else { continue };
            replica.healing.asked.get_or_insert(ask);
            let viewstamp = replica.register.viewstamp;
            self.outbox.send(leader, PeerMessage::Rejoin { partition: *partition, ask, viewstamp });
        }
        if !ids.is_empty() {
            self.timers.set(Key::Rejoin, self.now.mono_after_ms(self.config.resend_ms));
        }
    }

    /// At the leader: a follower lost a part of what it acknowledged.
    pub(super) fn on_rejoin(&mut self, from: NodeId, partition: PartitionId, ask: u64, theirs: Viewstamp) {
        let Some(replica) = self.partitions.get(&partition) else { return };
        let register = &replica.register;
        if register.leading().is_none() || from == self.me || !replica.cohort.contains(&from) {
            return;
        }
        let viewstamp = register.viewstamp;
        let sent_us =
            register.leading().and_then(|leading| leading.progress.get(&from)).map(|progress| progress.sent_us);
        self.outbox.send(from, PeerMessage::Rejoined { partition, ask, viewstamp });
        // What is on its way may be a whole table.
        if sent_us.is_some_and(|sent_us| self.now.mono_us >= sent_us + self.config.resend_ms * 1_000) {
            self.send_from(partition, from, theirs);
        }
    }

    /// The leader tells where it stands.
    pub(super) fn on_rejoined(&mut self, from: NodeId, partition: PartitionId, ask: u64, viewstamp: Viewstamp) {
        let Some(replica) = self.partitions.get_mut(&partition) else { return };
        let asked = replica.healing.asked.is_some_and(|first| ask >= first) && replica.cohort.contains(&from);
        if !asked || !replica.healing.wound.table || !rules::may_set_target(replica.register.promised, viewstamp.epoch)
        {
            return;
        }
        replica.healing.target = Some(viewstamp);
        self.close_wound(partition);
    }

    /// Closes what is healed by now. Whatever rests on it waits for the disk behind the record.
    pub(super) fn close_wound(&mut self, partition: PartitionId) {
        let Some(replica) = self.partitions.get_mut(&partition) else { return };
        let (viewstamp, replicas) = (replica.register.viewstamp, replica.cohort.len());
        if replica.healing.wound.is_whole() || !replica.healing.close(viewstamp, replicas) {
            return;
        }
        self.tell_wound(partition);
        self.acknowledge_anew(partition);
    }

    /// The number of a round of anti-entropy in which agreement heals; 0 where there is nothing to heal, or not yet.
    pub(super) fn healing_round(&mut self) -> u64 {
        if !self.has_holes() || !self.all_know_this_start() {
            return 0;
        }
        let round = self.asks.number();
        self.asks.exchange.healing_since.get_or_insert(round);
        round
    }

    /// Partitions with holes that a peer has not agreed on yet.
    pub(super) fn holes_with(&self, node: NodeId) -> BTreeSet<PartitionId> {
        let open = |replica: &&super::Partition| {
            let healing = &replica.healing;
            healing.wound.facts && replica.cohort.contains(&node) && !healing.agreed.contains(&node)
        };
        self.partitions.values().filter(open).map(|replica| replica.id).collect()
    }

    /// A peer without holes has the same facts, by its answer to a round. An answer to an earlier one may be older than
    /// what it stored when others still counted this replica.
    pub(super) fn agreed_on_holes(&mut self, node: NodeId, partition: PartitionId, round: u64) {
        if self.asks.exchange.healing_since.is_none_or(|since| round < since) {
            return;
        }
        let Some(replica) = self.partitions.get_mut(&partition) else { return };
        let wound = replica.healing.wound;
        // Before its table is whole a replica does not know which tasks were forgotten.
        if wound.facts && !wound.table && replica.cohort.contains(&node) {
            replica.healing.agreed.insert(node);
            self.close_wound(partition);
        }
    }
}
