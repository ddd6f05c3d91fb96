//! Who belongs to a cluster, and what operators change about that.

use super::ids::{ClusterId, NodeId, PartitionId, QueueName};
use super::request::Claim;
use super::response::Genesis;
use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;

/// How far a member has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemberState {
    /// Added; no layout was planned with it yet.
    #[serde(rename = "J")]
    Joining,
    /// Holds what the layout gives it.
    #[serde(rename = "U")]
    Up,
    /// Hands over what it holds.
    #[serde(rename = "L")]
    Leaving,
    /// No member any more. Kept as long as a layout or a cohort may name it.
    #[serde(rename = "G")]
    Gone,
}

impl MemberState {
    /// Whether it belongs to the cluster.
    pub fn is_present(self) -> bool {
        self != MemberState::Gone
    }

    /// Whether a layout may give it replicas.
    pub fn may_hold(self) -> bool {
        matches!(self, MemberState::Joining | MemberState::Up)
    }

    /// Its name in text.
    pub fn name(self) -> &'static str {
        match self {
            MemberState::Joining => "joining",
            MemberState::Up => "up",
            MemberState::Leaving => "leaving",
            MemberState::Gone => "gone",
        }
    }
}

impl fmt::Display for MemberState {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// A member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Identity drawn by the node.
    pub node: NodeId,
    /// Incarnation of its replicas, drawn by the node.
    pub incarnation: u64,
    /// Name in its certificate.
    pub name: String,
    /// Where peers and clients reach it: `HOST:PORT`.
    pub address: String,
    /// Failure domain.
    pub zone: String,
    /// How much it holds, compared with the others. Above 0.
    pub weight: u32,
    /// How far it has come.
    pub state: MemberState,
}

/// A node that should become a member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// The cluster to which it says it belongs, if any.
    #[serde(default)]
    pub cluster: Option<ClusterId>,
    /// Identity drawn by the node.
    pub node: NodeId,
    /// Incarnation of its replicas, drawn by the node.
    pub incarnation: u64,
    /// Name in its certificate.
    pub name: String,
    /// Where peers and clients reach it: `HOST:PORT`.
    pub address: String,
    /// Failure domain.
    pub zone: String,
    /// How much it shall hold, compared with the others. Above 0.
    pub weight: u32,
}

/// What operators set for a queue. The default is as if nothing were set.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
pub struct QueuePolicy {
    /// Nothing of it is granted. What is held already goes on.
    #[serde(default)]
    pub paused: bool,
    /// Attempts of a task that says nothing of that itself, after which it is dead. Absent, there is no end.
    #[serde(default)]
    pub attempts_max: Option<u32>,
    /// What becomes of a task if one that it waits for was cancelled, has died, or is forgotten.
    #[serde(default)]
    pub failed_dependency: FailedDependency,
    /// Length of the lease of a claim that leaves it open.
    #[serde(default)]
    pub lease_ms: Option<u64>,
    /// No lease is longer, whatever a claim or a renewal asks for.
    #[serde(default)]
    pub lease_ms_max: Option<u64>,
    /// How long a task waits after an attempt that failed without a word of that, or whose lease ran out.
    #[serde(default)]
    pub backoff: Option<Backoff>,
    /// How long its ended tasks are kept, whatever the settings of the nodes say.
    #[serde(default)]
    pub retention_ms: Option<u64>,
    /// Which of its tasks a claim gets.
    #[serde(default)]
    pub order: Order,
    /// Whose completion ends a task. Of a task that was claimed before it stays as it was then.
    #[serde(default)]
    pub mode: Mode,
    /// Of a task that its leader gives up, or whose holder calls it invalid, a copy is enqueued here. No copies of copies.
    #[serde(default)]
    pub dead_letter: Option<QueueName>,
    /// With so many tasks that have not ended, more are refused.
    #[serde(default)]
    pub tasks_max: Option<u64>,
    /// With so many bytes of tasks that have not ended, more are refused.
    #[serde(default)]
    pub bytes_max: Option<u64>,
    /// A task that waits gains one level of priority in so long.
    #[serde(default)]
    pub ageing_ms: Option<u64>,
    /// Its claims come no faster.
    #[serde(default)]
    pub rate: Option<Rate>,
    /// No more of its claims are held at once.
    #[serde(default)]
    pub concurrency: Option<u32>,
    /// So many of its tasks with the same key are held at once.
    #[serde(default)]
    pub key_concurrency: KeyConcurrency,
}

