//! Three nodes in one process with a perfect network and disk: the normal course of events, and single scripted faults. Everything
//! random belongs to the simulator.

use super::*;
use crate::context::timers::Key;
use crate::event::ClientId;
use norn_model::message::{DiskStatus, Election, Heartbeat, LogPosition};
use norn_model::replica::Partition;
use norn_model::task::{Filling, Place, Wanted};
use norn_wire::TaskId;
use norn_wire::error::Error;
use norn_wire::membership::ClusterChange;
use norn_wire::request::Spec;
use norn_wire::response::{Member, Standing};
use norn_wire::{
    Acks, Claim, ClaimId, ClusterId, Completion, ErrorCode, NewTask, QueueName, Request, Response, State, TaskView,
    Token,
};
use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU32;

pub mod across;
pub mod ages;
pub mod agreement;
pub mod attempts;
pub mod bodies;
pub mod bursts;
pub mod children;
pub mod claim_limits;
pub mod claim_rates;
pub mod clocks;
pub mod closed;
pub mod cluster;
pub mod confirm;
pub mod copy;
pub mod dead_letters;
pub mod delays;
pub mod dependencies;
pub mod disk;
pub mod endings;
pub mod fairness;
pub mod far;
pub mod forgetting;
pub mod giving_back;
pub mod groups;
pub mod handover;
pub mod heads;
pub mod healing;
pub mod hints;
pub mod keys;
pub mod leaders;
pub mod levels;
pub mod limits;
pub mod loans;
pub mod loss;
pub mod losses;
pub mod measures;
pub mod memory;
pub mod open_logs;
pub mod outcomes;
pub mod pace;
pub mod policies;
pub mod purging;
pub mod reads;
pub mod recall;
pub mod rescue;
pub mod restarts;
pub mod results;
pub mod seals;
pub mod sessions;
pub mod silent;
pub mod slots;
pub mod transactions;
pub mod uniques;
pub mod unreached;
pub mod versions;
pub mod waiting;
pub mod watches;

const CLIENT: ClientId = ClientId(1);
const PARTITIONS: u32 = 4;

/// A cluster whose clocks, links and disks follow the script.
struct Cluster {
    nodes: Vec<Node>,
    now: Now,
    queue: VecDeque<(usize, Event)>,
    replies: BTreeMap<u64, Response>,
    observed: Vec<(usize, Observation)>,
    down: BTreeSet<usize>,
    /// Records that are durable, by node.
    logs: Vec<Vec<Record>>,
    /// Records whose bodies cannot be read, by node.
    unreadable: BTreeSet<(usize, usize)>,
    /// Failed reads do not show whether the log has lost something.
    unread: bool,
    /// Bodies that were loaded.
    loads: usize,
    archived: Vec<TaskView>,
    number: u64,
    minted: u32,
    /// Events so far, and after how many a node is checked: a check takes time in proportion to its tasks.
    events: u64,
    check_every: u64,
}

/// Location of a record in a log, by its index.
fn place(index: usize) -> Place {
    Place { file: NonZeroU32::MIN, offset: index as u64 }
}

fn founding(index: usize) -> Founding {
    Founding {
        config: Config::default(),
        node: NodeId(index as u128 + 1),
        incarnation: 7,
        name: format!("n{index}"),
        address: format!("n{index}:7400"),
        zone: String::new(),
    }
}

impl Cluster {
    fn new(size: usize) -> Cluster {
        Cluster::with_config(size, &Config::default())
    }

