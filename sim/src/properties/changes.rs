//! What an operator learns of the cluster is true, and stays true. An answer that comes later, by real time, is of no older version.
//! All answers and all gossip of one version agree. A confirmed change shows in all that is of its version or a later one, unless the
//! contrary was requested.

use super::Property;
use crate::history::{Happening, History, Moment};
use norn_engine::Observation;
use norn_model::record::Record;
use norn_wire::membership::{ClusterChange, ClusterView, Member, MemberState, Roster};
use norn_wire::response::Response;
use norn_wire::{NodeId, Request};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
pub struct Changes {
    /// Roster of each version, as first heard.
    rosters: BTreeMap<u64, Roster>,
    /// The rest of each version that answers name: version of the layout, replicas of each partition.
    settings: BTreeMap<u64, (u64, u32)>,
    /// Highest version that had been answered by each moment.
    told: Vec<(Moment, u64)>,
    /// All changes that were ever requested. A change may be carried out late, and more than once.
    wished: Vec<ClusterChange>,
    /// Confirmed changes, with the version as of which they were confirmed.
    confirmed: Vec<(u64, ClusterChange)>,
    /// Members that were declared gone after too long a silence.
    given_up: BTreeSet<NodeId>,
}

impl Changes {
    fn heard(&mut self, roster: &Roster) -> Result<(), String> {
        let known = self.rosters.entry(roster.version).or_insert_with(|| roster.clone());
        if known == roster {
            return Ok(());
        }
        Err(format!("version {} of the cluster is both {:?} and {:?}", roster.version, known.members, roster.members))
    }

    fn viewed(&mut self, view: &ClusterView, asked: Moment, now: Moment) -> Result<(), String> {
        self.heard(&view.roster)?;
        let version = view.roster.version;
        let said = (view.layout, view.replicas);
        let known = *self.settings.entry(version).or_insert(said);
        if known != said {
            return Err(format!("version {version} of the cluster has layout and replicas {known:?} and {said:?}"));
        }
        let before = self.told.partition_point(|(moment, _)| *moment < asked);
        let latest = self.told.last().map_or(0, |(_, version)| *version);
        if let Some((_, least)) =
            before.checked_sub(1).map(|place| self.told[place]).filter(|(_, told)| *told > version)
        {
            return Err(format!("version {least} of the cluster was told, and later version {version}"));
        }
        self.told.push((now, latest.max(version)));
        let lacks = |(of, change): &&(u64, ClusterChange)| *of <= version && !shows(view, change);
        match self.confirmed.iter().filter(|(_, change)| !self.is_contested(change)).find(lacks) {
            None => Ok(()),
            Some((of, change)) => Err(format!("{change:?} is in version {of} of the cluster, and not in {version}")),
        }
    }

    /// Whether a change may have been undone.
    fn is_contested(&self, change: &ClusterChange) -> bool {
        let given_up = |node: &NodeId| self.given_up.contains(node);
        let lost =
            matches!(change, ClusterChange::Add { with } | ClusterChange::Replace { with, .. } if given_up(&with.node));
        lost || self.wished.iter().any(|other| undoes(other, change))
    }
}

/// Whether `other` can undo what `change` made.
fn undoes(other: &ClusterChange, change: &ClusterChange) -> bool {
    use ClusterChange as C;
    let removed = match other {
        C::Remove { node } | C::Replace { node, .. } => Some(*node),
        _ => None,
    };
    match change {
        C::Add { with } => removed == Some(with.node),
        C::Replace { node, with } => removed == Some(with.node) || *other == C::Undrain { node: *node },
        C::Drain { node } => *other == C::Undrain { node: *node },
        C::Undrain { node } => *other == C::Drain { node: *node } || removed == Some(*node),
        C::Weight { node, weight } => {
            matches!(other, C::Weight { node: of, weight: to } if of == node && to != weight)
        }
        C::Replicas { replicas } => matches!(other, C::Replicas { replicas: to } if to != replicas),
        _ => true,
    }
}

/// Whether a view shows the effect of a change.
fn shows(view: &ClusterView, change: &ClusterChange) -> bool {
    let member = |node: &NodeId| view.roster.members.values().find(|member| member.node == *node);
    let state = |node: &NodeId| member(node).map_or(MemberState::Gone, |member| member.state);
    let leaves = |node: &NodeId| matches!(state(node), MemberState::Leaving | MemberState::Gone);
    match change {
        ClusterChange::Add { with } => state(&with.node).is_present(),
        ClusterChange::Replace { node, with } => state(&with.node).is_present() && leaves(node),
        ClusterChange::Drain { node } => leaves(node),
        ClusterChange::Undrain { node } => state(node) != MemberState::Leaving,
        ClusterChange::Remove { node } => state(node) == MemberState::Gone,
        ClusterChange::Weight { node, weight } => member(node).is_none_or(|member: &Member| member.weight == *weight),
        ClusterChange::Replicas { replicas } => view.replicas == *replicas,
        _ => true,
    }
}

