//! Making replicas agree: Merkle anti-entropy, and hinted handoff.

pub mod exchange;
pub mod hints;
