//! Garbage, strangers, operator errors, and torn logs.

use norn_client::client::{Client, ClientConfig};
use norn_client::session::Draft;
use norn_client::tls;
use norn_tests::ports::free_port;
use norn_tests::wait::{PATIENCE, eventually, found, until, within};
use norn_tests::{Answer, Cli, Cluster, ClusterOptions, Log, cli};
use norn_wire::{QueueName, State, Versions};
use quinn::{Connection, Endpoint, VarInt};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use std::fs;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use tokio::task::JoinSet;

/// Code with which a node closes a connection after data that is not a frame.
const NOT_A_FRAME: u32 = 2;
/// Newest protocol version that the node and a client of the same build speak.
const NEWEST: u8 = Versions::SPOKEN.newest;
/// Bytes before the body of a frame.
const HEADER_BYTES: usize = 20;
/// Largest body of a client's frame.
const FRAME_BYTES_MAX: u32 = 16 << 20;

fn single() -> Cluster {
    Cluster::start_with(ClusterOptions { nodes: 1, partitions: 4, ..ClusterOptions::default() })
}

fn serves(cli: &Cli) {
    cli.clone().patient().json(&["enqueue", "probe", "data"]).done();
}

/// Pseudo-random bytes, the same in every run.
fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..length).map(|_| next()).collect()
}

#[test]
fn garbage_on_the_port_changes_nothing() {
    let cluster = Cluster::start();
    let cli = cluster.cli();
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    for round in 0..2_000_u64 {
        let mut datagram = noise(round as usize * 7 % 1_400, round);
        // Some datagrams look like the start of a connection.
        if let Some(first) = datagram.first_mut().filter(|_| round % 2 == 0) {
            *first |= 0xc0;
        }
        for index in 0..3 {
            // The system may refuse to send so much at once, which has the effect of a loss.
            let _ = socket.send_to(&datagram, cluster.address(index));
        }
    }
    serves(&cli);
    until("all hear each other", || cli.clone().patient().json(&["status"]).done().object()["nodes"]["alive"] == 3);
}

/// Creates another authority with certificates of a client and a node.
fn other_authority(cluster: &Cluster) -> PathBuf {
    let make = |arguments: &[&str]| cli::run(cluster.directory(), arguments).done().clone();
    make(&["cert", "ca", "--dir", "other"]);
    make(&["cert", "client", "tests", "--dir", "other"]);
    make(&["cert", "node", "n9", "--host", "127.0.0.1", "--dir", "other"]);
    cluster.directory().join("other")
}

/// A directory with certificates of one authority, but another one as the trusted authority.
fn that_trusts(cluster: &Cluster, certificates: &Path, name: &str, trusted: &Path) -> PathBuf {
    let mixed = cluster.directory().join(name);
    fs::create_dir(&mixed).expect("a new directory");
    for entry in fs::read_dir(certificates).expect("it is there").flatten() {
        fs::copy(entry.path(), mixed.join(entry.file_name())).expect("it can be copied");
    }
    fs::copy(trusted.join("ca.crt"), mixed.join("ca.crt")).expect("it can be copied");
    mixed
}

#[test]
fn strangers_are_refused_by_both_sides() {
    let cluster = Cluster::start();
    let other = other_authority(&cluster);
    let ours = cluster.certificates();
    let refused = |certificates: &Path, words: &str| {
        let cli = Cli::new(cluster.directory(), cluster.addresses(), certificates).patient();
        let error = cli.json(&["count"]).refusal(1);
        assert!(error["message"].as_str().is_some_and(|message| message.contains(words)), "{error}");
    };
    // The client does not trust the nodes. The nodes do not trust the client.
    refused(&other, "certificate");
    refused(&that_trusts(&cluster, &other, "liar", &ours), "certificate");
    for index in 0..3 {
        let peers = cluster.address(index);
        let answer =
            cli::run(cluster.directory(), &["cluster", "init", "--peers", peers, "--certs", "other", "--json"]);
        assert!(answer.refusal(1)["message"].as_str().is_some_and(|message| message.contains("certificate")));
    }
    serves(&cluster.cli());
}

