//! No task is granted before the tasks that it waits for have ended. None proceeds or fails because a dependency is taken for
//! forgotten that is acknowledged and has not ended. (S18)
//!
//! A task has ended once some node has logged a record that says so: before that no node may act on it, whatever was sent.

use super::Property;
use crate::history::{Fact, Finished, Happening, History, Moment, facts_of};
use norn_model::claim_table::table::{ClaimState, ClaimTable, Ended, Op};
use norn_model::record::Record;
use norn_model::task::{Settled, Task};
use norn_wire::TaskId;
use norn_wire::response::Response;
use std::collections::BTreeSet;

/// Tasks that some node has logged as ended.
#[derive(Debug, Default)]
pub struct Ends {
    ended: BTreeSet<TaskId>,
}

#[derive(Debug, Default)]
pub struct Dependencies {
    ends: Ends,
}

impl Ends {
    /// Whether a task has ended.
    pub fn has(&self, id: &TaskId) -> bool {
        self.ended.contains(id)
    }

    /// Takes in a record that a node logs.
    pub fn learn(&mut self, record: &Record) {
        match record {
            Record::Facts { items, .. } | Record::Hint { items, .. } => {
                let ends = |fact: &Fact| matches!(fact, Fact::Completion(_) | Fact::Cancel | Fact::Tombstone);
                let ended = items.iter().filter(|(_, task)| facts_of(task).iter().any(ends));
                self.ended.extend(ended.map(|(id, _)| *id));
            }
            Record::Ops { ops, .. } => ops.iter().for_each(|op| match &**op {
                Op::Drop { items } => self.drop(items),
                Op::Kill { id, .. } => drop(self.ended.insert(*id)),
                _ => {}
            }),
            Record::Install { table: Some(table), .. } => self.install(table),
            _ => {}
        }
    }

    fn drop(&mut self, items: &[Ended]) {
        self.ended.extend(items.iter().map(|item| item.id));
    }

    fn install(&mut self, table: &ClaimTable) {
        let dead = table.entries.iter().filter(|(_, entry)| matches!(entry.state, ClaimState::Dead { .. }));
        self.ended.extend(dead.map(|(id, _)| *id));
        table.out.values().for_each(|items| self.drop(items));
    }
}

/// Dependencies that a task's facts take for forgotten.
fn forgotten(history: &History, id: &TaskId, task: &Task) -> Vec<TaskId> {
    let Some(facts) = &task.facts else { return Vec::new() };
    let settled = facts.settled.iter().filter(|(_, how)| *how == Settled::Forgotten).map(|(other, _)| *other);
    let reason = facts.cancel.as_ref().filter(|cancel| cancel.dead).map_or("", |cancel| &cancel.reason);
    let after = history.specs.get(id).map_or(&[][..], |spec| &spec.after);
    let failed = |other: &&TaskId| reason.starts_with(&format!("task {other}, for which it waits, is not known"));
    settled.chain(after.iter().filter(failed).copied()).collect()
}

// S18
impl Property for Dependencies {
    fn name(&self) -> &'static str {
        "dependencies"
    }

    fn see(&mut self, history: &History, _moment: Moment, happening: &Happening<'_>) -> Result<(), String> {
        match happening {
            Happening::Appended { records, .. } => {
                records.iter().for_each(|record| self.ends.learn(record));
                for record in *records {
                    let Record::Facts { items, .. } = record else { continue };
                    for (id, task) in items.iter() {
                        let alive = |other: &TaskId| history.is_enqueued(other) && !self.ends.has(other);
                        if let Some(other) = forgotten(history, id, task).into_iter().find(alive) {
                            return Err(format!("task {id} goes on as if {other}, for which it waits, were forgotten"));
                        }
                    }
                }
            }
            Happening::Finished(Finished { result: Ok(Response::Claimed { tasks, .. }), .. }) => {
                for task in tasks {
                    let after = history.specs.get(&task.id).map_or(&[][..], |spec| &spec.after);
                    if let Some(other) = after.iter().find(|other| !self.ends.has(other)) {
                        return Err(format!(
                            "task {} was granted before {other}, for which it waits, had ended",
                            task.id
                        ));
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::*;
    use super::*;
    use norn_engine::Ticket;
    use norn_model::task::{Completed, Task};
    use norn_wire::request::{Acks, NewTask, Request, Spec};
    use norn_wire::{PartitionId, Token};
    use std::sync::Arc;

    #[test]
    fn a_grant_before_the_end_of_what_it_waits_for_is_refused() {
        let mut bench = Bench::<Dependencies>::new();
        let spec = Spec { after: vec![id(1)], ..spec() };
        let request = Request::Enqueue { tasks: vec![NewTask { id: id(2), spec }], acks: Acks::Quorum };
        bench.see(Happening::Sent { request: &request }).unwrap();
        let now = bench.now();
        let token = |number| Token { epoch: 1, number };
        assert!(bench.finish(claim(), now, granted(2, token(1))).is_err());
        let done =
            Task::from_completion(token(9), Completed { sequence: None, result: None, at_ms: 1, children: None });
        let records = [Record::Facts { partition: PartitionId(0), items: Arc::new(vec![(id(1), done)]) }];
        bench.see(Happening::Appended { node: 0, ticket: Ticket(1), records: &records }).unwrap();
        assert!(bench.finish(claim(), now, granted(2, token(2))).is_ok());
    }
}
