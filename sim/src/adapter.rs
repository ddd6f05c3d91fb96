//! Everything that the simulator takes from the other crates under names of its own, in one place.

pub use norn_client::session::{self, Call, CallId, Draft, Input, Output, Session};
pub use norn_node::protocol::{Node as Core, ReplicaView, ring};
pub use norn_node::restore::Restorer;
pub use norn_node::storage as log;

use norn_client::wire::TaskId;
use norn_node::protocol::task::Task;
use std::collections::BTreeMap;

/// All tasks that a node holds, of all partitions.
pub fn tasks_of(core: &Core) -> BTreeMap<TaskId, Task> {
    let views: Vec<ReplicaView> = core.inspect();
    views.iter().flat_map(|view| core.tasks(view.partition)).collect()
}
