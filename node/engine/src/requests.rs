//! Clients' requests: validated against the limits, then dispatched to the code that answers them.

use super::Node;
use super::event::{ClientId, Principal};
use crate::context::timers::Key;
use crate::effect::Effect;
use crate::membership::roster::is_sound;
use crate::queries::count::Shape;
use crate::queries::list::Selection;
use crate::retention::purge::Purger;
use crate::workflow::redrive::Asker;
use crate::write_read::read::Until;
use norn_model::consensus::Rescue;
use norn_model::limits::REQUESTS_MAX;
use norn_model::record::Record;
use norn_model::ring;
use norn_model::task::{Cancel, GroupFacts, Task};
use norn_wire::error::{Cause, Error, ErrorCode};
use norn_wire::membership::Membership;
use norn_wire::response::{Genesis, Standing};
use norn_wire::{Acks, ClaimId, NewTask, NodeId, PartitionId, Request, Response, TaskId, Transaction};
use std::sync::Arc;

/// How long a stopping node tries to transfer its leaderships.
const STOP_MS_MAX: u64 = 2_000;
/// Time between its checks.
const STOP_LOOK_MS: u64 = 20;

/// Rejects a request that breaks a limit, before anything is done.
fn validate(request: &Request) -> Result<(), Error> {
    match request {
        // Sessions draw the id when they send the call, which is after they have checked it.
        Request::Claim(claim) if claim.claim == ClaimId(0) => {
            Err(Error::invalid("a claim call has no id; draw a random one, and keep it when the call is repeated"))
        }
        _ => request.check(),
    }
}

impl Node {
    pub(crate) fn on_request(&mut self, client: ClientId, number: u64, principal: &Principal, request: Request) {
        self.claims.hear(client, self.now.mono_us, matches!(request, Request::Ping));
        let admitted = validate(&request).and_then(|()| self.admit_request(&request));
        if let Err(error) = admitted {
            self.outbox.reply(client, number, Response::Error(error));
            return;
        }
        self.outbox.count_request(&request);
        self.route(client, number, principal, request);
    }

    /// Whether the node can take a request now.
    fn admit_request(&self, request: &Request) -> Result<(), Error> {
        let facts = request.facts();
        if facts.of_any_node {
            return Ok(());
        }
        if self.genesis.is_none() {
            let message = "this node waits for `norn cluster init`, or to be added by `norn cluster add`";
            return Err(Error::new(ErrorCode::NotReady, message).because(Cause::Unfounded));
        }
        if self.starting {
            return Err(Error::new(ErrorCode::NotReady, "this node is starting; ask again"));
        }
        if self.stopping {
            return Err(Error::new(ErrorCode::NotReady, "this node is stopping; ask another"));
        }
        if !facts.of_removed_nodes && self.roster.version > 0 && !self.is_member(self.me) {
            let message = "this node was removed from its cluster; ask another one";
            return Err(Error::new(ErrorCode::NotReady, message).because(Cause::Removed));
        }
        self.admit_acks(request)?;
        self.admit_growth(request)?;
        if self.pending_requests.count() + self.claims.calls_waiting() >= REQUESTS_MAX {
            let message = "too many requests are under way at this node";
            return Err(Error::new(ErrorCode::Overloaded, message).because(Cause::TurnedAway));
        }
        Ok(())
    }

    /// Refuses a write that asks for more acks than a task of it has replicas: it would be stored, and never be answered well.
    fn admit_acks(&self, request: &Request) -> Result<(), Error> {
        let Some(Acks::Count(wanted)) = request.acks() else { return Ok(()) };
        let replicas = |id: &TaskId| self.cohort_of(self.partition_of(id)).holders().count();
        let too_few = |id: &&TaskId| replicas(id) < usize::from(wanted.get());
        match request.written().iter().find(too_few) {
            None => Ok(()),
            Some(id) => {
                let replicas = replicas(id);
                let message = format!(
                    "{wanted} acks are asked for, and the task has {replicas} replicas: ask for 1 to {replicas}"
                );
                Err(Error::new(ErrorCode::Invalid, message).about(*id))
            }
        }
    }

