//! The write-ahead log: records and bytes, never the network.
//!
//! One log per node, shared by all its partitions: a sequence of segments `0000000000000001.log`, `...2.log` and so
//! on in one flat directory, each a header and then frames with one record each. All numbers are big-endian.
//!
//! ```text
//! segment header, 64 bytes
//! 0         8         10        12         28      44        52              60       64
//! | NORN-WAL | format  | records | cluster  | node  | segment | first ordinal | crc32c |
//!
//! frame, stuffed behind the sentinel
//! 0       2             6         14       18
//! | FE FD | fingerprint | ordinal | length | body ...
//! ```
//!
//! The fingerprint is a CRC32C over all that follows it. What follows the sentinel is stuffed (`stuffing.rs`), so that
//! the sentinel stands nowhere but where a frame begins: a reader that meets damage goes on at the next one, finds every
//! whole record behind it, and knows from their ordinals which are missing. A repeated record is passed over if it is the
//! same; another one under the same ordinal is a conflict of two writers.
//!
//! Ordinals count records from 1, through all segments, without gap or repeat. What the log promises:
//! - Whatever was appended before a [`log::Log::sync`] that returned `Ok` is read back after any crash.
//! - What is read back is a prefix of what was appended.
//! - After a failed write or sync nothing is written any more: the log is poisoned and its node must stop.
//! - Only the end of the last segment can be torn by a crash, so only that is ever cut. Damage anywhere else is
//!   refused, with a message that says what to do.
//!
//! What it does not promise: damage to the very last record of the log looks like a torn write and is cut with it, and
//! records cut off at a record's boundary are not missed. Both need a second copy of the heads, or a peer that
//! remembers.

pub mod disk;
mod frame;
pub mod log;
mod reader;
pub mod recovery;
mod segment;
mod sequence;
mod stuffing;

#[cfg(test)]
mod double;

pub use log::{Identity, Log, LogConfig, LogError, Stats};
pub use recovery::{OpenError, Replayed};
