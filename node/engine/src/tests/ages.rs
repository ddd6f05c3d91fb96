//! Lease ages are known in spite of restarts, and never overstated. Clocks of nodes are those of the cluster here, so that true ages
//! are known.

use super::hints::go_on;
use super::*;
use norn_model::consensus::{AgeExchange, LeaseAges};
use norn_model::limits::{RAN_EARLY_MS, RAN_MS_MIN, TOLD_AGE_MS_MIN};
use norn_model::message::Replication;
use norn_model::viewstamp::Viewstamp;

const LEASE_MS: u64 = 20_000;
/// Time that a restart of all nodes may cost: a tenth of the lease.
const LOST_MS: u64 = LEASE_MS / 10;
/// Allowance for an election, and for the check of a lease that ends.
const NOTICED_MS: u64 = 2_500;

/// A held task whose worker has stopped.
struct Held {
    cluster: Cluster,
    id: TaskId,
    token: Token,
    /// When it was claimed.
    since_us: u64,
}

impl Held {
    fn with_config(size: usize, config: &Config) -> Held {
        let mut cluster = Cluster::with_config(size, config);
        cluster.connect_all();
        let id = cluster.enqueue(0, b"x", 1);
        let since_us = cluster.now.mono_us;
        let token = cluster.claim(0, LEASE_MS).remove(0).token;
        Held { cluster, id, token, since_us }
    }

    fn new() -> Held {
        Held::with_config(3, &Config::default())
    }

    fn partition(&self) -> PartitionId {
        self.cluster.nodes[0].partition_of(&self.id)
    }

    /// Advances to this time after the claim.
    fn pass_until(&mut self, ms: u64) {
        let passed_ms = (self.cluster.now.mono_us - self.since_us) / 1_000;
        self.cluster.advance(ms - passed_ms);
    }

    /// Kills these nodes, and restarts them after `down_ms`.
    fn kill(&mut self, indices: &[usize], down_ms: u64) {
        self.cluster.down.extend(indices);
        self.cluster.advance(down_ms);
        indices.iter().for_each(|index| self.cluster.restart(*index));
        self.cluster.connect_all();
        self.check();
    }

    /// Age of the claim at a running node.
    fn age_ms(&self, index: usize) -> u64 {
        let (node, now_us) = (&self.cluster.nodes[index], self.cluster.now.mono_us);
        let consensus = &node.partitions[&self.partition()].consensus;
        let ages = consensus.ages(now_us, &node.config);
        ages.of(consensus.claim_entry(&self.id).expect("it is claimed").renewed).expect("it is held")
    }

    fn check(&self) {
        let true_ms = (self.cluster.now.mono_us - self.since_us) / 1_000;
        let running = (0..self.cluster.nodes.len()).filter(|index| !self.cluster.down.contains(index));
        for index in running {
            assert!(self.age_ms(index) <= true_ms, "node {index}: {} ms of {true_ms}", self.age_ms(index));
        }
    }

    /// Whether the task can be claimed now.
    fn is_claimable(&mut self) -> bool {
        self.cluster.number += 1;
        let claim = claim_of(ClaimId(u128::from(self.cluster.number)), LEASE_MS, 1);
        match self.cluster.ask(0, Request::Claim(claim)) {
            Response::Claimed { tasks, .. } => tasks.iter().any(|task| task.id == self.id && task.token > self.token),
            other => panic!("{other:?}"),
        }
    }

    /// Milliseconds until it can be claimed again, to a tenth of a second.
    fn claimable_after_ms(&mut self) -> u64 {
        while !self.is_claimable() {
            self.check();
            self.cluster.advance(100);
            assert!(self.cluster.now.mono_us < self.since_us + 10 * LEASE_MS * 1_000, "the task never comes back");
        }
        (self.cluster.now.mono_us - self.since_us) / 1_000
    }

    fn own_records(&self, index: usize) -> usize {
        self.cluster.places(index, |record| matches!(record, Record::Ran { .. } | Record::LeaseAges { .. })).len()
    }
}

