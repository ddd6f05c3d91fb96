//! Reads of one task: a majority of its replicas is asked, their facts are merged, and the claim of the newest table counts.
//!
//! The newest table of a majority contains every committed operation, so a reader sees every claim that any client was granted.
//!
//! A read that waits for the end of a task does not poll. Once a majority has answered that the task has not ended, its leader is asked
//! to notify of the end, as for tasks that wait for others ([`crate::consensus`]). A notice is only a reason to look again. A
//! slow sweep makes up for lost ones.
//!
//! Some replicas that answer may have lost a part of the task from their disks, and report so. What any of them has is shown. Where none
//! has it, the read waits for the others, as one that is down may have it; then it shows the rest, and what is lost.
//!
//! Read repair: where the answers show that a replica lacks facts, the coordinator names it a replica that has them, and it asks there.
//! The coordinator need not hold the partition, and only replicas of one cohort send each other tasks.

use super::PendingRequest;
use super::group::COHORTS_MAX;
use crate::Node;
use crate::context::signals::Signal;
use crate::event::ClientId;
use crate::retention::purge::{Purger, RESULT_LOST};
use crate::workflow::redrive::Asker;
use norn_model::claim_table::ledger::TransactionKey;
use norn_model::claim_table::table::{ClaimEntry, ClaimState};
use norn_model::cohort::Cohort;
use norn_model::consensus::Hold;
use norn_model::limits::LOSING_RESULTS_BYTES_MAX;
use norn_model::message::{Known, PeerMessage, ReadWrite};
use norn_model::replica::index::Class;
use norn_model::replica::store::classify;
use norn_model::replica::version::version;
use norn_model::ring;
use norn_model::task::{Facts, PastClaim, Slot, Task, Wanted, visible};
use norn_model::viewstamp::{Epoch, ReplicaId, Viewstamp};
use norn_wire::error::{Error, ErrorCode};
use norn_wire::response::{ClaimEnd, ClaimOutcome, ClaimView, Losses, Rejected, TaskView};
use norn_wire::{NodeId, PartitionId, Response, Spec, State, TaskId, Token};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a read waits for before it answers.
#[derive(Debug, Clone, Copy)]
pub enum Until {
    /// Whatever there is.
    Now,
    /// At least this number of log entries: of a claim, or of the latest one.
    Logged(Option<Token>, u32),
    /// The end of the task.
    Ended,
}

/// The requester of a read.
#[derive(Debug, Clone)]
pub enum Reader {
    /// A client, and the number of its request.
    Client(ClientId, u64),
    /// An operator or a leader that wants a copy of the task.
    Redrive(Asker),
    /// A client that purges the task.
    Purge(Purger),
    /// A leader, for the transaction that names the task.
    Transaction(TransactionKey),
    /// A claim under this number that depends on the task.
    Claim(u64),
    /// The leader, before it gives up what is lost of the task.
    LetGo,
}

/// What came of a read for a requester other than a client.
#[derive(Debug)]
pub(crate) enum ReadEnd {
    /// For a copy of the task.
    Redrive { asker: Asker, read: Result<Seen, Error> },
    /// For a purge; with the facts, whether each replica that answered knows of the end.
    Purge { purger: Purger, read: Result<(Seen, bool), Error> },
    /// For a transaction; with the facts, the latest epoch of a replica that answered.
    Transaction { transaction: TransactionKey, read: Result<(Seen, Epoch), Error> },
    /// For a claim.
    Claim { claim: u64, read: Result<Seen, Error> },
    /// For a leader: what no replica has any more.
    LetGo { everywhere: Vec<Slot> },
}

/// A pending read.
#[derive(Debug)]
pub struct PendingRead {
    /// The requester.
    pub reader: Reader,
    /// Task.
    pub id: TaskId,
    until: Until,
    /// Cohorts of the partition heard of, by version.
    cohorts: BTreeMap<Viewstamp, Cohort>,
    answers: BTreeMap<ReplicaId, Known>,
    /// Whether the leader was asked to notify of the end since the replicas were last asked.
    followed: bool,
    /// How long to wait for replicas that have not answered, if those that have answered lost a part of the task.
    lost_until_us: Option<u64>,
    /// Time of giving up.
    pub deadline_us: u64,
}

