//! Assembles commands from the lines of a prompt: several lines may be accepted at once, for example when pasted, and a command with an
//! open quote continues on the next line.

use crate::input::Reading;
use crate::words::Quoting;
use std::collections::VecDeque;
use std::io;

/// Purpose of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// A command.
    Command,
    /// Continuation of a command with an open quote.
    Quoted(char),
    /// Data of a command.
    Data,
}

/// A terminal with a line editor.
pub(super) trait Terminal {
    /// Reads what was accepted at once: a line, or several with line ends between them.
    fn read(&mut self, asked: Asked) -> io::Result<Reading>;

    /// Shows a line that was accepted together with an earlier one, as if it had been typed alone.
    fn show(&mut self, asked: Asked, line: &str) -> io::Result<()>;
}

/// Lines that were accepted and not used yet.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    lines: VecDeque<String>,
}

impl Ahead {
    /// Reads a command, with line ends only inside its quotes. If the input ends inside a quote, the command is what there is of it.
    pub(super) fn command(&mut self, terminal: &mut impl Terminal, bytes_max: usize) -> io::Result<Reading> {
        let mut command = match self.line(Asked::Command, terminal, bytes_max)? {
            Reading::Line(line) => line,
            other => return Ok(other),
        };
        let mut quoting = Quoting::default();
        // Quotes in a comment open nothing.
        if !command.trim_ascii_start().starts_with(b"#") {
            quoting.take(&String::from_utf8_lossy(&command));
        }
        while let Some(quote) = quoting.open() {
            match self.line(Asked::Quoted(quote), terminal, bytes_max)? {
                Reading::Line(line) if command.len() + line.len() < bytes_max => {
                    command.push(b'\n');
                    quoting.take("\n");
                    quoting.take(&String::from_utf8_lossy(&line));
                    command.extend(line);
                }
                Reading::Line(_) | Reading::TooLong => {
                    // The remaining lines are the rest of a text, not commands.
                    self.discard();
                    return Ok(Reading::TooLong);
                }
                Reading::Interrupted => return Ok(Reading::Interrupted),
                Reading::End => break,
            }
        }
        Ok(Reading::Line(command))
    }

    /// Reads one line.
    pub(super) fn line(&mut self, asked: Asked, terminal: &mut impl Terminal, bytes_max: usize) -> io::Result<Reading> {
        if let Some(line) = self.lines.pop_front() {
            terminal.show(asked, &line)?;
            return Ok(Reading::Line(line.into_bytes()));
        }
        let accepted = match terminal.read(asked)? {
            Reading::Line(accepted) if accepted.len() > bytes_max => return Ok(Reading::TooLong),
            Reading::Line(accepted) => String::from_utf8_lossy(&accepted).into_owned(),
            other => return Ok(other),
        };
        // A paste often ends with a line end, and the person then accepts the line once more.
        let accepted = accepted.strip_suffix('\n').unwrap_or(&accepted);
        let mut lines = accepted.split('\n').map(str::to_owned);
        let first = lines.next().unwrap_or_default();
        self.lines.extend(lines);
        Ok(Reading::Line(first.into_bytes()))
    }

    /// Drops lines that were accepted and not used yet.
    pub(super) fn discard(&mut self) {
        self.lines.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES_MAX: usize = 100;

    /// Terminal with a scripted person, whose actions happen in order.
    #[derive(Default)]
    struct Script {
        accepted: VecDeque<Reading>,
        asked: Vec<Asked>,
        shown: Vec<String>,
    }

    impl Terminal for Script {
        fn read(&mut self, asked: Asked) -> io::Result<Reading> {
            self.asked.push(asked);
            Ok(self.accepted.pop_front().unwrap_or(Reading::End))
        }

        fn show(&mut self, _: Asked, line: &str) -> io::Result<()> {
            self.shown.push(line.to_owned());
            Ok(())
        }
    }

    fn line(text: &str) -> Reading {
        Reading::Line(text.as_bytes().to_vec())
    }

    /// Returns all commands of a script up to its end, and the terminal afterwards.
    fn commands(accepted: impl IntoIterator<Item = Reading>) -> (Vec<Reading>, Script) {
        let (mut ahead, mut terminal) = (Ahead::default(), Script::default());
        terminal.accepted.extend(accepted);
        let mut commands = Vec::new();
        loop {
            match ahead.command(&mut terminal, BYTES_MAX).unwrap() {
                Reading::End => return (commands, terminal),
                command => commands.push(command),
            }
        }
    }

    #[test]
    fn each_line_of_a_paste_is_a_command() {
        let (read, terminal) = commands([line("a 1\nb 2\n\nc 3\n"), line("d 4")]);
        assert_eq!(read, [line("a 1"), line("b 2"), line(""), line("c 3"), line("d 4")]);
        assert_eq!(terminal.shown, ["b 2", "", "c 3"], "the editor has shown the first, and what is typed later");
    }

    #[test]
    fn an_open_quote_goes_on_in_the_next_line() {
        let (read, terminal) = commands([line("a 'x"), line("\"y"), line("z' b"), line("c \"d\\\nx\" 'e\nf'\ng")]);
        assert_eq!(read, [line("a 'x\n\"y\nz' b"), line("c \"d\\\nx\" 'e\nf'"), line("g")]);
        let quoted = Asked::Quoted('\'');
        assert_eq!(terminal.asked[..4], [Asked::Command, quoted, quoted, Asked::Command]);
    }

    #[test]
    fn an_interrupt_drops_the_open_quote() {
        let (read, _) = commands([line("a 'x"), line("y"), Reading::Interrupted, line("b")]);
        assert_eq!(read, [Reading::Interrupted, line("b")]);
    }

    #[test]
    fn quotes_of_comments_open_nothing() {
        let (read, _) = commands([line(" # don't"), line("b")]);
        assert_eq!(read, [line(" # don't"), line("b")]);
    }

    #[test]
    fn an_open_quote_at_the_end_is_handed_on_to_be_refused() {
        let (read, _) = commands([line("a 'x"), line("y")]);
        assert_eq!(read, [line("a 'x\ny")]);
    }

    #[test]
    fn a_command_is_bounded_however_many_lines_it_has() {
        let long = "x".repeat(BYTES_MAX / 2);
        let (read, _) = commands([line(&format!("a '{long}")), line(&format!("{long}\nb\nc'")), line("d")]);
        assert_eq!(read, [Reading::TooLong, line("d")], "the rest of the text is no command");
        assert_eq!(commands([line(&"x".repeat(BYTES_MAX + 1)), line("d")]).0, [Reading::TooLong, line("d")]);
    }

    #[test]
    fn data_is_read_line_by_line() {
        let (mut ahead, mut terminal) = (Ahead::default(), Script::default());
        terminal.accepted.push_back(line("a -\n'x\ny"));
        assert_eq!(ahead.command(&mut terminal, BYTES_MAX).unwrap(), line("a -"));
        let mut data = || ahead.line(Asked::Data, &mut terminal, BYTES_MAX).unwrap();
        assert_eq!([data(), data(), data()], [line("'x"), line("y"), Reading::End]);
    }
}
