//! Recently seen ids and queues: a person refers to an id by a few of its characters.

use norn_wire::{QueueName, TaskId, TaskView};
use std::collections::{BTreeSet, VecDeque};
use std::fmt;

/// Fewest characters that stand for an id.
pub const PREFIX_CHARACTERS_MIN: usize = 4;
/// Fewest characters that stand for the id of a task to be changed: by chance, one of the known ids contains a given six characters once
/// in thirty thousand times.
pub const TARGET_CHARACTERS_MIN: usize = 6;
/// Characters of a whole id.
pub const ID_CHARACTERS: usize = 32;
/// Most ids that are remembered.
pub const IDS_MAX: usize = 1_000;
const QUEUES_MAX: usize = 1_000;
const SCHEDULES_MAX: usize = 1_000;

/// Range of all ids that begin with a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix {
    /// The first of them.
    pub from: TaskId,
    /// The last of them.
    pub to: TaskId,
}

impl Prefix {
    /// Parses a prefix, in the same lenient alphabet as whole ids.
    pub fn new(text: &str) -> Result<Prefix, String> {
        if !text.is_ascii() {
            return Err(format!("{text:?} is no task id"));
        }
        if text.len() < PREFIX_CHARACTERS_MIN {
            return Err(format!("{text:?} is too short for a task id; {PREFIX_CHARACTERS_MIN} characters or more"));
        }
        let prefix = Prefix { from: padded(text, "0")?, to: padded(text, "z")? };
        debug_assert!(prefix.from <= prefix.to);
        Ok(prefix)
    }
}

fn padded(text: &str, filler: &str) -> Result<TaskId, String> {
    let missing = ID_CHARACTERS.saturating_sub(text.len());
    format!("{text}{}", filler.repeat(missing)).parse().map_err(|error: norn_wire::ids::ParseError| error.0)
}

/// Ids that typed characters may stand for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meant {
    /// All ids that begin with them.
    Beginning(Vec<TaskId>),
    /// No id begins with them: all that end with them, or else all that contain them.
    Having(Vec<TaskId>),
}

impl Meant {
    /// Picks from ids and keeps their order. Ids of one minute begin alike, so a person often types the end of one.
    pub fn of(ids: &[TaskId], typed: &str) -> Meant {
        let Some(text) = padded(typed, "0").ok().filter(|_| typed.is_ascii()) else {
            return Meant::Having(Vec::new());
        };
        let text = &text.to_string()[..typed.len()];
        let picked = |fits: &dyn Fn(&str) -> bool| -> Vec<TaskId> {
            ids.iter().copied().filter(|id| fits(&id.to_string())).collect()
        };
        let beginning = picked(&|id| id.starts_with(text));
        if !beginning.is_empty() {
            return Meant::Beginning(beginning);
        }
        let ending = picked(&|id| id.ends_with(text));
        if !ending.is_empty() || text.len() < PREFIX_CHARACTERS_MIN {
            return Meant::Having(ending);
        }
        Meant::Having(picked(&|id| id.contains(text)))
    }
}

/// Consecutive characters anywhere in an id. Ids of one minute begin alike, and those of one batch may end alike, so a person picks the
/// characters in which they differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Characters in the alphabet of ids.
    text: String,
    /// All ids that begin with them.
    pub prefix: Prefix,
}

impl Part {
    /// Parses a part, in the same lenient alphabet as whole ids.
    pub fn new(text: &str) -> Result<Part, String> {
        let prefix = Prefix::new(text)?;
        let mut canonical = prefix.from.to_string();
        canonical.truncate(text.len());
        Ok(Part { text: canonical, prefix })
    }

