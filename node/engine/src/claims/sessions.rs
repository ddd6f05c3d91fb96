//! Sessions of workers: one heartbeat for all claims of a worker, which end with it.
//!
//! A session is a task like any other, with one attempt, that its worker holds. The heartbeat is the renewal of that claim. So a
//! session ends as a task does: when the worker completes it, when a client cancels it, or when its lease expires by both clocks; its
//! leader then gives it up, as it was the last attempt. That is committed before any other node learns of it, and final.
//!
//! A claim may name the session under which it is made. The node that is asked for it reads the session at a majority first. It
//! refuses the claim if the task is no session, has ended, or is held by no worker: no heartbeat would keep what is claimed under
//! it. Such a claim's own lease is long, so that it need not be renewed. The leader of its partition asks the leader of the
//! session's, as for a dependency (`workflow/dependencies.rs`), and learns of the end, at once or by a sweep. Then it gives back
//! all claims under the session: as failed attempts, unless the worker has ended the session itself. A claim that was made a moment
//! ago may never have reached its worker: the leader waits until it is confirmed, or void and no attempt. A worker counts on a
//! session as on any claim, from when it sent the renewal, so it has stopped before another worker is granted its tasks.
//!
//! While the session's partition has no leader no other node learns of its end, and its claims last as long as their own leases. A
//! session that no replica knows, and that may have been forgotten, has ended. A claim that was given back in this way cannot be
//! completed any more where completions are sealed, whether or not another worker has the task.

use crate::Node;
use crate::claims::LOCKED_MS;
use crate::claims::broker::confirm::CONFIRM_MS_MAX;
use crate::context::signals::Signal;
use crate::context::timers::Key;
use norn_model::claim_table::table::{ClaimEntry, ClaimState, Op};
use norn_model::config::mutant;
use norn_model::consensus::Waiting;
use norn_model::limits::{DEPENDENTS_MAX, FOLLOWED_MAX, SESSIONS_OVER_MAX};
use norn_model::task::{Settled, Task, claim_end};
use norn_model::viewstamp::Viewstamp;
use norn_wire::error::{Error, ErrorCode};
use norn_wire::response::ClaimOutcome;
use norn_wire::{Claim, PartitionId, SESSIONS_QUEUE, TaskId, Token};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Pause between two pieces of work.
const PIECE_MS: u64 = 20;
/// Why a claim ended before its lease did.
const SESSION_ENDED: &str = "its session ended";

/// What leaders know of sessions beside their tables. Lost when the leader steps down: sweeps make up for it.
#[derive(Debug, Default)]
pub struct Sessions {
    /// By partition that is led here: ended sessions of which not all claims are given back.
    ended: BTreeMap<PartitionId, BTreeMap<TaskId, Ended>>,
    /// By partition that is led here: ended sessions with claims that clients may not have confirmed, and when those count as attempts,
    /// on the monotonic clock.
    unconfirmed: BTreeMap<PartitionId, BTreeMap<TaskId, (Settled, u64)>>,
    /// How far the sweep of a partition is.
    sweeps: BTreeMap<PartitionId, Sweep>,
    /// Sessions known to have ended: nothing is granted under them. The latest ones.
    over: BTreeSet<TaskId>,
    over_order: VecDeque<TaskId>,
}

/// A session that has ended.
#[derive(Debug, Clone, Copy)]
struct Ended {
    how: Settled,
    /// Whether enough time has passed that every unconfirmed claim would have been given back by now.
    all_confirmed: bool,
    /// The last task whose claim the leader has looked at.
    after: Option<TaskId>,
    /// The longest wait of the claims before it that their clients may not have confirmed; 0 without any.
    wait_ms: u64,
}

impl Ended {
    fn new(how: Settled, all_confirmed: bool) -> Self {
        Ended { how, all_confirmed, after: None, wait_ms: 0 }
    }
}

/// State of a sweep, which asks for the ends of all sessions of a partition, some at a time.
#[derive(Debug, Default, Clone, Copy)]
struct Sweep {
    /// Sessions up to this one have been asked for.
    after: Option<TaskId>,
    /// When the next are asked for, on the monotonic clock.
    next_us: u64,
}

