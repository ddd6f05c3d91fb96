//! Members of a cluster, and operators' changes of cluster and queues.

use super::ids::{ClusterId, NodeId, ParseError, PartitionId, QueueName};
use super::request::Claim;
use super::response::Genesis;
use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Lifecycle state of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemberState {
    /// Added; no layout includes it yet.
    #[serde(rename = "J")]
    Joining,
    /// Holds the replicas that the layout gives it.
    #[serde(rename = "U")]
    Up,
    /// Hands its replicas over.
    #[serde(rename = "L")]
    Leaving,
    /// No member any more. Kept as long as a layout or a cohort may name it.
    #[serde(rename = "G")]
    Gone,
}

impl MemberState {
    /// Whether it is still a member.
    pub fn is_present(self) -> bool {
        self != MemberState::Gone
    }

    /// Whether a layout may give it replicas.
    pub fn may_hold(self) -> bool {
        matches!(self, MemberState::Joining | MemberState::Up)
    }

    /// Returns its name in text.
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

/// Member of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Identity, drawn by the node.
    pub node: NodeId,
    /// Incarnation of its replicas, drawn by the node.
    pub incarnation: u64,
    /// Name in its certificate.
    pub name: String,
    /// Address where peers and clients reach it: `HOST:PORT`.
    pub address: String,
    /// Failure domain.
    pub zone: String,
    /// Share of the replicas relative to other members. Above 0.
    pub weight: u32,
    /// Lifecycle state.
    pub state: MemberState,
}

/// Node to be added as a member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// Cluster to which the node says it belongs, if any.
    #[serde(default)]
    pub cluster: Option<ClusterId>,
    /// Identity, drawn by the node.
    pub node: NodeId,
    /// Incarnation of its replicas, drawn by the node.
    pub incarnation: u64,
    /// Name in its certificate.
    pub name: String,
    /// Address where peers and clients reach it: `HOST:PORT`.
    pub address: String,
    /// Failure domain.
    pub zone: String,
    /// Share of the replicas relative to other members. Above 0.
    pub weight: u32,
}

/// Operators' settings of a queue. The default equals no settings.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
pub struct QueuePolicy {
    /// Paused: no task of the queue is granted. Claims already held go on.
    #[serde(default)]
    pub paused: bool,
    /// Attempts after which a task is dead, for tasks without a limit of their own. Absent: no limit.
    #[serde(default)]
    pub attempts_max: Option<u32>,
    /// Effect on a task if one of its dependencies was cancelled, has died or is forgotten.
    #[serde(default)]
    pub failed_dependency: FailedDependency,
    /// Lease of a claim that leaves its lease open.
    #[serde(default)]
    pub lease_ms: Option<u64>,
    /// Upper bound of every lease, whatever a claim or a renewal asks for.
    #[serde(default)]
    pub lease_ms_max: Option<u64>,
    /// Pause before the next attempt, after an attempt that failed without naming a pause or whose lease ran out.
    #[serde(default)]
    pub backoff: Option<Backoff>,
    /// Retention of its ended tasks, overriding the nodes' settings.
    #[serde(default)]
    pub retention_ms: Option<u64>,
    /// Order in which its tasks are claimed.
    #[serde(default)]
    pub order: Order,
    /// Whose completion ends a task. A task claimed before a change keeps the mode of that time.
    #[serde(default)]
    pub mode: Mode,
    /// Queue for dead letters: a copy of a task is enqueued there when its leader gives it up or its holder calls it invalid. Copies are
    /// not copied again.
    #[serde(default)]
    pub dead_letter: Option<QueueName>,
    /// Capacity in open tasks: at this number, more are refused.
    #[serde(default)]
    pub tasks_max: Option<u64>,
    /// Capacity in bytes of open tasks: at this number, more are refused.
    #[serde(default)]
    pub bytes_max: Option<u64>,
    /// Time in which a waiting task gains one level of priority, in milliseconds.
    #[serde(default)]
    pub ageing_ms: Option<u64>,
    /// Rate limit of its claims.
    #[serde(default)]
    pub rate: Option<Rate>,
    /// Limit of its claims held at once.
    #[serde(default)]
    pub concurrency: Option<u32>,
    /// Limit of its tasks with the same key held at once.
    #[serde(default)]
    pub key_concurrency: KeyConcurrency,
}

impl Serialize for QueuePolicy {
    /// Leaves trailing default fields of later versions out: digests in existing logs cover these bytes.
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

/// Rate limit: a number of claims per period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    /// Claims.
    pub claims: u32,
    /// Period in milliseconds.
    pub per_ms: u64,
}

impl Rate {
    /// Periods that have a name in text, with their length in milliseconds.
    const PERIODS: [(&str, u64); 3] = [("s", 1_000), ("m", 60_000), ("h", 3_600_000)];

