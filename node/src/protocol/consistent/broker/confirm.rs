//! The end of a call: its client is told what it was granted, and confirms that it knows.
//!
//! A client may be gone when its answer is on the way: killed, cut off, or waiting for something else. What was granted would be held
//! by nobody until its lease is over. So a grant is its client's only once the client has said that the answer came; what was made for
//! the call and is not confirmed in time is given back, which makes it void: it was no attempt. A client that has been told
//! "too late" asks again. What is granted next goes to the calls of other clients first (`silent.rs`).
//!
//! A leader takes a grant back only if it was not renewed since. Whoever asks again elsewhere renews it, so what the first node gives
//! back is not taken from the second. For the same reason a grant that was only found again is not given back here: another node may
//! have told it since. It is void once the client takes leave of its claim, wherever that lies, or with its lease.

use super::{Call, Grant, Phase};
use crate::config::mutant;
use crate::protocol::consistent::Viewstamp;
use crate::protocol::event::ClientId;
use crate::protocol::peer::PeerMessage;
use crate::protocol::timers::Key;
use crate::protocol::{Feature, Node};
use norn_client::wire::error::{Error, ErrorCode};
use norn_client::wire::{ClaimId, Granted, NodeId, Response, TaskId, Token};
use std::collections::{BTreeMap, BTreeSet};

/// A client confirms within this time, and as long as the answer may be on its way...
const CONFIRM_MS: u64 = 2_000;
/// ...over the slowest network that is counted with: about a megabyte a second.
const TRANSFER_BYTES_PER_MS: u64 = 1 << 10;
/// Givings back that are said again, at the most.
const RETURNS_MAX: usize = 1_000;
/// What is given back is said again after this time, then after twice as long, and so on...
const REPEAT_MS: u64 = 250;
/// ...so many times in all. Leaders that are not heard for so long are followed by others, who know as much as they.
const SAID_MAX: u32 = 6;

/// What is given back.
#[derive(Debug)]
enum Back {
    /// These grants, unless they were renewed since.
    Grants(Vec<Grant>),
    /// All that was granted to a call which is over, but what its client has.
    Claim { claim: ClaimId, keeps: Vec<TaskId> },
}

/// What is said again.
#[derive(Debug, Default)]
pub(super) struct Returns {
    next: u64,
    /// How often each was said.
    open: BTreeMap<u64, (Back, u32)>,
}

impl Node {
    /// Tells a client what it was granted.
    pub(super) fn answer_claim(&mut self, number: u64) {
        let call = &self.broker.calls[&number];
        let left = call.recall.left() as u32;
        let unavailable = if call.got.is_empty() { call.unavailable.max(left) } else { left };
        let confirms = call.claim.confirms && !call.got.is_empty();
        let (client, of) = (call.client, call.number);
        let got = if confirms { self.await_confirmation(number) } else { self.end_claim(number).got };
        let tasks = got.into_iter().map(|(granted, ..)| granted).collect();
        self.outbox.reply(client, of, Response::Claimed { tasks, unavailable });
    }

    fn await_confirmation(&mut self, number: u64) -> Vec<(Granted, Option<Viewstamp>, NodeId)> {
        self.broker.unpark(number);
        self.timers.cancel(Key::Park(number));
        let call = self.broker.calls.get_mut(&number).expect("it is answered");
        let got = std::mem::take(&mut call.got);
        let grants = got.iter().filter_map(|(granted, fresh, _)| made(granted, *fresh)).collect();
        let bytes: u64 = got.iter().map(|(granted, ..)| granted.payload.len() as u64).sum();
        let phase = std::mem::replace(&mut call.phase, Phase::Told { grants });
        self.broker.end_question(&phase);
        self.timers.set(Key::Claim(number), self.now.mono_after_ms(CONFIRM_MS + bytes / TRANSFER_BYTES_PER_MS));
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
        let call = self.broker.confirming.get(&(client, claim)).copied();
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

    /// A client does not wait for a call any more; and if it says what it keeps, all else goes back that was granted elsewhere.
    pub(in crate::protocol) fn leave_claim(
        &mut self,
        (client, number): (ClientId, u64),
        claim: ClaimId,
        keeps: Option<Vec<TaskId>>,
    ) {
        self.leave_call(client, claim);
        if let Some(keeps) = keeps {
            self.give(Back::Claim { claim, keeps });
        }
        self.outbox.reply(client, number, Response::Done);
    }

    pub(super) fn leave_call(&mut self, client: ClientId, claim: ClaimId) {
        let Some(number) = self.broker.confirming.get(&(client, claim)).copied() else { return };
        let call = self.end_claim(number);
        self.give_back_all(&call);
        if !matches!(call.phase, Phase::Told { .. }) {
            // Its place among the requests of the connection is free.
            let error = Error::new(ErrorCode::Superseded, "its client has left this claim, or made it anew");
            self.outbox.reply(call.client, call.number, Response::Error(error));
        }
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
            Phase::Told { grants } if !mutant!(self.config, UnconfirmedKept) => grants.clone(),
            _ => Vec::new(),
        };
        let got = call.got.iter().filter_map(|(granted, fresh, _)| made(granted, *fresh));
        let grants: Vec<Grant> = got.chain(told).collect();
        if !grants.is_empty() {
            self.give(Back::Grants(grants));
        }
    }

    /// Gives back what was granted for nobody. What was only found again stays: another node may have answered with it.
    pub(super) fn give_back(&mut self, tasks: &[(Granted, Option<Viewstamp>)]) {
        let grants: Vec<Grant> = tasks.iter().filter_map(|(granted, fresh)| made(granted, *fresh)).collect();
        if !grants.is_empty() {
            self.give(Back::Grants(grants));
        }
    }

    fn give(&mut self, back: Back) {
        self.broker.returns.next += 1;
        let number = self.broker.returns.next;
        self.broker.returns.open.insert(number, (back, 0));
        if self.broker.returns.open.len() > RETURNS_MAX
            && let Some((oldest, _)) = self.broker.returns.open.pop_first()
        {
            self.timers.cancel(Key::Return(oldest));
        }
        self.say_back(number);
    }

    /// Says what goes back to whoever leads there now.
    pub(in crate::protocol) fn say_back(&mut self, number: u64) {
        let Some((back, said)) = self.broker.returns.open.get_mut(&number) else { return };
        *said += 1;
        let (last, pause_ms) = (*said == SAID_MAX, REPEAT_MS << (*said - 1));
        match back {
            Back::Claim { claim, keeps } => {
                let (claim, keeps) = (*claim, keeps.clone());
                let others: Vec<NodeId> = self.peers.keys().copied().collect();
                let knowing = others.into_iter().filter(|node| self.speaks(*node, Feature::Confirms));
                for node in knowing.chain([self.me]).collect::<Vec<_>>() {
                    self.outbox.send(node, PeerMessage::Leave { claim, keeps: keeps.clone() });
                }
            }
            Back::Grants(grants) => {
                let grants = grants.clone();
                let mut by_leader: BTreeMap<NodeId, Vec<Grant>> = BTreeMap::new();
                for grant in grants {
                    if let Some(leader) = self.leader_of(self.partition_of(&grant.0)) {
                        by_leader.entry(leader).or_default().push(grant);
                    }
                }
                for (leader, items) in by_leader {
                    self.outbox.send(leader, PeerMessage::Return { items });
                }
            }
        }
        if last {
            self.broker.returns.open.remove(&number);
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

/// A grant that was made for this call, and not found again.
fn made(granted: &Granted, fresh: Option<Viewstamp>) -> Option<Grant> {
    fresh.map(|at| (granted.id, granted.token, at))
}
