//! A vnode: this node's replica of one partition. Here alone the available half (tasks) meets the consistent half (claims).

pub mod fair_queues;
pub mod index;
mod key_order;
pub mod order;
pub mod places;
pub mod store;
pub mod tree;
pub mod version;
mod waiting;

use crate::claim_table::table::{ClaimEntry, ClaimState, ClaimTable, Misfit, Op};
use crate::cohort::{Cohort, Role};
use crate::config::{Config, mutant};
use crate::consensus::ConsensusState;
use crate::data_loss::{DataLoss, LossRecovery};
use crate::limits::ENDINGS_BYTES_MAX;
use crate::metadata::Metadata;
use crate::task::{Cancel, Completed, Facts, Outline, Settled, Task};
use crate::time::Now;
use crate::viewstamp::{ReplicaId, Viewstamp};
use index::Class;
use norn_wire::{PartitionId, QueueName, TaskId, Token};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;
use std::sync::Arc;
pub use store::{Merged, Store, Whose};

/// Membership snapshot: what a replica is in its cohort, and what the others have forgotten with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// Version of the cohort.
    pub version: Viewstamp,
    /// Version at which the replica was admitted.
    since: Option<Viewstamp>,
    /// Whether it is a member or a next member.
    has_slot: bool,
    /// How often tasks were forgotten, by the table.
    forgets: u64,
    /// Whether it has still to forget the tasks that the table names.
    owes: bool,
}

impl Standing {
    /// Whether a replica that stood at `before` may lack facts now: it has a cohort slot that it did not have, or others have forgotten
    /// tasks without asking it.
    pub fn lacks_facts(&self, before: &Standing) -> bool {
        let same = self.since.is_some() && self.since == before.since;
        let asked = same && self.has_slot && before.has_slot;
        // What it had still to forget it may have kept: the cohort did not wait for it.
        let passed_over = self.forgets > before.forgets || before.owes && !self.owes;
        self.has_slot && !same || passed_over && !asked
    }
}

/// Ended-task notice: a grant whose task is known to have ended, with the evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoneFlag {
    /// Task.
    pub id: TaskId,
    /// Token of the grant.
    pub token: Token,
    /// Ending of the task; empty if it is too large for the message, and must be requested.
    pub ending: Task,
}

/// A vnode.
#[derive(Debug)]
pub struct Partition {
    /// Which partition.
    pub id: PartitionId,
    /// Tasks.
    pub store: Store,
    /// Claims.
    pub consensus: ConsensusState,
    /// Heads advertised to the node's brokers: the first one and the count, by queue.
    pub published: BTreeMap<QueueName, (order::Standing, u64)>,
    /// Ended tasks whose claims the leader has yet to drop.
    pub to_drop: BTreeSet<TaskId>,
    /// The next look at them begins behind this one.
    pub drop_after: Option<TaskId>,
    /// What the log has lost, and recovery from it.
    pub loss_recovery: LossRecovery,
    /// Whether enough peers have acknowledged this incarnation.
    pub answered: bool,
    /// Whether it was created, or cleared, and got no table since.
    bare: bool,
    /// Whether its cohort came with a fetched table, and was not installed here by a leader: no member has promised that this cohort
    /// stays. Until it follows a leader the replica answers nothing on behalf of the cohort.
    pub borrowed: bool,
    /// When it last sent a `Wake`.
    pub woke_us: u64,
    /// Queues with work about which the leader is silent.
    pub unheard: BTreeSet<QueueName>,
    /// For a draining replica: the version of the cohort that has dismissed it for good.
    pub dismissed: Option<Viewstamp>,
    /// Up to which count this replica has forgotten what the table names, since the node started.
    forgot: u64,
    /// Sizes of its store as last counted by the node.
    pub counted: Counted,
    /// Tasks whose endings came from the table, since last asked.
    ended: Vec<TaskId>,
}

