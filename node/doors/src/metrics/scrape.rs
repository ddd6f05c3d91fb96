//! One scrape: samples are collected, then written in the format of OpenMetrics.

use super::measures::{COUNTS, Measures, QueueLine, STATES, Surroundings};
use super::meters::Meters;
use super::process::Process;
use super::table::{self, Kind, METRICS, Metric, Today, Unit};
use norn_client::times::{TimesAt, seconds};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, LabelSetEncoder, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit as UnitOf};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Label of all queues together that have no line of their own.
pub const OTHER_QUEUES: &str = "_other";

/// Label of a queue: its name, but for those that are taken for [`OTHER_QUEUES`]. A queue `_other` has the label `__other`, a queue
/// `__other` the label `___other`, and so on.
fn label_of(name: &str) -> String {
    let looks_so = name.trim_start_matches('_') == "other" && name != "other";
    if looks_so { format!("_{name}") } else { name.to_owned() }
}

#[derive(Debug, Clone, PartialEq)]
enum Value {
    Number(f64),
    Count(u64),
    Times(TimesAt),
}

#[derive(Debug, Clone)]
struct Sample {
    /// In the order of the metric's labels.
    labels: Vec<String>,
    value: Value,
}

/// Samples by metric.
#[derive(Debug, Default)]
pub struct Scrape {
    samples: BTreeMap<&'static str, Vec<Sample>>,
}

/// Queues of which a scrape tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Queues {
    /// The first by name, this number of them, and the rest together.
    First(usize),
    /// Those that match a pattern: a name, or the begin of names and `*`.
    Matching(String),
}

impl Queues {
    fn matches(pattern: &str, name: &str) -> bool {
        match pattern.strip_suffix('*') {
            Some(begin) => name.starts_with(begin),
            None => name == pattern,
        }
    }

    /// The lines to tell of.
    fn select(&self, lines: &[QueueLine]) -> Vec<(String, QueueLine)> {
        let named = |line: &&QueueLine| !line.name.is_empty();
        let told = |line: &QueueLine| (label_of(&line.name), line.clone());
        match self {
            Queues::Matching(pattern) => {
                let matching = lines.iter().filter(named).filter(|line| Queues::matches(pattern, &line.name));
                matching.map(told).collect()
            }
            Queues::First(max) => {
                let mut in_order: Vec<&QueueLine> = lines.iter().filter(named).collect();
                in_order.sort_by_key(|line| line.place);
                let mut rest = QueueLine::default();
                let others = lines.iter().filter(|line| line.name.is_empty());
                let behind: Vec<&QueueLine> = in_order.iter().skip(*max).copied().chain(others).collect();
                behind.iter().for_each(|line| rest.merge(line));
                let first = in_order.into_iter().take(*max).map(told);
                let is_empty = rest.counts == [0; COUNTS.len()] && rest.states == [0; STATES.len()];
                first.chain((!is_empty).then(|| (OTHER_QUEUES.to_owned(), rest))).collect()
            }
        }
    }
}

impl Scrape {
    fn put(&mut self, name: &'static str, labels: &[&str], value: Value) {
        debug_assert!(table::find(name).is_some_and(|metric| metric.labels.len() == labels.len()), "{name}");
        let labels = labels.iter().map(|label| (*label).to_owned()).collect();
        self.samples.entry(name).or_default().push(Sample { labels, value });
    }

    fn number(&mut self, name: &'static str, labels: &[&str], value: f64) {
        self.put(name, labels, Value::Number(value));
    }

    fn count(&mut self, name: &'static str, labels: &[&str], value: u64) {
        self.put(name, labels, Value::Count(value));
    }

    fn has(&self, name: &str) -> bool {
        self.samples.contains_key(name)
    }

    /// Takes what the doors count.
    pub fn take_meters(&mut self, meters: &Meters) {
        for ((door, verb, outcome), times) in meters.requests() {
            self.put("norn_request_duration_seconds", &[door, &verb, outcome], Value::Times(times));
        }
        self.count("norn_long_polls", &[], meters.long_polls.get());
        self.count("norn_sse_streams", &[], meters.sse_streams.get());
        self.count("norn_http_connections", &[], meters.connections.get());
        self.count("norn_http_connections_accepted", &[], meters.accepted());
        for (why, count) in meters.turned_away() {
            self.count("norn_http_connections_refused", &[why.name()], count);
        }
        let (received, sent) = meters.traffic.get();
        self.count("norn_http_received_bytes", &[], received);
        self.count("norn_http_sent_bytes", &[], sent);
    }

