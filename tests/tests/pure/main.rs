//! Tests without processes, sockets or clocks: the simulator with its planted bugs, scenes and seeds, and rules over the sources.
//!
//! All of these compute. What needs real nodes is in `nodes`, and what bounds the memory of its whole process in `fuzz`.

mod documents;
mod layout;
mod pieces;
mod planted;
mod scenes;
mod seeds;
mod swarm;
mod tidy;
