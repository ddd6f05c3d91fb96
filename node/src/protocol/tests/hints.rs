//! What is kept for members that are away, by members and by others.

use super::*;
use norn_client::wire::response::Guarantee;

/// A tag whose partition is looked at.
const TAG: u32 = 0x12_3456;

/// Four nodes, three of which hold a partition: these, and the other one.
struct Absence {
    cluster: Cluster,
    members: Vec<usize>,
    keeper: usize,
}

impl Absence {
    fn new(config: &Config) -> Absence {
        let cluster = Cluster::with_config(4, config);
        let partition = cluster.nodes[0].partition_of(&TaskId::new(1, 1, 1, TAG));
        let holds = |index: &usize| cluster.nodes[*index].partitions.contains_key(&partition);
        let (members, others): (Vec<usize>, Vec<usize>) = (0..4).partition(holds);
        Absence { cluster, members, keeper: others[0] }
    }

    /// No member is there, and that is known.
    fn all_go(&mut self) {
        self.cluster.down.extend(&self.members);
        self.cluster.advance(1_000);
    }

    fn enqueue(&mut self, id: TaskId, acks: Acks) -> Result<norn_client::wire::Acked, Error> {
        let tasks = vec![NewTask { id, spec: spec(b"kept", 0) }];
        match self.cluster.ask(self.keeper, Request::Enqueue { tasks, acks }) {
            Response::Acked(results) => results.into_iter().next().expect("one was asked for"),
            other => panic!("{other:?}"),
        }
    }

    fn sloppy(&mut self) -> TaskId {
        let id = self.cluster.id(TAG);
        let acked = self.enqueue(id, Acks::One).expect("it is kept");
        assert_eq!((acked.guarantee, acked.acks, acked.replicas), (Guarantee::Sloppy, 1, 3));
        id
    }

    fn kept(&self) -> usize {
        self.cluster.nodes[self.keeper].hints.kept.count()
    }

    fn knowing(&self, id: &TaskId) -> usize {
        self.members.iter().filter(|index| self.cluster.replica_of(**index, id).store.knows(id)).count()
    }

    fn observed(&self, wanted: &Observation) -> usize {
        self.cluster.observed.iter().filter(|(_, observed)| observed == wanted).count()
    }
}

/// The state of a node, in parts of so many bytes.
fn saved(node: &Node, bytes: usize) -> Vec<Record> {
    let (mut cursor, mut records) = (Cursor::default(), Vec::new());
    loop {
        let part = node.save(&mut cursor, bytes);
        assert!(part.gaps.is_empty());
        records.extend(part.records);
        if part.last {
            return records;
        }
    }
}

//
#[test]
fn a_node_without_a_replica_keeps_a_task_for_members_that_are_away() {
    let mut absence = Absence::new(&Config::default());
    absence.all_go();
    let began_us = absence.cluster.now.mono_us;
    let id = absence.sloppy();
    assert!(absence.cluster.now.mono_us < began_us + 10_000, "nobody was waited for in vain");
    let again = absence.enqueue(id, Acks::One).expect("a repeated call stores nothing twice");
    assert_eq!((again.acks, absence.kept()), (1, 1));
    let keeper = absence.keeper;
    absence.cluster.restart(keeper);
    assert_eq!(absence.kept(), 1, "it is in the log");

    // One member is less than what a majority of them promises.
    let members = absence.members.clone();
    absence.cluster.restart(members[0]);
    absence.cluster.advance(3_000);
    assert_eq!((absence.knowing(&id), absence.kept()), (1, 1));
    absence.cluster.restart(members[1]);
    absence.cluster.run_until(|cluster| cluster.nodes[keeper].hints.is_empty());
    assert_eq!(absence.knowing(&id), 2);
    absence.cluster.restart(members[2]);
    absence.cluster.advance(3_000);
    assert_eq!(absence.knowing(&id), 3, "anti-entropy brings the rest");
    assert_eq!(absence.cluster.claim(keeper, 10_000).remove(0).id, id);
    absence.cluster.restart(keeper);
    assert_eq!(absence.kept(), 0, "that it is over is in the log, too");
}

#[test]
fn members_that_are_heard_and_do_not_answer_are_not_waited_for_until_the_end() {
    let mut absence = Absence::new(&Config::default());
    let id = absence.cluster.id(TAG);
    let began_us = absence.cluster.now.mono_us;
    absence.cluster.down.extend(&absence.members);
    let acked = absence.enqueue(id, Acks::One).expect("it is kept");
    let took_us = absence.cluster.now.mono_us - began_us;
    assert_eq!(acked.guarantee, Guarantee::Sloppy);
    assert!((200_000..1_200_000).contains(&took_us), "{took_us}");
}

