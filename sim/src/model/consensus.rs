//! The consensus state of one partition as a model: a few replicas, a few epochs, and every order in which messages may arrive.
//!
//! The conditions are the protocol's own (`model/src/rules.rs`, `majority`). What is left out is time, batching, and
//! everything about tasks: an operation is a name. A message that was sent can be delivered at any time, any number of times, or
//! never. A table is the list of all operations that ever made it, so that a committed one that a leader lacks shows.
//! Cohorts change by the protocol's own steps (`cohort.rs`).

use super::Flaw;
use super::state::{
    Action, Bounds, ClaimTable, Id, Message, Op, Replica, Role, Stamp, State, Step, concerns, real, viewstamp,
};
use norn_model::rules;
use std::collections::{BTreeMap, BTreeSet};

impl stateright::Model for Bounds {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut state = State {
            replicas: (0..self.replicas).map(|place| Replica::new((place, 0))).collect(),
            sent: BTreeSet::new(),
            shown: BTreeSet::new(),
            committed: (0, Vec::new()),
            leaders: BTreeMap::new(),
            crashes: 0,
            losses: 0,
            changes: 0,
            violation: None,
        };
        if let Some(steps) = &self.begin {
            let others = 1..self.cohort;
            let heard = others.map(Step::Hear).collect::<Vec<_>>();
            let elect =
                [vec![Step::Do(Action::Campaign(0))], heard.clone(), vec![Step::Hear(0)], heard, vec![Step::Hear(0)]];
            for step in elect.concat().iter().chain(steps) {
                state = self.take(state, step);
            }
        }
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.violation.is_some() {
            return;
        }
        for replica in &state.replicas {
            let place = replica.id.0;
            self.own_actions(state, replica, actions);
            let messages = state.sent.iter().filter(|message| concerns(message, replica));
            actions.extend(messages.map(|message| Action::Deliver(place, message.clone())));
            if self.fetch && !matches!(replica.role, Role::Leader { .. }) {
                let newer = state.shown.iter().filter(|(stamp, _)| *stamp > replica.stamp);
                actions.extend(newer.map(|shown| Action::Fetch(place, shown.clone())));
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Campaign(place) => self.campaign(&mut state, place),
            Action::Deliver(place, message) => self.deliver(&mut state, place, message),
            Action::Fetch(place, (stamp, table)) => {
                let replica = &mut state.replicas[usize::from(place)];
                (replica.stamp, replica.table, replica.role) = (stamp, table, Role::Follower);
            }
            Action::Append(place) => {
                let replica = &state.replicas[usize::from(place)];
                let op = Op::Claims(replica.stamp.0, replica.stamp.1 + 1);
                self.append(&mut state, place, op);
            }
            Action::SendWhole(place) => {
                let replica = &state.replicas[usize::from(place)];
                state.sent.insert(Message::Whole { stamp: replica.stamp, table: replica.table.clone() });
            }
            Action::Joint(place, target) => {
                let members = self.members(&state, target);
                state.changes += 1;
                self.append(&mut state, place, Op::Joint(members));
            }
            Action::Switch(place, target) => {
                let members = self.members(&state, target);
                state.changes += 1;
                self.append(&mut state, place, Op::Switch(members));
            }
            Action::Stable(place) => self.append(&mut state, place, Op::Stable),
            Action::Revert(place) => self.append(&mut state, place, Op::Revert),
            Action::Crash(place) => {
                let replica = &mut state.replicas[usize::from(place)];
                (replica.promised, replica.voted_for) = replica.durable;
                replica.role = Role::Follower;
                state.crashes += 1;
            }
            Action::LoseTable(place) => {
                let replica = &mut state.replicas[usize::from(place)];
                (replica.stamp, replica.table, replica.role) = ((0, 0), Vec::new(), Role::Follower);
                replica.recovering = (!self.has(Flaw::LostTableVotes)).then_some(None);
                state.losses += 1;
            }
            Action::Wipe(place) => {
                let replica = &mut state.replicas[usize::from(place)];
                let incarnation = replica.id.1 + u8::from(!self.has(Flaw::SameIdentity));
                *replica = Replica::new((place, incarnation));
                state.losses += 1;
            }
            Action::AnswerRejoin(leader, place) => {
                let (stamp, replica) =
                    (state.replicas[usize::from(leader)].stamp, state.replicas[usize::from(place)].id);
                state.sent.insert(Message::Target { replica, stamp });
            }
        }
        self.judge(&mut state);
        // An action that changes nothing is no step.
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<stateright::Property<Self>> {
        vec![
            stateright::Property::always("safe", |_, state: &State| state.violation.is_none()),
            stateright::Property::sometimes("committed in the last epoch", |model: &Bounds, state: &State| {
                state.committed.0 == model.epochs && !state.committed.1.is_empty()
            }),
            stateright::Property::sometimes("the cohort has changed", |model: &Bounds, state: &State| {
                model.targets.is_empty() || state.committed.1.contains(&Op::Stable)
            }),
        ]
    }
}

impl Bounds {
    fn own_actions(&self, state: &State, replica: &Replica, actions: &mut Vec<Action>) {
        let place = replica.id.0;
        let cohort = self.cohort_of(&replica.table);
        let may_campaign = self.candidates.is_empty() || self.candidates.contains(&place);
        if may_campaign && replica.promised < self.epochs && replica.recovering.is_none() && cohort.has(replica.id) {
            actions.push(Action::Campaign(place));
        }
        if state.crashes < self.crashes {
            actions.push(Action::Crash(place));
        }
        if state.losses < self.losses {
            actions.push(if self.wipes { Action::Wipe(place) } else { Action::LoseTable(place) });
        }
        let Role::Leader { base, established, committed, .. } = &replica.role else { return };
        let waiting = state.replicas.iter().filter(|other| other.recovering == Some(None) && other.id != replica.id);
        let may_set = |other: &&Replica| rules::may_set_target(other.promised.into(), replica.stamp.0.into());
        actions.extend(waiting.filter(may_set).map(|other| Action::AnswerRejoin(place, other.id.0)));
        if replica.stamp.1 > 0 {
            actions.push(Action::SendWhole(place));
        }
        if *established {
            let claims =
                replica.table.iter().filter(|op| matches!(op, Op::Claims(epoch, _) if *epoch == replica.stamp.0));
            if claims.count() < usize::from(self.appends) {
                actions.push(Action::Append(place));
            }
        }
        let joint_at = replica.table.iter().rposition(|op| matches!(op, Op::Joint(_)));
        if (*established && self.has(Flaw::NoJoint)) || self.has(Flaw::SwitchesEarly) {
            if state.changes < self.changes {
                actions.extend((0..self.targets.len()).map(|target| Action::Switch(place, target as u8)));
            }
            return;
        }
        match (cohort.is_joint(), joint_at) {
            (false, _) if *established && state.changes < self.changes => {
                let fits = |target: &u8| cohort.may_become(&self.members(state, *target));
                let targets = (0..self.targets.len()).map(|target| target as u8);
                actions.extend(targets.filter(fits).map(|target| Action::Joint(place, target)));
            }
            (true, Some(at)) => {
                let is_committed = *established && at < usize::from(base + committed);
                if is_committed || (self.has(Flaw::StableEarly) && *established) {
                    actions.push(Action::Stable(place));
                }
                if *established || self.has(Flaw::RevertsEarly) {
                    actions.push(Action::Revert(place));
                }
            }
            _ => {}
        }
    }

