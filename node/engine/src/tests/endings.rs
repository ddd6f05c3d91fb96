//! How leaders and followers propagate the endings of tasks.

use super::copy::tell;
use super::hints::go_on;
use super::*;
use norn_model::claim_table::table::Op;
use norn_model::limits::ENDINGS_BYTES_MAX;
use norn_model::message::{AntiEntropy, ReadWrite, Replication};
use norn_model::replica::DoneFlag;
use norn_model::task::Task;

/// Goal: however large results are, the operations that carry them fit a record and a message.
#[test]
fn endings_are_told_in_pieces_of_bounded_size() {
    let mut cluster = Cluster::new(3);
    let ids: Vec<TaskId> = (0..12).map(|_| cluster.enqueue(0, b"work", 7)).collect();
    let mut held = BTreeMap::new();
    for _ in &ids {
        held.extend(cluster.claim(0, 60_000).into_iter().map(|granted| (granted.id, granted.token)));
    }
    assert_eq!(held.len(), ids.len());
    // All completions are there before the leader drops the first claim.
    let numbers: Vec<u64> = held
        .iter()
        .map(|(id, token)| {
            let result = Some(vec![1; 1 << 20].into());
            let item = Completion { id: *id, token: *token, sequence: None, result, at_ms: 1, children: Vec::new() };
            cluster.submit(0, Request::Complete { items: vec![item], acks: Acks::Quorum })
        })
        .collect();
    cluster.run_until(|cluster| numbers.iter().all(|number| cluster.replies.contains_key(number)));
    cluster.advance(2_000);
    let drops = |log: &Vec<Record>| {
        let ops = log.iter().filter_map(|record| match record {
            Record::Ops { ops, .. } => Some(ops),
            _ => None,
        });
        let sizes = ops.flatten().filter(|op| matches!(op.as_ref(), Op::Drop { .. })).map(|op| op.size_bytes());
        sizes.collect::<Vec<_>>()
    };
    for log in &cluster.logs {
        let sizes = drops(log);
        assert!(sizes.iter().sum::<usize>() >= 12 << 20, "every ending is told");
        assert!(sizes.iter().all(|size| *size <= ENDINGS_BYTES_MAX), "{sizes:?}");
    }
}

/// Done flags of a follower's acknowledgements.
fn flags(messages: &[PeerMessage]) -> Vec<DoneFlag> {
    let flags = messages.iter().filter_map(|message| match message {
        PeerMessage::Replication(Replication::Ack { done, .. }) => Some(done.clone()),
        _ => None,
    });
    flags.flatten().collect()
}

/// Goal: a follower flags claims of ended tasks however it learned of these claims, as long as they may not be committed. Method: one
/// follower missed the operation and gets the whole table; that one and another, which has the operation, find it in their logs.
#[test]
fn a_follower_flags_ended_tasks_of_a_table_that_came_whole_or_out_of_its_log() {
    let mut cluster = Cluster::new(3);
    let id = cluster.enqueue(0, b"x", 7);
    let (leader, partition) = (cluster.leader(&id), cluster.nodes[0].partition_of(&id));
    let [follower, other] = [1, 2].map(|away| (leader + away) % 3);
    cluster.down.insert(follower);
    let token = cluster.claim(other, 60_000).remove(0).token;
    assert!(matches!(cluster.complete(other, id, token), Response::Acked(_)));
    let from = cluster.nodes[leader].founding.node;
    let (replica, forgets) = (cluster.replica_of(leader, &id), Some(0));
    let (viewstamp, table) = (replica.consensus.viewstamp, Arc::new(replica.consensus.table.clone()));
    let (task, _) = replica.store.content(&id).expect("it knows the task");
    assert!(task.ended().is_some() && replica.consensus.table.entries[&id].renewed == viewstamp);

    let items = Arc::new(vec![(id, task.ending())]);
    tell(
        &mut cluster,
        follower,
        from,
        PeerMessage::AntiEntropy(AntiEntropy::Tasks { partition, items, by_buckets: false, forgets }),
    );
    let commit = viewstamp.length - 1;
    let snapshot = PeerMessage::Replication(Replication::Snapshot { partition, viewstamp, table, commit });
    let flags = flags(&tell(&mut cluster, follower, from, snapshot));
    assert!(matches!(&flags[..], [flag] if (flag.id, flag.token) == (id, token)), "{flags:?}");
    for index in [follower, other] {
        cluster.restart(index);
        let replica = cluster.replica_of(index, &id);
        assert_eq!((replica.consensus.viewstamp, replica.done_flags()), (viewstamp, flags.clone()));
    }
}

