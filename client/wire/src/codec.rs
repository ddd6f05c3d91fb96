//! Frames: a fixed header and a body.
//!
//! ```text
//! 0        4        5      6        8          16        20
//! | length | version | kind | 0 0 0 | request  | crc32c  | body ...
//! ```
//! All numbers are big-endian. `length` counts the body alone. `version` is the version of frame and body, equal to that of the
//! connection ([`crate::version`]). The checksum covers version, kind, request and body: QUIC already authenticates every packet, but
//! bytes also pass through memory and other people's code.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Size of a frame's header.
pub const HEADER_BYTES: usize = 20;

/// Kind of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// First frame on a peer's stream: names the sender.
    PeerHello = 1,
    /// A message between nodes.
    Peer = 2,
    /// A client's request.
    Request = 3,
    /// The response to a request.
    Response = 4,
    /// Messages between nodes that are handled together, one after the other. Since version 4.
    Envelope = 5,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Kind> {
        let all = [Kind::PeerHello, Kind::Peer, Kind::Request, Kind::Response, Kind::Envelope];
        all.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// Checked header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Length of the body in bytes.
    pub length: usize,
    /// Protocol version.
    pub version: u8,
    /// Kind of the body.
    pub kind: Kind,
    /// Number that a response shares with its request; 0 for other kinds.
    pub request: u64,
    checksum: u32,
}

/// Why bytes are not a frame. The connection that sent them is unusable from then on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The version differs from the connection's.
    #[error("frame of protocol version {found} on a connection of version {agreed}")]
    Version {
        /// Version in the header.
        found: u8,
        /// Version of the connection.
        agreed: u8,
    },
    /// The kind is unknown or reserved bits are set.
    #[error("frame header is malformed")]
    Header,
    /// The body is longer than allowed.
    #[error("frame of {length} bytes, at most {limit} are accepted")]
    Length {
        /// Length in the header.
        length: usize,
        /// Longest allowed length.
        limit: usize,
    },
    /// The checksum does not match.
    #[error("frame checksum does not match")]
    Checksum,
    /// The body does not decode as its type.
    #[error("frame body: {0}")]
    Body(String),
}

fn checksum(version: u8, kind: u8, request: u64, body: &[u8]) -> u32 {
    let mut head = [0; 10];
    head[0] = version;
    head[1] = kind;
    head[2..].copy_from_slice(&request.to_be_bytes());
    crc32c::crc32c_append(crc32c::crc32c(&head), body)
}

/// Appends a frame to `out`; `write` appends its body.
pub fn frame(out: &mut Vec<u8>, version: u8, kind: Kind, request: u64, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER_BYTES]);
    write(out);
    let length = out.len() - start - HEADER_BYTES;
    let sum = checksum(version, kind as u8, request, &out[start + HEADER_BYTES..]);
    let header = &mut out[start..start + HEADER_BYTES];
    header[0..4].copy_from_slice(&u32::try_from(length).expect("a frame is far below 4 GiB").to_be_bytes());
    header[4] = version;
    header[5] = kind as u8;
    header[8..16].copy_from_slice(&request.to_be_bytes());
    header[16..20].copy_from_slice(&sum.to_be_bytes());
}

/// Type of a frame's body. [`crate::wire_body`] implements it by functions that are not generic, so that the code for a type is compiled
/// once, in its own crate, rather than in each crate that reads or writes frames.
pub trait Body: Sized {
    /// Appends the value with named fields.
    fn write_named(&self, out: &mut Vec<u8>);

    /// Appends the value with fields by position.
    fn write_compact(&self, out: &mut Vec<u8>);

    /// Decodes a value that fills `bytes`, with named or positional fields.
    fn read(bytes: &[u8]) -> Result<Self, FrameError>;

    /// Decodes up to `values_max` values that together fill `bytes`.
    fn read_all(bytes: &[u8], values_max: usize) -> Result<Vec<Self>, FrameError>;
}

/// Implements [`Body`] for types of the crate that calls it.
#[macro_export]
macro_rules! wire_body {
    ($($type:ty),+) => {
        $(impl $crate::codec::Body for $type {
            #[inline(never)]
            fn write_named(&self, out: &mut Vec<u8>) {
                $crate::codec::write_value_named(self, out);
            }

            #[inline(never)]
            fn write_compact(&self, out: &mut Vec<u8>) {
                $crate::codec::write_value_compact(self, out);
            }

            #[inline(never)]
            fn read(bytes: &[u8]) -> Result<Self, $crate::codec::FrameError> {
                $crate::codec::decode_value(bytes)
            }

            #[inline(never)]
            fn read_all(bytes: &[u8], values_max: usize) -> Result<Vec<Self>, $crate::codec::FrameError> {
                $crate::codec::decode_values(bytes, values_max)
            }
        })+
    };
}

/// Appends one MessagePack value with named fields.
pub fn write_value_named<T: Serialize>(value: &T, out: &mut Vec<u8>) {
    let mut serializer = rmp_serde::Serializer::new(out).with_struct_map();
    value.serialize(&mut serializer).expect("wire types always encode");
}

/// Appends one MessagePack value with fields by position.
pub fn write_value_compact<T: Serialize>(value: &T, out: &mut Vec<u8>) {
    value.serialize(&mut rmp_serde::Serializer::new(out)).expect("wire types always encode");
}

/// Appends a frame with named fields: requests and responses.
pub fn encode_named<T: Body>(out: &mut Vec<u8>, version: u8, kind: Kind, request: u64, value: &T) {
    frame(out, version, kind, request, |out| value.write_named(out));
}

