//! Leaders follow the policies of queues, as far as they have heard of them. No lease is longer than the maximum. No attempt follows
//! one that failed or expired before the back-off has passed. No task has more attempts than allowed. No task of a paused queue is
//! granted. A task that waits for a failed one keeps waiting, proceeds or fails as its queue says.
//!
//! A node has heard of the latest roster in its log. A leader's decision is an operation at the time it is first written.

use super::Property;
use crate::history::{Happening, History, Moment};
use norn_engine::Observation;
use norn_model::claim_table::table::Op;
use norn_model::record::Record;
use norn_model::task::{Settled, Task};
use norn_wire::membership::{FailedDependency, QueuePolicy, Roster};
use norn_wire::{PartitionId, Request, TaskId, Token};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Attempts of a task under one leadership, whose operations follow one another, whatever becomes of them.
#[derive(Debug, Default)]
struct Attempts {
    /// Grants that were neither given back nor taken back.
    count: u32,
    /// Earliest time of the next grant, by the leader's clock.
    not_before_ms: u64,
}

#[derive(Debug, Default)]
pub struct Policies {
    /// No wall clock jumps.
    steady: bool,
    known: BTreeMap<usize, Arc<Roster>>,
    /// Highest operation of each epoch that was seen.
    lengths: BTreeMap<(PartitionId, u64), u64>,
    attempts: BTreeMap<(u64, TaskId), Attempts>,
    /// Nodes whose latest records have a roster: their other decisions of that step may precede it.
    learning: BTreeSet<usize>,
    /// Longest lease of each claim so far.
    leases: BTreeMap<(TaskId, Token), u64>,
    /// Claims that a leader has written down as over.
    ended: BTreeSet<(TaskId, Token)>,
    /// Pauses that failure requests name, also those that leave the pause to the queue: leaders of earlier versions keep these.
    named: BTreeMap<(TaskId, Token), BTreeSet<u64>>,
    /// Outcomes of failed dependencies that some node has written down. A node that learns of one later has not decided it.
    followed: BTreeSet<(TaskId, TaskId, FailedDependency)>,
}

/// Dependencies of a task that did not end well, and what that means for the task.
fn follows(history: &History, id: &TaskId, task: &Task) -> Vec<(TaskId, FailedDependency)> {
    let (Some(facts), Some(spec)) = (&task.facts, history.specs.get(id)) else { return Vec::new() };
    let skipped = facts.settled.iter().filter(|(other, how)| *how != Settled::Done && spec.after.contains(other));
    let reason = facts.cancel.as_ref().filter(|cancel| cancel.dead).map_or("", |cancel| &cancel.reason);
    let failed = spec.after.iter().filter(|other| reason.starts_with(&format!("task {other}, for which it waits,")));
    skipped
        .map(|(other, _)| (*other, FailedDependency::Skip))
        .chain(failed.map(|other| (*other, FailedDependency::Fail)))
        .collect()
}

impl Policies {
    fn policy(&self, history: &History, node: usize, id: &TaskId) -> QueuePolicy {
        let known = self.known.get(&node).zip(history.specs.get(id));
        known.and_then(|(roster, spec)| roster.policies.get(&spec.queue)).cloned().unwrap_or_default()
    }

