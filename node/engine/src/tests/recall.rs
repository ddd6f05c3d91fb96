//! Grants whose answer is lost with a node: the call gets them all the same, and nothing else in their place. Grants that the call has
//! found again are not taken back from it.

use super::*;
use norn_model::message::{Claiming, Replication};
use norn_wire::Granted;
use std::cell::Cell;

pub(super) const FIRST: u32 = 0;
/// In other partitions, so that each node leads some of them.
const OTHERS: [u32; 7] = [0x20_0000, 0x40_0000, 0x60_0000, 0x80_0000, 0xA0_0000, 0xC0_0000, 0xE0_0000];

impl Cluster {
    /// Advances time; some messages to nodes are lost.
    pub(super) fn advance_losing(&mut self, ms: u64, is_lost: impl Fn(usize, &PeerMessage) -> bool) {
        let is_lost =
            |(to, event): &(usize, Event)| matches!(event, Event::Peer { message, .. } if is_lost(*to, message));
        for _ in 0..ms {
            self.now.mono_us += 1_000;
            self.now.wall_ms += 1;
            let is_due = |index: &usize| self.nodes[*index].next_wake().is_some_and(|at_us| at_us <= self.now.mono_us);
            self.queue.extend((0..self.nodes.len()).filter(is_due).map(|index| (index, Event::Wake)));
            while self.queue.front().is_some() {
                self.queue.retain(|event| !is_lost(event));
                self.handle_next();
            }
        }
    }
}

/// A cluster with a task that is claimed first, its leader, and others that may be claimed in its place.
pub(super) fn cluster_of_many() -> (Cluster, TaskId, usize) {
    with_many(Cluster::modern(3), b"")
}

pub(super) fn with_many(mut cluster: Cluster, payload: &[u8]) -> (Cluster, TaskId, usize) {
    cluster.connect_all();
    let mut enqueue = |priority: i32, tag: u32| {
        let id = cluster.id(tag);
        let tasks = vec![NewTask { id, spec: spec(payload, priority) }];
        assert!(matches!(cluster.ask(0, Request::Enqueue { tasks, acks: Acks::All }), Response::Acked(_)));
        id
    };
    let first = enqueue(7, FIRST);
    for tag in OTHERS {
        enqueue(0, tag);
    }
    cluster.advance(1_000);
    let leader = cluster.leader(&first);
    (cluster, first, leader)
}

/// Number of held tasks, as far as a node knows.
fn held(cluster: &mut Cluster, index: usize) -> u64 {
    let queue = QueueName::new("mail").ok();
    match cluster.ask(index, Request::Count { queue, state: Some(State::Claimed) }) {
        Response::Count(count) => count,
        other => panic!("{other:?}"),
    }
}

fn granted(cluster: &mut Cluster, number: u64) -> Vec<TaskId> {
    granted_tasks(cluster, number).iter().map(|task| task.id).collect()
}

pub(super) fn granted_tasks(cluster: &mut Cluster, number: u64) -> Vec<Granted> {
    cluster.run_until(|cluster| cluster.replies.contains_key(&number));
    match cluster.replies.remove(&number) {
        Some(Response::Claimed { tasks, .. }) => tasks,
        other => panic!("{other:?}"),
    }
}

/// The node that the client uses is the leader, and is gone when it has granted.
#[test]
fn a_claim_that_is_repeated_elsewhere_waits_for_the_next_leader() {
    let (mut cluster, first, leader) = cluster_of_many();
    let claim = claim_of(ClaimId(77), 600_000, 1);
    let lost = cluster.submit(leader, Request::Claim(claim.clone()));
    assert_eq!(granted(&mut cluster, lost), [first]);
    cluster.down.insert(leader);
    let next = (leader + 1) % 3;
    cluster.run_until(|cluster| !cluster.nodes[next].is_reachable(NodeId(leader as u128 + 1)));
    assert_eq!(cluster.nodes[next].leader_of(cluster.nodes[next].partition_of(&first)), None, "nobody leads yet");
    let number = cluster.submit(next, Request::Claim(Claim { repeated: true, ..claim }));
    assert_eq!(granted(&mut cluster, number), [first]);
    assert_eq!(held(&mut cluster, next), 1);
}