#[test]
fn only_those_that_are_content_with_one_disk_are_told_that_one_has_it() {
    let mut absence = Absence::new(&Config::default());
    absence.all_go();
    for acks in [Acks::Quorum, Acks::All] {
        let id = absence.cluster.id(TAG);
        assert_eq!(absence.enqueue(id, acks).unwrap_err().code, ErrorCode::Unknown);
    }
    assert_eq!(absence.kept(), 0);
}

#[test]
fn what_cannot_be_kept_is_refused_and_what_nothing_rests_on_makes_room() {
    let config = Config { hints_bytes_max: 1_000, ..Config::default() };
    let mut absence = Absence::new(&config);
    absence.all_go();
    let keeper = absence.keeper;
    let partition = *absence.cluster.nodes[keeper].partitions.keys().next().expect("it holds some");
    let replica = &absence.cluster.nodes[keeper].partitions[&partition];
    let other = *replica.cohort.iter().find(|node| **node != NodeId(keeper as u128 + 1)).expect("there are three");
    let ids: Vec<TaskId> = (0..11).map(|number| TaskId::new(1, number, 1, 0)).collect();
    let owed = Record::Owed { to: other, partition, since_ms: absence.cluster.now.wall_ms, ids };
    absence.cluster.logs[keeper].push(owed);
    absence.cluster.restart(keeper);
    absence.cluster.advance(1_000);
    absence.sloppy();
    assert!(absence.cluster.nodes[keeper].hints.owed.is_empty());
    assert_eq!(absence.observed(&Observation::HintsDropped { tasks: 11 }), 1);
    absence.sloppy();
    let id = absence.cluster.id(TAG);
    assert_eq!(absence.enqueue(id, Acks::One).unwrap_err().code, ErrorCode::Overloaded);
    assert_eq!(absence.kept(), 2);
}

// G-2, A-4: a hint is a sender like any other.
#[test]
fn what_was_forgotten_does_not_come_back_by_a_hint() {
    let mut absence = Absence::new(&Config::default());
    let id = absence.cluster.done(b"kept");
    absence.cluster.skip(forgetting::LONG_MS);
    let members = absence.members.clone();
    absence.cluster.run_until(|cluster| {
        let over = |index: &usize| {
            let replica = cluster.replica_of(*index, &id);
            !replica.store.knows(&id) && replica.register.table.forgetting.ids.is_empty()
        };
        members.iter().all(over)
    });
    absence.all_go();
    assert_eq!(absence.enqueue(id, Acks::One).expect("nobody can say").acks, 1);
    let fresh = absence.sloppy();
    for index in members {
        absence.cluster.restart(index);
    }
    let keeper = absence.keeper;
    absence.cluster.run_until(|cluster| cluster.nodes[keeper].hints.is_empty());
    assert_eq!(absence.observed(&Observation::HintOrphaned { id }), 1, "whoever runs it is told");
    absence.cluster.advance(3_000);
    assert_eq!((absence.knowing(&id), absence.knowing(&fresh)), (0, 3));
}

#[test]
fn a_member_that_has_lost_what_it_took_does_not_count() {
    let mut absence = Absence::new(&Config::default());
    absence.all_go();
    let id = absence.sloppy();
    let (keeper, members) = (absence.keeper, absence.members.clone());
    absence.cluster.restart(members[0]);
    absence.cluster.advance(2_000);
    assert_eq!(absence.knowing(&id), 1);
    let lost = absence.cluster.places(
        members[0],
        |record| matches!(record, Record::Facts { items, .. } if items.iter().any(|(other, _)| *other == id)),
    );
    assert_eq!(lost.len(), 1);
    absence.cluster.restart_without(members[0], &lost);
    assert_eq!(absence.knowing(&id), 0);
    absence.cluster.advance(2_000);
    assert_eq!((absence.knowing(&id), absence.kept()), (1, 1), "it is told once more");
    absence.cluster.restart(members[1]);
    absence.cluster.run_until(|cluster| cluster.nodes[keeper].hints.is_empty());
    assert_eq!(absence.knowing(&id), 2);
}

