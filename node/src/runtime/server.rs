//! A running node: wires log, core, listener and links together.

use crate::runtime::archive::Archive;
use crate::runtime::clock::Clock;
use crate::runtime::disk::{FileDisk, FileDiskError, refuse_foreign};
use crate::runtime::doors::{NodeHost, OpenDoors, OwnQuestions};
use crate::runtime::driver::{Belonging, Driver, Inputs, Internal};
use crate::runtime::duplicate_instance::{DuplicateInstance, Found, OwnCalls, Whereabouts};
use crate::runtime::hints::{HintError, Hints};
use crate::runtime::listener::Listener;
use crate::runtime::loader::Loader;
use crate::runtime::memory;
use crate::runtime::metrics::Metrics;
use crate::runtime::moved::{Elsewhere, Moved, Relocation, Unsaid, Way};
use crate::runtime::peers::{Peers, Speaker};
use crate::runtime::renewing::{Opened, Renewed};
use crate::runtime::settings::Settings;
use crate::runtime::store::{Journal, Store};
use crate::runtime::surroundings::Lookout;
use crate::runtime::tls::{Credentials, TlsError, own_principal};
use crate::runtime::transport::{CloseCode, PeerConfig, bind_first, endpoint};
use norn_client::dial::addresses;
use norn_client::local::local_node;
use norn_client::tls::Renewal;
use norn_doors::ListenError;
use norn_engine::{Founding, Node};
use norn_model::host::Room;
use norn_model::record::Record;
use norn_model::snapshot::Part;
use norn_model::task::Place;
use norn_restore::Restorer;
use norn_storage::disk::{Disk, DiskError};
use norn_storage::scrub::{ScrubPace, Scrubbed};
use norn_storage::{Identity, Log, LogError, Replayed, Saved, Shortage, Upkeep, WITHOUT_A_COPY};
use norn_wire::membership::Roster;
use norn_wire::response::Identity as NodeIdentity;
use norn_wire::{NodeId, Request, Response, Versions};
use quinn::{Endpoint, ServerConfig};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;

/// Time limit for handing over leaderships.
const HAND_OVER_TIMEOUT: Duration = Duration::from_secs(3);
/// Time limit for delivering the last answers.
const LAST_ANSWERS_TIMEOUT: Duration = Duration::from_millis(500);
/// Time limit for closing connections.
const GOOD_BYE_TIMEOUT: Duration = Duration::from_millis(100);
/// Longest time that a node takes to stop, but for the disk and for closing connections.
pub const STOP_TIME_MAX: Duration =
    norn_doors::CLOSE_TIME_MAX.saturating_add(HAND_OVER_TIMEOUT).saturating_add(LAST_ANSWERS_TIMEOUT);
/// Interval of the first checks whether the node serves.
const READY_INTERVAL_MIN: Duration = Duration::from_millis(20);
/// Longest interval of later ones: a node that does not serve for minutes is waiting for something, and should not be kept busy.
const READY_INTERVAL_MAX: Duration = Duration::from_secs(1);
/// The interval is one part in this many of the time waited so far, so that readiness is noticed at most a tenth late.
const READY_INTERVAL_PART: u32 = 10;
/// Records between two progress reports of a replay.
const REPLAY_REPORT_RECORDS: u64 = 1_000;
/// Interval of reports of all counters in the log.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);
/// Pause between two scrubs of the log.
const SCRUB_REST_US: u64 = 600_000_000;

