//! A node that finds that its log is an earlier copy of itself, or that another process runs on a copy.
//!
//! Whoever restores yesterday's image of a disk, or starts two nodes on copies of one, makes a replica that forgot what it
//! promised. The log cannot tell. Peers can: each heartbeat says which start and which heartbeat of the receiver its sender has
//! heard last. A start is told only once it is on disk, and each start counts one more than the one before, so a later one
//! than this was heard only if this log is not the latest; and a heartbeat of this very start that this process did not send
//! was sent by another one. Such a log is retired for ever, as the next start would count further, and be believed.
//!
//! This is best effort: it needs a peer that lives and remembers, and sees nothing where the node was not started since the
//! image was taken.

use crate::protocol::effect::Effect;
use crate::protocol::record::Record;
use crate::protocol::{Node, Observation};
use norn_client::wire::NodeId;

impl Node {
    /// Whether what a peer has heard of this node shows that its log is a copy; if so, it is retired.
    pub(in crate::protocol) fn retire_if_copied(&mut self, from: NodeId, (boot, number): (u64, u64)) -> bool {
        let Some(peer) = self.peers.get(&from) else { return false };
        let reason = if boot > self.boot {
            let own = self.boot;
            format!(
                "node {from} has heard start {boot} of this node, and this is start {own}: its log is an earlier copy"
            )
        } else if boot == self.boot && number > peer.sent {
            format!(
                "node {from} has heard another process that is this node, in the same start: one runs on a copy of its log"
            )
        } else {
            return false;
        };
        self.retired = true;
        self.outbox.persist(Record::Retired { reason: reason.clone() });
        self.outbox.observe(Observation::Retired { reason });
        // Nothing is handed over: what it says cannot be trusted.
        self.outbox.effect(Effect::Stopped);
        true
    }
}