/// A node of another authority takes over the address and the data of one of the cluster's nodes: no peer accepts its messages, and
/// the cluster continues without it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_another_authority_stays_out() {
    let mut cluster = Cluster::start();
    let cli = cluster.cli();
    serves(&cli);
    let certificates = cluster.certificates();
    fs::rename(&certificates, cluster.directory().join("ours")).expect("it can be moved");
    let ours = cluster.directory().join("ours");
    let make = |arguments: &[&str]| cli::run(cluster.directory(), arguments).done().clone();
    make(&["cert", "ca", "--dir", "certs"]);
    make(&["cert", "node", "n3", "--host", "127.0.0.1", "--dir", "certs"]);
    cluster.kill(2);
    cluster.restart(2);
    let others = Cli::new(cluster.directory(), vec![cluster.address(0).to_owned()], &ours);
    let silent = || {
        let nodes = others.json(&["nodes"]).lines();
        nodes.iter().any(|node| node["name"] == "n3" && node["alive"] == false)
    };
    until("it is not heard any more", silent);
    until("it complains", || cluster.log(2).contains("certificate"));
    let others = others.patient();
    others.json(&["enqueue", "probe", "data"]).done();
    assert_eq!(others.json(&["count"]).done().object()["count"], 2);

    // With the right certificates the node is accepted again.
    cluster.kill(2);
    fs::remove_dir_all(&certificates).expect("it can be removed");
    fs::rename(&ours, &certificates).expect("it can be moved");
    cluster.restart(2);
    cluster.wait_ready(2);
    cluster.wait_led(&[0, 1, 2], &[0, 1, 2]).await;
}

/// An endpoint with valid certificates.
fn client_endpoint(cluster: &Cluster) -> Endpoint {
    let file = |name: &str| cluster.certificates().join(name);
    let loaded = tls::load(&file("ca.crt"), &file("client-tests.crt"), &file("client-tests.key"));
    let transport = tls::transport(loaded.expect("they fit")).expect("they can be used");
    let mut endpoint = Endpoint::client("127.0.0.1:0".parse().expect("an address")).expect("a socket");
    endpoint.set_default_client_config(transport);
    endpoint
}

/// A raw connection with valid certificates.
async fn connect(cluster: &Cluster, index: usize) -> (Endpoint, Connection) {
    let endpoint = client_endpoint(cluster);
    let address = cluster.address(index).parse().expect("an address");
    let connecting = endpoint.connect(address, "127.0.0.1").expect("it is well formed");
    (endpoint, connecting.await.expect("the node lets us in"))
}

/// Sends bytes on a new stream; returns the code and the reason with which the node closes the connection.
async fn closed_after(cluster: &Cluster, bytes: &[u8], peer: bool) -> (VarInt, String) {
    let (_endpoint, connection) = connect(cluster, 0).await;
    // The node may close the connection before everything is sent.
    if peer {
        let mut send = connection.open_uni().await.expect("a stream");
        let _ = send.write_all(bytes).await;
    } else {
        let (mut send, _receive) = connection.open_bi().await.expect("a stream");
        let _ = send.write_all(bytes).await;
        // The stream stays open, because its end would count as an orderly end of the connection.
        std::mem::forget(send);
    }
    match within("the node closes", PATIENCE, connection.closed()).await {
        quinn::ConnectionError::ApplicationClosed(close) => {
            (close.error_code, String::from_utf8_lossy(&close.reason).into_owned())
        }
        other => panic!("closed otherwise: {other}"),
    }
}

/// The head of a frame: length, version, kind, request, checksum.
fn head(length: u32, version: u8, kind: u8) -> [u8; HEADER_BYTES] {
    let mut head = [0; HEADER_BYTES];
    head[..4].copy_from_slice(&length.to_be_bytes());
    head[4..6].copy_from_slice(&[version, kind]);
    head
}

/// Number of files that a process has open.
fn open_files(process: u32) -> usize {
    fs::read_dir(format!("/proc/{process}/fd")).expect("it runs").count()
}

