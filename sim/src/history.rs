//! What happened, as the properties see it, and the state that several of them need.

use crate::adapter::{Call, ReplicaView};
use crate::transactions::queue_of_banks;
use norn_node::protocol::consistent::Viewstamp;
use norn_node::protocol::consistent::cohort::Cohort;
use norn_node::protocol::consistent::table::Op;
use norn_node::protocol::record::Record;
use norn_node::protocol::schedules::{Operation, Turn};
use norn_node::protocol::task::Task;
use norn_node::protocol::{Observation, Ticket};
use norn_wire::membership::ClusterChange;
use norn_wire::request::{Acks, NewTask, Request, Spec};
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
    /// Client.
    pub client: usize,
    /// What was asked.
    pub call: &'a Call,
    /// When the application asked.
    pub submitted: Moment,
    /// The answer.
    pub result: &'a Result<Response, Error>,
}

/// All tasks of one replica, and its state.
#[derive(Debug, Clone)]
pub struct Store {
    /// Place of the node.
    pub node: usize,
    /// State.
    pub view: ReplicaView,
    /// Tasks.
    pub tasks: BTreeMap<TaskId, Task>,
    /// Wall clock of the node when all was healed.
    pub wall_ms: u64,
}

/// What a run is like, as far as what must hold depends on it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Terms {
    /// Nodes with a wrong clock must not lead.
    pub fencing: bool,
    /// Tasks are archived before they are buried.
    pub archives: bool,
    /// No retention is over before the run is, unless time leaps or somebody sets another one.
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
    /// Neither kind of clock can be relied on, so that leases may overlap.
    pub clockless: bool,
}

/// A claim of a task that has not ended, by the table of who leads its partition.
#[derive(Debug, Clone, Copy)]
pub struct Held {
    /// Partition.
    pub partition: PartitionId,
    /// Task.
    pub id: TaskId,
    /// Token.
    pub token: Token,
}

/// What a look at all that is held shows.
#[derive(Debug, Clone, Copy)]
pub struct Look<'a> {
    /// Something is wrong with nodes or links between them, or was since the last look.
    pub troubled: bool,
    /// Messages are lost, doubled or late at any time.
    pub rough: bool,
    /// When something last went wrong with a client or its connections.
    pub clients_us: &'a BTreeMap<usize, u64>,
    /// Claims.
    pub held: &'a [Held],
}

