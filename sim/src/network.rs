//! Links between nodes: loss, duplication, delay, reordering, one-way cuts.
//!
//! Weaker than QUIC on purpose: any message may be lost, doubled or overtaken. The network only decides when copies arrive; the world
//! delivers them.

use crate::witnesses::Word;
use norn_model::message::{Class, PeerMessage};
use norn_wire::random::Random;
use std::collections::{BTreeMap, BTreeSet};

/// How links behave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Weather {
    /// Messages lost, in a million.
    pub loss_ppm: u64,
    /// Messages doubled, in a million.
    pub duplicate_ppm: u64,
    /// Least delay.
    pub delay_us_min: u64,
    /// Usual greatest delay.
    pub delay_us_max: u64,
    /// Messages much delayed, in a million.
    pub spike_ppm: u64,
    /// Greatest delay of a much delayed message.
    pub spike_us_max: u64,
    /// Messages of a link keep their order.
    pub ordered: bool,
    /// Messages that arrive once more much later, out of any order, in a million.
    pub replay_ppm: u64,
    /// Greatest delay of such a repeat.
    pub replay_us_max: u64,
}

impl Weather {
    /// Weather after healing.
    pub fn calm() -> Self {
        Weather {
            loss_ppm: 0,
            duplicate_ppm: 0,
            delay_us_min: 100,
            delay_us_max: 1_000,
            spike_ppm: 0,
            spike_us_max: 1_000,
            ordered: true,
            replay_ppm: 0,
            replay_us_max: 0,
        }
    }

    /// Whether messages are lost, doubled or arbitrarily late.
    pub fn is_rough(&self) -> bool {
        self.loss_ppm + self.duplicate_ppm + self.spike_ppm + self.replay_ppm > 0
    }

    /// Draws a delay.
    pub fn delay_us(&self, random: &mut Random) -> u64 {
        if random.chance(self.spike_ppm, 1_000_000) {
            return random.between(self.delay_us_max, self.spike_us_max.max(self.delay_us_max));
        }
        random.between(self.delay_us_min, self.delay_us_max)
    }
}

/// Counters of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Handed over.
    pub sent: u64,
    /// Lost on the way.
    pub lost: u64,
    /// Refused by a cut.
    pub cut: u64,
    /// Doubled.
    pub doubled: u64,
}

/// Messages that travel together.
#[derive(Debug, Default)]
pub struct Envelope {
    /// In order.
    pub messages: Vec<PeerMessage>,
    /// What each says of the log that is watched.
    pub words: Vec<Option<Word>>,
}

/// All links. Places are nodes, and behind them clients.
#[derive(Debug)]
pub struct Network {
    /// What turns that are just being carried out send, by sender, receiver and class.
    pub outgoing: BTreeMap<(usize, usize, Class), Envelope>,
    random: Random,
    /// Present behaviour.
    pub weather: Weather,
    cuts: BTreeSet<(usize, usize)>,
    latest_us: BTreeMap<(usize, usize), u64>,
    /// When the last repeat arrives.
    replayed_us: u64,
    pub counts: Counts,
}

impl Network {
    /// Links that all work.
    pub fn new(random: Random, weather: Weather) -> Self {
        let (cuts, latest_us, outgoing) = (BTreeSet::new(), BTreeMap::new(), BTreeMap::new());
        Network { outgoing, random, weather, cuts, latest_us, replayed_us: 0, counts: Counts::default() }
    }

    /// Sends a message. Returns when copies of it arrive: none if it is lost.
    pub fn send(&mut self, now_us: u64, from: usize, to: usize) -> Vec<u64> {
        self.counts.sent += 1;
        // The draws do not depend on cuts, so that a cut shifts nothing else.
        let lost = self.random.chance(self.weather.loss_ppm, 1_000_000);
        let doubled = self.random.chance(self.weather.duplicate_ppm, 1_000_000);
        let delays = [self.weather.delay_us(&mut self.random), self.weather.delay_us(&mut self.random)];
        if self.is_cut(from, to) {
            self.counts.cut += 1;
            return Vec::new();
        }
        if lost {
            self.counts.lost += 1;
            return Vec::new();
        }
        self.counts.doubled += u64::from(doubled);
        let copies = if doubled { 2 } else { 1 };
        let mut arrivals: Vec<u64> =
            delays[..copies].iter().map(|delay| self.arrival(now_us + delay, from, to)).collect();
        // Without this fault nothing is drawn, so that it shifts nothing else.
        if self.weather.replay_ppm > 0 && self.random.chance(self.weather.replay_ppm, 1_000_000) {
            let again_us = now_us + self.random.between(delays[0], self.weather.replay_us_max.max(delays[0]));
            self.replayed_us = self.replayed_us.max(again_us);
            arrivals.push(again_us);
        }
        arrivals
    }

