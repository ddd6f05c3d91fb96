//! Output lines for people or for scripts.

use anyhow::Result;
use serde_json::{Map, Value};
use std::io::Write;

/// One output line: names with values, in order.
#[derive(Debug, Default)]
pub struct Row {
    cells: Vec<(&'static str, Value, usize)>,
}

impl Row {
    /// Adds a text.
    #[must_use]
    pub fn text(mut self, name: &'static str, text: &str) -> Self {
        self.cells.push((name, Value::from(text), 0));
        self
    }

    /// Adds a whole number.
    #[must_use]
    pub fn count(mut self, name: &'static str, count: u64) -> Self {
        self.cells.push((name, Value::from(count), 0));
        self
    }

    /// Adds a number, printed for people with this many decimals.
    #[must_use]
    pub fn number(mut self, name: &'static str, number: f64, decimals: usize) -> Self {
        self.cells.push((name, Value::from(number), decimals));
        self
    }

    fn shown(value: &Value, decimals: usize) -> String {
        match value {
            Value::String(text) => text.clone(),
            Value::Number(number) if number.is_f64() => format!("{:.decimals$}", number.as_f64().unwrap_or(f64::NAN)),
            other => other.to_string(),
        }
    }
}

/// Destination of rows.
#[derive(Debug)]
pub struct Report {
    json: bool,
    header: Vec<&'static str>,
}

impl Report {
    /// Rows go to standard output, as JSON objects or aligned.
    pub fn new(json: bool) -> Report {
        Report { json, header: Vec::new() }
    }

    /// Prints lines that are only for people, after the rows.
    pub fn lines(&mut self, lines: &[String]) -> Result<()> {
        if self.json {
            return Ok(());
        }
        let mut out = std::io::stdout().lock();
        self.header.clear();
        writeln!(out)?;
        lines.iter().try_for_each(|line| writeln!(out, "{line}"))?;
        Ok(out.flush()?)
    }

    /// Prints a row at once, so that a long benchmark shows its progress.
    pub fn row(&mut self, row: Row) -> Result<()> {
        let mut out = std::io::stdout().lock();
        if self.json {
            let object: Map<String, Value> =
                row.cells.into_iter().map(|(name, value, _)| (name.to_owned(), value)).collect();
            writeln!(out, "{}", Value::Object(object))?;
            return Ok(out.flush()?);
        }
        let names: Vec<&'static str> = row.cells.iter().map(|(name, ..)| *name).collect();
        let width = |name: &str| name.len().max(10);
        if names != self.header {
            let header: Vec<String> = names.iter().map(|name| format!("{name:>0$}", width(name))).collect();
            writeln!(out, "{}", header.join("  "))?;
            self.header = names;
        }
        let cells: Vec<String> = row
            .cells
            .iter()
            .map(|(name, value, decimals)| format!("{:>1$}", Row::shown(value, *decimals), width(name)))
            .collect();
        writeln!(out, "{}", cells.join("  "))?;
        Ok(out.flush()?)
    }
}
