//! Drives one [`Session`] over QUIC, or over a pipe to the node of the same process.
//!
//! One task owns the session: it feeds calls, answers and the clock into it and carries out its outputs. Each connection has a task of
//! its own, with one bidirectional stream of frames. Between the two:
//!
//! - to the connection, an outbox: bytes of whole frames, so that everything queued during one write leaves in the next. It needs no
//!   bound of its own, and its senders do not wait: the session sends no more calls while too many bytes are in transit (`pulse.rs`),
//!   as at a slow node;
//! - from the connection, a bounded channel: while the session is busy, the connections are not read.

mod ending;
mod link;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod ways;

use crate::alarm::Alarm;
use crate::session::{Call, CallId, Config, Input, Output, Session};
use link::{Event, Happening, Outbox, Ways};
use norn_wire::address::Address;
use norn_wire::codec::{self, Kind};
use norn_wire::error::{Error, ErrorCode};
use norn_wire::ids::{TaskId, Token};
use norn_wire::request::Request;
use norn_wire::response::Response;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};

pub(crate) use ways::Dialer;

/// Commands that may be queued for the session.
const COMMANDS_MAX: usize = 1_024;
/// Reports of connections that may be queued for the session; each holds the answers of one read.
const EVENTS_MAX: usize = 256;
/// Inputs taken in one round before outputs are carried out.
const ROUND_MAX: usize = 256;
/// Age from which an attempt that is given up counts as unanswered.
const SILENT_AFTER: Duration = Duration::from_secs(1);
/// How long to wait at the end for the nodes to learn that the connections are closed.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(250);
/// How long the release of a task without a recipient is repeated. A lease of the usual length is over then.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(30);

/// Result of a call.
#[derive(Debug)]
pub(crate) struct Answer {
    pub result: Result<Response, Error>,
    /// When the first attempt was sent, or a later time from which the leases in the answer count.
    pub lease_from: Option<Instant>,
}

impl Answer {
    /// The call reached no task.
    fn closed(ended: &OnceLock<String>) -> Answer {
        let why = ended.get().map_or("the client is closed", String::as_str);
        Answer { result: Err(Error::unavailable(why)), lease_from: None }
    }

    /// The outcome of the call is unknown for good.
    fn lost(why: &str) -> Answer {
        Answer { result: Err(Error::new(ErrorCode::Unknown, why)), lease_from: None }
    }
}

enum Command {
    Call { id: CallId, body: Call, deadline: Instant, reply: oneshot::Sender<Answer> },
    Close(oneshot::Sender<()>),
}

/// Calls, answers and claims left by dropped futures. Never more calls than are under way.
#[derive(Default)]
struct Abandoned {
    calls: Mutex<Vec<CallId>>,
    /// Answers that no future has received.
    unseen: Mutex<Vec<Answer>>,
    /// Claims whose work was abandoned.
    claims: Mutex<Vec<(TaskId, Token)>>,
    some: Notify,
}

impl Abandoned {
    fn add<T>(&self, to: &Mutex<Vec<T>>, what: impl IntoIterator<Item = T>) {
        to.lock().unwrap_or_else(PoisonError::into_inner).extend(what);
        self.some.notify_one();
    }
}

/// Handle to a session's task. The task ends when the last handle is gone.
pub(crate) struct Handle {
    commands: mpsc::Sender<Command>,
    abandoned: Arc<Abandoned>,
    call_next: AtomicU64,
    /// Why no node is connected; absent while one is.
    reach: watch::Receiver<Option<String>>,
    /// Why the task has ended by itself.
    ended: Arc<OnceLock<String>>,
}

/// Waits for the answer to a call. If dropped, it abandons the call, or hands back an answer that has arrived already.
struct Waiting<'a> {
    abandoned: &'a Abandoned,
    ended: &'a OnceLock<String>,
    call: CallId,
    answer: Option<oneshot::Receiver<Answer>>,
}

