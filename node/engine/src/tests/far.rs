//! A broker and a leader that are further apart than the time after which a question is repeated. The repeat is answered with the
//! grants of its first copy, and does not change them: grants that reach no client still go back.

use super::recall::{ask_until, cluster_of_many, granted_tasks, is_answer, is_on_its_way, with_many};
use super::*;
use norn_model::message::Claiming;
use norn_wire::Granted;

const LEASE_MS: u64 = 600_000;

/// A cluster in which a broker was granted a task, and repeats its question before it has the answer.
struct Far {
    cluster: Cluster,
    task: TaskId,
    broker: usize,
    /// Number of the client's request.
    number: u64,
    /// Answers to the question and to its repeat, on their way.
    answers: Vec<(usize, Event)>,
}

fn is_question(message: &PeerMessage) -> bool {
    matches!(message, PeerMessage::Claiming(Claiming::GrantAsk { .. }))
}

fn claim() -> Claim {
    Claim { confirms: true, ..claim_of(ClaimId(77), LEASE_MS, 1) }
}

impl Far {
    fn new() -> Far {
        Far::of(cluster_of_many(), |_, _| {})
    }

    /// The same, with an event at the leader between the question and its repeat.
    fn of(cluster: (Cluster, TaskId, usize), between: impl FnOnce(&mut Cluster, usize)) -> Far {
        Far::asking(cluster, claim(), between)
    }

    fn asking(
        (mut cluster, task, leader): (Cluster, TaskId, usize),
        claim: Claim,
        between: impl FnOnce(&mut Cluster, usize),
    ) -> Far {
        let broker = (leader + 1) % 3;
        let number = ask_until(&mut cluster, broker, claim, (broker, is_answer, 1));
        let mut far = Far { cluster, task, broker, number, answers: Vec::new() };
        far.keep_answers();
        between(&mut far.cluster, leader);
        let repeat_ms = far.cluster.nodes[broker].config.resend_ms + 50;
        for _ in 0..repeat_ms {
            far.cluster.now.mono_us += 1_000;
            far.cluster.now.wall_ms += 1;
            let is_due = |index: &usize| {
                far.cluster.nodes[*index].next_wake().is_some_and(|at_us| at_us <= far.cluster.now.mono_us)
            };
            let due: Vec<usize> = (0..3).filter(is_due).collect();
            far.cluster.queue.extend(due.into_iter().map(|index| (index, Event::Wake)));
            while far.cluster.handle_next() {
                far.keep_answers();
            }
        }
        assert_eq!(far.answers.len(), 2, "the question is repeated, and that is answered");
        far
    }

    fn keep_answers(&mut self) {
        let broker = self.broker;
        let (kept, others) =
            self.cluster.queue.drain(..).partition::<Vec<_>, _>(|event| is_on_its_way(event, broker, is_answer));
        self.answers.extend(kept);
        self.cluster.queue.extend(others);
    }

    /// Delivers one of the answers; returns the client's grant.
    fn told(&mut self, index: usize) -> Granted {
        let answer = self.answers.remove(index);
        self.cluster.queue.push_back(answer);
        granted_tasks(&mut self.cluster, self.number).remove(0)
    }

    fn client_goes(&mut self) {
        self.cluster.queue.push_back((self.broker, Event::ClientGone { client: CLIENT }));
        self.cluster.drain();
    }

    fn answers_come(&mut self) {
        self.cluster.queue.extend(self.answers.drain(..));
        self.cluster.advance(20);
    }

    fn state(&mut self) -> State {
        let index = (self.broker + 1) % 3;
        self.cluster.get(index, self.task).state
    }

    fn claimed(&mut self) -> u64 {
        let queue = QueueName::new("mail").ok();
        match self.cluster.ask(self.broker, Request::Count { queue, state: Some(State::Claimed) }) {
            Response::Count(count) => count,
            other => panic!("{other:?}"),
        }
    }
}

/// Goal: a task does not wait for the lease of a client that was never reached. Method: the first answer comes, or only the second.
#[test]
fn what_is_not_confirmed_goes_back() {
    for index in [0, 1] {
        let mut far = Far::new();
        assert_eq!(far.told(index).id, far.task);
        far.client_goes();
        far.answers_come();
        assert_eq!((far.state(), far.claimed()), (State::Ready, 0), "answer {index}");
    }
}

/// The same where the client is gone before any answer comes.
#[test]
fn what_comes_for_a_client_that_is_gone_goes_back() {
    let mut far = Far::new();
    far.client_goes();
    far.answers_come();
    assert_eq!((far.state(), far.claimed()), (State::Ready, 0));
}

