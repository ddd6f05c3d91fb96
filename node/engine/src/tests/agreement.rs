//! How replicas of a cluster become equal, what that may cost, and how it is reported.

use super::*;
use norn_wire::response::Agreement;

impl Cluster {
    /// Stops anti-entropy on all nodes.
    fn without_rounds(&mut self) {
        for node in &mut self.nodes {
            node.timers.cancel(Key::AntiEntropy);
        }
    }

    fn holds(&self, index: usize, id: &TaskId) -> bool {
        self.nodes[index].partitions[&self.nodes[0].partition_of(id)].store.task(id).is_some()
    }

    fn are_equal(&self) -> bool {
        let roots = |node: &Node| node.partitions.values().map(|replica| replica.store.root()).collect::<Vec<u128>>();
        self.nodes.iter().all(|node| roots(node) == roots(&self.nodes[0]))
    }

    fn agreement(&mut self, index: usize, id: &TaskId, other: usize) -> Agreement {
        let partition = self.nodes[0].partition_of(id);
        let Response::Partitions(views) = self.ask(index, Request::Partitions) else { panic!() };
        let view = views.into_iter().find(|view| view.partition == partition).expect("it is there");
        view.agreements.into_iter().find(|agreement| agreement.node == NodeId(other as u128 + 1)).expect("it is held")
    }
}

/// Goal: a read repairs a replica that it finds behind, that of the reader's node or another one.
#[test]
fn a_read_sends_a_replica_what_it_lacks() {
    for (reader, away, lagging) in [(2, None, 2), (0, Some(1), 2)] {
        let mut cluster = Cluster::with_config(3, &Config { hints_bytes_max: 0, ..Config::default() });
        cluster.advance(1_500);
        cluster.down.insert(2);
        let id = cluster.enqueue(0, b"x", 9);
        cluster.restart(2);
        cluster.without_rounds();
        cluster.advance(1_000);
        assert!(!cluster.holds(lagging, &id), "nobody has told it");
        cluster.down.extend(away);
        cluster.get(reader, id);
        cluster.advance(50);
        assert!(cluster.holds(lagging, &id), "reader {reader}");
    }
}

/// Goal: repair keeps to its budget, and still completes.
#[test]
fn repair_takes_as_long_as_its_budget_says() {
    let mut cluster = Cluster::new(3);
    cluster.down.insert(2);
    cluster.run_until(|cluster| cluster.nodes[0].is_serving() && cluster.nodes[1].is_serving());
    for number in 0..100 {
        cluster.enqueue(number as usize % 2, b"x", number << 17);
    }
    for node in &mut cluster.nodes[..2] {
        Arc::make_mut(&mut node.config).repair_items_per_second = 10;
    }
    cluster.restart(2);
    let begin_us = cluster.now.mono_us;
    cluster.run_until(Cluster::are_equal);
    let took_ms = (cluster.now.mono_us - begin_us) / 1_000;
    // Two nodes send ten tasks a second, and have saved up as many.
    assert!((2_000..30_000).contains(&took_ms), "{took_ms} ms");
}

/// Goal: an operator sees which replicas differ. Method: a node that is away, comes back, and may not be repaired.
#[test]
fn views_tell_how_near_replicas_are() {
    let mut cluster = Cluster::new(3);
    let id = cluster.enqueue(0, b"x", 9);
    cluster.advance(3_000);
    let near = |agreement: &Agreement| agreement.agreed_ms.is_some_and(|ms| ms < 2_000) && !agreement.apart;
    assert!(near(&cluster.agreement(0, &id, 1)) && near(&cluster.agreement(0, &id, 2)));
    cluster.down.insert(2);
    cluster.run_until(|cluster| cluster.nodes[0].is_serving() && cluster.nodes[1].is_serving());
    for _ in 0..20 {
        cluster.enqueue(0, b"x", 9);
    }
    cluster.advance(5_000);
    let away = cluster.agreement(0, &id, 2);
    assert!(away.agreed_ms.is_some_and(|ms| ms >= 5_000) && !away.apart, "they were not compared: {away:?}");
    assert!(near(&cluster.agreement(0, &id, 1)));

    // Its debt is more than its budget of hours.
    for node in &mut cluster.nodes {
        node.repair.overspend();
    }
    cluster.restart(2);
    cluster.nodes[2].repair.overspend();
    cluster.observed.clear();
    cluster.advance(5_000);
    assert!(cluster.agreement(0, &id, 2).apart && cluster.agreement(2, &id, 0).apart);
    assert_eq!(cluster.agreement(2, &id, 0).agreed_ms, None, "not since it started");
    let told = |(_, observed): &(usize, Observation)| {
        matches!(observed, Observation::Agreement { apart: 1, oldest_ms: 5_000.. })
    };
    assert!(cluster.observed.iter().any(told), "{:?}", cluster.observed);

    for index in 0..3 {
        cluster.restart(index);
    }
    cluster.run_until(Cluster::are_equal);
    cluster.advance(4_000);
    assert!(near(&cluster.agreement(0, &id, 2)) && near(&cluster.agreement(2, &id, 0)));
    cluster.observed.clear();
    cluster.advance(5_000);
    let told = cluster.observed.iter().any(|(_, observed)| matches!(observed, Observation::Agreement { .. }));
    assert!(!told, "equal replicas are no news");
}