impl Waiting<'_> {
    async fn answer(mut self) -> Answer {
        let answer = self.answer.as_mut().expect("it is waited for once").await;
        self.answer = None;
        // Each call that the task takes is answered, also when the task ends (`ending.rs`).
        answer.unwrap_or_else(|_| Answer::closed(self.ended))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let Some(mut answer) = self.answer.take() else { return };
        let abandoned = self.abandoned;
        // From here on no answer can arrive.
        answer.close();
        match answer.try_recv() {
            Ok(answer) => abandoned.add(&abandoned.unseen, [answer]),
            Err(_) => abandoned.add(&abandoned.calls, [self.call]),
        }
    }
}

impl Handle {
    /// Starts the task; connections are made when there are calls.
    pub fn start(dialer: Dialer, addresses: Vec<Address>, config: Config, seed: u64) -> Handle {
        let (handle, driver) = Driver::new(dialer, addresses, config, seed);
        tokio::spawn(driver.run());
        handle
    }

    /// Makes a call. Dropping the future abandons it, and gives back the tasks of a claim that no future has received.
    pub async fn call(&self, body: Call, deadline: Instant) -> Answer {
        let id = CallId(self.call_next.fetch_add(1, Ordering::Relaxed));
        let (reply, answer) = oneshot::channel();
        if self.commands.send(Command::Call { id, body, deadline, reply }).await.is_err() {
            return Answer::closed(&self.ended);
        }
        Waiting { abandoned: &self.abandoned, ended: &self.ended, call: id, answer: Some(answer) }.answer().await
    }

    /// Gives claims back in the background, for as long as a lease of the usual length.
    pub fn give_back(&self, claims: Vec<(TaskId, Token)>) {
        self.abandoned.add(&self.abandoned.claims, claims);
    }

    /// Why no node is connected; absent while one is.
    pub fn unreached(&self) -> Option<String> {
        self.reach.borrow().clone()
    }

    /// Ends the task and its connections. Open calls fail, and tasks granted at this moment go back.
    pub async fn close(&self) {
        let (reply, closed) = oneshot::channel();
        if self.commands.send(Command::Close(reply)).await.is_ok() {
            // An error means that the task has ended, as wanted.
            let _ = closed.await;
        }
    }
}

/// A connection, or the attempt to make one.
struct Link {
    /// Distinguishes its reports from those of earlier links to the same endpoint.
    generation: u64,
    started: Instant,
    /// Protocol version, once it is negotiated.
    version: Option<u8>,
    /// The addresses of the name, if no node at any of them serves.
    ways: Option<Ways>,
    outbox: Arc<Outbox>,
    task: JoinHandle<()>,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Driver {
    session: Session,
    /// Zero of the session's clock.
    started: Instant,
    addresses: Vec<Address>,
    /// Name of the client, for people to read at the nodes.
    name: String,
    dialer: Dialer,
    /// Warns of certificates; it ends with the driver.
    _reminders: JoinSet<()>,
    links: Vec<Option<Link>>,
    /// Why each endpoint failed last, until it answers again.
    failures: Vec<Option<String>>,
    reach: watch::Sender<Option<String>>,
    generation_last: u64,
    commands: mpsc::Receiver<Command>,
    events: mpsc::Receiver<Event>,
    events_out: mpsc::Sender<Event>,
    abandoned: Arc<Abandoned>,
    /// Why the task ends by itself.
    ended: Arc<OnceLock<String>>,
    replies: BTreeMap<CallId, oneshot::Sender<Answer>>,
    /// Last id of the driver's own calls, counted down, whereas those of callers count up.
    call_own_last: u64,
    outputs: VecDeque<Output>,
    /// The client is closing: nothing granted now can be ended through it any more.
    closes: bool,
}

impl Driver {
    fn new(dialer: Dialer, addresses: Vec<Address>, config: Config, seed: u64) -> (Handle, Driver) {
        let (commands, commands_in) = mpsc::channel(COMMANDS_MAX);
        let (events_out, events) = mpsc::channel(EVENTS_MAX);
        let (reach, reached) = watch::channel(Some(String::new()));
        let abandoned = Arc::new(Abandoned::default());
        let ended = Arc::<OnceLock<String>>::default();
        let driver = Driver {
            name: config.name.clone(),
            session: Session::new(config, addresses.len(), seed),
            started: Instant::now(),
            links: addresses.iter().map(|_| None).collect(),
            failures: addresses.iter().map(|_| None).collect(),
            reach,
            addresses,
            _reminders: dialer.remind(),
            dialer,
            generation_last: 0,
            commands: commands_in,
            events,
            events_out,
            abandoned: Arc::clone(&abandoned),
            ended: Arc::clone(&ended),
            replies: BTreeMap::new(),
            call_own_last: u64::MAX,
            outputs: VecDeque::new(),
            closes: false,
        };
        (Handle { commands, abandoned, call_next: AtomicU64::new(1), reach: reached, ended }, driver)
    }

