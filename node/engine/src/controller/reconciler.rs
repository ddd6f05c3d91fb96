//! Cluster controller at the leader of the metadata group: answers operators, plans the layout, moves partitions to their target
//! a few at a time, declares a member gone after a long silence, and keeps the metadata group itself on able members.
//!
//! All decisions are the metadata group's own (`metadata/`), from what this node hears. The controller acts by requests: the leader
//! of each partition changes its cohort, through that cohort's majorities. A controller that is wrong, or one that was deposed
//! and has not learned it, can have replicas moved in vain, and no more.

use crate::Node;
use crate::context::latest::Latest;
use crate::context::timers::Key;
use crate::effect::Observation;
use crate::event::ClientId;
use crate::write_read::PendingRequest;
use norn_model::claim_table::table::Op;
use norn_model::config::mutant;
use norn_model::consensus::{Asked, Waiting};
use norn_model::message::{Forwarding, Peering, Reconfiguration};
use norn_model::metadata::{Admission, Metadata, Move, Operation, Request as Wish, Seen};
use norn_model::viewstamp::{Epoch, Viewstamp};
use norn_wire::error::{Cause, Error, ErrorCode};
use norn_wire::membership::{Changed, ClusterChange, ClusterView, Membership, Roster};
use norn_wire::schedule::ScheduleChange;
use norn_wire::{NodeId, PartitionId, Request, Response};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Time between two checks of the cluster, where no event calls for one.
const LOOK_MS: u64 = 500;
/// Delay of the next check after an event: many events come together.
const SOON_MS: u64 = 20;
/// Pause before a partition that has not begun to move is asked for again.
const ASKED_MS: u64 = 2_000;

/// Controller state of a node.
#[derive(Debug, Default)]
pub struct Reconciler {
    /// Epoch of the leadership of the metadata group, and when this node noticed it.
    since: Option<(Epoch, u64)>,
    /// When this node last checked the cluster.
    looked_us: u64,
    /// Partitions that were asked to move, each with the end of its pause.
    asked: BTreeMap<PartitionId, u64>,
    /// Latest change that each node requested, to detect late copies: a copy of an earlier change may arrive behind a change that
    /// undoes it. If a request itself was overtaken, its sender repeats it under a new number.
    /// This covers copies through one node, as long as this process runs: a copy through another node, or one that was sent to an earlier
    /// leader of the metadata group as well, may still come behind what undoes it.
    changes: Latest,
}

/// Pending call of a client that a single leader answers: the metadata leader, if it is about the cluster.
#[derive(Debug)]
pub struct PendingSteer {
    /// Client connection.
    pub client: ClientId,
    /// The client's number of the call.
    pub number: u64,
    /// The call.
    pub request: Request,
    /// Deadline of the answer.
    pub deadline_us: u64,
    /// Numbers under which leaders were asked.
    pub parts: BTreeSet<u64>,
    /// More than one leader was asked, or one on another node: a late copy may still take effect even if one of them refuses.
    pub passed_on: bool,
    /// Last answer of a leader that did not know the outcome.
    pub put_off: Option<Box<Error>>,
}

impl Node {
    /// Takes a client's call that a single leader answers.
    pub(crate) fn ask_leader(&mut self, client: ClientId, number: u64, request: Request) {
        let deadline_us = self.after_ms(self.config.request_timeout_ms);
        let (parts, passed_on, put_off) = (BTreeSet::new(), false, None);
        let request_id = PendingSteer { client, number, request, deadline_us, parts, passed_on, put_off };
        let request_id = self.pending_requests.open(PendingRequest::Steer(request_id));
        self.send_to_leader(request_id);
    }

