//! Doors before a node that follows a script, for tests; [`samples`] are what it tells.

pub mod samples;

use crate::access::{Access, Peer};
use crate::metrics::measures::{Measures, Surroundings};
use crate::request::router;
use crate::state::{self, Bounds, Host, Phase, State};
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Method, Request as HttpRequest, StatusCode, header};
use http_body_util::BodyExt;
use norn_client::local::{LocalLink, LocalNode, local_node};
use norn_client::times::{SYNC_US, Times, TimesAt};
use norn_wire::codec::{self, HEADER_BYTES, Kind};
use norn_wire::limits::FRAME_BYTES_MAX;
use norn_wire::response::{Identity, Welcome};
use norn_wire::{ClusterId, Error, ErrorCode, NodeId, Request, Response, Versions};
use std::future::{pending, ready};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::{Semaphore, watch};
use tower::ServiceExt;

/// Address of a door on this machine, as clients name it.
const HOST: &str = "localhost:7500";
/// Address of callers.
const ADDRESS: &str = "127.0.0.1:5";
/// Bound of waiting for what must happen.
const PATIENCE: Duration = Duration::from_secs(20);
/// Time limit of calls that are to fail.
const SOON: Duration = Duration::from_millis(300);

/// Reaction of the node to a request.
pub enum Reply {
    /// This answer.
    Answer(Response),
    /// No answer.
    Silence,
}

impl From<Response> for Reply {
    fn from(response: Response) -> Reply {
        Reply::Answer(response)
    }
}

impl From<Option<Response>> for Reply {
    fn from(response: Option<Response>) -> Reply {
        response.map_or(Reply::Silence, Reply::Answer)
    }
}

impl From<Error> for Reply {
    fn from(error: Error) -> Reply {
        Reply::Answer(Response::Error(error))
    }
}

/// What the node does with requests.
#[derive(Clone)]
pub struct Script {
    react: Arc<Mutex<dyn FnMut(Request) -> Reply + Send>>,
    time_ms: Option<u64>,
}

impl Default for Script {
    /// Knows no request.
    fn default() -> Script {
        Script::new(|request| Error::new(ErrorCode::Unsupported, format!("not scripted: {}", request.verb())))
    }
}

impl Script {
    /// Reacts with this.
    pub fn new<R: Into<Reply>>(mut script: impl FnMut(Request) -> R + Send + 'static) -> Script {
        Script { react: Arc::new(Mutex::new(move |request| script(request).into())), time_ms: None }
    }

    /// Gives these answers one after the other.
    pub fn answers<R: Into<Reply>>(answers: impl IntoIterator<Item = R>) -> Script {
        let mut answers = answers.into_iter().map(Into::into).collect::<Vec<Reply>>().into_iter();
        let none = || Error::new(ErrorCode::Unsupported, "no further answer is scripted").into();
        Script::new(move |_| answers.next().unwrap_or_else(none))
    }

    /// Its clock stands at this time, which is in the ids that it lends.
    pub fn at(self, time_ms: u64) -> Script {
        Script { time_ms: Some(time_ms), ..self }
    }
}

/// What the node tells its host, beside its answers to requests.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// Who it is; `None`: it has stopped.
    pub identity: Option<Identity>,
    /// It takes no event.
    pub stuck: bool,
    /// It takes no request: its log is full.
    pub log_full: bool,
    /// What it measures.
    pub measures: Measures,
    /// How long it measures.
    pub measures_after: Duration,
    /// What it counts.
    pub counters: Vec<(&'static str, u64)>,
    /// What is seen of files.
    pub surroundings: Surroundings,
    /// The node at any address outside; `None`: there is none.
    pub outside: Option<Identity>,
}

/// A node that follows a script.
#[derive(Debug)]
pub struct Node {
    local: LocalNode,
    /// What it tells; it may be changed.
    pub facts: Mutex<Facts>,
    asked: Arc<Mutex<Vec<Request>>>,
    looks: Arc<Semaphore>,
    /// How often it was asked for its measures.
    pub measured: AtomicUsize,
}