    async fn run(mut self) {
        let abandoned = Arc::clone(&self.abandoned);
        let dialer = self.dialer.clone();
        let node_ends = dialer.node_ended();
        tokio::pin!(node_ends);
        let mut alarm = Alarm::new(Instant::now());
        let close = loop {
            let wake_at = self.session.next_wake().map(|wake_us| self.instant(wake_us));
            let command = tokio::select! {
                command = self.commands.recv() => match command {
                    Some(Command::Close(reply)) => break Some(reply),
                    Some(command) => Some(command),
                    None => break None,
                },
                Some(event) = self.events.recv() => { self.event(event); None }
                () = abandoned.some.notified() => None,
                why = &mut node_ends => {
                    self.ended.get_or_init(|| why);
                    break None;
                }
                () = alarm.ring_at(wake_at) => { self.step(Input::Wake); None }
            };
            if let Some(command) = command {
                self.command(command);
            }
            if let Some(reply) = self.drain() {
                break Some(reply);
            }
            self.carry_out();
        };
        self.let_go().await;
        self.links.clear();
        self.dialer.close(CLOSE_TIMEOUT).await;
        if let Some(reply) = close {
            let _ = reply.send(());
        }
    }

    /// Takes all queued inputs, so that their requests leave together. Returns the reply channel of a close command, if there is one.
    fn drain(&mut self) -> Option<oneshot::Sender<()>> {
        for _ in 0..ROUND_MAX {
            match self.commands.try_recv() {
                Ok(Command::Close(reply)) => return Some(reply),
                Ok(command) => self.command(command),
                Err(_) => break,
            }
        }
        for _ in 0..ROUND_MAX {
            match self.events.try_recv() {
                Ok(event) => self.event(event),
                Err(_) => break,
            }
        }
        self.take_abandoned();
        None
    }

    fn take_abandoned(&mut self) {
        let calls = std::mem::take(&mut *self.abandoned.calls.lock().unwrap_or_else(PoisonError::into_inner));
        for call in calls {
            self.step(Input::Abandon { call });
        }
        let unseen = std::mem::take(&mut *self.abandoned.unseen.lock().unwrap_or_else(PoisonError::into_inner));
        for answer in unseen {
            self.give_back(answer);
        }
        let claims = std::mem::take(&mut *self.abandoned.claims.lock().unwrap_or_else(PoisonError::into_inner));
        self.release(claims);
    }

    fn command(&mut self, command: Command) {
        let Command::Call { id, body, deadline, reply } = command else {
            return;
        };
        // Abandoned before it arrived here: the abandonment may have been processed already.
        if reply.is_closed() {
            return;
        }
        let deadline_us = self.micros(deadline);
        self.replies.insert(id, reply);
        self.step(Input::Submit { call: id, body, deadline_us });
    }

