//! Context of verbs: a transport, an output, an input, and the memory of a session.

use super::effects::{Effect, Effects};
use super::error::{Exit, Failure};
use super::input::Input;
use super::interrupt::Interrupt;
use super::output::Output;
use super::parse::{Data, bounded};
use super::recent::{ID_CHARACTERS, Part, Prefix, Recent, TARGET_CHARACTERS_MIN};
use super::shown::ShownIds;
use super::{Call, Command, Transport, Verb};
use norn_client::client::calling::{Caller, strange};
use norn_client::client::text_ids::find;
use norn_wire::{Error, ErrorCode, Request, Response, TaskId, Token};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Where a verb was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// As arguments of a program that ends with it.
    CommandLine,
    /// At a prompt, by a person.
    Prompt,
    /// In a file or a pipe of commands.
    Script,
}

/// Time limit of a call, in addition to its intentional wait, for verbs whose `--timeout` limits the wait.
const PATIENCE: Duration = Duration::from_secs(10);
/// Least time of a call, even after the command's time is over.
const CALL_MIN: Duration = Duration::from_millis(200);
/// Time for its calls that a command whose `--timeout` limits its wait has in addition, and the least time it has in all.
const GRACE: Duration = Duration::from_secs(1);
const GRACE_MIN: Duration = Duration::from_secs(2);
/// Most pages examined for the tasks of a prefix.
const PREFIX_PAGES_MAX: u32 = 100;
/// Most ids named if some characters match several.
const CANDIDATES_MAX: usize = 5;

/// Runs verbs.
pub struct Runner<T> {
    pub(crate) transport: T,
    /// Destination of results.
    pub output: Output,
    /// Source of data on standard input and, in a script, of commands.
    pub input: Input,
    /// Where the verbs are given.
    pub place: Place,
    /// Ids and queues of this session.
    pub recent: Arc<Mutex<Recent>>,
    /// Ids that earlier commands of this user have shown, if they are kept.
    pub shown: Option<ShownIds>,
    /// Quoted words of the current command.
    pub literals: BTreeSet<String>,
    /// Wall clock, in milliseconds since the Unix epoch.
    pub clock: fn() -> u64,
    /// Whether a result could not be written, so that the output has no reader.
    pub output_lost: bool,
    /// Interrupts that the current command handles itself.
    pub(crate) interrupt: Interrupt,
    /// Time for all calls of the current command together, if bounded.
    bound: Option<Duration>,
    /// Start of that time: the first call. Reading the command's input does not count.
    bound_from: OnceLock<Instant>,
    /// What was acknowledged to the current command.
    effects: Mutex<Effects>,
    /// Worst exit of a part of the current command.
    met: Exit,
    /// Whole ids of the current command. Whether such tasks exist is unknown before they are answered.
    named: Mutex<BTreeSet<TaskId>>,
}

fn wall_clock_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

impl<T: Transport> Runner<T> {
    /// Creates a runner with an empty memory.
    pub fn new(transport: T, output: Output, input: Input, place: Place) -> Self {
        Runner {
            transport,
            output,
            input,
            place,
            recent: Arc::default(),
            shown: None,
            literals: BTreeSet::new(),
            clock: wall_clock_ms,
            output_lost: false,
            interrupt: Interrupt::default(),
            bound: None,
            bound_from: OnceLock::new(),
            effects: Mutex::default(),
            met: Exit::Done,
            named: Mutex::default(),
        }
    }

    /// Runs a verb and prints its result or failure.
    pub async fn run(&mut self, verb: impl Into<Command>) -> Exit {
        let command: Command = verb.into();
        self.effects = Mutex::default();
        self.met = Exit::Done;
        self.named = Mutex::default();
        self.bound = self.transport.patience().filter(|_| command.makes_few_calls());
        self.bound_from = OnceLock::new();
        let adds = |verb: &Verb| matches!(verb, Verb::Enqueue(_) | Verb::Transact(_));
        self.output.set_adds(matches!(&command, Command::Verb(verb) if adds(verb)));
        let outcome = command.run(self).await;
        self.conclude(outcome)
    }

