//! Grants that no client got, and that go back before their leases end: their client is gone, or has other tasks.

use super::recall::{FIRST, ask_until, claim_until, cluster_of_many, is_ack, is_answer, is_on_its_way};
use super::*;
use norn_model::message::{Claiming, Replication};
use norn_model::viewstamp::Viewstamp;
use norn_wire::{Granted, Versions};

const CLAIM: ClaimId = ClaimId(77);
const LEASE_MS: u64 = 600_000;
/// Tags in other partitions than the first.
const OTHERS: [u32; 3] = [0x40_0000, 0x80_0000, 0xC0_0000];

impl Cluster {
    fn enqueue_in(&mut self, tag: u32, priority: i32) -> TaskId {
        let id = self.id(tag);
        let tasks = vec![NewTask { id, spec: spec(b"x", priority) }];
        assert!(matches!(self.ask(0, Request::Enqueue { tasks, acks: Acks::All }), Response::Acked(_)));
        id
    }

    /// Tasks of a partition that come first, a task that another node leads, and these nodes: the leader of the first, of the other,
    /// and one that leads neither.
    fn with_two_leaders(count: usize) -> (Cluster, Vec<TaskId>, TaskId, [usize; 3]) {
        let mut cluster = Cluster::modern(3);
        let firsts: Vec<TaskId> = (0..count).map(|_| cluster.enqueue_in(FIRST, 7)).collect();
        let one = cluster.leader(&firsts[0]);
        let tag = OTHERS.into_iter().find(|tag| {
            let id = TaskId::new(1, 1, 1, *tag);
            cluster.leader(&id) != one
        });
        let other = cluster.enqueue_in(tag.expect("each leads some"), 0);
        let two = cluster.leader(&other);
        cluster.advance(1_000);
        (cluster, firsts, other, [one, two, 3 - one - two])
    }

    fn is_ready(&mut self, index: usize, id: TaskId) -> bool {
        self.get(index, id).state == State::Ready
    }

    fn client_goes(&mut self, index: usize) {
        self.queue.push_front((index, Event::ClientGone { client: CLIENT }));
    }

    fn claimed(&mut self, number: u64) -> (Vec<Granted>, u32) {
        match self.replies.remove(&number) {
            Some(Response::Claimed { tasks, left, .. }) => (tasks, left),
            other => panic!("{other:?}"),
        }
    }
}

fn is_question(message: &PeerMessage) -> bool {
    matches!(message, PeerMessage::Claiming(Claiming::GrantAsk { .. }))
}

fn confirmed_claim(max: u32) -> Claim {
    Claim { confirms: true, ..claim_of(CLAIM, LEASE_MS, max) }
}

/// Goal: grants that a leader did not answer as it stepped down are not held for a client that is gone. Method: other replicas have the
/// grant, the leader does not know that and steps down; the client goes before or after that.
#[test]
fn what_a_leader_was_about_to_grant_goes_back_once_its_client_is_gone() {
    for (away, goes_first) in [(0, true), (1, true), (1, false)] {
        let (mut cluster, first, leader) = cluster_of_many();
        let broker = (leader + away) % 3;
        claim_until(&mut cluster, broker, leader, is_ack, 2);
        let partition = cluster.nodes[leader].partition_of(&first);
        if goes_first {
            cluster.client_goes(broker);
            cluster.drain();
        }
        cluster.nodes[leader].step_down(partition, "it is told to");
        cluster.drain();
        if !goes_first {
            cluster.client_goes(broker);
        }
        cluster.advance(5_000);
        assert!(cluster.is_ready((leader + 1) % 3, first), "{away} {goes_first}");
    }
}

