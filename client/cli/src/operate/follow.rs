//! Watches a cluster carry a change out, and reports progress, until it is done or makes no more progress.

use super::super::text::{duration, number};
use super::super::{Failure, Runner, Transport};
use super::survey::Survey;
use super::{ailing, not_yet};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use norn_wire::{NodeId, PartitionId};
use std::time::Duration;
use tokio::time::Instant;

/// Interval of polls.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// Longest poll: after that, a poll of another node is more useful.
const LOOK_TIMEOUT: Duration = Duration::from_secs(5);
/// Least time for a poll, even with a shorter `--timeout`.
const LOOK_TIMEOUT_MIN: Duration = Duration::from_secs(2);
/// Delay of the progress bar, which would only flicker on a short wait.
const PROGRESS_AFTER: Duration = Duration::from_secs(1);
/// Interval of lines without a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(5);
/// Most partitions named in a message.
const NAMED_MAX: usize = 5;

/// Condition to wait for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Goal {
    /// The cluster matches its layout.
    Settled,
    /// Exactly these nodes hold a partition.
    Held(PartitionId, Vec<NodeId>),
}

impl Goal {
    fn is_reached(&self, survey: &Survey) -> bool {
        match self {
            Goal::Settled => survey.is_settled(),
            Goal::Held(partition, nodes) => survey.partition(*partition).is_some_and(|view| {
                let same = view.cohort.len() == nodes.len() && nodes.iter().all(|node| view.cohort.contains(node));
                same && !survey.is_under_way(view)
            }),
        }
    }
}

/// Values that change with progress.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mark {
    version: u64,
    stale: bool,
    open: u64,
    unknown: u32,
    moving: Vec<PartitionId>,
}

impl Mark {
    fn of(survey: &Survey) -> Mark {
        let view = &survey.view;
        let (version, stale, unknown) = (view.roster.version, view.stale, view.unknown);
        Mark { version, stale, open: survey.open(), unknown, moving: view.moving.clone() }
    }
}

/// Returns the time limit of a poll, for this longest time without progress.
pub fn look_timeout(patience: Duration) -> Duration {
    patience.clamp(LOOK_TIMEOUT_MIN, LOOK_TIMEOUT)
}

/// Watches a change until it is carried out.
pub struct Follower {
    goal: Goal,
    /// Version of the change: older views of the cluster are ignored.
    version: u64,
    patience: Duration,
    started: Instant,
    /// Time of the last progress, and the state since then.
    advanced: Instant,
    last: Option<(Mark, Survey)>,
    meter: Meter,
}

impl Follower {
    /// Creates a follower that stops after `patience` without progress.
    pub fn new(goal: Goal, version: u64, patience: Duration, shows: bool) -> Follower {
        let now = Instant::now();
        Follower { goal, version, patience, started: now, advanced: now, last: None, meter: Meter::new(shows) }
    }

    /// Returns the time since the beginning.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Waits for the goal; returns the state of the cluster at that time. Ctrl-C ends the wait, and the cluster goes on.
    pub async fn finish<T: Transport>(&mut self, runner: &mut Runner<T>) -> Result<Survey, Failure> {
        let interrupt = runner.interrupt.clone();
        let ended = interrupt.before(self.go(runner)).await;
        self.meter.bar.finish_and_clear();
        match ended {
            Some(ended) => ended,
            None => {
                runner.output.leave_line_of_notes()?;
                Err(self.interrupted())
            }
        }
    }

