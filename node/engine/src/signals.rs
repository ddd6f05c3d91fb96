//! What follows from what a folder reports to those above it, in the order in which it is reported.

use crate::Node;
use crate::context::signals::Signal;
use crate::membership::roster::RosterChange;
use norn_wire::PartitionId;

impl Node {
    /// Hands out all signals. What follows from one may report others; they come last.
    pub(crate) fn heed_signals(&mut self) {
        while let Some(signal) = self.signals.next() {
            match signal {
                Signal::Established(partition) => self.on_established(partition),
                Signal::LoadedForGrant { session, parts } => {
                    self.loaded_for_grant(session, parts.into_iter());
                }
                Signal::LoadedForArchive { partition, number, tasks } => self.archive_whole(partition, number, tasks),
                Signal::LoadedForTransaction { id, loaded, parts } => {
                    self.loaded_for_transaction(id, loaded, parts.into_iter());
                }
                Signal::LeaderElsewhere => self.follow_anew(),
                Signal::ReplicaAnswered(partition) => self.ask_for_operations(partition),
                Signal::RosterChanged(change) => self.on_roster_changed(&change),
                Signal::RouteChanged => self.steer_soon(),
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

    /// Hints for nodes that are no peers any more go first. Then claims go by the new policies: order and heads of the queues whose
    /// policy changed, and workers that waited for a paused queue. New peers are synchronised, and the controller looks at the members.
    fn on_roster_changed(&mut self, change: &RosterChange) {
        self.drop_owed_to_strangers();
        self.quotas_soon();
        self.rates_changed();
        for queue in &change.reordered {
            self.follow_policy_everywhere(queue);
            self.publish_again(queue);
        }
        change.resumed.iter().for_each(|queue| self.tell_all_waiting(queue));
        change.fresh.iter().for_each(|node| self.exchange_anew(*node));
        self.steer_soon();
    }
}
