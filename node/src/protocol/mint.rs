//! What a session needs to mint ids: a field of its own and a time that never goes back, even if the wall clock does.

use super::Node;
use super::event::ClientId;
use super::record::Record;
use crate::limits::{ID_AHEAD_MS_MAX, MARK_SESSIONS, MARK_TIME_MS};
use norn_client::wire::Response;
use norn_client::wire::error::Error;
use norn_client::wire::response::Welcome;

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
    pub(super) fn hello(&mut self, client: ClientId, number: u64) {
        let genesis = self.genesis.clone().expect("asked only in a cluster");
        let Some((place, _)) = self.member(self.me) else {
            let message = "this node does not know yet which member it is; ask another node";
            self.outbox.reply(client, number, Response::Error(Error::unavailable(message)));
            return;
        };
        if self.is_fenced() {
            let message = "this node's clock is wrong, so it lends no ids; ask another node, and set its clock";
            self.outbox.reply(client, number, Response::Error(Error::unavailable(message)));
            return;
        }
        let wall_ms = self.now.wall_ms;
        let time_ms = self.mint.time_ms.max(wall_ms);
        if time_ms > wall_ms + ID_AHEAD_MS_MAX / 2 {
            let message = "this node's clock is far behind the ids it has lent; ask another node, and check its clock";
            self.outbox.reply(client, number, Response::Error(Error::unavailable(message)));
            return;
        }
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
        let minter = u64::from(place) << SESSION_BITS | sessions & ((1 << SESSION_BITS) - 1);
        let welcome = Welcome { node: self.me, cluster: genesis.cluster, time_ms, minter };
        self.outbox.reply_durable(client, number, Response::Welcome(welcome));
    }
}
