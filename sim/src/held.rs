//! Looks at held claims, a few times a second, and at what goes wrong meanwhile: where a task is held that no worker works on,
//! nothing happens but that time passes.

use crate::faults::Fault;
use crate::history::{Happening, Held, Look};
use crate::world::{Event, World};
use norn_engine::Observation;
use norn_model::claim_table::entry::ClaimState;
use norn_wire::{ClaimId, PartitionId};
use std::collections::BTreeMap;

/// Interval between looks.
const INTERVAL_US: u64 = 100_000;

/// State for the next look.
#[derive(Debug, Default)]
pub struct Looks {
    next_us: u64,
    /// Something was wrong with nodes or links between them.
    troubled: bool,
    /// Latest leader of each partition that may grant: epoch, node and boot counter.
    leaders: BTreeMap<PartitionId, (u64, usize, u64)>,
    /// When something last went wrong with a client, or with its connections.
    pub(crate) clients_us: BTreeMap<usize, u64>,
}

impl World {
    /// Notes that something has just gone wrong, or was put right.
    pub fn trouble(&mut self) {
        self.looks.troubled = true;
    }

    /// The same for one client.
    pub fn trouble_client(&mut self, client: usize) {
        self.looks.clients_us.insert(client, self.now_us);
    }

    /// Notes an event that is a trouble by itself. Changes of what is requested are none, nor are jumps of wall clocks: the return of
    /// grants does not depend on these. Where a clock makes a leader step down, that is a trouble of its partition.
    pub fn note_trouble(&mut self, event: &Event) {
        let troubles = match event {
            Event::Fault(fault) => !matches!(
                fault,
                Fault::Clock | Fault::Strobe | Fault::Break | Fault::Policy | Fault::Hold | Fault::Schedule
            ),
            Event::Start { .. }
            | Event::NodeResume { .. }
            | Event::Mend { .. }
            | Event::Heal
            | Event::Return { .. } => true,
            _ => false,
        };
        self.looks.troubled |= troubles;
    }

    /// Notes which node leads a partition.
    pub fn note_leader(&mut self, node: usize, boot: u64, observation: &Observation) {
        match observation {
            Observation::Established { partition, epoch } => {
                let leader = self.looks.leaders.entry(PartitionId(*partition)).or_default();
                *leader = (*leader).max((*epoch, node, boot));
            }
            Observation::SteppedDown { partition, epoch, .. } => {
                if let Some(leader) = self.looks.leaders.get_mut(&PartitionId(*partition)).filter(|of| of.0 == *epoch) {
                    leader.2 = 0;
                }
            }
            _ => {}
        }
    }

    /// Reports what is held, if it is time for that.
    pub fn look_at_claims(&mut self) {
        if self.now_us < self.looks.next_us {
            return;
        }
        self.looks.next_us = self.now_us + INTERVAL_US;
        let paused = self.nodes.iter().any(|node| node.paused_until_us > self.now_us);
        let troubled = std::mem::take(&mut self.looks.troubled) || paused || self.network.is_cut_anywhere();
        for client in 0..self.clients.len() {
            if self.clients[client].paused_until_us > self.now_us {
                self.trouble_client(client);
            }
        }
        let (rough, held) = (self.network.weather.is_rough(), self.held());
        let clients_us = std::mem::take(&mut self.looks.clients_us);
        self.tell(Happening::Looked(&Look { troubled, rough, clients_us: &clients_us, held: &held }));
        self.looks.clients_us = clients_us;
    }

    /// Claims of tasks that have not ended, by the tables of the leaders.
    fn held(&self) -> Vec<Held> {
        let mut all = Vec::new();
        for (partition, (_, node, boot)) in &self.looks.leaders {
            let process = &self.nodes[*node];
            let Some(running) = process.running.as_ref().filter(|_| process.boot == *boot) else { continue };
            let Some(table) = running.core.table(*partition) else { continue };
            let open = |id| running.core.task(*partition, id).is_some_and(|task| task.ended().is_none());
            let held = table.entries.iter().filter(|(id, entry)| entry.state == ClaimState::Held && open(id));
            all.extend(held.map(|(id, entry)| Held { partition: *partition, id: *id, token: entry.token }));
        }
        all
    }

    /// Reports a claim that a client sends to a node. It belongs to one of the client's unanswered calls.
    pub fn claim_sent(&mut self, client: usize, node: usize, claim: ClaimId) {
        let calls = self.clients[client].claiming();
        self.tell(Happening::Claims { client, node, claim, calls: &calls });
    }
}
