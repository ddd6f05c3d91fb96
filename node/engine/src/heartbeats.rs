//! What a node does at each heartbeat, its own or a peer's: failure detection first, then what follows for leaders, claims and repair.

use crate::Node;
use crate::membership::{Freshness, clock::Fitness};
use norn_model::config::mutant;
use norn_model::host::{DiskReport, Room};
use norn_model::message::Heartbeat;
use norn_wire::{NodeId, PartitionId};

impl Node {
    /// Begins a round of heartbeats, and checks for silent nodes.
    pub(crate) fn begin_heartbeats(&mut self) {
        self.send_heartbeats();
        self.see_to_leaders();
        self.supervise_clock(false);
        if self.judge_disk() {
            self.hand_over_all();
        }
    }

    /// Judges the clock at once after a jump. A clock that was set by hand is not relied on for the very event that shows it.
    pub(crate) fn watch_clock(&mut self) {
        if self.has_jumped() {
            self.supervise_clock(true);
        }
    }

    /// Judges this node's wall clock, and draws the consequences for what it leads.
    fn supervise_clock(&mut self, jumped: bool) {
        match self.judge_clock(jumped) {
            Fitness::Fit => {}
            Fitness::Suspect => self.hand_over_all(),
            Fitness::Fenced => self.lead_nothing(),
        }
    }

    /// Takes in the state of the own disk. A node without any room left stops in order.
    pub(crate) fn on_disk(&mut self, report: DiskReport) {
        self.note_disk(report);
        if report.room == Room::Out {
            self.on_shutdown();
        }
    }

    pub(crate) fn on_heartbeat(&mut self, from: NodeId, heartbeat: Heartbeat) {
        let Some(freshness) = self.take_heartbeat(from, &heartbeat) else { return };
        if freshness != Freshness::SameStart {
            self.recall_from_former(from);
        }
        if freshness == Freshness::Restarted && !mutant!(self.config, LeaderBelieved) {
            self.on_peer_restarted(from);
        }
        if freshness != Freshness::SameStart {
            // It promises nothing before it is answered.
            let incomplete = self.has_incomplete_facts();
            self.send_heartbeat(from, incomplete);
        }
        self.answer_heartbeat(from);
        self.tell_roster_to(from, heartbeat.roster_version);
        if heartbeat.incomplete && self.begins_to_count(from, heartbeat.boot) {
            // Answers of its earlier starts may rest on what it has lost since.
            self.forget_answers(from, heartbeat.boot);
            self.repair.forget_answers(from, heartbeat.boot);
        }
        if let Some(leads) = heartbeat.leads {
            self.on_leads(from, heartbeat.leads_version, leads);
        }
        self.ask_for_routes(from);
        for (partition, epoch, commit) in heartbeat.commits {
            self.on_commit(from, partition, epoch, commit);
        }
        if self.joins_round_of(from) {
            self.begin_heartbeats();
        }
    }

    /// Reacts to a restart of a node: it no longer leads anything.
    fn on_peer_restarted(&mut self, node: NodeId) {
        let led_there = |replica: &norn_model::replica::Partition| {
            replica.consensus.leader.is_some_and(|leader| leader.node == node)
        };
        let orphaned: Vec<PartitionId> =
            self.partitions.iter().filter(|(_, replica)| led_there(replica)).map(|(id, _)| *id).collect();
        for partition in orphaned {
            self.lose_leader(partition);
        }
        self.ask_to_forget_again(node);
        self.note_absent(node);
        self.repair.restarted(node);
        self.begin_anti_entropy_with(node);
    }

    /// Reacts to a new connection: earlier messages may be lost.
    pub(crate) fn on_peer_connected(&mut self, node: NodeId, version: u8) {
        if !self.note_version(node, version) || self.starting {
            return;
        }
        self.follow_anew();
        let led: Vec<PartitionId> = self.led().map(|(id, _)| id).collect();
        for id in led {
            if self.partitions[&id].cohort().knows(node) {
                self.resend_to(id, node);
            }
        }
    }
}