    /// Whether an id contains it.
    #[must_use]
    pub fn is_in(&self, id: TaskId) -> bool {
        id.to_string().contains(&self.text)
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Recently seen ids and names, bounded.
#[derive(Debug, Default)]
pub struct Recent {
    /// Latest last.
    ids: VecDeque<TaskId>,
    /// Number of the latest ids seen since they were last taken.
    new: usize,
    queues: BTreeSet<QueueName>,
    /// Names of all schedules, as last received.
    schedules: BTreeSet<String>,
}

impl Recent {
    /// Remembers an id.
    pub fn see(&mut self, id: TaskId) {
        // A polled task would otherwise push out all others.
        if self.ids.back() == Some(&id) {
            return;
        }
        if let Some(place) = self.ids.iter().position(|seen| *seen == id) {
            self.new -= usize::from(place >= self.ids.len() - self.new);
            self.ids.remove(place);
        }
        if self.ids.len() == IDS_MAX {
            self.ids.pop_front();
        }
        self.ids.push_back(id);
        self.new = (self.new + 1).min(IDS_MAX);
    }

    /// Remembers a task with all others that its description names; the task is the latest of them.
    pub fn see_task(&mut self, task: &TaskView) {
        let group = task.spec.grouping.as_ref().and_then(|grouping| grouping.member).map(|member| member.group);
        let others = task.spec.after.iter().chain(&group).chain(&task.children).chain(&task.redriven);
        others.for_each(|other| self.see(*other));
        self.see(task.id);
        self.see_queue(&task.spec.queue);
    }

    /// Returns the ids seen since the last call, latest last.
    pub fn take_new(&mut self) -> Vec<TaskId> {
        let new = std::mem::take(&mut self.new);
        self.ids.iter().skip(self.ids.len() - new).copied().collect()
    }

    /// Remembers a queue.
    pub fn see_queue(&mut self, queue: &QueueName) {
        if self.queues.len() < QUEUES_MAX {
            self.queues.insert(queue.clone());
        }
    }

    /// Remembers the names of the existing schedules, replacing the earlier ones.
    pub fn see_schedules(&mut self, names: impl IntoIterator<Item = String>) {
        self.schedules = names.into_iter().take(SCHEDULES_MAX).collect();
    }

    /// Returns schedules by name.
    pub fn schedules(&self) -> impl Iterator<Item = &str> {
        self.schedules.iter().map(String::as_str)
    }

    /// Returns ids, latest first.
    pub fn ids(&self) -> impl Iterator<Item = TaskId> {
        self.ids.iter().rev().copied()
    }

    /// Returns queues by name.
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
            assert!(prefix.from <= id && id <= prefix.to);
            assert!(prefix.from.to_string().starts_with(&text[..length]));
            assert!(prefix.to.to_string().starts_with(&text[..length]));
        }
        assert_eq!(Prefix::new(&text.to_uppercase()[..20]), Prefix::new(&text[..20]));
        assert!(Prefix::new(&text[..20]).unwrap().to < TaskId::MAX);
        for bad in ["", "abc", "uuuu", "a b c", "éééé", &"0".repeat(33)] {
            assert!(Prefix::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_part_is_in_the_ids_that_have_it_anywhere() {
        let id = TaskId::new(1_700_000_000_000, 5, 0x12_3456_789a, 0xab_cdef);
        let text = id.to_string();
        for (from, to) in [(0, 4), (28, 32), (26, 32), (14, 20), (0, 31)] {
            assert!(Part::new(&text[from..to]).unwrap().is_in(id), "{from}..{to}");
            assert!(Part::new(&text[from..to].to_uppercase()).unwrap().is_in(id), "{from}..{to}");
        }
        assert!(!Part::new("zzzz").unwrap().is_in(id));
        assert_eq!(Part::new("OILo"), Part::new("0110"));
        assert!(Part::new("abc").is_err() && Part::new("uuuu").is_err());
    }

    #[test]
    fn typed_characters_stand_for_a_beginning_before_an_end_and_for_an_end_before_a_middle() {
        let ids =
            [(5, 0xab_cdef), (6, 0x12_3456)].map(|(counter, tag)| TaskId::new(1_700_000_000_000, counter, 7, tag));
        let [one, two] = ids.map(|id| id.to_string());
        let shared: &str = &one[..8];
        assert_eq!(shared, &two[..8]);
        assert_eq!(Meant::of(&ids, ""), Meant::Beginning(ids.to_vec()));
        assert_eq!(Meant::of(&ids, &shared.to_uppercase()), Meant::Beginning(ids.to_vec()));
        for length in 2..=6 {
            assert_eq!(Meant::of(&ids, &one[32 - length..].to_uppercase()), Meant::Having(vec![ids[0]]), "{length}");
            assert_eq!(Meant::of(&ids, &two[32 - length..]), Meant::Having(vec![ids[1]]), "{length}");
        }
        assert_eq!(Meant::of(&ids, &one[10..20]), Meant::Having(vec![ids[0]]), "in the middle");
        for none in ["zzzz", "u", "é", "a b", &"0".repeat(33)] {
            assert_eq!(Meant::of(&ids, none), Meant::Having(Vec::new()), "{none:?}");
        }
    }

    #[test]
    fn what_is_new_is_taken_once() {
        let id = |number| TaskId::new(number, 0, 0, 0);
        let mut recent = Recent::default();
        [1, 2, 1, 3].map(id).into_iter().for_each(|id| recent.see(id));
        assert_eq!(recent.take_new(), [2, 1, 3].map(id));
        assert_eq!(recent.take_new(), []);
        [2, 2, 4, 2].map(id).into_iter().for_each(|id| recent.see(id));
        assert_eq!(recent.take_new(), [4, 2].map(id));
        (0..3 * IDS_MAX as u64).for_each(|number| recent.see(id(number)));
        assert_eq!(recent.take_new().len(), IDS_MAX);
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
