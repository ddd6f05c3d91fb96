//! Goal: every promise in the session's module documentation. Method: scripted exchanges for each promise alone, then random schedules.

mod bounds;
mod confirm;
mod failover;
mod leaving;
mod lent;
mod loans;
mod pulse;
mod reach;
mod retries;
mod schedules;
mod search;
mod settled;
mod way;

use super::*;
use norn_wire::ids::{ClaimId, ClusterId, NodeId, QueueName, TaskId, Token};
use norn_wire::request::{Acks, Claim, Completion};
use norn_wire::response::{Acked, Granted, Guarantee, Welcome};

const SECOND_US: u64 = 1_000_000;
const SERVER_MS: u64 = 1_800_000_000_000;

fn queue() -> QueueName {
    QueueName::new("mail").unwrap()
}

fn draft() -> Draft {
    Draft::new(queue(), b"hello".as_slice())
}

fn enqueue(count: usize) -> Call {
    Call::Enqueue { drafts: vec![draft(); count], acks: Acks::Quorum }
}

/// A completion with these children.
fn finish(children: Vec<Draft>) -> Call {
    let (id, token) = (TaskId::MIN, Token { epoch: 1, number: 1 });
    let completion = Completion { id, token, sequence: None, result: None, at_ms: 0, children: Vec::new() };
    Call::Complete { items: vec![Finish { completion, children }], acks: Acks::Quorum }
}

fn claim(wait_ms: u64) -> Call {
    Call::Request(Request::Claim(Claim {
        claim: ClaimId(0),
        repeated: false,
        queues: vec![queue()],
        lease_ms: 30_000,
        wait_ms,
        max: 1,
        worker: String::new(),
        lease_open: false,
        session: None,
        depends: Vec::new(),
        confirms: false,
    }))
}

/// A claim's answer without tasks, from a node that could not ask some partitions.
fn nothing(unavailable: u32) -> Response {
    Response::Claimed { tasks: Vec::new(), unavailable, left: 0 }
}

/// A grant of one task.
fn something() -> Response {
    grant_of(TaskId::new(1, 2, 3, 4))
}

fn grant_of(id: TaskId) -> Response {
    let task = Granted {
        id,
        token: Token { epoch: 1, number: 1 },
        queue: queue(),
        payload: Vec::new(),
        priority: 0,
        headers: Vec::new(),
        attempt: 1,
        lease_ms: 30_000,
        updates: Vec::new(),
        grouping: None,
        group: None,
    };
    Response::Claimed { tasks: vec![task], unavailable: 0, left: 0 }
}

fn welcome(time_ms: u64, minter: u64) -> Response {
    Response::Welcome(Welcome {
        node: NodeId(1),
        cluster: ClusterId(1),
        time_ms,
        minter,
        refusal: None,
        clock_ms: None,
    })
}

/// A welcome from a node that lends no ids for this time.
fn bare(time_ms: u64, after_ms: u64) -> Response {
    let refusal = Some(Box::new(error(ErrorCode::ClockAhead).after(after_ms)));
    Response::Welcome(Welcome { node: NodeId(1), cluster: ClusterId(1), time_ms, minter: 0, refusal, clock_ms: None })
}

fn acked(id: TaskId) -> Acked {
    Acked { id, acks: 2, replicas: 3, guarantee: Guarantee::Strict }
}

fn error(code: ErrorCode) -> Error {
    Error::new(code, "scripted")
}

/// Ids of an enqueue or a completion.
fn ids(request: &Request) -> Vec<TaskId> {
    match request {
        Request::Enqueue { tasks, .. } => tasks.iter().map(|task| task.id).collect(),
        Request::EnqueueUnique { task } => vec![task.id],
        Request::Update { id, .. } => vec![*id],
        Request::Transact(transaction) => vec![transaction.id],
        Request::Complete { items, .. } => items.iter().map(|item| item.id).collect(),
        Request::Renew { items, .. } => items.iter().map(|(id, _)| *id).collect(),
        other => panic!("no ids in {other:?}"),
    }
}

/// A session with its clock; its invariants are checked after every step.
struct Bench {
    session: Session,
    now_us: u64,
    outputs: Vec<Output>,
    /// While it sleeps, nodes answer pings at once.
    lively: bool,
}

impl Bench {
    fn new(endpoints: usize) -> Bench {
        let session = Session::new(Config::default(), endpoints, 7);
        let mut bench = Bench { session, now_us: 1_000, outputs: Vec::new(), lively: false };
        bench.session.links.active = 0;
        bench
    }

