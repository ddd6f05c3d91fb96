//! Renew, release, fail, and complete where that needs a seal (`seals.rs`): any node forwards these to the leaders, and the leaders
//! decide.

use crate::Node;
use crate::context::tally::Counted;
use crate::event::ClientId;
use crate::write_read::{PendingForward, PendingRequest};
use norn_model::claim_table::table::{ClaimEntry, ClaimState, Op};
use norn_model::config::mutant;
use norn_model::consensus::Waiting;
use norn_model::limits::CLAIM_ENTRIES_WITH_REASONS_MAX;
use norn_model::message::{AntiEntropy, Forwarding};
use norn_model::replica::Overtaken;
use norn_model::task::{PastClaim, claim_end, is_reason};
use norn_wire::error::{Error, ErrorCode};
use norn_wire::response::{ClaimEnd, ClaimOutcome};
use norn_wire::{NodeId, PartitionId, QueueName, Request, Response, TaskId, Token};
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;
use std::sync::Arc;

/// Why a task is dead whose last attempt ended with its lease.
const LEASE_RAN_OUT: &str = "the lease of its last attempt ran out";
/// Why a task is dead whose last attempt ended with its session.
pub(crate) const SESSION_RAN_OUT: &str = "the session of its last attempt ended";

/// Keys of tasks, by their queues.
pub(crate) type Turns = BTreeSet<(QueueName, NonZeroU64)>;

/// A forwarded call at the leader, until all of it is committed or refused.
#[derive(Debug)]
struct Call {
    to: NodeId,
    request_id: u64,
    /// Whether it is about many tasks.
    listed: bool,
    /// Whether facts that it left here have to be on disk before it is answered.
    durable: bool,
    results: Vec<Option<Result<u64, Error>>>,
}

/// Forwarded calls in progress at this leader.
#[derive(Debug, Default)]
pub struct Calls {
    next: u64,
    calls: BTreeMap<u64, Call>,
    /// Bytes of completions whose seals are in progress.
    pub(crate) sealing_bytes: usize,
}

/// The tasks and tokens that a request is about.
pub(crate) fn subjects(request: &Request) -> Vec<(TaskId, Token)> {
    match request {
        Request::Renew { items, .. } => items.clone(),
        Request::Release { id, token } | Request::Fail { id, token, .. } => vec![(*id, *token)],
        Request::Complete { items, .. } => items.iter().map(|item| (item.id, item.token)).collect(),
        _ => Vec::new(),
    }
}

impl Node {
    /// Forwards a client's renew, release or fail.
    pub(crate) fn forward(&mut self, client: ClientId, number: u64, request: Request) {
        self.forward_for(client, number, request, None);
    }

    /// As [`Node::forward`], but with a write the results go to places of that write instead of to the client.
    pub(crate) fn forward_for(
        &mut self,
        client: ClientId,
        number: u64,
        request: Request,
        write: Option<(u64, Vec<usize>)>,
    ) {
        let count = subjects(&request).len();
        let fits = write.as_ref().is_none_or(|(_, places)| places.len() == count);
        assert!(fits, "a write has other items than the call that asks for it");
        let request_id = self.pending_requests.open(PendingRequest::Forward(PendingForward {
            client,
            number,
            request,
            results: vec![None; count],
            parts: BTreeMap::new(),
            write,
            deadline_us: self.now.mono_after_ms(self.config.request_timeout_ms),
        }));
        self.forward_open_parts(request_id);
    }

