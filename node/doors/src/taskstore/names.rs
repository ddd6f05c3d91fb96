//! Stores and groups as queues: group `map` of the store `default` is the queue `taskstore.default/map`. Bytes of a group's name that a
//! queue's may not have are percent-encoded.

use crate::problem::Problem;
use norn_wire::{QueueName, TaskId};
use std::fmt::Write;

/// The store of paths that name none.
pub const DEFAULT: &str = "default";
/// Longest name of a store.
const STORE_BYTES_MAX: usize = 32;

/// A store: all of its tasks lie together, so that one update can change any of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Store {
    /// What the names of its queues begin with.
    prefix: String,
    /// Routing tag of its tasks.
    pub tag: u32,
}

impl Store {
    /// The store with a name: 1 to 32 letters, digits, `-` and `_`.
    pub fn new(name: &str) -> Option<Store> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if name.is_empty() || name.len() > STORE_BYTES_MAX || !name.bytes().all(is_plain) {
            return None;
        }
        let space = format!("taskstore.{name}");
        let tag = TaskId::named(0, space.as_bytes()).tag();
        Some(Store { prefix: format!("{space}/"), tag })
    }

    /// The queue of a group.
    pub fn queue(&self, group: &str) -> Result<QueueName, Problem> {
        if group.is_empty() {
            return Err(Problem::invalid("a group without a name; name the group of the task"));
        }
        let mut name = self.prefix.clone();
        for byte in group.bytes() {
            if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                name.push(char::from(byte));
            } else {
                // Text takes anything.
                let _ = write!(name, "%{byte:02X}");
            }
        }
        QueueName::new(&name).map_err(|_| {
            let most = QueueName::BYTES_MAX - self.prefix.len();
            let bytes = name.len() - self.prefix.len();
            Problem::invalid(format!("the name of a group has at most {most} bytes percent-encoded, this has {bytes}"))
        })
    }

    /// The group of a queue. `None`: the queue is none of the store's.
    pub fn group(&self, queue: &QueueName) -> Option<String> {
        let encoded = queue.as_str().strip_prefix(&self.prefix)?;
        let group = decode(encoded)?;
        // Another spelling of a group is another queue, which this service does not use.
        (self.queue(&group).ok().as_ref() == Some(queue)).then_some(group)
    }
}

fn decode(encoded: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(encoded.len());
    let mut rest = encoded.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        let (high, low) = (digit()?, digit()?);
        bytes.push(u8::try_from(high * 16 + low).ok()?);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn store() -> Store {
        Store::new(DEFAULT).unwrap()
    }

    // T17: any name is a group's
    #[test]
    fn names_with_any_characters_are_queues() {
        for (group, queue) in [
            ("map", "taskstore.default/map"),
            ("a/b c", "taskstore.default/a%2Fb%20c"),
            ("50%,", "taskstore.default/50%25%2C"),
            ("ø", "taskstore.default/%C3%B8"),
        ] {
            let found = store().queue(group).unwrap();
            assert_eq!(found.as_str(), queue);
            assert_eq!(store().group(&found).as_deref(), Some(group));
        }
        assert_eq!(store().queue("").unwrap_err().code, "invalid");
        assert_eq!(store().queue(&"/".repeat(80)).unwrap_err().code, "invalid");
    }

    #[test]
    fn other_queues_are_no_groups() {
        for name in
            ["mail", "taskstore.other/map", "taskstore.default/a%2fb", "taskstore.default/%41", "taskstore.default/%F"]
        {
            assert_eq!(store().group(&QueueName::new(name).unwrap()), None, "{name}");
        }
    }

    #[test]
    fn stores_have_plain_names_and_tags_of_their_own() {
        for name in ["", "a/b", "a.b", "ä", &"x".repeat(33)] {
            assert_eq!(Store::new(name), None, "{name}");
        }
        assert_ne!(Store::new("a").unwrap().tag, Store::new("b").unwrap().tag);
    }

    proptest! {
        #[test]
        fn a_group_and_its_queue_are_computed_from_each_other(group in "\\PC{1,40}") {
            if let Ok(queue) = store().queue(&group) {
                prop_assert_eq!(store().group(&queue), Some(group));
            }
        }

        #[test]
        fn any_queue_is_a_group_or_none(name in "(taskstore.default/)?[%0-9A-Fa-f\\PC]{0,20}") {
            if let Ok(queue) = QueueName::new(&name)
                && let Some(group) = store().group(&queue)
            {
                prop_assert_eq!(store().queue(&group).unwrap(), queue);
            }
        }
    }
}
