//! The cohort of the model: the protocol's own, changed by its own steps, with the mistakes that a leader could make.

use super::Flaw;
use super::state::{Id, Op, real};
use norn_model::cohort::{Change, Cohort as Real};
use norn_model::viewstamp::{ReplicaId, Viewstamp};
use norn_wire::NodeId;

/// Cohort of the model, and the flaw in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cohort {
    real: Real,
    flaw: Option<Flaw>,
}

/// The place of a step in a table. A change to a joint cohort takes two steps of the protocol.
fn at(index: usize) -> Viewstamp {
    Viewstamp { epoch: 1, length: 2 * index as u64 + 1 }
}

fn id(node: NodeId) -> Id {
    ((node.0 >> 8) as u8, node.0 as u8)
}

fn founded(members: &[Id]) -> Real {
    let members: Vec<ReplicaId> = members.iter().copied().map(real).collect();
    Real::founded(&members)
}

/// The cohort in which both sides count: learners are admitted, and join at once.
fn joint(cohort: &Real, next: &[Id], index: usize) -> Result<Real, &'static str> {
    let members = cohort.members.iter().map(|slot| slot.replica).collect();
    let admit = Change::Admit { members, next: next.iter().copied().map(real).collect() };
    let Viewstamp { epoch, length } = at(index);
    cohort.changed(&admit, at(index))?.changed(&Change::Join, Viewstamp { epoch, length: length + 1 })
}

impl Cohort {
    /// Cohort that a table leads to.
    pub fn of(genesis: &[Id], table: &[Op], flaw: Option<Flaw>) -> Cohort {
        let mut real = founded(genesis);
        for (index, op) in table.iter().enumerate() {
            let after = match op {
                Op::Claims(..) => continue,
                Op::Joint(members) => joint(&real, members, index),
                Op::Stable => real.changed(&Change::Settle { at_ms: 0 }, at(index)),
                Op::Revert => real.changed(&Change::Revert { at_ms: 0 }, at(index)),
                Op::Switch(members) => Ok(founded(members)),
            };
            real = after.expect("a leader appends what the protocol allows");
        }
        Cohort { real, flaw }
    }

    /// Whether a replica may vote and lead.
    pub fn has(&self, id: Id) -> bool {
        self.real.has_voter(real(id).node)
    }

    /// Whether the cohort is joint.
    pub fn is_joint(&self) -> bool {
        self.real.is_joint()
    }

    /// Whether a change to these members may begin.
    pub fn may_become(&self, members: &[Id]) -> bool {
        joint(&self.real, members, usize::MAX / 4).is_ok()
    }

    /// Whether the replicas that are present are a quorum.
    pub fn quorum(&self, present: impl Fn(Id) -> bool) -> bool {
        let there = |node: NodeId| present(id(node));
        match self.flaw {
            Some(Flaw::JointNewSideOnly) if self.is_joint() => self.real.next_quorum(there),
            Some(Flaw::HalfCounts) => {
                2 * self.real.members().filter(|node| there(*node)).count() >= self.real.members.len()
            }
            _ => self.real.quorum(there),
        }
    }
}