/// Goal: a storm of connections exhausts neither the file descriptors of a node nor its service. Method: far more simultaneous
/// connections than the node accepts, while it may open hardly any more files.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_connections_passes_and_leaves_the_node_as_it_was() {
    const STORM: usize = 300;
    const TAKEN: u64 = 50;
    let settings = vec![format!("connections_max={TAKEN}")];
    let cluster =
        Cluster::start_with(ClusterOptions { nodes: 1, partitions: 4, settings, ..ClusterOptions::default() });
    let client = cluster.client_of(cluster.addresses(), PATIENCE).await;
    let queue = QueueName::new("mail").expect("a name");
    let enqueue = async || client.enqueue(Draft::new(queue.clone(), "x")).await.map(|acked| acked.id);
    enqueue().await.expect("the node serves");
    let files = open_files(cluster.process(0));
    let pid = Pid::from_raw(i32::try_from(cluster.process(0)).expect("a number")).expect("a process");
    let limit = Some(files as u64 + 8);
    let limit = Rlimit { current: limit, maximum: limit };
    prlimit(Some(pid), Resource::Nofile, limit).expect("its limit is ours to set");
    for _ in 0..2 {
        let endpoint = client_endpoint(&cluster);
        let address = cluster.address(0).parse().expect("an address");
        let mut storm = JoinSet::new();
        for _ in 0..STORM {
            let connecting = endpoint.connect(address, "127.0.0.1").expect("it is well formed");
            storm.spawn(async move { connecting.await.ok() });
        }
        enqueue().await.expect("a client that is there is served on");
        let answered = within("all are answered", PATIENCE, storm.join_all()).await;
        let open = || answered.iter().flatten().filter(|connection| connection.close_reason().is_none()).count();
        let shed = || async { (open() as u64 <= TAKEN).then_some(()) };
        eventually("those that are too many are closed", PATIENCE, shed).await;
        enqueue().await.expect("a client that is there is served on");
        drop((answered, endpoint));
        // A new client is served once the node has noticed that the connections are gone.
        serves(&cluster.cli());
    }
    let log = cluster.log(0);
    assert!(!log.contains("ERROR") && !log.contains("panicked"), "{log}");
    assert_eq!(client.count(Some(queue), Some(State::Ready)).await.expect("it is counted"), 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_frame_ends_the_connection() {
    let cluster = single();
    let code = VarInt::from_u32(NOT_A_FRAME);
    let cases = [
        ("over the bound", head(FRAME_BYTES_MAX + 1, NEWEST, 3).to_vec(), "at most"),
        ("4 GiB", head(u32::MAX, NEWEST, 3).to_vec(), "at most"),
        ("of another version", head(1, 9, 3).to_vec(), "version 9"),
        ("of an unknown kind", head(1, NEWEST, 77).to_vec(), "malformed"),
        ("a response", head(0, NEWEST, 4).to_vec(), ""),
        ("damaged", [head(4, NEWEST, 3).as_slice(), b"body"].concat(), "checksum"),
    ];
    for (name, bytes, words) in cases {
        let (closed, reason) = closed_after(&cluster, &bytes, false).await;
        assert!(closed == code && reason.contains(words), "{name}: {closed} {reason}");
    }
    let (closed, reason) = closed_after(&cluster, &head(FRAME_BYTES_MAX + 1, NEWEST, 1), true).await;
    assert!(closed == code && reason.contains("at most"), "a peer's hello: {closed} {reason}");
    let (closed, _) = closed_after(&cluster, &noise(4_096, 5), false).await;
    assert_eq!(closed, code, "noise");
    serves(&cluster.cli());
}

// E3
#[test]
fn a_data_directory_has_one_holder() {
    let mut cluster = single();
    let place = cluster.add_place();
    let other = cluster.address(place).to_owned();
    let arguments = ["start", "--certs", "certs", "--name", "n1", "--data", "n1", "--listen", &other];
    let answer = cli::run(cluster.directory(), &arguments);
    assert_eq!(answer.code, Some(1), "{answer:?}");
    for words in ["held by", &cluster.process(0).to_string(), "stop that process"] {
        assert!(answer.stderr.contains(words), "no {words:?} in {}", answer.stderr);
    }
    serves(&cluster.cli_at(0));
    // The lock does not outlive the process that holds it.
    cluster.kill(0);
    cluster.restart(0);
    cluster.wait_ready(0);
}

#[test]
fn a_cluster_is_founded_once() {
    let mut cluster = Cluster::start();
    let identity = |answer: &Answer| (answer.object()["cluster"].clone(), answer.object()["already"].clone());
    let again = cluster.init(&[0, 1, 2], &["--partitions", "16"]);
    let (first, already) = identity(again.done());
    assert_eq!(already, true);
    let reordered = cluster.init(&[2, 0, 1], &[]);
    assert_eq!(identity(reordered.done()), (first, true.into()));
    cluster.init(&[0, 1, 2], &["--partitions", "32"]).refusal(1);
    cluster.init(&[0, 1], &[]).refusal(1);

    // A fourth node that is not part of the cluster refuses all requests.
    let fourth = cluster.add_place();
    cluster.restart(fourth);
    cluster.wait_ready(fourth);
    cluster.init(&[0, 1, 2, fourth], &[]).refusal(1);
    let alone = cluster.cli_at(fourth);
    let error = alone.json(&["--timeout", "2s", "enqueue", "probe", "data"]).refusal(3);
    assert!(matches!(error["code"].as_str(), Some("not_ready" | "unavailable" | "unknown")), "{error}");
    let members = cluster.cli_at(0).json(&["nodes"]).done().lines();
    assert_eq!(members.len(), 3, "{members:?}");
    serves(&cluster.cli_at(0));
}

async fn client_at(cluster: &Cluster, index: usize) -> Client {
    cluster.client_of(vec![cluster.address(index).to_owned()], PATIENCE).await
}

/// A node that has lost its disk is a new node. It must not take part under the identity of the old one, whose promises it does not
/// know.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wiped_node_is_a_stranger() {
    let mut cluster = Cluster::start();
    let client = client_at(&cluster, 0).await;
    let queue = QueueName::new("kept").expect("a name");
    for number in 0..50 {
        client.enqueue(Draft::new(queue.clone(), format!("{number}"))).await.expect("the cluster serves");
    }
    let before = cluster.identity(&client, 2).await;
    cluster.kill(2);
    fs::remove_dir_all(cluster.data(2)).expect("it can be removed");
    cluster.restart(2);
    cluster.wait_ready(2);
    assert!(cluster.log(2).contains("no cluster yet"), "it waits to be told");
    assert!(!cluster.log(2).lines().last().is_some_and(|line| line.contains(&before.to_string())), "a new identity");
    cluster.wait_led(&[0, 1], &[0, 1]).await;
    let missed = || async {
        let nodes = client.nodes().await.ok()?;
        let lost = nodes.iter().find(|node| node.node == before).expect("it is a member still");
        (!lost.alive).then_some(())
    };
    eventually("the stranger does not pass for it", PATIENCE, missed).await;
    cluster.init(&[0, 1, 2], &[]).refusal(1);
    client.enqueue(Draft::new(queue.clone(), "more")).await.expect("two of three are enough");
    assert_eq!(client.count(Some(queue), Some(State::Ready)).await.ok(), Some(51));
}