    fn route(&mut self, client: ClientId, number: u64, principal: &Principal, request: Request) {
        match request {
            Request::Hello { bare, .. } => self.hello(client, number, bare),
            Request::Enqueue { tasks, acks } => self.enqueue(client, number, tasks, acks),
            Request::EnqueueUnique { task } => self.enqueue_unique(client, number, task),
            Request::Transact(transaction) => self.transact(client, number, transaction),
            Request::CloseGroup { id, total, acks } => {
                self.write(client, number, vec![(id, Task::from_group(GroupFacts::closed(total)))], (acks, true));
            }
            Request::Update { id, token, sequence, data, acks } => {
                self.write(client, number, vec![(id, Task::from_update(token, sequence, data))], (acks, true));
            }
            Request::Complete { items, acks } => self.complete(client, number, items, acks),
            Request::Cancel { id, reason, at_ms, acks } => {
                self.cancel(client, number, id, Cancel { dead: false, reason, at_ms }, acks);
            }
            Request::Get { id, minimum, minimum_sequence } => {
                let exact = minimum.map(|(token, sequence)| Until::Logged(Some(token), sequence.saturating_add(1)));
                let until = exact.or(minimum_sequence.map(|length| Until::Logged(None, length))).unwrap_or(Until::Now);
                self.read(client, number, id, until, self.config.request_timeout_ms);
            }
            Request::Wait { id, timeout_ms } => self.read(client, number, id, Until::Ended, timeout_ms.max(100)),
            Request::Watch { subject, cursor, wait_ms } => self.watch(client, number, (subject, cursor), wait_ms),
            Request::List { queue, state, after, from, to, limit } => {
                let after = after.max(from.map(before));
                self.list(client, number, Selection { queue, state, after, to, limit });
            }
            Request::Count { queue, state } => self.count(client, number, queue, Shape::Count(state)),
            Request::Queues => self.count(client, number, None, Shape::Queues),
            Request::Status => self.count(client, number, None, Shape::Status),
            Request::Claim(mut claim) => {
                if claim.worker.is_empty() {
                    claim.worker = principal.name.as_ref().to_owned();
                }
                self.claim(client, number, claim);
            }
            Request::Renew { .. } | Request::Release { .. } | Request::Fail { .. } => {
                self.forward(client, number, request)
            }
            Request::Redrive { id, child, queue, acks } => {
                let until_us = self.after_ms(self.config.request_timeout_ms);
                self.redrive(id, Asker::Client { client, number, child, queue, acks, until_us });
            }
            Request::Purge { id, acks, state } => self.purge(id, Purger { client, number, acks, state }),
            Request::Nodes => self.outbox.reply(client, number, Response::Nodes(self.node_views())),
            Request::Ring => self.outbox.reply(client, number, Response::Partitions(self.ring_views())),
            Request::Partitions => {
                let views = self.partition_views();
                self.outbox.reply(client, number, Response::Partitions(views));
            }
            Request::Arrange { .. }
            | Request::Change { .. }
            | Request::Cluster
            | Request::Schedule(_)
            | Request::Schedules { .. } => self.ask_leader(client, number, request),
            Request::Recover { lost, partitions, lease_ms } => {
                let rescue = Rescue { lost: lost.into_iter().collect(), lease_ms };
                self.rescue((client, number), &rescue, &partitions);
            }
            Request::Identify => {
                let identity = Box::new(self.identity());
                self.outbox.reply_durable(client, number, Response::Identity(identity));
            }
            Request::Ping => self.outbox.reply(client, number, Response::Done),
            Request::Confirm { claim } => self.confirm_claim(client, number, claim),
            Request::Leave { claim, elsewhere, over, keeps } => {
                self.leave_claim((client, number), claim, (elsewhere, over), keeps);
            }
            Request::Initialize(genesis) => self.initialize(client, number, *genesis),
            Request::Join(membership) => {
                let result = self.accept_membership(*membership);
                self.answer_join(client, number, result);
            }
        }
    }

    /// Enqueues a task that must be the only open one with its key.
    fn enqueue_unique(&mut self, client: ClientId, number: u64, task: Box<NewTask>) {
        // Whether there is room, the key's leader checks once it knows that the task does not exist.
        match self.check_cycles(std::iter::once(&*task)) {
            Ok(()) => self.ask_leader(client, number, Request::EnqueueUnique { task }),
            Err(error) => self.outbox.reply(client, number, Response::Error(error)),
        }
    }

    /// Changes several tasks in one transaction.
    fn transact(&mut self, client: ClientId, number: u64, transaction: Box<Transaction>) {
        match self.check_cycles(transaction.adds.iter()) {
            Ok(()) => self.ask_leader(client, number, Request::Transact(transaction)),
            Err(error) => self.outbox.reply(client, number, Response::Error(error)),
        }
    }

    /// Joins a new cluster as a founder, once.
    fn initialize(&mut self, client: ClientId, number: u64, genesis: Genesis) {
        let result = self.accept_genesis(genesis);
        self.answer_join(client, number, result);
    }

    fn answer_join(&mut self, client: ClientId, number: u64, result: Result<(), Error>) {
        match result {
            Ok(()) => self.outbox.reply_durable(client, number, Response::Done),
            Err(error) => self.outbox.reply(client, number, Response::Error(error)),
        }
    }

