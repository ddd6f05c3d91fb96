//! The join of a group is granted only once its number of members is known, and all of them have ended, and with them the groups that
//! they brought. Until the join has ended, its members are not buried, except by a node that cannot know that they are members, as
//! only few nodes were sent them. Members are cancelled for others only where the group says so and one of them has failed. That one
//! shows its failure in the end, and not that it was cancelled for others, too.

use super::Property;
use super::dependencies::Ends;
use crate::history::{Fact, Finished, Happening, History, Moment, Store};
use norn_model::record::Record;
use norn_model::task::{Cancel, GROUP_FAILED, Settled, Task};
use norn_wire::group::{Join, MemberOf};
use norn_wire::request::Request;
use norn_wire::response::Response;
use norn_wire::{TaskId, Token};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
pub struct Groups {
    ends: Ends,
    /// Numbers of members that clients have set.
    totals: BTreeMap<TaskId, u32>,
    /// Completions that were sent, by task.
    completions: BTreeMap<TaskId, BTreeSet<Token>>,
    /// Tasks that some node has as failed, for whatever reason.
    failed: BTreeSet<TaskId>,
    /// Members that some node has as given up by a leader, with a majority's consent.
    dead: BTreeSet<TaskId>,
    /// A disk may have lost the evidence.
    harmed: bool,
    /// Members that their joins count as forgotten, and that were not acknowledged and open by then.
    forgotten: BTreeSet<TaskId>,
    /// Tasks that were cancelled for others.
    aborted: BTreeSet<TaskId>,
    /// Nothing happened for days, or clocks may be hours off: the time for which nodes wait for tasks that few have may be over.
    impatient: bool,
    /// Groups of which a member failed by itself.
    broken: BTreeSet<TaskId>,
    /// Tasks whose specs each node knows.
    known: BTreeMap<usize, BTreeSet<TaskId>>,
    /// Members that were buried by a node that did not know their specs, before they were acknowledged.
    orphans: BTreeSet<TaskId>,
}

fn join_of(history: &History, id: &TaskId) -> Option<Join> {
    history.specs.get(id)?.grouping.as_ref()?.join
}

fn member_of(history: &History, id: &TaskId) -> Option<MemberOf> {
    history.specs.get(id)?.grouping.as_ref()?.member
}

fn cancel_of(task: &Task) -> Option<&Cancel> {
    task.facts.as_ref()?.cancel.as_ref()
}