impl Serialize for QueuePolicy {
    /// Fields that came later are left out from the end, where there is nothing in them: digests that logs have are over these bytes.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        const FIRST: usize = 9;
        let later = [
            self.dead_letter.is_some(),
            self.tasks_max.is_some(),
            self.bytes_max.is_some(),
            self.ageing_ms.is_some(),
            self.rate.is_some(),
            self.concurrency.is_some(),
            self.key_concurrency != KeyConcurrency::default(),
        ];
        let count = FIRST + later.iter().rposition(|is_there| *is_there).map_or(0, |place| place + 1);
        let mut policy = serializer.serialize_struct("QueuePolicy", count)?;
        policy.serialize_field("paused", &self.paused)?;
        policy.serialize_field("attempts_max", &self.attempts_max)?;
        policy.serialize_field("failed_dependency", &self.failed_dependency)?;
        policy.serialize_field("lease_ms", &self.lease_ms)?;
        policy.serialize_field("lease_ms_max", &self.lease_ms_max)?;
        policy.serialize_field("backoff", &self.backoff)?;
        policy.serialize_field("retention_ms", &self.retention_ms)?;
        policy.serialize_field("order", &self.order)?;
        policy.serialize_field("mode", &self.mode)?;
        if count > FIRST {
            policy.serialize_field("dead_letter", &self.dead_letter)?;
        }
        if count > FIRST + 1 {
            policy.serialize_field("tasks_max", &self.tasks_max)?;
        }
        if count > FIRST + 2 {
            policy.serialize_field("bytes_max", &self.bytes_max)?;
        }
        if count > FIRST + 3 {
            policy.serialize_field("ageing_ms", &self.ageing_ms)?;
        }
        if count > FIRST + 4 {
            policy.serialize_field("rate", &self.rate)?;
        }
        if count > FIRST + 5 {
            policy.serialize_field("concurrency", &self.concurrency)?;
        }
        if count > FIRST + 6 {
            policy.serialize_field("key_concurrency", &self.key_concurrency)?;
        }
        policy.end()
    }
}

/// So many claims in a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    /// Claims.
    pub claims: u32,
    /// In so long.
    pub per_ms: u64,
}

impl Rate {
    /// In any stretch of time there are at most as many claims as the rate allows in it, and so many more: what it allows in two
    /// seconds, and one. A part of a claim counts as one.
    #[must_use]
    pub fn burst(&self) -> u128 {
        1 + (u128::from(self.claims) * 2_000).div_ceil(u128::from(self.per_ms.max(1)))
    }
}

/// Whose completion ends a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// That of anybody who ever claimed it. Any node takes it, whatever else is down.
    #[default]
    Any,
    /// That of its latest holder alone, which the leader seals: at most one is ever acknowledged.
    Holder,
}

impl Mode {
    /// All of them.
    pub const ALL: [Mode; 2] = [Mode::Any, Mode::Holder];

    /// Its name in text.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Any => "any",
            Mode::Holder => "holder",
        }
    }
}

/// Which task of a queue is claimed next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// The one with the highest priority, and of those the oldest.
    #[default]
    Priority,
    /// Any, whatever its priority.
    Random,
    /// The first one of the key that was served longest ago.
    Fair,
}

impl Order {
    /// All of them.
    pub const ALL: [Order; 3] = [Order::Priority, Order::Random, Order::Fair];

