//! `enqueue`: one task, or one per line of a file.

use super::error::{Exit, Failure};
use super::group::{GroupArguments, Member};
use super::input::{Input, Reading};
use super::lines::Missed;
use super::output::{Output, Style};
use super::parse::{self, Data, DataArguments, DurabilityArguments};
use super::runner::{only, open, unexpected, unreadable};
use super::{Call, Draft, Place, Runner, Transport, text};
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use norn_client::api;
use norn_wire::headers::TEXT_ID;
use norn_wire::limits::{BATCH_TASKS_MAX, PAYLOAD_BYTES_MAX};
use norn_wire::{Acked, Acks, Error, ErrorCode, Guarantee, Request, Response, Spec, TaskId, TextId};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Delay of the progress bar, which would only flicker on a short load.
const PROGRESS_AFTER: Duration = Duration::from_secs(1);
/// Byte order mark with which some editors begin a file. It is no part of the first line.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Arguments of `enqueue`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct EnqueueArguments {
    /// Queue: `queue` or `namespace/queue`
    #[arg(value_name = "QUEUE")]
    pub queue: String,
    /// Data of the task; empty if left out
    #[command(flatten)]
    pub data: DataArguments,
    /// Store one task per line of the file or of standard input, skipping empty lines; report which lines were refused, and for which
    /// lines the tasks may have been stored
    #[arg(long, conflicts_with = "id")]
    pub lines: bool,
    /// Priority: higher is claimed first
    #[arg(long, value_name = "N", value_parser = parse::whole(i32::MIN, i32::MAX, 5), default_value_t = 0, allow_negative_numbers = true)]
    pub priority: i32,
    /// Delay before the task can be claimed, for example 10s; none if left out
    #[arg(long, value_name = "DUR", value_parser = parse::duration_ms, allow_hyphen_values = true, conflicts_with = "at")]
    pub delay: Option<u64>,
    /// Time before which the task cannot be claimed (RFC 3339); claimable at once if left out
    #[arg(long, value_name = "TIME", value_parser = parse::instant_ms)]
    pub at: Option<u64>,
    /// Attempts after which the task is dead unless one completes it; if left out, as many as are set for its queue, or no limit
    #[arg(long, value_name = "N", value_parser = parse::whole(1, u32::MAX, 5), allow_negative_numbers = true)]
    pub max_attempts: Option<u32>,
    /// Id of an earlier enqueue that is repeated, or a text id, QUEUE/NAME or QUEUE/GROUP/NUMBER/TOTAL: the task is stored unless an open
    /// one has it, or the member unless its group has it. A new task if left out
    #[arg(long, value_name = "ID")]
    pub id: Option<String>,
    /// Durability of the write.
    #[command(flatten)]
    pub durability: DurabilityArguments,
    /// Header for the worker, in addition to the data; can be repeated; none if left out
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = parse::header)]
    pub headers: Vec<(String, String)>,
    /// Dependencies: the task cannot be claimed before these tasks have ended. They may be enqueued later. See `queue set QUEUE
    /// failed-dependency`. None if left out
    #[arg(long, value_name = "ID,...", value_delimiter = ',')]
    pub after: Vec<String>,
    /// Refuse the task if one of its dependencies is not known
    #[arg(long, requires = "after")]
    pub must_exist: bool,
    /// Key: tasks of the queue with the same key run one at a time, the oldest first; without a key, the task waits for no other
    #[arg(long, value_name = "K")]
    pub key: Option<String>,
    /// Place the task where this one is, so that one transaction can change both; anywhere if left out
    #[arg(long, value_name = "ID", conflicts_with_all = ["key", "id", "lines"])]
    pub near: Option<String>,
    /// Store the task only if the queue has no open task with this key; otherwise report the existing one
    #[arg(long, requires = "key", conflicts_with_all = ["lines", "acks"])]
    pub unique: bool,
    /// Group of which the task is a member.
    #[command(flatten)]
    pub group: GroupArguments,
    /// Not supported: a task brings others with its completion, see `complete --then`
    #[arg(long, value_name = "ID", hide = true)]
    pub parent: Option<String>,
}

impl EnqueueArguments {
    pub(super) async fn run<T: Transport>(mut self, runner: &mut Runner<T>) -> Result<Exit, Failure> {
        self.resolve_text_id()?;
        let member = self.member()?;
        let mut spec = self.spec()?;
        spec.after = self.after(runner).await?;
        runner.recent().see_queue(&spec.queue);
        if self.lines {
            return self.run_lines(spec, runner).await;
        }
        let near = self.near(runner).await?;
        let data = runner.read_data(self.data.data.as_deref(), self.data.file.as_ref(), PAYLOAD_BYTES_MAX).await?;
        let id = self.id.as_deref().map(|text| runner.resolve_repeated(text)).transpose()?;
        let spec = Spec { payload: data.unwrap_or_default(), ..spec };
        let draft = Draft { id, spec, delay_ms: self.delay.unwrap_or(0), near };
        if self.unique {
            return store_unique(runner, draft).await;
        }
        if let Some(member) = member {
            return self.store_member(runner, &member, draft).await;
        }
        let drafts = vec![draft];
        let results = store(runner, drafts, self.durability.acks).await?;
        let acked = only("enqueue", results)?;
        runner.recent().see(acked.id);
        print_acked(&mut runner.output, "enqueued", &acked)?;
        Ok(Exit::Done)
    }