    fn members(&self, state: &State, target: u8) -> Vec<Id> {
        self.targets[usize::from(target)].iter().map(|place| state.replicas[usize::from(*place)].id).collect()
    }

    fn take(&self, state: State, step: &Step) -> State {
        use stateright::Model;
        match step {
            Step::Do(action) => self.next_state(&state, action.clone()).expect("a step changes something"),
            Step::Hear(place) => {
                let replica = &state.replicas[usize::from(*place)];
                let messages: Vec<Message> =
                    state.sent.iter().filter(|message| concerns(message, replica)).cloned().collect();
                messages.into_iter().fold(state, |state, message| {
                    self.next_state(&state, Action::Deliver(*place, message)).unwrap_or(state)
                })
            }
        }
    }

    fn campaign(&self, state: &mut State, place: u8) {
        if self.has(Flaw::StateFromOthers) {
            self.read_another(state, place);
        }
        let replica = &mut state.replicas[usize::from(place)];
        replica.promised += 1;
        replica.voted_for = Some(replica.id);
        replica.durable = (replica.promised, replica.voted_for);
        replica.role = Role::Candidate { votes: BTreeSet::new() };
        let (epoch, candidate, stamp) = (replica.promised, replica.id, replica.stamp);
        state.sent.insert(Message::Vote { epoch, candidate, stamp });
        self.count_vote(state, place, candidate);
    }

