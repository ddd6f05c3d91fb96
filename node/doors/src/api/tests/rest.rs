//! Exchanges about queues, groups, transactions, sessions, schedules and the cluster.

use super::exchange::{Exchange, alone, exchange};
use crate::testing::samples as with;
use norn_wire::response::Page;
use norn_wire::{Error, ErrorCode, Response, State};

fn failed(code: ErrorCode, message: &str) -> [Response; 1] {
    [Response::Error(Error::new(code, message).about(with::id(1)))]
}

pub fn queues() -> Vec<Exchange> {
    vec![
        exchange("GET /v1/queues", "", [Response::Queues(vec![with::counts()])]),
        alone("GET /v1/queues?queue=mail", ""),
        exchange("GET /v1/queues", "", failed(ErrorCode::Denied, "not for you")),
        exchange("GET /v1/policies", "", [with::cluster()]),
        exchange("GET /v1/policies?queue=team%2Fmail", "", [with::cluster()]),
        exchange("GET /v1/policies?queue=other", "", [with::cluster()]),
        alone("GET /v1/policies?queue=a%20b", ""),
        exchange("PATCH /v1/policies?queue=team/mail", r#"{"attempts":5}"#, [with::changed()]),
        exchange(
            "PATCH /v1/policies?queue=team/mail",
            r#"{"attempts":5,"rate":null}"#,
            [with::changed(), with::changed(), with::changed(), with::changed()],
        ),
        exchange(
            "PATCH /v1/policies?queue=team/mail",
            r#"{"attempts":5,"rate":"1/s"}"#,
            [vec![with::changed(), with::changed(), with::changed()], failed(ErrorCode::Invalid, "no").into()].concat(),
        ),
        alone("PATCH /v1/policies?queue=team/mail", r#"{"attempt":5}"#),
        alone("PATCH /v1/policies?queue=team/mail", "{}"),
        alone("PATCH /v1/policies", r#"{"attempts":5}"#),
        alone("POST /v1/policies?queue=mail", "{}"),
    ]
}

pub fn groups() -> Vec<Exchange> {
    let (join, close) = (with::join(), format!("POST /v1/groups/{}/close", with::id(9)));
    let members = format!("GET /v1/groups/{}/members", with::id(9));
    vec![
        exchange(&close, r#"{"total":2}"#, [Response::AckedOne(with::acked(1))]),
        exchange(&close, r#"{"total":2}"#, [Response::AckedOne(with::sloppy(1))]),
        alone(format!("{close}?acks=most"), r#"{"total":2}"#),
        exchange(&close, r#"{"total":0}"#, failed(ErrorCode::Invalid, "a group has members")),
        exchange(&close, r#"{"total":3}"#, failed(ErrorCode::Conflict, "x")),
        alone("POST /v1/groups/nine/close", r#"{"total":3}"#),
        exchange(format!("{members}?limit=1"), "", [Response::Task(join.clone()), with::told(1, State::Done)]),
        exchange(format!("{members}?after=2"), "", [Response::Task(join)]),
        alone(format!("{members}?limit=1001"), ""),
        alone(format!("{members}?first=1"), ""),
        exchange(&members, "", [with::told(1, State::Done)]),
        exchange(&members, "", failed(ErrorCode::NotFound, "there is no such task")),
    ]
}

pub fn transactions() -> Vec<Exchange> {
    let draft = r#"{"deletes":[{"id":"000038g2m4d7kq9rjscg0080000w3n5t"}]}"#;
    vec![
        exchange("POST /v1/transactions", draft, [Response::Transacted(Ok(Vec::new()))]),
        exchange("POST /v1/transactions", draft, [Response::Transacted(Err(Box::new(with::refusal())))]),
        exchange("POST /v1/transactions", draft, failed(ErrorCode::Denied, "not for you")),
        alone("POST /v1/transactions", r#"{"deletes":[{"id":"x"}]}"#),
        alone("POST /v1/transactions", r#"{"removes":[]}"#),
        alone("POST /v1/transactions", "["),
    ]
}

pub fn bulk() -> Vec<Exchange> {
    let page = |tasks| Response::Page(Page { tasks, next: None });
    vec![
        exchange("POST /v1/redrive", r#"{"queue":"mail","dry_run":true}"#, [page(vec![with::task(1, State::Dead)])]),
        exchange("POST /v1/redrive", r#"{"queue":"mail"}"#, [page(Vec::new())]),
        exchange("POST /v1/redrive", r#"{"queue":"mail"}"#, failed(ErrorCode::Denied, "not for you")),
        alone("POST /v1/redrive", r#"{"queue":"mail","letters":"x"}"#),
        alone("POST /v1/redrive", r#"{"ids":["x"]}"#),
        exchange(
            "POST /v1/redrive",
            r#"{"ids":["000038g2m4d7kq9rjscg0080000w3n5t"]}"#,
            failed(ErrorCode::NotFound, "there is no such task"),
        ),
        exchange(
            "POST /v1/purge",
            r#"{"ids":["000038g2m4d7kq9rjscg0080000w3n5t"]}"#,
            [Response::AckedOne(with::acked(1))],
        ),
        exchange(
            "POST /v1/purge",
            r#"{"ids":["000038g2m4d7kq9rjscg0080000w3n5t"]}"#,
            failed(ErrorCode::Conflict, "the task has not ended"),
        ),
        exchange("POST /v1/purge", r#"{"queue":"mail","dry_run":true}"#, [page(vec![with::task(1, State::Done)])]),
        exchange("POST /v1/purge", r#"{"queue":"mail"}"#, [page(vec![with::task(1, State::Done)])]),
        exchange(
            "POST /v1/purge",
            r#"{"queue":"mail","confirm":1}"#,
            [page(vec![with::task(1, State::Done)]), Response::AckedOne(with::acked(1))],
        ),
        alone("POST /v1/purge", r#"{"queue":"mail","states":["ready"]}"#),
        alone("POST /v1/purge", "{}"),
    ]
}

pub fn sessions() -> Vec<Exchange> {
    let one = |verb| format!("POST /v1/sessions/{}/2.1/{verb}", with::id(1));
    let session = || Response::Task(with::session());
    vec![
        exchange("POST /v1/sessions", "", [Response::Acked(vec![Ok(with::acked(1))]), with::session_granted()]),
        alone("POST /v1/sessions", r#"{"ttl_ms":5}"#),
        alone("POST /v1/sessions", r#"{"ttl":5}"#),
        exchange(one("renew"), "", [session(), Response::Renewed(vec![Ok(10_000)])]),
        exchange(one("renew"), "", [with::told(1, State::Done)]),
        exchange(one("end"), "", [session(), Response::Acked(vec![Ok(with::acked(1))])]),
        exchange(format!("POST /v1/sessions/{}/1.1/end", with::id(1)), "", [session()]),
        alone("POST /v1/sessions/x/2.1/end", ""),
        alone(format!("POST /v1/sessions/{}/x/end", with::id(1)), ""),
    ]
}

pub fn schedules() -> Vec<Exchange> {
    let scheduled = || Response::Scheduled { already: false, view: Some(Box::new(with::schedule())) };
    let set = r#"{"cron":"30 2 * * *","queue":"backup","data":"all"}"#;
    vec![
        exchange("GET /v1/schedules", "", [Response::Schedules(vec![with::schedule()])]),
        exchange("GET /v1/schedules?name=nightly", "", [Response::Schedules(vec![with::schedule()])]),
        exchange("GET /v1/schedules?name=x", "", failed(ErrorCode::NotFound, "there is no schedule x")),
        alone("GET /v1/schedules?title=x", ""),
        exchange("PUT /v1/schedules?name=nightly", set, [scheduled()]),
        alone("PUT /v1/schedules?name=nightly", r#"{"queue":"backup"}"#),
        alone("PUT /v1/schedules", set),
        exchange("PUT /v1/schedules?name=nightly", set, failed(ErrorCode::Invalid, "there is no such zone")),
        exchange("POST /v1/schedules/pause?name=nightly", "", [scheduled()]),
        exchange("POST /v1/schedules/resume?name=nightly", "", [scheduled()]),
        exchange("POST /v1/schedules/resume?name=x", "", failed(ErrorCode::NotFound, "there is no schedule x")),
        exchange("DELETE /v1/schedules?name=nightly", "", [Response::Scheduled { already: false, view: None }]),
        alone("DELETE /v1/schedules", ""),
    ]
}

pub fn watch() -> Vec<Exchange> {
    let ended = with::error(ErrorCode::NotFound);
    vec![
        exchange("GET /v1/watch?queue=mail", "", [with::watched(), Response::Error(ended)]),
        alone("GET /v1/watch?queue=mail", "").with(&[("last-event-id", crate::sse::ENDED_ID)]),
        alone("GET /v1/watch", ""),
        alone("GET /v1/watch?queue=mail&group=x", ""),
        alone("GET /v1/watch?group=x", ""),
    ]
}

pub fn cluster() -> Vec<Exchange> {
    let (status, ring) =
        (|| Response::Status(Box::new(with::status())), || Response::Partitions(vec![with::partition()]));
    vec![
        exchange("GET /v1/nodes", "", [Response::Nodes(vec![with::node()])]),
        exchange("GET /v1/ring", "", [ring()]),
        exchange("GET /v1/partitions", "", [ring()]),
        exchange("GET /v1/status", "", [status()]),
        exchange("GET /v1/cluster", "", [status(), with::cluster(), ring()]),
        alone("GET /v1/status?watch=1s", ""),
        exchange("GET /v1/nodes", "", failed(ErrorCode::Denied, "not for you")),
        exchange(
            "POST /v1/cluster/changes",
            r#"{"change":{"drain":{"node":"n1"}},"dry_run":true}"#,
            [with::cluster(), with::changed()],
        ),
        exchange("POST /v1/cluster/changes", r#"{"change":{"rebalance":{}}}"#, [with::cluster(), with::changed()]),
        exchange(
            "POST /v1/cluster/changes",
            r#"{"change":{"settings":{"heal_after_ms":null}}}"#,
            [with::cluster(), with::changed()],
        ),
        exchange("POST /v1/cluster/changes", r#"{"change":{"remove":{"node":"n9"}}}"#, [with::cluster()]),
        exchange("POST /v1/cluster/changes", r#"{"change":{"drain":{"node":"n9"}}}"#, [with::cluster()]),
        exchange(
            "POST /v1/cluster/changes",
            r#"{"change":{"add":{"address":"127.0.0.1:7403"}}}"#,
            [with::cluster(), with::changed_with_newcomer()],
        )
        .beside(with::newcomer()),
        exchange(
            "POST /v1/cluster/changes",
            r#"{"change":{"replace":{"node":"n1","address":"127.0.0.1:7403"}},"dry_run":true}"#,
            [with::cluster(), with::changed()],
        )
        .beside(with::newcomer()),
        exchange("POST /v1/cluster/changes", r#"{"change":{"add":{"address":"127.0.0.1:7403"}}}"#, [with::cluster()])
            .beside(with::identity(true)),
        exchange("POST /v1/cluster/changes", r#"{"change":{"add":{"address":"127.0.0.1:7403"}}}"#, [with::cluster()]),
        exchange("POST /v1/cluster/changes", r#"{"change":{"add":{"address":"x"}}}"#, [with::cluster()]),
        exchange(
            "POST /v1/cluster/changes",
            r#"{"change":{"remove":{"node":"n9"}},"dry_run":true}"#,
            [with::cluster()],
        ),
        alone("POST /v1/cluster/changes", r#"{"change":{"drain":{"node":"n1"},"rebalance":{}}}"#),
    ]
}