/// A stopped node with some tasks in its log.
fn stopped_with_tasks() -> Cluster {
    let mut cluster = single();
    let lines: String = (0..200).map(|number| format!("task {number}\n")).collect();
    cluster.cli().patient().run_with(&["--json", "enqueue", "kept", "--lines", "-"], lines.as_bytes()).done();
    for _ in 0..20 {
        cluster.cli().patient().json(&["enqueue", "kept", "one more"]).done();
    }
    cluster.kill(0);
    cluster
}

fn restarts_with(cluster: &mut Cluster, count: u64) {
    cluster.restart(0);
    cluster.wait_ready(0);
    assert_eq!(cluster.cli().patient().json(&["count", "kept"]).done().object()["count"], count);
}

// E5
/// A crash in the middle of a write leaves the beginning of a record, which was never acknowledged. The start cuts it off.
#[test]
fn a_torn_tail_is_cut() {
    let mut cluster = stopped_with_tasks();
    let log = Log::of(&cluster, 0);
    let segment = log.path(log.segments().last().expect("there is one"));
    let whole = fs::read(&segment).expect("it can be read");
    // Free space follows the last record.
    let end = log.entries().last().expect("a record").last_byte() + 1;
    assert!(end + 4_096 < whole.len(), "there is space for it");
    for (torn, tail) in [(&[0, 0, 1][..], 3), (&[1; 300], 300), (&[0xfe; 4_096], 4_096)] {
        fs::write(&segment, [&whole[..end], torn, &whole[end + torn.len()..]].concat()).expect("it can be written");
        restarts_with(&mut cluster, 220);
        let cut = format!("cut_bytes={tail}");
        assert!(cluster.log(0).contains(&cut), "no {cut:?} in {}", cluster.log(0));
        cluster.kill(0);
        // The node has continued to write. The next round starts from the same bytes.
    }
    fs::write(&segment, &whole).expect("it can be written");
    restarts_with(&mut cluster, 220);
}

/// A node rejects the log of another node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_from_elsewhere_is_refused() {
    let mut cluster = Cluster::start();
    serves(&cluster.cli());
    cluster.kill_together(&[0, 1]);
    // n1 is started on the log of n2. That would make it n2, but its certificate is that of n1.
    fs::rename(cluster.data(0), cluster.directory().join("aside")).expect("it can be moved");
    fs::create_dir(cluster.data(0)).expect("a new directory");
    let theirs = Log::of(&cluster, 1);
    for segment in theirs.segments() {
        fs::copy(theirs.path(&segment), cluster.data(0).join(segment)).expect("it can be copied");
    }
    let answer = cluster.fails_to_start(0);
    assert_eq!(answer.code, Some(1), "{answer:?}");
    assert!(answer.stderr.contains("error: the log in") && answer.stderr.contains("node \"n2\""), "{}", answer.stderr);
    cluster.restart(1);
    cluster.wait_ready(1);
    cluster.wait_led(&[1, 2], &[1, 2]).await;
    let client = client_at(&cluster, 1).await;
    let nodes = client.nodes().await.expect("two of three are enough");
    assert!(nodes.iter().any(|node| node.name == "n1" && !node.alive), "{nodes:?}");
    fs::remove_dir_all(cluster.data(0)).expect("it can be removed");
    fs::rename(cluster.directory().join("aside"), cluster.data(0)).expect("it can be moved");
    cluster.restart(0);
    cluster.wait_ready(0);
    let whole = || async {
        let nodes = client.nodes().await.ok()?;
        nodes.iter().all(|node| node.alive).then_some(())
    };
    eventually("all three are there again", PATIENCE, whole).await;
}

