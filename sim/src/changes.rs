//! What the operator changes in the cluster: which node holds a partition, which nodes are members, and how much each holds.
//!
//! A call is made at some node, and its answer may be lost. Most changes are only requested; those without which something would stay
//! unfinished for ever are requested again, as an operator would, until they are done or refused.

use crate::history::{Happening, Moment};
use crate::process::OPERATOR;
use crate::workload::numbered_queue;
use crate::world::{Event, World};
use norn_wire::error::ErrorCode;
use norn_wire::membership::{
    Backoff, Candidate, ClusterChange, FailedDependency, KeyConcurrency, Membership, Mode, Order, QueueSetting, Rate,
};
use norn_wire::response::{Identity, Response};
use norn_wire::{NodeId, PartitionId, Request};

/// Interval between repeated requests.
const INTERVAL_US: u64 = 700_000;

impl World {
    /// Asks a node to move a partition to others, and does not wait for the outcome.
    pub fn move_partition(&mut self, node: usize) {
        let Some(genesis) = &self.operator.genesis else { return };
        let options = &self.options;
        // With fewer than three replicas none can give back what another one's disk loses.
        let careful = options.loses_records();
        let random = &mut self.randoms.moves;
        let partition = PartitionId(random.below(options.partitions) as u16);
        let usual = random.chance(2, 3);
        let size = if usual { options.replicas } else { random.between(1, genesis.members.len().min(5) as u64) };
        let size = if careful { size.max(options.replicas) } else { size };
        let mut nodes: Vec<NodeId> = genesis.members.iter().map(|member| member.node).collect();
        for place in (1..nodes.len()).rev() {
            nodes.swap(place, random.below(place as u64 + 1) as usize);
        }
        nodes.truncate(size as usize);
        self.count("sometimes: a partition is to move");
        self.ask_about_cluster(node, Request::Arrange { partition, nodes });
    }

    /// Requests a change of the cluster at one node, and asks another one for the state of the cluster. No member is declared gone: a
    /// disk that is removed has what others may lack.
    pub fn change_cluster(&mut self, node: usize) {
        let careful = self.options.loses_records();
        let least = if careful { self.options.replicas } else { 1 };
        let random = &mut self.randoms.moves;
        let told: Vec<Identity> = self.operator.told.iter().flatten().cloned().collect();
        if self.operator.genesis.is_none() || told.is_empty() {
            return;
        }
        let identity = told[random.below(told.len() as u64) as usize].clone();
        let of = identity.node;
        let change = match random.below(8) {
            0 | 1 => ClusterChange::Add { with: candidate(identity) },
            2 | 3 => ClusterChange::Drain { node: of },
            4 => ClusterChange::Undrain { node: of },
            5 => ClusterChange::Weight { node: of, weight: random.between(1, 4) as u32 },
            6 => ClusterChange::Replicas { replicas: random.between(least, least.max(5)) as u32 },
            _ => ClusterChange::Rebalance,
        };
        self.count("sometimes: the cluster is to change");
        // A node that was asked to join would wait for ever.
        if matches!(change, ClusterChange::Add { .. }) {
            self.want(change.clone());
        }
        self.ask_for(node, change);
        self.ask_about_cluster((node + 1) % self.nodes.len(), Request::Cluster);
    }

    /// Asks a node to change a setting of a queue. Leaves out settings for which a run would have to wait for long.
    pub fn change_policy(&mut self, node: usize) {
        if self.operator.genesis.is_none() {
            return;
        }
        let (queues, wild) = (self.options.queues, self.options.wild_wall_clock);
        let (least_ms, most_ms) = (self.options.lease_ms_min, self.options.lease_ms_max);
        let retain_ms = self.options.retain_ms;
        let random = &mut self.randoms.moves;
        let queue = numbered_queue(random.below(queues));
        let first_ms = random.between(1, 1_000);
        let backoff = Backoff {
            first_ms,
            most_ms: random.between(first_ms, 2_000),
            jitter_percent: [0, 20, 100][random.below(3) as usize],
        };
        let set = random.chance(3, 4);
        let setting = match random.below(7) {
            0 => QueueSetting::Lease(set.then(|| random.between(least_ms, most_ms))),
            1 => QueueSetting::LeaseMax(set.then(|| random.between(least_ms, most_ms))),
            2 => QueueSetting::Attempts(set.then(|| random.between(1, 6) as u32)),
            3 => QueueSetting::Retention(set.then(|| random.between(0, retain_ms.min(5_000)))),
            4 => QueueSetting::Order(if set { Order::Random } else { Order::Priority }),
            5 => QueueSetting::FailedDependency(if set { FailedDependency::Skip } else { FailedDependency::Fail }),
            // With wall clocks that are hours off, a pause may be hours.
            _ => QueueSetting::Backoff(Some(backoff).filter(|_| set && !wild)),
        };
        self.count("sometimes: something else is set for a queue");
        self.ask_for(node, ClusterChange::Queue { queue, setting });
    }

