//! What follows once something that took several steps has ended: a write to the log, a write to replicas, an operation. Each
//! outcome goes to the folder that waits for it.

use crate::Node;
use crate::effect::Ticket;
use crate::write_read::coordinate::{WriteEnd, Writer};
use crate::write_read::read::ReadEnd;
use norn_model::config::mutant;
use norn_model::consensus::Waiting;
use norn_model::message::Known;
use norn_model::task::Place;
use norn_model::viewstamp::{ReplicaId, Viewstamp};
use norn_wire::{NodeId, PartitionId, Response, TaskId};

impl Node {
    /// Handles a replica's answer to a read. Once enough have answered, replicas that lack something are repaired, then the requester
    /// goes on.
    pub(crate) fn on_read_answer(
        &mut self,
        from: NodeId,
        request_id: u64,
        partition: PartitionId,
        replica: ReplicaId,
        known: Known,
    ) {
        if let Some(seen) = self.on_known(from, request_id, partition, replica, known) {
            self.repair_laggards(request_id, &seen.task);
            let ended = self.end_read(request_id, seen);
            self.read_ended(ended);
        }
    }

    /// Hands the requester of a read what came of it.
    pub(crate) fn read_ended(&mut self, ended: Option<(TaskId, ReadEnd)>) {
        let Some((id, end)) = ended else { return };
        match end {
            ReadEnd::Redrive { asker, read: Ok(seen) } => self.redrive_read(id, asker, &seen),
            ReadEnd::Redrive { asker, read: Err(error) } => self.not_redriven(id, &asker, error),
            ReadEnd::Purge { purger, read: Ok((seen, all_know)) } => self.purge_read(id, &purger, &seen, all_know),
            ReadEnd::Purge { purger, read: Err(error) } => self.not_purged(id, &purger, error),
            ReadEnd::Transaction { transaction, read } => {
                let read = read.as_ref().map(|(seen, epoch)| (&seen.task, *epoch)).map_err(Clone::clone);
                self.transaction_read(transaction, id, read);
            }
            ReadEnd::Claim { claim, read } => {
                let read = read.as_ref().map(|seen| (&seen.task, seen.entry.as_ref())).map_err(Clone::clone);
                self.depend_read(claim, id, read);
            }
            ReadEnd::LetGo { everywhere } => self.let_go(id, everywhere),
        }
    }

    /// Ends a write, whose results are known or whose time is over.
    pub(crate) fn write_ended(&mut self, request_id: u64) {
        if let Some(end) = self.end_write(request_id) {
            self.tell_writer(end);
        }
    }

    /// Reports the result of each task to the requester. A single result goes without a list around it where that was asked for.
    fn tell_writer(&mut self, WriteEnd { writer, single, ids, mut results }: WriteEnd) {
        let errors = results.iter_mut().filter_map(|result| result.as_mut().err());
        match writer {
            Writer::Client(..) => errors.for_each(|error| self.date_refusal(error)),
            // These results go to other nodes, and older versions could not read the cause.
            _ => errors.for_each(|error| error.cause = None),
        }
        let (client, number) = match writer {
            Writer::Client(client, number) => (client, number),
            Writer::Children(delivery) => return self.children_written(delivery, &results),
            Writer::Schedule(firing) => {
                let told = ids.into_iter().zip(results);
                return told.for_each(|(id, result)| self.schedule_written(firing, id, result));
            }
            Writer::Redrive(copying) => return self.redriven(*copying, results.pop().expect("it is one write")),
            Writer::Abort(group) => return self.group_aborted(&group),
            Writer::Transaction(key) => return self.transaction_written(key, &results),
            Writer::Unique(name) => {
                return self.unique_written(&name, ids[0], results.pop().expect("it is one write"));
            }
        };
        let response = match (single, results.pop()) {
            (true, Some(Ok(acked))) => Response::AckedOne(acked),
            (true, Some(Err(error))) => Response::Error(error),
            (_, last) => Response::Acked(results.into_iter().chain(last).collect()),
        };
        self.outbox.reply(client, number, response);
    }

    /// Handles the commit of an operation that something waits for.
    pub(crate) fn committed(&mut self, partition: PartitionId, at: Viewstamp, waiting: Waiting) {
        match waiting {
            Waiting::Grant { session, items, fresh } => {
                self.granted(partition, fresh.then_some(at), session, &items);
            }
            Waiting::Call { call, slots } => self.call_committed(call, &slots),
            Waiting::Metadata { roster, answer } => self.metadata_committed(&roster, answer),
            Waiting::Kill { id } => {
                if let Some(verdict) = self.partitions[&partition].verdict(&id) {
                    self.merge(partition, vec![(id, verdict)]);
                }
            }
            Waiting::Seal(sealing) => self.seal_committed(partition, sealing),
            Waiting::Reserve { name, id } => self.unique_reserved(&name, id),
            Waiting::Decide { id } => self.transaction_decided((partition, id)),
            Waiting::Prepare { id, round } => self.part_prepared((partition, id), round),
            Waiting::Made { id } => self.part_made((partition, id)),
            Waiting::Refuse { id } => self.transaction_refused((partition, id)),
            Waiting::RateTokens(giving) => self.rate_tokens_given(*giving),
            Waiting::Void { rate_tokens } => self.unuse_rate_tokens(rate_tokens),
            Waiting::SlotQuota(changing) => self.slot_quota_changed(*changing),
        }
    }

    /// The leader steps down: it never learns whether these operations commit.
    pub(crate) fn give_up(&mut self, at: Viewstamp, waiting: Waiting) {
        match waiting {
            Waiting::Grant { session, items, fresh } => self.grants_given_up(at, session, items, fresh),
            Waiting::Call { call, slots } => self.call_given_up(call, &slots),
            Waiting::Metadata { answer, .. } => self.metadata_given_up(answer),
            Waiting::Seal(sealing) => self.seal_given_up(&sealing),
            // Their requesters are answered where the leader steps down.
            Waiting::Kill { .. }
            | Waiting::Reserve { .. }
            | Waiting::Decide { .. }
            | Waiting::Prepare { .. }
            | Waiting::Made { .. }
            | Waiting::Refuse { .. }
            | Waiting::RateTokens(_)
            | Waiting::Void { .. }
            | Waiting::SlotQuota(_) => {}
        }
    }

    /// Drops the claims of tasks that have ended. Those stay whose letters are not written. Reservations and transactions are settled
    /// before the operation, as their own operations are.
    pub(crate) fn drop_ended(&mut self, partition: PartitionId) {
        let Some(ids) = self.droppable(partition) else { return };
        let owed = self.owed_dead_letters(partition, &ids);
        let (dropped, endings) = self.take_endings(partition, ids, owed);
        self.forget_dead_letters(&dropped);
        self.settle_reserved(partition);
        self.settle_transactions(partition);
        self.append_endings(partition, endings);
    }

    /// Handles a part of the log that is on disk now. The first part ends the start: from then on peers may hear the node.
    pub(crate) fn on_persisted(&mut self, ticket: Ticket, places: &[Option<Place>], durable: u64) {
        self.note_places(ticket, places);
        self.note_durable(ticket, durable);
        self.outbox.persisted(if mutant!(self.config, GroupAnswersEarly) { self.outbox.issued() } else { ticket });
        if std::mem::take(&mut self.starting)
            && let Some(genesis) = self.genesis.clone()
        {
            self.begin(genesis);
        }
    }
}
