//! At most so many claims of a queue in a time, in the whole cluster (`queue set Q rate N/s`).
//!
//! Each queue has a home: the partition to which a hash of its name leads. The leader of the home keeps a bucket for the queue, into
//! which permits drip at the rate, and gives them to leaders that ask; each grant of the queue uses one up. So in any stretch of
//! time there are no more grants than drip into the bucket in it, and than it holds. The bucket holds what drips in two seconds and
//! one more: permits that were given count as in it until they are surely over, which they are after one second.
//!
//! - **Permits are over** a second after they were *asked for*, by the clock of whoever asked. So nobody has to take them back, and
//!   those that are lost on their way do no harm. Who finds no use for them gives them back before, so that what drips slowly is
//!   not lost with a node that was quicker to ask than to find a worker.
//! - **A new leader of the home** gives nothing before all permits of those before it are over. That they are it can tell from when it
//!   was established: permits are told once an operation that was appended *after the question* is committed. So the leader that told
//!   them led after they were asked for, and the next leader was established later than that.
//! - **What time has earned outlives a leader.** That operation says what is left in the bucket (`Op::Level`), so no later leader can
//!   lack a giving of which a granter was told. A new leader begins with that level and what has dripped since it applied the operation,
//!   by its own monotonic clock (`levels.rs`): never more than its predecessor would have by then, as it applied the operation later
//!   than that appended it. A process that has started since counts from its start. So that this is not much less, the level is written
//!   again while claims wait for the next permit, when an eighth of a permit or five seconds have come in. What is lost is what came in
//!   since, where the new leader has started since, and permits that were out, or returned, when the leader fell.
//! - **Where a member is known to run a program that cannot read that**, the operation changes nothing and no level is kept: then a new
//!   leader begins with an empty bucket.
//!
//! What a leader makes of it: without a permit a queue has no head here, as if it were empty. Leaders ask as long as there is work
//! and somebody waits for it or looks for it (`demand.rs`), again when the home says that the next permit drips, once a second at the
//! least. A home without a leader, or with one of a program that knows nothing of this, grants nothing.

use super::Waiting;
use super::levels::{Level, WHOLE};
use super::table::Op;
use crate::config::mutant;
use crate::limits::PERMITS_MAX;
use crate::protocol::peer::PeerMessage;
use crate::protocol::ring;
use crate::protocol::timers::Key;
use crate::protocol::{Feature, Node};
use norn_client::wire::ids::TAG_BITS;
use norn_client::wire::membership::Rate;
use norn_client::wire::{NodeId, PartitionId, QueueName};
use std::collections::{BTreeMap, VecDeque};
use xxhash_rust::xxh3::xxh3_64;

/// How long a permit lasts, from when it was asked for.
const PERMIT_MS: u64 = 1_000;
/// Who has found no use for it by then gives it back.
const UNUSED_MS: u64 = 250;
/// Until a home is asked again that has no leader.
const HOMELESS_MS: u64 = 100;
/// A level is written again once so much of a permit has come in, if that is not too soon, or after so long.
const WORTH_PART: u128 = 8;
const WORTH_MS: u64 = 1_000;
const WORTH_ANYWAY_MS: u64 = 5_000;

/// Permits that were given, by the home's clock.
#[derive(Debug)]
struct Given {
    to: NodeId,
    ask: u64,
    count: u64,
    until_us: u64,
    /// Some came back.
    returned: bool,
}

/// What a queue's home has of it. Parts of permits are counted: a permit costs as many as there are microseconds in the time of
/// the rate, and each microsecond brings as many as there are permits in that time.
#[derive(Debug, Default)]
struct Bucket {
    parts: u128,
    /// How many are a permit, by the rate that it was last filled at.
    cost: u128,
    at_us: u64,
    /// The first one is over first.
    given: VecDeque<Given>,
    /// All of these together.
    out: u64,
    /// What was last written down, and when.
    written: u128,
    written_us: u64,
}

