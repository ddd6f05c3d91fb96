//! Transactions are strictly serialisable: there is one order of all that clients know as made in which each finds the versions that it
//! expects, and which keeps to real time.
//!
//! What is known of the order is a graph. A transaction comes after the one that made a version that it expects, before the one that used
//! that version up, and after each that was answered before it was asked for. The order exists if the graph has no cycle (Adya, 1999).

use super::Property;
use crate::history::{Happening, History, Moment};
use norn_wire::request::Request;
use norn_wire::response::Response;
use norn_wire::transaction::{Expected, Transaction};
use norn_wire::{TaskId, TaskVersion};
use std::collections::{BTreeMap, BTreeSet};

/// State of a task.
type State = (TaskId, TaskVersion);

/// A transaction that a client knows as made.
#[derive(Debug)]
struct Made {
    id: TaskId,
    sent: Moment,
    answered: Moment,
    /// States that it expected.
    found: BTreeSet<State>,
    /// Those of them that it changed or ended.
    used: BTreeSet<State>,
    /// States that it brought about.
    brought: BTreeSet<State>,
}

#[derive(Debug, Default)]
pub struct Serial {
    /// When each transaction was first sent.
    sent: BTreeMap<TaskId, Moment>,
    made: BTreeMap<TaskId, Made>,
}

fn states(named: impl Iterator<Item = (TaskId, Expected)>) -> impl Iterator<Item = State> {
    named.filter_map(|(id, expected)| match expected {
        Expected::Version(version) => Some((id, version)),
        Expected::Present | Expected::Token(_) => None,
    })
}

impl Serial {
    fn note_made(&mut self, transaction: &Transaction, stamps: &[State], answered: Moment) {
        let Some(sent) = self.sent.get(&transaction.id).copied() else { return };
        let changes = transaction.changes.iter().map(|change| (change.id, change.expected));
        let deletes = transaction.deletes.iter().map(|delete| (delete.id, delete.expected));
        let depends = transaction.depends.iter().map(|depend| (depend.id, depend.expected));
        let used: BTreeSet<State> = states(changes.chain(deletes)).collect();
        let found = states(depends).chain(used.iter().copied()).collect();
        let (id, brought) = (transaction.id, stamps.iter().copied().collect());
        self.made.entry(id).or_insert(Made { id, sent, answered, found, used, brought });
    }

    /// Transactions that come after a given one, as far as is known.
    fn after<'a>(&'a self, one: &'a Made) -> impl Iterator<Item = &'a Made> {
        self.made.values().filter(move |other| {
            let reads = !one.brought.is_disjoint(&other.found);
            let overwrites = !one.found.is_disjoint(&other.used);
            other.id != one.id && (reads || overwrites || one.answered < other.sent)
        })
    }

    /// A transaction that comes before itself, by a depth-first search.
    fn cycle(&self) -> Option<TaskId> {
        let (mut done, mut under_way) = (BTreeSet::new(), BTreeSet::new());
        for first in self.made.values() {
            let mut stack = vec![(first, false)];
            while let Some((made, is_left)) = stack.pop() {
                if is_left {
                    under_way.remove(&made.id);
                    done.insert(made.id);
                } else if !done.contains(&made.id) {
                    if !under_way.insert(made.id) {
                        continue;
                    }
                    stack.push((made, true));
                    for next in self.after(made) {
                        if under_way.contains(&next.id) {
                            return Some(next.id);
                        }
                        stack.push((next, false));
                    }
                }
            }
        }
        None
    }
}

// T34, T44
impl Property for Serial {
    fn name(&self) -> &'static str {
        "serial"
    }

    fn see(&mut self, _history: &History, moment: Moment, happening: &Happening<'_>) -> Result<(), String> {
        match happening {
            Happening::Sent { request: Request::Transact(transaction) } => {
                self.sent.entry(transaction.id).or_insert(moment);
            }
            Happening::Replied {
                request: Request::Transact(transaction),
                response: Response::Transacted(Ok(stamps)),
            } => {
                self.note_made(transaction, stamps, moment);
            }
            Happening::Settled { .. } => {
                if let Some(id) = self.cycle() {
                    return Err(format!("transaction {id} comes before itself in any order of the transactions"));
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
    use norn_wire::transaction::{Change, Depend};

    fn transaction(number: u32, changes: u32, depends: u32) -> Transaction {
        let expected = Expected::Version(TaskVersion(1));
        Transaction {
            id: id(number),
            changes: vec![Change { id: id(changes), expected, ..Change::default() }],
            depends: vec![Depend { id: id(depends), expected }],
            ..Transaction::default()
        }
    }

    fn send(bench: &mut Bench<Serial>, transaction: &Transaction) {
        bench.see(Happening::Sent { request: &Request::Transact(Box::new(transaction.clone())) }).unwrap();
    }

    fn made(bench: &mut Bench<Serial>, transaction: &Transaction) {
        let stamps = transaction.changes.iter().map(|change| (change.id, TaskVersion(2))).collect();
        let request = Request::Transact(Box::new(transaction.clone()));
        bench.see(Happening::Replied { request: &request, response: &Response::Transacted(Ok(stamps)) }).unwrap();
    }

    #[test]
    fn two_that_each_overlook_what_the_other_changes_have_no_order() {
        let (one, two) = (transaction(1, 8, 9), transaction(2, 9, 8));
        let mut bench = Bench::new();
        for it in [&one, &two] {
            send(&mut bench, it);
        }
        for it in [&one, &two] {
            made(&mut bench, it);
        }
        assert!(bench.see(Happening::Settled { stores: &[] }).is_err());
    }

    #[test]
    fn one_after_the_other_has_an_order_that_keeps_to_real_time() {
        let (one, two) = (transaction(1, 8, 9), transaction(2, 9, 7));
        let mut bench = Bench::new();
        for it in [&one, &two] {
            send(&mut bench, it);
        }
        for it in [&one, &two] {
            made(&mut bench, it);
        }
        assert!(bench.see(Happening::Settled { stores: &[] }).is_ok());
        // What the first depends on was changed by one that had ended before it was asked for.
        let mut bench = Bench::new();
        for it in [&two, &one] {
            send(&mut bench, it);
            made(&mut bench, it);
        }
        assert!(bench.see(Happening::Settled { stores: &[] }).is_err());
    }
}
