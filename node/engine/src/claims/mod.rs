//! The claim service: brokers ask leaders for grants, leaders make them and end them.

pub mod broker;
pub mod calls;
pub mod demand;
pub mod grant_costs;
pub mod grants;
pub mod heads;
pub mod policies;
pub mod rate_tokens;
pub mod seals;
pub mod sessions;
pub mod slot_quotas;

use crate::event::ClientId;
use broker::Broker;
use calls::Calls;
use demand::Demand;
use grant_costs::GrantCosts;
use grants::questions::Grants;
use heads::Heads;
use norn_wire::PartitionId;
use rate_tokens::RateTokens;
use sessions::Sessions;
use slot_quotas::SlotQuotas;

/// Pause before the end of a claim is tried again whose task a transaction keeps as it is.
const LOCKED_MS: u64 = 100;

/// Calls for tasks at this node, and what leaders here grant. Its fields are private to this folder.
#[derive(Debug, Default)]
pub struct Claims {
    broker: Broker,
    grants: Grants,
    calls: Calls,
    demand: Demand,
    rate_tokens: RateTokens,
    grant_costs: GrantCosts,
    slot_quotas: SlotQuotas,
    heads: Heads,
    sessions: Sessions,
}

impl Claims {
    /// Notes that a client shows life.
    pub(crate) fn hear(&mut self, client: ClientId, now_us: u64, is_ping: bool) {
        self.broker.hear(client, now_us, is_ping);
    }

    /// Number of calls that wait at this node.
    pub(crate) fn calls_waiting(&self) -> usize {
        self.broker.count()
    }

    /// Whether a grant is under way.
    pub(crate) fn is_granting(&self, session: u64) -> bool {
        self.grants.is_under_way(session)
    }

    /// Forgets what only the leader of the partition keeps.
    pub(crate) fn step_down(&mut self, partition: PartitionId) {
        self.sessions.step_down(partition);
        self.grants.step_down(partition);
    }
}

#[cfg(test)]
impl Claims {
    pub(crate) fn broker(&self) -> &Broker {
        &self.broker
    }

    pub(crate) fn heads(&self) -> &Heads {
        &self.heads
    }
}
