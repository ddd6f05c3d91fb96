//! A node of Norn.
//!
//! Three parts:
//! - [`protocol`]: one synchronous state machine per node. `step(now, event, &mut effects)`; no IO, clock or source of
//!   randomness in it.
//! - [`storage`]: the write-ahead log, ordinary synchronous code over the small [`storage::disk::Disk`] trait.
//! - `runtime` (feature `runtime`): the only place with tokio, quinn, files and clocks.
//!
//! The runtime and the simulator are the only two hosts of the first two parts, and run the very same code.

// Without the mutants feature, each planted bug is the constant `false`.
#![cfg_attr(not(feature = "mutants"), allow(clippy::nonminimal_bool, clippy::eq_op, clippy::overly_complex_bool_expr))]

pub mod gauge;
pub mod protocol;
pub mod restore;
pub mod storage;

#[cfg(feature = "runtime")]
pub mod runtime;
