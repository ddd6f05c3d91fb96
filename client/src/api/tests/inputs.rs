//! Inputs: what is read, what is refused and with which words, and what each becomes.

use super::samples::{id, node, queue, token};
use super::*;
use crate::client::{ClaimOptions, ListOptions, RedriveOptions};
use crate::session::{Call, Finish};
use norn_wire::membership::{
    Backoff, Candidate, ClusterChange, ClusterView, KeyConcurrency, Member, Mode, Order, QueueSetting, Rate, Roster,
    Settings,
};
use norn_wire::response::Identity;
use norn_wire::schedule::{CatchUp, Schedule, ScheduleChange, When};
use norn_wire::transaction::{Depend, Expected};
use norn_wire::{Acks, Claim, ClaimId, ClusterId, Completion, QueueName, Request, TaskId, TaskVersion};
use proptest::prelude::*;
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;

/// Good texts, one a line: the name of its type, and the text as the type writes it.
pub const GOOD: &str = include_str!("inputs.txt");

/// Calls a generic function for the input of a name; the inputs of [`GOLDEN`] included.
macro_rules! for_input {
    ($name:expr, $visit:ident($argument:expr)) => {
        for_input!($name, $visit($argument), AddressInput BackoffInput CancelInput ChangeInput ChangeKindInput ClaimInput
            ClusterChangeInput CompleteInput CompletionInput CompletionsInput DeleteInput DependInput FailInput
            GroupCloseInput HeldClaimInput JoinInput LeaseInput MemberInput MoveInput NewcomerInput PurgeInput QueuePolicyInput
            RebalanceInput RedriveInput RenewInput ReplacementInput ReplicasInput ScheduleInput SessionInput
            SessionOpenInput SettingsInput TaskInput TasksInput TransactionInput UpdateInput WeightInput ZoneInput)
    };
    ($name:expr, $visit:ident($argument:expr), $($input:ident)+) => {
        match $name {
            $(stringify!($input) => $visit::<$input>($argument),)+
            other => panic!("{other} is no input"),
        }
    };
}

/// Reads a text, and returns it as the type writes it.
pub fn rewritten<T: Serialize + DeserializeOwned>(text: &str) -> Result<String, String> {
    let input: T = serde_json::from_str(text).map_err(|error| error.to_string())?;
    Ok(serde_json::to_string(&input).expect("it is JSON"))
}

/// Returns the good texts with the names of their types.
pub fn good() -> impl Iterator<Item = (&'static str, &'static str)> {
    let lines = GOOD.lines().chain(GOLDEN.lines());
    let split = lines.map(|line| line.split_once(' ').expect("a name and a text"));
    split.filter(|(name, _)| name.ends_with("Input"))
}

