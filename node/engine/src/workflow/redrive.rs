//! Copies of dead tasks: a dead letter in the dead-letter queue of the task's own queue, or a redrive by an operator.
//!
//! Either is a copy of the task, and a task of its own. It stands in the facts of the dead one as a child, under a token that no claim
//! has ([`Token::of_copy`]), and is enqueued like the children of a completion (`children.rs`): sooner or later, once a majority has the
//! fact, and under one id however often it is sent. A client that redrives a task finds the copy as soon as it is answered: its node
//! writes the copy as well. A redrive reads the task at a majority first, and is answered with the existing copy if there is one. So
//! there is one copy, unless two operators ask at the same moment: then each has the copy that it was answered with, and both are shown.
//!
//! **Letters.** That a leader gave a task up is in its table, and the claim stays there until a majority has the dead letter, as facts. So
//! the next leader knows which dead letters it owes. Where it does not know the task it asks all replicas: only if none knows the task, and
//! none is missing, there is nothing to send. The dead letter follows from the table's entry and from the task, so every leader writes the
//! same one. Until it is written the task cannot be redriven. A dead letter brings no dead letters, so that no two queues send each other
//! one task for ever. Where a task dies because a task that it waits for died, the dead letter of that one reports it.

use super::children::is_never_brought;
use crate::Node;
use crate::context::timers::Key;
use crate::effect::Observation;
use crate::event::ClientId;
use crate::write_read::coordinate::Writer;
use crate::write_read::read::{Reader, Seen, part_lost};
use crdts::CvRDT;
use norn_model::claim_table::table::ClaimEntry;
use norn_model::config::mutant;
use norn_model::limits::DEAD_LETTERS_MAX;
use norn_model::task::{Children, Completed, Task};
use norn_wire::error::{Error, ErrorCode};
use norn_wire::group::NAMED_GROUP;
use norn_wire::limits::HEADER_BYTES_MAX;
use norn_wire::response::Acked;
use norn_wire::{Acks, NewTask, PartitionId, QueueName, Response, SESSIONS_QUEUE, Spec, State, TaskId, Token, headers};
use std::collections::BTreeSet;
use xxhash_rust::xxh3::xxh3_128;

/// Time until a leader retries the write of a dead letter.
const AGAIN_MS: u64 = 500;

/// The requester of a copy of a dead task.
#[derive(Debug, Clone)]
pub enum Asker {
    /// An operator.
    Client {
        /// The waiting client...
        client: ClientId,
        /// ...and the number of its request.
        number: u64,
        /// Id of the copy.
        child: TaskId,
        /// Another queue than the task's own.
        queue: Option<QueueName>,
        /// Durability.
        acks: Acks,
        /// Time by which the client is answered, if its copy is recorded.
        until_us: u64,
    },
    /// The leader of this partition, which gave the task up.
    Leader(PartitionId),
}

impl Asker {
    /// Whether a copy is the one that this call names.
    fn wants(&self, copy: TaskId) -> bool {
        matches!(self, Asker::Client { child, .. } if child.with_tag(copy.tag()) == copy)
    }
}

/// A copy on its way.
#[derive(Debug, Clone)]
pub struct Copying {
    /// The requester.
    pub asker: Asker,
    /// The dead task.
    id: TaskId,
    /// The copy.
    child: TaskId,
    /// The copy's content. Absent where a leader hands it over, and where it was handed over before.
    task: Option<Task>,
    /// Set once the copy is in the facts of the dead task.
    recorded: Option<Acked>,
}

/// Dead-letter copies that a leader owes.
#[derive(Debug, Default)]
pub struct DeadLetters {
    /// Letters being written.
    open: BTreeSet<TaskId>,
    /// Letters that a majority has: the claims may be dropped.
    stored: BTreeSet<TaskId>,
}

impl Node {
    /// Starts a client's redrive.
    pub(crate) fn redrive(&mut self, id: TaskId, asker: Asker) {
        let timeout_ms = self.config.request_timeout_ms;
        self.read_for(Reader::Redrive(asker), id, timeout_ms);
    }

