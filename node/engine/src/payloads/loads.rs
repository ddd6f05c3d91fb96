//! Disk reads: bodies, results and log entries that are read back from the log for a grant, a transaction, a reader, a list, a
//! peer or the archive.
//!
//! The number and bytes of reads under way are limited. The others wait, those for grants and transactions in front. The bytes of
//! other waiting reads are limited as well; those above the limit are dropped, and their requester asks again.

use crate::Node;
use crate::context::signals::Signal;
use crate::effect::Effect;
use norn_model::claim_table::ledger::TransactionKey;
use norn_model::config::mutant;
use norn_model::limits::{LOAD_BYTES_MAX, LOADS_MAX, LOADS_WAITING_BYTES_MAX};
use norn_model::message::{AntiEntropy, Handoff, PeerMessage, Query, ReadWrite};
use norn_model::task::{Filling, Part, Slot, Task, Wanted};
use norn_wire::{NodeId, PartitionId, TaskId};
use serde_bytes::ByteBuf;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Memory of a read besides bodies and message, about.
const LOAD_BYTES: usize = 1 << 10;

/// Continuation of a read.
#[derive(Debug)]
pub enum Then {
    /// Sends a message with gaps, one for each part.
    Send {
        /// Receiver.
        to: NodeId,
        /// Message with gaps.
        message: Box<PeerMessage>,
        /// Item of each gap, in the order of the parts.
        gaps: Vec<usize>,
        /// Whether to use [`crate::context::outbox::Outbox::send_durable`].
        durable: bool,
    },
    /// Continues a session of grants.
    Grant {
        /// Number of the session.
        session: u64,
    },
    /// Archives finished tasks.
    Archive {
        /// Their partition.
        partition: PartitionId,
        /// Number of the archive's batch.
        number: u64,
        /// Tasks with gaps.
        tasks: Vec<(TaskId, Task)>,
        /// Item of each gap, in the order of the parts.
        gaps: Vec<usize>,
    },
    /// Validates a transaction with these parts and those loaded before.
    Judge {
        /// The transaction, in its partition.
        key: TransactionKey,
        /// Parts loaded before.
        loaded: BTreeMap<Part, ByteBuf>,
    },
    /// Finds out whether lost parts are there after all.
    Find,
    /// Keeps the parts in memory.
    BringBack,
}

#[derive(Debug)]
struct Load {
    then: Then,
    wanted: Vec<Wanted>,
    found: Vec<Option<Filling>>,
    /// Indexes in `wanted` and `found` of the parts that the log is asked for.
    asked: Vec<usize>,
    bytes: usize,
    /// Some missing parts could not be read just now.
    unread: bool,
}

/// Disk reads, under way and waiting.
#[derive(Debug, Default)]
pub struct Loads {
    next: u64,
    under_way: BTreeMap<u64, Load>,
    bytes: usize,
    /// Reads for grants and transactions, and those to repeat.
    first: VecDeque<Load>,
    waiting: VecDeque<Load>,
    waiting_bytes: usize,
    /// Parts on their way back into memory.
    coming: BTreeSet<(TaskId, Slot)>,
}

impl Loads {
    /// Notes that these parts are no longer on their way.
    fn come(&mut self, wanted: &[Wanted]) {
        for wanted in wanted {
            self.coming.remove(&(wanted.id, wanted.slot));
        }
    }
}

impl Node {
    /// Sends a message once the parts that it lacks are in it, each with its gap. If a part is lost, a reader learns that. If the
    /// protocol version cannot express the loss, if the part could just not be read, or if the receiver is a replica, the message
    /// is sent without what it would have said of that task, or not at all.
    pub(crate) fn send_whole(&mut self, to: NodeId, message: PeerMessage, lacks: Vec<(usize, Wanted)>, durable: bool) {
        let (gaps, wanted): (Vec<usize>, Vec<Wanted>) = lacks.into_iter().unzip();
        if wanted.is_empty() && durable {
            self.outbox.send_durable(to, message);
        } else if wanted.is_empty() {
            self.outbox.send(to, message);
        } else {
            self.load(Then::Send { to, message: Box::new(message), gaps, durable }, wanted);
        }
    }

