//! Tasks that wait for others (S18, S27).

use super::forgetting::LONG_MS;
use super::hints::go_on;
use super::policies::is_changed;
use super::*;
use norn_model::limits::DEPENDENTS_MAX;
use norn_model::message::Workflow;
use norn_model::task::Settled;
use norn_wire::State;
use norn_wire::membership::{FailedDependency, QueueSetting};

impl Cluster {
    /// Enqueues a task with a given id, after others.
    fn enqueue_after(&mut self, index: usize, id: TaskId, after: &[TaskId]) -> TaskId {
        let spec = Spec { after: after.to_vec(), ..spec(b"later", 0) };
        let response = self.ask(index, Request::Enqueue { tasks: vec![NewTask { id, spec }], acks: Acks::Quorum });
        assert!(matches!(&response, Response::Acked(results) if results[0].is_ok()), "{response:?}");
        id
    }

    fn claim_one(&mut self, index: usize) -> norn_wire::Granted {
        let mut granted = self.claim(index, 60_000);
        assert_eq!(granted.len(), 1);
        granted.remove(0)
    }

    fn done_by(&mut self, index: usize, id: TaskId) {
        let granted = self.claim_one(index);
        assert_eq!(granted.id, id);
        assert!(matches!(self.complete(index, id, granted.token), Response::Acked(results) if results[0].is_ok()));
    }

    pub(super) fn cancel(&mut self, index: usize, id: TaskId) {
        let request = Request::Cancel { id, reason: "not needed".into(), at_ms: 7, acks: Acks::Quorum };
        assert!(matches!(self.ask(index, request), Response::AckedOne(_)));
    }

    fn state(&mut self, id: TaskId) -> State {
        self.get(0, id).state
    }

    fn run_until_state(&mut self, id: TaskId, state: State) {
        let partition = self.nodes[0].partition_of(&id);
        self.run_until(|cluster| {
            let classes = cluster.nodes.iter().map(|node| node.partitions[&partition].store.class(&id));
            classes.into_iter().all(|class| class.and_then(|class| class.state()) == Some(state))
        });
    }
}

// S18
#[test]
fn a_task_is_granted_when_all_it_waits_for_have_ended_whatever_their_partitions_and_order() {
    let mut cluster = Cluster::modern(3);
    let (early, late) = (cluster.enqueue(0, b"early", 0x11_1111), cluster.id(0xee_eeee));
    let last = cluster.id(0x77_7777);
    let last = cluster.enqueue_after(1, last, &[early, late]);
    assert_ne!(cluster.nodes[0].partition_of(&early), cluster.nodes[0].partition_of(&late));
    cluster.done_by(2, early);
    cluster.advance(5_000);
    let view = cluster.get(2, last);
    assert_eq!((view.state, view.waits_for), (State::Waiting, vec![late]), "one of them is not known yet");
    assert_eq!(cluster.claim(0, 5_000), Vec::new());
    cluster.enqueue_after(2, late, &[]);
    cluster.done_by(0, late);
    cluster.run_until_state(last, State::Ready);
    assert_eq!(cluster.get(1, last).waits_for, Vec::new());
    cluster.done_by(1, last);
}

#[test]
fn a_worker_that_waits_is_given_what_has_waited_without_asking_again() {
    let mut cluster = Cluster::modern(3);
    let first = cluster.enqueue(0, b"first", 0x11_1111);
    let second = cluster.id(0xcc_cccc);
    cluster.enqueue_after(0, second, &[first]);
    let granted = cluster.claim_one(1);
    let claim = Claim { wait_ms: 30_000, ..claim_of(ClaimId(5), 5_000, 1) };
    let number = cluster.submit(2, Request::Claim(claim));
    cluster.advance(3_000);
    assert!(!cluster.replies.contains_key(&number), "it waits");
    let before_us = cluster.now.mono_us;
    assert!(matches!(cluster.complete(0, first, granted.token), Response::Acked(_)));
    cluster.run_until(|cluster| cluster.replies.contains_key(&number));
    assert!(cluster.now.mono_us - before_us < 1_000_000, "the end was told, not found by a sweep");
    assert!(matches!(&cluster.replies[&number], Response::Claimed { tasks, .. } if tasks[0].id == second));
}

#[test]
fn what_was_told_outlives_leaders_and_what_was_waited_for() {
    let mut cluster = Cluster::modern(3);
    let (first, other) = (cluster.done(b"x"), cluster.id(0xee_eeee));
    let last = cluster.id(0x77_7777);
    cluster.enqueue_after(1, last, &[first, other]);
    cluster.run_until(|cluster| {
        let facts = |node: &Node| {
            let partition = node.partition_of(&last);
            node.partitions[&partition].store.task(&last).map(|task| task.waits_for(&last))
        };
        cluster.nodes.iter().all(|node| facts(node) == Some(vec![other]))
    });
    cluster.skip(LONG_MS);
    cluster.run_until_forgotten(&first);
    let leader = cluster.leader(&last);
    cluster.restart(leader);
    cluster.advance(5_000);
    assert_eq!(cluster.get(0, last).waits_for, vec![other]);
    cluster.cancel(0, last);
}

