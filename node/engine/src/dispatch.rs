//! Where messages, timers and forwarded calls go.

use crate::Node;
use crate::context::timers::Key;
use crate::write_read::PendingRequest;
use crate::write_read::group::WriteAnswer;
use norn_model::limits::WAKE_KEYS_MAX;
use norn_model::message::{
    AntiEntropy, Claiming, Election, Forwarding, GarbageCollection, Handoff, Limiting, PeerMessage, Peering, Query,
    ReadWrite, Reconfiguration, Replication, Workflow,
};
use norn_wire::{NodeId, Request, Response};

impl Node {
    pub(crate) fn on_message(&mut self, from: NodeId, message: PeerMessage) {
        if self.is_of_before(&message) {
            return;
        }
        if message.takes().is_some_and(|request_id| self.is_of_former_process(from, request_id)) {
            self.outbox.count("questions_of_ended_processes");
            return;
        }
        self.take_offered_slot(&message);
        self.handle_signals();
        if let Some(partition) = message.asks_for_promise().filter(|partition| !self.is_answered(*partition)) {
            self.outbox.count("promises_refused_at_start");
            self.refuse_unheld(from, partition, &message);
            return;
        }
        match message {
            PeerMessage::Peering(message) => self.on_peering(from, message),
            PeerMessage::Election(message) => self.on_election(from, message),
            PeerMessage::Replication(message) => self.on_replication(from, message),
            PeerMessage::Reconfiguration(message) => self.on_reconfiguration(from, message),
            PeerMessage::ReadWrite(message) => self.on_read_write(from, message),
            PeerMessage::Forwarding(message) => self.on_forwarding(from, message),
            PeerMessage::Query(message) => self.on_query(from, message),
            PeerMessage::AntiEntropy(message) => self.on_anti_entropy(from, message),
            PeerMessage::Handoff(message) => self.on_handoff(from, message),
            PeerMessage::GarbageCollection(message) => self.on_garbage_collection(from, message),
            PeerMessage::Claiming(message) => self.on_claiming(from, message),
            PeerMessage::Limiting(message) => self.on_limiting(from, message),
            PeerMessage::Workflow(message) => self.on_workflow(from, message),
        }
    }

    fn on_peering(&mut self, from: NodeId, message: Peering) {
        match message {
            Peering::Heartbeat(heartbeat) => self.on_heartbeat(from, *heartbeat),
            Peering::Roster { roster } => self.on_roster(&roster),
            Peering::RouteAsk { partitions } => self.on_route_ask(from, &partitions),
            Peering::Route { partition, advertised } => self.on_route(partition, &advertised),
        }
    }

    fn on_election(&mut self, from: NodeId, message: Election) {
        match message {
            Election::PreVote { partition, epoch, viewstamp } => self.on_pre_vote(from, partition, epoch, viewstamp),
            Election::PreVoteAnswer { partition, epoch, granted, promised, viewstamp } => {
                self.on_pre_vote_answer(from, partition, epoch, granted, (promised, viewstamp));
            }
            Election::Vote { partition, epoch, candidate, viewstamp } => {
                self.on_vote(from, partition, epoch, (candidate, viewstamp))
            }
            Election::Rescue { partition, epoch, candidate, viewstamp, lost } => {
                self.on_rescue(from, partition, epoch, (candidate, viewstamp), &lost);
            }
            Election::VoteAnswer { partition, epoch, replica, granted, promised, viewstamp, log: _ } => {
                self.on_vote_answer(from, partition, epoch, (replica, granted), (promised, viewstamp));
            }
            Election::Fetch { partition, viewstamp } => self.on_fetch(from, partition, viewstamp),
            Election::State { partition, viewstamp, table } => self.on_state(partition, viewstamp, &table),
            Election::Transfer { partition, epoch } => self.on_transfer(partition, epoch),
        }
    }

