//! What follows the death of a task: dead letters, and redriving.

use super::policies::is_changed;
use super::*;
use norn_model::message::{AntiEntropy, ReadWrite};
use norn_model::task::{Cancel, GROUP_FAILED, Task};
use norn_wire::error::{Error, ErrorCode};
use norn_wire::membership::QueueSetting;
use norn_wire::{SESSIONS_QUEUE, headers};

const LATER: &str = "mail/dead";

impl Cluster {
    fn with_dead_letters() -> Cluster {
        let mut cluster = Cluster::modern(3);
        let later = QueueName::new(LATER).expect("a name");
        assert!(is_changed(&cluster.set(0, "mail", QueueSetting::DeadLetter(Some(later)))));
        cluster
    }

    /// Enqueues a task, claims it, and fails it as invalid.
    fn kill(&mut self, payload: &[u8], tag: u32) -> TaskId {
        let id = self.enqueue(0, payload, tag);
        let token = self.claim(1, 60_000).remove(0).token;
        let reason = "bad address".to_owned();
        let fail = Request::Fail { id, token, reason, retry_in_ms: 0, invalid: true, retry_open: false };
        assert_eq!(self.ask(2, fail), Response::Done);
        id
    }

    fn dead_letters(&mut self) -> Vec<norn_wire::TaskView> {
        let queue = Some(QueueName::new(LATER).expect("a name"));
        match self.ask(1, Request::List { queue, state: None, after: None, from: None, to: None, limit: 100 }) {
            Response::Page(page) => page.tasks,
            other => panic!("{other:?}"),
        }
    }

    fn redrive(&mut self, index: usize, id: TaskId, child: TaskId) -> Result<TaskId, Error> {
        match self.ask(index, Request::Redrive { id, child, queue: None, acks: Acks::Quorum }) {
            Response::AckedOne(acked) => Ok(acked.id),
            Response::Error(error) => Err(error),
            other => panic!("{other:?}"),
        }
    }
}

// O32, O33
#[test]
fn a_task_that_dies_is_in_the_dead_letter_queue_with_all_that_it_was() {
    let mut cluster = Cluster::with_dead_letters();
    let id = cluster.kill(b"hello", 7);
    cluster.advance(2_000);
    let dead_letters = cluster.dead_letters();
    assert_eq!(dead_letters.len(), 1);
    let (dead_letter, died) = (&dead_letters[0], cluster.get(0, id));
    assert_eq!((dead_letter.state, died.state, &died.redriven), (State::Ready, State::Dead, &vec![dead_letter.id]));
    assert_eq!((&dead_letter.spec.payload, dead_letter.spec.priority), (&died.spec.payload, died.spec.priority));
    assert_eq!(dead_letter.spec.header(headers::DEAD_TASK), Some(id.to_string().as_str()));
    assert_eq!(dead_letter.spec.header(headers::DEAD_QUEUE), Some("mail"));
    assert_eq!(dead_letter.spec.header(headers::DEAD_REASON), Some("invalid: bad address"));
    assert!(died.claims.iter().all(|claim| claim.rejected.is_none()) && died.claims.len() == 1);
    let reason = |view: &TaskView| view.claims[0].end.as_ref().and_then(|end| end.reason.clone());
    assert_eq!(reason(&died).as_deref(), Some("bad address"), "its claims tell so when the letter is there");
}

