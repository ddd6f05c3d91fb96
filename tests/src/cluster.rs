//! A cluster of `norn start` processes on loopback, in its own directory.

use crate::cli::{self, Answer, Cli};
use crate::http::Http;
use crate::network::Network;
use crate::ports::free_port;
use crate::wait::{PATIENCE, eventually, eventually_or};
use crate::{binary, wait};
use norn_client::client::{Client, ClientConfig, ListOptions};
use norn_wire::response::{PartitionView, TaskView};
use norn_wire::{Error, NodeId};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;
use tempfile::TempDir;

/// Lines of each node's log that a failing test prints.
const LOG_LINES_SHOWN: usize = 60;

/// Options of a cluster.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    /// Number of founding nodes.
    pub nodes: usize,
    /// Number of partitions.
    pub partitions: u32,
    /// Replicas of each partition; absent: the default.
    pub replicas: Option<u32>,
    /// Settings of each node, `NAME=VALUE`.
    pub settings: Vec<String>,
    /// Whether proxies between nodes can inject network faults.
    pub proxied: bool,
    /// The program that nodes run; absent: the binary built beside the tests.
    pub program: Option<PathBuf>,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        ClusterOptions { nodes: 3, partitions: 16, replicas: None, settings: Vec::new(), proxied: false, program: None }
    }
}

/// A group of nodes. Dropping it kills them. Must be dropped in the thread that started it.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Node>,
    /// Settings of each new node.
    settings: Vec<String>,
    program: Option<PathBuf>,
    /// The program that commands run, if not the binary beside the tests.
    commands: Option<PathBuf>,
    network: Option<Network>,
    directory: TempDir,
}

#[derive(Debug)]
struct Node {
    name: String,
    /// The address that the node binds.
    listen: String,
    /// The address at which all others reach the node: its proxy, if it has one.
    address: String,
    settings: Vec<String>,
    /// Peer addresses that the node is started with, `NODE=HOST:PORT`, whatever the cluster knows.
    peers: Vec<String>,
    /// The program that the node runs, if not the binary beside the tests.
    program: Option<PathBuf>,
    /// The node is not a member: not yet, or no longer.
    outside: bool,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    child: Child,
    said: mpsc::Receiver<String>,
}

impl Cluster {
    /// Starts a cluster of three nodes.
    pub fn start() -> Cluster {
        Cluster::start_with(ClusterOptions::default())
    }

    /// Starts and initializes a cluster.
    pub fn start_with(options: ClusterOptions) -> Cluster {
        let nodes = options.nodes;
        let network = options.proxied.then(Network::start);
        let mut cluster = Cluster::prepare_with(nodes, options.settings, options.program, network);
        for index in 0..nodes {
            cluster.restart(index);
            cluster.wait_ready(index);
        }
        let partitions = options.partitions.to_string();
        let replicas = options.replicas.map(|replicas| replicas.to_string());
        let mut more = vec!["--partitions", &partitions];
        more.extend(replicas.iter().flat_map(|replicas| ["--replicas", replicas.as_str()]));
        cluster.init(&(0..nodes).collect::<Vec<_>>(), &more).done();
        cluster
    }

    /// Creates certificates and directories for a number of nodes, without starting any.
    pub fn prepare(nodes: usize, settings: Vec<String>) -> Cluster {
        Cluster::prepare_with(nodes, settings, None, None)
    }

    /// From now on, nodes and commands run this program.
    pub fn use_program(&mut self, program: &Path) {
        (self.program, self.commands) = (Some(program.to_owned()), Some(program.to_owned()));
        self.nodes.iter_mut().for_each(|node| node.program = Some(program.to_owned()));
    }

    fn prepare_with(
        nodes: usize,
        settings: Vec<String>,
        program: Option<PathBuf>,
        network: Option<Network>,
    ) -> Cluster {
        let directory = TempDir::new().expect("a directory for the cluster");
        let make = |arguments: &[&str]| cli::run(directory.path(), arguments).done().clone();
        make(&["cert", "ca", "--dir", "certs"]);
        make(&["cert", "client", "tests", "--dir", "certs"]);
        let mut cluster = Cluster { nodes: Vec::new(), settings, program, commands: None, network, directory };
        for _ in 0..nodes {
            cluster.add_place();
        }
        cluster
    }