    fn step(&mut self, input: Input) -> Vec<Output> {
        let mut outputs = Vec::new();
        self.session.step(self.now_us, input, &mut outputs);
        self.session.check().unwrap();
        assert!(self.session.next_wake().is_none_or(|at_us| at_us > self.now_us), "a host would spin");
        self.outputs.extend(outputs.iter().cloned());
        outputs
    }

    fn submit(&mut self, call: u64, body: Call, timeout_us: u64) -> Vec<Output> {
        let deadline_us = self.now_us + timeout_us;
        self.step(Input::Submit { call: CallId(call), body, deadline_us })
    }

    /// Completes a connection and its welcome. Returns what is sent then.
    fn open(&mut self, endpoint: usize) -> Vec<Output> {
        let outputs = self.step(Input::Connected { endpoint });
        let [(_, number, Request::Hello { .. })] = sent(&outputs)[..] else {
            panic!("a connection opens with one hello, not {outputs:?}");
        };
        self.answer(endpoint, number, welcome(SERVER_MS, 5))
    }

    fn answer(&mut self, endpoint: usize, number: u64, response: Response) -> Vec<Output> {
        self.step(Input::Received { endpoint, number, response })
    }

    /// Advances the time to the next wake-up. With lively nodes, to the next one at which the session does more than ping.
    fn sleep(&mut self) -> Vec<Output> {
        loop {
            let (outputs, asked) = self.wake();
            if !asked || !outputs.is_empty() {
                return outputs;
            }
        }
    }

    /// Advances the time to the next wake-up. Also returns whether lively nodes were pinged.
    fn wake(&mut self) -> (Vec<Output>, bool) {
        self.now_us = self.session.next_wake().expect("something is to come");
        let mut outputs = self.step(Input::Wake);
        let pings = sent(&outputs).into_iter().filter(|(_, _, request)| self.lively && **request == Request::Ping);
        let pings: Vec<(usize, u64)> = pings.map(|(endpoint, number, _)| (endpoint, number)).collect();
        outputs.retain(
            |output| !matches!(output, Output::Send { number, .. } if pings.iter().any(|(_, of)| of == number)),
        );
        for (endpoint, number) in &pings {
            outputs.extend(self.answer(*endpoint, *number, Response::Done));
        }
        (outputs, !pings.is_empty())
    }

    /// Sleeps until something is sent on an endpoint.
    fn sleep_until_sent(&mut self) -> (usize, u64, Request) {
        for _ in 0..100 {
            let outputs = self.sleep();
            if let Some((endpoint, number, request)) = sent(&outputs).first() {
                return (*endpoint, *number, (*request).clone());
            }
        }
        panic!("nothing is sent any more");
    }

    /// As [`Bench::sleep_until_sent`], and requires this endpoint.
    fn sleep_until_sent_to(&mut self, expected: usize) -> (usize, u64) {
        let (endpoint, number, _) = self.sleep_until_sent();
        assert_eq!(endpoint, expected);
        (endpoint, number)
    }
}

fn sent(outputs: &[Output]) -> Vec<(usize, u64, &Request)> {
    let pick = |output| match output {
        &Output::Send { endpoint, number, ref request } => Some((endpoint, number, request)),
        Output::Connect { .. } | Output::Disconnect { .. } | Output::Done { .. } => None,
    };
    outputs.iter().filter_map(pick).collect()
}

fn done(outputs: &[Output]) -> Vec<(u64, Result<Response, Error>)> {
    let pick = |output: &Output| match output {
        Output::Done { call, result, .. } => Some((call.0, result.clone())),
        Output::Connect { .. } | Output::Disconnect { .. } | Output::Send { .. } => None,
    };
    outputs.iter().filter_map(pick).collect()
}

fn connects(outputs: &[Output]) -> Vec<usize> {
    let pick = |output: &Output| match output {
        Output::Connect { endpoint } => Some(*endpoint),
        Output::Disconnect { .. } | Output::Send { .. } | Output::Done { .. } => None,
    };
    outputs.iter().filter_map(pick).collect()
}

/// A session that has sent one call on endpoint 0, whose nodes answer pings.
fn lively_sent(endpoints: usize, body: Call, timeout_us: u64) -> (Bench, u64, Request) {
    let (bench, number, request) = bench_sent(endpoints, body, timeout_us);
    (Bench { lively: true, ..bench }, number, request)
}

/// A session that has sent one call on endpoint 0.
fn bench_sent(endpoints: usize, body: Call, timeout_us: u64) -> (Bench, u64, Request) {
    let mut bench = Bench::new(endpoints);
    assert_eq!(connects(&bench.submit(1, body, timeout_us)), [0]);
    let outputs = bench.open(0);
    let (_, number, request) = sent(&outputs)[0];
    let request = request.clone();
    (bench, number, request)
}
