//! Client of Norn, a distributed task queue.
//!
//! - [`wire`]: the public types, frames and limits that clients and nodes share (crate `norn-wire`).
//! - [`session`]: the client without IO: retries, failover, deadlines, id generation. The simulator runs it too.
//! - `tls`, `dial`, `connection` (feature `net`): certificates, addresses and sockets; drives a session over QUIC.
//! - `client` (feature `net`): the typed async API that an application uses.
//! - `worker` (feature `net`): handlers by task type.
//!
//! The verbs of the command line are a crate of their own, `norn-cli`.

#[cfg(feature = "net")]
pub mod client;
#[cfg(feature = "net")]
mod connection;
#[cfg(feature = "net")]
pub mod dial;
pub mod session;
#[cfg(feature = "net")]
pub mod tls;
#[cfg(feature = "net")]
pub mod worker;

pub use norn_wire as wire;
