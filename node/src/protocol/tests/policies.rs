//! What operators set for queues, and what nodes make of it.

use super::*;
use crate::limits::POLICIES_MAX;
use norn_client::wire::Versions;
use norn_client::wire::membership::{ClusterChange, QueueSetting};

impl Cluster {
    /// All nodes speak the newest version, and the root has a leader.
    pub(super) fn modern(size: usize) -> Cluster {
        let mut cluster = Cluster::new(size);
        cluster.connect_all();
        cluster.advance(5_000);
        cluster
    }

    pub(super) fn connect_all(&mut self) {
        let size = self.nodes.len();
        for (index, peer) in (0..size).flat_map(|index| (0..size).map(move |peer| (index, peer))) {
            if index != peer {
                self.connect(index, peer, Versions::SPOKEN.newest);
            }
        }
    }

    pub(super) fn set(&mut self, index: usize, queue: &str, setting: QueueSetting) -> Response {
        let queue = QueueName::new(queue).expect("a name");
        let change = Box::new(ClusterChange::Queue { queue, setting });
        let response = self.ask(index, Request::Change { change, dry_run: false });
        self.advance(200);
        response
    }
}

pub(super) fn is_changed(response: &Response) -> bool {
    matches!(response, Response::Changed(changed) if !changed.already)
}

#[test]
fn a_paused_queue_grants_nothing_and_goes_on_for_those_who_wait() {
    let mut cluster = Cluster::modern(3);
    let first = cluster.enqueue(0, b"x", 1);
    let held = cluster.claim(0, 60_000).remove(0);
    let second = cluster.enqueue(0, b"y", 2);
    assert!(is_changed(&cluster.set(1, "mail", QueueSetting::Paused(true))));
    assert!(!is_changed(&cluster.set(2, "mail", QueueSetting::Paused(true))), "it may be repeated");
    assert_eq!(cluster.claim(2, 5_000), Vec::new());
    // What is held goes on.
    assert!(matches!(cluster.complete(1, first, held.token), Response::Acked(_)));
    let claim = Claim { wait_ms: 30_000, ..claim_of(ClaimId(5), 5_000, 1) };
    let number = cluster.submit(2, Request::Claim(claim));
    cluster.advance(4_000);
    assert!(!cluster.replies.contains_key(&number), "it waits");
    assert!(is_changed(&cluster.set(0, "mail", QueueSetting::Paused(false))));
    match cluster.replies.remove(&number) {
        Some(Response::Claimed { tasks, .. }) => assert_eq!(tasks[0].id, second),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_queue_says_how_many_attempts_a_task_has_that_says_nothing_itself() {
    let mut cluster = Cluster::modern(3);
    assert!(is_changed(&cluster.set(0, "mail", QueueSetting::Attempts(Some(1)))));
    let id = cluster.enqueue(0, b"x", 1);
    let granted = cluster.claim(1, 60_000).remove(0);
    let fail = Request::Fail { id, token: granted.token, reason: "no".into(), retry_in_ms: 0, invalid: false };
    assert_eq!(cluster.ask(2, fail), Response::Done);
    cluster.advance(1_000);
    assert_eq!(cluster.get(0, id).state, State::Dead);
    assert!(is_changed(&cluster.set(0, "mail", QueueSetting::Attempts(None))));
    assert!(cluster.nodes.iter().all(|node| node.roster.policies.is_empty()), "as if nothing had been set");
}

#[test]
fn what_is_out_of_bounds_is_refused() {
    let mut cluster = Cluster::modern(1);
    let response = cluster.set(0, "mail", QueueSetting::Attempts(Some(0)));
    assert!(matches!(&response, Response::Error(error) if error.message.contains("1 to")), "{response:?}");
    for number in 0..POLICIES_MAX {
        assert!(is_changed(&cluster.set(0, &format!("queue-{number}"), QueueSetting::Paused(true))));
    }
    let response = cluster.set(0, "mail", QueueSetting::Paused(true));
    assert!(matches!(&response, Response::Error(error) if error.message.contains("set back")), "{response:?}");
    assert!(is_changed(&cluster.set(0, "queue-7", QueueSetting::Paused(false))));
    assert!(is_changed(&cluster.set(0, "mail", QueueSetting::Paused(true))), "there is room again");
}
