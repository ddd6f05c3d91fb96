//! Unique tasks: the only open ones with their keys.

use super::policies::is_changed;
use super::*;
use norn_model::host::Room;
use norn_model::message::ReadWrite;
use norn_wire::error::{Cause, Error, Retry};
use norn_wire::membership::QueueSetting;

impl Cluster {
    fn unique_task(&mut self, key: &str) -> NewTask {
        let spec = Spec { key: Some(key.to_owned()), ..spec(key.as_bytes(), 0) };
        NewTask { id: self.id(spec.tag().expect("it has a key")), spec }
    }

    /// The open task with the key, and whether it existed before.
    fn enqueue_unique(&mut self, index: usize, task: &NewTask) -> Result<(TaskId, bool), ErrorCode> {
        match self.ask(index, Request::EnqueueUnique { task: Box::new(task.clone()) }) {
            Response::AckedUnique { acked, existing } => Ok((acked.id, existing)),
            Response::Error(error) => Err(error.code),
            other => panic!("{other:?}"),
        }
    }

    fn unique_refused(&mut self, index: usize, task: &NewTask) -> Error {
        match self.ask(index, Request::EnqueueUnique { task: Box::new(task.clone()) }) {
            Response::Error(error) => error,
            other => panic!("{other:?}"),
        }
    }

    fn reserved(&self, id: &TaskId) -> usize {
        let has = |node: &Node| node.partitions[&node.partition_of(id)].consensus.table.reserved.contains_key(id);
        self.nodes.iter().filter(|node| has(node)).count()
    }
}

fn connected() -> Cluster {
    let mut cluster = Cluster::modern(3);
    cluster.connect_all();
    cluster
}

// O14
#[test]
fn a_key_has_one_task_until_that_has_ended() {
    let mut cluster = connected();
    let tasks: Vec<NewTask> = (0..3).map(|_| cluster.unique_task("a")).collect();
    let other = cluster.unique_task("b");
    assert_eq!(cluster.enqueue_unique(0, &tasks[0]), Ok((tasks[0].id, false)));
    assert_eq!(cluster.enqueue_unique(1, &tasks[1]), Ok((tasks[0].id, true)));
    assert_eq!(cluster.enqueue_unique(2, &tasks[0]), Ok((tasks[0].id, false)), "it is asked again");
    assert_eq!(cluster.enqueue_unique(2, &other), Ok((other.id, false)));
    let granted = cluster.claim(1, 60_000);
    let token = granted.iter().find(|granted| granted.id == tasks[0].id).map(|granted| granted.token);
    let token = token.unwrap_or_else(|| cluster.claim(1, 60_000).remove(0).token);
    assert_eq!(cluster.enqueue_unique(1, &tasks[2]), Ok((tasks[0].id, true)), "it is held");
    assert!(matches!(cluster.complete(2, tasks[0].id, token), Response::Acked(_)));
    let next = cluster.unique_task("a");
    assert_eq!(cluster.enqueue_unique(0, &next), Ok((next.id, false)));
    // A task that was refused for another one does not come later.
    assert_eq!(cluster.enqueue_unique(0, &tasks[1]), Ok((tasks[0].id, true)));
    assert_eq!((cluster.knowing(&tasks[1].id), cluster.knowing(&tasks[2].id)), (0, 0));
    cluster.advance(5_000);
    assert_eq!(cluster.reserved(&next.id), 0, "what is written leaves the table");
    assert_eq!(cluster.knowing(&next.id), 3);
}

/// Delayed tasks count, and those that wait for others, and those that were not enqueued as unique.
#[test]
fn whatever_has_not_ended_counts() {
    let mut cluster = connected();
    let mut delayed = cluster.unique_task("a");
    delayed.spec.not_before_ms = u64::MAX / 2;
    let tasks = vec![delayed.clone()];
    assert!(matches!(cluster.ask(0, Request::Enqueue { tasks, acks: Acks::Quorum }), Response::Acked(_)));
    let mut waits = cluster.unique_task("b");
    waits.spec.after = vec![delayed.id];
    assert_eq!(cluster.enqueue_unique(0, &waits), Ok((waits.id, false)));
    for (key, there) in [("a", delayed.id), ("b", waits.id)] {
        let task = cluster.unique_task(key);
        assert_eq!(cluster.enqueue_unique(1, &task), Ok((there, true)));
    }
    let cancel = Request::Cancel { id: delayed.id, reason: String::new(), at_ms: 1, acks: Acks::Quorum };
    assert!(matches!(cluster.ask(0, cancel), Response::AckedOne(_)));
    let task = cluster.unique_task("a");
    assert_eq!(cluster.enqueue_unique(1, &task), Ok((task.id, false)));
}