    fn with_config(size: usize, config: &Config) -> Cluster {
        let founding_of = |index| Founding { config: config.clone(), ..founding(index) };
        let mut cluster = Cluster {
            nodes: (0..size).map(|index| Node::new(founding_of(index), index as u64)).collect(),
            now: Now { mono_us: 1_000_000, wall_ms: 1_700_000_000_000 },
            queue: VecDeque::new(),
            replies: BTreeMap::new(),
            observed: Vec::new(),
            down: BTreeSet::new(),
            logs: vec![Vec::new(); size],
            unreadable: BTreeSet::new(),
            unread: false,
            loads: 0,
            archived: Vec::new(),
            number: 0,
            minted: 0,
            events: 0,
            check_every: 1,
        };
        for index in 0..size {
            let mut effects = Vec::new();
            cluster.nodes[index].start(cluster.now, 1, &mut effects);
            cluster.carry_out(index, effects);
        }
        let members: Vec<Member> = (0..size)
            .map(founding)
            .map(|own| Member { node: own.node, incarnation: 7, address: own.address, name: own.name, zone: own.zone })
            .collect();
        let genesis = Genesis {
            cluster: ClusterId(1),
            name: "test".into(),
            partitions: PARTITIONS,
            replicas: 3,
            assignment: norn_model::ring::assign(&members, PARTITIONS, 3),
            members,
        };
        for index in 0..size {
            let response = cluster.ask(index, Request::Initialize(Box::new(genesis.clone())));
            assert_eq!(response, Response::Done);
        }
        cluster.run_until(|cluster| cluster.nodes.iter().all(Node::is_serving));
        cluster
    }