/// Goal: a task that a follower knows to have ended is not granted, though its ending does not fit the acknowledgement. Method: a
/// leader has missed six completions with large results, and grants these tasks at once.
#[test]
fn an_ending_beyond_the_budget_of_an_acknowledgement_is_asked_for() {
    const TASKS: u32 = 6;
    let mut cluster = Cluster::new(3);
    let ids: Vec<TaskId> = (0..TASKS).map(|_| cluster.enqueue(0, b"work", 7)).collect();
    let leader = cluster.leader(&ids[0]);
    let other = (leader + 1) % 3;
    let held: Vec<(TaskId, Token)> =
        ids.iter().map(|_| cluster.claim(other, 1_000).remove(0)).map(|granted| (granted.id, granted.token)).collect();
    let items = held.iter().map(|(id, token)| Completion {
        id: *id,
        token: *token,
        sequence: None,
        result: Some(vec![1; 1 << 20].into()),
        at_ms: 1,
        children: Vec::new(),
    });
    let misses = |_: &mut Cluster, index: usize, event: Event| match event {
        Event::Peer {
            message:
                PeerMessage::ReadWrite(ReadWrite::Write { .. }) | PeerMessage::AntiEntropy(AntiEntropy::Tasks { .. }),
            ..
        } if index == leader => None,
        event => Some(event),
    };
    for (number, item) in (1_000..).zip(items) {
        let principal = Principal { name: "tester".into(), node: false };
        let request = Request::Complete { items: vec![item], acks: Acks::Quorum };
        cluster.queue.push_back((other, Event::Request { client: CLIENT, number, principal, request }));
        go_on(&mut cluster, 20, misses);
        assert!(matches!(&cluster.replies[&number], Response::Acked(results) if results[0].is_ok()));
    }
    // The leases end, and the leader does not know why they are not renewed.
    go_on(&mut cluster, 2_000, misses);
    assert!(ids.iter().all(|id| !cluster.replica_of(leader, id).store.ended(id)));
    let claim = Request::Claim(claim_of(ClaimId(99), 60_000, TASKS));
    match cluster.ask(other, claim) {
        Response::Claimed { tasks, .. } => assert_eq!(tasks, Vec::new()),
        other => panic!("{other:?}"),
    }
    let is_flag = |(index, observation): &&(usize, Observation)| {
        *index == leader && matches!(observation, Observation::DoneFlag { .. })
    };
    assert!(cluster.observed.iter().filter(is_flag).count() >= TASKS as usize);
    cluster.run_until(|cluster| ids.iter().all(|id| cluster.replica_of(leader, id).store.ended(id)));
}

/// Goal: a claim of a task whose end only followers know takes the place of no other. Method: a leader has missed a completion, and the
/// followers flag the task as ended, but do not send how, as to an old leader. A call for one task gets the next one.
#[test]
fn an_end_that_a_leader_cannot_learn_keeps_no_other_task_back() {
    let mut cluster = Cluster::new(3);
    let first = cluster.enqueue(0, b"work", 7);
    let leader = cluster.leader(&first);
    let other = (leader + 1) % 3;
    let token = cluster.claim(other, 1_000).remove(0).token;
    let principal = || Principal { name: "tester".into(), node: false };
    let unheard = |_: &mut Cluster, index: usize, mut event: Event| match &mut event {
        Event::Peer {
            message:
                PeerMessage::ReadWrite(ReadWrite::Write { .. }) | PeerMessage::AntiEntropy(AntiEntropy::Tasks { .. }),
            ..
        } if index == leader => None,
        Event::Peer { message: PeerMessage::Replication(Replication::Ack { done, .. }), .. } if index == leader => {
            done.iter_mut().for_each(|flag| flag.ending = Task::default());
            Some(event)
        }
        _ => Some(event),
    };
    let item = Completion { id: first, token, sequence: None, result: None, at_ms: 1, children: Vec::new() };
    let request = Request::Complete { items: vec![item], acks: Acks::Quorum };
    cluster.queue.push_back((other, Event::Request { client: CLIENT, number: 1_000, principal: principal(), request }));
    go_on(&mut cluster, 2_000, unheard);
    assert!(matches!(&cluster.replies[&1_000], Response::Acked(results) if results[0].is_ok()));
    assert!(!cluster.replica_of(leader, &first).store.ended(&first), "the leader has not heard of it");

    let second = cluster.enqueue(leader, b"work", 7);
    let request = Request::Claim(claim_of(ClaimId(99), 60_000, 1));
    cluster.queue.push_back((other, Event::Request { client: CLIENT, number: 1_001, principal: principal(), request }));
    go_on(&mut cluster, 2_000, unheard);
    match &cluster.replies[&1_001] {
        Response::Claimed { tasks, .. } => {
            assert_eq!(tasks.iter().map(|granted| granted.id).collect::<Vec<_>>(), [second]);
        }
        other => panic!("{other:?}"),
    }
    let held = cluster.replica_of(leader, &first).consensus.claim_entry(&first).map(|entry| entry.claim);
    assert_eq!(held, Some(ClaimId(99)), "the first one was granted as well, to be told to nobody");
}
