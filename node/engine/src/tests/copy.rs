//! Nodes that start on an earlier copy of their log, or on a copy that is in use.

use super::*;
use norn_model::message::{Election, Peering, Replication};
use norn_wire::response::Guarantee;

#[test]
fn a_node_on_an_earlier_copy_of_its_log_is_told_and_retires() {
    let mut cluster = Cluster::new(3);
    let image = cluster.logs[0].clone();
    cluster.restart(0);
    cluster.advance(500);
    cluster.restart(0);
    cluster.advance(500);
    cluster.logs[0] = image;
    cluster.restart(0);
    cluster.run_until(|cluster| cluster.nodes[0].is_retired());
    // It sends nothing any more, nor does a later start of the copy, though its start counter would be higher.
    let mut effects = Vec::new();
    cluster.nodes[0].step(cluster.now, Event::Wake, &mut effects);
    assert!(effects.is_empty(), "{effects:?}");
    let mut again = Node::new(founding(0), 5);
    let refused = cluster.logs[0].clone().into_iter().try_for_each(|record| again.recover(record, false, None));
    assert!(refused.is_err_and(|reason| reason.contains("retired for ever") && reason.contains("earlier copy")));
    assert!(!cluster.nodes[1].is_retired() && !cluster.nodes[2].is_retired());
}

// E3
#[test]
fn of_two_nodes_on_one_log_one_retires() {
    let mut cluster = Cluster::new(3);
    let mut copy = Node::new(founding(0), 5);
    for record in cluster.logs[0].clone() {
        copy.recover(record, false, None).expect("its own log");
    }
    cluster.restart(0);
    cluster.advance(2_000);
    // It has sent less than the other one, and hears what a peer has heard.
    let mut effects = Vec::new();
    copy.start(cluster.now, cluster.logs[0].len() as u64, &mut effects);
    copy.step(cluster.now, Event::Persisted { ticket: Ticket(1), places: Vec::new(), durable: 0 }, &mut effects);
    let number = cluster.nodes[1].peer(NodeId(1)).expect("it is a member").latest_number();
    assert!(number > 10);
    let first = first_heartbeat(cluster.nodes[1].boot, cluster.now);
    let heartbeat =
        Heartbeat { seen: (copy.boot, number), seen_start: cluster.nodes[0].membership.log().start, ..first };
    let message = PeerMessage::Peering(Peering::Heartbeat(Box::new(heartbeat)));
    copy.step(cluster.now, Event::Peer { from: NodeId(2), message }, &mut effects);
    assert!(copy.is_retired() && effects.iter().any(|effect| matches!(effect, Effect::Stopped)));
    assert!(!cluster.nodes[0].is_retired());
}

/// Goal: an image of a running node that is started elsewhere retires, and the node does not.
#[test]
fn an_image_that_is_started_elsewhere_leaves_the_node_alone() {
    let mut cluster = Cluster::new(3);
    cluster.advance(500);
    let image = cluster.logs[0].clone();
    let mut copy = Node::new(founding(0), 5);
    for record in image.clone() {
        copy.recover(record, false, None).expect("its own log");
    }
    cluster.enqueue(0, b"x", 9);
    cluster.advance(500);
    let mut effects = Vec::new();
    copy.start(cluster.now, image.len() as u64, &mut effects);
    assert_eq!(copy.boot, cluster.nodes[0].boot + 1);
    let heartbeat = Heartbeat {
        start: copy.membership.log().start,
        durable: image.len() as u64,
        ..first_heartbeat(copy.boot, cluster.now)
    };
    tell(&mut cluster, 1, NodeId(1), PeerMessage::Peering(Peering::Heartbeat(Box::new(heartbeat))));
    copy.step(cluster.now, Event::Persisted { ticket: Ticket(1), places: Vec::new(), durable: 0 }, &mut effects);
    // What its peer sends next reaches both.
    let later = Now { mono_us: cluster.now.mono_us + 1_000_000, ..cluster.now };
    let mut sent = Vec::new();
    cluster.nodes[1].step(later, Event::Wake, &mut sent);
    for effect in sent {
        if let Effect::Send { to: NodeId(1), message: message @ PeerMessage::Peering(Peering::Heartbeat(_)), .. } =
            effect
        {
            copy.step(cluster.now, Event::Peer { from: NodeId(2), message: message.clone() }, &mut effects);
            cluster.nodes[0].step(cluster.now, Event::Peer { from: NodeId(2), message }, &mut Vec::new());
        }
    }
    assert!(copy.is_retired());
    assert!(!cluster.nodes[0].is_retired());
    assert_eq!(cluster.nodes[1].peer(NodeId(1)).expect("it is a member").boot, cluster.nodes[0].boot);
}