#[test]
fn the_queue_says_what_becomes_of_a_task_whose_dependency_failed() {
    for (policy, state) in [
        (FailedDependency::Fail, State::Dead),
        (FailedDependency::Skip, State::Ready),
        (FailedDependency::Wait, State::Waiting),
    ] {
        let mut cluster = Cluster::modern(3);
        let changed = cluster.set(0, "mail", QueueSetting::FailedDependency(policy));
        assert!(matches!(changed, Response::Changed(_)));
        let first = cluster.enqueue(0, b"first", 0x11_1111);
        let [second, third] = [0xcc_cccc, 0x33_3333].map(|tag| cluster.id(tag));
        cluster.enqueue_after(0, second, &[first]);
        cluster.enqueue_after(0, third, &[second]);
        cluster.cancel(1, first);
        cluster.advance(10_000);
        assert_eq!(cluster.state(second), state, "{policy:?}");
        let after = if policy == FailedDependency::Fail { State::Dead } else { State::Waiting };
        assert_eq!(cluster.state(third), after, "{policy:?}");
        if policy == FailedDependency::Fail {
            let reason = cluster.get(0, second).reason.expect("it says why");
            assert!(reason.contains("was cancelled") && reason.contains(&first.to_string()), "{reason}");
        }
        if policy == FailedDependency::Wait {
            // It takes effect for those that wait already.
            assert!(is_changed(&cluster.set(0, "mail", QueueSetting::FailedDependency(FailedDependency::Skip))));
            cluster.run_until_state(second, State::Ready);
        }
    }
}

#[test]
fn what_can_never_be_known_any_more_counts_as_failed() {
    let mut cluster = Cluster::modern(3);
    let never = cluster.id(0x12_3456);
    let first = cluster.done(b"x");
    assert_eq!(cluster.nodes[0].partition_of(&never), cluster.nodes[0].partition_of(&first));
    cluster.skip(LONG_MS);
    cluster.run_until_forgotten(&first);
    let last = cluster.id(0x77_7777);
    cluster.enqueue_after(0, last, &[never]);
    cluster.run_until_state(last, State::Dead);
    assert!(cluster.get(0, last).reason.is_some_and(|reason| reason.contains("not any more")));
}

#[test]
fn one_end_frees_more_tasks_than_are_looked_at_in_a_step() {
    let mut cluster = Cluster::modern(3);
    let first = cluster.enqueue(0, b"first", 0x11_1111);
    let many: Vec<TaskId> = (0..DEPENDENTS_MAX + 44).map(|_| cluster.id(0xcc_cccc)).collect();
    for id in &many {
        cluster.enqueue_after(0, *id, &[first]);
    }
    cluster.done_by(1, first);
    for id in many {
        cluster.run_until_state(id, State::Ready);
    }
}

/// Method: two nodes are given one each of two tasks that wait for each other, before either can know of the other.
#[test]
fn tasks_that_wait_for_each_other_wait_and_are_cancelled() {
    let mut cluster = Cluster::modern(3);
    let [one, other] = [0x11_1111, 0xcc_cccc].map(|tag| cluster.id(tag));
    for (index, id, after) in [(0, one, other), (1, other, one)] {
        let tasks = vec![NewTask { id, spec: Spec { after: vec![after], ..spec(b"later", 0) } }];
        let (principal, request) =
            (Principal { name: "tester".into(), node: false }, Request::Enqueue { tasks, acks: Acks::Quorum });
        cluster.number += 1;
        cluster.queue.push_back((index, Event::Request { client: CLIENT, number: cluster.number, principal, request }));
    }
    cluster.advance(1_000);
    cluster.advance(10_000);
    assert_eq!((cluster.get(0, one).waits_for, cluster.get(0, other).waits_for), (vec![other], vec![one]));
    cluster.cancel(0, one);
    cluster.run_until_state(other, State::Dead);
}

/// The last task of a cycle is refused, whether the others are stored or in the same request, and nothing of its request is stored. A
/// repeat of a task that was stored before is not refused.
#[test]
fn what_would_close_a_circle_is_refused() {
    let mut cluster = Cluster::modern(3);
    let [first, second, third, fourth] = [0x11_1111, 0x22_2222, 0xcc_cccc, 0xdd_dddd].map(|tag| cluster.id(tag));
    cluster.enqueue_after(0, first, &[second]);
    cluster.enqueue_after(1, second, &[third]);
    let task = |id, after: &[TaskId]| NewTask { id, spec: Spec { after: after.to_vec(), ..spec(b"later", 0) } };
    let closing = vec![task(fourth, &[]), task(third, &[fourth, first])];
    assert_eq!(cluster.refused(2, Request::Enqueue { tasks: closing, acks: Acks::Quorum }), ErrorCode::Invalid);
    let [fifth, sixth] = [1, 2].map(|tag| cluster.id(tag));
    let both = vec![task(fifth, &[fourth, sixth]), task(sixth, &[fifth])];
    assert_eq!(cluster.refused(0, Request::Enqueue { tasks: both, acks: Acks::Quorum }), ErrorCode::Invalid);
    assert_eq!(
        cluster.refused(0, Request::Get { id: fourth, minimum: None, minimum_sequence: None }),
        ErrorCode::NotFound
    );
    cluster.enqueue_after(2, third, &[fourth]);
    cluster.enqueue_after(2, first, &[second]);
    assert_eq!(cluster.get(1, first).waits_for, [second]);
}

