//! What is shown of a record, and what is not.

use super::*;
use norn_model::task::Tombstone;
use norn_wire::response::ClaimOutcome;
use norn_wire::{ClaimId, PartitionId, QueueName};
use std::sync::Arc;
fn part(id: TaskId) -> Part {
    Part::new(&id.to_string()).unwrap()
}

const TASK: TaskId = TaskId::MIN;
const OTHER: TaskId = TaskId::MAX;
const TOKEN: Token = Token { epoch: 7, number: 42 };

fn spec() -> Spec {
    Spec {
        queue: QueueName::new("mail").unwrap(),
        payload: b"secret".to_vec(),
        priority: 3,
        not_before_ms: 0,
        headers: vec![("secret".to_owned(), "secret".to_owned())],
        attempts_max: 5,
        after: vec![OTHER],
        key: None,
        grouping: None,
        revision: None,
    }
}

fn facts(items: Vec<(TaskId, Task)>) -> Record {
    Record::Facts { partition: PartitionId(3), items: Arc::new(items) }
}

#[test]
fn facts_show_everything_but_what_belongs_to_the_task() {
    let completed =
        Completed { sequence: Some(1), result: Some(b"secret".to_vec().into()), at_ms: 1_000, children: None };
    let known = Facts {
        updates: vec![((TOKEN, 0), b"secret!".to_vec().into())],
        completions: vec![(TOKEN, completed)],
        purged: true,
        ..Facts::default()
    };
    let tombstone = Tombstone { state: norn_wire::State::Done, at_ms: 2_000 };
    let task =
        Task { spec: Some(Arc::new(spec())), facts: Some(Box::new(known)), tombstone: Some(Box::new(tombstone)) };
    let record = facts(vec![(TASK, task)]);
    let object = Content::of(&record, None).unwrap().object();
    let item = &object["items"][0];
    assert_eq!(item["id"], TASK.to_string());
    assert_eq!((&item["spec"]["queue"], &item["spec"]["payload_bytes"]), (&json!("mail"), &json!(6)));
    assert_eq!(item["spec"]["after"], json!([OTHER.to_string()]));
    assert_eq!(item["updates"], json!([{ "token": "7.42", "sequence": 0, "bytes": 7 }]));
    let completion = &item["completions"][0];
    assert_eq!((&completion["token"], &completion["result_bytes"]), (&json!("7.42"), &json!(6)));
    assert_eq!(item["purged"], json!(true));
    assert_eq!(item["tomb"], json!({ "state": "done", "at_ms": 2_000 }));
    let lines = Content::of(&record, None).unwrap().lines().join("\n");
    for shown in
        ["queue=mail", "payload_bytes=6", "token=7.42", "at=1970-01-01T00:00:01Z", "state=done", &TASK.to_string()]
    {
        assert!(lines.contains(shown), "{shown}: {lines}");
    }
    for text in [lines, object.to_string()] {
        assert!(!text.contains("secret") && !text.contains("115"), "{text}");
    }
}

#[test]
fn operations_show_tokens_and_viewstamps_of_the_task_that_is_looked_for() {
    let grant = Op::Grant {
        claim: ClaimId(1),
        worker: "w 1".into(),
        lease_ms: 1_000,
        granted_ms: 5_000,
        items: vec![(TASK, 42), (OTHER, 43)],
        session: None,
        lapsed: false,
    };
    let release = Op::Release { id: OTHER, token: TOKEN, not_before_ms: 0, at_ms: 6_000, failed: true, end: None };
    let after = Viewstamp { epoch: 7, length: 9 };
    let ops = vec![Arc::new(grant), Arc::new(release)];
    let record = Record::Ops { partition: PartitionId(3), after, ops };
    assert_eq!(Content::of(&record, None).unwrap().object()["items"].as_array().unwrap().len(), 3);
    let object = Content::of(&record, Some(&part(TASK))).unwrap().object();
    let items = object["items"].as_array().unwrap();
    assert_eq!(items.len(), 1, "{object}");
    assert_eq!((&items[0]["what"], &items[0]["token"]), (&json!("grant"), &json!("7.42")));
    assert_eq!((&items[0]["worker"], &items[0]["viewstamp"]), (&json!("w 1"), &json!("7.10")));
    let lines = Content::of(&record, Some(&part(OTHER))).unwrap().lines();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines[1].starts_with(&format!("    grant {OTHER} call=")), "{lines:?}");
    assert!(lines[1].contains("worker=\"w 1\"") && lines[2].contains("failed=true"), "{lines:?}");
    let vote = Record::Vote { partition: PartitionId(3), promised: 8, voted_for: None };
    assert!(Content::of(&vote, Some(&part(TASK))).is_none());
    assert_eq!(Content::of(&vote, None).unwrap().lines(), ["promised=8"]);
}

/// Goal: a client's text cannot control the terminal of the operator.
#[test]
fn control_characters_are_made_visible() {
    let end = ClaimEnd { outcome: ClaimOutcome::GivenUp, at_ms: 1, reason: Some("c\u{1b}[2J d".into()) };
    let op = Op::Kill { id: TASK, token: TOKEN, reason: "a\u{1b}[2J b".into(), at_ms: 1, end: Some(Arc::new(end)) };
    let record = Record::Ops { partition: PartitionId(3), after: Viewstamp::default(), ops: vec![Arc::new(op)] };
    let lines = Content::of(&record, None).unwrap().lines().join("\n");
    assert!(!lines.contains('\u{1b}') && lines.contains("[2J b"), "{lines}");
    assert!(lines.contains("given_up") && lines.contains("[2J d"), "{lines}");
}
