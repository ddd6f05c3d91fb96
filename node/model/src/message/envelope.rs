//! Envelopes: the messages that a turn of a node has for one peer, as bytes.
//!
//! An envelope is one frame, so one length and one checksum for all of its messages, and the receiver handles them in one turn: what they
//! change is written to its log together, and its answers are an envelope in their turn. Messages keep their order, and none depends on
//! being in an envelope with another one: a large envelope is several frames, and a peer that speaks a version from before envelopes gets
//! a frame for each message.

use super::PeerMessage;
use crate::limits::{ENVELOPE_BYTES, ENVELOPE_MESSAGES_MAX, PEER_FRAME_BYTES_MAX};
use norn_wire::Versions;
use norn_wire::codec::{Body, FrameError, Header, Kind, decode_bodies, decode_body, frame};

/// Appends messages to `out` as frames of a protocol version. Returns those that are too large for any frame, which are left out.
pub fn encode<'a>(out: &mut Vec<u8>, version: u8, messages: &'a [PeerMessage]) -> Vec<&'a PeerMessage> {
    let (mut rest, mut left_out) = (messages, Vec::new());
    while !rest.is_empty() {
        let start = out.len();
        let enveloped = version >= Versions::ENVELOPES;
        let (kind, most) = if enveloped { (Kind::Envelope, ENVELOPE_MESSAGES_MAX) } else { (Kind::Peer, 1) };
        let mut fit = 0;
        frame(out, version, kind, 0, |out| fit = append(out, &rest[..most.min(rest.len())]));
        if fit == 0 {
            out.truncate(start);
            left_out.push(&rest[0]);
        }
        rest = &rest[fit.max(1)..];
    }
    left_out
}

/// Appends the first messages, until the body is as large as an envelope gets. Returns their number: 0 if the first is too large.
fn append(body: &mut Vec<u8>, messages: &[PeerMessage]) -> usize {
    let start = body.len();
    for (fit, message) in messages.iter().enumerate() {
        let before = body.len();
        if before - start >= ENVELOPE_BYTES {
            return fit;
        }
        message.write_compact(body);
        if body.len() - start > PEER_FRAME_BYTES_MAX {
            body.truncate(before);
            return fit;
        }
    }
    messages.len()
}

/// Reads the messages of a frame.
pub fn decode(header: &Header, body: &[u8]) -> Result<Vec<PeerMessage>, FrameError> {
    match header.kind {
        Kind::Envelope => decode_bodies(header, body, ENVELOPE_MESSAGES_MAX),
        Kind::Peer => Ok(vec![decode_body(header, body)?]),
        Kind::PeerHello | Kind::Request | Kind::Response => Err(FrameError::Header),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Forwarding;
    use norn_wire::codec::{HEADER_BYTES, split};
    use norn_wire::{Error, ErrorCode, Response};

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
        assert_eq!(
            framed(Kind::Envelope, ENVELOPE_MESSAGES_MAX).map(|messages| messages.len()),
            Ok(ENVELOPE_MESSAGES_MAX)
        );
        assert!(matches!(framed(Kind::Envelope, ENVELOPE_MESSAGES_MAX + 1), Err(FrameError::Body(_))));
        assert!(matches!(framed(Kind::Peer, 2), Err(FrameError::Body(_))));
        assert_eq!(framed(Kind::Request, 1), Err(FrameError::Header));
    }
}
