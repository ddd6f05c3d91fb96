//! Doors of a node: how programs that do not speak Norn's protocol reach it.
//!
//! ```text
//! TCP, TLS -> listen -> guard (timeouts) -> router -> auth -> api, health, ... -> gate -> client session -> node
//! ```
//! A door keeps nothing but caches. It turns bytes into calls of a client of its own node, and answers into bytes; the [`gate`] makes
//! those clients. What a door does not support it refuses.
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "sockets and clocks belong here; the bans are the core's"
)]
#![allow(clippy::result_large_err, reason = "a problem document is made once, for an answer that is larger by far")]

pub mod access;
mod answer;
mod api;
mod body;
mod caller;
mod cross;
pub mod gate;
mod guard;
mod handover;
mod health;
mod listen;
pub mod metrics;
mod openapi;
mod page;
mod pages;
mod problem;
mod request;
mod sent;
mod skuld;
mod sse;
pub mod state;
mod taskstore;
#[cfg(test)]
mod testing;

pub use access::{Access, PrincipalOf};
pub use listen::{Doors, ListenError, PROTOCOLS, Tls};
pub use request::router;
pub use state::{Bounds, CLOSE_TIME_MAX, Host, Phase, State};
