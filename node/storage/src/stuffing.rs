//! Byte stuffing: encodes any bytes so that the sentinel does not occur in them.
//!
//! The content is cut at every sentinel in it. Each run between two cuts is preceded by its length: one digit before the first run,
//! two before every later one, the lower digit first. A run that is shorter than the longest possible one is followed by a sentinel,
//! unless the content ends there; a longest one is not. Digits go up to 252, so no digit is a byte of the sentinel, and no sentinel
//! can arise where digits and runs meet. The cost is one byte, and two more for every 64,008 bytes after the first 252.

use memchr::memmem::Finder;
use std::sync::LazyLock;

/// Marker of a frame's beginning. It occurs nowhere in stuffed bytes.
pub const SENTINEL: [u8; 2] = [0xfe, 0xfd];
const RADIX: usize = 253;
/// Length of the longest first run.
const FIRST_RUN_MAX: usize = RADIX - 1;
/// Length of the longest later run.
const LATER_RUN_MAX: usize = RADIX * RADIX - 1;

const _: () = assert!(RADIX <= SENTINEL[1] as usize && RADIX <= SENTINEL[0] as usize, "no digit is of the sentinel");

static FINDER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(&SENTINEL));

/// Offset of the first sentinel in `bytes`.
pub fn find_sentinel(bytes: &[u8]) -> Option<usize> {
    FINDER.find(bytes)
}

/// Most bytes that content of this length can take.
pub const fn stuffed_bytes_max(length: usize) -> usize {
    1 + length + 2 * (1 + length.saturating_sub(FIRST_RUN_MAX) / LATER_RUN_MAX)
}

/// Appends `content` to `out`, stuffed.
pub fn stuff(content: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    let mut rest = content;
    let mut run_max = FIRST_RUN_MAX;
    // One search serves all runs of the longest kind before the sentinel.
    let mut sentinel = find_sentinel(rest);
    loop {
        let run = sentinel.unwrap_or(rest.len()).min(run_max);
        if run_max == FIRST_RUN_MAX {
            out.push(run as u8);
        } else {
            out.extend_from_slice(&[(run % RADIX) as u8, (run / RADIX) as u8]);
        }
        out.extend_from_slice(&rest[..run]);
        let passed = if run < run_max { (run + SENTINEL.len()).min(rest.len()) } else { run };
        rest = &rest[passed..];
        if rest.is_empty() {
            break;
        }
        sentinel = if run < run_max { find_sentinel(rest) } else { sentinel.map(|place| place - run) };
        run_max = LATER_RUN_MAX;
    }
    assert!(out.len() - start <= stuffed_bytes_max(content.len()));
}

/// Why bytes cannot be unstuffed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unstuffable {
    /// They end too early.
    Short,
    /// A byte is not a digit where one should be.
    Digit,
}

/// Progress of unstuffing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unstuffed {
    /// Stuffed bytes consumed.
    pub bytes: usize,
    /// Nothing is left of the last run: the content may end there.
    pub ended: bool,
}

/// Decodes the beginning of `bytes` into at least `wanted` bytes of content. There is one byte too many if the wanted bytes end
/// inside a sentinel.
pub fn unstuff(bytes: &[u8], wanted: usize, content: &mut Vec<u8>) -> Result<Unstuffed, Unstuffable> {
    content.clear();
    let mut place = 1;
    let mut run = digit(bytes, 0)?;
    let mut run_max = FIRST_RUN_MAX;
    loop {
        let taken = run.min(wanted - content.len());
        let literal = bytes.get(place..place + taken).ok_or(Unstuffable::Short)?;
        content.extend_from_slice(literal);
        place += taken;
        if content.len() == wanted {
            return Ok(Unstuffed { bytes: place, ended: taken == run });
        }
        if run < run_max {
            content.extend_from_slice(&SENTINEL);
        }
        if content.len() >= wanted {
            return Ok(Unstuffed { bytes: place, ended: true });
        }
        run = digit(bytes, place)? + RADIX * digit(bytes, place + 1)?;
        run_max = LATER_RUN_MAX;
        place += 2;
    }
}

fn digit(bytes: &[u8], place: usize) -> Result<usize, Unstuffable> {
    match bytes.get(place) {
        None => Err(Unstuffable::Short),
        Some(byte) if usize::from(*byte) < RADIX => Ok(usize::from(*byte)),
        Some(_) => Err(Unstuffable::Digit),
    }
}

#[cfg(test)]
mod tests;