    fn event(&mut self, event: Event) {
        let Event { endpoint, generation, happening } = event;
        if self.links[endpoint].as_ref().is_none_or(|link| link.generation != generation) {
            return;
        }
        match happening {
            Happening::Connected(version, ways) => {
                if let Some(link) = &mut self.links[endpoint] {
                    link.version = Some(version);
                    link.ways = ways;
                }
                self.step(Input::Connected { endpoint });
            }
            Happening::Received(answers) => {
                self.failures[endpoint] = None;
                if answers.is_empty() {
                    self.step(Input::Heard { endpoint });
                }
                for (number, mut response) in answers {
                    self.name_unfounded(endpoint, &mut response);
                    self.step(Input::Received { endpoint, number, response });
                }
            }
            Happening::Disconnected(reason) => {
                tracing::debug!(address = %self.addresses[endpoint], %reason, "connection lost");
                self.links[endpoint] = None;
                let code = if reason.lasting { ErrorCode::Denied } else { ErrorCode::Unavailable };
                let input = match reason.lasting || reason.answered {
                    false => Input::Disconnected { endpoint },
                    true => {
                        let message = format!("{}: {reason}", self.addresses[endpoint]);
                        Input::Refused { endpoint, error: Error::new(code, message) }
                    }
                };
                self.failures[endpoint] = Some(reason.text);
                self.step(input);
            }
        }
    }

    fn step(&mut self, input: Input) {
        let now_us = self.micros(Instant::now());
        let mut outputs = Vec::new();
        self.session.step(now_us, input, &mut outputs);
        for output in outputs {
            match output {
                // Immediately: from here on the session must not hear of this connection.
                Output::Disconnect { endpoint } => self.disconnect(endpoint),
                output => self.outputs.push_back(output),
            }
        }
    }

    fn disconnect(&mut self, endpoint: usize) {
        self.outputs.retain(|output| match output {
            Output::Connect { endpoint: at } | Output::Send { endpoint: at, .. } => *at != endpoint,
            Output::Disconnect { .. } | Output::Done { .. } => true,
        });
        // An attempt that was merely slower than another has not failed.
        let silent = self.links[endpoint].take().is_some_and(|link| link.started.elapsed() >= SILENT_AFTER);
        if silent && self.failures[endpoint].is_none() {
            self.failures[endpoint] = Some("no answer".into());
        }
    }

    fn carry_out(&mut self) {
        let mut wake = Vec::new();
        // The loop also carries out the releases that `done` adds.
        while let Some(output) = self.outputs.pop_front() {
            match output {
                Output::Connect { endpoint } => self.connect(endpoint),
                // Already carried out in `step`.
                Output::Disconnect { .. } => {}
                Output::Send { endpoint, number, request } => {
                    let Some(link) = &self.links[endpoint] else {
                        continue;
                    };
                    let version = link.version.expect("the session sends on connections that are there");
                    link.outbox.fill(|bytes| codec::encode_named(bytes, version, Kind::Request, number, &request));
                    if !wake.contains(&endpoint) {
                        wake.push(endpoint);
                    }
                }
                Output::Done { call, result, lease_from_us } => self.done(call, result, lease_from_us),
            }
        }
        for endpoint in wake {
            if let Some(link) = &self.links[endpoint] {
                link.outbox.wake();
            }
        }
        self.say_reach();
    }

    fn connect(&mut self, endpoint: usize) {
        self.generation_last += 1;
        let outbox = Arc::new(Outbox::default());
        let task = link::Task {
            endpoint,
            generation: self.generation_last,
            address: self.addresses[endpoint].clone(),
            name: self.name.clone(),
            dialer: self.dialer.clone(),
            outbox: Arc::clone(&outbox),
            events: self.events_out.clone(),
        };
        let task = tokio::spawn(task.run());
        let (generation, started) = (self.generation_last, Instant::now());
        self.links[endpoint] = Some(Link { generation, started, version: None, ways: None, outbox, task });
    }

