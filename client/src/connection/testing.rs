//! A node for tests: real QUIC and certificates, scripted answers.

use crate::client::{Client, ClientConfig};
use crate::dial::version_of;
use norn_wire::Versions;
use norn_wire::codec::{self, HEADER_BYTES, Kind};
use norn_wire::ids::{ClusterId, NodeId};
use norn_wire::limits::FRAME_BYTES_MAX;
use norn_wire::request::Request;
use norn_wire::response::{Response, Welcome};
use quinn::crypto::rustls::QuicServerConfig;
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;

/// Reaction of a node to a request.
pub enum Reply {
    Answer(Response),
    AnswerAfter(Duration, Response),
    /// No answer.
    Silence,
    /// Writes these bytes unchanged.
    Raw(Vec<u8>),
    /// Closes the connection.
    Close,
}

type Script = Arc<Mutex<dyn FnMut(Request) -> Reply + Send>>;

/// Certificates of a cluster, in a folder that lasts as long as this value.
pub struct Certificates {
    pub folder: TempDir,
}

impl Certificates {
    pub fn new() -> Certificates {
        Certificates::with(|_| {})
    }

    /// As `new`, with changes to the node's certificate.
    pub fn with(change_node: impl Fn(&mut CertificateParams)) -> Certificates {
        let folder = tempfile::tempdir().unwrap();
        let ca_key = KeyPair::generate().unwrap();
        let mut ca = CertificateParams::new(Vec::new()).unwrap();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let write = |name: &str, text: String| std::fs::write(folder.path().join(name), text).unwrap();
        write("ca.pem", ca.self_signed(&ca_key).unwrap().pem());
        let issuer = Issuer::from_params(&ca, &ca_key);
        for (name, purpose) in
            [("node", ExtendedKeyUsagePurpose::ServerAuth), ("client", ExtendedKeyUsagePurpose::ClientAuth)]
        {
            let key = KeyPair::generate().unwrap();
            let mut leaf = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
            leaf.extended_key_usages = vec![purpose];
            if name == "node" {
                change_node(&mut leaf);
            }
            write(&format!("{name}.pem"), leaf.signed_by(&key, &issuer).unwrap().pem());
            write(&format!("{name}.key"), key.serialize_pem());
        }
        Certificates { folder }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn config(&self, addresses: &[String]) -> ClientConfig {
        let file = |name: &str| self.path().join(name);
        let addresses = addresses.iter().cloned();
        let config = ClientConfig::new(addresses, file("ca.pem"), file("client.pem"), file("client.key"));
        // A busy machine must not fail a test.
        ClientConfig { request_timeout: Duration::from_secs(60), ..config }
    }

    pub async fn client(&self, nodes: &[&Node]) -> Client {
        let addresses: Vec<String> = nodes.iter().map(|node| node.address()).collect();
        Client::connect(self.config(&addresses)).await.unwrap()
    }
}

/// A node that answers `hello`, pings, confirmations and leaves itself, and everything else as scripted.
pub struct Node {
    endpoint: quinn::Endpoint,
    pub connections: Arc<AtomicUsize>,
    /// Number of leaves received.
    pub leaves: Arc<AtomicUsize>,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.endpoint.close(0u32.into(), b"gone");
    }
}

pub fn now_ms() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as u64
}

fn welcome() -> Response {
    Response::Welcome(Welcome {
        node: NodeId(1),
        cluster: ClusterId(1),
        time_ms: now_ms(),
        minter: 7,
        refusal: None,
        clock_ms: None,
    })
}

/// How a node treats its clients.
pub struct Manners {
    pub speaks: Versions,
    /// Answer to `hello`.
    pub hello: fn() -> Response,
    /// Number of connections that it refuses before it accepts one.
    pub refuses: usize,
}

impl Default for Manners {
    fn default() -> Manners {
        Manners { speaks: Versions::SPOKEN, hello: welcome, refuses: 0 }
    }
}

