//! A node for tests, which answers by a script.

use crate::access::{Access, LOOPBACK, Peer};
use crate::metrics::measures::{Measures, Surroundings};
use crate::metrics::times::{SYNC_US, Times, TimesAt};
use crate::state::{Bounds, Host, Phase, State, Told};
use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt;
use norn_client::local::{LocalNode, local_node};
use norn_wire::response::{Genesis, Identity};
use norn_wire::{ClusterId, NodeId};
use std::future::{pending, ready};
use std::sync::{Arc, Mutex};
use tokio::sync::watch;
use tower::ServiceExt;

/// How the node answers.
#[derive(Debug, Clone, Default)]
pub struct Script {
    /// Who it is; `None`: it has stopped.
    pub identity: Option<Identity>,
    /// It takes no event.
    pub stuck: bool,
    /// What it measures.
    pub measures: Measures,
    /// What it counts.
    pub counters: Vec<(&'static str, u64)>,
    /// What is seen of files.
    pub surroundings: Surroundings,
}

/// A node that follows a script.
#[derive(Debug)]
pub struct Scripted {
    node: LocalNode,
    /// The script; it may be changed.
    pub script: Mutex<Script>,
}

impl Scripted {
    /// Such a node.
    pub fn new(script: Script) -> Arc<Scripted> {
        Arc::new(Scripted { node: local_node(2).0, script: Mutex::new(script) })
    }

    /// A node behind this way, which is not asked who it is.
    pub fn behind(node: LocalNode) -> Arc<Scripted> {
        Arc::new(Scripted { node, script: Mutex::default() })
    }

    fn script(&self) -> Script {
        self.script.lock().unwrap().clone()
    }
}

impl Host for Scripted {
    fn local(&self) -> LocalNode {
        self.node.clone()
    }

    fn identity(&self) -> Told<'_, Option<Identity>> {
        let Script { identity, stuck, .. } = self.script();
        if stuck { Box::pin(pending()) } else { Box::pin(ready(identity)) }
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.script().counters
    }

    fn log_syncs(&self) -> TimesAt {
        let times = Times::new(SYNC_US);
        times.add_us(700);
        times.at()
    }

    fn measures(&self) -> Told<'_, Option<Arc<Measures>>> {
        let Script { measures, stuck, .. } = self.script();
        if stuck { Box::pin(pending()) } else { Box::pin(ready(Some(Arc::new(measures)))) }
    }

    fn surroundings(&self) -> Told<'_, Option<Surroundings>> {
        Box::pin(ready(Some(self.script().surroundings)))
    }
}

/// A node of a cluster.
pub fn identity(serving: bool) -> Identity {
    let genesis = Genesis {
        cluster: ClusterId(7),
        name: "test".to_owned(),
        partitions: 1,
        replicas: 1,
        members: Vec::new(),
        assignment: Vec::new(),
    };
    Identity { genesis: Some(Box::new(genesis)), serving, ..outsider() }
}

/// A node without a cluster.
pub fn outsider() -> Identity {
    Identity {
        node: NodeId(1),
        incarnation: 1,
        name: "n1".to_owned(),
        address: "a:1".to_owned(),
        zone: String::new(),
        genesis: None,
        serving: false,
    }
}

/// Doors without a listener.
pub struct TestDoors {
    /// Sets how far the node is.
    pub phase: watch::Sender<Phase>,
    router: axum::Router,
}

impl TestDoors {
    /// Doors of a node in this phase.
    pub fn new(bounds: Bounds, phase: Phase) -> TestDoors {
        let (phase, seen) = watch::channel(phase);
        let state = Arc::new(State::new(bounds, Access::default(), seen));
        TestDoors { router: crate::router(&state), phase }
    }

    /// Asks from this machine. Returns status, type and text of the answer.
    pub async fn get(&self, path: &str) -> (u16, String, String) {
        self.ask(path, true).await
    }

    /// Asks over TLS without a certificate.
    pub async fn get_as_stranger(&self, path: &str) -> (u16, String, String) {
        self.ask(path, false).await
    }

    async fn ask(&self, path: &str, named: bool) -> (u16, String, String) {
        let mut request = Request::get(path).header("host", "localhost:7500").body(Body::empty()).unwrap();
        let name = if named { Ok(LOOPBACK.into()) } else { Err("no certificate".into()) };
        request.extensions_mut().insert(Peer { address: "127.0.0.1:9".parse().unwrap(), plain: named, name });
        let response = self.router.clone().oneshot(request).await.unwrap();
        let kind = response.headers().get("content-type").map_or("", |kind| kind.to_str().unwrap()).to_owned();
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, kind, String::from_utf8(bytes.to_vec()).unwrap())
    }
}
