//! `norn health`: asks a node over HTTP how it is, for containers and scripts. It needs no client's certificate.

use super::failure::{Failure, Outcome};
use super::{Global, say};
use clap::Args;
use norn_client::tls::Validity;
use norn_node::runtime::settings::Effective;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme};
use serde_json::json;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// First HTTP port of `norn dev`, and the usual one of a node.
const PLACE: &str = "127.0.0.1:7500";
/// Time limit of the question with its answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Most bytes of an answer.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// Flags of `norn health`.
#[derive(Debug, Args)]
pub struct Options {
    /// Address of the node's HTTP listener [default: the setting `http_listen` of --config or of NORN_HTTP_LISTEN, else
    /// 127.0.0.1:7500].
    #[arg(long, value_name = "HOST:PORT")]
    http: Option<String>,
    /// TOML file with the node's settings; if left out, the file that the variable NORN_CONFIG names.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Whether it takes events: without that, a restart helps. If left out, --ready.
    #[arg(long, group = "question")]
    live: bool,
    /// Whether it takes requests. That is asked if nothing else is.
    #[arg(long, group = "question")]
    ready: bool,
    /// Whether it has read its log. If left out, --ready.
    #[arg(long, group = "question")]
    started: bool,
    /// With --ready, also whether it knows a leader of each partition that it holds. If left out, a node without leaders is ready.
    #[arg(long, conflicts_with_all = ["live", "started"])]
    claims: bool,
}

impl Options {
    fn path(&self) -> &'static str {
        match (self.live, self.started, self.claims) {
            (true, ..) => "/livez",
            (_, true, _) => "/startupz",
            (_, _, true) => "/readyz?claims=1",
            _ => "/readyz",
        }
    }
}

/// Where to ask, and how.
#[derive(Debug)]
struct Place {
    address: String,
    /// Whether the settings say that it speaks TLS.
    tls: bool,
    certs: Option<PathBuf>,
}

impl Place {
    fn find(options: &Options, global: &Global) -> Result<Place, Failure> {
        let named = std::env::var_os("NORN_CONFIG").filter(|file| !file.is_empty()).map(PathBuf::from);
        let config = options.config.clone().or(named);
        // Variables that are no text are none of the settings.
        let texts =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        let settings = Effective::gather(config.as_deref(), texts, std::iter::empty())?;
        let listen = settings.text("http_listen");
        let own = if listen.is_empty() { PLACE.to_owned() } else { reached_at(listen) };
        let certs = Some(settings.text("certs")).filter(|certs| !certs.is_empty()).map(PathBuf::from);
        let is_plain = is_loopback(listen) || listen.is_empty() || !settings.text("http_proxies").is_empty();
        Ok(Place {
            address: options.http.clone().unwrap_or(own),
            tls: settings.text("http_tls") == "always" || !is_plain,
            certs: global.certs.clone().or(certs),
        })
    }
}

/// Where a listener is reached from its own machine.
fn reached_at(listen: &str) -> String {
    match listen.parse::<SocketAddr>() {
        Ok(address) if address.ip().is_unspecified() => format!("localhost:{}", address.port()),
        _ => listen.to_owned(),
    }
}