    /// Creates a certificate and an address for one more node; returns its index.
    pub fn add_place(&mut self) -> usize {
        let index = self.nodes.len();
        let name = format!("n{}", index + 1);
        cli::run(self.directory(), &["cert", "node", &name, "--host", "127.0.0.1,localhost", "--dir", "certs"]).done();
        let own = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let proxy = self.network.as_ref().map(|network| network.add(index, own, free_port()));
        let address = proxy.unwrap_or(own).to_string();
        let (settings, program) = (self.settings.clone(), self.program.clone());
        let node = Node {
            name,
            listen: own.to_string(),
            address,
            settings,
            peers: Vec::new(),
            program,
            outside: false,
            running: None,
        };
        self.nodes.push(node);
        index
    }

    /// Starts one more node, which belongs to no cluster and waits; returns its index. The node does not count as a member before
    /// [`Cluster::enter`].
    pub fn start_blank(&mut self) -> usize {
        let index = self.add_place();
        self.nodes[index].outside = true;
        self.restart(index);
        self.wait_ready(index);
        index
    }

    /// Starts one more node, which joins by itself; returns its index.
    pub fn start_joining(&mut self, token: &str) -> usize {
        let index = self.add_place();
        self.nodes[index].settings.push(format!("join={token}"));
        self.restart(index);
        self.wait_ready(index);
        index
    }

    /// Records that a node became a member.
    pub fn enter(&mut self, index: usize) {
        self.nodes[index].outside = false;
    }

    /// Records that a stopped node never comes back. No command or client uses it any more.
    pub fn give_up(&mut self, index: usize) {
        assert!(self.nodes[index].running.is_none(), "it runs");
        self.nodes[index].outside = true;
    }

    /// Records that a node was removed, and stops it. No command or client uses it any more.
    pub fn leave(&mut self, index: usize) {
        self.nodes[index].outside = true;
        self.terminate(index);
    }

    /// Kills a node, and starts it with an empty data directory: a new node with the same name and address.
    pub fn start_anew(&mut self, index: usize) {
        self.kill(index);
        std::fs::remove_dir_all(self.data(index)).expect("it is there");
        self.restart(index);
        self.wait_ready(index);
    }

    /// Runs `norn cluster init` for some of the nodes.
    pub fn init(&self, nodes: &[usize], more: &[&str]) -> Answer {
        let peers: Vec<&str> = nodes.iter().map(|index| self.address(*index)).collect();
        let peers = peers.join(",");
        let arguments = ["cluster", "init", "--peers", &peers, "--certs", "certs", "--json"];
        let program = self.commands.as_deref().unwrap_or_else(|| binary::norn());
        cli::run_program(program, self.directory(), &[&arguments, more].concat())
    }

    /// The directory that contains all files of the cluster.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The directory of the certificates.
    pub fn certificates(&self) -> PathBuf {
        self.directory().join("certs")
    }

    /// The data directory of a node.
    pub fn data(&self, index: usize) -> PathBuf {
        self.directory().join(&self.nodes[index].name)
    }

    /// The name of a node.
    pub fn name(&self, index: usize) -> &str {
        &self.nodes[index].name
    }

    /// The faulty network between the nodes of a cluster that was started with proxies.
    pub fn network(&self) -> &Network {
        self.network.as_ref().expect("the cluster was started with proxies")
    }

    /// The address at which others reach a node.
    pub fn address(&self, index: usize) -> &str {
        &self.nodes[index].address
    }

