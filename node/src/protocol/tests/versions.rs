//! Peers of different protocol versions: each is told what it knows, and nothing else.

use super::*;
use crate::protocol::consistent::Viewstamp;
use crate::protocol::consistent::cohort::Change;
use crate::protocol::consistent::table::{Ended, Op};
use crate::protocol::task::{Completed, Settled, Task};
use norn_client::wire::Versions;
use norn_client::wire::response::NodeView;

const OLD: u8 = Versions::SPOKEN.oldest;
const NEW: u8 = Versions::SPOKEN.newest;

impl Cluster {
    pub(super) fn connect(&mut self, index: usize, peer: usize, version: u8) {
        self.queue.push_back((index, Event::PeerConnected { peer: NodeId(peer as u128 + 1), version }));
        self.drain();
    }

    /// What a node says of its version in the next heartbeat to each other one.
    fn offers(&mut self, index: usize) -> Vec<Option<u8>> {
        let nodes: Vec<NodeId> = self.nodes[index].peers.keys().copied().collect();
        let heartbeats = nodes.into_iter().map(|node| self.nodes[index].heartbeat_for(node));
        heartbeats.map(|heartbeat| heartbeat.offers).collect()
    }

    fn versions(&mut self, index: usize) -> Vec<u8> {
        match self.ask(index, Request::Nodes) {
            Response::Nodes(nodes) => nodes.iter().map(|NodeView { version, .. }| version.expect("it knows")).collect(),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_peer_is_told_what_its_version_knows() {
    let mut cluster = Cluster::new(3);
    assert_eq!(cluster.offers(0), [None, None], "nobody has connected yet");
    cluster.connect(0, 1, NEW);
    cluster.connect(0, 2, OLD);
    assert_eq!(cluster.offers(0), [Some(NEW), None]);
    assert_eq!(cluster.versions(0), [NEW, NEW, OLD]);
    // The third one is upgraded; the second one comes back with the program of before.
    cluster.connect(0, 2, NEW);
    cluster.connect(0, 1, OLD);
    assert_eq!(cluster.offers(0), [None, Some(NEW)]);
    assert_eq!(cluster.versions(0), [NEW, OLD, NEW]);
}

/// Goal: nothing is made up of a member that was neither heard nor connected in this start.
#[test]
fn a_member_that_was_not_heard_yet_has_no_version() {
    let mut cluster = Cluster::new(3);
    cluster.down.extend([1, 2]);
    let effects = cluster.begin_restart(0, 99);
    cluster.carry_out(0, effects);
    cluster.drain();
    let Response::Nodes(nodes) = cluster.ask(0, Request::Nodes) else { panic!("nodes are asked for") };
    let versions: Vec<Option<u8>> = nodes.iter().map(|node| node.version).collect();
    assert_eq!(versions, [Some(NEW), None, None]);
    cluster.connect(0, 2, NEW);
    assert!(matches!(cluster.ask(0, Request::Nodes), Response::Nodes(nodes) if nodes[2].version == Some(NEW)));
}

#[test]
fn a_node_that_is_held_hears_what_others_would_speak_only_where_it_knows_of_it() {
    let mut cluster = Cluster::new(2);
    cluster.connect(0, 1, NEW);
    cluster.connect(1, 0, NEW);
    let heartbeat = Heartbeat { offers: Some(NEW + 4), ..cluster.nodes[1].heartbeat_for(NodeId(1)) };
    let message = PeerMessage::Heartbeat(Box::new(heartbeat));
    cluster.queue.push_back((0, Event::Peer { from: NodeId(2), message }));
    cluster.drain();
    assert_eq!(cluster.versions(0), [NEW, NEW + 4], "of a later release");
}

#[test]
fn what_a_peer_cannot_read_is_not_sent_to_it() {
    let mut cluster = Cluster::new(2);
    let later = Heartbeat { offers: Some(NEW), ..cluster.nodes[0].heartbeat_for(NodeId(2)) };
    let later = || PeerMessage::Heartbeat(Box::new(later.clone()));
    let mut send = |version| {
        cluster.connect(0, 1, version);
        let mut effects = Vec::new();
        cluster.nodes[0].outbox.send(NodeId(2), later());
        cluster.nodes[0].outbox.flush(&mut effects);
        effects
    };
    let unspoken = Observation::Unspoken { to: NodeId(2), message: "heartbeat" };
    assert!(matches!(&send(OLD)[..], [Effect::Observe(observed)] if *observed == unspoken));
    assert!(matches!(&send(NEW)[..], [Effect::Send { to: NodeId(2), .. }]));
}

/// What waits for the disk meets the version that is spoken when it leaves.
#[test]
fn a_message_that_waited_is_looked_at_when_it_leaves() {
    let mut cluster = Cluster::new(2);
    cluster.connect(0, 1, NEW);
    let later = Heartbeat { offers: Some(NEW), ..cluster.nodes[0].heartbeat_for(NodeId(2)) };
    let (outbox, mut effects) = (&mut cluster.nodes[0].outbox, Vec::new());
    outbox.persist(Record::Mark { time_ms: 1, sessions: 1 });
    outbox.send_durable(NodeId(2), PeerMessage::Heartbeat(Box::new(later)));
    outbox.flush(&mut effects);
    let Effect::Persist { ticket, .. } = &effects[0] else { panic!("{effects:?}") };
    outbox.set_version(NodeId(2), OLD);
    outbox.persisted(*ticket);
    effects.clear();
    outbox.flush(&mut effects);
    assert!(matches!(&effects[..], [Effect::Observe(Observation::Unspoken { .. })]), "{effects:?}");
}

fn held(config: &Config) -> Config {
    Config { protocol_version_max: OLD, ..config.clone() }
}

/// Goal: as long as a node is held the old program can take over its log. Method: a cluster of one, whose root needs no other
/// voter; then it is held no longer.
#[test]
fn a_node_that_is_held_logs_nothing_that_the_old_program_does_not_read() {
    let mut cluster = Cluster::with_config(1, &held(&Config::default()));
    let ids = [1, 2, 3].map(|tag| cluster.enqueue(0, b"payload", tag));
    let claimed = cluster.claim(0, 10_000).remove(0);
    assert!(matches!(cluster.complete(0, claimed.id, claimed.token), Response::Acked(_)));
    let claimed = cluster.claim(0, 10_000).remove(0);
    let later = [
        later_enqueue(&mut cluster, |spec| spec.key = Some("key".into())),
        later_enqueue(&mut cluster, |spec| spec.after = vec![ids[0]]),
        later_completion(&mut cluster, &claimed),
        Request::Purge { id: ids[0], acks: Acks::Quorum, state: None },
    ];
    for request in later {
        let Response::Error(error) = cluster.ask(0, request) else { panic!("it is refused") };
        assert!(error.message.contains("held at protocol version 2"), "{error:?}");
        assert_eq!(error.code, ErrorCode::Unsupported, "it is not tried again");
    }
    cluster.advance(30_000);
    let unread = |record: &&Record| record.version() > OLD;
    assert_eq!(cluster.logs[0].iter().find(unread), None);
    cluster.nodes[0].config = Config::default();
    cluster.restart(0);
    cluster.run_until(|cluster| cluster.nodes[0].partitions[&PartitionId::ROOT].register.established());
    assert!(cluster.logs[0].iter().any(|record| unread(&record)), "the root is led");
    ids.iter().for_each(|id| assert_eq!(cluster.get(0, *id).id, *id));
}

fn later_enqueue(cluster: &mut Cluster, change: impl Fn(&mut Spec)) -> Request {
    let mut task = NewTask { id: cluster.id(7), spec: spec(b"later", 0) };
    change(&mut task.spec);
    task.id = task.spec.tag().map_or(task.id, |tag| task.id.with_tag(tag));
    Request::Enqueue { tasks: vec![task], acks: Acks::Quorum }
}

fn later_completion(cluster: &mut Cluster, claimed: &norn_client::wire::Granted) -> Request {
    let children = vec![NewTask { id: cluster.id(7), spec: spec(b"child", 0) }];
    let (id, token) = (claimed.id, claimed.token);
    let items = vec![Completion { id, token, sequence: None, result: None, at_ms: 5, children }];
    Request::Complete { items, acks: Acks::Quorum }
}

#[test]
fn a_record_says_which_version_reads_it() {
    let (partition, id) = (PartitionId(1), TaskId::new(1, 2, 3, 4));
    let facts = |spec: Spec| Record::Facts { partition, items: Arc::new(vec![(id, Task::from_spec(Arc::new(spec)))]) };
    let op = |op: Op| Record::Ops { partition, after: Viewstamp::default(), ops: vec![Arc::new(op)] };
    let vote = |partition| Record::Vote { partition, promised: 1, voted_for: None };
    let token = Token { epoch: 1, number: Token::SEALED_FROM + 1 };
    let completed = Completed { sequence: None, result: None, at_ms: 1, children: None };
    let ended = Ended { id, facts: Task::from_seal(token, completed.clone()) };
    let settled = Task::from_settled(id, Settled::Done);
    let seal = Op::Seal { id, token, completed: Box::new(completed) };
    let records = [
        (vote(partition), None),
        (facts(spec(b"payload", 1)), None),
        (op(Op::Forgotten), None),
        (op(Op::Cohort(Change::Join)), None),
        (vote(PartitionId::ROOT), Some(Feature::Root)),
        (Record::Roster(Arc::default()), Some(Feature::Root)),
        (facts(Spec { key: Some("key".into()), ..spec(b"", 1) }), Some(Feature::Dependencies)),
        (facts(Spec { after: vec![id], ..spec(b"", 1) }), Some(Feature::Dependencies)),
        (Record::Hint { partition, since_ms: 1, items: Arc::new(vec![(id, settled)]) }, Some(Feature::Dependencies)),
        (Record::Facts { partition, items: Arc::new(vec![(id, Task::from_purge())]) }, Some(Feature::Purges)),
        (op(seal), Some(Feature::Seals)),
        (op(Op::Drop { items: vec![ended] }), Some(Feature::Seals)),
        (op(Op::Cohort(Change::Calm)), Some(Feature::Rescue)),
    ];
    for (record, feature) in records {
        assert_eq!(record.feature(), feature, "{record:?}");
        for message in messages_of(&record) {
            assert_eq!(message.feature(), feature, "{message:?}");
        }
    }
}

/// Those by which others learn what a record says.
fn messages_of(record: &Record) -> Vec<PeerMessage> {
    match record.clone() {
        Record::Facts { partition, items } => {
            let at = Viewstamp::default();
            let repair = PeerMessage::Tasks { partition, items: items.clone(), by_buckets: false, forgets: None };
            vec![PeerMessage::Write { ask: 1, partition, at, items }, repair]
        }
        Record::Ops { partition, ops, .. } => {
            vec![PeerMessage::Ops { partition, epoch: 1, first: 1, ops, commit: 0, digest: [0; 16] }]
        }
        _ => Vec::new(),
    }
}
