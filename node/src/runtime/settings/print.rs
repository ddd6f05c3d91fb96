//! Settings as people and programs read them: each with its value, its source, its default and its limits.

use super::{DEFINITIONS, Definition, Effective, Form};
use serde_json::{Value, json};
use std::fmt::Write;

impl Effective {
    /// A file that says the same, with where each value came from.
    pub fn print(&self) -> String {
        let mut out = String::new();
        for definition in DEFINITIONS {
            let (value, source) = &self.values[definition.name];
            let zero = if matches!(definition.form, Form::ZeroOr(..)) { "0, or " } else { "" };
            let limits = self.limits(definition);
            let limits = limits.map_or_else(String::new, |[low, high]| format!(", {zero}{low} to {high}"));
            let shown = match definition.form {
                Form::Text => toml::Value::String(value.clone()).to_string(),
                Form::Number(..) | Form::ZeroOr(..) => value.clone(),
            };
            writeln!(out, "# {} (default {:?}{limits})", definition.about, definition.default)
                .and_then(|()| writeln!(out, "{} = {shown}  # {source}", definition.name))
                .expect("a string takes everything");
        }
        out
    }

    /// The same for programs: an object a line. A default has the form of a value that is set.
    pub fn print_json(&self) -> String {
        let line = |definition: &Definition| {
            let (value, source) = &self.values[definition.name];
            let limits = self.limits(definition);
            let Definition { name, form, default, about } = *definition;
            let (value, default, source) = (as_json(form, value), as_json(form, default), source.to_string());
            let or_zero = matches!(form, Form::ZeroOr(..));
            let object = json!({
                "name": name, "value": value, "source": source, "default": default, "limits": limits, "or_zero": or_zero,
                "about": about,
            });
            format!("{object}\n")
        };
        DEFINITIONS.iter().map(line).collect()
    }

    /// Of a number, but for a 0 below them, beside the other settings; some depend on others.
    fn limits(&self, definition: &Definition) -> Option<[u64; 2]> {
        let [low, high] = definition.form.limits()?;
        let least = match definition.name {
            "forget_after_ms" => self.number("request_timeout_ms") * 2,
            "disk_bytes_max" => self.disk_bytes_least(),
            "election_timeout_ms" => self.number("heartbeat_ms") * 3,
            _ => low,
        };
        Some([low.max(least), high])
    }
}

/// A number in the unit of its setting where that takes numbers, and else a text.
fn as_json(form: Form, text: &str) -> Value {
    match form {
        Form::Text => json!(text),
        Form::Number(..) | Form::ZeroOr(..) => {
            json!(text.parse::<u64>().expect("numbers were checked when they were set"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Of a file, the environment and a flag, one each.
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
        assert!(printed.contains("(default \"200\", 10 to 60000)\nresend_ms"), "{printed}");
        assert!(printed.contains(", 4000 to 1125899906842624)\nforget_after_ms = "), "{printed}");
        assert!(printed.contains(", 120 to 60000)\nelection_timeout_ms = "), "{printed}");
        assert!(printed.contains(", 0, or 67108864 to 1125899906842624)\nmemory_bytes_max = 0"), "{printed}");
        let again: toml::Table = printed.parse().unwrap();
        assert_eq!(again.len(), DEFINITIONS.len());
    }

    #[test]
    fn programs_read_values_and_defaults_in_one_form() {
        let directory = tempfile::tempdir().unwrap();
        let printed = effective(&directory.path().join("norn.toml")).print_json();
        let objects = printed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let lines: BTreeMap<String, Value> =
            objects.map(|object| (object["name"].as_str().unwrap().to_owned(), object)).collect();
        assert_eq!(lines.len(), DEFINITIONS.len());
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
