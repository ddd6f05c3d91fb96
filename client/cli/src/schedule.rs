//! `schedule set`, `list`, `show`, `remove`, `pause` and `resume`: tasks that the cluster enqueues by itself.

use super::parse::DataArguments;
use super::runner::unexpected;
use super::text::{clean, instant};
use super::{Exit, Failure, Runner, Transport, examples, parse, text};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgGroup, Args, Subcommand};
use comfy_table::{Attribute, Cell, Color};
use norn_client::api;
use norn_wire::limits::SCHEDULE_PAYLOAD_BYTES_MAX;
use norn_wire::schedule::{CatchUp, Schedule, ScheduleChange, ScheduleView, When};
use norn_wire::{Request, Response};
use std::sync::Arc;

/// Verbs of schedules.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum ScheduleVerb {
    /// Enqueue a task at given times, once in the whole cluster
    ///
    /// Setting an equal schedule again changes nothing. A different one under the same name replaces it, and begins anew.
    #[command(after_help = examples::SCHEDULE_SET)]
    Set(ScheduleSetArguments),
    /// List the schedules
    #[command(after_help = examples::SCHEDULE_LIST)]
    List,
    /// Show a schedule: when it fires next, what it fired last, and how often it could not
    #[command(after_help = examples::SCHEDULE_SHOW)]
    Show(ScheduleArguments),
    /// Remove a schedule; its tasks stay
    #[command(after_help = examples::SCHEDULE_REMOVE)]
    Remove(ScheduleArguments),
    /// Pause a schedule; times that pass meanwhile are skipped
    #[command(after_help = examples::SCHEDULE_PAUSE)]
    Pause(ScheduleArguments),
    /// Resume a paused schedule
    #[command(after_help = examples::SCHEDULE_RESUME)]
    Resume(ScheduleArguments),
}

/// Arguments of `schedule set`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(group(ArgGroup::new("when").required(true).args(["cron", "at"])))]
pub struct ScheduleSetArguments {
    /// Name of the schedule
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Queue of its tasks
    #[arg(value_name = "QUEUE")]
    pub queue: String,
    /// Data of each task, 4 KiB at most
    #[command(flatten)]
    pub data: DataArguments,
    /// Cron expression, to fire repeatedly: minute, hour, day of the month, month, day of the week; optionally seconds in front. Without
    /// this, --at fires once
    #[arg(long, value_name = "EXPR")]
    pub cron: Option<String>,
    /// Time zone of the expression: a name of the IANA database
    #[arg(long, value_name = "TZ", default_value = "UTC", conflicts_with = "at")]
    pub zone: String,
    /// Fire once, at this time (RFC 3339), instead of --cron
    #[arg(long, value_name = "TIME", value_parser = parse::instant_ms)]
    pub at: Option<u64>,
    /// Policy for times at which the cluster could not fire: `skip`: skip them; `last`: enqueue one task for the last of them; `all`:
    /// enqueue a task for each, up to the latest hundred
    #[arg(long, value_name = "POLICY", value_parser = catch_up(), default_value = "last", hide_possible_values = true)]
    pub catch_up: CatchUp,
    /// Priority: higher is claimed first
    #[arg(long, value_name = "N", value_parser = parse::whole(i32::MIN, i32::MAX, 5), default_value_t = 0, allow_negative_numbers = true)]
    pub priority: i32,
    /// Attempts after which a task is dead unless one completes it; if left out, as many as are set for its queue, or no limit
    #[arg(long, value_name = "N", value_parser = parse::whole(1, u32::MAX, 5), allow_negative_numbers = true)]
    pub max_attempts: Option<u32>,
}

/// Arguments that name a schedule.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct ScheduleArguments {
    /// Name of the schedule
    #[arg(value_name = "NAME")]
    pub name: String,
}

fn catch_up() -> impl TypedValueParser<Value = CatchUp> {
    PossibleValuesParser::new(CatchUp::ALL.map(CatchUp::name)).map(|text| match text.as_str() {
        "skip" => CatchUp::Skip,
        "all" => CatchUp::All,
        _ => CatchUp::Last,
    })
}

impl ScheduleVerb {
    pub(super) async fn run<T: Transport>(self, runner: &mut Runner<T>) -> Result<Exit, Failure> {
        match self {
            ScheduleVerb::Set(arguments) => arguments.run(runner).await,
            ScheduleVerb::List => list(runner).await,
            ScheduleVerb::Show(arguments) => {
                let request = Request::Schedules { name: Some(arguments.name) };
                match runner.request(request).await? {
                    Response::Schedules(views) if views.len() == 1 => print(runner, &views[0], ""),
                    _ => Err(unexpected("schedules")),
                }
            }
            ScheduleVerb::Remove(arguments) => remove(runner, arguments.name).await,
            ScheduleVerb::Pause(arguments) => pause(runner, arguments.name, true).await,
            ScheduleVerb::Resume(arguments) => pause(runner, arguments.name, false).await,
        }
    }
}

impl ScheduleSetArguments {
    async fn run<T: Transport>(self, runner: &mut Runner<T>) -> Result<Exit, Failure> {
        let queue = parse::queue(&self.queue)?;
        let when = match (self.cron, self.at) {
            (Some(expression), _) => When::Cron { expression, zone: self.zone },
            (None, Some(at_ms)) => When::At(at_ms),
            (None, None) => return Err(Failure::Usage("--cron or --at is wanted".to_owned())),
        };
        let (text, file) = (self.data.data.as_deref(), self.data.file.as_ref());
        let payload = runner.read_data(text, file, SCHEDULE_PAYLOAD_BYTES_MAX).await?.unwrap_or_default();
        runner.recent().see_queue(&queue);
        let (priority, attempts_max, catch_up) = (self.priority, self.max_attempts.unwrap_or(0), self.catch_up);
        let schedule = Arc::new(Schedule { when, queue, payload, priority, attempts_max, catch_up });
        let (already, view) = change(runner, ScheduleChange::Set { name: self.name, schedule }).await?;
        let done = if already { " was so already" } else { " is set" };
        print(runner, view.as_deref().ok_or_else(|| unexpected("schedule"))?, done)
    }
}

