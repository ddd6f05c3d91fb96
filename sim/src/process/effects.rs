//! Effects of a core, carried out: its log on the simulated disk, its messages, its answers.

use super::{OPERATOR, Waiting};
use crate::adapter::log;
use crate::faults::Turn;
use crate::history::Happening;
use crate::network::Envelope;
use crate::wire::{encode_envelope, encode_response, version_of};
use crate::world::{Event, World};
use norn_engine::{ClientId, Effect, Event as Input, Observation, Ticket};
use norn_model::claim_table::table::Op;
use norn_model::cohort::Change;
use norn_model::message::{Class, Election, PeerMessage, ReadWrite, Reconfiguration, Replication};
use norn_model::record::Record;
use norn_model::task::{Wanted, in_order};
use norn_storage::disk::Disk;
use norn_wire::response::Standing;
use norn_wire::{NodeId, PartitionId, Response, TaskId, TaskView, Token};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

/// Longest sync of a slow disk: one that began before all was healed ends long before all is judged.
const SYNC_US_MAX: u64 = 10_000_000;

/// The log entries in the facts that a turn has logged.
pub(super) fn entries_of(effects: &[Effect]) -> BTreeSet<(TaskId, Token, u32)> {
    let mut entries = BTreeSet::new();
    for effect in effects {
        let Effect::Persist { records, .. } = effect else { continue };
        for record in records {
            let Record::Facts { items, .. } = record else { continue };
            for (id, task) in items.iter() {
                let updates = task.facts.iter().flat_map(|facts| &facts.updates);
                entries.extend(updates.map(|((token, number), _)| (*id, *token, *number)));
            }
        }
    }
    entries
}

impl World {
    /// Carries out the effects of a turn. What it has for a peer travels together. If the node crashes on the way, the messages before
    /// that are under way.
    pub(super) fn carry_out(&mut self, node: usize, effects: Vec<Effect>) {
        let boot = self.nodes[node].boot;
        let mut effects = effects.into_iter();
        let mut lost = None;
        for effect in effects.by_ref() {
            lost = self.carry_out_or_crash(node, effect);
            if lost.is_some() {
                break;
            }
        }
        self.send_envelopes(node);
        if let Some(effect) = lost {
            self.tell_lost(node, boot, effect.into_iter().chain(effects));
        }
    }

    /// Reports the cohorts that a leader knew to be committed, though it crashed before it could report them.
    fn tell_lost(&mut self, node: usize, boot: u64, effects: impl Iterator<Item = Effect>) {
        for effect in effects {
            if let Effect::Observe(observation @ Observation::CohortCommitted { .. }) = effect {
                self.tell(Happening::Observed { node, boot, observation: &observation });
            }
        }
    }

    /// Carries out an effect. Some if the node crashes, with the effect if that was not carried out.
    fn carry_out_or_crash(&mut self, node: usize, effect: Effect) -> Option<Option<Effect>> {
        match &mut self.nodes[node].effects_left {
            Some(0) => {
                self.count("sometimes: crash between effects");
                self.crash_node(node);
                self.schedule_restart(node);
                return Some(Some(effect));
            }
            Some(left) => *left -= 1,
            None => {}
        }
        let vote = matches!(
            &effect,
            Effect::Send { message: PeerMessage::Election(Election::VoteAnswer { granted: true, .. }), .. }
        );
        let ack = matches!(&effect, Effect::Send { message: PeerMessage::Replication(Replication::Ack { .. }), .. });
        let ack = ack && node == self.copies.victim();
        let flag = matches!(
            &effect,
            Effect::Send { message: PeerMessage::Replication(Replication::Ack { done, .. }), .. } if !done.is_empty()
        );
        let (before, after) = (self.options.crash_before_flag_percent, self.options.crash_after_vote_percent);
        if flag && self.crashes_briefly(node, before, "fault: crash before a flag") {
            // The facts that it was about to report are those that it must not seem to know any more.
            let damage_percent = self.options.damage_percent;
            self.nodes[node].forgetful = damage_percent > 0 && self.randoms.faults.chance(1, 2);
            return Some(Some(effect));
        }
        let step = self.options.crash_in_change_percent > 0 && is_step(&effect);
        // An observation tells of what has happened already: the history must know it.
        let done = matches!(&effect, Effect::Observe(_));
        if step && !done && self.crashes_at_step(node, "fault: crash before a step of a change") {
            return Some(Some(effect));
        }
        if step && self.strikes_at_step() {
            self.nodes[node].crash_in_sync = true;
        }
        let turn = if self.options.cut_in_change_percent > 0 { self.turn_of(node, &effect) } else { None };
        self.carry_out_one(node, effect);
        if let Some(turn) = turn {
            self.cut_at(node, &turn);
        }
        let ack_percent = self.options.crash_after_ack_percent;
        let crashed = self.nodes[node].running.is_none()
            || step && self.crashes_at_step(node, "fault: crash after a step of a change")
            || ack && self.crashes_briefly(node, ack_percent, "fault: crash after an acknowledgement")
            || vote && self.crashes_briefly(node, after, "fault: crash after a vote");
        crashed.then_some(None)
    }

