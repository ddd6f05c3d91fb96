//! The doors of a node: its HTTP listener, and what it tells the doors of itself.

use crate::runtime::answers::answers;
use crate::runtime::caller::Caller;
use crate::runtime::driver::{External, Inputs, Internal};
use crate::runtime::listener::CLIENT_FIRST;
use crate::runtime::metrics::{Counter, Metrics};
use crate::runtime::surroundings::Lookout;
use crate::runtime::tls;
use norn_client::local::LocalNode;
use norn_client::tls::Renewal;
use norn_doors::metrics::measures::{Measures, Surroundings};
use norn_doors::metrics::times::TimesAt;
use norn_doors::state::Told;
use norn_doors::{Access, Bounds, Doors, Host, ListenError, Phase, State, Tls};
use norn_engine::{ClientId, Principal};
use norn_wire::response::Identity;
use norn_wire::{Error, Request, Response};
use rustls::pki_types::CertificateDer;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, OnceCell, oneshot, watch};

/// How long an answer about the node's health serves further askers. Checks of it may come from strangers, in any number.
const HEALTH_SHARED: Duration = Duration::from_millis(250);

/// Time limit for an answer of a node outside the cluster.
const OUTSIDE_TIMEOUT: Duration = Duration::from_secs(3);

/// Settings of the HTTP listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpSettings {
    /// Address and TCP port.
    pub listen: String,
    /// Whether it speaks TLS wherever it listens. Otherwise it speaks plain text on a loopback address, or if there are proxies.
    pub always_tls: bool,
    /// Who is let in.
    pub access: Access,
    /// Limits.
    pub bounds: Bounds,
}

impl HttpSettings {
    /// Whether the listener speaks TLS.
    fn speaks_tls(&self) -> bool {
        let host = self.listen.rsplit_once(':').map_or("", |(host, _)| host).trim_matches(['[', ']']);
        let is_loopback = host == "localhost" || host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback());
        self.always_tls || !is_loopback && self.access.proxies.is_empty()
    }
}

/// Asks the node as a client would.
#[derive(Debug)]
pub(in crate::runtime) struct OwnQuestions {
    inputs: Inputs,
    name: Arc<str>,
    /// Next client number: below those of the listener, and used again. So one question is asked after the other.
    client_next: Mutex<u64>,
    /// When the driver took an event last, as far as it was asked.
    alive_last: Mutex<Option<Instant>>,
}

impl OwnQuestions {
    pub fn new(inputs: Inputs, name: Arc<str>) -> OwnQuestions {
        OwnQuestions { inputs, name, client_next: Mutex::new(0), alive_last: Mutex::default() }
    }

    /// Whether the driver takes events. One answer serves all that ask within a moment.
    async fn is_alive(&self) -> bool {
        let mut last = self.alive_last.lock().await;
        if last.is_some_and(|at| at.elapsed() < HEALTH_SHARED) {
            return true;
        }
        let (asker, told) = oneshot::channel();
        // Not as a client asks: requests of clients wait while the log is full.
        let is_alive = self.inputs.internal.send(Internal::Alive(asker)).await.is_ok() && told.await.is_ok();
        *last = is_alive.then(Instant::now);
        is_alive
    }

    /// The answer to a request. `None`: the node has stopped.
    pub async fn ask(self: &Arc<Self>, request: Request) -> Option<Response> {
        let own = Arc::clone(self);
        // It goes on when the asker hangs up: a client number that was opened has to be let go before it is used again.
        tokio::spawn(async move { own.ask_to_the_end(request).await }).await.ok()?
    }

    async fn ask_to_the_end(&self, request: Request) -> Option<Response> {
        let mut client_next = self.client_next.lock().await;
        let client = ClientId(*client_next);
        // Another number each time, so that a late answer to an abandoned question is no answer to this one.
        *client_next = (*client_next + 1) % CLIENT_FIRST;
        let (replies, mut answers) = answers();
        let external = &self.inputs.external;
        external.send(External::Opened { client, replies }).await.ok()?;
        let principal = Principal { name: Arc::clone(&self.name), node: true };
        external.send(External::Request { client, number: 1, principal, request }).await.ok()?;
        let (_, response) = answers.recv().await?;
        external.send(External::Gone { client }).await.ok()?;
        Some(response)
    }
}

