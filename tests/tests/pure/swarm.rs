//! A fixed budget of seeds, by the simulator's own commands. `.ci/soak` runs more of them, for hours.

use clap::Parser;
use norn_sim::command::{Arguments, execute};

/// Runs a command line of the simulator, which must find no violation.
fn finds_nothing(line: &str) {
    let words = std::iter::once("norn-sim").chain(line.split(' '));
    let arguments = Arguments::try_parse_from(words).expect("the simulator has this command");
    let mut output = Vec::new();
    let well = execute(&arguments, &mut output).expect("output goes to memory");
    let output = String::from_utf8(output).expect("the simulator prints text");
    assert!(well, "{line}:\n{output}");
}

#[test]
fn seeds_with_all_sorts_of_faults_hold_all_properties() {
    finds_nothing("swarm 30 --seed 1");
}

#[test]
fn seeds_without_faults_keep_order_and_room() {
    finds_nothing("swarm 10 --seed 1 --calm true");
}

#[test]
fn each_seed_gives_the_same_trace_twice() {
    for seed in [1, 7, 42, 1_234] {
        finds_nothing(&format!("twice {seed}"));
    }
}
