//! Ways to a node: QUIC, or a pipe within the process.

use crate::local::LocalNode;
use crate::tls::Outgoing;
use quinn::{Endpoint, RecvStream, SendStream};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};
use tokio::task::JoinSet;

/// Most bytes read at once.
pub(super) const READ_BYTES_MAX: usize = 256 << 10;
/// Room that a read from a pipe finds at least.
const PIPE_READ_BYTES: usize = 16 << 10;

/// How connections are made.
#[derive(Clone)]
pub(crate) enum Dialer {
    /// To addresses, over QUIC.
    Quic(Quic),
    /// To the node of this process.
    Local(LocalNode),
}

/// What a connection over QUIC needs.
#[derive(Clone)]
pub(crate) struct Quic {
    pub endpoint: Endpoint,
    pub outgoing: Arc<Outgoing>,
}

impl Dialer {
    /// Connections from this socket, with these certificates.
    pub fn quic(endpoint: Endpoint, outgoing: Outgoing) -> Dialer {
        Dialer::Quic(Quic { endpoint, outgoing: Arc::new(outgoing) })
    }

    /// Starts to warn of certificates that end soon. The warnings end with the set.
    pub(super) fn remind(&self) -> JoinSet<()> {
        let mut reminders = JoinSet::new();
        if let Dialer::Quic(Quic { outgoing, .. }) = self {
            let outgoing = Arc::clone(outgoing);
            reminders.spawn(async move { outgoing.remind().await });
        }
        reminders
    }

    /// Waits until there is no node any more that could serve, ever, and returns why. A cluster never ends so.
    pub(super) async fn node_ended(&self) -> String {
        match self {
            Dialer::Quic(_) => std::future::pending().await,
            Dialer::Local(node) => node.ended().await,
        }
    }

    /// Closes what all connections share, and waits for the nodes to learn of it.
    pub(super) async fn close(&self, timeout: Duration) {
        if let Dialer::Quic(Quic { endpoint, .. }) = self {
            endpoint.close(0u32.into(), b"closed");
            // A node that does not hear of it notices when the connection times out.
            let _ = tokio::time::timeout(timeout, endpoint.wait_idle()).await;
        }
    }
}

/// Outgoing half of a connection's stream.
pub(super) enum Sending {
    Quic(SendStream),
    Local(WriteHalf<DuplexStream>),
}

impl Sending {
    pub async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Sending::Quic(stream) => Ok(stream.write_all(bytes).await?),
            Sending::Local(pipe) => pipe.write_all(bytes).await,
        }
    }

    /// Ends the stream, and waits until the node has all of it. If the node is gone, there is nothing left to send.
    pub async fn finish(&mut self) {
        match self {
            Sending::Quic(stream) => {
                if stream.finish().is_ok() {
                    let _ = stream.stopped().await;
                }
            }
            Sending::Local(pipe) => {
                let _ = pipe.shutdown().await;
            }
        }
    }
}

/// Incoming half of a connection's stream.
pub(super) enum Receiving {
    Quic(RecvStream),
    Local(ReadHalf<DuplexStream>),
}

impl Receiving {
    /// Appends what has arrived; waits for the first byte of it. False at the end of the stream.
    pub async fn read_into(&mut self, buffer: &mut Vec<u8>) -> io::Result<bool> {
        match self {
            Receiving::Quic(stream) => {
                let chunk = stream.read_chunk(READ_BYTES_MAX, true).await?;
                if let Some(chunk) = &chunk {
                    buffer.extend_from_slice(&chunk.bytes);
                }
                Ok(chunk.is_some())
            }
            Receiving::Local(pipe) => {
                buffer.reserve(PIPE_READ_BYTES);
                Ok(pipe.read_buf(buffer).await? > 0)
            }
        }
    }
}
