//! Machines that are lost for good, and what an operator does about it: a new machine takes over the address, with an empty disk and
//! thus as another node; and the old member is replaced by it, or removed before the new one is added.
//!
//! A machine is lost only where the others can do without it: every partition has a quorum of others, no disk has anything to heal,
//! and no other loss is open. Some machines come back long after, with their old disk. No node waits for those: they are still
//! members, or draining replicas, or have been forgotten, and must do no harm. In the end they are gone.

use crate::changes::candidate;
use crate::damage::replay;
use crate::disk::SimDisk;
use crate::history::Happening;
use crate::world::{Event, World};
use norn_model::config::Mutant;
use norn_wire::membership::ClusterChange;
use norn_wire::response::Identity;
use norn_wire::{NodeId, PartitionId};

/// Members that each cohort, the root's as well, must have so that it can do without one.
const REPLICAS_MIN: usize = 3;

/// One lost machine.
#[derive(Debug)]
struct Loss {
    /// Number of its node.
    old: usize,
    /// Number of the node that takes over its address.
    fresh: usize,
    /// It was started again, on its old disk.
    is_back: bool,
    /// It is removed before the new one is added.
    removes: bool,
    /// The operator has begun to replace it.
    begun: bool,
    /// No cohort has it any more, and what was promised has enough copies again.
    healed: bool,
}

#[derive(Debug, Default)]
pub struct Losses {
    losses: Vec<Loss>,
    /// Numbers of machines that were never started.
    reserve: Vec<usize>,
}

impl Losses {
    /// Nothing is lost. The places from `nodes` on are for later machines.
    pub fn new(nodes: usize, places: usize) -> Losses {
        Losses { losses: Vec::new(), reserve: (nodes..places).rev().collect() }
    }

    /// Whether nothing runs at this place.
    pub fn is_out(&self, place: usize) -> bool {
        self.reserve.contains(&place) || self.losses.iter().any(|loss| loss.old == place && !loss.is_back)
    }

    /// Whether a machine was lost, and what it held does not have enough copies again yet.
    pub fn is_open(&self) -> bool {
        self.losses.iter().any(|loss| !loss.healed)
    }

    /// Whether any machine was lost.
    pub fn is_any(&self) -> bool {
        !self.losses.is_empty()
    }

    /// Place of the machine that now has the address of the one at this place.
    pub fn heir(&self, place: usize) -> usize {
        self.losses
            .iter()
            .filter(|loss| loss.old == place)
            .map(|loss| loss.fresh)
            .next_back()
            .map_or(place, |fresh| self.heir(fresh))
    }

    /// Place whose address the machine at this place has.
    pub fn address(&self, place: usize) -> usize {
        self.losses.iter().find(|loss| loss.fresh == place).map_or(place, |loss| self.address(loss.old))
    }
}

impl World {
    /// Whether a node will never run again, or not yet.
    pub fn is_out(&self, node: usize) -> bool {
        self.copies.is_out(node) || self.losses.is_out(node)
    }

    /// Loses a machine for good, if the others can do without it.
    pub fn lose_machine(&mut self, node: usize) {
        self.heal_losses();
        let usual = self.options.replicas >= 3 && !self.options.unsynced_facts && self.operator.done();
        let spoiled = self.losses.is_open() || self.copies.is_spoiled() || !self.may_damage(node);
        if !usual || spoiled || self.is_out(node) || !self.operator.knows(node) || !self.is_missed_by_none(node) {
            return;
        }
        if self.options.mutant == Some(Mutant::SameIdentity) {
            return self.forget_all(node);
        }
        let Some(fresh) = self.losses.reserve.pop() else { return };
        let random = &mut self.randoms.losses;
        let (is_wiped, removes) = (!random.chance(self.options.return_percent, 100), random.chance(1, 3));
        let (soon_us, long_us) = (random.between(10_000, 5_000_000), random.between(1_000_000, 30_000_000));
        self.line(format_args!("n{node} is lost, n{fresh} comes in its place; wiped {is_wiped}, removed {removes}"));
        self.count("fault: machine lost");
        self.stop_node(node, true);
        self.damaged = None;
        self.tell(Happening::Gone { node });
        let (is_back, begun, healed) = (false, false, false);
        self.losses.losses.push(Loss { old: node, fresh, is_back, removes, begun, healed });
        self.schedule_in(soon_us, Event::Start { node: fresh });
        self.schedule_in(soon_us + 10_000, Event::Operate { node: fresh });
        if !is_wiped {
            self.schedule_in(long_us, Event::Return { node });
        }
    }

