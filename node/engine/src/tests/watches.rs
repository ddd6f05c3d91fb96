//! Watches on queues and groups.

use super::groups::{join, member};
use super::*;
use norn_wire::limits::WATCH_KEPT_MS;
use norn_wire::{Subject, WatchCursor, Watched};

const WAIT_MS: u64 = 20_000;

/// A client that watches, at one node or another.
struct Watcher {
    subject: Subject,
    cursor: WatchCursor,
    /// Endings that it received, in order.
    told: Vec<(TaskId, State)>,
    lagged: usize,
}

impl Watcher {
    fn take(&mut self, watched: Watched) {
        self.told.extend(watched.events.iter().map(|event| (event.id, event.state)));
        self.lagged += usize::from(watched.lagged);
        self.cursor = watched.cursor;
    }

    fn endings(&self) -> BTreeSet<TaskId> {
        let ended = |state| matches!(state, State::Done | State::Dead | State::Cancelled);
        self.told.iter().filter(|(_, state)| ended(*state)).map(|(id, _)| *id).collect()
    }
}

impl Cluster {
    fn begin_watch(&mut self, index: usize, subject: Subject) -> Watcher {
        let request = Request::Watch { subject: subject.clone(), cursor: None, wait_ms: WAIT_MS };
        let Response::Watched(watched) = self.ask(index, request) else { panic!("it does not begin") };
        assert!(!watched.lagged && watched.silent == 0);
        let mut watcher = Watcher { subject, cursor: WatchCursor::default(), told: Vec::new(), lagged: 0 };
        watcher.take(watched);
        watcher
    }

    fn submit_watch(&mut self, index: usize, watcher: &Watcher, wait_ms: u64) -> u64 {
        let (subject, cursor) = (watcher.subject.clone(), Some(watcher.cursor.clone()));
        self.submit(index, Request::Watch { subject, cursor, wait_ms })
    }

    /// Watches for a while, by calls at a node, one after the other.
    fn watch_for(&mut self, index: usize, watcher: &mut Watcher, ms: u64) {
        let until_us = self.now.mono_us + ms * 1_000;
        while self.now.mono_us < until_us {
            let left_ms = (until_us - self.now.mono_us) / 1_000;
            let number = self.submit_watch(index, watcher, left_ms);
            self.run_until(|cluster| cluster.replies.contains_key(&number));
            match self.replies.remove(&number) {
                Some(Response::Watched(watched)) => watcher.take(watched),
                other => panic!("{other:?}"),
            }
        }
    }

    fn cancelled(&mut self, index: usize, tag: u32) -> TaskId {
        let id = self.enqueue(index, b"x", tag);
        let request = Request::Cancel { id, reason: "enough".into(), at_ms: 7, acks: Acks::Quorum };
        assert!(matches!(self.ask(index, request), Response::AckedOne(_)));
        id
    }

    fn start_again(&mut self, index: usize) {
        self.restart(index);
        self.connect_all();
        self.advance(3_000);
    }
}

fn mail() -> Subject {
    Subject::Queue(QueueName::new("mail").expect("a name"))
}

