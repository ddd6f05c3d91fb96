//! Local clocks of claims: since when each claim is known, and when it may expire by that.

use super::ConsensusState;
use super::ages::{LeaseAges, name_of_quarantine};
use crate::claim_table::entry::{ClaimEntry, ClaimState};
use crate::config::{Config, mutant};
use crate::time::Now;
use crate::viewstamp::Viewstamp;
use norn_wire::{TaskId, Token};

/// During replay of the log: start of a claim that no later timestamp has dated yet. Later than all timestamps.
pub const UNDATED_US: u64 = 1 << 62;

/// Claim on the monotonic clock of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Clock {
    /// Token of the claim.
    pub token: Token,
    /// Latest time at which it can have been granted or last renewed. Negative if that was before the clock began.
    since_us: i64,
    /// When to check its end.
    pub at_us: u64,
}

/// Converts a clock reading for signed arithmetic.
pub(super) fn signed(mono_us: u64) -> i64 {
    i64::try_from(mono_us).unwrap_or(i64::MAX)
}

/// When a lease that began at `since_us` or earlier is over.
fn end_us(since_us: i64, lease_ms: u64, config: &Config) -> u64 {
    let length_us = signed(config.stretched_us(lease_ms));
    u64::try_from(since_us.saturating_add(length_us)).unwrap_or(0)
}

/// Lower bound on the age of what began at `since_us` or earlier.
fn age_us(since_us: i64, now_us: i64) -> i64 {
    now_us.saturating_sub(since_us).max(0)
}

impl ConsensusState {
    /// Starts the local clock of a quarantine.
    pub(super) fn note_quarantine(&mut self, since_us: i64, config: &Config) {
        let lease_ms = self.cohort.quarantine.map_or(0, |quarantine| quarantine.lease_ms);
        self.quarantine_since_us = since_us;
        self.quarantine_until_us = end_us(since_us, lease_ms, config);
    }

    /// Starts or moves the local clock of a claim. For the same token the deadline never moves earlier, except by `date`, when the claim
    /// turns out to be older.
    pub(super) fn arm(&mut self, id: TaskId, now: Now, config: &Config) {
        let before = self.deadlines.remove(&id);
        if let Some(Clock { at_us, .. }) = before {
            self.expiry.remove(&(at_us, id));
        }
        self.lapsed.remove(&id);
        self.overdue.remove(&id);
        self.note_session(id);
        let Some(entry) = self.table.entries.get(&id) else { return };
        self.by_claim.entry(entry.claim).or_default().insert(id);
        if entry.state != ClaimState::Held {
            return;
        }
        let (token, since_us) = (entry.token, signed(now.mono_us));
        let fresh_us = end_us(since_us, entry.lease_ms, config);
        let at_us = match before {
            Some(clock) if clock.token == token => clock.at_us.max(fresh_us),
            Some(_) | None => fresh_us,
        };
        let twice = self.deadlines.insert(id, Clock { token, since_us, at_us });
        assert!(twice.is_none(), "a claim has two clocks");
        assert!(self.expiry.insert((at_us, id)), "a claim has two deadlines");
        self.assert_armed();
    }

    /// Each claim with a clock has a deadline to check, unless it has lapsed.
    fn assert_armed(&self) {
        let checked = self.expiry.len() + self.lapsed.len();
        assert_eq!(self.deadlines.len(), checked, "a claim has a clock and no deadline, or the other way round");
    }

    pub(super) fn still_armed(&self, id: &TaskId) -> bool {
        let held = self.claim_entry(id).filter(|entry| entry.state == ClaimState::Held).map(|entry| entry.token);
        self.deadlines.get(id).map(|clock| clock.token) == held
    }

    /// Moves the start of a claim to `since_us`. A lapsed claim stays lapsed.
    fn date(&mut self, id: TaskId, since_us: i64, config: &Config) {
        let (Some(clock), Some(entry)) = (self.deadlines.get_mut(&id), self.table.entries.get(&id)) else { return };
        let at_us = end_us(since_us, entry.lease_ms, config);
        if self.expiry.remove(&(clock.at_us, id)) {
            assert!(self.expiry.insert((at_us, id)), "a claim has two deadlines");
        }
        (clock.since_us, clock.at_us) = (since_us, at_us);
    }

