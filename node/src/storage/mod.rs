//! The write-ahead log: records and bytes, never the network.

pub mod disk;
