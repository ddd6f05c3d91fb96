//! What readers get, and what it costs.

use super::forgetting::LONG_MS;
use super::*;
use norn_model::message::{ReadWrite, Replication};

impl Cluster {
    fn queues(&mut self, index: usize) -> Vec<QueueName> {
        match self.ask(index, Request::Queues) {
            Response::Queues(queues) => queues.into_iter().map(|queue| queue.queue).collect(),
            other => panic!("{other:?}"),
        }
    }

    /// The task, once its latest claim's log has this length, or an error.
    fn read_from(&mut self, index: usize, id: TaskId, length: u32) -> Result<TaskView, Error> {
        match self.ask(index, Request::Get { id, minimum: None, minimum_sequence: Some(length) }) {
            Response::Task(view) => Ok(*view),
            Response::Error(error) => Err(error),
            other => panic!("{other:?}"),
        }
    }
}

// T17
#[test]
fn a_queue_comes_with_its_first_task_and_goes_with_its_last() {
    let mut cluster = Cluster::new(3);
    assert_eq!(cluster.queues(1), []);
    let id = cluster.done(b"x");
    assert_eq!(cluster.queues(2), [QueueName::new("mail").expect("a name")]);
    cluster.skip(LONG_MS);
    cluster.run_until_forgotten(&id);
    assert_eq!(cluster.queues(0), []);
}

// S24
#[test]
fn a_read_shows_all_of_a_task_and_is_no_older_than_asked_for() {
    let mut cluster = Cluster::new(3);
    let id = cluster.enqueue(0, b"x", 9);
    let token = cluster.claim(0, 60_000).remove(0).token;
    let update = |sequence| Request::Update { id, token, sequence, data: vec![sequence as u8], acks: Acks::Quorum };
    assert!(matches!(cluster.ask(1, update(0)), Response::AckedOne(_)));
    let view = cluster.read_from(2, id, 1).expect("it is there");
    assert_eq!((view.spec.payload.as_slice(), view.spec.priority, view.state), (&b"x"[..], 0, State::Claimed));
    assert_eq!(view.claims.iter().map(|claim| claim.token).collect::<Vec<_>>(), [token]);
    assert_eq!(view.updates.iter().map(|entry| entry.sequence).collect::<Vec<_>>(), [0]);
    // A reader that has seen a later entry does not get less: it waits, and gets an error if there is none.
    let number = cluster.submit(2, Request::Get { id, minimum: Some((token, 1)), minimum_sequence: None });
    assert!(!cluster.replies.contains_key(&number));
    assert!(matches!(cluster.ask(0, update(1)), Response::AckedOne(_)));
    cluster.run_until(|cluster| cluster.replies.contains_key(&number));
    match cluster.replies.remove(&number) {
        Some(Response::Task(view)) => assert_eq!(view.updates.len(), 2),
        other => panic!("{other:?}"),
    }
    assert_eq!(cluster.read_from(1, id, 3).expect_err("nobody writes it").code, ErrorCode::Stale);
}

// E7
#[test]
fn reads_are_not_logged() {
    let mut cluster = Cluster::new(3);
    let id = cluster.enqueue(0, b"x", 9);
    cluster.advance(5_000);
    let facts = |cluster: &Cluster| -> usize {
        let of_tasks = |record: &&Record| matches!(record, Record::Facts { .. } | Record::Ops { .. });
        cluster.logs.iter().map(|log| log.iter().filter(of_tasks).count()).sum()
    };
    let before = facts(&cluster);
    for index in 0..3 {
        assert_eq!(cluster.get(index, id).state, State::Ready);
        let (queue, state) = (None, None);
        assert!(matches!(cluster.ask(index, Request::Count { queue, state }), Response::Count(1)));
        cluster.queues(index);
    }
    assert_eq!(facts(&cluster), before);
}

