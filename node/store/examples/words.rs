//! Counts the words of text files in one process, with a store in place of a cluster: the tasks and handlers are the same.
//!
//! ```text
//! cargo run --release -p norn-store --example words -- DIR *.txt    # prints `COUNT WORD`, the most frequent first
//! ```
#![allow(clippy::disallowed_methods, reason = "a program with files; the bans are the core's")]

#[path = "../../../client/examples/mapreduce/words.rs"]
mod words;

use anyhow::{Context as _, Result};
use norn_store::Store;
use std::path::PathBuf;

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let directory = arguments.next().context("usage: words DIR FILE...")?;
    let store = Store::open(directory).await?;
    let (counted, stop) = tokio::sync::oneshot::channel::<()>();
    let worker = tokio::spawn(words::work(store.client().clone(), async {
        // It stops once all is counted, or the program ends.
        let _ = stop.await;
    }));
    words::submit(store.client(), &arguments.collect::<Vec<_>>()).await?;
    drop(counted);
    worker.await??;
    store.close().await?;
    Ok(())
}
