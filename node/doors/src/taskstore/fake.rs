//! A small node for tests of the service: a store of tasks that takes the requests that the service makes.

use crate::testing::samples::new_task;
use norn_wire::limits::CLAIMS_SHOWN_MAX;
use norn_wire::membership::{Changed, ClusterChange, ClusterView, QueuePolicy, QueueSetting, Roster, Settings};
use norn_wire::request::{Claim, Spec};
use norn_wire::response::{ClaimView, Granted, Page, QueueCounts, Response, State, TaskView};
use norn_wire::transaction::{Expected, Refusal, Transaction};
use norn_wire::{Acked, ClusterId, Error, ErrorCode, Guarantee, NodeId, QueueName, Request, TaskId, Token};
use std::collections::BTreeMap;

/// A node with tasks in memory.
#[derive(Default)]
pub struct Fake {
    pub tasks: BTreeMap<TaskId, TaskView>,
    pub policies: BTreeMap<QueueName, QueuePolicy>,
    /// The answer to anything.
    pub error: Option<Error>,
    /// The answer to transactions, and how often.
    pub refusals: Vec<Refusal>,
    /// Transactions that add a task under an id that is taken are refused this often before.
    pub collisions: usize,
    pub transactions: usize,
    pub releases: usize,
    pub unavailable: u32,
    grants: u64,
}

pub fn view(id: TaskId, spec: Spec, now_ms: u64) -> TaskView {
    let state = if spec.not_before_ms > now_ms { State::Waiting } else { State::Ready };
    new_task(id, state, spec)
}

impl Fake {
    pub fn answer(&mut self, request: Request) -> Response {
        if let Some(error) = &self.error {
            return Response::Error(error.clone());
        }
        match request {
            Request::Get { id, .. } => match self.tasks.get(&id) {
                Some(task) => Response::Task(Box::new(task.clone())),
                None => Response::Error(Error::new(ErrorCode::NotFound, "there is no such task")),
            },
            Request::Queues => Response::Queues(self.queues()),
            Request::Cluster => Response::Cluster(Box::new(self.cluster())),
            Request::Change { change, .. } => self.change(*change),
            // A page ends after as many tasks of the queue as are asked for, in whatever state, as a node's does.
            Request::List { queue, state, after, limit, .. } => {
                let limit = limit as usize;
                let is_seen = |task: &&TaskView| {
                    queue.as_ref().is_none_or(|queue| *queue == task.spec.queue)
                        && after.is_none_or(|after| task.id > after)
                };
                let seen: Vec<&TaskView> = self.tasks.values().filter(is_seen).take(limit).collect();
                let next = seen.last().map(|task| task.id).filter(|_| seen.len() == limit);
                let is_wanted = |task: &&&TaskView| state.is_none_or(|state| state == task.state);
                Response::Page(Page { tasks: seen.iter().filter(is_wanted).copied().cloned().collect(), next })
            }
            Request::Claim(claim) => self.claim(&claim),
            Request::Release { id, .. } => {
                self.releases += 1;
                match self.tasks.get_mut(&id).filter(|task| task.state == State::Claimed) {
                    Some(task) => {
                        task.state = State::Ready;
                        Response::Done
                    }
                    None => Response::Error(Error::new(ErrorCode::Ended, "the task has ended")),
                }
            }
            Request::Transact(transaction) => Response::Transacted(self.transact(&transaction)),
            Request::Enqueue { tasks, .. } => {
                let stored = tasks.into_iter().map(|task| {
                    self.tasks.insert(task.id, view(task.id, task.spec, crate::testing::now_ms()));
                    Ok(acked(task.id))
                });
                Response::Acked(stored.collect())
            }
            Request::Complete { items, .. } => {
                let ended = items.iter().map(|item| {
                    let task = self.tasks.get_mut(&item.id).expect("a task");
                    task.state = State::Done;
                    // A claim that is no longer shown may be completed, too.
                    let claim = task.claims.iter_mut().find(|claim| claim.token == item.token);
                    claim.into_iter().for_each(|claim| claim.completed_ms = Some(item.at_ms));
                    Ok(acked(item.id))
                });
                Response::Acked(ended.collect())
            }
            Request::Count { state, .. } => {
                let wanted = |task: &&TaskView| state.is_none_or(|state| state == task.state);
                Response::Count(self.tasks.values().filter(wanted).count() as u64)
            }
            Request::Partitions => Response::Partitions(Vec::new()),
            other => panic!("{other:?}"),
        }
    }