/// Starts a claim of one task at a node; returns its number once a certain message to a node is on its way.
pub(super) fn claim_until(
    cluster: &mut Cluster,
    broker: usize,
    to: usize,
    wanted: fn(&PeerMessage) -> bool,
    count: usize,
) -> u64 {
    let number = ask_until(cluster, broker, claim_of(ClaimId(77), 600_000, 1), (to, wanted, count));
    cluster.queue.retain(|event| !is_on_its_way(event, to, wanted));
    number
}

/// The same for any claim, and without lost messages.
pub(super) fn ask_until(
    cluster: &mut Cluster,
    broker: usize,
    claim: Claim,
    (to, wanted, count): (usize, fn(&PeerMessage) -> bool, usize),
) -> u64 {
    let number = cluster.post(broker, Request::Claim(claim));
    while cluster.queue.iter().filter(|event| is_on_its_way(event, to, wanted)).count() < count {
        assert!(cluster.handle_next(), "it is sent");
    }
    number
}

pub(super) fn is_on_its_way((at, event): &(usize, Event), to: usize, wanted: fn(&PeerMessage) -> bool) -> bool {
    *at == to && matches!(event, Event::Peer { message, .. } if wanted(message))
}

pub(super) fn is_answer(message: &PeerMessage) -> bool {
    matches!(message, PeerMessage::Claiming(Claiming::GrantAnswer { .. }))
}

pub(super) fn is_ack(message: &PeerMessage) -> bool {
    matches!(message, PeerMessage::Replication(Replication::Ack { .. }))
}

/// The leader is gone when it has granted, and another node has asked it.
#[test]
fn a_leader_that_is_gone_is_asked_about_at_its_successor() {
    let (mut cluster, first, leader) = cluster_of_many();
    let broker = (leader + 1) % 3;
    let number = claim_until(&mut cluster, broker, broker, is_answer, 1);
    cluster.down.insert(leader);
    cluster.drain();
    assert_eq!(granted(&mut cluster, number), [first]);
    assert_eq!(held(&mut cluster, broker), 1);
}

/// The leader is back before its absence is noticed; it does not know the questions that it was asked, nor does it lead any more.
#[test]
fn a_leader_that_restarts_is_asked_about_at_its_successor() {
    let (mut cluster, first, leader) = cluster_of_many();
    let broker = (leader + 1) % 3;
    let number = claim_until(&mut cluster, broker, broker, is_answer, 1);
    cluster.restart(leader);
    assert_eq!(granted(&mut cluster, number), [first]);
    assert_eq!(held(&mut cluster, broker), 1);
}

/// Whether the first task is held, and under which token.
fn holder(cluster: &mut Cluster, index: usize, first: TaskId) -> (State, Option<Token>) {
    let view = cluster.get(index, first);
    (view.state, view.claims.last().map(|claim| claim.token))
}

/// Two brokers are granted the same before it is committed, and the client of the first is gone: the second one's client has it.
#[test]
fn a_grant_that_another_broker_has_found_again_is_not_given_back() {
    let (mut cluster, first, leader) = cluster_of_many();
    let (one, other) = ((leader + 1) % 3, (leader + 2) % 3);
    claim_until(&mut cluster, one, leader, is_ack, 2);
    cluster.queue.push_back((one, Event::ClientGone { client: CLIENT }));
    let claim = Claim { repeated: true, ..claim_of(ClaimId(77), 600_000, 1) };
    let number = cluster.submit(other, Request::Claim(claim));
    let tasks = granted_tasks(&mut cluster, number);
    assert_eq!(tasks.iter().map(|task| task.id).collect::<Vec<_>>(), [first]);
    cluster.advance(1_000);
    assert_eq!(holder(&mut cluster, other, first), (State::Claimed, Some(tasks[0].token)));
}

