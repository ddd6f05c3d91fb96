//! Schedules: tasks that the cluster enqueues by itself. Pure.
//!
//! Schedules are part of the metadata group's table, changed by [`Operation`]s alone. A firing takes two of these:
//!
//! 1. **Mint.** The leader of the metadata group decides which times are due, and which were missed. [`Turn::ticks`] names them, and the
//!    instant of their tasks' ids. So every later leader finds the same [`Firing`]s, and makes the same tasks of them.
//! 2. Once that is committed the tasks are enqueued, with an acknowledgement of a majority; any leader repeats this until the outcome is
//!    known. Under the same id the second time adds no task.
//! 3. **End.** [`Turn::fired`] records that, and they are not enqueued any more.
//!
//! A task that is done and forgotten does not come back: its id is not above the watermark of its partition, where it is refused as too
//! old. Then it was enqueued before, or it could not be enqueued for as long as ids must be old to be forgotten (`forget_after_ms`). The
//! two cases cannot be told apart, so the firing is given up, and counted as unsure. For that reason an id has the time at which it was
//! minted, not the time for which it was due: what is caught up after a long time is not too old.

mod calendar;
#[cfg(test)]
mod tests;
mod zone;

use crate::limits::{
    CATCH_UP_TICKS_MAX, SCHEDULE_GRACE_MS, SCHEDULE_LOOKED_MAX, SCHEDULE_PENDING_EACH_MAX, SCHEDULE_PENDING_MAX,
    SCHEDULES_BYTES_MAX, SCHEDULES_MAX,
};
pub use calendar::{Calendar, INSTANT_MS_MAX};
use norn_wire::error::{Error, ErrorCode};
use norn_wire::ids::TAG_BITS;
use norn_wire::schedule::{CatchUp, Fired, SCHEDULE_HEADER, Schedule, ScheduleChange, ScheduleView, TICK_HEADER, When};
use norn_wire::{Spec, TaskId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

/// The number of no member: minters of schedules' ids have it, and those of sessions never do.
const NOBODY: u64 = u16::MAX as u64;
/// Bits of the minter that hold the ordinal of a firing.
const FIRING_BITS: u32 = 24;
/// Number of coming times shown for a schedule.
pub const SHOWN: usize = 5;
/// How long a schedule for a single time is kept after that, for people to see.
const KEPT_MS: u64 = 86_400_000;
/// Approximate bytes of a schedule besides its texts and its data.
const SCHEDULE_BYTES: usize = 256;

/// A time of a schedule for which a task is, or was, enqueued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Firing {
    /// From 0, in each schedule.
    pub ordinal: u32,
    /// Time at which it was due.
    pub tick_ms: u64,
    /// Time of the decision, by the clock of the leader of that time.
    pub minted_ms: u64,
}

impl Firing {
    /// The id of its task: unique for each firing of each schedule that was ever set, and the same at every leader.
    pub fn id(&self, number: u32) -> TaskId {
        let minter = NOBODY << FIRING_BITS | u64::from(self.ordinal) & ((1 << FIRING_BITS) - 1);
        let seed = u64::from(number) << 32 | u64::from(self.ordinal);
        let tag = xxh3_64(&seed.to_be_bytes()) as u32 & ((1 << TAG_BITS) - 1);
        TaskId::new(self.minted_ms, number, minter, tag)
    }

    /// The spec of its task.
    pub fn spec(&self, name: &str, schedule: &Schedule) -> Spec {
        let headers = [(SCHEDULE_HEADER, name.to_owned()), (TICK_HEADER, self.tick_ms.to_string())];
        Spec {
            priority: schedule.priority,
            headers: headers.map(|(header, value)| (header.to_owned(), value)).to_vec(),
            attempts_max: schedule.attempts_max,
            ..Spec::new(schedule.queue.clone(), schedule.payload.clone())
        }
    }
}

/// A schedule and its progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// The schedule as it was set.
    pub schedule: Arc<Schedule>,
    /// Its number among all that were ever set, from 1: another schedule under the same name has another number.
    pub number: u32,
    /// Time at which it was set.
    pub since_ms: u64,
    /// Whether it is paused.
    pub paused: bool,
    /// All that was due up to this time is decided.
    pub through_ms: u64,
    /// Firings being enqueued, in order.
    pub pending: Vec<Firing>,
    /// Ordinal of the next firing.
    pub ordinal: u32,
    /// Number of firings enqueued.
    pub fired: u64,
    /// Number of times passed over.
    pub missed: u64,
    /// Number of firings of which it is not known whether they were enqueued.
    pub unsure: u64,
    /// The latest firing that was enqueued.
    pub last: Option<Firing>,
}