/// Parts of one permit.
fn cost(rate: Rate) -> u128 {
    u128::from(rate.per_ms.max(1)) * 1_000
}

/// What a bucket holds at most: a permit, and what drips in two seconds.
fn full(rate: Rate) -> u128 {
    cost(rate) + u128::from(rate.claims) * 2_000_000
}

fn millionths_of(parts: u128, cost: u128) -> u64 {
    let (whole, rest) = (parts / cost, parts % cost);
    u64::try_from(whole * u128::from(WHOLE) + rest * u128::from(WHOLE) / cost).unwrap_or(u64::MAX)
}

fn parts_of(millionths: u64, cost: u128) -> u128 {
    cost * u128::from(millionths / WHOLE) + cost * u128::from(millionths % WHOLE) / u128::from(WHOLE)
}

impl Bucket {
    /// The bucket of a level that this node has known since then. What was out is surely over so much later.
    fn resumed(rate: Rate, level: Level, since_us: u64, over_us: u64) -> Bucket {
        let most = full(rate);
        let out = level.given.min(u64::try_from(most / cost(rate)).unwrap_or(u64::MAX));
        let millionths = level.millionths.min(millionths_of(most, cost(rate)));
        let parts = parts_of(millionths, cost(rate)).min(most - u128::from(out) * cost(rate));
        // None of it comes back here.
        let given = Given { to: NodeId(0), ask: 0, count: out, until_us: since_us + over_us, returned: true };
        let given = VecDeque::from([given]);
        Bucket { parts, cost: cost(rate), at_us: since_us, given, out, written: parts, written_us: since_us }
    }

    /// What it holds, to be written down.
    fn level(&self) -> Level {
        Level { millionths: millionths_of(self.parts, self.cost.max(1)), given: self.out }
    }

    /// What has dripped into it by now. At each moment it holds no more than there was room for then.
    fn fill(&mut self, rate: Rate, now_us: u64) {
        if self.cost != cost(rate) {
            // Another rate is set: as many permits are other parts.
            let convert =
                |parts: u128| if self.cost == 0 { 0 } else { parts_of(millionths_of(parts, self.cost), cost(rate)) };
            (self.parts, self.written) = (convert(self.parts), convert(self.written));
            self.cost = cost(rate);
        }
        while let Some(over) = self.given.pop_front_if(|given| given.until_us <= now_us) {
            self.drip(rate, over.until_us);
            self.out -= over.count;
        }
        self.drip(rate, now_us);
    }

    fn drip(&mut self, rate: Rate, until_us: u64) {
        let room = full(rate).saturating_sub(u128::from(self.out) * cost(rate));
        let more = u128::from(until_us.saturating_sub(self.at_us)) * u128::from(rate.claims);
        self.parts = (self.parts + more).min(room);
        self.at_us = self.at_us.max(until_us);
    }

    fn count(&self, rate: Rate) -> u64 {
        u64::try_from(self.parts / cost(rate)).unwrap_or(u64::MAX)
    }

    fn take(&mut self, rate: Rate, given: Given) {
        self.parts -= u128::from(given.count) * cost(rate);
        self.out += given.count;
        self.given.push_back(given);
    }

    /// Whether so much has come in since its level was written that it is worth to write it again.
    fn is_worth_writing(&self, now_us: u64) -> bool {
        let more = self.parts.saturating_sub(self.written);
        let old = |ms: u64| now_us >= self.written_us.saturating_add(ms * 1_000);
        more > 0 && (old(WORTH_ANYWAY_MS) || old(WORTH_MS) && more * WORTH_PART >= self.cost)
    }

    /// Permits come back, once.
    fn put_back(&mut self, rate: Rate, (from, ask): (NodeId, u64), count: u64) {
        let given = self.given.iter_mut().find(|given| (given.to, given.ask) == (from, ask) && !given.returned);
        if let Some(given) = given {
            let count = count.min(given.count);
            (given.returned, given.count) = (true, given.count - count);
            self.out -= count;
            self.parts += u128::from(count) * cost(rate);
        }
    }