/// The same, and at the deadline the leader voids what it could not answer to the first broker.
#[test]
fn a_grant_that_another_broker_has_found_again_is_not_taken_back_at_the_deadline() {
    let (mut cluster, first, leader) = cluster_of_many();
    let (one, other) = ((leader + 1) % 3, (leader + 2) % 3);
    let late_ms = cluster.nodes[leader].config.request_timeout_ms / 4;
    claim_until(&mut cluster, one, leader, is_ack, 2);
    let is_lost = |to: usize, message: &PeerMessage| to == leader && is_ack(message);
    cluster.advance_losing(late_ms, is_lost);
    let claim = Claim { repeated: true, ..claim_of(ClaimId(77), 600_000, 1) };
    let number = ask_until(&mut cluster, other, claim, (leader, is_ack, 1));
    cluster.advance_losing(late_ms + 100, is_lost);
    assert!(!cluster.replies.contains_key(&number), "nothing is committed");
    let tasks = granted_tasks(&mut cluster, number);
    assert_eq!(tasks.iter().map(|task| task.id).collect::<Vec<_>>(), [first]);
    assert_eq!(holder(&mut cluster, other, first), (State::Claimed, Some(tasks[0].token)));
    let voided = |(_, observation): &(usize, Observation)| matches!(observation, Observation::Voided { .. });
    assert!(!cluster.observed.iter().any(voided), "another broker was told of it");
}

/// A client has its task, claims again through another node, and is gone before that answer: the first answer still counts.
#[test]
fn a_grant_that_was_only_found_again_is_not_given_back() {
    let (mut cluster, first, leader) = cluster_of_many();
    let (one, other) = ((leader + 1) % 3, (leader + 2) % 3);
    let claim = claim_of(ClaimId(77), 600_000, 1);
    let number = cluster.submit(one, Request::Claim(claim.clone()));
    let tasks = granted_tasks(&mut cluster, number);
    let is_found = |message: &PeerMessage| {
        matches!(message, PeerMessage::Claiming(Claiming::GrantAnswer { tasks, .. })
        if !tasks.is_empty())
    };
    ask_until(&mut cluster, other, Claim { repeated: true, ..claim }, (other, is_found, 1));
    cluster.queue.push_front((other, Event::ClientGone { client: CLIENT }));
    cluster.advance(1_000);
    assert_eq!(holder(&mut cluster, one, first), (State::Claimed, Some(tasks[0].token)));
}

/// The leader has yet to drop the claim of an ended task: the call gets another one in its place, at once.
#[test]
fn a_claim_of_a_task_that_has_ended_is_not_found_again() {
    let mut cluster = Cluster::modern(3);
    let [first, second] = [(); 2].map(|()| cluster.enqueue(0, b"x", FIRST));
    cluster.advance(1_000);
    let claim = claim_of(ClaimId(77), 600_000, 1);
    let number = cluster.submit(1, Request::Claim(claim.clone()));
    let tasks = granted_tasks(&mut cluster, number);
    assert_eq!(tasks[0].id, first);
    assert!(matches!(cluster.complete(0, first, tasks[0].token), Response::Acked(_)));
    let leader = cluster.leader(&first);
    assert_eq!(cluster.replica_of(leader, &first).consensus.held_by(claim.claim), [first]);
    let number = cluster.submit(1, Request::Claim(Claim { repeated: true, ..claim.clone() }));
    cluster.advance(20);
    assert!(cluster.replies.contains_key(&number), "it is not told of what it cannot have");
    assert_eq!(granted(&mut cluster, number), [second]);
    cluster.advance(1_000);
    assert_eq!(cluster.replica_of(leader, &first).consensus.held_by(claim.claim), [second]);
}