/// Sizes of a store when it was counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counted {
    /// Bytes of bodies in memory.
    pub bytes: usize,
    /// Number of tasks, with and without bodies.
    pub tasks: usize,
}

/// Whether other tasks of a key have had their turn; see [`Partition::overtaken`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overtaken {
    /// They have.
    Surely,
    /// A task that is not known yet may have had it.
    Perhaps,
}

impl Partition {
    /// The replicas that hold the partition, as far as this one knows.
    pub fn cohort(&self) -> &Cohort {
        &self.consensus.cohort
    }

    /// What this replica is in its cohort.
    pub fn role(&self) -> Role {
        self.cohort().role(self.consensus.me.node)
    }

    /// Its membership snapshot, compared around a change of the table.
    pub fn standing(&self) -> Standing {
        let (cohort, me) = (self.cohort(), self.consensus.me.node);
        let forgetting = &self.consensus.table.forgetting;
        let (forgets, owes) = (forgetting.count, !forgetting.ids.is_empty() && self.forgot < forgetting.count);
        Standing { version: cohort.version, since: cohort.since(me), has_slot: cohort.has(me), forgets, owes }
    }

    /// An empty vnode.
    pub fn new(id: PartitionId, me: ReplicaId, preference: Vec<ReplicaId>) -> Partition {
        Partition {
            id,
            store: Store::default(),
            consensus: ConsensusState::new(me, preference),
            published: BTreeMap::new(),
            to_drop: BTreeSet::new(),
            drop_after: None,
            loss_recovery: LossRecovery::default(),
            answered: false,
            bare: false,
            borrowed: false,
            woke_us: 0,
            unheard: BTreeSet::new(),
            dismissed: None,
            forgot: 0,
            counted: Counted::default(),
            ended: Vec::new(),
        }
    }

    /// An empty vnode of the metadata group of a new cluster: also a blank one knows the founding state.
    #[must_use]
    pub fn with_metadata(mut self, metadata: Metadata) -> Partition {
        assert_eq!(self.id, PartitionId::METADATA, "a cluster has one root");
        self.consensus.begin_metadata(metadata);
        self
    }

    /// A vnode that has no table yet, and does not count before it has one.
    pub fn blank(id: PartitionId, me: ReplicaId, preference: Vec<ReplicaId>) -> Partition {
        let mut replica = Partition::new(id, me, preference);
        replica.loss_recovery.data_loss = DataLoss { facts: true, table: true };
        replica.bare = true;
        assert!(replica.is_blank(), "a new replica has a table");
        replica
    }

    /// Whether it has nothing but a promise, though no disk has lost anything.
    pub fn is_blank(&self) -> bool {
        self.bare && self.consensus.viewstamp == Viewstamp::default() && self.loss_recovery.losses == 0
    }

    /// Whether the cohort that it knows has dismissed it for good.
    pub fn is_dismissed(&self) -> bool {
        self.role() == Role::DrainingReplica && self.dismissed == Some(self.cohort().version)
    }

    /// Drops all but its promise. The node has yet to withdraw the published heads.
    pub fn clear(&mut self) {
        let consensus = self.consensus.cleared();
        let (id, answered, counted) = (self.id, self.answered, self.counted);
        let published = std::mem::take(&mut self.published);
        let blank = Partition::blank(id, consensus.me, Vec::new());
        *self = Partition { consensus, published, answered, counted, ..blank };
        assert!(self.is_blank(), "a replica that was cleared has a table");
    }

    /// Merges facts about a task.
    pub fn merge(&mut self, id: TaskId, delta: Task, now: Now, config: &Config) -> Merged {
        if self.is_blank() {
            // Late facts are not for this replica.
            return Merged::default();
        }
        self.merge_again(id, delta, now, config)
    }

