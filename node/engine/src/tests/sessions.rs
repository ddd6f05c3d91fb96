//! Sessions of workers (C4-C11).

use super::*;
use norn_model::limits::{DEPENDENTS_MAX, PAYLOAD_BYTES_MAX};
use norn_model::message::{Replication, Workflow};
use norn_wire::error::ErrorCode;
use norn_wire::membership::{Mode, QueueSetting};
use norn_wire::response::ClaimOutcome;
use norn_wire::{Granted, SESSIONS_QUEUE, State};

const LONG_MS: u64 = 3_600_000;

impl Cluster {
    /// Opens a session for a worker.
    fn open_session(&mut self, ttl_ms: u64) -> Granted {
        let queue = QueueName::new(SESSIONS_QUEUE).expect("a name");
        let id = self.id(0x22_2222);
        let task = NewTask { id, spec: Spec { queue: queue.clone(), attempts_max: 1, ..spec(b"worker", 0) } };
        let response = self.ask(0, Request::Enqueue { tasks: vec![task], acks: Acks::Quorum });
        assert!(matches!(response, Response::Acked(_)));
        self.number += 1;
        let claim = Claim { queues: vec![queue], ..claim_of(ClaimId(u128::from(self.number)), ttl_ms, 1) };
        let Response::Claimed { mut tasks, .. } = self.ask(0, Request::Claim(claim)) else { panic!("no claim") };
        tasks.remove(0)
    }

    fn claim_under(&mut self, index: usize, session: TaskId, max: u32) -> Vec<Granted> {
        self.number += 1;
        let claim = claim_of(ClaimId(u128::from(self.number)), LONG_MS, max);
        let request = Request::Claim(Claim { session: Some(session), ..claim });
        let Response::Claimed { tasks, .. } = self.ask(index, request) else { panic!("no claim") };
        tasks
    }

    /// A claim under the session is refused: the error's code, and the task that it names.
    fn refused_under(&mut self, index: usize, session: TaskId) -> (ErrorCode, Option<TaskId>) {
        self.number += 1;
        let claim = Claim { session: Some(session), ..claim_of(ClaimId(u128::from(self.number)), LONG_MS, 1) };
        match self.ask(index, Request::Claim(claim)) {
            Response::Error(error) => (error.code, error.id),
            other => panic!("{other:?}"),
        }
    }

    fn heartbeat(&mut self, session: &Granted) {
        let request = Request::Renew { items: vec![(session.id, session.token)], lease_ms: None };
        let response = self.ask(1, request);
        assert!(matches!(&response, Response::Renewed(results) if results[0].is_ok()), "{response:?}");
    }

    fn is_claimable(&mut self, id: TaskId) -> bool {
        self.get(0, id).state == State::Ready
    }
}

fn connected() -> Cluster {
    let mut cluster = Cluster::modern(3);
    cluster.connect_all();
    cluster
}

// C4, C7, C11
#[test]
fn claims_last_as_long_as_the_session_is_kept_alive_and_end_with_it() {
    let mut cluster = connected();
    let tasks = [cluster.enqueue(0, b"a", 0x11_1111), cluster.enqueue(0, b"b", 0xcc_cccc)];
    let session = cluster.open_session(2_000);
    assert_eq!(cluster.claim_under(1, session.id, 2).len(), 2);
    for _ in 0..10 {
        cluster.advance(1_000);
        cluster.heartbeat(&session);
        assert_eq!(cluster.claim(2, 5_000), Vec::new(), "the heartbeat keeps them");
    }
    let shown =
        |cluster: &mut Cluster| cluster.get(2, tasks[0]).claims.into_iter().map(|claim| claim.session).collect();
    let sessions: Vec<Option<TaskId>> = shown(&mut cluster);
    assert_eq!(sessions, [Some(session.id)]);
    let before_us = cluster.now.mono_us;
    cluster.run_until(|cluster| {
        let ready = |id: &TaskId| {
            let node = &cluster.nodes[cluster.leader(id)];
            node.partitions[&node.partition_of(id)].is_ready(id)
        };
        tasks.iter().all(ready)
    });
    let after_ms = (cluster.now.mono_us - before_us) / 1_000;
    assert!((1_000..4_000).contains(&after_ms), "{after_ms} ms, for a session of two seconds");
    let again = cluster.claim(2, 5_000);
    assert_eq!(again[0].attempt, 2, "a worker that was lost has failed");
    let sessions: Vec<Option<TaskId>> = shown(&mut cluster);
    assert!(sessions.iter().all(Option::is_none), "{sessions:?}");
    let renewal = Request::Renew { items: vec![(session.id, session.token)], lease_ms: None };
    let Response::Renewed(results) = cluster.ask(0, renewal) else { panic!("no answer") };
    assert!(results[0].is_err(), "its end is final");
}

