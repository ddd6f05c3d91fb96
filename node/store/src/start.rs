//! The start of a store: replays the log, founds a cluster of one if there is none, and waits until it serves.

use crate::{PANICKED, Store, StoreOptions};
use norn_client::client::Client;
use norn_client::local::local_node;
use norn_engine::Node;
use norn_host::clients::Clients;
use norn_host::clock::Clock;
use norn_host::disk::FileDisk;
use norn_host::driver::{Driver, Inputs, Internal};
use norn_host::emergency::EmergencyStop;
use norn_host::frames::Budget;
use norn_host::links::NoLinks;
use norn_host::log_thread::BacklogBounds;
use norn_host::memory;
use norn_host::metrics::Metrics;
use norn_host::questions::OwnQuestions;
use norn_host::replay::{OpenError, Opening, open as open_log};
use norn_host::threads::{ThreadSettings, Threads, ThreadsError};
use norn_model::config::table;
use norn_model::config::table::Setting;
use norn_model::ring::assign;
use norn_storage::{Log, Replayed};
use norn_wire::response::{Genesis, Identity, Member};
use norn_wire::{ClusterId, Request, Response, Versions};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;

/// Address of a store: none. A node that is started on its directory states its own.
const ADDRESS: &str = "store.invalid:1";
/// Time limit for the store to serve, once its log is read.
const SERVING_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval of the first looks whether it serves.
const SERVING_INTERVAL: Duration = Duration::from_millis(1);
/// Timeout of a call of the store's own client.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a store cannot be opened, or was not closed well.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// An option is out of its bounds.
    #[error("{0}")]
    Options(String),
    /// The directory or its log cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The directory is one of a node of a cluster with other members.
    #[error(
        "{directory} is of node {name:?} of cluster {cluster:?}, which has other members ({others}); a store is alone: start the node \
         with `norn start`, or remove the others from the cluster first",
        directory = directory.display()
    )]
    HasOthers {
        /// The directory.
        directory: PathBuf,
        /// Name of the node.
        name: String,
        /// Name of the cluster.
        cluster: String,
        /// Names of the others.
        others: String,
    },
    /// The log's threads cannot be started.
    #[error(transparent)]
    Threads(ThreadsError),
    /// The store has stopped.
    #[error("the store has stopped: {0}")]
    Failed(String),
}

impl From<ThreadsError> for StoreError {
    fn from(error: ThreadsError) -> StoreError {
        match error {
            ThreadsError::Open(error) => StoreError::Open(error),
            error => StoreError::Threads(error),
        }
    }
}

/// Opens the store in a directory.
pub async fn open(directory: &Path, options: StoreOptions) -> Result<Store, StoreError> {
    options.check()?;
    let partitions = options.partitions;
    let read = replay(directory, &options).await?;
    refuse_others(directory, &read)?;
    let store = run(directory, &options, read).await?;
    let serving = tokio::time::timeout(SERVING_TIMEOUT, serve(&store, partitions)).await;
    match serving {
        Ok(served) => served.map(|()| store),
        Err(_) => Err(StoreError::Failed(format!(
            "it does not serve within {SERVING_TIMEOUT:?}: the machine may be overloaded; open it again"
        ))),
    }
}

/// A node as its log has it.
struct Read {
    name: String,
    node: Node,
    log: Log<FileDisk>,
    replayed: Replayed,
}

/// Reads the log. A directory that has a name keeps it.
async fn replay(directory: &Path, options: &StoreOptions) -> Result<Read, StoreError> {
    let mut opening = Opening {
        data: directory.to_owned(),
        name: options.name.clone(),
        address: ADDRESS.to_owned(),
        zone: String::new(),
        core: options.core()?,
        log: options.log(),
        disk_bytes_max: options.disk_bytes_max,
    };
    let opened = match open_log(opening.clone(), |_| {}).await {
        Err(OpenError::Member { member, .. }) => {
            opening.name = member;
            open_log(opening.clone(), |_| {}).await?
        }
        opened => opened?,
    };
    let (node, log, replayed) = opened;
    Ok(Read { name: opening.name, node, log, replayed })
}

fn refuse_others(directory: &Path, read: &Read) -> Result<(), StoreError> {
    let Some(genesis) = read.node.genesis() else { return Ok(()) };
    let own = read.log.identity().node;
    let is_other = |member: &&norn_wire::membership::Member| member.node != own && member.state.is_present();
    let others = read.node.roster().members.values().filter(is_other);
    let others: Vec<&str> = others.map(|member| member.name.as_str()).collect();
    if others.is_empty() {
        return Ok(());
    }
    let (directory, name, cluster) = (directory.to_owned(), read.name.clone(), genesis.name.clone());
    Err(StoreError::HasOthers { directory, name, cluster, others: others.join(", ") })
}

/// Default of a number among the settings of a node.
pub fn default_of(name: &str) -> u64 {
    table::find(name).and_then(Setting::number).expect("the table has each number that the program names").default
}

