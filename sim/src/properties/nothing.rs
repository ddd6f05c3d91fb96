//! A claim invoked after a strictly acknowledged enqueue of ready work is not answered "nothing" while no other claim took the work.
//! (ARCHITECTURE.md I-26)
//!
//! Judged only by tasks that were never granted and that no client tried to cancel or complete so far, and only by answers that speak
//! for all partitions.

use super::Property;
use crate::adapter::Call;
use crate::history::{Fact, Finished, Happening, History, Moment, writes_of};
use norn_model::claim_table::table::Op;
use norn_model::record::Record;
use norn_wire::request::Request;
use norn_wire::response::Response;
use norn_wire::{QueueName, TaskId};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
pub struct Nothing {
    untouched: BTreeMap<TaskId, Moment>,
    touched: BTreeSet<TaskId>,
    /// Queues that are or were paused or limited: they may have work that is not granted.
    limited: BTreeSet<QueueName>,
}

impl Nothing {
    fn touch(&mut self, id: TaskId) {
        self.untouched.remove(&id);
        self.touched.insert(id);
    }
}

// S33
impl Property for Nothing {
    fn name(&self) -> &'static str {
        "nothing"
    }

    fn see(&mut self, history: &History, moment: Moment, happening: &Happening<'_>) -> Result<(), String> {
        match happening {
            Happening::Sent { request }
                if !matches!(request, Request::Enqueue { .. } | Request::EnqueueUnique { .. }) =>
            {
                writes_of(request).into_iter().for_each(|(id, _)| self.touch(id));
            }
            Happening::Appended { records, .. } => {
                for record in *records {
                    if let Record::Roster(roster) = record {
                        let limited = roster.policies.iter().filter(|(_, policy)| {
                            policy.paused || policy.rate.is_some() || policy.concurrency.is_some()
                        });
                        self.limited.extend(limited.map(|(queue, _)| queue.clone()));
                    }
                    let Record::Ops { ops, .. } = record else { continue };
                    for op in ops {
                        if let Op::Grant { items, .. } = &**op {
                            items.iter().for_each(|(id, _)| self.touch(*id));
                        }
                    }
                }
            }
            Happening::Finished(Finished { call: Call::Enqueue { .. }, result: Ok(response), .. }) => {
                for (_, acked) in crate::history::acks_of(response) {
                    let ready = history.specs.get(&acked.id).is_some_and(|spec| {
                        let fact = Fact::Spec(crate::history::spec_hash(spec));
                        let waits = spec.not_before_ms > 0
                            || !spec.after.is_empty()
                            || spec.key.is_some()
                            || spec.grouping.is_some();
                        !waits && history.strict.contains_key(&(acked.id, fact))
                    });
                    if ready && !self.touched.contains(&acked.id) {
                        self.untouched.entry(acked.id).or_insert(moment);
                    }
                }
            }
            Happening::Finished(Finished {
                call: Call::Request(Request::Claim(claim)),
                submitted,
                result: Ok(Response::Claimed { tasks, unavailable: 0, .. }),
                client,
            }) if tasks.is_empty() && claim.session.is_none() => {
                let asked_for = |queue: &QueueName| claim.queues.contains(queue) && !self.limited.contains(queue);
                let mut untouched = self.untouched.iter();
                let there = untouched.find(|(id, acked)| **acked < *submitted && asked_for(&history.specs[*id].queue));
                if let Some((id, acked)) = there {
                    return Err(format!(
                        "client {client} was told that there is nothing, but task {id} of partition {} was confirmed {} us \
                         before it asked and is untouched",
                        history.partition(id),
                        submitted.time_us - acked.time_us
                    ));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::*;
    use super::*;

    fn nothing(unavailable: u32) -> Response {
        Response::Claimed { tasks: Vec::new(), unavailable, left: 0 }
    }

    #[test]
    fn nothing_is_refused_while_there_is_untouched_work() {
        let mut bench = Bench::<Nothing>::new();
        let before = bench.now();
        bench.enqueued(1);
        let after = Moment { sequence: bench.now().sequence + 1, ..bench.now() };
        assert!(bench.finish(claim(), before, nothing(0)).is_ok(), "it was asked before");
        assert!(bench.finish(claim(), after, nothing(1)).is_ok(), "the answer is not complete");
        assert!(bench.finish(claim(), after, nothing(0)).is_err());
        bench.see(Happening::Sent { request: &cancel(1) }).unwrap();
        assert!(bench.finish(claim(), after, nothing(0)).is_ok(), "somebody may have ended it");
    }
}
