//! Hinted handoff: what members and other nodes keep for members that are away.

use super::*;
use norn_model::cohort::{AdvertisedCohort, Cohort};
use norn_model::message::{Handoff, Outcome, Peering};
use norn_model::task::Task;
use norn_model::viewstamp::Viewstamp;
use norn_wire::response::Guarantee;

/// A tag whose partition is examined.
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

    /// All members go, and the keeper knows that.
    fn all_go(&mut self) {
        self.cluster.down.extend(&self.members);
        self.cluster.advance(1_000);
    }

    fn enqueue(&mut self, id: TaskId, acks: Acks) -> Result<norn_wire::Acked, Error> {
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
        self.cluster.nodes[self.keeper].repair.kept_count()
    }

    fn knowing(&self, id: &TaskId) -> usize {
        self.members.iter().filter(|index| self.cluster.replica_of(**index, id).store.knows(id)).count()
    }

    fn observed(&self, wanted: &Observation) -> usize {
        self.cluster.observed.iter().filter(|(_, observed)| observed == wanted).count()
    }
}

/// The state of a node, in parts of up to `bytes` bytes.
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

// S4
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

    // One member is less than the majority that the acknowledgement promises.
    let members = absence.members.clone();
    absence.cluster.restart(members[0]);
    absence.cluster.advance(3_000);
    assert_eq!((absence.knowing(&id), absence.kept()), (1, 1));
    absence.cluster.restart(members[1]);
    absence.cluster.run_until(|cluster| cluster.nodes[keeper].repair.is_empty());
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

// S31
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
    let other = replica.cohort().members().find(|node| *node != NodeId(keeper as u128 + 1)).expect("there are three");
    let ids: Vec<TaskId> = (0..11).map(|number| TaskId::new(1, number, 1, 0)).collect();
    let owed = Record::IdHint { to: other, partition, since_ms: absence.cluster.now.wall_ms, ids };
    absence.cluster.logs[keeper].push(owed);
    absence.cluster.restart(keeper);
    absence.cluster.advance(1_000);
    absence.sloppy();
    assert!(absence.cluster.nodes[keeper].repair.owed().is_empty());
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
            !replica.store.knows(&id) && replica.consensus.table.forgetting.ids.is_empty()
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
    absence.cluster.run_until(|cluster| cluster.nodes[keeper].repair.is_empty());
    let advertised = Observation::HintOrphaned { id, facts: "task".into(), payload_bytes: 4 };
    assert_eq!(absence.observed(&advertised), 1, "whoever runs it is told");
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
    absence.cluster.run_until(|cluster| cluster.nodes[keeper].repair.is_empty());
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
    let advertised = |effect: &Effect| matches!(effect, Effect::Observe(Observation::HintsLost { records: 1 }));
    assert!(effects.iter().any(advertised), "{effects:?}");
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

/// Of three nodes, the first and the last member of a task's partition.
fn away(cluster: &mut Cluster, id: &TaskId) -> (usize, usize) {
    let cohort = cluster.nodes[0].cohort_of(cluster.nodes[0].partition_of(id)).voters();
    let place = |at: usize| cohort[at].0 as usize - 1;
    (place(0), place(2))
}

/// Three nodes that agree on a task, and the last member of its partition away; the task, the first member, and the last.
fn one_away(config: &Config) -> (Cluster, TaskId, usize, usize) {
    let mut cluster = Cluster::with_config(3, config);
    let known = cluster.enqueue(0, b"known", TAG);
    cluster.advance(3_000);
    let (first, absent) = away(&mut cluster, &known);
    cluster.down.insert(absent);
    cluster.advance(1_000);
    (cluster, known, first, absent)
}

