//! A task's entry in the table: who holds it, or held it last.

use super::Viewstamp;
use crate::limits::PAST_CLAIMS_MAX;
use crate::protocol::task::{Cancel, Completed, Content, PastClaim, Task, bound_reasons, claim_end, end_bytes};
use norn_wire::response::{ClaimEnd, ClaimOutcome};
use norn_wire::{ClaimId, TaskId, Token};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Who holds a task, or held it last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cell {
    /// Token of the latest grant.
    pub token: Token,
    /// Viewstamp of the operation that granted or last renewed it.
    pub renewed: Viewstamp,
    /// Attempts so far: claims that failed or ran out, and the present one.
    pub attempt: u32,
    /// Who works, for people to read.
    pub worker: Arc<str>,
    /// The call that took it.
    pub claim: ClaimId,
    /// Length of the lease.
    pub lease_ms: u64,
    /// When it was granted, by the leader's wall clock.
    pub granted_ms: u64,
    /// When it ends, by the wall clock of the leader that appended the grant or renewal.
    pub expires_ms: u64,
    /// What became of it.
    pub state: CellState,
    /// Earlier claims, oldest first, at most [`PAST_CLAIMS_MAX`].
    pub past: Vec<(Token, PastClaim)>,
    /// The session of the worker, with which the claim ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<TaskId>,
}

/// What became of a claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum CellState {
    /// Held, even if past its time, as long as nobody took over.
    Held,
    /// Given back; claimable from then on.
    Released {
        /// By the wall clock.
        not_before_ms: u64,
        /// How the claim ended. Logs of before say nothing of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        end: Option<Arc<ClaimEnd>>,
    },
    /// Taken back before anybody was told.
    Void,
    /// The task shall not be tried again. Becomes a fact of the task through `Drop`.
    Dead {
        /// For people.
        reason: Arc<str>,
        /// When, by the leader's wall clock.
        at_ms: u64,
        /// How the claim ended. Logs of before say nothing of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        end: Option<Arc<ClaimEnd>>,
    },
    /// Its completion is the one that counts. Becomes a fact of the task once that is committed.
    Sealed {
        /// The completion.
        completed: Box<Completed>,
    },
}

impl Cell {
    /// Under which claim the task was given up, when, and why; if it was.
    pub fn death(&self) -> Option<(Token, u64, &str)> {
        match &self.state {
            CellState::Dead { reason, at_ms, .. } => Some((self.token, *at_ms, reason)),
            CellState::Held | CellState::Released { .. } | CellState::Void | CellState::Sealed { .. } => None,
        }
    }

    /// The same, as the fact that it becomes.
    pub fn dead(&self) -> Option<Cancel> {
        self.death().map(|(_, at_ms, reason)| Cancel { dead: true, reason: reason.to_owned(), at_ms })
    }
}

impl CellState {
    /// Whether nobody is to be granted the task any more.
    pub fn is_final(&self) -> bool {
        matches!(self, CellState::Dead { .. } | CellState::Sealed { .. })
    }
}

impl Cell {
    /// How the claim ended, where that was written down.
    pub fn end(&self) -> Option<&Arc<ClaimEnd>> {
        match &self.state {
            CellState::Released { end, .. } | CellState::Dead { end, .. } => end.as_ref(),
            CellState::Held | CellState::Void | CellState::Sealed { .. } => None,
        }
    }

    /// The end of a lease that ran out.
    pub fn expired(&self) -> Arc<ClaimEnd> {
        claim_end(ClaimOutcome::Expired, self.expires_ms, "")
    }

    /// How the claim of a task that has ended did, where it was held to the last and its completion is not the one that counts.
    pub fn end_with<S: Content>(&self, task: &Task<S>) -> Option<Arc<ClaimEnd>> {
        let held = matches!(self.state, CellState::Held | CellState::Sealed { .. });
        let wins = task.facts.as_ref().and_then(|facts| facts.winner()).is_some_and(|(token, _)| *token == self.token);
        let at_ms = task.tomb().filter(|_| held && !wins)?.at_ms;
        let over = self.expires_ms <= at_ms;
        Some(if over { self.expired() } else { claim_end(ClaimOutcome::Superseded, at_ms, "") })
    }

    /// How the latest attempt ended, if that was written down: what was given back or taken back is none.
    pub fn last_attempt(&self) -> Option<Arc<ClaimEnd>> {
        let own = match &self.state {
            CellState::Released { end, .. } | CellState::Dead { end, .. } => Some(end),
            CellState::Held | CellState::Void | CellState::Sealed { .. } => None,
        };
        let mut ends = own.into_iter().chain(self.past.iter().rev().map(|(_, claim)| &claim.end));
        let is_attempt = |end: &ClaimEnd| end.outcome != ClaimOutcome::Released;
        ends.find(|end| end.as_deref().is_none_or(is_attempt))?.clone()
    }

    /// When it was last granted to somebody: what was taken back was not.
    pub fn served_ms(&self) -> Option<u64> {
        match self.state {
            CellState::Void => self.past.last().map(|(_, claim)| claim.start_ms),
            _ => Some(self.granted_ms),
        }
    }

    /// Bytes of what it says of claims, for budgets.
    pub fn size_bytes(&self) -> usize {
        let own = self.end().map_or(0, |end| end_bytes(end));
        self.past.iter().map(|(_, claim)| claim.size_bytes()).sum::<usize>() + own
    }

    /// All claims so far, this one included unless it was taken back, oldest first, bounded.
    pub fn history(&self) -> Vec<(Token, PastClaim)> {
        self.history_with(None)
    }

    /// The same, where a claim that was held ended so.
    pub fn history_with(&self, end: Option<Arc<ClaimEnd>>) -> Vec<(Token, PastClaim)> {
        let mut past = self.past.clone();
        if self.state != CellState::Void {
            let claim = PastClaim {
                start_ms: self.granted_ms,
                end_ms: self.expires_ms,
                worker: self.worker.as_ref().to_owned(),
                end: self.end().cloned().or(end),
            };
            past.push((self.token, claim));
        }
        let surplus = past.len().saturating_sub(PAST_CLAIMS_MAX);
        past.drain(..surplus);
        bound_reasons(&mut past);
        past
    }
}
