//! The log compared with the bare disk and with two stores: durable records, in batches.
//!
//! All contenders take turns of a few batches each, so that other activity of the machine affects all alike. A ratio compares turns of
//! the same round; medians and quartiles are over rounds. A contender whose costs arise at long intervals shows them only in the mean
//! (`ratio_mean`), which leaves out the slowest twentieth of its turns.

use crate::contender::{self, Batch, Contender};
use crate::process::load_average;
use crate::report::{Report, Row};
use anyhow::{Result, ensure};
use clap::Args;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Rounds before the measurement starts.
const WARM_UP_ROUNDS: usize = 3;
/// Approximate number of records in a turn, bounded by the numbers of batches below.
const TURN_RECORDS: usize = 2_048;
const TURN_BATCHES_MIN: usize = 8;
const TURN_BATCHES_MAX: usize = 40;

/// Flags.
#[derive(Debug, Args)]
pub struct Options {
    /// Where all contenders write; by default the system's directory for temporary files. Should be a real disk.
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Records of 256 bytes that share a sync.
    #[arg(long, value_delimiter = ',', default_value = "1,64,256")]
    batch: Vec<usize>,
    /// Measured turns of each contender.
    #[arg(long, default_value_t = 60)]
    rounds: usize,
}

/// Measures each batch size.
pub fn run(options: &Options, mut report: Report) -> Result<()> {
    ensure!(options.rounds > 0 && !options.batch.contains(&0), "there is nothing to measure");
    let place = options.directory.clone().unwrap_or_else(std::env::temp_dir);
    for count in &options.batch {
        let directory = place.join(format!("norn-bench-{}-log-{count}", std::process::id()));
        let measured = measure(&mut report, &directory, *count, options.rounds);
        std::fs::remove_dir_all(&directory)?;
        measured?;
    }
    Ok(())
}

/// Times of a contender.
#[derive(Default)]
struct Turns {
    /// Seconds of each turn.
    seconds: Vec<f64>,
    /// Microseconds of each batch.
    batches_us: Vec<f64>,
}

fn measure(report: &mut Report, directory: &Path, count: usize, rounds: usize) -> Result<()> {
    std::fs::create_dir_all(directory)?;
    let batch = Batch::new(count)?;
    let mut contenders = contender::all(directory)?;
    let mut turns: Vec<Turns> = contenders.iter().map(|_| Turns::default()).collect();
    let batches = (TURN_RECORDS / count).clamp(TURN_BATCHES_MIN, TURN_BATCHES_MAX);
    for round in 0..WARM_UP_ROUNDS + rounds {
        for place in 0..contenders.len() {
            // The order varies, so that no contender always follows the same other.
            let place = if round % 2 == 0 { place } else { contenders.len() - 1 - place };
            let place = (place + round) % contenders.len();
            let turn = take_turn(contenders[place].as_mut(), &batch, batches)?;
            if round >= WARM_UP_ROUNDS {
                turns[place].seconds.push(turn.iter().sum());
                turns[place].batches_us.extend(turn.iter().map(|seconds| seconds * 1e6));
            }
        }
    }
    let load = load_average()?;
    let records = (batches * count) as f64;
    let megabytes = (batches * batch.bytes.len()) as f64 / 1e6;
    for (contender, turns_of) in contenders.iter().zip(&turns) {
        let ratios: Vec<f64> = turns[0].seconds.iter().zip(&turns_of.seconds).map(|(bare, own)| bare / own).collect();
        let [low, middle, high] = quartiles(&ratios);
        let [fast_s, median_s, slow_s] = quartiles(&turns_of.seconds);
        report.row(
            Row::default()
                .count("batch", count as u64)
                .number("records_s", records / median_s, 0)
                .number("q1", records / slow_s, 0)
                .number("q3", records / fast_s, 0)
                .number("mb_s", megabytes / median_s, 2)
                .number("batch_p50_us", quantile(&turns_of.batches_us, 0.5), 1)
                .number("batch_p99_us", quantile(&turns_of.batches_us, 0.99), 1)
                .number("ratio", middle, 3)
                .number("ratio_q1", low, 3)
                .number("ratio_q3", high, 3)
                .number("ratio_mean", mean(&turns[0].seconds) / mean(&turns_of.seconds), 3)
                .number("ratio_p50", quantile(&turns[0].batches_us, 0.5) / quantile(&turns_of.batches_us, 0.5), 3)
                .number("load", load, 2)
                .text("contender", contender.name()),
        )?;
    }
    Ok(())
}

/// Runs one turn; returns the seconds of each batch.
fn take_turn(contender: &mut dyn Contender, batch: &Batch, batches: usize) -> Result<Vec<f64>> {
    let mut seconds = Vec::with_capacity(batches);
    for _ in 0..batches {
        let started = Instant::now();
        contender.write(batch)?;
        seconds.push(started.elapsed().as_secs_f64());
    }
    Ok(seconds)
}

fn quartiles(values: &[f64]) -> [f64; 3] {
    [0.25, 0.5, 0.75].map(|part| quantile(values, part))
}

/// Mean of all values but the largest twentieth.
fn mean(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.truncate(sorted.len() - sorted.len() / 20);
    sorted.iter().sum::<f64>() / sorted.len() as f64
}

/// The value that this share of all values does not exceed.
fn quantile(values: &[f64], part: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[((sorted.len() - 1) as f64 * part).round() as usize]
}
