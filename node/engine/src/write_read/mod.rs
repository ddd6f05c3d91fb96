//! Writes and reads at any node, which need no leader (AP).

pub mod admission;
pub mod coordinate;
pub mod cycles;
pub mod group;
pub mod queue_capacity;
pub mod read;

use crate::queries::count::PendingCount;
use crate::queries::list::PendingList;
use crate::queries::watch::PendingWatch;
use crate::retention::purge::Purger;
use crate::workflow::redrive::Asker;
use coordinate::PendingWrite;
use norn_model::message::AntiEntropy;
use read::{PendingRead, Reader};

use super::Node;
use super::event::ClientId;
use crate::context::signals::Signal;
use crate::context::tally::{Counted, Tally};
use crate::context::timers::Key;
use crate::controller::reconciler::PendingSteer;
use crate::payloads::bodies::blobs_of;
use norn_model::claim_table::table::ClaimState;
use norn_model::record::Record;
use norn_model::replica::Partition;
use norn_model::task::{Slot, Task};
use norn_wire::error::Error;
use norn_wire::{NodeId, PartitionId, QueueName, Request, State, TaskId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Position of the incarnation counter in a request number: it fills the upper bits, so that answers to an earlier process are
/// recognized.
const BOOT_SHIFT: u32 = 40;

/// A pending client call about claims, forwarded to leaders.
#[derive(Debug)]
pub struct PendingForward {
    /// The waiting client.
    pub client: ClientId,
    /// Number of the client's request.
    pub number: u64,
    /// The request.
    pub request: Request,
    /// Result of each item, by place in the request.
    pub results: Vec<Option<Result<u64, Error>>>,
    /// Open sub-requests, with the places in the request that each covers.
    pub parts: BTreeMap<u64, Vec<usize>>,
    /// The write that waits for the results, and their places in that write.
    pub write: Option<(u64, Vec<usize>)>,
    /// Time of giving up.
    pub deadline_us: u64,
}

/// A probe (head discovery) that waits for quorum reads ("pulls") from the cohorts.
#[derive(Debug)]
pub struct PendingProbe {
    /// The asking broker.
    pub to: NodeId,
    /// Number of the broker's request.
    pub request_id: u64,
    /// Queues asked for.
    pub queues: Vec<QueueName>,
    /// The queues of these that are pulled. Of the others nothing would be granted anyway.
    pub pulled: Vec<QueueName>,
    /// Peers that answered, by partition.
    pub answered: BTreeMap<PartitionId, BTreeSet<NodeId>>,
    /// Peers that have not answered.
    pub waiting: BTreeSet<NodeId>,
    /// Tasks requested from peers.
    pub needed: BTreeSet<TaskId>,
    /// Time at which the probe is answered with what is known by then.
    pub deadline_us: u64,
}

/// A pending request to other nodes, for a client or for this node itself.
#[derive(Debug)]
pub enum PendingRequest {
    /// A write of facts.
    Write(PendingWrite),
    /// A read of one task.
    Read(PendingRead),
    /// A count of tasks.
    Count(PendingCount),
    /// A page of a list.
    List(PendingList),
    /// A call about claims.
    Forward(PendingForward),
    /// A probe.
    Probe(PendingProbe),
    /// A call about the cluster.
    Steer(PendingSteer),
    /// A call of a watching client.
    Watch(PendingWatch),
}

impl PendingRequest {
    fn client(&self) -> Option<ClientId> {
        match self {
            PendingRequest::Write(pending) => pending.writer.client(),
            PendingRequest::Read(pending) => match &pending.reader {
                Reader::Client(client, _)
                | Reader::Purge(Purger { client, .. })
                | Reader::Redrive(Asker::Client { client, .. }) => Some(*client),
                Reader::Redrive(Asker::Leader(_)) | Reader::Transaction(_) | Reader::Claim(_) | Reader::LetGo => None,
            },
            PendingRequest::Count(pending) => Some(pending.client),
            PendingRequest::List(pending) => Some(pending.client),
            PendingRequest::Forward(pending) => Some(pending.client),
            PendingRequest::Steer(pending) => Some(pending.client),
            PendingRequest::Watch(pending) => Some(pending.client),
            PendingRequest::Probe(_) => None,
        }
    }

    pub(crate) fn deadline_us(&self) -> u64 {
        match self {
            PendingRequest::Write(pending) => pending.deadline_us,
            PendingRequest::Read(pending) => pending.deadline_us,
            PendingRequest::Count(pending) => pending.deadline_us,
            PendingRequest::List(pending) => pending.deadline_us,
            PendingRequest::Forward(pending) => pending.deadline_us,
            PendingRequest::Probe(pending) => pending.deadline_us,
            PendingRequest::Steer(pending) => pending.deadline_us,
            PendingRequest::Watch(pending) => pending.deadline_us,
        }
    }
}

/// Pending requests of this node to others, by number.
#[derive(Debug, Default)]
pub struct PendingRequests {
    next: u64,
    open: BTreeMap<u64, PendingRequest>,
    aliases: BTreeMap<u64, u64>,
    /// Time at which this node began to listen to others.
    listens_us: u64,
    /// Reads that wait for a task to end.
    watchers: BTreeMap<TaskId, BTreeSet<u64>>,
}

impl PendingRequests {
    /// Starts the numbers of this incarnation.
    pub fn begin(&mut self, boot: u64) {
        assert!(self.open.is_empty(), "a start begins with requests of an earlier one");
        self.next = boot << BOOT_SHIFT;
    }

    /// Notes that the node listens to others from now on.
    pub fn listen(&mut self, now_us: u64) {
        self.listens_us = now_us;
    }

    /// The incarnation of the node in which a number was given.
    pub fn boot_of(number: u64) -> u64 {
        number >> BOOT_SHIFT
    }

    /// Returns a number never used before.
    pub fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Registers a pending request and returns its number.
    pub fn open(&mut self, pending: PendingRequest) -> u64 {
        let number = self.number();
        assert!(self.open.insert(number, pending).is_none(), "the number of a request is used twice");
        number
    }

    /// The pending request with this number.
    pub fn get(&self, number: u64) -> Option<&PendingRequest> {
        self.open.get(&number)
    }

    /// The pending request with this number.
    pub fn get_mut(&mut self, number: u64) -> Option<&mut PendingRequest> {
        self.open.get_mut(&number)
    }

    /// Registers a second number for the same pending request.
    pub fn alias(&mut self, alias: u64, number: u64) {
        assert!(self.open.contains_key(&number), "a second number is of no request");
        assert!(self.aliases.insert(alias, number).is_none(), "the number of a request is used twice");
    }

    /// Resolves and removes a second number.
    pub fn take_alias(&mut self, alias: u64) -> Option<u64> {
        self.aliases.remove(&alias)
    }

    /// Pending writes.
    fn writes_mut(&mut self) -> impl Iterator<Item = (u64, &mut PendingWrite)> {
        self.open.iter_mut().filter_map(|(number, pending)| match pending {
            PendingRequest::Write(write) => Some((*number, write)),
            PendingRequest::Read(_)
            | PendingRequest::Count(_)
            | PendingRequest::List(_)
            | PendingRequest::Forward(_)
            | PendingRequest::Probe(_)
            | PendingRequest::Steer(_)
            | PendingRequest::Watch(_) => None,
        })
    }

    /// Number of pending requests.
    pub fn count(&self) -> usize {
        self.open.len()
    }
}

/// Counts a task that has just ended, and the claim under which it was done.
fn count_ended(tally: &mut Tally, replica: &Partition, id: &TaskId, wall_ms: u64) {
    let Some(task) = replica.store.task(id) else { return };
    let Some(queue) = task.spec.as_ref().map(|spec| &spec.queue) else { return };
    match task.ended() {
        Some(State::Done) => {
            tally.count(queue, Counted::Completed);
            let entry = replica
                .consensus
                .claim_entry(id)
                .filter(|entry| matches!(entry.state, ClaimState::Held | ClaimState::Sealed { .. }));
            entry.into_iter().for_each(|entry| tally.ran(queue, wall_ms.saturating_sub(entry.granted_ms)));
        }
        Some(State::Dead) => tally.count(queue, Counted::Dead),
        _ => {}
    }
}

impl Node {
    /// Merges facts into this node's replica, logs them, and reports what follows from them. The caller acknowledges. Returns how many
    /// items changed something.
    pub(crate) fn merge(&mut self, partition: PartitionId, items: Vec<(TaskId, Task)>) -> u64 {
        if items.is_empty() {
            return 0;
        }
        self.merge_shared(partition, &Arc::new(items))
    }

    /// As [`Node::merge`], for facts that are shared with messages.
    pub(crate) fn merge_shared(&mut self, partition: PartitionId, items: &norn_model::message::Items) -> u64 {
        let (now, config) = (self.now, self.config.clone());
        let Some(replica) = self.partitions.get_mut(&partition) else { return 0 };
        let counts = self.led.contains(&partition);
        let tally = self.outbox.tally_mut();
        let mut changed = 0;
        let (mut ended, mut bodies) = (Vec::new(), Vec::new());
        let (mut outbox, mut freed, mut purged) = (false, false, Vec::new());
        for (id, delta) in items.iter() {
            let merged = replica.merge(*id, delta.clone(), now, &config);
            bodies.extend(merged.body.map(|hash| (*id, Slot::Spec, hash)));
            bodies.extend(blobs_of(*id, delta));
            changed += u64::from(merged.changed);
            outbox |= merged.outbox && merged.changed;
            freed |= merged.freed;
            if merged.ended {
                ended.push(*id);
            }
            if merged.arrived && counts {
                delta.spec.iter().for_each(|spec| tally.count(&spec.queue, Counted::Enqueued));
            }
            if merged.ended && counts {
                count_ended(tally, replica, id, now.wall_ms);
            }
            if merged.purged {
                purged.push(*id);
            }
        }
        if changed > 0 {
            self.outbox.persist(Record::Facts { partition, items: items.clone() });
            self.payloads.persisted(self.outbox.ticket(), partition, bodies);
            self.dirty_heads.insert(partition);
            self.repair.changed(partition);
        }
        if outbox {
            self.signals.report(Signal::ChildrenBrought(partition));
        }
        if freed {
            self.signals.report(Signal::Freed(partition));
        }
        if !purged.is_empty() {
            self.signals.report(Signal::Purged { partition, ids: purged });
        }
        if !ended.is_empty() {
            self.signals.report(Signal::Ended { partition, ids: ended });
        }
        changed
    }

    /// Ends a pending request.
    pub(crate) fn close_request(&mut self, number: u64) -> Option<PendingRequest> {
        let pending = self.pending_requests.open.remove(&number)?;
        self.timers.cancel(Key::PendingRequest(number));
        match &pending {
            PendingRequest::Forward(forward) => {
                for part in forward.parts.keys() {
                    self.pending_requests.aliases.remove(part);
                }
            }
            PendingRequest::Steer(steer) => {
                for part in &steer.parts {
                    self.pending_requests.aliases.remove(part);
                }
            }
            PendingRequest::Read(read) => {
                if let Some(watchers) = self.pending_requests.watchers.get_mut(&read.id) {
                    watchers.remove(&number);
                    if watchers.is_empty() {
                        self.pending_requests.watchers.remove(&read.id);
                    }
                }
            }
            PendingRequest::Watch(watch) => {
                self.queries.close_watch(&watch.subject, number);
            }
            PendingRequest::Write(_)
            | PendingRequest::Count(_)
            | PendingRequest::List(_)
            | PendingRequest::Probe(_) => {}
        }
        Some(pending)
    }

    /// Sets the timer that looks at a pending request again, after the resend interval or at its deadline.
    pub(crate) fn set_request_timer(&mut self, number: u64) {
        let Some(pending) = self.pending_requests.get(number) else { return };
        let due_us = match pending {
            PendingRequest::Write(write) => self.look_at_us(write),
            _ => pending.deadline_us(),
        };
        let at_us = self.after_ms(self.config.resend_ms).min(due_us);
        self.timers.set(Key::PendingRequest(number), at_us);
    }

    /// Drops the pending requests of a client that is gone. Writes go on in the replicas; only the answer is dropped.
    pub(crate) fn drop_requests_of(&mut self, client: ClientId) {
        let gone: Vec<u64> = self
            .pending_requests
            .open
            .iter()
            .filter(|(_, pending)| pending.client() == Some(client))
            .map(|(number, _)| *number)
            .collect();
        for number in gone {
            self.close_request(number);
        }
    }

    /// Repeats the reads that wait for the end of a task.
    pub(crate) fn wake_watchers(&mut self, id: &TaskId) {
        for number in self.pending_requests.watchers.get(id).cloned().unwrap_or_default() {
            self.send_reads(number);
        }
    }

    /// Sends a follower the facts of tasks whose grants it acknowledged without knowing the tasks.
    pub(crate) fn send_specs(&mut self, partition: PartitionId, to: NodeId, ids: &[TaskId]) {
        let Some(replica) = self.partitions.get(&partition) else { return };
        let (mut items, mut lacks) = (Vec::new(), Vec::new());
        for (id, (task, wanted)) in ids.iter().filter_map(|id| Some((*id, replica.store.content(id)?))) {
            lacks.extend(wanted.into_iter().map(|wanted| (items.len(), wanted)));
            items.push((id, task));
        }
        if !items.is_empty() {
            let forgets = replica.forgets_surely();
            let message = norn_model::message::PeerMessage::AntiEntropy(AntiEntropy::Tasks {
                partition,
                items: Arc::new(items),
                by_buckets: false,
                forgets,
            });
            self.send_whole(to, message, lacks, false);
        }
    }
}