    /// Pauses or resumes a queue, or changes what happens in it to tasks that wait for a failed one: these may stand still, too.
    pub fn hold_queue(&mut self, node: usize) {
        if self.operator.genesis.is_none() {
            return;
        }
        let random = &mut self.randoms.holds;
        let queue = numbered_queue(random.below(self.options.queues));
        let failed = [FailedDependency::Wait, FailedDependency::Wait, FailedDependency::Skip, FailedDependency::Fail];
        let setting = match random.chance(1, 2) {
            true => QueueSetting::Paused(random.chance(1, 2)),
            false => QueueSetting::FailedDependency(failed[random.below(4) as usize]),
        };
        self.count("sometimes: a queue is held or let go");
        self.ask_for(node, ClusterChange::Queue { queue, setting });
    }

    /// Resumes everything that an operator has held up, also by a call that comes late.
    pub fn let_go(&mut self) {
        if self.options.hold_mean_ms == 0 || self.operator.genesis.is_none() {
            return;
        }
        for number in 0..self.options.queues {
            let settings = [QueueSetting::Paused(false), QueueSetting::FailedDependency(FailedDependency::Fail)];
            for setting in settings {
                self.want(ClusterChange::Queue { queue: numbered_queue(number), setting });
            }
        }
    }

    /// Sets for some queues that only the holder of a task may end it.
    pub fn want_holders(&mut self) {
        // From a generator of its own, so that the rest is the same without this.
        let mut random = self.randoms.modes.clone();
        for number in 0..self.options.queues {
            if random.chance(self.options.holder_percent, 100) {
                let setting = QueueSetting::Mode(Mode::Holder);
                self.want(ClusterChange::Queue { queue: numbered_queue(number), setting });
            }
        }
    }

    /// Sets the next queue as dead-letter queue of some queues.
    pub fn want_dead_letters(&mut self) {
        let mut random = self.randoms.dead_letters.clone();
        let queues = self.options.queues;
        for number in (0..queues).filter(|_| queues > 1) {
            if random.chance(self.options.letters_percent, 100) {
                let setting = QueueSetting::DeadLetter(Some(numbered_queue((number + 1) % queues)));
                self.want(ClusterChange::Queue { queue: numbered_queue(number), setting });
            }
        }
    }

    /// Sets capacity limits for some queues.
    pub fn want_limits(&mut self) {
        let mut random = self.randoms.limits.clone();
        for number in 0..self.options.queues {
            if random.chance(self.options.limit_percent, 100) {
                let setting = match random.below(4) {
                    0 => QueueSetting::Bytes(Some(random.between(5_000, 20_000))),
                    _ => QueueSetting::Tasks(Some(random.between(25, 60))),
                };
                self.want(ClusterChange::Queue { queue: numbered_queue(number), setting });
            }
        }
    }

