//! The bytes of version 2, which is the oldest that is spoken: every message, request and answer as that release wrote it.
//!
//! Goal: what this build writes to a peer or client of version 2 is byte for byte what such a one writes itself, so it reads
//! it; and the other way round. Whoever adds a message or a field has to say here what becomes of it for the old: see
//! "Versions" in ARCHITECTURE.md. `version-2.txt` was written by that release, and is never written anew.

use crate::samples::{NODE, OLDEST, answers, heartbeat, hello, messages, requests, status};
use norn_client::wire::codec::{Body, HEADER_BYTES, Kind, decode_body, encode_compact, encode_named, split};
use norn_client::wire::response::{NodeView, Standing, State, Status};
use norn_client::wire::{Acks, PartitionId, Request, Response, TaskId, Versions};
use norn_node::protocol::PeerMessage;
use norn_node::protocol::consistent::Viewstamp;
use norn_node::protocol::peer::Heartbeat;
use norn_node::protocol::task::{Cancel, Task};
use std::fmt::{Debug, Write};
use std::sync::Arc;

/// Of the frames.
const NUMBER: u64 = 7;

/// The version that a message of this kind came with. A new one finds its place here, and nowhere among the bytes of old.
#[expect(clippy::too_many_lines, reason = "one line for each message")]
fn came_with(message: &PeerMessage) -> u8 {
    use PeerMessage as M;
    match message {
        M::Heartbeat(_)
        | M::PreVote { .. }
        | M::PreVoteAnswer { .. }
        | M::Vote { .. }
        | M::VoteAnswer { .. }
        | M::Fetch { .. }
        | M::State { .. }
        | M::Transfer { .. }
        | M::Install { .. }
        | M::Snapshot { .. }
        | M::Ops { .. }
        | M::Ack { .. }
        | M::Nack { .. }
        | M::Rejoin { .. }
        | M::Rejoined { .. }
        | M::Ready { .. }
        | M::Dismiss { .. }
        | M::Outside { .. }
        | M::Arrange { .. }
        | M::RouteAsk { .. }
        | M::Route { .. }
        | M::Wake { .. }
        | M::Led { .. }
        | M::Write { .. }
        | M::Written { .. }
        | M::Kept { .. }
        | M::Read { .. }
        | M::Known { .. }
        | M::CountAsk { .. }
        | M::CountAnswer { .. }
        | M::ListAsk { .. }
        | M::ListAnswer { .. }
        | M::Roots { .. }
        | M::RootsAnswer { .. }
        | M::Recent { .. }
        | M::Want { .. }
        | M::Need { .. }
        | M::Steps { .. }
        | M::Lacks { .. }
        | M::Tasks { .. }
        | M::Hint { .. }
        | M::Hinted { .. }
        | M::Gone { .. }
        | M::Compare { .. }
        | M::Compared { .. }
        | M::Tombs { .. }
        | M::Buried { .. }
        | M::Forget { .. }
        | M::Forgot { .. }
        | M::Probe { .. }
        | M::Probed { .. }
        | M::Pull { .. }
        | M::Pulled { .. }
        | M::GrantAsk { .. }
        | M::GrantAnswer { .. }
        | M::Return { .. }
        | M::Interest { .. }
        | M::Available { .. }
        | M::Forward { .. }
        | M::Forwarded { .. } => 2,
        M::Roster { .. }
        | M::Rescue { .. }
        | M::Stray { .. }
        | M::Unheld { .. }
        | M::Ages { .. }
        | M::GroupsAsk { .. }
        | M::GroupsAnswer { .. }
        | M::Follow { .. }
        | M::Outboxes { .. }
        | M::Childless { .. }
        | M::PermitAsk { .. }
        | M::Permits { .. }
        | M::PermitsBack { .. }
        | M::QuotaAsk { .. }
        | M::Quota { .. }
        | M::QuotaCall { .. }
        | M::KeyAsk { .. }
        | M::KeyAnswer { .. }
        | M::Watch { .. }
        | M::Watched { .. }
        | M::WatchNews { .. }
        | M::MemberFailed { .. }
        | M::Leave { .. }
        | M::ConfirmAsk { .. }
        | M::ConfirmAnswer { .. }
        | M::Ends { .. } => 3,
    }
}

/// How many kinds that are.
const MESSAGES: usize = 60;

fn frame<T: Body>(kind: Kind, value: &T) -> Vec<u8> {
    let mut bytes = Vec::new();
    match kind {
        Kind::Peer => encode_compact(&mut bytes, OLDEST, kind, NUMBER, value),
        Kind::PeerHello | Kind::Request | Kind::Response => encode_named(&mut bytes, OLDEST, kind, NUMBER, value),
    }
    bytes
}

fn read<T: Body>(bytes: &[u8]) -> T {
    let (header, end) = split(bytes, OLDEST, 1 << 24).expect("a frame").expect("a whole one");
    assert_eq!((header.request, end), (NUMBER, bytes.len()));
    decode_body(&header, &bytes[HEADER_BYTES..]).expect("it is read")
}