/// Goal: no limit of a queue stops a task that belongs to existing ones.
#[test]
fn letters_copies_and_tasks_of_schedules_get_into_queues_that_are_full() {
    use norn_wire::schedule::{CatchUp, Schedule, ScheduleChange, When};
    let later = QueueName::new(LATER).expect("a name");
    let is_full = |cluster: &mut Cluster, queue: &QueueName| {
        let tasks = vec![NewTask { id: cluster.id(3), spec: Spec { queue: queue.clone(), ..spec(b"more", 0) } }];
        let refused = cluster.ask(0, Request::Enqueue { tasks, acks: Acks::All });
        matches!(refused, Response::Error(error) if error.code == ErrorCode::Overloaded)
    };
    let mut cluster = Cluster::with_dead_letters();
    assert!(is_changed(&cluster.set(0, LATER, QueueSetting::Tasks(Some(1)))));
    for (payload, tag) in [(b"one", 7), (b"two", 8), (b"six", 9)] {
        cluster.kill(payload, tag);
        cluster.advance(2_000);
    }
    assert_eq!(cluster.dead_letters().len(), 3);
    assert!(is_full(&mut cluster, &later));

    let mail = QueueName::new("mail").expect("a name");
    assert!(is_changed(&cluster.set(0, "mail", QueueSetting::DeadLetter(None))));
    let died = cluster.kill(b"last", 5);
    assert!(is_changed(&cluster.set(0, "mail", QueueSetting::Tasks(Some(1)))));
    cluster.enqueue(0, b"enough", 4);
    cluster.advance(1_000);
    assert!(is_full(&mut cluster, &mail));
    let child = cluster.id(5);
    assert_eq!(cluster.redrive(1, died, child), Ok(child));
    let schedule = Schedule {
        when: When::At(cluster.now.wall_ms + 1_000),
        queue: mail.clone(),
        payload: b"due".to_vec(),
        priority: 0,
        attempts_max: 0,
        catch_up: CatchUp::Last,
    };
    let set = ScheduleChange::Set { name: "once".into(), schedule: Arc::new(schedule) };
    let answer = cluster.ask(2, Request::Schedule(Box::new(set)));
    assert!(!matches!(answer, Response::Error(_)), "{answer:?}");
    cluster.advance(5_000);
    let list = Request::List {
        queue: Some(mail.clone()),
        state: Some(State::Ready),
        after: None,
        from: None,
        to: None,
        limit: 100,
    };
    let Response::Page(page) = cluster.ask(1, list) else { panic!("no list") };
    let mut payloads: Vec<&[u8]> = page.tasks.iter().map(|task| task.spec.payload.as_slice()).collect();
    payloads.sort_unstable();
    assert_eq!(payloads, [b"due".as_slice(), b"enough", b"last"]);
    assert!(is_full(&mut cluster, &mail));
}

#[test]
fn the_last_attempt_that_runs_out_brings_a_letter_too_and_a_letter_brings_none() {
    let mut cluster = Cluster::with_dead_letters();
    let later = QueueName::new(LATER).expect("a name");
    assert!(is_changed(&cluster.set(1, "mail", QueueSetting::Attempts(Some(1)))));
    assert!(is_changed(&cluster.set(1, LATER, QueueSetting::Attempts(Some(1)))));
    let cycle = QueueSetting::DeadLetter(Some(QueueName::new("mail").expect("a name")));
    assert!(is_changed(&cluster.set(1, LATER, cycle)));
    cluster.enqueue(0, b"x", 3);
    cluster.claim(1, 1_000);
    cluster.advance(5_000);
    let dead_letters = cluster.dead_letters();
    assert_eq!(dead_letters.len(), 1);
    let claim = Claim { queues: vec![later], ..claim_of(ClaimId(77), 1_000, 1) };
    let Response::Claimed { tasks, .. } = cluster.ask(2, Request::Claim(claim)) else { panic!("it is claimed") };
    assert_eq!(tasks[0].id, dead_letters[0].id);
    cluster.advance(8_000);
    assert_eq!(cluster.get(0, dead_letters[0].id).state, State::Dead);
    assert_eq!(cluster.claim(1, 1_000), Vec::new(), "no letter of a letter");
    let own = QueueSetting::DeadLetter(Some(QueueName::new("mail").expect("a name")));
    let Response::Error(refused) = cluster.set(0, "mail", own) else { panic!("it is refused") };
    assert!(refused.message.contains("another one"), "{}", refused.message);
}

/// Goal: the dead letter of a task is written though its leader dies, at any time. Method: all steps from the death on, one more each
/// time.
#[test]
fn whoever_leads_next_writes_the_same_letter() {
    for steps in 0..12 {
        let mut cluster = Cluster::with_dead_letters();
        let id = cluster.kill(b"hello", 7);
        cluster.advance(steps * 20);
        let leader = cluster.leader(&id);
        cluster.restart(leader);
        cluster.advance(8_000);
        let dead_letters = cluster.dead_letters();
        assert_eq!(dead_letters.len(), 1, "after {steps} steps");
        assert_eq!(cluster.get(0, id).redriven, [dead_letters[0].id]);
    }
}

