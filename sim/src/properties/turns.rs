//! At any real instant, workers hold no more tasks of one queue and key than the policy allows (one, unless set), as long as one kind
//! of clock is good. A task that was not ended by its holder, but by a cancellation, for example, does not count: its holder learns
//! of that later. Where the limit was changed, the greatest limit so far counts.

use super::Property;
use crate::history::{Happening, History, Moment};
use norn_engine::Observation;
use norn_model::record::Record;
use norn_wire::{QueueName, TaskId, Token};
use std::collections::{BTreeMap, BTreeSet};

type Key = (QueueName, String);

#[derive(Debug, Clone, Copy)]
struct Holder {
    client: usize,
    id: TaskId,
    token: Token,
    until_us: u64,
}

#[derive(Debug, Default)]
pub struct Turns {
    holders: BTreeMap<Key, Vec<Holder>>,
    /// Tasks that some node knows to have ended.
    ended: BTreeSet<TaskId>,
    clockless: bool,
    /// Greatest limit of claims per key, where it is not one.
    most: BTreeMap<QueueName, usize>,
}

fn key(history: &History, id: &TaskId) -> Option<Key> {
    let spec = history.specs.get(id)?;
    Some((spec.queue.clone(), spec.key.clone()?))
}

impl Turns {
    fn hear(&mut self, record: &Record) {
        let Record::Roster(roster) = record else { return };
        for (queue, policy) in &roster.policies {
            let most = self.most.entry(queue.clone()).or_insert(1);
            *most = policy.key_concurrency.count().max(*most);
        }
    }

    /// Latest holder of another task with the same key, if as many tasks are held as the policy allows.
    fn other(&mut self, key: &Key, id: TaskId, now_us: u64) -> Option<Holder> {
        let most = self.most.get(&key.0).copied().unwrap_or(1);
        let holders = self.holders.get_mut(key)?;
        holders.retain(|holder| holder.until_us > now_us);
        let mut others = holders.iter().filter(|holder| holder.id != id && !self.ended.contains(&holder.id));
        let tasks: BTreeSet<TaskId> = others.clone().map(|holder| holder.id).collect();
        let other = others.next_back().copied();
        other.filter(|_| !self.clockless && tasks.len() >= most)
    }

    fn check(&mut self, key: &Key, id: TaskId, now_us: u64, what: &str) -> Result<(), String> {
        // The holder of a task that has ended meanwhile may learn that late.
        match self.other(key, id, now_us).filter(|_| !self.ended.contains(&id)) {
            Some(Holder { client, id: other, token, .. }) => {
                Err(format!("{what} task {id}, but client {client} holds {other} with the same key under {token}"))
            }
            None => Ok(()),
        }
    }
}

// O15
impl Property for Turns {
    fn name(&self) -> &'static str {
        "turns"
    }

    fn see(&mut self, history: &History, moment: Moment, happening: &Happening<'_>) -> Result<(), String> {
        let now_us = moment.time_us;
        match happening {
            Happening::Founded(terms) => self.clockless = terms.clockless,
            Happening::Appended { records, .. } => {
                for record in *records {
                    self.hear(record);
                    let Record::Facts { items, .. } = record else { continue };
                    self.ended.extend(items.iter().filter(|(_, task)| task.ended().is_some()).map(|(id, _)| *id));
                }
            }
            Happening::Holds { client, id, token, until_us } if *until_us > now_us => {
                let Some(key) = key(history, id) else { return Ok(()) };
                self.check(&key, *id, now_us, &format!("client {client} holds"))?;
                let holders = self.holders.entry(key).or_default();
                holders.retain(|holder| (holder.client, holder.token) != (*client, *token));
                holders.push(Holder { client: *client, id: *id, token: *token, until_us: *until_us });
            }
            Happening::Stops { client, id, token } => {
                if let Some(holders) = key(history, id).and_then(|key| self.holders.get_mut(&key)) {
                    holders.retain(|holder| (holder.client, holder.id, holder.token) != (*client, *id, *token));
                }
            }
            Happening::Observed { node, observation: Observation::Granted { id, .. }, .. } => {
                let Some(key) = key(history, id) else { return Ok(()) };
                self.check(&key, *id, now_us, &format!("node {node} granted"))?;
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
    use norn_wire::membership::{KeyConcurrency, QueuePolicy, Roster};
    use norn_wire::request::{Acks, NewTask, Request, Spec};
    use std::sync::Arc;

    fn bench() -> Bench<Turns> {
        let mut bench = Bench::new();
        let tasks = [(1, "a"), (2, "a"), (3, "b")];
        let task =
            |(number, key): (u32, &str)| NewTask { id: id(number), spec: Spec { key: Some(key.into()), ..spec() } };
        let request = Request::Enqueue { tasks: tasks.into_iter().map(task).collect(), acks: Acks::Quorum };
        bench.see(Happening::Sent { request: &request }).unwrap();
        bench
    }

    fn holds(bench: &mut Bench<Turns>, client: usize, number: u32) -> Result<(), String> {
        let (token, until_us) = (token(1, u64::from(number)), 9_000_000);
        bench.see(Happening::Holds { client, id: id(number), token, until_us })
    }

    #[test]
    fn two_tasks_with_one_key_at_once_are_refused() {
        let mut bench = bench();
        holds(&mut bench, 0, 1).unwrap();
        holds(&mut bench, 0, 1).unwrap();
        holds(&mut bench, 1, 3).unwrap();
        assert!(holds(&mut bench, 1, 2).is_err());
        let granted = Observation::Granted { id: id(2), token: token(1, 2) };
        assert!(bench.see(Happening::Observed { node: 0, boot: 1, observation: &granted }).is_err());
        bench.see(Happening::Stops { client: 0, id: id(1), token: token(1, 1) }).unwrap();
        holds(&mut bench, 2, 2).unwrap();
    }

    #[test]
    fn as_many_may_be_held_as_is_set() {
        let mut bench = bench();
        let policy = QueuePolicy { key_concurrency: KeyConcurrency::Most(2), ..QueuePolicy::default() };
        let policies = BTreeMap::from([(spec().queue, policy)]);
        let roster = Record::Roster(Arc::new(Roster { policies, ..Roster::default() }));
        bench.see(Happening::Appended { node: 0, ticket: Ticket(1), records: &[roster] }).unwrap();
        holds(&mut bench, 0, 1).unwrap();
        holds(&mut bench, 1, 2).unwrap();
        let spec = Spec { key: Some("a".into()), ..spec() };
        let request = Request::Enqueue { tasks: vec![NewTask { id: id(4), spec }], acks: Acks::Quorum };
        bench.see(Happening::Sent { request: &request }).unwrap();
        assert!(holds(&mut bench, 2, 4).is_err());
    }
}