    /// Writes the copy, once a majority has been read.
    pub(crate) fn redrive_read(&mut self, id: TaskId, asker: Asker, seen: &Seen) {
        let done = match self.copy(id, &asker, seen) {
            Ok(done) => done,
            Err(error) => return self.not_redriven(id, &asker, error),
        };
        let acks = match &asker {
            Asker::Client { acks, .. } => *acks,
            Asker::Leader(_) => Acks::Quorum,
        };
        let copy = done.children.as_ref().and_then(|children| children.ids.first().copied()).expect("it is a child");
        let open = done.open_children().filter(|_| matches!(asker, Asker::Client { .. }));
        let task = open.and_then(|children| children.tasks().next()).map(|(_, spec)| Task::from_spec(spec));
        let fact = Task::from_completion(Token::of_copy(copy), done);
        let copying = Copying { asker, id, child: copy, task, recorded: None };
        self.write_for(Writer::Redrive(Box::new(copying)), vec![(id, fact)], (acks, true));
    }

    /// The completion that records the copy in the facts of the dead task.
    fn copy(&self, id: TaskId, asker: &Asker, seen: &Seen) -> Result<Completed, Error> {
        let (task, entry) = (&seen.task, seen.entry.as_ref());
        let blind = mutant!(self.config, LettersMinted) && matches!(asker, Asker::Leader(_));
        if !blind && let Some((_, done)) = task.copies().min_by_key(|(copy, _)| (!asker.wants(*copy), *copy)) {
            return Ok(done.clone());
        }
        let Some(spec) = &task.spec else {
            if seen.stub.is_some() {
                // A leader owes the dead letter until an operator lets go of the task.
                let waits = matches!(asker, Asker::Leader(_)) && !task.is_purged();
                return Err(if waits { Error::unavailable("its payload is lost") } else { part_lost() });
            }
            return Err(Error::new(ErrorCode::NotFound, "no such task, or its payload is not kept any more"));
        };
        if spec.queue.as_str() == SESSIONS_QUEUE {
            return Err(Error::invalid(format!(
                "the task is a session of {SESSIONS_QUEUE}, whose end is final: open another one"
            )));
        }
        let death = entry.and_then(ClaimEntry::death);
        match ended(task, entry) {
            // The dead letter that the task may bring comes first.
            Some(State::Dead) if death.is_some() && matches!(asker, Asker::Client { .. }) => {
                return Err(Error::unavailable("the task is just being given up; ask again"));
            }
            Some(State::Dead) => {}
            Some(state) => {
                return Err(Error::new(ErrorCode::Ended, format!("the task is {state}; only a dead one is redriven")));
            }
            None => return Err(Error::new(ErrorCode::Invalid, "the task has not ended; only a dead one is redriven")),
        }
        let (child, spec) = match asker {
            Asker::Client { child, queue, .. } => match self.refuse_future(*child) {
                Some(refusal) => return Err(refusal),
                None => (*child, again(id, spec, queue.as_ref())),
            },
            Asker::Leader(_) if spec.is_dead_letter() => return Err(Error::invalid("a letter brings no letters")),
            Asker::Leader(_) => {
                let (token, at_ms, reason) = death.ok_or_else(|| Error::invalid("it was not given up"))?;
                let queue = self.policy_of(&spec.queue).dead_letter;
                let queue = queue.ok_or_else(|| Error::invalid("its queue has no dead-letter queue any more"))?;
                (self.dead_letter_id(id, token, at_ms), dead_letter(id, spec, queue, reason))
            }
        };
        // Tasks with one key are all in its partition.
        let child = spec.tag().map_or(child, |tag| child.with_tag(tag));
        let children = Children::new(vec![NewTask { id: child, spec }]);
        Ok(Completed { sequence: None, result: None, at_ms: child.time_ms(), children })
    }

    /// The id of a dead letter: the same for every leader that knows of the task's death.
    fn dead_letter_id(&self, id: TaskId, token: Token, at_ms: u64) -> TaskId {
        let again = u64::from(mutant!(self.config, LettersMinted)) * self.now.mono_us;
        let hash = xxh3_128(&rmp_serde::to_vec(&(id, token, again)).expect("it always encodes"));
        let bits = |from: u32, count: u32| (hash >> from) as u64 & ((1 << count) - 1);
        TaskId::new(at_ms, bits(0, 32) as u32, bits(32, 40), bits(72, 24) as u32)
    }

    /// Refuses a copy, for good or for now.
    pub(crate) fn not_redriven(&mut self, id: TaskId, asker: &Asker, error: Error) {
        match asker {
            Asker::Client { client, number, .. } => {
                let about = error.id.unwrap_or(id);
                self.outbox.reply(*client, *number, Response::Error(error.about(about)));
            }
            Asker::Leader(partition) => self.dead_letter_written(*partition, id, Err(error)),
        }
    }

