//! What a waiting task takes of memory, held against what the README says. Method: the benchmark counts what it allocates, so that the
//! figure is the same on every machine and with every optimisation. It runs in a process of its own, as the count is of a whole one.

use serde_json::Value;
use std::process::Command;

const README: &str = include_str!("../../README.md");
/// Numbers of tasks whose difference is measured: what a partition takes whatever it holds is in both.
const TASKS: [u32; 2] = [30_000, 90_000];

/// Bytes that so many tasks take, payloads aside.
fn taken(tasks: u32) -> f64 {
    let mut bench = Command::new(env!("CARGO_BIN_EXE_norn-bench"));
    let output =
        bench.args(["--json", "memory", "--tasks", &tasks.to_string()]).output().expect("the benchmark starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rows = String::from_utf8(output.stdout).expect("JSON");
    let mut rows = rows.lines().map(|line| serde_json::from_str::<Value>(line).expect("a row"));
    let row = rows.find(|row| row["bodies"] == "in the log").expect("the row without bodies in memory");
    row["bytes_per_task"].as_f64().expect("a number") * f64::from(tasks)
}

/// Bytes of each task.
fn measured() -> f64 {
    let [few, many] = TASKS;
    (taken(many) - taken(few)) / f64::from(many - few)
}

fn promised() -> f64 {
    let (_, behind) = README.split_once("What claiming needs always stays, about ").expect("the README gives a figure");
    let (figure, _) = behind.split_once(" bytes a task").expect("in bytes");
    figure.parse().expect("a number")
}

#[test]
fn a_waiting_task_takes_the_memory_that_the_readme_says() {
    let (measured, promised) = (measured(), promised());
    let off = measured / promised - 1.0;
    assert!(
        off.abs() <= 0.05,
        "a waiting task takes {measured:.1} bytes, and README.md says {promised}: find the field that it is kept in \
         (`Outline`, `Entry`), or correct README.md and ARCHITECTURE.md"
    );
}
