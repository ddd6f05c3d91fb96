//! At most one worker holds a task at any real instant. (ARCHITECTURE.md I-8)
//!
//! A worker holds a task from the answer to its claim until its own clock says that the lease is over, or until it ends its work. A
//! leader that reports a grant while another worker holds the task is wrong too, even if the answer is lost.
//!
//! Where neither kind of clock is reliable, claims may overlap, but not without an explanation: some node has said that its clock is
//! wrong, while the first of the claims was held or soon after. Exempt are leaps of time, in which no node does anything, and
//! clusters with too few members for one to differ from a majority.

use super::Property;
use crate::history::{Happening, History, Moment};
use norn_engine::Observation;
use norn_wire::response::Standing;
use norn_wire::{TaskId, Token};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone, Copy)]
struct Holder {
    client: usize,
    token: Token,
    since_us: u64,
    until_us: u64,
}

/// Time after an overlap within which some node has explained it, in true time: clocks are compared with every heartbeat.
const NOTICED_WITHIN_US: u64 = 10_000_000;
/// Fewest members of which one can differ from a majority.
const COMPARED_MIN: usize = 3;

#[derive(Debug, Default)]
pub struct Exclusion {
    holders: BTreeMap<TaskId, Vec<Holder>>,
    clockless: bool,
    /// Version of the latest roster that any node has heard of, and its number of members.
    members: (u64, usize),
    /// Nodes that say that their clock is wrong.
    wrong: BTreeSet<usize>,
    /// When a node last said so, or took it back.
    said_us: u64,
    /// First overlap that no node has explained yet, and when.
    unexplained: Option<(u64, String)>,
}

impl Exclusion {
    /// Workers that hold the task now. A worker that no longer holds it never will again under that token but by a renewal.
    fn holders(&mut self, id: TaskId, now_us: u64) -> &mut Vec<Holder> {
        let holders = self.holders.entry(id).or_default();
        holders.retain(|holder| holder.until_us > now_us);
        holders
    }

    /// Judges that another worker holds a task at the same time.
    fn overlap(&mut self, now_us: u64, other: &Holder, what: &str) -> Result<(), String> {
        let Holder { client, token, since_us, until_us } = *other;
        let evidence = format!("{what} client {client} holds it under {token} for another {} us", until_us - now_us);
        if !self.clockless {
            return Err(evidence);
        }
        if self.members.1 >= COMPARED_MIN && self.wrong.is_empty() && self.said_us < since_us {
            self.unexplained.get_or_insert((now_us, evidence));
        }
        Ok(())
    }

    /// Takes in what a node says of its clock.
    fn stand(&mut self, node: usize, standing: Standing, now_us: u64) {
        if standing >= Standing::Suspect {
            self.wrong.insert(node);
            (self.said_us, self.unexplained) = (now_us, None);
        } else if self.wrong.remove(&node) {
            self.said_us = now_us;
        }
    }

    fn check_noticed(&self, now_us: u64) -> Result<(), String> {
        match &self.unexplained {
            Some((at_us, evidence)) if now_us > at_us + NOTICED_WITHIN_US => {
                Err(format!("{evidence}, and no node says that its clock is wrong"))
            }
            _ => Ok(()),
        }
    }
}

