//! The only place with tokio, quinn, files and clocks.