    /// During replay of the log: everything logged before this timestamp had happened by `ran_us`.
    pub fn date_all(&mut self, ran_us: u64, config: &Config) {
        let since_us = signed(ran_us);
        for (_, id) in self.expiry.split_off(&(UNDATED_US, TaskId::MIN)) {
            let at_us = self.deadlines[&id].at_us;
            self.expiry.insert((at_us, id));
            self.date(id, since_us, config);
        }
        if self.quarantine_since_us >= signed(UNDATED_US) {
            self.note_quarantine(since_us, config);
        }
    }

    /// At the end of the replay: claims are as old as the log shows after `ran_us` of uptime, and their clocks go on from now.
    /// Claims that the log does not date start now. No commit index is known, so every claim of this epoch is recent.
    pub fn rearm(&mut self, now: Now, ran_us: u64, config: &Config) {
        let (now_us, ran_us) = (signed(now.mono_us), signed(ran_us));
        let anew = mutant!(config, AgesForgotten);
        let since = |before_us: i64| if anew { now_us } else { now_us - age_us(before_us, ran_us) };
        self.note_quarantine(since(self.quarantine_since_us), config);
        self.levels.begin(&self.table, now.mono_us);
        let known = std::mem::take(&mut self.deadlines);
        self.expiry.clear();
        let ids: Vec<TaskId> = self.table.entries.keys().copied().collect();
        for id in ids {
            self.arm(id, now, config);
            if let Some(clock) = known.get(&id) {
                self.date(id, since(clock.since_us), config);
            }
        }
        self.recollect(config);
    }

    /// Returns the ages of the held claims and of the quarantine.
    pub fn ages(&self, now_us: u64, config: &Config) -> LeaseAges {
        let now_us = signed(now_us);
        // An age is capped just above the lease: more makes no difference.
        let age_ms = |since_us: i64, lease_ms: u64| {
            let age_us = age_us(since_us, now_us).unsigned_abs();
            age_us.min(config.stretched_us(lease_ms).saturating_add(1_000)) / 1_000
        };
        let point = |(id, clock): (&TaskId, &Clock)| {
            let entry = self.table.entries.get(id)?;
            Some((entry.renewed, age_ms(clock.since_us, entry.lease_ms)))
        };
        let quarantine = self.cohort.quarantine.map(|quarantine| {
            let age_ms = age_ms(self.quarantine_since_us, quarantine.lease_ms);
            (name_of_quarantine(quarantine), age_ms)
        });
        LeaseAges::new(self.deadlines.iter().filter_map(point).chain(quarantine).collect())
    }

    /// Adopts ages from another clock where they exceed the own ones by more than `least_us`. Returns whether any did.
    pub fn take_ages(&mut self, ages: &LeaseAges, now_us: u64, least_us: u64, config: &Config) -> bool {
        let now_us = signed(now_us);
        let told = |at: Viewstamp, since_us: i64| {
            let told_us = now_us.saturating_sub(signed(ages.of(at)?.saturating_mul(1_000)));
            (told_us.saturating_add_unsigned(least_us) < since_us).then_some(told_us)
        };
        let older = |(id, clock): (&TaskId, &Clock)| {
            let entry: &ClaimEntry = self.table.entries.get(id)?;
            Some((*id, told(entry.renewed, clock.since_us)?))
        };
        let older: Vec<(TaskId, i64)> = self.deadlines.iter().filter_map(older).collect();
        let quarantine = self
            .cohort
            .quarantine
            .and_then(|quarantine| told(name_of_quarantine(quarantine), self.quarantine_since_us));
        let any = !older.is_empty() || quarantine.is_some();
        for (id, since_us) in older {
            self.date(id, since_us, config);
        }
        if let Some(since_us) = quarantine {
            self.note_quarantine(since_us, config);
        }
        any
    }

