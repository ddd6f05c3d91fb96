//! What is published about the metrics: the table in the document, the panels, the alerts.

use crate::metrics::table::{ELSEWHERE, Kind, METRICS, Metric, Today};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Labels that Prometheus adds.
const ADDED: [&str; 2] = ["instance", "job"];
const BEGIN: &str = "<!-- The table is that of `node/doors/src/metrics/table.rs`: -->\n";
const END: &str = "<!-- The end of the table. -->\n";

fn node() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn row(metric: &Metric) -> String {
    let Metric { name, kind, labels, about, today, .. } = metric;
    let shown = match kind {
        Kind::Counter => format!("{name}_total"),
        Kind::Info => format!("{name}_info"),
        Kind::Gauge | Kind::Histogram => (*name).to_owned(),
    };
    let labels = if labels.is_empty() { String::new() } else { format!(" {{{}}}", labels.join(", ")) };
    let today: Vec<&str> = match today {
        Today::Same(today) | Today::Ms(today) | Today::Minutes(today) => vec![today],
        Today::Absent => ELSEWHERE.iter().filter(|(_, of)| of == name).map(|(today, _)| *today).collect(),
    };
    let today: Vec<String> = today.iter().map(|today| format!("`{today}`")).collect();
    format!("| `{shown}`{labels} | {} | {about} | {} |\n", kind.name(), today.join(", "))
}

fn table() -> String {
    let rows: String = METRICS.iter().copied().flatten().map(row).collect();
    format!("| name {{labels}} | type | meaning | in `norn status` |\n|---|---|---|---|\n{rows}")
}

/// Goal: the document is that of the code. Method: with NORN_BLESS=1 the table is written anew.
#[test]
fn the_document_of_the_metrics_has_the_table_of_the_code() {
    let path = node().join("docs/metrics.md");
    let kept = read(&path);
    let (head, rest) = kept.split_once(BEGIN).expect("the document has a place for the table");
    let (_, tail) = rest.split_once(END).expect("the place has an end");
    let made = format!("{head}{BEGIN}\n{}\n{END}{tail}", table());
    if std::env::var("NORN_BLESS").is_ok_and(|bless| bless == "1") {
        std::fs::write(&path, &made).unwrap();
        return;
    }
    let hint = "NORN_BLESS=1 cargo test -p norn-doors the_document_of_the_metrics writes the table anew";
    assert!(kept == made, "node/docs/metrics.md is not what the code says; {hint}");
}

/// The metric of a name in a query, and whether what it names only grows.
fn named(name: &str) -> Option<(&'static Metric, bool)> {
    let all = || METRICS.iter().copied().flatten();
    all().find_map(|metric| {
        let suffix = name.strip_prefix(metric.name)?;
        match (metric.kind, suffix) {
            (Kind::Counter, "_total") => Some((metric, true)),
            (Kind::Histogram, "_bucket" | "_sum" | "_count") => Some((metric, true)),
            (Kind::Info, "_info") | (Kind::Gauge, "") => Some((metric, false)),
            _ => None,
        }
    })
}

fn is_word(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_'
}

/// Words of a list in parentheses or braces: of labels, or of matchers.
fn label_names(list: &str) -> Vec<&str> {
    let names = list.split(',').map(|part| part.trim().split(|character| !is_word(character)).next().unwrap_or(""));
    names.filter(|name| !name.is_empty()).collect()
}

