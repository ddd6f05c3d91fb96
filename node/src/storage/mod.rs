//! The write-ahead log: records and bytes, never the network.
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
//! The fingerprint is a CRC32C over all that follows it. What follows the sentinel is stuffed (`stuffing.rs`), so that
//! the sentinel stands nowhere but where a frame begins: a reader that meets damage goes on at the next one, finds every
//! whole record behind it, and knows from their ordinals which are missing. A repeated record is passed over if it is the
//! same; another one under the same ordinal is a conflict of two writers.
//!
//! Frames and their slots are two writes and one sync. `unsynced` says how many records up to and with this one were not
//! yet durable when it was written: of all before them a reader knows that they were. So a record that is missing is
//! either known to have been durable, and then its slot says whose it was; or its sync may not have ended.
//!
//! Behind the heads and the frames there may be zeroes, so that later writes find their blocks (`ahead.rs`). Zeroes up to
//! the end of a file are space, not damage.
//!
//! Ordinals count records from 1, through all segments, without gap. What the log promises:
//! - Whatever was appended before a [`log::Log::sync`] that returned `Ok` is read back after any crash.
//! - What is read back is a prefix of what was appended, but for what the disk has lost; that is told in its place.
//! - After a failed write or sync nothing is written any more: the log is poisoned and its node must stop.
//! - Only the end of the last segment can be torn by a crash, so only that is ever cut.
//!
//! A snapshot `0000000000000007.snapshot` stands for all segments before number 7. It has the same header with another
//! magic and without slots, and then the same frames with ordinals of its own.
//!
//! Each segment but the first begins with all promises of the node (`promises.rs`). So a segment in the middle may be lost as
//! a whole, and even be gone: the ordinals around it say what is lost, and what cannot be had from elsewhere is there again.
//!
//! What it does not promise: damage to the last batch before a crash looks like a torn write and is cut with it
//! (`recovery.rs` says why), and a last segment that was taken away is not missed. Both need a peer that remembers, and have it
//! (`protocol::membership::copy`).

mod ahead;
pub mod disk;
mod examine;
mod frame;
pub mod log;
mod places;
mod policy;
mod promises;
mod reader;
pub mod recovery;
pub mod repair;
pub mod scrub;
mod segment;
mod sequence;
mod slot;
mod snapshot;
mod space;
mod stuffing;
pub mod verify;

#[cfg(test)]
pub(crate) mod double;

pub use disk::DiskError;
pub use examine::Loss;
pub use log::{Identity, Log, LogConfig, LogError, Saved, Stats, Upkeep};
pub use places::{Recent, read_bodies};
pub use policy::{NoSyncPolicy, SyncPolicy};
pub use recovery::WITHOUT_A_COPY;
pub use recovery::{OpenError, Replay, Replayed};
pub(crate) use segment::name as segment_name;
pub use segment::{MAGIC_BYTES, belongs_to_log};
pub use slot::Owner;
pub use snapshot::SnapshotError;
pub use space::{RESERVE, RESERVES_FREE, Shortage};
