//! Who a request is from, and whether it is let in.
//!
//! - Over TLS a client is who its certificate names, as over QUIC. Without one it may ask for the node's health alone.
//! - Plain text comes from this machine, or from a proxy that the operator names; such a request has the name of the door.
//! - Web pages of other sites cannot use the door of a machine through a browser on it: the `Host` of plain text must be an address or
//!   `localhost` (against DNS rebinding), and an `Origin` must be this door's own or one that the operator allows.

use crate::problem::Problem;
use crate::state::State;
use axum::extract::{FromRequestParts, Request, State as Shared};
use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use norn_wire::{Error, ErrorCode, Retry};
use rustls::pki_types::CertificateDer;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Name of requests in plain text from this machine.
pub const LOOPBACK: &str = "http";
/// Name of requests through a proxy.
pub const PROXY: &str = "http-proxy";
/// Paths that are open to all, under any load: a balancer has no certificate.
pub const OPEN: [&str; 3] = ["/livez", "/readyz", "/startupz"];

/// Returns the name in a client's certificate, or why it has none.
pub type PrincipalOf = fn(&CertificateDer<'_>) -> Result<String, String>;

/// Who is let in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Access {
    /// Proxies that may send plain text from other machines. Requests from these are trusted.
    pub proxies: Vec<IpAddr>,
    /// Origins whose web pages may use the door, as `https://host:port`.
    pub origins: Vec<String>,
}

/// The other side of a connection.
#[derive(Debug, Clone)]
pub struct Peer {
    /// Its address.
    pub address: SocketAddr,
    /// Whether it sends plain text.
    pub plain: bool,
    /// Its name, or why it has none.
    pub name: Result<Arc<str>, Arc<str>>,
}

impl Peer {
    /// A peer that sends plain text. `None`: this one may not.
    pub fn plain(access: &Access, address: SocketAddr) -> Option<Peer> {
        let ip = address.ip().to_canonical();
        let name = match ip {
            ip if access.proxies.contains(&ip) => PROXY,
            ip if ip.is_loopback() => LOOPBACK,
            _ => return None,
        };
        Some(Peer { address, plain: true, name: Ok(name.into()) })
    }

    /// A peer over TLS, with the certificate that it has shown and that was verified.
    pub fn tls(principal_of: PrincipalOf, address: SocketAddr, certificate: Option<&CertificateDer<'_>>) -> Peer {
        let name = match certificate {
            Some(certificate) => principal_of(certificate).map(Arc::from).map_err(Arc::from),
            None => Err("show a client's certificate of the cluster (made by `norn cert client NAME`)".into()),
        };
        Peer { address, plain: false, name }
    }
}

/// The name on whose behalf a request is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal(pub Arc<str>);

impl<S: Sync> FromRequestParts<S> for Principal {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let found = parts.extensions.get::<Principal>().cloned();
        found.ok_or_else(|| unauthenticated("the request has no name"))
    }
}

fn unauthenticated(why: &str) -> Problem {
    Problem::new(StatusCode::UNAUTHORIZED, "unauthenticated", Retry::Never, why)
}

fn denied(why: impl Into<String>) -> Problem {
    Error::new(ErrorCode::Denied, why).into()
}

/// Lets a request in, with the name of its sender.
pub async fn admit(Shared(state): Shared<Arc<State>>, mut request: Request, next: Next) -> Result<Response, Problem> {
    let peer = request.extensions().get::<Peer>().cloned().ok_or_else(|| unauthenticated("the peer is not known"))?;
    let host = host_of(&request);
    if peer.plain && !state.access.proxies.contains(&peer.address.ip().to_canonical()) {
        check_host(host.as_deref())?;
    }
    check_origin(&state.access, request.headers(), host.as_deref(), peer.plain)?;
    match peer.name {
        Ok(name) => {
            request.extensions_mut().insert(Principal(name));
        }
        Err(_) if OPEN.contains(&request.uri().path()) => {}
        Err(why) => return Err(unauthenticated(&why)),
    }
    Ok(next.run(request).await)
}

/// Name and port that the sender asked for: of the request line over HTTP/2, else of the header.
fn host_of(request: &Request) -> Option<String> {
    if let Some(authority) = request.uri().authority() {
        return Some(authority.as_str().to_owned());
    }
    request.headers().get(header::HOST).and_then(|host| host.to_str().ok()).map(str::to_owned)
}

/// Refuses names, which another site may have made point at this machine.
fn check_host(host: Option<&str>) -> Result<(), Problem> {
    let authority = host.and_then(|host| host.parse::<Authority>().ok());
    let name = authority.as_ref().map(|authority| authority.host().trim_matches(['[', ']']));
    match name {
        Some(name) if name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok() => Ok(()),
        _ => Err(denied("without TLS, name this machine by its address or as localhost")),
    }
}

/// Refuses web pages of other sites.
fn check_origin(access: &Access, headers: &HeaderMap, host: Option<&str>, plain: bool) -> Result<(), Problem> {
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let origin = origin.to_str().unwrap_or_default();
    let scheme = if plain { "http" } else { "https" };
    let is_own = host.is_some_and(|host| origin.eq_ignore_ascii_case(&format!("{scheme}://{host}")));
    if is_own || access.origins.iter().any(|allowed| allowed == origin) {
        return Ok(());
    }
    Err(denied(format!("web pages of {origin:?} may not use this node; the setting `http_origins` allows them")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    #[test]
    fn names_of_other_sites_are_refused_and_addresses_are_not() {
        for host in ["localhost", "localhost:7500", "127.0.0.1:7500", "[::1]:7500", "10.0.0.7"] {
            check_host(Some(host)).unwrap();
        }
        for host in
            [None, Some("evil.example"), Some("localhost.evil.example:7500"), Some(""), Some("127.0.0.1.nip.io")]
        {
            assert_eq!(check_host(host).unwrap_err().code, "denied", "{host:?}");
        }
    }

    #[test]
    fn pages_of_other_sites_are_refused_unless_they_are_allowed() {
        let access = Access { origins: vec!["https://shop.example".to_owned()], ..Access::default() };
        let check = |origin: Option<&'static str>| {
            let headers = origin.map(|origin| (header::ORIGIN, HeaderValue::from_static(origin)));
            check_origin(&access, &headers.into_iter().collect(), Some("localhost:7500"), true)
        };
        for origin in [None, Some("http://localhost:7500"), Some("https://shop.example")] {
            check(origin).unwrap();
        }
        for origin in ["null", "http://localhost:3000", "https://localhost:7500", "https://evil.example"] {
            assert_eq!(check(Some(origin)).unwrap_err().code, "denied", "{origin}");
        }
    }

    #[test]
    fn plain_text_comes_from_this_machine_or_a_named_proxy() {
        let access = Access { proxies: vec!["10.0.0.7".parse().unwrap()], ..Access::default() };
        let name = |address: &str| Peer::plain(&access, address.parse().unwrap()).map(|peer| peer.name.unwrap());
        assert_eq!(name("127.0.0.1:5").as_deref(), Some(LOOPBACK));
        assert_eq!(name("[::ffff:127.0.0.1]:5").as_deref(), Some(LOOPBACK));
        assert_eq!(name("10.0.0.7:5").as_deref(), Some(PROXY));
        assert_eq!(name("10.0.0.8:5"), None);
    }
}