    /// Its name in text.
    pub fn name(self) -> &'static str {
        match self {
            Order::Priority => "priority",
            Order::Random => "random",
            Order::Fair => "fair",
        }
    }
}

/// How many tasks of a queue with the same key may be held at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyConcurrency {
    /// So many, the oldest first.
    Most(u32),
    /// Any number: keys are no limit.
    Any,
}

impl Default for KeyConcurrency {
    fn default() -> Self {
        KeyConcurrency::Most(1)
    }
}

impl KeyConcurrency {
    /// As a number.
    #[must_use]
    pub fn count(self) -> usize {
        match self {
            KeyConcurrency::Most(most) => most as usize,
            KeyConcurrency::Any => usize::MAX,
        }
    }
}

/// How long a task waits before it is tried again: twice as long after each attempt, up to a bound, and a little more or less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backoff {
    /// After the first attempt.
    pub first_ms: u64,
    /// After any, but for the jitter. Where it is that of the first attempt, all are alike.
    pub most_ms: u64,
    /// Up to so much more or less, in a hundred.
    pub jitter_percent: u8,
}

impl Backoff {
    /// After attempt number `attempt`, which counts from 1, without jitter.
    #[must_use]
    pub fn pause_ms(&self, attempt: u32) -> u64 {
        let doublings = attempt.saturating_sub(1).min(63);
        self.first_ms.saturating_mul(1 << doublings).min(self.most_ms)
    }

    /// The shortest and the longest pause after an attempt.
    #[must_use]
    pub fn range_ms(&self, attempt: u32) -> (u64, u64) {
        let pause_ms = self.pause_ms(attempt);
        let jitter_ms = pause_ms.saturating_mul(u64::from(self.jitter_percent.min(100))) / 100;
        (pause_ms - jitter_ms, pause_ms.saturating_add(jitter_ms))
    }
}

/// What becomes of a task that waits for one that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailedDependency {
    /// It dies.
    #[default]
    Fail,
    /// It goes on as if that had completed.
    Skip,
    /// It waits until it is cancelled.
    Wait,
}

impl FailedDependency {
    /// All of them.
    pub const ALL: [FailedDependency; 3] = [FailedDependency::Fail, FailedDependency::Skip, FailedDependency::Wait];

    /// Its name in text.
    pub fn name(self) -> &'static str {
        match self {
            FailedDependency::Fail => "fail",
            FailedDependency::Skip => "skip",
            FailedDependency::Wait => "wait",
        }
    }
}

/// One thing to be set for a queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueSetting {
    /// See [`QueuePolicy::paused`].
    Paused(bool),
    /// See [`QueuePolicy::attempts_max`].
    Attempts(Option<u32>),
    /// See [`QueuePolicy::lease_ms`].
    Lease(Option<u64>),
    /// See [`QueuePolicy::lease_ms_max`].
    LeaseMax(Option<u64>),
    /// See [`QueuePolicy::backoff`].
    Backoff(Option<Backoff>),
    /// See [`QueuePolicy::retention_ms`].
    Retention(Option<u64>),
    /// See [`QueuePolicy::order`].
    Order(Order),
    /// See [`QueuePolicy::failed_dependency`].
    FailedDependency(FailedDependency),
    /// See [`QueuePolicy::mode`].
    Mode(Mode),
    /// See [`QueuePolicy::dead_letter`].
    DeadLetter(Option<QueueName>),
    /// See [`QueuePolicy::tasks_max`].
    Tasks(Option<u64>),
    /// See [`QueuePolicy::bytes_max`].
    Bytes(Option<u64>),
    /// See [`QueuePolicy::ageing_ms`].
    Ageing(Option<u64>),
    /// See [`QueuePolicy::rate`].
    Rate(Option<Rate>),
    /// See [`QueuePolicy::concurrency`].
    Concurrency(Option<u32>),
    /// See [`QueuePolicy::key_concurrency`].
    KeyConcurrency(KeyConcurrency),
}

