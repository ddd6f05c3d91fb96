//! Requests of operators to the metadata group, and the checks that admit them.

use super::members::{self, check_address, check_weight, check_zone};
use super::settings::check_policy;
use super::{Candidate, Member, Metadata, Operation, Reason, Refusal, Seen, Settings, State};
use crate::limits::{MEMBERS_MAX, NODES_MAX, POLICIES_MAX, REPLICAS_MAX};
use norn_wire::membership::QueueSetting;
use norn_wire::{PartitionId, QueueName, SESSIONS_QUEUE};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A request of an operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Request {
    /// A node becomes a member.
    Add(Candidate),
    /// A member hands over all that it holds.
    Drain { number: u16 },
    /// A leaving member stays.
    Undrain { number: u16 },
    /// Removes a member that is dead, or drained.
    Remove { number: u16 },
    /// A node takes the place of a member in one layout.
    Replace { number: u16, with: Candidate },
    /// Sets the number of replicas of each partition.
    SetReplicas { replicas: u32 },
    /// Sets a member's weight.
    SetWeight { number: u16, weight: u32 },
    /// Sets a member's failure domain.
    SetZone { number: u16, zone: String },
    /// Sets a member's address.
    SetAddress { number: u16, address: String },
    /// Changes the settings.
    SetSettings(Settings),
    /// Changes a setting of a queue.
    SetQueue { queue: QueueName, setting: QueueSetting },
    /// Assigns a partition to these members, the preferred leader first.
    Arrange { partition: PartitionId, list: Vec<u16> },
    /// Plans the layout anew.
    Rebalance,
}

/// Result of a request that is allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// An operation to append and commit before the answer.
    Change(Operation),
    /// Nothing to change, as after a repeated request. Names the member concerned, if any.
    Already(Option<u16>),
}

type Verdict = Result<Admission, Reason>;

impl Metadata {
    /// Checks whether a request is allowed now, and returns the operation that carries it out. A refusal names all reasons against it.
    pub fn admit(&self, request: &Request, seen: &Seen) -> Result<Admission, Refusal> {
        let verdict = match request {
            Request::Add(candidate) => return self.admit_add(candidate, seen),
            Request::Replace { number, with } => return self.admit_replace(*number, with, seen),
            Request::Remove { number } => return self.admit_remove(*number, seen),
            Request::Drain { number } => self.admit_drain(*number),
            Request::Undrain { number } => self.admit_undrain(*number),
            Request::SetReplicas { replicas } => self.admit_replicas(*replicas),
            Request::SetWeight { number, weight } => self.admit_weight(*number, *weight),
            Request::SetZone { number, zone } => self.admit_zone(*number, zone),
            Request::SetAddress { number, address } => self.admit_address(*number, address),
            Request::SetSettings(settings) => self.admit_settings(*settings),
            Request::SetQueue { queue, setting } => self.admit_queue(queue, setting.clone()),
            Request::Arrange { partition, list } => self.admit_arrange(*partition, list),
            Request::Rebalance => Ok(match self.stale {
                true => Admission::Already(None),
                false => Admission::Change(Operation::Rebalance),
            }),
        };
        verdict.map_err(|reason| Refusal(vec![reason]))
    }

    fn present_member(&self, number: u16) -> Result<&Member, Reason> {
        let member = self.members.get(&number).ok_or(Reason::Unknown { number })?;
        if member.state.is_present() {
            return Ok(member);
        }
        Err(Reason::Gone { number, name: member.name.clone() })
    }

    /// The member that a candidate already is. An error if its identity is used otherwise.
    fn identify(&self, candidate: &Candidate, seen: &Seen) -> Result<Option<u16>, Reason> {
        let Some((number, member)) = self.members.iter().find(|(_, member)| member.node == candidate.node) else {
            let node = candidate.node;
            return if self.retired.contains(&node) { Err(Reason::WasMember { node }) } else { Ok(None) };
        };
        let (number, address) = (*number, member.address.clone());
        if member.state == State::Gone {
            return Err(Reason::WasMember { node: member.node });
        }
        if (member.incarnation, &member.name) != (candidate.incarnation, &candidate.name) {
            return Err(Reason::IdentityTaken { number, name: member.name.clone() });
        }
        if address == candidate.address {
            return Ok(Some(number));
        }
        let is_alive = seen.heard.contains(&number);
        Err(if is_alive { Reason::Cloned { number, address } } else { Reason::Moved { number, address } })
    }

