//! Bytes that other builds wrote: messages of the oldest version, and data directories of every format.
#![cfg(feature = "runtime")]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "this is about processes and files; the bans are the core's"
)]

mod log;
mod samples;
mod wire;
