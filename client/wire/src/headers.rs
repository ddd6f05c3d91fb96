//! Headers that nodes and clients add to tasks.

use super::request::Spec;

/// Header of a dead letter: id of the task that died.
pub const DEAD_TASK: &str = "norn-dead-task";
/// Header of a dead letter: queue of the task that died.
pub const DEAD_QUEUE: &str = "norn-dead-queue";
/// Header of a dead letter: why the task died, cut to what a header holds.
pub const DEAD_REASON: &str = "norn-dead-reason";
/// Header of a redriven task: id of the dead task that it copies.
pub const REDRIVEN_FROM: &str = "norn-redriven-from";

/// Header of a task with a [text id](super::TextId): that id.
pub const TEXT_ID: &str = "norn-id";

/// All headers that nodes add to copies of dead tasks.
pub const TOLD: [&str; 4] = [DEAD_TASK, DEAD_QUEUE, DEAD_REASON, REDRIVEN_FROM];

impl Spec {
    /// Returns the value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// Whether the task is a dead letter.
    pub fn is_dead_letter(&self) -> bool {
        self.header(DEAD_TASK).is_some()
    }
}
