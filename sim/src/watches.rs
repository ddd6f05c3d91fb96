//! Watchers: they watch queues from the founding of the cluster to the end, each behind the cursor of its last answer.

use crate::adapter::Call;
use crate::workload::{Act, Purpose, numbered_queue};
use crate::world::{Phase, World};
use norn_wire::request::Request;
use norn_wire::response::Response;
use norn_wire::{Error, Subject, WatchCursor};

/// Calls that may fail once all is settled, before the audit goes on without an answer: some nodes may stay too old for ever.
const FAILURES_MAX: u32 = 20;

/// A watcher of a queue.
#[derive(Debug, Default)]
pub struct Watcher {
    cursor: Option<WatchCursor>,
    /// It has seen all that has happened, or as much as it will.
    over: bool,
    failures: u32,
}

impl World {
    /// Begins to watch some queues, as the client that audits in the end.
    pub fn begin_watches(&mut self) {
        let auditor = self.clients.len() - 1;
        for number in 0..self.options.watchers as usize {
            self.watchers.push(Watcher::default());
            let delay_us = self.randoms.watches.between(0, 5_000_000);
            self.act_in(auditor, delay_us, Act::Watch(number));
        }
    }

    /// Asks for news of a queue.
    pub fn act_watch(&mut self, client: usize, number: usize) {
        let queue = numbered_queue(number as u64 % self.options.queues);
        let wait_ms = if self.phase == Phase::Audit { 200 } else { self.randoms.watches.between(1, 3_000) };
        let cursor = self.watchers[number].cursor.clone();
        let request = Request::Watch { subject: Subject::Queue(queue), cursor, wait_ms };
        let length_us = (wait_ms + 5_000) * 1_000;
        self.submit_for(client, Call::Request(request), Purpose::Watch(number, self.phase == Phase::Audit), length_us);
    }

    /// Handles the answer to a watcher's call; `late` says that all had been settled when the call was made.
    pub fn watch_answered(&mut self, client: usize, (number, late): (usize, bool), result: &Result<Response, Error>) {
        let before = self.watches_over();
        let pause_ms = match result {
            Ok(Response::Watched(watched)) => {
                let watcher = &mut self.watchers[number];
                watcher.cursor = Some(watched.cursor.clone());
                watcher.over |= late && watched.events.is_empty() && !watched.lagged;
                let late_over = late && watcher.over;
                if watched.lagged {
                    self.count("sometimes: watch lagged");
                }
                if !watched.events.is_empty() {
                    self.count("sometimes: watch told");
                }
                if late_over {
                    self.count("sometimes: watch complete");
                }
                // Now and then the watcher is away for long.
                if self.randoms.watches.chance(1, 20) { 3_000 } else { self.randoms.watches.between(1, 300) }
            }
            _ => {
                let watcher = &mut self.watchers[number];
                watcher.failures += u32::from(late);
                watcher.over |= watcher.failures > FAILURES_MAX;
                200
            }
        };
        if self.phase == Phase::Audit && self.watches_over() {
            if !before {
                self.begin_audit();
            }
        } else {
            self.act_in(client, pause_ms * 1_000, Act::Watch(number));
        }
    }

    /// Whether all watchers have seen all that they will.
    pub fn watches_over(&self) -> bool {
        self.watchers.iter().all(|watcher| watcher.over)
    }
}