    /// Prints a failure, and flushes everything printed.
    pub fn conclude(&mut self, outcome: Result<Exit, Failure>) -> Exit {
        let outcome = outcome.map_err(|failure| self.naming(failure));
        self.settle_all_named(outcome.as_ref().err());
        let exit = match outcome {
            Ok(exit) => exit,
            Err(Failure::Output(error)) => self.lose(error),
            Err(failure) => {
                let told = failure.error().filter(|error| error.code != ErrorCode::NotFound);
                told.and_then(|error| error.id).into_iter().for_each(|id| self.recent().see(id));
                // Open outcomes of earlier parts stay open.
                let exit = failure.exit().max(self.met);
                exit.max(self.written(|output| output.failure(&failure)))
            }
        };
        exit.max(self.written(Output::flush))
    }

    /// Makes the text of a failure name its task, unless that is the one task that the command named by its id.
    fn naming(&self, failure: Failure) -> Failure {
        let Failure::Call(error) = failure else { return failure };
        let Some(id) = error.id.filter(|id| !self.output.json() && !self.named().iter().eq([id])) else {
            return Failure::Call(error);
        };
        let name = id.to_string();
        // The advice about an unknown outcome names the task.
        if error.code == ErrorCode::Unknown || error.message.contains(&name) {
            return Failure::Call(error);
        }
        Failure::Call(Error { message: format!("{} (task {name})", error.message), ..error })
    }

    /// Concludes an abandoned command, with this reason. Its call may yet take effect, unless it only read or claimed.
    pub(crate) fn conclude_given_up(&mut self, why: &str) -> Exit {
        let effects = std::mem::take(self.effects.get_mut().unwrap_or_else(PoisonError::into_inner));
        let before = effects.done().map_or_else(String::new, |effects| format!("; this took effect before: {effects}"));
        let message = format!("{why}{before}");
        if effects.any_open() {
            return self.conclude(Err(Failure::Call(Error::new(ErrorCode::Unknown, message))));
        }
        if self.output.json() {
            return self.conclude(Err(Failure::Call(Error::unavailable(message))));
        }
        // The person has nothing to check before the next command.
        let outcome = self.output.complain(&message).map(|()| Exit::Unavailable);
        self.conclude(outcome)
    }

    fn written(&mut self, write: impl FnOnce(&mut Output) -> Result<(), Failure>) -> Exit {
        match write(&mut self.output) {
            Ok(()) => Exit::Done,
            Err(Failure::Output(error)) => self.lose(error),
            Err(failure) => failure.exit(),
        }
    }

    /// Records the exit of a part of the current command. The command ends at least as badly, even if its result cannot be written.
    pub(super) fn meet(&mut self, exit: Exit) {
        self.met = self.met.max(exit);
    }

    /// Handles a result that could not be written. Acknowledged changes remain; standard error names them once, with what was not done or
    /// may have been. Only if there are none, and nothing failed, a broken pipe means that the reader has had enough, and is no failure.
    fn lose(&mut self, error: io::Error) -> Exit {
        let said = std::mem::replace(&mut self.output_lost, true);
        let effects = std::mem::take(self.effects.get_mut().unwrap_or_else(PoisonError::into_inner));
        let (text, met) = (effects.text(), self.met);
        let had_enough = error.kind() == io::ErrorKind::BrokenPipe && text.is_none();
        if had_enough && met == Exit::Done && !self.output.has_unread() {
            return Exit::Done;
        }
        if !said {
            self.output.unwritten(&format!("cannot write the result: {error}"), text.as_deref());
        }
        let lost = if effects.has_unknown() { Exit::Unavailable } else { Exit::Refused };
        // A failure of the command has its own exit code.
        if had_enough { met } else { lost.max(met) }
    }

    /// Makes a call that a node answers at once.
    pub(super) async fn call(&self, call: Call) -> Result<Response, Failure> {
        Ok(self.make(call).await?)
    }

    /// Records and returns the effect of a call that is about to be made.
    fn asks(&self, call: &Call) -> Option<Effect> {
        let effect = Effect::of(call);
        effect.iter().for_each(|effect| self.effects().ask(effect));
        effect
    }