    /// Sets ageing, limits on claims and fair queueing for some queues.
    pub fn want_claims_limited(&mut self) {
        let mut random = self.randoms.claims.clone();
        for number in 0..self.options.queues {
            let queue = numbered_queue(number);
            let mut draws = random.child();
            if draws.chance(self.options.ageing_percent, 100) {
                let setting = QueueSetting::Ageing(Some(draws.between(50, 5_000)));
                self.want(ClusterChange::Queue { queue: queue.clone(), setting });
            }
            if draws.chance(self.options.rate_percent, 100) {
                let (claims, per_ms) = [(3, 1_000), (8, 1_000), (20, 1_000), (200, 60_000)][draws.below(4) as usize];
                let setting = QueueSetting::Rate(Some(Rate { claims, per_ms }));
                self.want(ClusterChange::Queue { queue: queue.clone(), setting });
            }
            if draws.chance(self.options.concurrency_percent, 100) {
                let setting = QueueSetting::Concurrency(Some(draws.between(1, 5) as u32));
                self.want(ClusterChange::Queue { queue: queue.clone(), setting });
            }
            if draws.chance(self.options.key_concurrency_percent, 100) {
                let most = [KeyConcurrency::Most(2), KeyConcurrency::Most(3), KeyConcurrency::Any];
                let setting = QueueSetting::KeyConcurrency(most[draws.below(3) as usize]);
                self.want(ClusterChange::Queue { queue: queue.clone(), setting });
            }
            if draws.chance(self.options.fair_percent, 100) {
                let setting = QueueSetting::Order(Order::Fair);
                self.want(ClusterChange::Queue { queue: queue.clone(), setting });
            }
        }
    }

    /// Requests a change from now on until it is done, or refused.
    pub fn want(&mut self, change: ClusterChange) {
        if !std::mem::replace(&mut self.operator.insists, true) {
            self.schedule_in(INTERVAL_US, Event::Insist { turn: 0 });
        }
        if !self.operator.wanted.contains(&change) {
            self.operator.wanted.push(change);
        }
    }

    /// Repeats all open requests, each time at another node.
    pub fn insist(&mut self, turn: usize) {
        let node = turn % self.nodes.len();
        for change in self.operator.wanted.clone() {
            self.ask_for(node, change);
        }
        self.operator.insists = !self.operator.wanted.is_empty();
        if self.operator.insists {
            self.schedule_in(INTERVAL_US, Event::Insist { turn: turn + 1 });
        }
    }

    fn ask_for(&mut self, node: usize, change: ClusterChange) {
        self.ask_about_cluster(node, Request::Change { change: Box::new(change), dry_run: false });
    }

    pub(crate) fn ask_about_cluster(&mut self, node: usize, request: Request) {
        if self.nodes[node].running.is_none() {
            return;
        }
        if let Request::Change { change, .. } = &request {
            self.tell(Happening::Wished { change });
        }
        self.operator.numbers[node] += 1;
        let number = self.operator.numbers[node];
        let asked = (self.moment(), self.nodes[node].boot);
        self.operator.asked.insert((node, number), asked);
        self.ask_node(node, OPERATOR - node as u64, number, request);
    }

    /// Handles the answer to a call about the cluster.
    pub(crate) fn cluster_answer(&mut self, request: &Request, asked: Moment, response: &Response) {
        self.tell(Happening::Steered { request, asked, response });
        self.schedules_answer(request, response);
        let Request::Change { change, .. } = request else { return };
        match response {
            Response::Changed(changed) => {
                self.count("sometimes: the cluster was changed");
                let version = |of: &Option<Membership>| of.as_ref().map_or(0, |latest| latest.roster.version);
                let later = changed.membership.as_deref().cloned();
                if version(&later) > version(&self.operator.latest) {
                    self.operator.latest = later;
                }
                self.operator.wanted.retain(|wanted| wanted != change.as_ref());
                self.go_on_replacing(change, true);
            }
            Response::Error(error) if matches!(error.code, ErrorCode::Conflict | ErrorCode::NotFound) => {
                // A lost member must be removed or replaced some day.
                let lasting = matches!(**change, ClusterChange::Remove { .. } | ClusterChange::Replace { .. });
                self.operator.wanted.retain(|wanted| lasting || wanted != change.as_ref());
                self.go_on_replacing(change, false);
            }
            _ => {}
        }
    }
}

/// A node as an operator names it to make it a member.
pub(crate) fn candidate(identity: Identity) -> Candidate {
    let Identity { node, incarnation, name, address, zone, .. } = identity;
    Candidate { cluster: None, node, incarnation, name, address, zone, weight: 1 }
}