impl Node {
    /// A node that answers requests.
    pub fn start(script: Script) -> Arc<Node> {
        let (local, mut links) = local_node(Versions::SPOKEN.newest);
        let asked: Arc<Mutex<Vec<Request>>> = Arc::default();
        let notes = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Some(LocalLink { stream, .. }) = links.next().await {
                tokio::spawn(serve(stream, script.clone(), Arc::clone(&notes)));
            }
        });
        Node::made(local, Facts::default(), asked)
    }

    /// A node that takes no request, and tells this.
    pub fn telling(facts: Facts) -> Arc<Node> {
        let local = local_node(Versions::SPOKEN.newest).0;
        Node::made(local, facts, Arc::default())
    }

    fn made(local: LocalNode, facts: Facts, asked: Arc<Mutex<Vec<Request>>>) -> Arc<Node> {
        let (facts, looks) = (Mutex::new(facts), Arc::new(Semaphore::new(1)));
        Arc::new(Node { local, facts, asked, looks, measured: AtomicUsize::new(0) })
    }

    fn facts(&self) -> Facts {
        self.facts.lock().unwrap().clone()
    }
}

impl Host for Node {
    fn local(&self) -> LocalNode {
        self.local.clone()
    }

    fn alive(&self) -> state::Told<'_, bool> {
        let Facts { identity, stuck, .. } = self.facts();
        if stuck { Box::pin(pending()) } else { Box::pin(ready(identity.is_some())) }
    }

    fn identity(&self) -> state::Told<'_, Option<Identity>> {
        let Facts { identity, stuck, log_full, .. } = self.facts();
        if stuck || log_full { Box::pin(pending()) } else { Box::pin(ready(identity)) }
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.facts().counters
    }

    fn log_syncs(&self) -> TimesAt {
        let times = Times::new(SYNC_US);
        times.add_us(700);
        times.at()
    }

    fn measures(&self) -> state::Told<'_, Option<Arc<Measures>>> {
        self.measured.fetch_add(1, Ordering::Relaxed);
        let Facts { measures, measures_after, stuck, .. } = self.facts();
        if stuck {
            return Box::pin(pending());
        }
        Box::pin(async move {
            tokio::time::sleep(measures_after).await;
            Some(Arc::new(measures))
        })
    }

    fn ask<'a>(&'a self, address: &'a str, request: Request) -> state::Told<'a, Result<Response, Error>> {
        self.asked.lock().unwrap().push(request.clone());
        Box::pin(ready(match (self.facts().outside, request) {
            (Some(identity), Request::Identify) => Ok(Response::Identity(Box::new(identity))),
            (Some(_), Request::Join(_)) => Ok(Response::Done),
            (Some(_), request) => Err(Error::new(ErrorCode::Unsupported, request.verb())),
            (None, _) => Err(Error::invalid(format!("no node listens at {address}"))),
        }))
    }

    fn surroundings(&self) -> state::Told<'_, Option<Surroundings>> {
        // As a node does: one look at a time.
        let Ok(look) = Arc::clone(&self.looks).try_acquire_owned() else { return Box::pin(ready(None)) };
        Box::pin(async move {
            tokio::task::yield_now().await;
            drop(look);
            Some(self.facts().surroundings)
        })
    }
}

/// A door before a node.
pub struct Door {
    /// The node, if it answers requests.
    pub node: Option<Arc<Node>>,
    pub state: Arc<State>,
    router: Router,
    /// Sets how far the node is.
    pub phase: watch::Sender<Phase>,
    asked: Arc<Mutex<Vec<Request>>>,
}

/// An answer, whole.
#[derive(Debug)]
pub struct Told {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: String,
}

impl Told {
    /// A header; empty if there is none.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
    }

    /// The body as JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