#[test]
fn a_member_that_was_away_is_told_what_it_lacks_before_anything_is_compared() {
    let (mut cluster, known, first, absent) = one_away(&Config::default());
    let ids: Vec<TaskId> = (0..700).map(|_| cluster.id(TAG)).collect();
    let tasks = ids.iter().map(|id| NewTask { id: *id, spec: spec(b"missed", 0) }).collect();
    cluster.ask(first, Request::Enqueue { tasks, acks: Acks::Quorum });
    cluster.advance(2_000);
    let absent_id = NodeId(absent as u128 + 1);
    let owed =
        |cluster: &Cluster| cluster.nodes.iter().map(|node| node.repair.owed().count_of(absent_id)).collect::<Vec<_>>();
    let noted = owed(&cluster);
    assert_eq!((noted[first], noted.iter().sum::<usize>()), (700, 700), "one node notes it");
    cluster.restart(first);
    assert_eq!(owed(&cluster), noted, "it is in the log");
    cluster.run_until(|cluster| cluster.nodes.iter().all(|node| node.boot == 0 || node.is_serving()));

    cluster.observed.clear();
    cluster.restart(absent);
    cluster.run_until(|cluster| cluster.nodes[first].repair.is_empty());
    assert!(ids.iter().all(|id| cluster.replica_of(absent, id).store.knows(id)));
    cluster.advance(5_000);
    let repaired = |(_, observed): &&(usize, Observation)| matches!(observed, Observation::Repaired { .. });
    assert_eq!(cluster.observed.iter().filter(repaired).count(), 0, "nothing was left for anti-entropy");
    let roots: BTreeSet<u128> = (0..3).map(|index| cluster.replica_of(index, &known).store.root()).collect();
    assert_eq!(roots.len(), 1);
    cluster.restart(first);
    assert_eq!(owed(&cluster).iter().sum::<usize>(), 0);
}

/// A node that the roster does not name any more, before its cohort is known to have changed.
#[test]
fn nothing_is_noted_for_who_is_no_peer_any_more() {
    let (mut cluster, _, first, absent) = one_away(&Config::default());
    cluster.enqueue(first, b"missed", TAG);
    cluster.advance(2_000);
    let node = &mut cluster.nodes[first];
    let before = saved(node, usize::MAX);
    assert_eq!(node.repair.owed().count(), 1);
    let mut roster = node.roster().clone();
    roster.version += 1;
    roster.members.retain(|_, member| member.node != NodeId(absent as u128 + 1));
    let roster = Arc::new(roster);
    let from = NodeId((0..3).find(|index| ![first, absent].contains(index)).expect("the third") as u128 + 1);
    let message = norn_model::message::PeerMessage::Peering(Peering::Roster { roster: roster.clone() });
    cluster.queue.push_back((first, Event::Peer { from, message }));
    cluster.drain();
    cluster.enqueue(first, b"missed as well", TAG);
    cluster.advance(2_000);
    assert!(cluster.nodes[first].repair.owed().is_empty());
    // A log that has both is read.
    let mut read = Node::new(founding(first), 1);
    for record in before {
        let founds = matches!(record, Record::Genesis(_));
        read.recover(record, false, None).expect("its own state");
        if founds {
            read.recover(Record::Roster(roster.clone()), false, None).expect("a later roster");
        }
    }
    assert_eq!(read.repair.owed().count(), 1);
    read.start(cluster.now, 0, &mut Vec::new());
    let persisted = Event::Persisted { ticket: Ticket(1), places: Vec::new(), durable: 1 };
    read.step(cluster.now, persisted, &mut Vec::new());
    assert!(read.repair.owed().is_empty());
}

#[test]
fn nothing_is_noted_for_a_member_that_is_away_for_too_long() {
    let (mut cluster, _, first, absent) = one_away(&Config { hint_ttl_ms: 10_000, ..Config::default() });
    cluster.enqueue(first, b"missed", TAG);
    cluster.advance(2_000);
    assert_eq!(cluster.nodes[first].repair.owed().count(), 1);
    cluster.advance(10_000);
    assert!(cluster.nodes[first].repair.owed().is_empty());
    let id = cluster.enqueue(first, b"missed as well", TAG);
    cluster.advance(2_000);
    assert!(cluster.nodes[first].repair.owed().is_empty());
    cluster.restart(absent);
    cluster.run_until(|cluster| cluster.replica_of(absent, &id).store.knows(&id));
}

