//! Harness of the tests with real processes, real QUIC and real disks.
//!
//! - [`binary`]: where the `norn` binary is.
//! - [`wait`]: waiting on conditions with deadlines, the only place that pauses.
//! - [`ports`]: the one allocator of ports.
//! - [`cluster`]: nodes as processes that are killed, stopped and started again.
//! - [`launch`]: programs that start `norn` with other names of hosts, or in a control group.
//! - [`network`]: proxies between nodes that lose, delay, double and reorder what is sent.
//! - [`cli`]: the verbs as a script meets them, one-shot and in a piped REPL.
//! - [`terminal`]: a pseudo terminal with a program at it.
//! - [`log`]: the log of a node that does not run, and ways to damage it.
//! - [`example`]: the examples of the client library, as programs.
//! - [`accounting`]: what became of every task, judged independently of the cluster.
//! - [`workers`]: workers of all habits, who keep these books.
//! - [`trial`]: a cluster under load whose network turns bad.
//! - [`fuzz`]: what any bytes may be taken for; no processes.
//! - [`suite`]: what a task queue promises, once for real nodes and for the simulator.
//! - [`source`]: the files of the workspace; [`promises`]: what was promised, and which test proves it.

pub mod accounting;
pub mod binary;
pub mod cli;
pub mod cluster;
pub mod example;
pub mod fuzz;
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
pub use log::Log;
pub use network::{Network, Party, Rule};
pub use terminal::Terminal;
pub use trial::Trial;
pub use workers::{Habits, Workers};