/// Goal: a client that waits gets the grants that a leader did not answer as it stepped down; they are not voided and granted anew.
/// Method: the same, and the client stays, at any node.
#[test]
fn what_a_leader_was_about_to_grant_is_not_taken_from_a_client_that_waits() {
    for away in [0, 1, 2] {
        let (mut cluster, first, leader) = cluster_of_many();
        let number = claim_until(&mut cluster, (leader + away) % 3, leader, is_ack, 2);
        let partition = cluster.nodes[leader].partition_of(&first);
        cluster.nodes[leader].step_down(partition, "it is told to");
        cluster.run_until(|cluster| cluster.replies.contains_key(&number));
        assert_eq!(cluster.claimed(number).0.iter().map(|granted| granted.id).collect::<Vec<_>>(), [first]);
        cluster.advance(20_000);
        assert!(!cluster.is_ready((leader + 1) % 3, first), "{away}");
        let voided = |(_, observation): &(usize, Observation)| matches!(observation, Observation::Voided { .. });
        assert!(!cluster.observed.iter().any(voided), "{away}");
    }
}

/// Goal: the same for grants whose void is at the leader alone. Method: the followers have the grant when the leader's time for it is
/// over, and one of them leads before it receives the void.
#[test]
fn what_a_leader_took_back_for_itself_alone_goes_back_at_its_successor() {
    let (mut cluster, first, leader) = cluster_of_many();
    let broker = (leader + 1) % 3;
    claim_until(&mut cluster, broker, leader, is_ack, 2);
    cluster.client_goes(broker);
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
    cluster.advance(5_000);
    assert!(!cluster.is_ready(broker, first), "nobody else knows");
    cluster.down.clear();
    cluster.connect_all();
    cluster.advance(5_000);
    assert!(cluster.is_ready(broker, first));
}

/// Goal: a client that has some of the tasks that it asked for learns that it may hold more, and gives that back. Method: no answer of
/// a leader arrives, until the time is over, and then the leader is gone.
#[test]
fn a_call_whose_time_is_over_while_it_asks_has_left_something() {
    let (mut cluster, firsts, other, [_, two, broker]) = Cluster::with_two_leaders(1);
    let number = cluster.post(broker, Request::Claim(confirmed_claim(2)));
    let is_lost = |to: usize, message: &PeerMessage| match message {
        PeerMessage::Claiming(Claiming::GrantAnswer { tasks, .. }) => {
            tasks.iter().any(|(granted, _)| granted.id == other)
        }
        PeerMessage::Claiming(Claiming::GrantAsk { max, .. }) => to == two && *max == 0,
        _ => false,
    };
    while !cluster.replies.contains_key(&number) {
        cluster.advance_losing(10, is_lost);
    }
    let (tasks, left) = cluster.claimed(number);
    assert_eq!(tasks.iter().map(|granted| granted.id).collect::<Vec<_>>(), firsts);
    assert!(left > 0, "nothing was heard of what it asked for last");
    cluster.down.insert(two);
    assert_eq!(cluster.ask(broker, Request::Confirm { claim: CLAIM }), Response::Done);
    let leave = Request::Leave { claim: CLAIM, elsewhere: true, over: true, keeps: firsts.clone() };
    assert_eq!(cluster.ask(broker, leave), Response::Done);
    cluster.advance(5_000);
    assert!(cluster.is_ready(broker, other));
    assert!(!cluster.is_ready(broker, firsts[0]), "that is the client's");
}

/// Goal: a call that waits for an answer ends at its deadline, however seldom a question is repeated.
#[test]
fn a_call_is_answered_when_its_time_is_over_however_seldom_it_asks() {
    let (mut cluster, _, leader) = cluster_of_many();
    let broker = (leader + 1) % 3;
    cluster.nodes.iter_mut().for_each(|node| Arc::make_mut(&mut node.config).resend_ms = 60_000);
    let number = cluster.post(broker, Request::Claim(confirmed_claim(1)));
    let timeout_ms = cluster.nodes[broker].config.request_timeout_ms;
    cluster.advance_losing(timeout_ms + 50, |_, message| {
        matches!(message, PeerMessage::Claiming(Claiming::GrantAsk { .. }))
    });
    let reply = cluster.replies.get(&number);
    assert!(matches!(reply, Some(Response::Error(error)) if error.code == ErrorCode::Unavailable), "{reply:?}");
}

