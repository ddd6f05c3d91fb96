//! What the leader of the metadata group does for the cluster: members, layout, schedules.

pub mod reconciler;
pub mod scheduler;

use reconciler::Reconciler;
use scheduler::Scheduler;

/// What the leader of the metadata group goes by. Its fields are private to this folder.
#[derive(Debug, Default)]
pub struct Controller {
    reconciler: Reconciler,
    scheduler: Scheduler,
}
