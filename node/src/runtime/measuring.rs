//! Measures of the node for its doors. They are made between events, a piece in each turn of the driver, so that a node with many queues
//! serves its clients meanwhile. All that ask at a time get the same.

use norn_doors::metrics::measures::{Measures, PeerClock, QueueLine};
use norn_doors::metrics::times::TimesAt;
use norn_engine::{Measures as Raw, Node, QueueMeasures, Spread};
use norn_model::limits::SPREAD_MS;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Queues of partitions that are measured before the clock is looked at. The work for one is bounded.
const QUEUES_AT_ONCE: usize = 32;
/// Time for measuring in one turn. Events wait for so long.
const TURN_TIME: Duration = Duration::from_millis(1);

/// Where to send measures.
pub type Asker = oneshot::Sender<Arc<Measures>>;

/// Measures under way.
#[derive(Debug, Default)]
pub(in crate::runtime) struct Measuring {
    askers: Vec<Asker>,
    raw: Option<Raw>,
}

impl Measuring {
    /// Adds one that waits for measures. Measures that are under way are for it, too: they have not been told yet.
    pub fn ask(&mut self, asker: Asker) {
        // Those that gave up make room, so that as many wait as requests are under way.
        self.askers.retain(|asker| !asker.is_closed());
        self.askers.push(asker);
        self.raw.get_or_insert_default();
    }

    /// Whether measures are under way.
    pub fn is_under_way(&self) -> bool {
        self.raw.is_some()
    }

    /// Measures the next piece, and tells those that wait once all is measured.
    pub fn advance(&mut self, node: &mut Node) {
        let Some(raw) = &mut self.raw else { return };
        let begin = Instant::now();
        while !node.measure(raw, QUEUES_AT_ONCE) {
            if begin.elapsed() >= TURN_TIME {
                return;
            }
        }
        let measures = Arc::new(told(self.raw.take().unwrap_or_default()));
        for asker in self.askers.drain(..) {
            // One that has gone needs no answer.
            let _ = asker.send(Arc::clone(&measures));
        }
    }
}

fn times(spread: &Spread) -> TimesAt {
    TimesAt::of_ms(&SPREAD_MS, &spread.counts, spread.sum_ms)
}

fn line(name: String, queue: &QueueMeasures, now_ms: u64) -> QueueLine {
    let QueueMeasures { ready, claimed, delayed, blocked, dead, ready_since_ms, tally } = queue;
    QueueLine {
        name,
        place: tally.place,
        states: [*ready, *claimed, *delayed, *blocked, *dead],
        oldest_ready_ms: ready_since_ms.map(|since_ms| now_ms.saturating_sub(since_ms)),
        counts: tally.counts,
        wait: times(&tally.wait),
        run: times(&tally.run),
    }
}

fn told(raw: Raw) -> Measures {
    let named = raw.queues.iter().map(|(name, queue)| line(name.as_str().to_owned(), queue, raw.now_ms));
    let others = std::iter::once(line(String::new(), &raw.others, raw.now_ms));
    let clock = |(peer, ahead_us, error_us): (String, i64, u64)| PeerClock { peer, ahead_us, error_us };
    Measures {
        queues: named.chain(others).collect(),
        partitions_held: raw.held.into(),
        partitions_led: raw.led.into(),
        partitions_without_leader: raw.without_leader.into(),
        members: raw.members.into(),
        members_alive: raw.members_alive.into(),
        clock_fenced: raw.clock_fenced,
        clocks: raw.clocks.into_iter().map(clock).collect(),
        counters: raw.counters,
    }
}

#[cfg(test)]
mod tests {
    use norn_doors::metrics::measures::{COUNTS, STATES};
    use norn_engine::Counted;

    /// Goal: counts and states reach the metrics under their own names, as both sides tell them by their places.
    #[test]
    fn counts_stand_under_their_names() {
        let of = |what: Counted| COUNTS[what as usize];
        assert_eq!(Counted::ALL.map(of), COUNTS);
        assert_eq!(of(Counted::GivenBack), "norn_claims_given_back");
        assert_eq!(STATES, ["ready", "claimed", "delayed", "blocked", "dead"]);
    }
}
