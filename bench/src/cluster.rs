//! A cluster of `norn start` processes on this machine, with its own directory for certificates and data.

use crate::system::Usage;
use crate::worker::{Reached, Way};
use crate::{ClusterOptions, process};
use anyhow::{Context, Result, bail, ensure};
use norn_client::client::{Client, ClientConfig};
use std::fs::{self, File};
use std::net::{TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a node may take to become ready.
const START_PATIENCE: Duration = Duration::from_secs(20);
/// Time between two looks at a node's output.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Running nodes. Dropping it ends them and removes their data.
#[derive(Debug)]
pub struct Cluster {
    directory: PathBuf,
    norn: PathBuf,
    settings: Vec<String>,
    addresses: Vec<String>,
    /// Addresses for HTTP.
    http: Vec<String>,
    nodes: Mutex<Vec<Child>>,
    /// One client for each node, which uses only that node.
    watchers: Vec<Client>,
}

impl Cluster {
    /// Makes certificates, starts the nodes and founds the cluster; returns once it serves.
    pub async fn start(options: &ClusterOptions) -> Result<Cluster> {
        ensure!(options.nodes > 0, "a cluster has at least one node");
        let norn = program(options)?;
        let place = options.directory.clone().unwrap_or_else(std::env::temp_dir);
        let directory = unused_directory(&place)?;
        let settings = options.settings.clone();
        let (addresses, http, nodes, watchers) = (Vec::new(), Vec::new(), Mutex::default(), Vec::new());
        let mut cluster = Cluster { directory, norn, settings, addresses, http, nodes, watchers };
        cluster.make_certificates(options.nodes)?;
        cluster.addresses = free_addresses(options.nodes)?;
        cluster.http = free_http_addresses(options.nodes)?;
        for place in 0..options.nodes {
            let node = cluster.spawn_node(place)?;
            cluster.nodes().push(node);
        }
        for place in 0..options.nodes {
            cluster.await_node(place)?;
        }
        let certificates = cluster.certificates();
        let mut found = Command::new(&cluster.norn);
        found.args(["cluster", "init", "--peers", &cluster.addresses.join(",")]).arg("--certs").arg(certificates);
        run(&mut found)?;
        for place in 0..options.nodes {
            let mut config = cluster.config(place);
            config.addresses.truncate(1);
            cluster.watchers.push(Client::connect(config).await?);
        }
        Ok(cluster)
    }

    fn certificates(&self) -> PathBuf {
        self.directory.join("certs")
    }

    fn make_certificates(&self, nodes: usize) -> Result<()> {
        let directory = self.certificates();
        let cert = |arguments: &[&str]| {
            let mut command = Command::new(&self.norn);
            command.arg("cert").args(arguments).arg("--dir").arg(&directory);
            run(&mut command)
        };
        cert(&["ca"])?;
        cert(&["client", "bench"])?;
        (0..nodes).try_for_each(|place| cert(&["node", &node_name(place), "--host", "127.0.0.1"]))
    }

    fn spawn_node(&self, place: usize) -> Result<Child> {
        let name = node_name(place);
        let output = File::create(self.output(place))?;
        let mut command = Command::new(&self.norn);
        command.args(["start", "--name", &name, "--listen", &self.addresses[place], "--log", "warn"]);
        command.arg("--data").arg(self.data(place)).arg("--certs").arg(self.certificates());
        command.args(["--set", &format!("http_listen={}", self.http[place])]);
        command.args(self.settings.iter().flat_map(|setting| ["--set", setting.as_str()]));
        command.args(["--die-with-parent", &std::process::id().to_string()]);
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        command.spawn().with_context(|| format!("starting {}", self.norn.display()))
    }

    /// Kills a node at once, like a power failure of its machine.
    pub fn kill(&self, place: usize) -> Result<()> {
        let mut nodes = self.nodes();
        nodes[place].kill()?;
        nodes[place].wait()?;
        Ok(())
    }

    /// Starts a killed node; returns once it is ready.
    pub fn start_again(&self, place: usize) -> Result<()> {
        let node = self.spawn_node(place)?;
        self.nodes()[place] = node;
        self.await_node(place)
    }

    /// Data directory of a node.
    pub fn data(&self, place: usize) -> PathBuf {
        self.directory.join(node_name(place))
    }

    /// One client for each node, which uses only that node.
    pub fn watchers(&self) -> &[Client] {
        &self.watchers
    }

    fn await_node(&self, place: usize) -> Result<()> {
        let deadline = Instant::now() + START_PATIENCE;
        loop {
            let said = fs::read_to_string(self.output(place))?;
            if said.lines().any(|line| line == "ready") {
                return Ok(());
            }
            let ended = self.nodes()[place].try_wait()?;
            if ended.is_some() || Instant::now() > deadline {
                bail!("node {} does not get ready: {said}", node_name(place));
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
    }

    fn output(&self, place: usize) -> PathBuf {
        self.directory.join(format!("{}.out", node_name(place)))
    }

    /// Configuration of the client with this number: each starts with another node.
    pub fn config(&self, number: usize) -> ClientConfig {
        let mut addresses = self.addresses.clone();
        addresses.rotate_left(number % self.addresses.len());
        let file = |name: &str| self.certificates().join(name);
        let mut config =
            ClientConfig::new(addresses, file("ca.crt"), file("client-bench.crt"), file("client-bench.key"));
        config.name = "norn-bench".to_owned();
        config
    }

    /// Address for HTTP of the client with this number: each has another node.
    pub fn http_address(&self, number: usize) -> Result<&str> {
        let address = self.http.get(number % self.http.len().max(1));
        address.map(String::as_str).context("a cluster has a node")
    }

    /// The cluster for clients that use this way.
    pub fn over(&self, way: Way) -> Reached<'_> {
        Reached { cluster: self, way }
    }

    /// Resources that the nodes have used so far.
    pub async fn usage(&self) -> Result<Usage> {
        let mut usage = Usage::default();
        for (pid, watcher) in self.pids().into_iter().zip(&self.watchers) {
            let status = watcher.status().await?;
            let counter =
                |name: &str| status.counters.iter().find(|(other, _)| other == name).map_or(0, |(_, count)| *count);
            usage.cpu_seconds += process::cpu_seconds(pid)?;
            usage.log_syncs += counter("log_syncs");
            usage.peer_messages += counter("peer_messages_sent");
            usage.peer_envelopes += counter("peer_envelopes_sent");
            usage.events += counter("events");
            usage.turns += counter("turns");
        }
        Ok(usage)
    }

    /// Resident memory of all nodes, in bytes.
    pub fn resident_bytes(&self) -> Result<u64> {
        self.pids().into_iter().map(process::resident_bytes).sum()
    }

    /// Processes of the nodes.
    pub fn pids(&self) -> Vec<u32> {
        self.nodes().iter().map(Child::id).collect()
    }

    /// What the program says about its version.
    #[cfg(feature = "peers")]
    pub fn version(&self) -> Result<String> {
        let output = Command::new(&self.norn).arg("--version").output()?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    fn nodes(&self) -> MutexGuard<'_, Vec<Child>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for node in self.nodes().iter_mut() {
            // The node's data is deleted, so it need not hand anything over. It may have ended by itself.
            let _ = node.kill();
            let _ = node.wait();
        }
        if let Err(error) = fs::remove_dir_all(&self.directory) {
            eprintln!("norn-bench: {} stays: {error}", self.directory.display());
        }
    }
}

fn node_name(place: usize) -> String {
    format!("n{}", place + 1)
}

fn unused_directory(place: &Path) -> Result<PathBuf> {
    let process = std::process::id();
    for number in 0.. {
        let directory = place.join(format!("norn-bench-{process}-{number}"));
        match fs::create_dir(&directory) {
            Ok(()) => return Ok(directory),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error).with_context(|| directory.display().to_string()),
        }
    }
    unreachable!("numbers do not run out")
}

/// Ports that are free now. All are reserved before any is released.
fn free_http_addresses(count: usize) -> Result<Vec<String>> {
    let sockets = (0..count).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<Vec<_>, _>>()?;
    sockets.iter().map(|socket| Ok(socket.local_addr()?.to_string())).collect()
}

fn free_addresses(count: usize) -> Result<Vec<String>> {
    let sockets = (0..count).map(|_| UdpSocket::bind("127.0.0.1:0")).collect::<Result<Vec<_>, _>>()?;
    sockets.iter().map(|socket| Ok(socket.local_addr()?.to_string())).collect()
}

/// The program to start. It is not built here, because a build within a build confuses both. Its age is printed instead.
fn program(options: &ClusterOptions) -> Result<PathBuf> {
    let norn = match &options.norn {
        Some(norn) => norn.clone(),
        None => std::env::current_exe()?.with_file_name("norn"),
    };
    let metadata = fs::metadata(&norn)
        .with_context(|| format!("{}: build it with `cargo build --release`, or give --norn", norn.display()))?;
    let age = metadata.modified()?.elapsed().unwrap_or_default();
    eprintln!("norn-bench: the nodes run {}, built {} minutes ago", norn.display(), age.as_secs() / 60);
    Ok(norn)
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("{command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
