//! Safety conditions of the consensus state, separate from all code around them. The protocol uses them, and so does the model
//! that is explored exhaustively (`norn-sim model`).

use crate::viewstamp::{Epoch, ReplicaId, Viewstamp};

/// whether a replica with viewstamp `own` may vote for `candidate`, whose table has viewstamp `theirs`.
///
/// One vote in an epoch, none below a promise, and none for a table that may lack what this replica acknowledged.
pub fn may_vote_for(
    (promised, voted_for): (Epoch, Option<ReplicaId>),
    own: Viewstamp,
    (epoch, candidate, theirs): (Epoch, ReplicaId, Viewstamp),
) -> bool {
    let is_fresh = epoch > promised || (epoch == promised && voted_for == Some(candidate));
    is_fresh && theirs >= own
}

/// whether a replica may still acknowledge anything of an epoch.
pub fn may_follow(promised: Epoch, epoch: Epoch) -> bool {
    epoch >= promised
}

/// whether a leader's whole table with viewstamp `offered` replaces the own one.
pub fn takes_table(own: Viewstamp, offered: Viewstamp) -> bool {
    offered > own
}

/// number of operations from number `first` on in `epoch` that a replica already has; `None` if they do not follow on its
/// table.
pub fn known_of(own: Viewstamp, epoch: Epoch, first: u64) -> Option<u64> {
    let follows = own.epoch == epoch && first >= 1 && first <= own.length + 1;
    follows.then(|| own.length + 1 - first)
}

/// the greatest length that a quorum has reached; `is_quorum` tells whether a quorum has reached a length.
pub fn reached(lengths: impl Iterator<Item = u64>, mut is_quorum: impl FnMut(u64) -> bool) -> Option<u64> {
    let mut lengths: Vec<u64> = lengths.collect();
    lengths.sort_unstable();
    lengths.into_iter().rev().find(|length| is_quorum(*length))
}

/// whether a replica that lost a part of its table has it again. `target` is the viewstamp of the leader of an epoch not
/// below the promise, from an answer to a question asked after the loss.
pub fn has_recovered(own: Viewstamp, target: Option<Viewstamp>) -> bool {
    target.is_some_and(|target| own >= target)
}

/// whether the leader of `epoch` may set the recovery target of a replica with that promise.
pub fn may_set_target(promised: Epoch, epoch: Epoch) -> bool {
    epoch >= promised
}

/// Whether `present` holds for more than half of `members`. All majorities are computed here.
pub fn majority<T>(members: &[T], mut present: impl FnMut(&T) -> bool) -> bool {
    assert!(!members.is_empty(), "a cohort has members");
    2 * members.iter().filter(|member| present(member)).count() > members.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use norn_wire::NodeId;

    #[test]
    fn a_majority_is_more_than_half_for_even_and_odd_cohorts() {
        for size in 1..=6u128 {
            let members: Vec<ReplicaId> =
                (0..size).map(|node| ReplicaId { node: NodeId(node), incarnation: 1 }).collect();
            for present in 0..=size {
                let reached = majority(&members, |member| member.node.0 < present);
                assert_eq!(reached, present > size / 2, "{present} of {size}");
            }
        }
    }
}
