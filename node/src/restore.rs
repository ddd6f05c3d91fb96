//! From what a log holds, or lacks, to a node: the same for every host.

use crate::protocol::Node;
use crate::storage::Replay;

/// Takes in one record, or a loss. An error means that the node cannot be what it was.
pub fn restore(node: &mut Node, replay: Replay) -> Result<(), String> {
    match replay {
        Replay::Record { record, covered } => node.recover(record, covered),
        Replay::Lost(_) => Err("the node cannot be without them".into()),
    }
}