#[test]
fn what_becomes_of_a_task_is_told_at_any_node_when_it_does() {
    let mut cluster = Cluster::modern(3);
    let early = cluster.cancelled(0, 5);
    let mut watchers: Vec<Watcher> = (0..3).map(|index| cluster.begin_watch(index, mail())).collect();
    assert!(watchers.iter().all(|watcher| watcher.told.is_empty()), "what was before is none of its business");
    for (index, watcher) in watchers.iter_mut().enumerate() {
        cluster.watch_for(index, watcher, 500);
        let number = cluster.submit_watch(index, watcher, WAIT_MS);
        cluster.advance(100);
        assert!(!cluster.replies.contains_key(&number), "it waits");
        let before_us = cluster.now.mono_us;
        let id = cluster.enqueue(0, b"x", 0x77_7777);
        let token = cluster.claim(1, 60_000).remove(0).token;
        let items = vec![Completion {
            id,
            token,
            sequence: None,
            result: Some(b"sent".to_vec().into()),
            at_ms: 5,
            children: Vec::new(),
        }];
        assert!(matches!(cluster.ask(2, Request::Complete { items, acks: Acks::Quorum }), Response::Acked(_)));
        cluster.run_until(|cluster| cluster.replies.contains_key(&number));
        assert!(cluster.now.mono_us - before_us < 100_000, "it is told, and not found by a sweep");
        let Some(Response::Watched(first)) = cluster.replies.remove(&number) else { panic!() };
        let ending = |watched: &Watched| watched.events.iter().find(|event| event.state == State::Done).cloned();
        let mut done = ending(&first);
        watcher.take(first);
        while done.is_none() {
            let number = cluster.submit_watch(index, watcher, WAIT_MS);
            cluster.run_until(|cluster| cluster.replies.contains_key(&number));
            let Some(Response::Watched(next)) = cluster.replies.remove(&number) else { panic!() };
            done = ending(&next);
            watcher.take(next);
        }
        let done = done.expect("just seen");
        assert_eq!((done.id, done.result.as_deref().map(Vec::as_slice)), (id, Some(&b"sent"[..])));
        let states: BTreeSet<State> = watcher.told.iter().map(|(_, state)| *state).collect();
        assert_eq!(states, BTreeSet::from([State::Ready, State::Claimed, State::Done]));
        assert!(!watcher.endings().contains(&early) && watcher.lagged == 0);
    }
}

#[test]
fn what_gets_lost_on_the_way_is_told_by_the_next_question() {
    let mut cluster = Cluster::modern(3);
    let mut watcher = cluster.begin_watch(0, mail());
    let number = cluster.submit_watch(0, &watcher, WAIT_MS);
    let mut ids = BTreeSet::new();
    for round in 0..12 {
        // Without an answer or a notice to the node that watches, from one node and then the other.
        let id = cluster.id(round << 20);
        let tasks = vec![NewTask { id, spec: spec(b"x", 0) }];
        cluster.ask(1, Request::Enqueue { tasks, acks: Acks::All });
        let request = Request::Cancel { id, reason: String::new(), at_ms: 7, acks: Acks::All };
        cluster.number += 1;
        let (call, principal) = (cluster.number, Principal { name: "tester".into(), node: false });
        cluster.queue.push_back((1, Event::Request { client: CLIENT, number: call, principal, request }));
        let is_told = |event: &(usize, Event)| {
            let told = |message: &PeerMessage| matches!(message.name(), "watched" | "watch_news");
            event.0 == 0 && matches!(&event.1, Event::Peer { message, .. } if told(message))
        };
        let before = cluster.queue.len();
        while cluster.handle_next() {
            cluster.queue.retain(|event| !is_told(event));
        }
        assert!(before > 0);
        ids.insert(id);
        cluster.advance(1);
    }
    cluster.run_until(|cluster| cluster.replies.contains_key(&number));
    let Some(Response::Watched(watched)) = cluster.replies.remove(&number) else { panic!() };
    watcher.take(watched);
    cluster.watch_for(0, &mut watcher, 5_000);
    assert_eq!((watcher.endings(), watcher.lagged), (ids, 0));
}

/// Goal: a watch outlives leaders and nodes as long as there is time between them. Method: all nodes restart, one after the other, and
/// the client goes on at another one each time.
#[test]
fn a_watch_goes_on_while_all_nodes_are_started_again_one_after_the_other() {
    let mut cluster = Cluster::modern(3);
    let mut watcher = cluster.begin_watch(0, mail());
    let mut ids = BTreeSet::new();
    for round in 0..6_u32 {
        let victim = (round % 3) as usize;
        let other = (victim + 1) % 3;
        ids.insert(cluster.cancelled(other, round << 20));
        cluster.down.insert(victim);
        cluster.advance(3_000);
        ids.insert(cluster.cancelled(other, (round + 6) << 20));
        cluster.watch_for((victim + 2) % 3, &mut watcher, 1_000);
        cluster.start_again(victim);
        ids.insert(cluster.cancelled(victim, (round + 3) << 20));
        cluster.watch_for(victim, &mut watcher, 10_000);
    }
    assert_eq!((watcher.endings(), watcher.lagged), (ids, 0));
}

