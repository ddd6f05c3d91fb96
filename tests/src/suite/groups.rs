//! Groups and their join tasks.

use super::Host;
use super::scene::Scene;
use norn_client::session::{Draft, Finish};
use norn_wire::group::{GroupView, MemberOf};
use norn_wire::request::{Acks, Request};
use norn_wire::response::State;
use norn_wire::{Response, TaskId};

const MEMBERS: u32 = 3;

/// Opens the named group; returns the id of its join task, and whether the group existed already.
async fn open<H: Host>(scene: &Scene<H>, client: usize, fail_fast: bool) -> (TaskId, bool) {
    let join = Draft::new(scene.queue("books"), "a book").join(None, fail_fast).group_name("book");
    scene.enqueue_unique(client, join).await
}

/// Enqueues all members. The last one does not mark itself as the last.
async fn fill<H: Host>(scene: &Scene<H>, client: usize, group: TaskId) -> Vec<TaskId> {
    let mut ids = Vec::new();
    for number in 1..=MEMBERS {
        let draft = Draft::new(scene.queue("pages"), format!("page {number}")).member_of(group, number);
        ids.push(scene.enqueue(client, draft).await);
    }
    ids
}

async fn close<H: Host>(scene: &Scene<H>, client: usize, group: TaskId, total: u32) {
    scene.done(client, Request::CloseGroup { id: group, total, acks: Acks::Quorum }).await;
}

// O8, O17, O21, O24, O36: one member is invalid, and counts as ended. The worker that claims the join task can read the results of all
pub(super) async fn a_join_comes_behind_all_members_with_their_results<H: Host>(scene: Scene<H>) {
    let (group, _) = open(&scene, 0, false).await;
    let ids = fill(&scene, 1, group).await;
    for (number, claim) in scene.take_all("pages", ids.len()).await.iter().enumerate() {
        scene.nothing("books").await;
        if claim.id == ids[1] {
            scene.done(0, Scene::<H>::invalidity(claim)).await;
        } else {
            let text = String::from_utf8(claim.payload.clone()).expect("text");
            scene.complete(number, claim, &format!("{text} is printed")).await;
        }
    }
    scene.nothing("books").await;
    close(&scene, 2, group, MEMBERS).await;
    let join = scene.take(2, "books").await;
    let ended = GroupView { total: Some(MEMBERS), ended: MEMBERS, failed: 1 };
    assert_eq!((join.id, join.group), (group, Some(ended)));
    let mut results = Vec::new();
    for number in 1..=MEMBERS {
        let member = scene.get(0, MemberOf { group, number }.id()).await;
        let said = member.result.map(|result| result.into_vec()).or(member.reason.map(String::into_bytes));
        results.push((member.state, String::from_utf8(said.unwrap_or_default()).expect("text")));
    }
    let told =
        [(State::Done, "page 1 is printed"), (State::Dead, "invalid: blank"), (State::Done, "page 3 is printed")];
    assert_eq!(results, told.map(|(state, text)| (state, text.to_owned())));
    scene.complete(2, &join, "bound").await;
}

// O18, O19, O20, O28: only one group with its name exists at a time, and its members are the same tasks for every client that enqueues
// them
pub(super) async fn a_group_that_is_generated_again_is_the_same<H: Host>(scene: Scene<H>) {
    let (one, other, third) = tokio::join!(open(&scene, 0, false), open(&scene, 1, false), open(&scene, 2, false));
    let group = one.0;
    assert!([other.0, third.0] == [group; 2], "{one:?} {other:?} {third:?}");
    let (one, other, third) = tokio::join!(fill(&scene, 0, group), fill(&scene, 1, group), fill(&scene, 2, group));
    assert!(one == other && other == third);
    assert_eq!(one, (1..=MEMBERS).map(|number| MemberOf { group, number }.id()).collect::<Vec<_>>());
    assert_eq!(scene.count("pages", None).await, u64::from(MEMBERS));
    close(&scene, 0, group, MEMBERS).await;
    close(&scene, 1, group, MEMBERS).await;
    let change = Request::CloseGroup { id: group, total: MEMBERS + 1, acks: Acks::Quorum };
    assert_eq!(scene.refused(2, change).await, norn_wire::ErrorCode::Conflict);
    for claim in scene.take_all("pages", one.len()).await {
        scene.complete(0, &claim, "").await;
    }
    let join = scene.take(0, "books").await;
    fill(&scene, 2, group).await;
    scene.nothing("pages").await;
    scene.complete(0, &join, "bound").await;
    let (next, existing) = open(&scene, 1, false).await;
    assert!(next != group && !existing, "the name is free again");
}

// O31
pub(super) async fn one_failure_ends_a_group_that_says_so<H: Host>(scene: Scene<H>) {
    let (group, _) = open(&scene, 0, true).await;
    let ids = fill(&scene, 0, group).await;
    close(&scene, 1, group, MEMBERS).await;
    let claim = scene.take(1, "pages").await;
    scene.done(1, Scene::<H>::invalidity(&claim)).await;
    let join = scene.take(2, "books").await;
    let ended = GroupView { total: Some(MEMBERS), ended: MEMBERS, failed: MEMBERS };
    assert_eq!((join.id, join.group), (group, Some(ended)));
    for id in ids {
        let expected = if id == claim.id { State::Dead } else { State::Cancelled };
        scene.get_when(id, "it has ended so", |view| view.state == expected).await;
    }
    scene.nothing("pages").await;
}

// O22, O23, O24: a group does not wait for other child tasks of a completion
pub(super) async fn a_group_waits_for_the_groups_that_its_members_bring<H: Host>(scene: Scene<H>) {
    let outer = Draft::new(scene.queue("books"), "outer").join(Some(1), false);
    let group = scene.enqueue(0, outer).await;
    scene.enqueue(1, Draft::new(scene.queue("pages"), "parent").member_of(group, 1)).await;
    let parent = scene.take(0, "pages").await;
    let inner = Draft::new(scene.queue("chapters"), "inner").join(Some(2), false);
    let part = |number| Draft::new(scene.queue("parts"), "").member_of(TaskId::MIN, number);
    let plain = Draft::new(scene.queue("notes"), "");
    let children = vec![inner, part(1), part(2), plain];
    let finish = Finish { children, ..Scene::<H>::finish(&parent, "split") };
    scene.try_complete(0, finish).await.expect("it is taken");
    scene.nothing("books").await;
    for claim in scene.take_all("parts", 2).await {
        scene.nothing("chapters").await;
        scene.complete(1, &claim, "").await;
    }
    let chapter = scene.take(2, "chapters").await;
    assert_eq!(chapter.group.map(|group| (group.ended, group.failed)), Some((2, 0)));
    scene.nothing("books").await;
    scene.complete(2, &chapter, "").await;
    let book = scene.take(0, "books").await;
    assert_eq!(book.id, group);
    let Response::Task(note) = scene
        .done(1, Request::Get { id: scene.take(1, "notes").await.id, minimum: None, minimum_sequence: None })
        .await
    else {
        panic!("no task");
    };
    assert_eq!(note.state, State::Claimed, "it has not ended");
}