impl Sessions {
    /// This node does not lead a partition any more.
    pub fn step_down(&mut self, partition: PartitionId) {
        self.ended.remove(&partition);
        self.unconfirmed.remove(&partition);
        self.sweeps.remove(&partition);
    }

    fn note_over(&mut self, session: TaskId) {
        if self.over.insert(session) {
            self.over_order.push_back(session);
        }
        if self.over_order.len() > SESSIONS_OVER_MAX
            && let Some(first) = self.over_order.pop_front()
        {
            self.over.remove(&first);
        }
        assert_eq!(self.over.len(), self.over_order.len(), "a session that is over is not listed in its order");
        assert!(self.over.len() <= SESSIONS_OVER_MAX, "too many ended sessions are remembered");
    }

    /// Records that claims under an ended session are to be given back. Returns `false` if those that are left wait for confirmations.
    fn note_ended(&mut self, partition: PartitionId, session: TaskId, how: Settled) -> bool {
        self.note_over(session);
        let waits = self.unconfirmed.get(&partition).is_some_and(|waiting| waiting.contains_key(&session));
        if !waits {
            self.ended.entry(partition).or_default().entry(session).or_insert(Ended::new(how, false));
        }
        !waits
    }

    /// Records that claims which have waited for confirmations are to be given back.
    fn wake(&mut self, partition: PartitionId, now_us: u64) {
        let Some(waiting) = self.unconfirmed.get_mut(&partition) else { return };
        let due = waiting.extract_if(.., |_, (_, until_us)| *until_us <= now_us);
        let due: Vec<_> = due.map(|(session, (how, _))| (session, Ended::new(how, true))).collect();
        if waiting.is_empty() {
            self.unconfirmed.remove(&partition);
        }
        if !due.is_empty() {
            self.ended.entry(partition).or_default().extend(due);
        }
    }

    /// When the next claims have waited for long enough, or the next sessions are asked for.
    fn next_us(&self, partition: PartitionId) -> u64 {
        let waiting = self.unconfirmed.get(&partition).into_iter().flat_map(BTreeMap::values);
        let wake_us = waiting.map(|(_, until_us)| *until_us).min();
        let sweep_us = self.sweeps.get(&partition).map_or(0, |sweep| sweep.next_us);
        wake_us.map_or(sweep_us, |wake_us| wake_us.min(sweep_us))
    }

    /// Whether a session is known to have ended.
    pub fn is_over(&self, session: &TaskId) -> bool {
        self.over.contains(session)
    }
}

fn is_none() -> Error {
    Error::invalid("the task is no session: `session open` gives the id of one")
}

fn has_ended() -> Error {
    Error::new(ErrorCode::Ended, "the session has ended; open another one")
}

/// Whether a task is an open session, as a majority of its replicas knows it. It is open once its worker holds it.
pub(crate) fn check_open(task: &Task, entry: Option<&ClaimEntry>) -> Result<(), Error> {
    if task.spec.as_ref().is_some_and(|spec| spec.queue.as_str() != SESSIONS_QUEUE) {
        return Err(is_none());
    }
    if task.ended().is_some() || entry.is_some_and(|entry| entry.state.is_final()) {
        return Err(has_ended());
    }
    // The claim is known to a majority, the spec perhaps to the leader alone.
    match entry.is_some_and(|entry| entry.state == ClaimState::Held) {
        true => Ok(()),
        false => {
            let message = "no such session is open: `session open` opens one";
            Err(Error::new(ErrorCode::NotFound, message))
        }
    }
}

impl Node {
    /// Refuses a claim under a session that this node knows to have ended, or to be no session. Otherwise a majority of the session's
    /// replicas is asked (`broker/depends.rs`).
    pub(crate) fn check_session(&self, claim: &Claim) -> Result<(), Error> {
        let is_other = |session: &TaskId| {
            let replica = self.partitions.get(&self.partition_of(session));
            let spec = replica.and_then(|replica| replica.store.task(session)).and_then(|task| task.spec.as_ref());
            spec.is_some_and(|spec| spec.queue.as_str() != SESSIONS_QUEUE)
        };
        if let Some(session) = claim.session.filter(is_other) {
            return Err(is_none().about(session));
        }
        let ended = |session: &TaskId| {
            let replica = self.partitions.get(&self.partition_of(session));
            self.claims.sessions.is_over(session) || replica.is_some_and(|replica| replica.end_of(session).is_some())
        };
        claim.session.filter(ended).map_or(Ok(()), |session| Err(has_ended().about(session)))
    }