// C9, C10
#[test]
fn a_worker_that_ends_its_session_frees_all_it_holds_at_once() {
    let mut cluster = connected();
    for number in 0..3 {
        cluster.enqueue(0, b"x", 0x11_1111 * (number + 1));
    }
    let session = cluster.open_session(60_000);
    assert_eq!(cluster.claim_under(1, session.id, 3).len(), 3);
    let before_us = cluster.now.mono_us;
    assert!(matches!(cluster.complete(2, session.id, session.token), Response::Acked(_)));
    let mut attempts = Vec::new();
    for _ in 0..3 {
        cluster.run_until(|cluster| {
            let ready = |node: &Node| {
                node.partitions.values().any(|replica| {
                    let queue = replica.store.index().queue(&QueueName::new("mail").expect("a name"));
                    replica.consensus.established() && queue.is_some_and(|queue| queue.ready_count(true) > 0)
                })
            };
            cluster.nodes.iter().any(ready)
        });
        attempts.extend(cluster.claim(0, 60_000).into_iter().map(|granted| granted.attempt));
    }
    assert!(cluster.now.mono_us - before_us < 1_000_000, "they are told, and not found by a sweep");
    assert_eq!(attempts, [1, 1, 1], "what is handed back was no attempt");
}

/// Goal: a task that stops its workers within moments dies of it. Method: sessions of a second, each lost right after a claim; the last
/// client confirms nothing.
#[test]
fn a_claim_just_before_its_session_is_lost_is_an_attempt_once_it_is_confirmed() {
    let mut cluster = connected();
    let task = cluster.enqueue(0, b"a", 0x11_1111);
    for attempt in 1..=3 {
        let session = cluster.open_session(1_000);
        let held = cluster.claim_under(1, session.id, 1);
        assert_eq!(held.iter().map(|held| (held.id, held.attempt)).collect::<Vec<_>>(), [(task, attempt)]);
        cluster.run_until(|cluster| {
            let node = &cluster.nodes[cluster.leader(&task)];
            node.partitions[&node.partition_of(&task)].is_ready(&task)
        });
    }
    let view = cluster.get(0, task);
    let outcomes: Vec<_> = view.claims.iter().map(|claim| claim.end.as_ref().map(|end| end.outcome)).collect();
    assert_eq!(outcomes, [Some(ClaimOutcome::Expired); 3], "{view:?}");
    let session = cluster.open_session(1_000);
    let claim = Claim { session: Some(session.id), confirms: true, ..claim_of(ClaimId(7), LONG_MS, 1) };
    assert!(matches!(cluster.ask(1, Request::Claim(claim)), Response::Claimed { .. }));
    cluster.advance(10_000);
    assert_eq!(cluster.claim(2, 5_000).remove(0).attempt, 4, "nobody has confirmed the fourth claim");
}

/// Later leaders know which claims end with which session.
// C9
#[test]
fn a_session_that_ends_while_leaders_change_ends_its_claims() {
    let mut cluster = connected();
    let task = cluster.enqueue(0, b"a", 0xcc_cccc);
    let session = cluster.open_session(2_000);
    assert_eq!(cluster.claim_under(1, session.id, 1).len(), 1);
    let leader = cluster.leader(&task);
    cluster.restart(leader);
    cluster.connect_all();
    cluster.advance(10_000);
    assert!(cluster.is_claimable(task));
}

