//! A chart of the table as SVG: for each quantity a panel, in it a group of bars for each work, and in that a bar for each system.

use super::table::{Line, Summary};
use std::fmt::Write;

/// Widths, in pixels.
const WIDTH: f64 = 860.0;
const LABELS_WIDTH: f64 = 200.0;
const NUMBERS_WIDTH: f64 = 150.0;
/// Heights, in pixels.
const BAR_HEIGHT: f64 = 14.0;
const GROUP_GAP: f64 = 12.0;
const TITLE_HEIGHT: f64 = 40.0;
const AXIS_HEIGHT: f64 = 24.0;
const MARGIN: f64 = 16.0;
/// Ratio of greatest to least number above which the axis is logarithmic.
const LOGARITHMIC_FROM: f64 = 20.0;
/// Most marks on an axis.
const MARKS_MAX: u32 = 12;
/// Colours that are told apart on light and dark ground, also by those who confuse red and green.
const COLOURS: [&str; 7] = ["#3b82c4", "#e08a1e", "#2f9e8f", "#b4559f", "#8c8c3a", "#c8553d", "#7a7a7a"];
const STYLE: &str = "text{font:12px sans-serif;fill:#222}.t{font-size:14px;font-weight:bold}.g{stroke:#d5d5d5}\
    .w{stroke:#222}.b{fill:#fff}@media(prefers-color-scheme:dark){text{fill:#e6e6e6}.g{stroke:#444}.w{stroke:#e6e6e6}.b{fill:#161616}}";

/// A quantity to be drawn.
#[derive(Debug, Clone, Copy)]
pub struct Quantity {
    /// Its name in the table.
    pub name: &'static str,
    /// Title of its panel.
    pub title: &'static str,
}

/// Scale of an axis.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Scale {
    /// From zero to a number.
    Linear(f64),
    /// Between two powers of ten, given as exponents.
    Logarithmic(i32, i32),
}

impl Scale {
    /// A scale for all these numbers above zero.
    fn of(numbers: &[f64]) -> Scale {
        let least = numbers.iter().copied().fold(f64::MAX, f64::min);
        let greatest = numbers.iter().copied().fold(f64::MIN, f64::max);
        if greatest / least < LOGARITHMIC_FROM {
            return Scale::Linear(greatest);
        }
        let from = (least.log10() - 0.1).floor() as i32;
        Scale::Logarithmic(from, (greatest.log10().ceil() as i32).max(from + 1))
    }

    /// Place of a number on the axis, from 0 to 1.
    fn place(self, number: f64) -> f64 {
        let place = match self {
            Scale::Linear(greatest) => number / greatest,
            Scale::Logarithmic(from, to) => (number.log10() - f64::from(from)) / f64::from(to - from),
        };
        if place.is_finite() { place.clamp(0.0, 1.0) } else { 0.0 }
    }

    fn marks(self) -> Vec<f64> {
        match self {
            Scale::Linear(greatest) => {
                let power = 10_f64.powf(greatest.log10().floor());
                let steps = [0.1, 0.2, 0.5, 1.0].map(|part| part * power);
                let step = steps.into_iter().find(|step| greatest / step <= 8.0).unwrap_or(power);
                (0..MARKS_MAX).map(|mark| f64::from(mark) * step).take_while(|mark| *mark <= greatest).collect()
            }
            Scale::Logarithmic(from, to) => {
                (from..=to).take(MARKS_MAX as usize).map(|power| 10_f64.powi(power)).collect()
            }
        }
    }
}