#[test]
fn a_snapshot_has_what_is_kept_and_a_lost_record_of_it_is_told() {
    let mut absence = Absence::new(&Config::default());
    absence.all_go();
    let keeper = absence.keeper;
    for _ in 0..5 {
        absence.sloppy();
    }
    let node = &absence.cluster.nodes[keeper];
    let whole = saved(node, usize::MAX);
    assert!(whole.iter().any(|record| matches!(record, Record::Hint { items, .. } if items.len() == 5)));
    let mut read = Node::new(founding(keeper), 1);
    for record in saved(node, 100) {
        read.recover(record, false, None).expect("its own state");
    }
    assert_eq!(saved(&read, usize::MAX), whole);

    read.lose_hints();
    let mut effects = Vec::new();
    read.start(absence.cluster.now, 0, &mut effects);
    read.step(
        absence.cluster.now,
        Event::Persisted { ticket: Ticket(1), places: Vec::new(), durable: 1 },
        &mut effects,
    );
    let told = |effect: &Effect| matches!(effect, Effect::Observe(Observation::HintsLost { records: 1 }));
    assert!(effects.iter().any(told), "{effects:?}");
}

#[test]
fn what_is_kept_for_too_long_is_told_and_stays() {
    let mut absence = Absence::new(&Config { hint_ttl_ms: 60_000, ..Config::default() });
    absence.all_go();
    absence.sloppy();
    absence.cluster.skip(60_000);
    absence.cluster.advance(1_000);
    assert_eq!((absence.observed(&Observation::HintsOverdue { tasks: 1 }), absence.kept()), (1, 1));
}

/// Three nodes, and one of them that is not the first anywhere it matters.
fn away(cluster: &mut Cluster, id: &TaskId) -> (usize, usize) {
    let cohort = cluster.nodes[0].cohort(cluster.nodes[0].partition_of(id));
    let place = |at: usize| cohort[at].0 as usize - 1;
    (place(0), place(2))
}

#[test]
fn a_member_that_was_away_is_told_what_it_lacks_before_anything_is_compared() {
    let mut cluster = Cluster::new(3);
    let known = cluster.enqueue(0, b"known", TAG);
    cluster.advance(3_000);
    let (first, absent) = away(&mut cluster, &known);
    cluster.down.insert(absent);
    cluster.advance(1_000);
    let ids: Vec<TaskId> = (0..700).map(|_| cluster.id(TAG)).collect();
    let tasks = ids.iter().map(|id| NewTask { id: *id, spec: spec(b"missed", 0) }).collect();
    cluster.ask(first, Request::Enqueue { tasks, acks: Acks::Quorum });
    cluster.advance(2_000);
    let absent_id = NodeId(absent as u128 + 1);
    let owed =
        |cluster: &Cluster| cluster.nodes.iter().map(|node| node.hints.owed.count_of(absent_id)).collect::<Vec<_>>();
    let noted = owed(&cluster);
    assert_eq!((noted[first], noted.iter().sum::<usize>()), (700, 700), "one node notes it");
    cluster.restart(first);
    assert_eq!(owed(&cluster), noted, "it is in the log");
    cluster.run_until(|cluster| cluster.nodes.iter().all(|node| node.boot == 0 || node.is_serving()));

    cluster.observed.clear();
    cluster.restart(absent);
    cluster.run_until(|cluster| cluster.nodes[first].hints.is_empty());
    assert!(ids.iter().all(|id| cluster.replica_of(absent, id).store.knows(id)));
    cluster.advance(5_000);
    let repaired = |(_, observed): &&(usize, Observation)| matches!(observed, Observation::Repaired { .. });
    assert_eq!(cluster.observed.iter().filter(repaired).count(), 0, "nothing was left for anti-entropy");
    let roots: BTreeSet<u128> = (0..3).map(|index| cluster.replica_of(index, &known).store.root()).collect();
    assert_eq!(roots.len(), 1);
    cluster.restart(first);
    assert_eq!(owed(&cluster).iter().sum::<usize>(), 0);
}

#[test]
fn nothing_is_noted_for_a_member_that_is_away_for_too_long() {
    let mut cluster = Cluster::with_config(3, &Config { hint_ttl_ms: 10_000, ..Config::default() });
    let known = cluster.enqueue(0, b"known", TAG);
    cluster.advance(3_000);
    let (first, absent) = away(&mut cluster, &known);
    cluster.down.insert(absent);
    cluster.advance(1_000);
    cluster.enqueue(first, b"missed", TAG);
    cluster.advance(2_000);
    assert_eq!(cluster.nodes[first].hints.owed.count(), 1);
    cluster.advance(10_000);
    assert!(cluster.nodes[first].hints.owed.is_empty());
    let id = cluster.enqueue(first, b"missed as well", TAG);
    cluster.advance(2_000);
    assert!(cluster.nodes[first].hints.owed.is_empty());
    cluster.restart(absent);
    cluster.run_until(|cluster| cluster.replica_of(absent, &id).store.knows(&id));
}
