//! The end of ended tasks: archive, tombstones, forgetting, purges.

pub mod archiving;
pub mod drained;
pub mod forgetting;
pub mod purge;
