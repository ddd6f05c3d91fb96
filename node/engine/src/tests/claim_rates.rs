//! Tasks that age, and claims that are limited by a rate.

use super::policies::is_changed;
use super::*;
use norn_model::message::Limiting;
use norn_wire::error::ErrorCode;
use norn_wire::membership::{QueueSetting, Rate};

impl Cluster {
    pub(super) fn enqueue_at(&mut self, priority: i32, tag: u32) -> TaskId {
        let id = self.id(tag);
        let tasks = vec![NewTask { id, spec: spec(b"x", priority) }];
        assert!(matches!(self.ask(0, Request::Enqueue { tasks, acks: Acks::All }), Response::Acked(_)));
        id
    }

    /// Tasks in all partitions.
    pub(super) fn spread_tasks(&mut self, count: u32) {
        for number in 0..count {
            self.enqueue_at(0, (1 << 24) / count * number);
        }
    }
}

/// A cluster in which this is set for the queue.
pub(super) fn queue_with(setting: QueueSetting) -> Cluster {
    queue_in(&Config::default(), setting)
}

pub(super) fn queue_in(config: &Config, setting: QueueSetting) -> Cluster {
    let mut cluster = Cluster::with_config(3, config);
    cluster.connect_all();
    cluster.advance(5_000);
    assert!(is_changed(&cluster.set(0, "mail", setting)));
    cluster
}

/// Whether a task gets its turn though two of a higher priority come every second and one is claimed.
fn comes_to_its_turn(cluster: &mut Cluster, tags: [u32; 2]) -> bool {
    let low = cluster.enqueue_at(0, tags[0]);
    for _ in 0..20 {
        cluster.enqueue_at(3, tags[1]);
        cluster.enqueue_at(3, tags[1]);
        if cluster.claim(1, 60_000)[0].id == low {
            return true;
        }
        cluster.advance(1_000);
    }
    false
}

// S6: within a partition, and between partitions, under any leaders.
#[test]
fn no_task_starves_where_tasks_age() {
    for tags in [[1, 1], [0x00_0001, 0xc0_0001]] {
        let mut cluster = queue_with(QueueSetting::Ageing(Some(2_000)));
        assert!(comes_to_its_turn(&mut cluster, tags));
        let mut cluster = Cluster::modern(3);
        assert!(!comes_to_its_turn(&mut cluster, tags), "it is because of ageing");
    }
}

/// A change of the policy applies to existing tasks as well.
#[test]
fn ageing_may_be_set_and_unset_at_any_time() {
    let mut cluster = Cluster::modern(3);
    let low = cluster.enqueue_at(0, 1);
    cluster.advance(5_000);
    let high: Vec<TaskId> = (0..3).map(|_| cluster.enqueue_at(1, 1)).collect();
    assert_eq!(cluster.claim(0, 60_000)[0].id, high[0]);
    assert!(is_changed(&cluster.set(1, "mail", QueueSetting::Ageing(Some(60_000)))));
    assert_eq!(cluster.claim(1, 60_000)[0].id, high[1], "it is not old enough");
    assert!(is_changed(&cluster.set(2, "mail", QueueSetting::Ageing(Some(1_000)))));
    let granted = cluster.claim(2, 60_000).remove(0);
    assert_eq!(granted.id, low);
    assert_eq!(cluster.ask(0, Request::Release { id: low, token: granted.token }), Response::Done);
    assert!(is_changed(&cluster.set(0, "mail", QueueSetting::Ageing(None))));
    assert_eq!(cluster.claim(0, 60_000)[0].id, high[2]);
    assert_eq!(cluster.claim(1, 60_000)[0].id, low);
}

