//! Confirmation of grants: a claim's tasks belong to its caller once the node knows that the answer arrived. Until then the node may
//! take them back.
//!
//! So a claim ends in one of two ways. Either its answer arrives and is [confirmed](Request::Confirm): the call is done when the node
//! acknowledges that. Or the claim is given up, or made elsewhere: then the nodes that were asked get a [leave](Request::Leave)
//! request. A node whose connection is gone cannot be sent one, but notices the loss by itself. This leaves the grants of a node that
//! died right after granting: another node is asked to take them back, also if the first was sent the leave but did not acknowledge it
//! (`leaving.rs`). If a call was answered elsewhere in the end, its leave covers everything but that answer: the first node may have
//! died with grants that were confirmed already.
//!
//! A lease counts from a time before the grant, by the client's own clock: when the call was first sent. After a long wait the lease
//! would be over before it begins. So if the wait took more than a part of the lease, the claims are renewed before the call is done.

use super::call::Stage;
use super::{Attempt, CallId, Output, Session};
use norn_wire::error::{Error, ErrorCode};
use norn_wire::ids::TaskId;
use norn_wire::request::Request;
use norn_wire::response::{Granted, Response};

/// A wait of at least this fraction (1/8) of the lease is long.
const LONG_PART: u64 = 8;

/// Purpose of an attempt's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asks {
    /// The call itself.
    Call,
    /// To confirm that the answer to a claim arrived.
    Confirmation,
    /// To renew a claim's grants, from this time on.
    Renewal { sent_us: u64 },
}

impl Session {
    /// Whether the node wants this answer confirmed.
    pub(super) fn is_to_confirm(&self, endpoint: usize, response: &Response) -> bool {
        let granted = matches!(response, Response::Claimed { tasks, .. } if !tasks.is_empty());
        granted && self.links.get(endpoint).is_ready()
    }

    /// Sends a confirmation that the answer to a claim arrived.
    pub(super) fn confirm(&mut self, id: CallId, endpoint: usize, answer: Response) {
        let Response::Claimed { tasks, left, .. } = answer else { unreachable!("only what was granted is confirmed") };
        let call = self.calls.get_mut(&id).expect("it was just answered");
        let claim = call.claim().expect("only claims are granted tasks");
        call.granted = tasks;
        call.is_unsure = left > 0;
        call.confirmations += 1;
        self.ask_on(id, endpoint, Asks::Confirmation, Request::Confirm { claim });
    }

    /// Sends a further request for a call that was answered.
    fn ask_on(&mut self, id: CallId, endpoint: usize, asks: Asks, request: Request) {
        let (number, received_before) = (self.next_number(), self.links.get(endpoint).received);
        self.calls.get_mut(&id).expect("it was just answered").numbers.push(number);
        let attempt = Attempt { call: id, endpoint, positions: Vec::new(), received_before, asks };
        self.attempts.insert(number, attempt);
        let until_us = self.after_ms(self.patience_ms(endpoint));
        self.set_stage(id, Stage::Sent { number, endpoint, until_us });
        self.outputs.push(Output::Send { endpoint, number, request });
    }

    /// Handles a node's answer to a confirmation.
    pub(super) fn confirmed(&mut self, id: CallId, endpoint: usize, response: Response) {
        let now_us = self.now_us;
        let call = self.calls.get_mut(&id).expect("it was just answered");
        let waited_ms = now_us.saturating_sub(call.first_sent_us.expect("it was sent")) / 1_000;
        let is_late = |task: &Granted| waited_ms >= task.lease_ms / LONG_PART;
        match response {
            Response::Done if call.granted.iter().any(is_late) => {
                let items = call.granted.iter().map(|task| (task.id, task.token)).collect();
                let renewal = Request::Renew { items, lease_ms: None };
                self.ask_on(id, endpoint, Asks::Renewal { sent_us: now_us }, renewal);
            }
            Response::Done => {
                let tasks = std::mem::take(&mut call.granted);
                self.finish(id, Ok(Response::Claimed { tasks, unavailable: 0, left: 0 }));
            }
            Response::Error(error) => self.retry(id, endpoint, error),
            _ => self.retry(id, endpoint, misfit()),
        }
    }

