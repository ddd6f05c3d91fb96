//! What readers see of a task's facts.

use super::{Blob, Facts, Task};
use norn_wire::response::LogEntry;
use norn_wire::{TaskId, Token};

/// The visible log, in memory or not: for each claim, the entries from 0 up to the first gap.
pub fn in_order<S>(task: &Task<S>) -> impl Iterator<Item = (Token, u32, &Blob)> {
    let mut expected = (Token::default(), 0);
    let updates = task.facts.iter().flat_map(|facts| &facts.updates);
    updates.filter_map(move |((token, sequence), data)| {
        if expected.0 != *token {
            expected = (*token, 0);
        }
        let follows = expected.1 == *sequence;
        expected.1 += u32::from(follows);
        follows.then_some((*token, *sequence, data))
    })
}

/// The visible log as a reader sees it: for a claim with a lost entry, the entries before that.
pub fn visible<S>(task: &Task<S>) -> Vec<LogEntry> {
    let mut entries = Vec::with_capacity(task.facts.as_ref().map_or(0, |facts| facts.updates.len()));
    let mut lost = None;
    for (token, sequence, blob) in in_order(task) {
        match blob.here() {
            Some(data) if lost != Some(token) => entries.push(LogEntry { token, sequence, data: data.to_vec() }),
            _ => lost = Some(token),
        }
    }
    entries
}

impl Facts {
    /// The completion that counts: the one with the seal, or else the one under the highest token that needs none.
    pub fn winner(&self) -> Option<&(Token, super::Completed)> {
        let counts = |token: Token| self.seal.map_or(!token.needs_seal(), |seal| token == seal);
        self.completions.iter().rev().find(|(token, _)| counts(*token))
    }

    /// Completions that needed a seal and have none, oldest first: none of them ever counts once the task has ended.
    pub fn rejected(&self) -> impl Iterator<Item = &(Token, super::Completed)> {
        let of_claim = |token: Token| token.needs_seal() && !token.is_of_copy();
        self.completions.iter().filter(move |(token, _)| of_claim(*token) && self.seal != Some(*token))
    }

    /// Copies of a dead task, with the completions that stand for them.
    pub fn copies(&self) -> impl Iterator<Item = (TaskId, &super::Completed)> {
        let of_copies = self.completions.iter().filter(|(token, _)| token.is_of_copy());
        of_copies.filter_map(|(_, done)| Some((*done.children.as_ref()?.ids.first()?, done)))
    }
}

impl<S> Task<S> {
    /// Number of visible log entries of a claim.
    pub fn visible_length(&self, token: Token) -> u32 {
        let Some(facts) = &self.facts else { return 0 };
        let mut length = 0;
        for ((other, sequence), _) in &facts.updates {
            if *other == token && *sequence == length {
                length += 1;
            }
        }
        length
    }

    /// Whether log entries are known to be missing here: some are hidden behind a gap, or the winning completion states more entries than
    /// are visible.
    pub fn log_incomplete(&self) -> bool {
        let Some(facts) = &self.facts else { return false };
        let mut expected = (Token::default(), 0);
        for ((token, sequence), _) in &facts.updates {
            if expected.0 != *token {
                expected = (*token, 0);
            }
            if expected.1 != *sequence {
                return true;
            }
            expected.1 += 1;
        }
        let Some((token, completed)) = facts.winner() else { return false };
        completed.sequence.is_some_and(|sequence| self.visible_length(*token) < sequence)
    }
}
