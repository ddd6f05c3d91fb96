//! The checks of a machine without a node, beside one, and with what is wrong there.

use super::*;
use clap::Parser;
use norn_client::api::CheckOutcome;
use norn_host::disk::FileDisk;
use norn_model::record::Record;
use norn_node::runtime::certificates::{DAYS, Present, Role, create, create_authority};
use norn_storage::{Identity, Log, LogConfig};
use norn_wire::NodeId;
use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt;

#[derive(Parser)]
struct Flags {
    #[command(flatten)]
    options: Options,
}

fn global(connect: &[&str], certs: Option<&Path>) -> Global {
    let connect = connect.iter().map(|address| (*address).to_owned()).collect();
    Global { connect, certs: certs.map(Path::to_owned), json: true, timeout: None, store: None }
}

fn options(flags: &[String]) -> Options {
    let words = std::iter::once("doctor".to_owned()).chain(flags.iter().cloned());
    Flags::try_parse_from(words).unwrap_or_else(|error| panic!("{error}")).options
}

/// A machine with certificates of node `n1`, and no node.
struct Bench {
    directory: tempfile::TempDir,
}

impl Bench {
    fn new() -> Bench {
        let directory = tempfile::tempdir().unwrap();
        let certs = directory.path().join("certs");
        create_authority(&certs, DAYS).unwrap();
        create(&certs, Role::Node, "n1", &["localhost".to_owned()], 100, Present::Kept).unwrap();
        Bench { directory }
    }

    fn certs(&self) -> PathBuf {
        self.directory.path().join("certs")
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("n1")
    }

    fn machine(&self, more: &[&str]) -> Result<Machine, Failure> {
        let data = self.data().display().to_string();
        let mut flags: Vec<String> = ["--data", &data].map(str::to_owned).to_vec();
        if !more.contains(&"--listen") {
            flags.extend(["--listen", "127.0.0.1:0"].map(str::to_owned));
        }
        flags.extend(more.iter().map(|flag| (*flag).to_owned()));
        Machine::new(options(&flags).settings.sources(&global(&[], Some(&self.certs())))?)
    }

    async fn findings(&self, more: &[&str]) -> BTreeMap<String, Finding<'static>> {
        let mut report = Report::new(Output::new(std::io::sink(), std::io::sink(), true));
        let machine = self.machine(more).unwrap_or_else(|failure| panic!("{failure:?}"));
        machine.examine(&mut report).await;
        let findings = report.findings().iter();
        let all: BTreeMap<String, Finding<'static>> =
            findings.map(|finding| (finding.check.to_string(), finding.clone())).collect();
        assert_eq!(all.len(), 11, "each check has one finding: {all:?}");
        all
    }

    fn write_log(&self, records: usize) {
        let disk = FileDisk::open(&self.data()).unwrap();
        let draw = || Identity { node: NodeId(7), incarnation: 1 };
        let mut log = Log::open(disk, LogConfig::DEFAULT, draw).unwrap();
        log.replay(|_| Ok(())).unwrap();
        log.append(&vec![Record::Boot { count: 1 }; records]).unwrap();
        log.sync().unwrap();
    }
}

fn outcomes<'a>(findings: &'a BTreeMap<String, Finding<'static>>, checks: &[&'a str]) -> Vec<(&'a str, CheckOutcome)> {
    checks.iter().map(|check| (*check, findings[*check].outcome)).collect()
}

fn files(directory: &Path) -> Vec<(PathBuf, u64)> {
    let mut files: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.path(), entry.metadata().unwrap().len()))
        .collect();
    files.sort();
    files
}

/// Goal: on a machine that is ready for a node nothing fails, and nothing is made there.
#[tokio::test]
async fn a_machine_without_a_node_is_found_ready_and_left_as_it_was() {
    let bench = Bench::new();
    let findings = bench.findings(&[]).await;
    assert!(findings.values().all(|finding| finding.outcome != CheckOutcome::Fail), "{findings:?}");
    let ok = ["settings", "certificates", "address", "log"].map(|check| (check, CheckOutcome::Ok));
    assert_eq!(outcomes(&findings, &["settings", "certificates", "address", "log"]), ok, "{findings:?}");
    assert!(findings["sync_latency"].seen.starts_with("not checked: "), "{findings:?}");
    assert!(!bench.data().exists());

    fs::create_dir(bench.data()).unwrap();
    fs::set_permissions(bench.data(), Permissions::from_mode(0o700)).unwrap();
    let findings = bench.findings(&[]).await;
    assert_eq!(findings["data_directory"].outcome, CheckOutcome::Ok, "{findings:?}");
    assert!(findings["sync_latency"].seen.starts_with("20 syncs: median "), "{findings:?}");
    assert_eq!(files(&bench.data()), []);
}

