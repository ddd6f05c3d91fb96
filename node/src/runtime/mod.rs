//! The host of a node: the only place with tokio, quinn, files and clocks.
//!
//! ```text
//! QUIC -> listener -> driver -> Node::step -> effects -> store (log thread)
//!                                                    -> peers (two streams each, on a connection of both nodes)
//!                                                    -> client streams
//! ```
//! The host makes no decisions: it passes events in, carries effects out, and sleeps until `next_wake`.
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "files, threads and clocks belong here; the bans are the core's"
)]

pub mod answers;
pub mod archive;
pub mod authorize;
pub mod caller;
pub mod certificates;
pub mod clock;
pub mod diagnostics;
pub mod disk;
pub mod doors;
pub mod driver;
pub mod duplicate_instance;
pub mod frames;
pub mod hints;
pub mod joining;
pub mod listener;
mod loader;
mod measuring;
pub mod memory;
pub mod metrics;
pub mod moved;
pub mod peers;
pub mod renewing;
pub mod server;
pub mod settings;
mod snapshot_pace;
pub mod store;
mod surroundings;
pub mod tls;
pub mod transport;

#[cfg(test)]
mod tests;