impl Property for Changes {
    fn name(&self) -> &'static str {
        "changes"
    }

    fn see(&mut self, _history: &History, moment: Moment, happening: &Happening<'_>) -> Result<(), String> {
        match happening {
            Happening::Wished { change } => {
                if !self.wished.contains(change) {
                    self.wished.push((*change).clone());
                }
                Ok(())
            }
            Happening::Observed { observation: Observation::DeclaredGone { node }, .. } => {
                self.given_up.insert(*node);
                Ok(())
            }
            Happening::Appended { records, .. } => records.iter().try_for_each(|record| match record {
                Record::Roster(roster) => self.heard(roster),
                _ => Ok(()),
            }),
            Happening::Steered { request: Request::Cluster, asked, response: Response::Cluster(view) } => {
                self.viewed(view, *asked, moment)
            }
            Happening::Steered {
                request: Request::Change { change, dry_run: false },
                asked,
                response: Response::Changed(changed),
            } => {
                if changed.version != changed.view.roster.version {
                    return Err(format!("version {} is told with a view of another one", changed.version));
                }
                self.confirmed.push((changed.version, (**change).clone()));
                self.viewed(&changed.view, *asked, moment)
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::Bench;
    use super::*;
    use norn_wire::ClusterId;
    use norn_wire::membership::{Candidate, Changed, Settings};

    fn member(node: u128, state: MemberState) -> Member {
        let text = format!("n{node}");
        Member {
            node: NodeId(node),
            incarnation: 1,
            name: text.clone(),
            address: text.clone(),
            zone: text,
            weight: 1,
            state,
        }
    }

    fn view(version: u64, members: &[(u128, MemberState)]) -> Box<ClusterView> {
        let members = (0..).zip(members.iter().map(|(node, state)| member(*node, *state))).collect();
        Box::new(ClusterView {
            cluster: ClusterId(1),
            name: String::new(),
            roster: Roster { version, members, ..Roster::default() },
            voters: Vec::new(),
            leader: NodeId(0),
            heard: Vec::new(),
            replicas: 3,
            settings: Settings::default(),
            layout: 1,
            stale: false,
            shares: BTreeMap::new(),
            moving: Vec::new(),
            open: 0,
            unknown: 0,
        })
    }

    fn add(node: u128) -> ClusterChange {
        let Member { node, incarnation, name, address, zone, weight, .. } = member(node, MemberState::Joining);
        ClusterChange::Add { with: Candidate { cluster: None, node, incarnation, name, address, zone, weight } }
    }

    fn status(bench: &mut Bench<Changes>, asked: Moment, view: Box<ClusterView>) -> Result<(), String> {
        bench.see(Happening::Steered { request: &Request::Cluster, asked, response: &Response::Cluster(view) })
    }

    fn changed(bench: &mut Bench<Changes>, change: ClusterChange, view: Box<ClusterView>) -> Result<(), String> {
        bench.see(Happening::Wished { change: &change })?;
        let asked = bench.now();
        let answer = Changed { already: false, version: view.roster.version, view, membership: None };
        let request = Request::Change { change: Box::new(change), dry_run: false };
        bench.see(Happening::Steered { request: &request, asked, response: &Response::Changed(Box::new(answer)) })
    }

    const UP: MemberState = MemberState::Up;

    #[test]
    fn versions_never_go_back() {
        let mut bench = Bench::<Changes>::new();
        let early = bench.now();
        status(&mut bench, early, view(2, &[(0, UP)])).unwrap();
        bench.pass(1_000);
        assert!(status(&mut bench, early, view(1, &[(0, UP)])).is_ok(), "asked before the answer was there");
        let late = bench.now();
        assert!(status(&mut bench, late, view(1, &[(0, UP)])).is_err());
    }

    #[test]
    fn a_version_is_the_same_for_all() {
        let mut bench = Bench::<Changes>::new();
        let now = bench.now();
        status(&mut bench, now, view(2, &[(0, UP)])).unwrap();
        assert!(status(&mut bench, now, view(2, &[(0, MemberState::Leaving)])).is_err());
        let roster = view(2, &[(1, UP)]).roster;
        let records = [Record::Roster(std::sync::Arc::new(roster))];
        let ticket = norn_engine::Ticket(1);
        assert!(bench.see(Happening::Appended { node: 0, ticket, records: &records }).is_err());
    }

    #[test]
    fn what_was_confirmed_stays_until_the_contrary_is_wished() {
        let mut bench = Bench::<Changes>::new();
        changed(&mut bench, add(5), view(3, &[(0, UP), (5, UP)])).unwrap();
        let now = bench.now();
        assert!(status(&mut bench, now, view(4, &[(0, UP)])).is_err());
        assert!(changed(&mut bench, add(6), view(6, &[(0, UP), (5, UP)])).is_err());
        bench.see(Happening::Wished { change: &ClusterChange::Remove { node: NodeId(5) } }).unwrap();
        let now = bench.now();
        status(&mut bench, now, view(7, &[(0, UP), (6, UP)])).unwrap();
    }
}