    /// Merges facts of the log, whatever the state of the replica: that it lost its table, or was cleared, may be known only from later
    /// records.
    pub fn merge_again(&mut self, id: TaskId, delta: Task, now: Now, config: &Config) -> Merged {
        let delta = if mutant!(config, MergeDropsUpdate) { self.without_known_log(&id, delta) } else { delta };
        let merged = self.store.merge(id, delta, self.consensus.hold(&id), now.wall_ms);
        if merged.ended && self.consensus.leading().is_some() && self.consensus.claim_entry(&id).is_some() {
            self.to_drop.insert(id);
        }
        merged
    }

    /// The planted bug of a merge that keeps the log entries it has.
    fn without_known_log(&self, id: &TaskId, mut delta: Task) -> Task {
        let has_log = |task: &Task<Outline>| task.facts.as_ref().is_some_and(|facts| !facts.updates.is_empty());
        if self.store.task(id).is_some_and(has_log)
            && let Some(facts) = &mut delta.facts
        {
            facts.updates.clear();
        }
        delta
    }

    /// Merges facts of a task that waited for bytes which are in memory now.
    pub fn settle_rival(&mut self, id: &TaskId, now: Now) -> Merged {
        let merged = self.store.settle_rival(id, self.consensus.hold(id), now.wall_ms);
        self.store.note_unwritten(id);
        merged
    }

    /// Applies the next operation of the table, and what follows from it for the tasks.
    pub fn apply(&mut self, op: &Op, now: Now, config: &Config) -> Result<(), Misfit> {
        let changed = self.consensus.apply(op, now, config)?;
        if let Op::Drop { items } = op {
            for item in items.iter() {
                if !mutant!(config, DropWithoutRecord) || self.consensus.leading().is_some() {
                    self.merge_ending(item.id, item.facts.clone(), now, config);
                }
                self.to_drop.remove(&item.id);
            }
        }
        for id in changed {
            self.reclassify(&id, now);
        }
        Ok(())
    }

    /// Merges an ending that so far is known from the table alone.
    fn merge_ending(&mut self, id: TaskId, facts: Task, now: Now, config: &Config) {
        if self.merge(id, facts, now, config).ended {
            self.ended.push(id);
        }
        self.store.note_unwritten(&id);
    }

    /// Takes the tasks whose endings came from the table.
    pub fn take_ended(&mut self) -> Vec<TaskId> {
        std::mem::take(&mut self.ended)
    }

    /// Takes the endings out of operations that cannot be applied.
    pub fn merge_endings(&mut self, ops: &[Arc<Op>], now: Now, config: &Config) {
        for op in ops {
            let Op::Drop { items } = &**op else { continue };
            for item in items.iter() {
                self.merge_ending(item.id, item.facts.clone(), now, config);
            }
        }
    }

    /// Replaces the table, and takes in the endings that travel with it.
    pub fn install(&mut self, viewstamp: Viewstamp, table: Option<ClaimTable>, now: Now, config: &Config) {
        let touched = self.consensus.install(viewstamp, table, now, config);
        let ended: Vec<(TaskId, Task)> =
            self.consensus.table.endings().map(|ended| (ended.id, ended.facts.clone())).collect();
        if !mutant!(config, DropWithoutRecord) {
            for (id, facts) in ended {
                self.merge_ending(id, facts, now, config);
            }
        }
        for id in touched {
            self.reclassify(&id, now);
        }
    }

    /// Recomputes a task's class.
    pub fn reclassify(&mut self, id: &TaskId, now: Now) {
        self.store.reclassify(id, self.consensus.hold(id), now.wall_ms);
    }

    /// Whether this leader knows the keys of all held tasks: it granted them itself, or knows their specs. Until it does, any key may be
    /// held.
    pub fn knows_keys(&self, config: &Config) -> bool {
        self.consensus.leading().is_some_and(|leading| leading.unknown.is_empty()) || mutant!(config, KeysUnknown)
    }

    /// Held claims that a new leader inherits of tasks whose specs it does not know.
    pub fn unknown_claims(&self) -> BTreeSet<TaskId> {
        self.consensus.table.entries.keys().filter(|id| self.is_unknown(id)).copied().collect()
    }

