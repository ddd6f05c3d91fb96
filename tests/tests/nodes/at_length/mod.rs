//! The longest tests. Tests start in the order of their names, so these start early and do not run alone at the end.

mod moves;
mod scenes;
mod sessions;