/// Starts the node with all that runs for it.
async fn run(directory: &Path, options: &StoreOptions, read: Read) -> Result<Store, StoreError> {
    let Read { name, node, log, replayed } = read;
    let count = |name| usize::try_from(default_of(name)).unwrap_or(usize::MAX);
    let metrics = Arc::new(Metrics::default());
    let (internal, internal_queue) = mpsc::channel(count("event_queue_max"));
    let (external, external_queue) = mpsc::channel(count("client_queue_max"));
    let inputs = Inputs { internal, external };
    let speaks = Versions::SPOKEN;
    let (local, links) = local_node(speaks.newest);
    let (ended, failed) = (links.reason(), watch::Sender::new(false));
    let emergency = emergency(&ended, &failed);
    let (identity, name) = (log.identity().node, Arc::<str>::from(name));
    let work = ThreadSettings {
        backlog: BacklogBounds { batches_max: count("log_batches_max"), bytes_max: count("log_bytes_max") },
        scrub_bytes_per_second: default_of("scrub_bytes_per_second"),
        archive: options.archive.clone(),
        compact_at_start: default_of("compact_at_start") == 1,
    };
    let started = Threads::start(directory, (node, log, replayed), work, &inputs, &metrics, &emergency).await?;
    let Threads { node, log, loader, archive, durable } = started;
    let frame_timeout = Duration::from_millis(default_of("frame_timeout_ms"));
    let budget = Budget::new(count("frame_memory_bytes"));
    let clients = Clients::new(speaks, inputs.clone(), Arc::clone(&metrics), budget, frame_timeout);
    let serving = tokio::spawn(Arc::clone(&clients).run_local(speaks.newest, links));
    let driver = Driver {
        node,
        identity,
        name: Arc::clone(&name),
        durable,
        clock: Clock::start(),
        log,
        loader,
        archive,
        peers: NoLinks,
        belonging: watch::channel(None).0,
        metrics,
        emergency,
        internal: internal_queue,
        external: external_queue,
    };
    let driver = tokio::spawn(driver.run());
    let closes = Arc::<AtomicBool>::default();
    let (ends, serves, why) =
        (driver.abort_handle(), serving.abort_handle(), (Arc::clone(&ended), Arc::clone(&closes)));
    let watching = tokio::spawn(end_with(failed, inputs.internal.clone(), ends, serves, why));
    let memory = tokio::spawn(memory::watch(inputs.internal.clone(), options.memory_bytes_max));
    Ok(Store {
        client: Client::local(local.clone(), "store", REQUEST_TIMEOUT),
        local,
        clients,
        questions: Arc::new(OwnQuestions::new(inputs.clone(), name)),
        inputs,
        driver: Some(driver),
        watching,
        closes,
        tasks: vec![serving, memory],
        ended,
    })
}

/// Notes why the store cannot go on, and has it ended.
fn emergency(ended: &Arc<OnceLock<String>>, failed: &watch::Sender<bool>) -> EmergencyStop {
    let (ended, failed) = (Arc::clone(ended), failed.clone());
    EmergencyStop::new(move |reason| {
        let _ = ended.set(reason.to_owned());
        failed.send_replace(true);
    })
}

/// Ends the node after a failure, or after a panic of its driver, and with the way to it all calls of clients.
async fn end_with(
    failed: watch::Sender<bool>,
    internal: mpsc::Sender<Internal>,
    driver: AbortHandle,
    serving: AbortHandle,
    (ended, closes): (Arc<OnceLock<String>>, Arc<AtomicBool>),
) {
    let mut failure = failed.subscribe();
    tokio::select! {
        _ = failure.wait_for(|failed| *failed) => driver.abort(),
        () = internal.closed() => {
            // `Store::close` says so, and its drop ends the calls of the clients.
            if closes.load(Ordering::Acquire) {
                return;
            }
            ended.get_or_init(|| PANICKED.to_owned());
        }
    }
    serving.abort();
}

/// Founds a cluster of this node alone, unless there is one, and waits until it serves.
async fn serve(store: &Store, partitions: u32) -> Result<(), StoreError> {
    let stopped = || StoreError::Failed(store.failure().unwrap_or("the node has ended").to_owned());
    let mut interval = SERVING_INTERVAL;
    loop {
        let Response::Identity(identity) = store.ask(Request::Identify).await.ok_or_else(stopped)? else {
            return Err(StoreError::Failed("the node does not say who it is".to_owned()));
        };
        if identity.genesis.is_none() {
            let founding = Request::Initialize(Box::new(alone(&identity, partitions)));
            match store.ask(founding).await.ok_or_else(stopped)? {
                Response::Error(error) => return Err(StoreError::Failed(error.message)),
                _ => continue,
            }
        }
        if identity.serving {
            return Ok(());
        }
        tokio::time::sleep(interval).await;
        interval = interval.saturating_mul(2).min(Duration::from_millis(20));
    }
}

/// The founding record of a cluster of one.
fn alone(identity: &Identity, partitions: u32) -> Genesis {
    let Identity { node, incarnation, name, address, zone, .. } = identity.clone();
    let members = vec![Member { node, incarnation, address, name, zone }];
    let assignment = assign(&members, partitions, 1);
    Genesis {
        cluster: ClusterId(rand::random()),
        name: "norn".to_owned(),
        partitions,
        replicas: 1,
        members,
        assignment,
    }
}
