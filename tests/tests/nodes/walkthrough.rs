//! The walk-through of Skuld, and every verb once, on a real cluster.

use norn_tests::{Cli, Cluster, ClusterOptions, Repl, wait};
use norn_wire::TaskId;
use serde_json::Value;
use std::fs;
use std::time::{Duration, Instant, SystemTime};

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}

/// A token's parts, in the order in which tokens sort.
fn token_parts(token: &str) -> (u64, u64) {
    let (epoch, number) = token.split_once('.').expect("EPOCH.NUMBER");
    (epoch.parse().expect("a number"), number.parse().expect("a number"))
}

// S22, S31, S51, S52, S53, S54
/// A cluster of three nodes on one host, created by the command line, and a REPL with several addresses: the walk-through of Skuld's
/// README, with a shorter lease. A claim shows its start, end and completion, and all of them can be read.
#[test]
fn skulds_walk_through() {
    let cluster = Cluster::start();
    let mut repl = cluster.cli().patient().repl();
    assert_eq!(repl.ask("count")["count"], 0);
    let acked = repl.ask("enqueue letters 'hi there'");
    let id = text(&acked["id"]);
    assert_eq!((id.len(), &acked["replicas"], &acked["guarantee"]), (32, &3.into(), &"strict".into()));
    assert!(acked["acks"].as_u64().is_some_and(|acks| (2..=3).contains(&acks)), "{acked}");
    assert_eq!(repl.ask("count")["count"], 1);
    let listed = repl.rows("list");
    assert_eq!(listed.len(), 1);
    assert_eq!((&listed[0]["id"], &listed[0]["data"]), (&acked["id"], &"hi there".into()));
    assert_eq!(listed[0]["state"], "ready");

    let asked = Instant::now();
    let first = repl.claim("letters --lease 2s");
    assert_eq!(first.len(), 1);
    assert_eq!(
        (&first[0]["id"], &first[0]["data"], &first[0]["attempt"]),
        (&acked["id"], &"hi there".into(), &1.into())
    );
    let second = wait::found("the lease runs out", || repl.claim("letters --lease 60s").pop());
    assert!(asked.elapsed() >= Duration::from_secs(2), "it was held until then");
    assert_eq!((&second["id"], &second["attempt"]), (&acked["id"], &2.into()));
    let (token, later) = (text(&first[0]["token"]), text(&second["token"]));
    assert!(token_parts(&later) > token_parts(&token), "{later} is not above {token}");

    // As in Skuld, the first of the two claims completes the task: any holder's work counts.
    let completed = repl.ask(&format!("complete {id} {token}"));
    assert_eq!((&completed["id"], &completed["guarantee"]), (&acked["id"], &"strict".into()));
    assert!(completed["acks"].as_u64().is_some_and(|acks| acks >= 2), "{completed}");
    let task = repl.ask(&format!("get {id}"));
    assert_eq!(task["state"], "done", "{task}");
    let claims = task["claims"].as_array().expect("claims are listed");
    assert_eq!(claims.len(), 2, "{task}");
    let tokens: Vec<String> = claims.iter().map(|claim| text(&claim["token"])).collect();
    assert_eq!(tokens, [token, later]);
    assert!(claims.iter().all(|claim| claim["start_ms"].is_u64() && claim["end_ms"].is_u64()), "{task}");
    let completed: Vec<bool> = claims.iter().map(|claim| claim["completed_ms"].is_u64()).collect();
    assert_eq!(completed, [true, false], "{task}");
    assert_eq!(repl.ask("count")["count"], 1);
    assert_eq!(repl.ask("count --state done")["count"], 1);
    assert_eq!(repl.claim("letters"), Vec::<Value>::new());
    assert_eq!(repl.finish(), Some(0));
}

// T19, O6, S8, S14, S52
/// Every verb once in the REPL, each answered by exactly one line.
#[test]
fn every_verb_in_the_repl() {
    let cluster = Cluster::start();
    let mut repl = cluster.cli().patient().repl();
    working_verbs(&mut repl);
    looking_verbs(&mut repl);
    steering_verbs(&mut repl);
    data_from_files(&mut repl, &cluster.cli().patient());
    refused_in_the_repl(&mut repl);
    assert_eq!(repl.finish(), Some(0), "refusals are answers, too");
}