async fn change<T: Transport>(
    runner: &Runner<T>,
    change: ScheduleChange,
) -> Result<(bool, Option<Box<ScheduleView>>), Failure> {
    match runner.request(Request::Schedule(Box::new(change))).await? {
        Response::Scheduled { already, view } => Ok((already, view)),
        _ => Err(unexpected("schedule")),
    }
}

async fn pause<T: Transport>(runner: &mut Runner<T>, name: String, paused: bool) -> Result<Exit, Failure> {
    let (already, view) = change(runner, ScheduleChange::Pause { name, paused }).await?;
    let done = match (already, paused) {
        (true, _) => " was so already",
        (false, true) => " is paused",
        (false, false) => " goes on",
    };
    print(runner, view.as_deref().ok_or_else(|| unexpected("schedule"))?, done)
}

async fn remove<T: Transport>(runner: &mut Runner<T>, name: String) -> Result<Exit, Failure> {
    let (already, _) = change(runner, ScheduleChange::Remove { name: name.clone() }).await?;
    let output = &mut runner.output;
    match (output.json(), already) {
        (true, _) => output.object(&api::ScheduleRemoval { name: (&name).into(), removed: !already })?,
        (false, true) => output.line(&format!("there is no schedule {}", clean(&name)))?,
        (false, false) => output.line(&format!("{} is removed", clean(&name)))?,
    }
    Ok(Exit::Done)
}

async fn list<T: Transport>(runner: &mut Runner<T>) -> Result<Exit, Failure> {
    let Response::Schedules(views) = runner.request(Request::Schedules { name: None }).await? else {
        return Err(unexpected("schedules"));
    };
    let output = &mut runner.output;
    if output.json() {
        for view in &views {
            output.row(&api::Schedule::from(view))?;
        }
        output.end_rows()?;
        return Ok(Exit::Done);
    }
    let titles = ["NAME", "WHEN", "QUEUE", "NEXT", "LAST", "#FIRED", "#MISSED", "CATCH UP"];
    let mut table = output.new_table(&titles).spare(&["CATCH UP", "MISSED", "FIRED", "LAST"]);
    for view in &views {
        let next = if view.paused { Cell::new("paused").fg(Color::Yellow) } else { Cell::new(next(view)) };
        table.add_row([
            Cell::new(clean(&view.name)).add_attribute(Attribute::Bold),
            Cell::new(clean(&when(&view.schedule))),
            Cell::new(clean(view.schedule.queue.as_str())),
            next,
            Cell::new(view.last.map_or_else(|| "-".to_owned(), |last| instant(last.tick_ms))),
            Cell::new(view.fired),
            Cell::new(view.missed + view.unsure),
            Cell::new(view.schedule.catch_up.name()),
        ]);
    }
    output.table(&mut table)?;
    Ok(Exit::Done)
}

fn when(schedule: &Schedule) -> String {
    match &schedule.when {
        When::Cron { expression, zone } => format!("{expression} {zone}"),
        When::At(at_ms) => instant(*at_ms),
    }
}

fn next(view: &ScheduleView) -> String {
    view.next_ms.first().map_or_else(|| "-".to_owned(), |next| instant(*next))
}

/// Prints a schedule, with what was done to it after its name.
fn print<T: Transport>(runner: &mut Runner<T>, view: &ScheduleView, done: &str) -> Result<Exit, Failure> {
    view.last.iter().for_each(|last| runner.recent().see(last.id));
    let output = &mut runner.output;
    if output.json() {
        output.object(&api::Schedule::from(view))?;
        return Ok(Exit::Done);
    }
    output.line(&format!("{}{done}", clean(&view.name)))?;
    let schedule = &view.schedule;
    output.line(&format!("when      {}", clean(&when(schedule))))?;
    let queue = clean(schedule.queue.as_str());
    let enqueues = match schedule.payload.is_empty() {
        true => format!("a task without data in {queue}"),
        false => format!("{} in {queue}", text::preview(&schedule.payload, 40)),
    };
    output.line(&format!("enqueues  {enqueues}"))?;
    let missed = match schedule.catch_up {
        CatchUp::Skip => "what is missed is passed over",
        CatchUp::Last => "for what is missed there is one task",
        CatchUp::All => "for what is missed there is a task each, up to the latest hundred",
    };
    output.line(&format!("catch up  {}: {missed}", schedule.catch_up.name()))?;
    let next: Vec<String> = view.next_ms.iter().map(|ms| instant(*ms)).collect();
    let next = match (view.paused, next.is_empty()) {
        (true, _) => "paused".to_owned(),
        (false, true) => "never again".to_owned(),
        (false, false) => next.join(", "),
    };
    output.line(&format!("next      {next}"))?;
    if let Some(last) = view.last {
        output.line(&format!("last      {}, task {}", instant(last.tick_ms), last.id))?;
    }
    let ScheduleView { fired, missed, unsure, pending, .. } = view;
    let unsure = if *unsure > 0 { format!(", {unsure} of unknown outcome") } else { String::new() };
    output.line(&format!("so far    {fired} fired, {missed} missed{unsure}, {pending} under way"))?;
    Ok(Exit::Done)
}
