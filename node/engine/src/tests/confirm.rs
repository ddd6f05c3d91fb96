//! Grants whose clients do not confirm them, and calls that their clients leave.

use super::recall::{ask_until, cluster_of_many, is_answer, is_on_its_way};
use super::*;
use norn_model::message::{Claiming, Replication};
use norn_wire::Granted;
use norn_wire::membership::{Backoff, QueueSetting};
use norn_wire::response::ClaimOutcome;

const CLAIM: ClaimId = ClaimId(77);
const LEASE_MS: u64 = 600_000;
/// Longer than the time to confirm and the time that the leader needs.
const TOO_LATE_MS: u64 = 2_500;
/// A lease that expires before a confirmation is too late.
const SHORT_MS: u64 = 500;
/// Time that a leader needs to ask a broker, and to void a grant.
const ASKING_MS: u64 = 300;
/// Time for which a partition has no leader.
const AWAY_MS: u64 = 20_000;

impl Cluster {
    /// Three nodes with one task, which may be tried once.
    fn with_one_task() -> (Cluster, TaskId) {
        let mut cluster = Cluster::modern(3);
        cluster.connect_all();
        let id = cluster.id(0);
        let tasks = vec![NewTask { id, spec: Spec { attempts_max: 1, ..spec(b"x", 0) } }];
        assert!(matches!(cluster.ask(0, Request::Enqueue { tasks, acks: Acks::All }), Response::Acked(_)));
        cluster.advance(1_000);
        (cluster, id)
    }

    fn claim_to_confirm(&mut self, index: usize, wait_ms: u64) -> u64 {
        self.submit(index, Request::Claim(Claim { confirms: true, wait_ms, ..claim_of(CLAIM, LEASE_MS, 1) }))
    }

    fn claim_shortly(&mut self, index: usize, lease_ms: u64) -> Granted {
        let number = self.submit(index, Request::Claim(Claim { confirms: true, ..claim_of(CLAIM, lease_ms, 1) }));
        self.told(number)
    }