    /// Takes the newer of two tables, the candidate's own and another replica's, whichever replicas vote later.
    fn read_another(&self, state: &mut State, place: u8) {
        let other = state.replicas[(usize::from(place) + 1) % state.replicas.len()].clone();
        let replica = &mut state.replicas[usize::from(place)];
        if other.stamp > replica.stamp {
            (replica.stamp, replica.table) = (other.stamp, other.table);
        }
    }

    fn deliver(&self, state: &mut State, place: u8, message: Message) {
        let replica = &mut state.replicas[usize::from(place)];
        match message {
            Message::Vote { epoch, candidate, stamp } => {
                let ignores = self.has(Flaw::VoteIgnoresStamp) || self.has(Flaw::StateFromOthers);
                let theirs = if ignores { (u8::MAX, 0) } else { stamp };
                let promise = (replica.promised.into(), replica.voted_for.map(real));
                let asked = (epoch.into(), real(candidate), viewstamp(theirs));
                let allowed = rules::may_vote_for(promise, viewstamp(replica.stamp), asked);
                if replica.recovering.is_some() || !allowed {
                    return;
                }
                (replica.promised, replica.voted_for) = (epoch, Some(candidate));
                if !self.has(Flaw::VoteNotDurable) {
                    replica.durable = (epoch, Some(candidate));
                }
                replica.role = Role::Follower;
                let voter = replica.id;
                state.sent.insert(Message::Voted { epoch, candidate, voter });
            }
            Message::Voted { epoch, voter, .. } => {
                if replica.promised == epoch {
                    self.count_vote(state, place, voter);
                }
            }
            Message::Whole { stamp, table } => {
                if self.follow(state, place, stamp.0) {
                    let replica = &mut state.replicas[usize::from(place)];
                    if rules::takes_table(viewstamp(replica.stamp), viewstamp(stamp)) {
                        (replica.stamp, replica.table) = (stamp, table);
                        if self.has(Flaw::RegainsByInstall) {
                            replica.recovering = None;
                        }
                    }
                    self.acknowledge(state, place, stamp.0);
                }
            }
            Message::Next { stamp, op } => {
                let obeys = self.has(Flaw::AcksAfterPromise) && replica.stamp.0 == stamp.0;
                if obeys || self.follow(state, place, stamp.0) {
                    let replica = &mut state.replicas[usize::from(place)];
                    let known = rules::known_of(viewstamp(replica.stamp), stamp.0.into(), stamp.1.into());
                    if known == Some(0) {
                        replica.table.push(op);
                        replica.stamp = stamp;
                    }
                    self.acknowledge(state, place, stamp.0);
                }
            }
            Message::Ack { stamp, replica: from } => {
                let stands = replica.stamp;
                if let Role::Leader { acks, .. } = &mut replica.role
                    && stands.0 == stamp.0
                {
                    let length = acks.entry(from).or_insert(stamp.1);
                    *length = stamp.1.max(*length);
                    self.commit(state, place);
                }
            }
            Message::Target { stamp, .. } => {
                let may_set = rules::may_set_target(replica.promised.into(), stamp.0.into());
                if replica.recovering.is_some() && may_set {
                    replica.recovering = Some(Some(stamp));
                    self.acknowledge(state, place, stamp.0);
                }
            }
        }
    }

    fn follow(&self, state: &mut State, place: u8, epoch: u8) -> bool {
        let replica = &mut state.replicas[usize::from(place)];
        let leads = matches!(replica.role, Role::Leader { .. }) && replica.stamp.0 == epoch;
        if leads || !rules::may_follow(replica.promised.into(), epoch.into()) {
            return false;
        }
        replica.role = Role::Follower;
        if epoch > replica.promised {
            (replica.promised, replica.voted_for, replica.durable) = (epoch, None, (epoch, None));
        }
        true
    }

