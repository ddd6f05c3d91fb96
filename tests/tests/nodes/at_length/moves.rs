//! Clusters that grow, shrink and lose nodes under load, by an operator's commands.
//!
//! The requirement for each: the verb ends with the cluster that was requested; claims continue meanwhile, in all partitions; nothing
//! that was acknowledged is lost, no task had two holders at once, and tokens grew. Each step prints the longest time without a grant.

use norn_tests::cli::Cli;
use norn_tests::wait::{PATIENCE, eventually_or};
use norn_tests::{Answer, Cluster, ClusterOptions, Trial};
use serde_json::Value;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Names the number of clients that know all nodes.
const CLIENTS_VARIABLE: &str = "NORN_TRIAL_CLIENTS";
/// Default number of clients.
const CLIENTS_DEFAULT: usize = 8;
/// Number of partitions.
const PARTITIONS: u32 = 16;
/// Time without any grant after which a changing cluster counts as stuck. The usual pause is a twentieth of that on an otherwise idle
/// machine.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Time limit for a cluster to reach a requested state, with five nodes and their clients on two cores.
const MOVED: Duration = PATIENCE.saturating_mul(3);

/// Number of clients of a trial in which nodes leave that clients know.
fn clients() -> usize {
    std::env::var(CLIENTS_VARIABLE).map_or(CLIENTS_DEFAULT, |text| text.parse().expect("a number of clients"))
}

fn options(nodes: usize) -> ClusterOptions {
    ClusterOptions { nodes, partitions: PARTITIONS, replicas: Some(3), ..Default::default() }
}

/// Number of replicas in the whole cluster, with this many of each partition.
fn replicas(each: u64) -> u64 {
    u64::from(PARTITIONS) * each
}

/// Runs a verb to its end without blocking the runtime.
async fn run(cli: Cli, words: &[&str]) -> Answer {
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    let verb = move || cli.json(&words.iter().map(String::as_str).collect::<Vec<_>>());
    tokio::task::spawn_blocking(verb).await.expect("it ends")
}

/// The answer of `cluster status`, if the asked node knows a leader of the metadata group.
async fn try_status(cli: &Cli) -> Result<Value, String> {
    let answer = run(cli.clone(), &["cluster", "status"]).await;
    if answer.code == Some(0) { Ok(answer.object()) } else { Err(answer.stdout) }
}

/// The same, after waiting for such a leader.
async fn status_of(cli: &Cli) -> Value {
    eventually_or("the root has a leader", MOVED, || try_status(cli)).await
}

/// Runs a verb that changes the cluster, and repeats it while it is temporarily refused. Repeating a change that is already made does
/// no harm.
async fn changed(cli: &Cli, words: &[&str]) -> Value {
    let change = || async {
        let answer = run(cli.clone(), words).await;
        // A node that stalls for a moment cannot take over replicas just then.
        let passes = answer.code == Some(3) || answer.stdout.contains("is down and cannot take");
        if passes { Err(answer.stdout) } else { Ok(answer.done().object()) }
    };
    eventually_or(&words.join(" "), MOVED, change).await
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("no number: {value}"))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}

fn members(status: &Value) -> &[Value] {
    status["members"].as_array().expect("there are members")
}

/// A member that is not gone.
fn member<'a>(status: &'a Value, name: &str) -> Option<&'a Value> {
    members(status).iter().find(|member| member["name"] == name && member["state"] != "gone")
}

/// Numbers of partitions that a member holds, is to receive, and is to give up.
fn load(status: &Value, name: &str) -> [u64; 3] {
    let member = member(status, name).unwrap_or_else(|| panic!("{name} is no member: {status}"));
    ["holds", "comes", "goes"].map(|what| number(&member[what]))
}

/// Waits until each member, queried alone, sees a cluster without open changes, with this number of replicas in all, none at some
/// members, and each member leading its share of what it holds.
async fn at_rest(trial: &mut Trial, held: u64, without: &[&str]) {
    at_rest_as(trial, held, without, true).await;
}

