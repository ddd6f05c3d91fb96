//! `cargo sim -- run SEED | swarm N | twice SEED | mutants`. The exit code is 0 only when all holds.

use clap::Parser;
use norn_sim::command::{Arguments, execute};
use norn_sim::report::keep_panics_quiet;
use std::io;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    keep_panics_quiet();
    match execute(&arguments, &mut io::stdout().lock()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}
