//! `norn dev`: creates and runs a whole cluster on this machine, with a REPL.
//!
//! ```text
//! .norn/client.toml    how clients find the cluster
//! .norn/certs/         authority, nodes and the client `dev`
//! .norn/n1/ ...        data directories
//! .norn/n1.log ...     output of the nodes
//! ```

use super::children::{Children, Ended, Plan};
use super::failure::{Failure, Outcome};
use super::former::Former;
use super::founding::{Wish, found};
use super::{Global, block_on, say, verbs};
use clap::Args;
use norn_host::clock::unix_seconds;
use norn_host::disk::is_of_log;
use norn_node::runtime::caller::Caller;
use norn_node::runtime::certificates::{
    AUTHORITY_DAYS, CertificateError, DAYS, Present, Role, create, prolong_authority, replace_authority, valid_until,
};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, IsTerminal};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// Default number of nodes.
const NODES_DEFAULT: u16 = 3;
/// Default port of the first node.
const BASE_PORT_DEFAULT: u16 = 7400;
/// Bounds of the first port, so that all nodes have valid ports.
const BASE_PORT_MIN: u16 = 1024;
const BASE_PORT_MAX: u16 = 65_000;
/// Distance from a node's port to the one for HTTP.
const HTTP_PORTS_BEHIND: u16 = 100;
/// Most nodes on one machine.
const NODES_MAX: u16 = 32;
/// Time limit for the answer of one node.
const CALL_TIMEOUT: Duration = Duration::from_secs(2);
/// Lines of a node's log shown when it does not start.
const LAST_LINES: usize = 5;
/// Least remaining days of a certificate when the cluster starts; otherwise it is renewed, so that a cluster may run this long.
const DAYS_LEFT_MIN: i64 = 183;
/// Least remaining days of the authority: longer than the certificates that it signs.
const AUTHORITY_DAYS_LEFT_MIN: i64 = 2 * DAYS as i64;
/// Name of the client whose certificate is made.
const CLIENT_NAME: &str = "dev";

/// Flags of `norn dev`.
#[derive(Debug, Args)]
pub struct Options {
    /// Number of nodes [default: 3, or as before].
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=i64::from(NODES_MAX)))]
    nodes: Option<u16>,
    /// Directory of the cluster's files.
    #[arg(long, value_name = "DIR", default_value = ".norn")]
    data: PathBuf,
    /// Port of the first node; the others follow [default: 7400, or as before].
    #[arg(long, value_parser = clap::value_parser!(u16).range(i64::from(BASE_PORT_MIN)..=i64::from(BASE_PORT_MAX)))]
    base_port: Option<u16>,
    /// Delete the cluster that was there before.
    #[arg(long)]
    fresh: bool,
    /// Serve in the foreground until SIGINT or SIGTERM; print one line `ready` on stdout once the cluster serves.
    #[arg(long)]
    no_repl: bool,
}

/// Directory of a development cluster.
#[derive(Debug)]
struct Layout {
    directory: PathBuf,
}

impl Layout {
    fn client_file(&self) -> PathBuf {
        self.directory.join("client.toml")
    }

    fn lock_file(&self) -> PathBuf {
        self.directory.join("lock")
    }

    /// Temporary name of the client file: the only file that a very early interrupted start leaves.
    fn client_file_half(&self) -> PathBuf {
        self.directory.join("client.toml.new")
    }

    /// Returns all paths in the directory, except for the lock.
    fn contents(&self) -> io::Result<Vec<PathBuf>> {
        let lock = self.lock_file();
        let entries = fs::read_dir(&self.directory)?.map(|entry| entry.map(|entry| entry.path()));
        entries.filter(|path| !path.as_ref().is_ok_and(|path| *path == lock)).collect()
    }

    fn certificates(&self) -> PathBuf {
        self.directory.join("certs")
    }

    fn data(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn log(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{name}.log"))
    }
}

/// Nodes and their ports.
#[derive(Debug, PartialEq, Eq)]
struct Shape {
    nodes: u16,
    base_port: u16,
}

impl Shape {
    fn names(&self) -> Vec<String> {
        (1..=self.nodes).map(|number| format!("n{number}")).collect()
    }

