//! Measures of a node for monitoring. They are made in pieces, as a node may hold many queues in many partitions.

use crate::Node;
use crate::context::tally::QueueTally;
use norn_model::limits::READY_LOOKS_MAX;
use norn_model::replica::Partition;
use norn_model::replica::index::QueueIndex;
use norn_wire::response::Standing;
use norn_wire::{PartitionId, QueueName, State};
use std::collections::BTreeMap;
use std::ops::Bound;

/// Tasks of a queue in the partitions that a node leads, and what has happened to them there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueMeasures {
    /// Claimable tasks.
    pub ready: u64,
    /// Held tasks.
    pub claimed: u64,
    /// Tasks that wait for a time.
    pub delayed: u64,
    /// Tasks that wait for other tasks.
    pub blocked: u64,
    /// Tasks that were given up.
    pub dead: u64,
    /// Since when the claimable task waits that waits for longest, in milliseconds of the wall clock.
    pub ready_since_ms: Option<u64>,
    /// Counts.
    pub tally: QueueTally,
}

impl QueueMeasures {
    fn add(&mut self, queue: &QueueName, index: &QueueIndex, replica: &Partition) {
        let of = |state: State| index.counts[state as usize];
        self.ready += of(State::Ready);
        self.claimed += of(State::Claimed);
        self.delayed += index.delayed;
        self.blocked += of(State::Waiting).saturating_sub(index.delayed);
        self.dead += of(State::Dead);
        let since_ms = replica.ready_since_ms(queue, READY_LOOKS_MAX);
        self.ready_since_ms = self.ready_since_ms.into_iter().chain(since_ms).min();
    }
}

/// What a node measures.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Measures {
    /// Queues with measures of their own.
    pub queues: BTreeMap<QueueName, QueueMeasures>,
    /// All other queues together.
    pub others: QueueMeasures,
    /// Partitions that the node holds.
    pub held: u32,
    /// Partitions that it leads.
    pub led: u32,
    /// Partitions that it holds and for which it knows no leader.
    pub without_leader: u32,
    /// Members of the cluster.
    pub members: u32,
    /// Those that it takes for alive, itself included.
    pub members_alive: u32,
    /// Whether its clock is so wrong that it leads nothing.
    pub clock_fenced: bool,
    /// For each other member whose clock was measured lately: its name, how far it is ahead, and the error of that, in microseconds.
    pub clocks: Vec<(String, i64, u64)>,
    /// Counters, and gauges of its state, by name.
    pub counters: Vec<(String, u64)>,
    /// Wall clock of the node, in milliseconds.
    pub now_ms: u64,
    /// The last partition, and queue of it, that is in.
    reached: Option<(PartitionId, Option<QueueName>)>,
}

impl Node {
    /// Adds the next queues of led partitions to the measures, `queues_max` at most. Returns true once they are complete.
    pub fn measure(&mut self, measures: &mut Measures, queues_max: usize) -> bool {
        let Node { partitions, led, outbox, .. } = self;
        let tally = outbox.tally_mut();
        let mut left = queues_max;
        let (mut partition, mut after) = match measures.reached.take() {
            Some((partition, after)) => (led.range(partition..).next().copied(), Some((partition, after))),
            None => (led.first().copied(), None),
        };
        while let Some(id) = partition {
            // If the node has stopped leading the partition, the next one begins at its first queue.
            let from = after.take().filter(|(of, _)| *of == id).and_then(|(_, queue)| queue);
            let replica = partitions.get(&id).filter(|replica| replica.consensus.established());
            for (queue, index) in replica.iter().flat_map(|replica| replica.store.index().queues_after(from.as_ref())) {
                if left == 0 {
                    return false;
                }
                left -= 1;
                let line = match tally.has(queue) {
                    true => measures.queues.entry(queue.clone()).or_default(),
                    false => &mut measures.others,
                };
                replica.into_iter().for_each(|replica| line.add(queue, index, replica));
                measures.reached = Some((id, Some(queue.clone())));
            }
            partition = led.range((Bound::Excluded(id), Bound::Unbounded)).next().copied();
            left = left.saturating_sub(1);
            measures.reached = partition.map(|next| (next, None));
            if left == 0 && partition.is_some() {
                return false;
            }
        }
        measures.reached = None;
        for (queue, counts) in tally.queues() {
            measures.queues.entry(queue.clone()).or_default().tally = *counts;
        }
        measures.others.tally = *tally.others();
        self.measure_standing(measures);
        true
    }

    /// Fills in what is no matter of queues.
    fn measure_standing(&self, measures: &mut Measures) {
        let tasks = self.partitions.iter().filter(|(id, replica)| {
            **id != PartitionId::METADATA && replica.cohort().has(self.me) && !replica.is_blank()
        });
        for (id, _) in tasks {
            measures.held += 1;
            measures.without_leader += u32::from(self.leader_of(*id).is_none());
        }
        let leads = |id: &&PartitionId| **id != PartitionId::METADATA && self.partitions[*id].consensus.established();
        measures.led = self.led.iter().filter(leads).count() as u32;
        measures.members = self.members().count() as u32;
        measures.members_alive = self.members().filter(|(_, member)| self.is_alive(member.node)).count() as u32;
        measures.clock_fenced = self.membership.clocks().standing() == Standing::Fenced;
        let clock = |name: &String, node| {
            let (offset_us, error_us) = self.membership.clocks().offset_us(node, self.now, &self.config)?;
            Some((name.clone(), offset_us, error_us))
        };
        let others = self.members().filter(|(_, member)| member.node != self.me);
        measures.clocks = others.filter_map(|(_, member)| clock(&member.name, member.node)).collect();
        measures.counters = self.counters();
        measures.now_ms = self.now.wall_ms;
    }
}