    fn carry_out(&mut self, index: usize, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Persist { ticket, records } => {
                    let first = self.logs[index].len();
                    let facts = records.iter().enumerate().filter(|(_, record)| matches!(record, Record::Facts { .. }));
                    let places = facts.map(|(at, _)| Some(place(first + at))).collect();
                    self.logs[index].extend(records);
                    let durable = self.logs[index].len() as u64;
                    self.queue.push_back((index, Event::Persisted { ticket, places, durable }));
                }
                Effect::Load { number, wanted } => {
                    let bodies = wanted.iter().map(|wanted| self.body(index, wanted)).collect();
                    self.loads += wanted.len();
                    self.queue.push_back((index, Event::Loaded { number, bodies, unread: self.unread }));
                }
                Effect::Send { to, message } => {
                    let from = NodeId(index as u128 + 1);
                    self.queue.push_back((to.0 as usize - 1, Event::Peer { from, message }));
                }
                Effect::Reply { number, response, .. } => {
                    self.replies.insert(number, response);
                }
                Effect::Observe(observation) => self.observed.push((index, observation)),
                Effect::Archive { partition, number, tasks } => {
                    self.archived.extend(tasks);
                    self.queue.push_back((index, Event::Archived { partition, number, done: true }));
                }
                Effect::Halt { reason } => panic!("node {index} halted: {reason}"),
                Effect::Joined { .. } | Effect::Stopped => {}
            }
        }
    }

    /// Body of a task in a record of a node's log.
    fn body(&self, index: usize, wanted: &Wanted) -> Option<Filling> {
        let at = wanted.place.offset as usize;
        let Record::Facts { items, .. } = &self.logs[index][at] else { panic!("places are of facts") };
        let of_task = items.iter().filter(|(id, _)| *id == wanted.id && !self.unreadable.contains(&(index, at)));
        let found: Vec<Filling> = of_task.filter_map(|(_, task)| task.filling(wanted.slot)).collect();
        found.iter().find(|filling| wanted.is(filling)).or(found.first()).cloned()
    }

    /// Handles all queued events, at one instant.
    fn drain(&mut self) {
        while self.handle_next() {}
    }

    /// Handles the first queued event; returns `false` if none is left.
    fn handle_next(&mut self) -> bool {
        let Some((index, event)) = self.queue.pop_front() else { return false };
        if !self.down.contains(&index) {
            let mut effects = Vec::new();
            self.nodes[index].step(self.now, event, &mut effects);
            self.carry_out(index, effects);
            self.events += 1;
            if self.events.is_multiple_of(self.check_every) {
                self.nodes[index].check().unwrap_or_else(|violation| panic!("node {index}: {violation}"));
            }
        }
        true
    }

    fn advance(&mut self, ms: u64) {
        for _ in 0..ms {
            self.now.mono_us += 1_000;
            self.now.wall_ms += 1;
            for index in 0..self.nodes.len() {
                if self.nodes[index].next_wake().is_some_and(|at_us| at_us <= self.now.mono_us) {
                    self.queue.push_back((index, Event::Wake));
                }
            }
            self.drain();
        }
    }

    fn run_until(&mut self, done: impl Fn(&Cluster) -> bool) {
        for _ in 0..60_000 {
            if done(self) {
                return;
            }
            self.advance(1);
        }
        panic!("a minute passed and it did not come about");
    }

    fn submit(&mut self, index: usize, request: Request) -> u64 {
        self.number += 1;
        let principal = Principal { name: "tester".into(), node: false };
        self.queue.push_back((index, Event::Request { client: CLIENT, number: self.number, principal, request }));
        self.drain();
        self.number
    }

    fn ask(&mut self, index: usize, request: Request) -> Response {
        let number = self.submit(index, request);
        self.run_until(|cluster| cluster.replies.contains_key(&number));
        self.replies.remove(&number).expect("just seen")
    }

    fn id(&mut self, tag: u32) -> TaskId {
        self.minted += 1;
        TaskId::new(self.now.wall_ms, self.minted, 1, tag)
    }

    fn enqueue(&mut self, index: usize, payload: &[u8], tag: u32) -> TaskId {
        let id = self.id(tag);
        let tasks = vec![NewTask { id, spec: spec(payload, 0) }];
        let response = self.ask(index, Request::Enqueue { tasks, acks: Acks::Quorum });
        assert!(matches!(&response, Response::Acked(results) if results.iter().all(Result::is_ok)), "{response:?}");
        id
    }

    fn claim(&mut self, index: usize, lease_ms: u64) -> Vec<norn_wire::Granted> {
        self.number += 1;
        let claim = ClaimId(u128::from(self.number));
        match self.ask(index, Request::Claim(claim_of(claim, lease_ms, 1))) {
            Response::Claimed { tasks, unavailable, .. } => {
                assert_eq!(unavailable, 0);
                tasks
            }
            other => panic!("{other:?}"),
        }
    }

    fn complete(&mut self, index: usize, id: TaskId, token: Token) -> Response {
        let items = vec![Completion { id, token, sequence: None, result: None, at_ms: 5, children: Vec::new() }];
        self.ask(index, Request::Complete { items, acks: Acks::Quorum })
    }

    fn get(&mut self, index: usize, id: TaskId) -> norn_wire::TaskView {
        match self.ask(index, Request::Get { id, minimum: None, minimum_sequence: None }) {
            Response::Task(view) => *view,
            other => panic!("{other:?}"),
        }
    }

    fn leader(&self, id: &TaskId) -> usize {
        let partition = self.nodes[0].partition_of(id);
        (0..self.nodes.len())
            .find(|index| {
                !self.down.contains(index) && self.nodes[*index].partitions[&partition].consensus.established()
            })
            .expect("there is a leader")
    }

    /// Restarts a node: its process is gone, and what was durable stays.
    fn restart(&mut self, index: usize) {
        self.restart_drawing(index, 99);
    }

    /// The same, with another seed for the process.
    fn restart_drawing(&mut self, index: usize, seed: u64) {
        let effects = self.begin_restart(index, seed);
        self.end_restart(index, effects);
    }

    /// The same up to the first write of the process, before which it is not ready.
    fn begin_restart(&mut self, index: usize, seed: u64) -> Vec<Effect> {
        self.queue.retain(|(at, _)| *at != index);
        self.down.remove(&index);
        let config = Config::clone(&self.nodes[index].config);
        let mut node = Node::new(Founding { config, ..founding(index) }, seed);
        for (at, record) in self.logs[index].clone().into_iter().enumerate() {
            node.recover(record, false, Some(place(at))).expect("its own log");
        }
        let mut effects = Vec::new();
        node.start(self.now, self.logs[index].len() as u64, &mut effects);
        self.nodes[index] = node;
        effects
    }

    fn end_restart(&mut self, index: usize, effects: Vec<Effect>) {
        self.carry_out(index, effects);
        self.drain();
    }
}

