//! Tokens of a task strictly increase and name one grant each. (ARCHITECTURE.md I-7)
//!
//! Answers may overtake each other, so "increase" is judged by when workers come to hold a task.

use super::Property;
use crate::history::{Happening, History, Moment};
use norn_model::claim_table::table::Op;
use norn_model::record::Record;
use norn_wire::{ClaimId, PartitionId, TaskId, Token};
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub struct Tokens {
    grants: BTreeMap<(PartitionId, Token), (ClaimId, TaskId)>,
    latest: BTreeMap<TaskId, Token>,
}

impl Tokens {
    fn append(&mut self, partition: PartitionId, epoch: u64, op: &Op) -> Result<(), String> {
        let Op::Grant { claim, items, .. } = op else { return Ok(()) };
        for (id, number) in items {
            let token = Token { epoch, number: *number };
            let first = *self.grants.entry((partition, token)).or_insert((*claim, *id));
            if first != (*claim, *id) {
                return Err(format!(
                    "token {token} of partition {partition} names two grants: {first:?}, {claim:?} of {id}"
                ));
            }
        }
        Ok(())
    }
}

// S19
impl Property for Tokens {
    fn name(&self) -> &'static str {
        "tokens"
    }

    fn see(&mut self, _history: &History, _moment: Moment, happening: &Happening<'_>) -> Result<(), String> {
        match happening {
            Happening::Appended { records, .. } => {
                for record in *records {
                    let Record::Ops { partition, after, ops } = record else { continue };
                    for op in ops {
                        self.append(*partition, after.epoch, op)?;
                    }
                }
            }
            Happening::Holds { id, token, .. } => {
                let latest = self.latest.entry(*id).or_insert(*token);
                if token < latest {
                    return Err(format!("task {id} is held under {token} after it was held under {latest}"));
                }
                *latest = *token;
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
    use norn_engine::Ticket;
    use norn_model::viewstamp::Viewstamp;

    fn append(bench: &mut Bench<Tokens>, claim: u128, number: u64) -> Result<(), String> {
        let op = Op::Grant {
            claim: ClaimId(claim),
            worker: "w".into(),
            lease_ms: 1,
            granted_ms: 1,
            items: vec![(id(1), number)],
            session: None,
            lapsed: false,
        };
        let after = Viewstamp { epoch: 3, length: 0 };
        let records = [Record::Ops { partition: PartitionId(0), after, ops: vec![std::sync::Arc::new(op)] }];
        bench.see(Happening::Appended { node: 0, ticket: Ticket(1), records: &records })
    }

    #[test]
    fn a_token_of_two_grants_is_refused() {
        let mut bench = Bench::<Tokens>::new();
        append(&mut bench, 1, 1).unwrap();
        append(&mut bench, 1, 1).unwrap();
        append(&mut bench, 2, 2).unwrap();
        assert!(append(&mut bench, 3, 2).is_err());
    }

    #[test]
    fn a_token_that_goes_back_is_refused() {
        let mut bench = Bench::<Tokens>::new();
        let mut holds = |token| bench.see(Happening::Holds { client: 0, id: id(1), token, until_us: 1_000_000 });
        holds(token(1, 2)).unwrap();
        holds(token(1, 2)).unwrap();
        holds(token(2, 1)).unwrap();
        assert!(holds(token(1, 3)).is_err());
    }
}