fn read<T: DeserializeOwned>(text: &str) -> T {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn good_texts_are_read_and_written_back() {
    for (name, text) in good() {
        assert_eq!(for_input!(name, rewritten(text)).as_deref(), Ok(text), "{name}");
    }
}

#[test]
fn an_unknown_field_is_named_wherever_it_stands() {
    let mut count = 0;
    for (name, text) in good().filter(|(name, _)| *name != "TasksInput") {
        for (place, _) in text.match_indices('{') {
            let comma = if text[place..].starts_with("{}") { "" } else { "," };
            let odd = format!(r#"{}{{"later":1{comma}{}"#, &text[..place], &text[place + 1..]);
            let error = for_input!(name, rewritten(&odd)).expect_err(&odd);
            let among_headers = text[..place].ends_with(r#""headers":"#);
            assert!(among_headers || error.contains("`later`"), "{odd}: {error}");
            count += 1;
        }
    }
    assert!(count > 60, "{count} places");
}

#[test]
fn a_value_of_another_type_is_refused() {
    let mut count = 0;
    for (name, text) in good() {
        let Ok(Value::Object(fields)) = serde_json::from_str(text) else { continue };
        for (field, value) in &fields {
            let wrong = match value {
                Value::String(_) | Value::Bool(_) | Value::Array(_) | Value::Object(_) => Value::from(-1.5),
                Value::Number(_) => "many".into(),
                Value::Null => Value::from(vec![-1.5]),
            };
            let odd = Value::Object(fields.clone().into_iter().chain([(field.clone(), wrong)]).collect()).to_string();
            let error = for_input!(name, rewritten(&odd)).expect_err(&odd);
            assert!(error.contains("expected") && !error.contains("expected value"), "{odd}: {error}");
            count += 1;
        }
        for odd in ["[]", "null", "7", "\"x\"", "[[\"mail\"]]"].iter().filter(|_| name != "TasksInput") {
            let error = for_input!(name, rewritten(odd)).expect_err(odd);
            assert!(error.contains("expected a") || error.contains("expected one"), "{name} {odd}: {error}");
        }
    }
    assert!(count > 100, "{count} values");
}

#[test]
fn what_is_out_of_bounds_is_said_with_the_bounds() {
    for (name, text, what) in [
        ("ClaimInput", r#"{"queues": ["a"], "max": 0}"#, "expected a whole number from 1 to 1000"),
        ("ClaimInput", r#"{"queues": ["a"], "max": 1001}"#, "expected a whole number from 1 to 1000"),
        ("ClaimInput", r#"{"queues": ["a"], "lease_ms": -1}"#, "expected a whole number from 0"),
        ("ClaimInput", r#"{"queues": ["a"], "wait_ms": 1.5}"#, "expected a whole number from 0"),
        ("ClaimInput", r#"{"max": 1}"#, "missing field `queues`"),
        ("CompleteInput", r#"{"sequence": 1001}"#, "expected a whole number from 0 to 1000"),
        ("CompleteInput", r#"{"then": [{"queue": "a"}, {}]}"#, "task 2: missing field `queue`"),
        ("GroupCloseInput", r#"{"total": 10001}"#, "expected a whole number from 0 to 10000"),
        ("GroupCloseInput", r#"{"total": null}"#, "expected a whole number from 0 to 10000"),
        ("PurgeInput", r#"{"confirm": 100001}"#, "expected a whole number from 0 to 100000"),
        ("PurgeInput", r#"{"states": ["lost"]}"#, "unknown variant `lost`, expected one of"),
        ("RedriveInput", r#"{"limit": 0}"#, "expected a whole number from 1"),
        ("QueuePolicyInput", r#"{"paused": null}"#, "expected a boolean"),
        ("QueuePolicyInput", r#"{"order": "best"}"#, "expected one of `priority`, `random`, `fair`"),
        ("QueuePolicyInput", r#"{"attempts": 4294967296}"#, "expected a whole number from 0 to 4294967295"),
        ("QueuePolicyInput", r#"{"backoff": {"first_ms": 1, "jitter_percent": 101}}"#, "from 0 to 100"),
        ("ClusterChangeInput", r#"{"change": {"replicas": {"replicas": 8}}}"#, "from 1 to 7"),
        ("ClusterChangeInput", r#"{"change": {"weight": {"node": "n1", "weight": 0}}}"#, "from 1 to 1000000"),
        ("ClusterChangeInput", r#"{"change": {"move": {"partition": 4096, "nodes": []}}}"#, "from 0 to 4095"),
        ("ClusterChangeInput", r#"{"change": {"settings": {"moves_at_once": 1025}}}"#, "from 1 to 1024"),
        ("ClusterChangeInput", r#"{"change": "rebalance"}"#, "expected a change as an object with one field"),
        ("ClusterChangeInput", r#"{"change": {}}"#, "expected"),
        ("ClusterChangeInput", r#"{"change": {"drain": ["n1"]}}"#, "expected an object with `node`"),
        ("ClusterChangeInput", r#"{"change": {"rebalance": {}, "drain": {"node": "n1"}}}"#, "one change"),
    ] {
        let error = for_input!(name, rewritten(text)).expect_err(text);
        assert!(error.contains(what), "{text}: {error}");
    }
}

fn claim(queues: Vec<QueueName>) -> Claim {
    Claim {
        claim: ClaimId(0),
        repeated: false,
        queues,
        lease_ms: 30_000,
        wait_ms: 0,
        max: 1,
        worker: "norn".into(),
        lease_open: true,
        session: None,
        depends: Vec::new(),
        confirms: false,
    }
}

fn mail() -> QueueName {
    QueueName::new("mail").expect("a good name")
}

#[test]
fn a_claim_asks_for_what_its_fields_say() {
    let short: ClaimInput = read(r#"{"queues": ["mail"]}"#);
    assert_eq!(Claim::try_from(short), Ok(claim(vec![mail()])));
    let (_, text) = good().next().expect("the first is a claim");
    let depends = vec![Depend { id: id(2), expected: Expected::Version(TaskVersion(255)) }];
    let (lease_ms, wait_ms, max, session) = (60_000, 20_000, 10, Some(id(9)));
    let (worker, lease_open) = ("host-1".to_owned(), false);
    let whole = claim(vec![mail(), queue()]);
    let whole = Claim { lease_ms, wait_ms, max, worker, session, lease_open, depends, ..whole };
    assert_eq!(Claim::try_from(read::<ClaimInput>(text)), Ok(whole.clone()));
    let options = ClaimOptions::try_from(read::<ClaimInput>(text)).expect("a good one");
    assert_eq!((options.lease, options.wait), (Some(Duration::from_secs(60)), Duration::from_secs(20)));
    assert_eq!((options.queues, options.depends, options.session), (whole.queues, whole.depends, whole.session));
    let session = format!(r#"{{"queues": ["mail"], "session": "{}", "wait_ms": 900000}}"#, id(9));
    let of_session = Claim::try_from(read::<ClaimInput>(&session)).expect("a good one");
    assert_eq!((of_session.lease_ms, of_session.lease_open, of_session.wait_ms), (3_600_000, false, 300_000));
    for (text, what) in [
        (r#"{"queues": ["a b"]}"#, "white space"),
        (r#"{"queues": ["a"], "session": "9"}"#, "session: a task id has 32 characters"),
        (r#"{"queues": ["a"], "depends": [{"id": "9"}]}"#, "depends, number 1: a task id has 32 characters"),
    ] {
        let error = Claim::try_from(read::<ClaimInput>(text)).expect_err(text);
        assert!(error.0.contains(what), "{text}: {error}");
    }
    // What the session checks is refused there, in the same words as at the command line.
    let short_lease: ClaimInput = read(r#"{"queues": ["mail"], "lease_ms": 50}"#);
    let refused = Request::Claim(short_lease.try_into().expect("read")).check().expect_err("too short");
    assert_eq!(refused.message, "a lease of 50ms; 100ms to 1h are allowed, renew it to work longer");
}

#[test]
fn claims_are_renewed_completed_failed_and_logged() {
    let renew: RenewInput = read(&format!(r#"{{"items": [{{"id": "{}", "token": "7.42"}}]}}"#, id(1)));
    let renewed = Request::Renew { items: vec![(id(1), token(42))], lease_ms: None };
    assert_eq!(Request::try_from(renew), Ok(renewed));
    let completion = |sequence, result: Option<&[u8]>| Completion {
        id: id(1),
        token: token(42),
        sequence,
        result: result.map(|result| result.to_vec().into()),
        at_ms: 0,
        children: Vec::new(),
    };
    let plain: CompleteInput = read(r#"{"result": "sent"}"#);
    let (items, acks) = (vec![completion(None, Some(b"sent"))], Acks::One);
    let call = Call::Request(Request::Complete { items, acks });
    assert_eq!(plain.call(id(1), token(42), acks), Ok(call));
    let with_children: CompleteInput = read(
        r#"{"sequence": 3, "result": "/wA=", "result_encoding": "base64", "then": {"queue": "mail", "data": "7"}}"#,
    );
    let children = vec![Draft::new(mail(), "7")];
    let finish = Finish { completion: completion(Some(3), Some(&[0xff, 0])), children };
    let call = Call::Complete { items: vec![finish], acks: Acks::Quorum };
    assert_eq!(with_children.call(id(1), token(42), Acks::Quorum), Ok(call));
    let item = |more: &str| format!(r#"{{"id": "{}", "token": "7.42"{more}}}"#, id(1));
    let several =
        format!(r#"{{"items": [{}, {}]}}"#, item(""), item(r#", "then": [{"queue": "mail"}]"#).replace("7.42", "7.43"));
    let Ok(Call::Complete { items, .. }) = read::<CompletionsInput>(&several).call(Acks::All) else {
        panic!("one of them has children")
    };
    assert_eq!((items[0].completion.clone(), items[1].children.len()), (completion(None, None), 1));
    let bad =
        format!(r#"{{"items": [{}, {}]}}"#, item(""), item(r#", "then": [{"queue": "a b"}]"#).replace("7.42", "7.43"));
    let error = read::<CompletionsInput>(&bad).call(Acks::All).expect_err("a bad name");
    assert!(error.0.starts_with("items, number 2: task 1 of then: queue name"), "{error}");
    let fail = |text: &str| read::<FailInput>(text).request(id(1), token(42));
    let failed = |reason: &str, retry_in_ms, invalid, retry_open| {
        let (id, token, reason) = (id(1), token(42), reason.to_owned());
        Ok(Request::Fail { id, token, reason, retry_in_ms, invalid, retry_open })
    };
    assert_eq!(fail("{}"), failed("", 0, false, true));
    assert_eq!(fail(r#"{"reason": "busy", "retry_in_ms": 0}"#), failed("busy", 0, false, false));
    assert_eq!(fail(r#"{"invalid": true}"#), failed("", 0, true, true));
    assert!(fail(r#"{"invalid": true, "retry_in_ms": 1}"#).is_err());
    let update: UpdateInput = read(r#"{"data": "/wA=", "data_encoding": "base64"}"#);
    let (sequence, data, acks) = (2, vec![0xff, 0], Acks::One);
    let updated = Request::Update { id: id(1), token: token(42), sequence, data, acks };
    assert_eq!(update.request(id(1), token(42), sequence, acks), Ok(updated));
}

#[test]
fn tasks_are_cancelled_purged_and_redriven() {
    let cancelled = |reason: &str| Request::Cancel { id: id(1), reason: reason.into(), at_ms: 0, acks: Acks::One };
    assert_eq!(read::<CancelInput>("{}").request(id(1), Acks::One), cancelled("cancelled"));
    assert_eq!(read::<CancelInput>(r#"{"reason": ""}"#).request(id(1), Acks::One), cancelled(""));
    let close: GroupCloseInput = read(r#"{"total": 3}"#);
    let (total, acks) = (3, Acks::Quorum);
    assert_eq!(close.request(id(9), acks), Request::CloseGroup { id: id(9), total, acks });
    let purge = |text: &str| Purge::try_from(read::<PurgeInput>(text));
    assert_eq!(purge(&format!(r#"{{"ids": ["{}"]}}"#, id(1))), Ok(Purge::Tasks(vec![id(1)])));
    let Ok(Purge::Chosen(chosen)) = purge(r#"{"queue": "mail", "states": ["done"], "older_ms": 5, "confirm": 7}"#)
    else {
        panic!("a queue")
    };
    let list = ListOptions::new().queue(mail()).state(State::Done).older(Duration::from_millis(5)).page(1_000);
    let (states, dry_run, confirm) = (vec![State::Done], false, Some(7));
    assert_eq!(*chosen, Choice { list, states, dry_run, confirm });
    let redrive = |text: &str| read::<RedriveInput>(text).redrive(Acks::All);
    let options = RedriveOptions::new(mail()).reason("late").to(queue()).acks(Acks::All);
    assert_eq!(
        redrive(r#"{"queue": "mail", "reason": "late", "to": "team/mail", "dry_run": true}"#),
        Ok(Redrive::Queue { options, limit: u64::MAX, dry_run: true })
    );
    let (ids, copy, to) = (vec![id(1)], Some(id(2)), None);
    let one = format!(r#"{{"ids": ["{}"], "copy": "{}"}}"#, id(1), id(2));
    assert_eq!(redrive(&one), Ok(Redrive::Tasks { ids, copy, to }));
    let Ok(Redrive::Letters(letters)) = redrive(r#"{"letters": "mail", "limit": 5}"#) else { panic!("letters") };
    assert_eq!((letters.letters, letters.limit, letters.to, letters.acks), (mail(), 5, None, Acks::All));
    for text in [
        "{}",
        r#"{"ids": ["x"]}"#,
        r#"{"ids": ["x"], "queue": "a"}"#,
        r#"{"ids": ["x"], "dry_run": true}"#,
        r#"{"queue": "a b"}"#,
    ] {
        assert!(purge(text).is_err() && redrive(text).is_err(), "{text}");
    }
    for text in [
        r#"{"queue": "a", "dry_run": true, "confirm": 1}"#,
        r#"{"queue": "a", "states": ["ready"]}"#,
        r#"{"key": "a"}"#,
    ] {
        assert!(purge(text).is_err(), "{text}");
    }
    for text in [
        r#"{"letters": "a", "queue": "b"}"#,
        r#"{"letters": "a", "reason": "b"}"#,
        r#"{"queue": "a", "copy": "b"}"#,
        r#"{"limit": 1}"#,
    ] {
        assert!(redrive(text).is_err(), "{text}");
    }
}

#[test]
fn settings_of_a_queue_are_changed_or_removed() {
    let settings = |text: &str| read::<QueuePolicyInput>(text).settings();
    let mut texts = good().filter(|(name, _)| *name == "QueuePolicyInput").map(|(_, text)| text);
    let whole = settings(texts.next().expect("all settings")).expect("good ones");
    assert_eq!(whole.len(), 16);
    let backoff = Backoff { first_ms: 1_000, most_ms: 60_000, jitter_percent: 20 };
    for setting in [
        QueueSetting::Paused(true),
        QueueSetting::Backoff(Some(backoff)),
        QueueSetting::Order(Order::Fair),
        QueueSetting::Mode(Mode::Holder),
        QueueSetting::Rate(Some(Rate { claims: 100, per_ms: 1_000 })),
        QueueSetting::KeyConcurrency(KeyConcurrency::Most(10)),
    ] {
        assert!(whole.contains(&setting), "{setting:?}");
    }
    let removed = settings(texts.next().expect("none of those that can be removed")).expect("good ones");
    assert_eq!((removed.len(), &removed[11]), (12, &QueueSetting::KeyConcurrency(KeyConcurrency::Any)));
    let fixed = Backoff { first_ms: 5, most_ms: 5, jitter_percent: 0 };
    assert_eq!(settings(r#"{"backoff": {"first_ms": 5}}"#), Ok(vec![QueueSetting::Backoff(Some(fixed))]));
    let requests = read::<QueuePolicyInput>(r#"{"tasks": 5, "paused": false}"#).requests(&mail(), true);
    let change = |setting| Box::new(ClusterChange::Queue { queue: mail(), setting });
    let [paused, tasks] = [QueueSetting::Paused(false), QueueSetting::Tasks(Some(5))].map(change);
    let dry_run = true;
    assert_eq!(
        requests,
        Ok(vec![Request::Change { change: paused, dry_run }, Request::Change { change: tasks, dry_run }])
    );
    for text in ["{}", r#"{"rate": "10"}"#, r#"{"dead_letter": "a b"}"#] {
        assert!(settings(text).is_err(), "{text}");
    }
}

#[test]
fn a_schedule_is_due_by_cron_or_once() {
    let set = |text: &str| read::<ScheduleInput>(text).change("nightly");
    let (expression, zone) = ("30 2 * * *".to_owned(), "UTC".to_owned());
    let (when, payload, catch_up) = (When::Cron { expression, zone }, b"all".to_vec(), CatchUp::Last);
    let schedule = Schedule { when, queue: mail(), payload, priority: 0, attempts_max: 0, catch_up };
    let cron = r#"{"cron": "30 2 * * *", "queue": "mail", "data": "all"}"#;
    assert_eq!(set(cron), Ok(ScheduleChange::Set { name: "nightly".into(), schedule: schedule.into() }));
    for once in [r#""at": "2030-01-01T00:00:00Z""#, r#""at_ms": 1893456000000"#] {
        let Ok(ScheduleChange::Set { schedule, .. }) = set(&format!(r#"{{{once}, "queue": "mail"}}"#)) else {
            panic!("{once}")
        };
        assert_eq!(schedule.when, When::At(1_893_456_000_000));
    }
    for text in [
        r#"{"queue": "a"}"#,
        r#"{"queue": "a b", "at_ms": 1}"#,
        r#"{"queue": "a", "at": "tomorrow"}"#,
        r#"{"queue": "a", "at": "2030-01-01T00:00:00Z", "at_ms": 1}"#,
        r#"{"queue": "a", "cron": "* * * * *", "at_ms": 1}"#,
        r#"{"queue": "a", "zone": "UTC", "at_ms": 1}"#,
        r#"{"queue": "a", "at_ms": 1, "data": "%", "data_encoding": "base64"}"#,
    ] {
        assert!(set(text).is_err(), "{text}");
    }
}

#[test]
fn a_session_is_opened_renewed_and_ended() {
    let open = |text: &str| read::<SessionOpenInput>(text).open();
    let (draft, claim) = open("{}").expect("a good one");
    assert_eq!((draft, claim.lease_ms, claim.wait_ms), (Draft::session("norn"), 10_000, 2_500));
    for (ttl_ms, fits) in [(99, false), (100, true), (3_600_000, true), (3_600_001, false)] {
        assert_eq!(open(&format!(r#"{{"ttl_ms": {ttl_ms}}}"#)).is_ok(), fits, "{ttl_ms}");
    }
    assert!(open(&format!(r#"{{"worker": "{}"}}"#, "w".repeat(1_025))).is_err());
    let session = || read::<SessionInput>(&format!(r#"{{"id": "{}", "token": "7.42"}}"#, id(1)));
    assert_eq!(session().renewal(), Ok(Request::Renew { items: vec![(id(1), token(42))], lease_ms: None }));
    assert!(matches!(session().end(), Ok(Request::Complete { acks: Acks::Quorum, .. })));
    let bad: SessionInput = read(r#"{"id": "x", "token": "7"}"#);
    assert!(bad.end().is_err_and(|error| error.0.starts_with("id: ")));
}

/// A cluster of three members, of which the last is gone.
fn view() -> ClusterView {
    let states = [membership::MemberState::Up, membership::MemberState::Up, membership::MemberState::Gone];
    let member = |(place, state): (usize, membership::MemberState)| {
        let number = place as u16 + 1;
        let (address, zone) = (format!("127.0.0.1:740{number}"), "a".to_owned());
        let (node, name, weight) = (node(u128::from(number) << 100), format!("n{number}"), u32::from(number));
        (number, Member { node, incarnation: 1, name, address, zone, weight, state })
    };
    let members = states.into_iter().enumerate().map(member).collect();
    ClusterView {
        cluster: ClusterId(9),
        name: "prod".into(),
        roster: Roster { version: 7, members, policies: [].into() },
        voters: Vec::new(),
        leader: node(1 << 100),
        heard: Vec::new(),
        replicas: 3,
        settings: Settings::default(),
        layout: 4,
        stale: false,
        shares: [].into(),
        moving: Vec::new(),
        open: 0,
        unknown: 0,
    }
}

fn newcomer() -> Identity {
    let (name, address, zone) = ("n4".into(), "10.0.0.4:7400".into(), "c".into());
    Identity { node: node(4 << 100), incarnation: 5, name, address, zone, genesis: None, serving: false }
}

fn plan(change: &str) -> Result<PlannedChange, InputError> {
    let input: ClusterChangeInput = read(&format!(r#"{{"change": {change}}}"#));
    let newcomer = input.newcomer().is_some().then(newcomer);
    input.plan(&view(), newcomer.as_ref())
}

#[test]
fn changes_of_a_cluster_name_members_as_the_commands_do() {
    let [first, second, third] = [1, 2, 3].map(|number| node(number << 100));
    let partition = PartitionId(3);
    let settings = Settings { heal_after_ms: None, ..Settings::default() };
    for (text, verb, node, change) in [
        (r#"{"drain": {"node": "n2"}}"#, "drain", Some(second), ClusterChange::Drain { node: second }),
        (r#"{"undrain": {"node": "00000020"}}"#, "undrain", Some(second), ClusterChange::Undrain { node: second }),
        (r#"{"remove": {"node": "n3"}}"#, "remove", Some(third), ClusterChange::Remove { node: third }),
        (r#"{"rebalance": {}}"#, "rebalance", None, ClusterChange::Rebalance),
        (r#"{"replicas": {"replicas": 5}}"#, "replicas", None, ClusterChange::Replicas { replicas: 5 }),
        (
            r#"{"weight": {"node": "n1", "weight": 3}}"#,
            "weight",
            Some(first),
            ClusterChange::Weight { node: first, weight: 3 },
        ),
        (
            r#"{"zone": {"node": "n1", "zone": "b"}}"#,
            "zone",
            Some(first),
            ClusterChange::Zone { node: first, zone: "b".into() },
        ),
        (
            r#"{"address": {"node": "n1", "address": "a:1"}}"#,
            "address",
            Some(first),
            ClusterChange::Address { node: first, address: "a:1".into() },
        ),
        (
            r#"{"move": {"partition": 3, "nodes": ["n2", "n1"]}}"#,
            "move",
            None,
            ClusterChange::Arrange { partition, nodes: vec![second, first] },
        ),
        (r#"{"settings": {"heal_after_ms": null}}"#, "heal-after", None, ClusterChange::Settings { settings }),
    ] {
        let planned = PlannedChange { verb, node, change: Some(change), dry_run: false };
        assert_eq!(plan(text).as_ref(), Ok(&planned), "{text}");
        assert!(matches!(planned.request(), Some(Request::Change { dry_run: false, .. })));
    }
    let absent = plan(r#"{"remove": {"node": "n9"}}"#).expect("removed before, perhaps");
    assert_eq!((absent.request(), absent.verb), (None, "remove"));
    let rehearsed: ClusterChangeInput = read(r#"{"change": {"remove": {"node": "n9"}}, "dry_run": true}"#);
    let error = rehearsed.plan(&view(), None).expect_err("there is no such member");
    assert!(error.0.contains("there is no member \"n9\""), "{error}");
    for (text, what) in [
        (r#"{"drain": {"node": "n9"}}"#, "there is no member \"n9\" in this cluster; its members are n1, n2"),
        (r#"{"drain": {"node": "0000"}}"#, "the ids of several members begin with \"0000\""),
        (r#"{"drain": {"node": "000"}}"#, "there is no member"),
        (r#"{"address": {"node": "n1", "address": "a"}}"#, "an address is HOST:PORT"),
        (r#"{"move": {"partition": 3, "nodes": []}}"#, "say which nodes"),
        (r#"{"move": {"partition": 3, "nodes": ["n1", "n1"]}}"#, "named twice"),
        (r#"{"settings": {}}"#, "no setting is named"),
    ] {
        let error = plan(text).expect_err(text);
        assert!(error.0.contains(what), "{text}: {error}");
    }
}

#[test]
fn a_new_member_is_what_it_says_of_itself() {
    let Identity { node, incarnation, name, address, zone, .. } = newcomer();
    let own = Candidate { cluster: None, node, incarnation, name, address, zone, weight: 1 };
    let add = plan(r#"{"add": {"address": "127.0.0.1:7404"}}"#).expect("a good one");
    assert_eq!((add.verb, add.node), ("add", Some(node)));
    assert_eq!(add.change, Some(ClusterChange::Add { with: own.clone() }));
    let wanted = plan(r#"{"add": {"address": "127.0.0.1:7404", "weight": 5, "zone": "b"}}"#).expect("a good one");
    let with = Candidate { weight: 5, zone: "b".into(), ..own.clone() };
    assert_eq!(wanted.change, Some(ClusterChange::Add { with }));
    let replace = plan(r#"{"replace": {"node": "n2", "address": "127.0.0.1:7404"}}"#).expect("a good one");
    let (old, with) = (view().roster.members[&2].node, Candidate { weight: 2, ..own });
    assert_eq!((replace.verb, replace.change), ("replace", Some(ClusterChange::Replace { node: old, with })));
    let again: ClusterChangeInput = read(r#"{"change": {"replace": {"node": "n2", "address": "a:1"}}}"#);
    let taken = Identity { node: old, ..newcomer() };
    assert_eq!(again.clone().plan(&view(), Some(&taken)).map(|planned| planned.verb), Ok("add"));
    assert!(again.plan(&view(), None).is_err_and(|error| error.0.contains("was not asked who it is")));
}

#[test]
fn durability_and_cursors_have_texts() {
    assert_eq!(["one", "quorum", "all"].map(acks), [Ok(Acks::One), Ok(Acks::Quorum), Ok(Acks::All)]);
    assert!(acks("").is_err() && acks("One").is_err());
    let whole = vec![0xff; 512].into();
    let place = norn_wire::watch::WatchPlace { node: node(1), start: u64::MAX, number: 7, whole };
    let cursor = norn_wire::WatchCursor { places: vec![place; 512] };
    assert_eq!(watch_cursor(&watch_cursor_text(&cursor)), Ok(cursor), "the largest there is");
    for bad in ["", "!", "AA==", &"A".repeat(1 << 20), "3f////8"] {
        assert!(watch_cursor(bad).is_err(), "{bad:.20}");
    }
}

/// Converts an input, if there is anything to convert it into.
fn converted(name: &str, text: &str) {
    fn with<T: DeserializeOwned, V>(text: &str, convert: impl FnOnce(T) -> V) {
        serde_json::from_str(text).map(|input| drop(convert(input))).unwrap_or_default();
    }
    match name {
        "ClaimInput" => {
            with(text, |input: ClaimInput| Claim::try_from(input).map(|claim| Request::Claim(claim).check()))
        }
        "HeldClaimInput" => with(text, |input: HeldClaimInput| <(TaskId, _)>::try_from(input)),
        "RenewInput" => with(text, |input: RenewInput| Request::try_from(input).map(|request| request.check())),
        "CompleteInput" => with(text, |input: CompleteInput| input.call(id(1), token(1), Acks::One)),
        "CompletionInput" => with(text, |input: CompletionInput| Finish::try_from(input)),
        "CompletionsInput" => with(text, |input: CompletionsInput| input.call(Acks::One)),
        "FailInput" => with(text, |input: FailInput| input.request(id(1), token(1)).map(|request| request.check())),
        "UpdateInput" => with(text, |input: UpdateInput| input.request(id(1), token(1), 0, Acks::One)),
        "CancelInput" => with(text, |input: CancelInput| input.request(id(1), Acks::One).check()),
        "GroupCloseInput" => with(text, |input: GroupCloseInput| input.request(id(1), Acks::One).check()),
        "PurgeInput" => with(text, |input: PurgeInput| Purge::try_from(input)),
        "RedriveInput" => with(text, |input: RedriveInput| input.redrive(Acks::One)),
        "QueuePolicyInput" => with(text, |input: QueuePolicyInput| input.requests(&mail(), true)),
        "ScheduleInput" => with(text, |input: ScheduleInput| input.change("nightly")),
        "SessionOpenInput" => with(text, |input: SessionOpenInput| input.open()),
        "SessionInput" => with(text, |input: SessionInput| input.end()),
        "ClusterChangeInput" => with(text, |input: ClusterChangeInput| input.plan(&view(), Some(&newcomer()))),
        "TaskInput" => with(text, |input: TaskInput| Draft::try_from(input)),
        "TasksInput" => with(text, |input: TasksInput| input.drafts("list")),
        "TransactionInput" => with(text, |input: TransactionInput| TransactionDraft::try_from(input)),
        _ => {}
    }
}

/// A JSON value as a program might write it by mistake.
fn value() -> impl Strategy<Value = String> {
    let texts =
        ["null", "-1", "1e999", "18446744073709551615", "9223372036854775808", "0.5", "true", "\"\"", "[]", "{}"];
    let ids = ["\"000032yfwnm00000000g0000003g0003\"", "\"7.42\"", "\"mail\"", "[\"n1\"]", "[{}]", "\"99999999y\""];
    prop_oneof![
        prop::sample::select(texts.into_iter().chain(ids).collect::<Vec<_>>()).prop_map(str::to_owned),
        any::<u64>().prop_map(|number| number.to_string()),
        ".{0,20}".prop_map(|text| serde_json::to_string(&text).expect("it is JSON")),
    ]
}

proptest! {
    /// Goal: no text stops the program. Method: good texts with a piece exchanged, or cut off.
    #[test]
    fn no_text_panics(line in any::<prop::sample::Index>(), from in any::<prop::sample::Index>(), by in value(), cut in any::<bool>()) {
        let all: Vec<_> = good().collect();
        let (name, text) = all[line.index(all.len())];
        let starts: Vec<usize> = text.match_indices([':', '[', ',', '{', '"']).map(|(at, _)| at + 1).collect();
        let start = starts.get(from.index(starts.len().max(1))).copied().unwrap_or(1);
        let rest = &text[start..];
        let end = rest.find([',', '}', ']']).unwrap_or(rest.len());
        let odd = format!("{}{by}{}", &text[..start], if cut { "" } else { &rest[end..] });
        let _ = for_input!(name, rewritten(&odd));
        converted(name, &odd);
    }
}

#[test]
fn what_is_named_twice_is_refused_with_both_places() {
    let one = "000032yfwnm00000000g0000003g0003";
    let ids = format!(r#"{{"ids": ["{one}", "{}", "{one}"]}}"#, id(2));
    let twice = |error: InputError| {
        assert!(error.0.starts_with("ids, number 3: ") && error.0.contains("is number 1, too"), "{error}")
    };
    twice(read::<RedriveInput>(&ids).redrive(Acks::One).unwrap_err());
    twice(Purge::try_from(read::<PurgeInput>(&ids)).unwrap_err());
    let claims = format!(r#"{{"items": [{{"id": "{one}", "token": "7.42"}}, {{"id": "{one}", "token": "7.42"}}]}}"#);
    let error = Request::try_from(read::<RenewInput>(&claims)).unwrap_err();
    assert!(error.0.starts_with("items, number 2: the claim 7.42 of"), "{error}");
    assert_eq!(read::<CompletionsInput>(&claims).call(Acks::One).unwrap_err(), error);
    let other = claims.replacen("7.42", "7.41", 1);
    assert!(Request::try_from(read::<RenewInput>(&other)).is_ok(), "two claims of one task");
}

#[test]
fn an_encoding_of_nothing_is_refused() {
    let of_result = "`result_encoding` goes with `result`";
    let error = read::<CompleteInput>(r#"{"result_encoding": "base64"}"#).finish(id(1), token(1)).unwrap_err();
    assert!(error.0.contains(of_result), "{error}");
    let one = "000032yfwnm00000000g0000003g0003";
    for (list, field, what) in
        [("deletes", "result_encoding", of_result), ("changes", "data_encoding", "`data_encoding` goes with `data`")]
    {
        let text = format!(r#"{{"{list}": [{{"id": "{one}", "{field}": "utf8"}}]}}"#);
        let error = TransactionDraft::try_from(read::<TransactionInput>(&text)).unwrap_err();
        assert!(error.0.contains(what), "{error}");
    }
}

#[test]
fn a_delay_is_a_text_or_a_number() {
    let draft = |text: &str| Draft::try_from(read::<TaskInput>(text));
    assert_eq!(draft(r#"{"queue": "mail", "delay_ms": 1500}"#), draft(r#"{"queue": "mail", "delay": "1500ms"}"#));
    let error = draft(r#"{"queue": "mail", "delay": "1s", "delay_ms": 1000}"#).unwrap_err();
    assert!(error.0.contains("`delay` and `delay_ms`"), "{error}");
    let change = |field: &str| {
        let text = format!(r#"{{"changes": [{{"id": "000032yfwnm00000000g0000003g0003", {field}}}]}}"#);
        TransactionDraft::try_from(read::<TransactionInput>(&text)).unwrap().changes[0].delay_ms
    };
    assert_eq!(change(r#""delay_ms": 1500"#), change(r#""delay": "1500ms""#));
}

#[test]
fn each_input_is_tried() {
    let inner = ["AddressInput", "MemberInput", "MoveInput", "NewcomerInput", "RebalanceInput", "ReplacementInput"];
    let more =
        ["ReplicasInput", "SettingsInput", "WeightInput", "ZoneInput", "ChangeInput", "DeleteInput", "DependInput"];
    let tried: BTreeSet<&str> = good().map(|(name, _)| name).chain(inner).chain(more).collect();
    assert_eq!(tried.len(), 37, "a line of `inputs.txt` for each input: {tried:?}");
    for (name, text) in good() {
        converted(name, text);
    }
}