    /// Whether a task is the session of a worker.
    pub(crate) fn is_session(&self, partition: PartitionId, id: &TaskId) -> bool {
        let spec = self.partitions[&partition].store.task(id).and_then(|task| task.spec.as_ref());
        spec.is_some_and(|spec| spec.queue.as_str() == SESSIONS_QUEUE)
    }

    /// Tasks are granted under a session: asks its leader for the end, unless it was asked for other claims.
    pub(crate) fn track_session(&mut self, partition: PartitionId, session: TaskId) {
        if !self.partitions[&partition].consensus.has_session(&session) {
            self.signals.report(Signal::SessionsHeeded { partition, sessions: vec![session] });
            self.timers.set_if_none(Key::Sessions(partition), self.after_ms(self.config.sweep_interval_ms));
        }
    }

    /// A new leader asks about all sessions that it inherits.
    pub(crate) fn track_inherited_sessions(&mut self, partition: PartitionId) {
        self.claims.sessions.step_down(partition);
        self.timers.set(Key::Sessions(partition), self.now.mono_us);
    }

    /// Gives back claims under ended sessions, and asks for the ends of the others, some at a time.
    pub(crate) fn sweep_sessions(&mut self, partition: PartitionId) {
        let Some(replica) = self.partitions.get(&partition) else { return };
        if !replica.consensus.established() {
            return;
        }
        self.claims.sessions.wake(partition, self.now.mono_us);
        if self.claims.sessions.ended.contains_key(&partition) {
            self.end_claims(partition);
            // Not before the sweep is due again: it finds sessions whose tasks have all ended, and whose claims are dropped later.
            let more = self.claims.sessions.ended.contains_key(&partition);
            let next_us = if more { self.after_ms(PIECE_MS) } else { self.claims.sessions.next_us(partition) };
            return self.timers.set(Key::Sessions(partition), next_us);
        }
        let sweep = self.claims.sessions.sweeps.get(&partition).copied().unwrap_or_default();
        if self.now.mono_us < sweep.next_us {
            return self.timers.set(Key::Sessions(partition), self.claims.sessions.next_us(partition));
        }
        let replica = &self.partitions[&partition];
        let sessions: Vec<TaskId> = replica.consensus.sessions_after(sweep.after).take(FOLLOWED_MAX).collect();
        if sessions.is_empty() && sweep.after.is_none() {
            self.claims.sessions.unconfirmed.remove(&partition);
            self.claims.sessions.sweeps.remove(&partition);
            return;
        }
        let after = sessions.last().copied().filter(|_| sessions.len() == FOLLOWED_MAX);
        let pause_ms = if after.is_some() { PIECE_MS } else { self.config.sweep_interval_ms };
        self.claims.sessions.sweeps.insert(partition, Sweep { after, next_us: self.after_ms(pause_ms) });
        self.timers.set(Key::Sessions(partition), self.claims.sessions.next_us(partition));
        if mutant!(self.config, SessionsCutShort) {
            // The planted bug: a silent leader counts as dead, and its sessions as ended.
            let silent =
                |session: &&TaskId| self.leader_of(self.partition_of(session)).is_none_or(|it| !self.is_alive(it));
            let silent: Vec<TaskId> = sessions.iter().filter(silent).copied().collect();
            silent.into_iter().for_each(|session| self.end_session(partition, session, Settled::Dead));
        }
        self.signals.report(Signal::SessionsHeeded { partition, sessions });
    }

    /// Records that a session has ended, if the task is one.
    pub(crate) fn end_session(&mut self, partition: PartitionId, session: TaskId, how: Settled) {
        // A sweep asks for ends that are known: the answer must not start it again.
        if self.partitions[&partition].consensus.has_session(&session)
            && self.claims.sessions.note_ended(partition, session, how)
        {
            self.timers.set(Key::Sessions(partition), self.now.mono_us);
        }
    }

