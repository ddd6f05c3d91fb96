//! Compaction of logs that are not being served: before a start, and by `norn log compact`.

use norn_tests::wait::found;
use norn_tests::{Cli, Cluster, ClusterOptions, Log, cli};
use serde_json::Value;
use std::fs;

/// Size of a payload. A dozen of them are more than half of `compact_bytes`, and with all that is logged beside less than all of it.
const PAYLOAD_BYTES: usize = 50_000;
const TASKS: usize = 12;
const COMPACT_BYTES: &str = "compact_bytes=1048576";
/// What a node says that compacts its log before it serves, and when it listens.
const BEFORE: &str = "the log is compacted before anything is served";
const COMPACTED: &str = "a snapshot stands for all of the log before it";
const LISTENING: &str = "listening";

fn single(settings: &[&str]) -> Cluster {
    let settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
    Cluster::start_with(ClusterOptions { nodes: 1, partitions: 4, settings, ..ClusterOptions::default() })
}

/// Enqueues tasks with different payloads. Returns their ids.
fn enqueue(cli: &Cli, queue: &str) -> Vec<String> {
    let payload = |number| format!("{:1$}", format!("task {number}"), PAYLOAD_BYTES);
    let enqueue = |number| cli.json(&["enqueue", queue, &payload(number)]).done().object()["id"].clone();
    (0..TASKS).map(|number| enqueue(number).as_str().expect("text").to_owned()).collect()
}

/// Whether each of these tasks has its payload.
fn have_payloads(cli: &Cli, ids: &[String]) {
    for (number, id) in ids.iter().enumerate() {
        let task = cli.json(&["get", id]).done().object();
        let payload = task["data"].as_str().expect("text");
        assert_eq!((payload.len(), payload.trim_end()), (PAYLOAD_BYTES, format!("task {number}").as_str()), "{id}");
    }
}

/// What a node has said since its last start.
fn said(cluster: &Cluster, before: usize) -> String {
    cluster.log(0).split_off(before)
}

// E24
/// Goal: a node that starts on a long log compacts it before it serves anything, unless the setting says otherwise; it has all tasks
/// either way.
#[test]
fn a_long_log_is_compacted_before_the_node_serves() {
    for (setting, compacts) in [("compact_at_start=0", false), ("compact_at_start=1", true)] {
        let mut cluster = single(&[COMPACT_BYTES, setting]);
        let ids = enqueue(&cluster.cli_at(0).patient(), "kept");
        cluster.kill(0);
        assert_eq!(Log::of(&cluster, 0).files(".snapshot"), [""; 0], "it is not long enough for a node that runs");
        let before = cluster.log(0).len();
        cluster.restart(0);
        cluster.wait_ready(0);
        let said = said(&cluster, before);
        let at = |words: &str| said.find(words);
        assert_eq!(at(BEFORE).is_some(), compacts, "{said}");
        if compacts {
            assert!(at(COMPACTED) < at(LISTENING) && at(COMPACTED).is_some(), "{said}");
            assert_eq!(Log::of(&cluster, 0).files(".snapshot").len(), 1, "{said}");
        }
        have_payloads(&cluster.cli_at(0).patient(), &ids);
    }
}

/// Runs `norn log compact` on a directory.
fn compact(cluster: &Cluster, directory: &str) -> cli::Answer {
    cli::run(cluster.directory(), &["--json", "log", "compact", directory])
}

fn number(size: &Value, name: &str) -> u64 {
    size[name].as_u64().unwrap_or_else(|| panic!("no {name} in {size}"))
}

/// Goal: the log of a stopped node becomes as small as what it keeps, and the node then starts from it with all tasks. A directory that
/// a node runs on, or that has no log, is refused, and stays as it is.
#[test]
fn the_log_of_a_stopped_node_is_compacted_and_the_node_starts_from_it() {
    let mut cluster = single(&["segment_bytes=1048576"]);
    let cli = cluster.cli_at(0).patient();
    let (kept, gone) = (enqueue(&cli, "kept"), enqueue(&cli, "gone"));
    gone.iter().for_each(|id| drop(cli.json(&["cancel", id]).done().object()));
    let purge: Vec<&str> = std::iter::once("purge").chain(gone.iter().map(String::as_str)).collect();
    found("what was cancelled is purged", || Some(cli.json(&purge)).filter(|answer| answer.code == Some(0)));
    let data = cluster.data(0);
    let directory = data.to_str().expect("a path");

    let refused = compact(&cluster, directory).refusal(1);
    let message = refused["message"].as_str().expect("text");
    assert!(message.contains(directory) && message.contains("stop the node that runs there first"), "{message}");
    let empty = cluster.directory().join("empty");
    fs::create_dir(&empty).expect("a directory");
    let refused = compact(&cluster, empty.to_str().expect("a path")).refusal(2);
    assert!(
        refused["message"].as_str().is_some_and(|message| message.contains("no file of a log is in it")),
        "{refused}"
    );
    assert_eq!(fs::read_dir(&empty).expect("it is there").count(), 0);

    assert!(cluster.terminate(0).success());
    let log = Log::of(&cluster, 0);
    assert!(log.segments().len() > 1, "{:?}", log.segments());
    let answer = compact(&cluster, directory).done().object();
    let (before, after) = (&answer["before"], &answer["after"]);
    assert!(number(after, "bytes") < 2 * number(before, "bytes") / 3, "{answer}");
    assert!(number(after, "records") < number(before, "records"), "{answer}");
    assert_eq!(number(after, "segments"), 1, "{answer}");
    assert_eq!((log.files(".snapshot").len(), log.segments().len()), (1, 1), "{answer}");
    assert_eq!(log.verify().code, Some(0), "it is whole");

    cluster.restart(0);
    cluster.wait_ready(0);
    have_payloads(&cluster.cli_at(0).patient(), &kept);
}
