//! Tests without processes, sockets or clocks: the simulator with its planted bugs, scenes and seeds, and rules over the sources.
//!
//! These only compute. Tests that need real nodes are in `nodes`, and those that limit the memory of their whole process in `fuzz`.

mod asserts;
mod calls;
mod documents;
mod layout;
mod messages;
mod owners;
mod pieces;
mod planted;
mod plants;
mod rows;
mod scenes;
mod seeds;
mod state;
mod swarm;
mod tidy;
mod trust;