    /// Replaces a text id by what it stands for: a unique task, or the member of a group with a name.
    fn resolve_text_id(&mut self) -> Result<(), Failure> {
        let Some(text) = self.id.take_if(|id| id.contains('/')) else { return Ok(()) };
        let id: TextId = text.parse()?;
        if id.queue().as_str() != self.queue {
            let (text, queue) = (text::clean(&text), text::clean(&self.queue));
            return Err(Failure::Usage(format!(
                "--id {text} begins with another queue than that of the task, {queue}"
            )));
        }
        let is_single = matches!(id, TextId::Single { .. });
        let excluded = [
            ("--key", self.key.is_some()),
            ("--unique", self.unique),
            ("--acks", is_single && self.durability.acks != Acks::Quorum),
            ("--group", self.group.group.is_some()),
            ("--group-id", self.group.group_id.is_some()),
            ("--number", self.group.number.is_some()),
            ("--total", self.group.total.is_some()),
        ];
        if let Some((flag, _)) = excluded.into_iter().find(|(_, given)| *given) {
            return Err(Failure::Usage(format!("{flag} cannot go with the text id --id {}", text::clean(&text))));
        }
        self.headers.push((TEXT_ID.to_owned(), id.to_string()));
        (self.key, self.unique) = (id.key(), is_single);
        if let TextId::Member { group, number, total, .. } = id {
            (self.group.group, self.group.number, self.group.total) = (Some(group), Some(number), Some(total));
        }
        Ok(())
    }

    /// Resolves the dependencies.
    async fn after<T: Transport>(&self, runner: &mut Runner<T>) -> Result<Vec<TaskId>, Failure> {
        let mut after = Vec::with_capacity(self.after.len());
        for text in &self.after {
            let id = runner.resolve_target(text).await?;
            if self.must_exist {
                runner.request(Request::Get { id, minimum: None, minimum_sequence: None }).await?;
            }
            after.push(id);
        }
        Ok(after)
    }

    /// Resolves the task near which the new one is placed.
    async fn near<T: Transport>(&self, runner: &mut Runner<T>) -> Result<Option<TaskId>, Failure> {
        match &self.near {
            Some(text) => Ok(Some(runner.resolve_target(text).await?)),
            None => Ok(None),
        }
    }