/// The frames of these values with their names, after a look that each is read back as it was.
fn frames<T>(kind: Kind, values: &[T], name: impl Fn(&T) -> &'static str) -> Vec<(String, Vec<u8>)>
where
    T: Body + PartialEq + Debug,
{
    let framed = values.iter().map(|value| {
        let bytes = frame(kind, value);
        assert_eq!(read::<T>(&bytes), *value, "it is read back");
        (format!("{kind:?}.{}", name(value)), bytes)
    });
    framed.collect()
}

fn answer_name(response: &Response) -> &'static str {
    match response {
        Response::Welcome(_) => "welcome",
        Response::Acked(_) => "acked",
        Response::AckedOne(_) => "acked_one",
        Response::Task(_) => "task",
        Response::Page(_) => "page",
        Response::Count(_) => "count",
        Response::Queues(_) => "queues",
        Response::Claimed { .. } => "claimed",
        Response::Renewed(_) => "renewed",
        Response::Done => "done",
        Response::Nodes(_) => "nodes",
        // These came with version 3, and are asked for by requests that did.
        Response::AckedUnique { .. } => "acked_unique",
        Response::Transacted(_) => "transacted",
        Response::Changed(_) => "changed",
        Response::Cluster(_) => "cluster",
        Response::Remnants(_) => "remnants",
        Response::Scheduled { .. } => "scheduled",
        Response::Schedules(_) => "schedules",
        Response::Watched(_) => "watched",
        Response::Partitions(_) => "partitions",
        Response::Status(_) => "status",
        Response::Identity(_) => "identity",
        Response::Error(_) => "error",
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes everything");
        text
    })
}

#[test]
fn the_bytes_of_version_2_are_written_and_read_as_that_release_did() {
    let mut found = frames(Kind::PeerHello, &[hello()], |_| "hello");
    found.extend(frames(Kind::Peer, &messages(), PeerMessage::name));
    found.extend(frames(Kind::Request, &requests(), Request::verb));
    found.extend(frames(Kind::Response, &answers(), answer_name));
    let expected: Vec<&str> = include_str!("version-2.txt").lines().collect();
    for ((name, bytes), line) in found.iter().zip(&expected) {
        assert_eq!(format!("{name} {}", hex(bytes)), **line, "{name} is not what version 2 reads");
    }
    assert_eq!(found.len(), expected.len());
}

#[test]
fn every_message_is_there_and_says_with_which_version_it_came() {
    let mut names: Vec<&str> = messages().iter().map(PeerMessage::name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), MESSAGES);
    for message in messages() {
        assert_eq!(message.version(), came_with(&message), "{}", message.name());
    }
}

/// The view of nodes has a field more than it had; fields have names there, so the old pass over it, and do not miss it.
#[test]
fn answers_to_clients_may_have_fields_that_the_old_do_not_know() {
    let view = NodeView {
        node: NODE,
        name: "n1".into(),
        address: "n1:7400".into(),
        zone: "here".into(),
        state: None,
        alive: true,
        this: false,
        leads: 3,
        holds: 4,
        clock: Standing::Good,
        clock_offset_ms: Some(-3),
        clock_error_ms: Some(1),
        round_trip_us: Some(1_250),
        version: None,
        unreached_from: Vec::new(),
    };
    let expected = include_str!("version-2-nodes.txt").trim();
    let old: Vec<u8> = (0..expected.len() / 2)
        .map(|place| u8::from_str_radix(&expected[2 * place..2 * place + 2], 16).expect("hexadecimal"))
        .collect();
    assert_eq!(read::<Response>(&old), Response::Nodes(vec![view.clone()]));
    let new = Response::Nodes(vec![NodeView { version: Some(3), unreached_from: vec![NODE], ..view }]);
    assert_eq!(read::<Response>(&frame(Kind::Response, &new)), new);
    let partial = Response::Status(Box::new(Status { uncounted: 3, ..status() }));
    assert_eq!(read::<Response>(&frame(Kind::Response, &partial)), partial);
}

/// What a purge is to nodes: a field more of a task's facts, which the old have not, and are not sent.
#[test]
fn a_purge_is_a_field_that_the_old_are_not_sent() {
    let write = |task: Task| {
        let items = Arc::new(vec![(TaskId::new(1, 2, 3, 4), task)]);
        PeerMessage::Write { ask: 1, partition: PartitionId(3), at: Viewstamp { epoch: 5, length: 9 }, items }
    };
    let purge = write(Task::from_purge());
    assert_eq!(purge.version(), 3);
    let bytes = frame(Kind::Peer, &purge);
    assert_eq!(read::<PeerMessage>(&bytes), purge);
    let purged = b"\x9a\x90\x90\xc0\x90\xc2\x90\xc0\x90\xc0\xc3";
    assert!(bytes.windows(purged.len()).any(|window| window == purged), "{}", hex(&bytes));
    for state in [None, Some(State::Cancelled)] {
        let request = Request::Purge { id: TaskId::new(1, 2, 3, 4), acks: Acks::Quorum, state };
        assert_eq!((read::<Request>(&frame(Kind::Request, &request)), request.version()), (request.clone(), 3));
    }
    let plain = write(Task::from_cancel(Cancel { dead: true, reason: "no".into(), at_ms: 1 }));
    assert_eq!(plain.version(), OLDEST);
}

/// What makes the rule for messages between nodes: the old read no field more than they know.
#[test]
fn a_field_that_came_later_needs_its_version() {
    let later = PeerMessage::Heartbeat(Box::new(Heartbeat { offers: Some(3), ..heartbeat() }));
    assert_eq!(later.version(), 3);
    let bytes = frame(Kind::Peer, &later);
    assert_eq!(read::<PeerMessage>(&bytes), later);
    let plain = frame(Kind::Peer, &PeerMessage::Heartbeat(Box::new(heartbeat())));
    assert_eq!(bytes.len(), plain.len() + 1, "one more element of an array");
    assert!(Versions::SPOKEN.contains(OLDEST), "the fixtures go when their version does");
}