    fn effects(&self) -> MutexGuard<'_, Effects> {
        self.effects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the effect of an answer and returns it.
    fn settled(&self, effect: Option<Effect>, result: Result<Response, Error>) -> Result<Response, Error> {
        effect.iter().for_each(|effect| self.effects().answered(effect));
        let result = answered(result);
        if let Some(effect) = &effect {
            self.effects().note(effect, result.as_ref());
        }
        result
    }

    /// Makes a request.
    pub(super) async fn request(&self, request: Request) -> Result<Response, Failure> {
        self.call(Call::Request(request)).await
    }

    /// Makes a request whose answer contains leases. Also returns the time from which they count, by the wall clock.
    pub(super) async fn request_lease(&self, request: Request) -> Result<(Response, u64), Failure> {
        self.request_lease_within(request, None).await
    }

    /// Same, with a time limit for the call in addition to its intentional wait.
    pub(super) async fn request_lease_within(
        &self,
        request: Request,
        timeout: Option<Duration>,
    ) -> Result<(Response, u64), Failure> {
        let (asked, asked_ms) = (Instant::now(), (self.clock)());
        let call = Call::Request(request);
        let effect = self.asks(&call);
        let (result, from) = self.transport.call_for_lease(call, timeout.or_else(|| self.left())).await;
        let later_ms = from.map_or(0, |from| from.saturating_duration_since(asked).as_millis() as u64);
        Ok((self.settled(effect, result)?, asked_ms.saturating_add(later_ms)))
    }

    /// Extends the time for the calls of this verb by an intentional wait.
    pub(super) fn also_waits(&mut self, wait: Duration) {
        self.bound = self.bound.map(|bound| bound.saturating_add(wait));
    }

    /// Returns the time left for a call in addition to its intentional wait.
    pub(super) fn left_beside(&self, wait: Duration) -> Option<Duration> {
        self.left().map(|left| left.saturating_sub(wait).max(CALL_MIN))
    }

    /// Makes a request that waits intentionally for `wait`, for a verb whose own `--timeout` limits its wait.
    pub(super) async fn waiting_request(&self, request: Request, wait: Duration) -> Result<Response, Failure> {
        let call = Call::Request(request);
        let effect = self.asks(&call);
        let left = self.left().map_or(PATIENCE, |left| left.saturating_sub(wait).clamp(CALL_MIN, PATIENCE));
        Ok(self.settled(effect, self.transport.call(call, Some(left)).await)?)
    }

    /// Bounds all calls of a verb that waits this long, plus a short grace.
    pub(super) fn waits_for(&mut self, timeout_ms: Option<u64>) {
        self.bound = timeout_ms.map(|ms| Duration::from_millis(ms).saturating_add(GRACE).max(GRACE_MIN));
    }

    /// Returns the time limit of a call; `None`: the transport's own.
    pub(super) fn left(&self) -> Option<Duration> {
        let bound = self.bound?;
        Some(bound.saturating_sub(self.bound_from.get_or_init(Instant::now).elapsed()).max(CALL_MIN))
    }

    /// Locks the ids and queues of this session.
    pub(super) fn recent(&self) -> MutexGuard<'_, Recent> {
        // Every state of the memory is valid, even after a panic.
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the bytes that an argument names, if there is one.
    pub(super) async fn read_data(
        &mut self,
        data: Option<&str>,
        file: Option<&PathBuf>,
        bytes_max: usize,
    ) -> Result<Option<Vec<u8>>, Failure> {
        let bytes = match self.data_source(data, file) {
            None => return Ok(None),
            Some(Data::Text(text)) => text.into_bytes(),
            Some(Data::Stdin) => {
                let bytes = self.input.rest(bytes_max).await;
                // Reading may have taken long.
                self.bound_from = OnceLock::new();
                bytes.map_err(|error| unreadable("standard input", &error))?
            }
            Some(Data::File(path)) => {
                let mut input = open(&path)?;
                let bytes = input.rest(bytes_max).await;
                bytes.map_err(|error| unreadable(&path.display().to_string(), &error))?
            }
        };
        bounded(bytes, bytes_max).map(Some)
    }

