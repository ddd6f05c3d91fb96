//! Tests of the metrics as a whole: the text, its document, and the panels and alerts that name them.

mod openmetrics;
mod published;

use super::measures::{COUNTS, CertificateEnd, Measures, PeerClock, QueueLine, STATES, Surroundings};
use super::table::{Kind, METRICS};
use crate::access::Access;
use crate::state::{Bounds, Phase};
use crate::testing::samples::identity;
use crate::testing::{Door, Facts, Node};
use norn_client::times::TimesAt;
use openmetrics::{Family, check};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

fn queue(name: &str, place: u64) -> QueueLine {
    let times = TimesAt::of_ms(&[10, 100], &[1, 2, 3], 5_000);
    QueueLine {
        name: name.to_owned(),
        place,
        states: [5, 4, 3, 2, 1],
        oldest_ready_ms: Some(2_500),
        counts: [10, 9, 8, 7, 6, 5, 4],
        wait: times.clone(),
        run: times,
    }
}

/// A node that tells something under each metric.
fn talkative(queues: Vec<QueueLine>) -> Arc<Node> {
    let counters = ["elections_begun", "oldest_agreement_ms", "hint_tasks", "hint_ids", "claims_granted", "log_syncs"];
    let core = ["enqueue", "clock_off_ms", "elections_begun", "collection_held_minutes", "clock_ahead_ms.n2"];
    Node::telling(Facts {
        identity: Some(identity(true)),
        measures: Measures {
            queues,
            partitions_held: 64,
            partitions_led: 21,
            partitions_without_leader: 1,
            members: 3,
            members_alive: 2,
            clock_fenced: true,
            clocks: vec![PeerClock { peer: "n\"2\\\n".to_owned(), ahead_us: -1_500, error_us: 20 }],
            counters: core.into_iter().map(|name| (name.to_owned(), 1_500)).collect(),
        },
        counters: counters.into_iter().zip(1..).collect(),
        surroundings: Surroundings {
            disk_free_bytes: Some(1 << 40),
            certificates: vec![CertificateEnd { file: "ca.crt".to_owned(), at_s: 0 }],
        },
        ..Facts::default()
    })
}

fn doors(node: Arc<Node>) -> Door {
    Door::of(Bounds { metrics_queues: 3, ..Bounds::default() }, Access::default(), Phase::Running(node))
}

/// The families of a scrape. Panics where the text breaks the rules of the format.
async fn scrape(doors: &Door, path: &str) -> BTreeMap<String, Family> {
    let told = doors.get(path).await;
    let (kind, text) = (told.header("content-type"), &told.body);
    assert_eq!(
        (told.status.as_u16(), kind),
        (200, "application/openmetrics-text; version=1.0.0; charset=utf-8"),
        "{text}"
    );
    check(text).unwrap_or_else(|why| panic!("{why} in\n{text}"))
}

/// A sample by its name and labels, as written.
fn sample(families: &BTreeMap<String, Family>, line: &str) -> f64 {
    let found = families.values().flat_map(|family| &family.samples).find(|(name, _)| *name == line);
    found.unwrap_or_else(|| panic!("no {line}")).1
}

