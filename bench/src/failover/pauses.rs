//! Successes of clients and their times, and the pauses between them around a kill.

use crate::report::Row;
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Kind of success.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// A task was acknowledged.
    Enqueue,
    /// A task was granted.
    Claim,
}

/// A success of a client.
#[derive(Debug, Clone, Copy)]
pub struct Event {
    /// Kind of success.
    pub verb: Verb,
    /// The node that the client started with.
    pub place: usize,
    /// When the client had the answer.
    pub told: Instant,
}

/// Recent successes of all clients.
#[derive(Debug, Default)]
pub struct Events {
    events: Mutex<Vec<Event>>,
}

/// Pauses around one kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kill {
    /// Number of partitions that the node led.
    pub led: usize,
    /// Time until half of these partitions granted a task again.
    pub median: Duration,
    /// Time until all other nodes knew a leader for each of these partitions.
    pub leaders: Duration,
    /// Time until the last of these partitions granted a task again.
    pub partitions: Duration,
    /// Longest time without a grant, for any client of another node, and for a client of the killed node.
    pub claims: [Duration; 2],
    /// The same without an acknowledged enqueue.
    pub enqueues: [Duration; 2],
}

impl Kill {
    /// A row about this kill alone.
    pub fn row(&self, number: u64) -> Row {
        let row = Row::default().count("kill", number).count("partitions_led", self.led as u64);
        let row = row.number("leaders_s", self.leaders.as_secs_f64(), 2);
        let row = row.number("claims_median_s", self.median.as_secs_f64(), 2);
        let row = row.number("claims_everywhere_s", self.partitions.as_secs_f64(), 2);
        let row = row.number("claims_s", self.claims[0].as_secs_f64(), 2);
        let row = row.number("claims_moved_s", self.claims[1].as_secs_f64(), 2);
        let row = row.number("enqueues_s", self.enqueues[0].as_secs_f64(), 2);
        row.number("enqueues_moved_s", self.enqueues[1].as_secs_f64(), 2)
    }
}

/// The pauses of all kills, by kind.
pub fn by_kind(kills: &[Kill]) -> Vec<(&'static str, Vec<Duration>)> {
    let all = |pause: fn(&Kill) -> Duration| kills.iter().map(pause).collect();
    vec![
        ("until the others know all leaders", all(|kill| kill.leaders)),
        ("claims of half of its partitions", all(|kill| kill.median)),
        ("claims of the last of its partitions", all(|kill| kill.partitions)),
        ("claims, a client of another node", all(|kill| kill.claims[0])),
        ("claims, a client of the killed node", all(|kill| kill.claims[1])),
        ("enqueues, a client of another node", all(|kill| kill.enqueues[0])),
        ("enqueues, a client of the killed node", all(|kill| kill.enqueues[1])),
    ]
}

impl Events {
    fn events(&self) -> MutexGuard<'_, Vec<Event>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event.
    pub fn note(&self, event: Event) {
        self.events().push(event);
    }

    /// Drops events that are no longer needed.
    pub fn forget_before(&self, instant: Instant) {
        self.events().retain(|event| event.told >= instant);
    }

    /// Clients without a success since that instant.
    pub fn missing(&self, since: Instant, nodes: usize) -> Vec<String> {
        let events = self.events();
        let later = events.iter().filter(|event| event.told > since);
        let heard: BTreeSet<(Verb, usize)> = later.map(|event| (event.verb, event.place)).collect();
        let verbs = [Verb::Enqueue, Verb::Claim].into_iter();
        let clients = verbs.flat_map(|verb| (0..nodes).map(move |place| (verb, place)));
        let missing = clients.filter(|client| !heard.contains(client));
        missing.map(|(verb, place)| format!("{verb:?} at node {place}")).collect()
    }

    /// The longest pause of any client around a kill.
    #[cfg(feature = "peers")]
    pub fn longest_pause(&self, verb: Verb, kill: Instant) -> Duration {
        let events = self.events();
        let places: BTreeSet<usize> = events.iter().map(|event| event.place).collect();
        places.iter().map(|place| longest_pause(&events, verb, *place, kill)).max().unwrap_or_default()
    }

    /// The pauses around a kill, once no client is missing. `partitions` is how long each partition that the node led granted nothing.
    pub fn judge(&self, at: Instant, victim: usize, leaders: Duration, mut partitions: Vec<Duration>) -> Kill {
        partitions.sort();
        let events = self.events();
        let longest = |verb: Verb, of_victim: bool| {
            let places: BTreeSet<usize> =
                events.iter().map(|event| event.place).filter(|place| (*place == victim) == of_victim).collect();
            places.iter().map(|place| longest_pause(&events, verb, *place, at)).max().unwrap_or_default()
        };
        Kill {
            led: partitions.len(),
            leaders,
            median: partitions.get(partitions.len() / 2).copied().unwrap_or_default(),
            partitions: partitions.last().copied().unwrap_or_default(),
            claims: [false, true].map(|of_victim| longest(Verb::Claim, of_victim)),
            enqueues: [false, true].map(|of_victim| longest(Verb::Enqueue, of_victim)),
        }
    }
}

/// The longest time between two successive successes of a client, where the second one is after the kill.
fn longest_pause(events: &[Event], verb: Verb, place: usize, kill: Instant) -> Duration {
    let mut told: Vec<Instant> =
        events.iter().filter(|event| event.verb == verb && event.place == place).map(|event| event.told).collect();
    told.sort();
    let pauses = told.windows(2).filter(|pair| pair[1] > kill).map(|pair| pair[1] - pair[0]);
    pauses.max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_around_a_kill_are_found() {
        let start = Instant::now();
        let milliseconds = Duration::from_millis;
        let at = |ms: u64| start + milliseconds(ms);
        let events = Events::default();
        // Pauses that end before the kill do not count, however long they are.
        for (place, times) in [(0, [0, 900, 3_500, 3_510]), (1, [10, 990, 1_400, 1_450])] {
            for ms in times {
                events.note(Event { verb: Verb::Claim, place, told: at(ms) });
                events.note(Event { verb: Verb::Enqueue, place, told: at(ms + 5) });
            }
        }
        assert_eq!(events.missing(at(1_000), 2), Vec::<String>::new());
        assert_eq!(events.missing(at(1_500), 2), ["Enqueue at node 1", "Claim at node 1"]);
        let kill = events.judge(at(1_000), 0, milliseconds(300), [700, 400, 500].map(milliseconds).to_vec());
        let pauses = [milliseconds(410), milliseconds(2_600)];
        let (leaders, median, partitions) = (milliseconds(300), milliseconds(500), milliseconds(700));
        assert_eq!(kill, Kill { led: 3, leaders, median, partitions, claims: pauses, enqueues: pauses });
        events.forget_before(at(3_505));
        assert_eq!(events.events().len(), 3);
    }
}
