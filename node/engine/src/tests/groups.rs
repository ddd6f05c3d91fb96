//! Groups: members, and the join that becomes claimable after them (O17-O24, O31).

use super::forgetting::LONG_MS;
use super::*;
use norn_model::limits::GROUP_WINDOW;
use norn_wire::State;
use norn_wire::group::{GroupView, Grouping, Join, MemberOf};
use norn_wire::limits::GROUP_MEMBERS_MAX;

pub(super) fn member(group: TaskId, number: u32) -> NewTask {
    let member = MemberOf { group, number };
    let grouping = Some(Box::new(Grouping { member: Some(member), join: None }));
    NewTask { id: member.id(), spec: Spec { grouping, ..spec(&number.to_be_bytes(), 0) } }
}

pub(super) fn join(id: TaskId, total: Option<u32>, fail_fast: bool) -> NewTask {
    let join = Join { total, fail_fast };
    let grouping = Some(Box::new(Grouping { member: None, join: Some(join) }));
    NewTask { id, spec: Spec { grouping, ..spec(b"join", 5) } }
}

fn view(total: u32, ended: u32, failed: u32) -> Option<GroupView> {
    Some(GroupView { total: Some(total), ended, failed })
}

impl Cluster {
    fn store_all(&mut self, index: usize, tasks: Vec<NewTask>) {
        let response = self.ask(index, Request::Enqueue { tasks, acks: Acks::Quorum });
        let Response::Acked(results) = &response else { panic!("{response:?}") };
        assert!(results.iter().all(Result::is_ok), "{results:?}");
    }

    fn close(&mut self, index: usize, id: TaskId, total: u32) -> Response {
        self.ask(index, Request::CloseGroup { id, total, acks: Acks::Quorum })
    }

    /// Claims up to `max` tasks and completes them with what they carry. Returns those that there were.
    fn finish(&mut self, index: usize, max: u32) -> Vec<norn_wire::Granted> {
        self.number += 1;
        let claim = claim_of(ClaimId(u128::from(self.number)), 60_000, max);
        let Response::Claimed { tasks, .. } = self.ask(index, Request::Claim(claim)) else { panic!("no claim") };
        for granted in &tasks {
            assert!(matches!(self.complete(index, granted.id, granted.token), Response::Acked(_)));
        }
        tasks
    }

    fn run_until_ready(&mut self, id: TaskId) {
        self.run_until(|cluster| {
            cluster.nodes.iter().any(|node| {
                let replica = &node.partitions[&node.partition_of(&id)];
                replica.consensus.established() && replica.is_ready(&id)
            })
        });
    }
}

fn connected() -> Cluster {
    let mut cluster = Cluster::modern(3);
    cluster.connect_all();
    cluster
}

// O17, O18, O20, O21
#[test]
fn the_join_of_a_group_comes_when_all_members_have_ended_and_it_is_known_how_many_there_are() {
    let mut cluster = connected();
    let group = cluster.id(0x55_5555);
    cluster.store_all(0, vec![join(group, None, false)]);
    cluster.store_all(1, (1..=4).map(|number| member(group, number)).collect());
    let done: Vec<TaskId> = cluster.finish(2, 10).iter().map(|granted| granted.id).collect();
    assert_eq!(done.len(), 4, "members need no total to be claimed");
    cluster.store_all(1, vec![member(group, 5)]);
    assert!(matches!(cluster.close(1, group, 5), Response::AckedOne(_)));
    cluster.advance(3_000);
    assert_eq!(cluster.get(0, group).state, State::Waiting, "one is open");
    assert_eq!(cluster.get(0, group).group, view(5, 4, 0));
    assert_eq!(cluster.get(0, group).waits_for, [MemberOf { group, number: 5 }.id()]);
    assert_eq!(cluster.finish(0, 10).len(), 1);
    cluster.run_until_ready(group);
    let granted = cluster.finish(1, 10);
    assert_eq!(granted.iter().map(|granted| (granted.id, granted.group)).collect::<Vec<_>>(), [(group, view(5, 5, 0))]);
    assert_eq!(cluster.finish(1, 10), Vec::new(), "it comes once");
}

// O17, O36
#[test]
fn failed_members_count_as_ended_and_the_join_says_how_many_failed() {
    let mut cluster = connected();
    let group = cluster.id(0x55_5555);
    cluster.store_all(0, (1..=3).map(|number| member(group, number)).chain([join(group, Some(3), false)]).collect());
    let request =
        Request::Cancel { id: MemberOf { group, number: 2 }.id(), reason: String::new(), at_ms: 7, acks: Acks::Quorum };
    assert!(matches!(cluster.ask(0, request), Response::AckedOne(_)));
    assert_eq!(cluster.finish(0, 10).len(), 2);
    cluster.run_until_ready(group);
    assert_eq!(cluster.claim(1, 5_000)[0].group, view(3, 3, 1));
}

