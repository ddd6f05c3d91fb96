//! A door before a scripted node, for tests.

use crate::access::{Access, Peer};
use crate::request::router;
use crate::scripted::Scripted;
use crate::state::{Bounds, Host, Phase, State};
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Method, Request as HttpRequest, StatusCode, header};
use http_body_util::BodyExt;
use norn_client::local::{LocalLink, local_node};
use norn_wire::codec::{self, HEADER_BYTES, Kind};
use norn_wire::limits::FRAME_BYTES_MAX;
use norn_wire::response::Welcome;
use norn_wire::{ClusterId, Error, ErrorCode, NodeId, Request, Response, Versions};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::watch;
use tower::ServiceExt;

/// Address of a door on this machine, as clients name it.
const HOST: &str = "localhost:7500";

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

impl From<Error> for Reply {
    fn from(error: Error) -> Reply {
        Reply::Answer(Response::Error(error))
    }
}

/// What the node does.
#[derive(Clone)]
pub struct Script(Arc<Mutex<dyn FnMut(Request) -> Reply + Send>>);

impl Default for Script {
    /// Knows no request.
    fn default() -> Script {
        Script::new(|request| Error::new(ErrorCode::Unsupported, format!("not scripted: {}", request.verb())))
    }
}

impl Script {
    /// Reacts with this.
    pub fn new<R: Into<Reply>>(mut script: impl FnMut(Request) -> R + Send + 'static) -> Script {
        Script(Arc::new(Mutex::new(move |request| script(request).into())))
    }

    /// Gives these answers one after the other.
    pub fn answers(answers: impl IntoIterator<Item = Response>) -> Script {
        let mut answers = answers.into_iter().collect::<Vec<_>>().into_iter();
        let none = || Response::Error(Error::new(ErrorCode::Unsupported, "no further answer is scripted"));
        Script::new(move |_| answers.next().unwrap_or_else(none))
    }
}

/// A door before a scripted node.
pub struct Door {
    pub state: Arc<State>,
    router: Router,
    phase: watch::Sender<Phase>,
    host: Arc<Scripted>,
    seen: Arc<Mutex<Vec<Request>>>,
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

    /// A door with these limits.
    pub fn with(bounds: Bounds, access: Access, script: Script) -> Door {
        let (node, mut links) = local_node(Versions::SPOKEN.newest);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let requests = Arc::clone(&seen);
        tokio::spawn(async move {
            while let Some(LocalLink { stream, .. }) = links.recv().await {
                tokio::spawn(serve(stream, script.clone(), Arc::clone(&requests)));
            }
        });
        let host = Scripted::behind(node);
        let (phase, present) = watch::channel(Phase::Running(Arc::clone(&host) as Arc<dyn Host>));
        let state = Arc::new(State::new(bounds, access, present));
        Door { router: router(&state), state, phase, host, seen }
    }

    /// The requests that the node has got.
    pub fn seen(&self) -> Vec<Request> {
        self.seen.lock().unwrap().clone()
    }

    /// The node is about to stop.
    pub fn drain(&self) {
        self.phase.send_replace(Phase::Draining(Arc::clone(&self.host) as Arc<dyn Host>));
    }

    /// Sends a request and returns its answer before the body is read.
    pub async fn begin(&self, mut request: HttpRequest<Body>) -> axum::response::Response {
        let peer = Peer::plain(&self.state.access, "127.0.0.1:5".parse().unwrap()).unwrap();
        request.extensions_mut().insert(peer);
        request.headers_mut().entry(header::HOST).or_insert(HOST.parse().unwrap());
        self.router.clone().oneshot(request).await.unwrap()
    }

    /// Sends a request.
    pub async fn send(&self, request: HttpRequest<Body>) -> Told {
        let (parts, body) = self.begin(request).await.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Told { status: parts.status, headers: parts.headers, body: String::from_utf8(body.to_vec()).unwrap() }
    }

    /// Sends a request without a body.
    pub async fn get(&self, target: &str) -> Told {
        self.send(HttpRequest::get(target).body(Body::empty()).unwrap()).await
    }

    /// Sends a request with a JSON body.
    pub async fn call(&self, method: Method, target: &str, body: &str) -> Told {
        let request = HttpRequest::builder().method(method).uri(target);
        let request = request.header(header::CONTENT_TYPE, "application/json");
        self.send(request.body(Body::from(body.to_owned())).unwrap()).await
    }
}

/// A door whose answers are all JSON.
pub struct JsonDoor(Door);

/// An answer as JSON.
#[derive(Debug)]
pub struct JsonTold {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: serde_json::Value,
}

impl JsonDoor {
    pub fn open(script: impl FnMut(Request) -> Response + Send + 'static) -> JsonDoor {
        JsonDoor(Door::new(Script::new(script)))
    }

    /// A door whose calls fail soon, for errors that a session would try again.
    pub fn impatient(script: impl FnMut(Request) -> Response + Send + 'static) -> JsonDoor {
        let bounds = Bounds { call_timeout: Duration::from_millis(300), ..Bounds::default() };
        JsonDoor(Door::with(bounds, Access::default(), Script::new(script)))
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

    pub async fn post(&self, path: &str, body: &serde_json::Value) -> JsonTold {
        self.ask("POST", path, &body.to_string()).await
    }
}

/// The present time in milliseconds since the Unix epoch.
pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

fn welcome() -> Response {
    Response::Welcome(Welcome {
        node: NodeId(1),
        cluster: ClusterId(1),
        time_ms: now_ms(),
        minter: 7,
        refusal: None,
        clock_ms: None,
    })
}

async fn serve(mut stream: DuplexStream, script: Script, seen: Arc<Mutex<Vec<Request>>>) {
    let version = Versions::SPOKEN.newest;
    let (mut buffer, mut chunk) = (Vec::new(), vec![0; 64 << 10]);
    while let Ok(length @ 1..) = stream.read(&mut chunk).await {
        buffer.extend_from_slice(&chunk[..length]);
        while let Some((header, end)) = codec::split(&buffer, version, FRAME_BYTES_MAX).unwrap() {
            let request: Request = codec::decode_body(&header, &buffer[HEADER_BYTES..end]).unwrap();
            buffer.drain(..end);
            let reply = match request {
                Request::Hello { .. } => Reply::Answer(welcome()),
                Request::Confirm { .. } | Request::Ping | Request::Leave { .. } => Reply::Answer(Response::Done),
                request => {
                    seen.lock().unwrap().push(request.clone());
                    (script.0.lock().unwrap())(request)
                }
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
