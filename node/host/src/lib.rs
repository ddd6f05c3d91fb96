//! The host of a node, without a network: what a node needs of a real machine.
//!
//! ```text
//! links of clients -> driver -> Node::step -> effects -> log thread
//!                                                     -> links to other members (trait `Links`)
//!                                                     -> answers to clients
//! ```
//! The host makes no decisions: it passes events in, carries effects out, and sleeps until `next_wake`. The service (`norn-node`) adds
//! QUIC, HTTP, certificates and settings; the store in a process (`norn-store`) adds nothing.
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "files, threads and clocks belong here; the bans are the core's"
)]

pub mod answers;
pub mod archive;
pub mod authorize;
pub mod clients;
pub mod clock;
pub mod disk;
pub mod driver;
pub mod emergency;
pub mod frames;
pub mod links;
pub mod loader;
pub mod log_thread;
pub mod measuring;
pub mod memory;
pub mod metrics;
pub mod questions;
pub mod refusals;
pub mod replay;
mod snapshot_pace;
pub mod threads;
