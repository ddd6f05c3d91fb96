//! Id allocation: each client session gets a minter field of its own, and a time that never goes back, even if the wall clock
//! does.

use crate::Node;
use crate::event::ClientId;
use norn_model::config::mutant;
use norn_model::limits::{ID_AHEAD_MS_MAX, RESERVED_SESSIONS, RESERVED_TIME_MS};
use norn_model::record::Record;
use norn_wire::error::{Error, ErrorCode};
use norn_wire::response::Welcome;
use norn_wire::{Response, TaskId};

/// Bits of the minter field that number sessions; the rest is the node's member number.
const SESSION_BITS: u32 = 24;

/// Most session numbers that are skipped at once.
const SESSIONS_JUMPED_MAX: u64 = 1 << 20;

/// Ids that were lent. The high-water marks are on disk before any client receives time or sessions up to them.
#[derive(Debug, Default)]
pub struct IdAllocator {
    time_ms: u64,
    sessions: u64,
    time_high_water_ms: u64,
    sessions_high_water: u64,
    /// Whether this start has skipped session numbers.
    jumped: bool,
}

impl IdAllocator {
    /// Restores the marks after a restart: everything up to them counts as lent.
    pub fn recover(&mut self, time_ms: u64, sessions: u64) {
        *self = IdAllocator {
            time_ms,
            sessions,
            time_high_water_ms: time_ms,
            sessions_high_water: sessions,
            jumped: false,
        };
    }

    /// Returns the marks that must be on disk; none if nothing was ever lent.
    pub fn high_water_mark(&self) -> Option<Record> {
        let IdAllocator { time_high_water_ms, sessions_high_water, .. } = *self;
        (sessions_high_water > 0)
            .then_some(Record::HighWaterMark { time_ms: time_high_water_ms, sessions: sessions_high_water })
    }

    /// Whether the marks already cover these values.
    pub fn covers(&self, time_ms: u64, sessions: u64) -> bool {
        time_ms <= self.time_high_water_ms && sessions <= self.sessions_high_water
    }
}

impl Node {
    pub(crate) fn hello(&mut self, client: ClientId, number: u64, bare: bool) {
        let genesis = self.genesis.clone().expect("asked only in a cluster");
        let Some((place, _)) = self.member(self.me) else {
            let message = "this node does not know yet which member it is; ask another node";
            self.outbox.reply(client, number, Response::Error(Error::unavailable(message)));
            return;
        };
        let (node, cluster) = (self.me, genesis.cluster);
        if let Some(refusal) = self.refuse_allocation() {
            // Reads, claims and all other requests that bring their own ids do not wait for a clock.
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
        let (time_ms, sessions) = self.allocate();
        let minter = u64::from(place) << SESSION_BITS | sessions & ((1 << SESSION_BITS) - 1);
        // Lent time, and time that counts as lent, is ahead of the clock for a while after a restart or a step of the clock.
        let clock_ms = Some(self.now.wall_ms).filter(|clock_ms| *clock_ms != time_ms);
        let welcome = Welcome { node, cluster, time_ms, minter, refusal: None, clock_ms };
        self.outbox.reply_durable(client, number, Response::Welcome(welcome));
    }

    /// How long no ids are lent, because the lent ones are too far ahead of the clock. A clock that was ahead for a moment causes
    /// this: ids never go back, and nodes refuse ids that are [far ahead](ID_AHEAD_MS_MAX).
    pub(crate) fn ids_wait_ms(&self) -> u64 {
        self.id_allocator.time_ms.saturating_sub(self.now.wall_ms.saturating_add(ID_AHEAD_MS_MAX / 2))
    }

    /// Returns why no ids are lent now, if none are.
    fn refuse_allocation(&self) -> Option<Error> {
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

    /// Lends the time and a session number. Both are on disk before a client receives them.
    fn allocate(&mut self) -> (u64, u64) {
        let floor_ms = if mutant!(self.config, IdsGoBack) { 0 } else { self.id_allocator.time_ms };
        let time_ms = floor_ms.max(self.now.wall_ms);
        self.id_allocator.time_ms = time_ms;
        if !self.is_surely_latest() && !std::mem::replace(&mut self.id_allocator.jumped, true) {
            // An earlier image of the log does not know what was lent after it was taken, so numbers are skipped to avoid those.
            self.id_allocator.sessions += self.random.between(RESERVED_SESSIONS, SESSIONS_JUMPED_MAX);
        }
        self.id_allocator.sessions += 1;
        let IdAllocator { sessions, time_high_water_ms, sessions_high_water, .. } = self.id_allocator;
        if time_ms > time_high_water_ms || sessions > sessions_high_water {
            // A mark that time has not passed stays. Otherwise every restart would push it, and the time with it, further ahead.
            self.id_allocator.time_high_water_ms =
                if time_ms > time_high_water_ms { time_ms + RESERVED_TIME_MS } else { time_high_water_ms };
            self.id_allocator.sessions_high_water = sessions + RESERVED_SESSIONS;
            self.outbox.persist(Record::HighWaterMark {
                time_ms: self.id_allocator.time_high_water_ms,
                sessions: self.id_allocator.sessions_high_water,
            });
        }
        assert!(self.id_allocator.covers(time_ms, sessions), "more is lent than the marks in the log cover");
        (time_ms, sessions)
    }
}

impl Node {
    /// Returns why an id is refused for now, if it was minted too far in the future.
    pub(crate) fn refuse_future(&self, id: TaskId) -> Option<Error> {
        let wait_ms = id.time_ms().checked_sub(self.latest_id_ms()).filter(|wait_ms| *wait_ms > 0)?;
        let message = "the id was minted too far in the future; check the clocks, mint a new one";
        Some(Error::new(ErrorCode::IdFromFuture, message).about(id).after(wait_ms))
    }

    /// Adds to an error for a client when the id from the future will be accepted. Answers to other nodes omit that: older ones
    /// could not read them.
    pub(crate) fn date_refusal(&self, error: &mut Error) {
        if error.code == ErrorCode::IdFromFuture {
            error.after_ms = error.id.and_then(|id| self.refuse_future(id)).and_then(|refusal| refusal.after_ms);
        }
    }

    /// Latest time of an id that is accepted.
    pub(crate) fn latest_id_ms(&self) -> u64 {
        self.now.wall_ms.saturating_add(ID_AHEAD_MS_MAX)
    }
}

/// Whether an id is so old by this clock that nothing is enqueued under it or below any more.
pub(crate) fn is_old(id: &TaskId, forget_after_ms: u64, wall_ms: u64) -> bool {
    id.time_ms().saturating_add(forget_after_ms) <= wall_ms
}

/// Formats a length of time for people.
fn length(ms: u64) -> String {
    match ms.div_ceil(1_000) {
        seconds @ 0..600 => format!("{seconds} s"),
        seconds @ 600..36_000 => format!("{} min", seconds.div_ceil(60)),
        seconds => format!("{} h", seconds.div_ceil(3_600)),
    }
}