/// The chart, or nothing where none of the quantities has been measured.
pub fn draw(lines: &[Line], quantities: &[Quantity], caption: &str) -> Option<String> {
    let mut systems: Vec<&str> = Vec::new();
    for line in lines {
        if !systems.contains(&line.system.as_str()) {
            systems.push(&line.system);
        }
    }
    let (mut body, mut height) = (String::new(), MARGIN);
    for quantity in quantities {
        height = panel(&mut body, height, lines, *quantity, &systems);
    }
    if body.is_empty() {
        return None;
    }
    height += MARGIN;
    text(&mut body, MARGIN, height, "", caption);
    height += MARGIN;
    Some(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH:.0} {height:.0}\" width=\"{WIDTH:.0}\" \
         height=\"{height:.0}\" role=\"img\">\n<style>{STYLE}</style>\n\
         <rect class=\"b\" width=\"{WIDTH:.0}\" height=\"{height:.0}\"/>\n{body}</svg>\n"
    ))
}

/// Draws one quantity from a height on; returns the height below it.
fn panel(body: &mut String, top: f64, lines: &[Line], quantity: Quantity, systems: &[&str]) -> f64 {
    let of = |line: &Line| line.summaries.iter().find(|summary| summary.value.name == quantity.name).copied();
    let bars: Vec<(&Line, Summary)> = lines
        .iter()
        .filter_map(|line| Some((line, of(line)?)))
        .filter(|(_, summary)| summary.value.number > 0.0 && summary.range[0] > 0.0)
        .collect();
    if bars.is_empty() {
        return top;
    }
    let numbers: Vec<f64> = bars.iter().flat_map(|(_, summary)| summary.range).collect();
    let scale = Scale::of(&numbers);
    let groups = bars.chunk_by(|(one, _), (other, _)| one.work == other.work).count();
    let bars_height = bars.len() as f64 * BAR_HEIGHT + groups as f64 * GROUP_GAP;
    let first = top + TITLE_HEIGHT;
    let kind = if matches!(scale, Scale::Logarithmic(..)) { ", logarithmic" } else { "" };
    text(body, MARGIN, top + 20.0, " class=\"t\"", &format!("{}{kind}", quantity.title));
    axis(body, scale, first, first + bars_height);
    let mut y = first;
    for group in bars.chunk_by(|(one, _), (other, _)| one.work == other.work) {
        y += GROUP_GAP / 2.0;
        let middle = y + group.len() as f64 * BAR_HEIGHT / 2.0 + 4.0;
        text(body, MARGIN, middle, "", &group[0].0.work);
        for (line, summary) in group {
            let colour = systems.iter().position(|system| *system == line.system).unwrap_or_default();
            bar(body, scale, y, &line.system, *summary, COLOURS[colour % COLOURS.len()]);
            y += BAR_HEIGHT;
        }
        y += GROUP_GAP / 2.0;
    }
    y + AXIS_HEIGHT
}

/// The width between the labels and the numbers.
fn x(scale: Scale, number: f64) -> f64 {
    LABELS_WIDTH + scale.place(number) * (WIDTH - LABELS_WIDTH - NUMBERS_WIDTH)
}

fn axis(body: &mut String, scale: Scale, top: f64, bottom: f64) {
    for mark in scale.marks() {
        let x = x(scale, mark);
        let _ = writeln!(body, "<line class=\"g\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top:.1}\" y2=\"{bottom:.1}\"/>");
        text(body, x, bottom + 14.0, " text-anchor=\"middle\"", &shown(mark));
    }
}

fn bar(body: &mut String, scale: Scale, y: f64, system: &str, summary: Summary, colour: &str) {
    let (end, [least, greatest]) = (x(scale, summary.value.number), summary.range.map(|number| x(scale, number)));
    let (height, width) = (BAR_HEIGHT - 2.0, end - LABELS_WIDTH);
    let _ = writeln!(
        body,
        "<rect x=\"{LABELS_WIDTH:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\"/>"
    );
    if greatest - least > 1.0 {
        let middle = y + height / 2.0;
        let _ = writeln!(
            body,
            "<line class=\"w\" x1=\"{least:.1}\" x2=\"{greatest:.1}\" y1=\"{middle:.1}\" y2=\"{middle:.1}\"/>"
        );
    }
    let label = format!("{system} {}", shown(summary.value.number));
    text(body, end.max(greatest) + 6.0, y + height - 2.0, "", &label);
}

