//! Accrued rate tokens of a rate outlive the leader that counted them.

use super::claim_rates::{queue_with, rate};
use super::policies::is_changed;
use super::*;
use crate::claims::rate_tokens::keep::WRITES_MAX;
use norn_model::claim_table::levels::Level;
use norn_model::claim_table::table::Op;
use norn_model::limits::POLICIES_MAX;
use norn_model::message::{Limiting, Peering};
use norn_wire::membership::QueueSetting;

impl Cluster {
    /// The level of the queue in the table of its coordinator partition's leader.
    fn level(&self) -> Option<Level> {
        let queue = QueueName::new("mail").expect("a name");
        let coordinator = self.nodes[0].coordinator_of(&queue);
        let consensus = &self.nodes[self.coordinator("mail")].partitions[&coordinator].consensus;
        consensus.level(&queue).map(|(level, _)| level)
    }

    fn restart_connected(&mut self, index: usize) {
        self.restart(index);
        self.connect_all();
    }

    /// Stops the leader of the queue's home, and waits for the next one.
    fn lose_coordinator(&mut self) -> usize {
        let lost = self.coordinator("mail");
        self.down.insert(lost);
        let queue = QueueName::new("mail").expect("a name");
        let coordinator = self.nodes[0].coordinator_of(&queue);
        self.run_until(|cluster| {
            let others = (0..3).filter(|index| *index != lost);
            others
                .map(|index| &cluster.nodes[index].partitions[&coordinator].consensus)
                .any(|consensus| consensus.established())
        });
        lost
    }
}

/// A queue with work in each partition.
fn worked(setting: QueueSetting) -> Cluster {
    let mut cluster = queue_with(setting);
    cluster.check_every = 256;
    cluster.spread_tasks(40);
    cluster
}

/// Nodes restart one after the other, faster than a rate token comes in, as by an update that never ends.
#[test]
fn a_slow_rate_is_granted_while_nodes_restart_in_turn() {
    let mut cluster = worked(rate(1, 60_000));
    let began_us = cluster.now.mono_us;
    let mut claimed = 0;
    for turn in 0..24 {
        claimed += cluster.claimed_in(11_000);
        cluster.restart_connected(turn % 3);
    }
    let most = 1 + (cluster.now.mono_us - began_us) / 60_000_000;
    assert!((3..=most).contains(&claimed), "{claimed} in 264 s, at most {most}");
}

/// The same, though no time between two restarts is an eighth of a rate token.
#[test]
fn a_very_slow_rate_earns_while_nodes_restart_in_turn() {
    let mut cluster = worked(rate(1, 3_600_000));
    for turn in 0..24 {
        cluster.claimed_in(11_000);
        cluster.restart_connected(turn % 3);
    }
    let whole = cluster.now.mono_us / 3_600;
    let level = cluster.level().expect("it was written").millionths;
    assert!((whole / 2..=whole).contains(&level), "{level} of {whole} millionths");
}

#[test]
fn the_next_leader_begins_with_what_was_earned_and_gives_no_permit_twice() {
    let mut cluster = worked(rate(1, 60_000));
    assert_eq!(cluster.claimed_in(50_000), 0, "it began empty");
    let first = cluster.lose_coordinator();
    assert_eq!(cluster.claimed_in(13_000), 1, "a minute is over");
    cluster.restart_connected(first);
    cluster.claimed_in(2_000);
    cluster.lose_coordinator();
    assert_eq!(cluster.claimed_in(40_000), 0, "that was all");
}

/// A process cannot tell how long it was away: that time is lost, and what was written before is not.
#[test]
fn where_all_nodes_restart_the_level_is_what_was_written() {
    let mut cluster = worked(rate(1, 60_000));
    let began_us = 2_000_000;
    cluster.claimed_in(30_000);
    // It has accrued since the leader of the coordinator partition began to count.
    let whole = (cluster.now.mono_us - began_us) / 60;
    let before = cluster.level().expect("it was written").millionths;
    assert!((whole - 150_000..=whole).contains(&before), "{before} of {whole} millionths");
    cluster.now.mono_us += 300_000_000;
    (0..3).for_each(|index| cluster.restart(index));
    cluster.connect_all();
    assert_eq!(cluster.claimed_in(25_000), 0, "the time between counts for nothing");
    assert_eq!(cluster.claimed_in(25_000), 1);
}