/// Goal: a leader that does not know the spec of a task does not drop its dead letter. Method: the one node that knows it is away when
/// the next leads.
#[test]
fn a_leader_that_has_not_heard_of_a_task_keeps_its_letter_for_who_has() {
    let mut cluster = Cluster::with_dead_letters();
    let id = cluster.id(7);
    let leader = cluster.leader(&id);
    let others: Vec<usize> = (0..3).filter(|index| *index != leader).collect();
    // Facts do not get through, operations do.
    let is_lost = |to: usize, message: &PeerMessage| {
        to != leader
            && matches!(
                message,
                PeerMessage::ReadWrite(ReadWrite::Write { .. }) | PeerMessage::AntiEntropy(AntiEntropy::Tasks { .. })
            )
    };
    let answer = |cluster: &mut Cluster, request: Request| {
        let number = cluster.post(leader, request);
        cluster.advance_losing(100, is_lost);
        cluster.replies.remove(&number).expect("it is answered")
    };
    let tasks = vec![NewTask { id, spec: spec(b"hello", 0) }];
    assert!(matches!(answer(&mut cluster, Request::Enqueue { tasks, acks: Acks::One }), Response::Acked(_)));
    let claimed = answer(&mut cluster, Request::Claim(claim_of(ClaimId(77), 60_000, 1)));
    let Response::Claimed { tasks, .. } = claimed else { panic!("{claimed:?}") };
    let (token, reason) = (tasks[0].token, "bad address".to_owned());
    let fail = Request::Fail { id, token, reason, retry_in_ms: 0, invalid: true, retry_open: false };
    assert_eq!(answer(&mut cluster, fail), Response::Done);
    let knows = |cluster: &Cluster, index: usize| {
        cluster.replica_of(index, &id).store.task(&id).is_some_and(|task| task.spec.is_some())
    };
    assert!(others.iter().all(|index| !knows(&cluster, *index)));
    cluster.down.insert(leader);
    cluster.advance(20_000);
    assert!(others.iter().any(|index| cluster.replica_of(*index, &id).consensus.established()));
    cluster.down.clear();
    let number_of_dead_letters = |cluster: &mut Cluster| cluster.dead_letters().len();
    for _ in 0..60 {
        cluster.advance(500);
        if number_of_dead_letters(&mut cluster) == 1 {
            return;
        }
    }
    panic!("it has no letter");
}

#[test]
fn a_dead_task_is_redriven_once_and_its_copy_again() {
    let mut cluster = Cluster::modern(3);
    let id = cluster.enqueue(0, b"x", 9);
    let (first, second) = (cluster.id(9), cluster.id(9));
    assert_eq!(cluster.redrive(0, id, first).expect_err("it lives").code, ErrorCode::Invalid);
    assert_eq!(cluster.redrive(0, second, first).expect_err("it is unknown").code, ErrorCode::NotFound);
    let claimed = cluster.claim(1, 60_000).remove(0);
    assert_eq!(claimed.id, id);
    let fail =
        |token| Request::Fail { id, token, reason: String::new(), retry_in_ms: 0, invalid: true, retry_open: false };
    assert_eq!(cluster.ask(2, fail(claimed.token)), Response::Done);
    cluster.advance(1_000);
    assert_eq!(cluster.redrive(1, id, first), Ok(first));
    assert_eq!(cluster.redrive(2, id, first), Ok(first), "it may be repeated");
    assert_eq!(cluster.redrive(0, id, second), Ok(first), "there is one copy");
    cluster.advance(2_000);
    let copy = cluster.claim(1, 60_000).remove(0);
    assert_eq!((copy.id, copy.attempt), (first, 1));
    assert_eq!(copy.headers, [(headers::REDRIVEN_FROM.to_owned(), id.to_string())]);
    assert_eq!(cluster.redrive(0, first, second).expect_err("it is claimed").code, ErrorCode::Invalid);
    assert!(matches!(cluster.complete(0, first, copy.token), Response::Acked(_)));
    cluster.advance(1_000);
    assert_eq!(cluster.redrive(0, first, second).expect_err("it is done").code, ErrorCode::Ended);
    assert_eq!(cluster.redrive(0, id, second), Ok(first), "even now");
}