/// As many as a group may have, of which nothing but the join's window is looked at at a time.
// O17
#[test]
fn a_group_of_as_many_members_as_there_may_be_comes_to_its_end() {
    const AT_ONCE: usize = 500;
    let mut cluster = connected();
    cluster.check_every = 20_000;
    let group = cluster.id(0x55_5555);
    cluster.store_all(0, vec![join(group, Some(GROUP_MEMBERS_MAX), false)]);
    let numbers: Vec<u32> = (1..=GROUP_MEMBERS_MAX).collect();
    for (batch, numbers) in numbers.chunks(AT_ONCE).enumerate() {
        cluster.store_all(batch % 3, numbers.iter().map(|number| member(group, *number)).collect());
    }
    let mut done = 0;
    while done < GROUP_MEMBERS_MAX as usize {
        cluster.number += 1;
        let claim = claim_of(ClaimId(u128::from(cluster.number)), 600_000, AT_ONCE as u32);
        let Response::Claimed { tasks, .. } = cluster.ask(0, Request::Claim(claim)) else { panic!("no claim") };
        assert!(!tasks.is_empty() && tasks.iter().all(|task| task.id != group), "after {done}: {}", tasks.len());
        let ended = |task: &norn_wire::Granted| {
            let (id, token) = (task.id, task.token);
            Completion { id, token, sequence: None, result: None, at_ms: 5, children: Vec::new() }
        };
        let items = tasks.iter().map(ended).collect();
        let Response::Acked(acked) = cluster.ask(1, Request::Complete { items, acks: Acks::Quorum }) else {
            panic!("no completion")
        };
        assert!(acked.iter().all(Result::is_ok));
        done += tasks.len();
    }
    cluster.run_until_ready(group);
    let granted = cluster.finish(2, 10);
    let all = view(GROUP_MEMBERS_MAX, GROUP_MEMBERS_MAX, 0);
    assert_eq!(granted.iter().map(|granted| (granted.id, granted.group)).collect::<Vec<_>>(), [(group, all)]);
}

// O19
#[test]
fn a_group_that_is_enqueued_again_is_the_same_tasks() {
    let mut cluster = connected();
    let group = cluster.id(0x55_5555);
    let tasks = || (1..=3).map(|number| member(group, number)).chain([join(group, None, false)]).collect::<Vec<_>>();
    for index in 0..3 {
        cluster.store_all(index, tasks());
        assert!(matches!(cluster.close(index, group, 3), Response::AckedOne(_)));
    }
    assert_eq!(cluster.finish(0, 10).len(), 3);
    cluster.run_until_ready(group);
    cluster.store_all(0, tasks());
    assert_eq!(cluster.finish(0, 10).iter().map(|granted| granted.id).collect::<Vec<_>>(), [group]);
    assert_eq!(cluster.finish(0, 10), Vec::new());
}

#[test]
fn who_says_otherwise_how_many_there_are_is_refused() {
    let mut cluster = connected();
    let (group, other) = (cluster.id(0x55_5555), cluster.enqueue(0, b"no join", 0x11_1111));
    let code = |response| if let Response::Error(error) = response { Some(error.code) } else { None };
    assert_eq!(code(cluster.close(0, group, 3)), Some(ErrorCode::NotFound));
    assert_eq!(code(cluster.close(0, other, 3)), Some(ErrorCode::Conflict));
    cluster.store_all(0, vec![join(group, None, false)]);
    assert_eq!(code(cluster.close(0, group, 3)), None);
    assert_eq!(code(cluster.close(1, group, 3)), None, "it is the same");
    assert_eq!(code(cluster.close(2, group, 4)), Some(ErrorCode::Conflict));
    let mut wrong = member(group, 1);
    wrong.id = cluster.id(1);
    assert_eq!(cluster.refused(0, Request::Enqueue { tasks: vec![wrong], acks: Acks::Quorum }), ErrorCode::Invalid);
}

// O31
#[test]
fn where_one_member_fails_the_others_are_cancelled_if_the_group_says_so() {
    let mut cluster = connected();
    let group = cluster.id(0x55_5555);
    let last = GROUP_WINDOW as u32 + 20;
    cluster
        .store_all(0, (1..=last).map(|number| member(group, number)).chain([join(group, Some(last), true)]).collect());
    // Far behind those that the join waits for first.
    let failing = MemberOf { group, number: last }.id();
    let request = Request::Cancel { id: failing, reason: String::new(), at_ms: 7, acks: Acks::Quorum };
    assert!(matches!(cluster.ask(1, request), Response::AckedOne(_)));
    let before_us = cluster.now.mono_us;
    cluster.run_until_ready(group);
    assert!(cluster.now.mono_us - before_us < 1_000_000, "it was told, not found by a sweep");
    assert_eq!(cluster.get(0, group).group, view(last, last, last));
    assert_eq!(cluster.get(0, MemberOf { group, number: 7 }.id()).state, State::Cancelled);
    assert_eq!(cluster.finish(0, 10).iter().map(|granted| granted.id).collect::<Vec<_>>(), [group]);
}