/// Content of the bucket, in millionths, after nodes have restarted in turn and no client has claimed, and its upper bound.
fn earned_unclaimed(cluster: &mut Cluster, per_s: u64, turns: usize) -> (u64, u64) {
    for turn in 0..turns {
        cluster.advance(11_000);
        cluster.restart_connected(turn % 3);
    }
    // By then it is written again.
    cluster.advance(60_000);
    (cluster.level().map_or(0, |level| level.millionths), cluster.now.mono_us / per_s)
}

/// Goal: a bucket without claims so far loses little with its leaders, and gives its rate token when that has accrued, once.
#[test]
fn a_slow_rate_from_which_nobody_claims_is_earned_while_nodes_restart_in_turn() {
    let mut cluster = worked(rate(1, 600_000));
    let (level, whole) = earned_unclaimed(&mut cluster, 600, 48);
    assert!((whole * 4 / 5..=whole).contains(&level), "{level} of {whole} millionths");
    let began_us = cluster.now.mono_us;
    cluster.run_until(|cluster| cluster.now.mono_us / 600 > 1_000_000);
    assert!(began_us < cluster.now.mono_us, "no permit was earned before");
    assert_eq!(cluster.claimed_in(90_000), 1, "48 restarts lost less than two seconds each");
    cluster.restart_connected(0);
    assert_eq!(cluster.claimed_in(10_000), 0, "that was all");
}

/// Goal: the levels that are written without claims are what saves the accrued rate tokens.
#[cfg(feature = "mutants")]
#[test]
fn without_levels_that_are_written_early_nothing_is_earned() {
    let mut cluster = worked(rate(1, 600_000));
    let config = Config { mutant: Some(norn_model::config::Mutant::LevelsUnkept), ..Config::default() };
    cluster.nodes.iter_mut().for_each(|node| node.config = Arc::new(config.clone()));
    (0..3).for_each(|index| cluster.restart_connected(index));
    cluster.advance(2_000);
    let before = cluster.level().map_or(0, |level| level.millionths);
    assert_eq!(earned_unclaimed(&mut cluster, 600, 8).0, before);
}

impl Cluster {
    /// Number of levels in the log of the leader of the queue's home.
    fn written(&self, queue: &str) -> usize {
        let log = self.logs[self.coordinator(queue)].iter();
        let ops = log.filter_map(|record| match record {
            Record::Ops { ops, .. } => Some(ops),
            _ => None,
        });
        ops.flatten().filter(|op| matches!(&***op, Op::Level { level: Some(_), .. })).count()
    }
}

#[test]
fn a_level_is_written_seldom_where_nobody_claims_and_no_more_once_the_bucket_is_full() {
    let mut cluster = queue_with(rate(1, 80_000));
    cluster.check_every = 256;
    let before = cluster.written("mail");
    cluster.advance(90_000);
    let written = cluster.written("mail");
    assert!((8..=10).contains(&(written - before)), "{before} to {written}: each eighth");
    assert!(cluster.level().expect("it was written").millionths >= 950_000);
    cluster.advance(200_000);
    assert_eq!(cluster.written("mail"), written);
}

/// Goal: the content of a bucket is written, whatever share of a full one it was by the rate before.
#[test]
fn a_level_is_written_after_its_rate_has_changed() {
    let mut cluster = queue_with(rate(1, 800_000));
    cluster.check_every = 256;
    cluster.advance(400_000);
    assert!(is_changed(&cluster.set(0, "mail", rate(1, 400_000))));
    cluster.advance(62_000);
    let level = cluster.level().expect("it was written").millionths;
    assert!((520_000..700_000).contains(&level), "{level}");
}

/// Goal: a leader that newly leads a great many such queues writes a bounded number of levels in a second, and all of them in the end.
#[test]
fn levels_of_many_queues_are_written_bit_by_bit() {
    let mut cluster = queue_with(rate(1, 3_600_000));
    let mut roster = (*cluster.nodes[0].roster).clone();
    let policy = roster.policies.values().next().expect("one is set").clone();
    let names = (0..POLICIES_MAX - 1).map(|number| QueueName::new(&format!("q{number}")).expect("a name"));
    roster.policies.extend(names.map(|name| (name, policy.clone())));
    roster.version += 1;
    let roster = Arc::new(roster);
    (0..3).for_each(|index| {
        cluster.deliver((index + 1) % 3, index, PeerMessage::Peering(Peering::Roster { roster: roster.clone() }))
    });
    let written = |cluster: &Cluster| {
        let mut all = [0; 3];
        for (index, node) in cluster.nodes.iter().enumerate() {
            let led = node.led.iter().map(|coordinator| node.partitions[coordinator].consensus.table.levels.len());
            all[index] = led.sum();
        }
        all
    };
    for _ in 0..9 {
        let before = written(&cluster);
        cluster.advance(1_000);
        let more = written(&cluster).into_iter().zip(before).map(|(after, before)| after - before);
        more.for_each(|more| assert!(more <= WRITES_MAX, "{more} in a second"));
    }
    assert_eq!(written(&cluster).iter().sum::<usize>(), POLICIES_MAX);
}

