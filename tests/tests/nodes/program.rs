//! The `norn` binary as a person or a script uses it: real processes, real certificates, real ports.

use norn_host::disk::FileDisk;
use norn_tests::ports::{free_port, free_ports, is_free};
use norn_tests::wait::{found, received, until};
use norn_tests::{Cluster, binary};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use tempfile::TempDir;

fn norn(directory: &Path) -> Command {
    let mut command = Command::new(binary::norn());
    command.current_dir(directory).env_remove("NORN_CLIENT").stdin(Stdio::null());
    command
}

fn run(directory: &Path, arguments: &[&str]) -> Output {
    norn(directory).args(arguments).output().expect("the binary runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn succeeds(directory: &Path, arguments: &[&str]) -> String {
    let output = run(directory, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// Exit code and standard error of a command that must fail.
fn fails(directory: &Path, arguments: &[&str]) -> (i32, String) {
    let output = run(directory, arguments);
    assert!(!output.status.success(), "{arguments:?} must fail: {}", text(&output.stdout));
    let message = text(&output.stderr);
    assert!(message.lines().any(|line| line.starts_with("error: ")), "{arguments:?}: {message}");
    (output.status.code().expect("no signal"), message)
}

/// A process that ends with the test.
struct Running {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Running {
    fn start(directory: &Path, arguments: &[&str]) -> Running {
        let mut command = norn(directory);
        let child = command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn();
        let mut child = child.expect("the binary runs");
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Running { child, lines }
    }

    fn is_ready(&mut self) {
        assert_eq!(received("it gets ready", &self.lines), "ready");
    }

    /// Stops the process as an operator would; returns the rest of its standard output.
    fn stop(mut self) -> Vec<String> {
        signal(i32::try_from(self.child.id()).unwrap(), "TERM");
        let rest = self.lines.iter().collect();
        assert!(self.child.wait().unwrap().success());
        rest
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn signal(process: i32, name: &str) {
    let sent = Command::new("kill").args([&format!("-{name}"), &process.to_string()]).status().unwrap();
    assert!(sent.success());
}

fn authority(directory: &Path, nodes: &[&str]) {
    succeeds(directory, &["cert", "ca", "--dir", "certs"]);
    for name in nodes {
        succeeds(directory, &["cert", "node", name, "--host", "127.0.0.1", "--dir", "certs"]);
    }
    succeeds(directory, &["cert", "client", "me", "--dir", "certs"]);
}

/// Id of the process that runs a node of this cluster, found by its data directory.
fn node_process(directory: &Path, name: &str) -> Option<i32> {
    let data = directory.join(".norn").join(name);
    let data = data.to_str().unwrap();
    let pids = std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.into_iter().find(|pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        words.get(1) == Some(&b"start".as_slice()) && words.contains(&data.as_bytes())
    })
}

#[test]
fn the_version_of_the_program_names_those_of_the_protocol() {
    let directory = TempDir::new().unwrap();
    let spoken = norn_wire::Versions::SPOKEN;
    let version = succeeds(directory.path(), &["--version"]);
    assert_eq!(version.trim(), format!("norn {} (protocol {spoken})", env!("CARGO_PKG_VERSION")));
}

#[test]
fn certificates_are_never_overwritten() {
    let directory = TempDir::new().unwrap();
    let place = directory.path();
    let (code, message) = fails(place, &["cert", "client", "me", "--dir", "certs"]);
    assert!(code == 1 && message.contains("norn cert ca"), "{message}");
    authority(place, &["n1"]);
    for arguments in [
        ["cert", "ca", "--dir", "certs"].as_slice(),
        &["cert", "client", "me", "--dir", "certs"],
        &["cert", "node", "n1", "--host", "h", "--dir", "certs"],
    ] {
        let (code, message) = fails(place, arguments);
        assert!(code == 1 && message.contains("not overwritten"), "{message}");
    }
    assert_eq!(fails(place, &["cert", "node", "n2", "--dir", "certs"]).0, 2, "a node needs a host");
}

/// Goal: the validity of a certificate can be chosen within bounds, and is reported.
#[test]
fn certificates_are_made_for_a_number_of_days_and_say_until_when() {
    let directory = TempDir::new().unwrap();
    let place = directory.path();
    let made = succeeds(place, &["cert", "ca", "--dir", "certs", "--days", "90"]);
    assert!(made.contains("made certs/ca.crt and certs/ca.key, valid until 2"), "{made}");
    let client = |more: &[&str]| succeeds(place, &[&["cert", "client", "me", "--dir", "certs"], more].concat());
    let made = client(&[]);
    assert!(made.contains(" UTC, when its authority ends"), "{made}");
    let made = client(&["--renew", "--days", "30"]);
    assert!(made.trim_end().ends_with(" UTC"), "{made}");
    let json: serde_json::Value = serde_json::from_str(&client(&["--renew", "--json"])).unwrap();
    assert!(json["valid_until_ms"].as_u64().is_some(), "{json}");
    for wrong in ["0", "36501", "-1", "year"] {
        let days = format!("--days={wrong}");
        let (code, message) = fails(place, &["cert", "client", "other", "--dir", "certs", &days]);
        assert!(code == 2 && message.contains("--days"), "{wrong}: {message}");
    }
}

#[test]
fn settings_show_where_they_come_from() {
    let directory = TempDir::new().unwrap();
    let place = directory.path();
    std::fs::write(place.join("norn.toml"), "heartbeat_ms = 40\nzone = \"east\"\n").unwrap();
    let output = norn(place)
        .args(["start", "--config", "norn.toml", "--data", "d", "--set", "resend_ms=99", "--print-config"])
        .env("NORN_ZONE", "west")
        .output()
        .unwrap();
    let printed = text(&output.stdout);
    for line in [
        "heartbeat_ms = 40  # file norn.toml",
        "zone = \"west\"  # environment NORN_ZONE",
        "resend_ms = 99  # flag",
        "data = \"d\"  # flag",
        "election_timeout_ms = 300  # default",
    ] {
        assert!(printed.lines().any(|printed| printed == line), "{line}\n{printed}");
    }
    let printed = succeeds(place, &["start", "--data", "d", "--print-config", "--json"]);
    let data = printed.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()).next().unwrap();
    assert_eq!((&data["name"], &data["value"], &data["source"]), (&"data".into(), &"d".into(), &"flag".into()));
    assert_eq!(fails(place, &["start", "--data", "d"]).0, 2, "certificates are needed");
    assert_eq!(fails(place, &["start", "--set", "nonsense=1"]).0, 2);
    assert_eq!(fails(place, &["start", "--data", "d", "--certs", "c", "--join", "h:1"]).0, 2);
}

/// Goal: if standard output fails, every command reports it on standard error.
#[test]
fn what_cannot_be_written_is_said_on_standard_error() {
    let directory = TempDir::new().unwrap();
    let cert = ["cert", "ca", "--dir", "certs"];
    for arguments in [["help"].as_slice(), &["--version"], &["enqueue", "--help"], &["help", "--json"], &cert] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = norn(directory.path()).args(arguments).stdout(full).output().unwrap();
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {message}");
        assert!(message.starts_with("error: cannot write "), "{arguments:?}: {message}");
    }
}

#[test]
fn what_makes_no_sense_says_so_and_json_errors_are_one_object() {
    let directory = TempDir::new().unwrap();
    let place = directory.path();
    let join = ["start", "--data", "d", "--certs", "c", "--join", "norn:12@h:1"];
    let (code, message) = fails(place, &join);
    assert!(code == 2 && message.contains("norn cluster token"), "{message}");
    let (code, message) = fails(place, &["start", "--data", "d", "--certs", "c", "--log", "info,norn[step]=debug"]);
    assert!(code == 2 && message.contains("spans"), "{message}");
    let output = run(place, &[&join[..], &["--json"]].concat());
    let lines = text(&output.stdout);
    let object: Value = serde_json::from_str(lines.trim()).unwrap();
    assert_eq!(object["error"]["code"], "invalid");
    assert_eq!(object["error"]["retry"], "never");
    for arguments in [["status"].as_slice(), &["cluster", "add", "h:1"], &["cluster", "set", "moves", "3"]] {
        let (code, message) = fails(place, arguments);
        assert!(code == 2 && message.contains("norn dev"), "{message}");
    }
}

/// Goal: one table of exit codes is enough for a script, also for the commands that only the `norn` program has.
#[test]
fn each_command_of_the_program_ends_by_the_table_of_exit_codes() {
    let directory = TempDir::new().unwrap();
    let place = directory.path();
    authority(place, &["n1"]);
    std::fs::write(place.join("file"), "no directory").unwrap();
    let nobody = format!("127.0.0.1:{}", free_port());
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let taken = socket.local_addr().unwrap().to_string();
    let (refused, usage, unavailable) = (1, 2, 3);
    let start = ["start", "--data", "n1", "--certs"];
    let cases: [(&[&str], i32); 19] = [
        (&["dev", "--nodes", "0"], usage),
        (&["dev", "--data", "file", "--no-repl"], refused),
        (&["start"], usage),
        (&[&start[..], &["certs", "--set", "no_such_setting=1"]].concat(), usage),
        (&[&start[..], &["nowhere"]].concat(), usage),
        (&[&start[..], &["certs", "--listen", &taken]].concat(), refused),
        (&["cert", "ca", "--dir", "certs"], refused),
        (&["cert", "ca"], usage),
        (&["cert", "node", "n1", "--host", "h", "--dir", "certs"], refused),
        (&["cert", "node", "n2", "--dir", "certs"], usage),
        (&["cert", "client", "me", "--dir", "certs"], refused),
        (&["cert", "client", "--dir", "certs"], usage),
        (&["cluster", "init", "--peers", &nobody, "--certs", "certs", "--timeout", "1s"], unavailable),
        (&["cluster", "init", "--peers", &nobody], usage),
        (&["log", "inspect", "nowhere"], usage),
        (&["log", "verify", "certs"], usage),
        (&["log", "repair", "certs", "--dry-run"], usage),
        (&["repl"], usage),
        (&["repl", "--no-such-flag"], usage),
    ];
    for (arguments, code) in cases {
        assert_eq!(fails(place, arguments).0, code, "{arguments:?}");
        if arguments[0] != "start" {
            assert_eq!(fails(place, &[arguments, &["--no-such-flag"]].concat()).0, usage, "{arguments:?}");
        }
        // The same with output for programs.
        let output = run(place, &[arguments, &["--json"]].concat());
        let told: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {arguments:?}"));
        assert_eq!((output.status.code(), told["error"]["message"].is_string()), (Some(code), true), "{told}");
    }
    // A refusal is an answer at the prompt and does not end it.
    let output = run(place, &["--connect", &nobody, "--certs", "certs", "repl"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

/// The lines of a node's standard error: level and message of each.
fn objects(said: &str) -> Vec<(String, String)> {
    let read = |line: &str| {
        let object: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line:?} in {said}"));
        assert!(object["timestamp"].is_string(), "{line}");
        let word = |value: &Value| value.as_str().unwrap_or_else(|| panic!("no text in {line}")).to_owned();
        (word(&object["level"]), object["fields"]["message"].as_str().unwrap_or_default().to_owned())
    };
    said.lines().map(read).collect()
}

/// Goal: a program that reads a node's log as JSON reads nothing else, whether it is a message, a refused start, or a wrong command
/// line.
#[test]
fn a_log_in_json_is_json_from_the_first_line_to_the_last() {
    let mut cluster = Cluster::prepare(1, vec!["log_format=json".to_owned()]);
    cluster.restart(0);
    cluster.wait_ready(0);
    cluster.init(&[0], &["--partitions", "1"]).done();
    cluster.cli().patient().json(&["enqueue", "mail", "hello"]).done();
    let refused = |stderr: &str, words: &str| {
        let (level, message) = objects(stderr).pop().expect("it says why it ends");
        assert!(level == "ERROR" && message.contains(words), "{level}: {message}");
    };
    let taken = cluster.fails_to_start_on(0, "n1", &format!("127.0.0.1:{}", free_port()));
    assert_eq!((taken.code, taken.stdout.as_str()), (Some(1), ""));
    refused(&taken.stderr, "is held by");
    assert!(cluster.terminate(0).success());
    let log = objects(&cluster.log(0));
    let is_said = |level: &str, words: &str| log.iter().any(|line| line.0 == level && line.1.contains(words));
    for words in ["has no cluster yet", "listening", "stopped"] {
        assert!(is_said("INFO", words), "no {words:?} in {log:?}");
    }

    let place = cluster.directory();
    std::fs::write(place.join("node.toml"), "log_format = \"json\"\n").unwrap();
    let data = ["start", "--data", "n9", "--certs", "nowhere"];
    for (more, code, words) in [
        (["--log-format", "json", "--nonsense"].as_slice(), 2, "--nonsense"),
        (&["--log-format=json", "--log", "info,norn[step]=debug"], 2, "spans"),
        (&["--set", "log_format=json", "--set", "no_such_setting=1"], 2, "no_such_setting"),
        (&["--log-format", "json"], 2, "nowhere"),
        (&["--config", "node.toml"], 2, "nowhere"),
    ] {
        let output = run(place, &[&data[..], more].concat());
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(code), ""), "{more:?}");
        refused(&text(&output.stderr), words);
    }
    let output = norn(place).args(data).env("NORN_LOG_FORMAT", "json").output().expect("the binary runs");
    refused(&text(&output.stderr), "nowhere");
}

/// Goal: `cluster init` can be repeated, completes an interrupted run, and refuses arguments that do not fit the cluster.
#[test]
fn a_cluster_is_founded_once() {
    let directory = TempDir::new().unwrap();
    let place = directory.path();
    authority(place, &["n1", "n2", "n3"]);
    let addresses: Vec<String> = free_ports(3).map(|port| format!("127.0.0.1:{port}")).collect();
    let start = |index: usize| {
        let data = format!("n{}", index + 1);
        Running::start(place, &["start", "--data", &data, "--certs", "certs", "--listen", &addresses[index]])
    };
    let mut nodes: Vec<Running> = (0..2).map(start).collect();
    nodes.iter_mut().for_each(Running::is_ready);
    let (code, message) = fails(place, &["start", "--data", "n3", "--certs", "certs", "--listen", &addresses[0]]);
    assert!(code == 1 && message.contains("in use"), "{message}");

    let pair = addresses[..2].join(",");
    let init = |peers: &str, more: &[&str]| {
        let mut arguments = vec!["cluster", "init", "--peers", peers, "--certs", "certs", "--json"];
        arguments.extend(more);
        let output = run(place, &arguments);
        let object: Value = serde_json::from_str(text(&output.stdout).trim()).unwrap();
        (output.status.code().unwrap(), object)
    };
    assert_eq!(init(&pair, &["--partitions", "100"]).0, 2);
    assert_eq!(init(&pair, &["--replicas", "3"]).0, 2);
    assert_eq!(init(&format!("{pair},{}", addresses[0]), &[]).0, 2);
    let (code, founded) = init(&pair, &["--name", "pair", "--partitions", "8"]);
    assert_eq!((code, &founded["replicas"], &founded["already"]), (0, &2.into(), &false.into()), "{founded}");
    let (code, again) = init(&pair, &[]);
    assert_eq!((code, &again["cluster"], &again["already"]), (0, &founded["cluster"], &true.into()));
    assert_eq!(init(&pair, &["--partitions", "16"]).0, 1, "it has 8");

    nodes.push(start(2));
    nodes[2].is_ready();
    let (code, refused) = init(&addresses.join(","), &[]);
    assert!(code == 1 && refused["error"]["message"].as_str().unwrap().contains("no member"), "{refused}");
    let (code, refused) = init(&addresses[0], &[]);
    assert!(code == 1 && refused["error"]["message"].as_str().unwrap().contains("other members"), "{refused}");
    for node in nodes {
        assert_eq!(node.stop(), Vec::<String>::new());
    }
}

/// Goal: `norn dev` serves, restarts a killed node, keeps its state, refuses to share its directory, and leaves no process behind.
#[test]
fn a_development_cluster_lives_and_ends_as_one() {
    let directory = TempDir::new().unwrap();
    let place = directory.path();
    let data = place.join(".norn");
    let data = data.to_str().unwrap();
    let ports = free_ports(3);
    let port: &str = Box::leak(ports.start.to_string().into_boxed_str());
    let dev = |more: &[&'static str]| [&["dev", "--data", data, "--no-repl"], more].concat();
    let mut first = Running::start(place, &dev(&["--base-port", port]));
    first.is_ready();
    let (code, message) = fails(place, &dev(&[]));
    assert!(code == 1 && message.contains("another `norn dev`"), "{message}");
    let other = place.join("other");
    let (code, message) = fails(place, &["dev", "--data", other.to_str().unwrap(), "--base-port", port]);
    assert!(code == 1 && message.contains("--base-port"), "{message}");

    let killed = node_process(place, "n2").expect("n2 runs");
    signal(killed, "KILL");
    until("n2 comes back", || node_process(place, "n2").is_some_and(|process| process != killed));
    assert_eq!(first.stop(), Vec::<String>::new(), "one line and no more");
    assert!(["n1", "n2", "n3"].iter().all(|name| node_process(place, name).is_none()));

    let cluster = |place: &Path| std::fs::read_to_string(place.join(".norn/client.toml")).unwrap();
    let before = cluster(place);
    let (code, message) = fails(place, &dev(&["--nodes", "2"]));
    assert!(code == 1 && message.contains("--fresh"), "{message}");
    let mut second = Running::start(place, &dev(&[]));
    second.is_ready();
    assert_eq!(cluster(place), before);

    // A `norn dev` that is started right after another was killed gets its directory and its ports.
    signal(i32::try_from(second.child.id()).unwrap(), "KILL");
    let mut third = Running::start(place, &dev(&[]));
    third.is_ready();
    assert_eq!(cluster(place), before);
    drop(second);

    // A supervisor that is killed takes its nodes along.
    signal(i32::try_from(third.child.id()).unwrap(), "KILL");
    let gone = || ["n1", "n2", "n3"].iter().all(|name| node_process(place, name).is_none());
    until("the nodes end as well", gone);
    // An ending process loses its command line before its sockets are closed.
    until("their ports are free", || ports.clone().all(is_free));
    drop(third);
    let mut fresh = Running::start(place, &dev(&["--fresh", "--nodes", "1", "--base-port", port]));
    fresh.is_ready();
    assert_ne!(cluster(place), before);
    fresh.stop();

    std::fs::write(place.join("precious"), "data").unwrap();
    let (code, message) = fails(place, &["dev", "--data", place.to_str().unwrap(), "--fresh"]);
    assert!(code == 1 && message.contains("nothing was touched"), "{message}");
    assert!(place.join("precious").exists());
}

/// Goal: right after a `norn dev` was killed, another one waits for its nodes, says so, and continues once they have ended. Method:
/// the test locks the directory of a node that has ended, as that node would.
#[test]
fn a_development_cluster_waits_for_the_nodes_of_a_killed_one() {
    let directory = TempDir::new().unwrap();
    let place = directory.path();
    let data = place.join(".norn");
    let port = free_ports(1).start.to_string();
    let dev = ["dev", "--data", data.to_str().unwrap(), "--no-repl"];
    let mut first = Running::start(place, &[&dev[..], &["--nodes", "1", "--base-port", &port]].concat());
    first.is_ready();
    assert!(node_process(place, "n1").is_some(), "n1 runs");
    drop(first);
    let held = found("n1 has let go of its directory", || FileDisk::open(&data.join("n1")).ok());
    let mut command = norn(place);
    let second = command.args(dev).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut second = second.expect("the binary runs");
    let mut said = BufReader::new(second.stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    drop(held);
    assert!(line.starts_with("waiting up to 10s"), "{line}");
    let mut lines = BufReader::new(second.stdout.take().unwrap());
    line.clear();
    lines.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    signal(i32::try_from(second.id()).unwrap(), "TERM");
    assert!(second.wait().unwrap().success());
}
