//! The endpoints of a session, and which of them is active.

use super::ensure;
use super::pulse::Pulse;
use norn_wire::error::Error;

/// State of the connection to one endpoint.
#[derive(Debug, Clone, Copy)]
pub(super) enum Link {
    /// No connection.
    Idle,
    /// The connection is being made.
    Connecting { until_us: u64 },
    /// The connection is made, and the first `hello` is under way.
    Greeting { number: u64, sent_us: u64, until_us: u64 },
    /// The connection is made, but the node is ready for early calls only.
    Refused,
    /// The connection is made, and the node has welcomed the session.
    Ready {
        /// Last time when a claim found nothing there and the node could not look everywhere, or when the node failed a call
        /// repeatedly. `None` if a later claim fared better.
        blind_us: Option<u64>,
    },
}

/// Outcome of the last attempt at an endpoint that has not welcomed the session since.
#[derive(Debug)]
pub(super) enum Failure {
    /// No node was heard.
    Silent,
    /// A node was heard, and may serve at another attempt.
    Passing,
    /// A node was heard, and further attempts fail too until an operator changes something.
    Lasting(Error),
}

#[derive(Debug)]
pub(super) struct Endpoint {
    pub link: Link,
    /// Absent also if no attempt has ended since failures were last forgotten.
    pub failure: Option<Failure>,
    /// Consecutive failures.
    pub failures: u32,
    /// Earliest time of the next attempt.
    pub retry_us: u64,
    /// Answers received, over all connections.
    pub received: u64,
    /// Failure detector of the node.
    pub pulse: Pulse,
    /// Why the node did not lend ids when it was last asked for some.
    pub refusal: Option<Refusal>,
    pub asking: Asking,
}

/// Repeated requests for ids to a node that serves without lending any. Calls at this node do not wait for the answer.
#[derive(Debug, Default)]
pub(super) struct Asking {
    /// Number of the `hello` under way.
    pub number: Option<u64>,
    /// Time of the next request, even if this one is not answered.
    pub next_us: u64,
    /// Consecutive requests without a loan.
    pub vain: u32,
}

/// An answer to `hello` without a loan of ids.
#[derive(Debug)]
pub(super) struct Refusal {
    pub error: Error,
    /// Until when the node lends no ids, if it says so.
    pub until_us: Option<u64>,
}

impl Refusal {
    pub fn new(error: Error, now_us: u64) -> Self {
        let until_us = error.after_ms.map(|after_ms| now_us.saturating_add(after_ms.saturating_mul(1_000)));
        Refusal { error, until_us }
    }

    /// The error with its waiting time as of `now_us`.
    pub fn at(&self, now_us: u64) -> Error {
        let after_ms = self.until_us.map(|until_us| until_us.saturating_sub(now_us).div_ceil(1_000));
        Error { after_ms, ..self.error.clone() }
    }
}

impl Endpoint {
    /// Whether the connection can carry requests.
    pub fn is_open(&self) -> bool {
        matches!(self.link, Link::Greeting { .. } | Link::Refused | Link::Ready { .. })
    }

    pub fn is_ready(&self) -> bool {
        matches!(self.link, Link::Ready { .. })
    }

    /// Whether the endpoint is ready, lends ids and, as far as is known, sees every node that it needs.
    fn sees(&self) -> bool {
        matches!(self.link, Link::Ready { blind_us: None }) && self.refusal.is_none()
    }

    /// Whether the node has welcomed the session without lending ids.
    pub fn is_bare(&self) -> bool {
        self.is_ready() && self.refusal.is_some()
    }
}

#[derive(Debug)]
pub(super) struct Links {
    endpoints: Vec<Endpoint>,
    pub active: usize,
    /// Earliest time of the next search; set after a failed one.
    search_us: u64,
    /// Earliest time of another attempt beside that at the active endpoint: the end of the last attempt's head start.
    race_us: u64,
}

