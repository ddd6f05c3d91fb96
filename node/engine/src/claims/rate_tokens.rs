//! Rate limit of a queue: at most N claims in a time, in the whole cluster (`queue set Q rate N/s`).
//!
//! A token bucket. Each queue has a coordinator partition: the one that a hash of its name selects. The leader of the coordinator partition
//! keeps a bucket for the queue, into which rate tokens drip at the rate. It gives them to nodes that ask, to each for all
//! partitions that the node leads; each grant of the queue uses one up. So in any stretch of time there are at most as many grants as
//! drip into the bucket in it, plus what the bucket holds. The bucket holds what drips in two seconds, and one more. A rate token that was
//! given takes up its place in the bucket until it has surely expired, after one second.
//!
//! - **Rate tokens expire** a second after they were *asked for*, by the clock of the node that asked. So no home has to take them back,
//!   and those that are lost on their way do no harm. A node that finds no use for them gives them back before, so that what drips
//!   slowly is not lost with a node that was quicker to ask than to find a worker.
//! - **A rate token whose grant is voided** (`broker/confirm.rs`) was used by no client. Once the void is committed, its leader gives the
//!   rate token back as well (`grant_costs.rs`), mostly long after it has expired. The coordinator puts it back into the bucket as if it
//!   had never been given. Had it stayed there, the bucket might have been full at some moment since, and what dripped then would have run
//!   over. So no more is put back than the least free space since (`Past::room`), and the grants that were not voided keep to the rate in
//!   any stretch of time. A coordinator remembers what it gave for as long as grants go back; a new leader of the coordinator partition
//!   does not know it.
//! - **A new leader of the coordinator partition** gives nothing before all rate tokens of earlier leaders have expired. It can tell that
//!   from when it was established: rate tokens are sent once an operation that was appended *after the request* is committed. So the leader
//!   that sent them led after they were asked for, and the next leader was established later than that.
//! - **Accrued rate tokens outlive a leader.** That operation records what is left in the bucket (`Op::Level`), so no later leader can
//!   miss rate tokens that were sent. A new leader begins with that level and what has dripped since it applied the operation, by its
//!   own monotonic clock (`claim_table/levels.rs`): never more than its predecessor would have by then, as it applied the operation
//!   later than the predecessor appended it. A process that has started since counts from its start. So that this is not much less,
//!   the level is written again while claims wait for the next rate token, when an eighth of a rate token or five seconds' worth has come
//!   in, and more seldom without requests (`keep.rs`). What came in since is lost if the new leader has started since, and so are
//!   rate tokens that were out, or returned, when the leader fell.
//!
//! At a granting leader, a queue without a rate token has no head, as if it were empty. Leaders ask for rate tokens while there is work and
//! demand for it (`demand.rs`), again when the coordinator expects the next rate token, and at least once a second. A coordinator without a
//! leader grants nothing.

pub mod bucket;
pub mod keep;

use self::bucket::{Bucket, Given};
use crate::Node;
use crate::context::timers::Key;
use norn_model::claim_table::table::Op;
use norn_model::config::mutant;
use norn_model::consensus::{Giving, Waiting};
use norn_model::limits::RATE_TOKENS_MAX;
use norn_model::message::Limiting;
use norn_model::ring;
use norn_wire::ids::TAG_BITS;
use norn_wire::membership::Rate;
use norn_wire::{NodeId, PartitionId, QueueName};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use xxhash_rust::xxh3::xxh3_64;

/// Lifetime of a rate token, from when it was asked for.
const RATE_TOKEN_MS: u64 = 1_000;
/// Age at which an unused rate token is given back. Calls that come last need some time (`broker/silent.rs`).
const UNUSED_MS: u64 = 900;
/// Requests for which a granter remembers how many of their rate tokens went back.
const BACKS_MAX: usize = 1_000;
/// Pause before a coordinator without a leader is asked again.
const UNCOORDINATED_MS: u64 = 100;