/// Why a node did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Its certificates are unusable.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The certificate file is named for another node than the certificate itself.
    #[error("{}: the certificate of node {name:?} names {certificate}", file.display())]
    Name {
        /// The file.
        file: PathBuf,
        /// Name in the file's name.
        name: String,
        /// Name in the certificate.
        certificate: String,
    },
    /// The address is in use.
    #[error("{0} is in use already: another node may be running there; choose another with --listen")]
    AddressInUse(SocketAddr),
    /// The address cannot be bound, or is not valid.
    #[error("cannot listen on {0}: {1}")]
    Listen(String, io::Error),
    /// The HTTP listener cannot be opened.
    #[error(transparent)]
    Http(#[from] ListenError),
    /// A wildcard address, which other nodes cannot reach.
    #[error("{0} is no address that others can reach; say which is with --advertise HOST:PORT")]
    Advertise(SocketAddr),
    /// The data directory is unusable.
    #[error(transparent)]
    Directory(#[from] FileDiskError),
    /// The log cannot be opened or recovered.
    #[error("log in {0}: {1}")]
    Log(String, String),
    /// Too little space on the disk.
    #[error("{}", shortage_text(.0, *.1, .2))]
    NoRoom(String, bool, Shortage),
    /// The archive cannot be written.
    #[error("archive {file}: {1}; finished tasks are to be written there", file = .0.display())]
    Archive(PathBuf, io::Error),
    /// The log belongs to another member, so peers would refuse this node.
    #[error(
        "the log in {data} is of node {member:?} of cluster {cluster:?}, but the certificate names {certificate:?}; \
         give the data directory of {certificate:?} with --data, or the certificate of {member:?} with --name"
    )]
    Member {
        /// Directory of the log.
        data: String,
        /// Name of the cluster.
        cluster: String,
        /// Name of the member that the log belongs to.
        member: String,
        /// Name in this node's certificate.
        certificate: String,
    },
    /// The node is running already, and the data directory is a copy.
    #[error(transparent)]
    DuplicateInstance(#[from] DuplicateInstance),
    /// The node is bound at an address other than the one where its cluster reaches it, and an operator has to state the reason.
    #[error(transparent)]
    Elsewhere(#[from] Box<Elsewhere>),
    /// The given peer addresses do not fit the cluster.
    #[error(transparent)]
    Hint(#[from] HintError),
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

/// Progress of the replay of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replaying {
    /// Records replayed.
    pub records: u64,
    /// Bytes of the log that were read; some may be read twice.
    pub read_bytes: u64,
    /// Bytes of the log.
    pub bytes: u64,
    /// Time since the log was opened.
    pub elapsed: Duration,
}

/// State of a node that is up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// The node knows a leader of every partition that it holds.
    Serving,
    /// It has no cluster and waits for one.
    AwaitsCluster,
}

/// A running node.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    identity: NodeId,
    endpoint: Endpoint,
    inputs: Inputs,
    driver: JoinHandle<Store>,
    accepting: JoinHandle<()>,
    /// Serves the links of the doors.
    serving_doors: JoinHandle<()>,
    doors: Option<OpenDoors>,
    reporting: JoinHandle<()>,
    memory: JoinHandle<()>,
    /// Publishes the node's new address to the cluster, if it has moved.
    relocating: Option<JoinHandle<()>>,
    /// The certificate files as they were at the start.
    certificates: Renewal,
    renewing: JoinHandle<()>,
    /// Triggers a reread of the certificates.
    reload: Arc<Notify>,
    metrics: Arc<Metrics>,
    listener: Arc<Listener>,
    questions: Arc<OwnQuestions>,
}

struct LogJournal(Log<FileDisk>);

impl Journal for LogJournal {
    fn append(&mut self, records: &[Record]) -> Result<Vec<Option<Place>>, LogError> {
        self.0.append(records)
    }

    fn commit(&mut self, now_us: u64) -> Result<(), LogError> {
        self.0.commit(now_us)
    }

    fn commit_due_us(&self) -> Option<u64> {
        self.0.commit_due_us()
    }

    fn synced(&self) -> u64 {
        self.0.synced()
    }

    fn syncs(&self) -> u64 {
        self.0.stats().syncs
    }

    fn sync(&mut self) -> Result<(), LogError> {
        self.0.sync()
    }

    fn upkeep(&mut self) -> Result<Upkeep, LogError> {
        self.0.upkeep()
    }

    fn scrub(&mut self) -> Result<Scrubbed, LogError> {
        self.0.scrub()
    }

    fn save(&mut self, part: Part) -> Result<Saved, LogError> {
        self.0.save_part(part)
    }