/// Goal: the loss of the record that a start was answered does not make it an unanswered start.
#[test]
fn a_lost_word_of_an_answer_retires_nobody() {
    let mut cluster = Cluster::new(3);
    cluster.enqueue(0, b"x", 9);
    cluster.advance(500);
    let log = cluster.logs[0].clone();
    let is_unanswered = |record: &Record| matches!(record, Record::Unanswered { .. });
    let count = log.iter().filter(|record| is_unanswered(record)).count();
    assert!(count >= 2);
    for lost in 0..count {
        let mut again = Node::new(founding(0), 5);
        let mut number = 0..;
        for record in log.clone() {
            if is_unanswered(&record) && number.next() == Some(lost) {
                again.lose_unanswered();
            } else {
                again.recover(record, false, None).expect("its own log");
            }
        }
        again.start(cluster.now, log.len() as u64, &mut Vec::new());
        assert_eq!(again.membership.log().began, log.len() as u64, "without the word number {lost}");
    }
}

/// Truncates a log to its first records, and starts the node on them.
fn restore(cluster: &mut Cluster, index: usize, records: usize) {
    cluster.logs[index].truncate(records);
    cluster.restart(index);
}

fn partition_of(cluster: &Cluster) -> PartitionId {
    *cluster.nodes[0].partitions.keys().next().expect("it holds some")
}

/// Delivers a message of a peer, and returns what the node sends then.
pub(super) fn tell(cluster: &mut Cluster, index: usize, from: NodeId, message: PeerMessage) -> Vec<PeerMessage> {
    let mut effects = Vec::new();
    cluster.nodes[index].step(cluster.now, Event::Peer { from, message }, &mut effects);
    let ticket = effects.iter().find_map(|effect| match effect {
        Effect::Persist { ticket, records } => Some((*ticket, records.clone())),
        _ => None,
    });
    if let Some((ticket, records)) = ticket {
        let first = cluster.logs[index].len();
        let facts = records.iter().enumerate().filter(|(_, record)| matches!(record, Record::Facts { .. }));
        let places = facts.map(|(at, _)| Some(place(first + at))).collect();
        cluster.logs[index].extend(records);
        let durable = cluster.logs[index].len() as u64;
        let persisted = Event::Persisted { ticket, places, durable };
        cluster.nodes[index].step(cluster.now, persisted, &mut effects);
    }
    let sent = effects.into_iter().filter_map(|effect| match effect {
        Effect::Send { message, .. } => Some(message),
        _ => None,
    });
    sent.collect()
}

fn vote_of(node: NodeId, partition: PartitionId, epoch: u64) -> PeerMessage {
    let candidate = norn_model::viewstamp::ReplicaId { node, incarnation: 7 };
    let viewstamp = norn_model::viewstamp::Viewstamp { epoch: epoch - 1, length: 99 };
    PeerMessage::Election(Election::Vote { partition, epoch, candidate, viewstamp })
}

fn granted(messages: &[PeerMessage]) -> Option<LogPosition> {
    messages.iter().find_map(|message| match message {
        PeerMessage::Election(Election::VoteAnswer { granted: true, log, .. }) => Some(*log),
        _ => None,
    })
}

/// Three nodes of which the first one's log has grown, and its length before.
fn grown() -> (Cluster, usize) {
    let mut cluster = Cluster::new(3);
    let image = cluster.logs[0].len();
    cluster.enqueue(0, b"x", 9);
    cluster.advance(200);
    assert!(cluster.logs[0].len() > image);
    (cluster, image)
}

