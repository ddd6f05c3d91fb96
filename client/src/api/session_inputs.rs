//! Sessions of workers, as programs ask for them.

use super::claim_inputs::WORKER;
use super::fields::{milliseconds, object_only};
use super::{HeldClaimInput, InputError};
use crate::session::{Draft, SESSIONS_QUEUE};
use norn_wire::limits::{LEASE_MS_MAX, LEASE_MS_MIN};
use norn_wire::{Acks, Claim, ClaimId, Completion, QueueName, Request, TaskId, Token};
use serde::{Deserialize, Serialize};

/// Length of a session that names none.
const TTL_MS: u64 = 10_000;
/// Longest wait for a session to open, once it is enqueued.
const OPEN_MS: u64 = 5_000;

/// A session to open: one heartbeat for all claims of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct SessionOpenInput {
    /// Milliseconds after which the session ends without a renewal; 10 seconds if left out.
    #[serde(default, deserialize_with = "milliseconds", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 100, maximum = 3_600_000))]
    pub ttl_ms: Option<u64>,
    /// Name of the worker, for people to read: host and process, for example; `norn` if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
}

object_only!(SessionOpenInput, "an object, with `ttl_ms` or `worker` or none of them");

impl SessionOpenInput {
    /// Converts it into the task that is enqueued and the claim that then takes it. Both are checked, as a session that cannot be
    /// claimed would be of use to no worker. Sessions are interchangeable: the claim may take another one.
    ///
    /// ```
    /// use norn_client::api::SessionOpenInput;
    /// let input: SessionOpenInput = serde_json::from_str(r#"{"ttl_ms": 5000, "worker": "host-7"}"#)?;
    /// let (draft, claim) = input.open()?;
    /// assert_eq!((draft.spec.queue.as_str(), claim.lease_ms), ("norn/sessions", 5_000));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open(self) -> Result<(Draft, Claim), InputError> {
        let ttl_ms = self.ttl_ms.unwrap_or(TTL_MS);
        if !(LEASE_MS_MIN..=LEASE_MS_MAX).contains(&ttl_ms) {
            let message =
                format!("a session lasts {LEASE_MS_MIN} to {LEASE_MS_MAX} ms without a renewal, not {ttl_ms} ms");
            return Err(InputError(message));
        }
        let worker = self.worker.unwrap_or_else(|| WORKER.to_owned());
        let claim = Claim {
            claim: ClaimId(0),
            repeated: false,
            queues: vec![QueueName::new(SESSIONS_QUEUE)?],
            lease_ms: ttl_ms,
            wait_ms: OPEN_MS.min(ttl_ms / 4),
            max: 1,
            worker,
            lease_open: false,
            session: None,
            depends: Vec::new(),
            confirms: false,
        };
        Request::Claim(claim.clone()).check()?;
        Ok((Draft::session(&claim.worker), claim))
    }
}

/// A session to renew or to end. Read the task before, and check that it is a session: otherwise an end would complete another task.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct SessionInput {
    /// Session.
    pub id: String,
    /// Token of the session.
    pub token: String,
}

object_only!(SessionInput, "a session as an object with `id` and `token`");

impl TryFrom<SessionInput> for (TaskId, Token) {
    type Error = InputError;

    fn try_from(input: SessionInput) -> Result<(TaskId, Token), InputError> {
        let SessionInput { id, token } = input;
        HeldClaimInput { id, token }.try_into()
    }
}

impl SessionInput {
    /// Converts it into the request that renews the session, by its full length.
    pub fn renewal(self) -> Result<Request, InputError> {
        Ok(Request::Renew { items: vec![self.try_into()?], lease_ms: None })
    }

    /// Converts it into the request that ends the session.
    pub fn end(self) -> Result<Request, InputError> {
        let (id, token) = self.try_into()?;
        let completion = Completion { id, token, sequence: None, result: None, at_ms: 0, children: Vec::new() };
        Ok(Request::Complete { items: vec![completion], acks: Acks::Quorum })
    }
}
