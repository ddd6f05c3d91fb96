//! The gate: clients of the own node, for the requests of each principal.
//!
//! A call that waits for work, for an end or for an event goes through another session than short calls, so that thousands of waiting
//! calls do not use up the requests that a node lets a session have under way. Dropping the future of a call abandons it: a task that
//! it was granted goes back at once. So a caller that hangs up holds nothing.

use futures_util::future::join_all;
use norn_client::client::Client;
use norn_client::local::LocalNode;
use norn_wire::{Error, ErrorCode};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Longest time for which a call asks the node to wait. A caller that hangs up leaves a place at the node for so long, unless its call is
/// a claim, which its session takes back. A longer wait is made of several.
pub const WAIT_PIECE_MS: u64 = 15_000;
/// Longest time for which a request may wait.
const WAIT_LONGEST_MS: u64 = 3_600_000;
/// Waiting calls of one session. A node lets a session have a few more requests under way.
const WAITS_PER_SESSION: usize = 2_048;
/// Sessions for waiting calls of one principal.
const WAITING_SESSIONS_MAX: usize = 16;
/// Principals with sessions. That of the longest idle one without a call gives way.
const PRINCIPALS_MAX: usize = 256;

/// The time that a request wants to wait. `name` is its field or parameter.
pub fn wait_of(name: &str, wait_ms: u64) -> Result<Duration, Error> {
    if wait_ms > WAIT_LONGEST_MS {
        let why = format!(
            "{name} is {wait_ms}; a request waits for {WAIT_LONGEST_MS} at most, an hour: ask again to wait longer"
        );
        return Err(Error::invalid(why));
    }
    Ok(Duration::from_millis(wait_ms))
}

/// Makes clients of the own node.
#[derive(Debug)]
pub struct Gate {
    node: LocalNode,
    call_timeout: Duration,
    lines: Mutex<Lines>,
}

/// Sessions by principal.
#[derive(Debug, Default)]
struct Lines {
    by_principal: BTreeMap<Arc<str>, Line>,
    /// Counts uses, so that the longest idle line is known.
    uses: u64,
    closed: bool,
}

/// Sessions of one principal.
#[derive(Debug)]
struct Line {
    short: Client,
    /// Calls that use the line.
    users: Arc<()>,
    waiting: Vec<(Client, Arc<Semaphore>)>,
    used: u64,
}

/// A client for as long as a request lasts.
#[derive(Debug)]
pub struct Pass {
    client: Client,
    _user: Arc<()>,
    _wait: Option<OwnedSemaphorePermit>,
}

impl std::ops::Deref for Pass {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Gate {
    /// The gate to a node. A call has this timeout with all its retries, unless it names its own.
    pub fn new(node: LocalNode, call_timeout: Duration) -> Gate {
        Gate { node, call_timeout, lines: Mutex::default() }
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client for calls that are answered as soon as possible.
    pub fn short(&self, principal: &Arc<str>) -> Result<Pass, Error> {
        let mut lines = self.lines();
        let line = self.line(&mut lines, principal)?;
        Ok(Pass { client: line.short.clone(), _user: Arc::clone(&line.users), _wait: None })
    }

    /// A client for one call that waits.
    pub fn waiting(&self, principal: &Arc<str>) -> Result<Pass, Error> {
        let mut lines = self.lines();
        let line = self.line(&mut lines, principal)?;
        let user = Arc::clone(&line.users);
        for (client, places) in &line.waiting {
            if let Ok(wait) = Arc::clone(places).try_acquire_owned() {
                return Ok(Pass { client: client.clone(), _user: user, _wait: Some(wait) });
            }
        }
        if line.waiting.len() >= WAITING_SESSIONS_MAX {
            return Err(Error::new(
                ErrorCode::Overloaded,
                "too many calls wait at this node; try again later, or at another",
            ));
        }
        let (client, places) = (self.client(principal), Arc::new(Semaphore::new(WAITS_PER_SESSION)));
        let wait = Arc::clone(&places).try_acquire_owned().ok();
        line.waiting.push((client.clone(), places));
        Ok(Pass { client, _user: user, _wait: wait })
    }

    fn client(&self, principal: &Arc<str>) -> Client {
        let node = self.node.on_behalf_of(Arc::clone(principal));
        Client::local(node, format!("http {principal}"), self.call_timeout)
    }

    /// The sessions of a principal; makes room for them if they are new.
    fn line<'a>(&self, lines: &'a mut Lines, principal: &Arc<str>) -> Result<&'a mut Line, Error> {
        if lines.closed {
            return Err(Error::unavailable("the node is stopping; use another"));
        }
        if !lines.by_principal.contains_key(principal) && lines.by_principal.len() >= PRINCIPALS_MAX {
            let idle = lines.by_principal.iter().filter(|(_, line)| Arc::strong_count(&line.users) == 1);
            let oldest = idle.min_by_key(|(_, line)| line.used).map(|(name, _)| Arc::clone(name));
            let Some(oldest) = oldest else {
                return Err(Error::new(
                    ErrorCode::Overloaded,
                    "too many principals call this node at once; try again later",
                ));
            };
            lines.by_principal.remove(&oldest);
        }
        lines.uses += 1;
        let line = lines.by_principal.entry(Arc::clone(principal)).or_insert_with(|| Line {
            short: self.client(principal),
            users: Arc::default(),
            waiting: Vec::new(),
            used: 0,
        });
        line.used = lines.uses;
        Ok(line)
    }

    /// Ends all sessions, and refuses new ones. Tasks that were granted to no caller go back.
    pub async fn close(&self) {
        let lines = {
            let mut lines = self.lines();
            lines.closed = true;
            std::mem::take(&mut lines.by_principal)
        };
        let clients = lines.into_values().flat_map(|line| {
            let waiting = line.waiting.into_iter().map(|(client, _)| client);
            waiting.chain([line.short]).collect::<Vec<_>>()
        });
        join_all(clients.map(|client| async move { client.close().await })).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use norn_client::local::local_node;

    fn gate() -> Gate {
        Gate::new(local_node(2).0, Duration::from_secs(1))
    }

    #[tokio::test]
    async fn waiting_calls_open_a_session_when_the_others_are_full_and_are_refused_at_the_limit() {
        let gate = gate();
        let name: Arc<str> = "ops".into();
        let mut passes = Vec::new();
        for _ in 0..WAITS_PER_SESSION * WAITING_SESSIONS_MAX {
            passes.push(gate.waiting(&name).unwrap());
        }
        assert_eq!(gate.waiting(&name).unwrap_err().code, ErrorCode::Overloaded);
        assert!(gate.short(&name).is_ok(), "short calls go on");
        passes.pop();
        assert!(gate.waiting(&name).is_ok(), "a place is free again");
    }

    #[tokio::test]
    async fn the_longest_idle_principal_gives_way_and_one_with_a_call_does_not() {
        let gate = gate();
        let held = gate.short(&"held".into()).unwrap();
        for number in 1..PRINCIPALS_MAX {
            gate.short(&format!("p{number}").into()).unwrap();
        }
        gate.short(&"one more".into()).unwrap();
        let lines = gate.lines();
        assert_eq!(lines.by_principal.len(), PRINCIPALS_MAX);
        assert!(lines.by_principal.contains_key("held") && !lines.by_principal.contains_key("p1"));
        drop((lines, held));
    }

    #[tokio::test]
    async fn a_closed_gate_refuses() {
        let gate = gate();
        let name: Arc<str> = "ops".into();
        gate.short(&name).unwrap();
        gate.close().await;
        assert_eq!(gate.short(&name).unwrap_err().code, ErrorCode::Unavailable);
    }
}