fn is_loopback(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or("", |(host, _)| host).trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Asks the node, prints what it says, and tells by the exit code whether it is well.
pub fn run(options: Options, global: Global) -> Outcome {
    let place = Place::find(&options, &global)?;
    let deadline = Instant::now() + global.timeout().unwrap_or(TIMEOUT);
    let (status, text) = match ask(&place, options.path(), deadline) {
        Ok(answer) => answer,
        Err(why) => (0, format!("{} is not reached: {why}", place.address)),
    };
    let is_well = status == 200;
    if global.json {
        say(&json!({ "ok": is_well, "status": status, "text": text }).to_string())?;
    } else {
        say(&text)?;
    }
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The status and the first line of the answer.
fn ask(place: &Place, path: &str, deadline: Instant) -> Result<(u16, String), String> {
    if !place.tls {
        let answer = exchange(connect(&place.address, deadline)?, &place.address, path, deadline);
        // A listener that wants TLS does not answer in words.
        match answer {
            Ok(answer) if answer.starts_with(b"HTTP/") => return read_answer(&answer),
            Err(why) if place.certs.is_none() => return Err(why),
            Ok(_) | Err(_) => {}
        }
    }
    let Some(certs) = &place.certs else {
        return Err("it speaks TLS: --certs DIR must name a directory with the ca.crt of its cluster".to_owned());
    };
    let stream = connect(&place.address, deadline)?;
    let session = ClientConnection::new(trusting(&certs.join("ca.crt"))?, name_of(&place.address)?);
    let session = session.map_err(|error| error.to_string())?;
    read_answer(&exchange(rustls::StreamOwned::new(session, Timed(stream, deadline)), &place.address, path, deadline)?)
}

fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

fn connect(address: &str, deadline: Instant) -> Result<TcpStream, String> {
    let mut why = "its name has no address".to_owned();
    for address in address.to_socket_addrs().map_err(|error| error.to_string())? {
        let tried = left(deadline).and_then(|left| TcpStream::connect_timeout(&address, left));
        match tried {
            Ok(stream) => return Ok(stream),
            Err(error) => why = words(&error),
        }
    }
    Err(why)
}

/// A stream whose reads and writes end at a time.
struct Timed(TcpStream, Instant);

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.set_read_timeout(Some(left(self.1)?))?;
        self.0.read(buffer)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.set_write_timeout(Some(left(self.1)?))?;
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// What a request can be written to.
trait Wire {
    fn timed(self, deadline: Instant) -> impl Read + Write;
}

impl Wire for TcpStream {
    fn timed(self, deadline: Instant) -> impl Read + Write {
        Timed(self, deadline)
    }
}

impl Wire for rustls::StreamOwned<ClientConnection, Timed> {
    fn timed(self, _: Instant) -> impl Read + Write {
        self
    }
}

/// Sends a request and reads the whole answer.
fn exchange(wire: impl Wire, host: &str, path: &str, deadline: Instant) -> Result<Vec<u8>, String> {
    let mut stream = wire.timed(deadline);
    let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nuser-agent: norn\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).and_then(|()| stream.flush()).map_err(|error| words(&error))?;
    let mut answer = Vec::new();
    match stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer) {
        // Some close a connection without the farewell of TLS; the length of the body tells whether all is there.
        Err(error) if answer.is_empty() || error.kind() != io::ErrorKind::UnexpectedEof => Err(words(&error)),
        _ => Ok(answer),
    }
}

fn words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => "it did not answer in time".to_owned(),
        _ => error.to_string(),
    }
}

/// The status of an answer, and the first line of its body.
fn read_answer(answer: &[u8]) -> Result<(u16, String), String> {
    let text = String::from_utf8_lossy(answer);
    let not_http = || "it does not speak HTTP".to_owned();
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(not_http)?;
    let mut words = head.split_ascii_whitespace();
    let status = words.next().filter(|version| version.starts_with("HTTP/")).and_then(|_| words.next());
    let status: u16 = status.and_then(|status| status.parse().ok()).ok_or_else(not_http)?;
    let line = body.lines().next().unwrap_or_default().trim();
    Ok((status, if line.is_empty() { format!("status {status}") } else { line.to_owned() }))
}

/// A configuration that trusts any node of the authority, by whatever name it was asked: the question is about the node at an address,
/// and often that is `localhost`, which no certificate needs to name.
fn trusting(authority: &Path) -> Result<Arc<ClientConfig>, String> {
    let wrong = |why: &dyn std::fmt::Display| format!("{}: {why}", authority.display());
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(authority).map_err(|error| wrong(&error))? {
        let certificate = certificate.map_err(|error| wrong(&error))?;
        Validity::of(&certificate).map_err(|error| wrong(&error))?;
        roots.add(certificate).map_err(|error| wrong(&error))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build();
    let verifier = AnyName(verifier.map_err(|error| wrong(&error))?);
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(&error))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    Ok(Arc::new(config))
}

