//! Completions that count once the leader has sealed them.

use super::*;
use norn_client::wire::error::{Error, ErrorCode};
use norn_client::wire::membership::{Mode, QueueSetting};
use norn_client::wire::request::Completion;
use norn_client::wire::response::Guarantee;

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

/// Whoever was superseded is told so, whatever node it asks, and what it said is kept.
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

/// The answer is lost with the leader; the next one finds what was sealed.
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
        let cell = cluster.nodes[other].partitions[&partition].register.cell(&id).cloned();
        cell.is_none_or(|cell| matches!(cell.state, super::super::consistent::table::CellState::Sealed { .. }))
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

/// Goal: who names a token of the other kind ends no task of a queue whose holders alone may, be it claimed, sealed, or neither.
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