// C8, C16
#[test]
fn who_lost_its_session_cannot_complete_where_completions_are_sealed() {
    let mut cluster = connected();
    cluster.set(0, "mail", QueueSetting::Mode(Mode::Holder));
    cluster.advance(1_000);
    let task = cluster.enqueue(0, b"a", 0xcc_cccc);
    let session = cluster.open_session(2_000);
    let held = cluster.claim_under(1, session.id, 1).remove(0);
    assert!(held.token.needs_seal());
    cluster.advance(10_000);
    assert!(cluster.is_claimable(task));
    let Response::Acked(results) = cluster.complete(0, task, held.token) else { panic!("no answer") };
    assert_eq!(results[0].as_ref().map_err(|error| error.code), Err(ErrorCode::Superseded));
}

/// Goal: an attempt in progress counts, though its claim is just being renewed when its session ends. Method: the followers of the
/// task's leader are not heard from the worker's renewal until its session has ended.
#[test]
fn a_claim_that_is_being_renewed_when_its_session_ends_was_an_attempt() {
    let mut cluster = connected();
    let task = cluster.enqueue(0, b"a", 0xcc_cccc);
    let session = cluster.open_session(2_000);
    let held = cluster.claim_under(1, session.id, 1).remove(0);
    for _ in 0..4 {
        cluster.advance(1_000);
        cluster.heartbeat(&session);
    }
    cluster.advance(1_500);
    let partition = cluster.nodes[0].partition_of(&task);
    assert_ne!(partition, cluster.nodes[0].partition_of(&session.id));
    cluster.post(0, Request::Renew { items: vec![(task, held.token)], lease_ms: None });
    let is_lost = |_: usize, message: &PeerMessage| {
        matches!(message, PeerMessage::Replication(Replication::Ack { partition: of, .. })
        if *of == partition)
    };
    cluster.advance_losing(1_500, is_lost);
    cluster.advance(3_000);
    let voided = |(_, it): &(usize, Observation)| matches!(it, Observation::Voided { .. });
    assert!(!cluster.observed.iter().any(voided), "its worker was told of it");
    assert_eq!(cluster.claim(2, 5_000).remove(0).attempt, 2);
}

/// Goal: no claim is made under a session that no heartbeat keeps. Method: an id that is none, a session without a worker, and one that
/// has just ended, at every node, also one without a replica of it.
#[test]
fn a_claim_is_refused_under_what_is_no_open_session() {
    let mut cluster = Cluster::modern(4);
    cluster.connect_all();
    let task = cluster.enqueue(0, b"a", 0x11_1111);
    let session = cluster.open_session(60_000);
    let queue = QueueName::new(SESSIONS_QUEUE).expect("a name");
    let (unknown, unheld) = (cluster.id(0x33_3333), cluster.id(0x22_2222));
    let spec = Spec { queue, attempts_max: 1, ..spec(b"worker", 0) };
    cluster.ask(0, Request::Enqueue { tasks: vec![NewTask { id: unheld, spec }], acks: Acks::Quorum });
    for index in 0..4 {
        for id in [unknown, unheld] {
            assert_eq!(cluster.refused_under(index, id), (ErrorCode::NotFound, Some(id)));
        }
    }
    assert!(cluster.is_claimable(task));
    assert!(matches!(cluster.complete(2, session.id, session.token), Response::Acked(_)));
    for index in 0..4 {
        assert_eq!(cluster.refused_under(index, session.id), (ErrorCode::Ended, Some(session.id)));
    }
    assert!(cluster.is_claimable(task));
}