/// Runs the cluster for a while; `handle` sees every event first, and may keep it from its node.
pub(super) fn go_on(
    cluster: &mut Cluster,
    for_ms: u64,
    mut handle: impl FnMut(&mut Cluster, usize, Event) -> Option<Event>,
) {
    for _ in 0..for_ms {
        cluster.now.mono_us += 1_000;
        cluster.now.wall_ms += 1;
        (0..cluster.nodes.len()).for_each(|index| cluster.queue.push_back((index, Event::Wake)));
        while let Some((index, event)) = cluster.queue.pop_front() {
            if !cluster.down.contains(&index)
                && let Some(event) = handle(cluster, index, event)
            {
                let mut effects = Vec::new();
                cluster.nodes[index].step(cluster.now, event, &mut effects);
                cluster.carry_out(index, effects);
                cluster.nodes[index].check().unwrap_or_else(|violation| panic!("node {index}: {violation}"));
            }
        }
    }
}

/// Delays answers to hints by `delay_ms`. Returns how many tasks each message of hints has.
fn hand_slowly(absence: &mut Absence, delay_ms: u64, for_ms: u64) -> Vec<usize> {
    let (mut held, mut seen, mut pieces) = (VecDeque::new(), BTreeSet::new(), Vec::new());
    go_on(&mut absence.cluster, for_ms, |cluster, index, event| {
        match &event {
            Event::Wake => {
                while held.front().is_some_and(|(due_us, _)| *due_us <= cluster.now.mono_us) {
                    cluster.queue.extend(held.pop_front().map(|(_, late)| late));
                }
            }
            Event::Peer { message: PeerMessage::Handoff(Handoff::Hint { items, .. }), .. } => pieces.push(items.len()),
            Event::Peer { message: PeerMessage::Handoff(Handoff::Hinted { number, .. }), .. }
                if seen.insert(*number) =>
            {
                held.push_back((cluster.now.mono_us + delay_ms * 1_000, (index, event)));
                return None;
            }
            _ => {}
        }
        Some(event)
    });
    pieces
}

#[test]
fn an_answer_that_comes_late_counts_and_less_is_sent_meanwhile() {
    let mut absence = Absence::new(&Config::default());
    absence.all_go();
    let tasks: Vec<TaskId> = (0..20).map(|_| absence.sloppy()).collect();
    let (keeper, members) = (absence.keeper, absence.members.clone());
    let late_ms = absence.cluster.nodes[keeper].config.request_timeout_ms * 3 / 2;
    for member in [members[0], members[1]] {
        absence.cluster.restart(member);
        let pieces = hand_slowly(&mut absence, late_ms, 4 * late_ms);
        assert!(pieces.len() <= 5 && pieces.contains(&20), "{pieces:?}");
    }
    assert!(absence.cluster.nodes[keeper].repair.is_empty());
    assert!(tasks.iter().all(|id| absence.knowing(id) >= 2));
}

/// The answer of a member to a hint.
fn hinted(
    member: &Node,
    (number, partition): (u64, PartitionId),
    at: Viewstamp,
    outcomes: Vec<Outcome>,
    incomplete: bool,
) -> Event {
    let log = LogPosition { boot: member.boot, ..LogPosition::default() };
    let message = Handoff::Hinted { number, partition, outcomes, boot: member.boot, at, incomplete, log };
    Event::Peer { from: member.me, message: PeerMessage::Handoff(message) }
}

