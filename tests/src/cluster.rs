//! A cluster of `norn start` processes on loopback, in a directory of its own.

use crate::cli::{self, Answer, Cli};
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

/// Lines of each node's log that are shown when a test fails.
const LOG_LINES_SHOWN: usize = 60;

/// How a cluster is to be.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    /// Nodes that make up the cluster.
    pub nodes: usize,
    /// Partitions.
    pub partitions: u32,
    /// Replicas of each partition; absent: the default.
    pub replicas: Option<u32>,
    /// Settings of each node, `NAME=VALUE`.
    pub settings: Vec<String>,
    /// Whether the network between nodes can be made bad.
    pub proxied: bool,
    /// What nodes run; absent: the binary built beside the tests.
    pub program: Option<PathBuf>,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        ClusterOptions { nodes: 3, partitions: 16, replicas: None, settings: Vec::new(), proxied: false, program: None }
    }
}

/// Some nodes; they end with it. Must be dropped in the thread that started them.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Node>,
    /// Of places that are made.
    settings: Vec<String>,
    program: Option<PathBuf>,
    /// What commands run, if not the binary beside the tests.
    commands: Option<PathBuf>,
    network: Option<Network>,
    directory: TempDir,
}

#[derive(Debug)]
struct Node {
    name: String,
    /// What it binds.
    listen: String,
    /// Where all others reach it: its proxy, if it has one.
    address: String,
    settings: Vec<String>,
    /// Where it finds its peers, `NODE=HOST:PORT`, whatever the cluster knows.
    peers: Vec<String>,
    /// What it runs, if not the binary beside the tests.
    program: Option<PathBuf>,
    /// It is no member: not yet, or not any more.
    outside: bool,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    child: Child,
    said: mpsc::Receiver<String>,
}

impl Cluster {
    /// Three nodes that serve.
    pub fn start() -> Cluster {
        Cluster::start_with(ClusterOptions::default())
    }

    /// A cluster that serves.
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

    /// Certificates and places for some nodes; none of them runs.
    pub fn prepare(nodes: usize, settings: Vec<String>) -> Cluster {
        Cluster::prepare_with(nodes, settings, None, None)
    }

    /// From now on this program is what nodes and commands run.
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

    /// A certificate and a place for one more node; gives its index.
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

    /// Starts one more node, which has no cluster and waits; gives its index. It is none of the cluster's nodes before
    /// [`Cluster::enter`].
    pub fn start_blank(&mut self) -> usize {
        let index = self.add_place();
        self.nodes[index].outside = true;
        self.restart(index);
        self.wait_ready(index);
        index
    }

    /// Starts one more node, which joins by itself; gives its index.
    pub fn start_joining(&mut self, token: &str) -> usize {
        let index = self.add_place();
        self.nodes[index].settings.push(format!("join={token}"));
        self.restart(index);
        self.wait_ready(index);
        index
    }

    /// A node was made a member.
    pub fn enter(&mut self, index: usize) {
        self.nodes[index].outside = false;
    }

    /// A node that does not run never comes back, and nobody asks it any more.
    pub fn give_up(&mut self, index: usize) {
        assert!(self.nodes[index].running.is_none(), "it runs");
        self.nodes[index].outside = true;
    }

    /// A node was removed: it is stopped, and nobody asks it any more.
    pub fn leave(&mut self, index: usize) {
        self.nodes[index].outside = true;
        self.terminate(index);
    }

    /// Ends a node at once, and starts it with an empty data directory: another one of the same name at the same address.
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

    /// The directory of everything.
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

    /// The network between the nodes, of a cluster that has one which can be made bad.
    pub fn network(&self) -> &Network {
        self.network.as_ref().expect("the cluster was started with proxies")
    }

    /// Where a node is reached.
    pub fn address(&self, index: usize) -> &str {
        &self.nodes[index].address
    }

