//! What a session needs to mint ids: a field of its own and a time that never goes back, even if the wall clock does.

use super::Node;
use super::event::ClientId;
use super::record::Record;
use crate::config::mutant;
use crate::limits::{ID_AHEAD_MS_MAX, MARK_SESSIONS, MARK_TIME_MS};
use norn_wire::error::{Error, ErrorCode};
use norn_wire::response::Welcome;
use norn_wire::{Response, TaskId};

/// Bits of the minter field that number sessions; the rest is the node's place in the cluster.
const SESSION_BITS: u32 = 24;

/// Most sessions that are passed over at once.
const SESSIONS_JUMPED_MAX: u64 = 1 << 20;

/// What was lent. The marks are on disk before anything up to them is told to anybody.
#[derive(Debug, Default)]
pub struct Mint {
    time_ms: u64,
    sessions: u64,
    time_mark_ms: u64,
    sessions_mark: u64,
    /// In this start numbers were passed over.
    jumped: bool,
}

impl Mint {
    /// After a restart everything up to the marks counts as lent.
    pub fn recover(&mut self, time_ms: u64, sessions: u64) {
        *self = Mint { time_ms, sessions, time_mark_ms: time_ms, sessions_mark: sessions, jumped: false };
    }

    /// What must be on disk of it; none if nothing was ever lent.
    pub fn mark(&self) -> Option<Record> {
        let Mint { time_mark_ms, sessions_mark, .. } = *self;
        (sessions_mark > 0).then_some(Record::Mark { time_ms: time_mark_ms, sessions: sessions_mark })
    }

    /// Whether such a mark would raise none of those known.
    pub fn covers(&self, time_ms: u64, sessions: u64) -> bool {
        time_ms <= self.time_mark_ms && sessions <= self.sessions_mark
    }
}

impl Node {
    pub(super) fn hello(&mut self, client: ClientId, number: u64, bare: bool) {
        let genesis = self.genesis.clone().expect("asked only in a cluster");
        let Some((place, _)) = self.member(self.me) else {
            let message = "this node does not know yet which member it is; ask another node";
            self.outbox.reply(client, number, Response::Error(Error::unavailable(message)));
            return;
        };
        let (node, cluster) = (self.me, genesis.cluster);
        if let Some(refusal) = self.refuse_loan() {
            // Reads, claims and all else that names its ids do not wait for a clock.
            let response = if bare && !mutant!(self.config, HelloShutsOut) {
                let time_ms = if self.is_fenced() { 0 } else { self.now.wall_ms };
                Response::Welcome(Welcome {
                    node,
                    cluster,
                    time_ms,
                    minter: 0,
                    refusal: Some(Box::new(refusal)),
                    clock_ms: None,
                })
            } else {
                Response::Error(Error::unavailable(refusal.message))
            };
            return self.outbox.reply(client, number, response);
        }
        let (time_ms, sessions) = self.lend();
        let minter = u64::from(place) << SESSION_BITS | sessions & ((1 << SESSION_BITS) - 1);
        // What was lent, or counts as such, is ahead of the clock for a while after a restart or a step.
        let clock_ms = Some(self.now.wall_ms).filter(|clock_ms| *clock_ms != time_ms);
        let welcome = Welcome { node, cluster, time_ms, minter, refusal: None, clock_ms };
        self.outbox.reply_durable(client, number, Response::Welcome(welcome));
    }

    /// For how long no ids are lent, as those that were are ahead of the clock. A clock that was ahead for a moment does that:
    /// ids do not go back, and nodes take none that is [far ahead](ID_AHEAD_MS_MAX).
    pub(super) fn ids_wait_ms(&self) -> u64 {
        self.mint.time_ms.saturating_sub(self.now.wall_ms.saturating_add(ID_AHEAD_MS_MAX / 2))
    }

    /// Why no ids are lent now, if none are.
    fn refuse_loan(&self) -> Option<Error> {
        if self.is_fenced() {
            let message = "this node's clock is wrong, so it lends no ids; ask another node, and set its clock";
            return Some(Error::unavailable(message));
        }
        let wait_ms = self.ids_wait_ms();
        if wait_ms == 0 || mutant!(self.config, IdsGoBack) {
            return None;
        }
        let message = format!(
            "this node's clock was ahead, or is behind: it has lent later ids, and lends none for another {}; ask another node, and \
             check its clock",
            length(wait_ms)
        );
        Some(Error::new(ErrorCode::ClockAhead, message).after(wait_ms))
    }

    /// The time and the number of a session. Both are on disk before a client hears of them.
    fn lend(&mut self) -> (u64, u64) {
        let floor_ms = if mutant!(self.config, IdsGoBack) { 0 } else { self.mint.time_ms };
        let time_ms = floor_ms.max(self.now.wall_ms);
        self.mint.time_ms = time_ms;
        if !self.is_surely_latest() && !std::mem::replace(&mut self.mint.jumped, true) {
            // An earlier image of the log does not know what was lent after it was taken: this is somewhere else.
            self.mint.sessions += self.random.between(MARK_SESSIONS, SESSIONS_JUMPED_MAX);
        }
        self.mint.sessions += 1;
        let Mint { sessions, time_mark_ms, sessions_mark, .. } = self.mint;
        if time_ms > time_mark_ms || sessions > sessions_mark {
            // A mark that time has not passed stays: or every restart would push it, and with it time, further ahead.
            self.mint.time_mark_ms = if time_ms > time_mark_ms { time_ms + MARK_TIME_MS } else { time_mark_ms };
            self.mint.sessions_mark = sessions + MARK_SESSIONS;
            self.outbox.persist(Record::Mark { time_ms: self.mint.time_mark_ms, sessions: self.mint.sessions_mark });
        }
        (time_ms, sessions)
    }
}

impl Node {
    /// Why an id is not taken yet, if it is minted too far in the future.
    pub(super) fn refuse_future(&self, id: TaskId) -> Option<Error> {
        let wait_ms = id.time_ms().checked_sub(self.latest_id_ms()).filter(|wait_ms| *wait_ms > 0)?;
        let message = "the id was minted too far in the future; check the clocks, mint a new one";
        Some(Error::new(ErrorCode::IdFromFuture, message).about(id).after(wait_ms))
    }

    /// Says to a client when an id from the future is taken. Answers to other nodes do not say it: older ones could not read them.
    pub(super) fn date_refusal(&self, error: &mut Error) {
        if error.code == ErrorCode::IdFromFuture {
            error.after_ms = error.id.and_then(|id| self.refuse_future(id)).and_then(|refusal| refusal.after_ms);
        }
    }

    /// The latest time of an id that is taken.
    pub(super) fn latest_id_ms(&self) -> u64 {
        self.now.wall_ms.saturating_add(ID_AHEAD_MS_MAX)
    }
}

/// A length of time for people.
fn length(ms: u64) -> String {
    match ms.div_ceil(1_000) {
        seconds @ 0..600 => format!("{seconds} s"),
        seconds @ 600..36_000 => format!("{} min", seconds.div_ceil(60)),
        seconds => format!("{} h", seconds.div_ceil(3_600)),
    }
}
