//! Views of a node, for people and for checkers.

pub mod inspect;
pub mod status;
