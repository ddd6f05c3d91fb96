//! Merge: pointwise maximum. Laws: commutative, associative, idempotent, monotone.
//!
//! Values under one key are ordered by content, a total order. So a client that writes two different values under one key gets the same
//! winner everywhere, and a flag that reports the conflict. Specs are ordered by the hash of their content, as a replica may not have the
//! rest in memory. A spec made by a transaction takes precedence over the one it changed, and a later one over that.

use super::{Completed, Content, Facts, Task};
use crdts::CvRDT;
use std::convert::Infallible;

/// A delta contradicts what is known: it has another value under a key of which only one may ever exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conflict;

/// Merges sorted lists. `merge` decides whether the newcomer replaces the value, and may flag a conflict.
fn merge_sorted<K: Ord, V>(into: &mut Vec<(K, V)>, from: Vec<(K, V)>, mut merge: impl FnMut(&mut V, V)) {
    for (key, value) in from {
        match into.binary_search_by(|(known, _)| known.cmp(&key)) {
            Ok(place) => merge(&mut into[place].1, value),
            Err(place) => {
                into.reserve_exact(1);
                into.insert(place, (key, value));
            }
        }
    }
}

/// Whether each of some values stands in a sorted list under its key, or makes no difference to the one there.
fn has_all<K: Ord, V>(list: &[(K, V)], values: &[(K, V)], same: impl Fn(&V, &V) -> bool) -> bool {
    let has = |key: &K, value: &V| {
        list.binary_search_by(|(known, _)| known.cmp(key)).is_ok_and(|place| same(&list[place].1, value))
    };
    values.iter().all(|(key, value)| has(key, value))
}

fn keep_greater<V: Ord>(conflict: &mut bool) -> impl FnMut(&mut V, V) + '_ {
    move |known, value| {
        if *known != value {
            *conflict = true;
            if value > *known {
                *known = value;
            }
        }
    }
}

impl Facts {
    fn merge(&mut self, other: Facts) {
        let mut conflict = self.conflict || other.conflict;
        merge_sorted(&mut self.updates, other.updates, keep_greater(&mut conflict));
        merge_sorted(&mut self.completions, other.completions, |known, value| {
            conflict |= !known.is(&value);
            if value > *known {
                *known = value;
            }
        });
        for token in other.handed {
            if let Err(place) = self.handed.binary_search(&token) {
                self.handed.insert(place, token);
            }
        }
        // Several people may cancel one task, each with their own reason; that is no conflict.
        self.cancel = self.cancel.take().max(other.cancel);
        merge_sorted(&mut self.claims, other.claims, |known, value| {
            if value > *known {
                *known = value;
            }
        });
        merge_sorted(&mut self.settled, other.settled, |known, how| *known = how.max(*known));
        if let Some(group) = other.group {
            conflict |= self.group.get_or_insert_default().merge(*group);
        }
        let both = self.seal.zip(other.seal);
        conflict |= both.is_some_and(|(known, seal)| known != seal);
        self.seal = self.seal.max(other.seal);
        self.purged |= other.purged;
        self.conflict = conflict;
    }

    /// The part that stands beside a tombstone: completions whose children are not enqueued, or the tokens of those whose children are.
    pub fn buried(mut self) -> Option<Box<Facts>> {
        for (token, done) in &self.completions {
            if done.children.as_ref().is_some_and(|children| !children.are_open())
                && let Err(place) = self.handed.binary_search(token)
            {
                self.handed.insert(place, *token);
            }
        }
        let handed = self.handed;
        let is_open =
            |(token, done): &(_, Completed)| done.open_children().is_some() && handed.binary_search(token).is_err();
        let completions: Vec<_> = self.completions.into_iter().filter(is_open).collect();
        let nothing = completions.is_empty() && handed.is_empty();
        (!nothing).then(|| Box::new(Facts { completions, handed, ..Facts::default() }))
    }