impl Links {
    pub fn new(endpoints: usize, active: usize) -> Self {
        assert!(active < endpoints);
        let idle = || Endpoint {
            link: Link::Idle,
            failure: None,
            failures: 0,
            retry_us: 0,
            received: 0,
            pulse: Pulse::default(),
            refusal: None,
            asking: Asking::default(),
        };
        Links { endpoints: (0..endpoints).map(|_| idle()).collect(), active, search_us: 0, race_us: 0 }
    }

    pub fn len(&self) -> usize {
        self.endpoints.len()
    }

    pub fn get(&self, endpoint: usize) -> &Endpoint {
        &self.endpoints[endpoint]
    }

    pub fn get_mut(&mut self, endpoint: usize) -> &mut Endpoint {
        &mut self.endpoints[endpoint]
    }

    /// Makes the best endpoint active: another that is ready, else another that has not failed, else, if `stay` allows it, the present
    /// one if it is ready, else the one with the earliest retry time. Ties go to the endpoint with the fewest failures, then to the
    /// next in turn.
    pub fn rotate(&mut self, now_us: u64, stay: bool) {
        let count = self.endpoints.len();
        let last = if stay || count == 1 { count } else { count - 1 };
        let key = |index: &usize| {
            let endpoint = &self.endpoints[*index];
            let class = match endpoint.link {
                Link::Ready { .. } if *index == self.active => 2,
                Link::Ready { .. } => 0,
                _ if endpoint.failures == 0 && *index != self.active => 1,
                _ => 3,
            };
            (class, if class < 3 { 0 } else { endpoint.retry_us.max(now_us) }, endpoint.failures)
        };
        let candidates = (1..=last).map(|distance| (self.active + distance) % count);
        self.active = candidates.min_by_key(key).expect("there is at least one endpoint");
    }

    /// Records an attempt at an endpoint.
    pub fn attempted(&mut self, endpoint: usize, link: Link, head_start_until_us: u64) {
        self.get_mut(endpoint).link = link;
        self.race_us = head_start_until_us;
    }

    /// The endpoint to try beside the active one, which has not answered yet, and the earliest time for it: the one with the earliest retry
    /// time, then the next in turn. A node that was not ready is tried again only if calls wait for more than a connection (`queued`).
    pub fn next_race(&self, queued: bool) -> Option<(u64, usize)> {
        if !matches!(self.get(self.active).link, Link::Connecting { .. } | Link::Greeting { .. }) {
            return None;
        }
        let candidates = self.others().filter(|index| match self.get(*index).link {
            Link::Idle => true,
            Link::Refused => queued,
            Link::Connecting { .. } | Link::Greeting { .. } | Link::Ready { .. } => false,
        });
        let next = candidates.min_by_key(|index| self.get(*index).retry_us)?;
        Some((self.get(next).retry_us.max(self.race_us), next))
    }

    /// Endpoints other than the active one with an unanswered attempt.
    pub fn rivals(&self) -> Vec<usize> {
        let is_tried = |index: &usize| matches!(self.get(*index).link, Link::Connecting { .. } | Link::Greeting { .. });
        self.others().filter(is_tried).collect()
    }

    pub fn any_open(&self) -> bool {
        self.endpoints.iter().any(Endpoint::is_open)
    }

    /// Forgets the outcomes of attempts.
    pub fn forget_failures(&mut self) {
        self.endpoints.iter_mut().for_each(|endpoint| endpoint.failure = None);
    }

    /// Why no endpoint will serve before an operator changes something: each has failed, and those where a node was heard will fail
    /// again. A reason common to several is included once.
    pub fn hopeless(&self) -> Option<Error> {
        let mut hopeless: Option<Error> = None;
        for endpoint in &self.endpoints {
            let error = match endpoint.failure.as_ref()? {
                Failure::Silent => continue,
                Failure::Passing => return None,
                Failure::Lasting(error) => error,
            };
            match &mut hopeless {
                None => hopeless = Some(error.clone()),
                Some(first) if first.message.contains(&error.message) => {}
                Some(first) => first.message = format!("{}; {}", first.message, error.message),
            }
        }
        hopeless
    }