    /// Sends a call to the present leader.
    pub(crate) fn send_to_leader(&mut self, request_id: u64) {
        let Some(PendingRequest::Steer(state)) = self.pending_requests.get(request_id) else { return };
        let request = state.request.clone();
        let leader = match &request {
            Request::EnqueueUnique { task } => self.leader_of(self.partition_of(&task.id)),
            Request::Transact(transaction) => self.leader_of(self.decider_of(transaction)),
            _ => self.leader_of(PartitionId::METADATA),
        };
        if let Some(leader) = leader {
            let part = self.pending_requests.number();
            self.pending_requests.alias(part, request_id);
            let is_other = leader != self.me;
            if let Some(PendingRequest::Steer(state)) = self.pending_requests.get_mut(request_id) {
                state.passed_on |= is_other || !state.parts.is_empty();
                state.parts.insert(part);
            }
            self.outbox.send(leader, Forwarding::Forward { request_id: part, request: Box::new(request) });
        }
        self.set_request_timer(request_id);
    }

    /// Takes in the answer of a leader, present or former.
    pub(crate) fn metadata_answered(&mut self, request_id: u64, response: Response) {
        match response {
            // The timer will ask another leader.
            Response::Error(error) if error.code == ErrorCode::Unavailable => {
                if let Some(PendingRequest::Steer(state)) = self.pending_requests.get_mut(request_id) {
                    state.put_off = Some(Box::new(error));
                }
            }
            Response::Error(error) if error.code.is_full() => {
                let passed_on = matches!(self.pending_requests.get(request_id), Some(PendingRequest::Steer(state)) if state.passed_on);
                let error = if passed_on { error } else { error.because(Cause::TurnedAway) };
                self.answer_steer(request_id, Response::Error(error));
            }
            response => self.answer_steer(request_id, response),
        }
    }

    /// Answers a call whose deadline has passed.
    pub(crate) fn steer_deadline(&mut self, request_id: u64) {
        let Some(PendingRequest::Steer(state)) = self.pending_requests.get(request_id) else { return };
        let is_read = matches!(state.request, Request::Cluster | Request::Schedules { .. });
        let of_partition = match &state.request {
            Request::EnqueueUnique { task } => Some(task.id),
            Request::Transact(transaction) => Some(transaction.id),
            _ => None,
        };
        let unknown = |message: &str| match &state.put_off {
            Some(why) => {
                let message = format!("{message}; what it said last: {}", why.message);
                Error { code: ErrorCode::Unknown, message, cause: None, ..(**why).clone() }
            }
            None => Error::new(ErrorCode::Unknown, message),
        };
        let error = if let Some(id) = of_partition {
            let none = "the task's partition has no leader that answers";
            let message = "the leader of the task's partition did not say in time what became of it; repeat the call with the same id";
            let error = if state.parts.is_empty() { Error::unavailable(none) } else { unknown(message) };
            error.about(id)
        } else if state.parts.is_empty() || is_read {
            // The client may have asked another node before, so the error must not state what was changed.
            Error::unavailable("the root of the cluster has no leader that answers")
        } else {
            unknown(
                "the leader of the cluster's root did not say in time what became of it; ask what is now, or repeat the call",
            )
        };
        self.answer_steer(request_id, Response::Error(error));
    }

    fn answer_steer(&mut self, request_id: u64, mut response: Response) {
        if let Response::Error(error) = &mut response {
            self.date_refusal(error);
        }
        let Some(PendingRequest::Steer(state)) = self.close_request(request_id) else { return };
        let short = matches!(state.request, Request::Arrange { .. }) && matches!(response, Response::Changed(_));
        self.outbox.reply(state.client, state.number, if short { Response::Done } else { response });
    }