pub(crate) fn spec(payload: &[u8], priority: i32) -> Spec {
    Spec { priority, ..Spec::new(QueueName::new("mail").unwrap(), payload.to_vec()) }
}

fn claim_of(claim: ClaimId, lease_ms: u64, max: u32) -> Claim {
    Claim {
        claim,
        repeated: false,
        queues: vec![QueueName::new("mail").unwrap()],
        lease_ms,
        wait_ms: 0,
        max,
        worker: "worker".into(),
        lease_open: false,
        session: None,
        depends: Vec::new(),
        confirms: false,
    }
}

// O3, O5, O12, S12, S25, S38, S53, C12: Skuld's walk-through.
#[test]
fn a_task_is_enqueued_claimed_expires_is_claimed_again_and_completed() {
    let mut cluster = Cluster::new(3);
    let count = Request::Count { queue: None, state: None };
    assert_eq!(cluster.ask(0, count.clone()), Response::Count(0));
    let id = cluster.enqueue(0, b"hello", 0x12_3456);
    assert_eq!(cluster.ask(1, count.clone()), Response::Count(1));
    let first = cluster.claim(1, 10_000).remove(0);
    assert_eq!((first.id, first.payload.as_slice(), first.attempt), (id, b"hello".as_slice(), 1));
    assert_eq!(cluster.claim(2, 10_000), Vec::new());
    cluster.advance(11_100);
    let second = cluster.claim(2, 10_000).remove(0);
    assert!(second.token > first.token);
    assert_eq!(second.attempt, 2);
    let response = cluster.complete(0, id, second.token);
    assert!(matches!(&response, Response::Acked(results) if results[0].as_ref().unwrap().acks >= 2), "{response:?}");
    cluster.advance(1_500);
    let view = cluster.get(1, id);
    assert_eq!(view.state, State::Done);
    let claims: Vec<(Token, Option<u64>)> = view.claims.iter().map(|claim| (claim.token, claim.completed_ms)).collect();
    assert_eq!(claims, [(first.token, None), (second.token, Some(5))]);
    assert_eq!(cluster.claim(0, 10_000), Vec::new());
}

/// A start counter that is not on disk may be used again: then answers to an earlier process would count for this one.
#[test]
fn a_node_says_nothing_before_its_start_is_on_disk() {
    let mut cluster = Cluster::new(3);
    let mut node = Node::new(founding(0), 5);
    for record in cluster.logs[0].clone() {
        node.recover(record, false, None).expect("its own log");
    }
    let mut effects = Vec::new();
    node.start(cluster.now, cluster.logs[0].len() as u64, &mut effects);
    cluster.advance(10);
    let vote = PeerMessage::Election(Election::PreVote {
        partition: PartitionId(0),
        epoch: 99,
        viewstamp: Default::default(),
    });
    node.step(cluster.now, Event::Peer { from: NodeId(2), message: vote }, &mut effects);
    node.step(cluster.now, Event::Wake, &mut effects);
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Send { .. })), "{effects:?}");
    node.step(cluster.now, Event::Persisted { ticket: Ticket(1), places: Vec::new(), durable: 0 }, &mut effects);
    node.step(cluster.now, Event::Wake, &mut effects);
    assert!(effects.iter().any(|effect| matches!(effect, Effect::Send { .. })));
}

#[test]
fn a_single_node_is_a_cluster() {
    let mut cluster = Cluster::new(1);
    let id = cluster.enqueue(0, b"x", 1);
    let granted = cluster.claim(0, 1_000).remove(0);
    assert!(matches!(cluster.complete(0, id, granted.token), Response::Acked(_)));
    assert_eq!(cluster.get(0, id).state, State::Done);
}