    /// Whether there is any age to advertise: of a held claim or of the quarantine.
    pub fn has_clocks(&self) -> bool {
        !self.deadlines.is_empty() || self.cohort.quarantine.is_some()
    }

    /// First end, of a claim or of the quarantine, after `mono_us`. A claim that a leader keeps only because another clock says
    /// that it is not over counts as ended.
    pub fn first_end_after(&self, mono_us: u64, config: &Config) -> Option<u64> {
        let runs = |(_, id): &&(u64, TaskId)| {
            let entry = self.table.entries.get(id);
            entry.is_some_and(|entry| end_us(self.deadlines[id].since_us, entry.lease_ms, config) > mono_us)
        };
        let claim = self.expiry.range((mono_us + 1, TaskId::MIN)..).find(runs).map(|(at_us, _)| *at_us);
        let quarantine = self.cohort.quarantine.map(|_| self.quarantine_until_us).filter(|at_us| *at_us > mono_us);
        claim.into_iter().chain(quarantine).min()
    }

    /// First claim by its monotonic deadline.
    pub fn first_expiry(&self) -> Option<(u64, TaskId)> {
        self.expiry.first().copied()
    }

    /// Postpones the check of a claim whose wall-clock end has not come.
    pub fn postpone_expiry(&mut self, id: TaskId, at_us: u64) {
        let clock = self.deadlines.get_mut(&id).expect("it has a deadline");
        assert!(self.expiry.remove(&(clock.at_us, id)), "a claim is postponed that is not to be checked");
        assert!(self.expiry.insert((at_us, id)), "a claim has two deadlines");
        clock.at_us = at_us;
    }

    /// Marks a claim as expired by both clocks while its successor is not known, and checks it again at `at_us`. Returns whether
    /// that is news.
    pub fn await_lapse(&mut self, id: TaskId, at_us: u64) -> bool {
        self.postpone_expiry(id, at_us);
        self.overdue.insert(id)
    }

    /// Marks a claim as lapsed: it expired by both clocks, and the task can be granted again. The claim entry stays until another claim
    /// takes over.
    pub fn lapse(&mut self, id: TaskId) -> Token {
        let Clock { token, at_us, .. } = self.deadlines[&id];
        assert!(self.still_armed(&id), "a claim lapses that is not held");
        assert!(self.expiry.remove(&(at_us, id)), "a claim lapses that is not to be checked");
        self.overdue.remove(&id);
        assert!(self.lapsed.insert(id, token).is_none(), "a claim lapses twice");
        self.assert_armed();
        token
    }

