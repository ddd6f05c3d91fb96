//! Certificates at real nodes: renewed, replaced by wrong ones, expired.

use norn_client::client::{Client, ClientConfig};
use norn_tests::cli::{self, Cli};
use norn_tests::cluster::{Cluster, ClusterOptions};
use norn_tests::wait::until;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair, date_time_ymd};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A setting with which files are read again only at SIGHUP.
const SELDOM: &str = "certs_check_ms=3600000";
/// A setting with which a change is noticed soon.
const OFTEN: &str = "certs_check_ms=100";
/// Message of a node that uses new files.
const TAKEN: &str = "new certificate files are in use";
/// Message of a node that rejects new files.
const REFUSED: &str = "the certificate files have changed and cannot be used";

fn cluster(nodes: usize, setting: &str) -> Cluster {
    Cluster::start_with(ClusterOptions { nodes, settings: vec![setting.to_owned()], ..ClusterOptions::default() })
}

fn norn(cluster: &Cluster, arguments: &[&str]) {
    cli::run(cluster.directory(), arguments).done();
}

/// Creates another authority with certificates of the client and of all nodes.
fn other_authority(cluster: &Cluster, nodes: usize) -> PathBuf {
    norn(cluster, &["cert", "ca", "--dir", "other"]);
    norn(cluster, &["cert", "client", "tests", "--dir", "other"]);
    for index in 0..nodes {
        norn(cluster, &["cert", "node", cluster.name(index), "--host", "127.0.0.1", "--dir", "other"]);
    }
    cluster.directory().join("other")
}

/// Replaces files of one directory by those of another, each atomically.
fn put(from: &Path, to: &Path, which: impl Fn(&str) -> bool) {
    for entry in fs::read_dir(from).expect("it is there").flatten() {
        let name = entry.file_name().into_string().expect("it is text");
        if which(&name) {
            copy(&entry.path(), &to.join(name));
        }
    }
}

/// Replaces a file atomically, so that a node that reads meanwhile finds either the old or the new text.
fn write(file: &Path, text: impl AsRef<[u8]>) {
    let half = file.with_added_extension("half");
    fs::write(&half, text).expect("it can be written");
    fs::rename(half, file).expect("it can be renamed");
}

fn copy(from: &Path, to: &Path) {
    write(to, fs::read(from).expect("it is there"));
}

fn is_answered(cluster: &Cluster, certificates: &Path) -> bool {
    let cli = Cli::new(cluster.directory(), cluster.addresses(), certificates).patient();
    cli.json(&["count"]).code == Some(0)
}

/// Whether a client is refused because of certificates.
fn is_refused(cluster: &Cluster, certificates: &Path) -> bool {
    let cli = Cli::new(cluster.directory(), cluster.addresses(), certificates);
    let answer = cli.json(&["--timeout", "3s", "count"]);
    answer.code == Some(1) && answer.stdout.contains("certificate")
}

fn count(text: &str, words: &str) -> usize {
    text.matches(words).count()
}

/// Goal: a node uses a new authority for new connections after SIGHUP, and interrupts no client. Method: the client that was connected
/// before could not reconnect, because it keeps its old files.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_takes_new_certificates_at_sighup_and_open_connections_go_on() {
    let cluster = cluster(1, SELDOM);
    let (certificates, old) = (cluster.certificates(), cluster.directory().join("old"));
    fs::create_dir(&old).expect("a new directory");
    put(&certificates, &old, |_| true);
    let file = |name: &str| old.join(name);
    let config =
        ClientConfig::new(cluster.addresses(), file("ca.crt"), file("client-tests.crt"), file("client-tests.key"));
    let open = Client::connect(ClientConfig { request_timeout: Duration::from_secs(60), ..config }).await;
    let open = open.expect("certificates and a socket");
    open.count(None, None).await.expect("it is connected");

    let new = other_authority(&cluster, 1);
    put(&new, &certificates, |name| name == "ca.crt" || name.starts_with("node-"));
    until("a client of the new authority is refused", || is_refused(&cluster, &new));
    cluster.hang_up(0);
    until("it says so", || cluster.log(0).contains(TAKEN));
    assert!(is_answered(&cluster, &new), "the new authority counts");
    until("the old one does not", || is_refused(&cluster, &old));
    open.count(None, None).await.expect("what is open goes on");

    // Another SIGHUP, without a change.
    cluster.hang_up(0);
    until("it says that", || cluster.log(0).contains("the certificate files are those in use"));
    assert_eq!(count(&cluster.log(0), TAKEN), 1);
    open.close().await;
}