    /// Records that a node was heard at an endpoint: an earlier silence no longer counts.
    pub fn heard(&mut self, endpoint: usize) {
        let failure = &mut self.get_mut(endpoint).failure;
        if matches!(failure, Some(Failure::Silent)) {
            *failure = Some(Failure::Passing);
        }
    }

    /// Records a welcome. The endpoint becomes active unless the active one is ready and sees enough: even a late one is better than
    /// waiting for another.
    pub fn welcomed(&mut self, endpoint: usize) {
        let state = self.get_mut(endpoint);
        state.link = Link::Ready { blind_us: None };
        state.failure = None;
        state.failures = 0;
        state.refusal = None;
        state.asking.vain = 0;
        if !self.get(self.active).sees() {
            self.active = endpoint;
        }
    }

    /// Records a welcome without ids. The endpoint serves calls that need none until there is a better one.
    pub fn welcomed_bare(&mut self, endpoint: usize, refusal: Refusal) {
        let state = self.get_mut(endpoint);
        state.link = Link::Ready { blind_us: None };
        state.failure = None;
        state.failures = 0;
        state.refusal = Some(refusal);
        if !self.get(self.active).is_ready() {
            self.active = endpoint;
        }
    }

    /// Records that an endpoint that served without ids now lends some.
    pub fn lends(&mut self, endpoint: usize) {
        let state = self.get_mut(endpoint);
        state.refusal = None;
        state.asking.vain = 0;
        let (active, lender) = (self.get(self.active), self.get(endpoint));
        if !active.is_ready() || !active.sees() && lender.sees() {
            self.active = endpoint;
        }
    }

    /// Records the end of a connection. A refusal to lend ids without a time limit is forgotten, as it may be over when the node is back.
    pub fn closed(&mut self, endpoint: usize) {
        let state = self.get_mut(endpoint);
        state.link = Link::Idle;
        state.asking.number = None;
        state.pulse.gone();
        state.refusal = state.refusal.take().filter(|refusal| refusal.until_us.is_some());
    }

    /// The valid refusals to lend ids, the one that ends first at the front.
    pub fn refusals(&self, now_us: u64) -> Vec<&Refusal> {
        let holds = |refusal: &&Refusal| refusal.until_us.is_none_or(|until_us| until_us > now_us);
        let refusals = self.endpoints.iter().filter_map(|endpoint| endpoint.refusal.as_ref());
        let mut refusals: Vec<&Refusal> = refusals.filter(holds).collect();
        refusals.sort_by_key(|refusal| refusal.until_us.unwrap_or(u64::MAX));
        refusals
    }

    /// Until when no endpoint lends ids, if each has said so.
    pub fn bare_until_us(&self) -> Option<u64> {
        let until = |endpoint: &Endpoint| endpoint.refusal.as_ref().filter(|_| endpoint.is_bare())?.until_us;
        self.endpoints.iter().map(until).min().flatten()
    }

    /// Discards all loans: each endpoint that serves is asked for ids as soon as some are needed.
    pub fn ask_all(&mut self, now_us: u64) {
        self.endpoints.iter_mut().filter(|endpoint| endpoint.is_ready()).for_each(|it| it.asking.next_us = now_us);
    }

    /// Endpoints to ask for ids while there are none, with the time of the next request.
    pub fn lenders(&self) -> impl Iterator<Item = (u64, usize)> {
        let endpoints = self.endpoints.iter().enumerate();
        endpoints.filter(|(_, endpoint)| endpoint.is_ready()).map(|(index, endpoint)| (endpoint.asking.next_us, index))
    }

