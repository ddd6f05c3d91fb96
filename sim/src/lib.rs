//! Deterministic simulator of Norn: the same protocol core, log and client session as in production, in a world of
//! virtual time, networks that lose, processes that crash, disks that forget and clocks that err.
//!
//! Everything follows from the seed. A run has a safety phase, in which anything may break and the properties in
//! `properties` must hold at every step, and a liveness phase, in which nothing breaks any more and everything must come
//! to rest.

mod absence;
mod adapter;
mod changes;
mod clock;
pub mod command;
mod copies;
mod damage;
pub mod disk;
mod faults;
mod groups;
mod held;
mod history;
mod jobs;
mod links;
mod losses;
pub mod model;
#[cfg(test)]
mod moves;
pub mod mutants;
mod network;
mod operator;
pub mod options;
mod process;
mod properties;
#[cfg(test)]
mod rates;
pub mod report;
mod schedules;
mod script_host;
mod scrub;
mod sessions;
mod settle;
mod shortage;
mod snapshots;
#[cfg(test)]
mod steps;
#[cfg(test)]
mod tests;
pub mod trace;
mod transactions;
mod troubles;
mod watches;
mod wire;
mod witnesses;
mod workload;
mod world;

pub use options::{Conditions, Overrides};
pub use report::{Report, run, run_until};
pub use script_host::{ScriptCall, ScriptHost};
pub use trace::Keep;
pub use world::{Counters, Violation};
