//! Measurements of all systems over several turns, and the table of their medians.

use crate::report::{Report, Row};
use anyhow::Result;

/// Name of the rate of lifecycles, and of the CPU time that they cost.
pub const LIFECYCLES_PER_S: &str = "lifecycles_per_s";
pub const SERVERS_CPU: &str = "servers_cpu_s_per_10k";

/// One measured quantity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Value {
    /// Name with its unit.
    pub name: &'static str,
    /// Number.
    pub number: f64,
    /// Decimals for people.
    pub decimals: usize,
    /// Whether the table gives its range, and its ratio to that of the first system.
    pub compared: bool,
}

impl Value {
    /// A quantity whose median alone is shown.
    pub fn plain(name: &'static str, number: f64, decimals: usize) -> Value {
        Value { name, number, decimals, compared: false }
    }

    /// A quantity that is compared with the first system.
    pub fn compared(name: &'static str, number: f64, decimals: usize) -> Value {
        Value { name, number, decimals, compared: true }
    }
}

/// What one system did in one turn of one work.
#[derive(Debug, Clone)]
pub struct Measured {
    /// Name of the work.
    pub work: String,
    /// Name of the system.
    pub system: String,
    /// Number of the turn.
    pub turn: usize,
    /// Quantities; the same ones for all systems and turns of a work.
    pub values: Vec<Value>,
}

impl Measured {
    /// Its rate of lifecycles, if that was measured.
    pub fn lifecycles_per_s(&self) -> Option<f64> {
        self.values.iter().find(|value| value.name == LIFECYCLES_PER_S).map(|value| value.number)
    }

    /// A row about this alone, with names of at least these widths.
    pub fn row(&self, [work_width, system_width]: [usize; 2]) -> Row {
        let row = Row::default().text("work", &format!("{:<work_width$}", self.work));
        let row = row.text("system", &format!("{:<system_width$}", self.system)).count("turn", self.turn as u64);
        self.values.iter().fold(row, |row, value| row.number(value.name, value.number, value.decimals))
    }
}

/// Median, least and greatest of a quantity over the turns, and the median of its ratios to the first system.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// Name, decimals, and whether it is compared; its number is the median.
    pub value: Value,
    /// Least and greatest.
    pub range: [f64; 2],
    /// Median of the ratios of one turn each, where the first system has been measured and was not at zero.
    pub ratio: Option<f64>,
}

/// The summaries of one system in one work.
#[derive(Debug, Clone)]
pub struct Line {
    /// Name of the work.
    pub work: String,
    /// Name of the system.
    pub system: String,
    /// Its quantities.
    pub summaries: Vec<Summary>,
}

/// Summarises all turns. Works are in the order in which they were measured first, and in each work systems are in this order; the first
/// one is what others are compared with.
pub fn summarise(measured: &[Measured], systems: &[String]) -> Vec<Line> {
    let mut works: Vec<&str> = Vec::new();
    for one in measured {
        if !works.contains(&one.work.as_str()) {
            works.push(&one.work);
        }
    }
    let pairs = works.iter().flat_map(|work| systems.iter().map(move |system| (*work, system)));
    pairs.filter_map(|(work, system)| line(measured, work, system, systems.first()?)).collect()
}

fn line(measured: &[Measured], work: &str, system: &str, first: &str) -> Option<Line> {
    let of = |system: &str| measured.iter().filter(|one| one.work == work && one.system == system).collect::<Vec<_>>();
    let (own, firsts) = (of(system), of(first));
    let names = &own.first()?.values;
    let summaries = names.iter().enumerate().map(|(place, value)| {
        let numbers: Vec<f64> = own.iter().filter_map(|one| Some(one.values.get(place)?.number)).collect();
        let ratio = |one: &&Measured| {
            let same_turn = firsts.iter().find(|first| first.turn == one.turn)?;
            let base = same_turn.values.get(place)?.number;
            (base != 0.0).then(|| one.values.get(place).map(|value| value.number / base))?
        };
        let ratios: Vec<f64> = own.iter().filter_map(ratio).collect();
        let range =
            [numbers.iter().copied().fold(f64::MAX, f64::min), numbers.iter().copied().fold(f64::MIN, f64::max)];
        Summary {
            value: Value { number: median(numbers), ..*value },
            range,
            ratio: (!ratios.is_empty()).then(|| median(ratios)),
        }
    });
    Some(Line { work: work.to_owned(), system: system.to_owned(), summaries: summaries.collect() })
}