/// The decisions about a schedule at one time.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Turn {
    /// Name of the schedule.
    pub name: String,
    /// Number of the schedule.
    pub number: u32,
    /// All that was due up to this time is decided.
    pub through_ms: u64,
    /// The times for which tasks are to be enqueued.
    pub ticks: Vec<u64>,
    /// Ordinal of the first of them.
    pub first: u32,
    /// Time in their ids.
    pub minted_ms: u64,
    /// Number of times passed over.
    pub missed: u64,
    /// Ordinals of firings that are enqueued.
    pub fired: Vec<u32>,
    /// Ordinals of firings with unknown outcome.
    pub unsure: Vec<u32>,
}

impl Turn {
    /// A turn without decisions.
    pub fn of(name: &str, standing: &Standing) -> Turn {
        let (number, through_ms, first) = (standing.number, standing.through_ms, standing.ordinal);
        Turn { name: name.to_owned(), number, through_ms, first, ..Turn::default() }
    }

    /// Whether nothing is decided.
    pub fn is_empty(&self) -> bool {
        self.ticks.is_empty() && self.missed == 0 && self.fired.is_empty() && self.unsure.is_empty()
    }

    fn size_bytes(&self) -> usize {
        self.name.len() + SCHEDULE_BYTES + 9 * self.ticks.len() + 5 * (self.fired.len() + self.unsure.len())
    }

    /// The firings to enqueue.
    pub fn firings(&self) -> impl Iterator<Item = Firing> {
        let ordinals = (0..).map(|place| self.first.wrapping_add(place));
        let minted_ms = self.minted_ms;
        self.ticks.iter().zip(ordinals).map(move |(tick_ms, ordinal)| Firing { ordinal, tick_ms: *tick_ms, minted_ms })
    }
}

/// A change of the schedules, decided by the leader of the metadata group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Operation {
    /// Sets a schedule, or replaces one.
    #[serde(rename = "S")]
    Set { name: String, number: u32, schedule: Arc<Schedule>, at_ms: u64 },
    /// Removes a schedule.
    #[serde(rename = "R")]
    Remove { name: String },
    /// Pauses a schedule, or resumes it.
    #[serde(rename = "P")]
    Pause { name: String, paused: bool, at_ms: u64 },
    /// Records the decisions about schedules that are due or have fired.
    #[serde(rename = "T")]
    Turns(Vec<Turn>),
}

impl Operation {
    /// Schedules that it changes.
    pub fn names(&self) -> BTreeSet<&str> {
        match self {
            Operation::Set { name, .. } | Operation::Remove { name } | Operation::Pause { name, .. } => {
                BTreeSet::from([name.as_str()])
            }
            Operation::Turns(turns) => turns.iter().map(|turn| turn.name.as_str()).collect(),
        }
    }

    /// Bytes of what it carries, for budgets.
    pub fn size_bytes(&self) -> usize {
        match self {
            Operation::Set { name, schedule, .. } => name.len() + size_of(schedule),
            Operation::Remove { name } | Operation::Pause { name, .. } => name.len() + SCHEDULE_BYTES,
            Operation::Turns(turns) => turns.iter().map(Turn::size_bytes).sum(),
        }
    }
}

fn size_of(schedule: &Schedule) -> usize {
    let when = match &schedule.when {
        When::Cron { expression, zone } => expression.len() + zone.len(),
        When::At(_) => 0,
    };
    SCHEDULE_BYTES + schedule.payload.len() + schedule.queue.as_str().len() + when
}

/// All schedules of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Schedules {
    /// Number of schedules ever set.
    set: u32,
    entries: BTreeMap<String, Standing>,
}