impl Door {
    /// A door with the usual limits.
    pub fn new(script: Script) -> Door {
        Door::with(Bounds::default(), Access::default(), script)
    }

    /// A door whose calls fail soon, for errors that a session would try again.
    pub fn impatient(script: Script) -> Door {
        Door::with(Bounds { call_timeout: SOON, ..Bounds::default() }, Access::default(), script)
    }

    /// A door with these limits.
    pub fn with(bounds: Bounds, access: Access, script: Script) -> Door {
        let node = Node::start(script);
        let (asked, behind) = (Arc::clone(&node.asked), Some(Arc::clone(&node)));
        Door { asked, node: behind, ..Door::of(bounds, access, Phase::Running(node)) }
    }

    /// A door of a node in this phase.
    pub fn of(bounds: Bounds, access: Access, phase: Phase) -> Door {
        let (phase, present) = watch::channel(phase);
        let state = Arc::new(State::new(bounds, access, present));
        Door { node: None, router: router(&state), state, phase, asked: Arc::default() }
    }

    /// The requests that the node has got, without those by which a session says that it has or leaves what it was granted.
    pub fn seen(&self) -> Vec<Request> {
        let is_own = |request: &Request| matches!(request, Request::Confirm { .. } | Request::Leave { .. });
        self.asked().into_iter().filter(|request| !is_own(request)).collect()
    }

    /// All requests that the node has got.
    pub fn asked(&self) -> Vec<Request> {
        self.asked.lock().unwrap().clone()
    }

    /// The node is about to stop.
    pub fn drain(&self) {
        self.phase.send_modify(|phase| {
            if let Phase::Running(node) = phase {
                *phase = Phase::Draining(Arc::clone(node));
            }
        });
    }

    /// Sends a request and returns its answer before the body is read.
    pub async fn begin(&self, request: HttpRequest<Body>) -> axum::response::Response {
        self.begin_as(Peer::plain(&self.state.access, ADDRESS.parse().unwrap()).unwrap(), request).await
    }

    async fn begin_as(&self, peer: Peer, mut request: HttpRequest<Body>) -> axum::response::Response {
        request.extensions_mut().insert(peer);
        request.headers_mut().entry(header::HOST).or_insert(HOST.parse().unwrap());
        self.router.clone().oneshot(request).await.unwrap()
    }

    /// Sends a request.
    pub async fn send(&self, request: HttpRequest<Body>) -> Told {
        told(self.begin(request).await).await
    }

    /// Sends a request without a body.
    pub async fn get(&self, target: &str) -> Told {
        self.send(HttpRequest::get(target).body(Body::empty()).unwrap()).await
    }

    /// Sends a request over TLS without a certificate.
    pub async fn send_as_stranger(&self, request: HttpRequest<Body>) -> Told {
        let peer = Peer { address: ADDRESS.parse().unwrap(), plain: false, name: Err("no certificate".into()) };
        told(self.begin_as(peer, request).await).await
    }

    /// As [`Door::get`], over TLS without a certificate.
    pub async fn get_as_stranger(&self, target: &str) -> Told {
        self.send_as_stranger(HttpRequest::get(target).body(Body::empty()).unwrap()).await
    }

    /// Sends a request with a JSON body.
    pub async fn call(&self, method: Method, target: &str, body: &str) -> Told {
        let request = HttpRequest::builder().method(method).uri(target);
        let request = request.header(header::CONTENT_TYPE, "application/json");
        self.send(request.body(Body::from(body.to_owned())).unwrap()).await
    }
}

