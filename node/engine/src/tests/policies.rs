//! Queue policies that operators set, and their effects at nodes.

use super::*;
use norn_model::claim_table::table::ClaimState;
use norn_model::limits::POLICIES_MAX;
use norn_model::message::Forwarding;
use norn_wire::Versions;
use norn_wire::membership::{Backoff, ClusterChange, Order, QueueSetting};
use std::collections::BTreeSet;

impl Cluster {
    /// A cluster whose nodes are all connected and whose root has a leader.
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

/// Goal: a copy of a change that comes after the change that undoes it has no effect. Method: it comes once more through the node that
/// asked, and once more when that has restarted, where the change that undid it came through another.
#[test]
fn a_copy_of_a_change_that_comes_late_undoes_no_later_one() {
    for restarts in [false, true] {
        let mut cluster = Cluster::modern(3);
        let root = cluster.nodes.iter().position(|node| node.leader_of(PartitionId::METADATA) == Some(node.me));
        let root = root.expect("it has a leader");
        let (one, two) = ((root + 1) % 3, (root + 2) % 3);
        let queue = QueueName::new("mail").expect("a name");
        let change = Box::new(ClusterChange::Queue { queue: queue.clone(), setting: QueueSetting::Paused(true) });
        cluster.post(one, Request::Change { change, dry_run: false });
        let is_wish = |(to, event): &(usize, Event)| {
            *to == root
                && matches!(event, Event::Peer { message: PeerMessage::Forwarding(Forwarding::Forward { .. }), .. })
        };
        while !cluster.queue.iter().any(is_wish) {
            assert!(cluster.handle_next(), "it is sent");
        }
        let Some((_, Event::Peer { message, .. })) = cluster.queue.iter().find(|event| is_wish(event)).cloned() else {
            panic!("just seen")
        };
        cluster.advance(500);
        assert!(cluster.nodes[root].policy_of(&queue).paused);
        if restarts {
            cluster.restart(one);
            cluster.connect_all();
            cluster.advance(2_000);
        }
        assert!(is_changed(&cluster.set(if restarts { two } else { one }, "mail", QueueSetting::Paused(false))));
        cluster.deliver(one, root, message);
        cluster.advance(500);
        assert!(!cluster.nodes[root].policy_of(&queue).paused, "restarts: {restarts}");
    }
}

/// Goal: an operator can see which nodes have received a change. Method: one of three nodes is down while a queue is paused.
#[test]
fn the_status_of_each_node_tells_which_changes_it_has_heard_of() {
    let version = |cluster: &Cluster, index: usize| {
        let status = cluster.nodes[index].status(Default::default(), 0).expect("it has a cluster");
        status.counters.into_iter().find(|(name, _)| name == "roster_version").map_or(0, |(_, version)| version)
    };
    let mut cluster = Cluster::modern(3);
    let before = version(&cluster, 0);
    assert_eq!([1, 2].map(|index| version(&cluster, index)), [before; 2]);
    cluster.down.insert(2);
    let Response::Changed(changed) = cluster.set(0, "mail", QueueSetting::Paused(true)) else { panic!("it is set") };
    assert_eq!(changed.version, before + 1);
    let heard = [0, 1, 2].map(|index| version(&cluster, index));
    assert_eq!(heard, [before + 1, before + 1, before]);
    cluster.down.clear();
    cluster.advance(5_000);
    assert_eq!(version(&cluster, 2), before + 1);
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
    // Held claims go on.
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
    let fail = Request::Fail {
        id,
        token: granted.token,
        reason: "no".into(),
        retry_in_ms: 0,
        invalid: false,
        retry_open: false,
    };
    assert_eq!(cluster.ask(2, fail), Response::Done);
    cluster.advance(1_000);
    assert_eq!(cluster.get(0, id).state, State::Dead);
    assert!(is_changed(&cluster.set(0, "mail", QueueSetting::Attempts(None))));
    assert!(cluster.nodes.iter().all(|node| node.roster.policies.is_empty()), "as if nothing had been set");
}

/// A claim that names no lease takes the queue's, and none is longer than the queue allows.
#[test]
fn a_queue_says_how_long_leases_are() {
    let mut cluster = Cluster::modern(3);
    let open = |claim| Claim { lease_open: true, ..claim_of(ClaimId(claim), 30_000, 1) };
    let ids: Vec<TaskId> = (0..4).map(|tag| cluster.enqueue(0, b"x", tag)).collect();
    assert_eq!(lease_ms(&cluster.ask(0, Request::Claim(open(70)))), 30_000, "nothing is set");
    cluster.set(0, "mail", QueueSetting::Lease(Some(5_000)));
    cluster.set(1, "mail", QueueSetting::LeaseMax(Some(8_000)));
    assert_eq!(lease_ms(&cluster.ask(0, Request::Claim(open(71)))), 5_000);
    assert_eq!(lease_ms(&cluster.ask(1, Request::Claim(claim_of(ClaimId(72), 6_000, 1)))), 6_000);
    let granted = cluster.claim(2, 60_000).remove(0);
    assert_eq!((granted.lease_ms, ids.contains(&granted.id)), (8_000, true));
    let renew = |lease_ms| Request::Renew { items: vec![(granted.id, granted.token)], lease_ms };
    assert_eq!(cluster.ask(1, renew(Some(60_000))), Response::Renewed(vec![Ok(8_000)]));
    cluster.set(2, "mail", QueueSetting::LeaseMax(Some(1_000)));
    assert_eq!(cluster.ask(1, renew(None)), Response::Renewed(vec![Ok(1_000)]), "from now on it may be shorter");
}

#[test]
fn who_leaves_a_short_lease_open_waits_for_a_part_of_it() {
    let mut cluster = Cluster::modern(3);
    cluster.set(0, "mail", QueueSetting::Lease(Some(2_000)));
    let claim = Claim { lease_open: true, wait_ms: 60_000, ..claim_of(ClaimId(7), 30_000, 1) };
    let number = cluster.submit(1, Request::Claim(claim));
    cluster.advance(1_000);
    let nothing = Response::Claimed { tasks: Vec::new(), unavailable: 0, left: 0 };
    assert_eq!(cluster.replies.remove(&number), Some(nothing), "what comes later would come with little left");
}

#[test]
fn a_node_of_before_grants_the_lease_that_the_claim_names() {
    let mut cluster = Cluster::new(3);
    for tag in 0..3 {
        cluster.enqueue(0, b"x", tag);
    }
    let claim = Claim { lease_open: true, ..claim_of(ClaimId(7), 30_000, 3) };
    match cluster.ask(0, Request::Claim(claim)) {
        Response::Claimed { tasks, .. } => {
            assert!(tasks.len() == 3 && tasks.iter().all(|task| task.lease_ms == 30_000))
        }
        other => panic!("{other:?}"),
    }
}

fn lease_ms(response: &Response) -> u64 {
    match response {
        Response::Claimed { tasks, .. } if tasks.len() == 1 => tasks[0].lease_ms,
        other => panic!("{other:?}"),
    }
}

// O37: a failed attempt without a pause of its own, and an expired one, wait as the queue's policy says.
#[test]
fn a_queue_says_how_long_a_task_waits_after_an_attempt() {
    let mut cluster = Cluster::modern(3);
    let backoff = Backoff { first_ms: 4_000, most_ms: 60_000, jitter_percent: 0 };
    assert!(is_changed(&cluster.set(0, "mail", QueueSetting::Backoff(Some(backoff)))));
    let id = cluster.enqueue(0, b"x", 1);
    let fail = |token, retry_in_ms, retry_open| {
        let (reason, invalid) = ("broken".into(), false);
        Request::Fail { id, token, reason, retry_in_ms, invalid, retry_open }
    };
    let first = cluster.claim(1, 60_000).remove(0);
    assert_eq!(cluster.ask(2, fail(first.token, 0, true)), Response::Done);
    assert_eq!(cluster.ask(0, fail(first.token, 0, true)), Response::Done, "a repeated call is answered alike");
    cluster.advance(3_000);
    assert_eq!((cluster.claim(1, 60_000), cluster.get(0, id).state), (Vec::new(), State::Waiting));
    cluster.advance(1_500);
    // With a pause of its own, which overrides the queue's, it may be tried at once.
    let second = cluster.claim(1, 60_000).remove(0);
    assert_eq!(cluster.ask(2, fail(second.token, 0, false)), Response::Done);
    let third = cluster.claim(0, 1_000).remove(0);
    assert_eq!(third.attempt, 3);
    cluster.advance(5_000);
    // Its lease has expired: twice as long again, whichever node leads.
    assert_eq!((cluster.claim(1, 60_000), cluster.get(0, id).state), (Vec::new(), State::Waiting));
    let renewal = cluster.ask(1, Request::Renew { items: vec![(id, third.token)], lease_ms: None });
    assert!(matches!(&renewal, Response::Renewed(results) if results[0].is_err()), "{renewal:?}");
    let leader = cluster.leader(&id);
    cluster.restart(leader);
    cluster.advance(8_000);
    assert_eq!(cluster.claim(1, 60_000), Vec::new());
    cluster.advance(8_000);
    let fourth = cluster.claim(1, 60_000).remove(0);
    assert_eq!((fourth.id, fourth.attempt), (id, 4));
    assert!(matches!(cluster.complete(0, id, third.token), Response::Acked(_)), "who comes late may still complete");
}

#[test]
fn a_queue_says_how_long_its_ended_tasks_are_kept() {
    let mut cluster = Cluster::modern(3);
    let [kept, buried] = ["mail", "maps"].map(|queue| {
        let id = cluster.id(1);
        let spec = Spec { queue: QueueName::new(queue).expect("a name"), ..spec(b"x", 0) };
        let tasks = vec![NewTask { id, spec }];
        cluster.ask(0, Request::Enqueue { tasks, acks: Acks::Quorum });
        let at_ms = cluster.now.wall_ms;
        let cancel = Request::Cancel { id, reason: String::new(), at_ms, acks: Acks::Quorum };
        assert!(matches!(cluster.ask(1, cancel), Response::AckedOne(_)));
        id
    });
    assert!(is_changed(&cluster.set(2, "maps", QueueSetting::Retention(Some(60_000)))));
    cluster.advance(50_000);
    let tombstone = |cluster: &Cluster, id| cluster.nodes.iter().filter(|node| is_buried(node, id)).count();
    assert_eq!((tombstone(&cluster, kept), tombstone(&cluster, buried)), (0, 0));
    cluster.advance(25_000);
    assert_eq!((tombstone(&cluster, kept), tombstone(&cluster, buried)), (0, 3));
}

fn is_buried(node: &Node, id: TaskId) -> bool {
    node.partitions[&node.partition_of(&id)].store.tombstones_after(None).any(|(buried, _)| *buried == id)
}

/// A worker that reports too late that its task is invalid does not get a success while the task goes on.
#[test]
fn what_ran_out_and_waits_can_still_be_given_up() {
    let mut cluster = Cluster::modern(3);
    let backoff = Backoff { first_ms: 60_000, most_ms: 60_000, jitter_percent: 0 };
    cluster.set(0, "mail", QueueSetting::Backoff(Some(backoff)));
    let id = cluster.enqueue(0, b"x", 1);
    let token = cluster.claim(1, 1_000).remove(0).token;
    cluster.advance(5_000);
    assert_eq!(cluster.get(0, id).state, State::Waiting);
    let fail = Request::Fail { id, token, reason: "no".into(), retry_in_ms: 0, invalid: true, retry_open: false };
    assert_eq!(cluster.ask(2, fail), Response::Done);
    cluster.advance(1_000);
    assert_eq!(cluster.get(0, id).state, State::Dead);
}

// T18: any task may come first; each comes once; and the order of before comes back.
#[test]
fn tasks_of_a_queue_are_claimed_at_random() {
    let mut cluster = Cluster::modern(3);
    let ids: Vec<TaskId> = (0..40).map(|tag| cluster.enqueue(0, b"x", tag % 8)).collect();
    assert!(is_changed(&cluster.set(0, "mail", QueueSetting::Order(Order::Random))));
    let granted: Vec<TaskId> = (0..20).map(|_| cluster.claim(1, 60_000).remove(0).id).collect();
    let place = |id: &TaskId| ids.iter().position(|other| other == id).expect("it was enqueued");
    let places: Vec<usize> = granted.iter().map(place).collect();
    let distinct: BTreeSet<usize> = places.iter().copied().collect();
    assert!(distinct.len() == 20 && distinct.iter().any(|place| *place >= 30), "{places:?}");
    let rises = places.windows(2).filter(|pair| pair[0] < pair[1]).count();
    assert!((3..17).contains(&rises), "{places:?}");
    cluster.nodes.iter().for_each(|node| node.check().expect("the index is right"));
    cluster.set(0, "mail", QueueSetting::Order(Order::Priority));
    let next = cluster.claim(1, 60_000).remove(0).id;
    let oldest = ids.iter().filter(|id| !granted.contains(id)).min().copied();
    assert_eq!(Some(next), oldest);
}

#[test]
fn jitter_makes_pauses_unequal_within_bounds() {
    let mut cluster = Cluster::modern(3);
    let backoff = Backoff { first_ms: 10_000, most_ms: 10_000, jitter_percent: 50 };
    cluster.set(0, "mail", QueueSetting::Backoff(Some(backoff)));
    let mut pauses = BTreeSet::new();
    for tag in 0..8 {
        let id = cluster.enqueue(0, b"x", tag);
        let granted = cluster.claim(1, 60_000).remove(0);
        let (reason, retry_in_ms) = (String::new(), 0);
        let fail = Request::Fail { id, token: granted.token, reason, retry_in_ms, invalid: false, retry_open: true };
        assert_eq!(cluster.ask(2, fail), Response::Done);
        let leader = &cluster.nodes[cluster.leader(&id)];
        let entry =
            leader.partitions[&leader.partition_of(&id)].consensus.claim_entry(&id).expect("it was claimed").clone();
        let ClaimState::Released { not_before_ms, .. } = entry.state else { panic!("{entry:?}") };
        pauses.insert(not_before_ms - entry.expires_ms);
    }
    assert!(pauses.len() > 4 && pauses.iter().all(|ms| (5_000..=15_000).contains(ms)), "{pauses:?}");
}

#[test]
fn what_is_out_of_bounds_is_refused() {
    let mut cluster = Cluster::modern(1);
    let backoff =
        |first_ms, most_ms, jitter_percent| QueueSetting::Backoff(Some(Backoff { first_ms, most_ms, jitter_percent }));
    for setting in [backoff(0, 5, 0), backoff(5, 4, 0), backoff(5, 5, 101)] {
        let response = cluster.set(0, "mail", setting);
        assert!(matches!(&response, Response::Error(error) if error.code == ErrorCode::Conflict), "{response:?}");
    }
    for setting in [QueueSetting::Lease(Some(1)), QueueSetting::LeaseMax(Some(4_000_000))] {
        let response = cluster.set(0, "mail", setting);
        assert!(matches!(&response, Response::Error(error) if error.message.contains("lease")), "{response:?}");
    }
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
