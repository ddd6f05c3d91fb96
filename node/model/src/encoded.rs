//! Values encoded to be hashed. Most are short, and are hashed for each change of a task: those need no allocation.

use serde::Serialize;
use std::io::{self, Write};

/// Bytes for which no allocation is needed.
const SHORT_BYTES: usize = 512;

/// The encoding of one value, with what stands before it.
pub(crate) struct Encoded {
    short: [u8; SHORT_BYTES],
    short_bytes: usize,
    /// All of it, if it is longer.
    long: Vec<u8>,
}

impl Encoded {
    /// Encodes a value as in messages and records.
    pub(crate) fn of(before: &[&[u8]], value: &impl Serialize) -> Encoded {
        let mut encoded = Encoded { short: [0; SHORT_BYTES], short_bytes: 0, long: Vec::new() };
        before.iter().for_each(|bytes| encoded.put(bytes));
        value.serialize(&mut rmp_serde::Serializer::new(&mut encoded)).expect("what is hashed always encodes");
        encoded
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        if self.long.is_empty() { &self.short[..self.short_bytes] } else { &self.long }
    }

    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        let end = self.short_bytes + bytes.len();
        if !self.long.is_empty() {
            self.long.extend_from_slice(bytes);
        } else if end <= SHORT_BYTES {
            self.short[self.short_bytes..end].copy_from_slice(bytes);
            self.short_bytes = end;
        } else {
            self.lengthen(bytes);
        }
    }

    #[cold]
    fn lengthen(&mut self, bytes: &[u8]) {
        self.long.reserve(8 * SHORT_BYTES + bytes.len());
        self.long.extend_from_slice(&self.short[..self.short_bytes]);
        self.long.extend_from_slice(bytes);
    }
}

impl Write for Encoded {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.put(bytes);
        Ok(bytes.len())
    }

    #[inline]
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.put(bytes);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_hashed_is_what_a_record_has_whatever_its_length() {
        for length in (0..40).chain(SHORT_BYTES - 20..SHORT_BYTES + 20).chain([5_000]) {
            for parts in [1, 7] {
                let value = (vec![vec![7_u8; length / parts]; parts], "text", length);
                let mut expected = b"before".to_vec();
                value.serialize(&mut rmp_serde::Serializer::new(&mut expected)).unwrap();
                assert_eq!(Encoded::of(&[b"be", b"fore"], &value).bytes(), expected, "{parts} parts of {length}");
            }
        }
    }
}
