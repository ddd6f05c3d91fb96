//! Tests of the operations before a scripted node.

mod behaviour;
mod exchange;
mod promises;
mod rest;
mod schema;
mod tasks;
mod walks;