impl Groups {
    fn write(&mut self, history: &History, node: usize, record: &Record) -> Result<(), String> {
        match record {
            Record::Facts { items, .. } => {
                for (id, task) in items.iter() {
                    let known = self.known.entry(node).or_default();
                    if task.spec.is_some() {
                        known.insert(*id);
                    }
                    if task.tombstone.is_some() && !known.contains(id) && !history.is_enqueued(id) {
                        self.orphans.insert(*id);
                    }
                    self.store(history, id, task)?;
                }
            }
            Record::Left { partition, .. } => {
                self.known.entry(node).or_default().retain(|id| history.partition(id) != *partition);
            }
            Record::Ops { ops, .. } => {
                for op in ops {
                    if let norn_model::claim_table::table::Op::Kill { id, .. } = &**op {
                        self.fail(history, id);
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn fail(&mut self, history: &History, id: &TaskId) {
        self.failed.insert(*id);
        self.broken.extend(member_of(history, id).map(|member| member.group));
    }

    /// Number of members of a group, once a client has set it.
    fn total(&self, history: &History, group: &TaskId) -> Option<u32> {
        join_of(history, group).and_then(|join| join.total).or_else(|| self.totals.get(group).copied())
    }

    /// Checks a join's count of its members: none counts as forgotten that is acknowledged and has not ended.
    fn count(&mut self, history: &History, group: TaskId, task: &Task) -> Result<(), String> {
        let Some(counted) = task.facts.as_ref().and_then(|facts| facts.group.as_ref()) else { return Ok(()) };
        for number in 1..=self.total(history, &group).unwrap_or(0) {
            let member = MemberOf { group, number }.id();
            if counted.members.get(number) != Some(Settled::Forgotten) || self.forgotten.contains(&member) {
                continue;
            }
            if history.is_enqueued(&member) && !self.ends.has(&member) {
                return Err(format!(
                    "join {group} counts its member {number}, {member}, as forgotten, which it is not"
                ));
            }
            self.forgotten.insert(member);
        }
        Ok(())
    }

    fn store(&mut self, history: &History, id: &TaskId, task: &Task) -> Result<(), String> {
        self.count(history, *id, task)?;
        let Some(member) = member_of(history, id) else { return Ok(()) };
        let group = member.group;
        let excused = self.impatient || self.orphans.contains(id);
        if task.tombstone.is_some() && !excused && history.is_enqueued(&group) && !self.ends.has(&group) {
            return Err(format!("task {id} is buried, but the join of its group, {group}, has not ended"));
        }
        let Some(cancel) = cancel_of(task) else { return Ok(()) };
        // The death of a member because of its dependencies has no operation. A disk may lose it while the group cancels the member.
        let alone = history.specs.get(id).is_some_and(|spec| spec.after.is_empty());
        if cancel.dead && alone {
            self.dead.insert(*id);
        }
        if cancel.reason != GROUP_FAILED {
            self.fail(history, id);
            return Ok(());
        }
        self.aborted.insert(*id);
        let stays = join_of(history, &group).is_some_and(|join| !join.fail_fast);
        let total = self.total(history, &group).unwrap_or(0);
        // A member that was never enqueued, or that came too late, has failed as well.
        let mut members = (1..=total).map(|number| MemberOf { group, number }.id());
        let missing = members.any(|member| !history.is_enqueued(&member) || self.forgotten.contains(&member));
        if stays || !missing && !self.broken.contains(&group) {
            return Err(format!("task {id} is cancelled as its group, {group}, has failed, which it has not"));
        }
        Ok(())
    }

    /// Checks the tasks once all is quiet.
    fn settled(&self, stores: &[Store]) -> Result<(), String> {
        let tasks = stores.iter().flat_map(|store| &store.tasks);
        let hides = |(id, task): &(&TaskId, &Task)| {
            self.dead.contains(id) && cancel_of(task).is_some_and(|cancel| cancel.reason == GROUP_FAILED)
        };
        match tasks.filter(|_| !self.harmed).find(hides) {
            Some((id, _)) => {
                Err(format!("task {id} has failed, and is shown as cancelled for another one of its group"))
            }
            None => Ok(()),
        }
    }

    /// Checks the grant of a join.
    fn grant(&self, history: &History, group: TaskId) -> Result<(), String> {
        let Some(total) = self.total(history, &group) else {
            return Err(format!("join {group} is granted, and nobody has said how many members there are"));
        };
        for number in 1..=total {
            let member = MemberOf { group, number }.id();
            let counts = history.is_enqueued(&member) && !self.forgotten.contains(&member);
            if counts && !self.ends.has(&member) {
                return Err(format!("join {group} is granted before its member {number}, {member}, has ended"));
            }
            // Of several completions, those that no node knew in time do not count; nor does one that few nodes have.
            let failed = self.failed.contains(&member) || self.aborted.contains(&member);
            let is_strict = |token: &Token| history.strict.contains_key(&(member, Fact::Completion(*token)));
            let one =
                self.completions.get(&member).is_some_and(|tokens| tokens.len() == 1 && tokens.iter().all(is_strict));
            let brought = history.joins.get(&member).into_iter().flatten();
            let open = |join: &&TaskId| !self.ends.has(join);
            if let Some(inner) = brought.clone().find(open).filter(|_| one && !failed) {
                return Err(format!(
                    "join {group} is granted before {inner}, which its member {member} brought, has ended"
                ));
            }
        }
        Ok(())
    }
}

// O17, O21, O23, O31
impl Property for Groups {
    fn name(&self) -> &'static str {
        "groups"
    }

    fn see(&mut self, history: &History, _moment: Moment, happening: &Happening<'_>) -> Result<(), String> {
        match happening {
            Happening::Appended { node, records, .. } => {
                for record in *records {
                    self.ends.learn(record);
                    self.write(history, *node, record)?;
                }
            }
            Happening::Replayed { node, records } => {
                let known = self.known.entry(*node).or_default();
                known.clear();
                for record in *records {
                    match record {
                        Record::Facts { items, .. } => {
                            known.extend(items.iter().filter(|(_, task)| task.spec.is_some()).map(|(id, _)| *id));
                        }
                        Record::Left { partition, .. } => known.retain(|id| history.partition(id) != *partition),
                        _ => {}
                    }
                }
            }
            Happening::Damaged { .. } | Happening::Spoiled { .. } | Happening::Gone { .. } => self.harmed = true,
            Happening::Settled { stores } => self.settled(stores)?,
            Happening::Founded(terms) => self.impatient = terms.wild,
            Happening::Leapt { .. } => self.impatient = true,
            Happening::Sent { request: Request::CloseGroup { id, total, .. } } => {
                self.totals.insert(*id, *total);
            }
            Happening::Sent { request: Request::Complete { items, .. } } => {
                for item in items {
                    self.completions.entry(item.id).or_default().insert(item.token);
                }
            }
            Happening::Finished(Finished { result: Ok(Response::Claimed { tasks, .. }), .. }) => {
                for task in tasks {
                    if join_of(history, &task.id).is_some() {
                        self.grant(history, task.id)?;
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
    use crate::adapter::ReplicaView;
    use norn_engine::Ticket;
    use norn_model::task::{Completed, GroupFacts, Members, Tombstone};
    use norn_wire::group::Grouping;
    use norn_wire::request::{Acks, NewTask, Spec};
    use norn_wire::{Guarantee, PartitionId};
    use std::sync::Arc;

    const ONE: Token = Token { epoch: 1, number: 1 };

    fn group(bench: &mut Bench<Groups>, fail_fast: bool) -> TaskId {
        let join = Some(Join { total: None, fail_fast });
        let tasks = vec![NewTask { id: id(1), spec: grouped(Grouping { member: None, join }) }];
        bench.enqueued_all(tasks);
        id(1)
    }

    fn grouped(grouping: Grouping) -> Spec {
        Spec { grouping: Some(Box::new(grouping)), ..spec() }
    }

    fn member(bench: &mut Bench<Groups>, number: u32) -> TaskId {
        let member = MemberOf { group: id(1), number };
        bench.enqueued_all(vec![NewTask {
            id: member.id(),
            spec: grouped(Grouping { member: Some(member), join: None }),
        }]);
        member.id()
    }

    fn stored(bench: &mut Bench<Groups>, id: TaskId, task: Task) -> Result<(), String> {
        let records = [Record::Facts { partition: PartitionId(0), items: Arc::new(vec![(id, task)]) }];
        bench.see(Happening::Appended { node: 0, ticket: Ticket(1), records: &records })
    }

    fn close(bench: &mut Bench<Groups>, total: u32) {
        let request = Request::CloseGroup { id: id(1), total, acks: Acks::Quorum };
        bench.see(Happening::Sent { request: &request }).unwrap();
    }

    fn done() -> Task {
        Task::from_completion(ONE, Completed { sequence: None, result: None, at_ms: 1, children: None })
    }

    impl Bench<Groups> {
        fn enqueued_all(&mut self, tasks: Vec<NewTask>) {
            let request = Request::Enqueue { tasks: tasks.clone(), acks: Acks::Quorum };
            self.see(Happening::Sent { request: &request }).unwrap();
            let acked = |task: &NewTask| norn_wire::Acked { id: task.id, ..acked(1, 2, Guarantee::Strict) };
            let response = Response::Acked(tasks.iter().map(|task| Ok(acked(task))).collect());
            let now = self.now();
            self.finish(request, now, response).unwrap();
        }
    }

    #[test]
    fn a_join_before_its_members_is_refused() {
        let mut bench = Bench::<Groups>::new();
        group(&mut bench, false);
        let first = member(&mut bench, 1);
        let now = bench.now();
        assert!(bench.finish(claim(), now, granted(1, ONE)).is_err(), "nobody has said how many there are");
        close(&mut bench, 1);
        assert!(bench.finish(claim(), now, granted(1, ONE)).is_err(), "one is open");
        stored(&mut bench, first, done()).unwrap();
        assert!(bench.finish(claim(), now, granted(1, ONE)).is_ok());
    }

    /// A member whose client is acknowledged only after the join stopped waiting for it has come too late.
    #[test]
    fn a_member_is_not_counted_as_forgotten_once_it_is_acknowledged() {
        let counted = |number| {
            let members = Members::of(number, Settled::Forgotten);
            Task::from_group(GroupFacts { total: None, members, joins: Vec::new() })
        };
        let mut bench = Bench::<Groups>::new();
        let join = group(&mut bench, false);
        let now = bench.now();
        member(&mut bench, 1);
        close(&mut bench, 2);
        stored(&mut bench, join, counted(2)).unwrap();
        member(&mut bench, 2);
        stored(&mut bench, join, counted(2)).unwrap();
        assert!(stored(&mut bench, join, counted(1)).is_err());
        let first = MemberOf { group: join, number: 1 }.id();
        stored(&mut bench, first, done()).unwrap();
        bench.finish(claim(), now, granted(1, ONE)).unwrap();
    }

    #[test]
    fn a_member_that_is_buried_before_its_join_has_ended_is_refused() {
        let mut bench = Bench::<Groups>::new();
        let join = group(&mut bench, false);
        let first = member(&mut bench, 1);
        let tombstone = || Task::from_tombstone(Tombstone { state: norn_wire::State::Done, at_ms: 1 });
        assert!(stored(&mut bench, first, tombstone()).is_err());
        stored(&mut bench, join, done()).unwrap();
        stored(&mut bench, first, tombstone()).unwrap();
    }

    #[test]
    fn a_member_that_few_had_is_buried_by_one_that_does_not_know_it() {
        let mut bench = Bench::<Groups>::new();
        group(&mut bench, false);
        let member = MemberOf { group: id(1), number: 1 };
        let spec = grouped(Grouping { member: Some(member), join: None });
        let tasks = vec![NewTask { id: member.id(), spec: spec.clone() }];
        bench.see(Happening::Sent { request: &Request::Enqueue { tasks, acks: Acks::One } }).unwrap();
        let tombstone = || Task::from_tombstone(Tombstone { state: norn_wire::State::Done, at_ms: 1 });
        let store = |bench: &mut Bench<Groups>, node: usize, task: Task| {
            let records = [Record::Facts { partition: PartitionId(0), items: Arc::new(vec![(member.id(), task)]) }];
            bench.see(Happening::Appended { node, ticket: Ticket(1), records: &records })
        };
        store(&mut bench, 0, Task::from_spec(Arc::new(spec))).unwrap();
        assert!(store(&mut bench, 0, tombstone()).is_err(), "it knows that it is a member");
        store(&mut bench, 1, tombstone()).unwrap();
        store(&mut bench, 0, tombstone()).unwrap();
    }

    #[test]
    fn members_are_not_cancelled_without_reason() {
        let cancel = |reason: &str| Task::from_cancel(Cancel { dead: false, reason: reason.into(), at_ms: 1 });
        let mut bench = Bench::<Groups>::new();
        group(&mut bench, true);
        let (first, second) = (member(&mut bench, 1), member(&mut bench, 2));
        close(&mut bench, 2);
        assert!(stored(&mut bench, second, cancel(GROUP_FAILED)).is_err());
        stored(&mut bench, first, cancel("not needed")).unwrap();
        stored(&mut bench, second, cancel(GROUP_FAILED)).unwrap();
        let mut bench = Bench::<Groups>::new();
        group(&mut bench, false);
        let (first, second) = (member(&mut bench, 1), member(&mut bench, 2));
        close(&mut bench, 2);
        stored(&mut bench, first, cancel("not needed")).unwrap();
        assert!(stored(&mut bench, second, cancel(GROUP_FAILED)).is_err());
    }

    #[test]
    fn a_member_that_has_failed_and_does_not_show_it_is_refused() {
        let cancel = |dead, reason: &str| Task::from_cancel(Cancel { dead, reason: reason.into(), at_ms: 1 });
        let settled = |bench: &mut Bench<Groups>, id: TaskId, task: Task| {
            let tasks = BTreeMap::from([(id, task)]);
            let stores = [Store { node: 0, view: ReplicaView::default(), tasks, wall_ms: 0 }];
            bench.see(Happening::Settled { stores: &stores })
        };
        let mut bench = Bench::<Groups>::new();
        group(&mut bench, true);
        let (first, second) = (member(&mut bench, 1), member(&mut bench, 2));
        close(&mut bench, 2);
        stored(&mut bench, first, cancel(true, "invalid")).unwrap();
        settled(&mut bench, first, cancel(true, "invalid")).unwrap();
        settled(&mut bench, first, cancel(false, "not needed")).unwrap();
        settled(&mut bench, second, cancel(false, GROUP_FAILED)).unwrap();
        assert!(settled(&mut bench, first, cancel(false, GROUP_FAILED)).is_err());
        bench.see(Happening::Gone { node: 2 }).unwrap();
        settled(&mut bench, first, cancel(false, GROUP_FAILED)).unwrap();
    }
}
