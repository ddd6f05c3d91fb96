//! One run from seed to report, and reports in text.

use crate::options::{Options, Overrides};
use crate::trace::Keep;
use crate::world::{Counters, Violation, World};
use norn_wire::random::Random;
use std::any::Any;
use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe};

thread_local! {
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Result of a run.
#[derive(Debug)]
pub struct Report {
    /// Seed.
    pub seed: u64,
    /// Knobs set by hand.
    pub overrides: Overrides,
    /// All knobs.
    pub options: Options,
    /// First property that did not hold.
    pub violation: Option<Violation>,
    /// Virtual time.
    pub time_us: u64,
    /// Hash of the whole trace.
    pub trace_hash: u128,
    /// Number of lines of the trace.
    pub trace_count: u64,
    /// Lines that were kept.
    pub lines: Vec<String>,
    /// Counters.
    pub counters: Counters,
}

/// Remembers panics for the report instead of printing them.
pub fn keep_panics_quiet() {
    panic::set_hook(Box::new(|info| {
        PANIC.with(|last| *last.borrow_mut() = Some(info.to_string()));
    }));
}

fn panic_text(payload: &(dyn Any + Send)) -> String {
    PANIC.with(|last| last.borrow_mut().take()).unwrap_or_else(|| {
        let text = payload.downcast_ref::<String>().cloned();
        text.or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
    })
}

/// Runs a seed.
pub fn run(seed: u64, overrides: &Overrides, keep: Keep) -> Report {
    run_until(seed, overrides, keep, u64::MAX)
}

/// Runs a seed up to a moment of its virtual time.
pub fn run_until(seed: u64, overrides: &Overrides, keep: Keep, end_us: u64) -> Report {
    let mut random = Random::new(seed);
    let options = Options::draw(&mut random.child(), overrides);
    run_options(seed, random, options, overrides, (keep, end_us))
}

fn run_options(
    seed: u64,
    random: Random,
    options: Options,
    overrides: &Overrides,
    (keep, end_us): (Keep, u64),
) -> Report {
    let mut world = World::new(random, options.clone(), keep);
    if let Err(payload) = panic::catch_unwind(AssertUnwindSafe(|| world.run(end_us))) {
        world.fail("panic", panic_text(&*payload));
    }
    let network = world.network.counts;
    for (name, count) in
        [("sent", network.sent), ("lost", network.lost), ("cut", network.cut), ("doubled", network.doubled)]
    {
        world.counters.insert(format!("messages {name}"), count);
    }
    Report {
        seed,
        overrides: overrides.clone(),
        options,
        violation: world.violation.take(),
        time_us: world.now_us,
        trace_hash: world.trace.hash(),
        trace_count: world.trace.count(),
        counters: std::mem::take(&mut world.counters),
        lines: world.trace.into_lines(),
    }
}

impl Report {
    /// The command that runs the same again.
    pub fn command(&self) -> String {
        format!("cargo sim -- run {}{}", self.seed, self.overrides.flags())
    }

    /// First lines of a report: the outcome.
    pub fn headline(&self) -> String {
        let seconds = self.time_us as f64 / 1e6;
        match &self.violation {
            None => format!("seed {}: all hold; {seconds:.1} s, trace {:032x}", self.seed, self.trace_hash),
            Some(violation) => format!(
                "seed {}: `{}` does not hold at {:.6} s: {}\n  again: {} --trace",
                self.seed,
                violation.property,
                violation.time_us as f64 / 1e6,
                violation.message,
                self.command()
            ),
        }
    }
}

/// Adds counters up.
pub fn add(total: &mut Counters, counters: &Counters) {
    for (name, count) in counters {
        *total.entry(name.clone()).or_default() += count;
    }
}
