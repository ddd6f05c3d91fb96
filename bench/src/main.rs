//! Benchmarks of Norn.
//!
//! ```text
//! cargo build --release                                      the nodes; not done by the lines below
//! cargo run --release -p norn-bench -- lifecycles --clients 1,16,64
//! cargo run --release -p norn-bench -- lifecycles --clients 1,16,64 --over quic,http --turns 3
//! cargo run --release -p norn-bench -- backlog --tasks 1000,1000000
//! cargo run --release -p norn-bench -- backlog --kinds ready,delayed,blocked,claimed,finished
//! cargo run --release -p norn-bench -- backlog --tasks 200000 --payload 1024 --payload-memory 1073741824,33554432,0
//! cargo run --release -p norn-bench -- claims --tasks 1000,10000,100000 --turns 3
//! cargo run --release -p norn-bench -- memory
//! cargo run --release -p norn-bench -- micro
//! cargo run --release -p norn-bench -F databases -- log
//! cargo run --release -p norn-bench -- repair
//! cargo run --release -p norn-bench -- absence
//! cargo run --release -p norn-bench -- restart
//! cargo run --release -p norn-bench -- store --clients 1,16,64
//! cargo run --release -p norn-bench -- transactions --clients 1,16
//! cargo run --release -p norn-bench -- idle
//! cargo run --release -p norn-bench -- growth
//! cargo run --release -p norn-bench -- scaling
//! cargo run --release -p norn-bench -- failover --kills 30
//! cargo run --release -p norn-bench -F peers -- peers
//! ```
//! Nodes, clients and everything else share the machine's cores. Rates and latencies vary with other activity, CPU seconds hardly do:
//! compare those, and look at the load average next to every line.

mod absence;
#[cfg(feature = "peers")]
mod ahead;
mod backlog;
mod claims;
mod cluster;
mod contender;
mod failover;
mod growth;
mod host;
mod idle;
mod lifecycles;
mod load;
mod log;
mod memory;
mod mesh;
mod micro;
#[cfg(feature = "peers")]
mod peers;
mod process;
mod repair;
mod report;
mod restart;
mod scaling;
mod store;
mod system;
mod transactions;
mod worker;

use clap::{Args, Parser, Subcommand};
use report::Report;
use std::path::PathBuf;
use std::process::ExitCode;

/// Threads of the load generator. Its CPU seconds are reported separately from those of the nodes.
const CLIENT_THREADS: usize = 2;

#[derive(Debug, Parser)]
#[command(name = "norn-bench", about = "Benchmarks of Norn: nodes and clients share this machine")]
struct Options {
    /// One JSON object a line instead of tables.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Enqueue, claim and complete in a closed loop, each call acknowledged.
    Lifecycles(lifecycles::Options),
    /// The same over a standing backlog; memory for each task.
    Backlog(backlog::Options),
    /// The cost of a claim beside up to a million blocked, delayed, claimed or finished tasks, as a ratio to the cost beside none.
    Claims(claims::Options),
    /// Bytes of memory for each waiting task, as the allocator counts them.
    Memory(memory::Options),
    /// Small loops over single parts, the best of five each.
    Micro(micro::Options),
    /// Durable records in batches: the log, the bare disk and, with the feature `databases`, fjall and redb in turns.
    Log(log::Options),
    /// Two replicas become equal after a long absence: bytes, messages and CPU; memory of the hash tree.
    Repair(repair::Options),
    /// A node comes back after a long absence, and with a destroyed log: time until replicas are equal, and the foreground.
    Absence(absence::Options),
    /// How costs grow with tasks, nodes and partitions, without disks and networks.
    Growth(growth::Options),
    /// Lifecycles with more nodes, and with more workers at once, as ratios; fails where one is beyond its bound.
    Scaling(scaling::Options),
    /// What a cluster costs that has nothing to do.
    Idle(idle::Options),
    /// Disk use and restarts of a node with a long history, and of one without.
    Restart(restart::Options),
    /// A store in this process beside a cluster: the same lifecycles on both, in turns, as a ratio.
    Store(store::Options),
    /// Transactions of tasks in two partitions beside those in one, in turns, as a ratio.
    Transactions(transactions::Options),
    /// The node that leads most partitions is killed again and again: how long clients of all nodes wait.
    Failover(failover::Options),
    /// Other queues beside Norn: the same work on each, in turns, with ratios. Installs them into a directory of its own.
    #[cfg(feature = "peers")]
    Peers(peers::Options),
}

/// The cluster that a command starts.
#[derive(Debug, Clone, Args)]
pub struct ClusterOptions {
    /// Nodes to start.
    #[arg(long, default_value_t = 3)]
    pub nodes: usize,
    /// The program to start; by default the one beside this program; build it first.
    #[arg(long, value_name = "FILE")]
    pub norn: Option<PathBuf>,
    /// Where data directories are made; by default the system's directory for temporary files. Should be a real disk.
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// A setting of the nodes, as for `norn start --set`.
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub settings: Vec<String>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    #[cfg(feature = "peers")]
    let json = options.json;
    let report = Report::new(options.json);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(CLIENT_THREADS).enable_all().build();
    let outcome = runtime.map_err(anyhow::Error::from).and_then(|runtime| match options.command {
        // On the main thread, because the nodes end with the thread that started them.
        Command::Lifecycles(options) => runtime.block_on(lifecycles::run(&options, report)),
        Command::Backlog(options) => runtime.block_on(backlog::run(&options, report)),
        Command::Claims(options) => runtime.block_on(claims::run(&options, report)),
        Command::Memory(options) => memory::run(&options, report),
        Command::Micro(options) => micro::run(&options, report),
        Command::Log(options) => log::run(&options, report),
        Command::Repair(options) => repair::run(&options, report),
        Command::Absence(options) => runtime.block_on(absence::run(&options, report)),
        Command::Growth(options) => growth::run(&options, report),
        Command::Scaling(options) => runtime.block_on(scaling::run(&options, report)),
        Command::Idle(options) => runtime.block_on(idle::run(&options, report)),
        Command::Restart(options) => restart::run(&options, report),
        Command::Store(options) => runtime.block_on(store::run(&options, report)),
        Command::Transactions(options) => runtime.block_on(transactions::run(&options, report)),
        Command::Failover(options) => runtime.block_on(failover::run(&options, report)),
        #[cfg(feature = "peers")]
        Command::Peers(options) => runtime.block_on(peers::run(&options, json, report)),
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("norn-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