/// Goal: a node asks for a session that it does not know. Method: a session is opened while a node is away, which gets a claim when it
/// is back; and all other replicas are gone.
#[test]
fn a_session_that_a_node_has_not_heard_of_is_asked_for() {
    let mut cluster = connected();
    let task = cluster.enqueue(0, b"a", 0x11_1111);
    let others = |session: &Granted, cluster: &Cluster| {
        let leaders = [task, session.id].map(|id| cluster.leader(&id));
        (0..3).find(|index| !leaders.contains(index)).expect("two lead")
    };
    let first = cluster.open_session(60_000);
    let away = others(&first, &cluster);
    cluster.down.insert(away);
    let session = cluster.open_session(60_000);
    cluster.down.remove(&away);
    let node = &cluster.nodes[away];
    assert!(node.partitions[&node.partition_of(&session.id)].store.task(&session.id).is_none(), "it was away");
    assert_eq!(cluster.claim_under(away, session.id, 1)[0].id, task);
    cluster.down.extend((0..3).filter(|index| *index != away));
    assert_eq!(cluster.refused_under(away, session.id), (ErrorCode::Unavailable, Some(session.id)));
}

/// Goal: no node mistakes another task for a session: no heartbeat would keep what is claimed under it.
#[test]
fn what_is_no_session_keeps_no_claims() {
    let mut cluster = connected();
    let other = cluster.enqueue(0, b"a", 0x11_1111);
    for index in 0..3 {
        let claim = Claim { session: Some(other), ..claim_of(ClaimId(77), LONG_MS, 1) };
        let Response::Error(error) = cluster.ask(index, Request::Claim(claim)) else { panic!("it was granted") };
        assert_eq!((error.code, error.id), (ErrorCode::Invalid, Some(other)));
    }
    assert!(cluster.is_claimable(other));
    let queue = Some(QueueName::new(SESSIONS_QUEUE).expect("a name"));
    let child = cluster.id(0x11_1111);
    let response = cluster.ask(0, Request::Redrive { id: other, child, queue, acks: Acks::Quorum });
    assert!(matches!(&response, Response::Error(error) if error.code == ErrorCode::Invalid), "{response:?}");
    let dead_letters = QueueSetting::DeadLetter(Some(QueueName::new(SESSIONS_QUEUE).expect("a name")));
    let response = cluster.set(0, "mail", dead_letters);
    assert!(matches!(&response, Response::Error(error) if error.message.contains("is for sessions")), "{response:?}");
}

/// Goal: a leader asks for the end of a session no more often than its sweeps do, though a claim under it stays whose task has ended.
/// Method: the result is needed to drop that claim, and no log can return it.
#[test]
fn a_claim_that_cannot_be_dropped_has_its_session_asked_for_by_sweeps_only() {
    let mut cluster = Cluster::with_config(3, &Config { payload_memory_bytes: 0, ..Config::default() });
    cluster.connect_all();
    cluster.advance(5_000);
    let session = cluster.open_session(60_000);
    let teller = cluster.leader(&session.id);
    let tag = (0..16).map(|number| number << 20).find(|tag| cluster.leader(&TaskId::new(0, 0, 0, *tag)) != teller);
    let task = cluster.enqueue(0, b"a", tag.expect("each node leads some"));
    let token = cluster.claim_under(1, session.id, 1).remove(0).token;
    let result = Some(vec![7; 300].into());
    let items = vec![Completion { id: task, token, sequence: None, result, at_ms: 5, children: Vec::new() }];
    assert!(matches!(cluster.ask(1, Request::Complete { items, acks: Acks::All }), Response::Acked(_)));
    let leader = cluster.leader(&task);
    let partition = cluster.nodes[leader].partition_of(&task);
    assert!(cluster.replica_of(leader, &task).consensus.has_session(&session.id), "the claim is dropped later");
    for index in 0..3 {
        cluster.unreadable.extend((0..cluster.logs[index].len()).map(|at| (index, at)));
        let replica = cluster.nodes[index].partitions.get_mut(&partition).expect("a replica");
        replica.store.leave(&task, true);
        cluster.nodes[index].count_bodies(partition);
    }
    assert!(matches!(cluster.complete(0, session.id, session.token), Response::Acked(_)));
    let asked = std::cell::Cell::new(0);
    cluster.advance_losing(20_000, |_, message| {
        let asks = |ids: &Vec<TaskId>| ids.contains(&session.id);
        let counts = matches!(message, PeerMessage::Workflow(Workflow::Follow { partition: of, ids })
            if *of == partition && asks(ids));
        asked.set(asked.get() + usize::from(counts));
        false
    });
    assert!(cluster.replica_of(leader, &task).consensus.has_session(&session.id), "its result is lost");
    // Every two seconds.
    assert!((1..=20).contains(&asked.get()), "asked {} times", asked.get());
}

