//! From the log to a node, from a node to a snapshot, and how replicas recover what their log has lost.

pub mod replay;
pub mod save;