    /// Returns the burst: in any period, at most the claims that the rate allows in it, plus this number. It is what the rate allows in
    /// two seconds, plus one. A fraction of a claim counts as one.
    #[must_use]
    pub fn burst(&self) -> u128 {
        1 + (u128::from(self.claims) * 2_000).div_ceil(u128::from(self.per_ms.max(1)))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Rate { claims, per_ms } = *self;
        match Rate::PERIODS.into_iter().find(|(_, ms)| *ms == per_ms) {
            Some((period, _)) => write!(formatter, "{claims}/{period}"),
            None => write!(formatter, "{claims}/{per_ms}ms"),
        }
    }
}

impl FromStr for Rate {
    type Err = ParseError;

    /// Parses `N/s`, `N/m` or `N/h`.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let wrong = || ParseError(format!("a rate is N/s, N/m or N/h, for example 100/s, not {text:?}"));
        let (claims, time) = text.split_once('/').ok_or_else(wrong)?;
        let (_, per_ms) = Rate::PERIODS.into_iter().find(|(name, _)| *name == time.trim()).ok_or_else(wrong)?;
        Ok(Rate { claims: claims.trim().parse().map_err(|_| wrong())?, per_ms })
    }
}

/// Whose completion ends a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// The completion of any worker that ever claimed it. Any node accepts it, whatever else is down.
    #[default]
    Any,
    /// Only that of the latest holder, sealed by the leader: at most one is ever acknowledged.
    Holder,
}

impl Mode {
    /// All modes.
    pub const ALL: [Mode; 2] = [Mode::Any, Mode::Holder];

    /// Returns its name in text.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Any => "any",
            Mode::Holder => "holder",
        }
    }
}

/// Order in which tasks of a queue are claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Highest priority first, and among equals the oldest.
    #[default]
    Priority,
    /// Any order, whatever the priority.
    Random,
    /// Round robin over keys: the first task of the key that was served longest ago.
    Fair,
}

impl Order {
    /// All orders.
    pub const ALL: [Order; 3] = [Order::Priority, Order::Random, Order::Fair];

    /// Returns its name in text.
    pub fn name(self) -> &'static str {
        match self {
            Order::Priority => "priority",
            Order::Random => "random",
            Order::Fair => "fair",
        }
    }
}

/// Limit of tasks with the same key held at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyConcurrency {
    /// At most this number, the oldest first.
    Most(u32),
    /// No limit.
    Any,
}

impl Default for KeyConcurrency {
    fn default() -> Self {
        KeyConcurrency::Most(1)
    }
}

impl KeyConcurrency {
    /// Returns the limit as a number.
    #[must_use]
    pub fn count(self) -> usize {
        match self {
            KeyConcurrency::Most(most) => most as usize,
            KeyConcurrency::Any => usize::MAX,
        }
    }
}

/// Exponential back-off: the pause doubles after each attempt up to a bound, with jitter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Backoff {
    /// Pause after the first attempt, in milliseconds.
    pub first_ms: u64,
    /// Longest pause, without jitter, in milliseconds. If it equals the first, all pauses are equal.
    pub most_ms: u64,
    /// Jitter, up to this much more or less, in percent.
    pub jitter_percent: u8,
}

impl Backoff {
    /// Returns the pause after attempt number `attempt`, counted from 1, without jitter.
    #[must_use]
    pub fn pause_ms(&self, attempt: u32) -> u64 {
        let doublings = attempt.saturating_sub(1).min(63);
        self.first_ms.saturating_mul(1 << doublings).min(self.most_ms)
    }

    /// Returns the shortest and the longest pause after an attempt.
    #[must_use]
    pub fn range_ms(&self, attempt: u32) -> (u64, u64) {
        let pause_ms = self.pause_ms(attempt);
        let jitter_ms = pause_ms.saturating_mul(u64::from(self.jitter_percent.min(100))) / 100;
        (pause_ms - jitter_ms, pause_ms.saturating_add(jitter_ms))
    }
}

/// Effect on a task whose dependency failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum FailedDependency {
    /// The task dies.
    #[default]
    Fail,
    /// The task goes on as if the dependency had completed.
    Skip,
    /// The task waits until it is cancelled.
    Wait,
}

impl FailedDependency {
    /// All of them.
    pub const ALL: [FailedDependency; 3] = [FailedDependency::Fail, FailedDependency::Skip, FailedDependency::Wait];

    /// Returns its name in text.
    pub fn name(self) -> &'static str {
        match self {
            FailedDependency::Fail => "fail",
            FailedDependency::Skip => "skip",
            FailedDependency::Wait => "wait",
        }
    }
}

/// One setting of a queue.
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
    /// Returns the policy with one setting changed.
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

    /// Returns the lease that a claim gets.
    #[must_use]
    pub fn lease_of(&self, claim: &Claim) -> u64 {
        let own_ms = self.lease_ms.filter(|_| claim.lease_open).unwrap_or(claim.lease_ms);
        self.bounded(own_ms)
    }

    /// Returns the lease, cut to the queue's maximum.
    #[must_use]
    pub fn bounded(&self, lease_ms: u64) -> u64 {
        self.lease_ms_max.map_or(lease_ms, |most_ms| lease_ms.min(most_ms))
    }
}