/// Goal: an image that was taken in the present start is noticed, by what its node has sent since.
#[test]
fn a_log_that_lost_its_end_without_a_start_in_between_is_noticed() {
    let (mut cluster, image) = grown();
    restore(&mut cluster, 0, image);
    cluster.advance(1_000);
    assert!(cluster.nodes[0].is_retired());
    let Some(Record::Retired { reason }) = cluster.logs[0].last() else { panic!("it is written down") };
    assert!(reason.contains("remembers"), "{reason}");
    // No lost promise was made once more.
    assert!(!cluster.logs[0][image..].iter().any(|record| matches!(record, Record::Vote { .. } | Record::Ops { .. })));
}

/// Goal: the very vote on which a candidate relies makes it remember the log position. Method: between the vote and the image's return
/// the candidate receives nothing else.
#[test]
fn whoever_has_a_vote_remembers_how_much_log_it_rests_on() {
    let mut cluster = Cluster::new(3);
    cluster.advance(500);
    let (partition, image) = (partition_of(&cluster), cluster.logs[0].len());
    let epoch = cluster.nodes[0].partitions[&partition].consensus.promised + 1;
    let answers = tell(&mut cluster, 0, NodeId(2), vote_of(NodeId(2), partition, epoch));
    let log_position = granted(&answers).expect("it votes");
    assert_eq!((log_position.boot, log_position.durable as usize), (cluster.nodes[0].boot, cluster.logs[0].len()));
    cluster.queue.clear();
    for answer in answers {
        tell(&mut cluster, 1, NodeId(1), answer);
    }
    cluster.down.insert(2);
    restore(&mut cluster, 0, image);
    cluster.advance(1_000);
    assert!(cluster.nodes[0].is_retired());
}

/// A vote of node 0, at an instant when node 1 is not ready and node 2 is gone; an image of node 0 goes on, before the vote arrives or
/// after it. Whether nodes 0 and 1 are retired.
fn a_word_that_comes_during_a_start(config: &Config, image_first: bool) -> [bool; 2] {
    let mut cluster = Cluster::with_config(3, config);
    cluster.advance(500);
    cluster.connect(0, 1, norn_wire::Versions::SPOKEN.newest);
    let (partition, image) = (partition_of(&cluster), cluster.logs[0].len());
    let epoch = cluster.nodes[0].partitions[&partition].consensus.promised + 1;
    let answers = tell(&mut cluster, 0, NodeId(2), vote_of(NodeId(2), partition, epoch));
    assert!(granted(&answers).is_some());
    cluster.down.insert(2);
    let effects = cluster.begin_restart(1, 99);
    if image_first {
        restore(&mut cluster, 0, image);
    }
    for answer in answers {
        assert!(tell(&mut cluster, 1, NodeId(1), answer).is_empty());
    }
    cluster.end_restart(1, effects);
    if !image_first {
        restore(&mut cluster, 0, image);
    }
    cluster.advance(1_000);
    [0, 1].map(|node| cluster.nodes[node].is_retired())
}

/// Goal: a node that was not ready when the last message of a process came remembers its log position, whether it came before the first
/// message of an image, and so counts as the latest, or after it.
#[test]
fn a_word_that_comes_during_a_start_is_remembered() {
    for image_first in [false, true] {
        assert_eq!(a_word_that_comes_during_a_start(&Config::default(), image_first), [true, false], "{image_first}");
    }
}

/// Goal: this test notices promises that do not name their start, which do harm in one of thousands of simulator runs.
#[cfg(feature = "mutants")]
#[test]
fn a_promise_that_tells_of_no_start_lets_an_image_go_on() {
    let config = Config { mutant: Some(norn_model::config::Mutant::PromisesUnheard), ..Config::default() };
    for image_first in [false, true] {
        assert_eq!(a_word_that_comes_during_a_start(&config, image_first), [false, false], "{image_first}");
    }
}

