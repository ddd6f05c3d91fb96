//! Trace of a run, line by line: a hash over all of it, and as much of the text as is wanted.

use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use xxhash_rust::xxh3::Xxh3;

/// Lines kept for the report of a failure.
const TAIL_LINES: usize = 200;

/// Which part of the text is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// The end, for reports.
    Tail,
    /// Everything.
    All,
}

/// The trace of a run.
#[derive(Clone)]
pub struct Trace {
    keep: Keep,
    hash: Xxh3,
    lines: VecDeque<String>,
    spare: String,
    count: u64,
}

impl fmt::Debug for Trace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Trace({} lines)", self.count)
    }
}

impl Trace {
    /// An empty trace.
    pub fn new(keep: Keep) -> Self {
        Trace { keep, hash: Xxh3::new(), lines: VecDeque::new(), spare: String::new(), count: 0 }
    }

    /// Appends a line.
    pub fn line(&mut self, time_us: u64, text: fmt::Arguments<'_>) {
        let mut line = std::mem::take(&mut self.spare);
        line.clear();
        write!(line, "{:>4}.{:06} {text}", time_us / 1_000_000, time_us % 1_000_000).expect("text is writable");
        self.hash.update(line.as_bytes());
        self.hash.update(b"\n");
        self.count += 1;
        self.lines.push_back(line);
        if self.keep == Keep::Tail && self.lines.len() > TAIL_LINES {
            self.spare = self.lines.pop_front().expect("it is not empty");
        }
    }

    /// Hash of every line so far.
    pub fn hash(&self) -> u128 {
        self.hash.digest128()
    }

    /// Number of lines so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The lines kept so far.
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(String::as_str)
    }

    /// The lines kept.
    pub fn into_lines(self) -> Vec<String> {
        self.lines.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_covers_lines_that_are_no_longer_kept() {
        let run = |first: u64, keep| {
            let mut trace = Trace::new(keep);
            for number in first..1_000 {
                trace.line(number, format_args!("line {number}"));
            }
            trace
        };
        assert_eq!(run(0, Keep::Tail).hash(), run(0, Keep::All).hash());
        assert_ne!(run(0, Keep::Tail).hash(), run(1, Keep::Tail).hash());
        assert_eq!(run(0, Keep::Tail).into_lines().len(), TAIL_LINES);
        assert_eq!(run(0, Keep::All).into_lines().len(), 1_000);
    }
}