    /// At the metadata leader: handles a call.
    pub(crate) fn on_steer(&mut self, from: NodeId, request_id: u64, request: &Request) {
        if let Err(error) = request.check() {
            self.answer_metadata_call(from, request_id, Response::Error(error));
            return;
        }
        let changes = matches!(request, Request::Schedule(_) | Request::Change { .. } | Request::Arrange { .. });
        if changes && !self.controller.reconciler.changes.is_news(from, request_id) {
            return;
        }
        let Some(metadata) = self.led_metadata() else {
            let error = Error::unavailable("the leader of the cluster's root has moved; ask again");
            self.answer_metadata_call(from, request_id, Response::Error(error));
            return;
        };
        let (change, dry_run) = match request {
            Request::Schedule(change) => return self.on_schedule((from, request_id), change),
            Request::Schedules { name } => {
                let response = self.schedule_views(name.as_deref());
                return self.answer_when_certain(Asked { node: from, request_id, response });
            }
            Request::Change { change, dry_run } => (change.as_ref().clone(), *dry_run),
            Request::Arrange { partition, nodes } => {
                (ClusterChange::Arrange { partition: *partition, nodes: nodes.clone() }, false)
            }
            _ => {
                let response = Response::Cluster(Box::new(self.cluster_view(metadata)));
                self.answer_when_certain(Asked { node: from, request_id, response });
                return;
            }
        };
        match self.judge_change(metadata, &change) {
            Err(error) => self.answer_when_certain(Asked { node: from, request_id, response: Response::Error(error) }),
            Ok(operation) => self.carry_out((from, request_id), operation, dry_run),
        }
    }

    /// At the metadata leader: handles a requested change of a schedule.
    fn on_schedule(&mut self, (node, request_id): (NodeId, u64), change: &ScheduleChange) {
        let (response, operation) = match self.judge_schedule(change) {
            Err(error) => (Response::Error(error), None),
            Ok(operation) => (self.answer_to_schedule(change, operation.as_ref()), operation),
        };
        let asked = Asked { node, request_id, response };
        match operation {
            Some(operation) => self.append_schedules(operation, Some(Box::new(asked))),
            None => self.answer_when_certain(asked),
        }
    }

    /// Validates a requested change, and returns the operation for it; none if it is in effect already.
    fn judge_change(&self, metadata: &Metadata, change: &ClusterChange) -> Result<Option<Operation>, Error> {
        if let ClusterChange::Remove { node } = change
            && metadata.was_member(*node)
        {
            return Ok(None);
        }
        let wish = wish(metadata, change)?;
        // A dead node hands over nothing any more: partitions that it drains from recover as soon as others hold them.
        let is_dead = match change {
            ClusterChange::Remove { node } | ClusterChange::Replace { node, .. } => !self.is_alive(*node),
            _ => false,
        };
        match metadata.admit(&wish, &self.seen(metadata, !is_dead)) {
            Ok(Admission::Change(operation)) => Ok(Some(operation)),
            Ok(Admission::Already(_)) => Ok(None),
            Err(refusal) => {
                let name = |number| metadata.members().get(&number).map(|member| member.name.clone());
                Err(Error::new(ErrorCode::Conflict, refusal.text(name)))
            }
        }
    }

    /// Appends a change, or for a dry run returns its effects.
    fn carry_out(&mut self, (node, request_id): (NodeId, u64), operation: Option<Operation>, dry_run: bool) {
        let mut after = self.led_metadata().expect("the caller has seen it").clone();
        let already = operation.is_none();
        if let Some(operation) = &operation {
            after.apply(operation).expect("what is admitted fits");
        }
        let mut view = self.cluster_view(&after);
        if dry_run && let Some(layout) = after.plan() {
            after.apply(&Operation::Layout(layout)).expect("what is planned fits");
            view = self.cluster_view(&after);
        }
        let roster = Arc::new(after.roster());
        let genesis = self.genesis.as_ref().expect("it leads").as_ref().clone();
        // A dry run admits no node.
        let membership = (!dry_run).then(|| Box::new(Membership { genesis, roster: roster.as_ref().clone() }));
        let changed = Changed { already, version: after.version(), view: Box::new(view), membership };
        let asked = Asked { node, request_id, response: Response::Changed(Box::new(changed)) };
        match operation.filter(|_| !dry_run) {
            Some(operation) => {
                let waiting = Waiting::Metadata { roster, answer: Some(Box::new(asked)) };
                self.append(PartitionId::METADATA, Op::Metadata(operation), Some(waiting));
            }
            None => self.answer_when_certain(asked),
        }
    }

