//! Where results go: tables and short lines for people, JSON lines for programs.

use super::error::{Failure, advice};
use super::json;
use super::table::Grid;
use super::text::{clean_lines, without_formats};
use comfy_table::{Attribute, Cell, Color};
use norn_wire::{Error, State};
use serde::Serialize;
use std::io::{self, IsTerminal, Write};

/// A colour or weight on a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// It went well.
    Good,
    /// It failed.
    Bad,
    /// It is under way.
    Busy,
    /// What matters.
    Bold,
    /// Beside the point.
    Faint,
}

/// Of the programs' results, how several stand together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rows {
    /// One object per line.
    Lines,
    /// One array on one line.
    Array,
}

/// How much room there is for results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Screen {
    /// A file or a pipe.
    Endless,
    /// A terminal, whose size may change.
    Terminal,
    /// Columns and lines.
    Fixed(u16, u16),
}

/// Most failures that are said once more where they could not be written as results.
const UNREAD_MAX: usize = 8;

/// Where results go.
pub struct Output {
    results: Box<dyn Write + Send>,
    notes: Box<dyn Write + Send>,
    json: bool,
    color: bool,
    notes_color: bool,
    progress: bool,
    /// The command that runs adds tasks.
    adds: bool,
    screen: Screen,
    rows: Rows,
    /// Rows written since the last [`Output::end_rows`].
    rows_written: u64,
    /// Of the failures among them, some that nobody may have read.
    unread: Vec<Error>,
    /// Of a script, the line whose command runs, for people to read in errors.
    pub(crate) script_line: Option<u64>,
}

impl Output {
    /// Results on `results`, notes and errors for people on `notes`; without colour or progress.
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

    /// Standard output and error. Colour needs a terminal and no `NO_COLOR`, a progress bar a terminal.
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

    /// Puts the results of one command on one line, as an array where there may be several.
    #[must_use]
    pub fn with_arrays(mut self) -> Self {
        self.rows = Rows::Array;
        self
    }

    /// With or without colour, whatever the terminal says.
    #[must_use]
    pub fn with_color(mut self, color: bool) -> Self {
        (self.color, self.notes_color) = (color, color);
        self
    }

    /// As on a screen of this size, whatever the terminal says.
    #[must_use]
    pub fn with_size(mut self, columns: u16, lines: u16) -> Self {
        self.screen = Screen::Fixed(columns, lines);
        self
    }

    /// Columns and lines of the screen, if there is one.
    pub fn size(&self) -> Option<(u16, u16)> {
        match self.screen {
            Screen::Endless => None,
            Screen::Terminal => console::Term::stdout().size_checked().map(|(lines, columns)| (columns, lines)),
            Screen::Fixed(columns, lines) => Some((columns, lines)),
        }
    }

    /// Whether programs read.
    pub fn json(&self) -> bool {
        self.json
    }

    /// For programs or for people, from now on. Says what it was.
    pub fn set_json(&mut self, json: bool) -> bool {
        std::mem::replace(&mut self.json, json)
    }

    /// Whether several results stand in one array.
    pub fn arrays(&self) -> bool {
        self.rows == Rows::Array
    }

    /// Whether a progress bar can be shown.
    pub fn progress(&self) -> bool {
        self.progress
    }

    /// Whether results are coloured. What programs read is not, also on a terminal.
    pub fn color(&self) -> bool {
        self.color && !self.json
    }

    /// Whether notes and errors are coloured.
    pub fn notes_color(&self) -> bool {
        self.notes_color
    }

    /// The one result of a verb, for programs.
    pub fn object(&mut self, object: &impl Serialize) -> Result<(), Failure> {
        debug_assert!(self.json && self.rows_written == 0);
        self.write_json(object)?;
        Ok(self.results.write_all(b"\n")?)
    }

    /// One of several results of a verb, for programs.
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

    /// There are no more rows.
    pub fn end_rows(&mut self) -> Result<(), Failure> {
        if self.json && self.rows == Rows::Array {
            self.results.write_all(if self.rows_written == 0 { b"[]\n" } else { b"]\n" })?;
        }
        self.rows_written = 0;
        Ok(())
    }

    /// A failure. Where rows went before it, it is the last of them, so that a line stays a line.
    pub fn failure(&mut self, failure: &Failure) -> Result<(), Failure> {
        let Some(error) = failure.error() else {
            return Ok(());
        };
        if !self.json {
            self.rows_written = 0;
            return match failure {
                Failure::Told(_) => self.complain_of(&error),
                _ => self.error(&error),
            };
        }
        match self.rows_written {
            0 => {
                self.keep_unread(&error);
                self.object(&json::error(&error))
            }
            _ => {
                self.error_row(&error)?;
                self.end_rows()
            }
        }
    }

