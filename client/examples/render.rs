//! Long work under one heartbeat, and how it continues when a worker is lost in the middle.
//!
//! A task is a film, and a worker has many of them at once, in one session. After each frame it writes a checkpoint, so that the next
//! worker of a film continues with the following frame. A killed worker loses its films when the session's time is over. A worker that
//! was merely suspended for longer than that learns of the loss when it continues: its handlers are stopped, before they spoil the work
//! of another worker, and it takes other films under a new session. A worker that is interrupted gives its films back.
//!
//! ```text
//! norn dev                                                   # a cluster to try things with
//! cargo run --release -p norn-client --example render -- work       # several; kill any, or stop it with Ctrl-Z and go on with `fg`
//! cargo run --release -p norn-client --example render -- submit     # waits, and prints what became of each film
//! ```

use anyhow::{Context as _, Result, ensure};
use clap::{Parser, Subcommand};
use norn_client::client::{Client, ClientConfig};
use norn_client::session::Draft;
use norn_client::wire::{Acks, QueueName, State};
use norn_client::worker::{Context, Outcome, Worker};
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const QUEUE: &str = "render/films";
/// How long the films of an interrupted worker may go on; unfinished ones are given back then.
const DRAIN: Duration = Duration::from_secs(1);
/// Duration of one call of an endless wait.
const WAIT: Duration = Duration::from_secs(60);

#[derive(Debug, Parser)]
struct Arguments {
    /// What `norn dev` or an operator has written for clients
    #[arg(long, default_value = ".norn/client.toml")]
    client: PathBuf,
    #[command(subcommand)]
    role: Role,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// Works until it is interrupted, and prints where it begins, and where it lost a film
    Work {
        /// Seconds without a sign of life after which others get its films
        #[arg(long, default_value_t = 5)]
        session: u64,
        /// Films that it has at once
        #[arg(long, default_value_t = 20)]
        at_once: usize,
        /// Milliseconds that a frame takes
        #[arg(long, default_value_t = 500)]
        frame_ms: u64,
    },
    /// Enqueues films, and waits until all are there
    Submit {
        /// How many
        #[arg(long, default_value_t = 20)]
        films: usize,
        /// Frames of each
        #[arg(long, default_value_t = 30)]
        frames: usize,
    },
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let client = Client::connect(ClientConfig::load(&arguments.client)?).await?;
    match arguments.role {
        Role::Work { session, at_once, frame_ms } => {
            work(client, Duration::from_secs(session), at_once, Duration::from_millis(frame_ms)).await
        }
        Role::Submit { films, frames } => submit(&client, films, frames).await,
    }
}

async fn work(client: Client, session: Duration, at_once: usize, frame: Duration) -> Result<()> {
    let worker = Worker::new(client).name(format!("render {}", std::process::id())).session(session);
    let worker = worker.concurrency(at_once).drain_timeout(DRAIN).handler(QUEUE, move |film| render(film, frame));
    let interrupted = async { tokio::signal::ctrl_c().await.expect("signals can be waited for") };
    let summary = worker.run_until(interrupted).await?;
    say(&format!("{} films done, {} given back, {} lost to others", summary.done, summary.released, summary.lost));
    Ok(())
}

async fn render(film: Context, frame: Duration) -> Outcome {
    let frames = std::str::from_utf8(film.payload()).ok().and_then(|text| text.parse::<usize>().ok());
    let Some(frames) = frames else {
        return Outcome::Invalid { reason: "its payload is no number of frames".into() };
    };
    // Frames that earlier workers have finished before they were lost.
    let begun = film.updates().len();
    say(&format!("{} goes on at frame {begun}", film.id()));
    let at = Arc::new(AtomicUsize::new(begun));
    let (watched, reached) = (film.clone(), Arc::clone(&at));
    // Runs beside the handler, which is stopped at its present `await`.
    let watcher = tokio::spawn(async move {
        watched.lease_lost().await;
        say(&format!("{} is lost in the middle, at frame {}", watched.id(), reached.load(Ordering::Relaxed)));
    });
    for number in begun..frames {
        tokio::time::sleep(frame).await;
        if let Err(error) = film.checkpoint(format!("frame {number}")).await {
            return Outcome::Retry { reason: error.to_string() };
        }
        at.store(number + 1, Ordering::Relaxed);
    }
    watcher.abort();
    Outcome::Done(Some(format!("{frames} frames").into_bytes()))
}

async fn submit(client: &Client, films: usize, frames: usize) -> Result<()> {
    let queue = QueueName::new(QUEUE)?;
    let drafts = (0..films).map(|_| Draft::new(queue.clone(), frames.to_string())).collect();
    let ids: Result<Vec<_>, _> = client.enqueue_many(drafts, Acks::Quorum).await.into_iter().collect();
    for film in ids.context("films are not enqueued")? {
        let task = loop {
            match client.wait(film.id, WAIT).await {
                Ok(task) if matches!(task.state, State::Done | State::Dead | State::Cancelled) => break task,
                // It has not ended, or the node could not tell in time.
                Ok(_) => {}
                Err(error) if error.passes() => eprintln!("{error}; asking again"),
                Err(error) => return Err(error.into()),
            }
        };
        ensure!(task.state == State::Done, "film {} is {}", film.id, task.state);
        let result = task.result.unwrap_or_default();
        say(&format!("{} has {}, by {} workers", film.id, String::from_utf8_lossy(&result), task.claims.len()));
    }
    Ok(())
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // The reader of the output may be gone.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