    /// Crashes a node at an instant at which state that is only in memory does the most harm. It comes back at once.
    fn crashes_briefly(&mut self, node: usize, percent: u64, fault: &str) -> bool {
        if percent == 0 || self.healed() || !self.randoms.faults.chance(percent, 100) {
            return false;
        }
        self.count(fault);
        self.crash_node(node);
        let delay_us = self.randoms.faults.between(100, 5_000);
        self.schedule_in(delay_us, Event::Start { node });
        true
    }

    /// Crashes a node between two steps of a cohort change, so that the change crosses whatever else happens.
    fn crashes_at_step(&mut self, node: usize, fault: &str) -> bool {
        let strikes = self.strikes_at_step();
        if strikes {
            self.count(fault);
            self.crash_node(node);
            let longest_ms = [5, self.options.election_timeout_ms, self.options.down_ms_max];
            let longest_ms = longest_ms[self.randoms.steps.below(3) as usize];
            let delay_us = self.randoms.steps.between(100, longest_ms * 1_000);
            self.schedule_in(delay_us, Event::Start { node });
        }
        strikes
    }

    fn strikes_at_step(&mut self) -> bool {
        !self.healed() && self.randoms.steps.chance(self.options.crash_in_change_percent, 100)
    }

    /// What a leader writes that decides how a change goes on.
    fn turn_of(&self, node: usize, effect: &Effect) -> Option<Turn> {
        let Effect::Persist { records, .. } = effect else { return None };
        let inspected = self.nodes[node].running.as_ref()?.core.inspect();
        let leads = |id: &PartitionId| inspected.iter().any(|replica| replica.partition == *id && replica.leads);
        records.iter().find_map(|record| match record {
            Record::Install { partition, .. } if leads(partition) => {
                self.next_members(*partition).map(|next| Turn::Leads { next })
            }
            Record::Ops { partition, ops, .. } if ops.iter().any(|op| matches!(**op, Op::Cohort(_))) => {
                leads(partition).then_some(Turn::Step)
            }
            _ => None,
        })
    }

    /// Nodes that are to hold a partition, as far as any node knows of a change.
    fn next_members(&self, partition: PartitionId) -> Option<Vec<NodeId>> {
        let running = self.nodes.iter().filter_map(|process| process.running.as_ref());
        let mut cohorts = running.flat_map(|running| running.core.cohorts()).filter(|(id, _)| *id == partition);
        let next = cohorts.find_map(|(_, cohort)| cohort.next.as_ref())?;
        Some(next.slots.iter().map(|slot| slot.replica.node).collect())
    }

