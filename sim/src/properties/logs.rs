//! A grant carries the task's log as the leader's replica has it, whether it is in memory or only on disk.

use super::Property;
use crate::history::{Finished, Happening, History, Moment};
use norn_wire::response::{Granted, LogEntry, Response};
use norn_wire::{Request, TaskId, Token};
use std::collections::{BTreeMap, BTreeSet};

/// Log entries, by claim token and entry number.
type Log = BTreeSet<(Token, u32)>;

#[derive(Debug, Default)]
pub struct Logs {
    /// The task's log at each time that a leader reported a grant. A grant may be reported several times; one of those answers
    /// reached the client.
    told: BTreeMap<(TaskId, Token), Vec<Log>>,
    /// Data that workers wrote under each entry number.
    written: BTreeMap<(TaskId, Token, u32), BTreeSet<Vec<u8>>>,
}

impl Logs {
    fn shown(&self, granted: &Granted) -> Result<(), String> {
        let Granted { id, token, updates, .. } = granted;
        let is_other = |entry: &&LogEntry| {
            let written = self.written.get(&(*id, entry.token, entry.sequence));
            written.is_none_or(|written| !written.contains(&entry.data))
        };
        if let Some(LogEntry { token, sequence, .. }) = updates.iter().find(is_other) {
            return Err(format!("task {id} was granted with an entry {token}/{sequence} that no worker wrote"));
        }
        let shown: Log = updates.iter().map(|entry| (entry.token, entry.sequence)).collect();
        let told = self.told.get(&(*id, *token)).map(Vec::as_slice).unwrap_or_default();
        if told.iter().all(|log| !log.is_subset(&shown)) {
            return Err(format!(
                "task {id} was granted under {token} with a log of {shown:?}, and its leader has {told:?}"
            ));
        }
        Ok(())
    }
}

impl Property for Logs {
    fn name(&self) -> &'static str {
        "logs"
    }

    fn see(&mut self, _history: &History, _moment: Moment, happening: &Happening<'_>) -> Result<(), String> {
        match happening {
            Happening::Sent { request: Request::Update { id, token, sequence, data, .. } } => {
                self.written.entry((*id, *token, *sequence)).or_default().insert(data.to_vec());
                Ok(())
            }
            Happening::Told { id, token, log } => {
                let log: Log = log.iter().copied().collect();
                let told = self.told.entry((*id, *token)).or_default();
                if !told.contains(&log) {
                    told.push(log);
                }
                Ok(())
            }
            Happening::Finished(Finished { result: Ok(Response::Claimed { tasks, .. }), .. }) => {
                tasks.iter().try_for_each(|granted| self.shown(granted))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::*;
    use super::*;
    use norn_wire::request::Acks;

    /// Grants a task whose leader has two log entries, with `entries` in the answer.
    fn shows(entries: &[(u32, &str)]) -> Result<(), String> {
        let mut bench = Bench::<Logs>::new();
        let (earlier, token) = (token(1, 1), token(1, 2));
        for sequence in 0..3 {
            let data = format!("{earlier} entry {sequence}").into_bytes();
            let request = Request::Update { id: id(1), token: earlier, sequence, data, acks: Acks::One };
            bench.see(Happening::Sent { request: &request }).unwrap();
        }
        bench.see(Happening::Told { id: id(1), token, log: &[(earlier, 0), (earlier, 1)] }).unwrap();
        let mut response = granted(1, token);
        let Response::Claimed { tasks, .. } = &mut response else { panic!("it is a grant") };
        let entry = |(sequence, data): &(u32, &str)| {
            let data = format!("{earlier} entry {data}").into_bytes();
            LogEntry { token: earlier, sequence: *sequence, data }
        };
        tasks[0].updates = entries.iter().map(entry).collect();
        let now = bench.now();
        bench.finish(claim(), now, response)
    }

    #[test]
    fn a_grant_with_a_part_of_the_log_is_refused() {
        assert!(shows(&[(0, "0"), (1, "1")]).is_ok());
        assert!(shows(&[(0, "0"), (1, "1"), (2, "2")]).is_ok(), "more may have come since");
        assert!(shows(&[(0, "0")]).is_err());
        assert!(shows(&[(0, "0"), (1, "")]).is_err());
    }
}
