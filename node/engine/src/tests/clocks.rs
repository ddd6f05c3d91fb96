//! What a node reports about clocks and pauses.

use super::*;
use norn_model::clocks::RoundTrip;

impl Cluster {
    /// Clock counters in the status of a node.
    fn clock_counters(&self, index: usize) -> Vec<(String, u64)> {
        let status = self.nodes[index].status(Default::default(), 0).expect("it has a cluster");
        let stand = |name: &str| name.starts_with("clock_") && name.contains("_ms");
        status.counters.into_iter().filter(|(name, _)| stand(name)).collect()
    }

    /// A node measures that another one's wall clock is this far ahead of its own, give or take 2 ms.
    fn measure(&mut self, index: usize, other: usize, ahead_ms: i64) {
        let (now, node) = (self.now, self.nodes[other].founding.node);
        let trip = RoundTrip { sent_us: now.mono_us - 2_000, kept_us: 0 };
        let Node { membership, config, .. } = &mut self.nodes[index];
        // It was read in the middle of the round trip.
        membership.clocks_mut().measure(node, now.wall_ms.saturating_add_signed(ahead_ms) - 1, trip, now, config);
    }
}

/// Goal: what `norn nodes` shows of clocks is available to programs.
#[test]
fn the_status_tells_how_far_clocks_are_apart() {
    let mut cluster = Cluster::new(3);
    cluster.advance(500);
    let counters = cluster.clock_counters(0);
    let names: Vec<&str> = counters.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["clock_error_ms.n1", "clock_error_ms.n2"], "what agrees is 0 apart, and 0 is not told");
    assert!(counters.iter().all(|(_, error_ms)| *error_ms <= 2), "{counters:?}");
    let told = |counters: &[(&str, u64)]| -> Vec<(String, u64)> {
        counters.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    };
    cluster.measure(0, 1, 700);
    cluster.measure(0, 2, 710);
    let others_agree = [
        ("clock_off_ms", 698),
        ("clock_ahead_ms.n1", 700),
        ("clock_error_ms.n1", 2),
        ("clock_ahead_ms.n2", 710),
        ("clock_error_ms.n2", 2),
    ];
    assert_eq!(cluster.clock_counters(0), told(&others_agree));
    cluster.measure(0, 1, -300);
    let in_between =
        [("clock_behind_ms.n1", 300), ("clock_error_ms.n1", 2), ("clock_ahead_ms.n2", 710), ("clock_error_ms.n2", 2)];
    assert_eq!(cluster.clock_counters(0), told(&in_between));
    // No node is heard any more, and old measurements mean nothing.
    cluster.down.extend([1, 2]);
    cluster.advance(20_000);
    assert_eq!(cluster.clock_counters(0), []);
}

/// Goal: a node that was stopped for longer than others wait reports that, once and about how long, and no other node does. Method:
/// pauses on both sides of the limit, of nodes in turn and of all together, and a restart, which is no pause.
#[test]
fn a_node_that_stood_still_says_so() {
    let mut cluster = Cluster::new(3);
    let Config { heartbeat_ms, election_timeout_ms, .. } = *cluster.nodes[0].config;
    cluster.advance(1_000);
    let stood = |cluster: &mut Cluster, nodes: &[usize], pause_ms: u64| -> Vec<(usize, u64)> {
        let before = cluster.observed.len();
        cluster.down.extend(nodes);
        cluster.advance(pause_ms);
        cluster.down.clear();
        cluster.advance(1_000);
        let said = cluster.observed[before..].iter().filter_map(|(index, observation)| match observation {
            Observation::StoodStill { for_ms } => Some((*index, *for_ms)),
            _ => None,
        });
        said.collect()
    };
    assert_eq!(stood(&mut cluster, &[0], election_timeout_ms - heartbeat_ms - 1), []);
    for nodes in [&[0][..], &[2], &[0, 1, 2]] {
        let said = stood(&mut cluster, nodes, 5_000);
        assert_eq!(said.iter().map(|(index, _)| *index).collect::<Vec<_>>(), nodes);
        assert!(said.iter().all(|(_, for_ms)| (5_000..=5_001 + heartbeat_ms).contains(for_ms)), "{said:?}");
    }
    assert_eq!(cluster.nodes[0].outbox.counters()["process_stalls"], 2);
    cluster.down.insert(0);
    cluster.advance(5_000);
    cluster.restart(0);
    assert_eq!(stood(&mut cluster, &[], 1_000), []);
}