    /// Brings parts back into memory, unless they are on their way.
    pub(crate) fn load_back(&mut self, mut wanted: Vec<Wanted>) {
        wanted.retain(|wanted| self.payloads.loads.coming.insert((wanted.id, wanted.slot)));
        if !wanted.is_empty() {
            self.load(Then::BringBack, wanted);
        }
    }

    /// Begins to load parts, now or when there is room.
    pub(crate) fn load(&mut self, then: Then, wanted: Vec<Wanted>) {
        assert!(!wanted.is_empty(), "there is nothing to be loaded");
        let then_bytes = match &then {
            Then::Send { message, .. } => size_bytes(message),
            Then::Archive { tasks, .. } => tasks.iter().map(|(_, task)| task.size_bytes() + 64).sum(),
            Then::Judge { loaded, .. } => loaded.values().map(|bytes| bytes.len()).sum(),
            Then::Grant { .. } | Then::Find | Then::BringBack => 0,
        };
        let bytes = wanted.iter().map(|wanted| wanted.bytes as usize).sum::<usize>() + then_bytes + LOAD_BYTES;
        let (found, asked) = (vec![None; wanted.len()], (0..wanted.len()).collect());
        let load = Load { then, wanted, found, asked, bytes, unread: false };
        if matches!(load.then, Then::Grant { .. } | Then::Judge { .. }) {
            self.payloads.loads.first.push_back(load);
        } else if self.payloads.loads.waiting_bytes + bytes <= LOADS_WAITING_BYTES_MAX
            || self.payloads.loads.waiting.is_empty()
        {
            self.payloads.loads.waiting_bytes += bytes;
            self.payloads.loads.waiting.push_back(load);
            let fits =
                self.payloads.loads.waiting_bytes <= LOADS_WAITING_BYTES_MAX || self.payloads.loads.waiting.len() == 1;
            assert!(fits, "more waits to be loaded than may");
        } else {
            if matches!(load.then, Then::BringBack) {
                self.payloads.loads.come(&load.wanted);
            }
            self.outbox.count("loads_refused");
        }
        self.begin_loads();
    }

    fn begin_loads(&mut self) {
        while self.payloads.loads.under_way.len() < LOADS_MAX && (self.payloads.loads.bytes < LOAD_BYTES_MAX) {
            let load = self.payloads.loads.first.pop_front().or_else(|| {
                let load = self.payloads.loads.waiting.pop_front()?;
                assert!(self.payloads.loads.waiting_bytes >= load.bytes, "a load that waits was not counted");
                self.payloads.loads.waiting_bytes -= load.bytes;
                Some(load)
            });
            let Some(load) = load else { return };
            // Its answer went out at its deadline.
            if matches!(load.then, Then::Grant { session } if !self.claims.is_granting(session)) {
                continue;
            }
            self.payloads.loads.next += 1;
            let number = self.payloads.loads.next;
            let wanted = load.asked.iter().map(|place| self.asked_for(load.wanted[*place])).collect();
            self.outbox.effect(Effect::Load { number, wanted });
            self.payloads.loads.bytes += load.bytes;
            assert!(self.payloads.loads.under_way.insert(number, load).is_none(), "the number of a load is used twice");
        }
    }

    /// Mutant: uses the place of the task next to the wanted one.
    fn asked_for(&self, wanted: Wanted) -> Wanted {
        if !mutant!(self.config, WrongPlace) {
            return wanted;
        }
        let store = &self.partitions[&self.partition_of(&wanted.id)].store;
        let beside = store.after(Some(wanted.id)).find_map(|(id, task)| task.spec.as_ref()?.wanted(*id));
        beside.filter(|_| wanted.slot == Slot::Spec).unwrap_or(wanted)
    }