/// The leader steps down when others have the grant, and does not know that. The broker is the leader itself or another node.
#[test]
fn what_a_leader_was_about_to_grant_is_asked_for_at_its_successor() {
    for away in [0, 1] {
        let (mut cluster, first, leader) = cluster_of_many();
        let broker = (leader + away) % 3;
        let number = claim_until(&mut cluster, broker, leader, is_ack, 2);
        let partition = cluster.nodes[leader].partition_of(&first);
        cluster.nodes[leader].step_down(partition, "it is told to");
        assert_eq!(granted(&mut cluster, number), [first]);
        assert_eq!(held(&mut cluster, broker), 1);
    }
}

/// Goal: a doubt outlives the answer that carried it. Method: the same, and that answer is lost; the node does not lead the partition
/// any more when it is asked again.
#[test]
fn what_a_leader_doubted_in_a_lost_answer_is_asked_for_at_its_successor() {
    let (mut cluster, first, leader) = cluster_of_many();
    let broker = (leader + 1) % 3;
    let number = claim_until(&mut cluster, broker, leader, is_ack, 2);
    let partition = cluster.nodes[leader].partition_of(&first);
    cluster.nodes[leader].step_down(partition, "it is told to");
    let lost = Cell::new(0);
    let is_first = |to: usize, message: &PeerMessage| to == broker && is_answer(message) && lost.replace(1) == 0;
    cluster.advance_losing(cluster.nodes[broker].config.resend_ms / 2, is_first);
    assert_eq!((lost.get(), cluster.replies.contains_key(&number)), (1, false));
    assert_eq!(granted(&mut cluster, number), [first]);
    assert_eq!(held(&mut cluster, broker), 1);
}

/// The answer is lost, and when the broker asks again another node leads the task's partition.
#[test]
fn what_was_in_a_lost_answer_is_asked_for_at_the_next_leader() {
    let (mut cluster, first, leader) = cluster_of_many();
    let broker = (leader + 1) % 3;
    let number = claim_until(&mut cluster, broker, broker, is_answer, 1);
    let partition = cluster.nodes[leader].partition_of(&first);
    cluster.nodes[leader].step_down(partition, "it is told to");
    assert_eq!(granted(&mut cluster, number), [first]);
    assert_eq!(held(&mut cluster, broker), 1);
}

/// Goal: a successor may hold the grants that a leader has voided. Method: the followers have the grant when the leader's time for it
/// is over, but not its void, when the leader is gone.
#[test]
fn what_a_leader_took_back_for_itself_alone_is_asked_for_at_its_successor() {
    let (mut cluster, first, leader) = cluster_of_many();
    let broker = (leader + 1) % 3;
    let claim = Claim { wait_ms: 20_000, ..claim_of(ClaimId(77), 600_000, 1) };
    let number = ask_until(&mut cluster, broker, claim, (leader, is_ack, 2));
    cluster.queue.retain(|event| !is_on_its_way(event, leader, is_ack));
    let of_first = cluster.nodes[leader].partition_of(&first);
    let is_lost = |_: usize, message: &PeerMessage| match message {
        PeerMessage::Replication(Replication::Ops { partition, .. } | Replication::Ack { partition, .. }) => {
            *partition == of_first
        }
        _ => false,
    };
    cluster.advance_losing(cluster.nodes[leader].config.request_timeout_ms / 2 + 100, is_lost);
    let voided = |(_, observation): &(usize, Observation)| matches!(observation, Observation::Voided { .. });
    assert!(cluster.observed.iter().any(voided), "it has taken it back");
    cluster.down.insert(leader);
    assert_eq!(granted(&mut cluster, number), [first]);
    assert_eq!(held(&mut cluster, broker), 1);
}

