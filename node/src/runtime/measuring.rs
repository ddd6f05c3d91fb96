//! Measures of the node, as its doors tell them to monitoring.

use norn_client::times::TimesAt;
use norn_doors::metrics::measures::{Measures, PeerClock, QueueLine};
use norn_engine::{Measures as Raw, QueueMeasures, Spread};
use norn_model::limits::SPREAD_MS;

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

/// The measures in the form of monitoring.
pub(in crate::runtime) fn told(raw: &Raw) -> Measures {
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
        clocks: raw.clocks.iter().cloned().map(clock).collect(),
        counters: raw.counters.clone(),
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