// S6, S17, S34, C13: within a partition strictly by priority, then by age.
#[test]
fn higher_priority_is_claimed_first_then_the_older() {
    let mut cluster = Cluster::new(3);
    let mut tasks = Vec::new();
    for priority in [0, 5, -3, 5] {
        let id = cluster.id(0);
        tasks.push(NewTask { id, spec: spec(b"", priority) });
    }
    let order = [tasks[1].id, tasks[3].id, tasks[0].id, tasks[2].id];
    cluster.ask(0, Request::Enqueue { tasks, acks: Acks::Quorum });
    let claimed: Vec<TaskId> = (0..4).map(|index| cluster.claim(index % 3, 5_000).remove(0).id).collect();
    assert_eq!(claimed, order);
}

// S33
#[test]
fn the_first_claim_of_a_queue_finds_the_highest_priority_of_all_nodes() {
    let mut cluster = Cluster::new(3);
    for (priority, tag) in [(0, 0x00_0000), (7, 0x40_0000), (3, 0x80_0000)] {
        let id = cluster.id(tag);
        let tasks = vec![NewTask { id, spec: spec(b"", priority) }];
        cluster.ask(0, Request::Enqueue { tasks, acks: Acks::Quorum });
    }
    for index in 0..3 {
        let granted = cluster.claim(index, 1_000);
        assert_eq!(granted[0].priority, 7, "node {index}");
        let release = Request::Release { id: granted[0].id, token: granted[0].token };
        assert_eq!(cluster.ask(0, release), Response::Done);
    }
}

#[test]
fn a_claim_with_max_takes_from_all_partitions_at_once() {
    let mut cluster = Cluster::new(3);
    let ids: BTreeSet<TaskId> = (0..12).map(|number| cluster.enqueue(0, b"x", number << 20)).collect();
    let Response::Claimed { tasks, .. } = cluster.ask(1, Request::Claim(claim_of(ClaimId(77), 5_000, 20))) else {
        panic!()
    };
    assert_eq!(tasks.iter().map(|task| task.id).collect::<BTreeSet<_>>(), ids);
    // A repeat of the same call gets the same tasks.
    let repeat = Claim { repeated: true, ..claim_of(ClaimId(77), 5_000, 20) };
    let Response::Claimed { tasks: again, .. } = cluster.ask(2, Request::Claim(repeat)) else { panic!() };
    let tokens = |tasks: &[norn_wire::Granted]| tasks.iter().map(|task| (task.id, task.token)).collect::<BTreeSet<_>>();
    assert_eq!(tokens(&again), tokens(&tasks));
}

#[test]
fn a_waiting_claim_is_answered_when_work_arrives() {
    let mut cluster = Cluster::new(3);
    let claim = Claim { wait_ms: 30_000, ..claim_of(ClaimId(5), 5_000, 1) };
    let number = cluster.submit(2, Request::Claim(claim));
    cluster.advance(3_000);
    assert!(!cluster.replies.contains_key(&number));
    let id = cluster.enqueue(0, b"x", 3);
    cluster.advance(20);
    match cluster.replies.remove(&number) {
        Some(Response::Claimed { tasks, .. }) => assert_eq!(tasks[0].id, id),
        other => panic!("{other:?}"),
    }
}

// T38, O4, O38, S20, S36
#[test]
fn a_renewal_prolongs_and_never_shortens() {
    let mut cluster = Cluster::new(3);
    let id = cluster.enqueue(0, b"x", 9);
    let granted = cluster.claim(0, 10_000).remove(0);
    cluster.advance(8_000);
    let renew = |lease_ms| Request::Renew { items: vec![(id, granted.token)], lease_ms };
    assert_eq!(cluster.ask(1, renew(None)), Response::Renewed(vec![Ok(10_000)]));
    assert_eq!(cluster.ask(2, renew(Some(200))), Response::Renewed(vec![Ok(10_000)]));
    cluster.advance(9_000);
    assert_eq!(cluster.claim(0, 1_000), Vec::new());
    cluster.advance(1_500);
    assert_eq!(cluster.claim(0, 1_000).len(), 1);
    match cluster.ask(0, renew(None)) {
        Response::Renewed(results) => assert_eq!(results[0].as_ref().unwrap_err().code, ErrorCode::Superseded),
        other => panic!("{other:?}"),
    }
}

