//! Tasks that only their holder can end, with real processes.

use norn_tests::Cluster;
use norn_tests::wait::found;

/// Leases expire while their workers hold the tasks, and the node that these workers use is killed: one completion of each task is
/// acknowledged, and that one is shown.
// T23, C2, C15, C16
#[test]
fn one_completion_of_each_task_is_acknowledged() {
    const TASKS: usize = 4;
    let mut cluster = Cluster::start();
    cluster.cli_at(0).patient().json(&["queue", "set", "ledger", "mode", "holder"]).done();
    let ids: Vec<String> = (0..TASKS)
        .map(|number| {
            let enqueued =
                cluster.cli_at(number % 3).patient().json(&["enqueue", "ledger", &format!("entry {number}")]).object();
            enqueued["id"].as_str().expect("an id").to_owned()
        })
        .collect();
    let claim = |cluster: &Cluster, node: usize, lease: &str| {
        let claimed = found("a claim is granted", || {
            let answer = cluster.cli_at(node).patient().claim(&["ledger", "--lease", lease, "--wait", "5s"]);
            answer.lines().into_iter().next().filter(|claimed| claimed["token"].is_string())
        });
        let text = |field: &str| claimed[field].as_str().expect("text").to_owned();
        (text("id"), text("token"))
    };
    let slow: Vec<(String, String)> = (0..TASKS).map(|_| claim(&cluster, 0, "200ms")).collect();
    let quick: Vec<(String, String)> = (0..TASKS).map(|_| claim(&cluster, 1, "5m")).collect();
    cluster.kill(0);
    for (id, token) in &slow {
        let line = cluster.cli_at(1).patient().json(&["complete", id, token, "--result", "slow"]).lines().remove(0);
        assert_eq!(line["error"]["code"], "superseded", "{line}");
    }
    for (id, token) in &quick {
        found("it is acknowledged", || {
            let answer = cluster.cli_at(2).patient().json(&["complete", id, token, "--result", "quick"]);
            answer.lines().into_iter().next().filter(|line| line["guarantee"] == "strict")
        });
    }
    cluster.restart(0);
    cluster.wait_ready(0);
    // The task's leader sends it to the others a little later.
    let kept = || {
        let mut late = 0;
        for id in &ids {
            let view = cluster.cli_at(0).patient().json(&["get", id]).object();
            assert_eq!((view["state"].as_str(), view["result"].as_str()), (Some("done"), Some("quick")));
            let claims = view["claims"].as_array().expect("a list");
            let completed = claims.iter().filter(|claim| claim["completed_ms"].is_number());
            let (rejected, counted): (Vec<_>, Vec<_>) = completed.partition(|claim| claim["rejected"].is_object());
            assert_eq!(counted.len(), 1, "{view}");
            assert!(rejected.iter().all(|claim| claim["rejected"]["result"] == "slow"), "{view}");
            late += rejected.len();
        }
        (late == slow.len()).then_some(())
    };
    found("what came late is kept", kept);
}