/// Time in which a task could not have been claimed makes it no older.
#[test]
fn a_delay_is_no_age() {
    let mut cluster = queue_with(QueueSetting::Ageing(Some(1_000)));
    let delayed = cluster.id(1);
    let not_before_ms = cluster.now.wall_ms + 20_000;
    let tasks = vec![NewTask { id: delayed, spec: Spec { not_before_ms, ..spec(b"x", 0) } }];
    cluster.ask(0, Request::Enqueue { tasks, acks: Acks::All });
    cluster.advance(21_500);
    let other = cluster.enqueue_at(2, 1);
    assert_eq!(cluster.claim(0, 60_000)[0].id, other);
    assert_eq!(cluster.claim(0, 60_000)[0].id, delayed);
}

#[test]
fn ageing_at_no_pace_is_refused() {
    let mut cluster = Cluster::modern(1);
    match cluster.set(0, "mail", QueueSetting::Ageing(Some(0))) {
        Response::Error(error) => assert_eq!(error.code, ErrorCode::Conflict),
        other => panic!("{other:?}"),
    }
}

pub(super) fn rate(claims: u32, per_ms: u64) -> QueueSetting {
    QueueSetting::Rate(Some(Rate { claims, per_ms }))
}

impl Cluster {
    /// How many tasks are granted in this time to workers at all nodes that claim two at a time, again and again.
    pub(super) fn claimed_in(&mut self, ms: u64) -> u64 {
        let mut count = 0;
        let end_us = self.now.mono_us + ms * 1_000;
        while self.now.mono_us < end_us {
            for index in (0..self.nodes.len()).filter(|index| !self.down.contains(index)).collect::<Vec<_>>() {
                self.number += 1;
                let claim = Claim { wait_ms: 300, ..claim_of(ClaimId(u128::from(self.number)), 60_000, 2) };
                self.advance(1);
                match self.ask(index, Request::Claim(claim)) {
                    Response::Claimed { tasks, .. } => count += tasks.len() as u64,
                    Response::Error(_) => {}
                    other => panic!("{other:?}"),
                }
            }
        }
        count
    }

    pub(super) fn coordinator(&self, queue: &str) -> usize {
        let coordinator = self.nodes[0].coordinator_of(&QueueName::new(queue).expect("a name"));
        self.nodes.iter().position(|node| node.leader_of(coordinator) == Some(node.me)).expect("it has a leader")
    }
}

/// Goal: copies of a question, and questions of a process that has ended, take no rate tokens: no node would use them, or give them back.
#[test]
fn a_late_copy_of_a_question_takes_no_permits() {
    for restarts in [false, true] {
        let mut cluster = queue_with(rate(1, 60_000));
        cluster.advance(70_000);
        let (coordinator, queue) = (cluster.coordinator("mail"), QueueName::new("mail").expect("a name"));
        let asker = (coordinator + 1) % 3;
        let request_id = cluster.nodes[asker].pending_requests.number();
        if restarts {
            cluster.restart(asker);
            cluster.connect_all();
            cluster.advance(2_000);
        } else {
            // The coordinator gives rate tokens, the node takes none that it has not asked for, and they expire.
            cluster.deliver(
                asker,
                coordinator,
                PeerMessage::Limiting(Limiting::PermitAsk { request_id, queue: queue.clone(), wanted: 1 }),
            );
            cluster.advance(65_000);
        }
        cluster.deliver(
            asker,
            coordinator,
            PeerMessage::Limiting(Limiting::PermitAsk { request_id, queue, wanted: 1 }),
        );
        cluster.spread_tasks(5);
        assert_eq!(cluster.claimed_in(3_000), 1, "restarts: {restarts}");
    }
}

/// In any stretch of time as many as the rate allows, and the burst; and not many fewer, whichever nodes have the tasks and the
/// workers.
#[test]
fn no_more_claims_are_granted_than_the_rate_allows() {
    let mut cluster = queue_with(rate(5, 1_000));
    cluster.spread_tasks(100);
    cluster.advance(5_000);
    let claimed = cluster.claimed_in(8_000);
    assert!((40..=52).contains(&claimed), "{claimed}: eleven, and five in a second");
    assert!(is_changed(&cluster.set(0, "mail", QueueSetting::Rate(None))));
    assert!(claimed + cluster.claimed_in(2_000) == 100);
}

