//! Lost parts of a task.

use serde::{Deserialize, Serialize};

/// Parts of a task that every replica that answered has lost from its disk. Another replica may still have them, or the disk may become
/// readable again. Otherwise a task without its payload is never claimed again: cancel it, then purge it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Losses {
    /// Payload, headers and key.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub payload: bool,
    /// The result of the completion that counts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub result: bool,
    /// The result of a completion that does not count.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rejected: bool,
    /// Log entries.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub log: bool,
}

impl Losses {
    /// Returns the names of the lost parts.
    pub fn names(&self) -> Vec<&'static str> {
        let all = [(self.payload, "payload"), (self.result, "result"), (self.rejected, "rejected"), (self.log, "log")];
        all.into_iter().filter_map(|(lost, name)| lost.then_some(name)).collect()
    }
}
