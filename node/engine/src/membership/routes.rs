//! Replica-group lookup: the cohort of each partition as far as this node has heard, which is where writes and reads go.
//!
//! No safety rests on it. A replica that is asked answers with its version of the cohort, and adds the cohort itself if the asker
//! knows another; only answers of one version make a quorum of it (`model/src/cohort.rs`). Leaders advertise the version of each
//! cohort with their leaderships, so that a node that was just started soon knows where to ask.

use crate::Node;
use crate::context::signals::Signal;
use crate::context::timers::Key;
use crate::membership::Peer;
use norn_model::cohort::{AdvertisedCohort, Cohort, Role};
use norn_model::config::mutant;
use norn_model::consensus::ConsensusState;
use norn_model::limits::EPOCH_STEP_MAX;
use norn_model::message::Peering;
use norn_model::metadata;
use norn_model::viewstamp::{Epoch, ReplicaId, Viewstamp};
use norn_wire::response::Genesis;
use norn_wire::{NodeId, PartitionId};
use std::borrow::Cow;
use std::collections::BTreeMap;

impl Node {
    /// Replicas at genesis, in the order of preference.
    pub(crate) fn founders(&self, partition: PartitionId) -> Vec<ReplicaId> {
        if partition == PartitionId::METADATA {
            return self.membership.root_founders.clone();
        }
        metadata::cohort(self.genesis.as_ref().expect("asked only in a cluster"), partition)
    }

    /// Whether a partition exists; the metadata group is one.
    pub(crate) fn has_partition(&self, partition: PartitionId) -> bool {
        let of_tasks = |genesis: &Genesis| u32::from(partition.0) < genesis.partitions;
        self.genesis.as_ref().is_some_and(|genesis| of_tasks(genesis) || partition == PartitionId::METADATA)
    }

    /// Returns the consensus state of this node's replica, if it has a table.
    fn own_consensus(&self, partition: PartitionId) -> Option<&ConsensusState> {
        self.partitions.get(&partition).filter(|replica| !replica.is_blank()).map(|replica| &replica.consensus)
    }

    /// Returns the cohort that this node's replica can advertise.
    fn own_cohort(&self, partition: PartitionId) -> Option<AdvertisedCohort> {
        let consensus = self.own_consensus(partition)?;
        Some(AdvertisedCohort { epoch: consensus.viewstamp.epoch, cohort: consensus.cohort.clone() })
    }

    /// Returns the latest known configuration of a partition, with its epoch.
    pub(crate) fn route_of(&self, partition: PartitionId) -> AdvertisedCohort {
        let (epoch, cohort) = self.latest_of(partition);
        AdvertisedCohort { epoch, cohort: cohort.into_owned() }
    }

    /// Returns the latest known cohort of a partition.
    pub(crate) fn cohort_of(&self, partition: PartitionId) -> Cohort {
        self.seen_cohort_of(partition).into_owned()
    }

