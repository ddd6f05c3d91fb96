//! The end of a call: its client is told what it was granted, and confirms that it knows.
//!
//! A client may be gone when its answer is on the way: killed, cut off, or waiting for something else. What was granted would be held
//! by nobody until its lease is over. So a grant is its client's only once the client has said that the answer came; what was made for
//! the call and is not confirmed in time is given back, which makes it void: it was no attempt. A client that has been told
//! "too late" asks again. What is granted next goes to the calls of other clients first (`silent.rs`).
//!
//! A lease may be over before that. Then the leader asks whether the claim was confirmed (`grants/expiry.rs`). Of what a client has been
//! told the broker says nothing until it is confirmed or goes back: else no answer that takes longer than a lease in it would ever be a
//! client's. What the client was not told yet goes back at once, and is void as well.
//!
//! A leader takes a grant back only if it was not renewed since. Whoever asks again elsewhere renews it, so what the first node gives
//! back is not taken from the second. For the same reason a grant that was only found again is not given back here: another node may
//! have told it since. It is void once the client takes leave of its claim, wherever that lies, or with its lease.

use super::returns::{DOUBLINGS_MAX, GoingBack, REPEAT_MS};
use super::{Call, Grant, Phase};
use crate::config::mutant;
use crate::limits::{CLAIM_BYTES_MAX, PAYLOAD_BYTES_MAX};
use crate::protocol::Node;
use crate::protocol::consistent::Viewstamp;
use crate::protocol::event::ClientId;
use crate::protocol::peer::PeerMessage;
use crate::protocol::timers::Key;
use norn_wire::error::{Error, ErrorCode};
use norn_wire::{Claim, ClaimId, Granted, NodeId, Response, TaskId, Token};
use std::collections::{BTreeMap, BTreeSet};

/// A client confirms within this time, and as long as the answer may be on its way...
const CONFIRM_MS: u64 = 2_000;
/// ...over the slowest network that is counted with: about a megabyte a second.
const TRANSFER_BYTES_PER_MS: u64 = 1 << 10;
/// Payloads of an answer have about this many bytes at most...
const ANSWER_BYTES_MAX: u64 = (CLAIM_BYTES_MAX + PAYLOAD_BYTES_MAX) as u64;
/// ...so that any answer is confirmed within this time, or what was granted for it goes back.
pub const CONFIRM_MS_MAX: u64 = confirm_ms(ANSWER_BYTES_MAX);
/// Claims that go back and are said again, at the most, and as many questions.
const RETURNS_MAX: usize = 1_000;
/// Claims are said this many times in all, over almost five minutes: a partition that has no leader in all this time has none for as long
/// as most leases. To say it too often does no harm: a claim's id is of one call.
const SAID_MAX: u32 = 24;
/// Whoever was asked answers that a question is given up. Up to then it is told every two seconds...
const QUESTION_DOUBLINGS_MAX: u32 = 3;
/// ...for as long: it remembers no more than ten seconds of what it was asked (`grants/questions.rs`).
const QUESTION_SAID_MAX: u32 = 150;

/// What is given back beside single grants.
#[derive(Debug)]
enum Back {
    /// All that was granted to a call which is over, but what its client has.
    Claim { claim: ClaimId, keeps: Vec<TaskId> },
    /// All that was granted to a question of which nobody will be told.
    Question { ask: u64, node: NodeId, claim: Box<Claim> },
}

impl Back {
    /// How often it is said, and how long the pauses become.
    fn pace(&self) -> (u32, u32) {
        match self {
            Back::Claim { .. } => (SAID_MAX, DOUBLINGS_MAX),
            Back::Question { .. } => (QUESTION_SAID_MAX, QUESTION_DOUBLINGS_MAX),
        }
    }
}

/// What is said again, by number, and how often each was said.
#[derive(Debug, Default)]
pub(super) struct Returns {
    pub grants: GoingBack,
    next: u64,
    claims: BTreeMap<u64, (Back, u32)>,
    /// Numbers of the claims: a client may say twice that a claim is over.
    by_claim: BTreeMap<ClaimId, u64>,
    questions: BTreeMap<u64, (Back, u32)>,
    /// Numbers of the questions.
    by_ask: BTreeMap<u64, u64>,
}

