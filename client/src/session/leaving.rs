//! Finished claims that may hold tasks their callers did not get: a node must take these back, in whatever partition they are.
//!
//! The node that receives a leave may die before it forwards it, and then no other node knows. So the leave is repeated until a node
//! has acknowledged it, or the lease is over. A session without calls connects for that.
//!
//! If only the claim's own node needs to know, it alone gets the leave first. It may have died unnoticed right after a grant: if it
//! does not acknowledge the leave, another node gets it as well.

use super::call::is_retryable;
use super::links::Failure;
use super::{Output, Session, ensure};
use norn_wire::error::Retry;
use norn_wire::ids::{ClaimId, TaskId};
use norn_wire::request::Request;
use norn_wire::response::Response;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// Greatest number of claims kept here; the oldest is dropped first.
pub(super) const LEAVING_MAX: usize = 1_024;
/// Greatest number of leaves under way, beside calls: a node limits the requests of a connection.
const SAID_MAX: usize = 8;
/// The same limit at the end of a session, whose connections carry nothing else any more.
const SAID_MAX_CLOSING: usize = LEAVING_MAX + SAID_MAX;
/// Bounds of the time for which a leave is repeated. A queue may give longer leases than its claims name.
const TRIED_MS: RangeInclusive<u64> = 60_000..=600_000;

/// Leaves to send, and leaves without an acknowledgement.
#[derive(Debug, Default)]
pub(super) struct Leaving {
    next: u64,
    /// Leaves to send, in the order in which their claims ended.
    open: BTreeMap<u64, Left>,
    /// Leaves under way, by the numbers of their requests.
    said: BTreeMap<u64, Said>,
    /// Leaves under way to the claims' own nodes alone.
    said_near: BTreeMap<u64, Said>,
    /// The session is about to end.
    closes: bool,
}

/// A claim that is over, and its leave.
#[derive(Debug)]
struct Left {
    claim: ClaimId,
    /// Tasks that its caller got.
    keeps: Vec<TaskId>,
    /// Latest end of its leases.
    until_us: u64,
    /// Earliest time to send the leave.
    from_us: u64,
    /// Number of refusals.
    failures: u32,
}

#[derive(Debug)]
struct Said {
    order: u64,
    left: Left,
    endpoint: usize,
    until_us: u64,
    /// Answers received on the connection before the leave was sent.
    received_before: u64,
}

impl Leaving {
    /// Whether a leave should be sent now, which needs a node.
    pub fn is_due(&self, now_us: u64) -> bool {
        self.room() > 0 && self.open.values().any(|left| left.from_us <= now_us)
    }

    /// Time of the next timer here that needs no other connection.
    pub fn next_wake(&self, now_us: u64) -> Option<u64> {
        let paused = self.open.values().map(|left| left.from_us).filter(|from_us| *from_us > now_us);
        self.under_way().map(|(_, said)| said.until_us).chain(paused).min()
    }

    /// Number of leaves that may be sent now.
    fn room(&self) -> usize {
        let most = if self.closes { SAID_MAX_CLOSING } else { SAID_MAX };
        most.saturating_sub(self.said.len())
    }

    fn order(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn under_way(&self) -> impl Iterator<Item = (u64, &Said)> {
        self.said.iter().chain(&self.said_near).map(|(number, said)| (*number, said))
    }

    fn get_mut(&mut self, number: u64) -> Option<&mut Said> {
        self.said.get_mut(&number).or_else(|| self.said_near.get_mut(&number))
    }

    fn remove(&mut self, number: u64) -> Option<Said> {
        self.said.remove(&number).or_else(|| self.said_near.remove(&number))
    }

    fn open(&mut self, order: u64, left: Left) {
        self.open.insert(order, left);
        if self.open.len() > LEAVING_MAX {
            self.open.pop_first();
        }
    }

    /// Schedules a leave that is under way to be sent again, at `from_us` at the earliest.
    fn again(&mut self, number: u64, from_us: u64) {
        let Some(Said { order, left, .. }) = self.remove(number) else { return };
        self.open(order, Left { from_us, ..left });
    }

    fn lost_with(&self, endpoint: usize) -> Vec<u64> {
        self.under_way().filter(|(_, said)| said.endpoint == endpoint).map(|(number, _)| number).collect()
    }

    pub fn check(&self) -> Result<(), String> {
        ensure(self.open.len() <= LEAVING_MAX, || "too many claims are left".into())?;
        ensure(self.said_near.len() <= LEAVING_MAX, || "too many claims are left at their nodes".into())?;
        let most = if self.closes { SAID_MAX_CLOSING } else { SAID_MAX };
        ensure(self.said.len() <= most, || "too many claims are left at once".into())
    }
}

impl Session {
    /// Starts a leave for everything that a claim holds in any partition, except the tasks that its caller keeps.
    pub(super) fn leave_everywhere(&mut self, claim: ClaimId, keeps: Vec<TaskId>, lease_ms: u64) {
        let (order, left) = (self.leaving.order(), self.left(claim, keeps, lease_ms));
        self.leaving.open(order, left);
    }