impl QueuePolicy {
    /// The policy with one thing set.
    #[must_use]
    pub fn with(self, setting: QueueSetting) -> QueuePolicy {
        match setting {
            QueueSetting::Paused(paused) => QueuePolicy { paused, ..self },
            QueueSetting::Attempts(attempts_max) => QueuePolicy { attempts_max, ..self },
            QueueSetting::Lease(lease_ms) => QueuePolicy { lease_ms, ..self },
            QueueSetting::LeaseMax(lease_ms_max) => QueuePolicy { lease_ms_max, ..self },
            QueueSetting::Backoff(backoff) => QueuePolicy { backoff, ..self },
            QueueSetting::Retention(retention_ms) => QueuePolicy { retention_ms, ..self },
            QueueSetting::Order(order) => QueuePolicy { order, ..self },
            QueueSetting::FailedDependency(failed_dependency) => QueuePolicy { failed_dependency, ..self },
            QueueSetting::Mode(mode) => QueuePolicy { mode, ..self },
            QueueSetting::DeadLetter(dead_letter) => QueuePolicy { dead_letter, ..self },
            QueueSetting::Tasks(tasks_max) => QueuePolicy { tasks_max, ..self },
            QueueSetting::Bytes(bytes_max) => QueuePolicy { bytes_max, ..self },
            QueueSetting::Ageing(ageing_ms) => QueuePolicy { ageing_ms, ..self },
            QueueSetting::Rate(rate) => QueuePolicy { rate, ..self },
            QueueSetting::Concurrency(concurrency) => QueuePolicy { concurrency, ..self },
            QueueSetting::KeyConcurrency(key_concurrency) => QueuePolicy { key_concurrency, ..self },
        }
    }

    /// The lease that a claim gets.
    #[must_use]
    pub fn lease_of(&self, claim: &Claim) -> u64 {
        let own_ms = self.lease_ms.filter(|_| claim.lease_open).unwrap_or(claim.lease_ms);
        self.bounded(own_ms)
    }

    /// As much of a lease as the queue allows.
    #[must_use]
    pub fn bounded(&self, lease_ms: u64) -> u64 {
        self.lease_ms_max.map_or(lease_ms, |most_ms| lease_ms.min(most_ms))
    }
}

/// Members by their numbers, which are given once and never again, as of one change of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Roster {
    /// Changes of the cluster so far. Of two rosters the one with the greater version is the later.
    pub version: u64,
    /// Also those that are gone but not forgotten.
    pub members: BTreeMap<u16, Member>,
    /// Of queues for which something is set.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub policies: BTreeMap<QueueName, QueuePolicy>,
}

/// What a node that joins must know of its cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// How the cluster was founded.
    pub genesis: Genesis,
    /// Who belongs to it; the node is one of them.
    pub roster: Roster,
}

/// What operators set for the whole cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// A member that was silent for so many milliseconds may be declared gone; absent, only operators declare it.
    pub heal_after_ms: Option<u64>,
    /// Partitions whose replicas move at once in the whole cluster.
    pub moves_at_once: u32,
    /// Partitions whose replicas come to or leave one member at once.
    pub moves_at_once_each: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { heal_after_ms: Some(15 * 60_000), moves_at_once: 16, moves_at_once_each: 2 }
    }
}

