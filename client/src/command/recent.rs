//! Ids and queues that were seen lately: a person in the REPL means them by their first characters.

use crate::wire::{QueueName, TaskId};
use std::collections::{BTreeSet, VecDeque};

/// Shortest prefix that stands for an id.
pub const PREFIX_CHARACTERS_MIN: usize = 4;
/// Characters of a whole id.
pub const ID_CHARACTERS: usize = 32;
const IDS_MAX: usize = 1_000;
const QUEUES_MAX: usize = 1_000;

/// All ids that begin with a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix {
    /// The first of them.
    pub from: TaskId,
    /// The last of them.
    pub to: TaskId,
}

impl Prefix {
    /// Reads a prefix, in the same lenient alphabet as whole ids.
    pub fn new(text: &str) -> Result<Prefix, String> {
        if !text.is_ascii() {
            return Err(format!("{text:?} is no task id"));
        }
        if text.len() < PREFIX_CHARACTERS_MIN {
            return Err(format!("{text:?} is too short for a task id; {PREFIX_CHARACTERS_MIN} characters or more"));
        }
        let padded = |filler: &str| -> Result<TaskId, String> {
            let missing = ID_CHARACTERS.saturating_sub(text.len());
            format!("{text}{}", filler.repeat(missing)).parse().map_err(|error: crate::wire::ids::ParseError| error.0)
        };
        let prefix = Prefix { from: padded("0")?, to: padded("z")? };
        debug_assert!(prefix.from <= prefix.to);
        Ok(prefix)
    }

    /// Whether an id begins so.
    pub fn holds(&self, id: TaskId) -> bool {
        (self.from..=self.to).contains(&id)
    }
}

/// What was seen lately, bounded.
#[derive(Debug, Default)]
pub struct Recent {
    /// Latest last.
    ids: VecDeque<TaskId>,
    queues: BTreeSet<QueueName>,
}

impl Recent {
    /// Remembers an id.
    pub fn see(&mut self, id: TaskId) {
        // A polled task would otherwise push out all others.
        if self.ids.back() == Some(&id) {
            return;
        }
        self.ids.retain(|seen| *seen != id);
        if self.ids.len() == IDS_MAX {
            self.ids.pop_front();
        }
        self.ids.push_back(id);
    }

    /// Remembers a queue.
    pub fn see_queue(&mut self, queue: &QueueName) {
        if self.queues.len() < QUEUES_MAX {
            self.queues.insert(queue.clone());
        }
    }

    /// Ids, latest first.
    pub fn ids(&self) -> impl Iterator<Item = TaskId> {
        self.ids.iter().rev().copied()
    }

    /// Queues by name.
    pub fn queues(&self) -> impl Iterator<Item = &QueueName> {
        self.queues.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_holds_exactly_the_ids_that_begin_so() {
        let id = TaskId::new(1_700_000_000_000, 5, 77, 3);
        let text = id.to_string();
        for length in PREFIX_CHARACTERS_MIN..=text.len() {
            let prefix = Prefix::new(&text[..length]).unwrap();
            assert!(prefix.holds(id));
            assert!(prefix.from.to_string().starts_with(&text[..length]));
            assert!(prefix.to.to_string().starts_with(&text[..length]));
        }
        assert_eq!(Prefix::new(&text.to_uppercase()[..20]), Prefix::new(&text[..20]));
        assert!(!Prefix::new(&text[..20]).unwrap().holds(TaskId::MAX));
        for bad in ["", "abc", "uuuu", "a b c", "éééé", &"0".repeat(33)] {
            assert!(Prefix::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn what_was_seen_is_bounded_and_latest_first() {
        let mut recent = Recent::default();
        for number in 0..IDS_MAX as u64 + 10 {
            recent.see(TaskId::new(number, 0, 0, 0));
        }
        recent.see(TaskId::new(500, 0, 0, 0));
        assert_eq!(recent.ids().count(), IDS_MAX);
        assert_eq!(recent.ids().next(), Some(TaskId::new(500, 0, 0, 0)));
    }
}