/// What is wrong with a query.
fn complaints(query: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut names = 0;
    let grouped = query.match_indices("by (").filter_map(|(at, by)| query[at + by.len()..].split_once(')'));
    let grouped: BTreeSet<&str> = grouped.flat_map(|(list, _)| label_names(list)).collect();
    for (at, _) in query.match_indices("norn_").chain(query.match_indices("process_")) {
        if query[..at].ends_with(is_word) {
            continue;
        }
        names += 1;
        let end = query[at..].find(|character| !is_word(character)).map_or(query.len(), |end| at + end);
        let name = &query[at..end];
        let Some((metric, grows)) = named(name) else {
            found.push(format!("{name} is no metric"));
            continue;
        };
        let rated = ["rate(", "increase("].iter().any(|function| query[..at].ends_with(function));
        if rated != grows {
            found.push(format!("{name} is a {}", metric.kind.name()));
        }
        let matchers =
            query[end..].strip_prefix('{').and_then(|rest| rest.split_once('}')).map_or("", |(list, _)| list);
        for label in label_names(matchers).into_iter().chain(grouped.iter().copied()) {
            let is_own = metric.labels.contains(&label) || ADDED.contains(&label);
            if !(is_own || label == "le" && name.ends_with("_bucket")) {
                found.push(format!("{name} has no label {label}"));
            }
        }
    }
    if names == 0 && !query.starts_with("up{") {
        found.push(format!("{query} names no metric"));
    }
    found
}

#[test]
fn wrong_queries_are_found() {
    for (query, wrong) in [
        ("sum by (queue) (rate(norn_tasks_enqueued_total{job=~\"$job\"}[5m]))", None),
        ("histogram_quantile(0.5, sum by (le) (rate(norn_task_wait_seconds_bucket[5m])))", None),
        ("rate(norn_tasks_enqueued[5m])", Some("no metric")),
        ("norn_tasks_enqueued_total", Some("is a counter")),
        ("rate(norn_long_polls[5m])", Some("is a gauge")),
        ("sum by (state) (norn_partitions_led)", Some("no label state")),
        ("norn_queue_tasks{status=\"ready\"}", Some("no label status")),
        ("sum(1)", Some("names no metric")),
    ] {
        let found = complaints(query);
        match wrong {
            None => assert!(found.is_empty(), "{found:?}"),
            Some(wrong) => assert!(found.iter().any(|complaint| complaint.contains(wrong)), "{query}: {found:?}"),
        }
    }
}

fn strings<'a>(value: &'a Value, key: &str, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                match member {
                    Value::String(text) if name == key => found.push(text),
                    member => strings(member, key, found),
                }
            }
        }
        Value::Array(members) => members.iter().for_each(|member| strings(member, key, found)),
        _ => {}
    }
}

#[test]
fn panels_name_existing_metrics_with_their_types_and_labels() {
    let dashboard: Value = serde_json::from_str(&read(&node().join("package/grafana/norn.json"))).unwrap();
    let (mut queries, mut titles) = (Vec::new(), Vec::new());
    strings(&dashboard["panels"], "expr", &mut queries);
    strings(&dashboard["panels"], "title", &mut titles);
    assert_eq!(titles.len(), 12);
    let found: Vec<String> = queries.iter().flat_map(|query| complaints(query)).collect();
    assert!(queries.len() >= titles.len() && found.is_empty(), "{found:#?}");
    // Each panel has a number of its own, by which the program that shows them tells them apart.
    let ids: BTreeSet<u64> =
        dashboard["panels"].as_array().unwrap().iter().filter_map(|panel| panel["id"].as_u64()).collect();
    assert_eq!(ids.len(), titles.len());
}

#[test]
fn alerts_name_existing_metrics_with_their_types_and_labels() {
    let text = read(&node().join("package/grafana/alerts.yml"));
    let of = |key: &str| -> Vec<String> {
        let lines = text.lines().filter_map(|line| line.trim_start_matches([' ', '-']).strip_prefix(key));
        lines.map(|value| value.trim().to_owned()).collect()
    };
    let (alerts, queries) = (of("alert:"), of("expr:"));
    assert_eq!((alerts.len(), queries.len()), (9, 9), "each query stands in its line");
    let found: Vec<String> = queries.iter().flat_map(|query| complaints(query)).collect();
    assert!(found.is_empty(), "{found:#?}");
    let document = read(&node().join("docs/metrics.md"));
    let untold: Vec<&String> = alerts.iter().filter(|alert| !document.contains(alert.as_str())).collect();
    assert!(untold.is_empty(), "node/docs/metrics.md does not say what to do: {untold:?}");
}
