//! A replica's consensus state of one partition: promise, vote, table, and the local clocks of the claims in it.

mod ages;
mod clocks;
mod leading;
mod retention;
mod role;
mod waiting;

use super::cohort::Cohort;
use super::rules;
use crate::claim_table::levels::{Applied, Level};
use crate::claim_table::table::{ClaimEntry, ClaimState, ClaimTable, Misfit, Op};
use crate::config::{Config, mutant};
use crate::limits::{
    ENDINGS_BYTES_MAX, OPS_KEPT_BYTES_MAX, OPS_KEPT_MAX, OPS_LATE_BYTES_MAX, OPS_UNCOMMITTED_MAX, within,
};
use crate::metadata::Metadata;
use crate::time::Now;
use crate::viewstamp::{Epoch, ReplicaId, Viewstamp};
pub use ages::{AgeExchange, LeaseAges};
use clocks::Clock;
pub use clocks::UNDATED_US;
pub use leading::{Changing, Leading, Progress};
use norn_wire::{ClaimId, NodeId, QueueName, TaskId, Token};
pub use retention::{Archiving, Retiring};
pub use retention::{Batch, Due, Loss};
pub use role::{Leader, Rescue, Role};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
pub use waiting::{Asked, Giving, Name, Sealing, SlotQuotaChange, Waiting};

/// Recent claims beyond which superseded ones are pruned.
const RECENT_CLAIMS_MAX: usize = 4 * OPS_UNCOMMITTED_MAX as usize;

/// Claim status of a task: what keeps it from being claimed, beside its own facts.
#[derive(Debug, Clone, Copy, Default)]
pub struct Hold<'a> {
    /// Claim-table entry of the task.
    pub entry: Option<&'a ClaimEntry>,
    /// The leader saw that claim expire.
    pub lapsed: bool,
    /// A transaction locks the task.
    pub locked: bool,
}

/// Consensus state of one replica.
#[derive(Debug)]
pub struct ConsensusState {
    /// This replica.
    pub me: ReplicaId,
    /// Durable: highest epoch voted for or followed.
    pub promised: Epoch,
    /// Durable: candidate that has this replica's vote in `promised`.
    pub voted_for: Option<ReplicaId>,
    /// Durable: state version of `table`.
    pub viewstamp: Viewstamp,
    /// Durable: claim table.
    pub table: ClaimTable,
    /// Replica group by the table; at genesis in the order of preference.
    pub cohort: Cohort,
    /// Replica group at genesis.
    founded: Cohort,
    /// Table at genesis.
    origin: ClaimTable,
    /// Operations of `viewstamp.epoch` known to be committed.
    pub commit: u64,
    /// Volatile: follower, candidate or leader.
    pub role: Role,
    /// Leader, as far as known.
    pub leader: Option<Leader>,
    /// When the leader last sent something for this partition.
    pub heard_us: u64,
    /// Highest epoch seen anywhere, for the next campaign.
    pub seen: Epoch,
    /// Claims granted or renewed by operations above `commit`, by number of the operation.
    recent: BTreeMap<u64, Vec<TaskId>>,
    /// Progress of the exchange of lease ages with the leader, since the table was last installed.
    pub age_exchange: AgeExchange,
    /// While the cohort is in quarantine: earliest time for grants, by this process's monotonic clock.
    pub quarantine_until_us: u64,
    /// Size of `recent` above which superseded claims are pruned.
    recent_max: usize,
    /// When the quarantine of the cohort began, by the same clock.
    quarantine_since_us: i64,
    /// Held claims with their deadlines on this process's monotonic clock.
    deadlines: BTreeMap<TaskId, Clock>,
    /// The same claims by deadline.
    expiry: BTreeSet<(u64, TaskId)>,
    /// Claims that this leader saw expire.
    lapsed: BTreeMap<TaskId, Token>,
    /// Claims expired by both clocks whose successor is not known yet.
    overdue: BTreeSet<TaskId>,
    /// Tasks by the call that claimed them.
    by_claim: BTreeMap<ClaimId, BTreeSet<TaskId>>,
    /// Tasks held under a worker session, by session.
    by_session: BTreeMap<TaskId, BTreeSet<TaskId>>,
    /// Sessions by the task held under them.
    sessions: BTreeMap<TaskId, TaskId>,
    /// When this process applied the rate levels of the table.
    levels: Applied,
    /// Mutant: a known bug, put back for tests.
    #[cfg(feature = "mutants")]
    flaw: Option<crate::config::Mutant>,
}

