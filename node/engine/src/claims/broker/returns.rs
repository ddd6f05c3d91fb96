//! Grants that go back. The broker sends them to the leaders of their partitions, repeatedly: a leader may miss the message, or lose
//! its leadership before the void is committed.
//!
//! `Return` has no answer. But a node that leads the partition itself knows when a void is committed, and stops then. The grants of a
//! partition without a reachable leader wait, and its next leader gets them at once.

use super::Grant;
use crate::Node;
use crate::context::timers::Key;
use norn_model::claim_table::table::ClaimState;
use norn_model::message::Claiming;
use norn_model::viewstamp::{Epoch, Viewstamp};
use norn_wire::{NodeId, PartitionId, TaskId, Token};
use std::collections::{BTreeMap, BTreeSet};

/// Most grants that go back. Above this, those that were sent most often are dropped first.
const GRANTS_MAX: usize = 50_000;
/// Most grants that are sent at once.
const AT_ONCE_MAX: usize = 1_000;
/// First pause before a grant is sent again. It doubles each time...
pub(super) const REPEAT_MS: u64 = 250;
/// ...up to 16 seconds.
pub(super) const DOUBLINGS_MAX: u32 = 6;
/// A grant is sent for this long since it was first sent to a leader. Sending it too often does no harm: a grant that was renewed since
/// stays.
const SAID_MS: u64 = 290_000;
/// Delay for grants that a leader made and did not name in an answer: a broker whose client waits has asked for them by then, and so
/// renewed them.
const UNTOLD_MS: u64 = 2_000;
/// Longest pause between two looks for partitions with another leader.
const LOOK_MS: u64 = 1_000;

/// Send state of a grant.
#[derive(Debug)]
struct Said {
    count: u32,
    /// How often it was sent to the present leader, which may not be established at the first time.
    repeats: u32,
    /// When it was first sent.
    first_us: u64,
    due_us: u64,
    /// Not sent before this.
    from_us: u64,
    /// State of the table in which this node, as the leader, first found the grant gone.
    gone: Option<Viewstamp>,
}

/// Grants of a partition that go back.
#[derive(Debug, Default)]
struct OfPartition {
    /// Leader that was sent grants last, and its epoch.
    told: Option<(Epoch, NodeId)>,
    grants: BTreeMap<Grant, Said>,
    due: BTreeSet<(u64, Grant)>,
}

/// All grants that go back.
#[derive(Debug, Default)]
pub(super) struct GoingBack {
    by_partition: BTreeMap<PartitionId, OfPartition>,
    /// The grants, ordered by how often each was sent.
    by_count: BTreeSet<(u32, PartitionId, Grant)>,
}

impl GoingBack {
    pub fn len(&self) -> usize {
        self.by_count.len()
    }

    /// A grant that goes back, whatever its viewstamp.
    pub fn find(&self, partition: PartitionId, (id, token): (TaskId, Token)) -> Option<Grant> {
        let of = self.by_partition.get(&partition)?;
        let (grant, _) = of.grants.range((id, token, Viewstamp::default())..).next()?;
        (grant.0 == id && grant.1 == token).then_some(*grant)
    }

    fn partitions(&self) -> Vec<PartitionId> {
        self.by_partition.keys().copied().collect()
    }

    fn add(&mut self, partition: PartitionId, grant: Grant, from_us: u64) {
        let of = self.by_partition.entry(partition).or_default();
        if of.grants.contains_key(&grant) {
            return;
        }
        of.grants.insert(grant, Said { count: 0, repeats: 0, first_us: 0, due_us: from_us, from_us, gone: None });
        of.due.insert((from_us, grant));
        self.by_count.insert((0, partition, grant));
        if self.by_count.len() > GRANTS_MAX
            && let Some((_, partition, grant)) = self.by_count.last().copied()
        {
            self.remove(partition, &grant);
        }
        assert!(self.by_count.len() <= GRANTS_MAX, "too many grants go back");
    }

    fn remove(&mut self, partition: PartitionId, grant: &Grant) {
        let Some(of) = self.by_partition.get_mut(&partition) else { return };
        let Some(said) = of.grants.remove(grant) else { return };
        assert!(of.due.remove(&(said.due_us, *grant)), "a grant that goes back is not due");
        assert_eq!(of.due.len(), of.grants.len(), "not every grant that goes back is due");
        assert!(self.by_count.remove(&(said.count, partition, *grant)), "a grant that goes back is not counted");
        if of.grants.is_empty() {
            self.by_partition.remove(&partition);
        }
    }

