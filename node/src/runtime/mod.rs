//! The only place with tokio, quinn, files and clocks.

pub mod disk;
