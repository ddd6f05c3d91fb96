//! Each time at which a schedule is due has at most one task, whichever node leads and however often the enqueue was begun; and the
//! time is due, and the schedule exists. Every due time is accounted for: fired, missed or being fired. A task that a leader writes
//! down as enqueued exists by then, and is a fact that must not be lost (`lost.rs`). What is due is fired in the end
//! (`../schedules.rs`).

use super::Property;
use crate::clock::WALL_START_MS;
use crate::history::{Happening, History, Moment};
use norn_model::claim_table::table::Op;
use norn_model::record::Record;
use norn_model::schedules::{Calendar, Operation, Turn};
use norn_wire::request::{Request, Spec};
use norn_wire::response::Response;
use norn_wire::schedule::{ScheduleChange, ScheduleView, TICK_HEADER};
use norn_wire::{PartitionId, TaskId};
use std::collections::{BTreeMap, BTreeSet};

/// How far wall clocks may be from true time where they are not wild: the offset that fencing takes for wrong, and the time until
/// that is noticed.
const CLOCKS_MS: u64 = 3_000;
/// Due times up to which a gap is counted. Longer gaps are not counted to the end.
const COUNTED: usize = 1_000;

#[derive(Debug, Default)]
pub struct Schedules {
    /// Wall clocks are near true time.
    steady: bool,
    /// Task of each schedule and due time.
    tasks: BTreeMap<(u32, u64), TaskId>,
    /// All of these tasks.
    known: BTreeSet<TaskId>,
    /// When schedules were removed for certain, by number.
    removed: BTreeMap<u32, Moment>,
    /// Schedules that were ever requested to be paused, by name.
    paused: BTreeSet<String>,
}

/// Number of a task's schedule, and the time for which the task was due.
fn origin(id: &TaskId, spec: &Spec) -> Option<(u32, u64)> {
    let (_, tick) = spec.headers.iter().find(|(name, _)| name == TICK_HEADER)?;
    let number = u32::from_be_bytes(id.to_bytes()[8..12].try_into().expect("four bytes"));
    Some((number, tick.parse().ok()?))
}

impl Schedules {
    fn learned(&mut self, moment: Moment, id: TaskId, spec: &Spec) -> Result<(), String> {
        let Some((number, tick_ms)) = origin(&id, spec) else { return Ok(()) };
        self.known.insert(id);
        let one = *self.tasks.entry((number, tick_ms)).or_insert(id);
        if one != id {
            return Err(format!("schedule {number} has tasks {one} and {id} for {tick_ms}"));
        }
        let now_ms = WALL_START_MS + moment.time_us / 1_000;
        if self.steady && tick_ms > now_ms + CLOCKS_MS {
            return Err(format!("task {id} of schedule {number} is there {} ms before it is due", tick_ms - now_ms));
        }
        let removed = self.removed.get(&number).map(|at| WALL_START_MS + at.time_us / 1_000);
        match removed.filter(|removed_ms| self.steady && tick_ms > removed_ms + CLOCKS_MS) {
            Some(_) => Err(format!("schedule {number} was removed before {tick_ms}, for which task {id} is")),
            None => Ok(()),
        }
    }

    /// Checks what a leader decides.
    fn turned(&self, history: &History, epoch: u64, turn: &Turn) -> Result<(), String> {
        let nobody_has = |id: &TaskId| !self.known.contains(id);
        let mut fired = turn.fired.iter().filter_map(|ordinal| history.firing((turn.number, *ordinal), epoch));
        if let Some(id) = fired.find(nobody_has) {
            return Err(format!("task {id} of schedule {} counts as enqueued, and nobody has it", turn.number));
        }
        let set = history.schedule(turn.number, epoch);
        let Some(calendar) = set.and_then(|(_, schedule)| Calendar::new(&schedule.when).ok()) else { return Ok(()) };
        for tick in &turn.ticks {
            if calendar.until(*tick) != Some(*tick) {
                return Err(format!("schedule {} is fired at {tick}, when it is not due", turn.number));
            }
            if *tick > turn.minted_ms {
                return Err(format!("schedule {} is fired {} ms early", turn.number, tick - turn.minted_ms));
            }
        }
        Ok(())
    }

