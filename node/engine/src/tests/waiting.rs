//! Calls that wait for work, and leaders that do not grant.

use super::copy::tell;
use super::*;
use norn_model::message::{AntiEntropy, Claiming, Head, ReadWrite};

/// Goal: a leader that does not grant for a while announces no heads, as otherwise calls that wait at that very node would be woken,
/// get nothing and wait again within one step, for ever. Method: work arrives at a node that is stopping, with a call parked there.
#[test]
fn who_waits_is_not_woken_for_what_is_not_granted() {
    let mut cluster = Cluster::new(3);
    let probe = cluster.id(3 << 19);
    let leader = cluster.leader(&probe);
    let mut waiting = claim_of(ClaimId(77), 1_000, 1);
    waiting.wait_ms = 10_000;
    let number = cluster.submit(leader, Request::Claim(waiting));
    cluster.advance(100);
    assert!(!cluster.replies.contains_key(&number), "it waits");
    cluster.nodes[leader].stopping = true;
    let id = cluster.enqueue((leader + 1) % 3, b"work", 3 << 19);
    assert_eq!(cluster.leader(&id), leader);
    cluster.advance(100);
    assert!(!cluster.replies.contains_key(&number), "a node that stops grants nothing");
    let queue = QueueName::new("mail").unwrap();
    assert!(cluster.nodes[leader].head(&queue).is_none(), "nor does it tell of anything");
    // Tasks that are not granted now are not reported as nothing.
    let look = claim_of(ClaimId(78), 1_000, 1);
    let Response::Claimed { tasks, unavailable, left } = cluster.ask((leader + 1) % 3, Request::Claim(look)) else {
        panic!()
    };
    assert!(tasks.is_empty() && unavailable > 0);
    assert_eq!(left, 0, "it was asked for the first time");
    cluster.nodes[leader].stopping = false;
    cluster.run_until(|cluster| cluster.replies.contains_key(&number));
    let Some(Response::Claimed { tasks, .. }) = cluster.replies.remove(&number) else { panic!() };
    assert_eq!(tasks[0].id, id);
}

/// Goal: a node that is heard and hears no other is not asked, as it never answers. Method: others go on without it, and a late
/// announcement of its heads makes it look like the best to ask.
#[test]
fn a_claim_does_not_wait_for_a_node_that_is_deaf() {
    let mut cluster = Cluster::new(3);
    let deaf = 2;
    let is_lost = |to: usize, _: &PeerMessage| to == deaf;
    cluster.advance_losing(3_000, is_lost);
    let id = cluster.id(0);
    let queue = QueueName::new("mail").unwrap();
    let head = Some(Head { priority: 100, id, count: 1, served_ms: None });
    let stale = PeerMessage::Claiming(Claiming::Available { queue, head });
    let from = cluster.nodes[deaf].founding.node;
    for work in [true, false] {
        if work {
            let tasks = vec![NewTask { id, spec: spec(b"work", 0) }];
            cluster.post(0, Request::Enqueue { tasks, acks: Acks::Quorum });
            cluster.advance_losing(100, is_lost);
        }
        tell(&mut cluster, 1, from, stale.clone());
        assert!(cluster.nodes[1].is_alive(from), "it is heard");
        let number = cluster.post(1, Request::Claim(claim_of(ClaimId(77 + u128::from(work)), 60_000, 1)));
        cluster.advance_losing(100, is_lost);
        let reply = cluster.replies.remove(&number);
        let Some(Response::Claimed { tasks, unavailable, .. }) = reply else { panic!("it is waited for: {reply:?}") };
        let expected = if work { vec![id] } else { Vec::new() };
        assert_eq!(tasks.iter().map(|task| task.id).collect::<Vec<_>>(), expected);
        assert_eq!(unavailable, 0, "others lead");
    }
}

