//! Client of Norn, a distributed task queue.
//!
//! - [`wire`]: the public types, frames and limits that clients and nodes share.
//! - [`session`]: the client without IO: retries, failover, deadlines, minting. The simulator runs it too.
//! - `tls`, `dial`, `connection` (feature `net`): certificates, addresses and sockets; drives a session over QUIC.
//! - `client` (feature `net`): the typed async API that an application uses.
//! - `worker` (feature `net`): handlers by task type.
//! - `command` and `repl` (feature `repl`): the verbs, for a command line and for a prompt.

#[cfg(feature = "net")]
pub mod client;
#[cfg(feature = "repl")]
pub mod command;
#[cfg(feature = "net")]
mod connection;
#[cfg(feature = "net")]
pub mod dial;
#[cfg(feature = "repl")]
pub mod repl;
pub mod session;
#[cfg(feature = "net")]
pub mod tls;
pub mod wire;
#[cfg(feature = "net")]
pub mod worker;
