//! A UDP socket that wakes its process for arrivals alone.

use quinn::udp::{RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use quinn::{AsyncUdpSocket, UdpPoller};
use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A socket that hears of arrivals alone. Of room for more datagrams it hears only once the system had none.
#[derive(Debug)]
pub(super) struct QuietSocket {
    socket: AsyncFd<UdpSocket>,
    state: UdpSocketState,
    /// The system took no further datagram, and has not said since that it would.
    full: AtomicBool,
}

impl QuietSocket {
    pub fn new(socket: UdpSocket) -> io::Result<QuietSocket> {
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        socket.set_nonblocking(true)?;
        let socket = watch(socket, Interest::READABLE)?;
        Ok(QuietSocket { socket, state, full: AtomicBool::new(false) })
    }

    /// Another name of the same socket, registered for writing. It takes a descriptor.
    fn wait_for_room(&self) -> io::Result<AsyncFd<UdpSocket>> {
        watch(self.socket.get_ref().try_clone()?, Interest::WRITABLE)
    }

    fn system(&self) -> UdpSockRef<'_> {
        UdpSockRef::from(self.socket.get_ref())
    }
}

impl AsyncUdpSocket for QuietSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(Room { socket: self, wait: None })
    }

    fn try_send(&self, transmit: &Transmit) -> io::Result<()> {
        let sent = self.state.send(self.system(), transmit);
        if sent.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            self.full.store(true, Ordering::Release);
        }
        sent
    }

    fn poll_recv(
        &self,
        context: &mut Context,
        buffers: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut arrived = ready!(self.socket.poll_read_ready(context))?;
            match self.state.recv(self.system(), buffers, metas) {
                Ok(received) => {
                    // Linux fills fewer than all only if there are no more, and tells of later arrivals anew. An error ends a read early,
                    // too, but a socket that is not connected gets none of its peers.
                    if cfg!(target_os = "linux") && received < buffers.len() {
                        arrived.clear_ready();
                    }
                    return Poll::Ready(Ok(received));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => arrived.clear_ready(),
                // It tells of an earlier datagram that was sent, and is gone with that.
                Err(error) => tracing::debug!(%error, "a datagram was not received"),
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.get_ref().local_addr()
    }

    fn may_fragment(&self) -> bool {
        self.state.may_fragment()
    }

    fn max_transmit_segments(&self) -> usize {
        self.state.max_gso_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.state.gro_segments()
    }
}

/// Waits until the system takes a further datagram.
#[derive(Debug)]
struct Room {
    socket: Arc<QuietSocket>,
    /// Another name of the same socket, registered for as long as it is full.
    wait: Option<AsyncFd<UdpSocket>>,
}

impl UdpPoller for Room {
    fn poll_writable(mut self: Pin<&mut Self>, context: &mut Context) -> Poll<io::Result<()>> {
        if !self.socket.full.load(Ordering::Acquire) {
            self.wait = None;
            return Poll::Ready(Ok(()));
        }
        if self.wait.is_none() {
            match self.socket.wait_for_room() {
                Ok(wait) => self.wait = Some(wait),
                // The process has no descriptor left. An error would end the connection for good, so it tries to send in the next round.
                Err(error) => {
                    tracing::debug!(%error, "no wait for room in the socket");
                    self.socket.full.store(false, Ordering::Release);
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
            }
        }
        let wait = self.wait.as_ref().expect("it was made above");
        drop(ready!(wait.poll_write_ready(context))?);
        self.socket.full.store(false, Ordering::Release);
        self.wait = None;
        Poll::Ready(Ok(()))
    }
}

/// Registers a socket with the runtime.
#[expect(deprecated, reason = "the successor is unsafe: it wants a type that keeps its descriptor, as this does")]
fn watch(socket: UdpSocket, interest: Interest) -> io::Result<AsyncFd<UdpSocket>> {
    AsyncFd::with_interest(socket, interest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::time::Duration;
    use tokio::time::timeout;

    const DEADLINE: Duration = Duration::from_secs(20);

    fn on_loopback() -> QuietSocket {
        QuietSocket::new(UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap()
    }

    /// Receives some datagrams, and returns how many.
    async fn receive(socket: &QuietSocket) -> usize {
        let mut memory = vec![[0_u8; 64]; 32];
        let received = poll_fn(|context| {
            let mut buffers: Vec<IoSliceMut<'_>> = memory.iter_mut().map(|bytes| IoSliceMut::new(bytes)).collect();
            socket.poll_recv(context, &mut buffers, &mut [RecvMeta::default(); 32])
        });
        timeout(DEADLINE, received).await.expect("a datagram arrived").unwrap()
    }

    #[tokio::test]
    async fn arrivals_after_a_short_read_are_heard_of() {
        let (from, to) = (on_loopback(), on_loopback());
        let destination = to.local_addr().unwrap();
        let send = |contents: &[u8]| {
            let transmit = Transmit { destination, ecn: None, contents, segment_size: None, src_ip: None };
            from.try_send(&transmit).unwrap();
        };
        for round in 1..=3 {
            for number in 0..round {
                send(&[number; 10]);
            }
            let mut received = 0;
            while received < usize::from(round) {
                received += receive(&to).await;
            }
            assert_eq!(received, usize::from(round));
        }
    }

    #[tokio::test]
    async fn a_sender_waits_only_for_a_socket_that_was_full() {
        let socket = Arc::new(on_loopback());
        let mut room = Box::pin(Room { socket: Arc::clone(&socket), wait: None });
        poll_fn(|context| room.as_mut().poll_writable(context)).await.unwrap();
        assert!(room.wait.is_none(), "it was not registered");
        socket.full.store(true, Ordering::Release);
        timeout(DEADLINE, poll_fn(|context| room.as_mut().poll_writable(context)))
            .await
            .expect("there is room")
            .unwrap();
        assert!(!socket.full.load(Ordering::Acquire) && room.wait.is_none(), "it is registered no more");
    }
}
