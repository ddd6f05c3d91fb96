//! Addresses of nodes.

use std::fmt;

/// Network address of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Host name, or IP address without brackets. The node's certificate must bear the same name.
    pub host: String,
    /// Port, never 0.
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

/// Parses `HOST:PORT`; an IPv6 address stands in brackets.
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
