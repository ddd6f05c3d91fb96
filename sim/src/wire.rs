//! Messages as bytes, through the real codecs.
//!
//! A frame between nodes says the protocol version of the link on which it was sent. A link that was replaced since by one of a newer
//! version may still deliver it; one of a newer version than the receiver speaks must never come.

use norn_client::wire::codec::{self, HEADER_BYTES, Kind};
use norn_client::wire::{Request, Response, Versions};
use norn_node::limits::PEER_FRAME_BYTES_MAX;
use norn_node::protocol::PeerMessage;
use std::rc::Rc;

/// Where in its header a frame says its version.
const VERSION_PLACE: usize = 4;

macro_rules! codec {
    ($encode:ident, $decode:ident, $type:ty, $function:ident, $kind:expr) => {
        /// Encodes as it goes over the wire.
        pub fn $encode(version: u8, number: u64, value: &$type) -> Rc<[u8]> {
            let mut bytes = Vec::new();
            codec::$function(&mut bytes, version, $kind, number, value);
            bytes.into()
        }

        /// Decodes what came over the wire: the number and the value.
        pub fn $decode(bytes: &[u8]) -> (u64, $type) {
            let version = version_of(bytes);
            let frame = codec::split(bytes, version, PEER_FRAME_BYTES_MAX).expect("a frame");
            let (header, end) = frame.expect("a whole frame");
            assert_eq!((header.kind, end), ($kind, bytes.len()), "one frame");
            let value = codec::decode_body(&header, &bytes[HEADER_BYTES..end]).expect("what was encoded decodes");
            (header.request, value)
        }
    };
}

/// The version that a frame says.
pub fn version_of(bytes: &[u8]) -> u8 {
    let version = bytes[VERSION_PLACE];
    assert!(Versions::SPOKEN.contains(version), "a frame of a version that is spoken");
    version
}

codec!(encode_peer, decode_peer, PeerMessage, encode_compact, Kind::Peer);
codec!(encode_request, decode_request, Request, encode_named, Kind::Request);
codec!(encode_response, decode_response, Response, encode_named, Kind::Response);