/// Goal: wrong files change nothing and are reported once, and correct ones are noticed without a signal.
#[test]
fn broken_files_are_reported_and_not_used_and_right_ones_are_noticed() {
    let cluster = cluster(1, OFTEN);
    let certificates = cluster.certificates();
    let broken = certificates.join("node-n1.crt");
    let good = fs::read(&broken).expect("it is there");
    write(&broken, "nonsense");
    until("it says that it does not use it", || cluster.log(0).contains(REFUSED));
    assert!(cluster.log(0).contains("node-n1.crt: "), "it says which file");
    for _ in 0..3 {
        assert!(is_answered(&cluster, &certificates), "the old ones are in use");
    }
    assert_eq!(count(&cluster.log(0), REFUSED), 1, "it is said once");
    cluster.hang_up(0);
    until("an operator who asks hears it again", || count(&cluster.log(0), REFUSED) == 2);

    // The key of another certificate, and another node's certificate.
    write(&broken, &good);
    norn(&cluster, &["cert", "node", "n2", "--host", "127.0.0.1", "--dir", "certs"]);
    copy(&certificates.join("node-n2.key"), &certificates.join("node-n1.key"));
    until("it misses the key", || cluster.log(0).contains("cannot be used together"));
    copy(&certificates.join("node-n2.crt"), &broken);
    until("it misses its name", || cluster.log(0).contains("the certificate of node"));
    assert!(is_answered(&cluster, &certificates), "the old ones are in use");
    assert_eq!(count(&cluster.log(0), TAKEN), 0);

    norn(&cluster, &["cert", "node", "n1", "--host", "127.0.0.1", "--dir", "certs", "--renew", "--days", "10"]);
    until("it notices", || cluster.log(0).contains(TAKEN));
    assert!(cluster.log(0).contains("valid_until=2"), "it says until when");
    let warned = || cluster.log(0).contains("node-n1.crt: the certificate expires on 2");
    until("it warns of what ends soon", warned);
    assert!(is_answered(&cluster, &certificates));
}

/// Goal: a cluster changes from one authority to another while it serves, and a node that restarts meanwhile connects to the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_passes_to_another_authority_while_it_serves() {
    let mut cluster = cluster(3, OFTEN);
    let certificates = cluster.certificates();
    let new = other_authority(&cluster, 3);
    let old = cluster.directory().join("old");
    fs::create_dir(&old).expect("a new directory");
    put(&certificates, &old, |_| true);
    let taken = |cluster: &Cluster, times: usize| {
        for index in 0..3 {
            let what = format!("{} takes the files for the {times}. time", cluster.name(index));
            until(&what, || count(&cluster.log(index), TAKEN) >= times);
        }
    };
    let read = |directory: &Path| fs::read_to_string(directory.join("ca.crt")).expect("it is there");
    let (both, new_alone) = (cluster.directory().join("both"), read(&new));
    fs::create_dir(&both).expect("a new directory");
    fs::write(both.join("ca.crt"), format!("{}{}", read(&old), read(&new))).expect("it can be written");
    put(&both, &certificates, |_| true);
    taken(&cluster, 1);
    for directory in [&old, &new] {
        put(&both, directory, |_| true);
        assert!(is_answered(&cluster, directory), "clients of both authorities are served");
    }
    put(&new, &certificates, |name| name.starts_with("node-") || name.starts_with("client-"));
    taken(&cluster, 2);
    // A node that restarts between two steps works like the others.
    cluster.kill(1);
    cluster.restart(1);
    cluster.wait_ready(1);
    cluster.wait_led(&[0, 1, 2], &[0, 1, 2]).await;
    assert!(is_answered(&cluster, &old), "clients of the old authority are still served");
    fs::write(both.join("ca.crt"), new_alone).expect("it can be written");
    put(&both, &certificates, |_| true);
    until("no node serves clients of the old authority", || is_refused(&cluster, &old));
    cluster.kill(2);
    cluster.restart(2);
    cluster.wait_ready(2);
    cluster.wait_led(&[0, 1, 2], &[0, 1, 2]).await;
    let status = || cluster.cli().patient().json(&["status"]).done().object();
    until("all hear each other", || status()["nodes"]["alive"] == 3);
}

