//! Scenes that kill nodes in the middle: each node in turn, whatever it leads at the time.

use super::scene::{LONG, Scene};
use super::{CLIENTS, Host, NODES, sessions};
use norn_client::session::{Draft, Finish};
use norn_wire::group::GroupView;
use norn_wire::request::Claim;
use norn_wire::response::State;
use norn_wire::{TaskId, TaskView};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::Duration;

// O7, S3, S29, S41, T6: held tasks stay held, log entries are readable, and completed tasks stay completed
pub(super) async fn claims_and_their_logs_outlive_each_node<H: Host>(scene: Scene<H>) {
    const TASKS: usize = 8;
    for node in 0..NODES {
        let mut ids = BTreeSet::new();
        for number in 0..TASKS {
            ids.insert(scene.enqueue(number % 3, Draft::new(scene.queue("work"), "")).await);
        }
        let claims = scene.take_all("work", TASKS).await;
        scene.update(node, &claims[0], 0, "begun").await;
        scene.kill(node);
        scene.nothing("work").await;
        for (number, claim) in claims.iter().enumerate() {
            let client = (number + 1) % 3;
            scene.renew(client, claim.id, claim.token, Some(LONG)).await.expect("it is held");
            if number % 2 == 0 {
                scene.complete(client, claim, "done").await;
            } else {
                scene.release(client, claim).await;
            }
        }
        scene.restart(node);
        let open: BTreeSet<TaskId> = claims.iter().skip(1).step_by(2).map(|claim| claim.id).collect();
        let mut again = BTreeSet::new();
        for claim in scene.take_all("work", open.len()).await {
            let before = claims.iter().find(|before| before.id == claim.id).expect("it is one of them");
            assert!(claim.token > before.token, "{} and then {}", before.token, claim.token);
            again.insert(claim.id);
            scene.complete(0, &claim, "done").await;
        }
        assert_eq!(again, open, "what is completed is not run again");
        let view = scene.get(1, claims[0].id).await;
        assert_eq!((view.state, view.updates.len()), (State::Done, 1));
        assert_eq!(claims.iter().map(|claim| claim.id).collect::<BTreeSet<_>>(), ids);
    }
    assert_eq!(scene.count("work", None).await, (NODES * TASKS) as u64);
}

// O3, O15, O25: one task of a key is held in the whole cluster
pub(super) async fn of_a_key_there_is_one_whoever_leads<H: Host>(scene: Scene<H>) {
    let mut ids = Vec::new();
    for client in 0..=NODES {
        ids.push(scene.enqueue_at_all(client % 3, Draft::new(scene.queue("mail"), "").key("anna")).await);
    }
    ids.sort();
    for node in 0..NODES {
        let claim = scene.take(node, "mail").await;
        assert_eq!(claim.id, ids[node]);
        scene.kill(node);
        scene.nothing("mail").await;
        scene.complete((node + 1) % 3, &claim, "").await;
        let next = scene.take(node, "mail").await;
        assert_eq!(next.id, ids[node + 1]);
        scene.nothing("mail").await;
        scene.release(node, &next).await;
        scene.restart(node);
    }
}

// O17, O19, O21, O7
pub(super) async fn a_group_comes_to_its_end_whoever_is_killed<H: Host>(scene: Scene<H>) {
    const MEMBERS: u32 = NODES as u32 * 2;
    let group = scene.enqueue(0, Draft::new(scene.queue("books"), "").join(Some(MEMBERS), false)).await;
    let member = |number: u32| Draft::new(scene.queue("pages"), "").member_of(group, number);
    for node in 0..NODES {
        let numbers = [2 * node as u32 + 1, 2 * node as u32 + 2];
        scene.enqueue(node, member(numbers[0])).await;
        scene.kill(node);
        // The generator continues with one node fewer, and starts from the beginning.
        for number in 1..=numbers[1] {
            scene.enqueue((node + 1) % 3, member(number)).await;
        }
        for claim in scene.take_all("pages", 2).await {
            scene.nothing("books").await;
            scene.complete(node, &claim, "").await;
        }
        scene.nothing("pages").await;
        scene.restart(node);
    }
    let join = scene.take(0, "books").await;
    assert_eq!((join.id, join.group), (group, Some(GroupView { total: Some(MEMBERS), ended: MEMBERS, failed: 0 })));
    assert_eq!(scene.count("pages", None).await, u64::from(MEMBERS));
}

// O22: the children arrive once the completion is acknowledged, even if the node responsible for them has died
pub(super) async fn children_are_there_once_whoever_is_killed<H: Host>(scene: Scene<H>) {
    const CHILDREN: usize = 5;
    let mut all = BTreeSet::new();
    for node in 0..NODES {
        let id = scene.enqueue(0, Draft::new(scene.queue("orders"), "")).await;
        let claim = scene.take(1, "orders").await;
        let children = vec![Draft::new(scene.queue("parcels"), ""); CHILDREN];
        scene.try_complete(2, Finish { children, ..Scene::<H>::finish(&claim, "") }).await.expect("it is taken");
        scene.kill(node);
        for claim in scene.take_all("parcels", CHILDREN).await {
            assert!(all.insert(claim.id), "it comes twice");
            scene.complete(node, &claim, "").await;
        }
        scene.restart(node);
        let view = scene.get_when(id, "all children are handed over", |view: &TaskView| !view.children_open).await;
        assert!(view.children.len() == CHILDREN && view.children.iter().all(|child| all.contains(child)), "{view:?}");
        scene.nothing("parcels").await;
    }
    assert_eq!(scene.count("parcels", None).await, all.len() as u64);
}

// C4, C9: its heartbeat keeps all its claims, whichever node leads, and its end frees them
pub(super) async fn a_session_outlives_each_node<H: Host>(scene: Scene<H>) {
    let session = sessions::open(&scene, 0, LONG).await;
    let ids = sessions::hold(&scene, 0, &session).await;
    for node in 0..NODES {
        scene.kill(node);
        scene.renew(node, session.id, session.token, None).await.expect("it lives");
        scene.nothing("work").await;
        scene.restart(node);
        scene.pass(Duration::from_secs(2)).await;
    }
    scene.complete(1, &session, "").await;
    let freed: BTreeSet<TaskId> = scene.take_all("work", ids.len()).await.iter().map(|claim| claim.id).collect();
    assert_eq!(freed, ids);
    let more = Claim { max: 100, ..scene.claim("work", LONG) };
    assert_eq!(scene.claimed(2, &more).await, [], "each of them is held once");
}

// C7: a grant that is made just as a node dies still reaches its worker, and no task stays held without a worker
pub(super) async fn what_is_granted_as_a_node_dies_is_told<H: Host>(scene: Scene<H>) {
    const EACH: usize = 10;
    for node in 0..NODES {
        for number in 0..EACH * CLIENTS {
            scene.enqueue(number % CLIENTS, Draft::new(scene.queue("work"), "")).await;
        }
        // The other clients are in the middle of a claim call, and so are their nodes.
        let told = RefCell::new(BTreeSet::new());
        let work = async |client: usize| {
            for _ in 0..EACH {
                let claim = scene.take(client, "work").await;
                assert!(told.borrow_mut().insert(claim.id), "it is told twice");
                if told.borrow().len() == EACH {
                    scene.kill(node);
                }
            }
        };
        tokio::join!(work(0), work(1), work(2));
        scene.nothing("work").await;
        scene.restart(node);
    }
    assert_eq!(scene.count("work", Some(State::Claimed)).await, (NODES * CLIENTS * EACH) as u64);
}
