//! The verbs with a transport that answers from a script: requests, output, exits.

mod bounds;
mod examples;
mod failures;
mod groups;
mod inputs;
pub(crate) mod interrupted;
mod library;
mod naming;
mod requests;
mod results;
mod several;
mod short;
pub(super) mod tables;
mod text_ids;
mod unwritten;
mod watch;

use super::input::Input;
use super::{Call, Exit, Output, Place, Runner, Transport, refuse_usage};
use crate::repl::CommandLine;
use clap::Parser as _;
use norn_wire::response::{
    Agreement, ClaimView, Health, LogEntry, NodeView, Page, PartitionView, QueueCounts, Standing, Status,
};
use norn_wire::{
    Acked, ClusterId, Error, ErrorCode, Granted, Guarantee, NodeId, PartitionId, QueueName, Request, Response, Spec,
    State, TaskId, TaskView, Token,
};
use serde_bytes::ByteBuf;
use std::collections::VecDeque;
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Time of a wall clock that stands still.
pub(crate) const NOW_MS: u64 = 1_700_000_010_000;

/// Transport that answers calls from a script and records them.
#[derive(Default)]
pub(crate) struct Fake {
    answers: Mutex<VecDeque<Result<Response, Error>>>,
    calls: Mutex<Vec<(Call, Option<Duration>)>>,
    asked: Mutex<Vec<(String, Request)>>,
    patience: Option<Duration>,
}

impl Fake {
    pub(crate) fn new(answers: impl IntoIterator<Item = Result<Response, Error>>) -> Fake {
        Fake { answers: Mutex::new(answers.into_iter().collect()), ..Fake::default() }
    }

    /// Sets the time limit of the whole command.
    pub(crate) fn within(self, patience: Duration) -> Fake {
        Fake { patience: Some(patience), ..self }
    }

    /// Returns the requests to single nodes.
    pub(crate) fn asked(&self) -> Vec<(String, Request)> {
        self.asked.lock().unwrap().clone()
    }

    fn answer(&self) -> Result<Response, Error> {
        let answer = self.answers.lock().unwrap().pop_front();
        answer.unwrap_or_else(|| Err(Error::new(ErrorCode::Unavailable, "the script has ended")))
    }

    pub(crate) fn calls(&self) -> Vec<(Call, Option<Duration>)> {
        self.calls.lock().unwrap().clone()
    }
}

impl Transport for Fake {
    async fn call(&self, call: Call, timeout: Option<Duration>) -> Result<Response, Error> {
        self.calls.lock().unwrap().push((call, timeout));
        self.answer()
    }

    fn patience(&self) -> Option<Duration> {
        self.patience
    }

    async fn ask(&self, address: &str, request: Request) -> Result<Response, Error> {
        self.asked.lock().unwrap().push((address.to_owned(), request));
        self.answer()
    }
}

/// Writer whose bytes all clones can read.
#[derive(Clone, Default)]
pub(crate) struct Written(Arc<Mutex<Vec<u8>>>);

impl Written {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Outcome of a command.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) exit: Exit,
    pub(crate) printed: String,
    pub(crate) noted: String,
    pub(crate) calls: Vec<(Call, Option<Duration>)>,
}

impl Outcome {
    /// Returns the only request, without its timeout.
    pub(crate) fn request(&self) -> Request {
        match &self.calls[..] {
            [(Call::Request(request), _)] => request.clone(),
            other => panic!("one request is expected: {other:?}; {}{}", self.printed, self.noted),
        }
    }
}

/// Runs a command like one from an argument list.
pub(crate) async fn run(line: &str, answers: impl IntoIterator<Item = Result<Response, Error>>) -> Outcome {
    run_at(Place::CommandLine, line, b"", answers).await
}

pub(crate) async fn run_at(
    place: Place,
    line: &str,
    stdin: &'static [u8],
    answers: impl IntoIterator<Item = Result<Response, Error>>,
) -> Outcome {
    let (results, notes) = (Written::default(), Written::default());
    let output = Output::new(results.clone(), notes.clone(), line.contains("--json"));
    let fake = Fake::new(answers);
    let mut runner = Runner::new(&fake, output, Input::pipe(stdin), place);
    runner.clock = || NOW_MS;
    let words = super::words::split(line).unwrap();
    runner.literals = words.iter().filter(|word| word.literal).map(|word| word.text.clone()).collect();
    let exit = match CommandLine::try_parse_from(words.iter().map(|word| &word.text)) {
        Ok(command) => runner.run(command.verb).await,
        Err(error) => {
            let outcome = refuse_usage(&error, &mut runner.output);
            runner.conclude(outcome)
        }
    };
    Outcome { exit, printed: results.text(), noted: notes.text(), calls: fake.calls() }
}

pub(crate) fn id(number: u32) -> TaskId {
    TaskId::new(1_700_000_000_000, number, 7, 3)
}

pub(crate) fn queue(name: &str) -> QueueName {
    QueueName::new(name).unwrap()
}

pub(crate) const TOKEN: Token = Token { epoch: 7, number: 42 };

