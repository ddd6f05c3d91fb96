//! Claims that are limited, and tasks that age.

use super::policies::is_changed;
use super::*;
use norn_client::wire::error::ErrorCode;
use norn_client::wire::membership::QueueSetting;

impl Cluster {
    fn enqueue_at(&mut self, priority: i32, tag: u32) -> TaskId {
        let id = self.id(tag);
        let tasks = vec![NewTask { id, spec: spec(b"x", priority) }];
        assert!(matches!(self.ask(0, Request::Enqueue { tasks, acks: Acks::All }), Response::Acked(_)));
        id
    }
}

/// A queue with this set.
fn queue_with(setting: QueueSetting) -> Cluster {
    let mut cluster = Cluster::modern(3);
    assert!(is_changed(&cluster.set(0, "mail", setting)));
    cluster
}

/// Whether a task comes to its turn though two of a higher priority come every second and one is claimed.
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

// S6: within a partition, and between partitions, whoever leads them.
#[test]
fn no_task_starves_where_tasks_age() {
    for tags in [[1, 1], [0x00_0001, 0xc0_0001]] {
        let mut cluster = queue_with(QueueSetting::Ageing(Some(2_000)));
        assert!(comes_to_its_turn(&mut cluster, tags));
        let mut cluster = Cluster::modern(3);
        assert!(!comes_to_its_turn(&mut cluster, tags), "it is because of ageing");
    }
}

/// What holds for the tasks that are there already changes with the policy.
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