    /// Nodes that are members.
    pub fn members(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|index| !self.nodes[*index].outside).collect()
    }

    /// Where all members are reached.
    pub fn addresses(&self) -> Vec<String> {
        self.members().into_iter().map(|index| self.nodes[index].address.clone()).collect()
    }

    /// The verbs, at any node.
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

    /// A client that knows some addresses only at first, with a bound on its calls.
    pub async fn client_of(&self, addresses: Vec<String>, timeout: Duration) -> Client {
        let certificates = self.certificates();
        let file = |name: &str| certificates.join(name);
        let mut config =
            ClientConfig::new(addresses, file("ca.crt"), file("client-tests.crt"), file("client-tests.key"));
        config.request_timeout = timeout;
        Client::connect(config).await.expect("certificates and a socket")
    }

    /// Starts a node that does not run. Does not wait for it.
    pub fn restart(&mut self, index: usize) {
        let mut command = self.command(index);
        let node = &mut self.nodes[index];
        assert!(node.running.is_none(), "{} runs already", node.name);
        node.running = Some(Running::start(&mut command, &log_file(self.directory.path(), &node.name)));
    }

    /// What a node that does not run is started with from now on.
    pub fn replace(&mut self, index: usize, program: Option<PathBuf>, settings: Vec<String>) {
        let node = &mut self.nodes[index];
        assert!(node.running.is_none(), "{} runs", node.name);
        (node.program, node.settings) = (program, settings);
    }

    /// Where a node that does not run listens from now on, and is reached by its settings; the cluster is to be told.
    pub fn relocate(&mut self, index: usize, address: &str) {
        self.rebind(index, address);
        // Only what is said so has the cluster follow.
        self.nodes[index].settings.push(format!("advertise={address}"));
    }

    /// Where a node that does not run listens from now on. Its settings do not say that it is reached there.
    pub fn rebind(&mut self, index: usize, address: &str) {
        let node = &mut self.nodes[index];
        assert!(node.running.is_none(), "{} runs", node.name);
        (node.listen, node.address) = (address.to_owned(), address.to_owned());
    }

    /// Where all others reach a node that does not run from now on, though it listens as before.
    pub fn advertise(&mut self, index: usize, address: &str) {
        let node = &mut self.nodes[index];
        assert!(node.running.is_none(), "{} runs", node.name);
        address.clone_into(&mut node.address);
    }

    /// Where a node that does not run finds its peers from now on, `NODE=HOST:PORT`.
    pub fn hint(&mut self, index: usize, peers: Vec<String>) {
        let node = &mut self.nodes[index];
        assert!(node.running.is_none(), "{} runs", node.name);
        node.peers = peers;
    }

    /// What `restart` runs.
    fn command(&self, index: usize) -> Command {
        let node = &self.nodes[index];
        self.command_on(index, &node.name, &node.listen)
    }

    /// The same on another directory, at another address.
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

    /// Runs the node in the foreground, which must end by itself: what it says.
    pub fn fails_to_start(&self, index: usize) -> Answer {
        ends(self.command(index))
    }

    /// The same on another directory of the cluster's, at another address.
    pub fn fails_to_start_on(&self, index: usize, data: &str, listen: &str) -> Answer {
        ends(self.command_on(index, data, listen))
    }

    /// Waits for a node's line `ready`.
    pub fn wait_ready(&self, index: usize) {
        let node = &self.nodes[index];
        let running = node.running.as_ref().expect("it runs");
        let line = wait::received(&format!("{} gets ready", node.name), &running.said);
        assert_eq!(line, "ready", "{}", node.name);
    }

    /// Whether all nodes run and have heard of the same changes of members and policies. The root's leader knows each of them
    /// before it is answered.
    pub fn have_heard_changes(&self) -> bool {
        let heard = |index: usize| {
            let status = self.cli_at(index).patient().json(&["status"]).done().object();
            status["counters"]["roster_version"].as_u64()
        };
        let members = self.members();
        let all_run = members.iter().all(|index| self.nodes[*index].running.is_some());
        all_run && members.into_iter().map(heard).collect::<BTreeSet<_>>().len() == 1
    }

    /// Waits until each node has heard of the changes that were answered before.
    pub fn wait_heard_changes(&self) {
        wait::until("each node has heard of the change", || self.have_heard_changes());
    }

    /// Ends a node at once, as a power failure would: SIGKILL.
    pub fn kill(&mut self, index: usize) {
        let mut running = self.nodes[index].running.take().expect("it runs");
        running.child.kill().expect("it can be killed");
        running.child.wait().expect("it ends");
    }

    /// Ends some nodes at the same moment.
    pub fn kill_together(&mut self, indices: &[usize]) {
        for index in indices {
            self.signal(*index, Signal::KILL);
        }
        for index in indices {
            let mut running = self.nodes[*index].running.take().expect("it runs");
            running.child.wait().expect("it ends");
        }
    }

    /// Stops a node as a person would, and waits for its end.
    pub fn terminate(&mut self, index: usize) -> ExitStatus {
        self.signal(index, Signal::TERM);
        let mut running = self.nodes[index].running.take().expect("it runs");
        running.child.wait().expect("it ends")
    }

    /// Holds a node still: SIGSTOP.
    pub fn pause(&self, index: usize) {
        self.signal(index, Signal::STOP);
        let stopped = || process_state(self.process(index)) == Some('T');
        wait::until("the node stands still", stopped);
    }

    /// Has a node read its certificates again: SIGHUP.
    pub fn hang_up(&self, index: usize) {
        self.signal(index, Signal::HUP);
    }

    /// Lets a node go on: SIGCONT.
    pub fn resume(&self, index: usize) {
        self.signal(index, Signal::CONT);
    }

    /// The number of a node's process.
    pub fn process(&self, index: usize) -> u32 {
        self.nodes[index].running.as_ref().expect("it runs").child.id()
    }

    fn signal(&self, index: usize, signal: Signal) {
        let running = self.nodes[index].running.as_ref().expect("it runs");
        kill_process(Pid::from_child(&running.child), signal).expect("the process is there");
    }

    /// Waits until each of these nodes, asked alone, knows a leader for every partition and that one is among
    /// `leaders`; gives the partitions as the first of them sees them.
    pub async fn wait_led(&self, asked: &[usize], leaders: &[usize]) -> Vec<PartitionView> {
        self.wait_led_where(asked, leaders, |_| true).await
    }

    /// The same, and each partition must be as wanted besides.
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

    /// Waits until the replicas of each partition hold the same: as many tasks, and the same hash over them.
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
                // A node shows the contents of its own replicas alone.
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

    /// The identity of a node, by what a client is told.
    pub async fn identity(&self, client: &Client, index: usize) -> NodeId {
        let look = || async {
            let nodes = client.nodes().await.ok()?;
            nodes.into_iter().find(|node| node.name == self.name(index)).map(|node| node.node)
        };
        eventually("the node is known", PATIENCE, look).await
    }

    /// The log of a node so far.
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
            // To the end, so that the node never waits for somebody to listen.
            for line in output.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Running { child, said }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // SIGKILL ends stopped processes too.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a node in the foreground, which must end by itself: what it says.
fn ends(mut command: Command) -> Answer {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary runs");
    // What it says until then fits a pipe's buffer. Should it start after all, it ends with this process.
    wait::until("a node that must not start ends", || child.try_wait().expect("it is ours").is_some());
    let output = child.wait_with_output().expect("it has ended");
    let text = |bytes| String::from_utf8(bytes).expect("it says text");
    Answer { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// All tasks of a cluster that serves, in the order in which it lists them. A busy machine may need more than one try.
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
