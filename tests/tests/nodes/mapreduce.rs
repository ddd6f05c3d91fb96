//! Tasks that many workers share, while workers and a node are killed: the example that counts words.

use norn_tests::wait::{PATIENCE, eventually};
use norn_tests::{Cluster, Example, binary};
use norn_wire::{QueueName, State};
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

const WORKERS: usize = 8;
const KILLED: usize = 3;
/// Minimal amount of text.
const TEXT_BYTES: u64 = 5 << 20;

/// Text written by people that exists wherever Norn is built: the sources of its dependencies.
fn texts() -> Vec<PathBuf> {
    let rustc = Command::new("rustc").arg("-vV").output().expect("rustc runs");
    let version = String::from_utf8(rustc.stdout).expect("it says text");
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).expect("it says for what it builds");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    // Dependencies for other systems may not be here.
    let arguments = ["metadata", "--format-version", "1", "--locked", "--offline", "--filter-platform", host];
    let told = Command::new(cargo).current_dir(binary::workspace()).args(arguments).output().expect("cargo runs");
    let metadata: Value = serde_json::from_slice(&told.stdout).expect("cargo tells JSON");
    let packages = metadata["packages"].as_array().expect("there are packages");
    let external = packages.iter().filter(|package| !package["source"].is_null());
    let manifests = external.map(|package| package["manifest_path"].as_str().expect("each has a manifest"));
    let mut folders: Vec<PathBuf> = manifests.map(|path| Path::new(path).with_file_name("src")).collect();
    folders.sort();
    let mut texts = Vec::new();
    let mut bytes = 0;
    while let Some(folder) = folders.pop().filter(|_| bytes < TEXT_BYTES) {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_file() && path.extension().is_some_and(|extension| extension == "rs") {
                bytes += path.metadata().expect("it is there").len();
                texts.push(path);
            } else if path.is_dir() {
                folders.push(path);
            }
        }
    }
    assert!(bytes >= TEXT_BYTES, "there are only {bytes} bytes of text");
    texts
}

/// The same counts, computed on one thread.
fn counted(texts: &[PathBuf]) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for path in texts {
        let bytes = fs::read(path).expect("it is there");
        let text = String::from_utf8_lossy(&bytes).into_owned();
        for word in text.split(|character: char| !character.is_alphanumeric()).filter(|word| !word.is_empty()) {
            *counts.entry(word.to_lowercase()).or_insert(0) += 1;
        }
    }
    counts
}

/// The counts that an example has printed.
fn told_counts(told: &str) -> BTreeMap<String, u64> {
    let lines = told.lines().map(|line| line.split_once(' ').expect("COUNT WORD"));
    lines.map(|(count, word)| (word.to_owned(), count.parse().expect("a number"))).collect()
}

// T4, T6, S5
/// Three of eight workers and one of three nodes are killed at random moments, and each word is counted exactly as often as it occurs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn words_are_counted_right_though_workers_and_a_node_are_killed() {
    let mut cluster = Cluster::start();
    let texts = texts();
    let seed: u64 = rand::rng().random();
    eprintln!("draws from {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let mut arguments = vec![PathBuf::from("submit")];
    arguments.extend(texts.iter().cloned());
    let submitter = Example::start(&cluster, "mapreduce", &arguments);
    let mut workers: Vec<Example> = (0..WORKERS).map(|_| Example::start(&cluster, "mapreduce", &["work"])).collect();
    workers.shuffle(&mut random);
    let client = cluster.client().await;
    let map = QueueName::new("wordcount/map").expect("a name");
    // Numbers of completed tasks at which the next process is killed.
    let mut moments: Vec<u64> = (0..=KILLED).map(|_| random.random_range(1..60)).collect();
    moments.sort_unstable();
    let node_at = random.random_range(0..=KILLED);
    for (place, moment) in moments.into_iter().enumerate() {
        let look =
            || async { client.count(Some(map.clone()), Some(State::Done)).await.ok().filter(|done| *done >= moment) };
        eventually("map tasks get done", PATIENCE, look).await;
        if place == node_at {
            cluster.kill(random.random_range(0..3));
        } else {
            drop(workers.pop());
        }
    }
    let told = submitter.told().await;
    let counts = told_counts(&told);
    assert!(counts.len() > 1_000, "{} words", counts.len());
    let expected = counted(&texts);
    let differs = expected.iter().find(|(word, count)| counts.get(*word) != Some(count));
    assert_eq!(differs.map(|(word, count)| (word, count, counts.get(word))), None);
    assert_eq!(counts.len(), expected.len());
}

// T1, T4: in one process, without the service
/// Goal: the same tasks and handlers count words in one process; what a killed one left undone does not disturb the next.
#[test]
fn words_are_counted_right_in_one_process_that_was_killed_before() {
    let place = TempDir::new().expect("a directory");
    let texts = texts();
    let words = || {
        let mut command = Command::new(binary::store_example("words"));
        command.arg(place.path().join("tasks")).args(&texts).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let mut killed = words().spawn().expect("the example runs");
    let said = BufReader::new(killed.stderr.take().expect("it is a pipe"));
    let submitted = said.lines().map_while(Result::ok).find(|line| line.contains("map tasks"));
    assert!(submitted.is_some(), "it has enqueued its tasks");
    killed.kill().expect("it runs");
    killed.wait().expect("it ends");
    let ended = words().output().expect("the example runs");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    assert_eq!(told_counts(&String::from_utf8_lossy(&ended.stdout)), counted(&texts));
}