    fn on_replication(&mut self, from: NodeId, message: Replication) {
        match message {
            Replication::Install { partition, epoch, base, table, digest } => {
                self.on_install(from, partition, epoch, (base, table), u128::from_be_bytes(digest));
            }
            Replication::Snapshot { partition, viewstamp, table, commit } => {
                self.on_snapshot(from, partition, viewstamp, &table, commit)
            }
            Replication::Ops { partition, epoch, first, ops, commit, digest } => {
                self.on_ops(from, partition, epoch, (first, ops), (commit, u128::from_be_bytes(digest)));
            }
            Replication::Ack { partition, epoch, replica, length, done, missing, data_loss, log: _ } => {
                self.on_ack(from, partition, epoch, (replica, length, data_loss), done, missing);
            }
            Replication::LeaseAges { partition, asks, ages } => self.on_ages(from, partition, asks, ages),
            Replication::Nack { partition, replica, promised, viewstamp } => {
                self.on_nack(from, partition, replica, promised, viewstamp);
            }
            Replication::Rejoin { partition, request_id, viewstamp } => {
                self.on_rejoin(from, partition, request_id, viewstamp)
            }
            Replication::Rejoined { partition, request_id, viewstamp } => {
                self.on_rejoined(partition, request_id, viewstamp)
            }
        }
    }

    fn on_reconfiguration(&mut self, from: NodeId, message: Reconfiguration) {
        match message {
            Reconfiguration::Ready { partition, replica, at, ready, facts, log: _ } => {
                self.on_ready(from, partition, (replica, at), (ready, facts));
            }
            Reconfiguration::Dismiss { partition, at } => self.on_dismiss(partition, at),
            Reconfiguration::Outside { partition, advertised } => self.on_outside(from, partition, &advertised),
            Reconfiguration::Unheld { partition, replica } => self.on_unheld(from, partition, replica),
            Reconfiguration::Undrained { partition, slot } => self.on_undrained(from, partition, slot),
            Reconfiguration::Arrange { partition, nodes } => self.on_arrange(partition, &nodes),
        }
    }

    fn on_read_write(&mut self, from: NodeId, message: ReadWrite) {
        match message {
            ReadWrite::Write { request_id, partition, at, items } => {
                self.on_write(from, request_id, (partition, at), &items)
            }
            ReadWrite::Written {
                request_id,
                partition,
                replica,
                outcomes,
                boot,
                incomplete,
                at,
                advertised,
                log: _,
            } => {
                let lasting = incomplete && self.is_incomplete(from);
                let answer = WriteAnswer { outcomes, boot, incomplete, lasting, at };
                self.on_written(from, request_id, partition, replica, (answer, advertised));
            }
            ReadWrite::Kept { request_id, partition, outcomes } => self.on_kept(from, request_id, partition, outcomes),
            ReadWrite::Read { request_id, partition, at, id } => self.on_read(from, request_id, (partition, at), id),
            ReadWrite::Known { request_id, partition, replica, known } => {
                self.on_read_answer(from, request_id, partition, replica, *known);
            }
        }
    }

    fn on_forwarding(&mut self, from: NodeId, message: Forwarding) {
        match message {
            Forwarding::Forward { request_id, request } => self.on_forward(from, request_id, *request),
            Forwarding::Forwarded { request_id, response } => self.on_forwarded(request_id, *response),
        }
    }

    fn on_query(&mut self, from: NodeId, message: Query) {
        match message {
            Query::CountAsk { request_id, queue } => {
                let rate_tokens = self.rate_tokens_due(queue.as_ref());
                self.on_count_ask(from, (request_id, queue), rate_tokens);
            }
            Query::CountAnswer { request_id, partitions } => self.on_count_answer(from, request_id, partitions),
            Query::ListAsk { request_id, partition, queue, after, to, limit } => {
                self.on_list_ask(from, request_id, (partition, queue), (after, to), limit);
            }
            Query::ListAnswer { request_id, partitions, tasks, end } => {
                self.on_list_answer(from, request_id, &partitions, tasks, end)
            }
            Query::Watch { request_id, subject, at, compare } => self.on_watch(from, request_id, subject, at, &compare),
            Query::Watched { request_id, at, feed } => self.on_watched(from, request_id, at, feed.map(|feed| *feed)),
            Query::WatchNews { subject } => self.on_watch_news(from, &subject),
        }
    }