pub(crate) fn acked(number: u32) -> Acked {
    Acked { id: id(number), acks: 3, replicas: 3, guarantee: Guarantee::Strict }
}

pub(crate) fn spec(payload: &[u8]) -> Spec {
    Spec::new(queue("mail"), payload.to_vec())
}

pub(crate) fn bare_task(number: u32, state: State) -> TaskView {
    TaskView {
        id: id(number),
        state,
        spec: spec(b"hello"),
        claims: Vec::new(),
        updates: Vec::new(),
        result: None,
        reason: None,
        log_incomplete: false,
        conflict: false,
        children: Vec::new(),
        children_open: false,
        redriven: Vec::new(),
        waits_for: Vec::new(),
        group: None,
        version: None,
        ended_ms: None,
        next_attempt_ms: None,
        lost: None,
    }
}

/// Returns a task with a value in every field.
pub(crate) fn full_task() -> TaskView {
    TaskView {
        spec: Spec {
            priority: 5,
            not_before_ms: NOW_MS + 9_800,
            headers: vec![("trace".into(), "a\x1bb".into())],
            attempts_max: 3,
            after: vec![id(2), id(3)],
            ..spec(b"hello")
        },
        claims: vec![ClaimView {
            token: TOKEN,
            start_ms: NOW_MS - 3_000,
            end_ms: Some(NOW_MS + 27_000),
            completed_ms: None,
            rejected: None,
            superseded: None,
            session: None,
            end: None,
            worker: "w1".into(),
        }],
        updates: vec![LogEntry { token: TOKEN, sequence: 0, data: vec![0xff] }],
        result: Some(ByteBuf::from(b"ok".to_vec())),
        reason: Some("because".into()),
        log_incomplete: true,
        conflict: true,
        children: Vec::new(),
        children_open: false,
        waits_for: vec![id(3)],
        ..bare_task(1, State::Claimed)
    }
}

pub(crate) fn granted() -> Granted {
    Granted {
        id: id(1),
        token: TOKEN,
        queue: queue("mail"),
        payload: b"hello".to_vec(),
        priority: 5,
        headers: vec![("trace".into(), "abc".into())],
        attempt: 2,
        lease_ms: 30_000,
        updates: vec![LogEntry { token: Token { epoch: 6, number: 1 }, sequence: 0, data: b"half".to_vec() }],
        grouping: None,
        group: None,
    }
}

pub(crate) fn page(numbers: std::ops::Range<u32>, more: bool) -> Result<Response, Error> {
    let next = more.then(|| id(numbers.end - 1));
    Ok(Response::Page(Page { tasks: numbers.map(|number| bare_task(number, State::Ready)).collect(), next }))
}

pub(crate) fn nodes() -> Vec<NodeView> {
    let node = |number: u128, alive| NodeView {
        node: NodeId(number),
        name: format!("n{number}"),
        address: format!("10.0.0.{number}:7400"),
        zone: "a".into(),
        state: None,
        alive,
        this: number == 1,
        leads: 22,
        holds: 64,
        clock: if number == 1 { Standing::Good } else { Standing::Suspect },
        clock_offset_ms: (number != 1).then_some(-3),
        clock_error_ms: (number != 1).then_some(1),
        round_trip_us: (number != 1).then_some(1_250),
        version: (number == 1).then_some(3),
        unreached_from: Vec::new(),
    };
    vec![node(1, true), node(2, false)]
}

pub(crate) fn partitions() -> Vec<PartitionView> {
    let led = PartitionView {
        partition: PartitionId(0),
        cohort: vec![NodeId(1), NodeId(2)],
        leader: Some(NodeId(1)),
        epoch: 7,
        applied: 12,
        tasks: Some(4),
        claims: Some(1),
        root: Some(ByteBuf::from(vec![0xab, 0xcd])),
        health: Some(Health::Holes),
        tombstones: Some(2),
        held_up_by: vec![NodeId(2)],
        agreements: vec![Agreement { node: NodeId(2), agreed_ms: Some(12_500), apart: true, differing: Some(7) }],
        next: vec![NodeId(2), NodeId(3)],
        leaving: vec![NodeId(4)],
    };
    let lost = PartitionView {
        partition: PartitionId(1),
        leader: None,
        tasks: None,
        claims: None,
        root: None,
        health: None,
        tombstones: None,
        held_up_by: Vec::new(),
        agreements: Vec::new(),
        next: Vec::new(),
        leaving: Vec::new(),
        ..led.clone()
    };
    vec![led, lost]
}

pub(crate) fn status() -> Status {
    Status {
        cluster: ClusterId(9),
        name: "dev".into(),
        node: NodeId(1),
        boot: 2,
        nodes: (3, 2),
        partitions: (64, 64),
        counts: [1, 2, 3, 4, 5, 6],
        counters: vec![("wal_syncs".into(), 17)],
        uncounted: 0,
    }
}

pub(crate) fn queue_counts() -> Vec<QueueCounts> {
    vec![
        QueueCounts { queue: queue("mail"), counts: [1, 2, 3, 4, 5, 6], permit_in_ms: None },
        QueueCounts { queue: queue("team/maps"), counts: [0; 6], permit_in_ms: None },
    ]
}