    /// Sends every part without a result to the leader of its partition, where that is known.
    pub(crate) fn forward_open_parts(&mut self, request_id: u64) {
        let Some(PendingRequest::Forward(state)) = self.pending_requests.get(request_id) else { return };
        let (request, open) = (state.request.clone(), state.results.iter().map(Option::is_none).collect::<Vec<_>>());
        let subjects = subjects(&request);
        let mut by_node: BTreeMap<NodeId, Vec<usize>> = BTreeMap::new();
        for (place, (id, _)) in subjects.iter().enumerate().filter(|(place, _)| open[*place]) {
            if let Some(leader) = self.leader_of(self.partition_of(id)) {
                by_node.entry(leader).or_default().push(place);
            }
        }
        let mut parts = BTreeMap::new();
        for (node, places) in by_node {
            let part = self.pending_requests.number();
            let request = match &request {
                Request::Renew { lease_ms, .. } => {
                    Request::Renew { items: places.iter().map(|place| subjects[*place]).collect(), lease_ms: *lease_ms }
                }
                Request::Fail { id, token, reason, retry_in_ms, invalid, retry_open } => Request::Fail {
                    id: *id,
                    token: *token,
                    reason: reason.clone(),
                    retry_in_ms: *retry_in_ms,
                    invalid: *invalid,
                    retry_open: *retry_open,
                },
                Request::Complete { items, acks } => {
                    Request::Complete { items: places.iter().map(|place| items[*place].clone()).collect(), acks: *acks }
                }
                other => other.clone(),
            };
            parts.insert(part, places);
            self.pending_requests.alias(part, request_id);
            self.outbox.send(node, Forwarding::Forward { request_id: part, request: Box::new(request) });
        }
        if let Some(PendingRequest::Forward(state)) = self.pending_requests.get_mut(request_id) {
            state.parts.extend(parts);
        }
        self.set_request_timer(request_id);
    }

    /// Takes the answer of a leader to a part of a call about claims.
    pub(crate) fn part_answered(&mut self, request_id: u64, part: u64, response: Response) {
        let Some(PendingRequest::Forward(state)) = self.pending_requests.get_mut(request_id) else { return };
        let Some(places) = state.parts.remove(&part) else { return };
        let results: Vec<Result<u64, Error>> = match response {
            Response::Renewed(results) => results,
            Response::Done => vec![Ok(0); places.len()],
            Response::Error(error) => vec![Err(error); places.len()],
            _ => return,
        };
        for (place, result) in places.into_iter().zip(results) {
            // A leader that has just moved is looked for again until the deadline.
            let again = result.as_ref().is_err_and(|error| error.code == ErrorCode::Unavailable);
            if !again {
                state.results[place] = Some(result);
            }
        }
        if state.results.iter().all(Option::is_some) {
            self.finish_forward(request_id);
        }
    }

    /// Answers the client. Parts without a result by now have an unknown outcome.
    pub(crate) fn finish_forward(&mut self, request_id: u64) {
        let Some(PendingRequest::Forward(state)) = self.close_request(request_id) else { return };
        let subjects = subjects(&state.request);
        assert_eq!(state.results.len(), subjects.len(), "a call has other results than items");
        let results: Vec<Result<u64, Error>> = state
            .results
            .into_iter()
            .zip(&subjects)
            .map(|(result, (id, _))| {
                let unknown = || Error::new(ErrorCode::Unknown, "the leader did not answer in time").about(*id);
                result.unwrap_or_else(|| Err(unknown()))
            })
            .collect();
        if let Some((write, places)) = state.write {
            return self.write_sealed(write, places.into_iter().zip(results).collect());
        }
        let response = if matches!(state.request, Request::Renew { .. }) {
            Response::Renewed(results)
        } else {
            answer_one(results.into_iter().next())
        };
        self.outbox.reply(state.client, state.number, response);
    }

    /// A call of a client about claims, at the leader of their tasks.
    pub(crate) fn on_claim_call(&mut self, from: NodeId, request_id: u64, request: Request) {
        let subjects = subjects(&request);
        if subjects.is_empty() {
            return;
        }
        self.claims.calls.next += 1;
        let call = self.claims.calls.next;
        let listed = matches!(request, Request::Renew { .. } | Request::Complete { .. });
        let results = vec![None; subjects.len()];
        let before =
            self.claims.calls.calls.insert(call, Call { to: from, request_id, listed, durable: false, results });
        assert!(before.is_none(), "the number of a call is used twice");
        match request {
            Request::Renew { items, lease_ms } => self.renew(call, &items, lease_ms),
            Request::Release { id, token } => self.release(call, (id, token), 0, None),
            Request::Fail { id, token, reason, retry_in_ms, invalid, retry_open } => {
                self.fail(call, (id, token), &reason, (retry_in_ms, retry_open), invalid);
            }
            Request::Complete { items, .. } => self.seal(call, items),
            _ => {}
        }
        self.answer_call(call);
    }

