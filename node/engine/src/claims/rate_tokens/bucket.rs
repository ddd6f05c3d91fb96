//! The token bucket of a queue at its coordinator.

use crate::context::latest::Latest;
use norn_model::claim_table::levels::{Level, WHOLE};
use norn_model::limits::GRANT_COST_MS;
use norn_wire::NodeId;
use norn_wire::membership::Rate;
use std::collections::VecDeque;

/// How long expired rate tokens are remembered, as their grants may be voided.
const PAST_MS: u64 = GRANT_COST_MS;
/// Most remembered gifts of rate tokens of a queue, the latest ones. Where more are given in that time, the next rate token is near.
const PAST_MAX: usize = 256;
/// While claims wait, a level is written again once this part of a rate token has come in, at the earliest after `WORTH_MS`; whatever has
/// come in, after `WORTH_ANYWAY_MS`.
const WORTH_PART: u128 = 8;
const WORTH_MS: u64 = 1_000;
const WORTH_ANYWAY_MS: u64 = 5_000;
/// Without requests a level is written at most this seldom.
pub const KEEP_MS: u64 = 60_000;

/// Rate tokens that were given, with their expiry by the coordinator's clock.
#[derive(Debug)]
pub struct Given {
    pub to: NodeId,
    pub request_id: u64,
    pub count: u64,
    /// How many of the original rate tokens came back; `count` is the rest.
    pub back: u64,
    pub until_us: u64,
}

impl Given {
    /// Takes rate tokens back, of which `in_all` came back in total. Returns how many of them are new.
    fn take_back(&mut self, in_all: u64) -> u64 {
        let more = in_all.saturating_sub(self.back).min(self.count);
        (self.back, self.count) = (self.back.saturating_add(more), self.count - more);
        more
    }
}

/// Expired rate tokens.
#[derive(Debug)]
struct Past {
    given: Given,
    /// Least free space of the bucket since: what ran over would have run over as well had these not been given.
    room: u128,
}

/// Token bucket of a queue. It counts parts of rate tokens: a rate token costs as many parts as the rate's period has microseconds, and
/// each microsecond brings as many parts as the rate has claims in that period.
#[derive(Debug, Default)]
pub struct Bucket {
    pub parts: u128,
    /// Parts of one rate token, by the rate at which it was last filled.
    cost: u128,
    at_us: u64,
    /// Rate tokens that count as still in the bucket, in the order of their expiry.
    given: VecDeque<Given>,
    /// Sum of their counts.
    out: u64,
    /// Expired rate tokens that may come back late.
    past: VecDeque<Past>,
    /// Latest request of each node. A node asks again only when it does not wait for an answer any more, so rate tokens for an earlier
    /// request would be of no use.
    pub heard: Latest,
    /// What was last written, and when.
    written: u128,
    written_us: u64,
    /// Without requests the level is written again at this time, unless the written level is as good as full.
    keep_us: u64,
}

/// Parts of one rate token.
fn cost(rate: Rate) -> u128 {
    u128::from(rate.per_ms.max(1)) * 1_000
}

/// Most parts that a bucket holds: one rate token, and what drips in two seconds.
fn full(rate: Rate) -> u128 {
    cost(rate) + u128::from(rate.claims) * 2_000_000
}

/// Time between two writes of a level without requests.
fn keep_every_us(rate: Rate) -> u64 {
    let part_us = cost(rate) / WORTH_PART / u128::from(rate.claims.max(1));
    u64::try_from(part_us).unwrap_or(u64::MAX).clamp(WORTH_ANYWAY_MS * 1_000, KEEP_MS * 1_000)
}

fn millionths_of(parts: u128, cost: u128) -> u64 {
    let (whole, rest) = (parts / cost, parts % cost);
    u64::try_from(whole * u128::from(WHOLE) + rest * u128::from(WHOLE) / cost).unwrap_or(u64::MAX)
}