    fn room(&self) -> Room {
        self.0.room()
    }

    fn is_bounded(&self) -> bool {
        self.0.disk().is_bounded()
    }

    fn spare_bytes(&self) -> u64 {
        self.0.spare_bytes()
    }
}

impl Server {
    /// Binds the address, replays the log, and starts the node. Unless the log is short, `watch` is called with the progress of the
    /// replay. It is dropped when the replay ends.
    pub async fn start(
        settings: Settings,
        watch: impl FnMut(Replaying) + Send + 'static,
    ) -> Result<Server, StartError> {
        let speaks = Versions::up_to(settings.core.protocol_version_max);
        let certificates = Opened::read(&settings.certificates, &settings.name, speaks)?;
        let (endpoint, address) = bind(&settings.listen, certificates.server_config()?).await?;
        let advertised = match &settings.advertise {
            Some(advertised) => advertised.clone(),
            None if address.ip().is_unspecified() => return Err(StartError::Advertise(address)),
            None => address.to_string(),
        };
        let started = Server::start_at(settings, certificates, (endpoint.clone(), address), advertised, watch).await;
        if started.is_err() {
            // Ends the listener and the connections to it, and notifies the other sides.
            close(&endpoint).await;
        }
        started
    }

    async fn start_at(
        settings: Settings,
        certificates: Opened,
        (endpoint, address): (Endpoint, SocketAddr),
        advertised: String,
        watch: impl FnMut(Replaying) + Send + 'static,
    ) -> Result<Server, StartError> {
        let (doors_renewed, doors_config) = watch::channel(certificates.door_config()?);
        let doors = OpenDoors::open(settings.http.as_ref(), doors_config).await?;
        let (node, log, replayed) = open(&settings, advertised.clone(), watch).await?;
        let identity = log.identity().node;
        let hints = Hints::of(&settings.peers, settings.peers_are_flags, &node, identity)?;
        let metrics = Arc::new(Metrics::default());
        let (internal, internal_queue) = mpsc::channel(settings.event_queue_max);
        let (external, external_queue) = mpsc::channel(settings.client_queue_max);
        let inputs = Inputs { internal, external };
        let (belonging, belonging_seen) = watch::channel(None);
        let speaks = Versions::up_to(settings.core.protocol_version_max);
        let speaker = Speaker { node: identity, process: rand::random(), speaks };
        let seen = belonging_seen.clone();
        let listener = Listener::new(speaker, inputs.clone(), seen, Arc::clone(&metrics), settings.listener);
        let accepting = tokio::spawn(Arc::clone(&listener).run(endpoint.clone()));
        let (local, links) = local_node(speaks.newest);
        let serving_doors = tokio::spawn(Arc::clone(&listener).run_local(speaks.newest, links));
        let (renewed, config) = watch::channel(certificates.peer_config()?);
        let calls = Whereabouts::of(&node, identity).map(|whereabouts| {
            let (endpoint, config, is_said) = (endpoint.clone(), config.borrow().clone(), settings.advertise.is_some());
            OwnCalls { endpoint, config, speaker, whereabouts, advertised, is_said }
        });
        let moved = find_place(calls, listener.meets_itself(), &settings, hints.clone(), node.roster()).await?;
        let told = (config.clone(), belonging_seen);
        let relocation = moved.map(|moved| relocation(moved, identity, endpoint.clone(), told, &settings, &hints));
        let archive = archive(&settings, inputs.internal.clone())?;
        let log = mend(&settings, log, replayed).await?;
        let durable = log.synced();
        let (store, loader) = start_threads(log, &settings, &inputs.internal, &metrics)?;
        let told = inputs.internal.clone();
        let reload = Arc::new(Notify::new());
        let certificates_read = certificates.renewal().clone();
        let (renewed, interval) = (Renewed { links: renewed, doors: doors_renewed }, settings.certificates_interval);
        let renewing = certificates.run(endpoint.clone(), renewed, Arc::clone(&reload), interval);
        let peers = Peers::new(endpoint.clone(), config, speaker, hints, settings.links, told, Arc::clone(&metrics));
        let name: Arc<str> = settings.name.into();
        let driver = Driver {
            node,
            identity,
            name: Arc::clone(&name),
            durable,
            clock: Clock::start(),
            store,
            loader,
            archive,
            peers,
            belonging,
            metrics: Arc::clone(&metrics),
            internal: internal_queue,
            external: external_queue,
        };
        let questions = Arc::new(OwnQuestions::new(inputs.clone(), Arc::clone(&name)));
        let driver = tokio::spawn(driver.run());
        let lookout = Lookout::new(settings.data, settings.certificates);
        let host =
            NodeHost::new(local, Arc::clone(&questions), Arc::clone(&metrics), lookout, certificates_read.clone());
        if let Some(doors) = &doors {
            doors.run(host);
        }
        Ok(Server {
            address,
            identity,
            driver,
            accepting,
            serving_doors,
            doors,
            reporting: tokio::spawn(Arc::clone(&metrics).report_every(REPORT_INTERVAL)),
            memory: tokio::spawn(memory::watch(inputs.internal.clone(), settings.memory_bytes_max)),
            relocating: relocation.map(|relocation| tokio::spawn(relocation.run())),
            certificates: certificates_read,
            renewing: tokio::spawn(renewing),
            reload,
            endpoint,
            inputs,
            metrics,
            listener,
            questions,
        })
    }

