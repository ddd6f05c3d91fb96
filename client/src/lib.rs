//! Client of Norn, a distributed task queue.
//!
//! - [`wire`]: the public types, frames and limits that clients and nodes share.
//! - [`session`]: the client without IO: retries, failover, deadlines, minting.

pub mod session;
pub mod wire;
