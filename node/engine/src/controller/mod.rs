//! What the leader of the root does for the cluster: members, layout, schedules.

pub mod scheduler;
pub mod steward;

use scheduler::Scheduler;
use steward::Steward;

/// What the leader of the root goes by. Its fields are private to this folder.
#[derive(Debug, Default)]
pub struct Controller {
    steward: Steward,
    scheduler: Scheduler,
}
