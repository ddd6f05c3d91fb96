//! Output of results: tables and short lines for people, JSON lines for programs.

use super::error::{Failure, advice};
use super::table::Grid;
use super::text::{clean_lines, without_formats};
use comfy_table::{Attribute, Cell, Color};
use norn_client::api::ErrorReport;
use norn_wire::{Error, State};
use serde::Serialize;
use std::io::{self, IsTerminal, Write};

/// Colour or weight on a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Success.
    Good,
    /// Failure.
    Bad,
    /// In progress.
    Busy,
    /// Important.
    Bold,
    /// Secondary.
    Faint,
}

/// Layout of several results for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rows {
    /// One object per line.
    Lines,
    /// One array on one line.
    Array,
}

/// Size of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Screen {
    /// A file or a pipe.
    Endless,
    /// A terminal, whose size may change.
    Terminal,
    /// Columns and lines.
    Fixed(u16, u16),
}

/// Most failures that are repeated as notes if the results cannot be written.
const UNREAD_MAX: usize = 8;

/// Destination of results, notes and errors.
pub struct Output {
    results: Box<dyn Write + Send>,
    notes: Box<dyn Write + Send>,
    json: bool,
    color: bool,
    notes_color: bool,
    progress: bool,
    /// Whether the current command adds tasks.
    adds: bool,
    screen: Screen,
    rows: Rows,
    /// Rows written since the last [`Output::end_rows`].
    rows_written: u64,
    /// Some of the failures among these rows that may not have been delivered to a reader.
    unread: Vec<Error>,
    /// Line number of the current command in a script, for error messages.
    pub(crate) script_line: Option<u64>,
}

impl Output {
    /// Creates an output with results on `results`, and notes and errors for people on `notes`; without colour or progress bar.
    pub fn new(results: impl Write + Send + 'static, notes: impl Write + Send + 'static, json: bool) -> Self {
        Output {
            results: Box::new(results),
            notes: Box::new(notes),
            json,
            color: false,
            notes_color: false,
            progress: false,
            adds: false,
            screen: Screen::Endless,
            rows: Rows::Lines,
            rows_written: 0,
            unread: Vec::new(),
            script_line: None,
        }
    }

    /// Creates an output on standard output and error. Colour needs a terminal and no `NO_COLOR`, a progress bar needs a terminal.
    pub fn standard(json: bool) -> Self {
        let mut output = Output::new(io::BufWriter::with_capacity(64 << 10, io::stdout()), io::stderr(), json);
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        output.color = io::stdout().is_terminal() && !plain && !json;
        if io::stdout().is_terminal() {
            output.screen = Screen::Terminal;
        }
        output.progress = io::stderr().is_terminal();
        output.notes_color = output.progress && !plain;
        output
    }

    /// Prints the results of one command on one line, as an array if there may be several.
    #[must_use]
    pub fn with_arrays(mut self) -> Self {
        self.rows = Rows::Array;
        self
    }

    /// Turns colour on or off, whatever the terminal supports.
    #[must_use]
    pub fn with_color(mut self, color: bool) -> Self {
        (self.color, self.notes_color) = (color, color);
        self
    }

    /// Formats for a screen of this size, whatever the terminal's.
    #[must_use]
    pub fn with_size(mut self, columns: u16, lines: u16) -> Self {
        self.screen = Screen::Fixed(columns, lines);
        self
    }

    /// Returns columns and lines of the screen, if there is one.
    pub fn size(&self) -> Option<(u16, u16)> {
        match self.screen {
            Screen::Endless => None,
            Screen::Terminal => console::Term::stdout().size_checked().map(|(lines, columns)| (columns, lines)),
            Screen::Fixed(columns, lines) => Some((columns, lines)),
        }
    }

    /// Whether the output is JSON.
    pub fn json(&self) -> bool {
        self.json
    }

    /// Switches between JSON and text. Returns the previous setting.
    pub fn set_json(&mut self, json: bool) -> bool {
        std::mem::replace(&mut self.json, json)
    }

    /// Whether several results form one array.
    pub fn arrays(&self) -> bool {
        self.rows == Rows::Array
    }

    /// Whether a progress bar can be shown.
    pub fn progress(&self) -> bool {
        self.progress
    }

    /// Whether results are coloured. JSON never is, even on a terminal.
    pub fn color(&self) -> bool {
        self.color && !self.json
    }

    /// Whether notes and errors are coloured.
    pub fn notes_color(&self) -> bool {
        self.notes_color
    }

    /// Prints the only result of a verb, as JSON.
    pub fn object(&mut self, object: &impl Serialize) -> Result<(), Failure> {
        debug_assert!(self.json && self.rows_written == 0);
        self.write_json(object)?;
        Ok(self.results.write_all(b"\n")?)
    }