    /// Indices of the nodes that are members.
    pub fn members(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|index| !self.nodes[*index].outside).collect()
    }

    /// The addresses of all members.
    pub fn addresses(&self) -> Vec<String> {
        self.members().into_iter().map(|index| self.nodes[index].address.clone()).collect()
    }

    /// The verbs, at any member.
    pub fn cli(&self) -> Cli {
        Cli::new(self.directory(), self.addresses(), &self.certificates()).of_program(self.commands.clone())
    }

    /// The verbs, at one node.
    pub fn cli_at(&self, index: usize) -> Cli {
        let addresses = vec![self.address(index).to_owned()];
        Cli::new(self.directory(), addresses, &self.certificates()).of_program(self.commands.clone())
    }

    /// A client of all nodes. Needs an async runtime.
    pub async fn client(&self) -> Client {
        self.client_of(self.addresses(), Duration::from_secs(10)).await
    }

    /// A client that initially knows only some addresses, with a timeout for its calls.
    pub async fn client_of(&self, addresses: Vec<String>, timeout: Duration) -> Client {
        let certificates = self.certificates();
        let file = |name: &str| certificates.join(name);
        let mut config =
            ClientConfig::new(addresses, file("ca.crt"), file("client-tests.crt"), file("client-tests.key"));
        config.request_timeout = timeout;
        Client::connect(config).await.expect("certificates and a socket")
    }

    /// Starts a stopped node, without waiting for it.
    pub fn restart(&mut self, index: usize) {
        let mut command = self.command(index);
        let node = &mut self.nodes[index];
        assert!(node.running.is_none(), "{} runs already", node.name);
        node.running = Some(Running::start(&mut command, &log_file(self.directory.path(), &node.name)));
    }

    /// Sets the program and settings with which a stopped node starts from now on.
    pub fn replace(&mut self, index: usize, program: Option<PathBuf>, settings: Vec<String>) {
        let node = &mut self.nodes[index];
        assert!(node.running.is_none(), "{} runs", node.name);
        (node.program, node.settings) = (program, settings);
    }

    /// Sets the address on which a stopped node listens from now on, and advertises it in the node's settings. The cluster must learn
    /// of it.
    pub fn relocate(&mut self, index: usize, address: &str) {
        self.rebind(index, address);
        // The cluster follows only an address that is set in this way.
        self.nodes[index].settings.push(format!("advertise={address}"));
    }

    /// Sets the address on which a stopped node listens from now on. Its settings do not advertise it.
    pub fn rebind(&mut self, index: usize, address: &str) {
        let node = &mut self.nodes[index];
        assert!(node.running.is_none(), "{} runs", node.name);
        (node.listen, node.address) = (address.to_owned(), address.to_owned());
    }

    /// Sets the address at which others reach a stopped node from now on, though it listens where it did before.
    pub fn advertise(&mut self, index: usize, address: &str) {
        let node = &mut self.nodes[index];
        assert!(node.running.is_none(), "{} runs", node.name);
        address.clone_into(&mut node.address);
    }

    /// Sets the peer addresses that a stopped node starts with from now on, `NODE=HOST:PORT`.
    pub fn hint(&mut self, index: usize, peers: Vec<String>) {
        let node = &mut self.nodes[index];
        assert!(node.running.is_none(), "{} runs", node.name);
        node.peers = peers;
    }

    /// The command that `restart` runs.
    fn command(&self, index: usize) -> Command {
        let node = &self.nodes[index];
        self.command_on(index, &node.name, &node.listen)
    }

    /// The same with another data directory and address.
    fn command_on(&self, index: usize, data: &str, listen: &str) -> Command {
        let node = &self.nodes[index];
        let mut command = Command::new(node.program.as_deref().unwrap_or_else(|| binary::norn()));
        command.current_dir(self.directory()).args(["start", "--certs", "certs"]);
        command.args(["--data", data, "--name", &node.name, "--listen", listen]);
        if node.address != node.listen {
            command.args(["--advertise", &node.address]);
        }
        command.args(["--die-with-parent", &std::process::id().to_string()]);
        for setting in &node.settings {
            command.args(["--set", setting]);
        }
        for peer in &node.peers {
            command.args(["--peer", peer]);
        }
        command
    }

    /// Runs a node in the foreground that must end by itself; returns its output.
    pub fn fails_to_start(&self, index: usize) -> Answer {
        ends(self.command(index))
    }

    /// The same with another data directory of the cluster and another address.
    pub fn fails_to_start_on(&self, index: usize, data: &str, listen: &str) -> Answer {
        ends(self.command_on(index, data, listen))
    }

    /// Waits for the line `ready` from a node.
    pub fn wait_ready(&self, index: usize) {
        let node = &self.nodes[index];
        let running = node.running.as_ref().expect("it runs");
        let line = wait::received(&format!("{} gets ready", node.name), &running.said);
        assert_eq!(line, "ready", "{}", node.name);
    }

    /// Whether all members run and have heard of the same changes of members and policies. The leader of the metadata group knows each
    /// change before it answers the request for it.
    pub fn have_heard_changes(&self) -> bool {
        let heard = |index: usize| {
            let status = self.cli_at(index).patient().json(&["status"]).done().object();
            status["counters"]["roster_version"].as_u64()
        };
        let members = self.members();
        let all_run = members.iter().all(|index| self.nodes[*index].running.is_some());
        all_run && members.into_iter().map(heard).collect::<BTreeSet<_>>().len() == 1
    }

    /// Waits until each member has heard of all changes that were acknowledged before.
    pub fn wait_heard_changes(&self) {
        wait::until("each node has heard of the change", || self.have_heard_changes());
    }

    /// Kills a node at once, as a power failure would: SIGKILL.
    pub fn kill(&mut self, index: usize) {
        let mut running = self.nodes[index].running.take().expect("it runs");
        running.child.kill().expect("it can be killed");
        running.child.wait().expect("it ends");
    }

    /// Kills several nodes at the same moment.
    pub fn kill_together(&mut self, indices: &[usize]) {
        for index in indices {
            self.signal(*index, Signal::KILL);
        }
        for index in indices {
            let mut running = self.nodes[*index].running.take().expect("it runs");
            running.child.wait().expect("it ends");
        }
    }

    /// Stops a node as an operator would (SIGTERM), and waits for its end.
    pub fn terminate(&mut self, index: usize) -> ExitStatus {
        self.signal(index, Signal::TERM);
        let mut running = self.nodes[index].running.take().expect("it runs");
        running.child.wait().expect("it ends")
    }

    /// Pauses a node: SIGSTOP.
    pub fn pause(&self, index: usize) {
        self.signal(index, Signal::STOP);
        let stopped = || process_state(self.process(index)) == Some('T');
        wait::until("the node stands still", stopped);
    }

    /// Makes a node reload its certificates: SIGHUP.
    pub fn hang_up(&self, index: usize) {
        self.signal(index, Signal::HUP);
    }

    /// Resumes a paused node: SIGCONT.
    pub fn resume(&self, index: usize) {
        self.signal(index, Signal::CONT);
    }

    /// The process id of a node.
    pub fn process(&self, index: usize) -> u32 {
        self.nodes[index].running.as_ref().expect("it runs").child.id()
    }

    fn signal(&self, index: usize, signal: Signal) {
        let running = self.nodes[index].running.as_ref().expect("it runs");
        kill_process(Pid::from_child(&running.child), signal).expect("the process is there");
    }

    /// Waits until each node in `asked`, queried alone, knows a leader for every partition and each leader is among `leaders`. Returns
    /// the partitions as the first queried node shows them.
    pub async fn wait_led(&self, asked: &[usize], leaders: &[usize]) -> Vec<PartitionView> {
        self.wait_led_where(asked, leaders, |_| true).await
    }

    /// The same; in addition, each partition must satisfy `wanted`.
    pub async fn wait_led_where(
        &self,
        asked: &[usize],
        leaders: &[usize],
        wanted: impl Fn(&PartitionView) -> bool,
    ) -> Vec<PartitionView> {
        let mut first = None;
        for index in asked {
            let client = self.client_of(vec![self.address(*index).to_owned()], Duration::from_secs(2)).await;
            let what = format!("all partitions are led by {leaders:?}, says {}", self.name(*index));
            let led = || async {
                let unanswered = |error: Error| error.to_string();
                let nodes = client.nodes().await.map_err(unanswered)?;
                let partitions = client.partitions().await.map_err(unanswered)?;
                let this = nodes.iter().find(|node| node.this).ok_or("no node says that it answers")?;
                let is_good = |partition: &PartitionView| {
                    let leader = nodes.iter().find(|node| Some(node.node) == partition.leader);
                    let led = leader.is_some_and(|leader| leaders.iter().any(|index| self.name(*index) == leader.name));
                    led && wanted(partition)
                };
                let bad: Vec<&PartitionView> = partitions.iter().filter(|partition| !is_good(partition)).collect();
                let good = this.name == self.name(*index) && bad.is_empty();
                if good { Ok(partitions) } else { Err(format!("{} says {bad:?}", this.name)) }
            };
            let partitions = eventually_or(&what, PATIENCE, led).await;
            first.get_or_insert(partitions);
            client.close().await;
        }
        first.expect("somebody was asked")
    }

    /// Waits until the replicas of each partition agree: the same number of tasks, and the same hash over them.
    pub async fn wait_agreed(&self) {
        let mut clients = Vec::new();
        for index in self.members() {
            let client = self.client_of(vec![self.address(index).to_owned()], Duration::from_secs(5)).await;
            clients.push((index, client));
        }
        let agree = || async {
            let mut contents = BTreeMap::new();
            for (index, client) in &clients {
                let unanswered = |error: Error| error.to_string();
                let nodes = client.nodes().await.map_err(unanswered)?;
                let this = nodes.into_iter().find(|node| node.this).ok_or("no node says that it answers")?;
                if this.name != self.name(*index) {
                    return Err(format!("{} answers in place of {}", this.name, self.name(*index)));
                }
                // A node shows the contents only of its own replicas.
                let held =
                    client.partitions().await.map_err(unanswered)?.into_iter().filter(|held| held.root.is_some());
                for PartitionView { partition, tasks, root, .. } in held {
                    if *contents.entry(partition).or_insert((tasks, root.clone())) != (tasks, root) {
                        return Err(format!("{} holds {tasks:?} tasks of partition {partition}, or others", this.name));
                    }
                }
            }
            if contents.is_empty() { Err("nobody holds anything".to_owned()) } else { Ok(()) }
        };
        eventually_or("all replicas hold the same", PATIENCE, agree).await;
        for (_, client) in clients {
            client.close().await;
        }
    }

    /// The id of a node, as a client sees it.
    pub async fn identity(&self, client: &Client, index: usize) -> NodeId {
        let look = || async {
            let nodes = client.nodes().await.ok()?;
            nodes.into_iter().find(|node| node.name == self.name(index)).map(|node| node.node)
        };
        eventually("the node is known", PATIENCE, look).await
    }

    /// The node's log output so far.
    pub fn log(&self, index: usize) -> String {
        std::fs::read_to_string(log_file(self.directory(), self.name(index))).unwrap_or_default()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            drop(node.running.take());
        }
        if std::thread::panicking() {
            for node in &self.nodes {
                let log = std::fs::read_to_string(log_file(self.directory.path(), &node.name)).unwrap_or_default();
                let lines: Vec<&str> = log.lines().collect();
                let shown = lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n");
                eprintln!("---- end of the log of {} at {}\n{shown}", node.name, node.address);
            }
        }
    }
}