    /// Reasons against a new member, apart from its identity, if the member `except` is not counted any more.
    fn obstacles(&self, candidate: &Candidate, except: Option<u16>) -> Vec<Reason> {
        let mut reasons = members::flaws(candidate);
        if let Some(theirs) = candidate.cluster.filter(|theirs| *theirs != self.cluster) {
            reasons.push(Reason::OtherCluster { theirs });
        }
        for (number, member) in self.present().filter(|(number, _)| Some(*number) != except) {
            if member.name == candidate.name {
                reasons.push(Reason::NameTaken { name: member.name.clone(), number });
            }
            if member.address == candidate.address {
                reasons.push(Reason::AddressTaken { address: member.address.clone(), number });
            }
        }
        let present = self.present().filter(|(number, _)| Some(*number) != except).count();
        if present >= NODES_MAX || self.members.len() >= MEMBERS_MAX {
            reasons.push(Reason::Full { present, gone: self.members.len() - self.present().count() });
        }
        if self.next_number == u16::MAX {
            reasons.push(Reason::NumbersUsedUp);
        }
        reasons
    }

    fn admit_add(&self, candidate: &Candidate, seen: &Seen) -> Result<Admission, Refusal> {
        match self.identify(candidate, seen) {
            Ok(Some(number)) => return Ok(Admission::Already(Some(number))),
            Ok(None) => {}
            Err(reason) => return Err(Refusal(vec![reason])),
        }
        let reasons = self.obstacles(candidate, None);
        if !reasons.is_empty() {
            return Err(Refusal(reasons));
        }
        Ok(Admission::Change(Operation::Add { number: self.next_number, member: members::joining(candidate) }))
    }

    fn admit_drain(&self, number: u16) -> Verdict {
        if self.present_member(number)?.state == State::Leaving {
            return Ok(Admission::Already(Some(number)));
        }
        self.check_left(number)?;
        Ok(Admission::Change(Operation::Drain { number }))
    }

    fn admit_undrain(&self, number: u16) -> Verdict {
        match self.present_member(number)?.state {
            State::Leaving => Ok(Admission::Change(Operation::Undrain { number })),
            _ => Ok(Admission::Already(Some(number))),
        }
    }

    /// Checks that the other members are enough for every replica.
    fn check_left(&self, number: u16) -> Result<(), Reason> {
        let left = self.holders().filter(|(other, _)| *other != number).count();
        let is_holder = self.state_of(number).is_some_and(State::may_hold);
        if is_holder && left < self.replicas as usize {
            return Err(Reason::TooFew { number, left, replicas: self.replicas });
        }
        Ok(())
    }

    fn admit_remove(&self, number: u16, seen: &Seen) -> Result<Admission, Refusal> {
        match self.state_of(number) {
            None if number < self.next_number => return Ok(Admission::Already(Some(number))),
            None => return Err(Refusal(vec![Reason::Unknown { number }])),
            Some(State::Gone) => return Ok(Admission::Already(Some(number))),
            Some(_) => {}
        }
        let reasons = self.against_removal(number, seen);
        if !reasons.is_empty() {
            return Err(Refusal(reasons));
        }
        Ok(Admission::Change(Operation::Remove { number }))
    }

    /// Reasons against removing a member that is present. A live one must be drained first; a dead one leaves lists to be healed, for
    /// which enough others must be there.
    pub(super) fn against_removal(&self, number: u16, seen: &Seen) -> Vec<Reason> {
        let mut reasons: Vec<Reason> = self.check_left(number).err().into_iter().collect();
        if seen.voters.contains(&number)
            && !seen.voters.iter().any(|other| *other != number && seen.heard.contains(other))
        {
            reasons.push(Reason::LastVoter { number });
        }
        if !seen.heard.contains(&number) {
            reasons.extend(self.against_loss(number, seen));
            return reasons;
        }
        let partitions = self.held_by(number, seen);
        let unknown = self.partitions as usize - seen.cohorts.len().min(self.partitions as usize);
        if partitions > 0 {
            reasons.push(Reason::StillHolds { number, partitions });
        } else if self.state_of(number) != Some(State::Leaving) {
            reasons.push(Reason::Alive { number });
        } else if unknown > 0 {
            reasons.push(Reason::MayHold { number, partitions: unknown });
        }
        if seen.voters.contains(&number) && !reasons.contains(&Reason::LastVoter { number }) {
            reasons.push(Reason::Votes { number });
        }
        reasons
    }

    /// The reason, if this loss would make the unhealed losses a majority of the members.
    fn against_loss(&self, number: u16, seen: &Seen) -> Option<Reason> {
        let gone = self.unhealed(seen).count();
        let members = self.present().count() + gone;
        (2 * (gone + 1) > members).then_some(Reason::Majority { number, gone, members })
    }

