//! Values that the operations work on.

use anyhow::Result;
use norn_model::task::{Completed, Task};
use norn_wire::random::Random;
use norn_wire::request::Spec;
use norn_wire::response::{Genesis, Member};
use norn_wire::{ClusterId, NodeId, QueueName, TaskId, Token};
use std::sync::Arc;

/// Bytes of a task.
pub const PAYLOAD_BYTES: usize = 256;
/// Wall clock at the beginning.
pub const WALL_MS: u64 = 1_700_000_000_000;
/// Name of the only queue.
pub const QUEUE: &str = "mail";
/// Partitions of a cluster.
pub const PARTITIONS: u32 = 4;

/// Ids as clients mint them: a time, a counter and a random tag of 24 bits.
pub fn ids() -> impl Iterator<Item = TaskId> {
    let mut random = Random::new(7);
    (0..).map(move |number: u64| TaskId::new(WALL_MS + number, number as u32, 7, random.bits() as u32 >> 8))
}

pub fn spec() -> Result<Spec> {
    Ok(Spec::new(QueueName::new(QUEUE)?, vec![b'x'; PAYLOAD_BYTES]))
}

pub fn task() -> Result<Task> {
    Ok(Task::from_spec(Arc::new(spec()?)))
}

pub fn completion(token: Token) -> Task {
    Task::from_completion(token, Completed { sequence: None, result: None, at_ms: WALL_MS, children: None })
}

pub fn node_id(place: usize) -> NodeId {
    NodeId(place as u128 + 1)
}

/// A cluster of these many nodes, each of which has a replica of each partition.
pub fn genesis(nodes: usize) -> Genesis {
    let member = |place: usize| Member {
        node: node_id(place),
        incarnation: 1,
        address: format!("n{place}:7400"),
        name: format!("n{place}"),
        zone: String::new(),
    };
    let members: Vec<Member> = (0..nodes).map(member).collect();
    Genesis {
        cluster: ClusterId(1),
        name: "counts".into(),
        partitions: PARTITIONS,
        replicas: nodes as u32,
        assignment: norn_model::ring::assign(&members, PARTITIONS, nodes as u32),
        members,
    }
}
