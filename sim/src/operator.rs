//! The operator: asks every node who it is, makes the founding record and gives it to each founder until it is taken; later
//! adds the others, has members drained, and has partitions moved.

use crate::adapter::ring;
use crate::history::Happening;
use crate::process::OPERATOR;
use crate::world::{Event, World};
use norn_client::wire::membership::{Candidate, ClusterChange, Membership};
use norn_client::wire::response::{Genesis, Identity, Member, Response};
use norn_client::wire::{ClusterId, NodeId, PartitionId, Request};

/// Between looks at a node.
const INTERVAL_US: u64 = 300_000;

/// See the module.
#[derive(Debug)]
pub struct Operator {
    cluster: ClusterId,
    told: Vec<Option<Identity>>,
    founded: Vec<bool>,
    genesis: Option<Genesis>,
    /// The first so many nodes found the cluster.
    founders: usize,
    /// What those must know that were added.
    latest: Option<Membership>,
    /// How often each node was asked.
    numbers: Vec<u64>,
}

impl Operator {
    /// Knows nothing yet.
    pub fn new(nodes: usize, founders: usize, cluster: u128) -> Self {
        Operator {
            founders,
            latest: None,
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

    /// Every founder has taken the founding record.
    pub fn done(&self) -> bool {
        self.founded.iter().take(self.founders).all(|founded| *founded)
    }

    /// What a node should be given that told who it is.
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

    /// A node answers the operator.
    pub fn operator_answer(&mut self, node: usize, response: &Response) {
        if let Response::Changed(changed) = response {
            self.count("sometimes: the cluster was changed");
            let version = |of: &Option<Membership>| of.as_ref().map_or(0, |latest| latest.roster.version);
            let later = changed.membership.as_deref().cloned();
            if version(&later) > version(&self.operator.latest) {
                self.operator.latest = later;
            }
        }
        let Response::Identity(identity) = response else { return };
        self.operator.founded[node] |= identity.genesis.is_some();
        self.operator.told[node].get_or_insert_with(|| (**identity).clone());
        self.history.place(identity.node, node);
        let mut founders = self.operator.told.iter().take(self.operator.founders);
        if self.operator.genesis.is_none() && founders.all(Option::is_some) {
            self.found();
        }
    }

    /// Asks a node to move a partition to others, and does not wait for what comes of it.
    pub fn move_partition(&mut self, node: usize) {
        let Some(genesis) = &self.operator.genesis else { return };
        let options = &self.options;
        // With fewer than three replicas none can give back what the disk of another loses.
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
        self.operator.numbers[node] += 1;
        let number = self.operator.numbers[node];
        self.count("sometimes: a partition is to move");
        self.ask_node(node, OPERATOR - node as u64, number, Request::Arrange { partition, nodes });
    }

    /// Asks for a change of the cluster by a node, and does not wait for what comes of it. Nobody is taken for gone: a disk
    /// that is removed has what others may lack.
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
        self.operator.numbers[node] += 1;
        let number = self.operator.numbers[node];
        self.count("sometimes: the cluster is to change");
        let request = Request::Change { change: Box::new(change), dry_run: false };
        self.ask_node(node, OPERATOR - node as u64, number, request);
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
        let (fencing, archives) = (self.options.clock_fencing, self.options.archives);
        self.tell(Happening::Founded { fencing, archives });
        self.operator.genesis = Some(genesis);
    }
}

fn candidate(identity: Identity) -> Candidate {
    let Identity { node, incarnation, name, address, zone, .. } = identity;
    Candidate { cluster: None, node, incarnation, name, address, zone, weight: 1 }
}
