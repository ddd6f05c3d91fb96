//! What the leader of the root does for the cluster: members, layout, schedules.

pub mod scheduler;
pub mod steward;