impl ConsensusState {
    /// Returns the consensus state of a replica that has only the table of genesis; `founders` in the order of preference.
    pub fn new(me: ReplicaId, founders: Vec<ReplicaId>) -> ConsensusState {
        let founded = Cohort::founded(&founders);
        ConsensusState {
            me,
            promised: 0,
            voted_for: None,
            viewstamp: Viewstamp::default(),
            table: ClaimTable::new(founders.clone()),
            origin: ClaimTable::new(founders),
            cohort: founded.clone(),
            founded,
            commit: 0,
            role: Role::Follower,
            leader: None,
            heard_us: 0,
            seen: 0,
            recent: BTreeMap::new(),
            quarantine_until_us: 0,
            quarantine_since_us: 0,
            age_exchange: AgeExchange::Unasked,
            recent_max: RECENT_CLAIMS_MAX,
            deadlines: BTreeMap::new(),
            expiry: BTreeSet::new(),
            lapsed: BTreeMap::new(),
            overdue: BTreeSet::new(),
            by_claim: BTreeMap::new(),
            by_session: BTreeMap::new(),
            sessions: BTreeMap::new(),
            levels: Applied::default(),
            #[cfg(feature = "mutants")]
            flaw: None,
        }
    }

    /// Returns the consensus state of the same replica without its table; promise and vote stay.
    pub fn cleared(&self) -> ConsensusState {
        assert!(self.leading().is_none(), "the table of a leader is dropped");
        let founders = self.founded.members.iter().map(|slot| slot.replica).collect();
        let ConsensusState { promised, voted_for, seen, .. } = *self;
        let (table, origin) = (self.origin.clone(), self.origin.clone());
        ConsensusState { promised, voted_for, seen, table, origin, ..ConsensusState::new(self.me, founders) }
    }

    /// Restores promise and vote from the log.
    pub fn recover_vote(&mut self, promised: Epoch, voted_for: Option<ReplicaId>) {
        self.promised = promised;
        self.voted_for = voted_for;
        self.seen = self.seen.max(promised);
    }

    /// Sets up the metadata group of a new cluster.
    pub fn begin_metadata(&mut self, metadata: Metadata) {
        assert!(self.viewstamp == Viewstamp::default(), "a cluster is founded once");
        self.origin.begin_metadata(metadata);
        self.table = self.origin.clone();
    }

    /// Returns a task's claim-table entry.
    pub fn claim_entry(&self, id: &TaskId) -> Option<&ClaimEntry> {
        self.table.entries.get(id)
    }

    /// Whether this leader saw the task's current claim expire.
    pub fn is_lapsed(&self, id: &TaskId) -> bool {
        self.lapsed.get(id).is_some_and(|token| self.claim_entry(id).is_some_and(|entry| entry.token == *token))
    }

