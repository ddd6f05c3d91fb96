//! Norn and other queues side by side: the same work on each, in turns, on the same machine.
//!
//! One system runs at a time, so that none disturbs another. Each turn starts every system anew with empty data, measures all works,
//! and ends it; every other turn goes through the systems backwards. Medians over the turns are compared, ratios turn by turn.

mod chart;
mod install;
mod killing;
mod limits;
mod machine;
mod nats;
mod norn;
mod open_loop;
mod peer;
mod place;
mod postgres;
mod rabbitmq;
mod redis;
mod systems;
mod table;
mod works;

use crate::report::{Report, Row};
use anyhow::{Context, Result, bail, ensure};
use chart::Quantity;
use clap::Args;
use install::Programs;
use peer::About;
use std::path::{Path, PathBuf};
use std::process::Command;
use systems::{Kind, Subject};
use table::{Line, Measured};
use tokio::signal::unix::{SignalKind, signal};
use works::{Plan, Work};

/// What the chart shows.
const QUANTITIES: [Quantity; 2] = [
    Quantity { name: table::LIFECYCLES_PER_S, title: "Lifecycles per second (more is better)" },
    Quantity { name: table::SERVERS_CPU, title: "CPU seconds of all servers for 10,000 lifecycles (less is better)" },
];

/// Flags.
#[derive(Debug, Args)]
pub struct Options {
    /// Systems to measure. The first one is what the others are compared with.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "norn,norn-ahead,postgres,rabbitmq,nats,redis")]
    systems: Vec<Kind>,
    /// What to measure.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "lifecycles,batches")]
    works: Vec<Work>,
    /// A program of Norn; given several times, all are measured. By default the one beside this program.
    #[arg(long, value_name = "[LABEL=]FILE")]
    norn: Vec<String>,
    /// A setting of Norn's nodes, as for `norn start --set`.
    #[arg(long = "set", value_name = "NAME=VALUE")]
    settings: Vec<String>,
    /// Also measure what the machine allows at most: syncs of the disk, messages over QUIC.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL")]
    limits: bool,
    /// Turns over all systems.
    #[arg(long, default_value_t = 2)]
    turns: usize,
    /// Also draw rates and CPU times into this file, as SVG.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    plan: Plan,
    /// Where programs are installed that this machine lacks; they stay there. By default below the directory for temporary files.
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,
    /// Where data directories are made; by default the system's directory for temporary files. Should be a real disk.
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
}

/// Measures everything, unless a signal ends that; then all servers end as well.
pub async fn run(options: &Options, json: bool, report: Report) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        outcome = measure(options, json, report) => outcome,
        _ = tokio::signal::ctrl_c() => bail!("interrupted: all servers are ended"),
        _ = terminate.recv() => bail!("terminated: all servers are ended"),
    }
}

/// What a run has come to.
struct Run<'a> {
    options: &'a Options,
    directory: PathBuf,
    programs: Programs,
    report: Report,
    /// Widths of the names of works and systems, for people.
    widths: [usize; 2],
    measured: Vec<Measured>,
    /// Systems that cannot be measured, with the reasons.
    skipped: Vec<(String, String)>,
}

async fn measure(options: &Options, json: bool, mut report: Report) -> Result<()> {
    ensure!(options.turns > 0, "turns are to be taken");
    options.plan.check()?;
    let directory = options.directory.clone().unwrap_or_else(std::env::temp_dir);
    let programs = options.programs.clone().unwrap_or_else(|| std::env::temp_dir().join("norn-bench-programs"));
    let subjects = systems::subjects(&options.systems, &options.norn)?;
    let machine = machine::describe(&directory)?;
    report.row(machine.iter().fold(Row::default(), |row, (name, value)| row.text(name, value)))?;
    let programs = Programs::new(std::path::absolute(programs)?);
    let widths = if json { [0, 0] } else { [works::NAME_WIDTH, systems::NAME_WIDTH] };
    let mut run = Run { options, directory, programs, report, widths, measured: Vec::new(), skipped: Vec::new() };
    for turn in 0..options.turns {
        let mut order: Vec<&Subject> = subjects.iter().collect();
        if turn % 2 == 1 {
            order.reverse();
        }
        if options.limits {
            for limit in limits::measure(&run.directory, turn).await.context("measuring limits")? {
                run.report.row(limit.row(run.widths))?;
                run.measured.push(limit);
            }
        }
        for subject in order {
            run.take_turn(subject, turn).await?;
        }
    }
    let names = subjects.iter().map(|subject| subject.name.clone());
    let names: Vec<String> = names.chain([limits::NAME.to_owned()]).collect();
    let lines = table::summarise(&run.measured, &names);
    table::print(&mut run.report, &lines, json)?;
    if let Some(file) = &options.svg {
        draw(file, &lines, &machine, options.turns)?;
    }
    for (name, reason) in &run.skipped {
        run.report.row(Row::default().text("skipped", name).text("reason", reason))?;
    }
    Ok(())
}

/// Draws the chart.
fn draw(file: &Path, lines: &[Line], machine: &[(&str, String)], turns: usize) -> Result<()> {
    let fact = |name: &str| machine.iter().find(|(other, _)| *other == name).map_or("", |(_, value)| value.as_str());
    let caption = format!(
        "Medians of {turns} turns, with least and greatest. {} cores of {}; clients on the same machine.",
        fact("cores"),
        fact("cpu")
    );
    let chart =
        chart::draw(lines, &QUANTITIES, &caption).context("no lifecycles were measured, so no chart is drawn")?;
    std::fs::write(file, chart).with_context(|| format!("writing {}", file.display()))
}

impl Run<'_> {
    /// Measures all works on one system. A system that fails is skipped from then on.
    async fn take_turn(&mut self, subject: &Subject, turn: usize) -> Result<()> {
        if self.skipped.iter().any(|(name, _)| *name == subject.name) {
            return Ok(());
        }
        let outcome = self.try_turn(subject, turn).await;
        if let Err(error) = outcome {
            eprintln!("norn-bench: {} is skipped: {error:#}", subject.name);
            self.skipped.push((subject.name.clone(), format!("{error:#}")));
        }
        // What one system has left to be written back is not to slow down the next.
        ensure!(Command::new("sync").status().context("running sync")?.success(), "sync fails");
        Ok(())
    }

    async fn try_turn(&mut self, subject: &Subject, turn: usize) -> Result<()> {
        let peer = subject.start(&self.programs, &self.directory, &self.options.settings).await.context("starting")?;
        if turn == 0 {
            self.describe(subject, peer.about())?;
        }
        for work in &self.options.works {
            let plan = &self.options.plan;
            let own = self.measured.iter().filter(|one| one.turn == turn && one.system == subject.name);
            let singles = own.filter(|one| one.work.starts_with(works::LIFECYCLES));
            let peak = singles.filter_map(Measured::lifecycles_per_s).max_by(f64::total_cmp);
            let mut told = |mut measured: Measured| {
                measured.system.clone_from(&subject.name);
                measured.turn = turn;
                self.report.row(measured.row(self.widths))?;
                self.measured.push(measured);
                Ok(())
            };
            work.measure(&peer, plan, peak, &mut told).await.with_context(|| format!("{work:?}"))?;
        }
        Ok(())
    }

    fn describe(&mut self, subject: &Subject, about: &About) -> Result<()> {
        let row = Row::default().text("system", &subject.name).text("version", &about.version);
        let row = row.text("acknowledged", &about.acknowledged).text("settings", &about.settings.join("; "));
        self.report.row(row)
    }
}