impl PendingRead {
    /// Whether enough replicas answered at one version. Members that may have lost something do not count, though what they know does.
    /// Next members that may have lost something do count: their answer is enough to show that they do not hold the partition alone yet.
    fn has_quorum(&self) -> bool {
        self.cohorts.values().any(|cohort| {
            let at = |node: NodeId| {
                let of_node =
                    |(replica, known): &(&ReplicaId, &Known)| replica.node == node && known.at == cohort.version;
                self.answers.iter().find(of_node).map(|(_, known)| known)
            };
            cohort.members_quorum(|node| at(node).is_some_and(|known| !known.incomplete))
                && cohort.next_quorum(|node| at(node).is_some())
        })
    }

    /// The latest cohort heard of.
    fn newest(&self) -> &Cohort {
        self.cohorts.last_key_value().expect("it begins with one").1
    }

    /// Whether that is what the read waits for.
    fn is_enough(&self, seen: &Seen) -> bool {
        let task = &seen.task;
        match self.until {
            Until::Now => true,
            Until::Logged(token, length) => {
                let last = task.facts.as_ref().and_then(|facts| facts.updates.last()).map(|((token, _), _)| *token);
                let long = token.or(last).is_some_and(|token| task.visible_length(token) >= length);
                long || length == 0 || task.tombstone.is_some()
            }
            Until::Ended => task.ended().is_some() || !seen.is_known(),
        }
    }

    /// Whether this is a leader that would give up the dead-letter copy of a task which no replica knows.
    fn gives_dead_letter_up(&self, seen: &Seen) -> bool {
        matches!(self.reader, Reader::Redrive(Asker::Leader(_))) && !seen.is_known() && seen.task.tombstone.is_none()
    }

    /// Whether a replica that has not answered may have what the others have lost or never had, and is waited for.
    fn may_find(&mut self, seen: &Seen, now_us: u64, until_us: u64) -> bool {
        if !seen.is_lost() && !self.gives_dead_letter_up(seen) {
            return false;
        }
        let until_us = *self.lost_until_us.get_or_insert(until_us);
        now_us < until_us && self.silent().next().is_some()
    }

    /// The nodes of a cohort that are asked. Before anything is given up, draining replicas are asked as well.
    fn asked_of(&self, cohort: &Cohort) -> Vec<NodeId> {
        match self.reader {
            Reader::LetGo | Reader::Redrive(Asker::Leader(_)) => cohort.nodes().into_iter().collect(),
            _ => cohort.voters(),
        }
    }

    fn has_answered(&self, node: NodeId) -> bool {
        self.answers.keys().any(|replica| replica.node == node)
    }

    /// Replicas that lack a part of a task, each with one that has it.
    pub(crate) fn laggards(&self, task: &Task) -> Vec<(NodeId, NodeId)> {
        let mut whole = self.answers.iter().filter(|(_, known)| known.lost.is_none());
        let complete = whole.find(|(_, known)| known.task == *task).map(|(replica, _)| replica.node);
        let mut found = Vec::new();
        for (laggard, known) in self.answers.iter().filter(|(_, known)| known.task != *task) {
            let differs = self.answers.iter().filter(|(_, other)| other.task != known.task && !other.task.is_bottom());
            let all = differs.map(|(holder, _)| holder.node);
            // Where no replica has everything, each other one has a part of it.
            let holders: Vec<NodeId> = complete.map_or_else(|| all.collect(), |holder| vec![holder]);
            found.extend(holders.into_iter().map(|holder| (laggard.node, holder)));
        }
        found
    }

    /// Nodes of the latest cohort that have not answered.
    fn silent(&self) -> impl Iterator<Item = NodeId> {
        self.asked_of(self.newest()).into_iter().filter(|node| !self.has_answered(*node))
    }
}