    fn accept_genesis(&mut self, genesis: Genesis) -> Result<(), Error> {
        if let Some(own) = &self.genesis {
            return if **own == genesis {
                Ok(())
            } else {
                let message = format!("this node belongs to cluster {} ({:?}) already", own.cluster, own.name);
                Err(Error::new(ErrorCode::Conflict, message))
            };
        }
        ring::validate(&genesis).map_err(Error::invalid)?;
        let own = genesis.members.iter().find(|member| member.node == self.me);
        if own.is_none_or(|member| member.incarnation != self.founding.incarnation) {
            return Err(Error::new(
                ErrorCode::Conflict,
                "the record does not name the identity in this data directory",
            ));
        }
        if own.is_some_and(|member| member.name != self.founding.name) {
            let message =
                format!("the record names this node otherwise than its certificate, {:?}", self.founding.name);
            return Err(Error::new(ErrorCode::Conflict, message));
        }
        let genesis = Arc::new(genesis);
        self.outbox.persist(Record::Genesis(genesis.clone()));
        self.join(genesis.clone());
        if !self.starting {
            self.begin(genesis);
        }
        Ok(())
    }

    /// Joins a cluster to which the node was added.
    fn accept_membership(&mut self, membership: Membership) -> Result<(), Error> {
        let Membership { genesis, roster } = membership;
        if let Some(own) = &self.genesis {
            return if **own == genesis && self.member(self.me).is_some() {
                Ok(())
            } else {
                let message = format!("this node belongs to cluster {} ({:?}) already", own.cluster, own.name);
                Err(Error::new(ErrorCode::Conflict, message))
            };
        }
        ring::validate(&genesis).map_err(Error::invalid)?;
        if !is_sound(&roster) {
            return Err(Error::invalid("the list of members is none that a cluster has"));
        }
        let own = roster.members.values().find(|member| member.node == self.me);
        let own = own.filter(|member| member.state.is_present() && member.incarnation == self.founding.incarnation);
        let Some(own) = own else {
            let message = "the cluster has no member with the identity in this data directory; add the node first";
            return Err(Error::new(ErrorCode::Conflict, message));
        };
        if own.name != self.founding.name {
            let message =
                format!("the cluster knows this node otherwise than its certificate, {:?}", self.founding.name);
            return Err(Error::new(ErrorCode::Conflict, message));
        }
        let (genesis, roster) = (Arc::new(genesis), Arc::new(roster));
        self.outbox.persist(Record::Genesis(genesis.clone()));
        self.outbox.persist(Record::Roster(roster.clone()));
        self.join(genesis.clone());
        self.take_roster(roster);
        if !self.starting {
            self.begin(genesis);
        }
        Ok(())
    }

    pub(crate) fn on_client_gone(&mut self, client: ClientId) {
        self.drop_requests_of(client);
        self.drop_claims_of(client);
    }

    pub(crate) fn on_shutdown(&mut self) {
        if self.stopping {
            return;
        }
        self.stopping = true;
        self.stop_deadline_us = self.after_ms(STOP_MS_MAX);
        self.stop_if_handed_over();
    }

    /// Transfers leaderships; emits `Stopped` when none are left, or when it took too long.
    pub(crate) fn stop_if_handed_over(&mut self) {
        let led: Vec<(PartitionId, Vec<NodeId>)> = self
            .partitions
            .values()
            .filter(|replica| replica.consensus.leading().is_some())
            .map(|replica| (replica.id, replica.cohort().voters()))
            .collect();
        let alone = self.others().all(|node| !self.is_alive(node));
        if led.is_empty() || alone || self.now.mono_us >= self.stop_deadline_us {
            self.outbox.effect(Effect::Stopped);
            return;
        }
        for (partition, cohort) in led {
            let fit =
                |node: &NodeId| *node != self.me && self.is_alive(*node) && self.standing_of(*node) < Standing::Fenced;
            let mut alive: Vec<NodeId> = cohort.into_iter().filter(fit).collect();
            // A suspect clock is better than no leader.
            alive.sort_by_key(|node| self.standing_of(*node));
            self.transfer(partition, &alive);
        }
        self.timers.set(Key::Stop, self.after_ms(STOP_LOOK_MS));
    }
}

/// Returns the id just below another.
fn before(id: norn_wire::TaskId) -> norn_wire::TaskId {
    let mut bytes = id.to_bytes();
    for byte in bytes.iter_mut().rev() {
        let (lower, borrow) = byte.overflowing_sub(1);
        *byte = lower;
        if !borrow {
            return norn_wire::TaskId::from_bytes(bytes);
        }
    }
    norn_wire::TaskId::MIN
}