    /// Answers once the present state is certain. It may rest on a change that is not committed, and the leader may have been
    /// deposed without knowing. So it appends an operation that changes nothing: once that is committed, the leader led after it
    /// was asked, and all that it knew then is committed as well.
    fn answer_when_certain(&mut self, asked: Asked) {
        if mutant!(self.config, RootAnswersAtOnce) {
            self.answer_metadata_call(asked.node, asked.request_id, asked.response);
            return;
        }
        let roster = Arc::new(self.led_metadata().expect("the caller has seen it").roster());
        let nothing = Op::Clear { upto: Viewstamp::default() };
        let waiting = Waiting::Metadata { roster, answer: Some(Box::new(asked)) };
        self.append(PartitionId::METADATA, nothing, Some(waiting));
    }

    fn answer_metadata_call(&mut self, node: NodeId, request_id: u64, response: Response) {
        self.outbox.send(node, Forwarding::Forwarded { request_id, response: Box::new(response) });
    }

    /// Handles a committed change of the metadata group.
    pub(crate) fn metadata_committed(&mut self, roster: &Arc<Roster>, answer: Option<Box<Asked>>) {
        self.tell_roster(roster);
        if let Some(asked) = answer {
            let Asked { node, request_id, response } = *asked;
            self.answer_metadata_call(node, request_id, response);
        }
        self.steer_soon();
        self.schedules_soon();
    }

    /// Handles a change that can no longer be known to commit.
    pub(crate) fn metadata_given_up(&mut self, answer: Option<Box<Asked>>) {
        if let Some(asked) = answer {
            let error = Error::unavailable("the leader of the cluster's root has moved; ask again");
            self.answer_metadata_call(asked.node, asked.request_id, Response::Error(error));
        }
    }

    fn tell_roster(&mut self, roster: &Arc<Roster>) {
        let news = roster.version > self.roster.version;
        self.learn_roster(roster);
        if news {
            let there: Vec<NodeId> = self.others().filter(|node| self.is_alive(*node)).collect();
            for node in there {
                self.outbox.send(node, Peering::Roster { roster: roster.clone() });
            }
        }
    }

    /// Returns the metadata group's state, if this node leads it and may append.
    fn led_metadata(&self) -> Option<&Metadata> {
        let replica = self.partitions.get(&PartitionId::METADATA).filter(|_| self.may_append(PartitionId::METADATA))?;
        replica.consensus.table.metadata.as_deref()
    }

    /// Arms the timer for an event that the controller should react to.
    pub(crate) fn steer_soon(&mut self) {
        if self.controller.reconciler.since.is_some() {
            self.timers.set_earliest(Key::Reconciler, self.after_ms(SOON_MS));
        }
    }

    /// Runs the controller, if this node leads the metadata group.
    pub(crate) fn steer(&mut self) {
        self.timers.set(Key::Reconciler, self.after_ms(LOOK_MS));
        let Some(metadata) = self.led_metadata().cloned() else {
            self.controller.reconciler.since = None;
            return;
        };
        self.begin_schedules();
        let consensus = &self.partitions[&PartitionId::METADATA].consensus;
        let (epoch, settled) = (consensus.viewstamp.epoch, consensus.viewstamp.length == consensus.commit);
        // A process that stood still has heard from no node meanwhile.
        let looked_us = std::mem::replace(&mut self.controller.reconciler.looked_us, self.now.mono_us);
        assert!(looked_us <= self.now.mono_us, "the cluster was looked at in the future");
        let stood = self.now.mono_us > looked_us + 4 * LOOK_MS * 1_000;
        if stood || self.controller.reconciler.since.is_none_or(|(of, _)| of != epoch) {
            self.controller.reconciler.since = Some((epoch, self.now.mono_us));
            self.controller.reconciler.asked.clear();
        }
        if !settled {
            return;
        }
        self.tell_roster(&Arc::new(metadata.roster()));
        let seen = self.seen(&metadata, false);
        if let Some(operation) = self.due_change(&metadata, &seen) {
            let mut after = metadata;
            after.apply(&operation).expect("what the root decides fits it");
            let roster = Arc::new(after.roster());
            self.append(
                PartitionId::METADATA,
                Op::Metadata(operation),
                Some(Waiting::Metadata { roster, answer: None }),
            );
            return;
        }
        self.move_metadata(&metadata, &seen);
        self.move_partitions(&metadata, &seen);
    }

