//! What a command has changed so far. It is printed where the result cannot be written: what is acknowledged stays true, and
//! repeating the command would do it twice.

use super::Call;
use norn_wire::{Error, ErrorCode, Request, Response, TaskId};

/// Items that are named; of more only the number.
const NAMED_MAX: usize = 8;

const CLAIMED: &str = "claimed";

/// What a call changes if it is acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Effect {
    /// In the past tense, before the id.
    done: &'static str,
    /// The task that the call names, where its answer names none.
    id: Option<TaskId>,
    /// Of a transaction: how many of the tasks that its answer names are new.
    adds: usize,
    /// Of a transaction: the tasks that it ends, which its answer does not name.
    ends: Vec<TaskId>,
    /// Of completions: how many tasks each brings, which its answer does not name.
    children: Vec<usize>,
}

/// What was acknowledged to one command, and what may be yet.
#[derive(Debug, Default)]
pub(super) struct Effects {
    /// Calls that are not answered yet, and may take effect although they are given up.
    open: usize,
    done: Named,
    /// Those that may have come about.
    unknown: Named,
}

/// Some of them in words, and how many more there are.
#[derive(Debug, Default)]
struct Named {
    named: Vec<String>,
    unnamed: usize,
}

impl Named {
    fn add(&mut self, text: impl FnOnce() -> String) {
        match self.named.len() < NAMED_MAX {
            true => self.named.push(text()),
            false => self.unnamed += 1,
        }
    }

    fn text(&self) -> Option<String> {
        let more = if self.unnamed > 0 { format!(", and {} more", self.unnamed) } else { String::new() };
        (!self.named.is_empty()).then(|| self.named.join(", ") + &more)
    }
}

impl Effect {
    /// Whether it may come about although the call is given up: what a claim is granted then goes back.
    fn outlives_the_call(&self) -> bool {
        self.done != CLAIMED
    }

    /// Of a call; none where it only reads.
    pub fn of(call: &Call) -> Option<Effect> {
        let plain = |done, id| Effect { done, id, adds: 0, ends: Vec::new(), children: Vec::new() };
        let effect = |done, id| Some(plain(done, id));
        match call {
            Call::Enqueue { .. } | Call::EnqueueUnique { .. } => effect("stored", None),
            Call::Transact { draft } => {
                let ends = draft.deletes.iter().map(|delete| delete.id).collect();
                Some(Effect { adds: draft.adds.len(), ends, ..plain("changed", None) })
            }
            Call::Complete { items, .. } => {
                let children = items.iter().map(|item| item.children.len()).collect();
                Some(Effect { children, ..plain("completed", None) })
            }
            Call::Redrive { .. } => effect("redriven as", None),
            Call::Request(request) => match request {
                Request::Enqueue { .. } | Request::EnqueueUnique { .. } => effect("stored", None),
                // The verbs leave its ids to the session, by the call above.
                Request::Transact(_) => effect("changed", None),
                Request::Complete { .. } => effect("completed", None),
                Request::Claim(_) => effect(CLAIMED, None),
                Request::Redrive { .. } => effect("redriven as", None),
                Request::Update { .. } => effect("added to the log of", None),
                Request::Cancel { .. } => effect("acknowledged the cancellation of", None),
                Request::Purge { .. } => effect("purged", None),
                Request::CloseGroup { .. } => effect("closed the group", None),
                Request::Renew { items, .. } => effect("renewed", items.first().map(|(id, _)| *id)),
                Request::Release { id, .. } => effect("given back", Some(*id)),
                Request::Fail { id, .. } => effect("failed", Some(*id)),
                Request::Change { dry_run: false, .. } | Request::Arrange { .. } | Request::Initialize(_) => {
                    effect("changed the cluster", None)
                }
                Request::Recover { .. } => effect("had the cluster recover", None),
                Request::Schedule(_) => effect("changed the schedule", None),
                Request::Change { dry_run: true, .. }
                | Request::Hello { .. }
                | Request::Get { .. }
                | Request::Wait { .. }
                | Request::Watch { .. }
                | Request::List { .. }
                | Request::Count { .. }
                | Request::Queues
                | Request::Nodes
                | Request::Ring
                | Request::Partitions
                | Request::Status
                | Request::Identify
                | Request::Cluster
                | Request::Schedules { .. }
                | Request::Join(_)
                | Request::Ping
                | Request::Confirm { .. }
                | Request::Leave { .. } => None,
            },
        }
    }
}