/// Issues a certificate by the cluster's authority, valid from one year to another, in place of an existing one.
fn make_valid(cluster: &Cluster, stem: &str, name: &str, from: i32, until: i32) {
    let certificates = cluster.certificates();
    let text = fs::read_to_string(certificates.join("ca.key")).expect("it is there");
    let mut authority = CertificateParams::default();
    authority.distinguished_name = rcgen::DistinguishedName::new();
    authority.distinguished_name.push(DnType::CommonName, "Norn certificate authority");
    let issuer = Issuer::new(authority, KeyPair::from_pem(&text).expect("a key"));
    let mut params = CertificateParams::new(vec![name.to_owned(), "127.0.0.1".to_owned()]).expect("names");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    (params.not_before, params.not_after) = (date_time_ymd(from, 1, 2), date_time_ymd(until, 3, 4));
    let key = KeyPair::generate().expect("a key");
    let certificate = params.signed_by(&key, &issuer).expect("it can be signed");
    write(&certificates.join(format!("{stem}.crt")), certificate.pem());
    write(&certificates.join(format!("{stem}.key")), key.serialize_pem());
}

/// Goal: nodes and commands refuse a certificate outside its validity at once, and name its file and date.
#[test]
fn an_expired_certificate_is_refused_at_the_start_with_file_and_date() {
    let cluster = Cluster::prepare(1, Vec::new());
    make_valid(&cluster, "node-n1", "n1.node.norn", 2019, 2020);
    let answer = cluster.fails_to_start(0);
    assert_eq!(answer.code, Some(1), "{answer:?}");
    for words in ["node-n1.crt: the certificate has expired on 2020-03-04", "norn cert"] {
        assert!(answer.stderr.contains(words), "{answer:?}");
    }
    make_valid(&cluster, "node-n1", "n1.node.norn", 2190, 2191);
    let answer = cluster.fails_to_start(0);
    assert_eq!(answer.code, Some(1), "{answer:?}");
    assert!(answer.stderr.contains("node-n1.crt: the certificate is valid from 2190-01-02"), "{answer:?}");

    make_valid(&cluster, "client-tests", "tests.client.norn", 2019, 2020);
    let init = ["cluster", "init", "--peers", cluster.address(0), "--certs", "certs", "--json"];
    for answer in [cluster.cli().json(&["count"]), cluster.cli().json(&["repl"]), cli::run(cluster.directory(), &init)]
    {
        // No node answers at the address: exit code 1 instead of 3 shows that none was asked.
        let refusal = answer.refusal(1);
        let message = refusal["message"].as_str().expect("it is text");
        assert!(message.contains("client-tests.crt: the certificate has expired on 2020-03-04"), "{message}");
        assert_eq!(refusal["retry"], "never");
    }
}

/// Goal: a warning precedes the expiry of a certificate.
#[test]
fn certificates_that_expire_soon_are_warned_of() {
    let mut cluster = Cluster::prepare(1, Vec::new());
    norn(&cluster, &["cert", "node", "n1", "--host", "127.0.0.1", "--dir", "certs", "--renew", "--days", "20"]);
    norn(&cluster, &["cert", "client", "tests", "--dir", "certs", "--renew", "--days", "29"]);
    cluster.restart(0);
    cluster.wait_ready(0);
    let log = cluster.log(0);
    let line = log.lines().find(|line| line.contains("node-n1.crt: the certificate expires on 2")).expect("it warns");
    assert!(line.contains("WARN") && line.contains("days") && line.contains("norn cert"), "{line}");
    cluster.init(&[0], &["--partitions", "1"]).done();
    let answer = cluster.cli().patient().json(&["count"]);
    answer.done().object();
    let warned =
        |line: &str| line.starts_with("warning: ") && line.contains("client-tests.crt: the certificate expires on 2");
    assert!(answer.stderr.lines().any(warned), "{answer:?}");

    norn(&cluster, &["cert", "client", "tests", "--dir", "certs", "--renew"]);
    let answer = cluster.cli().patient().json(&["count"]);
    assert!(!answer.done().stderr.contains("certificate"), "{answer:?}");
}

/// Goal: commands accept a key from a pipe, which can be read only once.
#[test]
fn a_key_that_comes_through_a_pipe_is_read_once() {
    let cluster = cluster(1, SELDOM);
    let (certificates, piped) = (cluster.certificates(), cluster.directory().join("piped"));
    fs::create_dir(&piped).expect("a new directory");
    put(&certificates, &piped, |name| name == "ca.crt" || name == "client-tests.crt");
    symlink("/dev/stdin", piped.join("client-tests.key")).expect("a new link");
    let key = fs::read(certificates.join("client-tests.key")).expect("it is there");
    let cli = Cli::new(cluster.directory(), cluster.addresses(), &piped).patient();
    cli.run_with(&["--json", "count"], &key).done().object();
}