/// Describes a leader that is not where it belongs, if any: each partition must be led by the first member of its cohort. Where the
/// cluster chose the cohorts (`evenly`), the number of partitions that a member leads must be the number that it holds, divided by the
/// replicas of each, rounded down or up.
async fn misled(cli: &Cli, status: &Value, held: u64, evenly: bool) -> Option<String> {
    let answer = run(cli.clone(), &["partitions"]).await;
    if answer.code != Some(0) {
        return Some(answer.stdout);
    }
    let misplaced = answer.lines().into_iter().find(|partition| partition["leader"] != partition["cohort"][0]);
    if let Some(partition) = misplaced {
        return Some(format!("not led by the preferred one: {partition}"));
    }
    let each = held / u64::from(PARTITIONS);
    let is_uneven = |member: &&Value| {
        let (holds, leads) = (number(&member["holds"]), number(&member["leads"]));
        !(holds / each..=holds.div_ceil(each)).contains(&leads)
    };
    let uneven = members(status).iter().find(is_uneven).filter(|_| evenly);
    uneven.map(|member| format!("leads too few or too many: {member}"))
}

async fn at_rest_as(trial: &mut Trial, held: u64, without: &[&str], evenly: bool) {
    let members_of_cluster = trial.cluster().members();
    for index in members_of_cluster.iter().copied() {
        let cli = trial.cluster().cli_at(index);
        let what = format!("node {index} sees {held} replicas and none at {without:?}");
        let look = || async {
            let status = try_status(&cli).await?;
            let holds: u64 = members(&status).iter().map(|member| number(&member["holds"])).sum();
            let layout = &status["layout"];
            let open = ["open", "unknown", "moving", "leaving"].iter().map(|what| number(&layout[*what])).sum::<u64>();
            // The asked node may not have heard yet of a leader that has just taken over.
            let led = number(&status["partitions"]["led"]) == u64::from(PARTITIONS);
            let empty = without.iter().all(|name| load(&status, name) == [0; 3]);
            let whole = members(&status).len() == members_of_cluster.len();
            if !(whole && open == 0 && layout["stale"] == false && led && empty && holds == held) {
                return Err(format!("{layout} {}", status["members"]));
            }
            misled(&cli, &status, held, evenly).await.map_or(Ok(()), Err)
        };
        eventually_or(&what, MOVED, look).await;
    }
}

/// Asserts that claims continued since then and in the end reach all partitions. Prints the longest time without a grant.
async fn went_on(trial: &Trial, what: &str, since: Instant) {
    let ended = Instant::now();
    let silence = trial.longest_silence(since, ended);
    let took = ended - since;
    eprintln!("{what}: {:.2} s, longest without a grant {:.3} s", took.as_secs_f64(), silence.as_secs_f64());
    assert!(silence < SILENCE_MAX, "{what}: nobody was granted anything for {silence:?}");
    trial.works(what, ended, &trial.everybody()).await;
}

/// Runs a verb under load, which must succeed.
async fn step(trial: &Trial, words: &[&str]) -> Value {
    let since = Instant::now();
    let change = changed(&trial.cli(), words).await;
    assert_eq!(change["state"], "done", "{change}");
    // A move waits only for its own partition. The metadata group may learn of its end later than the command, which asks the
    // partition's leader.
    if words[1] != "move" {
        assert_eq!(change["open"], 0, "{change}");
    }
    went_on(trial, &words.join(" "), since).await;
    change
}

/// Adds a blank node as a member under load.
async fn add(trial: &mut Trial) -> usize {
    let index = trial.cluster().start_blank();
    let address = trial.cluster().address(index).to_owned();
    step(trial, &["cluster", "add", &address]).await;
    trial.cluster().enter(index);
    index
}