/// The node, as its doors see it.
#[derive(Debug)]
pub(in crate::runtime) struct NodeHost {
    local: LocalNode,
    questions: Arc<OwnQuestions>,
    metrics: Arc<Metrics>,
    lookout: Lookout,
    /// Certificates for calls to nodes outside the cluster, and their caller once one was made.
    certificates: Renewal,
    caller: OnceCell<Caller>,
    /// The last answer to who the node is, shared by all that ask within a moment.
    identity_last: Mutex<Option<(Instant, Identity)>>,
}

impl NodeHost {
    pub fn new(
        local: LocalNode,
        questions: Arc<OwnQuestions>,
        metrics: Arc<Metrics>,
        lookout: Lookout,
        certificates: Renewal,
    ) -> NodeHost {
        let (caller, identity_last) = (OnceCell::new(), Mutex::default());
        NodeHost { local, questions, metrics, lookout, certificates, caller, identity_last }
    }
}

impl Host for NodeHost {
    fn local(&self) -> LocalNode {
        self.local.clone()
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        Counter::ALL.iter().map(|counter| (counter.name(), self.metrics.get(*counter))).collect()
    }

    fn log_syncs(&self) -> TimesAt {
        self.metrics.log_syncs.at()
    }

    fn measures(&self) -> Told<'_, Option<Arc<Measures>>> {
        Box::pin(async {
            let (asker, told) = oneshot::channel();
            self.questions.inputs.internal.send(Internal::Measure(asker)).await.ok()?;
            told.await.ok()
        })
    }

    fn ask<'a>(&'a self, address: &'a str, request: Request) -> Told<'a, Result<Response, Error>> {
        Box::pin(async move {
            let make = || async { Caller::with(self.certificates.clone(), OUTSIDE_TIMEOUT) };
            let answer = match self.caller.get_or_try_init(make).await {
                Ok(caller) => caller.call(address, &request).await,
                Err(error) => Err(error),
            };
            answer.map_err(|error| error.answer(address))
        })
    }

    fn surroundings(&self) -> Told<'_, Option<Surroundings>> {
        Box::pin(self.lookout.look())
    }

    fn alive(&self) -> Told<'_, bool> {
        Box::pin(self.questions.is_alive())
    }

    fn identity(&self) -> Told<'_, Option<Identity>> {
        Box::pin(async {
            let mut last = self.identity_last.lock().await;
            if let Some((at, identity)) = &*last
                && at.elapsed() < HEALTH_SHARED
            {
                return Some(identity.clone());
            }
            let Response::Identity(identity) = self.questions.ask(Request::Identify).await? else { return None };
            *last = Some((Instant::now(), (*identity).clone()));
            Some(*identity)
        })
    }
}

/// The doors of a node that may not have started yet.
#[derive(Debug)]
pub(in crate::runtime) struct OpenDoors {
    doors: Doors,
    phase: watch::Sender<Phase>,
}

impl OpenDoors {
    /// Opens the doors, if there are to be any. Until the node has started they answer that it has not.
    pub async fn open(
        settings: Option<&HttpSettings>,
        config: watch::Receiver<Arc<rustls::ServerConfig>>,
    ) -> Result<Option<OpenDoors>, ListenError> {
        let Some(settings) = settings else { return Ok(None) };
        let (phase, seen) = watch::channel(Phase::Starting);
        let tls = settings.speaks_tls().then_some(Tls { config, principal_of });
        let state = Arc::new(State::new(settings.bounds, settings.access.clone(), seen));
        let router = norn_doors::router(&state);
        let doors = Doors::open(&settings.listen, tls, state, router).await?;
        Ok(Some(OpenDoors { doors, phase }))
    }

    /// The bound address.
    pub fn address(&self) -> SocketAddr {
        self.doors.address()
    }

    /// The node takes requests from now on.
    pub fn run(&self, host: NodeHost) {
        self.phase.send_replace(Phase::Running(Arc::new(host)));
    }

