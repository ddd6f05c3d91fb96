//! Properties of messages: stream, name, and the sender's durable log position.

use super::{LogWord, PeerMessage};
use norn_wire::{PartitionId, Request};

/// The stream of a message. Streams are separate so that bulk never delays claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Heartbeats, elections, claims, writes.
    Urgent,
    /// Anti-entropy, lists, whole tables.
    Bulk,
}

impl PeerMessage {
    /// The stream that it travels on.
    pub fn class(&self) -> Class {
        match self {
            PeerMessage::State { .. }
            | PeerMessage::Ages { .. }
            | PeerMessage::Roster { .. }
            | PeerMessage::ListAsk { .. }
            | PeerMessage::ListAnswer { .. }
            | PeerMessage::Watched { .. }
            | PeerMessage::Roots { .. }
            | PeerMessage::RootsAnswer { .. }
            | PeerMessage::GroupsAsk { .. }
            | PeerMessage::GroupsAnswer { .. }
            | PeerMessage::Recent { .. }
            | PeerMessage::Want { .. }
            | PeerMessage::Steps { .. }
            | PeerMessage::Lacks { .. }
            | PeerMessage::Tasks { .. }
            | PeerMessage::Hint { .. }
            | PeerMessage::Gone { .. }
            | PeerMessage::Compare { .. }
            | PeerMessage::Compared { .. }
            | PeerMessage::Tombs { .. } => Class::Bulk,
            _ => Class::Urgent,
        }
    }

    /// The sender's durable log position, if the message depends on it.
    pub fn log(&self) -> Option<LogWord> {
        let word = match self {
            PeerMessage::VoteAnswer { log, .. }
            | PeerMessage::Ack { log, .. }
            | PeerMessage::Written { log, .. }
            | PeerMessage::Buried { log, .. }
            | PeerMessage::Forgot { log, .. }
            | PeerMessage::Ready { log, .. }
            | PeerMessage::Hinted { log, .. } => *log,
            PeerMessage::Heartbeat(heartbeat) => {
                LogWord { boot: heartbeat.boot, durable: heartbeat.durable, start: heartbeat.start }
            }
            _ => return None,
        };
        (word.boot > 0).then_some(word)
    }

    /// Fills in the sender's durable log position, once everything the message depends on is durable.
    pub fn set_log(&mut self, word: LogWord) {
        match self {
            PeerMessage::VoteAnswer { log, .. }
            | PeerMessage::Ack { log, .. }
            | PeerMessage::Written { log, .. }
            | PeerMessage::Buried { log, .. }
            | PeerMessage::Forgot { log, .. }
            | PeerMessage::Ready { log, .. }
            | PeerMessage::Hinted { log, .. } => *log = word,
            _ => {}
        }
    }

    /// The partition in which the receiver's replica is asked for a promise, or for a statement that it knows all it should.
    pub fn asks_for_promise(&self) -> Option<PartitionId> {
        match self {
            PeerMessage::PreVote { partition, .. }
            | PeerMessage::Vote { partition, .. }
            | PeerMessage::Fetch { partition, .. }
            | PeerMessage::Transfer { partition, .. }
            | PeerMessage::Install { partition, .. }
            | PeerMessage::Snapshot { partition, .. }
            | PeerMessage::Ops { partition, .. }
            | PeerMessage::Read { partition, .. }
            | PeerMessage::Compare { partition, .. }
            | PeerMessage::Tombs { partition, .. }
            | PeerMessage::Forget { partition, .. } => Some(*partition),
            _ => None,
        }
    }

    /// Number of a request that takes something for the process that asks: claims, permits, longer leases, changes of the cluster. A copy
    /// may arrive arbitrarily late, and once the asking process has ended no client waits for the answer. Requests that give something
    /// back stay valid then.
    pub fn takes(&self) -> Option<u64> {
        match self {
            PeerMessage::GrantAsk { ask, max, recall, .. } => (!recall || *max > 0).then_some(*ask),
            PeerMessage::PermitAsk { ask, .. } => Some(*ask),
            PeerMessage::Forward { ask, request } => {
                let takes = matches!(
                    **request,
                    Request::Renew { .. } | Request::Change { .. } | Request::Arrange { .. } | Request::Schedule(_)
                );
                takes.then_some(*ask)
            }
            _ => None,
        }
    }