    /// The bound address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Identity in the data directory.
    pub fn identity(&self) -> NodeId {
        self.identity
    }

    /// The node's certificate files, for calls to other nodes.
    pub fn certificates(&self) -> &Renewal {
        &self.certificates
    }

    /// The address bound for HTTP, if there is one.
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.doors.as_ref().map(OpenDoors::address)
    }

    /// Counters.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Waits until the node serves, or until it is clear that it has no cluster. `None`: the node has stopped.
    pub async fn ready(&self) -> Option<Readiness> {
        self.watch(|identity| match (&identity.genesis, identity.serving) {
            (None, _) => Some(Readiness::AwaitsCluster),
            (Some(_), true) => Some(Readiness::Serving),
            (Some(_), false) => None,
        })
        .await
    }

    /// Waits until the node has a cluster and serves. Returns false if the node has stopped.
    pub async fn serving(&self) -> bool {
        self.watch(|identity| (identity.genesis.is_some() && identity.serving).then_some(())).await.is_some()
    }

    /// Polls the node's identity until `judge` accepts it.
    async fn watch<T>(&self, mut judge: impl FnMut(&NodeIdentity) -> Option<T>) -> Option<T> {
        let mut waited = Duration::ZERO;
        loop {
            if let Response::Identity(identity) = self.ask(Request::Identify).await?
                && let Some(judged) = judge(&identity)
            {
                return Some(judged);
            }
            let interval = ready_interval(waited);
            waited += interval;
            tokio::time::sleep(interval).await;
        }
    }

    /// Sends the node a request as a client would. `None`: the node has stopped.
    pub(in crate::runtime) async fn ask(&self, request: Request) -> Option<Response> {
        self.questions.ask(request).await
    }

    /// Notifying this rereads the certificate files; the program's log reports the result.
    pub fn certificates_reload(&self) -> Arc<Notify> {
        Arc::clone(&self.reload)
    }

    /// Waits until the node stops by itself.
    pub async fn stopped(&self) {
        self.inputs.internal.closed().await;
    }

    /// Hands over leaderships, writes out the log and the answers, and closes the endpoint.
    pub async fn shutdown(mut self) {
        if let Some(doors) = self.doors.take() {
            doors.close().await;
        }
        let asked = self.inputs.internal.send(Internal::Shutdown).await;
        let stopped = tokio::time::timeout(HAND_OVER_TIMEOUT, &mut self.driver).await;
        match (asked, stopped) {
            (_, Ok(Ok(store))) => {
                if let Err(error) = tokio::task::spawn_blocking(move || store.close()).await {
                    tracing::error!(%error, "the log was not closed");
                }
            }
            (_, Ok(Err(error))) => tracing::error!(%error, "the node ended badly"),
            // No acknowledged write is lost: the other nodes elect new leaders, as after a crash. The log is dropped with the driver,
            // and ends by itself.
            (_, Err(_)) => tracing::warn!("handing over took too long; leaving without"),
        }
        self.driver.abort();
        self.reporting.abort();
        self.memory.abort();
        self.renewing.abort();
        self.accepting.abort();
        self.serving_doors.abort();
        if let Some(relocating) = &self.relocating {
            relocating.abort();
        }
        if tokio::time::timeout(LAST_ANSWERS_TIMEOUT, self.listener.written()).await.is_err() {
            tracing::debug!("some client did not take its last answers in time");
        }
        close(&self.endpoint).await;
    }
}