    /// Takes in the parts that the log has read, or could not read.
    pub(crate) fn on_loaded(&mut self, number: u64, bodies: Vec<Option<Filling>>, unread: bool) {
        let mut load = self.payloads.loads.under_way.remove(&number).expect("the host answers what it was asked, once");
        assert!(self.payloads.loads.bytes >= load.bytes, "a load was not counted");
        self.payloads.loads.bytes -= load.bytes;
        load.unread |= unread;
        assert_eq!(bodies.len(), load.asked.len(), "the host answers for each body");
        let unchecked = mutant!(self.config, WrongPlace);
        for (place, body) in std::mem::take(&mut load.asked).into_iter().zip(bodies) {
            let wanted = load.wanted[place];
            load.found[place] = body.filter(|filling| unchecked || wanted.is(filling));
            if load.found[place].is_some() {
                continue;
            }
            // Since the request the log may have moved the part, or a peer may have sent it.
            let task = self.partitions.get(&self.partition_of(&wanted.id));
            let task = task.and_then(|replica| replica.store.task(&wanted.id));
            // A completion or log entry that was replaced by another value is no longer of use.
            let same = |hash: u64| wanted.slot == Slot::Spec || hash == wanted.hash;
            let now = task.and_then(|task| task.wanted_in(wanted.id, wanted.slot)).filter(|now| same(now.hash));
            let here = task.and_then(|task| task.here(wanted.slot));
            load.found[place] = here.filter(|filling| wanted.slot == Slot::Spec || wanted.is(filling));
            match now {
                Some(now) if now != wanted => {
                    load.wanted[place] = now;
                    load.asked.push(place);
                }
                Some(_) => self.set_lost(&wanted, true),
                None => {}
            }
        }
        if load.asked.is_empty() {
            self.loaded(load);
        } else {
            self.payloads.loads.first.push_front(load);
        }
        self.begin_loads();
    }

    fn loaded(&mut self, load: Load) {
        let Load { then, wanted, found, unread, .. } = load;
        match then {
            Then::Grant { session } => {
                let parts = wanted.into_iter().zip(found).collect();
                self.signals.report(Signal::LoadedForGrant { session, parts });
            }
            Then::Archive { partition, number, mut tasks, gaps } => {
                for ((gap, wanted), found) in gaps.into_iter().zip(&wanted).zip(found) {
                    if let Some(filling) = found {
                        tasks[gap].1.fill(wanted.slot, filling);
                    }
                }
                self.signals.report(Signal::LoadedForArchive { partition, number, tasks });
            }
            Then::Judge { key, loaded } => {
                let parts = wanted.into_iter().zip(found).collect();
                self.signals.report(Signal::LoadedForTransaction { key, loaded, parts });
            }
            Then::BringBack => {
                self.payloads.loads.come(&wanted);
                let found = wanted.into_iter().zip(found).filter_map(|(wanted, found)| Some((wanted, found?)));
                self.brought_back(found);
            }
            Then::Find => {
                for (wanted, _) in wanted.iter().zip(found).filter(|(_, found)| found.is_some()) {
                    self.set_lost(wanted, false);
                }
            }
            Then::Send { to, message, gaps, durable } => {
                let parts = gaps.into_iter().zip(wanted).zip(found).map(|((gap, wanted), found)| (gap, wanted, found));
                self.send_loaded(to, *message, parts, (durable, unread));
            }
        }
    }

    fn send_loaded(
        &mut self,
        to: NodeId,
        mut message: PeerMessage,
        parts: impl Iterator<Item = (usize, Wanted, Option<Filling>)>,
        (durable, unread): (bool, bool),
    ) {
        let mut lost: BTreeMap<usize, Vec<Wanted>> = BTreeMap::new();
        for (gap, wanted, found) in parts {
            match found {
                Some(filling) => fill(&mut message, gap, wanted.slot, filling),
                None => lost.entry(gap).or_default().push(wanted),
            }
        }
        // A part that cannot be read just now is not thereby lost, and a reader that learned of a loss might drop the rest.
        let unanswered = match unread {
            true => lost.values().flatten().map(|wanted| wanted.id).collect(),
            false => self.tell_losses(&mut message, &lost),
        };
        match &mut message {
            // A reader must not conclude from a missing statement that it is false.
            PeerMessage::ReadWrite(ReadWrite::Known { .. }) if !unanswered.is_empty() => return,
            PeerMessage::Query(Query::ListAnswer { partitions, tasks, .. }) => {
                partitions.retain(|(partition, _)| unanswered.iter().all(|id| self.partition_of(id) != *partition));
                tasks.retain(|(id, _)| !unanswered.contains(id));
            }
            _ if !lost.is_empty() => leave_out_gaps(&mut message),
            _ => {}
        }
        if durable {
            self.outbox.send_durable(to, message);
        } else {
            self.outbox.send(to, message);
        }
    }