/// Buckets of the queues whose home is a partition that this node leads.
#[derive(Debug)]
struct LedCoordinator {
    /// No rate tokens are given before this.
    from_us: u64,
    /// A bucket without a known level holds what has come in since this time.
    blank_us: u64,
    buckets: BTreeMap<QueueName, Bucket>,
    /// Whether the settings of queues may have changed since the buckets were last compared with them.
    is_stale: bool,
}

/// Rate tokens that this node was given by one request.
#[derive(Debug)]
struct RateToken {
    request_id: u64,
    count: u64,
    back_us: u64,
    until_us: u64,
}

/// Rate tokens of a limited queue at a node that grants its tasks, and its open request.
#[derive(Debug, Default)]
struct Granter {
    /// Open request, and when it was sent.
    asked: Option<(u64, u64)>,
    again_us: u64,
    rate_tokens: VecDeque<RateToken>,
}

/// Rate tokens that this node gave back, by queue and by the request that brought them. The coordinator is sent the total each time, so
/// that a duplicate or a lost message does no harm.
#[derive(Debug, Default)]
struct Backs {
    counts: BTreeMap<(QueueName, u64), u64>,
    order: VecDeque<(QueueName, u64)>,
}

impl Backs {
    /// Adds to the count of a request. Returns its total.
    fn add(&mut self, queue: &QueueName, request_id: u64, more: u64) -> u64 {
        let of = (queue.clone(), request_id);
        if !self.counts.contains_key(&of) {
            self.order.push_back(of.clone());
        }
        if self.order.len() > BACKS_MAX
            && let Some(first) = self.order.pop_front()
        {
            self.counts.remove(&first);
        }
        assert!(self.order.len() <= BACKS_MAX, "permits that went back are counted for too many requests");
        let count = self.counts.entry(of).or_default();
        *count += more;
        *count
    }
}

/// Rate tokens: the coordinators that this node leads, and the rate tokens that it was given.
#[derive(Debug, Default)]
pub struct RateTokens {
    coordinators: BTreeMap<PartitionId, LedCoordinator>,
    granters: BTreeMap<QueueName, Granter>,
    backs: Backs,
    /// When it was last checked which levels are to be written.
    kept_us: u64,
}

impl Node {
    fn rate_of(&self, queue: &QueueName) -> Option<Rate> {
        self.roster.policies.get(queue)?.rate
    }

    /// The coordinator partition of a queue, for its rate and concurrency.
    pub(crate) fn coordinator_of(&self, queue: &QueueName) -> PartitionId {
        let partitions = self.genesis.as_ref().expect("asked only in a cluster").partitions;
        let hash = xxh3_64(queue.as_str().as_bytes());
        ring::partition_of((hash >> (u64::BITS - TAG_BITS)) as u32, partitions)
    }

    /// Leader of that partition, if it is known and can be asked.
    pub(crate) fn coordinator_leader(&self, queue: &QueueName) -> Option<NodeId> {
        self.leader_of(self.coordinator_of(queue))
    }

    /// How many tasks of a queue may be granted by its rate now; `None`: any number.
    pub(crate) fn rate_tokens(&self, queue: &QueueName) -> Option<u64> {
        self.rate_of(queue)?;
        let now_us = self.now.mono_us;
        let rate_tokens =
            self.claims.rate_tokens.granters.get(queue).into_iter().flat_map(|granter| &granter.rate_tokens);
        Some(rate_tokens.filter(|rate_token| rate_token.until_us > now_us).map(|rate_token| rate_token.count).sum())
    }

    /// Uses a rate token for a grant. Returns the request that brought it; `None` if the queue has no rate.
    pub(crate) fn use_rate_token(&mut self, queue: &QueueName) -> Option<u64> {
        if self.rate_of(queue).is_none() || mutant!(self.config, PermitsReused) {
            return None;
        }
        let now_us = self.now.mono_us;
        let granter = self.claims.rate_tokens.granters.get_mut(queue).expect("what has permits is known");
        let mut rate_tokens = granter.rate_tokens.iter_mut();
        let rate_token = rate_tokens.find(|rate_token| rate_token.until_us > now_us && rate_token.count > 0);
        let rate_token = rate_token.expect("nothing is granted without a permit");
        rate_token.count -= 1;
        let request_id = rate_token.request_id;
        granter.rate_tokens.retain(|rate_token| rate_token.count > 0);
        Some(request_id)
    }

