//! Why a log is not opened.

use super::super::disk::DiskError;
use super::super::examine::Loss;

/// Advice where no copy of a file is left. A node started on an empty directory would be a different node.
pub const WITHOUT_A_COPY: &str = "without one, see what `norn log repair` can do; if it refuses, keep the data \
     directory and leave this node stopped: its partitions go on with their replicas on other nodes, and `norn cluster \
     replace` puts a new node in its place";

/// Why a log is not opened. All whole records are left where they were.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The disk failed.
    #[error("the log cannot be read or mended: {0}; see to the disk, then start the node again")]
    Disk(#[from] DiskError),
    /// Bytes differ from what was written, in a way that a crash does not cause.
    #[error(
        "{file} at byte {offset}: {known}; {loss}; what was already acknowledged may be damaged: restore the file from \
         a copy; {WITHOUT_A_COPY}"
    )]
    Damaged {
        /// The segment.
        file: String,
        /// Where the damage begins.
        offset: u64,
        /// Description of the damage.
        known: String,
        /// What is lost in this segment.
        loss: Loss,
    },
    /// A segment is missing, or a file has the name of one and is none.
    #[error(
        "{file}: {known}; put back the files that are missing and take away those that do not belong here, from a copy of \
         the data directory; {WITHOUT_A_COPY}"
    )]
    Names {
        /// The file that breaks the sequence.
        file: String,
        /// The expected file.
        known: String,
    },
    /// A segment of another node, another cluster or another place in the log.
    #[error(
        "{file} at byte 0: the header is whole, but {known}; it was copied from elsewhere: restore the right file from \
         a copy; {WITHOUT_A_COPY}"
    )]
    Foreign {
        /// The segment.
        file: String,
        /// The mismatch.
        known: String,
    },
    /// Written by another version of the program.
    #[error("{file} at byte {offset}: {known}; start the version of norn that wrote it")]
    Version {
        /// The segment.
        file: String,
        /// Offset in the file.
        offset: u64,
        /// The versions found and known.
        known: String,
    },
    /// The node did not accept a whole record.
    #[error(
        "{file} at byte {offset}: record {ordinal} is whole, but the node refuses it: {cause}; keep the data directory, \
         never start an older copy of it in its place, and leave this node stopped: its partitions go on with their replicas on \
         other nodes, and `norn cluster replace` puts a new node in its place"
    )]
    Refused {
        /// The segment.
        file: String,
        /// Where its frame begins.
        offset: u64,
        /// Ordinal of the record.
        ordinal: u64,
        /// The node's reason.
        cause: String,
    },
}
