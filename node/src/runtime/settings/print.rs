//! Prints settings for operators and programs: each with its value, source, default and limits.

use super::Effective;
use norn_model::config::table;
use norn_model::config::table::{Bounds, Form, SECTIONS, Section, Setting};
use serde_json::{Value, json};
use std::fmt::Write;

impl Effective {
    /// A settings file with the same values, and the source of each in a comment.
    pub fn print(&self) -> String {
        let mut out = String::new();
        for (index, Section { title, settings }) in SECTIONS.iter().enumerate() {
            let gap = if index == 0 { "" } else { "\n" };
            writeln!(out, "{gap}## {title}").expect("a string takes everything");
            settings.iter().for_each(|setting| out.push_str(&self.print_one(setting)));
        }
        out
    }

    fn print_one(&self, setting: &Setting) -> String {
        let (value, source) = &self.values[setting.name];
        let bounds = self.bounds(setting.name).map_or_else(String::new, |Bounds { low, high, or_zero }| {
            let zero = if or_zero { "0, or " } else { "" };
            let unit = setting.number().map_or("", |number| number.unit);
            let gap = if unit.is_empty() { "" } else { " " };
            format!(", {zero}{low} to {high}{gap}{unit}")
        });
        let shown = match setting.form {
            Form::Text { .. } => toml::Value::String(value.clone()).to_string(),
            Form::Number(_) => value.clone(),
        };
        let (about, default) = (setting.about, setting.default_text());
        format!("# {about} (default {default:?}{bounds})\n{} = {shown}  # {source}\n", setting.name)
    }

    /// The same for programs: one JSON object per line. A default has the form of a value that is set.
    pub fn print_json(&self) -> String {
        let line = |section: &Section, setting: &Setting| {
            let (value, source) = &self.values[setting.name];
            let bounds = self.bounds(setting.name);
            let object = json!({
                "name": setting.name, "value": as_json(setting.form, value), "source": source.to_string(),
                "default": as_json(setting.form, &setting.default_text()),
                "limits": bounds.map(|Bounds { low, high, .. }| [low, high]),
                "or_zero": bounds.is_some_and(|bounds| bounds.or_zero), "about": setting.about,
                "unit": setting.number().map(|number| number.unit).filter(|unit| !unit.is_empty()),
                "section": section.title,
            });
            format!("{object}\n")
        };
        SECTIONS.iter().flat_map(|section| section.settings.iter().map(move |setting| line(section, setting))).collect()
    }

    /// Bounds of a number, given the other settings.
    pub(super) fn bounds(&self, name: &'static str) -> Option<Bounds> {
        let number = table::find(name)?.number()?;
        Some(number.bounds(|name| self.number(name)))
    }
}

/// A JSON number for a numeric setting, in the setting's unit, else a JSON string.
fn as_json(form: Form, text: &str) -> Value {
    match form {
        Form::Text { .. } => json!(text),
        Form::Number(_) => json!(text.parse::<u64>().expect("numbers were checked when they were set")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Settings from a file, the environment and a flag, one each.
    fn effective(file: &std::path::Path) -> Effective {
        std::fs::write(file, "heartbeat_ms = 40\nzone = \"a\"\n").unwrap();
        let own = |name: &str, value: &str| std::iter::once((name.to_owned(), value.to_owned()));
        Effective::gather(Some(file), own("NORN_RESEND_MS", "150"), own("zone", "c")).unwrap()
    }

    #[test]
    fn what_is_printed_is_a_file_that_says_the_same_and_where_that_came_from() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("norn.toml");
        let printed = effective(&file).print();
        assert!(printed.contains("zone = \"c\"  # flag\n"), "{printed}");
        assert!(printed.contains("resend_ms = 150  # environment NORN_RESEND_MS\n"), "{printed}");
        assert!(printed.contains(&format!("heartbeat_ms = 40  # file {}\n", file.display())), "{printed}");
        assert!(printed.contains("(default \"200\", 10 to 60000 ms)\nresend_ms"), "{printed}");
        assert!(printed.contains(", 4000 to 1125899906842624 ms)\nforget_after_ms = "), "{printed}");
        assert!(printed.contains(", 120 to 60000 ms)\nelection_timeout_ms = "), "{printed}");
        assert!(printed.contains(", 0, or 67108864 to 1125899906842624 B)\nmemory_bytes_max = 0"), "{printed}");
        let again: toml::Table = printed.parse().unwrap();
        assert_eq!(again.len(), table::settings().count());
    }

    #[test]
    fn programs_read_values_and_defaults_in_one_form() {
        let directory = tempfile::tempdir().unwrap();
        let printed = effective(&directory.path().join("norn.toml")).print_json();
        let objects = printed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let lines: BTreeMap<String, Value> =
            objects.map(|object| (object["name"].as_str().unwrap().to_owned(), object)).collect();
        assert_eq!(lines.len(), table::settings().count());
        let shown = |name: &str| {
            let line = &lines[name];
            (line["value"].clone(), line["default"].clone(), line["source"].clone(), line["limits"].clone())
        };
        let source = json!("environment NORN_RESEND_MS");
        assert_eq!(shown("resend_ms"), (json!(150), json!(200), source, json!([10, 60_000])));
        let of_memory = &lines["memory_bytes_max"];
        assert_eq!((&of_memory["or_zero"], &of_memory["limits"][0]), (&json!(true), &json!(67_108_864)));
        assert_eq!(shown("zone"), (json!("c"), json!(""), json!("flag"), json!(null)));
        assert_eq!(shown("retain"), (json!("7d"), json!("7d"), json!("default"), json!(null)));
        for (name, line) in &lines {
            assert_eq!(line["value"].is_number(), line["default"].is_number(), "{name}");
            if line["source"] == "default" {
                assert_eq!(line["value"], line["default"], "{name}");
            }
        }
    }
}
