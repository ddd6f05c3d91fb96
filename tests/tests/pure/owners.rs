//! What a node knows has one owner: nothing of it is shared between threads, so nothing of it is locked.

use norn_tests::binary;
use norn_tests::source::{Source, sources};

/// Folders of the state, of what changes it, and of what reads it back from the log.
const OWNED: [&str; 4] = ["node/model/src/", "node/engine/src/", "node/storage/src/", "node/restore/src/"];
/// What shares a value that changes between threads, or waits for one.
const SHARING: [&str; 8] = ["Mutex", "RwLock", "Condvar", "Atomic", "OnceLock", "thread::", "mpsc::", "async fn"];
/// Clients and servers of message services and coordinators.
const SERVICES: [&str; 14] = [
    "amqprs",
    "async-nats",
    "consulrs",
    "etcd-client",
    "fe2o3-amqp",
    "kafka",
    "lapin",
    "nats",
    "pulsar",
    "rdkafka",
    "redis",
    "rumqttc",
    "zeromq",
    "zookeeper-client",
];

/// The lines of a file that share something. Tests, and comments, may.
fn shared(Source { path, text }: &Source) -> Vec<String> {
    let is_owned = OWNED.iter().any(|folder| path.starts_with(folder));
    let is_test = path.contains("/tests") || path.contains("double");
    if !is_owned || is_test {
        return Vec::new();
    }
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let code = text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"));
    let shares = |line: &str| SHARING.iter().any(|word| line.contains(word));
    code.filter(|(_, line)| shares(line)).map(|(index, line)| format!("{path}:{}: {line}", index + 1)).collect()
}

// T5, E17
/// Goal: one owner reads and writes what is in memory, so a replay needs no locks either: the driver has the node, and hands copies for a
/// snapshot to the thread of the log.
#[test]
fn no_state_of_a_node_is_shared_between_threads() {
    let found: Vec<String> = sources().iter().flat_map(shared).collect();
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn what_shares_is_noticed_where_state_is_owned() {
    let lines = |path: &str, text: &str| shared(&Source { path: path.to_owned(), text: text.to_owned() }).len();
    for text in ["static TASKS: Mutex<u8> = x;", "use std::sync::atomic::AtomicU64;", "    async fn replay() {}"] {
        assert_eq!(lines("node/engine/src/lib.rs", text), 1, "{text}");
        assert_eq!(lines("node/host/src/driver.rs", text), 0, "{text}");
    }
    assert_eq!(lines("node/model/src/lib.rs", "// A Mutex would do.\n#[cfg(test)]\nmod tests {\n    Mutex\n}\n"), 0);
}

/// Names of the crates that the manifests of programs and libraries depend on, with the manifest of each.
fn dependencies() -> Vec<(String, String)> {
    let folders = ["client", "client/cli", "client/wire", "node", "node/doors", "node/engine", "node/host"];
    let more = ["node/model", "node/restore", "node/storage", "node/store"];
    let mut named = Vec::new();
    for folder in folders.into_iter().chain(more) {
        let file = binary::workspace().join(folder).join("Cargo.toml");
        let manifest = std::fs::read_to_string(&file).expect("it is there");
        let names = manifest.lines().filter_map(|line| Some(line.split_once(" = ")?.0.to_owned()));
        named.extend(names.map(|name| (folder.to_owned(), name)));
    }
    named
}

// T3
/// Goal: tasks need no message service, and no other coordinator beside the nodes.
#[test]
fn no_message_service_is_needed() {
    let named = dependencies();
    assert!(named.iter().any(|(folder, name)| folder == "node" && name == "quinn"), "manifests are read");
    let services: Vec<_> = named.iter().filter(|(_, name)| SERVICES.contains(&name.as_str())).collect();
    assert!(services.is_empty(), "{services:?}");
}