async fn told(response: axum::response::Response) -> Told {
    let (parts, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    Told { status: parts.status, headers: parts.headers, body: String::from_utf8(body.to_vec()).unwrap() }
}

/// A door whose answers are all JSON.
pub struct JsonDoor(pub Door);

/// An answer as JSON.
#[derive(Debug)]
pub struct JsonTold {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: serde_json::Value,
}

impl JsonDoor {
    pub fn open<R: Into<Reply>>(script: impl FnMut(Request) -> R + Send + 'static) -> JsonDoor {
        JsonDoor(Door::new(Script::new(script)))
    }

    /// A door whose calls fail soon, for errors that a session would try again.
    pub fn impatient<R: Into<Reply>>(script: impl FnMut(Request) -> R + Send + 'static) -> JsonDoor {
        JsonDoor(Door::impatient(Script::new(script)))
    }

    /// Makes a request, with a body if one is given.
    pub async fn ask(&self, method: &str, path: &str, body: &str) -> JsonTold {
        let request = HttpRequest::builder().method(method).uri(path).body(Body::from(body.to_owned())).unwrap();
        let told = self.0.send(request).await;
        JsonTold { body: told.json(), status: told.status, headers: told.headers }
    }

    pub async fn get(&self, path: &str) -> JsonTold {
        self.ask("GET", path, "").await
    }

    /// Posts a request whose caller hangs up once the node has got a request like this, which it does not answer.
    pub async fn hang_up_at(&self, path: &str, body: &serde_json::Value, is_it: impl Fn(&Request) -> bool) {
        let request = HttpRequest::post(path).body(Body::from(body.to_string())).unwrap();
        tokio::select! {
            answer = self.0.begin(request) => panic!("the node is silent: {answer:?}"),
            () = until(|| self.0.seen().iter().any(&is_it)) => {}
        }
    }

    /// Posts a request whose caller hangs up while the answer is on its way.
    pub async fn hang_up(&self, path: &str, body: &serde_json::Value) {
        let request = HttpRequest::post(path).body(Body::from(body.to_string())).unwrap();
        let answer = self.0.begin(request).await;
        assert_eq!(answer.status(), StatusCode::OK);
    }

    pub async fn post(&self, path: &str, body: &serde_json::Value) -> JsonTold {
        self.ask("POST", path, &body.to_string()).await
    }
}

/// Waits, within a bound, until it is so.
pub async fn until(mut is_so: impl FnMut() -> bool) {
    let looking = async {
        while !is_so() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, looking).await.expect("it happens in time");
}

/// The present time in milliseconds since the Unix epoch.
pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

fn welcome(time_ms: u64) -> Response {
    Response::Welcome(Welcome {
        node: NodeId(1),
        cluster: ClusterId(1),
        time_ms,
        minter: 7,
        refusal: None,
        clock_ms: None,
    })
}

/// Answers what sessions ask by themselves, and the rest by the script. Notes all but greetings and pings.
async fn serve(mut stream: DuplexStream, script: Script, notes: Arc<Mutex<Vec<Request>>>) {
    let version = Versions::SPOKEN.newest;
    let (mut buffer, mut chunk) = (Vec::new(), vec![0; 64 << 10]);
    while let Ok(length @ 1..) = stream.read(&mut chunk).await {
        buffer.extend_from_slice(&chunk[..length]);
        while let Some((header, end)) = codec::split(&buffer, version, FRAME_BYTES_MAX).unwrap() {
            let request: Request = codec::decode_body(&header, &buffer[HEADER_BYTES..end]).unwrap();
            buffer.drain(..end);
            if !matches!(request, Request::Hello { .. } | Request::Ping) {
                notes.lock().unwrap().push(request.clone());
            }
            let reply = match request {
                Request::Hello { .. } => Reply::Answer(welcome(script.time_ms.unwrap_or_else(now_ms))),
                Request::Confirm { .. } | Request::Ping | Request::Leave { .. } => Reply::Answer(Response::Done),
                request => (script.react.lock().unwrap())(request),
            };
            let Reply::Answer(response) = reply else { continue };
            let mut bytes = Vec::new();
            codec::encode_named(&mut bytes, version, Kind::Response, header.request, &response);
            if stream.write_all(&bytes).await.is_err() {
                return;
            }
        }
    }
}
