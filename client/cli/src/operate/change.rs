//! A requested change: sent to the metadata group, and previewed, or followed until the cluster has carried it out.

use super::super::output::{Output, Style};
use super::super::parse;
use super::super::runner::unexpected;
use super::super::text::{clean, duration, number};
use super::super::{Exit, Failure, Runner, Transport};
use super::follow::{Follower, Goal};
use super::rows;
use clap::Args;
use comfy_table::{Attribute, Cell};
use norn_client::api::ChangeState;
use norn_wire::membership::{Changed, ClusterChange, ClusterView};
use norn_wire::{NodeId, Request, Response};
use std::time::Duration;

/// Default of `--timeout`. With default settings, a leader abandons a step that takes longer than ten minutes, and begins it anew.
const TIMEOUT: Duration = Duration::from_secs(15 * 60);

/// How a change is carried out.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct CourseArguments {
    /// Show what would come to and go from each member, and change nothing
    #[arg(long, conflicts_with = "no_wait")]
    pub dry_run: bool,
    /// Return once the change is decided; the cluster carries it out by itself
    #[arg(long)]
    pub no_wait: bool,
    /// Stop waiting after this long without progress; the cluster goes on [default: 15m]
    #[arg(long, value_name = "DUR", value_parser = parse::duration_ms, allow_hyphen_values = true)]
    pub timeout: Option<u64>,
}

impl CourseArguments {
    /// Returns the longest time without progress.
    pub(super) fn patience(&self) -> Duration {
        self.timeout.map_or(TIMEOUT, Duration::from_millis)
    }
}

/// Texts for people.
#[derive(Debug, Clone)]
pub(super) struct Texts {
    /// The change was in effect before.
    pub already: String,
    /// The change is decided.
    pub begun: String,
    /// The change is carried out.
    pub done: String,
}

/// Requested change, with its texts.
#[derive(Debug, Clone)]
pub(super) struct Wish {
    /// Verb, for programs.
    pub verb: &'static str,
    /// Member in question, if there is one.
    pub node: Option<NodeId>,
    /// Change to request of the metadata group.
    pub change: ClusterChange,
    /// Texts for people.
    pub told: Texts,
    /// Condition to wait for.
    pub goal: Goal,
}

impl Wish {
    /// Creates a change of the cluster as a whole.
    pub fn new(verb: &'static str, change: ClusterChange, told: Texts) -> Wish {
        Wish { verb, node: None, change, told, goal: Goal::Settled }
    }

    /// Creates a change of a member.
    pub fn about(node: NodeId, verb: &'static str, change: ClusterChange, told: Texts) -> Wish {
        Wish { node: Some(node), ..Wish::new(verb, change, told) }
    }

    /// Requests the change, and previews or follows it.
    pub async fn carry_out<T: Transport>(
        &self,
        runner: &mut Runner<T>,
        course: &CourseArguments,
    ) -> Result<Exit, Failure> {
        let changed = self.send(runner, course.dry_run).await?;
        match course.dry_run {
            true => self.preview(&mut runner.output, &changed),
            false => self.settle(runner, &changed, course).await,
        }
    }

    /// Requests a change that moves nothing.
    pub async fn set<T: Transport>(&self, runner: &mut Runner<T>) -> Result<Exit, Failure> {
        let changed = self.send(runner, false).await?;
        let line = if changed.already { &self.told.already } else { &self.told.done };
        self.conclude(&mut runner.output, &changed, ChangeState::Done, &changed.view, line)
    }

    /// Requests the change of the metadata group.
    pub async fn send<T: Transport>(&self, runner: &Runner<T>, dry_run: bool) -> Result<Changed, Failure> {
        match runner.request(Request::Change { change: Box::new(self.change.clone()), dry_run }).await? {
            Response::Changed(changed) => Ok(*changed),
            _ => Err(unexpected("change")),
        }
    }

    /// Shows what the change would do.
    pub fn preview(&self, output: &mut Output, changed: &Changed) -> Result<Exit, Failure> {
        if output.json() {
            output.object(&rows::of_change(self, changed, ChangeState::Planned, &changed.view))?;
            return Ok(Exit::Done);
        }
        if changed.already {
            output.line(&self.told.already)?;
        }
        let view = &changed.view;
        let come: u32 = view.shares.values().map(|share| share.come).sum();
        let (open, come) = (number(u64::from(view.open), "partition"), number(u64::from(come), "replica"));
        output.line(&format!("nothing is changed; with it {open} would be to move, {come} to copy"))?;
        table(output, view)?;
        Ok(Exit::Done)
    }

    /// Follows the decided change, if that is wanted.
    pub async fn settle<T: Transport>(
        &self,
        runner: &mut Runner<T>,
        changed: &Changed,
        course: &CourseArguments,
    ) -> Result<Exit, Failure> {
        let line = if changed.already { &self.told.already } else { &self.told.begun };
        if course.no_wait {
            let line = format!("{line}; `norn cluster status --watch` shows how far it is");
            return self.conclude(&mut runner.output, changed, ChangeState::Begun, &changed.view, &line);
        }
        if !runner.output.json() {
            runner.output.line(line)?;
            runner.output.flush()?;
        }
        let shows = runner.output.progress();
        let mut follower = Follower::new(self.goal.clone(), changed.version, course.patience(), shows);
        let survey = follower.finish(runner).await?;
        let took = duration(follower.elapsed().as_millis() as u64);
        let line = format!("{} ({took})", self.told.done);
        self.conclude(&mut runner.output, changed, ChangeState::Done, &survey.view, &line)
    }

    fn conclude(
        &self,
        output: &mut Output,
        changed: &Changed,
        state: ChangeState,
        view: &ClusterView,
        line: &str,
    ) -> Result<Exit, Failure> {
        if output.json() {
            output.object(&rows::of_change(self, changed, state, view))?;
        } else {
            let line = output.paint(Style::Good, line);
            output.line(&line)?;
        }
        Ok(Exit::Done)
    }
}

/// Prints the replicas of each member, and those that come and go.
fn table(output: &mut Output, view: &ClusterView) -> Result<(), Failure> {
    let titles = ["#NUMBER", "NAME", "ZONE", "#WEIGHT", "STATE", "#HOLDS", "#COME", "#GO", "#THEN"];
    let mut table = output.new_table(&titles).spare(&["WEIGHT", "ZONE", "NUMBER"]);
    for (number, member) in &view.roster.members {
        let share = view.shares.get(number).copied().unwrap_or_default();
        if !member.state.is_present() && share.go == 0 {
            continue;
        }
        table.add_row([
            Cell::new(number),
            Cell::new(clean(&member.name)).add_attribute(Attribute::Bold),
            Cell::new(clean(&member.zone)),
            Cell::new(member.weight),
            Cell::new(member.state),
            Cell::new(share.stay.saturating_add(share.go)),
            Cell::new(share.come),
            Cell::new(share.go),
            Cell::new(share.stay.saturating_add(share.come)),
        ]);
    }
    output.table(&mut table)
}
