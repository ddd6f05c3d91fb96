//! Findings about clusters that are well, that are not, and that do not answer.

use super::*;
use crate::operate::tests as operate;
use crate::tests::{Fake, Written, partitions, status};
use crate::{Exit, Failure};
use norn_client::api::CheckOutcome;
use norn_wire::response::{Agreement, Health, Standing};
use norn_wire::{NodeId, PartitionId};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Write};

const NOW_S: i64 = 1_800_000_000;
const DAY_S: i64 = 86_400;

fn view(number: u128) -> NodeView {
    NodeView {
        node: NodeId(number),
        name: format!("n{number}"),
        address: format!("10.0.0.{number}:7400"),
        zone: "a".into(),
        state: None,
        alive: true,
        this: number == 1,
        leads: 1,
        holds: 2,
        clock: Standing::Good,
        clock_offset_ms: Some(number as i64 - 1),
        clock_error_ms: Some(1),
        round_trip_us: Some(300),
        version: Some(3),
        unreached_from: Vec::new(),
    }
}

fn partition(number: u16) -> PartitionView {
    let agreement = |number| Agreement { node: NodeId(number), agreed_ms: Some(0), apart: false, differing: None };
    PartitionView {
        partition: PartitionId(number),
        cohort: (1..=3).map(NodeId).collect(),
        leader: Some(NodeId(1)),
        health: Some(Health::Whole),
        agreements: vec![agreement(2), agreement(3)],
        next: Vec::new(),
        leaving: Vec::new(),
        ..partitions().remove(1)
    }
}

fn member(number: u128) -> Member {
    let counters = vec![("hint_ids".to_owned(), 0)];
    Member {
        view: view(number),
        status: Ok(Status { node: NodeId(number), counters, ..status() }),
        partitions: Ok(vec![partition(0), partition(1)]),
        certificate_until_s: Ok(Some(NOW_S + 100 * DAY_S)),
    }
}

/// A cluster of three nodes with nothing wrong.
fn sound() -> ClusterSeen {
    ClusterSeen {
        status: Status { node: NodeId(1), nodes: (3, 3), ..status() },
        nodes: (1..=3).map(view).collect(),
        partitions: vec![partition(0), partition(1)],
        survey: Ok(Survey { view: operate::view(3), partitions: vec![partition(0), partition(1)] }),
        members: (1..=3).map(member).collect(),
    }
}

/// Findings that are not OK, by name.
fn wrong(seen: &ClusterSeen) -> BTreeMap<String, (CheckOutcome, String)> {
    let findings = seen.findings(NOW_S);
    assert!(findings.iter().map(|finding| &*finding.check).eq(CLUSTER_CHECKS));
    for finding in &findings {
        assert_eq!(finding.advice.is_none(), finding.outcome == CheckOutcome::Ok, "{finding:?}");
    }
    let wrong = findings.into_iter().filter(|finding| finding.outcome != CheckOutcome::Ok);
    wrong.map(|finding| (finding.check.to_string(), (finding.outcome, finding.seen.to_string()))).collect()
}

#[test]
fn a_sound_cluster_has_nothing_wrong() {
    assert_eq!(wrong(&sound()), BTreeMap::new());
}

fn count(member: &mut Member, counter: &str, value: u64) {
    member.status.as_mut().unwrap().counters.push((counter.to_owned(), value));
}