    /// Records a leave sent to the claim's own node alone, under this number. If the node does not acknowledge it, it may have died
    /// right after a grant.
    pub(super) fn leave_near(
        &mut self,
        (endpoint, number): (usize, u64),
        claim: ClaimId,
        keeps: Vec<TaskId>,
        lease_ms: u64,
    ) {
        let (order, left) = (self.leaving.order(), self.left(claim, keeps, lease_ms));
        let said = self.said(endpoint, order, left);
        self.leaving.said_near.insert(number, said);
        if self.leaving.said_near.len() > LEAVING_MAX {
            self.leaving.said_near.pop_first();
        }
    }

    fn left(&self, claim: ClaimId, keeps: Vec<TaskId>, lease_ms: u64) -> Left {
        let until_us = self.after_ms(lease_ms.clamp(*TRIED_MS.start(), *TRIED_MS.end()));
        Left { claim, keeps, until_us, from_us: self.now_us, failures: 0 }
    }

    fn said(&self, endpoint: usize, order: u64, left: Left) -> Said {
        let until_us = self.after_ms(self.patience_ms(endpoint));
        Said { order, left, endpoint, until_us, received_before: self.links.get(endpoint).received }
    }

    /// Prepares for the end of the session: a leave that is not sent now may never be, so pauses and the limit for running sessions no
    /// longer apply.
    pub(super) fn leave_at_once(&mut self) {
        self.leaving.closes = true;
        let now_us = self.now_us;
        self.leaving.open.values_mut().for_each(|left| left.from_us = left.from_us.min(now_us));
    }

    /// Sends a leave and returns the number of its request.
    pub(super) fn say_leave(&mut self, endpoint: usize, request: Request) -> u64 {
        let number = self.next_number();
        self.outputs.push(Output::Send { endpoint, number, request });
        number
    }

    /// The node that gets leaves: the active one if it is ready, else the first that is.
    pub(super) fn leave_at(&self) -> Option<usize> {
        let all = [self.links.active].into_iter().chain(0..self.links.len());
        all.into_iter().find(|endpoint| self.links.get(*endpoint).is_ready())
    }

    /// Sends the leaves that are due, as far as a node is ready and the limit allows.
    pub(super) fn say_leaves(&mut self) {
        let now_us = self.now_us;
        self.leaving.open.retain(|_, left| left.until_us > now_us);
        if !self.leaving.is_due(now_us) {
            return;
        }
        let Some(endpoint) = self.leave_at() else { return };
        let due = self.leaving.open.iter().filter(|(_, left)| left.from_us <= now_us).map(|(order, _)| *order);
        let due: Vec<u64> = due.take(self.leaving.room()).collect();
        for order in due {
            let left = self.leaving.open.remove(&order).expect("just seen");
            let request = Request::Leave { claim: left.claim, elsewhere: true, over: true, keeps: left.keeps.clone() };
            let number = self.say_leave(endpoint, request);
            let said = self.said(endpoint, order, left);
            self.leaving.said.insert(number, said);
        }
    }

    /// Whether an answer is to a leave. A refusal that does not pass counts as an acknowledgement: a repeat does not help.
    pub(super) fn leave_answered(&mut self, endpoint: usize, number: u64, response: &Response) -> bool {
        let Some(said) = self.leaving.get_mut(number).filter(|said| said.endpoint == endpoint) else {
            return false;
        };
        let Response::Error(error) = response else {
            self.leaving.remove(number);
            return true;
        };
        said.left.failures = said.left.failures.saturating_add(1);
        let failures = said.left.failures;
        if is_retryable(error) {
            let pause_ms = self.pause_ms(failures);
            self.leaving.again(number, self.after_ms(pause_ms));
            if error.retry == Retry::Later && endpoint == self.links.active {
                self.links.rotate(self.now_us, true);
            }
        } else {
            self.leaving.remove(number);
        }
        true
    }

    /// Repeats the leaves without an acknowledgement on a lost connection: they may not have arrived.
    pub(super) fn leaves_lost(&mut self, endpoint: usize) {
        for number in self.leaving.lost_with(endpoint) {
            self.leaving.again(number, self.now_us);
        }
    }

    /// Repeats the leaves that timed out at another node. A connection that received nothing meanwhile is closed.
    pub(super) fn expire_leaves(&mut self) {
        let now_us = self.now_us;
        let late = self.leaving.under_way().filter(|(_, said)| said.until_us <= now_us);
        let late: Vec<(u64, usize, u64)> =
            late.map(|(number, said)| (number, said.endpoint, said.received_before)).collect();
        for (number, endpoint, received_before) in late {
            if self.leaving.get_mut(number).is_none() {
                continue;
            }
            self.leaving.again(number, now_us);
            if self.links.get(endpoint).received == received_before {
                self.outputs.push(Output::Disconnect { endpoint });
                self.close(endpoint, Failure::Passing);
            } else if endpoint == self.links.active {
                self.links.rotate(now_us, false);
            }
        }
    }
}