    /// Whether repeats of earlier messages are still to arrive.
    pub fn replays(&self, now_us: u64) -> bool {
        now_us < self.replayed_us
    }

    fn arrival(&mut self, at_us: u64, from: usize, to: usize) -> u64 {
        if !self.weather.ordered {
            return at_us;
        }
        let latest = self.latest_us.entry((from, to)).or_default();
        *latest = at_us.max(*latest);
        *latest
    }

    /// Delays all messages that are on their way by `length_us`.
    pub fn leap(&mut self, length_us: u64) {
        self.latest_us.values_mut().for_each(|latest_us| *latest_us += length_us);
        self.replayed_us += length_us;
    }

    /// Whether nothing gets from one place to another.
    pub fn is_cut(&self, from: usize, to: usize) -> bool {
        self.cuts.contains(&(from, to))
    }

    /// Cuts one direction.
    pub fn cut(&mut self, from: usize, to: usize) {
        self.cuts.insert((from, to));
    }

    /// Whether anything is cut.
    pub fn is_cut_anywhere(&self) -> bool {
        !self.cuts.is_empty()
    }

    /// Mends every cut. Returns the pairs of places that had any.
    pub fn mend(&mut self) -> Vec<(usize, usize)> {
        let pairs: BTreeSet<_> = self.cuts.iter().map(|(from, to)| (*from.min(to), *from.max(to))).collect();
        self.cuts.clear();
        pairs.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stormy() -> Weather {
        Weather { loss_ppm: 200_000, duplicate_ppm: 100_000, spike_ppm: 10_000, ordered: false, ..Weather::calm() }
    }

    fn arrivals(network: &mut Network) -> Vec<Vec<u64>> {
        (0..1_000).map(|number| network.send(number * 10, 0, 1)).collect()
    }

    #[test]
    fn the_same_seed_gives_the_same_arrivals() {
        let run = |seed| arrivals(&mut Network::new(Random::new(seed), stormy()));
        assert_eq!(run(5), run(5));
        assert_ne!(run(5), run(6));
    }

    #[test]
    fn messages_are_lost_doubled_and_overtaken() {
        let mut network = Network::new(Random::new(1), stormy());
        let times = arrivals(&mut network);
        assert!((100..300).contains(&times.iter().filter(|copies| copies.is_empty()).count()));
        assert!(times.iter().any(|copies| copies.len() == 2));
        let order: Vec<u64> = times.into_iter().flatten().collect();
        assert!(!order.is_sorted());
    }

    #[test]
    fn a_cut_is_one_way_and_shifts_no_other_draw() {
        let mut cut = Network::new(Random::new(9), stormy());
        let mut whole = Network::new(Random::new(9), stormy());
        cut.cut(0, 1);
        assert_eq!(cut.send(0, 0, 1), Vec::<u64>::new());
        whole.send(0, 0, 1);
        assert!(!cut.is_cut(1, 0));
        for now in 1..100 {
            assert_eq!(cut.send(now, 1, 0), whole.send(now, 1, 0));
        }
        assert_eq!(cut.mend(), [(0, 1)]);
        assert!(!cut.is_cut(0, 1));
    }

    #[test]
    fn ordered_links_keep_order() {
        let mut network = Network::new(Random::new(2), Weather { ordered: true, ..stormy() });
        let order: Vec<u64> =
            arrivals(&mut network).into_iter().flat_map(|copies| copies.into_iter().take(1)).collect();
        assert!(order.is_sorted());
    }
}
