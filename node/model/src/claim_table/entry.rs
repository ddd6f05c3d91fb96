//! Claim-table entry of a task: its holder, or its last holder.

use crate::limits::PAST_CLAIMS_MAX;
use crate::task::{Cancel, Completed, Content, PastClaim, Task, bound_reasons, claim_end, end_bytes};
use crate::viewstamp::Viewstamp;
use norn_wire::response::{ClaimEnd, ClaimOutcome};
use norn_wire::{ClaimId, TaskId, Token};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Claim-table entry: present or last claim of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimEntry {
    /// Token of the latest grant.
    pub token: Token,
    /// Viewstamp of the operation that granted or last renewed it.
    pub renewed: Viewstamp,
    /// Attempts so far: claims that failed or ran out, and the present one.
    pub attempt: u32,
    /// Worker name, for people to read.
    pub worker: Arc<str>,
    /// Claim call that took the task.
    pub claim: ClaimId,
    /// Length of the lease.
    pub lease_ms: u64,
    /// When it was granted, by the leader's wall clock.
    pub granted_ms: u64,
    /// When it ends, by the wall clock of the leader that appended the grant or renewal.
    pub expires_ms: u64,
    /// State of the claim.
    pub state: ClaimState,
    /// Earlier claims, oldest first, at most [`PAST_CLAIMS_MAX`].
    pub past: Vec<(Token, PastClaim)>,
    /// Worker session with which the claim ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<TaskId>,
}

/// State of a claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClaimState {
    /// Held. A claim past its time stays held until another claim takes over.
    Held,
    /// Given back; claimable from `not_before_ms` on.
    Released {
        /// Earliest next claim, by the wall clock.
        not_before_ms: u64,
        /// How the claim ended. Older logs do not have it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        end: Option<Arc<ClaimEnd>>,
    },
    /// Revoked before any client learned of it.
    Void,
    /// The task is given up. Becomes a fact of the task through `Drop`.
    Dead {
        /// Reason, for people to read.
        reason: Arc<str>,
        /// When it was given up, by the leader's wall clock.
        at_ms: u64,
        /// How the claim ended. Older logs do not have it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        end: Option<Arc<ClaimEnd>>,
    },
    /// Its completion is the one that counts. It becomes a fact of the task once this is committed.
    Sealed {
        /// The completion.
        completed: Box<Completed>,
    },
}

impl ClaimEntry {
    /// Returns under which claim the task was given up, when, and why; if it was.
    pub fn death(&self) -> Option<(Token, u64, &str)> {
        match &self.state {
            ClaimState::Dead { reason, at_ms, .. } => Some((self.token, *at_ms, reason)),
            ClaimState::Held | ClaimState::Released { .. } | ClaimState::Void | ClaimState::Sealed { .. } => None,
        }
    }

    /// Returns the same as the fact that it becomes.
    pub fn dead(&self) -> Option<Cancel> {
        self.death().map(|(_, at_ms, reason)| Cancel { dead: true, reason: reason.to_owned(), at_ms })
    }
}

impl ClaimState {
    /// Whether the task is never granted again.
    pub fn is_final(&self) -> bool {
        matches!(self, ClaimState::Dead { .. } | ClaimState::Sealed { .. })
    }
}

impl ClaimEntry {
    /// Returns how the claim ended, if that was recorded.
    pub fn end(&self) -> Option<&Arc<ClaimEnd>> {
        match &self.state {
            ClaimState::Released { end, .. } | ClaimState::Dead { end, .. } => end.as_ref(),
            ClaimState::Held | ClaimState::Void | ClaimState::Sealed { .. } => None,
        }
    }

    /// Returns the end of an expired lease.
    pub fn expired(&self) -> Arc<ClaimEnd> {
        claim_end(ClaimOutcome::Expired, self.expires_ms, "")
    }

    /// Returns the end of a claim of an ended task, if the claim was held to the last and another ending counts.
    pub fn end_with<S: Content>(&self, task: &Task<S>) -> Option<Arc<ClaimEnd>> {
        let held = matches!(self.state, ClaimState::Held | ClaimState::Sealed { .. });
        let wins = task.facts.as_ref().and_then(|facts| facts.winner()).is_some_and(|(token, _)| *token == self.token);
        let at_ms = task.tombstone().filter(|_| held && !wins)?.at_ms;
        let over = self.expires_ms <= at_ms;
        Some(if over { self.expired() } else { claim_end(ClaimOutcome::Superseded, at_ms, "") })
    }

    /// Returns how the latest attempt ended, if that was recorded. A claim given back or revoked is no attempt.
    pub fn last_attempt(&self) -> Option<Arc<ClaimEnd>> {
        let own = match &self.state {
            ClaimState::Released { end, .. } | ClaimState::Dead { end, .. } => Some(end),
            ClaimState::Held | ClaimState::Void | ClaimState::Sealed { .. } => None,
        };
        let mut ends = own.into_iter().chain(self.past.iter().rev().map(|(_, claim)| &claim.end));
        let is_attempt = |end: &ClaimEnd| end.outcome != ClaimOutcome::Released;
        ends.find(|end| end.as_deref().is_none_or(is_attempt))?.clone()
    }

    /// When the task was last granted to a client. A revoked grant does not count.
    pub fn served_ms(&self) -> Option<u64> {
        match self.state {
            ClaimState::Void => self.past.last().map(|(_, claim)| claim.start_ms),
            _ => Some(self.granted_ms),
        }
    }

    /// Size of the claim history in bytes, for budgets.
    pub fn size_bytes(&self) -> usize {
        let own = self.end().map_or(0, |end| end_bytes(end));
        self.past.iter().map(|(_, claim)| claim.size_bytes()).sum::<usize>() + own
    }

    /// Returns all claims so far, oldest first and bounded; includes the present one unless it was revoked.
    pub fn history(&self) -> Vec<(Token, PastClaim)> {
        self.history_with(None)
    }

    /// Returns the same, with `end` as the end of a claim that was held.
    pub fn history_with(&self, end: Option<Arc<ClaimEnd>>) -> Vec<(Token, PastClaim)> {
        let mut past = self.past.clone();
        if self.state != ClaimState::Void {
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
        assert!(past.len() <= PAST_CLAIMS_MAX, "a task shows too many past claims");
        bound_reasons(&mut past);
        past
    }
}