/// Goal: a start that is not answered yet votes for no candidate and follows no leader; afterwards it does at once.
#[test]
fn a_start_promises_nothing_before_a_peer_has_answered_it() {
    let mut cluster = Cluster::new(3);
    cluster.advance(500);
    let partition = partition_of(&cluster);
    let epoch = cluster.nodes[0].partitions[&partition].consensus.promised + 1;
    cluster.down.extend([1, 2]);
    cluster.restart(0);
    cluster.advance(2_000);
    let request_id = vote_of(NodeId(2), partition, epoch);
    assert_eq!(granted(&tell(&mut cluster, 0, NodeId(2), request_id.clone())), None);
    let own = &cluster.nodes[0].partitions[&partition].consensus;
    assert!(own.promised < epoch && own.leading().is_none());
    assert!(!cluster.nodes[0].speaks_for(partition));
    // Clients are served all the same, with ids that no earlier image lent.
    let response = cluster.ask(0, Request::Hello { name: "tester".into(), bare: true });
    assert!(matches!(response, Response::Welcome(_)), "{response:?}");

    let heartbeat = Heartbeat {
        seen: (cluster.nodes[0].boot, 1),
        seen_start: cluster.nodes[0].membership.log().start,
        ..first_heartbeat(cluster.nodes[1].boot + 1, cluster.now)
    };
    tell(&mut cluster, 0, NodeId(2), PeerMessage::Peering(Peering::Heartbeat(Box::new(heartbeat))));
    assert!(cluster.nodes[0].speaks_for(partition) && !cluster.nodes[0].is_retired());
    assert!(granted(&tell(&mut cluster, 0, NodeId(2), request_id)).is_some());
}

/// Goal: what a log gains in unanswered starts does not hide what it lost.
#[test]
fn a_log_that_lost_its_end_is_noticed_even_if_it_grows_longer_unanswered() {
    let (mut cluster, image) = grown();
    let before = cluster.logs[0].len();
    cluster.down.extend([1, 2]);
    restore(&mut cluster, 0, image);
    while cluster.logs[0].len() < before + 20 {
        cluster.restart(0);
        cluster.advance(100);
        assert!(!cluster.nodes[0].is_retired());
    }
    cluster.down.clear();
    cluster.restart(0);
    cluster.advance(500);
    assert!(cluster.nodes[0].is_retired());
}

/// Goal: an honest log is trusted, however its starts end: unanswered, heard and unanswered, answered.
#[test]
fn starts_that_are_heard_and_not_answered_are_no_evidence() {
    let mut cluster = Cluster::new(3);
    for heard_ms in [0, 1, 60, 200, 0, 130] {
        // The others hear it, and it does not hear them.
        for _ in 0..heard_ms {
            cluster.advance(1);
            cluster.queue.retain(|(to, _)| *to != 0);
        }
        cluster.restart(0);
    }
    cluster.advance(2_000);
    assert!(!cluster.nodes[0].is_retired());
    assert!(cluster.nodes[0].inspect().iter().all(|view| view.answered));
}

/// Goal: a vote of an earlier start does not count at a node that has answered a later one.
#[test]
fn what_comes_late_from_an_earlier_start_is_dropped() {
    let mut cluster = Cluster::new(3);
    cluster.advance(500);
    let old = cluster.nodes[0].boot;
    cluster.restart(0);
    cluster.advance(200);
    let log_position = |boot| LogPosition { boot, durable: 1, start: 0 };
    assert!(!cluster.nodes[1].note_log(NodeId(1), log_position(old)));
    assert!(cluster.nodes[1].note_log(NodeId(1), log_position(old + 1)));
    // A leader refuses and counts an acknowledgement of what was never sent, unless it drops the message before that.
    let leader =
        cluster.nodes[1].partitions.values().find(|replica| replica.consensus.leading().is_some()).expect("one");
    let (partition, epoch) = (leader.id, leader.consensus.viewstamp.epoch);
    let replica = cluster.nodes[0].partitions[&partition].consensus.me;
    let mut refused = |boot| {
        let (length, done, missing, data_loss, log) =
            (u64::MAX, Vec::new(), Vec::new(), Default::default(), log_position(boot));
        let late = PeerMessage::Replication(Replication::Ack {
            partition,
            epoch,
            replica,
            length,
            done,
            missing,
            data_loss,
            log,
        });
        tell(&mut cluster, 1, NodeId(1), late);
        cluster.nodes[1].outbox.counters().get("messages_refused").copied().unwrap_or(0)
    };
    assert_eq!((refused(old), refused(old + 1)), (0, 1));
}