#[tokio::test]
async fn each_metric_is_told_with_its_type_and_labels_and_no_other() {
    let doors = doors(talkative(vec![queue("mail", 0)]));
    doors.get("/livez").await;
    let families = scrape(&doors, "/metrics").await;
    let all: Vec<_> = METRICS.iter().copied().flatten().collect();
    let names: BTreeSet<&str> = families.keys().map(String::as_str).collect();
    let unknown: Vec<_> = names.iter().filter(|name| all.iter().all(|metric| metric.name != **name)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    for metric in all {
        let family = families.get(metric.name).unwrap_or_else(|| panic!("{} is not told", metric.name));
        assert_eq!(family.kind, metric.kind.name(), "{}", metric.name);
        let labels: BTreeSet<String> = metric.labels.iter().map(|label| (*label).to_owned()).collect();
        let own = family.labels.iter().filter(|label| *label != "le").cloned().collect::<BTreeSet<_>>();
        assert_eq!(own, labels, "{}", metric.name);
        assert_eq!(family.labels.contains("le"), metric.kind == Kind::Histogram, "{}", metric.name);
    }
}

#[tokio::test]
async fn what_the_node_counts_is_told_under_lasting_names_and_in_base_units() {
    let families = scrape(&doors(talkative(vec![queue("mail", 0)])), "/metrics").await;
    let of = |line: &str| sample(&families, line);
    assert_eq!(of("norn_elections_total"), 1.0, "the host's count comes first");
    assert_eq!(of("norn_replica_oldest_agreement_seconds"), 0.002);
    assert_eq!(of("norn_hints_pending"), 7.0);
    assert_eq!(of("norn_clock_off_majority_seconds"), 1.5);
    assert_eq!(of("norn_collection_held_seconds_total"), 90_000.0);
    assert_eq!(of(r#"norn_requests_by_verb_total{verb="enqueue"}"#), 1_500.0);
    assert_eq!(of(r#"norn_clock_off_seconds{peer="n\"2\\\n"}"#), -0.0015);
    assert_eq!(of("norn_scrub_damages_total"), 0.0, "zeros are told");
    assert_eq!(of(r#"norn_queue_tasks{queue="mail",state="delayed"}"#), 3.0);
    assert_eq!(of(r#"norn_queue_oldest_ready_age_seconds{queue="mail"}"#), 2.5);
    assert_eq!(of(r#"norn_claims_given_back_total{queue="mail"}"#), 4.0);
    assert_eq!(of(r#"norn_task_wait_seconds_bucket{le="0.1",queue="mail"}"#), 3.0);
    assert_eq!(of(r#"norn_task_wait_seconds_count{queue="mail"}"#), 6.0);
    assert_eq!(of("norn_log_sync_seconds_count"), 1.0);
    assert!(of(r#"norn_certificate_expiry_seconds{file="ca.crt"}"#) < 0.0);
    assert_eq!(of("norn_scrape_incomplete"), 0.0);
}

#[tokio::test]
async fn requests_are_counted_by_verb_and_outcome() {
    let doors = doors(talkative(Vec::new()));
    for number in 1..4 {
        doors.get("/readyz").await;
        doors.get(&format!("/nothing/{number}")).await;
        assert_eq!(doors.get_as_stranger("/metrics").await.status, 401, "metrics are not open to all");
        let families = scrape(&doors, "/metrics").await;
        let count = |labels: &str| sample(&families, &format!("norn_request_duration_seconds_count{{{labels}}}"));
        assert_eq!(count(r#"door="health",verb="readyz",outcome="ok""#), f64::from(number));
        assert_eq!(count(r#"door="http",verb="other",outcome="refused""#), f64::from(number));
        assert_eq!(count(r#"door="metrics",verb="metrics",outcome="denied""#), f64::from(number));
        if number > 1 {
            assert_eq!(count(r#"door="metrics",verb="metrics",outcome="ok""#), f64::from(number - 1));
        }
    }
}

#[tokio::test]
async fn queues_beyond_the_bound_are_told_together_and_by_a_pattern() {
    let many = (0..2_000).map(|number| queue(&format!("ns/q{number:04}"), number));
    let unnamed = QueueLine { name: String::new(), ..queue("", 0) };
    let doors = doors(talkative(many.chain([queue("mail", 2_000), unnamed]).collect()));
    let families = scrape(&doors, "/metrics").await;
    let queues: BTreeSet<&str> =
        families["norn_tasks_enqueued"].samples.iter().map(|(line, _)| line.as_str()).collect();
    let line = |queue: &str| format!("norn_tasks_enqueued_total{{queue=\"{queue}\"}}");
    let expected = ["_other", "ns/q0000", "ns/q0001", "ns/q0002"].map(line);
    assert_eq!(queues, expected.iter().map(String::as_str).collect(), "the first that came, and the rest");
    assert_eq!(sample(&families, &line("_other")), f64::from(10 * (2_000 - 3 + 2)));
    let oldest = r#"norn_queue_oldest_ready_age_seconds{queue="_other"}"#;
    assert_eq!(sample(&families, oldest), 2.5);
    let lines: usize = families.values().map(|family| family.samples.len()).sum();
    assert!(lines < 500, "{lines}");

    let matching = scrape(&doors, "/metrics?queue=ns/q000*").await;
    assert_eq!(matching["norn_tasks_enqueued"].samples.len(), 10);
    assert!(matching.keys().all(|name| name.starts_with("norn_task")
        || name.starts_with("norn_queue")
        || name.starts_with("norn_claims")));
    assert_eq!(scrape(&doors, "/metrics?queue=mail").await["norn_tasks_enqueued"].samples.len(), 1);
    for path in ["/metrics?queue=", "/metrics?queues=a", &format!("/metrics?queue={}", "x".repeat(300))] {
        assert_eq!(doors.get(path).await.status, 400, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_scrape_waits_for_a_stuck_node_no_longer_than_two_seconds() {
    let node = talkative(vec![queue("mail", 0)]);
    node.facts.lock().unwrap().stuck = true;
    let (doors, begin) = (doors(node), tokio::time::Instant::now());
    let families = scrape(&doors, "/metrics").await;
    assert!(begin.elapsed().as_millis() <= 2_100, "{:?}", begin.elapsed());
    assert_eq!(sample(&families, "norn_scrape_incomplete"), 1.0);
    assert_eq!(sample(&families, "norn_elections_total"), 1.0, "what is known without asking is told");
    assert!(!families.contains_key("norn_queue_tasks"));
    assert_eq!(doors.get("/metrics?queue=mail").await.status, 503);
}

#[tokio::test]
async fn a_node_that_reads_its_log_tells_of_itself() {
    let doors = Door::of(Bounds::default(), Access::default(), Phase::Starting);
    let families = scrape(&doors, "/metrics").await;
    assert_eq!(sample(&families, "norn_ready"), 0.0);
    assert_eq!(sample(&families, &format!("norn_build_info{{version=\"{}\"}}", env!("CARGO_PKG_VERSION"))), 1.0);
    assert_eq!(doors.get("/metrics?queue=mail").await.status, 503);
}

#[test]
fn counts_and_states_of_queues_are_in_the_table() {
    assert!(COUNTS.into_iter().all(|name| super::table::find(name).is_some()));
    let about = super::table::find("norn_queue_tasks").unwrap().about;
    assert!(about.contains(&STATES.join(", ")));
}

#[tokio::test(start_paused = true)]
async fn scrapes_that_come_together_are_one_and_all_are_whole() {
    let node = talkative(vec![queue("mail", 0)]);
    node.facts.lock().unwrap().measures_after = Duration::from_millis(100);
    let doors = doors(Arc::clone(&node));
    let scrapes = futures_util::future::join_all((0..8).map(|_| scrape(&doors, "/metrics"))).await;
    assert!(scrapes.iter().all(|families| sample(families, "norn_scrape_incomplete") == 0.0));
    assert_eq!(node.measured.load(Ordering::Relaxed), 1, "one serves all");
    scrape(&doors, "/metrics").await;
    assert_eq!(node.measured.load(Ordering::Relaxed), 2, "a later one is new");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_measures_for_long_tells_what_it_last_measured_and_how_old_that_is() {
    let node = talkative(vec![queue("mail", 0)]);
    node.facts.lock().unwrap().measures_after = Duration::from_secs(7);
    let doors = doors(Arc::clone(&node));
    let first = scrape(&doors, "/metrics").await;
    assert_eq!(sample(&first, "norn_scrape_incomplete"), 1.0, "nothing was measured yet");
    assert!(!first.contains_key("norn_queue_tasks"));
    tokio::time::sleep(Duration::from_secs(15)).await;
    let second = scrape(&doors, "/metrics").await;
    assert_eq!(sample(&second, "norn_scrape_incomplete"), 0.0);
    assert_eq!(sample(&second, "norn_measures_age_seconds").round(), 10.0);
    assert_eq!(sample(&second, r#"norn_queue_tasks{queue="mail",state="ready"}"#), 5.0);
    assert_eq!(doors.get("/metrics?queue=mail").await.status, 200, "so do jobs for queues");
    node.facts.lock().unwrap().measures_after = Duration::from_secs(3_600);
    tokio::time::sleep(Duration::from_secs(10)).await;
    scrape(&doors, "/metrics").await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    let late = scrape(&doors, "/metrics").await;
    assert_eq!(sample(&late, "norn_scrape_incomplete"), 1.0, "what is too old is not told");
}

#[tokio::test(start_paused = true)]
async fn a_scrape_that_cannot_have_its_turn_is_told_to_come_back() {
    let node = talkative(Vec::new());
    node.facts.lock().unwrap().stuck = true;
    let doors = doors(node);
    let patterns = ["/metrics?queue=a", "/metrics?queue=b", "/metrics?queue=c", "/metrics?queue=d", "/metrics?queue=e"];
    let answers = futures_util::future::join_all(patterns.map(|path| doors.get(path))).await;
    assert!(answers.iter().all(|told| told.status == 503), "{answers:?}");
    assert!(answers.iter().any(|told| told.body.contains("another scrape")), "{answers:?}");
}

#[tokio::test]
async fn a_queue_with_the_name_of_all_others_has_another_label() {
    let names = ["_other", "__other", "other", "x_other", "a", "b"];
    let lines =
        names.into_iter().zip(0..).map(|(name, place)| QueueLine { states: [place + 1; 5], ..queue(name, place) });
    let bounds = Bounds { metrics_queues: 4, ..Bounds::default() };
    let doors = Door::of(bounds, Access::default(), Phase::Running(talkative(lines.collect())));
    let families = scrape(&doors, "/metrics").await;
    let ready = |queue: &str| sample(&families, &format!("norn_queue_tasks{{queue=\"{queue}\",state=\"ready\"}}"));
    assert_eq!(["__other", "___other", "other", "x_other", "_other"].map(ready), [1.0, 2.0, 3.0, 4.0, 11.0]);
}
