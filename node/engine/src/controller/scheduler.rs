//! Cron driver at the metadata leader: decides what is due, enqueues it, and records that it was enqueued.
//!
//! `schedules/mod.rs` has the argument why a due time makes one task, whichever node leads. This file decides when: a leader
//! checks at the instant at which the next schedule is due, by its wall clock. A node whose clock is known to be wrong leads
//! nothing. A decision is enqueued once it is committed, so that no later leader decides otherwise; its success is recorded once
//! a majority has the task.

use crate::Node;
use crate::context::timers::Key;
use crate::effect::Observation;
use crate::write_read::coordinate::Writer;
use norn_model::claim_table::table::Op;
use norn_model::config::mutant;
use norn_model::consensus::{Asked, Waiting};
use norn_model::limits::SCHEDULE_PENDING_MAX;
use norn_model::schedules::{Firing, Operation, SHOWN, Schedules, Standing, Turn, unknown};
use norn_model::task::Task;
use norn_model::viewstamp::Epoch;
use norn_wire::error::{Error, ErrorCode};
use norn_wire::response::Acked;
use norn_wire::schedule::{ScheduleChange, ScheduleView};
use norn_wire::{Acks, PartitionId, Response, TaskId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Longest time between two checks, because wall clocks may be set.
const LOOK_MS: u64 = 1_000;
/// Delay before enqueued tasks are recorded: many schedules are due at the same time.
const SOON_MS: u64 = 5;
/// First pause before a failed enqueue is tried again; doubles each time.
const PAUSE_MS: u64 = 100;
/// Longest such pause.
const PAUSE_MS_MAX: u64 = 5_000;
/// Schedules in one operation.
const TURNS_MAX: usize = 64;

/// Scheduled run, by the number of its schedule and its ordinal.
pub type FiringId = (u32, u32);

/// Enqueue of a scheduled run.
#[derive(Debug)]
struct Attempt {
    /// Name of the schedule.
    name: String,
    /// When the run was due.
    tick_ms: u64,
    /// Its write is under way.
    writing: bool,
    /// Earliest time of the next try.
    again_us: u64,
    /// Pause after the next failed try.
    pause_ms: u64,
    /// Outcome, not recorded yet.
    ended: Option<End>,
}

impl Attempt {
    fn may_begin(&self, now_us: u64) -> bool {
        !self.writing && self.ended.is_none() && self.again_us <= now_us
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// A majority has the task.
    Fired,
    /// The task may be a forgotten one.
    Unsure,
}

/// Metadata leader's state of the schedules beside its table.
#[derive(Debug, Default)]
pub struct Scheduler {
    /// Epoch of the leadership that this state belongs to.
    epoch: Option<Epoch>,
    /// Next check of each schedule.
    due: BTreeSet<(u64, String)>,
    by_name: BTreeMap<String, u64>,
    /// Schedules with tasks that are being enqueued.
    busy: BTreeSet<String>,
    attempts: BTreeMap<FiringId, Attempt>,
}

impl Scheduler {
    /// Updates the plan for a schedule that was changed, removed or advanced.
    fn plan(&mut self, name: &str, standing: Option<&Standing>) {
        if let Some(before) = self.by_name.remove(name) {
            self.due.remove(&(before, name.to_owned()));
        }
        if let Some(next_ms) = standing.and_then(Standing::next_ms) {
            self.by_name.insert(name.to_owned(), next_ms);
            self.due.insert((next_ms, name.to_owned()));
        }
        match standing.is_some_and(|standing| !standing.pending.is_empty()) {
            true => self.busy.insert(name.to_owned()),
            false => self.busy.remove(name),
        };
        assert_eq!(self.due.len(), self.by_name.len());
    }
}

impl Node {
    fn led_schedules(&self) -> Option<&Schedules> {
        let replica = self.partitions.get(&PartitionId::METADATA).filter(|_| self.may_append(PartitionId::METADATA))?;
        replica.consensus.table.schedules.as_deref()
    }

    /// Validates a requested change of a schedule.
    pub(crate) fn judge_schedule(&self, change: &ScheduleChange) -> Result<Option<Operation>, Error> {
        let none = Schedules::default();
        self.led_schedules().unwrap_or(&none).admit(change, self.now.wall_ms)
    }

    /// Returns the answer to a requested change, with the schedule after it, or before its removal.
    pub(crate) fn answer_to_schedule(&self, change: &ScheduleChange, operation: Option<&Operation>) -> Response {
        let mut after = self.led_schedules().cloned().unwrap_or_default();
        if let Some(operation) = operation.filter(|operation| !matches!(operation, Operation::Remove { .. })) {
            after.apply(operation).expect("what is admitted fits");
        }
        let view = after.view(change.name(), self.now.wall_ms, SHOWN).map(Box::new);
        Response::Scheduled { already: operation.is_none(), view }
    }

    /// Returns the schedules for display.
    pub(crate) fn schedule_views(&self, name: Option<&str>) -> Response {
        let none = Schedules::default();
        let schedules = self.led_schedules().unwrap_or(&none);
        let view = |name: &str, shown: usize| schedules.view(name, self.now.wall_ms, shown);
        match name {
            Some(name) => match view(name, SHOWN) {
                Some(view) => Response::Schedules(vec![view]),
                None => Response::Error(unknown(name)),
            },
            None => {
                let views: Vec<ScheduleView> = schedules.entries().keys().filter_map(|name| view(name, 1)).collect();
                Response::Schedules(views)
            }
        }
    }

    /// Appends a change of schedules; its requester gets the answer once it is committed.
    pub(crate) fn append_schedules(&mut self, operation: Operation, answer: Option<Box<Asked>>) {
        let names: Vec<String> = operation.names().into_iter().map(str::to_owned).collect();
        // The roster does not change.
        let roster = self.roster.clone();
        self.append(PartitionId::METADATA, Op::Schedules(operation), Some(Waiting::Metadata { roster, answer }));
        let Some(schedules) = self.partitions[&PartitionId::METADATA].consensus.table.schedules.as_deref() else {
            return;
        };
        for name in names {
            self.controller.scheduler.plan(&name, schedules.entries().get(&name));
        }
        self.timers.set_if_none(Key::Schedules, self.after_ms(SOON_MS));
    }

    /// Arms the timer at a metadata leader that may have something to do about schedules.
    pub(crate) fn schedules_soon(&mut self) {
        if self.led_schedules().is_some() {
            self.timers.set_earliest(Key::Schedules, self.now.mono_us);
        }
    }

    /// Arms the timer at a metadata leader that has not checked its schedules yet.
    pub(crate) fn begin_schedules(&mut self) {
        if self.led_schedules().is_some() {
            self.timers.set_if_none(Key::Schedules, self.now.mono_us);
        }
    }

    /// Advances the schedules, if this node leads the metadata group.
    pub(crate) fn see_to_schedules(&mut self) {
        let Some(schedules) = self.led_schedules() else {
            self.controller.scheduler = Scheduler::default();
            return;
        };
        let consensus = &self.partitions[&PartitionId::METADATA].consensus;
        let (epoch, settled) = (consensus.viewstamp.epoch, consensus.viewstamp.length == consensus.commit);
        if self.controller.scheduler.epoch != Some(epoch) {
            let mut scheduler = Scheduler { epoch: Some(epoch), ..Scheduler::default() };
            schedules.entries().iter().for_each(|(name, standing)| scheduler.plan(name, Some(standing)));
            self.controller.scheduler = scheduler;
        }
        // Decisions that are not committed may still be undone.
        if settled {
            self.drop_stale_attempts();
            self.enqueue_pending();
            self.take_turns();
        }
        self.arm_schedules();
    }

    /// Drops attempts of schedules that were removed or replaced, and of runs already recorded.
    fn drop_stale_attempts(&mut self) {
        let Some(replica) = self.partitions.get(&PartitionId::METADATA) else { return };
        let Some(schedules) = replica.consensus.table.schedules.as_deref() else { return };
        self.controller.scheduler.attempts.retain(|(number, ordinal), attempt| {
            let standing = schedules.entries().get(&attempt.name).filter(|standing| standing.number == *number);
            standing.is_some_and(|standing| standing.pending.iter().any(|firing| firing.ordinal == *ordinal))
        });
    }

    /// Begins to enqueue decided and committed runs.
    fn enqueue_pending(&mut self) {
        let now_us = self.now.mono_us;
        let Some(schedules) = self.led_schedules() else { return };
        let mut items = Vec::new();
        for (name, standing) in
            self.controller.scheduler.busy.iter().filter_map(|name| schedules.entries().get_key_value(name))
        {
            for firing in &standing.pending {
                let firing_id = (standing.number, firing.ordinal);
                if self.controller.scheduler.attempts.get(&firing_id).is_none_or(|attempt| attempt.may_begin(now_us)) {
                    let spec = firing.spec(name, &standing.schedule);
                    items.push((name.clone(), firing_id, *firing, Task::from_spec(Arc::new(spec))));
                }
            }
        }
        for (name, firing_id, firing, task) in items {
            let early = mutant!(self.config, ScheduleMarkedEarly).then_some(End::Fired);
            let attempt = self.controller.scheduler.attempts.entry(firing_id).or_insert(Attempt {
                name,
                tick_ms: firing.tick_ms,
                writing: true,
                again_us: 0,
                pause_ms: PAUSE_MS,
                ended: early,
            });
            attempt.writing = true;
            let drawn = mutant!(self.config, ScheduleIdDrawn);
            let firing = if drawn { Firing { minted_ms: self.now.wall_ms, ..firing } } else { firing };
            let item = (firing.id(firing_id.0), task);
            self.write_for(Writer::Schedule(firing_id), vec![item], (Acks::Quorum, false));
        }
    }

    /// Takes in the result of the enqueue of a scheduled task.
    pub(crate) fn schedule_written(&mut self, firing: FiringId, id: TaskId, result: Result<Acked, Error>) {
        let (now_us, wall_ms) = (self.now.mono_us, self.now.wall_ms);
        let Some(attempt) = self.controller.scheduler.attempts.get_mut(&firing) else { return };
        attempt.writing = false;
        let mut next_us = self.now.mono_after_ms(SOON_MS);
        match result.map_err(|error| error.code) {
            Ok(_) => {
                attempt.ended = Some(End::Fired);
                let late_ms = wall_ms.saturating_sub(attempt.tick_ms);
                self.outbox.observe(Observation::ScheduleFired { id, late_ms });
            }
            // It can never be enqueued under this id.
            Err(ErrorCode::TooOld | ErrorCode::Conflict) => {
                attempt.ended = Some(End::Unsure);
                self.outbox.observe(Observation::ScheduleUnsure { id });
            }
            Err(_) => {
                attempt.again_us = now_us.saturating_add(attempt.pause_ms * 1_000);
                attempt.pause_ms = (attempt.pause_ms * 2).min(PAUSE_MS_MAX);
                assert!(attempt.again_us >= now_us, "a failed run is tried again in the past");
                next_us = attempt.again_us;
            }
        }
        self.timers.set_earliest(Key::Schedules, next_us);
    }

    /// Records enqueued runs, and decides the next ones.
    fn take_turns(&mut self) {
        let now_ms = self.now.wall_ms;
        let Some(schedules) = self.led_schedules() else { return };
        let mut turns: BTreeMap<&str, Turn> = BTreeMap::new();
        let mut pending: usize = 0;
        for name in &self.controller.scheduler.busy {
            pending += schedules.entries().get(name).map_or(0, |standing| standing.pending.len());
        }
        for ((_, ordinal), attempt) in &self.controller.scheduler.attempts {
            let Some((end, standing)) = attempt.ended.zip(schedules.entries().get(&attempt.name)) else { continue };
            let turn = turns.entry(&attempt.name).or_insert_with(|| Turn::of(&attempt.name, standing));
            match end {
                End::Fired => turn.fired.push(*ordinal),
                End::Unsure => turn.unsure.push(*ordinal),
            }
        }
        let mut missed = 0;
        let mut over = None;
        let due = self.controller.scheduler.due.iter().take_while(|(at_ms, _)| *at_ms <= now_ms).take(TURNS_MAX);
        for (_, name) in due {
            let Some(standing) = schedules.entries().get(name) else { continue };
            if standing.is_over(now_ms) {
                over = Some(name.clone());
                continue;
            }
            let mut turn = turns.remove(name.as_str()).unwrap_or_else(|| Turn::of(name, standing));
            standing.decide(&mut turn, now_ms, SCHEDULE_PENDING_MAX.saturating_sub(pending));
            pending += turn.ticks.len();
            missed += turn.missed;
            if !turn.is_empty() {
                turns.insert(name, turn);
            }
        }
        let turns: Vec<Turn> = turns.into_values().collect();
        if missed > 0 {
            self.outbox.observe(Observation::ScheduleMissed { ticks: missed });
        }
        if !turns.is_empty() {
            self.append_schedules(Operation::Turns(turns), None);
        } else if let Some(name) = over {
            self.append_schedules(Operation::Remove { name }, None);
        }
    }

    /// Arms the timer for the next due schedule, or the next retry.
    fn arm_schedules(&mut self) {
        if self.led_schedules().is_none_or(|schedules| schedules.entries().is_empty()) {
            return;
        }
        let now_ms = self.now.wall_ms;
        // Due runs that are not decided wait for those under way.
        let next = self.controller.scheduler.due.range((now_ms + 1, String::new())..).next();
        let due_ms = next.map_or(LOOK_MS, |(at_ms, _)| (at_ms - now_ms).clamp(1, LOOK_MS));
        let open =
            self.controller.scheduler.attempts.values().filter(|attempt| !attempt.writing && attempt.ended.is_none());
        let again_us = open.map(|attempt| attempt.again_us).min().unwrap_or(u64::MAX);
        self.timers.set_earliest(Key::Schedules, self.after_ms(due_ms).min(again_us.max(self.after_ms(SOON_MS))));
    }
}