    /// Until the next permit.
    fn wait_ms(&self, rate: Rate) -> u64 {
        let lacks = cost(rate).saturating_sub(self.parts);
        let wait_us = lacks.div_ceil(u128::from(rate.claims.max(1)));
        u64::try_from(wait_us.div_ceil(1_000)).unwrap_or(u64::MAX).clamp(1, PERMIT_MS)
    }
}

/// Buckets of the queues at home in one partition that this node leads.
#[derive(Debug)]
struct Home {
    /// Nothing is given before.
    from_us: u64,
    buckets: BTreeMap<QueueName, Bucket>,
}

/// Permits that this node was given.
#[derive(Debug)]
struct Permit {
    ask: u64,
    count: u64,
    back_us: u64,
    until_us: u64,
}

/// What this node, which grants tasks of a limited queue, has and has asked for.
#[derive(Debug, Default)]
struct Granter {
    /// Question and when it was asked.
    asked: Option<(u64, u64)>,
    again_us: u64,
    permits: VecDeque<Permit>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Permits {
    homes: BTreeMap<PartitionId, Home>,
    granters: BTreeMap<QueueName, Granter>,
}

/// Permits that wait for a commit.
#[derive(Debug)]
pub struct Giving {
    to: NodeId,
    ask: u64,
    queue: QueueName,
    count: u64,
}

impl Node {
    fn rate_of(&self, queue: &QueueName) -> Option<Rate> {
        self.roster.policies.get(queue)?.rate
    }

    /// Where what is limited for a whole queue is kept.
    pub(in crate::protocol) fn home_of(&self, queue: &QueueName) -> PartitionId {
        let partitions = self.genesis.as_ref().expect("asked only in a cluster").partitions;
        let hash = xxh3_64(queue.as_str().as_bytes());
        ring::partition_of((hash >> (u64::BITS - TAG_BITS)) as u32, partitions)
    }

    /// Who leads that, if it can be asked.
    pub(super) fn home_leader(&self, queue: &QueueName, feature: Feature) -> Option<NodeId> {
        self.leader_of(self.home_of(queue)).filter(|node| self.speaks(*node, feature))
    }

    /// So many tasks of a queue may be granted by its rate; `None`: any number.
    pub(super) fn permits(&self, queue: &QueueName) -> Option<u64> {
        self.rate_of(queue)?;
        let now_us = self.now.mono_us;
        let permits = self.permits.granters.get(queue).into_iter().flat_map(|granter| &granter.permits);
        Some(permits.filter(|permit| permit.until_us > now_us).map(|permit| permit.count).sum())
    }

    /// A task of a queue is granted.
    pub(super) fn use_permit(&mut self, queue: &QueueName) {
        if self.rate_of(queue).is_none() || mutant!(self.config, PermitsReused) {
            return;
        }
        let now_us = self.now.mono_us;
        let granter = self.permits.granters.get_mut(queue).expect("what has permits is known");
        let mut permits = granter.permits.iter_mut();
        let permit = permits.find(|permit| permit.until_us > now_us && permit.count > 0);
        permit.expect("nothing is granted without a permit").count -= 1;
        granter.permits.retain(|permit| permit.count > 0);
    }

    /// Whether permits are on their way, and none is here.
    pub(super) fn awaits_permits(&self, queue: &QueueName) -> bool {
        let asked = self.permits.granters.get(queue).is_some_and(|granter| granter.asked.is_some());
        asked && self.permits(queue) == Some(0)
    }