    /// Returns the next change that needs no operator.
    fn due_change(&mut self, metadata: &Metadata, seen: &Seen) -> Option<Operation> {
        if let Some(number) = metadata.heal(&self.silent_ms(metadata), seen) {
            self.outbox.observe(Observation::DeclaredGone { node: metadata.members()[&number].node });
            return Some(Operation::Remove { number });
        }
        let planned = metadata.plan().map(Operation::Layout);
        planned.or_else(|| {
            let number = metadata.forgettable(&self.seen(metadata, true))?;
            Some(Operation::Forget { number })
        })
    }

    /// How long each member was silent, since this node leads.
    fn silent_ms(&self, metadata: &Metadata) -> BTreeMap<u16, u64> {
        let since_us = self.controller.reconciler.since.map_or(self.now.mono_us, |(_, since_us)| since_us);
        let silent = |node: NodeId| {
            let heard_us = self.peer(node).and_then(|peer| peer.heard_us).unwrap_or(0);
            if node == self.me { 0 } else { (self.now.mono_us - heard_us.max(since_us)) / 1_000 }
        };
        metadata.members().iter().map(|(number, member)| (*number, silent(member.node))).collect()
    }

    /// Returns what is known of the cluster beside the metadata group. `with_draining_replicas`, nodes that have not finished draining
    /// count as holders.
    fn seen(&self, metadata: &Metadata, with_draining_replicas: bool) -> Seen {
        let numbers: BTreeMap<NodeId, u16> =
            metadata.members().iter().map(|(number, member)| (member.node, *number)).collect();
        let number = |node: &NodeId| numbers.get(node).copied();
        let holders = |partition: PartitionId| {
            let cohort = self.cohort_of(partition);
            if with_draining_replicas { cohort.followers() } else { cohort.nodes() }
        };
        let known = |partition: &PartitionId| self.knows_holders(*partition);
        let partitions = (0..metadata.partitions() as u16).map(PartitionId).filter(known);
        Seen {
            heard: numbers.iter().filter(|(node, _)| self.is_alive(**node)).map(|(_, number)| *number).collect(),
            voters: holders(PartitionId::METADATA).iter().filter_map(number).collect(),
            cohorts: partitions.map(|id| (id, holders(id).iter().filter_map(number).collect())).collect(),
        }
    }

    /// Whether a leader has advertised the cohort of a partition.
    fn knows_holders(&self, partition: PartitionId) -> bool {
        let held = self.partitions.get(&partition).is_some_and(|replica| !replica.is_blank());
        (held || self.told_of(partition).is_some()) && self.leader_of(partition).is_some()
    }

    /// Moves the metadata group itself to able members.
    fn move_metadata(&mut self, metadata: &Metadata, seen: &Seen) {
        let cohort = self.partitions[&PartitionId::METADATA].cohort();
        let (heard, voters) = (seen.heard.clone(), seen.voters.clone());
        let wanted = metadata.voters_wanted(&Seen { heard, voters, ..Seen::default() });
        let same = wanted.iter().copied().eq(seen.voters.iter().copied());
        if !cohort.is_stable() || same || wanted.is_empty() {
            return;
        }
        let nodes: Vec<NodeId> = wanted.iter().map(|number| metadata.members()[number].node).collect();
        self.on_arrange(PartitionId::METADATA, &nodes);
    }

