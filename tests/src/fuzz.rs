//! Decoders under arbitrary bytes: a log, a record, a message. Each function takes bytes as a stranger might send them or a damaged
//! disk might hold them, and panics if the code breaks one of its promises.
//!
//! Goal: no bytes make a node panic, loop, or allocate memory out of proportion. Method: `tests/tests/fuzz.rs` calls these functions
//! with some thousand seeded mutations of [`samples`], and the targets of `tests/fuzz` call them with the inputs of a fuzzer. They use
//! only the public interface: frames are tested through a log that contains them.

pub mod bounded;
pub mod messages;
pub mod mutation;
pub mod samples;

use bounded::Bounded;
use norn_model::limits::{FRAME_BYTES_MAX, PEER_FRAME_BYTES_MAX};
use norn_model::message::{PeerMessage, envelope};
use norn_model::record::Record;
use norn_storage::disk::{Disk, DiskError};
use norn_storage::verify::{Entry, inspect, verify};
use norn_storage::{Identity, Log, LogConfig, Replay};
use norn_wire::codec::{self, Body, HEADER_BYTES, Kind};
use norn_wire::{NodeId, Request, Response, Versions};
use std::fmt::Debug;

/// Bytes of a segment's header, and the offset of its checksum.
const SEGMENT_HEADER_BYTES: usize = 512;
const CHECKSUM_PLACE: usize = SEGMENT_HEADER_BYTES - 4;
/// Bytes of a slot, and the offset of its checksum.
const SLOT_BYTES: usize = 32;
const SLOT_CHECKSUM_PLACE: usize = SLOT_BYTES - 4;
/// Number of slots whose checksums are corrected.
const SLOTS_SEALED: usize = 16;

/// Protocol version of frames, as agreed by both sides of a connection.
const VERSION: u8 = Versions::SPOKEN.newest;

/// Settings of the logs below: small segments, so that three files make a whole log.
pub const CONFIG: LogConfig = LogConfig { segment_bytes: 1_000, compact_bytes: u64::MAX, ..LogConfig::DEFAULT };

/// Identity of the writer of the logs of [`samples`].
pub const IDENTITY: Identity = Identity { node: NodeId(0xabc), incarnation: 7 };

/// Name of a segment's file.
pub fn segment_name(number: usize) -> String {
    format!("{number:016}.log")
}

/// Reads bytes as the frames of a segment. Asserts that the entries are in order, without gaps, and cover the file up to its end.
pub fn frames(bytes: &[u8]) {
    let file = segment_name(1);
    let disk = Bounded::new([(file, [&[0; SEGMENT_HEADER_BYTES], bytes].concat())]);
    look(&disk);
}

/// Inspects every file of a directory.
fn look(disk: &Bounded) {
    let mut end_before: Option<(String, u64)> = None;
    let visited = inspect(disk, |file, offset, entry| {
        let end = match entry {
            Entry::Record { bytes, .. } => offset + bytes,
            Entry::Damage { end, .. } => end,
        };
        let length = disk.bytes_of(file);
        assert!((offset < end || length == 0) && end <= length, "{file} from {offset} to {end}");
        if let Some((_, before)) = end_before.as_ref().filter(|(known, _)| known == file) {
            assert_eq!(*before, offset, "nothing of {file} is passed over");
        }
        end_before = Some((file.to_owned(), end));
        Ok::<(), DiskError>(())
    });
    visited.expect("the disk is good");
    if let Some((file, end)) = end_before {
        let space = disk.read(&file, end, disk.bytes_of(&file) as usize).expect("the disk is good");
        assert!(space.iter().all(|byte| *byte == 0), "the last file is read to its end, or to its space");
    }
}

/// Splits bytes into up to three files: one byte of flags, the lengths of the first two files in two bytes each, then the files. The
/// first flag corrects the checksums of headers, and the second those of slots, so that the reader trusts their contents.
pub fn unpack(bytes: &[u8]) -> Vec<Vec<u8>> {
    let Some(([flags, a, b, c, d], rest)) = bytes.split_first_chunk::<5>() else { return Vec::new() };
    let (one, rest) = rest.split_at(rest.len().min(usize::from(u16::from_be_bytes([*a, *b]))));
    let (two, three) = rest.split_at(rest.len().min(usize::from(u16::from_be_bytes([*c, *d]))));
    let mut files: Vec<Vec<u8>> = [one, two, three].into_iter().map(<[u8]>::to_vec).collect();
    while files.last().is_some_and(Vec::is_empty) {
        files.pop();
    }
    for file in &mut files {
        if flags & 1 != 0 {
            seal(file, 0..CHECKSUM_PLACE);
        }
        if flags & 2 != 0 {
            for slot in 0..SLOTS_SEALED {
                let start = SEGMENT_HEADER_BYTES + slot * SLOT_BYTES;
                seal(file, start..start + SLOT_CHECKSUM_PLACE);
            }
        }
    }
    files
}

