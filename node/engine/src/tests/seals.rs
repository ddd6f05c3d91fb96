//! Completions that count once the leader has sealed them.

use super::hints::go_on;
use super::*;
use norn_model::message::Replication;
use norn_wire::error::{Error, ErrorCode};
use norn_wire::membership::{Mode, QueueSetting};
use norn_wire::request::Completion;
use norn_wire::response::Guarantee;

impl Cluster {
    fn sealing(size: usize) -> Cluster {
        let mut cluster = Cluster::modern(size);
        cluster.set(0, "mail", QueueSetting::Mode(Mode::Holder));
        cluster.advance(1_000);
        cluster
    }

    fn complete_with(&mut self, index: usize, id: TaskId, token: Token, result: &[u8]) -> Result<Guarantee, Error> {
        let item = Completion {
            id,
            token,
            sequence: None,
            result: Some(result.to_vec().into()),
            at_ms: 7,
            children: Vec::new(),
        };
        match self.ask(index, Request::Complete { items: vec![item], acks: Acks::One }) {
            Response::Acked(mut results) => results.remove(0).map(|acked| acked.guarantee),
            other => panic!("{other:?}"),
        }
    }

    fn unsealed(&mut self, index: usize, id: TaskId, token: Token, result: &[u8]) -> ErrorCode {
        self.complete_with(index, id, token, result).expect_err("it is refused").code
    }
}

/// A superseded worker gets an error, whichever node it asks, and its result is kept.
// T20, T22, T23, E14, C2, C3, C15, C16
#[test]
fn the_latest_holder_alone_ends_a_task() {
    let mut cluster = Cluster::sealing(3);
    let id = cluster.enqueue(0, b"x", 1);
    let first = cluster.claim(1, 1_000).remove(0).token;
    assert!(first.needs_seal());
    cluster.advance(5_000);
    let second = cluster.claim(2, 60_000).remove(0).token;
    assert!(second > first && second.needs_seal());
    assert_eq!(cluster.unsealed(0, id, first, b"late"), ErrorCode::Superseded);
    assert_eq!(cluster.get(1, id).state, State::Claimed, "it ends nothing");
    assert_eq!(cluster.complete_with(1, id, second, b"done"), Ok(Guarantee::Strict));
    for index in 0..3 {
        assert_eq!(cluster.complete_with(index, id, second, b"done"), Ok(Guarantee::Strict), "it may be repeated");
    }
    assert_eq!(cluster.unsealed(2, id, second, b"otherwise"), ErrorCode::Conflict);
    assert_eq!(cluster.unsealed(2, id, first, b"late"), ErrorCode::Superseded);
    cluster.advance(5_000);
    for index in 0..3 {
        let view = cluster.get(index, id);
        assert_eq!((view.state, view.result.as_deref()), (State::Done, Some(&b"done".to_vec())));
        let rejected = view.claims.iter().map(|claim| (claim.token, claim.rejected.is_some()));
        assert_eq!(rejected.collect::<Vec<_>>(), [(first, true), (second, false)]);
    }
}

#[test]
fn a_holder_whose_lease_ran_out_ends_the_task_if_nobody_took_it_over() {
    let mut cluster = Cluster::sealing(3);
    let id = cluster.enqueue(0, b"x", 1);
    let token = cluster.claim(1, 1_000).remove(0).token;
    cluster.advance(10_000);
    assert_eq!(cluster.complete_with(2, id, token, b"done"), Ok(Guarantee::Strict));
    assert_eq!(cluster.claim(0, 1_000), Vec::new());
}

/// The answer is lost with the leader; the next one finds the sealed completion.
#[test]
fn another_leader_goes_on_with_what_was_sealed() {
    let mut cluster = Cluster::sealing(3);
    let id = cluster.enqueue(0, b"x", 1);
    let token = cluster.claim(1, 60_000).remove(0).token;
    let leader = cluster.leader(&id);
    let other = (leader + 1) % 3;
    let item =
        Completion { id, token, sequence: None, result: Some(b"done".to_vec().into()), at_ms: 7, children: Vec::new() };
    cluster.submit(other, Request::Complete { items: vec![item], acks: Acks::Quorum });
    let partition = cluster.nodes[0].partition_of(&id);
    let is_sealed = move |cluster: &Cluster| {
        let entry = cluster.nodes[other].partitions[&partition].consensus.claim_entry(&id).cloned();
        entry.is_none_or(|entry| matches!(entry.state, norn_model::claim_table::table::ClaimState::Sealed { .. }))
    };
    cluster.run_until(is_sealed);
    cluster.down.insert(leader);
    cluster.advance(5_000);
    assert_eq!(cluster.complete_with(other, id, token, b"done"), Ok(Guarantee::Strict));
    assert_eq!(cluster.get(other, id).state, State::Done);
    cluster.down.remove(&leader);
    cluster.advance(5_000);
    assert_eq!(cluster.get(leader, id).result.as_deref(), Some(&b"done".to_vec()));
}

