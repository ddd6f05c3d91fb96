//! Every leader begins with all that was committed before it, and cohorts follow each other so that their quorums intersect.
//! (ARCHITECTURE.md I-2, I-5)

use super::Property;
use crate::adapter::ReplicaView;
use crate::history::{Happening, History, Moment};
use norn_engine::Observation;
use norn_model::cohort::Cohort;
use norn_model::viewstamp::Viewstamp;
use norn_wire::{NodeId, PartitionId};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
pub struct Succession {
    /// Table that the leader of each epoch began with.
    bases: BTreeMap<(PartitionId, u64), Viewstamp>,
    /// Number of operations that the leader of each epoch knows to be committed.
    commits: BTreeMap<(PartitionId, u64), u64>,
    /// Cohorts that leaders know to be committed, by version.
    cohorts: BTreeMap<PartitionId, BTreeMap<Viewstamp, Cohort>>,
}

impl Succession {
    /// Table of `epoch` or an earlier one from which the table of the leader of `later` descends; nothing where a leader between them
    /// was not seen.
    fn origin(&self, partition: PartitionId, epoch: u64, later: u64) -> Option<Viewstamp> {
        let mut base = *self.bases.get(&(partition, later))?;
        while base.epoch > epoch {
            base = *self.bases.get(&(partition, base.epoch))?;
        }
        Some(base)
    }

    fn note(&mut self, view: &ReplicaView) -> Result<(), String> {
        let (partition, epoch) = (view.partition, view.viewstamp.epoch);
        let Some(base) = view.base else { return Ok(()) };
        let known = *self.bases.entry((partition, epoch)).or_insert(base);
        if known != base {
            return Err(format!("partition {partition}: epoch {epoch} began at {known:?}, and at {base:?}"));
        }
        let before = self.commits.get(&(partition, epoch)).copied();
        if !view.established || before >= Some(view.commit) {
            return Ok(());
        }
        self.commits.insert((partition, epoch), view.commit);
        let later = self.bases.range((partition, epoch + 1)..=(partition, u64::MAX)).map(|((_, later), _)| *later);
        later.into_iter().try_for_each(|later| self.check(partition, (epoch, view.commit), later))
    }

    fn check(&self, partition: PartitionId, (epoch, length): (u64, u64), later: u64) -> Result<(), String> {
        let committed = Viewstamp { epoch, length };
        match self.origin(partition, epoch, later) {
            Some(origin) if origin < committed => Err(format!(
                "partition {partition}: the leader of epoch {later} began at {origin:?}, but {committed:?} was committed"
            )),
            _ => Ok(()),
        }
    }

    /// Checks that a leader has all that earlier ones have committed.
    fn judge(&self, view: &ReplicaView) -> Result<(), String> {
        let (partition, later) = (view.partition, view.viewstamp.epoch);
        if view.base.is_none() {
            return Ok(());
        }
        let earlier = self.commits.range((partition, 0)..(partition, later)).next_back();
        earlier.map_or(Ok(()), |((_, epoch), commit)| self.check(partition, (*epoch, *commit), later))
    }
}

/// Sets of replicas of each of which a quorum has a majority.
fn sides(cohort: &Cohort) -> Vec<BTreeSet<NodeId>> {
    let members = cohort.members().collect();
    let next = cohort.next.as_ref().filter(|_| cohort.is_joint());
    let next = next.map(|next| next.slots.iter().map(|slot| slot.replica.node).collect());
    [members].into_iter().chain(next).collect()
}

