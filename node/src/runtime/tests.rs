//! Real servers on loopback against unknown clients, false identities and noise.
//!
//! Goal: a side without a right to connect is refused on both sides, and no data that arrives at the port harms a node. Method: after
//! every attack a correct client must still get its answer.

use crate::runtime::caller::{CallError, Caller, ask};
use crate::runtime::certificates::{
    AUTHORITY_DAYS, DAYS, Present, Role, create, create_authority, find_client, find_node,
};
use crate::runtime::peers::{FEATURES, PeerHello, Speaker};
use crate::runtime::server::start::StartError;
use crate::runtime::server::{Readiness, Server, ready_interval};
use crate::runtime::settings::{Effective, Settings};
use crate::runtime::tls::{Credentials, load, own_principal};
use crate::runtime::transport::{CloseCode, client_config, endpoint, peer_config};
use norn_client::dial::{Reason, version_of};
use norn_host::disk::FileDiskError;
use norn_host::metrics::Counter;
use norn_host::replay::OpenError;
use norn_model::limits::FRAME_BYTES_MAX;
use norn_model::message::{PeerMessage, Query};
use norn_wire::codec::{HEADER_BYTES, Kind, encode_compact, encode_named};
use norn_wire::response::{Genesis, Identity, Member};
use norn_wire::{ClusterId, NodeId, Request, Response, Versions};
use quinn::{Connection, ConnectionError};
use rustls::AlertDescription;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

mod copies;
mod counters;
mod joins;
mod links;
mod room;

/// A node that waits for minutes is polled less and less often, and one that is ready soon is noticed at once.
#[test]
fn a_node_that_is_not_ready_is_asked_ever_less_often() {
    let (mut waited, mut looks) = (Duration::ZERO, 0);
    while waited < Duration::from_secs(600) {
        let interval = ready_interval(waited);
        assert!(interval <= Duration::from_millis(20).max(waited / 10).min(Duration::from_secs(1)));
        (waited, looks) = (waited + interval, looks + 1);
    }
    assert!(looks < 700, "{looks}");
}

const PATIENCE: Duration = Duration::from_secs(60);
/// Most attempts at a result that can differ when the machine stalls for seconds.
const ATTEMPTS_MAX: usize = 5;
const NEWEST: u8 = Versions::SPOKEN.newest;

/// Authority with nodes `n1` and `n2` and the client `c`.
fn authority() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    create_authority(directory.path(), AUTHORITY_DAYS).unwrap();
    for name in ["n1", "n2"] {
        create(directory.path(), Role::Node, name, &["127.0.0.1".to_owned()], DAYS, Present::Kept).unwrap();
    }
    create(directory.path(), Role::Client, "c", &[], DAYS, Present::Kept).unwrap();
    directory
}

fn settings(certificates: &Path, name: &str, data: &Path, more: &[(&str, &str)]) -> Settings {
    let text = |path: &Path| path.display().to_string();
    let mut flags = vec![
        ("certs".to_owned(), text(certificates)),
        ("name".to_owned(), name.to_owned()),
        ("data".to_owned(), text(data)),
        ("listen".to_owned(), "127.0.0.1:0".to_owned()),
    ];
    flags.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    Effective::gather(None, std::iter::empty(), flags.into_iter()).unwrap().settings().unwrap()
}

