//! Groups: numbered tasks (members), and their join, a task that becomes claimable behind all of them.
//!
//! The id of the join names the group. A member's id follows from the group's id and the member's number. So enqueuing a group again,
//! from any client and any number of times, stores the same tasks once, and the join needs no list of them.

use crate::ids::TaskId;
use serde::{Deserialize, Serialize};

/// A task's part in groups. The join of one group may be a member of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct Grouping {
    /// Group of which the task is a member.
    #[serde(default)]
    pub member: Option<MemberOf>,
    /// Set if the task is the join of a group, whose name is the task's own id.
    #[serde(default)]
    pub join: Option<Join>,
}

/// Member of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MemberOf {
    /// Id of the group's join, which may be enqueued later than the member.
    pub group: TaskId,
    /// Number within the group, from 1.
    pub number: u32,
}

impl MemberOf {
    /// Returns the id of the member. Every client computes the same, so the member is stored once.
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

/// Prefix of the key of a named group's join; the rest of the key is the name.
pub const NAMED_GROUP: &str = "group:";

/// Join of a group: claimable once the number of members is known and all of them have ended, in whatever state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct Join {
    /// Number of members, numbered from 1; absent if it is [given later](super::Request::CloseGroup).
    #[serde(default)]
    pub total: Option<u32>,
    /// Cancels the members that have not ended, as soon as one fails and the number of members is known.
    #[serde(default)]
    pub fail_fast: bool,
}

/// Progress of a group, as a reader of its join sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GroupView {
    /// Number of members; absent until a client has given it.
    pub total: Option<u32>,
    /// Members that have ended, as far as the join has received it.
    pub ended: u32,
    /// Of these, the members that were not completed.
    pub failed: u32,
}