#[test]
fn a_restart_of_all_takes_little_more_than_the_time_in_which_none_ran() {
    for (size, down_ms) in [(3, 1_300), (3, 10_000), (1, 1_300)] {
        let mut held = Held::with_config(size, &Config::default());
        held.pass_until(10_000);
        let all: Vec<usize> = (0..size).collect();
        held.kill(&all, down_ms);
        let after_ms = held.claimable_after_ms();
        assert!(after_ms >= LEASE_MS, "{after_ms}");
        assert!(after_ms <= LEASE_MS + down_ms + LOST_MS + NOTICED_MS, "{after_ms} with {down_ms} of rest");
    }
}

// S12
/// Goal: while some replica runs at all times, no age is lost: neither the time in which others did not run, nor what they had not
/// written down.
#[test]
fn restarts_one_by_one_take_nothing() {
    for down_ms in [300, 3_500] {
        let mut held = Held::new();
        for (at_ms, index) in [(4_000, 0), (8_000, 1), (12_000, 2)] {
            held.pass_until(at_ms);
            held.kill(&[index], down_ms);
        }
        let after_ms = held.claimable_after_ms();
        assert!(after_ms >= LEASE_MS, "{after_ms}");
        // The new leader adds the possible difference of its wall clock.
        let epsilon_ms = Config::default().clock_epsilon_ms;
        assert!(after_ms <= LEASE_MS + epsilon_ms + 500, "{after_ms} with {down_ms} of rest");
    }
}

/// Goal: where replicas restart more often than a lease is long, the task comes back, and the time that restarts cost does not add up
/// to more than a tenth of the lease.
#[test]
fn a_lease_ends_however_often_all_restart() {
    for life_ms in [6_000, 3_000] {
        let mut held = Held::new();
        let mut starts = 0;
        while !held.is_claimable() {
            held.kill(&[0, 1, 2], 0);
            held.cluster.advance(life_ms);
            starts += 1;
            assert!(starts < 10 * LEASE_MS / life_ms, "the task never comes back");
        }
        let after_ms = (held.cluster.now.mono_us - held.since_us) / 1_000;
        assert!(after_ms >= LEASE_MS, "{after_ms}");
        assert!(after_ms <= LEASE_MS + LOST_MS + 2 * life_ms + NOTICED_MS, "{after_ms} in {starts} starts");
    }
}

/// Goal: a node knows an age that it was sent in its next start too. Method: it was away for long, and is then alone.
#[test]
fn what_was_told_is_written_down() {
    let mut held = Held::new();
    held.pass_until(1_000);
    let other = (held.cluster.leader(&held.id) + 1) % 3;
    held.kill(&[other], 8_000);
    held.cluster.advance(1_000);
    let told_ms = held.age_ms(other);
    assert!(told_ms + TOLD_AGE_MS_MIN + 50 >= (held.cluster.now.mono_us - held.since_us) / 1_000, "{told_ms}");
    held.kill(&[0, 1, 2], 0);
    assert!(held.age_ms(other) + RAN_MS_MIN >= told_ms, "{} of {told_ms}", held.age_ms(other));
}

/// Goal: a snapshot is as good as the log. Method: a node is built from each, at the same time.
#[test]
fn a_snapshot_has_ages() {
    let mut held = Held::new();
    held.pass_until(7_000);
    let (mut cursor, mut records) = (Cursor::default(), Vec::new());
    loop {
        let part = held.cluster.nodes[0].save(&mut cursor, 1);
        records.extend(part.records);
        if part.last {
            break;
        }
    }
    let before_ms = held.age_ms(0);
    held.cluster.logs[0] = records;
    held.kill(&[0], 0);
    assert_eq!(held.age_ms(0), before_ms, "it was saved just now");
}

