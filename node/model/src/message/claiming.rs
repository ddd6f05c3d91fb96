//! Claims: where work is, grants, and what becomes of them.

use super::LogPosition;
use super::kinds::{Check, Class, Properties, of};
use crate::viewstamp::{Epoch, Viewstamp};
use norn_wire::{Claim, ClaimId, Granted, PartitionId, QueueName, TaskId, Token};
use serde::{Deserialize, Serialize};

/// Best claimable task of a queue at a node, over all partitions that it leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Priority of the first task.
    pub priority: i32,
    /// Its id.
    pub id: TaskId,
    /// Number of claimable tasks, about.
    pub count: u64,
    /// Where keys take turns: when the key of the first task was last served, by its leader's wall clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served_ms: Option<u64>,
}

/// Claims: where work is, grants, and what becomes of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Claiming {
    /// Follower to leader: this partition has ready tasks, and its leader has been silent. Asks whether it still leads.
    #[serde(rename = "wk")]
    Wake { partition: PartitionId, epoch: Epoch, ids: Vec<TaskId> },
    /// Answer to `Wake`: whether the sender leads in this epoch or a later one.
    #[serde(rename = "ld")]
    Led { partition: PartitionId, epoch: Epoch, leads: bool },
    /// Asks for the certain heads of these queues: the receiver asks its cohorts before it answers.
    #[serde(rename = "pr")]
    Probe { request_id: u64, queues: Vec<QueueName> },
    /// Answer to `Probe`: heads in the order of the queues, and the partitions that the answer covers.
    #[serde(rename = "pb")]
    Probed { request_id: u64, heads: Vec<Option<Head>>, covered: Vec<PartitionId> },
    /// Asks a cohort what is ready in the partitions that the sender leads.
    #[serde(rename = "pl")]
    Pull { request_id: u64, queues: Vec<QueueName> },
    /// Answer to `Pull`.
    #[serde(rename = "pd")]
    Pulled { request_id: u64, partitions: Vec<PartitionId>, ready: Vec<TaskId>, more: bool },
    /// Asks for grants of tasks to a worker. With `recall`: only those that this call was granted before. With `max` 0 as well:
    /// this question is given up, and its grants go back.
    #[serde(rename = "gr")]
    GrantAsk {
        request_id: u64,
        claim: Box<Claim>,
        max: u32,
        recall: bool,
        /// Tasks that the call has already, which need not be reported again.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        got: Vec<TaskId>,
    },
    /// Committed grants, and the remaining heads of the queues. A grant made for this very question comes with its viewstamp and
    /// may be given back; one that was found again may have reached a client already.
    #[serde(rename = "gd")]
    GrantAnswer {
        request_id: u64,
        claim: ClaimId,
        tasks: Vec<(Granted, Option<Viewstamp>)>,
        heads: Vec<Option<Head>>,
        /// With `recall`: partitions in which the call holds nothing beside these grants. Otherwise: partitions in which it may
        /// hold more; their leaders know.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        partitions: Vec<PartitionId>,
    },
    /// Grants that no client learned of, each with the viewstamp of its answer: the receiver revokes them, unless they were
    /// renewed or asked for again since.
    #[serde(rename = "re")]
    Return { items: Vec<(TaskId, Token, Viewstamp)> },
    /// Claims that are over and were never renewed: those that no client of the receiver has confirmed go back.
    #[serde(rename = "gq")]
    ConfirmAsk { items: Vec<(TaskId, Token, ClaimId)> },
    /// Answer to `ConfirmAsk`: the sender has nothing more to say of `settled`; those in `back` go back, as by `Return`. Claims
    /// in neither may be in an answer that the sender waits for, or be found again.
    #[serde(rename = "gn")]
    ConfirmAnswer { settled: Vec<(TaskId, Token)>, back: Vec<(TaskId, Token, Viewstamp)> },
    /// The call of a client is over, and the client has only `keeps` of its grants: the receiver revokes the rest.
    #[serde(rename = "lv")]
    Leave {
        claim: ClaimId,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        keeps: Vec<TaskId>,
    },
    /// Subscribes to these queues for waiting workers: at most `credits` notices when there is work.
    #[serde(rename = "ni")]
    Interest { queues: Vec<(QueueName, u32)> },
    /// Notice to a subscriber: there is work in this queue.
    #[serde(rename = "av")]
    Available { queue: QueueName, head: Option<Head> },
}

impl Claiming {
    /// What each message says of itself.
    pub(super) fn properties(&self) -> Properties {
        match self {
            Claiming::Wake { partition, .. } => of("wake", Class::Urgent, Some(*partition), Check::Nothing),
            Claiming::Led { partition, .. } => of("led", Class::Urgent, Some(*partition), Check::Nothing),
            Claiming::Probe { .. } => of("probe", Class::Urgent, None, Check::Nothing),
            Claiming::Probed { .. } => of("probed", Class::Urgent, None, Check::Nothing),
            Claiming::Pull { .. } => of("pull", Class::Urgent, None, Check::Nothing),
            Claiming::Pulled { .. } => of("pulled", Class::Urgent, None, Check::Nothing),
            Claiming::GrantAsk { request_id, max, recall, .. } => of(
                "grant_ask",
                Class::Urgent,
                None,
                if !recall || *max > 0 { Check::Process(*request_id) } else { Check::Nothing },
            ),
            Claiming::GrantAnswer { .. } => of("grant_answer", Class::Urgent, None, Check::Nothing),
            Claiming::Return { .. } => of("return", Class::Urgent, None, Check::Nothing),
            Claiming::ConfirmAsk { .. } => of("confirm_ask", Class::Urgent, None, Check::Nothing),
            Claiming::ConfirmAnswer { .. } => of("confirm_answer", Class::Urgent, None, Check::Nothing),
            Claiming::Leave { .. } => of("leave", Class::Urgent, None, Check::Nothing),
            Claiming::Interest { .. } => of("interest", Class::Urgent, None, Check::Nothing),
            Claiming::Available { .. } => of("available", Class::Urgent, None, Check::Nothing),
        }
    }

    /// Fills in the sender's durable log position, where the message depends on it.
    pub(super) fn set_log(&mut self, _word: LogPosition) {
        match self {
            Claiming::Wake { .. }
            | Claiming::Led { .. }
            | Claiming::Probe { .. }
            | Claiming::Probed { .. }
            | Claiming::Pull { .. }
            | Claiming::Pulled { .. }
            | Claiming::GrantAsk { .. }
            | Claiming::GrantAnswer { .. }
            | Claiming::Return { .. }
            | Claiming::ConfirmAsk { .. }
            | Claiming::ConfirmAnswer { .. }
            | Claiming::Leave { .. }
            | Claiming::Interest { .. }
            | Claiming::Available { .. } => {}
        }
    }
}
