//! Client of Norn, a distributed task queue.
//!
//! - [`wire`]: the public types, frames and limits that clients and nodes share.
//! - `command` and `repl` (feature `repl`): the verbs, for a command line and for a prompt.

#[cfg(feature = "repl")]
pub mod command;
#[cfg(feature = "repl")]
pub mod repl;
pub mod wire;