    /// The claim that a call is about, if this node leads and the token is the current one.
    fn current(&self, id: &TaskId, token: Token) -> Result<(PartitionId, &ClaimEntry), Error> {
        let partition = self.partition_of(id);
        if !self.may_append(partition) {
            return Err(Error::unavailable("the partition's leader has moved; ask again").about(*id));
        }
        let replica = &self.partitions[&partition];
        let unknown = replica.store.task(id).is_none_or(|task| task.spec.is_none());
        let Some(entry) = replica.consensus.claim_entry(id) else {
            return Err(if replica.store.ended(id) {
                Error::new(ErrorCode::Ended, "the task has ended").about(*id)
            } else if unknown {
                Error::new(ErrorCode::NotFound, "no such task").about(*id)
            } else {
                Error::new(ErrorCode::Superseded, "the task is not claimed under this token").about(*id)
            });
        };
        if entry.token != token {
            let message = format!("token {token} is not the current one: the latest claim is {}", entry.token);
            return Err(Error::new(ErrorCode::Superseded, message).about(*id));
        }
        Ok((partition, entry))
    }

    /// As [`Node::current`], if the claim is also held, the task has not ended, and no transaction keeps it as it is.
    pub(crate) fn held(&self, id: &TaskId, token: Token) -> Result<(PartitionId, &ClaimEntry), Error> {
        if self.partitions.get(&self.partition_of(id)).is_some_and(|it| it.consensus.table.ledger.is_locked(id))
            && !mutant!(self.config, TransactionUnlocked)
        {
            return Err(Error::unavailable("the task is just being changed; ask again").about(*id));
        }
        self.renewable(id, token)
    }

    /// As [`Node::held`], but other transactions may depend on the task: a longer lease changes nothing for them.
    fn renewable(&self, id: &TaskId, token: Token) -> Result<(PartitionId, &ClaimEntry), Error> {
        let (partition, entry) = self.current(id, token)?;
        if self.partitions[&partition].consensus.table.ledger.is_changing(id)
            && !mutant!(self.config, TransactionUnlocked)
        {
            return Err(Error::unavailable("the task is just being changed; ask again").about(*id));
        }
        if self.partitions[&partition].store.ended(id) || entry.state.is_final() {
            return Err(Error::new(ErrorCode::Ended, "the task has ended").about(*id));
        }
        if entry.state != ClaimState::Held {
            return Err(Error::new(ErrorCode::Superseded, over(entry)).about(*id));
        }
        Ok((partition, entry))
    }

    /// Refuses to prolong the claim of a task with a key once another task with the key has had its turn. `turns` are the keys of the
    /// claims that are prolonged together with it.
    pub(crate) fn check_turn(&self, id: &TaskId, turns: &mut Turns) -> Result<(), Error> {
        let replica = &self.partitions[&self.partition_of(id)];
        let key = replica.key_of(id);
        if key.is_none() && !replica.store.lacks_spec(id) || mutant!(self.config, TurnRetaken) {
            return Ok(());
        }
        let refusal = |code, message: &str| Err(Error::new(code, message).about(*id));
        if key.is_none() && replica.consensus.has_run_out(id) {
            let message = "the lease ran out, and the leader does not know of which task; try again";
            return Err(Error::unavailable(message).about(*id));
        }
        match replica.overtaken(id) {
            // Of several expired claims with a key of which none is held, one may be prolonged.
            None if key.is_none_or(|key| !replica.consensus.has_run_out(id) || turns.insert(key)) => Ok(()),
            Some(Overtaken::Perhaps) => {
                refusal(ErrorCode::Unavailable, "the leader does not know yet what is held; try again")
            }
            None | Some(Overtaken::Surely) => refusal(
                ErrorCode::Superseded,
                "the lease ran out, and it has been the turn of another task with its key",
            ),
        }
    }

