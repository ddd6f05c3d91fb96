//! RabbitMQ: three servers with quorum queues, publisher confirms, and consumers with manual acknowledgements.

use super::install::{self, Programs};
use super::peer::{About, Peer, usage_of};
use super::place::{Place, Program, Server, free_ports};
use crate::system::{Answer, Client, System, Usage};
use anyhow::{Context, Result, ensure};
use futures_util::StreamExt;
use futures_util::future::join_all;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions, ConfirmSelectOptions,
    QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Confirmation, Connection, ConnectionProperties, Consumer};
use norn_wire::QueueName;
use rustix::process::Signal;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Servers, and members of each queue.
const SERVERS: usize = 3;
/// How long a server may take to become ready.
const PATIENCE: Duration = Duration::from_secs(180);
/// How long a claim waits for its first task, and then for each further one.
const WAIT: Duration = Duration::from_secs(2);
const WAIT_MORE: Duration = Duration::from_millis(200);
/// Delivery mode of messages that are stored on disk.
const PERSISTENT: u8 = 2;

/// Running servers.
pub struct RabbitMq {
    // Servers end before their directory goes.
    servers: Mutex<Vec<Server>>,
    #[expect(dead_code, reason = "held, so that it ends with the servers")]
    names: Server,
    #[expect(dead_code, reason = "held, so that it goes after the servers")]
    place: Place,
    ports: Vec<u16>,
    about: About,
}

/// The programs.
struct Found {
    /// Start script of a server.
    server: PathBuf,
    /// Daemon that knows the ports of nodes.
    epmd: PathBuf,
    /// Directory of an `erl` that finds what was installed, if it was.
    shims: Option<PathBuf>,
    libraries: String,
}

impl RabbitMq {
    /// Finds or installs the programs, starts all servers, and waits until they are one cluster.
    pub async fn start(programs: &Programs, directory: &Path) -> Result<RabbitMq> {
        let found = find(programs)?;
        let place = Place::new(directory, "rabbitmq")?;
        // The secret that all nodes share.
        let cookie = place.write(".erlang.cookie", "bench")?;
        std::fs::set_permissions(cookie, std::fs::Permissions::from_mode(0o400))?;
        let all_ports = free_ports(2 * SERVERS + 1)?;
        let (ports, others) = all_ports.split_at(SERVERS);
        let epmd_port = others[SERVERS].to_string();
        let names = Program::new(&found.epmd).args(["-port", &epmd_port, "-address", "127.0.0.1"]);
        let names = place.start("epmd", &names.variable("LD_LIBRARY_PATH", &found.libraries), Signal::KILL)?;
        let mut servers: Vec<Server> = Vec::new();
        for number in 0..SERVERS {
            let program = server(&found, &place, number, [ports[number], others[number]], &epmd_port)?;
            servers.push(place.start(&node(number), &program, Signal::KILL)?);
            // The others join the first one. They start together.
            if number == 0 {
                servers[0].ready(PATIENCE, async || connect(ports[0]).await).await?;
            }
        }
        for (server, port) in servers.iter_mut().zip(ports) {
            server.ready(PATIENCE, async || connect(*port).await).await?;
        }
        let (_connection, channel) = connect(ports[0]).await?;
        declare(&channel, "ready", false).await?;
        for (server, port) in servers.iter_mut().zip(ports) {
            let knows_queue = async || declare(&connect(*port).await?.1, "ready", true).await;
            server.ready(PATIENCE, knows_queue).await.context("the servers are not one cluster")?;
        }
        let version = version_of(&found);
        let settings = ["quorum queues of 3 members", "publisher confirms", "prefetch: the tasks of a claim"];
        let acknowledged =
            "publishing: synced on 2 of 3 servers; completing: sent, and committed before the next delivery";
        let settings = settings.map(str::to_owned).to_vec();
        let about = About { version, settings, acknowledged: acknowledged.to_owned() };
        Ok(RabbitMq { servers: Mutex::new(servers), names, place, ports: ports.to_vec(), about })
    }