fn working_verbs(repl: &mut Repl) {
    let id = text(&repl.ask("enqueue work data --priority 7 --header kind=test --max-attempts 5")["id"]);
    let claimed = repl.claim("work,other --lease 60s --max 3 --wait 0s").remove(0);
    assert_eq!((&claimed["priority"], &claimed["headers"]["kind"]), (&7.into(), &"test".into()));
    let token = text(&claimed["token"]);
    let renewed = repl.ask(&format!("renew {id} {token} --lease 90s"));
    assert!(renewed["lease_expires_ms"].as_u64() > claimed["lease_expires_ms"].as_u64(), "{renewed}");
    assert_eq!(repl.ask(&format!("update {id} {token} 0 begun"))["id"], claimed["id"]);
    let log = repl.rows(&format!("log {id}"));
    assert_eq!(
        (&log[0]["data"], &log[0]["sequence"], &log[0]["token"]),
        (&"begun".into(), &0.into(), &claimed["token"])
    );
    assert_eq!(repl.ask(&format!("release {id} {token}"))["token"], claimed["token"]);
    let again = wait::found("a released task can be claimed", || repl.claim("work --lease 60s").pop());
    assert_eq!(again["updates"][0]["data"], "begun");
    let token = text(&again["token"]);
    repl.ask(&format!("fail {id} {token} --reason 'not yet' --retry-in 1ms"));
    let again = wait::found("a failed task can be claimed", || repl.claim("work --lease 60s").pop());
    let token = text(&again["token"]);
    assert_eq!(repl.ask(&format!("complete {id} {token} --seq 0 --result result"))["id"], claimed["id"]);
    let done = repl.ask(&format!("wait {id} --timeout 30s"));
    assert_eq!((&done["state"], &done["result"]), (&"done".into(), &"result".into()));
    // A prefix of an id is enough. Ids of one second share their first characters.
    assert_eq!(repl.ask(&format!("get {}", &id[..30]))["id"], claimed["id"]);

    let invalid = text(&repl.ask("enqueue invalid")["id"]);
    let token = text(&repl.claim("invalid")[0]["token"]);
    repl.ask(&format!("fail {invalid} {token} --invalid --reason nonsense"));
    let dead = repl.ask(&format!("get {invalid}"));
    assert_eq!((&dead["state"], &dead["reason"]), (&"dead".into(), &"invalid: nonsense".into()));
    let unwanted = text(&repl.ask("enqueue unwanted --delay 1h")["id"]);
    assert_eq!(repl.ask(&format!("get {unwanted}"))["state"], "waiting");
    assert_eq!(text(&repl.ask(&format!("cancel {unwanted}"))["id"]), unwanted);
    assert_eq!(repl.ask(&format!("get {unwanted}"))["state"], "cancelled");
}

/// Repeats a command until its answer is right: after a node has stalled, nodes' knowledge of each other lags.
fn shows(repl: &mut Repl, command: &str, right: impl Fn(&Value) -> bool) -> Value {
    wait::found(command, || Some(repl.ask(command)).filter(&right))
}

fn has_rows(answer: &Value, count: usize) -> bool {
    answer.as_array().is_some_and(|rows| rows.len() == count)
}

fn looking_verbs(repl: &mut Repl) {
    shows(repl, "count work --state done", |answer| answer["count"] == 1);
    shows(repl, "list work --state done --limit 5", |answer| has_rows(answer, 1));
    shows(repl, "queues", |queues| {
        let work = queues.as_array().and_then(|queues| queues.iter().find(|queue| queue["queue"] == "work"));
        work.is_some_and(|work| work["done"] == 1 && work["ready"] == 0)
    });
    let group = text(&repl.ask("enqueue pages one --group book --number 1 --total 1")["group"]);
    shows(repl, &format!("members {group}"), |members| members[0]["state"] == "ready");
    let all = |rows: &Value, right: fn(&Value) -> bool| rows.as_array().is_some_and(|rows| rows.iter().all(right));
    shows(repl, "nodes", |nodes| has_rows(nodes, 3) && all(nodes, |node| node["alive"] == true));
    assert_eq!(repl.rows("ring").len(), 16);
    shows(repl, "partitions", |rows| has_rows(rows, 16) && all(rows, |partition| partition["leader"].is_string()));
    shows(repl, "status", |status| status["nodes"]["alive"] == 3 && status["partitions"]["led"] == 16);
    assert!(repl.ask("help claim").is_object());
}