    /// Forgets the lapsed claims of a leader that steps down. Their clocks go on.
    pub fn forget_lapsed(&mut self) -> Vec<TaskId> {
        self.overdue.clear();
        let lapsed = std::mem::take(&mut self.lapsed);
        for id in lapsed.keys() {
            if let Some(Clock { at_us, .. }) = self.deadlines.get(id) {
                assert!(self.expiry.insert((*at_us, *id)), "a lapsed claim has a deadline");
            }
        }
        self.assert_armed();
        lapsed.into_keys().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim_table::table::Op;
    use crate::cohort::{Change, GrantQuarantine};
    use crate::viewstamp::ReplicaId;
    use norn_wire::{ClaimId, NodeId};

    const LEASE_MS: u64 = 20_000;
    const QUARANTINE: GrantQuarantine = GrantQuarantine { until_ms: 30_000, lease_ms: LEASE_MS };

    fn replica(node: u128) -> ReplicaId {
        ReplicaId { node: NodeId(node), incarnation: 1 }
    }

    fn consensus() -> ConsensusState {
        let consensus = ConsensusState::new(replica(1), [1, 2, 3].map(replica).to_vec());
        ConsensusState { promised: 1, seen: 1, viewstamp: Viewstamp { epoch: 1, length: 0 }, ..consensus }
    }

    fn at(ms: u64) -> Now {
        Now { mono_us: 1_000_000 + ms * 1_000, wall_ms: ms }
    }

    fn id() -> TaskId {
        TaskId::new(1, 1, 0, 0)
    }

    /// Applies operations at these milliseconds after the start.
    fn apply<const N: usize>(consensus: &mut ConsensusState, ops: [(u64, Op); N]) {
        for (ms, op) in ops {
            consensus.apply(&op, at(ms), &Config::default()).unwrap();
        }
    }

    fn grant() -> Op {
        let (claim, items) = (ClaimId(1), vec![(id(), 1)]);
        Op::Grant { claim, worker: "w".into(), lease_ms: LEASE_MS, granted_ms: 0, items, session: None, lapsed: false }
    }

    fn rescue(lost: &[u128], quarantine: GrantQuarantine) -> Op {
        Op::Cohort(Change::Rescue { lost: lost.iter().copied().map(NodeId).collect(), at_ms: 0, quarantine })
    }

    fn ages(consensus: &ConsensusState, ms: u64) -> (Option<u64>, Option<u64>) {
        let ages = consensus.ages(at(ms).mono_us, &Config::default());
        let quarantine = consensus.cohort.quarantine.expect("it is silent");
        (ages.of(consensus.claim_entry(&id()).unwrap().renewed), ages.of(name_of_quarantine(quarantine)))
    }

    /// Goal: a quarantine that goes on while the cohort changes does not age a lease that began meanwhile, and the change does
    /// not lose the quarantine's own age. Method: a claim is renewed between a rescue and the removal of one of the lost
    /// replicas.
    #[test]
    fn a_silence_says_nothing_of_claims() {
        let config = Config::default();
        let mut consensus = consensus();
        let renewal = vec![(id(), Token { epoch: 1, number: 1 }, LEASE_MS, 31_000)];
        apply(
            &mut consensus,
            [
                (0, grant()),
                (1_000, rescue(&[2, 3], QUARANTINE)),
                (11_000, Op::Renew { items: renewal }),
                (11_500, Op::Cohort(Change::Clear { replica: replica(2) })),
            ],
        );
        assert_eq!(ages(&consensus, 12_000), (Some(1_000), Some(11_000)));
        // Nor at a replica that installed the table later and receives these ages.
        let mut other = self::consensus();
        other.install(consensus.viewstamp, Some(consensus.table.clone()), at(11_900), &config);
        assert_eq!(ages(&other, 12_000), (Some(100), Some(100)));
        let told = consensus.ages(at(12_000).mono_us, &config);
        assert!(other.take_ages(&told, at(12_000).mono_us, 0, &config));
        assert_eq!(ages(&other, 12_000), (Some(1_000), Some(11_000)));
        assert!(!consensus.take_ages(&other.ages(at(12_000).mono_us, &config), at(12_000).mono_us, 0, &config));
    }

    #[test]
    fn a_second_rescue_begins_a_silence_of_its_own() {
        let mut consensus = consensus();
        let second = GrantQuarantine { until_ms: 40_000, ..QUARANTINE };
        apply(&mut consensus, [(0, grant()), (0, rescue(&[3], QUARANTINE)), (10_000, rescue(&[2], second))]);
        assert_eq!(ages(&consensus, 12_000).1, Some(2_000));
        assert!(consensus.quarantine_until_us >= at(10_000 + LEASE_MS).mono_us);
    }

    /// Goal: a claim that a leader only checks again has ended by this clock.
    #[test]
    fn a_claim_that_another_clock_keeps_does_not_run_any_more() {
        let config = Config::default();
        let mut consensus = consensus();
        apply(&mut consensus, [(0, grant())]);
        let runs = |consensus: &ConsensusState, ms| consensus.first_end_after(at(ms).mono_us, &config).is_some();
        assert!(runs(&consensus, LEASE_MS - 1_000));
        consensus.postpone_expiry(id(), at(2 * LEASE_MS).mono_us);
        assert!(runs(&consensus, LEASE_MS - 1_000) && !runs(&consensus, LEASE_MS + 1_000));
    }
}