/// The middle one; between two, their mean.
pub fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    let middle = numbers.len() / 2;
    match (numbers.get(middle), numbers.len() % 2) {
        (None, _) => f64::NAN,
        (Some(number), 1) => *number,
        (Some(number), _) => f64::midpoint(numbers[middle - 1], *number),
    }
}

/// Tables in Markdown: one for each kind of work, which is a sequence of lines with the same quantities.
pub fn markdown(lines: &[Line]) -> Vec<String> {
    let names = |line: &Line| line.summaries.iter().map(|summary| summary.value.name).collect::<Vec<_>>();
    let mut text = Vec::new();
    for group in lines.chunk_by(|one, other| names(one) == names(other)) {
        if !text.is_empty() {
            text.push(String::new());
        }
        let mut header = vec!["work".to_owned(), "system".to_owned()];
        for summary in &group[0].summaries {
            header.push(summary.value.name.to_owned());
            header.extend(summary.value.compared.then(|| "ratio".to_owned()));
        }
        text.push(format!("| {} |", header.join(" | ")));
        text.push(format!("|{}", "---|".repeat(header.len())));
        text.extend(group.iter().map(|line| format!("| {} |", cells(line).join(" | "))));
    }
    text
}

fn cells(line: &Line) -> Vec<String> {
    let mut cells = vec![line.work.clone(), line.system.clone()];
    for Summary { value, range: [least, greatest], ratio } in &line.summaries {
        let decimals = value.decimals;
        let median = format!("{:.decimals$}", value.number);
        if value.compared {
            cells.push(format!("{median} ({least:.decimals$} to {greatest:.decimals$})"));
            cells.push(ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")));
        } else {
            cells.push(median);
        }
    }
    cells
}

/// Prints the summary: as a table, or as one object for each quantity that is compared.
pub fn print(report: &mut Report, lines: &[Line], json: bool) -> Result<()> {
    if !json {
        return report.lines(&markdown(lines));
    }
    for line in lines {
        let compared = line.summaries.iter().filter(|summary| summary.value.compared);
        for Summary { value, range: [least, greatest], ratio } in compared {
            let row = Row::default().text("summary", value.name).text("work", &line.work).text("system", &line.system);
            let row = row.number("median", value.number, 3).number("min", *least, 3).number("max", *greatest, 3);
            report.row(ratio.iter().fold(row, |row, ratio| row.number("ratio", *ratio, 3)))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(system: &str, turn: usize, rate: f64) -> Measured {
        let values = vec![Value::compared("per_s", rate, 0), Value::plain("p50_ms", rate / 100.0, 1)];
        Measured { work: "one".to_owned(), system: system.to_owned(), turn, values }
    }

    #[test]
    fn ratios_are_taken_turn_by_turn() {
        // The machine is ten times as slow in the second turn, for all alike.
        let all = [("norn", 0, 200.0), ("other", 0, 100.0), ("norn", 1, 20.0), ("other", 1, 10.0), ("norn", 2, 100.0)];
        let all: Vec<Measured> = all.map(|(system, turn, rate)| measured(system, turn, rate)).to_vec();
        let lines = summarise(&all, &["norn".to_owned(), "other".to_owned(), "absent".to_owned()]);
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0].summaries[0].value.number, 100.0);
        assert_eq!(lines[0].summaries[0].ratio, Some(1.0));
        assert_eq!(lines[1].summaries[0].range, [10.0, 100.0]);
        assert_eq!(lines[1].summaries[0].ratio, Some(0.5));
    }

    #[test]
    fn a_table_gives_ranges_and_ratios_of_what_is_compared() {
        let all = [measured("norn", 0, 200.0), measured("other", 0, 100.0), measured("other", 1, 300.0)];
        let lines = summarise(&all, &["norn".to_owned(), "other".to_owned()]);
        let expected = [
            "| work | system | per_s | ratio | p50_ms |",
            "|---|---|---|---|---|",
            "| one | norn | 200 (200 to 200) | 1.00 | 2.0 |",
            "| one | other | 200 (100 to 300) | 0.50 | 2.0 |",
        ];
        assert_eq!(markdown(&lines), expected);
    }

    #[test]
    fn nothing_measured_is_an_empty_table() {
        assert!(markdown(&summarise(&[], &["norn".to_owned()])).is_empty());
        assert!(median(Vec::new()).is_nan());
    }

    #[test]
    fn a_first_system_at_zero_gives_no_ratio() {
        let all = [measured("norn", 0, 0.0), measured("other", 0, 100.0)];
        let lines = summarise(&all, &["norn".to_owned(), "other".to_owned()]);
        assert_eq!(lines[1].summaries[0].ratio, None);
    }
}
