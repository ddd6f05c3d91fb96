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

/// Fields of the state, its store in particular, in the code of the node: file and line of each.
fn stores(Source { path, text }: &Source) -> Vec<String> {
    let is_owned = OWNED.iter().any(|folder| path.starts_with(folder)) && !path.contains("/tests");
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().lines().enumerate();
    let holds = |line: &str| {
        let field = line.trim_start().trim_start_matches("pub ").trim_end_matches(',');
        let of = field.split_once(": ").map_or("", |(_, of)| of.trim_end_matches('>'));
        let of = of.rsplit('<').next().unwrap_or_default();
        !field.contains('(') && !field.starts_with("//") && (of == "Store" || of.ends_with("::Store"))
    };
    let found = code.filter(|(_, line)| is_owned && holds(line));
    found.map(|(index, line)| format!("{path}:{}: {}", index + 1, line.trim())).collect()
}

// E23
/// Goal: there is no frozen state with a delta beside it, neither for a snapshot nor for anything else. Method: a partition has one
/// store, which no other struct holds and nothing can copy.
#[test]
fn a_partition_has_one_store_and_nothing_copies_it() {
    let sources = sources();
    let found: Vec<String> = sources.iter().flat_map(stores).collect();
    assert!(matches!(found.as_slice(), [one] if one.starts_with("node/model/src/replica/mod.rs:")), "{found:?}");
    let store =
        sources.iter().find(|source| source.path == "node/model/src/replica/store.rs").expect("there is a store");
    let (above, _) = store.text.split_once("pub struct Store {").expect("it is there");
    let derived = above.lines().next_back().expect("it derives what it needs");
    assert!(derived.starts_with("#[derive(") && !derived.contains("Clone"), "{derived}");
    assert!(!sources.iter().any(|source| source.text.contains(&format!("impl {} for Store", "Clone"))));
}

#[test]
fn a_second_store_is_noticed_wherever_it_is_held() {
    let lines = |text: &str| stores(&Source { path: "node/engine/src/a.rs".to_owned(), text: text.to_owned() }).len();
    for text in
        ["    pub store: Store,", "    frozen: Option<Store>,", "    delta: Box<Store>,", "    old: Arc<Store>,"]
    {
        assert_eq!(lines(text), 1, "{text}");
    }
    assert_eq!(lines("fn f(store: &Store) {}\n    store: StoreOptions,\n// before: Store"), 0);
}

/// Places where a node is made or started, in the code of its hosts: the name of the call in front of each.
fn begins(sources: &[Source]) -> Vec<String> {
    let calls = ["Node::new(", "node.start("];
    let is_host = |path: &str| {
        ["node/src/", "node/host/src/", "node/store/src/"].iter().any(|folder| path.starts_with(folder))
            && !path.contains("/tests")
    };
    let mut found = Vec::new();
    for Source { path, text } in sources.iter().filter(|source| is_host(&source.path)) {
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        found.extend(calls.iter().flat_map(|call| code.matches(call)).map(|call| format!("{path} {call}")));
    }
    found.sort();
    found
}

// E15
/// Goal: no request is taken before the whole log was replayed into a blank node. Method: only the replay makes a node, and returns it
/// after the last record; only the driver, which is made of such a node, starts it, and only the driver takes requests.
/// `node/store/src/tests.rs` shows the same of an opened store.
#[test]
fn a_node_is_made_by_the_replay_and_started_by_the_driver_alone() {
    let sources = sources();
    let expected = ["node/host/src/driver.rs node.start(", "node/host/src/replay.rs Node::new("];
    assert_eq!(begins(&sources), expected);
    let text = |path: &str| &sources.iter().find(|source| source.path == path).expect("it is there").text;
    let driver = text("node/host/src/driver.rs");
    let [start, turn] = ["node.start(", "node.turn("].map(|call| driver.find(call).expect("the driver calls it"));
    assert!(start < turn, "a node takes events once it was started");
    let replay = text("node/host/src/replay.rs");
    let steps = ["Node::new(", "log.read(", "restorer.finish()", "Ok((node, log, replayed))"];
    let steps = steps.map(|step| replay.find(step).unwrap_or_else(|| panic!("the replay does not say {step}")));
    assert!(steps.is_sorted(), "blank, every record, the judgement, and then the node: {steps:?}");
}