    /// Prints one of several results of a verb, as JSON.
    pub fn row(&mut self, object: &impl Serialize) -> Result<(), Failure> {
        debug_assert!(self.json);
        match self.rows {
            Rows::Array => self.results.write_all(if self.rows_written == 0 { b"[" } else { b"," })?,
            Rows::Lines => {}
        }
        self.write_json(object)?;
        if self.rows == Rows::Lines {
            self.results.write_all(b"\n")?;
        }
        self.rows_written += 1;
        Ok(())
    }

    /// Ends the rows.
    pub fn end_rows(&mut self) -> Result<(), Failure> {
        if self.json && self.rows == Rows::Array {
            self.results.write_all(if self.rows_written == 0 { b"[]\n" } else { b"]\n" })?;
        }
        self.rows_written = 0;
        Ok(())
    }

    /// Prints a failure. After rows it becomes the last of them, so that a command still prints one line.
    pub fn failure(&mut self, failure: &Failure) -> Result<(), Failure> {
        let Some(error) = failure.error() else {
            return Ok(());
        };
        if !self.json {
            self.rows_written = 0;
            return match failure {
                Failure::Explained(_) => self.complain_of(&error),
                _ => self.error(&error),
            };
        }
        match self.rows_written {
            0 => {
                self.keep_unread(&error);
                self.object(&ErrorReport::from(&error))
            }
            _ => {
                self.error_row(&error)?;
                self.end_rows()
            }
        }
    }

    /// Prints a failure among several results of a verb, as JSON.
    pub fn error_row(&mut self, error: &Error) -> Result<(), Failure> {
        self.keep_unread(error);
        self.row(&ErrorReport::from(error))
    }

    fn keep_unread(&mut self, error: &Error) {
        if self.unread.len() < UNREAD_MAX {
            self.unread.push(error.clone());
        }
    }

    /// Whether a failure was written that may not have been delivered to a reader.
    pub(super) fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    /// Sets whether the current command adds tasks.
    pub fn set_adds(&mut self, adds: bool) {
        self.adds = adds;
    }

    /// Prints an error for people, with advice, even if results cannot be written any more.
    pub fn error(&mut self, error: &Error) -> Result<(), Failure> {
        let flushed = self.hand_on();
        self.say(error)?;
        Ok(flushed?)
    }

    fn say(&mut self, error: &Error) -> io::Result<()> {
        self.say_lines(error)?;
        if let Some(advice) = advice(error, self.adds) {
            writeln!(self.notes, "  {}", paint(self.notes_color, Style::Faint, &advice))?;
        }
        Ok(())
    }

    /// Prints an error without advice.
    fn complain_of(&mut self, error: &Error) -> Result<(), Failure> {
        let flushed = self.hand_on();
        self.say_lines(error)?;
        Ok(flushed?)
    }

    /// Prints an error, one reason a line if there are several.
    fn say_lines(&mut self, error: &Error) -> io::Result<()> {
        let lines: Vec<String> = error.message.lines().map(super::text::clean).collect();
        self.say_text(&lines.join("\n       "))
    }

    /// Prints a problem that has no error of its own.
    pub fn complain(&mut self, text: &str) -> Result<(), Failure> {
        let flushed = self.hand_on();
        self.say_text(text)?;
        Ok(flushed?)
    }

    fn say_text(&mut self, text: &str) -> io::Result<()> {
        let label = paint(self.notes_color, Style::Bad, "error:");
        let place = self.place();
        writeln!(self.notes, "{label} {place}{}", clean_lines(text))
    }

    fn place(&self) -> String {
        self.script_line.map_or_else(String::new, |line| format!("line {line}: "))
    }

    /// Inserts the script line into a text that begins with `error: `.
    pub(super) fn placed(&self, text: &str) -> String {
        match self.script_line {
            Some(line) => text.replacen("error:", &format!("error: line {line}:"), 1),
            None => text.to_owned(),
        }
    }

    /// Reports that the result could not be written. This and the failures among the results go to the notes. If these cannot be written
    /// either, only the exit code remains.
    pub fn unwritten(&mut self, why: &str, effects: Option<&str>) {
        let label = paint(self.notes_color, Style::Bad, "error:");
        let effects = effects.map_or_else(String::new, |effects| format!("; {effects}"));
        let unread = std::mem::take(&mut self.unread);
        let _ = writeln!(self.notes, "{label} {}{effects}", clean_lines(why))
            .and_then(|()| unread.iter().try_for_each(|error| self.say(error)))
            .and_then(|()| self.notes.flush());
    }

    /// Prints a line for people.
    pub fn line(&mut self, text: &str) -> Result<(), Failure> {
        debug_assert!(!self.json);
        Ok(writeln!(self.results, "{}", without_formats(text))?)
    }