impl Running {
    fn start(command: &mut Command, log: &Path) -> Running {
        let log: File = OpenOptions::new().create(true).append(true).open(log).expect("a file for the log");
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn();
        let mut child = child.expect("the binary runs");
        let output = BufReader::new(child.stdout.take().expect("it is a pipe"));
        let (sender, said) = mpsc::channel();
        std::thread::spawn(move || {
            // Reads to the end, so that the node never blocks on a full pipe.
            for line in output.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Running { child, said }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // SIGKILL also ends stopped processes.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a node in the foreground that must end by itself; returns its output.
fn ends(mut command: Command) -> Answer {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary runs");
    // The output until then fits a pipe's buffer. If the node starts after all, it ends with this process.
    wait::until("a node that must not start ends", || child.try_wait().expect("it is ours").is_some());
    let output = child.wait_with_output().expect("it has ended");
    let text = |bytes| String::from_utf8(bytes).expect("it says text");
    Answer { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// Starts a cluster of nodes that serve HTTP in plain text; returns their doors, too.
pub fn with_doors(nodes: usize) -> (Cluster, Vec<Http>) {
    let mut cluster = Cluster::prepare(nodes, Vec::new());
    let listen = |_| SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let addresses: Vec<SocketAddr> = (0..nodes).map(listen).collect();
    for (index, address) in addresses.iter().enumerate() {
        cluster.replace(index, None, vec![format!("http_listen={address}")]);
        cluster.restart(index);
        cluster.wait_ready(index);
    }
    cluster.init(&(0..nodes).collect::<Vec<_>>(), &["--partitions", "16"]).done();
    (cluster, addresses.iter().map(|address| Http::new(address.to_string())).collect())
}

/// All tasks of a serving cluster, in listing order. A busy machine may need more than one attempt.
pub async fn all_tasks(client: &Client) -> Vec<TaskView> {
    let list = || async {
        let mut tasks = Vec::new();
        let mut listing = client.list(ListOptions::new());
        while let Some(task) = listing.next().await.map_err(|error| error.to_string())? {
            tasks.push(task);
        }
        Ok(tasks)
    };
    wait::eventually_or("the cluster is whole again and lists its tasks", PATIENCE, list).await
}

fn log_file(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}.stderr"))
}

/// The state of a process as one letter: `T` is stopped.
fn process_state(process: u32) -> Option<char> {
    let line = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    line.rsplit_once(") ")?.1.chars().next()
}
