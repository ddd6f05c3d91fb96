//! Enqueueing, claiming, holding and releasing tasks.

use super::scene::{CLOCKS, LONG, Scene, millis};
use super::{CLIENTS, Host};
use norn_client::session::{Call, Draft};
use norn_wire::request::{Acks, Claim, Request};
use norn_wire::response::{Guarantee, State};
use norn_wire::{ClaimId, ErrorCode, Response};
use std::time::Duration;

const SHORT: Duration = Duration::from_secs(2);

// T7, T13, T16, S14, S16, S24, O6, O30: readers and the worker see a task exactly as it was enqueued, with bytes of any kind; readers
// see its result
pub(super) async fn what_is_enqueued_is_read_claimed_and_completed_as_it_was<H: Host>(scene: Scene<H>) {
    let payload: Vec<u8> = (0..=255).collect();
    let draft = Draft::new(scene.queue("mail"), payload.clone()).priority(-7).header("content-type", "none");
    let call = Call::Enqueue { drafts: vec![draft.clone()], acks: Acks::Quorum };
    let id = match scene.ask(0, call).await {
        Ok(Response::Acked(items)) => {
            let acked = items[0].as_ref().expect("it is stored");
            assert!(acked.acks * 2 > acked.replicas && acked.guarantee == Guarantee::Strict, "{acked:?}");
            acked.id
        }
        other => panic!("{other:?}"),
    };
    let view = scene.get(1, id).await;
    assert_eq!((view.state, &view.spec), (State::Ready, &draft.spec));
    let claim = scene.take(2, "mail").await;
    assert_eq!((claim.id, &claim.queue, &claim.payload), (id, &draft.spec.queue, &payload));
    assert_eq!((claim.priority, &claim.headers), (-7, &draft.spec.headers));
    let held = scene.get(0, id).await;
    assert_eq!((held.state, held.claims.len(), held.claims[0].token), (State::Claimed, 1, claim.token));
    scene.complete(2, &claim, "sent").await;
    let done = scene.get(1, id).await;
    assert_eq!((done.state, done.result.as_deref().map(Vec::as_slice)), (State::Done, Some(&b"sent"[..])));
    assert_eq!(done.spec, draft.spec, "what was enqueued never changes");
    assert!(done.claims[0].completed_ms.is_some());
}

// O14, S32: the same id with the same content is one task, however many clients enqueue it, even after it has ended
pub(super) async fn an_enqueue_that_is_repeated_is_stored_once<H: Host>(scene: Scene<H>) {
    let id = scene.neighbours(1).await[0];
    let draft = Draft::new(scene.queue("mail"), "hello").id(id);
    let [one, other, third] = [0, 1, 2].map(|client| scene.enqueue(client, draft.clone()));
    assert_eq!(tokio::join!(one, other, third), (id, id, id));
    assert_eq!(scene.count("mail", None).await, 1);
    let claim = scene.take(0, "mail").await;
    scene.nothing("mail").await;
    scene.complete(0, &claim, "").await;
    assert_eq!(scene.enqueue(2, draft).await, id, "nor is it enqueued again when it has ended");
    scene.nothing("mail").await;
    assert_eq!(scene.get(1, id).await.spec.payload, b"hello");
}

// S6, S17, S34, C13: in one partition the order is strict
pub(super) async fn the_highest_priority_goes_first_and_then_the_oldest<H: Host>(scene: Scene<H>) {
    let ids = scene.neighbours(6).await;
    let priorities = [0, i32::MIN, 5, 0, i32::MAX, 5];
    // The youngest is enqueued first: the order is that of ids, not of arrivals.
    for (id, priority) in ids.iter().zip(priorities).rev() {
        scene.enqueue(0, Draft::new(scene.queue("mail"), "").priority(priority).id(*id)).await;
    }
    let mut order = Vec::new();
    for claim in scene.take_all("mail", ids.len()).await {
        order.push(ids.iter().position(|id| *id == claim.id).expect("it is one of them"));
    }
    assert_eq!(order, [4, 2, 5, 0, 3, 1]);
}