/// Facts and claim of a task as several replicas know them.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Facts. Results and log entries that all of them have lost are not in memory.
    pub task: Task,
    /// The claim in the newest table.
    pub entry: Option<ClaimEntry>,
    /// The spec without payload, headers and key, where all of them have lost these.
    pub stub: Option<Arc<Spec>>,
}

impl Seen {
    /// Whether there is such a task, which is not buried.
    pub fn is_known(&self) -> bool {
        self.task.spec.is_some() || self.stub.is_some()
    }

    /// Whether a part of it is lost.
    fn is_lost(&self) -> bool {
        self.stub.is_some() || !self.task.has_blobs()
    }

    /// The task, if no part of it is lost: a claim or a transaction needs all of it.
    fn whole(self) -> Result<Seen, Error> {
        if self.is_lost() { Err(part_lost()) } else { Ok(self) }
    }

    /// The slots of the lost parts.
    fn slots_lost(&self) -> Vec<Slot> {
        let blobs = self.task.blobs().filter(|(_, blob)| blob.here().is_none()).map(|(slot, _)| slot);
        self.stub.iter().map(|_| Slot::Spec).chain(blobs).collect()
    }

    /// The lost parts, as a reader sees them.
    fn losses(&self) -> Option<Losses> {
        let facts = self.task.facts.as_deref();
        let winner = facts.and_then(Facts::winner).map(|(token, _)| *token);
        let is_rejected = |token: Token| facts.is_some_and(|facts| facts.rejected().any(|(other, _)| *other == token));
        let mut losses = Losses { payload: self.stub.is_some(), ..Losses::default() };
        for (slot, _) in self.task.blobs().filter(|(_, blob)| blob.here().is_none()) {
            match slot {
                Slot::Spec => losses.payload = true,
                Slot::Entry(..) => losses.log = true,
                Slot::Result(token) => {
                    losses.result |= winner == Some(token);
                    losses.rejected |= is_rejected(token);
                }
            }
        }
        (losses != Losses::default()).then_some(losses)
    }
}

/// The error of a redrive, a claim or a transaction that needs a part of a task which is lost.
pub(crate) fn part_lost() -> Error {
    let message = "every replica that answered has lost a part of the task; `norn get ID` shows the rest, and `norn cancel ID` and \
                   `norn purge ID` remove it";
    Error::new(ErrorCode::NotFound, message)
}

/// Merges what several replicas know.
pub(crate) fn combine(answers: impl Iterator<Item = Known>) -> Seen {
    let mut seen = Seen::default();
    let mut newest: Option<Viewstamp> = None;
    // As in merges of specs: a spec changed by a transaction takes precedence over the one it changed.
    let rank = |spec: &Arc<Spec>| spec.revision.as_ref().map(|revision| revision.at);
    for known in answers {
        seen.task.merge_told(known.task);
        let stub = known.lost.and_then(|lost| lost.spec);
        seen.stub = seen.stub.into_iter().chain(stub).max_by_key(rank);
        if newest.is_none_or(|newest| known.viewstamp > newest) {
            newest = Some(known.viewstamp);
            seen.entry = known.entry;
        }
    }
    let Seen { task, stub, .. } = &mut seen;
    stub.take_if(|stub| task.tombstone.is_some() || task.spec.as_ref().is_some_and(|spec| rank(spec) >= rank(stub)));
    if stub.is_some() {
        task.spec = None;
    }
    assert!(seen.stub.is_none() || seen.task.spec.is_none(), "a spec is whole and lost");
    seen
}

