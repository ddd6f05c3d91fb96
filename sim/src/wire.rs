//! Messages as bytes, through the real codecs.

use norn_model::limits::PEER_FRAME_BYTES_MAX;
use norn_model::message::{PeerMessage, envelope};
use norn_wire::codec::{self, HEADER_BYTES, Kind};
use norn_wire::{Request, Response, Versions};
use std::rc::Rc;

/// The version that all nodes and clients speak.
pub const VERSION: u8 = Versions::SPOKEN.newest;

macro_rules! codec {
    ($encode:ident, $decode:ident, $type:ty, $function:ident, $kind:expr) => {
        /// Encodes as it goes over the wire.
        pub fn $encode(number: u64, value: &$type) -> Rc<[u8]> {
            let mut bytes = Vec::new();
            codec::$function(&mut bytes, VERSION, $kind, number, value);
            bytes.into()
        }

        /// Decodes what came over the wire: the number and the value.
        pub fn $decode(bytes: &[u8]) -> (u64, $type) {
            let frame = codec::split(bytes, VERSION, PEER_FRAME_BYTES_MAX).expect("a frame");
            let (header, end) = frame.expect("a whole frame");
            assert_eq!((header.kind, end), ($kind, bytes.len()), "one frame");
            let value = codec::decode_body(&header, &bytes[HEADER_BYTES..end]).expect("what was encoded decodes");
            (header.request, value)
        }
    };
}

/// The version that nodes speak with each other.
pub fn version_of(enveloped: bool) -> u8 {
    if enveloped { VERSION } else { Versions::ENVELOPES - 1 }
}

/// Encodes messages as they go over the wire: frames of a version, one after the other.
pub fn encode_envelope(version: u8, messages: &[PeerMessage]) -> Rc<[u8]> {
    let mut bytes = Vec::new();
    let left_out = envelope::encode(&mut bytes, version, messages);
    assert!(left_out.is_empty(), "messages of a run are small");
    bytes.into()
}

/// Decodes the messages that came over the wire.
pub fn decode_envelope(version: u8, mut bytes: &[u8]) -> Vec<PeerMessage> {
    let mut messages = Vec::new();
    while !bytes.is_empty() {
        let frame = codec::split(bytes, version, PEER_FRAME_BYTES_MAX).expect("a frame");
        let (header, end) = frame.expect("a whole frame");
        messages.extend(envelope::decode(&header, &bytes[HEADER_BYTES..end]).expect("what was encoded decodes"));
        bytes = &bytes[end..];
    }
    messages
}

codec!(encode_request, decode_request, Request, encode_named, Kind::Request);
codec!(encode_response, decode_response, Response, encode_named, Kind::Response);
