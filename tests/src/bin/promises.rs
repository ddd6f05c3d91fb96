//! Prints every promise with the tests that prove it, then those without tests; with `--missing` only the latter. With `--prove` it
//! breaks promises by planted changes, and says which tests notice.

use norn_tests::promises::{Promises, unplanted};
use norn_tests::{binary, source};
use std::io::Write;
use std::process::{Command, ExitCode};

/// The list at build time.
const LIST: &str = include_str!("../../promises.txt");
const USAGE: &str = "usage: promises [--missing | --prove [ROW ...]]";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let missing = match arguments.as_slice() {
        [] => false,
        [flag] if flag == "--missing" => true,
        [flag, rows @ ..] if flag == "--prove" => return prove(rows),
        _ => {
            let _ = writeln!(std::io::stderr(), "{USAGE}");
            return ExitCode::from(2);
        }
    };
    // The reader of the output may close it early. That is not a failure.
    match Promises::read(LIST, &source::sources()) {
        Ok(promises) => {
            let _ = std::io::stdout().write_all(promises.to_text(missing).as_bytes());
            ExitCode::SUCCESS
        }
        Err(complaints) => {
            let _ = writeln!(std::io::stderr(), "{}", complaints.join("\n"));
            ExitCode::FAILURE
        }
    }
}

/// Makes the planted changes of these rows, or all, and then names the rows that no change breaks.
fn prove(rows: &[String]) -> ExitCode {
    let plants = binary::workspace().join("tests/plants");
    let proved = Command::new(plants.join("prove")).args(rows).current_dir(binary::workspace()).status();
    let proved = match proved {
        Ok(status) => status.success(),
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "{}: {error}", plants.join("prove").display());
            false
        }
    };
    if rows.is_empty() {
        let names = std::fs::read_dir(&plants).into_iter().flatten().flatten();
        let names: Vec<String> = names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        let open = unplanted(LIST, &names);
        let _ = writeln!(std::io::stdout(), "\n{} rows that no change breaks yet: {}", open.len(), open.join(", "));
    }
    if proved { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