    fn addresses(&self) -> Vec<String> {
        self.ports().map(|port| format!("127.0.0.1:{port}")).collect()
    }

    /// Ports of the nodes.
    fn ports(&self) -> impl Iterator<Item = u16> + use<> {
        self.base_port..self.base_port + self.nodes
    }

    /// Ports of the nodes for HTTP.
    fn http_ports(&self) -> impl Iterator<Item = u16> + use<> {
        self.ports().map(|port| port + HTTP_PORTS_BEHIND)
    }
}

/// Runs a cluster until the person ends it.
pub fn run(options: Options, global: Global) -> Outcome {
    let layout = Layout { directory: options.data.clone() };
    let _lock = take_directory(&layout)?;
    let mut former = Former::of(&layout.directory, (1..=NODES_MAX).map(|number| layout.data(&format!("n{number}"))))?;
    former.leave_directories()?;
    if options.fresh {
        wipe(&layout)?;
    }
    let known = known_addresses(&layout)?;
    let (is_known, shape) = (known.is_some(), choose_shape(&options, known)?);
    let lost = if is_known { without_log(&layout, &shape) } else { None };
    check_ports(&shape, &mut former)?;
    make_files(&layout, &shape)?;
    let (children, mut ends) = Children::start(&plans(&layout, &shape))?;
    let outcome = block_on(serve(&layout, &shape, &children, &mut ends, lost, options.no_repl, &global));
    children.stop();
    outcome
}

/// Creates and locks the directory, and refuses a foreign one.
fn take_directory(layout: &Layout) -> Result<File, Failure> {
    let place = layout.directory.display();
    let at = |error: io::Error| Failure::refused(format!("{place}: {error}"));
    fs::create_dir_all(&layout.directory).map_err(at)?;
    let half = layout.client_file_half();
    let is_foreign = || layout.contents().map(|paths| paths.iter().any(|path| *path != half));
    if !layout.client_file().is_file() && is_foreign().map_err(at)? {
        return Err(Failure::refused(format!(
            "{place} is neither empty nor a directory of `norn dev` (it has no client.toml); nothing was touched, choose another with \
             --data; if it is one that has lost this file, put an empty one there, which is written anew"
        )));
    }
    let lock = File::options().create(true).truncate(false).write(true).open(layout.lock_file()).map_err(at)?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(fs::TryLockError::WouldBlock) => {
            return Err(Failure::refused(format!("another `norn dev` runs in {place}; stop it, or choose --data")));
        }
        Err(fs::TryLockError::Error(error)) => return Err(at(error)),
    }
    Ok(lock)
}

/// Empties the directory except for the lock, which is held.
fn wipe(layout: &Layout) -> Result<(), Failure> {
    let at = |error: io::Error| Failure::refused(format!("{}: {error}", layout.directory.display()));
    let client_file = layout.client_file();
    // The file that identifies the directory goes last, so that an interrupted wipe can be repeated.
    let mut paths = layout.contents().map_err(at)?;
    paths.sort_by_key(|path| *path == client_file);
    for path in paths {
        let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.map_err(at)?;
    }
    Ok(())
}

/// Returns advice if some nodes have lost their logs and others have them: the logs hold the nodes' identities in the cluster.
fn without_log(layout: &Layout, shape: &Shape) -> Option<String> {
    let directories: Vec<PathBuf> = shape.names().iter().map(|name| layout.data(name)).collect();
    let lost: Vec<String> =
        directories.iter().filter(|data| !has_log(data)).map(|data| data.display().to_string()).collect();
    (!lost.is_empty() && lost.len() < directories.len()).then(|| {
        format!(
            "there is no log in {}: bring it back from where it was moved to, or start over without any of the tasks with --fresh",
            lost.join(", ")
        )
    })
}

fn has_log(directory: &Path) -> bool {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| Some((entry.path(), entry.file_name().into_string().ok()?)))
        .any(|(path, name)| is_of_log(&path, &name))
}