    /// A failure among several results of a verb, for programs.
    pub fn error_row(&mut self, error: &Error) -> Result<(), Failure> {
        self.keep_unread(error);
        self.row(&json::error(error))
    }

    fn keep_unread(&mut self, error: &Error) {
        if self.unread.len() < UNREAD_MAX {
            self.unread.push(error.clone());
        }
    }

    /// Whether a failure was written that nobody may have read.
    pub(super) fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    /// Whether the command that runs adds tasks.
    pub fn set_adds(&mut self, adds: bool) {
        self.adds = adds;
    }

    /// An error for people, with what to do. It is said also where results cannot be written any more.
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

    /// The same without advice.
    fn complain_of(&mut self, error: &Error) -> Result<(), Failure> {
        let flushed = self.hand_on();
        self.say_lines(error)?;
        Ok(flushed?)
    }

    /// One reason a line, where there are several.
    fn say_lines(&mut self, error: &Error) -> io::Result<()> {
        let lines: Vec<String> = error.message.lines().map(super::text::clean).collect();
        self.say_text(&lines.join("\n       "))
    }

    /// What went wrong, in our own words.
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

    /// An error that begins with `error: `, with the line of the script that it is about.
    pub(super) fn placed(&self, text: &str) -> String {
        match self.script_line {
            Some(line) => text.replacen("error:", &format!("error: line {line}:"), 1),
            None => text.to_owned(),
        }
    }

    /// The result could not be written, and neither can anything else be there: this goes to where notes go, with the failures that are
    /// among it. The exit code remains where these cannot be written either.
    pub fn unwritten(&mut self, why: &str, effects: Option<&str>) {
        let label = paint(self.notes_color, Style::Bad, "error:");
        let effects = effects.map_or_else(String::new, |effects| format!("; {effects}"));
        let unread = std::mem::take(&mut self.unread);
        let _ = writeln!(self.notes, "{label} {}{effects}", clean_lines(why))
            .and_then(|()| unread.iter().try_for_each(|error| self.say(error)))
            .and_then(|()| self.notes.flush());
    }

    /// A line for people.
    pub fn line(&mut self, text: &str) -> Result<(), Failure> {
        debug_assert!(!self.json);
        Ok(writeln!(self.results, "{}", without_formats(text))?)
    }

    /// A sentence for people. Where the screen ends it goes on in the next line, so far from its left edge.
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

    /// Leaves the line on which a terminal shows ^C. What programs read goes on as it is.
    pub(super) fn leave_line(&mut self) -> Result<(), Failure> {
        if self.color() { self.line("") } else { Ok(()) }
    }

    /// The same before an error, on the terminal where errors are.
    pub(super) fn leave_line_of_notes(&mut self) -> Result<(), Failure> {
        if self.progress || self.notes_color { self.note("") } else { Ok(()) }
    }

    /// A remark beside the results, whoever reads them, or nobody.
    pub fn note(&mut self, text: &str) -> Result<(), Failure> {
        let flushed = self.hand_on();
        writeln!(self.notes, "{}", without_formats(text))?;
        Ok(flushed?)
    }

    /// A table for people, or the rows that it got since it was printed.
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

    /// The same for a table that goes on.
    pub fn table_rows(&mut self, grid: &mut Grid) -> Result<(), Failure> {
        debug_assert!(!self.json);
        for line in grid.print(self.size().map(|(columns, _)| columns)) {
            writeln!(self.results, "{}", without_formats(&line))?;
        }
        Ok(())
    }

    /// Wipes the screen, where there is one.
    pub fn clear(&mut self) -> Result<(), Failure> {
        if self.color() {
            self.results.write_all(b"\x1b[H\x1b[2J")?;
        }
        Ok(())
    }

    /// Hands everything on to its readers.
    pub fn flush(&mut self) -> Result<(), Failure> {
        self.hand_on()?;
        Ok(self.notes.flush()?)
    }

    /// Hands the results on to their reader.
    fn hand_on(&mut self) -> io::Result<()> {
        self.results.flush()?;
        self.unread.clear();
        Ok(())
    }

    /// Colours a text, where colours are shown.
    pub fn paint(&self, style: Style, text: &str) -> String {
        paint(self.color, style, text)
    }

    /// Colours a state's name.
    pub fn state(&self, state: State) -> String {
        self.paint(state_style(state), state.name())
    }

    /// An empty table without borders. Columns whose title begins with `#` hold numbers.
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

/// A state in a table.
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
