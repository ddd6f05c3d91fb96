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
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::sync::{Mutex, OnceCell, oneshot, watch};
use tokio::time::Instant;

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
    alive: SharedAnswer<()>,
    identity: SharedAnswer<Identity>,
}

/// A question about the node's health. Checks of it may come from strangers, in any number, and hang up: one question is under way at
/// a time, all that come meanwhile wait for its answer, and that serves further ones for a moment.
#[derive(Debug)]
struct SharedAnswer<T>(std::sync::Mutex<Option<Question<T>>>);

/// Where an answer will be, with its time. The inner one is absent if the node has stopped.
type Question<T> = watch::Receiver<Option<Option<(Instant, T)>>>;

impl<T> Default for SharedAnswer<T> {
    fn default() -> SharedAnswer<T> {
        SharedAnswer(std::sync::Mutex::default())
    }
}

impl<T: Clone + Send + Sync + 'static> SharedAnswer<T> {
    /// The answer to the question that is under way, or to this one. `None`: the node has stopped.
    async fn get(&self, ask: impl Future<Output = Option<T>> + Send + 'static) -> Option<T> {
        let mut question = self.question(ask);
        let answer = question.wait_for(Option::is_some).await.ok()?;
        answer.as_ref()?.as_ref().map(|(_, answer)| answer.clone())
    }

    fn question(&self, ask: impl Future<Output = Option<T>> + Send + 'static) -> Question<T> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let serves = |question: &&Question<T>| match &*question.borrow() {
            None => true,
            Some(answer) => answer.as_ref().is_some_and(|(at, _)| at.elapsed() < HEALTH_SHARED),
        };
        if let Some(question) = last.as_ref().filter(serves) {
            return question.clone();
        }
        let (told, question) = watch::channel(None);
        *last = Some(question.clone());
        // It is asked to its end though its askers hang up, so that the next asker finds it under way.
        tokio::spawn(async move { told.send(Some(ask.await.map(|answer| (Instant::now(), answer)))) });
        question
    }
}

impl OwnQuestions {
    pub fn new(inputs: Inputs, name: Arc<str>) -> OwnQuestions {
        let (alive, identity) = (SharedAnswer::default(), SharedAnswer::default());
        OwnQuestions { inputs, name, client_next: Mutex::new(0), alive, identity }
    }

    /// Whether the driver takes events.
    async fn is_alive(&self) -> bool {
        let internal = self.inputs.internal.clone();
        let ask = async move {
            let (asker, told) = oneshot::channel();
            // Not as a client asks: requests of clients wait while the log is full.
            internal.send(Internal::Alive(asker)).await.ok()?;
            told.await.ok()
        };
        self.alive.get(ask).await.is_some()
    }

    /// Who the node is.
    async fn identity(self: &Arc<Self>) -> Option<Identity> {
        let own = Arc::clone(self);
        let ask = async move {
            match own.ask_to_the_end(Request::Identify).await? {
                Response::Identity(identity) => Some(*identity),
                _ => None,
            }
        };
        self.identity.get(ask).await
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
        external.send(External::Request { client, number: 1, principal, request, bytes: 0 }).await.ok()?;
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
}

impl NodeHost {
    pub fn new(
        local: LocalNode,
        questions: Arc<OwnQuestions>,
        metrics: Arc<Metrics>,
        lookout: Lookout,
        certificates: Renewal,
    ) -> NodeHost {
        NodeHost { local, questions, metrics, lookout, certificates, caller: OnceCell::new() }
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
        Box::pin(self.questions.identity())
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
    #[tokio::test(start_paused = true)]
    async fn a_node_is_alive_while_it_takes_no_requests() {
        let (internal, mut asked) = mpsc::channel(1);
        let (external, _full) = mpsc::channel(1);
        let (replies, _answers) = answers();
        external.send(External::Opened { client: ClientId(1), replies }).await.unwrap();
        let questions = Arc::new(OwnQuestions::new(Inputs { internal, external }, "n".into()));
        for _ in 0..100 {
            let health = tokio::time::timeout(Duration::from_secs(5), questions.identity()).await;
            assert!(health.is_err(), "its log is full");
        }
        let driver = tokio::spawn(async move {
            let Some(Internal::Alive(asker)) = asked.recv().await else { panic!("another question") };
            asker.send(()).unwrap();
        });
        assert!(questions.is_alive().await);
        driver.await.unwrap();
        assert!(questions.is_alive().await, "the answer serves those that come within a moment");
        tokio::time::advance(HEALTH_SHARED).await;
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