    async fn go<T: Transport>(&mut self, runner: &mut Runner<T>) -> Result<Survey, Failure> {
        let look_timeout = look_timeout(self.patience);
        loop {
            match Survey::take(runner, Some(look_timeout)).await {
                // A former leader of the metadata group may not know of the change yet.
                Ok(survey) if survey.view.roster.version < self.version => {}
                Ok(survey) if self.goal.is_reached(&survey) => return Ok(survey),
                Ok(survey) => self.take_in(survey, runner)?,
                Err(Failure::Call(error)) if error.passes() => {}
                Err(failure) => return Err(failure),
            }
            if self.advanced.elapsed() >= self.patience {
                let ailing = ailing::reasons(runner, look_timeout).await;
                return Err(not_yet(self.late(ailing)));
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }

    fn take_in<T: Transport>(&mut self, survey: Survey, runner: &mut Runner<T>) -> Result<(), Failure> {
        let mark = Mark::of(&survey);
        if self.last.as_ref().is_none_or(|(last, _)| *last != mark) {
            self.advanced = Instant::now();
        }
        self.meter.show(&survey, self.started.elapsed(), runner)?;
        self.last = Some((mark, survey));
        Ok(())
    }

    fn left(&self) -> String {
        match &self.last {
            Some((mark, _)) => format!("{} to go", number(mark.open, "partition")),
            None => "the cluster has not said how far it is".to_owned(),
        }
    }

    /// Explains missing progress. Members with problems come first, since they may be why other things are open.
    fn late(&self, ailing: Vec<String>) -> String {
        let (left, patience) = (self.left(), duration(self.patience.as_millis() as u64));
        let mut reasons = ailing;
        match &self.last {
            Some((_, survey)) => reasons.extend(why(survey)),
            None => reasons.push("the root has no leader that can be reached".to_owned()),
        }
        if reasons.is_empty() {
            reasons.push("nothing that can be seen from here stands against it".to_owned());
        }
        let reasons = reasons.join("; ");
        format!(
            "{left}, and nothing has come on for {patience}: {reasons}. The cluster goes on by itself as soon as it can; the \
             same command looks on"
        )
    }

    fn interrupted(&self) -> Failure {
        let left = self.left();
        not_yet(format!("interrupted, {left}: the cluster goes on by itself, and the same command looks on"))
    }
}

/// Returns why something is open, as far as it is visible.
fn why(survey: &Survey) -> Vec<String> {
    let view = &survey.view;
    let mut reasons = Vec::new();
    if view.stale {
        reasons.push("the layout is not planned yet".to_owned());
    }
    if view.unknown > 0 {
        let unknown = number(u64::from(view.unknown), "partition");
        reasons.push(format!("the root does not know yet who holds {unknown}"));
    }
    for (number, member) in &view.roster.members {
        let comes = view.shares.get(number).map_or(0, |share| share.come);
        if comes > 0 && !survey.is_alive(member.node) {
            let name = survey.name(member.node);
            reasons.push(format!("{name} is silent and shall take {comes}: start it, or replace or remove it"));
        }
    }
    let mut more = Vec::new();
    for partition in &survey.partitions {
        let id = partition.partition;
        let leavers: Vec<NodeId> = survey.leavers(partition).collect();
        if partition.leader.is_none() {
            more.push(format!("partition {id} has no leader: a majority of its nodes must run"));
        } else if !partition.next.is_empty() {
            more.push(format!("partition {id} moves to {}", survey.names(&partition.next)));
        } else if !leavers.is_empty() {
            more.push(format!("{} has not handed over partition {id}", survey.names(&leavers)));
        }
    }
    let count = more.len();
    reasons.extend(more.into_iter().take(NAMED_MAX));
    if count > NAMED_MAX {
        reasons.push(format!("and {} more", count - NAMED_MAX));
    }
    reasons
}

/// Progress display: a bar on a terminal, otherwise a line now and then.
struct Meter {
    bar: ProgressBar,
    /// Whether there is a terminal and the bar is not shown yet.
    hidden: bool,
    /// Whether there is no terminal.
    lines: bool,
    told: Duration,
    /// Largest number of partitions that were open at once.
    most: u64,
}

impl Meter {
    fn new(shows: bool) -> Meter {
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos} of {len}  {msg}  {elapsed}, {eta} to go") {
            bar.set_style(style);
        }
        Meter { bar, hidden: shows, lines: !shows, told: Duration::ZERO, most: 0 }
    }

    fn show<T: Transport>(
        &mut self,
        survey: &Survey,
        elapsed: Duration,
        runner: &mut Runner<T>,
    ) -> Result<(), Failure> {
        let open = survey.open();
        self.most = self.most.max(open);
        let message = message(survey);
        if self.hidden && elapsed > PROGRESS_AFTER {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
            self.hidden = false;
        }
        self.bar.set_length(self.most);
        self.bar.set_position(self.most - open);
        self.bar.set_message(message.clone());
        if self.lines && elapsed >= self.told + LINE_INTERVAL {
            self.told = elapsed;
            runner.output.note(&format!(
                "{} of {} moved, {message}",
                self.most - open,
                number(self.most, "partition")
            ))?;
        }
        Ok(())
    }
}

fn message(survey: &Survey) -> String {
    let view = &survey.view;
    if view.stale {
        return "planning the layout".to_owned();
    }
    let mut message = match view.moving[..] {
        [] => "none moves".to_owned(),
        _ => {
            let moving: Vec<String> = view.moving.iter().take(NAMED_MAX).map(PartitionId::to_string).collect();
            let more = view.moving.len().saturating_sub(NAMED_MAX);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("moving {}{more}", moving.join(" "))
        }
    };
    let leaving = survey.partitions.iter().filter(|partition| survey.leavers(partition).next().is_some()).count();
    if leaving > 0 {
        message += &format!(", {leaving} to be left");
    }
    if view.unknown > 0 {
        message += &format!(", {} not known", view.unknown);
    }
    message
}
