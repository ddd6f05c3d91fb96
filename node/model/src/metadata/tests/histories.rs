//! Random requests, silences and moves: after each step the root is valid, and what must never change has not changed.

use super::*;
use proptest::prelude::*;

fn number() -> impl Strategy<Value = u16> {
    0u16..12
}

fn candidates() -> impl Strategy<Value = Candidate> {
    let fields = (number(), number(), 0u8..4, 0u32..5, proptest::option::weighted(0.1, 8u128..10));
    fields.prop_map(|(node, place, zone, weight, cluster)| Candidate {
        cluster: cluster.map(ClusterId),
        address: format!("n{place}:1"),
        name: format!("n{node}"),
        zone: format!("z{zone}"),
        weight,
        ..candidate(node)
    })
}

fn requests() -> impl Strategy<Value = Request> {
    prop_oneof![
        3 => candidates().prop_map(Request::Add),
        2 => number().prop_map(|number| Request::Drain { number }),
        1 => number().prop_map(|number| Request::Undrain { number }),
        3 => number().prop_map(|number| Request::Remove { number }),
        2 => (number(), candidates()).prop_map(|(number, with)| Request::Replace { number, with }),
        1 => (0u32..9).prop_map(|replicas| Request::SetReplicas { replicas }),
        1 => (number(), 0u32..9).prop_map(|(number, weight)| Request::SetWeight { number, weight }),
        1 => (number(), 0u8..4).prop_map(|(number, zone)| Request::SetZone { number, zone: format!("z{zone}") }),
        1 => (number(), number()).prop_map(|(number, at)| Request::SetAddress { number, address: format!("n{at}:1") }),
        1 => (0u32..4, 0u32..4).prop_map(|(all, each)| {
            Request::SetSettings(Settings { heal_after_ms: None, moves_at_once: all, moves_at_once_each: each })
        }),
    ]
}

/// One step of a history.
#[derive(Debug, Clone)]
enum Step {
    Ask(Request),
    Hear(BTreeSet<u16>),
    Plan,
    Move(u8),
    Heal(u16),
    Forget,
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => requests().prop_map(Step::Ask),
        2 => proptest::collection::btree_set(number(), 0..12).prop_map(Step::Hear),
        3 => Just(Step::Plan),
        3 => (1u8..20).prop_map(Step::Move),
        1 => number().prop_map(Step::Heal),
        1 => Just(Step::Forget),
    ]
}

/// A root and its surroundings, as its leader sees them.
struct World {
    metadata: Metadata,
    seen: Seen,
    numbers: BTreeMap<u16, NodeId>,
}

impl World {
    fn apply(&mut self, operation: &Operation) {
        let version = self.metadata.version;
        self.metadata.apply(operation).expect("what the leader decides fits");
        assert_eq!(self.metadata.version, version + 1);
        if let Operation::Layout(layout) = operation {
            let holds = |number: &u16| self.metadata.members[number].state == State::Up;
            assert!(layout.lists.iter().flatten().all(holds), "draining and gone members hold nothing");
        }
    }

    fn ask(&mut self, request: &Request) {
        let before = self.metadata.clone();
        match self.metadata.admit(request, &self.seen) {
            Ok(Admission::Change(operation)) => {
                self.apply(&operation);
                let again = self.metadata.admit(request, &self.seen);
                let is_settled = matches!(again, Ok(Admission::Already(_)));
                assert!(is_settled, "{request:?} was carried out, and asked again it gives {again:?}");
            }
            Ok(Admission::Already(_)) => assert_eq!(self.metadata, before),
            Err(Refusal(reasons)) => assert!(!reasons.is_empty()),
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Ask(request) => self.ask(request),
            Step::Hear(heard) => self.seen.heard.clone_from(heard),
            Step::Plan => {
                if let Some(layout) = self.metadata.plan() {
                    self.apply(&Operation::Layout(layout));
                }
                assert_eq!(self.metadata.plan(), None);
            }
            Step::Move(rounds) => {
                for _ in 0..*rounds {
                    let moves = self.metadata.next_moves(&self.seen, &BTreeSet::new());
                    assert!(moves.len() <= self.metadata.settings.moves_at_once as usize);
                    self.seen.cohorts.extend(moves.into_iter().map(|step| (step.partition, step.list)));
                }
                self.seen.voters = self.metadata.voters_wanted(&self.seen).into_iter().collect();
            }
            Step::Heal(number) => {
                let silent_ms = self.metadata.members.keys().map(|at| (*at, if at == number { u64::MAX } else { 0 }));
                if let Some(number) = self.metadata.heal(&silent_ms.collect(), &self.seen) {
                    self.apply(&Operation::Remove { number });
                }
            }
            Step::Forget => {
                if let Some(number) = self.metadata.forgettable(&self.seen) {
                    self.apply(&Operation::Forget { number });
                }
            }
        }
        self.check();
    }

    fn check(&mut self) {
        assert_eq!(self.metadata.validate(), Ok(()));
        for (number, member) in &self.metadata.members {
            let node = *self.numbers.entry(*number).or_insert(member.node);
            assert_eq!(node, member.node, "a number has one node, for ever");
        }
        let nodes: BTreeSet<&NodeId> = self.numbers.values().collect();
        assert_eq!(nodes.len(), self.numbers.len(), "and a node one number");
        let known = |number: &u16| self.metadata.members.contains_key(number);
        assert!(self.seen.cohorts.values().flatten().all(known), "who is in a cohort is not forgotten");
        let bytes = rmp_serde::to_vec(&self.metadata).expect("it encodes");
        assert_eq!(rmp_serde::from_slice::<Metadata>(&bytes).expect("it decodes"), self.metadata);
    }
}

proptest! {
    #[test]
    fn a_root_is_whole_after_every_step(
        (count, zones, replicas) in (1u16..8, 1u16..4, 1u32..4),
        steps in proptest::collection::vec(steps(), 1..60),
    ) {
        let metadata = metadata(count, zones, replicas);
        let seen = seen(&metadata, &[]);
        let mut world = World { metadata, seen, numbers: BTreeMap::new() };
        world.check();
        for step in steps {
            world.step(&step);
        }
    }
}