/// Returns the nodes' addresses from their logs, for a damaged client file: of all nodes that have a directory, a log or a certificate
/// here. Their ports are consecutive, so one log is enough. `None` if no log has a port, or two disagree.
fn logged_addresses(layout: &Layout) -> Option<Vec<String>> {
    let certificate = |name: &str| Role::Node.files(&layout.certificates(), name).certificate;
    let is_there =
        |name: &String| layout.data(name).is_dir() || layout.log(name).is_file() || certificate(name).is_file();
    let nodes = (1..=NODES_MAX).rev().find(|number| is_there(&format!("n{number}")))?;
    let first = |number: u16| logged_port(&layout.log(&format!("n{number}")))?.checked_sub(number - 1);
    let base_ports: BTreeSet<u16> = (1..=nodes).filter_map(first).collect();
    let [base_port] = base_ports.into_iter().collect::<Vec<_>>()[..] else { return None };
    is_base_port(base_port).then(|| Shape { nodes, base_port }.addresses())
}

/// Returns the port on which a node last reported to listen.
fn logged_port(log: &Path) -> Option<u16> {
    let text = String::from_utf8_lossy(&fs::read(log).ok()?).into_owned();
    let line = text.lines().rev().find(|line| line.contains("listening") && line.contains("127.0.0.1:"))?;
    let (_, behind) = line.split_once("127.0.0.1:")?;
    let port: String = behind.chars().take_while(char::is_ascii_digit).collect();
    port.parse().ok()
}

fn is_base_port(port: u16) -> bool {
    (BASE_PORT_MIN..=BASE_PORT_MAX).contains(&port)
}

/// First words of a file that `norn dev` wrote.
const WRITTEN: &str = "# Written by `norn dev`.";

/// Returns the addresses of the cluster that was here before.
fn known_addresses(layout: &Layout) -> Result<Option<Vec<String>>, Failure> {
    let file = layout.client_file();
    let text = match fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Failure::refused(format!("{}: {error}", file.display()))),
    };
    let addresses = client_addresses(&text);
    if let Ok(addresses) = addresses {
        return Ok(Some(addresses));
    }
    // The file is rewritten before the nodes start.
    if let Some(addresses) = logged_addresses(layout) {
        eprintln!("note: {} is damaged, and is written anew from what the logs of the nodes say", file.display());
        return Ok(Some(addresses));
    }
    let has_nodes = (1..=NODES_MAX).any(|number| has_log(&layout.data(&format!("n{number}"))));
    match (addresses, has_nodes) {
        (Err(why), false) if !text.trim().is_empty() && !text.starts_with(WRITTEN) => Err(Failure::refused(format!(
            "{}: {why}, and no node of `norn dev` has been here: move it away, or name another directory with --data",
            file.display()
        ))),
        (Err(why), true) => Err(Failure::refused(format!(
            "{}: {why}; write a line `addresses = [\"127.0.0.1:PORT\", ...]` into it with the ports of all nodes, or start over without \
             any of the tasks with --fresh",
            file.display()
        ))),
        // There are no data to lose.
        _ => Ok(None),
    }
}

fn client_addresses(text: &str) -> Result<Vec<String>, &'static str> {
    let table: toml::Table = text.parse().map_err(|_| "it is not readable")?;
    let addresses = table.get("addresses").and_then(toml::Value::as_array).ok_or("it has no addresses")?;
    let texts = addresses.iter().map(|address| address.as_str().map(str::to_owned));
    let texts: Vec<String> = texts.collect::<Option<_>>().ok_or("its addresses are no texts")?;
    Some(texts).filter(|texts| !texts.is_empty()).ok_or("it has no addresses")
}