    /// Takes what is known of the process, and the version of the program.
    pub fn take_process(&mut self, process: Process, version: &str) {
        let Process { cpu_s, resident_bytes, open_fds, start_s } = process;
        cpu_s.into_iter().for_each(|cpu_s| self.number("process_cpu_seconds", &[], cpu_s));
        resident_bytes.into_iter().for_each(|bytes| self.count("process_resident_memory_bytes", &[], bytes));
        open_fds.into_iter().for_each(|fds| self.count("process_open_fds", &[], fds));
        start_s.into_iter().for_each(|start_s| self.number("process_start_time_seconds", &[], start_s));
        self.count("norn_build", &[version], 1);
    }

    /// Takes how far the node is, whether it told all in time, and how old its measures are.
    pub fn take_standing(&mut self, is_ready: bool, is_incomplete: bool, measures_age: Duration) {
        self.count("norn_ready", &[], is_ready.into());
        self.count("norn_scrape_incomplete", &[], is_incomplete.into());
        self.number("norn_measures_age_seconds", &[], measures_age.as_secs_f64());
    }

    /// Takes the counters of the host, and the times of its syncs.
    pub fn take_host(&mut self, counters: &[(&'static str, u64)], syncs: TimesAt) {
        self.put("norn_log_sync_seconds", &[], Value::Times(syncs));
        for (name, count) in counters {
            self.take_counter(name, *count);
        }
        let of = |name: &str| counters.iter().find(|(counter, _)| *counter == name).map_or(0, |(_, count)| *count);
        self.count("norn_hints_pending", &[], of("hint_tasks").saturating_add(of("hint_ids")));
    }

    /// Takes a counter under its lasting name. Returns false if it has none.
    fn take_counter(&mut self, name: &str, count: u64) -> bool {
        if table::ELSEWHERE.iter().any(|(today, _)| *today == name) {
            return true;
        }
        let Some(metric) = table::of_today(name) else { return false };
        match metric.today {
            // What the host counts comes first, and the core counts some of the same.
            _ if self.has(metric.name) => {}
            Today::Ms(_) => self.number(metric.name, &[], seconds(count, 1_000)),
            Today::Minutes(_) => self.count(metric.name, &[], count.saturating_mul(60)),
            Today::Same(_) | Today::Absent => self.count(metric.name, &[], count),
        }
        true
    }

    /// Takes what the node was asked for.
    pub fn take_measures(&mut self, measures: &Measures) {
        let flags = [
            ("norn_partitions_held", measures.partitions_held),
            ("norn_partitions_led", measures.partitions_led),
            ("norn_partitions_without_leader", measures.partitions_without_leader),
            ("norn_members", measures.members),
            ("norn_members_alive", measures.members_alive),
            ("norn_clock_fenced", measures.clock_fenced.into()),
        ];
        flags.into_iter().for_each(|(name, count)| self.count(name, &[], count));
        for clock in &measures.clocks {
            self.number("norn_clock_off_seconds", &[&clock.peer], clock.ahead_us as f64 / 1e6);
            self.number("norn_clock_error_seconds", &[&clock.peer], seconds(clock.error_us, 1_000_000));
        }
        for (name, count) in &measures.counters {
            // Clocks by member stand in metrics of their own.
            if !self.take_counter(name, *count) && !name.contains('.') {
                self.count("norn_requests_by_verb", &[name], *count);
            }
        }
        // A status leaves zeros out; in a time series they are what the others are compared with.
        for metric in METRICS.iter().copied().flatten().filter(|metric| metric.today != Today::Absent) {
            if !self.has(metric.name) {
                self.count(metric.name, &[], 0);
            }
        }
    }

    /// Takes what the node tells of queues.
    pub fn take_queues(&mut self, measures: &Measures, queues: &Queues) {
        for (name, line) in queues.select(&measures.queues) {
            let queue = [name.as_str()];
            for (metric, count) in COUNTS.into_iter().zip(line.counts) {
                self.count(metric, &queue, count);
            }
            for (state, count) in STATES.into_iter().zip(line.states) {
                self.count("norn_queue_tasks", &[&name, state], count);
            }
            let oldest_s = seconds(line.oldest_ready_ms.unwrap_or(0), 1_000);
            self.number("norn_queue_oldest_ready_age_seconds", &queue, oldest_s);
            self.put("norn_task_wait_seconds", &queue, Value::Times(line.wait));
            self.put("norn_task_run_seconds", &queue, Value::Times(line.run));
        }
    }

    /// Takes what a look at files told.
    pub fn take_surroundings(&mut self, surroundings: &Surroundings, now_s: i64) {
        let free_bytes = surroundings.disk_free_bytes;
        free_bytes.into_iter().for_each(|bytes| self.count("norn_disk_free_bytes", &[], bytes));
        for certificate in &surroundings.certificates {
            let left_s = certificate.at_s.saturating_sub(now_s);
            self.number("norn_certificate_expiry_seconds", &[&certificate.file], left_s as f64);
        }
    }

    /// The text.
    pub fn encode(self) -> Result<String, fmt::Error> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry)?;
        Ok(text)
    }
}

