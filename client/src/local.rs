//! The way to a node in the same process: the frames of the protocol over a pipe in memory, without a socket and without certificates.
//!
//! A door of a node, such as its HTTP interface, is a client of that node. Over this way it has the same session as any other client:
//! retries, deadlines, ids, and the release of tasks that no caller received.

use std::sync::Arc;
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
}

/// A link that a client in this process has opened: the node's end of it.
#[derive(Debug)]
pub struct LocalLink {
    /// Name on whose behalf the client makes its requests.
    pub principal: Arc<str>,
    /// Frames of the protocol in both directions.
    pub stream: DuplexStream,
}

/// Creates the way to a node that speaks this protocol version. The node serves the links that arrive at the receiver.
pub fn local_node(version: u8) -> (LocalNode, mpsc::Receiver<LocalLink>) {
    let (opening, links) = mpsc::channel(OPENING_MAX);
    (LocalNode { version, principal: "local".into(), opening }, links)
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
}
