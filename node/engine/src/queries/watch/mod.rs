//! Watches: a client asks what becomes of the tasks of a queue or of a group, and is answered when something changes.
//!
//! The coordinator of a watch keeps nothing between two calls. It asks all nodes for the events behind the client's cursor in their
//! journals ([`journal`]), and the nodes notify it when there are more. Requests and answers may be lost: an answer names the place that
//! it follows, so none counts twice or in the place of another one, and a sweep asks again.
//!
//! **No ending is missed silently.** An ending is a fact, and every replica of its partition learns of it sooner or later, if it does not
//! lose its cohort slot. So it is enough that one replica of each partition, any one, has reported all that it has learned since the watch
//! began: an ending that no replica knew then is reported when that one learns of it. The cursor names these replicas: the partitions of
//! which a node is **whole**. A node ceases to be whole of a partition where its answer does not follow the place in the cursor (it was
//! restarted, or its journal reaches no further back), and where its replica was not covered in between. A partition of which no node is
//! whole makes the watch lag: the client is informed, and the watch begins anew.
//!
//! A restarted node becomes whole by comparison. It has been asked once, and from there on its answers follow. What it had learned before
//! may not have been reported by the others. If its replica has the same facts as a whole one had when it last answered, then the whole
//! one has learned of all of that, and has reported it up to its place in the same cursor. So a watch survives a restart of all nodes,
//! one after the other. Under heavy writes replicas are hardly ever equal at one moment; then the watch goes on with the nodes that are
//! whole, and tries again with each call.
//!
//! A node that is gone keeps its place for as long as it is a member of the cluster. If it comes back as it was, it goes on. If it alone
//! was whole of a partition, its silence is reported, and at the end of the call the watch lags rather than waits for it.

pub mod journal;

pub use journal::Journals;

use crate::Node;
use crate::context::timers::Key;
use crate::event::ClientId;
use crate::write_read::PendingRequest;
use norn_model::config::mutant;
use norn_model::limits::{COMPARED_MAX, WATCH_EVENTS_MAX, WATCHES_MAX};
use norn_model::message::{Query, WatchAt, WatchFeed};
use norn_wire::error::{Error, ErrorCode};
use norn_wire::watch::WatchPlace;
use norn_wire::{NodeId, PartitionId, Response, State, Subject, TaskId, WatchCursor, WatchEvent, Watched};
use std::collections::{BTreeMap, BTreeSet};

/// Time between the first event and the answer, so that events of several nodes are batched and a busy queue does not flood the client.
const LINGER_MS: u64 = 10;

/// What one node has reported.
#[derive(Debug, Default)]
struct Teller {
    at: Option<WatchAt>,
    /// Partitions in which it has reported all that it learned since the watch began.
    whole: BTreeSet<PartitionId>,
    /// Partitions in which it reports all from its last place on.
    covers: BTreeSet<PartitionId>,
    roots: BTreeMap<PartitionId, u128>,
    answered: bool,
    refused: bool,
}

/// Watch calls of clients at this node.
#[derive(Debug, Default)]
pub struct Watches {
    by_subject: BTreeMap<Subject, BTreeSet<u64>>,
    /// The next partition whose replicas are compared for watches.
    compared: u32,
}

impl Watches {
    /// Ends a watch.
    pub fn close(&mut self, subject: &Subject, request_id: u64) {
        if let Some(asks) = self.by_subject.get_mut(subject) {
            asks.remove(&request_id);
            if asks.is_empty() {
                self.by_subject.remove(subject);
            }
        }
    }
}

/// A pending watch call.
#[derive(Debug)]
pub struct PendingWatch {
    /// The waiting client.
    pub client: ClientId,
    /// Number of its request.
    pub number: u64,
    /// The queue or group watched.
    pub subject: Subject,
    begins: bool,
    tellers: BTreeMap<NodeId, Teller>,
    events: Vec<WatchEvent>,
    reported: BTreeSet<(TaskId, State)>,
    compare: Vec<PartitionId>,
    /// Time at which to answer with what there is.
    reply_us: Option<u64>,
    sweep_us: u64,
    /// Deadline, at which to answer in any case.
    pub deadline_us: u64,
}