fn parts_of(millionths: u64, cost: u128) -> u128 {
    cost * u128::from(millionths / WHOLE) + cost * u128::from(millionths % WHOLE) / u128::from(WHOLE)
}

impl Bucket {
    /// The bucket of a level that this node has known since `since_us`. Rate tokens that were out have surely expired `over_us` later.
    pub fn resumed(rate: Rate, level: Level, since_us: u64, over_us: u64) -> Bucket {
        let most = full(rate);
        let out = level.given.min(u64::try_from(most / cost(rate)).unwrap_or(u64::MAX));
        assert!(u128::from(out) * cost(rate) <= most, "more permits are out than a bucket holds");
        let millionths = level.millionths.min(millionths_of(most, cost(rate)));
        let parts = parts_of(millionths, cost(rate)).min(most - u128::from(out) * cost(rate));
        // None of these comes back here.
        let given = Given { to: NodeId(0), request_id: 0, count: out, back: u64::MAX, until_us: since_us + over_us };
        let (given, past) = (VecDeque::from([given]), VecDeque::new());
        // The leader that begins with it soon writes what has come in since: the next one may have started later.
        let keep_us = since_us.saturating_add(WORTH_ANYWAY_MS * 1_000);
        let (written, written_us) = (parts, since_us);
        let heard = Latest::default();
        Bucket { parts, cost: cost(rate), at_us: since_us, given, out, past, heard, written, written_us, keep_us }
    }

    /// A bucket into which nothing has dripped before `since_us`.
    pub fn empty(since_us: u64) -> Bucket {
        Bucket { at_us: since_us, written_us: since_us, keep_us: since_us, ..Bucket::default() }
    }

    /// The level to write down.
    pub fn level(&self) -> Level {
        Level { millionths: millionths_of(self.parts, self.cost.max(1)), given: self.out }
    }

    /// Adds what has dripped in until `now_us`. At each moment the bucket holds no more than its free space allowed then.
    pub fn fill(&mut self, rate: Rate, now_us: u64) {
        if self.cost != cost(rate) {
            // The rate has changed: the same number of rate tokens is another number of parts.
            let convert =
                |parts: u128| if self.cost == 0 { 0 } else { parts_of(millionths_of(parts, self.cost), cost(rate)) };
            (self.parts, self.written) = (convert(self.parts), convert(self.written));
            self.cost = cost(rate);
            self.past.clear();
        }
        while let Some(over) = self.given.pop_front_if(|given| given.until_us <= now_us) {
            self.drip(rate, over.until_us);
            // There is least free space just before these rate tokens expire.
            let room = self.room(rate);
            self.past.iter_mut().for_each(|past| past.room = past.room.min(room));
            assert!(self.out >= over.count, "permits expire that were not counted");
            self.out -= over.count;
            self.past.push_back(Past { given: over, room: u128::MAX });
        }
        self.drip(rate, now_us);
        let is_old = |past: &mut Past| past.given.until_us + PAST_MS * 1_000 <= now_us;
        while self.past.len() > PAST_MAX || self.past.front_mut().is_some_and(is_old) {
            self.past.pop_front();
        }
    }

    /// Free space.
    fn room(&self, rate: Rate) -> u128 {
        full(rate).saturating_sub(u128::from(self.out) * cost(rate)).saturating_sub(self.parts)
    }

    fn drip(&mut self, rate: Rate, until_us: u64) {
        let room = full(rate).saturating_sub(u128::from(self.out) * cost(rate));
        let more = u128::from(until_us.saturating_sub(self.at_us)) * u128::from(rate.claims);
        self.parts = (self.parts + more).min(room);
        self.at_us = self.at_us.max(until_us);
    }

    pub fn count(&self, rate: Rate) -> u64 {
        u64::try_from(self.parts / cost(rate)).unwrap_or(u64::MAX)
    }