    /// Gives rate tokens of grants back whose voids are committed, and asks the coordinator again where there is demand.
    pub(crate) fn unuse_rate_tokens(&mut self, rate_tokens: Vec<(QueueName, u64)>) {
        let queues: BTreeSet<QueueName> = rate_tokens.iter().map(|(queue, _)| queue.clone()).collect();
        rate_tokens.into_iter().for_each(|(queue, request_id)| self.give_rate_tokens_back(&queue, request_id, 1));
        for queue in queues {
            if let Some(granter) = self.claims.rate_tokens.granters.get_mut(&queue) {
                granter.again_us = 0;
            }
            self.ask_for_rate_tokens(&queue);
        }
    }

    fn give_rate_tokens_back(&mut self, queue: &QueueName, request_id: u64, more: u64) {
        if let Some(coordinator) = self.coordinator_leader(queue) {
            let count = self.claims.rate_tokens.backs.add(queue, request_id, more);
            self.outbox.send(coordinator, Limiting::PermitsBack { request_id, queue: queue.clone(), count });
        }
    }

    /// Whether a request for rate tokens is open and no rate token is here.
    pub(crate) fn awaits_rate_tokens(&self, queue: &QueueName) -> bool {
        let asked = self.claims.rate_tokens.granters.get(queue).is_some_and(|granter| granter.asked.is_some());
        asked && self.rate_tokens(queue) == Some(0)
    }

    /// Asks a queue's home for rate tokens if there is work here and demand for it.
    pub(crate) fn ask_for_rate_tokens(&mut self, queue: &QueueName) {
        let Some(has) = self.rate_tokens(queue) else { return };
        let now_us = self.now.mono_us;
        let wanted = self.demand(queue).min(self.claims.heads.count(queue)).min(RATE_TOKENS_MAX);
        if wanted <= has || self.policy_of(queue).paused {
            return;
        }
        let coordinator = self.coordinator_leader(queue);
        let (request_id, again_us) = (self.pending_requests.number(), self.after_ms(UNCOORDINATED_MS));
        let granter = self.claims.rate_tokens.granters.entry(queue.clone()).or_default();
        let is_open = granter.asked.is_some_and(|(_, asked_us)| now_us < asked_us + RATE_TOKEN_MS * 1_000);
        if is_open || now_us < granter.again_us {
            return self.timers.set_if_none(Key::RateTokens, again_us);
        }
        granter.asked = None;
        if let Some(coordinator) = coordinator {
            granter.asked = Some((request_id, now_us));
            let (queue, wanted) = (queue.clone(), wanted - has);
            self.outbox.send(coordinator, Limiting::PermitAsk { request_id, queue, wanted });
        } else {
            granter.again_us = again_us;
        }
        self.timers.set_if_none(Key::RateTokens, again_us);
    }

    /// At a coordinator: handles a request for rate tokens.
    pub(crate) fn on_permit_ask(&mut self, from: NodeId, request_id: u64, queue: QueueName, wanted: u64) {
        let coordinator = self.coordinator_of(&queue);
        if !self.may_append(coordinator) {
            return;
        }
        let now_us = self.now.mono_us;
        let until_us = now_us + self.config.stretched_us(RATE_TOKEN_MS);
        let rate = self.rate_of(&queue);
        let Some(state) = self.claims.rate_tokens.coordinators.get(&coordinator) else { return };
        let Some(rate) = rate else {
            return self.outbox.send(from, Limiting::Permits { request_id, queue, count: 0, wait_ms: RATE_TOKEN_MS });
        };
        let from_us = state.from_us;
        let bucket = self.bucket(coordinator, &queue, rate);
        if !bucket.heard.is_news(from, request_id) {
            return;
        }
        bucket.fill(rate, now_us);
        let count = bucket.count(rate).min(wanted).min(RATE_TOKENS_MAX);
        if count == 0 || now_us < from_us {
            let wait_ms = from_us.saturating_sub(now_us).div_ceil(1_000).max(bucket.wait_ms(rate));
            let wait_ms = wait_ms.clamp(1, RATE_TOKEN_MS);
            let is_worth = bucket.is_worth_writing(now_us);
            self.outbox.send(from, Limiting::Permits { request_id, queue: queue.clone(), count: 0, wait_ms });
            if is_worth {
                self.write_level(coordinator, queue, rate, None);
            }
            return;
        }
        bucket.take(rate, Given { to: from, request_id, count, back: 0, until_us });
        let giving = Giving { to: from, request_id, queue: queue.clone(), count };
        self.write_level(coordinator, queue, rate, Some(giving));
    }

