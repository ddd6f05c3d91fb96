//! The inputs of `norn_client::api` ask for what the commands ask for.

use super::*;
use norn_client::api::{
    ClaimInput, CompleteInput, FailInput, QueuePolicyInput, RenewInput, ScheduleInput, SessionOpenInput, UpdateInput,
};
use norn_wire::{Acks, Claim};
use serde::de::DeserializeOwned;

fn read<T: DeserializeOwned>(text: &str) -> T {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Runs a command without an answer, and returns its only call.
async fn asked(line: &str) -> Call {
    let outcome = run(line, []).await;
    match &outcome.calls[..] {
        [(call, _)] => call.clone(),
        other => panic!("one call is expected of {line:?}: {other:?}; {}", outcome.noted),
    }
}

#[tokio::test]
async fn claims_are_asked_for_as_by_the_command() {
    let session = id(9);
    for (line, text) in [
        ("claim mail".to_owned(), r#"{"queues": ["mail"]}"#.to_owned()),
        (
            "claim mail,team/mail --lease 1m --max 10 --worker w".to_owned(),
            r#"{"queues": ["mail", "team/mail"], "lease_ms": 60000, "max": 10, "worker": "w"}"#.to_owned(),
        ),
        (
            format!("claim mail --session {session} --depends {}@00000000000000ff,{}", id(1), id(2)),
            format!(
                r#"{{"queues": ["mail"], "session": "{session}",
                    "depends": [{{"id": "{}", "version": "00000000000000ff"}}, {{"id": "{}"}}]}}"#,
                id(1),
                id(2)
            ),
        ),
    ] {
        let claim = Claim::try_from(read::<ClaimInput>(&text)).unwrap();
        assert_eq!(asked(&line).await, Call::Request(Request::Claim(claim)), "{line}");
    }
}

#[tokio::test]
async fn claims_are_renewed_and_end_as_by_the_commands() {
    let (id, token) = (id(1), Token { epoch: 7, number: 42 });
    let renew: RenewInput = read(&format!(r#"{{"items": [{{"id": "{id}", "token": "7.42"}}], "lease_ms": 5000}}"#));
    let renew = Request::try_from(renew).unwrap();
    assert_eq!(asked(&format!("renew {id} 7.42 --lease 5s")).await, Call::Request(renew));
    let update = read::<UpdateInput>(r#"{"data": "half"}"#).request(id, token, 2, Acks::One).unwrap();
    assert_eq!(asked(&format!("update {id} 7.42 2 half --acks one")).await, Call::Request(update));
    let complete = read::<CompleteInput>(r#"{"result": "sent", "sequence": 3}"#).call(id, token, Acks::Quorum);
    assert_eq!(Ok(asked(&format!("complete {id} 7.42 --result sent --seq 3")).await), complete);
    for (flags, text) in [
        ("", "{}"),
        ("--reason busy --retry-in 30s", r#"{"reason": "busy", "retry_in_ms": 30000}"#),
        ("--invalid", r#"{"invalid": true}"#),
    ] {
        let fail = read::<FailInput>(text).request(id, token).unwrap();
        assert_eq!(asked(&format!("fail {id} 7.42 {flags}")).await, Call::Request(fail), "{flags}");
    }
}

#[tokio::test]
async fn each_setting_of_a_queue_is_changed_as_by_the_command() {
    for (words, text) in [
        ("paused yes", r#"{"paused": true}"#),
        ("attempts 5", r#"{"attempts": 5}"#),
        ("attempts none", r#"{"attempts": null}"#),
        ("lease 1m", r#"{"lease_ms": 60000}"#),
        ("lease-max 1h", r#"{"lease_max_ms": 3600000}"#),
        ("backoff fixed 5s", r#"{"backoff": {"first_ms": 5000}}"#),
        (
            "backoff exponential 1s 1m jitter 20%",
            r#"{"backoff": {"first_ms": 1000, "most_ms": 60000, "jitter_percent": 20}}"#,
        ),
        ("backoff none", r#"{"backoff": null}"#),
        ("retention 1d", r#"{"retention_ms": 86400000}"#),
        ("order fair", r#"{"order": "fair"}"#),
        ("ageing none", r#"{"ageing_ms": null}"#),
        ("rate 100/s", r#"{"rate": "100/s"}"#),
        ("concurrency 9", r#"{"concurrency": 9}"#),
        ("key-concurrency none", r#"{"key_concurrency": null}"#),
        ("failed-dependency skip", r#"{"failed_dependency": "skip"}"#),
        ("mode holder", r#"{"mode": "holder"}"#),
        ("tasks 100", r#"{"tasks": 100}"#),
        ("bytes 1MiB", r#"{"bytes": 1048576}"#),
        ("dead-letter mail-dead", r#"{"dead_letter": "mail-dead"}"#),
    ] {
        let requests = read::<QueuePolicyInput>(text).requests(&queue("mail"), false).unwrap();
        assert_eq!(
            vec![asked(&format!("queue set mail {words}")).await],
            requests.into_iter().map(Call::Request).collect::<Vec<_>>(),
            "{words}"
        );
    }
}

#[tokio::test]
async fn schedules_and_sessions_are_set_and_opened_as_by_the_commands() {
    for (words, text) in [
        ("all --cron '30 2 * * *'", r#"{"cron": "30 2 * * *", "queue": "mail", "data": "all"}"#),
        (
            "--at 2030-01-01T00:00:00Z --catch-up all --priority -1 --max-attempts 2",
            r#"{"at": "2030-01-01T00:00:00Z", "queue": "mail", "catch_up": "all", "priority": -1, "attempts": 2}"#,
        ),
    ] {
        let change = read::<ScheduleInput>(text).change("nightly").unwrap();
        let request = Request::Schedule(Box::new(change));
        assert_eq!(asked(&format!("schedule set nightly mail {words}")).await, Call::Request(request), "{words}");
    }
    let (draft, claim) = read::<SessionOpenInput>(r#"{"ttl_ms": 5000, "worker": "w"}"#).open().unwrap();
    let outcome = run("session open --ttl 5s --worker w", [Ok(Response::Acked(vec![Ok(acked(1))]))]).await;
    let [(Call::Enqueue { drafts, .. }, _), (Call::Request(Request::Claim(claimed)), _), ..] = &outcome.calls[..]
    else {
        panic!("{:?}", outcome.calls)
    };
    assert_eq!((&drafts[..], claimed), (&[draft][..], &claim));
}
