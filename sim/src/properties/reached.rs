//! What is granted to a call whose client is never reached goes back soon, as long as nothing fails: it is not held until its lease
//! is over.
//!
//! A client is reached when it says that the answer has come, and is not any more when it takes leave of its claim.

use super::Property;
use crate::adapter::Call;
use crate::history::{Happening, History, Moment};
use norn_client::wire::request::Request;
use norn_client::wire::response::Response;
use norn_client::wire::{ClaimId, TaskId, Token};
use norn_node::protocol::Observation;
use std::collections::{BTreeMap, BTreeSet};

/// Two seconds in which a client confirms, and what it takes to give back.
const BACK_US: u64 = 3_000_000;

/// See the module.
#[derive(Debug, Default)]
pub struct Reached {
    /// Nothing fails.
    judges: bool,
    /// What was granted to calls that confirm, and when that was answered.
    granted: BTreeMap<(TaskId, Token), (ClaimId, u64)>,
    reached: BTreeSet<ClaimId>,
}

impl Property for Reached {
    fn name(&self) -> &'static str {
        "reached"
    }

    fn see(&mut self, _: &History, moment: Moment, happening: &Happening<'_>) -> Result<(), String> {
        match happening {
            Happening::Founded(terms) => self.judges = terms.calm,
            _ if !self.judges => {}
            Happening::Replied { request: Request::Claim(claim), response: Response::Claimed { tasks, .. } }
                if claim.confirms =>
            {
                let grants = tasks.iter().map(|task| ((task.id, task.token), (claim.claim, moment.time_us)));
                self.granted.extend(grants);
            }
            Happening::Sent { request: Request::Confirm { claim } } => {
                self.reached.insert(*claim);
            }
            Happening::Sent { request: Request::Leave { claim, .. } } => {
                self.reached.remove(claim);
            }
            // It has the answer, and says nothing more.
            Happening::Finished(finished) => {
                if let (Call::Request(Request::Claim(_)), Ok(Response::Claimed { tasks, .. })) =
                    (finished.call, finished.result)
                {
                    tasks.iter().for_each(|task| {
                        self.granted.remove(&(task.id, task.token));
                    });
                }
            }
            Happening::Observed { observation: Observation::Expired { id, token }, .. } => {
                if let Some((claim, at_us)) = self.granted.remove(&(*id, *token))
                    && !self.reached.contains(&claim)
                    && moment.time_us > at_us + BACK_US
                {
                    let held_ms = (moment.time_us - at_us) / 1_000;
                    return Err(format!("task {id} is held for {held_ms} ms under {token}, of which no client knows"));
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
    use norn_client::wire::request::Claim;

    const CLAIM: ClaimId = ClaimId(7);

    fn granted_to(confirms: bool) -> Bench<Reached> {
        let mut bench: Bench<Reached> = Bench::new();
        bench.see(Happening::Founded(Terms { calm: true, ..Terms::default() })).unwrap();
        let Request::Claim(claim) = claim() else { panic!("a claim") };
        let request = Request::Claim(Claim { claim: CLAIM, confirms, ..claim });
        bench.see(Happening::Replied { request: &request, response: &granted(1, token(1, 1)) }).unwrap();
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
        assert!(expires(&mut granted_to(true), BACK_US / 2).is_ok(), "its lease was short");
        assert!(expires(&mut granted_to(false), BACK_US + 1).is_ok(), "older clients say nothing");
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
