//! Messages between nodes, as bytes and back. These tests are a program of their own because decoding is most of this crate's code: beside
//! the unit tests it would be compiled a second time.

use crdts::CvRDT;
use norn_model::limits::{ENVELOPE_BYTES, ENVELOPE_MESSAGES_MAX, PEER_FRAME_BYTES_MAX};
use norn_model::message::envelope::{decode, encode};
use norn_model::message::{Forwarding, Known, PeerMessage, ReadWrite};
use norn_model::task::{Completed, Task};
use norn_model::viewstamp::{ReplicaId, Viewstamp};
use norn_wire::codec::{Body, FrameError, HEADER_BYTES, Kind, frame, split};
use norn_wire::{Error, ErrorCode, NodeId, PartitionId, Response, Token, Versions};

const ENVELOPED: u8 = Versions::ENVELOPES;
const SINGLE: u8 = Versions::ENVELOPES - 1;

/// A message of about this many bytes.
fn message(bytes: usize) -> PeerMessage {
    let response = Box::new(Response::Error(Error::new(ErrorCode::Unavailable, "x".repeat(bytes))));
    PeerMessage::Forwarding(Forwarding::Forwarded { request_id: bytes as u64, response })
}

/// The messages as they arrive, by frame, and the number of those that were left out.
fn sent(version: u8, messages: &[PeerMessage]) -> (Vec<Vec<PeerMessage>>, usize) {
    let mut bytes = Vec::new();
    let left_out = encode(&mut bytes, version, messages).len();
    let (mut rest, mut frames) = (&bytes[..], Vec::new());
    while !rest.is_empty() {
        let (header, end) = split(rest, version, PEER_FRAME_BYTES_MAX).expect("a frame").expect("a whole frame");
        frames.push(decode(&header, &rest[HEADER_BYTES..end]).expect("what was encoded"));
        rest = &rest[end..];
    }
    (frames, left_out)
}

#[test]
fn messages_are_one_frame_or_one_frame_each_to_a_peer_from_before_envelopes() {
    let messages: Vec<PeerMessage> = (1..20).map(message).collect();
    assert_eq!(sent(ENVELOPED, &messages), (vec![messages.clone()], 0));
    let each: Vec<Vec<PeerMessage>> = messages.iter().map(|message| vec![message.clone()]).collect();
    assert_eq!(sent(SINGLE, &messages), (each, 0));
    assert_eq!(sent(ENVELOPED, &[]), (Vec::new(), 0));
}

#[test]
fn many_or_large_messages_are_several_frames_in_their_order() {
    let many: Vec<PeerMessage> = (0..ENVELOPE_MESSAGES_MAX + 1).map(|number| message(number % 7)).collect();
    let (frames, left_out) = sent(ENVELOPED, &many);
    assert_eq!((frames.len(), left_out), (2, 0));
    assert_eq!(frames.concat(), many);
    let large = [message(ENVELOPE_BYTES), message(1), message(PEER_FRAME_BYTES_MAX - 1_000), message(2)];
    let (frames, left_out) = sent(ENVELOPED, &large);
    assert_eq!((frames.len(), left_out), (3, 0), "the large ones end theirs");
    assert_eq!(frames.concat(), large);
}

#[test]
fn a_message_that_fits_no_frame_is_left_out_and_the_others_arrive() {
    let messages = [message(1), message(PEER_FRAME_BYTES_MAX), message(2)];
    for version in [SINGLE, ENVELOPED] {
        let (frames, left_out) = sent(version, &messages);
        assert_eq!((frames.concat(), left_out), (vec![messages[0].clone(), messages[2].clone()], 1));
    }
}

#[test]
fn a_frame_with_too_many_messages_or_of_another_kind_is_refused() {
    let one = message(1);
    let framed = |kind, count: usize| {
        let mut bytes = Vec::new();
        frame(&mut bytes, ENVELOPED, kind, 0, |out| (0..count).for_each(|_| one.write_compact(out)));
        let (header, end) = split(&bytes, ENVELOPED, PEER_FRAME_BYTES_MAX).unwrap().unwrap();
        decode(&header, &bytes[HEADER_BYTES..end])
    };
    assert_eq!(framed(Kind::Envelope, ENVELOPE_MESSAGES_MAX).map(|messages| messages.len()), Ok(ENVELOPE_MESSAGES_MAX));
    assert!(matches!(framed(Kind::Envelope, ENVELOPE_MESSAGES_MAX + 1), Err(FrameError::Body(_))));
    assert!(matches!(framed(Kind::Peer, 2), Err(FrameError::Body(_))));
    assert_eq!(framed(Kind::Request, 1), Err(FrameError::Header));
}

const TOKEN: Token = Token { epoch: 1, number: 1 };

/// Goal: lost parts go over the wire and are merged back there: the task is the same, and its result is marked as lost.
#[test]
fn what_is_lost_is_marked_so_at_the_reader() {
    let completed = Completed { sequence: Some(1), result: Some(vec![7; 1_000].into()), at_ms: 5, children: None };
    let mut whole = Task::from_seal(TOKEN, completed);
    whole.merge(Task::from_update(TOKEN, 0, vec![8; 1_000]));
    for incomplete in [false, true] {
        let mut task = whole.clone();
        let result = whole.blobs().last().map(|(slot, blob)| (slot, blob.hash(), blob.len() as u32));
        task.mark_lost(&[result.expect("there is one")]);
        let (viewstamp, at) = (Viewstamp::default(), Viewstamp::default());
        let mut known = Known { task, entry: None, viewstamp, at, advertised: None, incomplete, lost: None };
        known.lose(None);
        let replica = ReplicaId { node: NodeId(1), incarnation: 1 };
        let message = PeerMessage::ReadWrite(ReadWrite::Known {
            request_id: 1,
            partition: PartitionId(0),
            replica,
            known: Box::new(known),
        });
        let mut bytes = Vec::new();
        message.write_compact(&mut bytes);
        let PeerMessage::ReadWrite(ReadWrite::Known { mut known, .. }) =
            PeerMessage::read(&bytes).expect("it can be read")
        else {
            panic!()
        };
        assert_eq!(known.task.ended(), None, "nothing but what can be told");
        known.take_losses();
        assert_eq!((&known.task, known.incomplete), (&whole, incomplete));
        let away: Vec<bool> = known.task.blobs().map(|(_, blob)| blob.here().is_none()).collect();
        assert_eq!(away, [false, true]);
        let mut seen = known.task.clone();
        seen.merge_told(whole.clone());
        assert!(seen.has_blobs() && seen == whole, "another replica has it");
        let mut seen = whole.clone();
        seen.merge_told(known.task);
        assert!(seen.has_blobs() && seen == whole);
    }
}