    /// Handles the outcome of a write: of the copy into the facts of the dead task, or of the copy into its own partition.
    pub(crate) fn redriven(&mut self, copying: Copying, result: Result<Acked, Error>) {
        let Copying { ref asker, id, child, .. } = copying;
        let (client, number, acks, until_us) = match asker {
            Asker::Leader(partition) => return self.dead_letter_written(*partition, id, result.map(drop)),
            Asker::Client { client, number, acks, until_us, .. } => (*client, *number, *acks, *until_us),
        };
        let acked = match (result, copying.recorded) {
            (Err(error), None) => return self.not_redriven(id, asker, error),
            // The copy will never exist.
            (Err(error), Some(_)) if is_never_brought(&error) => {
                return self.not_redriven(id, asker, error);
            }
            // Any replica that has the facts of the dead task delivers the copy sooner or later.
            (result, Some(recorded)) => result.unwrap_or(recorded),
            (Ok(recorded), None) => recorded,
        };
        if let Some(task) = copying.task {
            let copying = Copying { task: None, recorded: Some(acked), ..copying };
            // The client waits no longer than for one attempt. A copy that is recorded must not be reported as unknown.
            return self.write_until(Writer::Redrive(Box::new(copying)), vec![(child, task)], (acks, true), until_us);
        }
        self.outbox.reply(client, number, Response::AckedOne(Acked { id: child, ..acked }));
    }

    fn dead_letter_written(&mut self, partition: PartitionId, id: TaskId, result: Result<(), Error>) {
        self.workflow.dead_letters.open.remove(&id);
        if !self.partitions.get(&partition).is_some_and(|replica| replica.consensus.established()) {
            return;
        }
        // The dead letter is no longer owed where the task ended otherwise, where the queue has no dead-letter queue any more, and where no
        // replica knows what the task was. If it could not be written for so long that its id is refused, operators learn of it.
        let again = result.as_ref().is_err_and(Error::passes);
        if result.is_err_and(|error| error.code == ErrorCode::TooOld) {
            self.outbox.observe(Observation::LetterRefused { partition: partition.0, id });
        }
        if !again {
            self.workflow.dead_letters.stored.insert(id);
        }
        self.timers.set_earliest(Key::Drop(partition), self.after_ms(if again { AGAIN_MS } else { 0 }));
    }

    /// Of claims that might be dropped, those that must stay for the dead letters of their tasks. Begins to write these dead letters.
    pub(crate) fn owed_dead_letters(&mut self, partition: PartitionId, ids: &[TaskId]) -> BTreeSet<TaskId> {
        let owed: BTreeSet<TaskId> = ids.iter().copied().filter(|id| self.owes_dead_letter(partition, id)).collect();
        for id in &owed {
            let may = self.workflow.dead_letters.open.len() < DEAD_LETTERS_MAX;
            if may && self.workflow.dead_letters.open.insert(*id) {
                self.redrive(*id, Asker::Leader(partition));
            }
        }
        if mutant!(self.config, LettersForgotten) { BTreeSet::new() } else { owed }
    }

    fn owes_dead_letter(&self, partition: PartitionId, id: &TaskId) -> bool {
        let replica = &self.partitions[&partition];
        let given_up = replica.consensus.claim_entry(id).is_some_and(|entry| entry.death().is_some());
        if !given_up || self.workflow.dead_letters.stored.contains(id) {
            return false;
        }
        match replica.store.task(id).and_then(|task| task.spec.as_ref()) {
            Some(spec) => self.policy_of(&spec.queue).dead_letter.is_some(),
            // The leader does not know the task yet, and asks the replicas.
            None => self.roster.policies.values().any(|policy| policy.dead_letter.is_some()),
        }
    }

    /// Forgets that the dead letters of dropped claims are stored.
    pub(crate) fn forget_dead_letters(&mut self, dropped: &[TaskId]) {
        for id in dropped {
            self.workflow.dead_letters.stored.remove(id);
        }
    }

    /// Forgets stored dead letters of a partition that this node no longer leads.
    pub(crate) fn forget_dead_letters_of(&mut self, partition: PartitionId) {
        let mut stored = std::mem::take(&mut self.workflow.dead_letters.stored);
        stored.retain(|id| self.partition_of(id) != partition);
        self.workflow.dead_letters.stored = stored;
    }
}

/// How a task ended, also where the replicas that answered do not know yet that it was given up.
fn ended(task: &Task, entry: Option<&ClaimEntry>) -> Option<State> {
    let Some(dead) = entry.and_then(ClaimEntry::dead) else { return task.ended() };
    let mut task = task.clone();
    task.merge(Task::from_cancel(dead));
    task.ended()
}