/// The leader is gone for longer than the broker looks for its grants, and comes back while the call waits for work.
#[test]
fn a_leader_that_comes_late_is_asked_while_the_call_waits() {
    let mut cluster = Cluster::modern(3);
    cluster.connect_all();
    let first = cluster.enqueue(0, b"x", FIRST);
    cluster.advance(1_000);
    let claim = claim_of(ClaimId(77), 600_000, 1);
    let leader = cluster.leader(&first);
    let lost = cluster.submit(leader, Request::Claim(claim.clone()));
    assert_eq!(granted(&mut cluster, lost), [first]);
    let broker = (leader + 1) % 3;
    cluster.down.extend((0..3).filter(|index| *index != broker));
    cluster.advance(1_000);
    let again = Claim { repeated: true, wait_ms: 20_000, ..claim };
    let number = cluster.submit(broker, Request::Claim(again));
    cluster.advance(3_000);
    assert!(!cluster.replies.contains_key(&number), "it waits");
    cluster.down.clear();
    cluster.connect_all();
    let partition = cluster.nodes[broker].partition_of(&first);
    cluster.run_until(|cluster| cluster.nodes[broker].leader_of(partition).is_some());
    let led_us = cluster.now.mono_us;
    assert_eq!(granted(&mut cluster, number), [first]);
    assert!(cluster.now.mono_us < led_us + 1_500_000, "nothing else wakes the call");
}

/// Goal: an answer that has all that was asked for reports no partitions as left, though most were not asked.
#[test]
fn a_call_that_has_found_all_again_has_left_nothing() {
    let (mut cluster, first, leader) = cluster_of_many();
    let claim = claim_of(ClaimId(77), 600_000, 1);
    let number = cluster.submit(leader, Request::Claim(claim.clone()));
    assert_eq!(granted(&mut cluster, number), [first]);
    for index in 0..3 {
        let number = cluster.submit(index, Request::Claim(Claim { repeated: true, ..claim.clone() }));
        cluster.run_until(|cluster| cluster.replies.contains_key(&number));
        let Some(Response::Claimed { tasks, left, .. }) = cluster.replies.remove(&number) else { panic!() };
        assert_eq!((tasks.len(), left), (1, 0));
    }
}

/// Goal: a client that has all that it asked for learns that it holds more, so that it gives that back. Method: it asks for less than
/// its call was granted.
#[test]
fn a_call_that_holds_more_than_it_is_told_has_left_something() {
    let mut cluster = Cluster::modern(3);
    cluster.connect_all();
    let both = [(); 2].map(|()| cluster.enqueue(0, b"x", FIRST));
    cluster.advance(1_000);
    let claim = claim_of(ClaimId(77), 600_000, 2);
    let number = cluster.submit(1, Request::Claim(claim.clone()));
    assert_eq!(granted(&mut cluster, number), both);
    for index in 0..3 {
        let number = cluster.submit(index, Request::Claim(Claim { repeated: true, max: 1, ..claim.clone() }));
        cluster.run_until(|cluster| cluster.replies.contains_key(&number));
        let Some(Response::Claimed { tasks, left, .. }) = cluster.replies.remove(&number) else { panic!() };
        assert_eq!((tasks.len(), left), (1, 1));
    }
}

/// If a partition has no majority, tasks of others are granted all the same, a little later.
#[test]
fn a_leader_that_never_comes_is_not_waited_for_for_long() {
    let (mut cluster, _, leader) = cluster_of_many();
    let next = (leader + 1) % 3;
    cluster.down.extend((0..3).filter(|index| *index != next));
    cluster.advance(1_000);
    let before_us = cluster.now.mono_us;
    let claim = Claim { repeated: true, ..claim_of(ClaimId(77), 600_000, 1) };
    let number = cluster.submit(next, Request::Claim(claim));
    cluster.run_until(|cluster| cluster.replies.contains_key(&number));
    let Some(Response::Claimed { tasks, unavailable, left }) = cluster.replies.remove(&number) else { panic!() };
    assert_eq!((tasks, unavailable, left), (Vec::new(), PARTITIONS, PARTITIONS), "it may hold something everywhere");
    assert!(cluster.now.mono_us < before_us + 2_400_000, "clients wait for longer");
}