/// Members that come only after the group has failed are cancelled before they come.
#[test]
fn a_group_that_is_closed_after_it_failed_ends_all_the_same() {
    let mut cluster = connected();
    let group = cluster.id(0x55_5555);
    cluster.store_all(0, vec![join(group, None, true), member(group, 1)]);
    let first = MemberOf { group, number: 1 }.id();
    let request = Request::Cancel { id: first, reason: String::new(), at_ms: 7, acks: Acks::Quorum };
    assert!(matches!(cluster.ask(1, request), Response::AckedOne(_)));
    assert!(matches!(cluster.close(1, group, 3), Response::AckedOne(_)));
    cluster.run_until_ready(group);
    assert_eq!(cluster.finish(0, 10)[0].group, view(3, 3, 3));
    cluster.store_all(0, vec![member(group, 2), member(group, 3)]);
    assert_eq!(cluster.finish(0, 10), Vec::new(), "they come too late");
}

// O22, O23, O24
#[test]
fn a_group_waits_for_the_groups_that_its_members_bring() {
    let mut cluster = connected();
    let (outer, inner) = (cluster.id(0x55_5555), cluster.id(0x99_9999));
    cluster.store_all(0, vec![join(outer, Some(1), false), member(outer, 1)]);
    let tasks = cluster.claim(0, 60_000);
    let children = (1..=2).map(|number| member(inner, number)).chain([join(inner, Some(2), false)]).collect();
    let (id, token) = (tasks[0].id, tasks[0].token);
    let items = vec![Completion { id, token, sequence: None, result: None, at_ms: 5, children }];
    assert!(matches!(cluster.ask(1, Request::Complete { items, acks: Acks::Quorum }), Response::Acked(_)));
    cluster.run_until(|cluster| {
        cluster.nodes.iter().all(|node| node.partitions[&node.partition_of(&inner)].store.knows(&inner))
    });
    cluster.advance(3_000);
    let view_of_outer = cluster.get(0, outer);
    assert_eq!(
        (view_of_outer.group, view_of_outer.waits_for),
        (view(1, 1, 0), vec![inner]),
        "its member has brought more"
    );
    assert_eq!(cluster.finish(0, 10).len(), 2, "members of the inner group");
    cluster.run_until_ready(inner);
    assert_eq!(cluster.get(0, outer).state, State::Waiting);
    assert_eq!(cluster.finish(0, 10).iter().map(|granted| granted.id).collect::<Vec<_>>(), [inner]);
    cluster.run_until_ready(outer);
    assert_eq!(cluster.finish(0, 10).iter().map(|granted| granted.id).collect::<Vec<_>>(), [outer]);
}

// O36
#[test]
fn members_are_kept_until_their_join_has_ended() {
    let mut cluster = connected();
    let group = cluster.id(0x55_5555);
    cluster.store_all(0, vec![join(group, Some(2), false), member(group, 1)]);
    let first = cluster.finish(0, 1).remove(0).id;
    let other = cluster.done(b"no member");
    cluster.skip(LONG_MS);
    cluster.run_until_forgotten(&other);
    cluster.advance(5_000);
    assert!(cluster.get(1, first).result.is_some() || cluster.get(1, first).state == State::Done, "it can be read");
    cluster.cancel_group(group);
    cluster.run_until_forgotten(&first);
}

/// The state of a group outlives the leader of its partition.
#[test]
fn a_later_leader_goes_on_with_a_group() {
    let mut cluster = connected();
    let group = cluster.id(0x55_5555);
    cluster.store_all(0, (1..=4).map(|number| member(group, number)).chain([join(group, Some(4), false)]).collect());
    assert_eq!(cluster.finish(0, 2).len(), 2);
    cluster.advance(1_000);
    let leader = cluster.leader(&group);
    cluster.restart(leader);
    cluster.connect_all();
    cluster.advance(5_000);
    assert_eq!(cluster.get(0, group).group, view(4, 2, 0));
    assert_eq!(cluster.finish(0, 2).len(), 2);
    cluster.run_until_ready(group);
}

impl Cluster {
    fn cancel_group(&mut self, id: TaskId) {
        let request = Request::Cancel { id, reason: "not needed".into(), at_ms: 7, acks: Acks::Quorum };
        assert!(matches!(self.ask(0, request), Response::AckedOne(_)));
    }
}

/// Goal: a client that names a member of a group twice, by the group and as a task to wait for, harms nothing.
#[test]
fn a_join_that_also_waits_for_a_member_by_its_id_comes_once_that_has_ended() {
    let mut cluster = connected();
    let group = cluster.id(0x55_5555);
    let first = member(group, 1);
    let mut last = join(group, Some(1), false);
    last.spec.after = vec![first.id];
    cluster.store_all(0, vec![last, first]);
    assert_eq!(cluster.finish(0, 10).len(), 1);
    cluster.run_until_ready(group);
}
