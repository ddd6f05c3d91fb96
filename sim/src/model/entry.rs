//! A claim's claim entry without the consensus state: a leader asks a majority for what they have, and takes the union of that, where the
//! newest value of a claim entry wins. Leaders of later epochs may then answer differently, unless each writes what it found again, in its
//! own name, before it uses it. The protocol does not do this at all; the model shows why.

use std::collections::{BTreeMap, BTreeSet};

/// Replicas.
const REPLICAS: u8 = 3;
/// Epochs; each is led by the replica that comes first.
const EPOCHS: u8 = 4;

/// Value of the claim entry: when it was written, and the holder of the task. 0 is none.
type ClaimEntry = (u8, u8);

/// State of a leader.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Leading {
    /// Its replica.
    at: u8,
    votes: BTreeMap<u8, ClaimEntry>,
    /// Value that it writes everywhere, once enough replicas have voted.
    written: Option<ClaimEntry>,
    acks: BTreeSet<u8>,
}

/// State of the world.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    /// Promise and claim entry of each replica.
    replicas: Vec<(u8, ClaimEntry)>,
    /// Leaders by epoch.
    leaders: BTreeMap<u8, Leading>,
    /// Holders of the task that clients were answered.
    answered: BTreeSet<u8>,
}

/// An action that may happen. A question and its answer are one step; it may be late, and may never be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// A replica begins the next epoch.
    Campaign(u8),
    /// The leader of an epoch gets a vote, and what the voter has.
    Vote(u8, u8),
    /// The leader of an epoch has its claim entry written.
    Write(u8, u8),
}

/// The world; a leader writes what it found in its own name, or as it found it.
#[derive(Debug, Clone)]
pub struct Union {
    /// Leaders write in their own name.
    pub stamps_again: bool,
}

fn is_majority(of: usize) -> bool {
    2 * of > usize::from(REPLICAS)
}

impl Union {
    fn vote(&self, state: &mut State, epoch: u8, voter: u8) {
        let (promised, entry) = &mut state.replicas[usize::from(voter)];
        *promised = epoch;
        let leading = state.leaders.get_mut(&epoch).expect("it has begun");
        leading.votes.insert(voter, *entry);
        if is_majority(leading.votes.len()) && leading.written.is_none() {
            let (stamp, holder) = leading.votes.values().copied().max().expect("there are votes");
            leading.written = Some(match holder {
                0 => (epoch, epoch),
                _ if self.stamps_again => (epoch, holder),
                _ => (stamp, holder),
            });
            let at = leading.at;
            if state.replicas[usize::from(at)].0 == epoch {
                write(state, epoch, at);
            }
        }
    }
}

fn write(state: &mut State, epoch: u8, place: u8) {
    let leading = state.leaders.get_mut(&epoch).expect("it has begun");
    let entry = leading.written.expect("it has been found");
    let (promised, own) = &mut state.replicas[usize::from(place)];
    (*promised, *own) = (epoch, entry.max(*own));
    leading.acks.insert(place);
    if is_majority(leading.acks.len()) {
        state.answered.insert(entry.1);
    }
}

impl stateright::Model for Union {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let replicas = vec![(0, (0, 0)); usize::from(REPLICAS)];
        vec![State { replicas, leaders: BTreeMap::new(), answered: BTreeSet::new() }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.leaders.len() < usize::from(EPOCHS) {
            // Before the first campaign all replicas are alike.
            let candidates = if state.leaders.is_empty() { 1 } else { REPLICAS };
            actions.extend((0..candidates).map(Action::Campaign));
        }
        for (epoch, leading) in &state.leaders {
            for (place, (promised, _)) in (0..).zip(&state.replicas) {
                if promised < epoch {
                    actions.push(Action::Vote(*epoch, place));
                }
                if promised <= epoch && leading.written.is_some() && !leading.acks.contains(&place) {
                    actions.push(Action::Write(*epoch, place));
                }
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Campaign(at) => {
                let epoch = state.leaders.len() as u8 + 1;
                let leading = Leading { at, votes: BTreeMap::new(), written: None, acks: BTreeSet::new() };
                state.leaders.insert(epoch, leading);
                self.vote(&mut state, epoch, at);
            }
            Action::Vote(epoch, voter) => self.vote(&mut state, epoch, voter),
            Action::Write(epoch, place) => write(&mut state, epoch, place),
        }
        Some(state)
    }

    fn properties(&self) -> Vec<stateright::Property<Self>> {
        vec![stateright::Property::always("one holder", |_, state: &State| state.answered.len() <= 1)]
    }
}