    /// Refuses for now a call that depends on a spec which this leader lacks, and requests the spec from the followers.
    fn check_known(&mut self, partition: PartitionId, id: &TaskId) -> Result<(), Error> {
        let replica = &self.partitions[&partition];
        if !replica.store.lacks_spec(id) {
            return Ok(());
        }
        let others: Vec<NodeId> = replica.cohort().followers().into_iter().filter(|node| *node != self.me).collect();
        for node in others {
            self.outbox.send(node, AntiEntropy::Need { partition, ids: vec![*id] });
        }
        Err(Error::unavailable("the leader does not know yet of which task that is; try again").about(*id))
    }

    fn renew(&mut self, call: u64, items: &[(TaskId, Token)], lease_ms: Option<u64>) {
        let shortens = mutant!(self.config, RenewalShortens);
        let unbounded = mutant!(self.config, LeaseUnbounded);
        let wall_ms = self.now.wall_ms;
        let mut by_partition: BTreeMap<PartitionId, Vec<(usize, u64)>> = BTreeMap::new();
        let mut turns = Turns::default();
        for (place, (id, token)) in items.iter().enumerate() {
            let held = self.renewable(id, *token).map(|(partition, entry)| (partition, entry.lease_ms));
            let held = held.and_then(|held| self.check_turn(id, &mut turns).map(|()| held));
            // The queue's policy bounds the lease.
            let known = |node: &mut Node, (partition, had_ms): (PartitionId, u64)| {
                let more = lease_ms.is_some_and(|lease_ms| lease_ms > had_ms);
                if more {
                    node.check_known(partition, id)?
                }
                Ok((partition, had_ms))
            };
            match held.and_then(|held| known(self, held)) {
                Ok((partition, had_ms)) => {
                    let own_ms = lease_ms.unwrap_or(0).max(had_ms);
                    let policy = self.policy_of_task(partition, id);
                    let bounded_ms = policy.map_or(had_ms, |policy| policy.bounded(own_ms));
                    let lease_ms = if unbounded { own_ms } else { bounded_ms };
                    by_partition.entry(partition).or_default().push((place, lease_ms));
                }
                Err(error) => self.decide(call, place, Err(error)),
            }
        }
        for (partition, slots) in by_partition {
            let renewals = slots
                .iter()
                .map(|(place, granted_ms)| {
                    let (id, token) = items[*place];
                    let length_ms = lease_ms.filter(|_| shortens).unwrap_or(*granted_ms);
                    (id, token, length_ms, wall_ms.saturating_add(length_ms))
                })
                .collect();
            self.append(partition, Op::Renew { items: renewals }, Some(Waiting::Call { call, slots }));
        }
    }

    /// Hands a claim back; `failed` is the reason of a failed attempt, `None` a plain release.
    fn release(&mut self, call: u64, (id, token): (TaskId, Token), retry_in_ms: u64, failed: Option<&str>) {
        let outcome = if failed.is_some() { ClaimOutcome::Failed } else { ClaimOutcome::Released };
        if self.ended_so(&id, token, outcome, failed.unwrap_or_default()) {
            return self.repeat(call, &id);
        }
        match self.held(&id, token) {
            Ok((partition, _)) if failed.is_none() && self.is_session(partition, &id) => {
                let message = "a session is not given back, as its end is final: end it, `session end`";
                self.decide(call, 0, Err(Error::invalid(message).about(id)));
            }
            Ok((partition, _)) => {
                let at_ms = self.now.wall_ms;
                let not_before_ms = if retry_in_ms == 0 { 0 } else { at_ms.saturating_add(retry_in_ms) };
                let end = Some(claim_end(outcome, at_ms, self.kept_reason(partition, failed.unwrap_or_default())));
                let what = if failed.is_some() { Counted::Failed } else { Counted::GivenBack };
                self.count_end(partition, &id, what);
                let op = Op::Release { id, token, not_before_ms, at_ms, failed: failed.is_some(), end };
                self.append(partition, op, Some(Waiting::Call { call, slots: vec![(0, 0)] }));
            }
            Err(error) => self.decide(call, 0, Err(error)),
        }
    }

