//! Leaderships are where the layout prefers them.

use super::*;

impl Cluster {
    /// Whether each partition is led by the first of its cohort.
    pub(super) fn is_led_as_preferred(&self) -> bool {
        let led = |(index, replica): (usize, &Partition)| {
            let preferred = replica.cohort().members().next();
            replica.consensus.established().then(|| preferred == Some(self.nodes[index].founding.node))
        };
        let up = (0..self.nodes.len()).filter(|index| !self.down.contains(index));
        let replicas = up.flat_map(|index| self.nodes[index].partitions.values().map(move |replica| (index, replica)));
        let placed: Vec<bool> = replicas.filter_map(led).collect();
        // The metadata group has a leader as well.
        placed.len() == PARTITIONS as usize + 1 && placed.into_iter().all(|placed| placed)
    }
}

/// Goal: a node that was away leads again what it is preferred for, and not before it was up for a while: a node that fails again at
/// once should not take a leadership with it.
#[test]
fn a_misplaced_leadership_is_handed_over_once_its_node_was_up_for_a_while() {
    let mut cluster = Cluster::modern(3);
    cluster.run_until(Cluster::is_led_as_preferred);
    let led: Vec<usize> = (0..3).map(|index| cluster.led_by(index)).collect();
    assert!(led.iter().all(|led| (1..=2).contains(led)), "{led:?}: evenly");
    for away in 0..3 {
        cluster.down.insert(away);
        cluster.run_until(|cluster| {
            (0..3).filter(|index| *index != away).map(|index| cluster.led_by(index)).sum::<usize>() == 4
        });
        cluster.restart(away);
        cluster.connect_all();
        let Config { transfer_after_ms, sweep_interval_ms, .. } = *cluster.nodes[away].config;
        cluster.advance(transfer_after_ms);
        assert_eq!(cluster.led_by(away), 0, "it may fall again");
        let until_us = cluster.now.mono_after_ms(2 * sweep_interval_ms);
        cluster.run_until(Cluster::is_led_as_preferred);
        assert!(cluster.now.mono_us <= until_us, "at the next look");
        assert_eq!((0..3).map(|index| cluster.led_by(index)).collect::<Vec<_>>(), led);
    }
}

#[test]
fn a_stopping_node_hands_its_leaderships_over() {
    let mut cluster = Cluster::new(3);
    let mut effects = Vec::new();
    cluster.nodes[0].step(cluster.now, Event::Shutdown, &mut effects);
    cluster.carry_out(0, effects);
    cluster
        .run_until(|cluster| cluster.nodes[0].partitions.values().all(|replica| replica.consensus.leading().is_none()));
    cluster.run_until(|cluster| cluster.nodes[1].is_serving());
}
