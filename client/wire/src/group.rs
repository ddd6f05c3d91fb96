//! Groups: tasks that are numbered, and the one that comes behind all of them, their join.
//!
//! A group is named by the id of its join. What follows from that and a number is the id of the member: so a group that is
//! enqueued again, by whoever and however often, is the same tasks, and the join needs no list of them.

use crate::ids::TaskId;
use serde::{Deserialize, Serialize};

/// What a task has to do with groups. The join of one may be a member of another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct Grouping {
    /// It is one of a group's.
    #[serde(default)]
    pub member: Option<MemberOf>,
    /// It comes behind a group, whose name is its own id.
    #[serde(default)]
    pub join: Option<Join>,
}

/// One task of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MemberOf {
    /// Id of the group's join, which may be enqueued later than this.
    pub group: TaskId,
    /// From 1.
    pub number: u32,
}

impl MemberOf {
    /// The id of the member. The same for whoever enqueues it, so that it is stored once.
    ///
    /// ```
    /// use norn_client::wire::{TaskId, group::MemberOf};
    /// let group = TaskId::new(1_700_000_000_000, 0, 1, 7);
    /// let (first, second) = (MemberOf { group, number: 1 }.id(), MemberOf { group, number: 2 }.id());
    /// assert!(first != second && first.time_ms() == group.time_ms());
    /// ```
    pub fn id(self) -> TaskId {
        let mut name = [0; 24];
        name[..20].copy_from_slice(self.group.as_bytes());
        name[20..].copy_from_slice(&self.number.to_be_bytes());
        TaskId::named(self.group.time_ms(), &name)
    }
}

/// What the key of a join begins with whose group has a name: the rest is that name.
pub const NAMED_GROUP: &str = "group:";

/// The task that comes behind a group: claimable once it is known how many members there are and all of them have ended,
/// whichever way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct Join {
    /// How many members there are, numbered from 1; absent where that is [told later](super::Request::CloseGroup).
    #[serde(default)]
    pub total: Option<u32>,
    /// As soon as one of them fails and it is known how many there are, those that have not ended are cancelled.
    #[serde(default)]
    pub fail_fast: bool,
}

/// How far a group is, as a reader of its join sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GroupView {
    /// How many members there are; absent as long as nobody has said.
    pub total: Option<u32>,
    /// Members that have ended, as far as the join has heard.
    pub ended: u32,
    /// Of these, those that were not completed.
    pub failed: u32,
}
