//! Requests of clients that another node decides.

use super::LogWord;
use super::kinds::{Check, Class, Properties, of};
use norn_wire::{Request, Response};
use serde::{Deserialize, Serialize};

/// Requests of clients that another node decides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Forwarding {
    /// Forwards a client's request about a partition that the receiver leads.
    #[serde(rename = "fw")]
    Forward { ask: u64, request: Box<Request> },
    /// Answer to `Forward`.
    #[serde(rename = "fa")]
    Forwarded { ask: u64, response: Box<Response> },
}

impl Forwarding {
    /// What each message says of itself.
    pub(super) fn properties(&self) -> Properties {
        match self {
            Forwarding::Forward { ask, request } => {
                of("forward", Class::Urgent, None, if takes(request) { Check::Process(*ask) } else { Check::Nothing })
            }
            Forwarding::Forwarded { .. } => of("forwarded", Class::Urgent, None, Check::Nothing),
        }
    }

    /// Fills in the sender's durable log position, where the message depends on it.
    pub(super) fn set_log(&mut self, _word: LogWord) {
        match self {
            Forwarding::Forward { .. } | Forwarding::Forwarded { .. } => {}
        }
    }
}

/// Whether a request takes something for the process that asks. Requests that give something back stay valid after its end.
fn takes(request: &Request) -> bool {
    matches!(request, Request::Renew { .. } | Request::Change { .. } | Request::Arrange { .. } | Request::Schedule(_))
}