    /// Prints a sentence for people, wrapped at the edge of the screen with this indent.
    pub(super) fn sentence(&mut self, indent: usize, text: &str) -> Result<(), Failure> {
        let room = self.size().map_or(usize::MAX, |(columns, _)| columns.into());
        let mut words = text.split(' ');
        let mut line = words.next().unwrap_or_default().to_owned();
        for word in words {
            if console::measure_text_width(&line) + 1 + console::measure_text_width(word) > room {
                self.line(&line)?;
                line = " ".repeat(indent) + word;
            } else {
                line += " ";
                line += word;
            }
        }
        self.line(&line)
    }

    /// Ends the line on which a terminal shows ^C. JSON output is not touched.
    pub(super) fn leave_line(&mut self) -> Result<(), Failure> {
        if self.color() { self.line("") } else { Ok(()) }
    }

    /// Ends that line before an error, on the terminal of the notes.
    pub(super) fn leave_line_of_notes(&mut self) -> Result<(), Failure> {
        if self.progress || self.notes_color { self.note("") } else { Ok(()) }
    }

    /// Prints a remark beside the results, for people or for no reader at all.
    pub fn note(&mut self, text: &str) -> Result<(), Failure> {
        let flushed = self.hand_on();
        writeln!(self.notes, "{}", without_formats(text))?;
        Ok(flushed?)
    }

    /// Prints a table for people, or the rows added since it was last printed.
    pub fn table(&mut self, grid: &mut Grid) -> Result<(), Failure> {
        self.table_rows(grid)?;
        let left_out = grid.left_out();
        if !left_out.is_empty() {
            let text = format!("no room for {}; --json has all", left_out.join(", "));
            for line in super::text::wrapped(&text, self.size().map_or(usize::MAX, |(columns, _)| columns.into())) {
                let line = paint(self.color, Style::Faint, &line);
                writeln!(self.results, "{line}")?;
            }
        }
        Ok(())
    }

    /// Prints rows of a table that goes on.
    pub fn table_rows(&mut self, grid: &mut Grid) -> Result<(), Failure> {
        debug_assert!(!self.json);
        for line in grid.print(self.size().map(|(columns, _)| columns)) {
            writeln!(self.results, "{}", without_formats(&line))?;
        }
        Ok(())
    }

    /// Clears the screen, if there is one.
    pub fn clear(&mut self) -> Result<(), Failure> {
        if self.color() {
            self.results.write_all(b"\x1b[H\x1b[2J")?;
        }
        Ok(())
    }

    /// Flushes results and notes.
    pub fn flush(&mut self) -> Result<(), Failure> {
        self.hand_on()?;
        Ok(self.notes.flush()?)
    }

    /// Flushes the results.
    fn hand_on(&mut self) -> io::Result<()> {
        self.results.flush()?;
        self.unread.clear();
        Ok(())
    }

    /// Colours a text, if colours are shown.
    pub fn paint(&self, style: Style, text: &str) -> String {
        paint(self.color, style, text)
    }

    /// Colours a state's name.
    pub fn state(&self, state: State) -> String {
        self.paint(state_style(state), state.name())
    }

    /// Creates an empty table without borders. Columns whose title begins with `#` hold numbers.
    pub fn new_table(&self, titles: &[&str]) -> Grid {
        Grid::new(titles, self.color)
    }

    fn write_json(&mut self, object: &impl Serialize) -> Result<(), Failure> {
        serde_json::to_writer(&mut self.results, object).map_err(io::Error::from)?;
        Ok(())
    }
}

fn paint(color: bool, style: Style, text: &str) -> String {
    if !color {
        return text.to_owned();
    }
    let code = match style {
        Style::Good => "32",
        Style::Bad => "31",
        Style::Busy => "33",
        Style::Bold => "1",
        Style::Faint => "2",
    };
    format!("\x1b[{code}m{text}\x1b[0m")
}

fn state_style(state: State) -> Style {
    match state {
        State::Done => Style::Good,
        State::Dead => Style::Bad,
        State::Claimed => Style::Busy,
        State::Ready => Style::Bold,
        State::Waiting | State::Cancelled => Style::Faint,
    }
}

/// Returns a table cell for a state.
pub fn state_cell(state: State) -> Cell {
    let cell = Cell::new(state.name());
    match state_style(state) {
        Style::Good => cell.fg(Color::Green),
        Style::Bad => cell.fg(Color::Red),
        Style::Busy => cell.fg(Color::Yellow),
        Style::Bold => cell.add_attribute(Attribute::Bold),
        Style::Faint => cell.add_attribute(Attribute::Dim),
    }
}
