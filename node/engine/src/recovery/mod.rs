//! From the log to a node, and from a node to a snapshot.

pub mod replay;
pub mod save;
