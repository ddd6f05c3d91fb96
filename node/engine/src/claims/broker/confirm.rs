//! The end of a call: the client gets its grants, and confirms that the answer came.
//!
//! A client may be gone while its answer is on the way: killed, cut off, or waiting for something else. Its grants would then stay held
//! until their leases expire, with no worker. So a grant is its client's only once the client has confirmed the answer. Grants that
//! were made for the call and are not confirmed in time are given back, which voids them: they count as no attempt. A client whose
//! confirmation comes too late claims again. What is granted next goes to the calls of other clients first (`silent.rs`).
//!
//! A lease may expire before that. Then the leader asks the broker whether the claim was confirmed (`grants/expiry.rs`). The broker
//! does not answer for grants that are in the client's answer until they are confirmed or go back: otherwise a client could never get
//! an answer that takes longer than a lease in it. Grants that are in no answer yet go back at once, and are void as well.
//!
//! A leader takes a grant back only if it was not renewed since. A client that claims again through another node renews its grants, so
//! what the first node gives back is not taken from the second. For the same reason a grant that was only found again is not given back
//! here: another node may have answered with it since. It is voided when the client leaves its claim, at whichever node, or when its
//! lease expires.

use super::returns::{DOUBLINGS_MAX, GoingBack, REPEAT_MS};
use super::{Call, Grant, Phase};
use crate::Node;
use crate::context::timers::Key;
use crate::event::ClientId;
use norn_model::config::mutant;
use norn_model::limits::{CLAIM_BYTES_MAX, PAYLOAD_BYTES_MAX};
use norn_model::message::Claiming;
use norn_model::viewstamp::Viewstamp;
use norn_wire::error::{Error, ErrorCode};
use norn_wire::{Claim, ClaimId, Granted, NodeId, Response, TaskId, Token};
use std::collections::{BTreeMap, BTreeSet};

/// Time that a client has to confirm, beside the transfer time of the answer.
const CONFIRM_MS: u64 = 2_000;
/// Slowest network that is allowed for: about a megabyte a second.
const TRANSFER_BYTES_PER_MS: u64 = 1 << 10;
/// Most payload bytes of an answer, about.
const ANSWER_BYTES_MAX: u64 = (CLAIM_BYTES_MAX + PAYLOAD_BYTES_MAX) as u64;
/// Longest time that any answer has to be confirmed. After that its grants go back.
pub const CONFIRM_MS_MAX: u64 = confirm_ms(ANSWER_BYTES_MAX);
/// Most claims that are being given back and sent repeatedly. The same holds for questions.
const RETURNS_MAX: usize = 1_000;
/// How often a claim is sent, over almost five minutes: a partition without a leader in all this time has none for as long as most
/// leases. Sending it too often does no harm, as a claim's id names one call only.
const SAID_MAX: u32 = 24;
/// The node that was asked acknowledges that a question is given up. Until then it is sent every two seconds...
const QUESTION_DOUBLINGS_MAX: u32 = 3;
/// ...at most this often. A node remembers the questions of the last ten seconds only (`grants/questions.rs`).
const QUESTION_SAID_MAX: u32 = 150;

/// What is given back as a whole, beside single grants.
#[derive(Debug)]
enum Back {
    /// All grants of a call that is over, except those that its client keeps.
    Claim { claim: ClaimId, keeps: Vec<TaskId> },
    /// All grants of a question whose answer no client gets.
    Question { request_id: u64, node: NodeId, claim: Box<Claim> },
}

impl Back {
    /// How often it is sent, and how often the pause doubles.
    fn pace(&self) -> (u32, u32) {
        match self {
            Back::Claim { .. } => (SAID_MAX, DOUBLINGS_MAX),
            Back::Question { .. } => (QUESTION_SAID_MAX, QUESTION_DOUBLINGS_MAX),
        }
    }
}

/// What is sent repeatedly, by number, with how often each was sent.
#[derive(Debug, Default)]
pub(super) struct Returns {
    pub grants: GoingBack,
    next: u64,
    claims: BTreeMap<u64, (Back, u32)>,
    /// Numbers of the claims: a client may leave the same claim twice.
    by_claim: BTreeMap<ClaimId, u64>,
    questions: BTreeMap<u64, (Back, u32)>,
    /// Numbers of the questions.
    by_request_id: BTreeMap<u64, u64>,
}

impl Returns {
    #[cfg(test)]
    pub fn going_back(&self) -> usize {
        self.grants.len()
    }