/// Goal: a write for a majority does not wait for its deadline because a replica answered it a moment before its own start was
/// answered.
#[test]
fn a_write_is_told_again_to_a_replica_that_had_not_been_answered_when_it_took_it() {
    let mut cluster = Cluster::new(3);
    let id = cluster.id(9);
    let partition = cluster.nodes[0].partition_of(&id);
    cluster.down.insert(2);
    let answer = |cluster: &mut Cluster, answered: bool| {
        cluster.nodes[1].partitions.get_mut(&partition).expect("of three").answered = answered;
    };
    answer(&mut cluster, false);
    let tasks = vec![NewTask { id, spec: spec(b"x", 0) }];
    let number = cluster.submit(0, Request::Enqueue { tasks, acks: Acks::Quorum });
    let stored = |cluster: &Cluster| cluster.nodes[1].partitions[&partition].store.task(&id).is_some();
    cluster.run_until(stored);
    cluster.advance(5);
    assert!(!cluster.replies.contains_key(&number), "neither done nor refused: the other may be answered yet");
    answer(&mut cluster, true);
    let until = cluster.now.mono_after_ms(2 * cluster.nodes[0].config.resend_ms);
    cluster.run_until(|cluster| cluster.replies.contains_key(&number));
    assert!(cluster.now.mono_us <= until, "long before the deadline");
    let Response::Acked(results) = &cluster.replies[&number] else { panic!("{:?}", cluster.replies[&number]) };
    let acked = results[0].as_ref().expect("two of three have it");
    assert_eq!((acked.acks, acked.guarantee), (2, Guarantee::Strict));
}

/// Goal: a peer that has just started remembers the log position of a process whose heartbeat it has not received yet, and does not
/// mistake it for that of an image with the same start counter.
#[test]
fn an_image_that_counts_alike_does_not_pass_for_the_process_that_was_heard() {
    let mut cluster = Cluster::new(3);
    cluster.advance(500);
    let image = cluster.logs[0].clone();
    cluster.restart(0);
    cluster.advance(200);
    cluster.connect(0, 1, norn_wire::Versions::SPOKEN.newest);
    let (partition, boot) = (partition_of(&cluster), cluster.nodes[0].boot);
    let epoch = cluster.nodes[0].partitions[&partition].consensus.promised + 1;
    let answers = tell(&mut cluster, 0, NodeId(2), vote_of(NodeId(2), partition, epoch));
    let log_position = granted(&answers).expect("it votes");
    assert_eq!((log_position.boot, log_position.start), (boot, cluster.nodes[0].membership.log().start));
    cluster.queue.clear();
    cluster.down.insert(2);
    cluster.restart(1);
    for answer in answers {
        tell(&mut cluster, 1, NodeId(1), answer);
    }
    cluster.logs[0] = image;
    cluster.restart_drawing(0, 7);
    assert_eq!(cluster.nodes[0].boot, boot);
    cluster.advance(1_000);
    assert!(cluster.nodes[0].is_retired() && !cluster.nodes[1].is_retired());
}

/// Goal: a log position without a start may come from any process; one of another process than the known one in the same start counts
/// for nothing, and is remembered.
#[test]
fn another_process_in_a_start_is_not_listened_to() {
    let mut cluster = Cluster::new(3);
    cluster.advance(500);
    let (boot, start) = (cluster.nodes[0].boot, cluster.nodes[0].membership.log().start);
    let log_position = |durable, start| LogPosition { boot, durable, start };
    let node = &mut cluster.nodes[1];
    assert!(node.note_log(NodeId(1), log_position(1_000, 0)) && node.note_log(NodeId(1), log_position(1_001, start)));
    let remembered_log = node.peer(NodeId(1)).expect("it is a member").remembered_log();
    assert_eq!((remembered_log.within(boot), remembered_log.before(boot)), (1_001, 0));
    assert!(!node.note_log(NodeId(1), log_position(2_000, start ^ 1)));
    let remembered_log = node.peer(NodeId(1)).expect("it is a member").remembered_log();
    assert_eq!((remembered_log.within(boot), remembered_log.before(boot)), (1_001, 2_000));
}

/// Goal: a log position without a start is encoded as before starts were added, and reads back.
#[test]
fn a_word_without_a_start_is_two_numbers() {
    let bytes = |log_position: LogPosition| {
        let mut bytes = Vec::new();
        serde::Serialize::serialize(&log_position, &mut rmp_serde::Serializer::new(&mut bytes)).unwrap();
        assert_eq!(rmp_serde::from_slice::<LogPosition>(&bytes).unwrap(), log_position);
        bytes
    };
    assert_eq!(bytes(LogPosition { boot: 3, durable: 7, start: 0 }), [0x92, 3, 7]);
    assert_eq!(bytes(LogPosition { boot: 3, durable: 7, start: 9 }), [0x93, 3, 7, 9]);
}