/// Goal: all claims of a lost session go back at once except those that may not have been confirmed, wherever those are among them.
/// Method: the last claim is that of the first task, and there are more claims than are handled together.
#[test]
fn a_claim_that_was_just_made_keeps_back_none_that_is_older() {
    let mut cluster = connected();
    let count = DEPENDENTS_MAX + 10;
    let tasks: Vec<NewTask> = (0..count)
        .map(|index| {
            let priority = if index == 0 { -1 } else { 0 };
            NewTask { id: cluster.id(0xcc_cccc), spec: Spec { priority, ..spec(b"a", 0) } }
        })
        .collect();
    let first = tasks[0].id;
    let partition = cluster.nodes[0].partition_of(&first);
    assert!(tasks.iter().all(|task| cluster.nodes[0].partition_of(&task.id) == partition && task.id >= first));
    let ids: Vec<TaskId> = tasks.iter().skip(1).map(|task| task.id).collect();
    assert!(matches!(cluster.ask(0, Request::Enqueue { tasks, acks: Acks::All }), Response::Acked(_)));
    let session = cluster.open_session(3_000);
    assert_eq!(cluster.claim_under(1, session.id, ids.len() as u32).len(), ids.len());
    for _ in 0..20 {
        cluster.advance(1_000);
        cluster.heartbeat(&session);
    }
    assert_eq!(cluster.claim_under(1, session.id, 1).iter().map(|held| held.id).collect::<Vec<_>>(), [first]);
    let leader = cluster.leader(&first);
    cluster.run_until(|cluster| ids.iter().all(|id| cluster.replica_of(leader, &first).is_ready(id)));
    assert!(!cluster.replica_of(leader, &first).is_ready(&first), "its client may not have heard of this one");
    cluster.advance(10_000);
    assert!(cluster.is_claimable(first));
}

/// Goal: a claim that never reached its client is no attempt though its session ended, however long the answer may have been on its
/// way. Method: the answer brings large tasks of several partitions.
#[test]
fn a_large_answer_that_nobody_confirmed_is_no_attempt() {
    let mut cluster = connected();
    let large = vec![7; PAYLOAD_BYTES_MAX - 1_000];
    let ids: Vec<TaskId> = (0..4).map(|number| cluster.enqueue(0, &large, number << 22)).collect();
    let partitions: BTreeSet<PartitionId> = ids.iter().map(|id| cluster.nodes[0].partition_of(id)).collect();
    assert!(partitions.len() > 1, "one leader does not see all of it");
    let session = cluster.open_session(1_000);
    let claim = Claim { session: Some(session.id), confirms: true, ..claim_of(ClaimId(7), LONG_MS, 4) };
    let response = cluster.ask(1, Request::Claim(claim));
    assert!(matches!(&response, Response::Claimed { tasks, .. } if tasks.len() == 4));
    cluster.advance(15_000);
    for _ in ids {
        assert_eq!(cluster.claim(2, 5_000).remove(0).attempt, 1);
    }
}

/// Goal: a session that never reached its worker does not end, nor does it count as an attempt.
#[test]
fn a_session_that_is_over_before_it_is_confirmed_never_began() {
    let mut cluster = connected();
    let queue = QueueName::new(SESSIONS_QUEUE).expect("a name");
    let id = cluster.id(0x22_2222);
    let task = NewTask { id, spec: Spec { queue: queue.clone(), attempts_max: 1, ..spec(b"worker", 0) } };
    assert!(matches!(cluster.ask(0, Request::Enqueue { tasks: vec![task], acks: Acks::Quorum }), Response::Acked(_)));
    let claim = Claim { queues: vec![queue], confirms: true, ..claim_of(ClaimId(7), 1_000, 1) };
    assert!(matches!(cluster.ask(0, Request::Claim(claim)), Response::Claimed { tasks, .. } if tasks.len() == 1));
    cluster.advance(1_500);
    assert!(cluster.is_claimable(id));
}
