//! The state of a node, as data and pure functions: no `Node`, no messages sent, no clock, file or socket.
//!
//! The engine (`norn-engine`) changes this state as messages, requests and timers arrive; the log (`norn-storage`) keeps
//! [`record::Record`]s; the simulator's properties read it. Nothing here knows any of them.
//!
//! - Tasks: [`task`] (the CRDT and its merge), [`schedules`], [`time`].
//! - Placement: [`ring`], [`metadata`] (members, layout, queue policies: the metadata of the cluster).
//! - Consensus: [`viewstamp`], [`rules`] (votes, acknowledgements, quorums), [`cohort`] (members of a partition and their joint
//!   changes), [`data_loss`] (what a replica has lost), [`claim_table`] (claims and the operations on them),
//!   [`consensus`] (what a replica holds of them).
//! - A partition's replica: [`replica`] (store, index, Merkle tree), [`clocks`].
//! - Many small things in order: [`sorted`]. What is hashed: [`encoded`].
//! - What leaves a node: [`message`] (between nodes), [`record`] (to the log), [`snapshot`]; [`host`] is what the host measures.

// The documented surface is the client library's; here a comment says what a name does not.
#![allow(missing_docs, rustdoc::private_intra_doc_links)]
// A known bug is `false` where none can be put back.
#![cfg_attr(not(feature = "mutants"), allow(clippy::nonminimal_bool, clippy::eq_op, clippy::overly_complex_bool_expr))]

pub mod claim_table;
pub mod clocks;
pub mod cohort;
pub mod config;
pub mod consensus;
pub mod data_loss;
mod encoded;
pub mod host;
pub mod limits;
pub mod message;
pub mod metadata;
pub mod record;
pub mod replica;
pub mod ring;
pub mod rules;
pub mod schedules;
pub mod snapshot;
pub mod sorted;
pub mod task;
pub mod time;
pub mod viewstamp;
