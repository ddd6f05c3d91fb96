//! Grants that a call already holds when a leader is asked: made for this question's first copy, for another question, or by another
//! leader.
//!
//! A broker resends a question whose answer does not come in time, so a broker that is far away asks everything twice. Grants of the
//! first copy are answered again as they were: they may be given back as long as only answers to this question have named them. Grants
//! that are found in any other way may be in a client's hands, through another broker: they are renewed, so that a broker which was
//! answered before comes too late if it gives them back unheard.

use super::super::broker::Grant;
use crate::Node;
use crate::claims::calls::Turns;
use norn_model::claim_table::table::Op;
use norn_model::consensus::Waiting;
use norn_model::replica::Partition;
use norn_wire::error::Error;
use norn_wire::{Claim, PartitionId, TaskId, Token};
use std::collections::BTreeSet;

impl Node {
    /// Adds the grants to an answer that this call holds already, except those in `got`. Returns how many.
    pub(super) fn recall(&mut self, session: u64, claim: &Claim, max: usize, got: &[TaskId]) -> usize {
        let knows = |id: &&PartitionId| self.partitions[id].consensus.knows_claim(&claim.claim);
        let (led, unready): (Vec<PartitionId>, Vec<PartitionId>) =
            self.led.iter().filter(knows).partition(|id| self.may_renew(**id));
        self.doubt(session, unready);
        let voids = self.open_voids(claim.claim);
        self.doubt(session, voids);
        let state = &self.claims.grants.sessions[&session];
        let made = self.claims.grants.made(state.to, state.request_id);
        let mut recalled = 0;
        let mut turns = Turns::default();
        for partition in led {
            let Partition { consensus, store, .. } = &self.partitions[&partition];
            let unproven = &consensus.leading().expect("it leads").unproven;
            let has_ended =
                |id: &TaskId| store.ended(id) || unproven.contains(&(*id, consensus.table.entries[id].token));
            // A claim of an ended task is not held, even if only a follower knows of the end. Nor is one of a task that has lost its
            // spec. Neither must take the place of another task.
            let open = |id: &TaskId| !has_ended(id) && !store.lacks_spec(id);
            let mut unclear = consensus.held_by(claim.claim).iter().any(|id| store.lacks_spec(id));
            let mut has_turn = |id: &TaskId| {
                let checked = self.check_turn(id, &mut turns);
                unclear |= checked.as_ref().is_err_and(Error::passes);
                checked.is_ok()
            };
            let open = consensus.held_by(claim.claim).into_iter().filter(|id| open(id) && !got.contains(id));
            let open = open.filter(|id| has_turn(id));
            let mut held: Vec<(TaskId, Token)> = open.map(|id| (id, consensus.table.entries[&id].token)).collect();
            // The call may hold more than it asks for, through questions whose answers were lost.
            unclear |= held.len() > max - recalled;
            held.truncate(max - recalled);
            self.doubt(session, unclear.then_some(partition));
            recalled += held.len();
            assert!(recalled <= max, "a call gets back more than it asked for");
            self.fetch_bodies(session, partition, held.iter().map(|(id, _)| *id));
            let found = self.tell_again(session, partition, held, &made);
            self.renew_found(session, partition, claim, found);
        }
        recalled
    }

    /// Answers again with grants that were made for this question and have not changed since. Returns the others.
    fn tell_again(
        &mut self,
        session: u64,
        partition: PartitionId,
        held: Vec<(TaskId, Token)>,
        made: &BTreeSet<Grant>,
    ) -> Vec<(TaskId, Token)> {
        let mut found = Vec::new();
        for item in held {
            let at = self.partitions[&partition].consensus.table.entries[&item.0].renewed;
            if made.contains(&(item.0, item.1, at)) {
                self.claims.grants.sessions.get_mut(&session).expect("under way").repeated.insert(item.0);
                self.tell(partition, Some(at), session, &item);
            } else {
                found.push(item);
            }
        }
        found
    }

    fn renew_found(&mut self, session: u64, partition: PartitionId, claim: &Claim, found: Vec<(TaskId, Token)>) {
        if found.is_empty() {
            return;
        }
        let renewed = |(id, token): &(TaskId, Token)| {
            let had_ms = self.partitions[&partition].consensus.table.entries[id].lease_ms;
            let lease_ms = self.policy_of_task(partition, id).map_or(had_ms, |policy| policy.lease_of(claim));
            (*id, *token, lease_ms, self.now.wall_ms.saturating_add(lease_ms))
        };
        let items = found.iter().map(renewed).collect();
        self.wait_for(session, partition);
        self.append(partition, Op::Renew { items }, Some(Waiting::Grant { session, items: found, fresh: false }));
    }

    /// Marks partitions of which the answer does not name all grants.
    pub(super) fn doubt(&mut self, session: u64, partitions: impl IntoIterator<Item = PartitionId>) {
        if let Some(state) = self.claims.grants.sessions.get_mut(&session) {
            state.unsure.extend(partitions);
        }
    }
}