    /// Records the failure of a connection or of an attempt, which may be repeated from `retry_us` on.
    pub fn failed(&mut self, now_us: u64, endpoint: usize, failure: Failure, retry_us: u64) {
        let state = self.get_mut(endpoint);
        state.failures = state.failures.saturating_add(1);
        state.failure = Some(failure);
        state.retry_us = retry_us;
        // A failed attempt needs no head start any more.
        self.race_us = now_us;
        if endpoint == self.active {
            self.rotate(now_us, true);
        } else {
            self.search_us = retry_us;
        }
    }

    /// Records the result of a claim, or of a call that failed: `blind` if the claim found nothing and the node could not look
    /// everywhere, or if the call failed again. If the active endpoint is blind, another ready one becomes active: preferably one that
    /// is not blind, else the one that was found blind the longest ago. If no other is ready, the active one stays.
    pub fn found(&mut self, now_us: u64, endpoint: usize, blind: bool) {
        let Link::Ready { blind_us } = &mut self.get_mut(endpoint).link else {
            return;
        };
        *blind_us = blind.then_some(now_us);
        if blind && endpoint == self.active {
            let ready = self.others().filter_map(|index| match self.get(index).link {
                Link::Ready { blind_us } => Some((blind_us, index)),
                Link::Idle | Link::Connecting { .. } | Link::Greeting { .. } | Link::Refused => None,
            });
            if let Some((_, other)) = ready.min_by_key(|(blind_us, _)| *blind_us) {
                self.active = other;
            }
        }
    }

    /// The endpoint to try next while the active one serves but is blind, and the earliest time for it: the one with the earliest retry
    /// time, then the next in turn. `None` while another attempt is under way.
    pub fn next_search(&self) -> Option<(u64, usize)> {
        let active = self.get(self.active);
        let under_way = |link| matches!(link, Link::Connecting { .. } | Link::Greeting { .. });
        if !active.is_ready() || active.sees() || self.endpoints.iter().any(|endpoint| under_way(endpoint.link)) {
            return None;
        }
        let candidates = self.others().filter(|index| !self.get(*index).is_ready());
        let next = candidates.min_by_key(|index| self.get(*index).retry_us)?;
        Some((self.get(next).retry_us.max(self.search_us), next))
    }

    /// All endpoints except the active one, the next in turn first.
    fn others(&self) -> impl Iterator<Item = usize> {
        let (active, count) = (self.active, self.endpoints.len());
        (1..count).map(move |distance| (active + distance) % count)
    }

    /// Time of the next timer here. `queued` and `queued_early` say whether calls wait for a connection, `seeking` whether calls that
    /// may fare better elsewhere are under way, `lacking` whether calls wait for ids.
    pub fn next_wake(&self, queued: bool, queued_early: bool, seeking: bool, lacking: bool) -> Option<u64> {
        let expiry = self.endpoints.iter().filter_map(|endpoint| match endpoint.link {
            Link::Connecting { until_us } | Link::Greeting { until_us, .. } => Some(until_us),
            Link::Idle | Link::Refused | Link::Ready { .. } => None,
        });
        let active = &self.endpoints[self.active];
        let retry = match active.link {
            Link::Idle => (queued || queued_early).then_some(active.retry_us),
            Link::Refused => queued.then_some(active.retry_us),
            Link::Connecting { .. } | Link::Greeting { .. } | Link::Ready { .. } => None,
        };
        let search = self.next_search().filter(|_| seeking || lacking).map(|(at_us, _)| at_us);
        let lenders = self.lenders().filter(|_| lacking).map(|(at_us, _)| at_us);
        let race = self.next_race(queued).filter(|_| queued || queued_early).map(|(at_us, _)| at_us);
        let pulse = self.endpoints.iter().filter_map(|endpoint| endpoint.pulse.due_us());
        expiry.chain(retry).chain(search).chain(lenders).chain(race).chain(pulse).min()
    }

    pub fn check(&self) -> Result<(), String> {
        ensure(self.active < self.endpoints.len(), || "the active endpoint does not exist".into())
    }
}