/// Answers hints for a member with `outcome`, whatever it would answer itself. Returns how often it was asked.
fn answer_hints(absence: &mut Absence, member: usize, incomplete: bool, outcome: Outcome, for_ms: u64) -> usize {
    let (mut asked, keeper) = (0, absence.keeper);
    go_on(&mut absence.cluster, for_ms, |cluster, index, event| match event {
        Event::Peer { message: PeerMessage::Handoff(Handoff::Hint { number, partition, at, items, .. }), .. }
            if index == member =>
        {
            asked += 1;
            let outcomes = vec![outcome; items.len()];
            let answer = hinted(&cluster.nodes[index], (number, partition), at, outcomes, incomplete);
            cluster.queue.push_back((keeper, answer));
            None
        }
        event => Some(event),
    });
    asked
}

fn orphans(absence: &Absence) -> usize {
    let is_orphan = |(_, observed): &&(usize, Observation)| matches!(observed, Observation::HintOrphaned { .. });
    absence.cluster.observed.iter().filter(is_orphan).count()
}

#[test]
fn only_members_without_holes_make_an_orphan_and_all_that_were_sent_it() {
    for (incomplete, kept) in [(true, 1), (false, 0)] {
        let mut absence = Absence::new(&Config::default());
        absence.all_go();
        absence.sloppy();
        let members = absence.members.clone();
        for member in [members[0], members[1]] {
            absence.cluster.restart(member);
            answer_hints(&mut absence, member, incomplete, Outcome::TooOld, 3_000);
            absence.cluster.down.insert(member);
        }
        assert_eq!((absence.kept(), orphans(&absence)), (kept, 1 - kept), "holes: {incomplete}");
    }
    let mut absence = Absence::new(&Config::default());
    absence.all_go();
    let id = absence.sloppy();
    let members = absence.members.clone();
    for (member, outcome) in members.iter().zip([Outcome::Stored, Outcome::TooOld, Outcome::TooOld]) {
        absence.cluster.restart(*member);
        answer_hints(&mut absence, *member, false, outcome, 3_000);
        absence.cluster.down.insert(*member);
    }
    assert_eq!((absence.kept(), orphans(&absence)), (1, 0), "the first has it, as far as anybody knows");
    for member in [members[0], members[1]] {
        absence.cluster.restart(member);
    }
    let keeper = absence.keeper;
    absence.cluster.run_until(|cluster| cluster.nodes[keeper].repair.is_empty());
    assert_eq!((absence.knowing(&id), orphans(&absence)), (2, 0), "who was started is asked anew");
}

/// An absence whose only hint the operator was just told of as an orphan: two members refused it. The refusal that made it one came in
/// one turn with the timer that drops orphans.
fn just_orphaned() -> (Absence, TaskId) {
    let mut absence = Absence::new(&Config::default());
    absence.all_go();
    let id = absence.sloppy();
    let (keeper, members) = (absence.keeper, absence.members.clone());
    absence.cluster.restart(members[0]);
    answer_hints(&mut absence, members[0], false, Outcome::TooOld, 3_000);
    absence.cluster.down.insert(members[0]);
    absence.cluster.restart(members[1]);
    let mut refusal = None;
    let request_timeout_ms = absence.cluster.nodes[keeper].config.request_timeout_ms;
    go_on(&mut absence.cluster, request_timeout_ms / 2, |cluster, index, event| match event {
        Event::Peer { message: PeerMessage::Handoff(Handoff::Hint { number, partition, at, items, .. }), .. }
            if index == members[1] =>
        {
            let outcomes = vec![Outcome::TooOld; items.len()];
            refusal = Some(hinted(&cluster.nodes[index], (number, partition), at, outcomes, false));
            None
        }
        event => Some(event),
    });
    let (node, now) = (&mut absence.cluster.nodes[keeper], &mut absence.cluster.now);
    now.mono_us += node.config.resend_ms * 1_000;
    let mut effects = Vec::new();
    node.turn(*now, [refusal.expect("it is asked"), Event::Wake], &mut effects);
    let told = |effect: &Effect| matches!(effect, Effect::Observe(Observation::HintOrphaned { .. }));
    assert!(effects.iter().any(told), "{effects:?}");
    absence.cluster.carry_out(keeper, effects);
    (absence, id)
}