impl Effects {
    /// A call is made.
    pub fn ask(&mut self, effect: &Effect) {
        self.open += usize::from(effect.outlives_the_call());
    }

    /// It was answered.
    pub fn answered(&mut self, effect: &Effect) {
        self.open -= usize::from(effect.outlives_the_call());
    }

    /// Whether some call was made that may take effect, and was not answered.
    pub fn any_open(&self) -> bool {
        self.open > 0
    }

    /// Keeps what an answer acknowledges, or leaves open.
    pub fn note(&mut self, effect: &Effect, result: Result<&Response, &Error>) {
        match result {
            Ok(response) => self.note_answer(effect, response),
            Err(error) => self.note_error(effect, error),
        }
    }

    fn note_error(&mut self, effect: &Effect, error: &Error) {
        if error.code == ErrorCode::Unknown && effect.outlives_the_call() {
            let id = error.id.or(effect.id);
            self.unknown.add(|| id.map_or_else(|| effect.done.to_owned(), |id| format!("{} {id}", effect.done)));
        }
    }

    fn note_answer(&mut self, effect: &Effect, response: &Response) {
        let Effect { done, id, adds, ends, children } = effect;
        match response {
            Response::Acked(results) => {
                for (place, result) in results.iter().enumerate() {
                    let acked = match result {
                        Ok(acked) => acked,
                        Err(error) => {
                            self.note_error(effect, error);
                            continue;
                        }
                    };
                    let children = children.get(place).copied().unwrap_or(0);
                    self.add(|| format!("{done} {}{}", acked.id, with_children(acked.id, children)));
                }
            }
            Response::AckedOne(acked) => self.add(|| format!("{done} {}", acked.id)),
            Response::AckedUnique { existing: true, .. } | Response::Error(_) | Response::Transacted(Err(_)) => {}
            Response::AckedUnique { acked, .. } => self.add(|| format!("{done} {}", acked.id)),
            Response::Transacted(Ok(tasks)) => {
                let (added, changed) = tasks.split_at((*adds).min(tasks.len()));
                added.iter().for_each(|(id, _)| self.add(|| format!("added {id}")));
                changed.iter().for_each(|(id, _)| self.add(|| format!("{done} {id}")));
                ends.iter().for_each(|id| self.add(|| format!("ended {id}")));
            }
            Response::Claimed { tasks, .. } => {
                tasks.iter().for_each(|task| self.add(|| format!("{done} {} under {}", task.id, task.token)));
            }
            Response::Renewed(results) if results.iter().all(Result::is_err) => {}
            _ => self.add(|| id.map_or_else(|| (*done).to_owned(), |id| format!("{done} {id}"))),
        }
    }

    fn add(&mut self, text: impl FnOnce() -> String) {
        self.done.add(text);
    }

    /// Whether something may have come about.
    pub fn has_unknown(&self) -> bool {
        !self.unknown.named.is_empty()
    }

    /// What has come about, for people.
    pub fn done(&self) -> Option<String> {
        self.done.text()
    }

    /// For people, beside a result that they cannot read; none where nothing was changed.
    pub fn text(&self) -> Option<String> {
        let done = self.done().map(|done| format!("it took effect all the same: {done}"));
        let unknown = self.unknown.text().map(|unknown| format!("this may have taken effect: {unknown}"));
        match (done, unknown) {
            (Some(done), Some(unknown)) => Some(format!("{done}; {unknown}")),
            (done, unknown) => done.or(unknown),
        }
    }
}

/// The tasks that a completion brought. Its answer does not name them; a reader sees them.
fn with_children(id: TaskId, children: usize) -> String {
    match children {
        0 => String::new(),
        children => {
            let tasks = super::text::number(children as u64, "task");
            format!(", which enqueued {tasks}: `get {id}` names them")
        }
    }
}