    /// Checks that every due time is accounted for.
    fn shown(&self, view: &ScheduleView) -> Result<(), String> {
        if self.paused.contains(&view.name) {
            return Ok(());
        }
        let Ok(calendar) = Calendar::new(&view.schedule.when) else { return Ok(()) };
        let due = calendar.backwards(view.since_ms, view.through_ms).take(COUNTED).count() as u64;
        let told = view.fired + view.missed + view.unsure + u64::from(view.pending);
        match due == told || due == COUNTED as u64 {
            true => Ok(()),
            false => Err(format!("{} was due {due} times, of which {told} are accounted for: {view:?}", view.name)),
        }
    }

    fn answered(&mut self, moment: Moment, request: &Request, response: &Response) -> Result<(), String> {
        match (request, response) {
            (Request::Schedule(change), Response::Scheduled { already: false, view: Some(view) })
                if matches!(**change, ScheduleChange::Remove { .. }) =>
            {
                self.removed.entry(view.number).or_insert(moment);
                Ok(())
            }
            (Request::Schedules { .. }, Response::Schedules(views)) => {
                views.iter().try_for_each(|view| self.shown(view))
            }
            _ => Ok(()),
        }
    }
}

// O26, O27
impl Property for Schedules {
    fn name(&self) -> &'static str {
        "schedules"
    }

    fn see(&mut self, history: &History, moment: Moment, happening: &Happening<'_>) -> Result<(), String> {
        match happening {
            Happening::Founded(terms) => self.steady = terms.steady,
            Happening::Steered { request, response, .. } => {
                if let Request::Schedule(change) = request
                    && let ScheduleChange::Pause { name, .. } = &**change
                {
                    self.paused.insert(name.clone());
                }
                return self.answered(moment, request, response);
            }
            Happening::Appended { records, .. } => {
                for record in *records {
                    match record {
                        Record::Facts { items, .. } => {
                            let specs = items.iter().filter_map(|(id, task)| Some((*id, task.spec.as_ref()?)));
                            for (id, spec) in specs {
                                self.learned(moment, id, spec)?;
                            }
                        }
                        Record::Ops { partition: PartitionId::METADATA, after, ops } => {
                            for op in ops {
                                let Op::Schedules(operation) = &**op else { continue };
                                match operation {
                                    Operation::Turns(turns) => {
                                        turns.iter().try_for_each(|turn| self.turned(history, after.epoch, turn))?;
                                    }
                                    Operation::Pause { name, .. } => {
                                        self.paused.insert(name.clone());
                                    }
                                    Operation::Set { .. } | Operation::Remove { .. } => {}
                                }
                            }
                        }
                        _ => {}
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
    use crate::history::Terms;
    use norn_engine::Ticket;
    use norn_model::schedules::Firing;
    use norn_model::task::Task;
    use norn_model::viewstamp::Viewstamp;
    use norn_wire::QueueName;
    use norn_wire::schedule::{CatchUp, Schedule, When};
    use std::sync::Arc;

    fn every_second() -> Arc<Schedule> {
        let when = When::Cron { expression: "* * * * * *".into(), zone: "UTC".into() };
        let (queue, payload, catch_up) = (QueueName::new("q").unwrap(), Vec::new(), CatchUp::All);
        Arc::new(Schedule { when, queue, payload, priority: 0, attempts_max: 0, catch_up })
    }

    fn appended(bench: &mut Bench<Schedules>, records: &[Record]) -> Result<(), String> {
        bench.see(Happening::Appended { node: 0, ticket: Ticket::default(), records })
    }

    fn decided(bench: &mut Bench<Schedules>, operation: Operation) -> Result<(), String> {
        let ops = vec![Arc::new(Op::Schedules(operation))];
        let after = Viewstamp { epoch: 1, length: 0 };
        appended(bench, &[Record::Ops { partition: PartitionId::METADATA, after, ops }])
    }

    fn stored(bench: &mut Bench<Schedules>, ordinal: u32, tick_ms: u64) -> Result<(), String> {
        let firing = Firing { ordinal, tick_ms, minted_ms: tick_ms };
        let task = Task::from_spec(Arc::new(firing.spec("n", &every_second())));
        let items = Arc::new(vec![(firing.id(1), task)]);
        appended(bench, &[Record::Facts { partition: PartitionId(0), items }])
    }

    fn begun() -> Bench<Schedules> {
        let mut bench = Bench::<Schedules>::new();
        bench.see(Happening::Founded(Terms { fencing: true, steady: true, ..Terms::default() })).unwrap();
        let set = Operation::Set { name: "n".into(), number: 1, schedule: every_second(), at_ms: WALL_START_MS };
        decided(&mut bench, set).unwrap();
        bench
    }

    #[test]
    fn a_second_task_for_one_time_and_one_before_its_time_are_refused() {
        let mut bench = begun();
        stored(&mut bench, 0, WALL_START_MS + 1_000).unwrap();
        stored(&mut bench, 0, WALL_START_MS + 1_000).unwrap();
        assert!(stored(&mut bench, 1, WALL_START_MS + 1_000).is_err());
        assert!(stored(&mut bench, 2, WALL_START_MS + 60_000).is_err());
    }

    #[test]
    fn what_is_not_due_must_not_be_decided() {
        let turn = |tick_ms: u64, minted_ms: u64| {
            let (name, through_ms) = ("n".to_owned(), tick_ms);
            let turn = Turn { name, number: 1, through_ms, minted_ms, ticks: vec![tick_ms], ..Turn::default() };
            decided(&mut begun(), Operation::Turns(vec![turn]))
        };
        assert!(turn(WALL_START_MS + 1_000, WALL_START_MS + 1_200).is_ok());
        assert!(turn(WALL_START_MS + 1_500, WALL_START_MS + 1_600).is_err());
        assert!(turn(WALL_START_MS + 2_000, WALL_START_MS + 1_900).is_err());
    }

    #[test]
    fn what_nobody_has_must_not_count_as_enqueued() {
        let ended = |is_stored: bool| {
            let mut bench = begun();
            let tick_ms = WALL_START_MS + 1_000;
            let turn = Turn { name: "n".into(), number: 1, through_ms: tick_ms, minted_ms: tick_ms, ..Turn::default() };
            let due = Turn { ticks: vec![tick_ms], ..turn.clone() };
            decided(&mut bench, Operation::Turns(vec![due])).unwrap();
            if is_stored {
                stored(&mut bench, 0, tick_ms).unwrap();
            }
            decided(&mut bench, Operation::Turns(vec![Turn { first: 1, fired: vec![0], ..turn }]))
        };
        assert!(ended(true).is_ok());
        assert!(ended(false).is_err());
    }

    #[test]
    fn what_was_due_and_is_not_accounted_for_is_refused() {
        let view = |fired: u64, missed: u64| {
            let view = ScheduleView {
                name: "n".into(),
                schedule: every_second(),
                number: 1,
                paused: false,
                since_ms: WALL_START_MS,
                through_ms: WALL_START_MS + 10_000,
                next_ms: Vec::new(),
                pending: 1,
                fired,
                missed,
                unsure: 0,
                last: None,
            };
            let (request, response) = (Request::Schedules { name: None }, Response::Schedules(vec![view]));
            let mut bench = begun();
            let asked = bench.now();
            bench.see(Happening::Steered { request: &request, asked, response: &response })
        };
        assert!(view(6, 3).is_ok());
        assert!(view(6, 2).is_err() && view(6, 4).is_err());
    }
}