/// Returns the requested shape, else the former one, else the default. An existing cluster keeps its shape.
fn choose_shape(options: &Options, known: Option<Vec<String>>) -> Result<Shape, Failure> {
    let Some(known) = known else {
        let nodes = options.nodes.unwrap_or(NODES_DEFAULT);
        return Ok(Shape { nodes, base_port: options.base_port.unwrap_or(BASE_PORT_DEFAULT) });
    };
    let before = shape_of(&known)?;
    let wanted = Shape {
        nodes: options.nodes.unwrap_or(before.nodes),
        base_port: options.base_port.unwrap_or(before.base_port),
    };
    if wanted != before || known != before.addresses() {
        return Err(Failure::refused(format!(
            "the cluster in {} has {} nodes from port {} on, and changing that is not there yet; \
             leave --nodes and --base-port out, or start over with --fresh",
            options.data.display(),
            before.nodes,
            before.base_port
        )));
    }
    Ok(before)
}

/// Returns the shape in a client file.
fn shape_of(known: &[String]) -> Result<Shape, Failure> {
    let count = known.len();
    let nodes = u16::try_from(count).ok().filter(|nodes| (1..=NODES_MAX).contains(nodes)).ok_or_else(|| {
        Failure::refused(format!(
            "client.toml names {count} nodes, and `norn dev` runs 1 to {NODES_MAX}; `--fresh` starts over"
        ))
    })?;
    let port = known[0].rsplit_once(':').map_or("", |(_, port)| port);
    let port: u64 = port.parse().map_err(|_| Failure::refused("client.toml names no port; `--fresh` starts over"))?;
    let base_port = u16::try_from(port).ok().filter(|port| is_base_port(*port)).ok_or_else(|| {
        Failure::refused(format!(
            "client.toml names port {port} for the first node, which is {BASE_PORT_MIN} to {BASE_PORT_MAX}: write the one there that \
             it had, or start over with --fresh"
        ))
    })?;
    Ok(Shape { nodes, base_port })
}

/// Checks that the ports are free, before anything starts, with a better message than three logs. A former node that has released its
/// directory may still have its port until its process has ended.
fn check_ports(shape: &Shape, former: &mut Former) -> Result<(), Failure> {
    let bind = |port: u16| UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).map(drop);
    let bind_http = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map(drop);
    let of_nodes = shape.ports().map(|port| (port, &bind as &dyn Fn(u16) -> io::Result<()>, ""));
    let of_http = shape.http_ports().map(|port| (port, &bind_http as &dyn Fn(u16) -> io::Result<()>, " for HTTP"));
    for (port, bind, what) in of_nodes.chain(of_http) {
        while let Err(error) = bind(port) {
            let in_use = error.kind() == io::ErrorKind::AddrInUse;
            if in_use && former.may_end() {
                continue;
            }
            let why = if in_use { "is in use already".to_owned() } else { error.to_string() };
            return Err(Failure::refused(format!("port {port}{what} {why}; choose others with --base-port")));
        }
    }
    Ok(())
}

/// Writes client.toml, and certificates that are missing or end soon.
fn make_files(layout: &Layout, shape: &Shape) -> Result<(), Failure> {
    let quoted: Vec<String> = shape.addresses().iter().map(|address| format!("{address:?}")).collect();
    let text = format!(
        "{WRITTEN} Paths are relative to this file.\n\
         addresses = [{}]\nca = \"certs/ca.crt\"\n\
         certificate = \"certs/client-{CLIENT_NAME}.crt\"\nkey = \"certs/client-{CLIENT_NAME}.key\"\n",
        quoted.join(", ")
    );
    // First of all: it marks the directory as one of `norn dev`.
    let half = layout.client_file_half();
    let at = |file: &Path, error: io::Error| Failure::refused(format!("{}: {error}", file.display()));
    fs::write(&half, text).map_err(|error| at(&half, error))?;
    fs::rename(&half, layout.client_file()).map_err(|error| at(&layout.client_file(), error))?;
    Ok(make_certificates(&layout.certificates(), &shape.names())?)
}