    /// Asks the home of a queue for permits if there is work here and somebody wants it.
    pub(super) fn ask_for_permits(&mut self, queue: &QueueName) {
        let Some(has) = self.permits(queue) else { return };
        let now_us = self.now.mono_us;
        let wanted = self.demand(queue).min(self.heads.count(queue)).min(PERMITS_MAX);
        if wanted <= has || self.policy_of(queue).paused {
            return;
        }
        let home = self.home_leader(queue, Feature::Permits);
        let (ask, again_us) = (self.asks.number(), self.after_ms(HOMELESS_MS));
        let granter = self.permits.granters.entry(queue.clone()).or_default();
        let is_open = granter.asked.is_some_and(|(_, asked_us)| now_us < asked_us + PERMIT_MS * 1_000);
        if is_open || now_us < granter.again_us {
            return self.timers.set_if_none(Key::Permits, again_us);
        }
        granter.asked = None;
        if let Some(home) = home {
            granter.asked = Some((ask, now_us));
            let (queue, wanted) = (queue.clone(), wanted - has);
            self.outbox.send(home, PeerMessage::PermitAsk { ask, queue, wanted });
        } else {
            granter.again_us = again_us;
        }
        self.timers.set_if_none(Key::Permits, again_us);
    }

    /// At a home: permits are asked for.
    pub(in crate::protocol) fn on_permit_ask(&mut self, from: NodeId, ask: u64, queue: QueueName, wanted: u64) {
        let home = self.home_of(&queue);
        if !self.may_append(home) || !self.speaks(from, Feature::Permits) {
            return;
        }
        let now_us = self.now.mono_us;
        let until_us = now_us + self.config.stretched_us(PERMIT_MS);
        let rate = self.rate_of(&queue);
        let Some(state) = self.permits.homes.get_mut(&home) else { return };
        let Some(rate) = rate else {
            state.buckets.remove(&queue);
            return self.outbox.send(from, PeerMessage::Permits { ask, queue, count: 0, wait_ms: PERMIT_MS });
        };
        let from_us = state.from_us;
        let bucket = self.bucket(home, &queue, rate);
        bucket.fill(rate, now_us);
        let count = bucket.count(rate).min(wanted).min(PERMITS_MAX);
        if count == 0 || now_us < from_us {
            let wait_ms = from_us.saturating_sub(now_us).div_ceil(1_000).max(bucket.wait_ms(rate));
            let is_worth = bucket.is_worth_writing(now_us);
            self.outbox.send(from, PeerMessage::Permits { ask, queue: queue.clone(), count: 0, wait_ms });
            if is_worth {
                self.write_level(home, queue, None);
            }
            return;
        }
        bucket.take(rate, Given { to: from, ask, count, until_us, returned: false });
        let giving = Giving { to: from, ask, queue: queue.clone(), count };
        self.write_level(home, queue, Some(giving));
    }

    /// The bucket of a queue at a home that this node leads; at first as it was last written down.
    fn bucket(&mut self, home: PartitionId, queue: &QueueName, rate: Rate) -> &mut Bucket {
        let over_us = self.config.stretched_us(PERMIT_MS);
        let level = self.partitions[&home].register.level(queue).filter(|_| !mutant!(self.config, LevelForgotten));
        let full = mutant!(self.config, FullBucket);
        let state = self.permits.homes.get_mut(&home).expect("it leads");
        let from_us = state.from_us;
        state.buckets.entry(queue.clone()).or_insert_with(|| match level {
            _ if full => Bucket::default(),
            Some((level, since_us)) => Bucket::resumed(rate, level, since_us, over_us),
            None => Bucket { at_us: from_us, written_us: from_us, ..Bucket::default() },
        })
    }

