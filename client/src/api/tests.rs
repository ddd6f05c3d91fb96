//! The JSON of each type, as programs know it.

#[macro_use]
mod inputs;
mod samples;
#[cfg(feature = "schema")]
mod schemas;

use super::*;
use crate::session::{Draft, TransactionDraft};
use crate::wire::membership;
use crate::wire::{PartitionId, State};
use samples::{acked, id, node, queue, token};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;

/// A line for each type: its name, and a sample.
const GOLDEN: &str = include_str!("tests/golden.txt");

/// Lines of samples, each read back.
#[derive(Default)]
struct Lines(Vec<String>);

impl Lines {
    fn add<T: Serialize + DeserializeOwned + PartialEq + Debug>(&mut self, sample: &T) {
        let json = serde_json::to_string(sample).expect("it is JSON");
        let (whole, _) = std::any::type_name::<T>().split_once('<').unwrap_or((std::any::type_name::<T>(), ""));
        self.0.push(format!("{} {json}", whole.rsplit("::").next().expect("a name")));
        // Of two headers of one name the form shows the first, so the text is compared, too.
        let back: T = serde_json::from_str(&json).unwrap_or_else(|error| panic!("{json}: {error}"));
        assert_eq!(serde_json::to_string(&back).expect("it is JSON"), json);
    }
}

fn answers(lines: &mut Lines) {
    let (error, short_error) = (samples::error(), samples::short_error());
    lines.add(&ErrorReport::from(&error));
    lines.add(&ErrorReport::from(&short_error));
    lines.add(&RefusalReport::from(&samples::refusal()));
    lines.add(&WriteAck::from(&acked()));
    lines.add(&UniqueAck::new(&acked(), true));
    lines.add(&MemberAck::new(&acked(), id(9)));
    lines.add(&CancelAck::new(id(1), Some(&acked()), Some(State::Cancelled)));
    lines.add(&CancelAck::new(id(1), None, None));
    lines.add(&LetterAck { letter: WriteAck::from(&acked()), task: Some(id(2)), queue: queue() });
    lines.add(&LetterAck { letter: WriteAck::from(&acked()), task: None, queue: queue() });
    let (is, letter) = ((queue(), State::Dead), true);
    lines.add(&ExistingCopy { id: id(1), existing: true, queue: Some(is.0), state: Some(is.1), letter });
    lines.add(&ExistingCopy { id: id(1), existing: true, queue: None, state: None, letter: false });
    let (cause, explanation) = ("paused".into(), "the queue is paused".into());
    lines.add(&HeldLetters { redriven: 1, ready: 2, cause, explanation });
    lines.add(&BulkOutcome { chosen: 3, changed: 2 });
    lines.add(&TransactionAck::new(&[(id(1), samples::version()), (id(2), samples::version())], 1));
    let (granted, short) = (samples::granted(), samples::short_granted());
    lines.add(&GrantedTask::new(&granted, 1_000));
    lines.add(&GrantedTask::new(&short, 1_000));
    let lease = Some(Lease { lease_ms: 5, lease_expires_ms: 6 });
    lines.add(&HeldClaim { id: id(1), token: token(42), lease });
    lines.add(&HeldClaim { id: id(1), token: token(42), lease: None });
    lines.add(&Session { id: id(1), token: token(42), ttl_ms: 10_000, expires_ms: 11_000 });
    lines.add(&LogEntry::from(&granted.updates[1]));
    let (task, short) = (samples::task(), samples::short_task());
    lines.add(&Task::from(&task));
    lines.add(&Task::from(&short));
    lines.add(&GroupMember::new(samples::member(), Some(&task)));
    lines.add(&GroupMember::new(samples::member(), None));
    lines.add(&GroupProgress::from(&samples::group()));
    lines.add(&WatchNotice { watch: WatchNoticeKind::Begun, partitions: None });
    lines.add(&WatchNotice { watch: WatchNoticeKind::Lagged, partitions: None });
    lines.add(&WatchNotice { watch: WatchNoticeKind::Silent, partitions: Some(4) });
    lines.add(&WatchEvent::from(&samples::event()));
    lines.add(&WatchEvent::from(&samples::short_event()));
    lines.add(&samples::explanation());
}