/// Goal: a leader finds what its predecessor reserved, and no other task gets the key. Method: the leader goes down once the
/// reservation is committed, before it has written the task anywhere.
#[test]
fn what_is_reserved_is_written_by_whoever_leads_next() {
    let mut cluster = connected();
    let task = cluster.unique_task("a");
    let leader = cluster.leader(&task.id);
    let (principal, request) =
        (Principal { name: "tester".into(), node: false }, Request::EnqueueUnique { task: Box::new(task.clone()) });
    cluster.queue.push_back((leader, Event::Request { client: CLIENT, number: 1_000, principal, request }));
    while cluster.reserved(&task.id) < 2 {
        assert!(cluster.handle_next(), "it is reserved");
    }
    assert_eq!(cluster.knowing(&task.id), 0, "nobody has it as a fact yet");
    cluster.down.insert(leader);
    cluster.advance(5_000);
    let next = (leader + 1) % 3;
    let other = cluster.unique_task("a");
    assert_eq!(cluster.enqueue_unique(next, &other), Ok((task.id, true)));
    assert_eq!(cluster.knowing(&other.id), 0);
}

#[test]
fn a_unique_task_needs_a_key_and_room() {
    let mut cluster = connected();
    let mut task = cluster.unique_task("a");
    task.spec.key = None;
    assert_eq!(cluster.enqueue_unique(0, &task), Err(ErrorCode::Invalid));
    let mut task = cluster.unique_task("a");
    task.id = TaskId::new(cluster.now.wall_ms + 100 * 3_600_000, 1, 1, task.id.tag());
    assert_eq!(cluster.enqueue_unique(0, &task), Err(ErrorCode::IdFromFuture));
    let task = cluster.unique_task("a");
    assert_eq!(cluster.enqueue_unique(0, &task), Ok((task.id, false)), "the key is free");
}

#[test]
fn a_leader_whose_disk_is_nearly_full_reserves_no_key() {
    let mut cluster = connected();
    let task = cluster.unique_task("a");
    let leader = cluster.leader(&task.id);
    cluster.report(leader, Room::Short, 0);
    let refusal = cluster.unique_refused((leader + 1) % 3, &task);
    assert_eq!(
        (refusal.code, refusal.cause),
        (ErrorCode::NoSpace, None),
        "the call was passed on, and may come once more"
    );
    let refusal = cluster.unique_refused(leader, &task);
    assert_eq!((refusal.code, refusal.cause), (ErrorCode::NoSpace, Some(Cause::TurnedAway)));
    assert_eq!((cluster.knowing(&task.id), cluster.reserved(&task.id)), (0, 0));
    cluster.report(leader, Room::Ample, 0);
    assert_eq!(cluster.enqueue_unique((leader + 1) % 3, &task), Ok((task.id, false)));
}

/// Goal: if the leader has disk space and the others have none, the client learns of the disks, and does not wait for space.
#[test]
fn a_key_that_followers_have_no_room_for_is_said_to_lack_it() {
    let mut cluster = connected();
    let (task, other) = (cluster.unique_task("a"), cluster.unique_task("a"));
    let leader = cluster.leader(&task.id);
    let report = |cluster: &mut Cluster, room| (1..3).for_each(|next| cluster.report((leader + next) % 3, room, 0));
    report(&mut cluster, Room::Short);
    // A client with another task learns that nothing of it was stored.
    let expected = [(&task, ErrorCode::Unknown), (&other, ErrorCode::NoSpace), (&task, ErrorCode::Unknown)];
    for (task, code) in expected {
        let (before_us, refusal) = (cluster.now.mono_us, cluster.unique_refused(leader, task));
        assert_eq!((refusal.code, refusal.retry, refusal.id), (code, Retry::Later, Some(task.id)));
        assert!(refusal.message.contains("nearly full"), "{}", refusal.message);
        assert!(cluster.now.mono_us < before_us + 2_000_000, "it is said at once");
    }
    report(&mut cluster, Room::Ample);
    cluster.advance(2_000);
    assert_eq!(cluster.enqueue_unique(leader, &task), Ok((task.id, false)));
    assert_eq!(cluster.enqueue_unique(leader, &other), Ok((task.id, true)));
}

