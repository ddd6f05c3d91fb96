//! Requests of clients that another node decides.

use super::LogPosition;
use super::kinds::{Check, Class, Properties, of};
use norn_wire::{Request, Response};
use serde::{Deserialize, Serialize};

/// Requests of clients that another node decides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Forwarding {
    /// Forwards a client's request about a partition that the receiver leads.
    #[serde(rename = "fw")]
    Forward { request_id: u64, request: Box<Request> },
    /// Answer to `Forward`.
    #[serde(rename = "fa")]
    Forwarded { request_id: u64, response: Box<Response> },
}

impl Forwarding {
    /// What each message says of itself.
    pub(super) fn properties(&self) -> Properties {
        match self {
            Forwarding::Forward { request_id, request } => of(
                "forward",
                Class::Urgent,
                None,
                if takes(request) { Check::Process(*request_id) } else { Check::Nothing },
            ),
            Forwarding::Forwarded { .. } => of("forwarded", Class::Urgent, None, Check::Nothing),
        }
    }

    /// Fills in the sender's durable log position, where the message depends on it.
    pub(super) fn set_log(&mut self, _word: LogPosition) {
        match self {
            Forwarding::Forward { .. } | Forwarding::Forwarded { .. } => {}
        }
    }
}

/// Whether a request takes something for the process that asks. Requests that give something back stay valid after its end.
fn takes(request: &Request) -> bool {
    matches!(request, Request::Renew { .. } | Request::Change { .. } | Request::Arrange { .. } | Request::Schedule(_))
}