// T12, T13, O16
#[test]
fn released_and_failed_tasks_come_back_and_invalid_ones_do_not() {
    let mut cluster = Cluster::new(3);
    let id = cluster.enqueue(0, b"x", 9);
    let first = cluster.claim(0, 10_000).remove(0);
    assert_eq!(cluster.ask(1, Request::Release { id, token: first.token }), Response::Done);
    assert_eq!(cluster.ask(2, Request::Release { id, token: first.token }), Response::Done);
    let second = cluster.claim(0, 10_000).remove(0);
    let fail = |token, retry_in_ms, invalid| Request::Fail {
        id,
        token,
        reason: "broken".into(),
        retry_in_ms,
        invalid,
        retry_open: false,
    };
    assert_eq!(cluster.ask(1, fail(second.token, 2_000, false)), Response::Done);
    assert_eq!(cluster.get(0, id).state, State::Waiting);
    assert_eq!(cluster.claim(0, 10_000), Vec::new());
    cluster.advance(2_100);
    let third = cluster.claim(0, 10_000).remove(0);
    assert_eq!(cluster.ask(1, fail(third.token, 0, true)), Response::Done);
    let view = cluster.get(2, id);
    assert_eq!((view.state, view.reason.as_deref()), (State::Dead, Some("invalid: broken")));
    assert_eq!(cluster.claim(0, 10_000), Vec::new());
    assert_eq!(view.claims.len(), 3);
}

// S21, S23, S26
#[test]
fn updates_are_visible_up_to_the_first_gap() {
    let mut cluster = Cluster::new(3);
    let id = cluster.enqueue(0, b"x", 9);
    let token = cluster.claim(0, 500).remove(0).token;
    for sequence in [0, 2] {
        let update = Request::Update { id, token, sequence, data: vec![sequence as u8], acks: Acks::Quorum };
        assert!(matches!(cluster.ask(1, update), Response::AckedOne(_)));
    }
    assert_eq!(cluster.get(2, id).updates.len(), 1);
    let update = Request::Update { id, token, sequence: 1, data: vec![1], acks: Acks::Quorum };
    cluster.ask(1, update);
    assert_eq!(cluster.get(2, id).updates.len(), 3);
    let other = Request::Update { id, token, sequence: 1, data: vec![9], acks: Acks::Quorum };
    match cluster.ask(1, other) {
        Response::Error(error) => assert_eq!(error.code, ErrorCode::Conflict),
        other => panic!("{other:?}"),
    }
    // The next worker sees the log of the earlier one.
    cluster.advance(700);
    assert_eq!(cluster.claim(0, 500).remove(0).updates.len(), 3);
}

#[test]
fn facts_about_unknown_tasks_are_not_acknowledged() {
    let mut cluster = Cluster::new(3);
    let id = cluster.id(5);
    match cluster.complete(0, id, Token { epoch: 1, number: 1 }) {
        Response::Acked(results) => assert_eq!(results[0].as_ref().unwrap_err().code, ErrorCode::NotFound),
        other => panic!("{other:?}"),
    }
}

// O7, S29, S41
#[test]
fn another_node_takes_over_and_no_claim_is_forgotten() {
    let mut cluster = Cluster::new(3);
    let held = cluster.enqueue(0, b"held", 9);
    let token = cluster.claim(0, 60_000).remove(0).token;
    let leader = cluster.leader(&held);
    cluster.down.insert(leader);
    cluster.advance(3_000);
    let other = (leader + 1) % 3;
    let free = cluster.enqueue(other, b"free", 9);
    let granted = cluster.claim(other, 1_000).remove(0);
    assert_eq!(granted.id, free, "the held task stays with its holder");
    assert!(granted.token.epoch > token.epoch);
    assert_eq!(
        cluster.ask(other, Request::Renew { items: vec![(held, token)], lease_ms: None }),
        Response::Renewed(vec![Ok(60_000)])
    );
    cluster.restart(leader);
    cluster.run_until(|cluster| cluster.nodes.iter().all(Node::is_serving));
    assert_eq!(cluster.get(leader, held).state, State::Claimed);
}