/// A task as a reader sees it; `None` where no replica knows the task.
pub(crate) fn view(id: TaskId, seen: &Seen, wall_ms: u64) -> Option<TaskView> {
    let lost = seen.losses();
    let known = seen.stub.as_ref().map(|stub| Task { spec: Some(stub.clone()), ..seen.task.clone() });
    let (task, entry) = (known.as_ref().unwrap_or(&seen.task), seen.entry.as_ref());
    let spec = task.spec.as_ref()?;
    let over = entry.is_some_and(|entry| entry.state == ClaimState::Held && wall_ms >= entry.expires_ms);
    let class: Class = classify(task, Hold { entry, lapsed: over, locked: false }, wall_ms);
    let facts = task.facts.as_deref().cloned().unwrap_or_default();
    let ended_ms = task.tombstone().map(|tombstone| tombstone.at_ms);
    let reason = facts.cancel.as_ref().map(|cancel| cancel.reason.clone()).filter(|reason| !reason.is_empty());
    let (dead_ms, dead) =
        entry.and_then(ClaimEntry::death).map(|(_, at_ms, reason)| (at_ms, reason.to_owned())).unzip();
    let next_attempt_ms = match class {
        Class::Delayed(due_ms) => Some(due_ms).filter(|due_ms| *due_ms < Class::NEVER_MS),
        Class::Orphan | Class::Blocked | Class::Ready | Class::Held | Class::Ended(_) => None,
    };
    let state = match class.state()? {
        // Without its payload and its log it cannot be handed to a worker.
        State::Ready if seen.stub.is_some() || task.lacks_entries() => State::Waiting,
        state => state,
    };
    Some(TaskView {
        id,
        state,
        spec: Spec { revision: None, ..spec.as_ref().clone() },
        version: lost.is_none().then(|| version(task, entry)),
        claims: claims(task, &facts, entry, wall_ms),
        updates: visible(task),
        result: facts.winner().and_then(|(_, completed)| completed.result_here()),
        reason: reason.filter(|reason| !is_untrue(reason, lost, facts.winner().is_some())).or(dead),
        log_incomplete: task.log_incomplete() || lost.is_some_and(|lost| lost.log),
        conflict: facts.conflict,
        waits_for: if task.ended().is_some() { Vec::new() } else { task.waits_for(&id) },
        group: task.group_view(),
        redriven: facts.copies().map(|(copy, _)| copy).collect(),
        children: facts
            .completions
            .iter()
            .filter(|(token, _)| !token.is_of_copy())
            .filter_map(|(_, done)| done.children.as_ref())
            .flat_map(|it| &it.ids)
            .copied()
            .collect(),
        children_open: task.has_outbox(),
        ended_ms: ended_ms.or(dead_ms),
        next_attempt_ms,
        lost,
    })
}

/// Whether the reason is the one that a purge gave for a lost result, and is proved wrong: some replica has the result.
fn is_untrue(reason: &str, lost: Option<Losses>, done: bool) -> bool {
    reason == RESULT_LOST && done && !lost.is_some_and(|lost| lost.result)
}

/// How a claim ended, if it has, and as far as that is known.
fn claim_end(
    task: &Task,
    entry: Option<&ClaimEntry>,
    (token, claim): (Token, Option<&PastClaim>),
    wall_ms: u64,
) -> Option<ClaimEnd> {
    let facts = task.facts.as_deref();
    if let Some((_, done)) = facts.and_then(|facts| facts.winner()).filter(|(winner, _)| *winner == token) {
        let before = claim.and_then(|claim| claim.end.as_deref()).and_then(before_done);
        return Some(ClaimEnd { outcome: ClaimOutcome::Done, at_ms: done.at_ms, reason: before });
    }
    if let Some(end) = claim.and_then(|claim| claim.end.as_deref()) {
        return Some(end.clone());
    }
    let completed = facts.and_then(|facts| facts.completions.iter().find(|(other, _)| *other == token));
    let own = entry.filter(|entry| entry.token == token);
    let end = match (own, completed) {
        (Some(entry), _) if task.ended().is_some() => entry.end_with(task),
        (Some(entry), _) if entry.state == ClaimState::Held && wall_ms >= entry.expires_ms => Some(entry.expired()),
        (None, Some((_, done))) if task.ended().is_some() => {
            return Some(ClaimEnd { outcome: ClaimOutcome::Superseded, at_ms: done.at_ms, reason: None });
        }
        _ => None,
    };
    end.map(Arc::unwrap_or_clone)
}