    fn hear<'a>(&mut self, node: usize, records: impl IntoIterator<Item = &'a Record>) {
        for record in records {
            if let Record::Roster(roster) = record {
                self.known.insert(node, roster.clone());
            }
        }
    }

    /// Checks the length of a lease. A leader that lacks the task does not know its queue, and prolongs a claim by no more than it
    /// had.
    fn leased(&mut self, policy: QueuePolicy, id: TaskId, token: Token, lease_ms: u64) -> Result<(), String> {
        let had_ms = self.leases.entry((id, token)).or_default();
        let longer = lease_ms > *had_ms;
        *had_ms = lease_ms.max(*had_ms);
        match policy.lease_ms_max.filter(|most_ms| longer && lease_ms > *most_ms) {
            Some(most_ms) => Err(format!("task {id} got a lease of {lease_ms} ms where {most_ms} ms are the most")),
            None => Ok(()),
        }
    }

    /// Checks an operation that a leader writes in its epoch.
    fn decided(&mut self, history: &History, node: usize, epoch: u64, op: &Op) -> Result<(), String> {
        match op {
            Op::Grant { lease_ms, granted_ms, items, .. } => items.iter().try_for_each(|(id, number)| {
                let policy = self.policy(history, node, id);
                self.granted(history, (epoch, *id), policy.clone(), *granted_ms)?;
                self.leased(policy, *id, Token { epoch, number: *number }, *lease_ms)
            }),
            Op::Renew { items } => items.iter().try_for_each(|(id, token, lease_ms, _)| {
                self.leased(self.policy(history, node, id), *id, *token, *lease_ms)
            }),
            Op::Kill { id, token, .. } => {
                self.ended.insert((*id, *token));
                Ok(())
            }
            Op::Release { id, token, not_before_ms, at_ms, failed, .. } => {
                self.ended.insert((*id, *token));
                // A failure without a pause named none.
                let backoff = self.policy(history, node, id).backoff.filter(|_| *failed && *not_before_ms > 0);
                let attempts = self.attempts.entry((epoch, *id)).or_default();
                attempts.count = attempts.count.saturating_sub(u32::from(!failed));
                attempts.not_before_ms = *not_before_ms;
                // Earlier epochs may have had more attempts.
                let count = attempts.count.max(1);
                let pause_ms = not_before_ms.saturating_sub(*at_ms);
                let named = self.named.get(&(*id, *token)).is_some_and(|named| named.contains(&pause_ms));
                let Some(backoff) = backoff.filter(|_| !named) else { return Ok(()) };
                let (least_ms, most_ms) = (backoff.range_ms(count).0, backoff.range_ms(u32::MAX).1);
                match (least_ms..=most_ms).contains(&pause_ms) {
                    true => Ok(()),
                    false => Err(format!("task {id} waits for {pause_ms} ms after {token}, by {backoff:?}")),
                }
            }
            Op::Void { items } => {
                for (id, _) in items {
                    let attempts = self.attempts.entry((epoch, *id)).or_default();
                    attempts.count = attempts.count.saturating_sub(1);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Checks the facts that a node writes.
    fn learned(&mut self, history: &History, node: usize, items: &[(TaskId, Task)]) -> Result<(), String> {
        for (id, task) in items {
            for (other, what) in follows(history, id, task) {
                let set = self.policy(history, node, id).failed_dependency;
                if self.followed.insert((*id, other, what)) && set != what {
                    return Err(format!("task {id} waits for {other}, which failed: {what:?}, where {set:?} is set"));
                }
            }
        }
        Ok(())
    }

    fn granted(
        &mut self,
        history: &History,
        (epoch, id): (u64, TaskId),
        policy: QueuePolicy,
        granted_ms: u64,
    ) -> Result<(), String> {
        let attempts = self.attempts.entry((epoch, id)).or_default();
        attempts.count += 1;
        if self.steady && granted_ms < attempts.not_before_ms {
            let early_ms = attempts.not_before_ms - granted_ms;
            return Err(format!("task {id} is granted {early_ms} ms before its pause is over"));
        }
        if policy.paused {
            return Err(format!("task {id} is granted, and its queue is paused"));
        }
        let own = history.specs.get(&id).map_or(0, |spec| spec.attempts_max);
        match policy.attempts_max.filter(|most| own == 0 && attempts.count > *most) {
            Some(most) => Err(format!("task {id} is tried {} times where {most} are allowed", attempts.count)),
            None => Ok(()),
        }
    }
}

impl Property for Policies {
    fn name(&self) -> &'static str {
        "policies"
    }

    fn see(&mut self, history: &History, _moment: Moment, happening: &Happening<'_>) -> Result<(), String> {
        match happening {
            Happening::Founded(terms) => self.steady = terms.steady,
            Happening::Replayed { node, records } => {
                self.known.remove(node);
                self.hear(*node, *records);
            }
            Happening::Sent { request: Request::Fail { id, token, retry_in_ms, .. } } => {
                self.named.entry((*id, *token)).or_default().insert(*retry_in_ms);
            }
            Happening::Observed { node, observation: Observation::Expired { id, token }, .. } => {
                // The step's records went to the log before this observation.
                let waits = self.policy(history, *node, id).backoff.is_some() && !self.learning.contains(node);
                if waits && !self.ended.contains(&(*id, *token)) {
                    return Err(format!("claim {token} of task {id} ran out, and its back-off is not written down"));
                }
            }
            Happening::Appended { node, records, .. } => {
                match records.iter().any(|record| matches!(record, Record::Roster(_))) {
                    true => self.learning.insert(*node),
                    false => self.learning.remove(node),
                };
                for record in *records {
                    self.hear(*node, [record]);
                    if let Record::Facts { items, .. } = record {
                        self.learned(history, *node, items)?;
                    }
                    let Record::Ops { partition, after, ops } = record else { continue };
                    for (number, op) in (after.length + 1..).zip(ops) {
                        let seen = self.lengths.entry((*partition, after.epoch)).or_default();
                        if number > *seen {
                            *seen = number;
                            self.decided(history, *node, after.epoch, op)?;
                        }
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::*;
    use super::*;
    use norn_engine::Ticket;
    use norn_model::task::Cancel;
    use norn_model::viewstamp::Viewstamp;
    use norn_wire::membership::Backoff;
    use norn_wire::request::Spec;
    use norn_wire::{Acks, ClaimId, NewTask};

    /// Lets a node write an operation after `length` others, where the tasks' queue has this policy.
    fn write(bench: &mut Bench<Policies>, policy: &QueuePolicy, length: u64, op: Op) -> Result<(), String> {
        let roster =
            Roster { version: 1, policies: BTreeMap::from([(spec().queue, policy.clone())]), ..Roster::default() };
        let after = Viewstamp { epoch: 3, length };
        let records = [Record::Roster(Arc::new(roster))];
        bench.see(Happening::Appended { node: 0, ticket: Ticket(1), records: &records })?;
        let records = [Record::Ops { partition: PartitionId(0), after, ops: vec![Arc::new(op)] }];
        bench.see(Happening::Appended { node: 0, ticket: Ticket(2), records: &records })
    }

    fn bench() -> Bench<Policies> {
        let mut bench = Bench::new();
        bench.see(Happening::Founded(Terms { fencing: true, steady: true, ..Terms::default() })).unwrap();
        bench.enqueued(1);
        bench
    }

    fn grant(number: u64, granted_ms: u64) -> Op {
        let items = vec![(id(1), number)];
        Op::Grant {
            claim: ClaimId(1),
            worker: "w".into(),
            lease_ms: 1_000,
            granted_ms,
            items,
            session: None,
            lapsed: false,
        }
    }

    fn release(not_before_ms: u64) -> Op {
        Op::Release { id: id(1), token: token(3, 1), not_before_ms, at_ms: 2_000, failed: true, end: None }
    }

    const BACKOFF: Backoff = Backoff { first_ms: 500, most_ms: 500, jitter_percent: 0 };

    #[test]
    fn a_lease_above_the_maximum_is_refused() {
        let most = |ms| QueuePolicy { lease_ms_max: Some(ms), ..QueuePolicy::default() };
        let renew = |ms| Op::Renew { items: vec![(id(1), token(3, 1), ms, 9_000)] };
        let mut bench = bench();
        assert!(write(&mut bench, &most(999), 0, grant(1, 1_000)).is_err());
        assert!(write(&mut bench, &most(1_000), 1, grant(2, 1_000)).is_ok());
        assert!(write(&mut bench, &most(500), 2, renew(1_000)).is_ok(), "it is no longer than it was");
        assert!(write(&mut bench, &most(1_500), 3, renew(1_501)).is_err());
    }

    #[test]
    fn a_pause_that_is_not_kept_is_refused() {
        let policy = QueuePolicy { backoff: Some(BACKOFF), ..QueuePolicy::default() };
        let mut bench = bench();
        write(&mut bench, &policy, 0, grant(1, 1_000)).unwrap();
        let expired = Observation::Expired { id: id(1), token: token(3, 1) };
        let expires = || Happening::Observed { node: 0, boot: 1, observation: &expired };
        assert!(bench.see(expires()).is_err(), "nothing says that it waits");
        assert!(write(&mut bench, &policy, 1, release(2_499)).is_err());
        assert!(write(&mut bench, &policy, 2, release(2_500)).is_ok() && bench.see(expires()).is_ok());
        assert!(write(&mut bench, &policy, 3, grant(2, 2_499)).is_err());
        assert!(write(&mut bench, &policy, 4, grant(3, 2_500)).is_ok());
        let (id, token, reason) = (id(1), token(3, 1), String::new());
        let request = Request::Fail { id, token, reason, retry_in_ms: 7, invalid: false, retry_open: true };
        bench.see(Happening::Sent { request: &request }).unwrap();
        assert!(write(&mut bench, &policy, 5, release(2_007)).is_ok(), "the failure itself says so");
        assert!(write(&mut bench, &policy, 6, release(2_008)).is_err());
    }

    #[test]
    fn a_pause_that_does_not_grow_is_refused() {
        let backoff = Backoff { most_ms: 60_000, ..BACKOFF };
        let policy = QueuePolicy { backoff: Some(backoff), ..QueuePolicy::default() };
        let mut bench = bench();
        write(&mut bench, &policy, 0, grant(1, 1_000)).unwrap();
        write(&mut bench, &policy, 1, release(2_500)).unwrap();
        write(&mut bench, &policy, 2, grant(2, 2_500)).unwrap();
        assert!(write(&mut bench, &policy, 3, release(2_500)).is_err());
        assert!(write(&mut bench, &policy, 4, release(2_000 + backoff.range_ms(2).0)).is_ok());
    }

    #[test]
    fn a_grant_of_a_paused_queue_is_refused() {
        let policy = |paused| QueuePolicy { paused, ..QueuePolicy::default() };
        let mut bench = bench();
        write(&mut bench, &policy(false), 0, grant(1, 1_000)).unwrap();
        assert!(write(&mut bench, &policy(true), 1, grant(2, 1_000)).is_err());
        assert!(write(&mut bench, &policy(true), 0, grant(1, 1_000)).is_ok(), "it was granted before");
    }

    #[test]
    fn what_follows_from_a_failure_and_is_not_set_is_refused() {
        let mut bench = Bench::<Policies>::new();
        let spec = Spec { after: vec![id(1), id(2)], ..spec() };
        let queue = spec.queue.clone();
        let request = Request::Enqueue { tasks: vec![NewTask { id: id(3), spec }], acks: Acks::Quorum };
        bench.see(Happening::Sent { request: &request }).unwrap();
        let mut learn = |failed_dependency, task: Task| {
            let policy = QueuePolicy { failed_dependency, ..QueuePolicy::default() };
            let policies = BTreeMap::from([(queue.clone(), policy)]);
            let roster = Record::Roster(Arc::new(Roster { policies, ..Roster::default() }));
            let facts = Record::Facts { partition: PartitionId(0), items: Arc::new(vec![(id(3), task)]) };
            bench.see(Happening::Appended { node: 0, ticket: Ticket(1), records: &[roster, facts] })
        };
        let reason = format!("task {}, for which it waits, was cancelled", id(2));
        let dead = || Task::from_cancel(Cancel { dead: true, reason: reason.clone(), at_ms: 1 });
        assert!(learn(FailedDependency::Wait, Task::from_settled(id(1), Settled::Done)).is_ok());
        assert!(learn(FailedDependency::Wait, Task::from_settled(id(2), Settled::Dead)).is_err());
        assert!(learn(FailedDependency::Skip, Task::from_settled(id(1), Settled::Cancelled)).is_ok());
        assert!(learn(FailedDependency::Wait, Task::from_settled(id(1), Settled::Cancelled)).is_ok(), "it is known");
        assert!(learn(FailedDependency::Skip, dead()).is_err());
        assert!(learn(FailedDependency::Fail, dead()).is_ok(), "it is known");
    }

    #[test]
    fn an_attempt_too_many_is_refused() {
        let policy = QueuePolicy { attempts_max: Some(1), ..QueuePolicy::default() };
        let mut bench = bench();
        write(&mut bench, &policy, 0, grant(1, 1_000)).unwrap();
        write(&mut bench, &policy, 1, Op::Void { items: vec![(id(1), token(3, 1))] }).unwrap();
        write(&mut bench, &policy, 2, grant(2, 1_000)).unwrap();
        assert!(write(&mut bench, &policy, 3, grant(3, 1_000)).is_err());
    }
}