#[test]
fn a_task_goes_on_as_it_was_first_claimed() {
    let mut cluster = Cluster::modern(3);
    let id = cluster.enqueue(0, b"x", 1);
    let first = cluster.claim(1, 1_000).remove(0).token;
    cluster.set(0, "mail", QueueSetting::Mode(Mode::Holder));
    cluster.advance(5_000);
    let second = cluster.claim(1, 60_000).remove(0).token;
    assert!(!first.needs_seal() && !second.needs_seal());
    assert!(cluster.complete_with(2, id, first, b"done").is_ok(), "anybody may end it");
    let other = cluster.enqueue(0, b"y", 2);
    let token = cluster.claim(1, 60_000).remove(0).token;
    cluster.set(1, "mail", QueueSetting::Mode(Mode::Any));
    cluster.advance(1_000);
    assert!(token.needs_seal());
    assert_eq!(cluster.complete_with(2, other, token, b"done"), Ok(Guarantee::Strict));
}

/// One call may be about tasks of both kinds.
#[test]
fn completions_of_both_kinds_are_answered_in_order() {
    let mut cluster = Cluster::modern(3);
    let plain = cluster.enqueue(0, b"x", 1);
    let plain_token = cluster.claim(1, 60_000).remove(0).token;
    cluster.set(0, "mail", QueueSetting::Mode(Mode::Holder));
    cluster.advance(1_000);
    let sealed = cluster.enqueue(0, b"y", 2);
    let token = cluster.claim(1, 60_000).remove(0).token;
    let item = |id, token| Completion { id, token, sequence: None, result: None, at_ms: 7, children: Vec::new() };
    let stale = Token { number: token.number - 1, ..token };
    let items = vec![item(sealed, stale), item(plain, plain_token), item(sealed, token)];
    match cluster.ask(2, Request::Complete { items, acks: Acks::Quorum }) {
        Response::Acked(results) => {
            assert_eq!(results[0].as_ref().expect_err("nobody has it").code, ErrorCode::Superseded);
            assert_eq!(results[1].as_ref().map(|acked| acked.id), Ok(plain));
            assert_eq!(results[2].as_ref().map(|acked| acked.id), Ok(sealed));
        }
        other => panic!("{other:?}"),
    }
    let view = cluster.get(0, sealed);
    assert_eq!((view.state, view.claims.len()), (State::Done, 1), "a claim that never was is not kept");
}

#[test]
fn a_cancelled_task_is_not_sealed() {
    let mut cluster = Cluster::sealing(3);
    let id = cluster.enqueue(0, b"x", 1);
    let token = cluster.claim(1, 60_000).remove(0).token;
    let cancel = Request::Cancel { id, reason: "no".into(), at_ms: 1, acks: Acks::All };
    assert!(matches!(cluster.ask(2, cancel), Response::AckedOne(_)));
    assert_eq!(cluster.unsealed(0, id, token, b"done"), ErrorCode::Ended);
    cluster.advance(5_000);
    let view = cluster.get(0, id);
    assert_eq!((view.state, view.claims[0].rejected.is_some()), (State::Cancelled, true));
}

/// Goal: a token of the other kind ends no task of a queue in mode `holder`, be it claimed, sealed, or neither.
// T20, C2, C16
#[test]
fn a_made_up_token_ends_no_task_that_is_to_be_sealed() {
    let mut cluster = Cluster::sealing(3);
    let id = cluster.enqueue(0, b"x", 1);
    let forged = Token { epoch: 1, number: 1 };
    assert!(!forged.needs_seal());
    let superseded = |cluster: &mut Cluster| {
        for index in 0..3 {
            assert_eq!(cluster.unsealed(index, id, forged, b"forged"), ErrorCode::Superseded);
        }
    };
    superseded(&mut cluster);
    assert_eq!(cluster.get(1, id).state, State::Ready);
    let token = cluster.claim(1, 60_000).remove(0).token;
    superseded(&mut cluster);
    assert_eq!(cluster.get(2, id).state, State::Claimed);
    assert_eq!(cluster.complete_with(1, id, token, b"done"), Ok(Guarantee::Strict));
    superseded(&mut cluster);
    cluster.advance(5_000);
    superseded(&mut cluster);
    let view = cluster.get(0, id);
    assert_eq!((view.state, view.result.as_deref()), (State::Done, Some(&b"done".to_vec())));
    assert_eq!(view.claims.len(), 1, "a claim that never was is not kept");
    let cancelled = cluster.enqueue(0, b"y", 2);
    let cancel = Request::Cancel { id: cancelled, reason: "no".into(), at_ms: 1, acks: Acks::All };
    assert!(matches!(cluster.ask(2, cancel), Response::AckedOne(_)));
    assert_eq!(cluster.unsealed(0, cancelled, forged, b"forged"), ErrorCode::Superseded);
    assert_eq!(cluster.get(0, cancelled).state, State::Cancelled);
}