#[tokio::test]
async fn wrong_certificates_fail_and_leave_the_other_checks() {
    let bench = Bench::new();
    let (key, certificate) = (bench.certs().join("node-n1.key"), bench.certs().join("node-n1.crt"));
    fs::set_permissions(&key, Permissions::from_mode(0o644)).unwrap();
    let open = bench.findings(&[]).await;
    assert_eq!(open["certificates"].outcome, CheckOutcome::Warn, "{open:?}");

    let other = Bench::new();
    fs::copy(other.certs().join("ca.crt"), bench.certs().join("ca.crt")).unwrap();
    let of_another = bench.findings(&[]).await;
    fs::copy(other.certs().join("node-n1.key"), &key).unwrap();
    let unpaired = bench.findings(&[]).await;
    fs::remove_file(&certificate).unwrap();
    let missing = bench.findings(&[]).await;
    for (findings, text) in [
        (of_another, "it is not of the authority"),
        (unpaired, "cannot be used together"),
        (missing, "there is no node-NAME.crt"),
    ] {
        let Finding { outcome, seen, advice, .. } = &findings["certificates"];
        assert!(*outcome == CheckOutcome::Fail && seen.contains(text) && advice.is_some(), "{text}: {seen}");
        assert_eq!(findings["address"].outcome, CheckOutcome::Ok);
    }
}

#[tokio::test]
async fn certificates_that_end_soon_are_warned_about() {
    let bench = Bench::new();
    create(&bench.certs(), Role::Node, "n1", &[], 5, Present::Replaced).unwrap();
    let findings = bench.findings(&[]).await;
    let Finding { outcome, seen, .. } = &findings["certificates"];
    assert!(*outcome == CheckOutcome::Warn && seen.contains("the certificate expires on"), "{seen}");
}

/// Goal: an operator learns before the start what a full disk would refuse. Method: a limit of the directory, as other tests of full
/// disks have it.
#[tokio::test]
async fn a_directory_without_room_fails_and_one_with_little_is_warned_about() {
    const RESERVE: u64 = 1 << 20;
    let bench = Bench::new();
    fs::create_dir(bench.data()).unwrap();
    let fill = |bytes| File::create(bench.data().join("others.jsonl")).and_then(|file| file.set_len(bytes)).unwrap();
    let limited = ["--set", "reserve_bytes=1048576", "--set", "disk_bytes_max=33554432"];
    for (free, outcome, text) in [
        (RESERVE / 4, CheckOutcome::Fail, "a node starts with 327680"),
        (2 * RESERVE, CheckOutcome::Fail, "new tasks are refused"),
        (4 * RESERVE, CheckOutcome::Warn, "bytes of `disk_bytes_max` are free"),
        (20 * RESERVE, CheckOutcome::Ok, "bytes of `disk_bytes_max` are free"),
    ] {
        fill((32 << 20) - free);
        let findings = bench.findings(&limited).await;
        let room = &findings["room"];
        assert!(room.outcome == outcome && room.seen.contains(text), "{free}: {room:?}");
    }
}

#[tokio::test]
async fn a_directory_of_another_program_or_no_directory_fails() {
    let bench = Bench::new();
    fs::write(bench.data(), "a file").unwrap();
    assert_eq!(bench.findings(&[]).await["data_directory"].outcome, CheckOutcome::Fail);
    fs::remove_file(bench.data()).unwrap();
    fs::create_dir(bench.data()).unwrap();
    fs::write(bench.data().join("table.ibd"), "rows").unwrap();
    let findings = bench.findings(&[]).await;
    assert!(findings["data_directory"].seen.contains("files of another program"), "{findings:?}");
    assert_eq!(files(&bench.data()).len(), 1);
    fs::remove_file(bench.data().join("table.ibd")).unwrap();
    fs::set_permissions(bench.data(), Permissions::from_mode(0o777)).unwrap();
    assert_eq!(bench.findings(&[]).await["data_directory"].outcome, CheckOutcome::Warn);
}