    /// Returns the group membership, if there is one.
    fn member(&self) -> Result<Option<Member<'_>>, Failure> {
        if self.parent.is_some() {
            let message = "--parent is not supported; a task brings others with its completion: `complete ID TOKEN --then FILE.json`";
            return Err(Error::new(ErrorCode::Unsupported, message).into());
        }
        self.group.member(&[
            ("--unique", self.unique),
            ("--key", self.key.is_some()),
            ("--near", self.near.is_some()),
            ("--id", self.id.is_some()),
            ("--lines", self.lines),
        ])
    }

    async fn store_member<T: Transport>(
        &self,
        runner: &mut Runner<T>,
        member: &Member<'_>,
        draft: Draft,
    ) -> Result<Exit, Failure> {
        let group = member.open(runner, &draft.spec.queue).await?;
        let of = member.of(group);
        let results = store(runner, vec![draft.member_of(of.group, of.number)], self.durability.acks).await?;
        let acked = only("enqueue", results)?;
        runner.recent().see(acked.id);
        member.close(runner, group, self.durability.acks).await?;
        member.print(runner, &acked, group)?;
        Ok(Exit::Done)
    }

    /// Builds the spec without the data.
    fn spec(&self) -> Result<Spec, Failure> {
        let mut names = BTreeSet::new();
        if let Some((name, _)) = self.headers.iter().find(|(name, _)| !names.insert(name)) {
            let name = text::clean(name);
            return Err(Failure::Usage(format!("--header {name}=... is given twice; a name has one value")));
        }
        Ok(Spec {
            queue: parse::queue(&self.queue)?,
            payload: Vec::new(),
            priority: self.priority,
            not_before_ms: self.at.unwrap_or(0),
            headers: self.headers.clone(),
            attempts_max: self.max_attempts.unwrap_or(0),
            after: Vec::new(),
            key: self.key.clone(),
            grouping: None,
            revision: None,
        })
    }

    async fn run_lines<T: Transport>(&self, spec: Spec, runner: &mut Runner<T>) -> Result<Exit, Failure> {
        let (mut file, bytes) = match runner.data_source(self.data.data.as_deref(), self.data.file.as_ref()) {
            None | Some(Data::Stdin) => (None, None),
            Some(Data::File(path)) => (Some(open(&path)?), std::fs::metadata(&path).ok().map(|file| file.len())),
            Some(Data::Text(_)) => {
                return Err(Failure::Usage("--lines reads tasks from --file FILE or from standard input".to_owned()));
            }
        };
        let mut load = Load::new(bytes, runner.output.progress());
        let (interrupt, place) = (runner.interrupt.clone(), runner.place);
        let stored = self.store_lines(spec, file.as_mut(), runner, &mut load);
        // A prompt reports by itself what took effect before the interrupt.
        let outcome = match place {
            Place::CommandLine => interrupt.before(stored).await,
            Place::Prompt | Place::Script => Some(stored.await),
        };
        load.bar.finish_and_clear();
        let Some(outcome) = outcome else { return load.interrupted(runner) };
        match outcome.and_then(|()| load.conclude(&mut runner.output)) {
            Ok(exit) => Ok(exit),
            // Report what was stored together with the failure.
            Err(Failure::Output(error)) => {
                let _ = load.missed.tell(&mut runner.output);
                Err(Failure::Output(error))
            }
            Err(failure) => {
                // If results cannot be written, the flush of the results reports it again.
                load.tell(&mut runner.output);
                Err(failure)
            }
        }
    }

    async fn store_lines<T: Transport>(
        &self,
        spec: Spec,
        mut file: Option<&mut Input>,
        runner: &mut Runner<T>,
        load: &mut Load,
    ) -> Result<(), Failure> {
        loop {
            let input = file.as_deref_mut().unwrap_or(&mut runner.input);
            let readings = input.batch(BATCH_TASKS_MAX, PAYLOAD_BYTES_MAX).await;
            let readings = readings.map_err(|error| unreadable("the tasks", &error))?;
            let (mut drafts, mut lines) = (Vec::with_capacity(readings.len()), Vec::with_capacity(readings.len()));
            let mut ended = None;
            for reading in readings {
                load.line += 1;
                match reading {
                    Reading::Line(mut line) => {
                        if load.line == 1 && line.starts_with(BYTE_ORDER_MARK) {
                            line.drain(..BYTE_ORDER_MARK.len());
                        }
                        load.bytes += line.len() as u64 + 1;
                        if !line.is_empty() {
                            let spec = Spec { payload: line, ..spec.clone() };
                            drafts.push(Draft { id: None, spec, delay_ms: self.delay.unwrap_or(0), near: None });
                            lines.push(load.line);
                        }
                    }
                    Reading::End => ended = Some(Ok(())),
                    Reading::Interrupted => ended = Some(Err(Failure::invalid("interrupted"))),
                    Reading::TooLong => {
                        let size = text::size(PAYLOAD_BYTES_MAX);
                        ended = Some(Err(Failure::invalid(format!("line {} is longer than {size}", load.line))));
                    }
                }
            }
            if !drafts.is_empty() {
                load.asked.clone_from(&lines);
                let stored = store(runner, drafts, self.durability.acks).await;
                load.asked.clear();
                match stored {
                    Ok(results) => load.take(&lines, &results, runner)?,
                    Err(failure) => {
                        failure.error().iter().for_each(|error| load.missed.add_all(&lines, error));
                        return Err(failure);
                    }
                }
            }
            if let Some(ended) = ended {
                return ended;
            }
        }
    }
}

/// State of a bulk enqueue.
struct Load {
    bar: ProgressBar,
    shown: bool,
    started: Instant,
    /// Lines and bytes read.
    line: u64,
    bytes: u64,
    /// Tasks acknowledged, and the last line they came from.
    stored: u64,
    line_stored: u64,
    /// Lines whose tasks are being stored now.
    asked: Vec<u64>,
    missed: Missed,
    exit: Exit,
}