    /// Reports to a reader the lost parts of the tasks with these gaps. Returns the tasks whose losses cannot be reported.
    fn tell_losses(&self, message: &mut PeerMessage, lost: &BTreeMap<usize, Vec<Wanted>>) -> BTreeSet<TaskId> {
        let mut unanswered = BTreeSet::new();
        for (gap, parts) in lost {
            let known = match message {
                PeerMessage::ReadWrite(ReadWrite::Known { known, .. }) => known,
                PeerMessage::Query(Query::ListAnswer { tasks, .. }) => &mut tasks[*gap].1,
                _ => return unanswered,
            };
            let id = parts[0].id;
            let task = self.partitions.get(&self.partition_of(&id)).and_then(|replica| replica.store.task(&id));
            let lacks = task.map(|task| task.lost(id)).unwrap_or_default();
            // The part under this key may have another value by now, which was not requested.
            let is_lost = |part: &Wanted| lacks.iter().any(|lost| (lost.slot, lost.hash) == (part.slot, part.hash));
            if parts.iter().all(is_lost) {
                let outline = task.and_then(|task| task.spec.as_ref());
                let outline = outline.filter(|_| parts.iter().any(|part| part.slot == Slot::Spec));
                known.lose(outline.map(|outline| Arc::new(outline.stub())));
            } else {
                unanswered.insert(id);
            }
        }
        unanswered
    }

    /// Checks the counts of reads that the host has not answered.
    pub(crate) fn check_loads(&self) -> Result<(), String> {
        let bytes: usize = self.payloads.loads.under_way.values().map(|load| load.bytes).sum();
        let waiting_bytes: usize = self.payloads.loads.waiting.iter().map(|load| load.bytes).sum();
        if (bytes, waiting_bytes) == (self.payloads.loads.bytes, self.payloads.loads.waiting_bytes) {
            Ok(())
        } else {
            Err(format!("{bytes} bytes are loaded and {waiting_bytes} wait, which is not what is counted"))
        }
    }
}

/// Bytes of a message with gaps, about.
fn size_bytes(message: &PeerMessage) -> usize {
    match message {
        PeerMessage::ReadWrite(ReadWrite::Known { known, .. }) => known.task.size_bytes(),
        PeerMessage::Query(Query::ListAnswer { tasks, .. }) => {
            tasks.iter().map(|(_, known)| known.task.size_bytes() + 64).sum()
        }
        PeerMessage::AntiEntropy(AntiEntropy::Tasks { items, .. })
        | PeerMessage::Handoff(Handoff::Hint { items, .. }) => {
            items.iter().map(|(_, task)| task.size_bytes() + 64).sum()
        }
        other => unreachable!("{} has no gaps", other.name()),
    }
}

fn fill(message: &mut PeerMessage, gap: usize, slot: Slot, filling: Filling) {
    let task = match message {
        PeerMessage::ReadWrite(ReadWrite::Known { known, .. }) => &mut known.task,
        PeerMessage::Query(Query::ListAnswer { tasks, .. }) => &mut tasks[gap].1.task,
        PeerMessage::AntiEntropy(AntiEntropy::Tasks { items, .. })
        | PeerMessage::Handoff(Handoff::Hint { items, .. }) => {
            &mut Arc::get_mut(items).expect("no one else has it yet")[gap].1
        }
        other => unreachable!("{} has no gaps", other.name()),
    };
    task.fill(slot, filling);
}

/// Leaves out lost results and log entries. The remaining facts say less, and nothing false.
fn leave_out_gaps(message: &mut PeerMessage) {
    if let PeerMessage::AntiEntropy(AntiEntropy::Tasks { items, .. })
    | PeerMessage::Handoff(Handoff::Hint { items, .. }) = message
    {
        let items = Arc::get_mut(items).expect("no one else has it yet");
        items.iter_mut().for_each(|(_, task)| task.leave_out_gaps());
    }
}
