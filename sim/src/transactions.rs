//! Applications that change several tasks in a transaction: the tasks of a bank, which have one routing tag. Workers claim them now
//! and then, and change or end them, too; after healing they are worked off as all others are.

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
        let delay_us = self.randoms.transactions.between(10_000, 1_000_000);
        self.act_in(client, delay_us, Act::Transact);
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
        let (_, mut tasks) = known[self.randoms.transactions.below(known.len() as u64) as usize].clone();
        let mut draft = TransactionDraft::new();
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