    /// Returns the number of the new item, and the numbers of those that are not sent any more.
    fn insert(&mut self, back: Back) -> (u64, Vec<u64>) {
        self.next += 1;
        let mut dropped = Vec::new();
        let open = match &back {
            Back::Claim { claim, .. } => {
                dropped.extend(self.by_claim.insert(*claim, self.next));
                &mut self.claims
            }
            Back::Question { request_id, .. } => {
                self.by_request_id.insert(*request_id, self.next);
                &mut self.questions
            }
        };
        open.insert(self.next, (back, 0));
        dropped.extend(open.first_key_value().map(|(oldest, _)| *oldest).filter(|_| open.len() > RETURNS_MAX));
        dropped.iter().for_each(|number| self.remove(*number));
        let bounded = self.claims.len() <= RETURNS_MAX && self.questions.len() <= RETURNS_MAX;
        assert!(bounded, "too much is being given back");
        assert!(self.by_claim.len() <= self.claims.len(), "a claim is listed that is not given back");
        assert!(self.by_request_id.len() <= self.questions.len(), "a question is listed that is not given back");
        (self.next, dropped)
    }

    /// Claims with given-up questions that are not answered yet.
    fn given_up(&self) -> BTreeSet<ClaimId> {
        let claim_of = |(back, _): &(Back, u32)| match back {
            Back::Question { claim, .. } => claim.claim,
            Back::Claim { claim, .. } => *claim,
        };
        self.questions.values().map(claim_of).collect()
    }

    fn get_mut(&mut self, number: u64) -> Option<&mut (Back, u32)> {
        self.claims.get_mut(&number).or_else(|| self.questions.get_mut(&number))
    }

    fn remove(&mut self, number: u64) {
        if let Some((Back::Claim { claim, .. }, _)) = self.claims.remove(&number)
            && self.by_claim.get(&claim) == Some(&number)
        {
            self.by_claim.remove(&claim);
        }
        if let Some((Back::Question { request_id, .. }, _)) = self.questions.remove(&number) {
            self.by_request_id.remove(&request_id);
        }
    }
}

/// How long a client may take to confirm an answer with this many payload bytes.
const fn confirm_ms(bytes: u64) -> u64 {
    let bytes = if bytes < ANSWER_BYTES_MAX { bytes } else { ANSWER_BYTES_MAX };
    CONFIRM_MS + bytes / TRANSFER_BYTES_PER_MS
}

impl Node {
    /// Sends a client its grants.
    pub(super) fn answer_claim(&mut self, number: u64) {
        let call = &self.claims.broker.calls[&number];
        let left = call.recall.left(call.got.len() >= call.claim.max as usize);
        // Where the deadline has passed, an unanswered question may have been granted something.
        let left = left.max(usize::from(call.asks())) as u32;
        let unavailable = if call.got.is_empty() { call.unavailable } else { 0 };
        let confirms = call.claim.confirms && !call.got.is_empty();
        let (client, of) = (call.client, call.number);
        let got = if confirms { self.await_confirmation(number) } else { self.end_claim(number).got };
        let tasks = got.into_iter().map(|(granted, ..)| granted).collect();
        self.outbox.reply(client, of, Response::Claimed { tasks, unavailable, left });
    }

    fn await_confirmation(&mut self, number: u64) -> Vec<(Granted, Option<Viewstamp>, NodeId)> {
        self.claims.broker.unpark(number);
        self.timers.cancel(Key::Park(number));
        let call = self.claims.broker.calls.get_mut(&number).expect("it is answered");
        let got = std::mem::take(&mut call.got);
        assert!(call.claim.confirms, "an answer waits for a client that does not confirm");
        assert!(!got.is_empty(), "a client is to confirm that it got nothing");
        let grants: Vec<Grant> = got.iter().filter_map(|(granted, fresh, _)| made(granted, *fresh)).collect();
        let holds_more = grants.len() < got.len() || call.asks();
        let bytes: u64 = got.iter().map(|(granted, ..)| granted.payload.len() as u64).sum();
        let phase = std::mem::replace(&mut call.phase, Phase::Answered { grants, holds_more });
        // Where the deadline has passed, a question may still be open.
        if !matches!(phase, Phase::Idle) {
            let claim = call.claim.clone();
            self.end_question(&phase, &claim);
        }
        self.timers.set(Key::Claim(number), self.now.mono_after_ms(confirm_ms(bytes)));
        got
    }

    /// The deadline passed with questions open: answers with the grants that came. Without any the outcome is unknown.
    pub(super) fn fail_claim(&mut self, number: u64) {
        let call = &self.claims.broker.calls[&number];
        if !call.got.is_empty() && call.claim.depends.is_empty() {
            return self.answer_claim(number);
        }
        let call = self.end_claim(number);
        self.give_back_all(&call);
        let error = Error::new(ErrorCode::Unavailable, "no leader answered in time");
        self.outbox.reply(call.client, call.number, Response::Error(error));
    }

