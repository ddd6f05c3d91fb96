//! Counts the words of text files with any number of workers.
//!
//! ```text
//! norn dev                                                   # a cluster to try things with
//! cargo run --release -p norn-client --example mapreduce -- work            # as often as you like, and kill any of them
//! cargo run --release -p norn-client --example mapreduce -- submit *.txt    # prints `COUNT WORD`, the most frequent first
//! ```

mod words;

use anyhow::Result;
use clap::{Parser, Subcommand};
use norn_client::client::{Client, ClientConfig};
use std::path::PathBuf;

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
    /// Works until it is interrupted
    Work,
    /// Has the words of files counted, and prints how often each is there
    Submit {
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let client = Client::connect(ClientConfig::load(&arguments.client)?).await?;
    match arguments.role {
        Role::Work => {
            let interrupted = async { tokio::signal::ctrl_c().await.expect("signals can be waited for") };
            words::work(client, interrupted).await
        }
        Role::Submit { files } => words::submit(&client, &files).await,
    }
}
