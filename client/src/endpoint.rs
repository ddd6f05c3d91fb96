//! QUIC endpoints on sockets and timers that wake their process only for what it waits for.
//!
//! The sockets of quinn's own runtime are also told of each datagram that has left, and its timers are put off and called forward by
//! almost every packet. Both are wake-ups for nothing.

#[cfg(unix)]
mod socket;

use crate::alarm::Alarm;
use quinn::{AsyncTimer, AsyncUdpSocket, Endpoint, EndpointConfig, Runtime, ServerConfig, TokioRuntime};
use std::future::Future;
use std::io;
use std::net::UdpSocket;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

/// An endpoint on `socket`: for both directions, or for outgoing connections only if `server` is `None`.
pub fn endpoint(socket: UdpSocket, server: Option<ServerConfig>) -> io::Result<Endpoint> {
    Endpoint::new(EndpointConfig::default(), server, socket, Arc::new(QuietRuntime))
}

/// Tokio, with quiet sockets and timers.
#[derive(Debug)]
struct QuietRuntime;

impl Runtime for QuietRuntime {
    fn new_timer(&self, at: Instant) -> Pin<Box<dyn AsyncTimer>> {
        Box::pin(Alarm::new(at))
    }

    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) {
        TokioRuntime.spawn(future);
    }

    #[cfg(unix)]
    fn wrap_udp_socket(&self, socket: UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        Ok(Arc::new(socket::QuietSocket::new(socket)?))
    }

    #[cfg(not(unix))]
    fn wrap_udp_socket(&self, socket: UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        TokioRuntime.wrap_udp_socket(socket)
    }

    fn now(&self) -> Instant {
        TokioRuntime.now()
    }
}

impl AsyncTimer for Alarm {
    fn reset(self: Pin<&mut Self>, at: Instant) {
        Alarm::set(self.get_mut(), at);
    }

    fn poll(self: Pin<&mut Self>, context: &mut Context) -> Poll<()> {
        Alarm::poll(self.get_mut(), context)
    }
}
