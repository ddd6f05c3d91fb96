//! What claims look at.

use super::*;
use norn_model::message::Claiming;
use norn_model::task::{Cancel, Facts, Task};

const EACH: usize = 40;

impl Cluster {
    fn enqueue_as(&mut self, tag: u32, of: impl Fn(&mut Spec)) -> TaskId {
        let id = self.id(tag);
        let mut spec = spec(b"x", 0);
        of(&mut spec);
        let tasks = vec![NewTask { id, spec }];
        assert!(matches!(self.ask(0, Request::Enqueue { tasks, acks: Acks::Quorum }), Response::Acked(_)));
        id
    }

    /// What claims of a queue choose from in a task's partition, in order.
    fn choice(&self, of: &TaskId) -> Vec<TaskId> {
        let replica = &self.nodes[self.leader(of)].partitions[&self.nodes[0].partition_of(of)];
        let queue = replica.store.index().queue(&spec(b"", 0).queue).expect("it has tasks");
        assert_eq!(queue.ready_count(true), queue.ready().count() as u64);
        assert_eq!(queue.head(true).map(|(_, id)| id), queue.ready().next().map(|(_, id)| *id));
        queue.ready().map(|(_, id)| *id).collect()
    }
}

impl Cluster {
    /// Advances time; returns the tasks about which followers asked a leader whether it still leads, by question.
    fn wakes_during(&mut self, ms: u64) -> Vec<Vec<TaskId>> {
        let mut wakes = Vec::new();
        for _ in 0..ms {
            self.now.mono_us += 1_000;
            self.now.wall_ms += 1;
            self.queue.extend((0..self.nodes.len()).map(|index| (index, Event::Wake)));
            while let Some((_, event)) = self.queue.front() {
                if let Event::Peer { message: PeerMessage::Claiming(Claiming::Wake { ids, .. }), .. } = event {
                    wakes.push(ids.clone());
                }
                self.handle_next();
            }
        }
        wakes
    }
}

/// Goal: a follower asks a leader that was silent about new work, though not if the leader grants it soon. Method: a task comes after
/// two quiet seconds, and is claimed at once or not at all. Another queue has more work than a question names.
#[test]
fn a_silent_leader_is_asked_about_work_that_it_does_not_grant() {
    const TAG: u32 = 9;
    let mut cluster = Cluster::modern(3);
    for _ in 0..EACH {
        cluster.enqueue_as(TAG, |spec| spec.queue = QueueName::new("earlier").unwrap());
    }
    for is_claimed in [true, false, true] {
        cluster.advance(2_000);
        let id = cluster.enqueue(0, b"x", TAG);
        if is_claimed {
            assert_eq!(cluster.claim(1, 600_000)[0].id, id);
        }
        let wakes = cluster.wakes_during(200);
        assert_eq!(wakes, if is_claimed { vec![] } else { vec![vec![id]; 2] }, "claimed: {is_claimed}");
        if !is_claimed {
            assert_eq!(cluster.claim(1, 600_000)[0].id, id);
        }
    }
}

// C21: it looks at the first of those that can be claimed, and at none that are blocked, delayed, held or ended, however many
// there are; these are in no order of keys or ids that it would have to pass over
#[test]
fn a_claim_chooses_among_nothing_but_what_can_be_claimed() {
    const TAG: u32 = 9;
    let mut cluster = Cluster::modern(3);
    let unknown = cluster.id(TAG);
    for _ in 0..EACH {
        cluster.enqueue(0, b"x", TAG);
    }
    let held: Vec<_> = (0..EACH).map(|_| cluster.claim(0, 600_000).remove(0)).collect();
    for granted in held.iter().step_by(2) {
        assert!(matches!(cluster.complete(1, granted.id, granted.token), Response::Acked(_)));
    }
    let due_ms = cluster.now.wall_ms + 3_600_000;
    for _ in 0..EACH {
        cluster.enqueue_as(TAG, |spec| spec.after = vec![unknown]);
        cluster.enqueue_as(TAG, |spec| spec.not_before_ms = due_ms);
    }
    let low = cluster.enqueue(0, b"x", TAG);
    assert_eq!(cluster.choice(&low), [low]);
    let high = cluster.enqueue_as(TAG, |spec| spec.priority = 7);
    cluster.run_until(|cluster| cluster.choice(&low) == [high, low]);
    for expected in [high, low] {
        assert_eq!(cluster.claim(2, 60_000)[0].id, expected);
    }
    cluster.run_until(|cluster| cluster.choice(&low).is_empty());
}

// C22: tasks of one queue are claimed at all leaders, each of which keeps the claims of its own tasks
#[test]
fn no_node_has_the_claims_of_all() {
    let mut cluster = Cluster::modern(3);
    let mut leaders = BTreeMap::new();
    for number in 0..EACH as u32 {
        cluster.enqueue(0, b"x", (1 << 24) / EACH as u32 * number);
    }
    for _ in 0..EACH {
        let id = cluster.claim(0, 60_000)[0].id;
        *leaders.entry(cluster.leader(&id)).or_insert(0) += 1;
    }
    assert_eq!(leaders.len(), 3, "each leads something: {leaders:?}");
    assert!(leaders.values().all(|claims| *claims <= EACH / 2), "{leaders:?}");
}

