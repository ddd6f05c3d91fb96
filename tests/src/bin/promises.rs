//! Prints every promise with the tests that prove it, then those without tests; with `--missing` only the latter.

use norn_tests::promises::Promises;
use norn_tests::source;
use std::io::Write;
use std::process::ExitCode;

/// The list at build time.
const LIST: &str = include_str!("../../promises.txt");

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let missing = match arguments.as_slice() {
        [] => false,
        [flag] if flag == "--missing" => true,
        _ => {
            let _ = writeln!(std::io::stderr(), "usage: promises [--missing]");
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
