//! The operator: asks every node for its identity, makes the founding record and gives it to each founder until it is taken. Its
//! later changes are in `changes.rs`.

use crate::adapter::ring;
use crate::history::{Happening, Moment, Terms};
use crate::process::OPERATOR;
use crate::schedules::Ending;
use crate::world::{Event, World};
use norn_model::config::Config;
use norn_wire::membership::{ClusterChange, Membership};
use norn_wire::response::{Genesis, Identity, Member, Response};
use norn_wire::{ClusterId, Request};
use std::collections::BTreeMap;

/// Interval between calls to a node.
const INTERVAL_US: u64 = 300_000;

#[derive(Debug)]
pub struct Operator {
    cluster: ClusterId,
    pub(crate) told: Vec<Option<Identity>>,
    founded: Vec<bool>,
    pub(crate) genesis: Option<Genesis>,
    /// Number of founders, which are the first nodes.
    founders: usize,
    /// Latest membership, which nodes that were added must learn.
    pub(crate) latest: Option<Membership>,
    /// Number of calls to each node.
    pub(crate) numbers: Vec<u64>,
    /// Unanswered calls about the cluster, by node and number: when they were made, and the node's boot counter.
    pub(crate) asked: BTreeMap<(usize, u64), (Moment, u64)>,
    /// Changes that are requested again until they are done, or refused.
    pub(crate) wanted: Vec<ClusterChange>,
    /// The next such request is scheduled.
    pub(crate) insists: bool,
    /// Whether schedules stand, have caught up, or are removed.
    pub(crate) schedules: Ending,
}

impl Operator {
    /// An operator that knows nothing yet.
    pub fn new(nodes: usize, founders: usize, cluster: u128) -> Self {
        Operator {
            founders,
            latest: None,
            cluster: ClusterId(cluster),
            told: vec![None; nodes],
            founded: vec![false; nodes],
            genesis: None,
            numbers: vec![0; nodes],
            asked: BTreeMap::new(),
            wanted: Vec::new(),
            insists: false,
            schedules: Ending::default(),
        }
    }

    /// Whether the identity of a node is known.
    pub fn knows(&self, node: usize) -> bool {
        self.told[node].is_some()
    }

    /// Notes that a founder has forgotten that it is one.
    pub fn found_again(&mut self, node: usize) {
        self.founded[node] = false;
    }

    /// Whether every founder has taken the founding record.
    pub fn done(&self) -> bool {
        self.founded.iter().take(self.founders).all(|founded| *founded)
    }

    /// The record to give to a node with a known identity.
    fn present(&self, identity: &Identity, founder: bool) -> Option<Request> {
        if founder {
            return Some(Request::Initialize(Box::new(self.genesis.clone()?)));
        }
        let latest = self.latest.as_ref()?;
        let added = latest.roster.members.values().any(|member| member.node == identity.node);
        added.then(|| Request::Join(Box::new(latest.clone())))
    }

    fn member(identity: &Identity) -> Member {
        Member {
            node: identity.node,
            incarnation: identity.incarnation,
            address: identity.address.clone(),
            name: identity.name.clone(),
            zone: identity.zone.clone(),
        }
    }
}

impl World {
    /// Asks a node once more, until it has taken the founding record.
    pub fn operate(&mut self, node: usize) {
        if self.operator.founded[node] {
            return;
        }
        self.operator.numbers[node] += 1;
        let number = self.operator.numbers[node];
        let told = self.operator.told[node].as_ref().filter(|_| number.is_multiple_of(2));
        let present = told.and_then(|identity| self.operator.present(identity, node < self.operator.founders));
        let request = present.unwrap_or(Request::Identify);
        self.ask_node(node, OPERATOR - node as u64, number, request);
        self.schedule_in(INTERVAL_US, Event::Operate { node });
    }

    /// Handles a node's answer to the operator.
    pub fn operator_answer(&mut self, node: usize, number: u64, request: &Request, response: &Response) {
        if let Some((asked, _)) = self.operator.asked.remove(&(node, number)) {
            return self.cluster_answer(request, asked, response);
        }
        let Response::Identity(identity) = response else { return };
        self.operator.founded[node] |= identity.genesis.is_some();
        self.operator.told[node].get_or_insert_with(|| (**identity).clone());
        self.history.place(identity.node, node);
        self.replace_lost(node, identity);
        let mut founders = self.operator.told.iter().take(self.operator.founders);
        if self.operator.genesis.is_none() && founders.all(Option::is_some) {
            self.found();
        }
    }

    fn found(&mut self) {
        let founders = self.operator.told.iter().take(self.operator.founders);
        let mut members: Vec<Member> = founders.flatten().map(Operator::member).collect();
        members.sort_by_key(|member| member.node);
        let (partitions, replicas) = (self.options.partitions as u32, self.options.replicas as u32);
        let assignment = ring::assign(&members, partitions, replicas);
        let (cluster, name) = (self.operator.cluster, "simulated".to_owned());
        let genesis = Genesis { cluster, name, partitions, replicas, members, assignment };
        self.history.found(genesis.clone());
        self.line(format_args!("operator founds {genesis:?}"));
        let options = &self.options;
        let terms = Terms {
            fencing: options.clock_fencing,
            archives: options.archives,
            retains: options.retain_ms >= Config::default().retention.default_ms && !options.wild_wall_clock,
            steady: options.jump_mean_ms + options.strobe_mean_ms + options.bad_jump_percent == 0
                && !options.wild_wall_clock,
            wild: options.wild_wall_clock,
            even: !options.wild_monotonic,
            sound: options.disks_are_sound(),
            calm: options.calm,
            everywhere: options.replicas == options.nodes,
            clockless: options.wild_wall_clock && options.wild_monotonic,
            silent_us: options.election_timeout_ms * 1_000,
        };
        self.tell(Happening::Founded(terms));
        self.operator.genesis = Some(genesis);
        self.want_holders();
        self.want_dead_letters();
        self.want_limits();
        self.want_claims_limited();
    }
}