    /// Whether a task is claimed and its spec unknown, so that it may be of any queue.
    pub fn is_strange(&self, id: &TaskId) -> bool {
        self.consensus.claim_entry(id).is_some_and(|entry| entry.state == ClaimState::Held) && self.store.lacks_spec(id)
    }

    fn is_unknown(&self, id: &TaskId) -> bool {
        let held = self.consensus.claim_entry(id).is_some_and(|entry| entry.state == ClaimState::Held);
        held && !self.consensus.has_run_out(id) && self.store.lacks_spec(id)
    }

    /// The queue and key of a task that has a key.
    pub fn key_of(&self, id: &TaskId) -> Option<(QueueName, NonZeroU64)> {
        let spec = self.store.task(id)?.spec.as_ref()?;
        Some((spec.queue.clone(), spec.key()?))
    }

    /// Whether the claim of a task with a key must not be renewed, because its lease had run out and other tasks of the key have had
    /// their turn. Only the leader of that time may have known of the end of the lease; this check finds it from the table. `Perhaps`:
    /// the specs of some held tasks are not known yet, or that of this task, which then may share the key of any held task.
    ///
    /// A claim that this leader granted or renewed, and did not see run out, has been held all the time. For any other, count the claims
    /// of the same key that were granted or renewed later and are held. Where these are as many as the key allows, one more would be too
    /// many. If its lease never ran out, they are fewer. If it did, each claim in force is among them: it is later, or was in force as
    /// this one ran out. The latter happens only where a key allows several, and there the end of the lease is recorded.
    pub fn overtaken(&self, id: &TaskId) -> Option<Overtaken> {
        let renewed = self.consensus.claim_entry(id)?.renewed;
        let later = |other: &TaskId| self.consensus.claim_entry(other).is_some_and(|entry| entry.renewed > renewed);
        if self.store.lacks_spec(id) {
            let may_share = |other: &TaskId| self.store.lacks_spec(other) || self.key_of(other).is_some();
            let held = self.consensus.table.entries.iter().filter(|(_, entry)| entry.state == ClaimState::Held);
            let mut others = held.map(|(other, _)| other);
            return others.any(|other| later(other) && may_share(other)).then_some(Overtaken::Perhaps);
        }
        let (queue, key) = self.key_of(id)?;
        let ran_out = self.consensus.has_run_out(id);
        let (index, leading) = (self.store.index(), self.consensus.leading());
        let most = index.key_limit(&queue);
        let own = leading.is_some_and(|leading| leading.epoch == renewed.epoch) && !ran_out;
        if own || most == usize::MAX {
            return None;
        }
        let others = || index.held(&queue, key).filter(|other| *other != id);
        if ran_out && others().nth(most - 1).is_some() || others().filter(|other| later(other)).nth(most - 1).is_some()
        {
            return Some(Overtaken::Surely);
        }
        let mut unknown = leading.into_iter().flat_map(|leading| &leading.unknown).filter(|id| self.is_unknown(id));
        unknown.any(later).then_some(Overtaken::Perhaps)
    }

    /// Drops claims from the front of the unknown ones whose tasks are known by now. Returns whether that emptied them.
    pub fn learn_keys(&mut self) -> bool {
        let before = self.consensus.leading().is_some_and(|leading| !leading.unknown.is_empty());
        while let Some(first) = self.consensus.leading().and_then(|leading| leading.unknown.first().copied())
            && !self.is_unknown(&first)
        {
            self.consensus.leading_mut().expect("just seen").unknown.remove(&first);
        }
        before && self.consensus.leading().is_some_and(|leading| leading.unknown.is_empty())
    }

