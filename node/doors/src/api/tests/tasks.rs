//! Exchanges about tasks and claims.

use super::exchange::{Exchange, alone, exchange};
use crate::testing::Reply;
use crate::testing::samples::{acked, claimed, error, granted, id, sloppy, task, told};
use norn_wire::response::Page;
use norn_wire::{ErrorCode, Response, State};

pub fn enqueued() -> Vec<Exchange> {
    let one = || Response::Acked(vec![Ok(acked(1))]);
    let mail = r#"{"queue":"mail","data":"hello"}"#;
    let octets: &[_] = &[("content-type", "application/octet-stream")];
    let failed = |code| Response::Acked(vec![Err(error(code).about(id(1)))]);
    vec![
        exchange("POST /v1/tasks", mail, [one()]),
        exchange("POST /v1/tasks?acks=one", mail, [Response::Acked(vec![Ok(sloppy(1))])]),
        exchange(
            "POST /v1/tasks",
            r#"[{"queue":"mail"},{"queue":"mail"}]"#,
            [Response::Acked(vec![Ok(acked(1)), Err(error(ErrorCode::Conflict).about(id(2)))])],
        ),
        exchange(
            "POST /v1/tasks",
            r#"[{"queue":"mail","join":{"total":1}},{"queue":"mail","number":1}]"#,
            [Response::Acked(vec![Ok(acked(1)), Ok(acked(2))])],
        ),
        exchange("POST /v1/tasks?queue=mail&priority=5&delay_ms=1500&header=trace=7", "hello", [one()]).with(octets),
        exchange(
            "POST /v1/tasks?unique=true",
            r#"{"queue":"mail","key":"k"}"#,
            [Response::AckedUnique { acked: acked(1), existing: false }],
        ),
        exchange(
            "POST /v1/tasks?unique=true",
            r#"{"queue":"mail","key":"k"}"#,
            [Response::AckedUnique { acked: acked(1), existing: true }],
        ),
        exchange(
            "POST /v1/tasks?must_exist=true",
            r#"{"queue":"mail","after":["000038rrbh800000000g0000003g0009"]}"#,
            [Response::Error(error(ErrorCode::NotFound))],
        ),
        alone("POST /v1/tasks", r#"{"queue":"mail","dely":"10s"}"#),
        alone("POST /v1/tasks", r#"[{"queue":"mail"},{"queue":"mail","priority":"high"}]"#),
        alone("POST /v1/tasks", "[]"),
        alone("POST /v1/tasks", r#"{"queue":"mail","number":1}"#),
        alone("POST /v1/tasks?unique=true", mail),
        alone("POST /v1/tasks?unique=true", r#"[{"queue":"mail","key":"k"}]"#),
        alone("POST /v1/tasks?unique=true&acks=all", r#"{"queue":"mail","key":"k"}"#),
        alone("POST /v1/tasks?must_exist=true", mail),
        alone("POST /v1/tasks?queue=mail", mail),
        alone("POST /v1/tasks?color=red", mail),
        alone("POST /v1/tasks?acks=most", mail),
        alone("POST /v1/tasks", "hello").with(octets),
        alone("POST /v1/tasks?queue=mail&header=trace", "hello").with(octets),
        alone("POST /v1/tasks?queue=mail&header=a=1&header=a=2", "hello").with(octets),
        alone("POST /v1/tasks", "hello").with(&[("content-type", "text/plain")]),
        alone("POST /v1/tasks", mail).with(&[("idempotency-key", "7")]),
        exchange("POST /v1/tasks", mail, [failed(ErrorCode::TooOld)]),
        exchange("POST /v1/tasks", mail, [failed(ErrorCode::Denied)]),
        exchange("POST /v1/tasks", mail, (0..99).map(|_| Response::Error(error(ErrorCode::Overloaded)))).impatient(),
        exchange("POST /v1/tasks", mail, (0..9).map(|_| Reply::Silence)).impatient(),
        exchange("PUT /v1/tasks/000038rrbh800000000g0000003g0009", mail, [one()]),
        exchange("PUT /v1/tasks/000038rrbh800000000g0000003g0009", mail, [failed(ErrorCode::Conflict)]),
        alone("PUT /v1/tasks/000038rrbh800000000g0000003g0009", "[]"),
        exchange(
            "PUT /v1/tasks/000038rrbh800000000g0000003g0009?acks=one",
            mail,
            [Response::Acked(vec![Ok(sloppy(1))])],
        ),
        alone("PUT /v1/tasks/abc", mail),
        alone("PUT /v1/tasks/000038rrbh800000000g0000003g0009?unique=true", mail),
        alone("GET /v1/ids?count=2", ""),
        alone("GET /v1/ids?count=0", ""),
        alone("GET /v1/ids?count=1001", ""),
        alone("PATCH /v1/tasks", ""),
        alone("GET /v1/nothing", ""),
    ]
}

pub fn read() -> Vec<Exchange> {
    let ready = || told(1, State::Ready);
    let page = |numbers: &[u32], next| {
        let tasks = numbers.iter().map(|number| task(*number, State::Ready)).collect();
        Response::Page(Page { tasks, next })
    };
    let gone = || Response::Error(error(ErrorCode::NotFound));
    let lines: &[_] = &[("accept", "application/x-ndjson")];
    vec![
        exchange("GET /v1/tasks/000038rrbh800000000g0000003g0009?min_seq=1", "", [ready()]),
        exchange("GET /v1/tasks/000038rrbh800000000g0000003g0009", "", [gone()]),
        exchange(
            "GET /v1/tasks/000038rrbh800000000g0000003g0009?min_seq=9",
            "",
            [Response::Error(error(ErrorCode::Stale))],
        ),
        exchange("GET /v1/tasks/000038rrbh800000000g0000003g0009/data", "", [ready()]),
        exchange("GET /v1/tasks/000038rrbh800000000g0000003g0009/result", "", [told(1, State::Done)]),
        exchange("GET /v1/tasks/000038rrbh800000000g0000003g0009/result", "", [ready()]),
        exchange("GET /v1/tasks/000038rrbh800000000g0000003g0009/log", "", [ready()]),
        exchange("GET /v1/tasks/000038rrbh800000000g0000003g0009/why", "", [told(1, State::Done)]),
        exchange("GET /v1/tasks/000038rrbh800000000g0000003g0009/why", "", [gone()]),
        exchange("GET /v1/tasks/000038rrbh800000000g0000003g0009/wait?timeout_ms=5", "", [ready()]),
        alone("GET /v1/tasks/000038rrbh800000000g0000003g0009/wait?timeout_ms=x", ""),
        exchange(
            "GET /v1/tasks?id=000038rrbh800000000g0000003g0009,000038rrbh80000000100000003g0009",
            "",
            [ready(), gone()],
        ),
        alone("GET /v1/tasks?id=000038rrbh800000000g0000003g0009&queue=mail", ""),
        alone("GET /v1/tasks?id=abc", ""),
        exchange("GET /v1/tasks?queue=mail&state=ready&limit=1", "", [page(&[1], Some(id(1)))]),
        exchange("GET /v1/tasks?queue=mail&key=other", "", [page(&[1], Some(id(1))), page(&[2], None)]),
        alone("GET /v1/tasks?limit=0", ""),
        alone("GET /v1/tasks?limit=1001", ""),
        alone("GET /v1/tasks?state=lost", ""),
        alone("GET /v1/tasks?min_seq=1", ""),
        exchange("GET /v1/tasks", "", [page(&[1], Some(id(1))), page(&[2], None)]).with(lines),
        exchange("GET /v1/tasks", "", [page(&[1], Some(id(1))), Response::Error(error(ErrorCode::Denied))]).with(lines),
        exchange("GET /v1/tasks", "", [Response::Error(error(ErrorCode::Denied))]).with(lines),
        exchange("GET /v1/count?queue=mail&state=ready", "", [Response::Count(4)]),
        alone("GET /v1/count?queue=", ""),
        exchange(
            "POST /v1/tasks/000038rrbh800000000g0000003g0009/cancel",
            r#"{"reason":"withdrawn"}"#,
            [ready(), Response::AckedOne(acked(1)), told(1, State::Cancelled)],
        ),
        exchange("POST /v1/tasks/000038rrbh800000000g0000003g0009/cancel", "", [told(1, State::Cancelled)]),
        exchange("POST /v1/tasks/000038rrbh800000000g0000003g0009/cancel", "", [told(1, State::Done)]),
        exchange(
            "POST /v1/tasks/000038rrbh800000000g0000003g0009/cancel?acks=one",
            "",
            [ready(), Response::AckedOne(sloppy(1)), told(1, State::Cancelled)],
        ),
        exchange("DELETE /v1/tasks/000038rrbh800000000g0000003g0009?acks=one", "", [Response::AckedOne(sloppy(1))]),
        alone("POST /v1/tasks/000038rrbh800000000g0000003g0009/cancel", r#"{"why":"x"}"#),
        exchange("DELETE /v1/tasks/000038rrbh800000000g0000003g0009", "", [Response::AckedOne(acked(1))]),
        exchange("DELETE /v1/tasks/000038rrbh800000000g0000003g0009", "", [Response::Error(error(ErrorCode::Invalid))]),
    ]
}

#[expect(clippy::too_many_lines, reason = "a table of exchanges")]
pub fn claims() -> Vec<Exchange> {
    let mail = r#"{"queues":["mail"]}"#;
    let done = || Response::Acked(vec![Ok(acked(1))]);
    let over = |code| Response::Acked(vec![Err(error(code).about(id(1)))]);
    vec![
        exchange("POST /v1/claims", mail, [claimed(vec![granted()], 0)]),
        exchange("POST /v1/claims", mail, [claimed(Vec::new(), 0)]),
        exchange("POST /v1/claims", mail, [claimed(Vec::new(), 3)]),
        alone("POST /v1/claims", r#"{"queues":[]}"#),
        alone("POST /v1/claims", r#"{"queues":["mail"],"max":0}"#),
        alone("POST /v1/claims", r#"{"queues":["mail"],"wait":5}"#),
        alone("POST /v1/claims", mail).with(&[("idempotency-key", "")]),
        exchange("POST /v1/claims", mail, [claimed(vec![granted()], 0)]).with(&[("idempotency-key", "7")]),
        exchange("POST /v1/claims", mail, [Response::Error(error(ErrorCode::Denied))]),
        exchange(
            "POST /v1/claims/renew",
            concat!(
                r#"{"items":[{"id":"000038rrbh800000000g0000003g0009","token":"2.1"},"#,
                r#"{"id":"000038rrbh800000000g0000003g0009","token":"1.1"}]}"#
            ),
            [Response::Renewed(vec![Ok(60_000), Err(error(ErrorCode::Superseded))])],
        ),
        alone("POST /v1/claims/renew", r#"{"items":[{"id":"x","token":"2.1"}]}"#),
        exchange(
            "POST /v1/claims/complete",
            r#"{"items":[{"id":"000038rrbh800000000g0000003g0009","token":"2.1","result":"sent"}]}"#,
            [done()],
        ),
        alone("POST /v1/claims/complete", r#"{"items":[]}"#),
        exchange(
            "PUT /v1/tasks/000038rrbh800000000g0000003g0009/claims/2.1/log/0",
            r#"{"data":"half"}"#,
            [Response::AckedOne(acked(1))],
        ),
        exchange(
            "PUT /v1/tasks/000038rrbh800000000g0000003g0009/claims/2.1/log/0?acks=one",
            r#"{"data":"half"}"#,
            [Response::AckedOne(sloppy(1))],
        ),
        exchange(
            "PUT /v1/tasks/000038rrbh800000000g0000003g0009/claims/2.1/log/0",
            r#"{"data":"half"}"#,
            [Response::Error(error(ErrorCode::Conflict))],
        ),
        alone("PUT /v1/tasks/000038rrbh800000000g0000003g0009/claims/2.1/log/1000", r#"{"data":"half"}"#),
        alone("PUT /v1/tasks/000038rrbh800000000g0000003g0009/claims/2.1/log/x", r#"{"data":"half"}"#),
        exchange(
            "POST /v1/tasks/000038rrbh800000000g0000003g0009/claims/2.1/renew",
            r#"{"lease_ms":60000}"#,
            [Response::Renewed(vec![Ok(60_000)])],
        ),
        exchange(
            "POST /v1/tasks/000038rrbh800000000g0000003g0009/claims/2.1/renew",
            "",
            [Response::Renewed(vec![Err(error(ErrorCode::Superseded))])],
        ),
        exchange(
            "POST /v1/tasks/000038rrbh800000000g0000003g0009/claims/2.1/complete",
            r#"{"result":"sent","then":[{"queue":"stock","data":"7"}]}"#,
            [done()],
        ),
        exchange("POST /v1/tasks/000038rrbh800000000g0000003g0009/claims/2.1/complete", "", [over(ErrorCode::Ended)]),
        exchange(
            "POST /v1/tasks/000038rrbh800000000g0000003g0009/claims/2.1/complete",
            "",
            [over(ErrorCode::Superseded)],
        ),
        exchange(
            "POST /v1/tasks/000038rrbh800000000g0000003g0009/claims/2.1/complete?acks=one",
            "",
            [Response::Acked(vec![Ok(sloppy(1))])],
        ),
        alone("POST /v1/tasks/000038rrbh800000000g0000003g0009/claims/21/complete", ""),
        exchange(
            "POST /v1/tasks/000038rrbh800000000g0000003g0009/claims/2.1/fail",
            r#"{"reason":"no route"}"#,
            [Response::Done],
        ),
        alone("POST /v1/tasks/000038rrbh800000000g0000003g0009/claims/2.1/fail", r#"{"invalid":true,"retry_in_ms":5}"#),
        exchange("POST /v1/tasks/000038rrbh800000000g0000003g0009/claims/2.1/release", "", [Response::Done]),
        exchange(
            "POST /v1/tasks/000038rrbh800000000g0000003g0009/claims/2.1/release",
            "",
            [Response::Error(error(ErrorCode::Superseded))],
        ),
    ]
}
