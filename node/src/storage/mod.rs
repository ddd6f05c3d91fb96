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
//! frame
//! 0        4        8         16
//! | length | crc32c | ordinal | body ...
//! ```
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
pub mod recovery;
mod segment;

#[cfg(test)]
mod double;

pub use log::{Identity, Log, LogConfig, LogError, Stats};
pub use recovery::{OpenError, Replayed};
