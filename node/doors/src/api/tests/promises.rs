//! What the description promises of each operation is shown by an exchange, and no exchange shows anything else.

use super::exchange::{Told, compare, compared};
use super::schema::check;
use super::walks::{Operation, operations};
use super::{rest, tasks};
use crate::access::Access;
use crate::problem::{CODES, name_of};
use crate::state::{Bounds, Phase};
use crate::testing::{Door, Script};
use axum::body::Body;
use axum::http::{Request as HttpRequest, request};
use bytes::Bytes;
use futures_util::stream;
use norn_wire::{Error, ErrorCode, Retry};
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::fmt::Write as _;
use std::time::Duration;

/// Statuses that the description of an operation names.
fn promised(operation: &Operation) -> BTreeSet<u16> {
    operation.document["responses"].as_object().unwrap().keys().filter_map(|status| status.parse().ok()).collect()
}

fn request(operation: &Operation) -> request::Builder {
    let request = HttpRequest::builder().method(&operation.method).uri(&operation.target);
    request.header("x-request-id", "r1")
}

fn body(operation: &Operation) -> Body {
    operation.body.as_ref().map_or_else(Body::empty, |body| Body::from(body.to_string()))
}

/// Refusals of the door itself, each with what leads to it.
async fn refused_by_the_door(operation: &Operation) -> Vec<(&'static str, crate::testing::Told)> {
    let door = Door::new(Script::default());
    let plain = || request(operation).body(body(operation)).unwrap();
    let join = if operation.target.contains('?') { '&' } else { '?' };
    let mut unknown = plain();
    *unknown.uri_mut() = format!("{}{join}zz=1", operation.target).parse().unwrap();
    let mut foreign = plain();
    foreign.headers_mut().insert("host", "shop.example".parse().unwrap());
    let bounds = |bounds| Door::with(bounds, Access::default(), Script::default());
    let full = bounds(Bounds { requests_max: 0, ..Bounds::default() });
    let starting = Door::of(Bounds::default(), Access::default(), Phase::Starting);
    let mut told = vec![
        ("an unknown parameter", door.send(unknown).await),
        ("no certificate", door.send_as_stranger(plain()).await),
        ("a foreign host", door.send(foreign).await),
        ("too many requests", full.send(plain()).await),
        ("the node starts", starting.send(plain()).await),
    ];
    let with_key = request(operation).header("idempotency-key", "k");
    if promised(operation).contains(&422) {
        let script = Script::new(|_| Error::new(ErrorCode::Denied, "as scripted"));
        let door = Door::new(script);
        door.send(with_key.body(body(operation)).unwrap()).await;
        let other = request(operation).header("idempotency-key", "k").body(Body::from(r#"{"queues":["other"]}"#));
        told.push(("a key of another request", door.send(other.unwrap()).await));
    } else {
        told.push(("a key", door.send(with_key.body(body(operation)).unwrap()).await));
    }
    if operation.body.is_some() {
        let small = bounds(Bounds { body_bytes_max: 1, ..Bounds::default() });
        told.push(("a large body", small.send(plain()).await));
        let slow = bounds(Bounds { body_timeout: Duration::from_millis(20), ..Bounds::default() });
        let endless = Body::from_stream(stream::pending::<Result<Bytes, Infallible>>());
        told.push(("a slow body", slow.send(request(operation).body(endless).unwrap()).await));
        let image = request(operation).header("content-type", "image/png").body(body(operation)).unwrap();
        told.push(("a body of another type", door.send(image).await));
    }
    told
}

/// What an operation answers when the node refuses its first request with this code for good.
async fn refused_by_the_node(operation: &Operation, code: ErrorCode) -> crate::testing::Told {
    let script = Script::new(move |_| Error { retry: Retry::Never, ..Error::new(code, "as scripted") });
    Door::new(script).send(request(operation).body(body(operation)).unwrap()).await
}

/// Asserts that a refusal is a problem document, and adds it to the transcript.
fn write(text: &mut String, cause: &str, told: &crate::testing::Told) {
    let problem = told.json();
    assert_eq!(told.header("content-type"), "application/problem+json", "{cause}: {}", told.body);
    assert_eq!(problem["status"], told.status.as_u16(), "{cause}");
    assert_eq!(problem["instance"], "r1", "{cause}");
    let pause = match told.header("retry-after") {
        "" => String::new(),
        pause => format!(", Retry-After: {pause}"),
    };
    let code = problem["code"].as_str().unwrap();
    writeln!(text, "{cause}: {} {code}{pause}", told.status.as_u16()).unwrap();
}

/// The operation that serves a path.
fn place(operations: &[Operation], method: &str, path: &str) -> Option<String> {
    let fits = |operation: &&Operation| {
        let (own, other) = (operation.path.split('/'), path.split('/'));
        operation.method.as_str() == method
            && operation.path.split('/').count() == path.split('/').count()
            && own.zip(other).all(|(own, other)| own == other || own.starts_with('{'))
    };
    // `/v1/claims/renew` is no task.
    let fitting = operations.iter().filter(fits);
    fitting.min_by_key(|operation| operation.path.matches('{').count()).map(Operation::place)
}

#[tokio::test]
async fn each_refusal_that_is_promised_is_given_and_no_other() {
    let mut text = String::new();
    for operation in operations() {
        writeln!(text, "{}", operation.place()).unwrap();
        let (promised, mut given) = (promised(&operation), BTreeSet::new());
        for (cause, told) in refused_by_the_door(&operation).await {
            write(&mut text, cause, &told);
            given.insert(told.status.as_u16());
        }
        for code in CODES {
            let told = refused_by_the_node(&operation, code).await;
            // Ids are lent without a request, and in a batch it is the result of an item.
            if told.status.is_success() {
                continue;
            }
            // A node does not refuse so what it never refuses so; if it does, the refusal is of the form that `default` describes.
            let is_promised = promised.contains(&told.status.as_u16());
            let cause = if is_promised { "node" } else { "node, by default" };
            write(&mut text, &format!("{cause}: {}", name_of(code)), &told);
            given.extend(is_promised.then_some(told.status.as_u16()));
        }
        let wanted: BTreeSet<u16> = promised.into_iter().filter(|status| *status >= 400).collect();
        assert_eq!(given, wanted, "{}", operation.place());
        text.push('\n');
    }
    compare("refusals", &text);
}

#[tokio::test]
async fn operations_are_answered_as_in_their_transcripts_and_as_promised() {
    let tables = [
        ("enqueued", tasks::enqueued()),
        ("read", tasks::read()),
        ("claims", tasks::claims()),
        ("queues", rest::queues()),
        ("groups", rest::groups()),
        ("transactions", rest::transactions()),
        ("bulk", rest::bulk()),
        ("sessions", rest::sessions()),
        ("schedules", rest::schedules()),
        ("watch", rest::watch()),
        ("cluster", rest::cluster()),
    ];
    let operations = operations();
    let document = serde_json::to_value(crate::api::parts().1).unwrap();
    let mut shown: BTreeMap<String, BTreeSet<u16>> = BTreeMap::new();
    for (name, table) in tables {
        for Told { method, path, status, text, kind, body } in compared(name, table).await {
            let Some(place) = place(&operations, &method, &path) else {
                assert!([404, 405].contains(&status), "{text}");
                continue;
            };
            let operation = operations.iter().find(|operation| operation.place() == place).unwrap();
            assert!(promised(operation).contains(&status), "the description does not promise this:\n{text}");
            let promise = &operation.document["responses"][status.to_string()];
            let promise = match promise["$ref"].as_str() {
                Some(reference) => document.pointer(reference.trim_start_matches('#')).unwrap(),
                None => promise,
            };
            let media = &promise["content"][&kind];
            assert!(body.is_empty() || kind == "text/plain" || media.is_object(), "{kind} is not promised:\n{text}");
            if kind.ends_with("json") && !kind.ends_with("ndjson") {
                let fits = check(&document, &media["schema"], &serde_json::from_str(&body).unwrap());
                assert_eq!(fits, Ok(()), "{text}");
            }
            shown.entry(place).or_default().insert(status);
        }
    }
    let mut missing = Vec::new();
    for operation in &operations {
        let successes: BTreeSet<u16> = promised(operation).into_iter().filter(|status| *status < 400).collect();
        let shown = shown.remove(&operation.place()).unwrap_or_default();
        missing.extend(successes.difference(&shown).map(|status| format!("{} {status}", operation.place())));
    }
    assert!(missing.is_empty(), "no exchange shows {missing:#?}");
}