/// Goal: no client gets an error about full disks while they are not. Method: there is space again, and the next try has no answer yet.
#[test]
fn a_key_is_said_to_lack_room_only_while_it_does() {
    let mut cluster = connected();
    let (task, other) = (cluster.unique_task("a"), cluster.unique_task("a"));
    let leader = cluster.leader(&task.id);
    (1..3).for_each(|next| cluster.report((leader + next) % 3, Room::Short, 0));
    assert_eq!(cluster.unique_refused(leader, &task).code, ErrorCode::Unknown);
    (1..3).for_each(|next| cluster.report((leader + next) % 3, Room::Ample, 0));
    let is_lost =
        |_: usize, message: &PeerMessage| matches!(message, PeerMessage::ReadWrite(ReadWrite::Written { .. }));
    cluster.advance_losing(1_000, is_lost);
    let number = cluster.submit(leader, Request::EnqueueUnique { task: Box::new(other.clone()) });
    cluster.advance_losing(100, is_lost);
    let reply = cluster.replies.get(&number);
    assert!(!matches!(reply, Some(Response::Error(error)) if error.message.contains("full")), "{reply:?}");
    cluster.run_until(|cluster| cluster.replies.contains_key(&number));
    match cluster.replies.remove(&number) {
        Some(Response::AckedUnique { acked, existing }) => assert_eq!((acked.id, existing), (task.id, true)),
        reply => panic!("{reply:?}"),
    }
}

/// Goal: a task that its leader refuses itself was not forwarded, and the answer says so; from elsewhere a copy may be on its way.
#[test]
fn a_full_queue_is_certain_at_the_leader_alone() {
    let mut cluster = connected();
    let task = cluster.unique_task("a");
    assert_eq!(cluster.enqueue_unique(0, &task), Ok((task.id, false)));
    assert!(is_changed(&cluster.set(0, "mail", QueueSetting::Tasks(Some(1)))));
    let other = cluster.unique_task("b");
    let leader = cluster.leader(&other.id);
    for index in 0..3 {
        let refusal = cluster.unique_refused(index, &other);
        let cause = (index == leader).then_some(Cause::TurnedAway);
        assert_eq!((refusal.code, refusal.cause), (ErrorCode::Overloaded, cause));
    }
}

/// Goal: a full queue answers with the task that exists, and never says of another one that it could be stored.
#[test]
fn a_full_queue_tells_of_the_task_that_there_is() {
    let mut cluster = connected();
    let task = cluster.unique_task("a");
    assert_eq!(cluster.enqueue_unique(0, &task), Ok((task.id, false)));
    assert!(is_changed(&cluster.set(0, "mail", QueueSetting::Tasks(Some(1)))));
    let (again, other) = (cluster.unique_task("a"), cluster.unique_task("b"));
    for index in 0..3 {
        assert_eq!(cluster.enqueue_unique(index, &again), Ok((task.id, true)));
        assert_eq!(cluster.enqueue_unique(index, &other), Err(ErrorCode::Overloaded));
    }
    assert_eq!((cluster.knowing(&other.id), cluster.reserved(&other.id)), (0, 0));
    let granted = cluster.claim(1, 60_000).remove(0);
    assert!(matches!(cluster.complete(2, task.id, granted.token), Response::Acked(_)));
    cluster.advance(1_000);
    assert_eq!(cluster.enqueue_unique(0, &other), Ok((other.id, false)), "one has ended");
}