/// The same for tasks that a completion brings.
#[test]
fn a_completion_brings_no_circle() {
    let mut cluster = Cluster::modern(3);
    let id = cluster.enqueue(0, b"x", 1);
    let token = cluster.claim(1, 60_000).remove(0).token;
    let [one, other] = [2, 3].map(|tag| cluster.id(tag));
    let task = |id, after: &[TaskId]| NewTask { id, spec: Spec { after: after.to_vec(), ..spec(b"later", 0) } };
    let complete = |children| {
        let item = norn_wire::request::Completion { id, token, sequence: None, result: None, at_ms: 5, children };
        Request::Complete { items: vec![item], acks: Acks::Quorum }
    };
    for children in [vec![task(one, &[one])], vec![task(one, &[other]), task(other, &[one])]] {
        assert_eq!(cluster.refused(2, complete(children)), ErrorCode::Invalid);
    }
    assert_eq!(cluster.get(0, id).state, State::Claimed);
    let chain = complete(vec![task(one, &[id]), task(other, &[one])]);
    assert!(matches!(cluster.ask(2, chain), Response::Acked(results) if results[0].is_ok()));
    cluster.run_until_state(one, State::Ready);
}

#[test]
fn a_task_that_waits_for_itself_or_twice_for_another_is_refused() {
    let mut cluster = Cluster::modern(1);
    let [id, other] = [1, 2].map(|tag| cluster.id(tag));
    for after in [vec![id], vec![other, other]] {
        let tasks = vec![NewTask { id, spec: Spec { after, ..spec(b"x", 0) } }];
        assert_eq!(cluster.refused(0, Request::Enqueue { tasks, acks: Acks::One }), ErrorCode::Invalid);
    }
}

/// Goal: a single replica that takes a task for forgotten does not suffice, as it may have missed the task. Method: the same replica
/// answers so twice, then a second one does.
#[test]
fn a_task_counts_as_forgotten_only_by_the_word_of_a_majority() {
    let mut cluster = Cluster::modern(3);
    let [unknown, last] = [0x12_3456, 0x77_7777].map(|tag| cluster.id(tag));
    cluster.enqueue_after(0, last, &[unknown]);
    let (leader, partition) = (cluster.leader(&last), cluster.nodes[0].partition_of(&last));
    for (other, state) in [(1, State::Waiting), (1, State::Waiting), (2, State::Dead)] {
        let ends = vec![(unknown, Settled::Forgotten)];
        cluster.deliver(
            (leader + other) % 3,
            leader,
            PeerMessage::Workflow(Workflow::Ends { partition, ends, joins: Vec::new() }),
        );
        cluster.advance(5_000);
        assert_eq!(cluster.state(last), state);
    }
}

/// Goal: followers answer that a task is forgotten, too, if its leader cannot be reached. Method: the link from the leader of the
/// waiting task to the leader of the forgotten one is cut.
#[test]
fn followers_tell_that_a_task_is_forgotten_where_its_leader_is_not_reached() {
    let mut cluster = Cluster::modern(3);
    let never = cluster.id(0x12_3456);
    let first = cluster.done(b"x");
    cluster.skip(LONG_MS);
    cluster.run_until_forgotten(&first);
    cluster.run_until(Cluster::is_led_as_preferred);
    let to = cluster.leader(&never);
    let tags = (0..16).map(|number| number << 20);
    let tag =
        tags.into_iter().find(|tag| cluster.leader(&TaskId::new(1, 1, 1, *tag)) != to).expect("others lead as well");
    let last = cluster.id(tag);
    let from = cluster.leader(&last);
    let node = |index: usize| NodeId(index as u128 + 1);
    let cut = |_: &mut Cluster, index: usize, event: Event| {
        let is_cut = index == to && matches!(&event, Event::Peer { from: of, .. } if *of == node(from));
        (!is_cut).then_some(event)
    };
    go_on(&mut cluster, 1_000, cut);
    assert!(!cluster.nodes[from].is_reachable(node(to)));
    let tasks = vec![NewTask { id: last, spec: Spec { after: vec![never], ..spec(b"later", 0) } }];
    let principal = Principal { name: "tester".into(), node: false };
    let request = Request::Enqueue { tasks, acks: Acks::Quorum };
    cluster.queue.push_back((3 - from - to, Event::Request { client: CLIENT, number: 1_000, principal, request }));
    go_on(&mut cluster, 3_000, cut);
    assert_eq!((cluster.leader(&never), cluster.leader(&last)), (to, from));
    let partition = cluster.nodes[0].partition_of(&last);
    let class = cluster.nodes[from].partitions[&partition].store.class(&last);
    assert_eq!(class.and_then(|class| class.state()), Some(State::Dead));
}