/// A queue whose burst was claimed; returns how many more are claimed at once when its rate is removed and set again. A leader that
/// does not know that yet asks meanwhile.
fn claimed_when_set_again(config: &Config) -> u64 {
    let mut cluster = worked(rate(1, 60_000));
    cluster.nodes.iter_mut().for_each(|node| node.config = Arc::new(config.clone()));
    cluster.advance(70_000);
    assert_eq!(cluster.claimed_in(2_000), 1, "the burst");
    assert!(is_changed(&cluster.set(0, "mail", QueueSetting::Rate(None))));
    cluster.advance(1_500);
    assert_eq!(cluster.level(), None);
    let (coordinator, queue) = (cluster.coordinator("mail"), QueueName::new("mail").expect("a name"));
    let other = (coordinator + 1) % 3;
    let request_id = cluster.nodes[other].pending_requests.number();
    cluster.deliver(other, coordinator, PeerMessage::Limiting(Limiting::PermitAsk { request_id, queue, wanted: 1 }));
    assert!(is_changed(&cluster.set(0, "mail", rate(1, 60_000))));
    let claimed = cluster.claimed_in(50_000);
    assert!(claimed > 0 || cluster.claimed_in(20_000) == 1, "a minute is over");
    claimed
}

#[test]
fn a_rate_that_is_removed_and_set_again_does_not_give_its_burst_again() {
    assert_eq!(claimed_when_set_again(&Config::default()), 0);
}

#[cfg(feature = "mutants")]
#[test]
fn a_home_that_goes_on_counting_gives_the_burst_again() {
    let config = Config { mutant: Some(norn_model::config::Mutant::BurstAgain), ..Config::default() };
    assert_eq!(claimed_when_set_again(&config), 1);
}

/// Goal: a rate that is set where the leader has led for long is granted at once: the leader has given nothing in that time.
#[test]
fn a_slow_rate_that_is_new_is_granted_where_its_home_was_led_for_as_long() {
    let mut cluster = Cluster::modern(3);
    cluster.check_every = 256;
    cluster.spread_tasks(4);
    cluster.advance(70_000);
    assert!(is_changed(&cluster.set(0, "mail", rate(1, 60_000))));
    cluster.advance(2_000);
    cluster.lose_coordinator();
    assert_eq!(cluster.claimed_in(5_000), 1, "also by the next leader");
}

#[test]
fn counts_tell_when_the_rate_of_a_queue_allows_a_claim() {
    let mut cluster = worked(rate(1, 60_000));
    let told = |cluster: &mut Cluster, index| match cluster.ask(index, Request::Queues) {
        Response::Queues(lines) => lines[0].permit_in_ms,
        other => panic!("{other:?}"),
    };
    for index in 0..3 {
        let due_ms = told(&mut cluster, index).expect("its home was asked");
        let due_us = cluster.now.mono_us + due_ms * 1_000;
        assert!((60_000_000..64_000_000).contains(&due_us), "{due_us}: a minute from when it was led");
    }
    cluster.advance(70_000);
    assert_eq!(told(&mut cluster, 1), Some(0));
    assert!(is_changed(&cluster.set(0, "mail", QueueSetting::Rate(None))));
    assert_eq!(told(&mut cluster, 2), None);
}

#[test]
fn no_level_is_kept_of_a_queue_without_a_rate() {
    let mut cluster = worked(rate(2, 1_000));
    assert!(cluster.claimed_in(3_000) > 0 && cluster.level().is_some());
    assert!(is_changed(&cluster.set(0, "mail", QueueSetting::Rate(None))));
    cluster.advance(1_000);
    assert_eq!(cluster.level(), None);
}
