//! Bodies of tasks, results and log entries: which are in memory, and how the others come back from the log.

pub mod bodies;
pub mod loads;
