//! Bytes written by other builds: records, and data directories of every format.
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "this is about processes and files; the bans are the core's"
)]

mod log;
mod records;
mod samples;
