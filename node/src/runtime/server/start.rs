//! The start of a node: wires log, core, listener, links and doors together.

use super::replay::{Replaying, mend, open};
use super::{Server, close};
use crate::runtime::archive::Archive;
use crate::runtime::clock::Clock;
use crate::runtime::disk::{FileDisk, FileDiskError};
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
use crate::runtime::transport::{PeerConfig, bind_first, endpoint};
use norn_client::dial::addresses;
use norn_client::local::local_node;
use norn_doors::ListenError;
use norn_model::host::Room;
use norn_model::record::Record;
use norn_model::snapshot::Part;
use norn_model::task::Place;
use norn_storage::scrub::{ScrubPace, Scrubbed};
use norn_storage::{Log, LogError, Saved, Shortage, Upkeep};
use norn_wire::membership::Roster;
use norn_wire::{NodeId, Versions};
use quinn::{Endpoint, ServerConfig};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc, watch};

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
        let reload = Arc::new(Notify::new());
        let certificates_read = certificates.renewal().clone();
        let (renewed, interval) = (Renewed { links: renewed, doors: doors_renewed }, settings.certificates_interval);
        let renewing = certificates.run(endpoint.clone(), renewed, Arc::clone(&reload), interval);
        let peers = Peers::new(endpoint.clone(), config, Arc::clone(&listener), hints, settings.links);
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

    fn is_snapshot_urgent(&self) -> bool {
        self.0.is_snapshot_urgent()
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
