//! Changes of several tasks at once.

use super::forgetting::LONG_MS;
use super::*;
use norn_model::host::Room;
use norn_model::message::{Claiming, ReadWrite};
use norn_wire::error::Retry;
use norn_wire::membership::{Mode, QueueSetting};
use norn_wire::transaction::{Change, Delete, Depend, Expected, Refusal};
use norn_wire::{SESSIONS_QUEUE, Transaction};
use serde_bytes::ByteBuf;

pub(super) const TAG: u32 = 0x12_3456;

pub(super) fn connected() -> Cluster {
    let mut cluster = Cluster::modern(3);
    cluster.connect_all();
    cluster
}

pub(super) fn change(id: TaskId, expected: Expected, payload: &[u8]) -> Change {
    Change { id, expected, payload: Some(ByteBuf::from(payload)), ..Change::default() }
}

pub(super) fn delete(id: TaskId, expected: Expected) -> Delete {
    Delete { id, expected, result: None }
}

impl Cluster {
    pub(super) fn transaction(&mut self) -> Transaction {
        Transaction { id: self.id(TAG), at_ms: self.now.wall_ms, ..Transaction::default() }
    }

    pub(super) fn new_task(&mut self, payload: &[u8]) -> NewTask {
        NewTask { id: self.id(TAG), spec: spec(payload, 0) }
    }