// E1, E8, E16
#[test]
fn everything_survives_a_restart_of_all_nodes() {
    let mut cluster = Cluster::new(3);
    let held = cluster.enqueue(0, b"held", 9);
    let token = cluster.claim(0, 30_000).remove(0).token;
    let before = cluster.get(0, held).claims;
    let free = cluster.enqueue(1, b"free", 0x80_0000);
    for index in 0..3 {
        cluster.down.insert(index);
    }
    cluster.advance(100);
    for index in 0..3 {
        cluster.restart(index);
    }
    cluster.run_until(|cluster| cluster.nodes.iter().all(Node::is_serving));
    let [claim] = cluster.get(0, held).claims.try_into().expect("one claim");
    assert_eq!((claim.token, &*claim.worker, claim.start_ms), (token, "worker", before[0].start_ms));
    assert!(claim.end_ms >= Some(claim.start_ms + 30_000), "{claim:?}");
    let granted = cluster.claim(2, 1_000).remove(0);
    assert_eq!(granted.id, free);
    assert!(matches!(cluster.complete(1, held, token), Response::Acked(_)));
    assert_eq!(cluster.get(0, held).state, State::Done);
}

// S30, S40
#[test]
fn a_follower_that_was_away_becomes_equal_without_any_client() {
    let mut cluster = Cluster::new(3);
    cluster.down.insert(2);
    cluster.run_until(|cluster| cluster.nodes[0].is_serving() && cluster.nodes[1].is_serving());
    for number in 0..20 {
        cluster.enqueue(number as usize % 2, b"x", number << 18);
    }
    cluster.restart(2);
    cluster.run_until(|cluster| {
        let roots = |index: usize| -> Vec<usize> {
            cluster.nodes[index].partitions.values().map(|replica| replica.store.count()).collect()
        };
        roots(0) == roots(2)
    });
    cluster.advance(3_000);
    let roots: Vec<Vec<u128>> = cluster
        .nodes
        .iter()
        .map(|node| node.partitions.values().map(|replica| replica.store.root()).collect())
        .collect();
    assert_eq!(roots[0], roots[1]);
    assert_eq!(roots[0], roots[2]);
}

#[test]
fn a_list_pages_through_everything_once() {
    let mut cluster = Cluster::new(3);
    let ids: Vec<TaskId> = (0..25).map(|number| cluster.enqueue(0, b"x", number << 19)).collect();
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let list = Request::List { queue: None, state: Some(State::Ready), after, from: None, to: None, limit: 4 };
        let Response::Page(page) = cluster.ask(1, list) else { panic!() };
        seen.extend(page.tasks.iter().map(|view| view.id));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen.len(), ids.len());
    assert_eq!(seen, ids);
}

/// The first heartbeat of a start.
fn first_heartbeat(boot: u64, now: Now) -> Heartbeat {
    Heartbeat {
        boot,
        number: 1,
        seen: (0, 0),
        sent_us: 1,
        echo_us: None,
        wall_ms: now.wall_ms,
        hears: Vec::new(),
        leads_version: 0,
        leads: None,
        leads_known: (0, 0),
        commits: Vec::new(),
        standing: Standing::Good,
        incomplete: false,
        disk: DiskStatus::default(),
        start: boot,
        durable: 1 << 40,
        seen_start: 0,
        remembers: 0,
        remembers_last: 0,
        offers: norn_wire::Versions::SPOKEN.newest,
        roster_version: 0,
    }
}