    fn carry_out_one(&mut self, node: usize, effect: Effect) {
        let boot = self.nodes[node].boot;
        match effect {
            Effect::Persist { ticket, records } => self.persist(node, ticket, &records),
            Effect::Load { number, wanted } => {
                let delay_us = self.randoms.loads.between(20, self.options.sync_us_max);
                self.count("sometimes: bodies loaded");
                self.schedule_in(delay_us, Event::Load { node, boot, number, wanted });
            }
            Effect::Send { to, message } => self.send_peer(node, to, message),
            Effect::Reply { client, number, response } => self.reply(node, client, number, &response),
            Effect::Joined { genesis, roster } => {
                self.line(format_args!("n{node} joined {:?}, version {}", genesis.cluster, roster.version));
                if let Some(running) = &mut self.nodes[node].running {
                    running.joined = true;
                }
                (0..self.nodes.len()).filter(|other| *other != node).for_each(|other| self.link(node, other));
            }
            Effect::Archive { partition, number, tasks } => {
                let delay_us = self.randoms.saves.between(0, 100_000);
                self.schedule_in(delay_us, Event::Archived { node, boot, partition, number, tasks });
            }
            Effect::Observe(observation) => {
                self.line(format_args!("n{node} {observation:?}"));
                self.count(&format!("sometimes: {}", name_of(&observation)));
                self.note_leader(node, boot, &observation);
                self.tell(Happening::Observed { node, boot, observation: &observation });
                if let Observation::Granted { id, token } = observation {
                    self.tell_log(node, id, token);
                }
                if matches!(observation, Observation::ScheduleFired { .. }) {
                    self.schedule_fires();
                }
            }
            Effect::Stopped => self.node_stopped(node),
            Effect::Halt { reason } => self.fail("halt", format!("node {node}: core halted: {reason}")),
        }
    }

    /// Puts finished tasks into the archive, but sometimes reports to the node that this failed.
    pub fn archived(&mut self, node: usize, boot: u64, (partition, number): (PartitionId, u64), tasks: &[TaskView]) {
        if self.nodes[node].boot != boot {
            return;
        }
        self.count("sometimes: archived");
        self.tell(Happening::Archived { tasks });
        // An operator may take the file away at that very moment.
        let done = self.randoms.saves.chance(9, 10);
        self.give(node, Input::Archived { partition, number, done });
    }

    fn persist(&mut self, node: usize, ticket: Ticket, records: &[Record]) {
        let mut bytes = Vec::new();
        records.iter().for_each(|record| record.encode(&mut bytes));
        self.line(format_args!("n{node} persist {} {:016x}", ticket.0, xxh3_64(&bytes)));
        self.take_image(node, records);
        self.count_steps(records);
        let Some(running) = &mut self.nodes[node].running else { return };
        assert!(ticket > running.appended, "tickets ascend");
        running.appended = ticket;
        let (appended, idle) = (running.log.append(records), !running.syncing);
        let appended = appended.map(|places| running.places.push_back((ticket, places)));
        self.tell(Happening::Appended { node, ticket, records });
        if let Err(error) = appended {
            return self.log_stopped(node, &error);
        }
        if idle {
            self.begin_sync(node);
        }
    }

    /// Reports a granted task's log as the leader's replica has it, up to the first entry of each claim that came in the same turn.
    fn tell_log(&mut self, node: usize, id: TaskId, token: Token) {
        let Some(running) = &self.nodes[node].running else { return };
        let task = running.core.task(self.history.partition(&id), &id);
        let mut log: Vec<_> = task.into_iter().flat_map(in_order).collect();
        // The last one of a token is its first entry.
        let of_task =
            (id, Token { epoch: 0, number: 0 }, 0)..=(id, Token { epoch: u64::MAX, number: u64::MAX }, u32::MAX);
        let came = running.came_now.range(of_task).rev().map(|(_, token, sequence)| (*token, *sequence));
        let came: BTreeMap<Token, u32> = came.collect();
        log.retain(|(token, sequence, _)| came.get(token).is_none_or(|first| sequence < first));
        let away = log.iter().any(|(_, _, data)| data.here().is_none());
        let log: Vec<(Token, u32)> = log.into_iter().map(|(token, sequence, _)| (token, sequence)).collect();
        if away {
            self.count("sometimes: granted with a log out of memory");
        }
        self.tell(Happening::Told { id, token, log: &log });
    }

