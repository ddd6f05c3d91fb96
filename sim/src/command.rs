//! The commands: one run, many runs, one run twice, and the hunt for mutants.

use crate::options::Overrides;
use crate::report::{self, Report};
use crate::trace::Keep;
use crate::world::Counters;
use crate::{model, mutants};
use clap::{Parser, Subcommand};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

/// Distance between the first seeds of two rounds.
const ROUND_SEEDS: u64 = 1_000_003;

/// Failures printed in full.
const FAILURES_SHOWN: usize = 5;

/// States that many seeds should reach. A swarm shows those that it did not reach.
const SOMETIMES: [&str; 27] = [
    "apart",
    "campaign",
    "cohort admits",
    "cohort clears a draining replica",
    "cohort joins",
    "cohort recalls a draining replica",
    "cohort reverts",
    "cohort settles",
    "crash between effects",
    "crash lost unsynced bytes",
    "disk failed",
    "disk failed during a start",
    "disk full",
    "done flag",
    "established",
    "expired",
    "granted",
    "granted again",
    "joint cohort committed",
    "lease over before the answer",
    "repaired by buckets",
    "repaired by stream",
    "restart within timeout",
    "snapshot sent",
    "stepped down",
    "voided",
    "woken",
];

/// Runs Norn's protocol, storage and client session in a simulated world, under a seed.
#[derive(Debug, Parser)]
#[command(name = "cargo sim --")]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs one seed.
    Run {
        /// Seed.
        seed: u64,
        /// Prints the whole trace.
        #[arg(long)]
        trace: bool,
        #[command(flatten)]
        knobs: Box<Overrides>,
    },
    /// Runs many seeds.
    Swarm {
        /// Number of seeds.
        count: u64,
        /// First seed.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Ends at the first failure.
        #[arg(long)]
        stop: bool,
        #[command(flatten)]
        knobs: Box<Overrides>,
    },
    /// Runs one seed twice and compares the traces line by line.
    Twice {
        /// Seed.
        seed: u64,
        #[command(flatten)]
        knobs: Box<Overrides>,
    },
    /// Explores the consensus group (register) exhaustively in small worlds, without a flaw and with each known one.
    Model {
        /// Most states for each world.
        #[arg(long, default_value_t = 1_000_000)]
        states: usize,
    },
    /// Puts each known bug back and runs seeds until it is caught.
    Mutants {
        /// Most seeds for each bug.
        #[arg(long, default_value_t = 1_000)]
        budget: u64,
        /// First seed.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// How often each bug is looked for, each time from a seed far from the others.
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_000))]
        rounds: u64,
        /// Prints the names of all known bugs, and runs nothing.
        #[arg(long)]
        names: bool,
        #[command(flatten)]
        knobs: Box<Overrides>,
    },
}

/// Carries out a command. Returns whether all was well.
pub fn execute(arguments: &Arguments, out: &mut dyn Write) -> io::Result<bool> {
    match &arguments.command {
        Command::Run { seed, trace, knobs } => run(*seed, *trace, knobs, out),
        Command::Swarm { count, seed, stop, knobs } => swarm(*seed, *count, *stop, knobs, out),
        Command::Twice { seed, knobs } => twice(*seed, knobs, out),
        Command::Model { states } => model::run(*states, out),
        Command::Mutants { names: true, .. } => {
            mutants::ALL.iter().try_for_each(|(name, _)| writeln!(out, "{name}"))?;
            Ok(true)
        }
        Command::Mutants { budget, seed, rounds, knobs, .. } => hunt((*seed, *rounds), *budget, knobs, out),
    }
}

fn run(seed: u64, trace: bool, knobs: &Overrides, out: &mut dyn Write) -> io::Result<bool> {
    let report = report::run(seed, knobs, if trace { Keep::All } else { Keep::Tail });
    for line in report.options.lines() {
        writeln!(out, "{line}")?;
    }
    if trace || report.violation.is_some() {
        for line in &report.lines {
            writeln!(out, "{line}")?;
        }
    }
    counters(&report.counters, out)?;
    writeln!(out, "{}", report.headline())?;
    Ok(report.violation.is_none())
}

fn counters(counters: &Counters, out: &mut dyn Write) -> io::Result<()> {
    for (name, count) in counters {
        writeln!(out, "{count:>12}  {name}")?;
    }
    Ok(())
}

fn twice(seed: u64, knobs: &Overrides, out: &mut dyn Write) -> io::Result<bool> {
    let reports = [report::run(seed, knobs, Keep::All), report::run(seed, knobs, Keep::All)];
    let [one, other] = &reports;
    let place = one.lines.iter().zip(&other.lines).position(|(one, other)| one != other);
    let end = one.lines.len().min(other.lines.len());
    let alike = one.trace_hash == other.trace_hash && one.counters == other.counters && one.time_us == other.time_us;
    if place.is_none() && one.lines.len() == other.lines.len() && alike {
        writeln!(out, "seed {seed}: twice the same {} lines, trace {:032x}", one.trace_count, one.trace_hash)?;
        return Ok(true);
    }
    let place = place.unwrap_or(end);
    writeln!(out, "seed {seed}: the runs differ at line {}", place + 1)?;
    for report in &reports {
        writeln!(out, "  {}", report.lines.get(place).map_or("(end)", String::as_str))?;
    }
    writeln!(out, "  again: cargo sim -- twice {seed}{}", knobs.flags())?;
    Ok(false)
}