    fn on_anti_entropy(&mut self, from: NodeId, message: AntiEntropy) {
        match message {
            AntiEntropy::Roots { roots, round } => self.on_roots(from, &roots, round),
            AntiEntropy::GroupsAsk { partition, round, groups } => self.on_groups_ask(from, partition, round, &groups),
            AntiEntropy::GroupsAnswer { partition, round, at, equal } => {
                self.on_groups_answer(from, partition, (round, at), &equal);
            }
            AntiEntropy::RootsAnswer { equal, at, differ, round } => {
                self.on_roots_answer(from, (&equal, &at), &differ, round)
            }
            AntiEntropy::Tasks { partition, items, by_buckets, forgets } => {
                self.on_tasks(from, partition, &items, (by_buckets, forgets))
            }
            AntiEntropy::Recent { boot, parts } => self.on_recent(from, boot, &parts),
            AntiEntropy::Want { boot, parts } => self.on_want(from, boot, &parts),
            AntiEntropy::Need { partition, ids } => self.on_need(from, partition, &ids),
            AntiEntropy::Steps { steps } => self.on_steps(from, steps),
            AntiEntropy::Lacks { partition, id, holder } => self.on_lacks(partition, id, holder),
        }
    }

    fn on_handoff(&mut self, from: NodeId, message: Handoff) {
        match message {
            Handoff::Hint { number, partition, at, items, forgets } => {
                self.on_hint(from, number, (partition, at), &items, forgets);
            }
            Handoff::Hinted { number, partition, outcomes, boot, at, incomplete, log: _ } => {
                self.on_hinted(from, (number, partition), &outcomes, (boot, incomplete), at);
            }
        }
    }

    fn on_garbage_collection(&mut self, from: NodeId, message: GarbageCollection) {
        match message {
            GarbageCollection::Gone { partition, forgets, ids } => self.on_gone(from, partition, forgets, &ids),
            GarbageCollection::Compare { partition, epoch, number, items } => {
                self.on_compare(from, partition, (epoch, number), &items)
            }
            GarbageCollection::Compared { partition, epoch, number, replica, same } => {
                self.on_compared(from, partition, (epoch, number), (replica, same))
            }
            GarbageCollection::Tombs { partition, epoch, number, items } => {
                self.on_tombs(from, partition, (epoch, number), &items)
            }
            GarbageCollection::Buried { partition, epoch, number, replica, log: _ } => {
                self.on_buried(from, partition, (epoch, number), replica)
            }
            GarbageCollection::Outboxes { partition, epoch, number, above, up_to } => {
                self.on_outboxes(from, partition, (epoch, number), (above, up_to));
            }
            GarbageCollection::Childless { partition, epoch, number, slots } => {
                self.on_childless(from, partition, (epoch, number), slots)
            }
            GarbageCollection::Forget { partition, epoch, count } => self.on_forget(from, partition, epoch, count),
            GarbageCollection::Forgot { partition, epoch, count, replica, log: _ } => {
                self.on_forgot(from, partition, (epoch, count), replica)
            }
        }
    }