    /// Counts a claim that its worker ends otherwise than by completing the task.
    fn count_end(&mut self, partition: PartitionId, id: &TaskId, what: Counted) {
        let replica = &self.partitions[&partition];
        let Some(spec) = replica.store.task(id).and_then(|task| task.spec.as_ref()) else { return };
        let entry = replica.consensus.claim_entry(id).filter(|entry| entry.state == ClaimState::Held);
        let tally = self.outbox.tally_mut();
        tally.count(&spec.queue, what);
        if let Some(entry) = entry.filter(|_| what == Counted::Failed) {
            tally.ran(&spec.queue, self.now.wall_ms.saturating_sub(entry.granted_ms));
        }
    }

    /// Fails a claim. `retry` is how long the task waits, and whether its queue's back-off goes before that.
    fn fail(&mut self, call: u64, (id, token): (TaskId, Token), reason: &str, retry: (u64, bool), invalid: bool) {
        let (named_ms, open) = retry;
        let outcome = if invalid { ClaimOutcome::GivenUp } else { ClaimOutcome::Failed };
        if self.ended_so(&id, token, outcome, reason) {
            return self.repeat(call, &id);
        }
        // The task and its queue decide how often it is tried, and after which pause.
        let held = self.held(&id, token).map(|(partition, entry)| (partition, entry.attempt));
        let attempt = match held {
            Ok((partition, attempt)) if !invalid => match self.check_known(partition, &id) {
                Ok(()) => attempt,
                Err(error) => return self.decide(call, 0, Err(error)),
            },
            Ok((_, attempt)) => attempt,
            // Its lease has expired, it waits, and no worker holds it: its last holder may still report it as invalid.
            Err(_) if invalid && self.waits(&id, token) => 0,
            Err(error) => return self.decide(call, 0, Err(error)),
        };
        let partition = self.partition_of(&id);
        let attempts_max = self.attempts_max(partition, &id);
        if invalid || (attempts_max > 0 && attempt >= attempts_max) {
            let end = Some(claim_end(outcome, self.now.wall_ms, self.kept_reason(partition, reason)));
            self.count_end(partition, &id, Counted::Failed);
            self.kill(partition, (id, token), &death(reason, invalid), end);
            self.decide_after_commit(call, &id);
        } else {
            let backoff_ms = if open { self.draw_backoff(partition, &id, attempt) } else { None };
            self.release(call, (id, token), backoff_ms.unwrap_or(named_ms), Some(reason));
        }
    }