/// A holder completes its task at a node, before any other event. Returns the number of the call.
fn complete_at(cluster: &mut Cluster, index: usize, id: TaskId, token: Token) -> u64 {
    let item = Completion { id, token, sequence: None, result: None, at_ms: 7, children: Vec::new() };
    let request = Request::Complete { items: vec![item], acks: Acks::Quorum };
    cluster.number += 1;
    let principal = Principal { name: "tester".into(), node: false };
    let number = cluster.number;
    cluster.queue.push_front((index, Event::Request { client: CLIENT, number, principal, request }));
    number
}

fn answer(cluster: &mut Cluster, number: u64) -> norn_wire::Acked {
    match cluster.replies.remove(&number) {
        Some(Response::Acked(mut results)) => results.remove(0).expect("it is sealed"),
        other => panic!("{other:?}"),
    }
}

/// Goal: the leader counts the replicas that have a sealed completion when it answers, and not before. Method: the cohort shrinks to one
/// node after the seal is committed and before the end of the task is.
#[test]
fn a_leader_counts_who_has_a_sealed_completion_when_it_answers() {
    let mut cluster = Cluster::sealing(3);
    let id = cluster.enqueue(0, b"x", 1);
    let token = cluster.claim(1, 60_000).remove(0).token;
    let (leader, partition) = (cluster.leader(&id), cluster.nodes[0].partition_of(&id));
    cluster.submit(leader, Request::Arrange { partition, nodes: vec![NodeId(leader as u128 + 1)] });
    let mut number = None;
    go_on(&mut cluster, 1_000, |cluster, index, event| {
        let cohort = cluster.nodes[leader].partitions[&partition].cohort();
        if index != leader || !cohort.is_joint() {
            return Some(event);
        }
        let joint = cohort.version.length;
        if number.is_none() {
            cluster.queue.push_front((index, event));
            number = Some(complete_at(cluster, leader, id, token));
            return None;
        }
        let Event::Peer { message: PeerMessage::Replication(Replication::Ack { partition: of, length, .. }), .. } =
            &event
        else {
            return Some(event);
        };
        // The seal follows the operation that makes the cohort joint, and is committed with it. The end of the task is not committed yet.
        (*of != partition || *length == joint + 1).then_some(event)
    });
    assert_eq!(cluster.nodes[leader].partitions[&partition].cohort().members().count(), 1);
    let acked = answer(&mut cluster, number.expect("the cohort was joint"));
    assert_eq!((acked.acks, acked.replicas), (1, 1));
}

/// Goal: two calls about one sealed completion are both answered only once the end of the task is committed. Method: the followers'
/// acknowledgements of that are lost for a while.
#[test]
fn a_second_call_about_a_sealed_completion_waits_for_the_end_to_be_committed() {
    let mut cluster = Cluster::sealing(3);
    let id = cluster.enqueue(0, b"x", 1);
    let token = cluster.claim(1, 60_000).remove(0).token;
    let (leader, partition) = (cluster.leader(&id), cluster.nodes[0].partition_of(&id));
    let numbers = [0, 1].map(|_| complete_at(&mut cluster, leader, id, token));
    let is_told =
        move |cluster: &Cluster| cluster.nodes[leader].partitions[&partition].consensus.claim_entry(&id).is_none();
    go_on(&mut cluster, 500, |cluster, index, event| {
        let is_ack = matches!(&event, Event::Peer { message: PeerMessage::Replication(Replication::Ack { .. }), .. });
        (index != leader || !is_ack || !is_told(cluster)).then_some(event)
    });
    assert!(is_told(&cluster), "its end is appended");
    assert_eq!(
        numbers.map(|number| cluster.replies.contains_key(&number)),
        [false; 2],
        "a majority does not know of it"
    );
    cluster.run_until(|cluster| numbers.iter().all(|number| cluster.replies.contains_key(number)));
    for number in numbers {
        assert_eq!(answer(&mut cluster, number).guarantee, Guarantee::Strict);
    }
}