#[tokio::test]
async fn heads_of_a_log_are_read_and_a_torn_one_fails() {
    let bench = Bench::new();
    bench.write_log(3);
    let before = files(&bench.data());
    let findings = bench.findings(&[]).await;
    assert!(
        findings["log"].seen.contains("1 files of node") && findings["log"].outcome == CheckOutcome::Ok,
        "{findings:?}"
    );
    let held = FileDisk::open(&bench.data()).unwrap();
    let beside = bench.findings(&[]).await;
    assert_eq!(beside["log"].outcome, CheckOutcome::Ok, "{beside:?}");
    assert_eq!(beside["address"].outcome, CheckOutcome::Warn, "a node that does not listen: {beside:?}");
    assert_eq!(files(&bench.data()), before);
    drop(held);
    let (segment, _) = before.iter().find(|(file, _)| file.extension().is_some_and(|end| end == "log")).unwrap();
    File::options().write(true).open(segment).unwrap().set_len(100).unwrap();
    let torn = &bench.findings(&[]).await["log"];
    assert!(torn.outcome == CheckOutcome::Fail && torn.seen.contains("the header is incomplete"), "{torn:?}");
}

#[tokio::test]
async fn an_address_in_use_by_another_program_fails() {
    let bench = Bench::new();
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let findings = bench.findings(&["--listen", &address]).await;
    let Finding { outcome, seen, advice, .. } = &findings["address"];
    assert!(*outcome == CheckOutcome::Fail && seen.contains("not by node n1"), "{seen}");
    assert!(advice.as_ref().is_some_and(|advice| advice.contains("ss -ulpn")), "{advice:?}");
    let wild = bench.findings(&["--listen", "0.0.0.0:0"]).await;
    assert!(wild["address"].seen.contains("--advertise"), "{wild:?}");
}

#[tokio::test]
async fn an_address_for_http_in_use_by_another_program_fails() {
    let bench = Bench::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = format!("http_listen={}", taken.local_addr().unwrap());
    let findings = bench.findings(&["--set", &listen]).await;
    let Finding { outcome, seen, advice, .. } = &findings["http_address"];
    assert!(*outcome == CheckOutcome::Fail && seen.contains("is in use"), "{seen}");
    assert!(advice.as_ref().is_some_and(|advice| advice.contains("ss -tlpn")), "{advice:?}");
    // Not the port of before: another test may have it by now.
    for (flags, seen) in [(&["--set", "http_listen=127.0.0.1:0"][..], "can be bound"), (&[], "no HTTP listener")] {
        let finding = &bench.findings(flags).await["http_address"];
        assert!(finding.outcome == CheckOutcome::Ok && finding.seen.contains(seen), "{finding:?}");
    }
}

#[tokio::test]
async fn refused_settings_of_a_file_are_a_finding_and_those_of_a_flag_an_error() {
    let bench = Bench::new();
    let file = bench.directory.path().join("norn.toml");
    fs::write(&file, "heartbeat_sm = 5\n").unwrap();
    let findings = bench.findings(&["--config", file.to_str().unwrap()]).await;
    assert_eq!(findings["settings"].outcome, CheckOutcome::Fail);
    let unchecked = findings.values().filter(|finding| finding.seen.starts_with("not checked: the settings")).count();
    assert_eq!(unchecked, 8, "{findings:?}");
    for flags in [["--set", "heartbeat_sm=5"], ["--set", "zone"]] {
        assert!(bench.machine(&flags).is_err_and(|failure| failure.is_usage()), "{flags:?}");
    }
}