    /// Asks leaders to move a few partitions that are not on their target.
    fn move_partitions(&mut self, metadata: &Metadata, seen: &Seen) {
        let now_us = self.now.mono_us;
        self.controller.reconciler.asked.retain(|_, until_us| *until_us > now_us);
        let under_way = self.moving(metadata);
        for Move { partition, list, .. } in metadata.next_moves(seen, &under_way) {
            let Some(leader) = self.leader_of(partition) else { continue };
            let nodes: Vec<NodeId> = list.iter().map(|number| metadata.members()[number].node).collect();
            self.controller.reconciler.asked.insert(partition, self.after_ms(ASKED_MS));
            self.outbox.send(leader, Reconfiguration::Arrange { partition, nodes });
        }
    }

    /// Partitions on the move: the cohort changes, a living draining replica has not finished draining, or the leader was just asked.
    fn moving(&self, metadata: &Metadata) -> BTreeSet<PartitionId> {
        let changes = |partition: &PartitionId| {
            let cohort = self.cohort_of(*partition);
            let leaving = cohort
                .draining_replicas
                .iter()
                .any(|draining_replica| self.is_alive(draining_replica.slot.replica.node));
            !cohort.is_stable() || leaving || self.controller.reconciler.asked.contains_key(partition)
        };
        (0..metadata.partitions() as u16).map(PartitionId).filter(changes).collect()
    }

    /// Number of partitions that are not on their target, at the metadata leader.
    pub fn open_moves(&self) -> Option<u32> {
        let metadata = self.led_metadata()?;
        Some(metadata.open_moves(&self.seen(metadata, false)))
    }

    fn cluster_view(&self, metadata: &Metadata) -> ClusterView {
        let seen = self.seen(metadata, false);
        let node = |number: &u16| metadata.members().get(number).map(|member| member.node);
        let genesis = self.genesis.as_ref().expect("it leads");
        ClusterView {
            cluster: genesis.cluster,
            name: genesis.name.clone(),
            roster: metadata.roster(),
            voters: seen.voters.iter().filter_map(node).collect(),
            leader: self.me,
            heard: seen.heard.iter().filter_map(node).collect(),
            replicas: metadata.replicas(),
            settings: *metadata.settings(),
            layout: metadata.layout().version,
            stale: metadata.is_stale(),
            shares: metadata.moves(&seen.cohorts),
            moving: self.moving(metadata).into_iter().collect(),
            open: metadata.open_moves(&seen),
            unknown: metadata.partitions() - seen.cohorts.len() as u32,
        }
    }
}

/// Translates a requested change into the metadata group's terms.
fn wish(metadata: &Metadata, change: &ClusterChange) -> Result<Wish, Error> {
    let number = |node: &NodeId| {
        let member = metadata.members().iter().find(|(_, member)| member.node == *node);
        let number = member.map(|(number, _)| *number);
        number.ok_or_else(|| Error::new(ErrorCode::NotFound, format!("node {node} is no member of this cluster")))
    };
    Ok(match change {
        ClusterChange::Add { with } => Wish::Add(with.clone()),
        ClusterChange::Drain { node } => Wish::Drain { number: number(node)? },
        ClusterChange::Undrain { node } => Wish::Undrain { number: number(node)? },
        ClusterChange::Remove { node } => Wish::Remove { number: number(node)? },
        ClusterChange::Replace { node, with } => Wish::Replace { number: number(node)?, with: with.clone() },
        ClusterChange::Replicas { replicas } => Wish::SetReplicas { replicas: *replicas },
        ClusterChange::Weight { node, weight } => Wish::SetWeight { number: number(node)?, weight: *weight },
        ClusterChange::Zone { node, zone } => Wish::SetZone { number: number(node)?, zone: zone.clone() },
        ClusterChange::Address { node, address } => {
            Wish::SetAddress { number: number(node)?, address: address.clone() }
        }
        ClusterChange::Settings { settings } => Wish::SetSettings(*settings),
        ClusterChange::Arrange { partition, nodes } => {
            let list = nodes.iter().map(number).collect::<Result<Vec<u16>, Error>>()?;
            Wish::Arrange { partition: *partition, list }
        }
        ClusterChange::Queue { queue, setting } => Wish::SetQueue { queue: queue.clone(), setting: setting.clone() },
        ClusterChange::Rebalance => Wish::Rebalance,
    })
}