/// Appends a frame with fields by position: messages between nodes. A reader rejects fields that it does not know, and allows trailing
/// fields with a default to be absent.
pub fn encode_compact<T: Body>(out: &mut Vec<u8>, version: u8, kind: Kind, request: u64, value: &T) {
    frame(out, version, kind, request, |out| value.write_compact(out));
}

/// Decodes and checks a header on a connection of this version. `limit` bounds the body.
pub fn decode_header(bytes: &[u8; HEADER_BYTES], version: u8, limit: usize) -> Result<Header, FrameError> {
    let length = u32::from_be_bytes(bytes[0..4].try_into().expect("four bytes")) as usize;
    if bytes[4] != version {
        return Err(FrameError::Version { found: bytes[4], agreed: version });
    }
    let kind = Kind::from_byte(bytes[5]).ok_or(FrameError::Header)?;
    if bytes[6..8] != [0, 0] {
        return Err(FrameError::Header);
    }
    if length > limit {
        return Err(FrameError::Length { length, limit });
    }
    Ok(Header {
        length,
        version,
        kind,
        request: u64::from_be_bytes(bytes[8..16].try_into().expect("eight bytes")),
        checksum: u32::from_be_bytes(bytes[16..20].try_into().expect("four bytes")),
    })
}

/// Decodes a body; every byte of it must belong to the value. Both named and compact bodies are accepted.
pub fn decode_body<T: Body>(header: &Header, body: &[u8]) -> Result<T, FrameError> {
    check_body(header, body)?;
    T::read(body)
}

/// Decodes a body of up to `values_max` values.
pub fn decode_bodies<T: Body>(header: &Header, body: &[u8], values_max: usize) -> Result<Vec<T>, FrameError> {
    check_body(header, body)?;
    T::read_all(body, values_max)
}

fn check_body(header: &Header, body: &[u8]) -> Result<(), FrameError> {
    let sum = checksum(header.version, header.kind as u8, header.request, body);
    if body.len() == header.length && sum == header.checksum { Ok(()) } else { Err(FrameError::Checksum) }
}

/// Decodes one MessagePack value that fills `bytes`.
pub fn decode_value<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, FrameError> {
    let mut rest = bytes;
    let value = decode_next(&mut rest)?;
    if rest.is_empty() { Ok(value) } else { Err(FrameError::Body("bytes after the value".into())) }
}

/// Decodes up to `values_max` MessagePack values that together fill `bytes`.
pub fn decode_values<T: DeserializeOwned>(bytes: &[u8], values_max: usize) -> Result<Vec<T>, FrameError> {
    let (mut rest, mut values) = (bytes, Vec::new());
    while !rest.is_empty() {
        if values.len() == values_max {
            return Err(FrameError::Body(format!("more than {values_max} values")));
        }
        values.push(decode_next(&mut rest)?);
    }
    Ok(values)
}

fn decode_next<T: DeserializeOwned>(rest: &mut &[u8]) -> Result<T, FrameError> {
    let mut deserializer = rmp_serde::Deserializer::new(rest);
    deserializer.set_max_depth(64);
    T::deserialize(&mut deserializer).map_err(|error| FrameError::Body(error.to_string()))
}

/// Finds the first whole frame in `buffer`: returns its header and the offset at which its body ends.
pub fn split(buffer: &[u8], version: u8, limit: usize) -> Result<Option<(Header, usize)>, FrameError> {
    let Some(head) = buffer.first_chunk::<HEADER_BYTES>() else {
        return Ok(None);
    };
    let header = decode_header(head, version, limit)?;
    let end = HEADER_BYTES + header.length;
    Ok((buffer.len() >= end).then_some((header, end)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::FRAME_BYTES_MAX;
    use crate::request::Request;
    use proptest::prelude::*;

    const VERSION: u8 = 2;

    fn request_frame() -> Vec<u8> {
        let mut bytes = Vec::new();
        encode_named(&mut bytes, VERSION, Kind::Request, 7, &Request::Hello { name: "test".into(), bare: false });
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Option<Request>, FrameError> {
        let Some((header, end)) = split(bytes, VERSION, FRAME_BYTES_MAX)? else {
            return Ok(None);
        };
        decode_body(&header, &bytes[HEADER_BYTES..end]).map(Some)
    }

    #[test]
    fn a_frame_reads_back() {
        let bytes = request_frame();
        let (header, end) = split(&bytes, VERSION, FRAME_BYTES_MAX).unwrap().unwrap();
        assert_eq!((header.kind, header.request, end), (Kind::Request, 7, bytes.len()));
        assert_eq!(decode(&bytes).unwrap(), Some(Request::Hello { name: "test".into(), bare: false }));
    }

    #[test]
    fn the_bytes_of_a_frame_stay_as_they_are() {
        let expected = "00000012 02 03 0000 0000000000000007";
        let hex: String = request_frame()[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, expected.replace(' ', ""));
    }

    #[test]
    fn a_frame_of_another_version_than_the_connection_is_refused() {
        let bytes = request_frame();
        let refused = FrameError::Version { found: 2, agreed: 3 };
        assert_eq!(split(&bytes, 3, FRAME_BYTES_MAX), Err(refused));
    }

    #[test]
    fn a_part_of_a_frame_is_no_frame_yet() {
        let bytes = request_frame();
        for end in 0..bytes.len() {
            assert_eq!(decode(&bytes[..end]), Ok(None));
        }
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let bytes = request_frame();
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(!matches!(decode(&damaged), Ok(Some(_))), "bit {bit}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&bytes);
            let _ = decode_value::<Request>(&bytes);
        }
    }
}
