//! The write-ahead log: records and bytes on disk. Does no networking.
//!
//! One log per node, shared by all its partitions: a sequence of segments `0000000000000001.log`, `...2.log` and so
//! on in one flat directory, each a header and then frames with one record each. All numbers are big-endian.
//!
//! ```text
//! segment header, 512 bytes
//! 0         8         10        12         28      44        52              60      64   508     512
//! | NORN-WAL | format  | records | cluster  | node  | segment | first ordinal | slots | 0 | crc32c |
//!
//! then slots, 32 bytes each, one for each record
//! 0         8        12      16            20         24          26     27  28      32
//! | ordinal | offset | bytes | fingerprint | unsynced | partition | kind | 0 | crc32c |
//!
//! then frames, stuffed behind the sentinel
//! 0       2             6         14         18       22
//! | FE FD | fingerprint | ordinal | unsynced | length | body ...
//! ```
//!
//! The fingerprint is a CRC32C over all bytes after it. Everything after the sentinel is stuffed (`stuffing.rs`), so the sentinel
//! occurs only where a frame begins. A reader that meets damage continues at the next sentinel, finds every whole record after it,
//! and knows from the ordinals which records are missing. A repeated record is skipped if it is identical; a different record under
//! the same ordinal is a conflict of two writers.
//!
//! Frames and their slots are two writes and one sync. `unsynced` counts the records, up to and including this one, that were not yet
//! durable when it was written; all records before those were durable. So a missing record is either known to have been durable, and
//! then its slot names its owner, or its sync may not have finished.
//!
//! After the heads and the frames there may be zeroes, so that later writes find their blocks allocated (`ahead.rs`). Zeroes up to
//! the end of a file are preallocated space, not damage.
//!
//! Ordinals count records from 1, through all segments, without gap. The log guarantees:
//! - Whatever was appended before a [`log::Log::sync`] that returned `Ok` is read back after any crash.
//! - The records read back are a prefix of those appended, except for records that the disk has lost; a lost record is reported in
//!   its place.
//! - After a failed write or sync the log writes nothing more: it is poisoned and its node must stop.
//! - A crash can tear only the end of the last segment, so only that end is ever cut.
//!
//! A snapshot `0000000000000007.snapshot` replaces all segments before number 7. It has the same header with another magic and
//! without slots, and then the same frames with ordinals of its own.
//!
//! Each segment but the first begins with all promises of the node (`promises.rs`). So a segment in the middle may be lost as a
//! whole, or even be gone: the ordinals around it show which records are lost, and the promises, which no other replica can supply,
//! are repeated.
//!
//! Not guaranteed: damage to the last batch before a crash looks like a torn write and is cut with it (`recovery.rs` explains why),
//! and a last segment that was taken away goes unnoticed. Detecting either takes a peer that remembers this log, and such peers exist
//! (`norn_engine::membership::stale_image`).

// The documented surface is the client library's; here a comment says what a name does not.
#![allow(missing_docs, rustdoc::private_intra_doc_links)]
// Without the mutants feature, each planted bug is the constant `false`.
#![cfg_attr(not(feature = "mutants"), allow(clippy::nonminimal_bool, clippy::eq_op, clippy::overly_complex_bool_expr))]

pub mod ahead;
pub mod disk;
pub mod disk_latency;
pub mod examine;
pub mod frame;
pub mod log;
pub mod places;
pub mod policy;
pub mod promises;
pub mod reader;
pub mod recovery;
pub mod repair;
pub mod scrub;
pub mod segment;
pub mod sequence;
pub mod slot;
pub mod snapshot;
pub mod space;
pub mod stuffing;
pub mod verify;

#[cfg(any(test, feature = "double"))]
pub mod double;

pub use disk::DiskError;
pub use examine::Loss;
pub use log::{Identity, Log, LogConfig, LogError, Saved, Stats, Upkeep};
pub use places::{Recent, read_bodies};
pub use policy::{NoSyncPolicy, SyncPolicy};
pub use recovery::WITHOUT_A_COPY;
pub use recovery::{OpenError, Replay, Replayed};
pub use segment::name as segment_name;
pub use segment::{MAGIC_BYTES, belongs_to_log};
pub use slot::Owner;
pub use snapshot::SnapshotError;
pub use space::{RESERVE, Shortage};