impl Load {
    fn new(bytes: Option<u64>, progress: bool) -> Load {
        let bar = ProgressBar::with_draw_target(bytes, ProgressDrawTarget::hidden());
        let template = match bytes {
            Some(_) => "{bar:30} {percent}%  {msg}  {elapsed}, {eta} to go",
            None => "{spinner} {msg}  {elapsed}",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        let started = Instant::now();
        Load {
            bar,
            shown: !progress,
            started,
            line: 0,
            bytes: 0,
            stored: 0,
            line_stored: 0,
            asked: Vec::new(),
            missed: Missed::default(),
            exit: Exit::Done,
        }
    }

    /// Prints the outcome of a batch of these lines.
    fn take<T: Transport>(
        &mut self,
        lines: &[u64],
        results: &[Result<Acked, Error>],
        runner: &mut Runner<T>,
    ) -> Result<(), Failure> {
        // Count all results before printing the first one, since printing may fail.
        for (line, result) in lines.iter().zip(results) {
            match result {
                Ok(_) => {
                    self.stored += 1;
                    self.line_stored = *line;
                }
                Err(error) => {
                    self.missed.add(*line, error);
                    self.exit = self.exit.max(Exit::of(error.code));
                }
            }
        }
        runner.meet(self.exit);
        if runner.output.json() {
            for result in results {
                let id = result.as_ref().map_or_else(|error| error.id, |acked| Some(acked.id));
                id.into_iter().for_each(|id| runner.recent().see(id));
                match result {
                    Ok(acked) => runner.output.row(&api::WriteAck::from(acked))?,
                    Err(error) => runner.output.row(&api::ErrorReport::from(error))?,
                }
            }
        }
        // Flush each batch: lines may arrive slowly, and readers want the ids at once.
        runner.output.flush()?;
        if !self.shown && self.started.elapsed() > PROGRESS_AFTER {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
            self.shown = true;
        }
        self.bar.set_position(self.bytes);
        self.bar.set_message(text::number(self.stored, "task"));
        Ok(())
    }

    /// Reports what was stored although the load did not finish.
    fn tell(&mut self, output: &mut Output) {
        if self.stored > 0 {
            let stored = text::number(self.stored, "task");
            let _ = output.note(&format!("{stored}, up to line {}, had been enqueued", self.line_stored));
        }
        let _ = self.missed.tell(output);
    }

    /// Concludes after Ctrl-C.
    fn interrupted<T: Transport>(&mut self, runner: &mut Runner<T>) -> Result<Exit, Failure> {
        let error = match self.asked[..] {
            [] => Error::unavailable("interrupted"),
            _ => Error::new(ErrorCode::Unknown, "interrupted"),
        };
        runner.output.leave_line_of_notes()?;
        self.tell(&mut runner.output);
        if let (Some(first), Some(last)) = (self.asked.first(), self.asked.last()) {
            let asked = text::number(self.asked.len() as u64, "task");
            runner.output.note(&format!("{asked}, of lines {first} to {last}, may have been"))?;
        }
        if runner.output.json() {
            runner.output.error_row(&error)?;
            runner.output.end_rows()?;
        } else {
            runner.output.complain("interrupted")?;
        }
        Ok(Exit::Interrupted)
    }

    fn conclude(&mut self, output: &mut Output) -> Result<Exit, Failure> {
        if output.json() {
            output.end_rows()?;
            output.flush()?;
            return Ok(self.exit);
        }
        let elapsed_ms = self.started.elapsed().as_millis().max(1) as u64;
        let rate = self.stored.saturating_mul(1_000) / elapsed_ms;
        let label = output.paint(Style::Good, "enqueued");
        let stored = text::number(self.stored, "task");
        output.line(&format!("{label} {stored} in {} ({rate}/s)", text::duration(elapsed_ms)))?;
        self.missed.tell(output)?;
        Ok(self.exit)
    }
}

async fn store<T: Transport>(
    runner: &Runner<T>,
    drafts: Vec<Draft>,
    acks: Acks,
) -> Result<Vec<Result<Acked, Error>>, Failure> {
    let count = drafts.len();
    match runner.call(Call::Enqueue { drafts, acks }).await? {
        Response::Acked(results) if results.len() == count => Ok(results),
        _ => Err(unexpected("enqueue")),
    }
}

async fn store_unique<T: Transport>(runner: &mut Runner<T>, draft: Draft) -> Result<Exit, Failure> {
    let Response::AckedUnique { acked, existing } = runner.call(Call::EnqueueUnique { draft: Box::new(draft) }).await?
    else {
        return Err(unexpected("enqueue"));
    };
    runner.recent().see(acked.id);
    if runner.output.json() {
        runner.output.object(&api::UniqueAck::new(&acked, existing))?;
    } else {
        print_acked(&mut runner.output, if existing { "there is" } else { "enqueued" }, &acked)?;
    }
    Ok(Exit::Done)
}

/// Prints the confirmation of a write.
pub(super) fn print_acked(output: &mut Output, done: &str, acked: &Acked) -> Result<(), Failure> {
    if output.json() {
        return output.object(&api::WriteAck::from(acked));
    }
    let done = output.paint(Style::Good, done);
    let guarantee = match acked.guarantee {
        Guarantee::Strict => "strict".to_owned(),
        Guarantee::Sloppy => output.paint(Style::Busy, "sloppy"),
    };
    output.line(&format!("{done} {} ({} of {} replicas, {guarantee})", acked.id, acked.acks, acked.replicas))
}