impl Returns {
    #[cfg(test)]
    pub fn going_back(&self) -> usize {
        self.grants.len()
    }

    /// Its number, and the numbers of those that are not said again any more.
    fn insert(&mut self, back: Back) -> (u64, Vec<u64>) {
        self.next += 1;
        let mut dropped = Vec::new();
        let open = match &back {
            Back::Claim { claim, .. } => {
                dropped.extend(self.by_claim.insert(*claim, self.next));
                &mut self.claims
            }
            Back::Question { ask, .. } => {
                self.by_ask.insert(*ask, self.next);
                &mut self.questions
            }
        };
        open.insert(self.next, (back, 0));
        dropped.extend(open.first_key_value().map(|(oldest, _)| *oldest).filter(|_| open.len() > RETURNS_MAX));
        dropped.iter().for_each(|number| self.remove(*number));
        (self.next, dropped)
    }

    /// Claims with questions that were given up, and are not answered.
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
        if let Some((Back::Question { ask, .. }, _)) = self.questions.remove(&number) {
            self.by_ask.remove(&ask);
        }
    }
}

/// How long a client may take to confirm an answer with payloads of this many bytes.
const fn confirm_ms(bytes: u64) -> u64 {
    let bytes = if bytes < ANSWER_BYTES_MAX { bytes } else { ANSWER_BYTES_MAX };
    CONFIRM_MS + bytes / TRANSFER_BYTES_PER_MS
}

impl Node {
    /// Tells a client what it was granted.
    pub(super) fn answer_claim(&mut self, number: u64) {
        let call = &self.broker.calls[&number];
        let left = call.recall.left(call.got.len() >= call.claim.max as usize);
        // Where the time is over, a question that has no answer may have been granted something.
        let left = left.max(usize::from(call.asks())) as u32;
        let unavailable = if call.got.is_empty() { call.unavailable } else { 0 };
        let confirms = call.claim.confirms && !call.got.is_empty();
        let (client, of) = (call.client, call.number);
        let got = if confirms { self.await_confirmation(number) } else { self.end_claim(number).got };
        let tasks = got.into_iter().map(|(granted, ..)| granted).collect();
        self.outbox.reply(client, of, Response::Claimed { tasks, unavailable, left });
    }

    fn await_confirmation(&mut self, number: u64) -> Vec<(Granted, Option<Viewstamp>, NodeId)> {
        self.broker.unpark(number);
        self.timers.cancel(Key::Park(number));
        let call = self.broker.calls.get_mut(&number).expect("it is answered");
        let got = std::mem::take(&mut call.got);
        let grants: Vec<Grant> = got.iter().filter_map(|(granted, fresh, _)| made(granted, *fresh)).collect();
        let holds_more = grants.len() < got.len() || call.asks();
        let bytes: u64 = got.iter().map(|(granted, ..)| granted.payload.len() as u64).sum();
        let phase = std::mem::replace(&mut call.phase, Phase::Told { grants, holds_more });
        // Where the time is over it still asks somebody.
        if !matches!(phase, Phase::Idle) {
            let claim = call.claim.clone();
            self.end_question(&phase, &claim);
        }
        self.timers.set(Key::Claim(number), self.now.mono_after_ms(confirm_ms(bytes)));
        got
    }

    /// The deadline passed with questions open: what came counts, otherwise nobody knows.
    pub(super) fn fail_claim(&mut self, number: u64) {
        let call = &self.broker.calls[&number];
        if !call.got.is_empty() && call.claim.depends.is_empty() {
            return self.answer_claim(number);
        }
        let call = self.end_claim(number);
        self.give_back_all(&call);
        let error = Error::new(ErrorCode::Unavailable, "no leader answered in time");
        self.outbox.reply(call.client, call.number, Response::Error(error));
    }