/// Goal: an orphan is on record before it is dropped: the records of a turn may be on disk before its reports are written.
#[test]
fn an_orphan_is_dropped_in_a_later_turn_than_it_is_told_of() {
    let (mut absence, _) = just_orphaned();
    assert_eq!((absence.kept(), orphans(&absence)), (1, 1));
    absence.cluster.advance(3_000);
    assert_eq!((absence.kept(), orphans(&absence)), (0, 1));
}

/// Goal: facts that an orphan gains before it is dropped are told of too.
#[test]
fn an_orphan_with_more_facts_than_were_told_of_is_told_of_again() {
    let (mut absence, id) = just_orphaned();
    let (keeper, members) = (absence.keeper, absence.members.clone());
    let partition = absence.cluster.nodes[keeper].partition_of(&id);
    let more = Task::from_update(Token { epoch: 1, number: 1 }, 0, vec![8; 10]);
    absence.cluster.nodes[keeper].keep_hint(0, partition, &Arc::new(vec![(id, more)]));
    absence.cluster.down.extend(&members);
    absence.cluster.advance(3_000);
    assert_eq!((absence.kept(), orphans(&absence)), (1, 1), "the operator was not told of all of it");
    for member in [members[0], members[1]] {
        absence.cluster.restart(member);
        answer_hints(&mut absence, member, false, Outcome::TooOld, 3_000);
        absence.cluster.down.insert(member);
    }
    assert_eq!((absence.kept(), orphans(&absence)), (0, 2));
}

/// Goal: a hint that a member has is dropped, also if its answer arrives before the cohort that it names. Method: the cohort is one
/// member alone, which has the hint on disk by the time when it advertises the cohort.
#[test]
fn an_answer_that_comes_before_its_cohort_is_known_counts_then() {
    let mut absence = Absence::new(&Config::default());
    absence.all_go();
    let id = absence.sloppy();
    let (keeper, member) = (absence.keeper, absence.members[0]);
    let partition = absence.cluster.nodes[keeper].partition_of(&id);
    let replica = absence.cluster.nodes[member].own_id();
    let alone = Cohort { version: Viewstamp { epoch: 1, length: 1 }, ..Cohort::founded(&[replica]) };
    let at = alone.version;
    absence.cluster.restart(member);
    go_on(&mut absence.cluster, 3_000, |cluster, index, event| match event {
        Event::Peer { message: PeerMessage::Handoff(Handoff::Hint { number, partition, items, .. }), .. }
            if index == member =>
        {
            let outcomes = vec![Outcome::Stored; items.len()];
            let answer = hinted(&cluster.nodes[index], (number, partition), at, outcomes, false);
            cluster.queue.push_back((keeper, answer));
            None
        }
        event => Some(event),
    });
    assert_eq!(absence.kept(), 1, "a majority is wanted of the cohort that is known");
    let advertised = Box::new(AdvertisedCohort { epoch: 1, cohort: alone });
    let message = PeerMessage::Peering(Peering::Route { partition, advertised });
    absence.cluster.queue.push_back((keeper, Event::Peer { from: NodeId(member as u128 + 1), message }));
    absence.cluster.run_until(|cluster| cluster.nodes[keeper].repair.is_empty());
}

#[test]
fn a_member_that_is_full_or_refuses_is_asked_more_and_more_seldom() {
    for outcome in [Outcome::NoSpace, Outcome::Overloaded, Outcome::TooOld] {
        let mut absence = Absence::new(&Config::default());
        absence.all_go();
        absence.sloppy();
        let member = absence.members[0];
        absence.cluster.restart(member);
        let interval_ms = absence.cluster.nodes[member].config.exchange_interval_ms;
        let asked = answer_hints(&mut absence, member, false, outcome, 60 * interval_ms);
        assert!((4..=8).contains(&asked), "{outcome:?}: {asked}");
        assert_eq!(absence.kept(), 1);
    }
}

