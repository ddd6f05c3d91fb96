//! Of the claims of a task whose completion needs a seal at most one is answered that it counts; that claim is the sealed one; and no
//! task is sealed twice. Once a claim that needs a seal was handed out, no completion of another kind is strictly acknowledged.
//! (ARCHITECTURE.md I-31)
//!
//! A seal exists from the moment that a log has it as a fact, synced or not. So a seal that becomes a fact before it is committed is
//! noticed once another leader seals another claim.

use super::Property;
use crate::history::{Happening, History, Moment, acks_of};
use norn_model::claim_table::table::Op;
use norn_model::record::Record;
use norn_model::task::{Blob, Task};
use norn_wire::request::Request;
use norn_wire::response::{Guarantee, Response};
use norn_wire::{TaskId, Token};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
pub struct Sealed {
    seals: BTreeMap<TaskId, Token>,
    /// Tasks of which a claim that needs a seal was handed out.
    held: BTreeSet<TaskId>,
    /// Tasks of which only the tombstone is left.
    buried: BTreeSet<TaskId>,
    /// Claims that were answered that they count, and their results.
    told: BTreeMap<TaskId, (Token, Option<Vec<u8>>)>,
}

impl Sealed {
    fn fact(&mut self, id: TaskId, task: &Task) -> Result<(), String> {
        if task.tombstone.is_some() {
            self.buried.insert(id);
        }
        let Some(seal) = task.facts.as_ref().and_then(|facts| facts.seal) else { return Ok(()) };
        let known = *self.seals.entry(id).or_insert(seal);
        if known == seal { Ok(()) } else { Err(format!("task {id} is sealed under {known} and under {seal}")) }
    }

    fn appended(&mut self, record: &Record) -> Result<(), String> {
        match record {
            Record::Facts { items, .. } => items.iter().try_for_each(|(id, task)| self.fact(*id, task)),
            Record::Ops { ops, .. } => ops.iter().try_for_each(|op| match &**op {
                Op::Drop { items } => items.iter().try_for_each(|ended| self.fact(ended.id, &ended.facts)),
                _ => Ok(()),
            }),
            _ => Ok(()),
        }
    }

    fn told(&mut self, id: TaskId, token: Token, result: Option<Vec<u8>>) -> Result<(), String> {
        if self.seals.get(&id) != Some(&token) {
            let seal = self.seals.get(&id);
            return Err(format!("task {id}: claim {token} was told that it counts, and the seal is {seal:?}"));
        }
        let (first, said) = self.told.entry(id).or_insert_with(|| (token, result.clone()));
        if *first != token || *said != result {
            return Err(format!("task {id}: completions under {first} and {token} were both told that they count"));
        }
        Ok(())
    }

    /// Checks the strict acknowledgement of a completion that needs no seal.
    fn confirmed(&self, id: &TaskId, token: Token) -> Result<(), String> {
        match self.held.contains(id) && !self.buried.contains(id) {
            true => Err(format!("task {id}: a completion under {token} was confirmed, and the task has to be sealed")),
            false => Ok(()),
        }
    }

    /// Checks that what is left of a task is what was answered.
    fn settled(&self, id: &TaskId, task: &Task) -> Result<(), String> {
        let Some((token, result)) = self.told.get(id).filter(|_| task.tombstone.is_none()) else { return Ok(()) };
        let winner = task.facts.as_ref().and_then(|facts| facts.winner());
        match winner {
            Some((winner, completed)) if winner == token && completed.result == result.clone().map(Blob::from) => {
                Ok(())
            }
            _ => Err(format!("task {id}: claim {token} was told that it counts, and {winner:?} does")),
        }
    }
}

// C2, C15, C16, T20, T23
impl Property for Sealed {
    fn name(&self) -> &'static str {
        "sealed"
    }

    fn see(&mut self, _history: &History, _moment: Moment, happening: &Happening<'_>) -> Result<(), String> {
        match happening {
            Happening::Appended { records, .. } => records.iter().try_for_each(|record| self.appended(record)),
            Happening::Replied { request: Request::Complete { items, .. }, response } => {
                for (place, acked) in acks_of(response) {
                    let Some(item) = items.get(place) else { continue };
                    if !item.token.needs_seal() {
                        if acked.guarantee == Guarantee::Strict {
                            self.confirmed(&item.id, item.token)?;
                        }
                        continue;
                    }
                    self.told(item.id, item.token, item.result.as_ref().map(|result| result.to_vec()))?;
                }
                Ok(())
            }
            Happening::Replied { response: Response::Claimed { tasks, .. }, .. } => {
                let sealed = tasks.iter().filter(|task| task.token.needs_seal());
                self.held.extend(sealed.map(|task| task.id));
                Ok(())
            }
            Happening::Settled { stores } => {
                stores.iter().flat_map(|store| &store.tasks).try_for_each(|(id, task)| self.settled(id, task))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::*;
    use super::*;
    use norn_model::task::Completed;
    use norn_wire::request::{Acks, Completion};
    use std::sync::Arc;

    fn claim(number: u64) -> Token {
        token(1, Token::SEALED_FROM + number)
    }

    fn seal(bench: &mut Bench<Sealed>, number: u64, result: &[u8]) -> Result<(), String> {
        let completed = Completed { sequence: None, result: Some(result.to_vec().into()), at_ms: 1, children: None };
        let items = Arc::new(vec![(id(1), Task::from_seal(claim(number), completed))]);
        let record = Record::Facts { partition: norn_wire::PartitionId(0), items };
        bench.see(Happening::Appended { node: 0, ticket: norn_engine::Ticket(1), records: &[record] })
    }

    fn told(bench: &mut Bench<Sealed>, number: u64, result: &[u8]) -> Result<(), String> {
        let result = Some(result.to_vec().into());
        let item =
            Completion { id: id(1), token: claim(number), sequence: None, result, at_ms: 1, children: Vec::new() };
        let request = Request::Complete { items: vec![item], acks: Acks::Quorum };
        let response = Response::Acked(vec![Ok(acked(1, 2, Guarantee::Strict))]);
        bench.see(Happening::Replied { request: &request, response: &response })
    }

    #[test]
    fn one_seal_told_twice_to_its_claim_is_right() {
        let mut bench = Bench::<Sealed>::new();
        seal(&mut bench, 2, b"done").unwrap();
        told(&mut bench, 2, b"done").unwrap();
        told(&mut bench, 2, b"done").unwrap();
    }

    #[test]
    fn two_seals_and_another_claim_that_is_told_are_refused() {
        let mut bench = Bench::<Sealed>::new();
        assert!(told(&mut bench, 1, b"done").is_err(), "nothing is sealed");
        seal(&mut bench, 2, b"done").unwrap();
        assert!(told(&mut bench, 1, b"done").is_err());
        assert!(seal(&mut bench, 3, b"done").is_err());
        told(&mut bench, 2, b"done").unwrap();
        assert!(told(&mut bench, 2, b"otherwise").is_err());
    }
}