/// Goal: a client that waits for a task to end gets an answer when it does, and its node asks no other meanwhile. Method: at a node
/// without a replica of it.
#[test]
fn who_waits_for_an_end_is_told_and_does_not_ask_again_and_again() {
    for dies in [false, true] {
        let mut cluster = Cluster::modern(4);
        let id = (0..16).map(|tag| cluster.enqueue(0, b"work", tag << 20));
        let ids: Vec<TaskId> = id.collect();
        let holds = |cluster: &Cluster, id: &TaskId| {
            cluster.nodes[3].partitions.contains_key(&cluster.nodes[3].partition_of(id))
        };
        let id = ids.into_iter().find(|id| !holds(&cluster, id)).expect("it does not hold all");
        while cluster.get(0, id).state != State::Claimed {
            assert!(!cluster.claim(0, 60_000).is_empty());
        }
        let token = cluster.get(0, id).claims[0].token;
        let number = cluster.submit(3, Request::Wait { id, timeout_ms: 60_000 });
        cluster.advance(100);
        let mut reads = 0;
        let until_us = cluster.now.mono_us + 1_500_000;
        while cluster.now.mono_us < until_us {
            cluster.now.mono_us += 1_000;
            cluster.now.wall_ms += 1;
            for index in 0..4 {
                cluster.queue.push_back((index, Event::Wake));
            }
            while let Some((_, event)) = cluster.queue.front() {
                reads += usize::from(matches!(
                    event,
                    Event::Peer { message: PeerMessage::ReadWrite(ReadWrite::Read { .. }), .. }
                ));
                cluster.handle_next();
            }
        }
        assert_eq!(reads, 0, "it is told");
        assert!(!cluster.replies.contains_key(&number), "it waits");
        let before_us = cluster.now.mono_us;
        if dies {
            let reason = "it is broken".to_owned();
            let fail = Request::Fail { id, token, reason, retry_in_ms: 0, invalid: true, retry_open: false };
            assert_eq!(cluster.ask(0, fail), Response::Done);
        } else {
            assert!(matches!(cluster.complete(0, id, token), Response::Acked(_)));
        }
        cluster.run_until(|cluster| cluster.replies.contains_key(&number));
        assert!(cluster.now.mono_us - before_us < 500_000, "at once");
        let Some(Response::Task(view)) = cluster.replies.remove(&number) else { panic!() };
        assert_eq!(view.state, if dies { State::Dead } else { State::Done });
    }
}

/// Goal: a leader that asks for tasks and does not take them does not ask again at once, without end. Method: a peer names a task each
/// time, and never sends it.
#[test]
fn a_leader_that_pulls_in_vain_does_not_pull_again_at_once() {
    let mut cluster = Cluster::modern(3);
    let missing = cluster.id(3 << 19);
    let leader = cluster.leader(&missing);
    let from = NodeId(((leader + 1) % 3) as u128 + 1);
    let mut told = |message: PeerMessage| -> Vec<PeerMessage> {
        let mut effects = Vec::new();
        cluster.nodes[leader].step(cluster.now, Event::Peer { from, message }, &mut effects);
        let sent = effects.into_iter().filter_map(|effect| match effect {
            Effect::Send { to, message } if to == from => Some(message),
            _ => None,
        });
        sent.collect()
    };
    let pull = |message: &PeerMessage| match message {
        PeerMessage::Claiming(Claiming::Pull { request_id, .. }) => Some(*request_id),
        _ => None,
    };
    let queues = vec![QueueName::new("mail").unwrap()];
    let request_id = told(PeerMessage::Claiming(Claiming::Probe { request_id: 1, queues }))
        .iter()
        .find_map(pull)
        .expect("it asks its cohorts");
    let pulls: Vec<usize> = (0..4)
        .map(|_| {
            let sent = told(PeerMessage::Claiming(Claiming::Pulled {
                request_id,
                partitions: Vec::new(),
                ready: vec![missing],
                more: false,
            }));
            assert!(
                sent.iter().any(|message| matches!(message, PeerMessage::AntiEntropy(AntiEntropy::Need { ids, .. })
                if *ids == [missing]))
            );
            sent.iter().filter_map(pull).count()
        })
        .collect();
    assert_eq!(pulls, [1, 0, 0, 0]);
}