/// Goal: a list shows no more of a task than a read right after it. Method: a leader has appended the death of a task, and no follower
/// has received that; the read hears the followers.
#[test]
fn a_list_shows_nothing_that_a_leader_alone_has() {
    let mut cluster = Cluster::modern(3);
    let id = cluster.id(9);
    let tasks = vec![NewTask { id, spec: Spec { attempts_max: 1, ..spec(b"x", 0) } }];
    assert!(matches!(cluster.ask(0, Request::Enqueue { tasks, acks: Acks::All }), Response::Acked(_)));
    let token = cluster.claim(0, 60_000).remove(0).token;
    cluster.advance(1_000);
    let leader = cluster.leader(&id);
    let reader = (leader + 1) % 3;
    let of_task = cluster.nodes[leader].partition_of(&id);
    let is_lost = |to: usize, message: &PeerMessage| match message {
        PeerMessage::Replication(Replication::Ops { partition, .. }) => *partition == of_task,
        PeerMessage::ReadWrite(ReadWrite::Read { .. }) => to == leader,
        _ => false,
    };
    let reason = "broken".into();
    let fail = Request::Fail { id, token, reason, retry_in_ms: 0, invalid: false, retry_open: false };
    let failed = cluster.post(leader, fail);
    cluster.advance_losing(20, is_lost);
    let entry = cluster.replica_of(leader, &id).consensus.claim_entry(&id).expect("it is claimed");
    assert!(entry.death().is_some() && !cluster.replies.contains_key(&failed), "it is appended, and not committed");
    let shown = |cluster: &mut Cluster| {
        let list = Request::List { queue: None, state: None, after: None, from: None, to: None, limit: 4 };
        let listed = cluster.post(reader, list);
        cluster.advance_losing(20, is_lost);
        let read = cluster.post(reader, Request::Get { id, minimum: None, minimum_sequence: None });
        cluster.advance_losing(20, is_lost);
        match (cluster.replies.remove(&listed), cluster.replies.remove(&read)) {
            (Some(Response::Page(page)), Some(Response::Task(view))) => (page.tasks[0].state, view.state),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(shown(&mut cluster), (State::Claimed, State::Claimed));
    cluster.run_until(|cluster| cluster.replies.contains_key(&failed));
    assert_eq!(shown(&mut cluster), (State::Dead, State::Dead));
}

// S31
/// Goal: a write can ask for a number of disks. Method: three replicas, of which one is down, and then two.
#[test]
fn as_many_acks_as_were_asked_for_are_waited_for() {
    let mut cluster = Cluster::new(3);
    let enqueue = |cluster: &mut Cluster, number: u32, acks: u8| {
        let (id, spec) = (cluster.id(number), spec(b"x", 0));
        let acks = Acks::Count(acks.try_into().expect("it is not zero"));
        cluster.ask(0, Request::Enqueue { tasks: vec![NewTask { id, spec }], acks })
    };
    let acks = |response: Response| match response {
        Response::Acked(results) => results.into_iter().next().expect("one task").map(|acked| acked.acks),
        Response::Error(error) => Err(error),
        other => panic!("{other:?}"),
    };
    assert_eq!(acks(enqueue(&mut cluster, 1, 3)), Ok(3));
    let refused = acks(enqueue(&mut cluster, 2, 4)).expect_err("there are three");
    assert_eq!(refused.code, ErrorCode::Invalid);
    assert!(refused.message.contains("ask for 1 to 3"), "{refused}");
    cluster.down.insert(2);
    assert_eq!(acks(enqueue(&mut cluster, 3, 2)), Ok(2));
    assert_eq!(acks(enqueue(&mut cluster, 4, 3)).expect_err("one is down").code, ErrorCode::Unknown);
    cluster.down.insert(1);
    assert_eq!(acks(enqueue(&mut cluster, 5, 1)), Ok(1));
    assert_eq!(acks(enqueue(&mut cluster, 6, 2)).expect_err("two are down").code, ErrorCode::Unknown);
}
