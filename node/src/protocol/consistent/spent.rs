//! What a grant costs beside its task: a permit of its queue's rate (`permits.rs`), and the turn of its task's key
//! (`partition/lines.rs`). A grant that is taken back was nobody's, so both go back: the turn at once, as it is this leader's own
//! affair, and the permit once it is committed that the grant is void. Before, a later leader may still find the grant in its table.
//! A place among the claims that are held at once (`quotas.rs`) needs no note, as it is counted by what is held.
//!
//! Soft state, of the leader that made the grant: where another one takes it back, only its task comes back.

use crate::limits::SPENT_MS;
use crate::protocol::Node;
use crate::protocol::partition::lines::Served;
use norn_wire::{PartitionId, QueueName, TaskId, Token};
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

/// Grants of which it is known at the most; the latest ones.
const SPENT_MAX: usize = 10_000;

/// What a grant has cost.
#[derive(Debug)]
pub(super) struct Cost {
    /// Queue, and the question that brought the permit.
    pub permit: Option<(QueueName, u64)>,
    /// How its line changed.
    pub turn: Option<Served>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Spent {
    grants: BTreeMap<TaskId, (Token, Cost)>,
    /// Until when each is known.
    order: VecDeque<(u64, TaskId, Token)>,
}

impl Spent {
    fn note(&mut self, (id, token): (TaskId, Token), cost: Cost, now_us: u64) {
        self.grants.insert(id, (token, cost));
        self.order.push_back((now_us + SPENT_MS * 1_000, id, token));
        let is_over = |order: &VecDeque<(u64, TaskId, Token)>| {
            order.len() > SPENT_MAX || order.front().is_some_and(|(until_us, ..)| *until_us <= now_us)
        };
        while is_over(&self.order)
            && let Some((_, id, token)) = self.order.pop_front()
        {
            self.take(&id, token);
        }
    }

    fn take(&mut self, id: &TaskId, token: Token) -> Option<Cost> {
        let (of, _) = self.grants.get(id)?;
        (*of == token).then(|| self.grants.remove(id).expect("just seen").1)
    }
}

impl Node {
    /// A grant is made.
    pub(super) fn note_cost(&mut self, grant: (TaskId, Token), cost: Cost) {
        if cost.permit.is_some() || cost.turn.is_some() {
            self.spent.note(grant, cost, self.now.mono_us);
        }
    }

    /// Grants are being taken back: what they cost.
    pub(super) fn costs_of(&mut self, items: &[(TaskId, Token)]) -> Vec<(TaskId, Cost)> {
        items.iter().filter_map(|(id, token)| Some((*id, self.spent.take(id, *token)?))).collect()
    }

    /// Keys have their turns back. Of one that was served more than once the latest grant is undone first.
    pub(super) fn restore_turns(&mut self, partition: PartitionId, costs: &[(TaskId, Cost)]) {
        let mut turns: Vec<(Served, TaskId)> = costs.iter().filter_map(|(id, cost)| Some((cost.turn?, *id))).collect();
        turns.sort_by_key(|(served, _)| Reverse(served.place()));
        let replica = self.partitions.get_mut(&partition).expect("asked for own partitions only");
        for (served, id) in turns {
            replica.store.take_back(&id, served);
        }
    }
}
