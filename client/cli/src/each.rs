//! Runs the same for each of several tasks that a command names, even if some fail.

use super::error::{Exit, Failure};
use super::{Runner, Transport, text};
use norn_wire::{Cause, Error};

/// Runs `one` for each named task, and ends with the worst exit of them. With several, each failure names its task. If no node is reached
/// at all, the remaining tasks are not tried.
pub(super) async fn each<T: Transport>(
    runner: &mut Runner<T>,
    names: &[String],
    one: impl AsyncFn(&mut Runner<T>, &str) -> Result<(), Failure>,
) -> Result<Exit, Failure> {
    let mut exit = Exit::Done;
    for (place, name) in names.iter().enumerate() {
        match one(runner, name).await {
            Ok(()) => {}
            Err(Failure::Call(error)) if names.len() > 1 => {
                let left = names.len() - place - 1;
                exit = exit.max(tell(runner, name, error, left)?);
            }
            Err(failure) => return Err(failure),
        }
    }
    runner.output.end_rows()?;
    Ok(exit)
}

fn tell<T: Transport>(runner: &mut Runner<T>, name: &str, error: Error, left: usize) -> Result<Exit, Failure> {
    let whole = name.parse().ok();
    let error = Error { message: format!("{}: {}", text::clean(name), error.message), id: error.id.or(whole), ..error };
    if error.cause == Some(Cause::Unreached) {
        let others = if left == 0 { String::new() } else { format!("; {left} more were not tried") };
        return Err(Error { message: error.message + &others, ..error }.into());
    }
    runner.settle_named(whole, Some(&error));
    runner.meet(Exit::of(error.code));
    match runner.output.json() {
        true => runner.output.error_row(&error)?,
        false => runner.output.error(&error)?,
    }
    Ok(Exit::of(error.code))
}
