//! Harness of the tests with real processes, real QUIC and real disks.
//!
//! - [`binary`]: where the `norn` binary is.
//! - [`wait`]: waiting on conditions with deadlines, the only place that pauses.
//! - [`cluster`]: nodes as processes that are killed, stopped and started again.
//! - [`cli`]: the verbs as a script meets them, one-shot and in a piped REPL.
//! - [`log`]: the log of a node that does not run, and ways to damage it.
//! - [`accounting`]: what became of every task, judged independently of the cluster.
//! - [`fuzz`]: what any bytes may be taken for; no processes.

pub mod accounting;
pub mod binary;
pub mod cli;
pub mod cluster;
pub mod fuzz;
pub mod log;
pub mod wait;

pub use accounting::Ledger;
pub use cli::{Answer, Cli, Repl};
pub use cluster::{Cluster, ClusterOptions};
pub use log::Log;
