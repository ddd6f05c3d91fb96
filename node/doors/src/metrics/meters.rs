//! What the doors count of themselves.

use norn_client::times::{REQUEST_US, Times, TimesAt};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Outcomes of requests.
pub const OUTCOMES: [&str; 6] = ["ok", "refused", "denied", "overloaded", "unavailable", "unknown"];
/// Verb of requests that no route takes.
const NO_VERB: &str = "other";
/// Doors by the first segment of their routes; all other routes are of the door `http`.
const DOORS: [(&str, &str); 6] = [
    ("/livez", "health"),
    ("/readyz", "health"),
    ("/startupz", "health"),
    ("/metrics", "metrics"),
    ("/taskstore", "taskstore"),
    ("/skuld", "skuld"),
];

/// Why a connection is turned away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turned {
    /// There are too many.
    TooMany,
    /// Plain text from an address that is no proxy's.
    Plain,
    /// TLS failed, or took too long.
    Handshake,
}

impl Turned {
    /// All reasons.
    pub const ALL: [Turned; 3] = [Turned::TooMany, Turned::Plain, Turned::Handshake];

    /// Name in the label.
    pub fn name(self) -> &'static str {
        match self {
            Turned::TooMany => "too_many",
            Turned::Plain => "plain",
            Turned::Handshake => "handshake",
        }
    }
}

/// A number of things that exist now.
#[derive(Debug, Clone, Default)]
pub struct Level(Arc<AtomicU64>);

/// One of them.
#[derive(Debug)]
pub struct Present(Arc<AtomicU64>);

impl Level {
    /// Counts one for as long as the guard lives.
    pub fn enter(&self) -> Present {
        self.0.fetch_add(1, Ordering::Relaxed);
        Present(Arc::clone(&self.0))
    }