/// Goal: a leader grants by what it knows, not by the head that it published in an earlier step. Method: the first task of a queue
/// ends, and one comes that goes before all others; each time a broker asks within the very step.
#[test]
fn a_leader_grants_no_head_that_is_out_of_date_within_the_step() {
    const TAG: u32 = 9;
    let mut cluster = Cluster::new(3);
    let ids: Vec<TaskId> = (0..3).map(|_| cluster.enqueue(0, b"x", TAG)).collect();
    cluster.advance(1_000);
    assert_eq!(cluster.choice(&ids[0]), ids);
    let (leader, partition) = (cluster.leader(&ids[0]), cluster.nodes[0].partition_of(&ids[0]));
    let asking = (leader + 1) % 3;
    let broker = cluster.nodes[asking].founding.node;
    let cancel = Some(Cancel { dead: false, reason: String::new(), at_ms: cluster.now.wall_ms });
    let over = Task { facts: Some(Box::new(Facts { cancel, ..Facts::default() })), ..Task::default() };
    let urgent = cluster.id(TAG);
    let news = [(ids[0], over, ids[1]), (urgent, Task::from_spec(Arc::new(spec(b"x", 7))), urgent)];
    for (number, (about, facts, granted)) in (1..).zip(news) {
        let (request_id, claim) = (cluster.nodes[asking].pending_requests.number(), ClaimId(number));
        let node = &mut cluster.nodes[leader];
        node.merge(partition, vec![(about, facts)]);
        node.on_grant_ask(broker, request_id, claim_of(claim, 60_000, 1), 1, (false, &[]));
        assert_eq!(node.partitions[&partition].consensus.held_by(claim), [granted]);
        cluster.queue.push_back((leader, Event::Wake));
        cluster.drain();
    }
}

/// Goal: a leader that has asked the cohorts for work does not miss what came earlier in the turn in which their last answers came.
/// Method: another node accepts a task while the cohorts are asked, and the leader gets the task and the answers in one turn.
#[test]
fn a_probe_sees_the_work_that_came_earlier_in_the_turn() {
    let mut cluster = Cluster::modern(3);
    let id = cluster.enqueue(0, b"x", 9);
    assert_eq!(cluster.claim(0, 60_000)[0].id, id);
    cluster.advance(1_000);
    let leader = cluster.leader(&id);
    let others: Vec<usize> = (0..3).filter(|index| *index != leader).collect();
    let [leader_id, asking_id] = [leader, others[0]].map(|index| cluster.nodes[index].founding.node);
    let now = cluster.now;
    let step = |node: &mut Node, events: Vec<Event>| {
        let mut effects = Vec::new();
        node.turn(now, events, &mut effects);
        effects
    };
    let probe = Claiming::Probe { request_id: 1, queues: vec![spec(b"", 0).queue] };
    let probe = Event::Peer { from: asking_id, message: probe.into() };
    let pulled = step(&mut cluster.nodes[leader], vec![probe]).into_iter().find_map(|effect| match effect {
        Effect::Send { message: PeerMessage::Claiming(Claiming::Pull { request_id, .. }), .. } => Some(request_id),
        _ => None,
    });
    let pulled = pulled.expect("the cohorts are asked");
    let tasks = vec![NewTask { id: cluster.id(9), spec: spec(b"y", 0) }];
    let request = Request::Enqueue { tasks, acks: Acks::Quorum };
    let principal = Principal { name: "tester".into(), node: false };
    let accept = Event::Request { client: CLIENT, number: 9, principal, request };
    let to_leader = step(&mut cluster.nodes[others[0]], vec![accept]).into_iter().filter_map(|effect| match effect {
        Effect::Send { to, message } if to == leader_id => Some(Event::Peer { from: asking_id, message }),
        _ => None,
    });
    let mut turn: Vec<Event> = to_leader.collect();
    assert!(!turn.is_empty(), "the task is on its way");
    for index in others {
        let partitions = cluster.nodes[index].partitions.keys().copied().collect();
        let message = Claiming::Pulled { request_id: pulled, partitions, ready: Vec::new(), more: false };
        turn.push(Event::Peer { from: cluster.nodes[index].founding.node, message: message.into() });
    }
    let answers = step(&mut cluster.nodes[leader], turn).into_iter().find_map(|effect| match effect {
        Effect::Send { message: PeerMessage::Claiming(Claiming::Probed { heads, .. }), .. } => Some(heads),
        _ => None,
    });
    assert!(answers.expect("the probe is answered")[0].is_some(), "there is work");
}

/// Goal: a leader whose replica is cleared in the same step announces no task of it any more. Method: what follows from the end of
/// its leadership comes after the replica was cleared.
#[test]
fn a_leader_that_is_cleared_withdraws_its_heads() {
    let mut cluster = Cluster::modern(3);
    let (id, queue) = (cluster.enqueue(0, b"x", 9), spec(b"", 0).queue);
    let leader = cluster.leader(&id);
    cluster.run_until(|cluster| cluster.nodes[leader].claims.heads().count(&queue) == 1);
    let (now, node) = (cluster.now, &mut cluster.nodes[leader]);
    let partition = node.partition_of(&id);
    node.leave(partition);
    node.step(now, Event::Wake, &mut Vec::new());
    assert_eq!(node.claims.heads().count(&queue), 0);
    assert!(node.partitions[&partition].published.is_empty());
}