    /// The part of a failure's reason that is kept: nothing if the entries of the table are too many for a message.
    pub(crate) fn kept_reason<'a>(&self, partition: PartitionId, reason: &'a str) -> &'a str {
        let claims = self.partitions[&partition].consensus.table.entries.len();
        if claims <= CLAIM_ENTRIES_WITH_REASONS_MAX { reason } else { "" }
    }

    /// The token of a claim that ended without success and was the last attempt its task may have, with its reason and end. A claim
    /// that a worker gave back, or that no client got, is no attempt.
    pub(crate) fn exhausted(
        &self,
        partition: PartitionId,
        id: &TaskId,
    ) -> Option<(Token, String, Option<Arc<ClaimEnd>>)> {
        let replica = &self.partitions[&partition];
        let attempts_max = self.attempts_max(partition, id);
        let entry =
            replica.consensus.claim_entry(id).filter(|entry| attempts_max > 0 && entry.attempt >= attempts_max)?;
        let end = match entry.state {
            ClaimState::Held if replica.consensus.is_lapsed(id) => Some(entry.expired()),
            ClaimState::Released { .. } | ClaimState::Void => entry.last_attempt(),
            ClaimState::Held | ClaimState::Dead { .. } | ClaimState::Sealed { .. } => return None,
        };
        let why = end.as_ref().and_then(|end| end.reason.as_deref());
        let reason = match (&end, why) {
            (Some(end), None) if end.outcome == ClaimOutcome::Expired => LEASE_RAN_OUT.to_owned(),
            (Some(end), Some(_)) if end.outcome == ClaimOutcome::Expired => SESSION_RAN_OUT.to_owned(),
            (_, why) => death(why.unwrap_or_default(), false),
        };
        // The entry's own end: `end` is the end of the attempt, which may be of an earlier claim.
        let own = if entry.state == ClaimState::Held { end } else { entry.end().cloned() };
        Some((entry.token, reason, own))
    }

    /// Gives a task up for good.
    pub(crate) fn kill(
        &mut self,
        partition: PartitionId,
        (id, token): (TaskId, Token),
        reason: &str,
        end: Option<Arc<ClaimEnd>>,
    ) {
        let op = Op::Kill { id, token, reason: reason.into(), at_ms: self.now.wall_ms, end };
        self.append(partition, op, Some(Waiting::Kill { id }));
    }

    /// Whether a claim has already ended in this very way: then the call is a repeat of one that counted the first time. Later claims,
    /// or the end of the task, do not change that.
    fn ended_so(&self, id: &TaskId, token: Token, outcome: ClaimOutcome, reason: &str) -> bool {
        let partition = self.partition_of(id);
        if !self.may_append(partition) {
            return false;
        }
        let replica = &self.partitions[&partition];
        let says = |end: &ClaimEnd| end.outcome == outcome && is_reason(end, reason);
        let is_past = |claims: &[(Token, PastClaim)]| {
            claims.iter().any(|(of, claim)| *of == token && claim.end.as_deref().is_some_and(says))
        };
        let died = outcome != ClaimOutcome::Released;
        let death = death(reason, outcome == ClaimOutcome::GivenUp);
        let facts = replica.store.task(id).and_then(|task| task.facts.as_deref());
        let of_facts = facts.is_some_and(|facts| {
            let is_latest = facts.claims.last().is_some_and(|(latest, _)| *latest == token);
            let is_death = facts.cancel.as_ref().is_some_and(|cancel| cancel.dead && cancel.reason == death);
            is_past(&facts.claims) || died && is_latest && is_death
        });
        let of_entry = replica.consensus.claim_entry(id).is_some_and(|entry| match &entry.state {
            _ if entry.token != token => is_past(&entry.past),
            ClaimState::Released { end: Some(end), .. } => says(end),
            // Logs of earlier versions do not record how it ended.
            ClaimState::Released { end: None, .. } => outcome != ClaimOutcome::GivenUp,
            ClaimState::Dead { reason, end, .. } => end.as_deref().is_some_and(says) || died && **reason == *death,
            ClaimState::Held | ClaimState::Void | ClaimState::Sealed { .. } => false,
        });
        of_facts || of_entry
    }

    /// Answers a repeated call like the first one: the change is made, perhaps by an operation that has yet to commit.
    fn repeat(&mut self, call: u64, id: &TaskId) {
        self.answer_durably(call);
        self.decide_after_commit(call, id);
    }

    /// Whether a task that has not ended was given back under the current token.
    pub(crate) fn waits(&self, id: &TaskId, token: Token) -> bool {
        // The end of a session is final.
        let released =
            |entry: &ClaimEntry| matches!(entry.state, ClaimState::Released { .. }) && entry.session.is_none();
        let found = self.current(id, token).is_ok_and(|(_, entry)| released(entry));
        let replica = &self.partitions[&self.partition_of(id)];
        found && !replica.store.ended(id) && !replica.consensus.table.ledger.is_locked(id)
    }

    /// Makes an answer wait for the disk, as it rests on facts that were just merged.
    pub(crate) fn answer_durably(&mut self, call: u64) {
        if let Some(state) = self.claims.calls.calls.get_mut(&call) {
            state.durable = true;
        }
    }

    pub(crate) fn decide(&mut self, call: u64, place: usize, result: Result<u64, Error>) {
        if let Some(state) = self.claims.calls.calls.get_mut(&call) {
            assert!(state.results[place].is_none(), "an item of a call is decided twice");
            state.results[place] = Some(result);
        }
    }

    /// Answers once everything appended so far in the task's partition is committed.
    fn decide_after_commit(&mut self, call: u64, id: &TaskId) {
        let partition = self.partition_of(id);
        let consensus = &mut self.partitions.get_mut(&partition).expect("held there").consensus;
        let (length, commit) = (consensus.viewstamp.length, consensus.commit);
        assert!(commit <= length, "the commit index is ahead of the operations it covers");
        if commit == length {
            return self.decide(call, 0, Ok(0));
        }
        let leading = consensus.leading_mut().expect("it leads");
        leading.waiting.push_back((length, Waiting::Call { call, slots: vec![(0, 0)] }));
    }

    pub(crate) fn call_committed(&mut self, call: u64, slots: &[(usize, u64)]) {
        for (place, lease_ms) in slots {
            self.decide(call, *place, Ok(*lease_ms));
        }
        self.answer_call(call);
    }

    pub(crate) fn call_given_up(&mut self, call: u64, slots: &[(usize, u64)]) {
        for (place, _) in slots {
            self.decide(call, *place, Err(Error::unavailable("the partition's leader has moved; ask again")));
        }
        self.answer_call(call);
    }

    pub(crate) fn answer_call(&mut self, call: u64) {
        if !self.claims.calls.calls.get(&call).is_some_and(|state| state.results.iter().all(Option::is_some)) {
            return;
        }
        let Call { to, request_id, listed, durable, results } =
            self.claims.calls.calls.remove(&call).expect("just seen");
        let results: Vec<Result<u64, Error>> = results.into_iter().flatten().collect();
        let response = if listed { Response::Renewed(results) } else { answer_one(results.into_iter().next()) };
        let answer = Forwarding::Forwarded { request_id, response: Box::new(response) };
        if durable {
            self.outbox.send_durable(to, answer);
        } else {
            self.outbox.send(to, answer);
        }
    }
}