    /// A client confirms its answer: now it holds its grants.
    pub(crate) fn confirm_claim(&mut self, client: ClientId, number: u64, claim: ClaimId) {
        let call = self.claims.broker.confirming.get(&(claim, client)).copied();
        let told = call.filter(|call| matches!(self.claims.broker.calls[call].phase, Phase::Answered { .. }));
        let response = if let Some(told) = told {
            self.end_claim(told);
            Response::Done
        } else {
            let message = "the answer was not confirmed in time, and what was granted went back; claim again";
            Response::Error(Error::new(ErrorCode::Superseded, message))
        };
        self.outbox.reply(client, number, response);
    }

    /// A client does not wait for a call any more. With `elsewhere` all other grants of the claim go back too, wherever they were made,
    /// except those that the client keeps (`keeps`). `over` asks for the same, but only if the call may hold more than this node knows.
    pub(crate) fn leave_claim(
        &mut self,
        (client, number): (ClientId, u64),
        claim: ClaimId,
        (elsewhere, over): (bool, bool),
        keeps: Vec<TaskId>,
    ) {
        let holds_more = self.leave_call(client, claim);
        if (elsewhere || over && holds_more) && !mutant!(self.config, LeaveUnheeded) {
            self.give(Back::Claim { claim, keeps });
        }
        self.outbox.reply(client, number, Response::Done);
    }

    /// Ends a client's call and gives its grants back. Returns whether the call may hold more than those.
    pub(super) fn leave_call(&mut self, client: ClientId, claim: ClaimId) -> bool {
        let Some(number) = self.claims.broker.confirming.get(&(claim, client)).copied() else { return false };
        let call = self.end_claim(number);
        self.give_back_all(&call);
        if !matches!(call.phase, Phase::Answered { .. }) {
            // The call's place among the open requests of the connection is free again.
            let error = Error::new(ErrorCode::Superseded, "its client has left this claim, or made it anew");
            self.outbox.reply(call.client, call.number, Response::Error(error));
        }
        call.holds_more()
    }

    /// A leader asks about grants whose leases have expired. The answer names those that are being given back, and those that are
    /// settled: no call here has them still to hand out or to be confirmed. It leaves out those that a client may still confirm, those
    /// that an outstanding answer may name, even if that answer's grants will be given back, and those that a call may find again, as
    /// no answer has named all that it holds in their partition.
    pub(crate) fn on_confirm_ask(&mut self, from: NodeId, items: &[(TaskId, Token, ClaimId)]) {
        let (mut settled, mut back) = (Vec::new(), Vec::new());
        let given_up = self.claims.broker.returns.given_up();
        for (id, token, claim) in items {
            let may_come = self.give_up_lapsed(*claim, (*id, *token)) || given_up.contains(claim);
            match self.claims.broker.returns.grants.find(self.partition_of(id), (*id, *token)) {
                Some(grant) => back.push(grant),
                None if !may_come => settled.push((*id, *token)),
                None => {}
            }
        }
        self.outbox.send(from, Claiming::ConfirmAnswer { settled, back });
    }

    /// Gives back an expired grant that no answer has named to its client. Returns whether it may yet come, or be confirmed.
    fn give_up_lapsed(&mut self, claim: ClaimId, (id, token): (TaskId, Token)) -> bool {
        let calls = self.claims.broker.confirming.range((claim, ClientId(0))..=(claim, ClientId(u64::MAX)));
        let partition = self.partition_of(&id);
        let mut may_come = false;
        for number in calls.map(|(_, number)| *number).collect::<Vec<_>>() {
            let call = self.claims.broker.calls.get_mut(&number).expect("calls that confirm are under way");
            // Between two rounds of a recall no question is open. What is never found is left by the client.
            may_come |= call.recall.may_find_in(partition);
            if let Phase::Answered { grants, .. } = &call.phase {
                // If it is not confirmed in time, it goes back with the call.
                may_come |= grants.iter().any(|(of, its, _)| (*of, *its) == (id, token));
                continue;
            }
            // The call would hand an expired grant to its client. A grant that was found again may be in the client's hands already.
            let is_it = |(granted, fresh, _): &mut (Granted, Option<Viewstamp>, NodeId)| {
                (granted.id, granted.token) == (id, token) && fresh.is_some()
            };
            let over: Vec<Grant> =
                call.got.extract_if(.., is_it).filter_map(|(granted, fresh, _)| made(&granted, fresh)).collect();
            may_come |= over.is_empty() && call.asks();
            self.give_back_grants(over);
        }
        may_come
    }

    /// The client has not confirmed in time.
    pub(super) fn unconfirmed(&mut self, number: u64) {
        let client = self.claims.broker.calls[&number].client;
        self.claims.broker.note_mute(client);
        self.take_back(number);
    }

    fn take_back(&mut self, number: u64) {
        let call = self.end_claim(number);
        self.give_back_all(&call);
    }

