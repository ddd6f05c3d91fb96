//! Schedules that the operator sets, removes and pauses, and how they end: once everything is healed all of them catch up, and are
//! removed then, so that a run has an end.

use crate::clock::WALL_START_MS;
use crate::workload::numbered_queue;
use crate::world::{Event, Phase, World};
use norn_model::schedules::Calendar;
use norn_wire::ErrorCode;
use norn_wire::request::Request;
use norn_wire::response::Response;
use norn_wire::schedule::{CatchUp, Schedule, ScheduleChange, ScheduleView, When};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Number of different schedules.
const NAMES: u64 = 3;
/// Interval between repeated requests.
const INTERVAL_US: u64 = 700_000;
/// How long schedules go on after healing.
const STAND_US: u64 = 4_000_000;
/// How late a schedule may be that has caught up.
const LATE_MS: u64 = 2_000;

/// Progress of the end of the schedules.
#[derive(Debug, Default, PartialEq, Eq)]
pub enum Ending {
    /// They go on, or there are none.
    #[default]
    None,
    /// They have not caught up yet.
    Open(String),
    /// These are still to be removed.
    Removed(BTreeSet<String>),
}

fn is_removal(change: &ScheduleChange) -> bool {
    matches!(change, ScheduleChange::Remove { .. })
}

fn name(number: u64) -> String {
    format!("schedule-{number}")
}

impl World {
    /// Asks a node to set, remove or pause a schedule.
    pub fn change_schedule(&mut self, node: usize) {
        if self.operator.genesis.is_none() {
            return;
        }
        let (queues, now_ms) = (self.options.queues, WALL_START_MS + self.now_us / 1_000);
        let random = &mut self.randoms.schedules;
        let name = name(random.below(NAMES));
        let change = match random.below(8) {
            0 => ScheduleChange::Remove { name },
            1 => ScheduleChange::Pause { name, paused: true },
            2 => ScheduleChange::Pause { name, paused: false },
            kind => {
                let expression = ["* * * * * *", "*/2 * * * * *", "*/3 * * * * *"][random.below(3) as usize].to_owned();
                let cron = When::Cron { expression, zone: "Europe/Berlin".to_owned() };
                let when = if kind == 3 { When::At(now_ms + random.between(0, 5_000)) } else { cron };
                let queue = numbered_queue(random.below(queues));
                let payload = vec![random.below(256) as u8; random.below(20) as usize];
                let (priority, catch_up) = (random.below(5) as i32, CatchUp::ALL[random.below(3) as usize]);
                let schedule = Schedule { when, queue, payload, priority, attempts_max: 0, catch_up };
                ScheduleChange::Set { name, schedule: Arc::new(schedule) }
            }
        };
        self.count("sometimes: a schedule is to change");
        self.ask_about_cluster(node, Request::Schedule(Box::new(change)));
        self.ask_about_cluster((node + 1) % self.nodes.len(), Request::Schedules { name: None });
    }

    /// Begins the end of the schedules once everything is healed: those that exist catch up.
    pub fn end_schedules(&mut self) {
        if self.options.schedule_mean_ms > 0 && self.operator.genesis.is_some() {
            self.operator.schedules = Ending::Open("nobody has told how they are".into());
            self.schedule_in(STAND_US, Event::EndSchedules { turn: 0 });
        }
    }

    /// Asks how the schedules are, or removes those that are left.
    pub fn ask_for_schedules(&mut self, turn: usize) {
        let node = turn % self.nodes.len();
        match &self.operator.schedules {
            Ending::None if self.owes_the_operator().is_none() => return,
            Ending::None => {}
            Ending::Open(_) => self.ask_about_cluster(node, Request::Schedules { name: None }),
            Ending::Removed(names) => {
                for name in names.clone() {
                    let change = ScheduleChange::Remove { name };
                    self.ask_about_cluster(node, Request::Schedule(Box::new(change)));
                }
            }
        }
        self.schedule_in(INTERVAL_US, Event::EndSchedules { turn: turn + 1 });
    }

    /// Why the end of the schedules has not come yet.
    pub fn schedules_left(&self) -> Option<String> {
        match &self.operator.schedules {
            Ending::None => self.owes_the_operator().map(|node| format!("node {node} owes the operator an answer")),
            Ending::Open(why) => Some(format!("schedules have not caught up: {why}")),
            Ending::Removed(names) => Some(format!("schedules {names:?} are not removed")),
        }
    }

    /// A running node that has not answered all requests: a schedule may still come into being.
    fn owes_the_operator(&self) -> Option<usize> {
        let lives = |node: usize, boot: u64| self.nodes[node].running.is_some() && self.nodes[node].boot == boot;
        let owed = self.operator.asked.iter().find(|((node, _), (_, boot))| lives(*node, *boot));
        owed.map(|((node, _), _)| *node).filter(|_| self.options.schedule_mean_ms > 0)
    }

    /// Notes that a schedule fires. If the node at which it was set crashed before it could answer, the schedule may have come into
    /// being after the others were removed.
    pub(crate) fn schedule_fires(&mut self) {
        let healed = matches!(self.phase, Phase::Healed { .. });
        if healed && matches!(self.operator.schedules, Ending::None) {
            let asks = self.owes_the_operator().is_some();
            self.operator.schedules = Ending::Open("one fires that was thought to be removed".into());
            if !asks {
                self.schedule_in(INTERVAL_US, Event::EndSchedules { turn: 0 });
            }
        }
    }

    /// Handles the answer to a call about schedules.
    pub(crate) fn schedules_answer(&mut self, request: &Request, response: &Response) {
        match (request, response, &mut self.operator.schedules) {
            (Request::Schedule(change), Response::Scheduled { .. }, Ending::Removed(names)) if is_removal(change) => {
                names.remove(change.name());
                if names.is_empty() {
                    self.operator.schedules = Ending::None;
                }
            }
            (Request::Schedule(_), Response::Scheduled { .. }, ending) => {
                if matches!(self.phase, Phase::Healed { .. }) {
                    *ending = Ending::Open("one was changed late".into());
                }
                self.count("sometimes: a schedule was changed");
            }
            (Request::Schedules { name: None }, Response::Schedules(views), Ending::Open(_)) => {
                // An earlier question may be answered late.
                let Phase::Healed { since_us } = self.phase else { return };
                if self.now_us < since_us + STAND_US {
                    return;
                }
                self.count("sometimes: schedules stood when all was healed");
                let lags = views.iter().find_map(|view| self.lag(view));
                let names: BTreeSet<String> = views.iter().map(|view| view.name.clone()).collect();
                self.operator.schedules = match lags {
                    Some(lag) => Ending::Open(lag),
                    None if names.is_empty() => Ending::None,
                    None => Ending::Removed(names),
                };
            }
            (Request::Schedule(_), Response::Error(error), _) if error.code == ErrorCode::Invalid => {
                self.count("sometimes: a schedule is refused");
            }
            _ => {}
        }
    }

    /// How a schedule lags, if it does.
    fn lag(&self, view: &ScheduleView) -> Option<String> {
        if view.pending > 0 {
            return Some(format!("{} has {} tasks pending", view.name, view.pending));
        }
        let calendar = Calendar::new(&view.schedule.when).ok().filter(|_| !view.paused)?;
        let walls = self.nodes.iter().map(|process| process.wall.read_ms(self.now_us));
        let due_ms = calendar.until(walls.min()?.saturating_sub(LATE_MS)).filter(|due_ms| *due_ms > view.through_ms)?;
        Some(format!("{} was due at {due_ms}, and has come to {}", view.name, view.through_ms))
    }
}
