//! A strict reader of the text format of OpenMetrics 1.0, as far as the metrics use it.

use std::collections::{BTreeMap, BTreeSet};

/// A family of samples.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Family {
    /// Type.
    pub kind: String,
    /// Names of labels.
    pub labels: BTreeSet<String>,
    /// Name with labels, as written, and value.
    pub samples: Vec<(String, f64)>,
}

/// Families by name, or the first rule that the text breaks.
pub fn check(text: &str) -> Result<BTreeMap<String, Family>, String> {
    let body = text.strip_suffix("# EOF\n").ok_or("it does not end in # EOF")?;
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let (mut current, mut seen) = (String::new(), BTreeSet::new());
    for line in body.split_terminator('\n') {
        let wrong = |why: &str| Err(format!("{line:?}: {why}"));
        if let Some(rest) = line.strip_prefix("# ") {
            let mut words = rest.splitn(3, ' ');
            let (Some(what), Some(name), Some(value)) = (words.next(), words.next(), words.next()) else {
                return wrong("not a descriptor");
            };
            if name != current {
                if families.contains_key(name) {
                    return wrong("the family comes twice");
                }
                current = name.to_owned();
                families.insert(current.clone(), Family::default());
            }
            let family = families.get_mut(&current).ok_or("no family")?;
            match what {
                "TYPE" if family.kind.is_empty() && family.samples.is_empty() => family.kind = value.to_owned(),
                "HELP" if family.samples.is_empty() && !value.contains('"') => {}
                "UNIT" if name.ends_with(&format!("_{value}")) => {}
                _ => return wrong("a descriptor that does not fit"),
            }
            continue;
        }
        let family = families.get_mut(&current).ok_or("a sample without a family")?;
        let (id, value) = line.rsplit_once(' ').ok_or_else(|| format!("{line:?}: no value"))?;
        let (name, labels) = labels_of(id)?;
        if !suffixes(&family.kind).iter().any(|suffix| name == format!("{current}{suffix}")) {
            return wrong("the name does not fit its type");
        }
        if !seen.insert(id.to_owned()) {
            return wrong("the sample comes twice");
        }
        let value: f64 = value.parse().map_err(|_| format!("{line:?}: no number"))?;
        if family.kind == "counter" && (value < 0.0 || value.is_nan()) {
            return wrong("a counter below zero");
        }
        family.labels.extend(labels);
        family.samples.push((id.to_owned(), value));
    }
    families.iter().filter(|(_, family)| family.kind == "histogram").try_for_each(check_histogram)?;
    match families.iter().find(|(_, family)| family.samples.is_empty()) {
        Some((name, _)) => Err(format!("{name} has no sample")),
        None => Ok(families),
    }
}

fn suffixes(kind: &str) -> &'static [&'static str] {
    match kind {
        "counter" => &["_total"],
        "gauge" => &[""],
        "info" => &["_info"],
        "histogram" => &["_sum", "_count", "_bucket"],
        _ => &[],
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(|first: char| first.is_ascii_digit())
        && text.chars().all(|character| character.is_ascii_alphanumeric() || character == '_')
}

/// The name of a sample, and the names of its labels.
fn labels_of(id: &str) -> Result<(String, Vec<String>), String> {
    let (name, rest) = id.split_once('{').unwrap_or((id, "}"));
    let mut names = Vec::new();
    let mut rest = rest.strip_suffix('}').ok_or_else(|| format!("{id:?}: labels without an end"))?;
    while !rest.is_empty() {
        let (label, behind) = rest.split_once("=\"").ok_or_else(|| format!("{id:?}: a label without a value"))?;
        let mut escaped = false;
        let end = behind.char_indices().find(|(_, character)| {
            let is_end = *character == '"' && !escaped;
            escaped = *character == '\\' && !escaped;
            is_end
        });
        let (end, _) = end.ok_or_else(|| format!("{id:?}: a value without an end"))?;
        if !is_name(label) || names.contains(&label.to_owned()) {
            return Err(format!("{id:?}: {label:?} is no name of a label, or comes twice"));
        }
        names.push(label.to_owned());
        rest = &behind[end + 1..];
        rest =
            if rest.is_empty() { rest } else { rest.strip_prefix(',').ok_or_else(|| format!("{id:?}: no comma"))? };
    }
    if is_name(name) { Ok((name.to_owned(), names)) } else { Err(format!("{id:?}: no name")) }
}

/// Bounds and values of buckets, and the count.
type Buckets = (Vec<(f64, f64)>, Option<f64>);

/// Buckets grow, end with +Inf, and that is the count.
fn check_histogram((name, family): (&String, &Family)) -> Result<(), String> {
    let mut groups: BTreeMap<String, Buckets> = BTreeMap::new();
    for (id, value) in &family.samples {
        let (sample, labels) = id.split_once('{').unwrap_or((id, "}"));
        let pairs = labels.trim_end_matches('}').split("\",").map(|pair| pair.trim_end_matches('"'));
        let (bounds, others): (Vec<&str>, Vec<&str>) =
            pairs.filter(|pair| !pair.is_empty()).partition(|pair| pair.starts_with("le=\""));
        let group = groups.entry(others.join(",")).or_default();
        match (sample.strip_prefix(name.as_str()), bounds.first()) {
            (Some("_bucket"), Some(bound)) => {
                let bound = bound.trim_start_matches("le=\"").replace("+Inf", "inf");
                group.0.push((bound.parse().map_err(|_| format!("{id}: no bound"))?, *value));
            }
            (Some("_count"), None) => group.1 = Some(*value),
            (Some("_sum"), None) => {}
            _ => return Err(format!("{id}: a bound where there should be none, or none")),
        }
    }
    for (labels, (buckets, count)) in groups {
        let grows = buckets.is_sorted_by(|(bound, value), (next, more)| bound < next && value <= more);
        let last = buckets.last().copied().ok_or_else(|| format!("{name}{{{labels}}}: no buckets"))?;
        if !grows || last.0 != f64::INFINITY || Some(last.1) != count {
            return Err(format!("{name}{{{labels}}}: buckets {buckets:?} do not fit the count {count:?}"));
        }
    }
    Ok(())
}

#[test]
fn texts_that_break_the_rules_are_found() {
    let good = "# HELP a_seconds A.\n# TYPE a_seconds counter\n# UNIT a_seconds seconds\na_seconds_total{b=\"x,\\\"y\"} 1\n# EOF\n";
    assert_eq!(check(good).unwrap()["a_seconds"].labels.len(), 1);
    for (from, to) in [
        ("# EOF\n", ""),
        ("_total", ""),
        ("counter", "gauge"),
        ("} 1", "} x"),
        ("} 1", "} -1"),
        ("b=\"x", "b=x"),
        ("UNIT a_seconds seconds", "UNIT a_seconds bytes"),
        ("a_seconds_total{", "b_total{"),
    ] {
        assert!(check(&good.replacen(from, to, 1)).is_err(), "{from} {to}");
    }
    let times = "# TYPE a histogram\na_sum 1\na_count 2\na_bucket{le=\"1.0\"} 1\na_bucket{le=\"+Inf\"} 2\n# EOF\n";
    check(times).unwrap();
    for (from, to) in [("} 1", "} 3"), ("a_count 2", "a_count 3"), ("+Inf", "0.5")] {
        assert!(check(&times.replacen(from, to, 1)).is_err(), "{from} {to}");
    }
}