    /// Returns a task's claim status.
    pub fn hold(&self, id: &TaskId) -> Hold<'_> {
        Hold { entry: self.claim_entry(id), lapsed: self.is_lapsed(id), locked: self.table.ledger.is_locked(id) }
    }

    /// Whether the claim lapsed, or expired by both clocks with its successor not known yet.
    pub fn has_run_out(&self, id: &TaskId) -> bool {
        self.is_lapsed(id) || self.overdue.contains(id)
    }

    /// The leader's state, if this replica leads.
    pub fn leading(&self) -> Option<&Leading> {
        match &self.role {
            Role::Leader(leading) => Some(leading),
            Role::Follower | Role::PreCandidate { .. } | Role::Candidate { .. } => None,
        }
    }

    /// The leader's state, if this replica leads.
    pub fn leading_mut(&mut self) -> Option<&mut Leading> {
        match &mut self.role {
            Role::Leader(leading) => Some(leading),
            Role::Follower | Role::PreCandidate { .. } | Role::Candidate { .. } => None,
        }
    }

    /// Whether this replica leads and its installation is committed.
    pub fn established(&self) -> bool {
        self.leading().is_some_and(|leading| leading.established)
    }

    /// At a leader: the highest operation that a quorum has acknowledged with a whole table.
    pub fn held(&self) -> Option<u64> {
        let leading = self.leading()?;
        let commit_ack_index =
            |node: NodeId| leading.progress.get(&node).and_then(|progress| progress.commit_ack_index);
        let lengths = leading.progress.values().filter_map(|progress| progress.commit_ack_index);
        let held = rules::reached(lengths, |length| self.quorum(|node| commit_ack_index(node) >= Some(length)));
        assert!(held <= Some(self.viewstamp.length), "a quorum has acknowledged more than there is");
        held
    }

    /// Whether `present` holds for a majority of the members and, in joint consensus, of the next members.
    pub fn quorum(&self, present: impl FnMut(NodeId) -> bool) -> bool {
        #[cfg(feature = "mutants")]
        if let Some(flaw) = self.flaw {
            return self.flawed_quorum(flaw, present);
        }
        self.cohort.quorum(present)
    }

    #[cfg(feature = "mutants")]
    fn flawed_quorum(&self, flaw: crate::config::Mutant, mut present: impl FnMut(NodeId) -> bool) -> bool {
        use crate::config::Mutant;
        match flaw {
            Mutant::JointNewSideOnly if self.cohort.is_joint() => self.cohort.next_quorum(present),
            Mutant::HalfCounts if self.cohort.is_stable() => {
                let members: Vec<NodeId> = self.cohort.members().collect();
                2 * members.iter().filter(|node| present(**node)).count() >= members.len()
            }
            _ => self.cohort.quorum(present),
        }
    }

    /// At a leader: highest operation up to which grants may be reported to brokers, because a majority of the members
    /// acknowledged it while their facts were complete; those would have flagged ended tasks. Only the members count, because a
    /// majority of them has every strict fact. Callers cap this at the commit index.
    pub fn grant_index(&self) -> u64 {
        let Some(leading) = self.leading() else { return 0 };
        let grant_ack_index = |node: NodeId| leading.progress.get(&node).and_then(|progress| progress.grant_ack_index);
        let lengths = leading.progress.values().filter_map(|progress| progress.grant_ack_index);
        let grant_index = |length| self.cohort.members_quorum(|node| grant_ack_index(node) >= Some(length));
        let grant_index = rules::reached(lengths, grant_index).unwrap_or(0);
        assert!(grant_index <= self.viewstamp.length, "members have acknowledged more than there is");
        grant_index
    }

    fn note_cohort(&mut self, now: Now, config: &Config) {
        let before = self.cohort.quarantine;
        self.cohort = self.table.cohort.as_deref().cloned().unwrap_or_else(|| self.founded.clone());
        // A second rescue begins a quarantine of its own.
        if self.cohort.quarantine != before {
            self.note_quarantine(clocks::signed(now.mono_us), config);
        }
    }

    /// Applies the next operation; returns the tasks whose claims changed.
    pub fn apply(&mut self, op: &Op, now: Now, config: &Config) -> Result<Vec<TaskId>, Misfit> {
        assert!(self.commit <= self.viewstamp.length, "the commit index is ahead of the operations it covers");
        let at = Viewstamp { epoch: self.viewstamp.epoch, length: self.viewstamp.length + 1 };
        let touched: Vec<(TaskId, Option<ClaimId>)> = match op {
            Op::Drop { items } => {
                items.iter().map(|item| (item.id, self.claim_entry(&item.id).map(|entry| entry.claim))).collect()
            }
            Op::Grant { items, .. } => {
                items.iter().map(|(id, _)| (*id, self.claim_entry(id).map(|entry| entry.claim))).collect()
            }
            Op::Renew { .. }
            | Op::Release { .. }
            | Op::Void { .. }
            | Op::Kill { .. }
            | Op::Seal { .. }
            | Op::Clear { .. }
            | Op::Reserve { .. }
            | Op::Placed { .. }
            | Op::Decide { .. }
            | Op::DecideAcross { .. }
            | Op::Prepare { .. }
            | Op::Abort { .. }
            | Op::Made { .. }
            | Op::Refuse { .. }
            | Op::SlotQuota { .. }
            | Op::Level { .. }
            | Op::Forget { .. }
            | Op::Forgotten
            | Op::Cohort(_)
            | Op::Metadata(_)
            | Op::Schedules(_) => Vec::new(),
        };
        // A transaction's lock changes whether these tasks may be claimed, though their claim entries need not change.
        let locked = match op {
            Op::Decide { decided, .. } | Op::DecideAcross { decided, .. } => decided.locked.clone(),
            Op::Prepare { prepared, .. } => prepared.touched().collect(),
            Op::Made { id } | Op::Abort { id, .. } => self.table.ledger.touched_by(id),
            _ => Vec::new(),
        };
        let mut changed = self.table.apply(op, at)?;
        self.viewstamp = at;
        self.levels.note(op, now.mono_us);
        if matches!(op, Op::Cohort(_)) {
            self.note_cohort(now, config);
        }
        #[cfg(feature = "mutants")]
        if config.has(crate::config::Mutant::RenewalShortens) {
            self.table.shorten(op);
            for id in &changed {
                self.deadlines
                    .remove(id)
                    .inspect(|clock| assert!(self.expiry.remove(&(clock.at_us, *id)) || self.lapsed.contains_key(id)));
            }
        }
        for (id, claim) in touched {
            self.unlist(&id, claim);
        }
        for id in &changed {
            self.arm(*id, now, config);
        }
        if matches!(op, Op::Grant { .. } | Op::Renew { .. }) {
            self.recent.insert(at.length, changed.clone());
            self.bound_recent();
        }
        changed.extend(locked);
        Ok(changed)
    }

    /// Prunes superseded entries of `recent`. They pile up where no quorum has complete facts: renewals go on, and the grant-ack
    /// index does not advance. Only the latest change of each claim counts.
    fn bound_recent(&mut self) {
        if self.recent.len() <= self.recent_max {
            return;
        }
        let (epoch, entries) = (self.viewstamp.epoch, &self.table.entries);
        self.recent.retain(|length, ids| {
            let at = Viewstamp { epoch, length: *length };
            ids.retain(|id| entries.get(id).is_some_and(|entry| entry.renewed == at));
            !ids.is_empty()
        });
        self.recent_max = RECENT_CLAIMS_MAX.max(2 * self.recent.len());
    }

    fn unlist(&mut self, id: &TaskId, claim: Option<ClaimId>) {
        if let Some(claim) = claim
            && let Some(tasks) = self.by_claim.get_mut(&claim)
        {
            tasks.remove(id);
            if tasks.is_empty() {
                self.by_claim.remove(&claim);
            }
        }
    }

    /// Updates the session index for a task.
    fn note_session(&mut self, id: TaskId) {
        let held = self.table.entries.get(&id).filter(|entry| entry.state == ClaimState::Held);
        let (before, after) = (self.sessions.get(&id).copied(), held.and_then(|entry| entry.session));
        if before == after {
            return;
        }
        if let Some(before) = before
            && let Some(tasks) = self.by_session.get_mut(&before)
        {
            self.sessions.remove(&id);
            assert!(tasks.remove(&id), "a task is not listed under its session");
            if tasks.is_empty() {
                self.by_session.remove(&before);
            }
        }
        if let Some(after) = after {
            assert!(self.sessions.insert(id, after).is_none(), "a task is held under two sessions");
            assert!(self.by_session.entry(after).or_default().insert(id), "a task is listed twice under a session");
        }
    }

    /// Returns the persisted level of a queue's rate bucket, and since when this process knows it.
    pub fn level(&self, queue: &QueueName) -> Option<(Level, u64)> {
        let (level, _) = self.table.levels.get(queue)?;
        Some((*level, self.levels.since(queue)?))
    }

    /// Whether a task is held under a session.
    pub fn has_session(&self, session: &TaskId) -> bool {
        self.by_session.contains_key(session)
    }

    /// Sessions after `after` under which tasks are held, in order.
    pub fn sessions_after(&self, after: Option<TaskId>) -> impl Iterator<Item = TaskId> + '_ {
        let from = after.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
        self.by_session.range((from, std::ops::Bound::Unbounded)).map(|(session, _)| *session)
    }

    /// Tasks after `after` that are held under a session, in order.
    pub fn held_under(&self, session: &TaskId, after: Option<TaskId>) -> impl Iterator<Item = TaskId> + '_ {
        let from = after.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
        let held = self.by_session.get(session).into_iter();
        held.flat_map(move |held| held.range((from, std::ops::Bound::Unbounded))).copied()
    }

    /// Replaces the table, or gives the same table a new viewstamp. Returns the tasks whose claims may have changed.
    pub fn install(
        &mut self,
        viewstamp: Viewstamp,
        table: Option<ClaimTable>,
        now: Now,
        config: &Config,
    ) -> BTreeSet<TaskId> {
        assert!(viewstamp > self.viewstamp, "a table never goes back");
        assert!(self.leading().is_none(), "a leader takes another table");
        #[cfg(feature = "mutants")]
        {
            self.flaw = config.mutant;
        }
        self.viewstamp = viewstamp;
        self.commit = 0;
        self.age_exchange = AgeExchange::Unasked;
        self.recent.clear();
        let Some(table) = table else { return BTreeSet::new() };
        let before = std::mem::replace(&mut self.table, table);
        self.note_cohort(now, config);
        self.levels.install(&before, &self.table, now.mono_us);
        let same = |id: &TaskId, entry: &ClaimEntry| {
            before.entries.get(id).is_some_and(|old| (old.token, old.renewed) == (entry.token, entry.renewed))
        };
        let fresh: BTreeSet<TaskId> =
            self.table.entries.iter().filter(|(id, entry)| !same(id, entry)).map(|(id, _)| *id).collect();
        let mut touched: BTreeSet<TaskId> = before.entries.keys().copied().collect();
        touched.extend(self.table.entries.keys().copied());
        for ledger in [&before.ledger, &self.table.ledger] {
            touched.extend(ledger.touched());
        }
        self.by_claim.clear();
        for id in &touched {
            if fresh.contains(id) || !self.still_armed(id) || mutant!(config, AgesReplaced) {
                self.arm(*id, now, config);
            }
            if let Some(entry) = self.table.entries.get(id) {
                self.by_claim.entry(entry.claim).or_default().insert(*id);
            }
        }
        self.recollect(config);
        assert!(self.recent.keys().all(|length| *length > self.commit), "a committed claim counts as recent");
        touched
    }

    /// Rebuilds `recent` from the table, where this replica did not see the operations themselves.
    fn recollect(&mut self, config: &Config) {
        let Viewstamp { epoch, .. } = self.viewstamp;
        self.recent.clear();
        if mutant!(config, FlagsForgotten) {
            return;
        }
        let uncommitted = |entry: &ClaimEntry| entry.renewed.epoch == epoch && entry.renewed.length > self.commit;
        for (id, entry) in self.table.entries.iter().filter(|(_, entry)| uncommitted(entry)) {
            self.recent.entry(entry.renewed.length).or_default().push(*id);
        }
    }

    /// Held claims granted or renewed by operations above the known commit index.
    pub fn recent_claims(&self) -> impl Iterator<Item = (&TaskId, Token)> {
        self.recent.iter().flat_map(|(length, ids)| ids.iter().map(move |id| (*length, id))).filter_map(
            |(length, id)| {
                let at = Viewstamp { epoch: self.viewstamp.epoch, length };
                let held = |entry: &&ClaimEntry| entry.renewed == at && entry.state == ClaimState::Held;
                self.claim_entry(id).filter(held).map(|entry| (id, entry.token))
            },
        )
    }

    /// Clears `recent`: it is not used while the log is replayed, and is rebuilt from the table at the end.
    pub fn forget_recent(&mut self) {
        self.recent.clear();
    }

    /// Whether a claim call may hold tasks here; cheap enough to check for every partition that this node leads.
    pub fn knows_claim(&self, claim: &ClaimId) -> bool {
        self.by_claim.contains_key(claim)
    }

    /// Tasks that a claim call holds here.
    pub fn held_by(&self, claim: ClaimId) -> Vec<TaskId> {
        let held = |id: &&TaskId| {
            self.claim_entry(id).is_some_and(|entry| entry.state == ClaimState::Held && entry.claim == claim)
        };
        self.by_claim.get(&claim).into_iter().flatten().filter(held).copied().collect()
    }

    /// Advances the commit index.
    pub fn learn_commit(&mut self, length: u64) {
        self.commit = self.commit.max(length.min(self.viewstamp.length));
        assert!(self.commit <= self.viewstamp.length, "the commit index is ahead of the operations it covers");
        while self.recent.first_key_value().is_some_and(|(length, _)| *length <= self.commit) {
            self.recent.pop_first();
        }
    }

    /// Keeps an appended operation for retransmission to followers.
    pub fn keep(&mut self, op: Arc<Op>) {
        let length = self.viewstamp.length;
        let leading = self.leading_mut().expect("only a leader appends");
        leading.ops_bytes += op.size_bytes();
        leading.ops.push_back(op);
        assert!(leading.ops.len() as u64 <= length, "more operations are kept than there are");
        if leading.ops.len() > OPS_KEPT_MAX {
            leading.let_go();
        }
    }

    /// Drops kept operations that all followers have. Returns whether the remaining ones exceed the byte limit.
    pub fn trim_kept(&mut self) -> bool {
        let (commit, length) = (self.commit, self.viewstamp.length);
        let Role::Leader(leading) = &mut self.role else { return false };
        let upto = leading.held_by(|_| true).min(commit);
        leading.let_go_while(length, |number, _| number <= upto);
        leading.ops_bytes > OPS_KEPT_BYTES_MAX
    }

    /// Enforces the byte limits on kept operations. Above the first limit, drops committed operations that only silent followers
    /// lack; above the second, drops any committed ones. A follower that is further behind receives the whole table.
    pub fn trim_large(&mut self, is_alive: impl Fn(NodeId) -> bool) {
        let (commit, length) = (self.commit, self.viewstamp.length);
        let Role::Leader(leading) = &mut self.role else { return };
        let upto = leading.held_by(is_alive).min(commit);
        leading.let_go_while(length, |number, bytes| {
            number <= upto && bytes > OPS_KEPT_BYTES_MAX || number <= commit && bytes > OPS_LATE_BYTES_MAX
        });
    }

    /// Returns kept operations from number `first` on, at most `most` and within a byte limit; `None` if `first` is no longer
    /// kept.
    pub fn kept_from(&self, first: u64, most: usize) -> Option<Vec<Arc<Op>>> {
        let leading = self.leading()?;
        assert!(leading.ops.len() as u64 <= self.viewstamp.length, "more operations are kept than there are");
        let oldest = self.viewstamp.length - leading.ops.len() as u64 + 1;
        if first < oldest {
            return None;
        }
        let kept = leading.ops.iter().skip((first - oldest) as usize).take(most);
        Some(within(ENDINGS_BYTES_MAX, kept, |op| op.size_bytes()).cloned().collect())
    }

    /// Checks the invariants.
    pub fn check(&self) -> Result<(), String> {
        if self.table.cohort.as_deref().is_some_and(|cohort| *cohort != self.cohort) || !self.cohort.is_sound() {
            return Err("the cohort is not that of the table".into());
        }
        if self.table.digest() != self.table.digest_recomputed() {
            return Err("the table's digest is not that of its content".into());
        }
        if self.table.epoch_max() > self.viewstamp.epoch {
            return Err("the table names an epoch above its own".into());
        }
        if self.viewstamp.epoch > self.seen.max(self.promised) {
            return Err("the table is of an epoch that was never seen".into());
        }
        if !self.levels.fits(&self.table) {
            return Err("not every level, and nothing else, has a time".into());
        }
        if self.commit > self.viewstamp.length {
            return Err("more is committed than there is".into());
        }
        let held = self.table.entries.iter().filter(|(_, entry)| entry.state == ClaimState::Held);
        let armed =
            held.clone().all(|(id, entry)| self.deadlines.get(id).is_some_and(|clock| clock.token == entry.token));
        if !armed || held.count() != self.deadlines.len() {
            return Err("not every held claim, and nothing else, has a deadline".into());
        }
        if self.leading().is_some_and(|leading| leading.grant_index > self.commit) {
            return Err("more grants may be told than are committed".into());
        }
        if let Some(leading) = self.leading()
            && (leading.epoch != self.viewstamp.epoch || leading.epoch != self.promised)
        {
            return Err("it leads another epoch than it promised".into());
        }
        Ok(())
    }
}