fn fit(fits: bool, what: &'static str) -> Result<(), &'static str> {
    if fits { Ok(()) } else { Err(what) }
}

impl Schedules {
    /// All schedules, by name.
    pub fn entries(&self) -> &BTreeMap<String, Standing> {
        &self.entries
    }

    /// Number of schedules ever set.
    pub fn ever_set(&self) -> u32 {
        self.set
    }

    fn size_bytes(&self) -> usize {
        self.entries.iter().map(|(name, standing)| name.len() + size_of(&standing.schedule)).sum()
    }

    /// Checks schedules that were read.
    pub fn validate(&self) -> Result<(), &'static str> {
        fit(self.entries.len() <= SCHEDULES_MAX && self.size_bytes() <= SCHEDULES_BYTES_MAX, "too many schedules")?;
        let pending = self.entries.values().map(|standing| standing.pending.len()).sum::<usize>();
        fit(pending <= SCHEDULE_PENDING_MAX, "too many tasks are pending")?;
        let numbers: BTreeSet<u32> = self.entries.values().map(|standing| standing.number).collect();
        fit(numbers.len() == self.entries.len(), "two schedules have one number")?;
        fit(numbers.iter().all(|number| (1..=self.set).contains(number)), "a number was not given")
    }

    /// Checks whether a change is allowed at this time, and returns the operation for it; nothing, if it is in effect already.
    pub fn admit(&self, change: &ScheduleChange, now_ms: u64) -> Result<Option<Operation>, Error> {
        let name = change.name().to_owned();
        match change {
            ScheduleChange::Set { schedule, .. } => self.admit_set(name, schedule, now_ms),
            ScheduleChange::Remove { .. } => Ok(self.entries.contains_key(&name).then_some(Operation::Remove { name })),
            ScheduleChange::Pause { paused, .. } => {
                let standing = self.entries.get(&name).ok_or_else(|| unknown(&name))?;
                let other = standing.paused != *paused;
                Ok(other.then_some(Operation::Pause { name, paused: *paused, at_ms: now_ms }))
            }
        }
    }

    fn admit_set(&self, name: String, schedule: &Arc<Schedule>, now_ms: u64) -> Result<Option<Operation>, Error> {
        let before = self.entries.get(&name);
        if before.is_some_and(|standing| standing.schedule == *schedule) {
            return Ok(None);
        }
        let calendar = Calendar::new(&schedule.when).map_err(Error::invalid)?;
        if calendar.after(now_ms).is_none() {
            return Err(Error::invalid(match &schedule.when {
                When::Cron { expression, .. } => format!("the cron expression {expression:?} is never due any more"),
                When::At(_) => "the time is past by the clock of the cluster".to_owned(),
            }));
        }
        let taken = before.map_or(0, |standing| name.len() + size_of(&standing.schedule));
        assert!(self.size_bytes() >= taken, "one schedule takes more than all together");
        let bytes = self.size_bytes() - taken + name.len() + size_of(schedule);
        let full = before.is_none() && self.entries.len() >= SCHEDULES_MAX;
        let refused = |what: String| Error::new(ErrorCode::Conflict, format!("{what}: remove some, then set it again"));
        if full || self.set == u32::MAX {
            return Err(refused(format!("there are {SCHEDULES_MAX} schedules, which is the most")));
        }
        if bytes > SCHEDULES_BYTES_MAX {
            return Err(refused(format!("all schedules together have {SCHEDULES_BYTES_MAX} bytes at the most")));
        }
        Ok(Some(Operation::Set { name, number: self.set + 1, schedule: schedule.clone(), at_ms: now_ms }))
    }

    /// Applies an operation, or leaves everything as it is; every replica does the same.
    pub fn apply(&mut self, operation: &Operation) -> Result<(), &'static str> {
        match operation {
            Operation::Set { name, number, schedule, at_ms } => {
                fit(self.set.checked_add(1) == Some(*number), "the number is not the next one")?;
                let room = self.entries.contains_key(name) || self.entries.len() < SCHEDULES_MAX;
                fit(room, "there are too many schedules")?;
                self.set = *number;
                self.entries.insert(name.clone(), Standing::new(schedule.clone(), *number, *at_ms));
                assert!(self.entries.len() <= SCHEDULES_MAX, "there are too many schedules");
            }
            Operation::Remove { name } => {
                self.entries.remove(name).ok_or("there is no such schedule")?;
            }
            Operation::Pause { name, paused, at_ms } => {
                let standing = self.entries.get_mut(name).ok_or("there is no such schedule")?;
                standing.paused = *paused;
                standing.through_ms = standing.through_ms.max(*at_ms);
            }
            Operation::Turns(turns) => {
                let mut after = Vec::with_capacity(turns.len());
                for turn in turns {
                    let standing = self.entries.get(&turn.name).filter(|standing| standing.number == turn.number);
                    after.push(standing.ok_or("there is no such schedule")?.turned(turn)?);
                }
                for (turn, standing) in turns.iter().zip(after) {
                    self.entries.insert(turn.name.clone(), standing);
                }
            }
        }
        Ok(())
    }

    /// A schedule as people see it, with up to `shown` of the coming times.
    pub fn view(&self, name: &str, now_ms: u64, shown: usize) -> Option<ScheduleView> {
        let standing = self.entries.get(name)?;
        let calendar = Calendar::new(&standing.schedule.when).ok();
        let from_ms = standing.through_ms.max(now_ms);
        let next = |before: &u64| calendar.as_ref().and_then(|calendar| calendar.after(*before));
        let due = std::iter::successors(next(&from_ms), next);
        Some(ScheduleView {
            name: name.to_owned(),
            schedule: standing.schedule.clone(),
            number: standing.number,
            paused: standing.paused,
            since_ms: standing.since_ms,
            through_ms: standing.through_ms,
            next_ms: if standing.paused { Vec::new() } else { due.take(shown).collect() },
            pending: standing.pending.len() as u32,
            fired: standing.fired,
            missed: standing.missed,
            unsure: standing.unsure,
            last: standing.last.map(|firing| Fired { tick_ms: firing.tick_ms, id: firing.id(standing.number) }),
        })
    }
}