// T12, T14: by a delay, or by a time in milliseconds since 1970
pub(super) async fn what_is_not_due_is_granted_to_nobody<H: Host>(scene: Scene<H>) {
    let (delay, started) = (SHORT + CLOCKS, scene.now());
    let model = scene.enqueue(0, Draft::new(scene.queue("now"), "")).await;
    let delayed = scene.enqueue(0, Draft::new(scene.queue("delayed"), "").delay_ms(millis(delay))).await;
    let at_ms = model.time_ms() + millis(delay);
    let dated = scene.enqueue(1, Draft::new(scene.queue("dated"), "").not_before_ms(at_ms)).await;
    let view = scene.get(2, dated).await;
    let due = started + delay - CLOCKS;
    assert_eq!(view.spec.not_before_ms, at_ms);
    assert!(view.state == State::Waiting || scene.now() >= due, "{view:?}");
    tokio::join!(scene.nothing_until("delayed", due), scene.nothing_until("dated", due));
    assert_eq!(scene.take(1, "delayed").await.id, delayed);
    assert_eq!(scene.take(2, "dated").await.id, dated);
}

// O12, C12, S19: of concurrent claims for one task one gets it, and the next holder has a higher token
pub(super) async fn a_second_claim_finds_nothing_and_tokens_grow<H: Host>(scene: Scene<H>) {
    let id = scene.enqueue(0, Draft::new(scene.queue("mail"), "hello")).await;
    let mut latest = None;
    for round in 0..3 {
        let claim = loop {
            let (one, other, third) = tokio::join!(scene.look(0, "mail"), scene.look(1, "mail"), scene.look(2, "mail"));
            let mut got: Vec<_> = [one, other, third].into_iter().flatten().collect();
            assert!(got.len() <= 1, "it is held twice: {got:?}");
            // Just after a change of leader possibly no client got it.
            if let Some(claim) = got.pop() {
                break claim;
            }
        };
        assert_eq!(claim.id, id);
        assert!(latest < Some(claim.token), "round {round}: {latest:?} and then {}", claim.token);
        scene.nothing("mail").await;
        latest = Some(claim.token);
        scene.release(round, &claim).await;
    }
}

// A worker owns a grant only once it has received it: a client that stops waiting takes no task and uses up no attempt
pub(super) async fn who_stops_waiting_takes_nothing<H: Host>(scene: Scene<H>) {
    let claim = Claim { wait_ms: millis(LONG), ..scene.claim("mail", LONG) };
    for wait in [Duration::from_millis(20), Duration::from_millis(300), SHORT] {
        tokio::select! {
            biased;
            got = scene.request(0, Request::Claim(claim.clone())) => panic!("there is nothing: {got:?}"),
            () = scene.pass(wait) => {}
        }
        let id = scene.enqueue(1, Draft::new(scene.queue("mail"), "").attempts_max(1)).await;
        let granted = scene.take(2, "mail").await;
        assert_eq!((granted.id, granted.attempt), (id, 1));
        scene.complete(2, &granted, "").await;
    }
}

// O5, S12, S25, T22, S54: not before the lease has expired, and then under a higher token; the old token no longer works
pub(super) async fn a_lease_that_ran_out_is_taken_over<H: Host>(scene: Scene<H>) {
    let id = scene.enqueue(0, Draft::new(scene.queue("mail"), "hello")).await;
    let first = scene.take_for(0, "mail", SHORT).await;
    assert_eq!(first.lease_ms, millis(SHORT));
    let held = scene.get(1, id).await;
    let second = scene.take(1, "mail").await;
    assert!((second.id, second.token) > (id, first.token) && second.attempt > first.attempt, "{second:?}");
    // Both times are from the clocks of the granting leaders, which differ by at most this much.
    let view = scene.get(2, id).await;
    let start = |of: &norn_wire::TaskView, token| {
        of.claims.iter().find(|claim| claim.token == token).map(|claim| claim.start_ms)
    };
    let [from, to] = [start(&held, first.token), start(&view, second.token)].map(|start| start.expect("it is shown"));
    assert!(to + millis(CLOCKS) >= from + first.lease_ms, "held from {from}, and from {to} by the next");
    let lost = scene.renew(0, id, first.token, None).await.expect_err("it lost its claim");
    assert_eq!(lost.code, ErrorCode::Superseded);
    assert_eq!(scene.refused(0, Request::Release { id, token: first.token }).await, ErrorCode::Superseded);
    assert_eq!(scene.refused(0, Scene::<H>::failure(&first, None)).await, ErrorCode::Superseded);
    scene.nothing("mail").await;
}