// S41, S42
impl Property for Succession {
    fn name(&self) -> &'static str {
        "succession"
    }

    fn see(&mut self, _history: &History, _moment: Moment, happening: &Happening<'_>) -> Result<(), String> {
        match happening {
            Happening::Replica { view, .. } => {
                self.note(view)?;
                self.judge(view)
            }
            Happening::Observed { observation: Observation::CohortCommitted { partition, cohort }, .. } => {
                let known = self.cohorts.entry(PartitionId(*partition)).or_default();
                known.insert(cohort.version, cohort.clone());
                let before = known.range(..cohort.version).next_back();
                let after = known.range(cohort.version..).nth(1);
                let pairs = [before.map(|(_, before)| (before, cohort)), after.map(|(_, after)| (cohort, after))];
                for (one, other) in pairs.into_iter().flatten() {
                    let shared = sides(one).iter().any(|side| sides(other).contains(side));
                    if !shared && one.quarantine.is_none() && other.quarantine.is_none() {
                        return Err(format!("partition {partition}: from {one:?} to {other:?} without a step between"));
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::*;
    use super::*;
    use norn_model::cohort::{CohortSlot, Next, Phase};
    use norn_model::viewstamp::ReplicaId;

    fn at(epoch: u64, length: u64) -> Viewstamp {
        Viewstamp { epoch, length }
    }

    fn leads(bench: &mut Bench<Succession>, base: Viewstamp, now: Viewstamp, established: bool) -> Result<(), String> {
        let view =
            ReplicaView { base: Some(base), viewstamp: now, commit: now.length, established, ..ReplicaView::default() };
        bench.see(Happening::Replica { node: 0, view: &view })
    }

    #[test]
    fn a_leader_that_lacks_what_was_committed_is_refused() {
        let mut bench = Bench::<Succession>::new();
        leads(&mut bench, at(0, 0), at(1, 5), true).unwrap();
        leads(&mut bench, at(1, 5), at(2, 0), false).unwrap();
        leads(&mut bench, at(1, 7), at(3, 0), true).unwrap();
        leads(&mut bench, at(3, 0), at(4, 2), true).unwrap();
        assert!(leads(&mut bench, at(3, 1), at(5, 0), false).is_err(), "the third leader's table is not the last");
        assert!(leads(&mut bench, at(2, 9), at(6, 0), false).is_err(), "what the fourth has committed is not there");
    }

    #[test]
    fn what_is_committed_too_late_is_refused() {
        let mut bench = Bench::<Succession>::new();
        leads(&mut bench, at(0, 0), at(1, 1), true).unwrap();
        leads(&mut bench, at(1, 1), at(2, 0), true).unwrap();
        assert!(leads(&mut bench, at(0, 0), at(1, 2), true).is_err());
    }

    #[test]
    fn an_epoch_begins_once() {
        let mut bench = Bench::<Succession>::new();
        leads(&mut bench, at(1, 1), at(2, 0), false).unwrap();
        assert!(leads(&mut bench, at(1, 2), at(2, 0), false).is_err());
    }

    fn committed(bench: &mut Bench<Succession>, version: u64, members: &[u128], next: &[u128]) -> Result<(), String> {
        let slot = |node: &u128| {
            let replica = ReplicaId { node: NodeId(*node), incarnation: 0 };
            CohortSlot { replica, since: Viewstamp::default() }
        };
        let slots: Vec<CohortSlot> = next.iter().map(slot).collect();
        let cohort = Cohort {
            version: at(1, version),
            members: members.iter().map(slot).collect(),
            next: (!next.is_empty()).then_some(Next { slots, phase: Phase::Joint }),
            ..Cohort::default()
        };
        bench.see(Happening::Observed {
            node: 0,
            boot: 0,
            observation: &Observation::CohortCommitted { partition: 0, cohort },
        })
    }

    #[test]
    fn cohorts_without_a_joint_one_between_them_are_refused() {
        let mut bench = Bench::<Succession>::new();
        committed(&mut bench, 1, &[1, 2, 3], &[]).unwrap();
        committed(&mut bench, 3, &[4], &[]).unwrap_err();
        let mut bench = Bench::<Succession>::new();
        committed(&mut bench, 1, &[1, 2, 3], &[]).unwrap();
        committed(&mut bench, 2, &[1, 2, 3], &[4]).unwrap();
        committed(&mut bench, 3, &[4], &[]).unwrap();
    }
}
