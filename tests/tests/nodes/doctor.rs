//! `norn doctor` beside real nodes: what is well, and what it says once one of them is killed.

use norn_tests::Cluster;
use norn_tests::wait::found;
use serde_json::Value;
use std::collections::BTreeMap;

/// Exit code of a run with a failure.
const AILING: i32 = 6;

/// Goal: beside a sound cluster nothing fails, a killed node is named by both halves, and the directory of a node that runs is as it was.
#[test]
fn a_cluster_is_found_sound_until_a_node_is_killed() {
    let mut cluster = Cluster::start();
    let (data, address) = (cluster.data(0).display().to_string(), cluster.address(0).to_owned());
    let examine = |cluster: &Cluster, more: &[&str]| {
        let flags =
            [&["doctor", "--data", &data, "--listen", &address, "--name", "n1", "--timeout", "5s"], more].concat();
        cluster.cli().json(&flags)
    };
    let checks = |lines: &[Value]| -> BTreeMap<String, (String, String)> {
        let text = |line: &Value, field: &str| line[field].as_str().expect("it is text").to_owned();
        lines.iter().map(|line| (text(line, "check"), (text(line, "outcome"), text(line, "seen")))).collect()
    };
    // Replicas and clocks may need a moment after the founding.
    let sound = found("nothing fails", || Some(examine(&cluster, &[])).filter(|answer| answer.code == Some(0)));
    let sound = checks(&sound.lines());
    assert_eq!(sound.len(), 22, "{sound:?}");
    let (outcome, seen) = &sound["address"];
    assert!(outcome == "ok" && seen.contains("is bound by node n1, which serves cluster"), "{sound:?}");
    assert!(sound["sync_latency"].1.starts_with("20 syncs"), "{sound:?}");
    assert!(!sound["member_certificates"].1.starts_with("not checked"), "{sound:?}");

    cluster.kill(0);
    let ailing = examine(&cluster, &["--bundle", "doctor.tar"]);
    assert_eq!(ailing.code, Some(AILING), "{ailing:?}");
    let ailing = checks(&ailing.lines());
    assert!(ailing["members"].0 == "fail" && ailing["members"].1.contains("n1 at "), "{ailing:?}");
    assert!(ailing["address"].1.contains("can be bound") && ailing["log"].0 == "ok", "{ailing:?}");
    assert!(ailing["losses"].1.starts_with("not checked: n1"), "{ailing:?}");
    assert!(cluster.directory().join("doctor.tar").is_file());
    assert_eq!(examine(&cluster, &["--bundle", "doctor.tar"]).code, Some(1), "nothing is overwritten");
    cluster.restart(0);
}
