//! The root: every rule of requests on small clusters, the plans and the order of moves, and random sequences of requests, after each of
//! which the root is valid.

mod histories;
mod moves;
mod requests;

use super::*;
use norn_wire::response;

const CLUSTER: ClusterId = ClusterId(9);
const PARTITIONS: u32 = 16;

/// A root with `count` members n0, n1, .. that are spread over `zones` zones in turn.
fn metadata(count: u16, zones: u16, replicas: u32) -> Metadata {
    let member = |number: u16| response::Member {
        node: NodeId(u128::from(number)),
        incarnation: 1,
        address: format!("n{number}:1"),
        name: format!("n{number}"),
        zone: format!("z{}", number % zones),
    };
    let members: Vec<response::Member> = (0..count).map(member).collect();
    let assignment = crate::ring::assign(&members, PARTITIONS, replicas);
    let genesis =
        Genesis { cluster: CLUSTER, name: "test".into(), partitions: PARTITIONS, replicas, members, assignment };
    Metadata::found(&genesis)
}

/// A node that the root does not know yet, named by its number.
fn candidate(number: u16) -> Candidate {
    Candidate {
        cluster: None,
        node: NodeId(u128::from(number)),
        incarnation: 1,
        name: format!("n{number}"),
        address: format!("n{number}:1"),
        zone: "z0".into(),
        weight: 1,
    }
}

/// All members but these are heard, every cohort is as the layout wants it, and the first three members vote.
fn seen(metadata: &Metadata, silent: &[u16]) -> Seen {
    Seen {
        heard: metadata.present().map(|(number, _)| number).filter(|number| !silent.contains(number)).collect(),
        voters: metadata.present().map(|(number, _)| number).take(3).collect(),
        cohorts: (0..).map(PartitionId).zip(metadata.layout.lists.iter().cloned()).collect(),
    }
}

/// Admits and applies a request.
fn carry_out(metadata: &mut Metadata, request: &Request, seen: &Seen) {
    match metadata.admit(request, seen).expect("it is allowed") {
        Admission::Change(operation) => metadata.apply(&operation).expect("what is admitted fits"),
        Admission::Already(_) => panic!("{request:?} changes nothing"),
    }
    assert_eq!(metadata.validate(), Ok(()));
}

/// Takes the planned layout, if any.
fn replan(metadata: &mut Metadata) {
    if let Some(layout) = metadata.plan() {
        metadata.apply(&Operation::Layout(layout)).expect("what is planned fits");
        assert_eq!(metadata.validate(), Ok(()));
    }
    assert_eq!(metadata.plan(), None, "a plan that was taken is the plan");
}

#[test]
fn founders_are_members_as_the_genesis_has_them() {
    let metadata = metadata(5, 5, 3);
    assert_eq!(metadata.validate(), Ok(()));
    assert_eq!(
        (metadata.version(), metadata.layout().version, metadata.partitions(), metadata.replicas()),
        (0, 1, PARTITIONS, 3)
    );
    assert_eq!(metadata.members().keys().copied().collect::<Vec<u16>>(), [0, 1, 2, 3, 4]);
    assert!(metadata.members().values().all(|member| member.state == State::Up && member.weight == 1));
    assert_eq!(metadata.replica(4), Some(ReplicaId { node: NodeId(4), incarnation: 1 }));
    assert_eq!((metadata.replica(5), metadata.plan()), (None, None));
}

#[test]
fn roots_and_operations_read_back() {
    let mut metadata = metadata(5, 5, 3);
    let known = seen(&metadata, &[]);
    carry_out(&mut metadata, &Request::Replace { number: 1, with: candidate(7) }, &known);
    let bytes = rmp_serde::to_vec(&metadata).expect("it encodes");
    assert_eq!(rmp_serde::from_slice::<Metadata>(&bytes).expect("it decodes"), metadata);
    let operation = Operation::Layout(metadata.plan().expect("a member joins"));
    let bytes = rmp_serde::to_vec(&operation).expect("it encodes");
    assert_eq!(rmp_serde::from_slice::<Operation>(&bytes).expect("it decodes"), operation);
}

#[test]
fn damaged_roots_are_told_apart() {
    let broken: [fn(&mut Metadata); 14] = [
        |metadata| metadata.partitions = 3,
        |metadata| metadata.replicas = 0,
        |metadata| metadata.replicas = 8,
        |metadata| metadata.members.clear(),
        |metadata| metadata.next_number = 2,
        |metadata| metadata.members.get_mut(&1).unwrap().node = NodeId(0),
        |metadata| metadata.members.get_mut(&1).unwrap().name = "n0".into(),
        |metadata| metadata.members.get_mut(&1).unwrap().address = "n0:1".into(),
        |metadata| metadata.members.get_mut(&1).unwrap().weight = 0,
        |metadata| metadata.members.get_mut(&1).unwrap().zone = "z".repeat(300),
        |metadata| metadata.retired.extend([NodeId(1)]),
        |metadata| metadata.layout.lists[3] = vec![0, 0],
        |metadata| metadata.layout.lists[3] = vec![0, 9],
        |metadata| metadata.settings.moves_at_once = 0,
    ];
    for (index, damage) in broken.into_iter().enumerate() {
        let mut metadata = metadata(3, 3, 3);
        damage(&mut metadata);
        assert!(metadata.validate().is_err(), "{index}");
    }
}

#[test]
fn what_does_not_fit_changes_nothing() {
    let mut metadata = metadata(3, 3, 2);
    let newcomer = members::joining(&candidate(7));
    let layout =
        |version, list: Vec<u16>| Operation::Layout(Layout { version, lists: vec![list; PARTITIONS as usize] });
    let known = seen(&metadata, &[]);
    carry_out(&mut metadata, &Request::Drain { number: 2 }, &known);
    metadata.apply(&Operation::Remove { number: 2 }).expect("it fits");
    let misfits = [
        Operation::Add { number: 2, member: newcomer.clone() },
        Operation::Add { number: 3, member: members::joining(&candidate(1)) },
        Operation::Add { number: 3, member: Member { state: State::Up, ..newcomer.clone() } },
        Operation::Add { number: 3, member: Member { name: "n1".into(), ..newcomer.clone() } },
        Operation::Drain { number: 2 },
        Operation::Undrain { number: 1 },
        Operation::Remove { number: 2 },
        Operation::Remove { number: 9 },
        Operation::Replace { old: 2, state: State::Gone, number: 3, member: newcomer.clone() },
        Operation::Replace { old: 1, state: State::Up, number: 3, member: newcomer },
        Operation::Forget { number: 1 },
        Operation::Forget { number: 2 },
        Operation::SetReplicas { replicas: 9 },
        Operation::SetWeight { number: 2, weight: 2 },
        Operation::SetWeight { number: 1, weight: 0 },
        Operation::SetZone { number: 1, zone: "z".repeat(300) },
        Operation::SetAddress { number: 1, address: "n0:1".into() },
        Operation::SetSettings(Settings { moves_at_once: 0, ..Settings::default() }),
        layout(1, vec![0]),
        layout(2, vec![0, 2]),
        layout(2, vec![0, 0]),
        layout(2, vec![]),
    ];
    for operation in misfits {
        let before = metadata.clone();
        assert!(metadata.apply(&operation).is_err(), "{operation:?}");
        assert_eq!(metadata, before, "{operation:?}");
    }
}