/// Copies a directory, even while another process writes to it.
pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).expect("a new directory");
    for entry in fs::read_dir(from).expect("it is there").flatten() {
        if entry.file_type().expect("it is there").is_dir() {
            copy(&entry.path(), &to.join(entry.file_name()));
        } else {
            fs::copy(entry.path(), to.join(entry.file_name())).expect("it can be copied");
        }
    }
}

/// Waits until each node, queried alone, hears all others.
async fn all_alive(cluster: &Cluster) {
    for index in 0..3 {
        let client = client_at(cluster, index).await;
        let whole = || async {
            let nodes = client.nodes().await.ok()?;
            (nodes.len() == 3 && nodes.iter().all(|node| node.alive)).then_some(())
        };
        eventually("all three are well", PATIENCE, whole).await;
        client.close().await;
    }
}

// E3
/// A process on a copy of a data directory does not start while the original node runs, and that node never notices. After the node
/// has ended, it may be started at another address.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copied_directory_is_refused_while_its_node_runs() {
    let mut cluster = Cluster::start();
    for _ in 0..5 {
        cluster.cli().patient().json(&["enqueue", "kept", "data"]).done();
    }
    // All replicas have been written completely, so that the node soon answers a question about its identity.
    cluster.wait_agreed().await;
    copy(&cluster.data(1), &cluster.directory().join("copied"));
    let (original, elsewhere) = (cluster.address(1).to_owned(), format!("127.0.0.1:{}", free_port()));
    let answer = cluster.fails_to_start_on(1, "copied", &elsewhere);
    assert_eq!(answer.code, Some(1), "{answer:?}");
    assert!(!answer.stdout.contains("ready"), "{answer:?}");
    let error = answer.stderr.lines().find(|line| line.starts_with("error: ")).expect("it says why");
    let way_out = ["cluster add", "cluster replace", "stop the process"];
    for words in ["\"n2\"", "runs already", &original, "copied is a copy"].into_iter().chain(way_out) {
        assert!(error.contains(words), "no {words:?} in {error}");
    }

    // The node is still the same process, without trouble.
    all_alive(&cluster).await;
    assert!(!cluster.log(1).contains("ERROR"), "{}", cluster.log(1));
    let cli = cluster.cli_at(1).patient();
    for _ in 0..5 {
        cli.json(&["enqueue", "kept", "data"]).done();
        let claimed = cli.claim(&["kept", "--wait", "10s"]).done().object();
        let (id, token) = (claimed["id"].as_str().expect("an id"), claimed["token"].as_str().expect("a token"));
        cli.json(&["complete", id, token]).done();
    }
    cluster.wait_led(&[0, 1, 2], &[0, 1, 2]).await;

    // The node itself moves, with its own directory, once no process runs at its old address.
    cluster.terminate(1);
    cluster.relocate(1, &elsewhere);
    cluster.restart(1);
    let cli = cluster.cli_at(0);
    let set =
        || Some(cli.json(&["cluster", "set", "address", "n2", &elsewhere])).filter(|answer| answer.code != Some(3));
    found("enough nodes answer", set).done();
    cluster.wait_ready(1);
    all_alive(&cluster).await;
    cluster.wait_led(&[0, 1, 2], &[0, 1, 2]).await;
    serves(&cluster.cli_at(1));
}

/// A client that is given a wrong file names it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_files_are_named() {
    let cluster = Cluster::prepare(1, Vec::new());
    let file = |name: &str| cluster.certificates().join(name);
    let config =
        ClientConfig::new(["127.0.0.1:1"], file("ca.crt"), file("client-nobody.crt"), file("client-tests.key"));
    let error = Client::connect(config).await.expect_err("there is no such file").to_string();
    assert!(error.contains("client-nobody.crt"), "{error}");
}