    fn on_claiming(&mut self, from: NodeId, message: Claiming) {
        match message {
            Claiming::Wake { partition, epoch, ids } => self.on_wake_message(from, partition, epoch, ids),
            Claiming::Led { partition, epoch, leads } => self.on_led(from, partition, epoch, leads),
            Claiming::Probe { request_id, queues } => self.on_probe(from, request_id, queues),
            Claiming::Probed { request_id, heads, covered } => self.on_probed(from, request_id, &heads, &covered),
            Claiming::Pull { request_id, queues } => self.on_pull(from, request_id, &queues),
            Claiming::Pulled { request_id, partitions, ready, more } => {
                self.on_pulled(from, request_id, &partitions, (&ready, more))
            }
            Claiming::GrantAsk { request_id, claim, max, recall, got } => {
                self.on_grant_ask(from, request_id, *claim, max, (recall, &got));
            }
            Claiming::GrantAnswer { request_id, claim, tasks, heads, partitions } => {
                self.on_grant_answer(from, request_id, claim, tasks, (&heads, &partitions));
            }
            Claiming::Return { items } => self.on_return(&items),
            Claiming::ConfirmAsk { items } => self.on_confirm_ask(from, &items),
            Claiming::ConfirmAnswer { settled, back } => self.on_confirm_answer(from, &settled, &back),
            Claiming::Leave { claim, keeps } => self.on_claim_left(claim, &keeps.into_iter().collect()),
            Claiming::Interest { queues } => self.on_interest(from, &queues),
            Claiming::Available { queue, head } => self.on_available(from, &queue, head),
        }
    }

    fn on_limiting(&mut self, from: NodeId, message: Limiting) {
        match message {
            Limiting::PermitAsk { request_id, queue, wanted } => self.on_permit_ask(from, request_id, queue, wanted),
            Limiting::Permits { request_id, queue, count, wait_ms } => {
                self.on_permits(request_id, &queue, count, wait_ms)
            }
            Limiting::PermitsBack { request_id, queue, count } => self.on_permits_back(from, request_id, &queue, count),
            Limiting::QuotaAsk { partition, epoch, request_id, queue, keeps, wants } => {
                self.on_quota_ask(from, (partition, epoch, request_id), queue, (keeps, wants));
            }
            Limiting::Quota { partition, epoch, request_id, queue, count } => {
                self.on_quota((partition, epoch), request_id, &queue, count)
            }
            Limiting::QuotaCall { partition, queue, share } => self.on_quota_call(partition, &queue, share),
        }
    }

    fn on_workflow(&mut self, from: NodeId, message: Workflow) {
        match message {
            Workflow::Follow { partition, ids } => self.on_follow(from, partition, &ids),
            Workflow::Ends { partition, ends, joins } => self.on_ends(from, partition, &ends, &joins),
            Workflow::MemberFailed { member, how } => self.on_member_failed(member, how),
            Workflow::KeyAsk { request_id, partition, epoch, queue, key, ids } => {
                self.on_key_ask(from, (request_id, epoch), (partition, queue, key), &ids);
            }
            Workflow::KeyAnswer { request_id, partition, replica, open, ended } => {
                self.on_key_answer(from, (request_id, partition), replica, (&open, &ended));
            }
            Workflow::Prepare { partition, coordinator, round, part } => {
                self.on_prepare(from, partition, (coordinator, round), part);
            }
            Workflow::PartVote { coordinator, partition, id, round, vote } => {
                self.on_part_vote((coordinator, id), partition, round, vote);
            }
            Workflow::Conclude { coordinator, partition, id, round, commit } => {
                self.on_conclude(from, (partition, id), (coordinator, round), commit);
            }
            Workflow::Concluded { coordinator, partition, id, round } => {
                self.on_concluded((coordinator, id), partition, round);
            }
            Workflow::AskOutcome { coordinator, partition, id, round } => {
                self.on_ask_outcome(from, (coordinator, id), partition, round);
            }
        }
    }

    pub(crate) fn on_wake(&mut self) {
        for _ in 0..WAKE_KEYS_MAX {
            let Some(key) = self.timers.pop(self.now.mono_us) else { return };
            self.on_timer(key);
            self.handle_signals();
        }
    }