    /// Writes down what a bucket holds, and with it that permits are given, if any are.
    fn write_level(&mut self, home: PartitionId, queue: QueueName, giving: Option<Giving>) {
        let is_read = self.is_level_read(home);
        let now_us = self.now.mono_us;
        let is_kept = self.partitions[&home].register.table.levels.contains_key(&queue);
        let buckets = self.permits.homes.get_mut(&home).map(|state| &mut state.buckets);
        let bucket = buckets.and_then(|buckets| buckets.get_mut(&queue)).expect("it was just filled");
        (bucket.written, bucket.written_us) = (bucket.parts, now_us);
        let level = is_read.then(|| bucket.level());
        let op = match (level, &giving) {
            (None, None) if !is_kept => return,
            (None, Some(_)) if !is_kept => Op::Clear { upto: super::Viewstamp::default() },
            _ => Op::Level { queue, level },
        };
        self.append(home, op, giving.map(|giving| Waiting::Permits(Box::new(giving))));
    }

    /// Whether a majority can read levels, and no member is known that cannot: it would go without the table.
    fn is_level_read(&self, home: PartitionId) -> bool {
        let cohort = self.partitions[&home].cohort();
        let reads = |node: NodeId| self.speaks(node, Feature::Levels);
        let is_old = |node: NodeId| cohort.knows(node);
        let old = self.outbox.older_than(Feature::Levels.since()).any(is_old);
        !old && cohort.members_quorum(reads) && cohort.next_quorum(reads)
    }

    /// At a home: of queues without a rate no level is kept.
    pub(super) fn forget_levels(&mut self, home: PartitionId) {
        let kept = self.partitions[&home].register.table.levels.keys();
        let over: Vec<QueueName> = kept.filter(|queue| self.rate_of(queue).is_none()).cloned().collect();
        for queue in over {
            if self.may_append(home) {
                self.append(home, Op::Level { queue, level: None }, None);
            }
        }
    }

    /// The home led after it was asked: the permits count.
    pub(super) fn permits_given(&mut self, giving: Giving) {
        let Giving { to, ask, queue, count } = giving;
        if self.speaks(to, Feature::Permits) {
            self.outbox.send(to, PeerMessage::Permits { ask, queue, count, wait_ms: 0 });
        }
    }

    pub(in crate::protocol) fn on_permits(&mut self, ask: u64, queue: &QueueName, count: u64, wait_ms: u64) {
        let (back_us, now_us) = (self.after_ms(UNUSED_MS), self.now.mono_us);
        let Some(granter) = self.permits.granters.get_mut(queue) else { return };
        let Some((_, asked_us)) = granter.asked.take_if(|(asked, _)| *asked == ask) else { return };
        let until_us = asked_us + PERMIT_MS * 1_000;
        if count == 0 {
            granter.again_us = now_us + wait_ms.clamp(1, PERMIT_MS) * 1_000;
            self.timers.set_earliest(Key::Permits, granter.again_us);
        } else if now_us < until_us {
            granter.permits.push_back(Permit { ask, count, back_us, until_us });
            self.timers.set_earliest(Key::Permits, back_us.min(until_us));
            self.tell_waiting(queue, count);
        }
        self.end_waiting(queue);
    }

    /// At a home: permits come back that nobody had a use for.
    pub(in crate::protocol) fn on_permits_back(&mut self, from: NodeId, ask: u64, queue: &QueueName, count: u64) {
        let (home, now_us) = (self.home_of(queue), self.now.mono_us);
        let rate = self.rate_of(queue);
        let Some(state) = self.permits.homes.get_mut(&home) else { return };
        if let Some((bucket, rate)) = state.buckets.get_mut(queue).zip(rate) {
            bucket.fill(rate, now_us);
            bucket.put_back(rate, (from, ask), count);
        }
    }