    /// The bucket of a queue at a coordinator that this node leads. It is made from the last written level.
    fn bucket(&mut self, coordinator: PartitionId, queue: &QueueName, rate: Rate) -> &mut Bucket {
        let over_us = self.config.stretched_us(RATE_TOKEN_MS);
        let level =
            self.partitions[&coordinator].consensus.level(queue).filter(|_| !mutant!(self.config, LevelForgotten));
        let full = mutant!(self.config, FullBucket);
        let state = self.claims.rate_tokens.coordinators.get_mut(&coordinator).expect("it leads");
        let blank_us = state.blank_us;
        state.buckets.entry(queue.clone()).or_insert_with(|| match level {
            _ if full => Bucket::default(),
            Some((level, since_us)) => Bucket::resumed(rate, level, since_us, over_us),
            None => Bucket::empty(blank_us),
        })
    }

    /// Writes down the level of a bucket, and that rate tokens are given, if any are.
    fn write_level(&mut self, coordinator: PartitionId, queue: QueueName, rate: Rate, giving: Option<Giving>) {
        let now_us = self.now.mono_us;
        let buckets = self.claims.rate_tokens.coordinators.get_mut(&coordinator).map(|state| &mut state.buckets);
        let bucket = buckets.and_then(|buckets| buckets.get_mut(&queue)).expect("it was just filled");
        bucket.note_written(rate, now_us);
        let (level, keep_us) = (Some(bucket.level()), bucket.keep_us(rate));
        keep_us.into_iter().for_each(|keep_us| self.keep_levels_at(keep_us));
        self.append(
            coordinator,
            Op::Level { queue, level },
            giving.map(|giving| Waiting::RateTokens(Box::new(giving))),
        );
    }

    /// The operation is committed, so this leader led after the request: sends the rate tokens.
    pub(crate) fn rate_tokens_given(&mut self, giving: Giving) {
        let Giving { to, request_id, queue, count } = giving;
        self.outbox.send(to, Limiting::Permits { request_id, queue, count, wait_ms: 0 });
    }

    pub(crate) fn on_permits(&mut self, request_id: u64, queue: &QueueName, count: u64, wait_ms: u64) {
        let now_us = self.now.mono_us;
        let Some(granter) = self.claims.rate_tokens.granters.get_mut(queue) else { return };
        let Some((_, asked_us)) = granter.asked.take_if(|(asked, _)| *asked == request_id) else { return };
        let (back_us, until_us) = (asked_us + UNUSED_MS * 1_000, asked_us + RATE_TOKEN_MS * 1_000);
        if count == 0 {
            granter.again_us = now_us + wait_ms.clamp(1, RATE_TOKEN_MS) * 1_000;
            self.timers.set_earliest(Key::RateTokens, granter.again_us);
        } else if now_us < until_us {
            granter.rate_tokens.push_back(RateToken { request_id, count, back_us, until_us });
            self.timers.set_earliest(Key::RateTokens, back_us.min(until_us));
            self.tell_waiting(queue, count);
        }
        self.end_waiting(queue);
    }