/// What the worker of a completed claim had reported before.
fn before_done(end: &ClaimEnd) -> Option<String> {
    let said = match end.outcome {
        ClaimOutcome::Failed => "before that it was reported as failed",
        ClaimOutcome::Released => "before that it was given back",
        ClaimOutcome::GivenUp => "before that its task was called invalid",
        ClaimOutcome::Done | ClaimOutcome::Expired | ClaimOutcome::Superseded | ClaimOutcome::Other => return None,
    };
    Some(end.reason.as_ref().map_or_else(|| said.to_owned(), |reason| format!("{said}: {reason}")))
}

fn claims(task: &Task, facts: &Facts, entry: Option<&ClaimEntry>, wall_ms: u64) -> Vec<ClaimView> {
    let mut claims: BTreeMap<Token, Option<PastClaim>> = BTreeMap::new();
    // A completion proves a claim whose own record may not have arrived yet.
    let of_claims = facts.completions.iter().filter(|(token, _)| !token.is_of_copy());
    claims.extend(of_claims.map(|(token, _)| (*token, None)));
    claims.extend(facts.claims.iter().cloned().map(|(token, claim)| (token, Some(claim))));
    claims.extend(entry.into_iter().flat_map(ClaimEntry::history).map(|(token, claim)| (token, Some(claim))));
    let completed =
        |token: &Token| facts.completions.iter().find(|(other, _)| other == token).map(|(_, done)| done.at_ms);
    let rejected = |token: &Token| {
        let (_, completed) = facts.rejected().find(|(other, _)| other == token)?;
        Some(Rejected { result: completed.result_here() })
    };
    let mut superseded = superseded(facts);
    claims
        .into_iter()
        .map(|(token, claim)| ClaimView {
            token,
            end: claim_end(task, entry, (token, claim.as_ref()), wall_ms),
            start_ms: claim.as_ref().map_or(0, |claim| claim.start_ms),
            end_ms: claim.as_ref().map(|claim| claim.end_ms),
            completed_ms: completed(&token),
            worker: claim.map_or_else(String::new, |claim| claim.worker),
            rejected: rejected(&token),
            superseded: superseded.remove(&token),
            session: entry.and_then(|entry| session(entry, token)),
        })
        .collect()
}

/// The session with which a held claim ends.
fn session(entry: &ClaimEntry, token: Token) -> Option<TaskId> {
    entry.session.filter(|_| entry.token == token && entry.state == ClaimState::Held)
}

/// Completions that would have won were it not for a later one, of one task: the latest, as far as there is room for their results.
fn superseded(facts: &Facts) -> BTreeMap<Token, Rejected> {
    let winner = facts.winner().map(|(token, _)| *token);
    let loses = |token: Token| !token.needs_seal() && !token.is_of_copy() && Some(token) != winner;
    let mut bytes = 0;
    let losing = facts.completions.iter().rev().filter(|(token, _)| loses(*token));
    let shown = losing.map(|(token, completed)| (*token, Rejected { result: completed.result_here() }));
    let fits = |(_, rejected): &(Token, Rejected)| {
        bytes += rejected.result.as_ref().map_or(0, |result| result.len());
        bytes <= LOSING_RESULTS_BYTES_MAX
    };
    shown.take_while(fits).collect()
}

impl Node {
    pub(crate) fn read(&mut self, client: ClientId, number: u64, id: TaskId, until: Until, timeout_ms: u64) {
        let request_id = self.open_read(Reader::Client(client, number), id, until, timeout_ms);
        if !matches!(until, Until::Now) {
            self.pending_requests.watchers.entry(id).or_default().insert(request_id);
        }
        self.send_reads(request_id);
    }

    /// Reads what there is, for a requester other than a client.
    pub(crate) fn read_for(&mut self, reader: Reader, id: TaskId, timeout_ms: u64) {
        let request_id = self.open_read(reader, id, Until::Now, timeout_ms);
        self.send_reads(request_id);
    }