    /// Gives back what is not used, and asks again where somebody still wants claims.
    pub(in crate::protocol) fn see_to_permits(&mut self) {
        let now_us = self.now.mono_us;
        let queues: Vec<QueueName> = self.permits.granters.keys().cloned().collect();
        for queue in queues {
            let home = self.home_leader(&queue, Feature::Permits);
            let granter = self.permits.granters.get_mut(&queue).expect("just seen");
            let unused = |permit: &Permit| permit.back_us <= now_us || permit.until_us <= now_us;
            let (back, kept): (VecDeque<Permit>, VecDeque<Permit>) = granter.permits.drain(..).partition(unused);
            granter.permits = kept;
            for Permit { ask, count, until_us, .. } in back {
                if let Some(home) = home.filter(|_| now_us < until_us) {
                    self.outbox.send(home, PeerMessage::PermitsBack { ask, queue: queue.clone(), count });
                }
            }
            let over = granter.asked.is_some_and(|(_, asked_us)| now_us >= asked_us + PERMIT_MS * 1_000);
            if over {
                granter.asked = None;
                self.end_waiting(&queue);
            }
            self.ask_for_permits(&queue);
        }
        let wants = |node: &Node, queue: &QueueName| node.demand(queue) > 0 && node.heads.count(queue) > 0;
        let idle = |granter: &Granter| granter.asked.is_none() && granter.permits.is_empty();
        let gone = self.permits.granters.iter().filter(|(queue, granter)| idle(granter) && !wants(self, queue));
        for queue in gone.map(|(queue, _)| queue.clone()).collect::<Vec<_>>() {
            self.permits.granters.remove(&queue);
        }
        let dues = self.permits.granters.values().flat_map(|granter| {
            let asked = granter.asked.map_or(granter.again_us, |(_, asked_us)| asked_us + PERMIT_MS * 1_000);
            let permits = granter.permits.iter().map(|permit| permit.back_us.min(permit.until_us));
            permits.chain([asked.max(now_us + 1_000)])
        });
        if let Some(due_us) = dues.min() {
            self.timers.set(Key::Permits, due_us);
        }
    }

    /// A leader begins to keep buckets.
    pub(super) fn begin_home(&mut self, partition: PartitionId) {
        let wait_us = if mutant!(self.config, FullBucket) { 0 } else { self.config.stretched_us(PERMIT_MS) };
        let home = Home { from_us: self.now.mono_us + wait_us, buckets: BTreeMap::new() };
        self.permits.homes.insert(partition, home);
    }

    /// A leader steps down.
    pub(super) fn end_home(&mut self, partition: PartitionId) {
        self.permits.homes.remove(&partition);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    const RATE: Rate = Rate { claims: 10, per_ms: 1_000 };

    fn give(bucket: &mut Bucket, now_us: u64, ask: u64) -> u64 {
        bucket.fill(RATE, now_us);
        let count = bucket.count(RATE);
        if count > 0 {
            let until_us = now_us + PERMIT_MS * 1_000;
            bucket.take(RATE, Given { to: NodeId(1), ask, count, until_us, returned: false });
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

    /// A permit may be used in the last moment before it is over: what came in until then beside a full burst would be too much.
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

    /// Goal: what is resumed is never more than what would be there without the change. Method: two buckets, of which one is written
    /// down and resumed at once.
    #[test]
    fn a_bucket_that_is_resumed_at_once_is_the_same() {
        let over_us = PERMIT_MS * 1_000;
        for (count, later_us) in (0..=21).flat_map(|count| (0..40).map(move |tenths| (count, tenths * 100_000 + 7))) {
            let mut bucket = Bucket::default();
            bucket.fill(RATE, 60_000_000);
            let given = Given { to: NodeId(1), ask: 1, count, until_us: 60_000_000 + over_us, returned: false };
            bucket.take(RATE, given);
            let mut resumed = Bucket::resumed(RATE, bucket.level(), 60_000_000, over_us);
            bucket.fill(RATE, 60_000_000 + later_us);
            resumed.fill(RATE, 60_000_000 + later_us);
            assert_eq!(resumed.level(), bucket.level(), "{count} given, {later_us} later");
        }
    }

    /// Levels come from other nodes: none is too much for the arithmetic, nor for the burst.
    #[test]
    fn a_level_of_anything_is_no_more_than_the_burst() {
        let over_us = Config::default().stretched_us(PERMIT_MS);
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