/// Something that happened.
#[derive(Debug)]
pub enum Happening<'a> {
    /// The founding record is settled.
    Founded(Terms),
    /// A node's archive has these tasks.
    Archived { tasks: &'a [TaskView] },
    /// A node starts from these records. What was not synced may have come through the crash all the same.
    Replayed { node: usize, records: &'a [Record] },
    /// A disk has lost these records for good, and these are left.
    Damaged { node: usize, lost: &'a [Record], left: &'a [Record] },
    /// A disk may have lost anything but these records.
    Spoiled { node: usize, left: &'a [Record] },
    /// A node is gone for good, with all that its disk has.
    Gone { node: usize },
    /// A node starts with this cohort in its table, of which it need not have told before it crashed.
    Began { partition: PartitionId, cohort: &'a Cohort },
    /// Nothing has happened for so long.
    Leapt { length_us: u64 },
    /// A node has recovered from its disk and has these tasks.
    Recovered { node: usize, tasks: &'a BTreeMap<TaskId, Task> },
    /// A node crashed; what it had not synced may be lost.
    Crashed { node: usize },
    /// A node does nothing for so long, or less.
    Paused { node: usize, length_us: u64 },
    /// A node gave records to its log.
    Appended { node: usize, ticket: Ticket, records: &'a [Record] },
    /// Everything up to the ticket is on disk.
    Synced { node: usize, ticket: Ticket },
    /// A node says what it did.
    Observed { node: usize, boot: u64, observation: &'a Observation },
    /// A leader's node tells of a grant, and its replica has these entries of the log.
    Told { id: TaskId, token: Token, log: &'a [(Token, u32)] },
    /// A node answered a request; the answer is not yet with the client.
    Replied { request: &'a Request, response: &'a Response },
    /// An operator wishes a change of the cluster.
    Wished { change: &'a ClusterChange },
    /// An operator's call about the cluster, made at that moment, is answered.
    Steered { request: &'a Request, asked: Moment, response: &'a Response },
    /// A client put a request on the wire.
    Sent { request: &'a Request },
    /// A client sends a claim to a node. The calls for work, by when they were made, for one of which it may be.
    Claims { client: usize, node: usize, claim: ClaimId, calls: &'a [Moment] },
    /// A client does not wait for a call any more.
    GaveUp { call: Moment },
    /// A client is gone, with all its calls.
    Vanished { client: usize },
    /// Somebody looks at all that is held.
    Looked(&'a Look<'a>),
    /// A client has its answer.
    Finished(Finished<'a>),
    /// A worker believes to hold a task from now on until then, in true time. Also said when it believes so for longer.
    Holds { client: usize, id: TaskId, token: Token, until_us: u64 },
    /// A worker has stopped working on a task.
    Stops { client: usize, id: TaskId, token: Token },
    /// State of a replica after a step.
    Replica { node: usize, view: &'a ReplicaView },
    /// After healing, everything is quiet. All replicas.
    Settled { stores: &'a [Store] },
}

/// What tells a task from others: all of it, but for what transactions change.
pub fn spec_hash(spec: &Spec) -> u64 {
    xxh3_64(format!("{:?}", unchanging(spec)).as_bytes())
}

/// How the names of queues end in whose tasks somebody outside of the world has transactions change.
const CHANGED: &str = "/changed";

/// A task without what transactions change.
pub fn unchanging(spec: &Spec) -> Spec {
    let changes = spec.queue == queue_of_banks() || spec.queue.as_str().ends_with(CHANGED);
    let (payload, priority) = if changes { (Vec::new(), 0) } else { (spec.payload.clone(), spec.priority) };
    Spec { payload, priority, revision: None, ..spec.clone() }
}

/// One thing that a replica can know of a task.
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
    /// How many members the group has that it comes behind.
    Total(u32),
    /// That nothing of it is to be kept.
    Purge,
    /// That it ended, and that nothing else of it is kept.
    Tomb,
}

/// Everything that `task` says.
pub fn facts_of(task: &Task) -> Vec<Fact> {
    let mut facts: Vec<Fact> = task.spec.iter().map(|spec| Fact::Spec(spec_hash(spec))).collect();
    if let Some(later) = &task.facts {
        facts.extend(later.updates.iter().map(|((token, sequence), _)| Fact::Update(*token, *sequence)));
        facts.extend(later.completions.iter().map(|(token, _)| Fact::Completion(*token)));
        facts.extend(later.cancel.iter().map(|_| Fact::Cancel));
        facts.extend(later.group.iter().filter_map(|group| group.total).map(Fact::Total));
        facts.extend(later.purged.then_some(Fact::Purge));
    }
    facts.extend(task.tomb.iter().map(|_| Fact::Tomb));
    facts
}

/// The write in a request, item by item; empty for what is no write of facts.
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

/// What a transaction adds, and what it ends.
fn writes_of_transaction(transaction: &Transaction) -> Vec<(TaskId, Fact)> {
    let adds = transaction.adds.iter().map(|add| (add.id, Fact::Spec(spec_hash(&add.spec))));
    let ends = transaction.deletes.iter().map(|delete| match delete.expected {
        Expected::Token(token) => (delete.id, Fact::Completion(token)),
        Expected::Present | Expected::Version(_) => (delete.id, Fact::Cancel),
    });
    adds.chain(ends).collect()
}

/// The items of an answer that say yes: place in the request, acknowledgement.
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

/// State that several properties need. It takes part in every happening before the properties see it.
#[derive(Debug, Default)]
pub struct History {
    genesis: Option<Genesis>,
    /// Nodes whose disks were harmed.
    harmed: BTreeSet<usize>,
    /// The latest that a leader knew to be committed.
    committed: BTreeMap<PartitionId, Cohort>,
    /// Those from there on, by version.
    seen: BTreeMap<PartitionId, BTreeMap<Viewstamp, Cohort>>,
    places: BTreeMap<NodeId, usize>,
    /// Who was given a seat that it did not have at genesis.
    seated: BTreeSet<(usize, PartitionId)>,
    /// Every task that was ever put on the wire.
    pub specs: BTreeMap<TaskId, Spec>,
    /// Payloads that transactions may have given a task.
    pub changed: BTreeMap<TaskId, BTreeSet<Vec<u8>>>,
    /// Sessions under which a task was granted, by task.
    pub sessions: BTreeMap<TaskId, BTreeSet<TaskId>>,
    /// Joins of groups that completions of a task bring, by task.
    pub joins: BTreeMap<TaskId, BTreeSet<TaskId>>,
    /// Facts that a client was told to be safe, and when.
    pub strict: BTreeMap<(TaskId, Fact), Moment>,
    /// Facts that a client was told to be on some disk, of which as many as were named have had them.
    pub sloppy: BTreeSet<(TaskId, Fact)>,
    /// Tasks whose retention was over, somewhere.
    pub buried: BTreeSet<TaskId>,
    /// Schedules by their numbers, as leaders have set them, by epoch.
    schedules: BTreeMap<u32, BTreeMap<u64, (String, Arc<Schedule>)>>,
    /// Tasks of schedules by number and ordinal, as leaders have decided them, by epoch.
    firings: BTreeMap<(u32, u32), BTreeMap<u64, TaskId>>,
}

impl History {
    /// The founding record.
    pub fn found(&mut self, genesis: Genesis) {
        self.genesis = Some(genesis);
    }

    /// The place of a node among all of them.
    pub fn place(&mut self, node: NodeId, place: usize) {
        self.places.insert(node, place);
    }

    /// Partition of a task.
    pub fn partition(&self, id: &TaskId) -> PartitionId {
        let partitions = self.genesis.as_ref().map_or(1, |genesis| genesis.partitions);
        crate::adapter::ring::partition_of(id.tag(), partitions)
    }

    /// Places of the members of a partition, as far as leaders have said that they are committed.
    pub fn cohort(&self, partition: PartitionId) -> Vec<usize> {
        self.committed(partition).members().map(|node| self.places[&node]).collect()
    }

    fn committed(&self, partition: PartitionId) -> Cohort {
        let Some(genesis) = &self.genesis else { return Cohort::default() };
        match self.committed.get(&partition) {
            Some(cohort) => cohort.clone(),
            None => Cohort::founded(&crate::adapter::ring::cohort(genesis, partition)),
        }
    }

    /// Whether those that have something have a majority of the members: of the last cohort that is known to be committed, or
    /// a quorum of a later one that may be committed already.
    pub fn is_safe(&self, partition: PartitionId, has: impl Fn(usize) -> bool) -> bool {
        let has = |node: NodeId| has(self.places[&node]);
        let committed = self.committed(partition);
        let later = self.seen.get(&partition).into_iter().flat_map(|seen| seen.range(committed.version..));
        let mut later = later.map(|(_, cohort)| cohort);
        committed.members_quorum(has) || later.any(|cohort| cohort.quorum(has))
    }

    /// Whether a node has ever held a partition.
    pub fn had_seat(&self, node: usize, partition: PartitionId) -> bool {
        let Some(genesis) = &self.genesis else { return false };
        let founders = crate::adapter::ring::cohort(genesis, partition);
        self.seated.contains(&(node, partition)) || founders.iter().any(|replica| self.places[&replica.node] == node)
    }

    /// Whether a node is a member of a partition, or may be one.
    pub fn may_hold(&self, partition: PartitionId, node: usize) -> bool {
        let later = self.seen.get(&partition).into_iter().flat_map(BTreeMap::values).cloned();
        let mut cohorts = later.chain([self.committed(partition)]);
        cohorts.any(|cohort| cohort.nodes().iter().any(|member| self.places[member] == node))
    }

    /// Members of the cohort that is surely committed.
    pub fn members(&self, partition: PartitionId) -> usize {
        self.committed(partition).members().count()
    }

    /// Whether those that are there are a quorum, whichever of the cohorts that may be committed is.
    pub fn has_quorum(&self, partition: PartitionId, there: impl Fn(usize) -> bool) -> bool {
        let there = |node: NodeId| there(self.places[&node]);
        let later = self.seen.get(&partition).into_iter().flat_map(BTreeMap::values);
        self.committed(partition).quorum(there) && later.into_iter().all(|cohort| cohort.quorum(there))
    }

    /// How many nodes founded the cluster.
    pub fn founders(&self) -> usize {
        self.genesis.as_ref().map_or(0, |genesis| genesis.members.len())
    }

    /// Whether a node's disk has ever lost anything that it should have.
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

    /// Takes a happening in; an error is a client that breaks its own rules.
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
            // Not told to the client yet, it is safe already.
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
            Happening::Observed { node, observation: Observation::Seated { partition }, .. } => {
                self.seated.insert((*node, PartitionId(*partition)));
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
                            self.buried.extend(items.iter().filter(|(_, task)| task.tomb.is_some()).map(|(id, _)| *id));
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

    /// A copy of a dead task is one more task, which no client sent.
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

    /// How many nodes there are.
    pub fn places(&self) -> usize {
        self.places.len()
    }

    /// What leaders of the root decide about schedules. What they write down as enqueued is as good as acknowledged.
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

    /// The task of a schedule by its number and ordinal: what a leader ends, it, or the last one before it of which it knows,
    /// has decided.
    pub fn firing(&self, firing: (u32, u32), epoch: u64) -> Option<TaskId> {
        self.firings.get(&firing)?.range(..=epoch).next_back().map(|(_, id)| *id)
    }

    /// A schedule by its number, as a leader of an epoch knows it.
    pub fn schedule(&self, number: u32, epoch: u64) -> Option<&(String, Arc<Schedule>)> {
        self.schedules.get(&number)?.range(..=epoch).next_back().map(|(_, set)| set)
    }

    /// The facts of which this answer promises so much.
    fn acknowledged(&self, call: &Call, response: &Response, guarantee: Guarantee) -> Vec<(TaskId, Fact)> {
        let acked = acks_of(response).into_iter().filter(|(_, acked)| acked.guarantee == guarantee);
        match call {
            Call::Enqueue { .. } | Call::EnqueueUnique { .. } => acked
                .filter_map(|(_, acked)| self.specs.get(&acked.id).map(|spec| (acked.id, Fact::Spec(spec_hash(spec)))))
                .collect(),
            Call::Transact { .. } => Vec::new(),
            Call::Complete { items, .. } => acked
                .filter_map(|(place, _)| items.get(place))
                .map(|item| (item.completion.id, Fact::Completion(item.completion.token)))
                .collect(),
            // What is told of is the copy that there is.
            Call::Redrive { id, .. } | Call::Request(Request::Redrive { id, .. }) => {
                acked.map(|(_, acked)| (*id, Fact::Completion(Token::of_copy(acked.id)))).collect()
            }
            Call::Request(request) => {
                let writes = writes_of(request);
                acked.filter_map(|(place, _)| writes.get(place).copied()).collect()
            }
        }
    }

    /// Whether the client was told, strictly, that the task is there.
    pub fn is_enqueued(&self, id: &TaskId) -> bool {
        self.strict.range((*id, Fact::Spec(0))..=(*id, Fact::Spec(u64::MAX))).next().is_some()
    }

    /// When the client was told that the task has ended, strictly.
    pub fn ended(&self, id: &TaskId) -> Option<Moment> {
        let low = (*id, Fact::Completion(Token::default()));
        self.strict.range(low..=(*id, Fact::Cancel)).map(|(_, moment)| *moment).min()
    }
}

/// How many disks an acknowledgement asks for.
pub fn acks_wanted(request: &Request) -> Option<Acks> {
    match request {
        Request::Enqueue { acks, .. }
        | Request::Update { acks, .. }
        | Request::Complete { acks, .. }
        | Request::Cancel { acks, .. }
        | Request::Purge { acks, .. }
        | Request::CloseGroup { acks, .. } => Some(*acks),
        _ => None,
    }
}
