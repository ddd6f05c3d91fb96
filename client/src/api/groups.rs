//! Groups of tasks.

use super::form::text;
use super::{Encoding, LostPart};
use norn_wire::group::{GroupView, Grouping, MemberOf};
use norn_wire::{State, TaskId, TaskView};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Progress of a group, as shown with its join.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct GroupProgress {
    /// Number of members; `null` until a client has given it.
    #[cfg_attr(feature = "schema", schema(required))]
    pub total: Option<u32>,
    /// Members that have ended, as far as the join has received it.
    pub ended: u32,
    /// Of these, the members that were not completed.
    pub failed: u32,
}

impl From<&GroupView> for GroupProgress {
    fn from(group: &GroupView) -> Self {
        let GroupView { total, ended, failed } = *group;
        GroupProgress { total, ended, failed }
    }
}

/// Group and number of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct GroupMembership {
    /// Group: the id of its join.
    #[serde(with = "text")]
    pub group: TaskId,
    /// Number within the group, from 1.
    pub number: u32,
}

impl GroupMembership {
    /// Returns the group of which a task is a member, if any.
    pub(super) fn of(grouping: Option<&Grouping>) -> Option<Self> {
        let MemberOf { group, number } = grouping?.member?;
        Some(GroupMembership { group, number })
    }
}

/// One member of a group: answer to `members`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct GroupMember<'a> {
    /// Number within the group, from 1.
    pub number: u32,
    /// Task. It follows from the group and the number, so that a member has an id before it is enqueued.
    #[serde(with = "text")]
    pub id: TaskId,
    /// State; `null` if the member was not enqueued.
    #[cfg_attr(feature = "schema", schema(required))]
    pub state: Option<State>,
    /// Result of the completion that counts; `null` without one.
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, required))]
    pub result: Option<Cow<'a, str>>,
    /// Encoding of the result.
    #[cfg_attr(feature = "schema", schema(required))]
    pub result_encoding: Option<Encoding>,
    /// Why the member was cancelled or died.
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, required))]
    pub reason: Option<Cow<'a, str>>,
    /// Parts that every replica that answered has lost. Left out without a value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Vec<LostPart>))]
    pub lost: Option<Vec<LostPart>>,
}

impl<'a> GroupMember<'a> {
    /// Creates the form of a member, with its task if that was enqueued.
    #[must_use]
    pub fn new(member: MemberOf, task: Option<&'a TaskView>) -> Self {
        let (result, result_encoding) = Encoding::encode_if_any(task.and_then(|task| task.result.as_ref()));
        let reason = task.and_then(|task| task.reason.as_deref()).map(Cow::Borrowed);
        let (state, lost) = (task.map(|task| task.state), task.and_then(LostPart::of));
        GroupMember { number: member.number, id: member.id(), state, result, result_encoding, reason, lost }
    }
}
