//! Reads the frames of one segment in order, past damage.

use super::ahead::find_space;
use super::disk::{Disk, DiskError};
use super::frame::{Fault, HEAD_BYTES, HEAD_STUFFED_BYTES_MAX, Head};
use super::stuffing::{SENTINEL, find_sentinel};

/// Bytes per disk read.
pub const READ_BYTES: usize = 256 << 10;

/// A whole record and its position.
#[derive(Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Offset of its sentinel.
    pub offset: u64,
    /// Bytes up to the end of its body.
    pub bytes: u64,
    /// Its head.
    pub head: Head,
    /// The body.
    pub body: &'a [u8],
}

/// Bytes that are not part of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damage {
    /// Where they begin.
    pub offset: u64,
    /// Where they end: at a sentinel, at the end of the file, or where the file's trailing zeroes begin.
    pub end: u64,
    /// The fault where they begin.
    pub fault: Fault,
}

/// Next item in a segment.
#[derive(Debug, PartialEq, Eq)]
pub enum Next<'a> {
    /// A whole record with any ordinal.
    Frame(Frame<'a>),
    /// Other bytes. The reader continues at the next sentinel after them.
    Damage(Damage),
    /// The end of the file, or only zeroes up to its end.
    End,
}

/// Reads the frames of one file in order, with no more than two of the largest records and one window in memory. Damage costs time in
/// proportion to its length, whatever bytes it has: nothing is decoded beyond the next sentinel.
#[derive(Debug)]
pub struct Reader<'a, D> {
    disk: &'a D,
    file: &'a str,
    /// Length of the file.
    length: u64,
    /// Offset of the window in the file.
    start: u64,
    window: Vec<u8>,
    /// Consumed bytes at the window's beginning.
    used: usize,
    /// Head and body of the last frame read.
    content: Vec<u8>,
    /// Start of the file's trailing zeroes, once looked up.
    space: Option<u64>,
    /// Reads bypass the page cache.
    cold: bool,
    /// Bytes read from the disk.
    read_bytes: u64,
}

/// Result of [`Reader::seek`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sought {
    /// Whether it reached a sentinel or the end of the file.
    pub there: bool,
    /// Whether all skipped bytes are zeroes.
    pub zeroes: bool,
}