    fn on_timer(&mut self, key: Key) {
        match key {
            Key::Heartbeat => self.begin_heartbeats(),
            Key::AntiEntropy => {
                self.anti_entropy_round();
                self.look_for_children();
                self.ask_for_bodies();
            }
            Key::Summaries => self.tell_summaries(),
            Key::Sweep => self.sweep(),
            Key::Stop => self.stop_if_handed_over(),
            Key::Election(partition) => self.on_election_timer(partition),
            Key::Resend(partition) => self.resend(partition),
            Key::Expiry(partition) => self.expire(partition),
            Key::Delayed(partition) => self.release_due(partition),
            Key::Drop(partition) => self.drop_ended(partition),
            Key::Quiet(partition) => self.wake_leader(partition),
            Key::Wake(partition) => self.on_wake_unanswered(partition),
            Key::PendingRequest(request_id) => self.on_request_timer(request_id),
            Key::Grant(session) => self.on_grant_deadline(session),
            Key::Claim(call) => self.on_claim_timer(call),
            Key::Park(call) => self.on_park_end(call),
            Key::Return(number) => self.say_back(number),
            Key::Returns => self.say_returns(),
            Key::Rejoin => self.ask_to_rejoin(),
            Key::Retire(partition) => self.retire(partition),
            Key::Follow(partition) => self.sweep_dependencies(partition),
            Key::Sessions(partition) => self.sweep_sessions(partition),
            Key::Children(partition) => self.hand_over_children(partition),
            Key::Change(partition) => self.drive_change(partition),
            Key::Repair => self.repair(),
            Key::Hints => self.hand_over_hints(),
            Key::Reconciler => self.steer(),
            Key::Schedules => self.see_to_schedules(),
            Key::RateTokens => self.see_to_rate_tokens(),
            Key::Levels => self.keep_levels(),
            Key::SlotQuotas => self.see_to_slot_quotas(),
            Key::Transactions(partition) => self.see_to_transactions(partition),
            Key::LeaseAges => self.see_to_ages(),
        }
    }

    pub(crate) fn on_request_timer(&mut self, number: u64) {
        let Some(pending) = self.pending_requests.get(number) else { return };
        let over = self.now.mono_us >= pending.deadline_us();
        match pending {
            PendingRequest::Write(_) if over => self.write_ended(number),
            PendingRequest::Write(_) => {
                self.keep_for_absent(number);
                self.send_writes(number);
            }
            PendingRequest::Read(_) if over => {
                let ended = self.read_deadline(number);
                self.read_ended(ended);
            }
            PendingRequest::Read(_) => self.send_reads(number),
            PendingRequest::Count(_) => self.on_count_timer(number, over),
            PendingRequest::List(_) if over => self.list_deadline(number),
            PendingRequest::List(_) => self.send_list_asks(number),
            PendingRequest::Forward(_) if over => self.finish_forward(number),
            PendingRequest::Forward(_) => self.forward_open_parts(number),
            PendingRequest::Probe(_) if over => self.conclude_pulls(number),
            PendingRequest::Probe(_) => self.send_pulls(number),
            PendingRequest::Steer(_) if over => self.steer_deadline(number),
            PendingRequest::Steer(_) => self.send_to_leader(number),
            PendingRequest::Watch(_) => self.on_watch_timer(number, over),
        }
    }

    /// At the leader: decides each part, appends what is allowed, and answers once that is committed.
    pub(crate) fn on_forward(&mut self, from: NodeId, request_id: u64, request: Request) {
        if matches!(
            request,
            Request::Change { .. }
                | Request::Arrange { .. }
                | Request::Cluster
                | Request::Schedule(_)
                | Request::Schedules { .. }
        ) {
            self.on_steer(from, request_id, &request);
            return;
        }
        if matches!(request, Request::EnqueueUnique { .. }) {
            self.on_unique(from, request_id, request);
            return;
        }
        if let Request::Transact(transaction) = request {
            self.on_transact(from, request_id, transaction);
            return;
        }
        self.on_claim_call(from, request_id, request);
    }

    /// At the node that forwarded a call, or a part of it: the leader's answer.
    fn on_forwarded(&mut self, part: u64, response: Response) {
        let Some(request_id) = self.pending_requests.take_alias(part) else { return };
        if let Some(PendingRequest::Steer(_)) = self.pending_requests.get(request_id) {
            self.metadata_answered(request_id, response);
        } else {
            self.part_answered(request_id, part, response);
        }
    }
}