    pub fn take(&mut self, rate: Rate, given: Given) {
        assert!(given.count <= self.count(rate), "more permits are given than there are");
        let in_order = self.given.back().is_none_or(|last| last.until_us <= given.until_us);
        assert!(in_order, "permits are not kept in the order in which they expire");
        self.parts -= u128::from(given.count) * cost(rate);
        self.out += given.count;
        self.given.push_back(given);
    }

    /// Whether enough has come in since the last write to write the level again.
    pub fn is_worth_writing(&self, now_us: u64) -> bool {
        let more = self.parts.saturating_sub(self.written);
        let old = |ms: u64| now_us >= self.written_us.saturating_add(ms * 1_000);
        more > 0 && (old(WORTH_ANYWAY_MS) || old(WORTH_MS) && more * WORTH_PART >= self.cost)
    }

    /// Records that the level was written.
    pub fn note_written(&mut self, rate: Rate, now_us: u64) {
        (self.written, self.written_us) = (self.parts, now_us);
        self.keep_us = now_us.saturating_add(keep_every_us(rate));
    }

    /// When the level is to be written without requests. Never, where what that would save comes in within seconds.
    pub fn keep_us(&self, rate: Rate) -> Option<u64> {
        let lacks = full(rate).saturating_sub(self.written);
        let is_worth = lacks > u128::from(rate.claims) * u128::from(WORTH_ANYWAY_MS) * 1_000;
        is_worth.then_some(self.keep_us)
    }

    /// The queue's settings may have changed: a faster rate is written sooner.
    pub fn hasten(&mut self, rate: Rate, now_us: u64) {
        self.keep_us = self.keep_us.min(now_us.saturating_add(keep_every_us(rate)));
    }

    /// Puts rate tokens back, each once; `in_all` is the total that came back of those that were given for a request.
    pub fn put_back(&mut self, rate: Rate, (from, request_id): (NodeId, u64), in_all: u64) {
        let room = self.room(rate);
        let is_it = |given: &Given| (given.to, given.request_id) == (from, request_id);
        if let Some(given) = self.given.iter_mut().find(|given| is_it(given)) {
            let count = given.take_back(in_all);
            assert!(self.out >= count, "permits come back that were not counted");
            self.out -= count;
            self.parts += u128::from(count) * cost(rate);
        } else if let Some(past) = self.past.iter_mut().find(|past| is_it(&past.given)) {
            let parts = u128::from(past.given.take_back(in_all)) * cost(rate);
            let parts = parts.min(past.room).min(room);
            self.parts += parts;
            self.past.iter_mut().for_each(|past| past.room = past.room.saturating_sub(parts));
        }
    }