/// Starts a blank node that joins by itself under load and gets its share.
async fn join(trial: &mut Trial) -> usize {
    let since = Instant::now();
    let token = changed(&trial.cli(), &["cluster", "token"]).await;
    let index = trial.cluster().start_joining(token["token"].as_str().expect("it is a text"));
    went_on(trial, "start --join", since).await;
    index
}

/// Waits until this number of nodes is alive, according to the nodes.
async fn alive(cli: &Cli, count: usize) {
    let seen = || async {
        let nodes = run(cli.clone(), &["nodes"]).await.lines();
        let alive = nodes.iter().filter(|node| node["alive"] == true).count();
        if alive == count { Ok(()) } else { Err(format!("{alive} are alive")) }
    };
    eventually_or(&format!("{count} nodes are alive"), MOVED, seen).await;
}

// S42, S46
/// Two of five nodes are drained, one after the other. The second drain moves nothing back to the first node. In the end both are
/// undrained.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_are_drained_under_load() {
    let mut trial = Trial::start_with("drain", options(5)).await;
    let would_be = changed(&trial.cli(), &["cluster", "drain", "n5", "--dry-run"]).await;
    assert_eq!((&would_be["state"], load(&would_be, "n5")[1]), (&"planned".into(), 0), "{would_be}");
    assert!(load(&would_be, "n5")[2] > 0, "it would hand over what it holds: {would_be}");
    step(&trial, &["cluster", "drain", "n5"]).await;
    at_rest(&mut trial, replicas(3), &["n5"]).await;
    step(&trial, &["cluster", "drain", "n4"]).await;
    at_rest(&mut trial, replicas(3), &["n4", "n5"]).await;
    assert_eq!(step(&trial, &["cluster", "drain", "n4"]).await["already"], true, "nothing is left to do");
    for name in ["n4", "n5"] {
        step(&trial, &["cluster", "undrain", name]).await;
    }
    at_rest(&mut trial, replicas(3), &[]).await;
    let status = status_of(&trial.cli()).await;
    assert!(["n4", "n5"].iter().all(|name| load(&status, name)[0] > 0), "they hold their share again: {status}");
    trial.end().await;
}

// O1, S10, S48, S51: the command line adds nodes, and starts them
/// Three nodes, then five, then three of which one is new. Then one of the old ones loses its disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_grows_and_shrinks_under_load() {
    let mut trial = Trial::start_crowded("grow", options(3), clients() / 2).await;
    let added = [add(&mut trial).await, join(&mut trial).await];
    // The restart repeats the join token, which now names the node's own cluster.
    trial.cluster().terminate(added[1]);
    trial.cluster().restart(added[1]);
    trial.cluster().wait_ready(added[1]);
    at_rest(&mut trial, replicas(3), &[]).await;
    let status = status_of(&trial.cli()).await;
    assert!(["n4", "n5"].iter().all(|name| load(&status, name)[0] > 0), "they hold their share: {status}");
    let address = trial.cluster().address(added[0]).to_owned();
    assert_eq!(step(&trial, &["cluster", "add", &address]).await["already"], true, "it may be repeated");
    for name in ["n1", "n2"] {
        step(&trial, &["cluster", "drain", name]).await;
    }
    at_rest(&mut trial, replicas(3), &["n1", "n2"]).await;
    step(&trial, &["cluster", "undrain", "n2"]).await;
    for (name, index) in [("n1", 0), ("n5", added[1])] {
        step(&trial, &["cluster", "drain", name]).await;
        at_rest(&mut trial, replicas(3), &[name]).await;
        // The metadata group may first have to move away from the member.
        let removed = || async {
            let answer = run(trial.cli(), &["cluster", "remove", name]).await;
            if answer.code == Some(0) { Ok(()) } else { Err(answer.stdout) }
        };
        eventually_or("a member that holds nothing can be removed", MOVED, removed).await;
        trial.cluster().leave(index);
        at_rest(&mut trial, replicas(3), &[]).await;
    }
    replace(&mut trial, 2).await;
    trial.end().await;
}

