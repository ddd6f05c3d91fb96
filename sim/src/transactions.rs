//! Applications that change several tasks in a transaction: the tasks of a bank, which have one routing tag, or of two banks. Workers
//! claim them now and then, and change or end them, too; after healing they are worked off as all others are.

use crate::adapter::{Call, ChangeDraft, Draft, Seen, TransactionDraft};
use crate::workload::{Act, Purpose};
use crate::world::World;
use norn_wire::response::{Granted, Response};
use norn_wire::{Error, QueueName, TaskId, TaskVersion};
use std::collections::BTreeMap;

/// Most tasks of a bank that are remembered.
const REMEMBERED_MAX: usize = 12;

/// Tasks of banks, by tag, with the versions that a client learned last.
#[derive(Debug, Default)]
pub struct Banks(BTreeMap<u32, BTreeMap<TaskId, TaskVersion>>);

/// Queue of the tasks of banks.
pub fn queue_of_banks() -> QueueName {
    QueueName::new("banks").expect("a good name")
}

impl World {
    /// Whether a claim asks for tasks of banks, too.
    pub fn claims_from_banks(&mut self) -> bool {
        let percent = self.options.transaction_percent;
        percent > 0 && (self.healed() || self.randoms.transactions.chance(1, 3))
    }

    /// Makes a transaction, now and then.
    pub fn act_transact(&mut self, client: usize) {
        let percent = self.options.transaction_percent;
        if percent == 0 || self.healed() {
            return;
        }
        if !self.randoms.transactions.chance(percent, 100) {
            return self.go_on_banking(client);
        }
        let draft = self.draw_transaction();
        self.submit(client, Call::Transact { draft: Box::new(draft) }, Purpose::Banking);
    }

    /// Schedules the next transaction.
    pub fn go_on_banking(&mut self, client: usize) {
        // Those that lie apart are to get in each other's way.
        let delay_us = if self.options.across_percent > 0 {
            self.randoms.across.between(5_000, 200_000)
        } else {
            self.randoms.transactions.between(10_000, 1_000_000)
        };
        self.act_in(client, delay_us, Act::Transact);
    }

    /// Changes one of two tasks that many want to change, and goes by the other, so that two such transactions may overlook each other.
    fn draw_crossing(&mut self, one: (TaskId, TaskVersion), other: (TaskId, TaskVersion)) -> TransactionDraft {
        let (changed, depended) = if self.randoms.across.chance(1, 2) { (one, other) } else { (other, one) };
        let payload = self.coin().spec.payload;
        TransactionDraft::new()
            .change(ChangeDraft::of(Seen::from(changed)).payload(payload))
            .depend(Seen::from(depended))
    }

    /// Lets a holder's transaction go by a task of another bank, or change it.
    fn with_other_bank(&mut self, own: u32, draft: TransactionDraft) -> TransactionDraft {
        let others = self.banks.0.iter().filter(|(tag, _)| **tag != own);
        let others: Vec<(TaskId, TaskVersion)> =
            others.filter_map(|(_, tasks)| tasks.first_key_value().map(|(id, version)| (*id, *version))).collect();
        if others.is_empty() || self.draw_other(0, 2).is_none() {
            return draft;
        }
        let other = Seen::from(others[self.randoms.across.below(others.len() as u64) as usize]);
        if self.randoms.across.chance(1, 2) {
            return draft.depend(other);
        }
        let payload = self.coin().spec.payload;
        draft.change(ChangeDraft::of(other).payload(payload))
    }

    /// Another bank whose tasks a transaction changes, too.
    fn draw_other(&mut self, bank: usize, banks: usize) -> Option<usize> {
        let percent = self.options.across_percent;
        if percent == 0 || banks < 2 || !self.randoms.across.chance(percent, 100) {
            return None;
        }
        self.count("sometimes: transaction across banks");
        Some((bank + 1 + self.randoms.across.below(banks as u64 - 1) as usize) % banks)
    }

    fn coin(&mut self) -> Draft {
        let number = self.counters.entry("coins".into()).or_default();
        *number += 1;
        Draft::new(queue_of_banks(), format!("coin {number}"))
    }