/// A wish of an operator. Members are named by their nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum ClusterChange {
    /// A node becomes a member.
    Add { with: Candidate },
    /// A member hands over all that it holds.
    Drain { node: NodeId },
    /// A leaving member stays.
    Undrain { node: NodeId },
    /// A member that is dead, or drained, is none any more.
    Remove { node: NodeId },
    /// A node takes the place of a member in one layout.
    Replace { node: NodeId, with: Candidate },
    /// So many replicas of each partition.
    Replicas { replicas: u32 },
    /// A member holds more, or less.
    Weight { node: NodeId, weight: u32 },
    /// A member is in another failure domain.
    Zone { node: NodeId, zone: String },
    /// A member is reached elsewhere.
    Address { node: NodeId, address: String },
    /// Other settings.
    Settings { settings: Settings },
    /// A partition is held by these, the first one as its preferred leader.
    Arrange { partition: PartitionId, nodes: Vec<NodeId> },
    /// Something is set for a queue.
    Queue { queue: QueueName, setting: QueueSetting },
    /// Layout anew: every member gets its share.
    Rebalance,
}

/// What came of a wish.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    /// It was so before, as after a request that is repeated.
    pub already: bool,
    /// Changes of the cluster so far.
    pub version: u64,
    /// The cluster behind the change, or as it would be.
    pub view: Box<ClusterView>,
    /// What a node that joins must know, where one was added.
    #[serde(default)]
    pub membership: Option<Box<Membership>>,
}

/// How far a member is from what the layout gives it, in replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Share {
    /// It shall hold them and does not yet.
    pub come: u32,
    /// It holds them and shall not any more.
    pub go: u32,
    /// It holds them and shall.
    pub stay: u32,
}

/// The cluster as the leader of its root sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterView {
    /// The cluster.
    pub cluster: ClusterId,
    /// For people.
    pub name: String,
    /// Changes of the cluster so far, and who belongs to it.
    pub roster: Roster,
    /// Nodes that vote in the root.
    pub voters: Vec<NodeId>,
    /// The node that leads it.
    pub leader: NodeId,
    /// Nodes that the leader hears.
    pub heard: Vec<NodeId>,
    /// Replicas wanted of each partition.
    pub replicas: u32,
    /// What operators set.
    pub settings: Settings,
    /// Version of the layout.
    pub layout: u64,
    /// Something was changed on which the layout rests, and it is planned anew next.
    #[serde(default)]
    pub stale: bool,
    /// By the numbers of members, how far each is from what the layout gives it.
    pub shares: BTreeMap<u16, Share>,
    /// Partitions that are on their way to what the layout says.
    pub moving: Vec<PartitionId>,
    /// Partitions that are not yet what the layout says, those included.
    pub open: u32,
    /// Partitions of which the leader does not know who holds them.
    pub unknown: u32,
}

/// A partition without a majority, as one of its replicas that are left sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remnant {
    /// Partition.
    pub partition: PartitionId,
    /// Its members, the lost ones too.
    pub cohort: Vec<NodeId>,
    /// Those of them that are left.
    pub left: Vec<NodeId>,
    /// Epoch of the claims that the replica knows...
    pub epoch: u64,
    /// ...and operations since: of several that are left the one with the most is the one to go on.
    pub length: u64,
    /// Tasks that it knows.
    pub tasks: u64,
    /// Claims that it knows.
    pub claims: u64,
    /// Why it cannot go on without the lost, if so.
    pub obstacle: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_back_off_doubles_up_to_its_bound() {
        let backoff = Backoff { first_ms: 1_000, most_ms: 5_000, jitter_percent: 20 };
        let pauses: Vec<u64> = (0..6).map(|attempt| backoff.pause_ms(attempt)).collect();
        assert_eq!(pauses, [1_000, 1_000, 2_000, 4_000, 5_000, 5_000]);
        assert_eq!((backoff.pause_ms(u32::MAX), backoff.range_ms(2)), (5_000, (1_600, 2_400)));
        let whole = Backoff { jitter_percent: 100, ..backoff };
        assert_eq!(whole.range_ms(u32::MAX), (0, 10_000));
        let great = Backoff { first_ms: u64::MAX, most_ms: u64::MAX, jitter_percent: 1 };
        assert!(great.range_ms(64).1 == u64::MAX, "it does not overflow");
    }
}