/// Every partition gets a replica on every node, and then three replicas again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_grow_and_shrink_under_load() {
    let mut trial = Trial::start_with("replicas", options(5)).await;
    step(&trial, &["cluster", "set", "replicas", "5"]).await;
    at_rest(&mut trial, replicas(5), &[]).await;
    step(&trial, &["cluster", "set", "replicas", "3"]).await;
    at_rest(&mut trial, replicas(3), &[]).await;
    // A partition returns to two nodes that have only just left it.
    step(&trial, &["cluster", "move", "7", "n5,n1,n2"]).await;
    at_rest_as(&mut trial, replicas(3), &[], false).await;
    trial.end().await;
}

/// A node loses its disk. A new node with the same name and address replaces it, and facts that were only on a majority survive.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_disk_is_lost_is_replaced() {
    let mut trial = Trial::start_strict("replace", options(4)).await;
    replace(&mut trial, 3).await;
    trial.end().await;
}

/// Deletes the disk of a node, and replaces the node.
async fn replace(trial: &mut Trial, index: usize) {
    let name = trial.cluster().name(index).to_owned();
    let others: Vec<usize> = trial.cluster().members().into_iter().filter(|other| *other != index).collect();
    let cli = trial.cluster().cli_at(others[0]);
    let before = status_of(&cli).await;
    let lost = member(&before, &name).expect("it is a member")["node"].as_str().expect("an id").to_owned();
    trial.cluster().start_anew(index);
    alive(&cli, others.len()).await;
    let address = trial.cluster().address(index).to_owned();
    let replace = ["cluster", "replace", &name, &address];
    let since = Instant::now();
    // The old node's name is in use as long as the leader of the metadata group considers it alive.
    let replaced = || async {
        let answer = run(cli.clone(), &replace).await;
        if answer.code == Some(0) { Ok(answer.object()) } else { Err(answer.stdout) }
    };
    let change = eventually_or("the lost one is replaced", MOVED, replaced).await;
    assert_eq!(change["state"], "done", "{change}");
    went_on(trial, "replace", since).await;
    at_rest(trial, replicas(3), &[]).await;
    let after = status_of(&cli).await;
    let found = member(&after, &name).expect("it is a member");
    assert!(found["node"] != *lost && number(&found["holds"]) > 0, "another one holds its share: {after}");
    assert_eq!(step(trial, &replace).await["already"], true, "it may be repeated");
}

/// The drained node is killed before it has handed over everything, and restarted once all others consider it dead: the drain ends all
/// the same. The same with a node that receives replicas, and with the leader of the metadata group.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_ends_though_nodes_are_killed() {
    // Moves that hang on the killed node are soon reverted and started again.
    let settings = vec!["revert_after_ms=5000".to_owned()];
    let mut trial = Trial::start_with("killed", ClusterOptions { settings, ..options(5) }).await;
    step(&trial, &["cluster", "set", "moves", "2"]).await;
    for (drained, killed) in [("n5", Some(4)), ("n4", Some(0)), ("n3", None)] {
        if drained == "n3" {
            step(&trial, &["cluster", "undrain", "n5"]).await;
        }
        let (since, cli) = (Instant::now(), trial.cli());
        let status = status_of(&cli).await;
        let leader = members(&status).iter().position(|member| member["node"] == status["root"]["leader"]);
        // Members are numbered in a random order, so the test compares names.
        let leader = leader.and_then(|place| members(&status)[place]["name"].as_str()).expect("it is a member");
        let killed = killed.unwrap_or_else(|| node_called(&mut trial, leader));
        let held = load(&status, drained)[0];
        let draining = cli.clone();
        let draining = tokio::spawn(async move { changed(&draining, &["cluster", "drain", drained]).await });
        let begun = || async {
            let holds = load(&try_status(&cli).await?, drained)[0];
            if holds < held { Ok(()) } else { Err(format!("it holds {holds}")) }
        };
        eventually_or("something has left the node", MOVED, begun).await;
        trial.cluster().kill(killed);
        alive(&cli, 4).await;
        trial.cluster().restart(killed);
        trial.cluster().wait_ready(killed);
        draining.await.expect("it ends");
        went_on(&trial, &format!("drain {drained}, node {killed} killed"), since).await;
        at_rest(&mut trial, replicas(3), &[drained]).await;
    }
    trial.end().await;
}

