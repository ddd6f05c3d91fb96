//! A node of Norn.
//!
//! The host of a node on a real machine, and the only crate of it with tokio, quinn, files and clocks. The engine (`norn_engine`)
//! decides, the log (`norn_storage`) keeps; the simulator is their other host, and runs the very same code.

pub mod runtime;
