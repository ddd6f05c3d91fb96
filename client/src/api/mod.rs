//! JSON forms of what goes into and comes out of the verbs, for programs.
//!
//! The command line prints these types with `--json`. Any other door that speaks JSON uses the same ones. A type here is the JSON form
//! of an answer: a `From` of the type in [`wire`](crate::wire), or a function `new` where that alone does not suffice, builds it.
//! Types whose names end in `Input` are read.
//!
//! - Ids, tokens and versions are strings in their text forms, and typed here.
//! - Fields keep their order and are always present, with `null` for no value. A few are left out instead, where their
//!   documentation says so.
//! - Names that end in `_ms` are milliseconds: lengths, or times since the Unix epoch.
//! - Bytes come as two fields: `data` or `result` with the text, and `data_encoding` or `result_encoding` with its [`Encoding`].
//! - Answers are read leniently, so that later versions may add fields, and kinds of some values, which are read as `other`. Inputs
//!   are read strictly: an unknown field is refused.
//! - An input becomes what the client library or the wire takes by a pure conversion: `TryFrom`, or a method where more is to be known,
//!   such as the claim. It has the defaults of the command of the same name. Limits that a session checks are left to it.
//! - With feature `schema`, each type has a schema (`utoipa::ToSchema`). A field is required where it is always printed, or must be
//!   given.
//!
//! ```
//! use norn_client::api;
//! use norn_client::wire::{Acked, Guarantee, TaskId};
//! let acked = Acked { id: TaskId::MIN, acks: 2, replicas: 3, guarantee: Guarantee::Strict };
//! let json = serde_json::to_string(&api::WriteAck::from(&acked))?;
//! assert_eq!(json, r#"{"id":"00000000000000000000000000000000","acks":2,"replicas":3,"guarantee":"strict"}"#);
//! assert_eq!(serde_json::from_str::<api::WriteAck>(&json)?.id, TaskId::MIN);
//! # Ok::<(), serde_json::Error>(())
//! ```
#![deny(missing_docs)]

mod bytes;
mod claim_inputs;
mod claims;
mod cluster;
mod cluster_inputs;
mod doctor;
mod errors;
mod explanation;
mod fields;
mod form;
mod groups;
mod input;
mod operations;
mod overview;
mod policy_input;
mod queues;
mod redrive;
mod schedule_input;
mod schedules;
mod session_inputs;
mod status;
mod task_inputs;
mod tasks;
mod texts;
mod time;
mod transactions;
mod watch;
mod writes;

#[cfg(test)]
mod tests;

pub use bytes::{Encoding, hexadecimal};
pub use claim_inputs::{
    ClaimInput, CompleteInput, CompletionInput, CompletionsInput, FailInput, HeldClaimInput, LeaseInput, RenewInput,
    UpdateInput,
};
pub use claims::{GrantedTask, HeldClaim, Lease, Session};
pub use cluster::{Agreement, ClockStatus, MemberState, Node, Partition, ReplicaHealth, RingPlace};
pub use cluster_inputs::{
    AddressInput, ChangeKindInput, ClusterChangeInput, MemberInput, MoveInput, NewcomerInput, PlannedChange,
    RebalanceInput, ReplacementInput, ReplicasInput, SettingsInput, WeightInput, ZoneInput,
};
pub use doctor::{CheckOutcome, Finding};
pub use errors::{ErrorDetail, ErrorReport, RefusalDetail, RefusalReport};
pub use explanation::Explanation;
pub use groups::{GroupMember, GroupMembership, GroupProgress};
pub use input::{InputError, JoinInput, TaskInput, TasksInput, each_once};
pub use operations::{
    ChangeReport, ChangeState, ClusterMember, ClusterOverview, ClusterSettings, Invitation, LayoutTotals, MemberShare,
    MetadataGroup, PartitionMove, PartitionPhase, RecoveredPartition, RecoveryReport,
};
pub use policy_input::{BackoffInput, QueuePolicyInput};
pub use queues::{Count, Queue, QueuePolicy, StateCounts};
pub use redrive::{BulkOutcome, ExistingCopy, HeldLetters, LetterAck};
pub use schedule_input::ScheduleInput;
pub use schedules::{Schedule, ScheduleRemoval};
pub use session_inputs::{SessionInput, SessionOpenInput};
pub use status::{NodeCounters, NodeTotals, PartitionTotals, Status};
pub use task_inputs::{CancelInput, Choice, GroupCloseInput, Purge, PurgeInput, Redrive, RedriveInput};
pub use tasks::{LogEntry, LostPart, Task, TaskClaim, UncountedResult};
pub use texts::{acks, watch_cursor, watch_cursor_text};
pub use time::{duration_ms, instant_ms};
pub use transactions::{ChangeInput, DeleteInput, DependInput, TaskStamp, TransactionAck, TransactionInput};
pub use watch::{WatchEvent, WatchNotice, WatchNoticeKind};
pub use writes::{CancelAck, MemberAck, UniqueAck, WriteAck};
