//! What carries the calls of verbs: a client of a cluster, or a store in this process.

use super::failure::Failure;
use super::progress::{self, Waits};
use super::verbs::{CALL_TIMEOUT_MIN, Place, UNREACHED_TIMEOUT, read_certificates};
use super::{Global, verbs};
use norn_cli::Transport;
use norn_client::client::{Client, ClientConfig};
use norn_client::session::Call;
use norn_client::tls::Renewal;
use norn_host::disk::FileDiskError;
use norn_host::replay::OpenError;
use norn_node::runtime::caller::{CallError, Caller};
use norn_node::runtime::certificates::CertificateFiles;
use norn_node::runtime::diagnostics;
use norn_store::{Store, StoreError, StoreOptions};
use norn_wire::{Error, ErrorCode, Request, Response, TaskId, Token};
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::sync::OnceCell;

/// Time limit for the answer of a single node.
const ASK_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of a call of a store, without `--timeout`: as of a cluster.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval of attempts to open a store that another process holds.
const HELD_INTERVAL: Duration = Duration::from_millis(20);

/// Carries calls of verbs over a client, and to single nodes.
pub struct Carrier {
    client: Client,
    way: Way,
    /// Timeout as given.
    timeout: Option<Duration>,
    /// Whether a person watches at a terminal.
    is_watched: bool,
    waits: Waits,
}

/// Where single nodes are.
enum Way {
    Cluster(Box<SingleNodes>),
    /// In this process.
    Store(Box<Store>),
}

/// The way to single nodes of a cluster.
struct SingleNodes {
    certificates: Renewal,
    /// Created when the first one is asked.
    caller: OnceCell<Caller>,
    ask_timeout: Duration,
}

impl Carrier {
    /// Opens the store, or reads the certificates and begins to connect. For a command that `waits`, see [`Place`].
    pub async fn connect(place: &Place, global: &Global, waits: bool) -> Result<Carrier, Failure> {
        let (client, way) = match place {
            Place::Store(directory) => {
                let store = open(directory, global.timeout().unwrap_or(UNREACHED_TIMEOUT)).await?;
                let client = store.client_named(verbs::CLIENT_NAME, global.timeout().unwrap_or(REQUEST_TIMEOUT));
                (client, Way::Store(Box::new(store)))
            }
            Place::File(_) | Place::Said(..) => {
                let config = place.config(global.timeout(), waits)?;
                let ClientConfig { ca: authority, certificate, key, .. } = config.clone();
                let certificates = read_certificates(CertificateFiles { authority, certificate, key })?;
                let client = Client::connect_with(config, certificates.clone()).await?;
                let ask_timeout =
                    global.timeout().map_or(ASK_TIMEOUT, |timeout| timeout.clamp(CALL_TIMEOUT_MIN, ASK_TIMEOUT));
                let nodes = SingleNodes { certificates, caller: OnceCell::new(), ask_timeout };
                (client, Way::Cluster(Box::new(nodes)))
            }
        };
        let is_watched = progress::is_watched(global.json);
        Ok(Carrier { client, way, timeout: global.timeout(), is_watched, waits: Waits::default() })
    }

    /// Waits for an answer. If it takes long and no node is connected, prints what is in the way.
    async fn shown<T>(&self, answer: impl Future<Output = T>) -> T {
        let wait = self.waits.begin();
        let what = || {
            let places = self.client.unreached()?;
            wait.is_first_to_say().then(|| format!("no node answers now, trying on: {places}"))
        };
        progress::waiting(self.is_watched, answer, what).await
    }

    /// Asks a store what a single node is asked. It is its own only node.
    async fn ask_store(&self, address: &str, request: Request) -> Result<Response, Error> {
        match self.client.call(Call::Request(Request::Nodes), None).await? {
            Response::Nodes(nodes) if nodes.iter().any(|node| node.this && node.address == address) => {
                self.client.call(Call::Request(request), None).await
            }
            _ => {
                let message =
                    format!("{address}: a store reaches no other node; `norn start` on its directory makes it one");
                Err(Error::new(ErrorCode::Unsupported, message))
            }
        }
    }

    /// Closes the store, or all connections. What a command was answered holds, however this ends.
    pub async fn close(self) {
        self.client.close().await;
        match self.way {
            Way::Store(store) => {
                if let Err(error) = store.close().await {
                    diagnostics::note(&format!("closing: {error}; what was acknowledged is on the disk"));
                }
            }
            Way::Cluster(nodes) => {
                if let Some(caller) = nodes.caller.get() {
                    caller.close().await;
                }
            }
        }
    }
}

/// Opens a store. One process at a time holds its directory: waits until another one is done with it. A command forgets no finished
/// task: how long they are kept is the matter of the program to which the store belongs.
async fn open(directory: &Path, patience: Duration) -> Result<Store, Failure> {
    let deadline = Instant::now() + patience;
    loop {
        match Store::open_with(directory, StoreOptions { retain: Duration::MAX, ..StoreOptions::default() }).await {
            Err(StoreError::Open(OpenError::Directory(error @ FileDiskError::Held { .. }))) => {
                if Instant::now() >= deadline {
                    return Err(Failure::unavailable(error.to_string()));
                }
                tokio::time::sleep(HELD_INTERVAL).await;
            }
            opened => return Ok(opened?),
        }
    }
}

impl Way {
    /// The way to single nodes of a cluster. `None` for a store, which is its own only node.
    async fn caller(&self) -> Result<Option<&Caller>, CallError> {
        match self {
            Way::Store(_) => Ok(None),
            Way::Cluster(nodes) => {
                let make = || async { Caller::with(nodes.certificates.clone(), nodes.ask_timeout) };
                nodes.caller.get_or_try_init(make).await.map(Some)
            }
        }
    }
}

impl Transport for Carrier {
    async fn call(&self, call: Call, timeout: Option<Duration>) -> Result<Response, Error> {
        self.shown(self.client.call(call, timeout)).await
    }

    async fn call_quietly(&self, call: Call, timeout: Option<Duration>) -> Result<Response, Error> {
        self.client.call(call, timeout).await
    }

    async fn call_for_lease(
        &self,
        call: Call,
        timeout: Option<Duration>,
    ) -> (Result<Response, Error>, Option<Instant>) {
        self.shown(self.client.call_for_lease(call, timeout)).await
    }

    fn patience(&self) -> Option<Duration> {
        self.timeout
    }

    async fn ask(&self, address: &str, request: Request) -> Result<Response, Error> {
        let answer = match self.way.caller().await {
            Ok(Some(caller)) => caller.call(address, &request).await,
            Ok(None) => return self.ask_store(address, request).await,
            Err(error) => Err(error),
        };
        answer.map_err(|error| error.answer(address))
    }

    async fn certificate_until_s(&self, address: &str) -> Result<Option<i64>, Error> {
        let until_s = match self.way.caller().await {
            Ok(Some(caller)) => caller.certificate_until_s(address).await,
            Ok(None) => return Ok(None),
            Err(error) => Err(error),
        };
        until_s.map(Some).map_err(|error| error.answer(address))
    }

    fn give_back(&self, claims: Vec<(TaskId, Token)>) {
        self.client.give_back(claims);
    }
}
