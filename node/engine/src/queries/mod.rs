//! Questions over many tasks: lists, counts, watches.

pub mod count;
pub mod list;
pub mod watch;