    /// The planted bug: the machine comes back with nothing, under its old identity.
    fn forget_all(&mut self, node: usize) {
        self.stop_node(node, true);
        let lost = replay(&self.nodes[node].disk).unwrap_or_default();
        self.tell(Happening::Damaged { node, lost: &lost, left: &[] });
        self.nodes[node].disk = SimDisk::default();
        self.operator.found_again(node);
        self.damaged = Some(node);
        self.schedule_in(10_000, Event::Start { node });
        self.schedule_in(20_000, Event::Operate { node });
    }

    /// Whether every partition has a quorum without a node.
    fn is_missed_by_none(&self, node: usize) -> bool {
        let there = |place: usize| place != node && !self.is_out(place);
        self.partitions().all(|partition| self.history.has_quorum(partition, there))
    }

    fn partitions(&self) -> impl Iterator<Item = PartitionId> + use<> {
        (0..self.options.partitions as u16).map(PartitionId).chain([PartitionId::METADATA])
    }

    /// Starts a lost machine again, on its old disk.
    pub fn return_node(&mut self, node: usize) {
        if self.healed() {
            return;
        }
        if let Some(loss) = self.losses.losses.iter_mut().find(|loss| loss.old == node) {
            loss.is_back = true;
            let healed = loss.healed;
            self.line(format_args!("n{node} is back; replaced {healed}"));
            self.count(if healed { "sometimes: removed node is back" } else { "sometimes: lost node is back" });
            self.start_node(node);
        }
    }

    /// Ends all lost machines that came back.
    pub fn end_returns(&mut self) {
        let was_back = |loss: &mut Loss| std::mem::take(&mut loss.is_back).then_some(loss.old);
        let back: Vec<usize> = self.losses.losses.iter_mut().filter_map(was_back).collect();
        for node in back {
            self.stop_node(node, true);
            self.tell(Happening::Gone { node });
        }
    }

    /// Notes which losses have healed.
    pub fn heal_losses(&mut self) {
        let wanted = |node: usize| {
            let of = self.nodes[node].identity.map(|identity| identity.node);
            self.operator.wanted.iter().any(|change| names(change) == of)
        };
        // Until cohorts have a member in its place everywhere, another loss may be one too many.
        let as_many = || self.partitions().all(|partition| self.history.members(partition) >= REPLICAS_MIN);
        let is_over = |loss: &Loss| {
            let held = self.partitions().any(|partition| self.history.may_hold(partition, loss.old));
            loss.begun && !held && !wanted(loss.old) && !wanted(loss.fresh) && as_many()
        };
        let whole = |node: usize| self.is_out(node) || self.nodes[node].running.is_some() && self.is_whole(node);
        let over: Vec<bool> = self.losses.losses.iter().map(is_over).collect();
        let all = over.contains(&true)
            && (0..self.nodes.len()).all(|node| self.losses.losses.iter().any(|loss| loss.old == node) || whole(node));
        for (loss, over) in self.losses.losses.iter_mut().zip(over) {
            loss.healed |= over && all;
        }
    }

    /// Takes in a node's identity: if it comes in the place of a lost machine, the operator makes it a member.
    pub fn replace_lost(&mut self, fresh: usize, identity: &Identity) {
        let Some(loss) = self.losses.losses.iter_mut().find(|loss| loss.fresh == fresh && !loss.begun) else { return };
        loss.begun = true;
        let (old, removes) = (loss.old, loss.removes);
        let node = self.nodes[old].identity.expect("it was a member").node;
        let with = candidate(identity.clone());
        self.want(if removes { ClusterChange::Remove { node } } else { ClusterChange::Replace { node, with } });
    }

    /// Goes on with a replacement, after the answer that a removal or a replacement is done, or cannot be.
    pub fn go_on_replacing(&mut self, change: &ClusterChange, done: bool) {
        let (ClusterChange::Remove { node } | ClusterChange::Replace { node, .. }) = change else { return };
        let Some(loss) = self.place_of(*node).and_then(|old| self.losses.losses.iter().find(|loss| loss.old == old))
        else {
            return;
        };
        let Some(identity) = self.operator.told[loss.fresh].clone() else { return };
        let with = candidate(identity);
        // The other way is tried in the end, as the first may be half done: the outcome of a call may be unknown.
        let other = !done && self.randoms.losses.chance(1, 6);
        match change {
            ClusterChange::Remove { .. } if done => self.want(ClusterChange::Add { with }),
            ClusterChange::Remove { .. } if other => {
                self.operator.wanted.retain(|wanted| wanted != change);
                self.want(ClusterChange::Replace { node: *node, with });
            }
            ClusterChange::Replace { .. } if other => self.want(ClusterChange::Add { with }),
            _ => {}
        }
    }
}

/// Node that a change brings in, or takes out.
fn names(change: &ClusterChange) -> Option<NodeId> {
    match change {
        ClusterChange::Add { with } => Some(with.node),
        ClusterChange::Remove { node } | ClusterChange::Replace { node, .. } => Some(*node),
        _ => None,
    }
}