fn again(id: TaskId, spec: &Spec, queue: Option<&QueueName>) -> Spec {
    let queue = queue.unwrap_or(&spec.queue).clone();
    renewed(spec, queue, &[(headers::REDRIVEN_FROM, id.to_string())])
}

fn dead_letter(id: TaskId, spec: &Spec, queue: QueueName, reason: &str) -> Spec {
    let from = spec.queue.as_str().to_owned();
    let told =
        [(headers::DEAD_TASK, id.to_string()), (headers::DEAD_QUEUE, from), (headers::DEAD_REASON, reason.into())];
    renewed(spec, queue, &told)
}

/// A copy that may be claimed at once, with further headers. The copy of a join is no join, and leaves the name of the group to another
/// one.
fn renewed(spec: &Spec, queue: QueueName, told: &[(&str, String)]) -> Spec {
    let mut headers = spec.headers.clone();
    headers.retain(|(name, _)| told.iter().all(|(other, _)| name != other));
    headers.extend(told.iter().map(|(name, value)| {
        let mut value = value.clone();
        value.truncate(value.floor_char_boundary(HEADER_BYTES_MAX - name.len()));
        ((*name).to_owned(), value)
    }));
    let was_join = spec.grouping.as_ref().is_some_and(|grouping| grouping.join.is_some());
    let names_group = |key: &String| was_join && key.starts_with(NAMED_GROUP);
    let key = spec.key.clone().filter(|key| !names_group(key));
    Spec { queue, key, not_before_ms: 0, after: Vec::new(), headers, grouping: None, revision: None, ..spec.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::spec;
    use norn_model::claim_table::table::ClaimState;
    use norn_model::task::{Cancel, GROUP_FAILED};
    use norn_model::viewstamp::Viewstamp;
    use norn_wire::ClaimId;
    use norn_wire::group::{Grouping, Join};

    fn entry(state: ClaimState) -> ClaimEntry {
        ClaimEntry {
            token: Token { epoch: 1, number: 1 },
            renewed: Viewstamp { epoch: 1, length: 1 },
            attempt: 1,
            worker: "w".into(),
            claim: ClaimId(1),
            lease_ms: 1_000,
            granted_ms: 0,
            expires_ms: 1_000,
            state,
            past: Vec::new(),
            session: None,
        }
    }

    /// Goal: the name of a group is free once its join has died, whatever becomes of the join's copies.
    #[test]
    fn a_copy_of_a_join_has_no_group_and_not_its_name() {
        let grouping = |join| Some(Box::new(Grouping { member: None, join }));
        let named = |key: &str, join| Spec { key: Some(key.to_owned()), grouping: grouping(join), ..spec(b"x", 0) };
        let (id, queue) = (TaskId::new(1, 1, 1, 7), QueueName::new("dead").expect("a name"));
        let keys = |spec: &Spec| [again(id, spec, None), dead_letter(id, spec, queue.clone(), "")].map(|copy| copy.key);
        let join = named("group:book-7", Some(Join::default()));
        assert_eq!(keys(&join), [None, None]);
        assert!(again(id, &join, None).grouping.is_none());
        // Other keys are kept: tasks with one key are claimed in turn.
        let kept = |key: &str| [Some(key.to_owned()), Some(key.to_owned())];
        assert_eq!(keys(&named("customer-7", Some(Join::default()))), kept("customer-7"));
        assert_eq!(keys(&named("group:of-its-own", None)), kept("group:of-its-own"));
    }

    /// Goal: the dead letter of a task that its leader gave up is written also where the replicas that answer know only of its group's
    /// failure.
    #[test]
    fn what_its_leader_gave_up_is_dead_unless_a_person_cancelled_it() {
        let dead = entry(ClaimState::Dead { reason: "invalid".into(), at_ms: 1, end: None });
        let word = |reason: &str| Task::from_cancel(Cancel { dead: false, reason: reason.to_owned(), at_ms: 2 });
        assert_eq!(ended(&word(GROUP_FAILED), Some(&dead)), Some(State::Dead));
        assert_eq!(ended(&Task::default(), Some(&dead)), Some(State::Dead));
        assert_eq!(ended(&word("not needed"), Some(&dead)), Some(State::Cancelled));
        for entry in [None, Some(&entry(ClaimState::Held))] {
            assert_eq!(ended(&word(GROUP_FAILED), entry), Some(State::Cancelled));
        }
    }
}