#[test]
fn a_member_without_room_for_what_it_is_owed_does_not_keep_anti_entropy_waiting() {
    let (mut cluster, known, first, absent) = one_away(&Config::default());
    cluster.enqueue(first, b"missed", TAG);
    cluster.enqueue(first, b"missed as well", TAG);
    cluster.advance(2_000);
    let (absent_id, partition) = (NodeId(absent as u128 + 1), cluster.nodes[first].partition_of(&known));
    assert_eq!(cluster.nodes[first].repair.owed().count_of(absent_id), 2);
    cluster.restart(absent);
    let mut found = None;
    while found.is_none() {
        go_on(&mut cluster, 1, |_, _, event| match event {
            Event::Peer { message: PeerMessage::Handoff(Handoff::Hint { number, items, .. }), .. } => {
                found = Some((number, items.len()));
                None
            }
            event => Some(event),
        });
    }
    let (number, count) = found.expect("it is told");
    assert_eq!(count, 2);
    let boot = cluster.nodes[absent].boot;
    let message = PeerMessage::Handoff(Handoff::Hinted {
        at: norn_model::viewstamp::Viewstamp::default(),
        number,
        partition,
        outcomes: vec![Outcome::Stored, Outcome::NoSpace],
        boot,
        incomplete: false,
        log: LogPosition { boot, ..LogPosition::default() },
    });
    assert!(cluster.nodes[first].hints_go_first(absent_id));
    let mut effects = Vec::new();
    cluster.nodes[first].step(cluster.now, Event::Peer { from: absent_id, message }, &mut effects);
    let node = &cluster.nodes[first];
    assert_eq!((node.repair.owed().count_of(absent_id), node.hints_go_first(absent_id)), (1, false));
}

#[test]
fn a_repeated_call_is_answered_although_the_clock_went_back_and_there_is_no_room() {
    let config = Config { hints_bytes_max: 500, ..Config::default() };
    let mut absence = Absence::new(&config);
    absence.all_go();
    let id = absence.sloppy();
    let other = absence.cluster.id(TAG);
    assert_eq!(absence.enqueue(other, Acks::One).unwrap_err().code, ErrorCode::Overloaded);
    absence.cluster.now.wall_ms -= 48 * 3_600_000;
    assert_eq!(absence.enqueue(id, Acks::One).expect("it is kept").acks, 1);
    let logged = |record: &Record| matches!(record, Record::Hint { .. });
    assert_eq!(absence.cluster.logs[absence.keeper].iter().filter(|record| logged(record)).count(), 1);
}

#[test]
fn what_may_have_been_stored_is_not_refused_for_certain() {
    let mut absence = Absence::new(&Config { hints_bytes_max: 1, resend_ms: 5_000, ..Config::default() });
    let id = absence.cluster.id(TAG);
    absence.cluster.down.extend(&absence.members);
    let error = absence.enqueue(id, Acks::One).unwrap_err();
    assert_eq!(error.code, ErrorCode::Unknown, "members were heard, and it was sent to them");
    assert!(error.message.contains("hints_bytes_max"), "{}", error.message);
    absence.cluster.advance(1_000);
    assert_eq!(absence.enqueue(id, Acks::One).unwrap_err().code, ErrorCode::Overloaded, "nobody was sent it");
}

/// Goal: a node keeps no hint under an id that its clock considers wrong.
#[test]
fn a_task_of_the_far_future_is_not_kept_for_members_that_are_away() {
    let mut absence = Absence::new(&Config::default());
    absence.all_go();
    let at_ms = absence.cluster.now.wall_ms + norn_model::limits::ID_AHEAD_MS_MAX + 60_000;
    let refused = absence.enqueue(TaskId::new(at_ms, 1, 1, TAG), Acks::One).expect_err("its time has not come");
    assert_eq!((refused.code, absence.kept()), (ErrorCode::IdFromFuture, 0));
}
