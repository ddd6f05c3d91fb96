//! Headers that nodes add to tasks.

use super::request::Spec;

/// Of a letter: the task that died.
pub const DEAD_TASK: &str = "norn-dead-task";
/// Of a letter: the queue of that task.
pub const DEAD_QUEUE: &str = "norn-dead-queue";
/// Of a letter: why it died; as much of that as a header holds.
pub const DEAD_REASON: &str = "norn-dead-reason";
/// Of a task that was redriven: the one that it was.
pub const REDRIVEN_FROM: &str = "norn-redriven-from";

/// All of them.
pub const TOLD: [&str; 4] = [DEAD_TASK, DEAD_QUEUE, DEAD_REASON, REDRIVEN_FROM];

impl Spec {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// Whether it tells of a task that died.
    pub fn is_letter(&self) -> bool {
        self.header(DEAD_TASK).is_some()
    }
}
