//! Health over HTTP of a node that is left alone.

use norn_tests::cluster::with_doors;
use norn_tests::wait::found;

/// Goal: what restarts a node that is not alive, and what takes a node that is not ready out of its list, leave a node alone that has
/// lost its peers. Method: two of three nodes are killed.
#[test]
fn a_node_without_a_majority_is_alive_and_ready_and_grants_nothing() {
    let (mut cluster, doors) = with_doors(3);
    let status = |target: &str| doors[0].get(target).status;
    let becomes = |expected: u16| move |found: u16| (found == expected).then_some(());
    found("each partition has a leader", || becomes(200)(status("/readyz?claims=1")));
    cluster.kill(1);
    cluster.kill(2);
    found("it misses its leaders", || becomes(503)(status("/readyz?claims=1")));
    assert_eq!(["/livez", "/readyz", "/startupz", "/metrics"].map(status), [200; 4]);
    found("the metrics tell", || {
        let text = doors[0].get("/metrics").text();
        let mut lines = text.lines().filter_map(|line| line.strip_prefix("norn_partitions_without_leader "));
        lines.next().and_then(|value| value.parse::<f64>().ok()).filter(|value| *value > 0.0)
    });
    let stored = doors[0].call("POST", "/v1/tasks?acks=one", r#"{"queue":"mail","data":"x"}"#);
    assert_eq!(stored.status, 202, "it takes tasks: {}", stored.text());
}
