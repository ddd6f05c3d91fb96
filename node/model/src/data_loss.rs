//! Data loss of a replica: what its log lost, and how it recovers.
//!
//! **While the log is replayed** the host reports where records are missing. What follows such a place was written by a node that knew
//! them, so it need not fit:
//!
//! - Facts merge in any order; whatever is left of them is taken.
//! - Equal viewstamps mean equal tables. Operations that begin where the table stands fit, whatever was lost. All others are skipped, as
//!   are installations by name alone, which do not say whose table they name. Endings in skipped operations are facts, and are taken.
//! - A whole table restores the table's content. The duty to recover stays, as the acknowledged length is not known.
//!
//! **Operations and installations carry endings**, and a write that adds nothing new is acknowledged without a record of its own. So a
//! replica that lost a part of the table may have lost facts, too.
//!
//! **A record closes only losses that its writer knew of.** Damage stays where it is in the log, so each start finds it again, before
//! records that were written after recovery from it. Each record of a data loss therefore carries a digest of all losses known by then.
//! Where that equals the digest of what this replay found, the record counts, and from there on everything fits again: its writer stood
//! where the replay stands. Where it differs, there is a loss that its writer did not know of, and the data loss stays open. A state that
//! does not contain the damage any more begins with the record itself.
//!
//! **A replica whose table has lost something** (R-12) does not vote, campaign, count or hand its table out: it may have acknowledged, in
//! epochs up to its promise, what it does not have. It counts again when it has reached the length that the leader of an epoch not below
//! its promise had when it answered a question asked after the start. Whatever the replica acknowledged in that epoch, the leader had by
//! then. Whatever it acknowledged in earlier epochs and was committed by that is in the leader's table: a majority voted for the leader
//! without relying on what is lost, and it meets the rest of the quorum in a replica that voted after acknowledging. So the leader need
//! not be established. But a bare installation is not enough: the leader of the very epoch of the promise may send it again, and may
//! commit by an acknowledgement from before the loss.
//!
//! **Incomplete facts**: acknowledged facts may be missing. The replica stores and acknowledges, but does not count for anything
//! that rests on what it does not know: not for grants (its silence does not mean that a task goes on), not for reads, and not for strict
//! writes. A fact that arrives now is as durable here as anywhere. But a strict write also asserts that no other content stands under its
//! key and that its task is known, and a replica with incomplete facts can assert neither.
//!
//! The replica is whole again when it has agreed with enough others: when it had the same facts, in each group of buckets at some moment.
//! Under heavy writes two replicas are hardly ever equal as a whole, and need not be. A strictly acknowledged fact is on a majority `m`
//! of `n` replicas, so at least `m - 1` of the `n - 1` others have it; a replica that has agreed with `n - m + 1` of them has met one of
//! those. That is 2 of the 2 others among 3, 3 of the 4 others among 5, and 1 of 0 for a single replica: alone, it has no other to learn
//! from. Agreement with others that have incomplete facts does not count. Neither does agreement before every member of the cluster knows
//! of this incarnation: until then an acknowledgement from before the loss may still be counted, together with one of a replica that stored
//! the fact after it had agreed.

use norn_wire::{NodeId, TaskId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::limits::GROUPS;
use crate::rules;
use crate::viewstamp::Viewstamp;

/// The parts of a replica's state that may be incomplete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DataLoss {
    /// Facts about tasks that it acknowledged.
    pub facts: bool,
    /// Operations and installations of the table that it acknowledged. Never without `facts`.
    pub table: bool,
}

impl DataLoss {
    /// Whether nothing is missing.
    pub fn is_whole(&self) -> bool {
        *self == DataLoss::default()
    }
}