    fn queues(&self) -> Vec<QueueCounts> {
        let mut counts: BTreeMap<&QueueName, [u64; 6]> = BTreeMap::new();
        for task in self.tasks.values() {
            counts.entry(&task.spec.queue).or_default()[task.state as usize] += 1;
        }
        let counted =
            |(queue, counts): (&QueueName, _)| QueueCounts { queue: queue.clone(), counts, permit_in_ms: None };
        counts.into_iter().map(counted).collect()
    }

    fn cluster(&self) -> ClusterView {
        ClusterView {
            cluster: ClusterId(1),
            name: "fake".into(),
            roster: Roster { version: 1, members: BTreeMap::new(), policies: self.policies.clone() },
            voters: Vec::new(),
            leader: NodeId(1),
            heard: Vec::new(),
            replicas: 3,
            settings: Settings::default(),
            layout: 1,
            stale: false,
            shares: BTreeMap::new(),
            moving: Vec::new(),
            open: 0,
            unknown: 0,
        }
    }

    fn change(&mut self, change: ClusterChange) -> Response {
        let ClusterChange::Queue { queue, setting } = change else { panic!("{change:?}") };
        let policy = self.policies.entry(queue).or_default();
        match setting {
            QueueSetting::Order(order) => policy.order = order,
            QueueSetting::Retention(retention_ms) => policy.retention_ms = retention_ms,
            other => panic!("{other:?}"),
        }
        self.policies.retain(|_, policy| *policy != QueuePolicy::default());
        let view = Box::new(self.cluster());
        Response::Changed(Box::new(Changed { already: false, version: 1, view, membership: None }))
    }

    fn claim(&mut self, claim: &Claim) -> Response {
        self.grants += 1;
        let token = Token { epoch: 1, number: self.grants };
        let now_ms = crate::testing::now_ms();
        let ready = |task: &&mut TaskView| claim.queues.contains(&task.spec.queue) && task.state == State::Ready;
        let granted = self.tasks.values_mut().find(ready).map(|task| {
            task.state = State::Claimed;
            task.claims.push(ClaimView {
                token,
                start_ms: now_ms,
                end_ms: Some(now_ms + claim.lease_ms),
                completed_ms: None,
                worker: claim.worker.clone(),
                rejected: None,
                superseded: None,
                end: None,
                session: None,
            });
            let surplus = task.claims.len().saturating_sub(CLAIMS_SHOWN_MAX);
            task.claims.drain(..surplus);
            Granted {
                id: task.id,
                token,
                queue: task.spec.queue.clone(),
                payload: task.spec.payload.clone(),
                priority: task.spec.priority,
                headers: task.spec.headers.clone(),
                attempt: 1,
                lease_ms: claim.lease_ms,
                updates: Vec::new(),
                grouping: None,
                group: None,
            }
        });
        Response::Claimed { tasks: granted.into_iter().collect(), unavailable: self.unavailable, left: 0 }
    }

    fn transact(&mut self, transaction: &Transaction) -> Result<Vec<(TaskId, norn_wire::TaskVersion)>, Box<Refusal>> {
        self.transactions += 1;
        if let Some(refusal) = self.refusals.pop() {
            return Err(Box::new(refusal));
        }
        let mut refusal = Refusal::default();
        let taken = self.collisions > 0;
        self.collisions = self.collisions.saturating_sub(1);
        for add in transaction.adds.iter().filter(|add| taken || self.tasks.contains_key(&add.id)) {
            refusal.bugs.push(format!("there is a task {} already", add.id));
        }
        let is_open = |id: &TaskId| self.tasks.get(id).is_some_and(|task| task.state <= State::Claimed);
        for delete in &transaction.deletes {
            let is_held = self.tasks.get(&delete.id).is_some_and(|task| task.state == State::Claimed);
            match delete.expected {
                _ if !is_open(&delete.id) => refusal.deletes.push(delete.id),
                Expected::Present if is_held => refusal.owned.push(delete.id),
                _ => {}
            }
        }
        refusal.depends = transaction.depends.iter().map(|depend| depend.id).filter(|id| !is_open(id)).collect();
        if !refusal.is_empty() {
            return Err(Box::new(refusal));
        }
        for delete in &transaction.deletes {
            self.tasks.entry(delete.id).and_modify(|task| task.state = State::Cancelled);
        }
        for add in &transaction.adds {
            self.tasks.insert(add.id, view(add.id, add.spec.clone(), crate::testing::now_ms()));
        }
        Ok(transaction.adds.iter().map(|add| (add.id, norn_wire::TaskVersion(1))).collect())
    }
}

fn acked(id: TaskId) -> Acked {
    Acked { id, acks: 2, replicas: 3, guarantee: Guarantee::Strict }
}