fn steering_verbs(repl: &mut Repl) {
    assert_eq!(repl.ask("queue set steered attempts 1")["attempts"], 1);
    assert_eq!(repl.rows("queue show steered")[0]["attempts"], 1);
    let session = repl.ask("session open --ttl 30s --worker host-7");
    let [session, token] = ["id", "token"].map(|field| text(&session[field]));
    let task = text(&repl.ask("enqueue steered once")["id"]);
    let held = repl.claim(&format!("steered --session {session}")).remove(0);
    assert!(repl.ask(&format!("session renew {session} {token}"))["ttl_ms"].is_u64());
    let mistaken = repl.refusal(&format!("session end {task} {}", text(&held["token"])));
    assert!(text(&mistaken["message"]).contains("no session"), "{mistaken}");
    assert_eq!(text(&repl.ask(&format!("session end {session} {token}"))["id"]), session);
    let again = wait::found("its end gives the task back", || repl.claim("steered").pop());
    repl.ask(&format!("fail {task} {} --reason broken", text(&again["token"])));
    // The second time the answer names the existing copy.
    let twice = repl.refusal(&format!("redrive {task} {task}"));
    assert!(text(&twice["message"]).contains("name each once"), "{twice}");
    let copies = [(); 2].map(|()| repl.rows(&format!("redrive {task}")).swap_remove(0));
    assert_eq!(copies[0]["id"], copies[1]["id"], "{copies:?}");
    let copy = wait::found("it is there once more", || repl.claim("steered").pop());
    assert_eq!(copy["data"], "once");
    let deletes =
        format!(r#"{{"id": "{}", "token": "{}", "result": "by then"}}"#, text(&copy["id"]), text(&copy["token"]));
    let adds = r#"{"queue": "steered/next", "data": "two"}"#;
    let done = repl.ask(&format!("transact '{{\"adds\": [{adds}], \"deletes\": [{deletes}]}}'"));
    assert_eq!(done["added"].as_array().map(Vec::len), Some(1), "{done}");
    assert_eq!(repl.ask(&format!("get {}", text(&copy["id"])))["result"], "by then");
    assert_eq!(repl.rows("watch steered --timeout 1s")[0]["watch"], "begun");

    let launch = "schedule set launch steered open --at 2100-01-31T09:00:00Z";
    for command in [launch, "schedule pause launch", "schedule resume launch"] {
        assert_eq!(repl.ask(command)["name"], "launch", "{command}");
    }
    assert_eq!(repl.rows("schedule list")[0]["queue"], "steered");
    assert!(repl.ask("schedule show launch").is_object());
    // A repeated call may find that the change is already made.
    assert!(repl.ask("schedule remove launch")["removed"].is_boolean());
    assert_eq!(repl.refusal("schedule show launch")["code"], "not_found");
}

fn data_from_files(repl: &mut Repl, cli: &Cli) {
    let bytes = [0, 159, 146, 150];
    fs::write(cli.directory().join("binary"), bytes).expect("a file is written");
    for command in ["enqueue binary @binary", "enqueue binary --file binary"] {
        let id = text(&repl.ask(command)["id"]);
        let task = repl.ask(&format!("get {id}"));
        assert_eq!((&task["data"], &task["data_encoding"]), (&"AJ+Slg==".into(), &"base64".into()), "{command}");
    }
    let id = text(&repl.ask("enqueue quoted '@binary'")["id"]);
    assert_eq!(repl.ask(&format!("get {id}"))["data"], "@binary", "quotes make it text");
    let id = text(&repl.ask(r#"enqueue escaped "one\ntwo \"three\"""#)["id"]);
    assert_eq!(repl.ask(&format!("get {id}"))["data"], "one\ntwo \"three\"");
}

fn refused_in_the_repl(repl: &mut Repl) {
    assert_eq!(repl.refusal("get 00000000000000000000000000000000")["code"], "not_found");
    assert_eq!(repl.refusal("enqueue q data --group g --number 3 --total 2")["code"], "invalid");
    assert_eq!(repl.refusal("enqueue q data --parent p")["code"], "unsupported");
    assert_eq!(repl.refusal("claim q --session s")["code"], "invalid");
    assert_eq!(repl.refusal("nonsense")["code"], "invalid");
    assert_eq!(repl.refusal("enqueue 'unclosed")["code"], "invalid");
    assert_eq!(repl.refusal("renew")["code"], "invalid");
    assert_eq!(repl.refusal("get 00000000000000000000000000000000")["retry"], "never");
}

/// Every verb once as a separate command, for scripts.
#[test]
fn every_verb_one_shot() {
    let cluster = Cluster::start();
    let cli = cluster.cli().patient();
    let object = |arguments: &[&str]| cli.json(arguments).done().object();
    let id = text(&object(&["enqueue", "space/work", "data", "--acks", "all", "--at", "2020-01-01T00:00:00Z"])["id"]);
    let claimed = object(&["claim", "space/work", "--lease", "60s", "--wait", "10s", "--max", "2"]);
    assert_eq!((&claimed["queue"], &claimed["data_encoding"]), (&"space/work".into(), &"utf8".into()));
    let token = text(&claimed["token"]);
    assert_eq!(object(&["renew", &id, &token])["token"], claimed["token"]);
    object(&["update", &id, &token, "0", "half", "--acks", "quorum"]);
    assert_eq!(object(&["log", &id])["data"], "half");
    assert_eq!(object(&["get", &id, "--min-seq", "1"])["updates"][0]["data"], "half");
    object(&["release", &id, &token]);
    let again = object(&["claim", "space/work", "--wait", "10s", "--lease", "60s"]);
    object(&["fail", &id, &text(&again["token"]), "--reason", "later", "--retry-in", "1ms"]);
    let again = object(&["claim", "space/work", "--wait", "10s", "--lease", "60s"]);
    let token = text(&again["token"]);
    let completed = cli.run_with(&["complete", &id, &token, "-", "--json"], b"by pipe");
    assert_eq!(completed.done().object()["id"], claimed["id"]);
    assert_eq!(object(&["wait", &id, "--timeout", "10s"])["result"], "by pipe");
    let unwanted = text(&object(&["enqueue", "unwanted"])["id"]);
    object(&["cancel", &unwanted, "--reason", "unwanted"]);

    assert_eq!(object(&["count"])["count"], 2);
    assert_eq!(object(&["count", "space/work", "--state", "done"])["count"], 1);
    assert_eq!(cli.json(&["list", "--limit", "1"]).done().lines().len(), 1);
    assert_eq!(cli.json(&["queues"]).done().lines().len(), 2);
    assert_eq!(cli.json(&["nodes"]).done().lines().len(), 3);
    assert_eq!(cli.json(&["ring"]).done().lines().len(), 16);
    assert_eq!(cli.json(&["partitions"]).done().lines().len(), 16);
    assert_eq!(object(&["status"])["nodes"]["total"], 3);
    let alive = || (object(&["cluster", "status"])["nodes"]["alive"] == 3).then_some(());
    wait::found("all nodes are alive", alive);
    assert!(object(&["help", "claim"]).is_object());
}

/// Output for people: tables and sentences, not JSON.
#[test]
fn people_read_text() {
    let cluster = Cluster::start();
    let cli = cluster.cli().patient();
    let run = |arguments: &[&str]| {
        let answer = cli.run(arguments);
        assert_eq!(answer.code, Some(0), "{answer:?}");
        assert!(!answer.stdout.contains('\u{1b}'), "no colours on a pipe: {}", answer.stdout);
        answer.stdout
    };
    let says = |arguments: &[&str], words: &[&str]| {
        let said = run(arguments);
        words.iter().for_each(|word| assert!(said.contains(word), "no {word:?} in {said}"));
        said
    };
    // After a node has stalled, nodes' knowledge of each other lags.
    let shows = |arguments: &[&str], words: &[&str]| {
        wait::found(&format!("{arguments:?} shows {words:?}"), || {
            let said = run(arguments);
            words.iter().all(|word| said.contains(word)).then_some(())
        });
    };
    let enqueued = says(&["enqueue", "people", "hello"], &["enqueued", "of 3 replicas, strict"]);
    let id = enqueued.split_whitespace().nth(1).expect("an id").to_owned();
    shows(&["list"], &["ID", "QUEUE", "STATE", "people", "ready", &id]);
    shows(&["get", &id], &["queue       people", "state       ready", "data"]);
    shows(&["count"], &["1"]);
    says(&["claim", "people", "--wait", "30s", "--lease", "60s"], &["claimed", "token", "lease", "attempt"]);
    shows(&["queues"], &["CLAIMED", "people"]);
    shows(&["nodes"], &["NAME", "n1", "n2", "n3"]);
    shows(&["ring"], &["n1"]);
    shows(&["partitions"], &["n1"]);
    shows(&["status"], &["3 of 3 alive", "16 of 16 with a leader"]);
    shows(&["log", &id], &["the log is empty"]);
    says(&["help"], &["enqueue", "claim", "start", "cluster"]);
    says(&["help", "claim"], &["--lease"]);
    let token = text(&cli.json(&["get", &id]).done().object()["claims"][0]["token"]);
    says(&["complete", &id, &token], &[&id]);
    // The command checks only briefly how the task has ended.
    wait::found("a cancellation that is late says so", || {
        let late = cli.run(&["cancel", &id]);
        late.stdout.contains("is done, and stays so").then(|| assert_eq!(late.code, Some(5), "{late:?}"))
    });
    let nothing = wait::found("all partitions can be asked", || {
        Some(cli.run(&["claim", "people"])).filter(|answer| answer.code != Some(3))
    });
    assert_eq!((nothing.code, nothing.stdout.trim()), (Some(4), "nothing to claim"));
    let refused = cli.run(&["get", &"0".repeat(32)]);
    assert!(refused.code == Some(1) && refused.stdout.is_empty() && !refused.stderr.is_empty(), "{refused:?}");
    let misused = cli.run(&["claim"]);
    assert!(misused.code == Some(2) && misused.stderr.contains("QUEUE"), "{misused:?}");
}

/// Exit codes: 0 done, 1 refused, 2 usage, 3 unavailable or unknown, 4 nothing to claim.
#[test]
fn exit_codes_tell_scripts_what_happened() {
    let mut cluster = Cluster::start();
    let cli = cluster.cli().patient();
    let nobody = "0".repeat(32);
    assert_eq!(cli.json(&["get", &nobody]).refusal(1)["code"], "not_found");
    assert_eq!(cli.json(&["complete", &nobody, "7"]).refusal(1)["code"], "invalid");
    assert_eq!(cli.json(&["enqueue", &"q".repeat(256), "data"]).refusal(1)["code"], "invalid");
    let id = text(&cli.json(&["enqueue", "q", "data"]).object()["id"]);
    let first = text(&cli.claim(&["q", "--lease", "100ms"]).object()["token"]);
    let second = text(&cli.claim(&["q", "--wait", "30s"]).done().object()["token"]);
    assert_eq!(cli.json(&["renew", &id, &first]).refusal(1)["code"], "superseded");
    let nothing = cli.claim(&["q"]);
    assert_eq!((nothing.code, nothing.stdout.as_str()), (Some(4), ""));
    cli.json(&["complete", &id, &second]).done();
    // The task's leader may not be one of the two nodes that already have the completion.
    let late = || Some(cli.json(&["release", &id, &second])).filter(|answer| answer.code != Some(0));
    assert_eq!(wait::found("the leader has heard that it is done", late).refusal(1)["code"], "ended");
    assert_eq!(
        cli.json(&["wait", &text(&cli.json(&["enqueue", "w"]).object()["id"]), "--timeout", "10ms"]).code,
        Some(3)
    );

    let parent = cli.json(&["enqueue", "q", "data", "--parent", &nobody]);
    assert_eq!(parent.refusal(2)["code"], "unsupported");
    assert_eq!(cli.claim(&["q", "--session", "s"]).refusal(1)["code"], "invalid");
    for arguments in [
        ["count", "--state", "weary"].as_slice(),
        &["claim"],
        &["claim", "q", "--lease", "soon"],
        &["fly"],
        &["enqueue", "q", "x", "--group", "g"],
    ] {
        cli.json(arguments).refusal(2);
    }
    assert_eq!(cli.json(&["count", "q"]).done().object()["count"], 1, "nothing of that was done");

    cluster.kill_together(&[0, 1]);
    let unavailable = cli.json(&["--timeout", "2s", "enqueue", "q", "data"]);
    let code = text(&unavailable.refusal(3)["code"]);
    assert!(matches!(code.as_str(), "unknown" | "unavailable"), "{unavailable:?}");
    if code == "unknown" {
        assert!(unavailable.object()["error"]["id"].is_string(), "an unknown outcome names the id: {unavailable:?}");
    }
    cluster.kill(2);
    let unavailable = cli.json(&["--timeout", "1s", "count"]);
    assert!(matches!(unavailable.refusal(3)["code"].as_str(), Some("unknown" | "unavailable")), "{unavailable:?}");
}

// T16, O30, S16, S32
/// Data is bytes: from an argument, a file or a pipe, and back as text or base64.
#[test]
fn data_of_every_kind_comes_back_as_it_was() {
    let cluster = Cluster::start();
    let cli = cluster.cli().patient();
    let every_byte: Vec<u8> = (0..=255).collect();
    fs::write(cli.directory().join("bytes"), &every_byte).expect("a file is written");
    let from_pipe = cli.run_with(&["--json", "enqueue", "bytes", "-"], &every_byte).done().object();
    let from_file = cli.json(&["enqueue", "bytes", "--file", "bytes"]).done().object();
    let tasks: Vec<Value> =
        [from_pipe, from_file].iter().map(|acked| cli.json(&["get", &text(&acked["id"])]).done().object()).collect();
    assert_eq!(tasks[0]["data_encoding"], "base64");
    assert_eq!(tasks[0]["data"], tasks[1]["data"]);
    let encoded = text(&tasks[0]["data"]);
    assert!(encoded.len() == 344 && encoded.starts_with("AAECAwQF") && encoded.ends_with("/P3+/w=="), "{encoded}");

    let lines = cli.run_with(&["--json", "enqueue", "lines", "--lines", "-"], "one\n\ntwo\nthr\u{e9}e\n".as_bytes());
    assert_eq!(lines.done().lines().len(), 3, "empty lines are left out");
    let mut data: Vec<String> = cli.json(&["list", "lines"]).lines().iter().map(|task| text(&task["data"])).collect();
    data.sort();
    assert_eq!(data, ["one", "thr\u{e9}e", "two"]);
    let too_large = cli.run_with(&["--json", "enqueue", "bytes", "-"], &vec![0; (1 << 20) + 1]);
    assert_eq!(too_large.refusal(1)["code"], "invalid");
    let largest = cli.run_with(&["--json", "enqueue", "bytes", "-"], &vec![b'x'; 1 << 20]).done().object();
    let back = cli.json(&["get", &text(&largest["id"])]).done().object();
    assert_eq!(text(&back["data"]).len(), 1 << 20);

    let id = text(&cli.json(&["enqueue", "again", "same"]).object()["id"]);
    cli.json(&["enqueue", "again", "same", "--id", &id]).done();
    assert_eq!(cli.json(&["count", "again"]).object()["count"], 1, "one id is one task");
    assert_eq!(cli.json(&["enqueue", "again", "other", "--id", &id]).refusal(1)["code"], "conflict");
}

// S18
/// A task is not claimable before its dependencies have ended, in whatever order they come.
#[test]
fn tasks_wait_for_others() {
    let cluster = Cluster::start();
    let mut repl = cluster.cli().patient().repl();
    let first = text(&repl.ask("enqueue steps bake")["id"]);
    let second = text(&repl.ask("enqueue steps wrap")["id"]);
    let last = text(&repl.ask(&format!("enqueue parcels send --after {first},{second}"))["id"]);
    assert_eq!(repl.ask(&format!("get {last}"))["state"], "waiting");
    assert_eq!(repl.claim("parcels"), Vec::<Value>::new());
    let causes: Vec<String> = repl.rows(&format!("why {last}")).iter().map(|row| text(&row["cause"])).collect();
    assert_eq!(causes, ["waits_for", "ready", "ready"]);
    for _ in 0..2 {
        let claim = repl.claim("steps").pop().expect("both are ready");
        repl.ask(&format!("complete {} {}", text(&claim["id"]), text(&claim["token"])));
    }
    let claim = repl.claim("parcels --wait 30s").pop().expect("it has waited for nothing else");
    assert_eq!(text(&claim["id"]), last);
    // A cancelled dependency fails its dependents, unless their queue is set otherwise.
    let fails = text(&repl.ask("enqueue steps peel")["id"]);
    let policy = repl.ask("queue set letters failed-dependency skip");
    assert_eq!(policy["failed_dependency"], "skip", "{policy}");
    cluster.wait_heard_changes();
    let [dies, goes_on] = ["parcels", "letters"]
        .map(|queue| text(&repl.ask(&format!("enqueue {queue} x --after {fails} --must-exist"))["id"]));
    repl.ask(&format!("cancel {fails}"));
    let dead = repl.ask(&format!("wait {dies} --timeout 30s"));
    assert_eq!(dead["state"], "dead");
    assert!(text(&dead["reason"]).contains("was cancelled"), "{dead}");
    let claim = repl.claim("letters --wait 30s").pop().expect("it goes on");
    assert_eq!(text(&claim["id"]), goes_on);
    // The two tasks would wait for each other. The first one names the other's id before that task exists.
    let now_ms = SystemTime::UNIX_EPOCH.elapsed().expect("it is later than 1970").as_millis() as u64;
    let [one, other] = [1, 2].map(|number| TaskId::new(now_ms, number, 0, 0).to_string());
    repl.ask(&format!("enqueue rings x --id {one} --after {other}"));
    let refused = repl.refusal(&format!("enqueue rings x --id {other} --after {one}"));
    assert!(text(&refused["message"]).contains("circle"), "{refused}");
    let causes: Vec<String> = repl.rows(&format!("why {one}")).iter().map(|row| text(&row["cause"])).collect();
    assert_eq!(causes, ["waits_for", "unknown"]);
}

/// Goal: a dependency cycle that no node prevented, because none has all of its tasks, is shown by `why` and can be broken as its
/// answer says.
#[test]
fn a_circle_that_came_together_at_several_nodes_is_shown() {
    let cluster = Cluster::start_with(ClusterOptions { replicas: Some(1), ..ClusterOptions::default() });
    let now_ms = SystemTime::UNIX_EPOCH.elapsed().expect("it is later than 1970").as_millis() as u64;
    let [one, other] = [0, 1 << 23].map(|tag| TaskId::new(now_ms, 1, 0, tag).to_string());
    cluster.cli().patient().json(&["enqueue", "rings", "x", "--id", &one, "--after", &other]).done();
    // The node with the first task refuses the second. The two others do not know the first.
    let closes = |index: &usize| {
        let answer = cluster.cli_at(*index).json(&["enqueue", "rings", "x", "--id", &other, "--after", &one]);
        let taken = answer.code == Some(0);
        assert!(taken || text(&answer.refusal(1)["message"]).contains("circle"), "{answer:?}");
        taken
    };
    assert!((0..3).any(|index| closes(&index)), "two of them have one task at most");
    let mut repl = cluster.cli().patient().repl();
    let rows = repl.rows(&format!("why {one}"));
    let causes: Vec<&Value> = rows.iter().map(|row| &row["cause"]).collect();
    assert_eq!(causes, ["circle", "circle"], "{rows:?}");
    assert!(text(&rows[0]["explanation"]).contains(&other), "{rows:?}");
    assert_eq!(repl.ask("queue set rings failed-dependency skip")["failed_dependency"], "skip");
    cluster.wait_heard_changes();
    repl.ask(&format!("cancel {other}"));
    let claim = repl.claim("rings --wait 30s").pop().expect("it goes on");
    assert_eq!(text(&claim["id"]), one);
}