    /// How many there are.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Bytes of connections.
#[derive(Debug, Default)]
pub struct Traffic {
    received: AtomicU64,
    sent: AtomicU64,
}

impl Traffic {
    /// Counts bytes that came.
    pub fn receive(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts bytes that went.
    pub fn send(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Bytes that came, and bytes that went.
    pub fn get(&self) -> (u64, u64) {
        (self.received.load(Ordering::Relaxed), self.sent.load(Ordering::Relaxed))
    }
}

/// Labels of a request: door, verb, outcome.
pub type Labels = (&'static str, Arc<str>, &'static str);

/// Counts of the doors.
#[derive(Debug, Default)]
pub struct Meters {
    /// Names of operations by method and route. No other name of a verb is ever counted, so requests cannot make new ones.
    verbs: Mutex<BTreeMap<(String, String), Arc<str>>>,
    requests: Mutex<BTreeMap<Labels, Times>>,
    /// Calls that wait.
    pub long_polls: Level,
    /// Streams of events.
    pub sse_streams: Level,
    /// Open connections.
    pub connections: Level,
    accepted: AtomicU64,
    turned: [AtomicU64; Turned::ALL.len()],
    /// Bytes.
    pub traffic: Arc<Traffic>,
}

fn held<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Meters {
    /// Names the operation of a route.
    pub fn name_verb(&self, method: &str, route: &str, verb: &str) {
        held(&self.verbs).insert((method.to_owned(), route.to_owned()), verb.into());
    }

    /// Counts a connection that is served.
    pub fn accept(&self) {
        self.accepted.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a connection that is turned away.
    pub fn turn_away(&self, why: Turned) {
        if let Some(count) = self.turned.get(why as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Connections that were served.
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Connections that were turned away, by reason.
    pub fn turned_away(&self) -> impl Iterator<Item = (Turned, u64)> + '_ {
        Turned::ALL.into_iter().zip(&self.turned).map(|(why, count)| (why, count.load(Ordering::Relaxed)))
    }

    /// Counts a request that was answered. `route` is the pattern that it matched, `code` that of its problem.
    pub fn answered(&self, method: &str, route: Option<&str>, status: u16, code: Option<&str>, took: Duration) {
        let door = route.map_or("http", door_of);
        let verb = route.and_then(|route| held(&self.verbs).get(&(method.to_owned(), route.to_owned())).cloned());
        let labels = (door, verb.unwrap_or_else(|| NO_VERB.into()), outcome_of(status, code));
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        held(&self.requests).entry(labels).or_insert_with(|| Times::new(REQUEST_US)).add_us(us);
    }

    /// Times of requests by their labels.
    pub fn requests(&self) -> Vec<(Labels, TimesAt)> {
        held(&self.requests).iter().map(|(labels, times)| (labels.clone(), times.at())).collect()
    }
}

fn door_of(route: &str) -> &'static str {
    let is_below =
        |prefix: &str| route.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    DOORS.into_iter().find(|(prefix, _)| is_below(prefix)).map_or("http", |(_, door)| door)
}

/// The outcome of an answer, by the code of its problem or, without one, by its status.
pub fn outcome_of(status: u16, code: Option<&str>) -> &'static str {
    match (code, status) {
        (Some("denied" | "unauthenticated"), _) | (None, 401 | 403) => "denied",
        (Some("overloaded" | "no_space"), _) | (None, 429) => "overloaded",
        (Some("unavailable" | "not_ready" | "clock_ahead" | "stale"), _) | (_, 503) => "unavailable",
        // What is not there is refused like what is not allowed. Of any other failure the outcome is not known.
        (Some("unsupported"), _) | (None, 501) => "refused",
        (Some("unknown"), _) | (_, 500..) => "unknown",
        (Some(_), _) | (None, 400..) => "refused",
        (None, _) => "ok",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_an_outcome() {
        let of = |code| outcome_of(400, Some(code));
        assert_eq!(["invalid", "superseded", "no_route", "too_large"].map(of), ["refused"; 4]);
        assert_eq!(["denied", "unauthenticated"].map(of), ["denied"; 2]);
        assert_eq!(["overloaded", "no_space"].map(of), ["overloaded"; 2]);
        assert_eq!(["unavailable", "not_ready", "clock_ahead", "stale"].map(of), ["unavailable"; 4]);
        assert_eq!(of("unknown"), "unknown");
        let by_status = [200, 201, 404, 403, 429, 501, 503].map(|status| outcome_of(status, None));
        assert_eq!(by_status, ["ok", "ok", "refused", "denied", "overloaded", "refused", "unavailable"]);
        assert_eq!([500, 502, 504].map(|status| outcome_of(status, None)), ["unknown"; 3]);
        assert_eq!([outcome_of(500, Some("internal")), outcome_of(503, Some("x"))], ["unknown", "unavailable"]);
        assert_eq!(outcome_of(501, Some("unsupported")), "refused");
    }

    #[test]
    fn what_strangers_ask_for_makes_no_new_labels() {
        let meters = Meters::default();
        meters.name_verb("GET", "/v1/tasks/{id}", "get_task");
        for number in 0..1_000 {
            meters.answered("GET", None, 404, Some("no_route"), Duration::from_millis(number));
            meters.answered(&format!("M{number}"), Some("/v1/tasks/{id}"), 405, Some("method"), Duration::ZERO);
            meters.answered("GET", Some("/v1/tasks/{id}"), 200, None, Duration::ZERO);
        }
        let requests = meters.requests();
        let labels: Vec<_> = requests.iter().map(|((door, verb, outcome), _)| (*door, &**verb, *outcome)).collect();
        assert_eq!(labels, [("http", "get_task", "ok"), ("http", "other", "refused")]);
        assert_eq!(requests.iter().map(|(_, times)| times.count()).collect::<Vec<_>>(), [1_000, 2_000]);
    }

    #[test]
    fn routes_belong_to_their_door() {
        let doors = ["/metrics", "/readyz", "/v1/tasks", "/skuld/claim", "/skulduggery"].map(door_of);
        assert_eq!(doors, ["metrics", "health", "http", "skuld", "http"]);
    }
}