    /// A client says that it has the answer: now it holds what it was granted.
    pub(in crate::protocol) fn confirm_claim(&mut self, client: ClientId, number: u64, claim: ClaimId) {
        let call = self.broker.confirming.get(&(claim, client)).copied();
        let told = call.filter(|call| matches!(self.broker.calls[call].phase, Phase::Told { .. }));
        let response = if let Some(told) = told {
            self.end_claim(told);
            Response::Done
        } else {
            let message = "the answer was not confirmed in time, and what was granted went back; claim again";
            Response::Error(Error::new(ErrorCode::Superseded, message))
        };
        self.outbox.reply(client, number, response);
    }

    /// A client does not wait for a call any more. Unless it makes it elsewhere, it says what it keeps, and all else goes back that was
    /// granted elsewhere; `over` says that of calls alone that may hold more than this node knows.
    pub(in crate::protocol) fn leave_claim(
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

    /// Ends a client's call; whether it may hold more than goes back with it.
    pub(super) fn leave_call(&mut self, client: ClientId, claim: ClaimId) -> bool {
        let Some(number) = self.broker.confirming.get(&(claim, client)).copied() else { return false };
        let call = self.end_claim(number);
        self.give_back_all(&call);
        if !matches!(call.phase, Phase::Told { .. }) {
            // Its place among the requests of the connection is free.
            let error = Error::new(ErrorCode::Superseded, "its client has left this claim, or made it anew");
            self.outbox.reply(call.client, call.number, Response::Error(error));
        }
        call.holds_more()
    }

    /// The leases of these are over: which go back, and of which there is nothing more to say. Nothing is said yet of what a client may
    /// still confirm, and of what may be in an answer that this node waits for, be it to give back what that brings.
    pub(in crate::protocol) fn on_confirm_ask(&mut self, from: NodeId, items: &[(TaskId, Token, ClaimId)]) {
        let (mut settled, mut back) = (Vec::new(), Vec::new());
        let given_up = self.broker.returns.given_up();
        for (id, token, claim) in items {
            let may_come = self.give_up_lapsed(*claim, (*id, *token)) || given_up.contains(claim);
            match self.broker.returns.grants.find(self.partition_of(id), (*id, *token)) {
                Some(grant) => back.push(grant),
                None if !may_come => settled.push((*id, *token)),
                None => {}
            }
        }
        self.outbox.send(from, PeerMessage::ConfirmAnswer { settled, back });
    }

    /// Gives a grant back that is over before its client was told of it; whether it may be yet to come, or to be confirmed.
    fn give_up_lapsed(&mut self, claim: ClaimId, (id, token): (TaskId, Token)) -> bool {
        let calls = self.broker.confirming.range((claim, ClientId(0))..=(claim, ClientId(u64::MAX)));
        let mut may_come = false;
        for number in calls.map(|(_, number)| *number).collect::<Vec<_>>() {
            let call = self.broker.calls.get_mut(&number).expect("calls that confirm are under way");
            if let Phase::Told { grants, .. } = &call.phase {
                // If it is not confirmed in time, it goes back with the call.
                may_come |= grants.iter().any(|(of, its, _)| (*of, *its) == (id, token));
                continue;
            }
            // It would tell its client of what is over. What was found again may be in the client's hands.
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

    /// Nobody has confirmed in time.
    pub(super) fn unconfirmed(&mut self, number: u64) {
        let client = self.broker.calls[&number].client;
        self.broker.note_mute(client);
        self.take_back(number);
    }

    fn take_back(&mut self, number: u64) {
        let call = self.end_claim(number);
        self.give_back_all(&call);
    }

    /// Nobody waits for the client's claims any more: what came for them is given back.
    pub(in crate::protocol) fn drop_claims_of(&mut self, client: ClientId) {
        let gone: Vec<u64> =
            self.broker.calls.iter().filter(|(_, call)| call.client == client).map(|(number, _)| *number).collect();
        gone.into_iter().for_each(|number| self.take_back(number));
        self.broker.voices.remove(&client);
    }

    /// Gives back what was granted for a call that has ended without its client.
    pub(super) fn give_back_all(&mut self, call: &Call) {
        let told = match &call.phase {
            Phase::Told { grants, .. } if !mutant!(self.config, UnconfirmedKept) => grants.clone(),
            _ => Vec::new(),
        };
        let got = call.got.iter().filter_map(|(granted, fresh, _)| made(granted, *fresh));
        self.give_back_grants(got.chain(told).collect());
    }

    /// Gives back what was granted for nobody. What was only found again stays: another node may have answered with it.
    pub(super) fn give_back(&mut self, tasks: &[(Granted, Option<Viewstamp>)]) {
        self.give_back_grants(tasks.iter().filter_map(|(granted, fresh)| made(granted, *fresh)).collect());
    }

    /// Nobody will be told what a question was granted. Its answer may be lost, so whoever was asked is told that.
    pub(super) fn give_up_question(&mut self, ask: u64, node: NodeId, claim: &Claim) {
        // It grants nothing, and needs no more than that.
        let claim = Claim { depends: Vec::new(), session: None, lease_open: false, confirms: false, ..claim.clone() };
        self.give(Back::Question { ask, node, claim: Box::new(claim) });
    }

    /// A question that was given up is answered.
    pub(super) fn note_given_up(&mut self, ask: u64) {
        if let Some(number) = self.broker.returns.by_ask.get(&ask).copied() {
            self.broker.returns.remove(number);
            self.timers.cancel(Key::Return(number));
        }
    }

    fn give(&mut self, back: Back) {
        let (number, dropped) = self.broker.returns.insert(back);
        dropped.into_iter().for_each(|number| self.timers.cancel(Key::Return(number)));
        self.say_back(number);
    }

    /// Says what goes back to those who may have it.
    pub(in crate::protocol) fn say_back(&mut self, number: u64) {
        let Some((back, said)) = self.broker.returns.get_mut(number) else { return };
        *said += 1;
        let (said_max, doublings_max) = back.pace();
        let (last, pause_ms) = (*said == said_max, REPEAT_MS << (*said - 1).min(doublings_max));
        match back {
            Back::Claim { claim, keeps } => {
                let (claim, keeps) = (*claim, keeps.clone());
                let others: Vec<NodeId> = self.peers.keys().copied().collect();
                for node in others.into_iter().chain([self.me]) {
                    self.outbox.send(node, PeerMessage::Leave { claim, keeps: keeps.clone() });
                }
            }
            Back::Question { ask, node, claim } => {
                let (ask, node, claim) = (*ask, *node, claim.clone());
                if self.is_reachable(node) {
                    self.outbox.send(node, PeerMessage::GrantAsk { ask, claim, max: 0, recall: true, got: Vec::new() });
                }
            }
        }
        if last {
            self.broker.returns.remove(number);
        } else {
            self.timers.set(Key::Return(number), self.now.mono_after_ms(pause_ms));
        }
    }

    /// A call is over, and its client has nothing of what it was granted but what it keeps.
    pub(in crate::protocol) fn on_claim_left(&mut self, claim: ClaimId, keeps: &BTreeSet<TaskId>) {
        let led: Vec<_> =
            self.led.iter().filter(|id| self.partitions[id].register.knows_claim(&claim)).copied().collect();
        for partition in led {
            let register = &self.partitions[&partition].register;
            let held = register.held_by(claim);
            let left = held.iter().filter(|id| !keeps.contains(*id));
            let items: Vec<(TaskId, Token)> = left.map(|id| (*id, register.table.cells[id].token)).collect();
            self.void(partition, items);
        }
    }
}

impl Call {
    /// Whether it may hold what is not given back with it: what was found again, or what it has not been told of.
    fn holds_more(&self) -> bool {
        let told = matches!(self.phase, Phase::Told { holds_more: true, .. });
        told || self.asks() || self.recall.left(false) > 0 || self.got.iter().any(|(_, fresh, _)| fresh.is_none())
    }

    /// Whether a node has been asked for grants, and has not answered.
    fn asks(&self) -> bool {
        matches!(self.phase, Phase::Asking { .. })
    }
}

/// A grant that was made for this call, and not found again.
fn made(granted: &Granted, fresh: Option<Viewstamp>) -> Option<Grant> {
    fresh.map(|at| (granted.id, granted.token, at))
}