fn node_called(trial: &mut Trial, name: &str) -> usize {
    let nodes = trial.cluster().members();
    nodes.into_iter().find(|index| trial.cluster().name(*index) == name).expect("it is a node of the cluster")
}

/// Asserts that a verb is refused in the end. For a moment there may be another reason, when the leader of the metadata group has not
/// heard some node.
async fn is_refused(cli: &Cli, words: &str, code: i32, reason: &str) {
    let words: Vec<&str> = words.split(' ').collect();
    let look = || async {
        let answer = run(cli.clone(), &words).await;
        let fits = answer.code == Some(code) && answer.refusal(code)["message"].to_string().contains(reason);
        if fits { Ok(()) } else { Err(answer.stdout) }
    };
    eventually_or(&format!("{words:?} is refused with {reason:?}"), PATIENCE, look).await;
}

/// Settings of a queue determine the leases and backoffs of its tasks.
async fn policies_are_heeded(cli: &Cli) {
    let patient = cli.clone().patient();
    for words in [
        "queue set mail attempts 0",
        "queue set mail paused perhaps",
        "queue set mail lease 1ms",
        "queue set mail backoff 5",
    ] {
        is_refused(cli, words, 1, "").await;
    }
    run(patient.clone(), &["queue", "set", "mail", "paused", "yes"]).await.done();
    let policies = run(patient.clone(), &["queue", "show"]).await.done().lines();
    assert!(policies.len() == 1 && policies[0]["queue"] == "mail" && policies[0]["paused"] == true, "{policies:?}");
    run(patient.clone(), &["queue", "set", "mail", "paused", "no"]).await.done();
    // The cluster grants the lease that is set, and reports it.
    run(patient.clone(), &["queue", "set", "mail", "lease", "2m"]).await.done();
    run(patient.clone(), &["queue", "set", "mail", "lease-max", "1m"]).await.done();
    run(patient.clone(), &["enqueue", "mail", "x"]).await.done();
    // Leaders learn of settings by heartbeats.
    let claimed = || async {
        let answer = run(cli.clone(), &["claim", "mail", "--wait", "10s"]).await;
        let Some(granted) = answer.lines().into_iter().find(|line| line["token"].is_string()) else {
            return Err(answer.stdout);
        };
        if granted["lease_ms"] == 60_000 {
            return Ok(granted);
        }
        run(patient.clone(), &["release", &text(&granted["id"]), &text(&granted["token"])]).await.done();
        Err(granted.to_string())
    };
    let granted = eventually_or("the lease is as it was set", MOVED, claimed).await;
    // The failed attempt waits according to its queue's setting.
    run(patient.clone(), &["queue", "set", "mail", "backoff", "exponential", "1m", "1h", "jitter", "20%"]).await.done();
    let held = Mutex::new(granted);
    let failed = || async {
        let granted = held.lock().expect("no panics").clone();
        run(patient.clone(), &["fail", &text(&granted["id"]), &text(&granted["token"])]).await;
        let task = run(patient.clone(), &["get", &text(&granted["id"])]).await.done().object();
        if task["state"] == "waiting" {
            return Ok(());
        }
        *held.lock().expect("no panics") = claimed().await?;
        Err(task.to_string())
    };
    eventually_or("the pause is as it was set", MOVED, failed).await;
    run(patient.clone(), &["queue", "set", "mail", "retention", "1h"]).await.done();
    let shown = run(patient.clone(), &["queue", "show", "mail"]).await.done().object();
    assert_eq!(
        (&shown["retention_ms"], &shown["backoff"]["jitter_percent"]),
        (&3_600_000.into(), &20.into()),
        "{shown}"
    );
    for key in ["lease", "lease-max", "backoff", "retention"] {
        run(patient.clone(), &["queue", "set", "mail", key, "none"]).await.done();
    }
    assert!(run(patient.clone(), &["queue", "show"]).await.done().lines().is_empty(), "nothing is set");
}