impl PendingWatch {
    /// Takes in a node's answer.
    fn hear(&mut self, from: NodeId, feed: WatchFeed) {
        let Some(teller) = self.tellers.get_mut(&from) else { return };
        let covers: BTreeSet<PartitionId> = feed.covers.into_iter().collect();
        if feed.follows {
            teller.whole.retain(|partition| covers.contains(partition));
        } else {
            teller.whole = if self.begins { covers.clone() } else { BTreeSet::new() };
        }
        teller.at = Some(feed.at);
        teller.covers = covers.into_iter().chain(feed.begins).collect();
        teller.roots = feed.roots.into_iter().collect();
        (teller.answered, teller.refused) = (true, false);
        let new = feed.events.into_iter().filter(|event| self.reported.insert(journal::key(event)));
        self.events.extend(new);
        self.compare();
    }

    /// Marks nodes as whole that have the same facts as a whole one.
    fn compare(&mut self) {
        for partition in &self.compare {
            let whole = self.tellers.values().filter(|teller| teller.whole.contains(partition));
            let roots: Vec<u128> = whole.filter_map(|teller| teller.roots.get(partition).copied()).collect();
            for teller in self.tellers.values_mut() {
                if teller.roots.get(partition).is_some_and(|root| roots.contains(root)) {
                    teller.whole.insert(*partition);
                }
            }
        }
    }

    /// Number of partitions that at least one node covers, by the given sets.
    fn count(&self, of: impl Fn(&NodeId, &Teller) -> Option<BTreeSet<PartitionId>>) -> usize {
        let sets = self.tellers.iter().filter_map(|(node, teller)| of(node, teller));
        sets.flatten().collect::<BTreeSet<PartitionId>>().len()
    }

    fn cursor(&self, partitions: u32) -> WatchCursor {
        let place = |(node, teller): (&NodeId, &Teller)| {
            let WatchAt { start, number } = teller.at?;
            let whole = to_bits(&teller.whole, partitions).into();
            Some(WatchPlace { node: *node, start, number, whole })
        };
        WatchCursor { places: self.tellers.iter().filter_map(place).collect() }
    }
}

fn to_bits(partitions: &BTreeSet<PartitionId>, count: u32) -> Vec<u8> {
    let mut bits = vec![0; count.div_ceil(8) as usize];
    for partition in partitions {
        if let Some(byte) = bits.get_mut(partition.0 as usize / 8) {
            *byte |= 1 << (partition.0 % 8);
        }
    }
    bits
}

fn from_bits(bits: &[u8], count: u32) -> BTreeSet<PartitionId> {
    let is_set = |number: &u32| bits.get(*number as usize / 8).is_some_and(|byte| byte & (1 << (number % 8)) != 0);
    (0..count).filter(is_set).map(|number| PartitionId(number as u16)).collect()
}

impl Node {
    pub(crate) fn watch(
        &mut self,
        client: ClientId,
        number: u64,
        (subject, cursor): (Subject, Option<WatchCursor>),
        wait_ms: u64,
    ) {
        if self.queries.watches.by_subject.values().map(BTreeSet::len).sum::<usize>() >= WATCHES_MAX {
            let error = Error::new(ErrorCode::Overloaded, "too many watch at this node; ask another one, or later");
            return self.outbox.reply(client, number, Response::Error(error));
        }
        let begins = cursor.is_none();
        let tellers = self.tellers(cursor.unwrap_or_default());
        let compare = if begins { Vec::new() } else { self.pick_compared(&tellers) };
        let least_ms = if begins { self.config.request_timeout_ms } else { 100 };
        let request_id = self.pending_requests.open(PendingRequest::Watch(PendingWatch {
            client,
            number,
            subject: subject.clone(),
            begins,
            tellers,
            events: Vec::new(),
            reported: BTreeSet::new(),
            compare,
            reply_us: begins.then(|| self.after_ms(self.config.resend_ms * 2)),
            sweep_us: self.after_ms(self.config.sweep_interval_ms),
            deadline_us: self.now.mono_after_ms(wait_ms.max(least_ms)),
        }));
        self.queries.watches.by_subject.entry(subject).or_default().insert(request_id);
        self.send_watches(request_id, true);
    }