    /// Returns the source of an argument's bytes.
    pub(super) fn data_source(&self, data: Option<&str>, file: Option<&PathBuf>) -> Option<Data> {
        let in_repl = self.place != Place::CommandLine;
        Data::new(data, file, in_repl, |text| self.literals.contains(text))
    }

    /// Remembers a whole id of this command as a task's, unless the answer is an error that does not imply that the task exists.
    pub(super) fn settle_named(&self, id: Option<TaskId>, error: Option<&Error>) {
        let Some(id) = id.filter(|id| self.named().remove(id)) else { return };
        let is_there =
            |error: &Error| matches!(error.code, ErrorCode::Conflict | ErrorCode::Superseded | ErrorCode::Ended);
        if error.is_none_or(is_there) {
            self.recent().see(id);
        }
    }

    fn settle_all_named(&self, failure: Option<&Failure>) {
        let error = failure.and_then(Failure::error);
        let named = self.named().clone();
        named.into_iter().for_each(|id| self.settle_named(Some(id), error.as_ref()));
    }

    fn named(&self) -> MutexGuard<'_, BTreeSet<TaskId>> {
        self.named.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Saves the ids that this command has shown, for later commands.
    pub(crate) fn remember_shown(&self) {
        let ids = self.recent().take_new();
        if let Some(shown) = &self.shown {
            // Without this memory, a person only has to type more of an id.
            let _ = shown.add(&ids);
        }
    }

    /// Resolves the id of a task to be read: a whole id, a text id, characters of a known one, or the beginning of a stored one.
    pub(super) async fn resolve(&self, text: &str) -> Result<TaskId, Failure> {
        if text.contains('/') {
            let id = find(self, &text.parse()?, (self.clock)()).await?.ok_or_else(|| {
                let message = format!("no task has the text id {text:?}, or none is kept any more");
                Failure::Call(Error::new(ErrorCode::NotFound, message))
            })?;
            self.recent().see(id);
            return Ok(id);
        }
        if text.len() >= ID_CHARACTERS {
            let id = text.parse()?;
            self.named().insert(id);
            return Ok(id);
        }
        let id = self.resolve_part(text).await?;
        self.recent().see(id);
        Ok(id)
    }

    /// Resolves the id of a task to be changed, or on which something will depend. Some characters stand for it only if no other known id
    /// contains them and no other stored id begins with them; the resolved id is printed.
    pub(super) async fn resolve_target(&mut self, text: &str) -> Result<TaskId, Failure> {
        if text.contains('/') {
            let id = self.resolve(text).await?;
            self.note_meant(text, id)?;
            return Ok(id);
        }
        if text.len() >= ID_CHARACTERS {
            return self.resolve(text).await;
        }
        let part = Part::new(text).map_err(Failure::invalid)?;
        if text.len() < TARGET_CHARACTERS_MIN {
            let message = format!(
                "{text:?} is too short for the id of a task that is changed; {TARGET_CHARACTERS_MIN} characters or more"
            );
            return Err(Failure::invalid(message));
        }
        let mut candidates = self.known(&part);
        candidates.extend(self.find(part.prefix).await?);
        let id = self.the_one(text, &candidates)?.ok_or_else(|| unknown(text))?;
        self.recent().see(id);
        self.note_meant(text, id)?;
        Ok(id)
    }

    /// Resolves the id of a task whose creation is repeated. It may not exist yet, so the cluster is not asked.
    pub(super) fn resolve_repeated(&mut self, text: &str) -> Result<TaskId, Failure> {
        if text.len() >= ID_CHARACTERS {
            return Ok(text.parse()?);
        }
        let part = Part::new(text).map_err(Failure::invalid)?;
        let known = if text.len() < TARGET_CHARACTERS_MIN { BTreeSet::new() } else { self.known(&part) };
        let id = self.the_one(text, &known)?.ok_or_else(|| {
            let least = TARGET_CHARACTERS_MIN;
            Failure::invalid(format!(
                "{text:?} is not in an id that was shown; give {least} characters of one, or a whole id"
            ))
        })?;
        self.note_meant(text, id)?;
        Ok(id)
    }