    /// Returns the latest known cohort of a partition without a copy.
    pub(crate) fn seen_cohort_of(&self, partition: PartitionId) -> Cow<'_, Cohort> {
        self.latest_of(partition).1
    }

    /// Returns the latest known cohort of a partition, with the epoch of the table that it comes from.
    fn latest_of(&self, partition: PartitionId) -> (Epoch, Cow<'_, Cohort>) {
        let own = self.own_consensus(partition).map(|consensus| (consensus.viewstamp.epoch, &consensus.cohort));
        let heard = self.membership.routes.get(&partition).map(|advertised| (advertised.epoch, &advertised.cohort));
        match heard.into_iter().chain(own).max_by_key(|(epoch, cohort)| (*epoch, cohort.version)) {
            Some((epoch, cohort)) => (epoch, Cow::Borrowed(cohort)),
            None => (0, Cow::Owned(Cohort::founded(&self.founders(partition)))),
        }
    }

    /// At the replay: stores a cohort that was known. What follows from it is done at the start.
    pub(crate) fn recover_route(&mut self, partition: PartitionId, advertised: &AdvertisedCohort) {
        let rank = self.membership.routes.get(&partition).map_or((0, Viewstamp::default()), AdvertisedCohort::rank);
        if self.has_partition(partition) && advertised.cohort.is_sound() && advertised.rank() > rank {
            self.membership.routes.insert(partition, advertised.clone());
        }
    }

    /// Takes in an advertised cohort.
    pub(crate) fn learn_route(&mut self, partition: PartitionId, advertised: &AdvertisedCohort) {
        if !self.has_partition(partition) || !advertised.cohort.is_sound() {
            return;
        }
        let rank = self.membership.routes.get(&partition).map_or((0, Viewstamp::default()), AdvertisedCohort::rank);
        let seen = self.partitions.get(&partition).map_or(rank.0, |replica| replica.consensus.seen.max(rank.0));
        if advertised.epoch > seen.saturating_add(EPOCH_STEP_MAX) {
            self.outbox.refuse("implausible epoch");
        } else if advertised.rank() > rank {
            self.membership.routes.insert(partition, advertised.clone());
            self.count_answers();
            self.signals.report(Signal::RouteChanged);
            if self.is_out(partition) {
                self.timers.set_if_none(Key::Change(partition), self.now.mono_us);
            }
        }
    }

    /// Asks a leader for cohorts whose advertised versions are unknown here, until they are known.
    pub(crate) fn ask_for_routes(&mut self, node: NodeId) {
        let (now_us, wait_us) = (self.now.mono_us, self.config.resend_ms * 1_000);
        let Some(peer) = self.membership.peers.get(&node).filter(|peer| !peer.strange.is_empty()) else { return };
        let once = mutant!(self.config, RoutesAskedOnce);
        let asked = |peer: &Peer| peer.strange_asked_us.is_some();
        if peer.strange_asked_us.is_some_and(|asked_us| now_us < asked_us + wait_us)
            || once && self.membership.peers.values().any(asked)
        {
            return;
        }
        let known = |id: &PartitionId| self.membership.routes.get(id).map(AdvertisedCohort::rank);
        let held = |id: &PartitionId| self.partitions.get(id).is_some_and(|replica| !replica.is_blank());
        // A node that holds no replica also asks for a cohort that never changed, so that it knows the cohort instead of assuming
        // it.
        let unknown = |(id, (epoch, version)): &(&PartitionId, &(Epoch, Viewstamp))| {
            known(id).map_or_else(
                || !held(id) || *version != Viewstamp::default(),
                |(at, heard)| *version != heard && (*epoch, *version) > (at, heard),
            )
        };
        let strange: BTreeMap<_, _> =
            peer.strange.iter().filter(unknown).map(|(id, advertised)| (*id, *advertised)).collect();
        let partitions: Vec<PartitionId> = strange.keys().copied().collect();
        let peer = self.membership.peers.get_mut(&node).expect("just seen");
        (peer.strange, peer.strange_asked_us) = (strange, Some(now_us));
        if !partitions.is_empty() {
            self.outbox.send(node, Peering::RouteAsk { partitions });
        }
    }

    pub(crate) fn on_route_ask(&mut self, from: NodeId, partitions: &[PartitionId]) {
        for partition in partitions {
            if let Some(advertised) = self.own_cohort(*partition) {
                self.outbox.send(from, Peering::Route { partition: *partition, advertised: Box::new(advertised) });
            }
        }
    }

    /// Returns this replica's cohort for an asker that uses another version.
    pub(crate) fn news_for(&self, partition: PartitionId, at: Viewstamp) -> Option<Box<AdvertisedCohort>> {
        self.own_cohort(partition).filter(|advertised| advertised.cohort.version != at).map(Box::new)
    }

    /// Whether the latest known cohort leaves this replica out while it still holds something.
    pub(crate) fn is_out(&self, partition: PartitionId) -> bool {
        let Some(replica) = self.partitions.get(&partition).filter(|replica| !replica.is_blank()) else { return false };
        let own = (replica.consensus.viewstamp.epoch, replica.cohort().version);
        let advertised = |advertised: &AdvertisedCohort| advertised.rank() > own && !advertised.cohort.knows(self.me);
        let out = replica.role() == Role::Outside && !replica.cohort().is_founded();
        out || self.membership.routes.get(&partition).is_some_and(advertised)
    }
}