/// The data loss of one replica, and the progress of recovery.
#[derive(Debug, Default)]
pub struct LossRecovery {
    /// Durable: what may be missing.
    pub data_loss: DataLoss,
    /// Durable: digest of all losses that the replica knows of.
    pub losses: u64,
    /// Whether this replay found a loss.
    found: bool,
    /// Whether no record of the log covers all losses found yet.
    unlogged: bool,
    /// Whether operations need not fit here: the replay is behind a loss.
    passing: bool,
    /// Number of the first recovery question to a leader in this incarnation.
    pub asked: Option<u64>,
    /// The viewstamp that the table must reach to count again.
    pub target: Option<Viewstamp>,
    /// Members that agreed on the facts, at the present version of the cohort.
    pub agreed: BTreeSet<NodeId>,
    /// Groups of buckets agreed on, for members that have not agreed on all.
    groups: BTreeMap<NodeId, BTreeSet<u16>>,
    /// Rounds of anti-entropy before this one began at an earlier version.
    pub agree_from: u64,
    /// Tasks known here that others have forgotten, and by which others.
    gone: BTreeMap<TaskId, BTreeSet<NodeId>>,
}

impl LossRecovery {
    /// Notes that records are missing at this place of the replay. `loss` identifies them, the same in every start.
    pub fn lose(&mut self, loss: u64, data_loss: DataLoss) {
        assert!(!data_loss.is_whole(), "a loss is of something");
        let mut bytes = [0; 9];
        bytes[..8].copy_from_slice(&loss.to_be_bytes());
        bytes[8] = u8::from(data_loss.table);
        self.losses = xxh3_64_with_seed(&bytes, self.losses);
        self.data_loss.facts = true;
        self.data_loss.table |= data_loss.table;
        self.passing |= data_loss.table;
        self.found = true;
        self.unlogged = true;
    }

    /// Replays a record of a data loss, with the digest of the losses that its writer knew of.
    pub fn replay(&mut self, data_loss: DataLoss, losses: u64) {
        if self.found && losses != self.losses {
            self.data_loss.facts |= data_loss.facts;
            self.data_loss.table |= data_loss.table;
            return;
        }
        self.data_loss = data_loss;
        self.losses = losses;
        self.passing = false;
        self.unlogged = false;
    }

    /// Notes that another replica has forgotten a task known here. Returns how many have.
    pub fn gone(&mut self, id: TaskId, by: NodeId) -> usize {
        let others = self.gone.entry(id).or_default();
        others.insert(by);
        others.len()
    }

    /// Whether records of the table may be skipped here.
    pub fn is_passing(&self) -> bool {
        self.passing
    }

    /// Notes that a whole table was replayed: what follows fits again.
    pub fn replayed_table(&mut self) {
        self.passing = false;
    }

    /// Ends the replay. Returns whether the data loss must be logged.
    pub fn end_replay(&mut self) -> bool {
        self.passing = false;
        std::mem::take(&mut self.unlogged)
    }

    /// Marks facts as incomplete although no record is lost. Returns whether that is new.
    pub fn open_facts(&mut self) -> bool {
        self.agreed.clear();
        self.groups.clear();
        !std::mem::replace(&mut self.data_loss.facts, true)
    }

    /// Restarts agreement for a changed cohort: earlier agreements may not cover everything.
    pub fn begin_anew(&mut self, round: u64) {
        self.agreed.clear();
        self.groups.clear();
        self.gone.clear();
        self.agree_from = round;
    }

    /// Whether a member has not agreed on a group of buckets yet.
    pub fn is_open(&self, node: NodeId, group: u16) -> bool {
        !self.groups.get(&node).is_some_and(|groups| groups.contains(&group))
    }

    /// Notes that a member has the same facts in these groups. Returns whether it has agreed on all groups by now: facts only grow, so
    /// each group may have been equal at a moment of its own.
    pub fn agree_on(&mut self, node: NodeId, equal: &[u16]) -> bool {
        let groups = self.groups.entry(node).or_default();
        groups.extend(equal.iter().filter(|group| usize::from(**group) < GROUPS));
        assert!(groups.len() <= GROUPS, "a member agrees on more groups than there are");
        groups.len() == GROUPS
    }

