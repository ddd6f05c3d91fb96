//! Answers that HTTP alone has: pages, and lists of results.

use norn_client::api;
use norn_wire::{Acked, Error, TaskId, TaskView};
use serde::{Serialize, Serializer};
use utoipa::ToSchema;

/// Defines the result of one item of a batch: what the single call answers, or its error.
macro_rules! result_of {
    ($($(#[$doc:meta])* $name:ident: $form:ty;)+) => {$(
        $(#[$doc])*
        #[derive(Debug, Serialize, ToSchema)]
        #[serde(untagged)]
        pub enum $name<'a> {
            /// It succeeded.
            Done(Box<$form>),
            /// It failed: what happened, what to do, and with which task.
            Failed(api::ErrorReport<'a>),
        }
    )+};
}

result_of! {
    /// Result of one task to enqueue, or of one completion.
    WriteResult: api::WriteAck;
    /// Result of one renewal.
    RenewResult: api::HeldClaim;
    /// Result of one task to read.
    TaskResult: api::Task<'a>;
}

impl WriteResult<'static> {
    /// The form of a result.
    pub fn new(result: Result<Acked, Error>) -> Self {
        match result {
            Ok(acked) => WriteResult::Done(Box::new((&acked).into())),
            Err(error) => WriteResult::Failed(error.into()),
        }
    }
}

impl<'a> TaskResult<'a> {
    /// The form of a result.
    pub fn new(result: &'a Result<TaskView, Error>) -> Self {
        match result {
            Ok(task) => TaskResult::Done(Box::new(task.into())),
            Err(error) => TaskResult::Failed(error.into()),
        }
    }
}

/// Results of a batch, in the order of its items.
#[derive(Debug, Serialize, ToSchema)]
pub struct WriteResults<'a> {
    /// One for each item.
    pub items: Vec<WriteResult<'a>>,
}

/// Results of renewals, in their order.
#[derive(Debug, Serialize, ToSchema)]
pub struct RenewResults<'a> {
    /// One for each item.
    pub items: Vec<RenewResult<'a>>,
}

/// Tasks that were asked for by their ids, in the order of the ids.
#[derive(Debug, Serialize, ToSchema)]
pub struct TaskResults<'a> {
    /// One for each id.
    pub items: Vec<TaskResult<'a>>,
}

/// A stored task.
#[derive(Debug, Serialize, ToSchema)]
pub struct StoredAck {
    /// The task.
    #[serde(flatten)]
    pub task: api::WriteAck,
    /// Whether it existed before, so that the sent task was not stored. Only with `unique`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = bool, required = false)]
    pub existing: Option<bool>,
}

/// Answer to the enqueue of a list, or of a unique task that existed.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
pub enum EnqueueAnswer<'a> {
    /// Results of a list.
    Several(WriteResults<'a>),
    /// The task that existed.
    Existing(StoredAck),
}

/// A page of a list.
#[derive(Debug, Serialize, ToSchema)]
pub struct TaskPage<'a> {
    /// Tasks, in the order of the list. A page may have fewer than asked for, and none, without being the last.
    pub tasks: Vec<api::Task<'a>>,
    /// Pass it as `after` to get the next page; `null` after the last.
    #[serde(serialize_with = "id_if_any")]
    #[schema(value_type = Option<String>, required)]
    pub next: Option<TaskId>,
}

/// Answer to a list.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
pub enum Listed<'a> {
    /// A page.
    Page(TaskPage<'a>),
    /// Tasks by their ids.
    Several(TaskResults<'a>),
}

/// Ids for tasks to be enqueued under them.
#[derive(Debug, Serialize, ToSchema)]
pub struct LentIds {
    /// The ids, each of its own, in increasing order.
    #[serde(serialize_with = "ids")]
    #[schema(value_type = Vec<String>)]
    pub ids: Vec<TaskId>,
}

/// Log of a task.
#[derive(Debug, Serialize, ToSchema)]
pub struct TaskLog<'a> {
    /// Entries of all claims, ordered by token and sequence.
    pub updates: Vec<api::LogEntry<'a>>,
    /// Whether more entries were written, which are shown once those before them are here.
    pub log_incomplete: bool,
}

/// Why a task is in its state.
#[derive(Debug, Serialize, ToSchema)]
pub struct Explanations {
    /// The task, and those that it waits for, directly or through others: 1,000 at most.
    pub tasks: Vec<api::Explanation>,
}

/// Tasks that a claim was granted.
#[derive(Debug, Serialize, ToSchema)]
pub struct GrantedTasks<'a> {
    /// The tasks, at most as many as asked for; none if there was none to claim.
    pub tasks: Vec<api::GrantedTask<'a>>,
    /// Number of partitions that could not be asked. With 0 the answer is complete.
    pub unavailable: u32,
}

fn id_if_any<S: Serializer>(id: &Option<TaskId>, serializer: S) -> Result<S::Ok, S::Error> {
    id.map(|id| id.to_string()).serialize(serializer)
}

fn ids<S: Serializer>(ids: &[TaskId], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(ids.iter().map(TaskId::to_string))
}
