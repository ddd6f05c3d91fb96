//! Events of a run, as the properties see them, and the state that several properties need.

use crate::adapter::{Call, ReplicaView};
use crate::transactions::queue_of_banks;
use norn_engine::{Observation, Ticket};
use norn_model::claim_table::table::Op;
use norn_model::cohort::Cohort;
use norn_model::record::Record;
use norn_model::schedules::{Operation, Turn};
use norn_model::task::Task;
use norn_model::viewstamp::Viewstamp;
use norn_wire::membership::ClusterChange;
use norn_wire::request::{NewTask, Request, Spec};
use norn_wire::response::{Genesis, Guarantee, Response};
use norn_wire::schedule::Schedule;
use norn_wire::transaction::{Expected, Transaction};
use norn_wire::{ClaimId, Error, NodeId, PartitionId, TaskId, TaskView, Token, headers};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

/// A point of a run: later moments are greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Moment {
    /// True time.
    pub time_us: u64,
    /// Order among events.
    pub sequence: u64,
}

/// A call that has ended.
#[derive(Debug)]
pub struct Finished<'a> {
    pub client: usize,
    pub call: &'a Call,
    /// When the application made the call.
    pub submitted: Moment,
    pub result: &'a Result<Response, Error>,
}

/// All tasks of one replica, and its state.
#[derive(Debug, Clone)]
pub struct Store {
    /// Number of the node.
    pub node: usize,
    pub view: ReplicaView,
    pub tasks: BTreeMap<TaskId, Task>,
    /// Wall clock of the node when all was healed.
    pub wall_ms: u64,
}

/// Conditions of a run that the properties depend on.
#[derive(Debug, Clone, Copy, Default)]
pub struct Terms {
    /// Nodes with a wrong clock must not lead.
    pub fencing: bool,
    /// Tasks are archived before they are buried.
    pub archives: bool,
    /// No retention expires before the run ends, unless time leaps or another retention is set.
    pub retains: bool,
    /// No wall clock jumps.
    pub steady: bool,
    /// Wall clocks may be hours off.
    pub wild: bool,
    /// Monotonic clocks run about as fast as true time.
    pub even: bool,
    /// Disks keep what was synced, and do so about as fast as usual.
    pub sound: bool,
    /// Nothing fails, and nothing moves.
    pub calm: bool,
    /// Every node holds a replica of each partition.
    pub everywhere: bool,
    /// Neither kind of clock is reliable, so leases may overlap.
    pub clockless: bool,
    /// Time after which a node takes another one that it does not hear for out of reach.
    pub silent_us: u64,
}

/// A claim of a task that has not ended, by the table of the partition's leader.
#[derive(Debug, Clone, Copy)]
pub struct Held {
    pub partition: PartitionId,
    pub id: TaskId,
    pub token: Token,
}

/// Result of a periodic look at all claims that are held.
#[derive(Debug, Clone, Copy)]
pub struct Look<'a> {
    /// Something is wrong with nodes or links between them, or was since the last look.
    pub troubled: bool,
    /// Messages are lost, doubled or arbitrarily late.
    pub rough: bool,
    /// When something last went wrong with a client or its connections.
    pub clients_us: &'a BTreeMap<usize, u64>,
    pub held: &'a [Held],
}

