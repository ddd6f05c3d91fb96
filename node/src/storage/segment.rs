//! One file of the log: its name, its header, and the reading of its frames.

use super::disk::{Disk, DiskError};
use super::frame::{HEAD_BYTES, Head};
use crate::protocol::record::RECORD_VERSION;
use norn_client::wire::{ClusterId, NodeId};

/// First bytes of every segment.
pub(crate) const MAGIC: [u8; 8] = *b"NORN-WAL";
/// Version of the header and of frames.
pub(crate) const FORMAT_VERSION: u16 = 1;
/// Bytes of a header.
pub(crate) const HEADER_BYTES: usize = 64;
/// Bytes asked of the disk at once.
pub(crate) const READ_BYTES: usize = 256 << 10;
/// Number of the highest segment whose name still sorts after all others.
const NUMBER_MAX: u64 = 9_999_999_999_999_999;
const SUFFIX: &str = ".log";

/// File name of a segment. Names sort as numbers do.
pub(crate) fn name(number: u64) -> String {
    assert!((1..=NUMBER_MAX).contains(&number), "segments count from 1 in 16 digits");
    format!("{number:016}{SUFFIX}")
}

/// Whether a file claims to be part of the log.
pub(crate) fn is_of_log(file: &str) -> bool {
    file.ends_with(SUFFIX)
}

/// Number of the segment with that file name.
pub(crate) fn number(file: &str) -> Option<u64> {
    let digits = file.strip_suffix(SUFFIX)?;
    if digits.len() != 16 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok().filter(|number| *number > 0)
}

/// What a segment says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    /// The cluster that the node belonged to when the segment was begun; zero if none yet.
    pub cluster: ClusterId,
    /// The node that wrote it.
    pub node: NodeId,
    /// Number in the file's name.
    pub segment: u64,
    /// Ordinal of the first record in it.
    pub first_ordinal: u64,
}

/// Why bytes are not a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeaderFault {
    /// Incomplete or damaged.
    Broken(&'static str),
    /// Written by a program that knows another format of segments.
    Format(u16),
    /// Whole, but written by a program that knows other records.
    Records(u16),
}

impl Header {
    /// The bytes.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&FORMAT_VERSION.to_be_bytes());
        bytes[10..12].copy_from_slice(&RECORD_VERSION.to_be_bytes());
        bytes[12..28].copy_from_slice(&self.cluster.to_bytes());
        bytes[28..44].copy_from_slice(&self.node.to_bytes());
        bytes[44..52].copy_from_slice(&self.segment.to_be_bytes());
        bytes[52..60].copy_from_slice(&self.first_ordinal.to_be_bytes());
        let checksum = crc32c::crc32c(&bytes[0..60]);
        bytes[60..64].copy_from_slice(&checksum.to_be_bytes());
        bytes
    }

    /// Reads the beginning of a file, which may be shorter than a header.
    pub fn decode(bytes: &[u8]) -> Result<Header, HeaderFault> {
        let magic = bytes.first_chunk() == Some(&MAGIC);
        // Where the checksum stands in another format is not known here, so this comes first. Version 0 never was;
        // zeroes are what a crash leaves.
        let format = if bytes.len() < 10 { 0 } else { u16::from_be_bytes(field(bytes, 8)) };
        if magic && format != 0 && format != FORMAT_VERSION {
            return Err(HeaderFault::Format(format));
        }
        if bytes.len() < HEADER_BYTES {
            return Err(HeaderFault::Broken("the segment's header is incomplete"));
        }
        if !magic {
            return Err(HeaderFault::Broken("this is not the beginning of a segment"));
        }
        if crc32c::crc32c(&bytes[0..60]) != u32::from_be_bytes(field(bytes, 60)) {
            return Err(HeaderFault::Broken("the checksum of the segment's header does not match"));
        }
        let records = u16::from_be_bytes(field(bytes, 10));
        if records != RECORD_VERSION {
            return Err(HeaderFault::Records(records));
        }
        Ok(Header {
            cluster: ClusterId::from_bytes(field(bytes, 12)),
            node: NodeId::from_bytes(field(bytes, 28)),
            segment: u64::from_be_bytes(field(bytes, 44)),
            first_ordinal: u64::from_be_bytes(field(bytes, 52)),
        })
    }
}