/// Labels of a sample.
struct LabelsOf<'a>(&'static [&'static str], &'a [String]);

impl EncodeLabelSet for LabelsOf<'_> {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> Result<(), fmt::Error> {
        for (name, value) in self.0.iter().zip(self.1) {
            prometheus_client::encoding::EncodeLabel::encode(&(*name, value.as_str()), encoder.encode_label())?;
        }
        Ok(())
    }
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for metric in METRICS.iter().copied().flatten() {
            let Some(samples) = self.samples.get(metric.name) else { continue };
            encode_metric(&mut encoder, metric, samples)?;
        }
        Ok(())
    }
}

fn encode_metric(encoder: &mut DescriptorEncoder<'_>, metric: &Metric, samples: &[Sample]) -> Result<(), fmt::Error> {
    let (unit, suffix) = match metric.unit {
        Unit::Number => (None, ""),
        Unit::Seconds => (Some(UnitOf::Seconds), "_seconds"),
        Unit::Bytes => (Some(UnitOf::Bytes), "_bytes"),
    };
    let kind = match metric.kind {
        Kind::Counter => MetricType::Counter,
        Kind::Gauge => MetricType::Gauge,
        Kind::Histogram => MetricType::Histogram,
        Kind::Info => MetricType::Info,
    };
    // The encoder puts the unit behind the name.
    let name = metric.name.strip_suffix(suffix).unwrap_or(metric.name);
    let mut encoder = encoder.encode_descriptor(name, metric.about, unit.as_ref(), kind)?;
    for sample in samples {
        let labels = LabelsOf(metric.labels, &sample.labels);
        match metric.kind {
            Kind::Info => encoder.encode_info(&labels)?,
            _ if metric.labels.is_empty() => encode_value(&mut encoder, metric.kind, &sample.value)?,
            _ => encode_value(&mut encoder.encode_family(&labels)?, metric.kind, &sample.value)?,
        }
    }
    Ok(())
}

fn encode_value(encoder: &mut MetricEncoder<'_>, kind: Kind, value: &Value) -> Result<(), fmt::Error> {
    type NoLabels = [(&'static str, &'static str); 0];
    match (kind, value) {
        (Kind::Counter, Value::Count(count)) => encoder.encode_counter::<NoLabels, _, u64>(count, None),
        (Kind::Counter, Value::Number(number)) => encoder.encode_counter::<NoLabels, _, u64>(number, None),
        (_, Value::Count(count)) => encoder.encode_gauge(&(*count as f64)),
        (_, Value::Number(number)) => encoder.encode_gauge(number),
        (_, Value::Times(times)) => {
            encoder.encode_histogram::<NoLabels>(times.sum_s, times.count(), &times.classes, None)
        }
    }
}