    /// A client is gone: gives back what its calls were granted.
    pub(crate) fn drop_claims_of(&mut self, client: ClientId) {
        let gone: Vec<u64> = self
            .claims
            .broker
            .calls
            .iter()
            .filter(|(_, call)| call.client == client)
            .map(|(number, _)| *number)
            .collect();
        gone.into_iter().for_each(|number| self.take_back(number));
        self.claims.broker.client_liveness.remove(&client);
    }

    /// Gives back the grants of a call that has ended without its client.
    pub(super) fn give_back_all(&mut self, call: &Call) {
        let told = match &call.phase {
            Phase::Answered { grants, .. } if !mutant!(self.config, UnconfirmedKept) => grants.clone(),
            _ => Vec::new(),
        };
        let got = call.got.iter().filter_map(|(granted, fresh, _)| made(granted, *fresh));
        self.give_back_grants(got.chain(told).collect());
    }

    /// Gives back grants that no client gets. Those that were only found again stay: another node may have answered with them.
    pub(super) fn give_back(&mut self, tasks: &[(Granted, Option<Viewstamp>)]) {
        self.give_back_grants(tasks.iter().filter_map(|(granted, fresh)| made(granted, *fresh)).collect());
    }

    /// Gives up a question: no client gets its grants. The answer may be lost, so the node that was asked is notified.
    pub(super) fn give_up_question(&mut self, request_id: u64, node: NodeId, claim: &Claim) {
        // It grants nothing, and needs no more than this.
        let claim = Claim { depends: Vec::new(), session: None, lease_open: false, confirms: false, ..claim.clone() };
        self.give(Back::Question { request_id, node, claim: Box::new(claim) });
    }

    /// A question that was given up is answered.
    pub(super) fn note_given_up(&mut self, request_id: u64) {
        if let Some(number) = self.claims.broker.returns.by_request_id.get(&request_id).copied() {
            self.claims.broker.returns.remove(number);
            self.timers.cancel(Key::Return(number));
        }
    }

    fn give(&mut self, back: Back) {
        let (number, dropped) = self.claims.broker.returns.insert(back);
        dropped.into_iter().for_each(|number| self.timers.cancel(Key::Return(number)));
        self.say_back(number);
    }

    /// Sends a returned claim or question to the nodes that may have grants of it.
    pub(crate) fn say_back(&mut self, number: u64) {
        let Some((back, said)) = self.claims.broker.returns.get_mut(number) else { return };
        *said += 1;
        let (said_max, doublings_max) = back.pace();
        assert!(*said <= said_max, "what is given back is sent too often");
        let (last, pause_ms) = (*said == said_max, REPEAT_MS << (*said - 1).min(doublings_max));
        match back {
            Back::Claim { claim, keeps } => {
                let (claim, keeps) = (*claim, keeps.clone());
                let others: Vec<NodeId> = self.others().collect();
                for node in others.into_iter().chain([self.me]) {
                    self.outbox.send(node, Claiming::Leave { claim, keeps: keeps.clone() });
                }
            }
            Back::Question { request_id, node, claim } => {
                let (request_id, node, claim) = (*request_id, *node, claim.clone());
                if self.is_reachable(node) {
                    self.outbox
                        .send(node, Claiming::GrantAsk { request_id, claim, max: 0, recall: true, got: Vec::new() });
                }
            }
        }
        if last {
            self.claims.broker.returns.remove(number);
        } else {
            self.timers.set(Key::Return(number), self.now.mono_after_ms(pause_ms));
        }
    }

    /// A call is over: voids all its grants here except those that its client keeps.
    pub(crate) fn on_claim_left(&mut self, claim: ClaimId, keeps: &BTreeSet<TaskId>) {
        let led: Vec<_> =
            self.led.iter().filter(|id| self.partitions[id].consensus.knows_claim(&claim)).copied().collect();
        for partition in led {
            let consensus = &self.partitions[&partition].consensus;
            let held = consensus.held_by(claim);
            let left = held.iter().filter(|id| !keeps.contains(*id));
            let items: Vec<(TaskId, Token)> = left.map(|id| (*id, consensus.table.entries[id].token)).collect();
            self.void(partition, items);
        }
    }
}

impl Call {
    /// Whether the call may hold grants that are not given back with it: those that were found again, or that no answer has named.
    fn holds_more(&self) -> bool {
        let told = matches!(self.phase, Phase::Answered { holds_more: true, .. });
        told || self.asks() || self.recall.left(false) > 0 || self.got.iter().any(|(_, fresh, _)| fresh.is_none())
    }

    /// Whether a node was asked for grants and has not answered.
    fn asks(&self) -> bool {
        matches!(self.phase, Phase::Asking { .. })
    }
}

/// The grant, if it was made for this call and not found again.
fn made(granted: &Granted, fresh: Option<Viewstamp>) -> Option<Grant> {
    fresh.map(|at| (granted.id, granted.token, at))
}