impl<'a, D: Disk> Reader<'a, D> {
    /// A reader of the frames from `offset` to the end of a file.
    pub fn new(disk: &'a D, file: &'a str, offset: u64, length: u64) -> Reader<'a, D> {
        let (window, content) = (Vec::new(), Vec::new());
        Reader { disk, file, length, start: offset, window, used: 0, content, space: None, cold: false, read_bytes: 0 }
    }

    /// As [`Reader::new`], but reads bypass the page cache, to see what is on the disk itself.
    pub fn cold(disk: &'a D, file: &'a str, offset: u64, length: u64) -> Reader<'a, D> {
        Reader { cold: true, ..Reader::new(disk, file, offset, length) }
    }

    /// Bytes read from the disk so far.
    pub fn read_bytes(&self) -> u64 {
        self.read_bytes
    }

    /// Offset of the next item.
    pub fn offset(&self) -> u64 {
        self.start + self.used as u64
    }

    /// Reads the next item and advances past it.
    pub(crate) fn next(&mut self) -> Result<Next<'_>, DiskError> {
        let offset = self.offset();
        if offset >= self.length || self.is_space()? {
            return Ok(Next::End);
        }
        match self.read_frame()? {
            Ok((head, bytes)) => {
                self.used += bytes;
                let body = &self.content[HEAD_BYTES..];
                Ok(Next::Frame(Frame { offset, bytes: bytes as u64, head, body }))
            }
            Err(fault) => {
                let mut ahead = 1;
                while !self.seek(ahead)?.there {
                    ahead = 0;
                }
                assert!(self.offset() > offset, "every step leads on");
                let to_the_end = self.offset() == self.length;
                let end = if to_the_end { self.space(offset + 1)?.max(offset + 1) } else { self.offset() };
                Ok(Next::Damage(Damage { offset, end, fault }))
            }
        }
    }

    /// Reads the whole record at the offset, which must be before the end of the file, and advances past it. If none begins there,
    /// stays and returns the fault: unlike [`Reader::next`], this reads no more than a record and a window, whatever bytes are there.
    pub fn frame(&mut self) -> Result<Result<Frame<'_>, Fault>, DiskError> {
        let offset = self.offset();
        match self.read_frame()? {
            Ok((head, bytes)) => {
                self.used += bytes;
                Ok(Ok(Frame { offset, bytes: bytes as u64, head, body: &self.content[HEAD_BYTES..] }))
            }
            Err(fault) => Ok(Err(fault)),
        }
    }

    /// Whether a record begins at the offset that is in the window as a whole.
    pub fn has_next(&mut self) -> bool {
        let present = &self.window[self.used..];
        Head::read(present, &mut self.content).is_ok_and(|head| head.frame_bytes_max() < present.len())
    }

    /// Advances to the next sentinel at least `ahead` bytes on, or to the end of the file, but not beyond the current window, or the
    /// next one if the current one is used up.
    pub fn seek(&mut self, ahead: usize) -> Result<Sought, DiskError> {
        self.fill(ahead + SENTINEL.len())?;
        self.used += ahead;
        let rest = &self.window[self.used..];
        let found = find_sentinel(rest);
        let at_end = self.start + self.window.len() as u64 == self.length;
        // The last byte may be the first byte of a sentinel.
        let passed = found.unwrap_or(if at_end { rest.len() } else { rest.len() - 1 });
        let zeroes = rest[..passed].iter().all(|byte| *byte == 0);
        self.used += passed;
        Ok(Sought { there: found.is_some() || at_end, zeroes })
    }

    /// Whether there are only zeroes from the offset on.
    fn is_space(&mut self) -> Result<bool, DiskError> {
        self.fill(1)?;
        // The end of the file is looked up only at a zero byte, as no frame begins with one.
        Ok(self.window[self.used] == 0 && self.space(self.offset())? <= self.offset())
    }

    /// Start of the file's trailing zeroes, or `from` if the zeroes begin earlier. Later calls must not pass a lesser `from`.
    fn space(&mut self, from: u64) -> Result<u64, DiskError> {
        if let Some(space) = self.space {
            return Ok(space);
        }
        let space = find_space(self.disk, self.file, from, self.length)?;
        self.space = Some(space);
        Ok(space)
    }

    /// Reads the frame at the offset. Returns its head and its bytes.
    fn read_frame(&mut self) -> Result<Result<(Head, usize), Fault>, DiskError> {
        let (head, end) = match self.read_up_to_sentinel(0)? {
            Err((fault, None)) => return Ok(Err(fault)),
            Ok(found) => return Ok(Ok(found)),
            Err((_, Some(found))) => found,
        };
        // The last byte of this frame is also the first byte of that sentinel: either damage right after the frame looks like the
        // rest of a sentinel, or a byte is missing between two frames. The fingerprint shows that the frame is whole; the byte may
        // count for both.
        let shared = self.read_up_to_sentinel(end)?.is_ok();
        let bytes = &self.window[self.used..][..end + 1];
        let whole = head.read_whole(bytes, &mut self.content).map_err(|_| Fault::Incomplete);
        Ok(whole.map(|length| (head, length - usize::from(shared))))
    }

    /// Reads the frame `ahead` bytes after the offset, if it ends before the next sentinel begins. If a sentinel cuts it short, the
    /// error has its head and the sentinel's position.
    #[expect(clippy::type_complexity, reason = "used by the function above alone")]
    fn read_up_to_sentinel(
        &mut self,
        ahead: usize,
    ) -> Result<Result<(Head, usize), (Fault, Option<(Head, usize)>)>, DiskError> {
        self.fill(ahead + HEAD_STUFFED_BYTES_MAX)?;
        let head = match Head::read(&self.window[self.used + ahead..], &mut self.content) {
            Ok(head) => head,
            Err(fault) => return Ok(Err((fault, None))),
        };
        // One byte more than the frame can have: a frame that lost its last byte must not take half of the next one's sentinel.
        let wanted = head.frame_bytes_max() + 1;
        self.fill(ahead + wanted)?;
        let bytes = &self.window[self.used + ahead..];
        let bytes = &bytes[..bytes.len().min(wanted)];
        // The frame ends at the next sentinel at the latest; otherwise a wrong length field could claim bytes of later frames.
        let sentinel = find_sentinel(&bytes[SENTINEL.len()..]).map(|place| place + SENTINEL.len());
        let whole = head.read_whole(&bytes[..sentinel.unwrap_or(bytes.len())], &mut self.content);
        Ok(match (whole, sentinel) {
            (Ok(length), _) => Ok((head, length)),
            (Err(Fault::Incomplete), Some(end)) => Err((Fault::Incomplete, Some((head, end)))),
            (Err(fault), _) => Err((fault, None)),
        })
    }

    /// Reads into the window until it has `wanted` bytes from the offset on, or all that are left. Returns how many it has.
    fn fill(&mut self, wanted: usize) -> Result<usize, DiskError> {
        let present = self.window.len() - self.used;
        let remaining = self.length - self.offset();
        if present >= wanted || present as u64 == remaining {
            return Ok(present);
        }
        self.window.drain(..self.used);
        self.start += self.used as u64;
        self.used = 0;
        let from = self.start + present as u64;
        let more = ((wanted - present).max(READ_BYTES) as u64).min(self.length - from) as usize;
        if self.cold {
            self.disk.forget(self.file, from, more);
        }
        let bytes = self.disk.read(self.file, from, more)?;
        if bytes.len() != more {
            let cause = format!("{} bytes at {from} where there are {more}", bytes.len()).into();
            return Err(DiskError { operation: "read", file: self.file.into(), cause, full: false, lost: true });
        }
        self.read_bytes += more as u64;
        if self.window.is_empty() {
            self.window = bytes;
        } else {
            self.window.extend_from_slice(&bytes);
        }
        Ok(self.window.len())
    }
}

#[cfg(test)]
mod tests;