    /// Acknowledges up to where the table stands, unless the replica does not count, or is of another epoch.
    fn acknowledge(&self, state: &mut State, place: u8, epoch: u8) {
        let replica = &mut state.replicas[usize::from(place)];
        if let Some(target) = replica.recovering
            && rules::has_recovered(viewstamp(replica.stamp), target.map(viewstamp))
        {
            replica.recovering = None;
        }
        if replica.recovering.is_none() && replica.stamp.0 == epoch {
            let message = Message::Ack { stamp: replica.stamp, replica: replica.id };
            state.sent.insert(message);
        }
    }

    fn count_vote(&self, state: &mut State, place: u8, voter: Id) {
        let replica = &mut state.replicas[usize::from(place)];
        let cohort = self.cohort_of(&replica.table);
        let epoch = replica.promised;
        let Role::Candidate { votes } = &mut replica.role else { return };
        votes.insert(voter);
        if !cohort.quorum(|id| votes.contains(&id)) {
            return;
        }
        let (id, base) = (replica.id, replica.table.len() as u8);
        replica.stamp = (epoch, 0);
        let acks = BTreeMap::from([(id, 0)]);
        replica.role = Role::Leader { base, acks, established: false, committed: 0 };
        let table = replica.table.clone();
        if state.leaders.insert(epoch, (id, table.clone())).is_some() {
            state.violation = Some("two leaders in one epoch");
        }
        if state.committed.0 < epoch && !table.starts_with(&state.committed.1) {
            state.violation = Some("a leader lacks what was committed");
        }
        state.sent.insert(Message::Whole { stamp: (epoch, 0), table });
        self.commit(state, place);
    }

    fn append(&self, state: &mut State, place: u8, op: Op) {
        let replica = &mut state.replicas[usize::from(place)];
        replica.stamp.1 += 1;
        replica.table.push(op.clone());
        let (id, stamp) = (replica.id, replica.stamp);
        let Role::Leader { acks, .. } = &mut replica.role else { unreachable!("a leader appends") };
        acks.insert(id, stamp.1);
        state.sent.insert(Message::Next { stamp, op });
        self.commit(state, place);
    }

    /// Commits what a quorum of the leader's newest cohort has.
    fn commit(&self, state: &mut State, place: u8) {
        let replica = &mut state.replicas[usize::from(place)];
        let cohort = self.cohort_of(&replica.table);
        let Role::Leader { base, acks, established, committed } = &mut replica.role else { return };
        let reached = rules::reached(acks.values().map(|length| u64::from(*length)), |length| {
            cohort.quorum(|id| acks.get(&id).is_some_and(|acked| u64::from(*acked) >= length))
        });
        let Some(length) = reached.map(|length| length as u8) else { return };
        if *established && length <= *committed {
            return;
        }
        (*established, *committed) = (true, length.max(*committed));
        let table = replica.table[..usize::from(*base + *committed)].to_vec();
        let (epoch, before) = (replica.stamp.0, &state.committed.1);
        let later = state.leaders.range(epoch + 1..);
        if later.into_iter().any(|(_, (_, theirs))| !theirs.starts_with(&table)) {
            state.violation = Some("what is committed is not known to a later leader");
            return;
        }
        if table.starts_with(before) {
            state.committed = (epoch.max(state.committed.0), table);
        } else if !before.starts_with(&table) {
            state.violation = Some("two tables are committed");
        } else if epoch > state.committed.0 {
            state.violation = Some("a later epoch commits less");
        }
    }

    /// Checks the invariants of a state, and notes which tables candidates may fetch.
    fn judge(&self, state: &mut State) {
        for (place, one) in state.replicas.iter().enumerate() {
            let differs = |other: &Replica| other.stamp == one.stamp && other.table != one.table;
            if state.replicas[place + 1..].iter().any(differs) {
                state.violation = Some("equal viewstamps, other tables");
            }
        }
        if self.fetch {
            let whole = state.replicas.iter().filter(|replica| replica.recovering.is_none() && replica.stamp > (0, 0));
            let shown: Vec<(Stamp, ClaimTable)> = whole.map(|replica| (replica.stamp, replica.table.clone())).collect();
            state.shown.extend(shown);
        }
    }
}