    /// Whether merging `other` would add nothing. Looks at the keys of `other` alone.
    fn knows(&self, other: &Facts) -> bool {
        (self.conflict || !other.conflict)
            && (self.purged || !other.purged)
            && has_all(&self.updates, &other.updates, |known, value| known == value || self.conflict && value < known)
            && has_all(&self.completions, &other.completions, |known, value| {
                known == value || (self.conflict || known.is(value)) && value < known
            })
            && other.handed.iter().all(|token| self.handed.binary_search(token).is_ok())
            && self.cancel >= other.cancel
            && has_all(&self.claims, &other.claims, |known, value| value <= known)
            && has_all(&self.settled, &other.settled, |known, how| how <= known)
            && other.group.as_ref().is_none_or(|group| self.group.as_ref().is_some_and(|known| known.knows(group)))
            && (self.seal == other.seal || other.seal.is_none() || self.conflict && self.seal > other.seal)
    }
}

impl<S: Content> CvRDT for Task<S> {
    type Validation = Infallible;

    fn validate_merge(&self, _other: &Self) -> Result<(), Infallible> {
        Ok(())
    }

    fn merge(&mut self, other: Self) {
        if self.tombstone.is_some() || other.tombstone.is_some() {
            let mut facts = self.facts.take().unwrap_or_default();
            facts.merge(other.facts.map(|facts| *facts).unwrap_or_default());
            *self = Task {
                tombstone: self.tombstone.take().max(other.tombstone),
                facts: facts.buried(),
                ..Task::default()
            };
            return;
        }
        let mut conflict = false;
        match (&mut self.spec, other.spec) {
            (Some(known), Some(spec)) => {
                conflict = known.origin() != spec.origin();
                if spec.rank() > known.rank() {
                    *known = spec;
                }
            }
            (None, Some(spec)) => self.spec = Some(spec),
            (_, None) => {}
        }
        match (&mut self.facts, other.facts) {
            (Some(known), Some(facts)) => known.merge(*facts),
            (none @ None, Some(facts)) => *none = Some(facts),
            (_, None) => {}
        }
        if conflict {
            self.facts.get_or_insert_default().conflict = true;
        }
    }
}

impl<S: Content> Task<S> {
    /// Whether a client's delta contradicts what is known. Such a delta is refused on arrival; between replicas, which may each have
    /// accepted one of two, merge decides.
    pub fn contradicts(&self, delta: &Task) -> Result<(), Conflict> {
        if let (Some(known), Some(spec)) = (&self.spec, &delta.spec)
            && known.origin() != spec.origin()
        {
            return Err(Conflict);
        }
        let total = delta.facts.as_ref().and_then(|facts| facts.group.as_ref()?.total);
        if total.is_some()
            && self.spec.is_some()
            && (self.join().is_none() || self.total().is_some_and(|known| Some(known) != total))
        {
            return Err(Conflict);
        }
        let (Some(known), Some(facts)) = (&self.facts, &delta.facts) else { return Ok(()) };
        let updates = facts.updates.iter().any(|(key, data)| {
            known.updates.binary_search_by(|(other, _)| other.cmp(key)).is_ok_and(|at| known.updates[at].1 != *data)
        });
        let completions = facts.completions.iter().any(|(token, completed)| {
            known.completions.iter().any(|(other, value)| other == token && !value.is(completed))
        });
        let seals = known.seal.zip(facts.seal).is_some_and(|(known, seal)| known != seal);
        let totals =
            known.group.as_ref().zip(facts.group.as_ref()).is_some_and(|(known, group)| known.contradicts(group));
        if updates || completions || seals || totals { Err(Conflict) } else { Ok(()) }
    }
}

impl Task {
    /// Whether merging `delta` would add nothing.
    pub fn knows(&self, delta: &Task) -> bool {
        if self.tombstone.is_some() || delta.tombstone.is_some() {
            let mut merged = self.clone();
            merged.merge(delta.clone());
            return merged == *self;
        }
        let flagged = self.facts.as_ref().is_some_and(|facts| facts.conflict);
        let spec = match (&self.spec, &delta.spec) {
            (Some(known), Some(spec)) => spec.rank() <= known.rank() && (flagged || known.origin() == spec.origin()),
            (known, spec) => known.is_some() || spec.is_none(),
        };
        let facts = match (&self.facts, &delta.facts) {
            (Some(known), Some(facts)) => known.knows(facts),
            (known, facts) => known.is_some() || facts.is_none(),
        };
        spec && facts
    }
}