    fn open_read(&mut self, reader: Reader, id: TaskId, until: Until, timeout_ms: u64) -> u64 {
        let cohort = self.cohort_of(self.partition_of(&id));
        self.pending_requests.open(PendingRequest::Read(PendingRead {
            reader,
            id,
            until,
            cohorts: BTreeMap::from([(cohort.version, cohort)]),
            answers: BTreeMap::new(),
            followed: false,
            lost_until_us: None,
            deadline_us: self.now.mono_after_ms(timeout_ms),
        }))
    }

    /// Asks all replicas (again). Where enough have answered and lost a part of the task, asks only those that have not answered.
    pub(crate) fn send_reads(&mut self, request_id: u64) {
        let Some(PendingRequest::Read(read)) = self.pending_requests.get_mut(request_id) else { return };
        read.followed = false;
        let (id, at) = (read.id, read.newest().version);
        let waits = read.lost_until_us.is_some();
        // The cohort heard of last need not be the current one.
        let mut nodes: BTreeSet<NodeId> = read.cohorts.values().flat_map(|cohort| read.asked_of(cohort)).collect();
        nodes.retain(|node| !waits || !read.has_answered(*node));
        let partition = self.partition_of(&id);
        for node in nodes {
            self.outbox.send(node, ReadWrite::Read { request_id, partition, at, id });
        }
        self.set_request_timer(request_id);
    }

    pub(crate) fn on_read(
        &mut self,
        from: NodeId,
        request_id: u64,
        (partition, at): (PartitionId, Viewstamp),
        id: TaskId,
    ) {
        let Some((mut known, wanted)) = self.known(partition, &id) else { return };
        known.advertised = self.news_for(partition, at);
        let replica = self.partitions[&partition].consensus.me;
        let message =
            PeerMessage::ReadWrite(ReadWrite::Known { request_id, partition, replica, known: Box::new(known) });
        // What a reader sees must not vanish in a power failure.
        self.send_whole(from, message, wanted.into_iter().map(|wanted| (0, wanted)).collect(), true);
    }

    /// What this node's replica knows of a task, and the parts that must be read from disk.
    pub(crate) fn known(&self, partition: PartitionId, id: &TaskId) -> Option<(Known, Vec<Wanted>)> {
        let replica = self.partitions.get(&partition)?;
        let consensus = &replica.consensus;
        let (task, wanted) = replica.store.content(id).unwrap_or_default();
        let known = Known {
            task,
            entry: consensus.claim_entry(id).cloned(),
            viewstamp: consensus.viewstamp,
            at: consensus.cohort.version,
            advertised: None,
            incomplete: !self.speaks_for(partition),
            lost: None,
        };
        Some((known, wanted))
    }

    /// Takes a replica's answer. Returns what the replicas know once the read has what it waits for.
    pub(crate) fn on_known(
        &mut self,
        from: NodeId,
        request_id: u64,
        partition: PartitionId,
        replica: ReplicaId,
        mut known: Known,
    ) -> Option<Seen> {
        let genesis = self.genesis.clone()?;
        known.take_losses();
        let advertised = known
            .advertised
            .take()
            .filter(|advertised| advertised.cohort.is_sound() && advertised.cohort.version == known.at);
        if let Some(advertised) = &advertised {
            self.learn_route(partition, advertised);
        }
        let advertised = advertised.map(|advertised| advertised.cohort);
        let (now_us, lost_until_us) = (self.now.mono_us, self.after_ms(self.config.request_timeout_ms));
        let Some(PendingRequest::Read(read)) = self.pending_requests.get_mut(request_id) else { return None };
        if partition != ring::partition_of_task(&read.id, genesis.partitions) || replica.node != from {
            return None;
        }
        let later = advertised.as_ref().is_some_and(|cohort| cohort.version > read.newest().version);
        if let Some(cohort) = advertised {
            read.cohorts.insert(cohort.version, cohort);
            if read.cohorts.len() > COHORTS_MAX {
                read.cohorts.pop_first();
            }
        }
        assert!(read.cohorts.len() <= COHORTS_MAX, "a read knows too many cohorts");
        if !read.cohorts.get(&known.at).is_some_and(|cohort| cohort.knows_replica(&replica)) {
            return None;
        }
        read.answers.insert(replica, known);
        if !read.has_quorum() {
            if later {
                self.send_reads(request_id);
            }
            return None;
        }
        let until = read.until;
        let seen = combine(read.answers.values().cloned());
        if read.is_enough(&seen) {
            return (!read.may_find(&seen, now_us, lost_until_us)).then_some(seen);
        }
        if matches!(until, Until::Ended) && !std::mem::replace(&mut read.followed, true) {
            self.signals.report(Signal::EndAwaited(request_id));
        }
        None
    }

