//! Transactions on several tasks, and claims that depend on other tasks.

use super::Host;
use super::scene::{LONG, Scene};
use norn_client::session::{Call, ChangeDraft, Draft, Seen, TransactionDraft};
use norn_wire::request::Claim;
use norn_wire::response::State;
use norn_wire::transaction::Refusal;
use norn_wire::{ErrorCode, Request, Response, TaskId, TaskVersion};

async fn transact<H: Host>(
    scene: &Scene<H>,
    client: usize,
    draft: TransactionDraft,
) -> Result<Vec<(TaskId, TaskVersion)>, Refusal> {
    match scene.ask(client, Call::Transact { draft: Box::new(draft) }).await {
        Ok(Response::Transacted(made)) => made.map_err(|refusal| *refusal),
        other => panic!("{}: {other:?}", scene.name()),
    }
}

async fn version<H: Host>(scene: &Scene<H>, id: TaskId) -> TaskVersion {
    scene.get(1, id).await.version.expect("it has not ended")
}

// T9, T10, T11, T34, T35, T36, T39, T40, T41, T42: a result and the tasks that follow from it, conditional on a signal task
pub(super) async fn tasks_change_together<H: Host>(scene: Scene<H>) {
    let signal = scene.enqueue(0, Draft::new(scene.queue("signals"), "go on")).await;
    let near = |word: &str, payload: &str| Draft::new(scene.queue(word), payload).near(signal);
    let first = scene.enqueue(0, near("work", "first")).await;
    let held = scene.take(0, "work").await;
    let other = scene.enqueue(1, near("changed", "other").priority(1)).await;
    let seen = version(&scene, other).await;
    let draft = TransactionDraft::new()
        .enqueue(near("work", "next"))
        .change(ChangeDraft::of((other, seen)).priority(7))
        .complete(first, held.token, "found")
        .depend(signal);
    let made = transact(&scene, 0, draft).await.expect("nothing stands against it");
    assert_eq!((made.len(), made[1].0), (2, other), "what is new, then what was changed");
    assert!(made[1].1 != seen, "it is another one now");
    let (ended, changed) = (scene.get(2, first).await, scene.get(1, other).await);
    assert_eq!((ended.state, ended.result.as_deref()), (State::Done, Some(&b"found".to_vec())));
    assert_eq!((changed.version, changed.spec.priority), (Some(made[1].1), 7));
    assert_eq!(changed.spec.payload, b"other", "what is not named stays");
    let next = scene.take(2, "work").await;
    assert_eq!((next.id, &next.payload[..]), (made[0].0, &b"next"[..]));
    scene.complete(2, &next, "").await;
}

// T10, T40, T41, T43, T44: the refusal lists every conflict, and nothing of the transaction takes effect
pub(super) async fn nothing_changes_where_one_is_not_as_it_was<H: Host>(scene: Scene<H>) {
    let signal = scene.enqueue(0, Draft::new(scene.queue("signals"), "go on")).await;
    let near = |word: &str| Draft::new(scene.queue(word), word).near(signal);
    let [held, stale, gone] = [
        scene.enqueue(0, near("held")).await,
        scene.enqueue(1, near("changed")).await,
        scene.enqueue(2, near("gone")).await,
    ];
    let claim = scene.take(1, "held").await;
    let seen = version(&scene, stale).await;
    let changed = TransactionDraft::new().change(ChangeDraft::of((stale, seen)).payload("since then"));
    transact(&scene, 1, changed).await.expect("nobody else was there");
    scene.cancel(0, gone).await;
    let good = || TransactionDraft::new().enqueue(near("new"));
    let of = |list: &[TaskId]| list.to_vec();
    let refusals = [
        (
            good().change(ChangeDraft::of((stale, seen)).priority(3)),
            Refusal { changes: of(&[stale]), ..Refusal::default() },
        ),
        (good().delete(gone), Refusal { deletes: of(&[gone]), ..Refusal::default() }),
        (good().depend((stale, seen)), Refusal { depends: of(&[stale]), ..Refusal::default() }),
        (good().delete(held), Refusal { owned: of(&[held]), ..Refusal::default() }),
        (
            good().change(ChangeDraft::of(gone).priority(3)).delete(held).depend((stale, seen)),
            Refusal { changes: of(&[gone]), owned: of(&[held]), depends: of(&[stale]), ..Refusal::default() },
        ),
    ];
    for (client, (draft, expected)) in refusals.into_iter().enumerate() {
        assert_eq!(transact(&scene, client % super::CLIENTS, draft).await, Err(expected));
    }
    scene.nothing("new").await;
    assert_eq!(scene.get(2, stale).await.spec.payload, b"since then");
    scene.complete(1, &claim, "").await;
}

// T34, O29: tasks with one key in one queue are in one partition, and so is a new task with that key
pub(super) async fn tasks_with_one_key_change_together<H: Host>(scene: Scene<H>) {
    let keyed = |payload: &str| Draft::new(scene.queue("changed"), payload).key("alice");
    let [first, second] = [scene.enqueue(0, keyed("first")).await, scene.enqueue(1, keyed("second")).await];
    let [seen, other] = [version(&scene, first).await, version(&scene, second).await];
    let both = |less: &str, more: &str| {
        TransactionDraft::new()
            .change(ChangeDraft::of((first, seen)).payload(less))
            .change(ChangeDraft::of((second, other)).payload(more))
            .enqueue(keyed("third"))
    };
    let made = transact(&scene, 2, both("less", "more")).await.expect("nothing stands against it");
    assert_eq!(made.len(), 3);
    let stale = transact(&scene, 0, both("none", "all")).await.expect_err("both have changed");
    assert_eq!(stale.changes, [first, second]);
    assert_eq!(scene.get(1, first).await.spec.payload, b"less");
    assert_eq!(scene.get(1, second).await.spec.payload, b"more");
    assert_eq!(scene.count("changed", None).await, 3);
}

// T45, T46: a signal task switches claiming on and off, whatever partition it is in
pub(super) async fn a_claim_depends_on_a_signal<H: Host>(scene: Scene<H>) {
    let signal = scene.enqueue(0, Draft::new(scene.queue("signals"), "go on")).await;
    for number in 0..2 {
        scene.enqueue(number, Draft::new(scene.queue("work"), number.to_string())).await;
    }
    let seen = version(&scene, signal).await;
    for expected in [Seen::from(signal), Seen::from((signal, seen))] {
        let claim = Claim { depends: vec![expected.depend()], ..scene.claim("work", LONG) };
        let granted = scene.take_as(1, &claim).await.remove(0);
        scene.release(1, &granted).await;
    }
    scene.cancel(2, signal).await;
    for client in 0..super::CLIENTS {
        let claim = Claim { depends: vec![Seen::from(signal).depend()], ..scene.claim("work", LONG) };
        assert_eq!(scene.refused(client, Request::Claim(claim)).await, ErrorCode::Conflict);
    }
    assert_eq!(scene.take_all("work", 2).await.len(), 2, "nothing was claimed for them");
}