/// The inverse of [`unpack`].
pub fn pack(flags: u8, files: &[Vec<u8>]) -> Vec<u8> {
    let length = |place: usize| u16::try_from(files.get(place).map_or(0, Vec::len)).expect("a small log").to_be_bytes();
    let mut bytes = vec![flags];
    bytes.extend(length(0));
    bytes.extend(length(1));
    files.iter().for_each(|file| bytes.extend(file));
    bytes
}

/// Writes the checksum of a range behind it, if there is room.
fn seal(file: &mut [u8], bytes: std::ops::Range<usize>) {
    let place = bytes.end..bytes.end + 4;
    if place.end <= file.len() {
        let checksum = crc32c::crc32c(&file[bytes]);
        file[place].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// Starts on a directory with these files, packed as in [`unpack`], and inspects it as an operator does. If the start succeeds,
/// asserts that the log accepts more records and that a second start reads the same ones.
pub fn directory(bytes: &[u8]) {
    let files = unpack(bytes);
    let disk = Bounded::new(files.into_iter().enumerate().map(|(place, file)| (segment_name(place + 1), file)));
    look(&disk);
    verify(&disk, |problem| assert!(!problem.known.is_empty())).expect("the disk is good");
    let Ok((mut log, mut records)) = start(&disk) else { return };
    let more = [Record::Boot { count: 77 }, Record::HighWaterMark { time_ms: 1, sessions: 2 }];
    log.append(&more).expect("a log that was opened goes on");
    log.sync().expect("the disk is good");
    records.extend(more.map(|record| Replay::Record { record, covered: false, again: false, place: None }));
    let (_, again) = start(&disk).expect("what was mended is whole");
    // Repairs may move a record to another place.
    let plain = |replay: &Replay| match replay {
        Replay::Record { record, covered, again, .. } => {
            Replay::Record { record: record.clone(), covered: *covered, again: *again, place: None }
        }
        other @ (Replay::Promised { .. } | Replay::Lost { .. }) => other.clone(),
    };
    // Repeated records carry nothing new, and each start may repeat them again before anything is appended.
    let is_news = |replay: &&Replay| !matches!(replay, Replay::Promised { .. } | Replay::Record { again: true, .. });
    let plain = |replays: &[Replay]| replays.iter().filter(is_news).map(plain).collect::<Vec<Replay>>();
    assert_eq!(plain(&again), plain(&records));
}

/// Opens and replays a log; returns all records and all losses.
pub fn start(disk: &Bounded) -> Result<(Log<Bounded>, Vec<Replay>), String> {
    let mut log = Log::open(disk.clone(), CONFIG, || IDENTITY).map_err(|error| error.to_string())?;
    let mut records = Vec::new();
    let visit = |replay| {
        records.push(replay);
        Ok(())
    };
    log.replay(visit).map_err(|error| error.to_string())?;
    Ok((log, records))
}

/// Reads bytes as the body of a record. Asserts that a record that decodes survives encoding and decoding.
pub fn record(bytes: &[u8]) {
    if let Ok(record) = Record::decode(bytes) {
        let mut encoded = Vec::new();
        record.encode(&mut encoded);
        assert_eq!(Record::decode(&encoded).as_ref(), Ok(&record));
    }
}

/// Reads bytes as they arrive on a connection: as frames, and their bodies as every kind of message, whatever their checksums.
pub fn wire(bytes: &[u8]) {
    for limit in [FRAME_BYTES_MAX, PEER_FRAME_BYTES_MAX] {
        let mut rest = bytes;
        while let Ok(Some((header, end))) = codec::split(rest, VERSION, limit) {
            assert!(header.length <= limit && end <= rest.len() && end >= HEADER_BYTES);
            let body = &rest[HEADER_BYTES..end];
            match header.kind {
                Kind::Request => drop(codec::decode_body::<Request>(&header, body)),
                Kind::Response => drop(codec::decode_body::<Response>(&header, body)),
                Kind::PeerHello => drop(codec::decode_body::<PeerMessage>(&header, body)),
                Kind::Peer | Kind::Envelope => drop(envelope::decode(&header, body)),
            }
            bodies(body);
            rest = &rest[end..];
        }
    }
    bodies(bytes);
}

fn bodies(body: &[u8]) {
    body_as::<Request>(body, Kind::Request);
    body_as::<Response>(body, Kind::Response);
    body_as::<PeerMessage>(body, Kind::Peer);
}

/// Asserts that a body that decodes survives encoding, named and compact.
fn body_as<T: Body + PartialEq + Debug>(body: &[u8], kind: Kind) {
    let Ok(value) = T::read(body) else { return };
    let (mut named, mut compact) = (Vec::new(), Vec::new());
    codec::encode_named(&mut named, VERSION, kind, 1, &value);
    codec::encode_compact(&mut compact, VERSION, kind, 1, &value);
    for frame in [named, compact] {
        let (header, end) = codec::split(&frame, VERSION, usize::MAX).expect("a frame").expect("a whole one");
        assert_eq!(codec::decode_body::<T>(&header, &frame[HEADER_BYTES..end]).as_ref(), Ok(&value));
    }
}
