//! What follows from what a folder reports to those above it, in the order in which it is reported.

use crate::Node;
use crate::context::signals::Signal;
use crate::queries::count::Total;
use norn_wire::{PartitionId, Response};

impl Node {
    /// Hands out all signals. What follows from one may report others; they come last.
    pub(crate) fn heed_signals(&mut self) {
        while let Some(signal) = self.signals.next() {
            match signal {
                Signal::Established(partition) => self.on_established(partition),
                Signal::StatusCounted(total) => self.on_status_counted(*total),
            }
        }
    }

    /// The leader takes over what its predecessor left: first what has been collected, as nothing of that is granted again, then
    /// claims, workflow and limits. Heads are published once all of that is in place.
    fn on_established(&mut self, partition: PartitionId) {
        self.forget(partition);
        self.settle_inherited(partition);
        self.begin_following(partition);
        self.begin_heeding(partition);
        self.begin_home(partition);
        self.begin_quotas(partition);
        self.arm_retire(partition);
        self.arm_expiry(partition);
        self.publish_all_heads(partition);
        self.stirred.insert(partition);
    }

    /// The other part of a status is what this node knows of the cluster.
    fn on_status_counted(&mut self, Total { client, number, total, unheard }: Total) {
        let status = self.status(total, unheard).expect("asked only in a cluster");
        self.outbox.reply(client, number, Response::Status(Box::new(status)));
    }
}