fn make_certificates(directory: &Path, nodes: &[String]) -> Result<(), CertificateError> {
    let authority = directory.join("ca.crt");
    if !authority.exists() {
        make_authority(directory)?;
    } else if !lasts(&authority, AUTHORITY_DAYS_LEFT_MIN)? {
        prolong_authority(directory, AUTHORITY_DAYS)?;
    }
    let make = |role: Role, name: &str, hosts: &[String]| {
        let file = role.files(directory, name).certificate;
        if file.exists() && lasts(&file, DAYS_LEFT_MIN)? {
            return Ok(());
        }
        // A key without its certificate is left from an interrupted start.
        create(directory, role, name, hosts, DAYS, Present::Replaced).map(|_| ())
    };
    let hosts = ["127.0.0.1".to_owned(), "localhost".to_owned()];
    for name in nodes {
        make(Role::Node, name, &hosts)?;
    }
    make(Role::Client, CLIENT_NAME, &[])
}

/// Makes the authority's certificate if it is missing. It uses the existing key if that has signed anything; otherwise it makes a new
/// key, because an interrupted start may have left a key, or part of one.
fn make_authority(directory: &Path) -> Result<(), CertificateError> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let has_signed = entries.map(|entry| entry.path()).any(|path| path.extension() == Some("crt".as_ref()));
    match has_signed {
        true => prolong_authority(directory, AUTHORITY_DAYS)?,
        false => replace_authority(directory, AUTHORITY_DAYS)?,
    };
    Ok(())
}

/// Whether a certificate is valid for at least this many days.
fn lasts(file: &Path, days: i64) -> Result<bool, CertificateError> {
    Ok(valid_until(file)?.saturating_sub(unix_seconds()) >= days * 86_400)
}

fn plans(layout: &Layout, shape: &Shape) -> Vec<Plan> {
    let plan = |((name, address), http_port): ((String, String), u16)| {
        let mut arguments = vec!["start".into(), "--data".into(), layout.data(&name).into_os_string()];
        arguments.extend(["--certs".into(), layout.certificates().into_os_string()]);
        for (flag, value) in [("--name", &name), ("--listen", &address), ("--advertise", &address)] {
            arguments.extend([flag.into(), value.into()]);
        }
        arguments.extend(["--set".into(), format!("http_listen=127.0.0.1:{http_port}").into()]);
        Plan { log: layout.log(&name), name, arguments }
    };
    shape.names().into_iter().zip(shape.addresses()).zip(shape.http_ports()).map(plan).collect()
}

async fn serve(
    layout: &Layout,
    shape: &Shape,
    children: &Children,
    ends: &mut mpsc::UnboundedReceiver<Ended>,
    lost: Option<String>,
    no_repl: bool,
    global: &Global,
) -> Outcome {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let files = Role::Client.files(&layout.certificates(), CLIENT_NAME);
    let caller = Caller::new(files, CALL_TIMEOUT)?;
    let addresses = shape.addresses();
    let wish = Wish { name: Some("dev".to_owned()), ..Wish::default() };
    let work = async {
        tokio::select! {
            founded = found(&caller, &addresses, &wish) => match (founded, lost) {
                (Err(failure), Some(lost)) => Err(failure.advising(lost)),
                (founded, _) => founded.map(|_| ()),
            },
            // While the cluster starts, the end of a node is a failure; later, the person wants to see it.
            Some(ended) = ends.recv() => Err(not_started(&ended)),
        }?;
        caller.close().await;
        // Stdout is for answers.
        eprintln!("{}", introduction(layout, shape, &children.processes(), !no_repl));
        if no_repl {
            say("ready")?;
            return std::future::pending().await;
        }
        verbs::repl_at(&verbs::Place::File(layout.client_file()), global, None).await
    };
    // At a prompt, an interrupt is for the running command, and the REPL receives it.
    let prompt = !no_repl && io::stdin().is_terminal();
    let interrupted = async {
        loop {
            interrupt.recv().await;
            if !prompt {
                return;
            }
        }
    };
    tokio::select! {
        outcome = work => outcome,
        _ = terminate.recv() => Ok(ExitCode::SUCCESS),
        () = interrupted => Ok(ExitCode::SUCCESS),
    }
}

