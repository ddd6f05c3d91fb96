//! One node as one synchronous state machine.
//!
//! [`Node::step`] is the only way in, [`Effect`] the only way out. Each folder handles some of the messages, as methods of [`Node`];
//! this file only routes. The folders have an order, from what all use to what uses all: [`context`], [`membership`], [`payloads`],
//! [`recovery`], [`consensus`], [`write_read`], [`repair`], [`queries`], [`claims`], [`retention`], [`workflow`], [`controller`],
//! [`views`]. A call to a folder above its own is counted, and the count may only shrink (`tests/tests/pure/calls.rs`).

// The documented surface is the client library's; here a comment says what a name does not.
#![allow(missing_docs, rustdoc::private_intra_doc_links)]
// Without the mutants feature, each planted bug is the constant `false`.
#![cfg_attr(not(feature = "mutants"), allow(clippy::nonminimal_bool, clippy::eq_op, clippy::overly_complex_bool_expr))]

pub mod claims;
pub mod consensus;
pub mod context;
pub mod controller;
pub mod effect;
pub mod event;
pub mod membership;
pub mod payloads;
pub mod queries;
pub mod recovery;
pub mod repair;
mod requests;
pub mod retention;
pub mod views;
pub mod workflow;
pub mod write_read;

#[cfg(test)]
mod tests;

