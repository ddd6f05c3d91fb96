//! Addresses of nodes.

use std::fmt;

/// Where a node is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// A name, or an IP address without brackets; also the name that the node's certificate must bear.
    pub host: String,
    /// Not 0.
    pub port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(formatter, "[{}]:{}", self.host, self.port)
        } else {
            write!(formatter, "{}:{}", self.host, self.port)
        }
    }
}

/// Reads `HOST:PORT`; an IPv6 address stands in brackets.
pub fn parse_address(text: &str) -> Option<Address> {
    let (host, port) = text.rsplit_once(':')?;
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let host = match bare {
        Some(host) => host,
        None if host.contains(':') => return None,
        None => host,
    };
    let port = port.parse().ok().filter(|port| *port != 0)?;
    (!host.is_empty()).then(|| Address { host: host.to_owned(), port })
}