/// What drips slowly is not lost at nodes that were quicker to ask.
#[test]
fn few_permits_find_those_who_use_them() {
    let mut cluster = queue_with(rate(30, 60_000));
    cluster.spread_tasks(100);
    let claimed = cluster.claimed_in(20_000);
    assert!((8..=12).contains(&claimed), "{claimed}: one in two seconds, and two");
}

#[test]
fn whoever_waits_is_served_when_a_permit_comes() {
    let mut cluster = queue_with(rate(1, 4_000));
    let ids: Vec<TaskId> = (0..3).map(|tag| cluster.enqueue_at(0, tag << 22)).collect();
    cluster.advance(20_000);
    let first = cluster.claim(0, 60_000).remove(0).id;
    assert_eq!(cluster.claim(1, 60_000), Vec::new(), "that was all");
    let claim = Claim { wait_ms: 30_000, ..claim_of(ClaimId(5), 60_000, 1) };
    let number = cluster.submit(2, Request::Claim(claim));
    cluster.advance(2_500);
    assert!(!cluster.replies.contains_key(&number), "it waits");
    cluster.advance(2_500);
    match cluster.replies.remove(&number) {
        Some(Response::Claimed { tasks, .. }) => assert!(ids.contains(&tasks[0].id) && tasks[0].id != first),
        other => panic!("{other:?}"),
    }
}

/// Goal: workers that are gone use up no rate tokens, however many come one after another; and a rate token comes back once. Method: one
/// rate token in twenty seconds, and workers that do not confirm their grants.
#[test]
fn a_grant_that_is_taken_back_gives_its_permit_back() {
    let mut cluster = queue_with(rate(3, 60_000));
    cluster.spread_tasks(6);
    cluster.advance(25_000);
    for number in 0..4 {
        let claim = Claim { confirms: true, wait_ms: 5_000, ..claim_of(ClaimId(700 + number), 600_000, 1) };
        let waits = cluster.submit(number as usize % 3, Request::Claim(claim));
        let since_us = cluster.now.mono_us;
        cluster.run_until(|cluster| cluster.replies.contains_key(&waits));
        let reply = cluster.replies.remove(&waits);
        assert!(matches!(&reply, Some(Response::Claimed { tasks, .. }) if tasks.len() == 1), "{number}: {reply:?}");
        assert!(cluster.now.mono_us - since_us < 2_000_000, "{number}");
        cluster.advance(2_500);
    }
    assert_eq!(cluster.claim_for(1, 2_000, 600_000).len(), 1);
    assert_eq!(cluster.claim_for(2, 5_000, 600_000).len(), 0, "that was all");
}

/// The next leader of the coordinator partition gives nothing before all rate tokens that were given have expired.
#[test]
fn a_rate_holds_when_the_leader_of_the_home_is_lost() {
    let mut cluster = queue_with(rate(5, 1_000));
    cluster.spread_tasks(100);
    cluster.advance(5_000);
    let before = cluster.claimed_in(500);
    let coordinator = cluster.coordinator("mail");
    cluster.down.insert(coordinator);
    let claimed = before + cluster.claimed_in(5_500);
    assert!((20..=41).contains(&claimed), "{claimed}");
    cluster.restart(coordinator);
    let claimed = claimed + cluster.claimed_in(4_000);
    assert!((30..=61).contains(&claimed), "{claimed}");
}

#[test]
fn a_rate_of_nothing_is_refused() {
    let mut cluster = Cluster::modern(1);
    for setting in [rate(0, 1_000), rate(1, 0), rate(2_000_000, 1_000), rate(1, 7_200_000)] {
        match cluster.set(0, "mail", setting) {
            Response::Error(error) => assert_eq!(error.code, ErrorCode::Conflict),
            other => panic!("{other:?}"),
        }
    }
}