/// Goal: an image that an operator starts does not keep the leaderships of its node alive.
#[test]
fn heartbeats_of_an_image_are_no_sign_of_life() {
    let mut cluster = Cluster::new(3);
    let first = first_heartbeat(cluster.nodes[0].boot, cluster.now);
    cluster.down.insert(0);
    cluster.advance(2 * cluster.nodes[1].config.election_timeout_ms);
    assert!(!cluster.nodes[1].is_alive(NodeId(1)));
    for number in 1..50 {
        let other = Heartbeat { start: first.start ^ 1, number: 1_000_000 + number, ..first.clone() };
        tell(&mut cluster, 1, NodeId(1), PeerMessage::Peering(Peering::Heartbeat(Box::new(other))));
        assert!(!cluster.nodes[1].is_alive(NodeId(1)));
    }
}

/// A peer that has just started receives a vote of node 0 that does not name its process, and then messages of an image of node 0 with
/// the same start counter. Whether node 0 and the peer are retired.
fn a_word_that_names_no_process(config: &Config) -> [bool; 2] {
    let mut cluster = Cluster::with_config(3, config);
    cluster.advance(500);
    let image = cluster.logs[0].clone();
    cluster.restart(0);
    cluster.advance(200);
    let (partition, boot) = (partition_of(&cluster), cluster.nodes[0].boot);
    let promised = cluster.nodes[0].partitions[&partition].consensus.promised;
    let mut answers = Vec::new();
    for epoch in promised + 1..promised + 20 {
        answers = tell(&mut cluster, 0, NodeId(2), vote_of(NodeId(2), partition, epoch));
    }
    let log_position = granted(&answers).expect("it votes");
    assert_eq!(log_position.boot, boot);
    cluster.queue.clear();
    cluster.down.insert(2);
    cluster.restart(1);
    for mut answer in answers {
        if let Some(log_position) = answer.log() {
            answer.set_log(LogPosition { start: 0, ..log_position });
        }
        tell(&mut cluster, 1, NodeId(1), answer);
    }
    cluster.logs[0] = image;
    cluster.restart_drawing(0, 7);
    assert!(cluster.nodes[0].boot == boot && (cluster.logs[0].len() as u64) < log_position.durable);
    cluster.advance(1_000);
    [0, 1].map(|node| cluster.nodes[node].is_retired())
}

/// Goal: an image from before a start is noticed by the log position of that start, even if it does not name its process.
#[test]
fn an_image_is_noticed_by_a_word_that_names_no_process() {
    assert_eq!(a_word_that_names_no_process(&Config::default()), [true, false]);
}

/// Goal: this test notices a node that ignores such a position, which does harm in one of a thousand simulator runs.
#[cfg(feature = "mutants")]
#[test]
fn a_word_that_is_not_heeded_lets_an_image_go_on() {
    let config = Config { mutant: Some(norn_model::config::Mutant::RivalUnnoticed), ..Config::default() };
    assert_eq!(a_word_that_names_no_process(&config), [false, false]);
}

/// Goal: a log does not look longer than it was after a start of which a full disk takes only a part. Method: each possible part.
#[test]
fn a_start_of_which_the_disk_takes_a_part_makes_the_log_no_longer() {
    let mut cluster = Cluster::new(3);
    cluster.advance(500);
    let before = cluster.logs[0].len();
    let mut taken = 0;
    loop {
        let effects = cluster.begin_restart(0, 5);
        let records = effects.into_iter().find_map(|effect| match effect {
            Effect::Persist { records, .. } => Some(records),
            _ => None,
        });
        let records = records.expect("a start is written down");
        taken += 1;
        if taken == records.len() {
            break;
        }
        cluster.logs[0].extend(records.into_iter().take(taken));
        cluster.begin_restart(0, 6);
        assert_eq!(cluster.nodes[0].membership.log().began, before as u64, "with {taken} records");
        cluster.logs[0].truncate(before);
    }
    assert!(taken > 1, "there are parts");
}