fn field<const N: usize>(bytes: &[u8], place: usize) -> [u8; N] {
    *bytes[place..].first_chunk().expect("the caller looked at the length")
}

/// Why no record is where one should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The file ends before the record does.
    Incomplete,
    /// No record is that long.
    Length(u32),
    /// Ordinal or body is not what was written.
    Checksum,
    /// A whole record, but not the one whose turn it is.
    Order(u64),
}

/// What comes next in a segment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next<'a> {
    /// The body of a whole record.
    Body(&'a [u8]),
    /// The file ends after a whole record, or before the first.
    End,
    /// Neither.
    Broken(Fault),
}

/// Reads the frames of one file in order, with no more than the largest record and one window in memory.
#[derive(Debug)]
pub(crate) struct Reader<'a, D> {
    disk: &'a D,
    file: &'a str,
    /// Of the file.
    length: u64,
    /// Place of the window in the file.
    start: u64,
    window: Vec<u8>,
    /// Bytes at the window's beginning that were given out.
    used: usize,
}

impl<'a, D: Disk> Reader<'a, D> {
    /// A reader of the frames behind the header.
    pub fn new(disk: &'a D, file: &'a str, length: u64) -> Reader<'a, D> {
        Reader { disk, file, length, start: HEADER_BYTES as u64, window: Vec::new(), used: 0 }
    }

    /// Where the next frame begins.
    pub fn offset(&self) -> u64 {
        self.start + self.used as u64
    }

    /// Reads the record `ordinal`. After anything but a body the reader stays where it is.
    pub fn next(&mut self, ordinal: u64) -> Result<Next<'_>, DiskError> {
        if self.offset() >= self.length {
            return Ok(Next::End);
        }
        if !self.have(HEAD_BYTES)? {
            return Ok(Next::Broken(Fault::Incomplete));
        }
        let head = Head::read(&field(&self.window, self.used));
        if !head.length_allowed() {
            return Ok(Next::Broken(Fault::Length(head.length)));
        }
        if !self.have(head.frame_bytes())? {
            return Ok(Next::Broken(Fault::Incomplete));
        }
        let body = self.used + HEAD_BYTES..self.used + head.frame_bytes();
        if !head.matches(&self.window[body.clone()]) {
            return Ok(Next::Broken(Fault::Checksum));
        }
        if head.ordinal != ordinal {
            return Ok(Next::Broken(Fault::Order(head.ordinal)));
        }
        self.used = body.end;
        Ok(Next::Body(&self.window[body]))
    }

    /// Brings `wanted` bytes from the offset on into the window; false if the file ends before.
    fn have(&mut self, wanted: usize) -> Result<bool, DiskError> {
        if self.window.len() - self.used >= wanted {
            return Ok(true);
        }
        if self.length - self.offset() < wanted as u64 {
            return Ok(false);
        }
        self.window.drain(..self.used);
        self.start += self.used as u64;
        self.used = 0;
        let from = self.start + self.window.len() as u64;
        let more = (wanted - self.window.len()).max(READ_BYTES).min((self.length - from) as usize);
        let bytes = self.disk.read(self.file, from, more)?;
        if bytes.len() != more {
            let cause = format!("{} bytes at {from} where there are {more}", bytes.len());
            return Err(DiskError { operation: "read", file: self.file.into(), cause: cause.into(), full: false });
        }
        if self.window.is_empty() {
            self.window = bytes;
        } else {
            self.window.extend_from_slice(&bytes);
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
