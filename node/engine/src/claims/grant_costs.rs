//! Costs of a grant beside its task: a rate token of its queue's rate (`rate_tokens.rs`), and the turn of its task's key
//! (`model/src/replica/fair_queues.rs`). A revoked grant reached no client, so both go back. The turn goes back at once, because only this
//! leader keeps it; the rate token goes back once the revocation is committed, because before that a later leader may still find the
//! grant in its table. A concurrency slot (`slot_quotas.rs`) needs no entry, because held claims are counted.
//!
//! Soft state of the leader that made the grant: if another leader revokes it, only its task comes back.

use crate::Node;
use norn_model::limits::GRANT_COST_MS;
use norn_model::replica::fair_queues::Served;
use norn_wire::{PartitionId, QueueName, TaskId, Token};
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

/// Maximum number of remembered grants; the latest ones stay.
const GRANT_COSTS_MAX: usize = 10_000;

/// Cost of a grant.
#[derive(Debug)]
pub(crate) struct Cost {
    /// Queue, and number of the request that brought the rate token.
    pub rate_token: Option<(QueueName, u64)>,
    /// Change of the key's line.
    pub turn: Option<Served>,
}

/// Costs of recent grants.
#[derive(Debug, Default)]
pub struct GrantCosts {
    grants: BTreeMap<TaskId, (Token, Cost)>,
    /// Expiry of each entry, in order.
    order: VecDeque<(u64, TaskId, Token)>,
}

impl GrantCosts {
    fn note(&mut self, (id, token): (TaskId, Token), cost: Cost, now_us: u64) {
        let in_order = self.order.back().is_none_or(|(last_us, ..)| *last_us <= now_us + GRANT_COST_MS * 1_000);
        assert!(in_order, "costs are not remembered in the order in which they are forgotten");
        self.grants.insert(id, (token, cost));
        self.order.push_back((now_us + GRANT_COST_MS * 1_000, id, token));
        let is_over = |order: &VecDeque<(u64, TaskId, Token)>| {
            order.len() > GRANT_COSTS_MAX || order.front().is_some_and(|(until_us, ..)| *until_us <= now_us)
        };
        while is_over(&self.order)
            && let Some((_, id, token)) = self.order.pop_front()
        {
            self.take(&id, token);
        }
        assert!(self.order.len() <= GRANT_COSTS_MAX, "too many costs are remembered");
        assert!(self.grants.len() <= self.order.len(), "a cost is remembered for ever");
    }

    fn take(&mut self, id: &TaskId, token: Token) -> Option<Cost> {
        let (of, _) = self.grants.get(id)?;
        (*of == token).then(|| self.grants.remove(id).expect("just seen").1)
    }
}

impl Node {
    /// Notes the cost of a grant.
    pub(crate) fn note_cost(&mut self, grant: (TaskId, Token), cost: Cost) {
        if cost.rate_token.is_some() || cost.turn.is_some() {
            self.claims.grant_costs.note(grant, cost, self.now.mono_us);
        }
    }

    /// Takes the costs of grants that are being revoked.
    pub(crate) fn costs_of(&mut self, items: &[(TaskId, Token)]) -> Vec<(TaskId, Cost)> {
        items.iter().filter_map(|(id, token)| Some((*id, self.claims.grant_costs.take(id, *token)?))).collect()
    }

    /// Gives keys their turns back. For a key that was served more than once, the latest grant is undone first.
    pub(crate) fn restore_turns(&mut self, partition: PartitionId, costs: &[(TaskId, Cost)]) {
        let mut turns: Vec<(Served, TaskId)> = costs.iter().filter_map(|(id, cost)| Some((cost.turn?, *id))).collect();
        turns.sort_by_key(|(served, _)| Reverse(served.place()));
        let replica = self.partitions.get_mut(&partition).expect("asked for own partitions only");
        for (served, id) in turns {
            replica.store.take_back(&id, served);
        }
    }
}
