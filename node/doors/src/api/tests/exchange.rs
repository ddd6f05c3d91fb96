//! Exchanges with a door before a scripted node, as text.

use crate::access::Access;
use crate::state::Bounds;
use crate::testing::samples::{TIME_MS, id};
use crate::testing::{Door, Reply, Script};
use axum::body::Body;
use axum::http::Request as HttpRequest;
use futures_util::{StreamExt, stream};
use norn_wire::response::Identity;
use norn_wire::{Response, TaskId};
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

/// Longest time for an exchange.
const PATIENCE: Duration = Duration::from_secs(60);
/// Exchanges at once.
const AT_ONCE: usize = 32;
/// Headers of answers that matter.
const SHOWN: [&str; 5] = ["content-type", "location", "retry-after", "content-disposition", "allow"];

/// A request, and what the node answers to the requests that it leads to.
pub struct Exchange {
    line: String,
    headers: &'static [(&'static str, &'static str)],
    body: String,
    answers: Vec<Reply>,
    /// Calls fail soon.
    impatient: bool,
    outside: Option<Identity>,
}

/// What became of an exchange.
pub struct Told {
    pub method: String,
    /// The path that was asked for.
    pub path: String,
    pub status: u16,
    pub text: String,
    pub kind: String,
    pub body: String,
}

pub fn exchange<R: Into<Reply>>(
    line: impl Into<String>,
    body: impl Into<String>,
    answers: impl IntoIterator<Item = R>,
) -> Exchange {
    let answers = answers.into_iter().map(Into::into).collect();
    Exchange { line: line.into(), headers: &[], body: body.into(), answers, impatient: false, outside: None }
}

/// An exchange in which the node is not asked.
pub fn alone(line: impl Into<String>, body: impl Into<String>) -> Exchange {
    exchange(line, body, [Response::Done; 0])
}

impl Exchange {
    pub fn with(self, headers: &'static [(&'static str, &'static str)]) -> Exchange {
        Exchange { headers, ..self }
    }

    /// Its calls fail soon: what the node answers is tried again by sessions.
    pub fn impatient(self) -> Exchange {
        Exchange { impatient: true, ..self }
    }

    /// There is this node outside the cluster.
    pub fn beside(self, outside: Identity) -> Exchange {
        Exchange { outside: Some(outside), ..self }
    }

    async fn play(self) -> Told {
        let script = Script::answers(self.answers).at(TIME_MS);
        let door = match self.impatient {
            true => Door::impatient(script),
            false => Door::with(Bounds::default(), Access::default(), script),
        };
        door.node.as_ref().unwrap().facts.lock().unwrap().outside = self.outside;
        let (method, target) = self.line.split_once(' ').unwrap();
        let mut request = HttpRequest::builder().method(method).uri(target).header("x-request-id", "r1");
        let mut text = format!("> {}\n", self.line);
        for (name, value) in self.headers {
            request = request.header(*name, *value);
            writeln!(text, "> {name}: {value}").unwrap();
        }
        if !self.body.is_empty() {
            writeln!(text, "> {}", self.body).unwrap();
        }
        let told = door.send(request.body(Body::from(self.body)).unwrap()).await;
        let mut asked: Vec<_> = door.asked().iter().map(|request| request.verb()).collect();
        if self.impatient {
            // How often a session repeats a request depends on the time.
            asked.dedup();
        }
        for verb in asked {
            writeln!(text, "= {verb}").unwrap();
        }
        writeln!(text, "< {}", told.status.as_u16()).unwrap();
        for name in SHOWN.iter().filter(|name| !told.header(name).is_empty()) {
            writeln!(text, "< {name}: {}", without_drawn_ids(told.header(name))).unwrap();
        }
        for line in without_drawn_ids(&without_times(&told.body)).lines() {
            writeln!(text, "< {line}").unwrap();
        }
        let path = target.split('?').next().unwrap_or_default().to_owned();
        let kind = told.header("content-type").to_owned();
        Told { method: method.to_owned(), path, status: told.status.as_u16(), text, kind, body: told.body }
    }
}

/// The text without times that each run measures anew.
fn without_times(text: &str) -> String {
    ["\"lease_expires_ms\":", "\"expires_ms\":"].into_iter().fold(text.to_owned(), |text, name| {
        let mut pieces = text.split(name);
        let first = pieces.next().unwrap_or_default().to_owned();
        pieces.fold(first, |masked, piece| {
            format!("{masked}{name}NOW{}", piece.trim_start_matches(|digit: char| digit.is_ascii_digit()))
        })
    })
}

/// The text without ids that sessions draw.
fn without_drawn_ids(text: &str) -> String {
    let drawn = format!("{}", TaskId::new(TIME_MS, 0, 0, 0))[..9].to_owned();
    let known: Vec<String> = (1..=9).map(|number| id(number).to_string()).collect();
    let (mut out, mut rest) = (String::new(), text);
    while let Some(place) = rest.find(&drawn) {
        let (before, found) = rest.split_at(place);
        let word: String = found.chars().take(32).collect();
        out += before;
        out += if known.contains(&word) { &word } else { "DRAWN" };
        rest = &found[word.len()..];
    }
    out + rest
}

/// Plays exchanges, and compares their texts with the committed ones.
pub async fn compared(name: &str, exchanges: Vec<Exchange>) -> Vec<Told> {
    let play = |exchange: Exchange| async move {
        let line = exchange.line.clone();
        tokio::time::timeout(PATIENCE, exchange.play()).await.unwrap_or_else(|_| panic!("{line}: no answer"))
    };
    let told: Vec<Told> = stream::iter(exchanges).map(play).buffered(AT_ONCE).collect().await;
    let text: String = told.iter().map(|told| format!("{}\n", told.text)).collect();
    compare(name, &text);
    told
}

/// Compares a text with the committed one of this name, piece by piece.
pub fn compare(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("src/api/tests/transcripts/{name}.txt"));
    if std::env::var_os("NORN_BLESS").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let known = std::fs::read_to_string(&path).unwrap_or_default();
    for (told, known) in text.split("\n\n").zip(known.split("\n\n")) {
        assert_eq!(told, known, "{name}: NORN_BLESS=1 takes it over");
    }
    assert!(text == known, "{name} has other exchanges: NORN_BLESS=1 takes them over");
}