/// Goal: each fault is found by one check, with its severity and the member's name. Method: one fault after the other in a sound cluster.
#[test]
fn each_fault_is_found_by_the_check_for_it() {
    type Fault = Box<dyn Fn(&mut ClusterSeen)>;
    let counted = |counter: &'static str| -> Fault { Box::new(move |seen| count(&mut seen.members[1], counter, 2)) };
    let clock = |clock: Standing| -> Fault { Box::new(move |seen| seen.members[1].view.clock = clock) };
    let health = |health: Health| -> Fault {
        Box::new(move |seen| seen.members[1].partitions.as_mut().unwrap()[0].health = Some(health))
    };
    let (warn, fail) = (CheckOutcome::Warn, CheckOutcome::Fail);
    let faults: Vec<(&str, CheckOutcome, Fault)> = vec![
        ("members", fail, Box::new(|seen| seen.members[1].view.alive = false)),
        ("members", fail, Box::new(|seen| seen.members[1].view.unreached_from = vec![NodeId(3)])),
        ("member_certificates", warn, Box::new(|seen| seen.members[1].certificate_until_s = Ok(Some(NOW_S + DAY_S)))),
        ("member_certificates", warn, Box::new(|seen| seen.members[1].certificate_until_s = Ok(None))),
        ("versions", warn, Box::new(|seen| seen.members[1].view.version = Some(2))),
        ("versions", warn, Box::new(|seen| seen.members[1].view.version = None)),
        ("clocks", warn, clock(Standing::Unknown)),
        ("clocks", warn, clock(Standing::Suspect)),
        ("clocks", fail, clock(Standing::Fenced)),
        ("replicas", warn, Box::new(|seen| seen.members[1].partitions.as_mut().unwrap()[0].agreements[0].apart = true)),
        ("losses", warn, health(Health::Holes)),
        ("losses", warn, health(Health::Recovering)),
        ("losses", warn, counted("data_losses")),
        ("losses", fail, counted("scrub_damages")),
        ("losses", fail, counted("bodies_lost")),
        ("losses", fail, counted("stale_log_found")),
        ("member_room", fail, counted("disk_short")),
        ("member_room", fail, counted("disk_bounded")),
        ("member_room", fail, counted("memory_short")),
        ("hints", warn, counted("hint_tasks")),
        ("hints", warn, counted("hints_dropped")),
        ("hints", fail, counted("hints_orphaned")),
    ];
    for (check, outcome, fault) in faults {
        let mut seen = sound();
        fault(&mut seen);
        let wrong = wrong(&seen);
        let (found, text) = wrong.get(check).unwrap_or_else(|| panic!("{check}: {wrong:?}"));
        assert_eq!((*found, wrong.len(), text.contains("n2")), (outcome, 1, true), "{check}: {wrong:?}");
    }
}

#[test]
fn a_partition_without_leader_or_whole_majority_is_named() {
    let mut seen = sound();
    seen.partitions[1].leader = None;
    assert_eq!(wrong(&seen), BTreeMap::new(), "another member knows the leader");
    for member in &mut seen.members {
        member.partitions.as_mut().unwrap()[1].leader = None;
    }
    let found = wrong(&seen);
    assert_eq!(found["leaders"], (CheckOutcome::Fail, "1 of 2 partitions have no leader: 1".to_owned()));

    let mut seen = sound();
    for member in &mut seen.members[1..] {
        member.partitions.as_mut().unwrap()[1].health = Some(Health::Holes);
    }
    let (outcome, text) = &wrong(&seen)["losses"];
    assert_eq!(
        (*outcome, text.starts_with("no majority of whole replicas in 1; ")),
        (CheckOutcome::Fail, true),
        "{text}"
    );
}

/// Goal: what a silent member would have said is not taken for good.
#[test]
fn a_silent_member_leaves_checks_undone_and_says_so() {
    let mut seen = sound();
    let error = Error::unavailable("no answer within 5s");
    let silent = &mut seen.members[2];
    (silent.status, silent.partitions) = (Err(error.clone()), Err(error.clone()));
    silent.certificate_until_s = Err(error.clone());
    seen.survey = Err(error);
    let wrong = wrong(&seen);
    for check in ["members", "layout"] {
        assert_eq!(wrong[check].0, CheckOutcome::Fail, "{wrong:?}");
    }
    assert!(wrong["members"].1.contains("2 of 3 answer; n3 at 10.0.0.3:7400"), "{wrong:?}");
    for check in ["member_certificates", "clocks", "replicas", "losses", "member_room", "hints"] {
        let (outcome, text) = &wrong[check];
        assert!(*outcome == CheckOutcome::Warn && text.starts_with("not checked: n3"), "{check}: {text}");
    }
}

