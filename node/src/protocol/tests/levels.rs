//! What time has earned of a rate outlives the leader that counted it.

use super::claim_limits::{queue_with, rate};
use super::policies::is_changed;
use super::*;
use crate::protocol::consistent::levels::Level;
use norn_client::wire::Versions;
use norn_client::wire::membership::QueueSetting;

impl Cluster {
    /// The level of the queue in the table of its home's leader.
    fn level(&self) -> Option<Level> {
        let queue = QueueName::new("mail").expect("a name");
        let home = self.nodes[0].home_of(&queue);
        let register = &self.nodes[self.home("mail")].partitions[&home].register;
        register.level(&queue).map(|(level, _)| level)
    }

    fn restart_connected(&mut self, index: usize) {
        self.restart(index);
        self.connect_all();
    }

    /// The home of the queue has another leader from now on; the one before is down.
    fn lose_home(&mut self) -> usize {
        let lost = self.home("mail");
        self.down.insert(lost);
        let queue = QueueName::new("mail").expect("a name");
        let home = self.nodes[0].home_of(&queue);
        self.run_until(|cluster| {
            let others = (0..3).filter(|index| *index != lost);
            others.map(|index| &cluster.nodes[index].partitions[&home].register).any(|register| register.established())
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

/// Nodes are restarted one after the other, faster than a permit comes in, as by an update that is never done.
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

/// Even where no time between two restarts is an eighth of a permit.
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
    let first = cluster.lose_home();
    assert_eq!(cluster.claimed_in(13_000), 1, "a minute is over");
    cluster.restart_connected(first);
    cluster.claimed_in(2_000);
    cluster.lose_home();
    assert_eq!(cluster.claimed_in(40_000), 0, "that was all");
}

/// A process cannot tell how long it was away: that time is lost, and what was written before is not.
#[test]
fn where_all_nodes_restart_the_level_is_what_was_written() {
    let mut cluster = worked(rate(1, 60_000));
    let began_us = cluster.now.mono_us;
    cluster.claimed_in(30_000);
    let whole = (cluster.now.mono_us - began_us) / 60;
    let before = cluster.level().expect("it was written").millionths;
    assert!((whole - 150_000..=whole).contains(&before), "{before} of {whole} millionths");
    cluster.now.mono_us += 300_000_000;
    (0..3).for_each(|index| cluster.restart(index));
    cluster.connect_all();
    assert_eq!(cluster.claimed_in(25_000), 0, "the time between counts for nothing");
    assert_eq!(cluster.claimed_in(25_000), 1);
}

#[test]
fn a_member_that_cannot_read_levels_goes_without_them_and_not_without_the_table() {
    let mut cluster = worked(rate(2, 1_000));
    let index = (cluster.home("mail") + 1) % 3;
    let old = cluster.nodes[index].me;
    for _ in 0..2 {
        (0..3).for_each(|peer| cluster.nodes[peer].outbox.set_version(old, Versions::SPOKEN.oldest));
        assert!(cluster.claimed_in(3_000) > 0, "grants go on");
        assert_eq!(cluster.level(), None);
        cluster.connect_all();
        assert!(cluster.claimed_in(3_000) > 0);
        assert!(cluster.level().is_some(), "all can read it");
    }
    let home = cluster.nodes[0].home_of(&QueueName::new("mail").expect("a name"));
    let stamps: BTreeSet<_> = cluster.nodes.iter().map(|node| node.partitions[&home].register.viewstamp).collect();
    assert_eq!(stamps.len(), 1, "all have the table");
}

#[test]
fn no_level_is_kept_of_a_queue_without_a_rate() {
    let mut cluster = worked(rate(2, 1_000));
    assert!(cluster.claimed_in(3_000) > 0 && cluster.level().is_some());
    assert!(is_changed(&cluster.set(0, "mail", QueueSetting::Rate(None))));
    cluster.advance(1_000);
    assert_eq!(cluster.level(), None);
}