    fn count_steps(&mut self, records: &[Record]) {
        for op in records.iter().filter_map(ops_of).flatten() {
            if let Op::Cohort(change) = &**op {
                self.count(&format!("sometimes: cohort {}", step_of(change)));
            }
        }
    }

    fn begin_sync(&mut self, node: usize) {
        let random = &mut self.randoms.disk;
        let mut delay_us = random.between(self.options.sync_us_min, self.options.sync_us_max);
        if random.chance(self.options.sync_slow_ppm, 1_000_000) && self.phase == crate::world::Phase::Safety {
            delay_us = random.between(delay_us, 100_000);
        }
        delay_us = (delay_us * self.nodes[node].disk.slowness()).min(SYNC_US_MAX);
        let crash_us = std::mem::take(&mut self.nodes[node].crash_in_sync).then(|| random.between(0, delay_us));
        let boot = self.nodes[node].boot;
        if let Some(crash_us) = crash_us {
            self.schedule_in(crash_us, Event::Crash { node, boot });
        }
        if let Some(running) = &mut self.nodes[node].running {
            running.syncing = true;
            running.sync_began_us = self.now_us;
            let ticket = running.appended;
            self.schedule_in(delay_us, Event::Synced { node, boot, ticket });
        }
    }

    /// Handles the end of a sync on the disk of this process.
    pub fn synced(&mut self, node: usize, boot: u64, ticket: Ticket) {
        if self.nodes[node].boot != boot || self.nodes[node].running.is_none() {
            return;
        }
        if self.is_busy(node) {
            self.nodes[node].inbox.push_back(Waiting::Synced(ticket));
        } else if let Some(persisted) = self.take_sync(node, ticket) {
            self.step_node(node, persisted);
            self.after_sync(node);
            self.gather(node);
        }
    }

    /// Ends a sync of a process, and begins the next if more was appended meanwhile. Returns the event for the core, unless the process
    /// stops over it.
    pub(super) fn take_sync(&mut self, node: usize, ticket: Ticket) -> Option<Input> {
        let running = self.nodes[node].running.as_mut()?;
        running.syncing = false;
        running.disk_latency.synced(self.now_us, self.now_us - running.sync_began_us);
        let (synced, more) = (running.log.commit(self.now_us), running.appended > ticket);
        if let Err(error) = synced {
            self.log_stopped(node, &error);
            return None;
        }
        self.line(format_args!("n{node} synced {}", ticket.0));
        self.tell(Happening::Synced { node, ticket });
        if more {
            self.begin_sync(node);
        }
        let mut places = Vec::new();
        let durable = self.nodes[node].running.as_ref().map_or(0, |running| running.log.synced());
        if let Some(running) = &mut self.nodes[node].running {
            while let Some((_, found)) = running.places.pop_front_if(|(appended, _)| *appended <= ticket) {
                places.extend(found);
            }
        }
        self.note_durable(node, durable);
        Some(Input::Persisted { ticket, places, durable })
    }

    /// Does what a process does after a sync that its core knows of.
    pub(super) fn after_sync(&mut self, node: usize) {
        self.keep_up(node);
        self.tell_disk(node);
        self.rot(node);
    }

    /// Reads bodies from the disk for a core. Those that cannot be read are missing.
    pub fn load(&mut self, node: usize, boot: u64, number: u64, wanted: &[Wanted]) {
        let process = &self.nodes[node];
        let Some(running) = process.running.as_ref().filter(|_| process.boot == boot) else { return };
        let disk = running.log.disk();
        let bodies = log::read_bodies(|file, offset, length| disk.read(file, offset, length), wanted)
            .expect("whatever cannot be read is lost");
        if bodies.iter().any(Option::is_none) {
            self.count("sometimes: body not read");
        }
        self.line(format_args!("n{node} loaded {number} {}", bodies.iter().flatten().count()));
        self.give(node, Input::Loaded { number, bodies, unread: false });
    }