/// Goal: a grant that is given back late is not taken from a client that got it from another broker meanwhile.
#[test]
fn what_another_broker_has_told_since_does_not_go_back() {
    for index in [0, 1] {
        let mut far = Far::new();
        let first = far.told(index);
        let other = (far.broker + 1) % 3;
        let number = far.cluster.submit(other, Request::Claim(Claim { repeated: true, ..claim() }));
        assert_eq!(granted_tasks(&mut far.cluster, number)[0].token, first.token);
        assert_eq!(far.cluster.ask(other, Request::Confirm { claim: ClaimId(77) }), Response::Done);
        far.client_goes();
        far.answers_come();
        far.cluster.advance(1_000);
        let view = far.cluster.get(other, far.task);
        let token = view.claims.last().map(|claim| claim.token);
        assert_eq!((view.state, token), (State::Claimed, Some(first.token)), "answer {index}");
    }
}

/// Goal: a client keeps the grants of the first answer, though the leader cannot read their tasks for the second: they were in an
/// answer already.
#[test]
fn what_a_repeat_cannot_read_is_not_taken_back() {
    let mut cluster = Cluster::with_config(3, &Config { payload_memory_bytes: 0, ..Config::default() });
    cluster.connect_all();
    cluster.advance(5_000);
    let mut far = Far::of(with_many(cluster, b"precious"), Cluster::spoil);
    let is_empty = |event: &Event| match event {
        Event::Peer { message: PeerMessage::Claiming(Claiming::GrantAnswer { tasks, .. }), .. } => tasks.is_empty(),
        _ => panic!("answers are kept"),
    };
    assert!(is_empty(&far.answers[1].1) && !is_empty(&far.answers[0].1), "it cannot be read any more");
    let first = far.told(0);
    assert_eq!(far.cluster.ask(far.broker, Request::Confirm { claim: ClaimId(77) }), Response::Done);
    far.answers_come();
    far.cluster.advance(1_000);
    let view = far.cluster.get(far.broker, far.task);
    assert_eq!((view.state, view.claims.last().map(|claim| claim.token)), (State::Claimed, Some(first.token)));
}

/// Goal: a repeat that comes late does not hold a task again that has gone back already. Method: the client is gone before the answer,
/// and the question is handled once more after that.
#[test]
fn a_repeat_behind_what_went_back_holds_nothing() {
    let (mut cluster, _, leader) = cluster_of_many();
    let broker = (leader + 1) % 3;
    ask_until(&mut cluster, broker, claim(), (leader, is_question, 1));
    let question = cluster.queue.iter().find(|event| is_on_its_way(event, leader, is_question)).cloned();
    cluster.queue.push_front((broker, Event::ClientGone { client: CLIENT }));
    cluster.advance(20);
    assert_eq!(cluster.observed.iter().filter(|(_, it)| matches!(it, Observation::Voided { .. })).count(), 1);
    cluster.queue.extend(question);
    cluster.advance(20);
    let queue = QueueName::new("mail").ok();
    let claimed = cluster.ask(broker, Request::Count { queue, state: Some(State::Claimed) });
    assert_eq!(claimed, Response::Count(0));
}

/// Goal: a grant that a repeat answers again still goes back, whatever becomes of the other tasks of the same operation. Method: the
/// body of one of them cannot be read, so that the leader takes that one back itself.
#[test]
fn what_was_granted_with_a_task_that_cannot_be_read_goes_back() {
    let mut cluster = Cluster::with_config(3, &Config { payload_memory_bytes: 0, ..Config::default() });
    cluster.connect_all();
    cluster.advance(5_000);
    let spoiled = cluster.enqueue(0, b"spoiled", 0);
    let leader = cluster.leader(&spoiled);
    cluster.advance(1_000);
    cluster.spoil(leader);
    let task = cluster.enqueue(0, b"precious", 0);
    cluster.advance(1_000);
    let mut far = Far::asking((cluster, task, leader), Claim { max: 2, ..claim() }, |_, _| {});
    let voided = |(_, it): &(usize, Observation)| matches!(it, Observation::Voided { id, .. } if *id == spoiled);
    assert!(far.cluster.observed.iter().any(voided), "it could not be read");
    far.told(0);
    far.client_goes();
    far.answers_come();
    assert_eq!(far.state(), State::Ready);
}

/// Goal: a question is granted something once at most. Method: it was answered with nothing, and its repeat comes when there is work.
#[test]
fn a_repeat_of_what_was_answered_with_nothing_holds_nothing() {
    let mut cluster = Cluster::modern(3);
    cluster.connect_all();
    let first = cluster.enqueue(0, b"x", 0);
    cluster.advance(1_000);
    let leader = cluster.leader(&first);
    let broker = (leader + 1) % 3;
    ask_until(&mut cluster, broker, claim(), (leader, is_question, 1));
    let question = cluster.queue.iter().find(|event| is_on_its_way(event, leader, is_question)).cloned();
    cluster.queue.retain(|event| !is_on_its_way(event, leader, is_question));
    assert_eq!(cluster.claim(leader, LEASE_MS)[0].id, first, "somebody else is quicker");
    cluster.queue.extend(question.clone());
    cluster.advance(100);
    let second = cluster.enqueue(0, b"x", 0);
    cluster.queue.extend(question);
    cluster.advance(100);
    let granted = |(_, it): &(usize, Observation)| matches!(it, Observation::Granted { id, .. } if *id == second);
    assert!(!cluster.observed.iter().any(granted));
}
