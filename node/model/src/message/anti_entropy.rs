//! Comparison of replicas, and repair of what they lack.

use super::kinds::{Check, Class, Properties, of};
use super::{Items, LogPosition};
use crate::viewstamp::Viewstamp;
use norn_wire::{NodeId, PartitionId, TaskId};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// Digests of recent changes in a partition of the sender.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecentPart {
    /// Partition.
    pub partition: PartitionId,
    /// Change number up to which the list is complete.
    pub upto: u64,
    /// Task and digest.
    pub tasks: Vec<(TaskId, u128)>,
}

/// Wanted tasks of a partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WantPart {
    /// Partition.
    pub partition: PartitionId,
    /// As in the [`RecentPart`] that this answers: all other tasks up to it are known.
    pub upto: Option<u64>,
    /// Tasks.
    pub ids: Vec<TaskId>,
}

/// Level that a [`Step::Compare`] compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Level {
    /// The groups of a partition's tree.
    #[serde(rename = "G")]
    Groups,
    /// The buckets of a group.
    #[serde(rename = "B")]
    Buckets,
    /// The cells of a bucket.
    #[serde(rename = "C")]
    Cells,
}

/// Merkle descent message for a partition that differs. `salt` is that of all hashes, which are 8 bytes each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// The children of node `number` of the tree: one bit of `filled` for each that is not empty, and the hashes of those.
    #[serde(rename = "C")]
    Compare { partition: PartitionId, salt: u64, level: Level, number: u16, filled: u64, hashes: ByteBuf },
    /// Hashes of the tasks of a bucket that are in `cells`, one bit for each, and whose ids are above `after` and up to
    /// `upto`.
    #[serde(rename = "L")]
    List {
        partition: PartitionId,
        salt: u64,
        bucket: u16,
        cells: u64,
        after: Option<TaskId>,
        upto: Option<TaskId>,
        hashes: ByteBuf,
    },
    /// Tasks of a bucket above `after` that are wanted.
    #[serde(rename = "W")]
    Want { partition: PartitionId, salt: u64, bucket: u16, after: Option<TaskId>, hashes: ByteBuf },
}

impl Step {
    /// Partition of the step.
    pub fn partition(&self) -> PartitionId {
        match self {
            Step::Compare { partition, .. } | Step::List { partition, .. } | Step::Want { partition, .. } => *partition,
        }
    }
}

/// Comparison of replicas, and repair of what they lack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum AntiEntropy {
    /// Roots of partitions that changed since both last agreed. With a number: some of the sender's have incomplete facts.
    #[serde(rename = "xr")]
    Roots {
        roots: Vec<(PartitionId, u128)>,
        #[serde(default, skip_serializing_if = "is_zero")]
        round: u64,
    },
    /// Which of them are equal here, and which are not. If the question has a number, the equal ones are only those with complete facts
    /// here.
    #[serde(rename = "xd")]
    RootsAnswer {
        equal: Vec<(PartitionId, u128)>,
        /// Cohort version of each equal partition.
        at: Vec<Viewstamp>,
        differ: Vec<PartitionId>,
        #[serde(default, skip_serializing_if = "is_zero")]
        round: u64,
    },
    /// Digests of groups of buckets of a replica that needs agreement, by their numbers; groups already agreed on are left out.
    #[serde(rename = "xh")]
    GroupsAsk { partition: PartitionId, round: u64, groups: Vec<(u16, u128)> },
    /// Which of them are the same here, from a replica with complete facts.
    #[serde(rename = "xe")]
    GroupsAnswer { partition: PartitionId, round: u64, at: Viewstamp, equal: Vec<u16> },
    /// Digests of recent changes in start `boot`.
    #[serde(rename = "xc")]
    Recent { boot: u64, parts: Vec<RecentPart> },
    /// Wanted tasks; `boot` is that of the question.
    #[serde(rename = "xw")]
    Want { boot: u64, parts: Vec<WantPart> },
    /// Asks for these tasks at once, because claims wait for them.
    #[serde(rename = "nd")]
    Need { partition: PartitionId, ids: Vec<TaskId> },
    /// Steps down the trees of partitions that differ.
    #[serde(rename = "xs")]
    Steps { steps: Vec<Step> },
    /// Read repair: a reader saw that the receiver lacks facts of a task that `holder` has.
    #[serde(rename = "xl")]
    Lacks { partition: PartitionId, id: TaskId, holder: NodeId },
    /// Tasks to merge.
    #[serde(rename = "xi")]
    Tasks {
        partition: PartitionId,
        items: Items,
        by_buckets: bool,
        /// How many times the sender has forgotten; absent where it may know what others have forgotten.
        #[serde(default)]
        forgets: Option<u64>,
    },
}

impl AntiEntropy {
    /// What each message says of itself.
    pub(super) fn properties(&self) -> Properties {
        match self {
            AntiEntropy::Roots { .. } => of("roots", Class::Bulk, None, Check::Nothing),
            AntiEntropy::RootsAnswer { .. } => of("roots_answer", Class::Bulk, None, Check::Nothing),
            AntiEntropy::GroupsAsk { partition, .. } => of("groups_ask", Class::Bulk, Some(*partition), Check::Nothing),
            AntiEntropy::GroupsAnswer { partition, .. } => {
                of("groups_answer", Class::Bulk, Some(*partition), Check::Nothing)
            }
            AntiEntropy::Recent { .. } => of("recent", Class::Bulk, None, Check::Nothing),
            AntiEntropy::Want { .. } => of("want", Class::Bulk, None, Check::Nothing),
            AntiEntropy::Need { partition, .. } => of("need", Class::Urgent, Some(*partition), Check::Nothing),
            AntiEntropy::Steps { .. } => of("steps", Class::Bulk, None, Check::Nothing),
            AntiEntropy::Lacks { partition, .. } => of("lacks", Class::Bulk, Some(*partition), Check::Nothing),
            AntiEntropy::Tasks { partition, .. } => of("tasks", Class::Bulk, Some(*partition), Check::Nothing),
        }
    }

    /// Fills in the sender's durable log position, where the message depends on it.
    pub(super) fn set_log(&mut self, _word: LogPosition) {
        match self {
            AntiEntropy::Roots { .. }
            | AntiEntropy::RootsAnswer { .. }
            | AntiEntropy::GroupsAsk { .. }
            | AntiEntropy::GroupsAnswer { .. }
            | AntiEntropy::Recent { .. }
            | AntiEntropy::Want { .. }
            | AntiEntropy::Need { .. }
            | AntiEntropy::Steps { .. }
            | AntiEntropy::Lacks { .. }
            | AntiEntropy::Tasks { .. } => {}
        }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}
