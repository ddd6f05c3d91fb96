//! Output of findings, as they come.

use super::super::error::{Exit, Failure};
use super::super::output::{Output, Style};
use super::super::text::{clean_lines, wrapped};
use norn_client::api::{CheckOutcome, Finding};

/// Widths of the first columns.
const OUTCOME_CHARACTERS: usize = 6;
const CHECK_CHARACTERS: usize = 21;

/// Prints findings, and counts them.
pub struct Report {
    output: Output,
    findings: Vec<Finding<'static>>,
    /// Why findings are not printed any more.
    lost: Option<Failure>,
}

impl Report {
    /// Creates a report without findings.
    pub fn new(output: Output) -> Report {
        Report { output, findings: Vec::new(), lost: None }
    }

    /// Prints findings at once: the next check may take long.
    pub fn tell(&mut self, findings: impl IntoIterator<Item = Finding<'static>>) {
        for finding in findings {
            if self.lost.is_none() {
                self.lost = print(&mut self.output, &finding).err();
            }
            self.findings.push(finding);
        }
    }

    /// Returns the findings.
    pub fn findings(&self) -> &[Finding<'static>] {
        &self.findings
    }

    /// Prints how many there are of each outcome, and returns the exit.
    pub fn finish(mut self) -> Exit {
        let count = |outcome| self.findings.iter().filter(|finding| finding.outcome == outcome).count();
        let outcomes = [CheckOutcome::Ok, CheckOutcome::Warn, CheckOutcome::Fail];
        let counts = outcomes.map(|outcome| format!("{} {}", count(outcome), outcome.name()));
        let found = if count(CheckOutcome::Fail) > 0 { Exit::Ailing } else { Exit::Done };
        let said = match self.lost.take() {
            Some(lost) => Err(lost),
            None if self.output.json() => self.output.flush(),
            None => self.output.line(&counts.join(", ")).and_then(|()| self.output.flush()),
        };
        let Err(failure) = said else { return found };
        if failure.exit() != Exit::Done
            && let Some(error) = failure.error()
        {
            self.output.unwritten(&error.message, None);
        }
        found.max(failure.exit())
    }
}

fn print(output: &mut Output, finding: &Finding<'_>) -> Result<(), Failure> {
    if output.json() {
        output.row(finding)?;
        return output.flush();
    }
    let style = match finding.outcome {
        CheckOutcome::Ok => Style::Good,
        CheckOutcome::Warn => Style::Busy,
        CheckOutcome::Fail => Style::Bad,
    };
    let outcome = output.paint(style, &format!("{:OUTCOME_CHARACTERS$}", finding.outcome.name()));
    let margin = OUTCOME_CHARACTERS + CHECK_CHARACTERS;
    let room = output.size().map_or(usize::MAX, |(columns, _)| usize::from(columns).saturating_sub(margin).max(20));
    for (place, line) in wrapped(&clean_lines(&finding.seen), room).iter().enumerate() {
        match place {
            0 => output.line(&format!("{outcome}{:CHECK_CHARACTERS$}{line}", finding.check))?,
            _ => output.line(&format!("{:margin$}{line}", ""))?,
        }
    }
    if let Some(advice) = &finding.advice {
        for line in wrapped(&format!("-> {}", clean_lines(advice)), room) {
            output.line(&format!("{:margin$}{line}", ""))?;
        }
    }
    output.flush()
}
