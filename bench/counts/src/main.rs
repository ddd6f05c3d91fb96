//! Runs one hot operation a number of times, the same each time: no clock, no threads, no random state. `.ci/counts` counts its
//! instructions.
//!
//! ```text
//! .ci/counts                                                        compares with bench/counts/counts.txt
//! NORN_BLESS=1 .ci/counts                                           writes that file anew
//! valgrind --tool=callgrind target/debug/norn-counts lifecycle 100  shows where the instructions go
//! ```
//!
//! It prints the allocations of the whole run and their bytes. What a run does besides its rounds cancels out where two runs of
//! different length are compared. Without arguments it prints the operations, and rounds that suffice for each.

// The output of the program.
#![allow(clippy::print_stdout)]

mod cluster;
mod log;
mod parts;
mod values;

use anyhow::{Context, Result, ensure};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use std::alloc::System;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Name of an operation, rounds that suffice to count it, and a function that runs a number of rounds.
type Operation = (&'static str, usize, fn(usize) -> Result<()>);

const OPERATIONS: [Operation; 13] = [
    ("encode-write", 1000, parts::encode_write),
    ("decode-write", 1000, parts::decode_write),
    ("decode-request", 1000, parts::decode_request),
    ("locate", 10000, parts::locate),
    ("store", 1000, parts::store),
    ("store-and-complete", 1000, parts::store_and_complete),
    ("grant", 1000, parts::grant),
    ("grant-and-drop", 1000, parts::grant_and_drop),
    ("append", 1000, log::append),
    ("replay-1000", 2, log::replay),
    ("lifecycle", 100, cluster::lifecycle),
    ("lifecycle-100", 5, cluster::lifecycle_of_100),
    ("equal-second", 20, cluster::equal_second),
];

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, rounds] = arguments.as_slice() else {
        OPERATIONS.iter().for_each(|(name, rounds, _)| println!("{name} {rounds}"));
        return Ok(());
    };
    let (_, _, run) = OPERATIONS.iter().find(|(known, ..)| known == name).context("no operation has this name")?;
    let rounds = rounds.parse().context("the number of rounds")?;
    ensure!(rounds > 0, "at least one round");
    run(rounds)?;
    let stats = ALLOCATOR.stats();
    println!("{} {}", stats.allocations + stats.reallocations, stats.bytes_allocated);
    Ok(())
}