#[test]
fn what_was_not_checked_is_said_behind_many_faults() {
    let mut seen = sound();
    seen.members = (1..=12).map(member).collect();
    seen.members.iter_mut().for_each(|member| count(member, "disk_short", 1));
    seen.members[11].status = Err(Error::unavailable("no answer within 5s"));
    seen.members[10].partitions = Err(Error::unavailable("no answer within 5s"));
    let wrong = wrong(&seen);
    let (outcome, text) = &wrong["member_room"];
    assert!(*outcome == CheckOutcome::Fail && text.contains("; 3 more; not checked: n12"), "{text}");
    assert!(wrong["replicas"].1.starts_with("not checked: n11"), "{wrong:?}");
}

#[tokio::test]
async fn a_cluster_is_asked_and_each_member_for_itself() {
    let cluster = Box::new(operate::view(1));
    let answers = [
        Response::Status(Box::new(Status { node: NodeId(1), nodes: (1, 1), ..status() })),
        Response::Nodes(vec![view(1)]),
        Response::Partitions(vec![partition(0)]),
        Response::Cluster(cluster),
        Response::Partitions(vec![partition(0)]),
        Response::Status(Box::new(Status { counters: vec![("hint_ids".into(), 5)], ..status() })),
        Response::Partitions(vec![partition(0)]),
    ];
    let fake = Fake::new(answers.map(Ok));
    let seen = ClusterSeen::ask(&fake).await.unwrap();
    assert!(fake.asked().iter().all(|(address, _)| address == "10.0.0.1:7400") && fake.asked().len() == 2);
    let wrong = wrong(&seen);
    assert_eq!(wrong.keys().collect::<Vec<_>>(), ["member_certificates"], "this transport cannot tell: {wrong:?}");
    let files = seen.files();
    assert_eq!(files.len(), 4);
    assert!(
        files[1].1.contains("\"hint_ids\":5") && files.iter().all(|(_, text)| text.lines().count() == 1),
        "{files:?}"
    );

    let error = ClusterSeen::ask(Fake::new([])).await.unwrap_err();
    let findings = unreached(&error);
    assert_eq!((findings.len(), findings[0].outcome), (CLUSTER_CHECKS.len(), CheckOutcome::Fail));
    assert!(findings[1..].iter().all(|finding| finding.seen.starts_with("not checked: ")), "{findings:?}");
}

fn told(output: Output, findings: Vec<Finding<'static>>) -> Exit {
    let mut report = Report::new(output);
    report.tell(findings);
    report.finish()
}

#[test]
fn a_report_ends_with_its_counts_and_fails_with_a_failure_alone() {
    let (fine, near, bad) = (
        || Finding::ok("room", "enough"),
        || Finding::not_checked("clock", "\u{1b}[31mno daemon", "ask another"),
        || Finding::fail("log", "torn", "norn log verify"),
    );
    let text = Written::default();
    let exit = told(Output::new(text.clone(), Written::default(), false), vec![fine(), near(), bad()]);
    assert_eq!(exit, Exit::Ailing);
    let expected = "OK    room                 enough\nWARN  clock                not checked: \\u{1b}[31mno daemon\n";
    let text = text.text();
    assert!(text.starts_with(expected) && text.ends_with("-> norn log verify\n1 OK, 1 WARN, 1 FAIL\n"), "{text}");
    let json = Written::default();
    assert_eq!(told(Output::new(json.clone(), Written::default(), true), vec![fine(), near()]), Exit::Done);
    assert_eq!(json.text().lines().next(), Some(r#"{"check":"room","outcome":"ok","seen":"enough","advice":null}"#));
    assert_eq!(json.text().lines().count(), 2);
}

/// Goal: a reader that has had enough is no failure, and hides none.
#[test]
fn a_report_without_a_reader_keeps_its_exit() {
    struct Gone(ErrorKind);
    impl Write for Gone {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(self.0.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Err(self.0.into())
        }
    }
    let exit = |kind, finding| told(Output::new(Gone(kind), Written::default(), false), vec![finding]);
    let (fine, bad) = (|| Finding::ok("room", "enough"), || Finding::fail("log", "torn", "look"));
    assert_eq!((exit(ErrorKind::BrokenPipe, fine()), exit(ErrorKind::BrokenPipe, bad())), (Exit::Done, Exit::Ailing));
    assert_eq!(exit(ErrorKind::StorageFull, fine()), Failure::Output(ErrorKind::StorageFull.into()).exit());
}