/// Goal: whichever record about time a log has lost, no lease counts as older than it is.
#[test]
fn a_lost_word_makes_no_lease_older() {
    let mut held = Held::new();
    held.pass_until(3_000);
    held.kill(&[0], 700);
    held.kill(&[1, 2], 0);
    held.pass_until(7_000);
    let words: Vec<u64> = held
        .cluster
        .places(0, |record| matches!(record, Record::Ran { .. } | Record::LeaseAges { .. }))
        .into_iter()
        .collect();
    assert!(words.len() > 5, "{words:?}");
    let whole = held.cluster.logs[0].clone();
    let some = (0..words.len()).flat_map(|from| (from..=words.len()).map(move |to| from..to));
    for lost in some {
        let lost = &words[lost];
        let left = (0..).zip(&whole).filter(|(place, _)| !lost.contains(place)).map(|(_, record)| record.clone());
        held.cluster.logs[0] = left.collect();
        held.cluster.restart(0);
        held.check();
    }
}

/// Goal: when a whole table arrives, the age of what it has in common with the one before is still known.
#[test]
fn a_table_that_comes_whole_makes_no_lease_younger() {
    let mut held = Held::new();
    held.pass_until(5_000);
    let (partition, now) = (held.partition(), held.cluster.now);
    let follower = (held.cluster.leader(&held.id) + 1) % 3;
    let before_ms = held.age_ms(follower);
    let consensus = &mut held.cluster.nodes[follower].partitions.get_mut(&partition).unwrap().consensus;
    let (at, table) = (consensus.viewstamp, consensus.table.clone());
    consensus.install(Viewstamp { length: at.length + 1, ..at }, Some(table), now, &Config::default());
    assert!(before_ms > 4_000 && held.age_ms(follower) == before_ms, "{} of {before_ms}", held.age_ms(follower));
}

/// Goal: an age of one epoch is not applied to another, as a leader may append before it learns that it is deposed.
#[test]
fn an_age_is_of_its_epoch() {
    let mut held = Held::new();
    held.pass_until(2_000);
    let partition = held.partition();
    let leader = held.cluster.leader(&held.id);
    let consensus = &held.cluster.nodes[leader].partitions[&partition].consensus;
    let Viewstamp { epoch, length } = consensus.claim_entry(&held.id).unwrap().renewed;
    let mut told = |at, age_ms| {
        let message =
            PeerMessage::Replication(Replication::LeaseAges { partition, asks: false, ages: vec![(at, age_ms)] });
        let from = NodeId((leader as u128 + 1) % 3 + 1);
        held.cluster.queue.push_back((leader, Event::Peer { from, message }));
        held.cluster.drain();
        held.age_ms(leader)
    };
    let own_ms = told(Viewstamp { epoch: epoch + 1, length: 0 }, 9_000);
    assert_eq!(told(Viewstamp { epoch, length: length - 1 }, 9_000), own_ms, "it is of an operation before it");
    assert_eq!(told(Viewstamp { epoch, length: length + 1 }, 9_000), 9_000);
}

/// Goal: a leader learns the ages of all followers, not only the first. Method: a follower that has not asked yet knows the greatest
/// age; another one sends the leader a smaller one, which the leader passes on.
#[test]
fn whoever_is_told_unasked_still_says_what_it_knows() {
    let mut held = Held::new();
    held.pass_until(2_000);
    let partition = held.partition();
    let leader = held.cluster.leader(&held.id);
    let (first, second) = ((leader + 1) % 3, (leader + 2) % 3);
    let (now_us, config) = (held.cluster.now.mono_us, Config::default());
    let consensus = &mut held.cluster.nodes[second].partitions.get_mut(&partition).unwrap().consensus;
    let at = consensus.claim_entry(&held.id).unwrap().renewed;
    consensus.age_exchange = AgeExchange::Unasked;
    assert!(consensus.take_ages(&LeaseAges::new(vec![(at, 15_000)]), now_us, 0, &config));
    let message = PeerMessage::Replication(Replication::LeaseAges { partition, asks: true, ages: vec![(at, 9_000)] });
    held.cluster.queue.push_back((leader, Event::Peer { from: NodeId(first as u128 + 1), message }));
    held.cluster.drain();
    assert!((9_000..10_000).contains(&held.age_ms(leader)), "{}", held.age_ms(leader));
    // A calm follower looks at its partitions once in four heartbeats.
    held.cluster.advance(5 * config.heartbeat_ms);
    for index in 0..3 {
        assert!(held.age_ms(index) >= 15_000, "node {index}: {}", held.age_ms(index));
    }
}