    /// A short name for traces and counters.
    #[expect(clippy::too_many_lines, reason = "one line for each kind")]
    pub fn name(&self) -> &'static str {
        match self {
            PeerMessage::Heartbeat(_) => "heartbeat",
            PeerMessage::PreVote { .. } => "pre_vote",
            PeerMessage::PreVoteAnswer { .. } => "pre_vote_answer",
            PeerMessage::Vote { .. } => "vote",
            PeerMessage::Rescue { .. } => "rescue",
            PeerMessage::VoteAnswer { .. } => "vote_answer",
            PeerMessage::Fetch { .. } => "fetch",
            PeerMessage::State { .. } => "state",
            PeerMessage::Transfer { .. } => "transfer",
            PeerMessage::Install { .. } => "install",
            PeerMessage::Snapshot { .. } => "snapshot",
            PeerMessage::Ops { .. } => "ops",
            PeerMessage::Ack { .. } => "ack",
            PeerMessage::Ages { .. } => "ages",
            PeerMessage::Nack { .. } => "nack",
            PeerMessage::Rejoin { .. } => "rejoin",
            PeerMessage::Rejoined { .. } => "rejoined",
            PeerMessage::Ready { .. } => "ready",
            PeerMessage::Dismiss { .. } => "dismiss",
            PeerMessage::Outside { .. } => "outside",
            PeerMessage::Stray { .. } => "stray",
            PeerMessage::Unheld { .. } => "unheld",
            PeerMessage::Arrange { .. } => "arrange",
            PeerMessage::RouteAsk { .. } => "route_ask",
            PeerMessage::Route { .. } => "route",
            PeerMessage::Wake { .. } => "wake",
            PeerMessage::Led { .. } => "led",
            PeerMessage::Write { .. } => "write",
            PeerMessage::Written { .. } => "written",
            PeerMessage::Kept { .. } => "kept",
            PeerMessage::Read { .. } => "read",
            PeerMessage::Known { .. } => "known",
            PeerMessage::CountAsk { .. } => "count_ask",
            PeerMessage::CountAnswer { .. } => "count_answer",
            PeerMessage::ListAsk { .. } => "list_ask",
            PeerMessage::ListAnswer { .. } => "list_answer",
            PeerMessage::Roots { .. } => "roots",
            PeerMessage::RootsAnswer { .. } => "roots_answer",
            PeerMessage::GroupsAsk { .. } => "groups_ask",
            PeerMessage::GroupsAnswer { .. } => "groups_answer",
            PeerMessage::Recent { .. } => "recent",
            PeerMessage::Want { .. } => "want",
            PeerMessage::Need { .. } => "need",
            PeerMessage::Steps { .. } => "steps",
            PeerMessage::Lacks { .. } => "lacks",
            PeerMessage::Tasks { .. } => "tasks",
            PeerMessage::Hint { .. } => "hint",
            PeerMessage::Hinted { .. } => "hinted",
            PeerMessage::Gone { .. } => "gone",
            PeerMessage::Compare { .. } => "compare",
            PeerMessage::Compared { .. } => "compared",
            PeerMessage::Tombs { .. } => "tombs",
            PeerMessage::Buried { .. } => "buried",
            PeerMessage::Outboxes { .. } => "outboxes",
            PeerMessage::Childless { .. } => "childless",
            PeerMessage::Forget { .. } => "forget",
            PeerMessage::Forgot { .. } => "forgot",
            PeerMessage::Probe { .. } => "probe",
            PeerMessage::Probed { .. } => "probed",
            PeerMessage::Pull { .. } => "pull",
            PeerMessage::Pulled { .. } => "pulled",
            PeerMessage::GrantAsk { .. } => "grant_ask",
            PeerMessage::GrantAnswer { .. } => "grant_answer",
            PeerMessage::ConfirmAsk { .. } => "confirm_ask",
            PeerMessage::ConfirmAnswer { .. } => "confirm_answer",
            PeerMessage::Leave { .. } => "leave",
            PeerMessage::Return { .. } => "return",
            PeerMessage::Interest { .. } => "interest",
            PeerMessage::Available { .. } => "available",
            PeerMessage::Roster { .. } => "roster",
            PeerMessage::Follow { .. } => "follow",
            PeerMessage::Ends { .. } => "ends",
            PeerMessage::MemberFailed { .. } => "member_failed",
            PeerMessage::Watch { .. } => "watch",
            PeerMessage::Watched { .. } => "watched",
            PeerMessage::WatchNews { .. } => "watch_news",
            PeerMessage::KeyAsk { .. } => "key_ask",
            PeerMessage::KeyAnswer { .. } => "key_answer",
            PeerMessage::PermitAsk { .. } => "permit_ask",
            PeerMessage::Permits { .. } => "permits",
            PeerMessage::PermitsBack { .. } => "permits_back",
            PeerMessage::QuotaAsk { .. } => "quota_ask",
            PeerMessage::Quota { .. } => "quota",
            PeerMessage::QuotaCall { .. } => "quota_call",
            PeerMessage::Forward { .. } => "forward",
            PeerMessage::Forwarded { .. } => "forwarded",
        }
    }
}