#[test]
fn a_watch_lags_when_nobody_can_tell_what_was_missed() {
    let mut cluster = Cluster::modern(3);
    let mut watcher = cluster.begin_watch(0, mail());
    cluster.cancelled(1, 9);
    for victim in 0..3 {
        cluster.start_again(victim);
    }
    cluster.watch_for(0, &mut watcher, 1_000);
    assert_eq!(watcher.lagged, 1);
    let later = cluster.cancelled(1, 10);
    cluster.watch_for(2, &mut watcher, 1_000);
    assert_eq!(watcher.lagged, 1, "it has begun anew");
    assert!(watcher.endings().contains(&later));
    // After this time without a call nothing is kept any more.
    cluster.advance(WATCH_KEPT_MS + 5_000);
    assert!(cluster.nodes.iter().flat_map(|node| node.partitions.values()).all(|replica| !replica.store.is_watched()));
    cluster.watch_for(1, &mut watcher, 1_000);
    assert_eq!(watcher.lagged, 2);
}

#[test]
fn the_silence_of_whoever_alone_could_go_on_is_told() {
    let mut cluster = Cluster::modern(3);
    let mut watcher = cluster.begin_watch(0, mail());
    for place in &mut watcher.cursor.places {
        if place.node != NodeId(3) {
            place.whole.fill(0);
        }
    }
    cluster.down.insert(2);
    cluster.advance(3_000);
    cluster.cancelled(1, 9);
    let number = cluster.submit_watch(0, &watcher, WAIT_MS);
    cluster.run_until(|cluster| cluster.replies.contains_key(&number));
    let Some(Response::Watched(watched)) = cluster.replies.remove(&number) else { panic!() };
    assert!(!watched.events.is_empty() && !watched.lagged && watched.silent == PARTITIONS, "{watched:?}");
    watcher.take(watched);
    cluster.watch_for(1, &mut watcher, 2_000);
    assert_eq!(watcher.lagged, 1);
}

#[test]
fn a_group_is_watched_by_its_join() {
    let mut cluster = Cluster::modern(3);
    let group = cluster.id(77);
    let mut watcher = cluster.begin_watch(1, Subject::Group(group));
    let members: Vec<NewTask> = (1..=3).map(|number| member(group, number)).collect();
    let ids: BTreeSet<TaskId> = members.iter().map(|task| task.id).chain([group]).collect();
    let tasks: Vec<NewTask> = members.into_iter().chain([join(group, Some(3), false)]).collect();
    assert!(matches!(cluster.ask(0, Request::Enqueue { tasks, acks: Acks::Quorum }), Response::Acked(_)));
    cluster.cancelled(2, 9);
    while cluster.get(0, group).state != State::Done {
        for granted in cluster.claim(0, 60_000) {
            assert!(matches!(cluster.complete(0, granted.id, granted.token), Response::Acked(_)));
        }
        cluster.watch_for(2, &mut watcher, 100);
    }
    cluster.watch_for(2, &mut watcher, 1_000);
    assert_eq!(watcher.endings(), ids);
}

#[test]
fn a_death_is_told_once_it_is_a_fact() {
    let mut cluster = Cluster::modern(3);
    let id = cluster.enqueue(0, b"x", 3);
    let mut watcher = cluster.begin_watch(0, mail());
    let token = cluster.claim(0, 60_000).remove(0).token;
    let reason = "it is broken".to_owned();
    let fail = Request::Fail { id, token, reason, retry_in_ms: 0, invalid: true, retry_open: false };
    assert_eq!(cluster.ask(1, fail), Response::Done);
    cluster.watch_for(0, &mut watcher, 1_000);
    assert!(watcher.told.contains(&(id, State::Dead)), "{:?}", watcher.told);
}
