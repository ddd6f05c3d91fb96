//! The service: a node that serves over QUIC and HTTP. What it needs beside a network is in `norn_host`.
//!
//! ```text
//! QUIC -> listener -> driver -> Node::step -> effects -> log thread
//!                                                    -> peers (two streams each, on a connection of both nodes)
//!                                                    -> client streams
//! ```
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "files, threads and clocks belong here; the bans are the core's"
)]

pub mod caller;
pub mod certificates;
pub mod diagnostics;
pub mod doors;
pub mod duplicate_instance;
pub mod hints;
pub mod joining;
pub mod listener;
mod measuring;
pub mod moved;
pub mod peers;
pub mod renewing;
pub mod server;
pub mod settings;
mod surroundings;
pub mod tls;
pub mod transport;

#[cfg(test)]
mod tests;