fn administration(lines: &mut Lines) {
    lines.add(&Count { count: 4 });
    lines.add(&Queue::from(&samples::counts()));
    lines.add(&QueuePolicy::new(&queue(), &samples::policy()));
    lines.add(&QueuePolicy::new(&queue(), &membership::QueuePolicy::default()));
    lines.add(&Schedule::from(&samples::schedule()));
    lines.add(&Schedule::from(&samples::short_schedule()));
    lines.add(&ScheduleRemoval { name: "backup".into(), removed: true });
    let view = samples::node_view();
    lines.add(&Node::from(&view));
    lines.add(&Node::from(&samples::short_node_view()));
    lines.add(&NodeCounters::new(&view, &Ok(samples::status())));
    lines.add(&NodeCounters::new(&view, &Err(samples::short_error())));
    lines.add(&RingPlace::from(&samples::partition()));
    lines.add(&Partition::from(&samples::partition()));
    lines.add(&Partition::from(&samples::short_partition()));
    lines.add(&Status::from(&samples::status()));
    lines.add(&Finding::ok("leaders", "256 of 256 partitions have a leader"));
    lines.add(&Finding::warn("clocks", "beta: +620ms ±3, suspect", "set the clock of beta"));
    lines.add(&Finding::fail("members", "gamma does not answer", "start it"));
    lines.add(&Status { uncounted: None, ..Status::from(&samples::status()) });
    let members = samples::members();
    let share = || MemberShare { ..members[0].clone() };
    let (node_id, members) = (Some(node(1)), vec![share()]);
    let (change, state) = ("drain".into(), ChangeState::Begun);
    lines.add(&ChangeReport { change, state, already: false, node: node_id, version: 7, layout: 4, open: 2, members });
    let (root, settings) = (samples::root(), samples::settings());
    let member = ClusterMember {
        share: share(),
        address: "127.0.0.1:7400".into(),
        zone: "a".into(),
        weight: 100,
        alive: true,
        votes: true,
        leads: 8,
    };
    let (status, layout) = (samples::status(), samples::layout());
    let (members, under_way) = (vec![member], vec![samples::moving()]);
    lines.add(&ClusterOverview { status: (&status).into(), root, settings, layout, members, under_way });
    let (partitions, beyond) = (vec![samples::recovered()], [PartitionId(4)]);
    let (change, state, lost) = ("recover".into(), ChangeState::Planned, vec![node(2)]);
    lines.add(&RecoveryReport { change, state, lost, partitions, beyond: (&beyond[..]).into() });
    let addresses = ["127.0.0.1:7400".to_owned()];
    let (token, cluster) = ("norn-token".to_owned(), samples::status().cluster);
    lines.add(&Invitation { token, cluster, addresses: (&addresses[..]).into() });
}

fn inputs(lines: &mut Lines) {
    let task = samples::task_input();
    lines.add(&task);
    lines.add(&TaskInput { queue: "mail".into(), ..TaskInput::default() });
    lines.add(&JoinInput { total: 2, fail_fast: true });
    lines.add(&TasksInput(vec![TaskInput { queue: "mail".into(), ..TaskInput::default() }]));
    lines.add(&samples::transaction_input());
    lines.add(&TransactionInput::default());
}

#[test]
fn json_is_as_programs_know_it() {
    let mut lines = Lines::default();
    answers(&mut lines);
    administration(&mut lines);
    inputs(&mut lines);
    let known: Vec<&str> = GOLDEN.lines().collect();
    for (line, known) in lines.0.iter().zip(&known) {
        assert_eq!(line, known);
    }
    assert_eq!(lines.0.len(), known.len(), "all lines:\n{}", lines.0.join("\n"));
}

#[test]
fn an_input_with_an_unknown_field_is_refused_and_an_answer_is_read() {
    fn with_more<T: DeserializeOwned>(json: &str) -> Result<T, serde_json::Error> {
        serde_json::from_str(&json.replacen('{', r#"{"later":1,"#, 1))
    }
    let mut count = 0;
    for line in GOLDEN.lines() {
        let (name, json) = line.split_once(' ').expect("a name and a sample");
        let outcome = match name {
            "TaskInput" => with_more::<TaskInput>(json).map(drop),
            "TasksInput" => with_more::<TasksInput>(json).map(drop),
            "JoinInput" => with_more::<JoinInput>(json).map(drop),
            "TransactionInput" => with_more::<TransactionInput>(json).map(drop),
            "Task" => with_more::<Task<'_>>(json).map(drop),
            "HeldClaim" => with_more::<HeldClaim>(json).map(drop),
            "ClusterOverview" => with_more::<ClusterOverview<'_>>(json).map(drop),
            _ => continue,
        };
        count += 1;
        match name.ends_with("Input") {
            true => assert!(outcome.expect_err(line).to_string().contains("unknown field `later`"), "{line}"),
            false => outcome.expect(line),
        }
    }
    assert!(count > 8, "{count} lines");
    for (list, name) in [("changes", "id"), ("deletes", "id"), ("depends", "id"), ("adds", "queue")] {
        let json = format!(r#"{{"{list}": [{{"{name}": "x", "later": 1}}]}}"#);
        let error = serde_json::from_str::<TransactionInput>(&json).expect_err(list);
        assert!(error.to_string().contains("unknown field `later`"), "{list}: {error}");
    }
}

#[test]
fn inputs_become_drafts_with_all_that_they_say() {
    let task = Draft::try_from(samples::task_input()).expect("a good one");
    let spec = &task.spec;
    assert_eq!((task.id, task.delay_ms, spec.not_before_ms), (Some(id(1)), 90_000, 1_893_456_000_000));
    assert_eq!((&spec.payload[..], spec.priority, spec.attempts_max), (&[0xff, 0][..], -2, 3));
    assert_eq!((&spec.after[..], spec.key.as_deref()), (&[id(2)][..], Some("user-1")));
    assert!(spec.grouping.as_ref().is_some_and(|grouping| grouping.member.is_some()));
    let transaction = TransactionDraft::try_from(samples::transaction_input()).expect("a good one");
    let counts = (transaction.adds.len(), transaction.changes.len(), transaction.deletes.len());
    assert_eq!((counts, transaction.depends.len(), transaction.id), ((1, 1, 1), 1, Some(id(9))));
}

// O26
#[test]
fn a_schedule_in_json_says_when_what_and_how_often() {
    let json = serde_json::to_value(Schedule::from(&samples::schedule())).expect("it is JSON");
    assert_eq!((&json["cron"], &json["zone"]), (&"30 2 * * *".into(), &"Europe/Berlin".into()));
    assert_eq!((&json["next_ms"][0], &json["fired"], &json["missed"]), (&7.into(), &10.into(), &11.into()));
    assert_eq!((&json["last_id"], &json["data"]), (&id(1).to_string().into(), &"all".into()));
}