/// Time until the next check whether a node serves.
pub(in crate::runtime) fn ready_interval(waited: Duration) -> Duration {
    (waited / READY_INTERVAL_PART).clamp(READY_INTERVAL_MIN, READY_INTERVAL_MAX)
}

/// The node's move, if an operator has stated one. Refuses a start that may not be this node's.
async fn find_place(
    calls: Option<OwnCalls>,
    met: watch::Receiver<u64>,
    settings: &Settings,
    hints: Hints,
    roster: &Roster,
) -> Result<Option<Moved>, StartError> {
    let Some(calls) = calls else { return Ok(None) };
    let Whereabouts { cluster, cluster_name, name, address } = calls.whereabouts.clone();
    let (node, moved) = (calls.speaker.node, Moved { from: address, to: calls.advertised.clone() });
    let (endpoint, config) = (calls.endpoint.clone(), calls.config.clone());
    match calls.refuse_duplicate(&settings.data, met).await? {
        Found::Listed | Found::Unclear => Ok(None),
        Found::Said => Ok(Some(moved)),
        Found::Bound => {
            let (data, roster) = (settings.data.clone(), roster.clone());
            let unsaid = Unsaid { moved, node, name, cluster, cluster_name, roster, data };
            let way = Way { endpoint, config, connect_timeout: settings.links.connect_timeout, hints };
            unsaid.confirm(way).await?;
            Ok(None)
        }
    }
}

/// The task that publishes the node's new address.
fn relocation(
    moved: Moved,
    node: NodeId,
    endpoint: Endpoint,
    (config, belonging): (watch::Receiver<PeerConfig>, watch::Receiver<Option<Belonging>>),
    settings: &Settings,
    hints: &Hints,
) -> Relocation {
    let (connect_timeout, hints) = (settings.links.connect_timeout, hints.clone());
    Relocation { moved, node, endpoint, config, connect_timeout, hints, belonging }
}

/// Starts the threads that write and read the log.
fn start_threads(
    log: Log<FileDisk>,
    settings: &Settings,
    internal: &mpsc::Sender<Internal>,
    metrics: &Arc<Metrics>,
) -> Result<(Store, Loader), StartError> {
    let told = internal.clone();
    let report = move |report| {
        // If the driver is gone the process is about to end, and the report is dropped.
        let _ = told.blocking_send(Internal::Log(report));
    };
    let told = internal.clone();
    let loaded = move |loaded| {
        let _ = told.blocking_send(Internal::Loaded(loaded));
    };
    let loader = Loader::start(log.disk().reader(), loaded).map_err(StartError::Thread)?;
    let pace = ScrubPace::new(settings.scrub_bytes_per_second, SCRUB_REST_US);
    let store = Store::start(LogJournal(log), settings.store, pace, Arc::clone(metrics), report);
    Ok((store.map_err(StartError::Thread)?, loader))
}

async fn close(endpoint: &Endpoint) {
    endpoint.close(CloseCode::Stopping.into(), b"the node stops");
    // Close frames are sent at once; the longer wait would only be for late packets.
    let _ = tokio::time::timeout(GOOD_BYE_TIMEOUT, endpoint.wait_idle()).await;
}