/// The error for a schedule that does not exist.
pub fn unknown(name: &str) -> Error {
    Error::new(ErrorCode::NotFound, format!("there is no schedule {name:?}"))
}

impl Standing {
    fn new(schedule: Arc<Schedule>, number: u32, since_ms: u64) -> Standing {
        Standing {
            schedule,
            number,
            since_ms,
            paused: false,
            through_ms: since_ms,
            pending: Vec::new(),
            ordinal: 0,
            fired: 0,
            missed: 0,
            unsure: 0,
            last: None,
        }
    }

    /// Time of the next decision about it, if any: when it is due or, for a single time, when it may be dropped.
    pub fn next_ms(&self) -> Option<u64> {
        match self.schedule.when {
            _ if self.paused => None,
            When::At(at_ms) if self.through_ms >= at_ms => at_ms.checked_add(KEPT_MS),
            _ => Calendar::new(&self.schedule.when).ok()?.after(self.through_ms),
        }
    }

    /// Whether it was for a single time and has been kept long enough after that.
    pub fn is_over(&self, now_ms: u64) -> bool {
        let long_ago = |at_ms: u64| self.through_ms >= at_ms && now_ms >= at_ms.saturating_add(KEPT_MS);
        self.pending.is_empty() && matches!(self.schedule.when, When::At(at_ms) if long_ago(at_ms))
    }

    /// Decides what is due: which times get tasks, at most `room` of them, and how many were missed.
    pub fn decide(&self, turn: &mut Turn, now_ms: u64, room: usize) {
        let room = room.min(SCHEDULE_PENDING_EACH_MAX.saturating_sub(self.pending.len()));
        let Some(calendar) = Calendar::new(&self.schedule.when).ok().filter(|_| !self.paused && room > 0) else {
            return;
        };
        let mut due: Vec<u64> = calendar.backwards(self.through_ms, now_ms).take(SCHEDULE_LOOKED_MAX).collect();
        due.reverse();
        let Some(latest) = due.last().copied() else { return };
        let kept = match self.schedule.catch_up {
            CatchUp::Skip => due.iter().filter(|tick| tick.saturating_add(SCHEDULE_GRACE_MS) >= now_ms).count(),
            CatchUp::Last => 1,
            CatchUp::All => due.len().min(CATCH_UP_TICKS_MAX),
        };
        assert!(kept <= due.len(), "more times are kept than were due");
        turn.missed = (due.len() - kept) as u64;
        turn.minted_ms = now_ms;
        turn.ticks = due.split_off(due.len() - kept);
        turn.ticks.truncate(room);
        turn.through_ms = turn.ticks.last().copied().unwrap_or(latest);
        assert!(turn.through_ms > self.through_ms, "a schedule goes back");
        assert!(turn.ticks.len() <= room, "more runs are decided than there is room for");
    }

    /// The state after a turn.
    fn turned(&self, turn: &Turn) -> Result<Standing, &'static str> {
        let mut after = self.clone();
        fit(turn.through_ms >= self.through_ms && turn.first == self.ordinal, "a later turn was taken")?;
        let mut before = self.through_ms;
        for tick in &turn.ticks {
            fit(*tick > before && *tick <= turn.through_ms, "a time was decided before")?;
            before = *tick;
        }
        after.through_ms = turn.through_ms;
        after.missed = self.missed.saturating_add(turn.missed);
        for ordinal in &turn.unsure {
            after.take(*ordinal)?;
            after.unsure += 1;
        }
        for ordinal in &turn.fired {
            let firing = after.take(*ordinal)?;
            after.fired += 1;
            after.last = after.last.filter(|last| last.tick_ms >= firing.tick_ms).or(Some(firing));
        }
        after.pending.extend(turn.firings());
        after.ordinal = self.ordinal.wrapping_add(turn.ticks.len() as u32);
        fit(after.pending.len() <= SCHEDULE_PENDING_EACH_MAX, "too many tasks are pending")?;
        Ok(after)
    }

    fn take(&mut self, ordinal: u32) -> Result<Firing, &'static str> {
        let place = self.pending.iter().position(|firing| firing.ordinal == ordinal);
        place.map(|place| self.pending.remove(place)).ok_or("no such task is pending")
    }
}