    fn send_peer(&mut self, node: usize, to: NodeId, message: PeerMessage) {
        let Some(place) = self.place_of(to) else {
            return self.fail("addressing", format!("node {node} sends to {to}, which does not exist"));
        };
        assert_ne!(place, node, "a node does not send to itself");
        let word = self.word_of(node, place, &message);
        self.line(format_args!("n{node} -> n{place} {}", message.name()));
        let lossy = self.options.lost_writes_percent > 0
            && !self.healed()
            && matches!(message, PeerMessage::ReadWrite(ReadWrite::Write { .. }));
        if lossy && self.randoms.faults.chance(self.options.lost_writes_percent, 100) {
            return self.count("fault: lost write");
        }
        let hasty = self.options.crash_after_vote_percent > 0 && !self.healed();
        if hasty && matches!(message, PeerMessage::Election(Election::Vote { .. })) {
            let late_us = self.randoms.faults.between(1_000, 300_000);
            let bytes = encode_envelope(version_of(self.options.enveloped), std::slice::from_ref(&message));
            self.schedule_in(late_us, Event::Peer { from: node, to: place, bytes, words: [word].into() });
        }
        let envelope = self.network.outgoing.entry((node, place, message.class())).or_default();
        envelope.messages.push(message);
        envelope.words.push(word);
        if !self.options.enveloped {
            self.send_envelopes(node);
        }
    }

    /// Sends what a turn has for each peer, urgent messages apart from bulk.
    fn send_envelopes(&mut self, node: usize) {
        let all = (node, 0, Class::Urgent)..(node + 1, 0, Class::Urgent);
        while let Some(key) = self.network.outgoing.range(all.clone()).next().map(|(key, _)| *key) {
            let Envelope { messages, words } = self.network.outgoing.remove(&key).expect("just seen");
            let (place, bytes, words) =
                (key.1, encode_envelope(version_of(self.options.enveloped), &messages), Rc::<[_]>::from(words));
            self.line(format_args!("n{node} => n{place} {} {:016x}", messages.len(), xxh3_64(&bytes)));
            if messages.len() > 1 {
                self.count("sometimes: several messages in an envelope");
            }
            for at_us in self.network.send(self.now_us, node, place) {
                let (bytes, words) = (bytes.clone(), words.clone());
                self.schedule(at_us, Event::Peer { from: node, to: place, bytes, words });
            }
        }
    }

    fn reply(&mut self, node: usize, client: ClientId, number: u64, response: &Response) {
        let Some(running) = &mut self.nodes[node].running else { return };
        if !running.clients.contains(&client.0) {
            return;
        }
        let Some(request) = running.requests.remove(&(client.0, number)) else {
            return self
                .fail("answers", format!("node {node} answers request {number} of {client:?} twice or unasked"));
        };
        self.line(format_args!("n{node} reply {}.{number} {response:?}", client.0));
        self.tell(Happening::Replied { request: &request, response });
        if client.0 >= OPERATOR - self.nodes.len() as u64 {
            return self.operator_answer(node, number, &request, response);
        }
        let bytes = encode_response(number, response);
        self.send_response(client.0, bytes);
    }
}

fn ops_of(record: &Record) -> Option<&[Arc<Op>]> {
    match record {
        Record::Ops { ops, .. } => Some(ops),
        _ => None,
    }
}

/// Whether an effect takes a cohort change further, or reports it.
fn is_step(effect: &Effect) -> bool {
    match effect {
        Effect::Persist { records, .. } => {
            records.iter().filter_map(ops_of).flatten().any(|op| matches!(**op, Op::Cohort(_)))
        }
        Effect::Send { message, .. } => matches!(
            message,
            PeerMessage::Reconfiguration(Reconfiguration::Ready { .. } | Reconfiguration::Dismiss { .. })
        ),
        Effect::Observe(observation) => matches!(
            observation,
            Observation::CohortChanged { .. }
                | Observation::CohortCommitted { .. }
                | Observation::SlotTaken { .. }
                | Observation::Left { .. }
        ),
        _ => false,
    }
}

