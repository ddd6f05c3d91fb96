//! The operator: asks every node who it is, makes the founding record and gives it to each until it is taken.

use crate::adapter::ring;
use crate::history::Happening;
use crate::process::OPERATOR;
use crate::world::{Event, World};
use norn_client::wire::response::{Genesis, Identity, Member, Response};
use norn_client::wire::{ClusterId, Request};

/// Between looks at a node.
const INTERVAL_US: u64 = 300_000;

/// See the module.
#[derive(Debug)]
pub struct Operator {
    cluster: ClusterId,
    told: Vec<Option<Identity>>,
    founded: Vec<bool>,
    genesis: Option<Genesis>,
    /// How often each node was asked.
    numbers: Vec<u64>,
}

impl Operator {
    /// Knows nothing yet.
    pub fn new(nodes: usize, cluster: u128) -> Self {
        Operator {
            cluster: ClusterId(cluster),
            told: vec![None; nodes],
            founded: vec![false; nodes],
            genesis: None,
            numbers: vec![0; nodes],
        }
    }

    /// The node has told who it is.
    pub fn knows(&self, node: usize) -> bool {
        self.told[node].is_some()
    }

    /// Every node has taken the founding record.
    pub fn done(&self) -> bool {
        self.founded.iter().all(|founded| *founded)
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
        let known = self.operator.told[node].is_some();
        let request = match &self.operator.genesis {
            Some(genesis) if known && number.is_multiple_of(2) => Request::Initialize(Box::new(genesis.clone())),
            _ => Request::Identify,
        };
        self.ask_node(node, OPERATOR - node as u64, number, request);
        self.schedule_in(INTERVAL_US, Event::Operate { node });
    }

    /// A node answers the operator.
    pub fn operator_answer(&mut self, node: usize, response: &Response) {
        let Response::Identity(identity) = response else { return };
        self.operator.founded[node] |= identity.genesis.is_some();
        self.operator.told[node].get_or_insert_with(|| (**identity).clone());
        if self.operator.genesis.is_none() && self.operator.told.iter().all(Option::is_some) {
            self.found();
        }
    }

    fn found(&mut self) {
        let mut members: Vec<Member> = self.operator.told.iter().flatten().map(Operator::member).collect();
        members.sort_by_key(|member| member.node);
        let (partitions, replicas) = (self.options.partitions as u32, self.options.replicas as u32);
        let assignment = ring::assign(&members, partitions, replicas);
        let (cluster, name) = (self.operator.cluster, "simulated".to_owned());
        let genesis = Genesis { cluster, name, partitions, replicas, members, assignment };
        let places = genesis.members.iter().filter_map(|member| Some((member.node, self.place_of(member.node)?)));
        self.history.found(genesis.clone(), places.collect());
        self.line(format_args!("operator founds {genesis:?}"));
        let (fencing, archives) = (self.options.clock_fencing, self.options.archives);
        self.tell(Happening::Founded { fencing, archives });
        self.operator.genesis = Some(genesis);
    }
}