    fn done(&mut self, call: CallId, mut result: Result<Response, Error>, lease_from_us: Option<u64>) {
        let Some(reply) = self.replies.remove(&call) else {
            return;
        };
        if let Err(error) = &mut result
            && is_of_reach(error, lease_from_us.is_none())
        {
            for failure in self.unanswered() {
                if !error.message.contains(&failure) {
                    error.message = format!("{}; {failure}", error.message);
                }
            }
        }
        if let (Err(error), Some(why)) = (&mut result, self.ended.get())
            && matches!(error.code, ErrorCode::Unavailable | ErrorCode::Unknown)
        {
            error.message.clone_from(why);
        }
        let lease_from = lease_from_us.map(|sent_us| self.instant(sent_us));
        if self.closes && is_grant(&result) {
            self.give_back(Answer { result, lease_from });
            let _ = reply.send(Answer::lost(self.ended.get().map_or(ending::CLOSED, String::as_str)));
            return;
        }
        // The receiver is gone: the call was abandoned at this moment.
        if let Err(answer) = reply.send(Answer { result, lease_from }) {
            self.give_back(answer);
        }
    }

    /// Names the node in a refusal for want of a cluster, if there are several: its message speaks of "this node". Adds the failures at
    /// the other addresses of its name.
    fn name_unfounded(&self, endpoint: usize, response: &mut Response) {
        let Response::Error(error) = response else { return };
        if !error.is_of_no_member() {
            return;
        }
        if let Some(Ways { taken, others }) = self.links[endpoint].as_ref().and_then(|link| link.ways.as_ref()) {
            error.message = format!("{taken}: {}; {others}", error.message);
        }
        if self.addresses.len() > 1 {
            error.message = format!("{}: {}", self.addresses[endpoint], error.message);
        }
    }

    /// Each address that has not answered since its last failure, or not at all, with the reason.
    fn unanswered(&self) -> impl Iterator<Item = String> {
        let links = self.addresses.iter().zip(&self.failures).zip(&self.links);
        links.filter_map(|((address, reason), link)| match (reason, link) {
            (Some(reason), _) => Some(format!("{address}: {reason}")),
            (None, Some(Link { version: None, .. })) => Some(format!("{address}: no answer yet")),
            (None, _) => None,
        })
    }

    /// Publishes why no node is connected, or that one is.
    fn say_reach(&mut self) {
        let connected = self.links.iter().flatten().any(|link| link.version.is_some()) && self.ended.get().is_none();
        let why = || self.ended.get().cloned().unwrap_or_else(|| self.unanswered().collect::<Vec<_>>().join("; "));
        let reach = (!connected).then(why);
        self.reach.send_if_modified(|said| {
            let differs = *said != reach;
            *said = reach;
            differs
        });
    }

    /// Releases the tasks of an answer that no future has received.
    fn give_back(&mut self, answer: Answer) {
        let Ok(Response::Claimed { tasks, .. }) = answer.result else { return };
        self.release(tasks.iter().map(|task| (task.id, task.token)));
    }

    fn release(&mut self, claims: impl IntoIterator<Item = (TaskId, Token)>) {
        let deadline_us = self.micros(Instant::now() + RELEASE_TIMEOUT);
        for (id, token) in claims {
            self.call_own_last -= 1;
            let (call, body) = (CallId(self.call_own_last), Request::Release { id, token });
            self.step(Input::Submit { call, body: Call::Request(body), deadline_us });
        }
    }

    fn micros(&self, instant: Instant) -> u64 {
        u64::try_from(instant.saturating_duration_since(self.started).as_micros()).unwrap_or(u64::MAX)
    }

    fn instant(&self, micros: u64) -> Instant {
        self.started + Duration::from_micros(micros)
    }
}

fn is_grant(result: &Result<Response, Error>) -> bool {
    matches!(result, Ok(Response::Claimed { tasks, .. }) if !tasks.is_empty())
}

/// Whether a call failed for want of a node that serves it, so that the failure of each address matters. A node's answer to a call that
/// was sent stands for itself.
fn is_of_reach(error: &Error, unsent: bool) -> bool {
    let is_refusal = error.code == ErrorCode::Denied || error.is_of_no_member();
    matches!(error.code, ErrorCode::Unavailable | ErrorCode::Unknown) || unsent && is_refusal
}