/// Member list by member number, as of one change of the cluster. Numbers are never reused.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Roster {
    /// Number of changes of the cluster so far. Of two rosters the one with the greater version is the later.
    pub version: u64,
    /// All members, including those that are gone but not forgotten.
    pub members: BTreeMap<u16, Member>,
    /// Policies of queues that have settings.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub policies: BTreeMap<QueueName, QueuePolicy>,
}

/// State of the cluster that a joining node needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// Founding record of the cluster.
    pub genesis: Genesis,
    /// Members of the cluster, including the joining node.
    pub roster: Roster,
}

/// Operators' settings of the whole cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Milliseconds of silence after which a member may be declared gone; absent: only operators declare it.
    pub heal_after_ms: Option<u64>,
    /// Partitions whose replicas may move at once in the whole cluster.
    pub moves_at_once: u32,
    /// Partitions whose replicas may come to or leave one member at once.
    pub moves_at_once_each: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { heal_after_ms: Some(15 * 60_000), moves_at_once: 16, moves_at_once_each: 2 }
    }
}

/// Change that an operator requests. Members are named by their nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum ClusterChange {
    /// Adds a node as a member.
    Add { with: Candidate },
    /// Moves all replicas off a member.
    Drain { node: NodeId },
    /// Cancels the drain of a leaving member.
    Undrain { node: NodeId },
    /// Removes a member that is dead or drained.
    Remove { node: NodeId },
    /// Puts a node in the place of a member, in one layout.
    Replace { node: NodeId, with: Candidate },
    /// Sets the number of replicas of each partition.
    Replicas { replicas: u32 },
    /// Changes the weight of a member.
    Weight { node: NodeId, weight: u32 },
    /// Changes the failure domain of a member.
    Zone { node: NodeId, zone: String },
    /// Changes the address of a member.
    Address { node: NodeId, address: String },
    /// Replaces the cluster's settings.
    Settings { settings: Settings },
    /// Places a partition on these nodes, the first one as its preferred leader.
    Arrange { partition: PartitionId, nodes: Vec<NodeId> },
    /// Changes a setting of a queue.
    Queue { queue: QueueName, setting: QueueSetting },
    /// Plans the layout anew: every member gets its share.
    Rebalance,
}

/// Outcome of a requested change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    /// Whether the change was in effect before, as after a repeated request.
    pub already: bool,
    /// Number of changes of the cluster so far.
    pub version: u64,
    /// The cluster after the change; after a dry run, as it would be.
    pub view: Box<ClusterView>,
    /// State for a joining node, if one was added.
    #[serde(default)]
    pub membership: Option<Box<Membership>>,
}

/// Difference between a member's replicas and its part of the layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Share {
    /// Replicas that it should hold and does not yet.
    pub come: u32,
    /// Replicas that it holds and should give up.
    pub go: u32,
    /// Replicas that it holds and should hold.
    pub stay: u32,
}

/// The cluster as the leader of its metadata group (root) sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterView {
    /// The cluster.
    pub cluster: ClusterId,
    /// Name, for people.
    pub name: String,
    /// Number of changes of the cluster so far, and its members.
    pub roster: Roster,
    /// Nodes that vote in the metadata group.
    pub voters: Vec<NodeId>,
    /// Leader of the metadata group.
    pub leader: NodeId,
    /// Nodes from which the leader receives heartbeats.
    pub heard: Vec<NodeId>,
    /// Wanted replicas of each partition.
    pub replicas: u32,
    /// Operators' settings.
    pub settings: Settings,
    /// Version of the layout.
    pub layout: u64,
    /// Whether an input of the layout changed, so that it is planned anew next.
    #[serde(default)]
    pub stale: bool,
    /// Difference from the layout, by member number.
    pub shares: BTreeMap<u16, Share>,
    /// Partitions that are moving to their place in the layout.
    pub moving: Vec<PartitionId>,
    /// Partitions that do not match the layout yet, moving ones included.
    pub open: u32,
    /// Partitions whose replicas the leader does not know.
    pub unknown: u32,
}

/// Partition without a majority, as one of its surviving replicas sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remnant {
    /// Partition.
    pub partition: PartitionId,
    /// Its members, including the lost ones.
    pub cohort: Vec<NodeId>,
    /// Surviving members.
    pub left: Vec<NodeId>,
    /// Epoch of the replica's claim table...
    pub epoch: u64,
    /// ...and operations since. Of several survivors, recover the one with the greatest (epoch, length).
    pub length: u64,
    /// Tasks that the replica knows.
    pub tasks: u64,
    /// Claims that the replica knows.
    pub claims: u64,
    /// Why it cannot go on without the lost members, if so.
    pub obstacle: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_shown_as_they_are_written() {
        for text in ["10/s", "1/m", "500/h"] {
            assert_eq!(text.parse().map(|rate: Rate| rate.to_string()).as_deref(), Ok(text));
        }
        assert_eq!("3 / s".parse(), Ok(Rate { claims: 3, per_ms: 1_000 }));
        for text in ["", "10", "10/d", "/s", "-1/s", "1.5/s", "10/s/s"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
    }

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