    /// Grants of a partition that are due, up to `max`. A new leader gets all of them.
    fn due(&mut self, partition: PartitionId, leadership: (Epoch, NodeId), now_us: u64, max: usize) -> Vec<Grant> {
        let Some(of) = self.by_partition.get_mut(&partition) else { return Vec::new() };
        if of.told.replace(leadership) != Some(leadership) {
            of.grants.values_mut().for_each(|said| (said.due_us, said.repeats) = (now_us.max(said.from_us), 0));
            of.due = of.grants.iter().map(|(grant, said)| (said.due_us, *grant)).collect();
        }
        let due = of.due.iter().take_while(|(due_us, _)| *due_us <= now_us);
        due.take(max).map(|(_, grant)| *grant).collect()
    }

    /// Records that a grant was sent.
    fn note_said(&mut self, partition: PartitionId, grant: &Grant, now_us: u64) {
        let of = self.by_partition.get_mut(&partition);
        let Some((of, said)) = of.and_then(|of| Some((&mut of.due, of.grants.get_mut(grant)?))) else { return };
        if said.count == 0 {
            said.first_us = now_us;
        }
        if now_us >= said.first_us + SAID_MS * 1_000 {
            return self.remove(partition, grant);
        }
        assert!(of.remove(&(said.due_us, *grant)), "a grant that goes back is not due");
        assert!(self.by_count.remove(&(said.count, partition, *grant)), "a grant that goes back is not counted");
        said.due_us = now_us + (REPEAT_MS << said.repeats.min(DOUBLINGS_MAX)) * 1_000;
        (said.count, said.repeats) = (said.count + 1, said.repeats + 1);
        of.insert((said.due_us, *grant));
        self.by_count.insert((said.count, partition, *grant));
    }

    /// When the next grant of a partition is due.
    fn next_us(&self, partition: PartitionId) -> Option<u64> {
        self.by_partition.get(&partition)?.due.first().map(|(due_us, _)| *due_us)
    }
}

impl Node {
    /// Gives back grants that no client got.
    pub(crate) fn give_back_grants(&mut self, grants: Vec<Grant>) {
        self.give_back_from(grants, self.now.mono_us);
    }

    /// Gives back grants that this node made as the leader and that its answer does not name.
    pub(crate) fn give_back_unreported(&mut self, grants: Vec<Grant>) {
        self.give_back_from(grants, self.now.mono_after_ms(UNTOLD_MS));
    }

    fn give_back_from(&mut self, grants: Vec<Grant>, from_us: u64) {
        let mut partitions = BTreeSet::new();
        for grant in grants {
            let partition = self.partition_of(&grant.0);
            self.claims.broker.returns.grants.add(partition, grant, from_us);
            partitions.insert(partition);
        }
        self.say_grants(partitions);
    }

    /// Sends the grants that are due, and sets the timer for the next.
    pub(crate) fn say_returns(&mut self) {
        let partitions = self.claims.broker.returns.grants.partitions();
        self.say_grants(partitions);
    }

    fn say_grants(&mut self, partitions: impl IntoIterator<Item = PartitionId>) {
        let now_us = self.now.mono_us;
        let mut by_leader: BTreeMap<NodeId, Vec<Grant>> = BTreeMap::new();
        let (mut rest, mut next_us) = (AT_ONCE_MAX, self.now.mono_after_ms(LOOK_MS));
        for partition in partitions {
            let leadership = self.leadership_of(partition).filter(|(_, node)| self.is_reachable(*node));
            let Some((epoch, leader)) = leadership else {
                next_us = next_us.min(self.now.mono_after_ms(REPEAT_MS));
                continue;
            };
            let due = self.claims.broker.returns.grants.due(partition, (epoch, leader), now_us, rest);
            assert!(due.len() <= rest, "more grants are sent than may be at once");
            rest -= due.len();
            for grant in due {
                if leader == self.me && self.is_gone(partition, &grant) {
                    self.claims.broker.returns.grants.remove(partition, &grant);
                } else {
                    self.claims.broker.returns.grants.note_said(partition, &grant, now_us);
                    by_leader.entry(leader).or_default().push(grant);
                }
            }
            next_us =
                self.claims.broker.returns.grants.next_us(partition).map_or(next_us, |due_us| next_us.min(due_us));
        }
        for (leader, items) in by_leader {
            self.outbox.send(leader, Claiming::Return { items });
        }
        if self.claims.broker.returns.grants.len() > 0 {
            // Other events come in between two batches.
            self.timers.set_earliest(Key::Returns, next_us.max(self.now.mono_after_ms(1)));
        }
    }

