//! What a claim is granted belongs to its caller once the node knows that the answer has come; until then the node may take it back.
//!
//! So a claim ends in one of two ways. The answer comes, and is [confirmed](Request::Confirm): the call is done when the node says so.
//! Or it is given up, or made elsewhere: then it takes [leave](Request::Leave) of the nodes that it asked. A node that can be told
//! nothing, as its connection is gone, notices that as well. Only what a node granted that died at once is left: another node is
//! asked to see to that, also where the first was told, but has not said so (`leaving.rs`). A call that was answered elsewhere in the
//! end takes leave of all but that answer: the first node may have died with something that was confirmed already.
//!
//! A lease counts from a moment before the grant, by the client's own clock. That is when the call was first sent; behind a long wait
//! it would be over before it begins. So what was waited for longer than a part of its lease is renewed before the call is done.

use super::call::Stage;
use super::{Attempt, CallId, Output, Session};
use norn_wire::error::{Error, ErrorCode};
use norn_wire::ids::TaskId;
use norn_wire::request::Request;
use norn_wire::response::{Granted, Response};

/// A wait of this part of the lease is long.
const LONG_PART: u64 = 8;

/// What an attempt asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asks {
    /// What the call asks.
    Call,
    /// That the answer to a claim came is to be noted.
    Confirmation,
    /// What a claim was granted is to be renewed, from this moment on.
    Renewal { sent_us: u64 },
}

impl Session {
    /// Whether an answer is one that its node wants confirmed.
    pub(super) fn is_to_confirm(&self, endpoint: usize, response: &Response) -> bool {
        let granted = matches!(response, Response::Claimed { tasks, .. } if !tasks.is_empty());
        granted && self.links.get(endpoint).is_ready()
    }

    /// Tells the node that the answer to a claim has come.
    pub(super) fn confirm(&mut self, id: CallId, endpoint: usize, answer: Response) {
        let Response::Claimed { tasks, left, .. } = answer else { unreachable!("only what was granted is confirmed") };
        let call = self.calls.get_mut(&id).expect("it was just answered");
        let claim = call.claim().expect("only claims are granted tasks");
        call.granted = tasks;
        call.is_unsure = left > 0;
        call.confirmations += 1;
        self.ask_on(id, endpoint, Asks::Confirmation, Request::Confirm { claim });
    }

    /// Asks something for a call that was answered.
    fn ask_on(&mut self, id: CallId, endpoint: usize, asks: Asks, request: Request) {
        let (number, received_before) = (self.next_number(), self.links.get(endpoint).received);
        self.calls.get_mut(&id).expect("it was just answered").numbers.push(number);
        let attempt = Attempt { call: id, endpoint, positions: Vec::new(), received_before, asks };
        self.attempts.insert(number, attempt);
        let until_us = self.after_ms(self.patience_ms(endpoint));
        self.set_stage(id, Stage::Sent { number, endpoint, until_us });
        self.outputs.push(Output::Send { endpoint, number, request });
    }

    /// A node has answered to a confirmation.
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

    /// A node has answered to a renewal that was sent at some time. What was refused for good is another's by now. Of what it does not
    /// know it is asked again, as the call may hold that.
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

    /// The call is made anew: the node need not go on with what it was asked before.
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

    /// A claim is over. Nodes that may still grant it something, or may have, are told.
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
            // What was refused for good in the end may have been granted before.
            Err(error) => call.answered > 0 && (call.sent > 1 || error.passes()),
        };
        // The caller is given what was confirmed last, and nothing of what was confirmed before.
        let elsewhere = lost || is_unsure || call.confirmations > u32::from(!keeps.is_empty());
        // That says all that is to be said to the first node to hear it.
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