    /// C-1: flags for the claims above the known commit whose tasks are known here to have ended. They are computed anew for each
    /// acknowledgement: neither a lost answer nor a restart nor a table that came whole can hide one. Every flag is included. The
    /// evidence of those beyond the budget of a message, or that is not in memory, is left out.
    pub fn done_flags(&self) -> Vec<DoneFlag> {
        let mut bytes = 0;
        self.consensus
            .recent_claims()
            .filter_map(|(id, token)| {
                let ending = self.store.ending(id)?;
                bytes += ending.size_bytes();
                let is_told = bytes <= ENDINGS_BYTES_MAX && ending.has_blobs();
                let ending = if is_told { ending } else { Task::default() };
                Some(DoneFlag { id: *id, token, ending })
            })
            .collect()
    }

    /// What a leader replicates about a task whose claim it drops, if that is in memory: how the task ended, and its claims.
    pub fn ending(&self, id: &TaskId) -> Option<Task> {
        let mut ending = self.store.told_ending(id)?;
        let entry = self.consensus.claim_entry(id)?;
        if ending.tombstone.is_none() {
            ending.facts.get_or_insert_default().claims = entry.history_with(entry.end_with(&ending));
        }
        Some(ending)
    }

    /// The completion of a task that is sealed, committed or not.
    pub fn sealed(&self, id: &TaskId) -> Option<(Token, &Completed)> {
        if let Some(entry) = self.consensus.claim_entry(id)
            && let ClaimState::Sealed { completed } = &entry.state
        {
            return Some((entry.token, completed));
        }
        let facts = self.store.task(id)?.facts.as_ref()?;
        facts.seal.and_then(|_| facts.winner()).map(|(token, completed)| (*token, completed))
    }

    /// Whether a task has or had this claim, as far as that is remembered.
    pub fn had_claim(&self, id: &TaskId, token: Token) -> bool {
        let in_entry = |entry: &ClaimEntry| entry.token == token || entry.past.iter().any(|(past, _)| *past == token);
        let facts = || self.store.task(id).and_then(|task| task.facts.as_ref());
        self.consensus.claim_entry(id).is_some_and(in_entry)
            || facts().is_some_and(|facts| facts.claims.iter().any(|(past, _)| *past == token))
    }

    /// The fact that follows from a given-up or sealed claim; for committed ones only.
    pub fn verdict(&self, id: &TaskId) -> Option<Task> {
        let entry = self.consensus.claim_entry(id)?;
        match &entry.state {
            ClaimState::Sealed { completed } => Some(Task::from_seal(entry.token, (**completed).clone())),
            ClaimState::Dead { .. } | ClaimState::Held | ClaimState::Released { .. } | ClaimState::Void => {
                entry.dead().map(Task::from_cancel)
            }
        }
    }

    /// Whether the claim of an ended task may be dropped. What is exported from the claim becomes a permanent fact, so it must be
    /// committed. A committed death must not be lost because the task had ended otherwise before: it has to be a fact first.
    pub fn may_drop(&self, id: &TaskId, committed: Viewstamp) -> bool {
        let Some(entry) = self.consensus.claim_entry(id) else { return true };
        let knows = |dead: &Cancel| {
            self.store.task(id).is_none_or(|task| {
                let facts = task.facts.as_ref();
                task.tombstone.is_some()
                    || facts.and_then(|facts| facts.cancel.as_ref()).is_some_and(|cancel| cancel >= dead)
            })
        };
        entry.renewed <= committed && entry.dead().is_none_or(|dead| knows(&dead))
    }

    /// Whether a task may have been forgotten: then no facts about it are accepted.
    pub fn may_have_forgotten(&self, id: &TaskId) -> bool {
        self.consensus.table.forgetting.watermark.is_some_and(|watermark| *id <= watermark) && !self.store.knows(id)
    }

    /// Whether a task that another replica sends must be refused, as it may have been forgotten here. `theirs` is how often the sender
    /// has surely forgotten. What the table names is forgotten here, or it would be known.
    pub fn refuses(&self, id: &TaskId, theirs: Option<u64>) -> bool {
        let behind = theirs.is_none_or(|theirs| theirs < self.forgets());
        self.may_have_forgotten(id) && (behind || self.has_forgotten(id))
    }