use crate::claims::broker::Broker;
use crate::claims::calls::Calls;
use crate::claims::demand::Demand;
use crate::claims::grants::questions::Grants;
use crate::claims::heads::Heads;
use crate::claims::permits::Permits;
use crate::claims::quotas::Quotas;
use crate::claims::sessions::Sessions;
use crate::claims::spent::Spent;
use crate::consensus::ages::Running;
use crate::context::mint::Mint;
pub use crate::context::outbox::COUNTED;
use crate::context::outbox::Outbox;
use crate::context::timers::{Key, Timers};
use crate::controller::scheduler::Scheduler;
use crate::controller::steward::Steward;
use crate::membership::disk::OwnDisk;
use crate::membership::memory::OwnMemory;
use crate::membership::stale_image::OwnLog;
use crate::payloads::bodies::Bodies;
use crate::payloads::loads::Loads;
use crate::queries::watch::Watches;
use crate::queries::watch::journal::Journals;
pub use crate::recovery::save::Cursor;
use crate::repair::exchange::Exchange;
use crate::repair::hints::Hints;
pub use crate::views::inspect::ReplicaView;
pub use crate::views::status::{CLOCKS, STANDINGS};
use crate::workflow::children::Deliveries;
use crate::workflow::dependencies::Dependencies;
use crate::workflow::redrive::Letters;
use crate::workflow::transactions::Transactions;
use crate::workflow::uniques::Uniques;
use crate::write_read::Asks;
use crate::write_read::group::WriteAnswer;
pub use effect::{Effect, Observation, Ticket};
pub use event::{ClientId, Event, Principal};
use membership::Peer;
use norn_model::clocks::Clocks;
use norn_model::cohort::Told;
use norn_model::config::{Config, mutant};
use norn_model::limits::{LOOPBACKS_MAX, WAKE_KEYS_MAX};
pub use norn_model::message::PeerMessage;
pub use norn_model::record::Record;
use norn_model::replica::Partition;
pub use norn_model::snapshot::{Gap, Moved, Part};
pub use norn_model::time::Now;
pub use norn_model::wound::Wound;
use norn_wire::membership::Roster;
use norn_wire::random::Random;
use norn_wire::response::Genesis;
use norn_wire::{NodeId, PartitionId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Bootstrap parameters of a node, which do not come from its log.
#[derive(Debug, Clone)]
pub struct Founding {
    /// Settings.
    pub config: Config,
    /// Identity in the data directory.
    pub node: NodeId,
    /// Incarnation in the data directory.
    pub incarnation: u64,
    /// Name in its certificate.
    pub name: String,
    /// Address it advertises.
    pub address: String,
    /// Failure domain.
    pub zone: String,
}

/// A node.
///
/// Life: [`Node::new`], [`Node::recover`] with every record of the log in order, [`Node::start`], then
/// [`Node::step`] with every event.
#[derive(Debug)]
pub struct Node {
    founding: Founding,
    /// Shared, so that a step may hold it beside what it changes.
    config: Arc<Config>,
    me: NodeId,
    boot: u64,
    now: Now,
    random: Random,
    /// Uptime over all its starts.
    running: Running,
    dependencies: Dependencies,
    sessions: Sessions,
    outbox: Outbox,
    timers: Timers,
    genesis: Option<Arc<Genesis>>,
    /// Members of the cluster, as far as this node has heard.
    roster: Arc<Roster>,
    steward: Steward,
    scheduler: Scheduler,
    partitions: BTreeMap<PartitionId, Partition>,
    peers: BTreeMap<NodeId, Peer>,
    /// Cohorts that this node has heard of, where they differ from those of genesis.
    routes: BTreeMap<PartitionId, Told>,
    /// Losses of the replay that may concern any replica, also one that is not known yet.
    lost_somewhere: Vec<u64>,
    clocks: Clocks,
    disk: OwnDisk,
    memory: OwnMemory,
    log: OwnLog,
    /// Version of the set of partitions that this node leads.
    leads_version: u64,
    mint: Mint,
    asks: Asks,
    /// Child tasks that completions brought, and that are being enqueued.
    deliveries: Deliveries,
    /// Dead-letter copies that this node owes.
    letters: Letters,
    /// State of anti-entropy with each peer.
    exchange: Exchange,
    watches: Watches,
    broker: Broker,
    grants: Grants,
    calls: Calls,
    uniques: Uniques,
    transactions: Transactions,
    demand: Demand,
    permits: Permits,
    spent: Spent,
    quotas: Quotas,
    heads: Heads,
    bodies: Bodies,
    loads: Loads,
    hints: Hints,
    journals: Journals,
    /// Partitions with operations that have not been sent yet in this step.
    unsent: BTreeSet<PartitionId>,
    /// Partitions whose ready work changed in this step.
    stirred: BTreeSet<PartitionId>,
    /// Partitions that this node leads. It holds far more.
    led: BTreeSet<PartitionId>,
    /// The start counter is not on disk yet: no peer or client may see a number that may be used again.
    starting: bool,
    stopping: bool,
    stop_deadline_us: u64,
    halted: bool,
    /// The log is a stale copy: the node sends and stores nothing any more.
    retired: bool,
    /// When this start last sent heartbeats.
    beaten_us: Option<u64>,
}

impl Node {
    /// Returns a node before its log is replayed. Same founding, records, events and seed give the same effects.
    pub fn new(founding: Founding, seed: u64) -> Node {
        let mut random = Random::new(seed);
        Node {
            config: Arc::new(founding.config.clone()),
            me: founding.node,
            boot: 0,
            now: Now::default(),
            running: Running::default(),
            dependencies: Dependencies::default(),
            sessions: Sessions::default(),
            outbox: Outbox::new(founding.node),
            timers: Timers::default(),
            genesis: None,
            roster: Arc::default(),
            steward: Steward::default(),
            scheduler: Scheduler::default(),
            partitions: BTreeMap::new(),
            peers: BTreeMap::new(),
            routes: BTreeMap::new(),
            lost_somewhere: Vec::new(),
            clocks: Clocks::default(),
            disk: OwnDisk::default(),
            memory: OwnMemory::default(),
            log: OwnLog::default(),
            leads_version: 1,
            mint: Mint::default(),
            asks: Asks::default(),
            deliveries: Deliveries::default(),
            letters: Letters::default(),
            exchange: Exchange::default(),
            watches: Watches::default(),
            broker: Broker::default(),
            grants: Grants::default(),
            calls: Calls::default(),
            uniques: Uniques::default(),
            transactions: Transactions::default(),
            demand: Demand::default(),
            permits: Permits::default(),
            spent: Spent::default(),
            quotas: Quotas::default(),
            heads: Heads::default(),
            bodies: Bodies::default(),
            loads: Loads::default(),
            hints: Hints::default(),
            journals: Journals::default(),
            unsent: BTreeSet::new(),
            stirred: BTreeSet::new(),
            led: BTreeSet::new(),
            starting: true,
            stopping: false,
            stop_deadline_us: 0,
            halted: false,
            retired: false,
            beaten_us: None,
            random: random.child(),
            founding,
        }
    }

    /// Handles an event and appends the resulting effects, in order.
    pub fn step(&mut self, now: Now, event: Event, effects: &mut Vec<Effect>) {
        assert!(now.mono_us >= self.now.mono_us, "the monotonic clock went back");
        if self.halted || self.retired {
            return;
        }
        self.now = now;
        self.watch_clock();
        match event {
            Event::Peer { from, message } => self.on_peer(from, message),
            Event::Request { client, number, principal, request } => {
                self.on_request(client, number, &principal, request)
            }
            Event::ClientGone { client } => self.on_client_gone(client),
            Event::Persisted { ticket, places, durable } => self.on_persisted(ticket, &places, durable),
            Event::Moved { ranges } => self.on_moved(&ranges),
            Event::Loaded { number, bodies, unread } => self.on_loaded(number, bodies, unread),
            Event::BodiesLost { ids } => self.on_bodies_lost(&ids),
            Event::Archived { partition, number, done } => self.on_archived(partition, number, done),
            Event::Wake => self.on_wake(),
            Event::PeerConnected { peer, version } => self.on_peer_connected(peer, version),
            Event::Disk(report) => self.on_disk(report),
            Event::Memory(report) => self.on_memory(report),
            Event::Shutdown => self.on_shutdown(),
        }
        self.settle(effects);
    }

    /// Latest time at which the node needs [`Event::Wake`], on the monotonic clock in microseconds.
    pub fn next_wake(&self) -> Option<u64> {
        self.timers.next()
    }

    /// Whether the log was found to be a stale copy.
    pub fn is_retired(&self) -> bool {
        self.retired
    }

    /// Founding record of the cluster, once known.
    pub fn genesis(&self) -> Option<&Arc<Genesis>> {
        self.genesis.as_ref()
    }

    /// Members of the cluster, as far as the node has heard.
    pub fn roster(&self) -> &Roster {
        &self.roster
    }

    /// Handles the node's messages to itself, replicates, publishes heads, then hands out the effects.
    fn settle(&mut self, effects: &mut Vec<Effect>) {
        let mut messages: u64 = 0;
        loop {
            while let Some(message) = self.outbox.next_loopback() {
                messages += 1;
                assert!(messages < LOOPBACKS_MAX, "a step ends: the node keeps talking to itself");
                self.on_message(self.me, message);
            }
            if let Some(partition) = self.unsent.pop_first() {
                self.replicate(partition);
            } else if let Some(partition) = self.stirred.pop_first() {
                self.publish_heads(partition);
            } else {
                break;
            }
        }
        self.note_ran();
        self.outbox.flush(effects);
        if mutant!(self.config, WordMissing) {
            for effect in effects.iter_mut() {
                if let Effect::Send { message: message @ PeerMessage::Ack { .. }, .. } = effect {
                    message.set_log(norn_model::message::LogWord::default());
                }
            }
        }
        if self.halted {
            // Nothing that this step decided may reach the disk or the network.
            effects.retain(|effect| matches!(effect, Effect::Halt { .. }));
        }
    }

    fn on_peer(&mut self, from: NodeId, message: PeerMessage) {
        if self.starting {
            if let Some(word) = message.log() {
                self.note_log(from, word);
            }
            return;
        }
        if !self.peers.contains_key(&from) {
            self.outbox.observe(Observation::Refused { what: "message of a node that is no member" });
            return;
        }
        if message.log().is_some_and(|word| !self.note_log(from, word)) {
            return;
        }
        // Heartbeats of an earlier start, or of an image, are no sign of life of the start that leads.
        if !matches!(message, PeerMessage::Heartbeat(_)) {
            self.note_heard(from);
        }
        self.on_message(from, message);
    }

    #[allow(clippy::too_many_lines, reason = "one line for each message, routing only")]
    fn on_message(&mut self, from: NodeId, message: PeerMessage) {
        use PeerMessage as M;
        if self.is_of_before(&message) {
            return;
        }
        if message.takes().is_some_and(|ask| self.is_of_former_process(from, ask)) {
            self.outbox.count("questions_of_ended_processes");
            return;
        }
        self.seat_for(&message);
        if let Some(partition) = message.asks_for_promise().filter(|partition| !self.is_answered(*partition)) {
            self.outbox.count("promises_refused_at_start");
            self.refuse_unheld(from, partition, &message);
            return;
        }
        match message {
            M::Heartbeat(heartbeat) => self.on_heartbeat(from, *heartbeat),
            M::PreVote { partition, epoch, viewstamp } => self.on_pre_vote(from, partition, epoch, viewstamp),
            M::PreVoteAnswer { partition, epoch, granted, promised, viewstamp } => {
                self.on_pre_vote_answer(from, partition, epoch, granted, (promised, viewstamp));
            }
            M::Vote { partition, epoch, candidate, viewstamp } => {
                self.on_vote(from, partition, epoch, (candidate, viewstamp))
            }
            M::Rescue { partition, epoch, candidate, viewstamp, lost } => {
                self.on_rescue(from, partition, epoch, (candidate, viewstamp), &lost);
            }
            M::VoteAnswer { partition, epoch, replica, granted, promised, viewstamp, log: _ } => {
                self.on_vote_answer(from, partition, epoch, (replica, granted), (promised, viewstamp));
            }
            M::Fetch { partition, viewstamp } => self.on_fetch(from, partition, viewstamp),
            M::State { partition, viewstamp, table } => self.on_state(partition, viewstamp, &table),
            M::Transfer { partition, epoch } => self.on_transfer(partition, epoch),
            M::Install { partition, epoch, base, table, digest } => {
                self.on_install(from, partition, epoch, (base, table), u128::from_be_bytes(digest));
            }
            M::Snapshot { partition, viewstamp, table, commit } => {
                self.on_snapshot(from, partition, viewstamp, &table, commit)
            }
            M::Ops { partition, epoch, first, ops, commit, digest } => {
                self.on_ops(from, partition, epoch, (first, ops), (commit, u128::from_be_bytes(digest)));
            }
            M::Ack { partition, epoch, replica, length, done, missing, wound, log: _ } => {
                self.on_ack(from, partition, epoch, (replica, length, wound), done, &missing);
            }
            M::Ages { partition, asks, ages } => self.on_ages(from, partition, asks, ages),
            M::Nack { partition, replica, promised, viewstamp } => {
                self.on_nack(from, partition, replica, promised, viewstamp);
            }
            M::Rejoin { partition, ask, viewstamp } => self.on_rejoin(from, partition, ask, viewstamp),
            M::Rejoined { partition, ask, viewstamp } => self.on_rejoined(partition, ask, viewstamp),
            M::Ready { partition, replica, at, ready, facts, log: _ } => {
                self.on_ready(from, partition, (replica, at), (ready, facts));
            }
            M::Dismiss { partition, at } => self.on_dismiss(partition, at),
            M::Outside { partition, told } => self.on_outside(from, partition, &told),
            M::Unheld { partition, replica } => self.on_unheld(from, partition, replica),
            M::Stray { partition, seat } => self.on_stray(from, partition, seat),
            M::Arrange { partition, nodes } => self.on_arrange(partition, &nodes),
            M::Roster { roster } => self.on_roster(&roster),
            M::RouteAsk { partitions } => self.on_route_ask(from, &partitions),
            M::Route { partition, told } => self.on_route(partition, &told),
            M::Wake { partition, epoch, ids } => self.on_wake_message(from, partition, epoch, ids),
            M::Led { partition, epoch, leads } => self.on_led(from, partition, epoch, leads),
            M::Write { ask, partition, at, items } => self.on_write(from, ask, (partition, at), &items),
            M::Written { ask, partition, replica, outcomes, boot, holes, at, told, log: _ } => {
                let lasting = holes && self.is_holed(from);
                let answer = WriteAnswer { outcomes, boot, holes, lasting, at };
                self.on_written(from, ask, partition, replica, (answer, told));
            }
            M::Kept { ask, partition, outcomes } => self.on_kept(from, ask, partition, outcomes),
            M::Read { ask, partition, at, id } => self.on_read(from, ask, (partition, at), id),
            M::Known { ask, partition, replica, known } => self.on_known(from, ask, partition, replica, *known),
            M::CountAsk { ask, queue } => self.on_count_ask(from, ask, queue),
            M::CountAnswer { ask, partitions } => self.on_count_answer(from, ask, partitions),
            M::ListAsk { ask, partition, queue, after, to, limit } => {
                self.on_list_ask(from, ask, (partition, queue), (after, to), limit);
            }
            M::ListAnswer { ask, partitions, tasks, end } => self.on_list_answer(from, ask, &partitions, tasks, end),
            M::Roots { roots, round } => self.on_roots(from, &roots, round),
            M::GroupsAsk { partition, round, groups } => self.on_groups_ask(from, partition, round, &groups),
            M::GroupsAnswer { partition, round, at, equal } => {
                self.on_groups_answer(from, partition, (round, at), &equal);
            }
            M::RootsAnswer { equal, at, differ, round } => self.on_roots_answer(from, (&equal, &at), &differ, round),
            M::Tasks { partition, items, by_buckets, forgets } => {
                self.on_tasks(from, partition, &items, (by_buckets, forgets))
            }
            M::Hint { number, partition, at, items, forgets } => {
                self.on_hint(from, number, (partition, at), &items, forgets);
            }
            M::Hinted { number, partition, outcomes, boot, at, holes, log: _ } => {
                self.on_hinted(from, (number, partition), &outcomes, (boot, holes), at);
            }
            M::Gone { partition, forgets, ids } => self.on_gone(from, partition, forgets, &ids),
            M::Compare { partition, epoch, number, items } => self.on_compare(from, partition, (epoch, number), &items),
            M::Compared { partition, epoch, number, replica, same } => {
                self.on_compared(from, partition, (epoch, number), (replica, same))
            }
            M::Tombs { partition, epoch, number, items } => self.on_tombs(from, partition, (epoch, number), &items),
            M::Buried { partition, epoch, number, replica, log: _ } => {
                self.on_buried(from, partition, (epoch, number), replica)
            }
            M::Outboxes { partition, epoch, number, above, up_to } => {
                self.on_outboxes(from, partition, (epoch, number), (above, up_to));
            }
            M::Childless { partition, epoch, number, seats } => {
                self.on_childless(from, partition, (epoch, number), seats)
            }
            M::Forget { partition, epoch, count } => self.on_forget(from, partition, epoch, count),
            M::Forgot { partition, epoch, count, replica, log: _ } => {
                self.on_forgot(from, partition, (epoch, count), replica)
            }
            M::Recent { boot, parts } => self.on_recent(from, boot, &parts),
            M::Want { boot, parts } => self.on_want(from, boot, &parts),
            M::Need { partition, ids } => self.on_need(from, partition, &ids),
            M::Steps { steps } => self.on_steps(from, steps),
            M::Lacks { partition, id, holder } => self.on_lacks(partition, id, holder),
            M::Probe { ask, queues } => self.on_probe(from, ask, queues),
            M::Probed { ask, heads, covered } => self.on_probed(from, ask, &heads, &covered),
            M::Pull { ask, queues } => self.on_pull(from, ask, &queues),
            M::Pulled { ask, partitions, ready, more } => self.on_pulled(from, ask, &partitions, (&ready, more)),
            M::GrantAsk { ask, claim, max, recall, got } => {
                self.on_grant_ask(from, ask, *claim, max, (recall, &got));
            }
            M::GrantAnswer { ask, claim, tasks, heads, partitions } => {
                self.on_grant_answer(from, ask, claim, tasks, (&heads, &partitions));
            }
            M::Return { items } => self.on_return(&items),
            M::ConfirmAsk { items } => self.on_confirm_ask(from, &items),
            M::ConfirmAnswer { settled, back } => self.on_confirm_answer(from, &settled, &back),
            M::Leave { claim, keeps } => self.on_claim_left(claim, &keeps.into_iter().collect()),
            M::Interest { queues } => self.on_interest(from, &queues),
            M::Available { queue, head } => self.on_available(from, &queue, head),
            M::Follow { partition, ids } => self.on_follow(from, partition, &ids),
            M::Ends { partition, ends, joins } => self.on_ends(from, partition, &ends, &joins),
            M::Watch { ask, subject, at, compare } => self.on_watch(from, ask, subject, at, &compare),
            M::Watched { ask, at, told } => self.on_watched(from, ask, at, told.map(|told| *told)),
            M::WatchNews { subject } => self.on_watch_news(from, &subject),
            M::MemberFailed { member, how } => self.on_member_failed(member, how),
            M::KeyAsk { ask, partition, epoch, queue, key, ids } => {
                self.on_key_ask(from, (ask, epoch), (partition, queue, key), &ids);
            }
            M::KeyAnswer { ask, partition, replica, open, ended } => {
                self.on_key_answer(from, (ask, partition), replica, (&open, &ended));
            }
            M::PermitAsk { ask, queue, wanted } => self.on_permit_ask(from, ask, queue, wanted),
            M::Permits { ask, queue, count, wait_ms } => self.on_permits(ask, &queue, count, wait_ms),
            M::PermitsBack { ask, queue, count } => self.on_permits_back(from, ask, &queue, count),
            M::QuotaAsk { partition, epoch, ask, queue, keeps, wants } => {
                self.on_quota_ask(from, (partition, epoch, ask), queue, (keeps, wants));
            }
            M::Quota { partition, epoch, ask, queue, count } => self.on_quota((partition, epoch), ask, &queue, count),
            M::QuotaCall { partition, queue, share } => self.on_quota_call(partition, &queue, share),
            M::Forward { ask, request } => self.on_forward(from, ask, *request),
            M::Forwarded { ask, response } => self.on_forwarded(from, ask, *response),
        }
    }

    fn on_wake(&mut self) {
        for _ in 0..WAKE_KEYS_MAX {
            let Some(key) = self.timers.pop(self.now.mono_us) else { return };
            match key {
                Key::Heartbeat => self.beat(),
                Key::Exchange => {
                    self.exchange_round();
                    self.look_for_children();
                    self.ask_for_bodies();
                }
                Key::Summaries => self.tell_summaries(),
                Key::Sweep => self.sweep(),
                Key::Stop => self.stop_if_handed_over(),
                Key::Election(partition) => self.on_election_timer(partition),
                Key::Resend(partition) => self.resend(partition),
                Key::Expiry(partition) => self.expire(partition),
                Key::Delayed(partition) => self.release_due(partition),
                Key::Drop(partition) => self.drop_ended(partition),
                Key::Wake(partition) => self.on_wake_unanswered(partition),
                Key::Ask(ask) => self.on_ask_timer(ask),
                Key::Grant(session) => self.on_grant_deadline(session),
                Key::Claim(call) => self.on_claim_timer(call),
                Key::Park(call) => self.on_park_end(call),
                Key::Return(number) => self.say_back(number),
                Key::Returns => self.say_returns(),
                Key::Rejoin => self.ask_to_rejoin(),
                Key::Retire(partition) => self.retire(partition),
                Key::Follow(partition) => self.sweep_dependencies(partition),
                Key::Sessions(partition) => self.sweep_sessions(partition),
                Key::Children(partition) => self.hand_over_children(partition),
                Key::Change(partition) => self.drive_change(partition),
                Key::Repair => self.repair(),
                Key::Hints => self.hand_over_hints(),
                Key::Steward => self.steer(),
                Key::Schedules => self.see_to_schedules(),
                Key::Permits => self.see_to_permits(),
                Key::Levels => self.keep_levels(),
                Key::Quotas => self.see_to_quotas(),
                Key::Ages => self.see_to_ages(),
            }
        }
    }
}