    /// The nodes to ask, each at the place where the cursor left it.
    fn tellers(&self, cursor: WatchCursor) -> BTreeMap<NodeId, Teller> {
        let partitions = self.genesis.as_ref().map_or(0, |genesis| genesis.partitions);
        let mut places: BTreeMap<NodeId, WatchPlace> =
            cursor.places.into_iter().map(|place| (place.node, place)).collect();
        let mut teller = |node: NodeId| {
            let Some(WatchPlace { start, number, whole, .. }) = places.remove(&node) else { return Teller::default() };
            let whole = from_bits(&whole, partitions);
            Teller { at: Some(WatchAt { start, number }), whole, ..Teller::default() }
        };
        let nodes = self.others().chain([self.me]);
        nodes.map(|node| (node, teller(node))).collect()
    }

    /// Some of the partitions of which not all members are whole. Each call looks at others, in turn.
    fn pick_compared(&mut self, tellers: &BTreeMap<NodeId, Teller>) -> Vec<PartitionId> {
        let Some(partitions) = self.genesis.as_ref().map(|genesis| genesis.partitions) else { return Vec::new() };
        let looks = partitions.min(COMPARED_MAX as u32);
        let first = self.queries.watches.compared % partitions;
        self.queries.watches.compared = (first + looks) % partitions;
        let lacks = |partition: &PartitionId| {
            let is_whole = |node: NodeId| tellers.get(&node).is_none_or(|teller| teller.whole.contains(partition));
            !self.cohort_of(*partition).nodes().into_iter().all(is_whole)
        };
        (0..looks).map(|look| PartitionId(((first + look) % partitions) as u16)).filter(lacks).collect()
    }

    /// Asks all nodes, or those that have not answered.
    fn send_watches(&mut self, request_id: u64, all: bool) {
        let Some(PendingRequest::Watch(watch)) = self.pending_requests.get(request_id) else { return };
        let wanted = watch.tellers.iter().filter(|(_, teller)| all || !teller.answered);
        let nodes: Vec<NodeId> = wanted.map(|(node, _)| *node).collect();
        for node in nodes {
            self.send_watch(request_id, node);
        }
        self.set_watch_timer(request_id);
    }

    fn send_watch(&mut self, request_id: u64, node: NodeId) {
        let Some(PendingRequest::Watch(watch)) = self.pending_requests.get(request_id) else { return };
        let Some(teller) = watch.tellers.get(&node) else { return };
        if !self.is_reachable(node) {
            return;
        }
        let (subject, at, compare) = (watch.subject.clone(), teller.at, watch.compare.clone());
        self.outbox.send(node, Query::Watch { request_id, subject, at, compare });
    }

    fn set_watch_timer(&mut self, request_id: u64) {
        let Some(PendingRequest::Watch(watch)) = self.pending_requests.get(request_id) else { return };
        let open = watch.tellers.iter().any(|(node, teller)| !teller.answered && self.is_reachable(*node));
        let again_us = if open { self.after_ms(self.config.resend_ms) } else { watch.sweep_us };
        let due_us = watch.reply_us.unwrap_or(watch.deadline_us).min(watch.deadline_us).min(again_us);
        self.timers.set(Key::PendingRequest(request_id), due_us.max(self.now.mono_us));
    }

    pub(crate) fn on_watch_timer(&mut self, request_id: u64, over: bool) {
        let now_us = self.now.mono_us;
        let sweep_us = self.after_ms(self.config.sweep_interval_ms);
        let Some(PendingRequest::Watch(watch)) = self.pending_requests.get_mut(request_id) else { return };
        if over || watch.reply_us.take_if(|reply_us| *reply_us <= now_us).is_some() {
            return self.conclude_watch(request_id, over);
        }
        let all = watch.sweep_us <= now_us;
        if all {
            watch.sweep_us = sweep_us;
        }
        self.send_watches(request_id, all);
    }

