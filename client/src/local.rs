//! The way to a node in the same process: the frames of the protocol over a pipe in memory, without a socket and without certificates.
//!
//! A door of a node, such as its HTTP interface, is a client of that node, and so is an application that has a store in its process. Over
//! this way they have the same session as any other client: retries, deadlines, ids, and the release of tasks that no caller received.

use std::sync::{Arc, OnceLock};
use tokio::io::DuplexStream;
use tokio::sync::mpsc;

/// Links that may wait for the node to take them.
const OPENING_MAX: usize = 64;
/// Bytes that a link holds in each direction before its writer waits.
const PIPE_BYTES: usize = 256 << 10;

/// A node in this process, as seen by its clients.
#[derive(Debug, Clone)]
pub struct LocalNode {
    version: u8,
    principal: Arc<str>,
    opening: mpsc::Sender<LocalLink>,
    /// Why the node has stopped.
    ended: Arc<OnceLock<String>>,
}

/// A link that a client in this process has opened: the node's end of it.
#[derive(Debug)]
pub struct LocalLink {
    /// Name on whose behalf the client makes its requests.
    pub principal: Arc<str>,
    /// Frames of the protocol in both directions.
    pub stream: DuplexStream,
}

/// Links that clients in this process open, as the node takes them. Once this is dropped, open calls of these clients fail, and so do
/// later ones, at once.
#[derive(Debug)]
pub struct LocalLinks {
    links: mpsc::Receiver<LocalLink>,
    ended: Arc<OnceLock<String>>,
}

impl LocalLinks {
    /// The next link. `None` once no client is left that could open one.
    pub async fn next(&mut self) -> Option<LocalLink> {
        self.links.recv().await
    }

    /// Where to say why the node stops, before this is dropped.
    pub fn reason(&self) -> Arc<OnceLock<String>> {
        Arc::clone(&self.ended)
    }
}

/// Creates the way to a node that speaks this protocol version. The node serves the links that arrive at the receiver.
pub fn local_node(version: u8) -> (LocalNode, LocalLinks) {
    let (opening, links) = mpsc::channel(OPENING_MAX);
    let ended = Arc::<OnceLock<String>>::default();
    let node = LocalNode { version, principal: "local".into(), opening, ended: Arc::clone(&ended) };
    (node, LocalLinks { links, ended })
}

impl LocalNode {
    /// The same node for requests on behalf of another name.
    #[must_use]
    pub fn on_behalf_of(&self, principal: impl Into<Arc<str>>) -> LocalNode {
        LocalNode { principal: principal.into(), ..self.clone() }
    }

    /// The protocol version of the links.
    pub(crate) fn version(&self) -> u8 {
        self.version
    }

    /// Opens a link. `None`: the node has stopped.
    pub(crate) async fn open(&self) -> Option<DuplexStream> {
        let (near, far) = tokio::io::duplex(PIPE_BYTES);
        let link = LocalLink { principal: Arc::clone(&self.principal), stream: far };
        self.opening.send(link).await.ok().map(|()| near)
    }

    /// Waits until the node has stopped, and returns why.
    pub(crate) async fn ended(&self) -> String {
        self.opening.closed().await;
        self.ended.get().map_or_else(|| "the node has stopped".to_owned(), |why| format!("the node has stopped: {why}"))
    }
}