fn name_of(address: &str) -> Result<ServerName<'static>, String> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host).trim_matches(['[', ']']);
    ServerName::try_from(host.to_owned()).map_err(|error| format!("{host}: {error}"))
}

/// Verifies a certificate, but for the name in it.
#[derive(Debug)]
struct AnyName(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let named = |error: &rustls::Error| {
            use CertificateError::{NotValidForName, NotValidForNameContext};
            matches!(error, rustls::Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. }))
        };
        match self.0.verify_server_cert(certificate, between, name, ocsp, now) {
            // The name is looked at last, once the chain is verified.
            Err(error) if named(&error) => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn place(address: String, certs: Option<PathBuf>) -> Place {
        Place { address, tls: certs.is_some(), certs }
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(10)
    }

    /// Answers one connection with these bytes, once its request is in. Returns the address.
    fn serve(answer: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1_024];
            let read = stream.read(&mut request).unwrap();
            assert!(request[..read].starts_with(b"GET /readyz HTTP/1.1\r\n"));
            stream.write_all(answer.as_bytes()).unwrap();
        });
        address
    }

    #[test]
    fn the_answer_is_told_in_a_line() {
        let ask = |answer| ask(&place(serve(answer), None), "/readyz", soon());
        let well = "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nready\n";
        assert_eq!(ask(well), Ok((200, "ready".to_owned())));
        let ill = "HTTP/1.1 503 Service Unavailable\r\n\r\nthe node is reading its log\nmore";
        assert_eq!(ask(ill), Ok((503, "the node is reading its log".to_owned())));
        assert_eq!(ask("HTTP/1.1 404 Not Found\r\n\r\n"), Ok((404, "status 404".to_owned())));
        assert!(ask("\x15\x03\x03").unwrap_err().contains("--certs DIR"), "that is TLS");
    }

    #[test]
    fn a_node_that_is_away_or_silent_is_not_well() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let deadline = Instant::now() + Duration::from_millis(200);
        assert_eq!(ask(&place(address.clone(), None), "/livez", deadline), Err("it did not answer in time".to_owned()));
        // Bound and not listening, so that no other program can answer there.
        let away = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        away.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        let address = away.local_addr().unwrap().as_socket().unwrap().to_string();
        assert!(ask(&place(address, None), "/livez", soon()).is_err());
    }

    #[test]
    fn a_node_of_the_authority_is_trusted_by_any_name_and_others_are_not() {
        use norn_node::runtime::certificates::{DAYS, Present, Role, create, create_authority};
        let directory = tempfile::tempdir().unwrap();
        let stranger = tempfile::tempdir().unwrap();
        for directory in [&directory, &stranger] {
            create_authority(directory.path(), 10 * DAYS).unwrap();
        }
        let made = create(directory.path(), Role::Node, "n", &[], DAYS, Present::Kept).unwrap();
        let chain = CertificateDer::pem_file_iter(&made.files.certificate).unwrap().map(Result::unwrap).collect();
        let key = rustls::pki_types::PrivateKeyDer::from_pem_file(&made.files.key).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = Arc::new(config.with_no_client_auth().with_single_cert(chain, key).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let session = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
                let mut stream = rustls::StreamOwned::new(session, stream.unwrap());
                let mut request = [0; 1_024];
                if stream.read(&mut request).is_ok() {
                    stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nalive\n").unwrap();
                }
            }
        });
        let ask = |certs: &Path| ask(&place(address.clone(), Some(certs.to_owned())), "/livez", soon());
        assert_eq!(ask(directory.path()), Ok((200, "alive".to_owned())));
        assert!(ask(stranger.path()).is_err());
    }

    #[test]
    fn a_listener_on_all_addresses_is_reached_on_this_machine() {
        assert_eq!(reached_at("0.0.0.0:7500"), "localhost:7500");
        assert_eq!(reached_at("[::]:7500"), "localhost:7500");
        assert_eq!(reached_at("10.0.0.5:7500"), "10.0.0.5:7500");
        assert!(is_loopback("[::1]:7500") && !is_loopback("0.0.0.0:7500"));
    }
}