    pub(super) fn transact(&mut self, index: usize, transaction: &Transaction) -> Result<Vec<TaskId>, Refusal> {
        match self.ask(index, Request::Transact(Box::new(transaction.clone()))) {
            Response::Transacted(told) => {
                told.map(|stamps| stamps.into_iter().map(|(id, _)| id).collect()).map_err(|it| *it)
            }
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn version_of(&mut self, id: TaskId) -> Expected {
        Expected::Version(self.get(0, id).version.expect("it is told"))
    }

    /// Handles queued events until a condition holds.
    pub(super) fn handle_until(&mut self, done: impl Fn(&Cluster) -> bool) {
        while !done(self) {
            assert!(self.handle_next(), "it comes about");
        }
    }

    /// Queues a request at a node, behind the events in progress. Returns its number.
    pub(super) fn post(&mut self, index: usize, request: Request) -> u64 {
        self.number += 1;
        let principal = Principal { name: "tester".into(), node: false };
        self.queue.push_back((index, Event::Request { client: CLIENT, number: self.number, principal, request }));
        self.number
    }

    /// Handles queued events until a claim of a task is in the table of its leader.
    fn run_until_granted(&mut self, id: TaskId) {
        let granted = |cluster: &Cluster| {
            let leader = &cluster.nodes[cluster.leader(&id)];
            leader.partitions[&leader.partition_of(&id)].consensus.claim_entry(&id).is_some()
        };
        for _ in 0..1_000 {
            while !granted(self) && self.handle_next() {}
            if granted(self) {
                return;
            }
            self.advance(1);
        }
        panic!("it is granted");
    }

    /// The answer to the first call, if no answer about grants arrives before the second call is answered.
    fn hold_answers(&mut self, number: u64, before: u64) -> Response {
        let is_answer = |event: &Event| {
            matches!(event, Event::Peer { message: PeerMessage::Claiming(Claiming::GrantAnswer { .. }), .. })
        };
        let mut held = Vec::new();
        while !self.replies.contains_key(&before) {
            while let Some(place) = self.queue.iter().position(|(_, event)| is_answer(event)) {
                held.extend(self.queue.remove(place));
            }
            if !self.handle_next() {
                self.advance(1);
            }
        }
        self.queue.extend(held);
        self.run_until(|cluster| cluster.replies.contains_key(&number));
        self.replies.remove(&number).expect("just seen")
    }

    pub(super) fn ledgers(&self, id: &TaskId, has: impl Fn(&norn_model::claim_table::ledger::Ledger) -> bool) -> usize {
        let of = |node: &&Node| has(&node.partitions[&node.partition_of(id)].consensus.table.ledger);
        self.nodes.iter().filter(of).count()
    }
}

/// A worker replaces the task that it holds by the next one; a worker that has lost the task changes nothing.
// T9, T11, T20, T23, T34, T39, T41, T42, T43
#[test]
fn a_holder_moves_its_task_and_nobody_else_does() {
    let mut cluster = connected();
    let id = cluster.enqueue(0, b"one", TAG);
    let first = cluster.claim(1, 1_000).remove(0).token;
    cluster.advance(3_000);
    let second = cluster.claim(2, 60_000).remove(0).token;
    let mut late = cluster.transaction();
    late.adds = vec![cluster.new_task(b"late")];
    late.deletes = vec![delete(id, Expected::Token(first))];
    assert_eq!(cluster.transact(0, &late), Err(Refusal { deletes: vec![id], ..Refusal::default() }));
    let mut stranger = cluster.transaction();
    stranger.changes = vec![change(id, Expected::Present, b"two")];
    assert_eq!(cluster.transact(0, &stranger), Err(Refusal { owned: vec![id], ..Refusal::default() }));
    let mut moves = cluster.transaction();
    moves.adds = vec![cluster.new_task(b"next"), cluster.new_task(b"other")];
    moves.deletes = vec![Delete { result: Some(ByteBuf::from("done")), ..delete(id, Expected::Token(second)) }];
    let added: Vec<TaskId> = moves.adds.iter().map(|add| add.id).collect();
    assert_eq!(cluster.transact(1, &moves), Ok(added.clone()));
    let view = cluster.get(2, id);
    assert_eq!((view.state, view.result.as_deref()), (State::Done, Some(&b"done".to_vec())));
    assert_eq!(cluster.knowing(&late.adds[0].id), 0, "nothing of what was refused is there");
    for id in &added {
        assert_eq!(cluster.get(0, *id).state, State::Ready);
    }
    // A repeat gets the same answer at any node, and the change is made once.
    for index in 0..3 {
        assert_eq!(cluster.transact(index, &moves), Ok(added.clone()));
    }
    assert_eq!(cluster.claim(1, 1_000).len(), 1);
}

// T10, T36, T37, T40, T21
#[test]
fn a_change_is_a_patch_of_what_was_seen() {
    let mut cluster = connected();
    let id = cluster.enqueue(0, b"one", TAG);
    let switch = cluster.enqueue(0, b"switch", TAG);
    let (seen, on) = (cluster.version_of(id), cluster.version_of(switch));
    let mut patch = cluster.transaction();
    patch.changes = vec![Change { priority: Some(7), ..change(id, seen, b"two") }];
    patch.depends = vec![Depend { id: switch, expected: on }];
    assert_eq!(cluster.transact(2, &patch), Ok(vec![id]));
    let view = cluster.get(1, id);
    assert_eq!((view.spec.payload.as_slice(), view.spec.priority), (&b"two"[..], 7));
    assert_eq!(view.spec.queue, spec(b"", 0).queue, "what is not named stays");
    assert_eq!(cluster.version_of(switch), on, "what it depends on is not changed");
    // The version that was seen is gone.
    let mut again = cluster.transaction();
    again.changes = vec![change(id, seen, b"three")];
    again.deletes = vec![delete(switch, on)];
    assert_eq!(cluster.transact(0, &again), Err(Refusal { changes: vec![id], ..Refusal::default() }));
    assert_eq!(cluster.get(0, switch).state, State::Ready, "nothing was changed");
    // What depends on the switch is refused once that is gone.
    let mut off = cluster.transaction();
    off.deletes = vec![delete(switch, on)];
    assert_eq!(cluster.transact(1, &off), Ok(vec![]));
    assert_eq!(cluster.get(0, switch).state, State::Cancelled);
    let mut depends = cluster.transaction();
    depends.adds = vec![cluster.new_task(b"more")];
    depends.depends = vec![Depend { id: switch, expected: Expected::Present }];
    assert_eq!(cluster.transact(1, &depends), Err(Refusal { depends: vec![switch], ..Refusal::default() }));
    // A worker gets the task as it is now, and the first enqueue may still be repeated.
    let tasks = vec![NewTask { id, spec: spec(b"one", 0) }];
    let repeated = cluster.ask(0, Request::Enqueue { tasks, acks: Acks::Quorum });
    assert!(matches!(&repeated, Response::Acked(results) if results[0].is_ok()), "{repeated:?}");
    let tasks = vec![NewTask { id, spec: spec(b"other", 0) }];
    let other = cluster.ask(0, Request::Enqueue { tasks, acks: Acks::Quorum });
    assert!(matches!(&other, Response::Acked(results) if results[0].is_err()), "{other:?}");
    let granted = cluster.claim(2, 60_000).remove(0);
    assert_eq!((granted.id, granted.payload.as_slice(), granted.priority), (id, &b"two"[..], 7));
    assert!(!cluster.get(0, id).conflict);
}

/// A holder hands its task back in the middle of the work, as another task, for later.
// T8, T37, T38
#[test]
fn what_is_handed_back_waits_as_the_change_says() {
    let mut cluster = connected();
    let id = cluster.enqueue(0, b"one", TAG);
    let token = cluster.claim(1, 60_000).remove(0).token;
    let mut back = cluster.transaction();
    let later_ms = cluster.now.wall_ms + 5_000;
    back.changes = vec![Change {
        release: true,
        not_before_ms: Some(later_ms),
        ..change(id, Expected::Token(token), b"half done")
    }];
    assert_eq!(cluster.transact(0, &back), Ok(vec![id]));
    let version = cluster.version_of(id);
    let Response::Transacted(Ok(stamps)) = cluster.ask(1, Request::Transact(Box::new(back))) else {
        panic!("it was made")
    };
    assert_eq!(version, Expected::Version(stamps[0].1), "the version that was told is the one that is there");
    assert_eq!(cluster.claim(1, 1_000), Vec::new());
    let renew = Request::Renew { items: vec![(id, token)], lease_ms: None };
    assert!(matches!(cluster.ask(0, renew), Response::Renewed(results) if results[0].is_err()));
    cluster.advance(6_000);
    let next = cluster.claim(2, 60_000).remove(0);
    assert_eq!((next.payload.as_slice(), next.attempt), (&b"half done"[..], 1), "handing back is no attempt");
    assert!(next.token > token);
}

/// Goal: a decided transaction is made, whichever node leads then. Method: the leader goes down once a majority has the decision, and
/// no replica has any of it as a fact.
// T6, T26
#[test]
fn another_leader_makes_what_was_decided() {
    let mut cluster = connected();
    let id = cluster.enqueue(0, b"one", TAG);
    let seen = cluster.version_of(id);
    let mut transaction = cluster.transaction();
    transaction.adds = vec![cluster.new_task(b"next")];
    transaction.deletes = vec![delete(id, seen)];
    let leader = cluster.leader(&id);
    let request = Request::Transact(Box::new(transaction.clone()));
    cluster.post(leader, request);
    let decided = transaction.id;
    cluster.handle_until(|cluster| cluster.ledgers(&decided, |it| it.decided().contains_key(&decided)) >= 2);
    assert_eq!(cluster.knowing(&transaction.adds[0].id), 0, "nobody has it as a fact yet");
    cluster.down.insert(leader);
    cluster.advance(5_000);
    let next = (leader + 1) % 3;
    assert_eq!(cluster.get(next, id).state, State::Cancelled);
    assert_eq!(cluster.get(next, transaction.adds[0].id).state, State::Ready);
    let added = vec![transaction.adds[0].id];
    assert_eq!(cluster.transact(next, &transaction), Ok(added), "and whoever asks again is told so");
    assert_eq!(cluster.ledgers(&decided, |it| it.decided().is_empty()), 2, "it is over");
}

/// A transaction that is not decided when its leader goes leaves no trace, and may be repeated.
#[test]
fn what_was_not_decided_is_nowhere() {
    let mut cluster = connected();
    let id = cluster.enqueue(0, b"one", TAG);
    let mut transaction = cluster.transaction();
    transaction.adds = vec![cluster.new_task(b"next")];
    transaction.deletes = vec![delete(id, Expected::Present)];
    let leader = cluster.leader(&id);
    cluster.post(leader, Request::Transact(Box::new(transaction.clone())));
    let call = transaction.id;
    cluster.handle_until(|cluster| cluster.ledgers(&call, |it| it.decided().contains_key(&call)) >= 1);
    cluster.down.insert(leader);
    cluster.queue.clear();
    cluster.advance(5_000);
    let next = (leader + 1) % 3;
    assert_eq!((cluster.get(next, id).state, cluster.knowing(&transaction.adds[0].id)), (State::Ready, 0));
    assert_eq!(cluster.transact(next, &transaction), Ok(vec![transaction.adds[0].id]));
}

/// Tasks of a transaction that is decided and not made are not granted.
#[test]
fn a_task_that_is_being_changed_is_nobodys() {
    let mut cluster = connected();
    let id = cluster.enqueue(0, b"one", TAG);
    let held = cluster.enqueue(0, b"held", TAG);
    let mut token = cluster.claim(0, 60_000).remove(0);
    let (id, held) = if token.id == id { (held, id) } else { (id, held) };
    token.id = held;
    let mut transaction = cluster.transaction();
    transaction.changes = vec![change(id, Expected::Present, b"two"), change(held, Expected::Token(token.token), b"3")];
    let leader = cluster.leader(&id);
    cluster.post(leader, Request::Transact(Box::new(transaction.clone())));
    let call = transaction.id;
    cluster.handle_until(|cluster| cluster.ledgers(&call, |it| it.decided().contains_key(&call)) >= 1);
    let partition = cluster.nodes[leader].partition_of(&id);
    assert!(!cluster.nodes[leader].partitions[&partition].is_ready(&id));
    let error = cluster.nodes[leader].held(&held, token.token).map(|_| ()).expect_err("it is being changed");
    assert!(error.passes(), "{error:?}");
    cluster.advance(1_000);
    assert_eq!(cluster.claim(1, 60_000).remove(0).payload, b"two");
    assert!(matches!(cluster.complete(1, held, token.token), Response::Acked(results) if results[0].is_ok()));
}

/// Goal: an end that a majority has counts, also if the leader has not received it. Method: the completion never reaches the leader.
// T21, T40
#[test]
fn an_end_that_the_leader_has_not_heard_of_counts() {
    let mut cluster = connected();
    let id = cluster.enqueue(0, b"one", TAG);
    let seen = cluster.version_of(id);
    let leader = cluster.leader(&id);
    let other = (leader + 1) % 3;
    let items = vec![Completion {
        id,
        token: Token { epoch: 1, number: 1 },
        sequence: None,
        result: None,
        at_ms: 5,
        children: Vec::new(),
    }];
    let number = cluster.post(other, Request::Complete { items, acks: Acks::Quorum });
    while !cluster.replies.contains_key(&number) {
        cluster.queue.retain(|(to, event)| {
            *to != leader
                || !matches!(event, Event::Peer { message: PeerMessage::ReadWrite(ReadWrite::Write { .. }), .. })
        });
        assert!(cluster.handle_next(), "it is answered");
    }
    let partition = cluster.nodes[leader].partition_of(&id);
    assert!(!cluster.nodes[leader].partitions[&partition].store.ended(&id), "the leader does not know");
    let mut transaction = cluster.transaction();
    transaction.deletes = vec![delete(id, seen)];
    assert_eq!(cluster.transact(leader, &transaction), Err(Refusal { deletes: vec![id], ..Refusal::default() }));
}

/// In a queue of mode `holder` a completion in a transaction is the one that counts.
// C2, C15, T41
#[test]
fn a_completion_in_a_transaction_is_sealed() {
    let mut cluster = Cluster::modern(3);
    cluster.set(0, "mail", QueueSetting::Mode(Mode::Holder));
    cluster.advance(1_000);
    let id = cluster.enqueue(0, b"one", TAG);
    let token = cluster.claim(1, 60_000).remove(0).token;
    assert!(token.needs_seal());
    let mut transaction = cluster.transaction();
    transaction.adds = vec![cluster.new_task(b"next")];
    transaction.deletes = vec![delete(id, Expected::Token(token))];
    assert_eq!(cluster.transact(0, &transaction), Ok(vec![transaction.adds[0].id]));
    cluster.advance(2_000);
    assert_eq!(cluster.get(2, id).state, State::Done);
    let response = cluster.complete(0, id, token);
    assert!(matches!(&response, Response::Acked(results) if results[0].is_ok()), "it says the same: {response:?}");
}

#[test]
fn a_transaction_keeps_to_what_it_may_say() {
    let mut cluster = connected();
    let id = cluster.enqueue(0, b"one", TAG);
    let mut refused =
        |transaction: Transaction, why: &str| match cluster.ask(0, Request::Transact(Box::new(transaction))) {
            Response::Error(error) => assert!(error.message.contains(why), "{error:?}"),
            other => panic!("{other:?}"),
        };
    let own = Transaction { id: TaskId::new(1, 1, 1, TAG), at_ms: 1, ..Transaction::default() };
    refused(own.clone(), "changes nothing");
    let twice = Transaction {
        deletes: vec![delete(id, Expected::Present)],
        depends: vec![Depend { id, expected: Expected::Present }],
        ..own.clone()
    };
    refused(twice, "names a task twice");
    let unheld = Change { release: true, ..change(id, Expected::Present, b"") };
    refused(Transaction { changes: vec![unheld], ..own.clone() }, "only its holder");
    let many = (0..101).map(|number| delete(TaskId::new(number, 1, 1, TAG), Expected::Present)).collect();
    refused(Transaction { deletes: many, ..own }, "at most 100");
}

/// The end of a session is final, and would not be if it could be claimed again.
#[test]
fn a_session_is_neither_changed_nor_given_back() {
    let mut cluster = connected();
    let queue = QueueName::new(SESSIONS_QUEUE).expect("a name");
    let id = cluster.id(TAG);
    let tasks = vec![NewTask { id, spec: Spec { queue: queue.clone(), attempts_max: 1, ..spec(b"", 0) } }];
    assert!(matches!(cluster.ask(0, Request::Enqueue { tasks, acks: Acks::Quorum }), Response::Acked(_)));
    cluster.advance(1_000);
    let claim = Claim { queues: vec![queue], ..claim_of(ClaimId(7), 60_000, 1) };
    let Response::Claimed { tasks, .. } = cluster.ask(0, Request::Claim(claim)) else { panic!("it is there") };
    let expected = Expected::Token(tasks[0].token);
    for change in [
        Change { id, expected, release: true, ..Change::default() },
        Change { id, expected, attempts_max: Some(2), ..Change::default() },
    ] {
        let transaction = Transaction { changes: vec![change], ..cluster.transaction() };
        match cluster.ask(1, Request::Transact(Box::new(transaction))) {
            Response::Error(error) => assert!(error.message.contains("its end is final"), "{error:?}"),
            other => panic!("{other:?}"),
        }
    }
    let transaction = Transaction { deletes: vec![delete(id, expected)], ..cluster.transaction() };
    assert_eq!(cluster.transact(1, &transaction), Ok(Vec::new()), "it may end with other changes");
}

/// The unchanged parts of a changed task count, too: they travel with the table.
#[test]
fn tasks_that_are_too_large_together_are_not_changed_at_once() {
    let mut cluster = connected();
    let ids: Vec<TaskId> = (0..6).map(|_| cluster.enqueue(0, &vec![7; 1 << 20], TAG)).collect();
    let change = |id: &TaskId| Change { id: *id, priority: Some(1), ..Change::default() };
    let all = Transaction { changes: ids.iter().map(change).collect(), ..cluster.transaction() };
    match cluster.ask(0, Request::Transact(Box::new(all))) {
        Response::Error(error) => assert_eq!(error.code, ErrorCode::Invalid, "{error:?}"),
        other => panic!("{other:?}"),
    }
    let few = Transaction { changes: ids.iter().take(3).map(change).collect(), ..cluster.transaction() };
    assert_eq!(cluster.transact(1, &few), Ok(ids[..3].to_vec()));
    let kept: usize = cluster.nodes.iter().map(|node| node.workflow.kept_bytes()).sum();
    assert_eq!(kept, 0, "nothing is left behind");
}

/// Signal tasks switch claiming on and off, in whichever partitions; grants made while one was removed are given back.
// T45, T46
#[test]
fn a_claim_may_depend_on_tasks_that_are_there() {
    let mut cluster = connected();
    let (task, switch) = (cluster.enqueue(0, b"work", TAG), cluster.enqueue(0, b"switch", 0xff_0000));
    let token = cluster.claim(1, 60_000).remove(0);
    // The other one of both is claimable; the queue is that of both.
    let release = Request::Release { id: token.id, token: token.token };
    cluster.ask(0, release);
    let seen = cluster.version_of(switch);
    let claim_with = |cluster: &mut Cluster, depends: Vec<Depend>| {
        cluster.number += 1;
        let claim = ClaimId(u128::from(cluster.number));
        let claim = Claim { depends, ..claim_of(claim, 60_000, 2) };
        cluster.ask(2, Request::Claim(claim))
    };
    let depends =
        vec![Depend { id: switch, expected: Expected::Present }, Depend { id: task, expected: Expected::Present }];
    let Response::Claimed { tasks, .. } = claim_with(&mut cluster, depends.clone()) else { panic!("both are there") };
    assert_eq!(tasks.len(), 2);
    for granted in &tasks {
        cluster.ask(0, Request::Release { id: granted.id, token: granted.token });
    }
    let stale = vec![Depend { id: switch, expected: seen }];
    match claim_with(&mut cluster, stale) {
        Response::Error(error) => assert_eq!((error.code, error.id), (ErrorCode::Conflict, Some(switch))),
        other => panic!("it was claimed meanwhile, so its version is another: {other:?}"),
    }
    let cancel = Request::Cancel { id: switch, reason: String::new(), at_ms: 1, acks: Acks::Quorum };
    assert!(matches!(cluster.ask(0, cancel), Response::AckedOne(_)));
    match claim_with(&mut cluster, depends) {
        Response::Error(error) => assert_eq!((error.code, error.id), (ErrorCode::Conflict, Some(switch))),
        other => panic!("{other:?}"),
    }
    assert_eq!(cluster.get(1, task).state, State::Ready);
}

/// Goal: a switch that is removed while the claim is in progress counts. Method: it is cancelled once the task is granted, before the
/// answer.
// T46
#[test]
fn what_goes_while_a_claim_is_under_way_has_it_fail() {
    let mut cluster = connected();
    let switch = cluster.enqueue(0, b"switch", 0xff_0000);
    let held = cluster.claim(1, 600_000).remove(0);
    assert_eq!(held.id, switch);
    let task = cluster.enqueue(0, b"work", TAG);
    cluster.number += 1;
    let claim = Claim {
        depends: vec![Depend { id: switch, expected: Expected::Present }],
        ..claim_of(ClaimId(u128::from(cluster.number)), 600_000, 1)
    };
    let number = cluster.post(2, Request::Claim(claim));
    cluster.run_until_granted(task);
    let items = vec![Completion {
        id: switch,
        token: held.token,
        sequence: None,
        result: None,
        at_ms: 5,
        children: Vec::new(),
    }];
    let done = cluster.post(1, Request::Complete { items, acks: Acks::Quorum });
    let held_back = cluster.hold_answers(number, done);
    assert!(matches!(&held_back, Response::Error(error) if error.code == ErrorCode::Conflict), "{held_back:?}");
    cluster.advance(1_000);
    assert_eq!(cluster.get(0, task).state, State::Ready, "it was given back at once");
    assert_eq!(cluster.claim(0, 1_000).remove(0).attempt, 1, "and is no attempt");
}

/// Goal: a client can rely on a refusal, however many copies of the call are still in progress. Method: the obstacle is gone, and the
/// transaction is asked for once more, at the same leader and at the next one.
// T41
#[test]
fn what_is_refused_is_refused_for_good() {
    let mut cluster = connected();
    let id = cluster.enqueue(0, b"one", TAG);
    let held = cluster.claim(0, 60_000).remove(0);
    let mut transaction = cluster.transaction();
    transaction.adds = vec![cluster.new_task(b"next")];
    transaction.changes = vec![change(id, Expected::Present, b"two")];
    let refusal = Refusal { owned: vec![id], ..Refusal::default() };
    assert_eq!(cluster.transact(0, &transaction), Err(refusal.clone()));
    let release = Request::Release { id, token: held.token };
    assert!(!matches!(cluster.ask(1, release), Response::Error(_)));
    cluster.advance(100);
    assert_eq!(cluster.transact(1, &transaction), Err(refusal.clone()));
    let leader = cluster.leader(&id);
    cluster.down.insert(leader);
    cluster.advance(5_000);
    let next = (leader + 1) % 3;
    assert_eq!(cluster.transact(next, &transaction), Err(refusal));
    assert_eq!(cluster.knowing(&transaction.adds[0].id), 0);
    transaction.id = cluster.id(TAG);
    assert_eq!(cluster.transact(next, &transaction).map(|told| told.len()), Ok(2), "it may be tried anew");
}

/// Goal: if the leader has disk space and the others have none, the client learns of the disks, and does not wait for space.
#[test]
fn a_transaction_that_followers_have_no_room_for_is_said_to_lack_it() {
    let mut cluster = connected();
    let add = cluster.new_task(b"x");
    let transaction = Transaction { adds: vec![add.clone()], ..cluster.transaction() };
    let leader = cluster.leader(&transaction.id);
    let report = |cluster: &mut Cluster, room| (1..3).for_each(|next| cluster.report((leader + next) % 3, room, 0));
    report(&mut cluster, Room::Short);
    for _ in 0..2 {
        let before_us = cluster.now.mono_us;
        let refusal = match cluster.ask(leader, Request::Transact(Box::new(transaction.clone()))) {
            Response::Error(error) => error,
            other => panic!("{other:?}"),
        };
        assert_eq!((refusal.code, refusal.retry, refusal.id), (ErrorCode::Unknown, Retry::Later, Some(transaction.id)));
        assert!(refusal.message.contains("nearly full"), "{}", refusal.message);
        assert!(cluster.now.mono_us < before_us + 2_000_000, "it is said at once");
    }
    report(&mut cluster, Room::Ample);
    cluster.advance(2_000);
    assert_eq!(cluster.transact(leader, &transaction), Ok(vec![add.id]));
}

/// A condition that should never occur is reported on its own: here, a task to add that exists already.
// T44
#[test]
fn a_new_task_that_is_there_is_an_unexpected_condition() {
    let mut cluster = connected();
    let there = cluster.new_task(b"there");
    let tasks = vec![there.clone()];
    assert!(matches!(cluster.ask(0, Request::Enqueue { tasks, acks: Acks::Quorum }), Response::Acked(_)));
    let fresh = cluster.new_task(b"fresh");
    let adds = vec![fresh.clone(), there.clone()];
    let transaction = Transaction { adds, ..cluster.transaction() };
    for index in 0..3 {
        let bugs = vec![format!("there is a task {} already", there.id)];
        assert_eq!(cluster.transact(index, &transaction), Err(Refusal { bugs, ..Refusal::default() }));
    }
    assert_eq!((cluster.knowing(&fresh.id), cluster.knowing(&there.id)), (0, 3));
}

/// Goal: tasks of a decided transaction are not forgotten before the transaction is made, as otherwise its facts would be refused for
/// good and it would never be. Method: no answer to a write arrives for longer than ended tasks are kept.
#[test]
fn what_a_decided_transaction_is_about_is_not_forgotten_before_it_is_made() {
    let mut cluster = connected();
    let id = cluster.enqueue(0, b"one", TAG);
    let mut transaction = cluster.transaction();
    transaction.deletes = vec![delete(id, Expected::Present)];
    cluster.post(0, Request::Transact(Box::new(transaction.clone())));
    let is_answer =
        |event: &Event| matches!(event, Event::Peer { message: PeerMessage::ReadWrite(ReadWrite::Written { .. }), .. });
    let pass = |cluster: &mut Cluster, ms: u64| {
        for _ in 0..ms {
            cluster.skip(1);
            let now_us = cluster.now.mono_us;
            let is_due = |node: &Node| node.next_wake().is_some_and(|at_us| at_us <= now_us);
            let due = cluster.nodes.iter().enumerate().filter(|(_, node)| is_due(node));
            cluster.queue.extend(due.map(|(index, _)| (index, Event::Wake)));
            while cluster.handle_next() {
                cluster.queue.retain(|(_, event)| !is_answer(event));
            }
        }
    };
    pass(&mut cluster, 500);
    assert_eq!(cluster.ledgers(&id, |ledger| !ledger.decided().is_empty()), 3);
    cluster.skip(LONG_MS);
    pass(&mut cluster, 20_000);
    let made = |cluster: &Cluster| cluster.ledgers(&id, |ledger| ledger.outcome_of(&transaction.id).is_some());
    assert_eq!((cluster.knowing(&id), made(&cluster)), (3, 0));
    assert!(cluster.replica_of(0, &id).store.tombstone(&id).is_some(), "it is old enough");
    cluster.run_until(|cluster| made(cluster) == 3);
    cluster.run_until_forgotten(&id);
}