    fn servers(&self) -> MutexGuard<'_, Vec<Server>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn find(programs: &Programs) -> Result<Found> {
    let script = PathBuf::from("/usr/lib/rabbitmq/bin/rabbitmq-server");
    if let (true, Some(epmd)) = (script.is_file(), install::on_path("epmd")) {
        return Ok(Found { server: script, epmd, shims: None, libraries: String::new() });
    }
    let directory = programs.unpack_debian("rabbitmq", &["rabbitmq-server"])?;
    let shims = directory.join("shims");
    std::fs::create_dir_all(&shims)?;
    let erl = shims.join("erl");
    std::fs::write(&erl, erl_script(&directory.join("usr/lib/erlang")))?;
    std::fs::set_permissions(&erl, std::fs::Permissions::from_mode(0o755))?;
    let server = install::installed(&directory, "usr/lib/rabbitmq/bin/rabbitmq-server")?;
    let epmd = std::fs::canonicalize(directory.join("usr/lib/erlang/bin/epmd"));
    let epmd = epmd.or_else(|_| newest_epmd(&directory))?;
    Ok(Found { server, epmd, shims: Some(shims), libraries: install::library_path(&directory) })
}

fn newest_epmd(directory: &Path) -> std::io::Result<PathBuf> {
    let runtimes = std::fs::read_dir(directory.join("usr/lib/erlang"))?.flatten();
    let programs = runtimes.map(|entry| entry.path().join("bin/epmd")).filter(|program| program.is_file());
    programs.max().ok_or_else(|| std::io::ErrorKind::NotFound.into())
}

/// A start script of Erlang for another directory than that which the package's own script has been made for.
fn erl_script(root: &Path) -> String {
    format!(
        "#!/bin/sh\nROOTDIR='{}'\nBINDIR=$(echo \"$ROOTDIR\"/erts-*/bin)\nEMU=beam\nPROGNAME=erl\n\
         export ROOTDIR BINDIR EMU PROGNAME\nexec \"$BINDIR/erlexec\" \"$@\"\n",
        root.display()
    )
}

fn node(number: usize) -> String {
    format!("rabbit{}", number + 1)
}

/// The program of a server, which replaces the start script and so has its process id.
fn server(found: &Found, place: &Place, number: usize, [port, peers]: [u16; 2], epmd_port: &str) -> Result<Program> {
    let name = node(number);
    let members = (0..SERVERS)
        .map(|number| format!("cluster_formation.classic_config.nodes.{} = {}@localhost\n", number + 1, node(number)));
    let text = format!(
        "listeners.tcp.default = 127.0.0.1:{port}\nlog.console = true\nlog.console.level = warning\n\
         cluster_formation.peer_discovery_backend = classic_config\n{}",
        members.collect::<String>()
    );
    let file = place.write(&format!("{name}.conf"), &text)?;
    let data = place.make_directory(&name)?.display().to_string();
    let path = std::env::var("PATH").unwrap_or_default();
    let path = found.shims.iter().fold(path, |path, shims| format!("{}:{path}", shims.display()));
    let variables = [
        ("PATH", path),
        ("LD_LIBRARY_PATH", found.libraries.clone()),
        // The script then becomes the server, instead of staying beside it.
        ("detached", "true".to_owned()),
        ("ERL_EPMD_PORT", epmd_port.to_owned()),
        ("RABBITMQ_NODENAME", format!("{name}@localhost")),
        ("RABBITMQ_DIST_PORT", peers.to_string()),
        ("RABBITMQ_CONFIG_FILE", file.display().to_string()),
        ("RABBITMQ_CONF_ENV_FILE", "/dev/null".to_owned()),
        ("RABBITMQ_ENABLED_PLUGINS_FILE", format!("{data}/plugins")),
        ("RABBITMQ_FEATURE_FLAGS_FILE", format!("{data}/feature-flags")),
        ("RABBITMQ_GENERATED_CONFIG_DIR", format!("{data}/config")),
        ("RABBITMQ_LOGS", "-".to_owned()),
        ("RABBITMQ_LOG_BASE", data.clone()),
        ("ERL_CRASH_DUMP", format!("{data}/crash.dump")),
        ("RABBITMQ_MNESIA_BASE", data),
    ];
    Ok(variables.iter().fold(Program::new(&found.server), |program, (name, value)| program.variable(name, value)))
}

/// Version of the server, as its directory has it.
fn version_of(found: &Found) -> String {
    let script = std::fs::canonicalize(&found.server).unwrap_or_default();
    let directory = script.ancestors().filter_map(|path| path.file_name()?.to_str());
    directory.filter(|name| name.starts_with("rabbitmq_server-")).map(str::to_owned).next().unwrap_or_default()
}

async fn connect(port: u16) -> Result<(Connection, Channel)> {
    let address = format!("amqp://guest:guest@127.0.0.1:{port}/%2f");
    let connection = Connection::connect(&address, ConnectionProperties::default()).await?;
    let channel = connection.create_channel().await?;
    Ok((connection, channel))
}