fn not_started(ended: &Ended) -> Failure {
    let text = fs::read_to_string(&ended.log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let last = lines[lines.len().saturating_sub(LAST_LINES)..].join("\n  ");
    let log = ended.log.display();
    Failure::refused(format!("{} does not start ({}). The end of {log}:\n  {last}", ended.name, ended.how))
}

/// Returns a few lines about the nodes, how to use them and how to stop them.
fn introduction(layout: &Layout, shape: &Shape, processes: &[Option<i32>], prompt: bool) -> String {
    let directory = layout.directory.display();
    let (nodes, all) = match shape.nodes {
        1 => ("1 node".to_owned(), "the node".to_owned()),
        several => (format!("{several} nodes"), format!("all {several} nodes")),
    };
    let mut lines = vec![format!("A cluster of {nodes} runs on this machine, with everything in {directory}:")];
    for ((name, address), process) in shape.names().iter().zip(shape.addresses()).zip(processes) {
        let process = process.map_or_else(|| "down".to_owned(), |process| process.to_string());
        let (data, log) = (layout.data(name), layout.log(name));
        lines.push(format!(
            "  {name:<4} {address:<16} process {process:<8} data {}, log {}",
            data.display(),
            log.display()
        ));
    }
    let here = layout.directory == Path::new(".norn");
    let prefix = if here { String::new() } else { format!("NORN_CLIENT={} ", layout.client_file().display()) };
    let program = std::env::args().next().unwrap_or_else(|| "norn".to_owned());
    lines.push(format!("From a second terminal: {prefix}{program} enqueue mail hello"));
    let http_port = shape.base_port + HTTP_PORTS_BEHIND;
    let task = r#"'{"queue":"mail","data":"hello"}'"#;
    lines.push(format!(
        "Over HTTP, each node at its port + {HTTP_PORTS_BEHIND}: curl localhost:{http_port}/v1/tasks -d {task}"
    ));
    lines.push("To see a node fail: kill -9 its process; it comes back after a second.".to_owned());
    let how = if prompt { "`quit` or Ctrl-D" } else { "Ctrl-C or SIGTERM" };
    lines.push(format!("To stop {all}: {how}. The tasks stay in {directory} for the next start."));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use norn_node::runtime::tls::load;
    use std::os::fd::OwnedFd;
    use std::process::Command;

    /// Goal: a cluster that is started now and then never fails because of expired certificates.
    #[test]
    fn certificates_that_end_soon_are_made_anew_at_the_start() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path();
        let nodes = ["n1".to_owned()];
        make_certificates(place, &nodes).unwrap();
        let files = [Role::Node.files(place, "n1"), Role::Client.files(place, CLIENT_NAME)];
        let read =
            || [&files[0].certificate, &files[1].certificate, &files[0].authority].map(|file| fs::read(file).unwrap());
        let made = read();
        make_certificates(place, &nodes).unwrap();
        assert_eq!(read(), made, "what lasts stays");

        prolong_authority(place, 20).unwrap();
        create(place, Role::Node, "n1", &[], 20, Present::Replaced).unwrap();
        create(place, Role::Client, CLIENT_NAME, &[], 0, Present::Replaced).unwrap();
        make_certificates(place, &nodes).unwrap();
        assert!(lasts(&files[0].authority, AUTHORITY_DAYS_LEFT_MIN).unwrap());
        for files in &files {
            assert!(lasts(&files.certificate, DAYS_LEFT_MIN).unwrap(), "{files:?}");
            load(files).unwrap().check_chain(unix_seconds()).unwrap();
        }
    }

    /// Goal: the next start makes a cluster from whatever an interrupted first start left.
    #[test]
    fn a_start_goes_on_where_one_was_interrupted() {
        let nodes = ["n1".to_owned()];
        let whole = |place: &Path| {
            make_certificates(place, &nodes).unwrap();
            for files in [Role::Node.files(place, "n1"), Role::Client.files(place, CLIENT_NAME)] {
                load(&files).unwrap().check_chain(unix_seconds()).unwrap();
            }
        };
        let early = tempfile::tempdir().unwrap();
        fs::write(early.path().join("client.toml.new"), "addre").unwrap();
        take_directory(&Layout { directory: early.path().to_owned() }).unwrap();
        for key in ["", "-----BEGIN PRIVATE"] {
            let directory = tempfile::tempdir().unwrap();
            fs::write(directory.path().join("ca.key"), key).unwrap();
            whole(directory.path());
        }
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path();
        whole(place);
        let client = Role::Client.files(place, CLIENT_NAME);
        fs::remove_file(&client.certificate).unwrap();
        whole(place);
        // The key has signed, and stays.
        let key = fs::read(place.join("ca.key")).unwrap();
        fs::remove_file(place.join("ca.crt")).unwrap();
        whole(place);
        assert_eq!(fs::read(place.join("ca.key")).unwrap(), key);
    }

    /// Goal: a start waits for a node of an earlier one that has released its directory and is about to end, and for no other process.
    /// Method: a process that holds the port as its input, and ends by itself.
    #[test]
    fn a_port_is_waited_for_that_a_former_node_still_has() {
        let directory = tempfile::tempdir().unwrap();
        let layout = Layout { directory: directory.path().to_owned() };
        fs::create_dir(layout.data("n1")).unwrap();
        let former = || Former::of(&layout.directory, [layout.data("n1")].into_iter()).unwrap();
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let shape = Shape { nodes: 1, base_port: socket.local_addr().unwrap().port() };
        let refusal = format!("{:?}", check_ports(&shape, &mut former()).unwrap_err());
        assert!(refusal.contains("is in use already"), "no node was here: {refusal}");
        let mut node = Command::new("sleep").arg("1").stdin(OwnedFd::from(socket)).spawn().unwrap();
        fs::write(layout.data("n1").join("lock"), format!("{}\n", node.id())).unwrap();
        let mut former = former();
        former.leave_directories().unwrap();
        check_ports(&shape, &mut former).unwrap();
        node.wait().unwrap();
    }

    /// Goal: a damaged client file costs no tasks, and the message names a lost directory.
    #[test]
    fn a_damaged_client_file_is_known_by_the_logs_of_the_nodes() {
        let directory = tempfile::tempdir().unwrap();
        let layout = Layout { directory: directory.path().to_owned() };
        for damaged in ["addresses = [\"127.0.0.1:2", "ca = \"certs/ca.crt\"\n", "addresses = []\n"] {
            fs::write(layout.client_file(), damaged).unwrap();
            let refusal = format!("{:?}", known_addresses(&layout).unwrap_err());
            assert!(refusal.contains("no node of `norn dev` has been here"), "{refusal}");
        }
        for damaged in
            ["".to_owned(), format!("{WRITTEN}\naddresses = [\"127.0.0.1:2"), format!("{WRITTEN}\naddresses = []\n")]
        {
            fs::write(layout.client_file(), damaged).unwrap();
            assert_eq!(known_addresses(&layout).unwrap(), None, "there is nothing to lose");
        }
        for (name, port) in [("n1", 24_101), ("n2", 24_102)] {
            fs::create_dir(layout.data(name)).unwrap();
            let log = format!(
                "INFO listening address=127.0.0.1:1 node=x\nINFO listening address=127.0.0.1:{port} node=x\nINFO stopped\n"
            );
            fs::write(layout.log(name), log).unwrap();
        }
        let known = known_addresses(&layout).unwrap().unwrap();
        assert_eq!(known, ["127.0.0.1:24101", "127.0.0.1:24102"]);
        let shape = Shape { nodes: 2, base_port: 24_101 };
        assert_eq!(without_log(&layout, &shape), None, "neither has one, as after a start that was interrupted");
        let segment = |name: &str| layout.data(name).join("0000000000000001.log");
        fs::write(segment("n1"), "x").unwrap();
        let lost = without_log(&layout, &shape).unwrap();
        assert!(lost.contains(&layout.data("n2").display().to_string()) && lost.contains("--fresh"), "{lost}");
        fs::remove_file(layout.log("n1")).unwrap();
        assert_eq!(known_addresses(&layout).unwrap(), Some(known), "one log is enough");
        fs::remove_file(layout.log("n2")).unwrap();
        let refusal = format!("{:?}", known_addresses(&layout).unwrap_err());
        assert!(refusal.contains("client.toml: it has no addresses; write a line `addresses = "), "{refusal}");
        fs::write(segment("n2"), "x").unwrap();
        assert_eq!(without_log(&layout, &shape), None);
    }

    /// Goal: a damaged client file and a lost directory together do not shrink the cluster.
    #[test]
    fn lost_directories_shrink_no_cluster_with_a_damaged_client_file() {
        let whole = ["127.0.0.1:24101", "127.0.0.1:24102", "127.0.0.1:24103"].map(str::to_owned);
        for lost in ["n1", "n2", "n3"] {
            let directory = tempfile::tempdir().unwrap();
            let layout = Layout { directory: directory.path().to_owned() };
            fs::write(layout.client_file(), "").unwrap();
            make_certificates(&layout.certificates(), &["n1", "n2", "n3"].map(str::to_owned)).unwrap();
            for (name, address) in ["n1", "n2", "n3"].into_iter().zip(&whole).filter(|(name, _)| *name != lost) {
                fs::create_dir(layout.data(name)).unwrap();
                fs::write(layout.log(name), format!("INFO listening address={address} node=x\n")).unwrap();
            }
            assert_eq!(known_addresses(&layout).unwrap().unwrap(), whole, "without {lost}");
        }
    }

    #[test]
    fn a_client_file_with_ports_out_of_range_is_refused() {
        let options =
            |base_port| Options { nodes: None, data: PathBuf::from("place"), base_port, fresh: false, no_repl: true };
        let known = |ports: &[u32]| Some(ports.iter().map(|port| format!("127.0.0.1:{port}")).collect());
        for ports in [&[65_535, 65_536][..], &[65_535], &[65_001, 65_002], &[80], &[0]] {
            let refusal = format!("{:?}", choose_shape(&options(None), known(ports)).unwrap_err());
            assert!(refusal.contains(&format!("names port {}", ports[0])), "{refusal}");
            assert!(refusal.contains("1024 to 65000"), "{refusal}");
        }
        let many: Vec<u32> = (7400..7433).collect();
        let refusal = format!("{:?}", choose_shape(&options(None), known(&many)).unwrap_err());
        assert!(refusal.contains("names 33 nodes"), "{refusal}");
        let shape = choose_shape(&options(Some(65_000)), known(&[65_000, 65_001])).unwrap();
        assert_eq!(shape, Shape { nodes: 2, base_port: 65_000 });
    }

    #[test]
    fn the_introduction_says_how_many_where_and_how_to_stop() {
        let layout = Layout { directory: PathBuf::from("place") };
        let three = introduction(&layout, &Shape { nodes: 3, base_port: 7400 }, &[Some(41), None, Some(43)], true);
        let expected = [
            "A cluster of 3 nodes runs on this machine, with everything in place:",
            "  n1   127.0.0.1:7400   process 41       data place/n1, log place/n1.log",
            "  n2   127.0.0.1:7401   process down     data place/n2, log place/n2.log",
            "  n3   127.0.0.1:7402   process 43       data place/n3, log place/n3.log",
            "To stop all 3 nodes: `quit` or Ctrl-D. The tasks stay in place for the next start.",
        ];
        for line in expected {
            assert!(three.lines().any(|shown| shown == line), "{line}\n{three}");
        }
        assert!(three.contains("NORN_CLIENT=place/client.toml "), "{three}");
        let layout = Layout { directory: PathBuf::from(".norn") };
        let one = introduction(&layout, &Shape { nodes: 1, base_port: 7400 }, &[Some(41)], false);
        assert!(one.starts_with("A cluster of 1 node runs") && !one.contains("NORN_CLIENT"), "{one}");
        assert!(one.contains("To stop the node: Ctrl-C or SIGTERM."), "{one}");
    }
}
