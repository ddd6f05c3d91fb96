//! Changes of the root. They carry values, never computations, so that every replica applies them alike.

use super::{Layout, Member, Metadata, Settings, State, members};
use crate::limits::{MEMBERS_MAX, NODES_MAX, REPLICAS_MAX};
use norn_wire::membership::QueuePolicy;
use norn_wire::{PartitionId, QueueName};
use serde::{Deserialize, Serialize};

/// A change of the root, decided by its leader.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Operation {
    /// Adds a member, joining, under the next number.
    #[serde(rename = "A")]
    Add { number: u16, member: Member },
    /// Drains a member: it hands over what it holds.
    #[serde(rename = "D")]
    Drain { number: u16 },
    /// Ends the draining of a leaving member.
    #[serde(rename = "U")]
    Undrain { number: u16 },
    /// Marks a member as gone.
    #[serde(rename = "R")]
    Remove { number: u16 },
    /// Adds a member, joining; `old` becomes leaving or gone, as `state` says, in the same layout.
    #[serde(rename = "P")]
    Replace { old: u16, state: State, number: u16, member: Member },
    /// Forgets a gone member whose number nothing names any more. Its identity stays known.
    #[serde(rename = "F")]
    Forget { number: u16 },
    /// Sets the number of replicas of each partition.
    #[serde(rename = "N")]
    SetReplicas { replicas: u32 },
    /// Sets a member's weight.
    #[serde(rename = "W")]
    SetWeight { number: u16, weight: u32 },
    /// Sets a member's failure domain.
    #[serde(rename = "Z")]
    SetZone { number: u16, zone: String },
    /// Sets a member's address.
    #[serde(rename = "H")]
    SetAddress { number: u16, address: String },
    /// Sets the settings of the cluster.
    #[serde(rename = "S")]
    SetSettings(Settings),
    /// Sets the policy of a queue.
    #[serde(rename = "Q")]
    SetPolicy { queue: QueueName, policy: Box<QueuePolicy> },
    /// Takes a layout, as planned.
    #[serde(rename = "L")]
    Layout(Layout),
    /// Sets one list of the layout, as an operator wants it.
    #[serde(rename = "M")]
    Arrange { partition: PartitionId, list: Vec<u16> },
    /// Requests that a layout be planned.
    #[serde(rename = "B")]
    Rebalance,
}

/// Error: an operation does not fit the root, which stays as it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the operation does not fit: {0}")]
pub struct Misfit(pub String);

impl Operation {
    /// Whether the operation changes what a layout is planned from.
    fn outdates_layout(&self) -> bool {
        match self {
            Operation::Add { .. }
            | Operation::Drain { .. }
            | Operation::Undrain { .. }
            | Operation::Remove { .. }
            | Operation::Replace { .. }
            | Operation::SetReplicas { .. }
            | Operation::SetWeight { .. }
            | Operation::SetZone { .. }
            | Operation::Rebalance => true,
            Operation::Forget { .. }
            | Operation::SetAddress { .. }
            | Operation::SetSettings(_)
            | Operation::SetPolicy { .. }
            | Operation::Layout(_)
            | Operation::Arrange { .. } => false,
        }
    }
}

fn fit(fits: bool, what: &str) -> Result<(), Misfit> {
    if fits { Ok(()) } else { Err(Misfit(what.to_owned())) }
}

