//! After healing, the replicas of each partition are equal, one of them leads, every task has ended, and no lock of a transaction is left.
//! (ARCHITECTURE.md I-12, I-23)

use super::Property;
use crate::history::{Happening, History, Moment, Store};
use norn_model::cohort::Role;
use norn_model::limits::ID_AHEAD_MS_MAX;
use norn_model::task::Task;
use norn_wire::TaskId;
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub struct Convergence;

/// Whether work on a task remains.
pub fn is_open(task: &Task) -> bool {
    task.spec.is_some() && task.ended().is_none()
}

/// Whether a join waits for members that no node accepted: its id came from a clock that was far ahead, and the ids of its members
/// follow from it. Their writers give up before that time has come.
fn lacks_members(id: &TaskId, task: &Task, wall_ms: u64) -> bool {
    task.join().is_some() && id.time_ms() > wall_ms + ID_AHEAD_MS_MAX
}

/// First reason why the cluster is not settled, if any.
pub fn unsettled(stores: &[Store]) -> Option<String> {
    let mut first = BTreeMap::new();
    let mut leaders = BTreeMap::new();
    for store in stores {
        let partition = store.view.partition;
        *leaders.entry(partition).or_insert(0) += usize::from(store.view.leads && store.view.established);
        let one: &Store = first.entry(partition).or_insert(store);
        if one.view.content != store.view.content || one.tasks != store.tasks {
            return Some(format!("partition {partition}: nodes {} and {} have different tasks", one.node, store.node));
        }
        if (one.view.viewstamp, one.view.digest) != (store.view.viewstamp, store.view.digest) {
            return Some(format!(
                "partition {partition}: node {} is at {:?}, node {} at {:?}",
                one.node, one.view.viewstamp, store.node, store.view.viewstamp
            ));
        }
        if !store.view.stable || store.view.role.is_some_and(|role| role < Role::Member) {
            return Some(format!("partition {partition}: node {} still moves: {:?}", store.node, store.view.role));
        }
        if !store.view.data_loss.is_whole() {
            return Some(format!(
                "partition {partition}: node {} has not healed: {:?}",
                store.node, store.view.data_loss
            ));
        }
        if store.view.bodies_lost > 0 {
            return Some(format!("partition {partition}: node {} has lost bodies", store.node));
        }
        let outbox = store.tasks.iter().find(|(_, task)| task.has_outbox());
        if let Some((id, _)) = outbox {
            return Some(format!("partition {partition}: children of task {id} are not handed over"));
        }
        let open = store.tasks.iter().find(|(id, task)| is_open(task) && !lacks_members(id, task, store.wall_ms));
        if let Some((id, _)) = open {
            return Some(format!("partition {partition}: task {id} has not ended"));
        }
        if store.view.transactions > 0 {
            let count = store.view.transactions;
            return Some(format!("partition {partition}: the locks of {count} transactions are left"));
        }
        // A task's claim stays until all that the task still brings, such as a dead letter, is handed over.
        if store.view.claims > 0 {
            return Some(format!("partition {partition}: {} claims of ended tasks are left", store.view.claims));
        }
    }
    leaders
        .into_iter()
        .find(|(_, count)| *count != 1)
        .map(|(partition, count)| format!("partition {partition} has {count} established leaders"))
}

// T26, S5, S9, S30, S40
impl Property for Convergence {
    fn name(&self) -> &'static str {
        "convergence"
    }

    fn see(&mut self, _history: &History, _moment: Moment, happening: &Happening<'_>) -> Result<(), String> {
        match happening {
            Happening::Settled { stores } => unsettled(stores).map_or(Ok(()), Err),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::*;
    use super::*;
    use crate::adapter::ReplicaView;
    use norn_model::task::Cancel;

    fn stores() -> Vec<Store> {
        let task = Task::from_cancel(Cancel { dead: false, reason: String::new(), at_ms: 1 });
        let role = Some(Role::Member);
        let view = |leads| ReplicaView { leads, established: leads, stable: true, role, ..ReplicaView::default() };
        let store = |node, leads| {
            let tasks = BTreeMap::from([(id(1), task.clone())]);
            Store { node, view: view(leads), tasks, wall_ms: 0 }
        };
        vec![store(0, true), store(1, false)]
    }

    fn refused(change: impl FnOnce(&mut Vec<Store>)) -> bool {
        let mut stores = stores();
        change(&mut stores);
        Bench::<Convergence>::new().see(Happening::Settled { stores: &stores }).is_err()
    }

    #[test]
    fn differing_replicas_open_tasks_and_missing_leaders_are_refused() {
        assert!(!refused(|_| {}));
        assert!(refused(|stores| stores[1].view.content = 1));
        assert!(refused(|stores| stores[1].view.digest = 1));
        assert!(refused(|stores| stores[1].view.data_loss.facts = true));
        assert!(refused(|stores| stores[1].view.stable = false));
        assert!(refused(|stores| stores[1].view.role = Some(Role::DrainingReplica)));
        assert!(!refused(|stores| stores[1].view.leads = true), "leading alone is not established");
        assert!(refused(|stores| stores[0].view.leads = false));
        assert!(refused(|stores| stores[0].view.claims = 1));
        assert!(refused(|stores| {
            for store in stores {
                store.tasks.insert(id(2), Task::from_spec(std::sync::Arc::new(spec())));
            }
        }));
    }
}