/// Goal: grants that a call has are not found again by another leader, which would renew them and answer with them in place of more.
/// Method: a node gives eight of ten tasks, and the node that is asked next leads them by then.
#[test]
fn what_a_call_has_may_go_back_though_its_partition_has_moved() {
    let (mut cluster, firsts, other, [one, two, broker]) = Cluster::with_two_leaders(8);
    let number = ask_until(&mut cluster, broker, confirmed_claim(10), (broker, is_answer, 1));
    let at = cluster.queue.iter().position(|event| is_on_its_way(event, broker, is_answer)).expect("it is on its way");
    let answer = cluster.queue.remove(at).expect("just seen");
    let partition = cluster.nodes[one].partition_of(&firsts[0]);
    let next = NodeId(two as u128 + 1);
    let is_lost = |to: usize, message: &PeerMessage| {
        to == one && matches!(message, PeerMessage::Claiming(Claiming::GrantAsk { .. }))
            || to == broker && is_answer(message)
    };
    while cluster.nodes[broker].leader_of(partition) != Some(next) {
        cluster.nodes[one].transfer(partition, &[next]);
        cluster.advance_losing(10, is_lost);
    }
    cluster.queue.push_back(answer);
    cluster.run_until(|cluster| cluster.replies.contains_key(&number));
    let (tasks, left) = cluster.claimed(number);
    let ids: BTreeSet<TaskId> = tasks.iter().map(|granted| granted.id).collect();
    assert_eq!((ids, left), (firsts.iter().copied().chain([other]).collect(), 0));
    cluster.client_goes(broker);
    cluster.advance(500);
    for id in firsts.into_iter().chain([other]) {
        assert!(cluster.is_ready(broker, id), "it was given back");
    }
}

/// A client is granted a task and goes while no partition has a leader, for longer than an election takes: the task, and the node that
/// is left.
fn without_leaders(meanwhile: impl FnOnce(&mut Node)) -> (Cluster, TaskId, usize) {
    let (mut cluster, first, leader) = cluster_of_many();
    let broker = (leader + 1) % 3;
    let number = cluster.submit(broker, Request::Claim(confirmed_claim(1)));
    cluster.run_until(|cluster| cluster.replies.contains_key(&number));
    assert_eq!(cluster.claimed(number).0[0].id, first);
    cluster.down.extend((0..3).filter(|index| *index != broker));
    cluster.client_goes(broker);
    cluster.advance(2_000);
    meanwhile(&mut cluster.nodes[broker]);
    cluster.advance(18_000);
    cluster.down.clear();
    cluster.connect_all();
    let partition = cluster.nodes[broker].partition_of(&first);
    cluster.run_until(|cluster| cluster.nodes[broker].leader_of(partition).is_some());
    (cluster, first, broker)
}

/// Goal: a task that no client holds is free as soon as its partition has a leader, not at the end of a pause.
#[test]
fn a_grant_goes_back_as_soon_as_its_partition_has_a_leader() {
    let (mut cluster, first, broker) = without_leaders(|_| {});
    cluster.advance(1_500);
    assert!(cluster.is_ready(broker, first));
}

/// Goal: of many clients that are gone while a partition has no leader, each one's tasks go back.
#[test]
fn many_grants_go_back_though_nobody_could_be_told_at_first() {
    let (mut cluster, first, broker) = without_leaders(|node| {
        for number in 0..5_000 {
            let id = TaskId::new(number + 1, 1, 1, FIRST);
            node.give_back_grants(vec![(id, Token { epoch: 1, number }, Viewstamp { epoch: 1, length: number })]);
        }
    });
    cluster.advance(30_000);
    assert!(cluster.is_ready(broker, first));
}

/// Goal: a leader that gives a grant back to itself does not repeat that for long.
#[test]
fn a_grant_that_is_void_for_certain_is_not_given_back_again() {
    let (mut cluster, first, leader) = cluster_of_many();
    let number = cluster.submit(leader, Request::Claim(confirmed_claim(1)));
    cluster.run_until(|cluster| cluster.replies.contains_key(&number));
    assert_eq!(cluster.claimed(number).0[0].id, first);
    cluster.client_goes(leader);
    cluster.advance(1_000);
    assert!(cluster.is_ready(leader, first));
    cluster.advance(1_000);
    assert_eq!(cluster.nodes[leader].claims.broker().going_back(), 0);
}