    /// Time until the next rate token; 0 if there is one.
    pub fn wait_ms(&self, rate: Rate) -> u64 {
        let lacks = cost(rate).saturating_sub(self.parts);
        let wait_us = lacks.div_ceil(u128::from(rate.claims.max(1)));
        u64::try_from(wait_us.div_ceil(1_000)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::super::RATE_TOKEN_MS;
    use super::*;
    use norn_model::config::Config;
    use norn_wire::random::Random;

    const RATE: Rate = Rate { claims: 10, per_ms: 1_000 };

    fn give(bucket: &mut Bucket, now_us: u64, request_id: u64) -> u64 {
        bucket.fill(RATE, now_us);
        let count = bucket.count(RATE);
        if count > 0 {
            let until_us = now_us + RATE_TOKEN_MS * 1_000;
            bucket.take(RATE, Given { to: NodeId(1), request_id, count, back: 0, until_us });
        }
        count
    }

    #[test]
    fn a_bucket_never_has_more_than_the_burst_with_what_was_given() {
        let mut bucket = Bucket::default();
        assert_eq!(give(&mut bucket, 150_000, 1), 1);
        assert_eq!(bucket.wait_ms(RATE), 50);
        assert_eq!(give(&mut bucket, 60_000_000, 2), 21, "what drips in two seconds, and one");
        assert_eq!((give(&mut bucket, 60_900_000, 3), give(&mut bucket, 60_999_999, 4)), (0, 0), "they are out");
        assert_eq!(give(&mut bucket, 61_000_000, 5), 0, "what dripped while it was full is lost");
        assert_eq!(give(&mut bucket, 61_100_000, 6), 1);
    }

    #[test]
    fn what_comes_back_comes_back_once() {
        let mut bucket = Bucket::default();
        assert_eq!(give(&mut bucket, 500_000, 1), 5);
        for from in [NodeId(1), NodeId(1), NodeId(2)] {
            bucket.put_back(RATE, (from, 1), 3);
            bucket.put_back(RATE, (from, 2), 3);
        }
        assert_eq!(give(&mut bucket, 500_000, 2), 3);
    }

    /// Goal: rate tokens whose grants are voided come back as if they had never been given, however late, beside others that were used.
    /// Method: a bucket that gives them, and one that does not.
    #[test]
    fn what_comes_back_late_is_as_if_it_had_not_been_given() {
        let begin_us = 60_000_000;
        let filled = |later_us: u64| {
            let mut bucket = Bucket::default();
            bucket.fill(RATE, begin_us);
            bucket.fill(RATE, begin_us + later_us);
            bucket
        };
        for (void, used, at) in
            (1..=10).flat_map(|void| (0..=10).flat_map(move |used| (0..60).map(move |at| (void, used, at))))
        {
            let (mut real, mut ideal) = (filled(0), filled(0));
            let given = |request_id, count, at_us: u64| {
                let until_us = begin_us + at_us + RATE_TOKEN_MS * 1_000;
                Given { to: NodeId(1), request_id, count, back: 0, until_us }
            };
            real.take(RATE, given(1, void, 0));
            for bucket in [&mut real, &mut ideal] {
                bucket.fill(RATE, begin_us + 300_000);
                bucket.take(RATE, given(2, used, 300_000));
                bucket.fill(RATE, begin_us + at * 100_000 + 7);
            }
            for _ in 0..2 {
                real.put_back(RATE, (NodeId(1), 1), void);
                assert_eq!(real.level(), ideal.level(), "{void} of {used} more, back after {at} tenths");
            }
        }
    }

    /// Goal: however much comes back, and in whichever order, the bucket holds no more than if none of it had been given.
    #[test]
    fn what_comes_back_late_is_never_too_much() {
        let (mut real, mut ideal) = (Bucket::default(), Bucket::default());
        let mut random = Random::new(7);
        let mut asked: Vec<(u64, u64)> = Vec::new();
        for step in 1..20_000 {
            let now_us = 60_000_000 + step * 73_000;
            for bucket in [&mut real, &mut ideal] {
                bucket.fill(RATE, now_us);
            }
            let (count, until_us) = (random.below(4).min(real.count(RATE)), now_us + RATE_TOKEN_MS * 1_000);
            let given = || Given { to: NodeId(1), request_id: step, count, back: 0, until_us };
            match random.below(3) {
                0 if count > 0 => {
                    real.take(RATE, given());
                    ideal.take(RATE, given());
                }
                1 if count > 0 => {
                    real.take(RATE, given());
                    asked.push((step, count));
                }
                _ if !asked.is_empty() => {
                    let (request_id, count) = asked.swap_remove(random.below(asked.len() as u64) as usize);
                    real.put_back(RATE, (NodeId(1), request_id), count);
                }
                _ => {}
            }
            let outstanding = real.out - ideal.out;
            assert!(real.parts + u128::from(outstanding) * cost(RATE) <= ideal.parts, "step {step}");
            assert!(real.parts + u128::from(real.out) * cost(RATE) <= full(RATE), "step {step}");
        }
    }

    #[test]
    fn a_home_remembers_no_more_than_it_has_to() {
        let mut bucket = Bucket::default();
        for request_id in 0..4 * PAST_MAX as u64 {
            give(&mut bucket, 60_000_000 + request_id * 1_000_000, request_id);
            assert!(bucket.past.len() as u64 <= PAST_MS / 1_000 + 1);
        }
    }

    /// A rate token may be used in the last moment before it expires: what came in until then beside a full burst would be too much.
    #[test]
    fn what_dripped_while_all_was_out_is_lost_also_where_there_was_no_question_meanwhile() {
        let mut bucket = Bucket::default();
        assert_eq!(give(&mut bucket, 60_000_000, 1), 21);
        assert_eq!(give(&mut bucket, 61_000_000, 2), 0);
        assert_eq!(give(&mut bucket, 61_500_000, 3), 5);
    }

    #[test]
    fn another_rate_makes_no_permits_of_what_is_in_the_bucket() {
        let mut bucket = Bucket::default();
        let slow = Rate { claims: 1, per_ms: 60_000 };
        bucket.fill(slow, 30_000_000);
        assert_eq!(bucket.level(), Level { millionths: 500_000, given: 0 });
        bucket.fill(RATE, 30_000_000);
        assert_eq!(bucket.level(), Level { millionths: 500_000, given: 0 });
        bucket.fill(slow, 30_000_000);
        assert_eq!(bucket.level(), Level { millionths: 500_000, given: 0 });
    }

    /// Goal: a resumed bucket never holds more than it would hold without the change of leader. Method: two buckets, of which one is
    /// written down and resumed at once.
    #[test]
    fn a_bucket_that_is_resumed_at_once_is_the_same() {
        let over_us = RATE_TOKEN_MS * 1_000;
        for (count, later_us) in (0..=21).flat_map(|count| (0..40).map(move |tenths| (count, tenths * 100_000 + 7))) {
            let mut bucket = Bucket::default();
            bucket.fill(RATE, 60_000_000);
            let given = Given { to: NodeId(1), request_id: 1, count, back: 0, until_us: 60_000_000 + over_us };
            bucket.take(RATE, given);
            let mut resumed = Bucket::resumed(RATE, bucket.level(), 60_000_000, over_us);
            bucket.fill(RATE, 60_000_000 + later_us);
            resumed.fill(RATE, 60_000_000 + later_us);
            assert_eq!(resumed.level(), bucket.level(), "{count} given, {later_us} later");
        }
    }

    /// Levels come from other nodes: none may overflow the arithmetic or exceed the burst.
    #[test]
    fn a_level_of_anything_is_no_more_than_the_burst() {
        let over_us = Config::default().stretched_us(RATE_TOKEN_MS);
        let rates = [RATE, Rate { claims: u32::MAX, per_ms: 1 }, Rate { claims: 1, per_ms: u64::MAX }];
        for (rate, given) in rates.into_iter().flat_map(|rate| [(rate, 0), (rate, u64::MAX)]) {
            let level = Level { millionths: u64::MAX, given };
            let mut bucket = Bucket::resumed(rate, level, 5, over_us);
            bucket.fill(rate, 5);
            assert!(u128::from(bucket.count(rate) + bucket.out) <= rate.burst(), "{rate:?}");
            bucket.fill(rate, u64::MAX);
            assert!(u128::from(bucket.count(rate)) <= rate.burst(), "{rate:?}");
        }
    }

    #[test]
    fn a_level_is_worth_writing_for_an_eighth_of_a_permit_or_after_a_while() {
        for (per_ms, after_ms) in [(3_600_000, 5_000), (20_000, 2_500), (4_000, 1_000)] {
            let rate = Rate { claims: 1, per_ms };
            let mut bucket = Bucket::resumed(rate, Level { millionths: 0, given: 0 }, 0, 0);
            let worth = (0..6_000).find(|ms| {
                bucket.fill(rate, ms * 1_000);
                bucket.is_worth_writing(ms * 1_000)
            });
            assert_eq!(worth, Some(after_ms));
        }
    }
}
