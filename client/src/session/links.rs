//! The endpoints of a session and which of them is in use.

use super::ensure;

/// State of the connection to one endpoint.
#[derive(Debug, Clone, Copy)]
pub(super) enum Link {
    /// None.
    Idle,
    /// Being made.
    Connecting { until_us: u64 },
    /// Made, and `hello` is under way.
    Greeting { number: u64, until_us: u64 },
    /// Made, but the node is not ready for anything but early calls.
    Refused,
    /// Made and welcomed.
    Ready,
}

#[derive(Debug)]
pub(super) struct Endpoint {
    pub link: Link,
    /// In a row.
    pub failures: u32,
    /// Not to be tried before this.
    pub retry_us: u64,
    /// Answers received, over all connections.
    pub received: u64,
}

impl Endpoint {
    /// Whether requests can be on their way on it.
    pub fn is_open(&self) -> bool {
        matches!(self.link, Link::Greeting { .. } | Link::Refused | Link::Ready)
    }
}

#[derive(Debug)]
pub(super) struct Links {
    endpoints: Vec<Endpoint>,
    pub active: usize,
}

impl Links {
    pub fn new(endpoints: usize, active: usize) -> Self {
        assert!(active < endpoints);
        let idle = || Endpoint { link: Link::Idle, failures: 0, retry_us: 0, received: 0 };
        Links { endpoints: (0..endpoints).map(|_| idle()).collect(), active }
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

    /// Makes the best endpoint active: another that is connected, else another that has not failed, else, where
    /// `stay` allows it, the present one if it is connected, else the one that may be tried soonest. Where that
    /// leaves several: the one that failed least, then the next in turn.
    pub fn rotate(&mut self, now_us: u64, stay: bool) {
        let count = self.endpoints.len();
        let last = if stay || count == 1 { count } else { count - 1 };
        let key = |index: &usize| {
            let endpoint = &self.endpoints[*index];
            let class = match endpoint.link {
                Link::Ready if *index == self.active => 2,
                Link::Ready => 0,
                _ if endpoint.failures == 0 && *index != self.active => 1,
                _ => 3,
            };
            (class, if class < 3 { 0 } else { endpoint.retry_us.max(now_us) }, endpoint.failures)
        };
        let candidates = (1..=last).map(|distance| (self.active + distance) % count);
        self.active = candidates.min_by_key(key).expect("there is at least one endpoint");
    }

    /// Leaves the active endpoint, which answers but sees little, for another that is connected or may be tried now: the one
    /// that failed least, then the next in turn. Stays where it is if there is none.
    pub fn leave(&mut self, now_us: u64) {
        let count = self.endpoints.len();
        let others = (1..count).map(|distance| (self.active + distance) % count);
        let key = |index: &usize| {
            let endpoint = &self.endpoints[*index];
            (!matches!(endpoint.link, Link::Ready), endpoint.failures)
        };
        let may_be_tried = |index: &usize| {
            let endpoint = &self.endpoints[*index];
            matches!(endpoint.link, Link::Ready) || endpoint.retry_us <= now_us
        };
        if let Some(other) = others.filter(may_be_tried).min_by_key(key) {
            self.active = other;
        }
    }

    /// When something must happen here: `queued` and `queued_early` tell whether calls wait for a connection.
    pub fn next_wake(&self, queued: bool, queued_early: bool) -> Option<u64> {
        let expiry = self.endpoints.iter().filter_map(|endpoint| match endpoint.link {
            Link::Connecting { until_us } | Link::Greeting { until_us, .. } => Some(until_us),
            Link::Idle | Link::Refused | Link::Ready => None,
        });
        let active = &self.endpoints[self.active];
        let retry = match active.link {
            Link::Idle => (queued || queued_early).then_some(active.retry_us),
            Link::Refused => queued.then_some(active.retry_us),
            Link::Connecting { .. } | Link::Greeting { .. } | Link::Ready => None,
        };
        expiry.chain(retry).min()
    }

    pub fn check(&self) -> Result<(), String> {
        ensure(self.active < self.endpoints.len(), || "the active endpoint does not exist".into())
    }
}