    fn draw_transaction(&mut self) -> TransactionDraft {
        let count = self.randoms.transactions.between(1, 3);
        let known: Vec<(u32, Vec<(TaskId, TaskVersion)>)> = self
            .banks
            .0
            .iter()
            .map(|(tag, tasks)| (*tag, tasks.iter().map(|(id, version)| (*id, *version)).collect()))
            .collect();
        if known.len() < 3 && self.randoms.transactions.chance(1, 3) || known.is_empty() {
            self.count("sometimes: bank founded");
            return (0..=count).fold(TransactionDraft::new(), |draft, _| draft.enqueue(self.coin()));
        }
        let bank = self.randoms.transactions.below(known.len() as u64) as usize;
        let mut tasks = known[bank].1.clone();
        let (mut draft, mut count) = (TransactionDraft::new(), count);
        if let Some(other) = self.draw_other(bank, known.len()) {
            let (_, others) = &known[other];
            if self.randoms.across.chance(1, 2) {
                return self.draw_crossing(tasks[0], others[0]);
            }
            let place = self.randoms.across.below(others.len() as u64) as usize;
            tasks.extend(others.iter().skip(place).take(2));
            count += 1;
            if self.randoms.across.chance(1, 3) {
                let coin = self.coin();
                draft = draft.enqueue(Draft { near: Some(others[place].0), ..coin });
            }
        }
        for _ in 0..count.min(tasks.len() as u64) {
            let (id, version) = tasks.swap_remove(self.randoms.transactions.below(tasks.len() as u64) as usize);
            let seen = if self.randoms.transactions.chance(2, 3) { Seen::from((id, version)) } else { Seen::from(id) };
            draft = match self.randoms.transactions.below(3) {
                0 => {
                    let payload = self.coin().spec.payload;
                    draft.change(ChangeDraft::of(seen).payload(payload))
                }
                1 => draft.delete(seen).enqueue(self.coin()),
                _ => draft.depend(seen),
            };
        }
        if draft.changes.len() + draft.deletes.len() == 0 { draft.enqueue(self.coin()) } else { draft }
    }

    /// Lets a worker that was granted a task of a bank change and release it, or end it and add another one, now and then, instead of
    /// what workers do otherwise. Returns whether it does.
    pub fn transact_granted(&mut self, client: usize, task: &Granted) -> bool {
        let own = self.options.transaction_percent > 0 && task.queue == queue_of_banks();
        if !own || self.healed() || !self.randoms.transactions.chance(1, 2) {
            return false;
        }
        self.count("sometimes: a holder transacts");
        let (seen, coin) = (Seen::from((task.id, task.token)), self.coin());
        let draft = if self.randoms.transactions.chance(1, 2) {
            TransactionDraft::new().change(ChangeDraft::of(seen).payload(coin.spec.payload).release())
        } else {
            TransactionDraft::new().delete(seen).enqueue(coin)
        };
        let draft = self.with_other_bank(task.id.tag(), draft);
        self.submit(client, Call::Transact { draft: Box::new(draft) }, Purpose::Plain);
        true
    }

    /// Handles the answer to a transaction.
    pub fn transacted(&mut self, result: &Result<Response, Error>) {
        match result {
            Ok(Response::Transacted(Ok(stamps))) => {
                self.count("sometimes: transaction made");
                for (id, version) in stamps {
                    let tasks = self.banks.0.entry(id.tag()).or_default();
                    tasks.insert(*id, *version);
                    while tasks.len() > REMEMBERED_MAX {
                        tasks.pop_first();
                    }
                }
            }
            Ok(Response::Transacted(Err(refusal))) => {
                self.count("sometimes: transaction refused");
                // After a refusal the client looks for other tasks, often.
                let gone = refusal.changes.iter().chain(&refusal.deletes).chain(&refusal.depends);
                for id in gone {
                    if self.randoms.transactions.chance(1, 2)
                        && let Some(tasks) = self.banks.0.get_mut(&id.tag())
                    {
                        tasks.remove(id);
                    }
                }
                self.banks.0.retain(|_, tasks| !tasks.is_empty());
            }
            _ => self.count("sometimes: transaction failed"),
        }
    }
}
