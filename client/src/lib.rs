//! Client of Norn, a distributed task queue.
//!
//! - [`wire`]: the public types, frames and limits that clients and nodes share (crate `norn-wire`).
//! - [`session`]: the client without IO: retries, failover, deadlines, id generation. The simulator runs it too.
//! - `api` (feature `net`): the JSON forms of inputs and answers, as the command line reads and prints them.
//!   Feature `schema` adds their schemas, for OpenAPI.
//! - `tls`, `dial`, `connection` (feature `net`): certificates, addresses and sockets; drives a session over QUIC.
//! - `local` (feature `net`): the way to a node of the same process.
//! - `client` (feature `net`): the typed async API that an application uses.
//! - `worker` (feature `net`): handlers by task type.
//!
//! The verbs of the command line are a crate of their own, `norn-cli`.

#[doc(hidden)]
#[cfg(feature = "net")]
pub mod alarm;
#[cfg(feature = "net")]
pub mod api;
#[cfg(feature = "net")]
pub mod client;
#[cfg(feature = "net")]
mod connection;
#[cfg(feature = "net")]
pub mod dial;
#[doc(hidden)]
#[cfg(feature = "net")]
pub mod endpoint;
#[cfg(feature = "net")]
pub mod local;
pub mod session;
#[doc(hidden)]
#[cfg(feature = "net")]
pub mod text;
#[doc(hidden)]
pub mod times;
#[cfg(feature = "net")]
pub mod tls;
#[cfg(feature = "net")]
pub mod worker;

pub use norn_wire as wire;