/// Goal: a copy can be read as soon as its redrive is answered, whether it is new or the dead letter that is just on its way.
#[test]
fn a_copy_is_there_when_its_redrive_is_answered() {
    for dead_letters in [false, true] {
        for steps in 0..30 {
            let mut cluster = if dead_letters { Cluster::with_dead_letters() } else { Cluster::modern(3) };
            let id = cluster.kill(b"hello", 7);
            for _ in 0..steps {
                cluster.handle_next();
            }
            let child = cluster.id(7);
            let Ok(copy) = cluster.redrive(0, id, child) else { continue };
            assert_eq!(copy == child, !dead_letters);
            assert_eq!(cluster.get(1, copy).state, State::Ready, "after {steps} steps");
        }
    }
}

/// A session's end is final: it is not enqueued again.
#[test]
fn sessions_are_not_redriven() {
    let mut cluster = Cluster::modern(3);
    let id = cluster.id(7);
    let queue = QueueName::new(SESSIONS_QUEUE).expect("a name");
    let fact = Task::from_spec(Arc::new(Spec { queue, ..spec(b"x", 0) }));
    let partition = cluster.nodes[0].partition_of(&id);
    let dead = Cancel { dead: true, reason: String::new(), at_ms: 1 };
    for node in &mut cluster.nodes {
        node.merge(partition, vec![(id, fact.clone()), (id, Task::from_cancel(dead.clone()))]);
    }
    let child = cluster.id(7);
    assert_eq!(cluster.redrive(0, id, child).expect_err("it is a session").code, ErrorCode::Invalid);
}

/// That a member was given up is not lost if it is cancelled for its group before that is committed.
#[test]
fn what_is_given_up_while_its_group_ends_it_shows_that_and_has_its_letter() {
    let mut cluster = Cluster::with_dead_letters();
    let id = cluster.enqueue(0, b"hello", 7);
    let token = cluster.claim(1, 60_000).remove(0).token;
    let leader = cluster.leader(&id);
    let partition = cluster.nodes[leader].partition_of(&id);
    cluster.down.extend((0..3).filter(|index| *index != leader));
    let reason = "bad address".to_owned();
    let fail = Request::Fail { id, token, reason, retry_in_ms: 0, invalid: true, retry_open: false };
    let number = cluster.submit(leader, fail);
    let word = Cancel { dead: false, reason: GROUP_FAILED.to_owned(), at_ms: 1 };
    cluster.nodes[leader].merge(partition, vec![(id, Task::from_cancel(word))]);
    // Time for which the claim of an ended task is kept before it is dropped.
    cluster.advance(220);
    assert!(!cluster.replies.contains_key(&number), "nobody else has it");
    cluster.down.clear();
    cluster.run_until(|cluster| {
        cluster.nodes.iter().all(|node| {
            let task = node.partitions[&partition].store.task(&id);
            task.and_then(|task| task.ended()) == Some(State::Dead)
        })
    });
    cluster.advance(2_000);
    assert_eq!(cluster.dead_letters().len(), 1);
    assert_eq!(cluster.get(0, id).reason.as_deref(), Some("invalid: bad address"));
}

/// Goal: a copy that an operator got as an answer is never lost. Method: two operators redrive a task at once, each at another node.
#[test]
fn two_operators_that_redrive_a_task_at_once_have_each_the_copy_that_they_were_told_of() {
    let mut cluster = Cluster::modern(3);
    let id = cluster.kill(b"hello", 7);
    cluster.advance(1_000);
    let copies = [cluster.id(9), cluster.id(9)];
    let redrive = |child| Request::Redrive { id, child, queue: None, acks: Acks::Quorum };
    let numbers = [0, 1].map(|at| cluster.post(2 * at, redrive(copies[at])));
    cluster.run_until(|cluster| numbers.iter().all(|number| cluster.replies.contains_key(number)));
    for (number, copy) in numbers.iter().zip(copies) {
        match cluster.replies.remove(number) {
            Some(Response::AckedOne(acked)) => assert_eq!(acked.id, copy),
            other => panic!("{other:?}"),
        }
    }
    cluster.advance(3_000);
    assert_eq!(cluster.get(1, id).redriven, copies);
    assert_eq!(copies.map(|copy| cluster.get(1, copy).state), [State::Ready; 2]);
}

