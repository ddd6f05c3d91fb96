//! A job that runs every night, once for any number of workers and nodes, and again if its worker dies.
//!
//! The cluster holds the schedule, so only the cluster itself must run at half past two, and one worker some time later. A header of a
//! scheduled task names the time that it is for.
//!
//! ```text
//! norn dev                                                   # a cluster to try things with
//! cargo run --release -p norn-client --example nightly -- work      # as often as you like, and kill any of them
//! cargo run --release -p norn-client --example nightly -- set       # every night at 2:30 in Berlin
//! cargo run --release -p norn-client --example nightly -- set --cron '* * * * * *'    # faster, to see it work
//! ```

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};
use norn_client::client::{Client, ClientConfig};
use norn_client::wire::QueueName;
use norn_client::wire::schedule::{CatchUp, Schedule, TICK_HEADER, When};
use norn_client::worker::{Context, Outcome, Worker};
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

const NAME: &str = "nightly";
const QUEUE: &str = "nightly/reports";
/// Silence of a worker after which another one gets its task.
const LEASE: Duration = Duration::from_secs(5);

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
    /// Works until it is interrupted, and prints for which times it has worked
    Work,
    /// Sets the schedule; the same again changes nothing
    Set {
        /// When
        #[arg(long, default_value = "30 2 * * *")]
        cron: String,
        /// Where
        #[arg(long, default_value = "Europe/Berlin")]
        zone: String,
    },
    /// Removes the schedule
    Remove,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let client = Client::connect(ClientConfig::load(&arguments.client)?).await?;
    match arguments.role {
        Role::Work => work(client).await,
        Role::Set { cron, zone } => set(&client, cron, zone).await,
        Role::Remove => {
            client.remove_schedule(NAME).await?;
            Ok(())
        }
    }
}

async fn set(client: &Client, expression: String, zone: String) -> Result<()> {
    let schedule = Schedule {
        when: When::Cron { expression, zone },
        queue: QueueName::new(QUEUE)?,
        payload: b"report".to_vec(),
        priority: 0,
        attempts_max: 0,
        // Runs that were missed are made up for, each of them.
        catch_up: CatchUp::All,
    };
    let view = client.set_schedule(NAME, schedule).await?;
    eprintln!("set; next at {:?} ms since the Unix epoch", view.next_ms.first());
    Ok(())
}

async fn work(client: Client) -> Result<()> {
    let worker = Worker::new(client).name("nightly").lease(LEASE).handler(QUEUE, report);
    let interrupted = async { tokio::signal::ctrl_c().await.expect("signals can be waited for") };
    worker.run_until(interrupted).await.context("the worker stopped")?;
    Ok(())
}

async fn report(context: Context) -> Outcome {
    let Some(tick) = context.header(TICK_HEADER) else {
        return Outcome::Invalid { reason: "no schedule has made it".into() };
    };
    // The work would be here. It may be begun twice, if its worker dies.
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{tick}").and_then(|()| out.flush()) {
        Ok(()) => Outcome::Done(Some(tick.as_bytes().to_vec())),
        Err(error) => Outcome::Retry { reason: error.to_string() },
    }
}