/// Operator errors are refused with a reason and a remedy, and change nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mistakes_are_refused() {
    let mut cluster = Cluster::start_with(ClusterOptions { nodes: 3, partitions: 8, ..Default::default() });
    let cli = cluster.cli();
    let before = run(cli.clone(), &["ring"]).await.done().stdout.clone();
    let refused = async |words: &str, code: i32, reason: &str| is_refused(&cli, words, code, reason).await;
    refused("cluster move 8 n1", 1, "numbered from 0 to 7").await;
    refused("cluster move 0 n9", 1, "its members are n").await;
    refused("cluster move 0 n1 n1", 1, "named twice").await;
    refused("cluster move first n1", 2, "invalid").await;
    refused("cluster drain n9", 1, "its members are n").await;
    refused("cluster drain n1", 1, "want fewer replicas").await;
    refused("cluster drain n1 --dry-run", 1, "want fewer replicas").await;
    refused("cluster remove n1", 1, "drain it").await;
    refused("cluster set replicas 4", 1, "add members first").await;
    refused("cluster set replicas 8", 2, "1 to 7").await;
    refused("cluster set weight n1 0", 2, "from 1 to").await;
    refused("cluster set moves 0", 2, "from 1 to").await;
    refused("cluster set heal-after 1s", 1, "1m to").await;
    refused("cluster set heal-after soon", 2, "duration").await;
    refused("cluster add nowhere", 2, "HOST:PORT").await;
    // A node with certificates of another authority, and then a node of another cluster.
    let others = Cluster::start_with(ClusterOptions { nodes: 1, partitions: 8, ..Default::default() });
    let address = others.address(0);
    refused(&format!("cluster add {address}"), 1, "certificate").await;
    let [first, second] = [cluster.start_blank(), cluster.start_blank()];
    cluster.init(&[first], &["--partitions", "8"]).done();
    let address = cluster.address(first).to_owned();
    refused(&format!("cluster add {address}"), 1, "belongs to another cluster").await;
    refused(&format!("cluster replace n1 {address}"), 1, "belongs to another cluster").await;
    let token = changed(&cli, &["cluster", "token"]).await["token"].clone();
    cluster.terminate(first);
    cluster.replace(first, None, vec![format!("join={}", token.as_str().expect("it is a text"))]);
    let refusal = cluster.fails_to_start(first);
    assert!(refusal.code == Some(1) && refusal.stderr.contains("empty data directory"), "{}", refusal.stderr);
    assert_eq!(run(cli.clone(), &["ring"]).await.done().stdout, before, "nothing was changed");
    policies_are_heeded(&cli).await;
    // A dry run of adding a node adds none.
    let address = cluster.address(second).to_owned();
    let would_be = changed(&cli, &["cluster", "add", &address, "--dry-run"]).await;
    assert_eq!(would_be["members"].as_array().map(Vec::len), Some(4), "{would_be}");
    let members = status_of(&cli).await["members"].clone();
    assert_eq!(members.as_array().map(Vec::len), Some(3), "a dry run adds nobody");
    cluster.kill(2);
    alive(&cli, 2).await;
    // n3 is down but holds partition 0, and may keep it while down. So the partition first moves away from it.
    changed(&cli, &["cluster", "move", "0", "n1,n2"]).await;
    // The asked node may not have heard yet that n3 no longer holds it.
    refused("cluster move 0 n3,n1 --dry-run", 1, "n3 is down").await;
}