/// Goal: each half runs where it is named, and a line that names neither, or one in part, ends at once.
#[test]
fn the_halves_are_found_by_the_flags() {
    let bench = Bench::new();
    let here = bench.directory.path();
    let certs = bench.certs();
    let place = |connect: &[&str], certs: Option<&Path>, machine: Option<&Machine>| {
        place(&global(connect, certs), machine, None, here)
    };
    let machine = bench.machine(&[]).unwrap();
    let node = Place::Said(vec!["h:1".to_owned()], Role::Node.files(&certs, "n1"));
    assert_eq!(place(&[], None, None).unwrap(), None);
    assert_eq!(place(&[], Some(&certs), Some(&machine)).unwrap(), None);
    assert!(place(&[], Some(&certs), None).is_err_and(|failure| failure.is_usage()));
    assert!(place(&["h:1"], None, None).is_err_and(|failure| failure.is_usage()));
    assert!(place(&["h:1"], Some(&certs), None).is_err(), "there is no client's certificate");
    assert_eq!(place(&["h:1"], Some(&certs), Some(&machine)).unwrap(), Some(node));
    let client = create(&certs, Role::Client, "c", &[], DAYS, Present::Kept).unwrap().files;
    let client = Place::Said(vec!["h:1".to_owned()], client);
    assert_eq!(place(&["h:1"], Some(&certs), Some(&machine)).unwrap(), Some(client));
    fs::create_dir(here.join(".norn")).unwrap();
    fs::write(here.join(".norn/client.toml"), "").unwrap();
    assert!(matches!(place(&[], Some(&certs), Some(&machine)), Ok(Some(Place::File(_)))));
}

#[tokio::test]
async fn a_bundle_has_what_was_found_and_no_key_and_overwrites_nothing() {
    let bench = Bench::new();
    bench.write_log(1);
    let machine = bench.machine(&[]).unwrap();
    let mut report = Report::new(Output::new(std::io::sink(), std::io::sink(), true));
    let heads = machine.examine(&mut report).await;
    let file = bench.directory.path().join("doctor.tar");
    let bundle = Bundle::new(&file).unwrap();
    bundle.write(report.findings(), machine.printed(), None, &heads).unwrap();
    let mut parts = BTreeMap::new();
    for entry in tar::Archive::new(File::open(&file).unwrap()).entries().unwrap() {
        let mut entry = entry.unwrap();
        let (name, mut text) = (entry.path().unwrap().display().to_string(), String::new());
        std::io::Read::read_to_string(&mut entry, &mut text).unwrap();
        parts.insert(name, text);
    }
    let names: Vec<&str> = parts.keys().map(String::as_str).collect();
    let expected = ["doctor.jsonl", "log-heads.jsonl", "settings.toml", "versions.json"];
    assert_eq!(names, expected.map(|name| format!("norn-doctor/{name}")));
    assert_eq!(parts["norn-doctor/doctor.jsonl"].lines().count(), 11);
    assert!(parts["norn-doctor/log-heads.jsonl"].contains("\"first_ordinal\":1"), "{parts:?}");
    assert!(!parts.values().any(|text| text.contains("PRIVATE KEY")));
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);

    let before = fs::read(&file).unwrap();
    assert!(Bundle::new(&file).is_err_and(|failure| format!("{failure:?}").contains("is not overwritten")));
    assert!(bundle.write(&[], None, None, &[]).is_err(), "another has made it meanwhile");
    assert_eq!(fs::read(&file).unwrap(), before);
    assert!(Bundle::new(&bench.directory.path().join("none/doctor.tar")).is_err_and(|failure| failure.is_usage()));
    assert_eq!(files(bench.directory.path()).len(), 3, "no half of an archive is left");
}

/// Goal: a cluster that does not answer fails, and each of its checks says so.
#[tokio::test]
async fn a_cluster_that_does_not_answer_fails() {
    let bench = Bench::new();
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let files = Role::Node.files(&bench.certs(), "n1");
    let place = Place::Said(vec![silent.local_addr().unwrap().to_string()], files);
    let global = Global { timeout: Some(1_000), ..global(&[], None) };
    let carrier = Carrier::connect(&place, &global, false).await.map_err(|failure| failure.error().clone());
    let mut report = Report::new(Output::new(std::io::sink(), std::io::sink(), true));
    assert!(examine_cluster(carrier, &mut report).await.is_none());
    let findings = report.findings();
    assert_eq!((&*findings[0].check, findings[0].outcome), ("cluster", CheckOutcome::Fail), "{findings:?}");
    assert!(findings[1..].iter().all(|finding| finding.seen == "not checked: no node answers"), "{findings:?}");
    assert_eq!(report.finish().code(), 6);
}
