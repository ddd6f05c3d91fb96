//! The start of a node: wires log, core, listener, links and doors together.

use super::{Server, close};
use crate::runtime::diagnostics;
use crate::runtime::doors::{NodeHost, OpenDoors};
use crate::runtime::duplicate_instance::{DuplicateInstance, Found, OwnCalls, Whereabouts};
use crate::runtime::hints::{HintError, Hints};
use crate::runtime::listener::Listener;
use crate::runtime::moved::{Elsewhere, Moved, Relocation, Unsaid, Way};
use crate::runtime::peers::{Peers, Speaker};
use crate::runtime::renewing::{Opened, Renewed};
use crate::runtime::settings::Settings;
use crate::runtime::surroundings::Lookout;
use crate::runtime::tls::{Credentials, TlsError, own_principal};
use crate::runtime::transport::{PeerConfig, bind_first, endpoint};
use norn_client::dial::addresses;
use norn_client::local::local_node;
use norn_doors::ListenError;
use norn_host::clock::Clock;
use norn_host::driver::{Belonging, Driver, Inputs};
use norn_host::emergency::EmergencyStop;
use norn_host::memory;
use norn_host::metrics::Metrics;
use norn_host::questions::OwnQuestions;
use norn_host::replay::{OpenError, Opening, Replaying, open};
use norn_host::threads::{Threads, ThreadsError};
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
    /// The log cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The node is running already, and the data directory is a copy.
    #[error(transparent)]
    DuplicateInstance(#[from] DuplicateInstance),
    /// The node is bound at an address other than the one where its cluster reaches it, and an operator has to state the reason.
    #[error(transparent)]
    Elsewhere(#[from] Box<Elsewhere>),
    /// The given peer addresses do not fit the cluster.
    #[error(transparent)]
    Hint(#[from] HintError),
    /// The log's threads cannot be started.
    #[error(transparent)]
    Threads(ThreadsError),
}

impl From<ThreadsError> for StartError {
    fn from(error: ThreadsError) -> StartError {
        match error {
            ThreadsError::Open(error) => StartError::Open(error),
            error => StartError::Threads(error),
        }
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
        let (node, log, replayed) = open(opening(&settings, &advertised), watch).await?;
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
        let serving_doors = tokio::spawn(Arc::clone(listener.clients()).run_local(speaks.newest, links));
        let (renewed, config) = watch::channel(certificates.peer_config()?);
        let calls = Whereabouts::of(&node, identity).map(|whereabouts| {
            let (endpoint, config, is_said) = (endpoint.clone(), config.borrow().clone(), settings.advertise.is_some());
            OwnCalls { endpoint, config, speaker, whereabouts, advertised, is_said }
        });
        let moved = find_place(calls, listener.meets_itself(), &settings, hints.clone(), node.roster()).await?;
        let told = (config.clone(), belonging_seen);
        let relocation = moved.map(|moved| relocation(moved, identity, endpoint.clone(), told, &settings, &hints));
        let emergency = EmergencyStop::new(end_process);
        let (data, read, work) = (settings.data.clone(), (node, log, replayed), settings.threads.clone());
        let Threads { node, log, loader, archive, durable } =
            Threads::start(&data, read, work, &inputs, &metrics, &emergency).await?;
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
            log,
            loader,
            archive,
            peers,
            belonging,
            metrics: Arc::clone(&metrics),
            emergency,
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

/// What the node is opened with.
fn opening(settings: &Settings, advertised: &str) -> Opening {
    Opening {
        data: settings.data.clone(),
        name: settings.name.clone(),
        address: advertised.to_owned(),
        zone: settings.zone.clone(),
        core: settings.core.clone(),
        log: settings.log.clone(),
        disk_bytes_max: settings.disk_bytes_max,
    }
}

/// Ends the process at once. No destructor runs, so nothing more is written.
fn end_process(reason: &str) {
    // The program's log may be filtered or redirected; the operator must still see why the process ended.
    diagnostics::error(&format!("stopping at once: {reason}"));
    std::process::abort();
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
