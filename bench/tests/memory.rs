//! The memory that a waiting task takes, compared with the figure in the documents. Method: the benchmark counts its allocations, so
//! that the figure is the same on every machine and with every optimisation. It runs in a separate process, because the count is that
//! of a whole process.

use serde_json::Value;
use std::fs;
use std::process::Command;

/// The documents, some of which give the figure.
const DOCUMENTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../node/docs");
/// Numbers of tasks whose difference is measured. The memory that a partition takes independently of its tasks is in both, and cancels
/// out.
const TASKS: [u32; 2] = [30_000, 90_000];

/// Bytes that this number of tasks takes, payloads aside.
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

fn promised() -> Vec<f64> {
    let documents = fs::read_dir(DOCUMENTS).expect("there are documents").flatten();
    let texts: Vec<String> = documents.map(|file| fs::read_to_string(file.path()).expect("a document")).collect();
    let said = texts.iter().filter_map(|text| text.split_once("What claiming needs always stays, about "));
    let figures = said.map(|(_, behind)| behind.split_once(" bytes a task").expect("in bytes").0);
    figures.map(|figure| figure.parse().expect("a number")).collect()
}

#[test]
fn a_waiting_task_takes_the_memory_that_the_documents_say() {
    let (measured, promised) = (measured(), promised());
    assert!(!promised.is_empty(), "no document gives the figure");
    for promised in promised {
        let off = measured / promised - 1.0;
        assert!(
            off.abs() <= 0.05,
            "a waiting task takes {measured:.1} bytes, and a document in node/docs says {promised}: find the field that it \
             is kept in (`Outline`, `Entry`), or correct the documents"
        );
    }
}