    /// Gives back some of the claims under ended sessions.
    fn end_claims(&mut self, partition: PartitionId) {
        if !self.may_append(partition) {
            return;
        }
        let Some(ended) = self.claims.sessions.ended.get_mut(&partition) else { return };
        let (session, mut end) = ended.pop_first().expect("none is kept without a session");
        if ended.is_empty() {
            self.claims.sessions.ended.remove(&partition);
        }
        let replica = &self.partitions[&partition];
        let held: Vec<TaskId> = replica.consensus.held_under(&session, end.after).take(DEPENDENTS_MAX).collect();
        let more = held.len() == DEPENDENTS_MAX;
        end.after = held.last().copied();
        for id in held {
            end.wait_ms = end.wait_ms.max(self.take_claim_back(partition, id, end));
        }
        if more {
            self.claims.sessions.ended.entry(partition).or_default().insert(session, end);
        } else if end.wait_ms > 0 {
            // On the monotonic clock: a jump of the wall clock does not prolong it.
            let until_us = self.after_ms(end.wait_ms);
            self.claims.sessions.unconfirmed.entry(partition).or_default().insert(session, (end.how, until_us));
        }
    }

    /// Time after a grant by which its client has confirmed it, or the broker has given it back. A leader knows only its own part of an
    /// answer, so it allows for the largest one.
    pub(crate) fn confirmed_ms(&self) -> u64 {
        self.config.request_timeout_ms + CONFIRM_MS_MAX
    }

    /// Whether a grant waits for its commit, so that no answer has named it. A renewal under way does not matter for that.
    pub(crate) fn is_unreported(&self, partition: PartitionId, grant: &(TaskId, Token)) -> bool {
        let consensus = &self.partitions[&partition].consensus;
        let Some(leading) = consensus.leading() else { return false };
        let told = Viewstamp { epoch: leading.epoch, length: consensus.commit.min(leading.grant_index) };
        let is_of =
            |waiting: &Waiting| matches!(waiting, Waiting::Grant { fresh: true, items, .. } if items.contains(grant));
        let renewed = consensus.claim_entry(&grant.0).map(|entry| entry.renewed);
        renewed > Some(told) && leading.waiting.iter().any(|(_, waiting)| is_of(waiting))
    }

    /// Gives a claim back whose session has ended: as a failed attempt, unless the worker ended the session itself. A claim that was
    /// made a moment ago stays for the returned number of milliseconds: its client may have ended before the answer came, and then the
    /// broker voids the claim, which was no attempt.
    fn take_claim_back(&mut self, partition: PartitionId, id: TaskId, end: Ended) -> u64 {
        let replica = &self.partitions[&partition];
        let Some(entry) = replica.consensus.claim_entry(&id).filter(|entry| entry.state == ClaimState::Held) else {
            return 0;
        };
        if replica.store.ended(&id) {
            return 0;
        }
        if replica.consensus.table.ledger.is_locked(&id) {
            return LOCKED_MS;
        }
        let (token, attempt) = (entry.token, entry.attempt);
        if self.is_unreported(partition, &(id, token)) {
            // No answer will name it.
            self.void(partition, vec![(id, token)]);
            return 0;
        }
        let failed = end.how != Settled::Done;
        let confirmed_ms = self.confirmed_ms();
        let wait_ms = entry.granted_ms.saturating_add(confirmed_ms).saturating_sub(self.now.wall_ms);
        if failed && wait_ms > 0 && !end.all_confirmed {
            return wait_ms.min(confirmed_ms);
        }
        let attempts_max = self.attempts_max(partition, &id);
        if failed && attempts_max > 0 && attempt >= attempts_max {
            let end = Some(claim_end(ClaimOutcome::Expired, self.now.wall_ms, SESSION_ENDED));
            self.kill(partition, (id, token), crate::claims::calls::SESSION_RAN_OUT, end);
            return 0;
        }
        let pause_ms = if failed { self.draw_backoff(partition, &id, attempt) } else { None };
        let at_ms = self.now.wall_ms;
        let not_before_ms = pause_ms.map_or(0, |pause_ms| at_ms.saturating_add(pause_ms));
        let outcome = if failed { ClaimOutcome::Expired } else { ClaimOutcome::Released };
        let end = Some(claim_end(outcome, at_ms, SESSION_ENDED));
        self.append(partition, Op::Release { id, token, not_before_ms, at_ms, failed, end }, None);
        0
    }
}