    /// Answers what waits, lets what is under way end, and closes. For use before the node stops.
    pub async fn close(self) {
        self.phase.send_modify(|phase| {
            if let Phase::Running(host) = phase {
                *phase = Phase::Draining(Arc::clone(host));
            }
        });
        self.doors.close().await;
    }
}

/// The name of a principal at the doors. A node and a client may have the same one, and those without a certificate have names as well;
/// no name of a certificate has a colon.
fn name_of(principal: &Principal) -> String {
    let kind = if principal.node { "node" } else { "client" };
    format!("{kind}:{}", principal.name)
}

fn principal_of(certificate: &CertificateDer<'_>) -> Result<String, String> {
    match tls::principal_of(certificate) {
        Ok(principal) => Ok(name_of(&principal)),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::mpsc;

    /// Goal: a health check that hangs up leaves no client number open, whatever the node does meanwhile.
    #[tokio::test]
    async fn a_question_whose_asker_hangs_up_is_asked_to_its_end() {
        let (internal, _held) = mpsc::channel(1);
        let (external, mut asked) = mpsc::channel(64);
        let questions = Arc::new(OwnQuestions::new(Inputs { internal, external }, "n".into()));
        for round in 0..2 * CLIENT_FIRST {
            let asking = Arc::clone(&questions);
            let asker = tokio::spawn(async move { asking.ask(Request::Identify).await });
            let Some(External::Opened { client, replies }) = asked.recv().await else { panic!("no question") };
            assert_eq!(client, ClientId(round % CLIENT_FIRST));
            let Some(External::Request { .. }) = asked.recv().await else { panic!("no request") };
            asker.abort();
            assert!(asker.await.unwrap_err().is_cancelled());
            let _ = replies.send(1, Response::Done);
            let Some(External::Gone { client: gone }) = asked.recv().await else { panic!("it is still open") };
            assert_eq!(gone, client);
        }
    }

    /// Goal: health says that the driver ticks also while the log is full, and requests of clients are not taken.
    #[tokio::test]
    async fn a_node_is_alive_while_it_takes_no_requests() {
        let (internal, mut asked) = mpsc::channel(1);
        let (external, _full) = mpsc::channel(1);
        let (replies, _answers) = answers();
        external.send(External::Opened { client: ClientId(1), replies }).await.unwrap();
        let questions = OwnQuestions::new(Inputs { internal, external }, "n".into());
        let driver = tokio::spawn(async move {
            let Some(Internal::Alive(asker)) = asked.recv().await else { panic!("another question") };
            asker.send(()).unwrap();
        });
        assert!(questions.is_alive().await);
        driver.await.unwrap();
        assert!(questions.is_alive().await, "the answer serves those that come within a moment");
        *questions.alive_last.lock().await = None;
        assert!(!questions.is_alive().await, "the driver has ended");
    }

    #[test]
    fn callers_of_different_kinds_have_different_names() {
        let named = |node: bool, name: &str| name_of(&Principal { name: name.into(), node });
        let names = [named(true, "a"), named(false, "a"), named(false, "http"), "http".into(), "http-proxy".into()];
        let different: std::collections::BTreeSet<&String> = names.iter().collect();
        assert_eq!(different.len(), names.len());
    }

    #[test]
    fn plain_text_is_for_this_machine_and_for_proxies() {
        let speaks_tls = |listen: &str, proxies: &[&str], always_tls: bool| {
            let proxies = proxies.iter().map(|ip| ip.parse().unwrap()).collect();
            let access = Access { proxies, origins: Vec::new() };
            let listen = listen.to_owned();
            HttpSettings { listen, always_tls, access, bounds: Bounds::default() }.speaks_tls()
        };
        for listen in ["127.0.0.1:7500", "[::1]:7500", "localhost:7500"] {
            assert!(!speaks_tls(listen, &[], false) && speaks_tls(listen, &[], true), "{listen}");
        }
        for listen in ["0.0.0.0:7500", "[::]:7500", "10.0.0.5:7500", "alpha.example.com:7500"] {
            assert!(speaks_tls(listen, &[], false) && !speaks_tls(listen, &["10.0.0.7"], false), "{listen}");
        }
    }
}