impl Node {
    pub fn start(certificates: &Certificates, script: impl FnMut(Request) -> Reply + Send + 'static) -> Node {
        Node::start_with(Manners::default(), certificates, script)
    }

    pub fn start_with(
        manners: Manners,
        certificates: &Certificates,
        script: impl FnMut(Request) -> Reply + Send + 'static,
    ) -> Node {
        let Manners { speaks, hello, mut refuses } = manners;
        let read = |name: &str| certificates.path().join(name);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(read("ca.pem")).unwrap()).unwrap();
        let verifier =
            rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
                .build()
                .unwrap();
        let mut tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_client_cert_verifier(verifier)
            .with_single_cert(
                vec![CertificateDer::from_pem_file(read("node.pem")).unwrap()],
                PrivateKeyDer::from_pem_file(read("node.key")).unwrap(),
            )
            .unwrap();
        tls.alpn_protocols = speaks.protocols();
        let config = quinn::ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls).unwrap()));
        let endpoint = quinn::Endpoint::server(config, SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let left = Arc::new(AtomicUsize::new(0));
        let node =
            Node { endpoint: endpoint.clone(), connections: Arc::clone(&connections), leaves: Arc::clone(&left) };
        let script: Script = Arc::new(Mutex::new(script));
        tokio::spawn(async move {
            while let Some(incoming) = endpoint.accept().await {
                if refuses > 0 {
                    refuses -= 1;
                    incoming.refuse();
                    continue;
                }
                let (script, connections) = (Arc::clone(&script), Arc::clone(&connections));
                let leaves = Arc::clone(&left);
                tokio::spawn(async move {
                    if let Ok(connection) = incoming.await {
                        connections.fetch_add(1, Ordering::SeqCst);
                        serve(connection, hello, script, leaves).await;
                    }
                });
            }
        });
        node
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.endpoint.local_addr().unwrap().port())
    }
}

async fn serve(connection: quinn::Connection, hello: fn() -> Response, script: Script, leaves: Arc<AtomicUsize>) {
    let Ok((send, mut receive)) = connection.accept_bi().await else {
        return;
    };
    let version = version_of(&connection).unwrap();
    let send = Arc::new(tokio::sync::Mutex::new(send));
    let mut buffer = Vec::new();
    while let Ok(Some(chunk)) = receive.read_chunk(1 << 16, true).await {
        buffer.extend_from_slice(&chunk.bytes);
        while let Some((header, end)) = codec::split(&buffer, version, FRAME_BYTES_MAX).unwrap() {
            let request: Request = codec::decode_body(&header, &buffer[HEADER_BYTES..end]).unwrap();
            buffer.drain(..end);
            let reply = match request {
                Request::Hello { .. } => Reply::Answer(hello()),
                Request::Confirm { .. } | Request::Ping => Reply::Answer(Response::Done),
                Request::Leave { .. } => {
                    leaves.fetch_add(1, Ordering::SeqCst);
                    Reply::Answer(Response::Done)
                }
                request => (script.lock().unwrap())(request),
            };
            let (bytes, after) = match reply {
                Reply::Answer(response) => (frame(version, header.request, &response), Duration::ZERO),
                Reply::AnswerAfter(after, response) => (frame(version, header.request, &response), after),
                Reply::Silence => continue,
                Reply::Raw(bytes) => (bytes, Duration::ZERO),
                Reply::Close => return connection.close(1u32.into(), b"scripted"),
            };
            if after.is_zero() {
                let _ = send.lock().await.write_all(&bytes).await;
            } else {
                let send = Arc::clone(&send);
                tokio::spawn(async move {
                    tokio::time::sleep(after).await;
                    let _ = send.lock().await.write_all(&bytes).await;
                });
            }
        }
    }
}

fn frame(version: u8, number: u64, response: &Response) -> Vec<u8> {
    let mut bytes = Vec::new();
    codec::encode_named(&mut bytes, version, Kind::Response, number, response);
    bytes
}