    /// At a coordinator: puts back unused rate tokens; `count` is the total for the request that brought them.
    pub(crate) fn on_permits_back(&mut self, from: NodeId, request_id: u64, queue: &QueueName, count: u64) {
        let (coordinator, now_us) = (self.coordinator_of(queue), self.now.mono_us);
        let rate = self.rate_of(queue);
        let Some(state) = self.claims.rate_tokens.coordinators.get_mut(&coordinator) else { return };
        if let Some((bucket, rate)) = state.buckets.get_mut(queue).zip(rate) {
            bucket.fill(rate, now_us);
            bucket.put_back(rate, (from, request_id), count);
        }
    }

    /// Gives unused rate tokens back, and asks again where there is still demand.
    pub(crate) fn see_to_rate_tokens(&mut self) {
        let now_us = self.now.mono_us;
        let queues: Vec<QueueName> = self.claims.rate_tokens.granters.keys().cloned().collect();
        for queue in queues {
            let granter = self.claims.rate_tokens.granters.get_mut(&queue).expect("just seen");
            let unused = |rate_token: &RateToken| rate_token.back_us <= now_us || rate_token.until_us <= now_us;
            let (back, kept): (VecDeque<RateToken>, VecDeque<RateToken>) =
                granter.rate_tokens.drain(..).partition(unused);
            granter.rate_tokens = kept;
            for RateToken { request_id, count, .. } in
                back.into_iter().filter(|rate_token| now_us < rate_token.until_us)
            {
                self.give_rate_tokens_back(&queue, request_id, count);
            }
            let granter = self.claims.rate_tokens.granters.get_mut(&queue).expect("just seen");
            let over = granter.asked.is_some_and(|(_, asked_us)| now_us >= asked_us + RATE_TOKEN_MS * 1_000);
            if over {
                granter.asked = None;
                self.end_waiting(&queue);
            }
            self.ask_for_rate_tokens(&queue);
        }
        let wants = |node: &Node, queue: &QueueName| node.demand(queue) > 0 && node.claims.heads.count(queue) > 0;
        let idle = |granter: &Granter| granter.asked.is_none() && granter.rate_tokens.is_empty();
        let gone =
            self.claims.rate_tokens.granters.iter().filter(|(queue, granter)| idle(granter) && !wants(self, queue));
        for queue in gone.map(|(queue, _)| queue.clone()).collect::<Vec<_>>() {
            self.claims.rate_tokens.granters.remove(&queue);
        }
        let dues = self.claims.rate_tokens.granters.values().flat_map(|granter| {
            let asked = granter.asked.map_or(granter.again_us, |(_, asked_us)| asked_us + RATE_TOKEN_MS * 1_000);
            let rate_tokens = granter.rate_tokens.iter().map(|rate_token| rate_token.back_us.min(rate_token.until_us));
            rate_tokens.chain([asked.max(now_us + 1_000)])
        });
        if let Some(due_us) = dues.min() {
            self.timers.set(Key::RateTokens, due_us);
        }
    }

    /// A leader begins to keep buckets.
    pub(crate) fn begin_coordinator(&mut self, partition: PartitionId) {
        let wait_us = if mutant!(self.config, FullBucket) { 0 } else { self.config.stretched_us(RATE_TOKEN_MS) };
        let from_us = self.now.mono_us + wait_us;
        let coordinator = LedCoordinator { from_us, blank_us: from_us, buckets: BTreeMap::new(), is_stale: true };
        self.claims.rate_tokens.coordinators.insert(partition, coordinator);
        self.keep_levels_at(from_us);
    }

    /// A leader steps down.
    pub(crate) fn end_coordinator(&mut self, partition: PartitionId) {
        self.claims.rate_tokens.coordinators.remove(&partition);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_went_back_is_counted_for_the_latest_questions() {
        let (mut backs, queue) = (Backs::default(), QueueName::new("mail").expect("a name"));
        for request_id in 0..3 * BACKS_MAX as u64 {
            assert_eq!((backs.add(&queue, request_id, 2), backs.add(&queue, request_id, 1)), (2, 3));
        }
        assert_eq!((backs.counts.len(), backs.order.len()), (BACKS_MAX, BACKS_MAX));
    }
}