fn archive(settings: &Settings, told: mpsc::Sender<Internal>) -> Result<Option<Archive>, StartError> {
    let Some(file) = settings.archive.clone() else { return Ok(None) };
    let tell = move |partition, number, done| {
        // If the driver is gone the process is about to end; these tasks are archived once more then.
        let _ = told.blocking_send(Internal::Archived { partition, number, done });
    };
    Archive::start(file.clone(), tell).map(Some).map_err(|error| StartError::Archive(file, error))
}

/// Checks that a node's certificate has its name.
pub(in crate::runtime) fn check_certificate(credentials: &Credentials, name: &str) -> Result<(), StartError> {
    let principal = own_principal(credentials).map_err(|error| error.of_file(&credentials.files().certificate))?;
    if principal.node && &*principal.name == name {
        return Ok(());
    }
    let kind = if principal.node { "node" } else { "client" };
    let (file, name) = (credentials.files().certificate.clone(), name.to_owned());
    Err(StartError::Name { file, name, certificate: format!("{kind} {:?}", principal.name) })
}

/// Checks that the log is this node's: until a cluster knows its identity, it may belong to any name.
fn check_member(node: &Node, identity: &Identity, certificate: &str, data: &Path) -> Result<(), StartError> {
    let Some(genesis) = node.genesis() else {
        return Ok(());
    };
    match node.roster().members.values().find(|member| member.node == identity.node) {
        Some(member) if member.name != certificate => Err(StartError::Member {
            data: data.display().to_string(),
            cluster: genesis.name.clone(),
            member: member.name.clone(),
            certificate: certificate.to_owned(),
        }),
        Some(_) | None => Ok(()),
    }
}

async fn bind(listen: &str, config: ServerConfig) -> Result<(Endpoint, SocketAddr), StartError> {
    let failed = |error| StartError::Listen(listen.to_owned(), error);
    let found = addresses(listen).await.map_err(failed)?;
    let endpoint = bind_first(&found, |address| endpoint(address, Some(config.clone())));
    let endpoint = endpoint.map_err(|(address, error)| match error.kind() {
        io::ErrorKind::AddrInUse => StartError::AddressInUse(address),
        _ => failed(error),
    })?;
    let bound = endpoint.local_addr().map_err(failed)?;
    Ok((endpoint, bound))
}

/// Why a node does not start with the rest of its log.
#[derive(Debug, thiserror::Error)]
#[error("{0}; restore the damaged file from a copy (`norn log verify` names all that is wrong); {WITHOUT_A_COPY}")]
struct Doubt(String);

fn log_bytes(disk: &FileDisk) -> Result<u64, DiskError> {
    disk.list()?.iter().map(|file| disk.length(file)).sum()
}

/// Opens and reads the log on a blocking thread, as that may take a while. Changes nothing in it.
async fn open(
    settings: &Settings,
    address: String,
    mut watch: impl FnMut(Replaying) + Send + 'static,
) -> Result<(Node, Log<FileDisk>, Replayed), StartError> {
    let place = settings.data.display().to_string();
    let failed = move |error: &dyn std::fmt::Display| StartError::Log(place.clone(), error.to_string());
    let (data, log_config) = (settings.data.clone(), settings.log.clone());
    let (config, name, zone) = (settings.core.clone(), settings.name.clone(), settings.zone.clone());
    let (certificate, bytes_max) = (name.clone(), settings.disk_bytes_max);
    let work = move || -> Result<(Node, Log<FileDisk>, Replayed), StartError> {
        let started = std::time::Instant::now();
        refuse_foreign(&data)?;
        let mut disk = FileDisk::open(&data)?;
        disk.limit(bytes_max);
        let draw = || Identity { node: NodeId(rand::random()), incarnation: rand::random() };
        let (bytes, read_bytes) = (log_bytes(&disk).map_err(|error| failed(&error))?, disk.read_bytes());
        let mut log = Log::open(disk, log_config, draw).map_err(|error| failed(&error))?;
        let identity = log.identity();
        let founding = Founding { config, node: identity.node, incarnation: identity.incarnation, name, address, zone };
        let mut node = Node::new(founding, rand::random());
        let mut restorer = Restorer::new(&mut node);
        let mut records = 0u64;
        let replayed = log.read(|replay| {
            records += 1;
            if records.is_multiple_of(REPLAY_REPORT_RECORDS) {
                let read_bytes = read_bytes.load(Ordering::Relaxed);
                watch(Replaying { records, read_bytes, bytes, elapsed: started.elapsed() });
            }
            restorer.take(replay)
        });
        drop(watch);
        let replayed = replayed.map_err(|error| failed(&error))?;
        restorer.finish().map_err(|doubt| failed(&Doubt(doubt)))?;
        check_member(&node, &identity, &certificate, &data)?;
        tell_replayed(&identity, &replayed, started.elapsed());
        Ok((node, log, replayed))
    };
    away(settings, work).await
}