// O4, T38, S20, S36
pub(super) async fn a_renewal_prolongs_and_never_shortens<H: Host>(scene: Scene<H>) {
    let id = scene.enqueue(0, Draft::new(scene.queue("mail"), "hello")).await;
    let lease = Duration::from_secs(8);
    let claim = scene.take_for(0, "mail", lease).await;
    let renewed = scene.now();
    assert_eq!(scene.renew(0, id, claim.token, Some(lease + SHORT)).await.expect("it is held"), millis(lease + SHORT));
    // Neither a shorter renewal nor a repeat shortens the lease.
    let left = scene.renew(1, id, claim.token, Some(Duration::from_millis(100))).await.expect("it is held");
    assert_eq!(left, millis(lease + SHORT));
    scene.renew(2, id, claim.token, None).await.expect("it is held");
    scene.nothing_until("mail", renewed + lease).await;
    let next = scene.take(1, "mail").await;
    assert!(next.token > claim.token && scene.now() >= renewed + (lease + SHORT) * 99 / 100);
}

// C10: not even the last of its attempts
pub(super) async fn what_is_given_back_was_no_attempt<H: Host>(scene: Scene<H>) {
    let id = scene.enqueue(0, Draft::new(scene.queue("mail"), "hello").attempts_max(1)).await;
    for round in 0..3 {
        let claim = scene.take(round, "mail").await;
        assert_eq!((claim.id, claim.attempt), (id, 1));
        scene.release(round, &claim).await;
        let lost = scene.renew(round, id, claim.token, None).await.expect_err("it was given back");
        assert_eq!(lost.code, ErrorCode::Superseded);
    }
    assert_eq!(scene.get(0, id).await.state, State::Ready);
}

// O13
pub(super) async fn tasks_are_held_at_once_and_end_in_any_order<H: Host>(scene: Scene<H>) {
    let ids = scene.neighbours(5).await;
    for id in &ids {
        scene.enqueue(0, Draft::new(scene.queue("mail"), "").id(*id)).await;
    }
    let mut claims = scene.take_all("mail", ids.len()).await;
    for id in &ids {
        assert_eq!(scene.get(1, *id).await.state, State::Claimed, "all are held at the same time");
    }
    claims.reverse();
    for (number, claim) in claims.iter().enumerate() {
        scene.complete(number % CLIENTS, claim, "").await;
        assert_eq!(scene.count("mail", Some(State::Done)).await, number as u64 + 1);
    }
}

// C14, S33: from not at all to any length. A waiting claim gets a task that another client enqueues meanwhile
pub(super) async fn a_worker_chooses_how_long_it_waits_for_work<H: Host>(scene: Scene<H>) {
    let claim = |wait: Duration| Claim { wait_ms: millis(wait), ..scene.claim("mail", LONG) };
    let started = scene.now();
    assert_eq!(scene.claimed(0, &claim(SHORT)).await, []);
    assert!(scene.now() >= started + SHORT * 95 / 100, "it waits until {:?}", started + SHORT);
    let (long, started) = (Duration::from_secs(200), scene.now());
    let (claimed, id) = tokio::join!(
        async {
            let claimed = scene.claimed(1, &claim(long)).await;
            (claimed, scene.now())
        },
        async {
            scene.pass(SHORT).await;
            scene.enqueue(2, Draft::new(scene.queue("mail"), "hello")).await
        }
    );
    let ids: Vec<_> = claimed.0.iter().map(|claim| claim.id).collect();
    assert_eq!(ids, [id]);
    assert!(claimed.1 < started + long / 2, "it gets it when it comes");
}

// T15: a client draws an id for its claim call. A repeat with that id gets the same grants, and no other call does
pub(super) async fn a_claim_that_is_repeated_gets_the_same<H: Host>(scene: Scene<H>) {
    let id = scene.enqueue(0, Draft::new(scene.queue("mail"), "hello")).await;
    let own = ClaimId(u128::from_be_bytes(id.to_bytes()[..16].try_into().expect("sixteen bytes")));
    let claim = Claim { claim: own, ..scene.claim("mail", LONG) };
    let first = scene.take_as(0, &claim).await;
    assert_eq!(first.len(), 1);
    let repeated = Claim { repeated: true, ..claim };
    for client in 0..CLIENTS {
        let again = scene.take_as(client, &repeated).await;
        assert_eq!((again[0].id, again[0].token), (id, first[0].token), "by client {client}");
    }
    scene.nothing("mail").await;
}