    /// Handles a node's notice that a watched queue or group has news.
    pub(crate) fn on_watch_news(&mut self, from: NodeId, subject: &Subject) {
        for request_id in self.queries.watches.by_subject.get(subject).cloned().unwrap_or_default() {
            self.send_watch(request_id, from);
        }
    }

    pub(crate) fn on_watched(&mut self, from: NodeId, request_id: u64, at: Option<WatchAt>, feed: Option<WatchFeed>) {
        let unheeded = mutant!(self.config, WatchGapUnheeded);
        let linger_us = self.after_ms(LINGER_MS);
        let Some(PendingRequest::Watch(watch)) = self.pending_requests.get_mut(request_id) else { return };
        let Some(teller) = watch.tellers.get_mut(&from).filter(|teller| teller.at == at) else { return };
        match feed {
            Some(mut feed) => {
                if unheeded && !feed.follows {
                    (feed.follows, feed.covers) = (at.is_some(), teller.whole.iter().copied().collect());
                }
                watch.hear(from, feed);
            }
            None => *teller = Teller { answered: true, refused: true, ..Teller::default() },
        }
        if watch.begins {
            let reachable = |node: &NodeId, teller: &Teller| teller.answered || !self.is_reachable(*node);
            let Some(PendingRequest::Watch(watch)) = self.pending_requests.get(request_id) else { return };
            if watch.tellers.iter().all(|(node, teller)| reachable(node, teller)) {
                return self.conclude_watch(request_id, false);
            }
        } else {
            let full = watch.events.len() >= WATCH_EVENTS_MAX;
            let partitions = self.genesis.as_ref().map_or(0, |genesis| genesis.partitions as usize);
            let lost = watch.count(|_, teller| Some(teller.whole.clone())) < partitions;
            if full {
                return self.conclude_watch(request_id, false);
            }
            if !watch.events.is_empty() || lost {
                watch.reply_us.get_or_insert(linger_us);
            }
        }
        self.set_watch_timer(request_id);
    }

    /// Answers, unless too little is known to say anything.
    fn conclude_watch(&mut self, request_id: u64, over: bool) {
        let partitions = self.genesis.as_ref().map_or(0, |genesis| genesis.partitions);
        let Some(PendingRequest::Watch(watch)) = self.pending_requests.get(request_id) else { return };
        let count = partitions as usize;
        let lost = watch.count(|_, teller| Some(teller.whole.clone())) < count;
        let heard = |node: &NodeId, teller: &Teller| teller.answered || self.is_reachable(*node);
        let heard_from = watch.count(|node, teller| heard(node, teller).then(|| teller.whole.clone()));
        let silent = count - heard_from;
        let given_up = over && watch.events.is_empty() && silent > 0;
        let anew = watch.begins || lost || given_up;
        let can_begin = watch.count(|_, teller| teller.answered.then(|| teller.covers.clone())) == count;
        if anew && !can_begin {
            return if over { self.refuse_watch(request_id) } else { self.set_watch_timer(request_id) };
        }
        let Some(PendingRequest::Watch(mut watch)) = self.close_request(request_id) else { return };
        if anew {
            for teller in watch.tellers.values_mut() {
                teller.whole = std::mem::take(&mut teller.covers);
                teller.at = teller.at.filter(|_| teller.answered);
            }
        }
        let watched = Watched {
            cursor: watch.cursor(partitions),
            events: watch.events,
            lagged: anew && !watch.begins,
            silent: if anew { 0 } else { silent as u32 },
        };
        self.outbox.reply(watch.client, watch.number, Response::Watched(watched));
    }

    /// Refuses a watch that cannot begin, or go on, as too few nodes have answered.
    fn refuse_watch(&mut self, request_id: u64) {
        let Some(PendingRequest::Watch(watch)) = self.close_request(request_id) else { return };
        let error = if watch.tellers.values().any(|teller| teller.refused) {
            Error::new(ErrorCode::Overloaded, "too many queues and groups are watched; ask again when fewer are")
        } else {
            Error::unavailable("there are partitions of which no replica has answered; ask again with the same cursor")
        };
        self.outbox.reply(watch.client, watch.number, Response::Error(error));
    }
}