/// Logs a structured record of the replay, for programs that read the log.
fn tell_replayed(identity: &Identity, replayed: &Replayed, elapsed: Duration) {
    let Replayed { snapshot_records, snapshot_bytes, records, segments, lost_segments, .. } = *replayed;
    let Replayed { bytes, cut_bytes, cut_records, lost_records, damaged_bytes, heads_mended, .. } = *replayed;
    tracing::info!(
        node = %identity.node,
        elapsed_ms = milliseconds(elapsed),
        snapshot_records,
        snapshot_bytes,
        records,
        segments,
        lost_segments,
        bytes,
        cut_bytes,
        cut_records,
        lost_records,
        damaged_bytes,
        heads_mended,
        "log replayed"
    );
}

/// Milliseconds in a type that a JSON log shows as a number.
pub fn milliseconds(elapsed: Duration) -> u64 {
    u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
}

/// Begins or mends the log, once nothing prevents the start.
async fn mend(settings: &Settings, mut log: Log<FileDisk>, replayed: Replayed) -> Result<Log<FileDisk>, StartError> {
    let place = settings.data.display().to_string();
    let work = move || {
        let failed = |error: DiskError| StartError::Log(place.clone(), error.to_string());
        // With too little space the node would stop at its first writes, or even before.
        if let Some(shortage) = log.shortage().map_err(failed)? {
            return Err(StartError::NoRoom(place, log.disk().is_bounded(), shortage));
        }
        log.mend().map_err(|error| StartError::Log(place, error.to_string()))?;
        Ok(log)
    };
    let log = away(settings, work).await?;
    if replayed.lost_records > 0 {
        let (records, bytes) = (replayed.lost_records, replayed.damaged_bytes);
        let said = "records of the log are lost; what they said is fetched from other replicas, see `norn log verify`";
        tracing::warn!(records, bytes, "{said}");
    }
    if replayed.cut_records > 0 {
        let records = replayed.cut_records;
        tracing::warn!(records, "the last batch was cut: a crash tore it, unless the disk has damaged it since");
    }
    Ok(log)
}

/// Describes which limit leaves too little space, and the remedy.
fn shortage_text(data: &str, bounded: bool, shortage: &Shortage) -> String {
    let Shortage { free_bytes, least_bytes, ample_bytes } = shortage;
    let (what, how) = match bounded {
        true => (format!("the data directory {data} is as large as the setting `disk_bytes_max` allows"), "raise that"),
        false => (
            format!("the disk of the data directory {data} is full"),
            "make it larger, or move files of other programs away",
        ),
    };
    format!(
        "{what}: {free_bytes} bytes are free, a node starts with {least_bytes} and takes new tasks with {ample_bytes} (three times its \
         `reserve_bytes`); {how}, and remove no file of the data directory; nothing was changed there"
    )
}

/// Works on the log on a blocking thread.
async fn away<T: Send + 'static>(
    settings: &Settings,
    work: impl FnOnce() -> Result<T, StartError> + Send + 'static,
) -> Result<T, StartError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(StartError::Log(settings.data.display().to_string(), error.to_string())),
    }
}
