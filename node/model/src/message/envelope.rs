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
