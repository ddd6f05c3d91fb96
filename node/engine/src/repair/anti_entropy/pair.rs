//! Per-peer sync state: what this node knows of one partition at one peer, and of all partitions there.

use super::sync_session::SyncSession;
use norn_model::config::Config;
use norn_wire::PartitionId;
use std::collections::{BTreeMap, BTreeSet};

/// Rounds in which recent changes may fail to make roots equal before the trees are compared.
const STUCK_ROUNDS_MAX: u32 = 2;
/// Rounds that a comparison may stand still before a new one begins.
const PATIENCE_ROUNDS: u64 = 2;
/// Rounds without agreement after which differing replicas count as apart, rather than as just receiving the same writes.
const APART_ROUNDS: u64 = 3;

/// Sync state of one partition, between this node and one peer.
#[derive(Debug, Default)]
pub struct Pair {
    /// Change number up to which the peer knows everything; absent before the first agreement.
    pub cursor: Option<u64>,
    /// Rounds with different roots although the cursor is at the end.
    stuck: u32,
    /// Time at which both were last seen to be equal.
    agreed_us: Option<u64>,
    /// Time at which the peer last knew all recent changes of this node.
    level_us: Option<u64>,
    /// Whether the roots differed when they were last compared.
    differs: bool,
    /// Salt of the last comparison of trees, and the number of tasks that it found to differ, at least.
    found: Option<(u64, u64)>,
    /// Time at which a comparison of trees last went on.
    busy_us: Option<u64>,
    /// Whether the start of a comparison was left to the peer once.
    left: bool,
}

impl Pair {
    /// The state after a restart of the peer: the time of agreement stays true, all else may not be.
    pub fn anew(&self) -> Pair {
        Pair { agreed_us: self.agreed_us, ..Pair::default() }
    }

    /// Notes that both are equal; `changes` is the number of the latest change here.
    pub fn agreed(&mut self, now_us: u64, changes: u64) {
        assert!(self.agreed_us <= Some(now_us), "two replicas agreed in the future");
        *self = Pair { agreed_us: Some(now_us), cursor: Some(changes), ..Pair::default() };
    }

    /// Notes that the roots differ.
    pub fn differs(&mut self) {
        self.differs = true;
    }

    /// Notes that the peer knows all recent changes.
    pub fn is_level(&mut self, now_us: u64) {
        self.level_us = Some(now_us);
    }

    /// Counts a round with different roots. Returns whether recent changes do not help.
    pub fn is_stuck(&mut self, changes: u64) -> bool {
        self.stuck = if self.cursor == Some(changes) { self.stuck + 1 } else { 0 };
        self.stuck >= STUCK_ROUNDS_MAX
    }

    /// Notes that a comparison of trees goes on.
    pub fn goes_on(&mut self, now_us: u64) {
        self.busy_us = Some(now_us);
        self.left = false;
    }

    /// Whether this side may begin a comparison now. Both would in the same round, each at the full cost. So one side comes first, and
    /// the other begins only if nothing came of that for a round.
    pub fn may_begin(&mut self, comes_first: bool) -> bool {
        comes_first || std::mem::replace(&mut self.left, true)
    }

    /// Whether a comparison is under way, as far as this node knows.
    pub fn is_busy(&self, now_us: u64, config: &Config) -> bool {
        let patience_us = PATIENCE_ROUNDS * config.exchange_interval_ms * 1_000;
        self.busy_us.is_some_and(|busy_us| now_us < busy_us + patience_us)
    }

    /// Adds to the tasks that a comparison of trees found to differ.
    pub fn found(&mut self, salt: u64, tasks: u64) {
        let before = self.found.filter(|(before, _)| *before == salt).map_or(0, |(_, tasks)| tasks);
        self.found = Some((salt, before.saturating_add(tasks)));
    }

    /// Whether the replicas differ by more than what is on its way.
    pub fn is_apart(&self, now_us: u64, config: &Config) -> bool {
        let calm_us = APART_ROUNDS * config.exchange_interval_ms * 1_000;
        let last_us = self.agreed_us.max(self.level_us);
        self.differs && last_us.is_none_or(|last_us| now_us > last_us + calm_us)
    }

    /// Number of tasks that the last comparison found to differ, at least.
    pub fn differing(&self) -> Option<u64> {
        self.found.map(|(_, tasks)| tasks)
    }

    /// Time at which both last agreed.
    pub fn agreed_us(&self) -> Option<u64> {
        self.agreed_us
    }
}

/// Sync state with one peer.
#[derive(Debug, Default)]
pub struct Peer {
    /// Partitions that changed since both agreed.
    pub dirty: BTreeSet<PartitionId>,
    /// All partitions that both nodes hold.
    pub pairs: BTreeMap<PartitionId, Pair>,
    /// Messages still to be sent.
    pub sync_session: SyncSession,
}

impl Peer {
    /// The state for a peer of which nothing is known any more.
    pub fn anew(&self, shared: impl Iterator<Item = PartitionId>) -> Peer {
        let pairs: BTreeMap<PartitionId, Pair> =
            shared.map(|id| (id, self.pairs.get(&id).map_or_else(Pair::default, Pair::anew))).collect();
        Peer { dirty: pairs.keys().copied().collect(), pairs, sync_session: SyncSession::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_are_apart_when_they_differ_for_longer_than_a_write_takes() {
        let config = Config { exchange_interval_ms: 1_000, ..Config::default() };
        let mut pair = Pair::default();
        assert!(!pair.is_apart(0, &config), "they were never compared");
        pair.differs();
        assert!(pair.is_apart(0, &config), "they never agreed");
        pair.agreed(10_000_000, 5);
        pair.differs();
        assert!(!pair.is_apart(13_000_000, &config));
        assert!(pair.is_apart(13_000_001, &config));
        pair.is_level(13_000_000);
        assert!(!pair.is_apart(16_000_000, &config), "the peer knows all that is new here");
        pair.agreed(17_000_000, 6);
        assert!(!pair.is_apart(99_000_000, &config));
        assert_eq!((pair.cursor, pair.agreed_us()), (Some(6), Some(17_000_000)));
    }

    #[test]
    fn what_a_comparison_finds_adds_up_and_the_next_one_begins_at_nothing() {
        let mut pair = Pair::default();
        assert_eq!(pair.differing(), None);
        pair.found(1, 10);
        pair.found(1, 5);
        assert_eq!(pair.differing(), Some(15));
        pair.found(2, 0);
        assert_eq!(pair.differing(), Some(0));
    }

    #[test]
    fn recent_changes_are_given_up_after_two_rounds_without_any() {
        let mut pair = Pair::default();
        pair.agreed(1, 7);
        let rounds: Vec<bool> = [7, 7, 8, 8].into_iter().map(|changes| pair.is_stuck(changes)).collect();
        assert_eq!(rounds, [false, true, false, false]);
    }
}