/// Why a task is dead whose holder reported a failure with a reason.
fn death(reason: &str, invalid: bool) -> String {
    let why = if invalid { "invalid" } else { "the last attempt failed" };
    if reason.is_empty() { why.to_owned() } else { format!("{why}: {reason}") }
}

/// How a claim ended that is not held any more, for its worker.
fn over(entry: &ClaimEntry) -> &'static str {
    match (&entry.state, entry.end().map(|end| (end.outcome, end.reason.is_some()))) {
        (ClaimState::Void, _) => "the claim is over: its client did not confirm it in time",
        (_, Some((ClaimOutcome::Failed, _))) => "the claim is over: its attempt was reported as failed",
        // A session gives a reason.
        (_, Some((ClaimOutcome::Expired | ClaimOutcome::Released, true))) => "the claim is over: its session ended",
        (_, Some((ClaimOutcome::Expired, false))) => "the claim is over: its lease ran out",
        (_, Some((ClaimOutcome::Released, false))) => "the claim is over: it was given back",
        _ => "the claim is over: it was given back, its attempt failed, or its lease ran out",
    }
}

fn answer_one(result: Option<Result<u64, Error>>) -> Response {
    match result {
        Some(Err(error)) => Response::Error(error),
        Some(Ok(_)) | None => Response::Done,
    }
}
