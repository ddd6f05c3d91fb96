//! A node for tests: the frames of the protocol over a link in this process, with scripted answers.

use crate::access::{Access, Peer};
use crate::request::router;
use crate::scripted::Scripted;
use crate::state::{Bounds, Phase, State};
use axum::Router;
use axum::body::Body;
use axum::http::{Request as HttpRequest, Response as HttpResponse};
use norn_client::local::{LocalLink, local_node};
use norn_wire::codec::{self, HEADER_BYTES, Kind};
use norn_wire::limits::FRAME_BYTES_MAX;
use norn_wire::response::Welcome;
use norn_wire::{ClusterId, NodeId, Request, Response};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;
use tower::ServiceExt;

const VERSION: u8 = 2;
/// Time in ids that the node lends.
pub const LENT_MS: u64 = 1_800_000_000_000;

type Script = Arc<Mutex<dyn FnMut(&Request) -> Option<Response> + Send>>;

/// The doors of a node that answers as scripted. It answers what sessions ask themselves, and notes all requests.
pub struct Bench {
    pub router: Router,
    pub state: Arc<State>,
    pub asked: Arc<Mutex<Vec<Request>>>,
    pub phase: watch::Sender<Phase>,
}

impl Bench {
    /// Starts the node. The script answers each request; `None` is silence.
    pub fn start(script: impl FnMut(&Request) -> Option<Response> + Send + 'static) -> Bench {
        let (node, mut links) = local_node(VERSION);
        let asked: Arc<Mutex<Vec<Request>>> = Arc::default();
        let (script, notes): (Script, _) = (Arc::new(Mutex::new(script)), Arc::clone(&asked));
        tokio::spawn(async move {
            while let Some(link) = links.recv().await {
                tokio::spawn(serve(link, Arc::clone(&script), Arc::clone(&notes)));
            }
        });
        let (phase, phases) = watch::channel(Phase::Running(Scripted::behind(node)));
        let bounds = Bounds { call_timeout: Duration::from_millis(500), ..Bounds::default() };
        let state = Arc::new(State::new(bounds, Access::default(), phases));
        Bench { router: router(&state), state, asked, phase }
    }

    /// Tells the doors that the node is about to stop.
    pub fn drain(&self) {
        self.phase.send_modify(|phase| {
            if let Phase::Running(host) = phase {
                *phase = Phase::Draining(Arc::clone(host));
            }
        });
    }

    /// Makes a request from this machine.
    pub async fn ask(&self, mut request: HttpRequest<Body>) -> HttpResponse<Body> {
        let address = "127.0.0.1:5".parse().unwrap();
        request.extensions_mut().insert(Peer::plain(&self.state.access, address).unwrap());
        request.headers_mut().insert("host", "localhost".parse().unwrap());
        request.headers_mut().insert("x-request-id", "r1".parse().unwrap());
        self.router.clone().oneshot(request).await.unwrap()
    }

    /// What the node was asked for, besides what sessions ask themselves.
    pub fn asked(&self) -> Vec<Request> {
        self.asked.lock().unwrap().clone()
    }
}

async fn serve(mut link: LocalLink, script: Script, notes: Arc<Mutex<Vec<Request>>>) {
    let mut buffer = Vec::new();
    while link.stream.read_buf(&mut buffer).await.is_ok_and(|count| count > 0) {
        while let Some((header, end)) = codec::split(&buffer, VERSION, FRAME_BYTES_MAX).unwrap() {
            let request: Request = codec::decode_body(&header, &buffer[HEADER_BYTES..end]).unwrap();
            buffer.drain(..end);
            let answer = match &request {
                Request::Hello { .. } => Some(Response::Welcome(Welcome {
                    node: NodeId(1),
                    cluster: ClusterId(1),
                    time_ms: LENT_MS,
                    minter: 7,
                    refusal: None,
                    clock_ms: None,
                })),
                Request::Ping => Some(Response::Done),
                Request::Confirm { .. } | Request::Leave { .. } => {
                    notes.lock().unwrap().push(request.clone());
                    Some(Response::Done)
                }
                _ => {
                    notes.lock().unwrap().push(request.clone());
                    (script.lock().unwrap())(&request)
                }
            };
            let Some(answer) = answer else { continue };
            let mut bytes = Vec::new();
            codec::encode_named(&mut bytes, VERSION, Kind::Response, header.request, &answer);
            if link.stream.write_all(&bytes).await.is_err() {
                return;
            }
        }
    }
}