    /// Ends a read with what the replicas know. A client is answered; of another requester the task and the outcome are returned.
    pub(crate) fn end_read(&mut self, request_id: u64, seen: Seen) -> Option<(TaskId, ReadEnd)> {
        let Some(PendingRequest::Read(read)) = self.close_request(request_id) else { return None };
        let id = read.id;
        let may_be_known = read.gives_dead_letter_up(&seen) && !read.silent().all(|node| self.is_declared_gone(node));
        let end = match read.reader {
            Reader::Client(client, number) => {
                let not_found = || Response::Error(Error::new(ErrorCode::NotFound, "no such task").about(id));
                let view = view(id, &seen, self.now.wall_ms);
                let response = view.map_or_else(not_found, |view| Response::Task(Box::new(view)));
                self.outbox.reply(client, number, response);
                return None;
            }
            Reader::Redrive(asker) if may_be_known => {
                let error = Error::unavailable("a replica that may know the task does not answer");
                ReadEnd::Redrive { asker, read: Err(error) }
            }
            Reader::Redrive(asker) => ReadEnd::Redrive { asker, read: Ok(seen) },
            Reader::Purge(purger) => {
                let all_know = read.answers.values().all(|known| known.task.ended().is_some());
                ReadEnd::Purge { purger, read: Ok((seen, all_know)) }
            }
            Reader::LetGo => {
                // A member that is down may have it, unless an operator declared it gone.
                let all = read.silent().all(|node| self.is_declared_gone(node));
                ReadEnd::LetGo { everywhere: if all { seen.slots_lost() } else { Vec::new() } }
            }
            Reader::Claim(claim) => ReadEnd::Claim { claim, read: seen.whole() },
            Reader::Transaction(transaction) => {
                let epoch = read.answers.values().map(|known| known.viewstamp.epoch).max().unwrap_or(0);
                ReadEnd::Transaction { transaction, read: seen.whole().map(|seen| (seen, epoch)) }
            }
        };
        Some((id, end))
    }

    /// Handles the deadline: a read that waits for an end, or for lost parts, ends with what there is. Other reads say what is missing.
    pub(crate) fn read_deadline(&mut self, request_id: u64) -> Option<(TaskId, ReadEnd)> {
        let Some(PendingRequest::Read(read)) = self.pending_requests.get(request_id) else { return None };
        let (reader, id) = (read.reader.clone(), read.id);
        let majority = read.has_quorum();
        let seen = combine(read.answers.values().cloned());
        if majority && (matches!(read.until, Until::Ended) || read.is_enough(&seen)) {
            return self.end_read(request_id, seen);
        }
        self.close_request(request_id);
        let error = if majority {
            Error::new(ErrorCode::Stale, "the log is not that long yet")
        } else {
            Error::unavailable("too few replicas of the task answered in time")
        };
        let end = match reader {
            Reader::Client(client, number) => {
                self.outbox.reply(client, number, Response::Error(error.about(id)));
                return None;
            }
            Reader::Redrive(asker) => ReadEnd::Redrive { asker, read: Err(error) },
            Reader::Purge(purger) => ReadEnd::Purge { purger, read: Err(error) },
            Reader::Transaction(transaction) => ReadEnd::Transaction { transaction, read: Err(error) },
            Reader::Claim(claim) => ReadEnd::Claim { claim, read: Err(error) },
            Reader::LetGo => ReadEnd::LetGo { everywhere: Vec::new() },
        };
        Some((id, end))
    }
}
