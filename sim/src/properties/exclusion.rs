//! At most one worker holds a task at any real instant. (ARCHITECTURE.md I-8)
//!
//! A worker holds from the answer to its claim until its own clock says that the lease is over, or until it ends its
//! work. A leader that says it granted a task while somebody else holds it is wrong too, even if that answer is lost.

use super::Property;
use crate::history::{Happening, History, Moment};
use norn_client::wire::{TaskId, Token};
use norn_node::protocol::Observation;
use std::collections::BTreeMap;

#[derive(Debug, Clone, Copy)]
struct Holder {
    client: usize,
    token: Token,
    until_us: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Exclusion {
    holders: BTreeMap<TaskId, Vec<Holder>>,
}

impl Exclusion {
    /// Those who hold the task now; who does not any more never will under that token but by a renewal.
    fn holders(&mut self, id: TaskId, now_us: u64) -> &mut Vec<Holder> {
        let holders = self.holders.entry(id).or_default();
        holders.retain(|holder| holder.until_us > now_us);
        holders
    }
}

// T6, O12, S7, S11, S41, S43, S47, C12
impl Property for Exclusion {
    fn name(&self) -> &'static str {
        "exclusion"
    }

    fn see(&mut self, _history: &History, moment: Moment, happening: &Happening<'_>) -> Result<(), String> {
        let now_us = moment.time_us;
        match happening {
            Happening::Holds { client, id, token, until_us } if *until_us > now_us => {
                let holders = self.holders(*id, now_us);
                if let Some(other) = holders.iter().find(|holder| (holder.client, holder.token) != (*client, *token)) {
                    return Err(format!(
                        "task {id} is held by client {client} under {token} and by client {} under {} for another {} us",
                        other.client,
                        other.token,
                        other.until_us - now_us
                    ));
                }
                match holders.first_mut() {
                    Some(holder) => holder.until_us = holder.until_us.max(*until_us),
                    None => holders.push(Holder { client: *client, token: *token, until_us: *until_us }),
                }
            }
            Happening::Stops { client, id, token } => {
                self.holders(*id, now_us).retain(|holder| (holder.client, holder.token) != (*client, *token));
            }
            Happening::Observed { node, observation: Observation::Granted { id, token }, .. } => {
                if let Some(other) = self.holders(*id, now_us).iter().find(|holder| holder.token < *token) {
                    return Err(format!(
                        "node {node} granted task {id} under {token} while client {} holds it under {} for another {} us",
                        other.client,
                        other.token,
                        other.until_us - now_us
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
}
