//! The claim table of a partition, and the operations that change it.

pub mod entry;
mod hashes;
pub mod ledger;
pub mod levels;
pub mod operation;
pub mod table;
