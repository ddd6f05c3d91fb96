//! What a command has changed so far. It is printed if the result cannot be written: acknowledged changes remain, and repeating the
//! command would make them twice.

use super::Call;
use norn_wire::{Error, ErrorCode, Request, Response, TaskId};

/// Most items named; the others are counted.
const NAMED_MAX: usize = 8;

const CLAIMED: &str = "claimed";

/// Change that a call makes if it is acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Effect {
    /// Past participle before the id.
    done: &'static str,
    /// Task of the call, if its answer names none.
    id: Option<TaskId>,
    /// For a transaction: how many of the tasks in its answer are new.
    adds: usize,
    /// For a transaction: tasks that it ends, which its answer does not name.
    ends: Vec<TaskId>,
    /// For completions: number of children of each, which its answer does not name.
    children: Vec<usize>,
}

/// Acknowledged and possible changes of one command.
#[derive(Debug, Default)]
pub(super) struct Effects {
    /// Calls that have no answer yet, and may take effect even if abandoned.
    open: usize,
    done: Named,
    /// Changes that may have taken effect.
    unknown: Named,
}

/// Some changes in words, and the number of the others.
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
    /// Whether the change may happen after the call is abandoned. A claim's does not: its grants are given back.
    fn outlives_the_call(&self) -> bool {
        self.done != CLAIMED
    }

    /// Returns the effect of a call; `None` if it only reads.
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
            Call::LendIds { .. } => None,
            Call::Request(request) => match request {
                Request::Enqueue { .. } | Request::EnqueueUnique { .. } => effect("stored", None),
                // The verbs leave the ids to the session, with the call above.
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
    /// Records that a call is made.
    pub fn ask(&mut self, effect: &Effect) {
        self.open += usize::from(effect.outlives_the_call());
    }

    /// Records that it was answered.
    pub fn answered(&mut self, effect: &Effect) {
        self.open -= usize::from(effect.outlives_the_call());
    }

    /// Whether a call that may take effect was made and not answered.
    pub fn any_open(&self) -> bool {
        self.open > 0
    }

    /// Records what an answer acknowledges, or leaves unknown.
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

    /// Whether changes may have taken effect.
    pub fn has_unknown(&self) -> bool {
        !self.unknown.named.is_empty()
    }

    /// Returns the acknowledged changes, for people.
    pub fn done(&self) -> Option<String> {
        self.done.text()
    }

    /// Returns the changes for people, for when the result cannot be shown; `None` if nothing was changed.
    pub fn text(&self) -> Option<String> {
        let done = self.done().map(|done| format!("it took effect all the same: {done}"));
        let unknown = self.unknown.text().map(|unknown| format!("this may have taken effect: {unknown}"));
        match (done, unknown) {
            (Some(done), Some(unknown)) => Some(format!("{done}; {unknown}")),
            (done, unknown) => done.or(unknown),
        }
    }
}

/// Adds the number of children to a completed task. The answer does not name them; a read of the task does.
fn with_children(id: TaskId, children: usize) -> String {
    match children {
        0 => String::new(),
        children => {
            let tasks = super::text::number(children as u64, "task");
            format!(", which enqueued {tasks}: `get {id}` names them")
        }
    }
}