/// Starts a node at an address where another one may just have stopped.
async fn start(settings: &Settings) -> Result<Server, StartError> {
    let started = async {
        loop {
            match Server::start(settings.clone(), |_| {}).await {
                // Within one process, the last handle of a stopped server may be dropped a moment later, and so may its log's thread.
                Err(StartError::AddressInUse(_)) => {}
                Err(StartError::Open(OpenError::Directory(FileDiskError::Held { .. }))) => {}
                other => return other,
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, started).await.expect("it starts in time")
}

struct Cluster {
    authority: TempDir,
    data: TempDir,
}

impl Cluster {
    fn new() -> Self {
        Cluster { authority: authority(), data: tempfile::tempdir().unwrap() }
    }

    async fn start(&self, name: &str, more: &[(&str, &str)]) -> Server {
        start(&settings(self.authority.path(), name, &self.data.path().join(name), more)).await.unwrap()
    }

    fn credentials(&self, role: Role, name: &str) -> Credentials {
        load(&role.files(self.authority.path(), name)).unwrap()
    }

    fn caller(&self) -> Caller {
        Caller::new(Role::Client.files(self.authority.path(), "c"), PATIENCE).unwrap()
    }

    async fn connect(&self, server: &Server, role: Role, name: &str) -> Connection {
        connect(server, &self.credentials(role, name)).await.unwrap()
    }
}

async fn connect(server: &Server, credentials: &Credentials) -> Result<Connection, ConnectionError> {
    let endpoint = endpoint("127.0.0.1:0".parse().unwrap(), None).unwrap();
    endpoint.connect_with(client_config(credentials).unwrap(), server.address(), "127.0.0.1").unwrap().await
}

async fn answers(cluster: &Cluster, server: &Server) -> Identity {
    cluster.caller().identify(&server.address().to_string()).await.unwrap()
}

/// The code with which the server closes a connection; `make` also returns values that must outlive it. The close frame may be lost,
/// and the server has forgotten the connection by the time the client sends again: then another connection is made.
async fn close_code<Held>(make: impl AsyncFn() -> (Connection, Held)) -> u64 {
    for _ in 0..ATTEMPTS_MAX {
        let (connection, _held) = make().await;
        match tokio::time::timeout(PATIENCE, connection.closed()).await.expect("the server closes in time") {
            ConnectionError::ApplicationClosed(close) => return close.error_code.into_inner(),
            ConnectionError::Reset => {}
            other => panic!("closed otherwise: {other}"),
        }
    }
    panic!("{ATTEMPTS_MAX} good-byes are lost");
}

fn genesis(members: &[(&Identity, &str)]) -> Genesis {
    let member = |(identity, address): &(&Identity, &str)| Member {
        node: identity.node,
        incarnation: identity.incarnation,
        address: (*address).to_owned(),
        name: identity.name.clone(),
        zone: String::new(),
    };
    let mut members: Vec<Member> = members.iter().map(member).collect();
    members.sort_by_key(|member| member.node);
    let count = members.len() as u16;
    let replicas = u32::from(count);
    let cluster = ClusterId(7);
    Genesis { cluster, name: "test".into(), partitions: 1, replicas, members, assignment: vec![(0..count).collect()] }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_answers_and_keeps_its_identity() {
    let cluster = Cluster::new();
    let server = cluster.start("n1", &[]).await;
    assert_eq!(server.ready().await, Some(Readiness::AwaitsCluster));
    let before = answers(&cluster, &server).await;
    assert_eq!((before.name.as_str(), before.address.as_str()), ("n1", server.address().to_string().as_str()));
    server.shutdown().await;
    let server = cluster.start("n1", &[]).await;
    let after = answers(&cluster, &server).await;
    assert_eq!((before.node, before.incarnation), (after.node, after.incarnation));
    server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_are_refused_by_both_sides() {
    let (cluster, foreign) = (Cluster::new(), Cluster::new());
    let server = cluster.start("n1", &[]).await;
    let address = server.address().to_string();

    // The client refuses a server of another authority.
    let error = foreign.caller().identify(&address).await.unwrap_err();
    assert!(matches!(error, CallError::Unreached(_)) && error.is_lasting(), "{error}");

    // The server refuses a client of another authority, even one that trusts the server.
    for (role, name) in [(Role::Client, "c"), (Role::Node, "n1")] {
        let mut files = role.files(foreign.authority.path(), name);
        files.authority = cluster.authority.path().join("ca.crt");
        let caller = Caller::new(files, PATIENCE).unwrap();
        let error = caller.identify(&address).await.unwrap_err();
        let by_server =
            |reason: &Reason| reason.lasting && reason.text.starts_with("the node refuses the certificate ");
        assert!(matches!(&error, CallError::Connection(reason) if by_server(reason)), "{error}");
    }
    assert_eq!(refusal_without_certificate(&cluster, &server).await, AlertDescription::CertificateRequired);
    assert_eq!(server.metrics().get(Counter::Requests), 0);
    answers(&cluster, &server).await;
    server.shutdown().await;
}

/// How the server refuses a client without a certificate.
async fn refusal_without_certificate(cluster: &Cluster, server: &Server) -> AlertDescription {
    let mut roots = rustls::RootCertStore::empty();
    let file = cluster.authority.path().join("ca.crt");
    roots.add(CertificateDer::from_pem_file(file).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut crypto = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    crypto.alpn_protocols = vec![b"norn/1".to_vec()];
    let crypto = quinn::crypto::rustls::QuicClientConfig::try_from(crypto).unwrap();
    let config = quinn::ClientConfig::new(Arc::new(crypto));
    let endpoint = endpoint("127.0.0.1:0".parse().unwrap(), None).unwrap();
    let closed = match endpoint.connect_with(config, server.address(), "127.0.0.1").unwrap().await {
        // The client's side of the handshake ends before the server has checked the client's data.
        Ok(connection) => connection.closed().await,
        Err(error) => error,
    };
    match closed {
        // TLS alerts are transmitted as 0x100 plus the alert.
        ConnectionError::ConnectionClosed(close) => AlertDescription::from((u64::from(close.error_code) - 0x100) as u8),
        other => panic!("closed otherwise: {other}"),
    }
}

/// A client certificate is not valid for a server: it lacks the extended key usage.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_is_good_for_its_role_and_name_only() {
    let cluster = Cluster::new();
    let certificates = cluster.authority.path();
    for extension in ["crt", "key"] {
        let from = certificates.join(format!("client-c.{extension}"));
        std::fs::copy(from, certificates.join(format!("node-n3.{extension}"))).unwrap();
        let from = certificates.join(format!("node-n2.{extension}"));
        std::fs::copy(from, certificates.join(format!("node-n4.{extension}"))).unwrap();
    }
    for name in ["n3", "n4"] {
        let error = Server::start(settings(certificates, name, &cluster.data.path().join(name), &[]), |_| {}).await;
        let error = error.unwrap_err().to_string();
        assert!(error.contains("the certificate of node"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_must_be_who_it_claims_to_be() {
    let cluster = Cluster::new();
    let server = cluster.start("n1", &[]).await;
    let me = answers(&cluster, &server).await;
    let other = Identity { node: NodeId(2), name: "n2".into(), ..me.clone() };
    let good = PeerHello {
        version: Versions::SPOKEN.oldest,
        newest: None,
        features: FEATURES,
        cluster: ClusterId(7),
        from: other.node,
        to: me.node,
        bulk: false,
        process: 1,
    };
    let refused = async |role: Role, name: &str, hello: &PeerHello| {
        let mut bytes = Vec::new();
        encode_named(&mut bytes, NEWEST, Kind::PeerHello, 0, hello);
        let greet = async || {
            let connection = cluster.connect(&server, role, name).await;
            let mut stream = connection.open_uni().await.unwrap();
            stream.write_all(&bytes).await.unwrap();
            (connection, stream)
        };
        close_code(greet).await
    };
    assert_eq!(refused(Role::Node, "n2", &good).await, CloseCode::NotYet as u64, "there is no cluster yet");

    let founding = genesis(&[(&me, &me.address), (&other, "127.0.0.1:9")]);
    let init = Request::Initialize(Box::new(founding));
    cluster.caller().call(&server.address().to_string(), &init).await.unwrap();
    let identity = CloseCode::Identity as u64;
    assert_eq!(refused(Role::Client, "c", &good).await, identity, "a client is no peer");
    assert_eq!(refused(Role::Node, "n1", &good).await, identity, "the name is another member's");
    let stranger = PeerHello { from: NodeId(3), ..good.clone() };
    assert_eq!(refused(Role::Node, "n2", &stranger).await, CloseCode::Stranger as u64, "no such member");
    let misled = PeerHello { to: NodeId(9), ..good.clone() };
    assert_eq!(refused(Role::Node, "n2", &misled).await, identity, "meant for another node");
    let elsewhere = PeerHello { cluster: ClusterId(8), ..good.clone() };
    assert_eq!(refused(Role::Node, "n2", &elsewhere).await, CloseCode::Cluster as u64);
    let newer = PeerHello { version: NEWEST + 1, newest: Some(NEWEST + 3), ..good.clone() };
    assert_eq!(refused(Role::Node, "n2", &newer).await, CloseCode::Version as u64);
    let older = PeerHello { version: 1, newest: None, ..good.clone() };
    assert_eq!(refused(Role::Node, "n2", &older).await, CloseCode::Version as u64);

    // The correct hello is accepted.
    let connection = cluster.connect(&server, Role::Node, "n2").await;
    let mut stream = connection.open_uni().await.unwrap();
    let mut bytes = Vec::new();
    encode_named(&mut bytes, NEWEST, Kind::PeerHello, 0, &good);
    let message: PeerMessage = PeerMessage::Query(Query::CountAsk { request_id: 1, queue: None });
    encode_compact(&mut bytes, NEWEST, Kind::Peer, 0, &message);
    stream.write_all(&bytes).await.unwrap();
    stream.finish().unwrap();
    stream.stopped().await.unwrap();
    until(|| server.metrics().get(Counter::PeerReceived) == 1).await;
    server.shutdown().await;
}

/// Founds a cluster of two nodes.
async fn found(cluster: &Cluster, first: &Server, second: &Server) {
    let (one, two) = (answers(cluster, first).await, answers(cluster, second).await);
    let init = Request::Initialize(Box::new(genesis(&[(&one, &one.address), (&two, &two.address)])));
    for server in [first, second] {
        cluster.caller().call(&server.address().to_string(), &init).await.unwrap();
    }
}

/// Goal: a joining node finds a member although another address of the same name leads to a node without a cluster.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_is_found_at_any_address_of_its_name() {
    let cluster = Cluster::new();
    create(cluster.authority.path(), Role::Node, "n3", &["127.0.0.1".to_owned()], DAYS, Present::Kept).unwrap();
    let (spare, first, second) =
        (cluster.start("n3", &[]).await, cluster.start("n1", &[]).await, cluster.start("n2", &[]).await);
    let at = |server: &Server| server.address().to_string();
    let none = cluster.caller().member(&[at(&spare)]).await.unwrap_err();
    assert!(none.is_lasting() && none.to_string().contains("no cluster yet"), "{none}");
    found(&cluster, &first, &second).await;
    let (_, member) = cluster.caller().member(&[at(&spare), at(&first)]).await.unwrap();
    assert_eq!(member.node, answers(&cluster, &first).await.node);
    for server in [spare, first, second] {
        server.shutdown().await;
    }
}

/// Waits for a condition that must become true.
async fn until(mut condition: impl FnMut() -> bool) {
    let poll = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, poll).await.expect("it comes in time");
}

/// The hint leads to another node with the peer's name and certificate.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hint_that_leads_to_a_namesake_does_not_hide_the_peer() {
    let cluster = Cluster::new();
    let first = cluster.start("n1", &[]).await;
    let second = cluster.start("n2", &[]).await;
    found(&cluster, &first, &second).await;
    assert!(first.serving().await);
    let address = first.address().to_string();
    first.shutdown().await;
    let namesake = cluster.start("n2", &[("data", &cluster.data.path().join("other").display().to_string())]).await;
    let more: &[(&str, &str)] = &[("listen", &address), ("peers", &format!("n2={}", namesake.address()))];
    let first = cluster.start("n1", more).await;
    assert!(tokio::time::timeout(PATIENCE, first.serving()).await.expect("both vote, so each has found the other"));
    // The hint is followed, though the peer may have been faster to dial.
    until(|| namesake.metrics().get(Counter::ConnectionsRefused) > 0).await;
    namesake.shutdown().await;
    tokio::join!(first.shutdown(), second.shutdown());
}

/// A node of the version before is a member as any other, and both sides of a link know its version, also after the upgrade.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_has_the_version_that_both_speak() {
    const OLDEST: u8 = Versions::SPOKEN.oldest;
    let cluster = Cluster::new();
    let first = cluster.start("n1", &[]).await;
    let second = cluster.start("n2", &[("protocol_version_max", &OLDEST.to_string())]).await;
    found(&cluster, &first, &second).await;
    shows(&cluster, &first, &[("n1", NEWEST), ("n2", OLDEST)]).await;
    shows(&cluster, &second, &[("n1", NEWEST), ("n2", OLDEST)]).await;
    let address = second.address().to_string();
    second.shutdown().await;
    let second = cluster.start("n2", &[("listen", &address)]).await;
    shows(&cluster, &first, &[("n1", NEWEST), ("n2", NEWEST)]).await;
    shows(&cluster, &second, &[("n1", NEWEST), ("n2", NEWEST)]).await;
    assert_eq!(first.metrics().get(Counter::FramesRefused) + second.metrics().get(Counter::FramesRefused), 0);
    first.shutdown().await;
    second.shutdown().await;
}

/// A side without a common version connects under the first protocol name, and receives the refusal, whether it is a client or a
/// node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_side_without_a_common_version_is_told_so() {
    let cluster = Cluster::new();
    let server = cluster.start("n1", &[]).await;
    let me = answers(&cluster, &server).await;
    let speaks = Versions { oldest: NEWEST + 1, newest: NEWEST + 1 };
    let greet = async |role: Role, name: &str| {
        let config = peer_config(&cluster.credentials(role, name), speaks).unwrap().config;
        let endpoint = endpoint("127.0.0.1:0".parse().unwrap(), None).unwrap();
        let connection = endpoint.connect_with(config, server.address(), "127.0.0.1").unwrap().await.unwrap();
        let version = version_of(&connection).unwrap();
        assert!(!speaks.contains(version) && !Versions::SPOKEN.contains(version), "{version}");
        let mut bytes = Vec::new();
        let stream = if role == Role::Client {
            let hello = Request::Hello { name: "of a later release".into(), bare: true };
            encode_named(&mut bytes, version, Kind::Request, 0, &hello);
            let (mut send, receive) = connection.open_bi().await.unwrap();
            send.write_all(&bytes).await.unwrap();
            (send, Some(receive))
        } else {
            let speaker = Speaker { node: NodeId(2), process: 1, speaks };
            encode_named(&mut bytes, version, Kind::PeerHello, 0, &speaker.hello(ClusterId(7), me.node, false));
            let mut send = connection.open_uni().await.unwrap();
            send.write_all(&bytes).await.unwrap();
            (send, None)
        };
        (connection, stream)
    };
    assert_eq!(close_code(async || greet(Role::Client, "c").await).await, CloseCode::Version as u64);
    assert_eq!(close_code(async || greet(Role::Node, "n2").await).await, CloseCode::Version as u64);
    server.shutdown().await;
}

/// Waits until a node, as its peers hear it, shows these versions.
async fn shows(cluster: &Cluster, server: &Server, versions: &[(&str, u8)]) {
    let address = server.address().to_string();
    let poll = async {
        loop {
            let Response::Nodes(mut nodes) = cluster.caller().call(&address, &Request::Nodes).await.unwrap() else {
                panic!("nodes were asked for");
            };
            nodes.sort_by(|one, other| one.name.cmp(&other.name));
            let shown: Vec<_> =
                nodes.iter().map(|node| (node.name.as_str(), node.version.unwrap_or_default())).collect();
            if shown == versions && nodes.iter().all(|node| node.alive) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, poll).await.expect("it comes in time");
}

/// Peers would refuse a node whose log belongs to another member, so it refuses to start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_of_another_member_is_refused_at_the_start() {
    let cluster = Cluster::new();
    let server = cluster.start("n1", &[]).await;
    let me = answers(&cluster, &server).await;
    let init = Request::Initialize(Box::new(genesis(&[(&me, &me.address)])));
    cluster.caller().call(&server.address().to_string(), &init).await.unwrap();
    server.shutdown().await;
    let mistaken = settings(cluster.authority.path(), "n2", &cluster.data.path().join("n1"), &[]);
    let error = start(&mistaken).await.unwrap_err();
    assert!(matches!(&error, StartError::Open(OpenError::Member { member, .. }) if member == "n1"), "{error}");
    assert!(error.to_string().contains("--data"), "{error}");
    cluster.start("n1", &[]).await.shutdown().await;
}

/// Captures log lines for a test.
#[derive(Clone, Default)]
pub(in crate::runtime) struct Logged(Arc<std::sync::Mutex<Vec<u8>>>);

impl Logged {
    pub(in crate::runtime) fn lines(&self) -> Vec<String> {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap().lines().map(str::to_owned).collect()
    }
}

impl std::io::Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Two nodes know each other, each as a member of another cluster. On one thread, so that all log lines are captured.
#[tokio::test]
async fn a_node_that_its_peer_refuses_complains_once() {
    let logged = Logged::default();
    let writer = logged.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    let _subscribed = tracing::subscriber::set_default(subscriber);
    let cluster = Cluster::new();
    let patient: &[(&str, &str)] = &[("connect_timeout_ms", "60000")];
    let (first, second) = (cluster.start("n1", patient).await, cluster.start("n2", patient).await);
    let (one, two) = (answers(&cluster, &first).await, answers(&cluster, &second).await);
    let founding = genesis(&[(&one, &one.address), (&two, &two.address)]);
    for (server, number) in [(&first, 7), (&second, 8)] {
        let init = Request::Initialize(Box::new(Genesis { cluster: ClusterId(number), ..founding.clone() }));
        cluster.caller().call(&server.address().to_string(), &init).await.unwrap();
    }
    let before = second.metrics().get(Counter::ConnectionsRefused);
    until(|| second.metrics().get(Counter::ConnectionsRefused) >= before + 5).await;
    let complains = |line: &String| line.contains("the peer refuses this node");
    let mut told = logged.lines();
    told.retain(|line| line.contains("peer=n2") && (complains(line) || line.contains("no link to peer")));
    assert!(told.iter().any(complains), "{told:#?}");
    assert!(told.iter().filter(|line| complains(line)).all(|line| line.contains("ERROR")), "{told:#?}");
    // When the machine stalls, an attempt may fail in another way in between; then the complaint may be repeated.
    assert!(!told.windows(2).any(|two| two.iter().all(complains)), "{told:#?}");
    first.shutdown().await;
    second.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn noise_on_the_port_harms_nothing() {
    let cluster = Cluster::new();
    let server = cluster.start("n1", &[]).await;
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut random = norn_wire::random::Random::new(7);
    for round in 0..2_000usize {
        let mut datagram: Vec<u8> = (0..round % 1_400).map(|_| random.bits() as u8).collect();
        // Half of them resemble the first packet of a handshake.
        if round % 2 == 0 && datagram.len() > 5 {
            datagram[..5].copy_from_slice(&[0xc3, 0, 0, 0, 1]);
        }
        socket.send_to(&datagram, server.address()).unwrap();
    }
    answers(&cluster, &server).await;
    server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_frame_ends_its_own_connection_only() {
    let cluster = Cluster::new();
    let server = cluster.start("n1", &[("frame_timeout_ms", "200")]).await;
    let mut whole = Vec::new();
    encode_named(&mut whole, NEWEST, Kind::Request, 1, &Request::Identify);
    let damaged = |place: usize, value: u8| {
        let mut bytes = whole.clone();
        bytes[place] = value;
        bytes
    };
    let mut oversized = whole.clone();
    oversized[..4].copy_from_slice(&u32::try_from(FRAME_BYTES_MAX + 1).unwrap().to_be_bytes());
    let mut hello = Vec::new();
    encode_named(&mut hello, NEWEST, Kind::PeerHello, 0, &Response::Done);
    let (frame, slow) = (CloseCode::Frame as u64, CloseCode::Slow as u64);
    let attacks: Vec<(&str, Vec<u8>, u64)> = vec![
        ("another protocol", b"GET / HTTP/1.1\r\nHost: norn\r\n\r\n".to_vec(), frame),
        ("another version", damaged(4, 99), frame),
        ("an unknown kind", damaged(5, 77), frame),
        ("a kind that does not belong there", hello, frame),
        ("reserved bits", damaged(6, 1), frame),
        ("a wrong checksum", damaged(19, whole[19] ^ 1), frame),
        ("too long a frame", oversized, frame),
        ("a part of a header", whole[..HEADER_BYTES - 1].to_vec(), slow),
        ("a part of a body", whole[..whole.len() - 1].to_vec(), slow),
    ];
    let bystander = cluster.connect(&server, Role::Client, "c").await;
    for (what, bytes, code) in attacks {
        let attack = async || {
            let connection = cluster.connect(&server, Role::Client, "c").await;
            let (mut send, receive) = connection.open_bi().await.unwrap();
            send.write_all(&bytes).await.unwrap();
            (connection, (send, receive))
        };
        assert_eq!(close_code(attack).await, code, "{what}");
        answers(&cluster, &server).await;
    }
    assert!(bystander.close_reason().is_none());
    server.shutdown().await;
}

/// Neither a client that sends byte by byte nor many silent ones block other clients.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_and_silent_clients_hold_nobody_up() {
    let cluster = Cluster::new();
    let server = cluster.start("n1", &[("frame_timeout_ms", "300"), ("connections_max", "40")]).await;
    let mut silent = Vec::new();
    for _ in 0..20 {
        let connection = cluster.connect(&server, Role::Client, "c").await;
        let streams = connection.open_bi().await.unwrap();
        silent.push((connection, streams));
    }
    let mut bytes = Vec::new();
    encode_named(&mut bytes, NEWEST, Kind::Request, 1, &Request::Hello { name: "x".repeat(20_000), bare: true });
    let drip = async || {
        let slow = cluster.connect(&server, Role::Client, "c").await;
        let (mut send, receive) = slow.open_bi().await.unwrap();
        for byte in &bytes {
            if send.write_all(&[*byte]).await.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        (slow, (send, receive))
    };
    let served = async {
        for _ in 0..20 {
            answers(&cluster, &server).await;
        }
    };
    let (code, ()) = tokio::join!(close_code(drip), served);
    assert_eq!(code, CloseCode::Slow as u64);
    server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_many_connections_are_refused_and_room_comes_back() {
    let cluster = Cluster::new();
    let server = cluster.start("n1", &[("connections_max", "4")]).await;
    let mut held = Vec::new();
    for _ in 0..4 {
        let connection = cluster.connect(&server, Role::Client, "c").await;
        // A client's side of the handshake ends before the server's, which assigns the client's slot.
        ask(&connection, &Request::Identify, PATIENCE).await.unwrap();
        held.push(connection);
    }
    let credentials = cluster.credentials(Role::Client, "c");
    let fifth = async || (connect(&server, &credentials).await.unwrap(), ());
    assert_eq!(close_code(fifth).await, CloseCode::Busy as u64);
    // A node's certificate still gets a connection.
    let node = Caller::new(Role::Node.files(cluster.authority.path(), "n2"), PATIENCE).unwrap();
    node.identify(&server.address().to_string()).await.unwrap();
    held.clear();
    let caller = cluster.caller();
    let again = async { while caller.identify(&server.address().to_string()).await.is_err() {} };
    tokio::time::timeout(PATIENCE, again).await.expect("room comes back");
    server.shutdown().await;
}

/// Requests that are sent without waiting for answers are all answered, each under its number.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_requests_on_one_stream_are_all_answered() {
    use norn_host::frames::{Budget, FrameReader};
    let cluster = Cluster::new();
    let server = cluster.start("n1", &[]).await;
    let connection = cluster.connect(&server, Role::Client, "c").await;
    let (mut send, receive) = connection.open_bi().await.unwrap();
    let count = 3 * norn_model::limits::IN_FLIGHT_MAX as u64;
    let write = async move {
        let mut bytes = Vec::new();
        for number in 0..count {
            encode_named(&mut bytes, NEWEST, Kind::Request, number, &Request::Identify);
        }
        send.write_all(&bytes).await.unwrap();
        send.finish().unwrap();
    };
    let read = async {
        let mut frames = FrameReader::new(receive, NEWEST, FRAME_BYTES_MAX, PATIENCE, Budget::new(FRAME_BYTES_MAX));
        let mut seen = std::collections::BTreeSet::new();
        while let Some((header, body)) = frames.next().await.unwrap() {
            let response: Response = norn_wire::codec::decode_body(&header, body).unwrap();
            assert!(matches!(response, Response::Identity(_)));
            assert!(seen.insert(header.request));
        }
        seen.len() as u64
    };
    let ((), answered) = tokio::join!(write, read);
    assert_eq!(answered, count);
    server.shutdown().await;
}

#[test]
fn certificates_are_found_made_once_and_kept_private() {
    use std::os::unix::fs::PermissionsExt;
    let directory = authority();
    let place = directory.path();
    let key = Role::Node.files(place, "n1").key;
    assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    let before = std::fs::read(&key).unwrap();
    let make = |name: &str, hosts: &[String]| create(place, Role::Node, name, hosts, DAYS, Present::Kept);
    assert!(make("n1", &[]).unwrap_err().to_string().contains("not overwritten"));
    assert!(create_authority(place, DAYS).unwrap_err().to_string().contains("not overwritten"));
    assert_eq!(std::fs::read(&key).unwrap(), before);
    for bad in ["", "N1", "a.b", "-a", "a/b", &"x".repeat(64)] {
        assert!(make(bad, &[]).is_err(), "{bad:?}");
    }
    for bad in ["n2.node.norn", "a b", "", "x.NORN"] {
        assert!(make("n9", &[bad.to_owned()]).is_err(), "{bad:?}");
    }

    let principal = own_principal(&load(&Role::Node.files(place, "n1")).unwrap()).unwrap();
    assert_eq!((&*principal.name, principal.node), ("n1", true));
    let client = own_principal(&load(&find_client(place).unwrap()).unwrap()).unwrap();
    assert_eq!((&*client.name, client.node), ("c", false));

    let data = |name: &str| PathBuf::from("/var/lib").join(name);
    assert_eq!(find_node(place, Some("n2"), &data("n1")).unwrap().0, "n2");
    assert_eq!(find_node(place, None, &data("n1")).unwrap().0, "n1");
    assert!(find_node(place, None, &data("other")).unwrap_err().to_string().contains("--name"));
    std::fs::remove_file(place.join("node-n2.crt")).unwrap();
    assert_eq!(find_node(place, None, &data("other")).unwrap().0, "n1");
}