impl Metadata {
    /// Applies an operation, or leaves the root as it is; every replica does the same.
    pub fn apply(&mut self, operation: &Operation) -> Result<(), Misfit> {
        match operation {
            Operation::Add { number, member } => {
                self.check_newcomer(*number, member, None)?;
                self.insert(*number, member);
            }
            Operation::Drain { number } => {
                fit(self.state_of(*number).is_some_and(State::may_hold), "it is no member that can be drained")?;
                fit(self.holders().count() > 1, "no member is left to hold anything")?;
                self.set_state(*number, State::Leaving);
                assert!(self.holders().next().is_some(), "no member is left to hold anything");
            }
            Operation::Undrain { number } => {
                fit(self.state_of(*number) == Some(State::Leaving), "the member is not leaving")?;
                self.set_state(*number, State::Joining);
            }
            Operation::Remove { number } => {
                fit(self.state_of(*number).is_some_and(State::is_present), "it is no member")?;
                fit(self.holders().any(|(other, _)| other != *number), "no member is left to hold anything")?;
                self.set_state(*number, State::Gone);
                assert!(self.holders().next().is_some(), "no member is left to hold anything");
            }
            Operation::Replace { old, state, number, member } => {
                fit(self.state_of(*old).is_some_and(State::is_present), "who is replaced is no member")?;
                fit(!state.may_hold(), "who is replaced would stay")?;
                self.check_newcomer(*number, member, (*state == State::Gone).then_some(*old))?;
                self.set_state(*old, *state);
                self.insert(*number, member);
            }
            Operation::Forget { number } => {
                fit(self.state_of(*number) == Some(State::Gone), "the member is not gone")?;
                fit(!self.layout.lists.iter().any(|list| list.contains(number)), "the layout names the member")?;
                let forgotten = self.members.remove(number).map(|member| member.node);
                assert!(forgotten.is_some(), "a member is forgotten that there is not");
                self.retired.extend(forgotten);
            }
            Operation::SetReplicas { replicas } => {
                fit((1..=REPLICAS_MAX).contains(replicas), "this number of replicas is not possible")?;
                self.replicas = *replicas;
            }
            Operation::SetWeight { number, weight } => self.change(*number, |member| member.weight = *weight)?,
            Operation::SetZone { number, zone } => self.change(*number, |member| member.zone.clone_from(zone))?,
            Operation::SetAddress { number, address } => {
                let is_free = !self.present().any(|(other, member)| other != *number && member.address == *address);
                fit(is_free, "another member has this address")?;
                self.change(*number, |member| member.address.clone_from(address))?;
            }
            Operation::SetSettings(settings) => {
                super::settings::check(settings).map_err(|reason| Misfit(reason.to_string()))?;
                self.settings = *settings;
            }
            Operation::SetPolicy { queue, policy } => {
                let mut policies = self.policies.clone();
                match **policy == QueuePolicy::default() {
                    true => policies.remove(queue),
                    false => policies.insert(queue.clone(), (**policy).clone()),
                };
                super::settings::check_policies(&policies).map_err(|reason| Misfit(reason.to_string()))?;
                self.policies = policies;
            }
            Operation::Layout(layout) => self.take_layout(layout)?,
            Operation::Arrange { partition, list } => self.arrange(*partition, list)?,
            Operation::Rebalance => {}
        }
        self.stale = operation.outdates_layout() || self.stale && !matches!(operation, Operation::Layout(_));
        self.version += 1;
        Ok(())
    }

    /// Checks that a member may be added under this number, if the member `except` is not counted any more.
    fn check_newcomer(&self, number: u16, member: &Member, except: Option<u16>) -> Result<(), Misfit> {
        fit(number == self.next_number && number < u16::MAX, "the number is not the next one")?;
        fit(member.state == State::Joining, "who is new is joining")?;
        members::validate(member).map_err(|reason| Misfit(reason.to_string()))?;
        let known = self.members.values().any(|other| other.node == member.node) || self.retired.contains(&member.node);
        fit(!known, "the identity is known")?;
        let others = || self.present().filter(|(number, _)| Some(*number) != except).map(|(_, other)| other);
        let taken = others().any(|other| other.name == member.name || other.address == member.address);
        fit(!taken, "the name or the address is taken")?;
        fit(others().count() < NODES_MAX && self.members.len() < MEMBERS_MAX, "there are too many members")
    }

    fn insert(&mut self, number: u16, member: &Member) {
        assert_eq!(number, self.next_number, "the number of a member is skipped");
        let before = self.members.insert(number, member.clone());
        assert!(before.is_none(), "numbers are never given twice");
        self.next_number = number + 1;
    }

    fn set_state(&mut self, number: u16, state: State) {
        self.members.get_mut(&number).expect("the caller has seen it").state = state;
    }

    /// Changes a present member, unless the result would be invalid.
    fn change(&mut self, number: u16, change: impl FnOnce(&mut Member)) -> Result<(), Misfit> {
        let mut member = self.members.get(&number).filter(|member| member.state.is_present()).cloned();
        let member = member.as_mut().ok_or_else(|| Misfit("it is no member".into()))?;
        change(member);
        members::validate(member).map_err(|reason| Misfit(reason.to_string()))?;
        self.members.insert(number, member.clone());
        Ok(())
    }

    /// Sets one list and advances the version of the layout.
    fn arrange(&mut self, partition: PartitionId, list: &[u16]) -> Result<(), Misfit> {
        let mut lists = self.layout.lists.clone();
        *lists.get_mut(usize::from(partition.0)).ok_or_else(|| Misfit("there is no such partition".into()))? =
            list.to_vec();
        self.check_lists(&lists).map_err(Misfit)?;
        let may_hold = |number: &u16| self.state_of(*number).is_some_and(State::may_hold);
        fit(list.iter().all(may_hold), "a member of the list takes no replicas")?;
        self.layout = Layout { version: self.layout.version + 1, lists };
        Ok(())
    }

    /// Takes the next layout. Joining members were part of its plan, and become up.
    fn take_layout(&mut self, layout: &Layout) -> Result<(), Misfit> {
        fit(self.layout.version.checked_add(1) == Some(layout.version), "the layout is not the next one")?;
        self.check_lists(&layout.lists).map_err(Misfit)?;
        let is_present = |number: &u16| self.state_of(*number).is_some_and(State::is_present);
        fit(layout.lists.iter().flatten().all(is_present), "the layout names a member that is gone")?;
        self.layout = layout.clone();
        assert_eq!(self.layout.lists.len(), self.partitions as usize, "not every partition has a list");
        for member in self.members.values_mut().filter(|member| member.state == State::Joining) {
            member.state = State::Up;
        }
        Ok(())
    }
}