fn step_of(change: &Change) -> &'static str {
    match change {
        Change::Admit { .. } => "admits",
        Change::Join => "joins",
        Change::Settle { .. } => "settles",
        Change::Revert { .. } => "reverts",
        Change::Clear { .. } => "clears a draining replica",
        Change::Recall { .. } => "recalls a draining replica",
        Change::Rescue { .. } => "is rescued",
        Change::EndQuarantine => "ends its quarantine",
    }
}

fn name_of(observation: &Observation) -> &'static str {
    match observation {
        Observation::Campaign { .. } => "campaign",
        Observation::Rescue { .. } => "rescue",
        Observation::Established { .. } => "established",
        Observation::SteppedDown { .. } => "stepped down",
        Observation::Granted { .. } => "granted",
        Observation::Voided { .. } => "voided",
        Observation::Expired { .. } => "expired",
        Observation::SnapshotSent { .. } => "snapshot sent",
        Observation::Repaired { by_buckets: true, .. } => "repaired by buckets",
        Observation::Repaired { .. } => "repaired by stream",
        Observation::Agreement { apart: 0, .. } => "not known to be equal",
        Observation::Agreement { .. } => "apart",
        Observation::DoneFlag { .. } => "done flag",
        Observation::Woken { .. } => "woken",
        Observation::ClockStanding { standing: Standing::Fenced, .. } => "clock fenced",
        Observation::ClockStanding { standing: Standing::Suspect, .. } => "clock suspect",
        Observation::ClockStanding { .. } => "clock good or unknown",
        Observation::DataLoss { table: true, .. } => "table wounded",
        Observation::DataLoss { facts: true, .. } => "facts wounded",
        Observation::DataLoss { .. } => "healed",
        Observation::SlotTaken { .. } => "slot taken",
        Observation::Left { .. } => "slot left",
        Observation::CohortChanged { .. } => "cohort changed",
        Observation::RosterChanged { .. } => "roster changed",
        Observation::DeclaredGone { .. } => "declared gone",
        Observation::CohortCommitted { cohort, .. } if cohort.is_joint() => "joint cohort committed",
        Observation::CohortCommitted { .. } => "cohort committed",
        Observation::BodyLost { .. } => "body lost",
        Observation::ChangeBlocked { .. } => "change blocked by losses",
        Observation::Forgotten { .. } => "forgotten",
        Observation::ForgettingHeld { .. } => "forgetting held up",
        Observation::ChildRefused { .. } => "child refused",
        Observation::LetterRefused { .. } => "letter refused",
        Observation::PartLost { .. } => "part of a transaction lost",
        Observation::HintKept { .. } => "hint kept",
        Observation::HintsHanded { .. } => "hints handed over",
        Observation::HintsDropped { .. } => "hints dropped",
        Observation::HintOrphaned { .. } => "hint orphaned",
        Observation::HintsLost { .. } => "hints lost",
        Observation::HintsOverdue { .. } => "hints overdue",
        Observation::Hints { .. } => "hints changed",
        Observation::StoodStill { .. } => "stood still",
        Observation::Memory { short: true, .. } => "little memory",
        Observation::Memory { .. } => "memory again",
        Observation::Room { out: true, .. } => "no room on the disk",
        Observation::Room { short: true, .. } => "little room on the disk",
        Observation::Room { .. } => "room on the disk again",
        Observation::DiskSlow { slow: true, .. } => "slow disk noticed",
        Observation::DiskSlow { .. } => "slow disk got better",
        Observation::Retired { .. } => "retired",
        Observation::ScheduleFired { .. } => "schedule fired",
        Observation::ScheduleMissed { .. } => "schedule missed times",
        Observation::ScheduleUnsure { .. } => "schedule unsure",
        Observation::Refused { .. } => "refused",
    }
}