/// An event of a run.
#[derive(Debug)]
pub enum Happening<'a> {
    /// The cluster is founded.
    Founded(Terms),
    /// A node's archive has these tasks.
    Archived { tasks: &'a [TaskView] },
    /// A node starts from these records. Records that were not synced may have survived the crash all the same.
    Replayed { node: usize, records: &'a [Record] },
    /// A disk has lost records for good; `left` are those that remain.
    Damaged { node: usize, lost: &'a [Record], left: &'a [Record] },
    /// A disk may have lost anything but these records.
    Spoiled { node: usize, left: &'a [Record] },
    /// A node is gone for good, with all that its disk has.
    Gone { node: usize },
    /// A node starts with this cohort in its table. It may have crashed before it reported the cohort.
    Began { partition: PartitionId, cohort: &'a Cohort },
    /// No event happened for this long.
    Leapt { length_us: u64 },
    /// A node has recovered from its disk and has these tasks.
    Recovered { node: usize, tasks: &'a BTreeMap<TaskId, Task> },
    /// A node crashed; what it had not synced may be lost.
    Crashed { node: usize },
    /// A node pauses for this long, or less.
    Paused { node: usize, length_us: u64 },
    /// A node gave records to its log.
    Appended { node: usize, ticket: Ticket, records: &'a [Record] },
    /// Everything up to the ticket is on disk.
    Synced { node: usize, ticket: Ticket },
    /// A node reports what it did.
    Observed { node: usize, boot: u64, observation: &'a Observation },
    /// A leader reports a grant, and its replica has these entries of the task's log.
    Told { id: TaskId, token: Token, log: &'a [(Token, u32)] },
    /// A node answered a request; the answer is not yet with the client.
    Replied { request: &'a Request, response: &'a Response },
    /// An operator requests a change of the cluster.
    Wished { change: &'a ClusterChange },
    /// An operator's call about the cluster, made at `asked`, is answered.
    Steered { request: &'a Request, asked: Moment, response: &'a Response },
    /// A client put a request on the wire.
    Sent { request: &'a Request },
    /// A client sends a claim to a node. It belongs to one of `calls`, the client's open claim calls, each named by when it was made.
    Claims { client: usize, node: usize, claim: ClaimId, calls: &'a [Moment] },
    /// A client stops waiting for a call.
    GaveUp { call: Moment },
    /// A client is gone, with all its calls.
    Vanished { client: usize },
    /// A node takes a message of another one. A heartbeat has a number, behind the sender's start counter, and says whether the sender
    /// hears this node.
    Heard { node: usize, from: usize, report: Option<((u64, u64), bool)> },
    /// The simulator looks at all claims that are held.
    Looked(&'a Look<'a>),
    /// A client's call has ended.
    Finished(Finished<'a>),
    /// A worker believes to hold a task from now until `until_us`, in true time. Repeated when that time is extended.
    Holds { client: usize, id: TaskId, token: Token, until_us: u64 },
    /// A worker has stopped working on a task.
    Stops { client: usize, id: TaskId, token: Token },
    /// State of a replica after a step.
    Replica { node: usize, view: &'a ReplicaView },
    /// Everything is quiet after healing. All replicas.
    Settled { stores: &'a [Store] },
}

/// Hash of what identifies a task: all of its spec but what transactions change.
pub fn spec_hash(spec: &Spec) -> u64 {
    xxh3_64(format!("{:?}", unchanging(spec)).as_bytes())
}

/// Suffix of the names of queues whose tasks a script changes by transactions.
const CHANGED: &str = "/changed";

/// A spec without what transactions change.
pub fn unchanging(spec: &Spec) -> Spec {
    let changes = spec.queue == queue_of_banks() || spec.queue.as_str().ends_with(CHANGED);
    let (payload, priority) = if changes { (Vec::new(), 0) } else { (spec.payload.clone(), spec.priority) };
    Spec { payload, priority, revision: None, ..spec.clone() }
}

/// A fact that a replica can know of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fact {
    /// Its spec, by hash.
    Spec(u64),
    /// A log entry.
    Update(Token, u32),
    /// A completion.
    Completion(Token),
    /// A cancellation, or the decision that it is dead.
    Cancel,
    /// The number of members of the group that the task joins.
    Total(u32),
    /// Nothing of the task is to be kept.
    Purge,
    /// The task has ended, and nothing else of it is kept.
    Tombstone,
}

/// All facts in `task`.
pub fn facts_of(task: &Task) -> Vec<Fact> {
    let mut facts: Vec<Fact> = task.spec.iter().map(|spec| Fact::Spec(spec_hash(spec))).collect();
    if let Some(later) = &task.facts {
        facts.extend(later.updates.iter().map(|((token, sequence), _)| Fact::Update(*token, *sequence)));
        facts.extend(later.completions.iter().map(|(token, _)| Fact::Completion(*token)));
        facts.extend(later.cancel.iter().map(|_| Fact::Cancel));
        facts.extend(later.group.iter().filter_map(|group| group.total).map(Fact::Total));
        facts.extend(later.purged.then_some(Fact::Purge));
    }
    facts.extend(task.tombstone.iter().map(|_| Fact::Tombstone));
    facts
}

/// Facts that a request writes, item by item. Empty for requests that write none.
pub fn writes_of(request: &Request) -> Vec<(TaskId, Fact)> {
    match request {
        Request::Enqueue { tasks, .. } => {
            tasks.iter().map(|task| (task.id, Fact::Spec(spec_hash(&task.spec)))).collect()
        }
        Request::EnqueueUnique { task } => vec![(task.id, Fact::Spec(spec_hash(&task.spec)))],
        Request::Update { id, token, sequence, .. } => vec![(*id, Fact::Update(*token, *sequence))],
        Request::Complete { items, .. } => items.iter().map(|item| (item.id, Fact::Completion(item.token))).collect(),
        Request::Cancel { id, .. } => vec![(*id, Fact::Cancel)],
        Request::CloseGroup { id, total, .. } => vec![(*id, Fact::Total(*total))],
        Request::Transact(transaction) => writes_of_transaction(transaction),
        Request::Redrive { id, child, .. } => vec![(*id, Fact::Completion(Token::of_copy(*child)))],
        Request::Purge { id, .. } => vec![(*id, Fact::Purge)],
        _ => Vec::new(),
    }
}

/// Facts of what a transaction adds and ends.
fn writes_of_transaction(transaction: &Transaction) -> Vec<(TaskId, Fact)> {
    let adds = transaction.adds.iter().map(|add| (add.id, Fact::Spec(spec_hash(&add.spec))));
    let ends = transaction.deletes.iter().map(|delete| match delete.expected {
        Expected::Token(token) => (delete.id, Fact::Completion(token)),
        Expected::Present | Expected::Version(_) => (delete.id, Fact::Cancel),
    });
    adds.chain(ends).collect()
}

/// Acknowledged items of an answer, with their places in the request.
pub fn acks_of(response: &Response) -> Vec<(usize, norn_wire::Acked)> {
    match response {
        Response::Acked(items) => items
            .iter()
            .enumerate()
            .filter_map(|(place, item)| item.as_ref().ok().map(|acked| (place, *acked)))
            .collect(),
        Response::AckedOne(acked) | Response::AckedUnique { acked, .. } => vec![(0, *acked)],
        _ => Vec::new(),
    }
}

/// State that several properties need. It takes in every event before the properties see it.
#[derive(Debug, Default)]
pub struct History {
    genesis: Option<Genesis>,
    /// Nodes whose disks were harmed.
    harmed: BTreeSet<usize>,
    /// Latest cohort of each partition that a leader knew to be committed.
    committed: BTreeMap<PartitionId, Cohort>,
    /// Cohorts from the committed one on, by version.
    seen: BTreeMap<PartitionId, BTreeMap<Viewstamp, Cohort>>,
    places: BTreeMap<NodeId, usize>,
    /// Cohort slots that a node was given after genesis.
    slots_taken: BTreeSet<(usize, PartitionId)>,
    /// Every task that was ever put on the wire.
    pub specs: BTreeMap<TaskId, Spec>,
    /// Payloads that transactions may have given a task.
    pub changed: BTreeMap<TaskId, BTreeSet<Vec<u8>>>,
    /// Sessions under which a task was granted, by task.
    pub sessions: BTreeMap<TaskId, BTreeSet<TaskId>>,
    /// Joins of groups that completions of a task bring, by task.
    pub joins: BTreeMap<TaskId, BTreeSet<TaskId>>,
    /// Facts that a client has a strict acknowledgement of, and since when.
    pub strict: BTreeMap<(TaskId, Fact), Moment>,
    /// Facts that a client has a sloppy acknowledgement of: as many disks as it named have had them.
    pub sloppy: BTreeSet<(TaskId, Fact)>,
    /// Tasks that some node has replaced by their tombstones.
    pub buried: BTreeSet<TaskId>,
    /// Schedules as leaders have set them, by number and epoch.
    schedules: BTreeMap<u32, BTreeMap<u64, (String, Arc<Schedule>)>>,
    /// Tasks of schedules as leaders have decided them, by number, ordinal and epoch.
    firings: BTreeMap<(u32, u32), BTreeMap<u64, TaskId>>,
}

impl History {
    /// Takes in the founding record.
    pub fn found(&mut self, genesis: Genesis) {
        self.genesis = Some(genesis);
    }

    /// Notes the number of a node.
    pub fn place(&mut self, node: NodeId, place: usize) {
        self.places.insert(node, place);
    }

    /// Partition of a task.
    pub fn partition(&self, id: &TaskId) -> PartitionId {
        let partitions = self.genesis.as_ref().map_or(1, |genesis| genesis.partitions);
        crate::adapter::ring::partition_of(id.tag(), partitions)
    }

    /// Numbers of the nodes that are members of a partition, by the last cohort known to be committed.
    pub fn cohort(&self, partition: PartitionId) -> Vec<usize> {
        self.committed(partition).members().map(|node| self.places[&node]).collect()
    }

    fn committed(&self, partition: PartitionId) -> Cohort {
        let Some(genesis) = &self.genesis else { return Cohort::default() };
        match self.committed.get(&partition) {
            Some(cohort) => cohort.clone(),
            None => Cohort::founded(&norn_model::metadata::cohort(genesis, partition)),
        }
    }

    /// Whether the nodes that have something are a majority of the members of the last cohort known to be committed, or a quorum of a
    /// later one that may be committed already.
    pub fn is_safe(&self, partition: PartitionId, has: impl Fn(usize) -> bool) -> bool {
        let has = |node: NodeId| has(self.places[&node]);
        let committed = self.committed(partition);
        let later = self.seen.get(&partition).into_iter().flat_map(|seen| seen.range(committed.version..));
        let mut later = later.map(|(_, cohort)| cohort);
        committed.members_quorum(has) || later.any(|cohort| cohort.quorum(has))
    }

    /// Whether a node has ever held a partition.
    pub fn had_slot(&self, node: usize, partition: PartitionId) -> bool {
        let Some(genesis) = &self.genesis else { return false };
        let founders = norn_model::metadata::cohort(genesis, partition);
        self.slots_taken.contains(&(node, partition))
            || founders.iter().any(|replica| self.places[&replica.node] == node)
    }

    /// Whether a node is a member of a partition, or may be one.
    pub fn may_hold(&self, partition: PartitionId, node: usize) -> bool {
        let later = self.seen.get(&partition).into_iter().flat_map(BTreeMap::values).cloned();
        let mut cohorts = later.chain([self.committed(partition)]);
        cohorts.any(|cohort| cohort.nodes().iter().any(|member| self.places[member] == node))
    }

    /// Number of members of the last cohort known to be committed.
    pub fn members(&self, partition: PartitionId) -> usize {
        self.committed(partition).members().count()
    }

    /// Whether the nodes that are there are a quorum of every cohort that may be the committed one.
    pub fn has_quorum(&self, partition: PartitionId, there: impl Fn(usize) -> bool) -> bool {
        let there = |node: NodeId| there(self.places[&node]);
        let later = self.seen.get(&partition).into_iter().flat_map(BTreeMap::values);
        self.committed(partition).quorum(there) && later.into_iter().all(|cohort| cohort.quorum(there))
    }

    /// Number of nodes that founded the cluster.
    pub fn founders(&self) -> usize {
        self.genesis.as_ref().map_or(0, |genesis| genesis.members.len())
    }

    /// Whether a node's disk has ever lost anything that it should have kept.
    pub fn is_harmed(&self, node: usize) -> bool {
        self.harmed.contains(&node)
    }

    fn note_cohort(&mut self, partition: u16, cohort: &Cohort, committed: bool) {
        let partition = PartitionId(partition);
        let seen = self.seen.entry(partition).or_default();
        seen.insert(cohort.version, cohort.clone());
        if committed && self.committed.get(&partition).is_none_or(|before| cohort.version > before.version) {
            *seen = seen.split_off(&cohort.version);
            self.committed.insert(partition, cohort.clone());
        }
    }

    /// Takes in an event. An error is a client that sends other content again, or a copy that differs from its original.
    pub fn see(&mut self, moment: Moment, happening: &Happening<'_>) -> Result<(), String> {
        match happening {
            Happening::Sent { request: Request::Enqueue { tasks, .. } } => {
                tasks.iter().try_for_each(|task| self.note_sent(task))?;
            }
            Happening::Sent { request: Request::EnqueueUnique { task } } => self.note_sent(task)?,
            Happening::Sent { request: Request::Transact(transaction) } => {
                transaction.adds.iter().try_for_each(|add| self.note_sent(add))?;
                for change in &transaction.changes {
                    let payload = change.payload.iter().map(|payload| payload.to_vec());
                    self.changed.entry(change.id).or_default().extend(payload);
                }
            }
            // The facts are safe already, although the client has no answer yet.
            Happening::Replied { request: Request::Transact(transaction), response: Response::Transacted(Ok(_)) } => {
                for (id, fact) in writes_of_transaction(transaction) {
                    self.strict.entry((id, fact)).or_insert(moment);
                }
            }
            Happening::Sent { request: Request::Complete { items, .. } } => {
                for (parent, task) in items.iter().flat_map(|item| item.children.iter().map(|child| (item.id, child))) {
                    if task.spec.grouping.as_ref().is_some_and(|grouping| grouping.join.is_some()) {
                        self.joins.entry(parent).or_default().insert(task.id);
                    }
                    let before = self.specs.entry(task.id).or_insert_with(|| task.spec.clone());
                    if *before != task.spec {
                        return Err(format!("child {} was sent again with other content", task.id));
                    }
                }
            }
            Happening::Finished(Finished { call, result: Ok(response), .. }) => {
                for (id, fact) in self.acknowledged(call, response, Guarantee::Strict) {
                    self.strict.entry((id, fact)).or_insert(moment);
                }
                let sloppy = self.acknowledged(call, response, Guarantee::Sloppy);
                self.sloppy.extend(sloppy);
            }
            Happening::Observed { node, observation: Observation::SlotTaken { partition }, .. } => {
                self.slots_taken.insert((*node, PartitionId(*partition)));
            }
            Happening::Observed { observation: Observation::CohortChanged { partition, cohort }, .. } => {
                self.note_cohort(*partition, cohort, false);
            }
            Happening::Began { partition, cohort } if cohort.version > self.committed(*partition).version => {
                self.note_cohort(partition.0, cohort, false);
            }
            Happening::Damaged { node, .. } | Happening::Spoiled { node, .. } => {
                self.harmed.insert(*node);
            }
            Happening::Observed { observation: Observation::CohortCommitted { partition, cohort }, .. } => {
                self.note_cohort(*partition, cohort, true);
            }
            Happening::Appended { records, .. } => {
                for record in *records {
                    match record {
                        Record::Facts { items, .. } => {
                            items.iter().try_for_each(|(id, task)| self.note_copy(*id, task))?;
                            self.buried
                                .extend(items.iter().filter(|(_, task)| task.tombstone.is_some()).map(|(id, _)| *id));
                        }
                        Record::Ops { after, ops, .. } => {
                            ops.iter().for_each(|op| self.note_schedules(moment, after.epoch, op));
                            ops.iter().for_each(|op| self.note_session(op));
                        }
                        _ => {}
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn note_sent(&mut self, task: &NewTask) -> Result<(), String> {
        let before = self.specs.entry(task.id).or_insert_with(|| task.spec.clone());
        if *before == task.spec { Ok(()) } else { Err(format!("task {} was sent again with other content", task.id)) }
    }

    /// Takes in a copy of a dead task. No client sent it.
    fn note_copy(&mut self, id: TaskId, task: &Task) -> Result<(), String> {
        let Some(spec) = task.spec.as_ref().filter(|_| !self.specs.contains_key(&id)) else { return Ok(()) };
        let named = [headers::REDRIVEN_FROM, headers::DEAD_TASK].into_iter().find_map(|name| spec.header(name));
        let Some(original) = named.and_then(|text| self.specs.get(&text.parse().ok()?)) else { return Ok(()) };
        let id_of = named.and_then(|text| text.parse::<TaskId>().ok());
        let changed = id_of.and_then(|original| self.changed.get(&original));
        let is_payload = original.payload == spec.payload || changed.is_some_and(|all| all.contains(&spec.payload));
        let is_copied = is_payload && (original.priority, original.attempts_max) == (spec.priority, spec.attempts_max);
        if !is_copied {
            return Err(format!("{id} is no copy of the task that it names"));
        }
        self.specs.insert(id, (**spec).clone());
        Ok(())
    }

    fn note_session(&mut self, op: &Op) {
        if let Op::Grant { items, session: Some(session), .. } = op {
            for (id, _) in items {
                self.sessions.entry(*id).or_default().insert(*session);
            }
        }
    }

    /// Number of nodes.
    pub fn places(&self) -> usize {
        self.places.len()
    }

    /// Takes in what leaders of the root decide about schedules. What they write down as enqueued counts as acknowledged.
    fn note_schedules(&mut self, moment: Moment, epoch: u64, op: &Op) {
        let Op::Schedules(operation) = op else { return };
        match operation {
            Operation::Set { name, number, schedule, .. } => {
                self.schedules.entry(*number).or_default().insert(epoch, (name.clone(), schedule.clone()));
            }
            Operation::Turns(turns) => turns.iter().for_each(|turn| self.note_turn(moment, epoch, turn)),
            Operation::Remove { .. } | Operation::Pause { .. } => {}
        }
    }

    fn note_turn(&mut self, moment: Moment, epoch: u64, turn: &Turn) {
        let Some((name, schedule)) = self.schedule(turn.number, epoch).cloned() else { return };
        for firing in turn.firings() {
            let id = firing.id(turn.number);
            self.specs.entry(id).or_insert_with(|| firing.spec(&name, &schedule));
            self.firings.entry((turn.number, firing.ordinal)).or_default().insert(epoch, id);
        }
        for ordinal in &turn.fired {
            if let Some(id) = self.firing((turn.number, *ordinal), epoch) {
                let fact = Fact::Spec(spec_hash(&self.specs[&id]));
                self.strict.entry((id, fact)).or_insert(moment);
            }
        }
    }

    /// Task of a schedule's firing, as the leader of `epoch` decided it, or the last leader before that whose decision it knows.
    pub fn firing(&self, firing: (u32, u32), epoch: u64) -> Option<TaskId> {
        self.firings.get(&firing)?.range(..=epoch).next_back().map(|(_, id)| *id)
    }

    /// A schedule by its number, as the leader of an epoch knows it.
    pub fn schedule(&self, number: u32, epoch: u64) -> Option<&(String, Arc<Schedule>)> {
        self.schedules.get(&number)?.range(..=epoch).next_back().map(|(_, set)| set)
    }

    /// Facts that an answer acknowledges with this guarantee.
    fn acknowledged(&self, call: &Call, response: &Response, guarantee: Guarantee) -> Vec<(TaskId, Fact)> {
        let acked = acks_of(response).into_iter().filter(|(_, acked)| acked.guarantee == guarantee);
        match call {
            Call::Enqueue { .. } | Call::EnqueueUnique { .. } => acked
                .filter_map(|(_, acked)| self.specs.get(&acked.id).map(|spec| (acked.id, Fact::Spec(spec_hash(spec)))))
                .collect(),
            Call::Transact { .. } | Call::LendIds { .. } => Vec::new(),
            Call::Complete { items, .. } => acked
                .filter_map(|(place, _)| items.get(place))
                .map(|item| (item.completion.id, Fact::Completion(item.completion.token)))
                .collect(),
            // The answer names the copy that exists.
            Call::Redrive { id, .. } | Call::Request(Request::Redrive { id, .. }) => {
                acked.map(|(_, acked)| (*id, Fact::Completion(Token::of_copy(acked.id)))).collect()
            }
            Call::Request(request) => {
                let writes = writes_of(request);
                acked.filter_map(|(place, _)| writes.get(place).copied()).collect()
            }
        }
    }

    /// Whether a strict acknowledgement says that the task exists.
    pub fn is_enqueued(&self, id: &TaskId) -> bool {
        self.strict.range((*id, Fact::Spec(0))..=(*id, Fact::Spec(u64::MAX))).next().is_some()
    }

    /// When a strict acknowledgement first said that the task has ended.
    pub fn ended(&self, id: &TaskId) -> Option<Moment> {
        let low = (*id, Fact::Completion(Token::default()));
        self.strict.range(low..=(*id, Fact::Cancel)).map(|(_, moment)| *moment).min()
    }
}
