//! Generates `node/docs/settings.md` from the table of settings.

use norn_model::config::table::{Floor, Form, Number, SECTIONS, Section, Setting};
use std::fmt::Write;

/// Text above the tables.
const HEAD: &str = "# Settings of a node

For operators: each setting of `norn start`, with its default, its bounds and its meaning. This file is made of the table in
`node/model/src/config/table.rs`; after a change of that, `NORN_BLESS=1 cargo test -p norn-node --lib the_document_of_the_settings`
writes it anew. [operating.md](operating.md) says which of them matter when,
[guarantees.md](guarantees.md#durability) what `sync` costs.

A setting has four sources, of which the later wins:

1. its default;
2. a TOML file: `norn start --config FILE`, or the file that the variable `NORN_CONFIG` names;
3. a variable: `NORN_` and the name in capitals, such as `NORN_HEARTBEAT_MS`. An empty one counts as not set;
4. a flag: `--set NAME=VALUE` for any setting, and flags of their own for those of the node's place.

`norn start --print-config` prints each setting with its meaning, bounds, value and source, and with `--json` an object for each
(`or_zero`: 0 is allowed, too, though it is below the limits). It refuses the values that a start refuses. A variable that
begins with `NORN_` and belongs to no setting has no effect; the node's log warns of it at the start. An unknown name
in a file or a flag is an error. All nodes of a cluster should have the same timeouts; safety does not depend on it.

Numbers are written as whole numbers of their unit, without the unit: `heartbeat_ms = 75`.
";

/// Generates the whole file.
pub fn document() -> String {
    let mut out = HEAD.to_owned();
    for Section { title, settings } in SECTIONS {
        write!(out, "\n## {title}\n\n| setting | default | allowed | meaning |\n|---|---|---|---|\n")
            .expect("a string takes everything");
        settings.iter().for_each(|setting| out.push_str(&row(setting)));
    }
    out
}

fn row(setting: &Setting) -> String {
    let (default, allowed) = match setting.form {
        Form::Text { default: "" } => (String::new(), "text".to_owned()),
        Form::Text { default } => (format!("`{default}`"), "text".to_owned()),
        Form::Number(number) => (default_of(number), allowed(number)),
    };
    format!("| `{}` | {default} | {allowed} | {} |\n", setting.name, setting.about)
}

/// The default as a number, and with its unit where that differs.
fn default_of(number: Number) -> String {
    let said = amount(number.default, number.unit);
    match said.starts_with(&number.default.to_string()) {
        true => said,
        false => format!("{} ({said})", number.default),
    }
}

fn allowed(number: Number) -> String {
    let Number { unit, low, high, or_zero, floor, .. } = number;
    let zero = if or_zero { "0, or " } else { "" };
    let floor = floor.map_or_else(String::new, |floor| format!(", at least {}", sum(floor, unit)));
    let bounds = match unit {
        _ if low == high => amount(low, unit),
        "ms" | "B" | "B/s" => format!("{} to {}", amount(low, unit), amount(high, unit)),
        // Without larger units, the unit is shown only once.
        _ => format!("{} to {}", amount(low, ""), amount(high, unit)),
    };
    format!("{zero}{bounds}{floor}")
}

fn sum(Floor { terms, plus }: Floor, unit: &str) -> String {
    let term = |(factor, name): &(u64, &str)| match factor {
        1 => format!("`{name}`"),
        _ => format!("{factor} x `{name}`"),
    };
    let constant = Some(amount(plus, unit)).filter(|_| plus > 0);
    terms.iter().map(term).chain(constant).collect::<Vec<_>>().join(" + ")
}

/// A number with its unit: the largest unit of time or size that divides it.
pub(super) fn amount(value: u64, unit: &str) -> String {
    const TIMES: [(u64, &str); 4] = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s")];
    const SIZES: [(u64, &str); 5] =
        [(1 << 50, "PiB"), (1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let larger: &[(u64, &str)] = match unit {
        "ms" => &TIMES,
        "B" | "B/s" => &SIZES,
        _ => &[],
    };
    if value == 0 {
        return "0".to_owned();
    }
    if let Some((size, name)) = larger.iter().find(|(size, _)| value.is_multiple_of(*size)) {
        let rate = if unit.ends_with("/s") { "/s" } else { "" };
        return format!("{} {name}{rate}", value / size);
    }
    let number = match value.is_power_of_two() && value >= 1 << 20 {
        true => format!("2^{}", value.trailing_zeros()),
        false => value.to_string(),
    };
    format!("{number} {unit}").trim_end().to_owned()
}