/// Goal: a late question of a broker that has restarted since is granted nothing, as the broker knows nothing of the call. Method: the
/// question is held back meanwhile; the same question without a restart gets the task.
#[test]
fn a_question_of_a_process_that_has_ended_is_granted_nothing() {
    for (restarts, state) in [(false, State::Claimed), (true, State::Ready)] {
        let (mut cluster, id, leader) = cluster_of_many();
        let broker = (leader + 1) % 3;
        ask_until(&mut cluster, broker, confirmed_claim(1), (leader, is_question, 1));
        let place = cluster.queue.iter().position(|event| is_on_its_way(event, leader, is_question));
        let question = cluster.queue.remove(place.expect("it is on its way")).expect("just found");
        if restarts {
            cluster.restart(broker);
            cluster.connect_all();
            cluster.advance(2_000);
            assert!(cluster.nodes[leader].knows_leads(NodeId(broker as u128 + 1)), "it would be answered otherwise");
        }
        cluster.queue.push_back(question);
        cluster.advance(20);
        assert_eq!(cluster.state_of(leader, id), state, "restarts: {restarts}");
    }
}

/// Goal: the same for a question that arrived in time, and whose grant commits when its broker has restarted. Method: the leader
/// receives no acknowledgement of a follower meanwhile.
#[test]
fn a_grant_that_is_made_for_a_process_that_has_ended_goes_back() {
    for (restarts, state) in [(false, State::Claimed), (true, State::Ready)] {
        let (mut cluster, id, leader) = cluster_of_many();
        let broker = (leader + 1) % 3;
        let number = ask_until(&mut cluster, broker, confirmed_claim(1), (leader, is_ack, 1));
        let is_late = |to: usize, message: &PeerMessage| to == leader && is_ack(message);
        cluster.advance_losing(1, is_late);
        if restarts {
            // Step by step, so that no acknowledgement comes in the meantime.
            let effects = cluster.begin_restart(broker, 99);
            cluster.carry_out(broker, effects);
            for (index, peer) in
                (0..3).flat_map(|index| [(index, broker), (broker, index)]).filter(|(one, two)| one != two)
            {
                let (peer, version) = (NodeId(peer as u128 + 1), Versions::SPOKEN.newest);
                cluster.queue.push_back((index, Event::PeerConnected { peer, version }));
            }
        }
        cluster.advance_losing(500, is_late);
        assert!(!cluster.replies.contains_key(&number), "it is not committed");
        cluster.advance(1_000);
        assert_eq!(cluster.state_of(leader, id), state, "restarts: {restarts}");
    }
}

/// Goal: the notice that a question is given up also counts if the process that sent it has ended since: it is still true, and no
/// process repeats it. Method: the answer to the question is lost, and the broker's notice arrives when the broker has restarted.
#[test]
fn a_question_that_a_process_gave_up_before_it_ended_is_taken_back() {
    let (mut cluster, id, leader) = cluster_of_many();
    let broker = (leader + 1) % 3;
    ask_until(&mut cluster, broker, confirmed_claim(1), (broker, is_answer, 1));
    cluster.queue.retain(|event| !is_on_its_way(event, broker, is_answer));
    cluster.client_goes(broker);
    while !cluster.queue.iter().any(|event| is_on_its_way(event, leader, is_taken_back)) {
        assert!(cluster.handle_next(), "the broker gives its question up");
    }
    let place = cluster.queue.iter().position(|event| is_on_its_way(event, leader, is_taken_back));
    let given_up = cluster.queue.remove(place.expect("just seen")).expect("just found");
    cluster.restart(broker);
    cluster.connect_all();
    cluster.advance(2_000);
    assert_eq!(cluster.state_of(leader, id), State::Claimed);
    cluster.queue.push_back(given_up);
    cluster.advance(20);
    assert_eq!(cluster.state_of(leader, id), State::Ready);
}

fn is_taken_back(message: &PeerMessage) -> bool {
    matches!(message, PeerMessage::Claiming(Claiming::GrantAsk { max: 0, recall: true, .. }))
}