/// Goal: no task is redriven beside the dead letter that is being written for it. Method: an operator redrives it after a few more events
/// of its death each time.
#[test]
fn an_operator_that_redrives_a_task_while_its_letter_is_written_gets_no_other_copy() {
    let mut refused = 0;
    for steps in 0..12 {
        let mut cluster = Cluster::with_dead_letters();
        let id = cluster.enqueue(0, b"hello", 7);
        let token = cluster.claim(1, 60_000).remove(0).token;
        let fail = Request::Fail { id, token, reason: String::new(), retry_in_ms: 0, invalid: true, retry_open: false };
        cluster.post(2, fail);
        for _ in 0..2 * steps {
            cluster.handle_next();
        }
        let child = cluster.id(7);
        let redriven = cluster.redrive(0, id, child);
        cluster.advance(2_000);
        let dead_letters = cluster.dead_letters();
        assert_eq!(dead_letters.len(), 1, "after {steps} steps");
        assert_eq!(cluster.get(1, id).redriven, [dead_letters[0].id], "after {steps} steps");
        match redriven {
            Ok(copy) => assert_eq!(copy, dead_letters[0].id),
            Err(error) => refused += usize::from(error.code == ErrorCode::Unavailable),
        }
    }
    assert!(refused > 0, "an operator asks while the letter is written");
}

#[test]
fn a_redrive_of_a_task_that_nobody_can_read_is_refused_for_now() {
    let mut cluster = Cluster::modern(3);
    let id = cluster.kill(b"hello", 7);
    let child = cluster.id(7);
    cluster.down.extend([0, 1]);
    let refused = cluster.redrive(2, id, child).expect_err("one of three replicas is there");
    assert_eq!((refused.code, refused.passes()), (ErrorCode::Unavailable, true));
    cluster.down.clear();
    cluster.advance(5_000);
    assert_eq!(cluster.redrive(2, id, child), Ok(child));
}

/// Goal: a recorded redrive is not answered as unknown if the copy cannot be written now. Method: the task can be read only after a
/// second, and the partition of the copy has no majority.
#[test]
fn a_redrive_that_is_recorded_is_answered_within_the_time_of_one_attempt() {
    let mut cluster = Cluster::modern(3);
    let id = cluster.kill(b"hello", 7);
    cluster.advance(1_000);
    let child = cluster.id(0x40_0000);
    let (of_dead, of_copy) = (cluster.nodes[0].partition_of(&id), cluster.nodes[0].partition_of(&child));
    assert_ne!(of_dead, of_copy);
    let is_lost = |_: usize, message: &PeerMessage| {
        matches!(message, PeerMessage::ReadWrite(ReadWrite::Written { partition, .. })
        if *partition == of_copy)
    };
    let number = cluster.post(0, Request::Redrive { id, child, queue: None, acks: Acks::Quorum });
    let asked_us = cluster.now.mono_us;
    cluster.advance_losing(1_000, |to, message| {
        is_lost(to, message) || matches!(message, PeerMessage::ReadWrite(ReadWrite::Known { .. }))
    });
    assert!(!cluster.replies.contains_key(&number), "it could not be read");
    while !cluster.replies.contains_key(&number) {
        cluster.advance_losing(10, is_lost);
    }
    assert!(cluster.now.mono_us <= asked_us + 1_000 * (cluster.nodes[0].config.request_timeout_ms + 50));
    let reply = cluster.replies.remove(&number);
    assert!(matches!(&reply, Some(Response::AckedOne(acked)) if acked.id == child), "{reply:?}");
    cluster.advance(2_000);
    assert_eq!(cluster.get(1, child).state, State::Ready, "it is brought sooner or later");
}

/// Goal: no operator gets the id of a copy that will never exist. Method: the id of the copy is another task's.
#[test]
fn a_redrive_whose_copy_is_refused_for_good_is_refused() {
    let mut cluster = Cluster::modern(3);
    let id = cluster.kill(b"hello", 7);
    cluster.advance(1_000);
    let other = cluster.enqueue(0, b"another", 9);
    let refused = cluster.redrive(1, id, other).expect_err("the id is in use");
    assert_eq!((refused.code, refused.id), (ErrorCode::Conflict, Some(other)));
}
