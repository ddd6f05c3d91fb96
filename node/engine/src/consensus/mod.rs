//! The consistent half: elections, epochs, and the table of claims of each partition.
//!
//! Viewstamped state: a leader elected for an epoch installs its table on a majority, then streams operations. The
//! highest viewstamp in a vote quorum contains every committed operation; that is the whole recovery rule.

pub mod ages;
pub mod election;
pub mod healing;
pub mod leaders;
pub mod reconfigure;
pub mod replication;
pub mod rescue;
pub mod seat;

use norn_wire::error::{Error, ErrorCode, Retry};

/// Error for a decision that is made but not written yet. Full disks or full memory last, so the client gets `Unknown`. In all
/// other cases the code is `Unavailable`: a retry soon succeeds, and nodes retry by themselves.
pub(crate) fn unwritten(error: &Error, what: &str) -> Error {
    let lasts = error.code.is_full() || error.code == ErrorCode::Unknown && error.retry == Retry::Later;
    let code = if lasts { ErrorCode::Unknown } else { ErrorCode::Unavailable };
    Error { retry: Retry::Later, ..Error::new(code, format!("{what}: {}", error.message)) }
}
