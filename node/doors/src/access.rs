//! Who a request is from, and whether it is let in.
//!
//! - Over TLS a client is who its certificate names, as over QUIC. Without one it may ask for the node's health alone.
//! - Plain text comes from this machine, or from a proxy that the operator names; such a request has the name of the door. A certificate
//!   gives a name of the form `KIND:NAME`, so that no two callers share one.
//! - Web pages of other sites cannot use the door of a machine through a browser on it: the `Host` of plain text must be an address,
//!   `localhost` or the host of an allowed origin (against DNS rebinding), and an `Origin` must be this door's own or one that the
//!   operator allows. A proxy on another machine answers for the `Host` itself, and its word counts for how the client named the door.

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
    let ip = peer.address.ip().to_canonical();
    let is_proxy = peer.plain && state.access.proxies.contains(&ip);
    // A browser on this machine may come from the same address as a proxy on it.
    if peer.plain && (!is_proxy || ip.is_loopback()) {
        check_host(&state.access, host.as_deref())?;
    }
    let named = named_as(request.headers(), host.as_deref(), peer.plain, is_proxy);
    check_origin(&state.access, request.headers(), named.as_deref())?;
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

/// The origin by which the client named this door. A proxy tells it of the client's connection.
fn named_as(headers: &HeaderMap, host: Option<&str>, plain: bool, is_proxy: bool) -> Option<String> {
    let forwarded = |name: &str| {
        let text = headers.get(name).filter(|_| is_proxy)?.to_str().ok()?;
        // Of several proxies the first was named by the client.
        text.split(',').next().map(str::trim).filter(|text| !text.is_empty())
    };
    let scheme = forwarded("x-forwarded-proto").unwrap_or(if plain { "http" } else { "https" });
    Some(format!("{scheme}://{}", forwarded("x-forwarded-host").or(host)?))
}

/// Refuses names, which another site may have made point at this machine.
fn check_host(access: &Access, host: Option<&str>) -> Result<(), Problem> {
    let authority = host.and_then(|host| host.parse::<Authority>().ok());
    let name = authority.as_ref().map(|authority| authority.host().trim_matches(['[', ']']));
    match name {
        Some(name) if name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok() => Ok(()),
        Some(name) if access.origins.iter().any(|origin| is_host_of(name, origin)) => Ok(()),
        _ => Err(denied(
            "without TLS, name this machine by its address or as localhost; the setting `http_origins` allows further names",
        )),
    }
}

/// Whether this is the host in an origin, whatever the port.
fn is_host_of(name: &str, origin: &str) -> bool {
    let authority = origin.split_once("://").and_then(|(_, authority)| authority.parse::<Authority>().ok());
    authority.is_some_and(|authority| authority.host().eq_ignore_ascii_case(name))
}

/// Refuses web pages of other sites. `named` is the origin by which the client named this door.
fn check_origin(access: &Access, headers: &HeaderMap, named: Option<&str>) -> Result<(), Problem> {
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let origin = origin.to_str().unwrap_or_default();
    let is_own = named.is_some_and(|named| origin.eq_ignore_ascii_case(named));
    if is_own || access.origins.iter().any(|allowed| allowed == origin) {
        return Ok(());
    }
    Err(denied(format!("web pages of {origin:?} may not use this node; the setting `http_origins` allows them")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Bounds;
    use crate::testing::{Door, Script};
    use axum::body::Body;
    use axum::http::HeaderValue;
    use tower::ServiceExt;

    #[test]
    fn names_of_other_sites_are_refused_and_addresses_are_not() {
        for host in ["localhost", "localhost:7500", "127.0.0.1:7500", "[::1]:7500", "10.0.0.7"] {
            check_host(&Access::default(), Some(host)).unwrap();
        }
        for host in
            [None, Some("evil.example"), Some("localhost.evil.example:7500"), Some(""), Some("127.0.0.1.nip.io")]
        {
            assert_eq!(check_host(&Access::default(), host).unwrap_err().code, "denied", "{host:?}");
        }
        let access = Access { origins: vec!["https://shop.example:8443".to_owned()], ..Access::default() };
        for host in ["shop.example", "SHOP.example:8443", "localhost"] {
            check_host(&access, Some(host)).unwrap();
        }
        assert!(check_host(&access, Some("shop.example.evil.example")).is_err());
    }

    /// What is answered to a web page's request through a proxy at `proxy`.
    async fn through_proxy(proxy: &str, headers: &[(&str, &str)]) -> StatusCode {
        let proxies = vec![proxy.parse().unwrap()];
        let access = Access { proxies, ..Access::default() };
        let door = Door::with(Bounds::default(), access, Script::default());
        let request = Request::get("/v1/openapi.json").extension(Peer {
            address: SocketAddr::new(proxy.parse().unwrap(), 5),
            plain: true,
            name: Ok(PROXY.into()),
        });
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let request = request.body(Body::empty()).unwrap();
        crate::request::router(&door.state).oneshot(request).await.unwrap().status()
    }

    #[tokio::test]
    async fn a_page_behind_a_proxy_with_tls_is_the_doors_own() {
        let origin = ("origin", "https://shop.example");
        let forwarded = [origin, ("x-forwarded-proto", "https"), ("x-forwarded-host", "shop.example, inner")];
        for (proxy, host) in [("127.0.0.1", "localhost:7500"), ("10.0.0.7", "shop.example"), ("10.0.0.7", "inner")] {
            let host = ("host", host);
            let all = [&[host][..], &forwarded].concat();
            assert_eq!(through_proxy(proxy, &all).await, StatusCode::OK, "{host:?}");
            assert_eq!(through_proxy(proxy, &[host, origin]).await, StatusCode::FORBIDDEN, "{host:?}");
            let other = [&all[1..], &[host, ("origin", "https://evil.example")]].concat();
            let evil: Vec<_> = other.into_iter().filter(|header| *header != origin).collect();
            assert_eq!(through_proxy(proxy, &evil).await, StatusCode::FORBIDDEN, "{host:?}");
        }
    }

    #[tokio::test]
    async fn a_browser_on_the_machine_of_a_proxy_is_no_proxy() {
        let rebound = [("host", "evil.example"), ("x-forwarded-host", "localhost"), ("x-forwarded-proto", "http")];
        assert_eq!(through_proxy("127.0.0.1", &rebound).await, StatusCode::FORBIDDEN);
        assert_eq!(through_proxy("10.0.0.7", &rebound).await, StatusCode::OK, "the proxy answers for its host");
    }

    #[test]
    fn pages_of_other_sites_are_refused_unless_they_are_allowed() {
        let access = Access { origins: vec!["https://shop.example".to_owned()], ..Access::default() };
        let check = |origin: Option<&'static str>| {
            let headers = origin.map(|origin| (header::ORIGIN, HeaderValue::from_static(origin)));
            check_origin(&access, &headers.into_iter().collect(), Some("http://localhost:7500"))
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