    fn admit_replace(&self, number: u16, with: &Candidate, seen: &Seen) -> Result<Admission, Refusal> {
        let one = |reason| Refusal(vec![reason]);
        match self.identify(with, seen).map_err(one)? {
            Some(own) if own == number => return Err(one(Reason::IdentityTaken { number, name: with.name.clone() })),
            // The request is repeated, or the node was added before: only the departure of the other member is left.
            Some(own) => match self.state_of(number) {
                None if number >= self.next_number => return Err(one(Reason::Unknown { number })),
                None | Some(State::Gone | State::Leaving) => return Ok(Admission::Already(Some(own))),
                Some(_) if seen.heard.contains(&number) => return self.admit_drain(number).map_err(one),
                Some(_) => return self.admit_remove(number, seen),
            },
            None => {}
        }
        self.present_member(number).map_err(one)?;
        let is_alive = seen.heard.contains(&number);
        let mut reasons = self.obstacles(with, (!is_alive).then_some(number));
        if !is_alive {
            reasons.extend(self.against_loss(number, seen));
        }
        if !reasons.is_empty() {
            return Err(Refusal(reasons));
        }
        let state = if is_alive { State::Leaving } else { State::Gone };
        let change =
            Operation::Replace { old: number, state, number: self.next_number, member: members::joining(with) };
        Ok(Admission::Change(change))
    }

    fn admit_queue(&self, queue: &QueueName, setting: QueueSetting) -> Verdict {
        let before = self.policies.get(queue).cloned().unwrap_or_default();
        let policy = before.clone().with(setting);
        check_policy(&policy)?;
        if policy.dead_letter.as_ref() == Some(queue) {
            return Err(Reason::OwnLetters);
        }
        if let Some(letters) = policy.dead_letter.as_ref().filter(|_| policy.dead_letter != before.dead_letter) {
            if letters.as_str() == SESSIONS_QUEUE {
                return Err(Reason::SessionLetters);
            }
            if queue.as_str() == SESSIONS_QUEUE {
                return Err(Reason::LettersOfSessions);
            }
        }
        if policy == before {
            return Ok(Admission::Already(None));
        }
        if !self.policies.contains_key(queue) && self.policies.len() >= POLICIES_MAX {
            return Err(Reason::Policies);
        }
        Ok(Admission::Change(Operation::SetPolicy { queue: queue.clone(), policy: Box::new(policy) }))
    }

    fn admit_replicas(&self, replicas: u32) -> Verdict {
        if !(1..=REPLICAS_MAX).contains(&replicas) {
            return Err(Reason::Replicas { replicas });
        }
        let members = self.holders().count();
        if replicas as usize > members && replicas > self.replicas {
            return Err(Reason::MoreThanMembers { replicas, members });
        }
        Ok(match replicas == self.replicas {
            true => Admission::Already(None),
            false => Admission::Change(Operation::SetReplicas { replicas }),
        })
    }

    fn admit_weight(&self, number: u16, weight: u32) -> Verdict {
        check_weight(weight)?;
        Ok(match self.present_member(number)?.weight == weight {
            true => Admission::Already(Some(number)),
            false => Admission::Change(Operation::SetWeight { number, weight }),
        })
    }

    fn admit_zone(&self, number: u16, zone: &str) -> Verdict {
        check_zone(zone)?;
        Ok(match self.present_member(number)?.zone == zone {
            true => Admission::Already(Some(number)),
            false => Admission::Change(Operation::SetZone { number, zone: zone.to_owned() }),
        })
    }

    fn admit_address(&self, number: u16, address: &str) -> Verdict {
        check_address(address)?;
        if self.present_member(number)?.address == address {
            return Ok(Admission::Already(Some(number)));
        }
        if let Some((other, _)) = self.present().find(|(_, member)| member.address == address) {
            return Err(Reason::AddressTaken { address: address.to_owned(), number: other });
        }
        Ok(Admission::Change(Operation::SetAddress { number, address: address.to_owned() }))
    }

    fn admit_arrange(&self, partition: PartitionId, list: &[u16]) -> Verdict {
        let before = self.layout.lists.get(usize::from(partition.0));
        let before = before.ok_or(Reason::NoPartition { partition, partitions: self.partitions })?;
        for number in list {
            if !self.present_member(*number)?.state.may_hold() {
                return Err(Reason::Leaves { number: *number });
            }
        }
        let different: BTreeSet<&u16> = list.iter().collect();
        if list.is_empty() || list.len() > REPLICAS_MAX as usize || different.len() != list.len() {
            return Err(Reason::Replicas { replicas: list.len() as u32 });
        }
        Ok(match before == list {
            true => Admission::Already(None),
            false => Admission::Change(Operation::Arrange { partition, list: list.to_vec() }),
        })
    }

    fn admit_settings(&self, settings: Settings) -> Verdict {
        super::settings::check(&settings)?;
        Ok(match settings == self.settings {
            true => Admission::Already(None),
            false => Admission::Change(Operation::SetSettings(settings)),
        })
    }
}