    /// At the leader: whether no later leader can find a grant. The table without it has to be committed.
    fn is_gone(&mut self, partition: PartitionId, (id, token, at): &Grant) -> bool {
        let Some(consensus) = self.partitions.get(&partition).map(|replica| &replica.consensus) else { return false };
        let here = consensus.viewstamp;
        let leads = consensus.leading().is_some_and(|leading| leading.established && leading.epoch == here.epoch);
        let held = consensus
            .claim_entry(id)
            .is_some_and(|entry| entry.token == *token && entry.renewed == *at && entry.state == ClaimState::Held);
        let of = self.claims.broker.returns.grants.by_partition.get_mut(&partition);
        let Some(said) = of.and_then(|of| of.grants.get_mut(&(*id, *token, *at))) else { return false };
        if !leads || held || *at > here {
            said.gone = None;
            return false;
        }
        let seen = *said.gone.get_or_insert(here);
        if seen.epoch != here.epoch {
            said.gone = Some(here);
            return false;
        }
        consensus.commit >= seen.length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARTITION: PartitionId = PartitionId(3);
    const LEADERSHIP: (Epoch, NodeId) = (5, NodeId(1));

    fn grant(number: u64) -> Grant {
        (TaskId::MIN, Token { epoch: 1, number }, Viewstamp { epoch: 1, length: number })
    }

    fn say(back: &mut GoingBack, leadership: (Epoch, NodeId), now_ms: u64) -> usize {
        let due = back.due(PARTITION, leadership, now_ms * 1_000, usize::MAX);
        due.iter().for_each(|grant| back.note_said(PARTITION, grant, now_ms * 1_000));
        let of: usize = back.by_partition.values().map(|of| of.grants.len() + of.due.len()).sum();
        assert_eq!(of, 2 * back.len());
        due.len()
    }

    /// Goal: a grant that was never sent is dropped last.
    #[test]
    fn what_was_said_most_often_goes_first() {
        let mut back = GoingBack::default();
        (0..10).for_each(|number| back.add(PARTITION, grant(number), 0));
        assert_eq!(say(&mut back, LEADERSHIP, 1), 10);
        (10..20).for_each(|number| back.add(PartitionId(0), grant(number), 0));
        (20..GRANTS_MAX as u64 + 10).for_each(|number| back.add(PARTITION, grant(number), 0));
        assert_eq!(back.len(), GRANTS_MAX);
        let open =
            |back: &GoingBack, number| back.by_partition.values().any(|of| of.grants.contains_key(&grant(number)));
        assert!((0..10).all(|number| !open(&back, number)) && (10..20).all(|number| open(&back, number)));
        assert_eq!(say(&mut back, LEADERSHIP, 1), GRANTS_MAX - 10);
    }

    /// Goal: a new leader gets the grants at once, and each is sent for a bounded time.
    #[test]
    fn pauses_grow_until_another_leads() {
        let mut back = GoingBack::default();
        back.add(PARTITION, grant(1), 0);
        let said: Vec<u64> = (0..10_000).filter(|at_ms| say(&mut back, LEADERSHIP, *at_ms) > 0).collect();
        assert_eq!(said, [0, 250, 750, 1_750, 3_750, 7_750]);
        assert_eq!(say(&mut back, LEADERSHIP, 10_001), 0);
        let again: Vec<u64> = (10_002..11_000).filter(|at_ms| say(&mut back, (6, NodeId(1)), *at_ms) > 0).collect();
        assert_eq!(again, [10_002, 10_252, 10_752]);
        assert_eq!((say(&mut back, (6, NodeId(1)), 300_000), back.len(), back.by_partition.len()), (1, 0, 0));
    }
}
