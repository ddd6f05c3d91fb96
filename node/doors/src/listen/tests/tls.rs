//! Peers over TLS: those with a certificate, strangers, and handshakes that hang.

use super::*;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// A door with a certificate, and what its clients need.
struct Secured {
    open: Open,
    roots: Arc<RootCertStore>,
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

impl Secured {
    async fn new(bounds: Bounds) -> Secured {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let (certificate, key) =
            (made.cert.der().clone(), PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap());
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).unwrap();
        let (roots, provider) = (Arc::new(roots), Arc::new(rustls::crypto::ring::default_provider()));
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider));
        let verifier = verifier.allow_unauthenticated().build().unwrap();
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_client_cert_verifier(verifier);
        let mut config = config.with_single_cert(vec![certificate.clone()], key.clone_key()).unwrap();
        config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
        let principal_of: PrincipalOf = |_| Ok("client:ops".to_owned());
        let tls = Tls { config: watch::channel(Arc::new(config)).1, principal_of };
        Secured { open: Open::with(bounds, Some(tls), Script::default()).await, roots, certificate, key }
    }

    /// Connects, with the certificate or without, and asks for this.
    async fn ask(&self, with_certificate: bool, path: &str) -> TlsStream<TcpStream> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_root_certificates(Arc::clone(&self.roots));
        let config = match with_certificate {
            true => config.with_client_auth_cert(vec![self.certificate.clone()], self.key.clone_key()).unwrap(),
            false => config.with_no_client_auth(),
        };
        let name = "localhost".try_into().unwrap();
        let stream = TlsConnector::from(Arc::new(config)).connect(name, self.open.connect().await);
        let mut stream = in_time("a handshake", stream).await.unwrap();
        stream.write_all(get(path).as_bytes()).await.unwrap();
        stream
    }
}

#[tokio::test]
async fn strangers_have_a_share_of_the_places_and_leave_the_others_to_those_with_a_certificate() {
    let secured = Secured::new(Bounds { connections_max: 8, idle_timeout: NEVER, ..Bounds::default() }).await;
    let mut strangers = Vec::new();
    for _ in 0..2 {
        let mut stranger = secured.ask(false, "/startupz").await;
        assert!(answer_of(&mut stranger).await.starts_with("HTTP/1.1 200 "));
        strangers.push(stranger);
    }
    for _ in 0..8 {
        let refused = answer_of(&mut secured.ask(false, "/startupz").await).await;
        assert!(refused.starts_with("HTTP/1.1 503 ") && refused.contains("\"code\":\"overloaded\""), "{refused}");
    }
    let mut certified = Vec::new();
    for _ in 0..6 {
        let mut caller = secured.ask(true, "/v1/docs").await;
        assert!(answer_of(&mut caller).await.starts_with("HTTP/1.1 200 "));
        certified.push(caller);
    }
    drop(strangers);
    let again =
        async { while !answer_of(&mut secured.ask(false, "/startupz").await).await.starts_with("HTTP/1.1 200 ") {} };
    in_time("a stranger has a place again", again).await;
}

#[tokio::test]
async fn a_stranger_is_told_of_nothing_but_health() {
    let secured = Secured::new(Bounds::default()).await;
    for (path, status) in [("/livez", "503"), ("/startupz", "200"), ("/metrics", "401"), ("/v1/queues", "401")] {
        let answer = answer_of(&mut secured.ask(false, path).await).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {answer}");
    }
}

#[derive(Debug)]
struct NoCertificate;

impl rustls::server::ResolvesServerCert for NoCertificate {
    fn resolve(&self, _: rustls::server::ClientHello<'_>) -> Option<Arc<rustls::sign::CertifiedKey>> {
        None
    }
}

/// TLS of a door that has no certificate to show.
fn tls_without_certificate() -> Tls {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_cert_resolver(Arc::new(NoCertificate));
    Tls { config: watch::channel(Arc::new(config)).1, principal_of: |_| Err("none".to_owned()) }
}

#[tokio::test]
async fn a_handshake_that_hangs_does_not_hold_up_the_end() {
    let bounds = Bounds { drain_timeout: NEVER, head_timeout: NEVER, ..Bounds::default() };
    let open = Open::with(bounds, Some(tls_without_certificate()), Script::default()).await;
    let mut hanging = open.say("\u{16}").await;
    in_time("the door closes", open.doors.close()).await;
    // It may be told by a reset, as a byte of it was not read.
    let _ = in_time("the connection ends", hanging.read(&mut [0])).await;
}

#[tokio::test]
async fn handshakes_that_hang_do_not_keep_others_out() {
    let bounds = Bounds { connections_max: 4, head_timeout: NEVER, ..Bounds::default() };
    let open = Open::with(bounds, Some(tls_without_certificate()), Script::default()).await;
    let mut hanging = Vec::new();
    for _ in 0..4 {
        hanging.push(open.say("\u{16}").await);
    }
    // A client that comes until it is answered, if by an alert, as what it sends is no TLS.
    let answered = async {
        loop {
            let mut stream = open.connect().await;
            let sent = stream.write_all(get("/livez").as_bytes()).await;
            if sent.is_ok() && matches!(stream.read(&mut [0; 64]).await, Ok(1..)) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    in_time("a handshake has its turn", answered).await;
}
