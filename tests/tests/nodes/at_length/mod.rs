//! Tests that take longest. Tests begin in the order of their names, so these do among the first, and do not go on alone at the end.

mod scenes;
mod sessions;
