//! Test harness with real processes, real QUIC and real disks.
//!
//! - [`binary`]: location of the `norn` binary.
//! - [`wait`]: waits for conditions with deadlines; the only module that sleeps.
//! - [`ports`]: the only allocator of ports.
//! - [`cluster`]: nodes as processes that tests kill, stop and restart.
//! - [`launch`]: programs that start `norn` with other host names, or in a control group.
//! - [`network`]: proxies between nodes that drop, delay, duplicate and reorder datagrams.
//! - [`cli`]: the verbs as a script uses them, one-shot and in a piped REPL.
//! - [`http`]: a small client of HTTP, for the doors of nodes.
//! - [`terminal`]: a program at a pseudo terminal.
//! - [`log`]: the log of a stopped node, and ways to damage it.
//! - [`example`]: the examples of the client library, as programs.
//! - [`accounting`]: the fate of every task, judged independently of the cluster.
//! - [`workers`]: workers with different behaviours, which record into these books.
//! - [`trial`]: a cluster under load on a faulty network.
//! - [`fuzz`]: decoders and state machines under arbitrary bytes; no processes.
//! - [`suite`]: the promises of a task queue, checked by the same code on real nodes and in the simulator.
//! - [`source`]: the files of the workspace; [`promises`]: the list of promises, and the tests that prove each.

pub mod accounting;
pub mod binary;
pub mod cli;
pub mod cluster;
pub mod example;
pub mod fuzz;
pub mod http;
pub mod launch;
pub mod log;
pub mod network;
pub mod ports;
pub mod promises;
pub mod source;
pub mod suite;
pub mod terminal;
pub mod trial;
pub mod wait;
pub mod workers;

pub use accounting::Ledger;
pub use cli::{Answer, Begun, Cli, Repl};
pub use cluster::{Cluster, ClusterOptions};
pub use example::Example;
pub use http::Http;
pub use log::Log;
pub use network::{Network, Party, Rule};
pub use terminal::Terminal;
pub use trial::Trial;
pub use workers::{WorkerBehaviour, Workers};
