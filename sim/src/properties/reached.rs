//! What is granted to a call whose client is never reached goes back soon, as long as nothing fails: it is not held until its lease
//! is over.
//!
//! It counts from the grant on: an answer may never be said, as where a client has left meanwhile. Where the lease is over before, it was
//! no attempt all the same, but for a grant that was found again or confirmed once.
//! A client is reached when it says that the answer has come, and is not any more when it takes leave of its claim.

use super::Property;
use crate::adapter::Call;
use crate::history::{Happening, History, Moment};
use norn_client::wire::request::Request;
use norn_client::wire::response::Response;
use norn_client::wire::{ClaimId, TaskId, Token};
use norn_node::protocol::Observation;
use norn_node::protocol::consistent::table::Op;
use norn_node::protocol::record::Record;
use std::collections::{BTreeMap, BTreeSet};

/// Two seconds in which a client confirms, and what it takes to give back.
const BACK_US: u64 = 3_000_000;

/// See the module.
#[derive(Debug, Default)]
pub struct Reached {
    /// Nothing fails.
    judges: bool,
    /// Calls of clients that say whether an answer has come.
    confirming: BTreeSet<ClaimId>,
    /// What leaders granted to them and no client has yet, and since when.
    granted: BTreeMap<(TaskId, Token), (ClaimId, u64)>,
    /// Those of them that were found again.
    renewed: BTreeSet<(TaskId, Token)>,
    /// What clients were given.
    taken: BTreeSet<(TaskId, Token)>,
    reached: BTreeSet<ClaimId>,
    /// Also those that were left since.
    confirmed: BTreeSet<ClaimId>,
}

impl Reached {
    /// Each node writes down a grant; the first one is the leader.
    fn note(&mut self, records: &[Record], now_us: u64) {
        for record in records {
            let Record::Ops { after, ops, .. } = record else { continue };
            for op in ops {
                if let Op::Renew { items } = &**op {
                    self.renewed.extend(items.iter().map(|(id, token, ..)| (*id, *token)));
                }
                let Op::Grant { claim, items, .. } = &**op else { continue };
                for (id, number) in items.iter().filter(|_| self.confirming.contains(claim)) {
                    let grant = (*id, Token { epoch: after.epoch, number: *number });
                    if !self.taken.contains(&grant) {
                        self.granted.entry(grant).or_insert((*claim, now_us));
                    }
                }
            }
        }
    }
}

impl Property for Reached {
    fn name(&self) -> &'static str {
        "reached"
    }

    fn see(&mut self, _: &History, moment: Moment, happening: &Happening<'_>) -> Result<(), String> {
        match happening {
            Happening::Founded(terms) => self.judges = terms.calm,
            _ if !self.judges => {}
            Happening::Sent { request: Request::Claim(claim) } if claim.confirms => {
                self.confirming.insert(claim.claim);
            }
            Happening::Appended { records, .. } => self.note(records, moment.time_us),
            Happening::Sent { request: Request::Confirm { claim } } => {
                self.reached.insert(*claim);
                self.confirmed.insert(*claim);
            }
            Happening::Sent { request: Request::Leave { claim, .. } } => {
                self.reached.remove(claim);
            }
            // It has the answer, and says nothing more.
            Happening::Finished(finished) => {
                if let (Call::Request(Request::Claim(_)), Ok(Response::Claimed { tasks, .. })) =
                    (finished.call, finished.result)
                {
                    for grant in tasks.iter().map(|task| (task.id, task.token)) {
                        self.granted.remove(&grant);
                        self.taken.insert(grant);
                    }
                }
            }
            Happening::Observed { observation: Observation::Expired { id, token }, .. } => {
                let Some((claim, at_us)) = self.granted.remove(&(*id, *token)) else { return Ok(()) };
                let held_ms = (moment.time_us - at_us) / 1_000;
                if !self.reached.contains(&claim) && moment.time_us > at_us + BACK_US {
                    return Err(format!("task {id} is held for {held_ms} ms under {token}, of which no client knows"));
                }
                if !self.confirmed.contains(&claim) && !self.renewed.contains(&(*id, *token)) {
                    return Err(format!("the lease of {token} of task {id}, of which no client knows, was an attempt"));
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
    use norn_client::wire::PartitionId;
    use norn_client::wire::request::Claim;
    use norn_node::protocol::Ticket;
    use norn_node::protocol::consistent::Viewstamp;
    use std::sync::Arc;

    const CLAIM: ClaimId = ClaimId(7);

    fn granted_to(confirms: bool) -> Bench<Reached> {
        let mut bench: Bench<Reached> = Bench::new();
        bench.see(Happening::Founded(Terms { calm: true, ..Terms::default() })).unwrap();
        let Request::Claim(claim) = claim() else { panic!("a claim") };
        let request = Request::Claim(Claim { claim: CLAIM, confirms, ..claim });
        bench.see(Happening::Sent { request: &request }).unwrap();
        let (worker, items) = ("w".into(), vec![(id(1), 1)]);
        let grant =
            Op::Grant { claim: CLAIM, worker, lease_ms: 10_000, granted_ms: 0, items, session: None, lapsed: false };
        let after = Viewstamp { epoch: 1, length: 0 };
        let records = [Record::Ops { partition: PartitionId(0), after, ops: vec![Arc::new(grant)] }];
        bench.see(Happening::Appended { node: 0, ticket: Ticket(1), records: &records }).unwrap();
        bench
    }

    fn expires(bench: &mut Bench<Reached>, after_us: u64) -> Result<(), String> {
        bench.pass(after_us);
        let observation = Observation::Expired { id: id(1), token: token(1, 1) };
        bench.see(Happening::Observed { node: 0, boot: 1, observation: &observation })
    }

    #[test]
    fn a_grant_that_nobody_knows_of_is_not_held_for_long() {
        assert!(expires(&mut granted_to(true), BACK_US + 1).is_err());
        assert!(expires(&mut granted_to(false), BACK_US + 1).is_ok(), "older clients say nothing");
    }

    #[test]
    fn a_grant_that_nobody_knows_of_is_no_attempt() {
        assert!(expires(&mut granted_to(true), BACK_US / 2).is_err());
        let mut bench = granted_to(true);
        let renewal = Op::Renew { items: vec![(id(1), token(1, 1), 10_000, 10_000)] };
        let after = Viewstamp { epoch: 1, length: 1 };
        let records = [Record::Ops { partition: PartitionId(0), after, ops: vec![Arc::new(renewal)] }];
        bench.see(Happening::Appended { node: 0, ticket: Ticket(2), records: &records }).unwrap();
        assert!(expires(&mut bench, BACK_US / 2).is_ok(), "it may be in a client's hands");
    }

    #[test]
    fn a_client_that_confirms_is_reached_until_it_leaves() {
        let mut bench = granted_to(true);
        bench.see(Happening::Sent { request: &Request::Confirm { claim: CLAIM } }).unwrap();
        assert!(expires(&mut bench, BACK_US + 1).is_ok());
        let mut bench = granted_to(true);
        bench.see(Happening::Sent { request: &Request::Confirm { claim: CLAIM } }).unwrap();
        bench
            .see(Happening::Sent {
                request: &Request::Leave { claim: CLAIM, elsewhere: true, over: true, keeps: Vec::new() },
            })
            .unwrap();
        assert!(expires(&mut bench, BACK_US + 1).is_err());
    }
}