/// A number with three digits that matter.
fn shown(number: f64) -> String {
    match number {
        0.0 => "0".to_owned(),
        number if number >= 1e6 => format!("{:.3}M", number / 1e6).replace(".000", ""),
        number if number >= 1e4 => format!("{:.1}k", number / 1e3).replace(".0k", "k"),
        number if number >= 100.0 => format!("{number:.0}"),
        number if number >= 1.0 => trimmed(&format!("{number:.2}")),
        number => trimmed(&format!("{number:.4}")),
    }
}

fn trimmed(number: &str) -> String {
    number.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn text(body: &mut String, x: f64, y: f64, attributes: &str, text: &str) {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _ = writeln!(body, "<text x=\"{x:.1}\" y=\"{y:.1}\"{attributes}>{text}</text>");
}

#[cfg(test)]
mod tests {
    use super::super::table::{Measured, Value, summarise};
    use super::*;

    const RATE: Quantity = Quantity { name: "per_s", title: "Rate" };

    fn chart(numbers: &[(&str, &str, f64)], quantity: Quantity) -> Option<String> {
        let measured = |(work, system, number): &(&str, &str, f64)| Measured {
            work: (*work).to_owned(),
            system: (*system).to_owned(),
            turn: 0,
            values: vec![Value::compared("per_s", *number, 0)],
        };
        let measured: Vec<Measured> = numbers.iter().map(measured).collect();
        let systems = ["norn".to_owned(), "a<b".to_owned()];
        draw(&summarise(&measured, &systems), &[quantity], "a caption & more")
    }

    #[test]
    fn each_measurement_is_a_bar_with_a_label() {
        let numbers = [("one", "norn", 1_000.0), ("one", "a<b", 10.0), ("two", "norn", 500.0)];
        let chart = chart(&numbers, RATE).expect("a chart");
        assert_eq!(chart.matches("<rect x=").count(), 3, "{chart}");
        assert!(
            chart.contains("Rate, logarithmic") && chart.contains("norn 1000") && chart.contains("a&lt;b 10"),
            "{chart}"
        );
        assert!(chart.contains("a caption &amp; more") && chart.contains("prefers-color-scheme:dark"));
        assert!(!chart.contains("NaN") && !chart.contains("inf") && !chart.contains("\"-"), "{chart}");
    }

    #[test]
    fn what_has_not_been_measured_is_not_drawn() {
        assert_eq!(chart(&[("one", "norn", 1.0)], Quantity { name: "other", title: "Other" }), None);
        // Nothing has a place on a logarithmic axis at zero.
        assert_eq!(chart(&[("one", "norn", 0.0)], RATE), None);
        assert_eq!(chart(&[], RATE), None);
    }

    #[test]
    fn a_scale_covers_its_numbers() {
        assert_eq!(Scale::of(&[3.0, 5.0]), Scale::Linear(5.0));
        assert_eq!(Scale::of(&[3.0, 500.0]), Scale::Logarithmic(0, 3));
        assert_eq!(Scale::of(&[10.0, 1_000.0]), Scale::Logarithmic(0, 3));
        assert_eq!(Scale::of(&[0.5, 900.0]).marks(), [0.1, 1.0, 10.0, 100.0, 1_000.0]);
        for numbers in [[0.02, 0.03], [7.0, 9.99], [99.0, 100.0]] {
            let scale = Scale::of(&numbers);
            let marks = scale.marks();
            assert!((2..=11).contains(&marks.len()), "{numbers:?}: {marks:?}");
            assert_eq!(scale.place(numbers[1]), 1.0);
        }
    }

    #[test]
    fn numbers_are_short() {
        let numbers = [0.0, 0.01234, 0.5, 1.0, 12.34, 123.4, 12_345.0, 20_000.0, 1_000_000.0];
        assert_eq!(numbers.map(shown), ["0", "0.0123", "0.5", "1", "12.34", "123", "12.3k", "20k", "1M"]);
    }
}