    /// Handles a node's answer to a renewal sent at `sent_us`. A claim whose renewal is refused for good has gone to another worker. If
    /// a renewal may pass later, or all are refused, the whole call is repeated, as the claim may still hold the tasks.
    pub(super) fn renewed(&mut self, id: CallId, (endpoint, sent_us): (usize, u64), response: Response) {
        let call = self.calls.get_mut(&id).expect("it was just answered");
        let results = match response {
            Response::Renewed(results) if results.len() == call.granted.len() => results,
            Response::Error(error) => return self.retry(id, endpoint, error),
            _ => return self.retry(id, endpoint, misfit()),
        };
        let refusals = || results.iter().filter_map(|result| result.as_ref().err());
        let all = refusals().count() == results.len();
        if let Some(error) = refusals().find(|error| all || error.passes()).cloned() {
            return self.retry(id, endpoint, error);
        }
        let granted = std::mem::take(&mut call.granted);
        let renewed = granted.into_iter().zip(results).filter_map(|(task, result)| Some((task, result.ok()?)));
        let tasks = renewed.map(|(task, lease_ms)| Granted { lease_ms, ..task }).collect();
        call.lease_from_us = Some(sent_us);
        self.finish(id, Ok(Response::Claimed { tasks, unavailable: 0, left: 0 }));
    }

    /// Tells a node that the call is made elsewhere, so that the node stops working on it.
    pub(super) fn take_leave_at(&mut self, id: CallId, endpoint: usize) {
        let call = self.calls.get_mut(&id).expect("it is under way");
        let Some(claim) = call.claim().filter(|_| self.links.get(endpoint).is_ready()) else { return };
        let call = self.calls.get_mut(&id).expect("just seen");
        let attempts = &mut self.attempts;
        call.numbers.retain(|number| {
            let goes = attempts[number].endpoint == endpoint;
            if goes {
                attempts.remove(number);
            }
            !goes
        });
        self.say_leave(endpoint, Request::Leave { claim, elsewhere: false, over: false, keeps: Vec::new() });
    }

    /// Ends a claim: nodes that may still grant it something, or may have, are sent a leave.
    pub(super) fn take_leave(&mut self, id: CallId, result: &Result<Response, Error>) {
        let call = &self.calls[&id];
        let Some(claim) = call.claim_to_leave() else { return };
        let open: Vec<usize> = call.numbers.iter().map(|number| self.attempts[number].endpoint).collect();
        let asked = call.numbers.iter().filter(|number| self.attempts[*number].asks == Asks::Call).count();
        let keeps: Vec<TaskId> = match result {
            Ok(Response::Claimed { tasks, .. }) => tasks.iter().map(|task| task.id).collect(),
            _ => Vec::new(),
        };
        let lost = call.sent as usize > call.answered as usize + asked;
        let is_unsure = match result {
            Ok(Response::Claimed { left, .. }) if keeps.is_empty() => *left > 0,
            Ok(_) => call.is_unsure,
            // A call that is refused for good in the end may have been granted tasks before.
            Err(error) => call.answered > 0 && (call.sent > 1 || error.passes()),
        };
        // The caller gets the tasks of the last confirmation, and none of earlier ones.
        let elsewhere = lost || is_unsure || call.confirmations > u32::from(!keeps.is_empty());
        // `leave_everywhere` covers this node: its first message goes there.
        let mut told: Vec<usize> = self.leave_at().filter(|_| elsewhere).into_iter().collect();
        let lease_ms = call.lease_ms();
        if elsewhere {
            self.leave_everywhere(claim, keeps.clone(), lease_ms);
        }
        for endpoint in open {
            if self.links.get(endpoint).is_ready() && !told.contains(&endpoint) {
                told.push(endpoint);
                let request = Request::Leave { claim, elsewhere: false, over: true, keeps: keeps.clone() };
                let number = self.say_leave(endpoint, request);
                if !elsewhere {
                    self.leave_near((endpoint, number), claim, keeps.clone(), lease_ms);
                }
            }
        }
    }
}

fn misfit() -> Error {
    Error::new(ErrorCode::Unknown, "the answer does not fit the request")
}