async fn declare(channel: &Channel, queue: &str, passive: bool) -> Result<()> {
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    arguments.insert("x-quorum-initial-group-size".into(), AMQPValue::LongInt(SERVERS as i32));
    let options = QueueDeclareOptions { passive, ..QueueDeclareOptions::durable() };
    channel.queue_declare(queue.into(), options, arguments).await?;
    Ok(())
}

impl System for RabbitMq {
    fn connect<'a>(&'a self, number: usize, queue: &'a QueueName) -> Answer<'a, Result<Box<dyn Client>>> {
        Box::pin(async move {
            let (connection, channel) = connect(self.ports[number % SERVERS]).await?;
            channel.confirm_select(ConfirmSelectOptions::default()).await?;
            let queue = queue.to_string();
            Ok(Box::new(Session { connection, channel, tasks: None, queue, held: Vec::new() }) as Box<dyn Client>)
        })
    }

    fn usage(&self) -> Answer<'_, Result<Usage>> {
        Box::pin(async { usage_of(&self.pids()) })
    }
}

impl Peer for RabbitMq {
    fn about(&self) -> &About {
        &self.about
    }

    fn pids(&self) -> Vec<u32> {
        self.servers().iter().map(Server::pid).collect()
    }

    fn prepare<'a>(&'a self, queue: &'a QueueName) -> Answer<'a, Result<()>> {
        Box::pin(async move { declare(&connect(self.ports[0]).await?.1, &queue.to_string(), false).await })
    }

    fn kill_one(&self) -> Answer<'_, Result<String>> {
        Box::pin(async {
            // Queues are made at the first server, which leads them.
            self.servers()[0].kill()?;
            Ok("one of three servers killed, the leader; nothing else done".to_owned())
        })
    }
}

/// A client with its channel. The server sends the next tasks as soon as it has committed that the present ones are done.
struct Session {
    connection: Connection,
    channel: Channel,
    tasks: Option<Consumer>,
    queue: String,
    /// Delivery tags.
    held: Vec<u64>,
}

impl Session {
    async fn try_enqueue(&self, payload: &[u8]) -> Result<()> {
        let properties = BasicProperties::default().with_delivery_mode(PERSISTENT);
        let options = BasicPublishOptions::default();
        let confirm = self.channel.basic_publish("".into(), self.queue.as_str().into(), options, payload, properties);
        let confirmation = confirm.await?.await?;
        ensure!(matches!(confirmation, Confirmation::Ack(None)), "the server refuses it: {confirmation:?}");
        Ok(())
    }

    async fn try_claim(&mut self, max: usize) -> Result<Vec<Vec<u8>>> {
        let tasks = match &mut self.tasks {
            Some(tasks) => tasks,
            none => {
                self.channel.basic_qos(u16::try_from(max)?, BasicQosOptions::default()).await?;
                let (queue, tag) = (self.queue.as_str().into(), "worker".into());
                let options = BasicConsumeOptions::default();
                none.insert(self.channel.basic_consume(queue, tag, options, FieldTable::default()).await?)
            }
        };
        let (mut payloads, mut wait) = (Vec::new(), WAIT);
        while payloads.len() < max {
            let Ok(next) = tokio::time::timeout(wait, tasks.next()).await else { break };
            let delivery = next.context("the consumer has ended")??;
            self.held.push(delivery.delivery_tag);
            payloads.push(delivery.data);
            wait = WAIT_MORE;
        }
        Ok(payloads)
    }
}

impl Client for Session {
    fn enqueue<'a>(&'a mut self, payloads: &'a [Vec<u8>]) -> Answer<'a, Vec<String>> {
        Box::pin(async move {
            let published = join_all(payloads.iter().map(|payload| self.try_enqueue(payload))).await;
            published.into_iter().filter_map(|outcome| Some(format!("{:#}", outcome.err()?))).collect()
        })
    }

    fn claim(&mut self, max: usize) -> Answer<'_, Result<Vec<Vec<u8>>>> {
        Box::pin(self.try_claim(max))
    }

    fn complete(&mut self) -> Answer<'_, (u64, Vec<String>)> {
        Box::pin(async {
            let held = std::mem::take(&mut self.held);
            let Some(last) = held.last() else { return (0, Vec::new()) };
            // One acknowledgement for all up to this tag. The protocol has no answer to it.
            match self.channel.basic_ack(*last, BasicAckOptions { multiple: true }).await {
                Ok(()) => (held.len() as u64, Vec::new()),
                Err(error) => (0, vec![error.to_string()]),
            }
        })
    }

    fn close(self: Box<Self>) -> Answer<'static, ()> {
        Box::pin(async move { drop(self.connection.close(200, "".into()).await) })
    }
}