/// Goal: a leader that does not answer is not sent the same age with each heartbeat, and gets it in the end. Method: requests to it are
/// lost.
#[test]
fn a_leader_that_does_not_answer_is_asked_again_ever_less_often() {
    let mut held = Held::new();
    let leader = held.cluster.leader(&held.id);
    let mut asked = 0;
    let kept = |index, event: &Event| {
        let asks = matches!(
            event,
            Event::Peer { message: PeerMessage::Replication(Replication::LeaseAges { asks: true, .. }), .. }
        );
        !(asks && index == leader)
    };
    // After a restart each of them has to ask.
    for index in [(leader + 1) % 3, (leader + 2) % 3] {
        held.cluster.restart(index);
        held.cluster.connect_all();
    }
    go_on(&mut held.cluster, 5_000, |_, index, event| {
        let kept = kept(index, &event);
        asked += usize::from(!kept);
        kept.then_some(event)
    });
    assert!((6..=20).contains(&asked), "{asked}");
    let (partition, mut answered) = (held.partition(), BTreeSet::new());
    held.cluster.advance(1_100);
    for (index, node) in held.cluster.nodes.iter().enumerate() {
        if matches!(node.partitions[&partition].consensus.age_exchange, AgeExchange::Answered(_)) {
            answered.insert(index);
        }
    }
    assert_eq!(answered.len(), 2, "{answered:?}");
}

/// Goal: no lease becomes older if one start could not read how long the node had run before, and the next start can.
#[test]
fn a_count_that_went_back_makes_no_lease_older() {
    let mut held = Held::new();
    held.pass_until(6_000);
    let whole = held.cluster.logs[0].clone();
    let says_how_long = |record: &Record| matches!(record, Record::Ran { .. } | Record::LeaseAges { .. });
    // The log is as long as before, as other nodes remember its length.
    let words = held.cluster.logs[0].iter_mut().filter(|record| says_how_long(record));
    words.for_each(|word| *word = Record::Ran { us: 0 });
    let read = held.cluster.logs[0].len();
    held.cluster.restart(0);
    held.cluster.connect_all();
    held.cluster.advance(2_000);
    held.since_us = held.cluster.now.mono_us;
    let renewal = Request::Renew { items: vec![(held.id, held.token)], lease_ms: None };
    assert!(matches!(held.cluster.ask(1, renewal), Response::Renewed(results) if results[0].is_ok()));
    held.cluster.advance(500);
    let since = held.cluster.logs[0].split_off(read);
    assert!(since.iter().any(|record| matches!(record, Record::Ran { us } if *us < 6_000_000)), "it counts anew");
    held.cluster.logs[0] = [whole, since].concat();
    held.cluster.begin_restart(0, 99);
    held.check();
}

/// Goal: without other writes the log grows little, and not at all once no lease runs.
#[test]
fn little_is_written_for_it_and_nothing_without_leases() {
    let mut held = Held::new();
    held.pass_until(1_000);
    let before = held.own_records(0);
    held.pass_until(LEASE_MS);
    let written = held.own_records(0) - before;
    // At most as often as a lease of that length may ask, and more often where the node has just started.
    let most = LEASE_MS / RAN_MS_MIN + 12 * (RAN_MS_MIN / RAN_EARLY_MS).ilog2() as u64;
    assert!((10..=most as usize).contains(&written), "{written} of at most {most}");
    held.cluster.advance(10_000);
    let before = held.own_records(0);
    held.cluster.advance(60_000);
    assert_eq!(held.own_records(0), before, "the lease is over");
}