    /// Closes what has recovered, for a replica that stands at `viewstamp` and has agreed with `enough` members. Returns whether anything
    /// changed.
    pub fn close(&mut self, viewstamp: Viewstamp, enough: bool) -> bool {
        let before = self.data_loss;
        if rules::has_recovered(viewstamp, self.target) {
            self.data_loss.table = false;
            self.target = None;
        }
        // In this order, so that a replica that counts for grants counts for commits.
        if !self.data_loss.table && enough {
            self.data_loss.facts = false;
            self.gone.clear();
        }
        self.data_loss != before
    }
}

/// Number of others that a replica with incomplete facts must agree with, in a cohort of this size.
pub fn agreements_needed(replicas: usize) -> usize {
    assert!(replicas > 0, "a cohort has members");
    let majority = replicas / 2 + 1;
    let needed = replicas - majority + 1;
    assert!(needed + majority > replicas, "those that agree may miss every holder of a fact");
    needed
}

/// Whether the others of a cohort can make a data loss good. Without a majority among them there is no leader.
pub fn is_recoverable(data_loss: DataLoss, replicas: usize) -> bool {
    assert!(replicas > 0, "a cohort has members");
    let others = replicas - 1;
    let majority = replicas / 2 + 1;
    (!data_loss.facts || others >= agreements_needed(replicas)) && (!data_loss.table || others >= majority)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FACTS: DataLoss = DataLoss { facts: true, table: false };
    const BOTH: DataLoss = DataLoss { facts: true, table: true };
    const WHOLE: DataLoss = DataLoss { facts: false, table: false };

    #[test]
    fn whoever_agreed_with_enough_others_met_every_strict_fact() {
        assert_eq!([1, 3, 5].map(agreements_needed), [1, 2, 3]);
        for replicas in 1..=7_usize {
            let majority = replicas / 2 + 1;
            let (others, holders) = (replicas - 1, majority - 1);
            // The others that agreed may be the very ones that do not hold the fact.
            assert_eq!(agreements_needed(replicas), others - holders + 1);
        }
        assert!(
            !is_recoverable(FACTS, 1)
                && is_recoverable(FACTS, 2)
                && !is_recoverable(BOTH, 2)
                && is_recoverable(BOTH, 3)
        );
    }

    #[test]
    fn a_record_closes_only_what_its_writer_knew_of() {
        let mut first = LossRecovery::default();
        first.lose(7, BOTH);
        assert!(first.end_replay());
        let closing = first.losses;

        let mut again = LossRecovery::default();
        again.lose(7, BOTH);
        assert!(again.is_passing());
        again.replay(WHOLE, closing);
        assert!(again.data_loss.is_whole() && !again.is_passing() && !again.end_replay());

        // Another loss before the record, the same or a smaller one: in each case its writer did not know of it.
        for lost in [vec![7, 8], vec![3, 7], vec![8]] {
            let mut more = LossRecovery::default();
            lost.into_iter().for_each(|ordinal| more.lose(ordinal, BOTH));
            more.replay(WHOLE, closing);
            assert!(more.data_loss == BOTH && more.is_passing() && more.end_replay());
        }

        // A later loss opens it again. A state that begins with the record is believed.
        let mut later = LossRecovery::default();
        later.replay(WHOLE, closing);
        assert!(later.data_loss.is_whole());
        later.lose(99, FACTS);
        assert!(later.data_loss == FACTS && !later.is_passing() && later.end_replay());
        assert_ne!(later.losses, closing);
    }

    #[test]
    fn the_table_comes_first_and_only_at_its_target() {
        let at = |length| Viewstamp { epoch: 4, length };
        let mut loss_recovery = LossRecovery::default();
        loss_recovery.lose(1, BOTH);
        assert!(!loss_recovery.close(at(9), true), "nobody said how long the table was");
        loss_recovery.target = Some(at(9));
        assert!(!loss_recovery.close(at(8), true));
        assert!(loss_recovery.close(at(9), false) && !loss_recovery.data_loss.table);
        assert!(loss_recovery.close(at(9), true) && loss_recovery.data_loss.is_whole());
    }
}