    /// Whether the table names a task as one to be forgotten, and it is unknown here.
    pub fn has_forgotten(&self, id: &TaskId) -> bool {
        self.consensus.table.forgetting.ids.binary_search(id).is_ok() && !self.store.knows(id)
    }

    /// Whether a known task may have been forgotten, as the evidence for that may be lost.
    pub fn may_be_a_ghost(&self, id: &TaskId) -> bool {
        self.loss_recovery.data_loss.facts
            && self.consensus.table.forgetting.watermark.is_some_and(|watermark| *id <= watermark)
    }

    /// How often tasks were forgotten here, if this replica has complete facts.
    pub fn forgets_surely(&self) -> Option<u64> {
        (!self.loss_recovery.data_loss.facts).then(|| self.forgets())
    }

    /// How often tasks were forgotten here. The latest time counts once the named tasks are no longer known.
    pub fn forgets(&self) -> u64 {
        let forgetting = &self.consensus.table.forgetting;
        let open = !forgetting.ids.is_empty() && self.forgot < forgetting.count;
        forgetting.count - u64::from(open)
    }

    /// Forgets the tasks that the table names, which must be committed. Returns those of which anything was known.
    pub fn forget(&mut self) -> Vec<TaskId> {
        let Partition { consensus, store, .. } = self;
        self.forgot = consensus.table.forgetting.count;
        consensus.table.forgetting.ids.iter().filter(|id| store.forget(id)).copied().collect()
    }

    /// Checks the invariants.
    pub fn check(&self, now: Now) -> Result<(), String> {
        let consensus = &self.consensus;
        consensus.check()?;
        self.store.check(|id, task| store::class_of(task, consensus.hold(id), now.wall_ms))?;
        let dropped_unseen = |ended: &&crate::claim_table::table::Ended| !self.store.ended(&ended.id);
        // A table with losses may be older than what was forgotten since, and so may that of a draining replica.
        let whole = self.loss_recovery.data_loss.is_whole();
        match self.consensus.table.endings().find(dropped_unseen).filter(|_| whole) {
            Some(ended) => Err(format!("task {}: its claim is dropped but its ending is not known", ended.id)),
            None => Ok(()),
        }
    }

    /// Starts fair queueing for a queue. When each key was last served follows from the claims in the table.
    pub fn order_fairly(&mut self, queue: &QueueName) {
        let mut served: BTreeMap<Option<NonZeroU64>, u64> = BTreeMap::new();
        for (id, entry) in &self.consensus.table.entries {
            let spec = self.store.task(id).and_then(|task| task.spec.as_ref());
            if let Some((spec, granted_ms)) = spec.filter(|spec| spec.queue == *queue).zip(entry.served_ms()) {
                let at_ms = served.entry(spec.key()).or_default();
                *at_ms = granted_ms.max(*at_ms);
            }
        }
        self.store.order_fairly(queue, &served);
    }

    /// Whether a task could be granted.
    pub fn is_ready(&self, id: &TaskId) -> bool {
        self.store.class(id) == Some(Class::Ready)
    }

    /// How a task ended, if that is known.
    pub fn end_of(&self, id: &TaskId) -> Option<Settled> {
        let ended = self.store.task(id).and_then(Task::ended);
        let state = ended.or_else(|| self.store.tombstone(id).map(|tombstone| tombstone.state))?;
        Settled::of(state)
    }

    /// Joins of groups that the completions of a task brought, each with the id of that task.
    pub fn joins_of(&self, id: &TaskId) -> impl Iterator<Item = (TaskId, TaskId)> + '_ {
        let facts = self.store.task(id).and_then(|task| task.facts.as_deref());
        let counts = |facts: &Facts, token: Token| facts.seal.map_or(!token.needs_seal(), |seal| token == seal);
        let completions = facts
            .into_iter()
            .flat_map(move |facts| facts.completions.iter().filter(move |(token, _)| counts(facts, *token)));
        let id = *id;
        completions.filter_map(move |(_, done)| Some((id, done.children.as_ref()?.join?)))
    }
}
