//! MapReduce (Dean and Ghemawat, 2004) made of tasks alone: counts of the words in text files.
//!
//! A *map* task has a piece of the text, and its result is the count of each word in it. A *reduce* task has a share of all words: it
//! waits for all map tasks (`after`), reads their results, and adds up its share. The submitting program waits for the reduce tasks.
//! There is no coordinator. A worker that dies holds its task until the lease ends; then another worker gets it. Its result counts
//! once, as a task has one result.

use anyhow::{Context as _, Result, bail, ensure};
use norn_client::client::Client;
use norn_client::session::Draft;
use norn_client::wire::limits::{AFTER_MAX, BATCH_BYTES_MAX, PAYLOAD_BYTES_MAX};
use norn_client::wire::response::TaskView;
use norn_client::wire::{Acks, QueueName, State, TaskId};
use norn_client::worker::{Context, Outcome, Worker};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;
use xxhash_rust::xxh3::xxh3_64;

const MAP: &str = "wordcount/map";
const REDUCE: &str = "wordcount/reduce";
/// Number of reduce tasks, each with an equal share of all words.
const SHARES: u64 = 8;
/// Size of a piece of text, unless a task would have to wait for too many pieces.
const PIECE_BYTES: usize = 64 << 10;
/// Silence of a worker after which another one gets its task.
const LEASE: Duration = Duration::from_secs(5);
/// Duration of one call of an endless wait.
const WAIT: Duration = Duration::from_secs(60);

/// The count of each word in a text.
type Counts = BTreeMap<String, u64>;

/// Payload of a reduce task.
#[derive(Debug, Serialize, Deserialize)]
struct Share {
    share: u64,
    /// Ids of the map tasks whose results it adds up.
    maps: Vec<String>,
}

/// Works until `stop` ends.
pub async fn work(client: Client, stop: impl Future<Output = ()>) -> Result<()> {
    let name = format!("mapreduce {}", std::process::id());
    let worker = Worker::new(client).name(name).lease(LEASE).handler(MAP, map).handler(REDUCE, reduce);
    let summary = worker.run_until(stop).await?;
    eprintln!("{} tasks done, {} given back, {} lost to others", summary.done, summary.released, summary.lost);
    Ok(())
}

async fn map(context: Context) -> Outcome {
    match std::str::from_utf8(context.payload()) {
        Ok(text) => done(&count(text)),
        Err(error) => Outcome::Invalid { reason: error.to_string() },
    }
}

async fn reduce(context: Context) -> Outcome {
    let Ok(Share { share, maps }) = serde_json::from_slice(context.payload()) else {
        return Outcome::Invalid { reason: "its payload is no share of words".into() };
    };
    let mut counts = Counts::new();
    for id in &maps {
        // No state is kept between attempts: the results of the map tasks are kept as long as their queue keeps them.
        let part = match counts_of(context.client(), id).await {
            Ok(part) => part,
            Err(error) => return Outcome::Retry { reason: format!("map task {id}: {error:#}") },
        };
        for (word, more) in part.into_iter().filter(|(word, _)| xxh3_64(word.as_bytes()) % SHARES == share) {
            *counts.entry(word).or_default() += more;
        }
    }
    done(&counts)
}

async fn counts_of(client: &Client, id: &str) -> Result<Counts> {
    let id: TaskId = id.parse().context("no id")?;
    counts_in(&client.get(id).await?)
}

fn counts_in(task: &TaskView) -> Result<Counts> {
    let result =
        task.result.as_ref().with_context(|| format!("task {} has no result: it is {}", task.id, task.state))?;
    Ok(serde_json::from_slice(result)?)
}

fn done(counts: &Counts) -> Outcome {
    Outcome::Done(Some(serde_json::to_vec(counts).expect("words and numbers are JSON")))
}

/// Counts the words of a text: sequences of letters and digits, in lower case.
fn count(text: &str) -> Counts {
    let mut counts = Counts::new();
    for word in text.split(|character: char| !character.is_alphanumeric()).filter(|word| !word.is_empty()) {
        *counts.entry(word.to_lowercase()).or_default() += 1;
    }
    counts
}

/// Has the words of files counted, and prints how often each is there.
pub async fn submit(client: &Client, files: &[PathBuf]) -> Result<()> {
    let mut text = String::new();
    for file in files {
        let bytes = std::fs::read(file).with_context(|| file.display().to_string())?;
        text.push_str(&String::from_utf8_lossy(&bytes));
        // Separates the last word of a file from the first of the next.
        text.push('\n');
    }
    let pieces = pieces(&text, PIECE_BYTES.max(text.len().div_ceil(AFTER_MAX)))?;
    let (map, reduce) = (QueueName::new(MAP)?, QueueName::new(REDUCE)?);
    let maps = enqueue(client, pieces.into_iter().map(|piece| Draft::new(map.clone(), piece)).collect()).await?;
    let names: Vec<String> = maps.iter().map(TaskId::to_string).collect();
    let share = |share| {
        let payload = serde_json::to_vec(&Share { share, maps: names.clone() }).expect("it is JSON");
        let mut draft = Draft::new(reduce.clone(), payload);
        draft.spec.after.clone_from(&maps);
        draft
    };
    let reduces = enqueue(client, (0..SHARES).map(share).collect()).await?;
    eprintln!("{} map tasks, {} reduce tasks", maps.len(), reduces.len());
    let mut all: Vec<(u64, String)> = Vec::new();
    for id in reduces {
        let counts = counts_in(&ended(client, id).await?)?;
        all.extend(counts.into_iter().map(|(word, count)| (count, word)));
    }
    all.sort_unstable_by(|one, other| other.0.cmp(&one.0).then_with(|| one.1.cmp(&other.1)));
    let mut out = std::io::stdout().lock();
    for (count, word) in all {
        writeln!(out, "{count} {word}")?;
    }
    Ok(())
}

async fn enqueue(client: &Client, drafts: Vec<Draft>) -> Result<Vec<TaskId>> {
    let mut ids = Vec::new();
    // A chunk of this many of the largest drafts fits one call.
    for part in drafts.chunks(BATCH_BYTES_MAX / PAYLOAD_BYTES_MAX / 2) {
        for acked in client.enqueue_many(part.to_vec(), Acks::Quorum).await {
            ids.push(acked?.id);
        }
    }
    Ok(ids)
}

async fn ended(client: &Client, id: TaskId) -> Result<TaskView> {
    loop {
        match client.wait(id, WAIT).await {
            Ok(task) if task.state == State::Done => return Ok(task),
            Ok(task) if matches!(task.state, State::Dead | State::Cancelled) => {
                bail!("task {id} is {}: {}", task.state, task.reason.unwrap_or_default())
            }
            // It has not ended, or the node could not tell in time.
            Ok(_) => {}
            Err(error) if error.passes() => eprintln!("{error}; asking again"),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Cuts a text between words, into pieces of about this many bytes.
fn pieces(text: &str, bytes: usize) -> Result<Vec<&str>> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let from = bytes.min(rest.len());
        let space = rest.as_bytes()[from..].iter().position(u8::is_ascii_whitespace);
        let end = space.map_or(rest.len(), |space| from + space);
        ensure!(end <= PAYLOAD_BYTES_MAX, "a piece has {end} bytes, at most {PAYLOAD_BYTES_MAX} are possible");
        let (piece, behind) = rest.split_at(end);
        pieces.push(piece);
        rest = behind.trim_start();
    }
    ensure!(!pieces.is_empty(), "there is no text");
    assert!(pieces.len() <= AFTER_MAX, "a piece is a hundredth of the text at least");
    Ok(pieces)
}