    fn told(&mut self, number: u64) -> Granted {
        self.run_until(|cluster| cluster.replies.contains_key(&number));
        match self.replies.remove(&number) {
            Some(Response::Claimed { mut tasks, .. }) if tasks.len() == 1 => tasks.remove(0),
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn state_of(&mut self, index: usize, id: TaskId) -> State {
        self.get(index, id).state
    }

    fn confirms(&mut self, index: usize) -> Result<(), ErrorCode> {
        match self.ask(index, Request::Confirm { claim: CLAIM }) {
            Response::Done => Ok(()),
            Response::Error(error) => Err(error.code),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_grant_that_is_confirmed_is_held() {
    let (mut cluster, id) = Cluster::with_one_task();
    let number = cluster.claim_to_confirm(0, 0);
    let granted = cluster.told(number);
    assert!(cluster.confirms(0).is_ok());
    cluster.advance(TOO_LATE_MS);
    let view = cluster.get(0, id);
    assert_eq!((view.state, view.claims[0].token), (State::Claimed, granted.token));
    assert_eq!(cluster.confirms(0), Err(ErrorCode::Superseded), "nothing is left to confirm");
}

/// Goal: a task does not wait for the lease of a client that was never reached, and that was no attempt.
#[test]
fn a_grant_that_is_not_confirmed_goes_to_the_next_and_was_no_attempt() {
    let (mut cluster, id) = Cluster::with_one_task();
    let number = cluster.claim_to_confirm(0, 0);
    let first = cluster.told(number);
    cluster.advance(TOO_LATE_MS);
    assert_eq!(cluster.state_of(1, id), State::Ready);
    assert_eq!(cluster.confirms(0), Err(ErrorCode::Superseded), "it is too late");
    let next = cluster.claim(1, LEASE_MS).remove(0);
    assert_eq!((next.id, next.attempt), (id, 1));
    assert!(next.token > first.token);
}

#[test]
fn a_client_that_is_gone_before_it_confirms_loses_the_grant_at_once() {
    let (mut cluster, id) = Cluster::with_one_task();
    let number = cluster.claim_to_confirm(0, 0);
    cluster.told(number);
    cluster.queue.push_back((0, Event::ClientGone { client: CLIENT }));
    cluster.advance(20);
    assert_eq!(cluster.state_of(1, id), State::Ready);
}

/// Goal: what the first node gives back is not taken from the second, which has answered with it since.
#[test]
fn a_client_that_asks_again_elsewhere_keeps_what_it_confirms_there() {
    let (mut cluster, id) = Cluster::with_one_task();
    let number = cluster.claim_to_confirm(0, 0);
    cluster.told(number);
    let claim = Claim { confirms: true, repeated: true, ..claim_of(CLAIM, LEASE_MS, 1) };
    let number = cluster.submit(1, Request::Claim(claim));
    assert_eq!(cluster.told(number).id, id);
    assert!(cluster.confirms(1).is_ok());
    cluster.advance(TOO_LATE_MS);
    assert_eq!(cluster.state_of(1, id), State::Claimed);
}

#[test]
fn a_client_that_leaves_its_wait_is_granted_nothing_more() {
    let mut cluster = Cluster::modern(3);
    cluster.connect_all();
    let number = cluster.claim_to_confirm(0, 60_000);
    cluster.advance(1_000);
    assert_eq!(
        cluster.ask(0, Request::Leave { claim: CLAIM, elsewhere: false, over: false, keeps: Vec::new() }),
        Response::Done
    );
    let reply = cluster.replies.remove(&number);
    assert!(matches!(&reply, Some(Response::Error(error)) if error.code == ErrorCode::Superseded), "{reply:?}");
    let id = cluster.enqueue(1, b"x", 0);
    cluster.advance(1_000);
    assert_eq!(cluster.state_of(1, id), State::Ready);
    assert_eq!(cluster.nodes[0].claims.calls_waiting(), 0);
}

/// A client is granted a task, and the node is gone; the client does not want it any more, and leaves through another node.
#[test]
fn a_client_that_leaves_elsewhere_gives_back_what_a_node_granted_that_is_gone() {
    let (mut cluster, id) = Cluster::with_one_task();
    let broker = (cluster.leader(&id) + 1) % 3;
    let number = cluster.claim_to_confirm(broker, 0);
    cluster.told(number);
    cluster.down.insert(broker);
    let other = (broker + 1) % 3;
    assert_eq!(
        cluster.ask(other, Request::Leave { claim: CLAIM, elsewhere: true, over: true, keeps: Vec::new() }),
        Response::Done
    );
    cluster.advance(1_000);
    assert_eq!(cluster.state_of(other, id), State::Ready);
}

/// Goal: grants of a claim that its client does not know go back, and no others.
#[test]
fn a_client_that_leaves_elsewhere_keeps_what_it_names() {
    let (mut cluster, first) = Cluster::with_one_task();
    let second = cluster.enqueue(0, b"y", 0);
    cluster.advance(1_000);
    let number = cluster.submit(0, Request::Claim(Claim { confirms: true, ..claim_of(CLAIM, LEASE_MS, 2) }));
    cluster.run_until(|cluster| cluster.replies.contains_key(&number));
    let told = cluster.replies.remove(&number);
    assert!(matches!(&told, Some(Response::Claimed { tasks, .. }) if tasks.len() == 2), "{told:?}");
    assert!(cluster.confirms(0).is_ok());
    assert_eq!(
        cluster.ask(1, Request::Leave { claim: CLAIM, elsewhere: true, over: true, keeps: vec![second] }),
        Response::Done
    );
    cluster.advance(1_000);
    assert_eq!([first, second].map(|id| cluster.state_of(1, id)), [State::Ready, State::Claimed]);
}

/// Goal: a leader that should void a grant may be gone: then its successor gets the request.
#[test]
fn a_grant_goes_back_though_its_leader_is_gone() {
    let (mut cluster, id) = Cluster::with_one_task();
    let leader = cluster.leader(&id);
    let broker = (leader + 1) % 3;
    let number = cluster.claim_to_confirm(broker, 0);
    cluster.told(number);
    cluster.down.insert(leader);
    cluster.queue.push_back((broker, Event::ClientGone { client: CLIENT }));
    cluster.advance(5_000);
    assert_eq!(cluster.state_of(broker, id), State::Ready);
}

/// Goal: grants that a node was still looking for go back as well, when its client gives the call up. Method: the leader that granted
/// is gone, and has no successor yet.
#[test]
fn a_call_that_is_given_up_while_its_node_looks_for_more_gives_that_back() {
    for over in [false, true] {
        let (mut cluster, id) = Cluster::with_one_task();
        let leader = cluster.leader(&id);
        let number = cluster.claim_to_confirm(leader, 0);
        cluster.told(number);
        assert!(cluster.confirms(leader).is_ok());
        cluster.down.insert(leader);
        let other = (leader + 1) % 3;
        let again = Claim { confirms: true, repeated: true, ..claim_of(CLAIM, LEASE_MS, 1) };
        let number = cluster.submit(other, Request::Claim(again));
        cluster.advance(100);
        assert!(!cluster.replies.contains_key(&number), "it looks");
        let leave = Request::Leave { claim: CLAIM, elsewhere: false, over, keeps: Vec::new() };
        assert_eq!(cluster.ask(other, leave), Response::Done);
        cluster.advance(5_000);
        let expected = if over { State::Ready } else { State::Claimed };
        assert_eq!(cluster.state_of(other, id), expected, "a call that is made elsewhere may get it there");
    }
}

/// Goal: a grant that goes back waits for no lease, however long a partition has no leader. Method: two of three nodes are away for
/// longer than an election takes, when the client of the third is gone, or leaves through another node.
#[test]
fn a_grant_goes_back_though_its_partition_was_without_leader_for_long() {
    for leaves in [false, true] {
        let (mut cluster, id) = Cluster::with_one_task();
        let broker = (cluster.leader(&id) + 1) % 3;
        let number = cluster.claim_to_confirm(broker, 0);
        cluster.told(number);
        if leaves {
            assert!(cluster.confirms(broker).is_ok());
        }
        cluster.down.extend((0..3).filter(|index| *index != broker));
        if leaves {
            let leave = Request::Leave { claim: CLAIM, elsewhere: true, over: true, keeps: Vec::new() };
            assert_eq!(cluster.ask(broker, leave), Response::Done);
        } else {
            cluster.queue.push_back((broker, Event::ClientGone { client: CLIENT }));
        }
        cluster.advance(AWAY_MS);
        cluster.down.clear();
        cluster.connect_all();
        cluster.advance(AWAY_MS);
        assert_eq!(cluster.state_of(broker, id), State::Ready, "leaves: {leaves}");
    }
}

/// Goal: an answer that its client ignores does not block the next one.
#[test]
fn a_call_that_is_repeated_on_its_connection_is_one_call() {
    let (mut cluster, id) = Cluster::with_one_task();
    let first = cluster.claim_to_confirm(0, 0);
    cluster.told(first);
    let claim = Claim { confirms: true, repeated: true, ..claim_of(CLAIM, LEASE_MS, 1) };
    let number = cluster.submit(0, Request::Claim(claim));
    assert_eq!(cluster.told(number).id, id);
    assert!(cluster.confirms(0).is_ok());
    cluster.advance(TOO_LATE_MS);
    assert_eq!((cluster.state_of(1, id), cluster.nodes[0].claims.calls_waiting()), (State::Claimed, 0));
}

/// Goal: a client that asks a node for several tasks in several rounds, and is gone, loses them at once: grants of one round are not
/// found again by the next one, and so can be given back.
#[test]
fn tasks_that_come_in_several_rounds_all_go_back() {
    let mut cluster = Cluster::modern(3);
    cluster.connect_all();
    let first = cluster.enqueue(0, b"x", 0);
    let claim = Claim { confirms: true, ..claim_of(CLAIM, LEASE_MS, 4) };
    let number = cluster.submit(1, Request::Claim(claim));
    assert_eq!(cluster.told(number).id, first);
    cluster.queue.push_back((1, Event::ClientGone { client: CLIENT }));
    cluster.advance(20);
    assert_eq!(cluster.state_of(1, first), State::Ready);
}

/// A broker's client is granted a task, and the answer to the broker is lost: the task, its leader, and the broker.
fn with_lost_answer() -> (Cluster, TaskId, usize, usize) {
    let (mut cluster, id, leader) = cluster_of_many();
    let broker = (leader + 1) % 3;
    let claim = Claim { confirms: true, ..claim_of(CLAIM, LEASE_MS, 1) };
    ask_until(&mut cluster, broker, claim, (broker, is_answer, 1));
    cluster.queue.retain(|event| !is_on_its_way(event, broker, is_answer));
    (cluster, id, leader, broker)
}

/// Goal: a task does not wait for the lease of a client that is gone, though its broker never learned of the grant. Method: no question
/// of the broker reaches the leader for long.
#[test]
fn what_was_granted_in_a_lost_answer_goes_back_once_its_client_is_gone() {
    let (mut cluster, id, leader, broker) = with_lost_answer();
    cluster.queue.push_back((broker, Event::ClientGone { client: CLIENT }));
    let is_lost = |to: usize, message: &PeerMessage| {
        to == leader && matches!(message, PeerMessage::Claiming(Claiming::GrantAsk { .. }))
    };
    cluster.advance_losing(AWAY_MS, is_lost);
    assert_eq!(cluster.state_of(broker, id), State::Claimed, "nobody has heard of it");
    cluster.advance(3_000);
    assert_eq!(cluster.state_of(broker, id), State::Ready);
}

/// The same where another node leads by then, which knows of no question.
#[test]
fn what_was_granted_in_a_lost_answer_goes_back_at_the_next_leader() {
    let (mut cluster, id, leader, broker) = with_lost_answer();
    let partition = cluster.nodes[leader].partition_of(&id);
    cluster.nodes[leader].step_down(partition, "it is told to");
    cluster.queue.push_back((broker, Event::ClientGone { client: CLIENT }));
    cluster.advance(5_000);
    assert_eq!(cluster.state_of(broker, id), State::Ready);
}

/// Goal: a broker that gives up a question takes nothing from a client that has it from another broker.
#[test]
fn what_was_granted_in_a_lost_answer_stays_where_another_broker_has_told_it() {
    let (mut cluster, id, _, broker) = with_lost_answer();
    let other = (broker + 1) % 3;
    let again = Claim { confirms: true, repeated: true, ..claim_of(CLAIM, LEASE_MS, 1) };
    let number = cluster.submit(other, Request::Claim(again));
    let granted = cluster.told(number);
    assert!(cluster.confirms(other).is_ok());
    cluster.queue.push_back((broker, Event::ClientGone { client: CLIENT }));
    cluster.advance(5_000);
    let view = cluster.get(other, id);
    assert_eq!((view.state, view.claims.last().map(|claim| claim.token)), (State::Claimed, Some(granted.token)));
}

/// Goal: no peer halts a leader by naming a grant twice.
#[test]
fn a_grant_that_is_named_twice_goes_back_once() {
    let (mut cluster, id) = Cluster::with_one_task();
    let number = cluster.claim_to_confirm(0, 0);
    let granted = cluster.told(number);
    let leader = cluster.leader(&id);
    let at = cluster.replica_of(leader, &id).consensus.claim_entry(&id).expect("it is held").renewed;
    let from = NodeId(((leader + 1) % 3) as u128 + 1);
    let message = PeerMessage::Claiming(Claiming::Return { items: vec![(id, granted.token, at); 2] });
    cluster.queue.push_back((leader, Event::Peer { from, message }));
    cluster.advance(100);
    assert_eq!(cluster.state_of(1, id), State::Ready);
}

/// Goal: a client that was never reached costs no attempt, however short its lease is.
#[test]
fn a_lease_that_is_over_before_it_is_confirmed_was_no_attempt() {
    for (lease_ms, from_leader) in [(100, 1), (SHORT_MS, 0), (1_900, 1)] {
        let (mut cluster, id) = Cluster::with_one_task();
        let broker = (cluster.leader(&id) + from_leader) % 3;
        let first = cluster.claim_shortly(broker, lease_ms);
        cluster.advance(TOO_LATE_MS);
        let view = cluster.get((broker + 1) % 3, id);
        assert_eq!((view.state, view.reason, view.claims.len()), (State::Ready, None, 0), "{lease_ms} ms");
        assert_eq!(cluster.confirms(broker), Err(ErrorCode::Superseded), "it is too late");
        let next = cluster.claim(broker, LEASE_MS).remove(0);
        assert_eq!((next.id, next.attempt), (id, 1), "{lease_ms} ms");
        assert!(next.token > first.token);
    }
}

#[test]
fn a_short_lease_that_is_confirmed_is_held_to_its_end_and_was_an_attempt() {
    for renewed in [false, true] {
        let (mut cluster, id) = Cluster::with_one_task();
        let broker = (cluster.leader(&id) + 1) % 3;
        let granted = cluster.claim_shortly(broker, SHORT_MS);
        assert!(cluster.confirms(broker).is_ok());
        cluster.advance(SHORT_MS - 100);
        assert_eq!(cluster.state_of(0, id), State::Claimed);
        if renewed {
            let renew = Request::Renew { items: vec![(id, granted.token)], lease_ms: None };
            assert!(matches!(cluster.ask(broker, renew), Response::Renewed(_)));
            cluster.advance(SHORT_MS - 100);
            assert_eq!(cluster.state_of(0, id), State::Claimed);
        }
        cluster.advance(100 + ASKING_MS);
        let view = cluster.get(0, id);
        let end = view.claims[0].end.as_ref().map(|end| end.outcome);
        assert_eq!((view.state, end), (State::Dead, Some(ClaimOutcome::Expired)), "renewed: {renewed}");
    }
}

/// Goal: an answer that takes longer than a lease in it belongs to its client all the same, with all that is in it. Method: a small one
/// over a long way, and the largest one over a slow network; the client confirms and renews it then.
#[test]
fn an_answer_that_takes_longer_than_its_lease_is_its_clients() {
    for (lease_ms, payload_bytes, takes_ms) in [(100, 1, 400), (3_000, 1 << 20, 5_500)] {
        let mut cluster = Cluster::modern(3);
        let short = QueueName::new("short").expect("a name");
        cluster.set(0, "short", QueueSetting::Lease(Some(lease_ms)));
        let mut tasks = vec![NewTask { id: cluster.id(0), spec: Spec { queue: short.clone(), ..spec(b"x", 0) } }];
        for tag in 0..4 {
            let id = cluster.id(tag << 22);
            tasks.push(NewTask { id, spec: Spec { attempts_max: 1, ..spec(&vec![7; payload_bytes], 0) } });
        }
        let ids: BTreeSet<TaskId> = tasks.iter().map(|task| task.id).collect();
        for task in tasks {
            let stored = cluster.ask(0, Request::Enqueue { tasks: vec![task], acks: Acks::All });
            assert!(matches!(stored, Response::Acked(_)));
        }
        let mut claim = Claim { confirms: true, lease_open: true, ..claim_of(CLAIM, LEASE_MS, 5) };
        claim.queues.push(short);
        let number = cluster.submit(0, Request::Claim(claim));
        cluster.run_until(|cluster| cluster.replies.contains_key(&number));
        let Some(Response::Claimed { tasks, .. }) = cluster.replies.remove(&number) else { panic!("it is granted") };
        assert_eq!(tasks.iter().map(|granted| granted.id).collect::<BTreeSet<_>>(), ids);
        cluster.advance(takes_ms);
        assert_eq!(cluster.confirms(0), Ok(()), "{lease_ms} ms");
        let items = tasks.iter().map(|granted| (granted.id, granted.token)).collect();
        let renewed = cluster.ask(0, Request::Renew { items, lease_ms: None });
        assert!(matches!(&renewed, Response::Renewed(all) if all.iter().all(Result::is_ok)), "{renewed:?}");
        for id in ids {
            assert_eq!(cluster.state_of(1, id), State::Claimed);
        }
    }
}

/// Goal: a grant of a question that its broker has given up was no attempt, also if its lease expires before it is committed.
#[test]
fn a_lease_that_is_over_before_a_given_up_question_is_answered_was_no_attempt() {
    let (mut cluster, id) = Cluster::with_one_task();
    let leader = cluster.leader(&id);
    let broker = (leader + 1) % 3;
    let is_lost = |to: usize, message: &PeerMessage| {
        to == leader && matches!(message, PeerMessage::Replication(Replication::Ack { .. }))
    };
    cluster.post(broker, Request::Claim(Claim { confirms: true, ..claim_of(CLAIM, 300, 1) }));
    cluster.advance_losing(100, is_lost);
    assert!(cluster.replica_of(leader, &id).consensus.claim_entry(&id).is_some(), "it is granted, and not committed");
    cluster.queue.push_back((broker, Event::ClientGone { client: CLIENT }));
    cluster.advance_losing(500, is_lost);
    cluster.advance(TOO_LATE_MS);
    assert_eq!(cluster.state_of(broker, id), State::Ready);
    let next = cluster.claim(broker, LEASE_MS).remove(0);
    assert_eq!((next.id, next.attempt), (id, 1));
}

/// Goal: the leader does not wait for a silent broker without end, however seldom it asks.
#[test]
fn a_lease_that_is_over_is_an_attempt_where_its_broker_says_nothing() {
    let (mut cluster, id) = Cluster::with_one_task();
    let broker = (cluster.leader(&id) + 1) % 3;
    cluster.claim_shortly(broker, SHORT_MS);
    assert!(cluster.confirms(broker).is_ok());
    cluster.nodes.iter_mut().for_each(|node| Arc::make_mut(&mut node.config).resend_ms = 60_000);
    let is_lost =
        |_: usize, message: &PeerMessage| matches!(message, PeerMessage::Claiming(Claiming::ConfirmAnswer { .. }));
    cluster.advance_losing(30_000, is_lost);
    assert_eq!(cluster.state_of(broker, id), State::Dead);
}

/// Goal: the same holds if the lease ends under another leader, which does not know the client's broker.
#[test]
fn a_lease_that_is_over_at_the_next_leader_was_no_attempt_unless_it_was_confirmed() {
    for confirmed in [false, true] {
        let (mut cluster, id) = Cluster::with_one_task();
        let leader = cluster.leader(&id);
        let broker = (leader + 1) % 3;
        cluster.claim_shortly(broker, SHORT_MS);
        if confirmed {
            assert!(cluster.confirms(broker).is_ok());
        }
        cluster.down.insert(leader);
        cluster.advance(10_000);
        let expected = if confirmed { State::Dead } else { State::Ready };
        assert_eq!(cluster.state_of(broker, id), expected, "confirmed: {confirmed}");
    }
}

/// Goal: a grant whose answer is still on its way is no attempt either. Method: the lease expires before the broker learns of the
/// grant.
#[test]
fn a_lease_that_is_over_before_its_broker_hears_of_it_was_no_attempt() {
    let (mut cluster, id, leader) = cluster_of_many();
    let broker = (leader + 1) % 3;
    let claim = Claim { confirms: true, ..claim_of(CLAIM, SHORT_MS, 1) };
    ask_until(&mut cluster, broker, claim, (broker, is_answer, 1));
    cluster.queue.retain(|event| !is_on_its_way(event, broker, is_answer));
    let is_lost = |to: usize, message: &PeerMessage| {
        to == leader && matches!(message, PeerMessage::Claiming(Claiming::GrantAsk { .. }))
    };
    cluster.advance_losing(2 * SHORT_MS, is_lost);
    cluster.advance(TOO_LATE_MS);
    let next = cluster.claim(broker, LEASE_MS).remove(0);
    assert_eq!((next.id, next.attempt), (id, 1));
}

/// Goal: a grant that its leader cannot name for the moment is no attempt either. Method: the answer is lost, and the leader is handing
/// its partition over, in vain, from before the question is repeated until after the lease is over.
#[test]
fn a_lease_that_is_over_before_its_leader_can_name_it_was_no_attempt() {
    let (mut cluster, id, leader) = cluster_of_many();
    let broker = (leader + 1) % 3;
    let claim = Claim { confirms: true, ..claim_of(CLAIM, SHORT_MS, 1) };
    let number = ask_until(&mut cluster, broker, claim, (broker, is_answer, 1));
    cluster.queue.retain(|event| !is_on_its_way(event, broker, is_answer));
    let partition = cluster.nodes[leader].partition_of(&id);
    let until_us = cluster.now.mono_after_ms(2 * SHORT_MS);
    let replica = cluster.nodes[leader].partitions.get_mut(&partition).expect("it leads it");
    replica.consensus.leading_mut().expect("it leads").transferring_until_us = until_us;
    cluster.advance(SHORT_MS + ASKING_MS);
    assert!(!cluster.replica_of(leader, &id).consensus.is_lapsed(&id), "its broker still looks for it");
    let granted = cluster.told(number);
    assert_eq!((granted.id, granted.attempt), (id, 1));
    assert!(cluster.confirms(broker).is_ok());
}

/// Goal: no pause and no death follows from it, also where the queue sets the length of leases.
#[test]
fn a_lease_of_the_queue_that_is_over_before_it_is_confirmed_was_no_attempt() {
    let mut cluster = Cluster::modern(3);
    let backoff = Backoff { first_ms: 60_000, most_ms: 60_000, jitter_percent: 0 };
    let settings = [
        QueueSetting::Lease(Some(SHORT_MS)),
        QueueSetting::Backoff(Some(backoff)),
        QueueSetting::Attempts(Some(2)),
        QueueSetting::Concurrency(Some(1)),
    ];
    for setting in settings {
        cluster.set(0, "mail", setting);
    }
    let id = cluster.enqueue(0, b"x", 0);
    for index in 0..3 {
        let claim = claim_of(ClaimId(80 + index as u128), LEASE_MS, 1);
        let claim = Claim { confirms: true, lease_open: true, wait_ms: 5_000, ..claim };
        let number = cluster.submit(index, Request::Claim(claim));
        let granted = cluster.told(number);
        assert_eq!((granted.id, granted.attempt, granted.lease_ms), (id, 1, SHORT_MS));
        cluster.advance(TOO_LATE_MS);
        assert_eq!(cluster.state_of(0, id), State::Ready);
    }
}

/// Goal: a task does not wait for a broker that is gone, though it is not known then whether the client was reached.
#[test]
fn a_lease_that_is_over_is_an_attempt_where_its_broker_is_gone() {
    let (mut cluster, id) = Cluster::with_one_task();
    let leader = cluster.leader(&id);
    let broker = (leader + 1) % 3;
    cluster.claim_shortly(broker, SHORT_MS);
    cluster.down.insert(broker);
    cluster.advance(SHORT_MS + TOO_LATE_MS);
    assert_eq!(cluster.state_of(leader, id), State::Dead);
}