    /// Says to people which task is meant.
    fn note_meant(&mut self, text: &str, id: TaskId) -> Result<(), Failure> {
        if self.output.json() {
            return Ok(());
        }
        self.output.note(&format!("{} is {id}", super::text::clean(text)))
    }

    async fn resolve_part(&self, text: &str) -> Result<TaskId, Failure> {
        let part = Part::new(text).map_err(Failure::invalid)?;
        if let Some(id) = self.the_one(text, &self.known(&part))? {
            return Ok(id);
        }
        let found = self.find(part.prefix).await?.into_iter().collect();
        self.the_one(text, &found)?.ok_or_else(|| unknown(text))
    }

    /// Returns the only candidate, if any. With several, the refusal names some, and thereby shows them.
    fn the_one(&self, text: &str, candidates: &BTreeSet<TaskId>) -> Result<Option<TaskId>, Failure> {
        if candidates.len() < 2 {
            return Ok(candidates.first().copied());
        }
        let named = || candidates.iter().take(CANDIDATES_MAX);
        named().for_each(|id| self.recent().see(*id));
        let names: Vec<String> = named().map(TaskId::to_string).collect();
        Err(Failure::invalid(format!(
            "{text:?} is ambiguous: it is in {}, and perhaps more; give more characters, or those in which they differ",
            names.join(", ")
        )))
    }

    /// Returns the ids with these characters that this command, the session or earlier commands have shown.
    fn known(&self, part: &Part) -> BTreeSet<TaskId> {
        let mut known: BTreeSet<TaskId> = self.recent().ids().filter(|id| part.is_in(*id)).collect();
        let shown = self.shown.as_ref().map_or_else(Vec::new, ShownIds::load);
        known.extend(shown.into_iter().filter(|id| part.is_in(*id)));
        known
    }

    /// Finds at most two stored ids that begin with a prefix.
    async fn find(&self, prefix: Prefix) -> Result<Vec<TaskId>, Failure> {
        let mut found = Vec::new();
        let mut after = None;
        for _ in 0..PREFIX_PAGES_MAX {
            let (from, to) = (Some(prefix.from), Some(prefix.to));
            let request = Request::List { queue: None, state: None, after, from, to, limit: 2 };
            let Response::Page(page) = self.request(request).await? else {
                return Err(unexpected("list"));
            };
            found.extend(page.tasks.iter().map(|task| task.id));
            if found.len() >= 2 || page.next.is_none() {
                break;
            }
            after = page.next;
        }
        found.truncate(2);
        Ok(found)
    }
}

impl<T: Transport> Caller for Runner<T> {
    async fn make(&self, call: Call) -> Result<Response, Error> {
        let effect = self.asks(&call);
        self.settled(effect, self.transport.call(call, self.left()).await)
    }

    fn give_back(&self, claims: Vec<(TaskId, Token)>) {
        self.transport.give_back(claims);
    }
}

/// Opens a file of data.
pub(super) fn open(path: &Path) -> Result<Input, Failure> {
    Input::file(path).map_err(|error| unreadable(&path.display().to_string(), &error))
}

/// Creates a failure for data that could not be read.
pub(super) fn unreadable(name: &str, error: &std::io::Error) -> Failure {
    Failure::invalid(format!("cannot read {name}: {error}"))
}

/// Creates a failure for a response of another kind than requested.
pub(super) fn unexpected(verb: &str) -> Failure {
    strange(verb).into()
}

/// Returns the single result of a call on one item.
pub(super) fn only<V>(verb: &str, results: Vec<Result<V, Error>>) -> Result<V, Failure> {
    let mut results = results.into_iter();
    match (results.next(), results.next()) {
        (Some(result), None) => Ok(result?),
        _ => Err(unexpected(verb)),
    }
}

fn answered(result: Result<Response, Error>) -> Result<Response, Error> {
    match result? {
        Response::Error(error) => Err(error),
        response => Ok(response),
    }
}

fn unknown(text: &str) -> Failure {
    let message = format!(
        "no task begins with {text:?}, and no id that was shown here lately has it; give more of the id, or all"
    );
    Failure::Call(Error::new(ErrorCode::NotFound, message))
}