/// Runs seeds on all cores and passes their reports to `visit` as they come. Ends early when `visit` returns true.
fn run_many(first: u64, count: u64, knobs: &Overrides, mut visit: impl FnMut(Report) -> bool) {
    let next = AtomicU64::new(0);
    let enough = AtomicBool::new(false);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let (sender, reports) = mpsc::sync_channel(threads);
    thread::scope(|scope| {
        for _ in 0..threads {
            let (sender, next, enough) = (sender.clone(), &next, &enough);
            scope.spawn(move || {
                while !enough.load(Ordering::Relaxed) {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    if place >= count || sender.send(report::run(first.wrapping_add(place), knobs, Keep::Tail)).is_err()
                    {
                        break;
                    }
                }
            });
        }
        drop(sender);
        for report in reports {
            if !enough.load(Ordering::Relaxed) && visit(report) {
                enough.store(true, Ordering::Relaxed);
            }
        }
    });
}

fn swarm(first: u64, count: u64, stop: bool, knobs: &Overrides, out: &mut dyn Write) -> io::Result<bool> {
    let start = Instant::now();
    let mut total = Counters::new();
    let mut failures: BTreeMap<String, Vec<Report>> = BTreeMap::new();
    let (mut runs, mut time_us) = (0u64, 0u64);
    run_many(first, count, knobs, |report| {
        runs += 1;
        time_us += report.time_us;
        report::add(&mut total, &report.counters);
        if let Some(violation) = &report.violation {
            failures.entry(violation.property.clone()).or_default().push(report);
        }
        stop && !failures.is_empty()
    });
    for name in SOMETIMES {
        total.entry(format!("sometimes: {name}")).or_default();
    }
    counters(&total, out)?;
    for reports in failures.values_mut() {
        reports.sort_by_key(|report| report.seed);
        for report in reports.iter().take(FAILURES_SHOWN) {
            writeln!(out, "{}", report.headline())?;
        }
    }
    for (property, reports) in &failures {
        writeln!(out, "{property}: {} seeds", reports.len())?;
    }
    let failed: usize = failures.values().map(Vec::len).sum();
    writeln!(
        out,
        "{runs} seeds from {first}, {failed} failed; {:.0} virtual seconds in {:.1} s",
        time_us as f64 / 1e6,
        start.elapsed().as_secs_f64()
    )?;
    Ok(failed == 0)
}

/// First run from `first` on that catches a bug, and the number of seeds until then.
fn catch(first: u64, budget: u64, knobs: &Overrides) -> Option<(u64, Report)> {
    let mut caught = None;
    run_many(first, budget, knobs, |report| {
        if report.violation.is_some() {
            caught = Some((report.seed.wrapping_sub(first) + 1, report));
        }
        caught.is_some()
    });
    caught
}

fn hunt((first, rounds): (u64, u64), budget: u64, knobs: &Overrides, out: &mut dyn Write) -> io::Result<bool> {
    writeln!(out, "{:<26} {:<24} {:>6} {:>7}  again", "mutant", "caught by", "median", "rounds")?;
    let mut survivors = 0;
    for (name, mutant) in mutants::ALL {
        if knobs.mutant.is_some_and(|only| only != mutant) {
            continue;
        }
        let knobs = mutants::hunting(mutant, knobs);
        let begin = |round: u64| first.wrapping_add(round * ROUND_SEEDS);
        let caught: Vec<(u64, Report)> = (0..rounds).filter_map(|round| catch(begin(round), budget, &knobs)).collect();
        let mut seeds: Vec<u64> = caught.iter().map(|(seeds, _)| *seeds).collect();
        seeds.resize(rounds as usize, budget);
        seeds.sort_unstable();
        let by = caught.iter().filter_map(|(_, report)| Some(report.violation.as_ref()?.property.as_str()));
        let by: BTreeSet<&str> = by.collect();
        let by = if by.is_empty() { "SURVIVES".to_owned() } else { by.into_iter().collect::<Vec<_>>().join(", ") };
        let again = caught.first().map_or_else(String::new, |(_, report)| report.command());
        let (median, rounds) = (seeds[seeds.len() / 2], format!("{}/{rounds}", caught.len()));
        writeln!(out, "{name:<26} {by:<24} {median:>6} {rounds:>7}  {again}")?;
        survivors += usize::from(caught.is_empty());
        out.flush()?;
    }
    Ok(survivors == 0)
}
