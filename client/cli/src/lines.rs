//! For `enqueue --lines`: the lines whose tasks were not acknowledged, so that a person can repeat exactly these.

use super::error::Failure;
use super::output::Output;
use super::text;
use norn_wire::{Error, ErrorCode};

/// Most ranges of lines named; the remaining lines are counted.
const RANGES_MAX: usize = 500;

/// Lines with one kind of answer.
#[derive(Debug, Default)]
struct Lines {
    count: u64,
    /// First and last line of each range, in order.
    ranges: Vec<(u64, u64)>,
    /// Number of lines in no range, if there are too many.
    unnamed: u64,
    /// Error of the first of them that was answered individually.
    first: Option<Error>,
}

impl Lines {
    fn add(&mut self, line: u64) {
        self.count += 1;
        let named = self.ranges.len();
        match self.ranges.last_mut() {
            Some((_, last)) if *last + 1 == line && self.unnamed == 0 => *last = line,
            _ if named < RANGES_MAX => self.ranges.push((line, line)),
            _ => self.unnamed += 1,
        }
    }

    /// Formats as `line 7` or `lines 1-3, 7`.
    fn names(&self) -> String {
        let one =
            |(first, last): &(u64, u64)| if first == last { first.to_string() } else { format!("{first}-{last}") };
        let names: Vec<String> = self.ranges.iter().map(one).collect();
        let more = if self.unnamed > 0 { format!(", and {} more", self.unnamed) } else { String::new() };
        format!("{} {}{more}", if self.count == 1 { "line" } else { "lines" }, names.join(", "))
    }

    fn tell(&self, output: &mut Output, what: &str) -> Result<(), Failure> {
        if self.count == 0 {
            return Ok(());
        }
        let end = if self.first.is_some() { "; the first:" } else { "" };
        let told = output.note(&format!("{} {what}: {}{end}", text::number(self.count, "task"), self.names()));
        self.first.iter().fold(told, |told, error| told.and(output.error(error)))
    }
}

/// Lines whose tasks are not stored, and lines whose tasks may be.
#[derive(Debug, Default)]
pub(super) struct Missed {
    refused: Lines,
    unknown: Lines,
}

impl Missed {
    /// Records the error for one line's task.
    pub fn add(&mut self, line: u64, error: &Error) {
        let lines = self.of(error);
        lines.add(line);
        lines.first.get_or_insert_with(|| error.clone());
    }

    /// Records the error for a call with the tasks of these lines.
    pub fn add_all(&mut self, lines: &[u64], error: &Error) {
        lines.iter().for_each(|line| self.of(error).add(*line));
    }

    fn of(&mut self, error: &Error) -> &mut Lines {
        if error.code == ErrorCode::Unknown { &mut self.unknown } else { &mut self.refused }
    }

    /// Reports the lines once, all of them even if results cannot be written.
    pub fn tell(&mut self, output: &mut Output) -> Result<(), Failure> {
        let Missed { refused, unknown } = std::mem::take(self);
        let told = refused.tell(output, "refused").and(unknown.tell(output, "may have been stored"));
        if unknown.count == 0 || output.json() {
            return told;
        }
        told.and(output.note(
            "  with --json each is named with its id: `enqueue QUEUE DATA --id ID` repeats it as the same task, \
             and without the id it may be there twice",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_named_in_ranges_of_which_there_are_so_many() {
        let mut lines = Lines::default();
        lines.add(7);
        assert_eq!(lines.names(), "line 7");
        [8, 9, 11].into_iter().for_each(|line| lines.add(line));
        assert_eq!(lines.names(), "lines 7-9, 11");
        (0..RANGES_MAX as u64).for_each(|number| lines.add(20 + 2 * number));
        assert!(lines.names().ends_with(", and 2 more"), "{}", lines.names());
        assert_eq!(lines.count, 4 + RANGES_MAX as u64);
    }
}
