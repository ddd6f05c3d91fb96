//! The doors of a node: its HTTP listener, and what it tells the doors of itself.

use crate::runtime::caller::Caller;
use crate::runtime::measuring::told;
use crate::runtime::surroundings::Lookout;
use crate::runtime::tls;
use norn_client::local::LocalNode;
use norn_client::times::TimesAt;
use norn_client::tls::Renewal;
use norn_doors::metrics::measures::{Measures, Surroundings};
use norn_doors::state::Told;
use norn_doors::{Access, Bounds, Doors, Host, ListenError, Phase, State, Tls};
use norn_host::metrics::{Counter, Metrics};
use norn_host::questions::OwnQuestions;
use norn_wire::response::Identity;
use norn_wire::{Error, Request, Response};
use rustls::pki_types::CertificateDer;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OnceCell, watch};

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
        Box::pin(async { self.questions.measures().await.map(|measures| Arc::new(told(&measures))) })
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
fn name_of(principal: &norn_engine::Principal) -> String {
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
    use norn_engine::Principal;

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
