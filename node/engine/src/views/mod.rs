//! Views of a node, for people and for checkers.

pub mod inspect;
pub mod measures;
pub mod status;