// T6, O12, S7, S11, S41, S43, S47, C12
impl Property for Exclusion {
    fn name(&self) -> &'static str {
        "exclusion"
    }

    fn see(&mut self, history: &History, moment: Moment, happening: &Happening<'_>) -> Result<(), String> {
        let now_us = moment.time_us;
        if let (Happening::Leapt { length_us }, Some((at_us, _))) = (happening, &mut self.unexplained) {
            *at_us += length_us;
        }
        self.check_noticed(now_us)?;
        match happening {
            Happening::Founded(terms) => {
                self.clockless = terms.clockless;
                self.members = (0, history.founders());
            }
            Happening::Observed { observation: Observation::RosterChanged { version, members }, .. } => {
                self.members = self.members.max((*version, *members));
            }
            Happening::Crashed { node } => self.stand(*node, Standing::Unknown, now_us),
            Happening::Observed { node, observation: Observation::ClockStanding { standing, .. }, .. } => {
                self.stand(*node, *standing, now_us);
            }
            Happening::Holds { client, id, token, until_us } if *until_us > now_us => {
                let holders = self.holders(*id, now_us);
                let same = |holder: &Holder| (holder.client, holder.token) == (*client, *token);
                let other = holders.iter().find(|holder| !same(holder)).copied();
                match holders.iter_mut().find(|holder| same(holder)) {
                    Some(holder) => holder.until_us = holder.until_us.max(*until_us),
                    None => {
                        holders.push(Holder { client: *client, token: *token, since_us: now_us, until_us: *until_us })
                    }
                }
                if let Some(other) = other {
                    self.overlap(now_us, &other, &format!("task {id} is held by client {client} under {token}, and"))?;
                }
            }
            Happening::Stops { client, id, token } => {
                self.holders(*id, now_us).retain(|holder| (holder.client, holder.token) != (*client, *token));
            }
            Happening::Observed { node, observation: Observation::Granted { id, token }, .. } => {
                let holders = self.holders(*id, now_us);
                if let Some(other) = holders.iter().find(|holder| holder.token < *token).copied() {
                    self.overlap(now_us, &other, &format!("node {node} granted task {id} under {token} while"))?;
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

    fn holds(bench: &mut Bench<Exclusion>, client: usize, number: u64, until_us: u64) -> Result<(), String> {
        bench.see(Happening::Holds { client, id: id(1), token: token(1, number), until_us })
    }

    #[test]
    fn two_holders_at_once_are_refused() {
        let mut bench = Bench::new();
        holds(&mut bench, 0, 1, 1_000_000).unwrap();
        holds(&mut bench, 0, 1, 2_000_000).unwrap();
        assert!(holds(&mut bench, 1, 2, 3_000_000).is_err());
        assert!(holds(&mut bench, 1, 1, 3_000_000).is_err(), "one token, two workers");
    }

    #[test]
    fn a_holder_after_the_lease_or_after_a_stop_is_right() {
        let mut bench = Bench::new();
        holds(&mut bench, 0, 1, 1_500).unwrap();
        holds(&mut bench, 1, 2, 9_000_000).unwrap();
        bench.see(Happening::Stops { client: 1, id: id(1), token: token(1, 2) }).unwrap();
        holds(&mut bench, 2, 3, 9_000_000).unwrap();
    }

    #[test]
    fn a_grant_while_somebody_holds_is_refused() {
        let mut bench = Bench::new();
        holds(&mut bench, 0, 1, 1_000_000).unwrap();
        let mut granted = |number| {
            let observation = Observation::Granted { id: id(1), token: token(1, number) };
            bench.see(Happening::Observed { node: 0, boot: 1, observation: &observation })
        };
        assert!(granted(1).is_ok());
        assert!(granted(2).is_err());
    }

    #[test]
    fn without_clocks_claims_may_overlap_but_not_in_silence() {
        let overlapping = |members| {
            let mut bench = Bench::<Exclusion>::new();
            bench.see(Happening::Founded(Terms { clockless: true, ..Terms::default() })).unwrap();
            let observation = &Observation::RosterChanged { version: 1, members };
            bench.see(Happening::Observed { node: 0, boot: 1, observation }).unwrap();
            holds(&mut bench, 0, 1, 9_000_000).unwrap();
            holds(&mut bench, 1, 2, 9_000_000).unwrap();
            bench
        };
        let goes_on = |bench: &mut Bench<Exclusion>| {
            let mut seen = (0..=NOTICED_WITHIN_US / 1_000_000).map(|_| {
                bench.pass(1_000_000);
                bench.see(Happening::Settled { stores: &[] })
            });
            seen.find(Result::is_err).unwrap_or(Ok(()))
        };
        assert!(goes_on(&mut overlapping(3)).unwrap_err().contains("no node says"));
        goes_on(&mut overlapping(2)).unwrap();
        let mut leaping = overlapping(3);
        leaping.pass(100 * NOTICED_WITHIN_US);
        leaping.see(Happening::Leapt { length_us: 100 * NOTICED_WITHIN_US }).unwrap();
        assert!(goes_on(&mut leaping).unwrap_err().contains("no node says"));
        let mut said = overlapping(3);
        let observation = &Observation::ClockStanding { standing: Standing::Suspect, off_us: None };
        said.see(Happening::Observed { node: 0, boot: 1, observation }).unwrap();
        goes_on(&mut said).unwrap();
    }
}
