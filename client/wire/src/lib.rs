//! The public wire: identifiers, requests, responses, errors, frames and limits. It also has the seeded random generator that several
//! crates share.
//!
//! Bodies of client frames are MessagePack with named fields, so that either side may know fields that the other does not. Frame headers
//! are fixed and numeric.

pub mod address;
pub mod codec;
pub mod error;
pub mod facts;
pub mod group;
pub mod headers;
pub mod ids;
pub mod invitation;
pub mod limits;
pub mod membership;
pub mod random;
pub mod request;
pub mod response;
pub mod schedule;
#[cfg(feature = "schema")]
mod schema;
pub mod text_id;
pub mod transaction;
pub mod validate;
pub mod version;
pub mod watch;

pub use error::{Cause, Error, ErrorCode, Retry};
pub use ids::{ClaimId, ClusterId, NodeId, PartitionId, QueueName, TaskId, TaskVersion, Token};
pub use request::{Acks, Claim, Completion, NewTask, Request, SESSIONS_QUEUE, Spec};
pub use response::{Acked, Granted, Guarantee, Response, State, TaskView};
pub use text_id::TextId;
pub use transaction::Transaction;
pub use version::Versions;
pub use watch::{Subject, WatchCursor, WatchEvent, Watched};
